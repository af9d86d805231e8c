//! `eth_call`: executes a message on a state and discards its changes.

use crate::backend::State;
use crate::params::{BlockRef, BlockTag, Params};
use crate::simulation::{
    self, BlockOverrides, Message, NoopTracer, SimulatedBlock, StateOverrides,
};
use crate::{Backend, RpcError, RpcResult, json};
use niwaki_chain::StoredHeader;

/// The parameters of `eth_call` and its kin: a message, the state that it runs on, and overrides of both.
pub(crate) struct CallRequest {
    pub(crate) message: Message,
    pub(crate) header: StoredHeader,
    pub(crate) state: State,
    overrides: StateOverrides,
    block: BlockOverrides,
}

impl CallRequest {
    /// Reads message, block, and overrides of state and block.
    pub(crate) fn read(
        backend: &Backend,
        params: &Params<'_>,
        or_else: BlockTag,
    ) -> Result<Self, RpcError> {
        let request = Self::read_without_overrides(backend, params, or_else)?;
        let overrides = params.optional(2)?.unwrap_or_default();
        Ok(request.with_overrides(overrides, params.optional(3)?.unwrap_or_default()))
    }

    /// A message on the state after the block of `header`.
    pub(crate) fn new(message: Message, header: StoredHeader, state: State) -> Self {
        Self {
            message,
            header,
            state,
            overrides: StateOverrides::default(),
            block: BlockOverrides::default(),
        }
    }

    /// Reads message and block.
    pub(crate) fn read_without_overrides(
        backend: &Backend,
        params: &Params<'_>,
        or_else: BlockTag,
    ) -> Result<Self, RpcError> {
        let message: Message = params.required(0)?;
        message.check(backend.chain().spec().chain_id)?;
        let block = params.optional(1)?.unwrap_or(BlockRef::Tag(or_else));
        let (header, state) = backend.state(block)?;
        Ok(Self::new(message, header, state))
    }

    /// With these overrides.
    pub(crate) fn with_overrides(
        mut self,
        overrides: StateOverrides,
        block: BlockOverrides,
    ) -> Self {
        (self.overrides, self.block) = (overrides, block);
        self
    }

    /// The block that the message runs in.
    pub(crate) fn block<'v>(
        &'v self,
        backend: &'v Backend,
    ) -> Result<SimulatedBlock<'v>, RpcError> {
        let header = &self.header.header;
        SimulatedBlock::for_call(backend, header, &self.state, &self.overrides, &self.block)
    }

    /// The gas of the message, at most what the operator grants.
    pub(crate) fn gas(&self, backend: &Backend) -> u64 {
        let cap = backend.options.gas_cap;
        self.message.gas.map_or(cap, |gas| gas.0.min(cap))
    }
}

pub(super) fn call(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let request = CallRequest::read(backend, params, BlockTag::Latest)?;
    let block = request.block(backend)?;
    let gas = request.gas(backend);
    let run = block.call(&request.message, gas, &mut NoopTracer, params.deadline)?;
    let run = run.map_err(|reason| simulation::invalid(&reason, request.message.sender(), gas))?;
    if let Some(error) = simulation::reverted(&run) {
        return Err(error);
    }
    json::data(out, &run.result.output);
    Ok(())
}
