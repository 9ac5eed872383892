//! A report holds the counts of each stage, and how long the stages waited for each other.

use std::fmt;
use std::time::Duration;

use crate::base::name::Name;

/// Statistics of a graph: for each stage and for the producers, for instance the number of events
/// and the time spent waiting. A report prints as a table.
///
/// A report is a copy of the graph's counts, and never changes. The counts of a running graph may
/// be a little old, and may come from different moments:
/// [`Monitor::report`](crate::Monitor::report) says how old. After `run`, `feed` or `join` of the
/// graph, the counts are complete.
///
/// ```
/// use std::time::Duration;
///
/// let done = slipring::ring(8, || 0u64)
///     .read("log", |_, _| ())
///     .feed(0..100, |slot, i| *slot = i)?;
/// let report = &done.report;
///
/// assert_eq!(report.stage("log").unwrap().events, 100);
/// assert_eq!(report.producer().events, 100);
/// assert_eq!(report.stages().len(), 2);
/// assert_eq!((report.capacity(), report.halted()), (8, false));
///
/// let waited = report.waited("log", slipring::stages::PRODUCER).unwrap();
/// if let Some(stage) = report.bottleneck() {
///     println!("the others waited longest for `{}`", stage.name);
/// }
/// # assert!(waited < Duration::from_secs(3600));
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) stages: Vec<StageReport>,
    /// Waiting times of every pair of parties, ordered by the waiting party, and then by the
    /// awaited party. A party is a stage or the producers.
    pub(crate) waited: Vec<Duration>,
    pub(crate) capacity: usize,
    pub(crate) published: Option<u64>,
    pub(crate) remaining: Option<usize>,
    pub(crate) halted: bool,
    /// The numbers of threads and of cores, if the stages had threads of their own and more of them
    /// than there are cores.
    pub(crate) crowd: Option<(usize, usize)>,
}

/// Counts of one stage, or of the producers together.
///
/// Example: [`Report`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StageReport {
    /// Name of the stage; [`PRODUCER`](crate::stages::PRODUCER) for the producers.
    pub name: Name,
    /// Position before which the stage has released all events. For a single producer, the position
    /// before which all events are known to be published. For many producers, the position before
    /// which all slots are claimed. Producers that wait at a full ring may have claimed slots that
    /// are not free yet, so that the position is more than a lap ahead of a stage.
    pub seq: u64,
    /// Number of events that the stage is behind the producers, or behind the furthest stage if
    /// [`Report::published_seq`] is `None`.
    pub lag: u64,
    /// Number of events handled; for the producers, number of events published.
    pub events: u64,
    /// Number of batches; for the producers, number of publications; for a pool, number of chunks.
    pub batches: u64,
    /// Number of slots that the stage passed over, because their claim was never published; for the
    /// producers, number of slots whose claim was given up.
    pub tombstones: u64,
    /// Number of events that the stage skipped, because the handler failed at them
    /// ([`OnFault::skip`](crate::OnFault::skip)), or because a dead process may have left them
    /// half-written ([`Consumer::pass_over_suspects`](crate::Consumer::pass_over_suspects)).
    pub skipped: u64,
    /// Number of retries after a failure of the handler; a retry starts again at the last released
    /// position ([`OnFault::retry`](crate::OnFault::retry)).
    pub retries: u64,
    /// For the producers, number of events dropped, or replaced by newer events, because the ring
    /// was full. A call drops events only where its documentation says so.
    pub dropped: u64,
    /// Number of waits by threads, tasks and [armed wakers](crate::tasks::Waitable::arm). A task
    /// that polls again before the next batch or publication continues its wait, so that wait
    /// counts once.
    pub waits: u64,
    /// Number of times that a waiting handle of the stage slept. A notification or a timer ends a
    /// sleep.
    pub wakes: u64,
    /// Time that the stage's threads spent waiting, summed over the stage's handles. The time of
    /// each wait's first polls (about a microsecond) is left out. The waits of tasks are not timed.
    pub waited: Duration,
    /// Time that all other stages and the producers spent waiting for this stage.
    pub waited_for: Duration,
    /// The stage's turns, if it shares threads of the library with other stages
    /// ([`Chain::threads`](crate::Chain::threads), [`Chain::on`](crate::Chain::on)); `None` in
    /// [`Chain::run_inline`](crate::Chain::run_inline), which reads no clock.
    pub turns: Option<Turns>,
    /// Time from an event's publication to the stage's release, if the graph samples latencies
    /// ([`Chain::sample_latency`](crate::Chain::sample_latency)).
    pub latency: Option<Latency>,
}

impl Report {
    /// Returns the counts of each stage in the order of declaration, followed by those of the
    /// producers.
    ///
    /// Example: [`Report`].
    pub fn stages(&self) -> &[StageReport] {
        &self.stages
    }

    /// Returns the counts of the stage with this name, or `None` if no stage has the name.
    ///
    /// Example: [`Report`].
    pub fn stage(&self, name: &str) -> Option<&StageReport> {
        self.stages.iter().find(|stage| &*stage.name == name)
    }

    /// Returns the counts of the producers.
    ///
    /// Example: [`Report`].
    pub fn producer(&self) -> &StageReport {
        &self.stages[self.stages.len() - 1]
    }

    /// Returns the time that stage `waiting` spent waiting for stage `awaited`;
    /// [`PRODUCER`](crate::stages::PRODUCER) stands for the producers. Returns `None` if one of the
    /// two is not in the graph.
    ///
    /// Example: [`Report`].
    pub fn waited(&self, waiting: &str, awaited: &str) -> Option<Duration> {
        let number = |name: &str| self.stages.iter().position(|stage| &*stage.name == name);
        self.waited.get(number(waiting)? * self.stages.len() + number(awaited)?).copied()
    }

    /// Returns the number of slots of the ring.
    ///
    /// Example: [`Report`].
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the position before which all events are published (with many producers: claimed),
    /// if the graph knows that position. A graph knows the position if it has many producers, a
    /// contiguous layout, a tap directly behind the producer, a chain's monitor, or
    /// [`Graph::publish_cursor`](crate::Graph::publish_cursor).
    ///
    /// Example: [`Report`].
    pub fn published_seq(&self) -> Option<u64> {
        self.published
    }

    /// Returns the number of free slots, if [`Report::published_seq`] is known.
    ///
    /// Example: [`Report`].
    #[doc(alias = "remainingCapacity")]
    pub fn remaining(&self) -> Option<usize> {
        self.remaining
    }

    /// Returns whether the graph was halted. A halted graph may have left events unhandled.
    ///
    /// Example: [`Report`].
    pub fn halted(&self) -> bool {
        self.halted
    }

    /// Returns the counts of the bottleneck: the stage (or the producers) that held up the others
    /// most. For each party, the report subtracts the time that the party itself waited from the
    /// time that others waited for it; the bottleneck has the largest difference. To speed the
    /// graph up, begin with the bottleneck. Returns `None` if no party had to wait for another.
    ///
    /// A stage that shares threads counts as holding up others for at most the time that it ran.
    /// While such a stage has no event, its thread runs other stages or waits for one of them.
    ///
    /// Example: [`Report`].
    pub fn bottleneck(&self) -> Option<&StageReport> {
        // If stage C waits for stage A while A waits for stage B, then B causes both waits. So
        // `own` is the time that others waited for the stage, less the time that it waited.
        let own = |stage: &&StageReport| {
            let held_up = stage.waited_for.saturating_sub(stage.waited);
            (stage.turns.map_or(held_up, |turns| held_up.min(turns.ran)), stage.waited_for)
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
            let counts = [
                (stage.skipped, "skipped"),
                (stage.retries, "retried"),
                (stage.dropped, "dropped"),
            ];
            for (count, what) in counts.into_iter().filter(|(count, _)| *count != 0) {
                writeln!(f, "`{}` {what} {count}", stage.name)?;
            }
            if let Some(Turns { count, ran, threads }) = stage.turns {
                let (ran, s) = (ran.as_secs_f64(), if threads == 1 { "" } else { "s" });
                writeln!(
                    f,
                    "`{}` ran {ran:.3} s in {count} turns on {threads} thread{s}",
                    stage.name
                )?;
            }
            if let Some(Latency { samples, p50, p99, max }) = stage.latency {
                writeln!(
                    f,
                    "`{}` released after {p50:?} (median), {p99:?} (99th percentile), {max:?} (longest); {samples} samples",
                    stage.name
                )?;
            }
        }
        if let Some(slowest) = self.bottleneck() {
            writeln!(f, "the others waited longest for `{}`", slowest.name)?;
        }
        if let Some((threads, cores)) = self.crowd {
            writeln!(
                f,
                "{threads} threads on {cores} core{}: the stages may be faster on shared threads, by `.threads(Threads::Auto)`",
                if cores == 1 { "" } else { "s" }
            )?;
        }
        if self.halted {
            writeln!(f, "the graph was halted: events may be unhandled")?;
        }
        Ok(())
    }
}

/// The turns of a stage on threads that it shares with other stages.
///
/// ```
/// let done = slipring::ring(64, || 0u64)
///     .threads(2)
///     .update("double", |value, _| *value *= 2)
///     .read("sum", |_, _| ())
///     .feed(0..100, |slot, i| *slot = i)?;
/// let turns = done.report.stage("sum").unwrap().turns.unwrap();
/// assert!(turns.count > 0 && (1..=2).contains(&turns.threads));
/// println!("`sum` ran {:?}", turns.ran);
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Turns {
    /// Number of turns that have handled events. In a turn, a thread handles a batch of the stage,
    /// or of one of its workers or shards.
    pub count: u64,
    /// Time of the turns, summed over the stage's workers or shards. On Linux, most turns of less
    /// than 4 µs are timed by a coarse clock, whose ticks last 1 to 10 ms. Over many turns, the
    /// errors of that clock cancel out.
    pub ran: Duration,
    /// Number of threads that have run the stage.
    pub threads: usize,
}

/// Quantiles of the time from an event's publication to the event's release by a stage, over the
/// last 256 sampled events.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Latency {
    /// Number of events sampled at the stage since the graph's start.
    pub samples: u64,
    /// Median.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Maximum.
    pub max: Duration,
}
