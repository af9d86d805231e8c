//! Runs a process to its end; returns its output and its cost.
//!
//! Wall time is from before the start until the process is a zombie. CPU time and peak memory are the system's
//! accounting of the process; bytes written come from `/proc`, read before its exit status is collected.

use eyre::{Context, Result, ensure};
use serde::Serialize;
use std::{
    io::Read,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use wait4::Wait4;

/// The cost of a process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cost {
    /// From start to end.
    pub(crate) wall_ms: f64,
    /// User and system time of all its threads.
    pub(crate) cpu_ms: f64,
    /// Peak memory; `None` if it is not above ours, which a child inherits as its floor.
    pub(crate) peak_rss_bytes: Option<u64>,
    /// Bytes written to the disk; `None` if `/proc` does not say.
    pub(crate) written_bytes: Option<u64>,
}

/// How often to check whether a process that has closed its output has exited.
const POLL: Duration = Duration::from_micros(50);
/// Number of last lines of a failed process that an error quotes.
const QUOTED_LINES: usize = 3;

/// Runs `command` to its end without input; returns what it printed to both streams, and its cost.
pub(crate) fn run(mut command: Command) -> Result<(String, Cost)> {
    let program = command.get_program().to_string_lossy().into_owned();
    let (mut output, end) = std::io::pipe().wrap_err("can't make a pipe")?;
    command
        .stdin(Stdio::null())
        // A backtrace would push the reason of a failure out of the lines quoted.
        .env("RUST_BACKTRACE", "0")
        .stdout(end.try_clone().wrap_err("can't make a pipe")?)
        .stderr(end);
    let start = Instant::now();
    let child = command
        .spawn()
        .wrap_err_with(|| format!("can't run {program}; check that it is there and may be run"))?;
    // The command holds our copy of the pipe's writing end; as long as it exists, reading never ends.
    drop(command);
    let mut bytes = Vec::new();
    let read = output.read_to_end(&mut bytes);
    let process = child.id();
    while is_running(process) {
        std::thread::sleep(POLL);
    }
    let wall = start.elapsed();
    let written_bytes = proc_field(process, "io", "write_bytes:");
    let used = child
        .wait4()
        .wrap_err_with(|| format!("can't wait for {program}"))?;
    read.wrap_err_with(|| format!("can't read what {program} prints"))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    ensure!(
        used.status.success(),
        "{program} failed ({}): {}",
        used.status,
        last_lines(&text)
    );
    let floor = proc_field(std::process::id(), "status", "VmHWM:").map(|kib| kib << 10);
    let peak = used.rusage.maxrss;
    let cost = Cost {
        wall_ms: wall.as_secs_f64() * 1e3,
        cpu_ms: (used.rusage.utime + used.rusage.stime).as_secs_f64() * 1e3,
        peak_rss_bytes: floor.is_none_or(|floor| peak > floor).then_some(peak),
        written_bytes,
    };
    Ok((text, cost))
}

/// Whether the process has not exited yet. Its status is not collected, so its id is not reused.
pub(crate) fn is_running(process: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return false;
    };
    // The name in parentheses may contain parentheses.
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    !state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// The first number after `name` in a file of `/proc`.
pub(crate) fn proc_field(process: u32, file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/{file}")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse().ok()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(QUOTED_LINES);
    lines[from..].join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_of_both_streams_and_cost_are_returned() {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "echo out; echo err >&2; head -c 65536 /dev/zero > {}; \
             i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done",
            dir.path().join("file").display()
        );
        let (text, cost) = run(shell(&script)).unwrap();
        assert!(text.contains("out\n") && text.contains("err\n"), "{text}");
        assert!(cost.cpu_ms > 0.0 && cost.wall_ms > 0.0, "{cost:?}");
    }

    #[test]
    fn bytes_written_are_those_of_the_process_itself() {
        // The file must lie on a disk: bytes on a file system in memory are not counted.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut command = Command::new("dd");
        let target = format!("of={}", dir.path().join("file").display());
        command
            .args(["if=/dev/zero", "bs=4096", "count=64"])
            .arg(target);
        let (_, cost) = run(command).unwrap();
        let written = cost.written_bytes.expect("Linux tells");
        assert!((1 << 18..1 << 20).contains(&written), "{written}");
    }

    #[test]
    fn a_process_that_fails_is_an_error_with_its_last_lines() {
        let error = run(shell("echo first; echo 'no such chain' >&2; exit 3")).unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("no such chain") && text.contains('3'),
            "{text}"
        );
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(Command::new("/nonexistent/geth")).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/geth"));
    }
}
