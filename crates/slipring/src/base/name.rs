//! Names of stages in errors and reports.

use std::fmt;
use std::sync::Arc;

/// Name that stands for all producers in errors and reports.
pub const PRODUCER: &str = "producer";

/// Largest width of a table's column of names, in characters.
const WIDEST: usize = 60;

/// Name of a stage. A clone of a name shares the text and does not allocate.
///
/// A name is a single pointer, because each result of a call has room for a name
/// ([`WaitError`](crate::errors::WaitError)), and should stay small.
///
/// ```
/// let done = slipring::ring(8, || 0u64)
///     .read("log", |_, _| ())
///     .feed(0..3, |slot, i| *slot = i)?;
/// let name = &done.report.stages()[0].name;
/// assert_eq!(name.as_str(), "log");
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<Box<str>>);

impl Name {
    pub(crate) fn new(name: &str) -> Name {
        Name(Arc::new(name.into()))
    }

    /// Returns the width of a table's column of names, in characters. A longer name shifts the rest
    /// of its line. The width is at most [`WIDEST`], because `format!` panics at a width beyond
    /// 2^16 - 1.
    pub(crate) fn column<'n>(names: impl Iterator<Item = &'n Name>) -> usize {
        names.map(|name| name.chars().count()).max().unwrap_or(0).min(WIDEST)
    }

    /// Returns the name as text.
    ///
    /// Example: [`Name`].
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
