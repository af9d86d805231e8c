//! The receipts of a block: their trie and their bloom, made as they come.

use niwaki_execution::receipt_blooms;
use niwaki_primitives::{B256, Bloom, Receipt};
use niwaki_threads::Crew;
use niwaki_trie::OrderedTrie;
use std::sync::{Arc, Mutex};

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
    crew: Option<Arc<Crew>>,
    made: Arc<Mutex<Receipts>>,
    /// How many are there once the last lot is.
    told: usize,
}

impl EarlyReceipts {
    /// Of a block whose execution takes long enough.
    pub(crate) fn new() -> Self {
        Self {
            crew: Crew::of("receipts", 1),
            ..Self::default()
        }
    }

    /// Has those that are new among the receipts `so_far` added, if they are many and those before are there.
    pub(crate) fn go_on(&mut self, so_far: &[Receipt]) {
        let new = so_far.get(self.told..).unwrap_or_default();
        let Some(crew) = self.crew.as_ref().filter(|_| new.len() >= LOT) else {
            return;
        };
        // Not where somebody is at it, nor after a panic.
        let made = self.made.try_lock();
        if made.map_or(true, |made| made.trie.len() != self.told) {
            return;
        }
        let (made, lot) = (Arc::clone(&self.made), new.to_vec());
        crew.begin(move || {
            if let Ok(mut made) = made.lock() {
                made.extend(&lot);
            }
        });
        self.told = so_far.len();
    }

    /// `all` receipts of the block, made up of those that are there and the others, while this thread does
    /// `work`.
    pub(crate) fn end_beside<T>(self, all: &[Receipt], work: impl FnOnce() -> T) -> (Receipts, T) {
        let made = self.made;
        let end = move || {
            // What a panic has left is nothing to go on from.
            let made = made.lock().map(|mut made| std::mem::take(&mut *made));
            let mut own = made.unwrap_or_default();
            own.extend(all.get(own.trie.len()..).unwrap_or_default());
            own
        };
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
    use std::panic::{AssertUnwindSafe, catch_unwind};

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
        while early.made.lock().unwrap().trie.len() < early.told {
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
                    early.go_on(&all[..so_far]);
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
    fn what_fails_beside_is_made_at_the_end() {
        let all = receipts(30);
        let mut early = EarlyReceipts::new();
        early.go_on(&all[..10]);
        wait_for(&early);
        let made = Arc::clone(&early.made);
        let fails = || {
            let _made = made.lock().unwrap();
            panic!("as it should")
        };
        assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
        early.go_on(&all);
        assert_eq!(early.told, 10);
        assert_are_of(&early.end_beside(&all, || ()).0, &all);
        let early = EarlyReceipts::new();
        let ends = || early.end_beside(&all, || panic!("as it should"));
        assert!(catch_unwind(AssertUnwindSafe(ends)).is_err());
    }
}
