//! Two nodes over a stream in memory, with time that stands still unless both wait.

mod answers;

use super::*;
use crate::peer::tests::{Side, Stream, chain, key, pair, sessions, sessions_of};
use crate::peer::{AskError, LocalChain};
use crate::rlpx::Protocol;
use crate::wire::{BlockId, Items, SnapAnswer, SnapItems, SnapRequest, SnapVersion};
use niwaki_primitives::{B256, Bytes, Header, U256};

/// A node on one side, once the script on the other one has sent its status.
async fn beside_script(a: Stream, b: &mut Stream) -> (Side, Arc<Peer>) {
    let mut a = Side::start(a, 2, chain());
    let status = chain().status(EthVersion::Eth72).encode();
    b.writer.send(base::FIRST_SHARED, &status).await.unwrap();
    let peer = a.peer().await;
    (a, peer)
}

#[tokio::test(start_paused = true)]
async fn both_sides_learn_version_name_and_range() {
    let (a, b) = sessions(&EthVersion::ALL, &[EthVersion::Eth69, EthVersion::Eth70]).await;
    let (mut a, mut b) = (Side::start(a, 2, chain()), Side::start(b, 1, chain()));
    let (of_b, of_a) = (a.peer().await, b.peer().await);
    for peer in [&of_b, &of_a] {
        assert_eq!(peer.info.version, EthVersion::Eth70);
        assert_eq!(
            (peer.info.client.as_str(), peer.range().latest),
            ("test", 7)
        );
    }
    assert_eq!(of_b.info.origin.node, key(2).id());
    assert_eq!(of_a.info.origin.node, key(1).id());
}

#[tokio::test(start_paused = true)]
async fn another_network_is_cut_before_it_counts_as_a_peer() {
    let all = EthVersion::ALL;
    let (a, b) = sessions(&all, &all).await;
    let other = LocalChain {
        network_id: 5,
        ..chain()
    };
    let (mut a, b) = (Side::start(a, 2, chain()), Side::start(b, 1, other));
    let error = a.ended.await.unwrap();
    assert!(matches!(
        error,
        PeerError::Status(StatusError::Network { got: 5, .. })
    ));
    assert_eq!(error.reason(), DisconnectReason::UselessPeer);
    assert!(a.events.recv().await.is_none());
    b.ended.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_a_status_is_cut_after_5_seconds() {
    let all = EthVersion::ALL;
    let (a, _b) = sessions(&all, &all).await;
    let a = Side::start(a, 2, chain());
    let start = Instant::now();
    assert!(matches!(a.ended.await.unwrap(), PeerError::Silent));
    assert_eq!(start.elapsed().as_secs(), STATUS_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_and_gossip_arrives() {
    let (mut a, mut b) = pair().await;
    let (of_b, of_a) = (a.peer().await, b.peer().await);
    let request = Request::Headers {
        start: BlockId::Number(3),
        limit: 2,
        skip: 0,
        reverse: false,
    };
    let answer = of_b.ask(&request).unwrap();
    let inbound = b.requests.recv().await.unwrap();
    assert_eq!(
        (&inbound.request, inbound.peer),
        (&request, of_a.info.origin.conn)
    );
    let mut items = Items::default();
    items.push(&rlp::encode(Header::default()));
    let message = items.answer(inbound.id);
    inbound.answer(message);
    let headers = Answer::Headers(vec![Header::default()]);
    assert_eq!(answer.await.unwrap().unwrap().answer, headers);

    let transaction = Bytes::from_static(&[2, 0xc0]);
    of_a.send_transactions(crate::wire::encode_transactions([&transaction]));
    let gossip = a.gossip.recv().await.unwrap();
    assert_eq!(gossip.peer.info.origin.conn, of_b.info.origin.conn);
    assert!(matches!(gossip.content, GossipContent::Transactions(all) if all == [transaction]));
    of_a.announce(&Announcement::default());
    let gossip = a.gossip.recv().await.unwrap();
    assert!(matches!(gossip.content, GossipContent::Announced(_)));
    let range = BlockRange {
        latest: 8,
        ..chain().range
    };
    of_a.send_range(range);
    assert!(matches!(a.events.recv().await, Some(PeerEvent::Range)));
    assert_eq!(of_b.range(), range);
}

#[tokio::test(start_paused = true)]
async fn requests_of_snap_go_beside_those_of_eth_by_the_highest_shared_version() {
    let protocols = |snap: &[SnapVersion]| -> Vec<Protocol> {
        let eth = EthVersion::Eth72;
        let snap = snap
            .iter()
            .map(|snap| Protocol::new("snap", snap.number(), snap.length()));
        let eth = Protocol::new("eth", eth.number(), eth.length());
        std::iter::once(eth).chain(snap).collect()
    };
    let codes = Request::Snap(SnapRequest::ByteCodes {
        hashes: vec![B256::repeat_byte(3)],
        bytes: 1000,
    });
    let lists = Request::Snap(SnapRequest::AccessLists {
        blocks: vec![B256::ZERO],
        bytes: 1000,
    });
    for theirs in [&SnapVersion::ALL[..1], &SnapVersion::ALL] {
        let (a, b) = sessions_of(protocols(&SnapVersion::ALL), protocols(theirs)).await;
        let (mut a, mut b) = (Side::start(a, 2, chain()), Side::start(b, 1, chain()));
        let (of_b, of_a) = (a.peer().await, b.peer().await);
        assert_eq!(of_b.info.snap, theirs.last().copied());
        assert_eq!(of_a.info.snap, of_b.info.snap);
        let answer = of_b.ask(&codes).unwrap();
        let inbound = b.requests.recv().await.unwrap();
        assert_eq!(inbound.request, codes);
        let mut items = SnapItems::new(1000);
        items.push_string(b"code");
        let message = items.answer(inbound.id);
        inbound.answer(message);
        let code = Bytes::from_static(b"code");
        let expected = Answer::Snap(SnapAnswer::ByteCodes(vec![code]));
        assert_eq!(answer.await.unwrap().unwrap().answer, expected);
        let asked = of_b.ask(&lists);
        let is_spoken = of_b.info.snap == Some(SnapVersion::Snap2);
        assert_eq!(asked.err(), (!is_spoken).then_some(AskError::NotSpoken));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fifth_open_request_is_not_read_until_one_is_answered() {
    let (mut a, mut b) = pair().await;
    let (of_b, _of_a) = (a.peer().await, b.peer().await);
    let request = Request::Bodies(vec![B256::ZERO]);
    let answers: Vec<_> = (0..=OPEN_REQUESTS)
        .map(|_| of_b.ask(&request).unwrap())
        .collect();
    let mut inbound = Vec::new();
    for _ in 0..OPEN_REQUESTS {
        inbound.push(b.requests.recv().await.unwrap());
    }
    let next = timeout(Duration::from_secs(1), b.requests.recv()).await;
    assert!(next.is_err(), "a fifth request was read");
    for request in inbound {
        let message = Items::default().answer(request.id);
        request.answer(message);
    }
    let last = b.requests.recv().await.unwrap();
    let message = Items::default().answer(last.id);
    last.answer(message);
    for answer in answers {
        assert_eq!(
            answer.await.unwrap().unwrap().answer,
            Answer::Bodies(vec![])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn open_requests_fail_when_the_peer_goes_and_its_reason_is_reported() {
    let (mut a, mut b) = pair().await;
    let (of_b, of_a) = (a.peer().await, b.peer().await);
    let answer = of_b.ask(&Request::Bodies(vec![B256::ZERO])).unwrap();
    let _open = b.requests.recv().await.unwrap();
    of_a.disconnect(DisconnectReason::TooManyPeers);
    assert_eq!(answer.await.unwrap().unwrap_err(), AskError::Gone);
    let (theirs, ours) = (a.ended.await.unwrap(), b.ended.await.unwrap());
    assert!(theirs.is_by_peer() && !ours.is_by_peer());
    for error in [theirs, ours] {
        assert_eq!(error.reason(), DisconnectReason::TooManyPeers);
    }
    drop((a.chain, b.chain));
}

/// What a peer sends after its status, and whether that ends the connection as a breach.
#[tokio::test(start_paused = true)]
async fn messages_that_break_the_protocol_end_the_connection() {
    let empty = |id: u64| Items::default().answer(id);
    let cases = [
        (
            "a second status",
            number::STATUS,
            chain().status(EthVersion::Eth72).encode(),
        ),
        (
            "an answer to nothing",
            number::GET_BLOCK_BODIES + 1,
            empty(0),
        ),
        ("a block on a merged network", number::NEW_BLOCK, vec![0xc0]),
        ("no RLP", number::GET_BLOCK_HEADERS, vec![1, 2, 3]),
        (
            "a range that is none",
            number::BLOCK_RANGE_UPDATE,
            BlockRange::default().encode(),
        ),
        ("a number of no message", 0x0d, vec![0xc0]),
        ("a number beyond the protocol", 22, vec![0xc0]),
    ];
    for (name, number, data) in cases {
        let all = EthVersion::ALL;
        let (a, mut b) = sessions(&all, &all).await;
        let (a, _peer) = beside_script(a, &mut b).await;
        b.writer
            .send(base::FIRST_SHARED + number, &data)
            .await
            .unwrap();
        let error = a.ended.await.unwrap();
        assert!(matches!(error, PeerError::Breach { .. }), "{name}: {error}");
        assert_eq!(b.reader.next().await.unwrap().id, base::FIRST_SHARED);
        let last = b.reader.next().await.unwrap();
        assert_eq!(
            DisconnectReason::decode(&last.data),
            DisconnectReason::ProtocolBreach
        );
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_was_asked_for_may_be_large_and_the_rest_is_not_decompressed() {
    const BODIES: u8 = number::GET_BLOCK_BODIES + 1;
    let zeros = |bytes| vec![0; bytes];
    for (number, most, has_asked) in [
        (number::TRANSACTIONS, MAX_TRANSACTIONS_BYTES, false),
        (number::GET_BLOCK_BODIES, MAX_SMALL_BYTES, false),
        (number::NEW_BLOCK, MAX_SMALL_BYTES, false),
        (BODIES, MAX_SMALL_BYTES, false),
        (BODIES, MAX_MESSAGE_BYTES - 1, true),
    ] {
        for bytes in [most, most + 1] {
            let all = EthVersion::ALL;
            let (a, mut b) = sessions(&all, &all).await;
            let mut a = Side::start(a, 2, chain());
            let status = chain().status(EthVersion::Eth72).encode();
            b.writer.send(base::FIRST_SHARED, &status).await.unwrap();
            let peer = a.peer().await;
            let request = Request::Bodies(vec![B256::ZERO]);
            let _asked = has_asked.then(|| peer.ask(&request).unwrap());
            let id = base::FIRST_SHARED + number;
            b.writer.send(id, &zeros(bytes)).await.unwrap();
            let error = a.ended.await.unwrap();
            let is_refused = matches!(error, PeerError::Session(SessionError::TooLarge { bytes: got }) if got == bytes);
            assert_eq!(
                is_refused,
                bytes > most && !has_asked,
                "{number} {bytes}: {error}"
            );
            assert_eq!(error.reason(), DisconnectReason::ProtocolBreach);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_pinged_after_15_seconds_and_cut_after_30() {
    let all = EthVersion::ALL;
    let (a, mut b) = sessions(&all, &all).await;
    let (a, _peer) = beside_script(a, &mut b).await;
    let start = Instant::now();
    b.reader.next().await.unwrap();
    assert_eq!(b.reader.next().await.unwrap().id, base::PING);
    assert_eq!(start.elapsed().as_secs(), 15);
    assert!(matches!(a.ended.await.unwrap(), PeerError::Silent));
    assert_eq!(start.elapsed().as_secs(), 30);
    let last = b.reader.next().await.unwrap();
    assert_eq!(
        DisconnectReason::decode(&last.data),
        DisconnectReason::PingTimeout
    );
}

#[tokio::test(start_paused = true)]
async fn two_idle_peers_stay_connected() {
    let (mut a, mut b) = pair().await;
    let (_of_b, _of_a) = (a.peer().await, b.peer().await);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!a.ended.is_finished() && !b.ended.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_cut() {
    let all = EthVersion::ALL;
    let (a, mut b) = sessions(&all, &all).await;
    let (a, peer) = beside_script(a, &mut b).await;
    // Hashes don't get smaller by compression.
    let hashes = (0..8000_u32).flat_map(|n| niwaki_crypto::keccak256(n.to_be_bytes()).0);
    let noise: Vec<u8> = hashes.collect();
    peer.send_transactions(noise);
    assert!(matches!(a.ended.await.unwrap(), PeerError::DoesNotRead));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_asks_200_times_at_once_is_read_at_50_a_second() {
    let all = EthVersion::ALL;
    let (a, mut b) = sessions(&all, &all).await;
    let (mut a, _peer) = beside_script(a, &mut b).await;
    let start = Instant::now();
    let request = Request::Bodies(vec![B256::ZERO]);
    for id in 0..200 {
        let message = request.encode(id, EthVersion::Eth72);
        let number = base::FIRST_SHARED + number::GET_BLOCK_BODIES;
        b.writer.send(number, &message).await.unwrap();
    }
    for _ in 0..200 {
        drop(a.requests.recv().await.unwrap());
    }
    // 50 at once; then one in 20 ms.
    let elapsed_ms = start.elapsed().as_millis();
    assert!((2_900..=3_100).contains(&elapsed_ms), "{elapsed_ms}");
    assert!(!a.ended.is_finished());
}

/// Two sides of which the first is a node, the other a script that has sent its status.
async fn scripted(version: EthVersion) -> (Side, Stream) {
    let (a, mut b) = sessions(&[version], &[version]).await;
    let mut a = Side::start(a, 2, chain());
    let status = chain().status(version).encode();
    b.writer.send(base::FIRST_SHARED, &status).await.unwrap();
    a.peer().await;
    assert_eq!(
        b.reader.next().await.unwrap().id,
        base::FIRST_SHARED + number::STATUS
    );
    (a, b)
}

#[tokio::test(start_paused = true)]
async fn a_peer_of_eth_66_or_68_says_head_and_difficulty_and_any_block_may_be_asked_of_it() {
    for version in [EthVersion::Eth66, EthVersion::Eth67, EthVersion::Eth68] {
        let (a, b) = sessions(&EthVersion::ALL, &[version]).await;
        let (mut a, mut b) = (Side::start(a, 2, chain()), Side::start(b, 1, chain()));
        let (of_b, of_a) = (a.peer().await, b.peer().await);
        let status = &of_b.info.status;
        assert_eq!(status.total_difficulty, chain().total_difficulty);
        let expected = BlockRange {
            earliest: 0,
            latest: BlockRange::UNKNOWN,
            latest_hash: chain().range.latest_hash,
        };
        assert_eq!(of_b.range(), expected);
        // There is no message for it.
        of_a.send_range(chain().range);
        let announced = crate::wire::Announced {
            hash: B256::repeat_byte(5),
            tx_type: 2,
            size: 100,
        };
        let transactions = vec![announced];
        let columns = None;
        of_a.announce(&Announcement {
            transactions,
            columns,
        });
        let gossip = a.gossip.recv().await.unwrap();
        let GossipContent::Announced(announcement) = gossip.content else {
            panic!("{:?}", gossip.content);
        };
        let tx_type = announcement.transactions[0].tx_type;
        let is_typed = tx_type == 2 && announcement.transactions[0].size == 100;
        assert_eq!(is_typed, version == EthVersion::Eth68);
        assert!(is_typed || tx_type == crate::wire::Announced::UNTYPED);
    }
}

#[tokio::test(start_paused = true)]
async fn node_data_is_answered_empty_over_eth_66_and_a_breach_later() {
    let (a, mut b) = scripted(EthVersion::Eth66).await;
    let request = Request::Bodies(vec![B256::ZERO]).encode(9, EthVersion::Eth66);
    let asked = base::FIRST_SHARED + number::GET_NODE_DATA;
    b.writer.send(asked, &request).await.unwrap();
    let answer = b.reader.next().await.unwrap();
    assert_eq!(answer.id, base::FIRST_SHARED + number::NODE_DATA);
    assert_eq!(answer.data, [0xc2, 9, 0xc0]);
    assert!(!a.ended.is_finished());

    for (version, number) in [
        (EthVersion::Eth67, number::GET_NODE_DATA),
        (EthVersion::Eth66, number::NODE_DATA),
        (EthVersion::Eth68, number::BLOCK_RANGE_UPDATE),
    ] {
        let (a, mut b) = scripted(version).await;
        let id = base::FIRST_SHARED + number;
        b.writer.send(id, &request).await.unwrap();
        let error = a.ended.await.unwrap();
        assert!(matches!(error, PeerError::Breach { .. }), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn before_eth_69_the_blocks_that_a_peer_sends_say_which_it_has() {
    let spec = niwaki_rules::ChainSpec::frontier(1);
    let validators = crate::ValidatorsChain {
        spec: Arc::new(spec),
        block: Arc::new(|_| None),
    };
    let chain = LocalChain {
        is_merged: false,
        validators: Some(validators),
        ..chain()
    };
    let (a, b) = sessions(&[EthVersion::Eth66], &[EthVersion::Eth66]).await;
    let (mut a, mut b) = (
        Side::start(a, 2, chain.clone()),
        Side::start(b, 1, chain.clone()),
    );
    let (of_a, of_b) = (b.peer().await, a.peer().await);
    assert_eq!(of_b.range().latest, BlockRange::UNKNOWN);
    let mut block = niwaki_primitives::Block::default();
    for number in [7, 6] {
        block.header.number = number;
        of_a.send_new_block(&crate::wire::new_block(&block, U256::from(1)).into());
    }
    assert!(matches!(a.events.recv().await, Some(PeerEvent::Range)));
    block.header.number = 7;
    let range = of_b.range();
    let expected = (7, block.header.hash_slow());
    assert_eq!((range.latest, range.latest_hash), expected);
}
