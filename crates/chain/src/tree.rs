//! Blocks that are stored, canonical or not, by number and hash.

use crate::Chain;
use crate::rows::{decode_header, decode_receipts, header_rlp};
use niwaki_primitives::{B256, Block, BlockBody, Bytes, Fault, Header, Receipt, U256};
use niwaki_rules::{Ancestor, MAX_OMMER_DEPTH};
use niwaki_state::BlockId;
use niwaki_storage::{Database, Segment, corrupt, missing};

/// The row of `meta` with the lowest canonical block above the genesis block that is stored, if that is not the first
/// one.
pub(crate) const FIRST_BLOCK: &[u8] = b"first block";

/// A header with its id and total difficulty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHeader {
    /// Number and hash.
    pub id: BlockId,
    /// The header.
    pub header: Header,
    /// Total difficulty up to and including it.
    pub total_difficulty: U256,
}

/// The header of a block that must be stored.
pub(crate) fn read_header(database: &Database, id: BlockId) -> Result<StoredHeader, Fault> {
    let key = id.to_key();
    let row = database.get(Segment::Headers, &key)?;
    let row = row.ok_or_else(|| missing(Segment::Headers, &key))?;
    let (header, total_difficulty) =
        decode_header(&row).map_err(|reason| corrupt(Segment::Headers, &key, reason))?;
    Ok(StoredHeader {
        id,
        header,
        total_difficulty,
    })
}

impl Chain {
    /// The header of the block with this hash, canonical or not.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn header(&self, hash: &B256) -> Result<Option<StoredHeader>, Fault> {
        if let Some(header) = self.header_in_memory(hash) {
            return Ok(Some(header));
        }
        let id = self.stored_id(hash)?;
        id.map(|id| self.read_header(id)).transpose()
    }

    /// The header of the canonical block `number`.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn header_at(&self, number: u64) -> Result<Option<StoredHeader>, Fault> {
        let hash = self.canonical_hash(number)?;
        hash.map(|hash| self.read_header(BlockId { number, hash }))
            .transpose()
    }

    /// The body of the block with this hash, canonical or not.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn body(&self, hash: &B256) -> Result<Option<BlockBody>, Fault> {
        let id = self.stored_id(hash)?;
        id.map(|id| self.read_body(&id)).transpose()
    }

    /// The block with this hash, canonical or not.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn block(&self, hash: &B256) -> Result<Option<Block>, Fault> {
        let Some(StoredHeader { id, header, .. }) = self.header(hash)? else {
            return Ok(None);
        };
        let body = self.read_body(&id)?;
        Ok(Some(Block { header, body }))
    }

    /// The canonical block `number`.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn block_at(&self, number: u64) -> Result<Option<Block>, Fault> {
        match self.canonical_hash(number)? {
            Some(hash) => self.block(&hash),
            None => Ok(None),
        }
    }

    /// The receipts of the block with this hash, canonical or not, one per transaction.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn receipts(&self, hash: &B256) -> Result<Option<Vec<Receipt>>, Fault> {
        let Some(id) = self.stored_id(hash)? else {
            return Ok(None);
        };
        let key = id.to_key();
        let row = self.database().get(Segment::Receipts, &key)?;
        let row = row.ok_or_else(|| missing(Segment::Receipts, &key))?;
        let receipts = decode_receipts(&row);
        receipts
            .map(Some)
            .map_err(|error| corrupt(Segment::Receipts, &key, error))
    }

    /// The RLP of the header of the canonical block `number`, as it is stored.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn header_rlp_at(&self, number: u64) -> Result<Option<Vec<u8>>, Fault> {
        let Some(hash) = self.canonical_hash(number)? else {
            return Ok(None);
        };
        let key = BlockId { number, hash }.to_key();
        let row = self.database().get(Segment::Headers, &key)?;
        let mut row = row.ok_or_else(|| missing(Segment::Headers, &key))?;
        let rlp = header_rlp(&row).map(|rlp| row.len() - rlp.len());
        let before = rlp.map_err(|reason| corrupt(Segment::Headers, &key, reason))?;
        row.drain(..before);
        Ok(Some(row))
    }

    /// The RLP of the body of the block with this hash, canonical or not, as it is stored.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn body_rlp(&self, hash: &B256) -> Result<Option<Vec<u8>>, Fault> {
        self.row_of(Segment::Bodies, hash)
    }

    /// The receipts of the block with this hash, canonical or not, as they are stored: as [`crate::slim_receipts`] writes them.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn receipts_rlp(&self, hash: &B256) -> Result<Option<Vec<u8>>, Fault> {
        self.row_of(Segment::Receipts, hash)
    }

    /// A row that each block has.
    fn row_of(&self, segment: Segment, hash: &B256) -> Result<Option<Vec<u8>>, Fault> {
        let Some(id) = self.stored_id(hash)? else {
            return Ok(None);
        };
        let key = id.to_key();
        let row = self.database().get(segment, &key)?;
        row.map(Some).ok_or_else(|| missing(segment, &key))
    }

    /// The RLP of the block access list of the block with this hash, canonical or not. `None` also for a block before
    /// Amsterdam, and for one that came with an exported state.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn block_access_list(&self, hash: &B256) -> Result<Option<Bytes>, Fault> {
        let Some(id) = self.stored_id(hash)? else {
            return Ok(None);
        };
        let key = id.to_key();
        let row = self.database().get(Segment::AccessLists, &key)?;
        Ok(row.map(Bytes::from))
    }

    /// The number of the block with this hash, if it is stored.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn number_of(&self, hash: &B256) -> Result<Option<u64>, Fault> {
        self.read_number(Segment::Numbers, hash.as_slice())
    }

    /// Number and hash of the block with this hash, if it is stored.
    pub(crate) fn stored_id(&self, hash: &B256) -> Result<Option<BlockId>, Fault> {
        let (number, hash) = (self.number_of(hash)?, *hash);
        Ok(number.map(|number| BlockId { number, hash }))
    }

    fn read_number(&self, segment: Segment, key: &[u8]) -> Result<Option<u64>, Fault> {
        let row = self.database().get(segment, key)?;
        let number = row.map(|row| row.try_into().map(u64::from_be_bytes));
        let number = number.transpose();
        number.map_err(|_| corrupt(segment, key, "a number has 8 bytes"))
    }

    /// The numbers of the canonical blocks that must be stored, up to the head: the genesis block's,
    /// then all, or those from where an imported state begins.
    pub(crate) fn stored_numbers(&self) -> Result<impl Iterator<Item = u64> + use<>, Fault> {
        let genesis = self.number_of(&self.genesis_hash())?.unwrap_or(0);
        let above = genesis.saturating_add(1);
        let first = self.imported_from()?.unwrap_or(above).max(above);
        Ok(std::iter::once(genesis).chain(first..=self.head().id.number))
    }

    /// The lowest block that is stored with all after it: the genesis block, or the one where an imported state begins.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn first_block(&self) -> Result<u64, Fault> {
        match self.imported_from()? {
            Some(number) => Ok(number),
            None => Ok(self.number_of(&self.genesis_hash())?.unwrap_or(0)),
        }
    }

    fn imported_from(&self) -> Result<Option<u64>, Fault> {
        self.read_number(Segment::Meta, FIRST_BLOCK)
    }

    pub(crate) fn read_header(&self, id: BlockId) -> Result<StoredHeader, Fault> {
        read_header(self.database(), id)
    }

    pub(crate) fn read_body(&self, id: &BlockId) -> Result<BlockBody, Fault> {
        let key = id.to_key();
        let row = self.database().get(Segment::Bodies, &key)?;
        let row = row.ok_or_else(|| missing(Segment::Bodies, &key))?;
        alloy_rlp::decode_exact(&row).map_err(|error| corrupt(Segment::Bodies, &key, error))
    }

    /// The parent of a stored block; `None` for genesis.
    pub(crate) fn parent_of(&self, block: &StoredHeader) -> Result<Option<StoredHeader>, Fault> {
        if block.id.hash == self.genesis_hash() {
            return Ok(None);
        }
        let number = block.id.number.saturating_sub(1);
        let hash = block.header.parent_hash;
        match self.header_in_memory(&hash) {
            Some(parent) => Ok(Some(parent)),
            None => self.read_header(BlockId { number, hash }).map(Some),
        }
    }

    /// The ancestors that may be parents of the ommers of a child of `parent`, nearest first.
    pub(crate) fn ommer_ancestors(&self, parent: &StoredHeader) -> Result<Vec<Ancestor>, Fault> {
        let mut ancestors = Vec::new();
        let mut next = Some(parent.clone());
        while let Some(block) = next.take() {
            let body = self.read_body(&block.id)?;
            let is_last = ancestors.len() as u64 == MAX_OMMER_DEPTH;
            if !is_last {
                next = self.parent_of(&block)?;
            }
            ancestors.push(Ancestor {
                header: block.header,
                hash: block.id.hash,
                total_difficulty: Some(block.total_difficulty),
                ommers: body.ommers.iter().map(Header::hash_slow).collect(),
            });
        }
        Ok(ancestors)
    }
}
