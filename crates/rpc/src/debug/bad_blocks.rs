//! `debug_getBadBlocks`: the last blocks that broke the protocol.

use crate::blocks::FullBlock;
use crate::eth::serialize;
use crate::json::{self, Array};
use crate::params::Params;
use crate::{Backend, RpcError};
use niwaki_primitives::rlp::encode;

/// Highest first; each as an object and as RLP.
pub(super) fn bad_blocks(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> Result<(), RpcError> {
    if params.raw(0).is_some() {
        return Err(RpcError::invalid_params(
            "a file is not written: take the blocks from the answer",
        ));
    }
    let mut list = Array::new(out);
    for (hash, block) in backend.chain().refused_blocks() {
        let full = FullBlock::new((*block).clone(), hash);
        let mut object = list.object();
        object.data("hash", hash.as_slice());
        serialize::block(object.field("block"), &full, true);
        json::data(object.field("rlp"), &encode(&*block));
        drop(object);
        params.flush(list.buffer())?;
    }
    Ok(())
}
