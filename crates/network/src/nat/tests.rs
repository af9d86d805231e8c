//! Routers on loopback, against which the parts of this module are tested.

pub(super) mod gateway;
pub(super) mod igd;
