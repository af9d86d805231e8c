//! Dependencies of transactions, found by executing them.

use super::{CHAIN_ID, block, call, sender, state, with_transactions};
use niwaki_execution::{Executor, RecoveringBlock, TxDependencies, tx_dependencies};
use niwaki_primitives::{Address, B256, Bytes, Fork, U256};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Adds one to the slot that the first word names.
const COUNT: Address = Address::repeat_byte(0xa0);
/// Sets slot 0 to the first word.
const SET: Address = Address::repeat_byte(0xa1);
/// Keeps the balance of the coinbase.
const WATCH: Address = Address::repeat_byte(0xa2);

fn dependencies(state: &MemoryState, calls: &[(u8, Address, u8)]) -> Vec<TxDependencies> {
    let fork = Fork::Cancun;
    let block = block(&mut SmallRng::seed_from_u64(1), fork);
    let mut nonces = [0; 5];
    let transactions = calls.iter().map(|(number, to, word)| {
        let nonce = &mut nonces[usize::from(*number)];
        *nonce += 1;
        let word = B256::from(U256::from(*word));
        call(*nonce - 1, *to, Bytes::from(word.0))
    });
    let senders = calls.iter().map(|(number, ..)| sender(*number));
    let block = with_transactions(&block, transactions, senders);
    let spec = ChainSpec::single(CHAIN_ID, fork);
    let list = list_of(&spec, &block, state);
    let block = block.recovered().expect("all senders are given");
    tx_dependencies(&spec, &block, &list, state).expect("it is valid")
}

fn list_of(
    spec: &ChainSpec,
    block: &RecoveringBlock,
    state: &MemoryState,
) -> niwaki_primitives::BlockAccessList {
    let mut executor = Executor::new(spec, &block.block.header, state);
    executor.evm().world().record_access_list();
    executor.evm().world().close_access_index();
    let senders = block.senders.known();
    for (tx, sender) in block.block.body.transactions.iter().zip(senders) {
        let ran = executor.process_transaction(tx, sender, None);
        ran.expect("it is valid");
    }
    let list = executor.evm().world().take_access_list();
    list.expect("it is recorded")
}

fn on(after: usize, writers: &[usize]) -> TxDependencies {
    TxDependencies {
        after: Some(after),
        writers: writers.to_vec(),
    }
}

#[test]
fn a_count_waits_for_the_last_count_in_its_slot() {
    let state = state(&mut SmallRng::seed_from_u64(1));
    let calls = [
        (0, COUNT, 1),
        (1, COUNT, 2),
        (2, COUNT, 1),
        (3, COUNT, 2),
        (0, COUNT, 1),
    ];
    let expected = [
        on(0, &[]),
        on(0, &[]),
        on(1, &[0]),
        on(2, &[1]),
        on(3, &[2]),
    ];
    assert_eq!(dependencies(&state, &calls), expected);
}

#[test]
fn transactions_of_one_sender_wait_for_nothing() {
    let state = state(&mut SmallRng::seed_from_u64(1));
    let calls = [(0, COUNT, 1), (0, COUNT, 2), (0, COUNT, 3)];
    assert_eq!(
        dependencies(&state, &calls),
        [on(0, &[]), on(0, &[]), on(0, &[])]
    );
}

#[test]
fn a_value_that_is_written_again_holds() {
    // Slot 0 is 5 before.
    let state = state(&mut SmallRng::seed_from_u64(1));
    let calls = [(0, SET, 5), (1, SET, 5), (2, SET, 6), (3, SET, 7)];
    let expected = [on(0, &[]), on(0, &[]), on(0, &[]), on(3, &[2])];
    assert_eq!(dependencies(&state, &calls), expected);
}

#[test]
fn a_read_of_the_coinbase_balance_waits_for_the_last_payment() {
    let state = state(&mut SmallRng::seed_from_u64(1));
    let calls = [(0, COUNT, 1), (1, COUNT, 2), (2, WATCH, 0)];
    assert_eq!(dependencies(&state, &calls)[2], on(2, &[1]));
}
