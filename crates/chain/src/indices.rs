//! The indices of the canonical chain: numbers, transactions.

use crate::Chain;
use niwaki_primitives::{B256, BlockBody, Fault};
use niwaki_state::BlockId;
use niwaki_storage::{Batch, Segment, corrupt};

/// The place of a transaction in the canonical chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionPlace {
    /// Number of the block.
    pub number: u64,
    /// Index in the block, from zero.
    pub index: u32,
}

impl Chain {
    /// The hash of the canonical block `number`.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn canonical_hash(&self, number: u64) -> Result<Option<B256>, Fault> {
        let key = number.to_be_bytes();
        let row = self.database().get(Segment::Canonical, &key)?;
        let hash = row.map(|row| {
            B256::try_from(&row[..])
                .map_err(|_| corrupt(Segment::Canonical, &key, "a hash has 32 bytes"))
        });
        hash.transpose()
    }

    /// The place of the transaction with this hash in the canonical chain, if it is there.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn transaction_place(&self, hash: &B256) -> Result<Option<TransactionPlace>, Fault> {
        let row = self
            .database()
            .get(Segment::Transactions, hash.as_slice())?;
        let place = row.map(|row| {
            decode_place(&row)
                .ok_or_else(|| corrupt(Segment::Transactions, hash.as_slice(), "not 12 bytes"))
        });
        place.transpose()
    }
}

fn decode_place(row: &[u8]) -> Option<TransactionPlace> {
    let (number, index) = row.split_first_chunk::<8>()?;
    let index = u32::from_be_bytes(index.try_into().ok()?);
    let number = u64::from_be_bytes(*number);
    Some(TransactionPlace { number, index })
}

/// Adds a block to the canonical indices.
pub(crate) fn index_canonical(block: &BlockId, body: &BlockBody, batch: &mut Batch) {
    index_number(block, batch);
    index_transactions(block.number, body, batch);
}

/// Makes a block the canonical one of its number.
pub(crate) fn index_number(block: &BlockId, batch: &mut Batch) {
    let number = block.number.to_be_bytes();
    batch.put(Segment::Canonical, &number, block.hash.as_slice());
}

/// Adds the places of transactions, for readers who compare what they find there.
pub(crate) fn index_transactions(number: u64, body: &BlockBody, batch: &mut Batch) {
    let number = number.to_be_bytes();
    for (index, tx) in (0_u32..).zip(&body.transactions) {
        let place = [&number[..], &index.to_be_bytes()];
        batch.put_parts(Segment::Transactions, &[tx.tx_hash().as_slice()], &place);
    }
}

/// Removes a block from the canonical indices.
pub(crate) fn unindex_canonical(block: &BlockId, body: &BlockBody, batch: &mut Batch) {
    batch.delete(Segment::Canonical, &block.number.to_be_bytes());
    for tx in &body.transactions {
        batch.delete(Segment::Transactions, tx.tx_hash().as_slice());
    }
}
