//! Accounts and slots that are put or removed, and how they are written: as the changes of a block are, tries and all.

use super::StateDownload;
use crate::commit::flat::{encode_account, encode_value};
use crate::tries::disk_trie::{DiskTrie, RowSource};
use crate::tries::trie_cache::emit_row;
use niwaki_primitives::{Account, B256, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_storage::{Batch, Segment};
use niwaki_trie::{
    LeafUpdate, Owner, Path, Trie, TrieAccount, TrieUpdate, UpdateOptions, encode_slot,
    update_tries,
};
use std::collections::{BTreeMap, BTreeSet};

/// What changes, by hashed keys.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The accounts, or none; their storage roots do not count.
    pub(super) accounts: BTreeMap<B256, Option<TrieAccount>>,
    /// The storage roots of accounts whose rows say another.
    storage_roots: BTreeMap<B256, B256>,
    /// Slots of accounts; zero where there is to be none.
    slots: BTreeMap<B256, BTreeMap<B256, U256>>,
    slot_count: usize,
}

/// A key with the value of its leaf, or none.
type Leaf = (Path, Option<Vec<u8>>);

impl Changes {
    pub(super) fn of_storage_roots(roots: Vec<(B256, B256)>) -> Self {
        Self {
            storage_roots: roots.into_iter().collect(),
            ..Self::default()
        }
    }

    pub(super) fn put_slot(&mut self, account: B256, slot: B256, value: U256) {
        let slots = self.slots.entry(account).or_default();
        self.slot_count += usize::from(slots.insert(slot, value).is_none());
    }

    /// How many accounts and slots.
    pub(super) fn len(&self) -> usize {
        self.accounts.len() + self.slot_count
    }

    /// Writes flat rows, trie rows and the root of the tries, which is `own_root` before, together with `rows`. Durable when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then nothing was written.
    pub(super) fn write(
        &self,
        download: &StateDownload<'_>,
        own_root: B256,
        mut rows: Batch,
        threads: usize,
    ) -> Result<(), Fault> {
        let update = Update {
            download,
            options: UpdateOptions { threads, clock: 0 },
        };
        let mut roots = self.storage_roots.clone();
        roots.extend(self.write_storages(&update, &mut rows)?);
        let mut leaves = Vec::new();
        let changed: BTreeSet<&B256> = self.accounts.keys().chain(roots.keys()).collect();
        for key in changed {
            let own = download.account(key)?;
            let account = match self.accounts.get(key) {
                Some(theirs) => theirs.as_ref().map(TrieAccount::account),
                None => own.as_ref().map(TrieAccount::account),
            };
            let own_root = own.map_or(EMPTY_ROOT_HASH, |own| own.storage_root);
            let root = roots.get(key).copied().unwrap_or(own_root);
            let leaf = put_account(key, account, root, &mut rows);
            leaves.push((Path::of_hash(key), leaf));
        }
        let roots = update.tries(vec![(None, own_root, leaves)], &mut rows)?;
        let root = roots.first().copied().unwrap_or(own_root);
        download.set_own_root(root, rows)
    }

    /// Adds the rows of slots and storage tries. Returns the storage root of each account that has changed slots.
    fn write_storages(
        &self,
        update: &Update<'_>,
        rows: &mut Batch,
    ) -> Result<BTreeMap<B256, B256>, Fault> {
        let mut tries = Vec::new();
        for (account, slots) in &self.slots {
            for (slot, value) in slots {
                let key = [account.as_slice(), slot.as_slice()];
                match value.is_zero() {
                    true => rows.delete_parts(Segment::Slots, &key),
                    false => rows.put_parts(Segment::Slots, &key, &[&encode_value(value)]),
                }
            }
            let leaf = |(slot, value): (&B256, &U256)| {
                let value = (!value.is_zero()).then(|| encode_slot(value));
                (Path::of_hash(slot), value)
            };
            let own = update.download.account(account)?;
            let root = own.map_or(EMPTY_ROOT_HASH, |own| own.storage_root);
            tries.push((Some(*account), root, slots.iter().map(leaf).collect()));
        }
        let roots = update.tries(tries, rows)?;
        Ok(self.slots.keys().copied().zip(roots).collect())
    }
}

/// Adds the row of an account; returns its leaf.
fn put_account(
    key: &B256,
    account: Option<Account>,
    storage_root: B256,
    rows: &mut Batch,
) -> Option<Vec<u8>> {
    let Some(account) = account else {
        rows.delete(Segment::Accounts, key.as_slice());
        return None;
    };
    let account = TrieAccount::new(&account, storage_root);
    let slim = encode_account(&account);
    rows.put(Segment::Accounts, key.as_slice(), &slim);
    Some(account.to_leaf())
}

struct Update<'d> {
    download: &'d StateDownload<'d>,
    options: UpdateOptions,
}

impl Update<'_> {
    /// Changes tries, each with its root and its leaves in order. Adds their rows; returns the new roots.
    fn tries(
        &self,
        changed: Vec<(Owner, B256, Vec<Leaf>)>,
        rows: &mut Batch,
    ) -> Result<Vec<B256>, Fault> {
        let source = DiskTrie::new(RowSource::Latest(self.download.database()), &[]);
        let tries = changed.iter().map(|(_, root, _)| Trie::new(*root));
        let mut tries: Vec<Trie> = tries.collect();
        let leaves = changed.iter().map(|(_, _, leaves)| {
            let leaves = leaves.iter().map(|(key, value)| LeafUpdate {
                key: *key,
                value: value.as_deref(),
                replaces: false,
            });
            leaves.collect()
        });
        let leaves: Vec<Vec<LeafUpdate<'_>>> = leaves.collect();
        let updates = tries.iter_mut().zip(&changed).zip(&leaves);
        let updates = updates.map(|((trie, (owner, ..)), leaves)| TrieUpdate {
            owner: *owner,
            trie,
            leaves,
        });
        let new = update_tries(&source, updates.collect(), self.options, &emit_row)?;
        new.into_iter().for_each(|new| rows.append(new));
        Ok(tries.iter().map(Trie::root).collect())
    }
}
