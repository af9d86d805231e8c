//! Collects the logs of a simulated call, on request with a log for each transfer of ether.

use niwaki_evm::{CallEnd, CallKind, CallStart, Tracer};
use niwaki_primitives::{Address, B256, Bytes, Log, LogData, address, b256};

/// The address that a transfer's log names as its emitter.
const EMITTER: Address = address!("eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee");
/// `Transfer(address,address,uint256)`.
const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// Collects the logs of calls that did not fail, each with its number in the block.
#[derive(Debug)]
pub(super) struct LogCollector {
    traces_transfers: bool,
    open: Vec<Vec<(Log, usize)>>,
    collected: Vec<(Log, usize)>,
    /// The number of the block's next log; a reverted log keeps its number.
    next: usize,
}

impl LogCollector {
    /// For a call after `next` logs of the block.
    pub(super) fn new(traces_transfers: bool, next: usize) -> Self {
        Self {
            traces_transfers,
            open: Vec::new(),
            collected: Vec::new(),
            next,
        }
    }

    /// The logs, and the number of the next one.
    pub(super) fn into_logs(self) -> (Vec<(Log, usize)>, usize) {
        (self.collected, self.next)
    }

    fn add(&mut self, log: Log) {
        let number = self.next;
        self.next += 1;
        if let Some(open) = self.open.last_mut() {
            open.push((log, number));
        }
    }
}

impl Tracer for LogCollector {
    fn should_trace_steps(&self) -> bool {
        false
    }

    fn enter(&mut self, entered: &CallStart<'_>) {
        self.open.push(Vec::new());
        let moves = entered.kind != CallKind::DelegateCall && !entered.value.is_zero();
        if !self.traces_transfers || !moves {
            return;
        }
        let topics = vec![TRANSFER, entered.from.into_word(), entered.to.into_word()];
        let data = Bytes::copy_from_slice(&entered.value.to_be_bytes::<32>());
        let Some(data) = LogData::new(topics, data) else {
            return; // Three topics are never too many.
        };
        self.add(Log {
            address: EMITTER,
            data,
        });
    }

    fn exit(&mut self, left: &CallEnd<'_>) {
        let Some(logs) = self.open.pop() else { return };
        if left.failure.is_some() {
            return;
        }
        match self.open.last_mut() {
            Some(caller) => caller.extend(logs),
            None => self.collected = logs,
        }
    }

    fn logs(&mut self, logs: &[Log]) {
        for log in logs {
            self.add(log.clone());
        }
    }
}
