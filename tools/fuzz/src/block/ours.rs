//! Runs a block on this machine.

use super::{BlockCase, Done, Verdict};
use crate::case::CHAIN_ID;
use niwaki_evm::Dispatch;
use niwaki_execution::{
    BlockExecution, ExecuteError, ExecutedBlock, Executor, Parallelism, RecoveringBlock,
    logs_bloom, receipt_blooms,
};
use niwaki_primitives::{Address, B256, Block, BlockBody, TxEnvelope, Withdrawals, rlp};
use niwaki_rules::{ChainSpec, InvalidBlock};
use niwaki_testkit::{MemoryState, state_root};

/// How a block is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Sequential(Dispatch),
    /// Each transaction speculatively first, on two threads.
    Speculative,
    /// The same with the block access list of the sequential execution.
    WithBal,
}

const SPECULATE_ON_TWO_THREADS: Parallelism = Parallelism {
    speculate_all: true,
    ..Parallelism::of(2)
};

/// Executes the block without its invalid transactions; returns the post-state too.
pub(crate) fn run(case: &BlockCase, mode: Mode) -> (Verdict, MemoryState) {
    let mut refused = Vec::new();
    loop {
        let (indices, transactions): (Vec<usize>, Vec<_>) = case
            .transactions
            .iter()
            .enumerate()
            .filter(|(index, _)| !refused.contains(index))
            .map(|(index, (tx, sender))| (index, (tx.clone(), *sender)))
            .unzip();
        match apply(case, transactions, mode) {
            Ok(executed) => return done(case, refused, executed),
            Err(ExecuteError::Invalid(InvalidBlock::Transaction { index, .. })) => {
                refused.push(indices[index]);
                refused.sort_unstable();
            }
            Err(ExecuteError::Invalid(reason)) => {
                return (Verdict::Invalid(reason.to_string()), case.state.clone());
            }
            Err(ExecuteError::Fault(fault)) => panic!("memory does not fail: {fault}"),
        }
    }
}

fn apply(
    case: &BlockCase,
    transactions: Vec<(TxEnvelope, Address)>,
    mode: Mode,
) -> Result<ExecutedBlock, ExecuteError> {
    let (transactions, senders): (_, Vec<_>) = transactions.into_iter().unzip();
    let block = Block {
        header: case.header.clone(),
        body: BlockBody {
            transactions,
            ommers: vec![],
            withdrawals: Some(Withdrawals::new(case.withdrawals.clone())),
        },
    };
    let block = RecoveringBlock::new(block, B256::ZERO, senders.into_iter().map(Some));
    let spec = ChainSpec::single(CHAIN_ID, case.fork);
    let post_state = &mut |_: &_| Ok(B256::ZERO);
    match mode {
        Mode::Sequential(dispatch) => {
            let mut executor = Executor::new(&spec, &case.header, &case.state);
            executor.evm().set_dispatch(dispatch);
            executor.apply_body(&spec, &block, post_state)
        }
        Mode::Speculative => {
            let execution = BlockExecution {
                parallelism: SPECULATE_ON_TWO_THREADS,
                ..BlockExecution::new(&spec, &block, &case.state)
            };
            Ok(execution.run(post_state)?.0)
        }
        Mode::WithBal => {
            let mut executor = Executor::new(&spec, &case.header, &case.state);
            executor.evm().world().record_access_list();
            let sequential = executor.apply_body(&spec, &block, post_state)?;
            let execution = BlockExecution {
                bal: sequential.block_access_list.as_deref(),
                parallelism: SPECULATE_ON_TWO_THREADS,
                ..BlockExecution::new(&spec, &block, &case.state)
            };
            Ok(execution.run(post_state)?.0)
        }
    }
}

fn done(case: &BlockCase, refused: Vec<usize>, executed: ExecutedBlock) -> (Verdict, MemoryState) {
    let mut state = case.state.clone();
    state.apply(&executed.diff);
    let list = executed.block_access_list.as_ref();
    let done = Done {
        refused,
        receipt_blooms: receipt_blooms(&executed.receipts),
        logs_bloom: logs_bloom(&executed.receipts),
        receipts: executed.receipts,
        gas_used: executed.gas_used,
        blob_gas_used: executed.blob_gas_used,
        requests: executed.requests,
        state_root: state_root(&state),
        block_access_list: list.map(|list| rlp::encode(list).into()),
    };
    (Verdict::Done(Box::new(done)), state)
}
