//! From what a block changed, by address and slot, to the changes of the disk's rows.

use crate::changes::{AccountChange, Changes, SlotChange};
use crate::layers::Layers;
use crate::{StateHead, View};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Bytes, EMPTY_ROOT_HASH, Fault, StateDiff, U256,
};
use niwaki_trie::TrieAccount;
use std::panic::resume_unwind;
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

    /// What the block changed, with storage roots.
    pub fn changes(&self) -> &Changes {
        &self.own
    }
}

/// `diff` by hashed keys, with every slot of destroyed storage spelled out, on so many threads if
/// it is large. New storage roots are those before, to be filled in when the tries move.
pub(crate) fn hashed(view: &View, diff: &StateDiff, threads: usize) -> Result<Changes, Fault> {
    let slots = diff.accounts.iter().map(|(_, change)| change.slots.len());
    let values = diff.accounts.len() + slots.sum::<usize>();
    let mut accounts = Vec::with_capacity(diff.accounts.len());
    if threads == 1 || values < VALUES_WORTH_THREADS {
        hash_part(view, &diff.accounts, &mut accounts)?;
    } else {
        let work = |part| {
            move || {
                let mut accounts = Vec::new();
                hash_part(view, part, &mut accounts).map(|()| accounts)
            }
        };
        std::thread::scope(|scope| {
            let parts = diff.accounts.chunks(diff.accounts.len().div_ceil(threads));
            let helpers: Vec<_> = parts.map(|part| scope.spawn(work(part))).collect();
            for helper in helpers {
                accounts.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic))?);
            }
            Ok(())
        })?;
    }
    accounts.sort_unstable_by_key(|account| account.key);
    Ok(Changes { accounts })
}

/// An account and what became of it.
type Changed = (Address, AccountDiff);

/// So many accounts and slots are worth several threads.
const VALUES_WORTH_THREADS: usize = 2048;

fn hash_part(
    view: &View,
    changed: &[Changed],
    accounts: &mut Vec<AccountChange>,
) -> Result<(), Fault> {
    let addresses: Vec<&[u8]> = changed.iter().map(|(a, _)| a.as_slice()).collect();
    let keys = keccak256_batch(&addresses);
    let slots = changed.iter().flat_map(|(_, change)| &change.slots);
    let words: Vec<[u8; 32]> = slots.map(|(slot, _)| slot.to_be_bytes()).collect();
    let words: Vec<&[u8]> = words.iter().map(<[u8; 32]>::as_slice).collect();
    let slot_keys = keccak256_batch(&words);
    let mut rest = &slot_keys[..];
    for ((address, change), key) in changed.iter().zip(keys) {
        let (own, others) = rest.split_at(change.slots.len());
        rest = others;
        accounts.push(hashed_account(view, (*address, key), change, own)?);
    }
    Ok(())
}

/// `slot_keys` are the hashes of the slots that `change` lists.
fn hashed_account(
    view: &View,
    (address, key): (Address, B256),
    change: &AccountDiff,
    slot_keys: &[B256],
) -> Result<AccountChange, Fault> {
    let prior = view.trie_account(&address)?;
    debug_assert_eq!(
        prior.map(|p| p.account()),
        change.prior,
        "prior of {address}"
    );
    let prior_root = prior.map_or(EMPTY_ROOT_HASH, |account| account.storage_root);
    let with_root = |account: &Account| TrieAccount::new(account, prior_root);
    let is_wiped = change.storage_wiped || change.new.is_none();

    let mut slots: Vec<SlotChange> = Vec::with_capacity(change.slots.len());
    for ((slot, value), key) in change.slots.iter().zip(slot_keys) {
        let new = if change.new.is_some() {
            value.new
        } else {
            U256::ZERO
        };
        slots.push(SlotChange {
            key: *key,
            slot: Some(*slot),
            prior: value.prior,
            new,
        });
    }
    slots.sort_unstable_by_key(|slot| slot.key);
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
