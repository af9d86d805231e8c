//! Records: the example of the specification, entries, and the file of our own.

use super::*;
use niwaki_primitives::{b256, hex};
use proptest::prelude::*;

const EXAMPLE: &str = "enr:-IS4QHCYrYZbAKWCBRlAy5zzaDZXJBGkcnh4MHcBFZntXNFrdvJjX04jRzjzCBOonrkTfj499SZuOh8R33Ls8RRcy5wBgmlkgnY0gmlwhH8AAAGJc2VjcDI1NmsxoQPKY0yuDUmstAHYpMa2_oxVtw0RW_QAdpzBQA8yWM0xOIN1ZHCCdl8";

fn key() -> NodeKey {
    let secret = b256!("b71c71a67e1177ad4e901695e1b4b9ee17ae16c6668d313eac2f96dbcda3f291");
    NodeKey::new(secret).unwrap()
}

fn full() -> RecordEntries {
    RecordEntries {
        ip: Some(Ipv4Addr::new(203, 0, 113, 7)),
        tcp: 30303,
        udp: 30304,
        ip6: Some("2001:db8::7".parse().unwrap()),
        tcp6: 30305,
        udp6: 30306,
        fork_id: Some(ForkId {
            hash: rlp::decode_exact([0x84, 0xfc, 0x64, 0xec, 4]).unwrap(),
            next: u64::MAX,
        }),
        serves_snap: true,
    }
}

#[test]
fn the_example_of_the_specification_is_read() {
    let record: Record = EXAMPLE.parse().unwrap();
    assert_eq!(record.seq(), 1);
    assert_eq!(record.id(), key().id());
    let position = b256!("a448f24c6d18e575453db13171562b71999873db5b286df957af199ec94617f7");
    assert_eq!(record.id().position(), position);
    let entries = RecordEntries {
        ip: Some(Ipv4Addr::LOCALHOST),
        udp: 30303,
        ..RecordEntries::default()
    };
    assert_eq!(record.entries(), entries);
    assert_eq!(record.to_string(), EXAMPLE);
    assert_eq!(Record::decode(&record.encode()), Ok(record));
}

#[test]
fn a_full_record_survives_its_encoding_within_300_bytes() {
    let record = Record::sign(&key(), u64::MAX, &full()).unwrap();
    assert!(record.encode().len() <= MAX_RECORD_BYTES);
    for again in [
        Record::decode(&record.encode()).unwrap(),
        record.to_string().parse().unwrap(),
    ] {
        assert_eq!(again, record);
        assert_eq!(again.entries(), full());
        assert_eq!(again.seq(), u64::MAX);
    }
}

#[test]
fn eth_is_a_list_of_a_list_and_snap_is_an_empty_list() {
    let record = Record::sign(&key(), 1, &full()).unwrap();
    let hex = hex::encode(record.encode());
    let eth = format!(
        "{}cfce84fc64ec0488ffffffffffffffff",
        hex::encode([0x83, b'e', b't', b'h'])
    );
    assert!(hex.contains(&eth), "{hex}");
    let snap = format!("{}c0", hex::encode([0x84, b's', b'n', b'a', b'p']));
    assert!(hex.contains(&snap), "{hex}");
}

#[test]
fn the_tail_of_eth_is_ignored_and_a_broken_eth_is_none() {
    let mut secret = key().secret().0;
    let secret = CombinedKey::secp256k1_from_bytes(&mut secret).unwrap();
    for (value, expected) in [
        ("c7c6840102030405", true),
        ("c8c6840102030405 01", true),
        ("c8c784010203040506", true),
        ("c0", false),
        ("c6c58401020304", false),
        ("84c6840102", false),
        ("c6c58301020304", false),
    ] {
        let value = hex::decode(value.replace(' ', "")).unwrap();
        let enr = Enr::builder()
            .add_value_rlp("eth", value.into())
            .build(&secret);
        // What is not RLP at all is refused when the record is made.
        let Ok(enr) = enr else { continue };
        let record = Record::from_enr(enr).unwrap();
        assert_eq!(record.fork_id().is_some(), expected, "{record}");
    }
}

#[test]
fn the_public_address_of_two_is_the_nodes() {
    let node = |entries: &RecordEntries| Record::sign(&key(), 1, entries).unwrap().node();
    let address =
        |entries: &RecordEntries| node(entries).unwrap().udp_address().unwrap().to_string();
    assert_eq!(address(&full()), "203.0.113.7:30304");
    let private = RecordEntries {
        ip: Some(Ipv4Addr::new(192, 168, 1, 2)),
        ..full()
    };
    assert_eq!(address(&private), "[2001:db8::7]:30306");
    let shared = RecordEntries {
        tcp6: 0,
        udp6: 0,
        ..private
    };
    assert_eq!(address(&shared), "[2001:db8::7]:30304");
    assert_eq!(node(&shared).unwrap().tcp, 30303);
    let both_private = RecordEntries {
        ip6: Some(Ipv6Addr::LOCALHOST),
        ..private
    };
    assert_eq!(address(&both_private), "192.168.1.2:30304");
    let preferring = |entries: &RecordEntries| {
        Record::sign(&key(), 1, entries)
            .unwrap()
            .node_preferring(true, &NetRestrict::default())
    };
    let ipv6 = |entries: &RecordEntries| {
        preferring(entries)
            .unwrap()
            .udp_address()
            .unwrap()
            .is_ipv6()
    };
    assert!(ipv6(&full()) && ipv6(&both_private) && ipv6(&private));
    let private_ipv6 = RecordEntries {
        ip6: Some(Ipv6Addr::LOCALHOST),
        ..full()
    };
    assert!(!ipv6(&private_ipv6));
    let none = RecordEntries {
        ip: None,
        ip6: None,
        ..full()
    };
    assert_eq!(node(&none), None);
}

#[test]
fn a_changed_long_or_continued_record_is_refused() {
    let record = Record::sign(&key(), 1, &full()).unwrap();
    let encoded = record.encode();
    for at in 0..encoded.len() {
        let mut changed = encoded.clone();
        changed[at] ^= 1;
        assert!(Record::decode(&changed).is_err(), "byte {at}");
        assert!(Record::decode(&encoded[..at]).is_err());
    }
    let mut continued = encoded.clone();
    continued.push(0);
    assert!(Record::decode(&continued).is_err());
    let too_long = Record::decode(&[0; 301]);
    assert_eq!(too_long, Err(RecordError::TooLong { got: 301 }));
}

#[test]
fn a_text_that_is_no_record_is_refused() {
    let bare = &EXAMPLE[4..];
    assert_eq!(bare.parse::<Record>(), Err(RecordError::Text));
    for text in [
        "",
        "enr:",
        "enr:-IS4",
        "ENR:-IS4",
        &format!("{EXAMPLE}AAAA"),
        &format!("{EXAMPLE}="),
        &format!("enr:{}", "A".repeat(500)),
    ] {
        assert!(text.parse::<Record>().is_err(), "{text}");
    }
}

#[test]
fn a_key_of_another_curve_is_refused() {
    let secret = CombinedKey::ed25519_from_bytes(&mut [7; 32]).unwrap();
    let enr = Enr::builder().udp4(30303).build(&secret).unwrap();
    assert_eq!(Record::decode(&rlp::encode(&enr)), Err(RecordError::Key));
}

#[test]
fn the_number_rises_with_each_change_and_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    let load = |entries: &RecordEntries, now| {
        LocalRecord::load_or_create(&path, key(), entries, now).unwrap()
    };
    let mut local = load(&full(), 1000);
    assert_eq!(local.record().seq(), 1000);
    assert!(!local.update(&full()).unwrap());
    let moved = RecordEntries { tcp: 1, ..full() };
    assert!(local.update(&moved).unwrap());
    assert_eq!(local.record().seq(), 1001);
    // Unchanged after a restart: the same record; changed meanwhile: one higher.
    assert_eq!(load(&moved, 5000).record(), local.record());
    assert_eq!(load(&full(), 5000).record().seq(), 1002);
    // A broken file, or that of another key, starts at the time.
    std::fs::write(&path, "enr:broken").unwrap();
    assert_eq!(load(&full(), 5000).record().seq(), 5000);
    let other = NodeKey::new(B256::repeat_byte(1)).unwrap();
    let other = LocalRecord::load_or_create(&path, other, &full(), 9000).unwrap();
    assert_eq!(other.record().seq(), 9000);
}

#[test]
fn a_folder_that_is_missing_is_an_error_with_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no").join("record");
    let error = LocalRecord::load_or_create(&path, key(), &full(), 1).unwrap_err();
    assert!(error.to_string().contains("no/record"), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(data in prop::collection::vec(any::<u8>(), 0..320)) {
        let _ = Record::decode(&data);
    }

    #[test]
    fn a_record_that_was_cut_and_filled_is_refused(at in 0_usize..200, fill: u8) {
        let mut encoded = Record::sign(&key(), 1, &full()).unwrap().encode();
        let before = encoded.clone();
        encoded.iter_mut().skip(at).for_each(|byte| *byte = fill);
        prop_assume!(before != encoded);
        prop_assert!(Record::decode(&encoded).is_err());
    }
}

#[test]
fn the_address_is_chosen_among_those_of_the_allowed_networks() {
    let record = Record::sign(&key(), 1, &full()).unwrap();
    for (network, prefers_ipv6, expected) in [
        ("203.0.113.0/24", true, Some("203.0.113.7:30304")),
        ("2001:db8::/32", false, Some("[2001:db8::7]:30306")),
        ("10.0.0.0/8", false, None),
    ] {
        let allowed = network.parse().into_iter().collect();
        let node = record.node_preferring(prefers_ipv6, &allowed);
        let address = node.map(|node| node.udp_address().unwrap().to_string());
        assert_eq!(address.as_deref(), expected, "{network}");
    }
}
