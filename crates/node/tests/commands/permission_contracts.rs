//! Contracts that say which transactions and which connections may be, on a chain with one validator that obeys them.

use crate::running::Node;
use crate::support::{TestDir, wait_until};
use niwaki_network::{NodeId, NodeKey};
use niwaki_primitives::{
    Address, B256, Bytes, Encodable2718, TxKind, TxLegacy, U256, address, hex,
};
use niwaki_rules::{BftExtra, BftProtocol};
use niwaki_testkit::Key;
use serde_json::{Value, json};

const CONTRACT: Address = address!("0000000000000000000000000000000000009999");
const VALIDATOR: u8 = 0xb1;
const FOLLOWER: u8 = 0xb2;

/// Calldata of 64 bytes is a key and a value to store. Anything else is answered with the value of the key at byte 4: of the sender in
/// `transactionAllowed`.
const ACCOUNTS_CODE: &str = "3660401460135760043554600052602060 00f35b602035600035 5500";
/// The same, but the answer is for the sums of the first half of an id and its port in `connectionAllowed`, of source and destination: ones
/// if both have the value 1.
const NODES_CODE: &str = "36604014602757 60843560e43501546004356064350154 16 60001990151c 60005260206000f3 005b602035600035 5500";
/// The same in version 2: the sum of the first half of the id as a text, at byte 132, and the port.
const TEXTS_CODE: &str = "36604014601757 6084356044350154 6000526020 6000f3 5b602035600035 5500";

fn node_id(number: u8) -> NodeId {
    NodeKey::new(B256::repeat_byte(number)).unwrap().id()
}

/// A chain whose one validator makes a block each 200 ms, with a contract that knows these keys.
fn genesis(code: &str, known: &[B256]) -> String {
    let validator = Key::new(B256::repeat_byte(VALIDATOR)).address;
    let extra = BftExtra {
        vanity: B256::ZERO.0.into(),
        validators: vec![validator],
        ..BftExtra::default()
    };
    let storage: serde_json::Map<String, Value> = known
        .iter()
        .map(|key| (key.to_string(), json!("0x01")))
        .collect();
    let mut alloc = json!({ CONTRACT.to_string(): {
        "balance": "0x0", "code": format!("0x{}", code.replace(' ', "")), "storage": storage,
    }});
    for name in ["one", "two"] {
        alloc[Key::of(name).address.to_string()] = json!({ "balance": "0xde0b6b3a7640000" });
    }
    json!({
        "config": {
            "chainId": 1337, "berlinBlock": 0, "londonBlock": 0, "zeroBaseFee": true,
            "qbft": { "blockperiodseconds": 1, "xblockperiodmilliseconds": 200, "epochlength": 30_000, "requesttimeoutseconds": 2 },
        },
        "nonce": "0x0", "timestamp": "0x0", "gasLimit": "0x1c9c380", "difficulty": "0x1",
        "extraData": extra.encode(BftProtocol::Qbft),
        "mixHash": "0x63746963616c2062797a616e74696e65206661756c7420746f6c6572616e6365",
        "coinbase": Address::ZERO, "alloc": alloc,
    })
    .to_string()
}

const PEERS: &str = "--p2p-enabled=true --p2p-interface=127.0.0.1 --p2p-host=127.0.0.1 \
                     --discovery-enabled=false --nat-method=NONE --min-gas-price=0";

/// A node on this port, whose static nodes are `known`.
fn start(genesis: &str, key: u8, port: u16, known: &[String], flags: &str) -> Node {
    let mut dir = TestDir::new();
    dir.genesis = dir.file("genesis.json", genesis.as_bytes());
    std::fs::create_dir_all(dir.data_path()).unwrap();
    let in_data = |name: &str, text: String| std::fs::write(dir.data_path().join(name), text);
    in_data("key", hex::encode_prefixed(B256::repeat_byte(key))).unwrap();
    in_data("static-nodes.json", json!(known).to_string()).unwrap();
    Node::start(dir, &format!("{PEERS} --p2p-port={port} {flags}"))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// What the contracts for nodes know a node by: the sum of the first half of its id, in version 2 as text, and its port.
fn key_of(version: u8, number: u8, port: u16) -> B256 {
    let half = match version {
        1 => B256::from_slice(&node_id(number).0[..32]),
        _ => B256::from_slice(&hex::encode(node_id(number).0).as_bytes()[..32]),
    };
    U256::from_be_bytes(half.0)
        .wrapping_add(U256::from(port))
        .into()
}

fn nodes_contract(version: u8) -> String {
    format!(
        "--permissions-nodes-contract-enabled --permissions-nodes-contract-address={CONTRACT} \
         --permissions-nodes-contract-version={version}"
    )
}

/// The sender with this name has a contract store a value under a key.
fn store(sender: &str, nonce: u64, key: B256, value: u8) -> String {
    let tx = TxLegacy {
        chain_id: Some(1337),
        nonce,
        gas_limit: 100_000,
        to: TxKind::Call(CONTRACT),
        input: Bytes::from([key.0, B256::with_last_byte(value).0].concat()),
        ..TxLegacy::default()
    };
    hex::encode_prefixed(Key::of(sender).sign(tx).encoded_2718())
}

/// Sends a transaction that must be accepted, and waits until it is in a block.
fn send(node: &Node, raw: &str) {
    let hash = node.result("eth_sendRawTransaction", json!([raw]));
    let receipt = || node.result("eth_getTransactionReceipt", json!([hash]));
    wait_until(|| format!("no receipt of {hash}"), || !receipt().is_null());
    assert_eq!(receipt()["status"], "0x1");
}

#[test]
fn a_contract_says_whose_transactions_are_sent_and_included() {
    let known = Key::of("one").address.into_word();
    let flags = format!(
        "--permissions-accounts-contract-enabled --permissions-accounts-contract-address={CONTRACT}"
    );
    let node = start(
        &genesis(ACCOUNTS_CODE, &[known]),
        VALIDATOR,
        free_port(),
        &[],
        &flags,
    );
    let other = Key::of("two").address.into_word();
    let raw = store("two", 0, B256::repeat_byte(7), 1);
    let refused = || node.call("eth_sendRawTransaction", json!([raw]))["error"]["code"] == -32007;
    assert!(refused());
    send(&node, &store("one", 0, other, 1));
    wait_until(|| "still refused".into(), || !refused());
    send(&node, &store("one", 1, other, 0));
    let raw = store("two", 1, B256::repeat_byte(7), 1);
    let refused = || node.call("eth_sendRawTransaction", json!([raw]))["error"]["code"] == -32007;
    wait_until(|| "still accepted".into(), refused);
}

#[test]
fn a_contract_says_which_nodes_are_peers_block_after_block() {
    for (version, code) in [(1, NODES_CODE), (2, TEXTS_CODE)] {
        // The one connects, then it is dialled: both ports count either way.
        for is_dialled in [false, true] {
            let (own, other) = (free_port(), free_port());
            let genesis = genesis(code, &[key_of(version, VALIDATOR, own)]);
            let node = start(&genesis, VALIDATOR, own, &[], &nodes_contract(version));
            let follower = start(&genesis, FOLLOWER, other, &[], "");
            let (dialler, dialled) = match is_dialled {
                true => (&node, &follower),
                false => (&follower, &node),
            };
            let enode = dialled.result("net_enode", json!([]));
            assert_eq!(dialler.result("admin_addPeer", json!([enode])), true);
            let count = || node.result("net_peerCount", json!([]));
            send(&node, &store("one", 0, B256::repeat_byte(7), 1));
            assert_eq!(count(), "0x0", "version {version}");
            let known = key_of(version, FOLLOWER, other);
            send(&node, &store("one", 1, known, 1));
            wait_until(|| count().to_string(), || count() == "0x1");
            send(&node, &store("one", 2, known, 0));
            wait_until(|| count().to_string(), || count() == "0x0");
        }
    }
}

#[test]
fn a_node_syncs_from_its_static_nodes_whatever_an_old_state_says_and_obeys_the_new_one() {
    let (own, other) = (free_port(), free_port());
    let [validator, follower] = [(VALIDATOR, own), (FOLLOWER, other)];
    let genesis = genesis(NODES_CODE, &[key_of(1, follower.0, follower.1)]);
    let node = start(&genesis, VALIDATOR, own, &[], "");
    let known = key_of(1, validator.0, validator.1);
    send(&node, &store("one", 0, known, 1));
    let enode = node
        .result("net_enode", json!([]))
        .as_str()
        .unwrap()
        .to_owned();
    let follower = start(&genesis, FOLLOWER, other, &[enode], &nodes_contract(1));
    let count = || follower.result("net_peerCount", json!([]));
    wait_until(|| count().to_string(), || count() == "0x1");
    // Long after the contract is obeyed.
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(count(), "0x1");
    send(&node, &store("one", 1, known, 0));
    wait_until(|| count().to_string(), || count() == "0x0");
}

#[test]
fn contracts_that_are_not_there_are_refused_by_name() {
    let dir = TestDir::new();
    let flags = format!(
        "{PEERS} --p2p-port=0 --engine-rpc-port=0 --permissions-nodes-contract-enabled \
         --permissions-nodes-contract-address={CONTRACT}"
    );
    let words = [
        "node permissioning contract",
        "there is no contract",
        "--permissions-nodes",
    ];
    dir.run(&flags, &[]).failed(&words);
    let flags = flags.replace("--p2p-host=127.0.0.1", "");
    let flags = flags.replace("--p2p-interface=127.0.0.1", "");
    dir.run(&flags, &[])
        .failed(&["address of this node", "--p2p-host"]);
    let refused = dir.run("--permissions-accounts-contract-enabled", &[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused
            .errors
            .contains("--permissions-accounts-contract-address")
    );
}
