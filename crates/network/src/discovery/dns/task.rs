//! Lists on a resolver: asks for one name after the other, hands records out, keeps what it learned in a file.
//!
//! While no records are wanted it asks for the roots alone, a few times a day. Records that are remembered come out at 20 a second and
//! not at once: the owner would drop what it has no room for.

use super::{AnswerError, DnsQuery, DnsTree, ListUrl, NextStep, cache};
use crate::discovery::v4::{DiscoveryEvent, FoundNode};
use crate::record::Record;
use crate::subnet::NetRestrict;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

/// A name that has no answer by then has none.
const QUERY_TIMEOUT: Duration = Duration::from_secs(7);

/// Between two records that were found.
const FOUND_PAUSE: Duration = Duration::from_millis(50);

/// The file is written so long after the first entry that it lacks.
const SAVE_PAUSE: Duration = Duration::from_secs(60);

/// The longest wait, which is far above that for a root.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The operator hears of the resolver after so many failures of a list in a row, if no other list was answered meanwhile; and of any
/// trouble again after so long.
const FAILURES_TO_SAY: u32 = 3;
const SAY_AGAIN: Duration = Duration::from_secs(60 * 60);

/// Records that wait to be read.
const MAX_WAITING_EVENTS: usize = 64;

/// What the lists need to begin.
#[derive(Debug)]
pub(crate) struct DnsConfig {
    /// The lists.
    pub(crate) lists: Vec<ListUrl>,
    /// Whether records are looked for.
    pub(crate) is_wanting: watch::Receiver<bool>,
    /// With which networks this node deals.
    pub(crate) net_restrict: NetRestrict,
    /// Whether a node with an address of each family is dialled at that of IPv6.
    pub(crate) prefers_ipv6: bool,
    /// The file of entries; `None` to keep none.
    pub(crate) path: Option<PathBuf>,
}

/// Queries for DNS lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsQueries {
    /// With a useful answer.
    pub answered: u64,
    /// With an answer that was of no use.
    pub refused: u64,
    /// Without an answer.
    pub failed: u64,
}

/// What is counted, for reports: no order with anything else is needed.
#[derive(Debug, Default)]
struct Figures {
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// What the lists have counted.
#[derive(Clone, Debug)]
pub(crate) struct DnsFigures(Arc<Figures>);

impl DnsFigures {
    pub(crate) fn queries(&self) -> DnsQueries {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DnsQueries {
            answered: load(&self.0.answered),
            refused: load(&self.0.refused),
            failed: load(&self.0.failed),
        }
    }
}

/// Lists that are read. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Dns {
    /// What was found.
    pub(crate) events: mpsc::Receiver<DiscoveryEvent>,
    /// What is counted.
    pub(crate) figures: DnsFigures,
    task: JoinHandle<()>,
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts to read lists. `resolve` returns the TXT records of a name, none if there is no such name, or why it could not be resolved.
///
/// # Panics
/// Outside of a tokio runtime.
pub(crate) fn start<R, F>(config: DnsConfig, resolve: R) -> Dns
where
    R: Fn(String) -> F + Send + 'static,
    F: Future<Output = Result<Vec<String>, String>> + Send + 'static,
{
    for list in &config.lists {
        info!(%list, "Nodes are looked for in the DNS list {}", list.domain());
    }
    let mut tree = DnsTree::new(config.lists, SmallRng::from_os_rng());
    if let Some(path) = &config.path {
        match cache::load(path) {
            Ok(lines) => tree.restore(lines),
            Err(error) => warn!(%error, "Starting without saved entries of DNS lists"),
        }
    }
    let figures = Arc::<Figures>::default();
    let (report, events) = mpsc::channel(MAX_WAITING_EVENTS);
    let task = Task {
        tree,
        report,
        is_wanting: config.is_wanting,
        net_restrict: config.net_restrict,
        prefers_ipv6: config.prefers_ipv6,
        path: config.path,
        figures: Arc::clone(&figures),
        started: Instant::now(),
        save_at: None,
        failing: HeldBack::default(),
        is_said_to_fail: false,
        refused: HeldBack::default(),
    };
    Dns {
        events,
        figures: DnsFigures(figures),
        task: tokio::spawn(task.run(resolve)),
    }
}

/// A line for the operator that is not said again for an hour.
#[derive(Debug, Default)]
struct HeldBack {
    said: Option<Instant>,
}

impl HeldBack {
    fn may_say(&mut self) -> bool {
        let may = self.said.is_none_or(|said| said.elapsed() >= SAY_AGAIN);
        if may {
            self.said = Some(Instant::now());
        }
        may
    }
}

struct Task {
    tree: DnsTree,
    report: mpsc::Sender<DiscoveryEvent>,
    is_wanting: watch::Receiver<bool>,
    net_restrict: NetRestrict,
    prefers_ipv6: bool,
    path: Option<PathBuf>,
    figures: Arc<Figures>,
    started: Instant,
    /// When the file is written, if it lacks an entry.
    save_at: Option<Instant>,
    failing: HeldBack,
    /// Whether the operator's last word of it is that it fails.
    is_said_to_fail: bool,
    refused: HeldBack,
}

impl Task {
    /// Runs until its owner is gone.
    async fn run<R, F>(mut self, resolve: R)
    where
        R: Fn(String) -> F,
        F: Future<Output = Result<Vec<String>, String>>,
    {
        while !self.report.is_closed() {
            let is_wanting = *self.is_wanting.borrow_and_update();
            match self.tree.next_step(self.now_ms(), is_wanting) {
                NextStep::Ask(query) => {
                    let texts = timeout(QUERY_TIMEOUT, resolve(query.name.clone())).await;
                    let late = || Err(format!("no answer in {} s", QUERY_TIMEOUT.as_secs()));
                    match texts.unwrap_or_else(|_| late()) {
                        Ok(texts) => self.answered(&query, &texts).await,
                        Err(reason) => self.failed(&query, &reason),
                    }
                }
                NextStep::Found(record) => self.found(*record).await,
                // Other tasks get their turn below.
                NextStep::Again => {}
                NextStep::Wait(until_ms) => {
                    if !self.wait(until_ms).await {
                        return;
                    }
                }
            }
            self.save_if_due().await;
            yield_now().await;
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Waits, also until records are wanted or no longer are. Returns whether there is still an owner.
    async fn wait(&mut self, until_ms: u64) -> bool {
        let wait = Duration::from_millis(until_ms.saturating_sub(self.now_ms()));
        let until = Instant::now() + wait.min(MAX_WAIT);
        let until = self.save_at.map_or(until, |save_at| until.min(save_at));
        tokio::select! {
            () = sleep_until(until) => true,
            changed = self.is_wanting.changed() => changed.is_ok(),
        }
    }

    async fn answered(&mut self, query: &DnsQuery, texts: &[String]) {
        if std::mem::take(&mut self.is_said_to_fail) {
            info!(name = query.name, "DNS lists can be resolved again");
        }
        let now_ms = self.now_ms();
        match self.tree.answer(query, texts, now_ms) {
            Ok(record) => {
                self.figures.answered.fetch_add(1, Ordering::Relaxed);
                if self.path.is_some() {
                    let save_at = Instant::now() + SAVE_PAUSE;
                    self.save_at.get_or_insert(save_at);
                }
                if let Some(record) = record {
                    self.found(*record).await;
                }
            }
            Err(error) => self.refused(query, &error),
        }
    }

    /// An answer that is of no use. A root is worth a line; an entry is one of thousands.
    fn refused(&mut self, query: &DnsQuery, error: &AnswerError) {
        self.figures.refused.fetch_add(1, Ordering::Relaxed);
        match query.is_root() && self.refused.may_say() {
            true => warn!(
                %error,
                "A DNS list can't be used as it is: check its URL; it is asked for again"
            ),
            false => debug!(%error, "An answer of the DNS is of no use"),
        }
    }

    fn failed(&mut self, query: &DnsQuery, reason: &str) {
        self.figures.failed.fetch_add(1, Ordering::Relaxed);
        let now_ms = self.now_ms();
        self.tree.failed(query, now_ms);
        let (name, list) = (&query.name, self.tree.domain(query));
        let is_lasting =
            self.tree.failures(query) >= FAILURES_TO_SAY && !self.tree.is_any_answered();
        if is_lasting && self.failing.may_say() {
            self.is_said_to_fail = true;
            warn!(
                list,
                reason,
                "DNS lists can't be resolved: check this machine's name servers; nodes are found by other ways meanwhile"
            );
        } else {
            debug!(list, name, reason, "A name of a DNS list can't be resolved");
        }
    }

    /// Hands a record out if it says an address of its node at which this one may dial it.
    async fn found(&self, record: Record) {
        let node = record.node_preferring(self.prefers_ipv6, &self.net_restrict);
        let Some(node) = node.filter(|node| node.tcp != 0) else {
            return;
        };
        let record = Some(Arc::new(record));
        let found = DiscoveryEvent::Found(FoundNode { node, record });
        if self.report.send(found).await.is_ok() {
            sleep(FOUND_PAUSE).await;
        }
    }

    async fn save_if_due(&mut self) {
        let is_due = self.save_at.is_some_and(|at| at <= Instant::now());
        let Some(path) = self.path.clone().filter(|_| is_due) else {
            return;
        };
        self.save_at = None;
        let lines: Vec<String> = self.tree.lines().collect();
        let write = move || {
            if let Err(error) = cache::write(&path, lines.into_iter()) {
                warn!(%error, path = %path.display(), "Can't write the entries of DNS lists");
            }
        };
        let _ = tokio::task::spawn_blocking(write).await;
    }
}

#[cfg(test)]
mod tests;
