//! The world state while a block runs: one record per account and slot, and a journal to revert.
//!
//! The first access of an account or slot reads it from the [`StateView`] and interns it: it gets a record, and a
//! 32-bit id that opcodes and journal use from then on. A record has the value in the parent state, the current value,
//! and of a slot the value at the start of the transaction. What holds for one transaction only (warm, touched,
//! created, destroyed) is the number of that transaction, so nothing is cleared between transactions. What a frame may
//! revert is in the journal as id and old value.
//!
//! ```text
//! SLOAD A.x             slots[7] = { parent 1, original 1, current 1, warm_tx 3 }   journal: WarmSlot 7
//! SSTORE A.x 5          slots[7].current = 5                                        journal: WarmSlot 7, Slot 7 old 1
//! REVERT                the journal is undone from its end to the frame's checkpoint
//! end of block: diff()  A.x: 1 -> 5
//! ```
//!
//! Three readers follow the writes without slowing the opcodes, each when a transaction ends: the block access list
//! (`access_list`), the dirty set of the incremental root (`dirty`), and the listener of speculating workers
//! (`listener`). `read_write_set` runs transactions speculatively and moves their writes to another world.

mod access_list;
mod accounts;
mod diff;
mod dirty;
mod ids;
mod journal;
mod listener;
mod peek;
mod read_write_set;
mod recent_ids;
mod slots;
mod transient;

pub use accounts::{AccountId, CodeId};
pub use journal::Checkpoint;
pub use listener::StateListener;
pub use read_write_set::{ReadWriteSet, ValidatedIds};
pub use slots::SlotId;

use crate::{code::Code, init_code_cache::InitCodeCache, overrides::Precompiles, table::Table};
use access_list::BalRecorder;
use accounts::AccountRecord;
use dirty::DirtySet;
use ids::IdTable;
use journal::JournalEntry;
use niwaki_crypto::Precompiled;
use niwaki_primitives::{
    Account, Address, B256, Bytes, Fault, Log, LogData, StateView, U256, address, b256,
    map::{HashMap, HashSet},
};
use read_write_set::Speculation;
use recent_ids::RecentIds;
use slots::SlotRecord;
use std::sync::Arc;
use transient::Transient;

/// The state of the chain while a block runs on top of it.
pub struct World<'v> {
    view: &'v dyn StateView,
    clears_empty: bool,
    logs_transfers: bool,
    destroyed_keep_balance: bool,
    storage_bars_creation: bool,
    precompiles: &'v Precompiles,
    /// Addresses at which a simulation has put another precompiled contract, or none.
    precompile_overrides: HashMap<Address, Option<Precompiled>>,
    account_ids: IdTable,
    recent_accounts: RecentIds,
    accounts: Vec<AccountRecord>,
    slot_ids: IdTable,
    recent_slots: RecentIds,
    slots: Vec<SlotRecord>,
    code_ids: HashMap<B256, CodeId>,
    codes: Vec<Arc<Code>>,
    /// Codes that accounts have got in this block.
    new_codes: Vec<CodeId>,
    pub(crate) init_code_cache: InitCodeCache,
    /// Number of the transaction, from 1. A mark on a record is this number, and lapses with the transaction.
    tx: u32,
    journal: Vec<JournalEntry>,
    logs: Vec<Log>,
    refund: i64,
    transient: Transient,
    touched: Vec<AccountId>,
    destroyed: Vec<AccountId>,
    /// Accounts and slots that are warm from the start of the transaction, but that the block has not seen yet.
    prewarmed_accounts: HashSet<Address>,
    prewarmed_slots: HashSet<(Address, U256)>,
    /// What a speculative execution tracks; `None` in a world that only executes.
    speculation: Option<Box<Speculation>>,
    /// Notified of what each transaction has written.
    listener: Option<&'v dyn StateListener>,
    /// What was written since the last drain; `None` before the first.
    dirty: Option<DirtySet>,
    /// Records the block access list, if that was requested.
    bal_recorder: Option<Box<BalRecorder>>,
}

/// Caller of system calls, and emitter of transfer logs (EIP-4788, EIP-7708).
pub const SYSTEM_ADDRESS: Address = address!("fffffffffffffffffffffffffffffffffffffffe");

/// `Transfer(address,address,uint256)`.
const TRANSFER_EVENT: B256 =
    b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

impl<'v> World<'v> {
    /// The world before a block on top of the state `view`, with the rules of `table`.
    pub fn new(view: &'v dyn StateView, table: &'v Table) -> Self {
        let prices = table.schedule();
        Self {
            view,
            clears_empty: prices.clears_empty,
            logs_transfers: prices.logs_transfers,
            destroyed_keep_balance: prices.destroyed_keep_balance,
            storage_bars_creation: prices.storage_bars_creation,
            precompiles: &table.precompiles,
            precompile_overrides: HashMap::default(),
            account_ids: IdTable::default(),
            recent_accounts: RecentIds::default(),
            accounts: Vec::new(),
            slot_ids: IdTable::default(),
            recent_slots: RecentIds::default(),
            slots: Vec::new(),
            code_ids: HashMap::default(),
            codes: vec![Code::empty()],
            new_codes: Vec::new(),
            init_code_cache: InitCodeCache::default(),
            tx: 1,
            journal: Vec::new(),
            logs: Vec::new(),
            refund: 0,
            transient: Transient::default(),
            touched: Vec::new(),
            destroyed: Vec::new(),
            prewarmed_accounts: HashSet::default(),
            prewarmed_slots: HashSet::default(),
            speculation: None,
            listener: None,
            dirty: None,
            bal_recorder: None,
        }
    }

    /// Begins the next transaction: everything is cold, and earlier changes can no longer be reverted.
    pub fn begin_transaction(&mut self) {
        self.tx += 1;
        self.journal.clear();
        self.logs.clear();
        self.refund = 0;
        self.transient.clear();
        self.touched.clear();
        self.destroyed.clear();
        self.prewarmed_accounts.clear();
        self.prewarmed_slots.clear();
    }

    /// Ends the transaction: deletes destroyed accounts, and touched accounts that are empty (EIP-161).
    pub fn end_transaction(&mut self) {
        self.record_changes();
        let changed = self.changed();
        for id in std::mem::take(&mut self.destroyed) {
            if self.record(id).destroyed_tx == self.tx {
                self.destroy(id);
            }
        }
        if self.clears_empty {
            let mut touched = std::mem::take(&mut self.touched);
            for id in touched.drain(..) {
                let record = self.record(id);
                let touched = record.touched_tx == self.tx;
                if touched && record.exists && record.current.is_empty() {
                    self.erase(id);
                }
            }
            // The next transaction reuses its memory.
            touched.append(&mut self.touched);
            self.touched = touched;
        }
        self.notify(changed);
        self.mark_dirty();
        self.journal.clear();
    }

    /// Whether the block has seen the account at `address`, so that it has an id.
    pub fn has_seen(&self, address: &Address) -> bool {
        self.id_of(address).is_some()
    }

    /// The hash of an ancestor.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.view.block_hash(number)
    }

    /// Puts another precompiled contract at `address`, or none, for a simulation. To be called before the account is
    /// loaded.
    pub fn override_precompile(&mut self, address: &Address, contract: Option<Precompiled>) {
        self.precompile_overrides.insert(*address, contract);
    }

    /// Logs of the transaction so far.
    pub fn logs(&self) -> &[Log] {
        &self.logs
    }

    /// Takes the transaction's logs.
    pub fn take_logs(&mut self) -> Vec<Log> {
        std::mem::take(&mut self.logs)
    }

    #[inline(always)]
    pub(crate) fn log(&mut self, log: Log) {
        self.logs.push(log);
    }

    /// The transaction's refund counter, gas; may be negative while the transaction runs.
    pub fn refund(&self) -> i64 {
        self.refund
    }

    /// Adds to the refund counter, gas.
    pub fn add_refund(&mut self, amount: i64) {
        self.refund += amount;
    }

    /// Logs a transfer of ether, in forks that have such logs.
    ///
    /// Spec: EIP-7708.
    pub(crate) fn log_transfer(&mut self, from: AccountId, to: AccountId, amount: U256) {
        if !self.logs_transfers || amount.is_zero() || from == to {
            return;
        }
        let word = |id| self.address(id).into_word();
        let topics = vec![TRANSFER_EVENT, word(from), word(to)];
        let amount = Bytes::copy_from_slice(&amount.to_be_bytes::<32>());
        self.log(Log {
            address: SYSTEM_ADDRESS,
            data: LogData::new_unchecked(topics, amount),
        });
    }

    /// Deletes a destroyed account at the end of a transaction; from EIP-8246 on its balance stays.
    fn destroy(&mut self, id: AccountId) {
        let balance = self.record(id).current.balance;
        self.erase(id);
        if self.destroyed_keep_balance && !balance.is_zero() {
            let record = self.record_mut(id);
            record.exists = true;
            record.current.balance = balance;
        }
    }

    /// Deletes an account at the end of a transaction, with its storage.
    fn erase(&mut self, id: AccountId) {
        self.clear_storage(id);
        self.mark_erased_dirty(id);
        let record = self.record_mut(id);
        record.exists = false;
        record.current = Account::EMPTY;
        record.code = CodeId::EMPTY;
    }
}

impl std::fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("accounts", &self.accounts.len())
            .field("slots", &self.slots.len())
            .field("transaction", &self.tx)
            .finish_non_exhaustive()
    }
}
