//! The genesis file of a client: the simulator's file, with the configuration of the chain that its HIVE_ variables describe.
//!
//! hive gives the forks as variables, not in the file; each of its clients has a mapping like this one. The names that come out are geth's,
//! which niwaki reads too. Variables that name no fork, such as HIVE_NODETYPE, are not read here.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Variables of a client.
pub(super) type Variables = BTreeMap<String, String>;

/// Fields of the configuration that are numbers, and their variables.
const NUMBERS: [(&str, &str); 27] = [
    ("chainId", "HIVE_CHAIN_ID"),
    ("homesteadBlock", "HIVE_FORK_HOMESTEAD"),
    ("daoForkBlock", "HIVE_FORK_DAO_BLOCK"),
    ("eip150Block", "HIVE_FORK_TANGERINE"),
    ("eip155Block", "HIVE_FORK_SPURIOUS"),
    ("eip158Block", "HIVE_FORK_SPURIOUS"),
    ("byzantiumBlock", "HIVE_FORK_BYZANTIUM"),
    ("constantinopleBlock", "HIVE_FORK_CONSTANTINOPLE"),
    ("petersburgBlock", "HIVE_FORK_PETERSBURG"),
    ("istanbulBlock", "HIVE_FORK_ISTANBUL"),
    ("muirGlacierBlock", "HIVE_FORK_MUIR_GLACIER"),
    ("berlinBlock", "HIVE_FORK_BERLIN"),
    ("londonBlock", "HIVE_FORK_LONDON"),
    ("arrowGlacierBlock", "HIVE_FORK_ARROW_GLACIER"),
    ("grayGlacierBlock", "HIVE_FORK_GRAY_GLACIER"),
    ("mergeNetsplitBlock", "HIVE_MERGE_BLOCK_ID"),
    ("terminalTotalDifficulty", "HIVE_TERMINAL_TOTAL_DIFFICULTY"),
    ("shanghaiTime", "HIVE_SHANGHAI_TIMESTAMP"),
    ("cancunTime", "HIVE_CANCUN_TIMESTAMP"),
    ("pragueTime", "HIVE_PRAGUE_TIMESTAMP"),
    ("osakaTime", "HIVE_OSAKA_TIMESTAMP"),
    ("amsterdamTime", "HIVE_AMSTERDAM_TIMESTAMP"),
    ("bpo1Time", "HIVE_BPO1_TIMESTAMP"),
    ("bpo2Time", "HIVE_BPO2_TIMESTAMP"),
    ("bpo3Time", "HIVE_BPO3_TIMESTAMP"),
    ("bpo4Time", "HIVE_BPO4_TIMESTAMP"),
    ("bpo5Time", "HIVE_BPO5_TIMESTAMP"),
];

/// Forks with a number of blobs of their own: target, max and baseFeeUpdateFraction where the variables don't say.
const BLOBS: [(&str, [u64; 3]); 9] = [
    ("cancun", [3, 6, 3_338_477]),
    ("prague", [6, 9, 5_007_716]),
    ("osaka", [6, 9, 5_007_716]),
    ("bpo1", [10, 15, 8_346_193]),
    ("bpo2", [14, 21, 11_684_671]),
    ("bpo3", [9, 14, 8_832_827]),
    ("bpo4", [9, 14, 8_832_827]),
    ("bpo5", [9, 14, 8_832_827]),
    ("amsterdam", [14, 21, 11_684_671]),
];

/// The deposit contract of the main network, which hive's clients assume.
const DEPOSIT_CONTRACT: &str = "0x00000000219ab540356cBB839Cbe05303d7705Fa";

/// The chain id if the variables have none: niwaki does not start without one.
const CHAIN_ID: u64 = 1337;

/// The total difficulty of a chain that never leaves proof of work: geth does not start without one.
const NEVER: u64 = i64::MAX as u64;

/// The genesis file, from the simulator's, or from one with a single account if it has none.
///
/// # Errors
/// With a sentence, if the file is not a JSON object or a variable not a number.
pub(super) fn map(file: Option<&[u8]>, variables: &Variables) -> Result<Value, String> {
    let mut genesis = match file {
        None => default_genesis(),
        Some(file) => serde_json::from_slice(file)
            .map_err(|error| format!("genesis.json is not JSON: {error}"))?,
    };
    let fields = genesis
        .as_object_mut()
        .ok_or("genesis.json is not a JSON object")?;
    fields.insert("config".into(), Value::Object(config(variables)?));
    Ok(genesis)
}

fn config(variables: &Variables) -> Result<Map<String, Value>, String> {
    let mut config = Map::new();
    config.insert("ethash".into(), json!({}));
    config.insert("chainId".into(), CHAIN_ID.into());
    config.insert("terminalTotalDifficulty".into(), NEVER.into());
    for (field, variable) in NUMBERS {
        if let Some(number) = number(variables, variable)? {
            config.insert(field.into(), number.into());
        }
    }
    if let Some(vote) = variables.get("HIVE_FORK_DAO_VOTE") {
        config.insert("daoForkSupport".into(), (vote == "1").into());
    }
    let mut schedule = Map::new();
    for (fork, defaults) in BLOBS {
        let prefix = format!("HIVE_{}", fork.to_uppercase());
        if !variables.contains_key(&format!("{prefix}_TIMESTAMP")) {
            continue;
        }
        let mut values = defaults;
        let names = ["TARGET", "MAX", "BASE_FEE_UPDATE_FRACTION"];
        for (value, name) in values.iter_mut().zip(names) {
            *value = number(variables, &format!("{prefix}_BLOB_{name}"))?.unwrap_or(*value);
        }
        let [target, max, fraction] = values;
        let entry = json!({ "target": target, "max": max, "baseFeeUpdateFraction": fraction });
        schedule.insert(fork.into(), entry);
    }
    config.insert("blobSchedule".into(), Value::Object(schedule));
    let contract = variables.get("HIVE_DEPOSIT_CONTRACT_ADDRESS");
    let contract = contract.map_or(DEPOSIT_CONTRACT, String::as_str);
    config.insert("depositContractAddress".into(), contract.into());
    Ok(config)
}

/// The number of a variable; `None` if it is not set or empty.
fn number(variables: &Variables, name: &str) -> Result<Option<u64>, String> {
    match variables.get(name).map(String::as_str) {
        None | Some("") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| format!("{name} must be a number below 2^64, got {text:?}")),
    }
}

fn default_genesis() -> Value {
    json!({
        "difficulty": "0x20000",
        "gasLimit": "0x2fefd8",
        "nonce": "0x0",
        "timestamp": "0x0",
        "alloc": { "0000000000000000000000000000000000001000": { "balance": "0x1" } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(list: &[(&str, &str)]) -> Variables {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        list.iter().map(own).collect()
    }

    #[test]
    fn variables_replace_the_configuration_and_nothing_else() {
        let file = br#"{"config": {"chainId": 5, "londonBlock": 7}, "gasLimit": "0x1"}"#;
        let given = variables(&[
            ("HIVE_CHAIN_ID", "3503995874084926"),
            ("HIVE_FORK_SPURIOUS", "2"),
            ("HIVE_FORK_BERLIN", ""),
            ("HIVE_TERMINAL_TOTAL_DIFFICULTY", "131072"),
            ("HIVE_CANCUN_TIMESTAMP", "60"),
            ("HIVE_CANCUN_BLOB_MAX", "8"),
            ("HIVE_NODETYPE", "full"),
        ]);
        let expected = json!({
            "gasLimit": "0x1",
            "config": {
                "ethash": {},
                "chainId": 3_503_995_874_084_926_u64,
                "eip155Block": 2,
                "eip158Block": 2,
                "terminalTotalDifficulty": 131_072,
                "cancunTime": 60,
                "blobSchedule": {
                    "cancun": { "target": 3, "max": 8, "baseFeeUpdateFraction": 3_338_477 }
                },
                "depositContractAddress": DEPOSIT_CONTRACT,
            },
        });
        assert_eq!(map(Some(file), &given).unwrap(), expected);
    }

    #[test]
    fn without_a_file_there_is_a_genesis_with_one_account() {
        let genesis = map(None, &variables(&[])).unwrap();
        assert_eq!(genesis["alloc"].as_object().unwrap().len(), 1);
        assert_eq!(genesis["config"]["chainId"], CHAIN_ID);
        assert_eq!(genesis["config"]["terminalTotalDifficulty"], NEVER);
    }

    #[test]
    fn what_is_no_genesis_and_no_number_is_refused_by_name() {
        let none = variables(&[]);
        let error = map(Some(b"RLP"), &none).unwrap_err();
        assert!(error.contains("genesis.json is not JSON"), "{error}");
        let error = map(Some(b"[]"), &none).unwrap_err();
        assert!(error.contains("not a JSON object"), "{error}");
        for bad in ["0x1", "-1", "18446744073709551616"] {
            let given = variables(&[("HIVE_FORK_LONDON", bad)]);
            let error = map(None, &given).unwrap_err();
            assert!(error.contains("HIVE_FORK_LONDON must be"), "{error}");
        }
    }
}
