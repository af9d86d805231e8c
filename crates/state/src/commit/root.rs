//! From what a block changed, by address and slot, to its state root.
//!
//! ```text
//! StateDiff --hash_diff--> HashedDiff --TrieCache::move_to--> root + storage roots = ComputedRoot
//! by address, slot         by hashed key                      ready to be committed or staged
//! ```

use crate::commit::hashed_diff::{HashedAccountDiff, HashedDiff, HashedSlotDiff};
use crate::commit::hashed_keys::{HashedKeys, KeyedAccount};
use crate::commit::rows::BYTES_PER_VALUE;
use crate::tries::trie_cache::TrieCache;
use crate::views::layers::DiffLayers;
use crate::{StateHead, View, WorldState};
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Bytes, DirtyState, EMPTY_ROOT_HASH, Fault, StateDiff, U256,
};
use niwaki_storage::Segment;
use niwaki_trie::TrieAccount;
use std::sync::Arc;

/// What a block changed and the state root after it, ready for [`WorldState::commit`] or
/// [`WorldState::stage_side_block`].
#[derive(Clone, Debug)]
pub struct ComputedRoot {
    /// The head that `before` and `after` are relative to.
    pub(crate) head: StateHead,
    pub(crate) root: B256,
    /// From the parent's state to the block's.
    pub(crate) own: Arc<HashedDiff>,
    /// From the head's state to the parent's.
    pub(crate) before: DiffLayers,
    /// From the head's state to the block's.
    pub(crate) after: DiffLayers,
    pub(crate) codes: Vec<(B256, Bytes)>,
    /// While the tries have this epoch, they are those of the block's state.
    pub(crate) epoch: u64,
}

impl ComputedRoot {
    /// The state root after the block.
    pub fn root(&self) -> B256 {
        self.root
    }

    /// About the bytes of its trie log and codes.
    pub fn trie_log_bytes(&self) -> usize {
        let codes = self.codes.iter().map(|(_, code)| code.len());
        self.own.len() * BYTES_PER_VALUE / 2 + codes.sum::<usize>()
    }

    /// What the block changed, with storage roots.
    pub fn diff(&self) -> &HashedDiff {
        &self.own
    }
}

impl WorldState {
    /// Computes the root of the state after `diff` on top of `view`. Nothing is written.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; [`Fault::Missing`] if the head has moved so far since `view` was made that a
    /// trie log in between is not kept any more.
    pub fn compute_root(&self, view: &View, diff: &StateDiff) -> Result<ComputedRoot, Fault> {
        let own = self.hash_diff(view, diff)?;
        self.compute_with_tries(&mut self.tries(), view, own, &diff.codes)
    }

    /// As [`WorldState::compute_root`], on the calling thread only.
    ///
    /// # Errors
    /// As [`WorldState::compute_root`].
    pub fn compute_root_single_threaded(
        &self,
        view: &View,
        diff: &StateDiff,
    ) -> Result<ComputedRoot, Fault> {
        let own = self.hash_diff(view, diff)?;
        let mut tries = self.tries();
        tries.single_threaded(|tries| self.compute_with_tries(tries, view, own, &diff.codes))
    }

    /// As [`WorldState::compute_root`], of a diff that is hashed already, with the new codes.
    pub(crate) fn compute_with_tries(
        &self,
        tries: &mut TrieCache,
        view: &View,
        own: HashedDiff,
        codes: &[(B256, Bytes)],
    ) -> Result<ComputedRoot, Fault> {
        if self.head() == Some(view.head) {
            return self.compute_on_head(view, tries, own, codes);
        }
        let now = self.overlaid(self.view_at_head()?, view.block())?;
        let now = now.ok_or_else(|| Fault::Missing {
            segment: Segment::TrieLogs.name(),
            key: format!("block {} (its state is out of reach)", view.block()),
        })?;
        self.compute_on_head(&now, tries, own, codes)
    }

    /// `diff` by hashed keys, without what does not differ.
    pub(crate) fn hash_diff(&self, view: &View, diff: &StateDiff) -> Result<HashedDiff, Fault> {
        let last = Arc::clone(&self.keys());
        let keys = Arc::new(last.of_diff(view, &diff.accounts)?);
        *self.keys() = Arc::clone(&keys);
        Ok(hash_diff(view, &diff.accounts, &keys)?.without_unchanged())
    }

    /// The same for a part of what a block has changed so far. Unchanged accounts and slots stay listed, because they
    /// may undo what an earlier part has changed.
    pub(crate) fn hash_part(&self, view: &View, part: &DirtyState) -> Result<HashedDiff, Fault> {
        let last = Arc::clone(&self.keys());
        let keys = last.of_diff(view, &part.accounts)?;
        *self.keys() = Arc::new(last.merged_with(&keys));
        hash_diff(view, &part.accounts, &keys)
    }

    /// As [`WorldState::compute_root`], on top of a view of the present head.
    fn compute_on_head(
        &self,
        view: &View,
        tries: &mut TrieCache,
        own: HashedDiff,
        codes: &[(B256, Bytes)],
    ) -> Result<ComputedRoot, Fault> {
        let before = view.layers();
        let (root, own) = self.move_tries_to(tries, view, &before, own)?;
        let mut after = before.clone();
        after.add(Arc::clone(&own));
        Ok(ComputedRoot {
            head: view.head,
            root,
            own,
            before,
            after,
            codes: codes.to_vec(),
            epoch: tries.epoch(),
        })
    }

    /// Moves `tries` to the state that is `before` and then `last` away from the head's, which must be the head of
    /// `view`. Returns its root, and `last` with storage roots.
    pub(crate) fn move_tries_to(
        &self,
        tries: &mut TrieCache,
        view: &View,
        before: &DiffLayers,
        mut last: HashedDiff,
    ) -> Result<(B256, Arc<HashedDiff>), Fault> {
        let root = self.move_tries(tries, &view.head, before, &mut last)?;
        let last = Arc::new(last);
        let mut offset = before.clone();
        offset.add(Arc::clone(&last));
        tries.set_offset(offset);
        Ok((root, last))
    }
}

/// `diff` by hashed `keys`, which must be its own, with every slot of destroyed storage listed. New storage roots
/// are the prior ones; they are filled in when the tries move. Unchanged accounts and slots are kept.
pub(crate) fn hash_diff(
    view: &View,
    diff: &[(Address, AccountDiff)],
    keys: &HashedKeys,
) -> Result<HashedDiff, Fault> {
    let both = diff.iter().zip(keys.iter());
    let mut both: Vec<_> = both.collect();
    both.sort_unstable_by_key(|(_, (account, _))| account.key);
    let mut accounts = Vec::with_capacity(both.len());
    for ((_, change), (account, slots)) in both {
        accounts.push(hash_account(view, account, change, slots)?);
    }
    Ok(HashedDiff { accounts })
}

/// `slot_keys` are the slots of `change` with their hashes.
fn hash_account(
    view: &View,
    account: &KeyedAccount,
    change: &AccountDiff,
    slot_keys: &[(U256, B256)],
) -> Result<HashedAccountDiff, Fault> {
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
        HashedSlotDiff {
            key: slot_keys[at].1,
            slot: Some(slot),
            prior: value.prior,
            new,
        }
    });
    let mut slots: Vec<HashedSlotDiff> = slots.collect();
    if is_wiped && prior_root != EMPTY_ROOT_HASH {
        let listed = slots.len();
        for (key, prior) in view.slots_by_key(&key)? {
            if slots[..listed]
                .binary_search_by(|slot| slot.key.cmp(&key))
                .is_err()
            {
                let (slot, new) = (None, U256::ZERO);
                slots.push(HashedSlotDiff {
                    key,
                    slot,
                    prior,
                    new,
                });
            }
        }
        slots.sort_unstable_by_key(|slot| slot.key);
    }
    Ok(HashedAccountDiff {
        key,
        address,
        prior,
        new: change.new.as_ref().map(with_root),
        slots,
    })
}
