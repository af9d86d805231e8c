//! Puts the commit that is built into the program: `NIWAKI_COMMIT` where a package sets it, else what git says.
//! Without either, as from an archive, it is absent.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=NIWAKI_COMMIT");
    // Every commit and checkout adds a line to the log of HEAD.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let given = std::env::var("NIWAKI_COMMIT").ok();
    let commit = given.filter(|commit| !commit.is_empty());
    let mut version = env!("CARGO_PKG_VERSION").to_owned();
    if let Some(commit) = commit.or_else(|| git(&["rev-parse", "HEAD"])) {
        println!("cargo::rustc-env=NIWAKI_COMMIT={commit}");
        version = format!("{version}-{}", commit.get(..8).unwrap_or(&commit));
    }
    println!("cargo::rustc-env=NIWAKI_VERSION={version}");
}

/// What git prints, if there is a git and this is a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
