//! The machine and the build that results were measured on.

use serde::Serialize;
use std::process::Command;

/// The machine and the build.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// Processor model, as the system names it.
    pub(crate) processor: String,
    /// Logical cores.
    pub(crate) cores: usize,
    /// Version of Niwaki.
    pub(crate) version: &'static str,
    /// Commit of the source tree, with a plus if there are changes; `None` outside a repository.
    pub(crate) commit: Option<String>,
    /// Seconds since the epoch.
    pub(crate) taken_at: u64,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let processor = model.map_or("unknown", |m| m.trim_start_matches([' ', '\t', ':']));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            processor: processor.to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            taken_at: now.map_or(0, |since| since.as_secs()),
        }
    }
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(["-C", env!("CARGO_MANIFEST_DIR")])
            .args(arguments);
        let output = command.output().ok().filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let mut commit = git(&["rev-parse", "HEAD"])?;
    if git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|s| !s.is_empty()) {
        commit.push('+');
    }
    Some(commit)
}
