//! The output of a transition: result, post-state, and the given transactions.

use super::transition::{Included, TransitionResult};
use crate::chain::{encode_receipt, ordered_root};
use crate::logs_hash::logs_hash;
use alloy_primitives::keccak256;
use niwaki_execution::logs_bloom;
use niwaki_primitives::{Address, B256, Bytes, Encodable2718, Fork, Receipt, Withdrawal, hex, rlp};
use niwaki_rules::requests_hash;
use niwaki_testkit::{MemoryState, state_root};
use serde_json::{Map, Value, json};

fn quantity(value: impl std::fmt::LowerHex) -> Value {
    Value::String(format!("{value:#x}"))
}

/// The result, in the format of go-ethereum's and Besu's.
pub(super) fn result(result: &TransitionResult, fork: Fork) -> Value {
    let TransitionResult { header, block, .. } = result;
    let executed = &block.executed;
    let encoded: Vec<Bytes> = executed.receipts.iter().map(encode_receipt).collect();
    let transactions = block.included.iter();
    let transactions: Vec<Bytes> = transactions
        .map(|one| one.tx.encoded_2718().into())
        .collect();
    let logs = executed.receipts.iter().flat_map(|receipt| &receipt.logs);
    let logs: Vec<_> = logs.cloned().collect();
    let difficulty = Some(result.difficulty).filter(|difficulty| !difficulty.is_zero());
    let mut document = json!({
        "stateRoot": state_root(&result.state),
        "txRoot": ordered_root(&transactions),
        "receiptsRoot": ordered_root(&encoded),
        "logsHash": logs_hash(&logs),
        "logsBloom": logs_bloom(&executed.receipts),
        "receipts": receipts(result),
        "currentDifficulty": difficulty.map(quantity),
        "gasUsed": quantity(executed.gas_used),
    });
    let mut set = |name: &str, value: Value| document[name] = value;
    if !block.rejected.is_empty() {
        let rejected = block.rejected.iter();
        let rejected = rejected.map(|(index, error)| json!({ "index": index, "error": error }));
        set("rejected", rejected.collect());
    }
    if let Some(exception) = block.exception {
        set("exception", json!(exception));
    }
    if let Some(fee) = header.base_fee_per_gas {
        set("currentBaseFee", quantity(fee));
    }
    if let Some(withdrawals) = &result.withdrawals {
        set("withdrawalsRoot", json!(withdrawals_root(withdrawals)));
    }
    if let Some(excess) = header.excess_blob_gas {
        set("currentExcessBlobGas", quantity(excess));
        set("blobGasUsed", quantity(executed.blob_gas_used));
    }
    if fork >= Fork::Prague {
        set("requestsHash", json!(requests_hash(&executed.requests)));
        set("requests", json!(executed.requests));
    }
    if let Some(list) = &executed.block_access_list {
        let list = rlp::encode(list);
        set("blockAccessListHash", json!(keccak256(&list)));
        set("blockAccessList", json!(Bytes::from(list)));
    }
    document
}

fn withdrawals_root(withdrawals: &[Withdrawal]) -> B256 {
    let encoded: Vec<Bytes> = withdrawals.iter().map(|w| rlp::encode(w).into()).collect();
    ordered_root(&encoded)
}

fn receipts(result: &TransitionResult) -> Value {
    let mut first_log = 0;
    let receipts = &result.block.executed.receipts;
    let of_each = result.block.included.iter().zip(receipts).enumerate();
    let shown = of_each.map(|(index, (included, receipt))| {
        let logs = logs(result, index, included, receipt, first_log);
        first_log += receipt.logs.len();
        json!({
            "root": receipt.post_state.map_or_else(|| "0x".to_owned(), |root| root.to_string()),
            "status": quantity(u8::from(receipt.status == Some(true))),
            "cumulativeGasUsed": quantity(receipt.cumulative_gas_used),
            "logsBloom": receipt.bloom(),
            "logs": logs,
            "transactionHash": included.tx.tx_hash(),
            "contractAddress": included.created.unwrap_or(Address::ZERO),
            "gasUsed": quantity(included.gas_used),
            "blockHash": B256::ZERO,
            "transactionIndex": quantity(index),
        })
    });
    shown.collect()
}

/// The logs of a receipt, numbered from `first` on; null if there are none.
fn logs(
    result: &TransitionResult,
    index: usize,
    included: &Included,
    receipt: &Receipt,
    first: usize,
) -> Value {
    if receipt.logs.is_empty() {
        return Value::Null;
    }
    let shown = receipt.logs.iter().zip(first..).map(|(log, at)| {
        json!({
            "address": log.address,
            "topics": log.data.topics(),
            "data": log.data.data,
            "blockNumber": quantity(result.header.number),
            "transactionHash": included.tx.tx_hash(),
            "transactionIndex": quantity(index),
            "blockHash": B256::ZERO,
            "logIndex": quantity(at),
            "removed": false,
        })
    });
    shown.collect()
}

/// The state as an alloc, without zero and empty fields except balances.
pub(crate) fn alloc(state: &MemoryState) -> Value {
    let accounts = state.accounts.iter().map(|(address, account)| {
        let mut fields = Map::new();
        fields.insert("balance".to_owned(), quantity(account.balance));
        if account.nonce > 0 {
            fields.insert("nonce".to_owned(), quantity(account.nonce));
        }
        if !account.code.is_empty() {
            let code = hex::encode_prefixed(&**account.code);
            fields.insert("code".to_owned(), Value::String(code));
        }
        if !account.storage.is_empty() {
            let slots = account.storage.iter();
            let slots = slots
                .map(|(slot, value)| (B256::from(*slot).to_string(), json!(B256::from(*value))));
            fields.insert("storage".to_owned(), Value::Object(slots.collect()));
        }
        (address.to_string().to_lowercase(), Value::Object(fields))
    });
    Value::Object(accounts.collect())
}

/// The given transactions, included or not, as a list in RLP, in hex.
pub(super) fn body(result: &TransitionResult) -> Value {
    let mut out = Vec::new();
    alloy_rlp::encode_list(&result.block.given, &mut out);
    Value::String(hex::encode_prefixed(out))
}
