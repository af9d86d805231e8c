//! Processor, memory, swap, huge pages, open files, other processes.

use super::finding::Finding;
use crate::memory::{MemoryBudget, machine_bytes, parse_kib};
use crate::options::Options;
use niwaki_chain::StorageOptions;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const GIB: f64 = 1_073_741_824.0;
/// Of a node of mainnet, beside a consensus client.
const ADVISED_CORES: usize = 4;
/// Of the machine's memory: what the budget may take. The rest is for the page cache, the system and a consensus client.
const MOST_OF_MEMORY: f64 = 0.7;
/// Files that the node opens beside tables, connections and peers.
const OTHER_FILES: u64 = 200;
/// How long other processes are watched.
const WATCH: Duration = Duration::from_millis(500);
/// Processor time in hundredths of a second, as Linux shows it to all programs.
const TICKS_PER_S: f64 = 100.0;

/// The files by which Linux describes the machine.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    root: PathBuf,
}

impl Machine {
    pub(super) fn here() -> Self {
        Self::at("/")
    }

    /// What is described below another folder than `/`: for tests.
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A file or folder, by its path from the root without the first slash.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(super) fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.path(path)).ok()
    }
}

/// Cores, and the instructions that the cryptography is fast with. A node of a public network wants more cores.
pub(super) fn processor(is_public: bool) -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let missing: Vec<&str> = features()
        .into_iter()
        .filter_map(|(name, is_there)| (!is_there).then_some(name))
        .collect();
    let all = if cores == 1 { "core" } else { "cores" };
    if !missing.is_empty() {
        return Finding::warn(
            "processor",
            format!("{cores} {all}; without {}", missing.join(", ")),
            "hashing and signatures are slower; on a virtual machine pass the host's processor through",
        );
    }
    if is_public && cores < ADVISED_CORES {
        return Finding::warn(
            "processor",
            format!("{cores} {all}"),
            format!("a node of mainnet wants {ADVISED_CORES} or more; small networks do with less"),
        );
    }
    Finding::pass(
        "processor",
        format!("{cores} {all}, with all instructions that are used"),
    )
}

#[cfg(target_arch = "x86_64")]
fn features() -> [(&'static str, bool); 5] {
    [
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("BMI2", is_x86_feature_detected!("bmi2")),
        ("ADX", is_x86_feature_detected!("adx")),
        ("SHA", is_x86_feature_detected!("sha")),
        ("AES", is_x86_feature_detected!("aes")),
    ]
}

#[cfg(target_arch = "aarch64")]
fn features() -> [(&'static str, bool); 2] {
    [
        ("SHA2", std::arch::is_aarch64_feature_detected!("sha2")),
        ("AES", std::arch::is_aarch64_feature_detected!("aes")),
    ]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> [(&'static str, bool); 0] {
    []
}

/// The budget against the memory of the machine, or of the container.
pub(super) fn memory(machine: &Machine, budget: MemoryBudget) -> Finding {
    let Some(all) = machine_bytes(&machine.path("")) else {
        return Finding::unknown("memory", "the system does not say how much there is");
    };
    let budget = budget.bytes() as f64 / GIB;
    let all = all as f64 / GIB;
    let available = machine.read("proc/meminfo");
    let available = available.and_then(|text| parse_kib(&text, "MemAvailable:"));
    let available = available.map_or(all, |bytes| (bytes as f64 / GIB).min(all));
    let found = format!("{all:.1} GiB, {available:.1} available; the budget is {budget:.1}");
    match () {
        () if budget > all * MOST_OF_MEMORY => Finding::fail(
            "memory",
            found,
            format!(
                "--memory-budget={:.0}M or less",
                all * MOST_OF_MEMORY * 1_024.0
            ),
        ),
        () if budget > available => Finding::warn(
            "memory",
            found,
            "other programs have taken much of it: stop them, or lower --memory-budget",
        ),
        () => Finding::pass("memory", found),
    }
}

pub(super) fn swap(machine: &Machine) -> Finding {
    let Some(text) = machine.read("proc/swaps") else {
        return Finding::unknown("swap", "the system does not say whether there is any");
    };
    let sizes = text.lines().skip(1).filter_map(|line| {
        let kib: u64 = line.split_whitespace().nth(2)?.parse().ok()?;
        Some(kib)
    });
    match sizes.sum::<u64>() {
        0 => Finding::pass("swap", "off"),
        kib => Finding::warn(
            "swap",
            format!("{} MiB are on", kib / 1_024),
            "caches that are swapped out are slower than no caches: swapoff -a, and take it out of /etc/fstab",
        ),
    }
}

/// Transparent huge pages.
pub(super) fn huge_pages(machine: &Machine) -> Finding {
    let text = machine.read("sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = text.as_deref().and_then(|text| {
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    });
    match chosen {
        None => Finding::unknown(
            "huge pages",
            "the system does not say whether they are used",
        ),
        Some(chosen) if chosen == "always" => Finding::warn(
            "huge pages",
            "always",
            "memory that is given back stays taken: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(chosen) => Finding::pass("huge pages", chosen),
    }
}

/// The limit of open files. The node raises its own up to the hard one.
pub(super) fn open_files(options: &Options) -> Finding {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let needed = files_needed(options);
    let found = match limit {
        u64::MAX => "no limit".to_owned(),
        limit => format!("{limit} at most, {needed} may be needed"),
    };
    match limit < needed {
        true => Finding::fail(
            "open files",
            found,
            format!(
                "LimitNOFILE={0} in the systemd unit, or ulimit -Hn {0}",
                needed.next_power_of_two()
            ),
        ),
        false => Finding::pass("open files", found),
    }
}

/// Tables of the database, connections and peers.
fn files_needed(options: &Options) -> u64 {
    let node = &options.node;
    let connections = node.http.rpc_http_max_active_connections
        + node.sockets.rpc_ws_max_active_connections
        + node.peers.max_peers;
    let tables = StorageOptions::default().max_open_files;
    u64::try_from(tables).unwrap_or(0) + connections as u64 + OTHER_FILES
}

/// Processor time that other programs take.
pub(super) fn others(machine: &Machine) -> Finding {
    let before = processor_times(machine);
    std::thread::sleep(WATCH);
    grade_others(&before, &processor_times(machine))
}

fn grade_others(before: &Processes, after: &Processes) -> Finding {
    let own = std::process::id();
    let mut busy: Vec<(f64, &str)> = after
        .iter()
        .filter(|(process, _)| **process != own)
        .filter_map(|(process, (name, ticks))| {
            let since = ticks.saturating_sub(before.get(process)?.1);
            let share = since as f64 / TICKS_PER_S / WATCH.as_secs_f64();
            (share >= 0.1).then_some((share, name.as_str()))
        })
        .collect();
    busy.sort_by(|one, other| other.0.total_cmp(&one.0));
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| usize::from(cores) as f64);
    let taken: f64 = busy.iter().map(|(share, _)| share).sum();
    let names: Vec<String> = busy
        .iter()
        .take(5)
        .map(|(share, name)| format!("{name} {:.0} %", share * 100.0))
        .collect();
    let found = match names.is_empty() {
        true => "none takes a tenth of a core".to_owned(),
        false => format!("{} of a core", names.join(", ")),
    };
    match taken > cores / 2.0 {
        true => Finding::warn(
            "other programs",
            found,
            "they take half of the processor or more: give the node a machine of its own, or lower their priority",
        ),
        false => Finding::pass("other programs", found),
    }
}

/// Processes by id: name, and processor time in ticks.
type Processes = BTreeMap<u32, (String, u64)>;

fn processor_times(machine: &Machine) -> Processes {
    let entries = std::fs::read_dir(machine.path("proc"));
    let entries = entries.into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((process, parse_stat(&text)?))
    };
    entries.filter_map(of).collect()
}

/// Name, and user and system time, of `/proc/PID/stat`.
fn parse_stat(text: &str) -> Option<(String, u64)> {
    let (before, fields) = text.rsplit_once(") ")?;
    let name = before.split_once('(')?.1;
    let mut times = fields.split(' ').skip(11).map(str::parse::<u64>);
    let [user, system] = [times.next()?.ok()?, times.next()?.ok()?];
    Some((name.to_owned(), user.saturating_add(system)))
}

/// The name of a process.
pub(super) fn process_name(machine: &Machine, process: u32) -> Option<String> {
    let name = machine.read(&format!("proc/{process}/comm"))?;
    Some(name.trim().to_owned())
}

/// A path as text, for messages.
pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Grade;
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let machine = Machine::at(folder.path());
        (folder, machine)
    }

    #[test]
    fn swap_that_is_on_is_named_with_its_size() {
        let title = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        let (_folder, off) = machine(&[("proc/swaps", title)]);
        assert_eq!(swap(&off).grade, Grade::Pass);
        let text =
            format!("{title}/dev/sda2 partition\t2097148\t\t0\t\t-2\n/swap file 1024 0 -3\n");
        let (_folder, on) = machine(&[("proc/swaps", &text)]);
        let finding = swap(&on);
        assert_eq!(
            (finding.grade, finding.found.as_str()),
            (Grade::Warn, "2048 MiB are on")
        );
        assert_eq!(swap(&Machine::at("/nowhere")).grade, Grade::Unknown);
    }

    #[test]
    fn huge_pages_are_a_warning_only_if_they_are_always_used() {
        for (text, grade) in [
            ("[always] madvise never\n", Grade::Warn),
            ("always [madvise] never\n", Grade::Pass),
            ("always madvise [never]\n", Grade::Pass),
            ("", Grade::Unknown),
        ] {
            let path = "sys/kernel/mm/transparent_hugepage/enabled";
            let (_folder, machine) = machine(&[(path, text)]);
            assert_eq!(huge_pages(&machine).grade, grade, "{text}");
        }
    }

    #[test]
    fn a_budget_above_the_machine_fails_and_one_above_what_is_free_warns() {
        let info = "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n";
        let (_folder, whole) = machine(&[("proc/meminfo", info)]);
        for (budget, grade) in [
            ("6G", Grade::Pass),
            ("9G", Grade::Warn),
            ("12G", Grade::Fail),
        ] {
            let budget = MemoryBudget::parse(budget).unwrap();
            assert_eq!(memory(&whole, budget).grade, grade);
        }
        for limit in [
            "sys/fs/cgroup/memory.max",
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
        ] {
            let files = [("proc/meminfo", info), (limit, "4294967296\n")];
            let (_folder, container) = machine(&files);
            let finding = memory(&container, MemoryBudget::parse("6G").unwrap());
            assert_eq!(finding.grade, Grade::Fail, "{limit}");
        }
    }

    #[test]
    fn a_process_may_have_brackets_and_spaces_in_its_name() {
        let text = "12 (a) (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0";
        assert_eq!(parse_stat(text), Some(("a) (b) c".to_owned(), 300)));
        assert_eq!(parse_stat("12 (cut"), None);
    }

    #[test]
    fn other_programs_are_named_by_their_share_and_warned_of_if_they_take_half() {
        let at = |ticks: u64| {
            let stat = format!("7 (miner) R 1 2 3 4 5 6 7 8 9 10 {ticks} 0 0 0");
            let (_folder, machine) = machine(&[("proc/7/stat", &stat)]);
            processor_times(&machine)
        };
        let busy = grade_others(&at(0), &at(100_000));
        assert_eq!(busy.grade, Grade::Warn);
        assert!(busy.found.contains("miner"), "{}", busy.found);
        let idle = grade_others(&at(100), &at(101));
        assert_eq!(idle.grade, Grade::Pass);
        // It began in between.
        assert_eq!(
            grade_others(&Processes::new(), &at(100_000)).grade,
            Grade::Pass
        );
    }
}
