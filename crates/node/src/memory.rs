//! The memory budget: its default, its shares for storage, state and code, and the peak that was used.

use niwaki_chain::{StateOptions, StorageOptions};
use std::fmt;
use std::path::Path;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The most that `--Xplugin-rocksdb-high-spec-enabled` uses.
const HIGH_SPEC_BYTES: u64 = 16 * GIB;
/// The most that is used without a flag.
const DEFAULT_MAX_BYTES: u64 = 8 * GIB;
/// Where cgroups, version 2 and 1, say how much memory a container may take.
const CONTAINER_LIMITS: [&str; 2] = [
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory/memory.limit_in_bytes",
];
/// The smallest budget that is accepted.
const LEAST_BYTES: u64 = 64 * MIB;

/// The memory that all caches and buffers share, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBudget(u64);

impl MemoryBudget {
    /// The operator's value, or a quarter of the machine's memory up to 8 GiB (`high_spec`: half, up to
    /// 16 GiB).
    pub(crate) fn new(given: Option<Self>, high_spec: bool) -> Self {
        let default = || {
            let machine = machine_bytes(Path::new("/")).unwrap_or(4 * GIB);
            let bytes = match high_spec {
                true => (machine / 2).min(HIGH_SPEC_BYTES),
                false => (machine / 4).min(DEFAULT_MAX_BYTES),
            };
            Self(bytes.max(LEAST_BYTES))
        };
        given.unwrap_or_else(default)
    }

    /// Reads it as [`parse_bytes`] does.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match parse_bytes(text)? {
            bytes if bytes < LEAST_BYTES => Err(format!(
                "{bytes} bytes are too few to work with; give at least {}M",
                LEAST_BYTES / MIB
            )),
            bytes => Ok(Self(bytes)),
        }
    }

    pub(crate) fn bytes(self) -> u64 {
        self.0
    }

    fn percent(self, share: u64) -> usize {
        usize::try_from(self.0 / 100 * share).unwrap_or(usize::MAX)
    }

    /// The storage engine's share: block cache and pending batches.
    pub(crate) fn storage(self) -> StorageOptions {
        StorageOptions {
            memory_budget_bytes: self.percent(STORAGE_PERCENT),
            ..StorageOptions::default()
        }
    }

    /// The state's share: accounts, slots, code, trie nodes.
    pub(crate) fn state(self) -> StateOptions {
        StateOptions {
            cache_bytes: self.percent(STATE_PERCENT),
            ..StateOptions::default()
        }
    }

    /// The share of analysed code.
    pub(crate) fn prepared_code_bytes(self) -> usize {
        self.percent(CODE_PERCENT)
    }

    /// The share of cached results of precompiled contracts.
    pub(crate) fn precompile_result_bytes(self) -> usize {
        self.percent(RESULT_PERCENT)
    }
}

/// The remaining 14 % are for blocks in progress and the allocator's overhead.
const STORAGE_PERCENT: u64 = 35;
const STATE_PERCENT: u64 = 45;
const CODE_PERCENT: u64 = 5;
const RESULT_PERCENT: u64 = 1;

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |percent| self.percent(percent) as u64 / MIB;
        write!(
            f,
            "{} MiB: {} for the storage engine, {} for state and tries, {} for prepared code",
            self.0 / MIB,
            share(STORAGE_PERCENT),
            share(STATE_PERCENT),
            share(CODE_PERCENT)
        )
    }
}

/// Reads a number of bytes, with K, M, G or KiB, MiB, GiB for powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => MIB,
        "G" | "g" | "GiB" => GIB,
        other => return Err(format!("'{other}' is no unit; use K, M or G, as in 2G")),
    };
    let number = digits.trim().parse::<u64>();
    let bytes = number.ok().and_then(|number| number.checked_mul(factor));
    bytes.ok_or_else(|| "not a number of bytes; give one like 2G or 512M".to_owned())
}

/// The memory of the machine, or of the container if that is less; `None` if the system does not say.
///
/// `root` is `/`.
pub(crate) fn machine_bytes(root: &Path) -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let machine = read("proc/meminfo").and_then(|text| parse_kib(&text, "MemTotal:"));
    let containers = CONTAINER_LIMITS.iter().filter_map(|path| read(path));
    let containers = containers.filter_map(|text| text.trim().parse().ok());
    machine.into_iter().chain(containers).min()
}

/// Resident memory; `None` if the system does not say.
pub(crate) fn rss_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// Peak resident memory; `None` if the system does not say.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

fn status_bytes(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    parse_kib(&status, name)
}

/// The value in bytes of the line that begins with `name` and is in kB.
pub(crate) fn parse_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_the_status_file() {
        let status = "Name:\tniwaki\nVmPeak:\t   9 kB\nVmHWM:\t   1234 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(parse_kib(status, "VmHWM:"), Some(1234 * 1024));
        assert_eq!(parse_kib("Name:\tniwaki\n", "VmHWM:"), None);
        assert_eq!(parse_kib("VmHWM:\tmany kB\n", "VmHWM:"), None);
    }

    #[test]
    fn a_budget_takes_units_up_to_gib_and_errors_say_what_is_wrong() {
        let parse = MemoryBudget::parse;
        assert_eq!(parse("2G"), Ok(MemoryBudget(2 << 30)));
        assert_eq!(parse("512MiB"), Ok(MemoryBudget(512 << 20)));
        assert_eq!(parse("134217728"), Ok(MemoryBudget(128 << 20)));
        for (text, word) in [
            ("", "2G or 512M"),
            ("G", "2G or 512M"),
            ("-1G", "2G or 512M"),
            ("99999999999G", "2G or 512M"),
            ("2T", "no unit"),
            ("63M", "at least 64M"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn the_shares_stay_below_the_budget() {
        let budget = MemoryBudget(GIB);
        let shares = budget.storage().memory_budget_bytes
            + budget.state().cache_bytes
            + budget.prepared_code_bytes()
            + budget.precompile_result_bytes();
        assert!((1 << 29..1 << 30).contains(&shares), "{shares}");
    }
}
