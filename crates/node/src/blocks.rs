//! Blocks in and out of files.
//!
//! | file | what |
//! |---|---|
//! | `source` | blocks of one or more files, one after the other, not yet decoded |
//! | `rlp` | files of blocks in RLP |
//! | `era1` | ERA1 archives, read and written |
//! | `json` | blocks to be made: transactions with the keys that sign them |
//! | `import`, `export` | the two commands |

mod era1;
mod export;
mod import;
mod json;
mod rlp;
mod source;

pub(crate) use export::export;
pub(crate) use import::import;
