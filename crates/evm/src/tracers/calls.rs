//! The call tree of one transaction: callTracer, from which flatCallTracer and 4byteTracer are derived.

use crate::tracer::{CallEnd, CallKind, CallStart, Failure, Tracer};
use niwaki_primitives::{Address, Bytes, Log, U256};
use std::collections::BTreeMap;

/// Limit of inputs, outputs and logs in one tree, bytes.
const MAX_BYTES: usize = 256 << 20;
/// Memory of a call without these, bytes.
const CALL_BYTES: usize = 300;

/// A call and the calls within it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its kind.
    pub kind: CallKind,
    /// The account that runs.
    pub from: Address,
    /// Account whose code runs, the new account, or the beneficiary.
    pub to: Address,
    /// CALLVALUE of the callee, wei, transferred or not.
    pub value: U256,
    /// Gas given, stipend included.
    pub gas: u64,
    /// Gas used of it.
    pub gas_used: u64,
    /// Input or init code.
    pub input: Bytes,
    /// Returned data, or the revert's; of a creation the code.
    pub output: Bytes,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// Whether `to` is a precompiled contract.
    pub is_precompiled: bool,
    /// Logs of its own.
    pub logs: Vec<CallLog>,
    /// The calls that it made.
    pub calls: Vec<Call>,
}

/// A log of a call.
#[derive(Clone, Debug)]
pub struct CallLog {
    /// The log.
    pub log: Log,
    /// How many calls its emitter had made before.
    pub position: usize,
    /// Its index in the block, as in the receipt: reverted logs do not count.
    pub index: usize,
}

/// A function by the first four bytes of its input, and the length of the rest.
pub type Selector = ([u8; 4], usize);

impl Call {
    /// Visits every call with its address in the tree, callers first, as flatCallTracer shows them.
    pub fn each<'c>(&'c self, mut visit: impl FnMut(&'c Call, &[usize])) {
        let mut open: Vec<(&Call, Vec<usize>)> = vec![(self, Vec::new())];
        while let Some((call, address)) = open.pop() {
            visit(call, &address);
            for (index, inner) in call.calls.iter().enumerate().rev() {
                open.push((inner, [address.as_slice(), &[index]].concat()));
            }
        }
    }

    /// How often each function was called with how many bytes, as 4byteTracer counts: neither creations nor
    /// precompiled contracts.
    pub fn selectors(&self) -> BTreeMap<Selector, u64> {
        let mut counts = BTreeMap::new();
        self.each(|call, _| {
            let is_call = !call.kind.creates() && call.kind != CallKind::SelfDestruct;
            if let Some((selector, rest)) = call.input.split_first_chunk::<4>()
                && is_call
                && !call.is_precompiled
            {
                *counts.entry((*selector, rest.len())).or_default() += 1;
            }
        });
        counts
    }
}

/// What the tree contains.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// Only the transaction's own call.
    pub only_top: bool,
    /// Include logs.
    pub with_logs: bool,
    /// Leave out plain calls of precompiled contracts.
    pub without_precompiled: bool,
}

/// Records the calls of a transaction. Its memory is bounded: a run that exceeds it is stopped.
#[derive(Debug, Default)]
pub struct CallTree {
    options: CallOptions,
    open: Vec<Call>,
    root: Option<Call>,
    bytes: usize,
    /// Logs of the block so far, without reverted ones.
    logs: usize,
    /// `logs` at the start of each open call, recorded or not.
    logs_before: Vec<usize>,
}

impl CallTree {
    /// An empty tree.
    pub fn new(options: CallOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Numbers logs from `logs` on: the count of logs of the block's transactions before this one.
    #[must_use]
    pub fn after_logs(self, logs: usize) -> Self {
        Self { logs, ..self }
    }

    /// The transaction's own call, if it has run.
    pub fn into_root(self) -> Option<Call> {
        self.root
    }

    /// Whether the run was stopped because it exceeded the memory bound.
    pub fn is_too_large(&self) -> bool {
        self.bytes > MAX_BYTES
    }
}

impl Tracer for CallTree {
    fn should_trace_steps(&self) -> bool {
        false
    }

    fn should_stop(&mut self) -> bool {
        self.is_too_large()
    }

    fn enter(&mut self, start: &CallStart<'_>) {
        self.logs_before.push(self.logs);
        if self.options.only_top && start.depth > 0 {
            return;
        }
        self.bytes += start.input.len() + CALL_BYTES;
        self.open.push(Call {
            kind: start.kind,
            from: start.from,
            to: start.to,
            value: start.value,
            gas: start.gas,
            gas_used: 0,
            input: Bytes::copy_from_slice(start.input),
            output: Bytes::new(),
            failure: None,
            is_precompiled: start.is_precompiled,
            logs: Vec::new(),
            calls: Vec::new(),
        });
    }

    fn exit(&mut self, end: &CallEnd<'_>) {
        let before = self.logs_before.pop();
        if let (Some(before), Some(_)) = (before, end.failure) {
            self.logs = before;
        }
        if self.options.only_top && end.depth > 0 {
            return;
        }
        let Some(mut call) = self.open.pop() else {
            return;
        };
        self.bytes += end.output.len();
        call.gas_used = end.gas_used;
        call.output = Bytes::copy_from_slice(end.output);
        call.failure = end.failure;
        let is_plain = matches!(call.kind, CallKind::Call | CallKind::StaticCall);
        match self.open.last_mut() {
            None => self.root = Some(call),
            Some(_) if self.options.without_precompiled && is_plain && call.is_precompiled => {}
            Some(parent) => parent.calls.push(call),
        }
    }

    fn logs(&mut self, logs: &[Log]) {
        let first = self.logs;
        self.logs += logs.len();
        if !self.options.with_logs || self.options.only_top && self.logs_before.len() != 1 {
            return;
        }
        let Some(call) = self.open.last_mut() else {
            return;
        };
        for (index, log) in logs.iter().enumerate() {
            self.bytes += log.data.data.len() + CALL_BYTES;
            call.logs.push(CallLog {
                log: log.clone(),
                position: call.calls.len(),
                index: first + index,
            });
        }
    }
}
