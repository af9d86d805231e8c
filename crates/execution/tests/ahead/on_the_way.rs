//! What is told while a block is executed are its receipts and what has changed by then, on however many threads it runs.

use super::{CHAIN_ID, block, state};
use niwaki_execution::{Executor, Meanwhile, Parallelism, apply_body, apply_body_with};
use niwaki_primitives::{B256, Fork, Receipt, RecoveredBlock, StateDiff, Typed2718};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Into how many parts the gas of a block is divided.
const PARTS: u32 = 16;

/// What is told when so many parts of the gas are used: the receipts by then, and what has changed.
type Told = Vec<(Vec<Receipt>, StateDiff)>;

/// What is to be told, from a quarter on, of each part once.
fn expected(spec: &ChainSpec, block: &RecoveredBlock, state: &MemoryState) -> Told {
    let header = &block.block.header;
    let mut executor = Executor::new(spec, header, state);
    executor
        .begin_block(spec, header)
        .expect("a state in memory");
    let (mut expected, mut next) = (Vec::new(), PARTS / 4);
    let mut receipts = Vec::new();
    let senders = block.senders.known();
    for (tx, sender) in block.block.body.transactions.iter().zip(senders) {
        let result = executor
            .process_transaction(tx, sender, None)
            .expect("the block is valid");
        receipts.push(executor.receipt(tx.ty(), result, None));
        let used = executor.used().header_gas(executor.rules().fork);
        let part = used * u64::from(PARTS) / header.gas_used;
        let part = u32::try_from(part).expect("at most all");
        if part >= next && part < PARTS {
            expected.push((receipts.clone(), executor.diff()));
            next = part + 1;
        }
    }
    expected
}

fn compare(fork: Fork) {
    let spec = ChainSpec::single(CHAIN_ID, fork);
    let mut told_in_all = 0;
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (state, mut block) = (state(&mut rng), block(&mut rng, fork));
        let mut no_root = |_: &_| Ok(B256::ZERO);
        let Ok(whole) = apply_body(&spec, &block, &state, &mut no_root) else {
            continue;
        };
        block.block.header.gas_used = whole.gas_used;
        let expected = expected(&spec, &block, &state);
        for threads in [1, 2, 8] {
            let mut told = Vec::new();
            let mut no_root = |_: &_| Ok(B256::ZERO);
            let tell = |receipts: &[Receipt], changed: &mut dyn FnMut() -> StateDiff| {
                told.push((receipts.to_vec(), changed()));
            };
            let meanwhile = Meanwhile::new(&mut no_root).calling(Some(Box::new(tell)));
            let parallelism = Parallelism::of(threads);
            let ran = apply_body_with(parallelism, &spec, (&block, None), &state, meanwhile);
            let (executed, _) = ran.expect("the block is valid");
            assert_eq!(executed, whole, "seed {seed}, {threads} threads");
            assert_eq!(told, expected, "seed {seed}, {threads} threads");
        }
        told_in_all += expected.len();
    }
    assert!(told_in_all > 160, "{told_in_all}");
}

#[test]
fn changes_are_told_from_a_quarter_of_the_gas_on() {
    compare(Fork::Osaka);
    compare(Fork::Amsterdam);
}
