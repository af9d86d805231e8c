//! Cells of the blobs in the pool: those of peers and of the consensus client, by column.
//!
//! The first 64 columns are the blob itself, the others are computed: some milliseconds a blob. Soon after a transaction is announced many peers ask
//! for it, and the consensus client does when its block comes. So those of the last blobs are kept.

use crate::sidecar::{Sidecar, column_numbers};
use niwaki_crypto::{Blob, CELLS_PER_EXT_BLOB, Cell, KzgError, KzgPoint, blob_cells};
use niwaki_primitives::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Blobs whose cells are kept, 256 KiB each: about those of three blocks.
const MAX_BLOBS: usize = 64;
/// Columns that are the blob.
const DATA_COLUMNS: usize = CELLS_PER_EXT_BLOB / 2;

/// Gives the cells of blobs, and keeps those that were computed last.
#[derive(Debug, Default)]
pub struct CellCache {
    /// By the blobs' commitments, the oldest first.
    computed: Mutex<VecDeque<(KzgPoint, Arc<[Cell]>)>>,
}

impl CellCache {
    /// The cells of all blobs of a sidecar in these columns (bit `i` for column `i`), ascending: of the first column those of every blob,
    /// then of the next. `None` if it is sampled and a column is not here.
    ///
    /// # Errors
    /// Any [`KzgError`] of computing cells.
    ///
    /// Spec: EIP-7594; EIP-8070, in the order of go-ethereum, on which it says nothing.
    pub fn cells_of(
        &self,
        sidecar: &Sidecar,
        columns: u128,
    ) -> Result<Option<Vec<Bytes>>, KzgError> {
        let blobs = 0..sidecar.commitments().len();
        let blobs = blobs.map(|index| self.of_blob(sidecar, index, columns));
        let blobs: Vec<Vec<Option<Cell>>> = blobs.collect::<Result<_, _>>()?;
        let all = (0..column_numbers(columns).len()).flat_map(|at| {
            let cells = blobs.iter().map(move |cells| cells.get(at).copied());
            cells.map(Option::flatten)
        });
        Ok(all
            .map(|cell| cell.map(|cell| Bytes::copy_from_slice(&cell[..])))
            .collect())
    }

    /// The cells of one blob in some of its columns, ascending; `None` for those that are not here.
    pub(crate) fn of_blob(
        &self,
        sidecar: &Sidecar,
        index: usize,
        columns: u128,
    ) -> Result<Vec<Option<Cell>>, KzgError> {
        if let Sidecar::Sampled(sampled) = sidecar {
            let cells = sampled.cells_of_blob(index, columns);
            return Ok(cells.into_iter().map(Option::<&Cell>::cloned).collect());
        }
        let blob = sidecar.blobs().get(index).ok_or(KzgError::Malformed)?;
        let commitment = sidecar.commitments().get(index);
        let commitment = commitment.ok_or(KzgError::Malformed)?;
        let numbers = column_numbers(columns);
        let computed = match numbers.last() >= Some(&DATA_COLUMNS) {
            true => Some(self.computed(commitment, blob)?),
            false => None,
        };
        let cell = |column: &usize| match &computed {
            Some(cells) => cells.get(*column).copied(),
            None => {
                let mut own = blob.chunks(size_of::<Cell>()).skip(*column);
                own.next().map(Cell::from_slice)
            }
        };
        Ok(numbers.iter().map(cell).collect())
    }

    /// All cells of a blob with this commitment.
    fn computed(&self, commitment: &KzgPoint, blob: &Blob) -> Result<Arc<[Cell]>, KzgError> {
        let lock = || self.computed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().iter().find(|(own, _)| own == commitment).cloned();
        if let Some((_, cells)) = known {
            return Ok(cells);
        }
        let cells: Arc<[Cell]> = blob_cells(blob)?.into();
        let mut kept = lock();
        // Another thread may have computed them meanwhile.
        if kept.iter().all(|(own, _)| own != commitment) {
            kept.push_back((*commitment, Arc::clone(&cells)));
        }
        if kept.len() > MAX_BLOBS {
            kept.pop_front();
        }
        Ok(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_eips::eip7594::BlobTransactionSidecarEip7594;

    /// One blob, with a commitment that is as good as any.
    fn sidecar(seed: u8) -> Sidecar {
        let mut blob = Blob::ZERO;
        blob.0[31] = seed;
        Sidecar::Eip7594(BlobTransactionSidecarEip7594 {
            blobs: vec![blob],
            commitments: vec![KzgPoint::repeat_byte(seed)],
            cell_proofs: Vec::new(),
        })
    }

    #[test]
    fn the_cells_of_the_last_64_blobs_are_kept() {
        let cache = CellCache::default();
        let kept = || {
            let kept = cache.computed.lock().unwrap();
            kept.iter().map(|(own, _)| own.0[0]).collect::<Vec<_>>()
        };
        let cells = |seed, columns| cache.of_blob(&sidecar(seed), 0, columns).unwrap();
        for seed in 1..=70 {
            let first = cells(seed, u128::MAX);
            assert_eq!(first, cells(seed, u128::MAX));
            let own = blob_cells(&sidecar(seed).blobs()[0]).unwrap();
            assert_eq!(first, own.into_iter().map(Some).collect::<Vec<_>>());
            assert_eq!(cells(seed, 2 | 1 << 127), [first[1], first[127]]);
        }
        assert_eq!(kept(), (7..=70).collect::<Vec<_>>());
        // What is in the blob is not computed.
        assert_eq!(cells(1, 1 << 63 | 1).len(), 2);
        assert_eq!(kept().len(), 64);
        assert_eq!(cache.of_blob(&sidecar(1), 1, 1), Err(KzgError::Malformed));
    }
}
