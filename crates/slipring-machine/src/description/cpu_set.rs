//! Sets of CPUs, and the system's lists of numbers.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A set of CPUs, by the numbers that the system gives them.
///
/// The text of a set, also in records, is a list of ranges in the system's form: `0-3,8`.
///
/// ```
/// use slipring_machine::CpuSet;
///
/// let cpus: CpuSet = "0-3,8,10-11".parse()?;
/// assert_eq!(cpus.len(), 7);
/// assert!(cpus.contains(11) && !cpus.contains(9));
/// assert_eq!(cpus.to_string(), "0-3,8,10-11");
/// # Ok::<(), slipring_machine::CpuListError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<usize>);

impl CpuSet {
    /// Exclusive upper bound of the numbers in a list. Linux has at most that many CPUs.
    pub const LIMIT: usize = 8_192;

    /// Creates an empty set.
    ///
    /// ```
    /// assert!(slipring_machine::CpuSet::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of CPUs.
    ///
    /// Example: [`CpuSet`].
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no CPU in the set.
    ///
    /// Example: [`CpuSet::new`].
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a CPU is in the set.
    ///
    /// Example: [`CpuSet`].
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// Returns the CPUs in order.
    ///
    /// ```
    /// let cpus = slipring_machine::CpuSet::from_iter([2, 0]);
    /// assert_eq!(cpus.iter().collect::<Vec<_>>(), [0, 2]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Returns the CPU with the smallest number.
    ///
    /// ```
    /// assert_eq!(slipring_machine::CpuSet::from_iter([2, 1]).first(), Some(1));
    /// ```
    pub fn first(&self) -> Option<usize> {
        self.0.first().copied()
    }

    /// Returns the CPUs that are in both sets.
    ///
    /// ```
    /// use slipring_machine::CpuSet;
    ///
    /// let (one, other) = (CpuSet::from_iter(0..4), CpuSet::from_iter(2..8));
    /// assert_eq!(one.intersection(&other).to_string(), "2-3");
    /// assert_eq!(one.difference(&other).to_string(), "0-1");
    /// assert!(one.intersection(&other).is_subset(&one));
    /// ```
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Returns the CPUs of this set that the other one does not have.
    ///
    /// Example: [`CpuSet::intersection`].
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Returns whether the other set has all CPUs of this one.
    ///
    /// Example: [`CpuSet::intersection`].
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Returns whether no CPU is in both sets.
    ///
    /// ```
    /// use slipring_machine::CpuSet;
    ///
    /// assert!(CpuSet::from_iter(0..2).is_disjoint(&CpuSet::from_iter(2..4)));
    /// ```
    pub fn is_disjoint(&self, other: &CpuSet) -> bool {
        self.0.is_disjoint(&other.0)
    }

    pub(crate) fn extend(&mut self, other: &CpuSet) {
        self.0.extend(&other.0);
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut cpus = self.iter().peekable();
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|&next| next == last + 1) {
                last = next;
            }
            let comma = if text.is_empty() { "" } else { "," };
            text += &match first == last {
                true => format!("{comma}{first}"),
                false => format!("{comma}{first}-{last}"),
            };
        }
        f.pad(&text)
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

/// The error for a text that is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuListError {
    part: String,
    problem: &'static str,
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, problem } = self;
        write!(f, "`{}` {problem}; a list of CPUs looks like 0-3,8", part.escape_debug())
    }
}

impl std::error::Error for CpuListError {}

impl FromStr for CpuSet {
    type Err = CpuListError;

    /// Reads a list: numbers and ranges with commas between them. A range may have a stride:
    /// `0-31:2/4` has the first two CPUs of every four. An empty list is an empty set.
    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let text = text.trim();
        let mut cpus = BTreeSet::new();
        if text.is_empty() {
            return Ok(Self(cpus));
        }
        let mut visited = 0;
        for part in text.split(',') {
            let range = range(part.trim())
                .map_err(|problem| CpuListError { part: shortened(part), problem })?;
            // Without this limit, a list that repeats large ranges a thousand times would take
            // forever.
            visited += range.last - range.first + 1;
            if visited > 4 * Self::LIMIT {
                return Err(CpuListError { part: shortened(text), problem: "has too many CPUs" });
            }
            cpus.extend(
                (range.first..=range.last)
                    .filter(|cpu| (cpu - range.first) % range.group < range.used),
            );
        }
        Ok(Self(cpus))
    }
}

/// Some of the CPUs from `first` to `last`: the first `used` of each `group` consecutive CPUs.
struct Range {
    first: usize,
    last: usize,
    used: usize,
    group: usize,
}

fn range(text: &str) -> Result<Range, &'static str> {
    let (bounds, stride) = text.split_once(':').map_or((text, None), |(b, s)| (b, Some(s)));
    let (first, last) = bounds.split_once('-').unwrap_or((bounds, bounds));
    let (first, last) = (number(first)?, number(last)?);
    let (used, group) = match stride {
        None => (1, 1),
        Some(stride) => {
            let (used, group) = stride.split_once('/').ok_or("has a stride without a slash")?;
            (number(used)?, number(group)?)
        }
    };
    match () {
        () if first > last => Err("ends before it begins"),
        () if last >= CpuSet::LIMIT => Err("is beyond 8191"),
        () if used == 0 || used > group => Err("has an impossible stride"),
        () => Ok(Range { first, last, used, group }),
    }
}

fn number(text: &str) -> Result<usize, &'static str> {
    // `parse` accepts a sign.
    match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        true => text.parse().map_err(|_| "is beyond 8191"),
        false => Err("is no number or range"),
    }
}

/// Returns the beginning of a text, for messages.
pub(crate) fn shortened(text: &str) -> String {
    const LENGTH: usize = 40;
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<usize> {
        text.parse::<CpuSet>().unwrap().iter().collect()
    }

    #[test]
    fn lists_of_the_system() {
        assert_eq!(list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(list(""), [0; 0]);
        assert_eq!(list(" \n"), [0; 0]);
        assert_eq!(list("7"), [7]);
        assert_eq!(list("3,1,2-3"), [1, 2, 3]);
        assert_eq!(list("0-10:2/4"), [0, 1, 4, 5, 8, 9]);
        assert_eq!(list("8191"), [8191]);
    }

    #[test]
    fn what_is_no_list_is_named() {
        let long = "0-8191,".repeat(100_000) + "0";
        for (text, said) in [
            ("0-", "`0-` is no number or range"),
            ("0,,1", "`` is no number or range"),
            ("a", "`a` is no number or range"),
            ("+1", "`+1` is no number or range"),
            ("0,3-2", "`3-2` ends before it begins"),
            ("8192", "`8192` is beyond 8191"),
            ("0-99999999999999999999", "is beyond 8191"),
            ("0-3:2", "`0-3:2` has a stride without a slash"),
            ("0-3:0/4", "`0-3:0/4` has an impossible stride"),
            ("0-3:1/0", "has an impossible stride"),
            ("0-3:99999999999999999999/1", "is beyond 8191"),
            ("\u{1b}[2J", "`\\u{1b}[2J` is no number or range"),
            (&long, "has too many CPUs"),
        ] {
            let error = text.parse::<CpuSet>().unwrap_err().to_string();
            assert!(error.contains(said) && error.len() < 200, "{error}");
        }
    }

    #[test]
    fn a_set_is_written_as_it_is_read() {
        for text in ["", "0", "0-1", "0-3,8,10-11", "1,3,5"] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), text);
        }
    }
}
