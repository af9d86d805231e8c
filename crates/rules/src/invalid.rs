//! All reasons why a block can be invalid.
//!
//! Five enums, one per stage or part of a block. Each variant holds the value found and the value expected, and
//! `spec_name` returns its name in execution-spec-tests without the class before the dot, for comparison with the
//! `expectException` of a fixture.

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
