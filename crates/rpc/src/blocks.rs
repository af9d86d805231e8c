//! A cache of decoded blocks, with senders and receipts computed at most once.

use crate::lock;
use niwaki_chain::{BlockId, Chain};
use niwaki_primitives::rlp::Encodable;
use niwaki_primitives::{Address, B256, Block, BlockBody, Fault, Header, Receipt, RecoveredBlock};
use niwaki_rules::{recover_sender, recover_senders};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};

/// The most blocks in the cache, and the most bytes.
const MAX_CACHED_BLOCKS: usize = 1024;
const MAX_CACHED_BYTES: usize = 64 << 20;

/// A decoded block, whose senders and receipts are computed on demand.
#[derive(Debug)]
pub struct FullBlock {
    /// Number and hash.
    pub id: BlockId,
    /// The header.
    pub header: Header,
    /// The body.
    pub body: BlockBody,
    /// Bytes of its RLP.
    pub bytes: usize,
    senders: OnceLock<Vec<Address>>,
    receipts: OnceLock<Vec<Receipt>>,
}

impl FullBlock {
    /// A block that need not be stored.
    pub fn new(block: Block, hash: B256) -> Self {
        let bytes = block.length();
        let Block { header, body } = block;
        Self {
            id: BlockId {
                number: header.number,
                hash,
            },
            header,
            body,
            bytes,
            senders: OnceLock::new(),
            receipts: OnceLock::new(),
        }
    }

    /// A recently imported block, with its senders.
    fn recovered(recent: &RecoveredBlock) -> Self {
        let block = Self::new((*recent.block).clone(), recent.hash);
        block.set_senders(recent.senders.clone());
        block
    }

    /// The sender of each transaction; zero for an invalid signature, which no stored block has.
    pub fn senders(&self) -> &[Address] {
        self.senders.get_or_init(|| {
            let senders = recover_senders(&self.body.transactions);
            senders.map(Result::unwrap_or_default).collect()
        })
    }

    /// Sets the senders of a simulated block, whose transactions are unsigned.
    pub(crate) fn set_senders(&self, senders: Vec<Address>) {
        // Set once, before the first use.
        let _ = self.senders.set(senders);
    }

    /// The sender of transaction `index`, without recovering all the others.
    pub fn sender(&self, index: usize) -> Address {
        if self.senders.get().is_none() && self.body.transactions.len() > 8 {
            let tx = self.body.transactions.get(index);
            return tx
                .and_then(|tx| recover_sender(tx).ok())
                .unwrap_or_default();
        }
        self.senders().get(index).copied().unwrap_or_default()
    }

    /// The receipts, one for each transaction.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn receipts(&self, chain: &Chain) -> Result<&[Receipt], Fault> {
        if let Some(receipts) = self.receipts.get() {
            return Ok(receipts);
        }
        let receipts = chain.receipts(&self.id.hash)?.unwrap_or_default();
        Ok(self.receipts.get_or_init(|| receipts))
    }
}

/// The blocks that were requested last.
#[derive(Debug, Default)]
pub(crate) struct RecentBlocks(Mutex<BlockCache>);

#[derive(Debug, Default)]
struct BlockCache {
    blocks: HashMap<B256, Arc<FullBlock>>,
    order: VecDeque<B256>,
    bytes: usize,
}

impl RecentBlocks {
    /// The stored block with this hash.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub(crate) fn get(&self, chain: &Chain, hash: &B256) -> Result<Option<Arc<FullBlock>>, Fault> {
        if let Some(block) = self.cached(hash) {
            return Ok(Some(block));
        }
        let block = match chain.recent_block(hash) {
            Some(recent) => FullBlock::recovered(&recent),
            None => match chain.block(hash)? {
                Some(block) => FullBlock::new(block, *hash),
                None => return Ok(None),
            },
        };
        let block = Arc::new(block);
        lock(&self.0).put(&block);
        Ok(Some(block))
    }

    /// The block with this hash, if it is cached.
    pub(crate) fn cached(&self, hash: &B256) -> Option<Arc<FullBlock>> {
        lock(&self.0).blocks.get(hash).map(Arc::clone)
    }
}

impl BlockCache {
    fn put(&mut self, block: &Arc<FullBlock>) {
        let hash = block.id.hash;
        if self.blocks.insert(hash, Arc::clone(block)).is_some() {
            return;
        }
        self.order.push_back(hash);
        // A block takes about four times its RLP in memory: decoded, with senders and receipts.
        self.bytes += 4 * block.bytes;
        while self.order.len() > MAX_CACHED_BLOCKS || self.bytes > MAX_CACHED_BYTES {
            let oldest = self.order.pop_front();
            let oldest = oldest.and_then(|oldest| self.blocks.remove(&oldest));
            let Some(oldest) = oldest else { return };
            self.bytes = self.bytes.saturating_sub(4 * oldest.bytes);
        }
    }
}
