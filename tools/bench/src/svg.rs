//! A small SVG writer for the plots: text, lines, rectangles. Points are `[x, y]` in pixels.

use std::fmt::Write;

/// Where the position of a text is: at its start, middle or end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture on a white background.
#[derive(Debug)]
pub(crate) struct Svg(String);

impl Svg {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    pub(crate) fn text(&mut self, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.write(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    pub(crate) fn line(&mut self, from: [f64; 2], to: [f64; 2], colour: &str, width: f64) {
        let ([x1, y1], [x2, y2]) = (from, to);
        self.write(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"/>"
        ));
    }

    pub(crate) fn polyline(&mut self, points: &[[f64; 2]], colour: &str) {
        let points = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}"));
        let points = points.collect::<Vec<_>>().join(" ");
        self.write(format_args!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\" points=\"{points}\"/>"
        ));
    }

    /// A rectangle whose upper left corner is `corner`.
    pub(crate) fn rect(&mut self, corner: [f64; 2], size: [f64; 2], colour: &str) {
        self.rect_with_title(corner, size, colour, "");
    }

    /// A rectangle with a text that shows when the pointer is over it.
    pub(crate) fn rect_with_title(
        &mut self,
        corner: [f64; 2],
        size: [f64; 2],
        colour: &str,
        title: &str,
    ) {
        let ([x, y], [width, height]) = (corner, size);
        let title = match title {
            "" => String::new(),
            title => format!("<title>{}</title>", escaped(title)),
        };
        self.write(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
             fill=\"{colour}\">{title}</rect>"
        ));
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn write(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "{element}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
