//! The timing and the checks of a run, and how much work it does. They are the same for every shape
//! and every contender.
//!
//! Starting a thread takes as long as handing over thousands of events. So each producer first
//! sends one event, and the clock starts when every stage has seen these first events. It stops
//! when the last stage sees the last event.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use slipring_machine as machine;

use crate::work::{self, Check};

/// Capacity of each ring and each queue, in events.
pub const RING: usize = 1024;
/// Names of the stages.
pub const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// Lowest bit of the producer's number in an event; the bits below are the event's number.
const PRODUCER_SHIFT: u32 = 56;

/// The clock and the checks that the threads of one run share. No thread accesses them between the
/// first and the last event.
pub struct Timing {
    stages: usize,
    producers: u64,
    /// Number of producers whose events each stage sees.
    heard: u64,
    /// Number of events of each producer.
    events: u64,
    /// Number of stages that have seen the first event of each of their producers.
    arrived: AtomicUsize,
    results: Mutex<Results>,
}

#[derive(Default)]
struct Results {
    begin: Option<Instant>,
    end: Option<Instant>,
    checks: Vec<Check>,
}

impl Timing {
    /// Makes the timing of a run of one producer with `events` events.
    pub fn new(stages: usize, events: u64) -> Arc<Timing> {
        Timing::with_producers(1, stages, events)
    }

    /// Makes the timing of a run of several producers with `events` events each.
    pub fn with_producers(producers: usize, stages: usize, events: u64) -> Arc<Timing> {
        Timing::make(producers, stages, producers, events)
    }

    /// Makes the timing of several pairs that run at once. A pair is a producer with `events`
    /// events, and a stage that sees only these events. Every producer calls [`Timing::produce`].
    pub fn of_pairs(pairs: usize, events: u64) -> Arc<Timing> {
        Timing::make(pairs, pairs, 1, events)
    }

    fn make(producers: usize, stages: usize, heard: usize, events: u64) -> Arc<Timing> {
        assert!(events > 1, "the first event is not timed");
        Arc::new(Timing {
            stages,
            producers: producers as u64,
            heard: heard as u64,
            events,
            arrived: AtomicUsize::new(0),
            results: Mutex::default(),
        })
    }

    /// Returns one stage's part in the timing. The stage sees the events of `PRODUCERS` producers.
    pub fn stage<const PRODUCERS: usize>(self: &Arc<Self>) -> Stage<PRODUCERS> {
        debug_assert_eq!(self.heard, PRODUCERS as u64);
        Stage {
            checks: std::array::from_fn(|_| Check::default()),
            seen: 0,
            mark: self.heard,
            timing: self.clone(),
        }
    }

    /// Returns the handler of a stage that does `steps` of work on each event of the one producer.
    pub fn working_stage(self: &Arc<Self>, steps: u32) -> impl FnMut(&u64) + Send + 'static {
        let (mut stage, mut state): (Stage, u64) = (self.stage(), 1);
        move |event| {
            work::steps(steps, &mut state);
            black_box(state);
            stage.see(event);
        }
    }

    /// Returns the number of events of each producer.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Publishes the events through `publish`, which waits while the ring is full. Before each
    /// event except the first, the producer does `steps` of work.
    #[inline(always)]
    pub fn produce(&self, steps: u32, publish: impl FnMut(u64)) {
        self.produce_as(0, steps, publish);
    }

    /// Does the same as [`Timing::produce`], but without work, on a thread that also runs a stage.
    /// `publish` returns false if the ring is full, and `handle` then handles some events.
    #[inline(always)]
    pub fn produce_polling(&self, mut publish: impl FnMut(u64) -> bool, mut handle: impl FnMut()) {
        assert!(publish(1), "an empty ring takes an event");
        while self.arrived.load(Ordering::Acquire) < self.stages {
            handle();
        }
        self.lock().begin = Some(Instant::now());
        for number in 2..=self.events {
            while !publish(number) {
                handle();
            }
        }
    }

    /// Does the same as [`Timing::produce`] for one of several producers.
    #[inline(always)]
    pub fn produce_as(&self, producer: u64, steps: u32, mut publish: impl FnMut(u64)) {
        publish(producer << PRODUCER_SHIFT | 1);
        while self.arrived.load(Ordering::Acquire) < self.stages {
            thread::yield_now();
        }
        let now = Instant::now();
        {
            let mut results = self.lock();
            results.begin = Some(results.begin.map_or(now, |begin| begin.min(now)));
        }
        let mut state = 1;
        for number in 2..=self.events {
            work::steps(steps, &mut state);
            publish(producer << PRODUCER_SHIFT | number);
        }
        black_box(state);
    }

    /// Returns the nanoseconds per event. Panics unless every stage saw every event, in order.
    pub fn result(&self) -> f64 {
        let results = self.lock();
        let checks = self.stages * self.heard as usize;
        assert_eq!(results.checks.len(), checks, "a stage did not report its checks");
        results.checks.iter().for_each(|check| check.finish(self.events));
        let (Some(begin), Some(end)) = (results.begin, results.end) else {
            panic!("the clock did not start and stop")
        };
        (end - begin).as_nanos() as f64 / (self.producers * (self.events - 1)) as f64
    }

    fn lock(&self) -> MutexGuard<'_, Results> {
        self.results.lock().expect("no thread panics while it holds the lock")
    }
}

/// A stage's part of the [`Timing`]: checks the stage's events, and reports the checks on drop.
pub struct Stage<const PRODUCERS: usize = 1> {
    checks: [Check; PRODUCERS],
    /// Number of events so far.
    seen: u64,
    /// Number of seen events at which the stage next updates the clock: first one event of each
    /// producer, then all events.
    mark: u64,
    timing: Arc<Timing>,
}

impl<const PRODUCERS: usize> Stage<PRODUCERS> {
    /// Checks the next event.
    #[inline(always)]
    pub fn see(&mut self, event: &u64) {
        if PRODUCERS == 1 {
            self.checks[0].see(event);
        } else {
            let number = event & ((1 << PRODUCER_SHIFT) - 1);
            self.checks[(event >> PRODUCER_SHIFT) as usize].see(&number);
        }
        self.seen += 1;
        if self.seen == self.mark {
            self.reach_mark();
        }
    }

    #[cold]
    fn reach_mark(&mut self) {
        let all = self.timing.events * self.timing.heard;
        if self.mark < all {
            self.mark = all;
            self.timing.arrived.fetch_add(1, Ordering::Release);
        } else {
            let now = Instant::now();
            let mut results = self.timing.lock();
            results.end = Some(results.end.map_or(now, |end| end.max(now)));
        }
    }
}

impl<const PRODUCERS: usize> Drop for Stage<PRODUCERS> {
    fn drop(&mut self) {
        if !thread::panicking() {
            let checks = self.checks.iter_mut().map(std::mem::take);
            self.timing.lock().checks.extend(checks);
        }
    }
}

/// A guard that binds the calling thread, and the threads that it starts, to two cores. The system
/// moves threads between the two, so four threads are too many even on machines with more cores.
pub struct TwoCores(());

impl TwoCores {
    /// Binds the calling thread to the first two cores, where the system allows that.
    pub fn take() -> TwoCores {
        machine::bind([0, 1]);
        TwoCores(())
    }
}

impl Drop for TwoCores {
    fn drop(&mut self) {
        machine::unpin();
    }
}
