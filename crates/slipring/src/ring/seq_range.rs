//! Ranges of positions, which may reach across 2^64.

use std::iter::FusedIterator;
use std::ops::Range;

use crate::errors::NotHeld;
use crate::ring::words::ahead;

/// A range of consecutive positions, and an iterator over them.
///
/// Positions wrap at 2^64. A `Range<u64>` whose end has wrapped counts as empty and contains
/// nothing, so calls that return several positions return a `SeqRange`.
///
/// For a comparison, convert a `Range<u64>` into a `SeqRange`: the result reaches from the start up
/// to the end, also across 2^64. The result is empty if the end lies before the start. An end that
/// is 2^63 positions or more after the start counts as lying before it.
///
/// ```
/// use slipring::raw::SeqRange;
/// let (mut tx, rx) = slipring::unicast(8, || 0u64)?;
/// tx.publish_all(0..3, |slot, i| *slot = i * 10)?;
/// let mut rx = rx.into_raw();
/// let found = rx.available(8)?;
/// assert_eq!((found.first_seq(), found.last_seq(), found.len()), (0, 2, 3));
/// assert!(found.contains(2) && !found.contains(3) && found == (0..3).into());
/// let values: Vec<_> = found.map(|seq| *rx.at(seq).unwrap()).collect();
/// assert_eq!(values, [0, 10, 20]);
///
/// let across = SeqRange::from(u64::MAX..2);
/// assert!(!across.is_empty() && across.contains(0) && across.end_seq() == 2);
/// assert_eq!(across.collect::<Vec<_>>(), [u64::MAX, 0, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeqRange {
    next: u64,
    len: usize,
}

impl SeqRange {
    /// Returns the range of `len` positions from `first` on.
    pub(crate) const fn new(first: u64, len: usize) -> SeqRange {
        SeqRange { next: first, len }
    }

    /// Returns the first position that the iterator has not yielded.
    ///
    /// Example: [`SeqRange`].
    #[inline]
    pub fn first_seq(&self) -> u64 {
        self.next
    }

    /// Returns the range's last position. For an empty range, returns the position before the
    /// range's start.
    ///
    /// Example: [`SeqRange`].
    pub fn last_seq(&self) -> u64 {
        self.end_seq().wrapping_sub(1)
    }

    /// Returns the position after the range's last position. For an empty range, returns the
    /// range's start.
    ///
    /// Example: [`SeqRange`].
    pub fn end_seq(&self) -> u64 {
        self.next.wrapping_add(self.len as u64)
    }

    /// Returns whether the range has no position.
    ///
    /// Example: [`SeqRange`].
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the position `seq` is in the range.
    ///
    /// Example: [`SeqRange`].
    #[inline]
    pub fn contains(&self, seq: u64) -> bool {
        seq.wrapping_sub(self.next) < self.len as u64
    }

    /// Splits the range after position `seq`, so that the first part ends with `seq`.
    pub(crate) fn split_after(&self, seq: u64) -> Result<(SeqRange, SeqRange), NotHeld> {
        if !self.contains(seq) {
            return Err(NotHeld { seq, first: self.next, len: self.len });
        }
        let len = seq.wrapping_sub(self.next) as usize + 1;
        Ok((SeqRange::new(self.next, len), SeqRange::new(seq.wrapping_add(1), self.len - len)))
    }
}

impl From<Range<u64>> for SeqRange {
    fn from(Range { start, end }: Range<u64>) -> SeqRange {
        SeqRange::new(start, ahead(end, start).max(0) as usize)
    }
}

impl Iterator for SeqRange {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        let seq = self.next;
        self.len = self.len.checked_sub(1)?;
        self.next = seq.wrapping_add(1);
        Some(seq)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl ExactSizeIterator for SeqRange {}
impl FusedIterator for SeqRange {}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_same_positions_wherever_it_begins() {
        for first in [0, 7, u64::MAX - 1, u64::MAX, (1 << 63) - 1] {
            let at = |offset: u64| first.wrapping_add(offset);
            let range = SeqRange::from(first..at(3));
            assert_eq!(range, SeqRange::new(first, 3));
            assert_eq!(
                (range.first_seq(), range.last_seq(), range.end_seq()),
                (first, at(2), at(3))
            );
            assert!(!range.is_empty() && (0..3).all(|offset| range.contains(at(offset))));
            assert!(!range.contains(at(3)) && !range.contains(first.wrapping_sub(1)));
            assert_eq!(range.collect::<Vec<_>>(), [first, at(1), at(2)]);
            let [none, backwards] = [first..first, at(3)..first].map(SeqRange::from);
            assert!(none.is_empty() && backwards.is_empty() && !none.contains(first));
            assert_eq!((none.end_seq(), none.len(), backwards.count()), (first, 0, 0));
        }
    }
}
