//! A look at a segment as data: the parties with their figures, and sentences about them.

use std::ops::Range;

use jiff::Timestamp;
use serde::Serialize;

/// One attempt to look at the segment.
#[derive(Debug)]
pub struct Look {
    /// Name of the segment, or its path.
    pub segment: String,
    pub time: Timestamp,
    /// Number of the look, from 1.
    pub number: u64,
    /// The view, or the reason why the segment cannot be read.
    pub result: Result<View, String>,
}

/// The content of a successful look.
#[derive(Debug, Clone, Serialize)]
pub struct View {
    /// Time since the previous look, in seconds; `None` at the segment's first look.
    pub seconds: Option<f64>,
    /// `running`, or how the ring ended.
    pub state: &'static str,
    /// Name and version of the events' type.
    pub events: String,
    /// Number of slots.
    pub capacity: u64,
    /// Number of free slots.
    pub free: u64,
    /// Position before which all events are published.
    pub published: u64,
    /// Position after the last event of a closed ring.
    pub last: Option<u64>,
    /// Whether no process is attached.
    pub stale: bool,
    /// The producers, and then the stages.
    pub parties: Vec<PartyView>,
    /// Sentences about the ring, the worst first.
    pub notes: Vec<Note>,
}

/// The producers, or a stage.
#[derive(Debug, Clone, Serialize)]
pub struct PartyView {
    pub name: String,
    /// `producer`, or the delivery of the stage.
    pub kind: &'static str,
    pub position: u64,
    /// Number of published events that the party has not released.
    pub lag: u64,
    /// The lag as a share of the ring.
    pub lag_share: f64,
    /// Events per second since the previous look.
    pub rate: Option<f64>,
    /// Share of the time since the previous look that the party's handles spent waiting.
    pub wait_share: Option<f64>,
    /// For each awaited party: the time that the handles have waited for it, as a share of the time
    /// since the previous look. A wait is counted when it is over.
    pub waited_for: Vec<WaitedFor>,
    /// Number of threads that sleep at the party's wait queue.
    pub asleep: u32,
    /// The chain of waiting: the party that this one waits for, the party that the second one waits
    /// for, and so on.
    pub waits_for: Vec<String>,
    /// Time since the party's position last changed, in seconds. A time before this program's first
    /// look is not counted.
    pub unmoved_seconds: f64,
    /// Counts per second since the previous look.
    pub rates: Option<Rates>,
    /// Counts since the segment was made.
    pub counts: CountsView,
    /// Number of handles that the party has room for.
    pub room: usize,
    /// Number of the party's places that are occupied by processes.
    pub taken: usize,
    /// If the party has only one place, that place. Otherwise all of the party's places, except for
    /// those that are merely free.
    pub places: Vec<PlaceView>,
}

#[derive(Debug, Clone, Serialize)]
pub struct WaitedFor {
    pub party: String,
    pub share: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rates {
    pub batches: f64,
    pub waits: f64,
    pub sleeps: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct CountsView {
    pub events: u64,
    pub batches: u64,
    pub tombstones: u64,
    pub skipped: u64,
    pub retries: u64,
    pub dropped: u64,
    pub waits: u64,
    pub sleeps: u64,
    pub waited_seconds: f64,
}

/// A place of a party.
#[derive(Debug, Clone, Serialize)]
pub struct PlaceView {
    /// Number of the place among the party's places, from 1.
    pub number: usize,
    /// `alive`, `stopped`, `dead`, `free`, `orphan` or `held`.
    pub state: &'static str,
    pub process: Option<String>,
    pub pid: Option<u32>,
    /// Number of processes that died at this place.
    pub deaths: u32,
    /// Position of a tap's reader. `lag` and `rate` are that reader's, too.
    pub position: Option<u64>,
    pub lag: Option<u64>,
    pub rate: Option<f64>,
    /// Events that a worker has taken, or positions that one of several producers has claimed.
    pub events: Option<Range<u64>>,
    /// Number of events that a dead reader of a tap had not read.
    pub unread: u64,
}

impl PartyView {
    /// Returns the only place of a party that has room for one handle.
    pub fn sole(&self) -> Option<&PlaceView> {
        self.places.first().filter(|_| self.room == 1)
    }
}

/// The severity of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The ring works as it should.
    Info,
    /// The state of the ring is worth a look.
    Warning,
    /// The ring does not continue by itself.
    Error,
}

/// A sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    pub severity: Severity,
    pub text: String,
}

impl Note {
    pub fn new(severity: Severity, text: impl Into<String>) -> Note {
        Note { severity, text: text.into() }
    }
}
