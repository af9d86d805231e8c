//! Sidecars: the blobs of a transaction with commitments and proofs.
//!
//! The version depends on the fork of the next block: one proof per blob before Osaka (EIP-4844), 128 cell proofs per
//! blob from Osaka on (EIP-7594).

use crate::error::PoolError;
use alloy_eips::eip7594::BlobTransactionSidecarVariant;
use niwaki_crypto::{
    Blob, CELLS_PER_EXT_BLOB, Cell, KzgError, KzgPoint, blob_cells, verify_blob_proofs,
    verify_cell_proofs,
};
use niwaki_primitives::{B256, Bytes, Fork};
use std::sync::Arc;

/// Blobs with their commitments and proofs, of either version.
pub type Sidecar = BlobTransactionSidecarVariant;

const VERSIONED_HASH_VERSION_KZG: u8 = 1;

/// The version that a sidecar must have for a block of `fork`: 1 from Osaka on, else 0.
pub(crate) fn version_of(fork: Fork) -> u8 {
    u8::from(fork >= Fork::Osaka)
}

/// The version of a sidecar.
pub(crate) fn sidecar_version(sidecar: &Sidecar) -> u8 {
    u8::from(sidecar.is_eip7594())
}

/// The proofs of a sidecar, of either version.
pub fn proofs(sidecar: &Sidecar) -> &[KzgPoint] {
    match sidecar {
        Sidecar::Eip4844(sidecar) => &sidecar.proofs,
        Sidecar::Eip7594(sidecar) => &sidecar.cell_proofs,
    }
}

/// Memory that a sidecar takes.
pub(crate) fn sidecar_bytes(sidecar: &Sidecar) -> usize {
    let points = sidecar.commitments().len() + proofs(sidecar).len();
    let blobs = sidecar.blobs().len().saturating_mul(size_of::<Blob>());
    blobs
        .saturating_add(points.saturating_mul(size_of::<KzgPoint>()))
        .saturating_add(size_of::<Sidecar>())
}

/// Checks everything but the proofs: version, counts, and that the commitments match the versioned hashes. Cost: one
/// hash per blob.
///
/// # Errors
/// [`PoolError::SidecarVersion`], [`PoolError::SidecarCounts`], [`PoolError::BlobHash`].
pub(crate) fn check_sidecar(
    sidecar: &Sidecar,
    hashes: &[B256],
    fork: Fork,
) -> Result<(), PoolError> {
    let (got, expected) = (sidecar_version(sidecar), version_of(fork));
    if got != expected {
        return Err(PoolError::SidecarVersion { got, expected });
    }
    let per_blob = if got == 0 { 1 } else { CELLS_PER_EXT_BLOB };
    let (blobs, commitments) = (sidecar.blobs().len(), sidecar.commitments().len());
    let proofs = proofs(sidecar).len();
    let expected_proofs = hashes.len().saturating_mul(per_blob);
    if blobs != hashes.len() || commitments != hashes.len() || proofs != expected_proofs {
        return Err(PoolError::SidecarCounts {
            hashes: hashes.len(),
            blobs,
            commitments,
            proofs,
        });
    }
    for (index, (commitment, expected)) in sidecar.commitments().iter().zip(hashes).enumerate() {
        let got = versioned_hash(commitment);
        if got != *expected {
            return Err(PoolError::BlobHash {
                index,
                got,
                expected: *expected,
            });
        }
    }
    Ok(())
}

/// Checks the proofs: 2 ms per blob before Osaka, about 10 ms from then on.
///
/// # Errors
/// [`PoolError::Kzg`].
pub(crate) fn check_proofs(sidecar: &Sidecar) -> Result<(), PoolError> {
    let verify = match sidecar {
        Sidecar::Eip4844(_) => verify_blob_proofs,
        Sidecar::Eip7594(_) => verify_cell_proofs,
    };
    verify(sidecar.blobs(), sidecar.commitments(), proofs(sidecar)).map_err(PoolError::Kzg)
}

/// The versioned hash of a commitment.
///
/// Spec: EIP-4844, `kzg_to_versioned_hash`.
pub(crate) fn versioned_hash(commitment: &KzgPoint) -> B256 {
    let mut hash = niwaki_crypto::sha256(commitment.as_slice());
    hash.0[0] = VERSIONED_HASH_VERSION_KZG;
    hash
}

/// The cells of all blobs of a sidecar in these columns (0 to 127): of the first column those of every blob, then of the next. The
/// first 64 columns are the blob itself; others are computed, 1 ms a blob. `None` if there is no such column.
///
/// # Errors
/// [`KzgError::NotCompiled`] in a build without native cryptography.
///
/// Spec: EIP-7594, EIP-8070.
pub fn cells_of(sidecar: &Sidecar, columns: &[usize]) -> Result<Option<Vec<Bytes>>, KzgError> {
    let data_columns = CELLS_PER_EXT_BLOB / 2;
    let is_computed = columns.iter().any(|column| *column >= data_columns);
    let cells_of_blob = |blob: &Blob| -> Result<Vec<Bytes>, KzgError> {
        if is_computed {
            let cells = blob_cells(blob)?;
            return Ok(cells
                .iter()
                .map(|cell| Bytes::copy_from_slice(&cell[..]))
                .collect());
        }
        let cells = blob.chunks(size_of::<Cell>());
        Ok(cells.map(Bytes::copy_from_slice).collect())
    };
    let blobs: Result<Vec<Vec<Bytes>>, KzgError> =
        sidecar.blobs().iter().map(cells_of_blob).collect();
    let blobs = blobs?;
    let cells = columns
        .iter()
        .flat_map(|column| blobs.iter().map(|cells| cells.get(*column).cloned()));
    Ok(cells.collect())
}

/// A blob of a sidecar in the pool.
#[derive(Clone, Debug)]
pub struct PooledBlob {
    pub(crate) sidecar: Arc<Sidecar>,
    pub(crate) index: usize,
}

impl PooledBlob {
    /// The blob.
    pub fn blob(&self) -> Option<&Blob> {
        self.sidecar.blobs().get(self.index)
    }

    /// Its proof; `None` if it has cell proofs.
    pub fn proof(&self) -> Option<&KzgPoint> {
        let sidecar = self.sidecar.as_eip4844()?;
        sidecar.proofs.get(self.index)
    }

    /// Its 128 cell proofs; `None` if it has a single proof.
    pub fn cell_proofs(&self) -> Option<&[KzgPoint]> {
        let sidecar = self.sidecar.as_eip7594()?;
        let start = self.index.checked_mul(CELLS_PER_EXT_BLOB)?;
        let end = start.checked_add(CELLS_PER_EXT_BLOB)?;
        sidecar.cell_proofs.get(start..end)
    }

    /// Its 128 cells, computed: about 1 ms.
    ///
    /// # Errors
    /// [`KzgError::NotCompiled`] in a build without native cryptography.
    pub fn cells(&self) -> Result<Vec<Cell>, KzgError> {
        blob_cells(self.blob().ok_or(KzgError::Malformed)?)
    }
}
