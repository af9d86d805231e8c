//! From what a block changed, by address and slot, to the changes of the disk's rows.

use crate::changes::{AccountChange, Changes, SlotChange};
use crate::commit_rows::BYTES_PER_VALUE;
use crate::keys::{KeyedAccount, Keys};
use crate::layers::Layers;
use crate::{StateHead, View};
use niwaki_primitives::{
    Account, AccountDiff, B256, Bytes, EMPTY_ROOT_HASH, Fault, StateDiff, U256,
};
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

/// `diff`, whose keys are `keys`, by those, with every slot of destroyed storage spelled out. New storage roots
/// are those before, to be filled in when the tries move.
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
    slots.retain(|slot| slot.prior != slot.new);
    Ok(AccountChange {
        key,
        address,
        prior,
        new: change.new.as_ref().map(with_root),
        slots,
    })
}
