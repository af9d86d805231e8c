//! `docs/besu-flags.md` says of each flag of Besu 26.8.0 what it does here, `docs/flags.md` of each flag of ours.
//! `NIWAKI_WRITE_DOCS=1 cargo test` writes them.

use crate::config::flags::KnownFlag;
use crate::options::Options;
use clap::{Arg, CommandFactory};
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
    check("besu-flags.md", &page(&names));
}

/// Compares a page with the file in `docs`, or writes it there.
#[track_caller]
fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    if std::env::var_os("NIWAKI_WRITE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "NIWAKI_WRITE_DOCS=1 cargo test writes docs/{name} anew"
    );
}

/// A flag with its value, its default and its help.
fn flag(out: &mut String, arg: &Arg) {
    let Some(long) = arg.get_long() else { return };
    let value = arg.get_value_names().unwrap_or_default().first();
    let value = value.filter(|_| arg.get_action().takes_values());
    let value = value.map_or(String::new(), |value| format!("={value}"));
    let defaults = arg.get_default_values().iter();
    let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
    let mut help = arg.get_help().map_or(String::new(), ToString::to_string);
    if !defaults.is_empty() && arg.get_action().takes_values() {
        let _ = write!(help, " [default: {}]", defaults.join(","));
    }
    let mut words = vec![format!("`--{long}{value}`")];
    words.extend(help.split_whitespace().map(str::to_owned));
    wrapped(out, "- ", &words);
}

/// The text of the page of our own flags.
fn flags_page() -> String {
    let mut command = Options::command();
    command.build();
    let mut headings: Vec<(&str, Vec<&Arg>)> = Vec::new();
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let heading = arg.get_help_heading().unwrap_or("General");
        match headings.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, args)) => args.push(arg),
            None => headings.push((heading, vec![arg])),
        }
    }
    let mut out = "# Flags\n\nOf the node: what `niwaki --help` lists. A flag is also a variable \
                   (`NIWAKI_RPC_HTTP_PORT`) and a key of the configuration file (`rpc-http-port`): \
                   [where\nflags come from](node.md#where-flags-come-from). `niwaki COMMAND --help` \
                   has those of a command.\n"
        .to_owned();
    for (heading, args) in headings {
        let _ = writeln!(out, "\n## {heading}\n");
        args.into_iter().for_each(|arg| flag(&mut out, arg));
    }
    let _ = writeln!(out, "\n## Commands\n");
    for command in command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        let about = command
            .get_about()
            .map_or(String::new(), ToString::to_string);
        let mut words = vec![format!("`niwaki {}`", command.get_name())];
        words.extend(about.split_whitespace().map(str::to_owned));
        wrapped(&mut out, "- ", &words);
    }
    out
}

#[test]
fn the_page_of_flags_says_what_each_does() {
    check("flags.md", &flags_page());
}

#[test]
fn the_flags_that_take_the_place_of_geths_exist() {
    let command = Options::command();
    let page = include_str!("../../../../../docs/moving.md");
    let rows = page.lines().filter(|line| line.starts_with("| `--"));
    let ours = rows.map(|row| row.split('|').nth(2).expect("two columns"));
    let flags = ours.flat_map(|cell| cell.split('`').filter_map(|word| word.strip_prefix("--")));
    let flags: Vec<&str> = flags
        .map(|flag| flag.split('=').next().unwrap_or(flag))
        .collect();
    assert!(flags.len() > 40, "{flags:?}");
    for flag in flags {
        assert!(
            matches!(KnownFlag::find(&command, flag), Some(KnownFlag::Flag(_))),
            "--{flag}"
        );
    }
}
