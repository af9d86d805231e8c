//! RLPx: encrypted connections between nodes, and the base protocol on them.
//!
//! | file | what it is |
//! |---|---|
//! | `ecies` | encryption of the handshake |
//! | `handshake` | the two messages from which both sides derive their keys |
//! | `frame` | encryption and MACs of everything after it |
//! | `hello` | the base protocol; numbers of the protocols that both speak |
//! | `session` | all of it over a stream |

pub(crate) mod ecies;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod hello;
pub(crate) mod session;

pub use frame::FrameError;
pub use handshake::HandshakeError;
pub use hello::{Capability, DisconnectReason, Hello, Protocol, SharedProtocol};
pub use session::{
    Connection, MAX_EARLY_BYTES, MAX_MESSAGE_BYTES, Message, MessageReader, MessageWriter, Session,
    SessionError, initiate, respond,
};
