//! The namespace `debug` without traces: raw blocks and transactions, the contents of a state, invalid blocks, profiles.

mod bad_blocks;
mod metrics;
mod profile;
mod ranges;

use crate::eth::serialize;
use crate::json::{self, Array};
use crate::methods::{Lane, Method, row};
use crate::params::{BlockTag, Params};
use crate::{Backend, RpcError, RpcResult};
use niwaki_chain::StoredHeader;
use niwaki_primitives::Block;
use niwaki_primitives::rlp::encode;

pub(crate) use profile::profile;
pub use profile::{ProfileHooks, ProfileWriter};

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("debug_accountAt", "block txIndex address", Lane::Heavy, ranges::account_at),
    row("debug_accountRange", "block start? maxResults? nocode? nostorage? incompletes?", Lane::Heavy, ranges::account_range),
    row("debug_batchSendRawTransaction", "transactions*", Lane::Call, crate::eth::send_many),
    row("debug_cpuProfile", "name seconds", Lane::Long, profile::cpu),
    row("debug_getBadBlocks", "", Lane::Heavy, bad_blocks::bad_blocks),
    row("debug_getRawBlock", "block", Lane::Call, raw_block),
    row("debug_getRawBlockAccessList", "block", Lane::Call, raw_block_access_list),
    row("debug_getRawHeader", "block", Lane::Inline, raw_header),
    row("debug_getRawReceipts", "block", Lane::Call, raw_receipts),
    row("debug_getRawTransaction", "hash", Lane::Inline, raw_transaction),
    row("debug_memStats", "", Lane::Call, profile::memory),
    row("debug_metrics", "", Lane::Call, metrics::metrics),
    row("debug_replayBlock", "block", Lane::Engine, replay_block),
    row("debug_setHead", "block", Lane::Engine, set_head),
    row("debug_writeMemProfile", "name", Lane::Long, profile::heap),
    row("debug_storageRangeAt", "block txIndex address startKey? maxResults?", Lane::Heavy, ranges::storage_range_at),
];

fn missing() -> RpcError {
    RpcError::server("header not found")
}

/// The header of the block that the first parameter names.
fn header(backend: &Backend, params: &Params<'_>) -> Result<StoredHeader, RpcError> {
    let header = backend.header_by_ref(params.required(0)?)?;
    header.ok_or_else(missing)
}

fn raw_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
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
fn raw_block_access_list(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let header = header(backend, params)?;
    json::data(out, &crate::eth::raw_block_access_list(backend, &header)?);
    Ok(())
}

fn raw_header(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::data(out, &encode(header(backend, params)?.header));
    Ok(())
}

fn raw_receipts(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let block = backend.block_by_ref(params.required(0)?)?;
    let block = block.ok_or_else(missing)?;
    let mut list = Array::new(out);
    for receipt in block.receipts(backend.chain())? {
        list.data(&receipt.encode_2718());
    }
    Ok(())
}

fn raw_transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    match crate::eth::find(backend, &hash)? {
        Some((block, index)) => {
            json::data(out, &serialize::encoded(&block.body.transactions[index]));
        }
        None => json::data(out, &[]),
    }
    Ok(())
}

/// Validates a canonical block again on its parent's state and makes it the head if it is valid; the blocks after it
/// must then be imported again.
fn replay_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let tag: BlockTag = params.required(0)?;
    let header = backend.header_by_tag(tag)?.ok_or_else(missing)?;
    if header.id.number == 0 {
        return Err(RpcError::server("genesis can't be replayed"));
    }
    let replayed = backend.chain().replay(&header);
    replayed.map_err(|error| RpcError::server(error.to_string()))?;
    let set = backend.consensus.set_head(&header.id.hash);
    set.map_err(|error| RpcError::server(error.to_string()))?;
    json::string(out, "Success");
    Ok(())
}

/// Makes a stored block the head; its state must be available.
fn set_head(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let header = header(backend, params)?;
    let set = backend.consensus.set_head(&header.id.hash);
    set.map_err(|error| RpcError::server(error.to_string()))?;
    crate::eth::null(out)
}
