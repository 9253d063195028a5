//! The figures of one arm.

use nornir_bench::BenchResult;
use serde_json::{Map, Value, json};

/// Named figures and words, in the order in which they were put.
#[derive(Clone, Debug, Default)]
pub struct Row {
    metrics: Map<String, Value>,
    notes: Vec<String>,
}

impl Row {
    /// What each row says about what it measured.
    pub fn new(mode: &str, batch: usize, payload: &str) -> Row {
        let mut row = Row::default();
        row.say("mode", mode);
        row.put("batch", batch as f64);
        row.say("payload", payload);
        row
    }

    /// A figure, rounded to four significant digits: more would pretend.
    pub fn put(&mut self, key: impl Into<String>, value: f64) {
        self.metrics.insert(key.into(), json!(significant(value)));
    }

    pub fn say(&mut self, key: impl Into<String>, text: impl Into<String>) {
        self.metrics.insert(key.into(), Value::String(text.into()));
    }

    /// A limit of what was measured: printed loudly, and kept with the figures.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        loud(&text);
        self.notes.push(text);
    }

    pub fn into_result(mut self, name: &str) -> BenchResult {
        if !self.notes.is_empty() {
            self.say("notes", self.notes.join(" | "));
        }
        BenchResult::measured(name, self.metrics)
    }

    /// The figures as one line of text, for the message of an arm that is red.
    pub fn to_line(&self) -> String {
        Value::Object(self.metrics.clone()).to_string()
    }
}

/// A line on standard error that is hard to miss.
pub fn loud(text: &str) {
    eprintln!("*** {text}");
}

fn significant(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return if value.is_finite() { value } else { 0.0 };
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    if digits <= 0 {
        return value.round();
    }
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_four_digits() {
        assert_eq!(significant(0.123_456), 0.1235);
        assert_eq!(significant(1234.56), 1235.0);
        assert_eq!(significant(98_765.4), 98_765.0);
        assert_eq!(significant(672.0), 672.0);
        assert_eq!(significant(0.0), 0.0);
    }
}
