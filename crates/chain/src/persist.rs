//! What of a block goes into the batch beside its state.

use crate::rows::{block_key, encode_header, encode_receipts};
use crate::tree::StoredHeader;
use alloy_rlp::Encodable;
use niwaki_primitives::{BlockBody, Bytes, Receipt};
use niwaki_storage::{Batch, Segment};

/// Adds header, body, receipts, block access list and the way from hash to number.
pub(crate) fn add_block(
    block: &StoredHeader,
    body: &BlockBody,
    receipts: &[Receipt],
    access_list: Option<&Bytes>,
    batch: &mut Batch,
) {
    let key = block_key(&block.id);
    batch.put_with(Segment::Headers, &key, |out| {
        encode_header(&block.header, &block.total_difficulty, out);
    });
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
    let number = block.id.number.to_be_bytes();
    batch.put(Segment::Numbers, block.id.hash.as_slice(), &number);
}
