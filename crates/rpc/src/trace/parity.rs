//! `trace_*`: traces and state changes as Parity had them, and Besu and reth have them still.

use super::flat::{self, FlatOptions};
use super::search;
use super::state_diff;
use super::subject::{PastBlock, Subject};
use super::tracers::calls;
use super::vm_trace::VmTracer;
use super::{MOST_ANSWER_BYTES, too_large};
use crate::backend::State;
use crate::eth::find;
use crate::json::{Array, Object};
use crate::methods::{Lane, Method, row};
use crate::params::{BlockRef, BlockTag, Count, Params};
use crate::simulation::{BlockOverrides, Message, Run, SimulatedBlock, StateOverrides};
use crate::{Backend, RpcError};
use niwaki_chain::StoredHeader;
use niwaki_evm::tracers::CallOptions;
use niwaki_primitives::{Address, Bytes, Decodable2718, TxEnvelope, U256};
use niwaki_rules::{BlockReward, ommer_reward};
use serde::Deserialize;
use std::time::Instant;

type Answer = Result<(), RpcError>;

/// Most messages of one trace_callMany.
const MOST_CALLS: usize = 1_000;

pub(crate) const METHODS: &[Method] = &[
    row("trace_block", Lane::Heavy, block),
    row("trace_call", Lane::Heavy, call),
    row("trace_callMany", Lane::Heavy, call_many),
    row("trace_filter", Lane::Heavy, search::filter),
    row("trace_get", Lane::Heavy, get),
    row("trace_rawTransaction", Lane::Heavy, raw_transaction),
    row("trace_replayBlockTransactions", Lane::Heavy, replay_block),
    row("trace_replayTransaction", Lane::Heavy, replay_transaction),
    row("trace_transaction", Lane::Heavy, transaction),
];

/// How traces are kept and worded here.
pub(super) const CALLS: CallOptions = CallOptions {
    only_top: false,
    with_logs: false,
    without_precompiled: true,
};

/// Which of the three things is asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    trace: bool,
    state_diff: bool,
    vm_trace: bool,
}

impl Wanted {
    fn of(names: &[String]) -> Result<Self, RpcError> {
        let mut wanted = Self::default();
        for name in names {
            match name.as_str() {
                "trace" => wanted.trace = true,
                "stateDiff" => wanted.state_diff = true,
                "vmTrace" => wanted.vm_trace = true,
                other => {
                    let other: String = other.chars().take(50).collect();
                    let message =
                        format!("invalid trace type {other:?}: want trace, stateDiff or vmTrace");
                    return Err(RpcError::invalid_params(message));
                }
            }
        }
        Ok(wanted)
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
    ) -> Result<Run, RpcError> {
        let (root, run) = calls(CALLS, block, subject, params.deadline)?;
        object.data("output", &run.result.output);
        match self.state_diff {
            true => state_diff::write(object.field("stateDiff"), &run.diff, block.state())?,
            false => object.null("stateDiff"),
        }
        let options = FlatOptions {
            parity_errors: true,
            place: None,
        };
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

/// Runs `subject` once more and writes its opcodes.
fn write_opcodes(
    block: &SimulatedBlock<'_>,
    subject: &Subject<'_>,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> Answer {
    let way = params.outlet.map(|outlet| (outlet, params.deadline));
    let mut tracer = VmTracer::new(out, way);
    let run = subject.run(block, (&mut tracer, params.deadline));
    tracer.into_cut().map_or(run.map(drop), Err)
}

/// Writes the traces of one transaction into `list`.
pub(super) fn write_traces(
    block: &SimulatedBlock<'_>,
    subject: &Subject<'_>,
    deadline: Instant,
    list: &mut Array<'_>,
) -> Result<Run, RpcError> {
    let (root, run) = calls(CALLS, block, subject, deadline)?;
    let options = FlatOptions {
        parity_errors: true,
        place: subject.place(),
    };
    root.each(|call, at| flat::write(list.item(), call, at, &options));
    Ok(run)
}

fn check_length(out: &[u8]) -> Answer {
    match out.len() > MOST_ANSWER_BYTES {
        true => Err(too_large()),
        false => Ok(()),
    }
}

fn transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
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

/// The trace of a transaction at an address in its tree of calls.
fn get(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let hash = params.hash(0)?;
    let wanted: Vec<Count> = params.required(1)?;
    let wanted: Vec<usize> = wanted
        .iter()
        .map(|index| usize::try_from(index.0).unwrap_or(usize::MAX))
        .collect();
    let Some((block, index)) = find(backend, &hash)? else {
        return crate::eth::null(out);
    };
    let past = PastBlock::new(backend, block, true)?;
    let before = past.before(backend, index, params)?;
    let subject = past.subject(index)?;
    let (root, _) = calls(CALLS, &before, &subject, params.deadline)?;
    let options = FlatOptions {
        parity_errors: true,
        place: subject.place(),
    };
    let from = out.len();
    root.each(|call, at| {
        if at == wanted {
            flat::write(out, call, at, &options);
        }
    });
    match out.len() == from {
        true => crate::eth::null(out),
        false => Ok(()),
    }
}

fn block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let named: BlockRef = params.required(0)?;
    let Some(found) = backend.block_by_ref(named)? else {
        return crate::eth::null(out);
    };
    let mut list = Array::new(out);
    if found.id.number == 0 {
        return Ok(());
    }
    let past = PastBlock::new(backend, found, true)?;
    write_block(backend, params, &past, &mut list)?;
    drop(list);
    check_length(out)
}

/// The traces of a block's transactions, and of what it pays for itself.
pub(super) fn write_block(
    backend: &Backend,
    params: &Params<'_>,
    past: &PastBlock,
    list: &mut Array<'_>,
) -> Answer {
    past.each(backend, params, |block, subject| {
        let run = write_traces(block, subject, params.deadline, list)?;
        params.flush(list.place())?;
        Ok(run)
    })?;
    write_rewards(backend, past, list);
    Ok(())
}

/// Where blocks pay rewards, those of a block and its ommers are traces too.
fn write_rewards(backend: &Backend, past: &PastBlock, list: &mut Array<'_>) {
    let (header, ommers) = (&past.block.header, &past.block.body.ommers);
    let spec = backend.chain().spec();
    let Some(base) = spec.base_reward(header.number, spec.fork_of(header)) else {
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

fn replay_transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let hash = params.hash(0)?;
    let wanted = Wanted::read(params, 1)?;
    let Some((block, index)) = find(backend, &hash)? else {
        return crate::eth::null(out);
    };
    let past = PastBlock::new(backend, block, true)?;
    let before = past.before(backend, index, params)?;
    let mut object = Object::new(out);
    wanted.write(&before, &past.subject(index)?, params, &mut object)?;
    drop(object);
    check_length(out)
}

fn replay_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let wanted = Wanted::read(params, 1)?;
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
        let run = wanted.write(block, subject, params, &mut object)?;
        object.data("transactionHash", hash.as_slice());
        drop(object);
        params.flush(list.place())?;
        Ok(run)
    })?;
    drop(list);
    check_length(out)
}

/// The state after the block that the parameter `index` names.
fn state(
    backend: &Backend,
    params: &Params<'_>,
    index: usize,
) -> Result<(StoredHeader, State), RpcError> {
    let latest = BlockRef::Tag(BlockTag::Latest);
    backend.state(params.optional(index)?.unwrap_or(latest))
}

fn upon<'v>(
    backend: &'v Backend,
    (header, state): (&StoredHeader, &'v State),
) -> Result<SimulatedBlock<'v>, RpcError> {
    let (overrides, block) = (StateOverrides::default(), BlockOverrides::default());
    SimulatedBlock::for_call(backend, (&header.header, state), &overrides, &block)
}

fn gas_of(backend: &Backend, message: &Message) -> u64 {
    let cap = backend.options.gas_cap;
    message.gas.map_or(cap, |gas| gas.0.min(cap))
}

fn call(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let message: Message = params.required(0)?;
    message.check(backend.chain().spec().chain_id)?;
    let wanted = Wanted::read(params, 1)?;
    let (header, state) = state(backend, params, 2)?;
    let block = upon(backend, (&header, &state))?;
    let subject = Subject::Message {
        message: &message,
        gas: gas_of(backend, &message),
    };
    let mut object = Object::new(out);
    wanted.write(&block, &subject, params, &mut object)?;
    drop(object);
    check_length(out)
}

/// Each message upon what those before it have left.
fn call_many(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    #[derive(Deserialize)]
    struct One(Message, Vec<String>);
    let calls: Vec<One> = params.required(0)?;
    if calls.len() > MOST_CALLS {
        let message = format!("{} calls, at most {MOST_CALLS} are taken", calls.len());
        return Err(RpcError::invalid_params(message));
    }
    let (header, state) = state(backend, params, 1)?;
    let mut block = upon(backend, (&header, &state))?;
    let mut list = Array::new(out);
    for One(message, names) in &calls {
        params.check_deadline()?;
        message.check(block.spec().chain_id)?;
        let subject = Subject::Message {
            message,
            gas: gas_of(backend, message),
        };
        let mut object = list.object();
        let wanted = Wanted::of(names)?;
        let run = wanted.write(&block, &subject, params, &mut object)?;
        drop(object);
        block.keep(&run, 0);
        params.flush(list.place())?;
        check_length(list.written())?;
    }
    Ok(())
}

/// A signed transaction upon the head.
fn raw_transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let bytes: Bytes = params.required(0)?;
    let wanted = Wanted::read(params, 1)?;
    let tx = TxEnvelope::decode_2718(&mut bytes.as_ref());
    let tx = tx.map_err(|error| RpcError::server(format!("could not decode: {error}")))?;
    let sender = niwaki_rules::recover_sender(&tx);
    let sender = sender.map_err(|error| RpcError::server(error.to_string()))?;
    let (header, state) = state(backend, params, 2)?;
    let block = upon(backend, (&header, &state))?;
    let subject = Subject::Transaction {
        tx: &tx,
        sender,
        place: None,
    };
    let mut object = Object::new(out);
    wanted.write(&block, &subject, params, &mut object)?;
    drop(object);
    check_length(out)
}
