//! The hashes of what a diff changes: keys of the disk's rows.

use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{Address, B256, StateDiff, U256};

/// Hashes of a diff's addresses, and of the slots of each, in its order. A block's root is begun some times
/// before it is made, each time with all that has changed by then, so most are those of the diff before.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// With where the slots of each end.
    accounts: Vec<(Address, B256, usize)>,
    slots: Vec<(U256, B256)>,
}

impl Keys {
    /// Those of `diff`; what is among these is not hashed again.
    pub(crate) fn of(&self, diff: &StateDiff) -> Self {
        let mut keys = Self::default();
        // Places of what is to be hashed.
        let (mut accounts, mut slots) = (Vec::new(), Vec::new());
        let mut known = self.each().peekable();
        for (address, change) in &diff.accounts {
            while known.next_if(|(known, ..)| known < address).is_some() {}
            let (key, held) = match known.next_if(|(known, ..)| known == address) {
                Some((_, key, held)) => (Some(key), held),
                None => (None, &[][..]),
            };
            if key.is_none() {
                accounts.push(keys.accounts.len());
            }
            let mut held = held.iter().peekable();
            for (slot, _) in &change.slots {
                while held.next_if(|(held, _)| held < slot).is_some() {}
                let key = held.next_if(|(held, _)| held == slot).map(|(_, key)| *key);
                if key.is_none() {
                    slots.push(keys.slots.len());
                }
                keys.slots.push((*slot, key.unwrap_or_default()));
            }
            let end = keys.slots.len();
            keys.accounts.push((*address, key.unwrap_or_default(), end));
        }
        let words: Vec<&[u8]> = accounts
            .iter()
            .map(|at| keys.accounts[*at].0.as_slice())
            .collect();
        for (at, hash) in accounts.iter().zip(keccak256_batch(&words)) {
            keys.accounts[*at].1 = hash;
        }
        let words: Vec<[u8; 32]> = slots
            .iter()
            .map(|at| keys.slots[*at].0.to_be_bytes())
            .collect();
        let words: Vec<&[u8]> = words.iter().map(<[u8; 32]>::as_slice).collect();
        for (at, hash) in slots.iter().zip(keccak256_batch(&words)) {
            keys.slots[*at].1 = hash;
        }
        keys
    }

    /// Each account with its hash and its slots with theirs.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Address, B256, &[(U256, B256)])> {
        let mut start = 0;
        self.accounts.iter().map(move |(address, key, end)| {
            let slots = &self.slots[start..*end];
            start = *end;
            (*address, *key, slots)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::keccak256;
    use niwaki_primitives::{AccountDiff, SlotDiff};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    #[test]
    fn keys_are_hashes_whatever_was_known() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut known = Keys::default();
        for _ in 0..200 {
            let mut accounts = BTreeMap::new();
            for _ in 0..rng.random_range(0..12) {
                let slots = (0..rng.random_range(0..12_u64)).filter(|_| rng.random());
                let slots = slots.collect::<Vec<_>>().into_iter();
                let slots = slots.map(|slot| (U256::from(slot), SlotDiff::default()));
                let change = AccountDiff {
                    slots: slots.collect(),
                    ..AccountDiff::default()
                };
                accounts.insert(Address::with_last_byte(rng.random_range(0..20)), change);
            }
            let diff = StateDiff {
                accounts: accounts.into_iter().collect(),
                codes: Vec::new(),
            };
            known = known.of(&diff);
            let each: Vec<_> = known.each().collect();
            assert_eq!(each.len(), diff.accounts.len());
            for ((address, change), (known, key, slots)) in diff.accounts.iter().zip(each) {
                assert_eq!((known, key), (*address, keccak256(address)));
                let expected = change.slots.iter();
                let expected = expected.map(|(slot, _)| (*slot, keccak256(B256::from(*slot))));
                assert_eq!(slots, expected.collect::<Vec<_>>());
            }
        }
    }
}
