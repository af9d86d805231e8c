//! `niwaki doctor`: whether the machine, the disk and the network suit the node, and what to do where they do not.
//!
//! Each check is a function that returns [`Finding`]s. The ones that take no time also run when the node starts, and are logged where they
//! find something. Nothing is changed, but for a file that the disk test writes into the data path and removes.
//!
//! | file | what it checks |
//! |---|---|
//! | `finding` | what a check says, as a table and as JSON |
//! | `machine` | processor, memory, swap, huge pages, open files, other processes |
//! | `mount` | the file system and the disk of the data path, free space |
//! | `speed` | how fast that disk is |
//! | `files` | rights of secret files; the database |
//! | `network` | ports, the address, the clock |

mod files;
mod finding;
mod machine;
mod mount;
mod network;
mod speed;

use crate::Outcome;
use crate::open::data_path;
use crate::options::{DoctorOptions, Options};
use crate::run::OPERATOR_SOCKET;
use eyre::Result;
use finding::{Finding, Grade};
use machine::Machine;
use niwaki_rules::Network;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Runs all checks, and prints what they found.
pub(crate) fn run(options: &Options, doctor: &DoctorOptions) -> Result<Outcome> {
    let data_path = data_path(options)?;
    let is_running = UnixStream::connect(data_path.join(OPERATOR_SOCKET)).is_ok();
    let mut findings = quick(options, &data_path);
    findings.push(machine::others(&Machine::here()));
    findings.extend(network::ports(options, &data_path, is_running));
    findings.push(network::clock(&doctor.ntp_server));
    findings.push(files::database(options, &data_path, is_running));
    if doctor.disk_seconds > 0 {
        findings.extend(speed::check(
            existing(&data_path),
            doctor.disk_seconds,
            is_running,
        ));
    }
    match doctor.json {
        true => println!("{}", finding::as_json(&findings)),
        false => print!("{}", finding::as_table(&findings)),
    }
    let has_failed = findings.iter().any(|finding| finding.grade == Grade::Fail);
    Ok(match has_failed {
        true => Outcome::ProblemsFound,
        false => Outcome::Done,
    })
}

/// At the start of the node: one line for each thing that is wrong.
pub(crate) fn log_problems(options: &Options, data_path: &Path) {
    for finding in quick(options, data_path) {
        if matches!(finding.grade, Grade::Warn | Grade::Fail) {
            let mend = finding.mend.unwrap_or_default();
            warn!(check = finding.check, "{}: {mend}", finding.found);
        }
    }
}

/// The checks that take no time.
fn quick(options: &Options, data_path: &Path) -> Vec<Finding> {
    let machine = Machine::here();
    let folder = existing(data_path);
    let mut findings = vec![
        machine::processor(is_public(options)),
        machine::memory(&machine, crate::open::memory_budget(options)),
        machine::swap(&machine),
        machine::huge_pages(&machine),
        machine::open_files(options),
    ];
    findings.extend(mount::check(&machine, &folder));
    findings.push(mount::free_space(&folder));
    findings.extend(files::secrets(options, data_path));
    findings.push(network::address(options));
    findings
}

/// Whether the node joins a network with consensus clients that all may join.
fn is_public(options: &Options) -> bool {
    options.genesis_file.is_none() && options.network != Some(Network::Dev)
}

/// The data path, or the nearest folder above it that exists.
fn existing(data_path: &Path) -> PathBuf {
    let path = std::path::absolute(data_path).unwrap_or_else(|_| data_path.to_owned());
    let found = path.ancestors().find(|folder| folder.is_dir());
    found.unwrap_or(Path::new("/")).to_owned()
}
