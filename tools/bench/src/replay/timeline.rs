//! What each thread did for each transaction of a block, as JSON or SVG.

use crate::harness::check_writable;
use crate::svg::{Anchor, Svg};
use eyre::{Result, WrapErr, bail};
use niwaki_execution::{Span, Step};
use serde_json::{Value, json};
use std::path::Path;

/// The spans of the last run of a block.
pub(crate) struct Timeline {
    /// The block's name.
    pub(crate) name: String,
    pub(crate) spans: Vec<Span>,
}

const STEPS: [(Step, &str, &str); 5] = [
    (Step::Sequential, "in turn", "#4c78a8"),
    (Step::Speculate, "ahead", "#54a24b"),
    (Step::Validate, "adopt", "#eeca3b"),
    (Step::Reexecute, "again", "#e45756"),
    (Step::Wait, "wait", "#d3d3d3"),
];

/// Pixels of the picture and of a thread's row.
const WIDTH: f64 = 1600.0;
const ROW: f64 = 22.0;

/// Refuses a file whose name does not end in .json or .svg, or that can't be written.
pub(crate) fn check(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json" | "svg") => check_writable(Some(path), "--timeline"),
        _ => bail!(
            "can't write {}: a timeline is JSON or SVG; give a file that ends in .json or .svg",
            path.display()
        ),
    }
}

/// Writes the timelines of all blocks in the format that the file's name asks for.
pub(crate) fn write(path: &Path, timelines: &[Timeline]) -> Result<()> {
    let text = match path.extension().is_some_and(|extension| extension == "svg") {
        true => svg(timelines),
        false => format!("{:#}\n", Value::from_iter(timelines.iter().map(to_json))),
    };
    std::fs::write(path, text).wrap_err_with(|| format!("can't write {}", path.display()))
}

fn name(step: Step) -> &'static str {
    STEPS
        .iter()
        .find(|row| row.0 == step)
        .map_or("", |row| row.1)
}

fn to_json(timeline: &Timeline) -> Value {
    let spans = timeline.spans.iter().map(|span| {
        json!({
            "transaction": span.transaction,
            "thread": span.thread,
            "step": name(span.step),
            "began_us": micros(span.began),
            "ended_us": micros(span.ended),
        })
    });
    json!({ "block": timeline.name, "spans": Value::from_iter(spans) })
}

fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// A row for each thread, one block below the other; each block fills the width of the picture.
fn svg(timelines: &[Timeline]) -> String {
    let rows = timelines.iter().map(|timeline| 1 + timeline.threads());
    let height = ROW * (1 + rows.sum::<usize>()) as f64;
    let mut svg = Svg::new(WIDTH, height);
    for (column, (_, name, colour)) in STEPS.iter().enumerate() {
        let x = column as f64 * 120.0;
        svg.rect([x, 4.0], [12.0, 12.0], colour);
        svg.text([x + 18.0, 15.0], Anchor::Start, name);
    }
    let mut y = ROW;
    for timeline in timelines {
        let Timeline { name, spans } = timeline;
        let end = spans.iter().map(|span| micros(span.ended));
        let end = end.fold(1.0, f64::max);
        y += ROW;
        let title = format!("{name}: {:.3} ms", end / 1e3);
        svg.text([0.0, y - 6.0], Anchor::Start, &title);
        // A wait is drawn first, so that work done during it covers it.
        let waits = spans.iter().filter(|span| span.step == Step::Wait);
        let works = spans.iter().filter(|span| span.step != Step::Wait);
        for span in waits.chain(works) {
            let row = STEPS.iter().find(|row| row.0 == span.step);
            let (_, step, colour) = row.unwrap_or(&STEPS[0]);
            let (began, ended) = (micros(span.began), micros(span.ended));
            let corner = [began / end * WIDTH, y + span.thread as f64 * ROW];
            let width = ((ended - began) / end * WIDTH).max(0.2);
            let title = format!("{} {step}: {:.1} us", span.transaction, ended - began);
            svg.rect_with_title(corner, [width, ROW - 4.0], colour, &title);
        }
        y += timeline.threads() as f64 * ROW;
    }
    svg.finish()
}

impl Timeline {
    fn threads(&self) -> usize {
        let highest = self.spans.iter().map(|span| span.thread).max();
        highest.unwrap_or(0) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_drawn_in_the_row_of_its_thread() {
        let span = |thread, step, began: u64| Span {
            transaction: 3,
            thread,
            step,
            began: began * 1_000,
            ended: (began + 10) * 1_000,
        };
        let spans = vec![span(0, Step::Wait, 0), span(1, Step::Speculate, 10)];
        let timelines = [Timeline {
            name: "block".to_owned(),
            spans,
        }];
        let drawn = svg(&timelines);
        assert!(
            drawn.contains("x=\"800.00\" y=\"66.00\" width=\"800.00\""),
            "{drawn}"
        );
        let json = to_json(&timelines[0]);
        assert_eq!(json["spans"][1]["step"], "ahead");
        assert_eq!(json["spans"][1]["began_us"], 10.0);
    }

    #[test]
    fn only_json_and_svg_files_are_accepted() {
        let error = check(Some(Path::new("a.png"))).unwrap_err().to_string();
        assert!(error.contains("a.png") && error.contains(".svg"), "{error}");
        assert!(check(Some(Path::new("a.svg"))).is_ok());
        assert!(check(None).is_ok());
    }
}
