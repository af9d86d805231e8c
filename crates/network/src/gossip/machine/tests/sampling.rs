//! Blob transactions of which only some columns are taken.

use super::*;
use crate::gossip::pool::ReceivedCells;

#[test]
fn a_sampled_transaction_is_handed_over_with_its_cells_and_announced_with_the_kept_columns() {
    let mut gossip = gossip(&[NEW, NEW, NEW, OLD]);
    let custody = CellMask::from_bits(0xff);
    gossip.set_custody(custody);
    let is_sampled = |seed: &u8| {
        let hash = blob_transaction(*seed, 2).hash();
        !gossip.fetcher.sampling().is_whole(&hash)
    };
    let seed = (1..).find(is_sampled).unwrap();
    let tx = blob_transaction(seed, 2);
    let (bytes, hash) = (tx.without_blobs(), tx.hash());
    let size = u32::try_from(bytes.len()).unwrap();
    let announced = Announced {
        hash,
        tx_type: 3,
        size,
    };
    let announcement = Announcement {
        transactions: vec![announced],
        columns: ALL,
    };
    gossip.announced(conn(1), &announcement, 0);
    assert_eq!(asked(&gossip.tick(150)), []);
    gossip.announced(conn(2), &announcement, 150);
    let (of, request, _) = asked(&gossip.tick(250))[0].clone();
    let actions = gossip.answered(of, request, vec![bytes.clone()], 300);
    let [
        Action::AskCells {
            request, columns, ..
        },
    ] = actions[..]
    else {
        panic!("{actions:?}");
    };
    assert_eq!((columns.count(), columns.bits() & 0xff), (9, 0xff));
    let cells = vec![Bytes::from(vec![1; CELL_BYTES]); 18];
    let actions = gossip.answered_cells(of, request, vec![(hash, cells.clone())], columns, 350);
    let [Action::HandOver { transactions, .. }] = &actions[..] else {
        panic!("{actions:?}");
    };
    let cells = Some(ReceivedCells { columns, cells });
    assert_eq!(
        transactions[..],
        [ReceivedTransaction { hash, bytes, cells }]
    );

    let announceable = Announceable {
        hash,
        tx_type: 3,
        size_with_blobs: 0,
        size_without_blobs: size,
        columns: custody,
    };
    for number in 1..=4 {
        gossip.announce_pending(conn(number), &[announceable], 400);
    }
    // Peers before eth/72 would want the blobs; the first two have it.
    let announcement = Announcement {
        columns: Some(custody),
        ..announcement
    };
    let conn = conn(3);
    assert_eq!(gossip.tick(500), [Action::Announce { conn, announcement }]);
}

#[test]
fn blobs_that_are_here_whole_and_sampled_ones_are_announced_apart() {
    let mut gossip = gossip(&[NEW]);
    let of = |seed, columns| Announceable {
        hash: B256::repeat_byte(seed),
        tx_type: 3,
        size_with_blobs: 9,
        size_without_blobs: 5,
        columns,
    };
    let some = CellMask::from_bits(3);
    // Of the last one no column is here that is kept now.
    let none = of(4, CellMask::default());
    let all = [
        of(1, CellMask::ALL),
        of(2, some),
        of(3, CellMask::ALL),
        none,
    ];
    gossip.announce_pending(conn(1), &all, 0);
    let actions = gossip.tick(100);
    let messages = actions.iter().map(|action| match action {
        Action::Announce { announcement, .. } => {
            (announcement.columns, announcement.transactions.len())
        }
        other => panic!("{other:?}"),
    });
    let messages: Vec<_> = messages.collect();
    assert_eq!(messages, [(Some(some), 1), (ALL, 2)]);
}
