//! Discovery: how nodes are found.
//!
//! | file | what it is |
//! |---|---|
//! | `v4` | the distributed table that every execution client takes part in |
//! | `dns` | signed lists of nodes in the DNS |

pub mod dns;
pub mod v4;
