//! Accounts and slots of a state in the order of their hashes, from any one on, as `debug_accountRange` and
//! `debug_storageRangeAt` need them.

use crate::commit::flat::{account_of_row, value_of_row};
use crate::commit::history::history_of;
use crate::{HistoricalView, View};
use niwaki_primitives::{B256, Fault, U256};
use niwaki_storage::{Row, Segment, Snapshot, corrupt};
use niwaki_trie::TrieAccount;

/// Called with a key and its value, `None` if the key has a value in another state only; `false` stops.
pub type RangeVisitor<'v, T> = dyn FnMut(&B256, Option<T>) -> bool + 'v;

impl View {
    /// Calls `visit` with the accounts from the hashed address `from` on, ascending. O(visited).
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn accounts_from(
        &self,
        from: &B256,
        visit: &mut RangeVisitor<'_, TrieAccount>,
    ) -> Result<(), Fault> {
        let changed = |from: &B256| {
            let over = self.overlay.as_ref();
            Ok(over.and_then(|over| over.layers.account_from(from)))
        };
        merge(account_rows(&self.snapshot, from), from, changed, visit)
    }

    /// Calls `visit` with the slots of the account with hashed address `key`, from the hashed slot `from`
    /// on, ascending. O(visited).
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn slots_from(
        &self,
        key: &B256,
        from: &B256,
        visit: &mut RangeVisitor<'_, U256>,
    ) -> Result<(), Fault> {
        let changed = |from: &B256| {
            let over = self.overlay.as_ref();
            let next = over.and_then(|over| over.layers.slot_from(key, from));
            Ok(next.map(|(slot, value)| (slot, Some(value).filter(|value| !value.is_zero()))))
        };
        merge(slot_rows(&self.snapshot, key, from), from, changed, visit)
    }
}

impl HistoricalView {
    /// As [`View::accounts_from`].
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn accounts_from(
        &self,
        from: &B256,
        visit: &mut RangeVisitor<'_, TrieAccount>,
    ) -> Result<(), Fault> {
        let changed = |from: &B256| {
            let next = self.next_with_history(Segment::Accounts, &[], from)?;
            next.map(|key| Ok((key, self.account_by_key(&key)?)))
                .transpose()
        };
        merge(account_rows(self.snapshot(), from), from, changed, visit)
    }

    /// As [`View::slots_from`].
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn slots_from(
        &self,
        key: &B256,
        from: &B256,
        visit: &mut RangeVisitor<'_, U256>,
    ) -> Result<(), Fault> {
        let changed = |from: &B256| {
            let next = self.next_with_history(Segment::Slots, key.as_slice(), from)?;
            let value = |slot: B256| {
                let value = self.slot_by_key(&[key.as_slice(), slot.as_slice()].concat())?;
                Ok((slot, Some(value).filter(|value| !value.is_zero())))
            };
            next.map(value).transpose()
        };
        merge(slot_rows(self.snapshot(), key, from), from, changed, visit)
    }

    /// The first key from `prefix ++ from` on that has a history, without `prefix`.
    fn next_with_history(
        &self,
        segment: Segment,
        prefix: &[u8],
        from: &B256,
    ) -> Result<Option<B256>, Fault> {
        let history = history_of(segment);
        let from = [prefix, from.as_slice()].concat();
        let to = end_of(prefix);
        let next = self.snapshot().range(history, &from, Some(&to)).next();
        next.transpose()?
            .map(|(row, _)| hash_at(history, &row, prefix.len()))
            .transpose()
    }
}

/// A key above all that begin with `prefix` and go on with a hash and a number.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    [prefix, &[0xff; 48]].concat()
}

/// The 32 bytes of a key from `at` on.
fn hash_at(segment: Segment, key: &[u8], at: usize) -> Result<B256, Fault> {
    let hash = key.get(at..).and_then(|rest| rest.first_chunk::<32>());
    hash.map(B256::from)
        .ok_or_else(|| corrupt(segment, key, "the key is too short"))
}

fn account_rows(
    snapshot: &Snapshot,
    from: &B256,
) -> impl Iterator<Item = Result<(B256, TrieAccount), Fault>> {
    let segment = Segment::Accounts;
    let decode = move |row: Result<Row, Fault>| {
        let (key, slim) = row?;
        let account = account_of_row(&key, &slim)?;
        Ok((hash_at(segment, &key, 0)?, account))
    };
    snapshot.range(segment, from.as_slice(), None).map(decode)
}

fn slot_rows(
    snapshot: &Snapshot,
    key: &B256,
    from: &B256,
) -> impl Iterator<Item = Result<(B256, U256), Fault>> {
    let segment = Segment::Slots;
    let decode = move |row: Result<Row, Fault>| {
        let (key, bytes) = row?;
        let value = value_of_row(&key, &bytes)?;
        Ok((hash_at(segment, &key, 32)?, value))
    };
    let first = [key.as_slice(), from.as_slice()].concat();
    let to = end_of(key.as_slice());
    snapshot.range(segment, &first, Some(&to)).map(decode)
}

/// Visits `rows` in order with `changed` laid over them, which gives the first key from a key on that may differ, and
/// its value.
fn merge<T>(
    rows: impl Iterator<Item = Result<(B256, T), Fault>>,
    from: &B256,
    changed: impl Fn(&B256) -> Result<Option<(B256, Option<T>)>, Fault>,
    visit: &mut RangeVisitor<'_, T>,
) -> Result<(), Fault> {
    let mut rows = rows;
    let mut row = rows.next().transpose()?;
    let mut change = changed(from)?;
    loop {
        let (key, value) = match (row.take(), change.take()) {
            (None, None) => return Ok(()),
            (Some((key, value)), next) if next.as_ref().is_none_or(|(other, _)| key < *other) => {
                change = next;
                row = rows.next().transpose()?;
                (key, Some(value))
            }
            (stored, Some((key, value))) => {
                row = match stored {
                    Some((same, _)) if same == key => rows.next().transpose()?,
                    other => other,
                };
                change = match after(&key) {
                    Some(from) => changed(&from)?,
                    None => None,
                };
                (key, value)
            }
            (Some(_), None) => return Ok(()), // The second arm has taken it.
        };
        if !visit(&key, value) {
            return Ok(());
        }
    }
}

/// The key after `key`.
fn after(key: &B256) -> Option<B256> {
    let next = U256::from_be_bytes(key.0).checked_add(U256::from(1))?;
    Some(next.into())
}
