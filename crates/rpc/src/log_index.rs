//! The methods by which an operator has the index of logs made, made anew or removed, under Besu's
//! names.
//!
//! The index has no holes: what is made is made from the first block on, and what is removed is
//! removed up to its end.

use crate::json::Object;
use crate::methods::{Lane, Method, row};
use crate::params::{BlockTag, Params};
use crate::{Backend, RpcError};
use niwaki_chain::SECTION_BLOCKS;

type Answer = Result<(), RpcError>;

pub(crate) const METHODS: &[Method] = &[
    row("admin_generateLogBloomCache", Lane::Call, generate),
    row("admin_logsRemoveCache", Lane::Long, remove),
    row("admin_logsRepairCache", Lane::Call, repair),
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

/// The number of a block that must be stored.
fn stored(backend: &Backend, tag: BlockTag) -> Result<u64, RpcError> {
    let head = backend.chain().head().id.number;
    let number = number(backend, tag)?.unwrap_or(head);
    match number <= head {
        true => Ok(number),
        false => Err(RpcError::server(format!("Block not found, {number}"))),
    }
}

/// Where the section ends that `number` is in; the end of all for the latest block.
fn end_of_section(number: Option<u64>) -> u64 {
    number.map_or(u64::MAX, |number| {
        (number - number % SECTION_BLOCKS).saturating_add(SECTION_BLOCKS)
    })
}

/// Has blocks up to `number` indexed, besides those that are to be anyway.
fn want(backend: &Backend, number: Option<u64>) -> Result<(), RpcError> {
    let wanted = backend.chain().log_index_state()?.wanted;
    backend
        .chain()
        .want_log_index(wanted.max(end_of_section(number)));
    Ok(())
}

/// From the block that is the first parameter to the one that is the second.
fn generate(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let from = params.optional(0)?.unwrap_or(BlockTag::Earliest);
    let from = number(backend, from)?.unwrap_or(u64::MAX);
    let to = number(backend, params.optional(1)?.unwrap_or(BlockTag::Latest))?;
    let is_accepted = from < to.unwrap_or(u64::MAX);
    if is_accepted {
        want(backend, to)?;
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

/// Makes the index anew, up to a block at least.
fn repair(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let to: Option<BlockTag> = params.optional(0)?;
    let to = to.map(|to| stored(backend, to)).transpose()?;
    let was_behind = backend.chain().log_index_state()?.is_behind;
    if !was_behind {
        backend.chain().strike_log_index(0)?;
    }
    want(backend, to)?;
    let status = match was_behind {
        true => "Already running",
        false => "Started",
    };
    Object::new(out).string("Status", status);
    Ok(())
}

/// Removes the index from the section of a block on. It is made again when that is asked for, or
/// after the next start.
fn remove(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let from = stored(backend, params.optional(0)?.unwrap_or(BlockTag::Earliest))?;
    let to = stored(backend, params.optional(1)?.unwrap_or(BlockTag::Latest))?;
    if to < from {
        let message = format!("Invalid block number params: {to} is before {from}");
        return Err(RpcError::invalid_params(message));
    }
    backend.chain().want_log_index(from - from % SECTION_BLOCKS);
    backend.chain().remove_log_index(from)?;
    Object::new(out).string("Status", "Cache Removed");
    Ok(())
}
