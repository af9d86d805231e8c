//! `engine_getPayloadBodies`: block bodies for a consensus client that has the headers.

use crate::blocks::FullBlock;
use crate::eth::null;
use crate::eth::serialize::{encoded, withdrawals};
use crate::json::{Array, Object};
use crate::params::{BlockRef, BlockTag, Number, Params};
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::B256;

/// Most bodies of one request.
const MAX_ITEMS: u64 = 1024;

fn write_body(
    backend: &Backend,
    block: Option<&FullBlock>,
    with_access_list: bool,
    out: &mut Vec<u8>,
) -> RpcResult {
    let Some(block) = block else {
        return null(out);
    };
    let mut object = Object::new(out);
    object.data_list("transactions", block.body.transactions.iter().map(encoded));
    match &block.body.withdrawals {
        Some(list) => withdrawals(&mut object, list),
        None => object.null("withdrawals"),
    }
    if with_access_list {
        let list = backend.chain().block_access_list(&block.id.hash)?;
        object.data_or_null("blockAccessList", list);
    }
    Ok(())
}

fn too_many(count: u64) -> RpcError {
    let message = format!("Too large request: {count} bodies, at most {MAX_ITEMS} are served");
    RpcError::new(-38004, message)
}

fn by_hash(
    backend: &Backend,
    params: &Params<'_>,
    with_access_list: bool,
    out: &mut Vec<u8>,
) -> RpcResult {
    let hashes: Vec<B256> = params.required(0)?;
    if hashes.len() as u64 > MAX_ITEMS {
        return Err(too_many(hashes.len() as u64));
    }
    let mut list = Array::new(out);
    for hash in hashes {
        let block = backend.block(&hash)?;
        write_body(backend, block.as_deref(), with_access_list, list.item())?;
    }
    Ok(())
}

fn by_range(
    backend: &Backend,
    params: &Params<'_>,
    with_access_list: bool,
    out: &mut Vec<u8>,
) -> RpcResult {
    let (Number(start), Number(count)) = (params.required(0)?, params.required(1)?);
    if start == 0 || count == 0 {
        let message = "start and count must be at least 1";
        return Err(RpcError::invalid_params(message));
    }
    if count > MAX_ITEMS {
        return Err(too_many(count));
    }
    let head = backend.chain().head().id.number;
    let end = start.saturating_add(count - 1).min(head);
    let mut list = Array::new(out);
    for number in start..=end {
        let tag = BlockRef::Tag(BlockTag::Number(number));
        let block = backend.block_by_ref(tag)?;
        write_body(backend, block.as_deref(), with_access_list, list.item())?;
    }
    Ok(())
}

macro_rules! versions {
    ($($name:ident $of:ident $with_access_list:literal)*) => {$(
        pub(super) fn $name(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
            $of(backend, params, $with_access_list, out)
        }
    )*};
}

versions! {
    by_hash_v1 by_hash false
    by_hash_v2 by_hash true
    by_range_v1 by_range false
    by_range_v2 by_range true
}
