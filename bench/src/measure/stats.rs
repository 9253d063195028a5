//! Percentiles and medians.

use std::time::Duration;

/// Times of single operations, sorted.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Nanoseconds; four seconds and more count as four.
    sorted: Vec<u32>,
}

impl Latencies {
    pub fn of(times: impl IntoIterator<Item = Duration>) -> Latencies {
        let nanos = |time: Duration| u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
        let mut sorted: Vec<u32> = times.into_iter().map(nanos).collect();
        sorted.sort_unstable();
        Latencies { sorted }
    }

    /// Pools runs of equal length, so that each counts by the work it did.
    pub fn pooled<'a>(all: impl IntoIterator<Item = &'a Latencies>) -> Latencies {
        let mut sorted: Vec<u32> = all.into_iter().flat_map(|l| l.sorted.iter().copied()).collect();
        sorted.sort_unstable();
        Latencies { sorted }
    }

    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest time that `share` (0 to 1) of all operations do not exceed; zero without any.
    pub fn percentile_us(&self, share: f64) -> f64 {
        let rank = (self.sorted.len() as f64 * share).ceil() as usize;
        let index = rank.clamp(1, self.sorted.len().max(1)) - 1;
        self.sorted.get(index).map_or(0.0, |&nanos| f64::from(nanos) / 1e3)
    }

    pub fn max_us(&self) -> f64 {
        self.percentile_us(1.0)
    }

    pub fn mean_us(&self) -> f64 {
        let sum: u64 = self.sorted.iter().map(|&nanos| u64::from(nanos)).sum();
        sum as f64 / 1e3 / self.count().max(1) as f64
    }
}

/// The middle value, or the mean of the two in the middle; zero of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// The median of the ratios of interleaved pairs: what disturbs one of a pair disturbs the other.
pub fn median_ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let latencies = Latencies::of((1..=100).rev().map(Duration::from_micros));
        assert_eq!(latencies.percentile_us(0.5), 50.0);
        assert_eq!(latencies.percentile_us(0.99), 99.0);
        assert_eq!(latencies.max_us(), 100.0);
        assert_eq!(latencies.mean_us(), 50.5);
        assert_eq!(Latencies::default().percentile_us(0.5), 0.0);
    }

    #[test]
    fn a_median_ignores_one_wild_value() {
        assert_eq!(median(&[3.0, 1e9, 2.0]), 3.0);
        assert_eq!(median(&[4.0, 2.0]), 3.0);
        assert_eq!(median_ratio(&[10.0, 1.0, 30.0], &[1.0, 1.0, 2.0]), 10.0);
    }
}
