//! Recorded Engine API requests through the real port: a folder with `genesis.json`,
//! `newpayload.json`, `headfcu.json` and `headstate.json`, as go-ethereum's `devp2p` tool keeps them
//! for its tests. Every payload must be valid and become the head. Payloads with a tampered block
//! access list (BAL) must be INVALID, with the validation error that names the change.

use crate::client::Client;
use crate::process::{Process, StartOptions};
use clap::Args;
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_primitives::{AccountChanges, Address, BlockAccessList, Bytes, U256, rlp};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct PayloadOptions {
    /// Path of the niwaki binary.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Before every Nth payload with a block access list, send it with lists that were changed; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 16)]
    lies: u64,
    /// Folder with the recorded requests.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Requests sent so far.
#[derive(Debug, Default)]
struct Counts {
    payloads: u64,
    bals: u64,
    tampered: u64,
}

/// Plays the folder against a new node.
///
/// # Errors
/// If a response differs from the expected one.
pub(crate) fn run(options: &PayloadOptions) -> Result<()> {
    let began = Instant::now();
    let requests = read(&options.folder, "newpayload.json")?;
    let requests = requests
        .as_array()
        .ok_or_else(|| eyre!("newpayload.json is not a list of requests"))?;
    let temporary = tempfile::tempdir()?;
    let genesis = options.folder.join("genesis.json");
    let data = temporary.path().join("node");
    let node = Process::start_niwaki(&options.niwaki, data, StartOptions::genesis(&genesis))?;
    let client = &node.client;
    let mut counts = Counts::default();
    for request in requests {
        let payload = &request["params"][0];
        let number = &payload["blockNumber"];
        if number == "0x0" {
            // The genesis block of that chain is a proof-of-work block, which newPayload can't carry.
            client.check_hash("0x0", &payload["blockHash"])?;
            continue;
        }
        play(client, request, options.lies, &mut counts).wrap_err(format!("block {number}"))?;
    }

    let choice = read(&options.folder, "headfcu.json")?;
    let method = choice["method"].as_str().unwrap_or_default();
    let response = client.engine_response(method, choice["params"].clone())?;
    let status = &response["result"]["payloadStatus"]["status"];
    ensure!(status == "VALID", "the head's fork choice: {response}");
    client.check_hash("latest", &choice["params"][0]["headBlockHash"])?;
    let (accounts, slots) = compare_state(client, &read(&options.folder, "headstate.json")?)?;

    println!(
        "payloads through the port: {} VALID, {} of them with a block access list; {} changed lists \
         INVALID; {accounts} accounts and {slots} slots of the head's state equal; {:.0} s",
        counts.payloads,
        counts.bals,
        counts.tampered,
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

/// Sends one payload, which must be valid, and makes its block the head.
fn play(client: &Client, request: &Value, tamper_every: u64, counts: &mut Counts) -> Result<()> {
    let method = request["method"].as_str().unwrap_or_default();
    let params = &request["params"];
    let bal = params[0]["blockAccessList"].as_str();
    if let Some(bal) = bal {
        counts.bals += 1;
        if tamper_every > 0 && counts.bals.is_multiple_of(tamper_every) {
            counts.tampered += send_tampered_bals(client, method, params, bal)?;
        }
    }
    let response = client.engine_response(method, params.clone())?;
    let status = &response["result"]["status"];
    ensure!(status == "VALID", "{method}: {response}");
    counts.payloads += 1;

    let hash = &params[0]["blockHash"];
    let fork_choice = match bal {
        Some(_) => "engine_forkchoiceUpdatedV4",
        None => "engine_forkchoiceUpdatedV3",
    };
    client.make_head(fork_choice, hash)?;

    if let Some(bal) = bal {
        let stored = client.call("debug_getRawBlockAccessList", json!([hash]))?;
        ensure!(stored == bal, "the stored BAL is {stored}, expected {bal}");
        let bodies = client.engine_response("engine_getPayloadBodiesByHashV2", json!([[hash]]))?;
        let got = &bodies["result"][0]["blockAccessList"];
        ensure!(got == bal, "the body's BAL is {got}, expected {bal}");
    }
    Ok(())
}

/// Name, change to the BAL, and text that the validation error must contain.
type Tampering = (&'static str, fn(&mut BlockAccessList), &'static str);

/// A change that only the hash of the BAL reveals.
const BY_HASH: &str = "the hash of the block access list";

const TAMPERINGS: [Tampering; 6] = [
    (
        "an account more",
        |bal| bal.push(AccountChanges::new(Address::repeat_byte(0xff))),
        BY_HASH,
    ),
    (
        "a slot less",
        |bal| {
            let mut reads = bal.iter_mut().map(|account| &mut account.storage_reads);
            if let Some(reads) = reads.find(|reads| !reads.is_empty()) {
                reads.pop();
            }
        },
        BY_HASH,
    ),
    (
        "a slot's value",
        |bal| {
            let mut slots = bal
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
        |bal| {
            let mut accounts = bal.iter_mut();
            let change = accounts.find_map(|account| account.balance_changes.first_mut());
            if let Some(change) = change {
                change.post_balance = change.post_balance.wrapping_add(U256::ONE);
            }
        },
        BY_HASH,
    ),
    (
        "the order of accounts",
        |bal| bal.reverse(),
        "does not come after the one before it",
    ),
    (
        "an index beyond the block",
        |bal| {
            let mut slots = bal
                .iter_mut()
                .flat_map(|account| &mut account.storage_changes);
            if let Some(change) = slots.find_map(|slot| slot.changes.last_mut()) {
                change.block_access_index.0 = u64::from(u32::MAX);
            }
        },
        "the block's last",
    ),
];

/// Sends the payload with tampered BALs, each with the matching block hash. Returns how many.
fn send_tampered_bals(client: &Client, method: &str, params: &Value, bal: &str) -> Result<u64> {
    let bytes: Bytes = bal.parse()?;
    let original: BlockAccessList = rlp::decode_exact(&bytes)?;
    let mut sent = 0;
    for (what, change, message) in TAMPERINGS {
        let mut bal = original.clone();
        change(&mut bal);
        // A block may lack what this tampering changes.
        if bal != original {
            let bal = rlp::encode(&bal);
            check_rejected(client, method, params, &bal, message).wrap_err(what)?;
            sent += 1;
        }
    }
    for bytes in [&[][..], &bytes[..bytes.len() - 1]] {
        check_rejected(client, method, params, bytes, "can't be decoded")?;
        sent += 1;
    }
    Ok(sent)
}

/// Sends the payload with `bal` and checks that it is INVALID with `message` in the validation error.
fn check_rejected(
    client: &Client,
    method: &str,
    params: &Value,
    bal: &[u8],
    message: &str,
) -> Result<()> {
    let mut params = params.clone();
    params[0]["blockAccessList"] = json!(Bytes::copy_from_slice(bal));
    // The first error names the block hash that matches this BAL.
    let response = client.engine_response(method, params.clone())?;
    let reason = response["result"]["validationError"].as_str();
    let reason = reason.ok_or_else(|| eyre!("{response}, expected INVALID"))?;
    if let Some((_, rest)) = reason.split_once("block hash is ") {
        params[0]["blockHash"] = json!(rest.get(..66));
    }
    let response = client.engine_response(method, params)?;
    let result = &response["result"];
    let reason = result["validationError"].as_str().unwrap_or_default();
    ensure!(
        result["status"] == "INVALID" && reason.contains(message),
        "{response}, expected INVALID because '{message}'"
    );
    Ok(())
}

/// Compares every account and slot of `dump` with the head's state. Returns how many of each.
fn compare_state(client: &Client, dump: &Value) -> Result<(u64, u64)> {
    let accounts = dump["accounts"].as_object();
    let accounts = accounts.ok_or_else(|| eyre!("headstate.json has no accounts"))?;
    let expect = |what: String, method: &str, params: Value, expected: &str| -> Result<()> {
        let got = client.call(method, params)?;
        ensure!(got == expected, "{what}: {got}, expected {expected}");
        Ok(())
    };
    let mut slots = 0;
    for (address, account) in accounts {
        let at = || json!([address, "latest"]);
        let balance = account["balance"].as_str().unwrap_or_default();
        let balance = U256::from_str_radix(balance, 10).wrap_err("a balance of headstate.json")?;
        let (what, balance) = (format!("balance of {address}"), format!("{balance:#x}"));
        expect(what, "eth_getBalance", at(), &balance)?;
        let nonce = format!("{:#x}", account["nonce"].as_u64().unwrap_or_default());
        let what = format!("nonce of {address}");
        expect(what, "eth_getTransactionCount", at(), &nonce)?;
        let code = account["code"].as_str().unwrap_or("0x");
        expect(format!("code of {address}"), "eth_getCode", at(), code)?;
        for (slot, value) in account["storage"].as_object().into_iter().flatten() {
            let digits = value.as_str().unwrap_or_default();
            let value = format!("0x{:0>64}", digits.trim_start_matches("0x"));
            let params = json!([address, slot, "latest"]);
            let what = format!("{address} at {slot}");
            expect(what, "eth_getStorageAt", params, &value)?;
            slots += 1;
        }
    }
    Ok((accounts.len() as u64, slots))
}
