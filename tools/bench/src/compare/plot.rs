//! The figures as one picture (SVG): the time of each block, the speed of each client, our phases.

use super::report::{Report, Runs};
use crate::stats::{Spread, median};
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 780.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
/// Colours that stay apart for most eyes, for clients and for phases.
const COLOURS: [&str; 6] = [
    "#0072b2", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#e69f00",
];

/// A part of the picture, with a scale from zero upwards.
struct Panel {
    top: f64,
    height: f64,
    most: f64,
}

impl Panel {
    fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - value / self.most.max(1e-9))
    }

    /// The title, the frame and the scale.
    fn frame(&self, out: &mut String, title: &str) {
        text(out, LEFT, self.top - 10.0, "start", title);
        let step = tidy_step(self.most / 4.0);
        let mut value = 0.0;
        while value <= self.most {
            let y = self.y(value);
            line(out, (LEFT, y), (WIDTH - RIGHT, y), "#dddddd");
            let label = format!("{value:.4}");
            let label = label.trim_end_matches('0').trim_end_matches('.');
            text(out, LEFT - 6.0, y + 4.0, "end", label);
            value += step;
        }
    }
}

/// The picture.
pub(super) fn svg(report: &Report) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let title = format!(
        "{}: {} blocks, {:.0} Mgas, {} runs, {} cores ({})",
        report.chain,
        report.blocks,
        report.gas as f64 / 1e6,
        report.runs,
        report.machine.cores,
        report.machine.processor
    );
    text(&mut out, LEFT, 22.0, "start", &title);
    legend(&mut out, &report.clients);
    blocks(&mut out, report);
    speeds(&mut out, &report.clients);
    phases(&mut out, &report.clients);
    out.push_str("</svg>\n");
    out
}

fn legend(out: &mut String, clients: &[Runs]) {
    for (at, (runs, colour)) in clients.iter().zip(COLOURS).enumerate() {
        let x = LEFT + 170.0 * at as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"34\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
        );
        text(out, x + 15.0, 43.0, "start", &runs.name);
    }
}

/// A line for each client: the median of its runs at every block.
fn blocks(out: &mut String, report: &Report) {
    let lines: Vec<Vec<(u64, f64)>> = report.clients.iter().map(medians).collect();
    let all = || lines.iter().flatten();
    let most = all().map(|(_, ms)| *ms).fold(0.0, f64::max);
    let last = all().map(|(number, _)| *number).max().unwrap_or(1);
    let panel = Panel {
        top: 80.0,
        height: 260.0,
        most,
    };
    panel.frame(
        out,
        "ms of each block, payload and fork choice, median of the runs",
    );
    let x = |number: u64| LEFT + (WIDTH - LEFT - RIGHT) * number as f64 / last as f64;
    let border = x(report.cold_blocks);
    let bottom = panel.y(0.0);
    line(out, (border, panel.top), (border, bottom), "#999999");
    text(
        out,
        border + 4.0,
        panel.top + 12.0,
        "start",
        "warm from here",
    );
    text(
        out,
        WIDTH - RIGHT,
        bottom + 16.0,
        "end",
        &format!("block {last}"),
    );
    for (points, colour) in lines.iter().zip(COLOURS) {
        let points: Vec<String> = points
            .iter()
            .map(|(number, ms)| format!("{:.1},{:.1}", x(*number), panel.y(*ms)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\" points=\"{}\"/>",
            points.join(" ")
        );
    }
}

/// Number and median time of every block with gas.
fn medians(runs: &Runs) -> Vec<(u64, f64)> {
    let all = |run: &super::drive::Run| -> Vec<(u64, f64)> {
        let blocks = run.cold.blocks.iter().chain(&run.warm.blocks);
        let counted = blocks.filter(|block| block.gas > 0);
        counted
            .map(|block| (block.number, block.whole_ms()))
            .collect()
    };
    let runs: Vec<Vec<(u64, f64)>> = runs.runs.iter().map(all).collect();
    let Some(first) = runs.first() else {
        return Vec::new();
    };
    let at = |place: usize| {
        let times = runs.iter().filter_map(|run| run.get(place));
        median(&times.map(|(_, ms)| *ms).collect::<Vec<_>>())
    };
    (0..first.len())
        .map(|place| (first[place].0, at(place)))
        .collect()
}

/// Bars of Mgas/s, cold and warm, with the ends of the runs.
fn speeds(out: &mut String, clients: &[Runs]) {
    let all = || clients.iter().flat_map(|runs| [&runs.cold, &runs.warm]);
    let panel = Panel {
        top: 410.0,
        height: 130.0,
        most: all()
            .map(|figures| figures.mgas_per_s.max)
            .fold(0.0, f64::max),
    };
    panel.frame(
        out,
        "Mgas/s, cold and warm; median, and least to most of the runs",
    );
    for (at, (runs, colour)) in clients.iter().zip(COLOURS).enumerate() {
        for (place, (name, figures)) in [("cold", &runs.cold), ("warm", &runs.warm)]
            .into_iter()
            .enumerate()
        {
            let x = LEFT + 20.0 + 170.0 * at as f64 + 60.0 * place as f64;
            let Spread { median, min, max } = figures.mgas_per_s;
            bar(out, x, &panel, (0.0, median), colour);
            line(
                out,
                (x + 22.0, panel.y(min)),
                (x + 22.0, panel.y(max)),
                "black",
            );
            text(out, x + 22.0, panel.y(0.0) + 16.0, "middle", name);
        }
    }
}

/// Our phases of a warm block, one upon the other.
fn phases(out: &mut String, clients: &[Runs]) {
    let ours = || {
        clients
            .iter()
            .filter_map(|runs| Some((runs, runs.warm.phases?)))
    };
    let sum = |named: [(&str, f64); 6]| named.iter().map(|(_, ms)| ms).sum::<f64>();
    let panel = Panel {
        top: 610.0,
        height: 130.0,
        most: ours()
            .map(|(_, phases)| sum(phases.named()))
            .fold(0.0, f64::max),
    };
    panel.frame(out, "ms of our phases of a warm block");
    for (at, (runs, phases)) in ours().enumerate() {
        let x = LEFT + 20.0 + 170.0 * at as f64;
        let mut below = 0.0;
        for ((_, ms), colour) in phases.named().into_iter().zip(COLOURS) {
            bar(out, x, &panel, (below, below + ms), colour);
            below += ms;
        }
        text(out, x + 22.0, panel.y(0.0) + 16.0, "middle", &runs.name);
    }
    if let Some((_, phases)) = ours().next() {
        for (at, ((name, _), colour)) in phases.named().into_iter().zip(COLOURS).enumerate() {
            let y = panel.top + 16.0 * at as f64;
            let x = WIDTH - RIGHT - 90.0;
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
            );
            text(out, x + 15.0, y + 9.0, "start", name);
        }
    }
}

fn bar(out: &mut String, x: f64, panel: &Panel, (from, to): (f64, f64), colour: &str) {
    let (y, bottom) = (panel.y(to), panel.y(from));
    let height = bottom - y;
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y:.1}\" width=\"44\" height=\"{height:.1}\" fill=\"{colour}\"/>"
    );
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// One, two or five times a power of ten, not below `step`.
fn tidy_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.max(1e-6).log10().floor());
    let tidy = [1.0, 2.0, 5.0].map(|factor| factor * power);
    tidy.into_iter()
        .find(|tidy| *tidy >= step)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::report::{ratios, tests::runs};
    use crate::machine::Machine;

    #[test]
    fn a_picture_has_a_line_and_two_bars_for_each_client() {
        let clients = runs();
        let report = Report {
            machine: Machine::here(),
            chain: "a<b".to_owned(),
            blocks: 8,
            transactions: 80,
            gas: 6_000_000,
            cold_blocks: 4,
            pause_ms: 0,
            busy: 0,
            known_percent: 0,
            runs: 2,
            ratios: ratios(&clients),
            clients,
        };
        let svg = svg(&report);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("a&lt;b") && !svg.contains("NaN"), "{svg}");
        assert!(svg.contains("niwaki, 1 thread") && svg.contains("geth"));
    }

    #[test]
    fn steps_of_a_scale_are_tidy() {
        for (step, tidy) in [(3.0, 5.0), (0.11, 0.2), (7.0, 10.0), (100.0, 100.0)] {
            assert!((tidy_step(step) - tidy).abs() < 1e-9, "{step}");
        }
    }
}
