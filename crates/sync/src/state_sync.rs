//! The state of a late block, the pivot, from peers: its ranges from many at once, each with the trie nodes between its ends, then the
//! nodes that are missing, then the blocks that belong to it.
//!
//! ```text
//! target --headers down--> pivot - 255      workers: range --> proved accounts, their storage and codes --> rows
//!                                              |  idle ones get a part of what is left of a range
//!                                              |  an old pivot: the workers end, a late one takes its place
//!                                           nodes at the ends of ranges; what access lists changed since; without lists,
//!                                              nodes of the pivot's tries where these differ
//!                                           bodies and receipts of the last 256 blocks, head = pivot
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `pivot` | which block it is, and how it moves |
//! | `plan` | what is left to ask for, shared by the workers |
//! | `fetch` | one part, asked of peers until it is proved |
//! | `worker` | the parts of ranges one after the other |
//! | `heal` | what differs from the pivot's tries in the end |
//!
//! What is written stays over a restart. A peer can only withhold: all that it sends is proved against the pivot's header, and that is an
//! ancestor of the block that the consensus client chose.

mod fetch;
mod heal;
mod pivot;
mod plan;
mod worker;

use crate::header_window::SealedHeader;
use crate::progress::{StateShare, SyncState};
use crate::session::{Context, Failure, Interrupt, header_of};
use crate::skeleton::{Path, Skeleton};
use crate::whole_blocks::WholeBlocks;
use fetch::{FetchError, Fetcher};
use niwaki_chain::DownloadedBlock;
use niwaki_primitives::B256;
use niwaki_state::{StateDownload, StatePart};
use pivot::first_block;
use plan::Plan;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use worker::Worker;

/// A state is downloaded if the target is at least so far away.
pub(crate) const MIN_DISTANCE: u64 = 192;
/// Workers, for each peer: while one checks or writes what came, others wait for what is on the way.
const WORKERS_PER_PEER: usize = 4;
const MAX_WORKERS: usize = 16;
/// How often the attempt looks how far its workers are.
const POLL: Duration = Duration::from_millis(100);
/// An attempt in which nothing comes for this time ends.
const STALL_MS: u64 = 120_000;

impl Context<'_> {
    /// Gets the state of a block some way below the chosen head, whose known ancestor is `target`, and makes that block the head. Goes
    /// on with the download that was begun.
    pub(crate) fn sync_state(
        &self,
        skeleton: &mut Skeleton,
        target: &SealedHeader,
    ) -> Result<(), Interrupt> {
        let (download, path) = self.choose_pivot(skeleton, target)?;
        self.fill(&download)?;
        let pivot = download.pivot().block;
        let numbers = first_block(pivot.number)..=pivot.number;
        let blocks = self.blocks_with_state(skeleton, &path, numbers)?;
        self.chain.finish_state_download(download, &blocks)?;
        // The headers above the pivot are those of the blocks to execute.
        Ok(skeleton.remove_stored(&path, pivot)?)
    }

    /// The pivot's block and its last ancestors, the lowest first.
    fn blocks_with_state(
        &self,
        skeleton: &Skeleton,
        path: &Path,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<DownloadedBlock>, Interrupt> {
        self.report(|progress, now_ms| progress.enter(SyncState::Blocks, now_ms));
        let need = self.need(*numbers.end());
        let headers = numbers.map(|number| header_of(skeleton, path, number));
        let headers = headers.collect::<Result<Vec<_>, Interrupt>>()?;
        let check = || self.tick();
        let blocks = WholeBlocks::new(self, need, &check);
        blocks.download(headers, self.chain.merged_difficulty()?, true)
    }

    /// Downloads what remains, makes the tries whole, and makes them the pivot's.
    fn fill(&self, download: &StateDownload<'_>) -> Result<(), Interrupt> {
        if download.own_root().is_none() {
            self.download_ranges(download)?;
            self.complete(download)?;
        }
        if !download.write_changes(threads(), &mut || self.tick().is_ok())? {
            return Err(Interrupt::Stopped);
        }
        self.heal(download)
    }

    fn complete(&self, download: &StateDownload<'_>) -> Result<(), Interrupt> {
        self.report(|progress, now_ms| progress.enter(SyncState::Build, now_ms));
        let is_done = download.complete(threads(), &mut |done, of| {
            self.report(|progress, _| {
                progress.update(|status| status.open_items = of - done);
            });
            self.tick().is_ok()
        })?;
        match is_done {
            true => Ok(()),
            false => Err(Interrupt::Stopped),
        }
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
            part_bytes: download.part_bytes(workers),
            answers: &answers,
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(|| worker.run())).collect();
            let watched = self.watch(&worker, || {
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
            self.report_share(&worker);
            watched?;
            let mut failed = ends.into_iter().filter_map(Result::err);
            match failed.find(|error| !matches!(error, FetchError::Over)) {
                Some(error) => Err(Interrupt::from(error)),
                None => Ok(()),
            }
        })
    }

    /// Reports how far the workers are until they have ended, or until the pivot is to move.
    fn watch(&self, worker: &Worker<'_>, have_ended: impl Fn() -> bool) -> Result<(), Interrupt> {
        let (mut seen, mut since_ms) = (0, self.now_ms());
        while !have_ended() {
            self.tick()?;
            if self.is_old(&worker.download.pivot())? {
                return Err(Interrupt::Retargeted);
            }
            self.report_share(worker);
            let (count, now_ms) = (worker.answers.load(Ordering::Relaxed), self.now_ms());
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

    fn report_share(&self, worker: &Worker<'_>) {
        let progress = worker.download.progress();
        let (waiting_accounts, waiting_storages) = worker.plan.waiting();
        let share = StateShare {
            accounts: progress.accounts,
            slots: progress.slots,
            codes: progress.codes,
            bytes: progress.bytes,
            left: worker.plan.left(),
            waiting_accounts,
            waiting_storages,
        };
        self.report(|progress, _| progress.update(|status| status.state_share = share));
    }

    fn download_codes(
        &self,
        download: &StateDownload<'_>,
        hashes: &[B256],
    ) -> Result<(), Interrupt> {
        let mut part = StatePart::default();
        let fetcher = self.fetcher(download);
        fetcher.codes(hashes, &mut |hash, code| part.add_code(hash, code))?;
        Ok(download.write(part)?)
    }

    /// Asks until the node stops.
    fn fetcher(&self, download: &StateDownload<'_>) -> Fetcher<'_> {
        Fetcher {
            peers: self.peers,
            root: download.pivot().root,
            is_over: self.is_stopped,
        }
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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
