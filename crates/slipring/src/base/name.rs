//! What stages are called in errors and reports.

use std::fmt;
use std::sync::Arc;

/// The stage name under which the producer's side is reported.
pub const PRODUCER: &str = "producer";

/// Widest column of names in a table, in characters.
const WIDEST: usize = 60;

/// A stage's name; cloning it allocates nothing.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    pub(crate) fn new(name: &str) -> Name {
        Name(name.into())
    }

    /// Width of the column for names in a table, in characters. A longer name, and what follows it
    /// in its line, stands further to the right: a width beyond 2^16 - 1 makes `format!` panic.
    pub(crate) fn column<'n>(names: impl Iterator<Item = &'n Name>) -> usize {
        names.map(|name| name.chars().count()).max().unwrap_or(0).min(WIDEST)
    }

    /// The name as text.
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
