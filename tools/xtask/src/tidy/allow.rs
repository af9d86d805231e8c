//! The exceptions of `tools/xtask/allow.txt`: long tables, long functions, and how often a rule may be broken in a folder.
//!
//! An exception that no longer applies is itself a finding, so the list shrinks.

use super::{FILE_LINES, FUNCTION_LINES, LongFunction};
use crate::finding::Finding;

/// Where the exceptions are, from the workspace root.
pub(crate) const PATH: &str = "tools/xtask/allow.txt";

/// The exceptions, each with its line.
#[derive(Debug, Default)]
pub(crate) struct Allow {
    tables: Vec<(usize, String)>,
    functions: Vec<(usize, String, String, usize)>,
    counts: Vec<Count>,
}

/// A ratchet: the number of findings of a rule that is accepted in a folder.
#[derive(Debug)]
struct Count {
    line: usize,
    rule: String,
    folder: String,
    findings: usize,
}

impl Allow {
    /// Reads the list; a line that cannot be read, or gives no reason, is an error.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut allow = Self::default();
        for (index, line) in text.lines().enumerate() {
            let (entry, reason) = line.split_once('#').unwrap_or((line, ""));
            let words: Vec<&str> = entry.split_whitespace().collect();
            let number = index + 1;
            if words.is_empty() {
                continue;
            }
            if reason.trim().is_empty() {
                return Err(format!(
                    "{PATH}:{number}: no reason: end the line with `# why`"
                ));
            }
            match words[..] {
                ["table", path] => allow.tables.push((number, path.to_owned())),
                ["function", path, name, lines] => {
                    let lines = lines.parse().map_err(|_| {
                        format!("{PATH}:{number}: `{lines}` is not a number of lines")
                    })?;
                    allow
                        .functions
                        .push((number, path.to_owned(), name.to_owned(), lines));
                }
                ["count", rule, folder, count] => {
                    let findings = count
                        .parse()
                        .map_err(|_| format!("{PATH}:{number}: `{count}` is not a number"))?;
                    allow.counts.push(Count {
                        line: number,
                        rule: rule.to_owned(),
                        folder: folder.to_owned(),
                        findings,
                    });
                }
                _ => {
                    return Err(format!(
                        "{PATH}:{number}: expected `table PATH`, `function PATH NAME LINES` or `count RULE FOLDER FINDINGS`"
                    ));
                }
            }
        }
        Ok(allow)
    }

    /// Drops the findings that a ratchet accepts, and finds ratchets to lower or drop.
    pub(super) fn apply_counts(&self, findings: &mut Vec<Finding>) {
        for count in &self.counts {
            let is_counted = |finding: &Finding| {
                finding.rule == count.rule && finding.path.starts_with(&count.folder)
            };
            let found = findings
                .iter()
                .filter(|finding| is_counted(finding))
                .count();
            if found <= count.findings {
                findings.retain(|finding| !is_counted(finding));
            }
            if found < count.findings {
                let (rule, folder) = (&count.rule, &count.folder);
                let advice = match found {
                    0 => format!("no `{rule}` is left in {folder}: drop this line"),
                    _ => format!("{found} `{rule}` are left in {folder}: lower the number"),
                };
                findings.push(Finding::new(PATH, count.line, "stale-exception", advice));
            }
        }
    }

    /// Whether the file may exceed the limit of lines.
    pub(super) fn is_table(&self, path: &str) -> bool {
        self.tables.iter().any(|(_, table)| table == path)
    }

    /// Finds tables listed here that are gone or within the limit.
    pub(super) fn check_tables(&self, files: &[(String, String)], findings: &mut Vec<Finding>) {
        for (line, path) in &self.tables {
            let file = files.iter().find(|(file, _)| file == path);
            if file.is_none_or(|(_, text)| text.lines().count() <= FILE_LINES) {
                let advice = format!("{path} is gone or within {FILE_LINES} lines: drop this line");
                findings.push(Finding::new(PATH, *line, "stale-exception", advice));
            }
        }
    }

    /// Finds long functions without an exception, or longer than theirs, and exceptions to lower or drop.
    pub(super) fn check_functions(&self, long: &[LongFunction], findings: &mut Vec<Finding>) {
        for function in long {
            let LongFunction {
                path,
                name,
                line,
                lines,
            } = function;
            let limit = self
                .functions
                .iter()
                .find(|(_, listed, listed_name, _)| listed == path && listed_name == name)
                .map_or(FUNCTION_LINES, |(_, _, _, limit)| *limit);
            if *lines > limit {
                let advice = format!(
                    "`{name}` has {lines} lines, the limit is {limit}: cut it up, or list it with a reason in {PATH}"
                );
                findings.push(Finding::new(path, *line, "function-length", advice));
            }
        }
        for (line, path, name, limit) in &self.functions {
            let same = long.iter().filter(|f| f.path == *path && f.name == *name);
            let advice = match same.map(|function| function.lines).max() {
                None => format!("`{name}` in {path} is gone or short enough: drop this line"),
                Some(lines) if lines < *limit => {
                    format!("`{name}` in {path} has only {lines} lines: lower the number")
                }
                Some(_) => continue,
            };
            findings.push(Finding::new(PATH, *line, "stale-exception", advice));
        }
    }
}
