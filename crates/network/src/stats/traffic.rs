//! Messages and bytes that come and go, by protocol and message.

use super::{Count, Stats};
use crate::rlpx::hello as base;
use crate::rlpx::{Protocol, SharedProtocol};
use crate::wire::{message_name, snap_message_name};
use std::sync::Arc;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this node.
    Inbound,
    /// From it.
    Outbound,
}

/// The messages of one kind, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCount<'s> {
    /// Which way.
    pub direction: Direction,
    /// The protocol with its version, `eth/69`; `Wire` is the base protocol.
    pub protocol: &'s str,
    /// The message's name; empty if only the owner of the protocol knows it.
    pub name: &'static str,
    /// Its number, from the protocol's first.
    pub code: u8,
    /// How many.
    pub messages: u64,
    /// Their bytes, not compressed.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Row {
    messages: Count,
    bytes: Count,
}

/// The messages of one protocol.
#[derive(Debug)]
pub(super) struct Channel {
    protocol: String,
    name: fn(u8) -> &'static str,
    /// By number; inbound and outbound.
    rows: Box<[[Row; 2]]>,
}

impl Channel {
    fn new(protocol: String, length: u8, name: fn(u8) -> &'static str) -> Self {
        Self {
            protocol,
            name,
            rows: (0..length).map(|_| Default::default()).collect(),
        }
    }

    /// The base protocol, and these.
    pub(super) fn of(protocols: &[Protocol]) -> Box<[Self]> {
        let wire = Self::new("Wire".to_owned(), base::LENGTH, base::message_name);
        let others = protocols.iter().map(|protocol| {
            let name = match protocol.capability.name.as_str() {
                "eth" => message_name,
                "snap" => snap_message_name,
                _ => |_| "",
            };
            Self::new(protocol.capability.to_string(), protocol.length, name)
        });
        std::iter::once(wire).chain(others).collect()
    }

    /// The counts that are not zero.
    pub(super) fn counts(&self) -> impl Iterator<Item = MessageCount<'_>> {
        let rows = (0_u8..).zip(&self.rows);
        let all = rows.flat_map(move |(code, row)| {
            let ways = [Direction::Inbound, Direction::Outbound]
                .into_iter()
                .zip(row);
            ways.map(move |(direction, row)| MessageCount {
                direction,
                protocol: &self.protocol,
                name: (self.name)(code),
                code,
                messages: row.messages.get(),
                bytes: row.bytes.get(),
            })
        });
        all.filter(|count| count.messages > 0)
    }
}

/// Where the protocols of one connection are counted.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    stats: Arc<Stats>,
    /// First number on the connection, how many, and which channel.
    spans: Vec<(u8, u8, usize)>,
}

impl Traffic {
    /// A connection before its Hellos.
    pub(crate) fn new(stats: Arc<Stats>) -> Self {
        let spans = vec![(0, base::LENGTH, 0)];
        Self { stats, spans }
    }

    /// Both sides speak these protocols.
    pub(crate) fn share(&mut self, protocols: &[SharedProtocol]) {
        for shared in protocols {
            let name = shared.capability.to_string();
            let mut channels = self.stats.channels.iter();
            if let Some(channel) = channels.position(|channel| channel.protocol == name) {
                self.spans.push((shared.offset, shared.length, channel));
            }
        }
    }

    /// A message passed. One that no protocol has is not counted.
    pub(crate) fn count(&self, direction: Direction, id: u8, bytes: usize) {
        for (first, length, channel) in &self.spans {
            let code = id.checked_sub(*first).filter(|code| code < length);
            let channel = self.stats.channels.get(*channel);
            if let (Some(code), Some(channel)) = (code, channel)
                && let Some(ways) = channel.rows.get(usize::from(code))
            {
                let row = &ways[direction as usize];
                row.messages.add(1);
                row.bytes.add(bytes as u64);
                return;
            }
        }
    }
}
