//! The way between the head and another recent block, by trie logs.

use crate::changes::{Changes, Joined};
use crate::disk_trie::corrupt;
use crate::layers::Layers;
use crate::{BlockId, LogRow, StateHead};
use niwaki_primitives::{B256, Fault};
use niwaki_storage::{Database, Segment};
use std::collections::VecDeque;
use std::sync::Arc;

/// The key of a block's trie log, header, body or receipts.
pub(crate) fn block_key(block: &BlockId) -> [u8; 40] {
    let mut key = [0; 40];
    key[..8].copy_from_slice(&block.number.to_be_bytes());
    key[8..].copy_from_slice(block.hash.as_slice());
    key
}

/// The state of a block as what differs from the head.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    pub(crate) block: BlockId,
    /// From the head's state to the block's.
    pub(crate) layers: Layers,
    /// The block and its ancestors that are not ancestors of the head, highest first.
    branch: VecDeque<BlockId>,
}

impl Overlay {
    /// The hash of the ancestor `number`, if it is one that the head does not have.
    pub(crate) fn ancestor(&self, number: u64) -> Option<B256> {
        let block = self.branch.iter().find(|block| block.number == number);
        block.map(|block| block.hash)
    }

    /// The state of a child of the block of `parent`, or of the head.
    pub(crate) fn child(parent: Option<&Arc<Self>>, block: BlockId, layers: Layers) -> Self {
        let mut branch = parent.map_or_else(VecDeque::new, |parent| parent.branch.clone());
        branch.push_front(block);
        Self {
            block,
            layers,
            branch,
        }
    }
}

/// The last few overlays, and the way of the head since they were made.
#[derive(Debug, Default)]
pub(crate) struct Overlays {
    head: B256,
    /// Latest first, each with the count of moves of the head that it is laid over.
    recent: VecDeque<(u64, Arc<Overlay>)>,
    /// Moves of the head from a block to its child, and what the last of them changed.
    moves: u64,
    forth: VecDeque<Arc<Changes>>,
}

impl Overlays {
    const KEPT: usize = 8;
    /// An overlay that nobody has asked for while the head made so many moves is dropped.
    const MOVES_KEPT: usize = 32;

    /// The state of `block` seen from `head`.
    pub(crate) fn get(&self, head: &StateHead, block: &BlockId) -> Option<Arc<Overlay>> {
        let mut recent = self.recent.iter().filter(|_| self.head == head.block.hash);
        let (moves, known) = recent.find(|(_, overlay)| overlay.block == *block)?;
        let since = usize::try_from(self.moves - moves).ok()?;
        if since == 0 {
            return Some(Arc::clone(known));
        }
        let mut overlay = Overlay::clone(known);
        let first = self.forth.len().checked_sub(since)?;
        for forth in self.forth.range(first..) {
            let back = Changes::clone(forth).inverted();
            overlay.layers.add_below(Arc::new(back));
        }
        Some(Arc::new(overlay))
    }

    pub(crate) fn put(&mut self, head: &StateHead, overlay: Arc<Overlay>) {
        if self.head != head.block.hash {
            *self = Self {
                head: head.block.hash,
                ..Self::default()
            };
        }
        self.recent
            .retain(|(_, known)| known.block != overlay.block);
        self.recent.truncate(Self::KEPT - 1);
        self.recent.push_front((self.moves, overlay));
    }

    /// Follows the head from `parent` to its child `block`, which made `changes`.
    pub(crate) fn follow(&mut self, parent: &B256, block: &BlockId, changes: &Arc<Changes>) {
        if self.head != *parent {
            self.recent.clear();
        }
        self.head = block.hash;
        // What is upon the new head has fewer layers than it had.
        let is_beside = |overlay: &Overlay| !overlay.branch.contains(block);
        self.recent.retain(|(_, overlay)| is_beside(overlay));
        if self.recent.is_empty() {
            self.forth.clear();
            return;
        }
        self.moves += 1;
        self.forth.push_back(Arc::clone(changes));
        if self.forth.len() > Self::MOVES_KEPT {
            self.forth.pop_front();
        }
        let oldest = self.moves - self.forth.len() as u64;
        self.recent.retain(|(moves, _)| *moves >= oldest);
    }
}

/// The trie log of `block`, if it is still kept.
pub(crate) fn read_log(database: &Database, block: &BlockId) -> Result<Option<LogRow>, Fault> {
    let key = block_key(block);
    let row = database.get(Segment::TrieLogs, &key)?;
    let decode = |row: Vec<u8>| {
        LogRow::decode(&row).map_err(|e| corrupt(Segment::TrieLogs, &key, &e.to_string()))
    };
    row.map(decode).transpose()
}

/// The way from the head to another block, by trie logs.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// Blocks to be taken back, in that order, each with the changes to its parent.
    pub(crate) down: Vec<(BlockId, Changes)>,
    /// Blocks to be applied, in that order, each with its changes.
    pub(crate) up: Vec<(BlockId, Changes)>,
}

/// The way from `head` to `block`; `None` if a trie log on it is not kept (too old, or never
/// executed).
pub(crate) fn way(
    database: &Database,
    head: &StateHead,
    block: BlockId,
) -> Result<Option<Way>, Fault> {
    let (mut up, mut down) = (block, head.block);
    let mut way = Way::default();
    while up != down {
        let goes_up = up.number >= down.number;
        let from = if goes_up { &mut up } else { &mut down };
        let Some(number) = from.number.checked_sub(1) else {
            return Ok(None);
        };
        let Some(LogRow { parent, changes }) = read_log(database, from)? else {
            return Ok(None);
        };
        match goes_up {
            true => way.up.push((*from, changes)),
            false => way.down.push((*from, changes.inverted())),
        }
        let hash = parent;
        *from = BlockId { number, hash };
    }
    way.up.reverse();
    Ok(Some(way))
}

/// The state of `block` seen from `head`; `None` as for [`way`].
pub(crate) fn overlay_at(
    database: &Database,
    head: &StateHead,
    block: BlockId,
) -> Result<Option<Overlay>, Fault> {
    let Some(Way { down, up }) = way(database, head, block)? else {
        return Ok(None);
    };
    let branch = up.iter().rev().map(|(block, _)| *block).collect();
    let steps = down.into_iter().chain(up);
    let layers = steps.map(|(_, changes)| Arc::new(changes)).collect();
    Ok(Some(Overlay {
        block,
        layers,
        branch,
    }))
}

/// All that differs from `head` after `block`; `None` as for [`way`].
pub(crate) fn changes_to(
    database: &Database,
    head: &StateHead,
    block: BlockId,
) -> Result<Option<Changes>, Fault> {
    let Some(Way { down, up }) = way(database, head, block)? else {
        return Ok(None);
    };
    let mut joined = Joined::default();
    let steps = down.into_iter().chain(up);
    steps.for_each(|(_, changes)| joined.add(changes));
    Ok(Some(joined.finish()))
}
