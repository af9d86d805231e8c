//! The thread that owns the sync: it looks where the target is, picks the way there, goes it, and after a failure pauses and takes
//! another one.
//!
//! What ends the loops that syncs are known for: an attempt belongs to the blocks it gets, not to the head, so a head that moves
//! while it runs only adds to it; what came stays; each failure has its pause; an attempt without progress for two minutes ends.

use crate::followed::{Followed, FollowsPeers};
use crate::header_window::SealedHeader;
use crate::history::{History, HistoryFiles, HistoryFloor};
use crate::picker::{MAX_BACKWARD, Situation, Way, pick};
use crate::progress::{Progress, SyncMode, SyncState, SyncStatus, Waiting};
use crate::session::{Context, Failure, Interrupt};
use crate::skeleton::Skeleton;
use crate::source::{NetworkPeers, Peers};
use crate::target::{Target, TargetSource};
use crate::times::SyncTime;
use niwaki_chain::{Consensus, SetHeadError, Verdict};
use niwaki_network::Peer;
use niwaki_network::router::RouterHandle;
use niwaki_primitives::{B256, Fault};
use niwaki_threads::lock;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

/// How often a new target is looked for.
const IDLE: Duration = Duration::from_millis(100);
/// The same where peers make the chain: their next block may be there at any time.
const IDLE_FOLLOWING: Duration = Duration::from_millis(20);
/// The pause after a failure,
const PAUSE_MS: u64 = 30_000;
/// after no peer had the target, which is new to them too,
const LOCATE_PAUSE_MS: u64 = 3_000;
/// after the blocks that wait could not be imported yet,
const IMPORT_PAUSE_MS: u64 = 1_000;
/// and after a target of another chain.
const OTHER_CHAIN_PAUSE_MS: u64 = 600_000;

/// So many blocks at a time are no news on a chain that peers make.
const NEXT_BLOCKS: u64 = 8;

/// No download of a state begins with less space on the disk.
pub(crate) const MIN_FREE_BYTES: u64 = 2 << 30;

/// What a sync needs.
#[derive(Debug)]
pub struct SyncConfig {
    /// The chain, as its consensus client drives it.
    pub consensus: Arc<Consensus>,
    /// Asks peers.
    pub router: RouterHandle,
    /// The peers, as they change.
    pub peers: watch::Receiver<Arc<[Arc<Peer>]>>,
    /// A folder on the disk of the chain's database.
    pub folder: PathBuf,
    /// How a node without state syncs.
    pub mode: SyncMode,
    /// Which blocks it gets below the first one that it has.
    pub history: HistoryFloor,
    /// A folder of Ere files that has such blocks.
    pub history_files: Option<PathBuf>,
    /// Whether a consensus client chooses the head: until it has, the sync says that it waits for it.
    pub is_driven: bool,
    /// If no consensus client will ever choose a head: the chain goes on where peers are, as validators seal it.
    pub follows_peers: Option<FollowsPeers>,
    /// The block to reach while no consensus client has chosen a head.
    pub target: Option<B256>,
}

/// A running sync. Dropping it stops it after the block that is being imported.
#[derive(Debug)]
pub struct Sync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    progress: Mutex<Progress>,
    is_stopped: AtomicBool,
}

impl Sync {
    /// Starts the thread that keeps the chain at its target. It goes on with what an earlier process has left.
    ///
    /// # Errors
    /// A [`Fault`] of the storage, or of the system that gives no thread.
    pub fn start(config: SyncConfig) -> Result<Self, Fault> {
        let peers = NetworkPeers::new(config.router, config.peers);
        let settings = Settings {
            consensus: config.consensus,
            folder: Some(config.folder),
            mode: config.mode,
            history: config.history,
            history_files: config.history_files,
            is_driven: config.is_driven,
            follows_peers: config.follows_peers,
            target: config.target,
        };
        Self::start_with(settings, Box::new(peers))
    }

    fn start_with(mut settings: Settings, peers: Box<dyn Peers>) -> Result<Self, Fault> {
        if settings.follows_peers.is_some() && settings.mode == SyncMode::Snap {
            warn!(
                "Every block is executed, as with --sync-mode=FULL: only a consensus client can vouch for a state, and this chain has validators instead"
            );
            settings.mode = SyncMode::Full;
        }
        let shared = Arc::new(Shared {
            progress: Mutex::new(Progress::new(settings.mode)),
            is_stopped: AtomicBool::new(false),
        });
        let stored = Skeleton::of_chain(Arc::clone(settings.consensus.chain()))?;
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("sync".to_owned())
            .spawn(move || own_sync(settings, &*peers, &own, stored));
        let thread = thread
            .map_err(|error| Fault::io("start", Path::new("the thread of the sync"), error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// How far it is.
    pub fn status(&self) -> SyncStatus {
        lock(&self.shared.progress).status().clone()
    }

    /// A function that says how far it is, also after its end.
    pub fn reporter(&self) -> impl Fn() -> SyncStatus + Send + std::marker::Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || lock(&shared.progress).status().clone()
    }

    /// A function that gives the times that were measured since its last call.
    pub fn timer(&self) -> impl Fn() -> Vec<SyncTime> + Send + std::marker::Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || lock(&shared.progress).take_times()
    }

    /// Stops it, after the block that is being imported.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("The thread of the sync has panicked");
        }
    }
}

impl Drop for Sync {
    fn drop(&mut self) {
        self.end();
    }
}

/// What of the configuration is not about peers.
struct Settings {
    consensus: Arc<Consensus>,
    /// `None` for a chain in memory.
    folder: Option<PathBuf>,
    mode: SyncMode,
    history: HistoryFloor,
    history_files: Option<PathBuf>,
    is_driven: bool,
    follows_peers: Option<FollowsPeers>,
    target: Option<B256>,
}

fn own_sync(settings: Settings, peers: &dyn Peers, shared: &Shared, stored: Skeleton) {
    let files = settings.history_files.as_deref();
    let files = files.map(HistoryFiles::of_folder).unwrap_or_default();
    let mut owner = Owner {
        context: Context {
            chain: settings.consensus.chain(),
            consensus: &settings.consensus,
            peers,
            progress: &shared.progress,
            is_stopped: &shared.is_stopped,
            named: Cell::new(settings.target.map(|hash| (hash, TargetSource::Operator))),
            attempts: Cell::new(0),
        },
        folder: settings.folder.clone(),
        mode: settings.mode,
        history: History::new(settings.history, files),
        is_driven: settings.is_driven,
        followed: settings.follows_peers.map(Followed::new),
        stored,
        in_memory: Skeleton::in_memory(),
        located: None,
        failed: None,
        pause: None,
    };
    while !matches!(owner.step(), Err(Interrupt::Stopped)) {}
}

/// Whether the target is one of the next blocks of a chain that peers make: those are no news.
fn is_next(target: &Target, head: u64, number: u64) -> bool {
    target.source == TargetSource::Peers && number.saturating_sub(head) <= NEXT_BLOCKS
}

/// Nothing is asked for a target until then.
struct Pause {
    target: B256,
    until_ms: u64,
    seconds: u64,
    is_other_chain: bool,
    /// With more peers than these it ends.
    peers: usize,
}

struct Owner<'s> {
    context: Context<'s>,
    folder: Option<PathBuf>,
    mode: SyncMode,
    history: History,
    is_driven: bool,
    /// On a chain that no consensus client drives.
    followed: Option<Followed>,
    /// Headers of a full sync.
    stored: Skeleton,
    /// Headers of a backward sync.
    in_memory: Skeleton,
    /// The header of the target.
    located: Option<SealedHeader>,
    /// The way that failed last, since the last one that succeeded.
    failed: Option<Way>,
    pause: Option<Pause>,
}

impl Owner<'_> {
    /// Goes a part of the way.
    fn step(&mut self) -> Result<(), Interrupt> {
        self.context.tick()?;
        let head = self.context.chain.head().id.number;
        let target = match self.start_step(head) {
            Ok(target) => target,
            Err(fault) => return self.rest_after(fault),
        };
        let Some(target) = target else {
            return match self.idle() {
                Err(Interrupt::Failed(Failure::Fault(fault))) => self.rest_after(fault),
                idled => idled,
            };
        };
        if let Some(waiting) = self.paused(&target) {
            return self.wait(&waiting);
        }
        let gone = match self.pick(&target, head) {
            Ok(Ok(way)) => self.go(way, &target).map_err(|end| (way, end)),
            Ok(Err(waiting)) => return self.wait(&waiting),
            Err(fault) => return self.rest_after(fault),
        };
        match gone {
            Ok(()) => Ok(()),
            Err((_, Interrupt::Failed(Failure::Fault(fault)))) => self.rest_after(fault),
            Err((way, Interrupt::Failed(failure))) => {
                self.note_failure(way, &target, &failure);
                Ok(())
            }
            Err((_, other)) => Err(other),
        }
    }

    /// Reports which blocks are here. Returns the target.
    fn start_step(&mut self, head: u64) -> Result<Option<Target>, Fault> {
        if let Some(followed) = &mut self.followed {
            let context = &self.context;
            let (offers, now_ms) = (context.peers.offers(), context.now_ms());
            let hash = followed.choose(context.consensus, &offers, now_ms)?;
            context
                .named
                .set(hash.map(|hash| (hash, TargetSource::Peers)));
        }
        let first = self.context.chain.first_block()?;
        self.context.report(|progress, _| {
            progress.update(|status| {
                status.current_block = head;
                status.first_block = first;
            });
        });
        self.context.target()
    }

    /// Nothing is to be done at the head: older blocks have their time.
    fn idle(&mut self) -> Result<(), Interrupt> {
        self.pause = None;
        if let Some(header) = self.located.take() {
            // A consensus client that asked again, once the last block was there, has moved the head itself.
            let canonical = self.context.chain.canonical_hash(header.header.number)?;
            if canonical == Some(header.hash) {
                self.note_reached();
            }
        }
        let has_chosen = self.context.consensus.has_followed()
            || self.context.consensus.missing_head().is_some();
        match self.is_driven && !has_chosen {
            true => self.wait(&Waiting::NoTarget),
            false => {
                self.context
                    .report(|progress, now_ms| progress.enter(SyncState::Idle, now_ms));
                if !self.history.step(&self.context)? {
                    let is_following = self.followed.is_some();
                    self.context
                        .peers
                        .wait(if is_following { IDLE_FOLLOWING } else { IDLE });
                }
                Ok(())
            }
        }
    }

    fn wait(&self, waiting: &Waiting) -> Result<(), Interrupt> {
        self.context
            .report(|progress, now_ms| progress.wait_for(waiting, now_ms));
        self.context.peers.wait(IDLE);
        Ok(())
    }

    /// The pause that holds for this target.
    fn paused(&mut self, target: &Target) -> Option<Waiting> {
        let (now_ms, peers) = (self.context.now_ms(), self.context.peers.offers().len());
        self.pause.take_if(|pause| {
            let is_over = now_ms >= pause.until_ms || peers > pause.peers;
            pause.target != target.hash || is_over
        });
        self.pause.as_ref().map(|pause| match pause.is_other_chain {
            true => Waiting::OtherChain,
            false => Waiting::AfterFailure {
                seconds: pause.seconds,
            },
        })
    }

    fn pick(&mut self, target: &Target, head: u64) -> Result<Result<Way, Waiting>, Fault> {
        let header = self.header(target)?;
        let number = header.as_ref().map(|header| header.header.number);
        self.located = header;
        let offers = self.context.peers.offers();
        let situation = Situation {
            head,
            is_stored: self.context.chain.number_of(&target.hash)?.is_some(),
            target: number,
            offers: &offers,
            has_download: self.context.chain.has_state_download()?,
            wants_state: self.wants_state(),
            has_space: self.has_space(),
            is_unfinished: !self.stored.is_empty(),
            failed: self.failed,
        };
        let way = pick(&situation);
        let highest = target.highest.or(number).or(target.number);
        self.context.report(|progress, _| {
            progress.update(|status| {
                status.target = Some(target.hash);
                status.way = way.as_ref().ok().copied();
                status.highest_block = highest.unwrap_or(0);
            });
        });
        Ok(way)
    }

    /// Whether the state of a late block is to be downloaded. A node without peers that give theirs executes a short chain instead.
    fn wants_state(&self) -> bool {
        let chain = self.context.chain;
        let has_genesis_only = chain.head().id.hash == chain.genesis_hash();
        self.mode == SyncMode::Snap && has_genesis_only && !chain.is_archive()
    }

    /// Whether the disk has room for a state, as far as the system says.
    fn has_space(&self) -> bool {
        let folder = self.folder.as_deref();
        let space = folder.and_then(|folder| rustix::fs::statvfs(folder).ok());
        space.is_none_or(|space| space.f_bavail.saturating_mul(space.f_frsize) >= MIN_FREE_BYTES)
    }

    /// The header of the target, if it is here.
    fn header(&self, target: &Target) -> Result<Option<SealedHeader>, Fault> {
        if let Some(header) = self.located.as_ref().filter(|h| h.hash == target.hash) {
            return Ok(Some(header.clone()));
        }
        let Some(number) = target.number else {
            return Ok(None);
        };
        match self.in_memory.find(number, &target.hash)? {
            Some(header) => Ok(Some(header)),
            None => self.stored.find(number, &target.hash),
        }
    }

    fn go(&mut self, way: Way, target: &Target) -> Result<(), Interrupt> {
        match way {
            Way::Import => return self.follow(target),
            Way::Locate => {
                self.context
                    .report(|progress, now_ms| progress.enter(SyncState::Locate, now_ms));
                self.located = Some(self.context.locate(target.hash)?);
                return Ok(());
            }
            Way::Backward | Way::Full | Way::Snap => {}
        }
        let Some(header) = self.located.clone() else {
            return Ok(());
        };
        let head = self.context.chain.head().id.number;
        let number = header.header.number;
        let hash = header.hash;
        match is_next(target, head, number) {
            true => debug!("Syncing from block {head} to block {number} ({hash})"),
            false => info!("Syncing from block {head} to block {number} ({hash})"),
        }
        if way == Way::Snap {
            self.context.sync_state(&mut self.stored, &header)?;
            self.failed = None;
            let pivot = self.context.chain.head().id;
            info!("The state of block {pivot} is here");
            return Ok(());
        }
        if way == Way::Backward {
            self.context
                .reach(&mut self.in_memory, &header, Some(MAX_BACKWARD), false)?;
        } else {
            let by_lists = self.mode == SyncMode::Snap && !self.context.chain.is_archive();
            self.context
                .reach(&mut self.stored, &header, None, by_lists)?;
        }
        self.in_memory.clear()?;
        self.stored.clear()?;
        self.failed = None;
        Ok(())
    }

    /// The target is stored: the head moves there, or to the blocks that wait upon it.
    fn follow(&mut self, target: &Target) -> Result<(), Interrupt> {
        match target.source {
            TargetSource::Consensus => match self.context.consensus.retry_fork_choice() {
                Ok(None | Some(Verdict::Valid(_))) => {}
                Ok(Some(Verdict::Invalid(rejected))) => {
                    let reason = rejected.reason;
                    warn!("The head that the consensus client chose is invalid: {reason}");
                    return Ok(());
                }
                Ok(Some(Verdict::Syncing | Verdict::Accepted)) => {
                    self.pause_for(target, IMPORT_PAUSE_MS);
                    return Ok(());
                }
                Err(error) => return Err(Failure::NotImported(error.to_string()).into()),
            },
            TargetSource::Operator | TargetSource::Peers => {
                match self.context.consensus.set_head(&target.hash) {
                    Ok(()) => {}
                    Err(SetHeadError::Fault(fault)) => return Err(fault.into()),
                    Err(error) => return Err(Failure::NotImported(error.to_string()).into()),
                }
            }
        }
        self.located = None;
        self.note_reached();
        Ok(())
    }

    fn note_reached(&self) {
        let head = self.context.chain.head().id;
        info!("Synced: the head is block {head}");
        self.context
            .report(|progress, now_ms| progress.reach(head.number, now_ms));
    }

    /// Keeps a failure for reports, and pauses.
    fn note_failure(&mut self, way: Way, target: &Target, failure: &Failure) {
        let reason = failure.to_string();
        let is_new = {
            let progress = lock(self.context.progress);
            let last = progress.status().failures.back();
            last.is_none_or(|last| last.reason != reason)
        };
        // The same failure again is in the line that comes each minute.
        match is_new {
            true => warn!("Sync has failed: {reason}"),
            false => debug!("Sync has failed again: {reason}"),
        }
        self.context
            .report(|progress, now_ms| progress.fail(reason, now_ms));
        if matches!(way, Way::Backward | Way::Full | Way::Snap) {
            self.failed = Some(way);
        }
        if let Failure::Seals { .. } = failure {
            // Its header is in one of them; another peer may have the seals.
            self.forget_headers();
        }
        if let (Some(followed), TargetSource::Peers) = (&mut self.followed, target.source) {
            // There may be another one.
            let is_late = matches!(failure, Failure::NoTarget { is_late: true, .. });
            followed.refuse_current(is_late, self.context.now_ms());
            return;
        }
        match failure {
            // No failure of peers: the gap is for a full sync.
            Failure::TooLong { .. } => {}
            Failure::OtherChain { .. } => {
                self.pause_for(target, OTHER_CHAIN_PAUSE_MS);
                if let Some(pause) = &mut self.pause {
                    (pause.is_other_chain, pause.peers) = (true, usize::MAX);
                }
            }
            Failure::NoTarget { .. } => self.pause_for(target, LOCATE_PAUSE_MS),
            _ => self.pause_for(target, PAUSE_MS),
        }
    }

    fn forget_headers(&mut self) {
        self.located = None;
        let cleared = self.in_memory.clear().and_then(|()| self.stored.clear());
        if let Err(fault) = cleared {
            error!(%fault, "Headers of blocks without a quorum's seals are still stored");
        }
    }

    /// The machine failed: that is no matter of peers, and may pass.
    fn rest_after(&self, fault: Fault) -> Result<(), Interrupt> {
        error!(%fault, "Sync can't read or write the database");
        let waiting = Waiting::AfterFailure {
            seconds: PAUSE_MS / 1_000,
        };
        self.context
            .report(|progress, now_ms| progress.fail(fault.to_string(), now_ms));
        let until_ms = self.context.now_ms().saturating_add(PAUSE_MS);
        while self.context.now_ms() < until_ms {
            self.context.tick()?;
            self.wait(&waiting)?;
        }
        Ok(())
    }

    fn pause_for(&mut self, target: &Target, pause_ms: u64) {
        self.pause = Some(Pause {
            target: target.hash,
            until_ms: self.context.now_ms().saturating_add(pause_ms),
            seconds: pause_ms / 1_000,
            is_other_chain: false,
            peers: self.context.peers.offers().len(),
        });
    }
}

#[cfg(test)]
mod tests;
