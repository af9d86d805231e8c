//! What of a state has not come, as ranges of hashed keys.

use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::{B256, U256};
use niwaki_trie::Path;

/// The last of all keys.
const LAST_KEY: B256 = B256::repeat_byte(0xff);

/// Keys from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub struct KeyRange {
    /// The first.
    pub first: B256,
    /// The last, not below the first.
    pub last: B256,
}

impl KeyRange {
    /// All keys.
    pub const WHOLE: Self = Self {
        first: B256::ZERO,
        last: LAST_KEY,
    };

    /// Whether it has this key.
    pub fn contains(&self, key: &B256) -> bool {
        (self.first..=self.last).contains(key)
    }

    /// What is left of it after this key; `None` if nothing is.
    pub fn after(&self, key: &B256) -> Option<Self> {
        let first = B256::from(number(key).checked_add(U256::ONE)?);
        let range = Self {
            first: first.max(self.first),
            last: self.last,
        };
        (range.first <= range.last).then_some(range)
    }

    /// Whether the keys of `next` follow on its own.
    pub(crate) fn is_before(&self, next: &Self) -> bool {
        number(&self.last).checked_add(U256::ONE) == Some(number(&next.first))
    }

    /// Cut into so many ranges of about the same size; fewer if it has fewer keys.
    pub fn split(&self, parts: usize) -> Vec<Self> {
        let (first, last) = (number(&self.first), number(&self.last));
        let step = (last - first) / U256::from(parts.max(1)) + U256::ONE;
        let mut ranges = Vec::new();
        let mut rest = Some(*self);
        for part in 1..parts {
            let Some(range) = rest else { break };
            let end = first.saturating_add(step * U256::from(part));
            let end = B256::from(end - U256::ONE);
            if end >= range.last {
                break;
            }
            ranges.push(Self {
                first: range.first,
                last: end,
            });
            rest = range.after(&end);
        }
        ranges.extend(rest);
        ranges
    }

    /// The paths of trie nodes below which all keys are in it are between these.
    pub(crate) fn paths(&self) -> (Path, Path) {
        let first = Path::of_hash(&self.first);
        let zeros = first.as_slice().iter().rev();
        let zeros = zeros.take_while(|nibble| **nibble == 0).count();
        (first.first(Path::MAX - zeros), Path::of_hash(&self.last))
    }

    /// About how many 65,536ths of all keys it has.
    pub fn share(&self) -> u32 {
        let keys = number(&self.last) - number(&self.first);
        (keys >> 240_usize).saturating_to::<u32>().saturating_add(1)
    }
}

fn number(key: &B256) -> U256 {
    U256::from_be_bytes(key.0)
}

/// A storage that comes in several parts.
#[derive(Clone, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub struct LargeStorage {
    /// The hashed address of its account, which is here.
    pub account: B256,
    /// Its root, or [`UNKNOWN_STORAGE_ROOT`](crate::UNKNOWN_STORAGE_ROOT).
    pub root: B256,
    /// The slots that have not come, ascending.
    pub ranges: Vec<KeyRange>,
}

impl LargeStorage {
    /// Whether this slot has not come.
    pub(crate) fn lacks(&self, slot: &B256) -> bool {
        has(&self.ranges, slot)
    }
}

/// What has not come.
#[derive(Clone, Debug, Default, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub struct Remaining {
    /// Accounts with their storage, ascending.
    pub accounts: Vec<KeyRange>,
    /// Parts of the storage of accounts that have come.
    pub storages: Vec<LargeStorage>,
}

impl Remaining {
    /// Everything.
    pub fn whole() -> Self {
        Self {
            accounts: vec![KeyRange::WHOLE],
            storages: Vec::new(),
        }
    }

    /// Whether all has come.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty() && self.storages.is_empty()
    }

    /// Whether this account has not come.
    pub(crate) fn lacks_account(&self, account: &B256) -> bool {
        has(&self.accounts, account)
    }

    /// The accounts of a range have come.
    pub(crate) fn remove_accounts(&mut self, range: &KeyRange) {
        remove(&mut self.accounts, range);
    }

    /// Slots of a large storage have come.
    pub(crate) fn remove_slots(&mut self, account: &B256, range: &KeyRange) {
        for storage in &mut self.storages {
            if storage.account == *account {
                remove(&mut storage.ranges, range);
            }
        }
        self.storages.retain(|storage| !storage.ranges.is_empty());
    }
}

/// Whether a key is in one of ascending ranges.
fn has(ranges: &[KeyRange], key: &B256) -> bool {
    let at = ranges.partition_point(|range| range.last < *key);
    ranges.get(at).is_some_and(|range| range.contains(key))
}

/// Takes `range` out of ascending ranges.
fn remove(ranges: &mut Vec<KeyRange>, range: &KeyRange) {
    let cut = |own: &KeyRange| {
        let before = (own.first < range.first).then(|| KeyRange {
            first: own.first,
            last: own.last.min(before(&range.first)),
        });
        let after = own.after(&range.last).filter(|_| range.last >= own.first);
        let after = match range.last < own.first {
            true => Some(*own),
            false => after,
        };
        match range.first > own.last {
            true => [Some(*own), None],
            false => [before, after],
        }
    };
    *ranges = ranges.iter().flat_map(cut).flatten().collect();
}

/// The key before this one, which is not the first.
fn before(key: &B256) -> B256 {
    (number(key) - U256::ONE).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(number: u8) -> B256 {
        U256::from(number).into()
    }

    fn range(first: u8, last: u8) -> KeyRange {
        KeyRange {
            first: key(first),
            last: key(last),
        }
    }

    proptest! {
        #[test]
        fn what_comes_is_taken_out_key_by_key(
            came in prop::collection::vec((0..60_u8, 0..60_u8), 0..12)
        ) {
            let mut ranges = vec![range(0, 59)];
            let mut left: Vec<u8> = (0..60).collect();
            for (a, b) in came {
                let (first, last) = (a.min(b), a.max(b));
                remove(&mut ranges, &range(first, last));
                left.retain(|number| !(first..=last).contains(number));
            }
            let is_left = |number: &u8| ranges.iter().any(|range| range.contains(&key(*number)));
            prop_assert_eq!((0..60).filter(is_left).collect::<Vec<u8>>(), &left[..]);
            prop_assert!((0..60).all(|number| has(&ranges, &key(number)) == left.contains(&number)));
            prop_assert!(ranges.iter().all(|range| range.first <= range.last));
            prop_assert!(ranges.is_sorted_by(|a, b| a.last < b.first));
        }

        #[test]
        fn parts_of_a_range_follow_each_other_and_are_the_range(
            first in 0..200_u8, keys in 0..55_u8, parts in 0..40_usize, is_at_the_end: bool
        ) {
            let mut whole = range(first, first + keys);
            if is_at_the_end {
                whole = KeyRange { first: (number(&LAST_KEY) - U256::from(keys)).into(), last: LAST_KEY };
            }
            let split = whole.split(parts);
            prop_assert!((1..=parts.max(1)).contains(&split.len()));
            prop_assert_eq!(split[0].first, whole.first);
            prop_assert_eq!(split[split.len() - 1].last, whole.last);
            for pair in split.windows(2) {
                prop_assert_eq!(pair[0].after(&pair[0].last), None);
                prop_assert_eq!(whole.after(&pair[0].last).map(|rest| rest.first), Some(pair[1].first));
            }
        }
    }

    #[test]
    fn all_keys_are_cut_into_16_of_the_same_size() {
        let parts = KeyRange::WHOLE.split(16);
        assert_eq!(parts.len(), 16);
        assert!(parts.iter().all(|part| part.share() == 4096));
        assert_eq!(KeyRange::WHOLE.share(), 65_536);
        assert_eq!(KeyRange::WHOLE.after(&LAST_KEY), None);
    }
}
