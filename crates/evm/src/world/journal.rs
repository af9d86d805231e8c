//! The journal: what to put back when a frame reverts.

use super::{
    World,
    accounts::{AccountId, CodeId},
    slots::SlotId,
};
use niwaki_primitives::{Address, B256, U256, address};

/// A state of the world that can be returned to within the transaction.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    journal: usize,
    logs: usize,
    refund: i64,
}

/// One change, with the old value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
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

/// Its touch outlives a revert: on mainnet, block 2,675,119 deleted this empty account although
/// the call to it had run out of gas, and every client has to agree. It does not outlive the
/// failure of the whole transaction.
///
/// Spec: execution-specs `spurious_dragon/vm/__init__.py`, `incorporate_child_on_error`;
/// `vm/interpreter.py`, `process_message_call`.
const RIPEMD160: Address = address!("0000000000000000000000000000000000000003");

impl World<'_> {
    /// Where a frame begins.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            journal: self.journal.len(),
            logs: self.logs.len(),
            refund: self.refund,
        }
    }

    /// Takes back everything since `checkpoint`.
    pub fn revert(&mut self, checkpoint: Checkpoint) {
        while self.journal.len() > checkpoint.journal {
            let Some(change) = self.journal.pop() else {
                break;
            };
            self.undo(change);
        }
        self.logs.truncate(checkpoint.logs);
        self.refund = checkpoint.refund;
    }

    /// A transaction that failed as a whole has touched nothing, [`RIPEMD160`] included.
    #[cold]
    pub(crate) fn forget_kept_touch(&mut self) {
        let kept = |id: &AccountId| self.record(*id).address == RIPEMD160;
        if let Some(id) = self.touched.iter().copied().find(kept) {
            self.record_mut(id).touched_tx = 0;
        }
    }

    fn undo(&mut self, change: Change) {
        match change {
            Change::WarmAccount { account } => self.record_mut(account).warm_tx = 0,
            Change::WarmSlot { slot } => self.slots[slot.0 as usize].warm_tx = 0,
            Change::Existence { account } => self.record_mut(account).exists = false,
            Change::Touch { account } => {
                if self.record(account).address != RIPEMD160 {
                    self.record_mut(account).touched_tx = 0;
                }
            }
            Change::Balance { account, old } => self.record_mut(account).current.balance = old,
            Change::Nonce { account, old } => self.record_mut(account).current.nonce = old,
            Change::Code {
                account,
                hash,
                code,
            } => {
                let record = self.record_mut(account);
                record.current.code_hash = hash;
                record.code = code;
            }
            Change::Created { account, old } => self.record_mut(account).created_tx = old,
            Change::Wiped { account } => {
                self.record_mut(account).wiped = false;
                self.set_slots(account, |slot| slot.parent);
            }
            Change::Destroyed { account, old } => {
                self.record_mut(account).destroyed_tx = old;
                self.destroyed.pop();
            }
            Change::Slot { slot, old } => self.slots[slot.0 as usize].current = old,
            Change::Transient { at, old } => self.transient.set(at, old),
        }
    }
}
