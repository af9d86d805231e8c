//! Input formats: numbers, keys, tags and indexes, as in execution-apis and geth.

use super::operating::dev;
use super::*;
use niwaki_primitives::B256;

const SENDER: &str = "0xfe3b557e8fb62b89f4916b721be55ceb828dbd73";
const OTHER: &str = "0x00000000000000000000000000000000000000e9";

/// Values that are no QUANTITY.
const BAD: [&str; 12] = [
    "16", "1_6", "0x1_0", "0o20", "0b1", "", "0x", "0x+1", "0x-1", "0x01", "0xg", " 0x1",
];

/// A method with its parameters.
type Place = (&'static str, Value);

/// Every parameter that is a QUANTITY, with the value `number`.
fn places(number: &Value) -> Vec<Place> {
    let parameters = parameters(number).into_iter();
    let fields = in_messages(number).into_iter().chain(in_overrides(number));
    parameters
        .chain(fields)
        .chain(in_payloads(number))
        .collect()
}

fn parameters(number: &Value) -> Vec<Place> {
    let hash = B256::ZERO;
    vec![
        ("eth_getBlockByNumber", json!([number, false])),
        ("eth_getHeaderByNumber", json!([number])),
        ("eth_getBlockReceipts", json!([number])),
        ("eth_getBlockTransactionCountByNumber", json!([number])),
        ("eth_getUncleCountByBlockNumber", json!([number])),
        (
            "eth_getTransactionByBlockNumberAndIndex",
            json!(["latest", number]),
        ),
        (
            "eth_getTransactionByBlockHashAndIndex",
            json!([hash, number]),
        ),
        (
            "eth_getUncleByBlockNumberAndIndex",
            json!(["latest", number]),
        ),
        ("eth_getBalance", json!([SENDER, number])),
        ("eth_getBalance", json!([SENDER, {"blockNumber": number}])),
        ("eth_getProof", json!([SENDER, [], number])),
        ("eth_feeHistory", json!(["0x1", number])),
        ("eth_getLogs", json!([{"fromBlock": number}])),
        ("eth_getLogs", json!([{"toBlock": number}])),
        ("eth_newFilter", json!([{"fromBlock": number}])),
        ("trace_filter", json!([{"fromBlock": number}])),
        ("trace_block", json!([number])),
        (
            "trace_call",
            json!([{"to": OTHER, "value": number}, ["trace"]]),
        ),
        ("debug_traceBlockByNumber", json!([number])),
        ("debug_traceCall", json!([{"to": OTHER}, number])),
        (
            "debug_traceCall",
            json!([{"to": OTHER}, "latest", {"txIndex": number}]),
        ),
        ("debug_getRawHeader", json!([number])),
        ("debug_setHead", json!([number])),
        ("miner_setGasLimit", json!([number])),
        ("miner_setMinGasPrice", json!([number])),
        ("miner_setMinPriorityFee", json!([number])),
        ("engine_getPayloadBodiesByRangeV1", json!([number, "0x1"])),
        ("engine_getPayloadBodiesByRangeV1", json!(["0x1", number])),
        ("niwaki_getBlockFigures", json!([number])),
        ("niwaki_explainBlock", json!([number])),
    ]
}

fn in_messages(number: &Value) -> Vec<Place> {
    let mut places = Vec::new();
    for field in [
        "gas",
        "gasPrice",
        "maxFeePerGas",
        "maxPriorityFeePerGas",
        "maxFeePerBlobGas",
        "value",
        "nonce",
        "chainId",
    ] {
        let message = json!({"from": SENDER, "to": OTHER, field: number});
        places.push(("eth_call", json!([message])));
        places.push(("eth_estimateGas", json!([message])));
        places.push(("eth_createAccessList", json!([message])));
        places.push(("eth_fillTransaction", json!([message])));
        places.push((
            "eth_simulateV1",
            json!([{"blockStateCalls": [{"calls": [message]}]}]),
        ));
    }
    for field in ["chainId", "nonce", "yParity", "r", "s"] {
        let mut signed = json!({"chainId": "0x1", "address": OTHER, "nonce": "0x0",
                                "yParity": "0x0", "r": "0x1", "s": "0x1"});
        signed[field] = number.clone();
        let message = json!({"to": OTHER, "authorizationList": [signed]});
        places.push(("eth_call", json!([message])));
    }
    places
}

fn in_overrides(number: &Value) -> Vec<Place> {
    let mut places = Vec::new();
    for field in ["balance", "nonce"] {
        let account = json!({OTHER: {field: number}});
        places.push(("eth_call", json!([{"to": OTHER}, "latest", account])));
        let options = json!({"stateOverrides": account});
        places.push(("debug_traceCall", json!([{"to": OTHER}, "latest", options])));
    }
    for field in [
        "number",
        "difficulty",
        "time",
        "gasLimit",
        "baseFeePerGas",
        "blobBaseFee",
    ] {
        let block = json!({ field: number });
        places.push(("eth_call", json!([{"to": OTHER}, "latest", {}, block])));
        places.push((
            "eth_simulateV1",
            json!([{"blockStateCalls": [{"blockOverrides": block}]}]),
        ));
    }
    places
}

/// In payloads, attributes and withdrawals.
fn in_payloads(number: &Value) -> Vec<Place> {
    let hash = B256::ZERO;
    let mut places = Vec::new();
    for field in ["index", "validatorIndex", "amount"] {
        let mut withdrawal = json!({"index": "0x0", "validatorIndex": "0x0", "address": OTHER,
                                    "amount": "0x0"});
        withdrawal[field] = number.clone();
        let block = json!({"blockOverrides": {"withdrawals": [withdrawal]}});
        places.push(("eth_simulateV1", json!([{"blockStateCalls": [block]}])));
        let attributes = json!({"timestamp": "0x1", "prevRandao": hash,
            "suggestedFeeRecipient": OTHER, "withdrawals": [withdrawal]});
        places.push(("engine_forkchoiceUpdatedV2", json!([choice(), attributes])));
        places.push((
            "engine_newPayloadV2",
            json!([payload("withdrawals", json!([withdrawal]))]),
        ));
    }
    for field in ["timestamp", "slotNumber", "targetGasLimit"] {
        let attributes = json!({ field: number });
        places.push(("engine_forkchoiceUpdatedV4", json!([choice(), attributes])));
    }
    for field in [
        "blockNumber",
        "gasLimit",
        "gasUsed",
        "timestamp",
        "baseFeePerGas",
        "blobGasUsed",
        "excessBlobGas",
        "slotNumber",
    ] {
        let params = json!([payload(field, number.clone()), [], hash, []]);
        places.push(("engine_newPayloadV5", params));
    }
    places
}

fn choice() -> Value {
    let zero = B256::ZERO;
    json!({"headBlockHash": zero, "safeBlockHash": zero, "finalizedBlockHash": zero})
}

/// A payload of Amsterdam, with `value` for `field`.
fn payload(field: &str, value: Value) -> Value {
    let hash = B256::ZERO;
    let bloom = format!("0x{}", "00".repeat(256));
    let mut payload = json!({
        "parentHash": hash, "feeRecipient": OTHER, "stateRoot": hash, "receiptsRoot": hash,
        "logsBloom": bloom, "prevRandao": hash, "blockNumber": "0x1", "gasLimit": "0x1",
        "gasUsed": "0x0", "timestamp": "0x1", "extraData": "0x", "baseFeePerGas": "0x1",
        "blockHash": hash, "transactions": [], "withdrawals": [], "blobGasUsed": "0x0",
        "excessBlobGas": "0x0", "blockAccessList": "0xc0", "slotNumber": "0x1",
    });
    payload[field] = value;
    payload
}

#[test]
fn a_number_that_is_no_quantity_is_refused_wherever_one_is_read() {
    let rig = dev();
    let bad = BAD.map(|text| json!(text)).into_iter();
    for number in bad.chain([json!(16), json!(1.5), json!(true)]) {
        for (method, params) in places(&number) {
            // Besu's own requests use JSON numbers here.
            let is_taken = number == json!(16) && params.to_string().contains("{\"nonce\":16}");
            if is_taken {
                continue;
            }
            let (code, words) = rig.refusal(method, params.clone());
            assert_eq!(code, -32602, "{method} {params}: {words}");
        }
    }
}

#[test]
fn the_nonce_of_an_override_may_be_a_json_number() {
    let rig = dev();
    let nonce = |nonce: Value| {
        // CREATE(0, 0, 0), whose address follows from the nonce.
        let code = json!({"code": "0x5f5f5ff05f5260205ff3", "nonce": nonce});
        rig.result("eth_call", json!([{"to": OTHER}, "latest", {OTHER: code}]))
    };
    assert_eq!(nonce(json!(88)), nonce(json!("0x58")));
    assert_ne!(nonce(json!(88)), nonce(json!(89)));
}

#[test]
fn a_quantity_is_accepted_in_either_letter_case_everywhere() {
    let rig = dev();
    for number in ["0x0", "0xA", "0Xa"] {
        for (method, params) in places(&json!(number)) {
            // Out of the range of a gas limit, and chains, blocks and payloads that are not these.
            if method == "miner_setGasLimit" {
                continue;
            }
            let response = rig.response(method, params.clone());
            let words = response["error"]["message"].as_str().unwrap_or_default();
            let is_read = ["invalid argument", "hex", "Invalid block"];
            let refused = is_read.iter().find(|word| words.contains(**word));
            assert_eq!(refused, None, "{method} {params}: {response}");
        }
    }
}

#[test]
fn counts_accept_what_geth_besu_and_parity_accept() {
    let rig = dev();
    for count in [json!(1), json!("1"), json!("0x1")] {
        rig.result("eth_feeHistory", json!([count, "latest"]));
        rig.result("trace_filter", json!([{"count": count, "after": count}]));
        rig.result("txpool_besuPendingTransactions", json!([count]));
        rig.result("trace_get", json!([B256::ZERO, [count]]));
        let (code, _) = rig.refusal("miner_changeTargetGasLimit", json!([count]));
        assert_eq!(code, -32602, "too low");
    }
    let limit = json!([30_000_000]);
    assert_eq!(rig.result("miner_changeTargetGasLimit", limit), "Success");
    for bad in ["", "1_6", "0x1_0", "0o20", "0x+1", "0x01", "-1", "+1"] {
        for (method, params) in [
            ("eth_feeHistory", json!([bad, "latest"])),
            ("trace_filter", json!([{ "count": bad }])),
            ("txpool_besuPendingTransactions", json!([bad])),
            ("trace_get", json!([B256::ZERO, [bad]])),
            ("miner_changeTargetGasLimit", json!([bad])),
            ("debug_accountAt", json!(["latest", bad, SENDER])),
        ] {
            let (code, words) = rig.refusal(method, params);
            assert_eq!(code, -32602, "{method} {bad}: {words}");
        }
    }
}

#[test]
fn keys_are_accepted_in_any_letter_case() {
    let rig = dev();
    let genesis = rig.result("eth_getBlockByNumber", json!(["0x0", false]));
    let hash = &genesis["hash"];
    for key in ["blockHash", "blockhash", "BLOCKHASH"] {
        assert_eq!(rig.result("eth_getLogs", json!([{ key: hash }])), json!([]));
        // The block is looked up by this hash, and there is no other.
        let (code, words) = rig.refusal("eth_getLogs", json!([{ key: B256::repeat_byte(7) }]));
        assert_eq!((code, words.as_str()), (-32000, "unknown block"), "{key}");
        let (code, words) = rig.refusal("eth_getBalance", json!([SENDER, {key: B256::ZERO}]));
        assert_eq!(
            (code, words.as_str()),
            (-32000, "header not found"),
            "{key}"
        );
    }
    // CALLVALUE, MSTORE(0), RETURN(0, 32).
    let code = json!({"CODE": "0x345f5260205ff3"});
    let call = json!({"From": SENDER, "TO": OTHER, "VALUE": "0x10"});
    let value = rig.result("eth_call", json!([call, "latest", {OTHER: code}]));
    assert_eq!(value, format!("0x{:064x}", 16));
    let options = json!({"TRACER": "callTracer", "tracerconfig": {"ONLYTOPCALL": true},
                         "stateoverrides": {OTHER: code}});
    let trace = rig.result("debug_traceCall", json!([call, "latest", options]));
    assert_eq!(trace["output"], format!("0x{:064x}", 16));
    let simulated =
        json!({"blockstatecalls": [{"CALLS": [call], "stateoverrides": {OTHER: code}}]});
    let simulated = rig.result("eth_simulateV1", json!([simulated]));
    assert_eq!(
        simulated[0]["calls"][0]["returnData"],
        format!("0x{:064x}", 16)
    );
}

#[test]
fn an_unknown_key_is_refused_where_blocks_are_chosen() {
    let rig = dev();
    let hash = B256::repeat_byte(7);
    for (method, params) in [
        ("eth_getLogs", json!([{"blockHsh": hash}])),
        ("eth_getLogs", json!([{"from_block": "0x0"}])),
        ("eth_newFilter", json!([{"block": "0x0"}])),
        ("trace_filter", json!([{"from": "0x0"}])),
        (
            "eth_getBalance",
            json!([SENDER, {"blockNumber": "0x0", "number": "0x0"}]),
        ),
        ("eth_call", json!([{"to": OTHER}, {"number": "0x0"}])),
    ] {
        let (code, words) = rig.refusal(method, params);
        assert_eq!(code, -32602, "{method}");
        assert!(words.contains("unknown field `"), "{method}: {words}");
    }
    // A key in two letter cases is a duplicate.
    for (method, params) in [
        (
            "eth_getLogs",
            r#"[{"blockHash": "0x01", "blockhash": "0x02"}]"#,
        ),
        ("eth_call", r#"[{"value": "0x1", "Value": "0x2"}]"#),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let response = rig.send(body.as_bytes()).unwrap();
        let response: Value = serde_json::from_slice(&response).unwrap();
        assert_eq!(response["error"]["code"], -32602, "{response}");
    }
    // Clients send a transaction's other fields along with a call.
    let whole = json!({"to": OTHER, "type": "0x2", "hash": hash, "v": "0x0", "yParity": "0x0"});
    assert_eq!(rig.result("eth_call", json!([whole])), "0x");
}

#[test]
fn safe_and_finalized_are_errors_until_the_consensus_client_names_them() {
    let rig = dev();
    for tag in ["safe", "finalized"] {
        let call = json!({"to": OTHER});
        for (method, params) in [
            ("eth_getBlockByNumber", json!([tag, false])),
            ("eth_getHeaderByNumber", json!([tag])),
            ("eth_getBlockReceipts", json!([tag])),
            ("eth_getBlockAccessList", json!([tag])),
            ("eth_getBlockTransactionCountByNumber", json!([tag])),
            ("eth_getUncleCountByBlockNumber", json!([tag])),
            ("eth_getUncleByBlockNumberAndIndex", json!([tag, "0x0"])),
            (
                "eth_getTransactionByBlockNumberAndIndex",
                json!([tag, "0x0"]),
            ),
            ("eth_getBalance", json!([SENDER, tag])),
            ("eth_getBalance", json!([SENDER, {"blockNumber": tag}])),
            ("eth_getCode", json!([SENDER, tag])),
            ("eth_getStorageAt", json!([SENDER, "0x0", tag])),
            ("eth_getTransactionCount", json!([SENDER, tag])),
            ("eth_getProof", json!([SENDER, [], tag])),
            ("eth_call", json!([call, tag])),
            ("eth_estimateGas", json!([call, tag])),
            ("eth_createAccessList", json!([call, tag])),
            ("eth_simulateV1", json!([{"blockStateCalls": [{}]}, tag])),
            ("eth_feeHistory", json!(["0x1", tag])),
            ("eth_getLogs", json!([{"fromBlock": tag}])),
            ("debug_accountRange", json!([tag, "0x", 1])),
            ("debug_accountAt", json!([tag, 0, SENDER])),
            ("debug_getRawBlock", json!([tag])),
            ("debug_getRawHeader", json!([tag])),
            ("debug_getRawReceipts", json!([tag])),
            ("debug_replayBlock", json!([tag])),
            ("debug_setHead", json!([tag])),
            ("debug_traceBlockByNumber", json!([tag])),
            ("debug_traceCall", json!([call, tag])),
            ("trace_block", json!([tag])),
            ("trace_call", json!([call, ["trace"], tag])),
            ("trace_filter", json!([{"fromBlock": tag}])),
            ("trace_replayBlockTransactions", json!([tag, ["trace"]])),
            ("niwaki_getBlockFigures", json!([tag])),
            ("niwaki_explainBlock", json!([tag])),
        ] {
            let (code, words) = rig.refusal(method, params);
            let want = (-32000, format!("{tag} block not found"));
            assert_eq!((code, words), want, "{method}");
        }
    }
    // A number beyond the head is no error; the block is null.
    let beyond = rig.result("eth_getBlockByNumber", json!(["0x100", false]));
    assert_eq!(beyond, Value::Null);
}
