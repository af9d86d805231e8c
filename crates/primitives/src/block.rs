//! Blocks, transactions and receipts.

use alloy_consensus::EthereumTxEnvelope;
use alloy_primitives::{Address, B256, Bloom, Log};
use alloy_rlp::Encodable;
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

    /// The bloom of this receipt's logs.
    pub fn bloom(&self) -> Bloom {
        alloy_primitives::logs_bloom(self.logs.iter())
    }
}
