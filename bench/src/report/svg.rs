//! A small plotter: lines over logarithmic axes, and stacked bars.
//!
//! All colours are of middle lightness, so that they read on a light page and on a dark one: a
//! picture in a README does not know which it stands on.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 470.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 84.0;
const INK: &str = "#7a828e";
const PALETTE: [&str; 11] = [
    "#d9485f", "#3d8fd1", "#9a6dd7", "#3a9d6e", "#cf8a1d", "#2aa1a8", "#b56576", "#8a9a2b",
    "#6c7ae0", "#a9754f", "#7a828e",
];

/// One line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// In the units of the axes.
    pub(super) points: Vec<(f64, f64)>,
    pub(super) emphasis: Emphasis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emphasis {
    Subject,
    Other,
    /// A dashed continuation of the line before, in its colour.
    Continued,
}

/// Where an axis has its marks.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) marks: Vec<(f64, String)>,
}

/// Lines over two logarithmic axes.
pub(super) fn lines(title: &str, caption: &str, x: &Axis, y: &Axis, series: &[Series]) -> String {
    let mut svg = open(title, caption);
    let x_at = scale(&x.marks, LEFT, WIDTH - RIGHT);
    let y_at = scale(&y.marks, HEIGHT - BOTTOM, TOP);
    for (value, label) in &x.marks {
        let at = x_at(*value);
        rule(&mut svg, (at, TOP), (at, HEIGHT - BOTTOM));
        text(&mut svg, at, HEIGHT - BOTTOM + 18.0, "middle", label);
    }
    for (value, label) in &y.marks {
        let at = y_at(*value);
        rule(&mut svg, (LEFT, at), (WIDTH - RIGHT, at));
        text(&mut svg, LEFT - 8.0, at + 4.0, "end", label);
    }
    text(&mut svg, f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - BOTTOM + 38.0, "middle", x.label);
    text(&mut svg, LEFT - 64.0, TOP - 12.0, "start", y.label);
    let mut color = 0;
    for (index, line) in series.iter().enumerate() {
        if index > 0 && line.emphasis != Emphasis::Continued {
            color += 1;
        }
        let points: Vec<_> = line.points.iter().map(|(x, y)| (x_at(*x), y_at(*y))).collect();
        draw(&mut svg, &points, PALETTE[color % PALETTE.len()], line.emphasis);
    }
    legend(&mut svg, series);
    close(svg)
}

/// One bar per row, filled by the shares of its parts.
pub(super) fn shares(title: &str, caption: &str, rows: &[(String, Vec<(String, f64)>)]) -> String {
    let mut svg = open(title, caption);
    let room = (HEIGHT - BOTTOM - TOP) / rows.len().max(1) as f64;
    for (index, (label, parts)) in rows.iter().enumerate() {
        let top = TOP + room * index as f64 + 24.0;
        text(&mut svg, LEFT, top - 8.0, "start", label);
        let whole: f64 = parts.iter().map(|(_, value)| value).sum();
        let mut left = LEFT;
        for (part, (name, value)) in parts.iter().enumerate() {
            let share = value / whole.max(f64::MIN_POSITIVE);
            let width = share * (WIDTH - RIGHT - LEFT);
            let color = PALETTE[part % PALETTE.len()];
            let height = room - 48.0;
            let _ = write!(
                svg,
                r#"<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" fill="{color}"><title>{}: {:.1} %</title></rect>"#,
                escape(name),
                share * 100.0,
            );
            if width > 44.0 {
                let middle = left + width / 2.0;
                let percent = format!("{:.0} %", share * 100.0);
                text_in(&mut svg, middle, top + height / 2.0 + 4.0, "middle", &percent, "#ffffff");
            }
            left += width;
        }
    }
    let named: Vec<Series> = rows.first().map_or(Vec::new(), |(_, parts)| {
        let entry = |(name, _): &(String, f64)| Series {
            name: name.clone(),
            points: Vec::new(),
            emphasis: Emphasis::Other,
        };
        parts.iter().map(entry).collect()
    });
    legend(&mut svg, &named);
    close(svg)
}

fn open(title: &str, caption: &str) -> String {
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="13" role="img"><title>{}</title>"#,
        escape(title)
    );
    let _ = write!(
        svg,
        r#"<text x="{LEFT}" y="22" fill="{INK}" font-size="16" font-weight="600">{}</text>"#,
        escape(title)
    );
    text(&mut svg, LEFT, HEIGHT - 14.0, "start", caption);
    svg
}

fn close(mut svg: String) -> String {
    svg.push_str("</svg>\n");
    svg
}

/// Where a value lies between the first mark and the last, logarithmically.
fn scale(marks: &[(f64, String)], from: f64, to: f64) -> impl Fn(f64) -> f64 {
    let low = marks.first().map_or(1.0, |mark| mark.0).ln();
    let high = marks.last().map_or(2.0, |mark| mark.0).ln();
    move |value: f64| from + (value.ln() - low) / (high - low).max(f64::MIN_POSITIVE) * (to - from)
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = write!(
        svg,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{INK}" stroke-opacity="0.25"/>"#
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    text_in(svg, x, y, anchor, text, INK);
}

fn text_in(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str, color: &str) {
    let text = escape(text);
    let _ = write!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="{color}">{text}</text>"#
    );
}

fn draw(svg: &mut String, points: &[(f64, f64)], color: &str, emphasis: Emphasis) {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let width = if emphasis == Emphasis::Other { 2.0 } else { 3.5 };
    let dash = if emphasis == Emphasis::Continued { r#" stroke-dasharray="5 5""# } else { "" };
    let _ = write!(
        svg,
        r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="{width}"{dash}/>"#,
        path.join(" ")
    );
    for (x, y) in points {
        let _ =
            write!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="{}" fill="{color}"/>"#, width + 1.0);
    }
}

fn legend(svg: &mut String, series: &[Series]) {
    let named = series.iter().filter(|line| line.emphasis != Emphasis::Continued);
    for (index, line) in named.enumerate() {
        let (x, y) = (WIDTH - RIGHT + 18.0, TOP + 10.0 + 21.0 * index as f64);
        let color = PALETTE[index % PALETTE.len()];
        let _ = write!(
            svg,
            r#"<rect x="{x:.1}" y="{:.1}" width="14" height="10" rx="2" fill="{color}"/>"#,
            y - 9.0
        );
        text(svg, x + 22.0, y, "start", &line.name);
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_the_marks_by_their_logarithm() {
        let marks = [(1.0, String::new()), (100.0, String::new())];
        let at = scale(&marks, 0.0, 200.0);
        assert!((at(10.0) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let rows = [("a<b".to_owned(), vec![("x&y".to_owned(), 1.0)])];
        let svg = shares("t", "c", &rows);
        assert!(svg.contains("a&lt;b") && svg.contains("x&amp;y") && !svg.contains("a<b"));
    }
}
