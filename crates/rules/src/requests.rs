//! EIP-7685 requests.

use alloy_primitives::{B256, Bytes};
use niwaki_crypto::sha256;

/// The hash of a block's requests: SHA-256 over the SHA-256 of each one that has data. A request is a type byte
/// followed by data.
///
/// Spec: EIP-7685, execution-specs `prague/requests.py`, `compute_requests_hash`.
pub fn requests_hash(requests: &[Bytes]) -> B256 {
    let mut hashes = Vec::new();
    for request in requests.iter().filter(|request| request.len() > 1) {
        hashes.extend_from_slice(sha256(request).as_slice());
    }
    sha256(&hashes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::b256;

    #[test]
    fn the_hash_of_no_requests_is_that_of_no_bytes() {
        let empty = b256!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(requests_hash(&[]), empty);
        assert_eq!(requests_hash(&[Bytes::from_static(&[1])]), empty);
    }

    #[test]
    fn order_and_content_change_the_hash() {
        let a = Bytes::from_static(&[0, 7]);
        let b = Bytes::from_static(&[1, 7]);
        let ab = requests_hash(&[a.clone(), b.clone()]);
        assert_ne!(ab, requests_hash(&[b, a]));
    }
}
