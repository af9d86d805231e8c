//! The rules about names and shapes: `words`, `tuple-parameter`, `file-map`, `cfg-test`, `border-traits`.

use std::ops::Range;

use super::is_test_file;
use crate::{
    finding::Finding,
    source::{item_end, line_of, mask, words},
};

/// Words that hide who does what, or that no engineer would search for, and what to write instead.
const BANNED: [(&str, &str); 4] = [
    (
        "whoever whomever nobody somebody anybody",
        "name the thread, the caller or the client",
    ),
    ("untold", "dirty"),
    ("errand errands", "idle work, a task"),
    ("lots", "batches; of many, give the number"),
];

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const BORDER_TRAITS: &str = "- Traits that cross a border:";

/// Finds banned words in identifiers, comments and documents.
pub(super) fn banned_words(path: &str, text: &str, findings: &mut Vec<Finding>) {
    // This file and its tests name them.
    if path.starts_with("tools/xtask/") {
        return;
    }
    for (index, line) in text.lines().enumerate() {
        for word in line.split(|char: char| !char.is_ascii_alphanumeric()) {
            let is_banned = |banned: &str| word.eq_ignore_ascii_case(banned);
            let banned = BANNED
                .iter()
                .find(|(banned, _)| banned.split(' ').any(is_banned));
            if let Some((_, instead)) = banned {
                let advice = format!("`{word}`: {instead}");
                findings.push(Finding::new(path, index + 1, "words", advice));
            }
        }
    }
}

/// Finds functions with a tuple pattern as a parameter.
pub(super) fn tuple_parameters(path: &str, masked: &str, findings: &mut Vec<Finding>) {
    for at in words(masked, "fn") {
        for parameter in parameters(masked, at) {
            let pattern = parameter.trim_start();
            let is_tuple = pattern.starts_with('(')
                && split_at_depth_0(&pattern[1..], b',').len() > 1
                && closing(pattern)
                    .is_some_and(|end| pattern[end + 1..].trim_start().starts_with(':'));
            if is_tuple {
                let advice =
                    "a tuple as a parameter: give its parts their own, or a struct with a name";
                findings.push(Finding::new(
                    path,
                    line_of(masked, at),
                    "tuple-parameter",
                    advice.to_owned(),
                ));
            }
        }
    }
}

/// The parameters of the function whose `fn` is at `at`; none of a function type.
fn parameters(masked: &str, at: usize) -> Vec<&str> {
    let rest = &masked[at + 2..];
    let name = rest.trim_start().bytes().next();
    if !name.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_') {
        return Vec::new();
    }
    // Past the generic parameters, whose bounds may hold parentheses.
    let mut depth = 0_usize;
    let mut previous = 0;
    let open = rest.bytes().position(|byte| {
        match byte {
            b'<' => depth += 1,
            b'>' if previous != b'-' => depth = depth.saturating_sub(1),
            b'(' if depth == 0 => return true,
            _ => {}
        }
        previous = byte;
        false
    });
    let Some(open) = open else {
        return Vec::new();
    };
    match closing(&rest[open..]) {
        Some(end) => split_at_depth_0(&rest[open + 1..open + end], b','),
        None => Vec::new(),
    }
}

/// The offset of the bracket that closes the one at the beginning of `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    text.bytes().position(|byte| {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

/// The parts of `text` between separators that no bracket encloses, up to a bracket that closes one before it.
fn split_at_depth_0(text: &str, separator: u8) -> Vec<&str> {
    let (mut parts, mut depth, mut start, mut previous) = (Vec::new(), 0_usize, 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => {
                parts.push(&text[start..at]);
                return parts;
            }
            b')' | b']' | b'}' => depth -= 1,
            b'>' if previous != b'-' => depth = depth.saturating_sub(1),
            byte if byte == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        previous = byte;
    }
    parts.push(&text[start..]);
    parts
}

/// Finds modules of a crate that the header of its `lib.rs` (or `main.rs`) does not name as `` `module` `` or `` `module/ ``.
pub(super) fn file_map(path: &str, text: &str, masked: &str, findings: &mut Vec<Finding>) {
    let mut parts = path.split('/');
    let is_root = parts.clone().count() == 4
        && parts.nth(2) == Some("src")
        && matches!(parts.next(), Some("lib.rs" | "main.rs"));
    if !is_root {
        return;
    }
    let header: String = text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect();
    for at in words(masked, "mod") {
        let end = item_end(masked, at);
        let name = masked[at + 3..end].trim_end_matches(';').trim();
        let is_file = masked[..end].ends_with(';');
        let is_named = ["`", "/"].map(|end| header.contains(&format!("`{name}{end}")));
        if is_file && name != "tests" && !is_named.contains(&true) {
            let advice = format!("`{name}` is not in the map of the header: say what it is");
            findings.push(Finding::new(path, line_of(masked, at), "file-map", advice));
        }
    }
}

/// Finds product code that differs in tests: `cfg!(test)`, and `#[cfg(test)]` on anything but a module.
pub(super) fn cfg_test(
    path: &str,
    masked: &str,
    tests: &[Range<usize>],
    findings: &mut Vec<Finding>,
) {
    if is_test_file(path) {
        return;
    }
    let in_test_module = |at: usize| {
        let regions = tests.iter().filter(|region| region.contains(&at));
        regions.count() > usize::from(masked[at..].starts_with("#[cfg(test)]"))
    };
    let mut find = |at: usize, advice: &str| {
        let advice = format!("{advice}: take a value that tests choose");
        findings.push(Finding::new(path, line_of(masked, at), "cfg-test", advice));
    };
    for at in words(masked, "cfg!(test)").filter(|at| !in_test_module(*at)) {
        find(at, "`cfg!(test)`");
    }
    for (at, mark) in masked.match_indices("#[cfg(test)]") {
        let item = masked[at + mark.len()..].trim_start();
        let item = item
            .trim_start_matches("pub")
            .trim_start_matches("(crate)")
            .trim_start();
        if !item.starts_with("mod ") && !in_test_module(at) {
            find(at, "`#[cfg(test)]` on an item that is no module");
        }
    }
}

/// Compares the list of ARCHITECTURE.md with the public traits of the crates.
pub(super) fn border_traits(files: &[(String, String)], findings: &mut Vec<Finding>) {
    let Some((_, text)) = files.iter().find(|(path, _)| path == ARCHITECTURE) else {
        return;
    };
    let Some(at) = text.find(BORDER_TRAITS) else {
        let advice = format!("no line begins `{BORDER_TRAITS}`");
        findings.push(Finding::new(ARCHITECTURE, 1, "border-traits", advice));
        return;
    };
    let entry = &text[at + BORDER_TRAITS.len()..];
    let entry = &entry[..entry.find("\n- ").unwrap_or(entry.len())];
    let quoted = entry.split('`').skip(1).step_by(2);
    let mut listed: Vec<&str> = quoted
        .filter(|word| word.starts_with(|char: char| char.is_ascii_uppercase()))
        .collect();
    for (path, text) in files {
        if !path.starts_with("crates/") || !path.ends_with(".rs") || is_test_file(path) {
            continue;
        }
        let masked = mask(text);
        for (at, mark) in masked.match_indices("pub trait ") {
            let rest = &masked[at + mark.len()..];
            let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            match listed.iter().position(|known| *known == name) {
                Some(known) => drop(listed.swap_remove(known)),
                None => {
                    let advice = format!(
                        "`{name}` crosses a border: add it to `{BORDER_TRAITS}` in {ARCHITECTURE} and say why"
                    );
                    let line = line_of(&masked, at);
                    findings.push(Finding::new(path, line, "border-traits", advice));
                }
            }
        }
    }
    for name in listed {
        let advice = format!("no crate has a public trait `{name}`");
        let line = line_of(text, at);
        findings.push(Finding::new(ARCHITECTURE, line, "border-traits", advice));
    }
}
