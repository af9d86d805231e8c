//! Gas prices: the current ones, their history, and a suggestion for the next block.

use super::serialize::blob_base_fee as blob_price;
use crate::blocks::FullBlock;
use crate::json::{self, Array, Object};
use crate::params::{BlockRef, BlockTag, Count, Params};
use crate::{Backend, RpcError, RpcResult};
use niwaki_chain::Chain;
use niwaki_primitives::{Header, U256};
use niwaki_rules::{effective_gas_price, next_excess_blob_gas};
use std::sync::Arc;

/// Most blocks and percentiles of one `eth_feeHistory`.
const MAX_BLOCKS: u64 = 1024;
const MAX_PERCENTILES: usize = 100;

/// Transactions of a block whose tips the oracle samples: the lowest, which were just enough to be included.
const SAMPLES_PER_BLOCK: usize = 3;
/// Lower tips are ignored: block builders use them for their own transactions.
const MIN_TIP: u128 = 2;

pub(super) fn base_fee(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    match next_fee(backend.chain(), &backend.chain().head().header) {
        Some(fee) => json::number(out, fee),
        None => json::null(out),
    }
    Ok(())
}

pub(super) fn blob_base_fee(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let chain = backend.chain();
    let price = next_blob_fee(chain, &chain.head().header);
    json::quantity(out, &U256::from(price));
    Ok(())
}

pub(super) fn max_priority_fee(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::quantity(out, &U256::from(suggested_tip(backend)?));
    Ok(())
}

pub(super) fn gas_price(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::quantity(out, &U256::from(suggested_price(backend)?));
    Ok(())
}

/// The suggested tip plus the next base fee, wei.
pub(crate) fn suggested_price(backend: &Backend) -> Result<u128, RpcError> {
    let chain = backend.chain();
    let base_fee = next_fee(chain, &chain.head().header).unwrap_or(0);
    Ok(suggested_tip(backend)?.saturating_add(u128::from(base_fee)))
}

/// The base fee of a child of `header`; `None` before London.
pub(crate) fn next_fee(chain: &Chain, header: &Header) -> Option<u64> {
    header.base_fee_per_gas?;
    Some(chain.spec().next_base_fee(header))
}

/// The blob base fee of a child of `header` in the same fork; 0 before Cancun.
fn next_blob_fee(chain: &Chain, header: &Header) -> u128 {
    let spec = chain.spec();
    let Some(params) = spec.blob_params_at(header.timestamp) else {
        return 0;
    };
    params.base_fee(next_excess_blob_gas(header, spec.fork_of(header), &params))
}

/// The suggested tip, wei: a percentile of the lowest tips of recent blocks, at least what this node takes in its own.
///
/// # Errors
/// A fault of the storage.
pub(crate) fn suggested_tip(backend: &Backend) -> Result<u128, RpcError> {
    let (chain, options) = (backend.chain(), &backend.options);
    let head = chain.head();
    let spec = chain.spec();
    if !spec.has_gas_price(head.id.number + 1) {
        return Ok(0);
    }
    let base_fee = next_fee(chain, &head.header);
    let least = tip(backend.pool().min_gas_price(), base_fee).max(backend.min_priority_fee());
    let mut tips = recent_tips(backend)?;
    tips.sort_unstable();
    let most = u128::try_from(options.gas_price_max).unwrap_or(u128::MAX);
    let at = percentile_index(tips.len(), options.gas_price_percentile);
    let sampled = tips.get(at).map(|tip| most.min(*tip));
    Ok(sampled.unwrap_or(options.default_tip).max(least))
}

/// The lowest tips of each of the blocks that are sampled.
fn recent_tips(backend: &Backend) -> Result<Vec<u128>, RpcError> {
    let options = &backend.options;
    // Where no tip is usual, none is a sample too.
    let lowest_sample = if options.default_tip == 0 { 0 } else { MIN_TIP };
    let mut tips = Vec::new();
    let head = backend.chain().head().id.number;
    let blocks = usize::try_from(options.gas_price_blocks).unwrap_or(usize::MAX);
    for number in (0..=head).rev().take(blocks) {
        let tag = BlockRef::Tag(BlockTag::Number(number));
        let Some(block) = backend.block_by_ref(tag)? else {
            break;
        };
        let base_fee = block.header.base_fee_per_gas;
        let all = block.body.transactions.iter().enumerate();
        let mut lowest: Vec<u128> = all
            .filter(|(index, _)| block.sender(*index) != block.header.beneficiary)
            .map(|(_, tx)| tip(effective_gas_price(tx, base_fee), base_fee))
            .filter(|tip| *tip >= lowest_sample)
            .collect();
        lowest.sort_unstable();
        tips.extend(lowest.into_iter().take(SAMPLES_PER_BLOCK));
    }
    Ok(tips)
}

fn tip(price: u128, base_fee: Option<u64>) -> u128 {
    price.saturating_sub(u128::from(base_fee.unwrap_or(0)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a percentile of a list that is in memory"
)]
fn percentile_index(len: usize, percentile: f64) -> usize {
    ((len.saturating_sub(1)) as f64 * percentile / 100.0) as usize
}

/// Spec: execution-apis `eth/fee_market.yaml`.
pub(super) fn fee_history(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let Count(count) = params.required(0)?;
    let newest: BlockTag = params.required(1)?;
    let percentiles: Vec<f64> = params.optional(2)?.unwrap_or_default();
    check_percentiles(&percentiles)?;
    let newest = backend.header_by_tag(newest)?.ok_or_else(|| {
        RpcError::server("request beyond head block: the newest block is not there")
    })?;
    let count = count
        .min(MAX_BLOCKS)
        .min(newest.id.number.saturating_add(1));
    let first = (newest.id.number + 1).saturating_sub(count);
    let mut blocks = Vec::new();
    for number in first..first + count {
        params.check_deadline()?;
        let tag = BlockRef::Tag(BlockTag::Number(number));
        let block = backend.block_by_ref(tag)?;
        let missing = || RpcError::server(format!("block {number} is not available"));
        blocks.push(block.ok_or_else(missing)?);
    }
    write_history(backend, &blocks, &percentiles, first, out)
}

fn check_percentiles(percentiles: &[f64]) -> RpcResult {
    if percentiles.len() > MAX_PERCENTILES {
        let message = format!("invalid reward percentile: over the query limit {MAX_PERCENTILES}");
        return Err(RpcError::invalid_params(message));
    }
    for (index, percentile) in percentiles.iter().enumerate() {
        if !(0.0..=100.0).contains(percentile) {
            let message = format!("invalid reward percentile: {percentile}");
            return Err(RpcError::invalid_params(message));
        }
        if index > 0 && *percentile < percentiles[index - 1] {
            let message = format!(
                "invalid reward percentile: #{}:{} > #{index}:{percentile}",
                index - 1,
                percentiles[index - 1]
            );
            return Err(RpcError::invalid_params(message));
        }
    }
    Ok(())
}

fn write_history(
    backend: &Backend,
    blocks: &[Arc<FullBlock>],
    percentiles: &[f64],
    first: u64,
    out: &mut Vec<u8>,
) -> RpcResult {
    let chain = backend.chain();
    let mut object = Object::new(out);
    object.number("oldestBlock", if blocks.is_empty() { 0 } else { first });
    if !percentiles.is_empty() && !blocks.is_empty() {
        let mut rewards = object.array("reward");
        for block in blocks {
            let mut row = Array::new(rewards.item());
            for reward in rewards_of(chain, block, percentiles)? {
                json::quantity(row.item(), &U256::from(reward));
            }
        }
    }
    let headers = || blocks.iter().map(|block| &block.header);
    let mut fees = object.array("baseFeePerGas");
    for header in headers() {
        json::number(fees.item(), header.base_fee_per_gas.unwrap_or(0));
    }
    if let Some(last) = headers().next_back() {
        let fee = next_fee(chain, last).unwrap_or(0);
        json::number(fees.item(), fee);
    }
    drop(fees);
    ratios(
        &mut object,
        "gasUsedRatio",
        headers().map(|header| (header.gas_used, header.gas_limit)),
    );
    let mut fees = object.array("baseFeePerBlobGas");
    for header in headers() {
        json::quantity(fees.item(), &U256::from(blob_price(chain.spec(), header)));
    }
    if let Some(last) = headers().next_back() {
        json::quantity(fees.item(), &U256::from(next_blob_fee(chain, last)));
    }
    drop(fees);
    ratios(
        &mut object,
        "blobGasUsedRatio",
        headers().map(|header| {
            let params = chain.spec().blob_params_at(header.timestamp);
            let most = params.map_or(0, |params| params.max_gas());
            (header.blob_gas_used.unwrap_or(0), most)
        }),
    );
    Ok(())
}

/// Writes the ratio of each pair as a decimal number.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratios(object: &mut Object<'_>, name: &str, parts: impl Iterator<Item = (u64, u64)>) {
    let mut list = object.array(name);
    for (part, whole) in parts {
        let ratio = match whole {
            0 => 0.0,
            whole => part as f64 / whole as f64,
        };
        list.item().extend_from_slice(ratio.to_string().as_bytes());
    }
}

/// The tip at each percentile of the block's gas, transactions in ascending order of tip.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a block's gas"
)]
fn rewards_of(
    chain: &Chain,
    block: &FullBlock,
    percentiles: &[f64],
) -> Result<Vec<u128>, RpcError> {
    let receipts = block.receipts(chain)?;
    let base_fee = block.header.base_fee_per_gas;
    let mut before = 0;
    let mut paid: Vec<(u128, u64)> = Vec::with_capacity(receipts.len());
    for (tx, receipt) in block.body.transactions.iter().zip(receipts) {
        let gas = receipt.cumulative_gas_used.saturating_sub(before);
        before = receipt.cumulative_gas_used;
        paid.push((tip(effective_gas_price(tx, base_fee), base_fee), gas));
    }
    paid.sort_unstable();
    let mut rewards = Vec::with_capacity(percentiles.len());
    let (mut at, mut sum) = (0, paid.first().map_or(0, |(_, gas)| *gas));
    for percentile in percentiles {
        let threshold = (block.header.gas_used as f64 * percentile / 100.0) as u64;
        while sum < threshold && at + 1 < paid.len() {
            at += 1;
            sum += paid[at].1;
        }
        rewards.push(paid.get(at).map_or(0, |(tip, _)| *tip));
    }
    Ok(rewards)
}
