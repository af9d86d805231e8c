//! Blocks as Besu stores them, and those of its history copied.

use super::receipts::decode_receipts;
use super::{BLOCKCHAIN, BesuError, BesuFolder};
use crate::check::{are_receipts_valid, is_body_valid};
use crate::tree::StoredHeader;
use crate::{BlockId, Chain, DownloadedBlock};
use niwaki_primitives::{B256, Block, Bytes, U256};
use niwaki_rules::{ChainSpec, access_list_hash};
use std::sync::Arc;

/// The first byte of a key: what it is of a block. The rest is its hash,
pub(super) const HEADER: u8 = 2;
const BODY: u8 = 3;
const RECEIPTS: u8 = 4;
/// or its number in 32 bytes,
const HASH: u8 = 5;
const TOTAL_DIFFICULTY: u8 = 6;
const ACCESS_LIST: u8 = 8;

/// Blocks are copied by so many at a time,
const CHUNK_BLOCKS: usize = 1_024;
/// or fewer, once their rows have so many bytes.
const CHUNK_BYTES: usize = 8 << 20;

/// What was copied of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedHistory {
    /// Blocks.
    pub blocks: u64,
    /// The lowest block that is stored now, above the genesis block.
    pub first: u64,
    /// Whether all are: Besu may have pruned its own.
    pub is_whole: bool,
}

impl BesuFolder {
    pub(super) fn block_row(&self, kind: u8, hash: &B256) -> Result<Option<Vec<u8>>, BesuError> {
        let key = [&[kind], hash.as_slice()].concat();
        Ok(self.database.get(BLOCKCHAIN, &key)?)
    }

    /// The canonical block of a number.
    pub(crate) fn hash_at(&self, number: u64) -> Result<Option<B256>, BesuError> {
        let key = [&[HASH][..], &U256::from(number).to_be_bytes::<32>()].concat();
        let row = self.database.get(BLOCKCHAIN, &key)?;
        row.map(|row| self.hash(&row, format_args!("the hash of block {number}")))
            .transpose()
    }

    /// The total difficulty up to a block.
    pub(super) fn total_difficulty(&self, hash: &B256) -> Result<U256, BesuError> {
        let row = self.block_row(TOTAL_DIFFICULTY, hash)?;
        row.and_then(|row| U256::try_from_be_slice(&row))
            .ok_or_else(|| self.damaged(format!("it has no total difficulty of block {hash}")))
    }

    /// A block with its receipts, verified, and the bytes of its body and receipts; `None` if any part of it is not there.
    pub(super) fn whole_block(
        &self,
        hash: &B256,
        total_difficulty: U256,
        spec: &ChainSpec,
    ) -> Result<Option<(DownloadedBlock, usize)>, BesuError> {
        let Some((block, body_bytes)) = self.block(hash, spec)? else {
            return Ok(None);
        };
        let Some(rows) = self.block_row(RECEIPTS, hash)? else {
            return Ok(None);
        };
        let wrong = |what: String| self.damaged(format!("block {hash}: {what}"));
        let receipts =
            decode_receipts(&rows).map_err(|error| wrong(format!("its receipts are {error}")))?;
        if !are_receipts_valid(&receipts, &block.header) {
            return Err(wrong("its receipts are not those of the header".to_owned()));
        }
        let access_list = match block.header.block_access_list_hash {
            Some(_) => self.block_row(ACCESS_LIST, hash)?,
            None => None,
        };
        let access_list = access_list.map(Bytes::from);
        let access_list = access_list
            .filter(|rlp| Some(access_list_hash(rlp)) == block.header.block_access_list_hash);
        let Block { header, body } = block;
        let id = BlockId {
            number: header.number,
            hash: *hash,
        };
        let whole = DownloadedBlock {
            header: StoredHeader {
                id,
                header,
                total_difficulty,
            },
            body,
            receipts,
            access_list,
        };
        Ok(Some((whole, body_bytes + rows.len())))
    }

    /// A block, verified, and the bytes of its body; `None` if it is not there.
    fn block(&self, hash: &B256, spec: &ChainSpec) -> Result<Option<(Block, usize)>, BesuError> {
        let Some(header) = self.stored_header(hash)? else {
            return Ok(None);
        };
        let Some(row) = self.block_row(BODY, hash)? else {
            return Ok(None);
        };
        let wrong = |what: String| self.damaged(format!("block {hash}: {what}"));
        if spec.header_hash(&header) != *hash {
            return Err(wrong("its header has another hash".to_owned()));
        }
        let body = alloy_rlp::decode_exact(&row[..])
            .map_err(|error| wrong(format!("its body is {error}")))?;
        let block = Block { header, body };
        match is_body_valid(&block) {
            true => Ok(Some((block, row.len()))),
            false => Err(wrong("its body is not the one of its header".to_owned())),
        }
    }

    /// Copies the blocks below those that the chain has, the highest first, down to the genesis block or to where Besu's end. `report`
    /// gets how many of how many are copied; `false` stops, and another call goes on.
    ///
    /// # Errors
    /// [`BesuError`].
    pub fn copy_history(
        &self,
        chain: &Chain,
        report: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<CopiedHistory, BesuError> {
        let mut copied = CopiedHistory::default();
        let total = chain.first_block()?.saturating_sub(1);
        while let Some(end) = chain.history_end()? {
            let blocks = self.history_below(&end, chain.spec())?;
            if blocks.is_empty() {
                copied.first = end.id.number;
                return Ok(copied);
            }
            copied.blocks += blocks.len() as u64;
            chain.add_history(&blocks)?;
            if !report(copied.blocks, total) {
                return Err(BesuError::Stopped);
            }
        }
        copied.first = chain.first_block()?;
        copied.is_whole = true;
        Ok(copied)
    }

    /// Some blocks below one that is stored, the lowest first; none if Besu has not its parent.
    fn history_below(
        &self,
        end: &StoredHeader,
        spec: &ChainSpec,
    ) -> Result<Vec<DownloadedBlock>, BesuError> {
        let mut blocks: Vec<DownloadedBlock> = Vec::new();
        let mut bytes = 0;
        let mut child = end.clone();
        while blocks.len() < CHUNK_BLOCKS
            && bytes < CHUNK_BYTES
            && child.header.parent_hash != self.genesis
        {
            let parent = child.header.parent_hash;
            let total = child.total_difficulty.checked_sub(child.header.difficulty);
            let total = total
                .ok_or_else(|| self.damaged(format!("the total difficulty of {}", child.id)))?;
            let Some((block, block_bytes)) = self.whole_block(&parent, total, spec)? else {
                break;
            };
            if block.header.id.number.checked_add(1) != Some(child.id.number) {
                return Err(self.damaged(format!("the number of block {parent}")));
            }
            bytes += block_bytes;
            child = block.header.clone();
            blocks.push(block);
        }
        blocks.reverse();
        Ok(blocks)
    }

    /// The canonical blocks above a number, up to Besu's head.
    pub fn blocks_above(
        self: &Arc<Self>,
        number: u64,
        spec: &Arc<ChainSpec>,
    ) -> impl Iterator<Item = Result<Block, BesuError>> + Send + use<> {
        let (folder, spec) = (Arc::clone(self), Arc::clone(spec));
        (number.saturating_add(1)..=self.head.number).map(move |number| {
            let hash = folder.hash_at(number)?;
            let hash = hash.ok_or_else(|| folder.damaged(format!("it has no block {number}")))?;
            let block = folder.block(&hash, &spec)?;
            block
                .map(|(block, _)| block)
                .ok_or_else(|| folder.damaged(format!("block {number} {hash} is not whole")))
        })
    }
}
