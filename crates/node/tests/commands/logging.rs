//! The log as an operator reads it: each line of docs/node.md, when it is written and what it holds.

use crate::engine::{ZERO, build, hash, send_fork_choice, send_payload, state};
use crate::running::{Node, post};
use crate::support::{HEAD, TestDir, chain_file};
use serde_json::{Value, json};

/// The fields of the line with this message in the log of the start.
fn began<'a>(node: &'a Node, message: &str) -> Vec<&'a Value> {
    let fields = node.start_log.iter().map(|line| &line["fields"]);
    fields
        .filter(|fields| fields["message"] == message)
        .collect()
}

/// The value of the metric `name`, with its labels.
fn metric(node: &Node, labelled: &str) -> Option<f64> {
    let body = node.metrics();
    let line = body.lines().find_map(|line| line.strip_prefix(labelled))?;
    line.trim().parse().ok()
}

#[test]
fn a_start_logs_program_data_path_chain_head_and_no_peers_once_each() {
    let node = Node::with_chain();
    let one = |message: &str| match began(&node, message)[..] {
        [fields] => fields.clone(),
        ref all => panic!("{message}: {all:?}"),
    };
    let program = one("Niwaki");
    assert!(program["version"].as_str().unwrap().starts_with('v'));
    let commit = program["commit"].as_str().unwrap();
    assert!(commit.len() == 8 && commit != "00000000", "{commit}");
    let version = node.dir.run("--version", &[]).succeeded().out;
    assert!(
        version.trim_end().ends_with(&format!("-{commit}")),
        "{version}"
    );
    let path = node.dir.data_path().display().to_string();
    let data = one("Data path");
    assert_eq!(
        (&data["path"], &data["profile"]),
        (&json!(path), &json!("none"))
    );
    let chain = one("Chain");
    assert_eq!(chain["id"], 3_503_995_874_084_926_u64);
    assert_eq!(
        (&chain["genesis"], &chain["fork"]),
        (&json!("0x44fd89d5..5b3d99"), &json!("BPO2"))
    );
    assert_eq!(one("Head")["number"], 54);
    one("No fork is scheduled after this one");
    one("Engine API");
    assert_eq!(
        one("JSON-RPC over HTTP")["api"]
            .as_str()
            .unwrap()
            .split(',')
            .count(),
        11
    );
    let peers =
        "No peers: --p2p-enabled is false; blocks come from the consensus client or from files";
    one(peers);
}

#[test]
fn the_dev_network_logs_its_accounts_keys_and_addresses() {
    let node = Node::dev("");
    let accounts = began(&node, "Development account");
    assert_eq!(accounts.len(), 3);
    let key = "0x8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63";
    assert_eq!(accounts[0]["key"], key);
    assert_eq!(
        accounts[0]["address"],
        "0xFE3B557E8Fb62b89F4916B721be55cEb828dBd73"
    );
    assert!(accounts[0]["balance"].as_str().unwrap().ends_with(" ETH"));
    assert_eq!(
        began(&node, "JSON-RPC over HTTP")[0]["url"],
        format!("http://{}", node.http)
    );
}

#[test]
fn log_lines_have_colours_only_if_enabled() {
    let dir = TestDir::new();
    let run = |flags: &str| {
        dir.run(
            &format!("--engine-rpc-port=1 --rpc-http-host=192.0.2.1 {flags}"),
            &[],
        )
    };
    let plain = run("").errors;
    assert!(
        !plain.contains('\u{1b}') && plain.contains(" INFO Niwaki version="),
        "{plain}"
    );
    assert!(plain.lines().all(|line| line.starts_with("20")), "{plain}");
    assert!(run("--color-enabled").errors.contains('\u{1b}'));
}

#[test]
fn a_slow_block_is_logged_as_one_line_of_json_and_kept() {
    let node = Node::with_chain_and("--slow-block-threshold=0");
    let built = build(&node, HEAD, 600);
    assert_eq!(send_payload(&node, &built)["status"], "VALID");
    node.fields("Imported block");
    let line = node.next_line();
    assert_eq!(line["level"], "WARN");
    let slow: Value = serde_json::from_str(line["fields"]["message"].as_str().unwrap()).unwrap();
    assert_eq!(slow["msg"], "Slow block");
    assert_eq!(slow["block"]["number"], 55);
    assert_eq!(slow["block"]["hash"], hash(&built));
    assert_eq!(slow["transactions"]["dearest"], json!([]));
    assert!(slow["timing"]["total_ms"].as_f64() > Some(0.0), "{slow}");
    let kept = node.result("niwaki_getSlowBlocks", json!([]));
    assert_eq!(kept.as_array().unwrap().len(), 1);
    assert_eq!(kept[0]["hash"], hash(&built));
    assert!(node.call("niwaki_getSlowBlocks", json!(["ten"]))["error"].is_object());
}

#[test]
fn a_block_is_logged_as_one_line() {
    let node = Node::with_chain();
    let built = build(&node, HEAD, 600);
    assert_eq!(send_payload(&node, &built)["status"], "VALID");
    assert_eq!(
        send_payload(&node, &built)["status"],
        "VALID",
        "the second time without a line"
    );
    let payload = node.fields("Built payload");
    assert_eq!(
        (&payload["number"], &payload["txs"]),
        (&json!(55), &json!(0))
    );
    assert_eq!(payload["value"], "0 wei");
    let block = node.fields("Imported block");
    assert_eq!(
        (&block["number"], &block["txs"], &block["blobs"]),
        (&json!(55), &json!(0), &json!("0/21"))
    );
    let short = |hash: &str| format!("{}..{}", &hash[..10], &hash[60..]);
    assert_eq!(block["hash"], short(&hash(&built)));
    assert_eq!(
        (&block["gas"], &block["full"], &block["peers"]),
        (&json!("0"), &json!("0%"), &json!(0))
    );
    let names: Vec<&str> = block
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "age", "base_fee", "blobs", "full", "gas", "hash", "message", "mgas_s", "ms", "number",
        "peers", "txs",
    ];
    assert_eq!(names, expected, "in the order of the alphabet");
}

#[test]
fn a_refused_token_is_a_warning_with_its_reason_and_is_counted() {
    let node = Node::with_chain_and("--metrics-enabled --metrics-port=0");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;
    let stale = niwaki_rpc::JwtSecret::new([7; 32]).token(1);
    for token in ["", &format!("Bearer {stale}")] {
        let headers = [("authorization", token)];
        assert_eq!(post(node.engine, call, &headers).0, 401);
    }
    let line =
        node.line("Engine API request refused: both clients must use the same --engine-jwt-secret");
    assert_eq!(
        (&line["level"], &line["fields"]["reason"]),
        (&json!("WARN"), &json!("missing token"))
    );
    let refused = |reason| {
        metric(
            &node,
            &format!("niwaki_rpc_tokens_refused_total{{reason=\"{reason}\"}}"),
        )
    };
    assert_eq!(
        [refused("missing"), refused("signature")],
        [Some(1.0), Some(1.0)]
    );
}

#[test]
fn an_invalid_payload_is_a_warning_with_the_rule_that_it_breaks_and_is_counted() {
    let node = Node::with_chain_and("--metrics-enabled --metrics-port=0");
    let mut bad = build(&node, HEAD, 600);
    bad["executionPayload"]["stateRoot"] = json!(ZERO);
    assert_eq!(send_payload(&node, &bad)["status"], "INVALID");
    let line = node.line("Invalid payload");
    assert_eq!(
        (&line["level"], &line["fields"]["number"]),
        (&json!("WARN"), &json!(55))
    );
    assert!(
        line["fields"]["reason"]
            .as_str()
            .unwrap()
            .contains("block hash"),
        "{line}"
    );
    let status = "niwaki_engine_status_total{method=\"newPayloadV4\",status=\"INVALID\"}";
    assert_eq!(metric(&node, status), Some(1.0));
}

#[test]
fn a_failed_call_is_a_warning_with_code_and_message() {
    let node = Node::with_chain();
    node.engine_call("engine_getPayloadV5", json!(["0x0000000000000001"]));
    let line = node.line("Engine API call failed");
    assert_eq!(
        (&line["level"], &line["fields"]["code"]),
        (&json!("WARN"), &json!(-38001))
    );
    assert_eq!(line["fields"]["method"], "engine_getPayloadV5");
}

#[test]
fn a_missing_head_is_logged_once_and_once_when_imported() {
    let node = Node::with_chain();
    assert_ne!(
        node.result("eth_syncing", json!([])),
        json!(false),
        "nothing is known yet"
    );
    let unknown = format!("0x{}", "ab".repeat(32));
    assert_eq!(send_fork_choice(&node, &unknown), "SYNCING");
    let what =
        "Syncing: blocks between the head and the one that the consensus client chose are missing";
    let line = node.fields(what);
    assert_eq!(
        (&line["head"], &line["number"], &line["waiting"]),
        (&json!(54), &json!("unknown"), &json!(0))
    );
    assert_eq!(send_fork_choice(&node, HEAD), "VALID");
    assert_eq!(node.fields("In sync")["number"], 54);
}

#[test]
fn new_finality_is_logged_as_one_line() {
    let node = Node::with_chain();
    let block =
        |number: &str| node.result("eth_getBlockByNumber", json!([number, false]))["hash"].clone();
    let mut choice = state(HEAD);
    choice["finalizedBlockHash"] = block("0x30");
    choice["safeBlockHash"] = block("0x32");
    for _ in 0..2 {
        node.engine_call("engine_forkchoiceUpdatedV3", json!([choice, null]));
    }
    let line = node.fields("Finalized");
    assert_eq!(
        (&line["finalized"], &line["safe"], &line["head"]),
        (&json!(48), &json!(50), &json!(54))
    );
    // Zero hashes keep safe and finalized and log nothing.
    send_fork_choice(&node, HEAD);
    assert_eq!(
        node.result("eth_getBlockByNumber", json!(["finalized", false]))["number"],
        "0x30"
    );
}

#[test]
fn a_reorganisation_above_the_threshold_is_a_warning() {
    for (flags, level) in [("", "INFO"), ("--reorg-logging-threshold=0", "WARN")] {
        let node = Node::with_chain_and(flags);
        let one = build(&node, HEAD, 600);
        let other = build(&node, HEAD, 601);
        for built in [&one, &other] {
            assert_eq!(send_payload(&node, built)["status"], "VALID");
            assert_eq!(send_fork_choice(&node, &hash(built)), "VALID");
        }
        let line = node.line("Reorganised");
        let fields = &line["fields"];
        assert_eq!(line["level"], level);
        let numbers =
            ["removed", "added", "ancestor", "old", "new"].map(|name| fields[name].clone());
        assert_eq!(numbers, [1, 1, 54, 55, 55].map(Value::from));
        assert_eq!(
            fields["ancestor_hash"],
            "0xd226371d..a8e7dcd7".replace("a8e7dcd7", "e7dcd7")
        );
        assert_ne!(fields["old_hash"], fields["new_hash"]);
    }
}

#[test]
fn the_consensus_client_is_logged_by_name() {
    let node = Node::with_chain();
    let client =
        json!([{"code": "PM", "name": "Prysm", "version": "v7.1.0", "commit": "0x01020304"}]);
    node.engine_call("engine_getClientVersionV1", client);
    let line = node.fields("Consensus client");
    assert_eq!(
        (&line["name"], &line["version"]),
        (&json!("Prysm"), &json!("v7.1.0"))
    );
}

#[test]
fn a_saved_pool_is_restored_in_the_background_and_its_unread_rest_saved() {
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let saved = "# niwaki txpool 1\nl zz\n";
    std::fs::write(dir.data_path().join("txpool.dump"), saved).unwrap();
    let node = Node::start(dir, "--tx-pool-enable-save-restore");
    let line = node.line("Saved transactions were left out; the first");
    assert_eq!(
        (&line["fields"]["left_out"], &line["fields"]["line"]),
        (&json!(1), &json!(2))
    );
    let (dir, code) = node.stop();
    assert_eq!(code, Some(0));
    let dump = std::fs::read_to_string(dir.data_path().join("txpool.dump")).unwrap();
    assert_eq!(
        dump, "# niwaki txpool 1\n",
        "what can't be read is not kept"
    );
}
