//! Blobs by versioned hash, of both sidecar versions, and through the network encoding.

use super::support::{Chain, blob, blob_tx, proven_sidecar, transfer, wallet};
use crate::{Incoming, PoolConfig, cells_of, encode_network};
use niwaki_primitives::{B256, Encodable2718, Fork, Transaction};

#[test]
fn both_sidecar_versions_survive_the_network_encoding() {
    for version in [0, 1] {
        let sidecar = proven_sidecar(&[1, 2], version);
        let sent = blob_tx(&wallet(0), 0, 10, &sidecar);
        let bytes = encode_network(&sent.tx, sent.sidecar.as_deref());
        let got = Incoming::decode(&bytes).expect("it was just encoded");
        assert_eq!(got.tx, sent.tx);
        assert_eq!(got.tx.tx_hash(), sent.tx.tx_hash());
        assert_eq!(got.sidecar, sent.sidecar);
        let plain = sent.tx.encoded_2718();
        assert!(plain.len() < 500 && bytes.len() > 2 * 131_072);
        for cut in [1, 1_000, bytes.len() / 2, bytes.len() - 1] {
            assert!(Incoming::decode(&bytes[..cut]).is_err());
        }
    }
}

#[test]
fn cells_come_column_by_column_and_the_first_half_is_the_blob() {
    let sidecar = proven_sidecar(&[1, 2], 1);
    let cells = |columns: &[usize]| cells_of(&sidecar, columns).unwrap();
    let all: Vec<usize> = (0..128).collect();
    let computed = cells(&all).unwrap();
    assert_eq!(computed.len(), 256);
    let data = cells(&all[..64]).unwrap();
    assert_eq!(computed[..128], data[..]);
    let second: Vec<u8> = data.iter().skip(1).step_by(2).flatten().copied().collect();
    assert_eq!(second, sidecar.blobs()[1].as_slice());
    assert_eq!(cells(&[100]).unwrap(), computed[200..202]);
    assert_eq!(cells(&[]).unwrap(), Vec::<niwaki_primitives::Bytes>::new());
    assert_eq!(cells(&[128]), None);
}

#[test]
fn blobs_are_found_by_versioned_hash_with_their_proofs() {
    for (fork, version) in [(Fork::Prague, 0), (Fork::Osaka, 1)] {
        let chain = Chain::of(fork, PoolConfig::default());
        let sidecar = proven_sidecar(&[1, 2], version);
        let tx = blob_tx(&wallet(0), 0, 10, &sidecar);
        let hashes = tx.tx.blob_versioned_hashes().expect("blobs").to_vec();
        chain.remote(tx).expect("paid for");
        let asked = [hashes[1], B256::ZERO, hashes[0]];
        let found = chain.pool.blobs(&asked);
        assert!(found[1].is_none());
        for (place, index) in [(0, 1), (2, 0)] {
            let seed = if index == 0 { 1 } else { 2 };
            let found = found[place].as_ref().expect("it is here");
            assert_eq!(found.blob(), Some(&blob(seed)));
            let cells = found.cell_proofs();
            let proofs = crate::sidecar::proofs(&sidecar);
            if version == 0 {
                assert_eq!((found.proof(), cells), (Some(&proofs[index]), None));
            } else {
                let own = &proofs[index * 128..][..128];
                assert_eq!((found.proof(), cells), (None, Some(own)));
                assert_eq!(found.cells().expect("small elements").len(), 128);
            }
        }
    }
}

#[test]
fn blobs_are_found_after_their_block_and_not_after_their_eviction() {
    let mut chain = Chain::new(PoolConfig::default());
    let sidecar = proven_sidecar(&[7], 1);
    let (kept, dropped) = (
        blob_tx(&wallet(0), 0, 10, &sidecar),
        blob_tx(&wallet(1), 0, 10, &sidecar),
    );
    let hashes = kept.tx.blob_versioned_hashes().expect("blobs").to_vec();
    chain.remote(kept.clone()).expect("paid for");
    chain.remote(dropped.clone()).expect("the same blob twice");
    chain.mine(std::slice::from_ref(&kept.tx));
    assert!(chain.pool.remove_invalid(dropped.tx.tx_hash()));
    assert!(chain.pool.blobs(&hashes)[0].is_some());
    let stats = chain.pool.stats();
    assert_eq!((stats.blobs.included_sidecars, stats.blob_bytes), (1, 0));
    chain.reorganise(1, &[]);
    assert!(chain.pool.remove_invalid(kept.tx.tx_hash()));
    assert!(chain.pool.blobs(&hashes)[0].is_none());
}

#[test]
fn a_sidecar_of_a_transaction_without_blobs_is_dropped() {
    let chain = Chain::new(PoolConfig::default());
    let sidecar = blob_tx(&wallet(0), 0, 10, &proven_sidecar(&[1], 1)).sidecar;
    let tx = transfer(&wallet(0), 0, 1, 50);
    let incoming = Incoming { tx, sidecar };
    let added = chain.remote(incoming).expect("paid for");
    assert!(chain.pool.sidecar(&added.hash).is_none());
    assert_eq!(chain.pool.stats().blob_bytes, 0);
    chain.pool.read().check();
}
