//! Counters that anybody may read while a graph runs, and latencies of a sample of its events.
//!
//! Handles count in plain fields of their own and add what is new to their party's counters now and
//! then: when a wait lasts, every 1,024 batches, at the end. So counting costs a few additions a
//! batch, and reading costs the graph nothing. What a wait was is told in the next one: when it
//! ends, there is something to do.
//!
//! Invariants
//! - I1: these are statistics. No protocol rests on them, nothing is ordered by them, and the model
//!   checker does not see them.
//! - I2: the time of a sampled event is stored before the event is published and read before it is
//!   released, so the two are of one event.

use std::time::{Duration, Instant};

use crate::base::sync::{Line, Relaxed, Statistic, array};
use crate::errors::Latency;
use crate::ring::plan::{Delivery, Plan};
use crate::wait::WaitStats;

/// What one handle counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LocalCounts {
    pub(crate) events: u64,
    pub(crate) batches: u64,
    pub(crate) tombstones: u64,
    pub(crate) skipped: u64,
    pub(crate) retries: u64,
    pub(crate) dropped: u64,
    pub(crate) waits: u64,
    pub(crate) wakes: u64,
    /// Nanoseconds waited; those that are not told yet, for the last `whom`.
    pub(crate) nanos: u64,
    pub(crate) whom: usize,
}

impl LocalCounts {
    /// A wait is over that was for `whom`. If it took time, what was counted before it is told.
    pub(crate) fn wait(&mut self, whom: usize, stats: WaitStats) {
        self.waits += 1;
        if !stats.time.is_zero() {
            self.wakes += stats.sleeps;
            self.nanos =
                self.nanos.wrapping_add(u64::try_from(stats.time.as_nanos()).unwrap_or(u64::MAX));
            self.whom = whom;
        }
    }
}

/// What the handles of one party counted together.
#[derive(Default)]
pub(crate) struct Party {
    /// Whether it has one handle, so that nobody else adds to these.
    sole: bool,
    pub(crate) events: Statistic,
    pub(crate) batches: Statistic,
    pub(crate) tombstones: Statistic,
    pub(crate) skipped: Statistic,
    pub(crate) retries: Statistic,
    pub(crate) dropped: Statistic,
    pub(crate) waits: Statistic,
    pub(crate) wakes: Statistic,
}

/// The counters of a graph: its stages by number, the producers last.
pub(crate) struct Counters {
    parties: Box<[Line<Party>]>,
    /// Nanoseconds waited, by who waited and then by for whom. Each party writes to lines of its
    /// own, so that telling what a wait was makes nobody else wait.
    waited: Box<[Line<[Statistic; PER_LINE]>]>,
    /// How many of these lines a party has.
    lines: usize,
    pub(crate) samples: Option<Samples>,
}

const PER_LINE: usize = 16;

/// A handle tells its counts after so many batches, if it never waits.
pub(crate) const FLUSH_EVERY: u64 = 1024;

impl Counters {
    /// `None`: there is no memory for it.
    pub(crate) fn new(plan: &Plan, samples: Option<Samples>) -> Option<Counters> {
        let parties = plan.stages.len() + 1;
        let lines = parties.div_ceil(PER_LINE);
        let sole = |party: usize| {
            plan.stages
                .get(party)
                .map_or(!plan.many_producers, |stage| stage.delivery == Delivery::Each)
        };
        Some(Counters {
            parties: array(parties, |party| Line(Party { sole: sole(party), ..Party::default() }))?,
            waited: array(parties.checked_mul(lines)?, |_| {
                Line([const { Statistic::new(0) }; PER_LINE])
            })?,
            lines,
            samples,
        })
    }

    pub(crate) fn party(&self, party: usize) -> &Party {
        &self.parties[party].0
    }

    /// Adds what a handle has counted since it told last.
    #[cold]
    pub(crate) fn flush(&self, party: usize, now: &LocalCounts, before: &LocalCounts) {
        let own = self.party(party);
        let add = |all: &Statistic, now: u64, before: u64| match now.wrapping_sub(before) {
            0 => {}
            new if own.sole => all.store(all.load(Relaxed).wrapping_add(new), Relaxed),
            new => _ = all.fetch_add(new, Relaxed),
        };
        add(&own.events, now.events, before.events);
        add(&own.batches, now.batches, before.batches);
        add(&own.tombstones, now.tombstones, before.tombstones);
        add(&own.skipped, now.skipped, before.skipped);
        add(&own.retries, now.retries, before.retries);
        add(&own.dropped, now.dropped, before.dropped);
        add(&own.waits, now.waits, before.waits);
        add(&own.wakes, now.wakes, before.wakes);
        add(self.nanos(party, now.whom), now.nanos, before.nanos);
    }

    pub(crate) fn waited_for(&self, party: usize, whom: usize) -> Duration {
        Duration::from_nanos(self.nanos(party, whom).load(Relaxed))
    }

    fn nanos(&self, party: usize, whom: usize) -> &Statistic {
        &self.waited[party * self.lines + whom / PER_LINE].0[whom % PER_LINE]
    }

    pub(crate) fn parties(&self) -> usize {
        self.parties.len()
    }
}

/// When every so-many-th event was published, and how long each stage took until it let it go.
pub(crate) struct Samples {
    /// log2 of how many positions lie between two samples.
    shift: u32,
    epoch: Instant,
    /// Nanoseconds since the epoch, by position; 0: not sampled.
    published: Box<[Statistic]>,
    stages: Box<[Line<Taken>]>,
}

/// The last latencies of a stage.
struct Taken {
    count: Statistic,
    nanos: [Statistic; LATENCIES],
}

/// So many latencies are kept for each stage.
const LATENCIES: usize = 256;

impl Samples {
    /// Bytes that sampling takes for a slot, if every slot is sampled.
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<Statistic>();

    /// `None`: there is no memory for it.
    pub(crate) fn new(every: u64, capacity: usize, stages: usize) -> Option<Samples> {
        let shift = every.clamp(1, 1 << 40).next_power_of_two().trailing_zeros();
        let kept = ((capacity as u64 >> shift) + 2).checked_next_power_of_two()?;
        let taken =
            || Taken { count: Statistic::new(0), nanos: [const { Statistic::new(0) }; LATENCIES] };
        Some(Samples {
            shift,
            epoch: Instant::now(),
            published: array(usize::try_from(kept).ok()?, |_| Statistic::new(0))?,
            stages: array(stages, |_| Line(taken()))?,
        })
    }

    /// The first sampled position of `[from, from + len)`.
    #[inline]
    fn sampled(&self, from: u64, len: u64) -> Option<u64> {
        let mask = (1 << self.shift) - 1;
        let next = from.wrapping_neg() & mask;
        (next < len).then(|| from.wrapping_add(next))
    }

    fn slot(&self, seq: u64) -> &Statistic {
        &self.published[(seq >> self.shift) as usize & (self.published.len() - 1)]
    }

    /// `[from, from + len)` are about to be published, or, if not `live`, given up.
    pub(crate) fn publishing(&self, from: u64, len: u64, live: bool) {
        let (mut from, mut len) = (from, len);
        while let Some(seq) = self.sampled(from, len) {
            self.slot(seq).store(
                if live { (self.epoch.elapsed().as_nanos() as u64).max(1) } else { 0 },
                Relaxed,
            );
            let done = seq.wrapping_sub(from) + 1;
            if len <= done {
                break;
            }
            (from, len) = (from.wrapping_add(done), len - done);
        }
    }

    /// A stage is about to let `[from, from + len)` go, of which it handled what is `own`.
    #[inline(never)]
    pub(crate) fn releasing(&self, stage: usize, from: u64, len: u64, own: impl Fn(u64) -> bool) {
        debug_assert!(
            len >> self.shift <= self.published.len() as u64,
            "no stage holds more than the ring has"
        );
        let Some(first) = self.sampled(from, len) else { return };
        let now = self.epoch.elapsed().as_nanos() as u64;
        let taken = &self.stages[stage].0;
        for offset in (first.wrapping_sub(from)..len).step_by(1 << self.shift) {
            let seq = from.wrapping_add(offset);
            let published = self.slot(seq).load(Relaxed);
            if published != 0 && own(seq) {
                let at = taken.count.fetch_add(1, Relaxed) as usize % LATENCIES;
                taken.nanos[at].store(now.saturating_sub(published), Relaxed);
            }
        }
    }

    /// Of the last latencies of a stage.
    pub(crate) fn latency(&self, stage: usize) -> Option<Latency> {
        let taken = &self.stages.get(stage)?.0;
        let samples = taken.count.load(Relaxed);
        let kept = (samples as usize).min(LATENCIES);
        let mut nanos: Vec<u64> =
            taken.nanos[..kept].iter().map(|nanos| nanos.load(Relaxed)).collect();
        nanos.sort_unstable();
        let quantile = |percent: usize| {
            nanos.get(kept * percent / 100).or(nanos.last()).copied().map(Duration::from_nanos)
        };
        Some(Latency { samples, p50: quantile(50)?, p99: quantile(99)?, max: quantile(100)? })
    }
}
