//! A chain whose state comes from peers: from the genesis block to a late block without the blocks between.
//!
//! ```text
//! head: genesis --begin--> genesis, without a state --ranges, tries--> finish: head = pivot, with the blocks before it
//! ```
//!
//! The pivot comes with its last ancestors, whole: BLOCKHASH reads their hashes, and peers and RPC find a chain that goes back some way.

use crate::events::HeadChange;
use crate::indices::{index_number, index_transactions};
use crate::persist::{add_header, add_parts};
use crate::tree::{FIRST_BLOCK, StoredHeader};
use crate::{Chain, StateHead};
use niwaki_primitives::{BlockBody, Bytes, Fault, Receipt, U256};
use niwaki_rules::Network;
use niwaki_state::StateDownload;
use niwaki_storage::{Batch, Segment};
use niwaki_threads::lock;

/// So many blocks come with a state, the pivot among them, or all since the genesis block.
pub const BLOCKS_WITH_STATE: u64 = crate::state_file::BLOCKS;

/// A block whose parts are verified against its header, and the header by the hash of its child.
#[derive(Clone, Debug)]
pub struct DownloadedBlock {
    /// The header.
    pub header: StoredHeader,
    /// The body.
    pub body: BlockBody,
    /// The receipts, one per transaction.
    pub receipts: Vec<Receipt>,
    /// The RLP of the block access list, if there is one.
    pub access_list: Option<Bytes>,
}

impl DownloadedBlock {
    /// Adds it to the canonical chain.
    pub(crate) fn add_to(&self, batch: &mut Batch) {
        add_header(&self.header, batch);
        index_number(&self.header.id, batch);
        self.add_parts_to(batch);
    }

    /// Adds body, receipts, block access list and places of transactions, which are not read while there is no header.
    pub(crate) fn add_parts_to(&self, batch: &mut Batch) {
        let (id, body) = (&self.header.id, &self.body);
        let list = self.access_list.as_ref();
        add_parts(id, body, &self.receipts, list, batch);
        index_transactions(id.number, body, batch);
    }
}

impl Chain {
    /// Whether the state of the head is here: it is not while one is downloaded.
    pub fn has_state(&self) -> bool {
        self.world().head().is_some()
    }

    /// The total difficulty of blocks of proof of stake of whose ancestors no difficulty is stored: known of mainnet and Sepolia, else
    /// the least that it can be.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn merged_difficulty(&self) -> Result<U256, Fault> {
        let hash = self.genesis_hash();
        let mut networks = Network::ALL.into_iter();
        let network = networks.find(|network| network.genesis_hash() == hash);
        if let Some(difficulty) = network.and_then(Network::merged_difficulty) {
            return Ok(difficulty);
        }
        let genesis = self.header(&hash)?;
        let of_genesis = genesis.map_or(U256::ZERO, |genesis| genesis.total_difficulty);
        let terminal = self.spec().terminal_total_difficulty.unwrap_or_default();
        Ok(of_genesis.max(terminal))
    }

    /// Gives the genesis state up for that of `pivot`.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If the head is not the genesis block, or the chain is an archive.
    pub fn begin_state_download(&self, pivot: StateHead) -> Result<StateDownload<'_>, Fault> {
        let _writer = self.writer();
        let head = self.head().id.hash;
        assert_eq!(head, self.genesis_hash(), "blocks were executed already");
        *self.side_block() = None;
        self.world().begin_download(pivot)
    }

    /// The download that was begun and not finished, by this process or an earlier one.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn resume_state_download(&self) -> Result<Option<StateDownload<'_>>, Fault> {
        self.world().resume_download()
    }

    /// Whether there is a download that was begun and not finished.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn has_state_download(&self) -> Result<bool, Fault> {
        self.world().has_download()
    }

    /// Makes the pivot the head. `blocks` are it and its last ancestors, the lowest first; durable when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then nothing was written.
    ///
    /// # Panics
    /// If the last block is not the pivot.
    pub fn finish_state_download(
        &self,
        download: StateDownload<'_>,
        blocks: &[DownloadedBlock],
    ) -> Result<(), Fault> {
        let _writer = self.writer();
        let head = blocks.last().map(|block| &block.header);
        let head = head.filter(|head| head.id == download.pivot().block);
        let head = head.expect("the pivot is the last block").clone();
        let mut batch = Batch::new();
        for block in blocks {
            block.add_to(&mut batch);
        }
        let first = blocks.first().map_or(0, |block| block.header.id.number);
        batch.put(Segment::Meta, FIRST_BLOCK, &first.to_be_bytes());
        download.finish(batch)?;
        *lock(&self.head) = head.clone();
        self.notify_listeners(&HeadChange {
            added: vec![head.id],
            head,
            removed: Vec::new(),
            changed: None,
        });
        Ok(())
    }
}
