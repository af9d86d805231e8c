//! Senders that come with a block, are recovered during its import, or do not exist: the same rows are stored, or none.

use super::access_list::{AMSTERDAM, template};
use super::*;
use crate::import::body_roots;
use crate::{BuiltBlock, PayloadHints};
use niwaki_primitives::{Address, SignableTransaction, Signature, TxEip1559, TxEnvelope, TxKind};
use niwaki_rules::{InvalidTransaction, recover_sender};
use niwaki_testkit::Key;
use serde_json::json;
use std::time::Duration;

const KEYS: usize = 5;
/// Enough for others to be woken.
pub(super) const TRANSACTIONS: usize = 60;
/// Adds one to slot 0.
const COUNT: (Address, &str) = (Address::repeat_byte(0xa1), "0x5f546001015f5500");
/// Threads that recover, and those that run transactions.
const WAYS: [(usize, usize); 5] = [(1, 1), (2, 1), (3, 1), (2, 2), (3, 3)];

fn key(number: usize) -> Key {
    // Other than the accounts that the genesis file has.
    Key::new(U256::from(0x5e4d + number).into())
}

pub(super) fn open_funded(recovering: usize, threads: usize) -> Chain {
    let text = include_str!("../../../../testdata/amsterdam/genesis.json");
    let mut genesis: serde_json::Value = serde_json::from_str(text).unwrap();
    genesis["config"]["amsterdamTime"] = AMSTERDAM.into();
    for number in 0..KEYS {
        let address = key(number).address;
        genesis["alloc"][address.to_string()] = json!({"balance": "0xde0b6b3a7640000"});
    }
    let (address, code) = COUNT;
    genesis["alloc"][address.to_string()] = json!({"balance": "0x0", "nonce": "0x1", "code": code});
    let genesis = Genesis::from_json(&genesis.to_string()).unwrap();
    let chain = open_eager(config(None, &genesis));
    chain.set_sender_threads(recovering);
    chain.set_transaction_threads(threads);
    chain
}

fn tx(nonce: u64) -> TxEip1559 {
    TxEip1559 {
        chain_id: 7014,
        nonce,
        gas_limit: 300_000,
        max_fee_per_gas: 10_000_000_000,
        max_priority_fee_per_gas: 1,
        to: TxKind::Call(COUNT.0),
        ..TxEip1559::default()
    }
}

fn signed(number: usize, tx: TxEip1559) -> TxEnvelope {
    key(number).sign(tx)
}

/// A block on top of the genesis block, and the senders of its transactions.
pub(super) fn build(timestamp: u64) -> (BuiltBlock, Vec<Option<Address>>) {
    let chain = open_funded(1, 1);
    let transactions = (0..TRANSACTIONS).map(|at| signed(at % KEYS, tx((at / KEYS) as u64)));
    let transactions: Vec<_> = transactions.collect();
    let senders = transactions.iter().map(|tx| recover_sender(tx).ok());
    let senders = senders.collect();
    let template = template(&chain.head().header, timestamp);
    (chain.build(template, transactions).unwrap(), senders)
}

fn known(senders: &[Option<Address>]) -> PayloadHints {
    senders.to_vec().into()
}

pub(super) fn rows(chain: &Chain) -> Vec<(Segment, niwaki_storage::Row)> {
    chain.sync().unwrap();
    dump(chain)
}

#[test]
fn a_block_leaves_the_same_rows_whichever_thread_recovers_its_senders() {
    for timestamp in [AMSTERDAM - 12, AMSTERDAM] {
        let (built, senders) = build(timestamp);
        let some = senders.iter().enumerate();
        let some: Vec<_> = some.map(|(at, s)| s.filter(|_| at % 3 == 0)).collect();
        let parts = [&senders[..], &some, &senders[..TRANSACTIONS / 2], &[]];
        let mut all_rows = Vec::new();
        for way in WAYS {
            for part in parts {
                let chain = open_funded(way.0, way.1);
                let (block, hash) = (built.block.clone(), built.hash);
                let imported = import_payload(&chain, block, hash, known(part)).unwrap();
                let is_known = part.len() == TRANSACTIONS && part == senders;
                if is_known || way.0 == 1 {
                    let recover = imported.timings.recover;
                    assert_eq!(recover == Duration::ZERO, is_known, "{way:?}");
                }
                let kept = chain.recent_block(&built.hash).unwrap();
                assert_eq!(*kept.block, built.block);
                assert!(
                    kept.senders
                        .iter()
                        .copied()
                        .map(Some)
                        .eq(senders.iter().copied())
                );
                chain.set_head(&built.hash).unwrap();
                let parent = chain.header(&built.hash).unwrap().unwrap();
                chain.replay(&parent).unwrap();
                all_rows.push(rows(&chain));
            }
        }
        all_rows.dedup();
        assert_eq!(all_rows.len(), 1);
    }
}

#[test]
fn senders_that_are_known_are_believed() {
    let (built, mut senders) = build(AMSTERDAM);
    senders[7] = Some(Address::repeat_byte(7));
    for way in WAYS {
        let chain = open_funded(way.0, way.1);
        let taken = import_payload(
            &chain,
            built.block.clone(),
            built.hash,
            known(&senders[..8]),
        );
        let reason = taken.unwrap_err().to_string();
        // That account has sent nothing yet.
        assert!(
            reason.contains("transaction 7") && reason.contains("nonce"),
            "{reason}"
        );
        assert!(chain.recent_block(&built.hash).is_none());
    }
}

/// The block with another transaction at `index`, and a header that says so.
fn with(mut block: Block, index: usize, tx: TxEnvelope) -> Block {
    block.body.transactions[index] = tx;
    block.header.transactions_root = body_roots(&block.body).transactions;
    block
}

fn unsigned(tx: TxEip1559) -> TxEnvelope {
    let signatures = (1..).map(|r| Signature::new(U256::from(r), U256::ONE, false));
    let mut all = signatures.map(|signature| tx.clone().into_signed(signature).into());
    all.find(|tx| recover_sender(tx).is_err()).unwrap()
}

#[test]
fn a_block_with_an_invalid_signature_leaves_no_row() {
    for timestamp in [AMSTERDAM - 12, AMSTERDAM] {
        let (built, _) = build(timestamp);
        for way in WAYS {
            let chain = open_funded(way.0, way.1);
            let before = rows(&chain);
            for index in [0, TRANSACTIONS / 2, TRANSACTIONS - 1] {
                let bad = with(built.block.clone(), index, unsigned(tx(0)));
                let hash = bad.header.hash_slow();
                let error = chain.import(bad.clone()).unwrap_err();
                let ImportError::Invalid { reason, .. } = error else {
                    panic!("{error}");
                };
                let expected = InvalidBlock::Transaction {
                    index,
                    reason: InvalidTransaction::SignatureRecovery,
                };
                assert_eq!(reason.to_string(), expected.to_string());
                assert!(chain.header(&hash).unwrap().is_none());
                let refused = chain.refused_blocks();
                assert!(refused.contains(&(hash, bad.clone().into())));
            }
            assert_eq!(rows(&chain), before);
            import(&chain, &built.block);
            assert_eq!(chain.head().id.hash, built.hash);
            assert_clean(&chain);
        }
    }
}
