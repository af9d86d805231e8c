//! The transactions of a block on several threads, with the result of executing them one by one (optimistic
//! concurrency, as Block-STM; and by block access list, EIP-7928).
//!
//! The calling thread is the commit thread: it commits the transactions in the order of the block. Workers claim
//! transactions ahead of it, execute each speculatively on the state committed by then, and store what it read and
//! wrote ([`ReadWriteSet`]). When the commit thread comes to a transaction, it
//!
//! 1. executes it, if no worker has claimed it ("sequential");
//! 2. waits for the worker that has claimed it, executing another one speculatively meanwhile;
//! 3. validates the result: if each value that was read is still the value, the writes are applied ("validated"); otherwise
//!    it executes the transaction again, there and then ("reexecuted"). Unlike in Block-STM, no transaction is executed a third
//!    time and no thread but the commit thread decides anything.
//!
//! ```text
//! commit thread   tx 0 sequential | tx 1 validate, apply | tx 2 validate: read A, which tx 1 wrote; reexecute | ..
//! worker          tx 1 (state after nothing)   tx 2 (state after nothing)   tx 3 (state after tx 0) ..
//! ```
//!
//! With a block access list the workers know the values before each transaction, so what they execute is valid unless
//! the list is wrong: one invalid result ends speculation. The list decides nothing.
//!
//! What depends on the order of the block (its gas, nonces, whether the sender can pay) is checked by the commit thread
//! alone. Anything else that goes wrong in a speculation is not an error: the commit thread executes the transaction.
//!
//! | file | what it is |
//! |---|---|
//! | `scheduler` | what the threads share, and the loop of a worker |
//! | `commit` | the loop of the commit thread |
//! | `tx_slots` | which thread executes which transaction |
//! | `speculative_base` | the state that workers execute on: one of the next two |
//! | `latest_view` | what is committed so far |
//! | `bal_view` | what the access list claims |
//! | `append_log` | how committed values reach the workers |
//! | `threshold` | whether a block is worth waking workers |
//! | `timeline`, `dependencies` | measurements |
//! | `sync` | types and constants that the tests of interleavings replace |

mod append_log;
mod bal_view;
mod commit;
mod dependencies;
mod latest_view;
mod scheduler;
mod speculative_base;
mod sync;
mod threshold;
mod timeline;
mod tx_slots;

pub(crate) use bal_view::Bal;
pub use dependencies::{TxDependencies, tx_dependencies};
pub(crate) use latest_view::CommittedState;
use niwaki_primitives::{Block, Fork};
use niwaki_rules::ChainSpec;
use niwaki_threads::WorkerPool;
pub(crate) use scheduler::Scheduler;
pub(crate) use speculative_base::SpeculativeBase;
use std::sync::Arc;
pub use timeline::{Span, Step};

/// The constants that decide what is speculated on, and when.
pub mod tuning {
    pub use super::scheduler::{HEAVY_GAS, MIN_WASTE_GAS, TRANSFER_GAS};
    pub use super::sync::{HEAD_START, SPECULATION_WINDOW};
    pub use super::threshold::{CLOCK_CHECK_GAS, MIN_REMAINING_NS, MIN_SEQUENTIAL_NS};
}

/// On how many threads transactions are executed.
#[derive(Clone, Copy, Debug)]
pub struct Parallelism {
    /// Threads, the commit thread included.
    pub threads: usize,
    /// A monotonic clock, ns: with it, workers are woken once the rest of a block is expected to take long enough;
    /// without, before the first transaction.
    pub clock: Option<fn() -> u64>,
    /// Executes every transaction speculatively before the first is committed, as if there were more threads than
    /// transactions: for tests.
    pub speculate_all: bool,
    /// Records what each thread does, and when, if there is a clock; then every block is executed this way.
    pub record_spans: bool,
}

impl Parallelism {
    /// One transaction after the other, on the calling thread.
    pub const SEQUENTIAL: Self = Self::of(1);

    /// Up to `threads` threads for every block.
    pub const fn of(threads: usize) -> Self {
        Self {
            threads,
            clock: None,
            speculate_all: false,
            record_spans: false,
        }
    }

    /// Itself, if the transactions of the block may be executed on several threads.
    pub(crate) fn for_block(self, spec: &ChainSpec, block: &Block) -> Option<Self> {
        // Receipts before Byzantium hold the state root after each transaction.
        let may_be_parallel = spec.fork_of(&block.header) >= Fork::Byzantium
            && block.body.transactions.len() > 1
            && (self.threads > 1 || self.speculate_all || self.record_spans);
        may_be_parallel.then_some(self)
    }
}

/// How the transactions of a block were executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxStats {
    /// Executed speculatively, and valid.
    pub validated: usize,
    /// Executed speculatively, and again.
    pub reexecuted: usize,
    /// Executed by the commit thread alone.
    pub sequential: usize,
    /// Speculations that panicked: a defect, whose transaction was executed again.
    pub panicked: usize,
    /// What each thread did, if that was recorded.
    pub spans: Vec<Span>,
    /// What the clock said when the last transaction was committed, if there is a clock.
    pub ended: Option<u64>,
}

/// The threads that execute transactions speculatively, and recover senders before that.
pub(crate) fn worker_pool(threads: usize) -> Option<Arc<WorkerPool>> {
    WorkerPool::named("ahead", threads)
}
