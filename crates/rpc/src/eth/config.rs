//! `eth` methods about the chain and this node: chain id, fork schedule, sync state, capabilities.

use crate::json::{self, Object};
use crate::params::Params;
use crate::sync::write_downloaded_state;
use crate::{Backend, RpcError, RpcResult, SyncReport, SyncStatus};
use niwaki_primitives::{
    Address, BUILDER_DEPOSIT_CONTRACT_ADDRESS, BUILDER_EXIT_CONTRACT_ADDRESS, Fork, address,
};
use niwaki_rules::{Activation, ChainSpec, fork_id};

pub(super) fn chain_id(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::number(out, backend.chain().spec().chain_id);
    Ok(())
}

/// This node keeps no keys.
pub(super) fn accounts(_: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    out.extend_from_slice(b"[]");
    Ok(())
}

pub(super) fn coinbase(_: &Backend, _: &Params<'_>, _: &mut Vec<u8>) -> RpcResult {
    Err(RpcError::server(
        "coinbase is not set: the consensus client names who is paid",
    ))
}

/// Whether this node builds blocks on its own (`--network=dev`).
pub(super) fn mining(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let builds = backend.operator().makes_blocks();
    json::boolean(out, builds);
    Ok(())
}

pub(super) fn protocol_version(_: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::number(out, 69);
    Ok(())
}

pub(super) fn syncing(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let Some(progress) = sync_progress(backend) else {
        json::boolean(out, false);
        return Ok(());
    };
    let mut object = Object::new(out);
    object.number("startingBlock", progress.start);
    object.number("currentBlock", progress.current);
    object.number("highestBlock", progress.highest);
    let report = progress.report.filter(|report| report.way == Some("snap"));
    if let Some(report) = report {
        write_downloaded_state(&report, &mut object);
    }
    Ok(())
}

/// How far the sync is.
pub(crate) struct SyncProgress {
    /// The block where it began.
    pub(crate) start: u64,
    /// The head.
    pub(crate) current: u64,
    /// The highest block that is known.
    pub(crate) highest: u64,
    report: Option<SyncReport>,
}

/// How far the sync is; `None` while the head is current. What is known of the target is from the consensus client,
/// and from the sync where there are peers.
pub(crate) fn sync_progress(backend: &Backend) -> Option<SyncProgress> {
    let target = match backend.sync_status() {
        SyncStatus::Current => return None,
        SyncStatus::Behind(missing) => missing.number.unwrap_or(0),
        SyncStatus::Unknown => 0,
    };
    let head = backend.chain().head().id.number;
    let report = backend.operator().sync_report();
    let report = report.filter(|report| report.target.is_some());
    let (start, highest) = match &report {
        Some(report) => (report.start_block.min(head), report.highest_block),
        None => (head, 0),
    };
    Some(SyncProgress {
        start,
        current: head,
        highest: target.max(highest).max(head),
        report,
    })
}

/// The blocks, states and proofs that this node serves.
///
/// Spec: execution-apis `eth/capabilities.yaml`.
pub(super) fn capabilities(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let chain = backend.chain();
    let head = chain.head().id;
    let first_block = chain.first_block()?;
    let (state, proofs) = match chain.is_archive() {
        true => (first_block, first_block),
        false => {
            let oldest = head.number.saturating_sub(chain.state_window());
            (oldest.max(first_block), head.number)
        }
    };
    let mut object = Object::new(out);
    let mut named = object.object("head");
    named.number("number", head.number);
    named.data("hash", head.hash.as_slice());
    drop(named);
    for (name, oldest) in [
        ("state", state),
        ("tx", first_block),
        ("logs", first_block),
        ("receipts", first_block),
        ("blocks", first_block),
        ("stateproofs", proofs),
    ] {
        let mut kind = object.object(name);
        kind.boolean("disabled", false);
        kind.number("oldestBlock", oldest);
        let window = match name {
            "state" if !chain.is_archive() => chain.state_window(),
            _ => continue,
        };
        let mut strategy = kind.object("deleteStrategy");
        strategy.string("type", "window");
        strategy.number("retentionBlocks", window);
    }
    Ok(())
}

/// The current fork, the next one and the last one that is scheduled.
///
/// Spec: EIP-7910.
pub(super) fn config(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let chain = backend.chain();
    let spec = chain.spec();
    let head = chain.head();
    let genesis_time = match chain.header(&chain.genesis_hash())? {
        Some(genesis) => genesis.header.timestamp,
        None => 0,
    };
    let times = forks_by_time(spec);
    let now = head.header.timestamp;
    let current = times.iter().rev().find(|(time, _)| *time <= now);
    let next = times.iter().find(|(time, _)| *time > now);
    let last = times
        .last()
        .filter(|last| next.is_some_and(|next| next.0 <= last.0));

    let mut object = Object::new(out);
    for (name, entry) in [("current", current), ("next", next), ("last", last)] {
        match entry {
            Some((time, fork)) => {
                let mut entry = object.object(name);
                write_fork(&mut entry, backend, *time, *fork, genesis_time);
            }
            None => object.null(name),
        }
    }
    Ok(())
}

/// The forks from Cancun on by activation time, the latest one of each time.
fn forks_by_time(spec: &ChainSpec) -> Vec<(u64, Fork)> {
    let mut times: Vec<(u64, Fork)> = Vec::new();
    for fork in Fork::ALL.into_iter().filter(|fork| *fork >= Fork::Cancun) {
        let Activation::Time(time) = spec.activation(fork) else {
            continue;
        };
        match times.last_mut().filter(|(last, _)| *last == time) {
            Some(last) => last.1 = fork,
            None => times.push((time, fork)),
        }
    }
    times
}

fn write_fork(
    object: &mut Object<'_>,
    backend: &Backend,
    time: u64,
    fork: Fork,
    genesis_time: u64,
) {
    let chain = backend.chain();
    let spec = chain.spec();
    object.decimal("activationTime", time);
    if let Some(params) = spec.blob_params_at(time) {
        let mut schedule = object.object("blobSchedule");
        schedule.decimal("target", params.target);
        schedule.decimal("max", params.max);
        schedule.decimal("baseFeeUpdateFraction", params.update_fraction);
    }
    object.number("chainId", spec.chain_id);
    let id = fork_id(spec, chain.genesis_hash(), genesis_time, u64::MAX, time);
    object.data("forkId", &id.hash.0);
    let mut precompiles = object.object("precompiles");
    for (name, address) in precompiles_of(fork) {
        precompiles.data(name, address.as_slice());
    }
    drop(precompiles);
    #[rustfmt::skip]
    let known = [
        ("BEACON_ROOTS_ADDRESS", Fork::Cancun, BEACON_ROOTS),
        ("BUILDER_DEPOSIT_CONTRACT_ADDRESS", Fork::Amsterdam, BUILDER_DEPOSIT_CONTRACT_ADDRESS),
        ("BUILDER_EXIT_CONTRACT_ADDRESS", Fork::Amsterdam, BUILDER_EXIT_CONTRACT_ADDRESS),
        ("CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS", Fork::Prague, spec.consolidation_request_contract),
        ("DEPOSIT_CONTRACT_ADDRESS", Fork::Prague, spec.deposit_contract),
        ("HISTORY_STORAGE_ADDRESS", Fork::Prague, HISTORY_STORAGE),
        ("WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS", Fork::Prague, spec.withdrawal_request_contract),
    ];
    let mut contracts = object.object("systemContracts");
    for (name, since, address) in known {
        if fork >= since && spec.has_system_calls() {
            contracts.data(name, address.as_slice());
        }
    }
}

const BEACON_ROOTS: Address = address!("000f3df6d732807ef1319fb7b8bb8522d0beac02");
const HISTORY_STORAGE: Address = address!("0000f90827f1c53a10cb7a02335b175320002935");

/// The names of EIP-7910, in the order of the addresses from 1 on; P256VERIFY is at 0x100.
const PRECOMPILES: [&str; 17] = [
    "ECREC",
    "SHA256",
    "RIPEMD160",
    "ID",
    "MODEXP",
    "BN254_ADD",
    "BN254_MUL",
    "BN254_PAIRING",
    "BLAKE2F",
    "KZG_POINT_EVALUATION",
    "BLS12_G1ADD",
    "BLS12_G1MSM",
    "BLS12_G2ADD",
    "BLS12_G2MSM",
    "BLS12_PAIRING_CHECK",
    "BLS12_MAP_FP_TO_G1",
    "BLS12_MAP_FP2_TO_G2",
];

/// The precompiled contracts of `fork`, by name.
fn precompiles_of(fork: Fork) -> Vec<(&'static str, Address)> {
    let count = match fork >= Fork::Prague {
        true => 17,
        false => 10,
    };
    let at = |number: u64| Address::left_padding_from(&number.to_be_bytes());
    let mut all: Vec<_> = (1..)
        .zip(PRECOMPILES)
        .take(count)
        .map(|(n, name)| (name, at(n)))
        .collect();
    if fork >= Fork::Osaka {
        all.push(("P256VERIFY", at(0x100)));
    }
    all.sort_unstable();
    all
}
