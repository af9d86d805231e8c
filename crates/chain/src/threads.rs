//! On how many threads a block is executed and its senders are recovered.

use crate::Chain;
use niwaki_execution::Parallelism;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The settings, and the choice for the current block.
pub(crate) struct BlockThreads {
    /// Threads for the transactions of a block.
    transactions: AtomicUsize,
    /// Whether a block gets fewer while other processes use the processors.
    yields_to_others: AtomicBool,
    /// Threads for the transactions of the current block.
    current: AtomicUsize,
    senders: AtomicUsize,
}

impl Default for BlockThreads {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            transactions: AtomicUsize::new(1),
            yields_to_others: AtomicBool::new(false),
            current: AtomicUsize::new(1),
            senders: AtomicUsize::new(processors),
        }
    }
}

impl Chain {
    /// Executes the transactions of a block on up to `threads` threads, where the block is worth it; sequentially until
    /// this is called.
    pub fn set_transaction_threads(&self, threads: usize) {
        let own = &self.threads;
        own.yields_to_others.store(false, Ordering::Relaxed);
        own.transactions.store(threads.max(1), Ordering::Relaxed);
        own.current.store(threads.max(1), Ordering::Relaxed);
    }

    /// As [`Chain::set_transaction_threads`], but a block is executed on no more threads than there are free processors
    /// when it comes, the calling thread's included. While another process uses the second of two processors, a second
    /// thread costs more than it gains (docs/performance/pipeline.md).
    pub fn set_max_transaction_threads(&self, threads: usize) {
        self.set_transaction_threads(threads);
        self.threads.yields_to_others.store(true, Ordering::Relaxed);
    }

    /// Chooses the threads of the block that is about to be executed.
    pub(crate) fn choose_block_threads(&self) {
        let own = &self.threads;
        let max = own.transactions.load(Ordering::Relaxed);
        let yields = max > 1 && own.yields_to_others.load(Ordering::Relaxed);
        let free = yields.then(niwaki_threads::free_processors).flatten();
        let threads = free.map_or(max, |free| max.min(free.saturating_add(1)));
        own.current.store(threads, Ordering::Relaxed);
    }

    /// Recovers senders on up to `threads` threads, the commit thread included; on as many as there are processors
    /// until this is called. With one, no root is computed in parallel with the execution either.
    pub fn set_sender_threads(&self, threads: usize) {
        self.threads
            .senders
            .store(threads.max(1), Ordering::Relaxed);
    }

    pub(crate) fn sender_threads(&self) -> usize {
        self.threads.senders.load(Ordering::Relaxed)
    }

    pub(crate) fn parallelism(&self) -> Parallelism {
        Parallelism {
            clock: self.tuning().clock,
            ..Parallelism::of(self.threads.current.load(Ordering::Relaxed))
        }
    }
}
