//! Start and finish: the same clock and the same checks for every shape and every contender.
//!
//! Threads take as long to start as thousands of events take to pass, so each producer sends its
//! first event ahead, and the clock starts when every stage has seen it. It stops when the last
//! stage sees the last event.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use crate::machine;
use crate::work::{self, Check};

/// Above this bit an event says which producer it is from; below, its number there.
const FROM: u32 = 56;

/// What the parties of one run share beside what they hand over. Nobody touches it between the
/// first event and the last.
pub struct Line {
    stages: usize,
    producers: u64,
    /// How many events each producer sends.
    events: u64,
    /// How many stages have seen every producer's first event.
    arrived: AtomicUsize,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    begin: Option<Instant>,
    end: Option<Instant>,
    checks: Vec<Check>,
}

impl Line {
    /// For one producer of `events` events and so many stages.
    pub fn new(stages: usize, events: u64) -> Arc<Line> {
        Line::with_producers(1, stages, events)
    }

    /// For several producers of `events` events each.
    pub fn with_producers(producers: usize, stages: usize, events: u64) -> Arc<Line> {
        assert!(events > 1, "the first event is not timed");
        Arc::new(Line { stages, producers: producers as u64, events, arrived: AtomicUsize::new(0), seen: Mutex::default() })
    }

    /// One of the stages, which sees the events of all `PRODUCERS`.
    pub fn stage<const PRODUCERS: usize>(self: &Arc<Self>) -> Stage<PRODUCERS> {
        debug_assert_eq!(self.producers, PRODUCERS as u64);
        Stage { checks: std::array::from_fn(|_| Check::default()), seen: 0, mark: self.producers, line: self.clone() }
    }

    /// Publishes the events, with `steps` of work before each but the first; `publish` waits while
    /// there is no room.
    #[inline(always)]
    pub fn produce(&self, steps: u32, publish: impl FnMut(u64)) {
        self.produce_as(0, steps, publish);
    }

    /// The same for one of several producers.
    #[inline(always)]
    pub fn produce_as(&self, producer: u64, steps: u32, mut publish: impl FnMut(u64)) {
        publish(producer << FROM | 1);
        while self.arrived.load(Ordering::Acquire) < self.stages {
            thread::yield_now();
        }
        let now = Instant::now();
        {
            let mut seen = self.lock();
            seen.begin = Some(seen.begin.map_or(now, |begin| begin.min(now)));
        }
        let mut state = 1;
        for number in 2..=self.events {
            work::steps(steps, &mut state);
            publish(producer << FROM | number);
        }
        black_box(state);
    }

    /// Nanoseconds per event. Panics unless every stage saw every event, in order.
    pub fn result(&self) -> f64 {
        let seen = self.lock();
        assert_eq!(seen.checks.len(), self.stages * self.producers as usize, "a stage did not come back");
        seen.checks.iter().for_each(|check| check.finish(self.events));
        let (Some(begin), Some(end)) = (seen.begin, seen.end) else { panic!("nothing was timed") };
        (end - begin).as_nanos() as f64 / (self.producers * (self.events - 1)) as f64
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("nobody panics under the lock")
    }
}

/// A stage's part of the [`Line`]: checks what it sees, and hands its checks in when it is dropped.
pub struct Stage<const PRODUCERS: usize = 1> {
    checks: [Check; PRODUCERS],
    seen: u64,
    /// How many it must have seen when it has something to tell next: each producer's first, then
    /// all.
    mark: u64,
    line: Arc<Line>,
}

impl<const PRODUCERS: usize> Stage<PRODUCERS> {
    /// Sees the next event.
    #[inline(always)]
    pub fn see(&mut self, event: &u64) {
        if PRODUCERS == 1 {
            self.checks[0].see(event);
        } else {
            self.checks[(event >> FROM) as usize].see(&(event & ((1 << FROM) - 1)));
        }
        self.seen += 1;
        if self.seen == self.mark {
            self.tell();
        }
    }

    #[cold]
    fn tell(&mut self) {
        let all = self.line.events * self.line.producers;
        if self.mark < all {
            self.mark = all;
            self.line.arrived.fetch_add(1, Ordering::Release);
        } else {
            let now = Instant::now();
            let mut seen = self.line.lock();
            seen.end = Some(seen.end.map_or(now, |end| end.max(now)));
        }
    }
}

impl<const PRODUCERS: usize> Drop for Stage<PRODUCERS> {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.line.lock().checks.extend(self.checks.iter_mut().map(std::mem::take));
        }
    }
}

/// Two cores, and no thread bound to one of them: as long as this lives, for the calling thread and
/// those it starts. Where there are more cores, the others stay idle, so that four threads are too
/// many there as well.
pub struct TwoCores(());

impl TwoCores {
    /// Binds the calling thread to the first two cores, where that is possible.
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
