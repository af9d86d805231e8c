//! Packets: the vectors of EIP-8, and bad input.

use super::*;
use niwaki_primitives::{b256, hex};
use proptest::prelude::*;

const VECTORS: &str = include_str!("../../../../testdata/eip-8-discovery.txt");

/// The expiration in all vectors.
const EXPIRATION: u64 = 1_136_239_445;

fn vector(name: &str) -> Vec<u8> {
    let line = VECTORS
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    hex::decode(line.unwrap()).unwrap()
}

fn key() -> NodeKey {
    NodeKey::new(B256::from_slice(&vector("key"))).unwrap()
}

fn endpoint(ip: &str, udp: u16, tcp: u16) -> Endpoint {
    let ip = ip.parse().unwrap();
    Endpoint { ip, udp, tcp }
}

fn read(name: &str) -> Message {
    let packet = Packet::decode(&vector(name)).unwrap();
    assert_eq!(packet.sender().unwrap(), key().id());
    packet.message
}

#[test]
fn pings_of_eip_8_are_read_with_more_fields_and_another_version() {
    assert_eq!(
        read("ping_4"),
        Message::Ping {
            from: endpoint("127.0.0.1", 3322, 5544),
            to: endpoint("::1", 2222, 3333),
            expiration: EXPIRATION,
            record_seq: Some(1),
        }
    );
    assert_eq!(
        read("ping_555"),
        Message::Ping {
            from: endpoint("2001:db8:3c4d:15::abcd:ef12", 3322, 5544),
            to: endpoint("2001:db8:85a3:8d3:1319:8a2e:370:7348", 2222, 33338),
            expiration: EXPIRATION,
            // The fifth field is a list: it is none.
            record_seq: None,
        }
    );
}

#[test]
fn the_pong_and_the_findnode_of_eip_8_are_read() {
    assert_eq!(
        read("pong"),
        Message::Pong {
            to: endpoint("2001:db8:85a3:8d3:1319:8a2e:370:7348", 2222, 33338),
            ping_hash: b256!("fbc914b16819237dcd8801d7e53f69e9719adecb3cc0e790c57e91ca4461c954"),
            expiration: EXPIRATION,
            record_seq: None,
        }
    );
    let target = key().id();
    let expiration = EXPIRATION;
    assert_eq!(read("findnode"), Message::FindNode { target, expiration });
}

#[test]
fn the_neighbors_of_eip_8_are_read() {
    let Message::Neighbors { nodes, expiration } = read("neighbors") else {
        panic!("not neighbors");
    };
    assert_eq!(expiration, EXPIRATION);
    let endpoints: Vec<_> = nodes.iter().map(|node| node.endpoint).collect();
    let expected = [
        endpoint("99.33.22.55", 4444, 4445),
        endpoint("1.2.3.4", 1, 1),
        endpoint("2001:db8:3c4d:15::abcd:ef12", 3333, 3333),
        endpoint("2001:db8:85a3:8d3:1319:8a2e:370:7348", 999, 1000),
    ];
    assert_eq!(endpoints, expected);
    assert_eq!(hex::encode(&nodes[3].id.0[..4]), "8dcab861");
}

#[test]
fn twelve_nodes_with_ipv6_addresses_fit_into_a_packet() {
    let node = Neighbor {
        endpoint: endpoint("2001:db8::1", 30303, 30303),
        id: key().id(),
    };
    let expiration = u64::MAX;
    let nodes = vec![node; NODES_PER_PACKET];
    let (packet, _) = Message::Neighbors { nodes, expiration }.encode(&key());
    assert!(packet.len() <= MAX_PACKET_BYTES, "{}", packet.len());
}

#[test]
fn a_node_without_a_usable_address_is_left_out_and_the_others_are_read() {
    let neighbor = |ip: &[u8]| {
        list(&[
            &encode(ip),
            &encode(1_u16),
            &encode(2_u16),
            &encode(key().id().0),
        ])
    };
    let nodes = list(&[
        &neighbor(&[]),
        &neighbor(&[1, 2, 3]),
        &neighbor(&[1, 2, 3, 4]),
    ]);
    let fields = list(&[&nodes, &encode(7_u64)]);
    let Message::Neighbors { nodes, .. } = Message::decode(NEIGHBORS, &fields).unwrap() else {
        panic!("not neighbors");
    };
    let endpoints: Vec<_> = nodes.iter().map(|node| node.endpoint).collect();
    assert_eq!(endpoints, [endpoint("1.2.3.4", 1, 2)]);
}

#[test]
fn a_ping_with_an_unreadable_address_is_still_a_ping() {
    let odd = list(&[&encode(&[1_u8, 2, 3][..])]);
    let fields = list(&[&encode("four"), &odd, &list(&[]), &encode(9_u64)]);
    let none = endpoint("0.0.0.0", 0, 0);
    assert_eq!(
        Message::decode(PING, &fields).unwrap(),
        Message::Ping {
            from: none,
            to: none,
            expiration: 9,
            record_seq: None,
        }
    );
}

#[test]
fn a_time_in_the_upper_half_is_long_ago() {
    let is_expired = |expiration: u64| Message::EnrRequest { expiration }.is_expired(100);
    assert!(is_expired(99));
    assert!(!is_expired(100));
    assert!(!is_expired(u64::MAX >> 1));
    assert!(is_expired((u64::MAX >> 1) + 1));
    // What geth's test of an expired ping sends: the negative of a time in the future.
    assert!(is_expired(120_u64.wrapping_neg()));
}

#[test]
fn short_long_and_changed_packets_and_unknown_types_are_refused() {
    let packet = vector("ping_4");
    for at in 0..packet.len() {
        assert!(Packet::decode(&packet[..at]).is_err());
        let mut changed = packet.clone();
        changed[at] ^= 1;
        assert_eq!(Packet::decode(&changed).unwrap_err(), PacketError::Hash);
    }
    let long = Packet::decode(&[0; 1281]);
    assert_eq!(long.unwrap_err(), PacketError::Size { got: 1281 });
    for kind in [0, 7, 66, 255] {
        let mut packet = vector("ping_4");
        packet[HEAD] = kind;
        let hash = keccak256(&packet[HASH..]);
        packet[..HASH].copy_from_slice(hash.as_slice());
        let refused = Packet::decode(&packet).unwrap_err();
        assert_eq!(refused, PacketError::Type(kind));
    }
}

#[test]
fn a_record_of_another_node_is_no_answer() {
    let record = Record::sign(&key(), 1, &Default::default()).unwrap();
    let encoded = record.encode();
    assert_eq!(record_of(key().id(), &encoded), Ok(record));
    let other = NodeKey::new(B256::repeat_byte(1)).unwrap();
    assert!(record_of(other.id(), &encoded).is_err());
}

fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    any::<(IpAddr, u16, u16)>().prop_map(|(ip, udp, tcp)| Endpoint {
        ip: ip.to_canonical(),
        udp,
        tcp,
    })
}

fn any_message() -> impl Strategy<Value = Message> {
    let hash = || any::<[u8; 32]>().prop_map(B256::new);
    let id = || {
        prop::collection::vec(any::<u8>(), 64)
            .prop_map(|bytes| NodeId(FixedBytes::from_slice(&bytes)))
    };
    let neighbor = (any_endpoint(), id()).prop_map(|(endpoint, id)| Neighbor { endpoint, id });
    let ping = (
        any_endpoint(),
        any_endpoint(),
        any::<u64>(),
        any::<Option<u64>>(),
    );
    let pong = (any_endpoint(), hash(), any::<u64>(), any::<Option<u64>>());
    prop_oneof![
        ping.prop_map(|(from, to, expiration, record_seq)| Message::Ping {
            from,
            to,
            expiration,
            record_seq
        }),
        pong.prop_map(|(to, ping_hash, expiration, record_seq)| Message::Pong {
            to,
            ping_hash,
            expiration,
            record_seq
        }),
        (id(), any::<u64>())
            .prop_map(|(target, expiration)| Message::FindNode { target, expiration }),
        (
            prop::collection::vec(neighbor, 0..=NODES_PER_PACKET),
            any::<u64>()
        )
            .prop_map(|(nodes, expiration)| Message::Neighbors { nodes, expiration }),
        any::<u64>().prop_map(|expiration| Message::EnrRequest { expiration }),
    ]
}

proptest! {
    #[test]
    fn a_message_survives_its_packet(message in any_message()) {
        let (data, hash) = message.encode(&key());
        let packet = Packet::decode(&data).unwrap();
        prop_assert_eq!(packet.hash, hash);
        prop_assert_eq!(packet.sender().unwrap(), key().id());
        prop_assert_eq!(packet.message, message);
    }

    #[test]
    fn no_fields_make_the_reader_panic(kind: u8, fields in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::decode(kind, &fields);
        let _ = Packet::decode(&fields);
    }
}
