//! The namespace `txpool`.

use crate::eth::answers::{self, Place};
use crate::json::{self, Array, Object};
use crate::methods::{Lane, Method, row};
use crate::params::{Count, Params};
use crate::{Backend, RpcError};
use niwaki_primitives::{Address, Transaction};
use niwaki_txpool::{Origin, PooledTransaction, SenderContent};
use std::sync::Arc;

type Answer = Result<(), RpcError>;

pub(crate) const METHODS: &[Method] = &[
    row("txpool_besuPendingTransactions", Lane::Heavy, besu_pending),
    row("txpool_besuStatistics", Lane::Call, besu_statistics),
    row("txpool_besuTransactions", Lane::Heavy, besu_transactions),
    row("txpool_content", Lane::Heavy, content),
    row("txpool_contentFrom", Lane::Call, content_from),
    row("txpool_inspect", Lane::Heavy, inspect),
    row("txpool_status", Lane::Inline, status),
];

fn status(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let figures = backend.pool.figures();
    let mut object = Object::new(out);
    object.number("pending", figures.pending as u64);
    object.number("queued", figures.queued as u64);
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

fn whole(out: &mut Vec<u8>, tx: &PooledTransaction) {
    answers::transaction(out, &tx.tx, tx.sender, &Place::PENDING);
}

/// One line for people, as geth words it.
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

/// Which transactions of a sender.
type Part = fn(&SenderContent) -> &[Arc<PooledTransaction>];

fn write_content(
    backend: &Backend,
    out: &mut Vec<u8>,
    write: fn(&mut Vec<u8>, &PooledTransaction),
) {
    let content = backend.pool.content();
    let parts: [(&str, Part); 2] = [
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

fn content(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    write_content(backend, out, whole);
    Ok(())
}

fn inspect(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    write_content(backend, out, line);
    Ok(())
}

fn content_from(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let sender: Address = params.required(0)?;
    let content = backend.pool.content_of(&sender);
    let mut object = Object::new(out);
    by_nonce(&mut object, "pending", &content.pending, whole);
    by_nonce(&mut object, "queued", &content.queued, whole);
    Ok(())
}

fn besu_statistics(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let figures = backend.pool.figures();
    let total = figures.pending + figures.queued;
    let mut object = Object::new(out);
    object.decimal("maxSize", backend.pool.config().max_size as u64);
    object.decimal("localCount", figures.local as u64);
    object.decimal("remoteCount", total.saturating_sub(figures.local) as u64);
    Ok(())
}

fn besu_transactions(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
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

/// At most as many as are asked for. Besu's filters by field are not taken.
fn besu_pending(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let Count(most) = params.optional(0)?.unwrap_or(Count(u64::MAX));
    if params.raw(1).is_some() {
        return Err(RpcError::invalid_params(
            "filters are not supported here; filter the answer",
        ));
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut list = Array::new(out);
    for tx in backend.pool.all().iter().take(most) {
        whole(list.item(), tx);
    }
    Ok(())
}
