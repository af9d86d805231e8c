//! The ways in: HTTP, WebSocket and IPC.

mod access;
mod body;
mod http;
mod ipc;
mod jwt;
mod socket;
mod text;

pub use access::{Access, HostList, Origins};
pub use http::{HttpOptions, HttpServer};
pub use ipc::IpcServer;
pub use jwt::{JwtError, JwtSecret};
pub use text::serve_text;
