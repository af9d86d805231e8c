//! Fork identifiers of EIP-2124 and EIP-6122.

use crate::chain_spec::ChainSpec;
pub use alloy_eip2124::{ForkFilter, ForkId};
use alloy_eip2124::{ForkFilterKey, Head};
use alloy_primitives::B256;

/// A filter that compares the fork ids of peers with this chain's, at a head of this number and
/// timestamp (seconds).
///
/// Spec: EIP-2124, EIP-6122.
pub fn fork_filter(
    spec: &ChainSpec,
    genesis_hash: B256,
    genesis_time: u64,
    number: u64,
    timestamp: u64,
) -> ForkFilter {
    let head = Head {
        number,
        timestamp,
        ..Head::default()
    };
    let blocks = spec.fork_blocks().into_iter().map(ForkFilterKey::Block);
    let times = spec
        .fork_times(genesis_time)
        .into_iter()
        .map(ForkFilterKey::Time);
    ForkFilter::new(head, genesis_hash, genesis_time, blocks.chain(times))
}

/// The fork id of this chain at a head of this number and timestamp (seconds).
///
/// Spec: EIP-2124, EIP-6122.
pub fn fork_id(
    spec: &ChainSpec,
    genesis_hash: B256,
    genesis_time: u64,
    number: u64,
    timestamp: u64,
) -> ForkId {
    fork_filter(spec, genesis_hash, genesis_time, number, timestamp).current()
}
