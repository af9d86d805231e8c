//! What is traced: a transaction in its block, or a message.

use super::flat::TraceLocation;
use crate::blocks::FullBlock;
use crate::params::{BlockRef, BlockTag, Params};
use crate::simulation::{self, Message, SimulatedBlock, SimulationResult};
use crate::state::State;
use crate::{Backend, RpcError, RpcResult};
use niwaki_evm::Tracer;
use niwaki_primitives::{Address, StateView, Transaction, TxEnvelope};
use niwaki_rules::blob_gas_of;
use std::sync::Arc;
use std::time::Instant;

/// Something to trace.
pub(super) enum Subject<'s> {
    /// A signed transaction.
    Transaction {
        tx: &'s TxEnvelope,
        sender: Address,
        location: Option<TraceLocation>,
    },
    /// A message, with its gas.
    Message { message: &'s Message, gas: u64 },
}

impl Subject<'_> {
    /// Executes it in `block`, which stays unchanged.
    pub(super) fn run(
        &self,
        block: &SimulatedBlock<'_>,
        tracer: &mut dyn Tracer,
        deadline: Instant,
    ) -> Result<SimulationResult, RpcError> {
        match self {
            Self::Transaction { tx, sender, .. } => block.replay(tx, *sender, tracer, deadline),
            Self::Message { message, gas } => block
                .call(message, *gas, true, tracer, deadline)?
                .map_err(|reason| simulation::invalid(&reason, message.sender(), *gas)),
        }
    }

    /// As a transaction.
    pub(super) fn transaction(&self, block: &SimulatedBlock<'_>) -> Result<TxEnvelope, RpcError> {
        match self {
            Self::Transaction { tx, .. } => Ok((*tx).clone()),
            Self::Message { message, gas } => {
                let account = block.state().account(&message.sender())?;
                let nonce = account.unwrap_or_default().nonce;
                Ok(message.transaction(nonce, *gas, block.spec().chain_id, 0))
            }
        }
    }

    pub(super) fn sender(&self) -> Address {
        match self {
            Self::Transaction { sender, .. } => *sender,
            Self::Message { message, .. } => message.sender(),
        }
    }

    pub(super) fn gas_limit(&self) -> u64 {
        match self {
            Self::Transaction { tx, .. } => Transaction::gas_limit(*tx),
            Self::Message { gas, .. } => *gas,
        }
    }

    pub(super) fn location(&self) -> Option<TraceLocation> {
        match self {
            Self::Transaction { location, .. } => *location,
            Self::Message { .. } => None,
        }
    }
}

/// A past block and its parent's state.
pub(crate) struct PastBlock {
    pub(crate) block: Arc<FullBlock>,
    pub(crate) parent: State,
    /// Whether it is stored, so that its transactions have a location.
    is_stored: bool,
}

impl PastBlock {
    /// Finds the state before `block`.
    pub(crate) fn new(
        backend: &Backend,
        block: Arc<FullBlock>,
        is_stored: bool,
    ) -> Result<Self, RpcError> {
        if block.id.number == 0 {
            return Err(RpcError::server("genesis is not traceable"));
        }
        let hash = block.header.parent_hash;
        let missing = || RpcError::server(format!("parent {hash} not found"));
        let parent = backend.chain().header(&hash)?.ok_or_else(missing)?;
        let parent = backend.state_after(&parent)?;
        Ok(Self {
            block,
            parent,
            is_stored,
        })
    }

    /// The block that the parameter `index` names.
    pub(crate) fn of_params(
        backend: &Backend,
        params: &Params<'_>,
        index: usize,
    ) -> Result<Self, RpcError> {
        let named: BlockRef = params.required(index)?;
        let block = backend.block_by_ref(named)?;
        let block = block.ok_or_else(|| {
            RpcError::server(match named {
                BlockRef::Hash { hash, .. } => format!("block {hash:#x} not found"),
                BlockRef::Tag(BlockTag::Number(number)) => format!("block #{number} not found"),
                BlockRef::Tag(_) => "block not found".to_owned(),
            })
        })?;
        Self::new(backend, block, true)
    }

    /// The block before its first transaction.
    pub(super) fn begin<'v>(
        &'v self,
        backend: &'v Backend,
    ) -> Result<SimulatedBlock<'v>, RpcError> {
        self.begin_on(backend, &self.parent)
    }

    /// The same on `parent`, another view of the same state.
    pub(super) fn begin_on<'v>(
        &self,
        backend: &'v Backend,
        parent: &'v (dyn StateView + Sync),
    ) -> Result<SimulatedBlock<'v>, RpcError> {
        let header = self.block.header.clone();
        let before = header.number.saturating_sub(1);
        let spec = backend.chain().spec();
        let mut simulated = SimulatedBlock::new(spec, header, parent, before);
        simulated.begin()?;
        Ok(simulated)
    }

    /// The block before its transaction `index`.
    pub(crate) fn before<'v>(
        &'v self,
        backend: &'v Backend,
        index: usize,
        params: &Params<'_>,
    ) -> Result<SimulatedBlock<'v>, RpcError> {
        let mut simulated = self.begin(backend)?;
        let transactions = self.block.body.transactions.iter();
        let pairs = transactions.zip(self.block.senders().iter().copied());
        simulated.replay_all(pairs.take(index), params)?;
        Ok(simulated)
    }

    /// The transaction `index`.
    pub(super) fn subject(&self, index: usize) -> Result<Subject<'_>, RpcError> {
        let tx = self.block.body.transactions.get(index);
        let tx = tx.ok_or_else(|| RpcError::server("transaction not found"))?;
        let location = TraceLocation {
            block: self.block.id,
            transaction: *tx.tx_hash(),
            index,
        };
        Ok(Subject::Transaction {
            tx,
            sender: self.block.sender(index),
            location: self.is_stored.then_some(location),
        })
    }

    /// Calls `trace` for every transaction, in order.
    pub(super) fn each(
        &self,
        backend: &Backend,
        params: &Params<'_>,
        mut trace: impl FnMut(&SimulatedBlock<'_>, &Subject<'_>) -> Result<SimulationResult, RpcError>,
    ) -> RpcResult {
        let mut block = self.begin(backend)?;
        for (index, tx) in self.block.body.transactions.iter().enumerate() {
            params.check_deadline()?;
            let run = trace(&block, &self.subject(index)?)?;
            block.commit(&run, blob_gas_of(tx));
        }
        Ok(())
    }
}
