//! What happened in a graph, or is happening: per stage, and who waited for whom.

use std::fmt;
use std::time::Duration;

use crate::base::name::Name;

/// What happened in a graph, per stage; it prints as a table.
///
/// While the graph runs, counts are a little old: see [`Monitor::report`](crate::Monitor::report).
/// After `run`, `feed` or `join` they are complete.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) stages: Vec<StageReport>,
    /// By who waited, and then by for whom.
    pub(crate) waited: Vec<Duration>,
    pub(crate) capacity: usize,
    pub(crate) published: Option<u64>,
    pub(crate) remaining: Option<usize>,
    pub(crate) halted: bool,
}

/// What happened in one stage.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StageReport {
    /// The stage; the producers together stand as [`PRODUCER`](crate::PRODUCER).
    pub name: Name,
    /// The position up to which it has let go; for the producer, the furthest that is known to be
    /// published.
    pub seq: u64,
    /// How many events it is behind: behind the producer's position where that is known
    /// ([`Report::published_seq`]), else behind the stage that is furthest.
    pub lag: u64,
    /// Events it handled; for the producer, events published.
    pub events: u64,
    /// Batches they came in; for the producer, publications. Workers of a pool: chunks.
    pub batches: u64,
    /// Slots it passed over because their claim was given up; for the producer, slots it gave up.
    pub tombstones: u64,
    /// Events at which its handler failed and that it passed over
    /// ([`OnFault::skip`](crate::OnFault::skip)).
    pub skipped: u64,
    /// How often it started again at its last release because its handler failed
    /// ([`OnFault::retry`](crate::OnFault::retry)).
    pub retries: u64,
    /// For the producer: events that it dropped, or replaced by newer ones, because the ring was
    /// full and it was told to.
    pub dropped: u64,
    /// How often it found nothing to do and waited.
    pub waits: u64,
    /// How often it slept and was woken, by progress or by its own clock.
    pub wakes: u64,
    /// How long it waited in all, summed over its workers.
    pub waited: Duration,
    /// How long all others waited for it.
    pub waited_for: Duration,
    /// From publication until it let go, if the graph samples that
    /// ([`Chain::sample_latency`](crate::Chain::sample_latency)).
    pub latency: Option<Latency>,
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

    /// How long one stage waited for another, by name; [`PRODUCER`](crate::PRODUCER) for the
    /// producer. `None`: there is no stage of that name.
    pub fn waited(&self, who: &str, whom: &str) -> Option<Duration> {
        let number = |name: &str| self.stages.iter().position(|stage| &*stage.name == name);
        self.waited.get(number(who)? * self.stages.len() + number(whom)?).copied()
    }

    /// How many slots the ring has.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Up to where events are published (with many producers: claimed). Known where somebody keeps
    /// it: with many producers, a monitor, a contiguous layout, or a tap directly behind the
    /// producer.
    pub fn published_seq(&self) -> Option<u64> {
        self.published
    }

    /// How many slots are free, where that is known: see [`Report::published_seq`].
    #[doc(alias = "remainingCapacity")]
    pub fn remaining(&self) -> Option<usize> {
        self.remaining
    }

    /// Whether the graph was halted, so that events may have stayed unseen.
    pub fn halted(&self) -> bool {
        self.halted
    }

    /// The stage (or the producer) that the others waited for longest, not counting what it waited
    /// itself: make this one faster first. `None`: nobody waited.
    pub fn bottleneck(&self) -> Option<&StageReport> {
        // Who waits is waited for in turn; only what goes beyond that is a stage's own doing.
        let own = |stage: &&StageReport| {
            (stage.waited_for.saturating_sub(stage.waited), stage.waited_for)
        };
        self.stages.iter().max_by_key(own).filter(|stage| !stage.waited_for.is_zero())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = Name::column(self.stages.iter().map(|stage| &stage.name)).max("stage".len());
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
        for stage in &self.stages {
            let told = [
                (stage.skipped, "skipped"),
                (stage.retries, "retried"),
                (stage.dropped, "dropped"),
            ];
            for (count, what) in told.into_iter().filter(|(count, _)| *count != 0) {
                writeln!(f, "`{}` {what} {count}", stage.name)?;
            }
            if let Some(Latency { samples, p50, p99, max }) = stage.latency {
                writeln!(
                    f,
                    "`{}` let go after {p50:?} (half), {p99:?} (99 of 100), {max:?} (longest); {samples} samples",
                    stage.name
                )?;
            }
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

/// How long it took from an event's publication until a stage let it go: of the last 256 sampled
/// events.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Latency {
    /// How many were sampled in all.
    pub samples: u64,
    /// Half of the last ones took no longer.
    pub p50: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// The longest of them.
    pub max: Duration,
}
