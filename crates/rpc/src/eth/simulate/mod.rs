//! `eth_simulateV1`: executes blocks of unsigned calls, each block on top of the one before.
//!
//! Spec: execution-apis `eth/execute.yaml`, and its notes on eth_simulateV1.

mod process;
mod transfers;

use crate::params::{Number, Params};
use crate::simulation::{BlockOverrides, Message, SimulatedBlock, StateOverrides};
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::{EMPTY_ROOT_HASH, Fork, Header, U256};
use niwaki_rules::ChainSpec;
use process::{Simulation, write_block};
use serde::Deserialize;

/// Most blocks of one simulation, including those that fill gaps.
const MAX_BLOCKS: u64 = 256;

/// Seconds between blocks without an explicit time.
const BLOCK_TIME_SECONDS: u64 = 12;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SimulatePayload {
    block_state_calls: Vec<BlockStateCall>,
    #[serde(default)]
    trace_transfers: bool,
    #[serde(default)]
    validation: bool,
    #[serde(default)]
    return_full_transactions: bool,
}

/// One block of the request: overrides and calls.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStateCall {
    block_overrides: Option<BlockOverrides>,
    state_overrides: Option<StateOverrides>,
    calls: Option<Vec<Message>>,
}

pub(super) fn simulate(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let payload: SimulatePayload = params.required(0)?;
    let (base, state) = backend.state(params.optional(1)?.unwrap_or_default())?;
    if payload.block_state_calls.is_empty() {
        return Err(RpcError::invalid_params("empty input"));
    }
    if payload.block_state_calls.len() as u64 > MAX_BLOCKS {
        return Err(too_many_blocks());
    }
    let blocks = in_order(payload.block_state_calls, &base.header)?;

    let spec = backend.chain().spec();
    let mut simulation = Simulation {
        backend,
        state: &state,
        block: SimulatedBlock::on_top_of(backend, &base, &state),
        is_strict: payload.validation,
        traces_transfers: payload.trace_transfers,
        gas_left: backend.options.gas_cap,
        deadline: params.deadline,
    };
    let mut list = crate::json::Array::new(out);
    let mut parent = (base.id.hash, base.header.clone());
    for block in blocks {
        params.check_deadline()?;
        let header = header(spec, &block.overrides(), &parent.1, &base.header)?;
        let processed = simulation.process(block, header, &parent)?;
        write_block(list.item(), &processed, payload.return_full_transactions);
        parent = (processed.block.id.hash, processed.block.header.clone());
        params.flush(list.buffer())?;
        if list.unsent().len() > crate::trace::MAX_RESPONSE_BYTES {
            return Err(RpcError::limit(
                "the simulated blocks are longer than an answer may be",
            ));
        }
    }
    Ok(())
}

fn too_many_blocks() -> RpcError {
    RpcError::new(-38026, "too many blocks")
}

impl BlockStateCall {
    fn overrides(&self) -> BlockOverrides {
        self.block_overrides.clone().unwrap_or_default()
    }

    /// A block without calls.
    fn empty(number: u64, time: u64) -> Self {
        let mut block = Self::default();
        block.set_number_and_time(number, time);
        block
    }

    fn set_number_and_time(&mut self, number: u64, time: u64) {
        let overrides = self.block_overrides.get_or_insert_default();
        overrides.number = Some(U256::from(number));
        overrides.time = Some(Number(time));
    }
}

/// The blocks with their numbers and times, and empty blocks in the gaps between them.
fn in_order(blocks: Vec<BlockStateCall>, base: &Header) -> Result<Vec<BlockStateCall>, RpcError> {
    let mut ordered: Vec<BlockStateCall> = Vec::new();
    let (mut number, mut time) = (base.number, base.timestamp);
    for mut block in blocks {
        let overrides = block.overrides();
        let next = match overrides.number {
            None => number.saturating_add(1),
            // A number beyond 64 bits is beyond the most blocks, too.
            Some(next) => u64::try_from(next).unwrap_or(u64::MAX),
        };
        if next <= number {
            let message = format!("block numbers must be in order: {next} <= {number}");
            return Err(RpcError::new(-38020, message));
        }
        if next - base.number > MAX_BLOCKS {
            return Err(too_many_blocks());
        }
        for gap in number + 1..next {
            time = time.saturating_add(BLOCK_TIME_SECONDS);
            ordered.push(BlockStateCall::empty(gap, time));
        }
        let next_time = overrides
            .time
            .map_or(time.saturating_add(BLOCK_TIME_SECONDS), |time| time.0);
        if next_time <= time {
            let message = format!("block timestamps must be in order: {next_time} <= {time}");
            return Err(RpcError::new(-38021, message));
        }
        (number, time) = (next, next_time);
        block.set_number_and_time(number, time);
        ordered.push(block);
    }
    Ok(ordered)
}

/// The header of a block, as far as it does not depend on the parent's hash.
fn header(
    spec: &ChainSpec,
    overrides: &BlockOverrides,
    before: &Header,
    base: &Header,
) -> Result<Header, RpcError> {
    let mut header = Header {
        beneficiary: before.beneficiary,
        difficulty: base.difficulty,
        gas_limit: before.gas_limit,
        ..Header::default()
    };
    overrides.apply(&mut header, spec)?;
    let fork = spec.fork_of(&header);
    if fork >= Fork::Shanghai {
        header.withdrawals_root = Some(EMPTY_ROOT_HASH);
    }
    if fork >= Fork::Cancun {
        header.parent_beacon_block_root = Some(overrides.beacon_root.unwrap_or_default());
    }
    if fork >= Fork::Amsterdam {
        // A slot has at most one block, so each block has its own.
        header.slot_number = Some(before.slot_number.unwrap_or(0).saturating_add(1));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(json: &str) -> BlockStateCall {
        serde_json::from_str(json).unwrap()
    }

    fn base() -> Header {
        Header {
            number: 10,
            timestamp: 100,
            ..Header::default()
        }
    }

    #[test]
    fn gaps_are_filled_and_times_follow() {
        let blocks = vec![
            block("{}"),
            block("{\"blockOverrides\":{\"number\":\"0xe\"}}"),
        ];
        let ordered = in_order(blocks, &base()).unwrap();
        let numbers_and_times: Vec<(u64, u64)> = ordered
            .iter()
            .map(|block| {
                let overrides = block.overrides();
                (overrides.number.unwrap().to(), overrides.time.unwrap().0)
            })
            .collect();
        assert_eq!(
            numbers_and_times,
            [(11, 112), (12, 124), (13, 136), (14, 148)]
        );
    }

    #[test]
    fn blocks_out_of_order_are_refused() {
        for (json, code) in [
            ("{\"blockOverrides\":{\"number\":\"0xa\"}}", -38020),
            ("{\"blockOverrides\":{\"time\":\"0x64\"}}", -38021),
            ("{\"blockOverrides\":{\"number\":\"0x10b\"}}", -38026),
            (
                "{\"blockOverrides\":{\"number\":\"0xffffffffffffffffff\"}}",
                -38026,
            ),
        ] {
            let error = in_order(vec![block(json)], &base()).unwrap_err();
            assert_eq!(error.code, code, "{json}");
        }
    }
}
