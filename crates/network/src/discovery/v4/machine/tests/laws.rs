//! What holds whatever strangers send: no answers without a proof, no more packets out than requests in, nothing that grows without end.

use super::*;
use crate::discovery::v4::machine::records::{MAX_REQUESTS, MAX_WAITING};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Step {
    Ping,
    /// A pong with the hash of the machine's last ping to this address.
    Pong(Option<u64>),
    /// A pong with another hash.
    BadPong,
    FindNode,
    EnrRequest,
    /// Nodes by their keys and ports, at the addresses of strangers.
    Neighbors(Vec<(u8, usize, u16)>),
    Wait(u64),
}

const KEYS: u8 = 6;

fn addresses() -> [SocketAddr; 4] {
    [
        "8.8.8.8:30303",
        "8.8.8.9:30303",
        "9.9.9.9:30303",
        "10.0.0.1:30303",
    ]
    .map(|text| text.parse().unwrap())
}

fn any_step() -> impl Strategy<Value = Step> {
    let node = (1..100_u8, 0..4_usize, 0..2000_u16);
    prop_oneof![
        3 => Just(Step::Ping),
        3 => any::<Option<u64>>().prop_map(Step::Pong),
        1 => Just(Step::BadPong),
        2 => Just(Step::FindNode),
        1 => Just(Step::EnrRequest),
        2 => prop::collection::vec(node, 0..12).prop_map(Step::Neighbors),
        2 => (0..2000_u64).prop_map(Step::Wait),
    ]
}

/// What the test has seen.
#[derive(Default)]
struct Seen {
    /// The machine's pings to each address.
    pings: BTreeMap<SocketAddr, Vec<B256>>,
    /// Which key sent a pong with one of them from which address.
    proved: BTreeSet<(NodeId, IpAddr)>,
    requests: BTreeMap<SocketAddr, usize>,
    packets: BTreeMap<SocketAddr, usize>,
    named: usize,
}

impl Seen {
    /// Looks at what the machine sends after a packet of `key` from `address`, if it was one.
    fn check(&mut self, machine: &mut Machine, from: Option<(NodeId, SocketAddr)>) {
        for action in machine.take_actions() {
            let Action::Send { to, packet } = action else {
                continue;
            };
            *self.packets.entry(to).or_default() += 1;
            let packet = Packet::decode(&packet).unwrap();
            match packet.message {
                Message::Ping { .. } => self.pings.entry(to).or_default().push(packet.hash),
                Message::Pong { .. } => assert_eq!(from.unwrap().1, to),
                Message::Neighbors { .. } | Message::EnrResponse { .. } => {
                    let (id, address) = from.unwrap();
                    assert_eq!(address, to);
                    assert!(
                        self.proved.contains(&(id, to.ip())),
                        "an answer without a proof"
                    );
                }
                Message::FindNode { .. } | Message::EnrRequest { .. } => {}
            }
        }
        for (address, packets) in &self.packets {
            if !self.proved.iter().any(|proved| proved.1 == address.ip()) {
                let requests = self.requests.get(address).copied().unwrap_or_default();
                assert!(
                    *packets <= 2 * requests + self.named,
                    "{packets} packets to {address}"
                );
            }
        }
        assert!(machine.pings.len() <= MAX_BONDS + MAX_PROBES + 16);
        assert!(machine.probes.len() <= MAX_WAITING_PROBES);
        assert!(machine.records.sent.len() <= MAX_REQUESTS);
        assert!(machine.records.waiting.len() <= MAX_WAITING);
        assert!(machine.queries.len() <= crate::discovery::v4::lookup::ALPHA);
    }
}

proptest! {
    #[test]
    fn strangers_get_no_answers_without_a_proof_and_no_more_packets_than_two_a_request(
        steps in prop::collection::vec((1..=KEYS, 0..4_usize, any_step()), 0..150)
    ) {
        let mut machine = machine(Vec::new());
        let mut seen = Seen::default();
        let mut now_ms = 0;
        for (number, place, step) in steps {
            let address = addresses()[place];
            let mut stranger = Stranger::at(number, address);
            let (now, id) = (at(now_ms), stranger.key.id());
            let expiration = now.unix_s + 20;
            let last = seen.pings.get(&address).and_then(|pings| pings.last().copied());
            let message = match step {
                Step::Wait(ms) => {
                    now_ms += ms;
                    machine.tick(at(now_ms));
                    prop_assert!(machine.next_wake_ms() > now_ms);
                    seen.check(&mut machine, None);
                    continue;
                }
                Step::Ping => ping(address, now),
                Step::Pong(record_seq) => {
                    if last.is_some() {
                        seen.proved.insert((id, address.ip()));
                    }
                    pong(address, last.unwrap_or_default(), record_seq)
                }
                Step::BadPong => pong(address, B256::repeat_byte(7), None),
                Step::FindNode => Message::FindNode { target: key(9).id(), expiration },
                Step::EnrRequest => Message::EnrRequest { expiration },
                Step::Neighbors(nodes) => {
                    seen.named += nodes.len();
                    let nodes = nodes.into_iter().map(|(number, place, port)| {
                        let endpoint = Endpoint::of((addresses()[place].ip(), port).into(), port);
                        Neighbor { endpoint, id: key(number).id() }
                    });
                    neighbors(nodes.collect())
                }
            };
            *seen.requests.entry(address).or_default() += 1;
            let _ = stranger.try_send(&mut machine, &message, now);
            seen.check(&mut machine, Some((id, address)));
        }
    }
}
