//! A transaction and its logs.

use super::account::{Account, backend};
use super::block::Block;
use super::scalars::{Address, BigInt, Bytes, Bytes32, Long};
use crate::RpcError;
use crate::blocks::FullBlock;
use crate::eth::serialize::{LogLocation, blob_base_fee, encoded, signature_v};
use crate::params::{BlockRef, BlockTag};
use async_graphql::{Context, Object, SimpleObject};
use niwaki_primitives::{
    Address as RawAddress, Log as RawLog, Receipt, Transaction as _, TxEnvelope, Typed2718,
};
use niwaki_rules::{blob_gas_of, effective_gas_price};
use niwaki_txpool::PooledTransaction;
use std::sync::Arc;

/// A transaction of a block, or of the pool.
pub(super) enum Transaction {
    Included { block: Arc<FullBlock>, index: usize },
    Pooled(Arc<PooledTransaction>),
}

impl Transaction {
    /// The transaction `index` of a block, which must have it.
    pub(super) fn included(block: Arc<FullBlock>, index: usize) -> Self {
        Self::Included { block, index }
    }

    fn tx(&self) -> &TxEnvelope {
        match self {
            Self::Included { block, index } => &block.body.transactions[*index],
            Self::Pooled(pooled) => &pooled.tx,
        }
    }

    fn sender(&self) -> RawAddress {
        match self {
            Self::Included { block, index } => block.sender(*index),
            Self::Pooled(pooled) => pooled.sender,
        }
    }

    /// The block whose state its accounts have if no other is named.
    fn at(&self) -> BlockRef {
        match self {
            Self::Included { block, .. } => BlockRef::Hash {
                hash: block.id.hash,
                require_canonical: false,
            },
            Self::Pooled(_) => BlockRef::Tag(BlockTag::Pending),
        }
    }

    /// The price that was paid for a unit of gas; `None` in the pool.
    fn price(&self) -> Option<u128> {
        match self {
            Self::Included { block, .. } => {
                let base_fee = block.header.base_fee_per_gas;
                Some(effective_gas_price(self.tx(), base_fee))
            }
            Self::Pooled(_) => None,
        }
    }

    /// What `of` makes of the receipts of its block and its index; `None` in the pool, or without receipts.
    fn receipt<T>(
        &self,
        ctx: &Context<'_>,
        of: impl FnOnce(&FullBlock, &[Receipt], usize) -> T,
    ) -> Result<Option<T>, RpcError> {
        let Self::Included { block, index } = self else {
            return Ok(None);
        };
        let receipts = block.receipts(backend(ctx).chain())?;
        Ok((*index < receipts.len()).then(|| of(block, receipts, *index)))
    }
}

/// A transaction of Ethereum. What only a block decides is null while it is in the pool.
#[Object]
impl Transaction {
    /// Its hash.
    async fn hash(&self) -> Bytes32 {
        Bytes32(*self.tx().tx_hash())
    }

    /// Its sender's nonce.
    async fn nonce(&self) -> Long {
        Long(self.tx().nonce())
    }

    /// Its index in its block.
    async fn index(&self) -> Option<Long> {
        match self {
            Self::Included { index, .. } => Some((*index).into()),
            Self::Pooled(_) => None,
        }
    }

    /// Who sent it, at its block or at another.
    async fn from(&self, block: Option<Long>) -> Account {
        Account::at(self.sender(), block, self.at())
    }

    /// Who is called; null where it makes a contract.
    async fn to(&self, block: Option<Long>) -> Option<Account> {
        let to = self.tx().to();
        to.map(|to| Account::at(to, block, self.at()))
    }

    /// What it sends along, in wei.
    async fn value(&self) -> BigInt {
        BigInt(self.tx().value())
    }

    /// The price of a unit of gas, in wei: what was paid, or in the pool the most that may be.
    async fn gas_price(&self) -> BigInt {
        let price = self.price();
        price.unwrap_or_else(|| self.tx().max_fee_per_gas()).into()
    }

    /// The most that it pays for a unit of gas, in wei; null for a transaction that names one price.
    async fn max_fee_per_gas(&self) -> Option<BigInt> {
        let tip = self.tx().max_priority_fee_per_gas();
        tip.map(|_| self.tx().max_fee_per_gas().into())
    }

    /// The most that it pays the block's producer for a unit of gas, in wei; null likewise.
    async fn max_priority_fee_per_gas(&self) -> Option<BigInt> {
        self.tx().max_priority_fee_per_gas().map(BigInt::from)
    }

    /// The most that it pays for a unit of blob gas, in wei; null without blobs.
    async fn max_fee_per_blob_gas(&self) -> Option<BigInt> {
        self.tx().max_fee_per_blob_gas().map(BigInt::from)
    }

    /// What the block's producer got for a unit of gas, in wei.
    async fn effective_tip(&self) -> Option<BigInt> {
        let Self::Included { block, .. } = self else {
            return None;
        };
        let base_fee = u128::from(block.header.base_fee_per_gas.unwrap_or(0));
        let price = self.price()?;
        Some(price.saturating_sub(base_fee).into())
    }

    /// The most gas that it may use.
    async fn gas(&self) -> Long {
        Long(self.tx().gas_limit())
    }

    /// Call data, or the code that makes a contract.
    async fn input_data(&self) -> Bytes {
        Bytes(self.tx().input().clone())
    }

    /// Its block.
    async fn block(&self, ctx: &Context<'_>) -> Result<Option<Block>, RpcError> {
        let Self::Included { block, .. } = self else {
            return Ok(None);
        };
        let header = backend(ctx).chain().header(&block.id.hash)?;
        Ok(header.map(Block::new))
    }

    /// 1 if it succeeded, 0 if it failed; null before Byzantium.
    async fn status(&self, ctx: &Context<'_>) -> Result<Option<Long>, RpcError> {
        let status = self.receipt(ctx, |_, receipts, index| receipts[index].status)?;
        Ok(status.flatten().map(|status| Long(u64::from(status))))
    }

    /// The gas that it used.
    async fn gas_used(&self, ctx: &Context<'_>) -> Result<Option<Long>, RpcError> {
        self.receipt(ctx, |_, receipts, index| {
            let before = index.checked_sub(1).and_then(|before| receipts.get(before));
            let before = before.map_or(0, |before| before.cumulative_gas_used);
            Long(receipts[index].cumulative_gas_used.saturating_sub(before))
        })
    }

    /// The gas that its block's transactions used up to it.
    async fn cumulative_gas_used(&self, ctx: &Context<'_>) -> Result<Option<Long>, RpcError> {
        self.receipt(ctx, |_, receipts, index| {
            Long(receipts[index].cumulative_gas_used)
        })
    }

    /// The price that was paid for a unit of gas, in wei.
    async fn effective_gas_price(&self) -> Option<BigInt> {
        self.price().map(BigInt::from)
    }

    /// The gas of its blobs; null without blobs.
    async fn blob_gas_used(&self) -> Option<Long> {
        let gas = blob_gas_of(self.tx());
        let is_included = matches!(self, Self::Included { .. });
        (is_included && gas > 0).then_some(Long(gas))
    }

    /// The price that was paid for a unit of blob gas, in wei; null without blobs.
    async fn blob_gas_price(&self, ctx: &Context<'_>) -> Option<BigInt> {
        let Self::Included { block, .. } = self else {
            return None;
        };
        let spec = backend(ctx).chain().spec();
        (blob_gas_of(self.tx()) > 0).then(|| blob_base_fee(spec, &block.header).into())
    }

    /// The contract that it made; null where it made none.
    async fn created_contract(&self, block: Option<Long>) -> Option<Account> {
        let is_included = matches!(self, Self::Included { .. });
        let makes = is_included && self.tx().to().is_none();
        makes.then(|| {
            let address = self.sender().create(self.tx().nonce());
            Account::at(address, block, self.at())
        })
    }

    /// Its logs.
    async fn logs(&self, ctx: &Context<'_>) -> Result<Option<Vec<Log>>, RpcError> {
        self.receipt(ctx, |block, receipts, index| {
            let before: usize = receipts[..index].iter().map(|each| each.logs.len()).sum();
            let logs = (before..).zip(&receipts[index].logs);
            let logs = logs
                .map(|(number, log)| Log::new(log.clone(), LogLocation::new(block, index, number)));
            logs.collect()
        })
    }

    async fn r(&self) -> BigInt {
        BigInt(self.tx().signature().r())
    }

    async fn s(&self) -> BigInt {
        BigInt(self.tx().signature().s())
    }

    async fn v(&self) -> BigInt {
        BigInt(signature_v(self.tx()))
    }

    /// The parity of its signature; null for a legacy transaction.
    async fn y_parity(&self) -> Option<Long> {
        let parity = u64::from(self.tx().signature().v());
        (self.tx().ty() != 0).then_some(Long(parity))
    }

    /// Its type (EIP-2718).
    #[graphql(name = "type")]
    async fn tx_type(&self) -> Option<Long> {
        Some(Long(u64::from(self.tx().ty())))
    }

    /// The accounts and slots that it names ahead (EIP-2930); null for a legacy transaction.
    async fn access_list(&self) -> Option<Vec<AccessTuple>> {
        let list = self.tx().access_list()?;
        let items = list.iter().map(|item| AccessTuple {
            address: Address(item.address),
            storage_keys: item.storage_keys.iter().copied().map(Bytes32).collect(),
        });
        Some(items.collect())
    }

    /// The hashes of its blobs; null without blobs.
    async fn blob_versioned_hashes(&self) -> Option<Vec<Bytes32>> {
        let hashes = self.tx().blob_versioned_hashes()?;
        Some(hashes.iter().copied().map(Bytes32).collect())
    }

    /// Its encoding (EIP-2718).
    async fn raw(&self) -> Bytes {
        encoded(self.tx()).into()
    }

    /// The encoding of its receipt; empty while it has none.
    async fn raw_receipt(&self, ctx: &Context<'_>) -> Result<Bytes, RpcError> {
        let raw = self.receipt(ctx, |_, receipts, index| receipts[index].encode_2718())?;
        Ok(raw.unwrap_or_default().into())
    }
}

/// An account of an access list (EIP-2930).
#[derive(SimpleObject)]
pub(super) struct AccessTuple {
    /// Its address.
    address: Address,
    /// Its slots.
    storage_keys: Vec<Bytes32>,
}

/// A log, and where it is.
pub(super) struct Log {
    log: RawLog,
    location: LogLocation,
}

impl Log {
    pub(super) fn new(log: RawLog, location: LogLocation) -> Self {
        Self { log, location }
    }
}

/// A log that a contract wrote.
#[Object]
impl Log {
    /// Its index in its block.
    async fn index(&self) -> Long {
        self.location.log_index.into()
    }

    /// The contract that wrote it, at its block or at another.
    async fn account(&self, block: Option<Long>) -> Account {
        let at = BlockRef::Hash {
            hash: self.location.block.hash,
            require_canonical: false,
        };
        Account::at(self.log.address, block, at)
    }

    /// Its topics, up to 4.
    async fn topics(&self) -> Vec<Bytes32> {
        self.log
            .data
            .topics()
            .iter()
            .copied()
            .map(Bytes32)
            .collect()
    }

    /// Its data.
    async fn data(&self) -> Bytes {
        Bytes(self.log.data.data.clone())
    }

    /// The transaction that wrote it.
    async fn transaction(&self, ctx: &Context<'_>) -> Result<Transaction, RpcError> {
        let block = backend(ctx).block(&self.location.block.hash)?;
        let gone = || RpcError::server("the block of the log is no longer stored");
        let block = block.ok_or_else(gone)?;
        Ok(Transaction::included(
            block,
            self.location.transaction_index,
        ))
    }
}
