//! A bar chart of the cases (SVG), the slowest at the top, on a logarithmic scale.

use super::report::Report;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 60.0;
const ROW: f64 = 14.0;

/// The ends of the scale, as powers of ten of Mgas/s.
fn ends(report: &Report) -> (f64, f64) {
    let rates = report.cases.iter().flat_map(|case| {
        [Some(case.mgas_per_second), case.revm_mgas_per_second]
            .into_iter()
            .flatten()
    });
    let (mut least, mut most) = (f64::MAX, f64::MIN);
    for rate in rates {
        least = least.min(rate.log10());
        most = most.max(rate.log10());
    }
    (least.floor(), most.ceil().max(least.floor() + 1.0))
}

/// The chart.
#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
pub(super) fn svg(report: &Report) -> String {
    let (least, most) = ends(report);
    let x = |rate: f64| LEFT + (WIDTH - LEFT - RIGHT) * (rate.log10() - least) / (most - least);
    let height = TOP + ROW * report.cases.len() as f64 + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"10\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"13\">Mgas/s of each case, {}; dots are \
         revm's</text>\n",
        report.fork
    );
    let mut power = least;
    while power <= most {
        let at = x(10f64.powf(power));
        let label = 10f64.powf(power);
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            height - 20.0,
            TOP - 6.0
        );
        power += 1.0;
    }
    for (at, case) in report.cases.iter().enumerate() {
        let y = TOP + ROW * at as f64;
        let width = (x(case.mgas_per_second) - LEFT).max(1.0);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"#0072b2\"/>",
            LEFT - 6.0,
            y + ROW - 4.0,
            case.name,
            y + 2.0,
            ROW - 4.0
        );
        if let Some(revm) = case.revm_mgas_per_second {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#d55e00\"/>",
                x(revm),
                y + ROW / 2.0
            );
        }
    }
    let median = x(report.median_mgas_per_second);
    let _ = writeln!(
        out,
        "<line x1=\"{median:.1}\" y1=\"{TOP}\" x2=\"{median:.1}\" y2=\"{:.1}\" stroke=\"#009e73\" \
         stroke-dasharray=\"4 3\"/>",
        height - 20.0
    );
    out.push_str("</svg>\n");
    out
}
