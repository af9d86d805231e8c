//! News on request: filters that remember what a caller has not heard yet.

use crate::eth::{LogFilter, answers, each_log, write_logs_of};
use crate::json::{self, Array};
use crate::params::Params;
use crate::subscriptions::newly_pending;
use crate::{Backend, RpcError};
use niwaki_chain::HeadChange;
use niwaki_txpool::PoolEvent;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::broadcast::{Receiver, error::TryRecvError};

type Answer = Result<(), RpcError>;

#[derive(Debug)]
enum Kind {
    Blocks(Receiver<Arc<HeadChange>>),
    Logs(Box<LogFilter>, Receiver<Arc<HeadChange>>),
    Pending(Receiver<PoolEvent>),
}

#[derive(Debug)]
struct Filter {
    kind: Kind,
    asked: Instant,
}

/// The filters of all callers.
#[derive(Debug, Default)]
pub(crate) struct Filters(Mutex<HashMap<String, Filter>>);

impl Filters {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Filter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn install(backend: &Backend, kind: Kind, out: &mut Vec<u8>) -> Answer {
    let mut filters = backend.filters.all();
    let (idle, most) = (backend.options.filter_timeout, backend.options.max_filters);
    filters.retain(|_, filter| filter.asked.elapsed() < idle);
    if most > 0 && filters.len() >= most {
        return Err(RpcError::limit(format!("{most} filters are in use")));
    }
    let id = backend.next_id();
    json::string(out, &id);
    let asked = Instant::now();
    filters.insert(id, Filter { kind, asked });
    Ok(())
}

pub(crate) fn new_block(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    install(backend, Kind::Blocks(backend.events.heads()), out)
}

pub(crate) fn new_logs(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let filter: LogFilter = params.required(0)?;
    filter.check()?;
    let heads = backend.events.heads();
    install(backend, Kind::Logs(Box::new(filter), heads), out)
}

pub(crate) fn new_pending(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    install(backend, Kind::Pending(backend.events.transactions()), out)
}

pub(crate) fn uninstall(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let id: String = params.required(0)?;
    let was_there = backend.filters.all().remove(&id).is_some();
    out.extend_from_slice(if was_there { b"true" } else { b"false" });
    Ok(())
}

/// What came since the last time.
pub(crate) fn changes(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let mut filter = take(backend, params)?;
    let written = write_changes(backend, &mut filter.kind, out);
    put_back(backend, params, filter)?;
    written
}

/// All that the filter wants, as `eth_getLogs` gives it.
pub(crate) fn logs(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
    let filter = take(backend, params)?;
    let wanted = match &filter.kind {
        Kind::Logs(wanted, _) => Some(wanted.clone()),
        _ => None,
    };
    put_back(backend, params, filter)?;
    match wanted {
        Some(wanted) => write_logs_of(backend, &wanted, params, out),
        None => Err(not_found()),
    }
}

fn not_found() -> RpcError {
    RpcError::server("filter not found")
}

/// Takes a filter out, so that no other one waits while its news are written.
fn take(backend: &Backend, params: &Params<'_>) -> Result<Filter, RpcError> {
    let id: String = params.required(0)?;
    let filter = backend.filters.all().remove(&id);
    filter
        .filter(|filter| filter.asked.elapsed() < backend.options.filter_timeout)
        .ok_or_else(not_found)
}

fn put_back(backend: &Backend, params: &Params<'_>, mut filter: Filter) -> Answer {
    filter.asked = Instant::now();
    let id: String = params.required(0)?;
    backend.filters.all().insert(id, filter);
    Ok(())
}

/// Everything that waits in `receiver`; what was missed is gone.
fn waiting<T: Clone>(receiver: &mut Receiver<T>) -> Vec<T> {
    let mut events = Vec::new();
    loop {
        match receiver.try_recv() {
            Ok(event) => events.push(event),
            Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return events,
        }
    }
}

fn write_changes(backend: &Backend, kind: &mut Kind, out: &mut Vec<u8>) -> Answer {
    let mut list = Array::new(out);
    match kind {
        Kind::Blocks(heads) => {
            for change in waiting(heads) {
                for id in &change.added {
                    list.data(id.hash.as_slice());
                }
            }
        }
        Kind::Pending(events) => {
            for event in waiting(events) {
                if let Some(tx) = newly_pending(&event) {
                    list.data(tx.hash.as_slice());
                }
            }
        }
        Kind::Logs(filter, heads) => {
            for change in waiting(heads) {
                let removed = change.removed.iter().map(|id| (id, true));
                let added = change.added.iter().map(|id| (id, false));
                for (id, removed) in removed.chain(added) {
                    let Some(block) = backend.block(&id.hash)? else {
                        continue;
                    };
                    each_log(&block, backend, |log, mut place| {
                        if filter.matches(log) {
                            place.removed = removed;
                            answers::log(list.item(), log, &place);
                        }
                    })?;
                }
            }
        }
    }
    Ok(())
}
