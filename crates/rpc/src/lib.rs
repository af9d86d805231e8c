//! JSON-RPC and the Engine API over HTTP, WebSocket and IPC.
//!
//! A request comes in through `server`, is read and given a place to run by `dispatch`, and is
//! answered by the function of its row in the tables of methods, which writes JSON straight into
//! the answer. This room knows chain and pool, and nothing of peers.
//!
//! | file | what |
//! |---|---|
//! | `server` | HTTP, WebSocket, IPC: sockets, limits, who may ask |
//! | `dispatch` | from the bytes of a request to those of its answer |
//! | `lanes` | workers, so that what is slow delays nothing else |
//! | `outlet` | where a long answer goes while it is being made |
//! | `methods` | every method: name, lane, function |
//! | `discover` | the methods as an OpenRPC document |
//! | `params`, `reading`, `quantity` | what comes in: parameters, JSON, numbers |
//! | `json` | what goes out |
//! | `backend` | what the methods are asked of |
//! | `operator` | what the program around does for them |
//! | `blocks` | blocks that were asked for lately |
//! | `log_index` | the index of logs made and removed |
//! | `choices` | what the operator chooses of blocks made here |
//! | `eth`, `debug`, `txpool`, `miner`, `niwaki`, `node` | the methods, by namespace |
//! | `simulation` | runs of what nobody has signed: calls, overrides, simulated blocks |
//! | `trace` | transactions run again and watched: `debug_trace*`, `trace_*` |
//! | `engine`, `payloads` | what a consensus client drives, and the blocks made for it |
//! | `filters`, `subscriptions`, `session` | news: on request, as it comes, and for whom |
//! | `figures` | what is counted |
//! | `human`, `log_limit` | values as the log has them; lines that would repeat themselves held back |
#![forbid(unsafe_code)]

mod backend;
mod blocks;
mod choices;
mod debug;
mod discover;
mod dispatch;
mod engine;
mod error;
mod eth;
mod figures;
mod filters;
pub mod human;
mod json;
mod lanes;
mod log_index;
mod log_limit;
mod methods;
mod miner;
mod niwaki;
mod node;
mod operator;
mod outlet;
mod params;
mod payloads;
mod precedence;
mod pretty;
mod quantity;
mod reading;
mod server;
mod session;
mod simulation;
mod subscriptions;
mod trace;
mod txpool;

#[cfg(test)]
mod tests;

pub use backend::{ApiOptions, Backend, Identity, LONGEST_SILENCE, State, SyncStatus};
pub use blocks::FullBlock;
pub use dispatch::{Dispatcher, Limits};
pub use error::RpcError;
pub use figures::Figures;
pub use lanes::Lanes;
pub use methods::{BESIDE_ENGINE, Lane, Method, NAMESPACES, OF_CONNECTIONS, all as methods};
pub use operator::{FiguresSource, LogLevel, LogSwitch, Operator};
pub use params::{BlockRef, BlockTag, Params};
pub use precedence::yield_to_blocks;
pub use server::{
    Access, Caller, Clients, HostList, HttpOptions, HttpServer, IpcServer, JwtError, JwtSecret,
    KeyStore, Login, Origins, PasswordError, Proof, StoreError, Tls, TlsOptions, TokenAlgorithm,
    TokenError, TokenKey, Tokens, User, Users, hash_password, serve_text,
};
pub use session::Session;
pub use subscriptions::Events;
