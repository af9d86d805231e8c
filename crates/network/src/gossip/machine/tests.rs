//! Gossip, step by step.

mod laws;
mod sampling;

use super::super::transaction::tests::blob_transaction;
use super::*;
use crate::gossip::pool::NewTransaction;
use crate::gossip::send::Spread;
use crate::wire::limits::CELL_BYTES;
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, FixedBytes};

const OLD: EthVersion = EthVersion::Eth71;
const NEW: EthVersion = EthVersion::Eth72;
const ALL: Option<CellMask> = Some(CellMask::ALL);

/// The transaction that the pool has.
const IN_POOL: u8 = 255;

/// Peers 1, 2, ... with these versions.
fn gossip(versions: &[EthVersion]) -> Gossip {
    let in_pool = keccak256(plain(IN_POOL));
    let is_here = move |hash: &B256| *hash == in_pool;
    let mut gossip = Gossip::new(SendSecret([7; 16]), 7, 15, Arc::new(is_here));
    for (number, version) in (1..).zip(versions) {
        gossip.join(
            conn(number),
            NodeId(FixedBytes::repeat_byte(number)),
            *version,
        );
    }
    gossip.set_syncing(false);
    gossip
}

fn conn(number: u8) -> ConnId {
    ConnId(number.into())
}

/// A transaction that no pool would take.
fn plain(seed: u8) -> Bytes {
    Bytes::from(vec![2, 0xc1, seed])
}

fn new(bytes: &Bytes, sender: u8) -> NewTransaction {
    NewTransaction {
        announceable: Announceable {
            hash: keccak256(bytes),
            tx_type: 2,
            size_with_blobs: 3,
            size_without_blobs: 3,
            columns: CellMask::ALL,
        },
        sender: Address::repeat_byte(sender),
        encoded: Some(bytes.clone()),
        spread: Spread::SquareRoot,
    }
}

fn announcement<'a>(all: impl IntoIterator<Item = &'a Bytes>) -> Announcement {
    Announcement {
        transactions: all.into_iter().map(announced).collect(),
        columns: None,
    }
}

fn announced(bytes: &Bytes) -> Announced {
    Announced {
        hash: keccak256(bytes),
        tx_type: bytes[0],
        size: u32::try_from(bytes.len()).unwrap(),
    }
}

fn cut(actions: &[Action]) -> Option<(ConnId, GossipBreach)> {
    actions.iter().find_map(|action| match action {
        Action::Disconnect { conn, breach } => Some((*conn, *breach)),
        _ => None,
    })
}

fn asked(actions: &[Action]) -> Vec<(ConnId, u64, Vec<B256>)> {
    let all = actions.iter().filter_map(|action| match action {
        Action::Ask {
            conn,
            request,
            hashes,
        } => Some((*conn, *request, hashes.clone())),
        _ => None,
    });
    all.collect()
}

fn handed(actions: &[Action]) -> Vec<(ConnId, Vec<B256>)> {
    let all = actions.iter().filter_map(|action| match action {
        Action::HandOver { conn, transactions } => {
            Some((*conn, transactions.iter().map(|tx| tx.hash).collect()))
        }
        _ => None,
    });
    all.collect()
}

#[test]
fn what_is_announced_is_asked_handed_over_and_its_first_announcer_credited_when_it_is_mined() {
    let mut gossip = gossip(&[OLD, OLD]);
    let tx = plain(1);
    let hash = keccak256(&tx);
    for number in [1, 2] {
        let actions = gossip.announced(conn(number), &announcement([&tx]), 0);
        assert_eq!(actions, []);
    }
    let asked = asked(&gossip.tick(600));
    let (of, request, hashes) = asked[0].clone();
    assert_eq!((asked.len(), hashes), (1, vec![hash]));
    let actions = gossip.answered(of, request, vec![tx.clone()], 700);
    assert_eq!(handed(&actions), [(of, vec![hash])]);
    // It is on its way to the pool.
    assert_eq!(gossip.sent(conn(2), vec![tx.clone()], 700), []);
    gossip.announced(conn(2), &announcement([&tx]), 700);
    assert_eq!(gossip.tick(10_000), []);
    assert_eq!(gossip.report(of, &[(hash, Verdict::Accepted)], 710), []);
    let expected = Action::Conduct {
        conn: conn(1),
        conduct: Conduct::FirstAnnouncer,
    };
    assert_eq!(gossip.mined(&[hash]), [expected]);
    assert_eq!(gossip.mined(&[hash]), []);
}

#[test]
fn transactions_that_come_unasked_are_handed_over_once_in_batches_of_128() {
    let mut gossip = gossip(&[OLD, OLD]);
    let all: Vec<Bytes> = (0..200).map(plain).collect();
    let actions = gossip.sent(conn(1), all.clone(), 0);
    let sizes: Vec<usize> = handed(&actions).iter().map(|batch| batch.1.len()).collect();
    assert_eq!(sizes, [128, 72]);
    assert_eq!(gossip.sent(conn(2), all.clone(), 0), []);
    let unknown_type = Bytes::from(vec![LAST_TYPE + 1, 0xc1, 1]);
    let two = vec![plain(IN_POOL), unknown_type, plain(202)];
    let actions = gossip.sent(conn(2), two, 0);
    assert_eq!(handed(&actions), [(conn(2), vec![keccak256(plain(202))])]);
}

#[test]
fn a_broadcast_goes_in_full_to_two_of_four_by_hash_to_the_others_and_never_back() {
    let mut gossip = gossip(&[OLD; 5]);
    let tx = plain(1);
    gossip.sent(conn(3), vec![tx.clone()], 0);
    gossip.announced(conn(4), &announcement([&tx]), 0);
    let mut actions = gossip.broadcast(&[new(&tx, 9)], 0);
    actions.extend(gossip.tick(99));
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Announce { .. }))
    );
    actions.extend(gossip.tick(100));
    let (mut full, mut hashes) = (Vec::new(), Vec::new());
    for action in &actions {
        match action {
            Action::Send { conn, transactions } => {
                assert_eq!(transactions, std::slice::from_ref(&tx));
                full.push(*conn);
            }
            Action::Announce { conn, announcement } => {
                assert_eq!(announcement.transactions, [announced(&tx)]);
                hashes.push(*conn);
            }
            other => panic!("{other:?}"),
        }
    }
    let mut all = [full.clone(), hashes].concat();
    all.sort_unstable();
    assert_eq!(all, [conn(1), conn(2), conn(5)]);
    assert!(full.len() <= 3);
    assert_eq!(gossip.broadcast(&[new(&tx, 9)], 200), []);
    assert_eq!(gossip.tick(300), []);
}

#[test]
fn full_transactions_go_in_messages_of_100_kib() {
    let mut gossip = gossip(&[OLD]);
    let all: Vec<NewTransaction> = (0..60_u8)
        .map(|seed| new(&Bytes::from([2, seed].repeat(2048)), 1))
        .collect();
    let actions = gossip.broadcast(&all, 0);
    let counts = actions.iter().map(|action| match action {
        Action::Send { transactions, .. } => transactions.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(counts.collect::<Vec<_>>(), [25, 25, 10]);
}

#[test]
fn blobs_are_announced_apart_with_their_mask_on_eth_72_and_with_the_others_before() {
    let mut gossip = gossip(&[OLD, NEW]);
    let (hash, other) = (B256::repeat_byte(1), plain(1));
    let blobs = NewTransaction {
        announceable: Announceable {
            hash,
            tx_type: 3,
            size_with_blobs: 131_300,
            size_without_blobs: 6_700,
            columns: CellMask::ALL,
        },
        sender: Address::ZERO,
        encoded: None,
        spread: Spread::SquareRoot,
    };
    let large = NewTransaction {
        encoded: None,
        ..new(&other, 1)
    };
    gossip.broadcast(&[blobs, large], 0);
    let of_blobs = |size| Announced {
        hash,
        tx_type: 3,
        size,
    };
    let expect = |conn, transactions, columns| Action::Announce {
        conn,
        announcement: Announcement {
            transactions,
            columns,
        },
    };
    let expected = [
        expect(conn(1), vec![of_blobs(131_300), announced(&other)], None),
        expect(conn(2), vec![announced(&other)], None),
        expect(conn(2), vec![of_blobs(6_700)], ALL),
    ];
    assert_eq!(gossip.tick(100), expected);
}

#[test]
fn two_hundred_and_fifty_six_announcements_do_not_wait_and_4096_are_kept() {
    let mut gossip = gossip(&[OLD]);
    let pending = |count: u32| -> Vec<Announceable> {
        let hash = |number: u32| B256::right_padding_from(&number.to_be_bytes());
        let one = new(&plain(0), 0).announceable;
        (0..count)
            .map(|number| Announceable {
                hash: hash(number),
                ..one
            })
            .collect()
    };
    gossip.announce_pending(conn(1), &pending(255), 0);
    assert_eq!(gossip.tick(0), []);
    gossip.announce_pending(conn(1), &pending(256), 0);
    assert_eq!(gossip.tick(0).len(), 1);
    gossip.announce_pending(conn(1), &pending(5_000), 0);
    let Action::Announce { announcement, .. } = &gossip.tick(0)[0] else {
        panic!("no announcement");
    };
    assert_eq!(announcement.transactions.len(), 4096 - 256);
}

#[test]
fn a_reminder_goes_also_to_those_who_have_heard_of_it() {
    let mut gossip = gossip(&[OLD, OLD]);
    let tx = plain(1);
    let new = new(&tx, 1);
    gossip.broadcast(std::slice::from_ref(&new), 0);
    gossip.tick(100);
    assert_eq!(gossip.broadcast(std::slice::from_ref(&new), 200), []);
    assert_eq!(gossip.tick(300), []);
    let expected = [1, 2].map(|number| Action::Announce {
        conn: conn(number),
        announcement: Announcement {
            transactions: vec![announced(&tx)],
            columns: None,
        },
    });
    assert_eq!(gossip.remind(&[new.announceable]), expected);
    gossip.set_syncing(true);
    assert_eq!(gossip.remind(&[new.announceable]), []);
}

#[test]
fn while_syncing_and_at_first_it_neither_asks_nor_sends_nor_hands_over() {
    let mut gossip = gossip(&[OLD, OLD]);
    gossip.set_syncing(true);
    let tx = plain(1);
    assert_eq!(gossip.sent(conn(1), vec![tx.clone()], 0), []);
    gossip.announced(conn(1), &announcement([&plain(2)]), 0);
    assert_eq!(gossip.broadcast(&[new(&plain(3), 1)], 0), []);
    gossip.announce_pending(conn(1), &[new(&plain(3), 1).announceable], 0);
    assert_eq!(gossip.tick(60_000), []);
    gossip.set_syncing(false);
    assert_eq!(gossip.tick(60_000), []);
    assert_eq!(gossip.sent(conn(1), vec![tx], 0).len(), 1);
}

#[test]
fn while_the_pool_is_full_nothing_is_asked() {
    let mut gossip = gossip(&[OLD]);
    gossip.set_pool_full(true);
    gossip.announced(conn(1), &announcement([&plain(1)]), 0);
    assert_eq!(gossip.tick(5_000), []);
    gossip.set_pool_full(false);
    assert_eq!(asked(&gossip.tick(5_000)).len(), 1);
}

#[test]
fn breaches_cut_the_peer_and_another_is_asked_at_once() {
    let tx = plain(1);
    let blobs = blob_transaction(1, 1);
    let cases: [(&str, Vec<Bytes>); 4] = [
        ("another transaction", vec![plain(2)]),
        ("twice", vec![tx.clone(), tx.clone()]),
        ("type and size", vec![Bytes::from(vec![1, 0xc1, 1])]),
        (
            "no sidecar",
            vec![Bytes::from([&[3][..], &blobs.own].concat())],
        ),
    ];
    for (name, answer) in cases {
        let mut gossip = gossip(&[OLD, OLD]);
        for number in [1, 2] {
            gossip.announced(conn(number), &announcement([&tx]), 0);
        }
        let (of, request, _) = asked(&gossip.tick(600))[0].clone();
        let actions = gossip.answered(of, request, answer, 700);
        assert_eq!(cut(&actions).map(|cut| cut.0), Some(of), "{name}");
        let conduct = Conduct::BadMessage;
        assert!(
            actions.contains(&Action::Conduct { conn: of, conduct }),
            "{name}"
        );
        let again = asked(&actions);
        assert_eq!((again.len(), again[0].0 == of), (1, false), "{name}");
        assert_eq!(gossip.sent(of, vec![tx.clone()], 700), [], "{name}");
    }
    let mut gossip = gossip(&[NEW, NEW, NEW]);
    let actions = gossip.sent(conn(1), vec![blobs.without_blobs()], 0);
    assert_eq!(
        cut(&actions),
        Some((conn(1), GossipBreach::Blobs(blobs.hash())))
    );
    let actions = gossip.sent(conn(2), vec![tx.clone(), tx.clone()], 0);
    assert_eq!(
        cut(&actions),
        Some((conn(2), GossipBreach::Twice(keccak256(&tx))))
    );
    let actions = gossip.announced(conn(3), &announcement([&tx, &tx]), 0);
    assert_eq!(
        cut(&actions),
        Some((conn(3), GossipBreach::Twice(keccak256(&tx))))
    );
}

#[test]
fn an_invalid_transaction_is_a_lie_and_many_refused_ones_make_a_peer_wait() {
    let mut gossip = gossip(&[OLD, OLD]);
    let all: Vec<Bytes> = (0..4).map(plain).collect();
    gossip.sent(conn(1), all.clone(), 0);
    let hash = keccak256(&all[0]);
    let actions = gossip.report(conn(1), &[(hash, Verdict::Invalid)], 0);
    assert_eq!(cut(&actions), Some((conn(1), GossipBreach::Invalid(hash))));
    let conduct = Conduct::Lie;
    assert!(actions.contains(&Action::Conduct {
        conn: conn(1),
        conduct
    }));

    gossip.announced(conn(2), &announcement([&plain(9)]), 0);
    let verdicts = [
        Verdict::Refused,
        Verdict::Refused,
        Verdict::Known,
        Verdict::Accepted,
    ];
    let results: Vec<_> = all.iter().map(keccak256).zip(verdicts).collect();
    gossip.report(conn(2), &results, 500);
    assert_eq!(asked(&gossip.tick(600)), []);
    assert_eq!(asked(&gossip.tick(699)), []);
    assert_eq!(asked(&gossip.tick(700)).len(), 1);
}

#[test]
fn a_quarter_refused_makes_no_peer_wait_and_underpriced_ones_are_not_fetched_again() {
    let mut gossip = gossip(&[OLD]);
    let all: Vec<B256> = (0..4).map(|seed| keccak256(plain(seed))).collect();
    let verdicts = [
        Verdict::Refused,
        Verdict::Underpriced,
        Verdict::Known,
        Verdict::Accepted,
    ];
    let results: Vec<_> = all.into_iter().zip(verdicts).collect();
    gossip.announced(conn(1), &announcement([&plain(9)]), 0);
    gossip.report(conn(1), &results, 500);
    assert_eq!(asked(&gossip.tick(600)).len(), 1);
    gossip.leave(conn(1), 600);
    gossip.join(conn(1), NodeId(FixedBytes::repeat_byte(1)), OLD);
    gossip.announced(conn(1), &announcement([&plain(1)]), 600);
    assert_eq!(gossip.sent(conn(1), vec![plain(1)], 600), []);
    assert_eq!(asked(&gossip.tick(2_000)), []);
}

/// A blob transaction of two eth/72 peers, up to the request for its cells.
fn up_to_cells(gossip: &mut Gossip, seed: u8) -> (ConnId, u64, B256) {
    let bytes = blob_transaction(seed, 2).without_blobs();
    let hash = blob_transaction(seed, 2).hash();
    let size = u32::try_from(bytes.len()).unwrap();
    let announcement = Announcement {
        transactions: vec![Announced {
            hash,
            tx_type: 3,
            size,
        }],
        columns: ALL,
    };
    for number in [1, 2] {
        gossip.announced(conn(number), &announcement, 0);
    }
    let (of, request, _) = asked(&gossip.tick(100))[0].clone();
    let actions = gossip.answered(of, request, vec![bytes], 150);
    let [
        Action::AskCells {
            conn,
            request,
            hashes,
            columns,
        },
    ] = &actions[..]
    else {
        panic!("{actions:?}");
    };
    assert_eq!(
        (*conn, hashes.as_slice(), columns.count()),
        (of, &[hash][..], 64)
    );
    (of, *request, hash)
}

fn cells() -> Vec<Bytes> {
    vec![Bytes::from(vec![1; CELL_BYTES]); 128]
}

#[test]
fn a_blob_transaction_of_eth_72_is_handed_over_once_its_cells_are_here() {
    let mut gossip = gossip(&[NEW, NEW]);
    let (of, request, hash) = up_to_cells(&mut gossip, 1);
    let answer = vec![(hash, cells())];
    let actions = gossip.answered_cells(
        of,
        request,
        answer,
        CellMask::from_bits(u64::MAX.into()),
        200,
    );
    let [Action::HandOver { transactions, .. }] = &actions[..] else {
        panic!("{actions:?}");
    };
    let blob = Bytes::from(vec![1; 131_072]);
    let whole = blob_transaction(1, 2).with(&[blob.clone(), blob]);
    assert_eq!(
        (transactions[0].hash, &transactions[0].bytes),
        (hash, &whole)
    );
    let actions = gossip.report(of, &[(hash, Verdict::Invalid)], 210);
    assert_eq!(cut(&actions), Some((of, GossipBreach::Invalid(hash))));
}

#[test]
fn cells_that_do_not_come_are_fetched_with_their_transaction_from_another_peer() {
    for is_gone in [true, false] {
        let mut gossip = gossip(&[NEW, NEW]);
        let (of, request, hash) = up_to_cells(&mut gossip, 1);
        let actions = match is_gone {
            true => gossip.leave(of, 200),
            false => gossip.answered_cells(
                of,
                request,
                Vec::new(),
                CellMask::from_bits(u64::MAX.into()),
                200,
            ),
        };
        assert_eq!(asked(&actions), []);
        let again = asked(&gossip.tick(300));
        assert_eq!((again[0].0 == of, &again[0].2), (false, &vec![hash]));
    }
}

#[test]
fn cells_that_take_5_seconds_are_a_time_out() {
    let mut gossip = gossip(&[NEW, NEW]);
    let (of, _, _) = up_to_cells(&mut gossip, 1);
    let actions = gossip.tick(5_150);
    let conduct = Conduct::Timeout;
    assert!(actions.contains(&Action::Conduct { conn: of, conduct }));
    assert_eq!(asked(&gossip.tick(5_250)).len(), 1);
}

#[test]
fn a_peer_with_some_columns_only_is_not_asked_for_blobs() {
    let mut gossip = gossip(&[NEW]);
    let hash = B256::repeat_byte(1);
    let some = Announcement {
        transactions: vec![Announced {
            hash,
            tx_type: 3,
            size: 1,
        }],
        columns: Some(CellMask([1; 16])),
    };
    gossip.announced(conn(1), &some, 0);
    assert_eq!(gossip.tick(10_000), []);
    let unknown = Announcement {
        transactions: vec![Announced {
            hash: B256::repeat_byte(2),
            tx_type: 5,
            size: 1,
        }],
        columns: ALL,
    };
    gossip.announced(conn(1), &unknown, 0);
    assert_eq!(gossip.tick(10_000), []);
}
