//! `trace_filter`: the calls of a range of blocks, by sender and recipient.

use super::check_length;
use super::flat::{self, FlatOptions};
use super::parity::CALL_OPTIONS;
use super::subject::PastBlock;
use super::tracers::calls;
use crate::json::Array;
use crate::params::{BlockRef, BlockTag, Count, Params};
use crate::{Backend, RpcError, RpcResult};
use niwaki_evm::tracers::Call;
use niwaki_primitives::Address;
use serde::Deserialize;

/// An unknown key is refused: it could have meant other blocks.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Filter {
    from_block: Option<BlockTag>,
    to_block: Option<BlockTag>,
    from_address: Option<Vec<Address>>,
    to_address: Option<Vec<Address>>,
    after: Option<Count>,
    count: Option<Count>,
}

impl Filter {
    fn matches(&self, call: &Call) -> bool {
        let named = |list: &Option<Vec<Address>>, address| {
            let list = list.as_ref().filter(|list| !list.is_empty());
            list.is_none_or(|list| list.contains(address))
        };
        named(&self.from_address, &call.from) && named(&self.to_address, &call.to)
    }

    fn range(&self, backend: &Backend) -> Result<(u64, u64), RpcError> {
        let number = |tag: Option<BlockTag>| {
            let header = backend.header_by_tag(tag.unwrap_or_default())?;
            let header = header.ok_or_else(|| RpcError::server("block not found"))?;
            Ok::<u64, RpcError>(header.id.number)
        };
        let (from, to) = (number(self.from_block)?, number(self.to_block)?);
        if from > to {
            return Err(RpcError::invalid_params(format!(
                "invalid block range: {from} is after {to}"
            )));
        }
        let most = backend.options.max_trace_range;
        if most > 0 && to - from >= most {
            return Err(RpcError::invalid_params(format!(
                "requested range of {} blocks exceeds maximum range limit of {most}",
                to - from + 1
            )));
        }
        Ok((from, to))
    }
}

pub(super) fn filter(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let filter: Filter = params.required(0)?;
    let (from, to) = filter.range(backend)?;
    let mut skip = filter.after.map_or(0, |Count(count)| count);
    let mut left = filter.count.map_or(u64::MAX, |Count(count)| count);
    let mut list = Array::new(out);
    // The genesis block has no transactions.
    for number in from.max(1)..=to {
        if left == 0 {
            break;
        }
        let tag = BlockRef::Tag(BlockTag::Number(number));
        let block = backend.block_by_ref(tag)?;
        let block = block.ok_or_else(|| RpcError::server(format!("block #{number} not found")))?;
        if block.body.transactions.is_empty() {
            continue;
        }
        let past = PastBlock::new(backend, block, true)?;
        past.each(backend, params, |block, subject| {
            let (root, run) = calls(CALL_OPTIONS, block, subject, params.deadline)?;
            let options = FlatOptions::parity(subject.location());
            root.each(|call, at| {
                if left == 0 || !filter.matches(call) {
                    return;
                }
                if skip > 0 {
                    skip -= 1;
                    return;
                }
                left -= 1;
                flat::write(list.item(), call, at, &options);
            });
            params.flush(list.buffer())?;
            check_length(list.unsent())?;
            Ok(run)
        })?;
    }
    Ok(())
}
