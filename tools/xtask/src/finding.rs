//! A broken rule: where it is broken and how to fix that.

use std::fmt;

/// Printed as `file:line: rule: what to do`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Path from the workspace root, with `/` between its parts.
    pub path: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Short name of the rule, as CONTRIBUTING.md lists it.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub advice: String,
}

impl Finding {
    /// A finding of `rule` at `path:line`.
    pub(crate) fn new(path: &str, line: usize, rule: &'static str, advice: String) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            advice,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.advice
        )
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! What the tests of every rule use.

    use super::Finding;

    /// The rules that a set of findings breaks, in order.
    pub(crate) fn rules(findings: &[Finding]) -> Vec<&'static str> {
        findings.iter().map(|finding| finding.rule).collect()
    }
}
