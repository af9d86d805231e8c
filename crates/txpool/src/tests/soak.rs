//! A long random history, and the costs of the pool.

use super::support::{CHAIN_ID, Chain, ETHER, GWEI, NOW, Wallet, dynamic, funds, signed, wallet};
use crate::{HeadUpdate, Incoming, Origin, PoolConfig, PoolMode};
use niwaki_primitives::{Address, B256, Fork, TxEip1559, TxEnvelope, map::HashMap};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::sync::Arc;
use std::time::Instant;

const SENDERS: u64 = 60;
const NONCES: u64 = 40;

fn paid(from: &Wallet, nonce: u64, tip: u128, fee: u128) -> TxEnvelope {
    let tx = TxEip1559 {
        max_fee_per_gas: fee,
        max_priority_fee_per_gas: tip.min(fee),
        ..dynamic(nonce)
    };
    signed(tx, from).into()
}

/// Two transactions for each nonce of each sender, so that signing does not take all the time.
fn stock(random: &mut SmallRng) -> Vec<Vec<[TxEnvelope; 2]>> {
    let of = |from: Wallet, random: &mut SmallRng| {
        let one = |nonce, random: &mut SmallRng| {
            let (tip, fee) = (random.random_range(1..50), random.random_range(1..100));
            paid(&from, nonce, tip * GWEI, fee * GWEI)
        };
        let pair = |nonce| [one(nonce, random), one(nonce, random)];
        (0..NONCES).map(pair).collect()
    };
    (0..SENDERS).map(|n| of(wallet(n), random)).collect()
}

fn soak(config: PoolConfig, seed: u64, operations: usize, mut watch: impl FnMut(usize)) {
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let stock = stock(&mut random);
    let mut chain = Chain::new(config);
    let (mut added, mut refused, mut mined) = (0, 0, 0);
    for operation in 0..operations {
        watch(operation);
        match random.random_range(0..1_000) {
            0..960 => {
                let from = random.random_range(0..SENDERS);
                let nonce = chain.state.accounts[&wallet(from).address].nonce;
                let nonce = nonce + random.random_range(0..6);
                let Some(pair) = stock[usize::try_from(from).expect("60")]
                    .get(usize::try_from(nonce).expect("40"))
                else {
                    continue;
                };
                let tx = pair[random.random_range(0..2)].clone();
                let local = random.random_range(0..50) == 0;
                let taken = if local {
                    chain.local(tx)
                } else {
                    chain.remote(tx)
                };
                added += usize::from(taken.is_ok());
                refused += usize::from(taken.is_err());
            }
            960..985 => {
                let count = random.random_range(0..20);
                let (base_fee, blob_base_fee) = chain.pool.next_fees();
                let best = chain.pool.best(base_fee, blob_base_fee);
                let txs: Vec<_> = best.take(count).map(|tx| tx.tx.clone()).collect();
                mined += txs.len();
                chain.mine(&txs);
            }
            985..992 => {
                let depth = random.random_range(1..8).min(chain.height());
                chain.reorganise(depth, &[]);
            }
            992..996 => chain.set_base_fee(random.random_range(1..60) * 1_000_000_000),
            _ => {
                let of = wallet(random.random_range(0..SENDERS)).address;
                chain.set_balance(of, random.random_range(0..3) * ETHER / 4);
                chain.mine(&[]);
            }
        }
        if operation % 97 == 0 {
            chain.pool.read().check();
        }
        if random.random_range(0..2_000) == 0 {
            // No sender is stuck: all nonces restart below.
            chain.reorganise(chain.height(), &[]);
        }
    }
    chain.pool.read().check();
    let stats = chain.pool.stats();
    println!("{added} added, {refused} refused, {mined} mined, {stats:?}");
    assert!(added > operations / 20 && mined > operations / 200);
}

#[test]
fn invariants_hold_through_100_000_random_operations() {
    let layered = PoolConfig {
        layer_max_capacity_bytes: 120_000,
        ..PoolConfig::default()
    };
    soak(layered, 1, 70_000, |_| {});
    let sequenced = PoolConfig {
        mode: PoolMode::Sequenced,
        max_size: 200,
        limit_by_account: 0.1,
        ..PoolConfig::default()
    };
    soak(sequenced, 2, 30_000, |_| {});
}

/// Resident memory, KiB, if the system reports it.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let digits = line.and_then(|line| line.split_whitespace().next());
    digits.and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Ten million operations: `cargo test --release -- --ignored --nocapture 10_million`.
#[test]
#[ignore = "takes a quarter of an hour"]
fn memory_is_flat_over_10_million_operations() {
    let config = PoolConfig {
        layer_max_capacity_bytes: 120_000,
        ..PoolConfig::default()
    };
    let mut resident = Vec::new();
    soak(config, 4, 10_000_000, |operation| {
        if operation % 500_000 == 0 {
            println!("{operation} operations: {} KiB resident", resident_kib());
            resident.push(resident_kib());
        }
    });
    let (early, late) = (resident[2], resident_kib());
    assert!(late < early + early / 10, "{early} KiB, then {late} KiB");
}

/// Prints measurements: `cargo test --release -- --ignored --nocapture cost_of_operations`.
#[test]
#[ignore = "prints stats"]
fn cost_of_operations() {
    const WALLETS: u64 = 10_000;
    let mut state = MemoryState::default();
    let wallets: Vec<Wallet> = (0..WALLETS).map(wallet).collect();
    for wallet in &wallets {
        state.insert(wallet.address, funds(ETHER * 1_000));
    }
    let spec = ChainSpec::single(CHAIN_ID, Fork::Osaka);
    let mut random = SmallRng::seed_from_u64(3);
    let mut txs = Vec::new();
    for nonce in 0..5 {
        for wallet in &wallets {
            let tip = random.random_range(1..1_000_000_000_u128);
            txs.push(paid(wallet, nonce, tip, tip + 20 * GWEI));
        }
    }
    for round in 0..5 {
        let config = PoolConfig {
            layer_max_capacity_bytes: 1 << 30,
            ..PoolConfig::default()
        };
        let chain = Chain::upon(spec.clone(), state.clone(), config);
        let incoming: Vec<Incoming> = txs.iter().map(|tx| tx.clone().into()).collect();
        let count = incoming.len();
        let resident = resident_kib();
        let start = Instant::now();
        for tx in incoming {
            chain.pool.add(tx, Origin::Remote, NOW).expect("paid for");
        }
        let took = start.elapsed();
        let grown = resident_kib().saturating_sub(resident);
        let counted = chain.pool.stats().bytes >> 10;
        println!("round {round}: {counted} KiB counted, {grown} KiB more resident");
        let per_tx = took.as_nanos() / count as u128;
        println!("round {round}: {count} added, {per_tx} ns each, with recovery of the sender");
        measure_best(&chain);
        measure_head(&chain, &mut state.clone());
        let mut again = Vec::new();
        for tx in &txs {
            again.push(Incoming::from(tx.clone()));
        }
        let start = Instant::now();
        for tx in again {
            assert!(chain.pool.add(tx, Origin::Remote, NOW).is_err());
        }
        let per_tx = start.elapsed().as_nanos() / count as u128;
        println!("round {round}: known or stale ones refused in {per_tx} ns each");
    }
}

/// The memory of one transaction if each has its own sender: the worst case for the tables. Prints measurements.
#[test]
#[ignore = "prints stats"]
fn memory_per_transaction() {
    const WALLETS: u64 = 60_000;
    let wallets: Vec<Wallet> = (0..WALLETS).map(wallet).collect();
    let mut state = MemoryState::default();
    for wallet in &wallets {
        state.insert(wallet.address, funds(ETHER));
    }
    let config = PoolConfig {
        layer_max_capacity_bytes: 1 << 30,
        ..PoolConfig::default()
    };
    let chain = Chain::upon(ChainSpec::single(CHAIN_ID, Fork::Osaka), state, config);
    let bytes: Vec<Vec<u8>> = wallets
        .iter()
        .map(|wallet| crate::encode_network(&paid(wallet, 0, GWEI, 20 * GWEI), None))
        .collect();
    let resident = resident_kib();
    for bytes in &bytes {
        let incoming = Incoming::decode(bytes).expect("it was just encoded");
        chain
            .pool
            .add(incoming, Origin::Remote, NOW)
            .expect("paid for");
    }
    let grown = resident_kib().saturating_sub(resident);
    println!("{} bytes each", (grown << 10) / WALLETS);
    let best = chain.pool.best(chain.pool.next_fees().0, 1);
    println!("{} offered", best.count());
    let all: Vec<_> = chain.pool.all();
    for wallet in &wallets {
        chain.pool.read().senders[&wallet.address].candidates(false);
    }
    let grown = resident_kib().saturating_sub(resident);
    let counted = chain.pool.stats().bytes / all.len();
    println!(
        "{} bytes each once offered, {counted} counted",
        (grown << 10) / WALLETS
    );
}

fn measure_best(chain: &Chain) {
    let (base_fee, blob_base_fee) = chain.pool.next_fees();
    for name in ["after changes", "again"] {
        let start = Instant::now();
        let best = chain.pool.best(base_fee, blob_base_fee);
        let snapshot = start.elapsed();
        let count = best.count();
        let all = start.elapsed();
        println!("  best {name}: snapshot {snapshot:?}, {count} given out by {all:?}");
    }
}

/// A block of 200 transactions: the senders of the first 200.
fn measure_head(chain: &Chain, state: &mut MemoryState) {
    let best = chain.pool.best(1, 1);
    let taken: Vec<(B256, Address)> = best.take(200).map(|tx| (tx.hash, tx.sender)).collect();
    let mut used: HashMap<Address, u64> = HashMap::default();
    for (_, sender) in &taken {
        *used.entry(*sender).or_default() += 1;
    }
    for (sender, count) in used {
        state.accounts.entry(sender).or_default().nonce += count;
    }
    let changed: Vec<Address> = taken.iter().map(|(_, sender)| *sender).collect();
    let mut header = chain.header.clone();
    header.number += 1;
    header.base_fee_per_gas = Some(1_000_000_000);
    let change = HeadUpdate {
        header,
        view: Arc::new(state.clone()),
        removed: &[],
        included: &taken,
        changed: Some(&changed),
    };
    let start = Instant::now();
    chain.pool.update_head(&change, NOW).expect("memory");
    println!("  a block of 200 of 50,000: {:?}", start.elapsed());
}
