//! What a check says.

use serde_json::{Value, json};
use std::fmt::Write;

/// How serious it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grade {
    Pass,
    /// The node works, but slower or less safely than it could.
    Warn,
    /// The node does not start, does not keep up, or may lose data.
    Fail,
    /// It could not be found out.
    Unknown,
}

impl Grade {
    fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
            Self::Unknown => "?",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) grade: Grade,
    pub(super) found: String,
    /// What to do about it.
    pub(super) mend: Option<String>,
}

impl Finding {
    pub(super) fn pass(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Grade::Pass, found, None)
    }

    pub(super) fn unknown(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Grade::Unknown, found, None)
    }

    pub(super) fn warn(
        check: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::new(check, Grade::Warn, found, Some(mend.into()))
    }

    pub(super) fn fail(
        check: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::new(check, Grade::Fail, found, Some(mend.into()))
    }

    fn new(
        check: &'static str,
        grade: Grade,
        found: impl Into<String>,
        mend: Option<String>,
    ) -> Self {
        Self {
            check,
            grade,
            found: found.into(),
            mend,
        }
    }
}

/// One line for each finding, and one below it that says what to do.
pub(super) fn as_table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max();
    let width = width.unwrap_or(0);
    let mut table = String::new();
    for finding in findings {
        let (grade, check) = (finding.grade.word(), finding.check);
        // Writing to a string does not fail.
        let _ = writeln!(table, "{grade:4}  {check:width$}  {}", finding.found);
        if let Some(mend) = &finding.mend {
            let _ = writeln!(table, "      {:width$}  -> {mend}", "");
        }
    }
    let count = |grade| findings.iter().filter(|one| one.grade == grade).count();
    let _ = writeln!(
        table,
        "{} passed, {} warnings, {} failed, {} unknown",
        count(Grade::Pass),
        count(Grade::Warn),
        count(Grade::Fail),
        count(Grade::Unknown)
    );
    table
}

/// A list of objects: `check`, `grade` (pass, warn, fail, unknown), `found` and `mend` (null where nothing is to be done).
pub(super) fn as_json(findings: &[Finding]) -> Value {
    let object = |finding: &Finding| {
        let grade = match finding.grade {
            Grade::Unknown => "unknown".to_owned(),
            other => other.word().to_ascii_lowercase(),
        };
        json!({"check": finding.check, "grade": grade, "found": finding.found, "mend": finding.mend})
    };
    findings.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_the_mend_below_and_counts() {
        let findings = [
            Finding::pass("swap", "off"),
            Finding::fail("free space", "1 GiB", "make room"),
            Finding::unknown("clock", "no answer"),
        ];
        assert_eq!(
            as_table(&findings),
            "pass  swap        off\nFAIL  free space  1 GiB\n                  -> make room\n?     clock       no answer\n\
             1 passed, 0 warnings, 1 failed, 1 unknown\n"
        );
        let json = as_json(&findings);
        assert_eq!(json[1]["grade"], "fail");
        assert_eq!(
            json[2],
            json!({"check": "clock", "grade": "unknown", "found": "no answer", "mend": null})
        );
    }
}
