//! Each body check on both sides of its limit.

use super::*;
use crate::chain_spec::ChainSpec;
use alloy_consensus::SignableTransaction;
use alloy_primitives::{Signature, U256};
use niwaki_primitives::{BlockBody, TxEip4844, TxLegacy, Withdrawals};

fn block(fork: Fork) -> (BlockRules, Block, BodyRoots) {
    let roots = BodyRoots {
        transactions: B256::repeat_byte(1),
        withdrawals: (fork >= Fork::Shanghai).then_some(B256::repeat_byte(2)),
    };
    let header = Header {
        transactions_root: roots.transactions,
        withdrawals_root: roots.withdrawals,
        blob_gas_used: (fork >= Fork::Cancun).then_some(0),
        ..Header::default()
    };
    let rules = BlockRules::new(&ChainSpec::single(1, fork), &header);
    let body = BlockBody {
        withdrawals: (fork >= Fork::Shanghai).then(Withdrawals::default),
        ..BlockBody::default()
    };
    (rules, Block::new(header, body), roots)
}

fn after(fork: Fork, change: impl FnOnce(&mut Block, &mut BodyRoots)) -> Result<(), &'static str> {
    let (rules, mut block, mut roots) = block(fork);
    change(&mut block, &mut roots);
    check_body(&rules, &block, &roots).map_err(|error| error.spec_name())
}

fn signature() -> Signature {
    Signature::new(U256::ONE, U256::ONE, false)
}

#[test]
fn a_body_that_belongs_to_its_header_passes() {
    for fork in [Fork::Frontier, Fork::Paris, Fork::Shanghai, Fork::Osaka] {
        assert_eq!(after(fork, |_, _| {}), Ok(()));
    }
}

#[test]
fn roots_must_be_the_headers() {
    let refused = after(Fork::Berlin, |_, roots| roots.transactions = B256::ZERO);
    assert_eq!(refused, Err("INVALID_TRANSACTIONS_ROOT"));
    let refused = after(Fork::Shanghai, |_, roots| {
        roots.withdrawals = Some(B256::ZERO)
    });
    assert_eq!(refused, Err("INVALID_WITHDRAWALS_ROOT"));
}

#[test]
fn withdrawals_are_there_from_shanghai_on_and_not_before() {
    let refused = after(Fork::Shanghai, |block, _| block.body.withdrawals = None);
    assert_eq!(refused, Err("RLP_WITHDRAWALS_NOT_READ"));
    let refused = after(Fork::Paris, |block, _| {
        block.body.withdrawals = Some(Withdrawals::default());
    });
    assert_eq!(refused, Err("INCORRECT_BLOCK_FORMAT"));
}

#[test]
fn ommers_must_hash_to_the_headers_hash_and_end_with_paris() {
    let ommer = Header::default();
    let refused = after(Fork::London, |block, _| {
        block.body.ommers = vec![ommer.clone()]
    });
    assert_eq!(refused, Err("INVALID_UNCLES_HASH"));
    let passed = after(Fork::London, |block, _| {
        block.body.ommers = vec![ommer.clone()];
        block.header.ommers_hash =
            alloy_consensus::proofs::calculate_ommers_root(&block.body.ommers);
    });
    assert_eq!(passed, Ok(()));
    let refused = after(Fork::Paris, |block, _| block.body.ommers = vec![ommer]);
    assert_eq!(refused, Err("IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS"));
}

#[test]
fn blob_gas_used_is_the_sum_over_the_transactions() {
    let with_blobs = |block: &mut Block| {
        for count in [1, 2] {
            let tx = TxEip4844 {
                blob_versioned_hashes: vec![B256::ZERO; count],
                ..TxEip4844::default()
            };
            block
                .body
                .transactions
                .push(tx.into_signed(signature()).into());
        }
    };
    let passed = after(Fork::Cancun, |block, _| {
        with_blobs(block);
        block.header.blob_gas_used = Some(3 << 17);
    });
    assert_eq!(passed, Ok(()));
    let refused = after(Fork::Cancun, |block, _| {
        with_blobs(block);
        block.header.blob_gas_used = Some(2 << 17);
    });
    assert_eq!(refused, Err("INCORRECT_BLOB_GAS_USED"));
}

#[test]
fn a_block_has_at_most_eight_mebibytes_from_osaka_on() {
    let of_bytes = |block: &mut Block, bytes: usize| {
        let tx = |length| TxLegacy {
            input: vec![1; length].into(),
            ..TxLegacy::default()
        };
        block.body.transactions = vec![tx(1 << 20).into_signed(signature()).into()];
        let frame = block.length() - (1 << 20);
        // A block of 8 MiB needs as many length bytes as one of 1 MiB.
        block.body.transactions = vec![tx(bytes - frame).into_signed(signature()).into()];
        assert_eq!(block.length(), bytes);
    };
    let max = MAX_RLP_BLOCK_BYTES;
    assert_eq!(after(Fork::Osaka, |b, _| of_bytes(b, max)), Ok(()));
    let refused = after(Fork::Osaka, |b, _| of_bytes(b, max + 1));
    assert_eq!(refused, Err("RLP_BLOCK_LIMIT_EXCEEDED"));
    assert_eq!(after(Fork::Prague, |b, _| of_bytes(b, max + 1)), Ok(()));
}
