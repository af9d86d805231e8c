//! The way between the head and another recent block, by trie logs.

use crate::changes::{Changes, Joined};
use crate::disk_trie::corrupt;
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
    pub(crate) changes: Changes,
    /// The block and its ancestors that are not ancestors of the head, highest first.
    branch: VecDeque<BlockId>,
}

impl Overlay {
    /// The hash of the ancestor `number`, if it is one that the head does not have.
    pub(crate) fn ancestor(&self, number: u64) -> Option<B256> {
        let block = self.branch.iter().find(|block| block.number == number);
        block.map(|block| block.hash)
    }

    /// The state of a child of this block that made `changes`.
    pub(crate) fn child(&self, block: BlockId, changes: Changes) -> Self {
        let mut branch = self.branch.clone();
        branch.push_front(block);
        let changes = self.changes.clone().then(changes);
        Self {
            block,
            changes,
            branch,
        }
    }

    /// The state of a child of the head that made `changes`.
    pub(crate) fn child_of_head(block: BlockId, changes: Changes) -> Self {
        let branch = [block].into();
        Self {
            block,
            changes,
            branch,
        }
    }
}

/// The last few overlays over one head.
#[derive(Debug, Default)]
pub(crate) struct Overlays {
    head: B256,
    recent: VecDeque<Arc<Overlay>>,
}

impl Overlays {
    const KEPT: usize = 4;

    pub(crate) fn get(&self, head: &StateHead, block: &BlockId) -> Option<Arc<Overlay>> {
        let mut recent = self.recent.iter().filter(|_| self.head == head.block.hash);
        recent.find(|overlay| overlay.block == *block).cloned()
    }

    pub(crate) fn put(&mut self, head: &StateHead, overlay: Arc<Overlay>) {
        if self.head != head.block.hash {
            self.head = head.block.hash;
            self.recent.clear();
        }
        self.recent.truncate(Self::KEPT - 1);
        self.recent.push_front(overlay);
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
    let mut joined = Joined::default();
    let steps = down.into_iter().chain(up);
    steps.for_each(|(_, changes)| joined.add(changes));
    Ok(Some(Overlay {
        block,
        changes: joined.finish(),
        branch,
    }))
}
