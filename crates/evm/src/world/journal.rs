//! The journal of a transaction: its changes with the old values, undone from the end when a frame reverts.

use super::{
    World,
    accounts::{AccountId, CodeId},
    slots::SlotId,
};
use niwaki_primitives::{Address, B256, U256, address};

/// A point within the transaction that the world can revert to.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    journal: usize,
    logs: usize,
    refund: i64,
}

/// One change, with what is needed to undo it.
#[derive(Clone, Copy, Debug)]
pub(super) enum JournalEntry {
    WarmAccount {
        account: AccountId,
    },
    WarmSlot {
        slot: SlotId,
    },
    Existence {
        account: AccountId,
    },
    Touch {
        account: AccountId,
    },
    Balance {
        account: AccountId,
        old: U256,
    },
    Nonce {
        account: AccountId,
        old: u64,
    },
    Code {
        account: AccountId,
        hash: B256,
        code: CodeId,
    },
    Created {
        account: AccountId,
        old: u32,
    },
    Wiped {
        account: AccountId,
    },
    Destroyed {
        account: AccountId,
        old: u32,
    },
    Slot {
        slot: SlotId,
        old: U256,
    },
    Transient {
        at: u32,
        old: U256,
    },
}

/// The touch of this account survives a revert: block 2,675,119 of mainnet deleted it as empty although the call that
/// touched it had run out of gas, and every client has to agree. It does not survive the failure of the transaction.
///
/// Spec: execution-specs `spurious_dragon/vm/__init__.py`, `incorporate_child_on_error`;
/// `vm/interpreter.py`, `process_message_call`.
const RIPEMD160: Address = address!("0000000000000000000000000000000000000003");

impl World<'_> {
    /// The point that a frame reverts to.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            journal: self.journal.len(),
            logs: self.logs.len(),
            refund: self.refund,
        }
    }

    /// Undoes everything since `checkpoint`.
    pub fn revert(&mut self, checkpoint: Checkpoint) {
        while self.journal.len() > checkpoint.journal
            && let Some(change) = self.journal.pop()
        {
            self.undo(change);
        }
        self.logs.truncate(checkpoint.logs);
        self.refund = checkpoint.refund;
    }

    /// Forgets the touch of [`RIPEMD160`] when a transaction fails as a whole.
    #[cold]
    pub(crate) fn forget_ripemd_touch(&mut self) {
        let is_ripemd = |id: &AccountId| self.record(*id).address == RIPEMD160;
        if let Some(id) = self.touched.iter().copied().find(is_ripemd) {
            self.record_mut(id).touched_tx = 0;
        }
    }

    fn undo(&mut self, change: JournalEntry) {
        match change {
            JournalEntry::WarmAccount { account } => self.record_mut(account).warm_tx = 0,
            JournalEntry::WarmSlot { slot } => self.slots[slot.0 as usize].warm_tx = 0,
            JournalEntry::Existence { account } => self.record_mut(account).exists = false,
            JournalEntry::Touch { account } => {
                if self.record(account).address != RIPEMD160 {
                    self.record_mut(account).touched_tx = 0;
                }
            }
            JournalEntry::Balance { account, old } => {
                self.record_mut(account).current.balance = old
            }
            JournalEntry::Nonce { account, old } => self.record_mut(account).current.nonce = old,
            JournalEntry::Code {
                account,
                hash,
                code,
            } => {
                let record = self.record_mut(account);
                record.current.code_hash = hash;
                record.code = code;
            }
            JournalEntry::Created { account, old } => self.record_mut(account).created_tx = old,
            JournalEntry::Wiped { account } => {
                self.record_mut(account).is_wiped = false;
                self.set_slots(account, |slot| slot.parent);
            }
            JournalEntry::Destroyed { account, old } => {
                self.record_mut(account).destroyed_tx = old;
                self.destroyed.pop();
            }
            JournalEntry::Slot { slot, old } => self.slots[slot.0 as usize].current = old,
            JournalEntry::Transient { at, old } => self.transient.set(at, old),
        }
    }
}
