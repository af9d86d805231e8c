//! State tests: one transaction on one state.

mod batch;

pub(crate) use batch::{Batch, run_batch};

use crate::cases::{Outcome, Selection, Verdict, catch_panic};
use crate::logs_hash::logs_hash;
use crate::network::chain_spec;
use crate::reason;
use crate::transaction::{Built, build};
use alloy_primitives::keccak256;
use niwaki_evm::tracers::{Eip3155, Eip3155End as End, Eip3155Options};
use niwaki_evm::{Dispatch, Tracer};
use niwaki_execution::{Executor, TransactionError, TransactionResult};
use niwaki_primitives::{Address, B256, Fork, Header, Log, U256};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use niwaki_testkit::fixtures::{Indexes, StateEnv, StatePost, StateTest};
use niwaki_testkit::state_root;
use std::io::{BufWriter, Write};

/// Base fee where an old fixture has none, wei.
const DEFAULT_BASE_FEE: u64 = 10;

/// Runs every selected choice of a state test.
pub(crate) fn run(test: &StateTest, selection: &Selection) -> Vec<Verdict> {
    test.posts
        .iter()
        .filter(|post| selection.selects(post))
        .map(|post| {
            let Indexes { data, gas, value } = post.indexes;
            Verdict {
                name: format!("{}/d{data}g{gas}v{value}", test.name),
                fork: post.fork.clone(),
                outcome: check(test, post, selection),
            }
        })
        .collect()
}

/// Runs one choice with `tracer`, without comparing it with the fixture.
///
/// # Errors
/// Why it could not be run.
pub fn trace_post(
    test: &StateTest,
    post: &StatePost,
    tracer: &mut dyn Tracer,
) -> Result<(), String> {
    execute(test, post, Dispatch::Loop, Some(tracer)).map(|_| ())
}

fn check(test: &StateTest, post: &StatePost, selection: &Selection) -> Outcome {
    if post.state_root.is_zero() {
        return Outcome::Skipped("the fixture gives no root to compare with".to_owned());
    }
    catch_panic(|| {
        let stderr = || BufWriter::new(std::io::stderr().lock());
        let tracer = || Eip3155::new(Eip3155Options::default(), stderr());
        let mut tracer = { selection.trace }.then(tracer);
        let watching = tracer.as_mut().map(|tracer| tracer as &mut dyn Tracer);
        let actual = execute(test, post, selection.dispatch, watching)?;
        let root = state_root(&actual.state);
        if let (Some(tracer), Ok(result)) = (tracer, &actual.result) {
            let mut out = tracer.finish(End {
                state_root: Some(root),
                output: &result.output,
                gas_used: result.gas_used,
                exit: result.exit,
                fork: &post.fork,
            });
            let _ = out.flush();
        }
        compare(test, post, &actual, root)
    })
}

/// Compares the result of a choice with the fixture.
fn compare(
    test: &StateTest,
    post: &StatePost,
    actual: &PostResult,
    mut root: B256,
) -> Result<(), String> {
    match (&post.exception, &actual.result) {
        (None, Err(name)) => return Err(format!("refused: {name}")),
        (Some(expected), Ok(_)) => return Err(format!("accepted, must be refused: {expected}")),
        (Some(expected), Err(got)) if !reason::matches(expected, got) => {
            return Err(format!("refused for {got}, must be for {expected}"));
        }
        _ => {}
    }
    if root != post.state_root && actual.result.is_err() {
        // In older fixtures the block of an invalid transaction is empty, and its coinbase gets a reward of zero:
        // before EIP-161 that creates an empty account.
        let mut state = actual.state.clone();
        state.accounts.entry(test.env.coinbase).or_default();
        root = state_root(&state);
    }
    if root != post.state_root {
        return Err(format!("state root is {root}, must be {}", post.state_root));
    }
    let (hash, expected) = (logs_hash(actual.logs()), post.logs_hash);
    if hash != expected {
        return Err(format!("hash of logs is {hash}, must be {expected}"));
    }
    Ok(())
}

/// The result of a choice.
struct PostResult {
    /// The transaction's result, or the name of the error that makes it invalid.
    result: Result<TransactionResult, &'static str>,
    /// The state after.
    state: MemoryState,
}

impl PostResult {
    fn logs(&self) -> &[Log] {
        self.result.as_ref().map_or(&[], |result| &result.logs)
    }
}

fn execute(
    test: &StateTest,
    post: &StatePost,
    dispatch: Dispatch,
    tracer: Option<&mut dyn Tracer>,
) -> Result<PostResult, String> {
    let spec = chain_spec(&post.fork, &test.config)?;
    let mut state = pre_state(test);
    let tx = match build(&test.transaction, post.indexes, spec.chain_id)? {
        Built::Tx(tx) => tx,
        Built::Unencodable(reason) => {
            let reason = before_its_fork(&spec, reason).unwrap_or(reason);
            return Ok(PostResult {
                result: Err(reason),
                state,
            });
        }
    };
    let header = header_of(&test.env, &spec);
    let sender = sender_of(test)?;

    let mut executor = Executor::new(&spec, &header, &state);
    executor.evm().set_dispatch(dispatch);
    let result = match executor.process_transaction(&tx, sender, tracer) {
        Ok(result) => Ok(result),
        Err(TransactionError::Invalid(reason)) => Err(reason.spec_name()),
        Err(TransactionError::Fault(fault)) => return Err(fault.to_string()),
    };
    let diff = result.is_ok().then(|| executor.diff());
    drop(executor);
    if let Some(diff) = diff {
        state.apply(&diff);
    }
    Ok(PostResult { result, state })
}

/// Before their fork, transaction types that allow no creation are invalid whatever they contain.
fn before_its_fork(spec: &ChainSpec, reason: &str) -> Option<&'static str> {
    let fork = spec.fork_at(0, 0, true);
    match reason {
        "TYPE_3_TX_CONTRACT_CREATION" if fork < Fork::Cancun => Some("TYPE_3_TX_PRE_FORK"),
        "TYPE_4_TX_CONTRACT_CREATION" if fork < Fork::Prague => Some("TYPE_4_TX_PRE_FORK"),
        _ => None,
    }
}

fn pre_state(test: &StateTest) -> MemoryState {
    let mut state: MemoryState = test.pre.clone().into_iter().collect();
    // BLOCKHASH in a state test is the hash of the number in decimal.
    for number in test.env.number.saturating_sub(256)..test.env.number {
        let hash = keccak256(number.to_string());
        state.block_hashes.insert(number, hash);
    }
    state
}

fn sender_of(test: &StateTest) -> Result<Address, String> {
    match (test.transaction.sender, test.transaction.secret_key) {
        (Some(sender), _) => Ok(sender),
        (None, Some(key)) => niwaki_crypto::address_of_secret_key(&key).map_err(|e| e.to_string()),
        (None, None) => Err("the transaction has neither sender nor secretKey".to_owned()),
    }
}

/// The header of the transaction's block.
pub(crate) fn header_of(env: &StateEnv, spec: &ChainSpec) -> Header {
    let merged = spec.terminal_total_difficulty == Some(U256::ZERO);
    let fork = spec.fork_at(env.number, env.timestamp, merged);
    Header {
        number: env.number,
        timestamp: env.timestamp,
        beneficiary: env.coinbase,
        gas_limit: env.gas_limit,
        difficulty: if fork >= Fork::Paris {
            U256::ZERO
        } else {
            env.difficulty
        },
        mix_hash: env.random.unwrap_or(B256::from(env.difficulty)),
        base_fee_per_gas: (fork >= Fork::London)
            .then_some(env.base_fee.unwrap_or(DEFAULT_BASE_FEE)),
        excess_blob_gas: (fork >= Fork::Cancun).then_some(env.excess_blob_gas.unwrap_or(0)),
        slot_number: (fork >= Fork::Amsterdam).then_some(env.slot_number.unwrap_or(0)),
        ..Header::default()
    }
}
