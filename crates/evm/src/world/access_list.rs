//! What a block has touched and changed, as its access list tells it (EIP-7928).
//!
//! That an account or a slot was read is a mark on its record, which no revert takes back. Changes
//! are collected when a transaction ends, from the journal; they belong to an index, which several
//! system calls may share, and are compared with the values before it when it is closed.
//!
//! Spec: EIP-7928; execution-specs `amsterdam/block_access_lists.py`.

use super::{AccountId, SlotId, World, journal::Change};
use niwaki_primitives::{
    Account, AccountChanges, BalanceChange, BlockAccessIndex, BlockAccessList, CodeChange,
    NonceChange, SlotChanges, StorageChange, U256, map::HashMap,
};

/// The changes of a block so far, by index.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    /// 0 before the first transaction, then one for each, then one for what comes after.
    index: u64,
    /// What the present index has changed, as it was before.
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
    /// Has the access list of the block recorded. To be called before anything runs.
    pub fn record_access_list(&mut self) {
        self.recorder = Some(Box::default());
    }

    /// Remembers what the transaction is about to have changed, while the journal still knows.
    pub(super) fn note_changes(&mut self) {
        let Some(mut recorder) = self.recorder.take() else {
            return;
        };
        let mut before: HashMap<AccountId, Account> = HashMap::default();
        for change in self.journal.iter().rev() {
            match *change {
                Change::Balance { account, old } => self.known(&mut before, account).balance = old,
                Change::Nonce { account, old } => self.known(&mut before, account).nonce = old,
                Change::Code { account, hash, .. } => {
                    self.known(&mut before, account).code_hash = hash;
                }
                Change::Slot { slot, .. } => {
                    let original = self.slot_record(slot).original;
                    recorder.slots.entry(slot).or_insert(original);
                }
                _ => {}
            }
        }
        for (account, values) in before {
            recorder.accounts.entry(account).or_insert(values);
        }
        self.recorder = Some(recorder);
    }

    fn known<'a>(
        &self,
        values: &'a mut HashMap<AccountId, Account>,
        id: AccountId,
    ) -> &'a mut Account {
        values.entry(id).or_insert(self.record(id).current)
    }

    /// Ends an index: what differs now from what was before it are its changes.
    pub fn close_access_index(&mut self) {
        let Some(mut recorder) = self.recorder.take() else {
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
        self.recorder = Some(recorder);
    }

    /// The list of all closed indices, if it was recorded. Linear in what the block has touched.
    pub fn take_access_list(&mut self) -> Option<BlockAccessList> {
        let mut recorder = self.recorder.take()?;
        let mut list = Vec::new();
        for at in 0..self.accounts.len() {
            let id = AccountId(u32::try_from(at).expect("handles are 32 bits"));
            let record = self.record(id);
            if !record.accessed {
                continue;
            }
            let mut account = AccountChanges::new(record.address);
            let mut next = record.first_slot;
            while let Some(slot) = next {
                let record = self.slot_record(slot);
                match recorder.changed_slots.remove(&slot) {
                    Some(changes) => account
                        .storage_changes
                        .push(SlotChanges::new(record.key, changes)),
                    None if record.accessed => account.storage_reads.push(record.key),
                    None => {}
                }
                next = record.next;
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
