//! Sidecars: the blobs of a transaction with commitments and proofs.
//!
//! The version depends on the fork of the next block: one proof per blob before Osaka (EIP-4844), 128 cell proofs per
//! blob from Osaka on (EIP-7594). Of transactions that are sampled some columns of cells are here, not the blobs
//! (EIP-8070).

use crate::cells::CellCache;
use crate::error::PoolError;
use alloy_eips::eip4844::BlobTransactionSidecar;
use alloy_eips::eip7594::{BlobTransactionSidecarEip7594, BlobTransactionSidecarVariant};
use niwaki_crypto::{
    Blob, CELLS_PER_EXT_BLOB, Cell, KzgError, KzgPoint, verify_blob_proofs, verify_cell_proofs,
    verify_cells,
};
use niwaki_primitives::{B256, Fork};
use std::sync::Arc;

/// Blobs, or some of their cells, with commitments and proofs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sidecar {
    /// Blobs with one proof each.
    Eip4844(BlobTransactionSidecar),
    /// Blobs with 128 cell proofs each.
    Eip7594(BlobTransactionSidecarEip7594),
    /// Some columns of their cells, with the same proofs.
    Sampled(SampledBlobs),
}

/// Columns of the cells of a transaction's blobs, without the blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledBlobs {
    /// All commitments and cell proofs; no blobs.
    pub(crate) proven: BlobTransactionSidecarEip7594,
    /// Bit `i` is set if column `i` is here.
    pub(crate) columns: u128,
    /// The cells of the first of these columns, of every blob in order, then those of the next.
    pub(crate) cells: Vec<Cell>,
}

impl From<BlobTransactionSidecarVariant> for Sidecar {
    fn from(sidecar: BlobTransactionSidecarVariant) -> Self {
        match sidecar {
            BlobTransactionSidecarVariant::Eip4844(sidecar) => Self::Eip4844(sidecar),
            BlobTransactionSidecarVariant::Eip7594(sidecar) => Self::Eip7594(sidecar),
        }
    }
}

impl Sidecar {
    /// The blobs; none if they are sampled.
    pub fn blobs(&self) -> &[Blob] {
        match self {
            Self::Eip4844(sidecar) => &sidecar.blobs,
            Self::Eip7594(sidecar) => &sidecar.blobs,
            Self::Sampled(_) => &[],
        }
    }

    /// One commitment for each blob.
    pub fn commitments(&self) -> &[KzgPoint] {
        match self {
            Self::Eip4844(sidecar) => &sidecar.commitments,
            Self::Eip7594(sidecar) => &sidecar.commitments,
            Self::Sampled(sampled) => &sampled.proven.commitments,
        }
    }

    /// One proof for each blob, or 128 cell proofs for each from Osaka on.
    pub fn proofs(&self) -> &[KzgPoint] {
        match self {
            Self::Eip4844(sidecar) => &sidecar.proofs,
            Self::Eip7594(sidecar) => &sidecar.cell_proofs,
            Self::Sampled(sampled) => &sampled.proven.cell_proofs,
        }
    }

    /// Whether it has cell proofs.
    pub fn has_cell_proofs(&self) -> bool {
        !matches!(self, Self::Eip4844(_))
    }

    /// The columns of cells that are here, or that the blobs give: bit `i` is set for column `i`.
    pub fn columns(&self) -> u128 {
        match self {
            Self::Eip4844(_) | Self::Eip7594(_) => u128::MAX,
            Self::Sampled(sampled) => sampled.columns,
        }
    }

    /// Whether the blobs are here.
    pub fn is_whole(&self) -> bool {
        !matches!(self, Self::Sampled(_))
    }

    /// The same in the form in which it is encoded, without cells.
    pub(crate) fn to_encoded(&self) -> BlobTransactionSidecarVariant {
        match self {
            Self::Eip4844(sidecar) => BlobTransactionSidecarVariant::Eip4844(sidecar.clone()),
            Self::Eip7594(sidecar) => BlobTransactionSidecarVariant::Eip7594(sidecar.clone()),
            Self::Sampled(sampled) => {
                BlobTransactionSidecarVariant::Eip7594(sampled.proven.clone())
            }
        }
    }
}

/// The numbers of the columns in a mask, ascending.
pub(crate) fn column_numbers(columns: u128) -> Vec<usize> {
    let all = 0..CELLS_PER_EXT_BLOB;
    all.filter(|column| columns >> column & 1 == 1).collect()
}

const VERSIONED_HASH_VERSION_KZG: u8 = 1;

/// The version that a sidecar must have for a block of `fork`: 1 from Osaka on, else 0.
pub(crate) fn version_of(fork: Fork) -> u8 {
    u8::from(fork >= Fork::Osaka)
}

/// The version of a sidecar.
pub(crate) fn sidecar_version(sidecar: &Sidecar) -> u8 {
    u8::from(sidecar.has_cell_proofs())
}

/// Memory that a sidecar takes.
pub(crate) fn sidecar_bytes(sidecar: &Sidecar) -> usize {
    let points = sidecar.commitments().len() + sidecar.proofs().len();
    let blobs = sidecar.blobs().len().saturating_mul(size_of::<Blob>());
    let cells = match sidecar {
        Sidecar::Sampled(sampled) => sampled.cells.len().saturating_mul(size_of::<Cell>()),
        Sidecar::Eip4844(_) | Sidecar::Eip7594(_) => 0,
    };
    blobs
        .saturating_add(cells)
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
    let blobs = match sidecar {
        Sidecar::Sampled(sampled) => sampled.blobs(),
        Sidecar::Eip4844(_) | Sidecar::Eip7594(_) => sidecar.blobs().len(),
    };
    let (commitments, proofs) = (sidecar.commitments().len(), sidecar.proofs().len());
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

impl SampledBlobs {
    /// Of how many blobs it has the cells; 0 if some blobs have fewer than others.
    fn blobs(&self) -> usize {
        let each = column_numbers(self.columns).len();
        match self.cells.len().is_multiple_of(each.max(1)) {
            true => self.cells.len().checked_div(each).unwrap_or(0),
            false => 0,
        }
    }

    /// The cells of a blob in some of its columns, ascending; `None` for those that are not here.
    pub(crate) fn cells_of_blob(&self, index: usize, columns: u128) -> Vec<Option<&Cell>> {
        let (here, blobs) = (column_numbers(self.columns), self.blobs());
        let cell = |column| {
            let at = here.binary_search(&column).ok()?;
            self.cells.get(at.checked_mul(blobs)?.checked_add(index)?)
        };
        column_numbers(columns).into_iter().map(cell).collect()
    }

    fn check_proofs(&self) -> Result<(), KzgError> {
        let columns = column_numbers(self.columns);
        let of_blobs = self.proven.cell_proofs.chunks(CELLS_PER_EXT_BLOB);
        let (mut cells, mut proofs) = (Vec::new(), Vec::new());
        for (index, own) in of_blobs.enumerate() {
            let of_blob = self.cells_of_blob(index, self.columns);
            cells.extend(of_blob.into_iter().flatten().copied());
            proofs.extend(columns.iter().filter_map(|column| own.get(*column)));
        }
        verify_cells(&self.proven.commitments, &columns, &cells, &proofs)
    }
}

/// Checks the proofs: 2 ms per blob before Osaka, about 10 ms from then on, less if it is sampled.
///
/// # Errors
/// [`PoolError::Kzg`].
pub fn check_proofs(sidecar: &Sidecar) -> Result<(), PoolError> {
    let verify = match sidecar {
        Sidecar::Eip4844(_) => verify_blob_proofs,
        Sidecar::Eip7594(_) => verify_cell_proofs,
        Sidecar::Sampled(sampled) => return sampled.check_proofs().map_err(PoolError::Kzg),
    };
    verify(sidecar.blobs(), sidecar.commitments(), sidecar.proofs()).map_err(PoolError::Kzg)
}

/// The versioned hash of a commitment.
///
/// Spec: EIP-4844, `kzg_to_versioned_hash`.
pub(crate) fn versioned_hash(commitment: &KzgPoint) -> B256 {
    let mut hash = niwaki_crypto::sha256(commitment.as_slice());
    hash.0[0] = VERSIONED_HASH_VERSION_KZG;
    hash
}

/// A blob of a sidecar in the pool.
#[derive(Clone, Debug)]
pub struct PooledBlob {
    pub(crate) sidecar: Arc<Sidecar>,
    pub(crate) index: usize,
    pub(crate) cells: Arc<CellCache>,
}

impl PooledBlob {
    /// The blob; `None` if it is sampled.
    pub fn blob(&self) -> Option<&Blob> {
        self.sidecar.blobs().get(self.index)
    }

    /// Its proof; `None` if it has cell proofs.
    pub fn proof(&self) -> Option<&KzgPoint> {
        let has_one = !self.sidecar.has_cell_proofs();
        self.sidecar.proofs().get(self.index).filter(|_| has_one)
    }

    /// Its 128 cell proofs; `None` if it has a single proof.
    pub fn cell_proofs(&self) -> Option<&[KzgPoint]> {
        let start = self.index.checked_mul(CELLS_PER_EXT_BLOB)?;
        let end = start.checked_add(CELLS_PER_EXT_BLOB)?;
        let has_many = self.sidecar.has_cell_proofs();
        self.sidecar.proofs().get(start..end).filter(|_| has_many)
    }

    /// Its cells in these columns (bit `i` for column `i`), ascending; `None` for those that are not here. Some milliseconds if they are computed
    /// and were not lately.
    ///
    /// # Errors
    /// [`KzgError::NotCompiled`] in a build without native cryptography.
    pub fn cells(&self, columns: u128) -> Result<Vec<Option<Cell>>, KzgError> {
        self.cells.of_blob(&self.sidecar, self.index, columns)
    }
}
