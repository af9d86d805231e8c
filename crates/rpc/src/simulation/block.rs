//! The block that simulated messages run in.
//!
//! A [`SimulatedBlock`] holds a header and an overlay over a state. [`SimulatedBlock::call`] executes a message and
//! leaves the overlay unchanged; [`SimulatedBlock::commit`] applies a result, so that the next message sees it.

use super::bal_builder::BalBuilder;
use super::deadline_tracer::DeadlineTracer;
use super::error;
use super::message::Message;
use super::overrides::{BlockOverrides, StateOverrides};
use crate::state::State;
use crate::{Backend, Params, RpcError, RpcResult};
use niwaki_chain::StoredHeader;
use niwaki_crypto::Precompiled;
use niwaki_evm::{Failure, Table, Tracer};
use niwaki_execution::{
    ExecuteError, ExecutedBlock, Executor, Overlay, TransactionError, TransactionResult, Used,
};
use niwaki_primitives::{
    Address, BlockAccessList, BlockBody, Header, Receipt, StateDiff, StateView, TxEnvelope,
};
use niwaki_rules::{ChainSpec, InvalidTransaction};
use std::time::Instant;

/// A block and the state that its next transaction runs on.
#[derive(Debug)]
pub(crate) struct SimulatedBlock<'v> {
    spec: &'v ChainSpec,
    /// The header, as EVM code sees it.
    pub(crate) header: Header,
    overlay: Overlay<'v>,
    /// The blob base fee, if it does not follow from the header.
    pub(crate) blob_base_fee: Option<u128>,
    moved: Vec<(Address, Option<Precompiled>)>,
    /// Gas and blob gas of the transactions so far.
    pub(crate) used: Used,
    /// The number of their logs.
    pub(crate) logs: usize,
    /// The block access list so far, for a block of Amsterdam that has begun.
    accesses: Option<BalBuilder>,
}

/// The result of a simulated transaction.
#[derive(Debug)]
pub(crate) struct SimulationResult {
    pub(crate) result: TransactionResult,
    /// Why it failed, if it did.
    pub(crate) failure: Option<Failure>,
    /// Its changes.
    pub(crate) diff: StateDiff,
    /// Its part of the block access list, if there is one.
    accesses: Option<BlockAccessList>,
}

impl<'v> SimulatedBlock<'v> {
    /// The block of `header` on `state`, which is the state after block `base_number`.
    pub(crate) fn new(
        spec: &'v ChainSpec,
        header: Header,
        state: &'v (dyn StateView + Sync),
        base_number: u64,
    ) -> Self {
        Self {
            spec,
            header,
            overlay: Overlay::new(state, base_number),
            blob_base_fee: None,
            moved: Vec::new(),
            used: Used::default(),
            logs: 0,
            accesses: None,
        }
    }

    /// A block with the header of a stored one, on the state after that one.
    pub(crate) fn on_top_of(backend: &'v Backend, block: &StoredHeader, state: &'v State) -> Self {
        let spec = backend.chain().spec();
        Self::new(spec, block.header.clone(), state, block.id.number)
    }

    /// Overrides accounts and the block itself, for a call.
    ///
    /// # Errors
    /// For overrides that contradict themselves.
    pub(crate) fn override_with(
        &mut self,
        overrides: &StateOverrides,
        block: &BlockOverrides,
    ) -> RpcResult {
        block.check_for_call()?;
        block.apply(&mut self.header, self.spec)?;
        self.blob_base_fee = block.blob_fee();
        overrides.apply(self)
    }

    /// Makes the system calls before the first transaction.
    ///
    /// # Errors
    /// A fault.
    pub(crate) fn begin(&mut self) -> RpcResult {
        let mut executor = self.executor(false);
        executor.begin_block(self.spec, &self.header)?;
        let diff = executor.diff();
        let part = executor.evm().world().take_access_list();
        drop(executor);
        self.overlay.apply(diff);
        self.accesses = part.map(|part| {
            let mut accesses = BalBuilder::default();
            accesses.add(part);
            accesses
        });
        Ok(())
    }

    /// Executes the next transactions of a stored block without a tracer.
    ///
    /// # Errors
    /// A fault, or a timeout.
    pub(crate) fn replay_all<'t>(
        &mut self,
        transactions: impl Iterator<Item = (&'t TxEnvelope, Address)>,
        params: &Params<'_>,
    ) -> RpcResult {
        let mut executor = self.executor(false);
        let mut logs = 0;
        for (tx, sender) in transactions {
            params.check_deadline()?;
            match executor.process_transaction(tx, sender, None) {
                Ok(result) => logs += result.logs.len(),
                Err(TransactionError::Invalid(reason)) => {
                    return Err(RpcError::server(error::error_message(&reason, sender)));
                }
                Err(TransactionError::Fault(fault)) => return Err(fault.into()),
            }
        }
        let (diff, used) = (executor.diff(), executor.used());
        drop(executor);
        self.overlay.apply(diff);
        self.used = used;
        self.logs += logs;
        Ok(())
    }

    /// The rules of the chain.
    pub(crate) fn spec(&self) -> &'v ChainSpec {
        self.spec
    }

    /// The state, for changes.
    pub(crate) fn overlay(&mut self) -> &mut Overlay<'v> {
        &mut self.overlay
    }

    /// The state that the next transaction runs on.
    pub(crate) fn state(&self) -> &Overlay<'v> {
        &self.overlay
    }

    /// Moves on to the next block, with this header.
    pub(crate) fn next(&mut self, header: Header) {
        self.header = header;
        self.blob_base_fee = None;
        self.moved.clear();
        self.used = Used::default();
        self.logs = 0;
        self.accesses = None;
    }

    /// The opcodes and prices in force.
    pub(crate) fn table(&self) -> &'static Table {
        Table::of(self.spec.fork_of(&self.header))
    }

    /// The precompiled contract at `address`.
    pub(crate) fn precompiled(&self, address: &Address) -> Option<Precompiled> {
        let moved = self.moved.iter().rev().find(|(moved, _)| moved == address);
        match moved {
            Some((_, contract)) => *contract,
            None => self.table().precompiles().get(address),
        }
    }

    pub(crate) fn move_precompiled(&mut self, to: Address, contract: Option<Precompiled>) {
        self.moved.push((to, contract));
    }

    fn executor(&self, is_free: bool) -> Executor<'_> {
        let mut header = self.header.clone();
        if is_free && header.base_fee_per_gas.is_some() {
            header.base_fee_per_gas = Some(0);
        }
        let mut executor = Executor::resumed(self.spec, &header, &self.overlay, self.used);
        if let Some(fee) = self.blob_base_fee {
            executor.set_blob_base_fee(fee);
        }
        for (address, contract) in &self.moved {
            executor
                .evm()
                .world()
                .override_precompile(address, *contract);
        }
        executor
    }

    /// Executes a transaction with `run` and returns its result; the overlay stays unchanged.
    fn run(
        &self,
        is_free: bool,
        tracer: &mut dyn Tracer,
        deadline: Instant,
        run: impl FnOnce(
            &mut Executor<'_>,
            &mut dyn Tracer,
        ) -> Result<TransactionResult, TransactionError>,
    ) -> Result<Result<SimulationResult, InvalidTransaction>, RpcError> {
        let mut executor = self.executor(is_free);
        let mut watched = DeadlineTracer::new(tracer, deadline);
        let result = match run(&mut executor, &mut watched) {
            Ok(result) => result,
            Err(TransactionError::Invalid(reason)) => return Ok(Err(reason)),
            Err(TransactionError::Fault(fault)) => return Err(fault.into()),
        };
        if watched.is_timed_out {
            return Err(RpcError::server("execution aborted (timeout)"));
        }
        let failure = watched.failure;
        let diff = executor.diff();
        let accesses = match self.accesses {
            Some(_) => executor.evm().world().take_access_list(),
            None => None,
        };
        Ok(Ok(SimulationResult {
            result,
            failure,
            diff,
            accesses,
        }))
    }

    /// Executes a message with this gas, as `eth_call` does: it is free if it names no price, its nonce is the
    /// sender's, and with `lifts_cap` all its gas may go into execution. Without it, the message has the execution gas
    /// that a transaction would have from Amsterdam on (EIP-8037).
    ///
    /// # Errors
    /// A fault, or a timeout. The reason why the message is invalid is the inner error.
    pub(crate) fn call(
        &self,
        message: &Message,
        gas: u64,
        lifts_cap: bool,
        tracer: &mut dyn Tracer,
        deadline: Instant,
    ) -> Result<Result<SimulationResult, InvalidTransaction>, RpcError> {
        let sender = message.sender();
        let nonce = self.overlay.account(&sender)?.unwrap_or_default().nonce;
        let tx = message.transaction(nonce, gas, self.spec.chain_id, 0);
        self.run(message.is_free(), tracer, deadline, |executor, tracer| {
            if lifts_cap {
                executor.lift_execution_cap();
            }
            let names_price = message
                .max_fee_per_blob_gas
                .is_some_and(|fee| !fee.is_zero());
            if message.blob_versioned_hashes.is_some() && !names_price {
                executor.set_blob_base_fee(0);
            }
            executor.simulate_transaction(&tx, sender, false, Some(tracer))
        })
    }

    /// Executes an unsigned transaction of a simulated block.
    ///
    /// # Errors
    /// As [`SimulatedBlock::call`].
    pub(crate) fn simulate(
        &self,
        tx: &TxEnvelope,
        sender: Address,
        is_strict: bool,
        tracer: &mut dyn Tracer,
        deadline: Instant,
    ) -> Result<Result<SimulationResult, InvalidTransaction>, RpcError> {
        self.run(false, tracer, deadline, |executor, tracer| {
            if !is_strict {
                executor.lift_execution_cap();
            }
            executor.simulate_transaction(tx, sender, is_strict, Some(tracer))
        })
    }

    /// Executes a transaction of a stored block.
    ///
    /// # Errors
    /// As [`SimulatedBlock::call`]; an invalid transaction is an error too.
    pub(crate) fn replay(
        &self,
        tx: &TxEnvelope,
        sender: Address,
        tracer: &mut dyn Tracer,
        deadline: Instant,
    ) -> Result<SimulationResult, RpcError> {
        let run = self.run(false, tracer, deadline, |executor, tracer| {
            executor.process_transaction(tx, sender, Some(tracer))
        })?;
        run.map_err(|reason| RpcError::server(error::error_message(&reason, sender)))
    }

    /// Makes the system calls after the last transaction and applies withdrawals.
    ///
    /// # Errors
    /// A fault, or a system contract that is missing or fails.
    pub(crate) fn finish(
        &mut self,
        body: &BlockBody,
        receipts: Vec<Receipt>,
    ) -> Result<ExecutedBlock, RpcError> {
        let finished = self
            .executor(false)
            .finish_block(self.spec, &self.header, body, receipts);
        let mut executed = match finished {
            Ok(executed) => executed,
            Err(ExecuteError::Fault(fault)) => return Err(fault.into()),
            Err(ExecuteError::Invalid(reason)) => return Err(RpcError::server(reason.to_string())),
        };
        self.overlay.apply(executed.diff.clone());
        if let Some(mut accesses) = self.accesses.take() {
            accesses.add(executed.block_access_list.take().unwrap_or_default());
            executed.block_access_list = Some(accesses.into_list());
        }
        Ok(executed)
    }

    /// Applies the changes of a transaction, for those after it.
    pub(crate) fn commit(&mut self, run: &SimulationResult, blob_gas: u64) {
        self.overlay.apply(run.diff.clone());
        self.used.add(&run.result, blob_gas);
        self.logs += run.result.logs.len();
        if let (Some(accesses), Some(part)) = (&mut self.accesses, &run.accesses) {
            accesses.add(part.clone());
        }
    }
}
