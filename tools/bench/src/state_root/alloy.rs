//! alloy-trie as a contender: what a client built on it does for a state root.
//!
//! In memory are the leaves, sorted by hashed key, and the branch nodes that the hash builder wants stored, by path. A
//! root walks down from the first stored branch: a subtrie without changes goes to the builder as one hash, leaves of
//! the other subtries one by one. The storage tries of different accounts are updated on as many threads as ours.
//!
//! Timed: hashing addresses and slots (as in our time), sorting them, all roots, collecting the updated branches. Not
//! timed, in its favour: writing the new leaves, which a client would overlay on its database, and storing the updated
//! branches.

use super::Outcome;
use alloy_primitives::keccak256;
use alloy_rlp::Encodable;
use alloy_trie::{BranchNodeCompact, EMPTY_ROOT_HASH, HashBuilder, Nibbles, TrieAccount};
use eyre::{Result, ensure, eyre};
use niwaki_primitives::map::HashMap;
use niwaki_primitives::{AccountDiff, Address, B256, StateDiff, U256};
use niwaki_state::{decode_account, decode_value};
use niwaki_storage::{Database, Segment};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A trie as its leaves and stored branches.
#[derive(Debug)]
struct Trie<V> {
    leaves: BTreeMap<B256, V>,
    branches: BTreeMap<Nibbles, BranchNodeCompact>,
    root: B256,
}

/// A new root and the changes to the stored branches.
struct TrieUpdate {
    root: B256,
    /// Stored branches that were visited; those that are not in `updated` are removed.
    visited: Vec<Nibbles>,
    updated: HashMap<Nibbles, BranchNodeCompact>,
}

impl<V: Encodable> Trie<V> {
    /// A trie of `leaves` without a computed root.
    fn new(leaves: BTreeMap<B256, V>) -> Self {
        Self {
            leaves,
            branches: BTreeMap::new(),
            root: EMPTY_ROOT_HASH,
        }
    }

    /// The root after the leaves at `changed`, sorted, were set or removed.
    fn update(&self, changed: &[Nibbles]) -> TrieUpdate {
        let mut walk = TrieWalk {
            trie: self,
            builder: HashBuilder::default().with_updates(true),
            visited: Vec::new(),
            value: Vec::new(),
        };
        walk.subtrie(Nibbles::new(), changed);
        let root = walk.builder.root();
        TrieUpdate {
            root,
            visited: walk.visited,
            updated: walk.builder.split().1,
        }
    }

    fn apply(&mut self, update: TrieUpdate) {
        for path in &update.visited {
            self.branches.remove(path);
        }
        self.branches.extend(update.updated);
        self.root = update.root;
    }
}

/// A walk over one trie from left to right, which feeds the hash builder.
struct TrieWalk<'a, V> {
    trie: &'a Trie<V>,
    builder: HashBuilder,
    visited: Vec<Nibbles>,
    /// Buffer for the encoding of a leaf's value.
    value: Vec<u8>,
}

impl<V: Encodable> TrieWalk<'_, V> {
    /// Everything at or below `path`; `changed` are the changed keys there.
    fn subtrie(&mut self, path: Nibbles, changed: &[Nibbles]) {
        let mut stored = self.trie.branches.range(path..);
        let first = stored.next().filter(|(at, _)| at.starts_with(&path));
        let Some((at, branch)) = first else {
            return self.leaves(keys_below(&path));
        };
        if *at == path {
            return self.branch(at, branch, changed);
        }
        // An extension leads to the branch; leaves on both sides of it are new.
        let ((first, last), (before, after)) = (keys_below(&path), keys_below(at));
        self.leaves((first, flipped(before)));
        self.branch(at, branch, changed);
        self.leaves((flipped(after), last));
    }

    /// The stored branch `at` and everything below it.
    fn branch(&mut self, at: &Nibbles, branch: &BranchNodeCompact, changed: &[Nibbles]) {
        self.visited.push(*at);
        for nibble in 0..16 {
            let mut child = *at;
            child.push(nibble);
            let from = changed.partition_point(|key| *key < child);
            let count = changed[from..].partition_point(|key| key.starts_with(&child));
            let own = &changed[from..from + count];
            if !branch.state_mask.is_bit_set(nibble) && own.is_empty() {
                continue;
            }
            let is_stored = branch.tree_mask.is_bit_set(nibble);
            if own.is_empty() && branch.hash_mask.is_bit_set(nibble) {
                let hash = branch.hash_for_nibble(nibble);
                self.builder.add_branch(child, hash, is_stored);
            } else if is_stored {
                self.subtrie(child, own);
            } else {
                self.leaves(keys_below(&child));
            }
        }
    }

    fn leaves(&mut self, keys: impl RangeBounds<B256>) {
        for (key, value) in self.trie.leaves.range(keys) {
            self.value.clear();
            value.encode(&mut self.value);
            let key = Nibbles::unpack_array(&key.0);
            self.builder.add_leaf_unchecked(key, &self.value);
        }
    }
}

/// The keys that begin with `path`: the first and the last.
fn keys_below(path: &Nibbles) -> (Bound<B256>, Bound<B256>) {
    let mut first = [0; 32];
    path.pack_to(&mut first);
    let mut last = first;
    let whole = path.len() / 2;
    let is_odd = path.len() % 2 == 1;
    last[whole..].fill(0xff);
    if is_odd {
        last[whole] = first[whole] | 0x0f;
    }
    (Bound::Included(first.into()), Bound::Included(last.into()))
}

/// The end of the interval before a start, or the start of the one after an end.
fn flipped(bound: Bound<B256>) -> Bound<B256> {
    match bound {
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// A whole state.
pub(crate) struct AlloyState {
    accounts: Trie<TrieAccount>,
    storage: HashMap<B256, Trie<U256>>,
    threads: usize,
}

/// A changed account by hashed keys, its slots sorted.
struct HashedAccount {
    key: B256,
    nonce_and_balance: Option<(u64, U256)>,
    slots: Vec<(B256, U256)>,
}

impl HashedAccount {
    fn of(account: &(Address, AccountDiff)) -> Self {
        let (address, change) = account;
        let slots = change.slots.iter();
        let mut slots: Vec<(B256, U256)> = slots
            .map(|(slot, value)| (keccak256(B256::from(*slot)), value.new))
            .collect();
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        Self {
            key: keccak256(address),
            nonce_and_balance: change.new.map(|new| (new.nonce, new.balance)),
            slots,
        }
    }

    fn paths(&self) -> Vec<Nibbles> {
        let slots = self.slots.iter();
        slots
            .map(|(slot, _)| Nibbles::unpack_array(&slot.0))
            .collect()
    }
}

impl AlloyState {
    /// Loads the state of `database`. Checks every storage root and the state root.
    pub(crate) fn load(database: &Database, root: B256, threads: usize) -> Result<Self> {
        let mut leaves = BTreeMap::new();
        for row in database.prefix(Segment::Accounts, &[]) {
            let (key, slim) = row?;
            let account = decode_account(&slim)?;
            leaves.insert(
                B256::try_from(&key[..])?,
                TrieAccount::new(
                    account.nonce,
                    account.balance,
                    account.storage_root,
                    account.code_hash,
                ),
            );
        }
        let keys: Vec<B256> = leaves.keys().copied().collect();
        let storage = in_parallel(threads, &keys, |key| -> Result<_> {
            let slots = database
                .prefix(Segment::Slots, key.as_slice())
                .map(|row| {
                    let (key, value) = row?;
                    let slot = key.get(32..).unwrap_or_default();
                    let value = decode_value(&value).map_err(|reason| eyre!(reason))?;
                    Ok((B256::try_from(slot)?, value))
                })
                .collect::<Result<BTreeMap<_, _>>>()?;
            let mut trie = Trie::new(slots);
            trie.apply(trie.update(&[]));
            Ok((*key, trie))
        });
        let storage = storage.into_iter().collect::<Result<HashMap<_, _>>>()?;
        let mut accounts = Trie::new(leaves);
        accounts.apply(accounts.update(&[]));
        let is_same = storage.iter().all(|(key, trie)| {
            let account = accounts.leaves.get(key);
            account.is_some_and(|account| account.storage_root == trie.root)
        });
        ensure!(
            is_same && accounts.root == root,
            "alloy-trie finds another root in the flat state than the head has; run `niwaki \
             storage check`"
        );
        Ok(Self {
            accounts,
            storage,
            threads,
        })
    }

    /// Applies a block; times the root.
    pub(crate) fn apply_block(&mut self, diff: &StateDiff) -> Outcome {
        let clock = Instant::now();
        let mut changed = in_parallel(self.threads, &diff.accounts, HashedAccount::of);
        changed.sort_unstable_by_key(|account| account.key);
        let hashing = clock.elapsed();

        self.write_leaves(&changed);

        let clock = Instant::now();
        let storage = in_parallel(self.threads, &changed, |account| {
            let trie = self.storage.get(&account.key)?;
            (!account.slots.is_empty()).then(|| trie.update(&account.paths()))
        });
        for (account, update) in changed.iter().zip(&storage) {
            self.write_account(account, update.as_ref().map(|update| update.root));
        }
        let paths = changed.iter();
        let paths: Vec<_> = paths
            .map(|account| Nibbles::unpack_array(&account.key.0))
            .collect();
        let state = self.accounts.update(&paths);
        let rooting = clock.elapsed();

        for (account, update) in changed.iter().zip(storage) {
            if let (Some(trie), Some(update)) = (self.storage.get_mut(&account.key), update) {
                trie.apply(update);
            }
        }
        self.accounts.apply(state);
        Outcome {
            root: self.accounts.root,
            root_ms: milliseconds(hashing + rooting),
            commit_ms: None,
        }
    }

    fn write_leaves(&mut self, changed: &[HashedAccount]) {
        for account in changed {
            let none = || Trie::new(BTreeMap::new());
            let trie = self.storage.entry(account.key).or_insert_with(none);
            for (slot, value) in &account.slots {
                if value.is_zero() {
                    trie.leaves.remove(slot);
                } else {
                    trie.leaves.insert(*slot, *value);
                }
            }
        }
    }

    /// Writes an account, with a new storage root if there is one.
    fn write_account(&mut self, account: &HashedAccount, storage_root: Option<B256>) {
        let Some((nonce, balance)) = account.nonce_and_balance else {
            self.accounts.leaves.remove(&account.key);
            return;
        };
        let leaf = self.accounts.leaves.entry(account.key).or_default();
        leaf.nonce = nonce;
        leaf.balance = balance;
        leaf.storage_root = storage_root.unwrap_or(leaf.storage_root);
    }
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Applies `work` to each of `items` on up to `threads` threads; results are in the order of the items.
fn in_parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        // The counter only distributes items; no other memory depends on it.
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(index)
        {
            done.push((index, work(item)));
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        let workers = threads.min(items.len()).saturating_sub(1);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(take)).collect();
        let mut done = take();
        for worker in workers {
            done.extend(crate::harness::join(worker));
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests;
