//! Filters (`eth_newFilter` and its kin): the client polls for what happened since its last poll.
//!
//! A filter holds a receiver of a channel of [`Events`](crate::Events), which buffers the events. One that was not
//! polled within [`ApiOptions::filter_timeout`](crate::ApiOptions::filter_timeout) is removed; one that falls behind
//! the channel misses the oldest events.

use crate::eth::{LogFilter, each_log, serialize, write_logs};
use crate::json::{self, Array};
use crate::params::Params;
use crate::subscriptions::newly_pending;
use crate::{Backend, RpcError, RpcResult, lock};
use niwaki_chain::HeadChange;
use niwaki_txpool::PoolEvent;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

#[derive(Debug)]
enum Kind {
    Blocks(Receiver<Arc<HeadChange>>),
    Logs(Box<LogFilter>, Receiver<Arc<HeadChange>>),
    Pending(Receiver<PoolEvent>),
}

#[derive(Debug)]
struct Filter {
    kind: Kind,
    last_polled: Instant,
}

/// The filters of all clients.
#[derive(Debug, Default)]
pub(crate) struct Filters(Mutex<HashMap<String, Filter>>);

impl Filters {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Filter>> {
        lock(&self.0)
    }
}

fn install(backend: &Backend, kind: Kind, out: &mut Vec<u8>) -> RpcResult {
    let mut filters = backend.filters.all();
    let (idle, most) = (backend.options.filter_timeout, backend.options.max_filters);
    filters.retain(|_, filter| filter.last_polled.elapsed() < idle);
    if most > 0 && filters.len() >= most {
        return Err(RpcError::limit(format!("{most} filters are in use")));
    }
    let id = backend.next_id();
    json::string(out, &id);
    let last_polled = Instant::now();
    filters.insert(id, Filter { kind, last_polled });
    Ok(())
}

pub(crate) fn new_block(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    install(backend, Kind::Blocks(backend.events.subscribe_heads()), out)
}

pub(crate) fn new_logs(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let filter: LogFilter = params.required(0)?;
    filter.check()?;
    let heads = backend.events.subscribe_heads();
    install(backend, Kind::Logs(Box::new(filter), heads), out)
}

pub(crate) fn new_pending(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    install(backend, Kind::Pending(backend.events.subscribe_pool()), out)
}

pub(crate) fn uninstall(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let id: String = params.required(0)?;
    let existed = backend.filters.all().remove(&id).is_some();
    json::boolean(out, existed);
    Ok(())
}

/// The events since the last poll.
pub(crate) fn changes(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let mut filter = take(backend, params)?;
    let written = write_changes(backend, &mut filter.kind, out);
    put_back(backend, params, filter)?;
    written
}

/// All logs that match the filter, as `eth_getLogs` returns them.
pub(crate) fn logs(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let filter = take(backend, params)?;
    let log_filter = match &filter.kind {
        Kind::Logs(filter, _) => Some(filter.clone()),
        _ => None,
    };
    put_back(backend, params, filter)?;
    match log_filter {
        Some(filter) => write_logs(backend, &filter, params, out),
        None => Err(not_found()),
    }
}

fn not_found() -> RpcError {
    RpcError::server("filter not found")
}

/// Takes a filter out of the table, so that the table is not locked while its events are written.
fn take(backend: &Backend, params: &Params<'_>) -> Result<Filter, RpcError> {
    let id: String = params.required(0)?;
    let filter = backend.filters.all().remove(&id);
    filter
        .filter(|filter| filter.last_polled.elapsed() < backend.options.filter_timeout)
        .ok_or_else(not_found)
}

fn put_back(backend: &Backend, params: &Params<'_>, mut filter: Filter) -> RpcResult {
    filter.last_polled = Instant::now();
    let id: String = params.required(0)?;
    backend.filters.all().insert(id, filter);
    Ok(())
}

/// All buffered events of `receiver`; events that were missed are skipped.
fn drain<T: Clone>(receiver: &mut Receiver<T>) -> Vec<T> {
    let mut events = Vec::new();
    loop {
        match receiver.try_recv() {
            Ok(event) => events.push(event),
            Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return events,
        }
    }
}

fn write_changes(backend: &Backend, kind: &mut Kind, out: &mut Vec<u8>) -> RpcResult {
    let mut list = Array::new(out);
    match kind {
        Kind::Blocks(heads) => {
            for change in drain(heads) {
                for id in &change.added {
                    list.data(id.hash.as_slice());
                }
            }
        }
        Kind::Pending(events) => {
            for event in drain(events) {
                if let Some(tx) = newly_pending(&event) {
                    list.data(tx.hash.as_slice());
                }
            }
        }
        Kind::Logs(filter, heads) => {
            for change in drain(heads) {
                let removed = change.removed.iter().map(|id| (id, true));
                let added = change.added.iter().map(|id| (id, false));
                for (id, removed) in removed.chain(added) {
                    let Some(block) = backend.block(&id.hash)? else {
                        continue;
                    };
                    each_log(&block, backend, |log, mut location| {
                        if filter.matches(log) {
                            location.removed = removed;
                            serialize::log(list.item(), log, &location);
                        }
                    })?;
                }
            }
        }
    }
    Ok(())
}
