//! Nodes as text.

use super::*;
use crate::key::NodeKey;
use niwaki_primitives::B256;
use proptest::prelude::*;

fn id(number: u8) -> NodeId {
    NodeKey::new(B256::repeat_byte(number)).unwrap().id()
}

fn parse(text: &str) -> Result<Node, NodeError> {
    text.parse()
}

#[test]
fn a_node_is_read_from_its_enode_and_printed_as_it() {
    let id = id(1);
    for (host, printed) in [
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[2001:0db8::0001]", "[2001:db8::1]"),
        ("Boot.Example.org", "boot.example.org"),
        ("localhost", "localhost"),
    ] {
        let node = parse(&format!("enode://{id}@{host}:30303")).unwrap();
        assert_eq!((node.tcp, node.udp), (30303, 30303));
        assert_eq!(node.to_string(), format!("enode://{id}@{printed}:30303"));
        let node = parse(&format!(" enode://{id}@{host}:30303?discport=30301\n")).unwrap();
        assert_eq!((node.id, node.tcp, node.udp), (id, 30303, 30301));
        let expected = format!("enode://{id}@{printed}:30303?discport=30301");
        assert_eq!(node.to_string(), expected);
    }
}

#[test]
fn a_port_of_0_says_that_the_node_takes_no_part() {
    let id = id(1);
    let node = parse(&format!("enode://{id}@10.3.58.6:30303?discport=0")).unwrap();
    assert_eq!(node.udp_address(), None);
    assert_eq!(node.tcp_address(), Some("10.3.58.6:30303".parse().unwrap()));
    let node = parse(&format!("enode://{id}@10.3.58.6:0?discport=30301")).unwrap();
    assert_eq!(node.tcp_address(), None);
    assert_eq!(node.udp_address(), Some("10.3.58.6:30301".parse().unwrap()));
    let node = parse(&format!("enode://{id}@example.org:30303")).unwrap();
    assert_eq!((node.tcp_address(), node.udp_address()), (None, None));
}

#[test]
fn each_refusal_names_the_input_and_the_part_that_is_wrong() {
    let id = id(1);
    let off_curve = "01".repeat(64);
    for (text, reason) in [
        (String::new(), "must begin with enode://"),
        (format!("http://{id}@1.2.3.4:1"), "must begin with enode://"),
        (format!("enode://{id}"), "@host:port"),
        (
            "enode://1234@1.2.3.4:30303".into(),
            "there are 4 characters",
        ),
        (format!("enode://0x{id}@1.2.3.4:30303"), "there are 130"),
        (
            format!("enode://{off_curve}@1.2.3.4:30303"),
            "no public key",
        ),
        (format!("enode://{id}@1.2.3.4"), ":port"),
        (format!("enode://{id}@1.2.3.4:"), "the port \"\""),
        (format!("enode://{id}@1.2.3.4:+1"), "the port \"+1\""),
        (format!("enode://{id}@1.2.3.4:65536"), "the port \"65536\""),
        (format!("enode://{id}@1.2.3:30303"), "the host \"1.2.3\""),
        (format!("enode://{id}@1.2.3.4.5:30303"), "the host"),
        (format!("enode://{id}@:30303"), "the host \"\""),
        (format!("enode://{id}@a..b:30303"), "the host"),
        (format!("enode://{id}@::1:30303"), "in brackets"),
        (format!("enode://{id}@[::1:30303"), "in brackets"),
        (format!("enode://{id}@[1.2.3.4]:30303"), "in brackets"),
        (
            format!("enode://{id}@1.2.3.4:1?discport=x"),
            "the discovery port \"x\"",
        ),
        (format!("enode://{id}@1.2.3.4:1?udp=2"), "discport=N"),
        ("enr:-IS4".into(), "record"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.reason.contains(reason), "{text}: {error}");
        assert!(text.starts_with(&error.input), "{text}: {error}");
        assert!(error.to_string().contains("names no node"), "{error}");
    }
}

#[test]
fn an_error_repeats_at_most_160_characters_of_its_input() {
    let error = parse(&"x".repeat(100_000)).unwrap_err();
    assert_eq!(error.input.len(), MAX_QUOTED_CHARS);
}

#[test]
fn the_record_of_the_specification_is_a_node() {
    let text = "enr:-IS4QHCYrYZbAKWCBRlAy5zzaDZXJBGkcnh4MHcBFZntXNFrdvJjX04jRzjzCBOonrkTfj499SZuOh8R33Ls8RRcy5wBgmlkgnY0\
                gmlwhH8AAAGJc2VjcDI1NmsxoQPKY0yuDUmstAHYpMa2_oxVtw0RW_QAdpzBQA8yWM0xOIN1ZHCCdl8";
    let node = parse(text).unwrap();
    assert_eq!(node.udp_address(), Some("127.0.0.1:30303".parse().unwrap()));
    assert_eq!(node.tcp, 0);
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(ip: IpAddr, tcp: u16, udp: u16, number in 1_u8..200) {
        let node = Node::at(id(number), ip, tcp, udp);
        prop_assert_eq!(parse(&node.to_string()), Ok(node));
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "(enode://|enr:|)[0-9a-f]{0,140}[@:?\\[\\]./]{0,3}.{0,40}") {
        let _ = parse(&text);
    }
}
