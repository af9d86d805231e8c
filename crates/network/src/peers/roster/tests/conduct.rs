//! Peers that are cut for what they did.

use super::*;

#[test]
fn a_peer_of_bad_conduct_goes_at_once_and_stays_away_for_15_minutes() {
    let mut bench = Bench::new(50);
    let conns: Vec<ConnId> = (0..12).map(|n| bench.join(n * 256).unwrap()).collect();
    let actions = bench.conduct(conns[3], Conduct::BadMessage);
    assert_eq!(
        disconnects(&actions),
        [(conns[3], DisconnectReason::UselessPeer)]
    );
    bench.now_ms += 5_000;
    assert_eq!(bench.join(3 * 256), Err(Refusal::TooSoon));
    bench.after(40);
    assert_eq!(bench.join(3 * 256), Err(Refusal::Banned));
    assert_eq!(bench.roster.bans(bench.now_ms).count(), 1);
    bench.after(16 * 60);
    assert!(bench.join(3 * 256).is_ok());
}

#[test]
fn a_static_node_that_was_cut_for_its_conduct_is_dialled_again_and_starts_afresh() {
    let mut bench = Bench::new(4);
    bench.step(Event::AddStatic(candidate(1)));
    let actions = bench.after(1);
    let conn = bench.connect_dialled(&actions, Offers::default())[0];
    let mut actions = Vec::new();
    for _ in 0..5 {
        actions.extend(bench.conduct(conn, Conduct::Unproved));
    }
    let cut = [(conn, DisconnectReason::ProtocolBreach)];
    assert_eq!(disconnects(&actions), cut);
    let actions = bench.after(40);
    let conns = bench.connect_dialled(&actions, Offers::default());
    assert_eq!(conns.len(), 1);
    bench.conduct(conns[0], Conduct::Unproved);
    assert!(disconnects(&bench.after(20)).is_empty());
    assert_eq!(bench.roster.peer_count(), 1);
}

#[test]
fn with_8_peers_a_bad_one_stays_and_a_liar_goes() {
    let mut bench = Bench::new(50);
    let conns: Vec<ConnId> = (0..8).map(|n| bench.join(n * 256).unwrap()).collect();
    assert!(disconnects(&bench.conduct(conns[0], Conduct::BadMessage)).is_empty());
    let actions = bench.conduct(conns[1], Conduct::Lie);
    assert_eq!(
        disconnects(&actions),
        [(conns[1], DisconnectReason::ProtocolBreach)]
    );
    let banned = notices(&bench.after(11));
    let expected = Notice::Banned {
        id: id(256),
        minutes: 720,
    };
    assert!(banned.contains(&expected));
}

#[test]
fn a_burst_of_cuts_stops_at_a_fifth_of_the_peers_and_is_logged_once() {
    let mut bench = Bench::new(50);
    let conns: Vec<ConnId> = (0..25).map(|n| bench.join(n * 256).unwrap()).collect();
    let mut actions = Vec::new();
    for conn in &conns[..10] {
        actions.extend(bench.conduct(*conn, Conduct::Lie));
    }
    assert_eq!(disconnects(&actions).len(), 5);
    let stopped = Notice::CutsStopped { cut: 5, peers: 20 };
    let is_stop = |notice: &&Notice| matches!(notice, Notice::CutsStopped { .. });
    let all = notices(&actions);
    assert_eq!(all.iter().filter(is_stop).collect::<Vec<_>>(), [&stopped]);
    assert_eq!(disconnects(&bench.after(11)).len(), 4);
}

#[test]
fn if_most_peers_fail_none_goes_and_the_operator_hears_why() {
    let mut bench = Bench::new(50);
    let conns: Vec<ConnId> = (0..20).map(|n| bench.join(n * 256).unwrap()).collect();
    let mut actions = Vec::new();
    for _ in 0..20 {
        for conn in &conns {
            actions.extend(bench.conduct(*conn, Conduct::Timeout));
        }
    }
    let expected = Notice::OwnFault {
        failed: 17,
        peers: 20,
    };
    assert_eq!(notices(&actions), [expected]);
    assert!(disconnects(&bench.after(11)).is_empty());
    assert_eq!(bench.roster.peer_count(), 20);
}
