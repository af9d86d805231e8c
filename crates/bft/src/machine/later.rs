//! Messages that came too early: for a later height, or votes of a later round.
//!
//! Each validator has the same share of memory, and one message of a kind in a round. Beyond its share the farthest ones go first, so a
//! validator that floods this one loses its own messages only. An author that is no validator at this height may be one at the next: all of
//! these have one share together.

use crate::wire::{Kind, Message, View};
use niwaki_primitives::Address;
use niwaki_rules::ValidatorSet;
use std::collections::BTreeMap;

/// Bytes of all messages.
const MAX_BYTES: usize = 64 << 20;
/// Heights beyond the current one.
const MAX_HEIGHTS: u64 = 10;
/// What a message takes beside its bytes.
const OVERHEAD_BYTES: usize = 512;

type Key = (View, Kind, Address);

/// The messages of one validator, or those of all who are none yet.
#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    messages: BTreeMap<Key, (Message, usize)>,
}

impl Share {
    fn remove(&mut self, key: Key) -> Option<(Message, usize)> {
        let (message, bytes) = self.messages.remove(&key)?;
        self.bytes = self.bytes.saturating_sub(bytes + OVERHEAD_BYTES);
        Some((message, bytes))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// By validator; `None`: those who are none yet.
    shares: BTreeMap<Option<Address>, Share>,
    /// The current height.
    height: u64,
}

impl Later {
    /// None, at this height.
    pub(super) fn new(height: u64) -> Self {
        Self {
            height,
            ..Self::default()
        }
    }

    /// Keeps a message that had so many bytes. Those who are no validators share what one validator has.
    pub(super) fn add(&mut self, message: Message, bytes: usize, validators: &ValidatorSet) {
        let (view, author) = (message.view(), message.author());
        if view.height > self.height.saturating_add(MAX_HEIGHTS) {
            return;
        }
        let max_bytes = MAX_BYTES / (validators.as_slice().len() + 1);
        let share = Some(author).filter(|author| validators.contains(author));
        let share = self.shares.entry(share).or_default();
        let key = (view, message.kind(), author);
        if share.messages.contains_key(&key) {
            return;
        }
        share.bytes += bytes + OVERHEAD_BYTES;
        share.messages.insert(key, (message, bytes));
        while share.bytes > max_bytes {
            let Some(farthest) = share.messages.keys().next_back().copied() else {
                break;
            };
            share.remove(farthest);
        }
    }

    /// Takes out all messages of a height, in the order of their rounds.
    pub(super) fn take_height(&mut self, height: u64) -> Vec<(Message, usize)> {
        self.take(|view| view.height == height)
    }

    /// Takes out all messages of a round.
    pub(super) fn take_view(&mut self, wanted: View) -> Vec<(Message, usize)> {
        self.take(|view| view == wanted)
    }

    fn take(&mut self, is_wanted: impl Fn(View) -> bool) -> Vec<(Message, usize)> {
        let mut taken = BTreeMap::new();
        for share in self.shares.values_mut() {
            let wanted = share.messages.keys();
            let wanted = wanted.filter(|(view, ..)| is_wanted(*view));
            for key in wanted.copied().collect::<Vec<_>>() {
                if let Some(message) = share.remove(key) {
                    taken.insert(key, message);
                }
            }
        }
        taken.into_values().collect()
    }

    /// The height is now this one: what is below goes.
    pub(super) fn forget_below(&mut self, height: u64) {
        self.height = height;
        self.take(|view| view.height < height);
        self.shares.retain(|_, share| !share.messages.is_empty());
    }

    /// Bytes of all messages.
    pub(super) fn bytes(&self) -> usize {
        self.shares.values().map(|share| share.bytes).sum()
    }
}
