//! The byte forms of flat values.

use alloy_rlp::{Decodable, Encodable, Header};
use niwaki_primitives::{B256, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_storage::{Segment, corrupt};
use niwaki_trie::TrieAccount;

/// The slim form of an account: the RLP list of nonce, balance, storage root and code hash, where
/// an empty storage's root and an empty code's hash are empty strings.
///
/// Spec: devp2p `caps/snap.md`, "slim" account format.
pub fn encode_account(account: &TrieAccount) -> Vec<u8> {
    let root = shortened(&account.storage_root, &EMPTY_ROOT_HASH);
    let code = shortened(&account.code_hash, &EMPTY_CODE_HASH);
    let payload_length =
        account.nonce.length() + account.balance.length() + root.length() + code.length();
    let header = Header {
        list: true,
        payload_length,
    };
    let mut out = Vec::with_capacity(header.length() + payload_length);
    header.encode(&mut out);
    account.nonce.encode(&mut out);
    account.balance.encode(&mut out);
    root.encode(&mut out);
    code.encode(&mut out);
    out
}

fn shortened<'a>(hash: &'a B256, empty: &B256) -> &'a [u8] {
    if hash == empty { &[] } else { hash.as_slice() }
}

/// Reads an account from its slim form.
///
/// # Errors
/// The RLP error if the bytes are anything but one slim account.
pub fn decode_account(slim: &[u8]) -> Result<TrieAccount, alloy_rlp::Error> {
    let mut rest = slim;
    let mut fields = Header::decode_bytes(&mut rest, true)?;
    let account = TrieAccount {
        nonce: u64::decode(&mut fields)?,
        balance: U256::decode(&mut fields)?,
        storage_root: hash_or(&mut fields, EMPTY_ROOT_HASH)?,
        code_hash: hash_or(&mut fields, EMPTY_CODE_HASH)?,
    };
    if !rest.is_empty() || !fields.is_empty() {
        return Err(alloy_rlp::Error::UnexpectedLength);
    }
    Ok(account)
}

/// The account in the row of `key`.
pub(crate) fn account_of_row(key: &[u8], slim: &[u8]) -> Result<TrieAccount, Fault> {
    decode_account(slim).map_err(|error| corrupt(Segment::Accounts, key, error))
}

fn hash_or(fields: &mut &[u8], empty: B256) -> Result<B256, alloy_rlp::Error> {
    match Header::decode_bytes(fields, false)? {
        [] => Ok(empty),
        bytes => B256::try_from(bytes).map_err(|_| alloy_rlp::Error::UnexpectedLength),
    }
}

/// The stored form of a slot's value, which is not zero: big-endian without leading zeros.
pub fn encode_value(value: &U256) -> Vec<u8> {
    value.to_be_bytes_trimmed_vec()
}

/// Reads the stored form of a slot's value.
///
/// # Errors
/// What is wrong with bytes that are not 1 to 32 of them or begin with a zero.
pub fn decode_value(bytes: &[u8]) -> Result<U256, &'static str> {
    match bytes.first() {
        None => Err("empty value of a slot"),
        Some(0) => Err("value of a slot begins with a zero byte"),
        Some(_) => U256::try_from_be_slice(bytes).ok_or("value of a slot has over 32 bytes"),
    }
}

/// The value in the row of `key`.
pub(crate) fn value_of_row(key: &[u8], bytes: &[u8]) -> Result<U256, Fault> {
    decode_value(bytes).map_err(|reason| corrupt(Segment::Slots, key, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slim_account_omits_what_is_empty_and_comes_back_whole() {
        let mut account = TrieAccount {
            nonce: 7,
            balance: U256::from(1_000_000_u64),
            storage_root: EMPTY_ROOT_HASH,
            code_hash: EMPTY_CODE_HASH,
        };
        let slim = encode_account(&account);
        assert_eq!(slim, [0xc7, 0x07, 0x83, 0x0f, 0x42, 0x40, 0x80, 0x80]);
        assert_eq!(decode_account(&slim), Ok(account));
        account.storage_root = B256::repeat_byte(1);
        account.code_hash = B256::repeat_byte(2);
        let slim = encode_account(&account);
        assert_eq!(decode_account(&slim), Ok(account));
        for end in 0..slim.len() {
            assert!(decode_account(&slim[..end]).is_err(), "{end} bytes");
        }
        assert!(decode_account(&[&slim[..], &[0]].concat()).is_err());
    }

    #[test]
    fn values_have_no_leading_zeros() {
        let value = U256::from(0x0102_u64);
        assert_eq!(encode_value(&value), [1, 2]);
        assert_eq!(decode_value(&[1, 2]), Ok(value));
        assert_eq!(decode_value(&[0xff; 32]), Ok(U256::MAX));
        for bad in [&[][..], &[0, 1], &[1; 33]] {
            assert!(decode_value(bad).is_err());
        }
    }
}
