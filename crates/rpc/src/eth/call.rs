//! `eth_call`: executes a message on a state and discards its changes.

use crate::params::Params;
use crate::simulation::{
    self, BlockOverrides, Message, NoopTracer, SimulatedBlock, StateOverrides,
};
use crate::state::State;
use crate::{Backend, RpcError, RpcResult, json, metrics};
use niwaki_chain::StoredHeader;

/// The parameters of `eth_call` and its kin: a message, the state that it runs on, and overrides of both.
pub(crate) struct CallRequest {
    pub(crate) message: Message,
    pub(crate) header: StoredHeader,
    pub(crate) state: State,
    pub(crate) overrides: StateOverrides,
    pub(crate) block_overrides: BlockOverrides,
}

impl CallRequest {
    /// Reads message, block, and overrides of state and block.
    pub(crate) fn read(backend: &Backend, params: &Params<'_>) -> Result<Self, RpcError> {
        let mut request = Self::read_without_overrides(backend, params)?;
        request.overrides = params.optional(2)?.unwrap_or_default();
        request.block_overrides = params.optional(3)?.unwrap_or_default();
        Ok(request)
    }

    /// A message on the state after the block of `header`.
    pub(crate) fn new(message: Message, header: StoredHeader, state: State) -> Self {
        Self {
            message,
            header,
            state,
            overrides: StateOverrides::default(),
            block_overrides: BlockOverrides::default(),
        }
    }

    /// Reads message and block.
    pub(crate) fn read_without_overrides(
        backend: &Backend,
        params: &Params<'_>,
    ) -> Result<Self, RpcError> {
        let message: Message = params.required(0)?;
        message.check(backend.chain().spec().chain_id)?;
        let (header, state) = backend.state(params.optional(1)?.unwrap_or_default())?;
        Ok(Self::new(message, header, state))
    }

    /// The block that the message runs in.
    ///
    /// # Errors
    /// For overrides that contradict themselves.
    pub(crate) fn block<'v>(
        &'v self,
        backend: &'v Backend,
    ) -> Result<SimulatedBlock<'v>, RpcError> {
        let mut block = SimulatedBlock::on_top_of(backend, &self.header, &self.state);
        block.override_with(&self.overrides, &self.block_overrides)?;
        Ok(block)
    }
}

pub(super) fn call(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let request = CallRequest::read(backend, params)?;
    let block = request.block(backend)?;
    let gas = request.message.gas_up_to(backend.options.gas_cap);
    let run = block.call(
        &request.message,
        gas,
        true,
        &mut NoopTracer,
        params.deadline,
    )?;
    let run = run.map_err(|reason| simulation::invalid(&reason, request.message.sender(), gas))?;
    let error = simulation::reverted(&run);
    metrics::record_eth_call(error.is_none(), run.result.gas_used);
    if let Some(error) = error {
        return Err(error);
    }
    json::data(out, &run.result.output);
    Ok(())
}
