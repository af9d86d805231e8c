//! Blocks whose access lists are applied in the place of an execution (EIP-7928): a list holds every value after its block.
//!
//! For blocks far below a head that the caller trusts, as one does that begins with the state of a late block: the headers lead to it by
//! their hashes. A list that is not what the execution gives leads to another state root, which the last header tells; only what no root
//! covers, such as requests, is taken from the headers as it is.
//!
//! ```text
//! blocks --add--> bodies, receipts, lists: tables that no header names yet
//!            `--> last values of the lists --commit: root == that of the last header--> state, headers, head
//! ```

use super::error::{ImportFailure, fault};
use super::{BodyRoots, ImportError};
use crate::bft::Seals;
use crate::forkchoice::ReorgPath;
use crate::indices::{index_number, index_transactions};
use crate::persist::{TABLE_BYTES, add_header, add_parts};
use crate::{BlockId, Chain, DownloadedBlock, StoredHeader};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{Address, Block, BlockAccessList, Bytes, Fault, Receipt};
use niwaki_rules::{InvalidBlock, decode_access_list};
use niwaki_state::LastValues;
use niwaki_storage::{Batch, Segment, missing};
use std::sync::Arc;

/// The lists are applied once they have changed so many accounts and slots: a value that changes again is written once, and so are the
/// nodes above it. It bounds what they take of memory, some 1.5 KB each while their rows and nodes wait for the disk.
const MAX_VALUES: usize = 1 << 17;
/// They are applied after so many blocks at the latest.
const MAX_BLOCKS: usize = 1 << 12;

/// Blocks above the head, each a child of the one before, whose lists are to be applied together.
#[derive(Debug)]
pub struct ListedBlocks<'c> {
    chain: &'c Chain,
    headers: Vec<StoredHeader>,
    values: LastValues,
    /// Places of their transactions.
    places: Batch,
    /// Parts of blocks with so many bytes are written as tables.
    pub(crate) table_bytes: usize,
}

impl Chain {
    /// Begins with none, on top of the head. What was written before is in the engine when this returns: nothing that is written later
    /// has keys of parts of these blocks.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If the chain is an archive, which needs the states between.
    pub fn listed_blocks(&self) -> Result<ListedBlocks<'_>, Fault> {
        assert!(!self.is_archive(), "an archive has the state of each block");
        self.database().flush()?;
        Ok(ListedBlocks::none(self, TABLE_BYTES))
    }

    /// Whether body, receipts and access list of a block are stored, whether or not its header is. The list is written last.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn has_parts(&self, block: &BlockId) -> Result<bool, Fault> {
        let list = self.database().get(Segment::AccessLists, &block.to_key())?;
        Ok(list.is_some())
    }

    /// A block with [`Chain::has_parts`], without its receipts.
    fn stored_block(&self, header: StoredHeader) -> Result<ListedBlock, Fault> {
        let key = header.id.to_key();
        let list = self.database().get(Segment::AccessLists, &key)?;
        Ok(ListedBlock {
            block: Block {
                header: header.header.clone(),
                body: self.read_body(&header.id)?,
            },
            header,
            receipts: Vec::new(),
            list: list
                .ok_or_else(|| missing(Segment::AccessLists, &key))?
                .into(),
        })
    }

    /// Writes bodies, receipts and lists: as tables, so that they go neither through the log nor through compactions, if they are many.
    fn write_parts(&self, blocks: &[ListedBlock], table_bytes: usize) -> Result<(), Fault> {
        let mut parts = Batch::new();
        for listed in blocks {
            let (id, body) = (&listed.header.id, &listed.block.body);
            let (receipts, list) = (&listed.receipts, Some(&listed.list));
            add_parts(id, body, receipts, list, &mut parts);
        }
        if parts.bytes() < table_bytes {
            return self.database().write(parts, false);
        }
        self.database().ingest_beside_pending(parts)?;
        self.database().remove_staging_dir()
    }
}

impl<'c> ListedBlocks<'c> {
    fn none(chain: &'c Chain, table_bytes: usize) -> Self {
        Self {
            chain,
            headers: Vec::new(),
            values: LastValues::default(),
            places: Batch::new(),
            table_bytes,
        }
    }

    /// Takes the blocks out.
    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::none(self.chain, self.table_bytes))
    }

    /// Adds blocks, whose parts were compared with their headers but for the lists. Applies all lists once they have changed much.
    ///
    /// # Errors
    /// [`ImportError`]; then none of `blocks` is added. A block of others may be named in the place of an invalid one: which one it is,
    /// an execution tells.
    pub fn add(&mut self, blocks: Vec<DownloadedBlock>) -> Result<(), ImportError> {
        self.add_blocks(blocks.into_iter().map(ListedBlock::from).collect(), false)
    }

    /// The same of blocks with [`Chain::has_parts`], which were added before a node ended and never applied.
    ///
    /// # Errors
    /// As [`ListedBlocks::add`].
    pub fn add_stored(&mut self, headers: Vec<StoredHeader>) -> Result<(), ImportError> {
        let chain = self.chain;
        let blocks = headers.into_iter().map(|header| chain.stored_block(header));
        self.add_blocks(blocks.collect::<Result<_, Fault>>()?, true)
    }

    fn add_blocks(
        &mut self,
        blocks: Vec<ListedBlock>,
        are_stored: bool,
    ) -> Result<(), ImportError> {
        let Some(last) = blocks.last().map(|block| block.header.clone()) else {
            return Ok(());
        };
        let added = self.add_checked(blocks, are_stored);
        added.map_err(|failure| failure.at_block(last.id, last.header.parent_hash))?;
        match self.values.len() >= MAX_VALUES || self.headers.len() >= MAX_BLOCKS {
            true => self.commit(),
            false => Ok(()),
        }
    }

    /// Makes the last block that was added the head. There are no states between it and the head of before. The blocks are taken out,
    /// whether or not it succeeds.
    ///
    /// # Errors
    /// [`ImportError`]; then the state has not changed.
    pub fn commit(&mut self) -> Result<(), ImportError> {
        let added = self.take();
        let Some(last) = added.headers.last() else {
            return Ok(());
        };
        let (id, parent) = (last.id, last.header.parent_hash);
        let _guard = self.chain.begin_import();
        let _writer = self.chain.writer();
        let committed = added.commit_all();
        committed.map_err(|failure| failure.at_block(id, parent))
    }

    fn add_checked(
        &mut self,
        blocks: Vec<ListedBlock>,
        are_stored: bool,
    ) -> Result<(), ImportFailure> {
        let lists = decoded_lists(&blocks)?;
        self.validate(&blocks)?;
        let written = std::thread::scope(|scope| {
            let written = scope.spawn(|| match are_stored {
                true => Ok(()),
                false => self.chain.write_parts(&blocks, self.table_bytes),
            });
            lists.iter().for_each(|list| self.values.add(list));
            written.join()
        });
        let written = written.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let Err(error) = written {
            self.take();
            return Err(fault(error));
        }
        for ListedBlock { header, block, .. } in blocks {
            index_transactions(header.id.number, &block.body, &mut self.places);
            self.headers.push(header);
        }
        Ok(())
    }

    /// Nothing is written unless the values lead to the state root of the last header.
    fn commit_all(self) -> Result<(), ImportFailure> {
        let (chain, headers) = (self.chain, self.headers);
        let (Some(first), Some(last)) = (headers.first(), headers.last()) else {
            return Ok(());
        };
        if first.header.parent_hash != chain.head().id.hash {
            return Err(ImportFailure::UnknownParent);
        }
        let root = chain.world().compute_root_of_lists(self.values);
        let root = root.map_err(fault)?;
        // No list deletes an account with storage: an execution says what is wrong.
        let root = root.ok_or(ImportFailure::OutOfReach)?;
        let (got, expected) = (root.root(), last.header.state_root);
        if got != expected {
            return Err(InvalidBlock::StateRoot { got, expected }.into());
        }
        let changed = root.diff().accounts.iter();
        let changed: Arc<[Address]> = changed.map(|account| account.address).collect();
        // Readers compare what they find at a place, so places may come before the blocks.
        let mut batch = self.places;
        if batch.bytes() >= self.table_bytes {
            chain.database().ingest(batch).map_err(fault)?;
            chain.database().remove_staging_dir().map_err(fault)?;
            batch = Batch::new();
        }
        for header in &headers {
            add_header(header, &mut batch);
            index_number(&header.id, &mut batch);
        }
        let committed = chain.world().commit_batch(root, last.id, batch);
        committed.map_err(fault)?;
        let path = ReorgPath {
            added: headers.iter().map(|header| header.id).collect(),
            changed: Some(changed),
            ..ReorgPath::default()
        };
        chain.put_head(last.clone(), path);
        Ok(())
    }

    /// Each block on top of the one before.
    fn validate(&self, blocks: &[ListedBlock]) -> Result<(), ImportFailure> {
        let last = self.headers.last().cloned();
        let mut parent = last.unwrap_or_else(|| self.chain.head());
        for listed in blocks {
            let header = &listed.block.header;
            if header.parent_hash != parent.id.hash {
                return Err(ImportFailure::UnknownParent);
            }
            let roots = BodyRoots {
                transactions: header.transactions_root,
                withdrawals: header.withdrawals_root,
            };
            self.chain
                .validate(&listed.block, &roots, &parent, Seals::Needed)?;
            parent = listed.header.clone();
        }
        Ok(())
    }
}

/// A block without its list's values.
struct ListedBlock {
    header: StoredHeader,
    block: Block,
    receipts: Vec<Receipt>,
    list: Bytes,
}

impl From<DownloadedBlock> for ListedBlock {
    fn from(downloaded: DownloadedBlock) -> Self {
        Self {
            block: Block {
                header: downloaded.header.header.clone(),
                body: downloaded.body,
            },
            header: downloaded.header,
            receipts: downloaded.receipts,
            list: downloaded.access_list.unwrap_or_default(),
        }
    }
}

/// The access list of each block, compared with its header.
fn decoded_lists(blocks: &[ListedBlock]) -> Result<Vec<BlockAccessList>, ImportFailure> {
    let lists: Vec<&[u8]> = blocks.iter().map(|block| &block.list[..]).collect();
    let mut decoded = Vec::with_capacity(lists.len());
    for (block, got) in blocks.iter().zip(keccak256_batch(&lists)) {
        let expected = block.header.header.block_access_list_hash;
        if expected != Some(got) {
            let expected = expected.unwrap_or_default();
            return Err(InvalidBlock::BlockAccessListHash { got, expected }.into());
        }
        decoded.push(decode_access_list(&block.list)?);
    }
    Ok(decoded)
}
