//! Discovery: how nodes are found.
//!
//! | file | what it is |
//! |---|---|
//! | `v4` | the distributed table that every execution client takes part in |
//! | `v5` | a second such table, encrypted, of records |
//! | `dns` | signed lists of nodes in the DNS |
//! | `shed` | floods of packets |
//! | `settings` | what the operator chose |
//! | `sieve` | which found nodes are of this node's chain |
//! | `votes` | where other nodes see this one |
//! | `reach` | where this node is reached, as its record says |

pub mod dns;
pub(crate) mod reach;
mod settings;
pub(crate) mod shed;
pub(crate) mod sieve;
pub mod v4;
pub mod v5;
pub(crate) mod votes;

pub use settings::{BootNode, DiscoveryMode, DiscoverySettings};
