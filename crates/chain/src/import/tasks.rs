//! Work on a block's roots that goes on while the block is executed.
//!
//! | file | what it is |
//! |---|---|
//! | `receipt_root` | the receipts' trie and bloom, made as receipts come |
//! | `bal_root` | the state root that the block access list claims |
//! | `idle` | those tasks, done by workers between two transactions |
//! | `journal` | the write-ahead hook, run in parallel with the roots |

pub(super) mod bal_root;
pub(super) mod idle;
pub(super) mod journal;
pub(crate) mod receipt_root;
