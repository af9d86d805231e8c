//! The pivot's block and its last ancestors: bodies and receipts, each checked against its header.

use super::header_of;
use crate::body_queue::CheckedBody;
use crate::header_window::SealedHeader;
use crate::progress::SyncState;
use crate::session::{Context, Failure, Interrupt, POLL, reasons};
use crate::skeleton::{Path, Skeleton};
use crate::source::{JobEvent, MakeRequest};
use niwaki_chain::{BlockId, DownloadedBlock, StoredHeader, receipts_root};
use niwaki_network::peers::Conduct;
use niwaki_network::router::{Ask, Outcome};
use niwaki_network::wire::{Answer, Request, RequestKind, SnapAnswer, SnapKind, SnapRequest};
use niwaki_primitives::{B256, Bytes, Receipt};
use niwaki_rules::access_list_hash;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Bytes of an answer with access lists that are asked for.
const LISTS_BYTES: u64 = 2 << 20;

impl Context<'_> {
    /// The blocks of a path with these numbers, the lowest first.
    pub(super) fn download_blocks(
        &self,
        skeleton: &Skeleton,
        path: &Path,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<DownloadedBlock>, Interrupt> {
        self.report(|progress, now_ms| progress.enter(SyncState::Blocks, now_ms));
        let headers: Result<Vec<SealedHeader>, Interrupt> = numbers
            .map(|number| header_of(skeleton, path, number))
            .collect();
        let headers = headers?;
        let bodies = self.download_each(
            RequestKind::Bodies,
            &headers,
            Request::Bodies,
            |answer| {
                let Answer::Bodies(bodies) = answer else {
                    return None;
                };
                Some(bodies.into_iter().map(CheckedBody::new).collect())
            },
            |header, body: &CheckedBody| body.fits(&header.header),
        )?;
        let request = |blocks| Request::Receipts {
            blocks,
            first_receipt: 0,
        };
        let receipts = self.download_each(
            RequestKind::Receipts,
            &headers,
            request,
            |answer| {
                let Answer::Receipts {
                    mut blocks,
                    is_last_incomplete,
                } = answer
                else {
                    return None;
                };
                // It is asked for again by itself.
                if is_last_incomplete && blocks.len() > 1 {
                    blocks.pop();
                }
                Some(blocks)
            },
            |header, receipts: &Vec<Receipt>| {
                receipts_root(receipts) == header.header.receipts_root
            },
        )?;
        // Only peers need them, of this node, so they may be missing.
        let lists = self.download_access_lists(&headers)?;
        let mut lists = lists.into_iter().flatten();
        let difficulty = self.chain.merged_difficulty()?;
        let blocks = headers.into_iter().zip(bodies).zip(receipts);
        let block = |((header, body), receipts): ((SealedHeader, CheckedBody), Vec<Receipt>)| {
            let id = BlockId {
                number: header.header.number,
                hash: header.hash,
            };
            DownloadedBlock {
                header: StoredHeader {
                    id,
                    header: header.header,
                    total_difficulty: difficulty,
                },
                body: body.body,
                receipts,
                access_list: lists.next(),
            }
        };
        Ok(blocks.map(block).collect())
    }

    /// The access list of each block (EIP-7928), by `eth` or by `snap`; `None` if a block has none, or no peer has them all.
    pub(super) fn download_access_lists(
        &self,
        headers: &[SealedHeader],
    ) -> Result<Option<Vec<Bytes>>, Interrupt> {
        let has_list = |header: &SealedHeader| header.header.block_access_list_hash.is_some();
        if !headers.iter().all(has_list) {
            return Ok(None);
        }
        let of_eth = self.download_each(
            RequestKind::AccessLists,
            headers,
            Request::AccessLists,
            |answer| match answer {
                Answer::AccessLists(lists) => Some(lists.into_iter().flatten().collect()),
                _ => None,
            },
            fits_access_list,
        );
        let lists = match of_eth {
            Err(Interrupt::Failed(Failure::NoState(_))) => self.download_each(
                RequestKind::Snap(SnapKind::AccessLists),
                headers,
                |blocks| {
                    let bytes = LISTS_BYTES;
                    Request::Snap(SnapRequest::AccessLists { blocks, bytes })
                },
                |answer| match answer {
                    Answer::Snap(SnapAnswer::AccessLists(lists)) => {
                        Some(lists.into_iter().flatten().collect())
                    }
                    _ => None,
                },
                fits_access_list,
            ),
            of_eth => of_eth,
        };
        match lists {
            Ok(lists) => Ok(Some(lists)),
            Err(Interrupt::Failed(Failure::NoState(_))) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// One item for each header, in their order.
    fn download_each<T: Clone>(
        &self,
        kind: RequestKind,
        headers: &[SealedHeader],
        request: impl Fn(Vec<B256>) -> Request + Send + Sync + 'static,
        items_of: impl Fn(Answer) -> Option<Vec<T>>,
        fits: impl Fn(&SealedHeader, &T) -> bool,
    ) -> Result<Vec<T>, Interrupt> {
        let hashes: Arc<[B256]> = headers.iter().map(|header| header.hash).collect();
        let count = u32::try_from(headers.len()).unwrap_or(u32::MAX);
        let top = headers.last().map_or(0, |header| header.header.number);
        let ask = Ask {
            kind,
            items: count,
            need: self.need(top),
        };
        let request: MakeRequest = Box::new(move |items: Range<u32>| {
            let range = items.start as usize..items.end as usize;
            request(hashes.get(range).unwrap_or_default().to_vec())
        });
        let mut got: Vec<Option<T>> = vec![None; headers.len()];
        let mut job = self.peers.start(ask, request)?;
        loop {
            self.tick()?;
            match job.next(POLL) {
                None => {}
                Some(JobEvent::Answer { id, items, answer }) => {
                    let outcome = match items_of(answer) {
                        Some(came) => take(headers, &mut got, &items, came, &fits),
                        None => Outcome::Wrong(Conduct::BadMessage),
                    };
                    job.outcome(id, outcome);
                }
                Some(JobEvent::Done(given_up)) => {
                    let all: Option<Vec<T>> = got.into_iter().collect();
                    return all.ok_or_else(|| {
                        let reasons = reasons(&given_up);
                        let what = kind.task_name();
                        Failure::NoState(format!("blocks up to {top}, {what}: {reasons}")).into()
                    });
                }
            }
        }
    }
}

fn fits_access_list(header: &SealedHeader, list: &Bytes) -> bool {
    header.header.block_access_list_hash == Some(access_list_hash(list))
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
    let missing = items.clone().filter(|place| got[*place as usize].is_none());
    Outcome::Items {
        missing: missing.map(|place| place..place + 1).collect(),
    }
}
