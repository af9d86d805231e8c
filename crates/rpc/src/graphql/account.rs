//! An account at a block.

use super::scalars::{Address, BigInt, Bytes, Bytes32, Long};
use crate::eth::{code_of, nonce_at};
use crate::params::{BlockRef, BlockTag};
use crate::{Backend, RpcError};
use async_graphql::{Context, Object};
use niwaki_primitives::{Address as RawAddress, B256, StateView, U256};
use std::sync::Arc;

/// An account at a block, whose state is read when a field asks for it.
pub(super) struct Account {
    address: RawAddress,
    at: BlockRef,
}

impl Account {
    pub(super) fn new(address: RawAddress, at: BlockRef) -> Self {
        Self { address, at }
    }

    /// At the block with this number if one is named, else at `or_else`.
    pub(super) fn at(address: RawAddress, number: Option<Long>, or_else: BlockRef) -> Self {
        let named = number.map(|number| BlockRef::Tag(BlockTag::Number(number.0)));
        Self::new(address, named.unwrap_or(or_else))
    }
}

/// An account of Ethereum at a block.
#[Object]
impl Account {
    /// Its address.
    async fn address(&self) -> Address {
        Address(self.address)
    }

    /// Its balance, in wei.
    async fn balance(&self, ctx: &Context<'_>) -> Result<BigInt, RpcError> {
        let (_, state) = backend(ctx).state(self.at)?;
        let account = state.account(&self.address)?.unwrap_or_default();
        Ok(BigInt(account.balance))
    }

    /// Its nonce: transactions that it has sent, or contracts that it has made.
    async fn transaction_count(&self, ctx: &Context<'_>) -> Result<Long, RpcError> {
        nonce_at(backend(ctx), &self.address, self.at).map(Long)
    }

    /// Its code; empty for an account that is no contract.
    async fn code(&self, ctx: &Context<'_>) -> Result<Bytes, RpcError> {
        let (_, state) = backend(ctx).state(self.at)?;
        Ok(Bytes(code_of(&state, &self.address)?))
    }

    /// The value of a slot of its storage.
    async fn storage(&self, ctx: &Context<'_>, slot: Bytes32) -> Result<Bytes32, RpcError> {
        let (_, state) = backend(ctx).state(self.at)?;
        let slot = U256::from_be_bytes(slot.0.0);
        let value = state.storage(&self.address, &slot)?;
        Ok(Bytes32(B256::from(value)))
    }
}

/// What the resolvers work on.
pub(super) fn backend<'c>(ctx: &Context<'c>) -> &'c Backend {
    ctx.data_unchecked::<Arc<Backend>>()
}
