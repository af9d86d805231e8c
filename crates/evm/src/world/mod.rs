//! The world as a block changes it: accounts and slots interned to handles, and a journal.
//!
//! Each account and slot that is touched gets one record for the length of the block, which holds
//! the parent state's value, the value at the start of the transaction and the current one. A
//! record says by transaction number whether it is warm, so nothing is cleared between
//! transactions; what can be reverted is written to the journal as handle and old value.

mod access_list;
mod accounts;
mod diff;
mod effects;
mod handles;
mod journal;
mod peek;
mod publish;
mod recent;
mod slots;
mod transient;
mod untold;

pub use accounts::{AccountId, CodeId};
pub use effects::{Effects, Holding};
pub use journal::Checkpoint;
pub use publish::Publisher;
pub use slots::SlotId;

use crate::{code::Code, init_code::LastInitCode, overrides::Precompiles, table::Table};
use access_list::Recorder;
use accounts::AccountRecord;
use effects::Ahead;
use handles::Handles;
use journal::Change;
use niwaki_crypto::Precompiled;
use niwaki_primitives::{
    Account, Address, B256, Bytes, Fault, Log, LogData, StateView, U256, address, b256,
    map::{HashMap, HashSet},
};
use recent::Recent;
use slots::SlotRecord;
use std::sync::Arc;
use transient::Transient;
use untold::Untold;

/// The state of the chain while a block runs upon it.
pub struct World<'v> {
    view: &'v dyn StateView,
    clears_empty: bool,
    logs_transfers: bool,
    destroyed_keep_balance: bool,
    storage_bars_creation: bool,
    precompiles: &'v Precompiles,
    /// Addresses that hold another precompiled contract than the set says, or none.
    moved: HashMap<Address, Option<Precompiled>>,
    account_ids: Handles,
    recent_accounts: Recent,
    accounts: Vec<AccountRecord>,
    slot_ids: Handles,
    recent_slots: Recent,
    slots: Vec<SlotRecord>,
    code_ids: HashMap<B256, CodeId>,
    codes: Vec<Arc<Code>>,
    /// Codes that accounts got in this block.
    new_codes: Vec<CodeId>,
    pub(crate) last_init_code: LastInitCode,
    /// Number of the transaction, from 1; records name it to say that something holds within it.
    tx: u32,
    journal: Vec<Change>,
    logs: Vec<Log>,
    refund: i64,
    transient: Transient,
    touched: Vec<AccountId>,
    destroyed: Vec<AccountId>,
    /// Accounts and slots that the transaction declared warm and the block has not read yet.
    declared_accounts: HashSet<Address>,
    declared_slots: HashSet<(Address, U256)>,
    /// What is noted of a transaction that runs ahead of its turn.
    ahead: Option<Box<Ahead>>,
    /// Told of what each transaction has changed.
    publisher: Option<&'v dyn Publisher>,
    /// What has changed since somebody asked for it, if anybody has.
    untold: Option<Untold>,
    /// Collects the block access list.
    recorder: Option<Box<Recorder>>,
}

/// Caller of system calls, and emitter of the logs of transfers (EIP-4788, EIP-7708).
pub const SYSTEM_ADDRESS: Address = address!("fffffffffffffffffffffffffffffffffffffffe");

/// `Transfer(address,address,uint256)`.
const TRANSFER_EVENT: B256 =
    b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

impl<'v> World<'v> {
    /// The world before a block upon the state `view`, with the rules of `table`.
    pub fn new(view: &'v dyn StateView, table: &'v Table) -> Self {
        let prices = table.schedule();
        Self {
            view,
            clears_empty: prices.clears_empty,
            logs_transfers: prices.logs_transfers,
            destroyed_keep_balance: prices.destroyed_keep_balance,
            storage_bars_creation: prices.storage_bars_creation,
            precompiles: &table.precompiles,
            moved: HashMap::default(),
            account_ids: Handles::default(),
            recent_accounts: Recent::default(),
            accounts: Vec::new(),
            slot_ids: Handles::default(),
            recent_slots: Recent::default(),
            slots: Vec::new(),
            code_ids: HashMap::default(),
            codes: vec![Code::empty()],
            new_codes: Vec::new(),
            last_init_code: LastInitCode::default(),
            tx: 1,
            journal: Vec::new(),
            logs: Vec::new(),
            refund: 0,
            transient: Transient::default(),
            touched: Vec::new(),
            destroyed: Vec::new(),
            declared_accounts: HashSet::default(),
            declared_slots: HashSet::default(),
            ahead: None,
            publisher: None,
            untold: None,
            recorder: None,
        }
    }

    /// Begins the next transaction: everything is cold, nothing can be reverted any more.
    pub fn begin_transaction(&mut self) {
        self.tx += 1;
        self.journal.clear();
        self.logs.clear();
        self.refund = 0;
        self.transient.clear();
        self.touched.clear();
        self.destroyed.clear();
        self.declared_accounts.clear();
        self.declared_slots.clear();
    }

    /// Ends the transaction: destroyed accounts go, and touched ones that are empty (EIP-161).
    pub fn end_transaction(&mut self) {
        self.note_changes();
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
            // Its memory serves the next transaction.
            touched.append(&mut self.touched);
            self.touched = touched;
        }
        self.publish(changed);
        self.note_untold();
        self.journal.clear();
    }

    /// Whether the block has seen the account at `address`, so that it has a handle.
    pub fn knows(&self, address: &Address) -> bool {
        self.id_of(address).is_some()
    }

    /// The hash of an ancestor.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.view.block_hash(number)
    }

    /// Puts another precompiled contract at `address`, or none, for a simulation. To be called
    /// before anything has looked at the account.
    pub fn move_precompiled(&mut self, address: &Address, contract: Option<Precompiled>) {
        self.moved.insert(*address, contract);
    }

    /// Logs of the transaction so far.
    pub fn logs(&self) -> &[Log] {
        &self.logs
    }

    /// Takes the transaction's logs out.
    pub fn take_logs(&mut self) -> Vec<Log> {
        std::mem::take(&mut self.logs)
    }

    #[inline(always)]
    pub(crate) fn log(&mut self, log: Log) {
        self.logs.push(log);
    }

    /// The transaction's refund counter, gas; may be negative in between.
    pub fn refund(&self) -> i64 {
        self.refund
    }

    /// Adds to the refund counter from outside of code (EIP-7702).
    pub fn give_refund(&mut self, amount: i64) {
        self.add_refund(amount);
    }

    pub(crate) fn add_refund(&mut self, amount: i64) {
        self.refund += amount;
    }

    /// Leaves a log of ether that moves from one account to another, where the fork has such logs.
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

    /// What becomes of a destroyed account at the end of a transaction: nothing is left of it but,
    /// from EIP-8246 on, its balance.
    fn destroy(&mut self, id: AccountId) {
        let balance = self.record(id).current.balance;
        self.erase(id);
        if self.destroyed_keep_balance && !balance.is_zero() {
            let record = self.record_mut(id);
            record.exists = true;
            record.current.balance = balance;
        }
    }

    /// Forgets an account at the end of a transaction, with its storage.
    fn erase(&mut self, id: AccountId) {
        self.clear_storage(id);
        self.note_end_untold(id);
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
