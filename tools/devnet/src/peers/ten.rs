//! `peers ten`: nodes that know one boot node find each other by discovery alone.

use super::Binaries;
use super::findings::Findings;
use super::node;
use crate::accounts;
use crate::genesis::{GAS_LIMIT, genesis};
use crate::process::{ClientKind, P2pOptions, Process, StartOptions};
use clap::Args;
use eyre::{Result, ensure};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct TenOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// Which client the nodes run.
    #[arg(long, value_name = "CLIENT", default_value = "niwaki")]
    client: ClientKind,
    /// Nodes, the boot node among them.
    #[arg(long, value_name = "N", default_value_t = 10)]
    nodes: usize,
    /// Networks, one after the other.
    #[arg(long, value_name = "N", default_value_t = 50)]
    runs: usize,
    /// Time in which all must be connected, seconds.
    #[arg(long, value_name = "N", default_value_t = 30)]
    within_s: u64,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// When one run was how far.
struct Times {
    /// A way leads from each node to each, also without the boot node: all dial that one, found or not.
    connected: Option<Duration>,
    /// Each is the peer of each.
    complete: Option<Duration>,
    /// Peers of the node with the fewest, at the end.
    fewest: usize,
}

pub(crate) fn run(options: &TenOptions) -> Result<()> {
    ensure!(options.nodes >= 2, "--nodes must be 2 or more");
    let (mut connected, mut complete, mut fewest) = (Vec::new(), Vec::new(), usize::MAX);
    for run in 0..options.runs.max(1) {
        let times = one_network(options)?;
        eprintln!(
            "run {run}: connected {:?}, complete {:?}, at least {} peers",
            times.connected, times.complete, times.fewest
        );
        connected.extend(times.connected);
        complete.extend(times.complete);
        fewest = fewest.min(times.fewest);
    }
    let mut findings = Findings::default();
    let runs = options.runs.max(1);
    findings.count("networks", runs as u64);
    findings.count("nodes", options.nodes as u64);
    findings.claim(
        format!(
            "all connected without the boot node within {} s, {runs} times",
            options.within_s
        ),
        connected.len() == runs,
    );
    findings.times("connected", connected);
    findings.count(
        "networks in which each became the peer of each",
        complete.len() as u64,
    );
    findings.times("each the peer of each", complete);
    findings.count("fewest peers of a node at the end", fewest as u64);
    findings.finish("ten", options.json.as_deref())
}

fn one_network(options: &TenOptions) -> Result<Times> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("genesis.json");
    std::fs::write(&file, genesis(&accounts::make(1), GAS_LIMIT))?;
    let mut nodes: Vec<Process> = Vec::new();
    let mut boot_nodes = Vec::new();
    let mut began = Instant::now();
    for index in 0..options.nodes {
        let start = StartOptions {
            memory_budget: "128M",
            p2p: Some(P2pOptions {
                has_discovery: true,
                max_peers: 25,
                boot_nodes: &boot_nodes,
                ..P2pOptions::default()
            }),
            ..StartOptions::genesis(&file)
        };
        let data = folder.path().join(index.to_string());
        let node = node::start(options.client, "node", &options.binaries, &data, start)?;
        if index == 0 {
            boot_nodes.push(node.client.enode()?);
        }
        nodes.push(node);
        began = Instant::now();
    }
    let boot = boot_nodes
        .first()
        .map_or_else(String::new, |enode| id_of(enode));
    let within = Duration::from_secs(options.within_s);
    let mut times = Times {
        connected: None,
        complete: None,
        fewest: 0,
    };
    while began.elapsed() < within && times.complete.is_none() {
        let peers = peers_of(&nodes)?;
        times.fewest = peers.values().map(BTreeSet::len).min().unwrap_or_default();
        if times.connected.is_none() && is_connected(&without(&peers, &boot)) {
            times.connected = Some(began.elapsed());
        }
        if times.fewest == options.nodes - 1 {
            times.complete = Some(began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(times)
}

/// The peers of each node, by id without `0x`.
fn peers_of(nodes: &[Process]) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut all = BTreeMap::new();
    for node in nodes {
        let id = id_of(&node.client.enode()?);
        let peers = node.client.call("admin_peers", json!([]))?;
        let peers = peers.as_array().into_iter().flatten();
        let peers = peers.filter_map(|peer| Some(id_of(peer["enode"].as_str()?)));
        all.insert(id, peers.collect());
    }
    Ok(all)
}

fn id_of(enode: &str) -> String {
    let id = enode.trim_start_matches("enode://");
    id.split('@').next().unwrap_or_default().to_owned()
}

/// The network without one of its nodes.
fn without(
    peers: &BTreeMap<String, BTreeSet<String>>,
    node: &str,
) -> BTreeMap<String, BTreeSet<String>> {
    let others = peers.iter().filter(|(id, _)| *id != node);
    let others = others.map(|(id, peers)| {
        let peers = peers.iter().filter(|peer| *peer != node);
        (id.clone(), peers.cloned().collect())
    });
    others.collect()
}

/// Whether a way leads from each node to each.
fn is_connected(peers: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let Some(first) = peers.keys().next() else {
        return false;
    };
    let (mut seen, mut next) = (BTreeSet::from([first]), vec![first]);
    while let Some(node) = next.pop() {
        for peer in peers.get(node).into_iter().flatten() {
            if peers.contains_key(peer) && seen.insert(peer) {
                next.push(peer);
            }
        }
    }
    seen.len() == peers.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pairs_are_not_connected_and_a_chain_is() {
        let peers = |of: &[(&str, &[&str])]| {
            let of = of.iter().map(|(node, peers)| {
                let peers = peers.iter().map(|peer| (*peer).to_owned()).collect();
                ((*node).to_owned(), peers)
            });
            of.collect::<BTreeMap<String, BTreeSet<String>>>()
        };
        let pairs = peers(&[("a", &["b"]), ("b", &["a"]), ("c", &["d"]), ("d", &["c"])]);
        assert!(!is_connected(&pairs));
        let chain = peers(&[("a", &["b"]), ("b", &["a", "c"]), ("c", &["b"])]);
        assert!(is_connected(&chain));
        assert!(!is_connected(&without(&chain, "b")));
        assert_eq!(id_of("enode://ab@127.0.0.1:1?discport=0"), "ab");
    }
}
