//! The cache lines that a run has touched: their numbers, and who has them.
//!
//! - I1: A line has an owner, who alone may change it, or sharers, or neither before its first
//!   access. An owner is the line's only sharer.
//! - I2: Lines are numbered in the order of their first accesses, so nothing that a run decides or
//!   reports depends on an address. The table by address is only looked up, never iterated.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::counts::Counts;

/// Size of a cache line, in bytes.
pub(crate) const LINE: usize = 64;

/// No core.
pub(crate) const NONE: u8 = u8::MAX;

/// Who has a line, and its last transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// A bit for each core with a valid copy.
    pub(crate) sharers: u64,
    /// The core that may change the line without asking, or [`NONE`].
    pub(crate) owner: u8,
    /// When the line can serve its next transfer.
    pub(crate) free_at: u64,
    /// The core that got the line last, and when it gets it.
    pub(crate) to: u8,
    pub(crate) arrives: u64,
    /// Who had the line before, and until when.
    pub(crate) earlier_sharers: u64,
    pub(crate) earlier_owner: u8,
    pub(crate) lost: u64,
}

const UNTOUCHED: Line = Line {
    sharers: 0,
    owner: NONE,
    free_at: 0,
    to: NONE,
    arrives: 0,
    earlier_sharers: 0,
    earlier_owner: NONE,
    lost: 0,
};

impl Line {
    pub(crate) fn is_shared_by(&self, core: usize) -> bool {
        self.sharers >> core & 1 == 1
    }

    /// Whether `core`, which loses the line to another core, still has a copy at `time`.
    pub(crate) fn still_shared_by(&self, core: usize, time: u64) -> bool {
        time < self.lost && self.earlier_sharers >> core & 1 == 1
    }

    /// Whether `core`, which loses the line to another core, may still change it at `time`.
    pub(crate) fn still_owned_by(&self, core: usize, time: u64) -> bool {
        time < self.lost && usize::from(self.earlier_owner) == core
    }
}

/// The number of a line (I2).
pub(crate) type Number = u32;

/// A hasher without a secret: one multiplication.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, n: usize) {
        let mixed = (self.0 ^ n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

/// A table by address. Never iterated (I2).
pub(crate) type ByAddress<V> = HashMap<usize, V, BuildHasherDefault<AddressHasher>>;

/// Entries of the cache in front of the table.
const RECENT: usize = 1024;

/// All lines of a run.
pub(crate) struct LineTable {
    numbers: ByAddress<Number>,
    /// The numbers of lines looked up lately, at the low bits of their addresses.
    recent: Box<[(usize, Number)]>,
    lines: Vec<Line>,
    addresses: Vec<usize>,
    /// Counts of each line, if they are traced.
    traced: Option<Vec<Counts>>,
    /// Named ranges of addresses.
    labels: Vec<(usize, usize, String)>,
}

impl LineTable {
    pub(crate) fn new(trace: bool) -> LineTable {
        LineTable {
            numbers: ByAddress::default(),
            recent: vec![(usize::MAX, 0); RECENT].into_boxed_slice(),
            lines: Vec::new(),
            addresses: Vec::new(),
            traced: trace.then(Vec::new),
            labels: Vec::new(),
        }
    }

    /// Returns the number of the line in which `at` is.
    #[inline]
    pub(crate) fn number(&mut self, at: usize) -> Number {
        let line = at / LINE;
        let (recent, number) = self.recent[line % RECENT];
        if recent == line { number } else { self.look_up(line) }
    }

    #[cold]
    fn look_up(&mut self, line: usize) -> Number {
        let next = Number::try_from(self.lines.len()).expect("a run touches fewer than 2^32 lines");
        let number = *self.numbers.entry(line).or_insert(next);
        if number == next {
            self.lines.push(UNTOUCHED);
            self.addresses.push(line * LINE);
            if let Some(traced) = &mut self.traced {
                traced.push(Counts::default());
            }
        }
        self.recent[line % RECENT] = (line, number);
        number
    }

    #[inline]
    pub(crate) fn get(&self, number: Number) -> &Line {
        &self.lines[number as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: Number) -> &mut Line {
        &mut self.lines[number as usize]
    }

    /// Returns the counts of a line, if they are traced.
    #[inline]
    pub(crate) fn counts(&mut self, number: Number) -> Option<&mut Counts> {
        Some(&mut self.traced.as_mut()?[number as usize])
    }

    /// Forgets the counts of all lines.
    pub(crate) fn forget_counts(&mut self) {
        self.traced.iter_mut().flatten().for_each(|counts| *counts = Counts::default());
    }

    pub(crate) fn add_label(&mut self, at: usize, len: usize, name: &str) {
        self.labels.push((at, at + len.max(1), name.to_owned()));
    }

    /// Returns the names in a line, in the order in which they were given.
    pub(crate) fn label(&self, number: Number) -> Option<String> {
        let begin = self.addresses[number as usize];
        let within = |&&(from, to, _): &&(usize, usize, String)| from < begin + LINE && to > begin;
        let mut names: Vec<&str> = Vec::new();
        for (_, _, name) in self.labels.iter().filter(within) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Returns the lines that moved, with their counts, those with most transfers first.
    pub(crate) fn hot(&self) -> Vec<(Number, Counts)> {
        let traced = self.traced.iter().flatten().enumerate();
        let moved = traced.filter(|(_, counts)| counts.transfers() > 0);
        let mut hot: Vec<_> = moved.map(|(n, counts)| (n as Number, *counts)).collect();
        hot.sort_by_key(|(number, counts)| (std::cmp::Reverse(counts.transfers()), *number));
        hot
    }
}
