//! The hash by which fixtures compare logs.

use alloy_primitives::keccak256;
use niwaki_primitives::{B256, Log};

/// Keccak-256 of the RLP of the logs.
pub(crate) fn logs_hash(logs: &[Log]) -> B256 {
    let mut rlp = Vec::new();
    alloy_rlp::encode_list(logs, &mut rlp);
    keccak256(rlp)
}
