//! Two nodes that dial each other at the same moment.

use super::*;
use proptest::prelude::*;

/// The node with the lesser id, and the one with the greater.
const NODES: [u64; 2] = [5, 9];

/// Two rosters, and two connections between them: each dialled one.
struct Pair {
    rosters: [Roster; 2],
    /// By the side that dialled, then by the side that sees the connection.
    conns: [[ConnId; 2]; 2],
    /// The same: whether a side still has the connection.
    is_open: [[bool; 2]; 2],
}

impl Pair {
    fn new() -> Self {
        let mut benches = [Bench::new(50), Bench::new(50)];
        let mut conns = [[ConnId(0); 2]; 2];
        for side in 0..2 {
            let other = 1 - side;
            benches[side].roster.config.own = id(NODES[side]);
            benches[side].find(NODES[other]..NODES[other] + 1);
            conns[side][side] = dials(&benches[side].after(1))[0].0;
            conns[side][other] = benches[other].incoming_from(address(NODES[side])).0;
        }
        Self {
            rosters: benches.map(|bench| bench.roster),
            conns,
            is_open: [[true; 2]; 2],
        }
    }

    fn step(&mut self, side: usize, event: Event, now_ms: u64) {
        for action in self.rosters[side].step(event, now_ms) {
            let (Action::Refuse { conn, .. } | Action::Disconnect { conn, .. }) = action else {
                continue;
            };
            for dialler in 0..2 {
                if self.conns[dialler][side] == conn {
                    self.is_open[dialler][side] = false;
                }
            }
        }
    }

    /// A side learns what comes next on a connection: Hello, Status, or that the other side has left.
    fn advance(&mut self, dialler: usize, side: usize, is_late: bool, now_ms: u64) {
        let (other, conn) = (1 - side, self.conns[dialler][side]);
        if !self.is_open[dialler][side] {
            return;
        }
        let session = self.rosters[side].sessions.get(&conn).copied();
        let event = match session.map(|session| session.stage) {
            _ if !self.is_open[dialler][other] && !is_late => {
                self.is_open[dialler][side] = false;
                let end = End::Theirs(DisconnectReason::AlreadyConnected);
                Event::Closed { conn, end }
            }
            Some(Stage::Pending) => Event::Greeted {
                conn,
                id: id(NODES[other]),
                offers: Offers::default(),
                port: 0,
            },
            _ => Event::Up {
                conn,
                offers: Offers::default(),
            },
        };
        self.step(side, event, now_ms);
    }
}

proptest! {
    /// Whatever order Hellos, Status and goodbyes come in on each side.
    #[test]
    fn one_session_is_left_and_both_sides_keep_the_same(
        steps in prop::collection::vec((0..2_usize, 0..2_usize, any::<bool>(), 0..150_u64), 1..12)
    ) {
        let mut pair = Pair::new();
        let mut now_ms = 1_000;
        for (dialler, side, is_late, passed_ms) in steps {
            now_ms += passed_ms;
            pair.advance(dialler, side, is_late, now_ms);
        }
        for _ in 0..3 {
            for (dialler, side) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                pair.advance(dialler, side, false, now_ms);
            }
        }
        // What the node with the greater id dialled.
        prop_assert_eq!(pair.is_open, [[false; 2], [true; 2]]);
        for roster in &pair.rosters {
            prop_assert_eq!(roster.peer_count(), 1);
            prop_assert_eq!(roster.plan.in_flight.len(), 0);
        }
    }
}

#[test]
fn a_session_that_has_lasted_stays() {
    for own in NODES {
        let mut bench = Bench::new(50);
        bench.roster.config.own = id(own);
        bench.find(7..8);
        let (dialled, _) = dials(&bench.after(1))[0];
        bench.join(7).unwrap();
        bench.now_ms += 2_000;
        let actions = bench.greet(dialled, 7, Offers::default());
        assert_eq!(refused(&actions), Err(Refusal::AlreadyConnected));
        assert!(disconnects(&actions).is_empty());
    }
}
