//! The read side of the world state.

use crate::{Account, Fault};
use alloy_primitives::{Address, B256, Bytes, U256};

/// An immutable state on which code is executed: the state after some block.
///
/// Absent accounts are `None`, absent slots are zero. Every error is a [`Fault`]: a view can't say
/// that a block is invalid.
pub trait StateView {
    /// The account at `address`.
    ///
    /// # Errors
    /// Any [`Fault`] of the layer below.
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault>;

    /// The value of `slot` in the storage of `address`.
    ///
    /// # Errors
    /// Any [`Fault`] of the layer below.
    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault>;

    /// Whether any slot of `address` is not zero (EIP-7610).
    ///
    /// # Errors
    /// Any [`Fault`] of the layer below.
    fn has_storage(&self, address: &Address) -> Result<bool, Fault>;

    /// The code with this hash. Only called for code hashes of accounts of this state.
    ///
    /// # Errors
    /// Any [`Fault`] of the layer below; [`Fault::Missing`] if there is no such code.
    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault>;

    /// The hash of the ancestor block `number`, for BLOCKHASH. Only called for the 256 most recent ancestors of the
    /// block being executed, and never for that block itself.
    ///
    /// # Errors
    /// Any [`Fault`] of the layer below.
    fn block_hash(&self, number: u64) -> Result<B256, Fault>;
}
