//! What a scenario found: figures with their units, and claims that hold or don't.

use crate::report::{percentile, write_json};
use eyre::{Result, ensure};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// Figures and claims.
#[derive(Debug, Default)]
pub(super) struct Findings {
    figures: Vec<(String, f64, &'static str)>,
    claims: Vec<(String, bool)>,
    texts: Map<String, Value>,
    /// Further fields of the JSON alone.
    attached: Map<String, Value>,
}

impl Findings {
    /// Notes a figure.
    pub(super) fn figure(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push((what.into(), value, unit));
    }

    /// Notes a count.
    #[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
    pub(super) fn count(&mut self, what: impl Into<String>, value: u64) {
        self.figure(what, value as f64, "");
    }

    /// Notes median, P99 and greatest of some times, and how many they are.
    pub(super) fn times(&mut self, what: &str, mut times: Vec<Duration>) {
        times.sort_unstable();
        for (name, percent) in [("P50", 50), ("P99", 99), ("longest", 100)] {
            let ms = percentile(&times, percent).as_secs_f64() * 1e3;
            self.figure(format!("{what}, {name}"), ms, "ms");
        }
        self.count(format!("{what}, n"), times.len() as u64);
    }

    /// Notes something that is no figure, such as a client's version; it is printed and written.
    pub(super) fn text(&mut self, what: &str, text: impl Into<String>) {
        self.texts.insert(what.into(), Value::from(text.into()));
    }

    /// Notes something that is written as a field of the JSON, but not printed.
    pub(super) fn attach(&mut self, field: &str, value: Value) {
        self.attached.insert(field.into(), value);
    }

    /// Notes whether something that must hold does.
    pub(super) fn claim(&mut self, what: impl Into<String>, holds: bool) {
        self.claims.push((what.into(), holds));
    }

    /// Prints everything and writes it to the file, if one is given.
    ///
    /// # Errors
    /// If a claim does not hold, or there is none.
    pub(super) fn finish(self, scenario: &str, path: Option<&Path>) -> Result<()> {
        for (what, text) in &self.texts {
            println!("{what:<52} {}", text.as_str().unwrap_or_default());
        }
        for (what, value, unit) in &self.figures {
            let digits = if value.fract() == 0.0 { 0 } else { 3 };
            println!("{what:<52} {value:>14.digits$} {unit}");
        }
        for (what, holds) in &self.claims {
            println!("{:<7} {what}", if *holds { "holds" } else { "FAILS" });
        }
        let figures = self
            .figures
            .iter()
            .map(|(what, value, unit)| json!({ "what": what, "value": value, "unit": unit }));
        let claims = self.claims.iter();
        let claims = claims.map(|(what, holds)| json!({ "claim": what, "holds": holds }));
        let mut report = json!({
            "scenario": scenario,
            "about": self.texts,
            "figures": figures.collect::<Vec<_>>(),
            "claims": claims.collect::<Vec<_>>(),
        });
        for (field, value) in &self.attached {
            report[field] = value.clone();
        }
        write_json(path, &report)?;
        let failed = self.claims.iter().filter(|(_, holds)| !holds).count();
        ensure!(!self.claims.is_empty(), "{scenario} claims nothing");
        ensure!(
            failed == 0,
            "{scenario}: {failed} of {} claims fail",
            self.claims.len()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_passes_if_all_its_claims_hold_and_it_makes_one() {
        assert!(Findings::default().finish("none", None).is_err());
        let mut findings = Findings::default();
        findings.claim("one", true);
        findings.times(
            "waits",
            vec![Duration::from_millis(2), Duration::from_millis(1)],
        );
        assert!(findings.finish("good", None).is_ok());
        let mut findings = Findings::default();
        findings.claim("one", true);
        findings.claim("two", false);
        let error = findings.finish("bad", None).unwrap_err().to_string();
        assert_eq!(error, "bad: 1 of 2 claims fail");
    }
}
