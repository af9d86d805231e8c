//! The chain that is played on: Osaka from the first block, with the system contracts and accounts
//! of known keys.

use crate::accounts::{Account, CONTRACT};
use eyre::Result;
use serde_json::{Value, json};

/// Seconds; the first block comes a slot later.
pub(crate) const GENESIS_TIME: u64 = 1_790_000_000;
/// Seconds between slots.
pub(crate) const SLOT_S: u64 = 4;
pub(crate) const CHAIN_ID: u64 = 7_014;

/// As mainnet had it until 2025.
pub(crate) const GAS_LIMIT: u64 = 36_000_000;

/// The forks that begin at a block, by their names in a genesis file.
pub(crate) const BLOCK_FORKS: [&str; 11] = [
    "homestead",
    "eip150",
    "eip155",
    "eip158",
    "byzantium",
    "constantinople",
    "petersburg",
    "istanbul",
    "berlin",
    "london",
    "mergeNetsplit",
];

/// Adds the call's value to a counter, logs it, and reverts where the first byte of the input is 0xff.
const COUNTER: &str = "0x60003560f81c60ff14601e5734600054018060005560005260206000a0005b60006000fd";

/// The system contracts as EIP-4788, EIP-2935, EIP-7002 and EIP-7251 give their code.
const SYSTEM: [(&str, &str); 4] = [
    (
        "000f3df6d732807ef1319fb7b8bb8522d0beac02",
        "3373fffffffffffffffffffffffffffffffffffffffe14604d57602036146024575f5ffd5b5f35801560495762001fff810690815414603c575f5ffd5b62001fff01545f5260205ff35b5f5ffd5b62001fff42064281555f359062001fff015500",
    ),
    (
        "0000f90827f1c53a10cb7a02335b175320002935",
        "3373fffffffffffffffffffffffffffffffffffffffe14604657602036036042575f35600143038111604257611fff81430311604257611fff9006545f5260205ff35b5f5ffd5b5f35611fff60014303065500",
    ),
    (
        "00000961ef480eb55e80d19ad83579a64c007002",
        include_str!("../code/withdrawal_requests.hex"),
    ),
    (
        "0000bbddc7ce488642fb579f8b00f3a590007251",
        include_str!("../code/consolidation_requests.hex"),
    ),
];

/// The contracts of EIP-8282, which every block of Amsterdam calls.
const BUILDERS: [(&str, &str); 2] = [
    (
        "0000bff46984e3725691fa540a8c7589300d8282",
        include_str!("../code/builder_deposits.hex"),
    ),
    (
        "000064d678505ad48f8ccb093bc65613800e8282",
        include_str!("../code/builder_exits.hex"),
    ),
];

/// The genesis file with Amsterdam from a time on, seconds.
pub(crate) fn with_amsterdam(genesis: &str, time: u64) -> Result<String> {
    let mut genesis: Value = serde_json::from_str(genesis)?;
    genesis["config"]["amsterdamTime"] = Value::from(time);
    for (address, code) in BUILDERS {
        let code = format!("0x{}", code.trim());
        genesis["alloc"][address] = json!({ "balance": "0x0", "nonce": "0x1", "code": code });
    }
    Ok(genesis.to_string())
}

/// The genesis file that both clients read.
pub(crate) fn genesis(accounts: &[Account], gas_limit: u64) -> String {
    let mut alloc = serde_json::Map::new();
    for account in accounts {
        let balance = json!({ "balance": "0x200000000000000000000000000000000000000000000" });
        alloc.insert(account.address.to_string(), balance);
    }
    for (address, code) in SYSTEM {
        let code = format!("0x{}", code.trim());
        alloc.insert(
            address.to_owned(),
            json!({ "balance": "0x0", "nonce": "0x1", "code": code }),
        );
    }
    let counter = json!({ "balance": "0x0", "nonce": "0x1", "code": COUNTER });
    alloc.insert(CONTRACT.to_string(), counter);
    let blobs = |target: u64, max: u64, fraction: u64| json!({ "target": target, "max": max, "baseFeeUpdateFraction": fraction });
    let mut config = json!({
        "chainId": CHAIN_ID,
        "terminalTotalDifficulty": 0,
        "depositContractAddress": "0x00000000219ab540356cbb839cbe05303d7705fa",
        "blobSchedule": {
            "cancun": blobs(3, 6, 3_338_477),
            "prague": blobs(6, 9, 5_007_716),
            "osaka": blobs(6, 9, 5_007_716),
        },
    });
    for fork in BLOCK_FORKS {
        config[format!("{fork}Block")] = Value::from(0);
    }
    for fork in ["shanghai", "cancun", "prague", "osaka"] {
        config[format!("{fork}Time")] = Value::from(GENESIS_TIME);
    }
    let genesis = json!({
        "config": config,
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
