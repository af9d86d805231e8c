//! `eth` methods for blocks, transactions and receipts.

use super::serialize::{self, TxLocation};
use crate::blocks::FullBlock;
use crate::json;
use crate::params::{BlockRef, BlockTag, Number, Params};
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::B256;
use std::sync::Arc;

pub(crate) fn null(out: &mut Vec<u8>) -> RpcResult {
    json::null(out);
    Ok(())
}

pub(super) fn block_number(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::number(out, backend.chain().head().id.number);
    Ok(())
}

pub(super) fn by_hash(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    let full = params.optional(1)?.unwrap_or(false);
    write_block(backend.block(&hash)?, full, out)
}

pub(super) fn by_number(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let tag: BlockTag = params.required(0)?;
    let full = params.optional(1)?.unwrap_or(false);
    write_block(backend.block_by_ref(BlockRef::Tag(tag))?, full, out)
}

fn write_block(block: Option<Arc<FullBlock>>, full: bool, out: &mut Vec<u8>) -> RpcResult {
    match block {
        Some(block) => serialize::block(out, &block, full),
        None => return null(out),
    }
    Ok(())
}

/// By hash or by number, as the parameter says.
pub(super) fn header(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    match backend.header_by_ref(params.required(0)?)? {
        Some(header) => {
            let mut object = json::Object::new(out);
            serialize::header_fields(&mut object, &header.header, &header.id.hash);
            Ok(())
        }
        None => null(out),
    }
}

pub(super) fn transaction_count(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    match backend.block_by_ref(params.required(0)?)? {
        Some(block) => json::number(out, block.body.transactions.len() as u64),
        None => return null(out),
    }
    Ok(())
}

pub(super) fn ommer_count(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    match backend.block_by_ref(params.required(0)?)? {
        Some(block) => json::number(out, block.body.ommers.len() as u64),
        None => return null(out),
    }
    Ok(())
}

pub(super) fn ommer(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let block = backend.block_by_ref(params.required(0)?)?;
    let Number(index) = params.required(1)?;
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    let ommers = block.as_ref().map(|block| &block.body.ommers);
    match ommers.and_then(|ommers| ommers.get(index)) {
        Some(header) => serialize::ommer(out, header),
        None => return null(out),
    }
    Ok(())
}

/// Writes transaction `index` of a block, or null.
pub(super) fn write_transaction(
    block: Option<&FullBlock>,
    index: u64,
    out: &mut Vec<u8>,
) -> RpcResult {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    let tx = block.and_then(|block| Some((block, block.body.transactions.get(index)?)));
    let Some((block, tx)) = tx else {
        return null(out);
    };
    let location = TxLocation::in_block(block, index);
    serialize::transaction(out, tx, block.sender(index), &location);
    Ok(())
}

pub(super) fn transaction_in_block(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let block = backend.block_by_ref(params.required(0)?)?;
    let Number(index) = params.required(1)?;
    write_transaction(block.as_deref(), index, out)
}

/// The block of a canonical transaction, and its index there.
pub(crate) fn find(
    backend: &Backend,
    hash: &B256,
) -> Result<Option<(Arc<FullBlock>, usize)>, RpcError> {
    let Some(location) = backend.chain().transaction_place(hash)? else {
        return Ok(None);
    };
    let tag = BlockRef::Tag(BlockTag::Number(location.number));
    let block = backend.block_by_ref(tag)?;
    // The chain may have been reorganized between the two reads.
    Ok(block.and_then(|block| {
        let index = location.index as usize;
        let tx = block.body.transactions.get(index)?;
        (tx.tx_hash() == hash).then(|| (Arc::clone(&block), index))
    }))
}

pub(super) fn transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    if let Some((block, index)) = find(backend, &hash)? {
        return write_transaction(Some(&block), index as u64, out);
    }
    match backend.pool.get(&hash) {
        Some(pending) => {
            serialize::transaction(out, &pending.tx, pending.sender, &TxLocation::PENDING);
            Ok(())
        }
        None => null(out),
    }
}

pub(super) fn raw_transaction(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let hash = params.hash(0)?;
    if let Some((block, index)) = find(backend, &hash)? {
        json::data(out, &serialize::encoded(&block.body.transactions[index]));
        return Ok(());
    }
    match backend.pool.get(&hash) {
        Some(pending) => json::data(out, &serialize::encoded(&pending.tx)),
        None => return null(out),
    }
    Ok(())
}

pub(super) fn receipt(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    let Some((block, index)) = find(backend, &hash)? else {
        return null(out);
    };
    let receipts = block.receipts(backend.chain())?;
    serialize::receipt(out, backend.chain(), &block, receipts, index)
}

pub(super) fn receipts(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let Some(block) = backend.block_by_ref(params.required(0)?)? else {
        return null(out);
    };
    let receipts = block.receipts(backend.chain())?;
    block.senders();
    let mut list = json::Array::new(out);
    for index in 0..receipts.len() {
        serialize::receipt(list.item(), backend.chain(), &block, receipts, index)?;
    }
    Ok(())
}
