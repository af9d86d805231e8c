//! Genesis files of both clients, and the errors of malformed ones.

use super::*;
use crate::bft::{BftRules, BftStart, ValidatorSource};
use crate::chain_spec::{Activation, BlobParams, SealKind};
use alloy_primitives::address;
use niwaki_primitives::Header;

pub(super) fn parse(config: &str) -> Result<Genesis, GenesisError> {
    Genesis::from_json(&format!(
        r#"{{"config": {config}, "gasLimit": "0x1000000", "difficulty": 1}}"#
    ))
}

pub(super) fn refusal(config: &str) -> String {
    parse(config).expect_err(config).to_string()
}

#[test]
fn a_geth_file_is_read() {
    let text = r#"{
        "config": {"chainId": 7, "homesteadBlock": 0, "eip150Block": 0, "eip155Block": 0,
            "eip158Block": 0, "byzantiumBlock": 0, "constantinopleBlock": 0, "petersburgBlock": 0,
            "istanbulBlock": 0, "berlinBlock": 0, "londonBlock": 0, "shanghaiTime": 0,
            "cancunTime": 0, "pragueTime": 10, "terminalTotalDifficulty": 0,
            "terminalTotalDifficultyPassed": true,
            "blobSchedule": {"cancun": {"target": 1, "max": 2, "baseFeeUpdateFraction": 3}}},
        "nonce": "0x42", "timestamp": "0x5", "extraData": "0x01", "gasLimit": "0x1000",
        "difficulty": "0x0", "baseFeePerGas": "0x7", "excessBlobGas": "0x9",
        "mixHash": "0x0000000000000000000000000000000000000000000000000000000000000001",
        "alloc": {"0x00000000000000000000000000000000000000aa":
            {"balance": "0x10", "nonce": "0x1", "code": "0x6001", "storage": {"0x01": "0x02", "0x03": "0x00"}}}
    }"#;
    let genesis = Genesis::from_json(text).unwrap();
    let header = genesis.header(B256::repeat_byte(1));
    assert_eq!(header.state_root, B256::repeat_byte(1));
    assert_eq!(header.nonce, B64::from(0x42u64));
    assert_eq!(header.base_fee_per_gas, Some(7));
    assert_eq!(header.excess_blob_gas, Some(9));
    assert_eq!(header.blob_gas_used, Some(0));
    assert_eq!(header.parent_beacon_block_root, Some(B256::ZERO));
    assert_eq!(header.requests_hash, None);
    let account = &genesis.alloc[&address!("00000000000000000000000000000000000000aa")];
    assert_eq!(account.nonce, 1);
    assert_eq!(account.balance, U256::from(16));
    assert_eq!(account.code.as_ref(), [0x60, 1]);
    assert_eq!(
        account.storage,
        BTreeMap::from([(U256::from(1), U256::from(2))])
    );
    assert_eq!(
        genesis.spec.blob_params_at(5),
        Some(BlobParams::new(1, 2, 3))
    );
    assert_eq!(genesis.spec.fork_at(0, 10, true), Fork::Prague);
}

#[test]
fn a_besu_file_is_read_in_any_letter_case_and_number_form() {
    let text = r#"{
        "CONFIG": {"chainid": "0x7", "LONDONBLOCK": "0", "ethash": {"FixedDifficulty": 100},
            "contractSizeLimit": 2147483647, "zeroBaseFee": true},
        "GASLIMIT": 4096, "Difficulty": "16", "mixhash": "0x00", "extradata": "",
        "alloc": {"FE3B557e8fb62b89f4916b721be55ceb828dbd73":
            {"balance": "1000000000000000000000000", "comment": "ignored", "privateKey": "8f2a"}}
    }"#;
    let genesis = Genesis::from_json(text).unwrap();
    assert_eq!(genesis.spec.chain_id, 7);
    assert_eq!(
        genesis.spec.seal,
        SealKind::Ethash {
            fixed_difficulty: Some(100)
        }
    );
    assert_eq!(genesis.spec.fork_at(0, 0, false), Fork::London);
    assert_eq!(genesis.spec.fork_at(1, u64::MAX, true), Fork::London);
    let header = genesis.header(B256::ZERO);
    assert_eq!(header.base_fee_per_gas, Some(INITIAL_BASE_FEE));
    assert_eq!(header.difficulty, U256::from(16));
    let account = genesis.alloc.values().next().unwrap();
    assert_eq!(account.balance.to_string(), "1000000000000000000000000");
}

#[test]
fn a_total_difficulty_beyond_64_bits_is_exact() {
    let genesis = parse(
        r#"{"chainId": 1, "londonBlock": 0, "terminalTotalDifficulty": 58750000000000000000001}"#,
    );
    let ttd = genesis.unwrap().spec.terminal_total_difficulty.unwrap();
    assert_eq!(ttd.to_string(), "58750000000000000000001");
}

#[test]
fn a_fork_without_key_activates_with_the_next_one_that_has_a_key() {
    let spec = parse(r#"{"chainId": 1, "homesteadBlock": 1, "petersburgBlock": 5}"#)
        .unwrap()
        .spec;
    assert_eq!(spec.activation(Fork::Homestead), Activation::Block(1));
    assert_eq!(spec.activation(Fork::Byzantium), Activation::Block(5));
    assert_eq!(spec.activation(Fork::Constantinople), Activation::Block(5));
    assert_eq!(spec.activation(Fork::Istanbul), Activation::Never);
    assert_eq!(spec.fork_at(4, 0, false), Fork::Homestead);
}

#[test]
fn bft_and_clique_sections_choose_the_seal() {
    let seal = |config| parse(config).unwrap().spec.seal;
    assert_eq!(
        seal(r#"{"chainId": 1, "qbft": {"blockperiodseconds": 1}}"#),
        SealKind::Bft
    );
    assert_eq!(seal(r#"{"chainId": 1, "ibft2": {}}"#), SealKind::Bft);
    assert!(refusal(r#"{"chainId": 1, "ibft": {}}"#).contains("config.ibft"));
    assert_eq!(seal(r#"{"chainId": 1}"#), SealKind::None);
    let clique = SealKind::Clique {
        period_s: 3,
        epoch_blocks: 30_000,
    };
    assert_eq!(
        seal(r#"{"chainId": 1, "clique": {"period": 3, "epoch": 30000}}"#),
        clique
    );
    assert_eq!(
        seal(r#"{"chainId": 1, "clique": {"blockperiodseconds": 3, "epochlength": 30000}}"#),
        clique
    );
}

#[test]
fn a_refusal_names_the_key() {
    for (config, part) in [
        (r#"{}"#, "config.chainId is missing"),
        (r#"{"chainId": "x"}"#, "config.chainId = \"x\""),
        (
            r#"{"chainId": 1, "LondonBlock": -1}"#,
            "config.LondonBlock = -1",
        ),
        (
            r#"{"chainId": 1, "shanghaiTime": "0x1ffffffffffffffff"}"#,
            "does not fit in 64 bits",
        ),
        (
            r#"{"chainId": 1, "berlinBlock": 9, "londonBlock": 8}"#,
            "config.berlinBlock = 9",
        ),
        (
            r#"{"chainId": 1, "pragueTime": 9, "osakaTime": 8}"#,
            "config.pragueTime = 9",
        ),
        (
            r#"{"chainId": 1, "eip155Block": 1, "eip158Block": 2}"#,
            "config.eip155Block = 1",
        ),
        (
            r#"{"chainId": 1, "depositContractAddress": "0x123456789012345678901234567890123456789012"}"#,
            "has 21 bytes, not 20",
        ),
        (
            r#"{"chainId": 1, "blobSchedule": {"cancun": {"target": 3}}}"#,
            "blobSchedule.cancun",
        ),
        (
            r#"{"chainId": 1, "ecCurve": "secp256r1"}"#,
            "config.ecCurve",
        ),
        (
            r#"{"chainId": 1, "fixedBaseFee": true}"#,
            "config.fixedBaseFee",
        ),
        (
            r#"{"chainId": 1, "qbft": {}, "fixedBaseFee": true, "zeroBaseFee": true}"#,
            "can't both be true",
        ),
        (r#"{"chainId": 1, "zeroBaseFee": 3}"#, "config.zeroBaseFee"),
        (r#"[]"#, "config is not a JSON object"),
    ] {
        let refusal = refusal(config);
        assert!(refusal.contains(part), "{config}: {refusal}");
    }
    assert!(Genesis::from_json("{").is_err());
    assert!(Genesis::from_json(r#"{"config": {"chainId": 1}}"#).is_err());
}

#[test]
fn header_fields_are_read_in_besus_forms_too() {
    let text = r#"{"config": {"chainId": 1}, "gasTarget": "0x10", "nonce": "000000000000beef",
        "difficulty": "a", "mixHash": "0Xab", "extraData": "c0ffee", "coinbase":
        "00000000000000000000000000000000000000AA", "timestamp": 12, "GASTARGET": "0x20"}"#;
    let header = Genesis::from_json(text).unwrap().header(B256::ZERO);
    assert_eq!(header.gas_limit, 0x20);
    assert_eq!(header.nonce, B64::from(0xbeef_u64));
    assert_eq!(header.difficulty, U256::from(10));
    assert_eq!(header.mix_hash[31], 0xab);
    assert_eq!(header.extra_data[..], [0xc0, 0xff, 0xee]);
    assert_eq!(header.beneficiary[19], 0xaa);
    assert_eq!(header.timestamp, 12);
}

#[test]
fn every_genesis_of_the_corpus_is_read_or_refused_by_name() {
    let Some(folder) = niwaki_testkit::corpus("mainnet-blocks/genesis") else {
        return;
    };
    let mut read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("besu-") {
            continue;
        }
        match Genesis::from_json(&std::fs::read_to_string(&path).unwrap()) {
            Ok(_) => read += 1,
            Err(GenesisError::Unsupported { .. })
                if name.contains("future") || name.contains("experimental") => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert_eq!(read, 9);
}

/// The cases give a block's RLP for fields of a genesis without a chain; older ones call the
/// balance `wei`.
#[test]
fn published_genesis_blocks_have_their_encoding() {
    let text = include_str!("../../testdata/genesis-tests.json");
    let cases: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap();
    assert_eq!(cases.len(), 3);
    for (name, case) in cases {
        let fields = case.to_string().replace("\"wei\"", "\"balance\"");
        let file = fields.replacen('{', "{\"config\": {\"chainId\": 1}, ", 1);
        let genesis = Genesis::from_json(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let header = genesis.header(crate::networks::tests::state_root(&genesis.alloc));
        let block = niwaki_primitives::Block::uncle(header);
        let want = case["result"].as_str().unwrap();
        assert_eq!(
            alloy_primitives::hex::encode(alloy_rlp::encode(block)),
            want,
            "{name}"
        );
    }
}

/// The other files of nimbus-eth1 use its own format (`genesis` next to `config`), trailing commas, or have no gas
/// limit.
#[test]
fn genesis_files_of_other_clients_are_read_where_there_is_a_corpus() {
    for (file, chain_id) in [
        ("besu/mainnet/genesis-bp-it.json", 42),
        ("besu/mainnet/parallelization/genesis-it.json", 42),
        (
            "nimbus-eth1/tests/customgenesis/engine_api_genesis.json",
            7_011_893_062,
        ),
        ("nimbus-eth1/tests/customgenesis/mekong.json", 7_078_815_900),
        (
            "nimbus-eth1/tests/customgenesis/metadata_no_genesis/prague.json",
            7890,
        ),
        (
            "nimbus-eth1/tests/customgenesis/metadata_with_genesis/genesis.json",
            123_456,
        ),
        (
            "nimbus-eth1/tests/customgenesis/metadata_with_genesis/mekong.json",
            7_078_815_900,
        ),
        ("nimbus-eth1/tests/customgenesis/prague.json", 7_078_815_900),
    ] {
        let Some(path) = niwaki_testkit::corpus(&format!("basic-tests/{file}")) else {
            continue;
        };
        let text = std::fs::read_to_string(path).unwrap();
        let genesis = Genesis::from_json(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(genesis.spec.chain_id, chain_id, "{file}");
    }
}

fn bft_payments(config: &str) -> Vec<(u64, u64, bool)> {
    let spec = parse(config).expect(config).spec;
    let block = |start| match start {
        BftStart::Block(block) => block,
        BftStart::Time(time) => panic!("{time} is a time"),
    };
    let payments = spec.bft_rules.iter();
    payments
        .map(|p| (block(p.from), p.reward.to(), p.beneficiary.is_some()))
        .collect()
}

#[test]
fn a_bft_reward_is_read_as_decimal_or_hex_and_changes_by_transitions() {
    assert_eq!(bft_payments(r#"{"chainId": 1}"#), []);
    assert_eq!(
        bft_payments(r#"{"chainId": 1, "ibft2": {}}"#),
        [(0, 0, false)]
    );
    let be = "0x00000000000000000000000000000000000000be";
    let text = format!(
        r#"{{"chainId": 1, "qbft": {{"blockReward": "0x10"}}, "transitions": {{"qbft": [
            {{"block": 34, "blockreward": "17", "miningbeneficiary": "{be}"}},
            {{"block": 22, "blockperiodseconds": 2}},
            {{"block": 38, "miningBeneficiary": "", "blockReward": 18}}]}}}}"#
    );
    let rows = [
        (0, 16, false),
        (22, 16, false),
        (34, 17, true),
        (38, 18, false),
    ];
    assert_eq!(bft_payments(&text), rows);
    let bad = r#"{"chainId": 1, "qbft": {"miningBeneficiary": "0xzz"}}"#;
    assert!(
        refusal(bad).contains("config.qbft.miningBeneficiary"),
        "{}",
        refusal(bad)
    );
    let bad = r#"{"chainId": 1, "qbft": {}, "transitions": {"qbft": [{"block": 1, "blockReward": "x"}]}}"#;
    assert!(
        refusal(bad).contains("config.transitions.qbft[0].blockReward"),
        "{}",
        refusal(bad)
    );
}

#[test]
fn a_migration_from_ibft_2_to_qbft_changes_rewards_at_its_start_block() {
    let text = r#"{"chainId": 1, "ibft2": {"blockReward": "1"},
        "qbft": {"startBlock": 15, "blockReward": "2"},
        "transitions": {"ibft2": [{"block": 10, "blockReward": "3"}, {"block": 20, "blockReward": "4"}],
            "qbft": [{"block": 5, "blockReward": "5"}, {"block": 30, "blockReward": "6"}]}}"#;
    let rows = [
        (0, 1, false),
        (10, 3, false),
        (15, 5, false),
        (30, 6, false),
    ];
    assert_eq!(bft_payments(text), rows);
}

#[test]
fn first_peers_of_config_discovery_are_read_and_refused_by_their_key() {
    let first = |config: &str| parse(config).unwrap().spec.first_peers;
    assert_eq!(first(r#"{"chainId": 1}"#), FirstPeers::default());
    let both = first(
        r#"{"chainId": 1, "discovery": {"dns": "enrtree:\/\/K@d.org",
            "bootnodes": ["enode://1@1.2.3.4:5"], "v5bootnodes": ["enr:x"]}}"#,
    );
    assert_eq!(both.dns_list.as_deref(), Some("enrtree://K@d.org"));
    let nodes = both.boot_nodes.unwrap();
    assert_eq!(nodes, ["enode://1@1.2.3.4:5", "enr:x"]);
    let none = first(r#"{"chainId": 1, "Discovery": {"bootNodes": [], "dns": null}}"#);
    assert_eq!((none.boot_nodes, none.dns_list), (Some(Vec::new()), None));
    let error = refusal(r#"{"chainId": 1, "discovery": {"bootnodes": "enode://"}}"#);
    assert!(error.contains("config.discovery.bootnodes"), "{error}");
    let error = refusal(r#"{"chainId": 1, "discovery": {"dns": 1}}"#);
    assert!(
        error.contains("config.discovery.dns = 1 is not a string"),
        "{error}"
    );
}

fn bft_rules(config: &str) -> Vec<BftRules> {
    parse(config).expect(config).spec.bft_rules
}

#[test]
fn only_the_mode_of_a_transition_changes_who_names_the_validators() {
    let contract = "0x0000000000000000000000000000000000007777";
    let one = "0x0000000000000000000000000000000000000001";
    let rules = bft_rules(&format!(
        r#"{{"chainId": 1, "qbft": {{"validatorContractAddress": "{contract}", "epochLength": 7}}, "transitions": {{"qbft": [
            {{"block": 5, "validators": ["{one}"], "epochLength": 9}},
            {{"block": 6, "validatorSelectionMode": "blockheader", "validators": ["{one}"]}},
            {{"block": 7, "validatorContractAddress": "{contract}"}},
            {{"block": 8, "validatorSelectionMode": "contract", "validatorContractAddress": "{contract}", "validators": ["{one}"]}}]}}}}"#
    ));
    let is_by_contract = |rules: &BftRules| rules.source != ValidatorSource::Headers;
    let sources: Vec<bool> = rules.iter().map(is_by_contract).collect();
    assert_eq!(sources, [true, true, false, false, true]);
    let named: Vec<bool> = rules
        .iter()
        .map(|rules| rules.validators.is_some())
        .collect();
    assert_eq!(named, [false, true, true, false, true]);
    assert!(rules.iter().all(|rules| rules.epoch_blocks == 7));
    for (transition, words) in [
        (
            r#""validatorSelectionMode": "blockheader""#,
            "needs validators",
        ),
        (
            r#""validatorSelectionMode": "contract""#,
            "needs validatorContractAddress",
        ),
        (
            r#""validatorSelectionMode": "votes""#,
            "blockheader or contract",
        ),
        (r#""validators": []"#, "one or more"),
        (
            r#""perTxGasLimit": 16777217"#,
            "perTxGasLimit = 16777217 is above gasLimit = 16777216",
        ),
        (
            r#""blockPeriodSeconds": 0"#,
            "blockPeriodSeconds must be 1 or more",
        ),
        (
            r#""blockPeriodSeconds": 0.5"#,
            "write xBlockPeriodMilliseconds = 500 instead",
        ),
        (r#""block": 0"#, "block must be 1 or more"),
        (r#""block": null"#, "block is missing"),
        (r#""block": 7}, {"block": 7"#, "another transition"),
        (
            r#""block": 1800000000, "validators": ["0x0000000000000000000000000000000000000001"]"#,
            "config.transitions.qbft[0].validators at 1800000000",
        ),
    ] {
        let text = format!(
            r#"{{"chainId": 1, "shanghaiTime": 900, "qbft": {{}},
                "transitions": {{"qbft": [{{"block": 3, {transition}}}]}}}}"#
        );
        assert!(refusal(&text).contains(words), "{}", refusal(&text));
    }
}

#[test]
fn milliseconds_of_a_period_stay_until_they_are_zero() {
    let rules = bft_rules(
        r#"{"chainId": 1, "qbft": {"xBlockPeriodMilliseconds": 500}, "transitions": {"qbft": [
            {"block": 5, "blockPeriodSeconds": 2}, {"block": 6, "xBlockPeriodMilliseconds": 0}]}}"#,
    );
    let periods: Vec<u64> = rules.iter().map(BftRules::block_period_ms).collect();
    assert_eq!(periods, [500, 500, 2_000]);
}

#[test]
fn a_migration_counts_epochs_from_the_last_block_before_it() {
    let one = "0x0000000000000000000000000000000000000001";
    let rules = bft_rules(&format!(
        r#"{{"chainId": 1, "ibft2": {{}}, "qbft": {{"startBlock": 15, "epochLength": 10}},
            "transitions": {{"qbft": [{{"block": 5, "validators": ["{one}"]}}]}}}}"#
    ));
    let [ibft2, qbft] = &rules[..] else {
        panic!("{rules:?}");
    };
    assert!(ibft2.is_epoch(0) && !ibft2.is_epoch(14));
    assert!(qbft.is_epoch(14) && qbft.is_epoch(24) && !qbft.is_epoch(20));
    // Validators hold for the block of their transition alone.
    let start = (BftStart::Block(15), &None);
    assert_eq!((qbft.from, &qbft.validators), start);
    let by_time = r#"{"chainId": 1, "shanghaiTime": 0, "ibft2": {}, "qbft": {"startBlock": 15},
        "transitions": {"ibft2": [{"block": 1800000000}]}}"#;
    assert!(refusal(by_time).contains("ibft2: block = 1800000000"));
}

#[test]
fn a_transition_is_by_time_if_its_block_is_a_time_and_not_below_the_first_fork_by_time() {
    let starts = |first_time: &str, blocks: [u64; 2]| {
        let [first, second] = blocks;
        let rules = bft_rules(&format!(
            r#"{{"chainId": 1, {first_time} "qbft": {{}}, "transitions": {{"qbft": [
                {{"block": {first}, "blockPeriodSeconds": 5}}, {{"block": {second}, "blockPeriodSeconds": 2}}]}}}}"#
        ));
        rules
            .iter()
            .skip(1)
            .map(|rules| (rules.from, rules.period_s))
            .collect::<Vec<_>>()
    };
    let (block, time) = (BftStart::Block, BftStart::Time);
    let shanghai = r#""shanghaiTime": 0,"#;
    // In their order, whatever that of the file.
    let both = [(block(10), 2), (time(1_800_000_000), 5)];
    assert_eq!(starts(shanghai, [1_800_000_000, 10]), both);
    let late = r#""shanghaiTime": 1800000001,"#;
    let blocks = [(block(10), 2), (block(1_800_000_000), 5)];
    assert_eq!(starts(late, [1_800_000_000, 10]), blocks);
    assert_eq!(starts("", [1_800_000_000, 10]), blocks);
    // Seconds before 2023 are blocks: Besu 26.8 took all of these for times where Shanghai begins at 0.
    let early = [(block(10), 2), (block(1_672_531_199), 5)];
    assert_eq!(starts(shanghai, [1_672_531_199, 10]), early);
}

#[test]
fn rules_by_time_hold_for_blocks_of_that_time_and_for_agreeing_on_the_child_of_one() {
    let text = r#"{"chainId": 1, "shanghaiTime": 0, "qbft": {"blockPeriodSeconds": 1},
        "transitions": {"qbft": [{"block": 5, "blockReward": "3"}, {"block": 1800000000, "blockPeriodSeconds": 4}]}}"#;
    let spec = parse(text).unwrap().spec;
    let header = |number, timestamp| Header {
        number,
        timestamp,
        ..Header::default()
    };
    let of = |number, timestamp| {
        let rules = spec.bft_rules_of(&header(number, timestamp)).unwrap();
        (rules.reward.to::<u64>(), rules.period_s)
    };
    assert_eq!(of(4, 1_799_999_999), (0, 1));
    assert_eq!(of(5, 1_799_999_999), (3, 1));
    assert_eq!(of(5, 1_800_000_000), (3, 4));
    // The later one of the file's order holds, as in Besu, whatever the block.
    assert_eq!(of(4, 1_800_000_000), (3, 4));
    let after = |number, timestamp| {
        let rules = spec.bft_rules_after(&header(number, timestamp)).unwrap();
        (rules.reward.to::<u64>(), rules.period_s)
    };
    assert_eq!(after(4, 1_799_999_999), (3, 1));
    assert_eq!(after(3, 1_799_999_999), (0, 1));
    assert_eq!(after(9, 1_800_000_000), (3, 4));
}

#[test]
fn a_bft_chain_has_its_own_gas_limit_of_a_transaction_from_osaka_on() {
    let text = r#"{"chainId": 1, "shanghaiTime": 10, "osakaTime": 20, "qbft": {},
        "transitions": {"qbft": [{"block": 2, "perTxGasLimit": 5000000}, {"block": 4, "perTxGasLimit": 0}]}}"#;
    let spec = parse(text).unwrap().spec;
    let limits = |fork| [1, 2, 3, 4].map(|number| spec.max_gas_limit(number, 30, fork));
    assert_eq!(
        limits(Fork::Osaka),
        [1 << 24, 5_000_000, 5_000_000, u64::MAX]
    );
    assert_eq!(limits(Fork::Prague), [u64::MAX; 4]);
}

#[test]
fn a_fixed_base_fee_is_that_of_the_node_that_makes_a_block() {
    let text = r#"{"chainId": 1, "londonBlock": 0, "fixedBaseFee": true, "ibft2": {}}"#;
    let genesis = parse(text).unwrap();
    let parent = genesis.header(B256::ZERO);
    assert_eq!(parent.base_fee_per_gas, Some(1_000_000_000));
    let mut spec = genesis.spec;
    assert_eq!(spec.next_base_fee(&parent), 0);
    spec.fixed_base_fee = Some(1_000);
    assert_eq!(spec.next_base_fee(&parent), 1_000);
    assert_eq!(
        parse(r#"{"chainId": 1, "fixedBaseFee": false}"#)
            .unwrap()
            .spec
            .fixed_base_fee,
        None
    );
}
