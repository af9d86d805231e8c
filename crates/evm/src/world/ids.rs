//! The interner's hash table: ids of records by the hash of their key.
//!
//! Open addressing with linear probing. The records hold the keys, so a bucket is the id and half of the hash: 8 bytes,
//! where a map would hold the key (20 or 36 bytes) again. Nothing is removed one by one, and growing needs no key.
//! Attackers choose slots and, with some work, addresses, so hashes start from random seeds; no result depends on them.

use super::AccountId;
use niwaki_primitives::{Address, U256};
use std::hash::{BuildHasher, RandomState};

/// Buckets at first; a power of two.
const FIRST_BUCKETS: usize = 256;

/// Ids by the hashes of their keys.
#[derive(Debug)]
pub(super) struct IdTable {
    /// The high half of the hash above the id plus one; zero if free.
    buckets: Vec<u64>,
    count: usize,
    seeds: [u64; 4],
}

impl Default for IdTable {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            buckets: vec![0; FIRST_BUCKETS],
            count: 0,
            seeds: [0, 1, 2, 3].map(|at: u64| random.hash_one(at)),
        }
    }
}

impl IdTable {
    /// The hash of an address.
    #[inline]
    pub(super) fn hash_address(&self, address: &Address) -> u64 {
        let bytes = &address.0.0;
        let part = |at: usize| {
            let part = bytes[at..at + 8].try_into();
            u64::from_ne_bytes(part.expect("eight bytes"))
        };
        let [first, second, third] = [part(0), part(8), part(12)];
        let [a, b, c, d] = self.seeds;
        folded(folded(first ^ a, second ^ b) ^ c, third ^ d)
    }

    /// The hash of a key of an account's storage.
    #[inline]
    pub(super) fn hash_slot(&self, account: AccountId, key: &U256) -> u64 {
        let [first, second, third, fourth] = *key.as_limbs();
        let [a, b, c, d] = self.seeds;
        let low = folded(first ^ a, second ^ b);
        let high = folded(third ^ c, fourth ^ d);
        folded(low ^ u64::from(account.0) ^ d, high ^ a)
    }

    /// The id with this hash for which `is` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = bucket_of(hash, self.buckets.len());
        loop {
            let entry = self.buckets[at];
            let id = low(entry).checked_sub(1)?;
            if (entry ^ hash) >> 32 == 0 && is(id) {
                return Some(id);
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
    }

    /// Inserts an id that is not there.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, id: u32) {
        if self.count * 2 >= self.buckets.len() {
            self.grow();
        }
        self.count += 1;
        put(&mut self.buckets, hash >> 32 << 32 | (u64::from(id) + 1));
    }

    /// Removes all ids; the buckets stay allocated.
    pub(super) fn clear(&mut self) {
        self.buckets.fill(0);
        self.count = 0;
    }

    #[cold]
    fn grow(&mut self) {
        let mut buckets = vec![0; 2 * self.buckets.len()];
        for entry in self.buckets.iter().filter(|entry| **entry != 0) {
            put(&mut buckets, *entry);
        }
        self.buckets = buckets;
    }
}

/// Puts an entry into the first free bucket from its own on.
#[inline]
fn put(buckets: &mut [u64], entry: u64) {
    let mut at = bucket_of(entry, buckets.len());
    while buckets[at] != 0 {
        at = (at + 1) & (buckets.len() - 1);
    }
    buckets[at] = entry;
}

/// The bucket of a hash, out of `count` (a power of two up to 2^32): its highest bits.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "only the highest bits are left"
)]
fn bucket_of(hash: u64, count: usize) -> usize {
    (hash >> (u64::BITS - count.trailing_zeros())) as usize
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "only the low half is used")]
const fn low(entry: u64) -> u32 {
    entry as u32
}

/// Both halves of a product, folded.
#[inline(always)]
fn folded(a: u64, b: u64) -> u64 {
    let (low, high) = a.carrying_mul(b, 0);
    low ^ high
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::map::HashMap;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Against a map: keys that differ in few bits, more keys than there are buckets at first, equal hashes.
        #[test]
        fn ids_are_found_as_in_a_map(
            keys in prop::collection::vec((0..3_u32, 0..300_u64, 0..256_usize), 1..1_000), few: bool,
        ) {
            let mut table = IdTable::default();
            let mut map = HashMap::<(AccountId, U256), u32>::default();
            let mut list = Vec::new();
            for (at, (account, low, shift)) in keys.into_iter().enumerate() {
                let key = (AccountId(account), U256::from(low) << (shift / 64 * 64));
                let hash = table.hash_slot(key.0, &key.1);
                // Three tags for all.
                let hash = if few { (hash % 3) << 32 } else { hash };
                let found = table.find(hash, |id| list[id as usize] == key);
                prop_assert_eq!(found, map.get(&key).copied());
                if found.is_none() {
                    let id = u32::try_from(list.len()).unwrap();
                    table.insert(hash, id);
                    map.insert(key, id);
                    list.push(key);
                }
                if at == 900 {
                    table.clear();
                    map.clear();
                }
            }
        }
    }

    #[test]
    fn at_most_11_of_2048_sequential_keys_share_one_of_4096_buckets() {
        let table = IdTable::default();
        for shift in [0, 32, 64, 128, 192, 240] {
            let mut buckets = vec![0_u32; 1 << 12];
            for key in 0..1_u64 << 11 {
                let hash = table.hash_slot(AccountId(1), &(U256::from(key) << shift));
                buckets[bucket_of(hash, 1 << 12)] += 1;
            }
            let most = buckets.iter().max().copied();
            assert!(
                most < Some(12),
                "{most:?} of 2048 keys in one of 4096 buckets"
            );
        }
    }

    #[test]
    fn each_of_20_bytes_changes_the_hash_of_an_address() {
        let table = IdTable::default();
        let plain = table.hash_address(&Address::ZERO);
        for at in 0..20 {
            let mut address = Address::ZERO;
            address[at] = 1;
            assert_ne!(table.hash_address(&address), plain);
        }
    }
}
