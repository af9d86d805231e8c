//! The state before each transaction of a block, as the block's access list tells it (EIP-7928).
//!
//! The list came with the block and may lie. A run upon it counts only if everything that it has read
//! holds, and what the list alone has told must have been seen by the block so far: of what no
//! transaction has seen yet, the parent state tells the truth, and nothing else does.

use niwaki_evm::World;
use niwaki_primitives::{
    Account, AccountChanges, Address, B256, Bytes, EMPTY_CODE_HASH, Fault, StateView, U256,
    map::HashMap,
};
use std::cell::{Cell, RefCell};

/// A parent state, and upon it the changes that a list tells.
pub(super) struct Listed<'r> {
    parent: &'r (dyn StateView + Sync),
    accounts: HashMap<Address, Entry<'r>>,
    codes: HashMap<B256, &'r Bytes>,
}

struct Entry<'r> {
    changes: &'r AccountChanges,
    /// One for each change of its code.
    code_hashes: Vec<B256>,
}

/// The last of `changes`, which ascend, whose index is below `index`.
pub(super) fn last_before<T>(
    changes: &[T],
    index: u64,
    index_of: impl Fn(&T) -> u64,
) -> Option<usize> {
    let before = changes.partition_point(|change| index_of(change) < index);
    before.checked_sub(1)
}

impl<'r> Listed<'r> {
    /// Hashes the codes of the list, and copies nothing of it.
    pub(super) fn new(parent: &'r (dyn StateView + Sync), list: &'r [AccountChanges]) -> Self {
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

/// What a run was told by the list, and not by the parent state.
#[derive(Debug, Default)]
pub(super) struct Told {
    accounts: Vec<Address>,
    slots: Vec<(Address, U256)>,
}

impl Told {
    /// Whether the block has seen all of it, so that it can be compared.
    pub(super) fn is_known_to(&self, world: &World<'_>) -> bool {
        let mut slots = self.slots.iter();
        self.accounts.iter().all(|address| world.knows(address))
            && slots.all(|(address, slot)| world.knows_slot(address, *slot))
    }
}

/// The state before one transaction after the other, for one thread.
pub(super) struct BeforeEach<'r> {
    list: &'r Listed<'r>,
    /// Of the transaction, as the list counts.
    index: Cell<u64>,
    told: RefCell<Told>,
}

impl<'r> BeforeEach<'r> {
    pub(super) fn new(list: &'r Listed<'r>) -> Self {
        Self {
            list,
            index: Cell::new(0),
            told: RefCell::default(),
        }
    }

    /// From here on the state is that before the transaction at `index` of the block.
    pub(super) fn begin(&self, index: usize) {
        self.index.set((index as u64).saturating_add(1));
        *self.told.borrow_mut() = Told::default();
    }

    /// What the list has told since the transaction began.
    pub(super) fn take_told(&self) -> Told {
        self.told.take()
    }
}

impl StateView for BeforeEach<'_> {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        let parent = self.list.parent.account(address)?;
        let Some(entry) = self.list.accounts.get(address) else {
            return Ok(parent);
        };
        let before = parent.unwrap_or_default();
        let now = entry.account_before(self.index.get(), before);
        if now == before {
            return Ok(parent);
        }
        self.told.borrow_mut().accounts.push(*address);
        // Empty accounts go, unless there is more to tell of them than the list can.
        let is_gone = now.is_empty() && !self.list.parent.has_storage(address)?;
        Ok((!is_gone).then_some(now))
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let entry = self.list.accounts.get(address);
        match entry.and_then(|entry| entry.slot_before(self.index.get(), slot)) {
            Some(value) => {
                self.told.borrow_mut().slots.push((*address, *slot));
                Ok(value)
            }
            None => self.list.parent.storage(address, slot),
        }
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.list.parent.has_storage(address)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        match self.list.codes.get(code_hash) {
            Some(code) => Ok(Bytes::clone(code)),
            None => self.list.parent.code(code_hash),
        }
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.list.parent.block_hash(number)
    }
}
