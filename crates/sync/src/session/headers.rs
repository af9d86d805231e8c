//! Headers from the target down, until the parent of the lowest one is a stored block.

use super::{Context, Failure, Interrupt, POLL, STALL_MS, headers_of, reasons};
use crate::header_window::{Approach, HeaderWindow, SealedHeader};
use crate::progress::SyncState;
use crate::skeleton::{Path, Skeleton};
use crate::source::JobEvent;
use niwaki_chain::BlockId;
use niwaki_network::peers::Conduct;
use niwaki_network::router::{Ask, GivenUp, Need, Outcome};
use niwaki_network::wire::RequestKind;

/// Most headers of one job, about 2.5 MiB.
const MAX_WINDOW: u64 = 4_096;
/// Where another branch is at the same height, so many headers are asked for first, then twice as many.
const FIRST_STEP: u64 = 64;
/// After so many windows in which peers were on other branches, headers are asked for by hash only.
const MAX_UNLINKED: u32 = 8;

impl Context<'_> {
    /// Asks for the headers of a window until they are linked, `is_enough` says so of what is linked, or peers give no more: what was
    /// given up then. `is_enough` and `check` are called again and again, and end the download by an error.
    pub(crate) fn ask_window(
        &self,
        window: &mut HeaderWindow,
        need: Need,
        check: &dyn Fn() -> Result<(), Interrupt>,
        is_enough: &mut dyn FnMut(&mut HeaderWindow) -> Result<bool, Interrupt>,
    ) -> Result<Vec<GivenUp>, Interrupt> {
        let ask = Ask {
            kind: RequestKind::Headers,
            items: window.items(),
            need,
        };
        let mut job = self.peers.start(ask, window.request())?;
        loop {
            check()?;
            match job.next(POLL) {
                None => {}
                Some(JobEvent::Done(given_up)) => return Ok(given_up),
                Some(JobEvent::Answer { id, items, answer }) => {
                    let outcome = match headers_of(answer) {
                        Some(headers) => window.take(&items, self.sealed(headers)),
                        None => Outcome::Wrong(Conduct::BadMessage),
                    };
                    job.outcome(id, outcome);
                }
            }
            if is_enough(window)? || window.is_complete() {
                return Ok(Vec::new());
            }
        }
    }
}

/// A download of headers.
pub(super) struct Headers<'s, 'c> {
    context: &'s Context<'c>,
    skeleton: &'s mut Skeleton,
    target: BlockId,
    most: Option<u64>,
    /// Where a path may end that does not reach the chain.
    floor: Option<u64>,
    approach: Approach,
    unlinked: u32,
    steps: u32,
    progress_ms: u64,
}

impl<'s, 'c> Headers<'s, 'c> {
    pub(super) fn new(
        context: &'s Context<'c>,
        skeleton: &'s mut Skeleton,
        target: BlockId,
        most: Option<u64>,
    ) -> Self {
        Self {
            context,
            skeleton,
            target,
            most,
            floor: None,
            approach: Approach::Numbers,
            unlinked: 0,
            steps: 0,
            progress_ms: context.now_ms(),
        }
    }

    /// The path may end at this block.
    pub(super) fn with_floor(self, floor: u64) -> Self {
        Self {
            floor: Some(floor),
            ..self
        }
    }

    /// Returns the path from the target down to a child of a stored block, or to the floor.
    pub(super) fn download(mut self) -> Result<Path, Interrupt> {
        self.context
            .report(|progress, now_ms| progress.enter(SyncState::Headers, now_ms));
        loop {
            // Headers down to a pivot stay of use when the head moves on.
            if self.floor.is_none() {
                self.context.expect_target(&self.target.hash)?;
            }
            let path = self
                .skeleton
                .path(self.target)?
                .expect("it was added, and runs of the present target are not removed");
            if self.floor.is_none()
                && let Some(stored) = self.stored_on(&path)?
            {
                self.skeleton.remove_stored(&path, stored)?;
                continue;
            }
            let is_low = self.floor.is_some_and(|floor| path.low <= floor);
            if is_low || self.context.chain.number_of(&path.parent)?.is_some() {
                return Ok(path);
            }
            let Some(top) = path.low.checked_sub(1) else {
                let hash = self.target.hash;
                return Err(Failure::OtherChain { hash }.into());
            };
            let count = self.count(&path, top)?;
            let window = HeaderWindow::new(top, path.parent, count, self.approach);
            self.window(path.run, top, window)?;
        }
    }

    /// The highest block of a path below the target that is in the chain. Headers of blocks that were stored are still here after a crash,
    /// and those of a state that was downloaded may reach below the first block that the chain has.
    fn stored_on(&self, path: &Path) -> Result<Option<BlockId>, Interrupt> {
        let chain = self.context.chain;
        let stored = |number: u64| -> Result<Option<BlockId>, Interrupt> {
            let Some(hash) = chain.canonical_hash(number)? else {
                return Ok(None);
            };
            let header = self.skeleton.path_header(path, number)?;
            let is_same = header.is_some_and(|header| header.hash == hash);
            Ok(is_same.then_some(BlockId { number, hash }))
        };
        let mut low = path.low.max(chain.first_block()?);
        let mut end = self
            .target
            .number
            .min(chain.head().id.number.saturating_add(1));
        let mut highest = None;
        // Above the block where the path leaves the chain all are others.
        while low < end {
            let middle = low + (end - low) / 2;
            match stored(middle)? {
                Some(block) => (highest, low) = (Some(block), middle.saturating_add(1)),
                None => end = middle,
            }
        }
        Ok(highest)
    }

    /// How many headers to ask for below the path.
    fn count(&mut self, path: &Path, top: u64) -> Result<u32, Interrupt> {
        let head = self.context.chain.head().id.number;
        let floor = self.skeleton.head_below(top.saturating_add(1));
        let floor = floor.map_or(head, |floor| floor.max(head));
        let is_fork = top <= floor || self.skeleton.is_covered(top, path.run);
        let mut count = match is_fork {
            false => top - floor,
            true => {
                self.steps = self.steps.saturating_add(1);
                FIRST_STEP << (self.steps - 1).min(6)
            }
        };
        if let Some(floor) = self.floor {
            count = count.min(path.low.saturating_sub(floor));
        }
        if let Some(most) = self.most {
            let left = most.saturating_sub(path.count());
            if left == 0 {
                return Err(Failure::TooLong { headers: most }.into());
            }
            count = count.min(left);
        }
        Ok(u32::try_from(count.min(MAX_WINDOW)).unwrap_or(u32::MAX))
    }

    /// Downloads the window below a run, as far as peers give it, or until it meets a stored block or another run.
    fn window(&mut self, run: u32, top: u64, mut window: HeaderWindow) -> Result<(), Interrupt> {
        let need = match self.approach {
            Approach::Numbers => self.context.need(top),
            Approach::Hash => self.context.need_of_one(Some(top)),
        };
        let context = self.context;
        let check = || context.tick();
        let given_up = context.ask_window(&mut window, need, &check, &mut |window| {
            self.check_stall()?;
            let is_met = self.keep(run, window.take_linked())?;
            let open = u64::from(window.items()).saturating_sub(window.linked() as u64);
            context.report(|progress, _| progress.update(|status| status.open_items = open));
            Ok(is_met)
        })?;
        let is_progress = window.linked() > 0;
        match (is_progress, self.approach) {
            (false, Approach::Hash) => Err(Failure::NoHeaders {
                number: top,
                reasons: reasons(&given_up),
            }
            .into()),
            // The peers may be on other branches, where this number is another block.
            (false, Approach::Numbers) => {
                self.approach = Approach::Hash;
                Ok(())
            }
            (true, _) => {
                self.choose_approach(&window);
                Ok(())
            }
        }
    }

    fn choose_approach(&mut self, window: &HeaderWindow) {
        self.unlinked += u32::from(window.has_unlinked());
        self.approach = match window.has_unlinked() || self.unlinked >= MAX_UNLINKED {
            true => Approach::Hash,
            false => Approach::Numbers,
        };
    }

    /// Keeps linked headers. Returns whether the lowest one is a child of a stored block, or of one in another run; those below it
    /// are dropped then.
    fn keep(&mut self, run: u32, mut headers: Vec<SealedHeader>) -> Result<bool, Interrupt> {
        let head = self.context.chain.head().id.number;
        let mut end = None;
        for (index, header) in headers.iter().enumerate() {
            let Some(below) = header.header.number.checked_sub(1) else {
                break;
            };
            let parent = &header.header.parent_hash;
            let is_stored = below <= head && self.context.chain.number_of(parent)?.is_some();
            let is_joined =
                self.skeleton.is_covered(below, run) && self.skeleton.has(below, parent)?;
            if is_stored || is_joined {
                end = Some(index + 1);
                break;
            }
        }
        headers.truncate(end.unwrap_or(headers.len()));
        let Some(lowest) = headers.last().map(|header| header.header.number) else {
            return Ok(false);
        };
        let count = headers.len() as u64;
        self.skeleton.extend(run, headers)?;
        self.progress_ms = self.context.now_ms();
        self.context.report(|progress, _| {
            progress.update(|status| {
                status.headers += count;
                status.all_headers += count;
                status.lowest_header = Some(lowest);
            });
        });
        Ok(end.is_some())
    }

    fn check_stall(&self) -> Result<(), Interrupt> {
        match self.context.now_ms().saturating_sub(self.progress_ms) >= STALL_MS {
            true => Err(Failure::Stalled.into()),
            false => Ok(()),
        }
    }
}
