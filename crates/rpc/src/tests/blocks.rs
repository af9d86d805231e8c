//! Contents of states and blocks, on the 54 blocks of the execution-apis chain.

use super::*;
use niwaki_chain::PayloadHints;
use niwaki_crypto::keccak256;
use niwaki_primitives::rlp::{Decodable, encode};
use niwaki_primitives::{B256, Block};
use std::collections::BTreeMap;

pub(super) fn genesis() -> Genesis {
    Genesis::from_json(include_str!("../../../../testdata/chain/genesis.json")).unwrap()
}

pub(super) fn blocks() -> Vec<Block> {
    let mut rest = &include_bytes!("../../../../testdata/chain/chain.rlp")[..];
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        blocks.push(Block::decode(&mut rest).unwrap());
    }
    blocks
}

/// A rig with all blocks.
pub(super) fn whole() -> Rig {
    let chain = chain_of(&genesis());
    for block in blocks() {
        chain.import(block).unwrap();
    }
    rig(chain, PoolConfig::default())
}

fn hex(number: usize) -> String {
    format!("{number:#x}")
}

fn accounts(rig: &Rig, block: &Value, most: usize) -> BTreeMap<String, Value> {
    let (mut all, mut start) = (BTreeMap::new(), json!("0x"));
    loop {
        let page = rig.result("debug_accountRange", json!([block, start, most]));
        let found = page["accounts"].as_object().unwrap();
        assert!(found.len() <= most);
        for (name, account) in found {
            assert_eq!(*name, format!("pre({})", account["key"].as_str().unwrap()));
            let key = account["key"].as_str().unwrap().to_owned();
            assert!(all.insert(key, account.clone()).is_none(), "{name} twice");
        }
        match page.get("next") {
            Some(next) => start = next.clone(),
            None => return all,
        }
    }
}

#[test]
fn the_pages_of_account_range_cover_the_state() {
    let rig = whole();
    for block in [json!("latest"), json!("0x10"), json!("0x0")] {
        let all = accounts(&rig, &block, 256);
        assert_eq!(accounts(&rig, &block, 7), all);
        for address in genesis().alloc.keys() {
            let key = format!("{:#x}", keccak256(address));
            let balance = rig.result("eth_getBalance", json!([address, block]));
            let code = rig.result("eth_getCode", json!([address, block]));
            let Some(account) = all.get(&key) else {
                assert_eq!(balance, "0x0", "{address}");
                continue;
            };
            let got: u128 = account["balance"].as_str().unwrap().parse().unwrap();
            assert_eq!(json!(format!("{got:#x}")), balance, "{address}");
            assert_eq!(account.get("code").unwrap_or(&json!("0x")), &code);
        }
    }
    let page = rig.result("debug_accountRange", json!(["latest", "0x", 0, true]));
    let accounts = page["accounts"].as_object().unwrap();
    assert!(
        accounts
            .values()
            .all(|account| account.get("code").is_none())
    );
    let key = json!(format!("0x{}", "ff".repeat(32)));
    let end = rig.result("debug_accountRange", json!(["latest", key]));
    assert_eq!(end["accounts"], json!({}));
    let (code, words) = rig.refusal("debug_accountRange", json!(["0x400"]));
    assert_eq!((code, words.as_str()), (-32000, "block not found"));
    assert_eq!(rig.refusal("debug_accountRange", json!([])).0, -32602);
}

/// Hashed slot to value, and how many slots were given by number.
fn storage(
    rig: &Rig,
    block: &str,
    index: usize,
    address: &Value,
    most: usize,
) -> (BTreeMap<String, Value>, usize) {
    let (mut all, mut start, mut known) = (BTreeMap::new(), json!("0x"), 0);
    loop {
        let params = json!([block, index, address, start, most]);
        let page = rig.result("debug_storageRangeAt", params);
        let found = page["storage"].as_object().unwrap();
        assert!(found.len() <= most);
        for (key, entry) in found {
            if let Some(slot) = entry["key"].as_str() {
                let slot: B256 = slot.parse().unwrap();
                assert_eq!(format!("{:#x}", keccak256(slot)), *key);
                known += 1;
            }
            assert!(all.insert(key.clone(), entry["value"].clone()).is_none());
        }
        match &page["nextKey"] {
            Value::Null => return (all, known),
            next => start = next.clone(),
        }
    }
}

#[test]
fn storage_range_at_moves_from_pre_state_to_post_state() {
    let rig = whole();
    let (mut slots, mut known, mut moved) = (0, 0, 0);
    for (number, block) in (1..).zip(blocks()) {
        let name = hex(number);
        let receipts = rig.result("eth_getBlockReceipts", json!([name]));
        let touched = receipts.as_array().unwrap().iter().filter_map(|receipt| {
            let made = &receipt["contractAddress"];
            let to = if made.is_null() { &receipt["to"] } else { made };
            (!to.is_null()).then(|| to.clone())
        });
        for address in touched {
            let last = block.body.transactions.len();
            let after = storage(&rig, &name, last, &address, 4096);
            let (before, none) = storage(&rig, &name, 0, &address, 4096);
            assert_eq!(none, 0, "nothing is written yet");
            assert_eq!(storage(&rig, &name, last, &address, 1).0, after.0);
            let next = number + 1;
            // The queues of a block's requests are emptied after its transactions.
            let name_of = address.as_str().unwrap();
            let is_emptied = name_of.ends_with("7002") || name_of.ends_with("7251");
            if next <= 54 && !is_emptied {
                assert_eq!(
                    storage(&rig, &hex(next), 0, &address, 3).0,
                    after.0,
                    "{name}"
                );
            }
            slots += after.0.len();
            known += after.1;
            moved += usize::from(before != after.0);
        }
    }
    assert!(
        slots > 20 && known > 5 && moved > 5,
        "{slots} {known} {moved}"
    );
}

#[test]
fn account_at_moves_from_pre_state_to_post_state() {
    let rig = whole();
    let mut compared = 0;
    for (number, block) in (1..).zip(blocks()) {
        for (index, tx) in block.body.transactions.iter().enumerate() {
            let sender = niwaki_rules::recover_sender(tx).unwrap();
            let at = |index: usize| {
                let params = json!([hex(number), hex(index), sender]);
                rig.result("debug_accountAt", params)
            };
            let nonce = niwaki_primitives::Transaction::nonce(tx);
            assert_eq!(at(index)["nonce"], json!(format!("{nonce:#x}")));
            let last = at(block.body.transactions.len());
            let known = rig.result("eth_getTransactionCount", json!([sender, hex(number)]));
            assert_eq!(last["nonce"], known);
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
    let absent = json!(["0x5", 0, "0x00000000000000000000000000000000000abcde"]);
    assert_eq!(
        rig.refusal("debug_accountAt", absent).1,
        "Account not found"
    );
    let beyond = json!(["0x5", 4000, "0x00000000000000000000000000000000000abcde"]);
    let (_, words) = rig.refusal("debug_accountAt", beyond);
    assert!(
        words.contains("transaction index 4000 out of range"),
        "{words}"
    );
}

#[test]
fn an_invalid_block_is_listed_with_its_rlp() {
    let rig = whole();
    assert_eq!(rig.result("debug_getBadBlocks", json!([])), json!([]));
    let file = json!(["/tmp/bad"]);
    assert_eq!(rig.refusal("debug_getBadBlocks", file).0, -32602);
    let mut bad = blocks()[29].clone();
    bad.header.state_root = B256::repeat_byte(7);
    let hash = bad.header.hash_slow();
    let consensus = &rig.dispatcher.backend().consensus;
    for _ in 0..2 {
        let verdict = consensus.new_payload(bad.clone(), hash, PayloadHints::default());
        assert!(matches!(verdict, Ok(niwaki_chain::Verdict::Invalid(_))));
    }
    let mut child = bad.clone();
    child.header.parent_hash = hash;
    let child_hash = child.header.hash_slow();
    consensus
        .new_payload(child, child_hash, PayloadHints::default())
        .unwrap();

    let kept = rig.result("debug_getBadBlocks", json!([]));
    assert_eq!(
        kept.as_array().unwrap().len(),
        1,
        "its child is not bad itself"
    );
    assert_eq!(kept[0]["hash"], json!(hash));
    let rlp = niwaki_primitives::hex::encode(encode(&bad));
    assert_eq!(kept[0]["rlp"], json!(format!("0x{rlp}")));
    assert_eq!(kept[0]["block"]["stateRoot"], json!(B256::repeat_byte(7)));
    let transactions = kept[0]["block"]["transactions"].as_array().unwrap();
    assert_eq!(transactions.len(), bad.body.transactions.len());
    assert!(transactions.iter().all(|tx| tx["from"].is_string()));
}

#[test]
fn a_replayed_block_becomes_the_head() {
    let rig = whole();
    for block in ["0x36", "0x20", "0x1"] {
        assert_eq!(rig.result("debug_replayBlock", json!([block])), "Success");
        assert_eq!(rig.result("eth_blockNumber", json!([])), block);
    }
    assert_eq!(rig.result("debug_getBadBlocks", json!([])), json!([]));
    let (_, words) = rig.refusal("debug_replayBlock", json!(["earliest"]));
    assert_eq!(words, "genesis can't be replayed");
    let (_, words) = rig.refusal("debug_replayBlock", json!(["0x2"]));
    assert_eq!(words, "header not found");
    assert_eq!(rig.refusal("debug_replayBlock", json!([])).0, -32602);
}

#[test]
fn a_block_is_traced_into_a_file_for_each_transaction() {
    let rig = whole();
    let (number, block) = (1..)
        .zip(blocks())
        .find(|(_, block)| block.body.transactions.len() > 1)
        .unwrap();
    let method = "debug_standardTraceBlockToFile";
    let hash = block.header.hash_slow();
    assert!(rig.refusal(method, json!([hash])).1.contains("no folder"));
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().join("traces");
    let operator = rig.dispatcher.backend().operator();
    operator.set_traces_folder(traces.clone());
    let paths = rig.result(method, json!([hash]));
    let paths = paths.as_array().unwrap();
    assert_eq!(paths.len(), block.body.transactions.len());
    let block_name = json!([hex(number), {"disableStorage": true}]);
    let logs = rig.result("debug_traceBlockByNumber", block_name);
    for (path, log) in paths.iter().zip(logs.as_array().unwrap()) {
        let text = std::fs::read_to_string(path.as_str().unwrap()).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let (last, lines) = lines.split_last().unwrap();
        let used = last["gasUsed"].as_str().unwrap().trim_start_matches("0x");
        assert_eq!(
            u64::from_str_radix(used, 16).unwrap(),
            log["result"]["gas"].as_u64().unwrap()
        );
        let want = log["result"]["structLogs"].as_array().unwrap();
        assert_eq!(lines.len(), want.len());
        for (line, want) in lines.iter().zip(want) {
            let names = [
                ("pc", "pc"),
                ("depth", "depth"),
                ("opName", "op"),
                ("stack", "stack"),
            ];
            for (name, of) in names {
                assert_eq!(line[name], want[of], "{line} {want}");
            }
            let gas = format!("{:#x}", want["gas"].as_u64().unwrap());
            assert_eq!(line["gas"], json!(gas));
        }
    }
    let one = block.body.transactions[1].tx_hash();
    let one = rig.result(method, json!([hash, {"txHash": one, "enableMemory": true}]));
    assert_eq!(one.as_array().unwrap().len(), 1);
    let files = std::fs::read_dir(&traces).unwrap().count();
    assert_eq!(files, paths.len() + 1);
    for bad in [json!([B256::ZERO]), json!([hash, {"txHash": B256::ZERO}])] {
        assert!(rig.refusal(method, bad).1.contains("not found"));
    }

    let mut bad = blocks()[number - 1].clone();
    bad.header.gas_used += 1;
    let hash = bad.header.hash_slow();
    let consensus = &rig.dispatcher.backend().consensus;
    let verdict = consensus.new_payload(bad, hash, PayloadHints::default());
    assert!(matches!(verdict, Ok(niwaki_chain::Verdict::Invalid(_))));
    let traced = rig.result("debug_standardTraceBadBlockToFile", json!([hash]));
    assert_eq!(traced.as_array().unwrap().len(), paths.len());
    let unknown = json!([B256::ZERO]);
    let (_, words) = rig.refusal("debug_standardTraceBadBlockToFile", unknown);
    assert!(words.contains("bad block"), "{words}");
}

#[test]
fn set_head_moves_only_to_blocks_with_available_state() {
    let rig = whole();
    let head = rig.result("eth_getBlockByNumber", json!(["latest", false]));
    assert_eq!(rig.result("debug_setHead", json!(["0xa"])), Value::Null);
    assert_eq!(rig.result("eth_blockNumber", json!([])), "0xa");
    assert_eq!(
        rig.refusal("debug_setHead", json!(["0xb"])).1,
        "header not found"
    );
    assert_eq!(
        rig.result("debug_setHead", json!([head["hash"]])),
        Value::Null
    );
    assert_eq!(
        rig.result("eth_getBlockByNumber", json!(["latest", false])),
        head
    );
    let (code, words) = rig.refusal("debug_setHead", json!([B256::repeat_byte(1)]));
    assert_eq!((code, words.as_str()), (-32000, "header not found"));
    assert_eq!(rig.refusal("debug_setHead", json!([])).0, -32602);
}
