//! The rows of a block other than its state.

use crate::BlockId;
use crate::rows::{encode_header, encode_receipts};
use crate::tree::StoredHeader;
use alloy_rlp::Encodable;
use niwaki_execution::ExecutedBlock;
use niwaki_primitives::{Block, BlockBody, Bytes, Receipt};
use niwaki_storage::{Batch, Segment};
use std::sync::Arc;

/// Parts of blocks with so many bytes are written as tables: smaller ones would be too many files.
pub(crate) const TABLE_BYTES: usize = 4 << 20;

/// Adds header, body, receipts, block access list, and the index from hash to number.
pub(crate) fn add_block(
    block: &StoredHeader,
    body: &BlockBody,
    receipts: &[Receipt],
    access_list: Option<&Bytes>,
    batch: &mut Batch,
) {
    add_header(block, batch);
    add_parts(&block.id, body, receipts, access_list, batch);
}

/// Adds header, and the index from hash to number.
pub(crate) fn add_header(block: &StoredHeader, batch: &mut Batch) {
    batch.put_with(Segment::Headers, &block.id.to_key(), |out| {
        encode_header(&block.header, &block.total_difficulty, out);
    });
    let number = block.id.number.to_be_bytes();
    batch.put(Segment::Numbers, block.id.hash.as_slice(), &number);
}

/// Adds body, receipts and block access list. They are never read while there is no header.
pub(crate) fn add_parts(
    block: &BlockId,
    body: &BlockBody,
    receipts: &[Receipt],
    access_list: Option<&Bytes>,
    batch: &mut Batch,
) {
    let key = block.to_key();
    batch.put_with(Segment::Bodies, &key, |out| {
        out.reserve(body.length());
        body.encode(out);
    });
    batch.put_with(Segment::Receipts, &key, |out| {
        encode_receipts(receipts, out)
    });
    if let Some(access_list) = access_list {
        batch.put(Segment::AccessLists, &key, access_list);
    }
}

/// A block's rows before they are encoded.
pub(crate) struct BlockRows {
    pub(crate) header: StoredHeader,
    pub(crate) block: Arc<Block>,
    pub(crate) executed: ExecutedBlock,
    pub(crate) access_list: Option<Bytes>,
}

impl BlockRows {
    /// Adds them.
    pub(crate) fn add_to(&self, batch: &mut Batch) {
        let (body, receipts) = (&self.block.body, &self.executed.receipts);
        add_block(
            &self.header,
            body,
            receipts,
            self.access_list.as_ref(),
            batch,
        );
    }

    /// Their size in bytes, estimated.
    pub(crate) fn bytes(&self) -> usize {
        const RECEIPT_BYTES: usize = 20;
        const LOG_BYTES: usize = 30;
        let logs = self.executed.receipts.iter().flat_map(|r| &r.logs);
        let logs = logs.map(|log| LOG_BYTES + 33 * log.topics().len() + log.data.data.len());
        let list = self.access_list.as_ref().map_or(0, |list| list.len());
        let receipts = RECEIPT_BYTES * self.executed.receipts.len();
        self.block.length() + receipts + logs.sum::<usize>() + list
    }
}
