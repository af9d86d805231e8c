//! Where a request begins: `Query` and `Mutation`, and the pending block.

use super::account::{Account, backend};
use super::block::Block;
use super::call::{self, CallData, CallResult, FilterCriteria};
use super::scalars::{Address, BigInt, Bytes, Bytes32, Long};
use super::transaction::{Log, Transaction};
use crate::RpcError;
use crate::eth::{find, send_raw, suggested_price, suggested_tip, sync_progress};
use crate::params::{BlockRef, BlockTag};
use async_graphql::{Context, Object, SimpleObject};

/// What a request may read.
pub(super) struct Query {
    /// Most blocks of `blocks`; 0 for no bound.
    pub(super) max_blocks: u64,
}

#[Object]
impl Query {
    /// The block with a number or a hash; the head if neither is given.
    async fn block(
        &self,
        ctx: &Context<'_>,
        number: Option<Long>,
        hash: Option<Bytes32>,
    ) -> Result<Option<Block>, RpcError> {
        let (block, name) = match (number, hash) {
            (Some(_), Some(_)) => {
                return Err(RpcError::invalid_params(
                    "both number and hash are given: choose",
                ));
            }
            (Some(Long(number)), None) => (
                BlockRef::Tag(BlockTag::Number(number)),
                format!("number {number}"),
            ),
            (None, Some(Bytes32(hash))) => {
                let require_canonical = false;
                let by_hash = BlockRef::Hash {
                    hash,
                    require_canonical,
                };
                (by_hash, format!("hash {hash}"))
            }
            (None, None) => (BlockRef::default(), "latest".to_owned()),
        };
        let stored = backend(ctx).header_by_ref(block)?;
        let missing = || RpcError::server(format!("Block {name} was not found"));
        Ok(Some(Block::new(stored.ok_or_else(missing)?)))
    }

    /// The blocks from one number to another, both included; those above the head are left out.
    async fn blocks(
        &self,
        ctx: &Context<'_>,
        from: Option<Long>,
        to: Option<Long>,
    ) -> Result<Vec<Block>, RpcError> {
        let head = backend(ctx).chain().head().id.number;
        let from = from.map_or(head, |from| from.0);
        let to = to.map_or(head, |to| to.0);
        if from > to {
            let message = format!("from is {from} and to is {to}: the range is empty");
            return Err(RpcError::invalid_params(message));
        }
        let to = to.min(head);
        let count = to.saturating_sub(from).saturating_add(1);
        if self.max_blocks > 0 && count > self.max_blocks {
            return Err(RpcError::limit(format!(
                "{count} blocks are asked for, {} are served (--graphql-max-blocks-range)",
                self.max_blocks
            )));
        }
        let mut blocks = Vec::new();
        for number in from..=to {
            call::check_deadline(ctx)?;
            // Below the first block of an imported state there is none.
            let stored = backend(ctx).header_by_tag(BlockTag::Number(number))?;
            blocks.extend(stored.map(Block::new));
        }
        Ok(blocks)
    }

    /// The block that would follow the head.
    async fn pending(&self) -> Pending {
        Pending
    }

    /// The transaction with a hash, of a block or of the pool.
    async fn transaction(
        &self,
        ctx: &Context<'_>,
        hash: Bytes32,
    ) -> Result<Option<Transaction>, RpcError> {
        let backend = backend(ctx);
        if let Some((block, index)) = find(backend, &hash.0)? {
            return Ok(Some(Transaction::included(block, index)));
        }
        Ok(backend.pool().get(&hash.0).map(Transaction::Pooled))
    }

    /// The logs that match a filter.
    async fn logs(&self, ctx: &Context<'_>, filter: FilterCriteria) -> Result<Vec<Log>, RpcError> {
        call::logs(ctx, &filter.filter())
    }

    /// A price for a unit of gas with which a transaction is likely to be included soon, in wei.
    async fn gas_price(&self, ctx: &Context<'_>) -> Result<BigInt, RpcError> {
        suggested_price(backend(ctx)).map(BigInt::from)
    }

    /// The part of it for the block's producer.
    async fn max_priority_fee_per_gas(&self, ctx: &Context<'_>) -> Result<BigInt, RpcError> {
        suggested_tip(backend(ctx)).map(BigInt::from)
    }

    /// How far the sync is; null while the head is current.
    async fn syncing(&self, ctx: &Context<'_>) -> Option<SyncState> {
        let progress = sync_progress(backend(ctx))?;
        Some(SyncState {
            starting_block: Long(progress.start),
            current_block: Long(progress.current),
            highest_block: Long(progress.highest),
        })
    }

    /// The chain's id (EIP-155).
    #[graphql(name = "chainID")]
    async fn chain_id(&self, ctx: &Context<'_>) -> BigInt {
        backend(ctx).chain().spec().chain_id.into()
    }
}

/// What a request may change.
pub(super) struct Mutation;

#[Object]
impl Mutation {
    /// Adds a signed transaction to the pool and returns its hash.
    async fn send_raw_transaction(
        &self,
        ctx: &Context<'_>,
        data: Bytes,
    ) -> Result<Bytes32, RpcError> {
        send_raw(backend(ctx), &data.0).map(Bytes32)
    }
}

/// How far a sync is.
#[derive(SimpleObject)]
pub(super) struct SyncState {
    /// Where it began.
    starting_block: Long,
    /// Where it is.
    current_block: Long,
    /// The highest block that is known.
    highest_block: Long,
}

/// The pending block.
pub(super) struct Pending;

/// The block that would follow the head: the head's state, and the transactions of the pool.
#[Object]
impl Pending {
    /// How many transactions the pool has.
    async fn transaction_count(&self, ctx: &Context<'_>) -> Long {
        backend(ctx).pool().all().len().into()
    }

    /// The transactions of the pool, by age.
    async fn transactions(&self, ctx: &Context<'_>) -> Option<Vec<Transaction>> {
        let all = backend(ctx).pool().all().into_iter();
        Some(all.map(Transaction::Pooled).collect())
    }

    /// An account, whose transactions in the pool count.
    async fn account(&self, address: Address) -> Account {
        Account::new(address.0, PENDING)
    }

    /// Simulates a message.
    async fn call(
        &self,
        ctx: &Context<'_>,
        data: CallData,
    ) -> Result<Option<CallResult>, RpcError> {
        call::call(ctx, data, PENDING).map(Some)
    }

    /// The gas that a message needs.
    async fn estimate_gas(&self, ctx: &Context<'_>, data: CallData) -> Result<Long, RpcError> {
        call::estimate(ctx, data, PENDING)
    }
}

const PENDING: BlockRef = BlockRef::Tag(BlockTag::Pending);
