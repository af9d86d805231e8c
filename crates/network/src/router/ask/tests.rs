//! The router, step by step.

mod laws;

use super::*;
use crate::wire::SnapKind;
use rand::SeedableRng;

const KIND: RequestKind = RequestKind::Bodies;

/// A router whose peers 0 to `peers` have all kinds and the blocks 0 to 100.
fn router(peers: u64) -> Router {
    let mut router = Router::new(SmallRng::seed_from_u64(3));
    for number in 0..peers {
        router.join(ConnId(number), info(), 0);
    }
    router
}

fn info() -> Abilities {
    Abilities {
        kinds: vec![
            KIND,
            RequestKind::Snap(SnapKind::AccountRange),
            RequestKind::Headers,
        ],
        earliest: 0,
        latest: 100,
    }
}

fn job(items: u32) -> Ask {
    Ask {
        kind: KIND,
        items,
        need: Need::default(),
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Sent {
    conn: ConnId,
    request: u64,
    items: Range<u32>,
}

fn sent(actions: &[AskAction]) -> Vec<Sent> {
    let all = actions.iter().filter_map(|action| match action {
        AskAction::Send {
            conn,
            request,
            items,
            ..
        } => Some(Sent {
            conn: *conn,
            request: *request,
            items: items.clone(),
        }),
        _ => None,
    });
    all.collect()
}

fn done(actions: &[AskAction]) -> Option<Vec<GivenUp>> {
    actions.iter().find_map(|action| match action {
        AskAction::Done { given_up, .. } => Some(given_up.clone()),
        _ => None,
    })
}

fn conducts(actions: &[AskAction]) -> Vec<(ConnId, Conduct)> {
    let all = actions.iter().filter_map(|action| match action {
        AskAction::Conduct { conn, conduct } => Some((*conn, *conduct)),
        _ => None,
    });
    all.collect()
}

fn all() -> Outcome {
    Outcome::Items {
        missing: Vec::new(),
    }
}

fn but(missing: Range<u32>) -> Outcome {
    Outcome::Items {
        missing: vec![missing],
    }
}

#[test]
fn a_job_is_cut_to_what_a_peer_delivers_and_spread_over_the_peers() {
    let mut router = router(3);
    let (_, actions) = router.ask(job(40), 0).unwrap();
    let pieces = sent(&actions);
    let items: Vec<Range<u32>> = pieces.iter().map(|sent| sent.items.clone()).collect();
    assert_eq!(items, [0..16, 16..32, 32..40]);
    let mut conns: Vec<ConnId> = pieces.iter().map(|sent| sent.conn).collect();
    conns.sort_unstable();
    conns.dedup();
    assert!(conns.len() >= 2, "{conns:?}");
    for piece in &pieces[..2] {
        let actions = router.answer(piece.conn, piece.request, all(), 100);
        assert_eq!(conducts(&actions), [(piece.conn, Conduct::Content)]);
        assert_eq!(done(&actions), None);
    }
    let last = &pieces[2];
    let actions = router.answer(last.conn, last.request, all(), 100);
    assert_eq!(done(&actions), Some(Vec::new()));
    assert_eq!(router.jobs(), 0);
}

#[test]
fn a_peer_has_three_requests_of_a_kind_and_five_in_all() {
    let mut router = router(1);
    let (_, actions) = router.ask(job(128), 0).unwrap();
    let bodies = sent(&actions);
    assert_eq!(bodies.len(), 3);
    let ranges = Ask {
        kind: RequestKind::Snap(SnapKind::AccountRange),
        ..job(9)
    };
    let (_, actions) = router.ask(ranges, 0).unwrap();
    assert_eq!(sent(&actions).len(), 2);
    let headers = Ask {
        kind: RequestKind::Headers,
        ..job(192)
    };
    let (_, actions) = router.ask(headers, 0).unwrap();
    assert_eq!(sent(&actions), []);
    let answered = bodies[0].request;
    assert_eq!(
        sent(&router.answer(ConnId(0), answered, all(), 10)).len(),
        1
    );
}

#[test]
fn a_failure_goes_to_another_peer_at_once_and_after_three_to_the_asker() {
    let mut router = router(5);
    let (_, mut actions) = router.ask(job(1), 0).unwrap();
    let mut tries = Vec::new();
    let outcomes = [
        (but(0..1), TryEnd::Empty),
        (Outcome::Stateless, TryEnd::Stateless),
        (Outcome::Wrong(Conduct::Lie), TryEnd::Wrong),
    ];
    for (outcome, end) in outcomes {
        let Sent { conn, request, .. } = sent(&actions)[0].clone();
        assert!(tries.iter().all(|one: &Try| one.conn != conn));
        tries.push(Try { conn, end });
        actions = router.answer(conn, request, outcome, 0);
    }
    assert_eq!(conducts(&actions), [(tries[2].conn, Conduct::Lie)]);
    let given_up = GivenUp { items: 0..1, tries };
    assert_eq!(done(&actions), Some(vec![given_up]));
}

#[test]
fn a_piece_that_all_peers_here_failed_with_is_given_up_before_three_tries() {
    let mut router = router(1);
    let (_, actions) = router.ask(job(1), 0).unwrap();
    let actions = router.answer(ConnId(0), sent(&actions)[0].request, but(0..1), 0);
    assert_eq!(done(&actions).unwrap()[0].tries.len(), 1);
}

#[test]
fn what_is_missing_of_an_answer_is_asked_again() {
    let mut router = router(1);
    let (_, actions) = router.ask(job(16), 0).unwrap();
    let actions = router.answer(ConnId(0), sent(&actions)[0].request, but(10..16), 1000);
    let again = sent(&actions);
    assert_eq!(again[0].items, 10..16);
    let actions = router.answer(ConnId(0), again[0].request, all(), 2000);
    assert_eq!(done(&actions), Some(Vec::new()));
}

#[test]
fn a_request_times_out_and_its_late_answer_is_not_wanted() {
    let mut router = router(2);
    let (id, actions) = router.ask(job(1), 0).unwrap();
    let Sent { conn, request, .. } = sent(&actions)[0].clone();
    let open = router.open_request(conn, request).unwrap();
    assert_eq!((open.job, open.kind, open.items), (id, KIND, 0..1));
    let actions = router.tick(5_000);
    assert_eq!(conducts(&actions), [(conn, Conduct::Timeout)]);
    assert_ne!(sent(&actions)[0].conn, conn);
    assert_eq!(router.open_request(conn, request), None);
    assert!(router.answer(conn, request, all(), 5_000).is_empty());
}

#[test]
fn at_a_jobs_end_an_idle_peer_repeats_what_takes_long_and_the_first_answer_counts() {
    let mut router = router(2);
    let (_, actions) = router.ask(job(1), 0).unwrap();
    let first = sent(&actions)[0].clone();
    assert!(router.tick(2_499).is_empty());
    let second = sent(&router.tick(2_500))[0].clone();
    assert_ne!(second.conn, first.conn);
    assert_eq!(second.items, first.items);
    assert!(router.tick(2_600).is_empty());
    let actions = router.answer(second.conn, second.request, all(), 2_700);
    assert_eq!(done(&actions), Some(Vec::new()));
    let actions = router.answer(first.conn, first.request, all(), 2_800);
    assert_eq!(done(&actions), None);
}

#[test]
fn if_a_repeated_piece_fails_once_the_other_peer_still_has_it() {
    let mut router = router(2);
    let (_, actions) = router.ask(job(2), 0).unwrap();
    let first = sent(&actions)[0].clone();
    let second = sent(&router.tick(2_500))[0].clone();
    let actions = router.answer(second.conn, second.request, but(0..2), 2_600);
    assert_eq!((sent(&actions).len(), done(&actions)), (0, None));
    let actions = router.answer(first.conn, first.request, but(1..2), 2_700);
    assert_eq!(sent(&actions)[0].items, 1..2);
    assert_eq!(sent(&actions)[0].conn, first.conn);
}

#[test]
fn a_piece_and_its_repetition_that_time_out_together_are_asked_once_more() {
    let mut router = router(3);
    router.ask(job(2), 0).unwrap();
    assert_eq!(sent(&router.tick(2_500)).len(), 1);
    let actions = router.tick(60_000 - 1);
    assert_eq!(conducts(&actions).len(), 2);
    assert_eq!(sent(&actions).len(), 1);
}

#[test]
fn a_peer_without_the_state_of_a_root_is_not_asked_for_it_for_2_minutes() {
    let mut router = router(1);
    let root = Some(B256::repeat_byte(1));
    let need = Need {
        root,
        ..Need::default()
    };
    let ask = Ask { need, ..job(1) };
    let (_, actions) = router.ask(ask, 0).unwrap();
    router.answer(ConnId(0), sent(&actions)[0].request, Outcome::Stateless, 0);
    let (id, actions) = router.ask(ask, 119_000).unwrap();
    assert!(actions.is_empty());
    router.cancel(id);
    let (_, actions) = router.ask(job(1), 119_000).unwrap();
    assert_eq!(sent(&actions).len(), 1);
    let (_, actions) = router.ask(ask, 120_000).unwrap();
    assert_eq!(sent(&actions).len(), 1);
}

#[test]
fn only_peers_that_have_the_block_and_the_kind_are_asked_and_the_preferred_one_first() {
    let mut router = router(4);
    let few = Abilities {
        latest: 10,
        ..info()
    };
    router.join(ConnId(0), few, 0);
    let none = Abilities {
        kinds: Vec::new(),
        ..info()
    };
    router.join(ConnId(1), none, 0);
    for _ in 0..20 {
        let need = Need {
            block: Some(50),
            prefer: Some(ConnId(3)),
            ..Need::default()
        };
        let (_, actions) = router.ask(Ask { need, ..job(1) }, 0).unwrap();
        let Sent { conn, request, .. } = sent(&actions)[0].clone();
        assert_eq!(conn, ConnId(3));
        router.answer(conn, request, all(), 10);
    }
}

#[test]
fn one_piece_in_ten_goes_to_a_random_peer() {
    let mut router = router(10);
    let need = Need {
        prefer: Some(ConnId(4)),
        ..Need::default()
    };
    let (_, actions) = router.ask(Ask { need, ..job(16) }, 0).unwrap();
    router.answer(ConnId(4), sent(&actions)[0].request, all(), 100);
    let mut of_best = 0;
    for _ in 0..1000 {
        let (_, actions) = router.ask(job(16), 200).unwrap();
        of_best += usize::from(sent(&actions)[0].conn == ConnId(4));
        for Sent { conn, request, .. } in sent(&actions) {
            let elapsed_ms = if conn == ConnId(4) { 100 } else { 10_000 };
            router.answer(conn, request, all(), 200 + elapsed_ms);
        }
    }
    assert!((880..=940).contains(&of_best), "{of_best}");
}

#[test]
fn a_job_that_no_peer_can_serve_ends_after_10_seconds() {
    let mut router = router(0);
    let (_, actions) = router.ask(job(5), 0).unwrap();
    assert!(actions.is_empty() && router.tick(9_999).is_empty());
    let given_up = done(&router.tick(10_000)).unwrap();
    let expected = GivenUp {
        items: 0..5,
        tries: Vec::new(),
    };
    assert_eq!(given_up, [expected]);
}

#[test]
fn a_peer_that_leaves_hands_its_pieces_on() {
    let mut router = router(2);
    let (_, actions) = router.ask(job(1), 0).unwrap();
    let Sent { conn, .. } = sent(&actions)[0].clone();
    let actions = router.leave(conn, 10);
    assert_eq!(sent(&actions).len(), 1);
    assert_ne!(sent(&actions)[0].conn, conn);
}

#[test]
fn an_answer_counts_from_its_arrival_and_does_not_time_out_while_it_is_checked() {
    let mut router = router(1);
    let (id, actions) = router.ask(job(16), 0).unwrap();
    let Sent { conn, request, .. } = sent(&actions)[0].clone();
    let wanted = router.arrived(conn, request, 1_000).unwrap();
    assert_eq!((wanted.job, wanted.items), (id, 0..16));
    assert!(router.tick(30_999).is_empty());
    router.answer(conn, request, all(), 30_999);
    // 16 items in a second.
    let (_, actions) = router.ask(job(128), 31_000).unwrap();
    assert_eq!(sent(&actions)[0].items, 0..16);
}

#[test]
fn an_answer_that_is_not_checked_within_30_seconds_is_no_fault_of_its_peer() {
    let mut router = router(1);
    let (_, actions) = router.ask(job(1), 0).unwrap();
    let Sent { conn, request, .. } = sent(&actions)[0].clone();
    router.arrived(conn, request, 1_000);
    let actions = router.tick(31_000);
    assert_eq!(conducts(&actions), []);
    let end = TryEnd::Unchecked;
    assert_eq!(done(&actions).unwrap()[0].tries, [Try { conn, end }]);
    assert!(router.answer(conn, request, all(), 31_000).is_empty());
}

#[test]
fn an_answer_without_anything_that_is_missing_is_not_wanted() {
    let mut router = router(2);
    let (_, actions) = router.ask(job(1), 0).unwrap();
    let first = sent(&actions)[0].clone();
    let second = sent(&router.tick(2_500))[0].clone();
    router.answer(second.conn, second.request, all(), 2_700);
    assert_eq!(router.arrived(first.conn, first.request, 2_800), None);
    let (cancelled, actions) = router.ask(job(1), 3_000).unwrap();
    let Sent { conn, request, .. } = sent(&actions)[0].clone();
    router.cancel(cancelled);
    assert_eq!(router.arrived(conn, request, 3_100), None);
    assert!(router.peers.values().all(|peer| peer.open.is_empty()));
}

#[test]
fn a_job_with_16_unchecked_answers_is_asked_no_further() {
    let mut router = router(12);
    let (_, actions) = router.ask(job(16_384), 0).unwrap();
    let first = sent(&actions);
    assert_eq!(first.len(), 36);
    for one in &first[..16] {
        assert!(router.arrived(one.conn, one.request, 100).is_some());
    }
    assert!(router.join(ConnId(50), info(), 200).is_empty());
    let one = &first[0];
    assert!(!sent(&router.answer(one.conn, one.request, all(), 300)).is_empty());
}

#[test]
fn what_can_not_be_sent_goes_to_another_peer_without_blame() {
    let mut router = router(2);
    let (_, actions) = router.ask(job(1), 0).unwrap();
    let Sent { conn, request, .. } = sent(&actions)[0].clone();
    let actions = router.unsent(conn, request, 0);
    assert_eq!((sent(&actions).len(), conducts(&actions)), (1, vec![]));
    assert_ne!(sent(&actions)[0].conn, conn);
}

#[test]
fn when_it_stops_all_jobs_end_with_what_is_missing() {
    let mut router = router(1);
    let (first, actions) = router.ask(job(40), 0).unwrap();
    let Sent { conn, request, .. } = sent(&actions)[0].clone();
    router.answer(conn, request, all(), 10);
    let (second, _) = router.ask(job(1), 10).unwrap();
    let ended: Vec<(JobId, u32)> = router
        .stop()
        .into_iter()
        .filter_map(|action| match action {
            AskAction::Done { job, given_up } => {
                let left = given_up.iter().map(|up| up.items.end - up.items.start);
                Some((job, left.sum()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(ended, [(first, 24), (second, 1)]);
    assert_eq!(router.jobs(), 0);
}

#[test]
fn jobs_and_their_items_are_bounded() {
    let mut router = router(0);
    assert_eq!(router.ask(job(0), 0).unwrap_err(), JobError::Items(0));
    let error = router.ask(job(16_385), 0).unwrap_err();
    assert_eq!(error, JobError::Items(16_385));
    for _ in 0..256 {
        router.ask(job(1), 0).unwrap();
    }
    assert_eq!(router.ask(job(1), 0).unwrap_err(), JobError::TooManyJobs);
}
