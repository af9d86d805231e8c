//! New heads: included transactions leave, those of reorganized blocks return.

use super::support::{
    Chain, ETHER, NOW, Unreadable, blob_tx, dynamic, proven_sidecar, signed, transfer, wallet,
};
use crate::{DropReason, HeadUpdate, Origin, Pool, PoolConfig, PoolMode, SharedView};
use niwaki_primitives::{
    Account, Address, B256, Bytes, Fault, Fork, Header, StateView, TxEip1559, TxEnvelope, U256,
};
use niwaki_rules::{Activation, ChainSpec};
use niwaki_testkit::MemoryState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

#[test]
fn a_block_drops_included_and_stale_transactions() {
    let mut chain = Chain::new(PoolConfig::default());
    let from = wallet(0);
    for nonce in 0..4 {
        chain
            .remote(transfer(&from, nonce, 1, 50))
            .expect("paid for");
    }
    let elsewhere = transfer(&from, 1, 7, 70);
    chain.mine(&[transfer(&from, 0, 1, 50), elsewhere]);
    assert_eq!(chain.nonces(&from), (vec![2, 3], vec![]));
    let flows = chain.pool.stats().flows;
    assert_eq!(flows.removed_for(DropReason::Included), 1);
    assert_eq!(flows.removed_for(DropReason::Stale), 1);
}

#[test]
fn a_reorganization_reinserts_transactions_that_no_new_block_includes() {
    let mut chain = Chain::new(PoolConfig::default());
    let (a, b) = (wallet(0), wallet(1));
    let txs: Vec<_> = (0..3).map(|nonce| transfer(&a, nonce, 1, 50)).collect();
    let local = transfer(&b, 0, 1, 50);
    chain.local(local.clone()).expect("paid for");
    for tx in &txs {
        chain.remote(tx.clone()).expect("paid for");
    }
    chain.mine(&[txs[0].clone(), local.clone()]);
    chain.mine(&txs[1..2]);
    assert_eq!(chain.nonces(&a), (vec![2], vec![]));
    chain.reorganise(2, &txs[..1]);
    assert_eq!(chain.nonces(&a), (vec![1, 2], vec![]));
    assert_eq!(chain.nonces(&b), (vec![0], vec![]));
    let back = chain.pool.get(local.tx_hash()).expect("it is back");
    assert_eq!(back.origin, Origin::Local, "and still this node's own");
}

#[test]
fn a_reorged_transaction_that_was_never_in_the_pool_is_reinserted() {
    let mut chain = Chain::new(PoolConfig::default());
    let tx = transfer(&wallet(0), 0, 1, 50);
    chain.mine(std::slice::from_ref(&tx));
    let senders = chain.pool.senders_of(&[*tx.tx_hash()]);
    assert_eq!(senders, [Some(wallet(0).address)]);
    chain.reorganise(1, &[]);
    assert_eq!(chain.nonces(&wallet(0)), (vec![0], vec![]));
}

#[test]
fn a_blob_transaction_is_reinserted_while_its_sidecar_is_cached() {
    let sidecar = proven_sidecar(&[1], 1);
    for kept in [true, false] {
        let mut config = PoolConfig::default();
        if !kept {
            config.included_blob_bytes = 0;
        }
        let mut chain = Chain::new(config);
        let tx = blob_tx(&wallet(0), 0, 10, &sidecar);
        let hash = chain.remote(tx.clone()).expect("paid for").hash;
        chain.mine(&[tx.tx]);
        assert!(!chain.pool.contains(&hash));
        assert_eq!(chain.pool.sidecar(&hash).is_some(), kept, "for payloads");
        chain.reorganise(1, &[]);
        assert_eq!(chain.pool.contains(&hash), kept);
        assert_eq!(chain.pool.sidecar(&hash).is_some(), kept);
    }
}

#[test]
fn blobs_of_stale_transactions_are_kept() {
    let mut chain = Chain::new(PoolConfig::default());
    let tx = blob_tx(&wallet(0), 0, 10, &proven_sidecar(&[1], 1));
    let hash = chain.remote(tx.clone()).expect("paid for").hash;
    let before = chain.state.clone();
    chain
        .state
        .accounts
        .entry(wallet(0).address)
        .or_default()
        .nonce = 1;
    chain.mine(&[]);
    assert!(!chain.pool.contains(&hash) && chain.pool.sidecar(&hash).is_some());
    let change = HeadUpdate {
        header: chain.header.clone(),
        view: Arc::new(before),
        removed: &[(tx.tx, wallet(0).address)],
        included: &[],
        changed: None,
    };
    chain.pool.update_head(&change, NOW).expect("memory");
    assert!(chain.pool.contains(&hash) && chain.pool.sidecar(&hash).is_some());
    chain.pool.read().check();
}

#[test]
fn only_changed_senders_are_read() {
    let chain = Chain::new(PoolConfig::default());
    let (named, unnamed) = (wallet(0), wallet(1));
    for from in [&named, &unnamed] {
        chain.remote(transfer(from, 0, 1, 50)).expect("paid for");
    }
    let changed = [named.address];
    let change = HeadUpdate {
        header: chain.header.clone(),
        view: Arc::new(MemoryState::default()),
        removed: &[],
        included: &[],
        changed: Some(&changed),
    };
    chain.pool.update_head(&change, NOW).expect("memory");
    assert_eq!(
        chain.nonces(&named),
        (vec![], vec![0]),
        "its funds are gone"
    );
    assert_eq!(chain.nonces(&unnamed), (vec![0], vec![]));
    let change = HeadUpdate {
        changed: None,
        ..change
    };
    chain.pool.update_head(&change, NOW).expect("memory");
    assert_eq!(chain.nonces(&unnamed), (vec![], vec![0]));
}

#[test]
fn an_account_changed_without_notice_is_updated_with_its_next_transaction() {
    let mut chain = Chain::new(PoolConfig::default());
    let from = wallet(0);
    for nonce in [0, 1, 2] {
        chain
            .remote(transfer(&from, nonce, 1, 50))
            .expect("paid for");
    }
    chain.state.accounts.entry(from.address).or_default().nonce = 2;
    let change = HeadUpdate {
        header: chain.header.clone(),
        view: Arc::new(chain.state.clone()),
        removed: &[],
        included: &[],
        changed: Some(&[]),
    };
    chain.pool.update_head(&change, NOW).expect("memory");
    assert_eq!(chain.nonces(&from), (vec![0, 1, 2], vec![]));
    chain.remote(transfer(&from, 3, 1, 50)).expect("paid for");
    assert_eq!(chain.nonces(&from), (vec![2, 3], vec![]));
    chain.pool.read().check();
}

#[test]
fn a_fork_drops_transactions_that_its_rules_exclude() {
    let mut spec = ChainSpec::single(1337, Fork::Prague);
    spec.set(Fork::Osaka, Activation::Time(NOW + 20));
    let mut state = MemoryState::default();
    for n in 0..3 {
        state.insert(wallet(n).address, super::support::funds(ETHER));
    }
    let mut chain = Chain::upon(spec, state, PoolConfig::default());
    let blobs = blob_tx(&wallet(0), 0, 10, &proven_sidecar(&[1], 0));
    let thirsty = TxEip1559 {
        gas_limit: 20_000_000,
        max_fee_per_gas: 10_000_000_000,
        ..dynamic(0)
    };
    let thirsty = TxEnvelope::from(signed(thirsty, &wallet(1)));
    let plain = transfer(&wallet(2), 0, 1, 50);
    chain.remote(blobs).expect("Prague's form");
    chain.remote(thirsty).expect("Prague has no cap");
    chain.remote(plain.clone()).expect("paid for");
    chain.mine(&[]);
    assert_eq!(chain.pool.stats().pending, 3);
    chain.mine(&[]);
    assert_eq!(chain.offered(), vec![*plain.tx_hash()]);
    let flows = chain.pool.stats().flows;
    assert_eq!(flows.removed_for(DropReason::Invalid), 2);
}

#[test]
fn amsterdam_drops_transactions_below_its_floor_and_accepts_higher_gas_limits() {
    let mut spec = ChainSpec::single(1337, Fork::Osaka);
    spec.set(Fork::Amsterdam, Activation::Time(NOW + 20));
    let mut state = MemoryState::default();
    for n in 0..3 {
        state.insert(wallet(n).address, super::support::funds(ETHER));
    }
    let mut chain = Chain::upon(spec, state, PoolConfig::default());
    // 100 bytes at 40 gas each in Osaka's floor, at 64 in Amsterdam's (EIP-7976).
    let wordy = TxEip1559 {
        gas_limit: 25_000,
        input: vec![1; 100].into(),
        ..dynamic(0)
    };
    let wordy = TxEnvelope::from(signed(wordy, &wallet(0)));
    let plain = transfer(&wallet(1), 0, 1, 50);
    // More than 2^24, the cap of execution gas (EIP-8037).
    let large = TxEip1559 {
        gas_limit: 17_000_000,
        max_fee_per_gas: 10_000_000_000,
        ..dynamic(0)
    };
    let large = TxEnvelope::from(signed(large, &wallet(2)));
    chain.remote(wordy.clone()).expect("Osaka's floor");
    chain.remote(plain.clone()).expect("paid for");
    chain.remote(large.clone()).expect_err("Osaka's cap");
    chain.mine(&[]);
    assert_eq!(chain.pool.stats().pending, 2);
    chain.mine(&[]);
    assert_eq!(chain.offered(), vec![*plain.tx_hash()]);
    let flows = chain.pool.stats().flows;
    assert_eq!(flows.removed_for(DropReason::Invalid), 1);
    chain.remote(wordy).expect_err("Amsterdam's floor");
    chain.remote(large).expect("Amsterdam's cap");
}

#[test]
fn a_sequenced_pool_drops_expired_transactions() {
    let mut chain = Chain::new(PoolConfig {
        mode: PoolMode::Sequenced,
        retention_s: 20,
        ..PoolConfig::default()
    });
    chain
        .local(transfer(&wallet(0), 0, 1, 50))
        .expect("paid for");
    chain.remote(transfer(&wallet(1), 1, 1, 50)).expect("waits");
    chain.mine(&[]);
    assert_eq!(chain.pool.all().len(), 2);
    chain.mine(&[]);
    assert_eq!(chain.pool.all().len(), 0);
    let flows = chain.pool.stats().flows;
    assert_eq!(flows.removed_for(DropReason::Expired), 2);
}

#[test]
fn invariants_hold_after_concurrent_additions_and_heads() {
    let chain = Chain::new(PoolConfig::default());
    let run = |n| (0..60).map(move |nonce| transfer(&wallet(n), nonce, 1, 50));
    let txs: Vec<Vec<TxEnvelope>> = (0..4).map(|n| run(n).collect()).collect();
    std::thread::scope(|scope| {
        for txs in &txs {
            let chain = &chain;
            scope.spawn(move || {
                for tx in txs {
                    // A nonce that a concurrent head has used is too low.
                    let _ = chain.remote(tx.clone());
                }
            });
        }
        let mut state = chain.state.clone();
        for number in 1..=40_u64 {
            for n in 0..4 {
                state.accounts.entry(wallet(n).address).or_default().nonce = number;
            }
            let mut header = chain.header.clone();
            header.number = number;
            let change = HeadUpdate {
                header,
                view: Arc::new(state.clone()),
                removed: &[],
                included: &[],
                changed: None,
            };
            chain.pool.update_head(&change, NOW).expect("memory");
        }
    });
    let store = chain.pool.read();
    store.check();
    for n in 0..4 {
        let queue = &store.senders[&wallet(n).address];
        assert_eq!(queue.account.nonce, 40, "no queue is on an old head");
        assert_eq!(queue.account.balance, U256::from(1_000 * ETHER));
        assert_eq!(queue.run_end, 60);
    }
}

#[test]
fn a_fault_is_returned_and_drops_only_included_transactions() {
    let mut chain = Chain::new(PoolConfig::default());
    let from = wallet(0);
    let txs: Vec<_> = (0..3).map(|nonce| transfer(&from, nonce, 1, 50)).collect();
    for tx in &txs {
        chain.remote(tx.clone()).expect("paid for");
    }
    let change = HeadUpdate {
        header: chain.header.clone(),
        view: Arc::new(Unreadable),
        removed: &[],
        included: &[(*txs[0].tx_hash(), from.address)],
        changed: None,
    };
    let fault = chain.pool.update_head(&change, NOW);
    assert!(matches!(fault, Err(Fault::Missing { .. })));
    chain.pool.read().check();
    assert_eq!(
        chain.nonces(&from),
        (vec![], vec![1, 2]),
        "they wait for a state"
    );
    chain.mine(&txs[..1]);
    assert_eq!(chain.nonces(&from), (vec![1, 2], vec![]));
}

/// What a state does when its first account is read.
type Hook = Box<dyn Fn(&Pool) + Send + Sync>;

/// A state during whose first read something else happens.
struct Interrupted {
    state: MemoryState,
    hook: OnceLock<(Weak<Pool>, Hook)>,
    done: AtomicBool,
}

impl Interrupted {
    fn new(state: MemoryState) -> Arc<Self> {
        Arc::new(Self {
            state,
            hook: OnceLock::new(),
            done: AtomicBool::new(false),
        })
    }

    fn then(&self, pool: &Arc<Pool>, hook: impl Fn(&Pool) + Send + Sync + 'static) {
        let hook = (Arc::downgrade(pool), Box::new(hook) as Hook);
        assert!(self.hook.set(hook).is_ok());
    }
}

impl StateView for Interrupted {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        if let Some((pool, hook)) = self.hook.get()
            && !self.done.swap(true, Ordering::Relaxed)
        {
            hook(&pool.upgrade().expect("the test holds it"));
        }
        self.state.account(address)
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        self.state.storage(address, slot)
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.state.has_storage(address)
    }

    fn code(&self, hash: &B256) -> Result<Bytes, Fault> {
        self.state.code(hash)
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.state.block_hash(number)
    }
}

fn pool_upon(view: SharedView, header: &Header) -> Arc<Pool> {
    let spec = Arc::new(ChainSpec::single(1337, Fork::Osaka));
    let config = PoolConfig::default();
    Arc::new(Pool::new(config, spec, header.clone(), view, NOW))
}

#[test]
fn an_addition_is_checked_against_a_head_that_arrives_meanwhile() {
    for (nonce, taken) in [(0, false), (1, true)] {
        let Chain { state, header, .. } = Chain::new(PoolConfig::default());
        let view = Interrupted::new(state.clone());
        let pool = pool_upon(Arc::clone(&view) as SharedView, &header);
        view.then(&pool, move |pool| {
            let mut next = state.clone();
            next.accounts.entry(wallet(0).address).or_default().nonce = 1;
            let change = HeadUpdate {
                header: header.clone(),
                view: Arc::new(next),
                removed: &[],
                included: &[],
                changed: None,
            };
            pool.update_head(&change, NOW).expect("memory");
        });
        let tx = transfer(&wallet(0), nonce, 1, 50);
        let added = pool.add(tx.into(), Origin::Remote, NOW);
        if taken {
            assert!(added.expect("its nonce is next").pending);
        } else {
            let text = super::support::text(added);
            assert_eq!(text, "nonce too low: next nonce 1, tx nonce 0");
        }
        pool.read().check();
    }
}

#[test]
fn a_transaction_added_during_a_head_update_is_checked_against_the_new_head() {
    let Chain { state, header, .. } = Chain::new(PoolConfig::default());
    let pool = pool_upon(Arc::new(state.clone()), &header);
    let (early, late) = (wallet(0), wallet(1));
    let add = |from| pool.add(transfer(from, 0, 1, 50).into(), Origin::Remote, NOW);
    add(&early).expect("paid for");
    let mut next = state;
    next.accounts.entry(late.address).or_default().nonce = 1;
    let view = Interrupted::new(next);
    view.then(&pool, move |pool| {
        let tx = transfer(&late, 0, 1, 50);
        pool.add(tx.into(), Origin::Remote, NOW)
            .expect("the old head takes it");
    });
    let change = HeadUpdate {
        header,
        view,
        removed: &[],
        included: &[],
        changed: Some(&[early.address, late.address]),
    };
    pool.update_head(&change, NOW).expect("memory");
    let left: Vec<_> = pool.all().iter().map(|tx| tx.sender).collect();
    assert_eq!(left, vec![early.address]);
    assert_eq!(pool.stats().flows.removed_for(DropReason::Stale), 1);
}
