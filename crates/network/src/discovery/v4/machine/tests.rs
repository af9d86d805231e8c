//! The machine against single packets of a stranger; `laws` has hostile ones, `network` many machines together.

mod laws;
mod network;

use super::*;
use crate::discovery::v4::wire::{NODES_PER_PACKET, Neighbor};
use crate::record::RecordEntries;
use rand::SeedableRng;

const UNIX_S: u64 = 1_800_000_000;

fn key(number: u8) -> NodeKey {
    NodeKey::new(B256::repeat_byte(number)).unwrap()
}

fn record(key: &NodeKey, seq: u64) -> Record {
    let entries = RecordEntries {
        tcp: 30303,
        udp: 30303,
        ..RecordEntries::default()
    };
    Record::sign(key, seq, &entries).unwrap()
}

fn machine(boot_nodes: Vec<Contact>) -> Machine {
    let key = key(200);
    let record = record(&key, 5);
    Machine::new(key, record, boot_nodes, SmallRng::seed_from_u64(1))
}

fn at(ms: u64) -> Now {
    Now {
        ms,
        unix_s: UNIX_S + ms / 1000,
    }
}

/// A node that the test plays.
struct Stranger {
    key: NodeKey,
    address: SocketAddr,
    /// Of its last packet.
    hash: B256,
}

impl Stranger {
    fn new(number: u8) -> Self {
        let address = ([127, 0, 0, 1], 20_000 + u16::from(number));
        Self::at(number, address.into())
    }

    fn at(number: u8, address: SocketAddr) -> Self {
        Self {
            key: key(number),
            address,
            hash: B256::ZERO,
        }
    }

    fn contact(&self) -> Contact {
        Contact::new(self.key.id(), self.address, 30303)
    }

    /// Sends a packet. Returns what comes back to this address.
    fn send(&mut self, machine: &mut Machine, message: &Message, now: Now) -> Vec<Packet> {
        let _ = self.try_send(machine, message, now);
        self.received(machine)
    }

    fn try_send(
        &mut self,
        machine: &mut Machine,
        message: &Message,
        now: Now,
    ) -> Result<(), Dropped> {
        let (data, hash) = message.encode(&self.key);
        self.hash = hash;
        machine.receive(self.address, &data, now)
    }

    fn received(&self, machine: &mut Machine) -> Vec<Packet> {
        let actions = machine.take_actions().into_iter();
        let packets = actions.filter_map(|action| match action {
            Action::Send { to, packet } if to == self.address => Some(packet),
            _ => None,
        });
        packets.map(|data| Packet::decode(&data).unwrap()).collect()
    }

    fn ping(&mut self, machine: &mut Machine, now: Now) -> Vec<Packet> {
        let ping = ping(self.address, now);
        self.send(machine, &ping, now)
    }

    fn pong(&mut self, machine: &mut Machine, ping_hash: B256, now: Now) -> Vec<Packet> {
        let pong = pong(self.address, ping_hash, None);
        self.send(machine, &pong, now)
    }

    /// Proves its endpoint and gets the machine's proof.
    fn bond(&mut self, machine: &mut Machine, now: Now) {
        let answers = self.ping(machine, now);
        let [_, ping] = &answers[..] else {
            panic!("not a pong and a ping: {answers:?}");
        };
        self.pong(machine, ping.hash, now);
        assert!(
            machine
                .proofs
                .is_proved(self.key.id(), self.address.ip(), now.ms)
        );
    }

    fn find_node(&mut self, machine: &mut Machine, now: Now) -> Vec<Packet> {
        let find = Message::FindNode {
            target: key(77).id(),
            expiration: now.unix_s + 20,
        };
        self.send(machine, &find, now)
    }
}

fn ping(from: SocketAddr, now: Now) -> Message {
    Message::Ping {
        from: Endpoint::of(from, 30303),
        to: Endpoint::of(from, 0),
        expiration: now.unix_s + 20,
        record_seq: None,
    }
}

fn pong(to: SocketAddr, ping_hash: B256, record_seq: Option<u64>) -> Message {
    Message::Pong {
        to: Endpoint::of(to, 0),
        ping_hash,
        expiration: UNIX_S + 100_000,
        record_seq,
    }
}

fn neighbors(nodes: Vec<Neighbor>) -> Message {
    let expiration = UNIX_S + 20;
    Message::Neighbors { nodes, expiration }
}

fn neighbor(key: &NodeKey, ip: [u8; 4], udp: u16) -> Neighbor {
    let endpoint = Endpoint::of((ip, udp).into(), 30303);
    let id = key.id();
    Neighbor { endpoint, id }
}

fn found(machine: &mut Machine) -> Vec<crate::discovery::v4::FoundNode> {
    let actions = machine.take_actions().into_iter();
    let found = actions.filter_map(|action| match action {
        Action::Report(DiscoveryEvent::Found(found)) => Some(found),
        _ => None,
    });
    found.collect()
}

#[test]
fn a_ping_is_answered_to_its_sender_whatever_it_says_of_itself_and_answered_with_a_ping() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    let elsewhere = ([192, 0, 2, 0], 1).into();
    let answers = stranger.send(&mut machine, &ping(elsewhere, at(0)), at(0));
    let [pong, ping] = &answers[..] else {
        panic!("{answers:?}");
    };
    let expected = Message::Pong {
        to: Endpoint::of(stranger.address, 30303),
        ping_hash: stranger.hash,
        expiration: UNIX_S + 20,
        record_seq: Some(5),
    };
    assert_eq!(pong.message, expected);
    assert_eq!(pong.sender().unwrap(), key(200).id());
    let expected = Message::Ping {
        from: Endpoint::of(([0, 0, 0, 0], 30303).into(), 30303),
        to: Endpoint::of(stranger.address, 0),
        expiration: UNIX_S + 20,
        record_seq: Some(5),
    };
    assert_eq!(ping.message, expected);
}

#[test]
fn a_bonded_node_is_in_the_table_and_its_next_ping_gets_a_pong_only() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    assert_eq!(machine.table_len(), 0);
    stranger.bond(&mut machine, at(0));
    assert_eq!(machine.table_len(), 1);
    let elsewhere = ping(([192, 0, 2, 0], 1).into(), at(10));
    let answers = stranger.send(&mut machine, &elsewhere, at(10));
    assert!(matches!(
        answers[..],
        [Packet {
            message: Message::Pong { .. },
            ..
        }]
    ));
}

#[test]
fn a_node_that_did_not_prove_itself_gets_no_neighbors_and_no_record() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    let expiration = UNIX_S + 20;
    let target = key(2).id();
    for request in [
        Message::FindNode { target, expiration },
        Message::EnrRequest { expiration },
    ] {
        let dropped = stranger.try_send(&mut machine, &request, at(0));
        assert_eq!(dropped, Err(Dropped::Unproved));
        // A ping alone proves nothing.
        stranger.ping(&mut machine, at(0));
        let dropped = stranger.try_send(&mut machine, &request, at(0));
        assert_eq!(dropped, Err(Dropped::Unproved));
        assert!(stranger.received(&mut machine).is_empty());
    }
}

#[test]
fn a_bonded_node_gets_neighbors_even_if_there_are_none_and_the_record() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    stranger.bond(&mut machine, at(0));
    let answers = stranger.find_node(&mut machine, at(0));
    let [
        Packet {
            message: Message::Neighbors { nodes, .. },
            ..
        },
    ] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    // The asker itself is not named.
    assert!(nodes.is_empty());
    let expiration = UNIX_S + 20;
    let answers = stranger.send(&mut machine, &Message::EnrRequest { expiration }, at(0));
    let expected = Message::EnrResponse {
        request_hash: stranger.hash,
        record: machine.record.encode(),
    };
    assert_eq!(answers[0].message, expected);
}

#[test]
fn a_pong_with_another_hash_address_or_key_proves_nothing() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    let answers = stranger.ping(&mut machine, at(0));
    let hash = answers[1].hash;
    let address = stranger.address;
    let other_hash = pong(address, B256::ZERO, None);
    let good = pong(address, hash, None);
    let unsolicited = Err(Dropped::Unsolicited);
    assert_eq!(
        stranger.try_send(&mut machine, &other_hash, at(1)),
        unsolicited
    );
    let mut elsewhere = Stranger::at(1, ([127, 0, 0, 2], 20_001).into());
    assert_eq!(elsewhere.try_send(&mut machine, &good, at(1)), unsolicited);
    let mut other_key = Stranger::at(2, address);
    assert_eq!(other_key.try_send(&mut machine, &good, at(1)), unsolicited);
    // Too late.
    machine.tick(at(ANSWER_MS));
    assert_eq!(
        stranger.try_send(&mut machine, &good, at(ANSWER_MS)),
        unsolicited
    );
    machine.take_actions();
    assert!(stranger.find_node(&mut machine, at(1)).is_empty());
    assert_eq!(machine.table_len(), 0);
}

#[test]
fn a_proof_holds_at_one_ip_address_for_24_hours() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    stranger.bond(&mut machine, at(0));
    let mut elsewhere = Stranger::at(1, ([127, 0, 0, 2], 20_001).into());
    assert!(elsewhere.find_node(&mut machine, at(1)).is_empty());
    let mut other_port = Stranger::at(1, ([127, 0, 0, 1], 1234).into());
    assert_eq!(other_port.find_node(&mut machine, at(1)).len(), 1);
    let day = 24 * 60 * 60 * 1000;
    assert_eq!(stranger.find_node(&mut machine, at(day - 1)).len(), 1);
    assert!(stranger.find_node(&mut machine, at(day)).is_empty());
}

#[test]
fn expired_packets_get_no_answer() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    stranger.bond(&mut machine, at(0));
    for expiration in [UNIX_S - 1, 0, UNIX_S.wrapping_neg()] {
        let from = Endpoint::of(stranger.address, 0);
        let target = key(2).id();
        for message in [
            Message::Ping {
                from,
                to: from,
                expiration,
                record_seq: None,
            },
            Message::FindNode { target, expiration },
            Message::EnrRequest { expiration },
        ] {
            let dropped = stranger.try_send(&mut machine, &message, at(0));
            assert_eq!(dropped, Err(Dropped::Expired));
        }
    }
    assert!(stranger.received(&mut machine).is_empty());
}

#[test]
fn neighbors_that_were_not_asked_for_are_dropped() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    stranger.bond(&mut machine, at(0));
    let named = neighbors(vec![neighbor(&key(3), [127, 0, 0, 1], 30303)]);
    let dropped = stranger.try_send(&mut machine, &named, at(0));
    assert_eq!(dropped, Err(Dropped::Unsolicited));
    let answers = stranger.find_node(&mut machine, at(0));
    let expected = Message::Neighbors {
        nodes: Vec::new(),
        expiration: UNIX_S + 20,
    };
    assert_eq!(answers[0].message, expected);
}

#[test]
fn the_16_closest_nodes_come_in_two_packets_without_the_asker() {
    let mut machine = machine(Vec::new());
    let mut strangers: Vec<_> = (1..30).map(Stranger::new).collect();
    for stranger in &mut strangers {
        stranger.bond(&mut machine, at(0));
    }
    let asker = &mut strangers[0];
    let answers = asker.find_node(&mut machine, at(0));
    let nodes: Vec<Vec<Neighbor>> = answers
        .iter()
        .map(|packet| match &packet.message {
            Message::Neighbors { nodes, .. } => nodes.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    let lengths: Vec<_> = nodes.iter().map(Vec::len).collect();
    assert_eq!(lengths, [NODES_PER_PACKET, 16 - NODES_PER_PACKET]);
    assert!(nodes.concat().iter().all(|node| node.id != asker.key.id()));
    assert!(nodes.concat().iter().all(|node| node.endpoint.tcp == 30303));
}

#[test]
fn private_addresses_are_not_named_to_nodes_outside() {
    let mut machine = machine(Vec::new());
    Stranger::new(1).bond(&mut machine, at(0));
    let mut outside = Stranger::at(2, ([8, 8, 8, 8], 30303).into());
    outside.bond(&mut machine, at(0));
    let answers = outside.find_node(&mut machine, at(0));
    let Message::Neighbors { nodes, .. } = &answers[0].message else {
        panic!("{answers:?}");
    };
    assert!(nodes.is_empty());
}

#[test]
fn forged_pings_start_at_most_256_pings_of_ours() {
    let mut machine = machine(Vec::new());
    let mut pings = 0;
    for number in 0..400_u16 {
        let [high, low] = number.to_be_bytes();
        let mut forged = Stranger::at(1, ([10, 0, high, low], 30303).into());
        let answers = forged.ping(&mut machine, at(0));
        pings += answers.len() - 1;
    }
    assert_eq!(pings, MAX_BONDS);
    assert_eq!(machine.pings.len(), MAX_BONDS);
    assert_eq!(machine.table_len(), 0);
    machine.tick(at(ANSWER_MS));
    assert!(machine.pings.is_empty());
}

#[test]
fn an_address_outside_gets_50_answers_a_second() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::at(1, ([8, 8, 8, 8], 30303).into());
    let answered = (0..100).filter(|_| {
        let answers = stranger.ping(&mut machine, at(5));
        !answers.is_empty()
    });
    assert_eq!(answered.count(), 50);
}

#[test]
fn our_own_packets_are_dropped() {
    let mut machine = machine(Vec::new());
    let mut own = Stranger::new(200);
    let ping = ping(own.address, at(0));
    assert_eq!(own.try_send(&mut machine, &ping, at(0)), Err(Dropped::Own));
}

#[test]
fn a_newer_record_is_asked_for_and_found_with_the_node() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    let answers = stranger.ping(&mut machine, at(0));
    let good = pong(stranger.address, answers[1].hash, Some(7));
    let request = stranger.send(&mut machine, &good, at(1));
    let [
        Packet {
            message: Message::EnrRequest { .. },
            hash: request_hash,
            ..
        },
    ] = request[..]
    else {
        panic!("{request:?}");
    };
    let response = |record: &Record| Message::EnrResponse {
        request_hash,
        record: record.encode(),
    };
    // Another node's record is none.
    let foreign = response(&record(&key(2), 7));
    assert!(stranger.try_send(&mut machine, &foreign, at(2)).is_err());
    assert!(found(&mut machine).is_empty());
    let own = record(&stranger.key, 7);
    assert!(
        stranger
            .try_send(&mut machine, &response(&own), at(2))
            .is_ok()
    );
    let found = found(&mut machine);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].node.id, stranger.key.id());
    assert_eq!(found[0].node.udp_address(), Some(stranger.address));
    assert_eq!(found[0].record.as_deref(), Some(&own));
    // The same number again is not asked for.
    let again = Message::Ping {
        from: Endpoint::of(stranger.address, 30303),
        to: Endpoint::of(stranger.address, 0),
        expiration: UNIX_S + 20,
        record_seq: Some(7),
    };
    assert_eq!(stranger.send(&mut machine, &again, at(3)).len(), 1);
}

#[test]
fn a_node_that_does_not_give_its_record_is_found_without() {
    let mut machine = machine(Vec::new());
    let mut stranger = Stranger::new(1);
    let answers = stranger.ping(&mut machine, at(0));
    let good = pong(stranger.address, answers[1].hash, Some(7));
    stranger.send(&mut machine, &good, at(1));
    machine.tick(at(1 + ANSWER_MS));
    let found = found(&mut machine);
    assert_eq!(found[0].node.id, stranger.key.id());
    assert_eq!(found[0].record, None);
}

#[test]
fn a_boot_node_is_pinged_then_asked_once_it_has_our_proof() {
    let mut boot = Stranger::new(1);
    let mut machine = machine(vec![boot.contact()]);
    machine.tick(at(0));
    let packets = boot.received(&mut machine);
    let [
        Packet {
            message: Message::Ping { .. },
            hash,
            ..
        },
    ] = packets[..]
    else {
        panic!("{packets:?}");
    };
    assert!(boot.pong(&mut machine, hash, at(10)).is_empty());
    let packets = boot.ping(&mut machine, at(20));
    let expected = Message::FindNode {
        target: key(200).id(),
        expiration: UNIX_S + 20,
    };
    assert!(matches!(packets[0].message, Message::Pong { .. }));
    assert_eq!(packets[1].message, expected);
    assert_eq!(packets.len(), 2);
}

#[test]
fn a_node_that_does_not_ping_us_is_asked_half_a_second_later() {
    let mut boot = Stranger::new(1);
    let mut machine = machine(vec![boot.contact()]);
    machine.tick(at(0));
    let hash = boot.received(&mut machine)[0].hash;
    boot.pong(&mut machine, hash, at(10));
    machine.tick(at(9 + ANSWER_MS));
    assert!(boot.received(&mut machine).is_empty());
    machine.tick(at(10 + ANSWER_MS));
    let packets = boot.received(&mut machine);
    assert!(matches!(packets[0].message, Message::FindNode { .. }));
}

#[test]
fn named_nodes_at_impossible_addresses_are_passed_over() {
    let mut boot = Stranger::at(1, ([8, 8, 8, 8], 30303).into());
    let mut machine = machine(vec![boot.contact()]);
    machine.tick(at(0));
    let hash = boot.received(&mut machine)[0].hash;
    boot.pong(&mut machine, hash, at(1));
    boot.ping(&mut machine, at(2));
    let named = neighbors(vec![
        neighbor(&key(200), [9, 9, 9, 9], 30303),
        neighbor(&key(3), [192, 168, 0, 1], 30303),
        neighbor(&key(4), [127, 0, 0, 1], 30303),
        neighbor(&key(5), [0, 0, 0, 0], 30303),
        neighbor(&key(6), [9, 9, 9, 8], 53),
        neighbor(&key(7), [9, 9, 9, 7], 30303),
    ]);
    let (data, _) = named.encode(&boot.key);
    machine.receive(boot.address, &data, at(3)).unwrap();
    machine.take_actions();
    machine.tick(at(1000));
    let sent = machine.take_actions().into_iter();
    let sent: Vec<_> = sent
        .filter_map(|action| match action {
            Action::Send { to, .. } => Some(to.to_string()),
            Action::Report(_) => None,
        })
        .filter(|to| to != "8.8.8.8:30303")
        .collect();
    assert_eq!(sent, ["9.9.9.7:30303"]);
}

#[test]
fn a_node_that_falls_silent_is_removed() {
    let mut machine = machine(Vec::new());
    Stranger::new(1).bond(&mut machine, at(0));
    let mut now = 0;
    while machine.table_len() > 0 && now < 60_000 {
        now = machine.next_wake_ms().max(now + 1);
        machine.tick(at(now));
    }
    assert!(now < 60_000);
}

#[test]
fn what_is_no_packet_is_dropped() {
    let mut machine = machine(Vec::new());
    let address = Stranger::new(1).address;
    for data in [&[][..], &[0; 98], &[0; 1281], &[0xff; 200]] {
        let dropped = machine.receive(address, data, at(0));
        assert_eq!(dropped, Err(Dropped::Malformed));
    }
    assert!(machine.take_actions().is_empty());
}

#[test]
fn outside_of_the_networks_packets_are_dropped_and_nodes_are_not_asked() {
    let inside = Stranger::at(1, ([10, 0, 0, 1], 30303).into());
    let mut outside = Stranger::at(2, ([11, 0, 0, 1], 30303).into());
    let mut machine = machine(vec![inside.contact(), outside.contact()]);
    machine.restrict("10.0.0.0/8".parse().into_iter().collect());
    machine.add_boot_nodes([outside.contact()]);
    machine.tick(at(0));
    let actions = machine.take_actions();
    let is_inside =
        |action: &Action| matches!(action, Action::Send { to, .. } if *to == inside.address);
    assert!(actions.len() == 1 && is_inside(&actions[0]), "{actions:?}");
    let ping = ping(outside.address, at(1));
    let dropped = outside.try_send(&mut machine, &ping, at(1));
    assert_eq!(dropped, Err(Dropped::Outside));
    let teller = ([10, 0, 0, 1], 30303).into();
    let named = |ip| machine.contact_of(&neighbor(&key(3), ip, 30303), teller);
    assert!(named([10, 0, 0, 3]).is_some() && named([11, 0, 0, 3]).is_none());
}
