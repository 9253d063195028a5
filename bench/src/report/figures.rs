//! Reading figures out of a run, and writing them for people.

use nornir_bench::BenchRun;

use crate::peers::NAMES;

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'a> {
    run: &'a BenchRun,
}

impl<'a> Figures<'a> {
    pub fn of(run: &'a BenchRun) -> Figures<'a> {
        Figures { run }
    }

    /// A figure of an arm, which is named without its `refstone.`.
    pub fn get(&self, arm: &str, key: &str) -> Option<f64> {
        self.run.find(&format!("refstone.{arm}"))?.metrics.get(key)?.as_f64()
    }

    /// The stores that were measured, by name.
    pub fn stores(&self) -> impl Iterator<Item = &'static str> {
        let measured =
            |name: &&str| self.get("peers", &format!("{name}_moves_per_sec_1")).is_some();
        NAMES.into_iter().filter(measured)
    }

    pub fn text(&self, arm: &str, key: &str) -> Option<&'a str> {
        self.run.find(&format!("refstone.{arm}"))?.metrics.get(key)?.as_str()
    }

    /// A figure for a table; a dash if it was not measured.
    pub fn show(&self, arm: &str, key: &str) -> String {
        self.get(arm, key).map_or_else(|| "–".to_owned(), show)
    }

    /// Machine, version, date, and what the disk and the neighbours did meanwhile.
    pub fn caption(&self, arm: &str) -> String {
        let run = self.run;
        format!(
            "{}, {} cores, {}, Linux {}; refstone {}; {}. A sync took {} µs (p50) and {} µs (p99), \
             the load went from {} to {}, other processes took {} of the cores.",
            run.machine,
            run.cores,
            self.text(arm, "file_system").unwrap_or("unknown file system"),
            self.text(arm, "kernel").unwrap_or("unknown"),
            run.version,
            run.date,
            self.show(arm, "sync_p50_us"),
            self.show(arm, "sync_p99_us"),
            self.show(arm, "load_before"),
            self.show(arm, "load_after"),
            self.show(arm, "others_cores"),
        )
    }

    /// The same of figures of several arms.
    pub fn caption_of(&self, arms: &[&str]) -> String {
        let run = self.run;
        let range = |keys: &[&str]| {
            let found =
                arms.iter().flat_map(|arm| keys.iter().filter_map(|key| self.get(arm, key)));
            let (least, most) = found.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), x| {
                (least.min(x), most.max(x))
            });
            format!("{} to {}", show(least), show(most))
        };
        format!(
            "{}, {} cores, {}, Linux {}; refstone {}; {}. A sync took {} µs (p50 of each arm), the load was \
             {}, other processes took {} of the cores.",
            run.machine,
            run.cores,
            self.text(arms[0], "file_system").unwrap_or("unknown file system"),
            self.text(arms[0], "kernel").unwrap_or("unknown"),
            run.version,
            run.date,
            range(&["sync_p50_us"]),
            range(&["load_before", "load_after"]),
            range(&["others_cores"]),
        )
    }

    /// The same in few words, for a plot.
    pub fn short_caption(&self, arm: &str) -> String {
        let run = self.run;
        let sync = self.show(arm, "sync_p50_us");
        format!("{}; refstone {}; {}; sync p50 {sync} µs", run.machine, run.version, run.date)
    }
}

/// Three significant digits at least, and thousands set apart.
pub(super) fn show(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((&*text, None), |(w, f)| (w, Some(f)));
    let mut shown = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left.is_multiple_of(3) && !shown.ends_with('-') {
            shown.push(',');
        }
        shown.push(digit);
    }
    match fraction {
        Some(fraction) => format!("{shown}.{fraction}"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_for_people() {
        let shown = [0.0, 0.4567, 7.123, 48.66, 123.4, 48_600.4, 1_234_567.0].map(show);
        assert_eq!(shown, ["0", "0.457", "7.12", "48.7", "123", "48,600", "1,234,567"]);
    }
}
