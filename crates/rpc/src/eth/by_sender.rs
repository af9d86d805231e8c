//! `eth_getTransactionBySenderAndNonce`: of the pool, or of the block after which the sender's nonce is above it.
//!
//! That block is found by halving the blocks whose states are here: all in an archive, else the last 512.

use super::null;
use super::serialize::{self, TxLocation};
use crate::params::{Number, Params};
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{Address, StateView, Transaction};

pub(super) fn transaction(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let sender: Address = params.required(0)?;
    let Number(nonce) = params.required(1)?;
    let pooled = backend.pool().content_of(&sender);
    let mut pooled = pooled.pending.iter().chain(&pooled.queued);
    if let Some(found) = pooled.find(|one| one.nonce() == nonce) {
        serialize::transaction(out, &found.tx, found.sender, &TxLocation::PENDING);
        return Ok(());
    }
    let head = backend.chain().head().id.number;
    if nonce_after(backend, &sender, head)? <= nonce {
        return null(out);
    }
    let number = block_of(backend, params, (sender, nonce), head)?;
    let hash = backend.chain().canonical_hash(number)?;
    let block = match hash {
        Some(hash) => backend.block(&hash)?,
        None => None,
    };
    // None, if it was used by an authorization (EIP-7702), or by the account as a contract.
    let Some(block) = block else {
        return null(out);
    };
    let is_same = |index: usize| {
        let tx = &block.body.transactions[index];
        tx.nonce() == nonce && block.sender(index) == sender
    };
    match (0..block.body.transactions.len()).find(|index| is_same(*index)) {
        Some(index) => super::blocks::write_transaction(Some(&block), index as u64, out),
        None => null(out),
    }
}

/// The first block after which the nonce of the account is above this one. It is after the block `head`.
fn block_of(
    backend: &Backend,
    params: &Params<'_>,
    account: (Address, u64),
    head: u64,
) -> Result<u64, RpcError> {
    let (sender, nonce) = account;
    // Down in steps that double, to a block after which it is not.
    let (mut above, mut step) = (head, 1);
    let mut below = loop {
        params.check_deadline()?;
        let Some(number) = above.checked_sub(step) else {
            break 0;
        };
        if nonce_after(backend, &sender, number)? <= nonce {
            break number;
        }
        (above, step) = (number, step * 2);
    };
    while above - below > 1 {
        params.check_deadline()?;
        let middle = below + (above - below) / 2;
        match nonce_after(backend, &sender, middle)? <= nonce {
            true => below = middle,
            false => above = middle,
        }
    }
    Ok(above)
}

/// The account's nonce after the canonical block `number`.
fn nonce_after(backend: &Backend, account: &Address, number: u64) -> Result<u64, RpcError> {
    let chain = backend.chain();
    let hash = chain.canonical_hash(number)?;
    let header = match hash {
        Some(hash) => chain.header(&hash)?,
        None => None,
    };
    let header = header.ok_or_else(|| RpcError::server(format!("block {number} is not here")))?;
    let account = backend.state_after(&header)?.account(account)?;
    Ok(account.map_or(0, |account| account.nonce))
}
