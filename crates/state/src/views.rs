//! States to read from. A view never changes, whatever is committed later.

pub(crate) mod cache;
pub(crate) mod historical;
pub(crate) mod layers;
pub(crate) mod overlay;
pub(crate) mod provable;
pub(crate) mod range;
mod value_prefetch;
pub(crate) mod view;
