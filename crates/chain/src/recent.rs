//! The blocks taken in last, as they were judged: decoded, with their senders.
//!
//! Whoever follows the head, and who is the first to ask for a new block, finds it here: neither reads
//! rows nor recovers senders once more.

use crate::Chain;
use alloy_rlp::Encodable;
use niwaki_primitives::{B256, RecoveredBlock};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many are kept.
const KEPT: usize = 8;

/// Bytes that they may take.
const KEPT_BYTES: usize = 32 << 20;

/// In memory a block takes so many times its RLP.
const BYTES_PER_RLP_BYTE: usize = 4;

/// Blocks, oldest first, each with its bytes.
#[derive(Debug, Default)]
pub(crate) struct RecentImports {
    blocks: VecDeque<(Arc<RecoveredBlock>, usize)>,
    bytes: usize,
}

impl RecentImports {
    fn put(&mut self, block: Arc<RecoveredBlock>, bytes: usize) {
        self.blocks.push_back((block, bytes));
        self.bytes += bytes;
        while self.blocks.len() > KEPT || self.bytes > KEPT_BYTES {
            let oldest = self.blocks.pop_front();
            self.bytes -= oldest.map_or(self.bytes, |(_, bytes)| bytes);
        }
    }

    fn get(&self, hash: &B256) -> Option<Arc<RecoveredBlock>> {
        let mut blocks = self.blocks.iter().rev();
        let (block, _) = blocks.find(|(block, _)| block.hash == *hash)?;
        Some(Arc::clone(block))
    }
}

impl Chain {
    /// The block with this hash, with its senders, if it is one of those that were taken in last.
    pub fn recently_imported(&self, hash: &B256) -> Option<Arc<RecoveredBlock>> {
        self.recent_imports().get(hash)
    }

    /// Keeps a block that is stored.
    pub(crate) fn remember(&self, block: &Arc<RecoveredBlock>) {
        let bytes = block.block.length() * BYTES_PER_RLP_BYTE;
        self.recent_imports().put(Arc::clone(block), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{Block, Senders};

    fn block(number: u8) -> Arc<RecoveredBlock> {
        Arc::new(RecoveredBlock {
            block: Block::default(),
            hash: B256::repeat_byte(number),
            senders: Senders::default(),
        })
    }

    #[test]
    fn the_last_blocks_are_kept_within_their_number_and_bytes() {
        let mut recent = RecentImports::default();
        for number in 0..12 {
            recent.put(block(number), 1);
        }
        let kept = |recent: &RecentImports| {
            let is_kept = |number: &u8| recent.get(&B256::repeat_byte(*number)).is_some();
            (0..20).filter(is_kept).collect::<Vec<u8>>()
        };
        assert_eq!(kept(&recent), (4..12).collect::<Vec<_>>());
        recent.put(block(12), KEPT_BYTES - 2);
        assert_eq!(kept(&recent), [10, 11, 12]);
        recent.put(block(13), KEPT_BYTES + 1);
        assert!(kept(&recent).is_empty() && recent.bytes == 0);
    }
}
