//! The last invalid blocks, for `debug_getBadBlocks`. In memory only, and few: peers can fill it.

use crate::Chain;
use alloy_rlp::Encodable;
use niwaki_primitives::{B256, Block};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many are kept, as many as geth keeps, and bytes of their RLP.
const MAX_BLOCKS: usize = 10;
const MAX_BYTES: usize = 32 << 20;

/// Refused blocks, oldest first.
#[derive(Debug, Default)]
pub(crate) struct BadBlocks {
    blocks: VecDeque<(B256, Arc<Block>, usize)>,
    bytes: usize,
}

impl BadBlocks {
    /// Adds a block, unless it is there already, and drops the oldest ones beyond the limits.
    pub(crate) fn put(&mut self, block: &Arc<Block>, hash: B256) {
        if self.blocks.iter().any(|(known, ..)| *known == hash) {
            return;
        }
        let bytes = block.length();
        self.blocks.push_back((hash, Arc::clone(block), bytes));
        self.bytes += bytes;
        while self.blocks.len() > MAX_BLOCKS || self.bytes > MAX_BYTES {
            let Some((.., bytes)) = self.blocks.pop_front() else {
                return;
            };
            self.bytes -= bytes;
        }
    }
}

impl Chain {
    /// The last invalid blocks with their hashes, highest first, without those that are only descendants of one.
    pub fn refused_blocks(&self) -> Vec<(B256, Arc<Block>)> {
        let bad = self.bad_blocks();
        let blocks = bad.blocks.iter();
        let mut blocks: Vec<_> = blocks
            .map(|(hash, block, _)| (*hash, Arc::clone(block)))
            .collect();
        drop(bad);
        blocks.sort_by_key(|(_, block)| std::cmp::Reverse(block.header.number));
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::Header;

    fn block(number: u64, extra_bytes: usize) -> Arc<Block> {
        let header = Header {
            number,
            extra_data: vec![1; extra_bytes].into(),
            ..Header::default()
        };
        Arc::new(Block {
            header,
            ..Block::default()
        })
    }

    #[test]
    fn bad_blocks_are_listed_once_each_within_10_blocks_and_32_mib() {
        let mut bad = BadBlocks::default();
        for number in 0..=MAX_BLOCKS as u64 {
            let hash = B256::with_last_byte(u8::try_from(number).unwrap());
            bad.put(&block(number, 0), hash);
            bad.put(&block(number, 0), hash);
        }
        let numbers: Vec<u64> = bad.blocks.iter().map(|b| b.1.header.number).collect();
        assert_eq!(numbers, (1..=MAX_BLOCKS as u64).collect::<Vec<_>>());
        bad.put(&block(77, MAX_BYTES - 100), B256::repeat_byte(7));
        assert!(bad.blocks.len() <= 1, "{}", bad.blocks.len());
        bad.put(&block(78, MAX_BYTES), B256::repeat_byte(8));
        assert_eq!((bad.blocks.len(), bad.bytes), (0, 0));
    }
}
