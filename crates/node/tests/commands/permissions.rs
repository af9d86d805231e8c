//! Lists of nodes that may be peers and of accounts that may send transactions.

use crate::operating::transfer;
use crate::running::Node;
use crate::support::{TestDir, wait_until};
use serde_json::{Value, json};

const PEERS: &str =
    "--p2p-enabled --p2p-interface=127.0.0.1 --p2p-port=0 --discovery-enabled=false";

fn error(response: &Value) -> (i64, String) {
    let error = &response["error"];
    let message = error["message"].as_str().unwrap_or_default();
    (error["code"].as_i64().unwrap_or(0), message.to_owned())
}

#[test]
fn only_listed_accounts_send_transactions() {
    let dir = TestDir::new();
    let other = "0x627306090abab3a6e1400e9345bc60c78a8bef57";
    let list = format!("accounts-allowlist=[\"{other}\"]");
    let file = dir.file("list.toml", list.as_bytes());
    let flags = format!(
        "--permissions-accounts-config-file-enabled=true \
         --permissions-accounts-config-file={}",
        file.display()
    );
    let node = Node::dev(&flags);
    let raw = transfer(&node, 0);
    let refused = node.call("eth_sendRawTransaction", json!([raw]));
    let words = "Sender account not authorized to send transactions";
    assert_eq!(error(&refused), (-32007, words.to_owned()));
    let sender = "0xfe3b557e8fb62b89f4916b721be55ceb828dbd73";
    let added = node.result("perm_addAccountsToAllowlist", json!([[sender]]));
    assert_eq!(added, "Success");
    assert!(node.call("eth_sendRawTransaction", json!([raw]))["result"].is_string());
    assert_eq!(
        node.result("perm_getAccountsAllowlist", json!([])),
        json!([other, sender])
    );
    let nodes = node.call("perm_getNodesAllowlist", json!([]));
    let words = "Node allowlist has not been enabled";
    assert_eq!(error(&nodes), (-32000, words.to_owned()));
}

#[test]
fn only_listed_nodes_are_peers_and_one_that_is_removed_is_cut() {
    let other = Node::with_chain_and(PEERS);
    let enode = other.result("net_enode", json!([]));
    let dir = TestDir::new();
    let file = dir.file("list.toml", b"nodes-allowlist=[]");
    let flags = format!(
        "{PEERS} --permissions-nodes-config-file-enabled=true \
         --permissions-nodes-config-file={}",
        file.display()
    );
    let node = Node::start(dir, &flags);
    let count = || node.result("net_peerCount", json!([]));
    assert_eq!(node.result("admin_addPeer", json!([enode])), true);
    assert_eq!(count(), "0x0");
    let added = node.result("perm_addNodesToAllowlist", json!([[enode]]));
    assert_eq!(added, "Success");
    wait_until(|| count().to_string(), || count() == "0x1");
    let removed = node.result("perm_removeNodesFromAllowlist", json!([[enode]]));
    assert_eq!(removed, "Success");
    wait_until(|| count().to_string(), || count() == "0x0");
    let again = node.call("perm_removeNodesFromAllowlist", json!([[enode]]));
    let words = "Cannot remove an absent node from allowlist";
    assert_eq!(error(&again), (-32000, words.to_owned()));
}

#[test]
fn lists_without_a_file_are_refused_by_name() {
    let flags = "--permissions-nodes-config-file-enabled --engine-rpc-port=0";
    let refused = TestDir::new().run(flags, &[]);
    refused.failed(&["permissions_config.toml", "nodes-allowlist"]);
}

/// The calls that were recorded of a Besu 26.8 node, and what it answered. Transactions of its chain are left out.
#[test]
fn calls_recorded_of_besu_have_the_same_answers() {
    const CALLS: &str = include_str!("../../../../testdata/bft/perm/rpc.jsonl");
    const BEFORE: &str = include_str!("../../../../testdata/bft/perm/permissions_config.toml");
    const AFTER: &str =
        include_str!("../../../../testdata/bft/perm/permissions_config-after-rpc.toml");
    let dir = TestDir::new();
    let file = dir.file("list.toml", BEFORE.as_bytes());
    let flags = format!(
        "--permissions-nodes-config-file-enabled --permissions-nodes-config-file={0} \
         --permissions-accounts-config-file-enabled --permissions-accounts-config-file={0}",
        file.display()
    );
    let (with_lists, without) = (Node::dev(&flags), Node::dev(""));
    let mut compared = 0;
    for line in CALLS.lines() {
        let call: Value = serde_json::from_str(line).unwrap();
        let (method, note) = (call["method"].as_str().unwrap(), call["note"].as_str());
        if !method.starts_with("perm_") || note == Some("old name") {
            continue;
        }
        match note {
            Some("third account added in the file") => {
                assert_eq!(std::fs::read_to_string(&file).unwrap(), AFTER);
                let third = "[\"0xf17f52151ebef6c7334fad080c5704d77216b732\",\"0xfe3b";
                std::fs::write(&file, AFTER.replacen("[\"0xfe3b", third, 1)).unwrap();
            }
            Some("bad file") => std::fs::write(&file, "accounts-allowlist=[7]").unwrap(),
            _ => {}
        }
        let node = match note {
            Some("permissioning off") => &without,
            _ => &with_lists,
        };
        let response = node.call(method, call["params"].clone());
        for part in ["result", "error"] {
            assert_eq!(response[part], call["response"][part], "{line}");
        }
        compared += 1;
    }
    assert_eq!(compared, 32);
}
