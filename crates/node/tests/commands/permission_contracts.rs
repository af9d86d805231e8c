//! Contracts that say which transactions and which connections may be, on a chain with one validator that obeys them.

use crate::running::Node;
use crate::support::{TestDir, wait_until};
use niwaki_network::{NodeId, NodeKey};
use niwaki_primitives::{Address, B256, Bytes, Encodable2718, TxKind, TxLegacy, address, hex};
use niwaki_rules::{BftExtra, BftProtocol};
use niwaki_testkit::Key;
use serde_json::{Value, json};

const CONTRACT: Address = address!("0000000000000000000000000000000000009999");
const VALIDATOR: u8 = 0xb1;
const FOLLOWER: u8 = 0xb2;

/// Calldata of 64 bytes is a key and a value to store. Anything else is answered with the value of the key at byte 4: of the sender in
/// `transactionAllowed`.
const ACCOUNTS_CODE: &str = "3660401460135760043554600052602060 00f35b602035600035 5500";
/// The same, but the answer is for the keys at bytes 4 and 132, which begin the ids in `connectionAllowed`: ones if both have the value 1.
const NODES_CODE: &str =
    "366040146 01e57608435546004355416 60001990151c 60005260206000f35b602035600035 5500";
/// The key at byte 132: the first half of the id as a text, in version 2.
const TEXTS_CODE: &str = "36604014601357608435546000526020 6000f35b6020356000355500";

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

const PEERS: &str = "--p2p-enabled=true --p2p-interface=127.0.0.1 --p2p-host=127.0.0.1 --p2p-port=0 \
                     --discovery-enabled=false --nat-method=NONE --min-gas-price=0";

fn start(genesis: &str, key: u8, flags: &str) -> Node {
    let mut dir = TestDir::new();
    dir.genesis = dir.file("genesis.json", genesis.as_bytes());
    std::fs::create_dir_all(dir.data_path()).unwrap();
    let key = hex::encode_prefixed(B256::repeat_byte(key));
    std::fs::write(dir.data_path().join("key"), key).unwrap();
    Node::start(dir, &format!("{PEERS} {flags}"))
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
    let node = start(&genesis(ACCOUNTS_CODE, &[known]), VALIDATOR, &flags);
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
        let key_of = |number: u8| match version {
            1 => B256::from_slice(&node_id(number).0[..32]),
            _ => B256::from_slice(&hex::encode(node_id(number).0).as_bytes()[..32]),
        };
        let genesis = genesis(code, &[key_of(VALIDATOR)]);
        let contract = format!(
            "--permissions-nodes-contract-enabled --permissions-nodes-contract-address={CONTRACT} \
             --permissions-nodes-contract-version={version}"
        );
        let node = start(&genesis, VALIDATOR, &contract);
        let follower = start(&genesis, FOLLOWER, "");
        let enode = node.result("net_enode", json!([]));
        assert_eq!(follower.result("admin_addPeer", json!([enode])), true);
        let count = || node.result("net_peerCount", json!([]));
        send(&node, &store("one", 0, B256::repeat_byte(7), 1));
        assert_eq!(count(), "0x0", "version {version}");
        send(&node, &store("one", 1, key_of(FOLLOWER), 1));
        wait_until(|| count().to_string(), || count() == "0x1");
        send(&node, &store("one", 2, key_of(FOLLOWER), 0));
        wait_until(|| count().to_string(), || count() == "0x0");
    }
}

#[test]
fn contracts_that_are_not_there_are_refused_by_name() {
    let dir = TestDir::new();
    let flags = format!(
        "{PEERS} --engine-rpc-port=0 --permissions-nodes-contract-enabled \
         --permissions-nodes-contract-address={CONTRACT}"
    );
    let words = [
        "node permissioning contract",
        "there is no contract",
        "--permissions-nodes",
    ];
    dir.run(&flags, &[]).failed(&words);
    let refused = dir.run("--permissions-accounts-contract-enabled", &[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused
            .errors
            .contains("--permissions-accounts-contract-address")
    );
}
