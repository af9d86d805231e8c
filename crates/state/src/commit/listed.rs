//! From the last values of access lists to the state root after their blocks (EIP-7928): nothing is executed.
//!
//! ```text
//! LastValues --keccak batch, sort--> keys --multi-gets--> prior values --> HashedDiff --> root
//!                                     `--trie paths, on another thread--> TrieCache ---^
//! ```
//!
//! What is read is read in the order of the rows: neighbours of a large diff are in the same block of a table.

use crate::commit::flat::{account_of_row, value_of_row};
use crate::commit::hashed_diff::{HashedAccountDiff, HashedDiff, HashedSlotDiff};
use crate::commit::last_values::{AccountValues, LastValues};
use crate::tries::disk_trie::{DiskTrie, RowSource};
use crate::tries::prefetcher::PrefetchTarget;
use crate::{ComputedRoot, WorldState};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{Account, Address, B256, Bytes, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_storage::{Segment, Snapshot};
use niwaki_trie::TrieAccount;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads that read rows. They wait for the disk more than they work.
const READERS: usize = 4;
/// Rows that are read together.
const READ_TOGETHER: usize = 256;

/// An account that lists change.
struct ListedAccount {
    address: Address,
    /// Keccak-256 of the address.
    key: B256,
    values: AccountValues,
    prior: Option<TrieAccount>,
    /// Its slots with their last values, ascending by hash.
    slots: Vec<ListedSlot>,
}

struct ListedSlot {
    /// Keccak-256 of the slot.
    key: B256,
    slot: U256,
    new: U256,
}

impl WorldState {
    /// Computes the root of the state after blocks whose access lists have these values, the first one the head's child. Nothing is
    /// written.
    ///
    /// `None` if an account with storage would be deleted, which no list of a valid block does (EIP-6780).
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn compute_root_of_lists(&self, values: LastValues) -> Result<Option<ComputedRoot>, Fault> {
        let view = self.view_at_head()?;
        let accounts = listed_accounts(&view.snapshot, values)?;
        let is_read = &AtomicBool::new(false);
        let own = std::thread::scope(|scope| {
            scope.spawn(|| self.load_listed_paths(&accounts, is_read));
            let own = listed_diff(&view.snapshot, &accounts);
            is_read.store(true, Ordering::Relaxed);
            own
        })?;
        let Some(own) = own else {
            return Ok(None);
        };
        let codes = new_codes(&accounts);
        let root = self.compute_with_tries(&mut self.tries(), &view, own, &codes)?;
        Ok(Some(root))
    }

    /// Loads the trie paths to `accounts` and their slots, until `ended`. What can't be read, the root reads again, and returns the fault.
    fn load_listed_paths(&self, accounts: &[ListedAccount], ended: &AtomicBool) {
        let targets: Vec<PrefetchTarget> = accounts.iter().flat_map(targets).collect();
        for targets in targets.chunks(READ_TOGETHER) {
            let mut tries = self.tries();
            if ended.load(Ordering::Relaxed) || tries.is_over_budget() {
                return;
            }
            let source = DiskTrie::new(RowSource::Latest(self.database()), &[]);
            let _ = tries.load_paths(&source, targets);
            tries.count_reads(&source);
        }
    }
}

/// The account and its slots.
fn targets(account: &ListedAccount) -> impl Iterator<Item = PrefetchTarget> {
    let root = account.prior.map(|prior| prior.storage_root);
    let target = move |slot: Option<_>| PrefetchTarget {
        account: account.key,
        slot,
        is_absent: slot.is_none() && root.is_none(),
    };
    let slots = account.slots.iter();
    let slots = slots.filter_map(move |slot| root.map(|root| Some((slot.key, root))));
    std::iter::once(None).chain(slots).map(target)
}

/// What lists change, with the accounts before, ascending by hashed address.
fn listed_accounts(snapshot: &Snapshot, values: LastValues) -> Result<Vec<ListedAccount>, Fault> {
    let values: Vec<(Address, AccountValues)> = values.accounts.into_iter().collect();
    let addresses: Vec<&[u8]> = values.iter().map(|(address, _)| &address[..]).collect();
    let keys = keccak256_batch(&addresses);
    let slots = values.iter().flat_map(|(_, values)| values.slots.keys());
    let slots: Vec<[u8; 32]> = slots.map(|slot| slot.to_be_bytes()).collect();
    let slots: Vec<&[u8]> = slots.iter().map(<[u8; 32]>::as_slice).collect();
    let mut slot_keys = keccak256_batch(&slots).into_iter();
    let account = |((address, values), key): ((Address, AccountValues), B256)| {
        let slots = values.slots.iter().zip(slot_keys.by_ref());
        let slots = slots.map(|((slot, new), key)| ListedSlot {
            key,
            slot: *slot,
            new: *new,
        });
        let mut slots: Vec<ListedSlot> = slots.collect();
        slots.sort_unstable_by_key(|slot| slot.key);
        ListedAccount {
            address,
            key,
            values,
            prior: None,
            slots,
        }
    };
    let mut accounts: Vec<_> = values.into_iter().zip(keys).map(account).collect();
    accounts.sort_unstable_by_key(|account| account.key);
    let keys: Vec<&[u8]> = accounts.iter().map(|account| &account.key[..]).collect();
    let rows = read_rows(snapshot, Segment::Accounts, &keys)?;
    for (account, row) in accounts.iter_mut().zip(rows) {
        let prior = row.map(|row| account_of_row(account.key.as_slice(), &row));
        account.prior = prior.transpose()?;
    }
    Ok(accounts)
}

/// From the head's state to that of the lists; `None` if an account with storage would be deleted.
fn listed_diff(
    snapshot: &Snapshot,
    accounts: &[ListedAccount],
) -> Result<Option<HashedDiff>, Fault> {
    let keys = accounts.iter().flat_map(|account| {
        let slots = account.slots.iter();
        slots.map(|slot| [account.key, slot.key].concat())
    });
    let keys: Vec<Vec<u8>> = keys.collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let rows = read_rows(snapshot, Segment::Slots, &keys)?;
    let mut priors = keys.iter().zip(rows).map(|(key, row)| match row {
        Some(row) => value_of_row(key, &row),
        None => Ok(U256::ZERO),
    });
    let mut diff = HashedDiff::default();
    for account in accounts {
        let priors = priors.by_ref().take(account.slots.len());
        let priors: Vec<U256> = priors.collect::<Result<_, _>>()?;
        let before = account.prior.map(|prior| prior.account());
        let new = account.values.after(&before.unwrap_or(Account::EMPTY));
        let root = account.prior.map_or(EMPTY_ROOT_HASH, |p| p.storage_root);
        if new.is_empty() && root != EMPTY_ROOT_HASH {
            return Ok(None);
        }
        let slots = account.slots.iter().zip(priors);
        let slots = slots.map(|(slot, prior)| HashedSlotDiff {
            key: slot.key,
            slot: Some(slot.slot),
            prior,
            new: if new.is_empty() { U256::ZERO } else { slot.new },
        });
        diff.accounts.push(HashedAccountDiff {
            key: account.key,
            address: account.address,
            prior: account.prior,
            new: (!new.is_empty()).then(|| TrieAccount::new(&new, root)),
            slots: slots.collect(),
        });
    }
    Ok(Some(diff.without_unchanged()))
}

/// The codes that accounts get, by hash.
fn new_codes(accounts: &[ListedAccount]) -> Vec<(B256, Bytes)> {
    let new = |account: &ListedAccount| {
        let (hash, code) = account.values.code.as_ref()?;
        let is_new = account.prior.map(|prior| prior.code_hash) != Some(*hash);
        (is_new && !code.is_empty()).then(|| (*hash, code.clone()))
    };
    let codes: BTreeMap<B256, Bytes> = accounts.iter().filter_map(new).collect();
    codes.into_iter().collect()
}

/// The rows of `keys`, which ascend, in their order; a part of them on each of several threads.
fn read_rows(
    snapshot: &Snapshot,
    segment: Segment,
    keys: &[&[u8]],
) -> Result<Vec<Option<Vec<u8>>>, Fault> {
    let read = |keys: &[&[u8]]| {
        let mut rows = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_TOGETHER) {
            rows.append(&mut snapshot.multi_get(segment, keys)?);
        }
        Ok(rows)
    };
    let parts = keys.chunks(keys.len().div_ceil(READERS).max(READ_TOGETHER));
    let parts = std::thread::scope(|scope| {
        let readers: Vec<_> = parts.map(|keys| scope.spawn(move || read(keys))).collect();
        let joined = readers.into_iter().map(|reader| {
            let rows = reader.join();
            rows.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect::<Result<Vec<_>, Fault>>()
    })?;
    Ok(parts.into_iter().flatten().collect())
}
