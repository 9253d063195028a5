//! The plots.

use crate::report::figures::{Figures, show};
use crate::report::svg::{self, Axis, Emphasis, Series};

/// Each plot with the name of its file.
pub(super) fn all(figures: &Figures<'_>) -> Vec<(&'static str, String)> {
    vec![
        ("scaling.svg", scaling(figures)),
        ("latency.svg", latency(figures)),
        ("phases.svg", phases(figures)),
    ]
}

fn scaling(figures: &Figures<'_>) -> String {
    let mut series = Vec::new();
    for name in figures.stores() {
        let at = |writers: u32| {
            let rate = figures.get("peers", &format!("{name}_moves_per_sec_{writers}"))?;
            (rate > 0.0).then_some((f64::from(writers), rate))
        };
        series.push(line(name, [1, 16, 64].into_iter().filter_map(at).collect()));
        if name == "refstone" {
            series[0].name.push_str(" (dashed: alone)");
            series.push(beyond(figures));
        }
    }
    let marks = [1, 2, 4, 8, 16, 32, 64, 128, 256].map(|w| (f64::from(w), w.to_string()));
    let x = Axis { label: "writers, each with a ref of its own", marks: marks.into() };
    let y = Axis { label: "durable moves per second", marks: decades(&series) };
    let caption = figures.short_caption("peers");
    svg::lines("Durable ref moves per second, by writers", &caption, &x, &y, &series)
}

/// More numbers of writers, from the arm that looks at refstone alone.
fn beyond(figures: &Figures<'_>) -> Series {
    let at = |writers: u32| {
        let rate = figures.get("reflog_group_commit", &format!("push_per_sec_{writers}"))?;
        Some((f64::from(writers), rate))
    };
    let points = [1, 2, 4, 8, 16, 32, 64, 256].into_iter().filter_map(at).collect();
    Series { name: String::new(), points, emphasis: Emphasis::Continued }
}

fn latency(figures: &Figures<'_>) -> String {
    // How many of so many commits are slower: that is what a percentile means to whom it hits.
    const PERCENTILES: [(&str, f64, &str); 5] = [
        ("p50_us", 1.0, "p50"),
        ("p90_us", 5.0, "p90"),
        ("p99_us", 50.0, "p99"),
        ("p999_us", 500.0, "p99.9"),
        ("max_us", 5_000.0, "max"),
    ];
    let series: Vec<Series> = figures
        .stores()
        .map(|name| {
            let at = |(key, x, _): &(&str, f64, &str)| {
                let us = figures.get("peers", &format!("{name}_{key}_16"))?;
                (us > 0.0).then_some((*x, us))
            };
            line(name, PERCENTILES.iter().filter_map(at).collect())
        })
        .collect();
    let marks = PERCENTILES.map(|(_, x, label)| (x, label.to_owned())).into();
    let x = Axis { label: "share of commits that were faster", marks };
    let y = Axis { label: "microseconds until durable, at 16 writers", marks: decades(&series) };
    let caption = figures.short_caption("peers");
    svg::lines("Latency of a durable ref move at 16 writers", &caption, &x, &y, &series)
}

fn phases(figures: &Figures<'_>) -> String {
    const PHASES: [&str; 11] = [
        "sync", "queue", "wake", "write", "stage", "fold", "publish", "validate", "extend",
        "encode", "rewrite",
    ];
    let rows = [1, 16].map(|writers| {
        let us = |phase: &str| figures.get("phases", &format!("{phase}_us_{writers}"));
        let parts = PHASES.map(|phase| (phase.to_owned(), us(phase).unwrap_or_default().max(0.0)));
        let whole = us("commit").map_or_else(|| "–".to_owned(), show);
        let label = match writers {
            1 => format!("1 writer: {whole} µs per commit"),
            _ => format!("{writers} writers: {whole} µs per commit"),
        };
        (label, parts.to_vec())
    });
    svg::shares("Where the time of a commit goes", &figures.short_caption("phases"), &rows)
}

fn line(name: &str, points: Vec<(f64, f64)>) -> Series {
    let emphasis = if name == "refstone" { Emphasis::Subject } else { Emphasis::Other };
    Series { name: name.replace('_', " "), points, emphasis }
}

/// Powers of ten that hold all values.
fn decades(series: &[Series]) -> Vec<(f64, String)> {
    let values = || series.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let low = values().fold(f64::INFINITY, f64::min).log10().floor();
    let high = values().fold(0.0, f64::max).log10().ceil();
    if !low.is_finite() || !high.is_finite() {
        return vec![(1.0, "1".to_owned()), (10.0, "10".to_owned())];
    }
    let (low, high) = (low as i32, (high as i32).max(low as i32 + 1));
    (low..=high).map(|power| (10_f64.powi(power), power_of_ten(power))).collect()
}

fn power_of_ten(power: i32) -> String {
    let text = show(10_f64.powi(power));
    if power < 0 { text } else { text.split('.').next().unwrap_or_default().to_owned() }
}
