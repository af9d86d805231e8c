//! `peers validators`: validators of IBFT 2.0 or QBFT and a node that only follows, which is voted in and out; as many as can be faulty are
//! killed in turn, then half of them, then all. Some may be nodes of GoQuorum or Besu.

mod naming;

use self::naming::{Naming, bft_genesis};
use super::Binaries;
use super::findings::Findings;
use super::node::{self, wait_until};
use crate::process::{ClientKind, P2pOptions, Process, StartOptions};
use clap::{Args, ValueEnum};
use eyre::{Result, WrapErr, ensure};
use niwaki_crypto::address_of_secret_key;
use niwaki_primitives::{Address, B256, Bytes, U256};
use niwaki_rules::{BftExtra, BftProtocol};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How validators agree.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Protocol {
    Qbft,
    Ibft2,
}

#[derive(Args, Debug)]
pub(crate) struct ValidatorOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// How they agree.
    #[arg(long, value_name = "PROTOCOL", default_value = "qbft")]
    protocol: Protocol,
    /// Validators.
    #[arg(long, value_name = "N", default_value_t = 4)]
    validators: usize,
    /// How many of them are nodes of GoQuorum (`--quorum FILE`; QBFT).
    #[arg(long, value_name = "N", default_value_t = 0)]
    quorums: usize,
    /// How many of them are nodes of Besu (`--besu FILE`).
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "quorums"
    )]
    besus: usize,
    /// One more flag of each Besu; may be given several times.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    besu_flag: Vec<String>,
    /// Who names them.
    #[arg(long, value_name = "WHO", default_value = "headers")]
    naming: Naming,
    /// Our messages are those of Besu before 26.1, which knows no others (`--Xbft-legacy-protocol-encoding`).
    #[arg(long)]
    legacy_encoding: bool,
    /// Period of blocks, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    period_ms: u64,
    /// Blocks between two events.
    #[arg(long, value_name = "N", default_value_t = 5)]
    blocks: u64,
    /// How often all validators are killed at once, and started again.
    #[arg(long, value_name = "N", default_value_t = 2)]
    blackouts: usize,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl ValidatorOptions {
    fn protocol(&self) -> BftProtocol {
        match self.protocol {
            Protocol::Qbft => BftProtocol::Qbft,
            Protocol::Ibft2 => BftProtocol::Ibft2,
        }
    }
}

impl ValidatorOptions {
    /// What a node is: the first validators are those of other clients.
    fn kind(&self, number: usize) -> ClientKind {
        match number {
            number if number < self.quorums => ClientKind::Quorum,
            number if number < self.besus => ClientKind::Besu,
            _ => ClientKind::Niwaki,
        }
    }

    fn within(&self) -> Duration {
        match self.besus {
            0 => WITHIN,
            _ => WITHIN_BESU,
        }
    }

    fn flags(&self, kind: ClientKind) -> Vec<&str> {
        match kind {
            ClientKind::Niwaki if self.legacy_encoding => vec!["--Xbft-legacy-protocol-encoding"],
            ClientKind::Besu => self.besu_flag.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }
}

/// How long anything may take,
const WITHIN: Duration = Duration::from_secs(60);
/// and with a Besu: it takes seconds to start, and its rounds have no longest timeout.
const WITHIN_BESU: Duration = Duration::from_secs(300);

/// The nodes' keys: those of the validators by address, which is the order in which they propose; then that of the node that follows.
fn keys(options: &ValidatorOptions) -> Result<Vec<(Address, B256)>> {
    let key = |number: usize| -> Result<(Address, B256)> {
        let key = B256::from(U256::from(number + 0xb0));
        Ok((address_of_secret_key(&key)?, key))
    };
    let mut keys = (0..=options.validators)
        .map(key)
        .collect::<Result<Vec<_>>>()?;
    keys[..options.validators].sort_unstable();
    Ok(keys)
}

fn write_key(kind: ClientKind, folder: &Path, key: B256) -> Result<()> {
    let (name, encode) = key_file(kind);
    let path = folder.join("data").join(name);
    std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
    std::fs::write(path, encode(key))?;
    Ok(())
}

/// The nodes; the last one is no validator.
struct Nodes {
    all: Vec<Process>,
    keys: Vec<(Address, B256)>,
    /// Which of them run.
    up: Vec<bool>,
    /// The name that methods about validators begin with.
    name: &'static str,
    /// Transactions to the contract of the validators.
    sent: u64,
    /// How long anything may take,
    within: Duration,
    /// and each block besides: with a validator down, some come after a round that was given up.
    per_block: Duration,
}

/// Where a client keeps its key, below its data.
fn key_file(kind: ClientKind) -> (&'static str, fn(B256) -> String) {
    match kind {
        ClientKind::Niwaki | ClientKind::Besu => ("key", |key| key.to_string()),
        _ => ("geth/nodekey", |key| niwaki_primitives::hex::encode(key)),
    }
}

impl Nodes {
    fn start(options: &ValidatorOptions, folder: &Path) -> Result<Self> {
        let file = folder.join("genesis.json");
        std::fs::write(&file, bft_genesis(options)?)?;
        let (mut all, keys) = (Vec::new(), keys(options)?);
        for (number, (_, key)) in keys.iter().enumerate() {
            let kind = options.kind(number);
            let flags = options.flags(kind);
            let start = StartOptions {
                memory_budget: "128M",
                flags: &flags,
                p2p: Some(P2pOptions::default()),
                ..StartOptions::genesis(&file)
            };
            let own = folder.join(number.to_string());
            write_key(kind, &own, *key)?;
            all.push(node::start(kind, "node", &options.binaries, &own, start)?);
        }
        let up = vec![true; all.len()];
        let name = match options.protocol() {
            BftProtocol::Qbft => "qbft",
            BftProtocol::Ibft2 => "ibft",
        };
        let nodes = Self {
            all,
            keys,
            up,
            name,
            sent: 0,
            within: options.within(),
            per_block: Duration::from_millis(options.period_ms) * 3,
        };
        (0..nodes.all.len()).try_for_each(|number| nodes.connect(number))?;
        Ok(nodes)
    }

    /// Connects a node with those before it, or with all that run.
    fn connect(&self, number: usize) -> Result<()> {
        for (other, peer) in self.all.iter().enumerate() {
            if other != number && self.up[other] && self.up[number] {
                self.all[number].client.add_peer(&peer.client.enode()?)?;
            }
        }
        Ok(())
    }

    fn kill(&mut self, number: usize) -> Result<()> {
        self.up[number] = false;
        self.all[number].kill()
    }

    fn restart(&mut self, number: usize) -> Result<()> {
        self.all[number].restart()?;
        self.up[number] = true;
        wait_until("the node listens for peers", self.within, || {
            Ok(self.all[number].client.enode().is_ok())
        })?;
        self.connect(number)
    }

    /// Starts a killed node with its key alone.
    fn restart_from_zero(&mut self, number: usize) -> Result<()> {
        let data = self.all[number].data_path();
        std::fs::remove_dir_all(&data)?;
        let folder = data.parent().unwrap_or(&data).to_owned();
        write_key(self.all[number].kind, &folder, self.keys[number].1)?;
        self.restart(number)
    }

    /// Has a node vote on another.
    fn vote(&self, node: &Process, address: Address, is_add: bool) -> Result<()> {
        let method = match node.kind {
            ClientKind::Niwaki | ClientKind::Besu => {
                format!("{}_proposeValidatorVote", self.name)
            }
            _ => "istanbul_propose".to_owned(),
        };
        node.client.call(&method, json!([address, is_add]))?;
        Ok(())
    }

    fn heights(&self) -> Result<Vec<u64>> {
        let up = self.all.iter().zip(&self.up).filter(|(_, up)| **up);
        up.map(|(node, _)| node.client.block_number()).collect()
    }

    fn highest(&self) -> Result<u64> {
        Ok(self.heights()?.into_iter().max().unwrap_or_default())
    }

    /// Waits until all that run have this block.
    fn reach(&self, number: u64) -> Result<Duration> {
        let what = format!("all have block {number}");
        let missing = u32::try_from(number.saturating_sub(self.highest()?))?;
        let within = self.within + self.per_block * missing;
        let reached = wait_until(&what, within, || {
            Ok(self.heights()?.iter().all(|height| *height >= number))
        });
        reached.wrap_err_with(|| format!("the nodes are at {:?}", self.heights()))
    }

    /// Waits for so many further blocks.
    fn go_on(&self, blocks: u64) -> Result<Duration> {
        self.reach(self.highest()? + blocks)
    }
}

pub(crate) fn run(options: &ValidatorOptions) -> Result<()> {
    ensure!(
        options.validators >= 4,
        "--validators must be 4 or more, so that one may be killed"
    );
    ensure!(
        options.quorums <= options.validators
            && (options.quorums == 0 || options.protocol() == BftProtocol::Qbft),
        "--quorums must be at most --validators, and GoQuorum speaks QBFT"
    );
    ensure!(
        options.besus <= options.validators,
        "--besus must be at most --validators"
    );
    ensure!(
        options.naming == Naming::Headers || options.protocol() == BftProtocol::Qbft,
        "--naming contract and transitions need --protocol qbft"
    );
    let folder = tempfile::tempdir()?;
    let mut findings = Findings::default();
    let began = Instant::now();
    let mut nodes = Nodes::start(options, folder.path())?;
    nodes.reach(1)?;
    findings.times(
        "first block after the start of the first of the nodes",
        vec![began.elapsed()],
    );
    let took = nodes.go_on(options.blocks)?;
    findings.times(
        "a block",
        vec![took / u32::try_from(options.blocks.max(1))?],
    );

    nodes.reach(options.naming.settled())?;
    // A GoQuorum that starts again folds the headers from those whom the contract named in the genesis block: it takes the blocks of one
    // that was added later for those of a stranger, for ever.
    let is_changed_last = options.naming == Naming::Contract && options.quorums > 0;
    if !is_changed_last {
        vote_in_and_out(options, &mut nodes, &mut findings)?;
    }

    kill_in_turn(options, &mut nodes, &mut findings)?;
    go_below_quorum(options, &mut nodes, &mut findings)?;

    let mut resumed = Vec::new();
    for _ in 0..options.blackouts {
        (0..options.validators).try_for_each(|number| nodes.kill(number))?;
        let began = Instant::now();
        (0..options.validators).try_for_each(|number| nodes.restart(number))?;
        nodes.go_on(1)?;
        resumed.push(began.elapsed());
    }
    if options.besus == 0 {
        findings.claim(
            "after a blackout the next block comes within 10 s of the first restart",
            resumed.iter().all(|took| *took < Duration::from_secs(10)),
        );
    }
    findings.times("the next block after a blackout", resumed);
    nodes.kill(options.validators)?;
    let began = Instant::now();
    nodes.restart_from_zero(options.validators)?;
    nodes.go_on(1)?;
    findings.times("a node gets the chain from zero", vec![began.elapsed()]);
    nodes.go_on(options.blocks)?;
    if is_changed_last {
        vote_in_and_out(options, &mut nodes, &mut findings)?;
    }
    check(options, &mut nodes, &mut findings)?;
    findings.finish("validators", options.json.as_deref())
}

/// As many as can be faulty are killed, whose turns to propose follow each other; then the next ones.
fn kill_in_turn(
    options: &ValidatorOptions,
    nodes: &mut Nodes,
    findings: &mut Findings,
) -> Result<()> {
    let faulty = (options.validators - 1) / 3;
    let (mut without, mut joined) = (Vec::new(), Vec::new());
    for first in (0..options.validators).step_by(faulty) {
        let killed = first..(first + faulty).min(options.validators);
        killed.clone().try_for_each(|number| nodes.kill(number))?;
        let took = nodes.go_on(options.blocks)?;
        without.push(took / u32::try_from(options.blocks.max(1))?);
        let began = Instant::now();
        for number in killed {
            nodes.restart(number)?;
        }
        nodes.go_on(2)?;
        joined.push(began.elapsed());
    }
    findings.times(&format!("a block while {faulty} are down"), without);
    findings.times("a restart until all have the two next blocks", joined);
    Ok(())
}

/// So many are killed that no block comes, for some rounds; then they come back.
fn go_below_quorum(
    options: &ValidatorOptions,
    nodes: &mut Nodes,
    findings: &mut Findings,
) -> Result<()> {
    let killed = options.validators.div_ceil(2);
    for number in 0..killed {
        nodes.kill(number)?;
    }
    std::thread::sleep(Duration::from_millis(options.period_ms) * 10);
    let began = Instant::now();
    for number in 0..killed {
        nodes.restart(number)?;
    }
    nodes.go_on(1)?;
    findings.times(
        "the next block after ten periods without a quorum",
        vec![began.elapsed()],
    );
    Ok(())
}

/// All vote for the node that follows; it makes blocks, and is voted out again.
fn vote_in_and_out(
    options: &ValidatorOptions,
    nodes: &mut Nodes,
    findings: &mut Findings,
) -> Result<()> {
    let follower = options.validators;
    let own = nodes.keys[follower].0;
    let mut took = Vec::new();
    for is_add in [true, false] {
        nodes.change(options, own, is_add)?;
        let what = match is_add {
            true => "the node is voted in",
            false => "the node is voted out",
        };
        took.push(wait_until(what, nodes.within, || {
            let method = format!("{}_getValidatorsByBlockNumber", nodes.name);
            let list = nodes.all[follower]
                .client
                .call(&method, json!(["pending"]))?;
            let list: Vec<Address> = serde_json::from_value(list)?;
            Ok(list.contains(&own) == is_add)
        })?);
        let first = nodes.highest()? + 1;
        nodes.go_on(options.blocks.max(options.validators as u64 + 2))?;
        let mut made = 0;
        for number in first..=nodes.highest()? {
            let block = nodes.all[0].client.block(&format!("{number:#x}"))?;
            made += u64::from(block["miner"] == json!(own));
        }
        match is_add {
            true => findings.claim("a node that is voted in makes blocks", made > 0),
            // One that was under way may be its last.
            false => findings.claim("one that is voted out makes none", made <= 1),
        }
    }
    findings.times(
        "a vote of all, or transactions, until a node is in or out",
        took,
    );
    Ok(())
}

/// One chain everywhere, and sound databases.
fn check(options: &ValidatorOptions, nodes: &mut Nodes, findings: &mut Findings) -> Result<()> {
    let lowest = nodes.heights()?.into_iter().min().unwrap_or_default();
    let hash_of = |node: &Process, number: u64| -> Result<Value> {
        Ok(node.client.block(&format!("{number:#x}"))?["hash"].clone())
    };
    let mut are_equal = true;
    for number in 1..=lowest {
        let first = hash_of(&nodes.all[0], number)?;
        for node in &nodes.all[1..] {
            are_equal &= hash_of(node, number)? == first;
        }
    }
    findings.count("blocks", lowest);
    count_rounds(
        options.protocol(),
        &nodes.all[nodes.all.len() - 1],
        lowest,
        findings,
    )?;
    findings.claim("all nodes have the same blocks", are_equal && lowest > 0);
    let mut are_clean = true;
    for node in &mut nodes.all {
        node.stop()?;
        are_clean &= node.kind != ClientKind::Niwaki || node.check_storage()?.0;
    }
    findings.claim("storage check finds no problem anywhere", are_clean);
    Ok(())
}

/// In which rounds the blocks were finished.
fn count_rounds(
    protocol: BftProtocol,
    node: &Process,
    last: u64,
    findings: &mut Findings,
) -> Result<()> {
    let mut rounds = [0_u64; 4];
    for number in 1..=last {
        let block = node.client.block(&format!("{number:#x}"))?;
        let extra: Bytes = serde_json::from_value(block["extraData"].clone())?;
        let extra = BftExtra::decode(protocol, &extra)?;
        let round = usize::try_from(extra.round)?.min(rounds.len() - 1);
        rounds[round] += 1;
    }
    for (round, blocks) in rounds.iter().enumerate() {
        findings.count(format!("blocks of round {round}"), *blocks);
    }
    Ok(())
}
