//! Measures one candidate: events that arrive at random times, through all stages.
//!
//! A generator thread publishes each event when it is due, at random times that do not depend on
//! the stages. The latency counts from that time until the last stage has handled the event, so a
//! full ring or a late generator makes it longer (no coordinated omission). The processor time is
//! that of the stages' threads: the generator's own is subtracted, because the user's producer has
//! other work.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use fastrand::Rng;
use hdrhistogram::Histogram;
use slipring::{
    Chain, Wait,
    faults::Fault,
    markers::{Contiguous, Interleaved},
};
use slipring_machine::{self as machine, Clock};

use super::candidate::{Candidate, Layout, Threads};
use super::demand::Demand;
use super::work::Work;

/// Time between the start of the threads and the first event, so that all threads wait when it
/// comes.
const LEAD: Duration = Duration::from_millis(1);
/// Time for which the generator spins before an event is due. It sleeps until then.
const SPIN: Duration = Duration::from_micros(100);
/// Time that a run may take beyond its schedule.
const GRACE: Duration = Duration::from_secs(20);

/// The figures of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunFigures {
    /// The demanded percentile of the latencies, in nanoseconds.
    pub latency_ns: f64,
    /// Median latency, in nanoseconds.
    pub p50_ns: f64,
    /// Processor time of the stages' threads, in cores.
    pub cores: f64,
    /// Number of events.
    pub events: u64,
}

/// An event of a size that is known when the program is compiled.
#[derive(Clone, Copy, Debug)]
struct Event<const WORDS: usize> {
    /// Time at which the event is due, in nanoseconds of the clock.
    due: u64,
    words: [u64; WORDS],
}

/// Sizes of events that can be measured, in bytes.
pub const SIZES: [usize; 9] = [8, 16, 32, 64, 128, 256, 512, 1024, 4096];

/// Returns the size at which events of `bytes` bytes are measured: that size or the next larger one
/// of [`SIZES`].
pub fn measured_size(bytes: usize) -> Option<usize> {
    SIZES.into_iter().find(|size| *size >= bytes)
}

/// The conditions that all runs of a search share.
#[derive(Clone, Debug)]
pub struct Bench {
    pub demand: Demand,
    pub work: Work,
    /// Length of the schedule of one run.
    pub length: Duration,
}

/// The account of the last stage.
struct Seen {
    latencies: Histogram<u64>,
    events: u64,
    /// Number of events out of order or changed.
    wrong: u64,
}

impl Bench {
    /// Runs a candidate once. The same seed gives the same schedule.
    pub fn run(&self, candidate: &Candidate, seed: u64) -> Result<RunFigures> {
        match measured_size(self.demand.event_bytes) {
            Some(8) => self.sized::<0>(candidate, seed),
            Some(16) => self.sized::<1>(candidate, seed),
            Some(32) => self.sized::<3>(candidate, seed),
            Some(64) => self.sized::<7>(candidate, seed),
            Some(128) => self.sized::<15>(candidate, seed),
            Some(256) => self.sized::<31>(candidate, seed),
            Some(512) => self.sized::<63>(candidate, seed),
            Some(1024) => self.sized::<127>(candidate, seed),
            _ => self.sized::<511>(candidate, seed),
        }
    }

    fn sized<const WORDS: usize>(&self, candidate: &Candidate, seed: u64) -> Result<RunFigures> {
        let event = || Event { due: 0, words: [0_u64; WORDS] };
        let chain = slipring::ring(candidate.capacity, event);
        match candidate.layout {
            Layout::Interleaved => self.through::<WORDS, Interleaved>(chain, candidate, seed),
            Layout::Contiguous => {
                self.through::<WORDS, Contiguous>(chain.contiguous(), candidate, seed)
            }
        }
    }

    /// Declares the stages, and runs the chain.
    fn through<const WORDS: usize, L: slipring::markers::Layout + Debug>(
        &self,
        chain: Chain<'static, Event<WORDS>, L>,
        candidate: &Candidate,
        seed: u64,
    ) -> Result<RunFigures> {
        let wait: Wait = candidate.wait.parse().map_err(|error| anyhow!("{error}"))?;
        let mut chain = chain.wait(wait).deadline(self.length + GRACE);
        if let Threads::Shared(count) = candidate.threads {
            chain = chain.threads(count);
        }
        chain = super::place::apply(chain, &candidate.place)?;
        let clock = Clock::start();
        let work = self.work;
        let limit = |chain: Chain<'static, Event<WORDS>, L>| match candidate.batch {
            Some(events) => chain.max_batch(events),
            None => chain,
        };
        for stage in 1..self.demand.stages {
            let handler = move |event: &mut Event<WORDS>, _| {
                work.perform();
                event.words.iter_mut().for_each(|word| *word = word.wrapping_add(1));
            };
            chain = limit(chain.update(&format!("stage-{stage}"), handler));
        }
        let before = self.demand.stages as u64 - 1;
        let seen = Arc::new(Mutex::new(Seen { latencies: latencies(), events: 0, wrong: 0 }));
        let last = {
            let seen = seen.clone();
            let mut own = Seen { latencies: latencies(), events: 0, wrong: 0 };
            move |event: &Event<WORDS>, _| -> Result<(), Fault> {
                work.perform();
                let expected = own.events.wrapping_add(before);
                own.wrong += u64::from(event.words.iter().any(|word| *word != expected));
                own.events += 1;
                if event.due == END {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    std::mem::swap(&mut *seen, &mut own);
                } else {
                    own.latencies.saturating_record(clock.ns().saturating_sub(event.due));
                }
                Ok(())
            }
        };
        let chain = limit(chain.read(&format!("stage-{}", self.demand.stages), last));
        let (mut tx, pipeline) = chain.spawn()?;
        // The recommended program binds its producer in the same way.
        let bound = pipeline.bind_thread(slipring::stages::PRODUCER)?;
        let own_before = machine::thread_cpu();
        let all_before = machine::process_cpu();
        machine::set_fine_timer();
        let start = clock.ns() + LEAD.as_nanos() as u64;
        let mut random = Rng::with_seed(seed);
        let mut due = start;
        let (mut number, end) = (0_u64, start + self.length.as_nanos() as u64);
        while due < end {
            // A candidate that falls behind by a whole run has missed every limit.
            if clock.ns() > due + self.length.as_nanos() as u64 {
                break;
            }
            wait_until(&clock, due);
            let at = due;
            tx.publish(|slot| *slot = Event { due: at, words: [number; WORDS] })?;
            number += 1;
            // The gaps are exponentially distributed, like those between independent events.
            due += (-(1.0 - random.f64()).ln() / self.demand.rate.0 * 1e9) as u64;
        }
        let took = Duration::from_nanos(clock.ns() - start);
        let all = machine::process_cpu().zip(all_before).map(|(after, before)| after - before);
        let own = machine::thread_cpu().zip(own_before).map(|(after, before)| after - before);
        tx.publish(|slot| *slot = Event { due: END, words: [number; WORDS] })?;
        tx.close();
        drop(bound);
        pipeline.join()?;
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(
            seen.events == number + 1 && seen.wrong == 0,
            "events were lost, changed or out of order: {} of {} came, {} of them wrong",
            seen.events,
            number + 1,
            seen.wrong
        );
        let cpu = all.context("this system does not tell the processor time")?;
        let stages = cpu.saturating_sub(Duration::from_nanos(own.unwrap_or(0)));
        let percentile = |at: f64| seen.latencies.value_at_percentile(at) as f64;
        Ok(RunFigures {
            latency_ns: percentile(self.demand.percentile()),
            p50_ns: percentile(50.0),
            cores: stages.as_secs_f64() / took.as_secs_f64(),
            events: number,
        })
    }
}

/// Due time that marks the event at the end of a run. The latency of this event does not count.
const END: u64 = u64::MAX;

/// Waits until an event is due: sleeps for as long as a sleep is exact enough, and then spins.
fn wait_until(clock: &Clock, due: u64) {
    let spin = SPIN.as_nanos() as u64;
    if due > clock.ns() + 2 * spin {
        clock.sleep_until(due - spin);
    }
    clock.spin_until(due);
}

/// Returns a histogram of latencies in nanoseconds, up to a minute.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds that are valid")
}
