//! How the chain comes from peers and goes to them.
//!
//! | file | what it is |
//! |---|---|
//! | `serve` | answers what peers ask of the chain |

mod serve;

pub use serve::{Sources, answer, serve};
