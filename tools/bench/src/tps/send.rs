//! The threads that send. Each has some of the accounts, whose transactions go in order over its own connection.

use super::client::Client;
use super::work::Work;
use eyre::Result;
use niwaki_primitives::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often what is due is sent.
const TICK: Duration = Duration::from_millis(20);
/// Most transactions of a batch.
const MAX_BATCH: usize = 500;
/// In a closed loop, how long a connection waits before it sends again what was refused.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Not sent, or not included.
const NEVER: u32 = u32::MAX;

/// What became of each transaction. Times are ms since the start.
#[derive(Debug)]
pub(super) struct Sent {
    sent_ms: Vec<AtomicU32>,
    included_ms: Vec<AtomicU32>,
    is_refused: Vec<AtomicBool>,
    acknowledged: AtomicU64,
    latest_ms: AtomicU64,
    refused: Mutex<BTreeMap<String, u64>>,
    has_ended: AtomicBool,
}

impl Sent {
    pub(super) fn new(count: usize) -> Self {
        let never = || (0..count).map(|_| AtomicU32::new(NEVER)).collect();
        Self {
            sent_ms: never(),
            included_ms: never(),
            is_refused: (0..count).map(|_| AtomicBool::new(false)).collect(),
            acknowledged: AtomicU64::new(0),
            latest_ms: AtomicU64::new(0),
            refused: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Everything was sent, or it was given up.
    pub(super) fn end(&self, result: Result<()>) {
        if let Err(error) = result {
            self.refuse(&format!("{error:#}"));
        }
        self.has_ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// The most by which the sending was behind the rate.
    pub(super) fn latest_ms(&self) -> u64 {
        self.latest_ms.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> BTreeMap<String, u64> {
        self.refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn include(&self, index: usize, at_ms: u64) {
        self.included_ms[index].store(ms(at_ms), Ordering::Relaxed);
    }

    fn refuse(&self, reason: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *refused.entry(reason.to_owned()).or_default() += 1;
    }

    /// How many were acknowledged and not included, and come after one of the same account that was refused: no block can have them. Each
    /// account has every `accounts`-th transaction.
    pub(super) fn behind_refused(&self, accounts: usize) -> u64 {
        let mut behind = 0;
        for account in 0..accounts {
            let own = (account..self.is_refused.len()).step_by(accounts);
            let from_refused =
                own.skip_while(|index| !self.is_refused[*index].load(Ordering::Relaxed));
            let is_stuck = |index: &usize| {
                let was_sent = self.sent_ms[*index].load(Ordering::Relaxed) != NEVER;
                let is_included = self.included_ms[*index].load(Ordering::Relaxed) != NEVER;
                was_sent && !is_included && !self.is_refused[*index].load(Ordering::Relaxed)
            };
            behind += from_refused.filter(is_stuck).count() as u64;
        }
        behind
    }

    /// From sending to the block, ms, of the transactions that were sent in this time.
    pub(super) fn latencies(&self, from_ms: u64, to_ms: u64) -> Vec<f64> {
        let times = self.sent_ms.iter().zip(&self.included_ms);
        let times =
            times.map(|(sent, included)| [sent, included].map(|time| time.load(Ordering::Relaxed)));
        let counted = times.filter(|[sent, included]| {
            *included != NEVER && (from_ms..=to_ms).contains(&u64::from(*sent))
        });
        counted
            .map(|[sent, included]| f64::from(included.saturating_sub(sent)))
            .collect()
    }
}

fn ms(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(NEVER - 1)
}

/// When a transaction is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// So many a second, however long the nodes take to answer.
    Rate(u64),
    /// When the connection's last one was acknowledged, for so long.
    ClosedLoop(Duration),
}

/// Sends all, or what a closed loop sends in its time.
///
/// # Errors
/// If a connection fails.
pub(super) fn run(
    clients: &[Client],
    connections: usize,
    work: &Work,
    pace: Pace,
    sent: &Sent,
) -> Result<()> {
    let lanes = clients.len() * connections;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let start = |number: usize| {
            let lane = Lane {
                client: clients[number % clients.len()].with_new_connections(),
                number,
                lanes,
                work,
                sent,
            };
            scope.spawn(move || match pace {
                Pace::Rate(rate) => lane.run_at(rate, began),
                Pace::ClosedLoop(time) => lane.run_closed(time, began),
            })
        };
        let threads: Vec<_> = (0..lanes).map(start).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })
}

struct Lane<'w> {
    client: Client,
    number: usize,
    lanes: usize,
    work: &'w Work,
    sent: &'w Sent,
}

impl Lane<'_> {
    /// Its accounts' transactions, in their order.
    fn own(&self) -> impl Iterator<Item = usize> {
        let (accounts, lanes, number) = (self.work.accounts, self.lanes, self.number);
        let all = 0..self.work.transactions.len();
        all.filter(move |index| index % accounts % lanes == number)
    }

    fn run_at(&self, rate: u64, began: Instant) -> Result<()> {
        let due_ms = |index: usize| (index as u64).saturating_mul(1_000) / rate;
        let mut own = self.own().peekable();
        let mut batch = Vec::new();
        while let Some(next) = own.peek() {
            let now_ms = elapsed_ms(began);
            let first_ms = due_ms(*next);
            if first_ms > now_ms {
                let wait = Duration::from_millis(first_ms - now_ms).max(TICK);
                std::thread::sleep(wait);
                continue;
            }
            self.sent
                .latest_ms
                .fetch_max(now_ms - first_ms, Ordering::Relaxed);
            while batch.len() < MAX_BATCH
                && let Some(index) = own.next_if(|index| due_ms(*index) <= now_ms)
            {
                batch.push(index);
            }
            self.send(&batch, now_ms)?;
            batch.clear();
        }
        Ok(())
    }

    fn run_closed(&self, time: Duration, began: Instant) -> Result<()> {
        for index in self.own() {
            while began.elapsed() < time && self.send(&[index], elapsed_ms(began))? > 0 {
                std::thread::sleep(RETRY_AFTER);
            }
            if began.elapsed() >= time {
                break;
            }
        }
        Ok(())
    }

    /// Sends in one batch. Returns how many were refused.
    fn send(&self, batch: &[usize], now_ms: u64) -> Result<usize> {
        for index in batch {
            self.sent.sent_ms[*index].store(ms(now_ms), Ordering::Relaxed);
        }
        let raw: Vec<&Bytes> = batch
            .iter()
            .map(|index| &self.work.transactions[*index].raw)
            .collect();
        let mut refused = 0;
        for (index, error) in batch.iter().zip(self.client.send(&raw)?) {
            let is_refused = error.is_some();
            self.sent.is_refused[*index].store(is_refused, Ordering::Relaxed);
            match error {
                Some(reason) => {
                    refused += 1;
                    self.sent.refuse(&reason);
                }
                None => _ = self.sent.acknowledged.fetch_add(1, Ordering::Relaxed),
            }
        }
        Ok(refused)
    }
}

pub(super) fn elapsed_ms(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}
