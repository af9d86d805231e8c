//! What callers write: numbers, keys, tags and indexes, as execution-apis and geth have them.

use super::operating::dev;
use super::*;

const SENDER: &str = "0xfe3b557e8fb62b89f4916b721be55ceb828dbd73";
const OTHER: &str = "0x00000000000000000000000000000000000000e9";

#[test]
fn safe_and_finalized_are_an_error_of_every_method_before_any_is_named() {
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
        ] {
            let (code, words) = rig.refusal(method, params);
            let want = (-32000, format!("{tag} block not found"));
            assert_eq!((code, words), want, "{method}");
        }
    }
    // A number beyond the head is no error but a block that is not there.
    let beyond = rig.result("eth_getBlockByNumber", json!(["0x100", false]));
    assert_eq!(beyond, Value::Null);
}
