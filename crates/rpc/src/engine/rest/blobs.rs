//! Blobs of the transactions in the pool.

use super::large::blobs_response;
use super::{Answer, RestReply, RestRequest};
use crate::{Backend, RpcError};
use alloy_rpc_types_engine::ssz_engine_types as containers;
use containers::{BlobCellsAndProofs, BlobEntry, BlobsResponse, Optional};
use niwaki_crypto::{Blob, CELLS_PER_EXT_BLOB, Cell, KzgPoint};
use niwaki_primitives::{BlobAndProofV1, Fork};
use niwaki_txpool::PooledBlob;

/// Most blobs of one request.
pub(super) const MAX_BLOBS: usize = containers::MAX_BLOBS_REQUEST;

fn find(
    backend: &Backend,
    request: &RestRequest,
) -> Result<Vec<Option<PooledBlob>>, super::RestError> {
    // An offset.
    request.check_hashes(4, MAX_BLOBS)?;
    let read: containers::BlobsV1Request = request.read()?;
    Ok(backend.pool.blobs(&read.versioned_hashes))
}

/// Whether blobs have one proof each: until Osaka.
pub(super) fn serves_v1(backend: &Backend) -> bool {
    let chain = backend.chain();
    chain.spec().fork_of(&chain.head().header) < Fork::Osaka
}

/// Each blob with its one proof, until Osaka.
pub(super) fn v1(backend: &Backend, request: &RestRequest) -> Answer {
    if !serves_v1(backend) {
        let words = "Unsupported fork: blobs/v1 ended with Osaka, use blobs/v2";
        return Err(RpcError::new(-38005, words).into());
    }
    let found = find(backend, request)?.into_iter().map(|blob| {
        let blob = blob.as_ref()?;
        let (blob, proof) = blob.blob().zip(blob.proof())?;
        Some(BlobAndProofV1 {
            blob: Box::new(*blob),
            proof: *proof,
        })
    });
    let entries = containers::BlobsV1Response::try_from(found.collect::<Vec<_>>());
    Ok(RestReply::of(&entries.map_err(|error| {
        RpcError::internal(format!("{error:?}"))
    })?))
}

/// Each blob with its cell proofs.
fn with_cells(blobs: &[Option<PooledBlob>]) -> Vec<Option<(&Blob, &[KzgPoint])>> {
    let blobs = blobs.iter().map(Option::as_ref);
    let blobs = blobs.map(|blob| blob.and_then(|blob| blob.blob().zip(blob.cell_proofs())));
    blobs.collect()
}

/// All blobs with their cell proofs; nothing if one is missing.
pub(super) fn v2(backend: &Backend, request: &RestRequest) -> Answer {
    let blobs = find(backend, request)?;
    let blobs = with_cells(&blobs);
    Ok(match blobs.iter().all(Option::is_some) {
        true => RestReply::Ssz(blobs_response(&blobs)),
        false => RestReply::NoContent,
    })
}

/// Each blob with its cell proofs, or that it is missing.
pub(super) fn v3(backend: &Backend, request: &RestRequest) -> Answer {
    let blobs = find(backend, request)?;
    Ok(RestReply::Ssz(blobs_response(&with_cells(&blobs))))
}

/// The cells of each blob that a mask names and that are here, at their places among all 128.
pub(super) fn v4(backend: &Backend, request: &RestRequest) -> Answer {
    // An offset and the mask.
    request.check_hashes(4 + 16, MAX_BLOBS)?;
    let read: containers::BlobsV4Request = request.read()?;
    let columns = u128::from_le_bytes(read.indices_bitarray.0);
    let mut entries = Vec::new();
    for blob in backend.pool.blobs(&read.versioned_hashes) {
        request.check_deadline()?;
        let blob = blob
            .as_ref()
            .and_then(|blob| Some((blob, blob.cell_proofs()?)));
        let Some((blob, proofs)) = blob else {
            entries.push(BlobEntry {
                available: false,
                contents: BlobCellsAndProofs::default(),
            });
            continue;
        };
        let failed = |error| RpcError::internal(format!("the cells of a blob: {error}"));
        let mut requested = blob.cells(columns).map_err(failed)?.into_iter();
        let cells: Vec<Option<Cell>> = (0..CELLS_PER_EXT_BLOB)
            .map(|index| match columns >> index & 1 {
                1 => requested.next().flatten(),
                _ => None,
            })
            .collect();
        let proofs = proofs.iter().zip(&cells);
        let proofs = proofs.map(|(proof, cell)| Optional::from(cell.map(|_| *proof)));
        let proofs = proofs.collect();
        entries.push(BlobEntry {
            available: true,
            contents: BlobCellsAndProofs {
                blob_cells: cells.into_iter().map(Optional::from).collect(),
                proofs,
            },
        });
    }
    Ok(RestReply::of(&BlobsResponse { entries }))
}
