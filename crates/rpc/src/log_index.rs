//! The methods that generate, repair and remove the log index, under Besu's names.
//!
//! The index has no gaps: it is generated from the first stored block on, and removed from a block up to its end.

use crate::json::Object;
use crate::methods::{Lane, Method, row};
use crate::params::{BlockTag, Params};
use crate::{Backend, RpcError, RpcResult};
use niwaki_chain::SECTION_BLOCKS;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("admin_generateLogBloomCache", "startBlock? stopBlock?", Lane::Call, generate),
    row("admin_logsRemoveCache", "startBlock? stopBlock?", Lane::Long, remove),
    row("admin_logsRepairCache", "block?", Lane::Call, repair),
];

/// The number of the block that a parameter names; `None` for the latest.
fn number(backend: &Backend, tag: BlockTag) -> Result<Option<u64>, RpcError> {
    match tag {
        BlockTag::Latest | BlockTag::Pending => Ok(None),
        BlockTag::Number(number) => Ok(Some(number)),
        tag => {
            let header = backend.header_by_tag(tag)?;
            let header = header.ok_or_else(|| RpcError::server("unknown block"))?;
            Ok(Some(header.id.number))
        }
    }
}

/// The number of a block, which must be stored.
fn stored(backend: &Backend, tag: BlockTag) -> Result<u64, RpcError> {
    let head = backend.chain().head().id.number;
    let number = number(backend, tag)?.unwrap_or(head);
    match number <= head {
        true => Ok(number),
        false => Err(RpcError::server(format!("Block not found, {number}"))),
    }
}

/// The end of the section of `number`; the end of all sections for the latest block.
fn end_of_section(number: Option<u64>) -> u64 {
    number.map_or(u64::MAX, |number| {
        (number - number % SECTION_BLOCKS).saturating_add(SECTION_BLOCKS)
    })
}

/// Requests that blocks up to `number` are indexed, in addition to those requested before.
fn request(backend: &Backend, number: Option<u64>) -> Result<(), RpcError> {
    let requested = backend.chain().log_index_state()?.target;
    backend
        .chain()
        .set_log_index_target(requested.max(end_of_section(number)));
    Ok(())
}

/// Generates the index from the block of the first parameter to that of the second.
fn generate(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let from = params.optional(0)?.unwrap_or(BlockTag::Earliest);
    let from = number(backend, from)?.unwrap_or(u64::MAX);
    let to = number(backend, params.optional(1)?.unwrap_or(BlockTag::Latest))?;
    let is_accepted = from < to.unwrap_or(u64::MAX);
    if is_accepted {
        request(backend, to)?;
    }
    let state = backend.chain().log_index_state()?;
    let mut object = Object::new(out);
    object.number("startBlock", from);
    match to {
        Some(to) => object.number("endBlock", to),
        None => object.string("endBlock", "latest"),
    }
    object.number("currentBlock", state.below);
    object.boolean("caching", state.is_behind);
    object.boolean("requestAccepted", is_accepted);
    Ok(())
}

/// Generates the index from scratch, at least up to a block.
fn repair(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let to: Option<BlockTag> = params.optional(0)?;
    let to = to.map(|to| stored(backend, to)).transpose()?;
    let was_behind = backend.chain().log_index_state()?.is_behind;
    if !was_behind {
        backend.chain().strike_log_index(0)?;
    }
    request(backend, to)?;
    let status = match was_behind {
        true => "Already running",
        false => "Started",
    };
    Object::new(out).string("Status", status);
    Ok(())
}

/// Removes the index from the section of a block on. It is generated again on request, or after the next start.
fn remove(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let from = stored(backend, params.optional(0)?.unwrap_or(BlockTag::Earliest))?;
    let to = stored(backend, params.optional(1)?.unwrap_or(BlockTag::Latest))?;
    if to < from {
        let message = format!("Invalid block number params: {to} is before {from}");
        return Err(RpcError::invalid_params(message));
    }
    backend
        .chain()
        .set_log_index_target(from - from % SECTION_BLOCKS);
    backend.chain().remove_log_index(from)?;
    Object::new(out).string("Status", "Cache Removed");
    Ok(())
}
