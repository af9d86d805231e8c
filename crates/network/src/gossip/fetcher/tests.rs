//! The fetcher, step by step.

mod laws;

use super::*;
use crate::gossip::MIN_WHOLE_PERCENT;

fn hash(number: u64) -> B256 {
    let mut hash = B256::ZERO;
    hash[..8].copy_from_slice(&(number + 1).to_be_bytes());
    hash
}

fn announced(number: u64) -> Announced {
    Announced {
        hash: hash(number),
        tx_type: 2,
        size: 100,
    }
}

fn received(number: u64) -> Received {
    Received {
        hash: hash(number),
        tx_type: 2,
        size: 100,
    }
}

const A: ConnId = ConnId(1);
const B: ConnId = ConnId(2);
const C: ConnId = ConnId(3);

fn fetcher() -> Fetcher {
    Fetcher::new(0x9e37_79b9_7f4a_7c15, MIN_WHOLE_PERCENT)
}

fn announce(fetcher: &mut Fetcher, conn: ConnId, numbers: std::ops::Range<u64>, now_ms: u64) {
    let all: Vec<Announced> = numbers.map(announced).collect();
    for part in all.chunks(4096) {
        let done = fetcher.announce(conn, part, |_| false, now_ms);
        assert_eq!(done, Ok(()));
    }
}

/// The peers that are asked, the numbers of the requests, and how many hashes each has.
fn requests(actions: &[FetchAction]) -> Vec<(ConnId, u64, usize)> {
    let requests = actions.iter().filter_map(|action| match action {
        FetchAction::Request {
            conn,
            request,
            hashes,
        } => Some((*conn, *request, hashes.len())),
        FetchAction::Timeout { .. } => None,
    });
    requests.collect()
}

#[test]
fn a_hash_waits_500_ms_gathers_100_ms_and_is_asked_for() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..1, 0);
    announce(&mut fetcher, A, 1..2, 50);
    announce(&mut fetcher, A, 2..3, 101);
    assert_eq!(fetcher.wake_ms(), Some(600));
    assert!(fetcher.tick(599).is_empty());
    assert_eq!(requests(&fetcher.tick(600)), [(A, 1, 2)]);
    assert_eq!(fetcher.wake_ms(), Some(701));
}

#[test]
fn a_blob_transaction_only_gathers() {
    let mut fetcher = fetcher();
    let blob = Announced {
        tx_type: 3,
        ..announced(1)
    };
    fetcher.announce(A, &[blob], |_| false, 0).unwrap();
    assert!(fetcher.tick(99).is_empty());
    assert_eq!(requests(&fetcher.tick(100)), [(A, 1, 1)]);
}

/// A fetcher that samples, and the first blob transaction from `number` on that it does, or does not.
fn sampling(number: u64, is_sampled: bool) -> (Fetcher, Announced) {
    let mut fetcher = fetcher();
    fetcher.set_custody(CellMask::from_bits(0xff));
    let mut numbers = (number..).map(hash);
    let hash = numbers.find(|hash| fetcher.sampling().is_whole(hash) != is_sampled);
    let announced = Announced {
        hash: hash.unwrap(),
        tx_type: 3,
        size: 100,
    };
    (fetcher, announced)
}

#[test]
fn a_sampled_blob_transaction_waits_for_a_second_peer_2_s_at_most() {
    let (mut alone, blob) = sampling(0, true);
    alone.announce(A, &[blob], |_| false, 0).unwrap();
    assert!(alone.tick(2_099).is_empty());
    assert_eq!(requests(&alone.tick(2_100)), [(A, 1, 1)]);

    let (mut fetcher, blob) = sampling(0, true);
    fetcher.announce(A, &[blob], |_| false, 0).unwrap();
    fetcher.announce(B, &[blob], |_| false, 700).unwrap();
    fetcher.announce(C, &[blob], |_| false, 750).unwrap();
    assert_eq!(fetcher.wake_ms(), Some(800));
    assert!(fetcher.tick(799).is_empty());
    assert_eq!(requests(&fetcher.tick(800)).len(), 1);
    assert!(fetcher.waiting.is_empty());
    fetcher.received(&blob.hash);
    assert!(fetcher.is_empty() && fetcher.announcements == 0);

    let (mut whole, blob) = sampling(0, false);
    whole.announce(A, &[blob], |_| false, 0).unwrap();
    assert_eq!(requests(&whole.tick(100)), [(A, 1, 1)]);
}

#[test]
fn a_second_peer_that_comes_late_changes_nothing() {
    let (mut fetcher, blob) = sampling(50, true);
    fetcher.announce(A, &[blob], |_| false, 0).unwrap();
    assert_eq!(requests(&fetcher.tick(2_100)), [(A, 1, 1)]);
    fetcher.announce(B, &[blob], |_| false, 2_200).unwrap();
    assert!(fetcher.tick(2_300).is_empty() && fetcher.waiting.is_empty());
    fetcher.gone(A);
    assert_eq!(requests(&fetcher.tick(2_400)), [(B, 2, 1)]);
}

#[test]
fn a_transaction_that_comes_by_itself_is_not_asked_for() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..2, 0);
    fetcher.received(&hash(0));
    fetcher.announce(B, &[announced(2)], |_| true, 0).unwrap();
    assert_eq!(requests(&fetcher.tick(600)), [(A, 1, 1)]);
    fetcher.answer(A, 1, &[received(1)]).unwrap();
    assert!(fetcher.is_empty() && fetcher.announcements == 0 && fetcher.waiting.is_empty());
}

#[test]
fn announcers_share_the_load_and_have_one_request_each() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..100, 0);
    announce(&mut fetcher, B, 0..100, 0);
    assert_eq!(requests(&fetcher.tick(600)), [(A, 1, 50), (B, 2, 50)]);
    announce(&mut fetcher, A, 100..101, 600);
    assert!(fetcher.tick(1200).is_empty());
}

#[test]
fn a_request_has_at_most_256_hashes_and_128_kib() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..300, 0);
    assert_eq!(requests(&fetcher.tick(600)), [(A, 1, 256)]);
    let large = |number| Announced {
        size: 100_000,
        ..announced(number)
    };
    let all = [large(1000), large(1001)];
    fetcher.announce(B, &all, |_| false, 600).unwrap();
    assert_eq!(requests(&fetcher.tick(1200)), [(B, 2, 1)]);
}

#[test]
fn after_5_seconds_the_next_announcer_is_asked_and_the_slow_one_rests_until_it_answers() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..1, 0);
    fetcher.tick(600);
    announce(&mut fetcher, B, 0..1, 700);
    assert_eq!(fetcher.wake_ms(), Some(5600));
    let actions = fetcher.tick(5600);
    assert_eq!(actions[0], FetchAction::Timeout { conn: A });
    assert_eq!(requests(&actions), [(B, 2, 1)]);
    announce(&mut fetcher, A, 5..6, 5600);
    assert!(requests(&fetcher.tick(6200)).is_empty());
    // The late answer is welcome all the same.
    fetcher.answer(A, 1, &[received(0)]).unwrap();
    assert_eq!(fetcher.len(), 1);
    assert_eq!(requests(&fetcher.tick(6300)), [(A, 3, 1)]);
    fetcher.answer(B, 2, &[received(0)]).unwrap();
}

#[test]
fn a_silent_peer_is_asked_again_after_15_more_seconds() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..1, 0);
    fetcher.tick(600);
    fetcher.tick(5600);
    assert!(fetcher.is_empty());
    announce(&mut fetcher, A, 0..1, 6000);
    assert!(requests(&fetcher.tick(20_599)).is_empty());
    assert_eq!(requests(&fetcher.tick(20_600)), [(A, 2, 1)]);
}

#[test]
fn what_lies_behind_the_last_delivered_is_asked_again_and_what_lies_before_elsewhere() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..4, 0);
    fetcher.tick(600);
    announce(&mut fetcher, B, 0..1, 600);
    fetcher.answer(A, 1, &[received(1)]).unwrap();
    let actions = fetcher.tick(600);
    assert_eq!(requests(&actions), [(A, 2, 2), (B, 3, 1)]);
    fetcher.answer(A, 2, &[]).unwrap();
    fetcher.answer(B, 3, &[received(0)]).unwrap();
    assert!(fetcher.is_empty());
}

#[test]
fn a_peer_that_breaks_the_rules_is_forgotten_and_another_is_asked() {
    let wrong_size = Received {
        size: 109,
        ..received(0)
    };
    let wrong_type = Received {
        tx_type: 1,
        ..received(0)
    };
    for answer in [
        vec![wrong_size],
        vec![wrong_type],
        vec![received(0), received(0)],
        vec![received(7)],
    ] {
        let mut fetcher = fetcher();
        announce(&mut fetcher, A, 0..1, 0);
        fetcher.tick(600);
        announce(&mut fetcher, B, 0..1, 600);
        assert!(fetcher.answer(A, 1, &answer).is_err(), "{answer:?}");
        assert_eq!(requests(&fetcher.tick(600)), [(B, 2, 1)]);
        assert!(!fetcher.peers.contains_key(&A));
    }
    let mut fetcher = fetcher();
    let twice = [announced(1), announced(1)];
    let breach = fetcher.announce(A, &twice, |_| false, 0);
    assert_eq!(breach, Err(GossipBreach::Twice(hash(1))));
}

#[test]
fn a_size_may_differ_by_8_bytes() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..2, 0);
    fetcher.tick(600);
    let answer = [(0, 92), (1, 108)].map(|(number, size)| Received {
        size,
        ..received(number)
    });
    assert_eq!(fetcher.answer(A, 1, &answer), Ok(()));
}

#[test]
fn of_a_peer_4096_announcements_are_remembered() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..5000, 0);
    assert_eq!(fetcher.len(), 4096);
    announce(&mut fetcher, B, 5000..5001, 0);
    assert_eq!(fetcher.len(), 4097);
}

#[test]
fn beyond_32768_announcements_the_noisiest_peer_loses_its_newest() {
    let mut fetcher = fetcher();
    for number in 0..8 {
        let first = number * 10_000;
        announce(&mut fetcher, ConnId(number), first..first + 4096, 0);
    }
    assert_eq!(fetcher.announcements, MAX_IN_ALL);
    announce(&mut fetcher, ConnId(100), 900_000..900_100, 1);
    assert_eq!(fetcher.announcements, MAX_IN_ALL);
    assert_eq!(fetcher.peers[&ConnId(100)].announced.len(), 100);
    for number in 0..8 {
        let first = number * 10_000;
        assert!(fetcher.wanted.contains_key(&hash(first)));
        assert!((4000..4096).contains(&fetcher.peers[&ConnId(number)].announced.len()));
    }
}

#[test]
fn mined_and_underpriced_transactions_are_not_asked_for_and_the_latter_for_5_minutes() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..2, 0);
    fetcher.mined(&hash(0));
    fetcher.underpriced(&hash(1));
    assert!(fetcher.is_empty());
    fetcher.tick(150_000);
    announce(&mut fetcher, A, 0..2, 150_000);
    assert!(fetcher.is_empty());
    fetcher.tick(300_000);
    announce(&mut fetcher, A, 0..2, 300_000);
    assert!(fetcher.wanted.contains_key(&hash(1)) && fetcher.len() == 1);
}

#[test]
fn a_paused_peer_is_asked_after_its_pause() {
    let mut fetcher = fetcher();
    announce(&mut fetcher, A, 0..1, 0);
    fetcher.pause(A, 800);
    assert!(fetcher.tick(600).is_empty());
    assert_eq!(fetcher.wake_ms(), Some(800));
    assert_eq!(requests(&fetcher.tick(800)), [(A, 1, 1)]);
    announce(&mut fetcher, C, 1..2, 800);
    fetcher.gone(C);
    assert_eq!(fetcher.len(), 1);
    fetcher.gone(A);
    assert!(fetcher.is_empty() && fetcher.wake_ms().is_none());
}
