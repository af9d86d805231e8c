//! Which cells are asked of whom, and what comes of it.

use super::super::transaction::tests::blob_transaction;
use super::*;
use crate::wire::EthVersion;
use crate::wire::limits::CELL_BYTES;

const ONE: ConnId = ConnId(1);
const TWO: ConnId = ConnId(2);
const WHOLE: Sampling = Sampling::new(7, 15);

fn blobless(seed: u8, blobs: u8, conn: ConnId) -> Blobless {
    let bytes = blob_transaction(seed, blobs).without_blobs();
    Blobless {
        transaction: FromPeer::read(bytes, EthVersion::Eth72).unwrap(),
        conn,
        first: conn,
        others: Vec::new(),
        is_sampled: false,
    }
}

fn cells(blobs: usize) -> Vec<Bytes> {
    vec![Bytes::from(vec![1; CELL_BYTES]); blobs * DATA_COLUMNS]
}

fn announced(blobless: &Blobless) -> Announced {
    Announced {
        hash: blobless.transaction.hash,
        tx_type: 3,
        size: 1,
    }
}

#[test]
fn cells_are_asked_of_the_peer_that_sent_the_transaction_16_blobs_at_a_time() {
    let mut fetcher = CellFetcher::default();
    for (seed, conn) in [(1, ONE), (2, ONE), (3, ONE), (4, TWO)] {
        assert!(fetcher.add(blobless(seed, 6, conn)));
    }
    assert!(!fetcher.add(blobless(4, 6, ONE)), "twice");
    let (requests, late) = fetcher.tick(&WHOLE, 0);
    assert!(late.is_empty());
    let asked: Vec<_> = requests
        .iter()
        .map(|one| (one.conn, one.transactions.len()))
        .collect();
    assert_eq!(asked, [(ONE, 2), (TWO, 1)]);
    assert!(fetcher.tick(&WHOLE, 100).0.is_empty());
    let first = &requests[0];
    let answer = first.transactions.iter().map(|hash| (*hash, cells(6)));
    let answer = answer.collect();
    let result = fetcher.answer(ONE, first.request, answer, DATA).unwrap();
    assert_eq!((result.complete.len(), result.lost.len()), (2, 0));
    assert!(result.complete[0].1.bytes.len() > 6 * 131_072);
    assert_eq!(fetcher.tick(&WHOLE, 200).0[0].transactions.len(), 1);
}

#[test]
fn of_sampled_transactions_the_kept_columns_and_one_more_are_asked_for() {
    let mut sampling = WHOLE;
    sampling.set_custody(CellMask::from_bits(0xff));
    let mut fetcher = CellFetcher::default();
    let sampled = |seed, blobs| Blobless {
        is_sampled: true,
        ..blobless(seed, blobs, ONE)
    };
    for tx in [
        sampled(1, 50),
        sampled(2, 50),
        sampled(3, 50),
        blobless(4, 1, ONE),
        sampled(5, 1),
    ] {
        assert!(fetcher.add(tx));
    }
    let mut take = |count: usize| {
        let request = fetcher.tick(&sampling, 0).0.remove(0);
        assert_eq!(request.transactions.len(), count);
        let (columns, hashes) = (request.columns, request.transactions);
        let own = hashes.iter().map(|hash| {
            let blobs = fetcher.wanted[hash].transaction.missing_blobs;
            let cell = Bytes::from(vec![1; CELL_BYTES]);
            (*hash, vec![cell; blobs * columns.count()])
        });
        let own = own.collect();
        let answer = fetcher.answer(ONE, request.request, own, columns);
        (columns, answer.unwrap().complete)
    };
    // Nine cells of 50 blobs, twice.
    let (columns, complete) = take(2);
    assert_eq!((columns.count(), columns.bits() & 0xff), (9, 0xff));
    let (tx, received) = &complete[0];
    assert_eq!(received.bytes, tx.transaction.bytes);
    let cells = received.cells.as_ref().unwrap();
    assert_eq!((cells.columns, cells.cells.len()), (columns, 450));
    assert_eq!(take(1).0.count(), 9);
    let (columns, complete) = take(1);
    assert!(columns == DATA && complete[0].1.cells.is_none());
    assert_eq!(take(1).0.count(), 9);
}

#[test]
fn sampled_cells_of_another_number_of_blobs_or_columns_are_refused() {
    let mut sampling = WHOLE;
    sampling.set_custody(CellMask::from_bits(0xff));
    for (count, columns, is_breach) in [(8, 0x1ff, true), (10, 0x1ff, true), (8, 0xff, false)] {
        let mut fetcher = CellFetcher::default();
        let tx = Blobless {
            is_sampled: true,
            ..blobless(1, 1, ONE)
        };
        fetcher.add(tx.clone());
        let request = fetcher.tick(&sampling, 0).0.remove(0);
        let columns = match columns {
            0x1ff => request.columns,
            other => CellMask::from_bits(other),
        };
        let cells = vec![Bytes::from(vec![1; CELL_BYTES]); count];
        let answer = vec![(tx.transaction.hash, cells)];
        let answer = fetcher.answer(ONE, request.request, answer, columns);
        match is_breach {
            true => assert_eq!(answer, Err(GossipBreach::Cells(tx.transaction.hash))),
            false => assert_eq!(answer.unwrap().lost, [tx]),
        }
    }
}

#[test]
fn what_is_left_out_or_of_fewer_columns_is_lost_with_its_other_announcers() {
    let mut fetcher = CellFetcher::default();
    let (first, second) = (blobless(1, 1, ONE), blobless(2, 1, ONE));
    fetcher.add(first.clone());
    fetcher.add(second.clone());
    fetcher.announce(TWO, &announced(&second));
    fetcher.announce(TWO, &announced(&second));
    fetcher.announce(ONE, &announced(&second));
    let request = fetcher.tick(&WHOLE, 0).0[0].request;
    let answer = vec![(first.transaction.hash, cells(1))];
    let result = fetcher.answer(ONE, request, answer, DATA).unwrap();
    assert_eq!(result.complete[0].0, first);
    assert_eq!(result.lost[0].others, [(TWO, announced(&second))]);
    assert!(!fetcher.contains(&second.transaction.hash));

    fetcher.add(first.clone());
    let request = fetcher.tick(&WHOLE, 0).0[0].request;
    let mut fewer = DATA;
    fewer.0[0] ^= 1;
    let answer = vec![(first.transaction.hash, cells(1))];
    let result = fetcher.answer(ONE, request, answer, fewer).unwrap();
    assert_eq!((result.complete.len(), result.lost.len()), (0, 1));
}

#[test]
fn cells_that_were_not_asked_for_or_of_another_number_of_blobs_are_a_breach() {
    let mut fetcher = CellFetcher::default();
    let tx = blobless(1, 2, ONE);
    fetcher.add(tx.clone());
    let request = fetcher.tick(&WHOLE, 0).0[0].request;
    let other = vec![(B256::ZERO, cells(1))];
    let breach = fetcher.answer(ONE, request, other, DATA);
    assert_eq!(breach, Err(GossipBreach::NotAsked(B256::ZERO)));
    assert_eq!(fetcher.gone(ONE), std::slice::from_ref(&tx));
    fetcher.add(tx.clone());
    let request = fetcher.tick(&WHOLE, 0).0[0].request;
    let answer = vec![(tx.transaction.hash, cells(1))];
    let breach = fetcher.answer(ONE, request, answer, DATA);
    assert_eq!(breach, Err(GossipBreach::Cells(tx.transaction.hash)));
    assert_eq!(fetcher.gone(ONE), [tx]);
}

#[test]
fn what_takes_5_seconds_is_lost_and_its_answer_ignored() {
    let mut fetcher = CellFetcher::default();
    let tx = blobless(1, 2, ONE);
    fetcher.add(tx.clone());
    let request = fetcher.tick(&WHOLE, 0).0[0].request;
    assert!(fetcher.tick(&WHOLE, 4_999).1.is_empty());
    assert_eq!(fetcher.tick(&WHOLE, 5_000).1, [(ONE, vec![tx.clone()])]);
    let answer = vec![(tx.transaction.hash, cells(2))];
    let late = fetcher.answer(ONE, request, answer, DATA);
    assert_eq!(late, Ok(Cells::default()));
}

#[test]
fn a_peer_that_leaves_loses_what_it_was_asked_and_would_have_been() {
    let mut fetcher = CellFetcher::default();
    for seed in 1..=3 {
        fetcher.add(blobless(seed, 10, ONE));
    }
    fetcher.tick(&WHOLE, 0);
    fetcher.forget(&blobless(3, 10, ONE).transaction.hash);
    assert_eq!(
        fetcher.gone(ONE),
        [blobless(1, 10, ONE), blobless(2, 10, ONE)]
    );
    assert!(fetcher.wanted.is_empty());
}

#[test]
fn only_a_peer_with_the_first_64_columns_has_whole_blobs() {
    assert!(has_data(Some(DATA)));
    assert!(has_data(Some(CellMask::ALL)));
    let mut columns = CellMask([0xff; 16]);
    columns.0[7] = 0x7f;
    assert!(!has_data(Some(columns)) && !has_data(None));
}

#[test]
fn transactions_that_wait_are_1024_at_most() {
    let mut fetcher = CellFetcher::default();
    let tx = blobless(1, 1, ONE);
    for number in 0..1024_u64 {
        let mut tx = tx.clone();
        tx.transaction.hash = B256::left_padding_from(&number.to_be_bytes());
        assert!(fetcher.add(tx));
    }
    assert!(!fetcher.add(tx));
}
