//! `debug_trace*`.

use super::files;
use super::subject::{PastBlock, Subject};
use super::tracers::Tracing;
use crate::blocks::FullBlock;
use crate::eth::{Asked, find};
use crate::json::Array;
use crate::methods::{Lane, Method, row};
use crate::params::{BlockTag, Number, Params};
use crate::simulation::{BlockOverrides, StateOverrides};
use crate::{Backend, RpcError};
use niwaki_primitives::rlp::Decodable;
use niwaki_primitives::{Block, Bytes};
use serde::Deserialize;
use std::sync::Arc;

type Answer = Result<(), RpcError>;

pub(crate) const METHODS: &[Method] = &[
    row(
        "debug_standardTraceBadBlockToFile",
        Lane::Heavy,
        files::bad_block,
    ),
    row("debug_standardTraceBlockToFile", Lane::Heavy, files::block),
    row("debug_traceBlock", Lane::Heavy, raw_block),
    row("debug_traceBlockByHash", Lane::Heavy, block),
    row("debug_traceBlockByNumber", Lane::Heavy, block),
    row("debug_traceCall", Lane::Heavy, call),
    row("debug_traceTransaction", Lane::Heavy, transaction),
];

fn transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let hash = params.hash(0)?;
    let tracing = Tracing::of(params, 1)?;
    let found = find(backend, &hash)?;
    let (block, index) = found.ok_or_else(|| RpcError::server("transaction not found"))?;
    let past = PastBlock::new(backend, block, true)?;
    let before = past.before(backend, index, params)?;
    tracing.write(&before, &past.subject(index)?, out).map(drop)
}

/// By hash or by number: the parameter tells.
fn block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let tracing = Tracing::of(params, 1)?;
    let past = PastBlock::of_params(backend, params, 0)?;
    write_block(backend, params, (&past, &tracing), out)
}

/// A block that need not be stored, upon a parent that is.
fn raw_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let bytes: Bytes = params.required(0)?;
    let tracing = Tracing::of(params, 1)?;
    let block = Block::decode(&mut bytes.as_ref());
    let block =
        block.map_err(|error| RpcError::server(format!("could not decode block: {error}")))?;
    let hash = block.header.hash_slow();
    let past = PastBlock::new(backend, Arc::new(FullBlock::new(block, hash)), false)?;
    write_block(backend, params, (&past, &tracing), out)
}

fn write_block(
    backend: &Backend,
    params: &Params<'_>,
    (past, tracing): (&PastBlock, &Tracing<'_>),
    out: &mut Vec<u8>,
) -> Answer {
    let mut list = Array::new(out);
    let mut index = 0;
    past.each(backend, params, |block, subject| {
        let hash = past.block.body.transactions[index].tx_hash();
        index += 1;
        let mut object = list.object();
        object.data("txHash", hash.as_slice());
        let run = tracing.write(block, subject, object.field("result"))?;
        drop(object);
        params.flush(list.place())?;
        Ok(run)
    })
}

/// Upon the state after a block, or within it before the transaction `txIndex`.
fn call(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Place {
        state_overrides: Option<StateOverrides>,
        block_overrides: Option<BlockOverrides>,
        tx_index: Option<Number>,
    }
    let tracing = Tracing::of(params, 2)?;
    let place: Place = params.optional(2)?.unwrap_or_default();
    let overrides = place.state_overrides.unwrap_or_default();
    let block_overrides = place.block_overrides.unwrap_or_default();
    let asked = Asked::upon(backend, params, BlockTag::Latest)?;
    let asked = asked.overridden(overrides.clone(), block_overrides.clone());
    let gas = asked.gas(backend);
    let subject = Subject::Message {
        message: &asked.message,
        gas,
    };
    let Some(Number(index)) = place.tx_index else {
        let block = asked.block(backend)?;
        return tracing.write(&block, &subject, out).map(drop);
    };
    let past = PastBlock::of_params(backend, params, 1)?;
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    let transactions = past.block.body.transactions.len();
    // Before the first transaction is within a block that has none, too.
    if index > 0 && index >= transactions {
        return Err(RpcError::server(format!(
            "transaction index {index} out of range for block {:#x}, which has {transactions}",
            past.block.id.hash
        )));
    }
    let mut block = past.before(backend, index, params)?;
    block.override_with(&overrides, &block_overrides)?;
    tracing.write(&block, &subject, out).map(drop)
}
