//! Every way in which a block can break the protocol.
//!
//! Five enums, one per stage or part. Each variant holds what was found and what the rule asks for, and
//! `spec_name` gives the name that execution-spec-tests uses for it, without the class before the
//! dot, so that a fixture's `expectException` can be compared with the reason of a refusal.

mod access_list;
mod block;
mod body;
mod header;
mod transaction;

pub use access_list::InvalidAccessList;
pub use block::InvalidBlock;
pub use body::InvalidBody;
pub use header::InvalidHeader;
pub use transaction::InvalidTransaction;
