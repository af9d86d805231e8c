//! Accounts, slots and codes of one state, from Bonsai's flat rows or from a trie, into the loader of a first state.

use super::rollback::Earlier;
use super::{
    ACCOUNT_INFO_STATE, ACCOUNT_STORAGE, BesuError, BesuFolder, CODE_STORAGE, TRIE_BRANCH,
    WORLD_STATE,
};
use crate::genesis_file::{Loading, LoadingReport};
use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::{B256, Bytes, EMPTY_CODE_HASH, Fault, U256};
use niwaki_state::GenesisLoad;
use niwaki_storage::Row;
use niwaki_trie::{TrieAccount, decode_slot};
use std::collections::HashSet;

/// The row that says whether the flat rows are whole, and its value if they are.
const FLAT_MODE: &[u8] = b"flatDbStatus";
const FULL: &[u8] = &[1];
/// Parts of the keys, for the progress.
const PARTS: u64 = 1 << 16;
/// Accounts between two reports of progress.
const REPORT_EACH: u64 = 1_024;

/// Where the values of a state are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Rows by hashed keys, all of them.
    Flat,
    /// The leaves of a trie with this root, whose nodes are found by path.
    ByPath(B256),
    /// The same, by hash.
    ByHash(B256),
}

/// How far an interrupted load has come: the last account and all that belongs to it, or the last code.
#[derive(Clone, Debug, Default, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub(super) struct Position {
    /// The block whose state is loaded,
    pub(super) base: B256,
    /// and the one whose state Besu stores.
    pub(super) stored: B256,
    /// Whether accounts and slots are done.
    pub(super) is_at_codes: bool,
    /// The key of the last row that is loaded, empty before the first.
    pub(super) last: Bytes,
}

/// Loads the rows of one state.
pub(super) struct RowLoader<'l, 'd> {
    pub(super) folder: &'l BesuFolder,
    pub(super) load: GenesisLoad<'d>,
    pub(super) earlier: Earlier,
    pub(super) position: Position,
    accounts: u64,
    /// Codes that were read already, of a state whose codes are read one by one.
    codes: HashSet<B256>,
}

impl BesuFolder {
    /// Where the values of the state that Bonsai stores are.
    pub(super) fn bonsai_values(&self, root: B256) -> Result<Values, BesuError> {
        let mode = self.database.get(TRIE_BRANCH, FLAT_MODE)?;
        Ok(match mode.as_deref() == Some(FULL) {
            true => Values::Flat,
            false => Values::ByPath(root),
        })
    }
}

impl<'l, 'd> RowLoader<'l, 'd> {
    pub(super) fn new(
        folder: &'l BesuFolder,
        load: GenesisLoad<'d>,
        earlier: Earlier,
        position: Position,
    ) -> Self {
        Self {
            folder,
            load,
            earlier,
            position,
            accounts: 0,
            codes: HashSet::new(),
        }
    }

    /// Loads all rows; returns the loader.
    pub(super) fn run(
        mut self,
        values: Values,
        report: &mut LoadingReport<'_>,
    ) -> Result<GenesisLoad<'d>, BesuError> {
        if !self.position.is_at_codes {
            match values {
                Values::Flat => self.flat(report)?,
                Values::ByPath(root) | Values::ByHash(root) => self.leaves(values, root, report)?,
            }
            self.position.is_at_codes = true;
            self.position.last = Bytes::new();
        }
        if !matches!(values, Values::ByHash(_)) {
            self.all_codes(report)?;
        }
        self.add_earlier()?;
        Ok(self.load)
    }

    /// Flat accounts, each with its slots. Slots of no account are left out: Besu may leave some behind.
    fn flat(&mut self, report: &mut LoadingReport<'_>) -> Result<(), BesuError> {
        let from = after(&self.position.last);
        let database = &self.folder.database;
        let mut slots = database.range(ACCOUNT_STORAGE, &from)?.peekable();
        for row in database.range(ACCOUNT_INFO_STATE, &from)? {
            let (row_key, value) = row?;
            let key = self.folder.hash(&row_key, "the key of an account")?;
            let account = self.decoded(&key, &value)?;
            self.account(&key, &account)?;
            while let Some(slot) = slots.next_if(|slot| is_up_to(slot, &key)) {
                let (slot_key, value) = slot?;
                if let Some(hash) = slot_key.strip_prefix(key.as_slice()) {
                    let hash = self.folder.hash(hash, "the key of a slot")?;
                    let value = U256::try_from_be_slice(&value);
                    let value = value.ok_or_else(|| self.bad_account(&key))?;
                    self.slot(&key, &hash, value)?;
                }
            }
            self.done(&key, report)?;
        }
        Ok(())
    }

    /// The leaves of the account trie, each with those of its storage.
    fn leaves(
        &mut self,
        values: Values,
        root: B256,
        report: &mut LoadingReport<'_>,
    ) -> Result<(), BesuError> {
        let folder = self.folder;
        let last = B256::try_from(&self.position.last[..]).ok();
        folder.walk(values, &None, root, last, &mut |key, leaf| {
            let account = self.decoded(&key, leaf)?;
            self.account(&key, &account)?;
            self.storage(values, key, account.storage_root)?;
            if matches!(values, Values::ByHash(_)) {
                self.code(&account.code_hash)?;
            }
            self.done(&key, report)
        })
    }

    fn storage(&mut self, values: Values, owner: B256, root: B256) -> Result<(), BesuError> {
        let folder = self.folder;
        folder.walk(values, &Some(owner), root, None, &mut |key, leaf| {
            let value = decode_slot(leaf).map_err(|_| self.bad_account(&owner))?;
            self.slot(&owner, &key, value)
        })
    }

    /// The code of an account of a Forest, once.
    fn code(&mut self, hash: &B256) -> Result<(), BesuError> {
        if *hash == EMPTY_CODE_HASH || !self.codes.insert(*hash) {
            return Ok(());
        }
        let code = self.folder.database.get(WORLD_STATE, hash.as_slice())?;
        let missing = || self.folder.damaged(format!("it has no code {hash}"));
        Ok(self.load.add_code(&code.ok_or_else(missing)?)?)
    }

    fn all_codes(&mut self, report: &mut LoadingReport<'_>) -> Result<(), BesuError> {
        let from = after(&self.position.last);
        for row in self.folder.database.range(CODE_STORAGE, &from)? {
            let (key, code) = row?;
            self.load.add_code(&code)?;
            self.position.last = key.into();
            self.checkpoint()?;
            if !report(Loading::Reading(PARTS, PARTS)) {
                return Err(BesuError::Stopped);
            }
        }
        Ok(())
    }

    fn account(&mut self, key: &B256, account: &TrieAccount) -> Result<(), BesuError> {
        match self.earlier.accounts.contains_key(key) {
            true => Ok(()),
            false => Ok(self.load.add_hashed_account(key, account)?),
        }
    }

    fn slot(&mut self, owner: &B256, key: &B256, value: U256) -> Result<(), BesuError> {
        let is_gone = self.earlier.accounts.get(owner) == Some(&None);
        let slots = self.earlier.slots.get(owner);
        if is_gone || slots.is_some_and(|slots| slots.contains_key(key)) {
            return Ok(());
        }
        Ok(self.load.add_hashed_slot(owner, key, &value)?)
    }

    /// Adds what the earlier state has in place of the rows that were left out.
    fn add_earlier(&mut self) -> Result<(), BesuError> {
        let earlier = std::mem::take(&mut self.earlier);
        for code in &earlier.codes {
            self.load.add_code(code)?;
        }
        for (key, account) in &earlier.accounts {
            if let Some(account) = account {
                self.load.add_hashed_account(key, account)?;
            }
        }
        for (owner, slots) in &earlier.slots {
            if earlier.accounts.get(owner) == Some(&None) {
                continue;
            }
            for (key, value) in slots {
                self.load.add_hashed_slot(owner, key, value)?;
            }
        }
        Ok(())
    }

    /// An account is loaded with all that belongs to it.
    fn done(&mut self, key: &B256, report: &mut LoadingReport<'_>) -> Result<(), BesuError> {
        self.position.last = Bytes::copy_from_slice(key.as_slice());
        self.accounts += 1;
        self.checkpoint()?;
        let part = u64::from(u16::from_be_bytes([key[0], key[1]]));
        if self.accounts.is_multiple_of(REPORT_EACH) && !report(Loading::Reading(part, PARTS)) {
            return Err(BesuError::Stopped);
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), BesuError> {
        if self.load.should_checkpoint() {
            let note = alloy_rlp::encode(&self.position);
            self.load.checkpoint(note.into())?;
        }
        Ok(())
    }

    fn decoded(&self, key: &B256, account: &[u8]) -> Result<TrieAccount, BesuError> {
        TrieAccount::from_leaf(account).map_err(|_| self.bad_account(key))
    }

    fn bad_account(&self, key: &B256) -> BesuError {
        self.folder.damaged(format!(
            "the account with key {key}, or a slot of it, is no value"
        ))
    }
}

/// The least key above `last`.
fn after(last: &[u8]) -> Vec<u8> {
    match last {
        [] => Vec::new(),
        last => [last, &[0]].concat(),
    }
}

/// Whether a slot is of this account or of one before it; faults are passed on.
fn is_up_to(slot: &Result<Row, Fault>, account: &B256) -> bool {
    match slot {
        Ok((key, _)) => key
            .get(..32)
            .is_none_or(|owner| owner <= account.as_slice()),
        Err(_) => true,
    }
}
