//! Transactions: incoming ones, and those of the pool.

use crate::config::PoolConfig;
use crate::error::PoolError;
use crate::sidecar::{SampledBlobs, Sidecar, sidecar_bytes};
use alloy_consensus::{EthereumTxEnvelope, TxEip4844WithSidecar};
use alloy_eips::eip7594::{BlobTransactionSidecarEip7594, BlobTransactionSidecarVariant};
use niwaki_crypto::Cell;
use niwaki_primitives::{
    Address, B256, Bytes, Decodable2718, Encodable2718, SignedAuthorization, Transaction,
    TxEnvelope, Typed2718, U256,
};
use niwaki_rules::{recover_authority, upfront_cost};
use std::sync::Arc;

type NetworkTx = EthereumTxEnvelope<TxEip4844WithSidecar<BlobTransactionSidecarVariant>>;

/// Bytes that the pool's tables take for one transaction besides its own, measured where each has its own sender
/// (`memory_per_transaction` in the tests); less for those that share a sender.
const TABLE_BYTES: usize = 1_440;

/// Where a transaction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A user of this node, by JSON-RPC.
    Local,
    /// A peer.
    Remote,
}

impl Origin {
    /// Its label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }
}

/// A transaction as received, not checked yet.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The transaction as in a block.
    pub tx: TxEnvelope,
    /// Blobs, commitments and proofs of a blob transaction.
    pub sidecar: Option<Arc<Sidecar>>,
}

impl Incoming {
    /// Decodes the network encoding, which `eth_sendRawTransaction` and peers use. A blob transaction includes its
    /// sidecar, of either version.
    ///
    /// # Errors
    /// [`PoolError::Malformed`]; [`PoolError::MissingSidecar`] for a blob transaction without its
    /// sidecar.
    pub fn decode(bytes: &[u8]) -> Result<Self, PoolError> {
        match NetworkTx::decode_2718_exact(bytes) {
            Ok(NetworkTx::Eip4844(signed)) => {
                let (tx, signature, hash) = signed.into_parts();
                let (tx, sidecar) = tx.into_parts();
                let signed = alloy_consensus::Signed::new_unchecked(tx, signature, hash);
                Ok(Self {
                    tx: TxEnvelope::Eip4844(signed),
                    sidecar: Some(Arc::new(sidecar.into())),
                })
            }
            Ok(NetworkTx::Legacy(tx)) => Ok(TxEnvelope::Legacy(tx).into()),
            Ok(NetworkTx::Eip2930(tx)) => Ok(TxEnvelope::Eip2930(tx).into()),
            Ok(NetworkTx::Eip1559(tx)) => Ok(TxEnvelope::Eip1559(tx).into()),
            Ok(NetworkTx::Eip7702(tx)) => Ok(TxEnvelope::Eip7702(tx).into()),
            Err(_) if TxEnvelope::decode_2718_exact(bytes).is_ok() => {
                Err(PoolError::MissingSidecar)
            }
            Err(error) => Err(PoolError::Malformed {
                reason: error.to_string(),
            }),
        }
    }

    /// Decodes a blob transaction as peers send it from eth/72 on, without blobs. `cells` are those of its blobs in these columns (bit `i`
    /// for column `i`): of the first column those of every blob, then of the next.
    ///
    /// # Errors
    /// As [`Incoming::decode`].
    ///
    /// Spec: EIP-8070.
    pub fn decode_sampled(bytes: &[u8], columns: u128, cells: &[Bytes]) -> Result<Self, PoolError> {
        let malformed = |reason: &str| PoolError::Malformed {
            reason: reason.to_owned(),
        };
        let Self { tx, sidecar } = Self::decode(bytes)?;
        let proven = match sidecar.map(Arc::unwrap_or_clone) {
            Some(Sidecar::Eip7594(proven)) if proven.blobs.is_empty() => proven,
            _ => return Err(malformed("cells of a transaction without cell proofs")),
        };
        let cell = |cell: &Bytes| Cell::try_from(&cell[..]);
        let cells: Result<Vec<Cell>, _> = cells.iter().map(cell).collect();
        let sampled = SampledBlobs {
            proven,
            columns,
            cells: cells.map_err(|_| malformed("a cell of other than 2048 bytes"))?,
        };
        Ok(Self {
            tx,
            sidecar: Some(Arc::new(Sidecar::Sampled(sampled))),
        })
    }
}

impl From<TxEnvelope> for Incoming {
    fn from(tx: TxEnvelope) -> Self {
        Self { tx, sidecar: None }
    }
}

/// The network encoding of a transaction, with its sidecar if there is one; what is sampled has no blobs there.
pub fn encode_network(tx: &TxEnvelope, sidecar: Option<&Sidecar>) -> Vec<u8> {
    match (tx, sidecar) {
        (TxEnvelope::Eip4844(signed), Some(sidecar)) => {
            let whole = TxEip4844WithSidecar {
                tx: signed.tx().clone(),
                sidecar: sidecar.to_encoded(),
            };
            let signed =
                alloy_consensus::Signed::new_unchecked(whole, *signed.signature(), *signed.hash());
            NetworkTx::Eip4844(signed).encoded_2718()
        }
        _ => tx.encoded_2718(),
    }
}

/// The encoding of a blob transaction for peers from eth/72 on: with commitments and cell proofs, without blobs. `None` if it is no blob
/// transaction, or the sidecar has no cell proofs.
///
/// Spec: EIP-8070.
pub fn encode_without_blobs(tx: &TxEnvelope, sidecar: &Sidecar) -> Option<Vec<u8>> {
    if !tx.is_eip4844() || !sidecar.has_cell_proofs() {
        return None;
    }
    let (commitments, cell_proofs) = (sidecar.commitments().to_vec(), sidecar.proofs().to_vec());
    let without = BlobTransactionSidecarEip7594::new(Vec::new(), commitments, cell_proofs);
    Some(encode_network(tx, Some(&Sidecar::Eip7594(without))))
}

/// A transaction in the pool. Its blobs are stored separately: [`Pool::sidecar`](crate::Pool::sidecar).
#[derive(Debug)]
pub struct PooledTransaction {
    /// The transaction as in a block.
    pub tx: TxEnvelope,
    /// Its hash.
    pub hash: B256,
    /// Who signed it.
    pub sender: Address,
    /// Where it came from.
    pub origin: Origin,
    /// When it was added, seconds since 1970, by the caller's clock.
    pub added_at: u64,
    /// Whether it precedes those without priority and is never evicted.
    pub priority: bool,
    /// Order of arrival.
    pub(crate) seq: u64,
    /// The most it can cost its sender, wei.
    pub(crate) cost: U256,
    /// Its bytes in memory, with tables and without its sidecar.
    pub(crate) bytes: usize,
    /// The bytes of its sidecar in memory.
    pub(crate) blob_bytes: usize,
    /// The accounts whose code it sets (EIP-7702), other than its sender; each once.
    pub(crate) authorities: Box<[Address]>,
}

impl PooledTransaction {
    /// Nonce.
    pub fn nonce(&self) -> u64 {
        self.tx.nonce()
    }

    /// The most it tips per gas, wei; the gas price if it has no tip.
    pub fn tip(&self) -> u128 {
        let tx = &self.tx;
        tx.max_priority_fee_per_gas()
            .unwrap_or_else(|| tx.max_fee_per_gas())
    }

    /// The most it pays per gas, wei.
    pub fn max_fee(&self) -> u128 {
        self.tx.max_fee_per_gas()
    }

    /// The most it pays per blob gas, wei; zero without blobs.
    pub fn max_blob_fee(&self) -> u128 {
        self.tx.max_fee_per_blob_gas().unwrap_or(0)
    }

    /// EIP-2718 type, 0 to 4.
    pub fn type_index(&self) -> usize {
        usize::from(self.tx.ty()).min(4)
    }
}

/// A transaction that is to enter the pool, with what its signatures give.
pub(crate) struct SignedTransaction {
    pub(crate) tx: TxEnvelope,
    pub(crate) sender: Address,
    pub(crate) authorities: Box<[Address]>,
    pub(crate) seq: u64,
}

impl SignedTransaction {
    /// `seq` is its place in the order of arrival. About 30 us per authorization.
    pub(crate) fn new(tx: TxEnvelope, sender: Address, seq: u64) -> Self {
        Self {
            authorities: authorities(&tx, sender),
            tx,
            sender,
            seq,
        }
    }

    /// The same in the pool, from `now` on.
    pub(crate) fn pooled(
        self,
        config: &PoolConfig,
        origin: Origin,
        sidecar: Option<&Sidecar>,
        now: u64,
    ) -> PooledTransaction {
        PooledTransaction {
            hash: *self.tx.tx_hash(),
            sender: self.sender,
            origin,
            added_at: now,
            priority: config.has_priority(origin == Origin::Local, &self.sender),
            seq: self.seq,
            cost: upfront_cost(&self.tx).unwrap_or(U256::MAX),
            bytes: memory_bytes(&self.tx, &self.authorities),
            blob_bytes: sidecar.map_or(0, sidecar_bytes),
            authorities: self.authorities,
            tx: self.tx,
        }
    }
}

/// The bytes that `tx` takes in the pool, without its sidecar.
fn memory_bytes(tx: &TxEnvelope, authorities: &[Address]) -> usize {
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

/// The accounts whose code `tx` sets, other than its sender; each once.
fn authorities(tx: &TxEnvelope, sender: Address) -> Box<[Address]> {
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
