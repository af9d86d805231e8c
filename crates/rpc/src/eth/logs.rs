//! `eth_getLogs`: logs by address, topics and range of blocks.
//!
//! The cheapest filter comes first: the log index rules out most blocks of a whole section at once, the bloom of a
//! header rules out one block, and only what is left has its receipts read and its logs compared.

use super::serialize::{self, LogLocation};
use crate::blocks::FullBlock;
use crate::json::Array;
use crate::json_reader;
use crate::params::{BlockTag, Params};
use crate::{Backend, RpcError};
use niwaki_chain::SECTION_BLOCKS;
use niwaki_primitives::{Address, B256, Bloom, BloomInput, Log};
use serde::{Deserialize, Deserializer};

/// Most addresses, and alternatives for one topic, of a filter.
const MAX_ALTERNATIVES: usize = 1024;

/// Most logs of a response.
const MAX_LOGS: usize = 100_000;

/// A filter of logs and blocks. An unknown key is refused: it could have meant other blocks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct LogFilter {
    pub(crate) block_hash: Option<B256>,
    pub(crate) from_block: Option<BlockTag>,
    pub(crate) to_block: Option<BlockTag>,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) address: Vec<Address>,
    #[serde(deserialize_with = "topics")]
    pub(crate) topics: Vec<Vec<B256>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Address>, D::Error> {
    let value = Option::<OneOrMany<Address>>::deserialize(deserializer)?;
    Ok(value.map(OneOrMany::into_vec).unwrap_or_default())
}

/// Null, or a list that contains null, matches any topic at that position.
fn topics<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<B256>>, D::Error> {
    let positions = Option::<Vec<Option<OneOrMany<Option<B256>>>>>::deserialize(deserializer)?;
    let positions = positions.unwrap_or_default().into_iter().map(|position| {
        let alternatives = position.map(OneOrMany::into_vec).unwrap_or_default();
        let all: Option<Vec<B256>> = alternatives.into_iter().collect();
        all.unwrap_or_default()
    });
    Ok(positions.collect())
}

/// The blooms of a filter's addresses and topics, hashed once for all blocks.
pub(crate) struct BloomFilter {
    addresses: Vec<Bloom>,
    topics: Vec<Vec<Bloom>>,
}

impl BloomFilter {
    /// Whether every log matches.
    fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.topics.iter().all(Vec::is_empty)
    }

    /// For addresses and for each topic position, the blooms of which a block must contain one.
    fn positions(&self) -> Vec<&[Bloom]> {
        let topics = self.topics.iter().map(Vec::as_slice);
        std::iter::once(&self.addresses[..]).chain(topics).collect()
    }

    /// Whether a block or receipt with this bloom may have matching logs.
    fn may_be_in(&self, bloom: &Bloom) -> bool {
        let any =
            |masks: &[Bloom]| masks.is_empty() || masks.iter().any(|mask| bloom.contains(mask));
        any(&self.addresses) && self.topics.iter().all(|masks| any(masks))
    }
}

fn mask(bytes: &[u8]) -> Bloom {
    let mut bloom = Bloom::ZERO;
    bloom.accrue(BloomInput::Raw(bytes));
    bloom
}

impl LogFilter {
    /// Refuses a filter that contradicts itself or has too many alternatives.
    pub(crate) fn check(&self) -> Result<(), RpcError> {
        let invalid = |message: &str| Err(RpcError::invalid_params(message));
        let has_range = self.from_block.is_some() || self.to_block.is_some();
        if self.block_hash.is_some() && has_range {
            return invalid(
                "invalid argument 0: cannot specify both BlockHash and FromBlock/ToBlock, choose \
                 one or the other",
            );
        }
        if self.topics.len() > 4 {
            return invalid("exceed max topics");
        }
        let mut lengths = self.topics.iter().map(Vec::len).chain([self.address.len()]);
        if lengths.any(|length| length > MAX_ALTERNATIVES) {
            return invalid("exceed max addresses or topics per search position");
        }
        Ok(())
    }

    fn blooms(&self) -> BloomFilter {
        let topics = self.topics.iter();
        let topics = topics.map(|position| position.iter().map(|topic| mask(topic.as_slice())));
        BloomFilter {
            addresses: self.address.iter().map(|a| mask(a.as_slice())).collect(),
            topics: topics.map(Iterator::collect).collect(),
        }
    }

    /// Whether `log` matches.
    pub(crate) fn matches(&self, log: &Log) -> bool {
        let topics = log.data.topics();
        (self.address.is_empty() || self.address.contains(&log.address))
            && self.topics.len() <= topics.len()
            && self
                .topics
                .iter()
                .zip(topics)
                .all(|(any_of, topic)| any_of.is_empty() || any_of.contains(topic))
    }

    /// The numbers of the first and the last block of the range.
    fn range(&self, backend: &Backend) -> Result<(u64, u64), RpcError> {
        let number = |tag: Option<BlockTag>| -> Result<u64, RpcError> {
            match tag {
                Some(BlockTag::Number(number)) => Ok(number),
                tag => {
                    let header = backend.header_by_tag(tag.unwrap_or_default())?;
                    let header = header.ok_or_else(|| RpcError::server("unknown block"))?;
                    Ok(header.id.number)
                }
            }
        };
        let (from, to) = (number(self.from_block)?, number(self.to_block)?);
        if from > to {
            return Err(RpcError::invalid_params("invalid block range params"));
        }
        if to > backend.chain().head().id.number {
            let message = "block range extends beyond current head block";
            return Err(RpcError::invalid_params(message));
        }
        let most = backend.options.max_logs_range;
        if most > 0 && to - from >= most {
            return Err(RpcError::limit(format!(
                "Requested range exceeds maximum RPC range limit: {} blocks are asked for, {most} \
                 are served (--rpc-max-logs-range)",
                to - from + 1
            )));
        }
        Ok((from, to))
    }
}

/// Bytes of parameters up to which the I/O thread parses them to choose a lane.
const SHORT_PARAMS: usize = 2048;

/// The blocks of a filter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Blocks {
    block_hash: Option<B256>,
    from_block: Option<BlockTag>,
    to_block: Option<BlockTag>,
}

/// Whether the parameters of `eth_getLogs` are short and name one block by number or hash.
pub(super) fn are_of_one_block(params: &str) -> bool {
    if params.len() > SHORT_PARAMS {
        return false;
    }
    let blocks = json_reader::read::<(Blocks,)>(params);
    blocks.is_ok_and(|(blocks,)| match (blocks.from_block, blocks.to_block) {
        (Some(BlockTag::Number(from)), Some(BlockTag::Number(to))) => from == to,
        (None, None) => blocks.block_hash.is_some(),
        _ => false,
    })
}

pub(super) fn logs(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> Result<(), RpcError> {
    let filter: LogFilter = params.required(0)?;
    write_logs(backend, &filter, params, out)
}

/// Writes all logs that match `filter`.
pub(crate) fn write_logs(
    backend: &Backend,
    filter: &LogFilter,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> Result<(), RpcError> {
    let mut list = Array::new(out);
    each_match(backend, filter, params, &mut |log, location| {
        serialize::log(list.item(), log, &location);
    })
}

/// Calls `visit` for each log that matches `filter`, in order. Of `params` only the deadline is read.
pub(crate) fn each_match(
    backend: &Backend,
    filter: &LogFilter,
    params: &Params<'_>,
    visit: &mut LogVisitor<'_>,
) -> Result<(), RpcError> {
    filter.check()?;
    let blooms = filter.blooms();
    let mut search = LogSearch {
        backend,
        filter,
        blooms: &blooms,
        visit,
        count: 0,
    };
    if let Some(hash) = &filter.block_hash {
        let block = backend.block(hash)?;
        let block = block.ok_or_else(|| RpcError::server("unknown block"))?;
        return search.visit_block(&block);
    }
    let (from, to) = filter.range(backend)?;
    let index = match blooms.is_empty() || from == to {
        true => None, // Every block with logs matches, or there is only one block.
        false => Some(backend.chain().log_index()?),
    };
    let mut number = from;
    while number <= to {
        let section = number - number % SECTION_BLOCKS;
        let last = section.saturating_add(SECTION_BLOCKS - 1).min(to);
        params.check_deadline()?;
        let blocks = match index.as_ref().filter(|index| index.has_section(section)) {
            Some(index) => Some(index.search(section, &blooms.positions())?),
            None => None,
        };
        let may_match = |number: &u64| {
            let blocks = blocks.as_ref();
            blocks.is_none_or(|blocks| blocks.contains(number - section))
        };
        for number in (number..=last).filter(may_match) {
            params.check_deadline()?;
            search.visit_number(number)?;
        }
        number = last.saturating_add(1);
    }
    Ok(())
}

/// Receives logs one by one, each with its location.
type LogVisitor<'v> = dyn FnMut(&Log, LogLocation) + 'v;

/// A search, and how many logs matched so far.
struct LogSearch<'f, 'v> {
    backend: &'f Backend,
    filter: &'f LogFilter,
    blooms: &'f BloomFilter,
    visit: &'f mut LogVisitor<'v>,
    count: usize,
}

impl LogSearch<'_, '_> {
    /// Visits the matching logs of the canonical block `number`, unless its bloom rules them out. Below the first block
    /// of an imported state there is none.
    fn visit_number(&mut self, number: u64) -> Result<(), RpcError> {
        let chain = self.backend.chain();
        let Some(hash) = chain.canonical_hash(number)? else {
            return Ok(());
        };
        if let Some(block) = self.backend.cached_block(&hash) {
            return self.visit_block(&block);
        }
        if !self.blooms.is_empty() {
            let header = chain.header(&hash)?;
            let bloom = header.map(|header| header.header.logs_bloom);
            if !bloom.is_some_and(|bloom| self.blooms.may_be_in(&bloom)) {
                return Ok(());
            }
        }
        match self.backend.block(&hash)? {
            Some(block) => self.visit_block(&block),
            None => Ok(()),
        }
    }

    fn visit_block(&mut self, block: &FullBlock) -> Result<(), RpcError> {
        if !self.blooms.may_be_in(&block.header.logs_bloom) {
            return Ok(());
        }
        let (visit, count) = (&mut self.visit, &mut self.count);
        each_log(block, self.backend, |log, location| {
            if self.filter.matches(log) {
                visit(log, location);
                *count += 1;
            }
        })?;
        if self.count > MAX_LOGS {
            return Err(RpcError::limit(format!(
                "query returned more than {MAX_LOGS} results; ask for fewer blocks"
            )));
        }
        Ok(())
    }
}

/// Calls `visit` for each log of a block, with its location.
pub(crate) fn each_log(
    block: &FullBlock,
    backend: &Backend,
    mut visit: impl FnMut(&Log, LogLocation),
) -> Result<(), RpcError> {
    let receipts = block.receipts(backend.chain())?;
    let mut log_index = 0;
    for (index, receipt) in receipts.iter().enumerate() {
        for log in &receipt.logs {
            visit(log, LogLocation::new(block, index, log_index));
            log_index += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(json: &str) -> LogFilter {
        serde_json::from_str(json).unwrap()
    }

    fn log(address: u8, topics: &[u8]) -> Log {
        let topics = topics.iter().map(|topic| B256::repeat_byte(*topic));
        let address = Address::repeat_byte(address);
        Log::new(address, topics.collect(), vec![1].into()).unwrap()
    }

    fn hex(byte: u8, count: usize) -> String {
        format!("\"0x{}\"", format!("{byte:02x}").repeat(count))
    }

    #[test]
    fn topics_match_by_position_with_alternatives_and_wildcards() {
        let (one, two) = (hex(1, 32), hex(2, 32));
        for (json, topics, want) in [
            ("{}".to_owned(), &[][..], true),
            ("{\"topics\":[]}".to_owned(), &[1], true),
            (format!("{{\"topics\":[{one}]}}"), &[1], true),
            (format!("{{\"topics\":[{one}]}}"), &[1, 2], true),
            (format!("{{\"topics\":[{one}]}}"), &[2], false),
            (format!("{{\"topics\":[{one}]}}"), &[], false),
            (format!("{{\"topics\":[null,{two}]}}"), &[9, 2], true),
            (format!("{{\"topics\":[[],{two}]}}"), &[9, 2], true),
            (format!("{{\"topics\":[null,{two}]}}"), &[2], false),
            (format!("{{\"topics\":[[{one},{two}]]}}"), &[2], true),
            (format!("{{\"topics\":[[{one},null]]}}"), &[7], true),
        ] {
            assert_eq!(
                filter(&json).matches(&log(5, topics)),
                want,
                "{json} {topics:?}"
            );
        }
    }

    #[test]
    fn a_filter_of_one_block_runs_in_the_call_lane() {
        let hash = hex(1, 32);
        for (params, want) in [
            (format!("[{{\"blockHash\":{hash}}}]"), true),
            (
                "[{\"fromBlock\":\"0x5\",\"toBlock\":\"0x5\"}]".to_owned(),
                true,
            ),
            (
                "[{\"fromBlock\":\"0x5\",\"toBlock\":\"0x6\"}]".to_owned(),
                false,
            ),
            ("[{\"fromBlock\":\"0x5\"}]".to_owned(), false),
            (
                "[{\"fromBlock\":\"latest\",\"toBlock\":\"latest\"}]".to_owned(),
                false,
            ),
            ("[{}]".to_owned(), false),
            ("[]".to_owned(), false),
            ("{}".to_owned(), false),
            (
                format!(
                    "[{{\"blockHash\":{hash},\"address\":[{}]}}]",
                    vec!["1"; 2000].join(",")
                ),
                false,
            ),
        ] {
            assert_eq!(are_of_one_block(&params), want, "{params}");
            let method = crate::methods::all().find(|method| method.name == "eth_getLogs");
            let lane = method.expect("a row").lane_of(Some(&params));
            assert_eq!(lane == crate::methods::Lane::Call, want, "{params}");
        }
    }

    #[test]
    fn an_address_filter_takes_one_address_a_list_or_null() {
        let (five, six) = (hex(5, 20), hex(6, 20));
        for (json, want) in [
            (format!("{{\"address\":{five}}}"), true),
            (format!("{{\"address\":[{six},{five}]}}"), true),
            (format!("{{\"address\":[{six}]}}"), false),
            ("{\"address\":null}".to_owned(), true),
            ("{\"address\":[]}".to_owned(), true),
        ] {
            assert_eq!(filter(&json).matches(&log(5, &[1])), want, "{json}");
        }
    }

    #[test]
    fn matching_logs_are_in_the_bloom() {
        let held = log(5, &[1, 2]);
        let mut bloom = Bloom::ZERO;
        bloom.accrue_log(&held);
        let (one, two) = (hex(1, 32), hex(2, 32));
        for json in [
            "{}".to_owned(),
            format!("{{\"address\":{},\"topics\":[{one},[{two}]]}}", hex(5, 20)),
        ] {
            assert!(filter(&json).blooms().may_be_in(&bloom), "{json}");
        }
        let other = filter(&format!("{{\"address\":{}}}", hex(6, 20)));
        assert!(!other.blooms().may_be_in(&bloom));
    }
}
