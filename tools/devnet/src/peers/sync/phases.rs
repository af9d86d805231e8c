//! What a niwaki does while it syncs: how long it is in each state, and how much of the processors it takes there.

use crate::load::number;
use crate::peers::findings::Findings;
use crate::process::Process;
use eyre::Result;
use serde_json::json;
use std::time::{Duration, Instant};

/// What was seen of one state.
#[derive(Debug)]
struct Phase {
    state: String,
    wall: Duration,
    cpu: Duration,
}

/// The states in the order in which they came first.
#[derive(Debug)]
pub(super) struct Phases {
    all: Vec<Phase>,
    last: (Instant, Duration),
    /// When ranges of a state came last.
    ranges_end: Option<Instant>,
    /// When the first block was executed.
    first_executed: Option<Instant>,
}

impl Phases {
    pub(super) fn new(sink: &Process) -> Result<Self> {
        Ok(Self {
            all: Vec::new(),
            last: (Instant::now(), sink.cpu_time()?),
            ranges_end: None,
            first_executed: None,
        })
    }

    /// Looks what the node does: the time since the last look is counted to that.
    pub(super) fn look(&mut self, sink: &Process) -> Result<()> {
        let status = sink.client.call("niwaki_syncStatus", json!([]))?;
        let state = status["state"].as_str().unwrap_or_default();
        let now = (Instant::now(), sink.cpu_time()?);
        if state == "ranges" {
            self.ranges_end = Some(now.0);
        }
        let has_executed = match (number(&status["currentBlock"]), number(&status["pivot"])) {
            (Ok(current), Ok(pivot)) => current > pivot,
            _ => false,
        };
        if has_executed {
            self.first_executed.get_or_insert(now.0);
        }
        if !self.all.iter().any(|phase| phase.state == state) {
            self.all.push(Phase {
                state: state.to_owned(),
                wall: Duration::ZERO,
                cpu: Duration::ZERO,
            });
        }
        if let Some(phase) = self.all.iter_mut().find(|phase| phase.state == state) {
            phase.wall += now.0 - self.last.0;
            phase.cpu += now.1.saturating_sub(self.last.1);
        }
        self.last = now;
        Ok(())
    }

    /// When ranges of a state came last.
    pub(super) fn ranges_end(&self) -> Option<Instant> {
        self.ranges_end
    }

    /// Notes all phases of a sync that took so long.
    pub(super) fn note(&self, run: usize, took: Duration, findings: &mut Findings) {
        for Phase { state, wall, cpu } in &self.all {
            let (wall, cpu) = (wall.as_secs_f64(), cpu.as_secs_f64());
            findings.figure(format!("run {run}, {state}: time"), wall, "s");
            findings.figure(format!("run {run}, {state}: CPU"), cpu, "s");
        }
        if let (Some(end), Some(first)) = (self.ranges_end, self.first_executed) {
            let between = (first - end).as_secs_f64() * 100.0 / took.as_secs_f64();
            let what = format!("run {run}: from the last range to the first block, of the whole");
            findings.figure(what, between, "%");
        }
    }
}
