//! How far a sync is, for RPC, metrics and the log. Pure: the owner of the sync reports steps with the time.

use crate::owner::MIN_FREE_BYTES;
use crate::picker::Way;
use crate::times::{SyncTime, Times};
use niwaki_primitives::B256;
use std::collections::VecDeque;
use std::fmt;

/// A line of progress comes so often,
const LINE_MS: u64 = 10_000;
/// and a line that says what is waited for.
const WAITING_MS: u64 = 60_000;
/// Rates are of this time.
const RATE_MS: u64 = 300_000;
/// Between two measurements for a rate.
const SAMPLE_MS: u64 = 1_000;
/// The keys of all accounts are counted in so many parts.
const KEY_SPACE: u64 = 65_536;
/// Most failures that are remembered.
const MAX_FAILURES: usize = 20;

/// How a node syncs that has no state yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// It executes all blocks.
    #[default]
    Full,
    /// It gets the state of a late block, and executes the blocks after it.
    Snap,
}

/// What a sync is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SyncState {
    /// There is no target: the head is current, as far as is known.
    #[default]
    Idle,
    /// The header of the target is asked for.
    Locate,
    /// Headers come, from the target down.
    Headers,
    /// Bodies come and are executed.
    Blocks,
    /// Ranges of a state come.
    Ranges,
    /// What has come of a state is led to a later block.
    MovePivot,
    /// Its tries are made whole.
    Build,
    /// What differs from the tries of the block is asked for.
    Heal,
    /// Something is waited for.
    Waiting,
}

impl SyncState {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Locate => "locate",
            Self::Headers => "headers",
            Self::Blocks => "blocks",
            Self::Ranges => "ranges",
            Self::MovePivot => "move_pivot",
            Self::Build => "build",
            Self::Heal => "heal",
            Self::Waiting => "waiting",
        }
    }
}

/// What a sync waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    NoPeers,
    NoTarget,
    NoSnapPeers,
    NoSpace,
    AfterFailure { seconds: u64 },
    OtherChain,
}

/// What a sync can wait for, as metrics name it.
pub const STALLS: [&str; 6] = [
    "no_peers",
    "no_target",
    "failure",
    "other_chain",
    "no_snap_peers",
    "no_space",
];

impl Waiting {
    /// Its name in metrics.
    fn name(&self) -> &'static str {
        let [
            no_peers,
            no_target,
            failure,
            other_chain,
            no_snap_peers,
            no_space,
        ] = STALLS;
        match self {
            Self::NoPeers => no_peers,
            Self::NoTarget => no_target,
            Self::NoSnapPeers => no_snap_peers,
            Self::NoSpace => no_space,
            Self::AfterFailure { .. } => failure,
            Self::OtherChain => other_chain,
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeers => write!(f, "there is no peer to ask"),
            Self::NoTarget => write!(f, "the consensus client has not chosen a head yet"),
            Self::NoSnapPeers => write!(f, "no peer gives its state (snap)"),
            Self::NoSpace => write!(
                f,
                "less than {} GiB are free where the data path is, too little to begin with a state; free some",
                MIN_FREE_BYTES >> 30
            ),
            Self::AfterFailure { seconds } => {
                write!(f, "a pause of {seconds} s after a failure")
            }
            Self::OtherChain => write!(f, "the target is of another chain; choose another one"),
        }
    }
}

/// How much of a state has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateShare {
    /// Accounts.
    pub accounts: u64,
    /// Slots.
    pub slots: u64,
    /// Codes.
    pub codes: u64,
    /// Bytes of their rows.
    pub bytes: u64,
    /// 65,536ths of all accounts that have not come, about.
    pub left: u64,
    /// Ranges of accounts that no peer is asked for yet,
    pub waiting_accounts: u64,
    /// and of large storages.
    pub waiting_storages: u64,
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// Seconds since the node started.
    pub at_s: u64,
    /// What failed, and why.
    pub reason: String,
}

/// How far a sync is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncStatus {
    /// How a node without state syncs.
    pub mode: SyncMode,
    /// What is done now.
    pub state: SyncState,
    /// The way to the target, if there is one.
    pub way: Option<Way>,
    /// The block to reach.
    pub target: Option<B256>,
    /// The number of the head when this sync began.
    pub start_block: u64,
    /// The number of the head.
    pub current_block: u64,
    /// The number of the lowest block that is stored with all after it.
    pub first_block: u64,
    /// Blocks below it that came since the node started.
    pub history_blocks: u64,
    /// Whether all of those have come that are wanted.
    pub is_history_complete: bool,
    /// The number of the block to reach, or of the head that the consensus client chose above it; zero if that is not known.
    pub highest_block: u64,
    /// Headers that came in this sync.
    pub headers: u64,
    /// The lowest header that is linked to the target.
    pub lowest_header: Option<u64>,
    /// Items of the present job that have not come.
    pub open_items: u64,
    /// The block whose state is downloaded, or was last.
    pub pivot: Option<u64>,
    /// How often another block was chosen for that since the node started.
    pub pivots: u64,
    /// How much of the state has come that is downloaded, or was last.
    pub state_share: StateShare,
    /// Nodes of tries that came for healing since the node started.
    pub healed_nodes: u64,
    /// Accounts and slots that the present pass of healing has found to differ.
    pub differing: u64,
    /// How many peers there are.
    pub peers: usize,
    /// Blocks a second, of the last 5 min.
    pub blocks_per_s: f64,
    /// Seconds that are left at this rate.
    pub remaining_s: Option<u64>,
    /// What is waited for.
    pub waiting_for: Option<String>,
    /// The same as metrics name it: one of [`STALLS`].
    pub stall: Option<&'static str>,
    /// Headers that came since the node started.
    pub all_headers: u64,
    /// Bodies that came since the node started.
    pub all_bodies: u64,
    /// How many steps have failed since the node started.
    pub all_failures: u64,
    /// Blocks that were imported since the node started.
    pub imported: u64,
    /// How many syncs reached their targets since the node started.
    pub reached: u64,
    /// The last failures, the oldest first.
    pub failures: VecDeque<SyncFailure>,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Progress(String),
    Waiting(String),
}

/// Keeps the status.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    status: SyncStatus,
    /// When, and which block was the head, or the lowest header.
    samples: VecDeque<(u64, u64)>,
    sampled: SyncState,
    line_due_ms: u64,
    waiting_due_ms: Option<u64>,
    times: Times,
}

impl Progress {
    pub(crate) fn new(mode: SyncMode) -> Self {
        Self {
            status: SyncStatus {
                mode,
                ..SyncStatus::default()
            },
            ..Self::default()
        }
    }

    pub(crate) fn status(&self) -> &SyncStatus {
        &self.status
    }

    /// Changes what needs no rule.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut SyncStatus)) {
        change(&mut self.status);
    }

    /// The target is reached: the head is this block.
    pub(crate) fn reach(&mut self, head: u64, now_ms: u64) {
        self.status.current_block = head;
        self.status.reached += 1;
        self.times.reach(now_ms);
    }

    /// The times that were measured since the last call.
    pub(crate) fn take_times(&mut self) -> Vec<SyncTime> {
        self.times.take()
    }

    /// Something else is done from now on.
    pub(crate) fn enter(&mut self, state: SyncState, now_ms: u64) {
        self.times.enter(state, now_ms);
        if state != SyncState::Waiting {
            (self.status.waiting_for, self.status.stall) = (None, None);
            self.waiting_due_ms = None;
        }
        if self.status.state == SyncState::Idle && state != SyncState::Idle {
            self.line_due_ms = now_ms.saturating_add(LINE_MS);
            self.status.start_block = self.status.current_block;
            self.status.headers = 0;
        }
        if state == SyncState::Idle {
            self.status.way = None;
            self.status.target = None;
            self.status.lowest_header = None;
        }
        self.status.state = state;
        self.status.open_items = 0;
    }

    /// Something is waited for.
    pub(crate) fn wait_for(&mut self, waiting: &Waiting, now_ms: u64) {
        self.enter(SyncState::Waiting, now_ms);
        self.status.waiting_for = Some(waiting.to_string());
        self.status.stall = Some(waiting.name());
        self.waiting_due_ms
            .get_or_insert(now_ms.saturating_add(WAITING_MS));
    }

    /// A step failed.
    pub(crate) fn fail(&mut self, reason: String, now_ms: u64) {
        self.status.all_failures += 1;
        if self.status.failures.len() >= MAX_FAILURES {
            self.status.failures.pop_front();
        }
        let at_s = now_ms / 1_000;
        self.status.failures.push_back(SyncFailure { at_s, reason });
    }

    /// Measures, and gives the line that is due.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Option<Line> {
        self.sample(now_ms);
        if let Some(due_ms) = self.waiting_due_ms
            && now_ms >= due_ms
        {
            self.waiting_due_ms = Some(now_ms.saturating_add(WAITING_MS));
            return Some(Line::Waiting(self.waiting_line()));
        }
        let is_syncing = matches!(
            self.status.state,
            SyncState::Locate
                | SyncState::Headers
                | SyncState::Blocks
                | SyncState::Ranges
                | SyncState::MovePivot
                | SyncState::Build
                | SyncState::Heal
        );
        if is_syncing && now_ms >= self.line_due_ms {
            self.line_due_ms = now_ms.saturating_add(LINE_MS);
            return Some(Line::Progress(self.progress_line()));
        }
        None
    }

    fn sample(&mut self, now_ms: u64) {
        let at = match self.status.state {
            SyncState::Headers => self.status.headers,
            SyncState::Ranges => KEY_SPACE.saturating_sub(self.status.state_share.left),
            _ => self.status.current_block,
        };
        if self.sampled != self.status.state {
            self.sampled = self.status.state;
            self.samples.clear();
        }
        let is_due = self
            .samples
            .back()
            .is_none_or(|(last_ms, _)| now_ms >= last_ms.saturating_add(SAMPLE_MS));
        if !is_due {
            return;
        }
        self.samples.push_back((now_ms, at));
        let is_old = |sample: &&(u64, u64)| sample.0.saturating_add(RATE_MS) < now_ms;
        let old = self.samples.iter().take_while(is_old).count();
        self.samples.drain(..old);
        let Some((first_ms, first)) = self.samples.front() else {
            return;
        };
        let elapsed_ms = now_ms.saturating_sub(*first_ms).max(1);
        let rate = at.saturating_sub(*first) as f64 * 1_000.0 / elapsed_ms as f64;
        self.status.blocks_per_s = match self.status.state {
            SyncState::Ranges => 0.0,
            _ => rate,
        };
        self.status.remaining_s = remaining_s(&self.status, rate);
    }

    fn progress_line(&self) -> String {
        let status = &self.status;
        let left = match status.remaining_s {
            Some(seconds) => format!(", about {seconds} s left"),
            None => String::new(),
        };
        let peers = status.peers;
        match status.state {
            SyncState::Headers => format!(
                "headers down to block {} of {}: {} came, {:.0} a second, {peers} peers{left}",
                status.lowest_header.unwrap_or(status.highest_block),
                status.highest_block,
                status.headers,
                status.blocks_per_s,
            ),
            SyncState::Ranges => {
                let share = status.state_share;
                let percent = 100.0 - share.left as f64 * 100.0 / KEY_SPACE as f64;
                let (pivot, mib) = (status.pivot.unwrap_or_default(), share.bytes >> 20);
                format!(
                    "the state of block {pivot}, {percent:.1} %: {} accounts, {} slots, {} codes, {mib} MiB, {peers} peers{left}",
                    share.accounts, share.slots, share.codes,
                )
            }
            SyncState::MovePivot => {
                let left = status.open_items;
                format!("the state moves to a later block: {left} blocks left, {peers} peers")
            }
            SyncState::Build => format!("the tries: {} of 4096 parts left", status.open_items),
            SyncState::Heal => format!(
                "healing: {} nodes came, {} more to come at least, {} accounts and slots differ, {peers} peers",
                status.healed_nodes, status.open_items, status.differing,
            ),
            SyncState::Locate => format!("asking {peers} peers for the header of the target"),
            _ => format!(
                "block {} of {}: {:.1} blocks a second, {peers} peers{left}",
                status.current_block, status.highest_block, status.blocks_per_s,
            ),
        }
    }

    fn waiting_line(&self) -> String {
        let reason = self.status.waiting_for.as_deref().unwrap_or("nothing");
        let last = match self.status.failures.back() {
            Some(failure) => format!("; the last failure: {}", failure.reason),
            None => String::new(),
        };
        format!(
            "the head is block {}, {} peers, waiting: {reason}{last}",
            self.status.current_block, self.status.peers
        )
    }
}

/// Seconds until the headers meet the chain, or until the blocks are executed.
fn remaining_s(status: &SyncStatus, rate: f64) -> Option<u64> {
    let left = match status.state {
        SyncState::Headers => status.lowest_header?.saturating_sub(status.current_block),
        SyncState::Ranges => status.state_share.left,
        SyncState::Blocks => status.highest_block.saturating_sub(status.current_block),
        _ => return None,
    };
    #[expect(clippy::cast_possible_truncation, reason = "a number of seconds")]
    #[expect(clippy::cast_sign_loss, reason = "neither is negative")]
    (rate > 0.0).then(|| (left as f64 / rate).ceil().min(1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_each_10_s_with_rate_and_time_left() {
        let mut progress = Progress::new(SyncMode::Full);
        progress.update(|status| {
            status.current_block = 100;
            status.highest_block = 1_100;
            status.peers = 3;
        });
        progress.enter(SyncState::Blocks, 0);
        let mut lines = Vec::new();
        for now_ms in (0..=20_000).step_by(500) {
            progress.update(|status| status.current_block = 100 + now_ms / 100);
            lines.extend(progress.tick(now_ms));
        }
        let line = |block, left| {
            let line = format!(
                "block {block} of 1100: 10.0 blocks a second, 3 peers, about {left} s left"
            );
            Line::Progress(line)
        };
        assert_eq!(lines, [line(200, 90), line(300, 80)]);
        assert_eq!(progress.status().start_block, 100);
        progress.enter(SyncState::Idle, 20_000);
        assert_eq!(progress.tick(60_000), None);
    }

    #[test]
    fn the_time_that_is_left_of_a_state_is_that_of_the_keys_that_have_not_come() {
        let mut progress = Progress::new(SyncMode::Snap);
        progress.update(|status| (status.pivot, status.peers) = (Some(99), 2));
        progress.enter(SyncState::Ranges, 0);
        let mut lines = Vec::new();
        for now_ms in (0..=10_000).step_by(500) {
            progress.update(|status| {
                status.state_share = StateShare {
                    left: KEY_SPACE * (100_000 - now_ms) / 100_000,
                    ..StateShare::default()
                };
            });
            lines.extend(progress.tick(now_ms));
        }
        let line = "the state of block 99, 10.0 %: 0 accounts, 0 slots, 0 codes, 0 MiB, 2 peers, about 90 s left";
        assert_eq!(lines, [Line::Progress(line.to_owned())]);
        assert_eq!(progress.status().blocks_per_s, 0.0);
    }

    #[test]
    fn what_is_waited_for_is_said_once_a_minute_with_the_last_failure() {
        let mut progress = Progress::new(SyncMode::Full);
        progress.fail("no answer".to_owned(), 1_000);
        let mut lines = Vec::new();
        for now_ms in (0..=180_000).step_by(1_000) {
            progress.wait_for(&Waiting::NoPeers, now_ms);
            lines.extend(progress.tick(now_ms));
        }
        assert_eq!(lines.len(), 3);
        let expected = "the head is block 0, 0 peers, waiting: there is no peer to ask; the last failure: no answer";
        assert_eq!(lines[0], Line::Waiting(expected.to_owned()));
        assert_eq!(progress.status().stall, Some("no_peers"));
        progress.enter(SyncState::Headers, 180_000);
        let status = progress.status();
        assert_eq!((&status.waiting_for, status.stall), (&None, None));
    }

    #[test]
    fn the_last_20_failures_are_kept() {
        let mut progress = Progress::new(SyncMode::Full);
        for at in 0..25 {
            progress.fail(at.to_string(), at * 1_000);
        }
        let failures = &progress.status().failures;
        assert_eq!((failures.len(), failures[0].at_s), (20, 5));
        assert_eq!(progress.status().all_failures, 25);
    }

    #[test]
    fn the_rate_of_headers_is_not_taken_for_that_of_blocks() {
        let mut progress = Progress::new(SyncMode::Full);
        progress.enter(SyncState::Headers, 0);
        for now_ms in (0..=5_000).step_by(1_000) {
            progress.update(|status| {
                status.headers = now_ms;
                status.lowest_header = Some(50_000 - now_ms);
            });
            progress.tick(now_ms);
        }
        assert_eq!(progress.status().blocks_per_s, 1_000.0);
        assert_eq!(progress.status().remaining_s, Some(45));
        progress.enter(SyncState::Blocks, 5_000);
        progress.tick(6_000);
        assert_eq!(progress.status().blocks_per_s, 0.0);
    }
}
