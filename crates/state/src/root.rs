//! From what a block changed, by address and slot, to the changes of the disk's rows, and to the root.

use crate::changes::{AccountChange, Changes, SlotChange};
use crate::commit_rows::BYTES_PER_VALUE;
use crate::keys::{KeyedAccount, Keys};
use crate::layers::Layers;
use crate::tries::Tries;
use crate::{StateHead, View, WorldState};
use niwaki_primitives::{
    Account, AccountDiff, B256, Bytes, EMPTY_ROOT_HASH, Fault, StateDiff, U256,
};
use niwaki_storage::Segment;
use niwaki_trie::TrieAccount;
use std::sync::Arc;

/// A block's changes with the state root they lead to, ready to be committed or kept beside.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The head that `before` and `after` begin at.
    pub(crate) head: StateHead,
    pub(crate) root: B256,
    /// From the parent's state to the block's.
    pub(crate) own: Arc<Changes>,
    /// From the head's state to the parent's.
    pub(crate) before: Layers,
    /// From the head's state to the block's.
    pub(crate) after: Layers,
    pub(crate) codes: Vec<(B256, Bytes)>,
    /// While the tries count so many moves, they are those of this state.
    pub(crate) moves: u64,
}

impl Prepared {
    /// The state root after the block.
    pub fn root(&self) -> B256 {
        self.root
    }

    /// About how many bytes its trie log and codes are.
    pub fn log_bytes(&self) -> usize {
        let codes = self.codes.iter().map(|(_, code)| code.len());
        self.own.len() * BYTES_PER_VALUE / 2 + codes.sum::<usize>()
    }

    /// What the block changed, with storage roots.
    pub fn changes(&self) -> &Changes {
        &self.own
    }
}

impl WorldState {
    /// Computes the root of the state that `diff` makes of `view`'s, without writing anything.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; [`Fault::Missing`] if the head has moved so far since `view` was
    /// made that its state is out of reach.
    pub fn prepare(&self, view: &View, diff: &StateDiff) -> Result<Prepared, Fault> {
        self.prepare_when(view, diff, || ())
    }

    /// The same, and calls `is_due` when it comes to the tries: a root that is begun meanwhile does its work
    /// until then.
    ///
    /// # Errors
    /// As [`WorldState::prepare`].
    pub fn prepare_when(
        &self,
        view: &View,
        diff: &StateDiff,
        is_due: impl FnOnce(),
    ) -> Result<Prepared, Fault> {
        let own = self.hashed(view, diff)?;
        is_due();
        self.prepare_in(&mut self.tries(), view, own, diff)
    }

    /// As [`WorldState::prepare`], on this thread alone.
    ///
    /// # Errors
    /// As [`WorldState::prepare`].
    pub fn prepare_alone(&self, view: &View, diff: &StateDiff) -> Result<Prepared, Fault> {
        let own = self.hashed(view, diff)?;
        let mut tries = self.tries();
        tries.alone(|tries| self.prepare_in(tries, view, own, diff))
    }

    fn prepare_in(
        &self,
        tries: &mut Tries,
        view: &View,
        own: Changes,
        diff: &StateDiff,
    ) -> Result<Prepared, Fault> {
        if self.head() == Some(view.head()) {
            return self.prepare_upon(view, tries, own, diff);
        }
        let now = self.laid_over(self.view_at_head()?, view.block())?;
        let now = now.ok_or_else(|| Fault::Missing {
            segment: Segment::TrieLogs.name(),
            key: format!("block {} (its state is out of reach)", view.block()),
        })?;
        self.prepare_upon(&now, tries, own, diff)
    }

    fn hashed(&self, view: &View, diff: &StateDiff) -> Result<Changes, Fault> {
        let last = Arc::clone(&self.keys());
        let keys = Arc::new(last.of(view, diff)?);
        *self.keys() = Arc::clone(&keys);
        Ok(hashed(view, diff, &keys)?.without_same())
    }

    /// By hashed keys as well, with what does not differ.
    pub(crate) fn hashed_part(&self, view: &View, part: &StateDiff) -> Result<Changes, Fault> {
        let last = Arc::clone(&self.keys());
        let keys = last.of(view, part)?;
        *self.keys() = Arc::new(last.and(&keys));
        hashed(view, part, &keys)
    }

    /// As [`WorldState::prepare`], upon a view of the present head, by hashed keys.
    fn prepare_upon(
        &self,
        view: &View,
        tries: &mut Tries,
        own: Changes,
        diff: &StateDiff,
    ) -> Result<Prepared, Fault> {
        let before = view.overlay().map(|overlay| overlay.layers.clone());
        let before = before.unwrap_or_default();
        let (root, own) = self.move_to_step(tries, view, &before, own)?;
        let mut after = before.clone();
        after.add(Arc::clone(&own));
        Ok(Prepared {
            head: view.head(),
            root,
            own,
            before,
            after,
            codes: diff.codes.clone(),
            moves: tries.moves(),
        })
    }

    /// Moves `tries` to the state that is `before` and then `last` away from the head's, which is that of
    /// `view`: its root, and `last` with storage roots.
    pub(crate) fn move_to_step(
        &self,
        tries: &mut Tries,
        view: &View,
        before: &Layers,
        mut last: Changes,
    ) -> Result<(B256, Arc<Changes>), Fault> {
        let root = self.advance(tries, &view.head(), before, &mut last)?;
        let last = Arc::new(last);
        let mut ahead = before.clone();
        ahead.add(Arc::clone(&last));
        tries.set_ahead(ahead);
        Ok((root, last))
    }
}

/// `diff`, whose keys are `keys`, by those, with every slot of destroyed storage spelled out. New storage roots
/// are those before, to be filled in when the tries move. What is listed need not differ.
pub(crate) fn hashed(view: &View, diff: &StateDiff, keys: &Keys) -> Result<Changes, Fault> {
    let both = diff.accounts.iter().zip(keys.each());
    let mut both: Vec<_> = both.collect();
    both.sort_unstable_by_key(|(_, (account, _))| account.key);
    let mut accounts = Vec::with_capacity(both.len());
    for ((_, change), (account, slots)) in both {
        accounts.push(hashed_account(view, account, change, slots)?);
    }
    Ok(Changes { accounts })
}

/// `slot_keys` are the slots that `change` lists, and their hashes.
fn hashed_account(
    view: &View,
    account: &KeyedAccount,
    change: &AccountDiff,
    slot_keys: &[(U256, B256)],
) -> Result<AccountChange, Fault> {
    let KeyedAccount {
        address,
        key,
        prior,
        ..
    } = *account;
    debug_assert_eq!(
        prior.map(|p| p.account()),
        change.prior,
        "prior of {address}"
    );
    let prior_root = prior.map_or(EMPTY_ROOT_HASH, |account| account.storage_root);
    let with_root = |account: &Account| TrieAccount::new(account, prior_root);
    let is_wiped = change.storage_wiped || change.new.is_none();

    let mut order: Vec<usize> = (0..slot_keys.len()).collect();
    order.sort_unstable_by_key(|at| slot_keys[*at].1);
    let slots = order.into_iter().map(|at| {
        let (slot, value) = change.slots[at];
        let new = match change.new {
            Some(_) => value.new,
            None => U256::ZERO,
        };
        SlotChange {
            key: slot_keys[at].1,
            slot: Some(slot),
            prior: value.prior,
            new,
        }
    });
    let mut slots: Vec<SlotChange> = slots.collect();
    if is_wiped && prior_root != EMPTY_ROOT_HASH {
        let listed = slots.len();
        for (key, prior) in view.slots_by_key(&key)? {
            if slots[..listed]
                .binary_search_by(|slot| slot.key.cmp(&key))
                .is_err()
            {
                let (slot, new) = (None, U256::ZERO);
                slots.push(SlotChange {
                    key,
                    slot,
                    prior,
                    new,
                });
            }
        }
        slots.sort_unstable_by_key(|slot| slot.key);
    }
    Ok(AccountChange {
        key,
        address,
        prior,
        new: change.new.as_ref().map(with_root),
        slots,
    })
}
