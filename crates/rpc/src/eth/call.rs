//! `eth_call`: a message upon a state, without leaving anything.

use crate::backend::State;
use crate::params::{BlockRef, BlockTag, Params};
use crate::simulation::{self, BlockOverrides, Message, Nothing, SimulatedBlock, StateOverrides};
use crate::{Backend, RpcError, json};
use niwaki_chain::StoredHeader;

type Answer = Result<(), RpcError>;

/// A message, the state it runs upon, and how both are overridden: what `eth_call` and its likes
/// have for parameters.
pub(crate) struct Asked {
    pub(crate) message: Message,
    pub(crate) header: StoredHeader,
    pub(crate) state: State,
    overrides: StateOverrides,
    block: BlockOverrides,
}

impl Asked {
    /// Reads message, block, and overrides of state and block.
    pub(crate) fn read(
        backend: &Backend,
        params: &Params<'_>,
        or_else: BlockTag,
    ) -> Result<Self, RpcError> {
        let asked = Self::upon(backend, params, or_else)?;
        let overrides = params.optional(2)?.unwrap_or_default();
        Ok(asked.overridden(overrides, params.optional(3)?.unwrap_or_default()))
    }

    /// A message upon the state after the block of `header`.
    pub(crate) fn of(message: Message, header: StoredHeader, state: State) -> Self {
        Self {
            message,
            header,
            state,
            overrides: StateOverrides::default(),
            block: BlockOverrides::default(),
        }
    }

    /// Reads message and block.
    pub(crate) fn upon(
        backend: &Backend,
        params: &Params<'_>,
        or_else: BlockTag,
    ) -> Result<Self, RpcError> {
        let message: Message = params.required(0)?;
        message.check(backend.chain().spec().chain_id)?;
        let block = params.optional(1)?.unwrap_or(BlockRef::Tag(or_else));
        let (header, state) = backend.state(block)?;
        Ok(Self::of(message, header, state))
    }

    /// With these overrides.
    pub(crate) fn overridden(mut self, overrides: StateOverrides, block: BlockOverrides) -> Self {
        (self.overrides, self.block) = (overrides, block);
        self
    }

    /// The block that the message runs in.
    pub(crate) fn block<'v>(
        &'v self,
        backend: &'v Backend,
    ) -> Result<SimulatedBlock<'v>, RpcError> {
        let upon = (&self.header.header, &self.state);
        SimulatedBlock::for_call(backend, upon, &self.overrides, &self.block)
    }

    /// The gas that the caller gives, within what the operator grants.
    pub(crate) fn gas(&self, backend: &Backend) -> u64 {
        let cap = backend.options.gas_cap;
        self.message.gas.map_or(cap, |gas| gas.0.min(cap))
    }
}

pub(super) fn call(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let asked = Asked::read(backend, params, BlockTag::Latest)?;
    let block = asked.block(backend)?;
    let gas = asked.gas(backend);
    let run = block.call(&asked.message, gas, (&mut Nothing, params.deadline))?;
    let run = run.map_err(|reason| simulation::invalid(&reason, asked.message.sender(), gas))?;
    if let Some(error) = simulation::reverted(&run) {
        return Err(error);
    }
    json::data(out, &run.result.output);
    Ok(())
}
