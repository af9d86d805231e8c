//! Tables, traffic and guards without a network.

use super::*;
use crate::rlpx::{Capability, SharedProtocol};
use std::sync::Arc;

fn eth() -> Protocol {
    Protocol::new("eth", 69, 18)
}

#[test]
fn tables_are_in_the_order_of_what_they_count() {
    let stats = Stats::default();
    for (at, source) in (1..).zip(Source::ALL) {
        (0..at).for_each(|_| stats.count_dial(source));
    }
    assert!(stats.dials().eq(Source::ALL.into_iter().zip(1..)));
    let indexes = RequestKind::ALL.map(RequestKind::index);
    assert!(indexes.into_iter().eq(0..RequestKind::ALL.len()));
    for reason in DisconnectReason::ALL {
        stats.count_end(Initiator::Remote, reason);
    }
    let remote = DisconnectReason::ALL.map(|reason| (Initiator::Remote, reason, 1));
    assert!(stats.ends().filter(|end| end.2 > 0).eq(remote));
}

#[test]
fn a_message_counts_for_its_protocol_and_a_number_of_none_for_no_one() {
    let stats = Arc::new(Stats::new(&[eth(), Protocol::new("istanbul", 100, 22)]));
    let mut traffic = Traffic::new(Arc::clone(&stats));
    traffic.count(Direction::Outbound, 0, 130);
    // Before the protocols are known.
    traffic.count(Direction::Inbound, 16, 9);
    let shared = |name: &str, version, offset, length| SharedProtocol {
        capability: Capability {
            name: name.to_owned(),
            version,
        },
        offset,
        length,
    };
    traffic.share(&[shared("eth", 69, 16, 18), shared("istanbul", 100, 34, 22)]);
    for (id, bytes) in [(16, 80), (33, 40), (34 + 0x12, 7), (34 + 0x12, 8), (56, 1)] {
        traffic.count(Direction::Inbound, id, bytes);
    }
    let counts = stats.messages();
    let counts = counts.map(|one| (one.protocol, one.name, one.code, one.messages, one.bytes));
    let expected = [
        ("Wire", "Hello", 0, 1, 130),
        ("eth/69", "Status", 0, 1, 80),
        ("eth/69", "BlockRangeUpdate", 17, 1, 40),
        ("istanbul/100", "", 0x12, 2, 15),
    ];
    assert!(counts.eq(expected));
}

#[test]
fn a_connection_is_incomplete_until_its_guard_goes() {
    let stats = Stats::default();
    let (one, two) = (stats.count_greeted(), stats.count_greeted());
    assert_eq!(stats.incomplete(), 2);
    drop((one, two));
    assert_eq!(stats.incomplete(), 0);
}
