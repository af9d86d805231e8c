//! The first state, loaded from a list of accounts in bounded memory.
//!
//! The storage root of each account is computed as it arrives; the account trie is built bottom-up from the flat
//! accounts at the end. A row of `meta` marks a load in progress, so that the next load removes what an interrupted
//! one has left.

use crate::commit::flat::{account_of_row, encode_account, encode_value};
use crate::tries::disk_trie::row_key;
use crate::{BlockId, StateHead, WorldState};
use alloy_primitives::keccak256;
use niwaki_primitives::{Address, B256, Bytes, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_storage::{Batch, Database, Segment, corrupt};
use niwaki_trie::{Path, TrieAccount, TrieBuilder, encode_slot};

/// An account of a genesis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenesisAccount {
    /// Address.
    pub address: Address,
    /// Nonce.
    pub nonce: u64,
    /// Balance in wei.
    pub balance: U256,
    /// Code, empty if none.
    pub code: Bytes,
    /// Slots in any order, each once; those that are zero are left out.
    pub storage: Vec<(U256, U256)>,
}

/// The row of `meta` that exists while a genesis is being loaded.
const LOADING: &[u8] = b"loading genesis";

/// The segments of a state, in which an interrupted load may have left rows.
const STATE_SEGMENTS: [Segment; 5] = [
    Segment::Accounts,
    Segment::Slots,
    Segment::Code,
    Segment::AccountTrie,
    Segment::StorageTrie,
];

impl WorldState {
    /// Writes `accounts`, in any order and each address once, and returns the root of their state. Memory is bounded
    /// by a batch and the largest account. There is no head before [`WorldState::finish_genesis`].
    ///
    /// # Errors
    /// A [`Fault`] of the storage, or of `accounts`.
    ///
    /// # Panics
    /// If there is a head already.
    pub fn load_genesis(
        &self,
        accounts: impl IntoIterator<Item = Result<GenesisAccount, Fault>>,
    ) -> Result<B256, Fault> {
        assert_eq!(self.head(), None, "a genesis is loaded into an empty state");
        let database = self.database();
        let mut batch = Batch::new();
        begin_loading(database, &mut batch)?;
        for account in accounts {
            add_account(&account?, &mut batch);
            database.write_if_large(&mut batch)?;
        }
        database.write(batch, false)?;
        build_account_trie(database)
    }

    /// Makes the genesis `block`, whose state [`WorldState::load_genesis`] wrote, the head, together with `batch`;
    /// durable when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then nothing was written.
    pub fn finish_genesis(
        &self,
        block: BlockId,
        root: B256,
        mut batch: Batch,
    ) -> Result<(), Fault> {
        batch.delete(Segment::Meta, LOADING);
        self.set_first_head(StateHead { block, root }, batch)
    }
}

/// The root of the state of `accounts`, in any order and each address once. Writes nothing; keeps one leaf per account
/// in memory.
pub fn genesis_root(accounts: impl IntoIterator<Item = GenesisAccount>) -> B256 {
    let mut nothing = Batch::new();
    let leaf = |account: GenesisAccount| {
        nothing.clear();
        let (key, account) = add_account(&account, &mut nothing);
        (Path::of_hash(&key), account.to_leaf())
    };
    let mut leaves: Vec<_> = accounts.into_iter().map(leaf).collect();
    leaves.sort_unstable_by_key(|(key, _)| *key);
    let mut no_rows = |_: &Path, _: &[u8]| {};
    let mut builder = TrieBuilder::new(&mut no_rows);
    leaves
        .into_iter()
        .for_each(|(key, leaf)| builder.add(key, leaf));
    builder.finish()
}

/// Adds an account to `batch`; returns its key and flat form.
fn add_account(account: &GenesisAccount, batch: &mut Batch) -> (B256, TrieAccount) {
    let key = keccak256(account.address);
    let mut code_hash = EMPTY_CODE_HASH;
    if !account.code.is_empty() {
        code_hash = keccak256(&account.code);
        batch.put(Segment::Code, code_hash.as_slice(), &account.code);
    }
    let present = account.storage.iter().filter(|(_, value)| !value.is_zero());
    let mut slots: Vec<_> = present
        .map(|(slot, value)| (keccak256(B256::from(*slot)), *value))
        .collect();
    slots.sort_unstable_by_key(|(slot, _)| *slot);
    let mut storage_root = EMPTY_ROOT_HASH;
    if !slots.is_empty() {
        let owner = Some(key);
        let mut sink = |path: &Path, row: &[u8]| {
            let (segment, key) = row_key(&owner, path);
            batch.put_parts(segment, &key, &[row]);
        };
        let mut builder = TrieBuilder::new(&mut sink);
        for (slot, value) in &slots {
            builder.add(Path::of_hash(slot), encode_slot(value));
        }
        storage_root = builder.finish();
    }
    for (slot, value) in &slots {
        let slot_key = [key.as_slice(), slot.as_slice()];
        batch.put_parts(Segment::Slots, &slot_key, &[&encode_value(value)]);
    }
    let flat = TrieAccount {
        nonce: account.nonce,
        balance: account.balance,
        storage_root,
        code_hash,
    };
    batch.put(Segment::Accounts, key.as_slice(), &encode_account(&flat));
    (key, flat)
}

fn build_account_trie(database: &Database) -> Result<B256, Fault> {
    let mut batch = Batch::new();
    let mut written: Result<(), Fault> = Ok(());
    let mut sink = |path: &Path, row: &[u8]| {
        let (segment, key) = row_key(&None, path);
        batch.put_parts(segment, &key, &[row]);
        if written.is_ok() {
            written = database.write_if_large(&mut batch);
        }
    };
    let mut builder = TrieBuilder::new(&mut sink);
    for row in database.prefix(Segment::Accounts, &[]) {
        let (key, slim) = row?;
        let path = Path::of_key(&key).filter(|path| path.to_hash().is_some());
        let path = path.ok_or_else(|| corrupt(Segment::Accounts, &key, "key is not 32 bytes"))?;
        builder.add(path, account_of_row(&key, &slim)?.to_leaf());
    }
    let root = builder.finish();
    written?;
    database.write(batch, false)?;
    Ok(root)
}

/// Whether a load is in progress or was interrupted.
pub(crate) fn is_loading(database: &Database) -> Result<bool, Fault> {
    Ok(database.get(Segment::Meta, LOADING)?.is_some())
}

/// Removes the rows of an interrupted load.
pub(crate) fn remove_partial_state(database: &Database) -> Result<(), Fault> {
    let mut segments = STATE_SEGMENTS.into_iter();
    segments.try_for_each(|segment| database.clear(segment))
}

/// Removes what an interrupted load has left, and adds the mark of a new one to `batch`.
pub(crate) fn begin_loading(database: &Database, batch: &mut Batch) -> Result<(), Fault> {
    if is_loading(database)? {
        database.remove_staging_dir()?;
        remove_partial_state(database)?;
    } else if database.prefix(Segment::Accounts, &[]).next().is_some() {
        // A state that has lost its head is not overwritten.
        return Err(Fault::Missing {
            segment: Segment::Meta.name(),
            key: "head (there are accounts, so it was lost)".to_owned(),
        });
    }
    batch.put(Segment::Meta, LOADING, &[1]);
    Ok(())
}
