//! The hashes of a BFT header: keccak of its RLP with parts of the extra data left out.
//!
//! | hash | QBFT | IBFT 2.0 |
//! |---|---|---|
//! | of the block | round 0, no seals | without round and seals |
//! | what a seal signs | no seals | without seals |
//!
//! So validators that agree in different rounds, or gather different seals, agree on the same block.

use super::extra::Parts;
use super::{BftExtra, BftExtraError, BftProtocol};
use alloy_primitives::B256;
use niwaki_primitives::Header;

/// The hash of the block; a genesis block's is that of its header as it stands. A header whose extra data is malformed has none.
///
/// # Errors
/// [`BftExtraError`].
pub fn bft_block_hash(protocol: BftProtocol, header: &Header) -> Result<B256, BftExtraError> {
    let mut extra = BftExtra::decode(protocol, &header.extra_data)?;
    if header.number == 0 {
        return Ok(header.hash_slow());
    }
    extra.round = 0;
    Ok(hash_with(protocol, header, &extra, Parts::WithoutRound))
}

/// What the seals of a header sign that validators agree on in the round that `extra` has; the rest of `extra` must be the header's.
pub fn bft_seal_hash(protocol: BftProtocol, header: &Header, extra: &BftExtra) -> B256 {
    hash_with(protocol, header, extra, Parts::WithoutSeals)
}

fn hash_with(protocol: BftProtocol, header: &Header, extra: &BftExtra, parts: Parts) -> B256 {
    let extra_data = extra.encode_parts(protocol, parts);
    let hashed = Header {
        extra_data,
        ..header.clone()
    };
    hashed.hash_slow()
}
