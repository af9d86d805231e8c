//! The changes of several blocks, one upon the other, looked up as one.
//!
//! A block more, on top or below, costs the size of its own changes and, over many blocks, some
//! joining: the layers are joined pairwise, so that `n` blocks of one size cost `n log n` in all, and a
//! look-up asks `2 log n` lists. What is shared with other layers is not copied.

use crate::changes::{Changes, Joined};
use niwaki_primitives::{B256, U256, map::B256Map};
use niwaki_trie::TrieAccount;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    /// The changes of each block, lowest first.
    steps: Vec<Arc<Changes>>,
    /// The same steps, lowest first, each with how many it is made of: powers of two, which rise and
    /// then fall.
    joined: Vec<(usize, Arc<Changes>)>,
}

impl Layers {
    /// Puts the changes of a block on top.
    pub(crate) fn add(&mut self, step: Arc<Changes>) {
        self.steps.push(Arc::clone(&step));
        self.joined.push((1, step));
        while let [.., (low, _), (high, _)] = self.joined[..]
            && low == high
        {
            self.join(self.joined.len() - 2);
        }
    }

    /// Puts changes below all others: they end where these begin.
    pub(crate) fn add_below(&mut self, step: Arc<Changes>) {
        self.steps.insert(0, Arc::clone(&step));
        self.joined.insert(0, (1, step));
        while let [(low, _), (high, _), ..] = self.joined[..]
            && low == high
        {
            self.join(0);
        }
    }

    /// Makes one of number `at` and the one above it.
    fn join(&mut self, at: usize) {
        let (high, above) = self.joined.remove(at + 1);
        let (low, below) = std::mem::take(&mut self.joined[at]);
        let both = Arc::unwrap_or_clone(below).then(Arc::unwrap_or_clone(above));
        self.joined[at] = (low + high, Arc::new(both));
    }

    /// The changes of each block, lowest first.
    pub(crate) fn steps(&self) -> &[Arc<Changes>] {
        &self.steps
    }

    /// All of them as one. O(changes).
    pub(crate) fn total(&self) -> Arc<Changes> {
        match &self.joined[..] {
            [] => Arc::default(),
            [(_, all)] => Arc::clone(all),
            [rest @ .., (_, top)] => {
                let top = Changes::clone(top);
                let below = rest.iter().rev().map(|(_, below)| Changes::clone(below));
                Arc::new(below.fold(top, |all, below| below.then(all)))
            }
        }
    }

    /// Those above the lowest `count` blocks, as one.
    pub(crate) fn above(&self, count: usize) -> Changes {
        if count == 0 {
            return Arc::unwrap_or_clone(self.total());
        }
        let mut all = Joined::default();
        let steps = self.steps[count..].iter();
        steps.for_each(|step| all.add(Changes::clone(step)));
        all.finish()
    }

    /// The account on top, `Some(None)` if it is gone; `None` if no layer says anything.
    pub(crate) fn account(&self, key: &B256) -> Option<Option<TrieAccount>> {
        let found = self.downwards().find_map(|changes| changes.account(key));
        found.map(|change| change.new)
    }

    /// The value of a slot on top; `None` if no layer says anything.
    pub(crate) fn slot(&self, account: &B256, key: &B256) -> Option<U256> {
        let mut changes = self.downwards().filter_map(|layer| layer.account(account));
        changes.find_map(|change| change.slot(key).map(|slot| slot.new))
    }

    /// The values on top of all slots of an account that any layer names.
    pub(crate) fn slots(&self, account: &B256) -> B256Map<U256> {
        let mut slots = B256Map::default();
        for (_, layer) in &self.joined {
            let change = layer.account(account);
            let changed = change.iter().flat_map(|change| &change.slots);
            slots.extend(changed.map(|slot| (slot.key, slot.new)));
        }
        slots
    }

    /// The first account from `from` on that any layer names, as it is on top.
    pub(crate) fn account_from(&self, from: &B256) -> Option<(B256, Option<TrieAccount>)> {
        let first = |changes: &Changes| {
            let at = changes
                .accounts
                .partition_point(|change| change.key < *from);
            changes.accounts.get(at).map(|change| change.key)
        };
        let key = self.downwards().filter_map(first).min()?;
        Some((key, self.account(&key).flatten()))
    }

    /// The first slot of an account from `from` on that any layer names, and its value on top.
    pub(crate) fn slot_from(&self, account: &B256, from: &B256) -> Option<(B256, U256)> {
        let first = |changes: &Changes| {
            let slots = &changes.account(account)?.slots;
            let at = slots.partition_point(|change| change.key < *from);
            slots.get(at).map(|change| change.key)
        };
        let key = self.downwards().filter_map(first).min()?;
        Some((key, self.slot(account, &key).unwrap_or_default()))
    }

    fn downwards(&self) -> impl Iterator<Item = &Changes> {
        self.joined.iter().rev().map(|(_, changes)| &**changes)
    }
}

impl FromIterator<Arc<Changes>> for Layers {
    fn from_iter<T: IntoIterator<Item = Arc<Changes>>>(steps: T) -> Self {
        let mut layers = Self::default();
        steps.into_iter().for_each(|step| layers.add(step));
        layers
    }
}
