//! What differs between two states, keyed as the disk is: by hashed address and hashed slot.
//!
//! A [`HashedDiff`] lists accounts and slots with the value in the first state (`prior`) and in the second (`new`).
//! It is a value that can be inverted and joined end to end, and that is all that rolling back, rolling
//! forward and looking at a side branch need:
//!
//! ```text
//! a: S0 -> S1     a.inverted(): S1 -> S0     a.then(b): S0 -> S2  if b: S1 -> S2
//! a: S0 -> S1, c: S0 -> S3     a.diff_to(c): S1 -> S3  =  a.inverted().then(c)
//! ```
//!
//! All lists ascend by key, so that two of them are merged in one pass.

use alloy_primitives::keccak256;
use niwaki_primitives::{Address, B256, EMPTY_ROOT_HASH, U256};
use niwaki_trie::TrieAccount;
use std::cmp::Ordering;

/// Everything that differs between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HashedDiff {
    /// Changed accounts, strictly ascending by hashed address.
    pub accounts: Vec<HashedAccountDiff>,
}

/// How one account differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedAccountDiff {
    /// Keccak-256 of the address.
    pub key: B256,
    /// The address.
    pub address: Address,
    /// The account in the first state; `None` if it does not exist there.
    pub prior: Option<TrieAccount>,
    /// The account in the second state; `None` if it does not exist there.
    pub new: Option<TrieAccount>,
    /// Every slot that differs, strictly ascending by hashed slot. Destroyed storage is listed slot by slot.
    pub slots: Vec<HashedSlotDiff>,
}

/// How one slot differs; zero is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedSlotDiff {
    /// Keccak-256 of the slot as 32 bytes.
    pub key: B256,
    /// The slot, if it is known: a slot that was only found because its storage was destroyed is known by its
    /// hash alone.
    pub slot: Option<U256>,
    /// Value in the first state.
    pub prior: U256,
    /// Value in the second state.
    pub new: U256,
}

impl HashedSlotDiff {
    /// The change of a slot that is known.
    pub fn of_slot(slot: U256, prior: U256, new: U256) -> Self {
        Self {
            key: keccak256(B256::from(slot)),
            slot: Some(slot),
            prior,
            new,
        }
    }
}

impl HashedAccountDiff {
    fn is_unchanged(&self) -> bool {
        self.prior == self.new && self.slots.is_empty()
    }

    /// The change of the slot with this hash, if it is listed.
    pub fn slot(&self, key: &B256) -> Option<&HashedSlotDiff> {
        let at = self.slots.binary_search_by(|slot| slot.key.cmp(key)).ok()?;
        self.slots.get(at)
    }

    /// Appends `next`, a change of the same account.
    fn join(&mut self, next: Self) {
        let mut is_dropped = false;
        let join = |first: &mut HashedSlotDiff, second: HashedSlotDiff| {
            first.slot = first.slot.or(second.slot);
            first.new = second.new;
            is_dropped |= first.prior == first.new;
        };
        merge(&mut self.slots, next.slots, |slot| &slot.key, join);
        if is_dropped {
            self.slots.retain(|slot| slot.prior != slot.new);
        }
        self.new = next.new;
    }

    fn invert(&mut self) {
        std::mem::swap(&mut self.prior, &mut self.new);
        for slot in &mut self.slots {
            std::mem::swap(&mut slot.prior, &mut slot.new);
        }
    }

    /// From the second state of this change to that of `other`. Slots that only this change lists get the value that
    /// `unlisted` gives. `None` if nothing differs.
    fn diff_with(&self, other: &Self, unlisted: impl Fn(&HashedSlotDiff) -> U256) -> Option<Self> {
        let slots = pairs(&self.slots, &other.slots, |slot| slot.key);
        let slots = slots.filter_map(|pair| match pair {
            (Some(from), Some(to)) => Some(HashedSlotDiff {
                slot: from.slot.or(to.slot),
                prior: from.new,
                new: to.new,
                ..*from
            }),
            (Some(from), None) => Some(HashedSlotDiff {
                prior: from.new,
                new: unlisted(from),
                ..*from
            }),
            (None, to) => to.copied(),
        });
        let mut new = other.new;
        if let (Some(new), Some(now)) = (&mut new, self.new) {
            new.storage_root = now.storage_root;
        }
        let diff = Self {
            prior: self.new,
            new,
            slots: slots.filter(|slot| slot.prior != slot.new).collect(),
            ..*self
        };
        (!diff.is_unchanged()).then_some(diff)
    }

    /// Root of the account's storage in the first state.
    pub fn prior_storage_root(&self) -> B256 {
        self.prior
            .map_or(EMPTY_ROOT_HASH, |account| account.storage_root)
    }
}

impl HashedDiff {
    /// Whether the two states are the same.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// How many accounts and slots differ.
    pub(crate) fn len(&self) -> usize {
        let slots = self.accounts.iter().map(|account| account.slots.len());
        self.accounts.len() + slots.sum::<usize>()
    }

    /// Removes and returns the first accounts: as many as make up at least `size` accounts and slots, or all.
    pub(crate) fn take_batch(&mut self, size: usize) -> Self {
        let mut taken = 0;
        let is_rest = |account: &HashedAccountDiff| {
            let is_rest = taken >= size;
            taken += 1 + account.slots.len();
            is_rest
        };
        let end = self.accounts.iter().position(is_rest);
        let rest = end.map(|end| self.accounts.split_off(end));
        Self {
            accounts: std::mem::replace(&mut self.accounts, rest.unwrap_or_default()),
        }
    }

    /// Drops what is listed and does not differ.
    pub(crate) fn without_unchanged(mut self) -> Self {
        self.accounts.retain_mut(|account| {
            account.slots.retain(|slot| slot.prior != slot.new);
            !account.is_unchanged()
        });
        self
    }

    /// From the second state of this diff to the state that `part` gives where it lists something, and this diff where
    /// it does not; both begin at the same state. New storage roots are as in [`HashedDiff::diff_to`].
    pub(crate) fn diff_to_part(&self, part: &Self) -> Self {
        let accounts = part.accounts.iter().filter_map(|to| {
            let new = HashedAccountDiff {
                prior: to.prior,
                new: to.prior,
                slots: Vec::new(),
                ..*to
            };
            let from = self.account(&to.key).unwrap_or(&new);
            // A removed account loses the slots that `part` does not list too.
            let exists = to.new.is_some();
            from.diff_with(to, |slot| if exists { slot.new } else { U256::ZERO })
        });
        let accounts = accounts.collect();
        Self { accounts }
    }

    /// The change of the account with this hashed address, if it is listed.
    pub fn account(&self, key: &B256) -> Option<&HashedAccountDiff> {
        let at = self.accounts.binary_search_by(|a| a.key.cmp(key)).ok()?;
        self.accounts.get(at)
    }

    /// The inverse: from the second state to the first.
    pub fn inverted(mut self) -> Self {
        self.accounts.iter_mut().for_each(HashedAccountDiff::invert);
        self
    }

    /// From the second state of this diff to that of `other`, where both begin at the same state. New storage roots
    /// of accounts in both are those of this diff's second state; they are filled in when the tries move.
    pub(crate) fn diff_to(&self, other: &Self) -> Self {
        let pairs = pairs(&self.accounts, &other.accounts, |account| account.key);
        let accounts = pairs.filter_map(|pair| match pair {
            (Some(from), Some(to)) => from.diff_with(to, |slot| slot.prior),
            (Some(from), None) => {
                let mut back = from.clone();
                back.invert();
                Some(back)
            }
            (None, to) => to.filter(|to| !to.is_unchanged()).cloned(),
        });
        let accounts = accounts.collect();
        Self { accounts }
    }

    /// This diff, then `next`, as one. What ends as it began is dropped.
    pub fn then(mut self, next: Self) -> Self {
        let mut is_dropped = false;
        let join = |first: &mut HashedAccountDiff, second: HashedAccountDiff| {
            first.join(second);
            is_dropped |= first.is_unchanged();
        };
        merge(&mut self.accounts, next.accounts, |a| &a.key, join);
        if is_dropped {
            self.accounts.retain(|account| !account.is_unchanged());
        }
        self
    }
}

/// Joins diffs end to end, pairwise, so that `n` of one size cost `n log n` and not `n^2`.
#[derive(Debug, Default)]
pub(crate) struct DiffAccumulator {
    /// Each with the number of diffs that it is made of: falling powers of two.
    parts: Vec<(u32, HashedDiff)>,
}

impl DiffAccumulator {
    /// Appends the next diff.
    pub(crate) fn add(&mut self, changes: HashedDiff) {
        let mut next = (1, changes);
        while let Some((count, before)) = self.parts.pop_if(|(count, _)| *count == next.0) {
            next = (2 * count, before.then(next.1));
        }
        self.parts.push(next);
    }

    /// All of them as one diff.
    pub(crate) fn finish(mut self) -> HashedDiff {
        let mut all = self.parts.pop().map(|(_, last)| last).unwrap_or_default();
        while let Some((_, before)) = self.parts.pop() {
            all = before.then(all);
        }
        all
    }
}

/// The items of two ascending lists, paired by key.
fn pairs<'a, T>(
    mut first: &'a [T],
    mut second: &'a [T],
    key: impl Fn(&T) -> B256,
) -> impl Iterator<Item = (Option<&'a T>, Option<&'a T>)> {
    std::iter::from_fn(move || {
        let order = match (first.first(), second.first()) {
            (Some(a), Some(b)) => key(a).cmp(&key(b)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        let take = |list: &mut &'a [T]| list.split_off_first();
        Some(match order {
            Ordering::Less => (take(&mut first), None),
            Ordering::Greater => (None, take(&mut second)),
            Ordering::Equal => (take(&mut first), take(&mut second)),
        })
    })
}

/// Merges the ascending list `second` into `first`, in place; `join` combines two items of the same key.
fn merge<T>(
    first: &mut Vec<T>,
    second: Vec<T>,
    key: impl Fn(&T) -> &B256,
    mut join: impl FnMut(&mut T, T),
) {
    if first.is_empty() {
        *first = second;
        return;
    }
    let (mut from, sorted) = (0, first.len());
    for item in second {
        let old = &mut first[from..sorted];
        match old.binary_search_by(|old| key(old).cmp(key(&item))) {
            Ok(at) => {
                join(&mut old[at], item);
                from += at;
            }
            Err(at) => {
                from += at;
                first.push(item);
            }
        }
    }
    // Two ascending runs, which the stable sort merges.
    first.sort_by(|a, b| key(a).cmp(key(b)));
}
