//! The ways in: HTTP, WebSocket and IPC.

mod access;
mod body;
mod der;
mod gzip;
mod http;
mod ipc;
mod jwt;
mod login;
mod pem;
mod socket;
mod text;
mod tls;
mod tokens;
mod x509;

pub use access::{Access, HostList, Origins, Proof};
pub use http::{HttpOptions, HttpServer};
pub use ipc::IpcServer;
pub use jwt::{JwtError, JwtSecret};
pub use text::serve_text;
pub use tls::{Clients, KeyStore, StoreError, Tls, TlsOptions};
pub use tokens::{
    Caller, Login, PasswordError, TokenAlgorithm, TokenError, TokenKey, Tokens, User, Users,
    hash_password,
};
