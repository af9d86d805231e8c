//! A state with changes on top that are not written: overrides, what simulated transactions leave for those after them, and the
//! blocks of a batch.
//!
//! It is a [`StateView`] itself, and knows what differs from the state below as a [`StateDiff`].

use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Bytes, Fault, SlotDiff, StateDiff, StateView, U256, map,
};
use std::collections::BTreeMap;

/// A state and what was changed on top of it.
pub struct Overlay<'v> {
    base: &'v (dyn StateView + Sync),
    /// Number of the block whose state the base is; later hashes are unknown to it.
    base_number: u64,
    accounts: map::HashMap<Address, Changed>,
    codes: map::HashMap<B256, Bytes>,
    hashes: BTreeMap<u64, B256>,
}

#[derive(Clone, Debug, Default)]
struct Changed {
    prior: Option<Account>,
    now: Option<Account>,
    /// Storage of the base is gone.
    wiped: bool,
    slots: map::HashMap<U256, SlotDiff>,
}

impl<'v> Overlay<'v> {
    /// No changes on top of the state after block `base_number`.
    pub fn new(base: &'v (dyn StateView + Sync), base_number: u64) -> Self {
        Self {
            base,
            base_number,
            accounts: map::HashMap::default(),
            codes: map::HashMap::default(),
            hashes: BTreeMap::new(),
        }
    }

    /// Says what BLOCKHASH gives for a simulated block.
    pub fn set_block_hash(&mut self, number: u64, hash: B256) {
        self.hashes.insert(number, hash);
    }

    /// Applies what an execution on top of this overlay has changed.
    pub fn apply(&mut self, diff: StateDiff) {
        for (address, change) in diff.accounts {
            let entry = self.accounts.entry(address).or_insert_with(|| Changed {
                prior: change.prior,
                ..Changed::default()
            });
            entry.now = change.new;
            if change.storage_wiped {
                entry.wiped = true;
                entry.slots.clear();
            }
            for (slot, values) in change.slots {
                let known = entry.slots.entry(slot).or_insert(values);
                known.new = values.new;
            }
        }
        self.codes.extend(diff.codes);
    }

    fn entry(&mut self, address: &Address) -> Result<&mut Changed, Fault> {
        if !self.accounts.contains_key(address) {
            let prior = self.base.account(address)?;
            let changed = Changed {
                prior,
                now: prior,
                ..Changed::default()
            };
            self.accounts.insert(*address, changed);
        }
        Ok(self.accounts.entry(*address).or_default())
    }

    /// Changes an account, which exists from then on.
    ///
    /// # Errors
    /// A [`Fault`] of the state below.
    pub fn change_account(
        &mut self,
        address: &Address,
        change: impl FnOnce(&mut Account),
    ) -> Result<(), Fault> {
        change(self.entry(address)?.now.get_or_insert_default());
        Ok(())
    }

    /// Sets the code of an account, which exists from then on.
    ///
    /// # Errors
    /// A [`Fault`] of the state below.
    pub fn set_code(&mut self, address: &Address, code: Bytes) -> Result<(), Fault> {
        let hash = niwaki_crypto::keccak256(&code);
        self.change_account(address, |account| account.code_hash = hash)?;
        self.codes.insert(hash, code);
        Ok(())
    }

    /// Sets one slot.
    ///
    /// # Errors
    /// A [`Fault`] of the state below.
    pub fn set_slot(&mut self, address: &Address, slot: U256, new: U256) -> Result<(), Fault> {
        let prior = self.base.storage(address, &slot)?;
        let entry = self.entry(address)?;
        entry.now.get_or_insert_default();
        entry.slots.insert(slot, SlotDiff { prior, new });
        Ok(())
    }

    /// Zeroes the whole storage of an account.
    ///
    /// # Errors
    /// A [`Fault`] of the state below.
    pub fn clear_storage(&mut self, address: &Address) -> Result<(), Fault> {
        let entry = self.entry(address)?;
        entry.wiped = true;
        entry.slots.clear();
        Ok(())
    }

    /// Everything that differs from the state below.
    pub fn diff(&self) -> StateDiff {
        let mut diff = StateDiff::default();
        for (address, changed) in &self.accounts {
            let wiped = changed.wiped && changed.prior.is_some();
            let differs = |values: &SlotDiff| {
                let before = if wiped { U256::ZERO } else { values.prior };
                values.new != before
            };
            let slots = changed.slots.iter().filter(|(_, values)| differs(values));
            let mut slots: Vec<_> = slots.map(|(slot, values)| (*slot, *values)).collect();
            slots.sort_unstable_by_key(|(slot, _)| *slot);
            if changed.prior == changed.now && slots.is_empty() && !wiped {
                continue;
            }
            let change = AccountDiff {
                prior: changed.prior,
                new: changed.now,
                storage_wiped: wiped,
                slots,
            };
            diff.accounts.push((*address, change));
        }
        diff.accounts.sort_unstable_by_key(|(address, _)| *address);
        let changed = diff.accounts.iter().filter_map(|(_, change)| change.new);
        let used: map::HashSet<B256> = changed.map(|account| account.code_hash).collect();
        let codes = self.codes.iter().filter(|(hash, _)| used.contains(*hash));
        diff.codes = codes.map(|(hash, code)| (*hash, code.clone())).collect();
        diff.codes.sort_unstable_by_key(|(hash, _)| *hash);
        diff
    }
}

impl std::fmt::Debug for Overlay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay")
            .field("base_number", &self.base_number)
            .field("accounts", &self.accounts.len())
            .finish_non_exhaustive()
    }
}

impl StateView for Overlay<'_> {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        match self.accounts.get(address) {
            Some(changed) => Ok(changed.now),
            None => self.base.account(address),
        }
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        match self.accounts.get(address) {
            None => self.base.storage(address, slot),
            Some(changed) => match changed.slots.get(slot) {
                Some(values) => Ok(values.new),
                None if changed.wiped || changed.prior.is_none() => Ok(U256::ZERO),
                None => self.base.storage(address, slot),
            },
        }
    }

    /// Storage whose slots have been set to zero one by one still counts, as in a block.
    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        match self.accounts.get(address) {
            None => self.base.has_storage(address),
            Some(changed) => {
                let written = changed.slots.values().any(|values| !values.new.is_zero());
                let has_base = !changed.wiped && changed.prior.is_some();
                Ok(written || has_base && self.base.has_storage(address)?)
            }
        }
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        match self.codes.get(code_hash) {
            Some(code) => Ok(code.clone()),
            None => self.base.code(code_hash),
        }
    }

    /// Zero for a block that does not exist.
    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        match self.hashes.get(&number) {
            Some(hash) => Ok(*hash),
            None if number > self.base_number => Ok(B256::ZERO),
            None => self.base.block_hash(number),
        }
    }
}

#[cfg(test)]
mod tests;
