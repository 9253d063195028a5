//! The sequences that repairs lost: what `refstone.gaps` in the schema says.

use crate::seq::Seq;

/// The sequences that repairs of a log lost, or gave up because they may have been given out.
///
/// Inclusive ranges, ascending; between any two of them there is a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps(Vec<(Seq, Seq)>);

impl Gaps {
    /// The ranges: first and last sequence of each.
    #[must_use]
    pub fn ranges(&self) -> &[(Seq, Seq)] {
        &self.0
    }

    /// The gap that a sequence is in.
    fn around(&self, seq: Seq) -> Option<(Seq, Seq)> {
        let after = self.0.partition_point(|(_, last)| *last < seq);
        self.0.get(after).copied().filter(|(first, _)| *first <= seq)
    }

    /// Whether a sequence is in a gap.
    #[must_use]
    pub fn contains(&self, seq: Seq) -> bool {
        self.around(seq).is_some()
    }

    /// The sequence after this one, behind any gap.
    #[must_use]
    pub fn next_after(&self, seq: Seq) -> Seq {
        let next = seq.next();
        self.around(next).map_or(next, |(_, last)| last.next())
    }

    /// This sequence, or the last one before the gap that it is in.
    #[must_use]
    pub fn at_or_before(&self, seq: Seq) -> Seq {
        self.around(seq).map_or(seq, |(first, _)| Seq::new(first.get() - 1))
    }

    /// The sequences between two others that are in no gap, as inclusive ranges.
    pub(crate) fn between(&self, after: Seq, before: Seq) -> Vec<(Seq, Seq)> {
        let mut ranges = Vec::new();
        let mut first = self.next_after(after);
        while first < before {
            let gap = self.0.iter().find(|(start, _)| *start > first && *start < before);
            let end = gap.map_or(before, |(start, _)| *start);
            let last = Seq::new(end.get() - 1);
            ranges.push((first, last));
            first = self.next_after(last);
        }
        ranges
    }

    /// Records that `first` to `last` are lost.
    pub(crate) fn add(&mut self, first: Seq, last: Seq) {
        let before = |seq: Seq| Seq::new(seq.get().saturating_sub(1));
        // Those that touch the new one become one with it.
        let start = self.0.partition_point(|(_, end)| *end < before(first));
        let end = self.0.partition_point(|(start, _)| *start <= last.next());
        let touched = &self.0[start..end];
        let first = touched.first().map_or(first, |(other, _)| first.min(*other));
        let last = touched.last().map_or(last, |(_, other)| last.max(*other));
        self.0.splice(start..end, [(first, last)]);
    }

    /// The value of `refstone.gaps`: ranges such as `5-7,9-9`.
    pub(crate) fn format(&self) -> String {
        let ranges: Vec<String> =
            self.0.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        ranges.join(",")
    }

    pub(crate) fn parse(text: &str) -> Option<Gaps> {
        let mut gaps = Gaps::default();
        let mut after = Seq::ZERO;
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-')?;
            let (first, last) = (Seq::new(first.parse().ok()?), Seq::new(last.parse().ok()?));
            if first <= after || last < first || last >= Seq::MAX {
                return None;
            }
            gaps.add(first, last);
            after = last;
        }
        Some(gaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(text: &str) -> Gaps {
        Gaps::parse(text).unwrap()
    }

    #[test]
    fn what_was_read_is_written_again() {
        for text in ["", "1-1", "5-7,9-9", "5-7,10-12"] {
            assert_eq!(gaps(text).format(), text);
        }
        for text in ["0-1", "7-5", "5-7,7-9", "9-9,5-7", "5", "5-x"] {
            assert_eq!(Gaps::parse(text), None, "{text}");
        }
    }

    // Break: leaving two gaps side by side, so that the walk ends in the second.
    #[test]
    fn gaps_that_touch_become_one() {
        let mut all = gaps("5-7,20-22");
        for (first, last, expected) in [
            (8, 9, "5-9,20-22"),
            (12, 12, "5-9,12-12,20-22"),
            (10, 11, "5-12,20-22"),
            (1, 1, "1-1,5-12,20-22"),
            (6, 30, "1-1,5-30"),
            (40, 41, "1-1,5-30,40-41"),
        ] {
            all.add(Seq::new(first), Seq::new(last));
            assert_eq!(all.format(), expected);
        }
    }

    #[test]
    fn what_is_in_a_gap_is_not_lost_again() {
        let lost = |after, before| {
            let mut lost = Gaps::default();
            let between = gaps("5-7,9-9").between(Seq::new(after), Seq::new(before));
            between.into_iter().for_each(|(first, last)| lost.add(first, last));
            lost.format()
        };
        assert_eq!(lost(4, 8), "");
        assert_eq!(lost(2, 8), "3-4");
        assert_eq!(lost(2, 12), "3-4,8-8,10-11");
        assert_eq!(lost(10, 11), "");
    }

    // Break: a gap that starts before the sequence, or ends at it.
    #[test]
    fn sequences_go_on_behind_a_gap() {
        let gaps = gaps("5-7,9-9");
        let next = |seq| gaps.next_after(Seq::new(seq)).get();
        assert_eq!([3, 4, 5, 7, 8, 9].map(next), [4, 8, 8, 8, 10, 10]);
        let before = |seq| gaps.at_or_before(Seq::new(seq)).get();
        assert_eq!([4, 5, 7, 8, 9, 10].map(before), [4, 4, 4, 8, 8, 10]);
        assert!(gaps.contains(Seq::new(6)) && !gaps.contains(Seq::new(8)));
    }
}
