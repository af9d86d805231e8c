//! `trace_*`: Parity's traces and state changes, which Besu and reth serve as well.

use super::check_length;
use super::flat::{self, FlatOptions};
use super::search;
use super::state_diff;
use super::subject::{PastBlock, Subject};
use super::tracers::calls;
use super::vm_trace::VmTracer;
use crate::eth::find;
use crate::json::{Array, Object};
use crate::methods::{Lane, Method, row};
use crate::params::{BlockRef, Count, Params};
use crate::simulation::{Message, SimulatedBlock, SimulationResult};
use crate::{Backend, RpcError, RpcResult, metrics};
use niwaki_evm::tracers::CallOptions;
use niwaki_primitives::{Address, Bytes, Decodable2718, TxEnvelope, U256};
use niwaki_rules::{BlockReward, ommer_reward};
use serde::Deserialize;
use std::time::Instant;

/// Besu's counters of traced transactions.
const TRACE_BLOCK: &str = "besu_blockchain_transactions_traceblock_pipeline_processed_total";
const REPLAY_BLOCK: &str = "besu_blockchain_transactions_tracereplayblock_pipeline_processed_total";

/// Most messages of one trace_callMany.
const MAX_CALLS: usize = 1_000;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("trace_block", "block", Lane::Heavy, block),
    row("trace_call", "transaction traceTypes block?", Lane::Heavy, call),
    row("trace_callMany", "calls block?", Lane::Heavy, call_many),
    row("trace_filter", "filter", Lane::Heavy, search::filter),
    row("trace_get", "hash traceAddress", Lane::Heavy, get),
    row("trace_rawTransaction", "transaction traceTypes block?", Lane::Heavy, raw_transaction),
    row("trace_replayBlockTransactions", "block traceTypes", Lane::Heavy, replay_block),
    row("trace_replayTransaction", "hash traceTypes", Lane::Heavy, replay_transaction),
    row("trace_transaction", "hash", Lane::Heavy, transaction),
];

/// What the call tree of a flat trace contains.
pub(super) const CALL_OPTIONS: CallOptions = CallOptions {
    only_top: false,
    with_logs: false,
    without_precompiled: true,
};

/// The requested trace types.
#[derive(Clone, Copy, Debug, Default)]
struct TraceTypes {
    trace: bool,
    state_diff: bool,
    vm_trace: bool,
}

impl TraceTypes {
    fn of(names: &[String]) -> Result<Self, RpcError> {
        let mut types = Self::default();
        for name in names {
            match name.as_str() {
                "trace" => types.trace = true,
                "stateDiff" => types.state_diff = true,
                "vmTrace" => types.vm_trace = true,
                other => {
                    let other: String = other.chars().take(50).collect();
                    let message =
                        format!("invalid trace type {other:?}: want trace, stateDiff or vmTrace");
                    return Err(RpcError::invalid_params(message));
                }
            }
        }
        Ok(types)
    }

    fn read(params: &Params<'_>, index: usize) -> Result<Self, RpcError> {
        Self::of(&params.required::<Vec<String>>(index)?)
    }

    /// Runs `subject` and writes its output, state changes, calls and opcodes into `object`.
    fn write(
        self,
        block: &SimulatedBlock<'_>,
        subject: &Subject<'_>,
        params: &Params<'_>,
        object: &mut Object<'_>,
    ) -> Result<SimulationResult, RpcError> {
        let (root, run) = calls(CALL_OPTIONS, block, subject, params.deadline)?;
        object.data("output", &run.result.output);
        match self.state_diff {
            true => state_diff::write(object.field("stateDiff"), &run.diff, block.state())?,
            false => object.null("stateDiff"),
        }
        let options = FlatOptions::parity(None);
        let mut list = object.array("trace");
        if self.trace {
            root.each(|call, at| flat::write(list.item(), call, at, &options));
        }
        drop(list);
        match self.vm_trace {
            true => write_opcodes(block, subject, params, object.field("vmTrace"))?,
            false => object.null("vmTrace"),
        }
        Ok(run)
    }
}

/// Executes `subject` again and writes its opcodes.
fn write_opcodes(
    block: &SimulatedBlock<'_>,
    subject: &Subject<'_>,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let stream = params.stream.map(|stream| (stream, params.deadline));
    let mut tracer = VmTracer::new(out, stream);
    let run = subject.run(block, &mut tracer, params.deadline);
    tracer.into_error().map_or(run.map(drop), Err)
}

/// Writes the traces of one transaction into `list`.
fn write_traces(
    block: &SimulatedBlock<'_>,
    subject: &Subject<'_>,
    deadline: Instant,
    list: &mut Array<'_>,
) -> Result<SimulationResult, RpcError> {
    let (root, run) = calls(CALL_OPTIONS, block, subject, deadline)?;
    let options = FlatOptions::parity(subject.location());
    root.each(|call, at| flat::write(list.item(), call, at, &options));
    Ok(run)
}

fn transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    let Some((block, index)) = find(backend, &hash)? else {
        return crate::eth::null(out);
    };
    let past = PastBlock::new(backend, block, true)?;
    let before = past.before(backend, index, params)?;
    let mut list = Array::new(out);
    write_traces(&before, &past.subject(index)?, params.deadline, &mut list)?;
    drop(list);
    check_length(out)
}

/// One call of a transaction, by its address in the call tree.
fn get(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    let path: Vec<Count> = params.required(1)?;
    let path: Vec<usize> = path
        .iter()
        .map(|index| usize::try_from(index.0).unwrap_or(usize::MAX))
        .collect();
    let Some((block, index)) = find(backend, &hash)? else {
        return crate::eth::null(out);
    };
    let past = PastBlock::new(backend, block, true)?;
    let before = past.before(backend, index, params)?;
    let subject = past.subject(index)?;
    let (root, _) = calls(CALL_OPTIONS, &before, &subject, params.deadline)?;
    let options = FlatOptions::parity(subject.location());
    let from = out.len();
    root.each(|call, at| {
        if at == path {
            flat::write(out, call, at, &options);
        }
    });
    match out.len() == from {
        true => crate::eth::null(out),
        false => Ok(()),
    }
}

fn block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let named: BlockRef = params.required(0)?;
    let Some(found) = backend.block_by_ref(named)? else {
        return crate::eth::null(out);
    };
    let mut list = Array::new(out);
    if found.id.number == 0 {
        return Ok(());
    }
    let past = PastBlock::new(backend, found, true)?;
    past.each(backend, params, |block, subject| {
        let run = write_traces(block, subject, params.deadline, &mut list)?;
        metrics::record_traced(TRACE_BLOCK, "traceFlatTransaction_outputPipe");
        params.flush(list.buffer())?;
        Ok(run)
    })?;
    write_rewards(backend, &past, &mut list);
    drop(list);
    check_length(out)
}

/// Writes the rewards of a block and its ommers as traces, before the Merge.
fn write_rewards(backend: &Backend, past: &PastBlock, list: &mut Array<'_>) {
    let (header, ommers) = (&past.block.header, &past.block.body.ommers);
    let spec = backend.chain().spec();
    let Some(base) = spec.base_reward(header, spec.fork_of(header)) else {
        return;
    };
    let reward = BlockReward::of(base, ommers.len());
    let mut write = |author: Address, kind: &str, value: U256| {
        let mut object = list.object();
        let mut action = object.object("action");
        action.data("author", author.as_slice());
        action.string("rewardType", kind);
        action.quantity("value", &value);
        drop(action);
        object.data("blockHash", past.block.id.hash.as_slice());
        object.decimal("blockNumber", header.number);
        object.null("result");
        object.decimal("subtraces", 0);
        drop(object.array("traceAddress"));
        object.null("transactionHash");
        object.null("transactionPosition");
        object.string("type", "reward");
    };
    write(spec.beneficiary_of(header), "block", reward.coinbase);
    for ommer in ommers {
        let value = ommer_reward(reward.base, header.number, ommer.number);
        write(ommer.beneficiary, "uncle", value);
    }
}

fn replay_transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    let types = TraceTypes::read(params, 1)?;
    let Some((block, index)) = find(backend, &hash)? else {
        return crate::eth::null(out);
    };
    let past = PastBlock::new(backend, block, true)?;
    let before = past.before(backend, index, params)?;
    let mut object = Object::new(out);
    types.write(&before, &past.subject(index)?, params, &mut object)?;
    drop(object);
    check_length(out)
}

fn replay_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let types = TraceTypes::read(params, 1)?;
    let is_genesis = matches!(
        backend.header_by_ref(params.required(0)?)?,
        Some(header) if header.id.number == 0
    );
    if is_genesis {
        drop(Array::new(out)); // It has no transactions.
        return Ok(());
    }
    let past = PastBlock::of_params(backend, params, 0)?;
    let mut list = Array::new(out);
    let mut index = 0;
    past.each(backend, params, |block, subject| {
        let hash = past.block.body.transactions[index].tx_hash();
        index += 1;
        let mut object = list.object();
        let run = types.write(block, subject, params, &mut object)?;
        object.data("transactionHash", hash.as_slice());
        drop(object);
        metrics::record_traced(REPLAY_BLOCK, "traceReplayTransaction_outputPipe");
        params.flush(list.buffer())?;
        Ok(run)
    })?;
    drop(list);
    check_length(out)
}

fn call(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let message: Message = params.required(0)?;
    message.check(backend.chain().spec().chain_id)?;
    let types = TraceTypes::read(params, 1)?;
    let (header, state) = backend.state(params.optional(2)?.unwrap_or_default())?;
    let block = SimulatedBlock::on_top_of(backend, &header, &state);
    let subject = Subject::Message {
        message: &message,
        gas: message.gas_up_to(backend.options.gas_cap),
    };
    let mut object = Object::new(out);
    types.write(&block, &subject, params, &mut object)?;
    drop(object);
    check_length(out)
}

/// Each message runs on the changes of those before it.
fn call_many(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    #[derive(Deserialize)]
    struct One(Message, Vec<String>);
    let calls: Vec<One> = params.required(0)?;
    if calls.len() > MAX_CALLS {
        let message = format!("{} calls, at most {MAX_CALLS} are taken", calls.len());
        return Err(RpcError::invalid_params(message));
    }
    let (header, state) = backend.state(params.optional(1)?.unwrap_or_default())?;
    let mut block = SimulatedBlock::on_top_of(backend, &header, &state);
    let mut list = Array::new(out);
    for One(message, names) in &calls {
        params.check_deadline()?;
        message.check(block.spec().chain_id)?;
        let subject = Subject::Message {
            message,
            gas: message.gas_up_to(backend.options.gas_cap),
        };
        let mut object = list.object();
        let types = TraceTypes::of(names)?;
        let run = types.write(&block, &subject, params, &mut object)?;
        drop(object);
        block.commit(&run, 0);
        params.flush(list.buffer())?;
        check_length(list.unsent())?;
    }
    Ok(())
}

/// A signed transaction, on the state after a block.
fn raw_transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let bytes: Bytes = params.required(0)?;
    let types = TraceTypes::read(params, 1)?;
    let tx = TxEnvelope::decode_2718(&mut bytes.as_ref());
    let tx = tx.map_err(|error| RpcError::server(format!("could not decode: {error}")))?;
    let sender = niwaki_rules::recover_sender(&tx);
    let sender = sender.map_err(|error| RpcError::server(error.to_string()))?;
    let (header, state) = backend.state(params.optional(2)?.unwrap_or_default())?;
    let block = SimulatedBlock::on_top_of(backend, &header, &state);
    let subject = Subject::Transaction {
        tx: &tx,
        sender,
        location: None,
    };
    let mut object = Object::new(out);
    types.write(&block, &subject, params, &mut object)?;
    drop(object);
    check_length(out)
}
