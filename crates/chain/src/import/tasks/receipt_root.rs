//! The root of a block's receipts and the bloom of their logs, made while the block is executed.
//!
//! The commit thread hands over receipts in batches; a thread of the pool, a worker or the commit thread itself adds them to the
//! trie ([`Runner`]). At the end the missing ones are added in parallel with the state root.

use niwaki_execution::receipt_blooms;
use niwaki_primitives::{B256, Bloom, Receipt};
use niwaki_threads::WorkerPool;
use niwaki_trie::OrderedTrie;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a header holds of receipts.
#[derive(Debug, Default)]
pub struct Receipts {
    trie: OrderedTrie,
    logs_bloom: Bloom,
}

impl Receipts {
    /// Of all receipts of a block.
    pub fn of(receipts: &[Receipt]) -> Self {
        let mut own = Self::default();
        own.extend(receipts);
        own
    }

    /// Appends receipts.
    fn extend(&mut self, receipts: &[Receipt]) {
        let blooms = receipt_blooms(receipts);
        self.logs_bloom = blooms
            .iter()
            .fold(self.logs_bloom, |all, bloom| all | *bloom);
        let both: Vec<_> = receipts.iter().zip(&blooms).collect();
        self.trie.extend(&both, |(receipt, bloom), out| {
            receipt.encode_2718_with(bloom, out);
        });
    }

    /// The root of their trie.
    ///
    /// Spec: Yellow Paper, equation 33; EIP-2718.
    pub fn root(&self) -> B256 {
        self.trie.root()
    }

    /// The bloom of all their logs.
    pub fn logs_bloom(&self) -> Bloom {
        self.logs_bloom
    }
}

/// Which thread adds receipts to the trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// A thread of its own.
    Pool,
    /// A worker, as idle work.
    Worker,
    /// The commit thread, because the workers have too much to do.
    CommitThread,
}

/// The trie so far, and the receipts that wait for it.
#[derive(Debug, Default)]
pub(crate) struct ReceiptRootTask {
    receipts: Mutex<Receipts>,
    pending: Mutex<Vec<Receipt>>,
}

impl ReceiptRootTask {
    fn push(&self, receipts: &[Receipt]) {
        if let Ok(mut pending) = self.pending.lock() {
            pending.extend_from_slice(receipts);
        }
    }

    /// Adds what waits, unless another thread does. Returns whether there was anything. After a panic nothing is added any more.
    pub(crate) fn add_pending(&self) -> bool {
        let receipts = self.receipts.try_lock();
        receipts.is_ok_and(|receipts| self.add_to(receipts))
    }

    /// Adds what waits, after any other thread that does.
    fn add_pending_in_order(&self) {
        if let Ok(receipts) = self.receipts.lock() {
            self.add_to(receipts);
        }
    }

    fn add_to(&self, mut receipts: MutexGuard<'_, Receipts>) -> bool {
        // The guard is dropped in the closure, so that a panic poisons the lock.
        let add = move || {
            let batch = self
                .pending
                .lock()
                .map(|mut batch| std::mem::take(&mut *batch));
            let batch = batch.unwrap_or_default();
            receipts.extend(&batch);
            !batch.is_empty()
        };
        catch_unwind(AssertUnwindSafe(add)).unwrap_or(false)
    }
}

/// The commit thread's side of the task.
#[derive(Debug, Default)]
pub(crate) struct ReceiptRootBuilder {
    /// `None`: all receipts are added at the end.
    pool: Option<Arc<WorkerPool>>,
    task: Arc<ReceiptRootTask>,
    /// Receipts worth handing over.
    batch: usize,
    /// How many receipts were handed over.
    handed_over: usize,
    /// Whether a worker or the commit thread adds them.
    is_shared: bool,
}

impl ReceiptRootBuilder {
    /// For a block whose execution takes long enough; `batch` receipts are worth handing over.
    pub(crate) fn new(batch: usize) -> Self {
        Self {
            pool: WorkerPool::named("receipts", 1),
            batch,
            ..Self::default()
        }
    }

    /// The task, for workers to run.
    pub(crate) fn task(&self) -> Arc<ReceiptRootTask> {
        Arc::clone(&self.task)
    }

    /// Hands over the new ones among the block's `receipts` so far, if they are a batch and those before are added.
    pub(crate) fn progress(&mut self, receipts: &[Receipt], runner: Runner) {
        self.is_shared = runner != Runner::Pool;
        let Some(pool) = &self.pool else {
            return;
        };
        // Not while a thread adds some, nor after a panic.
        let Ok(added) = self.task.receipts.try_lock() else {
            return;
        };
        let added_count = added.trie.len();
        drop(added);
        if added_count == self.handed_over {
            let new = receipts.get(self.handed_over..).unwrap_or_default();
            if new.len() < self.batch {
                return;
            }
            self.handed_over = receipts.len();
            self.task.push(new);
        }
        match runner {
            Runner::CommitThread => {
                self.task.add_pending();
            }
            Runner::Worker => {}
            Runner::Pool => {
                let task = Arc::clone(&self.task);
                pool.spawn(move || task.add_pending_in_order());
            }
        }
    }

    /// Adds the rest of the block's `receipts` while the calling thread does `work`.
    pub(crate) fn finish_while<T>(
        self,
        receipts: &[Receipt],
        work: impl FnOnce() -> T,
    ) -> (Receipts, T) {
        let task = self.task;
        let finish = || {
            // What a panic has left is not used.
            let added = task.receipts.lock();
            let added = added.map(|mut added| std::mem::take(&mut *added));
            let mut added = added.unwrap_or_default();
            if let Ok(mut pending) = task.pending.lock() {
                pending.clear();
            }
            added.extend(receipts.get(added.trie.len()..).unwrap_or_default());
            added
        };
        if self.is_shared {
            task.push(receipts.get(self.handed_over..).unwrap_or_default());
            let done = work();
            return (finish(), done);
        }
        match self.pool {
            Some(pool) => pool.join(finish, work),
            None => (finish(), work()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{Address, Log, LogData};
    use niwaki_trie::ordered_root;

    const BATCH: usize = 2;

    fn receipts(count: u8) -> Vec<Receipt> {
        let log = |number: u8| Log {
            address: Address::repeat_byte(number % 5),
            data: LogData::new_unchecked(vec![B256::repeat_byte(number)], vec![1; 40].into()),
        };
        let receipt = |number: u8| Receipt {
            tx_type: number % 3,
            status: Some(true),
            post_state: None,
            cumulative_gas_used: u64::from(number) * 21_000,
            logs: (0..number % 4).map(log).collect(),
        };
        (0..count).map(receipt).collect()
    }

    /// Waits until what was handed over is added.
    fn wait_for(builder: &ReceiptRootBuilder) {
        while builder.task.receipts.lock().unwrap().trie.len() < builder.handed_over {
            std::thread::yield_now();
        }
    }

    fn assert_are_of(receipts: &Receipts, all: &[Receipt]) {
        let encode = |receipt: &Receipt, out: &mut Vec<u8>| out.extend(receipt.encode_2718());
        assert_eq!(receipts.root(), ordered_root(all, encode));
        let blooms = all.iter().map(Receipt::bloom);
        let bloom = blooms.fold(Bloom::ZERO, |all, bloom| all | bloom);
        assert_eq!(receipts.logs_bloom(), bloom);
    }

    #[test]
    fn receipts_in_any_batches_give_the_root_of_all() {
        for count in [0, 1, 2, 3, 9, 140, 200] {
            let all = receipts(count);
            assert_are_of(&Receipts::of(&all), &all);
            for step in [1, 2, 7, 64, 250] {
                let mut builder = ReceiptRootBuilder::new(BATCH);
                for so_far in (0..all.len()).step_by(step) {
                    builder.progress(&all[..so_far], Runner::Pool);
                    assert!(so_far - builder.handed_over < BATCH);
                    // The last batch may be in work at the end.
                    if so_far + step < all.len() {
                        wait_for(&builder);
                    }
                }
                let most = all.len().saturating_sub(1) / step * step;
                assert!(
                    builder.handed_over + BATCH > most,
                    "{} of {most}",
                    builder.handed_over
                );
                let (receipts, other) = builder.finish_while(&all, || 7);
                assert_are_of(&receipts, &all);
                assert_eq!(other, 7);
            }
        }
    }

    #[test]
    fn receipts_added_by_a_worker_or_the_commit_thread_give_the_root_of_all() {
        let all = receipts(200);
        for step in [1, 3, 64] {
            for every in [1, 5, 1000] {
                let mut builder = ReceiptRootBuilder::new(BATCH);
                let task = builder.task();
                for (look, so_far) in (0..all.len()).step_by(step).enumerate() {
                    // Now the one, now the other.
                    let runner = match look % 7 {
                        0 => Runner::CommitThread,
                        _ => Runner::Worker,
                    };
                    builder.progress(&all[..so_far], runner);
                    if runner == Runner::CommitThread {
                        assert_eq!(
                            task.receipts.lock().unwrap().trie.len(),
                            builder.handed_over
                        );
                    }
                    if look % every == 0 {
                        task.add_pending();
                    }
                }
                // A worker adds some while the end is made, or none does.
                let (receipts, _) = builder.finish_while(&all, || {
                    if every < 1000 {
                        assert!(task.add_pending() || step == 1);
                    }
                });
                assert_are_of(&receipts, &all);
                assert!(!task.add_pending(), "nothing is left");
            }
        }
    }

    #[test]
    fn receipts_after_a_panic_of_the_task_are_added_at_the_end() {
        let all = receipts(30);
        let mut builder = ReceiptRootBuilder::new(BATCH);
        builder.progress(&all[..10], Runner::Pool);
        wait_for(&builder);
        let task = builder.task();
        let fails = || {
            let _made = task.receipts.lock().unwrap();
            panic!("as it should")
        };
        assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
        builder.progress(&all, Runner::Pool);
        assert_eq!(builder.handed_over, 10);
        assert_are_of(&builder.finish_while(&all, || ()).0, &all);
        let builder = ReceiptRootBuilder::new(BATCH);
        let ends = || builder.finish_while(&all, || panic!("as it should"));
        assert!(catch_unwind(AssertUnwindSafe(ends)).is_err());
    }
}
