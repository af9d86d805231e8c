//! What the operator chooses of blocks made here, and may change while the node runs.

use niwaki_primitives::{Bytes, TxEnvelope};
use niwaki_rules::effective_gas_price;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The choices in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    /// At most 32 bytes.
    pub(crate) extra_data: Bytes,
    /// The gas limit that blocks go towards; `None` keeps the parent's.
    pub(crate) target_gas_limit: Option<u64>,
    /// What a transaction without priority must tip at least, wei a gas.
    pub(crate) min_priority_fee: u128,
}

/// Shared by whoever makes blocks and whoever changes how.
#[derive(Debug, Default)]
pub(crate) struct Chosen(RwLock<Choices>);

impl Chosen {
    pub(crate) fn new(choices: Choices) -> Self {
        Self(RwLock::new(choices))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Choices> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Choices> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a transaction without priority must pay to be taken into a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    /// Wei a gas in all.
    pub(crate) gas_price: u128,
    /// Wei a gas for the coinbase.
    pub(crate) priority_fee: u128,
}

impl Floor {
    /// Whether `tx` pays that much in a block with this base fee.
    pub(crate) fn takes(&self, tx: &TxEnvelope, base_fee: u64) -> bool {
        let price = effective_gas_price(tx, Some(base_fee));
        price >= self.gas_price && price.saturating_sub(u128::from(base_fee)) >= self.priority_fee
    }
}
