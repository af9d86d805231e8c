//! The genesis file of the devnet: Osaka from the first block, with the system contracts and funded
//! accounts of known keys.

use crate::accounts::{Account, CONTRACT};
use eyre::Result;
use niwaki_primitives::Fork;
use niwaki_testkit::genesis::{config, contract, system_contracts};
use serde_json::{Value, json};

/// Seconds; the first block is one slot later.
pub(crate) const GENESIS_TIME: u64 = 1_790_000_000;
/// Seconds between slots.
pub(crate) const SLOT_S: u64 = 4;
pub(crate) const CHAIN_ID: u64 = 7_014;

/// Mainnet's until 2025.
pub(crate) const GAS_LIMIT: u64 = 36_000_000;

/// A contract that adds the call's value to a counter and logs it, or reverts if the input begins with 0xff.
const COUNTER: &str = "0x60003560f81c60ff14601e5734600054018060005560005260206000a0005b60006000fd";

/// `genesis` with Amsterdam activated at `time`, seconds.
pub(crate) fn with_amsterdam(genesis: &str, time: u64) -> Result<String> {
    let mut genesis: Value = serde_json::from_str(genesis)?;
    genesis["config"]["amsterdamTime"] = Value::from(time);
    Ok(genesis.to_string())
}

/// The genesis file, in the form that niwaki and geth both read.
pub(crate) fn genesis(accounts: &[Account], gas_limit: u64) -> String {
    let mut alloc = serde_json::Map::new();
    for account in accounts {
        let balance = json!({ "balance": "0x200000000000000000000000000000000000000000000" });
        alloc.insert(account.key.address.to_string(), balance);
    }
    for (address, code) in system_contracts() {
        alloc.insert(address.to_string(), contract(code));
    }
    let counter = json!({ "balance": "0x0", "nonce": "0x1", "code": COUNTER });
    alloc.insert(CONTRACT.to_string(), counter);
    let genesis = json!({
        "config": config(CHAIN_ID, Fork::Osaka, GENESIS_TIME),
        "alloc": alloc,
        "nonce": "0x0",
        "timestamp": format!("{GENESIS_TIME:#x}"),
        "extraData": "0x",
        "gasLimit": format!("{gas_limit:#x}"),
        "difficulty": "0x0",
        "mixHash": "0x0000000000000000000000000000000000000000000000000000000000000000",
        "coinbase": "0x0000000000000000000000000000000000000000",
        "baseFeePerGas": "0x3b9aca00",
        "excessBlobGas": "0x0",
        "blobGasUsed": "0x0",
    });
    genesis.to_string()
}
