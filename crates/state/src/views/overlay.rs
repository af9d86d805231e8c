//! The state of another recent block as what differs from the head, by trie logs.
//!
//! From the head the path goes back to the common ancestor, each log undone, and then forward, each log applied.
//! The diffs on it, one layer per block, are an [`Overlay`]:
//!
//! ```text
//! 10 --- 11 --- 12 (head)         overlay of 12':  [ undo 12, undo 11, apply 11', apply 12' ]
//!   \
//!    11' --- 12'                  its branch:      [ 12', 11' ]
//! ```
//!
//! The last few overlays are kept. A child of a side block needs only one layer more, and when the head moves to a
//! child, an overlay gets that block's inverted diff below its layers instead of being read again.

use crate::commit::hashed_diff::{DiffAccumulator, HashedDiff};
use crate::views::layers::DiffLayers;
use crate::{BlockId, StateHead, TrieLog};
use niwaki_primitives::{B256, Fault};
use niwaki_storage::{Database, Segment, corrupt};
use std::collections::VecDeque;
use std::sync::Arc;

/// The state of a block as what differs from the head.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    pub(crate) block: BlockId,
    /// From the head's state to the block's.
    pub(crate) layers: DiffLayers,
    /// The block and its ancestors that are not ancestors of the head, highest first.
    branch: VecDeque<BlockId>,
}

impl Overlay {
    /// The hash of the ancestor `number`, if it is not an ancestor of the head.
    pub(crate) fn ancestor(&self, number: u64) -> Option<B256> {
        let block = self.branch.iter().find(|block| block.number == number);
        block.map(|block| block.hash)
    }

    /// The state of `block`, a child of the block of `parent`, or of the head.
    pub(crate) fn child(parent: Option<&Arc<Self>>, block: BlockId, layers: DiffLayers) -> Self {
        let mut branch = parent.map_or_else(VecDeque::new, |parent| parent.branch.clone());
        branch.push_front(block);
        Self {
            block,
            layers,
            branch,
        }
    }
}

/// The last few overlays, and how the head has moved since they were made.
#[derive(Debug, Default)]
pub(crate) struct OverlayCache {
    head: B256,
    /// Latest first, each with the number of head moves after which it was made.
    recent: VecDeque<(u64, Arc<Overlay>)>,
    /// Moves of the head from a block to its child, and the diffs of the last of them.
    head_moves: u64,
    head_diffs: VecDeque<Arc<HashedDiff>>,
}

impl OverlayCache {
    const MAX_OVERLAYS: usize = 8;
    /// An overlay that was not requested while the head made this many moves is dropped.
    const MAX_MOVES: usize = 32;

    /// The state of `block` as an overlay over `head`.
    pub(crate) fn get(&self, head: &StateHead, block: &BlockId) -> Option<Arc<Overlay>> {
        let mut recent = self.recent.iter().filter(|_| self.head == head.block.hash);
        let (moves, cached) = recent.find(|(_, overlay)| overlay.block == *block)?;
        let since = usize::try_from(self.head_moves - moves).ok()?;
        if since == 0 {
            return Some(Arc::clone(cached));
        }
        let mut overlay = Overlay::clone(cached);
        let first = self.head_diffs.len().checked_sub(since)?;
        for diff in self.head_diffs.range(first..) {
            let back = HashedDiff::clone(diff).inverted();
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
            .retain(|(_, cached)| cached.block != overlay.block);
        self.recent.truncate(Self::MAX_OVERLAYS - 1);
        self.recent.push_front((self.head_moves, overlay));
    }

    /// The head has moved from `parent` to its child `block` by `diff`.
    pub(crate) fn advance_head(&mut self, parent: &B256, block: &BlockId, diff: &Arc<HashedDiff>) {
        if self.head != *parent {
            self.recent.clear();
        }
        self.head = block.hash;
        // An overlay on top of the new head now has fewer layers: it is made again instead of extended.
        let is_side_block = |overlay: &Overlay| !overlay.branch.contains(block);
        self.recent.retain(|(_, overlay)| is_side_block(overlay));
        if self.recent.is_empty() {
            self.head_diffs.clear();
            return;
        }
        self.head_moves += 1;
        self.head_diffs.push_back(Arc::clone(diff));
        if self.head_diffs.len() > Self::MAX_MOVES {
            self.head_diffs.pop_front();
        }
        let oldest = self.head_moves - self.head_diffs.len() as u64;
        self.recent.retain(|(moves, _)| *moves >= oldest);
    }
}

/// The trie log of `block`, if it is still kept.
pub(crate) fn read_log(database: &Database, block: &BlockId) -> Result<Option<TrieLog>, Fault> {
    let key = block.to_key();
    let row = database.get(Segment::TrieLogs, &key)?;
    let decode = |row: Vec<u8>| {
        TrieLog::decode(&row).map_err(|error| corrupt(Segment::TrieLogs, &key, error))
    };
    row.map(decode).transpose()
}

/// The path from the head to another block, by trie logs.
#[derive(Debug, Default)]
pub(crate) struct RollPath {
    /// Blocks to undo, in this order, each with the diff to its parent.
    pub(crate) undo: Vec<(BlockId, HashedDiff)>,
    /// Blocks to apply after that, in this order, each with its diff.
    pub(crate) apply: Vec<(BlockId, HashedDiff)>,
}

/// The path from `head` to `block`; `None` if a trie log on it is not kept (the block is too old, or was never
/// executed).
pub(crate) fn roll_path(
    database: &Database,
    head: &StateHead,
    block: BlockId,
) -> Result<Option<RollPath>, Fault> {
    let (mut target, mut start) = (block, head.block);
    let mut path = RollPath::default();
    while target != start {
        // The higher of the two steps to its parent, until they meet at the common ancestor.
        let is_target = target.number >= start.number;
        let from = if is_target { &mut target } else { &mut start };
        let Some(number) = from.number.checked_sub(1) else {
            return Ok(None);
        };
        let Some(TrieLog { parent, diff }) = read_log(database, from)? else {
            return Ok(None);
        };
        match is_target {
            true => path.apply.push((*from, diff)),
            false => path.undo.push((*from, diff.inverted())),
        }
        let hash = parent;
        *from = BlockId { number, hash };
    }
    path.apply.reverse();
    Ok(Some(path))
}

/// The state of `block` as an overlay over `head`; `None` as for [`roll_path`].
pub(crate) fn overlay_at(
    database: &Database,
    head: &StateHead,
    block: BlockId,
) -> Result<Option<Overlay>, Fault> {
    let Some(RollPath { undo, apply }) = roll_path(database, head, block)? else {
        return Ok(None);
    };
    let branch = apply.iter().rev().map(|(block, _)| *block).collect();
    let steps = undo.into_iter().chain(apply);
    let layers = steps.map(|(_, diff)| Arc::new(diff)).collect();
    Ok(Some(Overlay {
        block,
        layers,
        branch,
    }))
}

/// The diff from the state of `head` to that of `block`; `None` as for [`roll_path`].
pub(crate) fn diff_to(
    database: &Database,
    head: &StateHead,
    block: BlockId,
) -> Result<Option<HashedDiff>, Fault> {
    let Some(RollPath { undo, apply }) = roll_path(database, head, block)? else {
        return Ok(None);
    };
    let mut joined = DiffAccumulator::default();
    let steps = undo.into_iter().chain(apply);
    steps.for_each(|(_, diff)| joined.add(diff));
    Ok(Some(joined.finish()))
}
