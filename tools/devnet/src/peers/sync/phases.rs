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
    written: u64,
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
struct Used {
    at: Instant,
    cpu: Duration,
    written: u64,
}

impl Used {
    fn by(sink: &Process) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            cpu: sink.cpu_time()?,
            written: sink.written_bytes()?,
        })
    }
}

/// The states in the order in which they came first.
#[derive(Debug)]
pub(super) struct Phases {
    all: Vec<Phase>,
    last: Used,
    /// When ranges of a state came first, and last.
    ranges: Option<(Instant, Instant)>,
    /// When the first block was executed.
    first_executed: Option<Instant>,
}

impl Phases {
    pub(super) fn new(sink: &Process) -> Result<Self> {
        Ok(Self {
            all: Vec::new(),
            last: Used::by(sink)?,
            ranges: None,
            first_executed: None,
        })
    }

    /// Looks what the node does: the time since the last look is counted to that.
    pub(super) fn look(&mut self, sink: &Process) -> Result<()> {
        let status = sink.client.call("niwaki_syncStatus", json!([]))?;
        let state = status["state"].as_str().unwrap_or_default();
        let now = Used::by(sink)?;
        if state == "ranges" {
            self.ranges.get_or_insert((now.at, now.at)).1 = now.at;
        }
        let has_executed = match (number(&status["currentBlock"]), number(&status["pivot"])) {
            (Ok(current), Ok(pivot)) => current > pivot,
            _ => false,
        };
        if has_executed {
            self.first_executed.get_or_insert(now.at);
        }
        if !self.all.iter().any(|phase| phase.state == state) {
            self.all.push(Phase {
                state: state.to_owned(),
                wall: Duration::ZERO,
                cpu: Duration::ZERO,
                written: 0,
            });
        }
        if let Some(phase) = self.all.iter_mut().find(|phase| phase.state == state) {
            phase.wall += now.at - self.last.at;
            phase.cpu += now.cpu.saturating_sub(self.last.cpu);
            phase.written += now.written.saturating_sub(self.last.written);
        }
        self.last = now;
        Ok(())
    }

    /// When ranges of a state came first, and last.
    pub(super) fn ranges(&self) -> Option<(Instant, Instant)> {
        self.ranges
    }

    /// Notes all phases of a sync that took so long.
    pub(super) fn note(&self, run: usize, took: Duration, findings: &mut Findings) {
        for phase in &self.all {
            let state = &phase.state;
            let (wall, cpu) = (phase.wall.as_secs_f64(), phase.cpu.as_secs_f64());
            findings.figure(format!("run {run}, {state}: time"), wall, "s");
            findings.figure(format!("run {run}, {state}: CPU"), cpu, "s");
            let what = format!("run {run}, {state}: written, MiB");
            findings.count(what, phase.written >> 20);
        }
        if let (Some((_, end)), Some(first)) = (self.ranges, self.first_executed) {
            let between = (first - end).as_secs_f64() * 100.0 / took.as_secs_f64();
            let what = format!("run {run}: from the last range to the first block, of the whole");
            findings.figure(what, between, "%");
        }
    }
}
