//! What a transaction has changed, told to whoever runs others meanwhile.

use super::{AccountId, SlotId, World, journal::Change};
use niwaki_primitives::{Account, Address, B256, Bytes, U256};

/// Is told of the values that a transaction has left, but for balance and nonce of an account that had no
/// code and was there before the block.
pub trait Publisher: Sync {
    /// An account is this now.
    fn account(&self, address: Address, account: Option<Account>);

    /// A slot is this now.
    fn slot(&self, address: Address, key: U256, value: U256);

    /// There is a code with this hash now.
    fn code(&self, hash: B256, code: Bytes);
}

/// Accounts and slots that a transaction has changed, some of them more than once.
#[derive(Default)]
pub(super) struct Changed {
    accounts: Vec<AccountId>,
    /// With another code, or none any more.
    remade: Vec<AccountId>,
    slots: Vec<SlotId>,
}

impl<'v> World<'v> {
    /// Tells `publisher` of what has changed since the parent state, and from now on of what each
    /// transaction changes, when it ends.
    pub fn publish_to(&mut self, publisher: &'v dyn Publisher) {
        self.publisher = Some(publisher);
        let mut changed = Changed::default();
        for (id, record) in (0..).map(AccountId).zip(&self.accounts) {
            if record.parent != record.exists.then_some(record.current) {
                changed.accounts.push(id);
                let before = record.parent.unwrap_or_default();
                if record.wiped || record.current.code_hash != before.code_hash {
                    changed.remade.push(id);
                }
            }
        }
        let slots = (0..).map(SlotId).zip(&self.slots);
        let of_slots = slots.filter(|(_, slot)| slot.current != slot.parent);
        changed.slots.extend(of_slots.map(|(id, _)| id));
        self.publish(changed);
    }

    /// What the transaction has changed so far, if anybody wants to know.
    pub(super) fn changed(&self) -> Changed {
        let mut changed = Changed::default();
        if self.publisher.is_none() {
            return changed;
        }
        for change in &self.journal {
            match *change {
                Change::Balance { account, .. }
                | Change::Nonce { account, .. }
                | Change::Touch { account } => changed.accounts.push(account),
                Change::Code { account, .. } | Change::Destroyed { account, .. } => {
                    changed.accounts.push(account);
                    changed.remade.push(account);
                }
                Change::Slot { slot, .. } => changed.slots.push(slot),
                _ => {}
            }
        }
        changed.accounts.sort_unstable_by_key(|id| id.0);
        changed.accounts.dedup();
        changed.slots.sort_unstable_by_key(|id| id.0);
        changed.slots.dedup();
        changed
    }

    /// Tells of the values that are there at the end of the transaction.
    pub(super) fn publish(&self, changed: Changed) {
        let Some(publisher) = self.publisher else {
            return;
        };
        for id in changed.accounts {
            let record = self.record(id);
            let before = record.parent.unwrap_or_default();
            let is_plain = !record.current.has_code() && !before.has_code() && !before.is_empty();
            if is_plain && !changed.remade.contains(&id) {
                // Who runs ahead keeps differences of its balance, and takes its nonce as it comes.
                continue;
            }
            let account = record.exists.then_some(record.current);
            if record.exists && record.current.code_hash != before.code_hash {
                let code = self.code_at(record.code);
                publisher.code(code.hash(), code.to_bytes());
            }
            publisher.account(record.address, account);
        }
        for id in changed.slots {
            let slot = self.slot_record(id);
            publisher.slot(self.address(slot.account), slot.key, slot.current);
        }
    }
}
