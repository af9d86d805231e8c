//! What is told while a block is executed are its receipts and what has changed by then, part by part, on
//! however many threads it runs.

use super::{CHAIN_ID, block, state};
use niwaki_execution::{Executor, Meanwhile, Parallelism, SoFar, apply_body, apply_body_with};
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Fork, Receipt, RecoveredBlock, StateDiff, Typed2718, U256,
};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;

/// Into how many parts the gas of a block is divided.
const PARTS: u32 = 64;

/// What is told when so many parts of the gas are used: the receipts by then, and what has changed.
type Told = Vec<(Vec<Receipt>, StateDiff)>;

/// An account and its slots, in the parent state and now; whether its storage before is gone.
type Held = (
    Option<Account>,
    Option<Account>,
    bool,
    BTreeMap<U256, (U256, U256)>,
);

/// All parts that were told so far, put together.
#[derive(Default)]
struct Whole(BTreeMap<Address, Held>);

impl Whole {
    fn add(&mut self, part: StateDiff) {
        assert!(part.accounts.is_sorted_by(|a, b| a.0 < b.0));
        for (address, change) in part.accounts {
            assert!(change.slots.is_sorted_by(|a, b| a.0 < b.0));
            let held = self.0.entry(address).or_default();
            (held.0, held.1, held.2) = (change.prior, change.new, change.storage_wiped);
            let slots = change.slots.into_iter();
            held.3
                .extend(slots.map(|(key, slot)| (key, (slot.prior, slot.new))));
        }
    }

    /// What a diff would say, without codes.
    fn diff(&self) -> StateDiff {
        let mut diff = StateDiff::default();
        for (address, (prior, new, storage_wiped, slots)) in &self.0 {
            let differs = |(_, (prior, new)): &(_, &(U256, U256))| match storage_wiped {
                true => !new.is_zero(),
                false => prior != new,
            };
            let slots = slots.iter().filter(differs);
            let slots = slots.map(|(key, (prior, new))| {
                let (prior, new) = (*prior, *new);
                (*key, niwaki_primitives::SlotDiff { prior, new })
            });
            let change = AccountDiff {
                prior: *prior,
                new: *new,
                storage_wiped: *storage_wiped,
                slots: slots.collect(),
            };
            if prior != new || !change.slots.is_empty() || *storage_wiped {
                diff.accounts.push((*address, change));
            }
        }
        diff
    }
}

/// What is to be told, from a sixteenth on, of each part once.
fn expected(spec: &ChainSpec, block: &RecoveredBlock, state: &MemoryState) -> Told {
    let header = &block.block.header;
    let mut executor = Executor::new(spec, header, state);
    executor
        .begin_block(spec, header)
        .expect("a state in memory");
    let (mut expected, mut next) = (Vec::new(), PARTS / 16);
    let mut receipts = Vec::new();
    let senders = block.senders.known();
    for (tx, sender) in block.block.body.transactions.iter().zip(senders) {
        let result = executor
            .process_transaction(tx, sender, None)
            .expect("the block is valid");
        receipts.push(executor.receipt(tx.ty(), result, None));
        let used = executor.used().header_gas(executor.rules().fork);
        let part = used * u64::from(PARTS) / header.gas_used;
        let part = u32::try_from(part).expect("at most all");
        if part >= next && part < PARTS {
            let mut diff = executor.diff();
            diff.codes.clear();
            expected.push((receipts.clone(), diff));
            next = part + 1;
        }
    }
    expected
}

fn compare(fork: Fork) {
    let spec = ChainSpec::single(CHAIN_ID, fork);
    let (mut told_in_all, mut wiped) = (0, 0);
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (state, mut block) = (state(&mut rng), block(&mut rng, fork));
        let mut no_root = |_: &_| Ok(B256::ZERO);
        let Ok(whole) = apply_body(&spec, &block, &state, &mut no_root) else {
            continue;
        };
        block.block.header.gas_used = whole.gas_used;
        let mut expected = expected(&spec, &block, &state);
        let mut all = whole.diff.clone();
        all.codes.clear();
        expected.push((whole.receipts.clone(), all));
        for threads in [1, 2, 8] {
            let (mut told, mut parts) = (Vec::new(), Whole::default());
            let mut no_root = |_: &_| Ok(B256::ZERO);
            let tell = |so_far: SoFar<'_>| {
                assert_eq!(so_far.is_all(), told.len() + 1 == expected.len());
                parts.add((so_far.changed)());
                told.push((so_far.receipts.to_vec(), parts.diff()));
            };
            let meanwhile = Meanwhile::new(&mut no_root).calling(Some(Box::new(tell)));
            let parallelism = Parallelism::of(threads);
            let ran = apply_body_with(parallelism, &spec, (&block, None), &state, meanwhile);
            let (executed, _) = ran.expect("the block is valid");
            assert_eq!(executed, whole, "seed {seed}, {threads} threads");
            assert_eq!(told, expected, "seed {seed}, {threads} threads");
        }
        told_in_all += expected.len();
        let changed = expected.iter().flat_map(|(_, diff)| &diff.accounts);
        wiped += changed.filter(|(_, change)| change.storage_wiped).count();
    }
    assert!(told_in_all > 160, "{told_in_all}");
    assert!(wiped > 0, "no account has lost its storage");
}

#[test]
fn changes_are_told_from_a_sixteenth_of_the_gas_on() {
    compare(Fork::Shanghai);
    compare(Fork::Osaka);
    compare(Fork::Amsterdam);
}
