//! The last blocks that broke the protocol, whole, for `debug_getBadBlocks`.
//!
//! They are kept in memory only, and few of them: any caller that may hand over blocks can fill it.

use crate::Chain;
use alloy_rlp::Encodable;
use niwaki_primitives::{B256, Block};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many are kept, as many as geth keeps, and bytes of their RLP.
const KEPT: usize = 10;
const KEPT_BYTES: usize = 32 << 20;

/// Refused blocks, oldest first.
#[derive(Debug, Default)]
pub(crate) struct BadBlocks {
    blocks: VecDeque<(B256, Arc<Block>, usize)>,
    bytes: usize,
}

impl BadBlocks {
    /// Keeps a block, unless it is kept already.
    pub(crate) fn put(&mut self, block: &Arc<Block>, hash: B256) {
        if self.blocks.iter().any(|(known, ..)| *known == hash) {
            return;
        }
        let bytes = block.length();
        self.blocks.push_back((hash, Arc::clone(block), bytes));
        self.bytes += bytes;
        while self.blocks.len() > KEPT || self.bytes > KEPT_BYTES {
            let Some((.., bytes)) = self.blocks.pop_front() else {
                return;
            };
            self.bytes -= bytes;
        }
    }
}

impl Chain {
    /// The last blocks that were refused because they broke the protocol, each with its hash,
    /// highest first. Those that only built upon one of them are not among them.
    pub fn refused_blocks(&self) -> Vec<(B256, Arc<Block>)> {
        let refused = self.bad_blocks();
        let blocks = refused.blocks.iter();
        let mut blocks: Vec<_> = blocks
            .map(|(hash, block, _)| (*hash, Arc::clone(block)))
            .collect();
        drop(refused);
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
    fn the_last_few_are_kept_once_each_and_no_more_bytes_than_the_bound() {
        let mut kept = BadBlocks::default();
        for number in 0..=KEPT as u64 {
            let hash = B256::with_last_byte(u8::try_from(number).unwrap());
            kept.put(&block(number, 0), hash);
            kept.put(&block(number, 0), hash);
        }
        let numbers: Vec<u64> = kept.blocks.iter().map(|b| b.1.header.number).collect();
        assert_eq!(numbers, (1..=KEPT as u64).collect::<Vec<_>>());
        kept.put(&block(77, KEPT_BYTES - 100), B256::repeat_byte(7));
        assert!(kept.blocks.len() <= 1, "{}", kept.blocks.len());
        kept.put(&block(78, KEPT_BYTES), B256::repeat_byte(8));
        assert_eq!((kept.blocks.len(), kept.bytes), (0, 0));
    }
}
