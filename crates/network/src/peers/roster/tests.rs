//! The roster, event by event.

mod conduct;
mod filter;
mod laws;
mod ties;

use super::*;
use niwaki_primitives::FixedBytes;
use rand::SeedableRng;

fn id(number: u64) -> NodeId {
    NodeId(FixedBytes::left_padding_from(&(number + 1).to_be_bytes()))
}

fn address(number: u64) -> SocketAddr {
    let [.., a, b, c] = number.to_be_bytes();
    SocketAddr::new([20 + a, b, c, 1].into(), 30303)
}

fn candidate(number: u64) -> Candidate {
    Candidate {
        id: id(number),
        address: address(number),
        udp_port: 30303,
    }
}

const OWN: u64 = 1_000_000;
const SNAP: Offers = Offers {
    snap: true,
    cells: false,
    history: false,
};

/// A roster that is driven by hand.
struct Bench {
    roster: Roster,
    now_ms: u64,
}

impl Bench {
    fn new(max_peers: usize) -> Self {
        Self::with(max_peers, SavedPeers::default())
    }

    fn with(max_peers: usize, saved: SavedPeers) -> Self {
        Self::within(NetRestrict::default(), max_peers, saved)
    }

    fn within(net_restrict: NetRestrict, max_peers: usize, saved: SavedPeers) -> Self {
        let config = RosterConfig {
            own: id(OWN),
            own_addresses: vec![address(OWN)],
            max_peers,
            inbound_percent: 50,
            net_restrict,
            filter: NodeFilter::default(),
            epoch_s: 1_700_000_000,
        };
        let roster = Roster::new(config, saved, SmallRng::seed_from_u64(7));
        Self { roster, now_ms: 0 }
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        self.roster.step(event, self.now_ms)
    }

    /// Ticks once after so many seconds.
    fn after(&mut self, seconds: u64) -> Vec<Action> {
        self.now_ms += seconds * 1000;
        self.step(Event::Tick)
    }

    fn incoming_from(&mut self, address: SocketAddr) -> (ConnId, Vec<Action>) {
        let conn = self.roster.next_conn();
        (conn, self.step(Event::Incoming { conn, address }))
    }

    fn greet(&mut self, conn: ConnId, number: u64, offers: Offers) -> Vec<Action> {
        self.greet_as(conn, id(number), offers)
    }

    fn greet_as(&mut self, conn: ConnId, id: NodeId, offers: Offers) -> Vec<Action> {
        self.step(Event::Greeted {
            conn,
            id,
            offers,
            port: 0,
        })
    }

    /// A node connects and becomes a peer, or the refusal.
    fn join(&mut self, number: u64) -> Result<ConnId, Refusal> {
        let (conn, actions) = self.incoming_from(address(number));
        refused(&actions)?;
        let actions = self.greet(conn, number, Offers::default());
        refused(&actions)?;
        let offers = Offers::default();
        self.step(Event::Up { conn, offers });
        Ok(conn)
    }

    /// Dials are answered: each becomes a peer.
    fn connect_dialled(&mut self, actions: &[Action], offers: Offers) -> Vec<ConnId> {
        let mut conns = Vec::new();
        for (conn, candidate) in dials(actions) {
            let actions = self.greet_as(conn, candidate.id, offers);
            if actions.contains(&Action::Accept(conn)) {
                self.step(Event::Up { conn, offers });
                conns.push(conn);
            }
        }
        conns
    }

    fn find(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let (source, candidate) = (Source::V4, candidate(number));
            self.step(Event::Found { source, candidate });
        }
    }

    fn conduct(&mut self, conn: ConnId, conduct: Conduct) -> Vec<Action> {
        self.step(Event::Conduct { conn, conduct })
    }
}

fn refused(actions: &[Action]) -> Result<(), Refusal> {
    let mut refusals = actions.iter().filter_map(|action| match action {
        Action::Refuse { refusal, .. } => Some(*refusal),
        _ => None,
    });
    refusals.next().map_or(Ok(()), Err)
}

fn dials(actions: &[Action]) -> Vec<(ConnId, Candidate)> {
    let dials = actions.iter().filter_map(|action| match action {
        Action::Dial {
            conn, candidate, ..
        } => Some((*conn, *candidate)),
        _ => None,
    });
    dials.collect()
}

fn disconnects(actions: &[Action]) -> Vec<(ConnId, DisconnectReason)> {
    let all = actions.iter().filter_map(|action| match action {
        Action::Disconnect { conn, reason, .. } => Some((*conn, *reason)),
        _ => None,
    });
    all.collect()
}

fn notices(actions: &[Action]) -> Vec<Notice> {
    let all = actions.iter().filter_map(|action| match action {
        Action::Log(notice) => Some(*notice),
        _ => None,
    });
    all.collect()
}

#[test]
fn half_of_50_slots_is_for_nodes_that_connect_and_the_26th_hears_too_many_peers() {
    let mut bench = Bench::new(50);
    for number in 0..25 {
        assert!(bench.join(number * 256).is_ok());
    }
    let refusal = bench.join(25 * 256).unwrap_err();
    assert_eq!(
        (refusal, refusal.reason()),
        (Refusal::Full, DisconnectReason::TooManyPeers)
    );
    assert_eq!(bench.roster.peer_count(), 25);
}

#[test]
fn of_two_sessions_with_a_node_the_first_that_was_greeted_stays() {
    let mut bench = Bench::new(50);
    bench.join(1).unwrap();
    bench.now_ms = 30_000;
    assert_eq!(bench.join(1), Err(Refusal::AlreadyConnected));
    assert_eq!(
        Refusal::AlreadyConnected.reason(),
        DisconnectReason::AlreadyConnected
    );
    assert_eq!(bench.roster.peer_count(), 1);
}

#[test]
fn a_node_that_connects_while_it_is_dialled_leaves_the_dial_in_flight_until_that_ends() {
    let mut bench = Bench::new(50);
    bench.find(1..2);
    let (dialled, candidate) = dials(&bench.after(1))[0];
    bench.join(1).unwrap();
    assert_eq!(bench.roster.plan.in_flight.len(), 1);
    bench.now_ms += 2_000;
    let actions = bench.greet_as(dialled, candidate.id, Offers::default());
    assert_eq!(refused(&actions), Err(Refusal::AlreadyConnected));
    assert_eq!(bench.roster.plan.in_flight.len(), 0);
}

#[test]
fn a_session_that_comes_up_after_it_was_cut_is_refused() {
    let mut bench = Bench::new(50);
    let (conn, _) = bench.incoming_from(address(1));
    bench.greet(conn, 1, Offers::default());
    let (target, ms) = (BanTarget::Node(id(1)), 1000);
    bench.step(Event::Ban { target, ms });
    let offers = Offers::default();
    let actions = bench.step(Event::Up { conn, offers });
    assert_eq!(refused(&actions), Err(Refusal::Unknown));
    assert_eq!(bench.roster.peer_count(), 0);
}

#[test]
fn this_node_a_key_of_zeros_and_another_node_than_dialled_are_refused() {
    let mut bench = Bench::new(50);
    assert_eq!(bench.join(OWN), Err(Refusal::Own));
    assert_eq!(bench.join(0), Ok(ConnId(2)));
    let (conn, _) = bench.incoming_from(address(2));
    let (id, offers) = (NodeId(FixedBytes::ZERO), Offers::default());
    bench.step(Event::Closed {
        conn: ConnId(2),
        end: End::Failed,
    });
    let actions = bench.greet_as(conn, id, offers);
    assert_eq!(refused(&actions), Err(Refusal::NullIdentity));
    bench.find(3..4);
    let (conn, _) = dials(&bench.after(1))[0];
    let actions = bench.greet(conn, 4, Offers::default());
    assert_eq!(refused(&actions), Err(Refusal::OtherNode));
}

#[test]
fn a_host_comes_again_after_30_seconds_and_a_local_one_at_once() {
    let mut bench = Bench::new(50);
    let (_, actions) = bench.incoming_from(address(1));
    assert_eq!(refused(&actions), Ok(()));
    let (_, actions) = bench.incoming_from(address(1));
    assert_eq!(refused(&actions), Err(Refusal::TooSoon));
    for _ in 0..10 {
        let (_, actions) = bench.incoming_from("127.0.0.1:5000".parse().unwrap());
        assert_eq!(refused(&actions), Ok(()));
    }
}

#[test]
fn of_one_network_two_peers_come_in_and_a_local_network_has_no_limit() {
    let mut bench = Bench::new(50);
    let in_one = |number: u8| SocketAddr::new([8, 8, 8, number].into(), 30303);
    for number in 1..=3 {
        let (conn, actions) = bench.incoming_from(in_one(number));
        assert_eq!(refused(&actions).is_ok(), number <= 2);
        bench.greet(conn, u64::from(number), Offers::default());
    }
    let local = |number: u8| SocketAddr::new([10, 0, 0, number].into(), 30303);
    for number in 1..=20 {
        let (conn, actions) = bench.incoming_from(local(number));
        assert_eq!(refused(&actions), Ok(()));
        let actions = bench.greet(conn, 100 + u64::from(number), Offers::default());
        assert_eq!(refused(&actions), Ok(()));
    }
}

#[test]
fn at_most_32_nodes_shake_hands_at_once_and_a_lost_one_is_dropped_after_30_seconds() {
    let mut bench = Bench::new(50);
    for number in 0..32 {
        let (_, actions) = bench.incoming_from(address(number * 256));
        assert_eq!(refused(&actions), Ok(()));
    }
    let (_, actions) = bench.incoming_from(address(40 * 256));
    assert_eq!(refused(&actions), Err(Refusal::Handshakes));
    let actions = bench.after(31);
    assert_eq!(actions.len(), 32);
    let (_, actions) = bench.incoming_from(address(40 * 256));
    assert_eq!(refused(&actions), Ok(()));
}

#[test]
fn trusted_nodes_need_no_slot_and_are_never_scored() {
    let mut bench = Bench::new(2);
    bench.step(Event::AddTrusted(candidate(9)));
    bench.join(1).unwrap();
    assert_eq!(bench.join(512), Err(Refusal::Full));
    let conn = bench.join(9).unwrap();
    for _ in 0..9 {
        bench.conduct(conn, Conduct::Lie);
    }
    assert!(disconnects(&bench.after(20)).is_empty());
    assert_eq!(bench.roster.peer_count(), 2);
    bench.step(Event::RemoveTrusted(id(9)));
    assert_eq!(bench.roster.peer_count(), 1);
}

#[test]
fn a_static_node_takes_the_slot_of_the_worst_peer() {
    let mut bench = Bench::new(4);
    let joined: Vec<ConnId> = (1..3).map(|n| bench.join(n * 256).unwrap()).collect();
    bench.find(3 * 256..3 * 256 + 1);
    bench.find(4 * 256..4 * 256 + 1);
    let actions = bench.after(1);
    assert_eq!(bench.connect_dialled(&actions, Offers::default()).len(), 2);
    bench.conduct(joined[1], Conduct::Timeout);
    bench.step(Event::AddStatic(candidate(5 * 256)));
    let (conn, _) = dials(&bench.after(1))[0];
    let actions = bench.greet(conn, 5 * 256, Offers::default());
    let expected = [(joined[1], DisconnectReason::TooManyPeers)];
    assert_eq!(disconnects(&actions), expected);
    assert!(actions.contains(&Action::Accept(conn)));
}

#[test]
fn removing_a_static_node_ends_its_session_and_its_dials() {
    let mut bench = Bench::new(4);
    bench.step(Event::AddStatic(candidate(1)));
    let actions = bench.after(1);
    let conns = bench.connect_dialled(&actions, Offers::default());
    let actions = bench.step(Event::RemoveStatic(id(1)));
    let expected = [(conns[0], DisconnectReason::Requested)];
    assert_eq!(disconnects(&actions), expected);
    assert!((0..100).all(|_| dials(&bench.after(60)).is_empty()));
}

#[test]
fn dialled_peers_are_at_most_two_of_a_network_and_as_many_as_there_are_slots() {
    let mut bench = Bench::new(50);
    for number in 0..200 {
        let address = SocketAddr::new([8, 8, 8, number].into(), 30303);
        let candidate = Candidate {
            address,
            ..candidate(u64::from(number))
        };
        let source = Source::V4;
        bench.step(Event::Found { source, candidate });
    }
    let actions = bench.after(1);
    assert_eq!(bench.connect_dialled(&actions, Offers::default()).len(), 2);
    (1..100).for_each(|number| bench.find(number * 256..number * 256 + 1));
    for _ in 0..10 {
        let actions = bench.after(1);
        bench.connect_dialled(&actions, Offers::default());
    }
    assert_eq!(bench.roster.peer_count(), 25);
    assert!(!bench.roster.wants_candidates(Source::Dns));
}

#[test]
fn a_static_peer_that_leaves_at_once_is_dialled_ever_later_and_one_that_stayed_at_once() {
    let mut bench = Bench::new(50);
    bench.step(Event::AddStatic(candidate(1)));
    let mut waited = Vec::new();
    for stay_s in [1, 1, 1, 90] {
        let mut waited_s = 0;
        let conn = loop {
            let actions = bench.after(1);
            match bench.connect_dialled(&actions, Offers::default())[..] {
                [conn] => break conn,
                _ => waited_s += 1,
            }
        };
        waited.push(waited_s);
        bench.now_ms += stay_s * 1000;
        let end = End::Theirs(DisconnectReason::UselessPeer);
        let actions = bench.step(Event::Closed { conn, end });
        assert_eq!(dials(&actions).len(), usize::from(stay_s == 90));
    }
    assert_eq!(waited[0], 0);
    assert!((30..=42).contains(&waited[1]), "{waited:?}");
    assert!((46..=60).contains(&waited[2]) && (94..=120).contains(&waited[3]));
}

#[test]
fn two_slots_are_kept_for_what_is_lacking() {
    let mut bench = Bench::new(20);
    bench.step(Event::Lacking(SNAP));
    (1..40).for_each(|number| bench.find(number * 256..number * 256 + 1));
    for _ in 0..5 {
        let actions = bench.after(1);
        bench.connect_dialled(&actions, Offers::default());
    }
    assert_eq!(bench.roster.peer_count(), 8);
    (40..60).for_each(|number| bench.find(number * 256..number * 256 + 1));
    let actions = bench.after(1);
    bench.connect_dialled(&actions, SNAP);
    assert_eq!(bench.roster.peer_count(), 10);
}

#[test]
fn when_full_one_peer_of_each_direction_in_turn_is_exchanged_and_the_useful_ones_stay() {
    let mut bench = Bench::new(20);
    let inbound: Vec<ConnId> = (0..10).map(|n| bench.join(n * 256).unwrap()).collect();
    (20..30).for_each(|number| bench.find(number * 256..number * 256 + 1));
    let actions = bench.after(1);
    let dialled = bench.connect_dialled(&actions, Offers::default());
    assert_eq!(dialled.len(), 10);
    bench.conduct(inbound[0], Conduct::FirstAnnouncer);
    let (conn, bytes) = (dialled[0], 1000);
    bench.step(Event::Delivered { conn, bytes });
    let mut gone = Vec::new();
    for _ in 0..40 {
        gone.extend(disconnects(&bench.after(60)));
    }
    assert_eq!(gone.len(), 2, "{gone:?}");
    assert!(gone.iter().all(|g| g.1 == DisconnectReason::TooManyPeers));
    let gone: Vec<ConnId> = gone.iter().map(|gone| gone.0).collect();
    assert_ne!(inbound.contains(&gone[0]), inbound.contains(&gone[1]));
    assert!(!gone.contains(&inbound[0]) && !gone.contains(&dialled[0]));
}

#[test]
fn below_8_peers_the_operator_hears_once_a_minute_where_candidates_are_lost() {
    let mut bench = Bench::new(50);
    bench.find(256..257);
    let (conn, _) = dials(&bench.after(1))[0];
    let end = End::Theirs(DisconnectReason::TooManyPeers);
    bench.step(Event::Closed { conn, end });
    let heard: Vec<Notice> = (0..120).flat_map(|_| notices(&bench.after(1))).collect();
    assert_eq!(heard.len(), 2);
    let Notice::FewPeers { peers, dials } = heard[0] else {
        panic!("{heard:?}");
    };
    assert_eq!((peers, dials.dialled, dials.full), (0, 1, 1));
    assert!(heard[0].to_string().starts_with("0 peers; of 1 dials"));
}

#[test]
fn dialled_peers_are_saved_with_their_good_minutes_and_dialled_after_a_restart() {
    let mut bench = Bench::new(50);
    bench.find(256..257);
    bench.join(512).unwrap();
    let actions = bench.after(1);
    bench.connect_dialled(&actions, Offers::default());
    let actions = bench.after(300);
    let saved = actions.iter().find_map(|action| match action {
        Action::Save(text) => Some(text.clone()),
        _ => None,
    });
    let text = saved.unwrap();
    assert_eq!(text.lines().count(), 2);
    assert!(text.ends_with(" 30303 30303 1700000301 0 5\n"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("peers");
    SavedPeers::write(&path, &text).unwrap();
    let mut bench = Bench::with(50, SavedPeers::load(&path).unwrap());
    assert_eq!(dials(&bench.after(1))[0].1, candidate(256));
}

#[test]
fn the_operators_ban_ends_the_session_and_is_lifted() {
    let mut bench = Bench::new(50);
    let conn = bench.join(1).unwrap();
    let target = BanTarget::Host(address(1).ip());
    let ms = 3_600_000;
    let actions = bench.step(Event::Ban { target, ms });
    assert_eq!(disconnects(&actions), [(conn, DisconnectReason::Requested)]);
    bench.now_ms += 60_000;
    assert_eq!(bench.join(1), Err(Refusal::Banned));
    bench.step(Event::Lift(target));
    assert!(bench.join(1).is_ok());
    assert_eq!(bench.roster.departures().count(), 1);
}

#[test]
fn a_name_that_was_resolved_is_the_address_of_its_peer_and_of_the_next_dial() {
    let mut bench = Bench::new(4);
    let nowhere = Candidate {
        address: ([0, 0, 0, 0], 30303).into(),
        ..candidate(1)
    };
    bench.step(Event::AddStatic(nowhere));
    let actions = bench.after(1);
    let (conn, _) = dials(&actions)[0];
    let address = address(1);
    bench.step(Event::Resolved { conn, address });
    bench.connect_dialled(&actions, Offers::default());
    let peers: Vec<_> = bench.roster.peers(bench.now_ms).collect();
    assert_eq!(peers[0].address, address);
    let end = End::Failed;
    bench.now_ms += 90_000;
    let actions = bench.step(Event::Closed { conn, end });
    assert_eq!(dials(&actions)[0].1, candidate(1));
    let saved = bench.roster.saved_text(bench.now_ms);
    assert!(
        saved.contains(&format!("{} 30303", address.ip())),
        "{saved}"
    );
}

#[test]
fn a_node_at_an_address_of_ours_is_not_dialled_once_that_is_known() {
    let mut bench = Bench::new(50);
    bench.step(Event::OwnAddress(address(7)));
    bench.find(7..9);
    assert_eq!(dials(&bench.after(1)).len(), 1);
    (0..100).for_each(|number| {
        bench.step(Event::OwnAddress(address(number)));
    });
    assert_eq!(bench.roster.config.own_addresses.len(), MAX_OWN_ADDRESSES);
}

#[test]
fn candidates_are_wanted_while_half_of_the_queue_of_their_source_is_empty() {
    let mut bench = Bench::new(50);
    bench.find(0..128);
    assert!(bench.roster.wants_candidates(Source::V4));
    bench.find(128..129);
    assert!(!bench.roster.wants_candidates(Source::V4));
    assert!(bench.roster.wants_candidates(Source::V5));
}

#[test]
fn a_node_outside_of_the_networks_is_neither_let_in_nor_dialled_even_if_it_is_trusted() {
    let network = format!("{}/32", address(1).ip()).parse();
    let net_restrict: NetRestrict = network.into_iter().collect();
    let mut bench = Bench::within(net_restrict, 50, SavedPeers::default());
    bench.find(1..9);
    bench.step(Event::AddTrusted(candidate(2)));
    bench.step(Event::AddStatic(candidate(3)));
    let dialled: Vec<_> = dials(&bench.after(1))
        .into_iter()
        .map(|dial| dial.1)
        .collect();
    assert_eq!(dialled, [candidate(1)]);
    for number in [2, 3, 4] {
        assert_eq!(bench.join(number), Err(Refusal::Outside));
    }
    assert!(bench.join(1).is_ok(), "it is within");
}
