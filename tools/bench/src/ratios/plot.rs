//! The ratios as one picture (SVG): a bar from 1 to each on a scale of logarithms, and what is asked.

use super::{Asked, Ratio};
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 280.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 50.0;
const ROW: f64 = 26.0;

/// The picture.
#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
pub(super) fn svg(ratios: &[Ratio]) -> String {
    let all = ratios.iter().flat_map(|ratio| {
        let (least, most) = ratio.ends.unwrap_or((ratio.ratio, ratio.ratio));
        [least, most, ratio.ratio]
    });
    let (mut least, mut most) = (0.5_f64, 2.0_f64);
    for ratio in all.filter(|ratio| *ratio > 0.0) {
        (least, most) = (least.min(ratio), most.max(ratio));
    }
    let (least, most) = (least.log2().floor(), most.log2().ceil());
    let x = |ratio: f64| LEFT + (WIDTH - LEFT - RIGHT) * (ratio.log2() - least) / (most - least);
    let height = TOP + ROW * ratios.len() as f64 + 20.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\" font-size=\"14\">Time of others over ours; black: asked</text>\n"
    );
    let mut power = least;
    while power <= most {
        let (at, label) = (x(power.exp2()), power.exp2());
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            height - 20.0,
            TOP - 8.0
        );
        power += 1.0;
    }
    for (at, ratio) in ratios.iter().enumerate() {
        row(&mut out, ratio, TOP + ROW * at as f64, &x);
    }
    out.push_str("</svg>\n");
    out
}

/// A ratio's name, bar, ends and what is asked of it.
fn row(out: &mut String, ratio: &Ratio, y: f64, x: &dyn Fn(f64) -> f64) {
    let holds = ratio.asked.is_none_or(|asked| asked.holds(ratio.ratio));
    let colour = if holds { "#0072b2" } else { "#d55e00" };
    let ends = [x(1.0), x(ratio.ratio)];
    let (from, to) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    let name = ratio.what.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\
         <rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\" fill=\"{colour}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\">{:.2}</text>",
        LEFT - 8.0,
        y + 17.0,
        y + 7.0,
        (to - from).max(1.0),
        WIDTH - RIGHT + 8.0,
        y + 17.0,
        ratio.ratio
    );
    if let Some((least, most)) = ratio.ends {
        let _ = writeln!(
            out,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#555555\"/>",
            x(least),
            y + 13.0,
            x(most),
            y + 13.0
        );
    }
    if let Some(Asked::AtLeast(bound) | Asked::AtMost(bound)) = ratio.asked {
        let at = x(bound);
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"black\" stroke-width=\"2\"/>",
            y + 3.0,
            y + 23.0
        );
    }
}
