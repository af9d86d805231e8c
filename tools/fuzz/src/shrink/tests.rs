//! Shrinking keeps what a difference needs, and no more.

use super::*;
use crate::trace::run;
use niwaki_evm::{Step, Tracer};
use niwaki_primitives::Fork;

const KECCAK256: u8 = 0x20;
const STATICCALL: u8 = 0xfa;

/// Whether two opcodes have run, the second deeper than the first.
#[derive(Default)]
struct Seen {
    first: Option<usize>,
    both: bool,
}

struct OpcodePair(u8, u8, Seen);

impl Tracer for OpcodePair {
    fn step(&mut self, step: &Step<'_>) {
        let Self(first, second, seen) = self;
        if step.opcode() == *first {
            seen.first = Some(step.depth());
        }
        seen.both |= step.opcode() == *second && seen.first.is_some_and(|at| step.depth() >= at);
    }
}

/// A difference if `second` runs after `first`.
fn difference_if_both_run(case: &Case, first: u8, second: u8) -> Option<String> {
    let mut case = case.clone();
    while !case.transactions.is_empty() {
        let mut pair = OpcodePair(first, second, Seen::default());
        let (_, state) = run(&case, Some(&mut pair));
        if pair.2.both {
            return Some(format!("0x{second:02x}"));
        }
        case.state = state;
        case.transactions.remove(0);
    }
    None
}

fn code_bytes(case: &Case) -> usize {
    let accounts = case.state.accounts.values();
    let created = case.transactions.iter();
    accounts.map(|account| account.code.len()).sum::<usize>()
        + created.map(|(tx, _)| tx.input().len()).sum::<usize>()
}

#[test]
fn difference_of_one_opcode_shrinks_to_it_and_its_operands() {
    let mut shrunk_cases = 0;
    for seed in 0..60 {
        let case = Case::of(seed, Some(Fork::Cancun));
        let differs = |case: &Case| difference_if_both_run(case, KECCAK256, KECCAK256);
        let Some(what) = differs(&case) else {
            continue;
        };
        let before = code_bytes(&case);
        let (small, what) = shrink(case, what, &differs);
        assert_eq!(what, "0x20");
        assert!(differs(&small).is_some(), "seed {seed}");
        assert_eq!(small.transactions.len(), 1, "seed {seed}");
        // The opcode need not succeed, only run.
        assert_eq!(code_bytes(&small), 1, "seed {seed}, {before} before");
        assert!(small.transactions[0].0.gas_limit() < 70_000, "seed {seed}");
        assert!(small.state.accounts.len() <= 2, "seed {seed}");
        assert!(small.transactions[0].0.value().is_zero(), "seed {seed}");
        shrunk_cases += 1;
    }
    assert!(shrunk_cases > 10, "{shrunk_cases}");
}

#[test]
fn difference_across_a_call_keeps_both_programs() {
    let mut shrunk_cases = 0;
    for seed in 0..150 {
        let case = Case::of(seed, Some(Fork::Osaka));
        let differs = |case: &Case| difference_if_both_run(case, STATICCALL, KECCAK256);
        let Some(what) = differs(&case) else {
            continue;
        };
        let (small, _) = shrink(case, what, &differs);
        assert!(differs(&small).is_some(), "seed {seed}");
        assert_eq!(small.transactions.len(), 1, "seed {seed}");
        // Six operands, some of them addresses or larger numbers.
        assert!(
            code_bytes(&small) <= 100,
            "seed {seed}: {}",
            code_bytes(&small)
        );
        shrunk_cases += 1;
    }
    assert!(shrunk_cases > 3, "{shrunk_cases}");
}

#[test]
fn minimal_case_is_unchanged() {
    let case = Case::of(5, Some(Fork::Prague));
    let (transactions, accounts) = (case.transactions.len(), case.state.accounts.len());
    let all = |case: &Case| {
        let whole = case.transactions.len() == transactions
            && case.state.accounts.len() == accounts
            && code_bytes(case) > 100;
        whole.then(|| "all of it".to_owned())
    };
    let (small, what) = shrink(case, "all of it".to_owned(), &all);
    assert_eq!(what, "all of it");
    assert!(all(&small).is_some());
    assert!(
        (101..110).contains(&code_bytes(&small)),
        "{}",
        code_bytes(&small)
    );
}
