//! The diffs of several consecutive blocks, looked up as one.
//!
//! A lookup goes through the layers from the top; the first that lists the key decides. With one layer per block
//! that would be slow for a state 500 blocks away from the head, so adjacent layers are joined pairwise, like
//! the carries of a binary counter: a layer is made of a power of two of blocks.
//!
//! ```text
//! blocks added:  1      2      3        4      5        6          7
//! layers:        [1]    [2]    [2 1]    [4]    [4 1]    [4 2]      [4 2 1]
//! ```
//!
//! So adding one block costs the size of its own diff plus some joining, `n` blocks of one size cost `n log n` in
//! all, and a lookup searches at most `2 log n` lists (layers may also be added below, where the same is done).
//! Layers that are shared with other `DiffLayers` are not copied until they are joined.

use crate::commit::hashed_diff::{DiffAccumulator, HashedDiff};
use niwaki_primitives::{B256, U256, map::B256Map};
use niwaki_trie::TrieAccount;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiffLayers {
    /// The diff of each block, lowest first.
    steps: Vec<Arc<HashedDiff>>,
    /// The same, joined: each with the number of blocks it is made of, which are powers of two that rise and
    /// then fall.
    joined: Vec<(usize, Arc<HashedDiff>)>,
}

impl DiffLayers {
    /// Adds the diff of the next block on top.
    pub(crate) fn add(&mut self, step: Arc<HashedDiff>) {
        self.steps.push(Arc::clone(&step));
        self.joined.push((1, step));
        while let [.., (low, _), (high, _)] = self.joined[..]
            && low == high
        {
            self.join(self.joined.len() - 2);
        }
    }

    /// Adds a diff below all others: it ends at the state where they begin.
    pub(crate) fn add_below(&mut self, step: Arc<HashedDiff>) {
        self.steps.insert(0, Arc::clone(&step));
        self.joined.insert(0, (1, step));
        while let [(low, _), (high, _), ..] = self.joined[..]
            && low == high
        {
            self.join(0);
        }
    }

    /// Joins layer `at` with the one above it.
    fn join(&mut self, at: usize) {
        let (high, above) = self.joined.remove(at + 1);
        let (low, below) = std::mem::take(&mut self.joined[at]);
        let both = Arc::unwrap_or_clone(below).then(Arc::unwrap_or_clone(above));
        self.joined[at] = (low + high, Arc::new(both));
    }

    /// The diff of each block, lowest first.
    pub(crate) fn steps(&self) -> &[Arc<HashedDiff>] {
        &self.steps
    }

    /// All of them as one diff. O(changes).
    pub(crate) fn total(&self) -> Arc<HashedDiff> {
        match &self.joined[..] {
            [] => Arc::default(),
            [(_, all)] => Arc::clone(all),
            [rest @ .., (_, top)] => {
                let top = HashedDiff::clone(top);
                let below = rest.iter().rev().map(|(_, below)| HashedDiff::clone(below));
                Arc::new(below.fold(top, |all, below| below.then(all)))
            }
        }
    }

    /// All but the lowest `count` blocks, as one diff.
    pub(crate) fn above(&self, count: usize) -> HashedDiff {
        if count == 0 {
            return Arc::unwrap_or_clone(self.total());
        }
        let mut all = DiffAccumulator::default();
        let steps = self.steps[count..].iter();
        steps.for_each(|step| all.add(HashedDiff::clone(step)));
        all.finish()
    }

    /// The account on top, `Some(None)` if it does not exist; `None` if no layer lists it.
    pub(crate) fn account(&self, key: &B256) -> Option<Option<TrieAccount>> {
        let found = self.top_down().find_map(|diff| diff.account(key));
        found.map(|change| change.new)
    }

    /// The value of a slot on top; `None` if no layer lists it.
    pub(crate) fn slot(&self, account: &B256, key: &B256) -> Option<U256> {
        let mut changes = self.top_down().filter_map(|layer| layer.account(account));
        changes.find_map(|change| change.slot(key).map(|slot| slot.new))
    }

    /// The values on top of all slots of an account that any layer lists.
    pub(crate) fn slots(&self, account: &B256) -> B256Map<U256> {
        let mut slots = B256Map::default();
        for (_, layer) in &self.joined {
            let change = layer.account(account);
            let changed = change.iter().flat_map(|change| &change.slots);
            slots.extend(changed.map(|slot| (slot.key, slot.new)));
        }
        slots
    }

    /// The first account from `from` on that any layer lists, as it is on top.
    pub(crate) fn account_from(&self, from: &B256) -> Option<(B256, Option<TrieAccount>)> {
        let first = |diff: &HashedDiff| {
            let at = diff.accounts.partition_point(|change| change.key < *from);
            diff.accounts.get(at).map(|change| change.key)
        };
        let key = self.top_down().filter_map(first).min()?;
        Some((key, self.account(&key).flatten()))
    }

    /// The first slot of an account from `from` on that any layer lists, and its value on top.
    pub(crate) fn slot_from(&self, account: &B256, from: &B256) -> Option<(B256, U256)> {
        let first = |diff: &HashedDiff| {
            let slots = &diff.account(account)?.slots;
            let at = slots.partition_point(|change| change.key < *from);
            slots.get(at).map(|change| change.key)
        };
        let key = self.top_down().filter_map(first).min()?;
        Some((key, self.slot(account, &key).unwrap_or_default()))
    }

    fn top_down(&self) -> impl Iterator<Item = &HashedDiff> {
        self.joined.iter().rev().map(|(_, diff)| &**diff)
    }
}

impl FromIterator<Arc<HashedDiff>> for DiffLayers {
    fn from_iter<T: IntoIterator<Item = Arc<HashedDiff>>>(steps: T) -> Self {
        let mut layers = Self::default();
        steps.into_iter().for_each(|step| layers.add(step));
        layers
    }
}
