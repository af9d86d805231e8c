//! A worker or the commit thread that panics.

use super::{CHAIN_ID, block, call, compare, sender, state, with_transactions};
use niwaki_execution::{BlockExecution, Parallelism, RecoveringBlock, apply_body};
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, Fork, StateView, U256};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Reading it panics.
const TRAP: Address = Address::repeat_byte(0xee);

/// A state that panics the first `times` times the trap is read.
struct Trapped {
    state: MemoryState,
    times: AtomicUsize,
}

impl StateView for Trapped {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        if *address == TRAP {
            let left = |times: usize| times.checked_sub(1);
            let was_set = self.times.fetch_update(Relaxed, Relaxed, left);
            assert!(was_set.is_err(), "the trap was read");
        }
        self.state.account(address)
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        self.state.storage(address, slot)
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.state.has_storage(address)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        self.state.code(code_hash)
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.state.block_hash(number)
    }
}

/// Calls that count, each in a slot of its own, and among them one with `input` to the trap.
fn scene(input: Bytes) -> (MemoryState, RecoveringBlock) {
    let mut rng = SmallRng::seed_from_u64(1);
    let (state, block) = (state(&mut rng), block(&mut rng, Fork::Cancun));
    let transactions = (0..40).map(|number| match number {
        30 => call(10, TRAP, input.clone()),
        _ => {
            let word = B256::from(U256::from(number));
            call(number / 3, Address::repeat_byte(0xa0), Bytes::from(word.0))
        }
    });
    let senders = (0..40).map(|number| sender(number % 3));
    let block = with_transactions(&block, transactions, senders);
    (state, block)
}

/// Without input the transaction is left to the commit thread, which panics.
#[test]
fn a_panic_of_the_commit_thread_ends_the_workers_and_the_next_block_is_executed() {
    let (sender, panics) = channel();
    std::thread::spawn(move || {
        let (state, block) = scene(Bytes::new());
        let trapped = Trapped {
            state,
            times: AtomicUsize::new(usize::MAX),
        };
        let spec = ChainSpec::single(CHAIN_ID, Fork::Cancun);
        let run = || {
            let mut no_root = |_: &_| Ok(B256::ZERO);
            let ran = BlockExecution {
                parallelism: Parallelism::of(3),
                ..BlockExecution::new(&spec, &block, &trapped)
            }
            .run(&mut no_root);
            ran.map(|_| ())
        };
        sender.send(catch_unwind(AssertUnwindSafe(run)).is_err())
    });
    // It takes this long only if the workers never end.
    let panicked = panics.recv_timeout(Duration::from_secs(100));
    assert_eq!(panicked, Ok(true), "it panics, and all threads end");

    let (state, block) = scene(Bytes::new());
    let stats = compare("the same threads", Fork::Cancun, &state, &block);
    assert!(stats.validated > 0, "{stats:?}");
}

#[test]
fn a_panic_of_a_worker_is_counted_and_changes_no_result() {
    let (state, block) = scene(Bytes::from_static(&[1]));
    let spec = ChainSpec::single(CHAIN_ID, Fork::Cancun);
    let mut no_root = |_: &_| Ok(B256::ZERO);
    let serial = apply_body(&spec, &block, &state, &mut no_root).unwrap();
    let trapped = Trapped {
        state,
        times: AtomicUsize::new(1),
    };
    let parallelism = Parallelism {
        speculate_all: true,
        ..Parallelism::of(1)
    };
    let ran = BlockExecution {
        parallelism,
        ..BlockExecution::new(&spec, &block, &trapped)
    }
    .run(&mut no_root);
    let (executed, stats) = ran.unwrap();
    assert_eq!(executed, serial);
    assert_eq!(
        (stats.panicked, stats.validated, stats.reexecuted),
        (1, 39, 1)
    );
}
