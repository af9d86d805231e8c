//! Admission: replacements, gaps, funds.

use super::support::{
    Chain, ETHER, GWEI, blob_tx, dynamic, proven_sidecar, signed, text, transfer, wallet,
};
use crate::{Added, Incoming, Origin, PoolConfig, PoolError};
use niwaki_primitives::{TxEip1559, TxEnvelope, U256};

fn fees(tip: u128, fee: u128) -> TxEnvelope {
    let tx = TxEip1559 {
        max_fee_per_gas: fee,
        max_priority_fee_per_gas: tip,
        ..dynamic(0)
    };
    signed(tx, &wallet(0)).into()
}

#[test]
fn a_replacement_pays_a_tenth_more_of_tip_and_fee() {
    let refused = "replacement transaction underpriced";
    for (tip, fee, taken) in [
        (1_100, 110_000, true),
        (1_099, 110_000, false),
        (1_100, 109_999, false),
        (1_000, 200_000, false),
        (5_000, 100_000, false),
    ] {
        let chain = Chain::new(PoolConfig::default());
        let old = chain.remote(fees(1_000, 100_000)).expect("alone");
        let new = chain.remote(fees(tip, fee));
        if taken {
            let new = new.expect("enough more");
            assert_eq!(new.replaced, Some(old.hash));
            assert!(new.pending && !chain.pool.contains(&old.hash));
        } else {
            assert_eq!(text(new), refused);
            assert!(chain.pool.contains(&old.hash));
        }
        assert_eq!(chain.pool.stats().pending, 1);
    }
}

#[test]
fn the_replacement_bump_is_rounded_up_and_at_least_1_wei() {
    let chain = Chain::new(PoolConfig::default());
    chain.remote(fees(1, 1_001)).expect("alone");
    assert_eq!(
        text(chain.remote(fees(2, 1_101))),
        "replacement transaction underpriced"
    );
    assert!(chain.remote(fees(2, 1_102)).is_ok());

    let free = PoolConfig {
        min_gas_price: 0,
        ..PoolConfig::default()
    };
    let chain = Chain::new(free.clone());
    chain.remote(fees(0, 0)).expect("gas is free");
    let again = TxEip1559 {
        max_fee_per_gas: 0,
        max_priority_fee_per_gas: 0,
        value: U256::from(2),
        ..dynamic(0)
    };
    let again = TxEnvelope::from(signed(again, &wallet(0)));
    assert!(chain.remote(again.clone()).is_err());
    let chain = Chain::new(PoolConfig {
        price_bump_percent: 0,
        ..free
    });
    chain.remote(fees(0, 0)).expect("gas is free");
    assert!(chain.remote(again).is_ok(), "no bump asked for");
}

#[test]
fn a_blob_replacement_doubles_everything() {
    let sidecar = proven_sidecar(&[1], 1);
    let chain = Chain::new(PoolConfig::default());
    let from = wallet(0);
    let old = chain
        .remote(blob_tx(&from, 0, 10, &sidecar))
        .expect("alone");
    assert_eq!(
        text(chain.remote(blob_tx(&from, 0, 19, &sidecar))),
        "replacement transaction underpriced"
    );
    assert_eq!(
        text(chain.remote(transfer(&from, 0, 19, 19))),
        "replacement transaction underpriced"
    );
    let new = chain
        .remote(blob_tx(&from, 0, 20, &sidecar))
        .expect("twice");
    assert_eq!(new.replaced, Some(old.hash));
    assert!(chain.pool.sidecar(&old.hash).is_none());
    assert!(chain.pool.sidecar(&new.hash).is_some());
}

#[test]
fn transactions_after_a_nonce_gap_are_queued_and_block_no_other_sender() {
    let chain = Chain::new(PoolConfig::default());
    let (gapped, other) = (wallet(0), wallet(1));
    for nonce in [1, 2, 4] {
        let added = chain
            .remote(transfer(&gapped, nonce, 50, 90))
            .expect("waits");
        assert!(!added.pending);
    }
    assert!(
        chain
            .remote(transfer(&other, 0, 1, 90))
            .expect("first")
            .pending
    );
    assert_eq!(chain.offered().len(), 1);
    assert_eq!(chain.pool.next_nonce(&gapped.address), None);

    let added = chain
        .remote(transfer(&gapped, 0, 1, 90))
        .expect("closes it");
    assert!(added.pending);
    assert_eq!(chain.nonces(&gapped), (vec![0, 1, 2], vec![4]));
    assert_eq!(chain.pool.next_nonce(&gapped.address), Some(3));
    assert_eq!(chain.offered().len(), 4);
    chain.pool.read().check();
}

#[test]
fn a_transaction_over_the_total_balance_is_queued_or_with_balance_check_refused() {
    let (from, cost) = (wallet(0), 21_000 * 100 * GWEI + 1);
    for balance_check in [false, true] {
        let config = PoolConfig {
            balance_check,
            ..PoolConfig::default()
        };
        let mut chain = Chain::new(config);
        chain.set_balance(from.address, 2 * cost);
        chain.mine(&[]);
        let tx = |nonce| TxEnvelope::from(signed(dynamic(nonce), &from));
        for nonce in 0..2 {
            assert!(chain.remote(tx(nonce)).expect("paid for").pending);
        }
        let third = chain.remote(tx(2));
        if balance_check {
            assert_eq!(
                text(third),
                format!(
                    "insufficient funds for gas * price + value: balance {}, queued cost {}, \
                     tx cost {cost}, overshot {cost}",
                    2 * cost,
                    2 * cost
                )
            );
            continue;
        }
        assert!(!third.expect("waits").pending);
        chain.set_balance(from.address, 3 * cost);
        chain.mine(&[]);
        assert_eq!(chain.nonces(&from), (vec![0, 1, 2], vec![]));
        chain.set_balance(from.address, cost);
        chain.mine(&[]);
        assert_eq!(chain.nonces(&from), (vec![0], vec![1, 2]));
        chain.set_balance(from.address, ETHER);
        chain.mine(&[tx(0)]);
        assert_eq!(chain.nonces(&from), (vec![1, 2], vec![]));
    }
}

#[test]
fn a_transaction_is_already_known_until_it_is_removed() {
    let mut chain = Chain::new(PoolConfig::default());
    let tx = transfer(&wallet(0), 0, 1, 10);
    let hash = *tx.tx_hash();
    chain.remote(tx.clone()).expect("new");
    assert_eq!(text(chain.local(tx.clone())), "already known");
    assert!(chain.pool.contains(&hash));
    chain.mine(std::slice::from_ref(&tx));
    assert!(!chain.pool.contains(&hash));
    assert_eq!(chain.pool.senders_of(&[hash]), [Some(wallet(0).address)]);
    assert_eq!(
        text(chain.remote(tx)),
        "nonce too low: next nonce 1, tx nonce 0"
    );
}

#[test]
fn many_at_once_have_the_results_of_one_by_one() {
    let sidecar = proven_sidecar(&[1], 1);
    let invalid = TxEip1559 {
        chain_id: 99,
        ..dynamic(7)
    };
    let poor = TxEip1559 {
        value: U256::MAX,
        ..dynamic(1)
    };
    let first = transfer(&wallet(1), 0, 1, 1_000_000_000);
    let all: Vec<Incoming> = vec![
        first.clone().into(),
        transfer(&wallet(1), 1, 1, 1_000_000_000).into(),
        first.into(),
        TxEnvelope::from(signed(invalid, &wallet(2))).into(),
        TxEnvelope::from(signed(poor, &wallet(3))).into(),
        blob_tx(&wallet(4), 0, 1_000_000_000, &sidecar),
        transfer(&wallet(5), 3, 1, 1_000_000_000).into(),
        transfer(&wallet(5), 0, 1, 1).into(),
    ];
    let (single, together) = (
        Chain::new(PoolConfig::default()),
        Chain::new(PoolConfig::default()),
    );
    let one_by_one: Vec<_> = all.iter().map(|one| single.remote(one.clone())).collect();
    let at_once = together.pool.add_many(all, Origin::Remote, 0);
    let texts = |all: &[Result<Added, PoolError>]| -> Vec<String> {
        all.iter().map(|added| format!("{added:?}")).collect()
    };
    assert_eq!(texts(&at_once), texts(&one_by_one));
    assert!(at_once.iter().filter(|added| added.is_err()).count() >= 3);
    assert_eq!(together.pool.stats(), single.pool.stats());
    assert_eq!(together.offered(), single.offered());
    assert!(
        together
            .pool
            .add_many(Vec::new(), Origin::Remote, 0)
            .is_empty()
    );
}
