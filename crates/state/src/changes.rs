//! What lies between two states, keyed as the disk is: by hashed address and hashed slot.
//!
//! A [`Changes`] is a value that can be turned around and joined end to end, which is all that
//! rolling back, rolling forward and looking at a side branch amount to.

use alloy_primitives::keccak256;
use niwaki_primitives::{Address, B256, EMPTY_ROOT_HASH, U256};
use niwaki_trie::TrieAccount;
use std::cmp::Ordering;

/// All that differs between one state and another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changed accounts, strictly ascending by hashed address.
    pub accounts: Vec<AccountChange>,
}

/// How one account differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountChange {
    /// Keccak-256 of the address.
    pub key: B256,
    /// The address.
    pub address: Address,
    /// The account in the first state; `None` if it does not exist there.
    pub prior: Option<TrieAccount>,
    /// The account in the second state; `None` if it does not exist there.
    pub new: Option<TrieAccount>,
    /// Every slot that differs, strictly ascending by hashed slot. Destroyed storage is listed
    /// slot by slot.
    pub slots: Vec<SlotChange>,
}

/// How one slot differs; zero is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotChange {
    /// Keccak-256 of the slot as 32 bytes.
    pub key: B256,
    /// The slot, where it is known; of a slot found only because its storage was destroyed, it is
    /// not.
    pub slot: Option<U256>,
    /// Value in the first state.
    pub prior: U256,
    /// Value in the second state.
    pub new: U256,
}

impl SlotChange {
    /// The change of a known slot.
    pub fn of_slot(slot: U256, prior: U256, new: U256) -> Self {
        Self {
            key: keccak256(B256::from(slot)),
            slot: Some(slot),
            prior,
            new,
        }
    }
}

impl AccountChange {
    fn is_nothing(&self) -> bool {
        self.prior == self.new && self.slots.is_empty()
    }

    /// How the slot with this hash differs, if it does.
    pub fn slot(&self, key: &B256) -> Option<&SlotChange> {
        let at = self.slots.binary_search_by(|slot| slot.key.cmp(key)).ok()?;
        self.slots.get(at)
    }

    /// These changes, then `next`, of the same account.
    fn join(&mut self, next: Self) {
        let mut is_dropped = false;
        let join = |first: &mut SlotChange, second: SlotChange| {
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

    /// See [`Changes::way_to`]; `None` if the second states have the same.
    fn way_to(&self, other: &Self) -> Option<Self> {
        self.way(other, |slot| slot.prior)
    }

    /// The way to the second state of `other`, in which the slots that only these changes list are as they are
    /// `left`; `None` if it is the same.
    fn way(&self, other: &Self, left: impl Fn(&SlotChange) -> U256) -> Option<Self> {
        let slots = pairs(&self.slots, &other.slots, |slot| slot.key);
        let slots = slots.filter_map(|pair| match pair {
            (Some(from), Some(to)) => Some(SlotChange {
                slot: from.slot.or(to.slot),
                prior: from.new,
                new: to.new,
                ..*from
            }),
            (Some(from), None) => Some(SlotChange {
                prior: from.new,
                new: left(from),
                ..*from
            }),
            (None, to) => to.copied(),
        });
        let mut new = other.new;
        if let (Some(new), Some(now)) = (&mut new, self.new) {
            new.storage_root = now.storage_root;
        }
        let way = Self {
            prior: self.new,
            new,
            slots: slots.filter(|slot| slot.prior != slot.new).collect(),
            ..*self
        };
        (!way.is_nothing()).then_some(way)
    }

    /// Root of the account's storage in the first state.
    pub fn prior_storage_root(&self) -> B256 {
        self.prior
            .map_or(EMPTY_ROOT_HASH, |account| account.storage_root)
    }
}

impl Changes {
    /// Whether the two states are the same.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// How many accounts and slots differ.
    pub(crate) fn len(&self) -> usize {
        let slots = self.accounts.iter().map(|account| account.slots.len());
        self.accounts.len() + slots.sum::<usize>()
    }

    /// Takes the first accounts that have at least `size` accounts and slots, or all.
    pub(crate) fn take_lot(&mut self, size: usize) -> Self {
        let mut taken = 0;
        let is_rest = |account: &AccountChange| {
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

    /// What is listed and does not differ is dropped.
    pub(crate) fn without_same(mut self) -> Self {
        self.accounts.retain_mut(|account| {
            account.slots.retain(|slot| slot.prior != slot.new);
            !account.is_nothing()
        });
        self
    }

    /// The way from the second state of these changes to one that is as `part` says, and as these leave what that
    /// does not list; both begin at the same state. New storage roots are as in [`Changes::way_to`].
    pub(crate) fn onward(&self, part: &Self) -> Self {
        let accounts = part.accounts.iter().filter_map(|to| {
            let new = AccountChange {
                prior: to.prior,
                new: to.prior,
                slots: Vec::new(),
                ..*to
            };
            let from = self.account(&to.key).unwrap_or(&new);
            // Of an account that is gone nothing stays.
            let stays = to.new.is_some();
            from.way(to, |slot| if stays { slot.new } else { U256::ZERO })
        });
        let accounts = accounts.collect();
        Self { accounts }
    }

    /// How the account with this hashed address differs, if it does.
    pub fn account(&self, key: &B256) -> Option<&AccountChange> {
        let at = self.accounts.binary_search_by(|a| a.key.cmp(key)).ok()?;
        self.accounts.get(at)
    }

    /// The way back: from the second state to the first.
    pub fn inverted(mut self) -> Self {
        self.accounts.iter_mut().for_each(AccountChange::invert);
        self
    }

    /// The way from the second state of these changes to that of `other`, where both begin at the same state.
    /// New storage roots of accounts in both are as they are in the second state of these: they hang on the
    /// slots.
    pub(crate) fn way_to(&self, other: &Self) -> Self {
        let pairs = pairs(&self.accounts, &other.accounts, |account| account.key);
        let accounts = pairs.filter_map(|pair| match pair {
            (Some(from), Some(to)) => from.way_to(to),
            (Some(from), None) => {
                let mut back = from.clone();
                back.invert();
                Some(back)
            }
            (None, to) => to.filter(|to| !to.is_nothing()).cloned(),
        });
        let accounts = accounts.collect();
        Self { accounts }
    }

    /// These changes, then `next`, as one. What ends as it began is dropped.
    pub fn then(mut self, next: Self) -> Self {
        let mut is_dropped = false;
        let join = |first: &mut AccountChange, second: AccountChange| {
            first.join(second);
            is_dropped |= first.is_nothing();
        };
        merge(&mut self.accounts, next.accounts, |a| &a.key, join);
        if is_dropped {
            self.accounts.retain(|account| !account.is_nothing());
        }
        self
    }
}

/// Changes joined one after the other. Joined pairwise, so that `n` of one size cost `n log n`, not
/// the square.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// Each with the number of changes it is made of, which are powers of two, falling.
    parts: Vec<(u32, Changes)>,
}

impl Joined {
    /// Adds what comes after all that is there.
    pub(crate) fn add(&mut self, changes: Changes) {
        let mut next = (1, changes);
        while let Some((count, before)) = self.parts.pop_if(|(count, _)| *count == next.0) {
            next = (2 * count, before.then(next.1));
        }
        self.parts.push(next);
    }

    /// All of them as one.
    pub(crate) fn finish(mut self) -> Changes {
        let mut all = self.parts.pop().map(|(_, last)| last).unwrap_or_default();
        while let Some((_, before)) = self.parts.pop() {
            all = before.then(all);
        }
        all
    }
}

/// The items of two ascending lists, those of the same key together.
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

/// Merges an ascending list into another, in place; `join` adds an item to the one with the same key.
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
    // Two ascending runs.
    first.sort_by(|a, b| key(a).cmp(key(b)));
}
