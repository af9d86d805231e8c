//! Two nodes over a stream in memory that speak `eth/72` and IBFT 2.0's or QBFT's protocol.

use super::*;
use crate::peer::tests::{Side, Stream, chain, sessions_of};
use crate::peer::{PeerError, PeerEvent};
use crate::rlpx::{DisconnectReason, Protocol};
use crate::wire::EthVersion;
use niwaki_primitives::Bytes;
use std::time::Duration;
use tokio::time::timeout;

fn eth() -> Protocol {
    Protocol::new("eth", 72, EthVersion::Eth72.length())
}

fn ibft() -> Protocol {
    Protocol::new("IBF", 1, 4)
}

fn qbft() -> Protocol {
    Protocol::new("istanbul", 100, 22)
}

async fn pair(protocols: &[Protocol]) -> (Side, Side) {
    let (a, b) = sessions_of(protocols.to_vec(), protocols.to_vec()).await;
    (Side::start(a, 2, chain()), Side::start(b, 1, chain()))
}

/// A node and a script, which has not sent its status.
async fn scripted(protocols: &[Protocol]) -> (Side, Stream) {
    let (a, b) = sessions_of(protocols.to_vec(), protocols.to_vec()).await;
    (Side::start(a, 2, chain()), b)
}

/// Where a protocol begins on a connection.
fn offset(stream: &Stream, name: &str) -> u8 {
    let mut all = stream.protocols.iter();
    let shared = all.find(|one| one.capability.name == name);
    shared.unwrap().offset
}

async fn send_status(stream: &mut Stream) {
    let id = offset(stream, "eth");
    let status = chain().status(EthVersion::Eth72).encode();
    stream.writer.send(id, &status).await.unwrap();
}

async fn message(side: &mut Side) -> SubprotocolMessage {
    match side.subprotocols.recv().await {
        Some(SubprotocolEvent::Message(message)) => message,
        other => panic!("{other:?}"),
    }
}

async fn up(side: &mut Side) -> Arc<Peer> {
    match side.subprotocols.recv().await {
        Some(SubprotocolEvent::Up(peer)) => peer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn messages_arrive_in_order_between_up_and_down_with_eth_beside() {
    let (mut a, mut b) = pair(&[eth(), ibft(), qbft()]).await;
    let (of_b, of_a) = (up(&mut a).await, up(&mut b).await);
    assert_eq!(
        (of_b.speaks("IBF"), of_b.speaks("istanbul")),
        (Some(1), Some(100))
    );
    assert_eq!((of_b.speaks("eth"), of_b.speaks("snap")), (None, None));
    // IBF comes before eth, which comes before istanbul.
    let offsets = of_b.info.subprotocols.iter().map(|one| one.offset);
    assert!(offsets.eq([16, 16 + 4 + 22]));
    // More than the channel holds.
    for count in 0..20 {
        let (name, code) = [("IBF", 3), ("istanbul", 0x15)][usize::from(count % 2)];
        assert!(of_b.send_message(name, code, &Bytes::from(vec![count])));
    }
    for count in 0..20 {
        let message = message(&mut b).await;
        let (name, code) = [("IBF", 3), ("istanbul", 0x15)][usize::from(count % 2)];
        assert_eq!(message.protocol.name, name);
        assert_eq!((message.code, message.data), (code, vec![count]));
        assert_eq!(message.peer, of_a.info.origin.conn);
    }
    of_b.send_range(chain().range);
    of_a.disconnect(DisconnectReason::Requested);
    a.ended.await.unwrap();
    let last = a.subprotocols.recv().await;
    assert!(matches!(last, Some(SubprotocolEvent::Down(conn)) if conn == of_b.info.origin.conn));
}

#[tokio::test(start_paused = true)]
async fn what_a_peer_cannot_get_is_refused() {
    let (mut a, mut b) = pair(&[eth(), qbft()]).await;
    let of_b = up(&mut a).await;
    up(&mut b).await;
    let empty = Bytes::new();
    assert!(!of_b.send_message("IBF", 0, &empty));
    assert!(!of_b.send_message("eth", 0, &empty));
    assert!(!of_b.send_message("istanbul", 22, &empty));
    let large = Bytes::from(vec![0; crate::rlpx::MAX_MESSAGE_BYTES + 1]);
    assert!(!of_b.send_message("istanbul", 0, &large));
    assert!(of_b.send_message("istanbul", 21, &empty));
    assert_eq!(message(&mut b).await.code, 21);
}

#[tokio::test(start_paused = true)]
async fn a_full_channel_stops_the_reader_and_loses_nothing() {
    let (mut a, mut script) = scripted(&[eth(), qbft()]).await;
    send_status(&mut script).await;
    let peer = a.peer().await;
    let (qbft, eth) = (offset(&script, "istanbul"), offset(&script, "eth"));
    // The channel of the test has four places: the end, Up and two messages.
    for count in 0..10 {
        script.writer.send(qbft, &[count]).await.unwrap();
    }
    let range = crate::wire::BlockRange {
        latest: 9,
        ..chain().range
    };
    script
        .writer
        .send(eth + 0x11, &range.encode())
        .await
        .unwrap();
    let not_read = timeout(Duration::from_secs(5), a.events.recv()).await;
    assert!(not_read.is_err() && peer.range().latest == 7);
    up(&mut a).await;
    for count in 0..10 {
        assert_eq!(message(&mut a).await.data, [count]);
    }
    assert!(matches!(a.events.recv().await, Some(PeerEvent::Range)));
    assert_eq!(peer.range().latest, 9);
}

#[tokio::test(start_paused = true)]
async fn messages_that_the_owner_holds_take_the_room_of_their_peer() {
    let (mut a, mut script) = scripted(&[eth(), qbft()]).await;
    send_status(&mut script).await;
    up(&mut a).await;
    let id = offset(&script, "istanbul");
    // Not compressed: the stream in memory holds 64 KiB.
    let sending = tokio::spawn(async move {
        for _ in 0..2 {
            script.writer.send(id, &vec![0; 7 << 20]).await.unwrap();
        }
        script
    });
    let first = message(&mut a).await;
    let second = timeout(Duration::from_secs(5), a.subprotocols.recv()).await;
    assert!(second.is_err());
    drop(first);
    assert_eq!(message(&mut a).await.data.len(), 7 << 20);
    assert!(!a.ended.is_finished());
    sending.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn messages_before_the_status_come_after_up_and_of_100_the_first_64() {
    let (mut a, mut script) = scripted(&[eth(), qbft()]).await;
    let id = offset(&script, "istanbul") + 0x12;
    for count in 0..100 {
        script.writer.send(id, &[count]).await.unwrap();
    }
    send_status(&mut script).await;
    script.writer.send(id, &[200]).await.unwrap();
    up(&mut a).await;
    for count in (0..64).chain([200]) {
        assert_eq!(message(&mut a).await.data, [count]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_of_no_protocol_ends_the_connection() {
    let (mut a, mut script) = scripted(&[eth(), qbft()]).await;
    send_status(&mut script).await;
    up(&mut a).await;
    let id = offset(&script, "istanbul") + 22;
    script.writer.send(id, &[0xc0]).await.unwrap();
    let error = a.ended.await.unwrap();
    assert!(matches!(error, PeerError::Breach { .. }), "{error:?}");
    assert!(matches!(
        a.subprotocols.recv().await,
        Some(SubprotocolEvent::Down(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_eth_is_told_that_it_is_useless() {
    let (a, mut script) = scripted(&[qbft()]).await;
    let error = a.ended.await.unwrap();
    assert_eq!(error.reason(), DisconnectReason::UselessPeer);
    let goodbye = script.reader.next().await.unwrap();
    assert_eq!(goodbye.id, crate::rlpx::hello::DISCONNECT);
    let reason = DisconnectReason::decode(&goodbye.data);
    assert_eq!(reason, DisconnectReason::UselessPeer);
}

#[tokio::test(start_paused = true)]
async fn a_peer_with_eth_alone_is_no_peer_of_the_owner() {
    let (a, b) = sessions_of(vec![eth(), qbft()], vec![eth()]).await;
    let (mut a, mut b) = (Side::start(a, 2, chain()), Side::start(b, 1, chain()));
    let of_b = a.peer().await;
    b.peer().await;
    assert_eq!(of_b.speaks("istanbul"), None);
    of_b.disconnect(DisconnectReason::Requested);
    a.ended.await.unwrap();
    assert!(a.subprotocols.recv().await.is_none());
}

#[test]
fn names_and_numbers_must_fit_beside_eth() {
    let one = |name: &str, version, length| Subprotocol {
        name: name.to_owned(),
        version,
        length,
    };
    let check = |all: &[Subprotocol]| Subprotocol::check(all, 22);
    assert_eq!(check(&[one("IBF", 1, 4), one("istanbul", 100, 22)]), Ok(()));
    for name in ["", "ninechars", "a b", "eth", "snap", "p2p"] {
        let error = SubprotocolError::Name(name.to_owned());
        assert_eq!(check(&[one(name, 1, 4)]), Err(error));
    }
    // Of two versions the longer counts.
    assert_eq!(check(&[one("x", 1, 90), one("x", 2, 80)]), Ok(()));
    let error = SubprotocolError::Numbers(113);
    assert_eq!(check(&[one("x", 1, 90), one("y", 2, 1)]), Err(error));
    assert_eq!(check(&[one("x", 1, 0)]), Err(SubprotocolError::Numbers(22)));
}
