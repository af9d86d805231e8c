//! KZG proofs of blobs: that a blob is what its commitment says (EIP-4844, EIP-7594).
//!
//! Takes blobs, commitments and proofs as bytes. The trusted setup of Ethereum's ceremony is
//! compiled in and loaded by the first call (about half a second). Without the feature `native`
//! there is no library that can do this, and every call says so.

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
    /// This build has no library for it.
    #[error("this build has no KZG library; use one with native cryptography")]
    NotCompiled,
}

/// Loads the trusted setup, so that the first proof need not wait for it. About half a second.
///
/// # Errors
/// [`KzgError::NotCompiled`] without native cryptography.
pub fn load_kzg_setup() -> Result<(), KzgError> {
    library::load_setup()
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
    library::verify_blob_proofs(blobs, commitments, proofs)
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
    library::verify_cell_proofs(blobs, commitments, proofs)
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
    library::blob_cells(blob)
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
    use c_kzg::{Blob as CBlob, Bytes48, Error, KzgSettings};

    /// No tables beyond those of verification: they would take 100 MB to prove faster.
    fn settings() -> &'static KzgSettings {
        c_kzg::ethereum_kzg_settings(0)
    }

    pub(super) fn load_setup() -> Result<(), KzgError> {
        settings();
        Ok(())
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

#[cfg(not(feature = "native"))]
mod library {
    use super::{Blob, Cell, KzgError, KzgPoint};

    pub(super) fn load_setup() -> Result<(), KzgError> {
        Err(KzgError::NotCompiled)
    }

    pub(super) fn verify_blob_proofs(
        _: &[Blob],
        _: &[KzgPoint],
        _: &[KzgPoint],
    ) -> Result<(), KzgError> {
        Err(KzgError::NotCompiled)
    }

    pub(super) use verify_blob_proofs as verify_cell_proofs;

    pub(super) fn blob_commitment(_: &Blob) -> Result<KzgPoint, KzgError> {
        Err(KzgError::NotCompiled)
    }

    pub(super) fn blob_proof(_: &Blob, _: &KzgPoint) -> Result<KzgPoint, KzgError> {
        Err(KzgError::NotCompiled)
    }

    pub(super) fn blob_cells(_: &Blob) -> Result<Vec<Cell>, KzgError> {
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

    #[test]
    fn a_blob_proof_holds_for_its_blob_and_no_other() {
        let (one, two) = (blob(1), blob(2));
        let commitment = blob_commitment(&one).unwrap();
        let proof = blob_proof(&one, &commitment).unwrap();
        let verify =
            |blob: &Blob| verify_blob_proofs(std::slice::from_ref(blob), &[commitment], &[proof]);
        assert_eq!(verify(&one), Ok(()));
        assert_eq!(verify(&two), Err(KzgError::Mismatch));
        assert_eq!(
            verify(&Blob::repeat_byte(0xff)),
            Err(KzgError::Malformed),
            "no element is below the modulus"
        );
    }

    #[test]
    fn cell_proofs_hold_in_their_order_only() {
        let one = blob(3);
        let commitment = blob_commitment(&one).unwrap();
        let mut proofs = cell_proofs(&one).unwrap();
        assert_eq!(blob_cells(&one).unwrap().len(), CELLS_PER_EXT_BLOB);
        let blobs = [one];
        assert_eq!(verify_cell_proofs(&blobs, &[commitment], &proofs), Ok(()));
        proofs.swap(0, 1);
        assert_eq!(
            verify_cell_proofs(&blobs, &[commitment], &proofs),
            Err(KzgError::Mismatch)
        );
        let counts = KzgError::Counts {
            blobs: 1,
            commitments: 1,
            proofs: 127,
        };
        assert_eq!(
            verify_cell_proofs(&blobs, &[commitment], &proofs[1..]),
            Err(counts)
        );
    }
}
