//! Invariants of the pool, checked the slow way: every table against the transactions.

use super::support::{Chain, ETHER, GWEI, Wallet, dynamic, signed, wallet};
use crate::store::Store;
use crate::{Origin, PoolConfig, PoolMode};
use niwaki_primitives::{
    Address, B256, Transaction, TxEip1559, TxEnvelope, U256,
    map::{HashMap, HashSet},
};
use proptest::prelude::*;
use std::collections::BTreeMap;

impl Store {
    /// Panics if a table or total is wrong.
    pub(crate) fn check(&self) {
        self.check_tables();
        self.check_runs();
        self.check_limits();
    }

    fn check_tables(&self) {
        let slots: usize = self.senders.values().map(|q| q.slots.len()).sum();
        assert_eq!(slots, self.txs.len(), "one slot for each transaction");
        assert_eq!(self.by_age.len(), self.txs.len());
        let (mut bytes, mut blob_bytes, mut waiting, mut waiting_bytes) = (0, 0, 0, 0);
        let (mut evictable, mut evictable_blobs, mut local) = (0, 0, 0);
        let mut by_type = [0; 5];
        let mut authorities: HashMap<Address, u64> = HashMap::default();
        for (sender, queue) in &self.senders {
            assert!(!queue.slots.is_empty(), "no sender without transactions");
            for (nonce, slot) in &queue.slots {
                let tx = &slot.tx;
                assert_eq!((tx.sender, tx.nonce()), (*sender, *nonce));
                assert!(self.txs.contains_key(&tx.hash));
                assert_eq!(self.by_age.get(&tx.seq), Some(&tx.hash));
                bytes += tx.bytes;
                blob_bytes += tx.blob_bytes;
                by_type[tx.type_index()] += 1;
                local += usize::from(tx.origin == Origin::Local);
                for authority in &tx.authorities {
                    *authorities.entry(*authority).or_default() += 1;
                }
                if !slot.pending {
                    waiting += 1;
                    waiting_bytes += tx.bytes;
                    evictable += usize::from(!tx.priority);
                }
                evictable_blobs += usize::from(!tx.priority && tx.blob_bytes > 0);
                assert_eq!(self.blobs.get(&tx.hash).is_some(), tx.blob_bytes > 0);
            }
        }
        let totals = &self.totals;
        assert_eq!((totals.bytes, totals.blob_bytes), (bytes, blob_bytes));
        assert_eq!(
            (totals.queued, totals.queued_bytes),
            (waiting, waiting_bytes)
        );
        assert_eq!((totals.by_type, totals.local), (by_type, local));
        assert_eq!(self.queued.len(), evictable);
        assert_eq!(self.blob_order.len(), evictable_blobs);
        assert_eq!(self.authorities, authorities);
    }

    /// The pending transactions start at the account's nonce, have no gap, and the balance pays for all; they end where
    /// the next transaction would break that.
    fn check_runs(&self) {
        let (mut heads, mut tails) = (0, 0);
        for queue in self.senders.values() {
            let (mut next, mut cost) = (queue.account.nonce, U256::ZERO);
            let mut open = true;
            for (nonce, slot) in &queue.slots {
                assert!(*nonce >= queue.account.nonce, "nothing stale");
                let with = cost.saturating_add(slot.tx.cost);
                open = open && *nonce == next && with <= queue.account.balance;
                assert_eq!(slot.pending, open, "nonce {nonce}");
                if open {
                    (next, cost) = (next + 1, with);
                }
            }
            assert_eq!(queue.run_end, next);
            let has_run = next > queue.account.nonce;
            assert_eq!(queue.head.is_some(), has_run);
            heads += usize::from(has_run);
            tails += usize::from(queue.tail.is_some());
            let last = next.checked_sub(1).and_then(|n| queue.slots.get(&n));
            let evictable = has_run && last.is_some_and(|slot| !slot.tx.priority);
            assert_eq!(queue.tail.is_some(), evictable);
        }
        assert_eq!(self.heads.best_first().count(), heads);
        assert_eq!(self.tails.worst_first().count(), tails);
    }

    /// All limits hold, except for one replacement, which stays until the next addition.
    fn check_limits(&self) {
        let (totals, config) = (&self.totals, &self.config);
        let layer = config.layer_max_capacity_bytes;
        let one = self.txs.values().map(|tx| tx.bytes).max().unwrap_or(0);
        match config.mode {
            PoolMode::Layered => {
                assert!(totals.bytes <= 3 * layer + one, "{} bytes", totals.bytes);
                assert!(totals.queued_bytes <= layer + one);
                assert!(totals.priority_bytes <= layer);
            }
            PoolMode::Sequenced => assert!(self.txs.len() <= config.max_size),
        }
        assert!(totals.blob_bytes <= config.blob_capacity_bytes);
    }
}

/// One step of a random history. Wallets are 0 to 5, tips and fees in gwei.
#[derive(Clone, Debug)]
enum Step {
    Add {
        from: u64,
        ahead: u64,
        tip: u64,
        fee: u64,
        value: u64,
        local: bool,
    },
    /// Includes this many of the best transactions in a block.
    Mine {
        count: usize,
    },
    /// Removes this many blocks, and includes this many of the best transactions in a new one.
    Reorganise {
        depth: usize,
        count: usize,
    },
    BaseFee {
        gwei: u64,
    },
    Balance {
        of: u64,
        ether: u64,
    },
    Penalize {
        nth: usize,
    },
    Invalid {
        nth: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let add = (
        0..6_u64,
        0..6_u64,
        0..20_u64,
        0..40_u64,
        0..4_u64,
        any::<bool>(),
    );
    let step = prop_oneof![
        12 => add.prop_map(|(from, ahead, tip, more, value, local)| Step::Add {
            from, ahead, tip, fee: tip + more, value, local,
        }),
        2 => (0..5_usize).prop_map(|count| Step::Mine { count }),
        1 => (1..4_usize, 0..3_usize).prop_map(|(depth, count)| Step::Reorganise { depth, count }),
        1 => (0..30_u64).prop_map(|gwei| Step::BaseFee { gwei }),
        1 => (0..6_u64, 0..4_u64).prop_map(|(of, ether)| Step::Balance { of, ether }),
        1 => (0..20_usize).prop_map(|nth| Step::Penalize { nth }),
        1 => (0..20_usize).prop_map(|nth| Step::Invalid { nth }),
    ];
    proptest::collection::vec(step, 1..60)
}

fn payment(from: &Wallet, nonce: u64, tip: u64, fee: u64, ether: u64) -> TxEnvelope {
    let tx = TxEip1559 {
        max_fee_per_gas: u128::from(fee) * GWEI + 1_000,
        max_priority_fee_per_gas: u128::from(tip) * GWEI,
        value: U256::from(u128::from(ether) * ETHER / 2),
        ..dynamic(nonce)
    };
    signed(tx, from).into()
}

/// Runs a history and checks all invariants after each step.
fn run(config: PoolConfig, steps: Vec<Step>) -> Chain {
    let mut chain = Chain::new(config);
    for n in 0..6 {
        chain.set_balance(wallet(n).address, 2 * ETHER);
    }
    chain.set_base_fee(7);
    for step in steps {
        take(&mut chain, step);
        chain.pool.read().check();
        check_offer(&chain);
    }
    chain
}

fn take(chain: &mut Chain, step: Step) {
    let nth = |nth: usize| chain.pool.all().get(nth).map(|tx| tx.hash);
    match step {
        Step::Add {
            from,
            ahead,
            tip,
            fee,
            value,
            local,
        } => {
            let from = wallet(from);
            let nonce = chain.state.accounts[&from.address].nonce + ahead;
            let tx = payment(&from, nonce, tip, fee, value);
            let before = chain.pool.all();
            let was_within = !chain.pool.read().exceeds_limits();
            let taken = if local {
                chain.local(tx)
            } else {
                chain.remote(tx)
            };
            check_addition(chain, &before, taken.is_ok() || !was_within);
        }
        Step::Mine { count } => {
            let txs = offer(chain, count);
            chain.mine(&txs);
        }
        Step::Reorganise { depth, count } => {
            let depth = depth.min(chain.height());
            // Best transactions at the head may not fit a lower block: only those that were never included do.
            let _ = count;
            chain.reorganise(depth, &[]);
        }
        Step::BaseFee { gwei } => chain.set_base_fee(gwei * 1_000_000_000 + 1),
        Step::Balance { of, ether } => {
            chain.set_balance(wallet(of).address, u128::from(ether) * ETHER);
            chain.mine(&[]);
        }
        Step::Penalize { nth: n } => {
            if let Some(hash) = nth(n) {
                assert!(chain.pool.penalize(&hash));
            }
        }
        Step::Invalid { nth: n } => {
            if let Some(hash) = nth(n) {
                assert!(chain.pool.remove_invalid(&hash));
                assert!(!chain.pool.contains(&hash));
            }
        }
    }
}

/// A refused addition changes nothing, unless the limits were exceeded before it: a replacement may stay beyond them until the next
/// addition (`may_change`). An accepted one evicts no local transaction but the one it replaces.
fn check_addition(
    chain: &Chain,
    before: &[std::sync::Arc<crate::PooledTransaction>],
    may_change: bool,
) {
    let after: HashSet<B256> = chain.pool.all().iter().map(|tx| tx.hash).collect();
    if !may_change {
        let same = before.iter().all(|tx| after.contains(&tx.hash));
        assert!(
            same && after.len() == before.len(),
            "a refusal changed the pool"
        );
    }
    for tx in before.iter().filter(|tx| tx.origin == Origin::Local) {
        let content = chain.pool.content_of(&tx.sender);
        let mut there = content.pending.iter().chain(&content.queued);
        assert!(
            there.any(|t| t.nonce() == tx.nonce()),
            "a local one was lost"
        );
    }
}

fn offer(chain: &Chain, count: usize) -> Vec<TxEnvelope> {
    let (base_fee, blob_base_fee) = chain.pool.next_fees();
    let best = chain.pool.best(base_fee, blob_base_fee);
    best.take(count).map(|tx| tx.tx.clone()).collect()
}

/// Best transactions are in nonce order for each sender, and at each point no other sender has a better one.
fn check_offer(chain: &Chain) {
    let (base_fee, blob_base_fee) = chain.pool.next_fees();
    let best: Vec<_> = chain.pool.best(base_fee, blob_base_fee).collect();
    let store = chain.pool.read();
    let mut open: BTreeMap<Address, u64> = BTreeMap::new();
    for (sender, queue) in &store.senders {
        open.insert(*sender, queue.account.nonce);
    }
    let rank = |sender: &Address, nonce: u64| {
        let slot = store.slot(sender, nonce).filter(|slot| slot.pending)?;
        let tx = &slot.tx;
        if tx.max_fee() < u128::from(base_fee) {
            return None;
        }
        let tip = tx.tip().min(tx.max_fee() - u128::from(base_fee));
        let tip = if store.by_arrival() { 0 } else { tip };
        Some((tx.priority, slot.score, tip, std::cmp::Reverse(tx.seq)))
    };
    for tx in &best {
        let own = rank(&tx.sender, open[&tx.sender]);
        let most = open.iter().filter_map(|(s, n)| rank(s, *n)).max();
        assert_eq!(own, most, "no other paid more");
        assert_eq!(open[&tx.sender], tx.nonce());
        open.insert(tx.sender, tx.nonce() + 1);
    }
    let rest = open.iter().filter_map(|(s, n)| rank(s, *n)).max();
    assert_eq!(rest, None, "all that can pay is offered");
}

#[test]
fn a_replacement_beyond_the_limits_stays_until_the_next_addition_also_one_that_is_refused() {
    let config = PoolConfig {
        layer_max_capacity_bytes: 2 << 10,
        ..PoolConfig::default()
    };
    let add = |from, ahead, tip, value, local| Step::Add {
        from,
        ahead,
        tip,
        fee: tip,
        value,
        local,
    };
    let mut chain = run(
        config,
        vec![
            add(0, 1, 0, 0, true),
            add(0, 2, 0, 0, true),
            add(5, 0, 0, 2, false),
            add(5, 1, 0, 0, false),
            // With the one before it, this costs more than the account has: it is queued, and the queued are too many.
            add(5, 1, 1, 2, false),
        ],
    );
    let has_replacement = |chain: &Chain| {
        let all = chain.pool.all();
        all.iter()
            .any(|tx| tx.sender == wallet(5).address && tx.nonce() == 1)
    };
    assert!(chain.pool.read().exceeds_limits() && has_replacement(&chain));
    take(&mut chain, add(1, 1, 0, 0, false));
    assert!(!chain.pool.read().exceeds_limits());
    let senders: HashSet<Address> = chain.pool.all().iter().map(|tx| tx.sender).collect();
    assert!(!senders.contains(&wallet(1).address), "it was refused");
    assert!(!has_replacement(&chain));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn invariants_hold_in_a_large_pool(steps in steps()) {
        run(PoolConfig::default(), steps);
    }

    #[test]
    fn invariants_hold_in_a_small_pool(steps in steps(), kilobytes in 2_usize..9) {
        let config = PoolConfig { layer_max_capacity_bytes: kilobytes << 10, ..PoolConfig::default() };
        run(config, steps);
    }

    #[test]
    fn a_pool_without_local_priority_stays_within_its_bytes(steps in steps()) {
        let config = PoolConfig {
            layer_max_capacity_bytes: 3 << 10,
            no_local_priority: true,
            ..PoolConfig::default()
        };
        let mut chain = Chain::new(config);
        for step in steps {
            if let Step::Add { from, ahead, tip, fee, value, local } = step {
                let from = wallet(from);
                let nonce = chain.state.accounts[&from.address].nonce + ahead;
                let tx = payment(&from, nonce, tip, fee, value);
                let _ = if local { chain.local(tx) } else { chain.remote(tx) };
            } else if matches!(step, Step::Mine { .. }) {
                take(&mut chain, step);
            }
            chain.pool.read().check();
        }
    }

    #[test]
    fn invariants_hold_in_a_sequenced_pool(steps in steps(), size in 3_usize..12) {
        let config = PoolConfig {
            mode: PoolMode::Sequenced,
            max_size: size,
            limit_by_account: 1.0,
            ..PoolConfig::default()
        };
        run(config, steps);
    }

    #[test]
    fn a_large_pool_matches_a_model(steps in steps()) {
        agree_with_a_list(steps);
    }
}

/// The simplest pool: a map from sender and nonce to the last transaction that was accepted.
#[derive(Default)]
struct Listed {
    held: BTreeMap<(Address, u64), TxEnvelope>,
}

impl Listed {
    fn add(&mut self, chain: &Chain, sender: Address, tx: &TxEnvelope) -> bool {
        let account = &chain.state.accounts[&sender];
        let cost = U256::from(tx.max_fee_per_gas()) * U256::from(tx.gas_limit()) + tx.value();
        let old = self.held.get(&(sender, tx.nonce()));
        let tip = |tx: &TxEnvelope| tx.max_priority_fee_per_gas().unwrap_or(0);
        let pays = old.is_none_or(|old| {
            tip(tx) * 10 >= tip(old) * 11
                && tx.max_fee_per_gas() * 10 >= old.max_fee_per_gas() * 11
                && tip(tx) > tip(old)
                && tx.max_fee_per_gas() > old.max_fee_per_gas()
        });
        let taken = cost <= account.balance && pays;
        if taken {
            self.held.insert((sender, tx.nonce()), tx.clone());
        }
        taken
    }
}

fn agree_with_a_list(steps: Vec<Step>) {
    let mut chain = Chain::new(PoolConfig::default());
    let mut list = Listed::default();
    for n in 0..6 {
        chain.set_balance(wallet(n).address, 2 * ETHER);
    }
    chain.set_base_fee(7);
    for step in steps {
        match step {
            Step::Add {
                from,
                ahead,
                tip,
                fee,
                value,
                ..
            } => {
                let from = wallet(from);
                let nonce = chain.state.accounts[&from.address].nonce + ahead;
                let tx = payment(&from, nonce, tip, fee, value);
                let known = chain.pool.contains(tx.tx_hash());
                let expected = !known && list.add(&chain, from.address, &tx);
                let taken = chain.remote(tx);
                assert_eq!(taken.is_ok(), expected, "{taken:?}");
            }
            Step::Balance { .. } | Step::Mine { .. } | Step::BaseFee { .. } => {
                take(&mut chain, step);
                let accounts = &chain.state.accounts;
                list.held
                    .retain(|(s, nonce), _| *nonce >= accounts[s].nonce);
            }
            _ => {}
        }
        let held = chain.pool.all();
        assert_eq!(held.len(), list.held.len());
        for tx in held {
            assert_eq!(list.held.get(&(tx.sender, tx.nonce())), Some(&tx.tx));
        }
    }
}
