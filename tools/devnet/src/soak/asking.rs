//! Whoever asks: requests drawn from the latest blocks, and calls that read the large state.

use super::state::{Storage, touch};
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

/// How long the same requests are asked again and again.
const DRAW_EVERY: Duration = Duration::from_secs(10);
/// Requests drawn each time, of which every fourth reads the large state.
const DRAWN: usize = 2_000;
/// Blocks that they are drawn from.
const RECENT: u64 = 2;
/// Slots that one of the calls reads.
const SLOTS_A_CALL: u64 = 8;

#[derive(Debug)]
pub(super) struct Asking {
    port: u16,
    connections: usize,
    /// Between two requests of one connection.
    pace: Duration,
    bodies: Arc<Mutex<Arc<[Vec<u8>]>>>,
    shared: Arc<Shared>,
}

/// How long the answers took, and how many were errors.
#[derive(Debug, Default)]
pub(super) struct Answers {
    times: Vec<Duration>,
    errors: u64,
}

impl Answers {
    pub(super) fn tell(self, report: &mut Report) {
        report.add("requests", self.times.len() as u64);
        report.add("requests answered by an error", self.errors);
        for time in self.times {
            report.took("requests", time);
        }
    }
}

impl Asking {
    pub(super) fn new(port: u16, options: &SoakOptions, shared: &Arc<Shared>) -> Self {
        let connections = u32::try_from(options.connections).unwrap_or(u32::MAX);
        let a_second = u32::try_from(options.requests_per_second).unwrap_or(u32::MAX);
        let pace = (Duration::from_secs(1) * connections).checked_div(a_second);
        Self {
            port,
            connections: options.connections,
            pace: pace.unwrap_or_default(),
            bodies: Arc::default(),
            shared: Arc::clone(shared),
        }
    }

    /// Draws new requests from time to time, once there are transactions to ask about.
    pub(super) fn draw(&self, client: &Client, storage: &Storage) -> Result<()> {
        let mut random = SmallRng::seed_from_u64(3);
        let mut drawn: Option<Instant> = None;
        while self.connections > 0 && !self.shared.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
            let is_empty = self.shared.included.load(Ordering::Relaxed) == 0;
            if is_empty || drawn.is_some_and(|at| at.elapsed() < DRAW_EVERY) {
                continue;
            }
            let mut bodies = Requests::of(client, RECENT)?.mix(DRAWN);
            for (id, body) in bodies.iter_mut().enumerate().step_by(4) {
                let (input, gas) = touch(random.random(), SLOTS_A_CALL);
                let call = json!({
                    "to": storage.contract(random.random()), "gas": format!("{gas:#x}"), "data": input,
                });
                let params = json!([call, "latest"]);
                *body =
                    json!({ "jsonrpc": "2.0", "id": id, "method": "eth_call", "params": params })
                        .to_string();
            }
            *self.bodies.lock().unwrap_or_else(PoisonError::into_inner) =
                bodies.iter().map(|body| post(body)).collect();
            drawn = Some(Instant::now());
        }
        Ok(())
    }

    /// Asks until it is over.
    pub(super) fn run(&self) -> Result<Answers> {
        if let Err(error) = step_back() {
            eprintln!("who asks takes the processors from the node too: {error:#}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let next = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> = (0..self.connections)
                .map(|_| {
                    let (bodies, shared) = (Arc::clone(&self.bodies), Arc::clone(&self.shared));
                    tokio::spawn(ask(self.port, self.pace, bodies, shared, Arc::clone(&next)))
                })
                .collect();
            let mut all = Answers::default();
            for task in tasks {
                let mut of_one = task.await??;
                all.times.append(&mut of_one.times);
                all.errors += of_one.errors;
            }
            Ok(all)
        })
    }
}

/// Has the calling thread run only where nothing else wants to: whoever asks stands for other machines, whose
/// processors are not the node's.
fn step_back() -> Result<()> {
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

/// One connection.
async fn ask(
    port: u16,
    pace: Duration,
    bodies: Arc<Mutex<Arc<[Vec<u8>]>>>,
    shared: Arc<Shared>,
    next: Arc<AtomicUsize>,
) -> Result<Answers> {
    let mut connection = Connection::open(port).await?;
    let mut answers = Answers::default();
    let mut at = tokio::time::Instant::now();
    while !shared.is_over.load(Ordering::Relaxed) {
        let now = Arc::clone(&bodies.lock().unwrap_or_else(PoisonError::into_inner));
        let index = next.fetch_add(1, Ordering::Relaxed);
        let request = now.get(index % now.len().max(1));
        let Some(request) = request.filter(|_| !shared.is_paused.load(Ordering::Relaxed)) else {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        };
        let (took, is_error) = connection.ask(request).await?;
        answers.times.push(took);
        answers.errors += u64::from(is_error);
        shared.requests.fetch_add(1, Ordering::Relaxed);
        // Who is behind does not catch up. A sleep lasts a millisecond at least.
        at = (at + pace).max(tokio::time::Instant::now());
        if !pace.is_zero() {
            tokio::time::sleep_until(at).await;
        }
    }
    Ok(answers)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// The calling thread's policy, field 41 of its line; 5 is that of idle ones.
    fn policy() -> String {
        let line = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = line.rsplit_once(") ").unwrap();
        fields.split(' ').nth(38).unwrap().to_owned()
    }

    #[test]
    fn who_asks_steps_back_and_no_other_thread_does() {
        let own = policy();
        let of_asking = std::thread::spawn(|| step_back().map(|()| policy()));
        assert_eq!(of_asking.join().unwrap().unwrap(), "5");
        assert_eq!(policy(), own);
        assert_ne!(own, "5");
    }
}
