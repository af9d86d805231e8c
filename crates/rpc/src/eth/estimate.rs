//! `eth_estimateGas`: the least gas limit with which a message succeeds, or slightly more.
//!
//! A binary search between a limit that fails and one that succeeds. It starts from the gas that the message used with
//! the highest limit, and stops when the two are within the tolerance of 1.5 % (`ApiOptions::estimate_tolerance`).

use super::call::CallRequest;
use crate::params::Params;
use crate::simulation::{self, Message, NoopTracer, SimulatedBlock, SimulationResult};
use crate::{Backend, RpcError, RpcResult, json};
use niwaki_evm::{Failure, HaltReason};
use niwaki_primitives::{Fork, StateView, U256};
use niwaki_rules::{GAS_PER_BLOB, InvalidTransaction};
use std::time::Instant;

/// Gas of a transfer before Amsterdam.
const TRANSFER_GAS: u64 = 21_000;
/// The least gas of a transaction from Amsterdam on (EIP-2780).
const MIN_TX_GAS: u64 = 12_000;
/// The gas that a call with value adds for its callee.
const CALL_STIPEND: u64 = 2_300;

/// Spec: execution-apis `eth/execute.yaml`; in the steps of geth, whose results tools expect.
pub(super) fn estimate(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let request = CallRequest::read(backend, params)?;
    json::number(out, least_gas(backend, &request, params.deadline)?);
    Ok(())
}

/// The estimate for a message.
///
/// # Errors
/// Why the message fails with any gas.
pub(crate) fn least_gas(
    backend: &Backend,
    request: &CallRequest,
    deadline: Instant,
) -> Result<u64, RpcError> {
    let block = request.block(backend)?;
    let search = Search {
        block: &block,
        message: &request.message,
        deadline,
        tolerance: backend.options.estimate_tolerance,
    };
    let most = search.most(backend.options.gas_cap)?;
    search.least(most)
}

struct Search<'s> {
    block: &'s SimulatedBlock<'s>,
    message: &'s Message,
    deadline: Instant,
    /// How far above the least gas the estimate may be, as a fraction of the estimate.
    tolerance: f64,
}

impl Search<'_> {
    /// The highest gas limit of the message: bounded by its own, the block's, the fork's cap, the sender's funds and
    /// the operator's cap.
    fn most(&self, cap: u64) -> Result<u64, RpcError> {
        let fork = self.fork();
        let least = match fork >= Fork::Amsterdam {
            true => MIN_TX_GAS,
            false => TRANSFER_GAS,
        };
        let requested = self.message.gas.map(|gas| gas.0);
        let mut most = requested
            .filter(|gas| *gas >= least)
            .unwrap_or(self.block.header.gas_limit)
            .min(self.spec_limit(fork));
        let price = self.message.max_fee();
        if !price.is_zero() {
            let allowance = self.available()?.checked_div(price).unwrap_or_default();
            most = most.min(u64::try_from(allowance).unwrap_or(u64::MAX));
        }
        Ok(most.min(cap))
    }

    fn spec_limit(&self, fork: Fork) -> u64 {
        let (spec, header) = (self.block.spec(), &self.block.header);
        spec.max_gas_limit(header.number, header.timestamp, fork)
    }

    fn fork(&self) -> Fork {
        self.block.spec().fork_of(&self.block.header)
    }

    /// The sender's balance without the value and the blob fee, wei.
    fn available(&self) -> Result<U256, RpcError> {
        let account = self.block.state().account(&self.message.sender())?;
        let balance = account.unwrap_or_default().balance;
        let value = self.message.value.unwrap_or_default();
        let rest = balance.checked_sub(value).filter(|rest| !rest.is_zero());
        let rest = rest.ok_or_else(|| RpcError::server("insufficient funds for transfer"))?;
        let hashes = self.message.blob_versioned_hashes.as_ref();
        let blobs = hashes.map_or(0, Vec::len);
        if blobs == 0 {
            return Ok(rest);
        }
        let fee = self.message.max_fee_per_blob_gas.unwrap_or_default();
        let blobs = U256::from(blobs).saturating_mul(U256::from(GAS_PER_BLOB));
        rest.checked_sub(blobs.saturating_mul(fee))
            .filter(|rest| !rest.is_zero())
            .ok_or_else(|| RpcError::server("insufficient funds for gas * price + value"))
    }

    /// Runs the message with this gas; `None` if the gas is below the intrinsic gas.
    fn run(&self, gas: u64) -> Result<Option<SimulationResult>, RpcError> {
        use InvalidTransaction::{GasBelowFloor, IntrinsicGasTooLow};
        let tracer = &mut NoopTracer;
        let run = (self.block).call(self.message, gas, false, tracer, self.deadline)?;
        match run {
            Ok(run) => Ok(Some(run)),
            Err(IntrinsicGasTooLow { .. } | GasBelowFloor { .. }) => Ok(None),
            Err(reason) => {
                let words = simulation::error_message(&reason, self.message.sender());
                Err(RpcError::server(format!("failed with {gas} gas: {words}")))
            }
        }
    }

    fn succeeds(&self, gas: u64) -> Result<bool, RpcError> {
        Ok(self.run(gas)?.is_some_and(|run| run.failure.is_none()))
    }

    /// Whether the message is a plain transfer: no data, and no code at the recipient.
    fn is_transfer(&self) -> Result<bool, RpcError> {
        let has_data = !self.message.call_data().is_empty();
        let Some(to) = self.message.to.filter(|_| !has_data) else {
            return Ok(false);
        };
        let account = self.block.state().account(&to)?;
        Ok(!account.unwrap_or_default().has_code())
    }

    fn least(&self, most: u64) -> Result<u64, RpcError> {
        let is_transfer = self.is_transfer()?;
        let has_one_price = self.fork() < Fork::Amsterdam;
        if is_transfer && has_one_price && self.succeeds(TRANSFER_GAS)? {
            return Ok(TRANSFER_GAS);
        }
        let too_little = || RpcError::server(format!("gas required exceeds allowance ({most})"));
        let first = self.run(most)?.ok_or_else(too_little)?;
        if first.failure == Some(Failure::Halt(HaltReason::OutOfGas)) {
            return Err(too_little());
        }
        if let Some(error) = simulation::reverted(&first) {
            return Err(error);
        }
        // No code runs that could need more than it uses. The gas depends on the value, the recipient, and whether
        // that account is new (EIP-2780, EIP-8037).
        let used = first.result.gas_used;
        if is_transfer && !has_one_price && self.succeeds(used)? {
            return Ok(used);
        }

        // The gas used is nearly always slightly too little: each call keeps a 64th back (EIP-150).
        let (mut fails, mut succeeds) = (used.saturating_sub(1), most);
        let likely = first.result.gas_before_refund.saturating_add(CALL_STIPEND);
        let likely = likely.saturating_mul(64).checked_div(63).unwrap_or(most);
        if likely < succeeds {
            match self.succeeds(likely)? {
                true => succeeds = likely,
                false => fails = likely,
            }
        }
        while fails.saturating_add(1) < succeeds && !self.is_close(fails, succeeds) {
            // The least gas is usually closer to the limit that fails.
            let middle = fails.midpoint(succeeds).min(fails.saturating_mul(2));
            match self.succeeds(middle)? {
                true => succeeds = middle,
                false => fails = middle,
            }
        }
        Ok(succeeds)
    }

    #[expect(clippy::cast_precision_loss, reason = "a share is no exact figure")]
    fn is_close(&self, fails: u64, succeeds: u64) -> bool {
        let apart = succeeds.saturating_sub(fails) as f64;
        apart < succeeds as f64 * self.tolerance
    }
}
