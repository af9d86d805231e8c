//! Saving and restoring a pool.

use super::support::{
    Chain, NOW, blob_tx, dynamic, legacy, proven_sidecar, set_code, signed, transfer, wallet,
};
use crate::{Origin, PoolConfig};
use niwaki_primitives::{AccessList, Address, TxEip2930, TxEnvelope, TxKind};
use proptest::prelude::*;

#[test]
fn a_dump_restores_every_transaction() {
    let chain = Chain::new(PoolConfig::default());
    let list = TxEip2930 {
        chain_id: 1337,
        gas_limit: 21_000,
        gas_price: 50_000_000_000,
        to: TxKind::Call(Address::ZERO),
        access_list: AccessList::default(),
        ..TxEip2930::default()
    };
    chain
        .local(transfer(&wallet(0), 0, 1, 50))
        .expect("paid for");
    chain.remote(transfer(&wallet(0), 2, 1, 50)).expect("waits");
    chain
        .remote(TxEnvelope::from(signed(list, &wallet(1))))
        .expect("paid for");
    chain
        .remote(TxEnvelope::from(signed(legacy(0), &wallet(2))))
        .expect("paid for");
    chain
        .remote(blob_tx(&wallet(3), 0, 9, &proven_sidecar(&[1], 1)))
        .expect("paid for");
    chain
        .local(set_code(&wallet(4), 0, &[&wallet(5)]))
        .expect("paid for");
    let mut file = Vec::new();
    assert_eq!(chain.pool.save(&mut file).expect("memory"), 6);
    assert!(file.starts_with(b"# niwaki txpool 1\nl 02"));

    let other = Chain::new(PoolConfig::default());
    let outcome = other
        .pool
        .restore(&mut file.as_slice(), NOW, &mut |_| true)
        .expect("memory");
    assert_eq!((outcome.restored, outcome.skipped.len()), (6, 0));
    let shape = |chain: &Chain| -> Vec<_> {
        let txs = chain.pool.all();
        txs.iter().map(|tx| (tx.hash, tx.origin)).collect()
    };
    assert_eq!(shape(&other), shape(&chain));
    let local = shape(&other)
        .iter()
        .filter(|(_, o)| *o == Origin::Local)
        .count();
    assert_eq!(local, 2);
    assert_eq!(other.nonces(&wallet(0)), (vec![0], vec![2]));
    assert_eq!(other.pool.stats().blob_bytes, chain.pool.stats().blob_bytes);
}

#[test]
fn a_broken_line_is_reported_and_the_others_are_restored() {
    let chain = Chain::new(PoolConfig::default());
    let good = crate::encode_network(&transfer(&wallet(0), 0, 1, 50), None);
    let good = format!("r {}", hex::encode(good));
    let poor = crate::encode_network(&TxEnvelope::from(signed(dynamic(0), &wallet(999))), None);
    let file = format!(
        "# niwaki txpool 1\n\nx 00\nl zz\n{good}\r\nr 05\n{good}\nl {}\nl\n# the end",
        hex::encode(poor)
    );
    let outcome = chain
        .pool
        .restore(&mut file.as_bytes(), NOW, &mut |_| true)
        .expect("memory");
    assert_eq!(outcome.restored, 1);
    let told: Vec<_> = outcome
        .skipped
        .iter()
        .map(|(n, why)| (*n, why.to_string()))
        .collect();
    let format = "expected `l` or `r`, a space and a transaction in hex";
    assert_eq!(told[0], (3, format.to_owned()));
    assert_eq!(told[1], (4, format.to_owned()));
    assert_eq!(told[2].0, 6);
    assert!(told[2].1.starts_with("malformed transaction: "));
    assert_eq!(told[3], (7, "already known".to_owned()));
    assert!(told[4].1.starts_with("insufficient funds"));
    assert_eq!(told[5], (9, format.to_owned()));
    assert_eq!(told.len(), 6);
}

#[test]
fn a_line_without_end_takes_bounded_memory() {
    let chain = Chain::new(PoolConfig::default());
    let good = crate::encode_network(&transfer(&wallet(0), 0, 1, 50), None);
    let long = "0".repeat((32 << 20) + 1);
    let file = format!("l {long}\nr {}\n", hex::encode(good));
    let outcome = chain
        .pool
        .restore(&mut file.as_bytes(), NOW, &mut |_| true)
        .expect("memory");
    assert_eq!(outcome.restored, 1);
    let told: Vec<_> = outcome
        .skipped
        .iter()
        .map(|(n, why)| (*n, why.to_string()))
        .collect();
    assert_eq!(told, vec![(1, "longer than 33554432 bytes".to_owned())]);
}

proptest! {
    #[test]
    fn no_file_makes_it_panic(bytes: Vec<u8>, lines in proptest::collection::vec("[lr] [0-9a-f]{0,80}", 0..5)) {
        let chain = Chain::new(PoolConfig::default());
        let mut file = lines.join("\n").into_bytes();
        file.extend(bytes);
        let outcome = chain.pool.restore(&mut file.as_slice(), NOW, &mut |_| true).expect("memory");
        prop_assert_eq!(outcome.restored, 0);
    }
}

#[test]
fn a_restore_that_is_stopped_says_at_which_byte_the_rest_begins() {
    let chain = Chain::new(PoolConfig::default());
    for nonce in 0..3 {
        let added = chain.local(transfer(&wallet(0), nonce, 1, 50));
        added.expect("paid for");
    }
    let mut file = Vec::new();
    chain.pool.save(&mut file).expect("memory");

    let other = Chain::new(PoolConfig::default());
    let mut offsets = Vec::new();
    let mut goes_on = |offset| {
        offsets.push(offset);
        offsets.len() < 3 // The header and one transaction.
    };
    let outcome = other
        .pool
        .restore(&mut file.as_slice(), NOW, &mut goes_on)
        .expect("memory");
    assert_eq!((outcome.restored, outcome.skipped.len()), (1, 0));
    let rest = &file[usize::try_from(offsets[2]).unwrap()..];
    assert_eq!(rest.iter().filter(|byte| **byte == b'\n').count(), 2);
    let outcome = other
        .pool
        .restore(&mut &*rest, NOW, &mut |_| true)
        .expect("memory");
    assert_eq!((outcome.restored, outcome.skipped.len()), (2, 0));
}
