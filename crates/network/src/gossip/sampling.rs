//! Which blobs are taken whole, and which columns of the others (EIP-8070).
//!
//! A node takes the blobs of each transaction whole with a probability, and then has all columns for others: a provider. Of the rest it
//! takes the columns that its consensus client keeps, and one more at random: a peer that only pretends to have the blobs can't know
//! which. It does so once two peers have said that they have the blobs. The draw depends on the transaction and a secret, so it comes
//! out the same as long as the node runs.

use super::transaction::DATA_COLUMNS;
use crate::wire::CellMask;
use niwaki_crypto::{CELLS_PER_EXT_BLOB, Keccak256};
use niwaki_primitives::B256;

/// The least and the usual share of transactions whose blobs are taken whole, percent.
pub const MIN_WHOLE_PERCENT: u8 = 15;
/// With so many announcers that have all columns a transaction is sampled.
pub(super) const PROVIDERS: usize = 2;

/// The rule of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    key: u64,
    whole_percent: u8,
    custody: CellMask,
}

impl Sampling {
    /// All blobs are taken whole until the consensus client says which columns it keeps. `key` is random, and secret.
    pub(super) const fn new(key: u64, whole_percent: u8) -> Self {
        Self {
            key,
            whole_percent,
            custody: CellMask::ALL,
        }
    }

    pub(super) const fn set_custody(&mut self, custody: CellMask) {
        self.custody = custody;
    }

    /// Whether the blobs of a transaction are taken whole.
    pub(super) fn is_whole(&self, hash: &B256) -> bool {
        self.custody.count() >= DATA_COLUMNS
            || self.draw(hash.as_slice()) % 100 < u64::from(self.whole_percent)
    }

    /// The columns that request number `request` asks for.
    pub(super) fn columns(&self, request: u64) -> CellMask {
        let others = (0..CELLS_PER_EXT_BLOB).filter(|column| !self.custody.has(*column));
        let others: Vec<usize> = others.collect();
        let mut columns = self.custody;
        let drawn = self.draw(&request.to_be_bytes());
        let drawn = usize::try_from(drawn).unwrap_or(usize::MAX);
        if let Some(at) = drawn.checked_rem(others.len()) {
            columns.set(others[at]);
        }
        columns
    }

    fn draw(&self, of: &[u8]) -> u64 {
        let mut hasher = Keccak256::new();
        hasher.update(self.key.to_be_bytes());
        hasher.update(of);
        let hash = hasher.finalize();
        hash.iter()
            .take(8)
            .fold(0, |drawn, byte| drawn << 8 | u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling() -> Sampling {
        let mut sampling = Sampling::new(7, MIN_WHOLE_PERCENT);
        sampling.set_custody(CellMask::from_bits(0b1111_1111));
        sampling
    }

    #[test]
    fn fifteen_of_a_hundred_are_whole_and_always_the_same() {
        let sampling = sampling();
        let hashes = (0..10_000_u64).map(|number| B256::left_padding_from(&number.to_be_bytes()));
        let whole = hashes.clone().filter(|hash| sampling.is_whole(hash));
        let count = whole.clone().count();
        assert!((1_350..1_650).contains(&count), "{count}");
        assert!(whole.clone().all(|hash| sampling.is_whole(&hash)));
        let others = Sampling { key: 8, ..sampling };
        let both = whole.filter(|hash| others.is_whole(hash)).count();
        assert!((100..400).contains(&both), "{both}");
        let eager = Sampling {
            whole_percent: 100,
            ..sampling
        };
        assert!(hashes.clone().all(|hash| eager.is_whole(&hash)));
    }

    #[test]
    fn who_keeps_half_of_the_columns_takes_all_blobs_whole() {
        let (mut sampling, hash) = (sampling(), B256::ZERO);
        let some = (0..100_u64).map(|number| B256::left_padding_from(&number.to_be_bytes()));
        sampling.set_custody(CellMask::from_bits(u128::from(u64::MAX) << 3));
        assert!(some.clone().all(|hash| sampling.is_whole(&hash)));
        sampling.set_custody(CellMask::from_bits(u128::from(u64::MAX >> 1)));
        assert!(!some.clone().all(|hash| sampling.is_whole(&hash)));
        let new = Sampling::new(7, MIN_WHOLE_PERCENT);
        assert!(new.is_whole(&hash) && new.columns(1) == CellMask::ALL);
    }

    #[test]
    fn one_column_more_than_is_kept_is_asked_for_and_changes() {
        let sampling = sampling();
        let mut extra = 0_u128;
        for request in 0..2_000 {
            let columns = sampling.columns(request);
            assert_eq!((columns.count(), columns.bits() & 0xff), (9, 0xff));
            extra |= columns.bits() & !0xff;
        }
        assert_eq!(extra, !0xff);
    }
}
