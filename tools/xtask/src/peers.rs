//! `cargo xtask peers`: the clients we are measured against, at pinned versions.
//!
//! Builds each from source with `go install`, unless a copy of the right version is already there.
//! It starts none of them.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

/// A program and the version of go-ethereum it comes from.
struct Peer {
    program: &'static str,
    version: &'static str,
}

const MODULE: &str = "github.com/ethereum/go-ethereum";
/// `geth` stays at 1.17.8: the next two releases need a module that the proxy does not have.
const PEERS: [Peer; 3] = [
    Peer {
        program: "geth",
        version: "v1.17.8",
    },
    Peer {
        program: "evm",
        version: "v1.17.10",
    },
    Peer {
        program: "devp2p",
        version: "v1.17.10",
    },
];

/// The folder of peers by default: `peers` in the target directory.
pub(crate) fn default_bin_dir(root: &Path) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("peers")
}

/// Installs what is missing into `bin_dir` and prints the path of each program.
pub(crate) fn install(bin_dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(bin_dir).map_err(|e| format!("{}: {e}", bin_dir.display()))?;
    let bin_dir = bin_dir
        .canonicalize()
        .map_err(|e| format!("{}: {e}", bin_dir.display()))?;
    let go_path = go(["env", "GOPATH"], None)?;
    let places = [bin_dir.clone(), Path::new(go_path.trim()).join("bin")];
    for Peer { program, version } in PEERS {
        let ready = places
            .iter()
            .map(|place| place.join(program))
            .find(|path| path.is_file() && installed_version(path).as_deref() == Some(version));
        let path = match ready {
            Some(path) => path,
            None => {
                println!("building {program} {version}: this takes minutes");
                let package = format!("{MODULE}/cmd/{program}@{version}");
                go(["install", &package], Some(&bin_dir))?;
                bin_dir.join(program)
            }
        };
        println!("{program} {version}: {}", path.display());
    }
    Ok(())
}

/// Runs `go` and returns its output.
fn go<const N: usize>(arguments: [&str; N], bin_dir: Option<&Path>) -> Result<String, String> {
    let mut command = Command::new("go");
    command.args(arguments);
    if let Some(bin_dir) = bin_dir {
        command.env("GOBIN", bin_dir);
    }
    let output = command.output().map_err(|e| {
        format!("go cannot be run ({e}): peers are built from source; install go from https://go.dev/dl and run this again")
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!(
        "`go {}` failed ({}):\n{reason}",
        arguments.join(" "),
        output.status
    ))
}

/// The version of go-ethereum that a program was built from, if it is a go-ethereum program.
fn installed_version(program: &Path) -> Option<String> {
    let arguments = [OsStr::new("version"), OsStr::new("-m"), program.as_os_str()];
    let output = Command::new("go").args(arguments).output().ok()?;
    module_version(&String::from_utf8_lossy(&output.stdout)).map(str::to_owned)
}

/// The version on the `mod` line of `go version -m`.
fn module_version(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let ours = words.next() == Some("mod") && words.next() == Some(MODULE);
        ours.then(|| words.next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_module_not_of_a_dependency() {
        let line = |kind: &str, version: &str| format!("\t{kind}\t{MODULE}\t{version}\th1:x=\n");
        let text = format!(
            "geth: go1.26\n{}{}",
            line("dep", "v1.0.0"),
            line("mod", "v1.17.8")
        );
        assert_eq!(module_version(&text), Some("v1.17.8"));
        assert_eq!(module_version(&line("dep", "v1.0.0")), None);
    }

    #[test]
    fn a_program_that_is_not_there_has_no_version() {
        assert_eq!(installed_version(Path::new("/nonexistent/geth")), None);
    }

    #[test]
    fn an_error_of_go_names_the_command() {
        let message = go(["no-such-command"], None).unwrap_err();
        assert!(message.contains("go"), "{message}");
    }
}
