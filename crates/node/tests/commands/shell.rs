//! Shell completions and man pages.

use crate::support::TestDir;
use std::process::Command;

#[test]
fn completions_name_every_command_and_flag_for_each_shell() {
    let help = TestDir::new().run("--help", &[]).succeeded().out;
    let flags: Vec<&str> = help
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("--"))
        .map(|word| {
            word.split(['=', '[', ']', ',', '.', ')', ';', ':'])
                .next()
                .unwrap_or(word)
        })
        .collect();
    assert!(flags.len() > 50, "{flags:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let words = format!("completions {shell}");
        let text = TestDir::new().run(&words, &[]).succeeded().out;
        for word in ["blocks", "storage", "validate-config", "restore"]
            .iter()
            .chain(&flags)
        {
            assert!(text.contains(word), "{shell} misses {word}");
        }
    }
    let result = TestDir::new().run("completions csh", &[]);
    assert!(
        result.code == Some(2) && result.errors.contains("bash"),
        "{result:?}"
    );
}

#[test]
fn bash_accepts_its_completion_script() {
    let dir = TestDir::new();
    let text = dir.run("completions bash", &[]).succeeded().out;
    let file = dir.file("niwaki.bash", text.as_bytes());
    let script = "source \"$1\"; COMP_WORDS=(niwaki stor); COMP_CWORD=1; \
                  _niwaki niwaki stor niwaki; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["-c", script, "bash"])
        .arg(file)
        .output();
    let Ok(output) = output else {
        return; // No bash, nothing to show.
    };
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "storage",
        "{output:?}"
    );
}

#[test]
fn man_writes_one_page_per_command() {
    let dir = TestDir::new();
    let page = dir.run("man", &[]).succeeded().out;
    for word in [".TH niwaki 1", "rpc\\-http\\-port", "TLS"] {
        assert!(page.contains(word), "no {word}");
    }
    let folder = dir.path("pages");
    dir.run("man --to", &[&folder]).succeeded();
    let names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in [
        "niwaki.1",
        "niwaki-storage-backup.1",
        "niwaki-blocks-import.1",
    ] {
        assert!(
            names.iter().any(|found| found == name),
            "no {name} in {names:?}"
        );
    }
    let file = dir.file("file", b"");
    dir.run("man --to", &[&file])
        .failed(&["can't write the manual", "file"]);
}
