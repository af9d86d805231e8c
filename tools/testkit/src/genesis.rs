//! Chain configs and system contracts for generated genesis files.

use niwaki_primitives::{Address, Bytes, Fork};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Forks that activate at a block number, by their names in a genesis file.
pub const BLOCK_FORKS: [&str; 11] = [
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

/// Forks that activate at a timestamp, with the blob schedule from then on: target, max and base fee update fraction.
const TIME_FORKS: [(Fork, &str, Option<[u64; 3]>); 5] = [
    (Fork::Shanghai, "shanghai", None),
    (Fork::Cancun, "cancun", Some([3, 6, 3_338_477])),
    (Fork::Prague, "prague", Some([6, 9, 5_007_716])),
    (Fork::Osaka, "osaka", Some([6, 9, 5_007_716])),
    (Fork::Amsterdam, "amsterdam", Some([6, 9, 5_007_716])),
];

/// The `config` of a genesis file with every fork up to `fork`; forks by timestamp activate at `time`, seconds.
pub fn config(chain_id: u64, fork: Fork, time: u64) -> Value {
    let mut config = json!({
        "chainId": chain_id,
        "terminalTotalDifficulty": 0,
        "depositContractAddress": "0x00000000219ab540356cbb839cbe05303d7705fa",
        "blobSchedule": {},
    });
    for name in BLOCK_FORKS {
        config[format!("{name}Block")] = json!(0);
    }
    for (_, name, blobs) in TIME_FORKS.into_iter().filter(|(at, ..)| *at <= fork) {
        config[format!("{name}Time")] = json!(time);
        if let Some([target, max, fraction]) = blobs {
            config["blobSchedule"][name] =
                json!({ "target": target, "max": max, "baseFeeUpdateFraction": fraction });
        }
    }
    config
}

/// A genesis file of Amsterdam; its accounts with code are the system contracts.
const AMSTERDAM: &str = include_str!("../../../testdata/amsterdam/genesis.json");

/// The system contracts up to Amsterdam with their code, by address: those of EIP-2935, EIP-4788, EIP-7002, EIP-7251
/// and the two of EIP-8282.
pub fn system_contracts() -> &'static BTreeMap<Address, Bytes> {
    static CONTRACTS: LazyLock<BTreeMap<Address, Bytes>> = LazyLock::new(|| {
        let file: GenesisFile =
            serde_json::from_str(AMSTERDAM).expect("the file is in the repository");
        let accounts = file.alloc.into_iter();
        let coded = accounts.filter_map(|(address, account)| Some((address, account.code?)));
        coded.collect()
    });
    &CONTRACTS
}

#[derive(Deserialize)]
struct GenesisFile {
    alloc: BTreeMap<Address, Account>,
}

#[derive(Deserialize)]
struct Account {
    code: Option<Bytes>,
}

/// A contract account for the `alloc` of a genesis file.
pub fn contract(code: &Bytes) -> Value {
    json!({ "balance": "0x0", "nonce": "0x1", "code": code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_6_system_contracts() {
        assert_eq!(system_contracts().len(), 6);
        assert!(system_contracts().values().all(|code| !code.is_empty()));
    }

    #[test]
    fn config_has_forks_up_to_the_given_one() {
        let config = config(7, Fork::Prague, 9);
        assert_eq!(config["londonBlock"], 0);
        assert_eq!(config["pragueTime"], 9);
        assert!(config["osakaTime"].is_null());
        assert_eq!(config["blobSchedule"]["prague"]["target"], 6);
        assert!(config["blobSchedule"]["osaka"].is_null());
    }
}
