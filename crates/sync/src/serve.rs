//! Answers what peers ask: headers, bodies, receipts and block access lists from the chain, parts of its recent states, transactions and
//! cells from the pool.
//!
//! Threads of low priority take requests one at a time ([`serve`]), and wait a little while a block is imported. Peers share a rate
//! ([`Requests`]). An answer has at most 1,024 items and ends with the item that passes 2 MiB. What this node does not have is left out,
//! except where an answer's places count (access lists).
//!
//! | file | what it is |
//! |---|---|
//! | `requests` | which request is next, and when |
//! | `fair_queue` | requests that wait, of all peers |
//! | `snap` | what is asked by `snap` |
//! | `recent_states` | the states that this node can give |
//!
//! Spec: devp2p `caps/eth.md`.

mod fair_queue;
mod recent_states;
mod requests;
mod snap;

use niwaki_chain::{Chain, StoredHeader};
use niwaki_network::wire::limits::{MAX_LOOKED_UP, MAX_SERVED, SOFT_ANSWER_BYTES};
use niwaki_network::wire::{
    BlockId, CellMask, EthVersion, Items, Request, cells_answer, encode_item, put_receipt,
};
use niwaki_primitives::rlp::{Encodable, Header as RlpHeader};
use niwaki_primitives::{B256, Bytes, Fault, Receipt};
pub use recent_states::RecentStates;
pub(crate) use recent_states::STATES_SERVED;
pub use requests::Requests;
use std::time::{Duration, Instant};
use tracing::error;

/// A thread waits for an import so long at most,
const IMPORT_WAIT: Duration = Duration::from_millis(200);
/// and then not again for so long: a node that imports block after block gives its answers too.
const IMPATIENCE: Duration = Duration::from_secs(2);
/// How often a thread that waits for an import looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Where answers come from.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "functions")]
pub struct Sources<'s> {
    /// Blocks.
    pub chain: &'s Chain,
    /// The chain's recent states.
    pub states: &'s RecentStates,
    /// A transaction of the pool in the form in which peers of this version get it (EIP-2718); `None` if the pool has none, or keeps it
    /// private.
    pub transaction: &'s (dyn Fn(&B256, EthVersion) -> Option<Bytes> + Sync),
    /// The cells of a blob transaction in these columns, column by column, of every blob; `None` if the pool does not have all of them.
    pub cells: &'s (dyn Fn(&B256, CellMask) -> Option<Vec<Bytes>> + Sync),
}

/// Answers requests until the senders are gone. A request whose answer meets a [`Fault`] gets an empty one, and the fault is logged.
pub fn serve(sources: Sources<'_>, requests: &Requests) {
    let mut waited_in_vain = None;
    while let Some(inbound) = requests.next() {
        wait_for_import(sources.chain, &mut waited_in_vain);
        let message = answer(sources, &inbound.request, inbound.version, inbound.id);
        let message = message.unwrap_or_else(|fault| {
            error!(%fault, "Can't answer a peer");
            nothing(&inbound.request, inbound.version, inbound.id)
        });
        requests.answered(inbound.peer, message.len());
        inbound.answer(message);
    }
}

/// Blocks come first.
fn wait_for_import(chain: &Chain, waited_in_vain: &mut Option<Instant>) {
    if waited_in_vain.is_some_and(|at| at.elapsed() < IMPATIENCE) {
        return;
    }
    let began = Instant::now();
    while chain.is_importing() {
        if began.elapsed() >= IMPORT_WAIT {
            *waited_in_vain = Some(Instant::now());
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The message that answers a request with nothing.
fn nothing(request: &Request, version: EthVersion, id: u64) -> Vec<u8> {
    let items = Items::default();
    match request {
        Request::Receipts { .. } if version >= EthVersion::Eth70 => {
            items.receipts_answer(id, false)
        }
        Request::Cells { columns, .. } => cells_answer(id, &[], &[], *columns),
        Request::Snap(request) => snap::nothing(request, id),
        _ => items.answer(id),
    }
}

/// The message that answers a request.
///
/// # Errors
/// A [`Fault`] of the storage.
pub fn answer(
    sources: Sources<'_>,
    request: &Request,
    version: EthVersion,
    id: u64,
) -> Result<Vec<u8>, Fault> {
    let chain = sources.chain;
    match request {
        Request::Headers {
            start,
            limit,
            skip,
            reverse,
        } => {
            let walk = HeaderWalk {
                chain,
                step: skip.saturating_add(1),
                reverse: *reverse,
            };
            let items = walk.collect(*start, usize::try_from(*limit).unwrap_or(usize::MAX))?;
            Ok(items.answer(id))
        }
        Request::Bodies(blocks) => {
            // It is stored as it is sent.
            let items = each(blocks, |hash| chain.body_rlp(hash))?;
            Ok(items.answer(id))
        }
        Request::Receipts {
            blocks,
            first_receipt,
        } => receipts(chain, blocks, *first_receipt, version, id),
        Request::AccessLists(blocks) => {
            let missing = || Bytes::from_static(&[0x80]);
            let items = each(blocks, |hash| {
                let list = chain.block_access_list(hash)?;
                Ok(Some(list.unwrap_or_else(missing)))
            })?;
            Ok(items.answer(id))
        }
        Request::PooledTransactions(hashes) => {
            let items = each(hashes, |hash| {
                let transaction = (sources.transaction)(hash, version);
                Ok(transaction.map(|transaction| encode_item(&transaction)))
            })?;
            Ok(items.answer(id))
        }
        Request::Cells {
            transactions,
            columns,
        } => Ok(cells(sources, transactions, *columns, id)),
        Request::Snap(request) => snap::answer(chain, sources.states, request, id),
    }
}

/// What `item` gives for each hash, as far as it gives anything, within the limits.
fn each<T: AsRef<[u8]>>(
    hashes: &[B256],
    mut item: impl FnMut(&B256) -> Result<Option<T>, Fault>,
) -> Result<Items, Fault> {
    let mut items = Items::default();
    for hash in hashes.iter().take(MAX_LOOKED_UP) {
        if let Some(item) = item(hash)?
            && (!items.push(item.as_ref()) || items.count() == MAX_SERVED)
        {
            break;
        }
    }
    Ok(items)
}

/// Headers from one on, every `step`th, up or down.
struct HeaderWalk<'c> {
    chain: &'c Chain,
    step: u64,
    reverse: bool,
}

impl HeaderWalk<'_> {
    fn collect(&self, start: BlockId, limit: usize) -> Result<Items, Fault> {
        let mut items = Items::default();
        let mut next = match start {
            BlockId::Hash(hash) => self.chain.header(&hash)?,
            BlockId::Number(number) => {
                self.collect_canonical(number, limit, &mut items)?;
                return Ok(items);
            }
        };
        let mut looked_up = 0;
        while let Some(stored) = next.filter(|_| items.count() < limit.min(MAX_SERVED)) {
            let number = stored.id.number;
            if self.chain.canonical_hash(number)? == Some(stored.id.hash) {
                self.collect_canonical(number, limit, &mut items)?;
                break;
            }
            if !items.push(&niwaki_primitives::rlp::encode(&stored.header)) {
                break;
            }
            next = self.below(&stored, &mut looked_up)?;
        }
        Ok(items)
    }

    /// Adds canonical headers, which are stored as they are sent.
    fn collect_canonical(&self, first: u64, limit: usize, items: &mut Items) -> Result<(), Fault> {
        let mut next = Some(first);
        while let Some(number) = next.filter(|_| items.count() < limit.min(MAX_SERVED)) {
            let Some(rlp) = self.chain.header_rlp_at(number)? else {
                break;
            };
            if !items.push(&rlp) {
                break;
            }
            next = match self.reverse {
                true => number.checked_sub(self.step),
                false => number.checked_add(self.step),
            };
        }
        Ok(())
    }

    /// The header after one beside the canonical chain: it has none above it, and its ancestors below.
    fn below(
        &self,
        stored: &StoredHeader,
        looked_up: &mut usize,
    ) -> Result<Option<StoredHeader>, Fault> {
        let target = stored.id.number.checked_sub(self.step);
        let Some(target) = target.filter(|_| self.reverse) else {
            return Ok(None);
        };
        let mut current = stored.clone();
        while current.id.number > target {
            *looked_up += 1;
            if *looked_up > MAX_LOOKED_UP {
                return Ok(None);
            }
            match self.chain.header(&current.header.parent_hash)? {
                Some(parent) => current = parent,
                None => return Ok(None),
            }
        }
        Ok(Some(current))
    }
}

/// Receipts of blocks. Since eth/70 a block's receipts may be cut where the answer passes its limit.
///
/// Spec: EIP-7975.
fn receipts(
    chain: &Chain,
    blocks: &[B256],
    first_receipt: u64,
    version: EthVersion,
    id: u64,
) -> Result<Vec<u8>, Fault> {
    let is_cut_anywhere = version >= EthVersion::Eth70;
    let (mut items, mut is_last_incomplete) = (Items::default(), false);
    for (index, hash) in blocks.iter().take(MAX_LOOKED_UP).enumerate() {
        let room = SOFT_ANSWER_BYTES.saturating_sub(items.bytes());
        if let Some(row) = whole_receipts(chain, hash, version, index == 0 && first_receipt > 0)?
            && (row.len() <= room || !is_cut_anywhere)
        {
            if !items.push(&row) || items.count() == MAX_SERVED {
                break;
            }
            continue;
        }
        let Some(receipts) = chain.receipts(hash)? else {
            continue;
        };
        let skipped = if index == 0 {
            usize::try_from(first_receipt).unwrap_or(usize::MAX)
        } else {
            0
        };
        let receipts = receipts.get(skipped..).unwrap_or_default();
        let room = is_cut_anywhere.then_some(room);
        let (list, count) = receipt_list(receipts, version, room);
        is_last_incomplete = count < receipts.len();
        if !items.push(&list) || is_last_incomplete || items.count() == MAX_SERVED {
            break;
        }
    }
    Ok(match is_cut_anywhere {
        true => items.receipts_answer(id, is_last_incomplete),
        false => items.answer(id),
    })
}

/// The receipts of a block, if they are stored as they are sent and `is_cut` is not asked for: since eth/69 (EIP-7642).
fn whole_receipts(
    chain: &Chain,
    hash: &B256,
    version: EthVersion,
    is_cut: bool,
) -> Result<Option<Vec<u8>>, Fault> {
    match version >= EthVersion::Eth69 && !is_cut {
        true => chain.receipts_rlp(hash),
        false => Ok(None),
    }
}

/// A list of receipts, as many as fit in `room` and at least one; and how many.
fn receipt_list(
    receipts: &[Receipt],
    version: EthVersion,
    room: Option<usize>,
) -> (Vec<u8>, usize) {
    let (mut bytes, mut count) = (Vec::new(), 0);
    for receipt in receipts {
        let start = bytes.len();
        put_receipt(receipt, version, &mut bytes);
        if count > 0 && room.is_some_and(|room| bytes.len() > room) {
            bytes.truncate(start);
            break;
        }
        count += 1;
    }
    let header = RlpHeader {
        list: true,
        payload_length: bytes.len(),
    };
    let mut list = Vec::with_capacity(header.length() + bytes.len());
    header.encode(&mut list);
    list.extend_from_slice(&bytes);
    (list, count)
}

/// Cells of the transactions of which the pool has all columns asked for.
///
/// Spec: EIP-8070.
fn cells(sources: Sources<'_>, hashes: &[B256], columns: CellMask, id: u64) -> Vec<u8> {
    let (mut transactions, mut cells, mut bytes) = (Vec::new(), Vec::new(), 0);
    for hash in hashes.iter().take(MAX_LOOKED_UP) {
        let Some(own) = (sources.cells)(hash, columns) else {
            continue;
        };
        bytes += own.iter().map(|cell| cell.length()).sum::<usize>();
        transactions.push(*hash);
        cells.push(own);
        if bytes >= SOFT_ANSWER_BYTES {
            break;
        }
    }
    cells_answer(id, &transactions, &cells, columns)
}

#[cfg(test)]
mod tests;
