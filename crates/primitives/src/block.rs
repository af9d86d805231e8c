//! Blocks, transactions and receipts.

use alloy_consensus::EthereumTxEnvelope;
use alloy_primitives::{Address, B256, Bloom, Log};
use alloy_rlp::{Decodable, EMPTY_LIST_CODE, Encodable};
use std::sync::Arc;

/// A signed transaction of any type, as it stands in a block (blob transactions without sidecar).
pub type TxEnvelope = EthereumTxEnvelope<alloy_consensus::TxEip4844>;
/// A block: header, transactions, ommers, withdrawals.
pub type Block = alloy_consensus::Block<TxEnvelope>;
/// A block without its header.
pub type BlockBody = alloy_consensus::BlockBody<TxEnvelope>;

/// A block with its hash and the sender of each transaction.
#[derive(Clone, Debug)]
pub struct RecoveredBlock {
    /// The block.
    pub block: Arc<Block>,
    /// Keccak-256 of the RLP of the header.
    pub hash: B256,
    /// One sender per transaction, in order.
    pub senders: Vec<Address>,
}

impl RecoveredBlock {
    /// The transactions with their senders, in order.
    pub fn transactions(&self) -> impl Iterator<Item = (&TxEnvelope, Address)> {
        let senders = self.senders.iter().copied();
        self.block.body.transactions.iter().zip(senders)
    }
}

/// The receipt of one transaction.
///
/// Spec: execution-specs `blocks.py`, `Receipt`; EIP-658 for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// EIP-2718 type of the transaction.
    pub tx_type: u8,
    /// EIP-658 status from Byzantium on; before, `None`.
    pub status: Option<bool>,
    /// The intermediate state root before Byzantium; from then on, `None`.
    pub post_state: Option<B256>,
    /// Gas used in the block up to and including this transaction.
    pub cumulative_gas_used: u64,
    /// Logs in order of emission.
    pub logs: Vec<Log>,
}

impl Receipt {
    /// The consensus encoding: the type byte of a typed transaction, then the RLP list of status
    /// or state root, cumulative gas, bloom and logs. What the receipts root is made of.
    ///
    /// Spec: execution-specs `blocks.py`, `encode_receipt`; EIP-2718, EIP-658.
    pub fn encode_2718(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_2718_with(&self.bloom(), &mut out);
        out
    }

    /// Like [`Receipt::encode_2718`], appended to `out` and with the bloom already known.
    pub fn encode_2718_with(&self, bloom: &Bloom, out: &mut Vec<u8>) {
        let outcome: &dyn Encodable = match (&self.post_state, &self.status) {
            (Some(root), _) => root,
            (None, Some(status)) => status,
            (None, None) => &false,
        };
        let gas = self.cumulative_gas_used;
        let payload_length = outcome.length() + gas.length() + bloom.length() + self.logs.length();
        let header = alloy_rlp::Header {
            list: true,
            payload_length,
        };
        out.reserve(1 + header.length() + payload_length);
        if self.tx_type != 0 {
            out.push(self.tx_type);
        }
        header.encode(out);
        outcome.encode(out);
        gas.encode(out);
        bloom.encode(out);
        self.logs.encode(out);
    }

    /// Reads the next receipt of a list that has them with their blooms, as messages before `eth/69` and ERA1 files do: a legacy one is
    /// a list, a typed one a string of its type and such a list. The bloom is not kept, since it follows from the logs.
    ///
    /// # Errors
    /// If it is neither, or a legacy one in a string, which would be a second encoding of it.
    ///
    /// Spec: EIP-2718, EIP-658.
    pub fn decode_with_bloom(list: &mut &[u8]) -> alloy_rlp::Result<Self> {
        if list.first().is_some_and(|first| *first >= EMPTY_LIST_CODE) {
            return Self::decode_fields(0, list);
        }
        match alloy_rlp::Header::decode_bytes(list, false)?.split_first() {
            Some((tx_type @ 1..=0x7f, mut data)) => {
                let receipt = Self::decode_fields(*tx_type, &mut data)?;
                all_read(data).map(|()| receipt)
            }
            _ => Err(alloy_rlp::Error::Custom(
                "a string that is no typed receipt",
            )),
        }
    }

    fn decode_fields(tx_type: u8, data: &mut &[u8]) -> alloy_rlp::Result<Self> {
        let mut fields = alloy_rlp::Header::decode_bytes(data, true)?;
        let (status, post_state) = match alloy_rlp::Header::decode_bytes(&mut fields, false)? {
            [] => (Some(false), None),
            [1] => (Some(true), None),
            root => {
                let root = B256::try_from(root);
                (None, Some(root.map_err(|_| UNEXPECTED_LENGTH)?))
            }
        };
        let cumulative_gas_used = u64::decode(&mut fields)?;
        Bloom::decode(&mut fields)?;
        let logs = Vec::decode(&mut fields)?;
        all_read(fields)?;
        Ok(Self {
            tx_type,
            status,
            post_state,
            cumulative_gas_used,
            logs,
        })
    }

    /// The bloom of this receipt's logs.
    pub fn bloom(&self) -> Bloom {
        alloy_primitives::logs_bloom(self.logs.iter())
    }
}

const UNEXPECTED_LENGTH: alloy_rlp::Error = alloy_rlp::Error::UnexpectedLength;

fn all_read(rest: &[u8]) -> alloy_rlp::Result<()> {
    rest.is_empty().then_some(()).ok_or(UNEXPECTED_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::Bytes;

    fn receipts() -> Vec<Receipt> {
        let log = Log::new(
            Address::repeat_byte(3),
            vec![B256::repeat_byte(1)],
            Bytes::from_static(&[9; 70]),
        );
        let logs: Vec<Log> = log.into_iter().collect();
        let receipt = |tx_type, status, post_state, logs: &[Log]| Receipt {
            tx_type,
            status,
            post_state,
            cumulative_gas_used: 21_000,
            logs: logs.to_vec(),
        };
        vec![
            receipt(0, Some(true), None, &logs),
            receipt(0, None, Some(B256::repeat_byte(7)), &[]),
            receipt(2, Some(false), None, &logs),
        ]
    }

    fn in_list(receipt: &Receipt) -> Vec<u8> {
        let encoded = receipt.encode_2718();
        match receipt.tx_type {
            0 => encoded,
            _ => alloy_rlp::encode(Bytes::from(encoded)),
        }
    }

    #[test]
    fn receipts_with_blooms_come_back_one_after_the_other() {
        let list: Vec<u8> = receipts().iter().flat_map(in_list).collect();
        let mut rest = &list[..];
        for expected in receipts() {
            assert_eq!(Receipt::decode_with_bloom(&mut rest), Ok(expected));
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_receipt_that_is_cut_or_has_another_form_is_refused() {
        for receipt in receipts() {
            let whole = in_list(&receipt);
            for end in 0..whole.len() {
                assert!(Receipt::decode_with_bloom(&mut &whole[..end]).is_err());
            }
        }
        let [legacy, _, typed] = &receipts()[..] else {
            panic!("three receipts");
        };
        let string = |bytes: Vec<u8>| alloy_rlp::encode(Bytes::from(bytes));
        let longer = [typed.encode_2718(), vec![0]].concat();
        let of_type_0 = [vec![0], legacy.encode_2718()].concat();
        for wrong in [legacy.encode_2718(), of_type_0, longer, vec![]] {
            assert!(Receipt::decode_with_bloom(&mut &string(wrong)[..]).is_err());
        }
    }
}
