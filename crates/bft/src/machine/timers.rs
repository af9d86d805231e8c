//! How long a round lasts, and when a block is due.
//!
//! | timer | runs out |
//! |---|---|
//! | start | 10 s after the start: then it begins without a quorum of connected validators |
//! | block | a period after the parent's timestamp; below a second, a period after the last time it ran out |
//! | round | after the timeout, doubled with each round up to a bound |
//! | resend | after the timeout, 5 s at most, until a quorum is in this round |
//!
//! The timer of a round after the first one starts when a quorum is there, as in PBFT: so rounds do not run away while too few validators are
//! up, and those that come back meet the others within one timeout. If the proposer of round 0 is not there, as its connection says and
//! its silence for two heights, round 0 is given up after four times the time that proposals usually take.

use super::{Action, Machine, Phase, Timer, TimerKind, Turn};
use crate::wire::KeyError;

/// How long validators are waited for after a start.
const START_MS: u64 = 10_000;
/// The longest time between two sendings of a round change.
const MAX_RESEND_MS: u64 = 5_000;
/// The shortest timeout of a round whose proposer is absent.
const MIN_ABSENT_TIMEOUT_MS: u64 = 250;
/// A validator that is not connected counts as absent after so many heights of silence.
const ABSENT_HEIGHTS: u64 = 2;

/// What is known of times.
#[derive(Debug, Default)]
pub(super) struct Pace {
    has_started: bool,
    start_at_ms: Option<u64>,
    /// When the block timer is to run out, or did.
    block_at_ms: Option<u64>,
    /// How long the proposals of others take after the block timer: a moving mean.
    proposal_delay_ms: Option<u64>,
}

impl Pace {
    /// Whether validators are waited for.
    pub(super) fn is_waiting(&self) -> bool {
        !self.has_started && self.start_at_ms.is_some()
    }

    /// Another validator's proposal of round 0 has come.
    pub(super) fn saw_proposal(&mut self, now_ms: u64) {
        let Some(due) = self.block_at_ms else {
            return;
        };
        let delay = now_ms.saturating_sub(due);
        let mean = self
            .proposal_delay_ms
            .map_or(delay, |mean| (7 * mean + delay) / 8);
        self.proposal_delay_ms = Some(mean);
    }
}

impl Machine {
    /// Whether too few validators are connected to begin, shortly after a start.
    pub(super) fn waits_for_others(&mut self, turn: &mut Turn<'_>) -> bool {
        if self.pace.has_started {
            return false;
        }
        let validators = &self.height.head.validators;
        let connected = validators.as_slice().iter();
        let connected = connected.filter(|one| self.connected.contains(*one));
        let is_quorum = connected.count().saturating_add(1) >= validators.quorum();
        let start_at_ms = self.pace.start_at_ms;
        if is_quorum || start_at_ms.is_some_and(|at| at <= turn.now_ms) {
            self.pace.has_started = true;
            return false;
        }
        if start_at_ms.is_none() {
            let at_ms = turn.now_ms.saturating_add(START_MS);
            self.pace.start_at_ms = Some(at_ms);
            self.set(turn, TimerKind::Start, at_ms);
        }
        true
    }

    pub(super) fn set(&self, turn: &mut Turn<'_>, kind: TimerKind, at_ms: u64) {
        let view = self.height.view();
        let timer = Timer { kind, view };
        turn.act(Action::Set { timer, at_ms });
    }

    /// A new height: the next block is not due yet.
    pub(super) fn await_block_time(&mut self, turn: &mut Turn<'_>) {
        self.height.phase = Phase::Waiting;
        let (head, now_ms) = (&self.height.head, turn.now_ms);
        let due_ms = match head.rules.period_ms {
            Some(period_ms) => self
                .pace
                .block_at_ms
                .map_or(now_ms, |last| last.saturating_add(period_ms)),
            None => to_ms(head.timestamp.saturating_add(head.rules.period_s)),
        };
        let at_ms = due_ms.max(now_ms);
        self.pace.block_at_ms = Some(at_ms);
        self.set(turn, TimerKind::Block, at_ms);
    }

    pub(super) fn on_timer(&mut self, turn: &mut Turn<'_>, timer: Timer) -> Result<(), KeyError> {
        let phase = self.height.phase;
        if timer.kind == TimerKind::Start {
            return match self.pace.is_waiting() {
                true => self.begin(turn),
                false => Ok(()),
            };
        }
        if timer.view != self.height.view() || phase == Phase::Idle {
            return Ok(());
        }
        let (round, is_timed) = (timer.view.round, self.height.round.is_timed);
        match timer.kind {
            TimerKind::Block if phase == Phase::Waiting => self.on_block_time(turn),
            TimerKind::Round if is_timed => self.enter(turn, round.saturating_add(1)),
            TimerKind::Resend if !is_timed && round > 0 => self.on_resend_time(turn),
            _ => Ok(()),
        }
    }

    /// What was said or asked may have been lost: both once more.
    fn on_resend_time(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        self.height.round.asked_to = 0;
        self.look_ahead(turn);
        self.send_round_change(turn)
    }

    /// The next block is due, unless it would be empty and may wait.
    fn on_block_time(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        let head = &self.height.head;
        let empty_at_ms = to_ms(head.timestamp.saturating_add(head.rules.empty_period_s));
        let may_wait = head.rules.empty_period_s > 0 && turn.now_ms < empty_at_ms;
        if may_wait && !self.has_work {
            self.height.is_empty_wait = true;
            self.set(turn, TimerKind::Block, empty_at_ms);
            return Ok(());
        }
        self.start_round(turn)
    }

    /// Round 0 begins.
    pub(super) fn start_round(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        if std::mem::take(&mut self.height.is_empty_wait) {
            self.pace.block_at_ms = Some(turn.now_ms);
        }
        self.height.phase = Phase::AwaitProposal;
        self.start_round_timer(turn);
        self.propose_if_due(turn)
    }

    pub(super) fn start_round_timer(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::replace(&mut self.height.round.is_timed, true) {
            let at_ms = turn.now_ms.saturating_add(self.round_timeout_ms());
            self.set(turn, TimerKind::Round, at_ms);
        }
    }

    /// The round change is sent again unless the round's timer runs by then.
    pub(super) fn set_resend(&self, turn: &mut Turn<'_>) {
        let after_ms = self.base_timeout_ms().min(MAX_RESEND_MS);
        let at_ms = turn.now_ms.saturating_add(after_ms);
        self.set(turn, TimerKind::Resend, at_ms);
    }

    fn base_timeout_ms(&self) -> u64 {
        to_ms(self.height.head.rules.request_timeout_s)
    }

    fn round_timeout_ms(&self) -> u64 {
        let (base, round) = (self.base_timeout_ms(), self.height.round.number);
        let longest = self.settings.max_round_timeout_ms.max(base);
        let doubled = base.saturating_mul(1 << round.min(32)).min(longest);
        match self.pace.proposal_delay_ms {
            Some(delay) if round == 0 && self.is_proposer_absent() => delay
                .saturating_mul(4)
                .max(MIN_ABSENT_TIMEOUT_MS)
                .min(doubled),
            _ => doubled,
        }
    }

    fn is_proposer_absent(&self) -> bool {
        let height = self.height.view().height;
        let proposer = self.height.proposer(self.height.round.number);
        proposer.is_some_and(|proposer| {
            let last = self.heard.get(&proposer).copied().unwrap_or_default();
            let is_silent = last.saturating_add(ABSENT_HEIGHTS) <= height;
            proposer != self.own() && !self.connected.contains(&proposer) && is_silent
        })
    }
}

fn to_ms(seconds: u64) -> u64 {
    seconds.saturating_mul(1_000)
}
