//! The requests that a consensus client sent to another client, through the real port: a folder
//! with `genesis.json`, `newpayload.json`, `headfcu.json` and `headstate.json`, as go-ethereum's
//! `devp2p` tool keeps them for its tests. Every payload must be valid and every block the head;
//! blocks whose block access list lies must be invalid, for the right reason.

use crate::client::Client;
use crate::process::{Given, Kind, Process};
use clap::Args;
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_primitives::{AccountChanges, Address, BlockAccessList, Bytes, U256, rlp};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct PayloadOptions {
    /// The binary of niwaki.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Before every Nth payload with a block access list, send it with lists that lie; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 16)]
    lies: u64,
    /// The folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// How much was played.
#[derive(Debug, Default)]
struct Played {
    payloads: u64,
    lists: u64,
    lies: u64,
}

/// Runs as the options say; fails if anything is answered otherwise than it must be.
pub(crate) fn run(options: &PayloadOptions) -> Result<()> {
    let began = Instant::now();
    let requests = read(&options.folder, "newpayload.json")?;
    let requests = requests
        .as_array()
        .ok_or_else(|| eyre!("newpayload.json is no list of requests"))?;
    let place = tempfile::tempdir()?;
    let genesis = options.folder.join("genesis.json");
    let node = Process::start(
        Kind::Niwaki,
        "niwaki",
        &std::path::absolute(&options.niwaki)?,
        place.path().join("node"),
        Given::genesis(&genesis),
    )?;
    let client = &node.client;
    let mut played = Played::default();
    for request in requests {
        let payload = &request["params"][0];
        let number = &payload["blockNumber"];
        if number == "0x0" {
            // The genesis block of that chain is one of proof of work, which no payload can be.
            let first = client.ask("eth_getBlockByNumber", json!(["0x0", false]))?;
            let want = &payload["blockHash"];
            ensure!(
                first["hash"] == *want,
                "genesis {}, want {want}",
                first["hash"]
            );
            continue;
        }
        play(client, request, options.lies, &mut played).wrap_err(format!("block {number}"))?;
    }

    let choice = read(&options.folder, "headfcu.json")?;
    let method = choice["method"].as_str().unwrap_or_default();
    let answer = client.drive_raw(method, choice["params"].clone())?;
    let status = &answer["result"]["payloadStatus"]["status"];
    ensure!(status == "VALID", "the head's fork choice: {answer}");
    let head = client.ask("eth_getBlockByNumber", json!(["latest", false]))?;
    let want = &choice["params"][0]["headBlockHash"];
    ensure!(head["hash"] == *want, "head {}, want {want}", head["hash"]);
    let (accounts, slots) = compare_state(client, &read(&options.folder, "headstate.json")?)?;

    println!(
        "payloads through the port: {} VALID, {} of them with a block access list; {} lying lists \
         INVALID; {accounts} accounts and {slots} slots of the head's state equal; {:.0} s",
        played.payloads,
        played.lists,
        played.lies,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

fn read(folder: &Path, name: &str) -> Result<Value> {
    let path = folder.join(name);
    let at = || format!("{} is needed", path.display());
    let text = std::fs::read_to_string(&path).wrap_err_with(at)?;
    serde_json::from_str(&text).wrap_err_with(at)
}

/// Gives the node one payload, which must be valid, and makes its block the head.
fn play(client: &Client, request: &Value, every: u64, played: &mut Played) -> Result<()> {
    let method = request["method"].as_str().unwrap_or_default();
    let params = &request["params"];
    let list = params[0]["blockAccessList"].as_str();
    if let Some(list) = list {
        played.lists += 1;
        if every > 0 && played.lists.is_multiple_of(every) {
            played.lies += lie(client, method, params, list)?;
        }
    }
    let answer = client.drive_raw(method, params.clone())?;
    let status = &answer["result"]["status"];
    ensure!(status == "VALID", "{method}: {answer}");
    played.payloads += 1;

    let hash = &params[0]["blockHash"];
    let zero = format!("0x{}", "0".repeat(64));
    let state = json!({ "headBlockHash": hash, "safeBlockHash": zero, "finalizedBlockHash": zero });
    let choose = match list {
        Some(_) => "engine_forkchoiceUpdatedV4",
        None => "engine_forkchoiceUpdatedV3",
    };
    let answer = client.drive_raw(choose, json!([state, null]))?;
    let status = &answer["result"]["payloadStatus"]["status"];
    ensure!(status == "VALID", "{choose}: {answer}");

    if let Some(list) = list {
        let stored = client.ask("debug_getRawBlockAccessList", json!([hash]))?;
        ensure!(stored == list, "the stored list is {stored}, want {list}");
        let bodies = client.drive_raw("engine_getPayloadBodiesByHashV2", json!([[hash]]))?;
        let got = &bodies["result"][0]["blockAccessList"];
        ensure!(got == list, "the body's list is {got}, want {list}");
    }
    Ok(())
}

/// What is made of a list, and the words that the refusal must contain.
type Lie = (&'static str, fn(&mut BlockAccessList), &'static str);

const BY_HASH: &str = "the hash of the block access list";

const LIES: [Lie; 6] = [
    (
        "an account more",
        |list| list.push(AccountChanges::new(Address::repeat_byte(0xff))),
        BY_HASH,
    ),
    (
        "a slot less",
        |list| {
            let mut reads = list.iter_mut().map(|account| &mut account.storage_reads);
            if let Some(reads) = reads.find(|reads| !reads.is_empty()) {
                reads.pop();
            }
        },
        BY_HASH,
    ),
    (
        "a slot's value",
        |list| {
            let mut slots = list
                .iter_mut()
                .flat_map(|account| &mut account.storage_changes);
            if let Some(change) = slots.find_map(|slot| slot.changes.first_mut()) {
                change.new_value = change.new_value.wrapping_add(U256::ONE);
            }
        },
        BY_HASH,
    ),
    (
        "a balance",
        |list| {
            let mut accounts = list.iter_mut();
            let change = accounts.find_map(|account| account.balance_changes.first_mut());
            if let Some(change) = change {
                change.post_balance = change.post_balance.wrapping_add(U256::ONE);
            }
        },
        BY_HASH,
    ),
    (
        "the order of accounts",
        |list| list.reverse(),
        "does not come after the one before it",
    ),
    (
        "an index beyond the block",
        |list| {
            let mut slots = list
                .iter_mut()
                .flat_map(|account| &mut account.storage_changes);
            if let Some(change) = slots.find_map(|slot| slot.changes.last_mut()) {
                change.block_access_index.0 = u64::from(u32::MAX);
            }
        },
        "the block's last",
    ),
];

/// Sends the payload with lists that are not its own, each under the hash that it makes; how many.
fn lie(client: &Client, method: &str, params: &Value, list: &str) -> Result<u64> {
    let bytes: Bytes = list.parse()?;
    let honest: BlockAccessList = rlp::decode_exact(&bytes)?;
    let mut lies = 0;
    for (what, change, says) in LIES {
        let mut list = honest.clone();
        change(&mut list);
        // A block may have nothing that could be changed so.
        if list != honest {
            let list = rlp::encode(&list);
            refused(client, method, params, &list, says).wrap_err(what)?;
            lies += 1;
        }
    }
    for bytes in [&[][..], &bytes[..bytes.len() - 1]] {
        refused(client, method, params, bytes, "can't be decoded")?;
        lies += 1;
    }
    Ok(lies)
}

fn refused(client: &Client, method: &str, params: &Value, list: &[u8], says: &str) -> Result<()> {
    let mut params = params.clone();
    params[0]["blockAccessList"] = json!(Bytes::copy_from_slice(list));
    // The refusal of a hash that does not fit says which one would.
    let answer = client.drive_raw(method, params.clone())?;
    let reason = answer["result"]["validationError"].as_str();
    let reason = reason.ok_or_else(|| eyre!("{answer}, want INVALID"))?;
    if let Some((_, rest)) = reason.split_once("block hash is ") {
        params[0]["blockHash"] = json!(rest.get(..66));
    }
    let answer = client.drive_raw(method, params)?;
    let result = &answer["result"];
    let reason = result["validationError"].as_str().unwrap_or_default();
    ensure!(
        result["status"] == "INVALID" && reason.contains(says),
        "{answer}, want INVALID because '{says}'"
    );
    Ok(())
}

/// Every account and slot of a dump of the head's state; how many.
fn compare_state(client: &Client, dump: &Value) -> Result<(u64, u64)> {
    let accounts = dump["accounts"].as_object();
    let accounts = accounts.ok_or_else(|| eyre!("headstate.json has no accounts"))?;
    let mut slots = 0;
    for (address, account) in accounts {
        let balance = client.ask("eth_getBalance", json!([address, "latest"]))?;
        let want = account["balance"].as_str().unwrap_or_default();
        let want = U256::from_str_radix(want, 10).wrap_err("a balance of headstate.json")?;
        ensure!(
            balance == format!("{want:#x}"),
            "balance of {address}: {balance}, want {want:#x}"
        );
        let nonce = client.ask("eth_getTransactionCount", json!([address, "latest"]))?;
        let want = format!("{:#x}", account["nonce"].as_u64().unwrap_or_default());
        ensure!(nonce == want, "nonce of {address}: {nonce}, want {want}");
        let code = client.ask("eth_getCode", json!([address, "latest"]))?;
        let want = account["code"].as_str().unwrap_or("0x");
        ensure!(code == want, "code of {address}: {code}, want {want}");
        for (slot, value) in account["storage"].as_object().into_iter().flatten() {
            let got = client.ask("eth_getStorageAt", json!([address, slot, "latest"]))?;
            let digits = value.as_str().unwrap_or_default();
            let want = format!("0x{:0>64}", digits.trim_start_matches("0x"));
            ensure!(got == want, "{address} at {slot}: {got}, want {want}");
            slots += 1;
        }
    }
    Ok((accounts.len() as u64, slots))
}
