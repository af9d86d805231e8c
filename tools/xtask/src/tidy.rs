//! `cargo xtask tidy`: rules about the text of the workspace.
//!
//! CONTRIBUTING.md lists the rules by the names used below; exceptions are in `tools/xtask/allow.txt`, each with its
//! reason.

mod allow;
mod language;
#[cfg(test)]
mod tests;

use std::{ops::Range, path::Path};

use crate::{
    finding::Finding,
    source::{files, item_end, line_of, mask, test_regions, words},
};
use allow::Allow;

const FILE_LINES: usize = 1000;
const UNEXPLAINED_FILE_LINES: usize = 600;
const INLINE_TEST_LINES: usize = 150;
const FUNCTION_LINES: usize = 100;
const MARKDOWN_COLUMNS: usize = 160;

/// Rooms without input and output.
const PURE: [&str; 4] = [
    "crates/evm/",
    "crates/execution/",
    "crates/rules/",
    "crates/trie/",
];
const IMPURE_WORDS: [&str; 6] = [
    "std::fs",
    "std::net",
    "std::time",
    "println!",
    "eprintln!",
    "print!",
];
/// Rooms that may have `unsafe` code: native libraries, the interpreter, C's pointers, the storage engine.
const UNSAFE: [&str; 4] = [
    "crates/capi/",
    "crates/crypto/",
    "crates/evm/",
    "crates/storage/",
];

/// Every finding in the workspace at `root`, in order of path and line.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let path = root.join(allow::PATH);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(check_files(&files(root)?, &Allow::parse(&text)?))
}

fn check_files(files: &[(String, String)], allow: &Allow) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut long_functions = Vec::new();
    for (path, text) in files {
        ascii(path, text, &mut findings);
        language::banned_words(path, text, &mut findings);
        if path.ends_with(".md") {
            markdown_width(path, text, &mut findings);
        }
        if path.ends_with(".rs") {
            let masked = mask(text);
            let tests = test_regions(&masked);
            file_shape(path, text, allow, &mut findings);
            inline_tests(path, &masked, &tests, &mut findings);
            forbidden_words(path, &masked, &tests, &mut findings);
            language::tuple_parameters(path, &masked, &mut findings);
            language::file_map(path, text, &masked, &mut findings);
            language::cfg_test(path, &masked, &tests, &mut findings);
            long_functions.extend(functions(path, &masked));
        }
    }
    language::border_traits(files, &mut findings);
    allow.apply_counts(&mut findings);
    allow.check_functions(&long_functions, &mut findings);
    allow.check_tables(files, &mut findings);
    findings.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    findings
}

fn ascii(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        if let Some(char) = line.chars().find(|char| !char.is_ascii()) {
            let advice = format!("U+{:04X} is not ASCII: write it in ASCII", u32::from(char));
            findings.push(Finding::new(path, index + 1, "ascii", advice));
        }
    }
}

fn markdown_width(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let width = line.chars().count();
        if width > MARKDOWN_COLUMNS {
            let advice = format!("{width} columns: break the line at {MARKDOWN_COLUMNS}");
            findings.push(Finding::new(path, index + 1, "markdown-width", advice));
        }
    }
}

fn file_shape(path: &str, text: &str, allow: &Allow, findings: &mut Vec<Finding>) {
    if !text.starts_with("//!") {
        let advice = "open the file with `//!`: what it is, what goes in and out, what it refuses";
        findings.push(Finding::new(path, 1, "file-header", advice.to_owned()));
    }
    let lines = text.lines().count();
    let header = text.lines().take_while(|line| line.starts_with("//!"));
    let explained = header
        .into_iter()
        .any(|line| line.starts_with("//! Length:"));
    if lines > FILE_LINES && !allow.is_table(path) {
        let advice = format!(
            "{lines} lines, the limit is {FILE_LINES}: split it by idea, or, if it is a table, add `table {path}` to {}",
            allow::PATH
        );
        findings.push(Finding::new(path, 1, "file-length", advice));
    } else if lines > UNEXPLAINED_FILE_LINES && !explained && !allow.is_table(path) {
        let advice = format!(
            "{lines} lines, more than {UNEXPLAINED_FILE_LINES}: split it, or say why in the header on a line that begins `//! Length:`"
        );
        findings.push(Finding::new(path, 1, "file-length", advice));
    }
}

fn inline_tests(path: &str, masked: &str, tests: &[Range<usize>], findings: &mut Vec<Finding>) {
    for region in tests {
        let lines = masked[region.clone()].lines().count();
        if lines > INLINE_TEST_LINES {
            let folder = path.trim_end_matches(".rs").trim_end_matches("/mod");
            let advice = format!(
                "{lines} lines of tests, more than {INLINE_TEST_LINES}: move them to {folder}/tests.rs"
            );
            findings.push(Finding::new(
                path,
                line_of(masked, region.start),
                "inline-tests",
                advice,
            ));
        }
    }
}

fn forbidden_words(path: &str, masked: &str, tests: &[Range<usize>], findings: &mut Vec<Finding>) {
    let in_test = |at: usize| is_test_file(path) || tests.iter().any(|test| test.contains(&at));
    let mut forbid = |word: &str, in_tests_too: bool, rule: &'static str, advice: &str| {
        for at in words(masked, word).filter(|&at| in_tests_too || !in_test(at)) {
            let advice = format!("`{word}`: {advice}");
            findings.push(Finding::new(path, line_of(masked, at), rule, advice));
        }
    };
    for word in ["todo!", "unimplemented!", "dbg!"] {
        forbid(
            word,
            true,
            "unfinished",
            "finish the code, or leave the feature out",
        );
    }
    forbid(
        ".unwrap()",
        false,
        "unwrap",
        "return an error, or `expect(\"why it cannot happen\")`",
    );
    if !UNSAFE.iter().any(|room| path.starts_with(room)) {
        forbid(
            "unsafe",
            true,
            "unsafe-room",
            "only capi, crypto, evm and storage may have unsafe code",
        );
    }
    if PURE.iter().any(|room| path.starts_with(room)) {
        for word in IMPURE_WORDS {
            let advice =
                "this room uses no clock, file, socket or terminal: take or return a value";
            forbid(word, false, "pure-room", advice);
        }
    }
    if path.starts_with("crates/") && !path.starts_with("crates/rules/") {
        let advice = "validators' seals are no part of a block's hash: `ChainSpec::header_hash`";
        forbid("hash_slow", false, "header-hash", advice);
    }
}

/// Whether the whole file is compiled for tests, benchmarks or examples only.
fn is_test_file(path: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    name == "tests.rs"
        || folders
            .split('/')
            .any(|f| ["tests", "benches", "examples"].contains(&f))
}

/// A function longer than the limit.
struct LongFunction {
    path: String,
    name: String,
    line: usize,
    lines: usize,
}

fn functions(path: &str, masked: &str) -> Vec<LongFunction> {
    let named = words(masked, "fn").filter_map(|at| {
        let rest = masked[at + 2..].trim_start();
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        (!name.is_empty()).then_some((at, name))
    });
    named
        .map(|(at, name)| {
            let lines = masked[at..item_end(masked, at)].lines().count();
            LongFunction {
                path: path.to_owned(),
                name,
                line: line_of(masked, at),
                lines,
            }
        })
        .filter(|function| function.lines > FUNCTION_LINES)
        .collect()
}
