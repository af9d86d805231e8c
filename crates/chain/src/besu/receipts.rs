//! The forms in which Besu stores the receipts of a block: with blooms as devp2p had them up to eth/68, compacted (no bloom, topics and
//! data without their leading zeros), and as eth/69 has them. A reason of a revert may follow the logs; it is left out.

use alloy_rlp::{Decodable, Error, Header};
use niwaki_primitives::{Address, B256, Bytes, Log, Receipt};

const BLOOM_BYTES: usize = 256;
/// Far more leading zeros than the data of a log has.
const MAX_ZEROS: usize = 64 << 20;

pub(super) fn decode_receipts(row: &[u8]) -> Result<Vec<Receipt>, Error> {
    let mut rest = row;
    let mut list = Header::decode_bytes(&mut rest, true)?;
    let mut receipts = Vec::new();
    while !list.is_empty() {
        receipts.push(decode_receipt(&mut list)?);
    }
    match rest.is_empty() {
        true => Ok(receipts),
        false => Err(Error::UnexpectedLength),
    }
}

fn is_list(rlp: &[u8]) -> bool {
    rlp.first().is_some_and(|first| *first >= 0xc0)
}

fn decode_receipt(receipts: &mut &[u8]) -> Result<Receipt, Error> {
    if is_list(receipts) {
        let mut fields = Header::decode_bytes(receipts, true)?;
        return decode_untyped(&mut fields);
    }
    let typed = Header::decode_bytes(receipts, false)?;
    let (tx_type, mut rest) = typed.split_first().ok_or(Error::InputTooShort)?;
    let mut fields = Header::decode_bytes(&mut rest, true)?;
    let outcome = string(&mut fields)?;
    let gas = u64::decode(&mut fields)?;
    skip_bloom(&mut fields)?;
    receipt(*tx_type, outcome, gas, &mut fields)
}

/// A receipt of a transaction without a type, or one as eth/69 has it, whose first field is the type.
fn decode_untyped(fields: &mut &[u8]) -> Result<Receipt, Error> {
    let (first, second) = (string(fields)?, string(fields)?);
    if skip_bloom(fields)? || is_list(fields) {
        return receipt(0, first, number(second)?, fields);
    }
    let tx_type = u8::try_from(number(first)?).map_err(|_| Error::Overflow)?;
    let gas = u64::decode(fields)?;
    receipt(tx_type, second, gas, fields)
}

fn receipt(tx_type: u8, outcome: &[u8], gas: u64, fields: &mut &[u8]) -> Result<Receipt, Error> {
    let (status, post_state) = match outcome {
        [] => (Some(false), None),
        [1] => (Some(true), None),
        root => (
            None,
            Some(B256::try_from(root).map_err(|_| Error::UnexpectedLength)?),
        ),
    };
    let mut list = Header::decode_bytes(fields, true)?;
    let mut logs = Vec::new();
    while !list.is_empty() {
        logs.push(log(&mut list)?);
    }
    Ok(Receipt {
        tx_type,
        status,
        post_state,
        cumulative_gas_used: gas,
        logs,
    })
}

/// Skips the bloom, if it is next.
fn skip_bloom(fields: &mut &[u8]) -> Result<bool, Error> {
    if is_list(fields) {
        return Ok(false);
    }
    let mut after = *fields;
    let is_bloom = string(&mut after)?.len() == BLOOM_BYTES;
    if is_bloom {
        *fields = after;
    }
    Ok(is_bloom)
}

fn log(logs: &mut &[u8]) -> Result<Log, Error> {
    let mut fields = Header::decode_bytes(logs, true)?;
    let address = Address::decode(&mut fields)?;
    let mut list = Header::decode_bytes(&mut fields, true)?;
    let mut topics = Vec::new();
    while !list.is_empty() {
        let topic = trimmed(&mut list)?;
        topics.push(B256::try_from(&topic[..]).map_err(|_| Error::UnexpectedLength)?);
    }
    let data = trimmed(&mut fields)?;
    if !fields.is_empty() {
        return Err(Error::UnexpectedLength);
    }
    Log::new(address, topics, data).ok_or(Error::Custom("more than 4 topics"))
}

/// Bytes, or a list of how many zeros come before them and the rest.
fn trimmed(fields: &mut &[u8]) -> Result<Bytes, Error> {
    if !is_list(fields) {
        return Ok(Bytes::copy_from_slice(string(fields)?));
    }
    let mut pair = Header::decode_bytes(fields, true)?;
    let zeros = usize::decode(&mut pair)?;
    let rest = string(&mut pair)?;
    if zeros > MAX_ZEROS || !pair.is_empty() {
        return Err(Error::UnexpectedLength);
    }
    let mut bytes = vec![0; zeros];
    bytes.extend_from_slice(rest);
    Ok(bytes.into())
}

fn string<'a>(fields: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    Header::decode_bytes(fields, false)
}

fn number(bytes: &[u8]) -> Result<u64, Error> {
    if bytes.len() > 8 {
        return Err(Error::Overflow);
    }
    Ok(bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        let payload_length = items.iter().map(Vec::len).sum();
        Header {
            list: true,
            payload_length,
        }
        .encode(&mut out);
        out.extend(items.concat());
        out
    }

    fn string(bytes: &[u8]) -> Vec<u8> {
        alloy_rlp::encode(bytes)
    }

    fn logs(is_trimmed: bool) -> Vec<u8> {
        let field = |bytes: &[u8]| {
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            match is_trimmed {
                true => list(&[alloy_rlp::encode(zeros), string(&bytes[zeros..])]),
                false => string(bytes),
            }
        };
        let topics = [B256::with_last_byte(7), B256::ZERO, B256::repeat_byte(8)];
        let topics: Vec<_> = topics.iter().map(|topic| field(&topic[..])).collect();
        let log = |data: &[u8]| list(&[string(&[5; 20]), list(&topics), field(data)]);
        list(&[log(&[0, 0, 1, 0]), log(&[])])
    }

    fn expected(tx_type: u8) -> Receipt {
        let log = |data: &[u8]| {
            let topics = vec![B256::with_last_byte(7), B256::ZERO, B256::repeat_byte(8)];
            Log::new(Address::repeat_byte(5), topics, data.to_vec().into()).unwrap()
        };
        Receipt {
            tx_type,
            status: Some(true),
            post_state: None,
            cumulative_gas_used: 90_000,
            logs: vec![log(&[0, 0, 1, 0]), log(&[])],
        }
    }

    #[test]
    fn all_forms_give_the_same_receipt() {
        let (status, gas) = (string(&[1]), alloy_rlp::encode(90_000_u64));
        let bloom = string(&[0; BLOOM_BYTES]);
        let reason = string(b"reverted");
        let whole = list(&[status.clone(), gas.clone(), bloom, logs(false)]);
        let compact = list(&[status.clone(), gas.clone(), logs(true), reason]);
        let slim = list(&[string(&[2]), status, gas, logs(false)]);
        let typed = |fields: &[u8]| string(&[&[2], fields].concat());
        let forms = [
            (whole.clone(), 0),
            (compact.clone(), 0),
            (typed(&whole), 2),
            (typed(&compact), 2),
            (slim, 2),
        ];
        let all: Vec<_> = forms.iter().map(|(form, _)| form.clone()).collect();
        let kinds: Vec<_> = forms.iter().map(|(_, kind)| expected(*kind)).collect();
        let row = list(&all);
        assert_eq!(decode_receipts(&row), Ok(kinds));
        for end in 0..row.len() {
            assert!(decode_receipts(&row[..end]).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn a_state_root_is_kept_and_endless_zeros_are_refused() {
        let root = list(&[string(&[3; 32]), string(&[9]), list(&[])]);
        let decoded = decode_receipts(&list(&[root])).unwrap();
        assert_eq!(decoded[0].post_state, Some(B256::repeat_byte(3)));
        let endless = list(&[alloy_rlp::encode(u64::MAX), string(&[])]);
        let log = list(&[string(&[5; 20]), list(&[]), endless]);
        let receipt = list(&[string(&[1]), string(&[9]), list(&[log])]);
        assert!(decode_receipts(&list(&[receipt])).is_err());
    }
}
