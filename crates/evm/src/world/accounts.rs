//! Accounts of the world: one record each, looked up by address once and by id from then on.

use super::{World, journal::JournalEntry, read_write_set::ReadFlags, slots::SlotId};
use crate::{code::Code, code_cache, overrides::BuiltIn};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Account, Address, B256, EMPTY_CODE_HASH, Fault, U256};
use std::{cell::Cell, sync::Arc};

/// Id of an account, valid for one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountId(pub(crate) u32);

impl AccountId {
    /// Bits of this id and of a key in its storage, for [`RecentIds`](super::recent_ids::RecentIds).
    #[inline(always)]
    pub(super) fn bits_with(self, key: &U256) -> u64 {
        key.as_limbs()[0] ^ u64::from(self.0) << 40
    }
}

/// Id of a code, valid for one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeId(pub(crate) u32);

impl CodeId {
    /// No code.
    pub(crate) const EMPTY: Self = Self(0);
    /// The code has not been loaded yet.
    const NOT_LOADED: Self = Self(u32::MAX);

    /// Of an account whose code has not been loaded.
    pub(super) fn not_loaded(account: &Account) -> Self {
        match account.has_code() {
            true => Self::NOT_LOADED,
            false => Self::EMPTY,
        }
    }
}

#[derive(Debug)]
pub(super) struct AccountRecord {
    pub(super) address: Address,
    /// The account in the parent state.
    pub(super) parent: Option<Account>,
    pub(super) current: Account,
    pub(super) exists: bool,
    /// Whether its storage in the parent state is gone.
    pub(super) is_wiped: bool,
    pub(super) code: CodeId,
    /// Transaction in which the account is warm.
    pub(super) warm_tx: u32,
    /// Transaction that touched it (EIP-161).
    pub(super) touched_tx: u32,
    /// Transaction that created it by CREATE or as its target.
    pub(super) created_tx: u32,
    /// Transaction that destroyed it.
    pub(super) destroyed_tx: u32,
    /// The slot interned last; the slots are a linked list.
    pub(super) first_slot: Option<SlotId>,
    pub(super) precompiled: Option<BuiltIn>,
    /// Whether the block has accessed it (EIP-7928).
    pub(super) is_accessed: bool,
    /// Whether it is in the dirty set.
    pub(super) is_dirty: bool,
    /// What a speculative execution has read of it.
    pub(super) reads: Cell<ReadFlags>,
    /// Whether a precompiled contract is at the address (EIP-2929), also if a simulation has moved it away.
    pub(super) is_always_warm: bool,
}

impl AccountRecord {
    /// Notes a read, for validation.
    #[inline]
    fn note_read(&self, flags: ReadFlags) -> &Self {
        self.reads.set(self.reads.get().with(flags));
        self
    }
}

impl World<'_> {
    pub(super) fn record(&self, id: AccountId) -> &AccountRecord {
        &self.accounts[id.0 as usize]
    }

    pub(super) fn record_mut(&mut self, id: AccountId) -> &mut AccountRecord {
        &mut self.accounts[id.0 as usize]
    }

    /// The id of the account at `address`, which is read from the parent state the first time.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    ///
    /// # Panics
    /// After 2^32 accounts in one block.
    #[inline]
    pub fn load(&mut self, address: &Address) -> Result<AccountId, Fault> {
        match self.find(address) {
            Some(id) => {
                self.track_account(id);
                Ok(id)
            }
            None => self.intern(address),
        }
    }

    /// The id of an account, if the block has seen it.
    #[inline]
    pub(super) fn id_of(&self, address: &Address) -> Option<AccountId> {
        let is = |id: u32| self.accounts[id as usize].address == *address;
        let hash = self.account_ids.hash_address(address);
        self.account_ids.find(hash, is).map(AccountId)
    }

    /// As [`World::id_of`], through the cache of recent ids.
    #[inline]
    fn find(&mut self, address: &Address) -> Option<AccountId> {
        let [.., a, b, c, d, e, f, g, h] = address.0.0;
        let bits = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let recent = self.recent_accounts.get(bits);
        let record = self.accounts.get(recent as usize);
        if record.is_some_and(|record| record.address == *address) {
            return Some(AccountId(recent));
        }
        let id = self.id_of(address)?;
        self.recent_accounts.put(bits, id.0);
        Some(id)
    }

    #[cold]
    fn intern(&mut self, address: &Address) -> Result<AccountId, Fault> {
        let parent = self.view.account(address)?;
        Ok(self.intern_as(address, parent))
    }

    /// Interns an account that the block has not seen, with its value in the parent state.
    pub(super) fn intern_as(&mut self, address: &Address, parent: Option<Account>) -> AccountId {
        let current = parent.unwrap_or_default();
        let own_precompiled = self.precompiles.get(address);
        let id = AccountId(u32::try_from(self.accounts.len()).expect("gas bounds the accounts"));
        self.accounts.push(AccountRecord {
            address: *address,
            parent,
            current,
            exists: parent.is_some(),
            is_wiped: false,
            code: CodeId::not_loaded(&current),
            warm_tx: if self.prewarmed_accounts.contains(address) {
                self.tx
            } else {
                0
            },
            touched_tx: 0,
            created_tx: 0,
            destroyed_tx: 0,
            first_slot: None,
            precompiled: match self.precompile_overrides.get(address) {
                Some(moved) => moved.map(BuiltIn::Stock),
                None => own_precompiled,
            },
            is_accessed: false,
            is_dirty: false,
            reads: Cell::default(),
            is_always_warm: own_precompiled.is_some(),
        });
        let hash = self.account_ids.hash_address(address);
        self.account_ids.insert(hash, id.0);
        self.track_account(id);
        id
    }

    /// The account's address.
    pub fn address(&self, id: AccountId) -> Address {
        self.record(id).address
    }

    /// Balance in wei.
    #[inline]
    pub fn balance(&self, id: AccountId) -> U256 {
        self.record(id)
            .note_read(ReadFlags::BALANCE)
            .current
            .balance
    }

    /// Whether the account has `amount` wei. If so, only that counts as read of its balance.
    pub fn can_pay(&mut self, id: AccountId, amount: U256) -> bool {
        let record = self.record(id);
        let Some(rest) = record.current.balance.checked_sub(amount) else {
            record.note_read(ReadFlags::BALANCE);
            return false;
        };
        if self.speculation.is_some() {
            self.track_min_balance(id, rest);
        }
        true
    }

    /// Takes `amount` wei from the account, or its whole balance if that is less.
    pub fn pay(&mut self, id: AccountId, amount: U256) {
        let rest = match self.can_pay(id, amount) {
            true => self.record(id).current.balance.wrapping_sub(amount),
            false => U256::ZERO,
        };
        self.set_balance(id, rest);
    }

    /// Nonce.
    pub fn nonce(&self, id: AccountId) -> u64 {
        self.record(id).note_read(ReadFlags::NONCE).current.nonce
    }

    /// Whether the account exists, empty or not.
    pub fn exists(&self, id: AccountId) -> bool {
        self.record(id).note_read(ReadFlags::EXISTENCE).exists
    }

    /// Whether the account is empty in the sense of EIP-161, or does not exist.
    pub fn is_empty(&self, id: AccountId) -> bool {
        let record = self.record(id);
        let before = record.parent.map_or(U256::ZERO, |parent| parent.balance);
        // An account that has more than before the block is not empty, whatever it had: without nonce and code it
        // can't spend, so its balance does not fall again before the transaction ends.
        if record.current.balance <= before {
            record.note_read(ReadFlags::EMPTINESS);
        }
        record.current.is_empty()
    }

    /// The hash of the account's code, if the account exists.
    pub fn code_hash(&self, id: AccountId) -> Option<B256> {
        let record = self.record(id).note_read(ReadFlags::EXISTENCE);
        record.exists.then_some(record.current.code_hash)
    }

    /// The precompiled contract at the account's address.
    pub(crate) fn precompiled(&self, id: AccountId) -> Option<BuiltIn> {
        self.record(id).precompiled
    }

    /// The id of the account's code, which is prepared the first time.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    #[inline]
    pub fn code(&mut self, id: AccountId) -> Result<CodeId, Fault> {
        match self.record(id).code {
            CodeId::NOT_LOADED => self.intern_code(id),
            known => Ok(known),
        }
    }

    #[cold]
    fn intern_code(&mut self, id: AccountId) -> Result<CodeId, Fault> {
        let hash = self.record(id).current.code_hash;
        let code = match self.code_ids.get(&hash) {
            Some(known) => *known,
            None => match code_cache::get(&hash) {
                Some(prepared) => self.add_code(prepared),
                None => {
                    let bytes = self.view.code(&hash)?;
                    self.add_new_code(&bytes, hash)
                }
            },
        };
        self.record_mut(id).code = code;
        Ok(code)
    }

    fn add_code(&mut self, code: Arc<Code>) -> CodeId {
        let id = CodeId(u32::try_from(self.codes.len()).expect("gas bounds the codes"));
        self.code_ids.insert(code.hash(), id);
        self.codes.push(code);
        id
    }

    fn add_new_code(&mut self, bytes: &[u8], hash: B256) -> CodeId {
        let code = Arc::new(Code::new(bytes, hash));
        code_cache::put(code.clone());
        self.add_code(code)
    }

    /// The code with this id.
    #[inline]
    pub fn code_at(&self, id: CodeId) -> &Code {
        &self.codes[id.0 as usize]
    }

    /// Accesses the account at `address` as an opcode does: takes `cold_price` from `left` if it is cold, and makes it
    /// warm. `None` if there is less gas left; then nothing was read.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    #[inline]
    pub(crate) fn access(
        &mut self,
        address: &Address,
        left: &mut i64,
        cold_price: i64,
    ) -> Result<Option<AccountId>, Fault> {
        let tx = self.tx;
        let id = match self.find(address) {
            Some(id) => {
                let record = &self.accounts[id.0 as usize];
                if record.warm_tx != tx && !record.is_always_warm {
                    *left -= cold_price;
                }
                id
            }
            None => {
                let is_warm = self.prewarmed_accounts.contains(address)
                    || self.precompiles.get(address).is_some();
                *left -= if is_warm { 0 } else { cold_price };
                if *left < 0 {
                    return Ok(None);
                }
                self.intern(address)?
            }
        };
        if *left < 0 {
            return Ok(None);
        }
        self.track_account(id);
        let record = self.record_mut(id);
        record.is_accessed = true;
        if record.warm_tx != tx && !record.is_always_warm {
            record.warm_tx = tx;
            self.journal.push(JournalEntry::WarmAccount { account: id });
        }
        Ok(Some(id))
    }

    /// Loads an account that the transaction accesses outside of opcodes: free, but in the block access list.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn load_accessed(&mut self, address: &Address) -> Result<AccountId, Fault> {
        let id = self.load(address)?;
        self.record_mut(id).is_accessed = true;
        Ok(id)
    }

    /// Makes an account warm for the whole transaction (EIP-2930, EIP-3651) without reading it.
    pub fn warm_account(&mut self, address: &Address) {
        match self.id_of(address) {
            Some(id) => self.accounts[id.0 as usize].warm_tx = self.tx,
            None => {
                self.prewarmed_accounts.insert(*address);
            }
        }
    }

    /// Loads an account and makes it warm for the whole transaction, whatever reverts (EIP-2929, EIP-7702).
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn load_warm(&mut self, address: &Address) -> Result<AccountId, Fault> {
        let id = self.load_accessed(address)?;
        self.record_mut(id).warm_tx = self.tx;
        Ok(id)
    }

    /// Makes the account exist, and marks it for EIP-161's clearing of empty accounts.
    pub fn touch(&mut self, id: AccountId) {
        let tx = self.tx;
        let record = self.record_mut(id);
        record.is_accessed = true;
        if !record.exists {
            record.exists = true;
            self.journal.push(JournalEntry::Existence { account: id });
        }
        let record = self.record_mut(id);
        if record.touched_tx != tx {
            record.touched_tx = tx;
            self.touched.push(id);
            self.journal.push(JournalEntry::Touch { account: id });
        }
    }

    /// Sets the balance, wei. The account exists from then on.
    pub fn set_balance(&mut self, id: AccountId, balance: U256) {
        self.touch(id);
        let record = self.record_mut(id);
        let old = std::mem::replace(&mut record.current.balance, balance);
        self.journal
            .push(JournalEntry::Balance { account: id, old });
    }

    /// Adds to the balance, wei. Wraps: supply bounds every balance below 2^256.
    pub fn add_balance(&mut self, id: AccountId, amount: U256) {
        let balance = self.record(id).current.balance;
        self.set_balance(id, balance.wrapping_add(amount));
    }

    /// Moves `amount` wei; false, and nothing moved, if `from` has less.
    #[must_use]
    pub fn transfer(&mut self, from: AccountId, to: AccountId, amount: U256) -> bool {
        if !self.can_pay(from, amount) {
            return false;
        }
        let rest = self.record(from).current.balance.wrapping_sub(amount);
        self.set_balance(from, rest);
        self.add_balance(to, amount);
        true
    }

    /// Sets the nonce. The account exists from then on.
    pub fn set_nonce(&mut self, id: AccountId, nonce: u64) {
        self.touch(id);
        let record = self.record_mut(id);
        let old = std::mem::replace(&mut record.current.nonce, nonce);
        self.journal.push(JournalEntry::Nonce { account: id, old });
    }

    /// Sets the code. The account exists from then on. Linear in the code's length.
    pub fn set_code(&mut self, id: AccountId, code: &[u8]) {
        let last = self.new_codes.last().map(|last| self.code_at(*last));
        let hash = match last.filter(|last| last.bytes() == code) {
            Some(last) => last.hash(),
            None if code.is_empty() => EMPTY_CODE_HASH,
            None => keccak256(code),
        };
        let new = match self.code_ids.get(&hash) {
            Some(known) => *known,
            None if code.is_empty() => CodeId::EMPTY,
            None => self.add_new_code(code, hash),
        };
        self.put_code(id, hash, new);
    }

    /// As [`World::set_code`], with prepared code.
    pub(super) fn set_prepared_code(&mut self, id: AccountId, code: Arc<Code>) {
        let hash = code.hash();
        let new = match self.code_ids.get(&hash) {
            Some(known) => *known,
            None if code.bytes().is_empty() => CodeId::EMPTY,
            None => self.add_code(code),
        };
        self.put_code(id, hash, new);
    }

    fn put_code(&mut self, id: AccountId, hash: B256, new: CodeId) {
        self.new_codes.push(new);
        self.touch(id);
        let record = self.record_mut(id);
        let old = (record.current.code_hash, record.code);
        record.current.code_hash = hash;
        record.code = new;
        self.journal.push(JournalEntry::Code {
            account: id,
            hash: old.0,
            code: old.1,
        });
    }

    /// Whether a contract can't be created at the account's address (EIP-684, EIP-7610).
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub(crate) fn has_collision(&mut self, id: AccountId) -> Result<bool, Fault> {
        let record = self.record(id).note_read(ReadFlags::NONCE);
        if record.current.nonce != 0 || record.current.has_code() {
            return Ok(true);
        }
        if !self.storage_bars_creation {
            return Ok(false);
        }
        let is_set = |slot| !self.slot_value(slot).is_zero();
        if self.slots_of(id).any(is_set) {
            // An earlier transaction may have read the slot, so this one has not tracked it.
            if let Some(speculation) = &mut self.speculation {
                speculation.is_untrackable = true;
            }
            return Ok(true);
        }
        // Slots that this block has not seen. One that it has set to zero still counts; but an account without nonce
        // and code can't change its slots.
        self.may_have_unseen_storage(id)
    }

    fn may_have_unseen_storage(&mut self, id: AccountId) -> Result<bool, Fault> {
        let record = self.record(id);
        if record.is_wiped || record.parent.is_none() {
            return Ok(false);
        }
        let has_storage = self.view.has_storage(&record.address)?;
        if let Some(speculation) = &mut self.speculation {
            speculation.is_untrackable |= has_storage;
        }
        Ok(has_storage)
    }

    /// Clears storage that an account without nonce and code may have, so that a contract created there starts with
    /// none. No such account has ever been on a public chain.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    ///
    /// Spec: execution-specs `amsterdam/vm/interpreter.py`, `process_create_message`.
    pub(crate) fn clear_for_creation(&mut self, id: AccountId) -> Result<(), Fault> {
        if self.storage_bars_creation || !self.may_have_unseen_storage(id)? {
            return Ok(());
        }
        self.record_mut(id).is_wiped = true;
        self.journal.push(JournalEntry::Wiped { account: id });
        self.set_slots(id, |_| U256::ZERO);
        Ok(())
    }

    /// Marks the account as created in this transaction (EIP-6780).
    pub(crate) fn mark_created(&mut self, id: AccountId) {
        let tx = self.tx;
        let record = self.record_mut(id);
        let old = std::mem::replace(&mut record.created_tx, tx);
        self.journal
            .push(JournalEntry::Created { account: id, old });
    }

    /// Moves the whole balance to `beneficiary` and, unless the fork spares old accounts, marks
    /// the account for deletion. True if this is the transaction's first mark on it.
    pub(crate) fn self_destruct(
        &mut self,
        id: AccountId,
        beneficiary: AccountId,
        only_new: bool,
    ) -> bool {
        let balance = self.balance(id);
        let tx = self.tx;
        let deletes = !only_new || self.record(id).created_tx == tx;
        // Sent to itself, the balance is lost with the account before EIP-8246.
        if id != beneficiary || deletes && !self.destroyed_keep_balance {
            self.add_balance(beneficiary, balance);
            self.set_balance(id, U256::ZERO);
            self.log_transfer(id, beneficiary, balance);
        }
        if !deletes || self.record(id).destroyed_tx == tx {
            return false;
        }
        let old = std::mem::replace(&mut self.record_mut(id).destroyed_tx, tx);
        self.destroyed.push(id);
        self.journal
            .push(JournalEntry::Destroyed { account: id, old });
        true
    }

    /// Accounts that the transaction destroyed, for logs (later forks) and traces.
    pub fn destroyed(&self) -> impl Iterator<Item = Address> {
        let live = |id: &&AccountId| self.record(**id).destroyed_tx == self.tx;
        self.destroyed
            .iter()
            .filter(live)
            .map(|id| self.record(*id).address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use niwaki_primitives::Fork;
    use niwaki_testkit::MemoryState;

    /// `set_code` reuses the hash of the last code if it is equal.
    #[test]
    fn code_hash_is_keccak_of_code_in_any_order_of_4_codes() {
        let state = MemoryState::default();
        let mut world = World::new(&state, Table::of(Fork::London));
        let codes: [&[u8]; 4] = [&[], &[1], &[2], &[1, 0]];
        for (at, order) in (1..).zip([0, 1, 1, 2, 1, 3, 0, 0, 3, 1]) {
            let account = world.load(&Address::with_last_byte(at)).unwrap();
            world.set_code(account, codes[order]);
            assert_eq!(world.code_hash(account), Some(keccak256(codes[order])));
            let code = world.code(account).unwrap();
            assert_eq!(world.code_at(code).bytes(), codes[order]);
        }
    }
}
