//! A state that counts what is read of it, and how long that takes.

use niwaki_primitives::{Account, Address, B256, Bytes, Fault, StateView, U256};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Reads of one kind.
#[derive(Debug, Default)]
pub(super) struct Reads {
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Reads {
    fn time<T>(&self, read: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let value = read();
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        value
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn took(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

/// The wrapped state.
pub(super) struct CountedState<'s> {
    state: &'s (dyn StateView + Sync),
    pub(super) accounts: Reads,
    pub(super) slots: Reads,
    pub(super) codes: Reads,
}

impl<'s> CountedState<'s> {
    pub(super) fn new(state: &'s (dyn StateView + Sync)) -> Self {
        Self {
            state,
            accounts: Reads::default(),
            slots: Reads::default(),
            codes: Reads::default(),
        }
    }
}

impl StateView for CountedState<'_> {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        self.accounts.time(|| self.state.account(address))
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        self.slots.time(|| self.state.storage(address, slot))
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.slots.time(|| self.state.has_storage(address))
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        self.codes.time(|| self.state.code(code_hash))
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.state.block_hash(number)
    }
}
