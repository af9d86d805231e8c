//! The roster under any sequence of events: six bytes each.

use super::{Form, Target, linear};
use crate::key::NodeId;
use crate::peers::NodeFilter;
use crate::peers::{
    Action, BanTarget, Candidate, Conduct, ConnId, End, Event, Offers, Roster, RosterConfig,
    SavedPeers, Source,
};
use crate::rlpx::DisconnectReason;
use crate::subnet::NetRestrict;
use niwaki_primitives::FixedBytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Bytes of an event: what happens, which connection, which node, what, and after how long (two bytes).
const EVENT_BYTES: usize = 6;

const MAX_PEERS: usize = 8;
/// No node is dialled again within this time.
const REDIAL_MS: u64 = crate::peers::REDIAL_MS;
/// The node that the roster is of.
const OWN: u8 = 255;

const CONDUCTS: [Conduct; 6] = [
    Conduct::Content,
    Conduct::FirstAnnouncer,
    Conduct::Timeout,
    Conduct::Empty,
    Conduct::BadMessage,
    Conduct::Lie,
];

pub(super) fn target() -> Target {
    Target {
        name: "roster".into(),
        form: Form::Bytes,
        // It writes the file of saved peers.
        allowance: linear(16 << 10, 256 << 10),
        valid: Box::new(|rng: &mut SmallRng| {
            let events = rng.random_range(1..200);
            (0..events * EVENT_BYTES).map(|_| rng.random()).collect()
        }),
        seal: None,
        read: Box::new(|data| run(data).is_ok()),
        law: Box::new(run),
    }
}

fn id(number: u8) -> NodeId {
    NodeId(FixedBytes::left_padding_from(&[1, number]))
}

fn address(number: u8) -> SocketAddr {
    let ip = match number % 4 {
        0 => [127, 0, 0, 1],
        1 => [8, 8, 8, number],
        _ => [20, number, 0, 1],
    };
    SocketAddr::new(ip.into(), 30303)
}

fn candidate(number: u8) -> Candidate {
    Candidate {
        id: id(number),
        address: address(number),
        udp_port: 0,
    }
}

fn offers(bits: u8) -> Offers {
    Offers {
        snap: bits & 1 != 0,
        cells: bits & 2 != 0,
        history: bits & 4 != 0,
    }
}

/// A roster, and what is known of it from outside.
struct Bench {
    roster: Roster,
    now_ms: u64,
    /// Connections that it gave out or that came in.
    known: Vec<ConnId>,
    dialled_ms: BTreeMap<NodeId, u64>,
    trusted: BTreeSet<NodeId>,
}

fn run(data: &[u8]) -> Result<(), String> {
    let config = RosterConfig {
        own: id(OWN),
        own_addresses: vec![address(OWN)],
        max_peers: MAX_PEERS,
        inbound_percent: 50,
        net_restrict: NetRestrict::default(),
        filter: NodeFilter::default(),
        epoch_s: 1_700_000_000,
    };
    let roster = Roster::new(config, SavedPeers::default(), SmallRng::seed_from_u64(7));
    let mut bench = Bench {
        roster,
        now_ms: 0,
        known: Vec::new(),
        dialled_ms: BTreeMap::new(),
        trusted: BTreeSet::new(),
    };
    for event in data.chunks_exact(EVENT_BYTES) {
        let &[kind, conn, node, what, high, low] = event else {
            continue;
        };
        bench.now_ms += u64::from(u16::from_be_bytes([high, low]));
        let event = bench.event(kind, conn, node, what);
        for action in bench.roster.step(event, bench.now_ms) {
            bench.acted(action)?;
        }
        bench.check()?;
    }
    let text = bench.roster.saved_text(bench.now_ms);
    match SavedPeers::parse(&text) {
        Ok(_) => Ok(()),
        Err(line) => Err(format!(
            "line {line} of the saved peers can't be read: {text}"
        )),
    }
}

impl Bench {
    fn event(&mut self, kind: u8, conn: u8, node: u8, what: u8) -> Event {
        let conn = match self.known.len() {
            0 => ConnId(conn.into()),
            len => self.known[usize::from(conn) % len],
        };
        match kind % 24 {
            0..=3 => {
                let conn = self.roster.next_conn();
                self.known.push(conn);
                let address = address(node);
                Event::Incoming { conn, address }
            }
            4..=7 => Event::Greeted {
                conn,
                id: id(node),
                offers: offers(what),
                port: 0,
            },
            8..=10 => Event::Up {
                conn,
                offers: offers(what),
            },
            11 => Event::Closed {
                conn,
                end: [
                    End::Failed,
                    End::Unreached,
                    End::OtherChain,
                    End::Theirs(DisconnectReason::TooManyPeers),
                    End::Ours(DisconnectReason::ProtocolBreach),
                ][usize::from(what) % 5],
            },
            12..=14 => Event::Found {
                source: Source::ALL[2 + usize::from(what) % 5],
                candidate: candidate(node),
            },
            15 => Event::Conduct {
                conn,
                conduct: CONDUCTS[usize::from(what) % CONDUCTS.len()],
            },
            16 => Event::Delivered {
                conn,
                bytes: u64::from(what) << 56,
            },
            17 => Event::Lacking(offers(what)),
            18 => Event::AddStatic(candidate(node)),
            19 => {
                self.trusted.insert(id(node));
                Event::AddTrusted(candidate(node))
            }
            20 => match what % 2 {
                0 => Event::RemoveStatic(id(node)),
                _ => Event::RemoveTrusted(id(node)),
            },
            21 => Event::Ban {
                target: match what % 2 {
                    0 => BanTarget::Node(id(node)),
                    _ => BanTarget::Host(address(node).ip()),
                },
                ms: u64::from(what) << 20,
            },
            22 => Event::Lift(BanTarget::Node(id(node))),
            _ => Event::Tick,
        }
    }

    fn acted(&mut self, action: Action) -> Result<(), String> {
        let Action::Dial {
            conn, candidate, ..
        } = action
        else {
            return Ok(());
        };
        self.known.push(conn);
        if candidate.id == id(OWN) {
            return Err("it dials itself".into());
        }
        let last = self.dialled_ms.insert(candidate.id, self.now_ms);
        match last.filter(|last| self.now_ms < last + REDIAL_MS) {
            Some(last) => Err(format!(
                "it dials {:?} at {last} and at {} ms",
                candidate.id, self.now_ms
            )),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), String> {
        let peers: Vec<_> = self.roster.peers(self.now_ms).collect();
        let ids: BTreeSet<NodeId> = peers.iter().map(|peer| peer.id).collect();
        if ids.len() != peers.len() || ids.contains(&id(OWN)) {
            return Err(format!("a peer twice, or itself: {ids:?}"));
        }
        let beyond = ids.iter().filter(|id| self.trusted.contains(*id)).count();
        if peers.len() - beyond > MAX_PEERS {
            return Err(format!("{} peers, {beyond} of them trusted", peers.len()));
        }
        let is_beyond = peers
            .iter()
            .any(|peer| !(-100.0..=100.0).contains(&peer.score));
        match is_beyond || self.roster.departures().count() > 100 {
            true => Err("a score or the list of departures is out of its bounds".into()),
            false => Ok(()),
        }
    }
}
