//! How long each opcode, each precompiled contract and each contract's own code takes.
//!
//! The clock is read before and after every opcode; what one reading takes is measured first and subtracted. A run is several
//! times slower than one without a tracer and uses the plain form of the interpreter, so only the shares count.

use niwaki_evm::{CallEnd, CallStart, Step, Tracer};
use niwaki_primitives::Address;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What some code has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Opcodes, or calls.
    pub(super) count: u64,
    pub(super) gas: u64,
    pub(super) nanos: u64,
}

impl Cost {
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.gas += other.gas;
        self.nanos += other.nanos;
    }
}

/// An opcode that runs.
#[derive(Debug)]
struct OpenOp {
    opcode: u8,
    gas: i64,
    began: Instant,
}

/// A precompiled contract that runs.
#[derive(Debug)]
struct OpenPrecompile {
    address: Address,
    began: Instant,
}

/// The sums over all runs.
#[derive(Debug)]
pub(super) struct OpcodeTimes {
    /// By opcode.
    pub(super) opcodes: Box<[Cost; 256]>,
    /// By address of a precompiled contract.
    pub(super) precompiles: HashMap<Address, Cost>,
    /// By the account whose code ran: its own opcodes, without those of its callees.
    pub(super) contracts: HashMap<Address, Cost>,
    /// The open calls, outermost first: whose code runs.
    calls: Vec<Address>,
    op: Option<OpenOp>,
    precompile: Option<OpenPrecompile>,
    /// Nanoseconds of a reading of the clock.
    clock_ns: u64,
}

impl Default for OpcodeTimes {
    fn default() -> Self {
        Self {
            opcodes: Box::new([Cost::default(); 256]),
            precompiles: HashMap::default(),
            contracts: HashMap::default(),
            calls: Vec::new(),
            op: None,
            precompile: None,
            clock_ns: clock_ns(),
        }
    }
}

/// The least time between two readings of the clock, nanoseconds.
fn clock_ns() -> u64 {
    let readings = (0..1_000).map(|_| {
        let began = Instant::now();
        Instant::now() - began
    });
    nanos(readings.min().unwrap_or_default())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl OpcodeTimes {
    /// Ends the opcode that runs, which has used this much gas.
    fn end_op(&mut self, now: Instant, gas: impl FnOnce(i64) -> i64) {
        let Some(op) = self.op.take() else { return };
        let cost = Cost {
            count: 1,
            gas: u64::try_from(gas(op.gas)).unwrap_or(0),
            nanos: nanos(now - op.began).saturating_sub(self.clock_ns),
        };
        self.opcodes[usize::from(op.opcode)].add(cost);
        if let Some(contract) = self.calls.last() {
            self.contracts.entry(*contract).or_default().add(cost);
        }
    }
}

impl Tracer for OpcodeTimes {
    fn step(&mut self, step: &Step<'_>) {
        // One that ended its frame has no end of its own.
        self.end_op(Instant::now(), |_| 0);
        self.op = Some(OpenOp {
            opcode: step.opcode(),
            gas: step.gas(),
            began: Instant::now(),
        });
    }

    fn step_end(&mut self, gas_left: i64, forwarded: i64) {
        self.end_op(Instant::now(), |before| before - gas_left - forwarded);
    }

    fn enter(&mut self, start: &CallStart<'_>) {
        self.calls.push(start.to);
        if start.is_precompiled {
            self.precompile = Some(OpenPrecompile {
                address: start.to,
                began: Instant::now(),
            });
        }
    }

    fn exit(&mut self, end: &CallEnd<'_>) {
        let now = Instant::now();
        if let Some(precompile) = self.precompile.take() {
            let cost = Cost {
                count: 1,
                gas: end.gas_used,
                nanos: nanos(now - precompile.began).saturating_sub(self.clock_ns),
            };
            self.precompiles
                .entry(precompile.address)
                .or_default()
                .add(cost);
        }
        self.calls.pop();
    }
}
