//! The vectors of EIP-8, and a handshake from both sides.

use super::*;
use crate::rlpx::frame::FrameDecoder;
use niwaki_primitives::{b256, hex};

const KEY_A: B256 = b256!("49a7b37aa6f6645917e7b807e9d1c00d4fa71f18343b0d4122a4d2df64dd6fee");
const KEY_B: B256 = b256!("b71c71a67e1177ad4e901695e1b4b9ee17ae16c6668d313eac2f96dbcda3f291");
const ONE_TIME_A: B256 = b256!("869d6ecf5211f1cc60418a13b9d870b22959d0c16f02bec714c960dd2298a32d");
const ONE_TIME_B: B256 = b256!("e238eb8e04fee6511ab04c6dd3c89ce097b11f25d584863ac2b6d5b35b1847e4");
const NONCE_A: B256 = b256!("7e968bba13b6c50e2c4cd7f241cc0d64d1ac25c7f5952df231ac6a2bda8ee5d6");
const NONCE_B: B256 = b256!("559aead08264d5795d3909718cdd05abd49572e84fe55590eef31a88a08fdffd");

fn vector(name: &str) -> Vec<u8> {
    let file = include_str!("../../../testdata/eip-8.txt");
    let mut lines = file.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    hex::decode(line.expect("it is in the file")).unwrap()
}

fn key(secret: B256) -> NodeKey {
    NodeKey::new(secret).unwrap()
}

fn secrets(one_time: B256, nonce: B256) -> Secrets {
    Secrets {
        one_time: key(one_time),
        nonce,
        ..Secrets::random()
    }
}

#[test]
fn auth_messages_of_eip_8_are_read_in_all_three_forms() {
    for (name, is_old) in [("auth_old", true), ("auth_4", false), ("auth_56", false)] {
        let auth = read_auth(&key(KEY_B), &vector(name)).unwrap();
        let expected = Auth {
            initiator: key(KEY_A).id(),
            one_time: key(ONE_TIME_A).id(),
            nonce: NONCE_A,
            is_old,
        };
        assert_eq!(auth, expected, "{name}");
    }
}

#[test]
fn ack_messages_of_eip_8_are_read_with_any_version_and_more_fields() {
    for name in ["ack_4", "ack_57"] {
        let ack = read_ack(&key(KEY_A), &vector(name)).unwrap();
        let expected = Ack {
            one_time: key(ONE_TIME_B).id(),
            nonce: NONCE_B,
        };
        assert_eq!(ack, expected, "{name}");
    }
}

#[test]
fn the_recipient_derives_the_mac_state_of_eip_8() {
    let (auth_message, ack_message) = (vector("auth_4"), vector("ack_4"));
    let auth = read_auth(&key(KEY_B), &auth_message).unwrap();
    let secrets = secrets(ONE_TIME_B, NONCE_B);
    let keys = recipient_keys(&secrets, &auth, &auth_message, &ack_message).unwrap();
    let cipher = b256!("80e8632c05fed6fc2a13b0f8d31a3cf645366239170ea067065aba8e28bac487");
    assert_eq!(keys.cipher, cipher);
    let ingress = b256!("0c7ec6340062cc46f5e9f1e3cf86f8c8c403c5a0964f5df0ebd34a75ddc86db5");
    let mut state = keys.ingress.state;
    state.update(b"foo");
    assert_eq!(state.finalize(), ingress);
}

/// An auth in the old form gets an ack in the old form, whose one-time key and nonce follow each other.
#[test]
fn an_old_auth_is_answered_in_the_old_form() {
    let auth = read_auth(&key(KEY_B), &vector("auth_old")).unwrap();
    let ack = write_ack(&secrets(ONE_TIME_B, NONCE_B), &auth).unwrap();
    assert_eq!(ack.len(), vector("ack_old").len());
    let open = |message: &[u8]| ecies::decrypt(&key(KEY_A), message, &[]).unwrap();
    assert_eq!(open(&ack), open(&vector("ack_old")));
}

#[test]
fn both_sides_derive_the_same_keys() {
    let (a, b) = (key(KEY_A), key(KEY_B));
    let (ours, theirs) = (Secrets::random(), Secrets::random());
    let auth_message = write_auth(&a, &ours, &b.id()).unwrap();
    assert!(auth_message.len() > OLD_AUTH_BYTES);
    let auth = read_auth(&b, &auth_message).unwrap();
    assert_eq!(auth.initiator, a.id());
    let ack_message = write_ack(&theirs, &auth).unwrap();
    let ack = read_ack(&a, &ack_message).unwrap();
    let (mut encoder, _) = initiator_keys(&ours, &auth_message, &ack, &ack_message)
        .unwrap()
        .split();
    let (_, mut decoder) = recipient_keys(&theirs, &auth, &auth_message, &ack_message)
        .unwrap()
        .split();
    let mut frame = Vec::new();
    encoder.encode(&[b"first"], &mut frame);
    let (header, body) = frame.split_first_chunk().unwrap();
    let size = decoder.header(header).unwrap();
    let mut body = body.to_vec();
    assert_eq!(body.len(), FrameDecoder::body_bytes(size));
    decoder.body(size, &mut body).unwrap();
    assert_eq!(body, b"first");
}

#[test]
fn messages_that_are_cut_changed_or_for_another_node_are_one_error() {
    let (a, b) = (key(KEY_A), key(KEY_B));
    for name in ["auth_old", "auth_4", "auth_56"] {
        let message = vector(name);
        assert_eq!(read_auth(&a, &message), Err(HandshakeError));
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 0x10;
            assert_eq!(read_auth(&b, &changed), Err(HandshakeError));
            assert_eq!(read_auth(&b, &message[..at]), Err(HandshakeError));
        }
    }
    assert_eq!(read_ack(&b, &vector("ack_4")), Err(HandshakeError));
    assert_eq!(read_ack(&a, &vector("ack_4")[..100]), Err(HandshakeError));
}
