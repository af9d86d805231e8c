//! Signs a planned block: nonces from the state, gas from what a transaction uses.
//!
//! What a transaction uses is found by running it with ample gas. Some get a limit with which a chosen opcode is
//! reached with gas close to its price, or to another mark.

use super::{
    BlockCase, Plan,
    draft::{GasLimit, Mark, PLENTY},
};
use crate::case::CHAIN_ID;
use niwaki_evm::{Step, Tracer};
use niwaki_execution::Executor;
use niwaki_primitives::{Address, Header, TxEnvelope};
use niwaki_rules::ChainSpec;

/// Calls forward all but one 64th, so a mark within a call takes several attempts.
const ATTEMPTS: usize = 4;

type Signed = (TxEnvelope, Address);

impl Plan {
    /// Signs the transactions, each with nonces and gas from the state before it.
    pub(crate) fn sign(&self) -> BlockCase {
        let spec = ChainSpec::single(CHAIN_ID, self.cast.fork);
        let mut executor = Executor::new(&spec, &self.header, &self.state);
        let begun = executor.begin_block(&spec, &self.header);
        begun.expect("memory does not fail");
        let mut executed: Vec<Signed> = Vec::new();
        let mut transactions = Vec::new();
        for draft in &self.drafts {
            let diff = executor.diff();
            let changed = |of: &Address| diff.accounts.iter().find(|(address, _)| address == of);
            let nonce_of = |address: &Address| match changed(address) {
                Some((_, change)) => change.new.map_or(0, |account| account.nonce),
                None => self.state.accounts.get(address).map_or(0, |a| a.nonce),
            };
            let sender = self.cast.keys[draft.from].address;
            let sign = |gas| (draft.sign(&self.cast, gas, &nonce_of), sender);
            let try_with = |gas| self.run_after(&spec, &executed, &sign(gas));
            let tx = sign(gas_limit(draft.gas, try_with));
            if executor.process_transaction(&tx.0, sender, None).is_ok() {
                executed.push(tx.clone());
            }
            transactions.push(tx);
        }
        BlockCase {
            fork: self.cast.fork,
            header: self.header.clone(),
            state: self.state.clone(),
            transactions,
            withdrawals: self.withdrawals.clone(),
        }
    }

    /// Gas that `tx` uses after `executed`, before refunds, and the opcodes that it reaches.
    fn run_after(&self, spec: &ChainSpec, executed: &[Signed], tx: &Signed) -> (u64, Steps) {
        let header = Header {
            gas_limit: 1 << 40,
            ..self.header.clone()
        };
        let mut executor = Executor::new(spec, &header, &self.state);
        let begun = executor.begin_block(spec, &header);
        begun.expect("memory does not fail");
        for (tx, sender) in executed {
            drop(executor.process_transaction(tx, *sender, None));
        }
        let mut steps = Steps::default();
        let result = executor.process_transaction(&tx.0, tx.1, Some(&mut steps));
        let needed = result.map_or(100_000, |result| result.gas_before_refund);
        (needed, steps)
    }
}

fn gas_limit(wanted: GasLimit, try_with: impl Fn(u64) -> (u64, Steps)) -> u64 {
    match wanted {
        GasLimit::Is(gas) => gas,
        GasLimit::NeededAnd(offset) => try_with(PLENTY).0.saturating_add_signed(offset),
        GasLimit::Percent(percent) => try_with(PLENTY).0 * percent / 100,
        GasLimit::AtOpcode { which, mark } => {
            let (needed, steps) = try_with(PLENTY);
            let Some(at) = which.checked_rem(steps.reached.len()) else {
                return needed;
            };
            let mark = match mark {
                Mark::Price(offset) => steps.reached[at].price + offset,
                Mark::Gas(gas) => gas,
            };
            find_gas(PLENTY, at, mark, steps, try_with)
        }
    }
}

/// The gas limit with which opcode `at` is reached with `mark` gas left.
fn find_gas(
    mut gas: u64,
    at: usize,
    mark: i64,
    mut steps: Steps,
    try_with: impl Fn(u64) -> (u64, Steps),
) -> u64 {
    for _ in 0..ATTEMPTS {
        let Some(reached) = steps.reached.get(at) else {
            break;
        };
        let off = mark - reached.gas;
        if off == 0 {
            break;
        }
        gas = gas.saturating_add_signed(off).min(PLENTY);
        steps = try_with(gas).1;
    }
    gas
}

/// A state-accessing opcode, creation or call that was reached.
#[derive(Clone, Copy, Debug)]
struct Reached {
    /// Gas left before it.
    gas: i64,
    /// Its cost without the callee's gas.
    price: i64,
}

/// Records the opcodes that a transaction reaches.
#[derive(Debug, Default)]
struct Steps {
    reached: Vec<Reached>,
    pending: Option<i64>,
}

impl Tracer for Steps {
    fn step(&mut self, step: &Step<'_>) {
        let is_recorded = matches!(
            step.opcode(),
            0x31 | 0x3b | 0x3c | 0x3f | 0x54 | 0x55 | 0xf0..=0xf2 | 0xf4 | 0xf5 | 0xfa | 0xff
        );
        self.pending = is_recorded.then(|| step.gas());
    }

    fn step_end(&mut self, gas_left: i64, forwarded: i64) {
        if let Some(gas) = self.pending.take() {
            let price = gas - gas_left.max(0) - forwarded;
            self.reached.push(Reached { gas, price });
        }
    }
}
