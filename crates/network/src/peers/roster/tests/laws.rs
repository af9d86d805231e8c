//! What holds of the roster whatever comes, checked against a hostile network.

use super::super::*;
use niwaki_primitives::FixedBytes;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;

const MAX_PEERS: usize = 12;
const NODES: u64 = 40;

fn id(number: u64) -> NodeId {
    NodeId(FixedBytes::left_padding_from(&(number + 1).to_be_bytes()))
}

/// Some nodes are local, some share a network, some have one of their own.
fn address(number: u64) -> SocketAddr {
    let byte = number.to_be_bytes()[7];
    let ip = match number % 4 {
        0 => [127, 0, 0, 1],
        1 => [8, 8, 8, byte],
        _ => [20, byte, 0, 1],
    };
    SocketAddr::new(ip.into(), 30303)
}

fn candidate(number: u64) -> Candidate {
    Candidate {
        id: id(number),
        address: address(number),
        udp_port: 0,
    }
}

fn offers(bits: u64) -> Offers {
    Offers {
        snap: bits & 1 == 1,
        cells: bits & 2 == 2,
        history: bits & 4 == 4,
    }
}

fn any_event(rng: &mut SmallRng, known: &[ConnId]) -> Event {
    let number = rng.random_range(0..NODES);
    let conn = match known.len() {
        0 => ConnId(rng.random()),
        len => known[rng.random_range(0..len)],
    };
    match rng.random_range(0..20) {
        0..=5 => Event::Greeted {
            conn,
            id: id(number),
            offers: offers(number),
            port: 0,
        },
        6..=8 => Event::Up {
            conn,
            offers: offers(number),
        },
        9 => Event::Closed {
            conn,
            end: [
                End::Failed,
                End::OtherChain,
                End::Theirs(DisconnectReason::TooManyPeers),
            ][rng.random_range(0..3)],
        },
        10..=12 => Event::Found {
            source: Source::ALL[rng.random_range(2..7)],
            candidate: candidate(number),
        },
        13 | 14 => Event::Conduct {
            conn,
            conduct: [
                Conduct::Content,
                Conduct::Timeout,
                Conduct::BadMessage,
                Conduct::Lie,
            ][rng.random_range(0..4)],
        },
        15 => Event::Lacking(offers(number)),
        16 => match number % 4 {
            0 => Event::AddStatic(candidate(number)),
            1 => Event::AddTrusted(candidate(number)),
            2 => Event::RemoveStatic(id(number)),
            _ => Event::RemoveTrusted(id(number)),
        },
        17 => match number % 2 {
            0 => Event::Ban {
                target: BanTarget::Node(id(number)),
                ms: 60_000,
            },
            _ => Event::Lift(BanTarget::Node(id(number))),
        },
        _ => Event::Tick,
    }
}

impl Roster {
    /// Panics if something does not hold.
    fn check(&self) {
        let slots = self.slots();
        assert!(slots.inbound <= self.max_inbound(), "{slots:?}");
        assert!(slots.inbound + slots.ours <= MAX_PEERS, "{slots:?}");
        let pending = self.sessions.values().filter(|s| !s.holds_a_slot());
        assert!(pending.count() <= 50);
        let greeted: Vec<NodeId> = self.sessions.values().filter_map(|s| s.id).collect();
        let distinct: HashSet<&NodeId> = greeted.iter().collect();
        assert_eq!(distinct.len(), greeted.len(), "one session per node");
        assert_eq!(greeted.len(), self.by_id.len());
        assert!(!greeted.contains(&self.config.own));
        for (id, conn) in &self.by_id {
            assert_eq!(self.sessions[conn].id, Some(*id));
        }
        let dialled = self.sessions.values().filter(|s| {
            let is_pending = s.stage != Stage::Up;
            is_pending && s.dialled.is_some()
        });
        assert_eq!(dialled.count(), self.plan.in_flight.len());
        assert!(self.departures.len() <= MAX_DEPARTURES);
        assert!(self.throttle.order.len() <= 4096);
        assert!(self.scores.records.len() <= 4096 + self.sessions.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_events_break_the_roster(seed in any::<u64>()) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = RosterConfig {
            own: id(NODES - 1),
            own_addresses: Vec::new(),
            max_peers: MAX_PEERS,
            inbound_percent: 50,
            net_restrict: NetRestrict::default(),
            filter: NodeFilter::default(),
            epoch_s: 0,
        };
        let roster_rng = SmallRng::seed_from_u64(seed);
        let mut roster = Roster::new(config, SavedPeers::default(), roster_rng);
        let (mut now_ms, mut known) = (0, Vec::new());
        let mut dialled: HashMap<NodeId, u64> = HashMap::new();
        for _ in 0..400 {
            now_ms += rng.random_range(0..3_000);
            let event = if rng.random_range(0..4) == 0 {
                let conn = roster.next_conn();
                known.push(conn);
                Event::Incoming { conn, address: address(rng.random_range(0..NODES)) }
            } else {
                any_event(&mut rng, &known)
            };
            for action in roster.step(event, now_ms) {
                if let Action::Dial { conn, candidate, .. } = action {
                    known.push(conn);
                    let last = dialled.insert(candidate.id, now_ms);
                    prop_assert!(last.is_none_or(|last| now_ms - last >= 35_000));
                }
            }
            roster.check();
        }
    }

    #[test]
    fn hostile_nodes_that_connect_leave_half_of_the_slots_to_the_nodes_that_are_dialled(
        seed in any::<u64>(), max_peers in 2..60_usize
    ) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = RosterConfig {
            own: id(0),
            own_addresses: Vec::new(),
            max_peers,
            inbound_percent: 50,
            net_restrict: NetRestrict::default(),
            filter: NodeFilter::default(),
            epoch_s: 0,
        };
        let roster_rng = SmallRng::seed_from_u64(seed);
        let mut roster = Roster::new(config, SavedPeers::default(), roster_rng);
        let mut number = 1000;
        for second in 0..120 {
            let now_ms = second * 1000;
            for _ in 0..rng.random_range(0..40) {
                number += 1;
                let [.., a, b, c] = u64::to_be_bytes(number);
                let conn = roster.next_conn();
                let address = SocketAddr::new([30 + a, b, c, 1].into(), 1);
                let (id, offers) = (id(number), Offers::default());
                roster.step(Event::Incoming { conn, address }, now_ms);
                roster.step(Event::Greeted { conn, id, offers, port: 0 }, now_ms);
                roster.step(Event::Up { conn, offers }, now_ms);
            }
            // One honest node is found each second.
            let found = second + 1;
            let honest = Candidate {
                address: SocketAddr::new([90, found.to_be_bytes()[7], 0, 1].into(), 1),
                ..candidate(found)
            };
            roster.step(Event::Found { source: Source::V5, candidate: honest }, now_ms);
            for action in roster.step(Event::Tick, now_ms) {
                if let Action::Dial { conn, candidate, .. } = action {
                    let (id, offers) = (candidate.id, Offers::default());
                    roster.step(Event::Greeted { conn, id, offers, port: 0 }, now_ms);
                    roster.step(Event::Up { conn, offers }, now_ms);
                }
            }
        }
        let dialled = roster.peers(0).filter(|peer| !peer.is_inbound).count();
        prop_assert_eq!(dialled, max_peers.div_ceil(2));
        prop_assert!(roster.peer_count() <= max_peers);
    }
}
