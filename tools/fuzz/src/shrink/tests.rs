//! What is found is cut down to what it takes, and no further.

use super::*;
use crate::trace::run;
use niwaki_evm::{Step, Tracer};
use niwaki_primitives::Fork;

const KECCAK256: u8 = 0x20;
const STATICCALL: u8 = 0xfa;

/// Sees whether opcodes run, the second deeper than the first.
#[derive(Default)]
struct Seen {
    first: Option<usize>,
    both: bool,
}

struct Looks(u8, u8, Seen);

impl Tracer for Looks {
    fn step(&mut self, step: &Step<'_>) {
        let Self(first, second, seen) = self;
        if step.opcode() == *first {
            seen.first = Some(step.depth());
        }
        seen.both |= step.opcode() == *second && seen.first.is_some_and(|at| step.depth() >= at);
    }
}

/// As though another machine did something else when `second` runs after `first`.
fn dislikes(case: &Case, first: u8, second: u8) -> Option<String> {
    let mut case = case.clone();
    while !case.transactions.is_empty() {
        let mut looks = Looks(first, second, Seen::default());
        let (_, state) = run(&case, Some(&mut looks));
        if looks.2.both {
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
fn what_takes_one_opcode_is_cut_down_to_it_and_its_operands() {
    let mut shrunk_cases = 0;
    for seed in 0..60 {
        let case = Case::of(seed, Some(Fork::Cancun));
        let differs = |case: &Case| dislikes(case, KECCAK256, KECCAK256);
        let Some(what) = differs(&case) else {
            continue;
        };
        let before = code_bytes(&case);
        let (small, what) = shrink(case, what, &differs);
        assert_eq!(what, "0x20");
        assert!(differs(&small).is_some(), "seed {seed}");
        assert_eq!(small.transactions.len(), 1, "seed {seed}");
        // The opcode need not succeed: that it runs is what is disliked.
        assert_eq!(code_bytes(&small), 1, "seed {seed}, {before} before");
        assert!(small.transactions[0].0.gas_limit() < 70_000, "seed {seed}");
        assert!(small.state.accounts.len() <= 2, "seed {seed}");
        assert!(small.transactions[0].0.value().is_zero(), "seed {seed}");
        shrunk_cases += 1;
    }
    assert!(shrunk_cases > 10, "{shrunk_cases}");
}

#[test]
fn what_takes_a_call_keeps_both_programs() {
    let mut shrunk_cases = 0;
    for seed in 0..150 {
        let case = Case::of(seed, Some(Fork::Osaka));
        let differs = |case: &Case| dislikes(case, STATICCALL, KECCAK256);
        let Some(what) = differs(&case) else {
            continue;
        };
        let (small, _) = shrink(case, what, &differs);
        assert!(differs(&small).is_some(), "seed {seed}");
        assert_eq!(small.transactions.len(), 1, "seed {seed}");
        // Six operands, some of an address or of a larger number.
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
fn a_case_in_which_nothing_can_go_stays_as_it_is() {
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
