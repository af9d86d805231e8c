//! `niwaki-bench state-root`: the state root and the commit of a block's changes over a large state, compared with
//! alloy-trie and geth.
//!
//! The state is created once and kept, and so is geth's. Each round draws new values of random slots of random
//! accounts. The contenders apply them one after the other, in an order that is reversed every round; a root that
//! differs ends the run. Our time has two parts: the root (keys hashed, tries updated) and the commit (one batch).
//! The database is synced before the next contender starts, so that our writes do not slow it down.
//!
//! | file | what it is |
//! |---|---|
//! | `alloy` | alloy-trie over leaves and branches in memory |
//! | `geth` | geth's StateDB, a Go program driven by lines of JSON |
//! | `report` | the results as table and JSON |

mod alloy;
mod geth;
mod report;

use crate::big_state::{self, BigState, BlockSize, Budget};
use crate::disk;
use crate::harness::{JsonFile, Seed};
use alloy::{AlloyState, milliseconds};
use eyre::{Result, bail, ensure};
use geth::{GethOptions, GethState};
use niwaki_primitives::{B256, StateDiff};
use niwaki_state::WorldState;
use rand::rngs::SmallRng;
use report::{Disk, Report, Round, Written};
use std::path::PathBuf;
use std::time::Instant;

/// Options of `niwaki-bench state-root`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    state: BigState,
    #[command(flatten)]
    block: BlockSize,
    #[command(flatten)]
    budget: Budget,
    /// Peer to compare with; may be given once for each.
    #[arg(long = "peer", value_enum)]
    peers: Vec<Peer>,
    /// Folder of geth's state [default: --data-path with `.geth` appended].
    #[arg(long)]
    geth_data_path: Option<PathBuf>,
    /// Let geth load the tries of a block before its clock starts, as it does during execution.
    #[arg(long)]
    geth_prefetch: bool,
    /// Measured rounds.
    #[arg(long, default_value_t = 20, value_parser = crate::harness::at_least_one)]
    rounds: usize,
    /// Rounds before the measured ones; geth writes to disk from the 129th round on.
    #[arg(long, default_value_t = 20)]
    warm_rounds: usize,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    json: JsonFile,
}

/// A contender to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    /// geth's StateDB over its path database, in a process of its own; needs Go.
    Geth,
    /// alloy-trie's hash builder over leaves and branches in memory.
    AlloyTrie,
}

impl Options {
    fn geth_folder(&self) -> PathBuf {
        self.geth_data_path.clone().unwrap_or_else(|| {
            let mut folder = self.state.data_path.clone().into_os_string();
            folder.push(".geth");
            folder.into()
        })
    }
}

/// A contender's result for a block.
struct Outcome {
    root: B256,
    root_ms: f64,
    /// `None` if the contender has no database.
    commit_ms: Option<f64>,
}

/// A peer, ready to apply blocks.
enum Contender {
    AlloyTrie(Box<AlloyState>),
    Geth(Box<GethState>),
}

impl Contender {
    fn name(&self) -> &'static str {
        match self {
            Self::AlloyTrie(_) => "alloy-trie",
            Self::Geth(_) => "geth",
        }
    }

    fn apply_block(&mut self, number: u64, diff: &StateDiff) -> Result<Outcome> {
        match self {
            Self::AlloyTrie(state) => Ok(state.apply_block(diff)),
            Self::Geth(state) => state.apply_block(number, diff),
        }
    }
}

/// Creates the states if they do not exist, and measures.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    options.state.check(&options.block)?;
    let is_repeated = |(at, peer)| options.peers[..at].contains(peer);
    ensure!(
        !options.peers.iter().enumerate().any(is_repeated),
        "a --peer is given twice; give each once"
    );
    let world = options.state.open(&options.budget)?;
    let mut peers = Vec::new();
    for peer in &options.peers {
        peers.push(start(*peer, options, &world)?);
    }

    let mut random = options.seed.rng();
    for at in 0..options.warm_rounds {
        one_round(&world, &mut peers, options, at, &mut random)?;
    }
    let written =
        || Ok::<_, eyre::Report>((world.database().written_bytes(), disk::written_bytes()?));
    let before = written()?;
    let mut rounds = Vec::new();
    for at in 0..options.rounds {
        rounds.push(one_round(&world, &mut peers, options, at, &mut random)?);
    }
    let after = written()?;

    let names: Vec<_> = peers.iter().map(Contender::name).collect();
    let names = [&["niwaki"][..], &names].concat();
    let (mut version, mut finished) = (None, None);
    for peer in peers {
        if let Contender::Geth(geth) = peer {
            version = Some(geth.version.clone());
            finished = Some(geth.finish()?);
        }
    }
    let mut report = Report::new(options, &names, &rounds, version);
    // Opened again, so that buffered data is in files.
    drop(world);
    let world = options.state.open(&options.budget)?;
    report.disk = Some(Disk::measure(options, &world, finished)?);
    report.written = Some(Written::new(after.0 - before.0, after.1 - before.1));
    report.print();
    options.json.write(&report)
}

fn start(peer: Peer, options: &Options, world: &WorldState) -> Result<Contender> {
    let threads = options.budget.threads();
    match peer {
        Peer::AlloyTrie => {
            let root = world.head().map(|head| head.root).unwrap_or_default();
            eprintln!("reading the state for alloy-trie");
            let state = AlloyState::load(world.database(), root, threads)?;
            Ok(Contender::AlloyTrie(Box::new(state)))
        }
        Peer::Geth => {
            let geth = GethOptions {
                folder: &options.geth_folder(),
                cache_bytes: options.budget.cache_bytes + options.budget.storage_bytes,
                threads,
                prefetch: options.geth_prefetch,
            };
            let state = GethState::start(&geth, &options.state, world)?;
            Ok(Contender::Geth(Box::new(state)))
        }
    }
}

/// Applies one block to every contender.
fn one_round(
    world: &WorldState,
    peers: &mut [Contender],
    options: &Options,
    at: usize,
    random: &mut SmallRng,
) -> Result<Round> {
    let number = big_state::head(world)?.number + 1;
    let view = world.view_at_head()?;
    let diff = options.state.changes(&view, &options.block, random)?;
    drop(view);

    let mut outcomes: Vec<Option<Outcome>> = Vec::new();
    outcomes.resize_with(peers.len() + 1, || None);
    let mut sync_ms = 0.0;
    let mut order: Vec<usize> = (0..=peers.len()).collect();
    if at % 2 == 1 {
        order.reverse();
    }
    for contender in order {
        let outcome = match contender.checked_sub(1) {
            Some(peer) => peers[peer].apply_block(number, &diff)?,
            None => {
                let (outcome, sync) = ours(world, &diff)?;
                sync_ms = sync;
                outcome
            }
        };
        outcomes[contender] = Some(outcome);
    }
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    for (peer, outcome) in peers.iter().zip(&outcomes[1..]) {
        if outcome.root != outcomes[0].root {
            let (name, ours) = (peer.name(), outcomes[0].root);
            bail!(
                "block {number}: {name} has state root {}, niwaki {ours}",
                outcome.root
            );
        }
    }
    Ok(Round { outcomes, sync_ms })
}

/// Applies a block to our state; also returns how long the sync took afterwards, ms.
fn ours(world: &WorldState, diff: &StateDiff) -> Result<(Outcome, f64)> {
    let view = world.view_at_head()?;
    let clock = Instant::now();
    let prepared = world.compute_root(&view, diff)?;
    let root_ms = milliseconds(clock.elapsed());
    drop(view);
    let root = prepared.root();
    let clock = Instant::now();
    big_state::commit(world, prepared)?;
    let commit_ms = Some(milliseconds(clock.elapsed()));
    let clock = Instant::now();
    world.database().sync()?;
    let outcome = Outcome {
        root,
        root_ms,
        commit_ms,
    };
    Ok((outcome, milliseconds(clock.elapsed())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::tests::parse;

    #[test]
    fn missing_paths_zeros_and_unknown_peers_are_refused() {
        assert!(parse::<Options>(&["--data-path", "x"]).is_ok());
        for words in [
            &[][..],
            &["--data-path", "x", "--rounds", "0"],
            &["--data-path", "x", "--accounts", "0"],
            &["--data-path", "x", "--changed-accounts", "0"],
            &["--data-path", "x", "--peer", "besu"],
        ] {
            assert!(parse::<Options>(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_peer_given_twice_is_refused() {
        let words = [
            "--data-path",
            "/nonexistent/x",
            "--peer",
            "geth",
            "--peer",
            "geth",
        ];
        let error = run(&parse(&words).unwrap()).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }

    #[test]
    fn geths_state_is_in_the_sibling_folder() {
        let options: Options = parse(&["--data-path", "a/b"]).unwrap();
        assert_eq!(options.geth_folder(), PathBuf::from("a/b.geth"));
        let options: Options = parse(&["--data-path", "a/b", "--geth-data-path", "c"]).unwrap();
        assert_eq!(options.geth_folder(), PathBuf::from("c"));
    }

    #[test]
    fn a_run_with_alloy_trie_reports_ratios_and_sizes() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let data_path = folder.path().join("state");
        let json = folder.path().join("report.json");
        let mut options: Options = parse(&["--data-path", "x", "--peer", "alloy-trie"]).unwrap();
        options.state = big_state::tests::small(&data_path, 10, 1000);
        options.block = BlockSize {
            changed_accounts: 5,
            changed_slots: 50,
            hot_slots: None,
        };
        options.budget = Budget::of(32 << 20);
        (options.warm_rounds, options.rounds) = (1, 3);
        options.json = crate::harness::tests::json_file(json.clone());
        run(&options).unwrap();
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        let alloy = &report["contenders"][1];
        assert_eq!(alloy["name"], "alloy-trie");
        assert!(
            alloy["root_ratio"]["median"].as_f64().unwrap() > 0.0,
            "{report}"
        );
        assert!(
            report["disk"]["niwaki_per_slot"].as_f64().unwrap() > 0.0,
            "{report}"
        );
        assert!(
            report["written"]["batched_bytes"].as_u64().unwrap() > 0,
            "{report}"
        );
    }
}
