//! Messages of other validators, passed on to those that may not have them.
//!
//! Where each validator is connected with each, a height is over before a message is passed on, and nothing is. Only if it is not over after
//! 50 ms its messages go to all other validators here, once. So validators that are connected through others agree too, and a network that
//! is well pays nothing: to pass all on at once costs n^2 copies of each proposal. One with a large block waits longer, as its height takes
//! longer: its transactions are executed first.

use niwaki_primitives::{Address, Bytes};
use niwaki_rules::BftProtocol;
use std::collections::VecDeque;

/// How long the height has to end by itself.
const AFTER_MS: u64 = 50;
/// and so much longer for each so many bytes.
const MS_MORE: u64 = 1;
const MORE_BYTES: usize = 1 << 10;
/// Messages that wait, and their bytes.
const MAX_WAITING: usize = 256;
const MAX_BYTES: usize = 32 << 20;

/// A message as it came.
#[derive(Clone, Debug)]
pub(super) struct Relay {
    pub(super) protocol: BftProtocol,
    pub(super) code: u8,
    pub(super) bytes: Bytes,
    pub(super) height: u64,
    pub(super) author: Address,
    /// The peer that it came from.
    pub(super) from: Address,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Relays {
    /// With the time at which each is due, the first one first.
    waiting: VecDeque<(u64, Relay)>,
    bytes: usize,
}

impl Relays {
    /// A new message has come. What does not fit is not passed on.
    pub(super) fn add(&mut self, now_ms: u64, relay: Relay) {
        let bytes = self.bytes.saturating_add(relay.bytes.len());
        if self.waiting.len() < MAX_WAITING && bytes <= MAX_BYTES {
            self.bytes = bytes;
            let more = relay.bytes.len() / MORE_BYTES;
            let more_ms = MS_MORE.saturating_mul(more as u64);
            let due_ms = now_ms.saturating_add(AFTER_MS).saturating_add(more_ms);
            let place = self.waiting.partition_point(|(other, _)| *other <= due_ms);
            self.waiting.insert(place, (due_ms, relay));
        }
    }

    /// When the next one is due.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.waiting.front().map(|(due_ms, _)| *due_ms)
    }

    /// Those that are due, of the height that is agreed on (`height`) or the next one.
    pub(super) fn due(&mut self, now_ms: u64, height: u64) -> Vec<Relay> {
        let mut due = Vec::new();
        while let Some((_, relay)) = self
            .waiting
            .pop_front_if(|(due_ms, relay)| *due_ms <= now_ms || relay.height < height)
        {
            self.bytes = self.bytes.saturating_sub(relay.bytes.len());
            // A message of a height that is far away helps no one now.
            if (height..=height.saturating_add(1)).contains(&relay.height) {
                due.push(relay);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(height: u64, bytes: usize) -> Relay {
        Relay {
            protocol: BftProtocol::Qbft,
            code: 0x13,
            bytes: vec![0; bytes].into(),
            height,
            author: Address::repeat_byte(1),
            from: Address::repeat_byte(2),
        }
    }

    #[test]
    fn a_message_is_passed_on_after_50_ms_unless_its_height_is_over() {
        let mut relays = Relays::default();
        relays.add(1_000, relay(7, 10));
        relays.add(1_020, relay(8, 10));
        assert_eq!(relays.next_ms(), Some(1_050));
        assert!(relays.due(1_049, 7).is_empty());
        assert_eq!(relays.due(1_050, 7).len(), 1);
        assert!(relays.due(1_069, 7).is_empty());
        assert!(relays.due(1_070, 9).is_empty());
        relays.add(1_100, relay(99, 10));
        assert!(relays.due(1_150, 9).is_empty());
        assert_eq!((relays.next_ms(), relays.bytes), (None, 0));
    }

    #[test]
    fn a_large_message_waits_longer_and_does_not_hold_up_others() {
        let mut relays = Relays::default();
        relays.add(1_000, relay(7, 200 << 10));
        relays.add(1_010, relay(7, 10));
        let bytes = |due: Vec<Relay>| {
            due.iter()
                .map(|relay| relay.bytes.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(bytes(relays.due(1_060, 7)), [10]);
        assert_eq!(relays.next_ms(), Some(1_250));
        assert_eq!(bytes(relays.due(1_250, 7)), [200 << 10]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut relays = Relays::default();
        for _ in 0..1_000 {
            relays.add(0, relay(1, 1 << 20));
        }
        assert_eq!(relays.due(2_000, 1).len(), 32);
        for _ in 0..1_000 {
            relays.add(0, relay(1, 1));
        }
        assert_eq!(relays.due(2_000, 1).len(), MAX_WAITING);
    }
}
