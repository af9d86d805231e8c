//! EIP-3155 traces of transactions: recorded here, read from go-ethereum, and compared line by line.

use crate::case::{CHAIN_ID, Case};
use niwaki_evm::{Dispatch, Step, Tracer};
use niwaki_execution::{Executor, TransactionError, TransactionResult};
use niwaki_primitives::{B256, Fork, U256};
use niwaki_rules::ChainSpec;
use niwaki_testkit::{MemoryState, state_root};
use serde::Deserialize;
use std::borrow::Cow;

/// One opcode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) pc: u64,
    pub(crate) op: u8,
    pub(crate) gas: u64,
    pub(crate) cost: u64,
    pub(crate) memory: u64,
    pub(crate) depth: u64,
    /// After SSTORE and SELFDESTRUCT, before every other opcode.
    pub(crate) refund: u64,
    pub(crate) failed: bool,
    pub(crate) stack: Vec<U256>,
}

/// The trace of a transaction on one machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) lines: Vec<Line>,
    /// Whether the transaction is invalid.
    pub(crate) refused: bool,
    /// Root of the post-state.
    pub(crate) root: B256,
}

const SSTORE: u8 = 0x55;
const RETURN: u8 = 0xf3;
const REVERT: u8 = 0xfd;
const SELFDESTRUCT: u8 = 0xff;
const CREATIONS: [u8; 2] = [0xf0, 0xf5];

/// Records lines.
#[derive(Default)]
struct Lines {
    lines: Vec<Line>,
    /// Whether the running opcode has a line; the STOP of an account without code has none.
    has_line: bool,
}

fn unsigned(gas: i64) -> u64 {
    u64::try_from(gas).unwrap_or(0)
}

impl Tracer for Lines {
    fn step(&mut self, step: &Step<'_>) {
        let refund = unsigned(step.refund());
        if let Some(last) = self.lines.last_mut().filter(|last| counts_refund(last.op)) {
            last.refund = refund;
        }
        self.has_line = !step.is_code_empty();
        if !self.has_line {
            return;
        }
        self.lines.push(Line {
            pc: step.pc() as u64,
            op: step.opcode(),
            gas: unsigned(step.gas()),
            cost: 0,
            memory: step.memory_len() as u64,
            depth: step.depth() as u64,
            refund,
            failed: step.opcode() == REVERT,
            stack: step.stack(),
        });
    }

    fn step_end(&mut self, gas_left: i64, forwarded: i64) {
        if let Some(last) = self.lines.last_mut().filter(|_| self.has_line) {
            let forwarded = forwarded * i64::from(CREATIONS.contains(&last.op));
            last.failed |= gas_left < 0;
            let left = gas_left.saturating_add(forwarded);
            last.cost = last.gas.saturating_add_signed(left.saturating_neg());
        }
    }

    /// A creation may fail after its code has returned: that is no opcode's failure.
    fn frame_end(&mut self, depth: usize, gas: i64, _output: &[u8], error: Option<String>) {
        let last = self
            .lines
            .last_mut()
            .filter(|last| last.depth == depth as u64);
        if let (Some(last), Some(_)) = (last, error) {
            last.failed |= gas < 0 || last.op != RETURN || last.stack.len() < 2;
        }
    }
}

fn counts_refund(op: u8) -> bool {
    matches!(op, SSTORE | SELFDESTRUCT)
}

/// The result of a transaction, or the name of the error that makes it invalid.
pub(crate) type Executed = Result<TransactionResult, &'static str>;

/// The first transaction of the case here, and the state after it.
pub(crate) fn run(case: &Case, tracer: Option<&mut dyn Tracer>) -> (Executed, MemoryState) {
    let spec = ChainSpec::single(CHAIN_ID, case.fork);
    let mut executor = Executor::new(&spec, &case.header, &case.state);
    executor.evm().set_dispatch(Dispatch::Loop);
    let (tx, sender) = case.transactions.first().expect("a case has a transaction");
    let result = match executor.process_transaction(tx, *sender, tracer) {
        Ok(result) => Ok(result),
        Err(TransactionError::Invalid(reason)) => Err(reason.spec_name()),
        Err(TransactionError::Fault(fault)) => panic!("memory does not fail: {fault}"),
    };
    let mut state = case.state.clone();
    if result.is_ok() {
        state.apply(&executor.diff());
    }
    (result, state)
}

impl Trace {
    /// The trace of the first transaction of the case on this machine.
    pub(crate) fn of(case: &Case) -> (Self, Executed) {
        let mut lines = Lines::default();
        let (result, state) = run(case, Some(&mut lines));
        let trace = Self {
            lines: lines.lines,
            refused: result.is_err(),
            root: state_root(&state),
        };
        (trace, result)
    }

    /// An empty trace, to be read.
    pub(crate) fn unread() -> Self {
        Self {
            refused: true,
            ..Self::default()
        }
    }

    /// Reads a line of go-ethereum's; true if it was the last.
    pub(crate) fn read(&mut self, text: &str) -> Result<bool, String> {
        let raw: Raw<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if let Some(root) = raw.state_root {
            self.root = root.parse().map_err(|_| "it has no root".to_owned())?;
            return Ok(true);
        }
        let Some(pc) = raw.pc else {
            // The end of a call; the first is the transaction's.
            self.refused = false;
            return Ok(false);
        };
        let line = raw.line(pc).ok_or("a number is out of range")?;
        match self.lines.last_mut() {
            // A failing opcode is written twice.
            Some(last) if line.failed && last.is_same_step(&line) => last.failed = true,
            _ => self.lines.push(line),
        }
        Ok(false)
    }

    /// The difference from go-ethereum's trace. From Amsterdam on its costs exclude state gas; the gas before the next
    /// opcode is compared nevertheless.
    pub(crate) fn difference(&self, geth: &Self, fork: Fork) -> Option<String> {
        let costs = fork < Fork::Amsterdam;
        let both = |ours: &dyn std::fmt::Debug, geth: &dyn std::fmt::Debug| {
            format!("\n  niwaki {ours:?}\n  geth   {geth:?}")
        };
        if self.refused != geth.refused {
            let (ours, geth) = (self.refused, geth.refused);
            return Some(format!("refused:{}", both(&ours, &geth)));
        }
        if self.refused {
            return None;
        }
        let most = self.lines.len().max(geth.lines.len());
        for at in 0..most {
            let (ours, geth) = (self.lines.get(at), geth.lines.get(at));
            let same = ours
                .zip(geth)
                .is_some_and(|(us, them)| us.agrees(them, costs));
            if !same {
                return Some(format!("line {at} of the trace:{}", both(&ours, &geth)));
            }
        }
        let differs = self.root != geth.root;
        differs.then(|| format!("state root:{}", both(&self.root, &geth.root)))
    }
}

impl Line {
    fn is_same_step(&self, other: &Self) -> bool {
        let step = |line: &Self| (line.pc, line.op, line.gas, line.depth, line.failed);
        !self.failed
            && step(self)
                == step(&Self {
                    failed: false,
                    ..other.clone()
                })
    }

    /// Whether both lines agree. The refund counter is not compared at a failing opcode, nor at SELFDESTRUCT, after
    /// which nothing runs. Before Prague go-ethereum computes the callee's gas from 2^64 down if the gas does not cover
    /// the call itself.
    fn agrees(&self, geth: &Self, costs: bool) -> bool {
        let own = self.failed && geth.failed;
        let is_counted_down = own && i64::try_from(geth.cost).is_err();
        self.pc == geth.pc
            && self.op == geth.op
            && self.gas == geth.gas
            && self.memory == geth.memory
            && self.depth == geth.depth
            && self.failed == geth.failed
            && self.stack == geth.stack
            && (is_counted_down || !costs || self.cost == geth.cost)
            && (own || self.op == SELFDESTRUCT || self.refund == geth.refund)
    }
}

/// A line of go-ethereum's: an opcode, the end of a call, or the final root.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw<'a> {
    pc: Option<u64>,
    op: Option<u8>,
    gas: Option<&'a str>,
    gas_cost: Option<&'a str>,
    mem_size: Option<u64>,
    depth: Option<u64>,
    refund: Option<u64>,
    stack: Option<Vec<&'a str>>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    state_root: Option<&'a str>,
}

impl Raw<'_> {
    fn line(&self, pc: u64) -> Option<Line> {
        let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let stack = self.stack.iter().flatten();
        let stack: Option<Vec<U256>> = stack
            .map(|word| U256::from_str_radix(word.get(2..)?, 16).ok())
            .collect();
        Some(Line {
            pc,
            op: self.op?,
            gas: number(self.gas?)?,
            cost: number(self.gas_cost?)?,
            memory: self.mem_size?,
            depth: self.depth?,
            refund: self.refund?,
            failed: self.error.is_some(),
            stack: stack?,
        })
    }
}
