//! What happened, told at the end: counts per stage, and for whom the others waited.
//!
//! Handles count in plain fields of their own and add them up here when they are dropped: a few additions per batch while the ring
//! runs, nothing shared. These are statistics, not protocol, so the lock is the system's even under the model checker.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use crate::name::{Name, PRODUCER};

/// What one handle counted, or several added up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) batches: u64,
    pub(crate) tombstones: u64,
    pub(crate) waits: u64,
    /// Time waited, by whom it was waited for: stages by number, the producer last.
    pub(crate) waited_for: Box<[Duration]>,
}

impl Counts {
    pub(crate) fn new(stages: usize) -> Counts {
        Counts { waited_for: vec![Duration::ZERO; stages + 1].into(), ..Counts::default() }
    }

    fn add(&mut self, other: &Counts) {
        self.events += other.events;
        self.batches += other.batches;
        self.tombstones += other.tombstones;
        self.waits += other.waits;
        for (mine, theirs) in self.waited_for.iter_mut().zip(&other.waited_for) {
            *mine += *theirs;
        }
    }
}

/// Counts per stage, the producer last.
pub(crate) struct Tally(Mutex<Vec<Counts>>);

impl Tally {
    pub(crate) fn new(stages: usize) -> Tally {
        Tally(Mutex::new(vec![Counts::new(stages); stages + 1]))
    }

    pub(crate) fn add(&self, party: usize, counts: &Counts) {
        let mut all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        all[party].add(counts);
    }

    pub(crate) fn report(&self, names: impl Iterator<Item = Name>, halted: bool) -> Report {
        let all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let stages = names
            .chain([Name::new(PRODUCER)])
            .enumerate()
            .map(|(i, name)| {
                let own = &all[i];
                StageReport {
                    name,
                    events: own.events,
                    batches: own.batches,
                    tombstones: own.tombstones,
                    waits: own.waits,
                    waited: own.waited_for.iter().sum(),
                    waited_for: all.iter().map(|other| other.waited_for[i]).sum(),
                }
            })
            .collect();
        Report { stages, halted }
    }
}

/// What happened in a graph, per stage; it prints as a table.
///
/// Counts cover the handles that have ended. After `run`, `feed` or `join` that is all of them.
#[derive(Clone, Debug)]
pub struct Report {
    stages: Vec<StageReport>,
    halted: bool,
}

/// What happened in one stage.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StageReport {
    /// The stage; the producers together stand as [`PRODUCER`].
    pub name: Name,
    /// Events it handled; for the producer, events published.
    pub events: u64,
    /// Batches they came in; for the producer, publications. Workers of a pool: chunks.
    pub batches: u64,
    /// Slots it passed over because their claim was given up; for the producer, slots it gave up.
    pub tombstones: u64,
    /// How often it found nothing to do and waited.
    pub waits: u64,
    /// How long it waited in all, summed over its workers.
    pub waited: Duration,
    /// How long all others waited for it.
    pub waited_for: Duration,
}

impl Report {
    /// The stages in the order they were declared, the producer last.
    pub fn stages(&self) -> &[StageReport] {
        &self.stages
    }

    /// The stage of this name.
    pub fn stage(&self, name: &str) -> Option<&StageReport> {
        self.stages.iter().find(|stage| &*stage.name == name)
    }

    /// The producer's side.
    pub fn producer(&self) -> &StageReport {
        &self.stages[self.stages.len() - 1]
    }

    /// Whether the graph was halted, so that events may have stayed unseen.
    pub fn halted(&self) -> bool {
        self.halted
    }

    /// The stage (or the producer) that the others waited for longest, not counting what it waited itself: make this one faster first.
    /// `None`: nobody waited.
    pub fn bottleneck(&self) -> Option<&StageReport> {
        // Who waits is waited for in turn; only what goes beyond that is a stage's own doing.
        let own = |stage: &&StageReport| (stage.waited_for.saturating_sub(stage.waited), stage.waited_for);
        self.stages.iter().max_by_key(own).filter(|stage| !stage.waited_for.is_zero())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.stages.iter().map(|stage| stage.name.len()).max().unwrap_or(0).max(5);
        writeln!(
            f,
            "{:width$} {:>12} {:>11} {:>10} {:>10} {:>11} {:>11}",
            "stage", "events", "batches", "tombstones", "waits", "waited s", "held up s"
        )?;
        for stage in &self.stages {
            writeln!(
                f,
                "{:width$} {:>12} {:>11} {:>10} {:>10} {:>11.3} {:>11.3}",
                stage.name.as_str(),
                stage.events,
                stage.batches,
                stage.tombstones,
                stage.waits,
                stage.waited.as_secs_f64(),
                stage.waited_for.as_secs_f64()
            )?;
        }
        if let Some(slowest) = self.bottleneck() {
            writeln!(f, "the others waited longest for `{}`", slowest.name)?;
        }
        if self.halted {
            writeln!(f, "the graph was halted: events may have stayed unseen")?;
        }
        Ok(())
    }
}
