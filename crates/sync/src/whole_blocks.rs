//! Whole blocks of known headers: bodies, receipts and access lists from many peers, each checked against its header.

use crate::body_queue::CheckedBody;
use crate::header_window::SealedHeader;
use crate::session::{Context, Failure, Interrupt, POLL, reasons};
use crate::source::{JobEvent, MakeRequest};
use niwaki_chain::{BlockId, DownloadedBlock, StoredHeader, receipts_root};
use niwaki_network::peers::Conduct;
use niwaki_network::router::{Ask, GivenUp, Need, Outcome};
use niwaki_network::wire::{Answer, Request, RequestKind, SnapAnswer, SnapKind, SnapRequest};
use niwaki_primitives::{B256, BlockBody, Bytes, Receipt, U256};
use niwaki_rules::access_list_hash;
use niwaki_threads::lock;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Bytes of an answer with access lists that are asked for.
const LISTS_BYTES: u64 = 2 << 20;
/// Most times that receipts are asked for again after nothing came.
const MAX_VAIN: u32 = 3;
/// No fork has cheaper transactions: it bounds how many receipts a block can have.
const TRANSACTION_GAS: u64 = 4_500;
/// Most gas of blocks that are downloaded together.
const MAX_GAS: u64 = 3_000_000_000;

/// The first receipts of blocks, by hash, whose others are in another answer (EIP-7975).
type FirstReceipts = Arc<Mutex<HashMap<B256, Vec<Receipt>>>>;

/// Downloads of whole blocks.
pub(crate) struct WholeBlocks<'d, 'c> {
    context: &'d Context<'c>,
    /// What a peer must have to be asked.
    need: Need,
    /// Called again and again: `Err` ends the download.
    check: &'d dyn Fn() -> Result<(), Interrupt>,
}

impl<'d, 'c> WholeBlocks<'d, 'c> {
    pub(crate) fn new(
        context: &'d Context<'c>,
        need: Need,
        check: &'d dyn Fn() -> Result<(), Interrupt>,
    ) -> Self {
        Self {
            context,
            need,
            check,
        }
    }

    /// The blocks with these headers, each the parent of the next one. `total` is the total difficulty of the last one. Access lists
    /// come if a peer has them all: only peers need them, of this node.
    pub(crate) fn download(
        &self,
        headers: Vec<SealedHeader>,
        total: U256,
        with_lists: bool,
    ) -> Result<Vec<DownloadedBlock>, Interrupt> {
        let bodies = self.bodies(&headers)?;
        let receipts = self.receipts(&headers)?;
        let lists = match with_lists {
            true => self.access_lists(&headers)?,
            false => None,
        };
        let mut lists = lists.into_iter().flatten();
        let totals = total_difficulties(&headers, total);
        let blocks = headers.into_iter().zip(bodies).zip(receipts).zip(totals);
        let block = |(((header, body), receipts), total_difficulty)| DownloadedBlock {
            header: stored(header, total_difficulty),
            body,
            receipts,
            access_list: lists.next(),
        };
        Ok(blocks.map(block).collect())
    }

    fn bodies(&self, headers: &[SealedHeader]) -> Result<Vec<BlockBody>, Interrupt> {
        let kind = RequestKind::Bodies;
        let bodies = self.some(
            kind,
            headers,
            Request::Bodies,
            |_, answer| {
                let Answer::Bodies(bodies) = answer else {
                    return None;
                };
                Some(bodies.into_iter().map(CheckedBody::new).collect())
            },
            |header, body: &CheckedBody| body.fits(&header.header),
        )?;
        let bodies = all_of(kind, headers, bodies)?;
        Ok(bodies.into_iter().map(|body| body.body).collect())
    }

    /// Receipts that have no room in one answer come in parts: the missing ones are asked for again as long as something comes, and some
    /// times more, since parts of two peers may not fit together.
    fn receipts(&self, headers: &[SealedHeader]) -> Result<Vec<Vec<Receipt>>, Interrupt> {
        let first_receipts = FirstReceipts::default();
        let mut got: Vec<Option<Vec<Receipt>>> = vec![None; headers.len()];
        let mut vain = 0;
        loop {
            let missing: Vec<usize> = (0..got.len()).filter(|i| got[*i].is_none()).collect();
            let asked: Vec<SealedHeader> = missing.iter().map(|i| headers[*i].clone()).collect();
            let before = count(&first_receipts);
            let (came, given_up) = self.some_receipts(&asked, &first_receipts)?;
            let has_come = came.iter().any(Option::is_some) || count(&first_receipts) > before;
            for (index, receipts) in missing.into_iter().zip(came) {
                got[index] = receipts;
            }
            vain += u32::from(!has_come);
            if vain > MAX_VAIN || got.iter().all(Option::is_some) {
                return all_of(RequestKind::Receipts, headers, (got, given_up));
            }
        }
    }

    fn some_receipts(
        &self,
        headers: &[SealedHeader],
        first_receipts: &FirstReceipts,
    ) -> Result<Came<Vec<Receipt>>, Interrupt> {
        let known = Arc::clone(first_receipts);
        let request = move |blocks: Vec<B256>| {
            let known = lock(&known);
            let of_first = blocks.first().and_then(|hash| known.get(hash));
            Request::Receipts {
                first_receipt: of_first.map_or(0, |receipts| receipts.len() as u64),
                blocks,
            }
        };
        let items_of = |asked: &[SealedHeader], answer| match answer {
            Answer::Receipts {
                blocks,
                is_last_incomplete,
            } => Some(join(asked, blocks, is_last_incomplete, first_receipts)),
            _ => None,
        };
        self.some(
            RequestKind::Receipts,
            headers,
            request,
            items_of,
            fits_receipts,
        )
    }

    /// The access list of each block (EIP-7928), by `eth` or by `snap`; `None` if a block has none, or no peer has them all.
    pub(crate) fn access_lists(
        &self,
        headers: &[SealedHeader],
    ) -> Result<Option<Vec<Bytes>>, Interrupt> {
        let has_list = |header: &SealedHeader| header.header.block_access_list_hash.is_some();
        if !headers.iter().all(has_list) {
            return Ok(None);
        }
        let kind = RequestKind::AccessLists;
        let of_eth = self.some(
            kind,
            headers,
            Request::AccessLists,
            |_, answer| match answer {
                Answer::AccessLists(lists) => Some(lists.into_iter().flatten().collect()),
                _ => None,
            },
            fits_access_list,
        )?;
        if let Ok(lists) = all_of(kind, headers, of_eth) {
            return Ok(Some(lists));
        }
        let kind = RequestKind::Snap(SnapKind::AccessLists);
        let of_snap = self.some(
            kind,
            headers,
            |blocks| {
                let bytes = LISTS_BYTES;
                Request::Snap(SnapRequest::AccessLists { blocks, bytes })
            },
            |_, answer| match answer {
                Answer::Snap(SnapAnswer::AccessLists(lists)) => {
                    Some(lists.into_iter().flatten().collect())
                }
                _ => None,
            },
            fits_access_list,
        )?;
        Ok(all_of(kind, headers, of_snap).ok())
    }

    /// An item for each header, as far as they come. `items_of` gets the headers that an answer was asked for.
    fn some<T: Clone>(
        &self,
        kind: RequestKind,
        headers: &[SealedHeader],
        request: impl Fn(Vec<B256>) -> Request + Send + Sync + 'static,
        items_of: impl Fn(&[SealedHeader], Answer) -> Option<Vec<T>>,
        fits: impl Fn(&SealedHeader, &T) -> bool,
    ) -> Result<Came<T>, Interrupt> {
        let hashes: Arc<[B256]> = headers.iter().map(|header| header.hash).collect();
        let ask = Ask {
            kind,
            items: u32::try_from(headers.len()).unwrap_or(u32::MAX),
            need: self.need,
        };
        let request: MakeRequest = Box::new(move |items: Range<u32>| {
            let range = items.start as usize..items.end as usize;
            request(hashes.get(range).unwrap_or_default().to_vec())
        });
        let mut got: Vec<Option<T>> = vec![None; headers.len()];
        let mut job = self.context.peers.start(ask, request)?;
        loop {
            (self.check)()?;
            match job.next(POLL) {
                None => {}
                Some(JobEvent::Answer { id, items, answer }) => {
                    let asked = headers.get(items.start as usize..items.end as usize);
                    let outcome = match items_of(asked.unwrap_or_default(), answer) {
                        Some(came) => take(headers, &mut got, &items, came, &fits),
                        None => Outcome::Wrong(Conduct::BadMessage),
                    };
                    job.outcome(id, outcome);
                }
                Some(JobEvent::Done(given_up)) => return Ok((got, given_up)),
            }
        }
    }
}

/// What came for each header, and what was given up.
type Came<T> = (Vec<Option<T>>, Vec<GivenUp>);

/// All items, or the error that some are missing.
fn all_of<T>(
    kind: RequestKind,
    headers: &[SealedHeader],
    came: Came<T>,
) -> Result<Vec<T>, Interrupt> {
    let (items, given_up) = came;
    let all: Option<Vec<T>> = items.into_iter().collect();
    all.ok_or_else(|| {
        let last = headers.last().map_or(0, |header| header.header.number);
        let (what, reasons) = (kind.task_name(), reasons(&given_up));
        Failure::NoBlocks {
            last,
            what,
            reasons,
        }
        .into()
    })
}

/// How many of these blocks may be downloaded together, in their order: their gas bounds what they take of memory.
pub(crate) fn count_within_gas(headers: &[SealedHeader]) -> usize {
    let mut gas = 0_u64;
    let is_within = |header: &&SealedHeader| {
        gas = gas.saturating_add(header.header.gas_used);
        gas <= MAX_GAS
    };
    headers
        .iter()
        .take_while(is_within)
        .count()
        .max(1)
        .min(headers.len())
}

/// The total difficulty of each block, if that of the last one is `total`.
fn total_difficulties(headers: &[SealedHeader], total: U256) -> Vec<U256> {
    let mut next = total;
    let down = headers.iter().rev().map(|header| {
        let of_parent = next.saturating_sub(header.header.difficulty);
        std::mem::replace(&mut next, of_parent)
    });
    let mut totals: Vec<U256> = down.collect();
    totals.reverse();
    totals
}

/// A header as the chain stores it.
pub(crate) fn stored(header: SealedHeader, total_difficulty: U256) -> StoredHeader {
    StoredHeader {
        id: BlockId {
            number: header.header.number,
            hash: header.hash,
        },
        header: header.header,
        total_difficulty,
    }
}

fn fits_access_list(header: &SealedHeader, list: &Bytes) -> bool {
    header.header.block_access_list_hash == Some(access_list_hash(list))
}

#[expect(clippy::ptr_arg, reason = "the type of an item")]
fn fits_receipts(header: &SealedHeader, receipts: &Vec<Receipt>) -> bool {
    receipts_root(receipts) == header.header.receipts_root
}

fn count(first_receipts: &FirstReceipts) -> usize {
    lock(first_receipts).values().map(Vec::len).sum()
}

/// The receipts of the blocks that are whole: the first one may begin in an earlier answer, the last one may end in a later one.
fn join(
    asked: &[SealedHeader],
    mut blocks: Vec<Vec<Receipt>>,
    is_last_incomplete: bool,
    first_receipts: &FirstReceipts,
) -> Vec<Vec<Receipt>> {
    let mut known = lock(first_receipts);
    let last = blocks.len().saturating_sub(1);
    if let (Some(header), Some(block)) = (asked.first(), blocks.first_mut())
        && let Some(mut joined) = known.remove(&header.hash)
        // A peer without eth/70 gives all.
        && !fits_receipts(header, block)
    {
        joined.append(block);
        *block = joined;
        let is_whole = last > 0 || !is_last_incomplete;
        if is_whole && !fits_receipts(header, block) {
            // One of two peers has lied: both parts go.
            return Vec::new();
        }
    }
    if is_last_incomplete
        && let Some(receipts) = blocks.pop()
        && let Some(header) = asked.get(last)
        && receipts.len() as u64 <= header.header.gas_used / TRANSACTION_GAS
    {
        let part = known.entry(header.hash).or_default();
        if receipts.len() > part.len() {
            *part = receipts;
        }
    }
    blocks
}

/// Puts what came to the headers that it fits, in order.
fn take<T>(
    headers: &[SealedHeader],
    got: &mut [Option<T>],
    items: &Range<u32>,
    came: Vec<T>,
    fits: &impl Fn(&SealedHeader, &T) -> bool,
) -> Outcome {
    let mut open = items.clone();
    for item in came {
        let place = open.clone().find(|place| {
            let header = headers.get(*place as usize);
            header.is_some_and(|header| fits(header, &item))
        });
        let Some(place) = place else {
            return Outcome::Wrong(Conduct::Lie);
        };
        got[place as usize] = Some(item);
        open = place + 1..open.end;
    }
    let mut missing: Vec<Range<u32>> = Vec::new();
    for place in items.clone().filter(|place| got[*place as usize].is_none()) {
        match missing.last_mut() {
            Some(last) if last.end == place => last.end += 1,
            _ => missing.push(place..place + 1),
        }
    }
    Outcome::Items { missing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::Header;

    fn receipt(gas: u64) -> Receipt {
        Receipt {
            tx_type: 2,
            status: Some(true),
            post_state: None,
            cumulative_gas_used: gas,
            logs: Vec::new(),
        }
    }

    /// The receipts of a block, and its header.
    fn block(count: u64) -> (Vec<Receipt>, SealedHeader) {
        let receipts: Vec<Receipt> = (1..=count).map(|n| receipt(n * TRANSACTION_GAS)).collect();
        let header = Header {
            receipts_root: receipts_root(&receipts),
            gas_used: count * TRANSACTION_GAS,
            ..Header::default()
        };
        (receipts, crate::tests::sealed_header(header))
    }

    #[test]
    fn receipts_of_a_block_in_two_answers_are_joined_and_checked_together() {
        let ((small, small_header), (large, large_header)) = (block(2), block(5));
        let asked = [small_header, large_header];
        let known = FirstReceipts::default();
        let came = join(
            &asked,
            vec![small.clone(), large[..3].to_vec()],
            true,
            &known,
        );
        assert_eq!((came, count(&known)), (vec![small.clone()], 3));
        // The rest in two more answers; what is complete ends in the same answer as the next block begins.
        let came = join(&asked[1..], vec![large[3..4].to_vec()], true, &known);
        assert_eq!((came, count(&known)), (vec![], 4));
        let came = join(&asked[1..], vec![large[4..].to_vec()], false, &known);
        assert_eq!((came, count(&known)), (vec![large.clone()], 0));
        // A peer that gives all of them at once.
        join(&asked[1..], vec![large[..3].to_vec()], true, &known);
        let came = join(&asked[1..], vec![large.clone()], false, &known);
        assert_eq!((came, count(&known)), (vec![large.clone()], 0));
    }

    #[test]
    fn parts_that_do_not_fit_together_or_are_too_many_are_dropped() {
        let (large, header) = block(5);
        let asked = [header];
        let known = FirstReceipts::default();
        join(&asked, vec![large[1..3].to_vec()], true, &known);
        // The peer that sent the first part has lied, and not the one who sends the second.
        let came = join(&asked, vec![large[2..].to_vec()], false, &known);
        assert_eq!((came, count(&known)), (vec![], 0));
        join(&asked, vec![vec![receipt(1); 6]], true, &known);
        assert_eq!(count(&known), 0);
        join(&[], vec![large], true, &known);
        assert_eq!(count(&known), 0);
    }

    #[test]
    fn total_difficulties_go_down_by_that_of_the_block_above() {
        let header = |difficulty: u64| {
            crate::tests::sealed_header(Header {
                difficulty: U256::from(difficulty),
                ..Header::default()
            })
        };
        let headers = [header(7), header(5), header(0), header(0)];
        let totals = total_difficulties(&headers, U256::from(100));
        assert_eq!(totals, [95, 100, 100, 100].map(U256::from));
    }
}
