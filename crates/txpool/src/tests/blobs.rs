//! Blobs by versioned hash, of both sidecar versions, and through the network encoding.

use super::support::{Chain, blob, blob_tx, proven_sidecar, transfer, wallet};
use crate::{CellCache, encode_network, encode_without_blobs};
use crate::{Incoming, PoolConfig, PoolError, Sidecar};
use niwaki_crypto::KzgError;
use niwaki_primitives::{B256, Bytes, Encodable2718, Fork, Transaction};

fn cells_of(sidecar: &Sidecar, columns: u128) -> Option<Vec<Bytes>> {
    CellCache::default().cells_of(sidecar, columns).unwrap()
}

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
    let cells = |columns: u128| cells_of(&sidecar, columns).unwrap();
    let computed = cells(u128::MAX);
    assert_eq!(computed.len(), 256);
    let data = cells(u128::from(u64::MAX));
    assert_eq!(computed[..128], data[..]);
    let second: Vec<u8> = data.iter().skip(1).step_by(2).flatten().copied().collect();
    assert_eq!(second, sidecar.blobs()[1].as_slice());
    let one = cells(1 << 100 | 1 << 3);
    assert_eq!(one, [6, 7, 200, 201].map(|at| computed[at].clone()));
    assert_eq!(cells(0), Vec::<Bytes>::new());
}

/// A transaction with two blobs, of which these columns are here.
fn sampled(nonce: u64, columns: u128) -> (Incoming, Sidecar) {
    let sidecar = proven_sidecar(&[1, 2], 1);
    let whole = blob_tx(&wallet(0), nonce, 10, &sidecar);
    let bytes = encode_without_blobs(&whole.tx, &sidecar).unwrap();
    let cells = cells_of(&sidecar, columns).unwrap();
    let incoming = Incoming::decode_sampled(&bytes, columns, &cells).unwrap();
    assert_eq!(incoming.tx, whole.tx);
    (incoming, sidecar)
}

#[test]
fn a_sampled_transaction_has_the_cells_of_its_columns_and_no_blob() {
    let columns = 1 | 1 << 64 | 1 << 127;
    let (incoming, whole) = sampled(0, columns);
    let hashes = incoming.tx.blob_versioned_hashes().unwrap().to_vec();
    let chain = Chain::new(PoolConfig::default());
    let hash = chain.remote(incoming.clone()).expect("paid for").hash;
    let sidecar = chain.pool.sidecar(&hash).unwrap();
    assert!(!sidecar.is_whole() && sidecar.columns() == columns);
    for part in [columns, 1, 1 << 127, 0] {
        assert_eq!(cells_of(&sidecar, part), cells_of(&whole, part));
    }
    assert_eq!(cells_of(&sidecar, columns | 2), None);
    assert_eq!(
        chain.pool.cells(&hash, columns),
        Ok(cells_of(&whole, columns))
    );
    assert_eq!(chain.pool.cells(&B256::ZERO, columns), Ok(None));
    let (own, all) = (
        encode_without_blobs(&incoming.tx, &sidecar),
        encode_without_blobs(&incoming.tx, &whole),
    );
    assert_eq!(own, all);

    let found = chain.pool.blobs(&hashes).pop().flatten().unwrap();
    assert!(found.blob().is_none() && found.proof().is_none());
    assert_eq!(found.cell_proofs(), Some(&whole.proofs()[128..]));
    let cells = found.cells(3).unwrap();
    assert!(cells[0].is_some() && cells[1].is_none());

    let bytes = chain.pool.stats().blob_bytes;
    assert!(6 * 2048 + 256 * 48 < bytes && bytes < 26_000, "{bytes}");
    assert_eq!(chain.pool.save(&mut Vec::new()).unwrap(), 0);
    chain.pool.read().check();
}

#[test]
fn sampled_cells_that_are_wrong_or_incomplete_are_refused() {
    let chain = Chain::new(PoolConfig::default());
    let sidecar = proven_sidecar(&[1, 2], 1);
    let tx = blob_tx(&wallet(0), 0, 10, &sidecar).tx;
    let bytes = encode_without_blobs(&tx, &sidecar).unwrap();
    let cells = cells_of(&sidecar, 5).unwrap();
    let add = |columns, cells: &[Bytes]| {
        chain.remote(Incoming::decode_sampled(&bytes, columns, cells).expect("it can be read"))
    };
    let mut swapped = cells.clone();
    swapped.swap(0, 2);
    for (columns, cells) in [(5, &swapped), (6, &cells)] {
        let refused = add(columns, cells).unwrap_err();
        assert!(matches!(refused, PoolError::Kzg(KzgError::Mismatch)));
    }
    for (columns, count) in [(5, 3), (5, 2), (7, 4), (1, 4), (0, 0), (5, 0)] {
        let refused = add(columns, &cells[..count]).unwrap_err();
        assert!(
            matches!(refused, PoolError::SidecarCounts { .. }),
            "{refused}"
        );
    }
    let decode = |bytes: &[u8], cells: &[Bytes]| Incoming::decode_sampled(bytes, 5, cells);
    let short = [Bytes::from(vec![0; 2047])];
    let whole = encode_network(&tx, Some(&sidecar));
    let plain = transfer(&wallet(0), 0, 1, 50).encoded_2718();
    for (bytes, cells) in [(&bytes, &short[..]), (&whole, &cells), (&plain, &cells)] {
        let refused = decode(bytes, cells).unwrap_err();
        assert!(matches!(refused, PoolError::Malformed { .. }), "{refused}");
    }
    assert!(add(5, &cells).is_ok());
}

#[test]
fn a_sampled_transaction_of_a_block_that_left_the_chain_returns() {
    let mut chain = Chain::new(PoolConfig::default());
    let (incoming, _) = sampled(0, 5);
    let hash = chain.remote(incoming.clone()).expect("paid for").hash;
    chain.mine(std::slice::from_ref(&incoming.tx));
    assert!(!chain.pool.contains(&hash) && chain.pool.sidecar(&hash).is_some());
    chain.reorganise(1, &[]);
    assert!(chain.pool.contains(&hash));
    assert_eq!(chain.pool.sidecar(&hash).unwrap().columns(), 5);
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
            let proofs = sidecar.proofs();
            if version == 0 {
                assert_eq!((found.proof(), cells), (Some(&proofs[index]), None));
            } else {
                let own = &proofs[index * 128..][..128];
                assert_eq!((found.proof(), cells), (None, Some(own)));
                assert_eq!(found.cells(u128::MAX).expect("small elements").len(), 128);
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
