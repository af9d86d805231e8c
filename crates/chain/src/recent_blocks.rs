//! The blocks imported last, decoded and with their senders: threads that follow the head, and the first request for a
//! new block, need not read rows or recover senders again.

use crate::Chain;
use alloy_rlp::Encodable;
use niwaki_primitives::{B256, RecoveredBlock};
use niwaki_threads::lock;
use std::collections::VecDeque;
use std::sync::Arc;

/// Most blocks.
const MAX_BLOCKS: usize = 8;

/// Most bytes.
const MAX_BYTES: usize = 32 << 20;

/// A block in memory takes this many times its RLP.
const BYTES_PER_RLP_BYTE: usize = 4;

/// Blocks, oldest first, each with its bytes.
#[derive(Debug, Default)]
pub(crate) struct RecentBlocks {
    blocks: VecDeque<(Arc<RecoveredBlock>, usize)>,
    bytes: usize,
}

impl RecentBlocks {
    fn put(&mut self, block: Arc<RecoveredBlock>, bytes: usize) {
        self.blocks.push_back((block, bytes));
        self.bytes += bytes;
        while self.blocks.len() > MAX_BLOCKS || self.bytes > MAX_BYTES {
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
    /// The block with this hash and its senders, if it is one of those imported last.
    pub fn recent_block(&self, hash: &B256) -> Option<Arc<RecoveredBlock>> {
        lock(&self.recent_blocks).get(hash)
    }

    /// Adds a block that is stored.
    pub(crate) fn cache_recent(&self, block: RecoveredBlock) {
        let bytes = block.block.length() * BYTES_PER_RLP_BYTE;
        lock(&self.recent_blocks).put(Arc::new(block), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u8) -> Arc<RecoveredBlock> {
        Arc::new(RecoveredBlock {
            block: Arc::default(),
            hash: B256::repeat_byte(number),
            senders: Vec::new(),
        })
    }

    #[test]
    fn at_most_8_blocks_and_32_mib_are_kept() {
        let mut recent = RecentBlocks::default();
        for number in 0..12 {
            recent.put(block(number), 1);
        }
        let kept = |recent: &RecentBlocks| {
            let is_kept = |number: &u8| recent.get(&B256::repeat_byte(*number)).is_some();
            (0..20).filter(is_kept).collect::<Vec<u8>>()
        };
        assert_eq!(kept(&recent), (4..12).collect::<Vec<_>>());
        recent.put(block(12), MAX_BYTES - 2);
        assert_eq!(kept(&recent), [10, 11, 12]);
        recent.put(block(13), MAX_BYTES + 1);
        assert!(kept(&recent).is_empty() && recent.bytes == 0);
    }
}
