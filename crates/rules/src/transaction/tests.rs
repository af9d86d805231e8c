//! Each check on both sides of its limit.

use super::*;
use crate::chain_spec::{BlobParams, ChainSpec};
use alloy_consensus::{SignableTransaction, Signed};
use alloy_primitives::{Address, Bytes, Signature, TxKind};
use niwaki_primitives::{
    AccessList, AccessListItem, Authorization, Header, SignedAuthorization, TxEip1559, TxEip2930,
    TxEip4844, TxEip7702, TxLegacy,
};

const SENDER: Address = Address::repeat_byte(0x5e);
const TO: TxKind = TxKind::Call(Address::ZERO);

fn rules(fork: Fork) -> BlockRules {
    let header = Header {
        base_fee_per_gas: (fork >= Fork::London).then_some(7),
        excess_blob_gas: (fork >= Fork::Cancun).then_some(0),
        ..Header::default()
    };
    BlockRules::new(&ChainSpec::single(1, fork), &header)
}

fn sign<T: SignableTransaction<Signature>>(tx: T) -> Signed<T> {
    tx.into_signed(Signature::new(U256::ONE, U256::ONE, false))
}

fn legacy(gas_limit: u64) -> TxLegacy {
    TxLegacy {
        chain_id: None,
        gas_limit,
        gas_price: 7,
        to: TO,
        ..TxLegacy::default()
    }
}

fn dynamic(max_fee: u128, priority: u128) -> TxEip1559 {
    TxEip1559 {
        chain_id: 1,
        gas_limit: 21_000,
        max_fee_per_gas: max_fee,
        max_priority_fee_per_gas: priority,
        to: TO,
        ..TxEip1559::default()
    }
}

fn blob(count: usize) -> TxEip4844 {
    let mut hash = B256::ZERO;
    hash[0] = 1;
    TxEip4844 {
        chain_id: 1,
        gas_limit: 21_000,
        max_fee_per_gas: 7,
        max_fee_per_blob_gas: 1,
        blob_versioned_hashes: vec![hash; count],
        ..TxEip4844::default()
    }
}

fn set_code(count: usize) -> TxEip7702 {
    let authorization = Authorization {
        chain_id: U256::ONE,
        address: Address::ZERO,
        nonce: 0,
    };
    let signed = SignedAuthorization::new_unchecked(authorization, 0, U256::ONE, U256::ONE);
    TxEip7702 {
        chain_id: 1,
        gas_limit: 21_000 + 25_000 * count as u64,
        max_fee_per_gas: 7,
        authorization_list: vec![signed; count],
        ..TxEip7702::default()
    }
}

fn check(tx: impl Into<TxEnvelope>, fork: Fork) -> Result<IntrinsicGas, &'static str> {
    check_in(tx, &rules(fork), u64::MAX, u64::MAX)
}

fn check_in(
    tx: impl Into<TxEnvelope>,
    rules: &BlockRules,
    gas: u64,
    blob_gas: u64,
) -> Result<IntrinsicGas, &'static str> {
    check_transaction(&tx.into(), SENDER, rules, GasAvailable::both(gas), blob_gas)
        .map_err(|error| error.spec_name())
}

#[test]
fn a_transaction_type_is_refused_before_its_fork() {
    let access = TxEip2930 {
        chain_id: 1,
        gas_limit: 21_000,
        gas_price: 7,
        to: TO,
        ..TxEip2930::default()
    };
    assert_eq!(
        check(sign(access.clone()), Fork::Istanbul),
        Err("TYPE_1_TX_PRE_FORK")
    );
    assert!(check(sign(access), Fork::Berlin).is_ok());
    assert_eq!(
        check(sign(dynamic(7, 0)), Fork::Berlin),
        Err("TYPE_2_TX_PRE_FORK")
    );
    assert!(check(sign(dynamic(7, 0)), Fork::London).is_ok());
    assert_eq!(
        check(sign(blob(1)), Fork::Shanghai),
        Err("TYPE_3_TX_PRE_FORK")
    );
    assert!(check(sign(blob(1)), Fork::Cancun).is_ok());
    assert_eq!(
        check(sign(set_code(1)), Fork::Cancun),
        Err("TYPE_4_TX_PRE_FORK")
    );
    assert!(check(sign(set_code(1)), Fork::Prague).is_ok());
}

#[test]
fn the_gas_limit_must_reach_the_intrinsic_gas() {
    assert_eq!(
        check(sign(legacy(20_999)), Fork::Berlin),
        Err("INTRINSIC_GAS_TOO_LOW")
    );
    assert!(check(sign(legacy(21_000)), Fork::Berlin).is_ok());
}

fn gas_of(data: &'static [u8], to: TxKind, fork: Fork) -> IntrinsicGas {
    let tx = TxLegacy {
        input: Bytes::from_static(data),
        to,
        ..legacy(0)
    };
    intrinsic_gas(&sign(tx).into(), SENDER, fork)
}

#[test]
fn calldata_is_charged_by_the_byte_and_repriced_at_istanbul() {
    assert_eq!(
        gas_of(&[0, 1, 2], TO, Fork::Petersburg).intrinsic,
        21_000 + 4 + 2 * 68
    );
    assert_eq!(
        gas_of(&[0, 1, 2], TO, Fork::Istanbul).intrinsic,
        21_000 + 4 + 2 * 16
    );
}

#[test]
fn creation_is_charged_from_homestead_on_and_init_code_words_from_shanghai_on() {
    let gas = |fork| gas_of(&[0; 33], TxKind::Create, fork).intrinsic;
    assert_eq!(gas(Fork::Frontier), 21_000 + 33 * 4);
    assert_eq!(gas(Fork::Homestead), 53_000 + 33 * 4);
    assert_eq!(gas(Fork::Paris), 53_000 + 33 * 4);
    assert_eq!(gas(Fork::Shanghai), 53_000 + 33 * 4 + 2 * 2);
}

#[test]
fn access_lists_and_authorizations_are_charged_by_the_entry() {
    let item = |keys| AccessListItem {
        address: Address::ZERO,
        storage_keys: vec![B256::ZERO; keys],
    };
    let tx = TxEip2930 {
        access_list: AccessList(vec![item(0), item(3)]),
        to: TO,
        ..TxEip2930::default()
    };
    let gas = intrinsic_gas(&sign(tx).into(), SENDER, Fork::Berlin);
    assert_eq!(gas.intrinsic, 21_000 + 2 * 2_400 + 3 * 1_900);
    let gas = intrinsic_gas(&sign(set_code(3)).into(), SENDER, Fork::Prague);
    assert_eq!(gas.intrinsic, 21_000 + 3 * 25_000);
}

#[test]
fn the_floor_is_ten_gas_per_token_from_prague_on() {
    assert_eq!(gas_of(&[0, 1], TO, Fork::Cancun).floor, 0);
    assert_eq!(gas_of(&[0, 1], TO, Fork::Prague).floor, 21_000 + 50);
    let tx = |gas| TxLegacy {
        input: Bytes::from_static(&[1]),
        ..legacy(gas)
    };
    let refused = check(sign(tx(21_039)), Fork::Prague);
    assert_eq!(refused, Err("INTRINSIC_GAS_BELOW_FLOOR_GAS_COST"));
    assert!(check(sign(tx(21_040)), Fork::Prague).is_ok());
    assert!(check(sign(tx(21_039)), Fork::Cancun).is_ok());
}

#[test]
fn the_greatest_nonce_can_not_be_used() {
    let tx = |nonce| TxLegacy {
        nonce,
        ..legacy(21_000)
    };
    assert_eq!(
        check(sign(tx(u64::MAX)), Fork::Frontier),
        Err("NONCE_IS_MAX")
    );
    assert!(check(sign(tx(u64::MAX - 1)), Fork::Frontier).is_ok());
}

#[test]
fn init_code_is_limited_from_shanghai_on() {
    let tx = |bytes: usize| TxLegacy {
        input: vec![0; bytes].into(),
        to: TxKind::Create,
        ..legacy(1_000_000)
    };
    assert!(check(sign(tx(49_152)), Fork::Shanghai).is_ok());
    assert_eq!(
        check(sign(tx(49_153)), Fork::Shanghai),
        Err("INITCODE_SIZE_EXCEEDED")
    );
    assert!(check(sign(tx(49_153)), Fork::Paris).is_ok());
    assert_eq!(max_init_code_bytes(Fork::Osaka), 49_152);
    assert_eq!(max_init_code_bytes(Fork::Amsterdam), 131_072);
}

#[test]
fn the_gas_limit_is_capped_from_osaka_on() {
    let cap = TX_MAX_GAS_LIMIT;
    assert!(check(sign(legacy(cap)), Fork::Osaka).is_ok());
    assert_eq!(
        check(sign(legacy(cap + 1)), Fork::Osaka),
        Err("GAS_LIMIT_EXCEEDS_MAXIMUM")
    );
    assert!(check(sign(legacy(cap + 1)), Fork::Prague).is_ok());
}

#[test]
fn a_transaction_must_fit_in_what_is_left_of_the_block() {
    let rules = rules(Fork::Cancun);
    assert!(check_in(sign(legacy(21_000)), &rules, 21_000, 0).is_ok());
    let refused = check_in(sign(legacy(21_000)), &rules, 20_999, 0);
    assert_eq!(refused, Err("GAS_ALLOWANCE_EXCEEDED"));
    let left = 2 * GAS_PER_BLOB;
    assert!(check_in(sign(blob(2)), &rules, 21_000, left).is_ok());
    let refused = check_in(sign(blob(2)), &rules, 21_000, left - 1);
    assert_eq!(refused, Err("TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED"));
}

#[test]
fn signature_values_must_be_in_range() {
    let signed = |r, s| legacy(21_000).into_signed(Signature::new(r, s, false));
    let refused = Err("INVALID_SIGNATURE_VRS");
    let one = U256::ONE;
    assert_eq!(check(signed(U256::ZERO, one), Fork::Frontier), refused);
    assert_eq!(check(signed(SECP256K1_N, one), Fork::Frontier), refused);
    assert!(check(signed(SECP256K1_N - one, one), Fork::Frontier).is_ok());
    assert_eq!(check(signed(one, U256::ZERO), Fork::Frontier), refused);
    assert_eq!(check(signed(one, SECP256K1_N), Fork::Frontier), refused);
    assert!(check(signed(one, SECP256K1_N - one), Fork::Frontier).is_ok());
    assert!(check(signed(one, SECP256K1_HALF_N), Fork::Homestead).is_ok());
    assert_eq!(
        check(signed(one, SECP256K1_HALF_N + one), Fork::Homestead),
        refused
    );
}

#[test]
fn a_chain_id_must_be_ours_and_is_unknown_before_spurious_dragon() {
    let tx = |chain_id| TxLegacy {
        chain_id,
        ..legacy(21_000)
    };
    assert!(check(sign(tx(Some(1))), Fork::SpuriousDragon).is_ok());
    assert!(check(sign(tx(None)), Fork::Osaka).is_ok());
    assert_eq!(
        check(sign(tx(Some(2))), Fork::SpuriousDragon),
        Err("INVALID_CHAINID")
    );
    assert_eq!(
        check(sign(tx(Some(1))), Fork::TangerineWhistle),
        Err("INVALID_SIGNATURE_VRS")
    );
}

#[test]
fn fees_must_cover_the_base_fee_and_the_priority_fee() {
    assert!(check(sign(dynamic(7, 7)), Fork::London).is_ok());
    let refused = check(sign(dynamic(7, 8)), Fork::London);
    assert_eq!(refused, Err("PRIORITY_GREATER_THAN_MAX_FEE_PER_GAS"));
    assert_eq!(
        check(sign(dynamic(6, 0)), Fork::London),
        Err("INSUFFICIENT_MAX_FEE_PER_GAS")
    );
    let cheap = TxLegacy {
        gas_price: 6,
        ..legacy(21_000)
    };
    assert_eq!(
        check(sign(cheap.clone()), Fork::London),
        Err("INSUFFICIENT_MAX_FEE_PER_GAS")
    );
    assert!(check(sign(cheap), Fork::Berlin).is_ok());
}

#[test]
fn blob_transactions_need_blobs_of_the_known_version_at_the_price() {
    assert_eq!(
        check(sign(blob(0)), Fork::Cancun),
        Err("TYPE_3_TX_ZERO_BLOBS")
    );
    assert!(check(sign(blob(6)), Fork::Osaka).is_ok());
    assert_eq!(
        check(sign(blob(7)), Fork::Osaka),
        Err("TYPE_3_TX_BLOB_COUNT_EXCEEDED")
    );
    assert!(check(sign(blob(7)), Fork::Prague).is_ok());

    let mut wrong = blob(2);
    wrong.blob_versioned_hashes[1][0] = 2;
    let refused = check(sign(wrong), Fork::Cancun);
    assert_eq!(refused, Err("TYPE_3_TX_INVALID_BLOB_VERSIONED_HASH"));

    let mut dear = rules(Fork::Cancun);
    dear.blob_base_fee = 2;
    let refused = check_in(sign(blob(1)), &dear, u64::MAX, u64::MAX);
    assert_eq!(refused, Err("INSUFFICIENT_MAX_FEE_PER_BLOB_GAS"));
}

#[test]
fn set_code_transactions_need_authorizations() {
    let refused = check(sign(set_code(0)), Fork::Prague);
    assert_eq!(refused, Err("TYPE_4_EMPTY_AUTHORIZATION_LIST"));
}

#[test]
fn the_effective_price_is_the_base_fee_and_a_capped_tip() {
    let price = |tx: Signed<TxEip1559>| effective_gas_price(&tx.into(), Some(7));
    assert_eq!(price(sign(dynamic(10, 2))), 9);
    assert_eq!(price(sign(dynamic(10, 5))), 10);
    assert_eq!(effective_gas_price(&sign(legacy(0)).into(), Some(3)), 7);
}

#[test]
fn the_upfront_cost_is_exact_and_none_where_it_does_not_fit() {
    let mut tx = blob(2);
    tx.value = U256::from(5);
    tx.max_fee_per_blob_gas = 3;
    let cost = 21_000 * 7 + 5 + 2 * GAS_PER_BLOB * 3;
    assert_eq!(upfront_cost(&sign(tx).into()), Some(U256::from(cost)));
    let mut tx = legacy(1);
    tx.value = U256::MAX - U256::from(7);
    assert_eq!(upfront_cost(&sign(tx.clone()).into()), Some(U256::MAX));
    tx.value = U256::MAX - U256::from(6);
    assert_eq!(upfront_cost(&sign(tx).into()), None);
}

#[test]
fn the_blob_limit_of_a_block_is_that_of_its_schedule() {
    let rules = rules(Fork::Cancun);
    assert_eq!(rules.blob_params, Some(BlobParams::CANCUN));
    assert_eq!(rules.max_blob_gas(), 6 * GAS_PER_BLOB);
    assert_eq!(rules.blob_base_fee, 1);
}

mod published;

#[test]
fn a_chain_of_goquorum_takes_no_gas_price_until_it_is_enabled() {
    let mut spec = ChainSpec::single(1, Fork::Berlin);
    spec.quorum = Some(crate::Quorum {
        gas_price_block: Some(5),
    });
    let check = |number, gas_price| {
        let header = Header {
            number,
            ..Header::default()
        };
        let tx = TxLegacy {
            gas_price,
            ..legacy(30_000)
        };
        check_fees(&sign(tx).into(), &BlockRules::new(&spec, &header))
    };
    assert_eq!(check(4, 0), Ok(()));
    let refused = Err(InvalidTransaction::GasPriceNotZero { got: 1 });
    assert_eq!(check(4, 1), refused);
    assert_eq!(check(5, 1), Ok(()));
}
