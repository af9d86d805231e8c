//! Executes proposals, builds blocks, imports finished ones; says what holds for the block after a new head.
//!
//! Each block is executed once: what came of a proposal is kept until it is finished or the height is over.

use super::ahead::Ahead;
use super::block_size::BlockSize;
use super::metrics::{self, Executed};
use super::{Input, Options, Status, ValidatorHost, lock, next_head, now_ms};
use crate::PendingVotes;
use crate::machine::{Candidate, Event, Head, Verdict};
use crate::wire::View;
use niwaki_chain::{BlockTemplate, Chain, ImportError, JudgedBlock, StoredHeader};
use niwaki_primitives::{Address, Block, Bytes, Header};
use niwaki_rules::{BftExtra, ValidatorSource, Vote};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// Blocks of a height that have been executed.
const MAX_JUDGED: usize = 8;
/// A block may be this far ahead of the clock.
const MAX_AHEAD_MS: u64 = 1_000;
/// How long the thread sleeps without work.
const IDLE: Duration = Duration::from_secs(60);

pub(super) enum Job {
    Judge(Arc<Candidate>),
    Build {
        view: View,
        timestamp: u64,
    },
    Finish {
        candidate: Arc<Candidate>,
        header: Box<Header>,
    },
    /// The chain has a new head.
    Head(Box<StoredHeader>),
    Stop,
}

pub(super) struct Blocks {
    pub(super) chain: Arc<Chain>,
    pub(super) own: Address,
    pub(super) options: Options,
    pub(super) votes: Arc<PendingVotes>,
    pub(super) head: Head,
    /// The latest last.
    pub(super) judged: Vec<JudgedBlock>,
    /// Blocks of the future, with the time from which on they may be judged.
    pub(super) deferred: Vec<(u64, Arc<Candidate>)>,
    pub(super) ahead: Ahead,
    pub(super) size: BlockSize,
    pub(super) events: Sender<Input>,
    pub(super) host: Arc<dyn ValidatorHost>,
    pub(super) status: Arc<Mutex<Status>>,
}

impl Blocks {
    /// The thread's loop.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            self.judge_deferred();
            let next = self.deferred.iter().map(|(at_ms, _)| *at_ms).min();
            let wait = next.map_or(IDLE, |at_ms| {
                Duration::from_millis(at_ms.saturating_sub(now_ms()))
            });
            let job = match self.ahead.take_job() {
                Some(job) => Ok(job),
                None => jobs.recv_timeout(wait),
            };
            match job {
                Ok(Job::Judge(candidate)) => self.judge_in_time(candidate),
                Ok(Job::Build { view, timestamp }) => self.build(view, timestamp),
                Ok(Job::Finish { candidate, header }) => self.finish(&candidate, *header),
                Ok(Job::Head(stored)) => {
                    self.follow(&stored);
                    self.build_ahead(jobs);
                }
                Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn say(&self, event: Event) {
        // After a stop there is no receiver.
        let _ = self.events.send(Input::Event(event));
    }

    /// A block whose time has not come yet waits.
    fn judge_in_time(&mut self, candidate: Arc<Candidate>) {
        let timestamp_ms = candidate.block.header.timestamp.saturating_mul(1_000);
        let from_ms = timestamp_ms.saturating_sub(MAX_AHEAD_MS);
        match from_ms > now_ms() {
            true => self.deferred.push((from_ms, candidate)),
            false => self.judge(&candidate),
        }
    }

    fn judge_deferred(&mut self) {
        let now_ms = now_ms();
        let is_due = |(from_ms, _): &mut (u64, Arc<Candidate>)| *from_ms <= now_ms;
        let due: Vec<_> = self.deferred.extract_if(.., is_due).collect();
        due.iter().for_each(|(_, candidate)| self.judge(candidate));
    }

    fn judge(&mut self, candidate: &Candidate) {
        let (hash, came) = (candidate.hash, Instant::now());
        let verdict = match self.judged.iter().any(|judged| judged.id().hash == hash) {
            true => Verdict::Valid,
            false => self.execute(candidate),
        };
        // An invalid one may claim any gas.
        if verdict == Verdict::Valid {
            let gas_used = candidate.block.header.gas_used;
            self.size.note_proposed(hash, gas_used, came);
        }
        self.say(Event::Judged { hash, verdict });
    }

    fn execute(&mut self, candidate: &Candidate) -> Verdict {
        let block = &candidate.block;
        if !self.host.may_vote(block) {
            let number = block.header.number;
            warn!(number, hash = %candidate.hash, "No vote for a proposed block: it has a transaction that the contract does not allow");
            return Verdict::Invalid;
        }
        let senders = self.host.senders(block);
        let began = Instant::now();
        let judged = self.chain.judge(Block::clone(block), senders);
        self.count(Executed::Judged, began);
        match judged {
            Ok(judged) => {
                self.keep(judged);
                Verdict::Valid
            }
            Err(reason @ ImportError::Invalid { .. }) => {
                warn!(%reason, "No vote for a proposed block");
                Verdict::Invalid
            }
            Err(reason) => {
                error!(%reason, "Could not execute a proposed block");
                Verdict::Fault
            }
        }
    }

    /// A block was executed.
    pub(super) fn count(&self, why: Executed, began: Instant) {
        metrics::executed(why, began.elapsed());
        lock(&self.status).executions += 1;
    }

    fn keep(&mut self, judged: JudgedBlock) {
        if self.judged.len() >= MAX_JUDGED {
            self.judged.remove(0);
        }
        self.judged.push(judged);
    }

    fn build(&mut self, view: View, timestamp: u64) {
        let built = match self.head.number.checked_add(1) == Some(view.height) {
            true => match self.ahead.take_block(&self.head.hash, timestamp) {
                Some(built) => Ok(built),
                None => {
                    let began = Instant::now();
                    let built = self.host.build(self.template(timestamp, view.round));
                    if built.is_ok() {
                        self.count(Executed::Built, began);
                    }
                    built
                }
            },
            // The head has moved since.
            false => return self.say(Event::Built { view, built: None }),
        };
        let built = match built {
            Ok((built, judged)) => {
                let gas_used = built.block.header.gas_used;
                self.size
                    .note_proposed(judged.id().hash, gas_used, Instant::now());
                self.keep(judged);
                Some((Arc::new(built.block), built.block_access_list))
            }
            Err(reason) => {
                error!(%reason, "Could not build a block");
                None
            }
        };
        self.say(Event::Built { view, built });
    }

    /// What the block of a round is built from.
    pub(super) fn template(&self, timestamp: u64, round: u32) -> BlockTemplate {
        let head = &self.head;
        let validators = match head.rules.source {
            ValidatorSource::Headers => head.validators.as_slice().to_vec(),
            ValidatorSource::Contract(_) => Vec::new(),
        };
        let extra = BftExtra {
            vanity: Bytes::copy_from_slice(self.options.vanity.as_slice()),
            validators,
            vote: self.vote(),
            ..BftExtra::default()
        };
        BlockTemplate {
            parent: head.hash,
            coinbase: self.own,
            timestamp,
            extra_data: extra.encode(head.rules.protocol),
            target_gas_limit: self.options.target_gas_limit,
            max_gas: self.size.max_gas(round),
            ..BlockTemplate::default()
        }
    }

    /// A block without a vote is better than none.
    fn vote(&self) -> Option<Vote> {
        let parent = self.chain.header(&self.head.hash);
        let vote = parent.and_then(|parent| match parent {
            Some(parent) => self.votes.next(&self.chain, &parent, &self.own),
            None => Ok(None),
        });
        vote.unwrap_or_else(|fault| {
            error!(%fault, "Could not read the votes of the chain");
            None
        })
    }

    /// A quorum has committed a block: it is imported, and durable before anything is signed at the next height.
    fn finish(&mut self, candidate: &Candidate, header: Header) {
        let hash = candidate.hash;
        let place = self
            .judged
            .iter()
            .position(|judged| judged.id().hash == hash);
        let imported = match place {
            Some(place) => {
                let judged = self.judged.remove(place);
                self.chain.commit_judged(judged, header.clone())
            }
            None => {
                let began = Instant::now();
                let imported = self.chain.import(Block {
                    header: header.clone(),
                    body: candidate.block.body.clone(),
                });
                self.count(Executed::Imported, began);
                imported
            }
        };
        match imported {
            Ok(imported) => self.host.imported(&header, &imported),
            Err(reason) => {
                error!(%reason, "A block that a quorum has committed was not imported");
                return;
            }
        }
        if let Err(fault) = self.chain.sync() {
            error!(%fault, "A block of the validators is not on the disk yet");
        }
    }

    fn follow(&mut self, stored: &StoredHeader) {
        // A newer one comes after it.
        if self.chain.head().id != stored.id {
            return;
        }
        let timeout = Duration::from_secs(self.head.rules.request_timeout_s);
        self.size
            .note_sealed(&stored.id.hash, &stored.header, timeout, Instant::now());
        match next_head(&self.chain, stored) {
            Ok(Some(head)) => {
                self.head = head.clone();
                self.judged.clear();
                self.deferred.clear();
                self.say(Event::Head(Box::new(head)));
            }
            Ok(None) => error!("No validators agree on the blocks that follow"),
            Err(reason) => error!(%reason, "The validators of the next block can't be read"),
        }
    }
}
