//! Subscriptions (`eth_subscribe`): new heads, logs, pending and dropped transactions, the state of syncing.
//!
//! Two broadcast channels ([`Events`]) carry what happens: the node sends every change of the head and every event of
//! the pool. Each subscription is a task that reads one of them and pushes notifications into the queue of its
//! connection:
//!
//! ```text
//! Chain -> notify_head -> broadcast (512) ----\
//!                                              >-- task of the subscription -> queue of the connection -> client
//! Pool  -> notify_pool -> broadcast (16384) --/
//! ```
//!
//! Neither the chain nor the pool ever waits for a client. A task that falls behind a channel misses the oldest
//! events; a task that finds the queue of its connection full ends.

use crate::eth::{LogFilter, each_log, serialize};
use crate::json::{self, Object};
use crate::params::Params;
use crate::{Backend, RpcError};
use niwaki_chain::{BlockId, HeadChange};
use niwaki_txpool::{PoolEvent, PooledTransaction};
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;

/// Head changes and pool events that a subscription may be behind.
const HEAD_BUFFER: usize = 512;
const POOL_BUFFER: usize = 16 << 10;

/// The channels of head changes and pool events; filters and subscriptions listen.
#[derive(Debug)]
pub struct Events {
    heads: broadcast::Sender<Arc<HeadChange>>,
    pool: broadcast::Sender<PoolEvent>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            heads: broadcast::channel(HEAD_BUFFER).0,
            pool: broadcast::channel(POOL_BUFFER).0,
        }
    }
}

impl Events {
    /// Publishes a change of the head.
    pub fn notify_head(&self, change: Arc<HeadChange>) {
        let _ = self.heads.send(change); // There may be no listener.
    }

    /// Publishes an event of the pool.
    pub fn notify_pool(&self, event: &PoolEvent) {
        if self.pool.receiver_count() > 0 {
            let _ = self.pool.send(event.clone());
        }
    }

    /// Receives all changes of the head from now on.
    pub fn subscribe_heads(&self) -> broadcast::Receiver<Arc<HeadChange>> {
        self.heads.subscribe()
    }

    /// Receives all events of the pool from now on.
    pub fn subscribe_pool(&self) -> broadcast::Receiver<PoolEvent> {
        self.pool.subscribe()
    }
}

/// The transaction that an event makes pending: one that the next block could include.
pub(crate) fn newly_pending(event: &PoolEvent) -> Option<&Arc<PooledTransaction>> {
    match event {
        PoolEvent::Added { tx, pending: true } | PoolEvent::Promoted { tx } => Some(tx),
        _ => None,
    }
}

/// What a subscription is for.
#[derive(Debug)]
pub(crate) enum SubscriptionKind {
    Heads { full: bool },
    Logs(Box<LogFilter>),
    Pending { full: bool },
    Dropped,
    Syncing,
}

/// How Besu requests full transactions; geth takes a bare flag.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PendingOptions {
    include_transactions: bool,
}

/// Whether the second parameter requests full transactions.
fn wants_full(params: &Params<'_>) -> Result<bool, RpcError> {
    let is_object = params.raw(1).is_some_and(|raw| raw.starts_with('{'));
    match is_object {
        true => Ok(params.required::<PendingOptions>(1)?.include_transactions),
        false => Ok(params.optional(1)?.unwrap_or(false)),
    }
}

impl SubscriptionKind {
    pub(crate) fn read(params: &Params<'_>) -> Result<Self, RpcError> {
        let name: String = params.required(0)?;
        let full = || wants_full(params);
        Ok(match name.as_str() {
            "newHeads" => Self::Heads { full: full()? },
            "logs" => {
                let filter: LogFilter = params.optional(1)?.unwrap_or_default();
                filter.check()?;
                Self::Logs(Box::new(filter))
            }
            "newPendingTransactions" => Self::Pending { full: full()? },
            "droppedPendingTransactions" => Self::Dropped,
            "syncing" => Self::Syncing,
            _ => {
                let name: String = name.chars().take(60).collect();
                let message = format!("no \"{name}\" subscription in eth namespace");
                return Err(RpcError::new(-32601, message));
            }
        })
    }
}

/// The task of a subscription: sends notifications to `notify` until the connection closes or is too slow.
pub(crate) async fn run(
    backend: Arc<Backend>,
    kind: SubscriptionKind,
    id: String,
    notify: mpsc::Sender<Vec<u8>>,
) {
    let subscriber = Subscriber {
        backend,
        id,
        notify,
    };
    match kind {
        SubscriptionKind::Heads { full } => subscriber.follow_heads(full).await,
        SubscriptionKind::Logs(filter) => subscriber.follow_logs(&filter).await,
        SubscriptionKind::Pending { full } => subscriber.follow_pending(full).await,
        SubscriptionKind::Dropped => subscriber.follow_dropped().await,
        SubscriptionKind::Syncing => subscriber.follow_syncing().await,
    }
}

struct Subscriber {
    backend: Arc<Backend>,
    id: String,
    notify: mpsc::Sender<Vec<u8>>,
}

/// The next event; `None` when the channel is closed. Events that were missed are skipped.
async fn next<T: Clone>(receiver: &mut broadcast::Receiver<T>) -> Option<T> {
    loop {
        match receiver.recv().await {
            Ok(event) => return Some(event),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

impl Subscriber {
    /// Sends one notification; `false` if the connection is closed or its queue is full.
    fn send(&self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut out = Vec::with_capacity(512);
        let mut object = Object::new(&mut out);
        object.string("jsonrpc", "2.0");
        object.string("method", "eth_subscription");
        let mut params = object.object("params");
        params.string("subscription", &self.id);
        write(params.field("result"));
        drop(params);
        drop(object);
        self.notify.try_send(out).is_ok()
    }

    async fn follow_heads(&self, full: bool) {
        let mut heads = self.backend.events.subscribe_heads();
        while let Some(change) = next(&mut heads).await {
            for id in &change.added {
                if !self.send_head(id, full) {
                    return;
                }
            }
        }
    }

    fn send_head(&self, id: &BlockId, full: bool) -> bool {
        let Ok(Some(block)) = self.backend.block(&id.hash) else {
            return true;
        };
        self.send(|out| match full {
            true => serialize::block(out, &block, true),
            false => {
                let mut object = Object::new(out);
                serialize::header_fields(&mut object, &block.header, &id.hash);
            }
        })
    }

    async fn follow_logs(&self, filter: &LogFilter) {
        let mut heads = self.backend.events.subscribe_heads();
        while let Some(change) = next(&mut heads).await {
            let removed = change.removed.iter().map(|id| (id, true));
            let added = change.added.iter().map(|id| (id, false));
            for (id, removed) in removed.chain(added) {
                if !self.send_logs(id, removed, filter) {
                    return;
                }
            }
        }
    }

    fn send_logs(&self, id: &BlockId, removed: bool, filter: &LogFilter) -> bool {
        let Ok(Some(block)) = self.backend.block(&id.hash) else {
            return true;
        };
        let mut is_open = true;
        let result = each_log(&block, &self.backend, |log, mut location| {
            if is_open && filter.matches(log) {
                location.removed = removed;
                is_open = self.send(|out| serialize::log(out, log, &location));
            }
        });
        is_open && result.is_ok()
    }

    async fn follow_pending(&self, full: bool) {
        let mut events = self.backend.events.subscribe_pool();
        while let Some(event) = next(&mut events).await {
            let Some(tx) = newly_pending(&event) else {
                continue;
            };
            let is_open = self.send(|out| match full {
                true => {
                    serialize::transaction(out, &tx.tx, tx.sender, &serialize::TxLocation::PENDING)
                }
                false => json::data(out, tx.hash.as_slice()),
            });
            if !is_open {
                return;
            }
        }
    }

    async fn follow_dropped(&self) {
        let mut events = self.backend.events.subscribe_pool();
        while let Some(event) = next(&mut events).await {
            let PoolEvent::Dropped { tx, reason, .. } = event else {
                continue;
            };
            let is_confirmed = reason == niwaki_txpool::DropReason::Included;
            if !is_confirmed && !self.send(|out| json::data(out, tx.hash.as_slice())) {
                return;
            }
        }
    }

    /// Sends the state of syncing at once, and again whenever it changes.
    async fn follow_syncing(&self) {
        let mut heads = self.backend.events.subscribe_heads();
        let mut sent = None;
        loop {
            let syncing = self.backend.consensus.target().is_some();
            if sent != Some(syncing) {
                sent = Some(syncing);
                let text: &[u8] = if syncing { b"true" } else { b"false" };
                if !self.send(|out| out.extend_from_slice(text)) {
                    return;
                }
            }
            if next(&mut heads).await.is_none() {
                return;
            }
        }
    }
}
