//! Reads that leave the world as it is: nothing becomes warm, interned or part of an access list. The full price of an
//! opcode is computed with them for tracers, before the opcode runs.

use super::{AccountId, World};
use crate::code::delegation;
use niwaki_primitives::{Address, Fault, U256};

impl World<'_> {
    /// Whether the next access of the account at `address` pays the cold price (EIP-2929).
    pub(crate) fn is_cold(&self, address: &Address) -> bool {
        match self.id_of(address) {
            Some(id) => {
                let record = self.record(id);
                record.warm_tx != self.tx && !record.is_always_warm
            }
            None => {
                !self.prewarmed_accounts.contains(address)
                    && self.precompiles.get(address).is_none()
            }
        }
    }

    /// Whether the next access of a slot pays the cold price (EIP-2929).
    pub(crate) fn is_slot_cold(&self, account: AccountId, key: &U256) -> bool {
        match self.id_of_slot(account, key) {
            Some(id) => self.slot_record(id).warm_tx != self.tx,
            None => {
                let address = self.record(account).address;
                !self.prewarmed_slots.contains(&(address, *key))
            }
        }
    }

    /// The value of a slot at the start of the transaction, and its value now.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub(crate) fn peek_slot(&self, account: AccountId, key: &U256) -> Result<(U256, U256), Fault> {
        if let Some(id) = self.id_of_slot(account, key) {
            let slot = self.slot_record(id);
            let original = match slot.original_tx == self.tx {
                true => slot.original,
                false => slot.current,
            };
            return Ok((original, slot.current));
        }
        let record = self.record(account);
        let value = match record.parent {
            Some(_) if !record.is_wiped => self.view.storage(&record.address, key)?,
            _ => U256::ZERO,
        };
        Ok((value, value))
    }

    /// Whether the account at `address` exists, and whether it is empty (EIP-161).
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub(crate) fn peek_account(&self, address: &Address) -> Result<(bool, bool), Fault> {
        if let Some(id) = self.id_of(address) {
            let record = self.record(id);
            return Ok((record.exists, record.current.is_empty()));
        }
        let account = self.view.account(address)?;
        Ok((
            account.is_some(),
            account.is_none_or(|account| account.is_empty()),
        ))
    }

    /// The account that the one at `address` delegates to (EIP-7702).
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub(crate) fn peek_delegate(&self, address: &Address) -> Result<Option<Address>, Fault> {
        let account = match self.id_of(address) {
            Some(id) => self.record(id).current,
            None => self.view.account(address)?.unwrap_or_default(),
        };
        if !account.has_code() {
            return Ok(None);
        }
        Ok(match self.code_ids.get(&account.code_hash) {
            Some(known) => self.code_at(*known).delegate(),
            None => delegation(&self.view.code(&account.code_hash)?),
        })
    }

    /// Whether the balance of an account is zero.
    pub(crate) fn has_zero_balance(&self, account: AccountId) -> bool {
        self.record(account).current.balance.is_zero()
    }
}
