//! `engine_getBlobs`, `engine_hasBlobs`: blobs of the transactions in the pool.

use crate::json::{self, Array};
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{B256, FixedBytes, Fork};
use niwaki_txpool::PooledBlob;

/// Most blobs of one request.
const MAX_ITEMS: usize = 128;

fn find(backend: &Backend, params: &Params<'_>) -> Result<Vec<Option<PooledBlob>>, RpcError> {
    let hashes: Vec<B256> = params.required(0)?;
    if hashes.len() > MAX_ITEMS {
        let message = format!(
            "Too large request: {} blobs, at most {MAX_ITEMS} are served",
            hashes.len()
        );
        return Err(RpcError::new(-38004, message));
    }
    Ok(backend.pool.blobs(&hashes))
}

/// For each versioned hash, in order and any number of them, whether the blob could be served, or some of its cells. A
/// consensus client calls this before it fetches blobs.
pub(super) fn has(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    backend.record_consensus_call();
    let hashes: Vec<B256> = params.required(0)?;
    let mut list = Array::new(out);
    for blob in backend.pool.blobs(&hashes) {
        json::boolean(list.item(), blob.is_some());
    }
    Ok(())
}

/// A blob with its one proof, or null.
pub(super) fn v1(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let chain = backend.chain();
    if chain.spec().fork_of(&chain.head().header) >= Fork::Osaka {
        let message = "Unsupported fork: engine_getBlobsV1 ended with Osaka, use engine_getBlobsV2";
        return Err(RpcError::new(-38005, message));
    }
    let mut list = Array::new(out);
    for blob in find(backend, params)? {
        let found = blob.as_ref().and_then(|blob| blob.blob().zip(blob.proof()));
        match found {
            Some((bytes, proof)) => {
                let mut object = list.object();
                object.data("blob", bytes.as_slice());
                object.data("proof", proof.as_slice());
            }
            None => json::null(list.item()),
        }
    }
    Ok(())
}

/// All blobs with their cell proofs; null if one is missing.
pub(super) fn v2(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let blobs = find(backend, params)?;
    let has_cells = |blob: &Option<PooledBlob>| {
        let blob = blob.as_ref();
        blob.is_some_and(|blob| blob.blob().is_some() && blob.cell_proofs().is_some())
    };
    match blobs.iter().all(has_cells) {
        true => write_with_cells(&blobs, out),
        false => json::null(out),
    }
    Ok(())
}

/// Each blob with its cell proofs, or null instead of it.
pub(super) fn v3(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    write_with_cells(&find(backend, params)?, out);
    Ok(())
}

/// The cells of each blob whose bits are set in a mask of 16 bytes, with their proofs, or null instead of the blob; null
/// for the cells that a sampled blob lacks. Bit `n` of the mask is bit `n % 8`, from the lowest, of byte `n / 8`.
pub(super) fn v4(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let mask: FixedBytes<16> = params.required(1)?;
    let columns = u128::from_le_bytes(mask.0);
    let mut list = Array::new(out);
    for blob in find(backend, params)? {
        params.check_deadline()?;
        let found = blob
            .as_ref()
            .and_then(|blob| Some((blob, blob.cell_proofs()?)));
        let Some((blob, proofs)) = found else {
            json::null(list.item());
            continue;
        };
        let failed = |error| RpcError::internal(format!("the cells of a blob: {error}"));
        let cells = blob.cells(columns).map_err(failed)?;
        let requested = proofs.iter().enumerate();
        let requested = requested.filter(|(index, _)| columns >> index & 1 == 1);
        let proofs = requested.zip(&cells);
        let proofs = proofs.map(|((_, proof), cell)| cell.as_ref().map(|_| proof));
        let mut object = list.object();
        object.optional_data_list("blob_cells", cells.iter().map(Option::as_ref));
        object.optional_data_list("proofs", proofs);
    }
    Ok(())
}

fn write_with_cells(blobs: &[Option<PooledBlob>], out: &mut Vec<u8>) {
    let mut list = Array::new(out);
    for blob in blobs {
        let blob = blob.as_ref();
        let Some((bytes, proofs)) = blob.and_then(|blob| blob.blob().zip(blob.cell_proofs()))
        else {
            json::null(list.item());
            continue;
        };
        let mut object = list.object();
        object.data("blob", bytes.as_slice());
        object.data_list("proofs", proofs);
    }
}
