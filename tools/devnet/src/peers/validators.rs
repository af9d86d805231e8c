//! `peers validators`: validators of IBFT 2.0 or QBFT and a node that only follows, which is voted in and out; each validator is killed in
//! turn, then all.

use super::Binaries;
use super::findings::Findings;
use super::node::{self, wait_until};
use crate::accounts;
use crate::genesis::{GAS_LIMIT, genesis};
use crate::process::{ClientKind, P2pOptions, Process, StartOptions};
use clap::{Args, ValueEnum};
use eyre::{Result, WrapErr, ensure};
use niwaki_crypto::address_of_secret_key;
use niwaki_primitives::{Address, B256, U256};
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

/// How long anything may take.
const WITHIN: Duration = Duration::from_secs(60);

fn key(number: usize) -> B256 {
    B256::from(U256::from(number + 0xb0))
}

/// A genesis file with these validators.
fn bft_genesis(options: &ValidatorOptions) -> Result<String> {
    let keys = (0..options.validators).map(key);
    let validators = keys.map(|key| address_of_secret_key(&key));
    let validators: Result<Vec<Address>, _> = validators.collect();
    let extra = BftExtra {
        vanity: B256::ZERO.0.into(),
        validators: validators?,
        ..BftExtra::default()
    };
    let (name, protocol) = match options.protocol {
        Protocol::Qbft => ("qbft", BftProtocol::Qbft),
        Protocol::Ibft2 => ("ibft2", BftProtocol::Ibft2),
    };
    let mut rules = json!({
        "epochlength": 30_000,
        "blockperiodseconds": options.period_ms.div_ceil(1_000),
        "requesttimeoutseconds": options.period_ms.div_ceil(1_000) * 2,
    });
    if options.period_ms < 1_000 {
        rules["xblockperiodmilliseconds"] = json!(options.period_ms);
    }
    let mut file: Value = serde_json::from_str(&genesis(&accounts::make(8), GAS_LIMIT))?;
    file["config"] = json!({
        "chainId": 1337, "berlinBlock": 0, "londonBlock": 0, "shanghaiTime": 0, "zeroBaseFee": true, name: rules,
    });
    file["extraData"] = json!(extra.encode(protocol));
    file["difficulty"] = json!("0x1");
    file["mixHash"] = json!("0x63746963616c2062797a616e74696e65206661756c7420746f6c6572616e6365");
    Ok(file.to_string())
}

/// The nodes; the last one is no validator.
struct Nodes {
    all: Vec<Process>,
    /// Which of them run.
    up: Vec<bool>,
}

impl Nodes {
    fn start(options: &ValidatorOptions, folder: &Path) -> Result<Self> {
        let file = folder.join("genesis.json");
        std::fs::write(&file, bft_genesis(options)?)?;
        let mut all = Vec::new();
        for number in 0..=options.validators {
            let start = StartOptions {
                memory_budget: "128M",
                p2p: Some(P2pOptions::default()),
                ..StartOptions::genesis(&file)
            };
            let own = folder.join(number.to_string());
            std::fs::create_dir_all(own.join("data"))?;
            std::fs::write(own.join("data").join("key"), key(number).to_string())?;
            let node = node::start(ClientKind::Niwaki, "node", &options.binaries, &own, start)?;
            all.push(node);
        }
        let up = vec![true; all.len()];
        let nodes = Self { all, up };
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
        wait_until("the node listens for peers", WITHIN, || {
            Ok(self.all[number].client.enode().is_ok())
        })?;
        self.connect(number)
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
        let reached = wait_until(&what, WITHIN, || {
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

    vote_in_and_out(options, &mut nodes, &mut findings)?;

    let (mut without, mut joined) = (Vec::new(), Vec::new());
    for number in 0..options.validators {
        nodes.kill(number)?;
        let took = nodes.go_on(options.blocks)?;
        without.push(took / u32::try_from(options.blocks.max(1))?);
        let began = Instant::now();
        nodes.restart(number)?;
        nodes.go_on(2)?;
        joined.push(began.elapsed());
    }
    findings.times("a block while one validator is down", without);
    findings.times("a restart until the node has the two next blocks", joined);

    let mut resumed = Vec::new();
    for _ in 0..options.blackouts {
        (0..options.validators).try_for_each(|number| nodes.kill(number))?;
        let began = Instant::now();
        for number in 0..options.validators {
            nodes.restart(number)?;
        }
        nodes.go_on(1)?;
        resumed.push(began.elapsed());
    }
    findings.claim(
        "after a blackout the next block comes within 10 s of the first restart",
        resumed.iter().all(|took| *took < Duration::from_secs(10)),
    );
    findings.times("the next block after a blackout", resumed);
    nodes.go_on(options.blocks)?;
    check(&mut nodes, &mut findings)?;
    findings.finish("validators", options.json.as_deref())
}

/// All vote for the node that follows; it makes blocks, and is voted out again.
fn vote_in_and_out(
    options: &ValidatorOptions,
    nodes: &mut Nodes,
    findings: &mut Findings,
) -> Result<()> {
    let name = match options.protocol {
        Protocol::Qbft => "qbft",
        Protocol::Ibft2 => "ibft",
    };
    let (follower, own) = (
        options.validators,
        address_of_secret_key(&key(options.validators))?,
    );
    let mut took = Vec::new();
    for is_add in [true, false] {
        for node in &nodes.all {
            let params = json!([own, is_add]);
            node.client
                .call(&format!("{name}_proposeValidatorVote"), params)?;
        }
        let what = match is_add {
            true => "the node is voted in",
            false => "the node is voted out",
        };
        took.push(wait_until(what, WITHIN, || {
            let method = format!("{name}_getValidatorsByBlockNumber");
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
    findings.times("all vote on a node until it is in or out", took);
    Ok(())
}

/// One chain everywhere, and sound databases.
fn check(nodes: &mut Nodes, findings: &mut Findings) -> Result<()> {
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
    findings.claim("all nodes have the same blocks", are_equal && lowest > 0);
    let mut are_clean = true;
    for node in &mut nodes.all {
        node.stop()?;
        are_clean &= node.check_storage()?.0;
    }
    findings.claim("storage check finds no problem anywhere", are_clean);
    Ok(())
}
