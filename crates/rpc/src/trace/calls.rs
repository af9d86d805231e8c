//! The tree of calls of one transaction: what callTracer, flatCallTracer and `trace_*` show.

use niwaki_evm::{CallKind, Entered, Failure, Left, Tracer};
use niwaki_primitives::{Address, Bytes, Log, U256};

/// Bytes of inputs, outputs and logs that one tree may hold.
const MOST_BYTES: usize = 256 << 20;
/// What a call takes beside its bytes.
const CALL_BYTES: usize = 300;

/// A call, with those within it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) value: U256,
    pub(crate) gas: u64,
    pub(crate) gas_used: u64,
    pub(crate) input: Bytes,
    pub(crate) output: Bytes,
    pub(crate) failure: Option<Failure>,
    pub(crate) is_precompiled: bool,
    pub(crate) logs: Vec<CallLog>,
    pub(crate) calls: Vec<Call>,
}

/// A log, and how many calls its emitter had made before it.
#[derive(Clone, Debug)]
pub(crate) struct CallLog {
    pub(crate) log: Log,
    pub(crate) position: usize,
    /// Which one of the transaction's it is, taken back ones included.
    pub(crate) index: usize,
}

/// What of the calls is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallOptions {
    pub(crate) only_top: bool,
    pub(crate) with_logs: bool,
    /// Whether plain calls of precompiled contracts are left out.
    pub(crate) without_precompiled: bool,
}

/// Keeps the calls of a transaction.
#[derive(Debug, Default)]
pub(crate) struct CallTree {
    options: CallOptions,
    open: Vec<Call>,
    root: Option<Call>,
    bytes: usize,
    logs: usize,
}

impl CallTree {
    pub(crate) fn new(options: CallOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// The transaction's own call, if it has run.
    pub(crate) fn into_root(self) -> Option<Call> {
        self.root
    }

    /// Whether the run was ended because it had more calls than are kept.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > MOST_BYTES
    }
}

impl Tracer for CallTree {
    fn wants_steps(&self) -> bool {
        false
    }

    fn stops(&mut self) -> bool {
        self.is_too_large()
    }

    fn enter(&mut self, entered: &Entered<'_>) {
        if self.options.only_top && entered.depth > 0 {
            return;
        }
        self.bytes += entered.input.len() + CALL_BYTES;
        self.open.push(Call {
            kind: entered.kind,
            from: entered.from,
            to: entered.to,
            value: entered.value,
            gas: entered.gas,
            gas_used: 0,
            input: Bytes::copy_from_slice(entered.input),
            output: Bytes::new(),
            failure: None,
            is_precompiled: entered.is_precompiled,
            logs: Vec::new(),
            calls: Vec::new(),
        });
    }

    fn leave(&mut self, left: &Left<'_>) {
        if self.options.only_top && left.depth > 0 {
            return;
        }
        let Some(mut call) = self.open.pop() else {
            return;
        };
        self.bytes += left.output.len();
        call.gas_used = left.gas_used;
        call.output = Bytes::copy_from_slice(left.output);
        call.failure = left.failure;
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
        if !self.options.with_logs || self.options.only_top && self.open.len() != 1 {
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
