//! One simulated block: runs its calls, computes its header, and writes it.

use super::BlockStateCall;
use super::transfers::LogCollector;
use crate::blocks::FullBlock;
use crate::eth::serialize::{self, LogLocation};
use crate::json::{self, Array, Object};
use crate::simulation::{self, BlockOverrides, Message, SimulatedBlock, SimulationResult};
use crate::state::State;
use crate::{Backend, RpcError};
use niwaki_chain::Receipts;
use niwaki_evm::Failure;
use niwaki_execution::ExecutedBlock;
use niwaki_primitives::{
    Address, B256, Block, BlockBody, Encodable2718, Fork, Header, Log, Receipt, StateView,
    Transaction, TxEnvelope, Typed2718, Withdrawals, rlp,
};
use niwaki_rules::{
    access_list_hash, blob_gas_of, encode_access_list, next_excess_blob_gas, requests_hash,
};
use niwaki_trie::ordered_root;
use std::time::Instant;

/// -32015: the code ended with an exceptional halt.
const VM_ERROR: i64 = -32015;

/// A simulation in progress.
pub(super) struct Simulation<'s> {
    pub(super) backend: &'s Backend,
    pub(super) state: &'s State,
    pub(super) block: SimulatedBlock<'s>,
    pub(super) is_strict: bool,
    pub(super) traces_transfers: bool,
    /// Gas that all further calls together may use.
    pub(super) gas_left: u64,
    pub(super) deadline: Instant,
}

/// A block that was simulated.
pub(super) struct ProcessedBlock {
    pub(super) block: FullBlock,
    calls: Vec<ProcessedCall>,
}

struct ProcessedCall {
    run: SimulationResult,
    logs: Vec<(Log, usize)>,
}

impl Simulation<'_> {
    /// Executes a block on top of `parent`, given by hash and header.
    pub(super) fn process(
        &mut self,
        block_calls: BlockStateCall,
        mut header: Header,
        parent: &(B256, Header),
    ) -> Result<ProcessedBlock, RpcError> {
        let overrides = block_calls.overrides();
        let (parent_hash, parent) = parent;
        header.parent_hash = *parent_hash;
        self.set_fees(&mut header, parent);
        self.block.next(header);
        self.block.blob_base_fee = overrides.blob_fee();
        if let Some(state) = &block_calls.state_overrides {
            state.apply(&mut self.block)?;
        }
        self.block.begin()?;

        let (mut transactions, mut senders) = (Vec::new(), Vec::new());
        let (mut calls, mut receipts) = (Vec::new(), Vec::new());
        let mut next_log = 0;
        for message in block_calls.calls.unwrap_or_default() {
            let tx = self.transaction(&message)?;
            let mut tracer = LogCollector::new(self.traces_transfers, next_log);
            let run = self.run(&tx, message.sender(), &mut tracer)?;
            self.block.commit(&run, blob_gas_of(&tx));
            self.gas_left = self.gas_left.saturating_sub(run.result.gas_used);
            receipts.push(Receipt {
                tx_type: tx.ty(),
                status: Some(run.failure.is_none()),
                post_state: None,
                cumulative_gas_used: self.block.used.gas,
                logs: run.result.logs.clone(),
            });
            let (logs, next) = tracer.into_logs();
            next_log = next;
            calls.push(ProcessedCall { run, logs });
            transactions.push(tx);
            senders.push(message.sender());
        }
        let block = self.finish(&overrides, transactions, receipts)?;
        block.set_senders(senders);
        Ok(ProcessedBlock { block, calls })
    }

    /// Sets base fee and excess blob gas, which follow from the parent.
    fn set_fees(&self, header: &mut Header, parent: &Header) {
        let spec = self.block.spec();
        let fork = spec.fork_of(header);
        if fork >= Fork::London && header.base_fee_per_gas.is_none() {
            header.base_fee_per_gas = Some(match self.is_strict {
                true => spec.next_base_fee(parent),
                false => 0,
            });
        }
        if fork >= Fork::Cancun {
            let params = spec.blob_params_at(header.timestamp);
            let excess = params.map(|params| next_excess_blob_gas(parent, fork, &params));
            header.excess_blob_gas = Some(excess.unwrap_or(0));
        }
    }

    fn transaction(&self, message: &Message) -> Result<TxEnvelope, RpcError> {
        let spec = self.block.spec();
        message.check(spec.chain_id)?;
        let nonce = match message.nonce {
            Some(nonce) => nonce.0,
            None => {
                let account = self.block.state().account(&message.sender())?;
                account.unwrap_or_default().nonce
            }
        };
        let limit = self.block.header.gas_limit;
        let used = self.block.used.header_gas(spec.fork_of(&self.block.header));
        let left = limit.saturating_sub(used);
        let gas = message.gas.map_or(left, |gas| gas.0);
        if gas > left {
            let message = format!("block gas limit reached: {used} >= {limit}");
            return Err(RpcError::new(-38015, message));
        }
        Ok(message.transaction(nonce, gas.min(self.gas_left), spec.chain_id, 2))
    }

    fn run(
        &self,
        tx: &TxEnvelope,
        sender: Address,
        tracer: &mut LogCollector,
    ) -> Result<SimulationResult, RpcError> {
        let run = (self.block).simulate(tx, sender, self.is_strict, tracer, self.deadline)?;
        run.map_err(|reason| {
            let message = simulation::invalid(&reason, sender, tx.gas_limit()).message;
            RpcError::new(simulation::simulation_code(&reason), message)
        })
    }

    /// Applies withdrawals, collects requests and computes the roots.
    fn finish(
        &mut self,
        overrides: &BlockOverrides,
        transactions: Vec<TxEnvelope>,
        receipts: Vec<Receipt>,
    ) -> Result<FullBlock, RpcError> {
        let mut header = self.block.header.clone();
        let fork = self.block.spec().fork_of(&header);
        let since = |first: Fork| fork >= first;
        let withdrawals = overrides.withdrawals.clone().unwrap_or_default();
        let body = BlockBody {
            transactions,
            ommers: Vec::new(),
            withdrawals: since(Fork::Shanghai).then(|| Withdrawals::new(withdrawals)),
        };
        let executed = self.block.finish(&body, receipts)?;
        header.gas_used = executed.gas_used;
        header.blob_gas_used = since(Fork::Cancun).then_some(executed.blob_gas_used);
        header.requests_hash = since(Fork::Prague).then(|| requests_hash(&executed.requests));
        fill_roots(&mut header, &body, &executed);
        if since(Fork::Amsterdam) {
            let list = executed.block_access_list.as_ref().map(encode_access_list);
            header.block_access_list_hash = Some(access_list_hash(&list.unwrap_or_default()));
        }
        header.state_root = match self.state {
            State::Recent(view) => {
                let diff = self.block.state().diff();
                self.backend.chain().root_after(view, &diff)?
            }
            // The archive has the values of past states, not their tries.
            State::Past(_) => B256::ZERO,
        };
        let hash = self.backend.chain().spec().header_hash(&header);
        self.block.overlay().set_block_hash(header.number, hash);
        Ok(FullBlock::new(Block { header, body }, hash))
    }
}

fn fill_roots(header: &mut Header, body: &BlockBody, executed: &ExecutedBlock) {
    header.transactions_root = ordered_root(&body.transactions, |tx, out| tx.encode_2718(out));
    header.withdrawals_root = body.withdrawals.as_ref().map(|list| {
        ordered_root(list, |withdrawal, out| {
            rlp::Encodable::encode(withdrawal, out)
        })
    });
    let receipts = Receipts::of(&executed.receipts);
    header.receipts_root = receipts.root();
    header.logs_bloom = receipts.logs_bloom();
}

/// Writes a block with the results of its calls.
pub(super) fn write_block(out: &mut Vec<u8>, processed: &ProcessedBlock, full: bool) {
    serialize::block(out, &processed.block, full);
    // Reopens the object for one more member.
    out.pop();
    out.extend_from_slice(b",\"calls\":");
    let mut list = Array::new(out);
    for (index, call) in processed.calls.iter().enumerate() {
        write_call(list.item(), &processed.block, index, call);
    }
    drop(list);
    out.push(b'}');
}

fn write_call(out: &mut Vec<u8>, block: &FullBlock, index: usize, call: &ProcessedCall) {
    let ProcessedCall { run, logs } = call;
    let mut object = Object::new(out);
    match run.failure {
        None => object.data("returnData", &run.result.output),
        Some(_) => object.data("returnData", &[]),
    }
    let mut list = object.array("logs");
    for (log, number) in logs {
        let location = LogLocation::new(block, index, *number);
        serialize::log(list.item(), log, &location);
    }
    drop(list);
    object.number("gasUsed", run.result.gas_used);
    object.number("maxUsedGas", run.result.gas_before_refund);
    object.number("status", u64::from(run.failure.is_none()));
    if let Some(error) = simulation::reverted(run) {
        let mut member = object.object("error");
        let code = match run.failure {
            Some(Failure::Revert) => error.code,
            _ => VM_ERROR,
        };
        json::string(member.field("message"), &error.message);
        member
            .field("code")
            .extend_from_slice(code.to_string().as_bytes());
        if let Some(data) = &error.data {
            member.field("data").extend_from_slice(data.as_bytes());
        }
    }
}
