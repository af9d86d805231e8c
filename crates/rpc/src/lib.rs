//! JSON-RPC and the Engine API over HTTP, WebSocket and IPC.
//!
//! A request arrives in `server`. `dispatch` parses it and finds who runs it: the I/O thread that read it, or a worker
//! of its lane. The function in the row of its method then writes the result as JSON straight into the response. This
//! crate knows the chain and the transaction pool; of peers it knows what the program's hooks tell.
//!
//! ```text
//! server -> dispatch -> methods (one row each) -> eth, engine, debug, trace, txpool, ... -> Backend: chain, pool
//!              |                                                   |
//!           worker_pools, block_priority                        json -> response_stream
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `server` | HTTP, WebSocket and IPC: sockets, limits, TLS, tokens |
//! | `dispatch` | from the bytes of a request to the bytes of its response |
//! | `methods` | the row of a method: name, parameters, lane, function |
//! | `worker_pools` | worker threads and a bounded queue for each lane, so that a slow call never delays a fast one |
//! | `block_priority` | requests wait while a block is handled, on machines with few processors |
//! | `response_stream` | long responses, sent in chunks while their method runs |
//! | `discover` | the methods as an OpenRPC document (`rpc.discover`) |
//! | `params`, `json_reader`, `quantity` | reading: parameters, JSON by the rules of all clients, numbers |
//! | `json`, `pretty`, `human` | writing: JSON, indented JSON, values for the log |
//! | `backend` | what the methods work on: chain, pool, options |
//! | `state` | the state at a block, and proofs of it |
//! | `operator` | hooks of the program around this crate: metrics, log levels, dev mode |
//! | `peers` | the methods about peers, and the hooks into the network |
//! | `permissions` | lists of nodes and accounts |
//! | `sync` | how far the sync is, and the hook into it |
//! | `blocks` | cache of decoded blocks with senders and receipts |
//! | `eth`, `debug`, `log_index`, `miner`, `niwaki`, `node`, `txpool` | the methods by namespace; `node`: `net`, `web3`, `admin` |
//! | `simulation` | executing unsigned messages: calls, overrides, simulated blocks |
//! | `trace` | re-executing transactions under a tracer: `debug_trace*`, `trace_*` |
//! | `engine`, `payloads` | the Engine API, and the builder of payloads |
//! | `validators` | the methods of BFT chains |
//! | `builder_settings` | what `miner_*` may change for the builder |
//! | `subscriptions`, `filters`, `session` | notifications, polled filters, the state of a connection |
//! | `dashboard` | a page of the node itself, and its data |
//! | `graphql` | GraphQL over HTTP (EIP-1767) |
//! | `metrics` | counters of calls, connections and blocks |
//! | `log_limit` | holds back repeated lines of the log |
//! | `error` | JSON-RPC errors |
#![forbid(unsafe_code)]

mod backend;
mod block_priority;
mod blocks;
mod builder_settings;
mod dashboard;
mod debug;
mod discover;
mod dispatch;
mod engine;
mod error;
mod eth;
mod filters;
mod graphql;
pub mod human;
mod json;
mod json_reader;
mod log_index;
mod log_limit;
mod methods;
mod metrics;
mod miner;
mod niwaki;
mod node;
mod operator;
mod params;
mod payloads;
mod peers;
mod permissions;
mod pretty;
mod quantity;
mod response_stream;
mod server;
mod session;
mod simulation;
mod state;
mod subscriptions;
mod sync;
mod trace;
mod txpool;
mod validators;
mod worker_pools;

#[cfg(test)]
mod tests;

pub use backend::{ApiOptions, Backend, Identity, MAX_CONSENSUS_SILENCE, SyncStatus};
pub use block_priority::yield_to_blocks;
pub use blocks::FullBlock;
pub use dashboard::{DASHBOARD_METHODS, LogLine, MachineHook, MachineReport, MemoryPart};
pub use debug::{ProfileHooks, ProfileWriter};
pub use dispatch::{Dispatcher, Limits};
pub use error::RpcError;
pub(crate) use error::RpcResult;
pub use methods::{
    CONNECTION_METHODS, ENGINE_EXTRA_METHODS, Lane, Method, NAMESPACES, all as methods,
};
pub use operator::{LogSwitch, MetricsSource, Operator};
pub use params::{BlockRef, BlockTag, Params};
pub use payloads::Filling;
pub use peers::{
    BanReport, DepartureReport, OwnIpv6, OwnNode, PeerCommand, PeerCommands, PeerHooks, PeerReport,
};
pub use permissions::{ChangeList, ListChange, ListHooks, PermissionHooks};
pub use server::{
    Access, Authentication, Caller, Clients, HostList, HttpOptions, HttpServer, IpcServer,
    JwtError, JwtSecret, KeyStore, Login, Origins, PasswordError, StoreError, Tls, TlsOptions,
    TokenAlgorithm, TokenError, TokenKey, Tokens, User, Users, hash_password, serve_text,
};
pub use session::Session;
pub use state::{Proofs, State};
pub use subscriptions::Events;
pub use sync::{SyncFailureReport, SyncHook, SyncReport};
pub use validators::{ValidatorHooks, ValidatorReport};
pub use worker_pools::WorkerPools;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whether or not a thread has panicked with the lock held: no change is left halfway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
