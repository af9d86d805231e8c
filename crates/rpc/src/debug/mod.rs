//! The namespace `debug` but for traces: the bytes behind blocks and transactions, what a state
//! holds, what was refused.

mod bad_blocks;
mod metrics;
mod ranges;

use crate::eth::answers;
use crate::json::{self, Array};
use crate::methods::{Lane, Method, row};
use crate::params::{BlockTag, Params};
use crate::{Backend, RpcError};
use niwaki_primitives::Block;
use niwaki_primitives::rlp::encode;

type Answer = Result<(), RpcError>;

pub(crate) const METHODS: &[Method] = &[
    row("debug_accountAt", Lane::Heavy, ranges::account_at),
    row("debug_accountRange", Lane::Heavy, ranges::account_range),
    row(
        "debug_batchSendRawTransaction",
        Lane::Call,
        crate::eth::send_many,
    ),
    row("debug_getBadBlocks", Lane::Heavy, bad_blocks::bad_blocks),
    row("debug_getRawBlock", Lane::Call, raw_block),
    row(
        "debug_getRawBlockAccessList",
        Lane::Call,
        raw_block_access_list,
    ),
    row("debug_getRawHeader", Lane::Inline, raw_header),
    row("debug_getRawReceipts", Lane::Call, raw_receipts),
    row("debug_getRawTransaction", Lane::Inline, raw_transaction),
    row("debug_metrics", Lane::Call, metrics::metrics),
    row("debug_replayBlock", Lane::Engine, replay_block),
    row("debug_setHead", Lane::Engine, set_head),
    row(
        "debug_storageRangeAt",
        Lane::Heavy,
        ranges::storage_range_at,
    ),
];

fn missing() -> RpcError {
    RpcError::server("header not found")
}

fn raw_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let block = backend.block_by_ref(params.required(0)?)?;
    let block = block.ok_or_else(missing)?;
    let whole = Block {
        header: block.header.clone(),
        body: block.body.clone(),
    };
    json::data(out, &encode(whole));
    Ok(())
}

/// The bytes whose hash is in the header.
fn raw_block_access_list(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let header = backend.header_by_ref(params.required(0)?)?;
    let header = header.ok_or_else(missing)?;
    json::data(out, &crate::eth::raw_block_access_list(backend, &header)?);
    Ok(())
}

fn raw_header(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let header = backend.header_by_ref(params.required(0)?)?;
    let header = header.ok_or_else(missing)?;
    json::data(out, &encode(header.header));
    Ok(())
}

fn raw_receipts(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let block = backend.block_by_ref(params.required(0)?)?;
    let block = block.ok_or_else(missing)?;
    let mut list = Array::new(out);
    for receipt in block.receipts(backend.chain())? {
        list.data(&receipt.encode_2718());
    }
    Ok(())
}

fn raw_transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let hash = params.hash(0)?;
    match crate::eth::find(backend, &hash)? {
        Some((block, index)) => {
            json::data(out, &answers::encoded(&block.body.transactions[index]));
        }
        None => json::data(out, &[]),
    }
    Ok(())
}

/// Judges a canonical block once more upon the state before it, and makes it the head if it is valid
/// still; then what came after it is to be imported again.
fn replay_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let tag: BlockTag = params.required(0)?;
    let header = backend.header_by_tag(tag)?.ok_or_else(missing)?;
    if header.id.number == 0 {
        return Err(RpcError::server("genesis can't be replayed"));
    }
    let chain = backend.chain();
    let replayed = chain.replay(&header);
    replayed.map_err(|error| RpcError::server(error.to_string()))?;
    let set = backend.consensus.set_head(&header.id.hash);
    set.map_err(|error| RpcError::server(error.to_string()))?;
    json::string(out, "Success");
    Ok(())
}

/// Makes a stored block the head, whose state must be within reach.
fn set_head(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let header = backend.header_by_ref(params.required(0)?)?;
    let header = header.ok_or_else(missing)?;
    let set = backend.consensus.set_head(&header.id.hash);
    set.map_err(|error| RpcError::server(error.to_string()))?;
    out.extend_from_slice(b"null");
    Ok(())
}
