//! The receipts of a block: their trie and their bloom, made as they come.

use niwaki_execution::receipt_blooms;
use niwaki_primitives::{B256, Bloom, Receipt};
use niwaki_threads::WorkerPool;
use niwaki_trie::OrderedTrie;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a header tells of receipts.
#[derive(Debug, Default)]
pub struct Receipts {
    trie: OrderedTrie,
    logs_bloom: Bloom,
}

impl Receipts {
    /// Those of all of a block's transactions.
    pub fn of(receipts: &[Receipt]) -> Self {
        let mut own = Self::default();
        own.extend(receipts);
        own
    }

    /// Adds receipts behind those that are there.
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

/// So many receipts are worth a call.
const LOT: usize = if cfg!(test) { 2 } else { 64 };

/// The receipts of a block that is being executed, whose trie is made beside that.
#[derive(Debug, Default)]
pub(crate) struct EarlyReceipts {
    crew: Option<Arc<WorkerPool>>,
    making: Arc<Making>,
    /// How many are there once the last lot is.
    told: usize,
    /// Whether somebody comes by who goes on with it.
    is_visited: bool,
}

/// Who adds receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A thread of their own.
    Crew,
    /// Whoever comes by.
    Visitor,
    /// Whoever has them, since those who come by have too much to do.
    Caller,
}

/// What is there, and what waits to be added.
#[derive(Debug, Default)]
pub(crate) struct Making {
    made: Mutex<Receipts>,
    lot: Mutex<Vec<Receipt>>,
}

impl Making {
    /// More that wait, behind those that do.
    fn put(&self, receipts: &[Receipt]) {
        if let Ok(mut lot) = self.lot.lock() {
            lot.extend_from_slice(receipts);
        }
    }

    /// Adds what waits, if nobody else is at it; whether anything did. After a panic nothing is added any more.
    pub(crate) fn go_on(&self) -> bool {
        let made = self.made.try_lock();
        made.is_ok_and(|made| self.add(made))
    }

    /// Adds what waits, once nobody else is at it.
    fn go_on_in_turn(&self) {
        if let Ok(made) = self.made.lock() {
            self.add(made);
        }
    }

    fn add(&self, mut made: MutexGuard<'_, Receipts>) -> bool {
        // The guard is dropped in here, so that a panic marks what it leaves.
        let add = move || {
            let lot = self.lot.lock().map(|mut lot| std::mem::take(&mut *lot));
            let lot = lot.unwrap_or_default();
            made.extend(&lot);
            !lot.is_empty()
        };
        catch_unwind(AssertUnwindSafe(add)).unwrap_or(false)
    }
}

impl EarlyReceipts {
    /// Of a block whose execution takes long enough.
    pub(crate) fn new() -> Self {
        Self {
            crew: WorkerPool::named("receipts", 1),
            ..Self::default()
        }
    }

    /// For whoever comes by to go on with it.
    pub(crate) fn making(&self) -> Arc<Making> {
        Arc::clone(&self.making)
    }

    /// Has those that are new among the receipts `so_far` added, if they are many and those before are there.
    pub(crate) fn go_on(&mut self, so_far: &[Receipt], by: By) {
        self.is_visited = by != By::Crew;
        let Some(crew) = &self.crew else {
            return;
        };
        // Not where somebody is at it, nor after a panic.
        let Ok(made) = self.making.made.try_lock() else {
            return;
        };
        let there = made.trie.len();
        drop(made);
        if there == self.told {
            let new = so_far.get(self.told..).unwrap_or_default();
            if new.len() < LOT {
                return;
            }
            self.told = so_far.len();
            self.making.put(new);
        }
        match by {
            By::Caller => {
                self.making.go_on();
            }
            By::Visitor => {}
            By::Crew => {
                let making = Arc::clone(&self.making);
                crew.spawn(move || making.go_on_in_turn());
            }
        }
    }

    /// `all` receipts of the block, made up of those that are there and the others, while this thread does
    /// `work`.
    pub(crate) fn end_beside<T>(self, all: &[Receipt], work: impl FnOnce() -> T) -> (Receipts, T) {
        let making = self.making;
        let end = || {
            // What a panic has left is nothing to go on from.
            let made = making
                .made
                .lock()
                .map(|mut made| std::mem::take(&mut *made));
            let mut own = made.unwrap_or_default();
            if let Ok(mut lot) = making.lot.lock() {
                lot.clear();
            }
            own.extend(all.get(own.trie.len()..).unwrap_or_default());
            own
        };
        if self.is_visited {
            making.put(all.get(self.told..).unwrap_or_default());
            let done = work();
            return (end(), done);
        }
        match self.crew {
            Some(crew) => crew.join(end, work),
            None => (end(), work()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{Address, Log, LogData};
    use niwaki_trie::ordered_root;

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

    /// Waits until what was told is there.
    fn wait_for(early: &EarlyReceipts) {
        while early.making.made.lock().unwrap().trie.len() < early.told {
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
    fn whatever_was_taken_in_before_the_end_all_receipts_count() {
        for count in [0, 1, 2, 3, 9, 140, 200] {
            let all = receipts(count);
            assert_are_of(&Receipts::of(&all), &all);
            for step in [1, 2, 7, 64, 250] {
                let mut early = EarlyReceipts::new();
                for so_far in (0..all.len()).step_by(step) {
                    early.go_on(&all[..so_far], By::Crew);
                    assert!(so_far - early.told < LOT);
                    // The last lot may be in work at the end.
                    if so_far + step < all.len() {
                        wait_for(&early);
                    }
                }
                let most = all.len().saturating_sub(1) / step * step;
                assert!(early.told + LOT > most, "{} of {most}", early.told);
                let (receipts, other) = early.end_beside(&all, || 7);
                assert_are_of(&receipts, &all);
                assert_eq!(other, 7);
            }
        }
    }

    #[test]
    fn whoever_comes_by_or_has_them_adds_them_too() {
        let all = receipts(200);
        for step in [1, 3, 64] {
            for every in [1, 5, 1000] {
                let mut early = EarlyReceipts::new();
                let making = early.making();
                for (look, so_far) in (0..all.len()).step_by(step).enumerate() {
                    // Now the one, now the other.
                    let by = match look % 7 {
                        0 => By::Caller,
                        _ => By::Visitor,
                    };
                    early.go_on(&all[..so_far], by);
                    if by == By::Caller {
                        assert_eq!(making.made.lock().unwrap().trie.len(), early.told);
                    }
                    if look % every == 0 {
                        making.go_on();
                    }
                }
                // Somebody comes by while the end is made, or nobody.
                let (receipts, _) = early.end_beside(&all, || {
                    if every < 1000 {
                        assert!(making.go_on() || step == 1);
                    }
                });
                assert_are_of(&receipts, &all);
                assert!(!making.go_on(), "nothing is left");
            }
        }
    }

    #[test]
    fn what_fails_beside_is_made_at_the_end() {
        let all = receipts(30);
        let mut early = EarlyReceipts::new();
        early.go_on(&all[..10], By::Crew);
        wait_for(&early);
        let making = early.making();
        let fails = || {
            let _made = making.made.lock().unwrap();
            panic!("as it should")
        };
        assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
        early.go_on(&all, By::Crew);
        assert_eq!(early.told, 10);
        assert_are_of(&early.end_beside(&all, || ()).0, &all);
        let early = EarlyReceipts::new();
        let ends = || early.end_beside(&all, || panic!("as it should"));
        assert!(catch_unwind(AssertUnwindSafe(ends)).is_err());
    }
}
