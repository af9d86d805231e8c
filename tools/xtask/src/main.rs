//! `cargo xtask`: checks the rules of CONTRIBUTING.md and installs other clients.
//!
//! Reads the sources, the manifests and two tables (ARCHITECTURE.md, docs/dependencies.md) and prints what breaks a rule
//! as `file:line: rule: what to do`. It has no dependency but the standard library, so that it builds in a second.
//!
//! | file | what it is |
//! |---|---|
//! | `tidy` | house rules over the text of the workspace |
//! | `deps` | which crate may import which, read by `manifest` and `markdown` |
//! | `handlers` | whether the interpreter's handlers end in jumps |
//! | `peers` | clients to be measured against |
//! | `finding`, `source` | a broken rule, and files without comments and literals |
#![forbid(unsafe_code)]

mod deps;
mod finding;
mod handlers;
mod manifest;
mod markdown;
mod peers;
mod source;
mod tidy;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use finding::Finding;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                   check the sources against the house rules
  handlers PROGRAM       check that the interpreter's handlers end in jumps in a release build
  deps                   check every manifest against ARCHITECTURE.md and docs/dependencies.md
  peers [--bin-dir DIR]  install the clients we are measured against, if missing (needs go)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    match words {
        ["tidy"] => report("tidy", &tidy::check(&workspace_root()?)?),
        ["deps"] => report("deps", &deps::check(&workspace_root()?)?),
        ["handlers", program] => {
            println!("{}", handlers::check(Path::new(program))?);
            Ok(())
        }
        ["peers"] => peers::install(&peers::default_bin_dir(&workspace_root()?)),
        ["peers", "--bin-dir", dir] => peers::install(Path::new(dir)),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        [] => Err(USAGE.to_owned()),
        _ => Err(format!("unknown command `{}`\n\n{USAGE}", words.join(" "))),
    }
}

/// Prints the findings and turns them into success or failure.
fn report(command: &str, findings: &[Finding]) -> Result<(), String> {
    for finding in findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("{command}: in order");
            Ok(())
        }
        n => Err(format!("{command}: {n} to fix")),
    }
}

/// The nearest folder, from the current one upwards, whose `Cargo.toml` declares the workspace.
fn workspace_root() -> Result<PathBuf, String> {
    let here = std::env::current_dir().map_err(|e| format!("no current folder: {e}"))?;
    here.ancestors()
        .find(|folder| {
            std::fs::read_to_string(folder.join("Cargo.toml"))
                .is_ok_and(|text| text.lines().any(|line| line.trim() == "[workspace]"))
        })
        .map(Path::to_path_buf)
        .ok_or_else(|| {
            format!(
                "{} is in no cargo workspace: run xtask inside one",
                here.display()
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_house_keeps_its_own_rules() {
        let root = workspace_root().unwrap();
        let mut findings = tidy::check(&root).unwrap();
        findings.extend(deps::check(&root).unwrap());
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }

    #[test]
    fn an_unknown_command_is_an_error_that_shows_the_usage() {
        let message = run(&["tidi"]).unwrap_err();
        assert!(
            message.contains("`tidi`") && message.contains("usage:"),
            "{message}"
        );
    }
}
