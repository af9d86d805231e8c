//! Workers do idle work, and drain it until the caller is done with the block, however that ends.

use super::{CHAIN_ID, block, state, with_transactions};
use niwaki_execution::{
    BlockExecution, ExecuteError, ExecutedBlock, IdleWork, Parallelism, RecoveringBlock, TxStats,
    apply_body,
};
use niwaki_primitives::{B256, Fork};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Work that is there at every third call, and whether the caller is done.
#[derive(Default)]
struct Occasional {
    calls: AtomicUsize,
    low_priority_calls: AtomicUsize,
    drains: AtomicUsize,
    is_done: AtomicBool,
}

impl IdleWork for Occasional {
    fn run(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) % 3 == 1
    }

    fn run_low_priority(&self) -> bool {
        self.low_priority_calls.fetch_add(1, Ordering::Relaxed) % 3 == 1
    }

    fn drain(&self) {
        self.drains.fetch_add(1, Ordering::Relaxed);
        while !self.is_done.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

/// The caller is done when this is dropped.
struct Done<'n>(&'n AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(
    block: &RecoveringBlock,
    state: &MemoryState,
    threads: usize,
    idle: &Occasional,
    then: impl FnOnce(),
) -> Result<(ExecutedBlock, TxStats), ExecuteError> {
    let spec = ChainSpec::single(CHAIN_ID, Fork::Osaka);
    let mut no_root = |_: &_| Ok(B256::ZERO);
    let done = Done(&idle.is_done);
    let then = |executed| {
        then();
        drop(done);
        executed
    };
    let execution = BlockExecution {
        parallelism: Parallelism::of(threads),
        idle_work: Some(idle),
        ..BlockExecution::new(&spec, block, state)
    };
    execution.run_then(&mut no_root, then)
}

#[test]
fn idle_work_of_any_number_of_workers_changes_no_result() {
    let spec = ChainSpec::single(CHAIN_ID, Fork::Osaka);
    let (mut calls, mut valid) = (0, 0);
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (state, mut block) = (state(&mut rng), block(&mut rng, Fork::Osaka));
        let mut no_root = |_: &_| Ok(B256::ZERO);
        let Ok(whole) = apply_body(&spec, &block, &state, &mut no_root) else {
            continue;
        };
        Arc::make_mut(&mut block.block).header.gas_used = whole.gas_used;
        valid += 1;
        for threads in [1, 2, 3, 8] {
            let idle = Occasional::default();
            let was_done = AtomicBool::new(true);
            let then = || was_done.store(idle.is_done.load(Ordering::Relaxed), Ordering::Relaxed);
            let ran = run(&block, &state, threads, &idle, then);
            assert_eq!(ran.unwrap().0, whole, "seed {seed}, {threads} threads");
            assert!(!was_done.into_inner());
            let drains = idle.drains.into_inner();
            let workers = (block.block.body.transactions.len() > 1).then_some(threads - 1);
            assert_eq!(
                drains,
                workers.unwrap_or(0),
                "seed {seed}, {threads} threads"
            );
            calls += idle
                .calls
                .into_inner()
                .min(idle.low_priority_calls.into_inner());
        }
    }
    assert!(valid > 10 && calls > 0, "{valid} {calls}");
}

#[test]
fn draining_workers_return_when_the_block_is_invalid_or_the_caller_panics() {
    let mut rng = SmallRng::seed_from_u64(1);
    let (state, block) = (state(&mut rng), block(&mut rng, Fork::Osaka));
    for threads in [1, 2, 8] {
        // The last transaction comes a second time.
        let mut transactions = block.block.body.transactions.clone();
        transactions.push(transactions.last().unwrap().clone());
        let mut senders: Vec<_> = block.senders.known().collect();
        senders.push(*senders.last().unwrap());
        let refused = with_transactions(&block, transactions, senders);
        let idle = Occasional::default();
        let ran = run(&refused, &state, threads, &idle, || panic!("refused"));
        assert!(ran.is_err());
        assert!(idle.is_done.into_inner());

        let idle = Occasional::default();
        let panics = || run(&block, &state, threads, &idle, || panic!("as it should"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(idle.is_done.into_inner());
    }
}
