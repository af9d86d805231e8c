//! What is run before a block comes: it spares the block look-ups, and changes nothing.

use super::access_list::{AMSTERDAM, template};
use super::senders::{TRANSACTIONS, build, open_funded, rows};
use super::*;
use crate::{BuiltBlock, Candidate, Prewarmed};
use niwaki_primitives::Header;
use niwaki_rules::recover_sender;

fn candidates(built: &BuiltBlock) -> impl Iterator<Item = Candidate> {
    let transactions = built.block.body.transactions.iter();
    transactions.map(|tx| Candidate {
        tx: tx.clone(),
        sender: recover_sender(tx).unwrap(),
    })
}

fn next_header(chain: &Chain) -> Header {
    let template = template(&chain.head().header, AMSTERDAM - 12);
    chain.next_header(template).unwrap()
}

fn prewarm(chain: &Chain, built: &BuiltBlock, max_gas: u64) -> Prewarmed {
    let header = next_header(chain);
    chain
        .prewarm(&header, &mut candidates(built), max_gas)
        .unwrap()
}

#[test]
fn a_block_misses_less_of_what_was_run_before_it_and_leaves_the_same() {
    let (built, _) = build(AMSTERDAM - 12);
    let import_into = |warm: bool| {
        let chain = open_funded(1, 1);
        if warm {
            let warmed = prewarm(&chain, &built, u64::MAX);
            assert_eq!(warmed.transactions, TRANSACTIONS as u64);
            assert_eq!(warmed.gas, built.block.header.gas_used);
            assert!(!warmed.is_cut);
        }
        let imported = chain.import(built.block.clone()).unwrap();
        (imported.reads.values().misses, rows(&chain))
    };
    let (cold, warm) = (import_into(false), import_into(true));
    // Five senders, the contract and its slot.
    assert!(
        warm.0 + 7 <= cold.0,
        "{} misses, {} without",
        warm.0,
        cold.0
    );
    assert_eq!(warm.1, cold.1);
}

#[test]
fn prewarming_stops_at_its_gas_during_an_import_and_at_a_new_head() {
    let (built, _) = build(AMSTERDAM - 12);
    let chain = open_funded(1, 1);
    let nothing = Prewarmed {
        is_cut: true,
        ..Prewarmed::default()
    };
    assert_eq!(prewarm(&chain, &built, 1).transactions, 1);
    assert_eq!(prewarm(&chain, &built, 0), nothing);
    let handling = chain.begin_import();
    assert_eq!(prewarm(&chain, &built, u64::MAX), nothing);
    drop(handling);

    let before = next_header(&chain);
    chain.import(built.block.clone()).unwrap();
    let late = chain.prewarm(&before, &mut candidates(&built), u64::MAX);
    assert_eq!(late.unwrap(), nothing);
    // Executed again on top of their own block: nonces are not checked.
    assert_eq!(
        prewarm(&chain, &built, u64::MAX).transactions,
        TRANSACTIONS as u64
    );
}

#[test]
fn transactions_that_can_t_be_run_are_left_out() {
    let (built, _) = build(AMSTERDAM - 12);
    let chain = open_funded(1, 1);
    let poor = candidates(&built).map(|candidate| Candidate {
        sender: niwaki_primitives::Address::repeat_byte(0x77),
        ..candidate
    });
    let header = next_header(&chain);
    let warmed = chain.prewarm(&header, &mut poor.chain(candidates(&built)), u64::MAX);
    assert_eq!(warmed.unwrap().transactions, TRANSACTIONS as u64);
}
