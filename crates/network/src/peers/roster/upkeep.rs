//! What happens every second: peers go whose score asks for it, one is exchanged now and then, nodes are dialled, the file is saved.

use super::{Action, ConnId, End, Notice, Refusal, Roster, Session, Stage};
use crate::key::NodeId;
use crate::peers::dial::Source;
use crate::peers::score::CUT_SCORE;
use crate::rlpx::DisconnectReason;
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::VecDeque;

/// With so few peers none goes that did not lie.
const FLOOR: usize = 8;
/// Cuts within this time count together.
const BURST_MS: u64 = 10_000;
/// At most this share of the peers is cut within that time.
const BURST_PERCENT: usize = 20;
/// So many are cut in any case.
const BURST_MIN: usize = 2;
/// When full, one peer is exchanged after a random time of this range.
const CHURN_MS: std::ops::RangeInclusive<u64> = 180_000..=420_000;
/// Only peers of at least this age are exchanged.
const CHURN_AGE_MS: u64 = 600_000;
/// The best peers are not exchanged: one in so many, by mined transactions and by bytes.
const CHURN_BEST: usize = 10;
/// The file of saved peers is written so often.
const SAVE_MS: u64 = 300_000;
/// The operator hears so often of few peers.
const FEW_PEERS_MS: u64 = 60_000;
/// A handshake, Hello or Status takes less than this, or its task is lost.
const PENDING_MS: u64 = 30_000;

/// When things are due.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    cuts: VecDeque<u64>,
    is_burst_noted: bool,
    churn_ms: u64,
    is_inbound_next: bool,
    save_ms: u64,
    few_peers_ms: u64,
}

impl Upkeep {
    pub(super) fn new(rng: &mut SmallRng) -> Self {
        Self {
            churn_ms: rng.random_range(CHURN_MS),
            save_ms: SAVE_MS,
            few_peers_ms: FEW_PEERS_MS,
            ..Self::default()
        }
    }
}

impl Roster {
    pub(super) fn tick(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        self.bans.expire(now_ms);
        self.drop_the_slow(now_ms, actions);
        for id in self.scores.tick(now_ms) {
            let departed = self.departures.iter().rev().find(|gone| gone.id == id);
            let ip = departed.map(|gone| gone.address.ip());
            self.ban_if_due(id, ip, now_ms, actions);
        }
        let sessions: Vec<ConnId> = self.sessions.keys().copied().collect();
        for conn in sessions {
            self.enforce(conn, now_ms, actions);
        }
        self.churn(now_ms, actions);
        self.dial(now_ms, actions);
        if now_ms >= self.upkeep.save_ms {
            self.upkeep.save_ms = now_ms.saturating_add(SAVE_MS);
            self.save_all(now_ms);
            actions.push(Action::Save(self.saved.text()));
        }
        if now_ms >= self.upkeep.few_peers_ms {
            self.upkeep.few_peers_ms = now_ms.saturating_add(FEW_PEERS_MS);
            let (peers, dials) = (self.peer_count(), self.plan.take_figures());
            if peers < FLOOR.min(self.config.max_peers) {
                actions.push(Action::Log(Notice::FewPeers { peers, dials }));
            }
        }
    }

    fn drop_the_slow(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let is_slow = |session: &Session| {
            session.stage != Stage::Up && now_ms.saturating_sub(session.since_ms) > PENDING_MS
        };
        let slow = self.sessions.iter().filter(|(_, s)| is_slow(s));
        let slow: Vec<(ConnId, Stage)> = slow.map(|(conn, s)| (*conn, s.stage)).collect();
        for (conn, stage) in slow {
            match stage {
                Stage::Pending => {
                    self.remove(conn, End::Failed, now_ms, actions);
                    let refusal = Refusal::TooSlow;
                    actions.push(Action::Refuse { conn, refusal });
                }
                _ => self.cut(conn, DisconnectReason::PingTimeout, now_ms, actions),
            }
        }
    }

    /// Cuts a peer whose score asks for it, unless too few would be left or too many go at the same time.
    pub(super) fn enforce(&mut self, conn: ConnId, now_ms: u64, actions: &mut Vec<Action>) {
        let Some(id) = self.sessions.get(&conn).and_then(|session| session.id) else {
            return;
        };
        let is_bad = self.scores.expected(&id, now_ms) <= CUT_SCORE;
        if !is_bad || self.plan.is_named(Source::Trusted, &id) {
            return;
        }
        let is_worst = self.scores.is_worst(&id, now_ms);
        if !is_worst && self.peer_count() <= FLOOR {
            return;
        }
        if !self.may_cut(now_ms, actions) {
            return;
        }
        let reason = match is_worst {
            true => DisconnectReason::ProtocolBreach,
            false => DisconnectReason::UselessPeer,
        };
        self.upkeep.cuts.push_back(now_ms);
        actions.push(Action::Log(Notice::Cut { id, reason }));
        self.cut(conn, reason, now_ms, actions);
    }

    fn may_cut(&mut self, now_ms: u64, actions: &mut Vec<Action>) -> bool {
        let (peers, upkeep) = (self.by_id.len(), &mut self.upkeep);
        while let Some(at_ms) = upkeep.cuts.front()
            && now_ms.saturating_sub(*at_ms) >= BURST_MS
        {
            upkeep.cuts.pop_front();
            upkeep.is_burst_noted = false;
        }
        let cut = upkeep.cuts.len();
        let before = peers + cut;
        let may_cut = cut < BURST_MIN || (cut + 1) * 100 <= before * BURST_PERCENT;
        if !may_cut && !std::mem::replace(&mut upkeep.is_burst_noted, true) {
            actions.push(Action::Log(Notice::CutsStopped { cut, peers }));
        }
        may_cut
    }

    /// When full, exchanges one peer, of those that connected and of those that were dialled in turn.
    fn churn(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if now_ms < self.upkeep.churn_ms {
            return;
        }
        self.upkeep.churn_ms = now_ms.saturating_add(self.rng.random_range(CHURN_MS));
        if self.peer_count() <= FLOOR {
            return;
        }
        let first = self.upkeep.is_inbound_next;
        for is_inbound in [first, !first] {
            let exchangeable = self.exchangeable(is_inbound, now_ms);
            if exchangeable.is_empty() {
                continue;
            }
            let index = self.rng.random_range(0..exchangeable.len());
            if let Some(conn) = exchangeable.get(index) {
                self.cut(*conn, DisconnectReason::TooManyPeers, now_ms, actions);
            }
            self.upkeep.is_inbound_next = !is_inbound;
            return;
        }
    }

    /// The peers of a direction that may be exchanged; none if it has free slots.
    fn exchangeable(&self, is_inbound: bool, now_ms: u64) -> Vec<ConnId> {
        let slots = self.slots();
        let is_full = match is_inbound {
            true => slots.inbound > 0 && slots.inbound >= self.max_inbound(),
            false => slots.ours > 0 && self.free_to_dial() <= self.reserved(),
        };
        if !is_full {
            return Vec::new();
        }
        let up = || {
            let all = self.sessions.iter();
            all.filter(|(_, session)| session.stage == Stage::Up)
        };
        let snap_servers = up().filter(|(_, session)| session.offers.snap).count();
        let mined = least_of_the_best(up().map(|(_, s)| s.mined).collect());
        let delivered = least_of_the_best(up().map(|(_, s)| s.delivered).collect());
        let may_go = |id: &NodeId, session: &Session| {
            now_ms.saturating_sub(session.since_ms) >= CHURN_AGE_MS
                && !self.is_operators(id)
                && (session.mined == 0 || session.mined < mined)
                && (session.delivered == 0 || session.delivered < delivered)
                && (!session.offers.snap || snap_servers > 1)
        };
        let of_direction = up().filter(|(_, session)| session.is_inbound() == is_inbound);
        of_direction
            .filter(|(_, session)| session.id.is_some_and(|id| may_go(&id, session)))
            .map(|(conn, _)| *conn)
            .collect()
    }

    /// Notes all peers for the file.
    pub(super) fn save_all(&mut self, now_ms: u64) {
        let up = self.sessions.iter();
        let up = up.filter(|(_, session)| session.stage == Stage::Up);
        let up: Vec<(ConnId, Session)> = up.map(|(conn, session)| (*conn, *session)).collect();
        for (conn, session) in up {
            let Some(id) = session.id else { continue };
            let saved_ms = self.save(&session, id, now_ms);
            if let Some(session) = self.sessions.get_mut(&conn) {
                session.saved_ms = saved_ms.unwrap_or(session.saved_ms);
            }
        }
    }
}

/// The lowest of the best tenth of these figures.
fn least_of_the_best(mut figures: Vec<u64>) -> u64 {
    figures.sort_unstable_by(|a, b| b.cmp(a));
    let best = figures.len().div_ceil(CHURN_BEST);
    let least = best.checked_sub(1).and_then(|index| figures.get(index));
    least.copied().unwrap_or_default()
}
