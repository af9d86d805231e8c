//! Blocks as they are asked for: decoded once, senders recovered once, and kept for a while.

use niwaki_chain::{BlockId, Chain};
use niwaki_primitives::rlp::Encodable;
use niwaki_primitives::{Address, B256, Block, BlockBody, Fault, Header, Receipt, RecoveredBlock};
use niwaki_rules::{recover_sender, recover_senders};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How many blocks are kept, and how many bytes of them.
const KEPT_BLOCKS: usize = 1024;
const KEPT_BYTES: usize = 64 << 20;

/// A block with what its rows do not say.
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

    /// A block whose senders are known.
    fn recovered(recent: &RecoveredBlock) -> Self {
        let block = Self::new(recent.block.clone(), recent.hash);
        if recent.senders.missing() == 0 {
            block.set_senders(recent.senders.known().collect());
        }
        block
    }

    /// Who signed each transaction; zero where nobody did, which no stored block has.
    pub fn senders(&self) -> &[Address] {
        self.senders.get_or_init(|| {
            let senders = recover_senders(&self.body.transactions);
            senders.map(Result::unwrap_or_default).collect()
        })
    }

    /// Says who sent each transaction of a block that nobody has signed.
    pub(crate) fn set_senders(&self, senders: Vec<Address>) {
        // Set once, before anybody asks.
        let _ = self.senders.set(senders);
    }

    /// Who signed transaction `index`, without recovering the others.
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

/// The blocks that were asked for last.
#[derive(Debug, Default)]
pub(crate) struct RecentBlocks(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
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
        if let Some(block) = self.kept_block(hash) {
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
        self.kept().put(&block);
        Ok(Some(block))
    }

    /// The block with this hash, if it is kept.
    pub(crate) fn kept_block(&self, hash: &B256) -> Option<Arc<FullBlock>> {
        self.kept().blocks.get(hash).map(Arc::clone)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn put(&mut self, block: &Arc<FullBlock>) {
        let hash = block.id.hash;
        if self.blocks.insert(hash, Arc::clone(block)).is_some() {
            return;
        }
        self.order.push_back(hash);
        // In memory a block takes some times its bytes: the decoded form, senders, receipts.
        self.bytes += 4 * block.bytes;
        while self.order.len() > KEPT_BLOCKS || self.bytes > KEPT_BYTES {
            let oldest = self.order.pop_front();
            let oldest = oldest.and_then(|oldest| self.blocks.remove(&oldest));
            let Some(oldest) = oldest else { return };
            self.bytes = self.bytes.saturating_sub(4 * oldest.bytes);
        }
    }
}
