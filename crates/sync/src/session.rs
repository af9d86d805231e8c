//! One attempt to reach a target: headers down to a stored block, bodies up from it, each block imported.
//!
//! | file | what it is |
//! |---|---|
//! | `headers` | headers from the target down, of many peers |
//! | `blocks` | bodies upwards, of many peers, into the import |
//! | `lists` | whole blocks upwards, whose access lists are applied instead of executing them |
//!
//! An attempt ends with the target stored, or with an [`Interrupt`]. What it has by then stays: headers in the skeleton, blocks in the
//! chain. So the next attempt, for the same target or another one, asks only for what is not there.

mod blocks;
mod headers;
mod lists;

use crate::header_window::SealedHeader;
use crate::progress::{Line, Progress};
use crate::skeleton::{Path, Skeleton};
use crate::source::{JobEvent, Peers};
use crate::target::{Target, TargetSource};
use blocks::Blocks;
use headers::Headers;
use niwaki_chain::{BlockId, Chain, Consensus};
use niwaki_network::peers::Conduct;
use niwaki_network::router::{Ask, GivenUp, JobError, Need, Outcome, TryEnd};
use niwaki_network::wire::{Answer, BlockId as Start, Request, RequestKind};
use niwaki_primitives::{B256, Fault, Header};
use niwaki_rules::ChainSpec;
use niwaki_threads::lock;
use std::cell::Cell;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::{info, warn};

/// How long an attempt waits for an event before it looks whether it should end.
pub(crate) const POLL: Duration = Duration::from_millis(50);
/// An attempt that gets no header and imports no block for this time ends.
const STALL_MS: u64 = 120_000;

/// Peers announce their last block when it has moved by 32, so they may have so many more.
const UNANNOUNCED: u64 = 64;

/// What an attempt works with.
pub(crate) struct Context<'s> {
    pub(crate) chain: &'s Arc<Chain>,
    pub(crate) consensus: &'s Consensus,
    pub(crate) peers: &'s dyn Peers,
    pub(crate) progress: &'s Mutex<Progress>,
    pub(crate) is_stopped: &'s AtomicBool,
    /// The block that the operator or peers named.
    pub(crate) named: Cell<Option<(B256, TargetSource)>>,
    /// How many requests were made of one peer each.
    pub(crate) attempts: Cell<usize>,
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("no peer has the target {hash}: {reasons}")]
    NoTarget {
        hash: B256,
        reasons: String,
        /// None of those who were asked answered in time.
        is_late: bool,
    },
    #[error("headers from block {number} down did not come: {reasons}")]
    NoHeaders { number: u64, reasons: String },
    #[error("bodies from block {number} on did not come: {reasons}")]
    NoBodies { number: u64, reasons: String },
    #[error("more than {headers} headers lie between the target and the chain")]
    TooLong { headers: u64 },
    #[error("the target {hash} does not descend from the genesis block of this chain")]
    OtherChain { hash: B256 },
    #[error("block {number} ({hash}) is invalid: {reason}")]
    Invalid {
        number: u64,
        hash: B256,
        reason: String,
    },
    #[error("block {number} ({hash}) came without the seals of a quorum: {reason}")]
    Seals {
        number: u64,
        hash: B256,
        reason: String,
    },
    #[error("blocks up to {last}, {what}: {reasons}")]
    NoBlocks {
        last: u64,
        what: &'static str,
        reasons: String,
    },
    #[error("the state did not come: {0}")]
    NoState(String),
    #[error("{0}")]
    NotImported(String),
    #[error("nothing came and nothing was imported for {} s", STALL_MS / 1_000)]
    Stalled,
    #[error("no job: {0}")]
    NoJob(#[from] JobError),
    #[error("no thread: {0}")]
    NoThread(#[from] std::io::Error),
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Why an attempt ended before its target.
#[derive(Debug)]
pub(crate) enum Interrupt {
    Stopped,
    /// There is another target, or none.
    Retargeted,
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Interrupt {
    fn from(failure: E) -> Self {
        Self::Failed(failure.into())
    }
}

impl Context<'_> {
    pub(crate) fn now_ms(&self) -> u64 {
        self.peers.now_ms()
    }

    /// Reports a step.
    pub(crate) fn report(&self, step: impl FnOnce(&mut Progress, u64)) {
        let now_ms = self.now_ms();
        step(&mut lock(self.progress), now_ms);
    }

    /// Writes the line that is due. `Err` if the node stops.
    pub(crate) fn tick(&self) -> Result<(), Interrupt> {
        let (now_ms, peers) = (self.now_ms(), self.peers.offers().len());
        let mut progress = lock(self.progress);
        progress.update(|status| status.peers = peers);
        let line = progress.tick(now_ms);
        drop(progress);
        match line {
            Some(Line::Progress(line)) => info!("Syncing: {line}"),
            Some(Line::Waiting(line)) => warn!("Sync does not go on: {line}"),
            None => {}
        }
        // It orders nothing: the thread that sets it waits for this one to end.
        match self.is_stopped.load(Ordering::Relaxed) {
            true => Err(Interrupt::Stopped),
            false => Ok(()),
        }
    }

    pub(crate) fn target(&self) -> Result<Option<Target>, Fault> {
        Target::current(self.consensus, self.named.get())
    }

    /// `Err` if there is another target.
    fn expect_target(&self, hash: &B256) -> Result<(), Interrupt> {
        match self.target()? {
            Some(target) if target.hash == *hash => Ok(()),
            _ => Err(Interrupt::Retargeted),
        }
    }

    /// What a peer must have to be asked for a block. What peers announced may be some blocks behind what they have; and no claim of
    /// one peer may exclude the others.
    pub(crate) fn need(&self, number: u64) -> Need {
        Need {
            block: self
                .latest()
                .map(|latest| number.min(latest).saturating_sub(UNANNOUNCED)),
            ..Need::default()
        }
    }

    /// The same for a request that is made of one peer: each time of another one first, since those that are asked first may be
    /// those that lack it.
    fn need_of_one(&self, number: Option<u64>) -> Need {
        let attempt = self.attempts.get();
        self.attempts.set(attempt.wrapping_add(1));
        let offers = self.peers.offers();
        let prefer = attempt.checked_rem(offers.len());
        let prefer = prefer.and_then(|index| offers.get(index));
        Need {
            prefer: prefer.map(|offer| offer.conn),
            ..self.need(number.unwrap_or(u64::MAX))
        }
    }

    /// The last block that half of the peers say they have.
    fn latest(&self) -> Option<u64> {
        let mut latest: Vec<u64> = self.peers.offers().iter().map(|o| o.latest).collect();
        latest.sort_unstable();
        latest.get(latest.len() / 2).copied()
    }

    /// Headers with their hashes.
    pub(crate) fn sealed(&self, headers: Vec<Header>) -> Vec<SealedHeader> {
        let spec = self.chain.spec();
        let headers = headers.into_iter();
        headers
            .map(|header| SealedHeader::new(header, spec))
            .collect()
    }

    /// Asks for the header with this hash.
    pub(crate) fn locate(&self, hash: B256) -> Result<SealedHeader, Interrupt> {
        let ask = Ask {
            kind: RequestKind::Headers,
            items: 1,
            need: self.need_of_one(None),
        };
        let request = move |_| Request::Headers {
            start: Start::Hash(hash),
            limit: 1,
            skip: 0,
            reverse: false,
        };
        let mut job = self.peers.start(ask, Box::new(request))?;
        loop {
            self.tick()?;
            match job.next(POLL) {
                None => self.expect_target(&hash)?,
                Some(JobEvent::Answer { id, items, answer }) => {
                    match located(self.chain.spec(), hash, answer) {
                        Ok(Some(header)) => {
                            let missing = Vec::new();
                            job.outcome(id, Outcome::Items { missing });
                            return Ok(header);
                        }
                        Ok(None) => {
                            let missing = vec![items];
                            job.outcome(id, Outcome::Items { missing });
                        }
                        Err(conduct) => job.outcome(id, Outcome::Wrong(conduct)),
                    }
                }
                Some(JobEvent::Done(given_up)) => {
                    let mut tries = given_up.iter().flat_map(|piece| &piece.tries);
                    let failure = Failure::NoTarget {
                        hash,
                        reasons: reasons(&given_up),
                        is_late: tries.all(|one| one.end == TryEnd::Timeout),
                    };
                    return Err(failure.into());
                }
            }
        }
    }

    /// Gets the headers from `target`, which is in the skeleton, down to a child of a stored block.
    pub(crate) fn download_headers(
        &self,
        skeleton: &mut Skeleton,
        target: BlockId,
        most_headers: Option<u64>,
    ) -> Result<Path, Interrupt> {
        Headers::new(self, skeleton, target, most_headers).download()
    }

    /// As [`Context::download_headers`], down to the block `floor` at least, although the chain has nothing there.
    pub(crate) fn download_headers_to(
        &self,
        skeleton: &mut Skeleton,
        target: BlockId,
        floor: u64,
    ) -> Result<Path, Interrupt> {
        Headers::new(self, skeleton, target, None)
            .with_floor(floor)
            .download()
    }

    /// Gets everything up to the target, whose header is `header`, and imports it. At most `most_headers` lie between. With `by_lists`
    /// access lists are applied where peers have them.
    pub(crate) fn reach(
        &self,
        skeleton: &mut Skeleton,
        header: &SealedHeader,
        most_headers: Option<u64>,
        by_lists: bool,
    ) -> Result<(), Interrupt> {
        skeleton.add_target(header.clone())?;
        let target = BlockId {
            number: header.header.number,
            hash: header.hash,
        };
        let mut path = self.download_headers(skeleton, target, most_headers)?;
        if by_lists && self.apply_lists(skeleton, target, &path)? {
            path = self.download_headers(skeleton, target, most_headers)?;
        }
        Blocks::new(self, skeleton, target, path)?.import()
    }
}

/// A header of a path, which must be there.
pub(crate) fn header_of(
    skeleton: &Skeleton,
    path: &Path,
    number: u64,
) -> Result<SealedHeader, Interrupt> {
    skeleton.path_header(path, number)?.ok_or_else(|| {
        let reason = format!("the header of block {number} was stored and is missing");
        Failure::NotImported(reason).into()
    })
}

/// The header that was asked for by its hash.
fn located(spec: &ChainSpec, hash: B256, answer: Answer) -> Result<Option<SealedHeader>, Conduct> {
    let Answer::Headers(headers) = answer else {
        return Err(Conduct::BadMessage);
    };
    let mut headers = headers.into_iter();
    let Some(header) = headers.next().map(|header| SealedHeader::new(header, spec)) else {
        return Ok(None);
    };
    match header.hash == hash && headers.next().is_none() {
        true => Ok(Some(header)),
        false => Err(Conduct::Lie),
    }
}

fn headers_of(answer: Answer) -> Option<Vec<Header>> {
    match answer {
        Answer::Headers(headers) => Some(headers),
        _ => None,
    }
}

/// How the tries of what was given up ended, as text.
pub(crate) fn reasons(given_up: &[GivenUp]) -> String {
    const ENDS: [(TryEnd, &str); 7] = [
        (TryEnd::Timeout, "late"),
        (TryEnd::Empty, "empty"),
        (TryEnd::Wrong, "wrong"),
        (TryEnd::Stateless, "without state"),
        (TryEnd::Gone, "broken off"),
        (TryEnd::Busy, "not sent"),
        (TryEnd::Unchecked, "not checked in time"),
    ];
    let mut text = String::new();
    for (end, name) in ENDS {
        let tries = given_up.iter().flat_map(|piece| &piece.tries);
        let count = tries.filter(|one| one.end == end).count();
        if count > 0 {
            let separator = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{separator}{count} {name}");
        }
    }
    match text.is_empty() {
        true => "no peer could be asked".to_owned(),
        false => format!("answers {text}"),
    }
}
