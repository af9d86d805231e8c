//! Messages to simulate, and filters of logs.

use super::account::backend;
use super::bounds::Deadline;
use super::scalars::{Address, BigInt, Bytes, Bytes32, Long};
use super::transaction::Log;
use crate::eth::{CallRequest, LogFilter, each_match, least_gas};
use crate::params::{BlockRef, BlockTag, Number};
use crate::simulation::{self, Message, NoopTracer};
use crate::{Params, RpcError, RpcResult};
use async_graphql::{Context, InputObject, SimpleObject};
use niwaki_primitives::{Address as RawAddress, B256};
use std::time::Instant;

/// A message to simulate. Every field may be left out.
#[derive(InputObject)]
pub(super) struct CallData {
    /// Who sends it.
    from: Option<Address>,
    /// Who is called.
    to: Option<Address>,
    /// Most gas that it may use.
    gas: Option<Long>,
    /// What it pays for a unit of gas, in wei.
    gas_price: Option<BigInt>,
    /// The most that it pays for a unit of gas, in wei.
    max_fee_per_gas: Option<BigInt>,
    /// The most that it pays the block's producer for a unit of gas, in wei.
    max_priority_fee_per_gas: Option<BigInt>,
    /// What it sends along, in wei.
    value: Option<BigInt>,
    /// Call data, or the code that makes a contract.
    data: Option<Bytes>,
}

impl CallData {
    fn message(self) -> Message {
        let number = |value: Option<BigInt>| value.map(|value| value.0);
        // Without code there is no contract to make: as in Besu, such a message is a transfer to the zero address.
        let or_else = self.data.is_none().then_some(RawAddress::ZERO);
        Message {
            from: self.from.map(|from| from.0),
            to: self.to.map(|to| to.0).or(or_else),
            gas: self.gas.map(|gas| Number(gas.0)),
            gas_price: number(self.gas_price),
            max_fee_per_gas: number(self.max_fee_per_gas),
            max_priority_fee_per_gas: number(self.max_priority_fee_per_gas),
            value: number(self.value),
            data: self.data.map(|data| data.0),
            ..Message::default()
        }
    }

    /// The message on the state after a block.
    fn on(self, ctx: &Context<'_>, block: BlockRef) -> Result<CallRequest, RpcError> {
        let message = self.message();
        message.check(backend(ctx).chain().spec().chain_id)?;
        let (header, state) = backend(ctx).state(block)?;
        Ok(CallRequest::new(message, header, state))
    }
}

/// What a simulated message did.
#[derive(SimpleObject)]
pub(super) struct CallResult {
    /// What it returned.
    data: Bytes,
    /// The gas that it used, after refunds.
    gas_used: Long,
    /// 1 if it succeeded, 0 if it failed.
    status: Long,
}

/// Simulates a message after a block.
pub(super) fn call(
    ctx: &Context<'_>,
    data: CallData,
    block: BlockRef,
) -> Result<CallResult, RpcError> {
    let request = data.on(ctx, block)?;
    let (backend, message) = (backend(ctx), &request.message);
    let gas = message.gas_up_to(backend.options.gas_cap);
    let simulated = request.block(backend)?;
    let run = simulated.call(message, gas, true, &mut NoopTracer, deadline(ctx))?;
    let run = run.map_err(|reason| simulation::invalid(&reason, message.sender(), gas))?;
    Ok(CallResult {
        data: Bytes(run.result.output),
        gas_used: Long(run.result.gas_used),
        status: Long(u64::from(run.failure.is_none())),
    })
}

/// The gas that a message needs after a block.
pub(super) fn estimate(
    ctx: &Context<'_>,
    data: CallData,
    block: BlockRef,
) -> Result<Long, RpcError> {
    let request = data.on(ctx, block)?;
    least_gas(backend(ctx), &request, deadline(ctx)).map(Long)
}

/// Fails once the caller has stopped waiting.
pub(super) fn check_deadline(ctx: &Context<'_>) -> RpcResult {
    Params::new(None, deadline(ctx))?.check_deadline()
}

fn deadline(ctx: &Context<'_>) -> Instant {
    ctx.data_unchecked::<Deadline>().0
}

/// Which logs of a range of blocks.
#[derive(InputObject)]
pub(super) struct FilterCriteria {
    /// The first block [default: the head].
    from_block: Option<Long>,
    /// The last block [default: the head].
    to_block: Option<Long>,
    /// The contracts whose logs they are; none for all.
    addresses: Option<Vec<Address>>,
    /// For each place, the topics of which it must have one; none for any.
    topics: Option<Vec<Vec<Bytes32>>>,
}

/// Which logs of one block.
#[derive(InputObject)]
pub(super) struct BlockFilterCriteria {
    /// The contracts whose logs they are; none for all.
    addresses: Option<Vec<Address>>,
    /// For each place, the topics of which it must have one; none for any.
    topics: Option<Vec<Vec<Bytes32>>>,
}

impl FilterCriteria {
    pub(super) fn filter(self) -> LogFilter {
        let tag = |number: Option<Long>| number.map(|number| BlockTag::Number(number.0));
        LogFilter {
            from_block: tag(self.from_block),
            to_block: tag(self.to_block),
            ..filter(self.addresses, self.topics)
        }
    }
}

impl BlockFilterCriteria {
    pub(super) fn filter(self, block: B256) -> LogFilter {
        LogFilter {
            block_hash: Some(block),
            ..filter(self.addresses, self.topics)
        }
    }
}

fn filter(addresses: Option<Vec<Address>>, topics: Option<Vec<Vec<Bytes32>>>) -> LogFilter {
    let addresses = addresses.into_iter().flatten();
    let topics = topics.into_iter().flatten();
    LogFilter {
        address: addresses.map(|address| address.0).collect(),
        topics: topics
            .map(|any_of| any_of.into_iter().map(|topic| topic.0).collect())
            .collect(),
        ..LogFilter::default()
    }
}

/// The logs that match `filter`.
pub(super) fn logs(ctx: &Context<'_>, filter: &LogFilter) -> Result<Vec<Log>, RpcError> {
    let params = Params::new(None, deadline(ctx))?;
    let mut logs = Vec::new();
    each_match(backend(ctx), filter, &params, &mut |log, location| {
        logs.push(Log::new(log.clone(), location));
    })?;
    Ok(logs)
}
