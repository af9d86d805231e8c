//! What an operator changes while the node runs, on the chain of `--network=dev`.

use super::*;
use ::tracing::level_filters::LevelFilter;
use niwaki_primitives::{Block, Bytes, Encodable2718, TxEip1559, TxEnvelope, TxKind, U256};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The key of the network's first account.
const KEY: &str = "0x8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63";
const GWEI: u128 = 1_000_000_000;

/// A rig whose pool gives no priority to local transactions.
pub(super) fn dev() -> Rig {
    let config = PoolConfig {
        no_local_priority: true,
        ..PoolConfig::default()
    };
    rig(chain_of(&Network::Dev.genesis()), config)
}

/// A transfer that pays up to 20 gwei, of which `tip` for the coinbase; as it is sent.
pub(super) fn transfer(rig: &Rig, nonce: u64, tip: u128) -> Value {
    let tx = TxEip1559 {
        nonce,
        gas_limit: 21_000,
        max_priority_fee_per_gas: tip,
        to: TxKind::Call(niwaki_primitives::Address::repeat_byte(5)),
        ..TxEip1559::default()
    };
    let bytes = niwaki_primitives::hex::encode(signed(rig, tx).encoded_2718());
    json!(format!("0x{bytes}"))
}

/// A transaction of the first account that pays enough.
pub(super) fn send_to(rig: &Rig, nonce: u64, to: TxKind, input: Bytes) -> TxEnvelope {
    let tx = TxEip1559 {
        nonce,
        gas_limit: 100_000,
        max_priority_fee_per_gas: GWEI,
        to,
        input,
        ..TxEip1559::default()
    };
    signed(rig, tx)
}

/// `tx` with the chain's id, a fee of up to 20 gwei and a value of 1 wei, signed by the first account.
fn signed(rig: &Rig, tx: TxEip1559) -> TxEnvelope {
    Key::new(KEY.parse().unwrap()).sign(TxEip1559 {
        chain_id: rig.dispatcher.backend().chain().spec().chain_id,
        max_fee_per_gas: 20 * GWEI,
        value: U256::from(1),
        ..tx
    })
}

/// The block that would be built now.
pub(super) fn build(rig: &Rig) -> Block {
    let backend = rig.dispatcher.backend();
    let head = backend.chain().head();
    let template = niwaki_chain::BlockTemplate {
        parent: head.id.hash,
        timestamp: head.header.timestamp + 12,
        ..backend.block_template()
    };
    backend.build_now(template).unwrap().block
}

/// Its transactions, gas limit and extra data.
fn next_block(rig: &Rig) -> (usize, u64, Vec<u8>) {
    let built = build(rig);
    let header = built.header;
    (
        built.body.transactions.len(),
        header.gas_limit,
        header.extra_data.to_vec(),
    )
}

#[test]
fn a_batch_of_transactions_has_one_result_each() {
    let rig = dev();
    let good = transfer(&rig, 0, GWEI);
    let sent = json!([good, "0x02c0", transfer(&rig, 1, GWEI), good, 7]);
    let outcome = rig.result("debug_batchSendRawTransaction", sent);
    let outcome = outcome.as_array().unwrap();
    let fates: Vec<_> = outcome.iter().map(|one| one["success"] == true).collect();
    assert_eq!(fates, [true, false, true, false, false]);
    assert_eq!(outcome[2], json!({"index": 2, "success": true}));
    assert_eq!(outcome[3]["errorMessage"], "already known");
    assert!(
        outcome[4]["errorMessage"]
            .as_str()
            .unwrap()
            .contains("invalid argument 4")
    );
    assert_eq!(rig.result("txpool_status", json!([]))["pending"], "0x2");
    let none = rig.result("debug_batchSendRawTransaction", json!([]));
    assert_eq!(none, json!([]));
}

#[test]
fn the_minimum_gas_price_applies_to_pool_and_blocks() {
    let rig = dev();
    rig.result("eth_sendRawTransaction", json!([transfer(&rig, 0, GWEI)]));
    assert_eq!(next_block(&rig).0, 1);
    assert_eq!(rig.result("miner_getMinGasPrice", json!([])), "0x3e8");
    let above = format!("{:#x}", 21 * GWEI);
    assert_eq!(rig.result("miner_setMinGasPrice", json!([above])), true);
    assert_eq!(rig.result("miner_getMinGasPrice", json!([])), json!(above));
    assert_eq!(
        next_block(&rig).0,
        0,
        "the one that is here pays too little"
    );
    let (_, words) = rig.refusal("eth_sendRawTransaction", json!([transfer(&rig, 1, GWEI)]));
    assert!(words.contains("21000000000"), "{words}");
    rig.result("miner_setMinGasPrice", json!(["0x0"]));
    assert_eq!(next_block(&rig).0, 1);

    assert_eq!(rig.result("miner_getMinPriorityFee", json!([])), "0x0");
    let tip = format!("{:#x}", GWEI + 1);
    rig.result("miner_setMinPriorityFee", json!([tip]));
    assert_eq!(rig.result("miner_getMinPriorityFee", json!([])), json!(tip));
    assert_eq!(next_block(&rig).0, 0);
    rig.result("miner_setMinPriorityFee", json!([format!("{GWEI:#x}")]));
    assert_eq!(next_block(&rig).0, 1);
    for method in ["miner_setMinGasPrice", "miner_setMinPriorityFee"] {
        for bad in [
            json!([]),
            json!(["x"]),
            json!([format!("0x1{}", "0".repeat(32))]),
        ] {
            assert_eq!(rig.refusal(method, bad).0, -32602);
        }
    }
}

#[test]
fn what_an_account_sent_that_may_send_no_more_leaves_the_pool_when_a_block_is_built() {
    let rig = dev();
    let may_send = Arc::new(AtomicBool::new(true));
    let filter = Arc::clone(&may_send);
    let pool = rig.dispatcher.backend().pool();
    pool.set_sender_filter(move |_, _| filter.load(Ordering::Relaxed));
    for nonce in 0..2 {
        rig.result(
            "eth_sendRawTransaction",
            json!([transfer(&rig, nonce, GWEI)]),
        );
    }
    assert_eq!(next_block(&rig).0, 2);
    may_send.store(false, Ordering::Relaxed);
    assert_eq!(next_block(&rig).0, 0);
    let status = rig.result("txpool_status", json!([]));
    assert_eq!(status, json!({"pending": "0x0", "queued": "0x1"}));
}

#[test]
fn priority_senders_are_exempt_from_the_minimum_fees() {
    let rig = rig(chain_of(&Network::Dev.genesis()), PoolConfig::default());
    rig.result(
        "miner_setMinPriorityFee",
        json!([format!("{:#x}", 5 * GWEI)]),
    );
    rig.result("eth_sendRawTransaction", json!([transfer(&rig, 0, GWEI)]));
    assert_eq!(next_block(&rig).0, 1);
}

#[test]
fn gas_limit_and_extra_data_are_those_of_the_next_block() {
    let rig = dev();
    let parent = rig.dispatcher.backend().chain().head().header.gas_limit;
    for (method, target, want) in [
        (
            "miner_changeTargetGasLimit",
            json!(parent / 2),
            json!("Success"),
        ),
        (
            "miner_changeTargetGasLimit",
            json!((parent / 2).to_string()),
            json!("Success"),
        ),
        (
            "miner_setGasLimit",
            json!(format!("{:#x}", parent / 2)),
            json!(true),
        ),
    ] {
        assert_eq!(rig.result(method, json!([target])), want);
        let (_, limit, _) = next_block(&rig);
        assert!(limit < parent, "{limit} {parent}");
    }
    for bad in [
        json!(4_999),
        json!("0x8000000000000000"),
        json!(-1),
        json!("many"),
    ] {
        assert_eq!(
            rig.refusal("miner_changeTargetGasLimit", json!([bad])).0,
            -32602
        );
    }
    assert_eq!(rig.result("miner_setExtraData", json!(["0xc0ffee"])), true);
    assert_eq!(rig.result("miner_getExtraData", json!([])), "0xc0ffee");
    assert_eq!(next_block(&rig).2, [0xc0, 0xff, 0xee]);
    let long = json!([format!("0x{}", "00".repeat(33))]);
    assert_eq!(rig.refusal("miner_setExtraData", long).0, -32602);
    assert_eq!(rig.result("miner_getExtraData", json!([])), "0xc0ffee");
}

#[test]
fn miner_start_and_stop_work_on_dev_networks_only() {
    let rig = dev();
    for method in ["miner_start", "miner_stop"] {
        let (code, words) = rig.refusal(method, json!([]));
        assert_eq!(code, -32000);
        assert!(words.contains("consensus client"), "{words}");
    }
    let operator = rig.dispatcher.backend().operator();
    operator.set_makes_blocks(true);
    assert_eq!(rig.result("eth_mining", json!([])), true);
    assert_eq!(rig.result("miner_stop", json!([])), true);
    assert_eq!(
        (operator.makes_blocks(), rig.result("eth_mining", json!([]))),
        (false, json!(false))
    );
    assert_eq!(rig.result("miner_start", json!([])), true);
    assert!(operator.makes_blocks());
}

#[test]
fn the_log_level_and_its_targets_are_passed_on() {
    let rig = dev();
    let (_, words) = rig.refusal("admin_changeLogLevel", json!(["DEBUG"]));
    assert!(words.contains("can't be changed"), "{words}");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let operator = rig.dispatcher.backend().operator();
    operator.set_log_switch(Box::new(move |level, targets| {
        told.lock().unwrap().push((level, targets.to_vec()));
        Ok(())
    }));
    let ask = |params| rig.result("admin_changeLogLevel", params);
    assert_eq!(ask(json!(["DEBUG"])), "Success");
    assert_eq!(ask(json!(["trace", ["niwaki_rpc"]])), "Success");
    assert_eq!(ask(json!(["OFF", []])), "Success");
    let targets = vec!["niwaki_rpc".to_owned()];
    let want = [(LevelFilter::DEBUG, vec![]), (LevelFilter::TRACE, targets)];
    assert_eq!(*seen.lock().unwrap(), want);
    for bad in [
        json!([]),
        json!(["LOUD"]),
        json!(["INFO", "niwaki_rpc"]),
        json!([7]),
    ] {
        assert_eq!(rig.refusal("admin_changeLogLevel", bad).0, -32602);
    }
}

#[test]
fn services_are_listed_and_there_is_no_enode() {
    let rig = dev();
    assert_eq!(rig.result("net_services", json!([])), json!({}));
    let operator = rig.dispatcher.backend().operator();
    operator.add_service("ws", ([127, 0, 0, 1], 8546).into());
    let want = json!({"ws": {"host": "127.0.0.1", "port": "8546"}});
    assert_eq!(rig.result("net_services", json!([])), want);
    let (code, words) = rig.refusal("net_enode", json!([]));
    assert_eq!(code, -32000);
    assert!(words.starts_with("P2P has been disabled"), "{words}");
}

#[test]
fn metrics_are_a_tree_and_empty_if_none_are_recorded() {
    let rig = dev();
    assert_eq!(rig.result("debug_metrics", json!([])), json!({}));
    let operator = rig.dispatcher.backend().operator();
    operator.set_metrics(Box::new(|| "besu_rpc_calls{m=\"a\"} 3\n".to_owned()));
    assert_eq!(
        rig.result("debug_metrics", json!([])),
        json!({"rpc": {"calls": {"a": 3}}})
    );
}
