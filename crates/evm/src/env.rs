//! Inputs and output of the machine: block, transaction, message, outcome.

use crate::exit::Exit;
use niwaki_primitives::{Address, B256, Bytes, U256};

/// The block, as opcodes see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockEnv {
    /// Block number.
    pub number: u64,
    /// Seconds since the epoch.
    pub timestamp: u64,
    /// Recipient of priority fees.
    pub coinbase: Address,
    /// Gas limit.
    pub gas_limit: u64,
    /// Base fee in wei per gas; 0 before London.
    pub base_fee: u64,
    /// RANDAO mix from Paris on, difficulty before.
    pub prev_randao: U256,
    /// Price in wei of a unit of blob gas.
    pub blob_base_fee: U256,
    /// Chain id.
    pub chain_id: u64,
    /// Slot number of the beacon chain (EIP-7843); 0 before Amsterdam.
    pub slot_number: u64,
}

/// The transaction, as opcodes see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxEnv {
    /// The sender.
    pub origin: Address,
    /// Effective price in wei per gas.
    pub gas_price: U256,
    /// Versioned hashes of a blob transaction.
    pub blob_hashes: Vec<B256>,
}

/// What a message runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The code of an account.
    Call(Address),
    /// The input as init code of a contract at this address.
    Create(Address),
}

impl Default for Target {
    fn default() -> Self {
        Self::Call(Address::ZERO)
    }
}

/// A call or creation from outside. The default is a call of the zero address without value, input and gas.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// CALLER of the first frame.
    pub caller: Address,
    /// What to run.
    pub target: Target,
    /// Wei transferred from the caller to the target.
    pub value: U256,
    /// Call data or init code.
    pub input: Bytes,
    /// Gas for the first frame.
    pub gas: u64,
    /// State gas set aside for it (EIP-8037); 0 before Amsterdam.
    pub reservoir: u64,
}

/// How a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How the first frame ended.
    pub exit: Exit,
    /// Whether the gas sufficed for what precedes the first frame: from Amsterdam on, a new account for the value, and
    /// the target of a delegation.
    pub has_started: bool,
    /// Gas left, before any refund.
    pub gas_left: u64,
    /// State gas left of the reservoir.
    pub reservoir: u64,
    /// State gas used (EIP-8037).
    pub state_gas: u64,
    /// Returned data, or the revert's; of a creation: the deployed code.
    pub output: Bytes,
}
