//! What the benchmarks share: the `--json` and `--seed` flags, timing loops, threads.

use eyre::{Context, Result, ensure};
use rand::{SeedableRng, rngs::SmallRng};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The file that a benchmark writes its results to.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct JsonFile {
    /// Write the results here as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl JsonFile {
    /// Refuses a path that can't be written, before minutes are spent on measuring.
    pub(crate) fn check(&self) -> Result<()> {
        check_writable(self.json.as_deref(), "--json")
    }

    /// Writes `report`, if the flag was given.
    pub(crate) fn write(&self, report: &impl Serialize) -> Result<()> {
        match &self.json {
            Some(path) => write_json(path, report),
            None => Ok(()),
        }
    }
}

/// The seed of what a benchmark draws at random.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Seed {
    /// Seed of everything drawn at random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Seed {
    /// The generator of the benchmark.
    pub(crate) fn rng(self) -> SmallRng {
        self.rng_of(0)
    }

    /// The generator of thread `number`.
    pub(crate) fn rng_of(self, number: u64) -> SmallRng {
        SmallRng::seed_from_u64(self.seed + number)
    }
}

/// Refuses an output file, named by `flag`, that can't be written.
pub(crate) fn check_writable(path: Option<&Path>, flag: &str) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let is_writable = !path.is_dir() && folder.is_none_or(Path::is_dir);
    ensure!(
        is_writable,
        "can't write {}: it is a folder, or in none; give another {flag}",
        path.display()
    );
    Ok(())
}

/// Writes `report` to `path`.
pub(crate) fn write_json(path: &Path, report: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(report)? + "\n";
    std::fs::write(path, text)
        .wrap_err_with(|| format!("can't write {}; give another --json", path.display()))
}

/// A new folder in `parent`, which is created if it does not exist, or in the system's temporary folder; removed when
/// dropped.
pub(crate) fn work_dir(parent: Option<&Path>) -> Result<TempDir> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    let mut folder = tempfile::Builder::new();
    std::fs::create_dir_all(&parent)
        .and_then(|()| folder.prefix("niwaki-bench-").tempdir_in(&parent))
        .wrap_err_with(|| {
            let parent = parent.display();
            format!("can't make a folder in {parent}; give another --work-dir")
        })
}

/// Parses a count of runs.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing would be measured; use 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}; use a whole number from 1 on")),
    }
}

/// Repeats `work`, which does `items` at a time, for at least `time`; returns the seconds of one item.
pub(crate) fn seconds_each(time: Duration, items: usize, mut work: impl FnMut()) -> f64 {
    let (start, mut count) = (Instant::now(), 0);
    loop {
        work();
        count += items;
        let elapsed = start.elapsed();
        if elapsed >= time {
            return elapsed.as_secs_f64() / count as f64;
        }
    }
}

/// The result of a thread; panics if the thread panicked.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    let result = thread.join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The options that `words` give.
    pub(crate) fn parse<T: clap::Args>(words: &[&str]) -> Result<T, clap::Error> {
        let command = T::augment_args(clap::Command::new("niwaki-bench"));
        let words = ["niwaki-bench"].iter().chain(words);
        T::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    pub(crate) fn json_file(path: PathBuf) -> JsonFile {
        JsonFile { json: Some(path) }
    }

    #[test]
    fn an_output_file_must_be_in_a_folder() {
        let check = |path: &str| check_writable(Some(Path::new(path)), "--json");
        assert!(check_writable(None, "--json").is_ok());
        assert!(check("new.json").is_ok());
        assert!(check("/nonexistent/new.json").is_err());
        assert!(check("/").is_err());
    }

    #[test]
    fn zero_runs_are_refused() {
        assert!(at_least_one("0").is_err_and(|reason| reason.contains("1 or more")));
        assert!(at_least_one("-1").is_err());
        assert_eq!(at_least_one("7"), Ok(7));
    }
}
