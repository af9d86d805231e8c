//! Blockchain tests and engine tests: chains of blocks on a genesis.

use crate::cases::{Selection, Verdict, catch_panic};
use crate::chain::{PlainChain, Refusal, ordered_root};
use crate::network::chain_spec;
use crate::reason;
use alloy_rpc_types_engine::ExecutionPayload;
use niwaki_primitives::{B256, Bytes, Header};
use niwaki_rules::{Payload, PayloadError, PayloadInput, PayloadVersion, decode_payload};
use niwaki_testkit::MemoryState;
use niwaki_testkit::fixtures::{
    BlockExpectation, BlockTest, EngineTest, FixtureAlloc, FixtureConfig, PayloadCase,
};
use niwaki_testkit::state_root;
use serde_json::Value;

/// Runs a blockchain test.
pub(crate) fn run_blocks(test: &BlockTest, selection: &Selection) -> Option<Verdict> {
    selection.selects_fork(&test.network).then(|| Verdict {
        name: test.name.clone(),
        fork: test.network.clone(),
        outcome: catch_panic(|| check_blocks(test, selection)),
    })
}

/// Runs an engine test.
pub(crate) fn run_payloads(test: &EngineTest, selection: &Selection) -> Option<Verdict> {
    selection.selects_fork(&test.network).then(|| Verdict {
        name: test.name.clone(),
        fork: test.network.clone(),
        outcome: catch_panic(|| check_payloads(test, selection)),
    })
}

fn start(
    network: &str,
    config: &FixtureConfig,
    genesis: &Header,
    hash: B256,
    pre: &FixtureAlloc,
) -> Result<PlainChain, String> {
    let spec = chain_spec(network, config)?;
    let mut state = MemoryState::default();
    for (address, account) in pre {
        state.insert(*address, account.clone());
    }
    PlainChain::new(spec, genesis.clone(), hash, state)
}

fn check_blocks(test: &BlockTest, selection: &Selection) -> Result<(), String> {
    let mut chain = start(
        &test.network,
        &test.config,
        &test.genesis,
        test.genesis_hash,
        &test.pre,
    )?;
    chain.set_dispatch(selection.dispatch);
    chain.set_parallelism(selection.parallelism);
    for (index, case) in test.blocks.iter().enumerate() {
        let refusal = match chain.import_rlp(&case.rlp) {
            Ok(_) => None,
            Err(Refusal::Invalid(reason)) => Some((reason.spec_name(), reason.to_string())),
            Err(Refusal::Fault(fault)) => return Err(format!("block {index}: {fault}")),
        };
        compare(&case.expect, refusal).map_err(|reason| format!("block {index}: {reason}"))?;
    }
    compare_end(
        &chain,
        test.last_block_hash,
        test.post_state.as_ref(),
        test.post_state_root,
    )
}

/// Compares a rejection (its name and its text) with the fixture's expectation.
fn compare(
    expect: &BlockExpectation,
    refusal: Option<(&'static str, String)>,
) -> Result<(), String> {
    match (expect, refusal) {
        (BlockExpectation::Valid, None) | (BlockExpectation::Invalid(None), Some(_)) => Ok(()),
        (BlockExpectation::Valid, Some((name, text))) => Err(format!("refused: {name}: {text}")),
        (BlockExpectation::Invalid(wanted), None) => {
            let wanted = wanted.as_deref().unwrap_or("any reason");
            Err(format!("taken, must be refused for {wanted}"))
        }
        (BlockExpectation::Invalid(Some(wanted)), Some((got, text))) => {
            if reason::matches(wanted, got) {
                Ok(())
            } else {
                Err(format!("refused for {got} ({text}), must be for {wanted}"))
            }
        }
    }
}

fn compare_end(
    chain: &PlainChain,
    last: B256,
    post: Option<&FixtureAlloc>,
    root: Option<B256>,
) -> Result<(), String> {
    if chain.head() != last {
        return Err(format!("head is {}, must be {last}", chain.head()));
    }
    let state = chain.head_state();
    if let Some(wanted) = root {
        let got = state_root(state);
        if got != wanted {
            return Err(format!("state root is {got}, must be {wanted}"));
        }
    }
    let Some(post) = post else {
        return Ok(());
    };
    for (address, wanted) in post {
        match state.accounts.get(address) {
            Some(got) if got == wanted => {}
            Some(got) => return Err(format!("{address} is {got:?}, must be {wanted:?}")),
            None => return Err(format!("{address} is missing, must be {wanted:?}")),
        }
    }
    match state
        .accounts
        .keys()
        .find(|address| !post.contains_key(*address))
    {
        Some(extra) => Err(format!("{extra} exists, must not")),
        None => Ok(()),
    }
}

fn check_payloads(test: &EngineTest, selection: &Selection) -> Result<(), String> {
    let mut chain = start(
        &test.network,
        &test.config,
        &test.genesis,
        test.genesis_hash,
        &test.pre,
    )?;
    chain.set_dispatch(selection.dispatch);
    chain.set_parallelism(selection.parallelism);
    for (index, case) in test.payloads.iter().enumerate() {
        check_payload(&mut chain, case).map_err(|reason| format!("payload {index}: {reason}"))?;
    }
    compare_end(
        &chain,
        test.last_block_hash,
        test.post_state.as_ref(),
        test.post_state_root,
    )
}

fn check_payload(chain: &mut PlainChain, case: &PayloadCase) -> Result<(), String> {
    let version = PayloadVersion::from_number(case.version)
        .ok_or_else(|| format!("engine_newPayloadV{} is not known", case.version))?;
    let decoded = parse_params(&case.params)
        .and_then(|input| decode_payload(chain.spec(), version, input, ordered_root));
    let refusal = match decoded {
        Err(PayloadError::Invalid(reason)) => Some(reason),
        Err(error) => {
            let code = error.code();
            return if code.is_some() && code == case.error_code {
                Ok(())
            } else {
                Err(format!(
                    "error {code:?} ({error}), must be {:?}",
                    case.error_code
                ))
            };
        }
        Ok(Payload {
            invalid: Some(reason),
            ..
        }) => Some(reason),
        Ok(Payload {
            block,
            hash,
            access_list,
            ..
        }) => match chain.import(block, hash, access_list.as_deref()) {
            Ok(_) => None,
            Err(Refusal::Invalid(reason)) => Some(reason),
            Err(Refusal::Fault(fault)) => return Err(fault),
        },
    };
    if let Some(code) = case.error_code {
        return Err(format!("no error, must be {code}"));
    }
    compare(
        &case.expect,
        refusal.map(|reason| (reason.spec_name(), reason.to_string())),
    )
}

/// The parameters of `engine_newPayload`, from JSON.
fn parse_params(params: &[Value]) -> Result<PayloadInput, PayloadError> {
    fn parameter<T: for<'de> serde::Deserialize<'de>>(
        params: &[Value],
        index: usize,
        name: &str,
    ) -> Result<Option<T>, PayloadError> {
        match params.get(index) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::deserialize(value)
                .map(Some)
                .map_err(|error| PayloadError::InvalidParams(format!("{name}: {error}"))),
        }
    }
    let payload = parameter::<ExecutionPayload>(params, 0, "executionPayload")?;
    Ok(PayloadInput {
        payload: payload
            .ok_or_else(|| PayloadError::InvalidParams("executionPayload is missing".to_owned()))?,
        versioned_hashes: parameter(params, 1, "expectedBlobVersionedHashes")?,
        parent_beacon_block_root: parameter(params, 2, "parentBeaconBlockRoot")?,
        execution_requests: parameter::<Vec<Bytes>>(params, 3, "executionRequests")?,
    })
}
