//! The result of a run.
//!
//! - I1: A report has no address and nothing of the real clock in it, so that two runs of the same
//!   program with the same machine write the same text.

use std::fmt;
use std::time::Duration;

use crate::counts::Counts;

/// The counts of a run.
///
/// Its [`Display`](fmt::Display) is a text of one line for each thread and hot line, the same in
/// every run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Name of the machine.
    pub machine: String,
    /// Each thread with its counts, in the order in which the threads began.
    pub cores: Vec<(String, Counts)>,
    /// Virtual time from [`begin_measuring`](crate::begin_measuring), or else from the start, until
    /// [`end_measuring`](crate::end_measuring), or else until the last thread ended.
    pub time: Duration,
    /// The lines that moved, those with most transfers first. Empty without
    /// [`trace_lines`](crate::Simulation::trace_lines).
    pub hot: Vec<HotLine>,
    /// Accesses since the start, those before the measurement included.
    pub accesses: u64,
    /// Number of turns that another thread than the last one got, in a run by a schedule; otherwise
    /// 0.
    pub switches: u64,
    /// Number of virtual processes that died.
    pub deaths: u64,
    pub(crate) total: Counts,
}

/// A line and what was done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotLine {
    /// Number of the line, in the order of the first accesses.
    pub number: usize,
    /// The name that [`label`](crate::label) gave it.
    pub label: Option<String>,
    /// Operations on the line.
    pub counts: Counts,
}

impl Report {
    /// Returns the counts of all threads together.
    ///
    /// Example: [`Simulation`](crate::Simulation).
    pub fn counts(&self) -> &Counts {
        &self.total
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} ns of virtual time", self.machine, self.time.as_nanos())?;
        for (name, counts) in &self.cores {
            writeln!(f, "{name}:{}", Listed(counts))?;
        }
        writeln!(f, "all:{}", Listed(&self.total))?;
        for line in &self.hot {
            write!(f, "line {}", line.number)?;
            if let Some(label) = &line.label {
                write!(f, " ({label})")?;
            }
            writeln!(f, ":{}", Listed(&line.counts))?;
        }
        Ok(())
    }
}

/// The counts above zero.
struct Listed<'a>(&'a Counts);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.0.named();
        named.iter().filter(|(_, n)| *n > 0).try_for_each(|(name, n)| write!(f, " {name} {n}"))
    }
}
