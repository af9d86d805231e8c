//! KZG proofs of blobs: that a blob is what its commitment says (EIP-4844, EIP-7594).
//!
//! Takes blobs, commitments and proofs as bytes. The trusted setup of Ethereum's ceremony is
//! compiled in; the native library loads it with the first call. Verifying and computing cells
//! work without the feature `native` too; making commitments and proofs does not, and says so.

use crate::kzg_pure;
use crate::provider::{KZG, is_fast};
use alloy_primitives::FixedBytes;

/// A blob: 4,096 field elements of 32 bytes.
pub type Blob = FixedBytes<131_072>;
/// A compressed G1 point: a commitment or a proof.
pub type KzgPoint = FixedBytes<48>;
/// One of the 128 parts of an extended blob.
pub type Cell = FixedBytes<2_048>;

/// Cells, and so cell proofs, of one blob (EIP-7594).
pub const CELLS_PER_EXT_BLOB: usize = 128;

/// Why a blob is not what its commitment and proofs say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KzgError {
    /// There is not one commitment, or not the right number of proofs, for each blob.
    #[error("{blobs} blobs with {commitments} commitments and {proofs} proofs")]
    Counts {
        /// Blobs given.
        blobs: usize,
        /// Commitments given.
        commitments: usize,
        /// Proofs given.
        proofs: usize,
    },
    /// A blob, commitment or proof is no field element or no point.
    #[error("a blob, commitment or proof is malformed")]
    Malformed,
    /// The proof does not hold.
    #[error("the proof does not match blob and commitment")]
    Mismatch,
    /// This build has no library that makes commitments and proofs.
    #[error("this build has no KZG library; use one with native cryptography")]
    NotCompiled,
}

/// Loads the trusted setup, so that the first proof need not wait for it.
pub fn load_kzg_setup() {
    if is_fast(KZG) {
        library::load_setup();
    }
}

/// Checks one proof per blob (EIP-4844). About 2 ms each.
///
/// # Errors
/// Any [`KzgError`].
///
/// Spec: consensus-specs `deneb/polynomial-commitments.md`, `verify_blob_kzg_proof_batch`.
pub fn verify_blob_proofs(
    blobs: &[Blob],
    commitments: &[KzgPoint],
    proofs: &[KzgPoint],
) -> Result<(), KzgError> {
    check_counts(blobs, commitments, proofs, 1)?;
    if is_fast(KZG) {
        library::verify_blob_proofs(blobs, commitments, proofs)
    } else {
        kzg_pure::verify_blob_proofs(blobs, commitments, proofs)
    }
}

/// Checks the 128 cell proofs of each blob, in the order of the cells, blob after blob (EIP-7594).
/// About 10 ms for a blob, less for each further one.
///
/// # Errors
/// Any [`KzgError`].
///
/// Spec: consensus-specs `fulu/polynomial-commitments-sampling.md`, `compute_cells` and
/// `verify_cell_kzg_proof_batch`.
pub fn verify_cell_proofs(
    blobs: &[Blob],
    commitments: &[KzgPoint],
    proofs: &[KzgPoint],
) -> Result<(), KzgError> {
    check_counts(blobs, commitments, proofs, CELLS_PER_EXT_BLOB)?;
    if is_fast(KZG) {
        library::verify_cell_proofs(blobs, commitments, proofs)
    } else {
        kzg_pure::verify_cell_proofs(blobs, commitments, proofs)
    }
}

/// Checks single cells. `cells` and `proofs` are those of the same `columns` of each blob, blob after blob.
///
/// # Errors
/// Any [`KzgError`].
///
/// Spec: consensus-specs `fulu/polynomial-commitments-sampling.md`, `verify_cell_kzg_proof_batch`.
pub fn verify_cells(
    commitments: &[KzgPoint],
    columns: &[usize],
    cells: &[Cell],
    proofs: &[KzgPoint],
) -> Result<(), KzgError> {
    let wanted = commitments.len().saturating_mul(columns.len());
    if cells.len() != wanted || proofs.len() != wanted {
        return Err(KzgError::Counts {
            blobs: cells.len().checked_div(columns.len()).unwrap_or(0),
            commitments: commitments.len(),
            proofs: proofs.len(),
        });
    }
    if columns.iter().any(|column| *column >= CELLS_PER_EXT_BLOB) {
        return Err(KzgError::Malformed);
    }
    if is_fast(KZG) {
        library::verify_cells(commitments, columns, cells, proofs)
    } else {
        kzg_pure::verify_cells(commitments, columns, cells, proofs)
    }
}

/// The commitment to a blob.
///
/// # Errors
/// [`KzgError::Malformed`] if an element is not below the field's modulus.
pub fn blob_commitment(blob: &Blob) -> Result<KzgPoint, KzgError> {
    library::blob_commitment(blob)
}

/// The proof of a blob against its commitment (EIP-4844). About 50 ms.
///
/// # Errors
/// [`KzgError::Malformed`] if blob or commitment are.
pub fn blob_proof(blob: &Blob, commitment: &KzgPoint) -> Result<KzgPoint, KzgError> {
    library::blob_proof(blob, commitment)
}

/// The 128 cells of a blob (EIP-7594), about 1 ms.
///
/// # Errors
/// [`KzgError::Malformed`] if an element is not below the field's modulus.
pub fn blob_cells(blob: &Blob) -> Result<Vec<Cell>, KzgError> {
    if is_fast(KZG) {
        library::blob_cells(blob)
    } else {
        kzg_pure::blob_cells(blob)
    }
}

/// The 128 cell proofs of a blob (EIP-7594), about 200 ms.
///
/// # Errors
/// [`KzgError::Malformed`] if an element is not below the field's modulus.
pub fn cell_proofs(blob: &Blob) -> Result<Vec<KzgPoint>, KzgError> {
    library::cell_proofs(blob)
}

fn check_counts(
    blobs: &[Blob],
    commitments: &[KzgPoint],
    proofs: &[KzgPoint],
    proofs_per_blob: usize,
) -> Result<(), KzgError> {
    let wanted = blobs.len().saturating_mul(proofs_per_blob);
    if commitments.len() == blobs.len() && proofs.len() == wanted {
        return Ok(());
    }
    Err(KzgError::Counts {
        blobs: blobs.len(),
        commitments: commitments.len(),
        proofs: proofs.len(),
    })
}

#[cfg(feature = "native")]
mod library {
    use super::{Blob, Cell, KzgError, KzgPoint};
    use c_kzg::{Blob as CBlob, Bytes48, Cell as CCell, Error, KzgSettings};

    /// No tables beyond those of verification: they would take 100 MB to prove faster.
    fn settings() -> &'static KzgSettings {
        c_kzg::ethereum_kzg_settings(0)
    }

    pub(super) fn load_setup() {
        settings();
    }

    fn malformed(_: Error) -> KzgError {
        KzgError::Malformed
    }

    fn holds(verified: Result<bool, Error>) -> Result<(), KzgError> {
        match verified {
            Ok(true) => Ok(()),
            Ok(false) => Err(KzgError::Mismatch),
            Err(_) => Err(KzgError::Malformed),
        }
    }

    fn to_c(blob: &Blob) -> Result<Box<CBlob>, KzgError> {
        CBlob::from_bytes(blob.as_slice())
            .map(Box::new)
            .map_err(malformed)
    }

    fn points(points: &[KzgPoint]) -> Vec<Bytes48> {
        points.iter().map(|p| Bytes48::new(p.0)).collect()
    }

    pub(super) fn verify_blob_proofs(
        blobs: &[Blob],
        commitments: &[KzgPoint],
        proofs: &[KzgPoint],
    ) -> Result<(), KzgError> {
        for ((blob, commitment), proof) in blobs.iter().zip(commitments).zip(proofs) {
            let (commitment, proof) = (Bytes48::new(commitment.0), Bytes48::new(proof.0));
            holds(settings().verify_blob_kzg_proof(&*to_c(blob)?, &commitment, &proof))?;
        }
        Ok(())
    }

    pub(super) fn verify_cell_proofs(
        blobs: &[Blob],
        commitments: &[KzgPoint],
        proofs: &[KzgPoint],
    ) -> Result<(), KzgError> {
        let (mut cells, mut indices, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        for (blob, commitment) in blobs.iter().zip(commitments) {
            let computed = settings().compute_cells(&*to_c(blob)?).map_err(malformed)?;
            let count = computed.len();
            cells.extend_from_slice(computed.as_slice());
            indices.extend((0_u64..).take(count));
            repeated.extend(std::iter::repeat_n(Bytes48::new(commitment.0), count));
        }
        let proofs = points(proofs);
        holds(settings().verify_cell_kzg_proof_batch(&repeated, &indices, &cells, &proofs))
    }

    pub(super) fn verify_cells(
        commitments: &[KzgPoint],
        columns: &[usize],
        cells: &[Cell],
        proofs: &[KzgPoint],
    ) -> Result<(), KzgError> {
        let (mut repeated, mut indices) = (Vec::new(), Vec::new());
        for commitment in commitments {
            indices.extend(columns.iter().map(|column| *column as u64));
            let commitment = Bytes48::new(commitment.0);
            repeated.extend(std::iter::repeat_n(commitment, columns.len()));
        }
        let cells: Vec<CCell> = cells.iter().map(|cell| CCell::new(cell.0)).collect();
        let proofs = points(proofs);
        holds(settings().verify_cell_kzg_proof_batch(&repeated, &indices, &cells, &proofs))
    }

    pub(super) fn blob_commitment(blob: &Blob) -> Result<KzgPoint, KzgError> {
        let commitment = settings().blob_to_kzg_commitment(&*to_c(blob)?);
        Ok(KzgPoint::new(
            commitment.map_err(malformed)?.to_bytes().into_inner(),
        ))
    }

    pub(super) fn blob_proof(blob: &Blob, commitment: &KzgPoint) -> Result<KzgPoint, KzgError> {
        let commitment = Bytes48::new(commitment.0);
        let proof = settings().compute_blob_kzg_proof(&*to_c(blob)?, &commitment);
        Ok(KzgPoint::new(
            proof.map_err(malformed)?.to_bytes().into_inner(),
        ))
    }

    pub(super) fn blob_cells(blob: &Blob) -> Result<Vec<Cell>, KzgError> {
        let cells = settings().compute_cells(&*to_c(blob)?).map_err(malformed)?;
        Ok(cells
            .iter()
            .map(|cell| Cell::new(cell.to_bytes()))
            .collect())
    }

    pub(super) fn cell_proofs(blob: &Blob) -> Result<Vec<KzgPoint>, KzgError> {
        let computed = settings().compute_cells_and_kzg_proofs(&*to_c(blob)?);
        let (_, proofs) = computed.map_err(malformed)?;
        let bytes = |proof: &c_kzg::KzgProof| KzgPoint::new(proof.to_bytes().into_inner());
        Ok(proofs.iter().map(bytes).collect())
    }
}

/// What only the native library can do; the rest is never called here.
#[cfg(not(feature = "native"))]
mod library {
    use super::{Blob, KzgError, KzgPoint};
    pub(super) use crate::kzg_pure::{
        blob_cells, verify_blob_proofs, verify_cell_proofs, verify_cells,
    };

    pub(super) fn load_setup() {}

    pub(super) fn blob_commitment(_: &Blob) -> Result<KzgPoint, KzgError> {
        Err(KzgError::NotCompiled)
    }

    pub(super) fn blob_proof(_: &Blob, _: &KzgPoint) -> Result<KzgPoint, KzgError> {
        Err(KzgError::NotCompiled)
    }

    pub(super) fn cell_proofs(_: &Blob) -> Result<Vec<KzgPoint>, KzgError> {
        Err(KzgError::NotCompiled)
    }
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use super::*;

    fn blob(seed: u8) -> Blob {
        let mut bytes = vec![0; 131_072];
        for (at, element) in bytes.chunks_mut(32).enumerate() {
            element[31] = seed;
            element[30] = (at % 251).to_le_bytes()[0];
        }
        Blob::from_slice(&bytes)
    }

    type Verify = fn(&[Blob], &[KzgPoint], &[KzgPoint]) -> Result<(), KzgError>;

    #[test]
    fn a_blob_proof_holds_for_its_blob_and_no_other() {
        let (one, two) = (blob(1), blob(2));
        let commitment = blob_commitment(&one).unwrap();
        let proof = blob_proof(&one, &commitment).unwrap();
        let libraries: [Verify; 2] = [library::verify_blob_proofs, kzg_pure::verify_blob_proofs];
        for verify in libraries {
            let verify = |blob: &Blob, commitment, proof| {
                verify(std::slice::from_ref(blob), &[commitment], &[proof])
            };
            assert_eq!(verify(&one, commitment, proof), Ok(()));
            assert_eq!(verify(&two, commitment, proof), Err(KzgError::Mismatch));
            assert_eq!(verify(&one, proof, commitment), Err(KzgError::Mismatch));
            let malformed = Err(KzgError::Malformed);
            let no_blob = Blob::repeat_byte(0xff);
            assert_eq!(verify(&no_blob, commitment, proof), malformed);
            for no_point in [0x00, 0x80, 0xc0, 0xff].map(KzgPoint::repeat_byte) {
                assert_eq!(verify(&one, no_point, proof), malformed);
                assert_eq!(verify(&one, commitment, no_point), malformed);
            }
        }
    }

    #[test]
    fn cell_proofs_hold_in_their_order_only() {
        let (one, two) = (blob(3), blob(4));
        let commitments = [&one, &two].map(|blob| blob_commitment(blob).unwrap());
        let mut proofs = cell_proofs(&one).unwrap();
        proofs.extend(cell_proofs(&two).unwrap());
        let blobs = [one, two];
        let libraries: [Verify; 2] = [library::verify_cell_proofs, kzg_pure::verify_cell_proofs];
        for verify in libraries {
            assert_eq!(verify(&blobs, &commitments, &proofs), Ok(()));
            let mut swapped = proofs.clone();
            swapped.swap(0, 1);
            let mismatch = Err(KzgError::Mismatch);
            assert_eq!(verify(&blobs, &commitments, &swapped), mismatch);
            let [a, b] = commitments;
            assert_eq!(verify(&blobs, &[b, a], &proofs), mismatch);
            swapped = proofs.clone();
            swapped[255] = KzgPoint::repeat_byte(0xff);
            let malformed = Err(KzgError::Malformed);
            assert_eq!(verify(&blobs, &commitments, &swapped), malformed);
        }
        let counts = KzgError::Counts {
            blobs: 2,
            commitments: 2,
            proofs: 255,
        };
        let short = verify_cell_proofs(&blobs, &commitments, &proofs[1..]);
        assert_eq!(short, Err(counts));
        assert_eq!(verify_cell_proofs(&blobs, &commitments, &proofs), Ok(()));
    }

    #[test]
    fn single_cells_hold_in_their_columns_only() {
        let blobs = [blob(3), blob(4)];
        let commitments = blobs.map(|blob| blob_commitment(&blob).unwrap());
        let columns = [0, 7, 64, 127];
        let (mut cells, mut proofs) = (Vec::new(), Vec::new());
        for blob in &blobs {
            let (all, all_proofs) = (blob_cells(blob).unwrap(), cell_proofs(blob).unwrap());
            cells.extend(columns.map(|column| all[column]));
            proofs.extend(columns.map(|column| all_proofs[column]));
        }
        let verifiers = [library::verify_cells, kzg_pure::verify_cells, verify_cells];
        let (mismatch, malformed) = (Err(KzgError::Mismatch), Err(KzgError::Malformed));
        for verify in verifiers {
            assert_eq!(verify(&commitments, &columns, &cells, &proofs), Ok(()));
            assert_eq!(verify(&[], &columns, &[], &[]), Ok(()));
            let others = [0, 7, 65, 127];
            assert_eq!(verify(&commitments, &others, &cells, &proofs), mismatch);
            let [a, b] = commitments;
            assert_eq!(verify(&[b, a], &columns, &cells, &proofs), mismatch);
            for at in 0..cells.len() {
                let (mut wrong, mut swapped) = (cells.clone(), proofs.clone());
                wrong[at].0[31] ^= 1;
                assert_eq!(verify(&commitments, &columns, &wrong, &proofs), mismatch);
                swapped[at] = proofs[(at + 1) % proofs.len()];
                assert_eq!(verify(&commitments, &columns, &cells, &swapped), mismatch);
                wrong[at] = Cell::repeat_byte(0xff);
                assert_eq!(verify(&commitments, &columns, &wrong, &proofs), malformed);
            }
        }
        assert_eq!(
            verify_cells(&commitments, &[0, 7, 64, 128], &cells, &proofs),
            malformed
        );
        let counts = verify_cells(&commitments, &columns, &cells[1..], &proofs);
        assert!(matches!(counts, Err(KzgError::Counts { .. })));
    }

    #[test]
    fn a_blob_of_a_constant_opens_to_the_point_at_infinity() {
        let constant = Blob::from_slice(&[&[0; 31][..], &[5]].concat().repeat(4_096));
        let commitment = blob_commitment(&constant).unwrap();
        let infinity = {
            let mut point = KzgPoint::ZERO;
            point.0[0] = 0xc0;
            point
        };
        let libraries: [Verify; 2] = [library::verify_blob_proofs, kzg_pure::verify_blob_proofs];
        for verify in libraries {
            assert_eq!(verify(&[constant], &[commitment], &[infinity]), Ok(()));
        }
        let libraries: [Verify; 2] = [library::verify_cell_proofs, kzg_pure::verify_cell_proofs];
        for verify in libraries {
            assert_eq!(verify(&[constant], &[commitment], &[infinity; 128]), Ok(()));
        }
    }

    #[test]
    fn both_libraries_compute_the_same_cells() {
        let one = blob(5);
        let cells = library::blob_cells(&one).unwrap();
        assert_eq!(cells.len(), CELLS_PER_EXT_BLOB);
        assert!(cells == kzg_pure::blob_cells(&one).unwrap());
        let malformed = kzg_pure::blob_cells(&Blob::repeat_byte(0xff));
        assert_eq!(malformed.map(|_| ()), Err(KzgError::Malformed));
    }
}
