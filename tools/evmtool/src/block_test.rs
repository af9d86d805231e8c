//! Blockchain tests and engine tests: chains of blocks on a genesis.

use crate::cases::{Selection, Verdict, catch_panic};
use crate::chain::{PlainChain, Refusal, ordered_root};
use crate::network::chain_spec;
use crate::reason;
use alloy_rpc_types_engine::ExecutionPayload;
use niwaki_primitives::Bytes;
use niwaki_rules::{Payload, PayloadError, PayloadInput, PayloadVersion, decode_payload};
use niwaki_testkit::fixtures::{BlockCase, BlockExpectation, ChainTest, PayloadCase};
use niwaki_testkit::state_root;
use serde_json::Value;

/// Imports a block or payload into the chain and compares the result with the fixture's.
type Import<C> = fn(&mut PlainChain, &C) -> Result<(), String>;

/// Runs a blockchain test or an engine test, whose cases are called `what` in errors.
pub(crate) fn run<C>(
    test: &ChainTest<C>,
    selection: &Selection,
    what: &str,
    import: Import<C>,
) -> Option<Verdict> {
    selection.selects_fork(&test.network).then(|| Verdict {
        name: test.name.clone(),
        fork: test.network.clone(),
        outcome: catch_panic(|| check(test, selection, what, import)),
    })
}

fn check<C>(
    test: &ChainTest<C>,
    selection: &Selection,
    what: &str,
    import: Import<C>,
) -> Result<(), String> {
    let spec = chain_spec(&test.network, &test.config)?;
    let state = test.pre.clone().into_iter().collect();
    let mut chain = PlainChain::new(spec, test.genesis.clone(), test.genesis_hash, state)?;
    chain.dispatch = selection.dispatch;
    chain.parallelism = selection.parallelism;
    for (index, case) in test.cases.iter().enumerate() {
        import(&mut chain, case).map_err(|reason| format!("{what} {index}: {reason}"))?;
    }
    compare_end(&chain, test)
}

/// Imports the RLP of a block.
pub(crate) fn check_block(chain: &mut PlainChain, case: &BlockCase) -> Result<(), String> {
    let refusal = match chain.import_rlp(&case.rlp) {
        Ok(()) => None,
        Err(Refusal::Invalid(reason)) => Some((reason.spec_name(), reason.to_string())),
        Err(Refusal::Fault(fault)) => return Err(fault),
    };
    compare(&case.expect, refusal)
}

/// Compares a rejection (its name and its text) with the fixture's expectation.
fn compare(
    expect: &BlockExpectation,
    refusal: Option<(&'static str, String)>,
) -> Result<(), String> {
    match (expect, refusal) {
        (BlockExpectation::Valid, None) | (BlockExpectation::Invalid(None), Some(_)) => Ok(()),
        (BlockExpectation::Valid, Some((name, text))) => Err(format!("refused: {name}: {text}")),
        (BlockExpectation::Invalid(expected), None) => {
            let expected = expected.as_deref().unwrap_or("any reason");
            Err(format!("accepted, must be refused for {expected}"))
        }
        (BlockExpectation::Invalid(Some(expected)), Some((got, text))) => {
            match reason::matches(expected, got) {
                true => Ok(()),
                false => Err(format!(
                    "refused for {got} ({text}), must be for {expected}"
                )),
            }
        }
    }
}

fn compare_end<C>(chain: &PlainChain, test: &ChainTest<C>) -> Result<(), String> {
    let (head, expected) = (chain.head(), test.last_block_hash);
    if head != expected {
        return Err(format!("head is {head}, must be {expected}"));
    }
    let state = chain.head_state();
    if let Some(expected) = test.post_state_root {
        let got = state_root(state);
        if got != expected {
            return Err(format!("state root is {got}, must be {expected}"));
        }
    }
    let Some(post) = &test.post_state else {
        return Ok(());
    };
    for (address, expected) in post {
        match state.accounts.get(address) {
            Some(got) if got == expected => {}
            Some(got) => return Err(format!("{address} is {got:?}, must be {expected:?}")),
            None => return Err(format!("{address} is missing, must be {expected:?}")),
        }
    }
    let mut addresses = state.accounts.keys();
    match addresses.find(|address| !post.contains_key(*address)) {
        Some(extra) => Err(format!("{extra} exists, must not")),
        None => Ok(()),
    }
}

/// Imports the block of a payload.
pub(crate) fn check_payload(chain: &mut PlainChain, case: &PayloadCase) -> Result<(), String> {
    let version = PayloadVersion::from_number(case.version)
        .ok_or_else(|| format!("engine_newPayloadV{} is not known", case.version))?;
    let decoded = parse_params(&case.params)
        .and_then(|input| decode_payload(chain.spec(), version, input, ordered_root));
    let refusal = match decoded {
        Err(PayloadError::Invalid(reason)) => Some(reason),
        Err(error) => {
            let (code, expected) = (error.code(), case.error_code);
            return match code.is_some() && code == expected {
                true => Ok(()),
                false => Err(format!("error {code:?} ({error}), must be {expected:?}")),
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
            Ok(()) => None,
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
