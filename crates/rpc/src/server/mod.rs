//! The servers: HTTP, WebSocket and IPC.
//!
//! | file | what it is |
//! |---|---|
//! | `http`, `request_body`, `body`, `gzip`, `text` | HTTP, bodies of requests and responses, compression, pages of text |
//! | `graphql` | GraphQL by GET and POST |
//! | `rest` | the Engine API by REST |
//! | `socket`, `ipc` | WebSocket, Unix sockets |
//! | `access`, `jwt`, `tokens`, `login` | access control, the Engine API's tokens, users' tokens, logins |
//! | `tls`, `der`, `pem`, `x509` | TLS, and readers of keys and certificates |

mod access;
mod body;
mod der;
mod graphql;
mod gzip;
mod http;
mod ipc;
mod jwt;
mod login;
mod pem;
mod request_body;
mod rest;
mod socket;
mod text;
mod tls;
mod tokens;
mod x509;

pub use access::{Access, Authentication, HostList, Origins};
pub use http::{HttpOptions, HttpServer};
pub use ipc::IpcServer;
pub use jwt::{JwtError, JwtSecret};
pub use text::serve_text;
pub use tls::{Clients, KeyStore, StoreError, Tls, TlsOptions};
pub use tokens::{
    Caller, Login, PasswordError, TokenAlgorithm, TokenError, TokenKey, Tokens, User, Users,
    hash_password,
};
