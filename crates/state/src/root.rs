//! From the changes of a block to its state root and the rows that make it so.

use crate::changes::{AccountChange, Changes, SlotChange};
use crate::disk_trie::DiskTrie;
use crate::{StateHead, View};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Bytes, EMPTY_ROOT_HASH, Fault, StateDiff, U256,
};
use niwaki_trie::{
    LeafUpdate, Owner, Path, RowUpdates, TrieAccount, TrieUpdate, encode_slot, update_trie,
    update_tries,
};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A block's changes with the state root they lead to, ready to be committed or kept beside.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The head that `rows` were computed upon.
    pub(crate) head: StateHead,
    pub(crate) root: B256,
    /// From the parent's state to the block's.
    pub(crate) own: Changes,
    /// From the head's state to the block's, where the parent is not the head.
    pub(crate) from_head: Option<Changes>,
    pub(crate) rows: Vec<(Owner, RowUpdates)>,
    pub(crate) codes: Vec<(B256, Bytes)>,
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

/// Computes the root of the state that `diff` makes of `view`'s.
pub(crate) fn prepare(view: &View<'_>, diff: &StateDiff) -> Result<Prepared, Fault> {
    let mut own = hashed(view, diff)?;
    let codes = diff.codes.clone();
    match view.overlay() {
        None => {
            let (root, rows) = advance(view, &mut own)?;
            Ok(Prepared {
                head: view.head(),
                root,
                own,
                from_head: None,
                rows,
                codes,
            })
        }
        Some(overlay) => {
            let mut total = overlay.changes.clone().then(own.clone());
            let (root, rows) = advance(view, &mut total)?;
            for account in &mut own.accounts {
                if let Some(new) = &mut account.new {
                    // An account that ends as it is in the head is not among the changes.
                    let after = match total.account(&account.key) {
                        Some(change) => change.new,
                        None => view.head_account(&account.key)?,
                    };
                    new.storage_root = after.map_or(EMPTY_ROOT_HASH, |a| a.storage_root);
                }
            }
            let from_head = Some(total);
            Ok(Prepared {
                head: view.head(),
                root,
                own,
                from_head,
                rows,
                codes,
            })
        }
    }
}

/// Moves the tries of the head by `changes`, fills in the new storage roots, and gives the new
/// state root and the changed rows.
pub(crate) fn advance(
    view: &View<'_>,
    changes: &mut Changes,
) -> Result<(B256, Vec<(Owner, RowUpdates)>), Fault> {
    let trie = DiskTrie(view);
    let slots: Vec<Vec<_>> = changes
        .accounts
        .iter()
        .map(|account| account.slots.iter().map(slot_update).collect())
        .collect();
    let accounts = changes.accounts.iter().zip(&slots);
    let storage: Vec<_> = accounts
        .map(|(account, leaves)| TrieUpdate {
            owner: Some(account.key),
            root: account.prior_storage_root(),
            leaves,
        })
        .collect();
    let storage = update_in_parallel(&trie, &storage, view.threads())?;

    let mut all_rows = Vec::new();
    let mut leaves = Vec::with_capacity(changes.accounts.len());
    for (account, (storage_root, rows)) in changes.accounts.iter_mut().zip(storage) {
        if !rows.is_empty() {
            all_rows.push((Some(account.key), rows));
        }
        let value = account.new.as_mut().map(|new| {
            new.storage_root = storage_root;
            new.to_leaf()
        });
        leaves.push(LeafUpdate {
            key: Path::of_hash(&account.key),
            value,
            replaces: account.prior.is_some(),
        });
    }
    let (root, rows) = update_trie(&trie, None, view.head().root, &leaves)?;
    all_rows.push((None, rows));
    Ok((root, all_rows))
}

/// Changed leaves that are taken up at once: enough nodes of each height to fill the lanes of the
/// batch keccak, few enough for all of them to stay in a core's cache until they are hashed.
const LEAVES_PER_PART: usize = 128;

/// As [`update_tries`], on up to `threads` threads; the outcome does not depend on their number.
fn update_in_parallel(
    trie: &DiskTrie<'_>,
    updates: &[TrieUpdate<'_>],
    threads: usize,
) -> Result<Vec<(B256, RowUpdates)>, Fault> {
    let parts = parts(updates);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut outcomes = Vec::new();
        // Only who takes which part hangs on the counter.
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(part) = parts.get(index)
        {
            outcomes.push((index, update_tries(trie, part)));
        }
        outcomes
    };
    let mut outcomes = std::thread::scope(|scope| {
        let helpers = threads.min(parts.len()).saturating_sub(1);
        let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
        let mut outcomes = work();
        for helper in helpers {
            outcomes.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        outcomes
    });
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    let mut all = Vec::with_capacity(updates.len());
    for (_, outcome) in outcomes {
        all.append(&mut outcome?);
    }
    Ok(all)
}

/// `updates` in parts of about [`LEAVES_PER_PART`] leaves, each of one trie at least.
fn parts<'a, 'b>(mut updates: &'a [TrieUpdate<'b>]) -> Vec<&'a [TrieUpdate<'b>]> {
    let mut parts = Vec::new();
    while !updates.is_empty() {
        let mut taken = 0;
        let fits = |update: &&TrieUpdate<'_>| {
            let has_room = taken < LEAVES_PER_PART;
            taken += update.leaves.len();
            has_room
        };
        let count = updates.iter().take_while(fits).count();
        let (part, rest) = updates.split_at(count);
        parts.push(part);
        updates = rest;
    }
    parts
}

fn slot_update(slot: &SlotChange) -> LeafUpdate {
    LeafUpdate {
        key: Path::of_hash(&slot.key),
        value: (!slot.new.is_zero()).then(|| encode_slot(&slot.new)),
        replaces: !slot.prior.is_zero(),
    }
}

/// `diff` by hashed keys, with every slot of destroyed storage spelled out. New storage roots are
/// those before, to be filled in by [`advance`].
fn hashed(view: &View<'_>, diff: &StateDiff) -> Result<Changes, Fault> {
    let addresses: Vec<&[u8]> = diff.accounts.iter().map(|(a, _)| a.as_slice()).collect();
    let keys = keccak256_batch(&addresses);
    let slots = diff.accounts.iter().flat_map(|(_, change)| &change.slots);
    let words: Vec<[u8; 32]> = slots.map(|(slot, _)| slot.to_be_bytes()).collect();
    let words: Vec<&[u8]> = words.iter().map(<[u8; 32]>::as_slice).collect();
    let mut slot_keys = keccak256_batch(&words).into_iter();

    let mut accounts = Vec::with_capacity(keys.len());
    for ((address, change), key) in diff.accounts.iter().zip(keys) {
        let own: Vec<B256> = slot_keys.by_ref().take(change.slots.len()).collect();
        accounts.push(hashed_account(view, (*address, key), change, &own)?);
    }
    accounts.sort_unstable_by_key(|account| account.key);
    Ok(Changes { accounts })
}

/// `slot_keys` are the hashes of the slots that `change` lists.
fn hashed_account(
    view: &View<'_>,
    (address, key): (Address, B256),
    change: &AccountDiff,
    slot_keys: &[B256],
) -> Result<AccountChange, Fault> {
    let prior = view.account_by_key(&key)?;
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
