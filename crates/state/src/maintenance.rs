//! Work on the whole state at once: the first state, check and repair.

pub(crate) mod check;
pub(crate) mod genesis;
pub(crate) mod load;
pub(crate) mod repair;
pub(crate) mod row_writer;
mod scan;
