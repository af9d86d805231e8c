//! Blocks whose transactions conflict on purpose: on any number of threads they give what they give sequentially.

#[path = "speculation/bal.rs"]
mod bal;
#[path = "speculation/dependencies.rs"]
mod dependencies;
#[path = "speculation/idle_work.rs"]
mod idle_work;
#[path = "speculation/panics.rs"]
mod panics;
#[path = "speculation/progress.rs"]
mod progress;

use niwaki_execution::{
    BlockExecution, ExecuteError, ExecutedBlock, Parallelism, RecoveringBlock, TxStats, apply_body,
};
use niwaki_primitives::{
    Address, B256, BUILDER_DEPOSIT_CONTRACT_ADDRESS, BUILDER_EXIT_CONTRACT_ADDRESS, Block,
    BlockBody, Bytes, Fork, Header, SignableTransaction, Signature, SignedAuthorization, TxEip1559,
    TxEip7702, TxEnvelope, TxKind, TxLegacy, U256, hex,
};
use niwaki_rules::ChainSpec;
use niwaki_testkit::{Key, MemoryAccount, MemoryState};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

const CHAIN_ID: u64 = 1;
const COINBASE: Address = Address::repeat_byte(0xcb);
const BASE_FEE: u64 = 7;
const SENDERS: u8 = 5;

/// What the contracts do; the address is the number 20 times.
const CONTRACTS: [(u8, &str); 13] = [
    // Adds one to the slot that the first word names, and logs the sum.
    (0xa0, "5f358054600101805f52905560205fa000"),
    // Sets slot 0 to the first word.
    (0xa1, "5f355f5500"),
    // Keeps the balance of the coinbase, which every transaction changes.
    (0xa2, "41315f5500"),
    // Keeps the balance of the caller, and its own.
    (0xa3, "33315f554760015500"),
    // Sends what it got on to the address in the first word, and keeps whether it could.
    (0xa4, "5f5f5f5f345f355af15f5500"),
    // Makes a contract with CREATE2 and salt 0, which destroys itself in favour of its maker when it is
    // called; calls it, and keeps the result and the address.
    (
        0xa5,
        "696133ff5f526002601ef35f525f600a60165ff55f5f5f5f5f855af15f5560015500",
    ),
    // Keeps the gas that is left.
    (0xa6, "5a5f5500"),
    // Counts, and reverts if the first word is odd.
    (0xa7, "5f546001015f555f35600116601057005b5f5ffd"),
    // Keeps code hash and balance of the address in the first word.
    (0xa8, "5f353f5f555f353160015500"),
    // Destroys itself in favour of the address in the first word.
    (0xa9, "5f35ff"),
    // Sends 60 wei of its own to the address in the first word, if it has them.
    (0xaa, "5f5f5f5f603c5f355af15000"),
    // Makes a child with the first word as salt, and keeps its address.
    (
        0xab,
        "705f546001015f556133ff5f526002601ef35f525f356011600f5ff55f5500",
    ),
    // Makes an empty contract by CREATE, whose address its nonce decides.
    (0xac, "5f5f5ff05000"),
];

/// A child counts when it is created, and destroys itself in favour of its caller.
const CHILD_INIT: &str = "5f546001015f556133ff5f526002601ef3";
const CHILD: &str = "33ff";

fn child(salt: u8) -> Address {
    let salt = B256::from(U256::from(salt));
    Address::repeat_byte(0xab).create2_from_code(salt, hex::decode(CHILD_INIT).expect("it is hex"))
}

fn sender(number: u8) -> Address {
    Address::repeat_byte(0x50 + number)
}

/// An address: a contract, a sender, the coinbase, or an empty account.
fn any_address(rng: &mut SmallRng) -> Address {
    match rng.random_range(0..13) {
        12.. => key(rng.random_range(1..3)).address,
        10.. => child(rng.random_range(0..2)),
        0..5 => Address::repeat_byte(CONTRACTS[rng.random_range(0..CONTRACTS.len())].0),
        5..7 => sender(rng.random_range(0..SENDERS)),
        7 => COINBASE,
        8 => Address::with_last_byte(rng.random_range(1..6)),
        _ => Address::repeat_byte(rng.random_range(0xe0..0xe4)),
    }
}

fn state(rng: &mut SmallRng) -> MemoryState {
    let mut state = MemoryState::default();
    for (number, code) in CONTRACTS {
        let mut account = MemoryAccount {
            nonce: 1,
            balance: U256::from(rng.random_range(0..500_u64)),
            code: Bytes::from(hex::decode(code).expect("it is hex")).into(),
            ..MemoryAccount::default()
        };
        account.storage.insert(U256::ZERO, U256::from(5));
        state.insert(Address::repeat_byte(number), account);
    }
    // The first signer acts by a contract's code already.
    let designator = [&[0xef, 0x01, 0x00], &[0xa3; 20][..]].concat();
    let delegated = MemoryAccount {
        nonce: 1,
        code: Bytes::from(designator).into(),
        ..MemoryAccount::default()
    };
    state.insert(key(1).address, delegated);
    // Contracts that give no requests.
    let spec = ChainSpec::single(CHAIN_ID, Fork::Amsterdam);
    for address in [
        spec.withdrawal_request_contract,
        spec.consolidation_request_contract,
        BUILDER_DEPOSIT_CONTRACT_ADDRESS,
        BUILDER_EXIT_CONTRACT_ADDRESS,
    ] {
        let account = MemoryAccount {
            nonce: 1,
            code: Bytes::from_static(&[0]).into(),
            ..MemoryAccount::default()
        };
        state.insert(address, account);
    }
    let mut old_child = MemoryAccount {
        nonce: 1,
        code: Bytes::from(hex::decode(CHILD).expect("it is hex")).into(),
        ..MemoryAccount::default()
    };
    old_child.storage.insert(U256::ZERO, U256::from(5));
    state.insert(child(0), old_child);
    // Empty accounts, which are deleted when touched.
    for number in 0xe0..0xe2 {
        state.insert(Address::repeat_byte(number), MemoryAccount::default());
    }
    for number in 0..SENDERS {
        // The last one may run out in the middle of a block, unless it is sent something.
        let balance = match number {
            4 => U256::from(rng.random_range(0..2_000_000_000_u64)),
            _ => U256::from(10_u64.pow(18)),
        };
        let account = MemoryAccount {
            balance,
            ..MemoryAccount::default()
        };
        state.insert(sender(number), account);
    }
    if rng.random_bool(0.5) {
        let balance = U256::from(1);
        let account = MemoryAccount {
            balance,
            ..MemoryAccount::default()
        };
        state.insert(COINBASE, account);
    }
    state
}

fn key(number: u8) -> Key {
    Key::new(B256::with_last_byte(number))
}

/// Has one of two accounts act by a contract's code, or by none; the first by one it had before, often.
fn authorization(rng: &mut SmallRng) -> SignedAuthorization {
    let number = rng.random_range(1..3);
    let code = match rng.random_range(0..4) {
        0 => Address::ZERO,
        1 => Address::repeat_byte(0xa0),
        _ => Address::repeat_byte(0xa3),
    };
    key(number).authorize(0, code, rng.random_range(0..3))
}

/// A block of transactions that meet in few accounts and slots; one in two hundred is invalid.
fn block(rng: &mut SmallRng, fork: Fork) -> RecoveringBlock {
    let mut nonces = [0; SENDERS as usize];
    let (mut transactions, mut senders) = (Vec::new(), Vec::new());
    let favourites = [any_address(rng), any_address(rng)];
    for _ in 0..rng.random_range(1..24) {
        let number = rng.random_range(0..SENDERS);
        let to = match rng.random_bool(0.6) {
            true => favourites[rng.random_range(0..favourites.len())],
            false => any_address(rng),
        };
        let word = match rng.random_bool(0.5) {
            true => B256::from(U256::from(rng.random_range(0..3_u8))),
            false => any_address(rng).into_word(),
        };
        let nonce = nonces[usize::from(number)] + u64::from(rng.random_bool(0.005));
        nonces[usize::from(number)] += 1;
        senders.push(sender(number));
        let signature = Signature::new(U256::from(1), U256::from(1), false);
        if fork >= Fork::Prague && rng.random_bool(0.2) {
            let tx = TxEip7702 {
                chain_id: CHAIN_ID,
                nonce,
                gas_limit: rng.random_range(100_000..800_000),
                max_fee_per_gas: 100,
                to,
                authorization_list: vec![authorization(rng), authorization(rng)],
                input: word.0.into(),
                ..TxEip7702::default()
            };
            transactions.push(tx.into_signed(signature).into());
            continue;
        }
        let tx = TxEip1559 {
            chain_id: CHAIN_ID,
            nonce,
            gas_limit: rng.random_range(21_000..400_000),
            max_fee_per_gas: rng.random_range(7..100),
            max_priority_fee_per_gas: rng.random_range(0..7),
            to: match rng.random_bool(0.05) {
                true => TxKind::Create,
                false => TxKind::Call(to),
            },
            value: U256::from(match rng.random_range(0..4) {
                0 => rng.random_range(0..100_u64),
                1 => rng.random_range(0..30_000_000),
                _ => 0,
            }),
            input: word.0.into(),
            ..TxEip1559::default()
        };
        transactions.push(tx.into_signed(signature).into());
    }
    let since = |first: Fork| fork >= first;
    let header = Header {
        number: 1000,
        timestamp: 1_700_000_000,
        gas_limit: 60_000_000,
        beneficiary: COINBASE,
        base_fee_per_gas: Some(BASE_FEE),
        excess_blob_gas: since(Fork::Cancun).then_some(0),
        ..Header::default()
    };
    let body = BlockBody {
        transactions,
        ommers: Vec::new(),
        withdrawals: None,
    };
    recovered(Block::new(header, body), senders)
}

/// A block with these senders.
fn recovered(
    block: impl Into<Arc<Block>>,
    senders: impl IntoIterator<Item = Address>,
) -> RecoveringBlock {
    RecoveringBlock::new(block, B256::ZERO, senders.into_iter().map(Some))
}

/// The block with other transactions and their senders.
fn with_transactions(
    block: &RecoveringBlock,
    transactions: impl IntoIterator<Item = TxEnvelope>,
    senders: impl IntoIterator<Item = Address>,
) -> RecoveringBlock {
    let mut block = (*block.block).clone();
    block.body.transactions = transactions.into_iter().collect();
    recovered(block, senders)
}

/// A call without value, of little gas.
fn call(nonce: u64, to: Address, input: Bytes) -> TxEnvelope {
    call_with_gas(200_000, nonce, to, input)
}

fn call_with_gas(gas_limit: u64, nonce: u64, to: Address, input: Bytes) -> TxEnvelope {
    let tx = TxEip1559 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit,
        max_fee_per_gas: 100,
        max_priority_fee_per_gas: 1,
        to: TxKind::Call(to),
        input,
        ..TxEip1559::default()
    };
    let signature = Signature::new(U256::from(1), U256::from(1), false);
    tx.into_signed(signature).into()
}

type Outcome = Result<ExecutedBlock, String>;

fn outcome<T>(result: Result<T, ExecuteError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn compare_seed(seed: u64, fork: Fork) -> TxStats {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (state, block) = (state(&mut rng), block(&mut rng, fork));
    compare(&format!("seed {seed}"), fork, &state, &block)
}

/// Executes the block sequentially, then in each parallel way. Returns how, in all.
fn compare(name: &str, fork: Fork, state: &MemoryState, block: &RecoveringBlock) -> TxStats {
    let spec = ChainSpec::single(CHAIN_ID, fork);
    let mut no_root = |_: &_| Ok(B256::ZERO);
    let serial: Outcome = outcome(apply_body(&spec, block, state, &mut no_root));
    let mut stats = TxStats::default();
    for (threads, speculate_all) in [(1, true), (2, false), (3, false), (8, false), (8, true)] {
        let parallelism = Parallelism {
            speculate_all,
            ..Parallelism::of(threads)
        };
        let ran = BlockExecution {
            parallelism,
            ..BlockExecution::new(&spec, block, state)
        }
        .run(&mut no_root);
        let ran = outcome(ran).map(|(executed, own)| {
            stats.validated += own.validated;
            stats.reexecuted += own.reexecuted;
            stats.sequential += own.sequential;
            executed
        });
        assert_eq!(ran, serial, "{name}, {fork}, {parallelism:?}");
    }
    stats
}

fn compare_many(fork: Fork) {
    let mut all = TxStats::default();
    for seed in 0..300 {
        let stats = compare_seed(seed, fork);
        all.validated += stats.validated;
        all.reexecuted += stats.reexecuted;
        all.sequential += stats.sequential;
    }
    // Without valid results, or without conflicts, nothing would be tested.
    assert!(all.validated > 3_000 && all.reexecuted > 300, "{all:?}");
}

#[test]
fn blocks_of_london_give_the_sequential_result() {
    compare_many(Fork::London);
}

#[test]
fn blocks_of_shanghai_give_the_sequential_result() {
    compare_many(Fork::Shanghai);
}

#[test]
fn blocks_of_cancun_give_the_sequential_result() {
    compare_many(Fork::Cancun);
}

#[test]
fn blocks_of_prague_give_the_sequential_result() {
    compare_many(Fork::Prague);
}

#[test]
fn blocks_of_amsterdam_give_the_sequential_result() {
    compare_many(Fork::Amsterdam);
}

/// A free transaction that would run for years with its gas limit.
#[test]
fn an_endless_transaction_above_the_gas_limit_is_refused_without_waiting_for_its_worker() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut state = state(&mut rng);
    let endless = MemoryAccount {
        // JUMPDEST PUSH1 0 JUMP
        code: Bytes::from_static(&[0x5b, 0x60, 0, 0x56]).into(),
        ..MemoryAccount::default()
    };
    let to = Address::repeat_byte(0xbb);
    state.insert(to, endless);
    let mut block = block(&mut rng, Fork::Istanbul);
    Arc::make_mut(&mut block.block).header.base_fee_per_gas = None;
    let transactions = (0..4).map(|number| {
        let tx = TxLegacy {
            chain_id: Some(CHAIN_ID),
            gas_limit: if number == 2 { 1 << 62 } else { 100_000 },
            to: TxKind::Call(to),
            ..TxLegacy::default()
        };
        let signature = Signature::new(U256::from(1), U256::from(1), false);
        tx.into_signed(signature).into()
    });
    let block = with_transactions(&block, transactions, (0..4).map(sender));
    compare("an endless transaction", Fork::Istanbul, &state, &block);
}

/// Each of three transactions, by itself, could have a contract send 60 of its 100 wei.
#[test]
fn a_balance_is_not_spent_twice() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut state = state(&mut rng);
    let spender = Address::repeat_byte(0xaa);
    let account = state.accounts.get_mut(&spender).expect("it is there");
    account.balance = U256::from(100);
    let block = block(&mut rng, Fork::Cancun);
    let transactions = (0..3).map(|number| {
        let tx = TxEip1559 {
            chain_id: CHAIN_ID,
            gas_limit: 100_000,
            max_fee_per_gas: 100,
            to: TxKind::Call(spender),
            input: sender(number).into_word().0.into(),
            ..TxEip1559::default()
        };
        let signature = Signature::new(U256::from(1), U256::from(1), false);
        tx.into_signed(signature).into()
    });
    let block = with_transactions(&block, transactions, (0..3).map(sender));
    let stats = compare("three payments", Fork::Cancun, &state, &block);
    assert!(stats.reexecuted >= 4, "both, twice: {stats:?}");
}

/// The block with its first transaction in the place of the one at `at` too, sent by account 4.
fn repeat_first(block: &RecoveringBlock, at: usize) -> RecoveringBlock {
    let mut transactions = block.block.body.transactions.clone();
    transactions[at] = transactions[0].clone();
    let mut senders: Vec<Address> = block.senders.known().collect();
    senders[at] = sender(4);
    with_transactions(block, transactions, senders)
}

#[test]
fn invalid_blocks_are_refused_for_the_same_reason() {
    let mut rng = SmallRng::seed_from_u64(1);
    let state = state(&mut rng);
    let spec = ChainSpec::single(CHAIN_ID, Fork::Cancun);
    let mut refused = 0;
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let block = block(&mut rng, Fork::Cancun);
        let at = rng.random_range(0..block.block.body.transactions.len());
        let block = repeat_first(&block, at);
        let mut no_root = |_: &_| Ok(B256::ZERO);
        let serial = outcome(apply_body(&spec, &block, &state, &mut no_root));
        let ahead = Parallelism {
            speculate_all: seed % 2 == 0,
            ..Parallelism::of(3)
        };
        let ran = BlockExecution {
            parallelism: ahead,
            ..BlockExecution::new(&spec, &block, &state)
        }
        .run(&mut no_root);
        assert_eq!(outcome(ran).map(|(executed, _)| executed), serial, "{seed}");
        refused += usize::from(serial.is_err());
    }
    assert!(refused > 100, "{refused}");
}
