//! Nodes that are peers of each other, and the methods and flags about that.

use crate::engine::send_fork_choice;
use crate::operating::transfer;
use crate::running::Node;
use crate::support::{HEAD, TestDir, wait_until};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::time::Duration;

/// Peers on loopback, at ports of the system's choice, found by no discovery.
const PEERS: &str =
    "--p2p-enabled --p2p-interface=127.0.0.1 --p2p-port=0 --discovery-enabled=false";

fn node() -> Node {
    Node::with_chain_and(PEERS)
}

/// Waits until the node has so many peers, and returns them.
fn peers(node: &Node, count: usize) -> Vec<Value> {
    let peers = || node.result("admin_peers", json!([]));
    let state = || format!("{count} peers are expected, these are there: {}", peers());
    wait_until(state, || peers().as_array().unwrap().len() == count);
    peers().as_array().unwrap().clone()
}

/// Asks the node to make the chain's last block its head until it is.
fn choose_head(node: &Node) {
    let state = || node.result("niwaki_syncStatus", json!([])).to_string();
    wait_until(state, || send_fork_choice(node, HEAD) == "VALID");
}

#[test]
fn two_nodes_are_peers_until_one_removes_the_other() {
    let (one, two) = (node(), node());
    let enode = one.result("net_enode", json!([]));
    assert_eq!(one.result("net_listening", json!([])), true);
    assert_eq!(two.result("admin_addPeer", json!([enode])), true);
    let of_two = peers(&two, 1).remove(0);
    let of_one = peers(&one, 1).remove(0);
    assert_eq!(two.result("net_peerCount", json!([])), "0x1");

    let info = one.result("admin_nodeInfo", json!([]));
    let (url, own) = (of_two["enode"].as_str().unwrap(), enode.as_str().unwrap());
    // Without discovery the node's own URL ends with ?discport=0.
    assert!(own.starts_with(url), "{own} {url}");
    assert_eq!(of_two["id"], format!("0x{}", info["id"].as_str().unwrap()));
    assert_eq!(of_two["network"]["static"], true);
    assert_eq!(of_two["network"]["inbound"], false);
    assert_eq!(of_one["network"]["inbound"], true);
    assert_eq!(
        of_one["network"]["remoteAddress"],
        of_two["network"]["localAddress"]
    );
    assert_eq!(
        of_one["caps"],
        json!(["eth/72", "eth/71", "eth/70", "eth/69", "snap/1"])
    );
    assert_eq!(of_one["protocols"]["eth"]["latestBlock"], 54);
    assert_eq!(of_one["protocols"]["eth"]["version"], 72);

    assert_eq!(two.result("admin_removePeer", json!([enode])), true);
    peers(&one, 0);
    let left = two.result("admin_departedPeers", json!([]));
    assert_eq!(left[0]["reason"], "this node ended it: REQUESTED");
    let left = one.result("admin_departedPeers", json!([]));
    assert_eq!(left[0]["reason"], "the peer ended it: REQUESTED");
}

#[test]
fn a_node_without_blocks_gets_the_chosen_head_from_its_peer() {
    let source = node();
    let dir = TestDir::new();
    let sink = Node::start(dir, PEERS);
    sink.result("admin_addPeer", two_enode(&source));
    assert_eq!(send_fork_choice(&sink, HEAD), "SYNCING");
    let head = || sink.result("eth_blockNumber", json!([]));
    wait_until(|| head().to_string(), || head() == "0x36");
    choose_head(&sink);
    let report = sink.result("niwaki_syncStatus", json!([]));
    assert_eq!(report["imported"], 54);
    assert_eq!(report["reached"], 1);
    assert_eq!(report["failures"], json!([]));
    assert_eq!(sink.result("eth_syncing", json!([])), false);
    let (dir, _) = sink.stop();
    assert_eq!(dir.checked_head(), (54, HEAD.to_owned()));
}

#[test]
fn a_static_node_of_the_file_is_dialled_and_versions_are_agreed_on() {
    let one = node();
    let enode = one.result("net_enode", json!([]));
    let dir = TestDir::new();
    let file = dir.file("static.json", json!([enode]).to_string().as_bytes());
    let flags = format!(
        "{PEERS} --Xeth-capability-max=70 --Xsnap2-enabled=true --static-nodes-file={}",
        file.display()
    );
    let two = Node::start(dir, &flags);
    let of_two = peers(&two, 1).remove(0);
    assert_eq!(of_two["protocols"]["eth"]["version"], 70);
    assert_eq!(of_two["network"]["static"], true);
    let caps = &peers(&one, 1)[0]["caps"];
    assert_eq!(*caps, json!(["eth/70", "eth/69", "snap/1", "snap/2"]));
}

#[test]
fn a_transaction_of_a_user_reaches_the_pool_of_a_peer() {
    let (one, two) = (Node::dev(PEERS), Node::dev(PEERS));
    // It stays in the pools.
    for node in [&one, &two] {
        assert_eq!(node.result("miner_stop", json!([])), true);
    }
    let early = one.result("eth_sendRawTransaction", json!([transfer(&one, 0)]));
    let enode = one.result("net_enode", json!([]));
    assert_eq!(two.result("admin_addPeer", json!([enode])), true);
    peers(&two, 1);
    let late = one.result("eth_sendRawTransaction", json!([transfer(&one, 1)]));
    for hash in [early, late] {
        let by_hash = || two.result("eth_getTransactionByHash", json!([hash]));
        wait_until(|| format!("{hash} is not there"), || !by_hash().is_null());
        assert_eq!(by_hash()["hash"], hash);
    }
}

#[test]
fn a_bad_node_is_refused_with_the_reason() {
    let one = node();
    let response = one.call("admin_addPeer", json!(["enode://12@1.2.3.4:30303"]));
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.contains("128 hex digits"), "{message}");
    let response = one.call("admin_unban", json!(["nothing"]));
    let message = response["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("nothing") && message.contains("enode://"),
        "{message}"
    );
    assert_eq!(one.result("admin_unban", json!(["10.0.0.1"])), false);
    assert_eq!(one.result("admin_bannedPeers", json!([])), json!([]));
}

#[test]
fn the_id_of_a_banned_node_is_no_peer() {
    let one = node();
    let id = one.result("admin_nodeInfo", json!([]))["id"].clone();
    let enode = one.result("net_enode", json!([]));
    let flags = format!("{PEERS} --banned-node-ids={}", id.as_str().unwrap());
    let two = Node::with_chain_and(&flags);
    let bans = two.result("admin_bannedPeers", json!([]));
    assert_eq!(bans[0]["target"], id);
    assert_eq!(one.result("admin_addPeer", two_enode(&two)), true);
    assert_eq!(two.result("net_peerCount", json!([])), "0x0");
    assert_eq!(two.result("admin_unban", json!([id])), true);
    assert_eq!(two.result("admin_addPeer", json!([enode])), true);
    peers(&two, 1);
}

fn two_enode(node: &Node) -> Value {
    json!([node.result("net_enode", json!([]))])
}

#[test]
fn a_port_that_is_taken_and_files_that_hold_no_nodes_stop_the_start() {
    let one = node();
    let info = one.result("admin_nodeInfo", json!([]));
    let port = info["ports"]["listener"].to_string();
    let dir = TestDir::new();
    let base = "--p2p-enabled --p2p-interface=127.0.0.1 --engine-rpc-port=0";
    let refused = dir.run(&format!("{base} --p2p-port={port}"), &[]);
    refused.failed(&["--p2p-port", &port]);
    let file = dir.file("static.json", b"[\"enode://1\"]");
    let flags = format!("{base} --p2p-port=0 --static-nodes-file={}", file.display());
    dir.run(&flags, &[]).failed(&["static.json"]);
    let flags = format!("{base} --p2p-port=0 --static-nodes-file=/nowhere/nodes.json");
    dir.run(&flags, &[]).failed(&["/nowhere/nodes.json"]);
    let flags = format!("{base} --p2p-port=0 --Xeth-capability-max=66");
    dir.run(&flags, &[]).failed(&["66 to 72"]);
}

#[test]
fn the_public_key_is_that_of_the_key_file_and_the_address_belongs_to_it() {
    let dir = TestDir::new();
    // The key with the secret 1: its public key is the generator of secp256k1.
    let secret = format!("{:064x}", 1);
    let key = dir.file("one", secret.as_bytes());
    let flag = format!("--node-private-key-file={}", key.display());
    let exported = dir
        .run(&format!("public-key export {flag}"), &[])
        .succeeded();
    let generator = "0x79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798\
                     483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8";
    assert_eq!(exported.out.trim(), generator);
    let to = dir.path("address");
    let words = format!("public-key export-address {flag} --to={}", to.display());
    dir.run(&words, &[]).succeeded();
    let address = std::fs::read_to_string(to).unwrap();
    assert_eq!(address, "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf");
    // Without a file there is a new key, which stays.
    let made = dir.run("public-key export", &[]).succeeded();
    assert_eq!(dir.run("public-key export", &[]).succeeded().out, made.out);
    let broken = dir.file("broken", b"12");
    let flag = format!("--node-private-key-file={}", broken.display());
    let refused = dir.run(&format!("public-key export {flag}"), &[]);
    refused.failed(&["broken", "64 hex digits"]);
}

const LIST: &str =
    "enrtree://AKPYQIUQIL7PSIACI32J7FGZW56E5FKHEFCCOFHILBIMW3M6LWXS2@nodes.example.org";

/// Flags of a node that discovers on loopback and asks a name server of a test.
fn asking(name_server: &UdpSocket) -> String {
    let address = name_server.local_addr().unwrap();
    format!(
        "--p2p-enabled --p2p-interface=127.0.0.1 --p2p-port=0 --Xp2p-dns-discovery-server={address}"
    )
}

/// The name of the next question.
fn asked_name(name_server: &UdpSocket) -> String {
    let mut packet = [0; 1500];
    name_server.recv(&mut packet).unwrap();
    let (mut at, mut labels) = (12, Vec::new());
    while packet[at] != 0 {
        let label = &packet[at + 1..][..usize::from(packet[at])];
        labels.push(String::from_utf8_lossy(label).into_owned());
        at += 1 + label.len();
    }
    assert_eq!(packet[at + 1..at + 5], [0, 16, 0, 1], "TXT, IN");
    labels.join(".")
}

#[test]
fn the_dns_list_of_the_flag_or_else_of_the_genesis_file_is_asked_for_at_the_name_server() {
    let name_server = UdpSocket::bind("127.0.0.1:0").unwrap();
    name_server
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let asking = asking(&name_server);
    let by_flag = Node::start(
        TestDir::new(),
        &format!("{asking} --discovery-dns-url={LIST}"),
    );
    assert_eq!(asked_name(&name_server), "nodes.example.org");
    drop(by_flag);

    let mut dir = TestDir::new();
    let genesis = std::fs::read_to_string(&dir.genesis).unwrap();
    let mut genesis: Value = serde_json::from_str(&genesis).unwrap();
    let list = LIST.replace("nodes.", "genesis.");
    genesis["config"]["discovery"] = json!({"dns": list, "bootnodes": []});
    dir.genesis = dir.file("genesis.json", genesis.to_string().as_bytes());
    let by_genesis = Node::start(dir, &asking);
    let is_asked = || asked_name(&name_server) == "genesis.example.org";
    wait_until(|| "the list of the flag is asked for".to_owned(), is_asked);
    drop(by_genesis);

    genesis["config"]["discovery"]["dns"] = json!("genesis.example.org");
    let mut dir = TestDir::new();
    dir.genesis = dir.file("genesis.json", genesis.to_string().as_bytes());
    let refused = dir.run(&format!("{asking} --engine-rpc-port=0"), &[]);
    refused.failed(&[
        "genesis.example.org",
        "config.discovery",
        "--discovery-dns-url",
    ]);
    let refused = dir.run("--discovery-dns-url=https://example.org", &[]);
    assert_eq!(refused.code, Some(2));
    for word in ["--discovery-dns-url", "enrtree://KEY@DOMAIN, or none"] {
        assert!(refused.errors.contains(word), "{refused:?}");
    }
}

/// The metrics of the network and of the sync that docs/metrics.md has.
fn network_metrics() -> Vec<&'static str> {
    const PAGE: &str = include_str!("../../../../docs/metrics.md");
    let names = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = names.filter_map(|line| line.split('`').next());
    let is_ours = |name: &&str| {
        ["besu_network_", "besu_peers_", "besu_synchronizer_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
            || ["ethereum_peer", "niwaki_discovery", "niwaki_sync_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
    };
    names.filter(is_ours).collect()
}

#[test]
fn a_scrape_of_a_node_that_synced_from_two_peers_has_each_row_of_network_and_sync() {
    let name_server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let discovering = format!(
        "{} --bootnodes= --discovery-dns-url={LIST} --metrics-enabled --metrics-port=0",
        asking(&name_server)
    );
    let sources = [node(), node()];
    let sink = Node::start(TestDir::new(), &discovering);
    for source in &sources {
        sink.result("admin_addPeer", two_enode(source));
    }
    peers(&sink, 2);
    choose_head(&sink);
    for peers_left in [1, 0] {
        let enode = two_enode(&sources[peers_left]);
        assert_eq!(sink.result("admin_removePeer", enode), true);
        peers(&sink, peers_left);
    }
    // These are counted in their own time.
    let ended =
        r#"besu_peers_disconnected_total{initiator="local",disconnectReason="REQUESTED"} 2"#;
    let reached =
        r#"besu_synchronizer_chain_download_pipeline_restarts_total{reason="complete"} 1"#;
    let searched = "besu_network_discv5_discovery_round_total{outcome=\"success\"} 0";
    let has_all = || {
        let scrape = sink.metrics();
        scrape.contains(ended) && scrape.contains(reached) && !scrape.contains(searched)
    };
    wait_until(|| sink.metrics(), has_all);
    let scrape = sink.metrics();
    let names = network_metrics();
    assert!(names.len() >= 36, "{}", names.len());
    for name in names {
        let has = |line: &str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{', '_']))
        };
        assert!(scrape.lines().any(has), "{name} is missing in {scrape}");
    }
    for row in [
        "besu_peers_connected_total 2",
        "besu_network_rlpx_outbound_connect_attempts_total{source=\"static\"} 2",
        "besu_network_rlpx_connect_outcome_total{result=\"connected\"} 2",
        "besu_peers_peer_count_by_client{client=\"Niwaki\"} 0",
        "besu_network_p2p_messages_inbound_total{protocol=\"eth/72\",name=\"Status\",code=\"0\"} 2",
        "besu_synchronizer_chain_download_pipeline_processed_total{action=\"added\",step=\"importBlock\"} 54",
        "besu_synchronizer_sync_duration_count{name=\"TOTAL_SYNC_DURATION\"} 1",
        "besu_peers_inflight_request_gauge{taskName=\"GetBodiesFromPeerTask\"} 0",
        "niwaki_sync_stalled{reason=\"no_peers\"} 0",
    ] {
        assert!(scrape.contains(row), "{row} is missing in {scrape}");
    }
}

#[test]
fn with_eth_66_alone_nodes_sync_and_say_no_last_block() {
    let flags = format!("{PEERS} --Xeth-capability-min=66 --Xeth-capability-max=66");
    let source = Node::with_chain_and(&flags);
    let old_or_new = format!("{PEERS} --Xeth-capability-min=66");
    let sink = Node::start(TestDir::new(), &old_or_new);
    sink.result("admin_addPeer", two_enode(&source));
    let peer = peers(&sink, 1).remove(0);
    assert_eq!(peer["protocols"]["eth"]["version"], 66);
    assert_eq!(peer["caps"], json!(["eth/66", "snap/1"]));
    assert_eq!(peer["protocols"]["snap"]["version"], 1);
    assert_eq!(peer["protocols"]["eth"]["latestBlock"], 0);
    assert_eq!(peer["protocols"]["eth"]["latestBlockHash"], HEAD);
    choose_head(&sink);
    assert_eq!(sink.result("eth_blockNumber", json!([])), "0x36");
}

#[test]
fn a_node_on_both_families_tells_both_addresses_and_is_a_peer_on_each() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("not tested: this machine has no IPv6 loopback address");
        return;
    }
    let both = format!("{PEERS} --p2p-interface-ipv6=::1 --p2p-port-ipv6=0");
    let one = Node::with_chain_and(&both);
    let info = one.result("admin_nodeInfo", json!([]));
    let enode = info["enodeV6"].as_str().unwrap();
    assert_eq!(info["ipv6"], "::1");
    let port = info["ports"]["listenerV6"].to_string();
    assert_eq!(info["listenAddrV6"], format!("[::1]:{port}"));
    assert!(enode.contains(&format!("@[::1]:{port}")), "{enode}");
    assert!(info["enode"].as_str().unwrap().contains("@127.0.0.1:"));

    let networks = format!("{PEERS} --net-restrict=::1/128,10.0.0.0/8");
    let two = Node::with_chain_and(&networks);
    assert_eq!(two.result("admin_addPeer", json!([enode])), true);
    let peer = peers(&two, 1).remove(0);
    assert_eq!(peer["network"]["remoteAddress"], format!("[::1]:{port}"));

    let refused = TestDir::new().run(
        "--p2p-enabled --p2p-interface=::1 --p2p-host-ipv6=::1 --engine-rpc-port=0",
        &[],
    );
    refused.failed(&["--p2p-interface", "::1", "--p2p-host-ipv6"]);
}
