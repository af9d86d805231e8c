//! `docs/besu-flags.md` says of each flag of Besu 26.8.0 what it does here. `NIWAKI_WRITE_DOCS=1 cargo test` writes it.

use crate::config::flags::KnownFlag;
use crate::options::Options;
use clap::CommandFactory;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const WIDTH: usize = 156;
const HEAD: &str = "# Flags of Besu\n
Every flag that Besu 26.8.0 lists in `--help` and `--Xhelp`, on the command line, as a variable (`BESU_..` or `NIWAKI_..`) or in a configuration file. None is
refused: a test starts a node with each. A flag without effect is logged once, with the reason; as a warning (here with *) if an operator may rely on what it
does in Besu.\n";

/// Words after each other, broken into lines.
fn wrapped(out: &mut String, first: &str, words: &[String]) {
    let mut line = first.to_owned();
    for word in words {
        if line.chars().count() + word.chars().count() >= WIDTH {
            let _ = writeln!(out, "{}", line.trim_end());
            line = " ".repeat(first.len());
        }
        line.push_str(word);
        line.push(' ');
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn joined(flags: &[String]) -> Vec<String> {
    let last = flags.len() - 1;
    let comma = |at: usize| if at == last { "" } else { "," };
    let flags = flags.iter().enumerate();
    flags
        .map(|(at, flag)| format!("{flag}{}", comma(at)))
        .collect()
}

/// The text of the page for these flags.
fn page(names: &[&str]) -> String {
    let command = Options::command();
    let (mut done, mut hidden) = (Vec::new(), Vec::new());
    let mut without: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in names {
        match KnownFlag::find(&command, name) {
            None if matches!(*name, "help" | "version") => done.push(format!("`--{name}`")),
            None => panic!("--{name} is not known"),
            Some(KnownFlag::Flag(arg)) if arg.is_hide_set() => hidden.push(format!("`--{name}`")),
            Some(KnownFlag::Flag(_)) => done.push(format!("`--{name}`")),
            Some(KnownFlag::Besu(row)) => {
                let mark = if row.harmless.is_some() { "*" } else { "" };
                let flags = without.entry(row.why).or_default();
                flags.push(format!("`--{name}`{mark}"));
            }
        }
    }
    let mut out = HEAD.to_owned();
    let _ = writeln!(out, "\n## Do what they do in Besu: {}\n", done.len());
    wrapped(&mut out, "", &joined(&done));
    let count = without.values().map(Vec::len).sum::<usize>() + hidden.len();
    let _ = writeln!(out, "\n## Taken without effect: {count}\n");
    if !hidden.is_empty() {
        without.insert("what they switch is always on here", hidden);
    }
    for (why, flags) in &without {
        let why = why.split(' ').map(str::to_owned);
        let mut words: Vec<String> = why.collect();
        if let Some(last) = words.last_mut() {
            last.push(':');
        }
        words.extend(joined(flags));
        wrapped(&mut out, "- ", &words);
    }
    out
}

#[test]
fn the_page_of_besus_flags_says_what_each_does() {
    let text = include_str!("../../../../../testdata/besu/flags.txt");
    let lines = text.lines().filter_map(|line| line.strip_prefix("--"));
    let names: Vec<&str> = lines
        .map(|line| line.split(['=', ' ']).next().unwrap_or(line))
        .collect();
    assert_eq!(names.len(), 293);
    let page = page(&names);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/besu-flags.md");
    if std::env::var_os("NIWAKI_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "NIWAKI_WRITE_DOCS=1 cargo test writes docs/besu-flags.md anew"
    );
}
