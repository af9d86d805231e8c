//! Bodies from the lowest header of a path up to the target, each block imported as soon as all below it are.

use super::{Context, Failure, Interrupt, STALL_MS, header_of, reasons};
use crate::body_queue::{BodyQueue, CheckedBody};
use crate::importer::{ImportEvent, Importer};
use crate::progress::SyncState;
use crate::skeleton::{Path, Skeleton};
use crate::source::{Download, JobEvent};
use niwaki_chain::{BlockId, ImportError};
use niwaki_network::peers::Conduct;
use niwaki_network::router::{Ask, GivenUp, Outcome};
use niwaki_network::wire::{Answer, Request, RequestKind};
use niwaki_primitives::B256;
use niwaki_rules::InvalidBlock;
use niwaki_state::TRIE_LOGS_KEPT;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Most blocks whose bodies are asked for or wait for lower ones.
const MAX_QUEUE: usize = 1_024;
/// Bytes of bodies that wait for lower ones. With those that wait for the import (96 MiB) and answers on the way, 256 MiB.
const MAX_BYTES: usize = 96 << 20;
/// A new job begins when they have at most so many bytes,
const LOW_BYTES: usize = 48 << 20;
/// and is for at least so many blocks, if there are.
const MIN_JOB: usize = 16;
/// Bytes of a body in memory, before any was seen.
const UNKNOWN_BYTES: usize = 128 << 10;
/// Stored headers are removed after so many blocks.
const REMOVE_EACH: u64 = 512;
/// How long the loop waits for one thing before it looks at the others.
const POLL: Duration = Duration::from_millis(10);
/// Most descendants of an invalid block that are named.
const MAX_DESCENDANTS: usize = 256;

/// A download of bodies and their import.
pub(super) struct Blocks<'s, 'c> {
    context: &'s Context<'c>,
    skeleton: &'s mut Skeleton,
    target: BlockId,
    path: Path,
    /// Numbers whose headers are still to be put into the queue.
    ahead: Range<u64>,
    queue: BodyQueue,
    job: Option<Box<dyn Download>>,
    importer: Importer,
    /// The body size that is reckoned with, a moving average.
    body_bytes: usize,
    /// Bodies came in the present job.
    has_come: bool,
    threads: usize,
    last: Option<BlockId>,
    removed: u64,
    progress_ms: u64,
}

impl<'s, 'c> Blocks<'s, 'c> {
    pub(super) fn new(
        context: &'s Context<'c>,
        skeleton: &'s mut Skeleton,
        target: BlockId,
        path: Path,
    ) -> Result<Self, Interrupt> {
        // Blocks whose states are kept are imported each by itself: a batch has none between its blocks.
        let batch_end = target.number.saturating_sub(TRIE_LOGS_KEPT);
        Ok(Self {
            importer: Importer::start(Arc::clone(context.chain), batch_end)?,
            ahead: path.low..target.number.saturating_add(1),
            removed: path.low,
            context,
            skeleton,
            target,
            path,
            queue: BodyQueue::default(),
            job: None,
            body_bytes: UNKNOWN_BYTES,
            has_come: false,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            last: None,
            progress_ms: context.now_ms(),
        })
    }

    /// Returns when the target is imported.
    pub(super) fn import(mut self) -> Result<(), Interrupt> {
        self.context
            .report(|progress, now_ms| progress.enter(SyncState::Blocks, now_ms));
        let ended = self.run();
        // What came before an interruption counts.
        if let Some(last) = self.last {
            self.skeleton.remove_stored(&self.path, last)?;
        }
        ended
    }

    fn run(&mut self) -> Result<(), Interrupt> {
        while !self.ahead.is_empty() || self.queue.len() > 0 {
            self.check()?;
            self.fill()?;
            while self.importer.has_room()
                && let Some((header, body)) = self.queue.pop()
            {
                self.importer.push(header, body);
            }
            self.start_job()?;
            self.wait()?;
        }
        self.job = None;
        self.importer.close();
        loop {
            self.check()?;
            match self.importer.next(POLL) {
                Ok(Some(event)) => self.imported(event)?,
                Ok(None) => {}
                Err(()) => return Ok(()),
            }
        }
    }

    fn check(&mut self) -> Result<(), Interrupt> {
        self.context.tick()?;
        // Blocks below another target are worth having. Without a target, it is invalid, or was given up by the client that named it.
        if self.context.target()?.is_none()
            && self.context.chain.number_of(&self.target.hash)?.is_none()
        {
            return Err(Interrupt::Retargeted);
        }
        while let Ok(Some(event)) = self.importer.next(Duration::ZERO) {
            self.imported(event)?;
        }
        match self.context.now_ms().saturating_sub(self.progress_ms) >= STALL_MS {
            true => Err(Failure::Stalled.into()),
            false => Ok(()),
        }
    }

    /// Puts the next headers into the queue.
    fn fill(&mut self) -> Result<(), Interrupt> {
        while self.queue.len() < MAX_QUEUE
            && let Some(number) = self.ahead.next()
        {
            let header = header_of(self.skeleton, &self.path, number)?;
            self.queue.push(header);
        }
        Ok(())
    }

    fn start_job(&mut self) -> Result<(), Interrupt> {
        if self.job.is_some() || !self.queue.make_room(LOW_BYTES) {
            return Ok(());
        }
        let room = MAX_BYTES.saturating_sub(self.queue.bytes());
        let most = room / self.body_bytes.max(1);
        let hashes: Arc<[B256]> = self.queue.plan(most.clamp(MIN_JOB, MAX_QUEUE)).into();
        let Ok(items @ 1..) = u32::try_from(hashes.len()) else {
            return Ok(());
        };
        let top = self.ahead.start.saturating_sub(1);
        let ask = Ask {
            kind: RequestKind::Bodies,
            items,
            need: self.context.need(top),
        };
        let request = move |items: Range<u32>| {
            let range = items.start as usize..items.end as usize;
            let hashes = hashes.get(range).unwrap_or_default();
            Request::Bodies(hashes.to_vec())
        };
        self.has_come = false;
        self.job = Some(self.context.peers.start(ask, Box::new(request))?);
        Ok(())
    }

    /// Waits for what comes next: an answer, or room in the import.
    fn wait(&mut self) -> Result<(), Interrupt> {
        let event = match &mut self.job {
            Some(job) => job.next(POLL),
            None => {
                if let Ok(Some(event)) = self.importer.next(POLL) {
                    self.imported(event)?;
                }
                return Ok(());
            }
        };
        match event {
            None => Ok(()),
            Some(JobEvent::Answer { id, items, answer }) => {
                let outcome = self.take(&items, answer);
                if let Some(job) = &mut self.job {
                    job.outcome(id, outcome);
                }
                if self.queue.bytes() > MAX_BYTES {
                    // What has not come is asked for again when there is room.
                    self.job = None;
                }
                Ok(())
            }
            Some(JobEvent::Done(given_up)) => {
                self.job = None;
                self.done(&given_up)
            }
        }
    }

    fn take(&mut self, items: &Range<u32>, answer: Answer) -> Outcome {
        let Answer::Bodies(bodies) = answer else {
            return Outcome::Wrong(Conduct::BadMessage);
        };
        let bodies = CheckedBody::of_answer(bodies, self.threads);
        let count = bodies.len();
        let bytes: usize = bodies.iter().map(|body| body.bytes).sum();
        let outcome = self.queue.take(items, bodies);
        if count > 0 && matches!(outcome, Outcome::Items { .. }) {
            self.has_come = true;
            self.body_bytes = (7 * self.body_bytes + bytes / count) / 8;
            let count = count as u64;
            self.context.report(|progress, _| {
                progress.update(|status| status.all_bodies += count);
            });
        }
        outcome
    }

    fn done(&mut self, given_up: &[GivenUp]) -> Result<(), Interrupt> {
        if given_up.is_empty() || self.has_come {
            return Ok(());
        }
        let number = self.ahead.start.saturating_sub(self.queue.len() as u64);
        let reasons = reasons(given_up);
        Err(Failure::NoBodies { number, reasons }.into())
    }

    fn imported(&mut self, event: ImportEvent) -> Result<(), Interrupt> {
        let imported = match event {
            ImportEvent::Imported(imported) => imported,
            ImportEvent::Failed(error) => return Err(self.failed(error)),
        };
        self.progress_ms = self.context.now_ms();
        self.last = Some(imported.id);
        let head = self.context.chain.head().id.number;
        self.context.report(|progress, _| {
            progress.update(|status| {
                status.current_block = head;
                status.imported += 1;
            });
        });
        if imported.id.number.saturating_sub(self.removed) >= REMOVE_EACH {
            self.removed = imported.id.number;
            self.skeleton.remove_stored(&self.path, imported.id)?;
        }
        Ok(())
    }

    /// A block was not imported. If it is invalid, so are all above it: the consensus client has to know.
    fn failed(&mut self, error: ImportError) -> Interrupt {
        let (number, hash, reason) = match error {
            ImportError::Fault(fault) => return fault.into(),
            ImportError::Invalid {
                number,
                hash,
                reason,
            } => (number, hash, reason),
            other => return Failure::NotImported(other.to_string()).into(),
        };
        // The hash of such a block leaves its seals out: another peer may have them.
        if reason.is_of_seals() {
            let reason = reason.to_string();
            return Failure::Seals {
                number,
                hash,
                reason,
            }
            .into();
        }
        match self.reject(number, hash, &reason) {
            Ok(()) => Failure::Invalid {
                number,
                hash,
                reason: reason.to_string(),
            }
            .into(),
            Err(interrupt) => interrupt,
        }
    }

    fn reject(&mut self, number: u64, hash: B256, reason: &InvalidBlock) -> Result<(), Interrupt> {
        let numbers = (number.saturating_add(1)..=self.target.number).rev();
        let mut descendants = Vec::new();
        for number in numbers.take(MAX_DESCENDANTS) {
            descendants.extend(
                self.skeleton
                    .path_header(&self.path, number)?
                    .map(|header| header.hash),
            );
        }
        let parent = self.skeleton.path_header(&self.path, number)?;
        let parent = parent.map_or(self.path.parent, |header| header.header.parent_hash);
        self.context
            .consensus
            .reject_branch(parent, hash, reason, descendants)?;
        Ok(())
    }
}
