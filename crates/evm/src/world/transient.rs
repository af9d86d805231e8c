//! Transient storage, which lasts until the end of the transaction (EIP-1153).

use super::{AccountId, World, journal::JournalEntry, recent_ids::RecentIds};
use crate::limbs::is_same;
use niwaki_primitives::{U256, map::HashMap};

/// The values of a transaction.
#[derive(Debug, Default)]
pub(super) struct Transient {
    ids: HashMap<(AccountId, U256), u32>,
    recent: RecentIds,
    values: Vec<Value>,
}

#[derive(Debug)]
struct Value {
    account: AccountId,
    key: U256,
    current: U256,
}

impl Transient {
    /// Removes all values.
    #[inline]
    pub(super) fn clear(&mut self) {
        if !self.values.is_empty() {
            self.ids.clear();
            self.values.clear();
        }
    }

    /// Sets the value at an index of [`Transient::find`].
    pub(super) fn set(&mut self, at: u32, value: U256) {
        self.values[at as usize].current = value;
    }

    #[inline]
    fn find(&mut self, account: AccountId, key: &U256) -> Option<u32> {
        if self.values.is_empty() {
            return None;
        }
        let bits = account.bits_with(key);
        let at = self.recent.get(bits);
        let recent = self.values.get(at as usize);
        if recent.is_some_and(|value| {
            is_same(value.key.as_limbs(), key.as_limbs()) && value.account == account
        }) {
            return Some(at);
        }
        let at = *self.ids.get(&(account, *key))?;
        self.recent.put(bits, at);
        Some(at)
    }

    #[cold]
    fn add(&mut self, account: AccountId, key: U256) -> u32 {
        let at = u32::try_from(self.values.len()).expect("gas bounds the values");
        self.values.push(Value {
            account,
            key,
            current: U256::ZERO,
        });
        self.ids.insert((account, key), at);
        at
    }
}

impl World<'_> {
    /// A value of transient storage.
    pub fn transient(&mut self, account: AccountId, key: U256) -> U256 {
        let at = self.transient.find(account, &key);
        at.map_or(U256::ZERO, |at| self.transient.values[at as usize].current)
    }

    pub(crate) fn set_transient(&mut self, account: AccountId, key: U256, value: U256) {
        let transient = &mut self.transient;
        let at = match transient.find(account, &key) {
            Some(at) => at,
            None if value.is_zero() => return,
            None => transient.add(account, key),
        };
        let current = &mut transient.values[at as usize].current;
        if *current != value {
            let old = std::mem::replace(current, value);
            self.journal.push(JournalEntry::Transient { at, old });
        }
    }
}
