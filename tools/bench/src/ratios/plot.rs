//! The ratios as one picture: a bar from 1 to each ratio on a logarithmic scale, and its target.

use super::{Ratio, Target};
use crate::svg::{Anchor, Svg};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 280.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 50.0;
const ROW: f64 = 26.0;

/// The picture.
pub(super) fn svg(ratios: &[Ratio]) -> String {
    let all = ratios.iter().flat_map(|ratio| {
        let (min, max) = ratio.ends.unwrap_or((ratio.ratio, ratio.ratio));
        [min, max, ratio.ratio]
    });
    let (mut min, mut max) = (0.5_f64, 2.0_f64);
    for ratio in all.filter(|ratio| *ratio > 0.0) {
        (min, max) = (min.min(ratio), max.max(ratio));
    }
    let (min, max) = (min.log2().floor(), max.log2().ceil());
    let x = |ratio: f64| LEFT + (WIDTH - LEFT - RIGHT) * (ratio.log2() - min) / (max - min);
    let height = TOP + ROW * ratios.len() as f64 + 20.0;
    let mut svg = Svg::new(WIDTH, height);
    let title = "Time of others over ours; black: target";
    svg.text([LEFT, 18.0], Anchor::Start, title);
    let mut power = min;
    while power <= max {
        let (at, label) = (x(power.exp2()), power.exp2().to_string());
        svg.line([at, TOP], [at, height - 20.0], "#dddddd", 1.0);
        svg.text([at, TOP - 8.0], Anchor::Middle, &label);
        power += 1.0;
    }
    for (at, ratio) in ratios.iter().enumerate() {
        row(&mut svg, ratio, TOP + ROW * at as f64, &x);
    }
    svg.finish()
}

/// A ratio's name, bar, range and target.
fn row(svg: &mut Svg, ratio: &Ratio, y: f64, x: &dyn Fn(f64) -> f64) {
    let is_met = ratio.target.is_none_or(|target| target.is_met(ratio.ratio));
    let colour = if is_met { "#0072b2" } else { "#d55e00" };
    let (one, end) = (x(1.0), x(ratio.ratio));
    let size = [(end - one).abs().max(1.0), 12.0];
    let value = format!("{:.2}", ratio.ratio);
    svg.text([LEFT - 8.0, y + 17.0], Anchor::End, &ratio.what);
    svg.rect([one.min(end), y + 7.0], size, colour);
    svg.text([WIDTH - RIGHT + 8.0, y + 17.0], Anchor::Start, &value);
    if let Some((min, max)) = ratio.ends {
        svg.line([x(min), y + 13.0], [x(max), y + 13.0], "#555555", 1.0);
    }
    if let Some(Target::AtLeast(bound) | Target::AtMost(bound)) = ratio.target {
        let at = x(bound);
        svg.line([at, y + 3.0], [at, y + 23.0], "black", 2.0);
    }
}
