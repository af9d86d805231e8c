//! Connections over a stream in memory.

use super::*;
use niwaki_primitives::B256;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};

type Reader = ReadHalf<DuplexStream>;
type Writer = WriteHalf<DuplexStream>;

fn key(number: u8) -> NodeKey {
    NodeKey::new(B256::repeat_byte(number)).unwrap()
}

fn protocols(names: &[(&str, u64)]) -> Vec<Protocol> {
    let protocols = names
        .iter()
        .map(|(name, version)| Protocol::new(name, *version, 18));
    protocols.collect()
}

fn hello(key: &NodeKey, protocols: &[Protocol]) -> Hello {
    Hello {
        version: hello::VERSION,
        client: "test".into(),
        capabilities: protocols.iter().map(|p| p.capability.clone()).collect(),
        port: 0,
        id: key.id(),
    }
}

async fn connections() -> (Connection<Reader, Writer>, Connection<Reader, Writer>) {
    let (a, b) = duplex(1 << 16);
    let ((ar, aw), (br, bw)) = (split(a), split(b));
    let (a, b) = (key(1), key(2));
    let (a, b) = tokio::join!(initiate(ar, aw, &a, b.id()), respond(br, bw, &b));
    (a.unwrap(), b.unwrap())
}

async fn sessions() -> (Session<Reader, Writer>, Session<Reader, Writer>) {
    let (a, b) = connections().await;
    assert_eq!((a.peer, b.peer), (key(2).id(), key(1).id()));
    let (ours, theirs) = (
        protocols(&[("eth", 69)]),
        protocols(&[("eth", 68), ("eth", 69)]),
    );
    let (ha, hb) = (hello(&key(1), &ours), hello(&key(2), &theirs));
    let (a, b) = tokio::join!(a.greet(&ha, &ours), b.greet(&hb, &theirs));
    (a.unwrap(), b.unwrap())
}

#[tokio::test]
async fn messages_of_all_sizes_arrive_in_order_both_ways() {
    let (mut a, mut b) = sessions().await;
    assert_eq!(a.protocols, b.protocols);
    assert_eq!(b.hello.id, key(1).id());
    for size in [0, 1, 15, 16, 17, 1000, 100_000, MAX_MESSAGE_BYTES] {
        let data: Vec<u8> = (0..=250_u8).cycle().take(size).collect();
        let (sent, got) = tokio::join!(a.writer.send(16, &data), b.reader.next());
        sent.unwrap();
        assert!(
            got.unwrap()
                == Message {
                    id: 16,
                    data: data.clone()
                }
        );
        let (sent, got) = tokio::join!(b.writer.send(0x7f, &data), a.reader.next());
        sent.unwrap();
        assert!(got.unwrap() == Message { id: 0x7f, data });
    }
}

#[tokio::test]
async fn a_message_above_10_mib_is_not_sent() {
    let (mut a, _b) = sessions().await;
    let sent = a.writer.send(16, &vec![0; MAX_MESSAGE_BYTES + 1]).await;
    assert!(
        matches!(sent, Err(SessionError::TooLarge { bytes }) if bytes == MAX_MESSAGE_BYTES + 1)
    );
}

#[tokio::test]
async fn a_frame_above_the_limit_is_refused_before_it_is_read() {
    let (mut a, mut b) = connections().await;
    let mut frame = Vec::new();
    let data = vec![0; MAX_FRAME_BYTES + 1];
    a.writer.frames.encode(&[&data], &mut frame);
    a.writer
        .stream
        .write_all(&frame[..HEADER_BYTES])
        .await
        .unwrap();
    let size = b.reader.next_size().await;
    assert!(matches!(size, Err(SessionError::TooLarge { bytes }) if bytes == data.len()));
}

/// Snappy says before the data how large it gets.
#[tokio::test]
async fn a_snappy_bomb_is_refused_before_it_is_unpacked() {
    let (mut a, mut b) = sessions().await;
    let bomb = snap::raw::Encoder::new()
        .compress_vec(&vec![0; MAX_MESSAGE_BYTES + 1])
        .unwrap();
    assert!(bomb.len() < MAX_MESSAGE_BYTES / 10);
    a.writer.compressor = None;
    let (_, got) = tokio::join!(a.writer.send(16, &bomb), b.reader.next());
    assert!(matches!(got, Err(SessionError::TooLarge { .. })));
    let (_, got) = tokio::join!(a.writer.send(16, &[0xff; 4]), b.reader.next());
    assert!(matches!(got, Err(SessionError::Malformed(_))));
}

#[tokio::test]
async fn before_the_status_a_message_has_16_kib_at_most_compressed_or_not() {
    let (mut a, mut b) = sessions().await;
    let most = vec![0; MAX_EARLY_BYTES];
    a.writer.send(16, &most).await.unwrap();
    assert!(b.reader.next_early().await.unwrap().data == most);
    // Small as a frame.
    let bytes = MAX_EARLY_BYTES + 1;
    a.writer.send(16, &vec![0; bytes]).await.unwrap();
    let got = b.reader.next_early().await;
    assert!(matches!(got, Err(SessionError::TooLarge { bytes: got }) if got == bytes));

    // A Hello that is no Hello.
    let (mut a, b) = connections().await;
    let ours = protocols(&[("eth", 69)]);
    let large = vec![0; bytes];
    let hello = hello(&key(2), &ours);
    let (sent, got) = tokio::join!(a.writer.send(hello::HELLO, &large), b.greet(&hello, &ours));
    sent.unwrap();
    // The number comes before the data.
    assert!(matches!(got, Err(SessionError::TooLarge { bytes: got }) if got == bytes + 1));
}

#[tokio::test]
async fn a_disconnect_is_read_compressed_and_not() {
    for is_compressed in [true, false] {
        let (mut a, mut b) = sessions().await;
        if !is_compressed {
            a.writer.compressor = None;
        }
        let reason = DisconnectReason::TooManyPeers;
        let (_, got) = tokio::join!(a.writer.disconnect(reason), b.reader.next());
        let got = got.unwrap();
        assert_eq!(got.id, hello::DISCONNECT);
        assert_eq!(DisconnectReason::decode(&got.data), reason);
        assert!(matches!(b.reader.next().await, Err(SessionError::Io(_))));
    }
}

#[tokio::test]
async fn nothing_shared_another_identity_and_an_old_version_are_refused_with_the_reason() {
    let ours = protocols(&[("eth", 69)]);
    let good = hello(&key(1), &ours);
    let nothing = hello(&key(1), &protocols(&[("eth", 1)]));
    let other = hello(&key(3), &ours);
    let old = Hello { version: 4, ..good };
    let cases = [
        (nothing, DisconnectReason::UselessPeer),
        (other, DisconnectReason::UnexpectedIdentity),
        (old, DisconnectReason::IncompatibleVersion),
    ];
    for (theirs, reason) in cases {
        let (mut a, b) = connections().await;
        let (hello_b, theirs) = (hello(&key(2), &ours), theirs.encode());
        let (_, refused) = tokio::join!(
            a.writer.send(hello::HELLO, &theirs),
            b.greet(&hello_b, &ours)
        );
        assert_eq!(refused.unwrap_err().reason(), reason);
        assert_eq!(a.reader.next().await.unwrap().id, hello::HELLO);
        let last = a.reader.next().await.unwrap();
        assert_eq!(DisconnectReason::decode(&last.data), reason);
    }
}

#[tokio::test]
async fn the_reason_before_hello_is_reported() {
    let (mut a, b) = connections().await;
    let ours = protocols(&[("eth", 69)]);
    let hello = hello(&key(2), &ours);
    let reason = DisconnectReason::TooManyPeers;
    let (_, refused) = tokio::join!(a.writer.disconnect(reason), b.greet(&hello, &ours));
    assert!(matches!(refused, Err(SessionError::Disconnected(r)) if r == reason));
}

/// Noise, a message for another node, and a size that is none: the stream is closed without an answer.
#[tokio::test]
async fn a_handshake_that_fails_gets_no_answer() {
    let other = handshake::write_auth(&key(1), &Secrets::random(), &key(3).id()).unwrap();
    for message in [vec![0xff; 700], vec![0; 400], other] {
        let (mut a, b) = duplex(1 << 16);
        let (reader, writer) = split(b);
        a.write_all(&message).await.unwrap();
        let refused = respond(reader, writer, &key(2)).await;
        assert!(matches!(refused, Err(SessionError::Handshake(_))));
        let mut answer = Vec::new();
        a.read_to_end(&mut answer).await.unwrap();
        assert!(answer.is_empty());
    }
}

/// Zeros are the best that Snappy can do: 21 times smaller. A length without the data that makes it gets no memory.
#[test]
fn a_snappy_length_that_its_data_cannot_make_is_refused() {
    let zeros = vec![0; MAX_MESSAGE_BYTES];
    let compressed = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
    assert!(compressed.len() * MAX_SNAPPY_RATIO > MAX_MESSAGE_BYTES);
    assert_eq!(decompress(16, &compressed).unwrap(), zeros);
    // The length of 10 MiB, and one copy of 64 bytes.
    let bomb = [0x80, 0x80, 0x80, 0x05, 0xfe, 0x01, 0x00];
    assert_eq!(snap::raw::decompress_len(&bomb).unwrap(), MAX_MESSAGE_BYTES);
    let refused = decompress(16, &bomb);
    assert!(
        matches!(refused, Err(SessionError::Malformed(_))),
        "{refused:?}"
    );
}
