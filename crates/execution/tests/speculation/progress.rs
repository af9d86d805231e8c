//! An observer gets the receipts and the changed values of a block, part by part, the same on any number of threads.

use super::{CHAIN_ID, block, state};
use niwaki_execution::{
    BlockExecution, BlockObserver, BlockProgress, Executor, Parallelism, RecoveringBlock,
    apply_body,
};
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, DirtyState, Fault, Fork, Receipt, StateDiff, Typed2718,
    U256,
};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::sync::Arc;

const PARTS: u32 = BlockProgress::PARTS;

/// The receipts and the diff at each call of the observer.
type Calls = Vec<(Vec<Receipt>, StateDiff)>;

/// An account and its slots, in the parent state and now; whether its earlier storage is gone.
type Change = (
    Option<Account>,
    Option<Account>,
    bool,
    BTreeMap<U256, (U256, U256)>,
);

/// The changes of all calls so far.
#[derive(Default)]
struct Whole(BTreeMap<Address, Change>);

impl Whole {
    fn add(&mut self, part: DirtyState) {
        assert!(part.accounts.is_sorted_by(|a, b| a.0 < b.0));
        for (address, change) in part.accounts {
            assert!(change.slots.is_sorted_by(|a, b| a.0 < b.0));
            let own = self.0.entry(address).or_default();
            (own.0, own.1, own.2) = (change.prior, change.new, change.storage_wiped);
            let slots = change.slots.into_iter();
            own.3
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

/// The expected calls: from a sixteenth of the gas on, once for each part.
fn expected(spec: &ChainSpec, block: &RecoveringBlock, state: &MemoryState) -> Calls {
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

/// Records what it is called with.
#[derive(Default)]
struct Recorder {
    calls: Calls,
    whole: Whole,
    expected: usize,
}

impl BlockObserver for Recorder {
    fn intermediate_root(&mut self, _: &StateDiff) -> Result<B256, Fault> {
        Ok(B256::ZERO)
    }

    fn progress(&mut self, progress: BlockProgress<'_>) {
        assert_eq!(
            progress.is_complete(),
            self.calls.len() + 1 == self.expected
        );
        self.whole.add((progress.drain_dirty)());
        self.calls
            .push((progress.receipts.to_vec(), self.whole.diff()));
    }
}

fn compare(fork: Fork) {
    let spec = ChainSpec::single(CHAIN_ID, fork);
    let (mut calls_in_all, mut wiped) = (0, 0);
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (state, mut block) = (state(&mut rng), block(&mut rng, fork));
        let mut no_root = |_: &_| Ok(B256::ZERO);
        let Ok(whole) = apply_body(&spec, &block, &state, &mut no_root) else {
            continue;
        };
        Arc::make_mut(&mut block.block).header.gas_used = whole.gas_used;
        let mut expected = expected(&spec, &block, &state);
        let mut all = whole.diff.clone();
        all.codes.clear();
        expected.push((whole.receipts.clone(), all));
        for threads in [1, 2, 8] {
            let mut recorder = Recorder {
                expected: expected.len(),
                ..Recorder::default()
            };
            let execution = BlockExecution {
                parallelism: Parallelism::of(threads),
                ..BlockExecution::new(&spec, &block, &state)
            };
            let result = execution.run(&mut recorder);
            let (executed, _) = result.expect("the block is valid");
            assert_eq!(executed, whole, "seed {seed}, {threads} threads");
            assert_eq!(recorder.calls, expected, "seed {seed}, {threads} threads");
        }
        calls_in_all += expected.len();
        let changed = expected.iter().flat_map(|(_, diff)| &diff.accounts);
        wiped += changed.filter(|(_, change)| change.storage_wiped).count();
    }
    assert!(calls_in_all > 160, "{calls_in_all}");
    assert!(wiped > 0, "no account has lost its storage");
}

#[test]
fn an_observer_is_called_from_a_sixteenth_of_the_gas_on_with_the_changes_so_far() {
    compare(Fork::Shanghai);
    compare(Fork::Osaka);
    compare(Fork::Amsterdam);
}
