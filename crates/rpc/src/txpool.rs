//! The namespace `txpool`.

use crate::eth::serialize::{self, TxLocation};
use crate::json::{self, Array, Object};
use crate::methods::{Lane, Method, row};
use crate::params::{Count, Params};
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{Address, Transaction};
use niwaki_txpool::{Origin, PooledTransaction, SenderContent};
use std::sync::Arc;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("txpool_besuPendingTransactions", "limit? filters?", Lane::Heavy, besu_pending),
    row("txpool_besuStatistics", "", Lane::Call, besu_statistics),
    row("txpool_besuTransactions", "", Lane::Heavy, besu_transactions),
    row("txpool_content", "", Lane::Heavy, content),
    row("txpool_contentFrom", "address", Lane::Call, content_from),
    row("txpool_inspect", "", Lane::Heavy, inspect),
    row("txpool_status", "", Lane::Inline, status),
];

fn status(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let stats = backend.pool.stats();
    let mut object = Object::new(out);
    object.number("pending", stats.pending as u64);
    object.number("queued", stats.queued as u64);
    Ok(())
}

/// Writes the transactions of one sender by nonce.
fn by_nonce(
    object: &mut Object<'_>,
    name: &str,
    txs: &[Arc<PooledTransaction>],
    write: fn(&mut Vec<u8>, &PooledTransaction),
) {
    let mut nonces = object.object(name);
    for tx in txs {
        write(nonces.field(&tx.nonce().to_string()), tx);
    }
}

fn full(out: &mut Vec<u8>, tx: &PooledTransaction) {
    serialize::transaction(out, &tx.tx, tx.sender, &TxLocation::PENDING);
}

/// A line of `txpool_inspect`, in geth's format.
fn line(out: &mut Vec<u8>, tx: &PooledTransaction) {
    let to = match tx.tx.to() {
        Some(to) => to.to_string(),
        None => "contract creation".to_owned(),
    };
    let text = format!(
        "{to}: {} wei + {} gas \u{d7} {} wei",
        tx.tx.value(),
        tx.tx.gas_limit(),
        tx.tx.max_fee_per_gas()
    );
    json::string(out, &text);
}

/// Pending or queued transactions of a sender.
type Selection = fn(&SenderContent) -> &[Arc<PooledTransaction>];

fn write_content(
    backend: &Backend,
    out: &mut Vec<u8>,
    write: fn(&mut Vec<u8>, &PooledTransaction),
) {
    let content = backend.pool.content();
    let parts: [(&str, Selection); 2] = [
        ("pending", |content| &content.pending),
        ("queued", |content| &content.queued),
    ];
    let mut object = Object::new(out);
    for (name, part) in parts {
        let mut senders = object.object(name);
        for (sender, content) in &content {
            if !part(content).is_empty() {
                by_nonce(&mut senders, &sender.to_string(), part(content), write);
            }
        }
    }
}

fn content(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    write_content(backend, out, full);
    Ok(())
}

fn inspect(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    write_content(backend, out, line);
    Ok(())
}

fn content_from(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let sender: Address = params.required(0)?;
    let content = backend.pool.content_of(&sender);
    let mut object = Object::new(out);
    by_nonce(&mut object, "pending", &content.pending, full);
    by_nonce(&mut object, "queued", &content.queued, full);
    Ok(())
}

fn besu_statistics(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let stats = backend.pool.stats();
    let total = stats.pending + stats.queued;
    let mut object = Object::new(out);
    object.decimal("maxSize", backend.pool.config().max_size as u64);
    object.decimal("localCount", stats.local as u64);
    object.decimal("remoteCount", total.saturating_sub(stats.local) as u64);
    Ok(())
}

fn besu_transactions(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let mut list = Array::new(out);
    for tx in backend.pool.all() {
        let mut object = list.object();
        object.data("hash", tx.hash.as_slice());
        let is_local = tx.origin == Origin::Local;
        object.boolean("isReceivedFromLocalSource", is_local);
        object.string("addedToPoolAt", &tx.added_at.to_string());
    }
    Ok(())
}

/// At most the requested number. Besu's filters by field are not supported.
fn besu_pending(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let Count(most) = params.optional(0)?.unwrap_or(Count(u64::MAX));
    if params.raw(1).is_some() {
        return Err(RpcError::invalid_params(
            "filters are not supported here; filter the answer",
        ));
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut list = Array::new(out);
    for tx in backend.pool.all().iter().take(most) {
        full(list.item(), tx);
    }
    Ok(())
}
