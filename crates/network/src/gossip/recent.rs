//! A map of the last transactions that were put in: at most 32,768, then the oldest goes.

use niwaki_primitives::B256;
use niwaki_primitives::map::HashMap;
use std::collections::VecDeque;

/// Entries, those that were removed counted until their turn comes.
const MAX: usize = 32_768;

/// Values by hash, those that were put in last.
#[derive(Debug)]
pub(super) struct Recent<V> {
    values: HashMap<B256, V>,
    order: VecDeque<B256>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self {
            values: HashMap::default(),
            order: VecDeque::new(),
        }
    }
}

impl<V> Recent<V> {
    /// Adds a value, unless the hash has one.
    pub(super) fn insert(&mut self, hash: B256, value: V) {
        if self.values.contains_key(&hash) {
            return;
        }
        if self.order.len() >= MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
        self.values.insert(hash, value);
        self.order.push_back(hash);
    }

    pub(super) fn contains(&self, hash: &B256) -> bool {
        self.values.contains_key(hash)
    }

    pub(super) fn remove(&mut self, hash: &B256) -> Option<V> {
        self.values.remove(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> B256 {
        B256::left_padding_from(&number.to_be_bytes())
    }

    #[test]
    fn the_last_32768_are_there_and_the_first_value_stays() {
        let mut recent = Recent::default();
        for number in 0..40_000 {
            recent.insert(hash(number), number);
            recent.insert(hash(number), 0);
        }
        assert_eq!((recent.values.len(), recent.order.len()), (MAX, MAX));
        assert!(!recent.contains(&hash(40_000 - 32_769)));
        assert_eq!(recent.remove(&hash(39_999)), Some(39_999));
        assert_eq!(recent.remove(&hash(39_999)), None);
    }
}
