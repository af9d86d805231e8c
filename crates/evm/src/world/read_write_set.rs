//! Speculative execution of a transaction, and the read-write set that it leaves (Block-STM).
//!
//! A worker runs a transaction on a world of its own, whose view may miss writes of transactions before it. The
//! [`ReadWriteSet`] lists what the transaction has read and written. When all transactions before it are in the world
//! of the commit thread, that thread validates the set: if every value that was read is the same there, it applies the
//! writes as if the transaction had run there; if not, it re-executes the transaction. Validation compares values, not
//! versions: which transaction wrote a value does not matter.
//!
//! ```text
//! worker's world                      commit thread's world
//! reset_ / undo_speculation()
//! assume_nonce, run, ...
//! take_read_write_set()  --set-->     validate(&set) -> Some(ids)    or None: re-execute
//!                                     apply(set, &ids)
//!                                     end_transaction()
//! ```
//!
//! Balances are compared less strictly, since fees and transfers of many transactions meet on few accounts. A balance
//! that was only added to or taken from is written as a difference, and a check for enough balance is read as the
//! least balance that passes it:
//!
//! ```text
//! parent balance 10; the transaction pays 3 (can_pay(10 -> 7 left))   min_balance = 3, difference -3
//! at validation the balance is 8                                      8 >= 3: valid; applied: 5
//! ```

use super::{AccountId, CodeId, SlotId, World, journal::JournalEntry};
use crate::code::Code;
use niwaki_primitives::{Account, Address, Fault, Log, U256, map::HashMap};
use std::sync::Arc;

/// What a transaction has read of an account, besides its code hash, which is always compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadFlags(u8);

impl ReadFlags {
    pub(super) const BALANCE: Self = Self(1);
    pub(super) const NONCE: Self = Self(2);
    pub(super) const EMPTINESS: Self = Self(4);
    pub(super) const EXISTENCE: Self = Self(8);

    pub(super) const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    const fn has(self, look: Self) -> bool {
        self.0 & look.0 != 0
    }
}

/// What a speculative execution tracks, besides the flags on account and slot records.
#[derive(Debug, Default)]
pub(super) struct Speculation {
    /// The sender, and its assumed nonce.
    sender: Option<(AccountId, u64)>,
    /// The least parent balances with which every payment still succeeds.
    min_balances: HashMap<AccountId, U256>,
    /// Whether it has read something that validation can't compare: the set is then not taken.
    pub(super) is_untrackable: bool,
    /// Accounts that were loaded, with duplicates.
    accounts: Vec<AccountId>,
    /// Slots that were loaded, each once.
    slots: Vec<SlotId>,
}

/// What a speculative execution has read and written.
#[derive(Debug)]
pub struct ReadWriteSet {
    accounts: Vec<AccountReadWrite>,
    slots: Vec<SlotReadWrite>,
    logs: Vec<Log>,
}

#[derive(Debug)]
struct AccountReadWrite {
    address: Address,
    /// The account as it was read.
    parent: Option<Account>,
    /// The nonce before the transaction: the sender's is the assumed one.
    nonce: u64,
    reads: ReadFlags,
    /// The least balance with which every payment succeeds.
    min_balance: U256,
    after: Account,
    /// The new code, if it changed.
    code: Option<Arc<Code>>,
    is_accessed: bool,
    is_touched: bool,
    is_destroyed: bool,
}

#[derive(Debug)]
struct SlotReadWrite {
    /// Index into the set's accounts.
    account: usize,
    key: U256,
    before: U256,
    after: U256,
    is_accessed: bool,
}

impl ReadWriteSet {
    /// Each account that was loaded, and whether its balance and its nonce were read.
    pub fn accounts_read(&self) -> impl Iterator<Item = (Address, bool, bool)> {
        let read = |entry: &AccountReadWrite| {
            let reads = entry.reads;
            (
                entry.address,
                reads.has(ReadFlags::BALANCE),
                reads.has(ReadFlags::NONCE),
            )
        };
        self.accounts.iter().map(read)
    }

    /// Each slot that was loaded, also if only to write it.
    pub fn slots_read(&self) -> impl Iterator<Item = (Address, U256)> {
        let address = |at: usize| self.accounts[at].address;
        self.slots
            .iter()
            .map(move |slot| (address(slot.account), slot.key))
    }
}

/// The ids of the accounts and slots of a set that [`World::validate`] found valid.
#[derive(Debug)]
pub struct ValidatedIds {
    accounts: Vec<AccountId>,
    slots: Vec<SlotId>,
}

impl World<'_> {
    /// Begins a speculative execution on a view that has changed: forgets everything but codes.
    pub fn reset_speculation(&mut self) {
        self.account_ids.clear();
        self.accounts.clear();
        self.slot_ids.clear();
        self.slots.clear();
        self.begin_speculation();
    }

    /// Begins a speculative execution on a view whose changes the caller reports by [`World::refresh_account`] and
    /// [`World::refresh_slot`]: undoes the writes of the previous one, and keeps the values that were read.
    pub fn undo_speculation(&mut self) {
        let Some(speculation) = &mut self.speculation else {
            return self.begin_speculation();
        };
        let accounts = std::mem::take(&mut speculation.accounts);
        for id in std::mem::take(&mut speculation.slots) {
            let slot = &mut self.slots[id.0 as usize];
            slot.current = slot.parent;
            slot.is_accessed = false;
        }
        for id in accounts {
            let parent = self.record(id).parent;
            self.reset_account(id, parent);
        }
        self.begin_speculation();
    }

    fn begin_speculation(&mut self) {
        self.new_codes.clear();
        **self.speculation.get_or_insert_default() = Speculation::default();
        self.begin_transaction();
    }

    /// Resets an account to its value in the parent state, not read yet.
    fn reset_account(&mut self, id: AccountId, parent: Option<Account>) {
        let record = self.record_mut(id);
        let before = std::mem::replace(&mut record.current, parent.unwrap_or_default());
        if before.code_hash != record.current.code_hash {
            record.code = CodeId::not_loaded(&record.current);
        }
        record.parent = parent;
        record.exists = parent.is_some();
        record.is_accessed = false;
        record.reads.take();
        if std::mem::take(&mut record.is_wiped) {
            self.set_slots(id, |slot| slot.parent);
        }
    }

    /// Takes over a new value of an account in the view, between two speculative executions. An account that is not
    /// loaded yet is read from the view when it is.
    pub fn refresh_account(&mut self, address: &Address, account: Option<Account>) {
        if let Some(id) = self.id_of(address) {
            self.reset_account(id, account);
        }
    }

    /// The same for a slot.
    pub fn refresh_slot(&mut self, address: &Address, key: U256, value: U256) {
        let account = self.id_of(address);
        let id = account.and_then(|account| self.id_of_slot(account, &key));
        if let Some(id) = id {
            let slot = &mut self.slots[id.0 as usize];
            (slot.parent, slot.current) = (value, value);
        }
    }

    /// Tracks an account that a speculative execution loads.
    #[inline]
    pub(super) fn track_account(&mut self, id: AccountId) {
        if let Some(speculation) = &mut self.speculation {
            speculation.accounts.push(id);
        }
    }

    /// Tracks a slot that a speculative execution loads for the first time.
    #[inline]
    pub(super) fn track_slot(&mut self, id: SlotId) {
        if let Some(speculation) = &mut self.speculation {
            speculation.slots.push(id);
        }
    }

    /// Tracks that a payment succeeds and would leave `rest`: the parent balance could be smaller by that much.
    pub(super) fn track_min_balance(&mut self, id: AccountId, rest: U256) {
        let before = self.record(id).parent.unwrap_or_default().balance;
        if let Some(speculation) = &mut self.speculation {
            let min_balance = speculation.min_balances.entry(id).or_default();
            *min_balance = (*min_balance).max(before.saturating_sub(rest));
        }
    }

    /// Assumes a nonce of the sender: the one that the transactions before will have led to.
    pub fn assume_nonce(&mut self, id: AccountId, nonce: u64) {
        self.record_mut(id).current.nonce = nonce;
        if let Some(speculation) = &mut self.speculation {
            speculation.sender = Some((id, nonce));
        }
    }

    /// Takes the read-write set of the last execution, which has not been ended. `None` if it has read something that
    /// validation can't compare.
    pub fn take_read_write_set(&mut self) -> Option<ReadWriteSet> {
        let speculation = self
            .speculation
            .as_mut()
            .filter(|speculation| !speculation.is_untrackable)?;
        speculation.accounts.sort_unstable_by_key(|id| id.0);
        speculation.accounts.dedup();
        let speculation = self.speculation.as_ref()?;
        let accounts = speculation
            .accounts
            .iter()
            .map(|id| self.account_read_write(*id, speculation));
        let accounts = accounts.collect();
        let slots = speculation.slots.iter().map(|id| {
            let slot = self.slot_record(*id);
            let of_account = |id: &AccountId| id.0.cmp(&slot.account.0);
            Some(SlotReadWrite {
                account: speculation.accounts.binary_search_by(of_account).ok()?,
                key: slot.key,
                before: slot.parent,
                after: slot.current,
                is_accessed: slot.is_accessed,
            })
        });
        let slots = slots.collect::<Option<_>>()?;
        Some(ReadWriteSet {
            accounts,
            slots,
            logs: self.take_logs(),
        })
    }

    fn account_read_write(&self, id: AccountId, speculation: &Speculation) -> AccountReadWrite {
        let record = self.record(id);
        let assumed = speculation.sender.filter(|(sender, _)| *sender == id);
        let before = record.parent.unwrap_or_default();
        let has_new_code = record.current.code_hash != before.code_hash;
        AccountReadWrite {
            address: record.address,
            parent: record.parent,
            nonce: assumed.map_or(before.nonce, |(_, nonce)| nonce),
            reads: record.reads.get(),
            min_balance: speculation
                .min_balances
                .get(&id)
                .copied()
                .unwrap_or_default(),
            after: record.current,
            code: has_new_code.then(|| self.codes[record.code.0 as usize].clone()),
            is_accessed: record.is_accessed,
            is_touched: record.touched_tx == self.tx,
            is_destroyed: record.destroyed_tx == self.tx,
        }
    }

    /// Validates a set between two transactions: `Some` if this world has every value that the set has read.
    ///
    /// The set comes from a world whose view is this world's view plus some of this world's writes. An account or slot
    /// that this world has not loaded is therefore unwritten, and is interned with the value that the set has read.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn validate(&mut self, set: &ReadWriteSet) -> Result<Option<ValidatedIds>, Fault> {
        let mut accounts = Vec::with_capacity(set.accounts.len());
        for entry in &set.accounts {
            let id = match self.id_of(&entry.address) {
                Some(id) => id,
                None => self.intern_as(&entry.address, entry.parent),
            };
            if !self.is_account_valid(id, entry) {
                return Ok(None);
            }
            accounts.push(id);
        }
        let mut slots = Vec::with_capacity(set.slots.len());
        for entry in &set.slots {
            let account = accounts[entry.account];
            let id = match self.id_of_slot(account, &entry.key) {
                Some(id) => id,
                // Its storage is gone here, so the set's value need not be that of the parent state.
                None if self.record(account).is_wiped => self.slot(account, entry.key)?,
                None => self.intern_slot_as(account, entry.key, entry.before),
            };
            if self.slot_value(id) != entry.before {
                return Ok(None);
            }
            slots.push(id);
        }
        Ok(Some(ValidatedIds { accounts, slots }))
    }

    fn is_account_valid(&self, id: AccountId, entry: &AccountReadWrite) -> bool {
        let record = self.record(id);
        let (now, reads) = (&record.current, entry.reads);
        let before = entry.parent.unwrap_or_default();
        let is_balance_valid = match reads.has(ReadFlags::BALANCE) {
            true => now.balance == before.balance,
            false => now.balance >= entry.min_balance,
        };
        is_balance_valid
            && now.code_hash == before.code_hash
            && (!reads.has(ReadFlags::NONCE) || now.nonce == entry.nonce)
            && (!reads.has(ReadFlags::EMPTINESS) || now.is_empty() == before.is_empty())
            && (!reads.has(ReadFlags::EXISTENCE) || record.exists == entry.parent.is_some())
    }

    /// Applies a valid set as the next transaction, which the caller ends as if it had run here.
    pub fn apply(&mut self, set: ReadWriteSet, ids: &ValidatedIds) {
        self.begin_transaction();
        for (entry, id) in set.accounts.into_iter().zip(&ids.accounts) {
            self.apply_account(*id, entry);
        }
        let tx = self.tx;
        for (entry, id) in set.slots.iter().zip(&ids.slots) {
            let slot = &mut self.slots[id.0 as usize];
            slot.is_accessed |= entry.is_accessed;
            if entry.after != entry.before {
                slot.original_tx = tx;
                slot.original = slot.current;
                self.set_slot(*id, entry.after);
            }
        }
        self.logs = set.logs;
    }

    fn apply_account(&mut self, id: AccountId, entry: AccountReadWrite) {
        let before = entry.parent.unwrap_or_default();
        self.record_mut(id).is_accessed |= entry.is_accessed;
        if entry.is_touched {
            self.touch(id);
        }
        if entry.after.nonce != entry.nonce {
            self.set_nonce(id, entry.after.nonce);
        }
        if entry.after.balance != before.balance {
            let rise = entry.after.balance.wrapping_sub(before.balance);
            self.add_balance(id, rise);
        }
        if let Some(code) = entry.code {
            self.set_prepared_code(id, code);
        }
        if entry.is_destroyed {
            let tx = self.tx;
            let old = std::mem::replace(&mut self.record_mut(id).destroyed_tx, tx);
            self.destroyed.push(id);
            self.journal
                .push(JournalEntry::Destroyed { account: id, old });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use niwaki_primitives::{Bytes, Fork};
    use niwaki_testkit::{MemoryAccount, MemoryState};

    const CONTRACT: Address = Address::repeat_byte(0xc0);
    const PLAIN: Address = Address::repeat_byte(0xee);
    const KEY: U256 = U256::ZERO;

    fn world(state: &MemoryState) -> World<'_> {
        World::new(state, Table::of(Fork::London))
    }

    /// The worker's view has no account at the address, so it has not read the slot in the parent state.
    #[test]
    fn slot_of_destroyed_contract_keeps_prior_value_5_in_diff() {
        let mut parent = MemoryState::default();
        let mut contract = MemoryAccount {
            nonce: 1,
            ..MemoryAccount::default()
        };
        contract.storage.insert(KEY, U256::from(5));
        parent.insert(CONTRACT, contract);
        let mut world = world(&parent);
        world.begin_transaction();
        let id = world.load_accessed(&CONTRACT).unwrap();
        world.self_destruct(id, id, false);
        world.end_transaction();

        let without = MemoryState::default();
        let mut worker = self::world(&without);
        worker.reset_speculation();
        let id = worker.load_accessed(&CONTRACT).unwrap();
        worker.set_nonce(id, 1);
        let slot = worker.slot(id, KEY).unwrap();
        worker.set_slot(slot, U256::from(7));
        let set = worker.take_read_write_set().unwrap();

        let ids = world.validate(&set).unwrap().expect("nothing has changed");
        world.apply(set, &ids);
        world.end_transaction();
        let diff = world.diff();
        let (_, change) = &diff.accounts[0];
        let (_, slot) = change.slots[0];
        assert!(change.storage_wiped);
        assert_eq!((slot.prior, slot.new), (U256::from(5), U256::from(7)));
    }

    /// A contract with 5 in slot 0 and 6 in slot 1, and an account that has nothing but ether.
    fn parent() -> MemoryState {
        let mut state = MemoryState::default();
        let mut contract = MemoryAccount {
            nonce: 1,
            code: Bytes::from_static(&[0]).into(),
            ..MemoryAccount::default()
        };
        contract.storage.insert(KEY, U256::from(5));
        contract.storage.insert(U256::ONE, U256::from(6));
        state.insert(CONTRACT, contract);
        let plain = MemoryAccount {
            balance: U256::from(9),
            ..MemoryAccount::default()
        };
        state.insert(PLAIN, plain);
        state
    }

    /// Writes slot 0, a balance and a code, and reads slot 1.
    fn write_and_read(world: &mut World<'_>) {
        let id = world.load(&CONTRACT).unwrap();
        let (first, second) = (
            world.slot(id, KEY).unwrap(),
            world.slot(id, U256::ONE).unwrap(),
        );
        world.set_slot(first, U256::from(7));
        assert_eq!(world.slot_value(second), U256::from(6));
        let plain = world.load_accessed(&PLAIN).unwrap();
        world.set_balance(plain, U256::ZERO);
        world.set_code(plain, &Bytes::from_static(&[1, 2, 3]));
        let code = world.code(plain).unwrap();
        assert_eq!(world.code_at(code).bytes()[..3], [1, 2, 3]);
    }

    #[test]
    fn undo_speculation_leaves_no_value_and_no_entry_of_previous_run() {
        let state = parent();
        let mut world = world(&state);
        world.undo_speculation();
        write_and_read(&mut world);
        let first = world.take_read_write_set().unwrap();
        assert_eq!((first.accounts.len(), first.slots.len()), (2, 2));
        world.undo_speculation();
        assert_eq!(world.take_read_write_set().unwrap().accounts.len(), 0);
        world.undo_speculation();
        let id = world.load(&CONTRACT).unwrap();
        let slot = world.slot(id, KEY).unwrap();
        assert_eq!(world.slot_value(slot), U256::from(5));
        let plain = world.load(&PLAIN).unwrap();
        assert_eq!(world.balance(plain), U256::from(9));
        assert_eq!(world.code(plain).unwrap(), CodeId::EMPTY);
        let second = world.take_read_write_set().unwrap();
        assert_eq!((second.accounts.len(), second.slots.len()), (2, 1));
        let slot = &second.slots[0];
        assert_eq!((slot.before, slot.after), (U256::from(5), U256::from(5)));
        let plain = second
            .accounts
            .iter()
            .find(|account| account.address == PLAIN);
        let plain = plain.unwrap();
        assert_eq!(
            (plain.after.balance, plain.is_touched, plain.is_accessed),
            (U256::from(9), false, false)
        );
        assert!(plain.code.is_none());
    }

    #[test]
    fn refreshed_values_are_read_and_listed() {
        let state = parent();
        let mut world = world(&state);
        world.undo_speculation();
        write_and_read(&mut world);
        world.undo_speculation();
        world.refresh_slot(&CONTRACT, KEY, U256::from(50));
        world.refresh_account(&PLAIN, None);
        // Not loaded yet: read from the view when they are.
        world.refresh_slot(&CONTRACT, U256::from(2), U256::from(1));
        world.refresh_account(&Address::repeat_byte(1), None);
        let id = world.load(&CONTRACT).unwrap();
        let slot = world.slot(id, KEY).unwrap();
        assert_eq!(world.slot_original(slot), U256::from(50));
        let plain = world.load(&PLAIN).unwrap();
        assert!(!world.exists(plain));
        let set = world.take_read_write_set().unwrap();
        assert_eq!(set.slots[0].before, U256::from(50));
        let plain = set.accounts.iter().find(|account| account.address == PLAIN);
        assert_eq!(plain.unwrap().parent, None);
    }
}
