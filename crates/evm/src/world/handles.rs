//! Handles found by what they stand for.
//!
//! The records hold the keys, so a place here is a handle and half of a hash: eight bytes where a map would
//! hold the key again. Nothing is taken out, and to grow needs no key. Attackers choose slots and, with some
//! work, addresses, so hashes begin with seeds that nobody knows; nothing that can be seen depends on them.

use super::AccountId;
use niwaki_primitives::{Address, U256};
use std::hash::{BuildHasher, RandomState};

/// Places at first; a power of two.
const FIRST_PLACES: usize = 256;

/// Handles by the hashes of their keys.
#[derive(Debug)]
pub(super) struct Handles {
    /// The high half of a hash above the handle plus one; zero where there is none.
    places: Vec<u64>,
    count: usize,
    seeds: [u64; 4],
}

impl Default for Handles {
    fn default() -> Self {
        let random = RandomState::new();
        Self {
            places: vec![0; FIRST_PLACES],
            count: 0,
            seeds: [0, 1, 2, 3].map(|at: u64| random.hash_one(at)),
        }
    }
}

impl Handles {
    /// The hash of an address.
    #[inline]
    pub(super) fn of_address(&self, address: &Address) -> u64 {
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
    pub(super) fn of_slot(&self, account: AccountId, key: &U256) -> u64 {
        let [first, second, third, fourth] = *key.as_limbs();
        let [a, b, c, d] = self.seeds;
        let low = folded(first ^ a, second ^ b);
        let high = folded(third ^ c, fourth ^ d);
        folded(low ^ u64::from(account.0) ^ d, high ^ a)
    }

    /// The handle with this hash that `is` the one.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = place(hash, self.places.len());
        loop {
            let entry = self.places[at];
            let handle = low(entry).checked_sub(1)?;
            if (entry ^ hash) >> 32 == 0 && is(handle) {
                return Some(handle);
            }
            at = (at + 1) & (self.places.len() - 1);
        }
    }

    /// Adds a handle that is not there.
    #[inline]
    pub(super) fn add(&mut self, hash: u64, handle: u32) {
        if self.count * 2 >= self.places.len() {
            self.grow();
        }
        self.count += 1;
        put(&mut self.places, hash >> 32 << 32 | (u64::from(handle) + 1));
    }

    /// Forgets all handles; the room for them stays.
    pub(super) fn clear(&mut self) {
        self.places.fill(0);
        self.count = 0;
    }

    #[cold]
    fn grow(&mut self) {
        let mut places = vec![0; 2 * self.places.len()];
        for entry in self.places.iter().filter(|entry| **entry != 0) {
            put(&mut places, *entry);
        }
        self.places = places;
    }
}

/// Puts an entry in the first free place from its own on.
#[inline]
fn put(places: &mut [u64], entry: u64) {
    let mut at = place(entry, places.len());
    while places[at] != 0 {
        at = (at + 1) & (places.len() - 1);
    }
    places[at] = entry;
}

/// Where one of so many places, a power of two up to 2^32, a hash belongs: its highest bits.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the highest bits only are left"
)]
fn place(hash: u64, places: usize) -> usize {
    (hash >> (u64::BITS - places.trailing_zeros())) as usize
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn low(entry: u64) -> u32 {
    entry as u32
}

/// Both halves of a product as one.
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

        /// Beside a map: keys that differ in few bits, more of them than there are places at first, and
        /// hashes that are the same.
        #[test]
        fn handles_are_found_as_in_a_map(
            keys in prop::collection::vec((0..3_u32, 0..300_u64, 0..256_usize), 1..1_000), few: bool,
        ) {
            let mut handles = Handles::default();
            let mut map = HashMap::<(AccountId, U256), u32>::default();
            let mut list = Vec::new();
            for (at, (account, low, shift)) in keys.into_iter().enumerate() {
                let key = (AccountId(account), U256::from(low) << (shift / 64 * 64));
                let hash = handles.of_slot(key.0, &key.1);
                // Three tags for all.
                let hash = if few { (hash % 3) << 32 } else { hash };
                let found = handles.find(hash, |handle| list[handle as usize] == key);
                prop_assert_eq!(found, map.get(&key).copied());
                if found.is_none() {
                    let handle = u32::try_from(list.len()).unwrap();
                    handles.add(hash, handle);
                    map.insert(key, handle);
                    list.push(key);
                }
                if at == 900 {
                    handles.clear();
                    map.clear();
                }
            }
        }
    }

    #[test]
    fn keys_in_a_row_lie_apart() {
        let handles = Handles::default();
        for shift in [0, 32, 64, 128, 192, 240] {
            let mut places = vec![0_u32; 1 << 12];
            for key in 0..1_u64 << 11 {
                let hash = handles.of_slot(AccountId(1), &(U256::from(key) << shift));
                places[place(hash, 1 << 12)] += 1;
            }
            let most = places.iter().max().copied();
            assert!(
                most < Some(12),
                "{most:?} of 2048 keys in one of 4096 places"
            );
        }
    }

    #[test]
    fn addresses_differ_by_each_of_their_bytes() {
        let handles = Handles::default();
        let plain = handles.of_address(&Address::ZERO);
        for at in 0..20 {
            let mut address = Address::ZERO;
            address[at] = 1;
            assert_ne!(handles.of_address(&address), plain);
        }
    }
}
