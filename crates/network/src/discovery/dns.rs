//! Signed lists of nodes in the DNS: the way in for a node that knows no other.
//!
//! A list is a tree of TXT records. Its root is signed by the key in the list's URL, and every other entry is named by the hash of its
//! text, so that a resolver can withhold entries but not change them.
//!
//! ```text
//! all.mainnet.ethdisco.net              enrtree-root:v1 e=JWXY.. l=C7HR.. seq=1 sig=..
//! JWXY...all.mainnet.ethdisco.net       enrtree-branch:2XS2..,H4FH..
//! 2XS2...all.mainnet.ethdisco.net       enr:-HW4..
//! C7HR...all.mainnet.ethdisco.net       enrtree://AM5F..@other.example.org
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `entry` | the texts: URLs, roots, branches, links, records |
//! | `example` | the list of the specification, and a maker of lists, for tests |
//! | `tree` | which name is asked for next, and what its answer means |
//! | `pool` | which entries are left in a walk |
//! | `cache` | the file of entries |
//! | `resolver` | TXT records of a name |
//! | `task` | the tree on a resolver |
//!
//! Spec: EIP-1459, devp2p `dnsdisc.md`.

mod cache;
mod entry;
#[cfg(test)]
pub(crate) mod example;
mod pool;
mod resolver;
mod task;
mod tree;

pub use entry::{Entry, EntryError, EntryName, ListUrl, Root};
pub(crate) use resolver::TxtResolver;
pub use task::DnsQueries;
pub(crate) use task::{Dns, DnsConfig, DnsFigures, start};
pub use tree::{AnswerError, DnsQuery, DnsTree, NextStep};
