//! Features for operators on a running node: that the binary wires them up.

use crate::running::Node;
use crate::support::{CommandResult, TestDir, chain_file, wait_until};
use serde_json::{Value, json};

/// A transfer of the first account of `--network=dev`, its nonce 0.
pub(crate) fn transfer(node: &Node, nonce: u64) -> String {
    use niwaki_primitives::{Address, Encodable2718, TxEip1559, TxKind, U256};
    use niwaki_testkit::Key;
    let chain_id = node.result("eth_chainId", json!([]));
    let chain_id = chain_id.as_str().unwrap().trim_start_matches("0x");
    let tx = TxEip1559 {
        chain_id: u64::from_str_radix(chain_id, 16).unwrap(),
        nonce,
        gas_limit: 21_000,
        max_fee_per_gas: 20_000_000_000,
        max_priority_fee_per_gas: 1_000_000_000,
        to: TxKind::Call(Address::repeat_byte(5)),
        value: U256::from(1),
        ..TxEip1559::default()
    };
    let key = "0x8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63";
    let tx = Key::new(key.parse().unwrap()).sign(tx);
    niwaki_primitives::hex::encode_prefixed(tx.encoded_2718())
}

/// Calls until the response is `expected`: the pool learns of a head after RPC clients see it.
fn wait_for(node: &Node, method: &str, expected: &Value) {
    let response = || node.result(method, json!([]));
    let state = || format!("{method} still answers {}, not {expected}", response());
    wait_until(state, || response() == *expected);
}

#[test]
fn a_dev_chain_stops_making_blocks_and_starts_again() {
    let node = Node::dev("");
    assert_eq!(node.result("miner_setExtraData", json!(["0xc0ffee"])), true);
    node.result("eth_sendRawTransaction", json!([transfer(&node, 0)]));
    wait_for(&node, "eth_blockNumber", &json!("0x1"));
    let head = node.result("eth_getBlockByNumber", json!(["latest", false]));
    assert_eq!(head["extraData"], "0xc0ffee");
    assert_eq!(node.result("miner_stop", json!([])), true);
    assert_eq!(node.result("eth_mining", json!([])), false);
    let batch = json!([transfer(&node, 1), transfer(&node, 2)]);
    let sent = node.result("debug_batchSendRawTransaction", batch);
    assert_eq!(
        (&sent[0]["success"], &sent[1]["success"]),
        (&json!(true), &json!(true))
    );
    let waiting = json!({"pending": "0x2", "queued": "0x0"});
    wait_for(&node, "txpool_status", &waiting);
    assert_eq!(node.result("eth_blockNumber", json!([])), "0x1");
    assert_eq!(node.result("miner_start", json!([])), true);
    wait_for(&node, "eth_blockNumber", &json!("0x2"));
    let taken = node.result("eth_getBlockTransactionCountByNumber", json!(["0x2"]));
    assert_eq!(taken, "0x2");
}

#[test]
fn pooled_transactions_are_executed_once_before_the_next_block() {
    let engine =
        "--engine-rpc-enabled=true --engine-jwt-disabled=true --metrics-enabled --metrics-port=0";
    let warmed = |flag: &str| {
        let node = Node::dev(&format!("{engine} {flag}"));
        node.result("miner_stop", json!([]));
        let figures = || {
            let figures = node.result("debug_metrics", json!([]));
            let figure = |name: &str| figures["niwaki"][name].as_u64().unwrap_or(0);
            ["pool_warming_transactions_total", "pool_warming_gas_total"].map(figure)
        };
        for nonce in 0..2 {
            node.result("eth_sendRawTransaction", json!([transfer(&node, nonce)]));
            let is_warm = || !flag.is_empty() || figures()[0] > nonce;
            wait_until(|| format!("{:?}", figures()), is_warm);
        }
        figures()
    };
    assert_eq!(warmed(""), [2, 42_000]);
    assert_eq!(warmed("--tx-pool-warming-enabled=false"), [0, 0]);
}

#[test]
fn admin_changes_the_log_level_at_once() {
    let node = Node::dev("");
    assert_eq!(
        node.result("admin_changeLogLevel", json!(["DEBUG", ["niwaki"]])),
        "Success"
    );
    node.result("eth_sendRawTransaction", json!([transfer(&node, 0)]));
    let line = node.line("Head");
    assert_eq!(
        (&line["level"], &line["fields"]["number"]),
        (&json!("DEBUG"), &json!(1))
    );
    let refused = node.call("admin_changeLogLevel", json!(["LOUD"]));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[test]
fn metrics_states_and_storage_are_served_by_the_binary() {
    let node = Node::with_chain_and("--metrics-enabled --metrics-port=0");
    node.result("eth_chainId", json!([]));
    let figures = node.result("debug_metrics", json!([]));
    assert_eq!(figures["ethereum"]["blockchain_height"], 54, "{figures}");
    assert!(figures["rpc"]["request_time"].is_object(), "{figures}");
    let services = node.result("net_services", json!([]));
    assert_eq!(services["jsonrpc"]["port"], node.http.port().to_string());
    assert!(
        services["ws"].is_object() && services["metrics"].is_object(),
        "{services}"
    );
    let page = node.result("debug_accountRange", json!(["latest", "0x", 5]));
    assert_eq!(
        page["accounts"].as_object().map(serde_json::Map::len),
        Some(5)
    );
    let next: &Value = &page["next"];
    let more = node.result("debug_accountRange", json!(["latest", next, 1]));
    let (_, account) = more["accounts"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(&account["key"], next);
    assert_eq!(node.result("debug_getBadBlocks", json!([])), json!([]));
    assert_eq!(node.result("debug_setHead", json!(["0x20"])), Value::Null);
    assert_eq!(node.result("eth_blockNumber", json!([])), "0x20");
    let made = node.result("admin_generateLogBloomCache", json!(["0x0", "latest"]));
    assert_eq!(
        (&made["requestAccepted"], &made["currentBlock"]),
        (&json!(true), &json!("0x0"))
    );
    let refused = node.call("miner_start", json!([]));
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
}

#[test]
fn besu_flags_of_calls_blocks_and_process_take_effect() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("niwaki.pid");
    let node = Node::dev(&format!(
        "--pid-path={} --network-id 4321 --json-pretty-print-enabled --rpc-max-active-filters=1 \
         --rpc-http-api ETH NET PERM PLUGINS --identity mine --rpc-max-trace-filter-range=2",
        pid.display()
    ));
    let number = std::fs::read_to_string(&pid).unwrap();
    assert_eq!(number.trim(), node.process().to_string());
    assert_eq!(node.result("net_version", json!([])), "4321");
    let version = node.result("web3_clientVersion", json!([]));
    assert!(
        version.as_str().unwrap().starts_with("niwaki/mine/v"),
        "{version}"
    );
    assert_eq!(node.result("eth_chainId", json!([])), "0x539");
    assert!(node.result("eth_newBlockFilter", json!([])).is_string());
    let refused = node.call("eth_newBlockFilter", json!([]));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("1 filters"), "{refused}");
    let modules = node.result("rpc_modules", json!([]));
    assert!(
        modules["eth"].is_string() && modules["plugins"].is_null(),
        "{modules}"
    );
    drop(node);
}

#[test]
fn a_chain_with_another_required_block_is_refused() {
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let other = format!("--required-blocks=5={}", "5".repeat(64));
    let mut command = dir.command(&other, &[]);
    let result = CommandResult::of(&command.output().unwrap());
    result.failed(&["block 5 of this chain is 0x", "--required-blocks"]);
}

#[test]
fn the_first_scrape_has_every_metric_but_those_by_message_method_or_status() {
    const PAGE: &str = include_str!("../../../../docs/metrics.md");
    // Of discovery, which is off here; by message; by method; by status.
    let later = [
        "besu_network_discovery_",
        "besu_network_discv",
        "besu_network_p2p_",
        "besu_rpc_errors_count_total",
        "besu_rpc_request_time",
        "niwaki_discovery_dns_queries_total",
        "niwaki_engine_status_total",
    ];
    let node = Node::dev(
        "--metrics-enabled --metrics-port=0 --p2p-enabled --p2p-interface=127.0.0.1 --p2p-port=0 \
         --discovery-enabled=false --nat-method=NONE",
    );
    let scrape = node.metrics();
    let has = |name: &str| {
        let mut lines = scrape.lines().filter_map(|line| line.strip_prefix(name));
        lines.any(|rest| rest.starts_with(['{', ' ']) || rest.starts_with("_sum"))
    };
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let names: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert!(names.len() > 140, "{}", names.len());
    for name in names {
        let is_later = later.iter().any(|prefix| name.starts_with(prefix));
        assert!(is_later || has(name), "{name} is not in {scrape}");
    }
}

#[test]
fn a_supervisor_learns_that_the_node_is_ready_alive_and_stopping() {
    let dir = TestDir::new();
    let path = dir.path("notify");
    let supervisor = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let timeout = std::time::Duration::from_secs(60);
    supervisor.set_read_timeout(Some(timeout)).unwrap();
    let mut command = dir.command("--engine-rpc-enabled=false", &[]);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "400000");
    let mut node = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let next = || {
        let mut text = [0; 200];
        let length = supervisor.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    assert_eq!(next(), "READY=1");
    for _ in 0..3 {
        assert_eq!(next(), "WATCHDOG=1\nSTATUS=block 0, 0 peers");
    }
    let process = rustix::process::Pid::from_child(&node);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    let mut last = std::iter::from_fn(|| Some(next()));
    let stopping = last.find(|text| !text.starts_with("WATCHDOG"));
    assert_eq!(stopping.unwrap(), "STOPPING=1");
    assert!(node.wait().unwrap().success());
}
