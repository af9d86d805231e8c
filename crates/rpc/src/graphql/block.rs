//! A block.

use super::account::{Account, backend};
use super::call::{self, BlockFilterCriteria, CallData, CallResult};
use super::scalars::{Address, BigInt, Bytes, Bytes32, Long};
use super::transaction::{Log, Transaction};
use crate::blocks::FullBlock;
use crate::eth::next_fee;
use crate::params::BlockRef;
use crate::{Backend, RpcError};
use async_graphql::{Context, Object, SimpleObject};
use niwaki_chain::{BlockId, StoredHeader};
use niwaki_primitives::rlp::encode;
use niwaki_primitives::{Block as RawBlock, Header};
use std::sync::Arc;

/// A block by its header. Its body is looked up for each field that needs it, so that a range of blocks is not held
/// in memory.
pub(super) struct Block {
    stored: StoredHeader,
    is_ommer: bool,
}

impl Block {
    pub(super) fn new(stored: StoredHeader) -> Self {
        Self {
            stored,
            is_ommer: false,
        }
    }

    fn ommer(backend: &Backend, header: &Header) -> Result<Self, RpcError> {
        let parent = backend.chain().header(&header.parent_hash)?;
        let before = parent.map(|parent| parent.total_difficulty);
        let id = BlockId {
            number: header.number,
            hash: backend.chain().spec().header_hash(header),
        };
        let stored = StoredHeader {
            id,
            total_difficulty: before.unwrap_or_default().saturating_add(header.difficulty),
            header: header.clone(),
        };
        Ok(Self {
            stored,
            is_ommer: true,
        })
    }

    fn header(&self) -> &Header {
        &self.stored.header
    }

    fn at(&self) -> BlockRef {
        BlockRef::Hash {
            hash: self.stored.id.hash,
            require_canonical: false,
        }
    }

    /// The block with its body; `None` for an ommer, and for a block whose body is not stored.
    fn full(&self, ctx: &Context<'_>) -> Result<Option<Arc<FullBlock>>, RpcError> {
        match self.is_ommer {
            true => Ok(None),
            false => backend(ctx).block(&self.stored.id.hash),
        }
    }
}

/// A block of Ethereum. An ommer has no transactions, logs or states.
#[Object]
impl Block {
    /// Its number, from 0 for the genesis block.
    async fn number(&self) -> Long {
        Long(self.header().number)
    }

    /// Its hash.
    async fn hash(&self) -> Bytes32 {
        Bytes32(self.stored.id.hash)
    }

    /// Its parent; null for the genesis block.
    async fn parent(&self, ctx: &Context<'_>) -> Result<Option<Block>, RpcError> {
        let parent = backend(ctx).chain().header(&self.header().parent_hash)?;
        Ok(parent.map(Self::new))
    }

    /// The 8 bytes that its miner found.
    async fn nonce(&self) -> Bytes {
        self.header().nonce.to_vec().into()
    }

    /// The root of the trie of its transactions.
    async fn transactions_root(&self) -> Bytes32 {
        Bytes32(self.header().transactions_root)
    }

    /// How many transactions it has; null where they are not known.
    async fn transaction_count(&self, ctx: &Context<'_>) -> Result<Option<Long>, RpcError> {
        let block = self.full(ctx)?;
        Ok(block.map(|block| block.body.transactions.len().into()))
    }

    /// The root of the state after it.
    async fn state_root(&self) -> Bytes32 {
        Bytes32(self.header().state_root)
    }

    /// The root of the trie of its receipts.
    async fn receipts_root(&self) -> Bytes32 {
        Bytes32(self.header().receipts_root)
    }

    /// The account that was paid for it, here or at another block.
    async fn miner(&self, block: Option<Long>) -> Account {
        Account::at(self.header().beneficiary, block, self.at())
    }

    /// What its producer wrote into it.
    async fn extra_data(&self) -> Bytes {
        Bytes(self.header().extra_data.clone())
    }

    /// The most gas that its transactions may use.
    async fn gas_limit(&self) -> Long {
        Long(self.header().gas_limit)
    }

    /// The gas that they used.
    async fn gas_used(&self) -> Long {
        Long(self.header().gas_used)
    }

    /// What a unit of gas burns, in wei; null before London.
    async fn base_fee_per_gas(&self) -> Option<BigInt> {
        self.header().base_fee_per_gas.map(BigInt::from)
    }

    /// What it burns in the next block.
    async fn next_base_fee_per_gas(&self, ctx: &Context<'_>) -> Option<BigInt> {
        next_fee(backend(ctx).chain(), self.header()).map(BigInt::from)
    }

    /// When it was made, in seconds since 1970.
    async fn timestamp(&self) -> Long {
        Long(self.header().timestamp)
    }

    /// The bloom filter of its logs.
    async fn logs_bloom(&self) -> Bytes {
        self.header().logs_bloom.to_vec().into()
    }

    /// The mix hash of proof of work, since the Merge the randomness of the beacon chain.
    async fn mix_hash(&self) -> Bytes32 {
        Bytes32(self.header().mix_hash)
    }

    /// How hard it was to mine; 0 since the Merge.
    async fn difficulty(&self) -> BigInt {
        BigInt(self.header().difficulty)
    }

    /// The difficulty of the chain up to it.
    async fn total_difficulty(&self) -> BigInt {
        BigInt(self.stored.total_difficulty)
    }

    /// How many ommers it has; null where they are not known.
    async fn ommer_count(&self, ctx: &Context<'_>) -> Result<Option<Long>, RpcError> {
        let block = self.full(ctx)?;
        Ok(block.map(|block| block.body.ommers.len().into()))
    }

    /// Its ommers; null where they are not known.
    async fn ommers(&self, ctx: &Context<'_>) -> Result<Option<Vec<Block>>, RpcError> {
        let Some(block) = self.full(ctx)? else {
            return Ok(None);
        };
        let ommers = block.body.ommers.iter();
        let ommers = ommers.map(|ommer| Self::ommer(backend(ctx), ommer));
        ommers.collect::<Result<_, _>>().map(Some)
    }

    /// The ommer at an index; null if there is none.
    async fn ommer_at(&self, ctx: &Context<'_>, index: Long) -> Result<Option<Block>, RpcError> {
        let block = self.full(ctx)?;
        let index = usize::try_from(index.0).unwrap_or(usize::MAX);
        let ommer = block
            .as_ref()
            .and_then(|block| block.body.ommers.get(index));
        let ommer = ommer.map(|ommer| Self::ommer(backend(ctx), ommer));
        ommer.transpose()
    }

    /// The hash of its ommers.
    async fn ommer_hash(&self) -> Bytes32 {
        Bytes32(self.header().ommers_hash)
    }

    /// Its transactions; null where they are not known.
    async fn transactions(&self, ctx: &Context<'_>) -> Result<Option<Vec<Transaction>>, RpcError> {
        let Some(block) = self.full(ctx)? else {
            return Ok(None);
        };
        let all = 0..block.body.transactions.len();
        let all = all.map(|index| Transaction::included(Arc::clone(&block), index));
        Ok(Some(all.collect()))
    }

    /// The transaction at an index; null if there is none.
    async fn transaction_at(
        &self,
        ctx: &Context<'_>,
        index: Long,
    ) -> Result<Option<Transaction>, RpcError> {
        let block = self.full(ctx)?;
        let index = usize::try_from(index.0).unwrap_or(usize::MAX);
        let block = block.filter(|block| index < block.body.transactions.len());
        Ok(block.map(|block| Transaction::included(block, index)))
    }

    /// Its logs that match a filter.
    async fn logs(
        &self,
        ctx: &Context<'_>,
        filter: BlockFilterCriteria,
    ) -> Result<Vec<Log>, RpcError> {
        call::logs(ctx, &filter.filter(self.stored.id.hash))
    }

    /// An account in the state after it.
    async fn account(&self, address: Address) -> Account {
        Account::new(address.0, self.at())
    }

    /// Simulates a message on the state after it.
    async fn call(
        &self,
        ctx: &Context<'_>,
        data: CallData,
    ) -> Result<Option<CallResult>, RpcError> {
        call::call(ctx, data, self.at()).map(Some)
    }

    /// The gas that a message needs on the state after it.
    async fn estimate_gas(&self, ctx: &Context<'_>, data: CallData) -> Result<Long, RpcError> {
        call::estimate(ctx, data, self.at())
    }

    /// Its header in RLP.
    async fn raw_header(&self) -> Bytes {
        encode(self.header()).into()
    }

    /// The whole block in RLP.
    async fn raw(&self, ctx: &Context<'_>) -> Result<Bytes, RpcError> {
        let number = self.header().number;
        let missing = || RpcError::server(format!("the body of block {number} is not stored"));
        let block = self.full(ctx)?.ok_or_else(missing)?;
        let block = RawBlock {
            header: block.header.clone(),
            body: block.body.clone(),
        };
        Ok(encode(block).into())
    }

    /// The root of the trie of its withdrawals; null before Shanghai.
    async fn withdrawals_root(&self) -> Option<Bytes32> {
        self.header().withdrawals_root.map(Bytes32)
    }

    /// Its withdrawals; null before Shanghai.
    async fn withdrawals(&self, ctx: &Context<'_>) -> Result<Option<Vec<Withdrawal>>, RpcError> {
        let block = self.full(ctx)?;
        let all = block
            .as_ref()
            .and_then(|block| block.body.withdrawals.as_ref());
        Ok(all.map(|all| {
            let all = all.iter().map(|one| Withdrawal {
                index: Long(one.index),
                validator: Long(one.validator_index),
                address: Address(one.address),
                amount: Long(one.amount),
            });
            all.collect()
        }))
    }

    /// The gas of its blobs; null before Cancun.
    async fn blob_gas_used(&self) -> Option<Long> {
        self.header().blob_gas_used.map(Long)
    }

    /// The gas of blobs above the target so far; null before Cancun.
    async fn excess_blob_gas(&self) -> Option<Long> {
        self.header().excess_blob_gas.map(Long)
    }
}

/// A withdrawal from the beacon chain.
#[derive(SimpleObject)]
pub(super) struct Withdrawal {
    /// Its number.
    index: Long,
    /// The number of the validator.
    validator: Long,
    /// Who gets it.
    address: Address,
    /// How much, in gwei.
    amount: Long,
}
