//! Looking at a graph from outside while it runs.

use std::fmt;

use crate::base::name::{Name, PRODUCER};
use crate::base::sync::{Acquire, Relaxed, twin};
use crate::errors::BuildError;
use crate::errors::{Report, StageReport};
use crate::live::tap::Place;
use crate::ring::control::{Control, ahead};
use crate::ring::owner::Owner;
use crate::ring::plan::Delivery;
use crate::ring::slots::{Interleaved, Layout};

/// Tells how a graph is doing, any time, from any thread; reading costs the graph nothing.
///
/// Put into a chain with [`Chain::monitor`](crate::Chain::monitor), or had from a
/// [`Ring`](crate::Ring::monitor). Clones are the same monitor. It does not keep the graph.
///
/// ```
/// let monitor = slipring::Monitor::new();
/// slipring::ring(64, || 0u64).monitor(&monitor).read("slow", |_, _| ()).run(|p| {
///     for i in 0..10 { p.publish(|v| *v = i)?; }
///     let now = monitor.report().expect("it runs");
///     assert_eq!(now.published_seq(), Some(10));
///     println!("{} behind, {:?} free\n{now}", now.stage("slow").unwrap().lag, now.remaining());
///     Ok(())
/// })?;
/// assert!(monitor.report().is_none()); // it is over
/// # Ok::<(), slipring::Error>(())
/// ```
pub struct Monitor<E, L: Layout = Interleaved> {
    place: Place<E, L>,
}

impl<E, L: Layout> Clone for Monitor<E, L> {
    fn clone(&self) -> Self {
        Monitor { place: self.place.clone() }
    }
}

impl<E, L: Layout> Default for Monitor<E, L> {
    fn default() -> Self {
        Monitor::new()
    }
}

impl<E, L: Layout> Monitor<E, L> {
    /// A monitor of nothing yet.
    pub fn new() -> Self {
        Monitor { place: Place::nowhere() }
    }

    pub(crate) fn of(core: &Owner<E, L>) -> Self {
        Monitor { place: Place::at(core, 0) }
    }

    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn place(&self) -> &Place<E, L> {
        &self.place
    }

    pub(crate) fn bind(&self, core: &Owner<E, L>) -> Result<(), BuildError> {
        self.place.bind(core, 0)
    }

    /// How the graph is doing now; `None`: it was not started yet, or is over and gone.
    ///
    /// What a stage has let go by its position here is done: whatever its handler did for those
    /// events before, the caller sees. Positions and lags are read one after the other while the
    /// graph goes on, so they are of about the same moment. Counts of events, batches and waits are
    /// as of the last time that a handle waited for more than a moment, ended, or had done 1,024
    /// batches; a wait is counted with the next one.
    pub fn report(&self) -> Option<Report> {
        self.place.find().ok().map(|(core, _)| core.report())
    }
}

impl<E, L: Layout> fmt::Debug for Monitor<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl Control {
    /// How far a stage has let go, for whoever knows no earlier position of it.
    pub(crate) fn position(&self, stage: usize) -> u64 {
        let plan = &self.plan.stages[stage];
        match plan.delivery {
            Delivery::Each => {
                self.line(plan.line).load(twin!("position-relaxed": Acquire => Relaxed))
            } // SYNC[released]: lookers-on
            Delivery::Pool { .. } => {
                self.frontier(stage, self.landmark(stage).wrapping_sub(self.plan.capacity as u64))
            }
            // No shard is further ahead of the others than that.
            Delivery::Shards(_) => self.frontier(
                stage,
                self.line(plan.line).load(Relaxed).wrapping_sub(self.plan.capacity as u64),
            ),
            Delivery::Tap(_) => self.frontier(stage, self.announced(plan)),
        }
    }

    /// Up to where events are published, or with many producers claimed, if somebody keeps that.
    fn published(&self, positions: &[u64]) -> Option<u64> {
        if self.plan.many_producers {
            let lower_bound = positions.first().copied().unwrap_or(self.start);
            Some(self.claimed(lower_bound).0)
        } else {
            self.plan.cursor.then(|| self.cursor())
        }
    }

    /// What happened so far, and how far everybody is.
    pub(crate) fn report(&self) -> Report {
        let positions: Vec<u64> =
            (0..self.plan.stages.len()).map(|stage| self.position(stage)).collect();
        let published = self.published(&positions);
        let newest = published
            .into_iter()
            .chain(positions.iter().copied())
            .max_by(|a, b| ahead(*a, *b).cmp(&0));
        let newest = newest.unwrap_or(self.start);
        let oldest = self
            .plan
            .gating
            .iter()
            .map(|&leaf| positions[leaf])
            .min_by(|a, b| ahead(*a, *b).cmp(&0));
        let counters = &self.counters;
        let names =
            self.plan.stages.iter().map(|stage| stage.name.clone()).chain([Name::new(PRODUCER)]);
        let stages = names.enumerate().map(|(i, name)| {
            let own = counters.party(i);
            let seq = positions.get(i).copied().unwrap_or(newest);
            StageReport {
                name,
                seq,
                lag: ahead(newest, seq).max(0) as u64,
                events: own.events.load(Relaxed),
                batches: own.batches.load(Relaxed),
                tombstones: own.tombstones.load(Relaxed),
                skipped: own.skipped.load(Relaxed),
                retries: own.retries.load(Relaxed),
                dropped: own.dropped.load(Relaxed),
                waits: own.waits.load(Relaxed),
                wakes: own.wakes.load(Relaxed),
                waited: (0..counters.parties()).map(|whom| counters.waited_for(i, whom)).sum(),
                waited_for: (0..counters.parties())
                    .map(|party| counters.waited_for(party, i))
                    .sum(),
                latency: counters.samples.as_ref().and_then(|samples| samples.latency(i)),
            }
        });
        let waited = (0..counters.parties() * counters.parties())
            .map(|i| counters.waited_for(i / counters.parties(), i % counters.parties()));
        Report {
            stages: stages.collect(),
            waited: waited.collect(),
            capacity: self.plan.capacity,
            // A producer tells others than the stages afterwards, and a stage may be past that
            // already.
            published: published.map(|_| newest),
            remaining: published.and_then(|_| {
                Some(self.plan.capacity.saturating_sub(ahead(newest, oldest?).max(0) as usize))
            }),
            halted: self.is_halted(),
        }
    }
}
