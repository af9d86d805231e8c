//! The transition: executes a block's transactions in order, on a state in memory.

use super::input::{Config, Input};
use super::transactions::Signed;
use super::{Failure, Rules};
use niwaki_evm::Tracer;
use niwaki_evm::tracers::{Eip3155, Eip3155End as End, Eip3155Options};
use niwaki_execution::{
    ExecuteError, ExecutedBlock, Executor, TransactionError, TransactionResult,
};
use niwaki_primitives::{
    Address, BlockBody, Fault, Fork, Header, Receipt, Transaction, TxEnvelope, Typed2718, U256,
    Withdrawal, Withdrawals,
};
use niwaki_rules::{ChainSpec, recover_sender};
use niwaki_testkit::{MemoryState, state_root};
use std::{collections::HashMap, path::PathBuf};

/// The folder of traces, and their options.
#[derive(Clone, Debug)]
pub(super) struct Traces {
    pub(super) folder: PathBuf,
    pub(super) options: Eip3155Options,
}

/// The result of a transition.
#[derive(Debug)]
pub(super) struct TransitionResult {
    pub(super) header: Header,
    /// The given difficulty, in any fork, or the header's.
    pub(super) difficulty: U256,
    pub(super) withdrawals: Option<Vec<Withdrawal>>,
    pub(super) block: TransitionBlock,
    pub(super) state: MemoryState,
}

/// The executed block.
#[derive(Debug)]
pub(super) struct TransitionBlock {
    /// All transactions that were given.
    pub(super) given: Vec<TxEnvelope>,
    pub(super) included: Vec<Included>,
    /// Those that were rejected, by index, and why.
    pub(super) rejected: Vec<(usize, String)>,
    pub(super) executed: ExecutedBlock,
    /// Besu's name of an error that no valid block can have.
    pub(super) exception: Option<&'static str>,
}

/// An included transaction.
#[derive(Debug)]
pub(super) struct Included {
    pub(super) tx: TxEnvelope,
    pub(super) gas_used: u64,
    pub(super) created: Option<Address>,
}

/// Runs `input` by `rules`.
///
/// # Errors
/// [`Failure`] if the block can't be begun or ended; a transaction that can't be run is rejected instead.
pub(super) fn apply(
    rules: &Rules,
    input: Input,
    traces: Option<&Traces>,
) -> Result<TransitionResult, Failure> {
    let spec = chain_spec(rules, &input.config);
    let header = input.env.header(rules.fork, &spec)?;
    let withdrawals = input.env.withdrawals(rules.fork)?;
    let body = BlockBody {
        ommers: input.env.ommers(header.number)?,
        withdrawals: withdrawals.clone().map(Withdrawals::new),
        ..BlockBody::default()
    };
    let mut state: MemoryState = input.alloc.into_iter().collect();
    for (number, hash) in &input.env.block_hashes {
        let number = u64::try_from(number.0).unwrap_or(u64::MAX);
        state.block_hashes.insert(number, *hash);
    }
    let mut executor = Executor::new(&spec, &header, &state);
    if let Some(reward) = rules.reward.filter(|_| rules.fork < Fork::Paris) {
        executor.set_base_reward(reward);
    }
    let run = BlockRun {
        executor,
        state: &state,
        fork: rules.fork,
        traces,
        given: Vec::new(),
        included: Vec::new(),
        receipts: Vec::new(),
        rejected: Vec::new(),
    };
    let block = run.block(&spec, &header, input.transactions, body)?;
    state.apply(&block.executed.diff);
    Ok(TransitionResult {
        difficulty: input
            .env
            .current_difficulty
            .map_or(header.difficulty, |given| given.0),
        header,
        withdrawals,
        block,
        state,
    })
}

/// The chain of the rules, with its system contracts where `config` says.
fn chain_spec(rules: &Rules, config: &Config) -> ChainSpec {
    let mut spec = ChainSpec::single(rules.chain_id, rules.fork);
    for (given, contract) in [
        (config.deposit_contract_address, &mut spec.deposit_contract),
        (
            config.withdrawal_request_contract_address,
            &mut spec.withdrawal_request_contract,
        ),
        (
            config.consolidation_request_contract_address,
            &mut spec.consolidation_request_contract,
        ),
    ] {
        if let Some(address) = given {
            *contract = address.0;
        }
    }
    spec
}

/// A block while its transactions run.
struct BlockRun<'a> {
    executor: Executor<'a>,
    /// The pre-state.
    state: &'a MemoryState,
    fork: Fork,
    traces: Option<&'a Traces>,
    given: Vec<TxEnvelope>,
    included: Vec<Included>,
    receipts: Vec<Receipt>,
    rejected: Vec<(usize, String)>,
}

impl BlockRun<'_> {
    fn block(
        mut self,
        spec: &ChainSpec,
        header: &Header,
        transactions: Vec<Signed>,
        mut body: BlockBody,
    ) -> Result<TransitionBlock, Failure> {
        self.executor.begin_block(spec, header).map_err(failed)?;
        for (index, signed) in transactions.into_iter().enumerate() {
            match signed {
                Signed::Refused(reason) => self.rejected.push((index, reason)),
                Signed::Tx(tx) => {
                    self.given.push(TxEnvelope::clone(&tx));
                    self.transaction(index, *tx)?;
                }
            }
        }
        let exception = self.overflow(body.withdrawals.as_deref().map_or(&[], Vec::as_slice))?;
        if exception.is_some() {
            body.withdrawals = None;
        }
        let executed = self
            .executor
            .finish_block(spec, header, &body, self.receipts);
        Ok(TransitionBlock {
            given: self.given,
            included: self.included,
            rejected: self.rejected,
            executed: executed.map_err(|error| match error {
                ExecuteError::Fault(fault) => failed(fault),
                ExecuteError::Invalid(reason) => {
                    Failure::evm(format!("post-execution processing failed: {reason}"))
                }
            })?,
            exception,
        })
    }

    fn transaction(&mut self, index: usize, tx: TxEnvelope) -> Result<(), Failure> {
        let sender = match recover_sender(&tx) {
            Ok(sender) => sender,
            Err(reason) => {
                self.rejected.push((index, reason.to_string()));
                return Ok(());
            }
        };
        let mut tracer = self
            .traces
            .map(|traces| Eip3155::new(traces.options, Vec::new()));
        let watching = tracer.as_mut().map(|tracer| tracer as &mut dyn Tracer);
        let result = match self.executor.process_transaction(&tx, sender, watching) {
            Ok(result) => result,
            Err(TransactionError::Fault(fault)) => return Err(failed(fault)),
            Err(TransactionError::Invalid(reason)) => {
                self.rejected.push((index, reason.to_string()));
                return Ok(());
            }
        };
        if let (Some(traces), Some(tracer)) = (self.traces, tracer) {
            self.write_trace(traces, tracer, &tx, &result)?;
        }
        let post_state = (self.fork < Fork::Byzantium).then(|| {
            let mut state = self.state.clone();
            state.apply(&self.executor.diff());
            state_root(&state)
        });
        let gas_used = result.gas_used;
        // Also if it failed: the address that it would have got.
        let created = tx.to().is_none().then(|| sender.create(tx.nonce()));
        let receipt = self.executor.receipt(tx.ty(), result, post_state);
        self.receipts.push(receipt);
        self.included.push(Included {
            tx,
            gas_used,
            created,
        });
        Ok(())
    }

    fn write_trace(
        &self,
        traces: &Traces,
        tracer: Eip3155<Vec<u8>>,
        tx: &TxEnvelope,
        result: &TransactionResult,
    ) -> Result<(), Failure> {
        let text = tracer.finish(End {
            state_root: None,
            output: &result.output,
            gas_used: result.gas_used,
            exit: result.exit,
            fork: self.fork.name(),
        });
        let name = format!("trace-{}-{}.jsonl", self.included.len(), tx.tx_hash());
        let path = traces.folder.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::io(&path, &error))
    }

    /// Besu's name of the error if withdrawals raise a balance to 2^256 wei or more.
    fn overflow(&mut self, withdrawals: &[Withdrawal]) -> Result<Option<&'static str>, Failure> {
        let world = self.executor.evm().world();
        let mut sums = HashMap::new();
        for withdrawal in withdrawals {
            let account = world.load(&withdrawal.address).map_err(failed)?;
            let sum = sums
                .entry(account)
                .or_insert_with(|| world.balance(account));
            match sum.checked_add(U256::from(withdrawal.amount_wei())) {
                Some(more) => *sum = more,
                None => return Ok(Some("UInt256 overflow")),
            }
        }
        Ok(None)
    }
}

/// The failure of a state that could not be read.
fn failed(fault: Fault) -> Failure {
    match fault {
        Fault::Missing {
            segment: "block hashes",
            key,
        } => Failure::block_hash(format!("env has no blockHashes entry for block {key}")),
        other => Failure::evm(other.to_string()),
    }
}
