//! Settings of the block builder that the operator may change while the node runs (`miner_*`).

use niwaki_primitives::{Bytes, TxEnvelope};
use niwaki_rules::effective_gas_price;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What the operator sets for blocks that are built here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuilderSettings {
    /// At most 32 bytes.
    pub(crate) extra_data: Bytes,
    /// The gas limit that blocks move towards; `None` keeps the parent's.
    pub(crate) target_gas_limit: Option<u64>,
    /// The least tip of a transaction without priority, wei per gas.
    pub(crate) min_priority_fee: u128,
}

/// The settings, shared by the builder and the `miner` methods.
#[derive(Debug, Default)]
pub(crate) struct SharedBuilderSettings(RwLock<BuilderSettings>);

impl SharedBuilderSettings {
    pub(crate) fn new(builder_settings: BuilderSettings) -> Self {
        Self(RwLock::new(builder_settings))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, BuilderSettings> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, BuilderSettings> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The least that a transaction without priority must pay to be included in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PriceFloor {
    /// Gas price, wei.
    pub(crate) gas_price: u128,
    /// Tip, wei per gas.
    pub(crate) priority_fee: u128,
}

impl PriceFloor {
    /// Whether `tx` pays that much in a block with this base fee.
    pub(crate) fn is_met_by(&self, tx: &TxEnvelope, base_fee: u64) -> bool {
        let price = effective_gas_price(tx, Some(base_fee));
        price >= self.gas_price && price.saturating_sub(u128::from(base_fee)) >= self.priority_fee
    }
}
