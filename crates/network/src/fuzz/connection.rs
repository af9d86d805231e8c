//! Handshakes, frames, Snappy and the base protocol. Keys are fixed: they are no secret here.

use super::values::{bytes, number, some};
use super::{Form, Target};
use crate::key::{NodeId, NodeKey};
use crate::rlpx::ecies;
use crate::rlpx::frame::{FrameEncoder, FrameKeys, MacState};
use crate::rlpx::handshake::{self, Secrets};
use crate::rlpx::session::decompress;
use crate::rlpx::{
    Capability, Connection, DisconnectReason, Hello, MAX_MESSAGE_BYTES, Message, MessageReader,
};
use crate::wire::fields::list;
use niwaki_primitives::rlp::encode;
use niwaki_primitives::{B256, FixedBytes};
use rand::Rng;
use rand::rngs::SmallRng;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

pub(super) fn targets() -> Vec<Target> {
    vec![
        hello(),
        disconnect(),
        auth(false),
        auth(true),
        ack(),
        frames("frames", framed),
        frames("frames/compressed", framed_compressed),
        snappy(),
    ]
}

fn key(number: u8) -> NodeKey {
    NodeKey::new(B256::repeat_byte(number)).expect("it is below the group order")
}

fn hello() -> Target {
    let valid = |rng: &mut SmallRng| {
        let capability = |rng: &mut SmallRng| Capability {
            name: ["eth", "snap", "les", "istanbul"][rng.random_range(0..4)].into(),
            version: number(rng),
        };
        let hello = Hello {
            version: rng.random_range(4..7),
            client: "Niwaki/v0.1.0/linux-x86_64".into(),
            capabilities: some(rng, 8, capability),
            port: rng.random(),
            id: NodeId(FixedBytes::new(rng.random())),
        };
        hello.encode()
    };
    let read = |data: &[u8]| Hello::decode(data).ok();
    Target::new("hello", Form::Rlp(0), valid, read, Hello::encode).allowed(32, 16 << 10)
}

fn disconnect() -> Target {
    Target::new(
        "disconnect",
        Form::Rlp(0),
        |rng| list(&[&encode(rng.random_range(0..20_u8))]),
        |data| Some(DisconnectReason::decode(data)),
        |reason| DisconnectReason::encode(*reason),
    )
}

/// The auth of node 1 to node 2. What it is read as can't be written again: it is read twice, and must be answered.
fn auth(is_old: bool) -> Target {
    let valid = move |rng: &mut SmallRng| {
        let (initiator, recipient, one_time) = (key(1), key(2).id(), key(3));
        let nonce = B256::new(rng.random());
        let shared = initiator.shared_secret(&recipient);
        let shared = shared.expect("the key of node 2 is on the curve");
        let signature = FixedBytes::from(one_time.sign(&(shared ^ nonce)));
        let hash = one_time.id().position();
        match is_old {
            true => [
                signature.as_slice(),
                hash.as_slice(),
                initiator.id().0.as_slice(),
                nonce.as_slice(),
                &[0],
            ]
            .concat(),
            false => list(&[
                &encode(signature),
                &encode(initiator.id().0),
                &encode(nonce),
                &encode(4_u8),
            ]),
        }
    };
    let read = |data: &[u8]| {
        let auth = handshake::read_auth(&key(2), data).ok()?;
        let ack = handshake::write_ack(&Secrets::random(), &auth);
        ack.expect("an auth that was read can be answered");
        Some((data.to_vec(), auth))
    };
    let (name, form) = match is_old {
        true => ("auth/old", Form::Bytes),
        false => ("auth", Form::Rlp(0)),
    };
    let target = Target::new(name, form, valid, read, |(data, _)| data.clone());
    target.sealed_by(move |body, rng| match is_old {
        true => {
            let sealed = ecies::encrypt(&key(2).id(), &key(4), rng.random(), body, &[]);
            sealed.expect("the key of node 2 is on the curve")
        }
        false => sealed(&key(2).id(), body, rng),
    })
}

fn ack() -> Target {
    let valid = |rng: &mut SmallRng| {
        let nonce = B256::new(rng.random());
        list(&[&encode(key(3).id().0), &encode(nonce), &encode(4_u8)])
    };
    let read = |data: &[u8]| {
        let ack = handshake::read_ack(&key(1), data).ok()?;
        Some((data.to_vec(), ack))
    };
    let target = Target::new("ack", Form::Rlp(0), valid, read, |(data, _)| data.clone());
    target.sealed_by(|body, rng| sealed(&key(1).id(), body, rng))
}

/// A body for its recipient, with its size before it (EIP-8). What does not fit into a size is cut.
fn sealed(recipient: &NodeId, body: &[u8], rng: &mut SmallRng) -> Vec<u8> {
    let body = &body[..body.len().min(2_000)];
    let size = u16::try_from(body.len() + ecies::OVERHEAD).unwrap_or_default();
    let size = size.to_be_bytes();
    let message = ecies::encrypt(recipient, &key(4), rng.random(), body, &size);
    let message = message.expect("the recipient's key is on the curve");
    [&size[..], &message].concat()
}

fn frame_keys(egress: u8, ingress: u8) -> FrameKeys {
    let state = |n| MacState::new(B256::repeat_byte(1), B256::repeat_byte(n), b"message");
    FrameKeys {
        cipher: B256::repeat_byte(2),
        egress: state(egress),
        ingress: state(ingress),
    }
}

fn message(rng: &mut SmallRng) -> Vec<u8> {
    let id = rng.random_range(1..0x40);
    [&[id][..], &bytes(rng, 300)].concat()
}

/// A frame whose data is `body`: the number of the message, and what should be Snappy.
fn framed(body: &[u8], _: &mut SmallRng) -> Vec<u8> {
    let mut out = Vec::new();
    let encoder: &mut FrameEncoder = &mut frame_keys(1, 2).split().0;
    encoder.encode(&[body], &mut out);
    out
}

/// A frame with the message `body`, compressed.
fn framed_compressed(body: &[u8], rng: &mut SmallRng) -> Vec<u8> {
    let (id, data) = body.split_at(body.len().min(1));
    let compressed = snap::raw::Encoder::new().compress_vec(data);
    let compressed = compressed.expect("the body is short");
    framed(&[id, &compressed].concat(), rng)
}

fn frames(name: &str, seal: fn(&[u8], &mut SmallRng) -> Vec<u8>) -> Target {
    let is_compressed = name.ends_with("compressed");
    let valid = move |rng: &mut SmallRng| {
        let message = message(rng);
        if is_compressed {
            return message;
        }
        let (id, data) = message.split_at(1);
        let compressed = snap::raw::Encoder::new().compress_vec(data);
        [id, &compressed.expect("the body is short")].concat()
    };
    let target = Target::new(name, Form::Rlp(1), valid, read_frames, |all| {
        write_frames(all)
    });
    // The frame's size is believed before its data has come, once.
    target
        .sealed_by(seal)
        .allowed(64, MAX_MESSAGE_BYTES + (64 << 10))
}

/// All messages up to the first that can't be read; `None` if that is the first of all.
fn read_frames(data: &[u8]) -> Option<Vec<Message>> {
    let (_, decoder) = frame_keys(2, 1).split();
    let mut reader = MessageReader::compressed(data, decoder);
    let mut all = Vec::new();
    while let Some(Ok(message)) = at_once(reader.next()) {
        all.push(message);
    }
    (!all.is_empty()).then_some(all)
}

fn write_frames(all: &[Message]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Connection::new(key(2).id(), frame_keys(1, 2), &[][..], &mut out).writer;
    writer.compress();
    for message in all {
        let sent = at_once(writer.send(message.id, &message.data));
        assert!(matches!(sent, Some(Ok(_))), "memory takes everything");
    }
    out
}

/// The result of a future that waits for nothing.
fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn snappy() -> Target {
    let compress = |data: &Vec<u8>| {
        let compressed = snap::raw::Encoder::new().compress_vec(data);
        compressed.expect("it is below the limit")
    };
    Target::new(
        "snappy",
        Form::Bytes,
        move |rng| compress(&bytes(rng, 400).repeat(rng.random_range(1..20)).clone()),
        |data| decompress(0x10, data).ok(),
        compress,
    )
    .allowed(32, 64 << 10)
}
