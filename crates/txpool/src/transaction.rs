//! A transaction on its way into the pool, and one that is in it.

use crate::{Sidecar, error::PoolError};
use alloy_consensus::{EthereumTxEnvelope, TxEip4844WithSidecar};
use niwaki_primitives::{
    Address, B256, Decodable2718, Encodable2718, SignedAuthorization, Transaction, TxEnvelope,
    Typed2718, U256,
};
use niwaki_rules::recover_authority;
use std::sync::Arc;

type NetworkForm = EthereumTxEnvelope<TxEip4844WithSidecar<Sidecar>>;

/// What the pool's tables take for one transaction beside its own bytes, measured where each has a
/// sender of its own (`what_it_weighs` in the tests); less for those that share one.
const TABLE_BYTES: usize = 1_440;

/// Where a transaction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// This node's own users, by JSON-RPC.
    Local,
    /// A peer.
    Remote,
}

impl Origin {
    /// The label of metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }
}

/// A transaction as it arrives: nothing about it is trusted yet.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The transaction as a block holds it.
    pub tx: TxEnvelope,
    /// Blobs, commitments and proofs of a blob transaction.
    pub sidecar: Option<Arc<Sidecar>>,
}

impl Incoming {
    /// Reads the network form: what `eth_sendRawTransaction` and peers hand over. A blob
    /// transaction has its sidecar in it, of either version.
    ///
    /// # Errors
    /// [`PoolError::Malformed`]; [`PoolError::MissingSidecar`] for a blob transaction as blocks
    /// hold it.
    pub fn decode(bytes: &[u8]) -> Result<Self, PoolError> {
        let malformed = |reason: String| PoolError::Malformed { reason };
        match NetworkForm::decode_2718_exact(bytes) {
            Ok(NetworkForm::Eip4844(signed)) => {
                let (tx, signature, hash) = signed.into_parts();
                let (tx, sidecar) = tx.into_parts();
                let signed = alloy_consensus::Signed::new_unchecked(tx, signature, hash);
                Ok(Self {
                    tx: TxEnvelope::Eip4844(signed),
                    sidecar: Some(Arc::new(sidecar)),
                })
            }
            Ok(NetworkForm::Legacy(tx)) => Ok(TxEnvelope::Legacy(tx).into()),
            Ok(NetworkForm::Eip2930(tx)) => Ok(TxEnvelope::Eip2930(tx).into()),
            Ok(NetworkForm::Eip1559(tx)) => Ok(TxEnvelope::Eip1559(tx).into()),
            Ok(NetworkForm::Eip7702(tx)) => Ok(TxEnvelope::Eip7702(tx).into()),
            Err(_) if TxEnvelope::decode_2718_exact(bytes).is_ok() => {
                Err(PoolError::MissingSidecar)
            }
            Err(error) => Err(malformed(error.to_string())),
        }
    }
}

impl From<TxEnvelope> for Incoming {
    fn from(tx: TxEnvelope) -> Self {
        Self { tx, sidecar: None }
    }
}

/// The network form of a transaction: with its sidecar, if it is given one.
pub fn encode_network(tx: &TxEnvelope, sidecar: Option<&Sidecar>) -> Vec<u8> {
    match (tx, sidecar) {
        (TxEnvelope::Eip4844(signed), Some(sidecar)) => {
            let whole = TxEip4844WithSidecar {
                tx: signed.tx().clone(),
                sidecar: sidecar.clone(),
            };
            let signed =
                alloy_consensus::Signed::new_unchecked(whole, *signed.signature(), *signed.hash());
            NetworkForm::Eip4844(signed).encoded_2718()
        }
        _ => tx.encoded_2718(),
    }
}

/// A transaction in the pool. Its blobs are kept apart: [`Pool::sidecar`](crate::Pool::sidecar).
#[derive(Debug)]
pub struct PooledTransaction {
    /// The transaction as a block holds it.
    pub tx: TxEnvelope,
    /// Its hash.
    pub hash: B256,
    /// Who signed it.
    pub sender: Address,
    /// Where it came from.
    pub origin: Origin,
    /// When it was added, seconds since 1970, as the caller said.
    pub added_at: u64,
    /// Whether it goes before others and is never evicted.
    pub priority: bool,
    /// Order of arrival.
    pub(crate) seq: u64,
    /// The most it can take from its sender, wei.
    pub(crate) cost: U256,
    /// Memory it takes, tables included, without its sidecar.
    pub(crate) bytes: usize,
    /// Memory its sidecar takes.
    pub(crate) blob_bytes: usize,
    /// Accounts that it sets the code of (EIP-7702), other than its sender; each once.
    pub(crate) authorities: Box<[Address]>,
}

impl PooledTransaction {
    /// Nonce.
    pub fn nonce(&self) -> u64 {
        self.tx.nonce()
    }

    /// Bytes of memory it takes, tables included, without its sidecar.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Tip per gas at most, wei: the gas price where there is no tip.
    pub fn tip(&self) -> u128 {
        let tx = &self.tx;
        tx.max_priority_fee_per_gas()
            .unwrap_or_else(|| tx.max_fee_per_gas())
    }

    /// Fee per gas at most, wei.
    pub fn max_fee(&self) -> u128 {
        self.tx.max_fee_per_gas()
    }

    /// Fee per blob gas at most, wei; zero without blobs.
    pub fn max_blob_fee(&self) -> u128 {
        self.tx.max_fee_per_blob_gas().unwrap_or(0)
    }

    /// EIP-2718 type, 0 to 4.
    pub fn type_index(&self) -> usize {
        usize::from(self.tx.ty()).min(4)
    }
}

/// Memory that `tx` takes once it is in the pool, without its sidecar.
pub(crate) fn memory_bytes(tx: &TxEnvelope, authorities: &[Address]) -> usize {
    let lists = tx.access_list().map_or(0, |list| {
        let items = list.len().saturating_mul(size_of::<Address>() + 32);
        items.saturating_add(list.storage_keys_count().saturating_mul(32))
    });
    let signed = tx.authorization_list().map_or(0, <[_]>::len);
    let hashes = tx.blob_versioned_hashes().map_or(0, <[_]>::len);
    size_of::<PooledTransaction>()
        .saturating_add(TABLE_BYTES)
        .saturating_add(tx.input().len())
        .saturating_add(lists)
        .saturating_add(signed.saturating_mul(size_of::<SignedAuthorization>()))
        .saturating_add(hashes.saturating_mul(32 + 2 * size_of::<B256>()))
        .saturating_add(authorities.len().saturating_mul(2 * size_of::<Address>()))
}

/// Whose code `tx` sets, other than its sender's; each once. About 30 us for each authorization.
pub(crate) fn authorities(tx: &TxEnvelope, sender: Address) -> Box<[Address]> {
    let mut found: Vec<Address> = tx
        .authorization_list()
        .unwrap_or_default()
        .iter()
        .filter_map(recover_authority)
        .filter(|authority| *authority != sender)
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_boxed_slice()
}
