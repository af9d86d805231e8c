//! The dispatcher on a chain in memory: any input gets a JSON response, and the next call works as before.

use crate::{
    ApiOptions, Backend, Dispatcher, Identity, Limits, NAMESPACES, Session, WorkerPools, methods,
};
use bytes::Bytes;
use niwaki_chain::{Chain, ChainConfig, Consensus, GenesisBlock, StateOptions, StorageOptions};
use niwaki_primitives::{
    Address, Encodable2718, SignableTransaction, Signature, TxEip1559, TxEnvelope, TxKind, b256,
    hex,
};
use niwaki_rules::{Genesis, Network};
use niwaki_testkit::Key;
use niwaki_txpool::{Pool, PoolConfig};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use tokio::runtime::Runtime;

mod amsterdam;
mod blocks;
mod by_sender;
mod documented;
mod explaining;
mod filling;
mod graphql;
mod logs;
mod operating;
mod requests;
mod rest;
mod tracing;
mod validators;
mod vm_trace;

struct Rig {
    dispatcher: Arc<Dispatcher>,
    runtime: Runtime,
}

/// A dispatcher of every namespace on `chain`, with a pool of `config`.
fn rig(chain: Chain, config: PoolConfig) -> Rig {
    rig_with(chain, config, ApiOptions::default())
}

fn rig_with(chain: Chain, config: PoolConfig, options: ApiOptions) -> Rig {
    let chain = Arc::new(chain);
    let view = Arc::new(chain.view_at_head().unwrap());
    let spec = Arc::clone(chain.spec());
    let pool = Pool::new(config, spec, chain.head().header, view, 0);
    let identity = Identity {
        client_version: "niwaki/test".to_owned(),
        version: "v0".to_owned(),
        commit: [0; 4],
    };
    let consensus = Arc::new(Consensus::new(chain));
    let backend = Backend::new(consensus, Arc::new(pool), identity, options);
    let limits = Limits {
        batch_requests: 8,
        batch_bytes: 1 << 20,
        ..Limits::default()
    };
    let namespaces = NAMESPACES.map(str::to_owned).into();
    let worker_pools = Arc::new(WorkerPools::new(2).unwrap());
    let dispatcher = Dispatcher::new(Arc::new(backend), worker_pools, &namespaces, &[], limits);
    Rig {
        dispatcher: Arc::new(dispatcher),
        runtime: tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap(),
    }
}

fn chain_of(genesis: &Genesis) -> Chain {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto).unwrap();
    let config = ChainConfig {
        data_path: None,
        genesis: GenesisBlock::from(genesis),
        spec: Arc::new(genesis.spec.clone()),
        storage: StorageOptions::default(),
        state: StateOptions {
            cache_bytes: 1 << 20,
            ..StateOptions::default()
        },
    };
    Chain::open(config).unwrap()
}

impl Rig {
    fn send(&self, body: &[u8]) -> Option<Vec<u8>> {
        let body = Bytes::copy_from_slice(body);
        let session = Session::default();
        self.runtime
            .block_on(self.dispatcher.handle(body, &session))
    }

    /// Calls `method` and returns the whole response.
    fn response(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.send(body.to_string().as_bytes()).expect("an id asks");
        serde_json::from_slice(&response).expect("JSON")
    }

    /// Calls `method`, which must succeed, and returns its result.
    #[track_caller]
    fn result(&self, method: &str, params: Value) -> Value {
        let response = self.response(method, params);
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].clone()
    }

    /// Calls `method`, which must fail, and returns code and message.
    #[track_caller]
    fn refusal(&self, method: &str, params: Value) -> (i64, String) {
        let response = self.response(method, params);
        let error = &response["error"];
        assert!(error.is_object(), "{method}: {response}");
        let words = error["message"].as_str().unwrap().to_owned();
        (error["code"].as_i64().unwrap(), words)
    }
}

/// One rig for all cases: no call here changes it.
static RIG: LazyLock<Rig> = LazyLock::new(|| {
    let genesis = Network::Dev.genesis();
    rig(chain_of(&genesis), PoolConfig::default())
});

fn ask(body: &[u8]) -> Option<Vec<u8>> {
    RIG.send(body)
}

/// The transaction `nonce` of the dev network's first account.
fn transaction(nonce: u64) -> Bytes {
    let key = b256!("8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63");
    let signed = Key::new(key).sign(TxEip1559 {
        chain_id: Network::Dev.genesis().spec.chain_id,
        nonce,
        gas_limit: 21_000,
        max_fee_per_gas: 100_000_000_000,
        max_priority_fee_per_gas: 1_000_000_000,
        to: TxKind::Call(Address::ZERO),
        ..TxEip1559::default()
    });
    signed.encoded_2718().into()
}

#[test]
fn a_request_of_a_batch_sees_what_those_before_it_did() {
    let sender = "0xfe3b557e8fb62b89f4916b721be55ceb828dbd73";
    let call = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    for nonce in (0..40).step_by(4) {
        let pairs = (nonce..nonce + 4).flat_map(|nonce| {
            let raw = hex::encode_prefixed(transaction(nonce));
            [
                call(0, "eth_sendRawTransaction", json!([raw])),
                call(1, "eth_getTransactionCount", json!([sender, "pending"])),
            ]
        });
        let batch = Value::from(pairs.collect::<Vec<_>>());
        let responses = ask(batch.to_string().as_bytes()).unwrap();
        let responses: Vec<Value> = serde_json::from_slice(&responses).unwrap();
        for (nonce, responses) in (nonce..).zip(responses.chunks(2)) {
            let want = format!("{:#x}", nonce + 1);
            assert_eq!(responses[1]["result"], want, "{responses:?}");
        }
    }
}

fn is_response(value: &Value) -> bool {
    let has = |name: &str| value.get(name).is_some();
    value["jsonrpc"] == "2.0" && has("id") && has("result") != has("error")
}

/// JSON of any shape, a little of it such as callers send.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(|number| Value::from(format!("{number:#x}"))),
        "0x[0-9a-f]{0,70}".prop_map(Value::from),
        "latest|pending|safe|finalized|earliest".prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        let names = prop_oneof![
            "from|to|data|input|gas|value|fromBlock|toBlock|blockHash|topics|address|nonce",
            "[a-z]{1,8}",
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(names, inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Any method but those that change the chain or write to the disk.
fn method() -> impl Strategy<Value = &'static str> {
    let names: Vec<&'static str> = methods()
        .map(|method| method.name)
        .filter(|name| !["admin_backup", "debug_setHead", "debug_replayBlock"].contains(name))
        .filter(|name| !name.starts_with("engine_forkchoice"))
        .collect();
    proptest::sample::select(names)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_call_of_any_method_is_answered(method in method(), params in value(), id in value()) {
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let response = ask(body.to_string().as_bytes()).expect("an id asks for a response");
        let response: Value = serde_json::from_slice(&response).expect("JSON");
        prop_assert!(is_response(&response), "{response}");
        prop_assert!(response["error"]["message"] != "method handler crashed", "{body}");
    }

    #[test]
    fn any_call_with_a_list_of_parameters_is_answered(
        method in method(),
        params in proptest::collection::vec(value(), 0..4),
    ) {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = ask(body.to_string().as_bytes()).expect("an id asks for a response");
        let response: Value = serde_json::from_slice(&response).expect("JSON");
        prop_assert!(is_response(&response), "{response}");
        prop_assert!(response["error"]["message"] != "method handler crashed", "{body}");
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Some(response) = ask(&bytes) {
            let _: Value = serde_json::from_slice(&response).expect("JSON");
        }
    }

    #[test]
    fn a_good_request_with_a_few_bytes_changed_is_answered(
        at in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let good = br#"[{"jsonrpc":"2.0","id":7,"method":"eth_getBalance","params":["0xfe3b557e8fb62b89f4916b721be55ceb828dbd73","latest"]}]"#;
        let mut bytes = good.to_vec();
        for (index, byte) in at {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        if let Some(response) = ask(&bytes) {
            let _: Value = serde_json::from_slice(&response).expect("JSON");
        }
        let response = ask(good).expect("as if nothing had been");
        let responses: Vec<Value> = serde_json::from_slice(&response).expect("JSON");
        prop_assert!(responses[0]["result"].is_string(), "{responses:?}");
    }
}
