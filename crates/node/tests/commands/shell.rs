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

#[test]
fn the_unstable_flags_are_listed() {
    let help = TestDir::new().run("--help", &[]).succeeded();
    assert!(help.out.contains("--Xhelp"));
    let listed = TestDir::new().run("--Xhelp", &[]).succeeded();
    assert_eq!(TestDir::new().run("-X", &[]).succeeded().out, listed.out);
    for flag in [
        "--Xhttp-timeout-seconds=<SECONDS>",
        "--Xrpc-ipc-enabled=<BOOL>",
        "--Xeth-capability-min",
    ] {
        assert!(listed.out.contains(flag), "{flag}: {}", listed.out);
    }
    assert!(!listed.out.contains("--rpc-http-port"));
}

#[test]
fn transactions_are_parsed_by_line() {
    let dir = TestDir::new();
    // EIP-155's own example.
    let lines = "# a comment\n\nf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83\n00\n";
    let file = dir.file("corpus", lines.as_bytes());
    let parsed = dir.run("txparse --corpus-file", &[&file]).succeeded();
    let lines: Vec<&str> = parsed.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", parsed.out);
    assert_eq!(lines[0], "0x9d8a62f656a8d1615c1294fd71e9cfb3e4855a4f");
    assert!(lines[1].starts_with("err: "));
    dir.run("txparse --corpus-file", &[&dir.path("none")])
        .failed(&["none"]);
}

#[test]
fn the_parts_of_the_database_are_listed_with_their_sizes() {
    let dir = TestDir::new();
    dir.import(&crate::support::chain_file()).succeeded();
    let usage = dir.run("storage rocksdb usage", &[]).succeeded();
    assert!(
        usage.out.lines().count() > 10 && usage.out.contains("\nall "),
        "{}",
        usage.out
    );
    let one = dir
        .run("storage rocksdb usage --column-family-filter headers", &[])
        .succeeded();
    assert_eq!(one.out.lines().count(), 3, "{}", one.out);
    let stats = dir.run("storage rocksdb x-stats", &[]).succeeded();
    assert!(stats.out.contains("Compaction Stats"), "{}", stats.out);
}
