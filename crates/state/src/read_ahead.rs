//! Accounts and slots read into the caches before somebody asks for them.

use crate::View;
use niwaki_primitives::{Address, Fault, StateView, U256};
use std::sync::atomic::{AtomicBool, Ordering};

/// So many are looked for at a time, and unless so many of them are missing, reading ends: what is held
/// already is found sooner by whoever needs it.
const LOT: u32 = 64;
const LEAST_MISSING: u32 = 8;

impl View {
    fn holds(&self, address: &Address, slot: Option<U256>) -> bool {
        let Some(shard) = self.caches().of(address, self.version()) else {
            return false;
        };
        match slot {
            Some(slot) => shard.slots.contains(&(*address, slot)),
            None => shard.accounts.contains(address),
        }
    }

    fn account_and_code(&self, address: &Address) -> Result<(), Fault> {
        match self.account(address)? {
            Some(account) if account.has_code() => self.code(&account.code_hash).map(drop),
            _ => Ok(()),
        }
    }

    /// Reads accounts, with the code that they have, and slots into the caches, until `ended`, or until the
    /// caches hold most of them already. Decides nothing: what can't be read is left out.
    pub fn read_ahead(
        &self,
        wanted: impl Iterator<Item = (Address, Option<U256>)>,
        ended: &AtomicBool,
    ) {
        let (mut seen, mut missing) = (0, 0);
        for (address, slot) in wanted {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            seen += 1;
            if !self.holds(&address, slot) {
                missing += 1;
                // A fault comes back to whoever needs the value.
                let _ = match slot {
                    Some(slot) => self.storage(&address, &slot).map(drop),
                    None => self.account_and_code(&address),
                };
            }
            if seen == LOT {
                if missing < LEAST_MISSING {
                    return;
                }
                (seen, missing) = (0, 0);
            }
        }
    }
}
