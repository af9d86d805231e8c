//! Runs blocks by go-ethereum's `evm t8n`, one process per block.

use super::{BlockCase, Done, Verdict};
use crate::case::CHAIN_ID;
use crate::state_test::{alloc, quantity};
use niwaki_primitives::{Address, B256, Bloom, Bytes, Log, Receipt, TxEnvelope, U256, hex, rlp};
use niwaki_testkit::{MemoryAccount, MemoryState};
use serde_json::{Map, Value, json};
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The program, and the folder of cases that differ.
#[derive(Clone, Debug)]
pub struct T8n {
    program: PathBuf,
    folder: PathBuf,
}

/// JSON of the program that does not have the documented format.
#[derive(Debug)]
struct Malformed(&'static str);

impl T8n {
    /// The program at `program`; cases that differ are written to folders in `folder`.
    pub fn new(program: PathBuf, folder: PathBuf) -> Self {
        Self { program, folder }
    }

    /// Its result for a block.
    ///
    /// # Panics
    /// If the program can't be run or its output can't be read, since nothing was compared then.
    pub(crate) fn run(&self, case: &BlockCase) -> Verdict {
        match self.call(case, "") {
            Ok(output) => {
                let done = done(&output["result"]);
                Verdict::Done(Box::new(done.unwrap_or_else(|Malformed(what)| {
                    panic!("{what} in {output} is not as documented")
                })))
            }
            Err(message) => {
                assert!(
                    message.contains("post-execution"),
                    "{} could not run the case: {message}",
                    self.program.display()
                );
                Verdict::Invalid(message)
            }
        }
    }

    /// The state after a block.
    pub(crate) fn post_state(&self, case: &BlockCase) -> MemoryState {
        let output = self.call(case, "stdout").unwrap_or_default();
        let mut state = MemoryState::default();
        for (address, account) in output["alloc"].as_object().into_iter().flatten() {
            if let (Ok(address), Some(account)) = (address.parse(), read_account(account)) {
                state.insert(address, account);
            }
        }
        state
    }

    /// Runs the program; the error is its standard error.
    fn call(&self, case: &BlockCase, alloc_to: &str) -> Result<Value, String> {
        let mut child = Command::new(&self.program)
            .args(["--verbosity", "0", "t8n", "--state.reward", "-1"])
            .args(["--state.fork", case.fork.name()])
            .args(["--state.chainid", &CHAIN_ID.to_string()])
            .args(["--input.alloc", "stdin", "--input.env", "stdin"])
            .args(["--input.txs", "stdin", "--output.result", "stdout"])
            .args(["--output.alloc", alloc_to, "--output.body", ""])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let input = json!({
            "alloc": alloc(&case.state),
            "env": env(case),
            "txsRlp": transactions(case),
        });
        let mut stdin = child.stdin.take().expect("piped");
        // Standard error says why the program ended early.
        drop(stdin.write_all(input.to_string().as_bytes()));
        drop(stdin);
        let output = child.wait_with_output().expect("a child can be waited for");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("no JSON: {error}"))
    }

    /// Writes the three files of a case; returns how to run them.
    pub(crate) fn keep(&self, seed: u64, case: &BlockCase) -> String {
        let folder = self
            .folder
            .join(format!("t8n-{}-{seed}", case.fork.name().to_lowercase()));
        let files = [
            ("alloc.json", alloc(&case.state)),
            ("env.json", env(case)),
            ("txs.rlp", transactions(case)),
        ];
        let write = |folder: &Path| -> std::io::Result<()> {
            std::fs::create_dir_all(folder)?;
            for (name, value) in &files {
                std::fs::write(folder.join(name), format!("{value:#}"))?;
            }
            Ok(())
        };
        match write(&folder) {
            Err(error) => format!("{} could not be written: {error}", folder.display()),
            Ok(()) => format!(
                "cd {}; {} t8n --state.fork {} --state.chainid {CHAIN_ID} --state.reward -1 \
                 --input.txs txs.rlp --output.result stdout --output.alloc stdout --trace",
                folder.display(),
                self.program.display(),
                case.fork.name()
            ),
        }
    }
}

fn env(case: &BlockCase) -> Value {
    let header = &case.header;
    let hashes: Map<String, Value> = case
        .state
        .block_hashes
        .iter()
        .map(|(number, hash)| (number.to_string(), json!(hash)))
        .collect();
    let withdrawals: Vec<Value> = case
        .withdrawals
        .iter()
        .map(|withdrawal| {
            json!({
                "index": quantity(withdrawal.index),
                "validatorIndex": quantity(withdrawal.validator_index),
                "address": withdrawal.address,
                "amount": quantity(withdrawal.amount),
            })
        })
        .collect();
    let mut env = json!({
        "currentCoinbase": header.beneficiary,
        "currentGasLimit": quantity(header.gas_limit),
        "currentNumber": quantity(header.number),
        "currentTimestamp": quantity(header.timestamp),
        "currentRandom": header.mix_hash,
        "currentDifficulty": "0x0",
        "currentBaseFee": quantity(header.base_fee_per_gas.unwrap_or(0)),
        "currentExcessBlobGas": quantity(header.excess_blob_gas.unwrap_or(0)),
        "parentBeaconBlockRoot": header.parent_beacon_block_root,
        "withdrawals": withdrawals,
        "blockHashes": hashes,
    });
    if let Some(slot) = header.slot_number {
        env["slotNumber"] = quantity(slot);
    }
    env
}

/// The signed transactions as an RLP list in hex.
fn transactions(case: &BlockCase) -> Value {
    let signed: Vec<&TxEnvelope> = case.transactions.iter().map(|(tx, _)| tx).collect();
    Value::String(hex::encode_prefixed(rlp::encode(&signed)))
}

fn read_account(value: &Value) -> Option<MemoryAccount> {
    let word = |value: &Value| value.as_str()?.parse::<U256>().ok();
    let storage = value["storage"].as_object().into_iter().flatten();
    Some(MemoryAccount {
        nonce: read_u64(&value["nonce"]).unwrap_or(0),
        balance: word(&value["balance"])?,
        code: read::<Bytes>(&value["code"]).unwrap_or_default().into(),
        storage: storage
            .filter_map(|(slot, value)| Some((slot.parse().ok()?, word(value)?)))
            .collect(),
    })
}

fn read<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str()?.parse().ok()
}

fn read_u64(value: &Value) -> Option<u64> {
    u64::try_from(read::<U256>(value)?).ok()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn done(result: &Value) -> Result<Done, Malformed> {
    let refused = list(&result["rejected"]).map(|refusal| {
        let index = refusal["index"].as_u64().ok_or(Malformed("index"))?;
        usize::try_from(index).map_err(|_| Malformed("index"))
    });
    let blooms = list(&result["receipts"])
        .map(|receipt| read::<Bloom>(&receipt["logsBloom"]).ok_or(Malformed("logsBloom")));
    let requests = list(&result["requests"]).map(|r| read(r).ok_or(Malformed("requests")));
    let block_access_list: Option<Bytes> = read(&result["blockAccessList"]);
    if let Some(bytes) = &block_access_list {
        let hash = read(&result["blockAccessListHash"]);
        assert_eq!(hash, Some(alloy_primitives::keccak256(bytes)), "their hash");
    }
    Ok(Done {
        refused: refused.collect::<Result<_, _>>()?,
        receipts: list(&result["receipts"])
            .map(receipt)
            .collect::<Result<_, _>>()?,
        receipt_blooms: blooms.collect::<Result<_, _>>()?,
        logs_bloom: read(&result["logsBloom"]).ok_or(Malformed("logsBloom"))?,
        gas_used: read_u64(&result["gasUsed"]).ok_or(Malformed("gasUsed"))?,
        blob_gas_used: read_u64(&result["blobGasUsed"]).ok_or(Malformed("blobGasUsed"))?,
        requests: requests.collect::<Result<_, _>>()?,
        state_root: read(&result["stateRoot"]).ok_or(Malformed("stateRoot"))?,
        block_access_list,
    })
}

fn receipt(value: &Value) -> Result<Receipt, Malformed> {
    let logs = list(&value["logs"]).map(|log| {
        let topics = list(&log["topics"]).map(read::<B256>);
        Log::new(
            read::<Address>(&log["address"])?,
            topics.collect::<Option<_>>()?,
            read(&log["data"])?,
        )
    });
    let tx_type = read_u64(&value["type"]).unwrap_or(0);
    Ok(Receipt {
        tx_type: u8::try_from(tx_type).map_err(|_| Malformed("type"))?,
        status: Some(read_u64(&value["status"]).ok_or(Malformed("status"))? == 1),
        post_state: None,
        cumulative_gas_used: read_u64(&value["cumulativeGasUsed"])
            .ok_or(Malformed("cumulativeGasUsed"))?,
        logs: logs.collect::<Option<_>>().ok_or(Malformed("logs"))?,
    })
}
