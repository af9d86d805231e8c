//! Bodies of blocks, for a consensus client that has the headers.

use super::fork::EngineFork;
use super::{Answer, RestError, RestReply, RestRequest};
use crate::Backend;
use crate::blocks::FullBlock;
use crate::eth::serialize::encoded;
use crate::params::{BlockRef, BlockTag};
use alloy_rpc_types_engine::ssz_engine_types as containers;
use containers::{BodiesResponse, BodyEntry};
use niwaki_primitives::{Bytes, Withdrawal};
use ssz::{Decode, Encode};
use std::sync::Arc;

/// Most bodies of one request.
pub(super) const MAX_BODIES: usize = containers::MAX_BODIES_REQUEST;

pub(super) fn by_hash(backend: &Backend, request: &RestRequest) -> Answer {
    let fork = request.fork()?;
    // An offset.
    request.check_hashes(4, MAX_BODIES)?;
    let read: containers::BodiesByHashRequest = request.read()?;
    let blocks = read.block_hashes.iter().map(|hash| backend.block(hash));
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    answer(backend, fork, blocks)
}

/// The blocks `from` to `from + count - 1` as far as the head.
pub(super) fn by_range(backend: &Backend, request: &RestRequest) -> Answer {
    let fork = request.fork()?;
    let number = |name: &str| {
        let mut pairs = request
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(known, _)| *known == name);
        let number = found.and_then(|(_, text)| text.parse::<u64>().ok());
        let wrong = || RestError::invalid_request(format!("{name} must be a decimal number"));
        number.ok_or_else(wrong)
    };
    let (from, count) = (number("from")?, number("count")?);
    if from == 0 || count == 0 {
        return Err(RestError::invalid_request(
            "from and count must be at least 1",
        ));
    }
    if count > MAX_BODIES as u64 {
        let words = format!("{count} bodies, at most {MAX_BODIES} are served");
        return Err(RestError::too_large(words));
    }
    let head = backend.chain().head().id.number;
    let last = from.saturating_add(count - 1).min(head);
    let blocks = (from..=last).map(|number| {
        let tag = BlockRef::Tag(BlockTag::Number(number));
        backend.block_by_ref(tag)
    });
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    answer(backend, fork, blocks)
}

fn answer(backend: &Backend, fork: EngineFork, blocks: Vec<Option<Arc<FullBlock>>>) -> Answer {
    let is_of_fork = |block: &Arc<FullBlock>| {
        let (spec, header) = (backend.chain().spec(), &block.header);
        header.difficulty.is_zero() && EngineFork::of(spec.fork_of(header)) == fork
    };
    let blocks = blocks.into_iter().map(|block| block.filter(is_of_fork));
    match fork {
        EngineFork::Paris => entries(blocks, |block| {
            let transactions = transactions(block);
            Ok(Some(containers::ExecutionPayloadBodyParis { transactions }))
        }),
        EngineFork::Shanghai | EngineFork::Cancun | EngineFork::Prague | EngineFork::Osaka => {
            entries(blocks, |block| {
                Ok(Some(containers::ExecutionPayloadBodyShanghai {
                    transactions: transactions(block),
                    withdrawals: withdrawals(block),
                }))
            })
        }
        EngineFork::Amsterdam => entries(blocks, |block| {
            // The list of an old block is gone, and so the body is not there as a whole.
            let list = backend.chain().block_access_list(&block.id.hash);
            let list = list.map_err(crate::RpcError::from)?;
            Ok(list.map(
                |block_access_list| containers::ExecutionPayloadBodyAmsterdam {
                    transactions: transactions(block),
                    withdrawals: withdrawals(block),
                    block_access_list,
                },
            ))
        }),
    }
}

fn entries<T: Encode + Decode + Default>(
    blocks: impl Iterator<Item = Option<Arc<FullBlock>>>,
    body: impl Fn(&FullBlock) -> Result<Option<T>, RestError>,
) -> Answer {
    let entries = blocks.map(|block| {
        let body = block.as_deref().map(&body).transpose()?.flatten();
        Ok::<_, RestError>(body.map_or_else(BodyEntry::unavailable, BodyEntry::available))
    });
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    Ok(RestReply::of(&BodiesResponse { entries }))
}

fn transactions(block: &FullBlock) -> Vec<Bytes> {
    let transactions = block.body.transactions.iter();
    transactions.map(|tx| encoded(tx).into()).collect()
}

fn withdrawals(block: &FullBlock) -> Vec<Withdrawal> {
    let withdrawals = block.body.withdrawals.clone();
    withdrawals.unwrap_or_default().into_inner()
}
