//! The namespace `miner`: settings of the block builder. Changes apply from the next payload on, until the node stops.

use crate::json;
use crate::methods::{Lane, Method, row};
use crate::params::{Count, Number, Params, Quantity};
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{Bytes, U256};

/// Most bytes of a header's extra data.
const MAX_EXTRA_DATA: usize = 32;

/// The valid gas limits of a header.
const GAS_LIMITS: std::ops::RangeInclusive<u64> = 5_000..=i64::MAX as u64;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("miner_changeTargetGasLimit", "gasLimit", Lane::Inline, change_target_gas_limit),
    row("miner_getExtraData", "", Lane::Inline, extra_data),
    row("miner_getMinGasPrice", "", Lane::Inline, min_gas_price),
    row("miner_getMinPriorityFee", "", Lane::Inline, min_priority_fee),
    row("miner_setExtraData", "extraData", Lane::Inline, set_extra_data),
    row("miner_setGasLimit", "gasLimit", Lane::Inline, set_gas_limit),
    row("miner_setMinGasPrice", "gasPrice", Lane::Inline, set_min_gas_price),
    row("miner_setMinPriorityFee", "priorityFee", Lane::Inline, set_min_priority_fee),
    row("miner_start", "", Lane::Inline, start),
    row("miner_stop", "", Lane::Inline, stop),
];

fn write_true(out: &mut Vec<u8>) -> RpcResult {
    out.extend_from_slice(b"true");
    Ok(())
}

fn start(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    backend.operator().make_blocks(true)?;
    tracing::info!("Blocks are made again, as miner_start asks");
    write_true(out)
}

fn stop(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    backend.operator().make_blocks(false)?;
    tracing::info!("No more blocks are made, as miner_stop asks");
    write_true(out)
}

fn target_gas_limit(backend: &Backend, limit: u64) -> RpcResult {
    if !GAS_LIMITS.contains(&limit) {
        return Err(RpcError::invalid_params(format!(
            "Invalid target gas limit params: a block's gas limit is from {} to {}, got {limit}",
            GAS_LIMITS.start(),
            GAS_LIMITS.end()
        )));
    }
    backend.builder_settings.write().target_gas_limit = Some(limit);
    tracing::info!(limit, "Blocks made here go towards another gas limit");
    Ok(())
}

/// Besu's method.
fn change_target_gas_limit(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let limit: Result<Count, RpcError> = params.required(0);
    let Count(limit) = limit.map_err(|error| {
        RpcError::invalid_params(format!("Invalid target gas limit params: {error}"))
    })?;
    target_gas_limit(backend, limit)?;
    json::string(out, "Success");
    Ok(())
}

/// geth's method.
fn set_gas_limit(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let Number(limit) = params.required(0)?;
    target_gas_limit(backend, limit)?;
    write_true(out)
}

fn extra_data(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::data(out, &backend.builder_settings.read().extra_data);
    Ok(())
}

fn set_extra_data(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let bytes: Bytes = params.required(0)?;
    if bytes.len() > MAX_EXTRA_DATA {
        return Err(RpcError::invalid_params(format!(
            "Invalid extra data params: at most {MAX_EXTRA_DATA} bytes, got {}",
            bytes.len()
        )));
    }
    backend.builder_settings.write().extra_data = bytes;
    write_true(out)
}

/// A price, wei per gas.
fn price(params: &Params<'_>) -> Result<u128, RpcError> {
    let Quantity(price) = params.required(0)?;
    u128::try_from(price)
        .map_err(|_| RpcError::invalid_params(format!("invalid argument 0: {price} is no price")))
}

fn min_gas_price(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::quantity(out, &U256::from(backend.pool.min_gas_price()));
    Ok(())
}

fn set_min_gas_price(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    backend.pool.set_min_gas_price(price(params)?);
    write_true(out)
}

fn min_priority_fee(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::quantity(
        out,
        &U256::from(backend.builder_settings.read().min_priority_fee),
    );
    Ok(())
}

fn set_min_priority_fee(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let price = price(params)?;
    backend.builder_settings.write().min_priority_fee = price;
    write_true(out)
}
