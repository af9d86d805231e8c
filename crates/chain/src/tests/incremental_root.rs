//! Blocks whose changes go into the tries while they are executed: what comes of them is what comes of those
//! whose root is made at once.

use super::bal::{
    blocks_and_rows, hints, import_built, open_archive_with_contracts, open_with_contracts,
};
use super::*;
use crate::import::body_roots;

#[test]
fn a_root_that_is_begun_early_ends_as_one_that_is_not() {
    // These know no list, and that is how their roots are begun.
    let (blocks, rows) = blocks_and_rows();
    for threads in [1, 2, 3] {
        let (begun, whole) = (open_with_contracts(), open_with_contracts());
        begun.set_transaction_threads(threads);
        for block in &blocks {
            assert!(
                import_built(&begun, block, false).root_flushes > 0,
                "{threads}"
            );
            assert_eq!(import_built(&whole, block, true).root_flushes, 0);
        }
        for chain in [&begun, &whole] {
            chain.sync().unwrap();
            assert!(dump(chain) == rows, "{threads}");
            assert_clean(chain);
        }
    }
}

#[test]
fn an_archive_keeps_the_same_history_of_it() {
    let (blocks, _) = blocks_and_rows();
    let (begun, whole) = (open_archive_with_contracts(), open_archive_with_contracts());
    for block in &blocks {
        assert!(import_built(&begun, block, false).root_flushes > 0);
        assert_eq!(import_built(&whole, block, true).root_flushes, 0);
    }
    for chain in [&begun, &whole] {
        chain.sync().unwrap();
        assert_clean(chain);
    }
    assert!(dump(&begun) == dump(&whole));
}

#[test]
fn a_block_that_is_refused_late_leaves_the_tries_to_the_next_one() {
    for threads in [1, 2, 3] {
        refuse_late(threads);
    }
}

fn refuse_late(threads: usize) {
    let (blocks, rows) = blocks_and_rows();
    let chain = open_with_contracts();
    chain.set_transaction_threads(threads);
    for block in &blocks {
        let (built, senders) = block;
        // The last transaction comes a second time: its nonce is used.
        let mut late = built.block.clone();
        let last = late.body.transactions.last().unwrap().clone();
        late.body.transactions.push(last);
        late.header.transactions_root = body_roots(&late.body).transactions;
        let hash = late.header.hash_slow();
        let mut senders = senders.clone();
        senders.extend(senders.last().copied());
        let error = import_payload(&chain, late, hash, hints(&senders, None));
        let ImportError::Invalid { reason, .. } = error.unwrap_err() else {
            panic!("a block with a used nonce is invalid");
        };
        assert!(
            matches!(*reason, InvalidBlock::Transaction { .. }),
            "{reason}"
        );

        let mut wrong = built.block.clone();
        wrong.header.state_root = B256::repeat_byte(1);
        let hash = wrong.header.hash_slow();
        let error = import_payload(&chain, wrong, hash, hints(&senders, None));
        let ImportError::Invalid { reason, .. } = error.unwrap_err() else {
            panic!("a block with another root is invalid");
        };
        let got = built.block.header.state_root;
        let expected = B256::repeat_byte(1);
        assert_eq!(*reason, InvalidBlock::StateRoot { got, expected });

        assert!(import_built(&chain, block, false).root_flushes > 0);
    }
    chain.sync().unwrap();
    assert!(dump(&chain) == rows);
    assert_clean(&chain);
}
