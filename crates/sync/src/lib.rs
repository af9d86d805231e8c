//! How the chain comes from peers and goes to them.
//!
//! ```text
//! target --> picker --> session: headers down (header_window, skeleton), bodies up (body_queue), importer --> chain
//!    ^                     |
//!    +------- owner <------+  target stored, or a failure and its pause
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `owner` | the thread of the sync |
//! | `target` | the block to reach |
//! | `followed` | the block to reach without a consensus client |
//! | `picker` | which way there |
//! | `session` | one attempt: headers down, bodies up |
//! | `header_window` | headers of many peers, linked by hash |
//! | `state_sync` | the state of a late block |
//! | `whole_blocks` | bodies, receipts and access lists of known headers |
//! | `history` | blocks below the first one that is stored |
//! | `skeleton` | headers whose blocks are not executed yet |
//! | `body_queue` | bodies of many peers, put into order |
//! | `importer` | blocks into the chain |
//! | `progress` | how far it is, for RPC, metrics and the log |
//! | `times` | how long it takes, for metrics |
//! | `source` | peers as this crate sees them |
//! | `serve` | answers what peers ask of the chain |

mod body_queue;
mod followed;
mod header_window;
mod history;
mod importer;
mod owner;
mod picker;
mod progress;
mod serve;
mod session;
mod skeleton;
mod source;
mod state_sync;
mod target;
#[cfg(test)]
mod tests;
mod times;
mod whole_blocks;

pub use followed::FollowsPeers;
pub use history::HistoryFloor;
pub use owner::{Sync, SyncConfig};
pub use picker::Way;
pub use progress::{STALLS, StateShare, SyncFailure, SyncMode, SyncState, SyncStatus};
pub use serve::{RecentStates, Requests, Sources, answer, serve};
pub use target::TargetSource;
pub use times::SyncTime;
