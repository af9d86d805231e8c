//! What each thread did for each transaction of a block, as JSON or drawn.

use eyre::{Result, WrapErr, bail};
use niwaki_execution::{Span, Step};
use serde_json::{Value, json};
use std::fmt::Write as _;
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

/// Pixels.
const WIDTH: f64 = 1600.0;
const ROW: f64 = 22.0;

/// Refuses a file whose name does not say what to write.
pub(crate) fn check(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json" | "svg") => crate::check_json(Some(path)),
        _ => bail!(
            "can't write {}: a timeline is JSON or SVG; give a file that ends in .json or .svg",
            path.display()
        ),
    }
}

/// Writes the timelines of all blocks, in the way that the file's name asks for.
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

/// A row for each thread, one block below the other, each as wide as the picture.
fn svg(timelines: &[Timeline]) -> String {
    let mut body = String::new();
    let mut y = ROW;
    for (column, (_, name, colour)) in STEPS.iter().enumerate() {
        let x = column as f64 * 120.0;
        let _ = writeln!(
            body,
            "<rect x=\"{x}\" y=\"4\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"15\">{name}</text>",
            x + 18.0
        );
    }
    for Timeline { name, spans } in timelines {
        let end = spans.iter().map(|span| micros(span.ended));
        let end = end.fold(1.0, f64::max);
        y += ROW;
        let _ = writeln!(
            body,
            "<text x=\"0\" y=\"{}\">{name}: {:.3} ms</text>",
            y - 6.0,
            end / 1e3
        );
        let threads = spans.iter().map(|span| span.thread).max().unwrap_or(0);
        // What is waited through lies below what is done meanwhile.
        let waits = spans.iter().filter(|span| span.step == Step::Wait);
        let works = spans.iter().filter(|span| span.step != Step::Wait);
        for span in waits.chain(works) {
            let colour = STEPS.iter().find(|row| row.0 == span.step);
            let (began, ended) = (micros(span.began), micros(span.ended));
            let _ = writeln!(
                body,
                "<rect x=\"{:.2}\" y=\"{}\" width=\"{:.2}\" height=\"{}\" fill=\"{}\"><title>{} \
                 {}: {:.1} us</title></rect>",
                began / end * WIDTH,
                y + span.thread as f64 * ROW,
                ((ended - began) / end * WIDTH).max(0.2),
                ROW - 4.0,
                colour.map_or("black", |row| row.2),
                span.transaction,
                self::name(span.step),
                ended - began,
            );
        }
        y += (threads + 1) as f64 * ROW;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n{body}</svg>\n"
    )
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
            drawn.contains("x=\"800.00\" y=\"66\" width=\"800.00\""),
            "{drawn}"
        );
        let json = to_json(&timelines[0]);
        assert_eq!(json["spans"][1]["step"], "ahead");
        assert_eq!(json["spans"][1]["began_us"], 10.0);
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let error = check(Some(Path::new("a.png"))).unwrap_err().to_string();
        assert!(error.contains("a.png") && error.contains(".svg"), "{error}");
        assert!(check(Some(Path::new("a.svg"))).is_ok());
        assert!(check(None).is_ok());
    }
}
