//! Storage slots of the world.

use super::{AccountId, World, journal::JournalEntry};
use crate::limbs::is_same;
use niwaki_primitives::{Address, Fault, U256};

/// Id of a storage slot, valid for one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId(pub(crate) u32);

#[derive(Debug)]
pub(super) struct SlotRecord {
    pub(super) current: U256,
    /// Value at the start of transaction `original_tx` (EIP-2200).
    pub(super) original: U256,
    pub(super) account: AccountId,
    pub(super) key: U256,
    /// Value in the parent state.
    pub(super) parent: U256,
    /// Transaction that `original` belongs to.
    pub(super) original_tx: u32,
    /// Transaction in which the slot is warm.
    pub(super) warm_tx: u32,
    /// Whether the block has accessed it (EIP-7928).
    pub(super) is_accessed: bool,
    /// Whether it is in the dirty set.
    pub(super) is_dirty: bool,
    /// Next slot of the account: the one interned before.
    pub(super) next: Option<SlotId>,
}

impl World<'_> {
    pub(super) fn slot_record(&self, id: SlotId) -> &SlotRecord {
        &self.slots[id.0 as usize]
    }

    /// The slots of an account that the block has seen.
    pub(super) fn slots_of(&self, account: AccountId) -> impl Iterator<Item = SlotId> {
        let first = self.record(account).first_slot;
        std::iter::successors(first, |slot| self.slot_record(*slot).next)
    }

    /// The id of a slot, which is read from the parent state the first time.
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
                self.snapshot_original(id);
                Ok(id)
            }
            None => self.intern_slot(account, key),
        }
    }

    /// The id of a slot, if the block has seen it.
    #[inline]
    pub(super) fn id_of_slot(&self, account: AccountId, key: &U256) -> Option<SlotId> {
        let is = |id: u32| {
            let slot = &self.slots[id as usize];
            is_same(slot.key.as_limbs(), key.as_limbs()) && slot.account == account
        };
        let hash = self.slot_ids.hash_slot(account, key);
        self.slot_ids.find(hash, is).map(SlotId)
    }

    /// As [`World::id_of_slot`], through the cache of recent ids.
    #[inline]
    fn find_slot(&mut self, account: AccountId, key: &U256) -> Option<SlotId> {
        let bits = account.bits_with(key);
        let recent = self.recent_slots.get(bits);
        let record = self.slots.get(recent as usize);
        if record.is_some_and(|slot| {
            is_same(slot.key.as_limbs(), key.as_limbs()) && slot.account == account
        }) {
            return Some(SlotId(recent));
        }
        let id = self.id_of_slot(account, key)?;
        self.recent_slots.put(bits, id.0);
        Some(id)
    }

    /// Records the original value of a slot at its first use in the transaction.
    #[inline]
    fn snapshot_original(&mut self, id: SlotId) -> &SlotRecord {
        let tx = self.tx;
        let slot = &mut self.slots[id.0 as usize];
        if slot.original_tx != tx {
            slot.original_tx = tx;
            slot.original = slot.current;
            self.track_slot(id);
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

    /// Interns a slot that the block has not seen, with its value in the parent state.
    pub(super) fn intern_slot_as(&mut self, account: AccountId, key: U256, parent: U256) -> SlotId {
        let record = self.record(account);
        let current = if record.is_wiped { U256::ZERO } else { parent };
        let declared = self.prewarmed_slots.contains(&(record.address, key));
        let id = SlotId(u32::try_from(self.slots.len()).expect("gas bounds the slots"));
        self.slots.push(SlotRecord {
            current,
            original: current,
            account,
            key,
            parent,
            original_tx: self.tx,
            warm_tx: if declared { self.tx } else { 0 },
            is_accessed: false,
            is_dirty: false,
            next: record.first_slot,
        });
        let hash = self.slot_ids.hash_slot(account, &key);
        self.slot_ids.insert(hash, id.0);
        self.record_mut(account).first_slot = Some(id);
        self.track_slot(id);
        id
    }

    /// Whether the block has seen a slot, so that it has an id.
    pub fn has_seen_slot(&self, address: &Address, key: U256) -> bool {
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

    /// Accesses a slot as an opcode does: takes `cold_price` from `left` if the slot is cold, and makes it warm. `None`
    /// if there is less gas left; then nothing was read.
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
                if self.snapshot_original(id).warm_tx != tx {
                    *left -= cold_price;
                }
                id
            }
            None => {
                let address = self.address(account);
                if !self.prewarmed_slots.contains(&(address, key)) {
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
        slot.is_accessed = true;
        if slot.warm_tx != tx {
            slot.warm_tx = tx;
            self.journal.push(JournalEntry::WarmSlot { slot: id });
        }
        Ok(Some(id))
    }

    /// Makes a slot warm for the whole transaction (EIP-2930) without reading it.
    pub fn warm_slot(&mut self, address: &Address, key: U256) {
        let account = self.id_of(address);
        match account.and_then(|account| self.id_of_slot(account, &key)) {
            Some(id) => self.slots[id.0 as usize].warm_tx = self.tx,
            None => {
                self.prewarmed_slots.insert((*address, key));
            }
        }
    }

    /// Sets the slot's value.
    #[inline]
    pub(crate) fn set_slot(&mut self, id: SlotId, value: U256) {
        let slot = &mut self.slots[id.0 as usize];
        if slot.current != value {
            let old = std::mem::replace(&mut slot.current, value);
            self.journal.push(JournalEntry::Slot { slot: id, old });
        }
    }

    /// Clears all storage of an account at the end of a transaction.
    pub(super) fn clear_storage(&mut self, account: AccountId) {
        let record = self.record_mut(account);
        record.is_wiped = record.parent.is_some();
        self.set_slots(account, |_| U256::ZERO);
    }

    /// Sets every slot of an account that the block has seen, without journaling.
    pub(super) fn set_slots(&mut self, account: AccountId, value: impl Fn(&SlotRecord) -> U256) {
        let mut next = self.record(account).first_slot;
        while let Some(id) = next {
            let slot = &mut self.slots[id.0 as usize];
            slot.current = value(slot);
            next = slot.next;
        }
    }
}
