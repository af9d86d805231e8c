//! Records the block access list, the BAL (EIP-7928): what a block has read and changed.
//!
//! An access is a mark on the record of the account or slot, which no revert undoes. Changes come from the journal when
//! a transaction ends. They belong to a block access index, which several system calls may share: when the index is
//! closed, the values of now are compared with those before it, and what differs is listed.
//!
//! Spec: EIP-7928; execution-specs `amsterdam/block_access_lists.py`.

use super::{AccountId, SlotId, World, journal::JournalEntry};
use niwaki_primitives::{
    Account, AccountChanges, BalanceChange, BlockAccessIndex, BlockAccessList, CodeChange,
    NonceChange, SlotChanges, StorageChange, U256, map::HashMap,
};

/// The changes of a block so far, by block access index.
#[derive(Debug, Default)]
pub(super) struct BalRecorder {
    /// 0 before the first transaction, then one per transaction, then one for what follows the last.
    index: u64,
    /// Values before the open index, of what it has changed.
    accounts: HashMap<AccountId, Account>,
    slots: HashMap<SlotId, U256>,
    changed_accounts: HashMap<AccountId, Changes>,
    changed_slots: HashMap<SlotId, Vec<StorageChange>>,
}

#[derive(Debug, Default)]
struct Changes {
    balances: Vec<BalanceChange>,
    nonces: Vec<NonceChange>,
    codes: Vec<CodeChange>,
}

impl World<'_> {
    /// Starts recording the access list. To be called before anything runs.
    pub fn record_access_list(&mut self) {
        self.bal_recorder = Some(Box::default());
    }

    /// Keeps the values before the transaction, as long as the journal has them.
    pub(super) fn record_changes(&mut self) {
        let Some(mut recorder) = self.bal_recorder.take() else {
            return;
        };
        let mut before: HashMap<AccountId, Account> = HashMap::default();
        for change in self.journal.iter().rev() {
            match *change {
                JournalEntry::Balance { account, old } => {
                    self.prior_account(&mut before, account).balance = old
                }
                JournalEntry::Nonce { account, old } => {
                    self.prior_account(&mut before, account).nonce = old
                }
                JournalEntry::Code { account, hash, .. } => {
                    self.prior_account(&mut before, account).code_hash = hash;
                }
                JournalEntry::Slot { slot, .. } => {
                    let original = self.slot_record(slot).original;
                    recorder.slots.entry(slot).or_insert(original);
                }
                _ => {}
            }
        }
        for (account, values) in before {
            recorder.accounts.entry(account).or_insert(values);
        }
        self.bal_recorder = Some(recorder);
    }

    fn prior_account<'a>(
        &self,
        values: &'a mut HashMap<AccountId, Account>,
        id: AccountId,
    ) -> &'a mut Account {
        values.entry(id).or_insert(self.record(id).current)
    }

    /// Closes an index: what differs from the values before it are its changes.
    pub fn close_access_index(&mut self) {
        let Some(mut recorder) = self.bal_recorder.take() else {
            return;
        };
        let index = BlockAccessIndex(recorder.index);
        recorder.index += 1;
        for (id, old) in std::mem::take(&mut recorder.accounts) {
            let record = self.record(id);
            let new = record.current;
            if new == old {
                continue;
            }
            let changes = recorder.changed_accounts.entry(id).or_default();
            if new.balance != old.balance {
                changes
                    .balances
                    .push(BalanceChange::new(index, new.balance));
            }
            if new.nonce != old.nonce {
                changes.nonces.push(NonceChange::new(index, new.nonce));
            }
            if new.code_hash != old.code_hash {
                let code = self.code_at(record.code).to_bytes();
                changes.codes.push(CodeChange::new(index, code));
            }
        }
        for (id, old) in std::mem::take(&mut recorder.slots) {
            let new = self.slot_value(id);
            if new != old {
                let changes = recorder.changed_slots.entry(id).or_default();
                changes.push(StorageChange::new(index, new));
            }
        }
        self.bal_recorder = Some(recorder);
    }

    /// The list of all closed indices, if recorded. Linear in what the block has accessed.
    pub fn take_access_list(&mut self) -> Option<BlockAccessList> {
        let mut recorder = self.bal_recorder.take()?;
        let mut list = Vec::new();
        for (id, record) in (0..).map(AccountId).zip(&self.accounts) {
            if !record.is_accessed {
                continue;
            }
            let mut account = AccountChanges::new(record.address);
            for slot in self.slots_of(id) {
                let record = self.slot_record(slot);
                match recorder.changed_slots.remove(&slot) {
                    Some(changes) => account
                        .storage_changes
                        .push(SlotChanges::new(record.key, changes)),
                    None if record.is_accessed => account.storage_reads.push(record.key),
                    None => {}
                }
            }
            account
                .storage_changes
                .sort_unstable_by_key(|changes| changes.slot);
            account.storage_reads.sort_unstable();
            if let Some(changes) = recorder.changed_accounts.remove(&id) {
                account.balance_changes = changes.balances;
                account.nonce_changes = changes.nonces;
                account.code_changes = changes.codes;
            }
            list.push(account);
        }
        list.sort_unstable_by_key(|account| account.address);
        Some(list)
    }
}
