//! A block that is filled before it is due: while the others wait for the block time, its proposer executes what its pool gets. At the block
//! time the block is there, and what is left is to agree on it.

use super::blocks::{Blocks, Job};
use super::metrics::Executed;
use super::now_ms;
use niwaki_chain::{BuiltBlock, JudgedBlock};
use niwaki_primitives::B256;
use std::cell::RefCell;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;
use tracing::debug;

/// The part of a period that is left for the roots of the block, percent.
const ROOTS_PERCENT: u64 = 10;

/// What the thread of blocks has built ahead, and the job that ended it.
#[derive(Default)]
pub(super) struct Ahead {
    block: Option<(B256, BuiltBlock, JudgedBlock)>,
    job: Option<Job>,
}

impl Ahead {
    /// The block upon this parent with this timestamp.
    pub(super) fn take_block(
        &mut self,
        parent: &B256,
        timestamp: u64,
    ) -> Option<(BuiltBlock, JudgedBlock)> {
        let (upon, built, judged) = self.block.take()?;
        let fits = upon == *parent && built.block.header.timestamp == timestamp;
        fits.then_some((built, judged))
    }

    pub(super) fn take_job(&mut self) -> Option<Job> {
        self.job.take()
    }
}

impl Blocks {
    /// Builds the next block if this validator is to propose it and there is time. The next job ends it.
    pub(super) fn build_ahead(&mut self, jobs: &Receiver<Job>) {
        self.ahead.block = None;
        let Some((timestamp, until_ms)) = self.time_ahead() else {
            return;
        };
        let job = RefCell::new(None);
        let should_end = || {
            if job.borrow().is_some() || now_ms() >= until_ms {
                return true;
            }
            match jobs.try_recv() {
                Ok(next) => {
                    job.replace(Some(next));
                    true
                }
                Err(TryRecvError::Empty) => false,
                Err(TryRecvError::Disconnected) => true,
            }
        };
        let began = Instant::now();
        let built = self
            .host
            .build_ahead(self.template(timestamp, 0), &should_end);
        match built {
            Ok((built, judged)) => {
                self.count(Executed::Built, began);
                self.ahead.block = Some((self.head.hash, built, judged));
            }
            // At the block time it is tried again, and said.
            Err(reason) => debug!(%reason, "No block was built ahead"),
        }
        self.ahead.job = job.into_inner();
    }

    /// The timestamp of the next block, and until when it may be filled, ms; `None` if another one proposes it, or it is due.
    fn time_ahead(&self) -> Option<(u64, u64)> {
        let head = &self.head;
        let is_own = head.validators.proposer(&head.coinbase, 0) == Some(self.own);
        if !is_own || head.rules.period_ms.is_some() {
            return None;
        }
        let timestamp = head.timestamp.checked_add(head.rules.period_s)?;
        let left_ms = head.rules.block_period_ms().saturating_mul(ROOTS_PERCENT) / 100;
        let until_ms = timestamp.checked_mul(1_000)?.checked_sub(left_ms)?;
        (until_ms > now_ms()).then_some((timestamp, until_ms))
    }
}
