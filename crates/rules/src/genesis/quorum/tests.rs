//! Genesis files of GoQuorum, and what its transitions hold for.

use crate::bft::{BftStart, ValidatorSource};
use crate::chain_spec::Quorum;
use crate::genesis::tests::{parse, refusal};
use alloy_primitives::Address;

#[test]
fn a_genesis_file_of_goquorum_is_read_and_what_it_alone_can_do_is_named() {
    let file = |more: &str| {
        format!(
            r#"{{"chainId": 1, "isQuorum": true, "txnSizeLimit": 64,
                "qbft": {{"epochlength": 9, "blockperiodseconds": 2, "policy": 0, "ceil2Nby3Block": 0}} {more}}}"#
        )
    };
    let spec = parse(&file(r#", "transitions": []"#)).unwrap().spec;
    assert_eq!(
        spec.quorum,
        Some(Quorum {
            gas_price_block: None
        })
    );
    assert!(!spec.has_gas_price(7) && spec.contract_size_limit(7).is_none());
    assert!(spec.bft_rules.iter().all(|rules| rules.is_quorum));
    let more = r#", "enableGasPriceBlock": 7, "maxCodeSizeConfig": [{"block": 0, "size": 64}, {"block": 4, "size": 128}]"#;
    let spec = parse(&file(more)).unwrap().spec;
    assert!(!spec.has_gas_price(6) && spec.has_gas_price(7));
    let limits = [0, 3, 4].map(|number| spec.contract_size_limit(number));
    assert_eq!(limits, [Some(64 << 10), Some(64 << 10), Some(128 << 10)]);
    for (more, what) in [
        (r#", "istanbul": {}"#, "config.istanbul"),
        (r#", "ibft2": {}"#, "config.ibft2"),
        (r#", "privacyEnhancementsBlock": 0"#, "Tessera"),
        (
            r#", "maxCodeSizeConfig": [{"block": 5, "size": 64}, {"block": 4, "size": 64}]"#,
            "must ascend",
        ),
        (
            r#", "maxCodeSizeConfig": [{"block": 5, "size": 129}]"#,
            "config.maxCodeSizeConfig[0].size = 129 is not 24 to 128",
        ),
        (r#", "maxCodeSize": 23"#, "maxCodeSize = 23"),
    ] {
        let refused = refusal(&file(more));
        assert!(refused.contains(what), "{refused}");
    }
    let policy = refusal(&file("").replace(r#""policy": 0"#, r#""policy": 1"#));
    assert!(policy.contains("config.qbft.policy"), "{policy}");
    let late = refusal(&file("").replace(r#""ceil2Nby3Block": 0"#, r#""ceil2Nby3Block": 5"#));
    assert!(late.contains("config.qbft.ceil2Nby3Block"), "{late}");
    let of_others = r#"{"chainId": 1, "isQuorum": false, "qbft": {}}"#;
    let spec = parse(of_others).unwrap().spec;
    assert!(spec.quorum.is_none() && spec.has_gas_price(0));
}

const ONE: &str = "0x0000000000000000000000000000000000000001";
const CONTRACT: &str = "0x0000000000000000000000000000000000007777";

fn quorum_file(first: &str, transitions: &str) -> String {
    format!(
        r#"{{"chainId": 1, "isQuorum": true, "qbft": {{{first}}}, "transitions": [{transitions}]}}"#
    )
}

#[test]
fn a_transition_of_goquorum_holds_for_its_block_and_names_the_validators_of_the_next() {
    let spec = parse(&quorum_file(
        r#""blockperiodseconds": 2, "requesttimeoutseconds": 4, "epochlength": 9"#,
        &format!(
            r#"{{"block": 10, "blockperiodseconds": 3, "validatorselectionmode": "contract", "validatorcontractaddress": "{CONTRACT}",
                "validators": ["{ONE}"], "contractsizelimit": 32, "epochlength": 9, "algorithm": "qbft"}},
            {{"block": 20, "requesttimeoutseconds": 7, "emptyblockperiodseconds": 9, "gasPriceEnabled": true}},
            {{"block": 20, "validatorselectionmode": "blockheader", "validators": ["{ONE}"], "miner.gaslimit": 5}},
            {{"block": 30, "validators": ["{ONE}"], "contractsizelimit": 64}}"#
        ),
    ))
    .unwrap()
    .spec;
    let of = |number| {
        let rules = spec.bft_rules_at(number, 0).unwrap();
        assert!(rules.is_quorum && rules.epoch_blocks == 9);
        let is_by_contract = rules.source != ValidatorSource::Headers;
        let listed = rules.validators.is_some() && rules.from == BftStart::Block(number);
        (
            rules.period_s,
            rules.request_timeout_s,
            rules.empty_period_s,
            is_by_contract,
            listed,
        )
    };
    assert_eq!(of(9), (2, 4, 0, false, false));
    assert_eq!(of(10), (3, 4, 0, false, false));
    assert_eq!(of(11), (3, 4, 0, true, false));
    assert_eq!(of(20), (3, 7, 9, true, false));
    assert_eq!(of(21), (3, 7, 9, false, true));
    assert_eq!(of(22), (3, 7, 9, false, true));
    assert_eq!(of(23), (3, 7, 9, false, false));
    assert_eq!(of(30), (3, 7, 9, false, false));
    assert_eq!(of(31), (3, 7, 9, false, true));
    assert_eq!(
        (spec.has_gas_price(19), spec.has_gas_price(20)),
        (false, true)
    );
    let limits = [9, 10, 29, 30].map(|number| spec.contract_size_limit(number));
    assert_eq!(
        limits,
        [None, Some(32 << 10), Some(32 << 10), Some(64 << 10)]
    );
}

#[test]
fn a_contract_of_goquorum_counts_only_with_its_mode_and_its_list_names_the_first_validators() {
    let first = |text: &str| parse(&quorum_file(text, "")).unwrap().spec.bft_rules;
    let address = format!(r#""validatorcontractaddress": "{CONTRACT}""#);
    let rules = first(&address);
    assert_eq!(rules[0].source, ValidatorSource::Headers);
    assert_eq!((rules[0].period_s, rules[0].request_timeout_s), (5, 10));
    let rules = first(&format!(
        r#"{address}, "validatorselectionmode": "contract""#
    ));
    let contract = CONTRACT.parse().unwrap();
    assert_eq!(rules[0].source, ValidatorSource::Contract(contract));
    let rules = first(&format!(r#""validators": ["{ONE}"]"#));
    assert_eq!(rules[1].from, BftStart::Block(1));
    let listed = rules[1].validators.as_ref().unwrap();
    assert_eq!(listed.as_slice(), [ONE.parse::<Address>().unwrap()]);
    let later = format!(r#"{{"block": 5, {address}, "validatorselectionmode": "contract"}}"#);
    let spec = parse(&quorum_file(&address, &later)).unwrap().spec;
    let source = |number| spec.bft_rules_at(number, 0).unwrap().source;
    assert_eq!(source(5), ValidatorSource::Headers);
    assert_eq!(source(6), ValidatorSource::Contract(contract));
}

#[test]
fn the_beneficiary_of_a_chain_of_goquorum_follows_its_modes() {
    let spec = parse(&quorum_file(
        &format!(r#""miningBeneficiary": "{ONE}", "blockReward": "0x5""#),
        &format!(
            r#"{{"block": 1, "beneficiaryMode": "validators"}}, {{"block": 2, "miningBeneficiary": "{CONTRACT}"}},
            {{"block": 3, "beneficiaryMode": "list", "miningBeneficiary": "{ONE}"}}, {{"block": 4, "blockReward": "6"}}"#
        ),
    ))
    .unwrap()
    .spec;
    let rows: Vec<_> = (0..5)
        .map(|number| {
            let rules = spec.bft_rules_at(number, 0).unwrap();
            (
                rules.beneficiary.map(|at| at.0[19]),
                rules.reward.to::<u64>(),
            )
        })
        .collect();
    let rest = [(Some(0x77), 5), (Some(0x77), 5), (Some(0x77), 6)];
    assert_eq!(rows[..2], [(Some(1), 5), (None, 5)]);
    assert_eq!(rows[2..], rest);
    let fixed = parse(&quorum_file(r#""beneficiaryMode": "fixed""#, "")).unwrap();
    assert_eq!(fixed.spec.bft_rules[0].beneficiary, Some(Address::ZERO));
    let bad = refusal(&quorum_file(r#""beneficiaryMode": "validators""#, ""));
    assert!(bad.contains("config.qbft: beneficiaryMode"), "{bad}");
}

#[test]
fn a_transition_of_goquorum_that_can_not_hold_is_refused_by_name() {
    let by_contract = format!(
        r#""validatorselectionmode": "contract", "validatorcontractaddress": "{CONTRACT}""#
    );
    for (transitions, words) in [
        (
            r#"{"blockperiodseconds": 1}"#.to_owned(),
            "config.transitions[0]: block is missing",
        ),
        (
            r#"{"block": 5}, {"block": 4}"#.to_owned(),
            "config.transitions[1]: block = 4 is below",
        ),
        (
            r#"{"block": 5, "algorithm": "ibft"}"#.to_owned(),
            "config.transitions[0].algorithm",
        ),
        (
            r#"{"block": 5, "epochlength": 7}"#.to_owned(),
            "config.transitions[0].epochlength",
        ),
        (
            r#"{"block": 5, "2FPlus1Enabled": true}"#.to_owned(),
            "2FPlus1Enabled",
        ),
        (
            r#"{"block": 5, "privacyEnhancementsEnabled": true}"#.to_owned(),
            "config.transitions[0].privacyEnhancementsEnabled",
        ),
        (
            r#"{"block": 5, "gasPriceEnabled": true}, {"block": 6, "gasPriceEnabled": false}"#
                .to_owned(),
            "config.transitions[1].gasPriceEnabled",
        ),
        (
            r#"{"block": 5, "contractsizelimit": 23}"#.to_owned(),
            "contractsizelimit = 23",
        ),
        (
            r#"{"block": 5, "beneficiaryMode": "all"}"#.to_owned(),
            "beneficiaryMode must be",
        ),
        (
            r#"{"block": 5, "validatorselectionmode": "votes"}"#.to_owned(),
            "blockheader or contract",
        ),
        (
            r#"{"block": 5, "validatorselectionmode": "contract"}"#.to_owned(),
            "needs validatorContractAddress",
        ),
        (
            format!(r#"{{"block": 5, "validatorcontractaddress": "{CONTRACT}"}}"#),
            "needs validatorSelectionMode = contract",
        ),
        (
            format!(
                r#"{{"block": 5, {by_contract}}}, {{"block": 9, "validatorselectionmode": "blockheader"}}"#
            ),
            "blockheader needs validators",
        ),
    ] {
        let refused = refusal(&quorum_file("", &transitions));
        assert!(refused.contains(words), "{refused}");
    }
    let alone =
        r#"{"chainId": 1, "isQuorum": true, "transitions": [{"block": 0, "algorithm": "qbft"}]}"#;
    assert!(
        refusal(alone).contains("config.qbft is missing"),
        "{}",
        refusal(alone)
    );
}
