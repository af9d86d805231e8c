//! A case as a state test: the JSON that `niwaki-evm state-test` and go-ethereum's `evm statetest`
//! read.

use crate::case::Case;
use crate::trace::run;
use alloy_primitives::keccak256;
use niwaki_primitives::{B256, Fork, Transaction, TxEnvelope, hex, rlp};
use niwaki_testkit::{MemoryState, state_root};
use serde_json::{Map, Value, json};

pub(crate) fn quantity(value: impl std::fmt::LowerHex) -> Value {
    Value::String(format!("{value:#x}"))
}

/// Accounts by address.
pub(crate) fn alloc(state: &MemoryState) -> Value {
    let accounts = state.accounts.iter().map(|(address, account)| {
        let storage: Map<String, Value> = account
            .storage
            .iter()
            .map(|(slot, value)| (B256::from(*slot).to_string(), json!(B256::from(*value))))
            .collect();
        let account = json!({
            "nonce": quantity(account.nonce),
            "balance": quantity(account.balance),
            "code": hex::encode_prefixed(&**account.code),
            "storage": storage,
        });
        (address.to_string(), account)
    });
    Value::Object(accounts.collect())
}

/// The name of a fork in fixtures.
fn fork_name(fork: Fork) -> &'static str {
    match fork {
        Fork::TangerineWhistle => "EIP150",
        Fork::SpuriousDragon => "EIP158",
        Fork::Petersburg => "ConstantinopleFix",
        other => other.name(),
    }
}

fn env(case: &Case) -> Value {
    let header = &case.header;
    let mut env = json!({
        "currentCoinbase": header.beneficiary,
        "currentGasLimit": quantity(header.gas_limit),
        "currentNumber": quantity(header.number),
        "currentTimestamp": quantity(header.timestamp),
        "currentDifficulty": quantity(header.difficulty),
    });
    if case.fork >= Fork::Paris {
        env["currentRandom"] = json!(header.mix_hash);
    }
    for (name, value) in [
        ("currentBaseFee", header.base_fee_per_gas),
        ("currentExcessBlobGas", header.excess_blob_gas),
        ("slotNumber", header.slot_number),
    ] {
        if let Some(value) = value {
            env[name] = quantity(value);
        }
    }
    env
}

fn transaction(case: &Case) -> Value {
    let (tx, sender) = case.transactions.first().expect("a case has a transaction");
    let mut fields = json!({
        "nonce": quantity(tx.nonce()),
        "gasLimit": [quantity(tx.gas_limit())],
        "to": tx.to().map_or(String::new(), |to| to.to_string()),
        "value": [quantity(tx.value())],
        "data": [hex::encode_prefixed(tx.input())],
        "sender": sender,
    });
    let mut set = |name: &str, value: Value| fields[name] = value;
    match tx.gas_price() {
        Some(price) => set("gasPrice", quantity(price)),
        None => {
            set("maxFeePerGas", quantity(tx.max_fee_per_gas()));
            let tip = tx.max_priority_fee_per_gas().unwrap_or(0);
            set("maxPriorityFeePerGas", quantity(tip));
        }
    }
    if let Some(list) = tx.access_list() {
        set("accessLists", json!([list]));
    }
    if let (Some(hashes), Some(fee)) = (tx.blob_versioned_hashes(), tx.max_fee_per_blob_gas()) {
        set("blobVersionedHashes", json!(hashes));
        set("maxFeePerBlobGas", quantity(fee));
    }
    if let TxEnvelope::Eip7702(signed) = tx {
        let list = signed.tx().authorization_list.iter().map(|signed| {
            json!({
                "chainId": quantity(signed.chain_id), "address": signed.address,
                "nonce": quantity(signed.nonce), "v": quantity(signed.y_parity()),
                "r": quantity(signed.r()), "s": quantity(signed.s()),
            })
        });
        set("authorizationList", list.collect());
    }
    fields
}

/// The state test `name` of the first transaction of the case, which expects the result that it has here.
pub fn state_test(name: &str, case: &Case) -> Value {
    let (result, state) = run(case, None);
    let mut post = json!({
        "hash": state_root(&state),
        "logs": keccak256(rlp::encode(result.as_ref().map_or(&vec![], |done| &done.logs))),
        "indexes": { "data": 0, "gas": 0, "value": 0 },
    });
    if let Err(reason) = result {
        post["expectException"] = json!(format!("TransactionException.{reason}"));
    }
    json!({ name: with_post(case, &post) })
}

/// The same without running it, with an expectation that nothing meets.
pub(crate) fn without_expectation(name: &str, case: &Case) -> Value {
    let post = json!({
        "hash": B256::repeat_byte(1), "logs": B256::ZERO,
        "indexes": { "data": 0, "gas": 0, "value": 0 },
    });
    json!({ name: with_post(case, &post) })
}

fn with_post(case: &Case, post: &Value) -> Value {
    json!({
        "env": env(case),
        "pre": alloc(&case.state),
        "transaction": transaction(case),
        "post": { fork_name(case.fork): [post] },
    })
}
