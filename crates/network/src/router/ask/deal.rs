//! Deals out the pieces of jobs: which peer gets which, and how much at a time.

use super::{
    Ask, AskAction, JobId, MAX_TRIES, MAX_UNCHECKED, NO_PEER_MS, NO_PROGRESS_MS, Open, Piece,
    RANDOM_ONE_IN, Router, missing,
};
use crate::peers::ConnId;
use crate::wire::RequestKind;
use rand::Rng;
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Which peer gets a piece.
enum Choice {
    Peer(ConnId),
    /// None now, but peers that have it will be free again.
    Wait,
    /// None that is here.
    None,
}

/// A piece for a peer.
struct Order {
    conn: ConnId,
    job: JobId,
    kind: RequestKind,
    piece: Piece,
    /// Of the piece that it repeats.
    number: Option<u64>,
}

impl Router {
    /// Sends what can be sent, the oldest job first. A piece that every peer here has failed with is given up.
    pub(super) fn deal(&mut self, now_ms: u64, actions: &mut Vec<AskAction>) {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in jobs {
            if self.unchecked(id) >= MAX_UNCHECKED {
                continue;
            }
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            let (ask, mut queue) = (job.ask, std::mem::take(&mut job.queue));
            let (mut left, mut has_given_up) = (VecDeque::new(), false);
            while let Some(mut piece) = queue.pop_front() {
                match self.choose(&ask, &piece, now_ms) {
                    Choice::Peer(conn) => {
                        let rest = self.split(ask.kind, &mut piece, conn);
                        rest.into_iter().for_each(|rest| queue.push_front(rest));
                        let order = Order {
                            conn,
                            job: id,
                            kind: ask.kind,
                            piece,
                            number: None,
                        };
                        self.send(order, now_ms, actions);
                    }
                    Choice::None if !piece.tries.is_empty() => {
                        self.give_up(id, &piece);
                        has_given_up = true;
                    }
                    Choice::Wait | Choice::None => left.push_back(piece),
                }
            }
            if let Some(job) = self.jobs.get_mut(&id) {
                job.queue = left;
            }
            if has_given_up {
                self.finish(id, actions);
            }
        }
    }

    fn choose(&mut self, ask: &Ask, piece: &Piece, now_ms: u64) -> Choice {
        let peers = self.peers.iter();
        let has_failed = |conn: &ConnId| piece.tries.iter().any(|one| one.conn == *conn);
        let able = peers.filter(|(conn, peer)| peer.serves(ask, now_ms) && !has_failed(conn));
        let able: Vec<_> = able.collect();
        let free: Vec<_> = able
            .iter()
            .filter(|(_, peer)| peer.is_free(ask.kind))
            .collect();
        if free.is_empty() {
            return match able.is_empty() {
                true => Choice::None,
                false => Choice::Wait,
            };
        }
        let preferred = free
            .iter()
            .find(|(conn, _)| Some(**conn) == ask.need.prefer);
        let random = match self.rng.random_ratio(1, RANDOM_ONE_IN) {
            true => free.get(self.rng.random_range(0..free.len())),
            false => None,
        };
        let best = free.iter().max_by_key(|(_, peer)| {
            let open = Reverse(peer.open.len());
            (peer.free_capacity(ask.kind), open)
        });
        match preferred.or(random).or(best) {
            Some((conn, _)) => Choice::Peer(**conn),
            None => Choice::Wait,
        }
    }

    /// Cuts a piece to what a peer delivers at a time. Returns the rest.
    fn split(&self, kind: RequestKind, piece: &mut Piece, conn: ConnId) -> Option<Piece> {
        let capacity = self.peers.get(&conn)?.rates.capacity(kind);
        let end = piece.items.start.saturating_add(capacity);
        if end >= piece.items.end {
            return None;
        }
        let rest = Piece {
            items: end..piece.items.end,
            tries: piece.tries.clone(),
        };
        piece.items.end = end;
        Some(rest)
    }

    fn send(&mut self, order: Order, now_ms: u64, actions: &mut Vec<AskAction>) {
        let Order {
            conn,
            job,
            kind,
            piece,
            number,
        } = order;
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        self.last_request += 1;
        let request = self.last_request;
        let items = piece.items.clone();
        let open = Open {
            job,
            kind,
            piece,
            number: number.unwrap_or(request),
            sent_ms: now_ms,
            arrived_ms: None,
            deadline_ms: now_ms.saturating_add(peer.rates.timeout_ms(kind)),
        };
        peer.open.insert(request, open);
        actions.push(AskAction::Send {
            conn,
            request,
            job,
            items,
        });
    }

    /// Peers without any work repeat the pieces that have taken half of their time-out, of jobs of which nothing else is left to ask.
    pub(super) fn repeat(&mut self, now_ms: u64, actions: &mut Vec<AskAction>) {
        let all = self.peers.iter();
        let idle: Vec<ConnId> = all
            .filter(|(_, peer)| peer.open.is_empty())
            .map(|(conn, _)| *conn)
            .collect();
        let mut idle = VecDeque::from(idle);
        if idle.is_empty() {
            return;
        }
        for (holder, open) in self.slow_pieces(now_ms) {
            let Some(ask) = self.jobs.get(&open.job).map(|job| job.ask) else {
                continue;
            };
            let may_have_it = |conn: &ConnId| {
                let has_failed = open.piece.tries.iter().any(|one| one.conn == *conn);
                let peer = self.peers.get(conn);
                *conn != holder && !has_failed && peer.is_some_and(|p| p.serves(&ask, now_ms))
            };
            let Some(conn) = idle
                .iter()
                .position(may_have_it)
                .and_then(|at| idle.remove(at))
            else {
                continue;
            };
            let order = Order {
                conn,
                job: open.job,
                kind: open.kind,
                piece: open.piece,
                number: Some(open.number),
            };
            self.send(order, now_ms, actions);
        }
    }

    /// The open pieces that should be repeated, the oldest first, with the peer that has each.
    fn slow_pieces(&self, now_ms: u64) -> Vec<(ConnId, Open)> {
        let all = self.peers.iter();
        let all = all.flat_map(|(conn, peer)| peer.open.values().map(|open| (*conn, open)));
        let is_slow = |open: &Open| {
            let half_ms = open.deadline_ms.saturating_sub(open.sent_ms) / 2;
            open.arrived_ms.is_none() && now_ms >= open.sent_ms.saturating_add(half_ms)
        };
        // Both that have it may fail.
        let may_be_repeated = |open: &Open| open.piece.tries.len() + 2 <= MAX_TRIES;
        let is_last = |open: &Open| {
            let job = self.jobs.get(&open.job);
            job.is_some_and(|job| {
                job.queue.is_empty() && !missing(&job.is_there, &open.piece.items).is_empty()
            })
        };
        let slow = all.filter(|(_, open)| is_slow(open) && may_be_repeated(open) && is_last(open));
        let once = slow.filter(|(_, open)| {
            let all = self.peers.values().flat_map(|peer| peer.open.values());
            all.filter(|other| other.number == open.number).count() == 1
        });
        let mut slow: Vec<(ConnId, Open)> = once.map(|(conn, open)| (conn, open.clone())).collect();
        slow.sort_by_key(|(_, open)| open.sent_ms);
        slow
    }

    /// Ends the jobs without progress for a minute, and those that no peer here can serve.
    pub(super) fn end_the_stuck(&mut self, now_ms: u64, actions: &mut Vec<AskAction>) {
        let mut stuck = Vec::new();
        for (id, job) in &self.jobs {
            let idle_ms = now_ms.saturating_sub(job.progress_ms);
            let serves = || {
                let mut peers = self.peers.values();
                peers.any(|peer| peer.serves(&job.ask, now_ms))
            };
            if idle_ms >= NO_PROGRESS_MS || idle_ms >= NO_PEER_MS && !serves() {
                stuck.push(*id);
            }
        }
        for id in stuck {
            self.give_up_all(id, actions);
        }
    }

    /// Ends a job without what is not there.
    pub(super) fn give_up_all(&mut self, id: JobId, actions: &mut Vec<AskAction>) {
        let open = self.peers.values().flat_map(|peer| peer.open.values());
        let open = open.filter(|open| open.job == id);
        let mut left: Vec<Piece> = open.map(|open| open.piece.clone()).collect();
        if let Some(job) = self.jobs.get_mut(&id) {
            left.extend(std::mem::take(&mut job.queue));
        }
        left.sort_by_key(|piece| piece.items.start);
        left.dedup_by_key(|piece| piece.items.clone());
        for piece in left {
            self.give_up(id, &piece);
        }
        self.end(id, actions);
    }
}
