//! The JSON-RPC load of the soak: requests about the latest blocks, and calls that read the large state.

use super::state::{Storage, storage_call};
use super::{Shared, SoakOptions};
use crate::client::Client;
use crate::load::{Connection, Requests, post};
use crate::report::Report;
use eyre::{Result, WrapErr, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the same requests are repeated before new ones are drawn.
const DRAW_EVERY: Duration = Duration::from_secs(10);
/// Requests drawn each time; every fourth reads the large state.
const REQUEST_COUNT: usize = 2_000;
/// Blocks below the head that the requests are about.
const RECENT: u64 = 2;
/// Storage slots that one call reads.
const SLOTS_PER_CALL: u64 = 8;

/// A fixed number of connections, each with one request in flight.
#[derive(Debug)]
pub(super) struct RpcLoad {
    port: u16,
    connections: usize,
    /// Time from one request to the next of one connection.
    interval: Duration,
    bodies: Arc<Mutex<Arc<[Vec<u8>]>>>,
    shared: Arc<Shared>,
}

/// Latencies of the requests, and how many failed.
#[derive(Debug, Default)]
pub(super) struct RequestTimes {
    times: Vec<Duration>,
    errors: u64,
}

impl RequestTimes {
    pub(super) fn add_to(self, report: &mut Report) {
        report.add("requests", self.times.len() as u64);
        report.add("requests answered by an error", self.errors);
        for time in self.times {
            report.took("requests", time);
        }
    }
}

impl RpcLoad {
    pub(super) fn new(port: u16, options: &SoakOptions, shared: &Arc<Shared>) -> Self {
        let connections = u32::try_from(options.connections).unwrap_or(u32::MAX);
        let per_second = u32::try_from(options.requests_per_second).unwrap_or(u32::MAX);
        let interval = (Duration::from_secs(1) * connections).checked_div(per_second);
        Self {
            port,
            connections: options.connections,
            interval: interval.unwrap_or_default(),
            bodies: Arc::default(),
            shared: Arc::clone(shared),
        }
    }

    /// Draws new requests every [`DRAW_EVERY`] once the chain has transactions, until the soak is over.
    pub(super) fn draw_requests(&self, client: &Client, storage: &Storage) -> Result<()> {
        let mut rng = SmallRng::seed_from_u64(3);
        let mut drawn_at: Option<Instant> = None;
        while self.connections > 0 && !self.shared.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
            let is_empty = self.shared.included.load(Ordering::Relaxed) == 0;
            if is_empty || drawn_at.is_some_and(|at| at.elapsed() < DRAW_EVERY) {
                continue;
            }
            let mut bodies = Requests::of(client, RECENT)?.mix(REQUEST_COUNT);
            for (id, body) in bodies.iter_mut().enumerate().step_by(4) {
                let (input, gas) = storage_call(rng.random(), SLOTS_PER_CALL);
                let call = json!({
                    "to": storage.contract(rng.random()), "gas": format!("{gas:#x}"), "data": input,
                });
                let params = json!([call, "latest"]);
                *body =
                    json!({ "jsonrpc": "2.0", "id": id, "method": "eth_call", "params": params })
                        .to_string();
            }
            *self.bodies.lock().unwrap_or_else(PoisonError::into_inner) =
                bodies.iter().map(|body| post(body)).collect();
            drawn_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Sends requests until the soak is over.
    pub(super) fn run(&self) -> Result<RequestTimes> {
        if let Err(error) = set_idle_priority() {
            eprintln!("the request thread competes with the node for the CPU: {error:#}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let next = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> = (0..self.connections)
                .map(|_| {
                    let (bodies, shared) = (Arc::clone(&self.bodies), Arc::clone(&self.shared));
                    tokio::spawn(send_requests(
                        self.port,
                        self.interval,
                        bodies,
                        shared,
                        Arc::clone(&next),
                    ))
                })
                .collect();
            let mut all = RequestTimes::default();
            for task in tasks {
                let mut of_one = task.await??;
                all.times.append(&mut of_one.times);
                all.errors += of_one.errors;
            }
            Ok(all)
        })
    }
}

/// Gives the calling thread the idle scheduling policy: the requests stand for those of other machines, which do
/// not use the node's CPU.
fn set_idle_priority() -> Result<()> {
    let link = std::fs::read_link("/proc/thread-self").wrap_err("/proc/thread-self")?;
    let thread = link.file_name().unwrap_or_default();
    let output = Command::new("chrt")
        .args(["--idle", "--pid", "0"])
        .arg(thread)
        .output()
        .wrap_err("can't run chrt (package util-linux)")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", errors.trim());
    Ok(())
}

/// Sends requests over one connection.
async fn send_requests(
    port: u16,
    interval: Duration,
    bodies: Arc<Mutex<Arc<[Vec<u8>]>>>,
    shared: Arc<Shared>,
    next: Arc<AtomicUsize>,
) -> Result<RequestTimes> {
    let mut connection = Connection::open(port).await?;
    let mut times = RequestTimes::default();
    let mut at = tokio::time::Instant::now();
    while !shared.is_over.load(Ordering::Relaxed) {
        let now = Arc::clone(&bodies.lock().unwrap_or_else(PoisonError::into_inner));
        let index = next.fetch_add(1, Ordering::Relaxed);
        let request = now.get(index % now.len().max(1));
        let Some(request) = request.filter(|_| !shared.is_paused.load(Ordering::Relaxed)) else {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        };
        let (took, is_error) = connection.time_request(request).await?;
        times.times.push(took);
        times.errors += u64::from(is_error);
        shared.requests.fetch_add(1, Ordering::Relaxed);
        // A late connection does not catch up. A sleep lasts at least a millisecond.
        at = (at + interval).max(tokio::time::Instant::now());
        if !interval.is_zero() {
            tokio::time::sleep_until(at).await;
        }
    }
    Ok(times)
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread's scheduling policy, field 41 of its `stat`; 5 is `SCHED_IDLE`.
    fn policy() -> String {
        let line = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = line.rsplit_once(") ").unwrap();
        fields.split(' ').nth(38).unwrap().to_owned()
    }

    #[test]
    fn only_the_calling_thread_gets_idle_priority() {
        let own = policy();
        let request_thread = std::thread::spawn(|| set_idle_priority().map(|()| policy()));
        assert_eq!(request_thread.join().unwrap().unwrap(), "5");
        assert_eq!(policy(), own);
        assert_ne!(own, "5");
    }
}
