//! News as it comes: new heads, logs, transactions that wait, the state of syncing.
//!
//! A subscriber who does not read is not waited for: what it misses is gone, and it is let go when
//! its connection's queue is full.

use crate::eth::{LogFilter, answers, each_log};
use crate::json::{self, Object};
use crate::params::Params;
use crate::{Backend, RpcError};
use niwaki_chain::{BlockId, HeadChange};
use niwaki_txpool::{PoolEvent, PooledTransaction};
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;

/// Heads and transactions that a subscriber may be behind.
const HEADS: usize = 512;
const TRANSACTIONS: usize = 16 << 10;

/// Who is told of new heads and transactions.
#[derive(Debug)]
pub struct Events {
    heads: broadcast::Sender<Arc<HeadChange>>,
    pool: broadcast::Sender<PoolEvent>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            heads: broadcast::channel(HEADS).0,
            pool: broadcast::channel(TRANSACTIONS).0,
        }
    }
}

impl Events {
    /// Tells of a new head.
    pub fn head(&self, change: Arc<HeadChange>) {
        let _ = self.heads.send(change); // Nobody may listen.
    }

    /// Tells of the pool.
    pub fn pool(&self, event: &PoolEvent) {
        if self.pool.receiver_count() > 0 {
            let _ = self.pool.send(event.clone());
        }
    }

    /// Hears of new heads from now on.
    pub fn heads(&self) -> broadcast::Receiver<Arc<HeadChange>> {
        self.heads.subscribe()
    }

    /// Hears of the pool from now on.
    pub fn transactions(&self) -> broadcast::Receiver<PoolEvent> {
        self.pool.subscribe()
    }
}

/// The transaction that an event makes one that blocks could take.
pub(crate) fn newly_pending(event: &PoolEvent) -> Option<&Arc<PooledTransaction>> {
    match event {
        PoolEvent::Added { tx, pending: true } | PoolEvent::Promoted { tx } => Some(tx),
        _ => None,
    }
}

/// What a subscriber wants to hear of.
#[derive(Debug)]
pub(crate) enum Wanted {
    Heads { whole: bool },
    Logs(Box<LogFilter>),
    Pending { whole: bool },
    Dropped,
    Syncing,
}

/// Besu's way to ask for transactions in full; a flag alone is geth's.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Detail {
    include_transactions: bool,
}

/// Whether the second parameter asks for transactions in full.
fn wants_whole(params: &Params<'_>) -> Result<bool, RpcError> {
    let is_object = params.raw(1).is_some_and(|raw| raw.starts_with('{'));
    match is_object {
        true => Ok(params.required::<Detail>(1)?.include_transactions),
        false => Ok(params.optional(1)?.unwrap_or(false)),
    }
}

impl Wanted {
    pub(crate) fn read(params: &Params<'_>) -> Result<Self, RpcError> {
        let kind: String = params.required(0)?;
        let whole = || wants_whole(params);
        Ok(match kind.as_str() {
            "newHeads" => Self::Heads { whole: whole()? },
            "logs" => {
                let filter: LogFilter = params.optional(1)?.unwrap_or_default();
                filter.check()?;
                Self::Logs(Box::new(filter))
            }
            "newPendingTransactions" => Self::Pending { whole: whole()? },
            "droppedPendingTransactions" => Self::Dropped,
            "syncing" => Self::Syncing,
            _ => {
                let kind: String = kind.chars().take(60).collect();
                let message = format!("no \"{kind}\" subscription in eth namespace");
                return Err(RpcError::new(-32601, message));
            }
        })
    }
}

/// Tells `notify` of what is wanted, for as long as it listens.
pub(crate) async fn follow(
    backend: Arc<Backend>,
    wanted: Wanted,
    id: String,
    notify: mpsc::Sender<Vec<u8>>,
) {
    let subscriber = Subscriber {
        backend,
        id,
        notify,
    };
    match wanted {
        Wanted::Heads { whole } => subscriber.follow_heads(whole).await,
        Wanted::Logs(filter) => subscriber.follow_logs(&filter).await,
        Wanted::Pending { whole } => subscriber.follow_pending(whole).await,
        Wanted::Dropped => subscriber.follow_dropped().await,
        Wanted::Syncing => subscriber.follow_syncing().await,
    }
}

struct Subscriber {
    backend: Arc<Backend>,
    id: String,
    notify: mpsc::Sender<Vec<u8>>,
}

/// The next event; `None` when no more can come. What was missed is gone.
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
    /// Sends one notification; `false` when nobody is there any more, or too slow.
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

    async fn follow_heads(&self, whole: bool) {
        let mut heads = self.backend.events.heads();
        while let Some(change) = next(&mut heads).await {
            for id in &change.added {
                if !self.send_head(id, whole) {
                    return;
                }
            }
        }
    }

    fn send_head(&self, id: &BlockId, whole: bool) -> bool {
        let Ok(Some(block)) = self.backend.block(&id.hash) else {
            return true;
        };
        self.send(|out| match whole {
            true => answers::block(out, &block, true),
            false => {
                let mut object = Object::new(out);
                answers::header_fields(&mut object, &block.header, &id.hash);
            }
        })
    }

    async fn follow_logs(&self, filter: &LogFilter) {
        let mut heads = self.backend.events.heads();
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
        let mut is_there = true;
        let told = each_log(&block, &self.backend, |log, mut place| {
            if is_there && filter.matches(log) {
                place.removed = removed;
                is_there = self.send(|out| answers::log(out, log, &place));
            }
        });
        is_there && told.is_ok()
    }

    async fn follow_pending(&self, whole: bool) {
        let mut events = self.backend.events.transactions();
        while let Some(event) = next(&mut events).await {
            let Some(tx) = newly_pending(&event) else {
                continue;
            };
            let is_there = self.send(|out| match whole {
                true => answers::transaction(out, &tx.tx, tx.sender, &answers::Place::PENDING),
                false => json::data(out, tx.hash.as_slice()),
            });
            if !is_there {
                return;
            }
        }
    }

    async fn follow_dropped(&self) {
        let mut events = self.backend.events.transactions();
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

    /// Tells at once how it stands, and again when that changes.
    async fn follow_syncing(&self) {
        let mut heads = self.backend.events.heads();
        let mut told = None;
        loop {
            let syncing = self.backend.consensus.target().is_some();
            if told != Some(syncing) {
                told = Some(syncing);
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
