//! Profiles of this program: where its processor time goes, and what its memory holds.
//!
//! A profile of the processor is taken by a signal that the kernel sends 99 times for each second of processor time; the heap's by the
//! allocator, which samples one allocation in 512 KiB if it is told to. Each is a flame graph (`.svg`) and a profile for `pprof`
//! (`.pb.gz`), with the names of functions.

use eyre::{Result, WrapErr, ensure, eyre};
use jemalloc_pprof::{FlamegraphOptions, PROF_CTL, StackProfile, WeightedStack};
use niwaki_rpc::{Operator, ProfileHooks};
use pprof::ProfilerGuardBuilder;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tikv_jemalloc_ctl::{epoch, stats};

/// Samples for each second of processor time.
const HZ: i32 = 99;
/// Libraries in which a sample is left out: the signal may have come while they held a lock that unwinding needs.
const NOT_SAMPLED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Begins to sample allocations.
pub(super) fn sample_heap() -> Result<()> {
    let control = PROF_CTL.as_ref().ok_or_else(|| {
        eyre!("this build's allocator does not sample: build it in the folder of the repository, whose .cargo/config.toml says so")
    })?;
    let mut control = control
        .try_lock()
        .map_err(|_| eyre!("the heap is being profiled"))?;
    control
        .activate()
        .map_err(|error| eyre!("allocations can't be sampled: {error}"))
}

/// Gives the methods about profiles what they need.
pub(super) fn install(operator: &Operator, data_path: &Path) {
    let folder = data_path.join("profiles");
    let text = |error: eyre::Report| format!("{error:#}");
    // One at a time: there is one timer for a process.
    let busy = Arc::new(Mutex::new(()));
    operator.set_profiles(ProfileHooks {
        folder,
        cpu: Box::new(move |time, path| {
            let Ok(_one) = busy.try_lock() else {
                return Err("a profile of the processor is being taken".to_owned());
            };
            check_free(path)
                .and_then(|()| cpu(time))
                .and_then(|profile| write(&profile, path, CPU))
                .map_err(text)
        }),
        heap: Box::new(move |(), path| {
            heap()
                .and_then(|profile| write(&profile, path, HEAP))
                .map_err(text)
        }),
        memory: Box::new(memory),
    });
}

/// What a profile counts, and in which unit.
#[derive(Clone, Copy)]
struct Kind {
    title: &'static str,
    count: &'static str,
    sample: (&'static str, &'static str),
    period: (&'static str, &'static str),
}

const CPU: Kind = Kind {
    title: "processor time",
    count: "ns",
    sample: ("cpu", "nanoseconds"),
    period: ("cpu", "nanoseconds"),
};
const HEAP: Kind = Kind {
    title: "bytes in use",
    count: "bytes",
    sample: ("inuse_space", "bytes"),
    period: ("space", "bytes"),
};

fn cpu(time: Duration) -> Result<StackProfile> {
    let builder = ProfilerGuardBuilder::default()
        .frequency(HZ)
        .blocklist(&NOT_SAMPLED);
    let guard = builder.build().wrap_err("can't sample the processor")?;
    std::thread::sleep(time);
    let report = guard.report().build_unresolved();
    drop(guard);
    let mut profile = StackProfile::default();
    let samples = report.wrap_err("can't read the samples")?.data;
    ensure!(
        !samples.is_empty(),
        "no sample was taken: the node used next to no processor time in {} s; take a longer profile",
        time.as_secs()
    );
    for (stack, count) in samples {
        let frames = stack.frames.iter().rev();
        // As in the allocator's profiles: the outermost first, and addresses behind the call.
        let addrs = frames.map(|frame| frame.ip() as usize).collect();
        let name = stack.thread_name.get(..stack.thread_name_length);
        let thread = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
        let weight = count as f64 * 1e9 / f64::from(HZ);
        profile.push_stack(WeightedStack { addrs, weight }, Some(&thread));
    }
    Ok(profile)
}

fn heap() -> Result<StackProfile> {
    let control = PROF_CTL.as_ref();
    let mut control = control
        .and_then(|control| control.try_lock().ok())
        .ok_or_else(|| eyre!("the allocator can't be asked now"))?;
    ensure!(
        control.activated(),
        "allocations are not sampled: start the node with --profile-heap-enabled"
    );
    let profile = control.dump_profile();
    profile.map_err(|error| eyre!("the allocator gives no profile: {error:#}"))
}

/// Writes `path.svg` and `path.pb.gz`.
fn write(profile: &StackProfile, path: &Path, kind: Kind) -> Result<Vec<PathBuf>> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).wrap_err_with(|| format!("can't make {}", folder.display()))?;
    let mut options = FlamegraphOptions::default();
    options.title = kind.title.to_owned();
    options.count_name = kind.count.to_owned();
    let graph = profile.to_flamegraph(&mut options);
    let graph = graph.map_err(|error| eyre!("no flame graph: {error:#}"))?;
    let thread = Some("thread".to_owned());
    let proto = profile.to_pprof(kind.sample, kind.period, thread);
    let write = |file: PathBuf, bytes: &[u8]| -> Result<PathBuf> {
        let new = OpenOptions::new().write(true).create_new(true).open(&file);
        new.and_then(|mut new| new.write_all(bytes))
            .wrap_err_with(|| format!("can't write {}", file.display()))?;
        Ok(file)
    };
    let [svg, proto_file] = files(path);
    Ok(vec![write(svg, &graph)?, write(proto_file, &proto)?])
}

/// The files of a profile.
fn files(path: &Path) -> [PathBuf; 2] {
    [".svg", ".pb.gz"].map(|extension| {
        let mut name = OsString::from(path);
        name.push(extension);
        PathBuf::from(name)
    })
}

/// Refuses a profile that would be written over a file, before it is taken.
fn check_free(path: &Path) -> Result<()> {
    for file in files(path) {
        ensure!(
            !file.exists(),
            "{} exists: name another one",
            file.display()
        );
    }
    Ok(())
}

/// Bytes of memory by kind; `sampled` only where allocations are sampled.
fn memory() -> Vec<(&'static str, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| crate::memory::parse_kib(&status, name);
    let mut found = Vec::new();
    for (name, bytes) in [
        ("resident", line("VmRSS:")),
        ("peak", line("VmHWM:")),
        ("anonymous", line("RssAnon:")),
        ("files", line("RssFile:")),
    ] {
        found.extend(bytes.map(|bytes| (name, bytes)));
    }
    // jemalloc updates its statistics at each epoch.
    let _ = epoch::advance();
    for (name, bytes) in [
        ("allocated", stats::allocated::read()),
        ("active", stats::active::read()),
        ("allocatorResident", stats::resident::read()),
        ("allocatorMetadata", stats::metadata::read()),
        ("retained", stats::retained::read()),
    ] {
        found.extend(bytes.map(|bytes| (name, bytes as u64)));
    }
    if let Ok(profile) = heap() {
        let sum: f64 = profile.stacks.iter().map(|(stack, _)| stack.weight).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bytes of memory"
        )]
        found.push(("sampled", sum as u64));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_profile_of_the_processor_names_what_ran_and_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let busy = std::thread::spawn(move || {
            let mut hash = [7; 32];
            while !until.load(Ordering::Relaxed) {
                hash = niwaki_crypto::keccak256(hash).0;
            }
            hash
        });
        let path = folder.path().join("cpu");
        let profile = cpu(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        let profile = profile.unwrap();
        let paths = write(&profile, &path, CPU).unwrap();
        let graph = std::fs::read_to_string(&paths[0]).unwrap();
        assert!(
            graph.contains("<svg") && graph.contains("keccak256"),
            "{graph}"
        );
        // gzip.
        assert_eq!(std::fs::read(&paths[1]).unwrap()[..2], [0x1f, 0x8b]);
        let again = write(&profile, &path, CPU).unwrap_err();
        assert!(format!("{again:#}").contains("cpu.svg"), "{again:#}");
    }

    #[test]
    fn memory_has_what_the_kernel_and_the_allocator_say() {
        let memory = memory();
        let of = |name| {
            memory
                .iter()
                .find(|(one, _)| *one == name)
                .map(|(_, bytes)| *bytes)
        };
        assert!(of("resident") > Some(1 << 20));
        assert!(of("allocated") <= of("active") && of("active") <= of("allocatorResident"));
    }
}
