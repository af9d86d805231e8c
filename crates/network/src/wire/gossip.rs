//! Transactions that a peer sends unasked, and announcements of those that it has.

use super::fields::{Fields, list};
use super::limits::{MAX_ANNOUNCED, MAX_TRANSACTIONS};
use super::response::read_transactions;
use super::{CellMask, EthVersion};
use niwaki_primitives::rlp::{Error, Result, encode};
use niwaki_primitives::{B256, Bytes};

/// One announced transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its hash.
    pub hash: B256,
    /// Its EIP-2718 type; [`Announced::UNTYPED`] if it is not said.
    pub tx_type: u8,
    /// Bytes of its encoding; 0 if that is not said. Of a blob transaction with blobs up to eth/71, without them on eth/72.
    pub size: u32,
}

impl Announced {
    /// Before eth/68 only hashes are announced. No transaction has this type.
    pub const UNTYPED: u8 = u8::MAX;

    /// Whether a transaction of this type and size is what was announced.
    pub(crate) fn fits(announced: (u8, u32), tx_type: u8, size: u32, slack_bytes: u32) -> bool {
        announced.0 == Self::UNTYPED
            || announced.0 == tx_type && announced.1.abs_diff(size) <= slack_bytes
    }
}

/// The message NewPooledTransactionHashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// The transactions.
    pub transactions: Vec<Announced>,
    /// Since eth/72: which columns of the blobs the peer has; `None` where there is no blob transaction. It is written as a mask of
    /// zeros, and read as that or as an empty string.
    pub columns: Option<CellMask>,
}

impl Announcement {
    /// The message.
    pub fn encode(&self, version: EthVersion) -> Vec<u8> {
        let all = self.transactions.iter();
        if !version.has_typed_announcements() {
            return encode(all.map(|tx| tx.hash).collect::<Vec<B256>>());
        }
        let types: Bytes = all.clone().map(|tx| tx.tx_type).collect::<Vec<u8>>().into();
        let sizes: Vec<u32> = all.clone().map(|tx| tx.size).collect();
        let hashes: Vec<B256> = all.map(|tx| tx.hash).collect();
        // geth 1.17.10 takes no message without a mask.
        let columns = match version >= EthVersion::Eth72 {
            true => encode(self.columns.unwrap_or_default()),
            false => Vec::new(),
        };
        list(&[&encode(types), &encode(sizes), &encode(hashes), &columns])
    }

    /// Reads the message.
    ///
    /// # Errors
    /// If it is not RLP as it must be, its three lists differ in length, or it announces more than [`MAX_ANNOUNCED`].
    pub fn decode(data: &[u8], version: EthVersion) -> Result<Self> {
        let mut fields = Fields::of(data)?;
        if !version.has_typed_announcements() {
            let hashes: Vec<B256> = fields.all(MAX_ANNOUNCED)?;
            let untyped = |hash| Announced {
                hash,
                tx_type: Announced::UNTYPED,
                size: 0,
            };
            return Ok(Self {
                transactions: hashes.into_iter().map(untyped).collect(),
                columns: None,
            });
        }
        let types = fields.bytes()?;
        let sizes: Vec<u32> = fields.list()?.all(MAX_ANNOUNCED)?;
        let hashes: Vec<B256> = fields.list()?.all(MAX_ANNOUNCED)?;
        if types.len() != hashes.len() || sizes.len() != hashes.len() {
            return Err(Error::Custom("lists of different lengths"));
        }
        let mut columns = None;
        if version >= EthVersion::Eth72 {
            let mut mask = fields;
            columns = match fields.bytes()? {
                [] => None,
                _ => Some(CellMask::read(&mut mask)?).filter(|mask| mask.count() > 0),
            };
        }
        fields.end()?;
        let all = types.iter().zip(sizes).zip(hashes);
        let all = all.map(|((tx_type, size), hash)| Announced {
            hash,
            tx_type: *tx_type,
            size,
        });
        Ok(Self {
            transactions: all.collect(),
            columns,
        })
    }
}

/// Reads the message Transactions: each in EIP-2718 form.
///
/// # Errors
/// If it is not RLP as it must be, or has more than [`MAX_TRANSACTIONS`].
pub(crate) fn decode_transactions(data: &[u8]) -> Result<Vec<Bytes>> {
    read_transactions(Fields::of(data)?, MAX_TRANSACTIONS)
}

/// The message Transactions, or the items of PooledTransactions; each is given in EIP-2718 form.
pub fn encode_transactions<'a>(transactions: impl IntoIterator<Item = &'a Bytes>) -> Vec<u8> {
    let items: Vec<u8> = transactions.into_iter().flat_map(encode_item).collect();
    list(&[&items])
}

/// A transaction in EIP-2718 form as an item of a list: a legacy one is a list already, a typed one becomes a string.
pub fn encode_item(transaction: &Bytes) -> Vec<u8> {
    match transaction.first() {
        Some(0xc0..) => transaction.to_vec(),
        _ => encode(transaction),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn announcement() -> impl Strategy<Value = Announcement> {
        let tx = (any::<[u8; 32]>(), 0..5_u8, any::<u32>());
        let tx = tx.prop_map(|(hash, tx_type, size)| Announced {
            hash: hash.into(),
            tx_type,
            size,
        });
        let mask = any::<[u8; 16]>().prop_filter("no columns", |mask| *mask != [0; 16]);
        let columns = prop::option::of(mask.prop_map(CellMask));
        (prop::collection::vec(tx, 0..20), columns).prop_map(|(transactions, columns)| {
            Announcement {
                transactions,
                columns,
            }
        })
    }

    proptest! {
        #[test]
        fn announcements_survive_their_encoding(announcement in announcement()) {
            let version = EthVersion::Eth72;
            let decoded = Announcement::decode(&announcement.encode(version), version);
            prop_assert_eq!(decoded, Ok(announcement.clone()));
            let without = Announcement { columns: None, ..announcement };
            for version in [EthVersion::Eth71, EthVersion::Eth68] {
                let decoded = Announcement::decode(&without.encode(version), version);
                prop_assert_eq!(decoded, Ok(without.clone()));
            }
            let version = EthVersion::Eth67;
            let decoded = Announcement::decode(&without.encode(version), version).unwrap();
            prop_assert_eq!(decoded.encode(version), without.encode(version));
            let hashes = |all: &Announcement| -> Vec<B256> {
                all.transactions.iter().map(|tx| tx.hash).collect()
            };
            prop_assert_eq!(hashes(&decoded), hashes(&without));
            prop_assert!(decoded.transactions.iter().all(|tx| tx.tx_type == Announced::UNTYPED));
        }

        #[test]
        fn no_bytes_make_a_reader_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
            for version in EthVersion::ALL {
                let _ = Announcement::decode(&data, version);
            }
            let _ = decode_transactions(&data);
        }
    }

    #[test]
    fn without_blobs_the_mask_is_zeros_or_empty() {
        let none = Announcement::default();
        let encoded = none.encode(EthVersion::Eth72);
        assert_eq!(
            encoded,
            [&[0xd4, 0x80, 0xc0, 0xc0, 0x90][..], &[0; 16]].concat()
        );
        for encoded in [encoded, vec![0xc4, 0x80, 0xc0, 0xc0, 0x80]] {
            assert_eq!(
                Announcement::decode(&encoded, EthVersion::Eth72),
                Ok(none.clone())
            );
        }
    }

    #[test]
    fn lists_of_different_lengths_and_4097_hashes_are_refused() {
        let announced = Announced {
            hash: B256::repeat_byte(1),
            tx_type: 2,
            size: 100,
        };
        let mut announcement = Announcement {
            transactions: vec![announced; MAX_ANNOUNCED],
            columns: None,
        };
        let version = EthVersion::Eth69;
        assert!(Announcement::decode(&announcement.encode(version), version).is_ok());
        announcement.transactions.push(announced);
        assert!(Announcement::decode(&announcement.encode(version), version).is_err());
        let hashes = encode(vec![announced.hash; 2]);
        let uneven = list(&[
            &encode(Bytes::from_static(&[2])),
            &encode(vec![1_u32, 2]),
            &hashes,
        ]);
        assert!(Announcement::decode(&uneven, version).is_err());
    }

    #[test]
    fn legacy_transactions_are_lists_and_typed_ones_strings() {
        let legacy = Bytes::from_static(&[0xc2, 1, 2]);
        let typed = Bytes::from_static(&[2, 0xc1, 5]);
        let encoded = encode_transactions([&legacy, &typed]);
        assert_eq!(encoded, [0xc7, 0xc2, 1, 2, 0x83, 2, 0xc1, 5]);
        assert_eq!(decode_transactions(&encoded), Ok(vec![legacy, typed]));
        assert!(decode_transactions(&[0xc1, 0x80]).is_err());
        // A legacy transaction in a string, and a type above 0x7f.
        assert!(decode_transactions(&[0xc4, 0x83, 0xc2, 1, 2]).is_err());
        assert!(decode_transactions(&[0xc3, 0x82, 0x80, 1]).is_err());
    }
}
