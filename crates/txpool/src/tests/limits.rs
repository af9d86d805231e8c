//! Limits: what is evicted, and what never is.

use super::support::{Chain, blob_tx, dynamic, proven_sidecar, signed, text, transfer, wallet};
use crate::{PoolConfig, PoolMode};
use niwaki_primitives::{TxEip1559, TxEnvelope};

/// A capacity of this many queued transfers, and three times as many in total.
fn room_for(transfers: usize) -> PoolConfig {
    let chain = Chain::new(PoolConfig::default());
    chain
        .remote(transfer(&wallet(0), 0, 1, 50))
        .expect("paid for");
    PoolConfig {
        layer_max_capacity_bytes: transfers * chain.pool.stats().bytes,
        ..PoolConfig::default()
    }
}

#[test]
fn it_is_roomy_while_few_transactions_are_pending_however_many_are_queued() {
    let sequenced = PoolConfig {
        mode: PoolMode::Sequenced,
        max_size: 4,
        limit_by_account: 1.0,
        ..PoolConfig::default()
    };
    for config in [room_for(4), sequenced] {
        let chain = Chain::new(config);
        for nonce in 1..4 {
            chain
                .remote(transfer(&wallet(9), nonce, 1, 50))
                .expect("there is room");
        }
        assert_eq!(chain.pool.stats().queued, 3);
        for (number, is_roomy) in [(0, true), (1, false)] {
            assert!(chain.pool.is_roomy());
            chain
                .remote(transfer(&wallet(number), 0, 1, 50))
                .expect("there is room");
            assert_eq!(chain.pool.is_roomy(), is_roomy);
        }
    }
}

#[test]
fn the_lowest_tip_is_evicted_first_and_a_lower_one_refused() {
    let chain = Chain::new(room_for(1));
    let txs: Vec<_> = [5, 3, 4]
        .into_iter()
        .zip(0..)
        .map(|(tip, n)| transfer(&wallet(n), 0, tip, 50))
        .collect();
    for tx in &txs {
        chain.remote(tx.clone()).expect("there is room");
    }
    assert_eq!(
        text(chain.remote(transfer(&wallet(9), 0, 2, 50))),
        "transaction underpriced"
    );
    let better = chain
        .remote(transfer(&wallet(9), 0, 6, 50))
        .expect("better");
    assert!(!chain.pool.contains(txs[1].tx_hash()), "the worst went");
    assert_eq!(chain.offered().first(), Some(&better.hash));
    assert_eq!(chain.pool.stats().pending, 3);
}

#[test]
fn a_sender_ranks_for_eviction_by_its_lowest_tip_and_loses_its_last_transaction() {
    let chain = Chain::new(room_for(1));
    let (a, b) = (wallet(0), wallet(1));
    for (nonce, tip) in [(0, 1), (1, 90)] {
        chain
            .remote(transfer(&a, nonce, tip, 99))
            .expect("there is room");
    }
    chain.remote(transfer(&b, 0, 5, 99)).expect("there is room");
    chain.remote(transfer(&b, 1, 5, 99)).expect("better than 1");
    assert_eq!(chain.nonces(&a), (vec![0], vec![]));
    assert_eq!(chain.nonces(&b), (vec![0, 1], vec![]));
}

#[test]
fn a_sender_ranks_for_eviction_by_its_lowest_fee_minus_the_base_fee() {
    let mut chain = Chain::new(room_for(1));
    chain.set_base_fee(10_000_000_000);
    let (a, b) = (wallet(0), wallet(1));
    for (nonce, fee) in [(0, 11), (1, 90)] {
        chain
            .remote(transfer(&a, nonce, 5, fee))
            .expect("there is room");
    }
    for nonce in 0..2 {
        let added = chain.remote(transfer(&b, nonce, 3, 90));
        added.expect("there is room, or better than 1");
    }
    assert_eq!(chain.nonces(&a), (vec![0], vec![]));
    assert_eq!(chain.nonces(&b), (vec![0, 1], vec![]));
}

#[test]
fn queued_transactions_are_evicted_before_pending_ones() {
    let chain = Chain::new(room_for(2));
    for n in 0..3 {
        let dear = transfer(&wallet(n), 7, 90, 99);
        let taken = chain.remote(dear);
        assert_eq!(taken.is_ok(), n < 2, "two may wait");
    }
    for n in 10..16 {
        chain
            .remote(transfer(&wallet(n), 0, 1, 50))
            .expect("before what waits");
    }
    let stats = chain.pool.stats();
    assert_eq!((stats.pending, stats.queued), (6, 0));
    assert_eq!(
        text(chain.remote(transfer(&wallet(0), 7, 90, 99))),
        "txpool is full"
    );
}

#[test]
fn local_transactions_are_kept_up_to_a_third_of_the_capacity() {
    let chain = Chain::new(room_for(2));
    let locals = [
        transfer(&wallet(0), 0, 1, 50),
        transfer(&wallet(1), 3, 1, 50),
    ];
    for tx in &locals {
        chain.local(tx.clone()).expect("there is room");
    }
    assert_eq!(
        text(chain.local(transfer(&wallet(2), 0, 1, 50))),
        "txpool is full"
    );
    for n in 10..30 {
        let _ = chain.remote(transfer(&wallet(n), 0, n, 99));
        let _ = chain.remote(transfer(&wallet(n), 5, n, 99));
    }
    for tx in &locals {
        assert!(chain.pool.contains(tx.tx_hash()));
    }
    assert_eq!(chain.pool.all().len(), 6);
}

#[test]
fn a_sequenced_pool_keeps_the_oldest() {
    let chain = Chain::new(PoolConfig {
        mode: PoolMode::Sequenced,
        max_size: 3,
        limit_by_account: 1.0,
        ..PoolConfig::default()
    });
    let waits = transfer(&wallet(0), 2, 90, 99);
    chain.remote(waits.clone()).expect("there is room");
    for n in 1..3 {
        chain
            .remote(transfer(&wallet(n), 0, 1, 50))
            .expect("there is room");
    }
    chain
        .remote(transfer(&wallet(3), 0, 1, 50))
        .expect("before what waits");
    assert!(!chain.pool.contains(waits.tx_hash()));
    assert_eq!(
        text(chain.remote(transfer(&wallet(4), 0, 90, 99))),
        "txpool is full"
    );
    let local = chain
        .local(transfer(&wallet(4), 0, 1, 50))
        .expect("the youngest goes");
    assert!(chain.pool.contains(&local.hash));
    assert_eq!(chain.nonces(&wallet(3)), (vec![], vec![]));
    assert_eq!(
        text(chain.remote(transfer(&wallet(0), 3, 1, 50))),
        "nonce too high: tx nonce 3, next nonce 0, at most 3 ahead are kept"
    );
}

#[test]
fn blobs_have_their_own_capacity_and_the_lowest_blob_fee_is_evicted() {
    let sidecar = proven_sidecar(&[1], 1);
    let bytes = crate::sidecar::sidecar_bytes(&sidecar);
    let chain = Chain::new(PoolConfig {
        blob_capacity_bytes: 2 * bytes,
        ..PoolConfig::default()
    });
    for (n, fee) in [(0, 10), (1, 20)] {
        chain
            .remote(blob_tx(&wallet(n), 0, fee, &sidecar))
            .expect("there is room");
    }
    chain
        .remote(transfer(&wallet(0), 1, 9, 50))
        .expect("no blobs");
    assert_eq!(
        text(chain.remote(blob_tx(&wallet(2), 0, 9, &sidecar))),
        "transaction underpriced"
    );
    chain
        .remote(blob_tx(&wallet(2), 0, 15, &sidecar))
        .expect("better");
    assert_eq!(
        chain.nonces(&wallet(0)),
        (vec![], vec![1]),
        "what followed waits"
    );
    assert_eq!(chain.pool.stats().blob_bytes, 2 * bytes);
    let local = chain
        .local(blob_tx(&wallet(3), 0, 1, &sidecar))
        .expect("local");
    assert!(chain.pool.contains(&local.hash));
    chain.pool.read().check();
}

#[test]
fn a_replacement_is_never_evicted_by_its_own_addition() {
    let config = PoolConfig {
        layer_max_capacity_bytes: 10_000,
        ..PoolConfig::default()
    };
    let chain = Chain::new(config);
    let long = |tip: u128| {
        let tx = TxEip1559 {
            input: vec![0; 20_000].into(),
            gas_limit: 500_000,
            max_priority_fee_per_gas: tip * 1_000_000_000,
            max_fee_per_gas: tip * 10_000_000_000,
            ..dynamic(0)
        };
        TxEnvelope::from(signed(tx, &wallet(0)))
    };
    let mut n = 1;
    while chain.pool.stats().bytes < 28_000 {
        chain
            .remote(transfer(&wallet(n), 0, 9, 50))
            .expect("there is room");
        n += 1;
    }
    chain
        .remote(transfer(&wallet(0), 0, 10, 50))
        .expect("the best");
    let bigger = chain.remote(long(20)).expect("a replacement");
    assert!(bigger.replaced.is_some() && chain.pool.contains(&bigger.hash));
    chain.pool.read().check();
    assert!(chain.pool.stats().pending < 12, "others went for it");
}

#[test]
fn local_transactions_after_a_remote_one_do_not_break_the_limits() {
    let chain = Chain::new(PoolConfig {
        mode: PoolMode::Sequenced,
        max_size: 4,
        limit_by_account: 2.0,
        ..PoolConfig::default()
    });
    for n in 0..2 {
        chain
            .remote(transfer(&wallet(n), 0, 1, 50))
            .expect("there is room");
        chain
            .local(transfer(&wallet(n), 1, 1, 50))
            .expect("there is room");
    }
    assert_eq!(
        text(chain.local(transfer(&wallet(5), 0, 1, 50))),
        "txpool is full"
    );
    assert_eq!(chain.pool.stats().pending, 4);
    chain.pool.read().check();
}
