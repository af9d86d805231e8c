//! The state before each transaction of a block, as the block access list claims it (EIP-7928).
//!
//! The list came with the block and may lie. A speculative result counts only if every value that the transaction read
//! turns out to be true, and each value that came from the list must have been loaded by the block itself by then: for
//! what no transaction has loaded yet, only the parent state is right.

use niwaki_evm::World;
use niwaki_primitives::{
    Account, AccountChanges, Address, B256, Bytes, EMPTY_CODE_HASH, Fault, StateView, U256,
    map::HashMap,
};
use std::cell::{Cell, RefCell};

/// The parent state, and the changes that the access list claims on top of it, by address.
pub(crate) struct Bal<'r> {
    parent: &'r (dyn StateView + Sync),
    accounts: HashMap<Address, Entry<'r>>,
    codes: HashMap<B256, &'r Bytes>,
}

struct Entry<'r> {
    changes: &'r AccountChanges,
    /// One hash for each code change.
    code_hashes: Vec<B256>,
}

/// Position of the last of `changes`, which ascend, whose block access index is below `index`.
pub(super) fn last_before<T>(
    changes: &[T],
    index: u64,
    index_of: impl Fn(&T) -> u64,
) -> Option<usize> {
    let before = changes.partition_point(|change| index_of(change) < index);
    before.checked_sub(1)
}

impl<'r> Bal<'r> {
    /// Indexes `list` and hashes its codes; copies nothing of it.
    pub(crate) fn new(parent: &'r (dyn StateView + Sync), list: &'r [AccountChanges]) -> Self {
        let (mut accounts, mut codes) = (HashMap::default(), HashMap::default());
        for changes in list.iter().filter(|changes| changes.has_changes()) {
            let hash = |code: &'r Bytes| match code.is_empty() {
                true => EMPTY_CODE_HASH,
                false => {
                    let hash = niwaki_crypto::keccak256(code);
                    codes.insert(hash, code);
                    hash
                }
            };
            let new_codes = changes.code_changes.iter().map(|change| &change.new_code);
            let code_hashes = new_codes.map(hash).collect();
            let entry = Entry {
                changes,
                code_hashes,
            };
            accounts.insert(changes.address, entry);
        }
        Self {
            parent,
            accounts,
            codes,
        }
    }
}

impl Entry<'_> {
    /// `account` with what has changed before `index`.
    fn account_before(&self, index: u64, mut account: Account) -> Account {
        let changes = self.changes;
        let balances = &changes.balance_changes;
        if let Some(at) = last_before(balances, index, |change| change.block_access_index.0) {
            account.balance = balances[at].post_balance;
        }
        let nonces = &changes.nonce_changes;
        if let Some(at) = last_before(nonces, index, |change| change.block_access_index.0) {
            account.nonce = nonces[at].new_nonce;
        }
        let codes = &changes.code_changes;
        if let Some(at) = last_before(codes, index, |change| change.block_access_index.0) {
            account.code_hash = self.code_hashes[at];
        }
        account
    }

    /// The value of a slot, if it has changed before `index`.
    fn slot_before(&self, index: u64, slot: &U256) -> Option<U256> {
        let slots = &self.changes.storage_changes;
        let at = slots.binary_search_by(|changes| changes.slot.cmp(slot));
        let changes = &slots[at.ok()?].changes;
        let at = last_before(changes, index, |change| change.block_access_index.0)?;
        Some(changes[at].new_value)
    }
}

/// What a transaction read from the access list and not from the parent state.
#[derive(Debug, Default)]
pub(super) struct BalReads {
    accounts: Vec<Address>,
    slots: Vec<(Address, U256)>,
}

impl BalReads {
    /// Whether the block itself has loaded all of it into `world`, so that it can be compared.
    pub(super) fn are_loaded_in(&self, world: &World<'_>) -> bool {
        let mut slots = self.slots.iter();
        self.accounts.iter().all(|address| world.has_seen(address))
            && slots.all(|(address, slot)| world.has_seen_slot(address, *slot))
    }
}

/// The state before one transaction, for one worker.
pub(super) struct BalView<'r> {
    bal: &'r Bal<'r>,
    /// Block access index of the transaction: 1 for the first.
    index: Cell<u64>,
    reads: RefCell<BalReads>,
}

impl<'r> BalView<'r> {
    pub(super) fn new(bal: &'r Bal<'r>) -> Self {
        Self {
            bal,
            index: Cell::new(0),
            reads: RefCell::default(),
        }
    }

    /// Moves the view to the state before the transaction at `index` of the block.
    pub(super) fn begin(&self, index: usize) {
        self.index.set((index as u64).saturating_add(1));
        *self.reads.borrow_mut() = BalReads::default();
    }

    /// What was read from the list since the transaction began.
    pub(super) fn take_reads(&self) -> BalReads {
        self.reads.take()
    }
}

impl StateView for BalView<'_> {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        let parent = self.bal.parent.account(address)?;
        let Some(entry) = self.bal.accounts.get(address) else {
            return Ok(parent);
        };
        let before = parent.unwrap_or_default();
        let now = entry.account_before(self.index.get(), before);
        if now == before {
            return Ok(parent);
        }
        self.reads.borrow_mut().accounts.push(*address);
        // Empty accounts are deleted, unless they have storage, which the list does not say.
        let is_deleted = now.is_empty() && !self.bal.parent.has_storage(address)?;
        Ok((!is_deleted).then_some(now))
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let entry = self.bal.accounts.get(address);
        match entry.and_then(|entry| entry.slot_before(self.index.get(), slot)) {
            Some(value) => {
                self.reads.borrow_mut().slots.push((*address, *slot));
                Ok(value)
            }
            None => self.bal.parent.storage(address, slot),
        }
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.bal.parent.has_storage(address)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        match self.bal.codes.get(code_hash) {
            Some(code) => Ok(Bytes::clone(code)),
            None => self.bal.parent.code(code_hash),
        }
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.bal.parent.block_hash(number)
    }
}
