//! `rpc.discover`: an OpenRPC document of the methods that are offered.
//!
//! Spec: https://spec.open-rpc.org, version 1.3.2.

use crate::json::{Array, Object};

/// The version of the specification that the document is by.
const OPENRPC: &str = "1.3.2";

/// Methods and the names of their parameters, in order; one that may be left out ends with `?`, one
/// that stands for any number with `*`. Sorted by name.
const PARAMS: &[(&str, &str)] = &[
    ("admin_backup", "folder keep?"),
    ("admin_changeLogLevel", "level targets?"),
    ("admin_generateLogBloomCache", "startBlock? stopBlock?"),
    ("admin_logsRemoveCache", "startBlock? stopBlock?"),
    ("admin_logsRepairCache", "block?"),
    ("admin_nodeInfo", ""),
    ("admin_peers", ""),
    ("debug_accountAt", "block txIndex address"),
    (
        "debug_accountRange",
        "block start? maxResults? nocode? nostorage? incompletes?",
    ),
    ("debug_batchSendRawTransaction", "transactions*"),
    ("debug_getBadBlocks", ""),
    ("debug_getRawBlock", "block"),
    ("debug_getRawBlockAccessList", "block"),
    ("debug_getRawHeader", "block"),
    ("debug_getRawReceipts", "block"),
    ("debug_getRawTransaction", "hash"),
    ("debug_metrics", ""),
    ("debug_replayBlock", "block"),
    ("debug_setHead", "block"),
    ("debug_standardTraceBadBlockToFile", "hash options?"),
    ("debug_standardTraceBlockToFile", "hash options?"),
    (
        "debug_storageRangeAt",
        "block txIndex address startKey? maxResults?",
    ),
    ("debug_traceBlock", "rlp options?"),
    ("debug_traceBlockByHash", "hash options?"),
    ("debug_traceBlockByNumber", "block options?"),
    ("debug_traceCall", "transaction block? options?"),
    ("debug_traceTransaction", "hash options?"),
    ("engine_exchangeCapabilities", "capabilities"),
    ("engine_exchangeTransitionConfigurationV1", "configuration"),
    (
        "engine_forkchoiceUpdatedV1",
        "forkchoiceState payloadAttributes?",
    ),
    (
        "engine_forkchoiceUpdatedV2",
        "forkchoiceState payloadAttributes?",
    ),
    (
        "engine_forkchoiceUpdatedV3",
        "forkchoiceState payloadAttributes?",
    ),
    (
        "engine_forkchoiceUpdatedV4",
        "forkchoiceState payloadAttributes? custodyColumns?",
    ),
    ("engine_getBlobsV1", "versionedHashes"),
    ("engine_getBlobsV2", "versionedHashes"),
    ("engine_getBlobsV3", "versionedHashes"),
    ("engine_getBlobsV4", "versionedHashes indicesBitarray"),
    ("engine_getClientVersionV1", "clientVersion"),
    ("engine_getPayloadBodiesByHashV1", "hashes"),
    ("engine_getPayloadBodiesByHashV2", "hashes"),
    ("engine_getPayloadBodiesByRangeV1", "start count"),
    ("engine_getPayloadBodiesByRangeV2", "start count"),
    ("engine_getPayloadV1", "payloadId"),
    ("engine_getPayloadV2", "payloadId"),
    ("engine_getPayloadV3", "payloadId"),
    ("engine_getPayloadV4", "payloadId"),
    ("engine_getPayloadV5", "payloadId"),
    ("engine_getPayloadV6", "payloadId"),
    ("engine_hasBlobs", "versionedHashes"),
    ("engine_newPayloadV1", "executionPayload"),
    ("engine_newPayloadV2", "executionPayload"),
    (
        "engine_newPayloadV3",
        "executionPayload expectedBlobVersionedHashes parentBeaconBlockRoot",
    ),
    (
        "engine_newPayloadV4",
        "executionPayload expectedBlobVersionedHashes parentBeaconBlockRoot executionRequests",
    ),
    (
        "engine_newPayloadV5",
        "executionPayload expectedBlobVersionedHashes parentBeaconBlockRoot executionRequests",
    ),
    ("eth_accounts", ""),
    ("eth_baseFee", ""),
    ("eth_blobBaseFee", ""),
    ("eth_blockNumber", ""),
    (
        "eth_call",
        "transaction block? stateOverrides? blockOverrides?",
    ),
    ("eth_capabilities", ""),
    ("eth_chainId", ""),
    ("eth_coinbase", ""),
    ("eth_config", ""),
    (
        "eth_createAccessList",
        "transaction block? stateOverrides? blockOverrides?",
    ),
    (
        "eth_estimateGas",
        "transaction block? stateOverrides? blockOverrides?",
    ),
    (
        "eth_feeHistory",
        "blockCount newestBlock rewardPercentiles?",
    ),
    ("eth_fillTransaction", "transaction"),
    ("eth_gasPrice", ""),
    ("eth_getBalance", "address block?"),
    ("eth_getBlockAccessList", "block"),
    ("eth_getBlockByHash", "hash fullTransactions"),
    ("eth_getBlockByNumber", "block fullTransactions"),
    ("eth_getBlockReceipts", "block"),
    ("eth_getBlockTransactionCountByHash", "hash"),
    ("eth_getBlockTransactionCountByNumber", "block"),
    ("eth_getCode", "address block?"),
    ("eth_getFilterChanges", "filterId"),
    ("eth_getFilterLogs", "filterId"),
    ("eth_getHeaderByHash", "hash"),
    ("eth_getHeaderByNumber", "block"),
    ("eth_getLogs", "filter"),
    ("eth_getProof", "address storageKeys block?"),
    ("eth_getRawTransactionByHash", "hash"),
    ("eth_getStorageAt", "address slot block?"),
    ("eth_getStorageValues", "slots block?"),
    ("eth_getTransactionByBlockHashAndIndex", "hash index"),
    ("eth_getTransactionByBlockNumberAndIndex", "block index"),
    ("eth_getTransactionByHash", "hash"),
    ("eth_getTransactionCount", "address block?"),
    ("eth_getTransactionReceipt", "hash"),
    ("eth_getUncleByBlockHashAndIndex", "hash index"),
    ("eth_getUncleByBlockNumberAndIndex", "block index"),
    ("eth_getUncleCountByBlockHash", "hash"),
    ("eth_getUncleCountByBlockNumber", "block"),
    ("eth_maxPriorityFeePerGas", ""),
    ("eth_mining", ""),
    ("eth_newBlockFilter", ""),
    ("eth_newFilter", "filter"),
    ("eth_newPendingTransactionFilter", ""),
    ("eth_protocolVersion", ""),
    ("eth_sendRawTransaction", "transaction"),
    ("eth_sendTransaction", "transaction"),
    ("eth_sign", "address message"),
    ("eth_simulateV1", "payload block?"),
    ("eth_syncing", ""),
    ("eth_uninstallFilter", "filterId"),
    ("miner_changeTargetGasLimit", "gasLimit"),
    ("miner_getExtraData", ""),
    ("miner_getMinGasPrice", ""),
    ("miner_getMinPriorityFee", ""),
    ("miner_setExtraData", "extraData"),
    ("miner_setGasLimit", "gasLimit"),
    ("miner_setMinGasPrice", "gasPrice"),
    ("miner_setMinPriorityFee", "priorityFee"),
    ("miner_start", ""),
    ("miner_stop", ""),
    ("net_enode", ""),
    ("net_listening", ""),
    ("net_peerCount", ""),
    ("net_services", ""),
    ("net_version", ""),
    ("niwaki_getBlockFigures", "block"),
    (
        "testing_buildBlockV1",
        "parentBlockHash payloadAttributes transactions? extraData?",
    ),
    ("trace_block", "block"),
    ("trace_call", "transaction traceTypes block?"),
    ("trace_callMany", "calls block?"),
    ("trace_filter", "filter"),
    ("trace_get", "hash traceAddress"),
    ("trace_rawTransaction", "transaction traceTypes block?"),
    ("trace_replayBlockTransactions", "block traceTypes"),
    ("trace_replayTransaction", "hash traceTypes"),
    ("trace_transaction", "hash"),
    ("txpool_besuPendingTransactions", "limit? filters?"),
    ("txpool_besuStatistics", ""),
    ("txpool_besuTransactions", ""),
    ("txpool_content", ""),
    ("txpool_contentFrom", "address"),
    ("txpool_inspect", ""),
    ("txpool_status", ""),
    ("web3_clientVersion", ""),
    ("web3_sha3", "data"),
];

/// What the dispatcher and connections answer themselves.
const OTHERS: [(&str, &str); 4] = [
    ("eth_subscribe", "subscription details?"),
    ("eth_unsubscribe", "subscriptionId"),
    ("rpc.discover", ""),
    ("rpc_modules", ""),
];

fn params_of(name: &str) -> &'static str {
    let at = PARAMS.binary_search_by(|(known, _)| known.cmp(&name));
    at.map_or("", |at| PARAMS[at].1)
}

/// Writes the document of the methods `names`, which ascend, offered by the program `title`.
pub(crate) fn write(out: &mut Vec<u8>, names: &[&str], (title, version): (&str, &str)) {
    let mut document = Object::new(out);
    document.string("openrpc", OPENRPC);
    let mut info = document.object("info");
    info.string("title", title);
    info.string("version", version);
    drop(info);
    let mut methods = document.array("methods");
    let has_subscriptions = names.contains(&"eth_blockNumber");
    let others = OTHERS.iter().copied();
    let others = others.filter(|(name, _)| has_subscriptions || !name.starts_with("eth_"));
    for (name, params) in names
        .iter()
        .map(|name| (*name, params_of(name)))
        .chain(others)
    {
        write_method(&mut methods, name, params);
    }
}

fn write_method(methods: &mut Array<'_>, name: &str, params: &str) {
    let mut method = methods.object();
    method.string("name", name);
    method.string("paramStructure", "by-position");
    let mut list = method.array("params");
    for param in params.split_whitespace() {
        let name = param.trim_end_matches(['?', '*']);
        let mut object = list.object();
        object.string("name", name);
        object.boolean("required", name == param);
        drop(object.object("schema"));
    }
    drop(list);
    let mut result = method.object("result");
    result.string("name", "result");
    drop(result.object("schema"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_has_one_row_and_every_row_a_method() {
        assert!(PARAMS.is_sorted_by(|one, next| one.0 < next.0));
        let known: BTreeSet<&str> = PARAMS.iter().map(|(name, _)| *name).collect();
        let methods: BTreeSet<&str> = crate::methods().map(|method| method.name).collect();
        let missing: Vec<_> = methods.symmetric_difference(&known).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn what_must_be_given_stands_before_what_may() {
        for (name, params) in PARAMS.iter().chain(&OTHERS) {
            let optional = params.split_whitespace().map(|param| param.ends_with('?'));
            assert!(optional.is_sorted(), "{name}: {params}");
        }
    }

    #[test]
    fn the_document_names_what_is_offered_and_nothing_else() {
        let mut out = Vec::new();
        write(&mut out, &["net_version", "web3_sha3"], ("niwaki", "v1"));
        let document: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["info"]["title"], "niwaki");
        let methods = document["methods"].as_array().unwrap();
        let names: Vec<&str> = methods
            .iter()
            .map(|m| m["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["net_version", "web3_sha3", "rpc.discover", "rpc_modules"]
        );
        assert_eq!(methods[1]["params"][0]["name"], "data");
        assert_eq!(methods[1]["params"][0]["required"], true);
    }
}
