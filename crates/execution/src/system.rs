//! Calls that the protocol itself makes at the edges of a block.

use crate::executor::{ExecuteError, Executor};
use niwaki_evm::{Message, Outcome, SYSTEM_ADDRESS, Target, TxEnv};
use niwaki_primitives::{Address, Bytes, Fault, U256, address};
use niwaki_rules::InvalidBlock;

/// Keeps the roots of beacon blocks (EIP-4788).
pub(crate) const BEACON_ROOTS: Address = address!("000f3df6d732807ef1319fb7b8bb8522d0beac02");
/// Keeps the hashes of past blocks (EIP-2935).
pub(crate) const HISTORY_STORAGE: Address = address!("0000f90827f1c53a10cb7a02335b175320002935");
/// Gas of a system call; it counts towards nothing.
const SYSTEM_GAS: u64 = 30_000_000;
/// Slots that a system call may fill out of its state gas (EIP-8037).
const SYSTEM_SLOTS: i64 = 16;

impl Executor<'_> {
    /// Takes the requests that have queued up in a system contract (EIP-7002, EIP-7251, EIP-8282).
    ///
    /// # Errors
    /// The block is invalid if the contract is missing or fails.
    ///
    /// Spec: execution-specs `prague/fork.py`, `process_checked_system_transaction`.
    pub(crate) fn take_requests(&mut self, contract: Address) -> Result<Bytes, ExecuteError> {
        let world = self.evm.world();
        let account = world.load_accessed(&contract)?;
        let code = world.code(account)?;
        if world.code_at(code).bytes().is_empty() {
            return Err(InvalidBlock::SystemContractEmpty { address: contract }.into());
        }
        let outcome = self.system_call(contract, Bytes::new())?;
        if !outcome.exit.is_success() {
            return Err(InvalidBlock::SystemContractCallFailed { address: contract }.into());
        }
        Ok(outcome.output)
    }

    /// Calls a contract as the system does, and gives what it returns; `None` if the call fails.
    ///
    /// # Errors
    /// A [`Fault`] of the state.
    pub fn read_contract(
        &mut self,
        contract: Address,
        input: Bytes,
    ) -> Result<Option<Bytes>, Fault> {
        let outcome = self.system_call(contract, input)?;
        Ok(outcome.exit.is_success().then_some(outcome.output))
    }

    /// Calls a system contract. Whether a failure of the contract makes the block invalid is up to the caller.
    pub(crate) fn system_call(
        &mut self,
        contract: Address,
        input: Bytes,
    ) -> Result<Outcome, Fault> {
        self.evm.begin_transaction(TxEnv {
            origin: SYSTEM_ADDRESS,
            ..TxEnv::default()
        });
        let slot = self.evm.table().schedule().state.slot;
        let message = Message {
            caller: SYSTEM_ADDRESS,
            target: Target::Call(contract),
            value: U256::ZERO,
            input,
            gas: SYSTEM_GAS,
            reservoir: slot.saturating_mul(SYSTEM_SLOTS).unsigned_abs(),
        };
        let outcome = self.evm.run(&message, None)?;
        self.evm.world().end_transaction();
        Ok(outcome)
    }
}
