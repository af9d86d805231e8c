//! The results as one picture: the time of each block, the speed of each client, our phases.

use super::report::{Report, Runs};
use crate::stats::{Spread, median};
use crate::svg::{Anchor, Svg};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 780.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
/// Pixels from one client to the next.
const CLIENT_WIDTH: f64 = 170.0;
const BAR_WIDTH: f64 = 44.0;
/// Colours of clients and phases; most colour-blind readers can tell them apart.
const COLOURS: [&str; 6] = [
    "#0072b2", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#e69f00",
];

/// A part of the picture, with a scale from zero upwards.
struct Panel {
    top: f64,
    height: f64,
    max: f64,
}

impl Panel {
    fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - value / self.max.max(1e-9))
    }

    /// The title, the frame and the scale.
    fn frame(&self, svg: &mut Svg, title: &str) {
        svg.text([LEFT, self.top - 10.0], Anchor::Start, title);
        let step = tidy_step(self.max / 4.0);
        let mut value = 0.0;
        while value <= self.max {
            let y = self.y(value);
            svg.line([LEFT, y], [WIDTH - RIGHT, y], "#dddddd", 1.0);
            let label = format!("{value:.4}");
            let label = label.trim_end_matches('0').trim_end_matches('.');
            svg.text([LEFT - 6.0, y + 4.0], Anchor::End, label);
            value += step;
        }
    }

    /// A bar from one value to another, `x` being its left side.
    fn bar(&self, svg: &mut Svg, x: f64, values: [f64; 2], colour: &str) {
        let [bottom, top] = values.map(|value| self.y(value));
        svg.rect([x, top], [BAR_WIDTH, bottom - top], colour);
    }

    /// A label below the bar at `x`.
    fn label(&self, svg: &mut Svg, x: f64, text: &str) {
        let below = [x + BAR_WIDTH / 2.0, self.y(0.0) + 16.0];
        svg.text(below, Anchor::Middle, text);
    }
}

/// The picture.
pub(super) fn svg(report: &Report) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT);
    let title = format!(
        "{}: {} blocks, {:.0} Mgas, {} runs, {} cores ({})",
        report.chain,
        report.blocks,
        report.gas as f64 / 1e6,
        report.runs,
        report.machine.cores,
        report.machine.processor
    );
    svg.text([LEFT, 22.0], Anchor::Start, &title);
    for (at, (runs, colour)) in report.clients.iter().zip(COLOURS).enumerate() {
        legend(
            &mut svg,
            [LEFT + CLIENT_WIDTH * at as f64, 34.0],
            colour,
            &runs.name,
        );
    }
    blocks(&mut svg, report);
    speeds(&mut svg, &report.clients);
    phases(&mut svg, &report.clients);
    svg.finish()
}

/// A coloured square and what it stands for.
fn legend(svg: &mut Svg, [x, y]: [f64; 2], colour: &str, text: &str) {
    svg.rect([x, y], [10.0, 10.0], colour);
    svg.text([x + 15.0, y + 9.0], Anchor::Start, text);
}

/// A line for each client: the median of its runs at every block.
fn blocks(svg: &mut Svg, report: &Report) {
    let lines: Vec<Vec<(u64, f64)>> = report.clients.iter().map(medians).collect();
    let all = || lines.iter().flatten();
    let last = all().map(|(number, _)| *number).max().unwrap_or(1);
    let panel = Panel {
        top: 80.0,
        height: 260.0,
        max: all().map(|(_, ms)| *ms).fold(0.0, f64::max),
    };
    let title = "ms of each block, payload and fork choice, median of the runs";
    panel.frame(svg, title);
    let x = |number: u64| LEFT + (WIDTH - LEFT - RIGHT) * number as f64 / last as f64;
    let (border, bottom) = (x(report.cold_blocks), panel.y(0.0));
    svg.line([border, panel.top], [border, bottom], "#999999", 1.0);
    let label_at = [border + 4.0, panel.top + 12.0];
    svg.text(label_at, Anchor::Start, "warm from here");
    let below = [WIDTH - RIGHT, bottom + 16.0];
    svg.text(below, Anchor::End, &format!("block {last}"));
    for (points, colour) in lines.iter().zip(COLOURS) {
        let point = |(number, ms): &(u64, f64)| [x(*number), panel.y(*ms)];
        let points: Vec<_> = points.iter().map(point).collect();
        svg.polyline(&points, colour);
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
    let at = |index: usize| {
        let times = runs.iter().filter_map(|run| run.get(index));
        median(&times.map(|(_, ms)| *ms).collect::<Vec<_>>())
    };
    (0..first.len())
        .map(|index| (first[index].0, at(index)))
        .collect()
}

/// Bars of Mgas/s, cold and warm, with the range of the runs.
fn speeds(svg: &mut Svg, clients: &[Runs]) {
    let all = || clients.iter().flat_map(|runs| [&runs.cold, &runs.warm]);
    let panel = Panel {
        top: 410.0,
        height: 130.0,
        max: all()
            .map(|results| results.mgas_per_s.max)
            .fold(0.0, f64::max),
    };
    let title = "Mgas/s, cold and warm; median, and least to most of the runs";
    panel.frame(svg, title);
    for (at, (runs, colour)) in clients.iter().zip(COLOURS).enumerate() {
        let parts = [("cold", &runs.cold), ("warm", &runs.warm)];
        for (part, (name, results)) in parts.into_iter().enumerate() {
            let x = LEFT + 20.0 + CLIENT_WIDTH * at as f64 + 60.0 * part as f64;
            let middle = x + BAR_WIDTH / 2.0;
            let Spread { median, min, max } = results.mgas_per_s;
            panel.bar(svg, x, [0.0, median], colour);
            let range = [min, max].map(|speed| [middle, panel.y(speed)]);
            svg.line(range[0], range[1], "black", 1.0);
            panel.label(svg, x, name);
        }
    }
}

/// Our phases of a warm block, stacked.
fn phases(svg: &mut Svg, clients: &[Runs]) {
    let ours = || {
        clients
            .iter()
            .filter_map(|runs| Some((runs, runs.warm.phases?)))
    };
    let sum = |named: [(&str, f64); 6]| named.iter().map(|(_, ms)| ms).sum::<f64>();
    let panel = Panel {
        top: 610.0,
        height: 130.0,
        max: ours()
            .map(|(_, phases)| sum(phases.named()))
            .fold(0.0, f64::max),
    };
    panel.frame(svg, "ms of our phases of a warm block");
    for (at, (runs, phases)) in ours().enumerate() {
        let x = LEFT + 20.0 + CLIENT_WIDTH * at as f64;
        let mut below = 0.0;
        for ((_, ms), colour) in phases.named().into_iter().zip(COLOURS) {
            panel.bar(svg, x, [below, below + ms], colour);
            below += ms;
        }
        panel.label(svg, x, &runs.name);
    }
    if let Some((_, phases)) = ours().next() {
        for (at, ((name, _), colour)) in phases.named().into_iter().zip(COLOURS).enumerate() {
            let corner = [WIDTH - RIGHT - 90.0, panel.top + 16.0 * at as f64];
            legend(svg, corner, colour, name);
        }
    }
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
    fn the_picture_has_a_line_for_each_client_and_escaped_names() {
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
