//! The `config` object of a genesis file.

use super::GenesisError;
use super::bft::parse_bft_rules;
use super::discovery::parse_first_peers;
use super::quorum::{parse_code_limits, parse_quorum, parse_quorum_rules};
use crate::chain_spec::{Activation, BlobParams, ChainSpec, ContractSizeLimit, DaoFork, SealKind};
use crate::json::Object;
use alloy_primitives::U256;
use niwaki_primitives::Fork;

/// Keys of forks that begin at a block.
const BLOCK_KEYS: [(&str, Fork); 12] = [
    ("homesteadBlock", Fork::Homestead),
    ("eip150Block", Fork::TangerineWhistle),
    ("eip158Block", Fork::SpuriousDragon),
    ("byzantiumBlock", Fork::Byzantium),
    ("constantinopleBlock", Fork::Constantinople),
    ("petersburgBlock", Fork::Petersburg),
    ("istanbulBlock", Fork::Istanbul),
    ("muirGlacierBlock", Fork::MuirGlacier),
    ("berlinBlock", Fork::Berlin),
    ("londonBlock", Fork::London),
    ("arrowGlacierBlock", Fork::ArrowGlacier),
    ("grayGlacierBlock", Fork::GrayGlacier),
];

/// Keys of forks that begin at a timestamp.
const TIME_KEYS: [(&str, Fork); 10] = [
    ("shanghaiTime", Fork::Shanghai),
    ("cancunTime", Fork::Cancun),
    ("pragueTime", Fork::Prague),
    ("osakaTime", Fork::Osaka),
    ("bpo1Time", Fork::Bpo1),
    ("bpo2Time", Fork::Bpo2),
    ("bpo3Time", Fork::Bpo3),
    ("bpo4Time", Fork::Bpo4),
    ("bpo5Time", Fork::Bpo5),
    ("amsterdamTime", Fork::Amsterdam),
];

/// Keys of `blobSchedule`.
const BLOB_KEYS: [(&str, Fork); 9] = [
    ("cancun", Fork::Cancun),
    ("prague", Fork::Prague),
    ("osaka", Fork::Osaka),
    ("bpo1", Fork::Bpo1),
    ("bpo2", Fork::Bpo2),
    ("bpo3", Fork::Bpo3),
    ("bpo4", Fork::Bpo4),
    ("bpo5", Fork::Bpo5),
    ("amsterdam", Fork::Amsterdam),
];

/// Keys that change consensus in a way that this client does not support. Zero or false is harmless.
const UNSUPPORTED_KEYS: [(&str, &str); 3] = [
    ("evmStackSize", "the stack has 1024 words"),
    ("futureEipsTime", "no rules are known for it"),
    ("experimentalEipsTime", "no rules are known for it"),
];

/// The key of a fork's activation.
pub(crate) fn fork_key(fork: Fork) -> &'static str {
    let mut keys = BLOCK_KEYS.iter().chain(&TIME_KEYS);
    match keys.find(|(_, of)| *of == fork) {
        Some((key, _)) => key,
        None if fork == Fork::DaoFork => "daoForkBlock",
        None => "terminalTotalDifficulty",
    }
}

pub(super) fn parse_config(config: &Object<'_>) -> Result<ChainSpec, GenesisError> {
    let Some(chain_id) = config.u64("chainId")? else {
        return Err(GenesisError::Missing {
            key: "config.chainId",
            why: "transactions are signed for it",
        });
    };
    refuse_unsupported(config)?;
    let mut spec = ChainSpec::frontier(chain_id);
    spec.network_id = config.u64("networkId")?.unwrap_or(chain_id);
    parse_forks(config, &mut spec)?;
    parse_blob_schedule(config, &mut spec)?;
    spec.seal = parse_seal(config)?;
    let times = spec
        .activations
        .iter()
        .filter_map(|activation| match activation {
            Activation::Time(time) => Some(*time),
            _ => None,
        });
    spec.quorum = parse_quorum(config)?;
    spec.bft_rules = match spec.quorum {
        Some(_) => parse_quorum_rules(config)?,
        None => parse_bft_rules(config, times.min())?,
    };
    spec.first_peers = parse_first_peers(config)?;
    spec.contract_size_limits = match spec.quorum {
        Some(_) => parse_code_limits(config)?,
        None => {
            let limit = config.u64("contractSizeLimit")?;
            limit.map(ContractSizeLimit::always).into_iter().collect()
        }
    };
    spec.zero_base_fee = config.bool("zeroBaseFee")?.unwrap_or(false);
    spec.fixed_base_fee = fixed_base_fee(config, &spec)?;
    for (key, slot) in [
        ("depositContractAddress", &mut spec.deposit_contract),
        (
            "withdrawalRequestContractAddress",
            &mut spec.withdrawal_request_contract,
        ),
        (
            "consolidationRequestContractAddress",
            &mut spec.consolidation_request_contract,
        ),
    ] {
        if let Some(address) = config.address(key)? {
            *slot = address;
        }
    }
    Ok(spec)
}

/// What `fixedBaseFee` begins with, before a node says what its own is.
fn fixed_base_fee(config: &Object<'_>, spec: &ChainSpec) -> Result<Option<u64>, GenesisError> {
    if config.bool("fixedBaseFee")? != Some(true) {
        return Ok(None);
    }
    if spec.zero_base_fee {
        let what = "config.fixedBaseFee and config.zeroBaseFee can't both be true";
        return Err(GenesisError::Contradiction(what.to_owned()));
    }
    match spec.bft_rules.is_empty() {
        true => Err(GenesisError::Unsupported {
            key: "config.fixedBaseFee".to_owned(),
            why: "it is known on chains of QBFT and IBFT 2.0 only, where no node compares it with its own",
        }),
        false => Ok(Some(0)),
    }
}

fn refuse_unsupported(config: &Object<'_>) -> Result<(), GenesisError> {
    for (key, why) in UNSUPPORTED_KEYS {
        let harmless = match key {
            "evmStackSize" => config.u64(key)?.is_none_or(|size| size == 1024),
            _ => !config.has(key),
        };
        if !harmless {
            return Err(GenesisError::Unsupported {
                key: format!("config.{key}"),
                why,
            });
        }
    }
    if let Some(r1) = config.entries().find(|(key, value)| {
        key.eq_ignore_ascii_case("ecCurve") && !value.eq_ignore_ascii_case("\"secp256k1\"")
    }) {
        return Err(GenesisError::Unsupported {
            key: format!("config.{} = {}", r1.0, r1.1),
            why: "signatures are on secp256k1",
        });
    }
    Ok(())
}

/// Activations. A fork whose key is absent begins together with the next one that has a key: Besu
/// writes only the changes (its development genesis holds `londonBlock` alone), and geth refuses
/// such gaps, so no file means anything else by them.
fn parse_forks(config: &Object<'_>, spec: &mut ChainSpec) -> Result<(), GenesisError> {
    let mut given: Vec<(&str, Fork, u64)> = Vec::new();
    for (key, fork) in BLOCK_KEYS {
        if let Some(block) = config.u64(key)? {
            given.push((key, fork, block));
        }
    }
    check_eip155(config, &given)?;
    for pair in given.windows(2) {
        if let [(first, _, a), (second, _, b)] = pair
            && a > b
        {
            return Err(GenesisError::Contradiction(format!(
                "config.{first} = {a} is after config.{second} = {b}; forks must be in order"
            )));
        }
    }
    for (_, fork) in BLOCK_KEYS {
        let next = given.iter().find(|(_, other, _)| *other >= fork);
        if let Some((_, _, block)) = next {
            spec.set(fork, Activation::Block(*block));
        }
    }

    if let Some(block) = config.u64("daoForkBlock")? {
        let support = config.bool("daoForkSupport")?.unwrap_or(true);
        spec.dao_fork = Some(DaoFork { block, support });
        if support {
            spec.set(Fork::DaoFork, Activation::Block(block));
        }
    }

    spec.merge_netsplit_block = config.first_u64("mergeNetsplitBlock", "preMergeForkBlock")?;
    spec.terminal_total_difficulty = config.u256("terminalTotalDifficulty")?;
    if spec.terminal_total_difficulty.is_none()
        && config.bool("terminalTotalDifficultyPassed")? == Some(true)
    {
        spec.terminal_total_difficulty = Some(U256::ZERO);
    }
    if spec.terminal_total_difficulty.is_some() {
        spec.set(Fork::Paris, Activation::TotalDifficulty);
    }

    let mut last: Option<(&str, u64)> = None;
    for (key, fork) in TIME_KEYS {
        let Some(time) = config.u64(key)? else {
            continue;
        };
        if let Some((other, earlier)) = last
            && earlier > time
        {
            return Err(GenesisError::Contradiction(format!(
                "config.{other} = {earlier} is after config.{key} = {time}; forks must be in order"
            )));
        }
        spec.set(fork, Activation::Time(time));
        last = Some((key, time));
    }
    begin_london_early(spec, &given);
    Ok(())
}

/// A chain with forks by time only has all forks by block active at genesis.
fn begin_london_early(spec: &mut ChainSpec, given: &[(&str, Fork, u64)]) {
    let at_genesis = TIME_KEYS
        .iter()
        .any(|(_, fork)| matches!(spec.activation(*fork), Activation::Time(_)))
        || spec.terminal_total_difficulty == Some(U256::ZERO);
    let has_london = given.iter().any(|(_, fork, _)| *fork >= Fork::London);
    if at_genesis && !has_london {
        let from = given.iter().map(|(_, _, block)| *block).max().unwrap_or(0);
        for (_, fork) in BLOCK_KEYS {
            if fork <= Fork::London && spec.activation(fork) == Activation::Never {
                spec.set(fork, Activation::Block(from));
            }
        }
    }
}

/// EIP-155 and EIP-158 are one fork here, as in the specs.
fn check_eip155(config: &Object<'_>, given: &[(&str, Fork, u64)]) -> Result<(), GenesisError> {
    let eip158 = given
        .iter()
        .find(|(_, fork, _)| *fork == Fork::SpuriousDragon)
        .map(|(_, _, block)| *block);
    match (config.u64("eip155Block")?, eip158) {
        (Some(a), Some(b)) if a != b => Err(GenesisError::Contradiction(format!(
            "config.eip155Block = {a} differs from config.eip158Block = {b}; Spurious Dragon has both"
        ))),
        _ => Ok(()),
    }
}

fn parse_blob_schedule(config: &Object<'_>, spec: &mut ChainSpec) -> Result<(), GenesisError> {
    let Some(schedule) = config.object("blobSchedule")? else {
        return Ok(());
    };
    for (key, fork) in BLOB_KEYS {
        let Some(entry) = schedule.object(key)? else {
            continue;
        };
        let (Some(target), Some(max), Some(fraction)) = (
            entry.u64("target")?,
            entry.u64("max")?,
            entry.u64("baseFeeUpdateFraction")?,
        ) else {
            return Err(GenesisError::Contradiction(format!(
                "config.blobSchedule.{key} needs target, max and baseFeeUpdateFraction"
            )));
        };
        if fraction == 0 || max < target {
            return Err(GenesisError::Contradiction(format!(
                "config.blobSchedule.{key} needs max >= target and baseFeeUpdateFraction > 0, \
                 has {max}, {target} and {fraction}"
            )));
        }
        spec.blob_schedule[fork as usize] = Some(BlobParams::new(target, max, fraction));
    }
    Ok(())
}

fn parse_seal(config: &Object<'_>) -> Result<SealKind, GenesisError> {
    if config.has("qbft") || config.has("ibft2") {
        return Ok(SealKind::Bft);
    }
    if config.has("ibft") {
        return Err(GenesisError::Unsupported {
            key: "config.ibft".to_owned(),
            why: "IBFT of GoQuorum, version 1; networks have left it for QBFT",
        });
    }
    if let Some(clique) = config.object("clique")? {
        let period_s = clique.first_u64("period", "blockPeriodSeconds")?;
        let epoch_blocks = clique.first_u64("epoch", "epochLength")?;
        return Ok(SealKind::Clique {
            period_s: period_s.unwrap_or(15),
            epoch_blocks: epoch_blocks.unwrap_or(30_000),
        });
    }
    if let Some(ethash) = config.object("ethash")? {
        return Ok(SealKind::Ethash {
            fixed_difficulty: ethash.u64("fixedDifficulty")?,
        });
    }
    Ok(SealKind::None)
}
