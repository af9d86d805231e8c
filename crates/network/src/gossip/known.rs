//! Which transactions a peer is known to have: a set of the first 8 bytes of their hashes, of bounded size.
//!
//! Two tables of [`GENERATION`] fingerprints: a full one becomes the old one, and the old one is forgotten. So the set remembers the
//! last 16,384 to 32,768 that were inserted. A table has 20,480 slots of 8 bytes (160 KiB) and is made when it is needed; a set of
//! whole hashes takes more than four times as much.
//!
//! A peer chooses the hashes, so their slots are chosen by a key that it does not know. Two hashes with the same fingerprint cost
//! 2^64 tries to find; the price of one is a transaction that is not sent to a peer.

use niwaki_primitives::B256;

/// Fingerprints in one generation.
pub(crate) const GENERATION: usize = 16_384;
/// Slots of a table, of which so at most four fifths are taken.
const SLOTS: usize = GENERATION / 4 * 5;
/// A free slot.
const FREE: u64 = 0;

/// A set that forgets its oldest half when it is full.
#[derive(Clone, Debug)]
pub struct KnownSet {
    key: u64,
    young: Table,
    old: Table,
}

impl KnownSet {
    /// An empty set. `key` is random, and secret.
    pub fn new(key: u64) -> Self {
        Self {
            key,
            young: Table::default(),
            old: Table::default(),
        }
    }

    /// Adds a hash. Returns whether it was not known.
    pub fn insert(&mut self, hash: &B256) -> bool {
        let fingerprint = fingerprint_of(hash);
        let is_new = !self.has(fingerprint);
        if !self.young.has(fingerprint, self.key) {
            if self.young.len >= GENERATION {
                self.age();
            }
            self.young.insert(fingerprint, self.key);
        }
        is_new
    }

    /// Whether a hash is known.
    pub fn contains(&self, hash: &B256) -> bool {
        self.has(fingerprint_of(hash))
    }

    fn has(&self, fingerprint: u64) -> bool {
        self.young.has(fingerprint, self.key) || self.old.has(fingerprint, self.key)
    }

    /// Forgets the older half. What is known now is forgotten by the next call.
    pub(crate) fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }

    /// How many hashes are remembered, those of both halves twice.
    pub fn len(&self) -> usize {
        self.young.len + self.old.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The first 8 bytes, but not the mark of a free slot.
fn fingerprint_of(hash: &B256) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = hash.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(FREE + 1)
}

/// Open addressing with linear probing; nothing is ever removed.
#[derive(Clone, Debug, Default)]
struct Table {
    slots: Box<[u64]>,
    len: usize,
}

impl Table {
    fn has(&self, fingerprint: u64, key: u64) -> bool {
        let Some(slot) = self.slots.get(self.find(fingerprint, key)) else {
            return false;
        };
        *slot == fingerprint
    }

    /// Adds a fingerprint that is not there, to a table with a free slot.
    fn insert(&mut self, fingerprint: u64, key: u64) {
        if self.slots.is_empty() {
            self.slots = vec![FREE; SLOTS].into();
        }
        let at = self.find(fingerprint, key);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = fingerprint;
            self.len += 1;
        }
    }

    /// The slot of a fingerprint, or the free one where it would be.
    fn find(&self, fingerprint: u64, key: u64) -> usize {
        let first = slot_of(fingerprint, key);
        let (before, from) = self.slots.split_at(first.min(self.slots.len()));
        let is_it = |slot: &u64| *slot == fingerprint || *slot == FREE;
        match from.iter().position(is_it) {
            Some(offset) => first + offset,
            None => before.iter().position(is_it).unwrap_or(SLOTS),
        }
    }
}

/// Where a fingerprint belongs: the product with an odd number, folded, so that all bits count, and scaled to the table.
fn slot_of(fingerprint: u64, key: u64) -> usize {
    let product = u128::from(fingerprint ^ key) * u128::from(key | 1);
    let folded = (product >> 64) ^ (product & u128::from(u64::MAX));
    // Less than `SLOTS`.
    usize::try_from((folded * SLOTS as u128) >> 64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn hash(number: u64) -> B256 {
        let mut hash = B256::ZERO;
        hash[..8].copy_from_slice(&number.to_be_bytes());
        hash
    }

    const KEY: u64 = 0x9e37_79b9_7f4a_7c15;

    #[test]
    fn the_last_16384_are_always_known_and_never_more_than_32768() {
        let mut known = KnownSet::new(KEY);
        for number in 1..=100_000 {
            assert!(known.insert(&hash(number)));
            assert!(!known.insert(&hash(number)));
            assert!(known.len() <= 2 * GENERATION);
        }
        assert!((100_001 - GENERATION as u64..=100_000).all(|n| known.contains(&hash(n))));
        assert!(!known.contains(&hash(1)));
    }

    #[test]
    fn an_empty_set_has_no_table_and_a_full_one_two_of_160_kib() {
        let mut known = KnownSet::new(KEY);
        assert!(known.is_empty() && known.young.slots.is_empty());
        (0..40_000).for_each(|number| {
            known.insert(&hash(number));
        });
        let bytes = (known.young.slots.len() + known.old.slots.len()) * 8;
        assert_eq!(bytes, 2 * 160 * 1024);
    }

    #[test]
    fn what_is_known_is_forgotten_after_ageing_twice() {
        let mut known = KnownSet::new(KEY);
        known.insert(&hash(1));
        known.age();
        assert!(known.contains(&hash(1)));
        assert!(!known.insert(&hash(1)));
        known.age();
        known.age();
        assert!(!known.contains(&hash(1)));
    }

    #[test]
    fn a_hash_of_zeros_is_a_hash() {
        let mut known = KnownSet::new(KEY);
        assert!(!known.contains(&B256::ZERO));
        assert!(known.insert(&B256::ZERO));
        assert!(known.contains(&B256::ZERO));
    }

    proptest! {
        #[test]
        fn a_set_of_few_is_exact(numbers in prop::collection::vec(0..500_u64, 0..600), key: u64) {
            let (mut known, mut expected) = (KnownSet::new(key), HashSet::new());
            for number in numbers {
                // 0 and 1 have the same fingerprint.
                let number = number + 1;
                prop_assert_eq!(known.insert(&hash(number)), expected.insert(number));
            }
            for number in 1..600 {
                prop_assert_eq!(known.contains(&hash(number)), expected.contains(&number));
            }
        }
    }
}
