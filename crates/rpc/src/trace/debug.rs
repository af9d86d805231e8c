//! `debug_trace*`: geth's tracing methods.

use super::files;
use super::subject::{PastBlock, Subject};
use super::tracers::Tracing;
use crate::blocks::FullBlock;
use crate::eth::{CallRequest, find};
use crate::json::Array;
use crate::methods::{Lane, Method, row};
use crate::params::{Number, Params};
use crate::simulation::{BlockOverrides, StateOverrides};
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::rlp::Decodable;
use niwaki_primitives::{Block, Bytes};
use serde::Deserialize;
use std::sync::Arc;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("debug_standardTraceBadBlockToFile", "hash options?", Lane::Heavy, files::bad_block),
    row("debug_standardTraceBlockToFile", "hash options?", Lane::Heavy, files::block),
    row("debug_traceBlock", "rlp options?", Lane::Heavy, raw_block),
    row("debug_traceBlockByHash", "hash options?", Lane::Heavy, block),
    row("debug_traceBlockByNumber", "block options?", Lane::Heavy, block),
    row("debug_traceCall", "transaction block? options?", Lane::Heavy, call),
    row("debug_traceTransaction", "hash options?", Lane::Heavy, transaction),
];

fn transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    let tracing = Tracing::of(params, 1)?;
    let found = find(backend, &hash)?;
    let (block, index) = found.ok_or_else(|| RpcError::server("transaction not found"))?;
    let past = PastBlock::new(backend, block, true)?;
    let before = past.before(backend, index, params)?;
    tracing.write(&before, &past.subject(index)?, out).map(drop)
}

/// By hash or by number, as the parameter says.
fn block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let tracing = Tracing::of(params, 1)?;
    let past = PastBlock::of_params(backend, params, 0)?;
    write_block(backend, params, &past, &tracing, out)
}

/// A block that need not be stored; its parent must be.
fn raw_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let bytes: Bytes = params.required(0)?;
    let tracing = Tracing::of(params, 1)?;
    let block = Block::decode(&mut bytes.as_ref());
    let block =
        block.map_err(|error| RpcError::server(format!("could not decode block: {error}")))?;
    let hash = backend.chain().spec().header_hash(&block.header);
    let past = PastBlock::new(backend, Arc::new(FullBlock::new(block, hash)), false)?;
    write_block(backend, params, &past, &tracing, out)
}

fn write_block(
    backend: &Backend,
    params: &Params<'_>,
    past: &PastBlock,
    tracing: &Tracing<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let mut list = Array::new(out);
    let mut index = 0;
    past.each(backend, params, |block, subject| {
        let hash = past.block.body.transactions[index].tx_hash();
        index += 1;
        let mut object = list.object();
        object.data("txHash", hash.as_slice());
        let run = tracing.write(block, subject, object.field("result"))?;
        drop(object);
        params.flush(list.buffer())?;
        Ok(run)
    })
}

/// A call on the state after a block, or within it before the transaction `txIndex`.
fn call(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct CallConfig {
        state_overrides: Option<StateOverrides>,
        block_overrides: Option<BlockOverrides>,
        tx_index: Option<Number>,
    }
    let tracing = Tracing::of(params, 2)?;
    let config: CallConfig = params.optional(2)?.unwrap_or_default();
    let mut request = CallRequest::read_without_overrides(backend, params)?;
    request.overrides = config.state_overrides.unwrap_or_default();
    request.block_overrides = config.block_overrides.unwrap_or_default();
    let subject = Subject::Message {
        message: &request.message,
        gas: request.message.gas_up_to(backend.options.gas_cap),
    };
    let Some(Number(index)) = config.tx_index else {
        let block = request.block(backend)?;
        return tracing.write(&block, &subject, out).map(drop);
    };
    let past = PastBlock::of_params(backend, params, 1)?;
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    let transactions = past.block.body.transactions.len();
    // Index 0 exists in an empty block, too.
    if index > 0 && index >= transactions {
        return Err(RpcError::server(format!(
            "transaction index {index} out of range for block {:#x}, which has {transactions}",
            past.block.id.hash
        )));
    }
    let mut block = past.before(backend, index, params)?;
    block.override_with(&request.overrides, &request.block_overrides)?;
    tracing.write(&block, &subject, out).map(drop)
}
