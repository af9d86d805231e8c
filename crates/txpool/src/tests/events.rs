//! Events that listeners get.

use super::support::{Chain, transfer, wallet};
use crate::{DropReason, Flows, PoolConfig, PoolEvent};
use niwaki_primitives::B256;
use std::sync::{Arc, Mutex};

/// The events so far, abbreviated.
#[derive(Clone, Debug, PartialEq)]
enum Heard {
    Added(B256, bool),
    Promoted(B256),
    Dropped(B256, DropReason, Option<B256>),
    Missed,
}

fn listen(chain: &Chain) -> Arc<Mutex<Vec<Heard>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&heard);
    chain.pool.listen(move |event| {
        let short = match event {
            PoolEvent::Added { tx, pending } => Heard::Added(tx.hash, *pending),
            PoolEvent::Promoted { tx } => Heard::Promoted(tx.hash),
            PoolEvent::Dropped {
                tx,
                reason,
                replaced_by,
                ..
            } => Heard::Dropped(tx.hash, *reason, *replaced_by),
            PoolEvent::Missed { .. } => Heard::Missed,
        };
        to.lock().expect("no listener panics").push(short);
    });
    heard
}

#[test]
fn listeners_get_every_event_once_and_in_order() {
    let mut chain = Chain::new(PoolConfig::default());
    let heard = listen(&chain);
    let take = || std::mem::take(&mut *heard.lock().expect("no listener panics"));
    let from = wallet(0);
    let txs: Vec<_> = (0..3).map(|nonce| transfer(&from, nonce, 1, 50)).collect();
    let [h0, h1, h2] = [0, 1, 2].map(|n: usize| *txs[n].tx_hash());
    for n in [2, 1, 0] {
        chain.remote(txs[n].clone()).expect("paid for");
    }
    assert!(chain.remote(txs[0].clone()).is_err(), "says nothing");
    assert_eq!(
        take(),
        vec![
            Heard::Added(h2, false),
            Heard::Added(h1, false),
            Heard::Added(h0, true),
            Heard::Promoted(h1),
            Heard::Promoted(h2),
        ]
    );
    let new = transfer(&from, 1, 2, 60);
    let h = *new.tx_hash();
    chain.remote(new).expect("more");
    assert_eq!(
        take(),
        vec![
            Heard::Dropped(h1, DropReason::Replaced, Some(h)),
            Heard::Added(h, true),
        ]
    );
    chain.mine(&[txs[0].clone()]);
    assert_eq!(take(), vec![Heard::Dropped(h0, DropReason::Included, None)]);
    chain.reorganise(1, &[]);
    let again = vec![
        Heard::Added(h0, true),
        Heard::Promoted(h),
        Heard::Promoted(h2),
    ];
    assert_eq!(take(), again, "without it the others had to wait");
    chain.pool.remove_invalid(&h0);
    assert_eq!(take(), vec![Heard::Dropped(h0, DropReason::Invalid, None)]);
    chain.remote(txs[0].clone()).expect("it may come again");
    assert_eq!(take(), again);
}

#[test]
fn an_evicted_addition_causes_no_event() {
    let chain = Chain::new(PoolConfig {
        layer_max_capacity_bytes: 10,
        ..PoolConfig::default()
    });
    let heard = listen(&chain);
    assert!(chain.remote(transfer(&wallet(0), 0, 1, 50)).is_err());
    assert!(chain.remote(transfer(&wallet(0), 4, 1, 50)).is_err());
    assert!(heard.lock().expect("no listener panics").is_empty());
    let stats = chain.pool.stats();
    assert_eq!(stats.flows, Flows::default());
}

#[test]
fn a_listener_may_call_the_pool() {
    let chain = Chain::new(PoolConfig::default());
    let chain = Arc::new(chain);
    let inner = Arc::downgrade(&chain);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&seen);
    chain.pool.listen(move |event| {
        let PoolEvent::Added { tx, .. } = event else {
            return;
        };
        let chain = inner.upgrade().expect("the test holds it");
        to.lock().expect("no listener panics").push(tx.nonce());
        if tx.nonce() < 4 {
            let next = transfer(&wallet(0), tx.nonce() + 1, 1, 50);
            chain.remote(next).expect("paid for");
        }
    });
    chain
        .remote(transfer(&wallet(0), 0, 1, 50))
        .expect("paid for");
    let seen = seen.lock().expect("no listener panics");
    assert_eq!(*seen, vec![0, 1, 2, 3, 4]);
}
