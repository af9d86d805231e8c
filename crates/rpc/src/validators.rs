//! The namespaces `qbft` and `ibft`: the validators of a BFT chain, and this node's votes on them; `niwaki_bftState`.
//!
//! Only the namespaces of the protocols that the chain has respond; codes and messages are Besu's. Where a contract names the
//! validators there are no votes.

use crate::json::{self, Object};
use crate::methods::{Lane, Method, row};
use crate::params::{BlockTag, Params};
use crate::payloads::Filling;
use crate::{Backend, RpcError, RpcResult};
use niwaki_chain::{BlockTemplate, BuildError, BuiltBlock, JudgedBlock, StoredHeader};
use niwaki_primitives::{Address, B256, Block, U256};
use niwaki_rules::{BftExtra, BftProtocol, BftRules, ValidatorSource};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("ibft_discardValidatorVote", "address", Lane::Inline, ibft_discard),
    row("ibft_getPendingVotes", "", Lane::Inline, ibft_pending),
    row("ibft_getSignerMetrics", "fromBlock? toBlock?", Lane::Heavy, ibft_metrics),
    row("ibft_getValidatorsByBlockHash", "blockHash", Lane::Call, ibft_by_hash),
    row("ibft_getValidatorsByBlockNumber", "block", Lane::Call, ibft_by_number),
    row("ibft_proposeValidatorVote", "address add", Lane::Inline, ibft_propose),
    row("niwaki_bftState", "", Lane::Inline, state),
    row("qbft_discardValidatorVote", "address", Lane::Inline, qbft_discard),
    row("qbft_getPendingVotes", "", Lane::Inline, qbft_pending),
    row("qbft_getRequestTimeoutSeconds", "", Lane::Inline, qbft_timeout),
    row("qbft_getSignerMetrics", "fromBlock? toBlock?", Lane::Heavy, qbft_metrics),
    row("qbft_getValidatorsByBlockHash", "blockHash", Lane::Call, qbft_by_hash),
    row("qbft_getValidatorsByBlockNumber", "block", Lane::Call, qbft_by_number),
    row("qbft_proposeValidatorVote", "address add", Lane::Inline, qbft_propose),
];

/// Blocks whose proposers are counted if the caller names none.
const DEFAULT_BLOCKS: u64 = 100;
/// The most that are counted.
const MAX_BLOCKS: u64 = 100_000;

use BftProtocol::{Ibft2, Qbft};

impl Backend {
    /// Builds a block that validators are to agree on, of the best transactions of the pool, until it is full or `should_end` holds.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_judged(
        &self,
        template: BlockTemplate,
        should_end: &dyn Fn() -> bool,
        filling: Filling,
    ) -> Result<(BuiltBlock, JudgedBlock), BuildError> {
        self.payloads.build_judged(template, should_end, filling)
    }

    /// The senders of a block's transactions, of those that are or were in the pool.
    pub fn known_senders(&self, block: &Block) -> Vec<Option<Address>> {
        let transactions = block.body.transactions.iter();
        let hashes: Vec<B256> = transactions.map(|tx| *tx.tx_hash()).collect();
        self.pool.senders_of(&hashes)
    }
}

/// This node's validator as the methods see it. They call the functions from any thread.
pub struct ValidatorHooks {
    /// Votes on an account from now on: to add it, or to drop it.
    pub propose: Box<dyn Fn(Address, bool) -> Result<(), String> + Send + Sync>,
    /// Votes on an account no more.
    pub discard: Box<dyn Fn(Address) -> Result<(), String> + Send + Sync>,
    /// On whom it votes; `true`: to add it.
    pub pending: Box<dyn Fn() -> Vec<(Address, bool)> + Send + Sync>,
    /// Where it is.
    pub state: Box<dyn Fn() -> ValidatorReport + Send + Sync>,
}

/// Where a validator is.
#[derive(Clone, Debug)]
pub struct ValidatorReport {
    /// Its address.
    pub address: Address,
    /// The block that is agreed on.
    pub height: u64,
    /// The attempt, from 0 on.
    pub round: u32,
    /// How far it is in the round.
    pub phase: &'static str,
    /// Those who agree on the block, ascending.
    pub validators: Vec<Address>,
    /// Those to which it is connected.
    pub connected: Vec<Address>,
    /// How many blocks it has executed since the start, but for those of the sync.
    pub executions: u64,
}

impl fmt::Debug for ValidatorHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidatorHooks").finish_non_exhaustive()
    }
}

fn not_enabled() -> RpcError {
    RpcError::new(-32604, "Method not enabled")
}

/// The rules of the next block, if some blocks of the chain are of this protocol.
fn rules(backend: &Backend, protocol: BftProtocol) -> Result<&BftRules, RpcError> {
    let chain = backend.chain();
    let mut all = chain.spec().bft_rules.iter();
    let has = all.any(|rules| rules.protocol == protocol);
    let rules = chain.spec().bft_rules_after(&chain.head().header);
    rules.filter(|_| has).ok_or_else(not_enabled)
}

/// The hooks, where there are votes.
fn votes(backend: &Backend, protocol: BftProtocol) -> Result<&ValidatorHooks, RpcError> {
    let rules = rules(backend, protocol)?;
    if rules.source != ValidatorSource::Headers {
        return Err(not_enabled());
    }
    hooks(backend)
}

fn hooks(backend: &Backend) -> Result<&ValidatorHooks, RpcError> {
    backend.operator().validator().ok_or_else(|| {
        RpcError::server("this node runs no validator: its chain has none, or --p2p-enabled=false")
    })
}

fn state(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    write_state((hooks(backend)?.state)(), Object::new(out));
    Ok(())
}

/// Writes where this node's validator is.
pub(crate) fn write_state(report: ValidatorReport, mut object: Object<'_>) {
    let is_validator = report.validators.contains(&report.address);
    let is_missing = |one: &&Address| **one != report.address && !report.connected.contains(*one);
    let missing: Vec<Address> = report
        .validators
        .iter()
        .filter(is_missing)
        .copied()
        .collect();
    object.data("address", report.address.as_slice());
    object.boolean("isValidator", is_validator);
    object.number("height", report.height);
    object.number("round", u64::from(report.round));
    object.string("phase", report.phase);
    object.number("blocksExecuted", report.executions);
    for (name, list) in [("validators", report.validators), ("notConnected", missing)] {
        let mut array = object.array(name);
        list.iter()
            .for_each(|address| array.data(address.as_slice()));
    }
}

fn address(params: &Params<'_>) -> Result<Address, RpcError> {
    let invalid = || RpcError::invalid_params("Invalid address params");
    let text: Cow<'_, str> = params.required(0).map_err(|_| invalid())?;
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    // Besu takes shorter ones.
    let number = U256::from_str_radix(digits, 16).map_err(|_| invalid())?;
    let bytes = number.to_be_bytes::<32>();
    match (digits.is_empty(), bytes[..12] == [0; 12]) {
        (false, true) => Ok(Address::from_slice(&bytes[12..])),
        _ => Err(invalid()),
    }
}

fn propose(
    backend: &Backend,
    protocol: BftProtocol,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let hooks = votes(backend, protocol)?;
    let address = address(params)?;
    let is_add = match params.raw(1) {
        Some("true" | "\"true\"") => true,
        Some("false" | "\"false\"") => false,
        _ => return Err(RpcError::invalid_params("Invalid vote type params")),
    };
    (hooks.propose)(address, is_add).map_err(RpcError::server)?;
    json::boolean(out, true);
    Ok(())
}

fn discard(
    backend: &Backend,
    protocol: BftProtocol,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let hooks = votes(backend, protocol)?;
    (hooks.discard)(address(params)?).map_err(RpcError::server)?;
    json::boolean(out, true);
    Ok(())
}

fn pending(backend: &Backend, protocol: BftProtocol, out: &mut Vec<u8>) -> RpcResult {
    let pending = (votes(backend, protocol)?.pending)();
    let mut object = Object::new(out);
    for (address, is_add) in pending {
        object.boolean(&format!("{address:#x}"), is_add);
    }
    Ok(())
}

/// The validators that made a block; in contract mode, as in Besu, those that its state names.
fn validators_of(
    backend: &Backend,
    protocol: BftProtocol,
    block: &StoredHeader,
) -> Result<Vec<Address>, RpcError> {
    let spec = backend.chain().spec();
    let (number, first) = (block.id.number, block.id.number.max(1));
    let time = block.header.timestamp;
    let rules = spec.bft_rules_at(first, time).ok_or_else(not_enabled)?;
    if rules.source != ValidatorSource::Headers {
        return next_validators(backend, block);
    }
    let rules = spec.bft_rules_at(number, time).unwrap_or(rules);
    let extra = BftExtra::decode(rules.protocol, &block.header.extra_data);
    let mut list = extra
        .map_err(|error| RpcError::internal(error.to_string()))?
        .validators;
    // Besu's answer for IBFT 2.0 has the genesis block's order.
    if protocol == Qbft {
        list.sort_unstable();
    }
    Ok(list)
}

fn next_validators(backend: &Backend, block: &StoredHeader) -> Result<Vec<Address>, RpcError> {
    let next = backend.chain().next_validators(block);
    let next = next.map_err(|error| RpcError::server(error.to_string()))?;
    let next = next.ok_or_else(not_enabled)?;
    Ok(next.as_slice().to_vec())
}

fn write_addresses(out: &mut Vec<u8>, list: &[Address]) -> RpcResult {
    let mut array = json::Array::new(out);
    list.iter()
        .for_each(|address| array.data(address.as_slice()));
    Ok(())
}

fn by_number(
    backend: &Backend,
    protocol: BftProtocol,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    rules(backend, protocol)?;
    let tag: Result<BlockTag, RpcError> = params.required(0);
    let tag = tag.map_err(|_| RpcError::invalid_params("Invalid block param (block not found)"))?;
    if matches!(tag, BlockTag::Safe | BlockTag::Finalized) {
        return Err(RpcError::new(-39001, "Unknown block"));
    }
    let Some(block) = backend.header_by_tag(tag)? else {
        json::null(out);
        return Ok(());
    };
    let list = match tag {
        BlockTag::Pending => next_validators(backend, &block)?,
        _ => validators_of(backend, protocol, &block)?,
    };
    write_addresses(out, &list)
}

fn by_hash(
    backend: &Backend,
    protocol: BftProtocol,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    rules(backend, protocol)?;
    let hash = params.hash(0);
    let hash = hash.map_err(|_| RpcError::invalid_params("Invalid block hash params"))?;
    let Some(block) = backend.chain().header(&hash)? else {
        json::null(out);
        return Ok(());
    };
    write_addresses(out, &validators_of(backend, protocol, &block)?)
}

/// From which block up to which one, that one left out.
fn range(backend: &Backend, params: &Params<'_>) -> Result<std::ops::Range<u64>, RpcError> {
    let invalid = || RpcError::invalid_params("Invalid block number params");
    let head = backend.chain().head().id.number;
    let bound = |index: usize, default: u64| {
        let tag: Option<BlockTag> = params.optional(index).map_err(|_| invalid())?;
        match tag {
            None => Ok(default),
            Some(BlockTag::Number(number)) => Ok(number),
            Some(BlockTag::Earliest) => Ok(0),
            Some(BlockTag::Latest | BlockTag::Pending) => Ok(head),
            Some(BlockTag::Safe | BlockTag::Finalized) => Err(invalid()),
        }
    };
    let from = bound(0, head.saturating_sub(DEFAULT_BLOCKS))?;
    let to = bound(1, head)?;
    if from >= to {
        return Err(invalid());
    }
    // The head is left out too, as in Besu.
    let end = to.min(head).max(from);
    match end - from > MAX_BLOCKS {
        true => Err(RpcError::invalid_params(format!(
            "{} blocks are asked for, {MAX_BLOCKS} are the most",
            end - from
        ))),
        false => Ok(from..end),
    }
}

/// How often each validator has proposed, and when last; those of the last block that have not too.
fn signer_metrics(
    backend: &Backend,
    protocol: BftProtocol,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    rules(backend, protocol)?;
    let blocks = range(backend, params)?;
    let mut proposers: BTreeMap<Address, (u64, u64)> = BTreeMap::new();
    let mut last = None;
    for number in blocks {
        params.check_deadline()?;
        let Some(block) = backend.chain().header_at(number)? else {
            break;
        };
        let proposer = proposers.entry(block.header.beneficiary).or_default();
        *proposer = (proposer.0.saturating_add(1), number);
        last = Some(block);
    }
    if let Some(block) = last {
        for validator in validators_of(backend, protocol, &block)? {
            proposers.entry(validator).or_default();
        }
    }
    let mut array = json::Array::new(out);
    for (address, (count, last)) in proposers {
        let mut object = array.object();
        object.data("address", address.as_slice());
        object.number("proposedBlockCount", count);
        object.number("lastProposedBlockNumber", last);
    }
    Ok(())
}

fn qbft_timeout(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let timeout_s = rules(backend, Qbft)?.request_timeout_s;
    out.extend_from_slice(timeout_s.to_string().as_bytes());
    Ok(())
}

fn qbft_propose(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    propose(backend, Qbft, params, out)
}

fn ibft_propose(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    propose(backend, Ibft2, params, out)
}

fn qbft_discard(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    discard(backend, Qbft, params, out)
}

fn ibft_discard(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    discard(backend, Ibft2, params, out)
}

fn qbft_pending(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    pending(backend, Qbft, out)
}

fn ibft_pending(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    pending(backend, Ibft2, out)
}

fn qbft_by_number(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    by_number(backend, Qbft, params, out)
}

fn ibft_by_number(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    by_number(backend, Ibft2, params, out)
}

fn qbft_by_hash(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    by_hash(backend, Qbft, params, out)
}

fn ibft_by_hash(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    by_hash(backend, Ibft2, params, out)
}

fn qbft_metrics(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    signer_metrics(backend, Qbft, params, out)
}

fn ibft_metrics(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    signer_metrics(backend, Ibft2, params, out)
}
