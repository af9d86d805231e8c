//! Storage slots of the world.

use super::{AccountId, World, journal::Change};
use crate::word::same;
use niwaki_primitives::{Address, Fault, U256};

/// Handle of a storage slot, good for the length of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId(pub(crate) u32);

#[derive(Debug)]
pub(super) struct SlotRecord {
    pub(super) current: U256,
    /// At the start of transaction `seen_tx`.
    pub(super) original: U256,
    pub(super) account: AccountId,
    pub(super) key: U256,
    /// In the parent state.
    pub(super) parent: U256,
    /// Transaction that `original` is good for.
    pub(super) seen_tx: u32,
    /// Transaction in which the slot is warm.
    pub(super) warm_tx: u32,
    /// Whether the block has looked at it, for the access list.
    pub(super) accessed: bool,
    /// Whether it is on the list of what nobody was told yet.
    pub(super) is_untold: bool,
    /// The account's slot interned before.
    pub(super) next: Option<SlotId>,
}

impl World<'_> {
    pub(super) fn slot_record(&self, id: SlotId) -> &SlotRecord {
        &self.slots[id.0 as usize]
    }

    /// The handle of a slot, read from the parent state at first sight.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    ///
    /// # Panics
    /// After 2^32 slots in one block.
    #[inline]
    pub fn slot(&mut self, account: AccountId, key: U256) -> Result<SlotId, Fault> {
        match self.find_slot(account, &key) {
            Some(id) => {
                self.see(id);
                Ok(id)
            }
            None => self.intern_slot(account, key),
        }
    }

    /// The handle of a slot that the block has seen.
    #[inline]
    pub(super) fn id_of_slot(&self, account: AccountId, key: &U256) -> Option<SlotId> {
        let is = |id: u32| {
            let slot = &self.slots[id as usize];
            same(slot.key.as_limbs(), key.as_limbs()) && slot.account == account
        };
        let hash = self.slot_ids.of_slot(account, key);
        self.slot_ids.find(hash, is).map(SlotId)
    }

    /// As [`World::id_of_slot`], with a look at what was looked up lately.
    #[inline]
    fn find_slot(&mut self, account: AccountId, key: &U256) -> Option<SlotId> {
        let bits = account.bits_with(key);
        let recent = self.recent_slots.get(bits);
        let record = self.slots.get(recent as usize);
        if record.is_some_and(|slot| {
            same(slot.key.as_limbs(), key.as_limbs()) && slot.account == account
        }) {
            return Some(SlotId(recent));
        }
        let id = self.id_of_slot(account, key)?;
        self.recent_slots.put(bits, id.0);
        Some(id)
    }

    /// Keeps the value that a slot has when the transaction comes to it first.
    #[inline]
    fn see(&mut self, id: SlotId) -> &SlotRecord {
        let tx = self.tx;
        let slot = &mut self.slots[id.0 as usize];
        if slot.seen_tx != tx {
            slot.seen_tx = tx;
            slot.original = slot.current;
            self.note_slot(id);
        }
        self.slot_record(id)
    }

    #[cold]
    fn intern_slot(&mut self, account: AccountId, key: U256) -> Result<SlotId, Fault> {
        let record = self.record(account);
        let parent = match record.parent {
            Some(_) => self.view.storage(&record.address, &key)?,
            None => U256::ZERO,
        };
        Ok(self.intern_slot_as(account, key, parent))
    }

    /// The handle of a slot that the block has not seen and whose value in the parent state is known.
    pub(super) fn intern_slot_as(&mut self, account: AccountId, key: U256, parent: U256) -> SlotId {
        let record = self.record(account);
        let current = if record.wiped { U256::ZERO } else { parent };
        let declared = self.declared_slots.contains(&(record.address, key));
        let id = SlotId(u32::try_from(self.slots.len()).expect("gas bounds the slots"));
        self.slots.push(SlotRecord {
            current,
            original: current,
            account,
            key,
            parent,
            seen_tx: self.tx,
            warm_tx: if declared { self.tx } else { 0 },
            accessed: false,
            is_untold: false,
            next: record.first_slot,
        });
        let hash = self.slot_ids.of_slot(account, &key);
        self.slot_ids.add(hash, id.0);
        self.record_mut(account).first_slot = Some(id);
        self.note_slot(id);
        id
    }

    /// Whether the block has seen a slot, so that it has a handle.
    pub fn knows_slot(&self, address: &Address, key: U256) -> bool {
        let account = self.id_of(address);
        account.is_some_and(|account| self.id_of_slot(account, &key).is_some())
    }

    /// The slot's value.
    #[inline]
    pub fn slot_value(&self, id: SlotId) -> U256 {
        self.slot_record(id).current
    }

    /// The slot's value at the start of the transaction.
    #[inline]
    pub(crate) fn slot_original(&self, id: SlotId) -> U256 {
        self.slot_record(id).original
    }

    /// Looks at a slot as code does, which leaves it warm: `cold_price` is taken from `left` if it
    /// was cold. `None` if that is more than is left; then nothing was read.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    #[inline]
    pub(crate) fn access_slot(
        &mut self,
        account: AccountId,
        key: U256,
        left: &mut i64,
        cold_price: i64,
    ) -> Result<Option<SlotId>, Fault> {
        let tx = self.tx;
        let id = match self.find_slot(account, &key) {
            Some(id) => {
                if self.see(id).warm_tx != tx {
                    *left -= cold_price;
                }
                id
            }
            None => {
                let address = self.address(account);
                if !self.declared_slots.contains(&(address, key)) {
                    *left -= cold_price;
                }
                if *left < 0 {
                    return Ok(None);
                }
                self.intern_slot(account, key)?
            }
        };
        if *left < 0 {
            return Ok(None);
        }
        let slot = &mut self.slots[id.0 as usize];
        slot.accessed = true;
        if slot.warm_tx != tx {
            slot.warm_tx = tx;
            self.journal.push(Change::WarmSlot { slot: id });
        }
        Ok(Some(id))
    }

    /// Declares a slot warm for the whole transaction (EIP-2930) without reading it.
    pub fn declare_slot(&mut self, address: &Address, key: U256) {
        let account = self.id_of(address);
        match account.and_then(|account| self.id_of_slot(account, &key)) {
            Some(id) => self.slots[id.0 as usize].warm_tx = self.tx,
            None => {
                self.declared_slots.insert((*address, key));
            }
        }
    }

    /// Sets the slot's value.
    #[inline]
    pub(crate) fn set_slot(&mut self, id: SlotId, value: U256) {
        let slot = &mut self.slots[id.0 as usize];
        if slot.current != value {
            let old = std::mem::replace(&mut slot.current, value);
            self.journal.push(Change::Slot { slot: id, old });
        }
    }

    /// Zeroes all storage of an account at the end of a transaction.
    pub(super) fn clear_storage(&mut self, account: AccountId) {
        let record = self.record_mut(account);
        record.wiped = record.parent.is_some();
        self.set_slots(account, |_| U256::ZERO);
    }

    /// Sets every slot of an account that the block knows, past the journal.
    pub(super) fn set_slots(&mut self, account: AccountId, value: impl Fn(&SlotRecord) -> U256) {
        let mut next = self.record(account).first_slot;
        while let Some(id) = next {
            let slot = &mut self.slots[id.0 as usize];
            slot.current = value(slot);
            next = slot.next;
        }
    }
}
