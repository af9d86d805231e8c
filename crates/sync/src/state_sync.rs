//! The state of a late block, the pivot, from peers: its ranges from many at once, then the tries, then the blocks that belong to it.
//!
//! ```text
//! target --headers down--> pivot - 255      workers: range --> proved accounts, their storage and codes --> rows
//!                                              |  idle ones get a part of what is left of a range
//!                                           tries from all rows, root = the pivot's
//!                                           bodies and receipts of the last 256 blocks, head = pivot
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `plan` | what is left to ask for, shared by the workers |
//! | `fetch` | one part, asked of peers until it is proved |
//! | `worker` | the parts of ranges one after the other |
//! | `blocks` | the pivot's block and its last ancestors |
//!
//! What is written stays over a restart. A peer can only withhold: all that it sends is proved against the pivot's header, and that is an
//! ancestor of the block that the consensus client chose.

mod blocks;
mod fetch;
mod plan;
mod worker;

use crate::header_window::SealedHeader;
use crate::progress::{StateShare, SyncState};
use crate::serve::STATES_SERVED;
use crate::session::{Context, Failure, Interrupt};
use crate::skeleton::{Path, Skeleton};
use fetch::{FetchError, Fetcher};
use niwaki_chain::{BLOCKS_WITH_STATE, BlockId, StateHead};
use niwaki_primitives::B256;
use niwaki_state::{BuildEnd, StateDownload, StatePart};
use plan::Plan;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tracing::warn;
use worker::Worker;

/// The pivot is so many blocks below the target: peers have its state, and it is not reorganised.
const PIVOT_DISTANCE: u64 = 64;
/// A state is downloaded if the target is at least so far away.
pub(crate) const MIN_DISTANCE: u64 = 192;
/// A pivot that peers will have for no more than so many blocks is given up.
const RESERVE: u64 = 8;
/// Workers, for each peer.
const WORKERS_PER_PEER: usize = 2;
const MAX_WORKERS: usize = 16;
/// How often the attempt looks how far its workers are.
const POLL: Duration = Duration::from_millis(100);
/// An attempt in which nothing comes for this time ends.
const STALL_MS: u64 = 120_000;
/// Differing storages are asked for again so often.
const MAX_REPAIRS: usize = 3;

impl Context<'_> {
    /// Gets the state of a block [`PIVOT_DISTANCE`] below the target, or of the pivot of a download that was begun, and makes it the
    /// head.
    pub(crate) fn sync_state(
        &self,
        skeleton: &mut Skeleton,
        target: &SealedHeader,
    ) -> Result<(), Interrupt> {
        let download = self.chain.resume_state_download()?;
        let number = target.header.number;
        let is_of_use = |download: &StateDownload<'_>| {
            let oldest = number.saturating_sub(STATES_SERVED - RESERVE);
            let is_served = download.pivot().block.number >= oldest;
            is_served || download.remaining().is_empty()
        };
        let download = download.filter(is_of_use);
        let begun = download.as_ref().map(StateDownload::pivot);
        let lowest = match begun {
            Some(pivot) => pivot.block.number.min(number),
            None => number.saturating_sub(PIVOT_DISTANCE),
        };
        let floor = lowest.saturating_sub(BLOCKS_WITH_STATE - 1).max(1);
        skeleton.add_target(target.clone())?;
        let id = BlockId {
            number,
            hash: target.hash,
        };
        let path = self.download_headers_to(skeleton, id, floor)?;
        let header = header_of(skeleton, &path, lowest)?;
        let pivot = StateHead {
            block: BlockId {
                number: lowest,
                hash: header.hash,
            },
            root: header.header.state_root,
        };
        let download = match download {
            Some(download) if download.pivot() == pivot => download,
            // There is none, its pivot was reorganised away, or peers do not have that state any more.
            _ => self.chain.begin_state_download(pivot)?,
        };
        self.fill(&download)?;
        let blocks = self.download_blocks(skeleton, &path, floor..=lowest)?;
        self.chain.finish_state_download(download, &blocks)?;
        // The headers above the pivot are those of the blocks to execute.
        Ok(skeleton.remove_stored(&path, pivot.block)?)
    }

    /// Downloads what remains, and builds the tries.
    fn fill(&self, download: &StateDownload<'_>) -> Result<(), Interrupt> {
        for _ in 0..MAX_REPAIRS {
            self.download_ranges(download)?;
            let pivot = download.pivot();
            match self.build(download)? {
                BuildEnd::Whole => return Ok(()),
                BuildEnd::Stopped => return Err(Interrupt::Stopped),
                BuildEnd::MissingCodes(hashes) => self.download_codes(download, &hashes)?,
                BuildEnd::StorageDiffers(accounts) => download.forget_storages(&accounts)?,
                BuildEnd::RootDiffers(got) => {
                    warn!(%got, expected = %pivot.root, "The downloaded state has another root: it comes again");
                    download.forget_all()?;
                }
            }
        }
        Err(Failure::NoState("the state did not get whole".to_owned()).into())
    }

    fn build(&self, download: &StateDownload<'_>) -> Result<BuildEnd, Interrupt> {
        self.report(|progress, now_ms| progress.enter(SyncState::Build, now_ms));
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let built = download.build(threads, &mut |done, of| {
            self.report(|progress, _| {
                progress.update(|status| status.open_items = of - done);
            });
            self.tick().is_ok()
        });
        Ok(built?)
    }

    fn download_ranges(&self, download: &StateDownload<'_>) -> Result<(), Interrupt> {
        self.report(|progress, now_ms| progress.enter(SyncState::Ranges, now_ms));
        let remaining = download.remaining();
        if remaining.is_empty() {
            return Ok(());
        }
        let peers = self.peers.offers().len();
        let workers = (peers * WORKERS_PER_PEER).clamp(WORKERS_PER_PEER, MAX_WORKERS);
        let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        let plan = Plan::new(remaining);
        let worker = Worker {
            fetcher: Fetcher {
                peers: self.peers,
                root: download.pivot().root,
                is_over: &is_over,
            },
            download,
            plan: &plan,
            answers: &answers,
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(|| worker.run())).collect();
            let watched = self.watch(download, &plan, &answers, || {
                workers.iter().all(|worker| worker.is_finished())
            });
            if watched.is_err() {
                is_over.store(true, Ordering::Relaxed);
                plan.end();
            }
            let ends = workers.into_iter().map(|worker| match worker.join() {
                Ok(end) => end,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            let ends: Vec<Result<(), FetchError>> = ends.collect();
            watched?;
            let mut failed = ends.into_iter().filter_map(Result::err);
            match failed.find(|error| !matches!(error, FetchError::Over)) {
                Some(error) => Err(Interrupt::from(error)),
                None => Ok(()),
            }
        })
    }

    /// Reports how far the workers are until they have ended.
    fn watch(
        &self,
        download: &StateDownload<'_>,
        plan: &Plan,
        answers: &AtomicU64,
        have_ended: impl Fn() -> bool,
    ) -> Result<(), Interrupt> {
        let (mut seen, mut since_ms) = (0, self.now_ms());
        while !have_ended() {
            self.tick()?;
            let progress = download.progress();
            let share = StateShare {
                accounts: progress.accounts,
                slots: progress.slots,
                codes: progress.codes,
                bytes: progress.bytes,
                left: plan.left(),
            };
            self.report(|progress, _| progress.update(|status| status.state_share = share));
            let (count, now_ms) = (answers.load(Ordering::Relaxed), self.now_ms());
            if count != seen {
                (seen, since_ms) = (count, now_ms);
            }
            if now_ms.saturating_sub(since_ms) >= STALL_MS {
                return Err(Failure::Stalled.into());
            }
            self.peers.wait(POLL);
        }
        Ok(())
    }

    fn download_codes(
        &self,
        download: &StateDownload<'_>,
        hashes: &[B256],
    ) -> Result<(), Interrupt> {
        let is_over = AtomicBool::new(false);
        let fetcher = Fetcher {
            peers: self.peers,
            root: download.pivot().root,
            is_over: &is_over,
        };
        let mut part = StatePart::default();
        fetcher.codes(hashes, &mut |hash, code| part.add_code(hash, code))?;
        Ok(download.write(part)?)
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Over => Self::NoState("the attempt is over".to_owned()),
            FetchError::GivenUp(reasons) => Self::NoState(reasons),
            FetchError::NoJob(error) => error.into(),
            FetchError::Fault(fault) => fault.into(),
        }
    }
}

/// A header of a path.
fn header_of(skeleton: &Skeleton, path: &Path, number: u64) -> Result<SealedHeader, Interrupt> {
    let mut parts = path.parts.iter();
    let part = parts.find(|part| (part.low..=part.high).contains(&number));
    let header = part.map(|part| skeleton.header(part.run, number));
    let header = header.transpose()?.flatten();
    header.ok_or_else(|| {
        let reason = format!("the header of block {number} was stored and is missing");
        Failure::NotImported(reason).into()
    })
}
