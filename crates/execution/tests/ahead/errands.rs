//! Who runs transactions ahead runs errands too, and stays until the caller is done with the block, however that ends.

use super::{CHAIN_ID, block, state};
use niwaki_execution::{
    Errands, ExecuteError, Executed, Meanwhile, Parallelism, Shares, apply_body, apply_body_then,
};
use niwaki_primitives::{B256, Fork, RecoveredBlock};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Errands that come now and then, and whether the caller is done.
#[derive(Default)]
struct Now {
    asked: AtomicUsize,
    asked_for_lesser: AtomicUsize,
    stay: AtomicUsize,
    is_done: AtomicBool,
}

impl Errands for Now {
    fn run(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) % 3 == 1
    }

    fn run_lesser(&self) -> bool {
        self.asked_for_lesser.fetch_add(1, Ordering::Relaxed) % 3 == 1
    }

    fn run_rest(&self) {
        self.stay.fetch_add(1, Ordering::Relaxed);
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
    (block, state): (&RecoveredBlock, &MemoryState),
    (threads, errands): (usize, &Now),
    then: impl FnOnce(),
) -> Result<(Executed, Shares), ExecuteError> {
    let spec = ChainSpec::single(CHAIN_ID, Fork::Osaka);
    let mut no_root = |_: &_| Ok(B256::ZERO);
    let meanwhile = Meanwhile::new(&mut no_root).with_errands(Some(errands));
    let done = Done(&errands.is_done);
    let then = |executed| {
        then();
        drop(done);
        executed
    };
    let with = (
        state as &(dyn niwaki_primitives::StateView + Sync),
        meanwhile,
    );
    apply_body_then(Parallelism::of(threads), &spec, (block, None), with, then)
}

#[test]
fn they_are_run_beside_the_block_and_change_nothing() {
    let spec = ChainSpec::single(CHAIN_ID, Fork::Osaka);
    let (mut asked, mut valid) = (0, 0);
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (state, mut block) = (state(&mut rng), block(&mut rng, Fork::Osaka));
        let mut no_root = |_: &_| Ok(B256::ZERO);
        let Ok(whole) = apply_body(&spec, &block, &state, &mut no_root) else {
            continue;
        };
        block.block.header.gas_used = whole.gas_used;
        valid += 1;
        for threads in [1, 2, 3, 8] {
            let errands = Now::default();
            let was_done = AtomicBool::new(true);
            let then =
                || was_done.store(errands.is_done.load(Ordering::Relaxed), Ordering::Relaxed);
            let ran = run((&block, &state), (threads, &errands), then);
            assert_eq!(ran.unwrap().0, whole, "seed {seed}, {threads} threads");
            assert!(!was_done.into_inner());
            let stayed = errands.stay.into_inner();
            let helpers = (block.block.body.transactions.len() > 1).then_some(threads - 1);
            assert_eq!(
                stayed,
                helpers.unwrap_or(0),
                "seed {seed}, {threads} threads"
            );
            asked += errands
                .asked
                .into_inner()
                .min(errands.asked_for_lesser.into_inner());
        }
    }
    assert!(valid > 10 && asked > 0, "{valid} {asked}");
}

#[test]
fn who_stays_leaves_where_the_block_is_refused_or_the_caller_panics() {
    let mut rng = SmallRng::seed_from_u64(1);
    let (state, block) = (state(&mut rng), block(&mut rng, Fork::Osaka));
    for threads in [1, 2, 8] {
        // The last transaction comes a second time.
        let mut refused = block.clone();
        let transactions = &mut refused.block.body.transactions;
        transactions.push(transactions.last().unwrap().clone());
        let senders: Vec<_> = block.senders.known().collect();
        let last = *senders.last().unwrap();
        refused.senders = senders.into_iter().chain([last]).collect();
        let errands = Now::default();
        let ran = run((&refused, &state), (threads, &errands), || {
            panic!("refused")
        });
        assert!(ran.is_err());
        assert!(errands.is_done.into_inner());

        let errands = Now::default();
        let panics = || {
            run((&block, &state), (threads, &errands), || {
                panic!("as it should")
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(errands.is_done.into_inner());
    }
}
