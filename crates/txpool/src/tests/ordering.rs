//! The order of the best transactions.

use super::support::{
    Chain, GWEI, blob_tx, dynamic, legacy, proven_sidecar, signed, transfer, wallet,
};
use crate::{PoolConfig, PoolMode};
use niwaki_primitives::{B256, TxEip1559, TxEnvelope, TxLegacy};

fn hashes(txs: &[&TxEnvelope]) -> Vec<B256> {
    txs.iter().map(|tx| *tx.tx_hash()).collect()
}

#[test]
fn the_highest_tip_comes_first_and_nonces_stay_in_order() {
    let chain = Chain::new(PoolConfig::default());
    let [a, b] = [wallet(0), wallet(1)];
    let (a0, a1) = (transfer(&a, 0, 2, 50), transfer(&a, 1, 9, 50));
    let (b0, b1) = (transfer(&b, 0, 5, 50), transfer(&b, 1, 1, 50));
    for tx in [&a0, &a1, &b0, &b1] {
        chain.remote(tx.clone()).expect("paid for");
    }
    assert_eq!(chain.offered(), hashes(&[&b0, &a0, &a1, &b1]));
}

#[test]
fn a_tip_is_capped_by_the_fee_above_the_base_fee() {
    let mut chain = Chain::new(PoolConfig::default());
    let capped = transfer(&wallet(0), 0, 30, 40);
    let plain = transfer(&wallet(1), 0, 5, 90);
    let price = TxLegacy {
        gas_price: 20 * GWEI,
        ..legacy(0)
    };
    let price = TxEnvelope::from(signed(price, &wallet(2)));
    for tx in [&capped, &plain, &price] {
        chain.remote(tx.clone()).expect("paid for");
    }
    assert_eq!(chain.offered(), hashes(&[&capped, &price, &plain]));
    chain.set_base_fee(17_000_000_000);
    assert_eq!(chain.offered(), hashes(&[&capped, &plain, &price]));
    chain.set_base_fee(36_000_000_000);
    assert_eq!(chain.offered(), hashes(&[&plain, &capped]));
    chain.set_base_fee(60_000_000_000);
    assert_eq!(chain.offered(), hashes(&[&plain]), "the others wait");
    assert_eq!(chain.pool.stats().pending, 3);
    chain.set_base_fee(7);
    assert_eq!(chain.offered(), hashes(&[&capped, &price, &plain]));
}

#[test]
fn equal_tips_are_ordered_by_arrival() {
    let chain = Chain::new(PoolConfig::default());
    let txs: Vec<_> = (0..5).map(|n| transfer(&wallet(n), 0, 3, 50)).collect();
    for tx in [3, 0, 4, 1, 2].map(|n: usize| &txs[n]) {
        chain.remote(tx.clone()).expect("paid for");
    }
    let expected = [3, 0, 4, 1, 2].map(|n: usize| &txs[n]);
    assert_eq!(chain.offered(), hashes(&expected));
}

#[test]
fn local_and_priority_senders_come_first_unless_disabled() {
    let dear = transfer(&wallet(0), 0, 40, 50);
    let local = transfer(&wallet(1), 0, 1, 50);
    let named = transfer(&wallet(2), 0, 2, 50);
    for no_local_priority in [false, true] {
        let chain = Chain::new(PoolConfig {
            no_local_priority,
            priority_senders: [wallet(2).address].into_iter().collect(),
            ..PoolConfig::default()
        });
        chain.remote(dear.clone()).expect("paid for");
        chain.local(local.clone()).expect("paid for");
        chain.remote(named.clone()).expect("paid for");
        let expected = if no_local_priority {
            [&named, &dear, &local]
        } else {
            [&named, &local, &dear]
        };
        assert_eq!(chain.offered(), hashes(&expected));
    }
}

#[test]
fn a_sequenced_pool_orders_by_arrival() {
    let chain = Chain::new(PoolConfig {
        mode: PoolMode::Sequenced,
        ..PoolConfig::default()
    });
    let (a, b) = (wallet(0), wallet(1));
    let late = transfer(&a, 1, 50, 90);
    let (second, third) = (transfer(&b, 0, 9, 90), transfer(&a, 0, 40, 90));
    for tx in [&late, &second, &third] {
        chain.remote(tx.clone()).expect("paid for");
    }
    assert_eq!(chain.offered(), hashes(&[&second, &third, &late]));
}

#[test]
fn a_skipped_sender_gets_no_further_turn_and_others_do() {
    let chain = Chain::new(PoolConfig::default());
    let (a, b) = (wallet(0), wallet(1));
    for nonce in 0..3 {
        chain.remote(transfer(&a, nonce, 9, 90)).expect("paid for");
        chain.remote(transfer(&b, nonce, 5, 90)).expect("paid for");
    }
    let mut best = chain.pool.best(7, 1);
    let first = best.next().expect("six are here");
    assert_eq!(first.sender, a.address);
    best.skip_sender_of(&first.hash);
    best.skip_sender_of(&B256::ZERO);
    let rest: Vec<_> = best.map(|tx| tx.sender).collect();
    assert_eq!(rest, vec![b.address; 3]);
}

#[test]
fn best_transactions_are_a_snapshot() {
    let chain = Chain::new(PoolConfig::default());
    let txs: Vec<_> = (0..3).map(|n| transfer(&wallet(n), 0, 3, 50)).collect();
    for tx in &txs {
        chain.remote(tx.clone()).expect("paid for");
    }
    let best = chain.pool.best(7, 1);
    for tx in &txs {
        assert!(chain.pool.remove_invalid(tx.tx_hash()));
    }
    assert_eq!(best.count(), 3);
    assert_eq!(chain.pool.best(7, 1).count(), 0);
}

#[test]
fn best_transactions_are_bounded_in_total_and_by_type() {
    let sidecar = proven_sidecar(&[1], 1);
    let mut config = PoolConfig {
        max_prioritized: 6,
        ..PoolConfig::default()
    };
    config.max_prioritized_by_type[3] = 2;
    let chain = Chain::new(config);
    for n in 0..4 {
        chain
            .remote(blob_tx(&wallet(n), 0, 50, &sidecar))
            .expect("paid for");
        for nonce in 0..3 {
            let tx = transfer(&wallet(n + 10), nonce, 9, 90);
            chain.remote(tx).expect("paid for");
        }
    }
    let offer: Vec<_> = chain.pool.best(7, 1).map(|tx| tx.type_index()).collect();
    assert_eq!(offer, vec![3, 3, 2, 2, 2, 2]);
    let dear: Vec<_> = chain
        .pool
        .best(7, 50 * GWEI + 1)
        .map(|tx| tx.type_index())
        .collect();
    assert_eq!(dear, vec![2; 6], "their blob fee is too low now");
}

#[test]
fn a_penalized_transaction_is_offered_last_and_dropped_below_the_min_score() {
    let chain = Chain::new(PoolConfig {
        min_score: 126,
        ..PoolConfig::default()
    });
    let (good, bad) = (
        transfer(&wallet(0), 0, 1, 50),
        transfer(&wallet(1), 0, 9, 50),
    );
    for tx in [&good, &bad] {
        chain.remote(tx.clone()).expect("paid for");
    }
    assert_eq!(chain.offered(), hashes(&[&bad, &good]));
    assert!(chain.pool.penalize(bad.tx_hash()));
    assert_eq!(chain.offered(), hashes(&[&good, &bad]));
    assert!(!chain.pool.penalize(bad.tx_hash()), "below the least");
    assert!(!chain.pool.penalize(bad.tx_hash()), "gone");
    assert_eq!(chain.pool.stats().penalized, 2);
    assert_eq!(chain.offered(), hashes(&[&good]));

    let forever = Chain::new(PoolConfig::default());
    forever.remote(bad.clone()).expect("paid for");
    for _ in 0..300 {
        assert!(forever.pool.penalize(bad.tx_hash()));
    }
    assert_eq!(forever.offered(), hashes(&[&bad]), "never below -128");
}

#[test]
fn fees_beyond_63_bits_count_as_equal_and_are_the_best() {
    let huge = |n: u64, fee: u128| {
        let tx = TxEip1559 {
            max_fee_per_gas: fee,
            max_priority_fee_per_gas: fee,
            ..dynamic(0)
        };
        TxEnvelope::from(signed(tx, &wallet(n)))
    };
    let mut chain = Chain::new(PoolConfig::default());
    for n in 0..3 {
        let account = chain.state.accounts.entry(wallet(n).address).or_default();
        account.balance = alloy_primitives::U256::MAX >> 1;
    }
    chain.mine(&[]);
    let txs = [huge(0, 1 << 62), huge(1, 1 << 63), huge(2, u128::MAX)];
    for tx in &txs {
        chain.remote(tx.clone()).expect("paid for");
    }
    assert_eq!(chain.offered(), hashes(&[&txs[1], &txs[2], &txs[0]]));
}
