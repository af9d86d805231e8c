//! Laws of the pool, and what every refusal says.

mod admission;
mod blobs;
mod delegation;
mod dump;
mod events;
mod heads;
mod laws;
mod limits;
mod ordering;
mod refusals;
mod soak;
mod stats;
mod support;
mod wire;
