//! Statistics and listings.

use super::support::{Chain, blob_tx, dynamic, proven_sidecar, signed, transfer, wallet};
use crate::{DropReason, Origin, PoolConfig, TxClass};
use niwaki_primitives::{AccessList, AccessListItem, B256, TxEip1559, TxEnvelope};

#[test]
fn statistics_add_up() {
    let mut chain = Chain::new(PoolConfig::default());
    let tx = transfer(&wallet(0), 0, 1, 50);
    chain.local(tx.clone()).expect("paid for");
    chain.remote(transfer(&wallet(0), 5, 1, 50)).expect("waits");
    chain
        .remote(blob_tx(&wallet(1), 0, 9, &proven_sidecar(&[1], 1)))
        .expect("paid for");
    let stats = chain.pool.stats();
    assert_eq!((stats.pending, stats.queued, stats.senders), (2, 1, 2));
    assert_eq!((stats.by_type, stats.local), ([0, 0, 2, 1, 0], 1));
    assert_eq!(stats.queued_by_type, [0, 0, 1, 0, 0]);
    assert_eq!(chain.pool.senders_by_layer(), [2, 1]);
    let flows = &stats.flows;
    assert_eq!(flows.added_from(Origin::Local), 1);
    assert_eq!(flows.added_from(Origin::Remote), 2);
    let of = |pending, priority, origin| TxClass {
        pending,
        priority,
        origin,
    };
    let local = of(true, true, Origin::Local);
    let [above, queued] = [true, false].map(|pending| of(pending, false, Origin::Remote));
    assert_eq!(flows.added, [(queued, 1), (above, 1), (local, 1)].into());
    assert!(flows.promoted.is_empty(), "each came where it stays");
    assert_eq!(stats.blobs.versioned_hashes, 1);
    let sum: usize = chain.pool.all().iter().map(|tx| tx.bytes).sum();
    assert_eq!(stats.bytes, sum);
    chain.mine(&[tx]);
    let stats = chain.pool.stats();
    assert_eq!((stats.pending, stats.queued, stats.local), (1, 1, 0));
    assert_eq!(stats.flows.removed_for(DropReason::Included), 1);
    let included = (DropReason::Included, local);
    assert_eq!(stats.flows.removed, [(included, 1)].into());
    // The gap before the queued transaction closes: nonce 0 is mined.
    for nonce in 1..5 {
        let between = transfer(&wallet(0), nonce, 1, 50);
        chain.remote(between).expect("paid for");
    }
    let flows = chain.pool.stats().flows;
    assert_eq!(flows.promoted, [(queued, 1)].into());
    assert!(flows.demoted.is_empty());
    // One goes, and those above it wait again.
    let gone = chain.pool.content()[&wallet(0).address].pending[0].hash;
    chain.pool.remove_invalid(&gone);
    let flows = chain.pool.stats().flows;
    assert_eq!(flows.demoted.values().sum::<u64>(), 4);
}

#[test]
fn content_separates_pending_from_queued() {
    let chain = Chain::new(PoolConfig::default());
    for (n, nonce) in [(0, 0), (0, 1), (0, 9), (1, 4)] {
        chain
            .remote(transfer(&wallet(n), nonce, 1, 50))
            .expect("paid for");
    }
    let content = chain.pool.content();
    assert_eq!(content.len(), 2);
    assert_eq!(content[&wallet(0).address].pending.len(), 2);
    assert_eq!(content[&wallet(1).address].queued.len(), 1);
    assert_eq!(chain.nonces(&wallet(0)), (vec![0, 1], vec![9]));
    assert_eq!(chain.nonces(&wallet(7)), (vec![], vec![]));
}

#[test]
fn everything_that_takes_memory_is_counted() {
    let bytes = |change: &dyn Fn(&mut TxEip1559)| {
        let chain = Chain::new(PoolConfig::default());
        let mut tx = TxEip1559 {
            gas_limit: 2_000_000,
            ..dynamic(0)
        };
        change(&mut tx);
        chain
            .remote(TxEnvelope::from(signed(tx, &wallet(0))))
            .expect("paid for");
        chain.pool.stats().bytes
    };
    let plain = bytes(&|_| {});
    assert!(plain > 640, "{plain}");
    assert_eq!(
        bytes(&|tx| tx.input = vec![0; 10_000].into()),
        plain + 10_000
    );
    let listed = bytes(&|tx| {
        let item = AccessListItem {
            address: wallet(3).address,
            storage_keys: vec![B256::ZERO; 100],
        };
        tx.access_list = AccessList(vec![item; 3]);
    });
    assert!(listed >= plain + 300 * 32 + 3 * 20, "{listed}");
}
