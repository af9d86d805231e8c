//! Accounts and slots read into the value caches before execution needs them.

use crate::View;
use niwaki_primitives::{Address, Fault, StateView, U256};
use std::sync::atomic::{AtomicBool, Ordering};

/// If of this many values fewer than [`MIN_MISSING`] are missing in the caches, prefetching ends: execution finds
/// the rest sooner by itself.
const BATCH: u32 = 64;
/// See [`BATCH`].
const MIN_MISSING: u32 = 8;

impl View {
    fn is_cached(&self, address: &Address, slot: Option<U256>) -> bool {
        let Some(shard) = self.caches.of(address, self.version) else {
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

    /// Reads accounts with their code, and slots, into the caches: until `ended`, or until most of them are cached
    /// already. A value that can't be read is left out.
    pub fn prefetch_values(
        &self,
        targets: impl Iterator<Item = (Address, Option<U256>)>,
        ended: &AtomicBool,
    ) {
        let (mut seen, mut missing) = (0, 0);
        for (address, slot) in targets {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            seen += 1;
            if !self.is_cached(&address, slot) {
                missing += 1;
                // Execution reads it again and returns the fault.
                let _ = match slot {
                    Some(slot) => self.storage(&address, &slot).map(drop),
                    None => self.account_and_code(&address),
                };
            }
            if seen == BATCH {
                if missing < MIN_MISSING {
                    return;
                }
                (seen, missing) = (0, 0);
            }
        }
    }
}
