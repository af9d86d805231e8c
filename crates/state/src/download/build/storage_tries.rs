//! The storage tries of the accounts of a part, and what the account trie needs of them.

use crate::commit::flat::{account_of_row, encode_account, value_of_row};
use crate::tries::disk_trie::{DiskTrie, RowSource, row_key};
use niwaki_primitives::{B256, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_storage::{Batch, Database, Row, RowIter, Segment, corrupt};
use niwaki_trie::{
    LeafUpdate, Owner, Path, Trie, TrieAccount, TrieBuilder, TrieUpdate, UpdateOptions,
    encode_slot_to, update_tries,
};
use std::collections::HashSet;
use std::iter::Peekable;

/// The tries of so many leaves are hashed together.
const LEAVES_TOGETHER: usize = 1 << 16;
/// A storage of more slots is built leaf by leaf, in little memory.
const LARGE: usize = 1 << 18;

/// What is built of a part.
#[derive(Debug, Default)]
pub(super) struct BuiltPart {
    /// Hashed address and leaf of each account, ascending.
    pub(super) accounts: Vec<(B256, Vec<u8>)>,
    /// Rows of storage tries, and accounts whose rows had other storage roots.
    pub(super) rows: Batch,
    /// Deletes of slots that no account has.
    pub(super) removed: Batch,
    /// Codes of these accounts that are not here.
    pub(super) missing_codes: Vec<B256>,
}

/// How keys of a part begin.
#[derive(Clone, Copy)]
pub(super) struct KeysOfPart {
    /// With these bytes or more,
    pub(super) first: Option<[u8; 2]>,
    /// and with less than these; `None` after the last part.
    pub(super) end: Option<[u8; 2]>,
}

/// Builds the storage tries of the accounts of a part.
pub(super) fn build(database: &Database, keys: KeysOfPart) -> Result<BuiltPart, Fault> {
    let mut part = Part {
        database,
        built: BuiltPart::default(),
        slots: rows(database, Segment::Slots, keys).peekable(),
        group: Group::default(),
        codes: Codes::new(database),
    };
    for row in rows(database, Segment::Accounts, keys) {
        let (owner, account) = account_of(row?)?;
        part.add(owner, account)?;
    }
    part.finish()
}

/// The accounts of a part whose storage tries are built.
pub(super) fn read_accounts(database: &Database, keys: KeysOfPart) -> Result<BuiltPart, Fault> {
    let (mut accounts, mut codes) = (Vec::new(), Codes::new(database));
    for row in rows(database, Segment::Accounts, keys) {
        let (owner, account) = account_of(row?)?;
        codes.look_for(&account)?;
        accounts.push((owner, account.to_leaf()));
    }
    Ok(BuiltPart {
        accounts,
        missing_codes: codes.missing,
        ..BuiltPart::default()
    })
}

fn rows(database: &Database, segment: Segment, keys: KeysOfPart) -> RowIter<'_> {
    let end = keys.end.as_ref().map(|end| &end[..]);
    database.range(segment, &keys.first.unwrap_or_default(), end)
}

fn account_of(row: Row) -> Result<(B256, TrieAccount), Fault> {
    let (key, slim) = row;
    let account = account_of_row(&key, &slim)?;
    let owner = B256::try_from(&key[..]);
    let owner = owner.map_err(|_| corrupt(Segment::Accounts, &key, "the key is not 32 bytes"))?;
    Ok((owner, account))
}

/// Accounts whose storage tries are hashed together.
#[derive(Default)]
struct Group {
    accounts: Vec<(B256, TrieAccount)>,
    /// Of each account where its leaves end.
    ends: Vec<usize>,
    /// Keys, and where their values end.
    leaves: Vec<(Path, usize)>,
    values: Vec<u8>,
}

struct Part<'d> {
    database: &'d Database,
    built: BuiltPart,
    slots: Peekable<RowIter<'d>>,
    group: Group,
    codes: Codes<'d>,
}

/// Looks whether the codes of accounts are here.
struct Codes<'d> {
    database: &'d Database,
    /// Hashes that were looked for.
    seen: HashSet<B256>,
    missing: Vec<B256>,
}

impl<'d> Codes<'d> {
    fn new(database: &'d Database) -> Self {
        Self {
            database,
            seen: HashSet::new(),
            missing: Vec::new(),
        }
    }

    fn look_for(&mut self, account: &TrieAccount) -> Result<(), Fault> {
        let hash = account.code_hash;
        if hash == EMPTY_CODE_HASH || !self.seen.insert(hash) {
            return Ok(());
        }
        if self.database.get(Segment::Code, hash.as_slice())?.is_none() {
            self.missing.push(hash);
        }
        Ok(())
    }
}

impl Part<'_> {
    fn add(&mut self, owner: B256, account: TrieAccount) -> Result<(), Fault> {
        self.remove_slots_before(Some(&owner))?;
        self.codes.look_for(&account)?;
        let start = self.group.leaves.len();
        while let Some((path, value)) = self.next_slot(&owner)? {
            encode_slot_to(&value, &mut self.group.values);
            self.group.leaves.push((path, self.group.values.len()));
            if self.group.leaves.len() - start > LARGE {
                return self.add_large(owner, account, start);
            }
        }
        self.group.accounts.push((owner, account));
        self.group.ends.push(self.group.leaves.len());
        match self.group.leaves.len() >= LEAVES_TOGETHER {
            true => self.hash_group(),
            false => Ok(()),
        }
    }

    /// The next slot of an account: its path and value.
    fn next_slot(&mut self, owner: &B256) -> Result<Option<(Path, U256)>, Fault> {
        let is_own = |row: &Result<Row, Fault>| match row {
            Ok((key, _)) => key.starts_with(owner.as_slice()),
            Err(_) => true,
        };
        let Some(row) = self.slots.next_if(is_own) else {
            return Ok(None);
        };
        let (key, bytes) = row?;
        let slot = key.get(32..).filter(|slot| slot.len() == 32);
        let path = slot.and_then(Path::of_key);
        let path = path.ok_or_else(|| corrupt(Segment::Slots, &key, "the key is not 64 bytes"))?;
        Ok(Some((path, value_of_row(&key, &bytes)?)))
    }

    /// Slots that stand before this account's, or that are left, are of no account.
    fn remove_slots_before(&mut self, owner: Option<&B256>) -> Result<(), Fault> {
        let is_stray = |row: &Result<Row, Fault>| match (row, owner) {
            (Ok((key, _)), Some(owner)) => key[..] < owner[..],
            _ => true,
        };
        while let Some(row) = self.slots.next_if(is_stray) {
            self.built.removed.delete(Segment::Slots, &row?.0);
        }
        Ok(())
    }

    /// Hashes the storage tries of the group.
    fn hash_group(&mut self) -> Result<(), Fault> {
        let group = std::mem::take(&mut self.group);
        let mut start = 0;
        let leaves = group.leaves.iter().map(|(key, end)| {
            let value = &group.values[start..*end];
            start = *end;
            LeafUpdate {
                key: *key,
                value: Some(value),
                replaces: false,
            }
        });
        let leaves: Vec<LeafUpdate<'_>> = leaves.collect();
        let empty = || Trie::new(EMPTY_ROOT_HASH);
        let mut tries: Vec<Trie> = group.accounts.iter().map(|_| empty()).collect();
        let mut rest = &leaves[..];
        let mut before = 0;
        let updates = tries.iter_mut().zip(&group.accounts).zip(&group.ends);
        let updates = updates.map(|((trie, (owner, _)), end)| {
            let (own, others) = rest.split_at(end - before);
            (before, rest) = (*end, others);
            TrieUpdate {
                owner: Some(*owner),
                trie,
                leaves: own,
            }
        });
        let options = UpdateOptions {
            threads: 1,
            clock: 0,
        };
        let source = DiskTrie::new(RowSource::Latest(self.database), &[]);
        let rows = update_tries(&source, updates.collect(), options, &put_row)?;
        rows.into_iter()
            .for_each(|rows| self.built.rows.append(rows));
        for ((owner, account), trie) in group.accounts.into_iter().zip(tries) {
            self.account(owner, account, trie.root());
        }
        Ok(())
    }

    /// A storage whose leaves are in the group from `start` on, and more follow.
    fn add_large(&mut self, owner: B256, account: TrieAccount, start: usize) -> Result<(), Fault> {
        let leaves = self.group.leaves.split_off(start);
        let values_start = self.group.leaves.last().map_or(0, |(_, end)| *end);
        let values = self.group.values.split_off(values_start);
        // Accounts are built in order.
        self.hash_group()?;
        let mut rows = Batch::new();
        let mut sink = |path: &Path, row: &[u8]| put_row(&mut rows, &Some(owner), path, Some(row));
        let mut builder = TrieBuilder::new(&mut sink);
        let mut from = 0;
        for (path, end) in leaves {
            let end = end - values_start;
            builder.add(path, values[from..end].to_vec());
            from = end;
        }
        drop(values);
        while let Some((path, value)) = self.next_slot(&owner)? {
            builder.add(path, niwaki_trie::encode_slot(&value));
        }
        let root = builder.finish();
        self.built.rows.append(rows);
        self.account(owner, account, root);
        Ok(())
    }

    /// The storage of an account has this root, whatever its row says.
    fn account(&mut self, key: B256, mut account: TrieAccount, root: B256) {
        if account.storage_root != root {
            account.storage_root = root;
            let slim = encode_account(&account);
            self.built
                .rows
                .put(Segment::Accounts, key.as_slice(), &slim);
        }
        self.built.accounts.push((key, account.to_leaf()));
    }

    fn finish(mut self) -> Result<BuiltPart, Fault> {
        self.remove_slots_before(None)?;
        self.hash_group()?;
        self.built.missing_codes = self.codes.missing;
        Ok(self.built)
    }
}

fn put_row(rows: &mut Batch, owner: &Owner, path: &Path, row: Option<&[u8]>) {
    let (segment, key) = row_key(owner, path);
    // A trie that was empty loses no node.
    if let Some(row) = row {
        rows.put_parts(segment, &key, &[row]);
    }
}
