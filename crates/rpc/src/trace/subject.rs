//! What is traced: a transaction where it stands in its block, or a message.

use super::flat::TracePlace;
use crate::backend::State;
use crate::blocks::FullBlock;
use crate::params::{BlockRef, BlockTag, Params};
use crate::simulation::{self, Message, Run, SimulatedBlock};
use crate::{Backend, RpcError};
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
        place: Option<TracePlace>,
    },
    /// A message, with its gas.
    Message { message: &'s Message, gas: u64 },
}

impl Subject<'_> {
    /// Runs it in `block`, which stays as it is.
    pub(super) fn run(
        &self,
        block: &SimulatedBlock<'_>,
        watch: (&mut dyn Tracer, Instant),
    ) -> Result<Run, RpcError> {
        match self {
            Self::Transaction { tx, sender, .. } => block.replay(tx, *sender, watch),
            Self::Message { message, gas } => block
                .call(message, *gas, watch)?
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
                Ok(message.transaction((nonce, *gas), block.spec().chain_id, 0))
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

    pub(super) fn place(&self) -> Option<TracePlace> {
        match self {
            Self::Transaction { place, .. } => *place,
            Self::Message { .. } => None,
        }
    }
}

/// A block that was, and the state before it.
pub(crate) struct PastBlock {
    pub(crate) block: Arc<FullBlock>,
    pub(crate) parent: State,
    /// Whether the chain has it, so that its transactions have a place.
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
        let parent = backend.chain().header(&block.header.parent_hash)?;
        let parent = parent.ok_or_else(|| {
            RpcError::server(format!("parent {} not found", block.header.parent_hash))
        })?;
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

    /// Before its first transaction.
    pub(super) fn begin<'v>(
        &'v self,
        backend: &'v Backend,
    ) -> Result<SimulatedBlock<'v>, RpcError> {
        let header = self.block.header.clone();
        let before = header.number.saturating_sub(1);
        let spec = backend.chain().spec();
        let mut begun = SimulatedBlock::new(spec, header, &self.parent, before);
        begun.begin()?;
        Ok(begun)
    }

    /// Before its transaction `index`.
    pub(crate) fn before<'v>(
        &'v self,
        backend: &'v Backend,
        index: usize,
        params: &Params<'_>,
    ) -> Result<SimulatedBlock<'v>, RpcError> {
        let mut begun = self.begin(backend)?;
        let transactions = self.block.body.transactions.iter();
        let pairs = transactions.zip(self.block.senders().iter().copied());
        begun.replay_all(pairs.take(index), params)?;
        Ok(begun)
    }

    /// The transaction `index`.
    pub(super) fn subject(&self, index: usize) -> Result<Subject<'_>, RpcError> {
        let tx = self.block.body.transactions.get(index);
        let tx = tx.ok_or_else(|| RpcError::server("transaction not found"))?;
        let place = TracePlace {
            block: self.block.id,
            transaction: *tx.tx_hash(),
            index,
        };
        Ok(Subject::Transaction {
            tx,
            sender: self.block.sender(index),
            place: self.is_stored.then_some(place),
        })
    }

    /// Traces every transaction in turn with `trace`.
    pub(super) fn each(
        &self,
        backend: &Backend,
        params: &Params<'_>,
        mut trace: impl FnMut(&SimulatedBlock<'_>, &Subject<'_>) -> Result<Run, RpcError>,
    ) -> Result<(), RpcError> {
        let mut block = self.begin(backend)?;
        for (index, tx) in self.block.body.transactions.iter().enumerate() {
            params.check_deadline()?;
            let run = trace(&block, &self.subject(index)?)?;
            block.keep(&run, blob_gas_of(tx));
        }
        Ok(())
    }
}
