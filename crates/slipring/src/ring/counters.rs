//! Counters that any thread may read while a graph runs, and latencies of sampled events.
//!
//! A handle counts in its own plain fields, and flushes them to its party's counters from time to
//! time: when a call that does not wait finds no event or no room, during waits, and on its drop. A
//! consumer also flushes after every 1,024 batches, and a producer when the number of its events
//! passes a multiple of 1,024. A wait flushes before it sleeps, or once the handle has waited for
//! five milliseconds since its last flush. It does not flush when it ends, because a flush would
//! delay the awaited event; the next flush includes the time of that wait. Counting costs a handle
//! a few additions per batch, and reading the counters costs the graph nothing.
//!
//! Invariants
//! - I1: the counters serve only for reports. No protocol depends on a counter's value, and no
//!   access to a counter orders other accesses. The model checker does not see counters.
//! - I2: a sampled event's publication time is stored before the event is published, and a stage
//!   reads it before it releases the event. Producers overwrite it only after all stages have
//!   released the event.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use crate::base::maybe_mapped::{Mapping, MaybeMapped};
use crate::base::sync::{Line, Relaxed, Statistic, array, elapsed, now};
use crate::errors::{Latency, Turns};
use crate::ring::plan::Plan;
use crate::ring::spec::{Delivery, ThreadChoice};

/// The counts of one handle.
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
    /// Time that the handle has waited, in nanoseconds. All time that was added since the last
    /// flush was spent waiting for the party `upstream`.
    pub(crate) nanos: u64,
    /// Index of the party for whose progress the handle last waited.
    pub(crate) upstream: usize,
}

impl LocalCounts {
    /// Counts a handle's wait for another party. If the wait read the clock, and the handle does
    /// not always wait for the same party, the wait has flushed the time of earlier waits
    /// ([`LocalCounts::flush_after`]).
    pub(crate) fn wait(&mut self, upstream: usize, time: Duration, sleeps: u64) {
        self.waits += 1;
        if !time.is_zero() {
            self.wakes += sleeps;
            self.nanos =
                self.nanos.wrapping_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            self.upstream = upstream;
        }
    }

    /// Returns after which time a wait that begins flushes these counts. Together with the waits
    /// since the last flush, that is a wait of [`FLUSH_AFTER`]. If the handle follows several
    /// parties (`joins`), the wait may be for another party than the earlier ones, so it flushes
    /// their time at once.
    pub(crate) fn flush_after(&self, flushed: &LocalCounts, joins: bool) -> Duration {
        let waited = Duration::from_nanos(self.nanos.wrapping_sub(flushed.nanos));
        if joins && !waited.is_zero() { Duration::ZERO } else { FLUSH_AFTER.saturating_sub(waited) }
    }
}

/// Time that a handle waits, at most, between two flushes of its counts. A flush at each wait would
/// keep many waiting handles of one party busy with moving the line of their counters. With 48 idle
/// workers, an event costs 1.6 read-modify-writes if they flush each millisecond, and 1.1 with this
/// interval (simulated).
const FLUSH_AFTER: Duration = Duration::from_millis(5);

/// The counts of all handles of one party.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Party {
    pub(crate) events: Statistic,
    pub(crate) batches: Statistic,
    pub(crate) tombstones: Statistic,
    pub(crate) skipped: Statistic,
    pub(crate) retries: Statistic,
    pub(crate) dropped: Statistic,
    pub(crate) waits: Statistic,
    pub(crate) wakes: Statistic,
}

/// The words of the counters of a graph's parties.
pub(crate) struct CounterWords {
    parties: MaybeMapped<[Line<Party>]>,
    /// Time waited, in nanoseconds, for each pair of parties, ordered by the waiting party and then
    /// by the awaited party. Each party writes to lines of its own, so that the flushes of two
    /// parties do not contend.
    waited: MaybeMapped<[Line<[Statistic; PER_LINE]>]>,
}

impl CounterWords {
    /// Returns how many lines the counters of `parties` parties need. The first number counts the
    /// lines that hold the parties' counts, one line for each party. The second number counts the
    /// lines that hold the times for which the parties waited.
    pub(crate) fn lines(parties: usize) -> Option<(usize, usize)> {
        Some((parties, parties.checked_mul(lines_per_party(parties))?))
    }

    /// Returns the size of the counters of `parties` parties, in bytes.
    pub(crate) fn bytes(parties: usize) -> u128 {
        let lines = parties as u128 * (1 + lines_per_party(parties) as u128);
        lines.saturating_mul(size_of::<Line<Party>>() as u128)
    }

    /// Returns the index of a party's first count among all words of the counters.
    pub(crate) fn party_at(party: usize) -> Option<usize> {
        party.checked_mul(PER_LINE)
    }

    /// Returns the index of the word that holds the time for which `party` has waited for
    /// `upstream`, among all words of the counters of `parties` parties.
    pub(crate) fn waited_at(parties: usize, party: usize, upstream: usize) -> Option<usize> {
        let before = party.checked_mul(lines_per_party(parties))?.checked_add(parties)?;
        before.checked_mul(PER_LINE)?.checked_add(upstream)
    }

    /// Makes the counters whose words lie in a mapping.
    ///
    /// # Safety
    /// `parties` and `waited` point to as many lines as [`CounterWords::lines`] returns for them.
    /// These lines stay valid while `mapping` lives.
    pub(crate) unsafe fn mapped(
        count: usize,
        parties: NonNull<u8>,
        waited: NonNull<u8>,
        mapping: &Mapping,
    ) -> Option<CounterWords> {
        let (first, times) = CounterWords::lines(count)?;
        // SAFETY: the caller makes the required promise, and a line of counters consists of atomic
        // words.
        unsafe {
            Some(CounterWords {
                parties: MaybeMapped::mapped_slice(parties, first, mapping),
                waited: MaybeMapped::mapped_slice(waited, times, mapping),
            })
        }
    }

    /// Makes the counters of `parties` parties, all zero. Returns `None` if there is no memory for
    /// so many counters.
    pub(crate) fn heap(parties: usize) -> Option<CounterWords> {
        let times = parties.checked_mul(lines_per_party(parties))?;
        Some(CounterWords {
            parties: array(parties, |_| Line::new(Party::default()))?.into(),
            waited: array(times, |_| Line::new([const { Statistic::new(0) }; PER_LINE]))?.into(),
        })
    }
}

/// Counts of one stage's turns on threads of the library, which the stage shares with other stages.
struct TurnCounts {
    count: Statistic,
    /// Time of the turns, in nanoseconds.
    nanos: Statistic,
    /// One bit for each thread that has run the stage.
    threads: Box<[Statistic]>,
}

impl TurnCounts {
    fn of(thread: &ThreadChoice) -> TurnCounts {
        // Besides the threads that the library starts, the thread that calls the producer's closure
        // also runs stages, so it has a bit, too.
        let threads = if let ThreadChoice::Shared(started) = thread { started + 1 } else { 1 };
        let threads = (0..threads.div_ceil(64)).map(|_| Statistic::new(0)).collect();
        TurnCounts { count: Statistic::new(0), nanos: Statistic::new(0), threads }
    }
}

/// The counters of a graph's parties: of each stage, and of the producers.
pub(crate) struct Counters {
    words: CounterWords,
    /// The turns of each stage.
    turns: Box<[Line<TurnCounts>]>,
    /// For each party, whether it has a single handle. A single handle adds to the party's counters
    /// by a load and a store, without an atomic addition.
    sole: Box<[bool]>,
    /// The largest number of events that a report said were published.
    reported: Statistic,
    pub(crate) samples: Option<Samples>,
}

/// Number of words of a line.
const PER_LINE: usize = 16;

// The counts of a party fit in one line, and exactly `PER_LINE` times fill one line.
const _: () = assert!(size_of::<Line<Party>>() == 8 * PER_LINE);
const _: () = assert!(size_of::<Line<[Statistic; PER_LINE]>>() == 8 * PER_LINE);

/// Returns the number of lines that each of `parties` parties needs for the times that it waited.
fn lines_per_party(parties: usize) -> usize {
    parties.div_ceil(PER_LINE)
}

/// Number of batches after which a consumer that never waits flushes its counts, and number of
/// events after which a producer flushes its counts; a power of two.
pub(crate) const FLUSH_EVERY: u64 = 1024;

impl Counters {
    pub(crate) fn new(plan: &Plan, words: CounterWords, samples: Option<Samples>) -> Counters {
        let stages = plan.stages.iter().map(|stage| stage.delivery == Delivery::Each);
        let turns = plan.stages.iter().map(|stage| Line::new(TurnCounts::of(&stage.thread)));
        let (sole, turns) = (stages.chain([!plan.many_producers]).collect(), turns.collect());
        Counters { words, turns, sole, reported: Statistic::new(0), samples }
    }

    /// Returns `published`, or what an earlier report said if that is more.
    pub(crate) fn report_published(&self, published: u64) -> u64 {
        self.reported.fetch_max(published, Relaxed).max(published)
    }

    /// Adds `count` turns of a stage, which took `nanos` nanoseconds in total.
    pub(crate) fn turned(&self, stage: usize, count: u64, nanos: u64) {
        let own = &self.turns[stage];
        // The additions are atomic, because several workers or shards of a stage may run at once.
        own.count.fetch_add(count, Relaxed);
        own.nanos.fetch_add(nanos, Relaxed);
    }

    /// Records that the library's thread number `thread` runs the stage.
    pub(crate) fn runs_on(&self, stage: usize, thread: usize) {
        let (word, bit) = (&self.turns[stage].threads[thread / 64], 1 << (thread % 64));
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Returns the counts of a stage's turns, or `None` if the stage has taken no turn on threads
    /// of the library.
    pub(crate) fn turns(&self, stage: usize) -> Option<Turns> {
        let own = self.turns.get(stage)?;
        let threads = own.threads.iter().map(|word| word.load(Relaxed).count_ones() as usize).sum();
        let (count, nanos) = (own.count.load(Relaxed), own.nanos.load(Relaxed));
        (threads > 0).then(|| Turns { count, ran: Duration::from_nanos(nanos), threads })
    }

    /// Returns the mean time of a stage's turns, or `None` if no turn was timed.
    pub(crate) fn usual_turn(&self, stage: usize) -> Option<Duration> {
        let own = self.turns.get(stage)?;
        let nanos = own.nanos.load(Relaxed).checked_div(own.count.load(Relaxed))?;
        Some(Duration::from_nanos(nanos))
    }

    pub(crate) fn party(&self, party: usize) -> &Party {
        &self.words.parties[party]
    }

    /// Like [`Counters::flush`], for a handle that has not waited long since its last flush. This
    /// flush happens between two polls, so it must be short. It leaves the rarer counts to the next
    /// full flush.
    #[inline]
    pub(crate) fn flush_progress(
        &self,
        party: usize,
        events: u64,
        now: &LocalCounts,
        flushed: &mut LocalCounts,
    ) {
        let (own, add) = (self.party(party), self.adder(party));
        add(&own.events, events, flushed.events);
        add(&own.batches, now.batches, flushed.batches);
        add(&own.tombstones, now.tombstones, flushed.tombstones);
        add(&own.waits, now.waits, flushed.waits);
        flushed.events = events;
        flushed.batches = now.batches;
        flushed.tombstones = now.tombstones;
        flushed.waits = now.waits;
    }

    /// Returns a function that adds the increase of a handle's count to the party's counter.
    #[inline(always)]
    fn adder(&self, party: usize) -> impl Fn(&Statistic, u64, u64) {
        let sole = self.sole[party];
        move |all, now, before| match now.wrapping_sub(before) {
            0 => {}
            new if sole => all.store(all.load(Relaxed).wrapping_add(new), Relaxed),
            new => _ = all.fetch_add(new, Relaxed),
        }
    }

    /// Adds a handle's new counts, `now` minus `before`, to the counters of `party`.
    #[cold]
    pub(crate) fn flush(&self, party: usize, now: &LocalCounts, before: &LocalCounts) {
        let (own, add) = (self.party(party), self.adder(party));
        add(&own.events, now.events, before.events);
        add(&own.batches, now.batches, before.batches);
        add(&own.tombstones, now.tombstones, before.tombstones);
        add(&own.skipped, now.skipped, before.skipped);
        add(&own.retries, now.retries, before.retries);
        add(&own.dropped, now.dropped, before.dropped);
        add(&own.waits, now.waits, before.waits);
        add(&own.wakes, now.wakes, before.wakes);
        add(self.nanos(party, now.upstream), now.nanos, before.nanos);
    }

    /// Returns the time for which `party` has waited for `upstream`.
    pub(crate) fn waited_for(&self, party: usize, upstream: usize) -> Duration {
        Duration::from_nanos(self.nanos(party, upstream).load(Relaxed))
    }

    fn nanos(&self, party: usize, upstream: usize) -> &Statistic {
        let first = party * lines_per_party(self.parties());
        &self.words.waited[first + upstream / PER_LINE][upstream % PER_LINE]
    }

    pub(crate) fn parties(&self) -> usize {
        self.sole.len()
    }
}

/// Publication times of sampled events, and the latencies of each stage.
pub(crate) struct Samples {
    /// log2 of the sampling interval, in positions.
    shift: u32,
    epoch: Instant,
    /// Publication times of sampled positions, in nanoseconds since `epoch`. The time 0 means that
    /// the position is not published or was given up.
    published: Box<[Statistic]>,
    stages: Box<[Line<Latencies>]>,
}

/// The latest latencies of a stage.
struct Latencies {
    count: Statistic,
    nanos: [Statistic; LATENCIES],
}

/// Number of latencies kept per stage.
const LATENCIES: usize = 256;

impl Samples {
    /// Size of a publication time, in bytes: the cost per slot if every slot is sampled.
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<Statistic>();

    /// Returns log2 of the sampling interval, and the number of publication times that are kept.
    fn interval(every: u64, capacity: usize) -> (u32, Option<u64>) {
        let shift = every.clamp(1, 1 << 40).next_power_of_two().trailing_zeros();
        (shift, ((capacity as u64 >> shift) + 2).checked_next_power_of_two())
    }

    /// Returns the size of the publication times, and of the latencies of `stages` stages, in
    /// bytes.
    pub(crate) fn bytes(every: u64, capacity: usize, stages: usize) -> u128 {
        let kept = u128::from(Samples::interval(every, capacity).1.unwrap_or(u64::MAX));
        kept * Samples::BYTES_PER_SLOT as u128
            + stages as u128 * size_of::<Line<Latencies>>() as u128
    }

    /// Makes the samples of a graph. Returns `None` if there is no memory for the publication times
    /// and latencies.
    pub(crate) fn new(every: u64, capacity: usize, stages: usize) -> Option<Samples> {
        let (shift, kept) = Samples::interval(every, capacity);
        let kept = kept?;
        let taken = || Latencies {
            count: Statistic::new(0),
            nanos: [const { Statistic::new(0) }; LATENCIES],
        };
        Some(Samples {
            shift,
            epoch: now(),
            published: array(usize::try_from(kept).ok()?, |_| Statistic::new(0))?,
            stages: array(stages, |_| Line::new(taken()))?,
        })
    }

    /// Returns the first sampled position of `[from, from + len)`.
    #[inline]
    fn sampled(&self, from: u64, len: u64) -> Option<u64> {
        let mask = (1 << self.shift) - 1;
        let next = from.wrapping_neg() & mask;
        (next < len).then(|| from.wrapping_add(next))
    }

    fn slot(&self, seq: u64) -> &Statistic {
        &self.published[(seq >> self.shift) as usize & (self.published.len() - 1)]
    }

    /// Stores the publication times of the sampled positions in `[from, from + len)`. If `live`,
    /// the caller is about to publish these positions; else it gives them up.
    pub(crate) fn publishing(&self, from: u64, len: u64, live: bool) {
        let (mut from, mut len) = (from, len);
        while let Some(seq) = self.sampled(from, len) {
            self.slot(seq).store(
                if live { (elapsed(self.epoch).as_nanos() as u64).max(1) } else { 0 },
                Relaxed,
            );
            let done = seq.wrapping_sub(from) + 1;
            if len <= done {
                break;
            }
            (from, len) = (from.wrapping_add(done), len - done);
        }
    }

    /// Stores the latencies of the sampled positions in `[from, from + len)`. The caller is a stage
    /// that is about to release `[from, from + len)`. `own` returns whether the stage handled the
    /// event at a position.
    #[inline(never)]
    pub(crate) fn releasing(&self, stage: usize, from: u64, len: u64, own: impl Fn(u64) -> bool) {
        debug_assert!(
            len >> self.shift <= self.published.len() as u64,
            "no stage holds more than the ring has"
        );
        let Some(first) = self.sampled(from, len) else { return };
        let now = elapsed(self.epoch).as_nanos() as u64;
        let taken = &self.stages[stage];
        for offset in (first.wrapping_sub(from)..len).step_by(1 << self.shift) {
            let seq = from.wrapping_add(offset);
            let published = self.slot(seq).load(Relaxed);
            if published != 0 && own(seq) {
                let at = taken.count.fetch_add(1, Relaxed) as usize % LATENCIES;
                taken.nanos[at].store(now.saturating_sub(published), Relaxed);
            }
        }
    }

    /// Returns quantiles of a stage's latest latencies.
    pub(crate) fn latency(&self, stage: usize) -> Option<Latency> {
        let taken = &self.stages.get(stage)?;
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
