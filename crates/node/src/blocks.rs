//! `niwaki blocks`: import from files, export to files.
//!
//! | file | what it is |
//! |---|---|
//! | `import`, `export` | the two commands |
//! | `source` | the raw blocks of a list of files, in order |
//! | `rlp` | files of concatenated RLP blocks |
//! | `era1` | ERA1 archives, read and written |
//! | `ere` | Ere archives, read |
//! | `json` | blocks to build: transactions with the keys that sign them |

mod era1;
mod ere;
mod export;
mod import;
mod json;
mod rlp;
mod source;

pub(crate) use export::export;
pub(crate) use import::import;
