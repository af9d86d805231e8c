//! Transactions as peers send them, read as far as gossip needs: the hash, the type, and what is around blobs.
//!
//! ```text
//! legacy   rlp([...])                     hash of all
//! typed    type | rlp([...])              hash of all
//! blobs    3 | rlp([[...], 1, blobs, commitments, proofs])      hash of 3 | [...]; on eth/72 without blobs: their cells come apart
//! ```
//!
//! Everything else about a transaction is the pool's to check.
//!
//! Spec: EIP-2718, EIP-4844, EIP-7594, EIP-8070.

use super::BLOB_TYPE;
use super::GossipBreach;
use crate::wire::EthVersion;
use crate::wire::fields::{Fields, list};
use crate::wire::limits::CELL_BYTES;
use niwaki_crypto::{CELLS_PER_EXT_BLOB, Keccak256, keccak256, sha256};
use niwaki_primitives::rlp::{Error, Result, encode};
use niwaki_primitives::{B256, Bytes};

/// A blob is in the first half of its columns.
pub(super) const DATA_COLUMNS: usize = CELLS_PER_EXT_BLOB / 2;
/// Most blobs of one transaction that are read; no network allows more.
const MAX_BLOBS: usize = 64;
/// Fields of a blob transaction before its versioned hashes.
const FIELDS_BEFORE_HASHES: usize = 10;
const COMMITMENT_BYTES: usize = 48;
/// The first byte of a versioned hash (EIP-4844).
const HASH_VERSION_KZG: u8 = 1;

/// A transaction that came from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FromPeer {
    pub(super) hash: B256,
    pub(super) tx_type: u8,
    /// As it came.
    pub(super) bytes: Bytes,
    /// How many blobs it has that did not come with it.
    pub(super) missing_blobs: usize,
}

impl FromPeer {
    /// Reads a transaction from a peer with this version of `eth`.
    ///
    /// # Errors
    /// [`GossipBreach::Sidecar`] for a blob transaction without what must be around its blobs.
    pub(super) fn read(
        bytes: Bytes,
        version: EthVersion,
    ) -> std::result::Result<Self, GossipBreach> {
        let tx_type = bytes.first().copied().unwrap_or_default();
        // A list begins with 0xc0 or more.
        let tx_type = if tx_type >= 0x80 { 0 } else { tx_type };
        if tx_type != BLOB_TYPE {
            return Ok(Self {
                hash: keccak256(&bytes),
                tx_type,
                bytes,
                missing_blobs: 0,
            });
        }
        let sidecar = Sidecar::of(&bytes).and_then(|sidecar| {
            sidecar.check(version)?;
            Ok(sidecar)
        });
        let sidecar = sidecar.map_err(GossipBreach::Sidecar)?;
        let mut hasher = Keccak256::new();
        hasher.update([BLOB_TYPE]);
        hasher.update(sidecar.transaction);
        let has_blobs = version < EthVersion::Eth72;
        Ok(Self {
            hash: hasher.finalize(),
            tx_type,
            missing_blobs: if has_blobs { 0 } else { sidecar.hashes.len() },
            bytes,
        })
    }

    /// Bytes as they are announced.
    pub(super) fn size(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }
}

/// A blob transaction in the form in which peers send it; all but the hashes with its RLP head.
#[derive(Debug)]
struct Sidecar<'a> {
    transaction: &'a [u8],
    /// Versioned hashes of the transaction.
    hashes: Vec<B256>,
    has_cell_proofs: bool,
    blobs: &'a [u8],
    commitments: &'a [u8],
    proofs: &'a [u8],
}

impl<'a> Sidecar<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self> {
        let mut fields = Fields::of(bytes.get(1..).unwrap_or_default())?;
        let transaction = fields.raw()?;
        let mut own = Fields::of(transaction)
            .map_err(|_| Error::Custom("a blob transaction without its sidecar"))?;
        for _ in 0..FIELDS_BEFORE_HASHES {
            own.raw()?;
        }
        let hashes = own.list()?.all(MAX_BLOBS)?;
        let second = fields.raw()?;
        let has_cell_proofs = second == [1];
        let blobs = if has_cell_proofs {
            fields.raw()?
        } else {
            second
        };
        let sidecar = Self {
            transaction,
            hashes,
            has_cell_proofs,
            blobs,
            commitments: fields.raw()?,
            proofs: fields.raw()?,
        };
        fields.end()?;
        Ok(sidecar)
    }

    /// The commitments must be those of the versioned hashes. On eth/72 there are proofs of all cells, and no blobs.
    fn check(&self, version: EthVersion) -> Result<()> {
        let mut commitments = Fields::of(self.commitments)?;
        for expected in &self.hashes {
            let commitment = commitments.bytes()?;
            let mut hash = sha256(commitment);
            hash.0[0] = HASH_VERSION_KZG;
            if commitment.len() != COMMITMENT_BYTES || hash != *expected {
                return Err(Error::Custom("a commitment of another blob"));
            }
        }
        commitments.end()?;
        if version < EthVersion::Eth72 {
            return Ok(());
        }
        let proofs = self.hashes.len() * CELLS_PER_EXT_BLOB;
        let has_all = self.has_cell_proofs && count(self.proofs, proofs)? == proofs;
        if !has_all || !Fields::of(self.blobs)?.is_empty() {
            return Err(Error::Custom("blobs, or no proofs of cells, on eth/72"));
        }
        Ok(())
    }
}

/// How many items a list has; an error beyond `max`.
fn count(list: &[u8], max: usize) -> Result<usize> {
    let (mut fields, mut count) = (Fields::of(list)?, 0);
    while !fields.is_empty() {
        if count == max {
            return Err(Error::Custom("more items than there can be"));
        }
        fields.raw()?;
        count += 1;
    }
    Ok(count)
}

/// Puts the blobs into a transaction that came without them. `cells` are those of the data columns, column by column, of every blob in
/// order; there must be as many as the transaction has blobs. Whether they are the right ones its proofs show.
///
/// # Errors
/// If they are fewer or more, or the transaction is not of eth/72.
pub(super) fn with_blobs(transaction: &FromPeer, cells: &[Bytes]) -> Result<Bytes> {
    let sidecar = Sidecar::of(&transaction.bytes)?;
    let count = transaction.missing_blobs;
    if count == 0 || cells.len() != count * DATA_COLUMNS {
        return Err(Error::Custom("cells of fewer or more blobs"));
    }
    let mut blobs = Vec::with_capacity(cells.len() * (CELL_BYTES + 1));
    for blob in 0..count {
        let own = cells.iter().skip(blob).step_by(count);
        let content: Bytes = own
            .flat_map(|cell| cell.iter().copied())
            .collect::<Vec<u8>>()
            .into();
        blobs.extend_from_slice(&encode(content));
    }
    let mut bytes = vec![BLOB_TYPE];
    bytes.extend(list(&[
        sidecar.transaction,
        &[1],
        &list(&[&blobs]),
        sidecar.commitments,
        sidecar.proofs,
    ]));
    Ok(bytes.into())
}

#[cfg(test)]
pub(crate) mod tests;
