//! Blocks with an access list: whatever it claims, they give what they give without it.

use super::{
    CHAIN_ID, Outcome, any_address, block, call_with_gas, child, outcome, repeat_first, sender,
    state, with_transactions,
};
use niwaki_execution::{
    BlockExecution, ExecutedBlock, Executor, Parallelism, RecoveringBlock, TxStats, apply_body,
};
use niwaki_primitives::{
    AccountChanges, Address, B256, BalanceChange, BlockAccessIndex, BlockAccessList, Bytes,
    CodeChange, Fork, NonceChange, SlotChanges, StorageChange, U256,
};
use niwaki_rules::ChainSpec;
use niwaki_testkit::{MemoryAccount, MemoryState};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Threads, and whether everything is executed speculatively before the first commit.
const WAYS: [(usize, bool); 5] = [(1, true), (2, false), (3, false), (8, false), (8, true)];

/// The block executed sequentially, with its access list, which is recorded at any fork here.
fn serial(fork: Fork, state: &MemoryState, block: &RecoveringBlock) -> Outcome {
    let spec = ChainSpec::single(CHAIN_ID, fork);
    let mut executor = Executor::new(&spec, &block.block.header, state);
    executor.evm().world().record_access_list();
    outcome(executor.apply_body(&spec, block, &mut |_: &_| Ok(B256::ZERO)))
}

/// Executes the block with `list` in each way, which must give `expected`. Returns how, in all.
fn compare(
    name: &str,
    fork: Fork,
    state: &MemoryState,
    block: &RecoveringBlock,
    list: &BlockAccessList,
    expected: &Outcome,
) -> TxStats {
    let spec = ChainSpec::single(CHAIN_ID, fork);
    let mut all = TxStats::default();
    for (threads, speculate_all) in WAYS {
        let parallelism = Parallelism {
            speculate_all,
            ..Parallelism::of(threads)
        };
        let mut no_root = |_: &_| Ok(B256::ZERO);
        let ran = BlockExecution {
            bal: Some(list),
            parallelism,
            ..BlockExecution::new(&spec, block, state)
        }
        .run(&mut no_root);
        let ran = outcome(ran).map(|(executed, stats)| {
            add(&mut all, stats);
            executed
        });
        assert_eq!(&ran, expected, "{name}, {fork}, {parallelism:?}");
    }
    all
}

fn add(all: &mut TxStats, stats: TxStats) {
    all.validated += stats.validated;
    all.reexecuted += stats.reexecuted;
    all.sequential += stats.sequential;
}

/// What the block gives at `fork`, which has a list from Amsterdam on.
fn without_list(executed: ExecutedBlock, fork: Fork) -> ExecutedBlock {
    ExecutedBlock {
        block_access_list: executed
            .block_access_list
            .filter(|_| fork >= Fork::Amsterdam),
        ..executed
    }
}

fn compare_many(fork: Fork) -> TxStats {
    let mut all = TxStats::default();
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (state, block) = (state(&mut rng), block(&mut rng, fork));
        let Ok(executed) = serial(fork, &state, &block) else {
            continue;
        };
        let list = executed.block_access_list.clone().expect("recorded");
        let expected = Ok(without_list(executed, fork));
        let name = format!("seed {seed}");
        add(
            &mut all,
            compare(&name, fork, &state, &block, &list, &expected),
        );
    }
    all
}

#[test]
fn speculation_on_the_true_access_list_of_amsterdam_is_always_valid() {
    let stats = compare_many(Fork::Amsterdam);
    assert!(
        stats.validated > 5_000 && stats.reexecuted == 0,
        "{stats:?}"
    );
}

#[test]
fn blocks_of_earlier_forks_execute_with_access_lists_too() {
    for fork in [Fork::London, Fork::Cancun, Fork::Prague] {
        let stats = compare_many(fork);
        assert!(stats.validated > 3_000, "{fork}: {stats:?}");
    }
}

fn index(rng: &mut SmallRng) -> BlockAccessIndex {
    BlockAccessIndex(rng.random_range(0..26))
}

/// One that may be there, of a list that is not empty.
fn any<'a, T>(rng: &mut SmallRng, list: &'a mut [T]) -> Option<&'a mut T> {
    let count = list.len();
    (count > 0).then(|| &mut list[rng.random_range(0..count)])
}

fn remove_any<T>(rng: &mut SmallRng, list: &mut Vec<T>) {
    if !list.is_empty() {
        list.remove(rng.random_range(0..list.len()));
    }
}

/// A little earlier or later.
fn shift(rng: &mut SmallRng, index: Option<&mut BlockAccessIndex>) {
    if let Some(index) = index {
        index.0 = match rng.random_bool(0.5) {
            true => index.0 + 1,
            false => index.0.saturating_sub(1),
        };
    }
}

fn add_change(rng: &mut SmallRng, account: &mut AccountChanges) {
    let index = index(rng);
    match rng.random_range(0..4) {
        0 => {
            let balance = match rng.random_bool(0.3) {
                true => U256::ZERO,
                false => U256::from(rng.random_range(0..u64::MAX)),
            };
            account
                .balance_changes
                .push(BalanceChange::new(index, balance));
        }
        1 => account
            .nonce_changes
            .push(NonceChange::new(index, rng.random_range(0..5))),
        2 => {
            let code = match rng.random_range(0..3) {
                0 => Bytes::new(),
                1 => Bytes::from_static(&[0x5f, 0x5f, 0xfd]),
                _ => Bytes::from([&[0xef, 0x01, 0x00], &[0xa0; 20][..]].concat()),
            };
            account.code_changes.push(CodeChange::new(index, code));
        }
        _ => {
            let slot = U256::from(rng.random_range(0..3));
            let change = StorageChange::new(index, U256::from(rng.random_range(0..3)));
            let slots = &mut account.storage_changes;
            match slots.iter_mut().find(|changes| changes.slot == slot) {
                Some(changes) => changes.changes.push(change),
                None => slots.push(SlotChanges::new(slot, vec![change])),
            }
        }
    }
    account.storage_changes.sort_by_key(|changes| changes.slot);
}

/// Makes a list say something else about one account.
fn lie_about(rng: &mut SmallRng, account: &mut AccountChanges) {
    match rng.random_range(0..12) {
        0 => {
            if let Some(change) = any(rng, &mut account.balance_changes) {
                change.post_balance = match rng.random_range(0..3) {
                    0 => U256::ZERO,
                    1 => change.post_balance.wrapping_sub(U256::ONE),
                    _ => change.post_balance.wrapping_add(U256::ONE),
                };
            }
        }
        1 => {
            if let Some(change) = any(rng, &mut account.nonce_changes) {
                change.new_nonce = change.new_nonce.wrapping_add(rng.random_range(0..3)) - 1;
            }
        }
        2 => {
            if let Some(change) = any(rng, &mut account.code_changes) {
                change.new_code = Bytes::from_static(&[0x00]);
            }
        }
        3 => {
            let slot = any(rng, &mut account.storage_changes);
            if let Some(slot) = slot
                && let Some(change) = any(rng, &mut slot.changes)
            {
                change.new_value = change.new_value.wrapping_add(U256::ONE);
            }
        }
        4 => remove_any(rng, &mut account.balance_changes),
        5 => remove_any(rng, &mut account.nonce_changes),
        6 => remove_any(rng, &mut account.storage_changes),
        7 => {
            let change = any(rng, &mut account.balance_changes);
            shift(rng, change.map(|change| &mut change.block_access_index));
        }
        8 => {
            let change = any(rng, &mut account.nonce_changes);
            shift(rng, change.map(|change| &mut change.block_access_index));
        }
        9 => {
            let slot = any(rng, &mut account.storage_changes);
            let change = slot.and_then(|slot| any(rng, &mut slot.changes));
            shift(rng, change.map(|change| &mut change.block_access_index));
        }
        _ => add_change(rng, account),
    }
}

/// A list that is not the block's; some are not even in order.
fn lie(rng: &mut SmallRng, honest: &BlockAccessList) -> BlockAccessList {
    let mut list = honest.clone();
    while list == *honest {
        match rng.random_range(0..10) {
            0 => remove_any(rng, &mut list),
            1 => {
                let mut account = AccountChanges::new(any_address(rng));
                add_change(rng, &mut account);
                list.push(account);
                list.sort_by_key(|account| account.address);
            }
            _ => {
                if let Some(account) = any(rng, &mut list) {
                    lie_about(rng, account);
                }
            }
        }
    }
    list
}

#[test]
fn twelve_lying_access_lists_for_each_of_300_blocks_change_no_result() {
    let mut all = TxStats::default();
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let fork = match seed % 3 {
            0 => Fork::Cancun,
            _ => Fork::Amsterdam,
        };
        let (state, block) = (state(&mut rng), block(&mut rng, fork));
        let Ok(executed) = serial(fork, &state, &block) else {
            continue;
        };
        let honest = executed.block_access_list.clone().expect("recorded");
        let expected = Ok(without_list(executed, fork));
        for number in 0..12 {
            let list = lie(&mut rng, &honest);
            let name = format!("seed {seed}, lie {number}");
            add(
                &mut all,
                compare(&name, fork, &state, &block, &list, &expected),
            );
        }
    }
    // Lies that are never used, or never noticed, would test nothing.
    assert!(all.reexecuted > 800 && all.validated > 50_000, "{all:?}");
}

#[test]
fn an_invalid_block_has_the_same_error_with_any_access_list() {
    let mut refused = 0;
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let fork = Fork::Amsterdam;
        let (state, block) = (state(&mut rng), block(&mut rng, fork));
        let Ok(executed) = serial(fork, &state, &block) else {
            continue;
        };
        let honest = executed.block_access_list.expect("recorded");
        let at = rng.random_range(0..block.block.body.transactions.len());
        let block = repeat_first(&block, at);
        let spec = ChainSpec::single(CHAIN_ID, fork);
        let mut no_root = |_: &_| Ok(B256::ZERO);
        let expected = outcome(apply_body(&spec, &block, &state, &mut no_root));
        let name = format!("seed {seed}");
        compare(&name, fork, &state, &block, &honest, &expected);
        let lie = lie(&mut rng, &honest);
        compare(&name, fork, &state, &block, &lie, &expected);
        refused += usize::from(expected.is_err());
    }
    assert!(refused > 100, "{refused}");
}

/// The address at which the maker creates its child has storage, with or without a balance, but no code and no nonce.
fn with_hidden_storage(balance: u64) -> (MemoryState, RecoveringBlock) {
    let mut rng = SmallRng::seed_from_u64(1);
    let (mut state, block) = (state(&mut rng), block(&mut rng, Fork::Cancun));
    let mut taken = MemoryAccount {
        balance: U256::from(balance),
        ..MemoryAccount::default()
    };
    taken.storage.insert(U256::ZERO, U256::from(5));
    state.insert(child(1), taken);
    let word = |number: u8| Bytes::from(B256::from(U256::from(number)).0);
    // One counts; two make the child.
    let calls = [(0xa0, 1), (0xab, 1), (0xab, 1)].iter().enumerate();
    let calls = calls.map(|(nonce, (to, salt))| {
        // A creation that is barred leaves a sixty-fourth of the gas.
        call_with_gas(
            1_000_000,
            nonce as u64,
            Address::repeat_byte(*to),
            word(*salt),
        )
    });
    let block = with_transactions(&block, calls, [sender(0); 3]);
    (state, block)
}

/// Lists that claim that the child's address is empty, or has none of what bars a creation (EIP-7610).
fn hiding(honest: &BlockAccessList) -> Vec<BlockAccessList> {
    let first = BlockAccessIndex(1);
    let mut claims = [(); 5].map(|()| AccountChanges::new(child(1)));
    claims[0].balance_changes = vec![BalanceChange::new(first, U256::ZERO)];
    claims[1].nonce_changes = vec![NonceChange::new(first, 0)];
    claims[2].code_changes = vec![CodeChange::new(first, Bytes::new())];
    let zeroed = vec![StorageChange::new(first, U256::ZERO)];
    claims[3].storage_changes = vec![SlotChanges::new(U256::ZERO, zeroed)];
    claims[4].balance_changes = claims[0].balance_changes.clone();
    claims[4].storage_changes = claims[3].storage_changes.clone();
    let without = honest.iter().filter(|account| account.address != child(1));
    let without: BlockAccessList = without.cloned().collect();
    let with = |claim: &AccountChanges| {
        let mut list = without.clone();
        list.push(claim.clone());
        list.sort_by_key(|account| account.address);
        list
    };
    let mut lists: Vec<BlockAccessList> = claims.iter().map(with).collect();
    lists.push(without);
    lists
}

#[test]
fn a_list_that_hides_storage_from_create2_changes_nothing() {
    let maker = Address::repeat_byte(0xab);
    for (fork, is_barred) in [(Fork::Cancun, true), (Fork::Amsterdam, false)] {
        for balance in [0, 1] {
            let (state, block) = with_hidden_storage(balance);
            let executed = serial(fork, &state, &block).expect("it is valid");
            let changes = executed.diff.accounts.iter();
            let is_made = changes.clone().any(|(address, _)| *address == child(1));
            assert_eq!(is_made, !is_barred, "{fork}");
            assert!(changes.clone().any(|(address, _)| *address == maker));
            let honest = executed.block_access_list.clone().expect("recorded");
            let expected = Ok(without_list(executed, fork));
            let lists = hiding(&honest);
            for (number, list) in std::iter::once(&honest).chain(&lists).enumerate() {
                let name = format!("{balance} wei, list {number}");
                compare(&name, fork, &state, &block, list, &expected);
            }

            // An invalid block is refused for its own reason.
            let transactions = block.block.body.transactions.clone();
            let block = with_transactions(&block, transactions, [0, 0, 1].map(sender));
            let spec = ChainSpec::single(CHAIN_ID, fork);
            let refused = outcome(apply_body(&spec, &block, &state, &mut |_: &_| {
                Ok(B256::ZERO)
            }));
            assert!(refused.is_err());
            for list in std::iter::once(&honest).chain(&lists) {
                compare("a nonce too high", fork, &state, &block, list, &refused);
            }
        }
    }
}
