//! Every error that needs no other transaction, with its message.

use super::support::{
    CHAIN_ID, Chain, GWEI, NOW, Unreadable, blob_fields, blob_tx, dynamic, funds, legacy,
    proven_sidecar, set_code, signed, text, transfer, wallet,
};
use crate::{Incoming, Origin, Pool, PoolConfig, PoolError};
use alloy_primitives::Signature;
use niwaki_primitives::{
    AccessList, Address, B256, Bytes, Fork, Header, TxEip1559, TxEip2930, TxEip4844, TxEip7702,
    TxEnvelope, TxKind, TxLegacy, U256,
};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use std::sync::Arc;

fn refusal(tx: impl Into<Incoming>) -> String {
    let chain = Chain::new(PoolConfig::default());
    let refused = text(chain.remote(tx));
    assert!(chain.pool.all().is_empty());
    refused
}

fn refusal_at(fork: Fork, tx: impl Into<Incoming>) -> String {
    text(Chain::of(fork, PoolConfig::default()).remote(tx))
}

fn of_dynamic(change: impl FnOnce(&mut TxEip1559)) -> TxEnvelope {
    let mut tx = dynamic(0);
    change(&mut tx);
    signed(tx, &wallet(0)).into()
}

#[test]
fn a_type_is_refused_before_its_fork() {
    let from = wallet(0);
    let list = TxEip2930 {
        chain_id: CHAIN_ID,
        gas_limit: 21_000,
        gas_price: GWEI,
        access_list: AccessList::default(),
        ..TxEip2930::default()
    };
    let cases: [(Fork, Incoming, &str); 4] = [
        (
            Fork::Istanbul,
            TxEnvelope::from(signed(list, &from)).into(),
            "type 1 rejected, pool not yet in Berlin",
        ),
        (
            Fork::Berlin,
            transfer(&from, 0, 1, 1).into(),
            "type 2 rejected, pool not yet in London",
        ),
        (
            Fork::Shanghai,
            TxEnvelope::Eip4844(signed(blob_fields(0), &from)).into(),
            "type 3 rejected, pool not yet in Cancun",
        ),
        (
            Fork::Cancun,
            set_code(&from, 0, &[&from]).into(),
            "type 4 rejected, pool not yet in Prague",
        ),
    ];
    for (fork, tx, rest) in cases {
        let expected = format!("transaction type not supported: {rest}");
        assert_eq!(refusal_at(fork, tx), expected);
    }
}

#[test]
fn undecodable_bytes_are_malformed() {
    let raw = crate::encode_network(&transfer(&wallet(0), 0, 1, 2), None);
    assert!(Incoming::decode(&raw).is_ok());
    let longer = [raw.as_slice(), &[0]].concat();
    for bytes in [&[][..], &[0x05], &[0xc0], &raw[..raw.len() - 1], &longer] {
        let error = Incoming::decode(bytes).expect_err("no transaction");
        assert!(matches!(error, PoolError::Malformed { .. }), "{error}");
        assert!(error.to_string().starts_with("malformed transaction: "));
    }
}

#[test]
fn a_signature_out_of_range_or_with_a_high_s_is_an_invalid_sender() {
    let good = signed(legacy(0), &wallet(0));
    let s = good.signature().s();
    let order = U256::from_str_radix(
        "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141",
        16,
    );
    let high = order.expect("a number") - s;
    for (r, s) in [(good.signature().r(), high), (U256::ZERO, s)] {
        let signature = Signature::new(r, s, !good.signature().v());
        let tx = TxEnvelope::Legacy(alloy_consensus::Signed::new_unhashed(legacy(0), signature));
        assert_eq!(refusal(tx), "invalid sender");
    }
    let invalid = Signature::new(U256::from(5), U256::from(1), true);
    let tx = TxEnvelope::Legacy(alloy_consensus::Signed::new_unhashed(legacy(0), invalid));
    assert_eq!(
        refusal(tx),
        "invalid sender",
        "no point has this coordinate"
    );
}

#[test]
fn another_chain_is_refused_and_no_chain_only_where_the_operator_says_so() {
    assert_eq!(
        refusal(of_dynamic(|tx| tx.chain_id = 1)),
        "invalid sender: invalid chain id for signer: have 1 want 1337"
    );
    let unprotected = || {
        let tx = TxLegacy {
            chain_id: None,
            ..legacy(0)
        };
        TxEnvelope::from(signed(tx, &wallet(0)))
    };
    let strict = PoolConfig {
        strict_replay_protection: true,
        ..PoolConfig::default()
    };
    let chain = Chain::new(strict);
    assert_eq!(
        text(chain.local(unprotected())),
        "only replay-protected (EIP-155) transactions allowed over RPC"
    );
    assert!(chain.remote(unprotected()).is_ok(), "from peers it is fine");
    let lax = Chain::new(PoolConfig::default());
    assert!(lax.local(unprotected()).is_ok());
}

#[test]
fn a_transaction_above_128_kib_is_oversized() {
    let long = |bytes: usize| {
        of_dynamic(|tx| {
            tx.input = vec![0; bytes].into();
            tx.gas_limit = 16_000_000;
        })
    };
    let text = refusal(long(128 << 10));
    assert!(
        text.starts_with("oversized data: transaction size 1311"),
        "{text}"
    );
    assert!(text.ends_with("limit 131072"));
    let chain = Chain::new(PoolConfig {
        tx_fee_cap: U256::ZERO,
        ..PoolConfig::default()
    });
    assert!(chain.remote(long((128 << 10) - 200)).is_ok());
}

#[test]
fn gas_is_within_every_bound() {
    let create = |tx: &mut TxEip1559| {
        tx.to = TxKind::Create;
        tx.gas_limit = 10_000_000;
    };
    let cases: [(&str, TxEnvelope); 6] = [
        (
            "max initcode size exceeded: code size 49153, limit 49152",
            of_dynamic(|tx| {
                create(tx);
                tx.input = Bytes::from(vec![1; 49_153]);
            }),
        ),
        (
            "intrinsic gas too low: gas 20999, minimum needed 21000",
            of_dynamic(|tx| tx.gas_limit = 20_999),
        ),
        (
            "insufficient gas for floor data gas cost: gas 25000, minimum needed 25000",
            of_dynamic(|tx| tx.gas_limit = 25_000),
        ),
        (
            "insufficient gas for floor data gas cost: gas 24999, minimum needed 25000",
            of_dynamic(|tx| {
                tx.gas_limit = 24_999;
                tx.input = vec![1; 100].into();
            }),
        ),
        (
            "transaction gas limit too high (cap: 16777216, tx: 16777217)",
            of_dynamic(|tx| tx.gas_limit = 16_777_217),
        ),
        ("nonce has max value", of_dynamic(|tx| tx.nonce = u64::MAX)),
    ];
    for (at, (expected, tx)) in cases.into_iter().enumerate() {
        if at == 2 {
            let chain = Chain::new(PoolConfig::default());
            assert!(chain.remote(tx).is_ok(), "enough gas and no data");
        } else {
            assert_eq!(refusal(tx), expected);
        }
    }
    let above_block = of_dynamic(|tx| tx.gas_limit = 30_000_001);
    assert_eq!(
        refusal_at(Fork::Prague, above_block),
        "exceeds block gas limit"
    );
}

#[test]
fn fees_are_within_every_bound() {
    let tip = of_dynamic(|tx| tx.max_priority_fee_per_gas = 101 * GWEI);
    assert_eq!(
        refusal(tip),
        "max priority fee per gas higher than max fee per gas: maxPriorityFeePerGas: 101000000000, \
         maxFeePerGas: 100000000000"
    );
    let cheap = |tx: &mut TxEip1559| {
        tx.max_fee_per_gas = 999;
        tx.max_priority_fee_per_gas = 0;
    };
    assert_eq!(
        refusal(of_dynamic(cheap)),
        "transaction underpriced: gas fee cap 999, minimum needed 1000"
    );
    let chain = Chain::new(PoolConfig::default());
    assert!(chain.local(of_dynamic(cheap)).is_ok(), "priority is exempt");

    let dear = || {
        of_dynamic(|tx| {
            tx.max_fee_per_gas = 1_000_000 * GWEI;
            tx.gas_limit = 21_001;
        })
    };
    assert_eq!(
        text(chain.local(dear())),
        "tx fee (21.00 ether) exceeds the configured cap (1.00 ether)"
    );
    let other = Chain::new(PoolConfig::default());
    assert!(other.remote(dear()).is_ok(), "only for this node's users");
    let uncapped = PoolConfig {
        tx_fee_cap: U256::ZERO,
        ..PoolConfig::default()
    };
    assert!(Chain::new(uncapped).local(dear()).is_ok());
}

#[test]
fn the_sender_needs_nonce_and_funds_and_no_code() {
    let mut chain = Chain::new(PoolConfig::default());
    let from = wallet(0);
    let txs: Vec<_> = (0..5).map(|nonce| transfer(&from, nonce, 1, 10)).collect();
    chain.mine(&txs);
    assert_eq!(
        text(chain.remote(transfer(&from, 3, 2, 20))),
        "nonce too low: next nonce 5, tx nonce 3"
    );
    assert_eq!(
        text(chain.remote(transfer(&from, 205, 2, 20))),
        "nonce too high: tx nonce 205, next nonce 5, at most 200 ahead are kept"
    );
    assert!(chain.remote(transfer(&from, 204, 2, 20)).is_ok());

    let poor = wallet(1_000);
    let tx = TxLegacy {
        gas_price: 1_000,
        value: U256::ZERO,
        ..legacy(0)
    };
    assert_eq!(
        text(chain.remote(TxEnvelope::from(signed(tx, &poor)))),
        "insufficient funds for gas * price + value: balance 0, tx cost 21000000, overshot 21000000"
    );

    let mut contract = funds(1 << 100);
    contract.code = Bytes::from_static(&[0x60]).into();
    let mut state = MemoryState::default();
    state.insert(from.address, contract);
    let spec = ChainSpec::single(CHAIN_ID, Fork::Osaka);
    let chain = Chain::upon(spec, state, PoolConfig::default());
    let refused = text(chain.remote(transfer(&from, 0, 1, 10)));
    let start = format!("sender not an eoa: address {}, codehash: 0x", from.address);
    assert!(refused.starts_with(&start), "{refused}");
}

#[test]
fn set_code_transactions_need_an_authorization_and_a_recipient() {
    let empty = TxEip7702 {
        chain_id: CHAIN_ID,
        gas_limit: 100_000,
        max_fee_per_gas: GWEI,
        to: Address::ZERO,
        ..TxEip7702::default()
    };
    assert_eq!(
        refusal(TxEnvelope::from(signed(empty, &wallet(0)))),
        "set code tx must have at least one authorization tuple"
    );
}

#[test]
fn a_sidecar_must_match_its_transaction() {
    let (from, sidecar) = (wallet(0), proven_sidecar(&[1], 1));
    let good = || blob_tx(&from, 0, 10, &sidecar);
    assert!(Chain::new(PoolConfig::default()).remote(good()).is_ok());

    let with = |change: &dyn Fn(&mut TxEip4844)| {
        let incoming = good();
        let TxEnvelope::Eip4844(tx) = incoming.tx else {
            panic!("a blob transaction")
        };
        let mut tx = tx.tx().clone();
        change(&mut tx);
        Incoming {
            tx: TxEnvelope::Eip4844(signed(tx, &from)),
            sidecar: incoming.sidecar,
        }
    };
    assert_eq!(
        refusal(with(&|tx| tx.blob_versioned_hashes.clear())),
        "blobless blob transaction"
    );
    assert_eq!(
        refusal(with(&|tx| tx.max_fee_per_blob_gas = 0)),
        "transaction underpriced: blob fee cap 0, minimum needed 1"
    );
    let hash = |n: u8| {
        let mut hash = B256::repeat_byte(n);
        hash.0[0] = 1;
        hash
    };
    assert_eq!(
        refusal(with(&|tx| tx.blob_versioned_hashes = vec![hash(2); 7])),
        "blob limit exceeded: blob count 7, limit 6"
    );
    let other = refusal(with(&|tx| tx.blob_versioned_hashes = vec![hash(2)]));
    assert!(other.starts_with("blob 0: computed hash 0x01"), "{other}");
    assert!(other.contains("mismatches transaction one 0x0102"));
    assert_eq!(
        refusal(with(&|tx| tx.blob_versioned_hashes.push(hash(3)))),
        "sidecar format error: 2 blob hashes with 1 blobs, 1 commitments and 128 proofs"
    );
    assert_eq!(refusal(good().tx), "missing sidecar in blob transaction");
    let bare = crate::encode_network(&good().tx, None);
    let bare = Incoming::decode(&bare).expect_err("as blocks hold it");
    assert_eq!(bare.to_string(), "missing sidecar in blob transaction");

    let other_blob = Incoming {
        sidecar: Some(Arc::new({
            let mut other = sidecar.clone();
            let crate::Sidecar::Eip7594(inner) = &mut other else {
                panic!("version 1")
            };
            inner.blobs = vec![super::support::blob(9)];
            other
        })),
        ..good()
    };
    assert_eq!(
        refusal(other_blob),
        "KZG verification error: the proof does not match blob and commitment"
    );
}

#[test]
fn a_sidecar_must_have_the_version_of_the_next_block() {
    let (from, old, new) = (wallet(0), proven_sidecar(&[1], 0), proven_sidecar(&[1], 1));
    let expected = |want: u8, got: u8| {
        format!("sidecar format error: unexpected sidecar version, want: {want}, got: {got}")
    };
    assert_eq!(refusal(blob_tx(&from, 0, 10, &old)), expected(1, 0));
    let prague = refusal_at(Fork::Prague, blob_tx(&from, 0, 10, &new));
    assert_eq!(prague, expected(0, 1));
    let chain = Chain::of(Fork::Prague, PoolConfig::default());
    assert!(chain.remote(blob_tx(&from, 0, 10, &old)).is_ok());
}

#[test]
fn a_fault_of_the_state_is_no_verdict_on_the_transaction() {
    let spec = Arc::new(ChainSpec::single(CHAIN_ID, Fork::Osaka));
    let header = Header {
        gas_limit: 30_000_000,
        ..Header::default()
    };
    let pool = Pool::new(
        PoolConfig::default(),
        spec,
        header,
        Arc::new(Unreadable),
        NOW,
    );
    let tx = transfer(&wallet(0), 0, 1, 10);
    let refused = pool.add(tx.into(), Origin::Remote, NOW);
    let refused = refused.expect_err("nothing is known of the sender");
    assert!(matches!(refused, PoolError::Fault(_)), "{refused}");
}

#[test]
fn refusals_are_counted_by_name() {
    let chain = Chain::new(PoolConfig::default());
    let tx = transfer(&wallet(0), 0, 1, 10);
    assert!(chain.remote(tx.clone()).is_ok());
    for _ in 0..2 {
        assert_eq!(text(chain.remote(tx.clone())), "already known");
    }
    let rejected = chain.pool.stats().rejected;
    let known = ("TRANSACTION_ALREADY_KNOWN", Origin::Remote);
    assert_eq!(rejected, [(known, 2)].into());
}
