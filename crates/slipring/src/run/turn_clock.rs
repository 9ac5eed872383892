//! Counts and times the turns of an entry.
//!
//! Long turns are timed exactly. The exact clock would cost a short turn more than the turn's
//! events, so only one of [`TIMED_ONE_IN`] short turns is timed exactly. The system's coarse clock
//! times the other short turns. It advances in ticks of 1 to 10 ms, so most of these turns seem to
//! take no time, and some seem to take a tick. These errors cancel over many turns. A turn in which
//! the coarse clock has ticked may have been long, so the next turn is timed exactly.

use std::time::{Duration, Instant};

use crate::base::sync::{elapsed, now};
use crate::base::system;
use crate::ring::control::Control;

/// Duration below which a turn counts as short.
const SHORT: Duration = Duration::from_micros(4);
/// One of this number of short turns is timed exactly. In a pipeline of three handlers of 100 ns at
/// half load, the median latency is 1.4 µs with one in 16, and would be 2.1 µs if each short turn
/// were timed exactly.
const TIMED_ONE_IN: u32 = 16;

/// The clock of an entry.
#[derive(Default)]
pub(super) struct TurnClock {
    /// Number and time, in nanoseconds, of the turns that are not yet counted.
    pending: (u64, u64),
    /// Number of turns until the next turn that is timed exactly.
    until_exact: u32,
    /// The coarse clock at the end of the last turn, in nanoseconds.
    ended: u64,
    /// The thread of the last turn that has handled events.
    thread: Option<usize>,
}

/// A turn of a stage on a thread, from its beginning.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// Index of the stage.
    stage: usize,
    /// Number of the thread.
    thread: usize,
    /// The time at the beginning, if the turn is timed exactly.
    pub(super) exact: Option<Instant>,
    /// The coarse clock's reading at the beginning of the turn, in nanoseconds.
    coarse: u64,
}

impl TurnClock {
    /// Begins a turn of the stage with the index `stage`, on the thread with the number `thread`.
    pub(super) fn begin(&self, control: &Control, stage: usize, thread: usize) -> Turn {
        let exact = (control.timed && self.until_exact == 0).then(now);
        let coarse = if control.timed { system::coarse_nanos() } else { 0 };
        Turn { stage, thread, exact, coarse }
    }

    /// Ends a turn. A turn without events is not counted.
    pub(super) fn end(&mut self, control: &Control, turn: Turn, has_handled: bool) {
        let Turn { stage, thread, exact, coarse } = turn;
        if !control.timed {
            return;
        }
        self.ended = system::coarse_nanos();
        if !has_handled {
            return;
        }
        if self.thread.replace(thread) != Some(thread) {
            control.counters.runs_on(stage, thread);
        }
        let took = exact.map(elapsed);
        let ticked = self.ended.saturating_sub(coarse);
        self.until_exact = match took {
            Some(took) if took < SHORT => TIMED_ONE_IN - 1,
            Some(_) => 0,
            None if ticked > 0 => 0,
            None => self.until_exact - 1,
        };
        let nanos = took.map_or(ticked, |took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.pending = (self.pending.0 + 1, self.pending.1.saturating_add(nanos));
        if nanos > 0 {
            self.flush(control, stage);
        }
    }

    /// Adds the turns that are not yet counted to the stage's counters.
    pub(super) fn flush(&mut self, control: &Control, stage: usize) {
        let (count, nanos) = std::mem::take(&mut self.pending);
        if count > 0 {
            control.counters.turned(stage, count, nanos);
        }
    }

    /// Returns the coarse clock at the end of the last turn, in nanoseconds, or 0 if the graph is
    /// not timed.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use std::thread::sleep;

    use super::*;
    use crate::ring::build::RingBuilder;
    use crate::ring::owner::Owner;
    use crate::ring::slots::Interleaved;
    use crate::ring::spec::{Access, Delivery, StageSpec};

    fn ring() -> Owner<u64, Interleaved> {
        let stage = StageSpec::new("stage", Access::Read, Delivery::Each, &[]);
        RingBuilder::new(8, || 0u64).build(vec![stage]).unwrap()
    }

    fn turn(clock: &mut TurnClock, control: &Control, work: impl FnOnce()) -> bool {
        let turn = clock.begin(control, 0, 3);
        work();
        clock.end(control, turn, true);
        turn.exact.is_some()
    }

    #[test]
    fn a_long_turn_after_short_ones_is_timed_and_found() {
        let ring = ring();
        let (control, mut clock) = (&ring.control, TurnClock::default());
        assert!(turn(&mut clock, control, || ()), "the first turn is timed exactly");
        // On a busy machine, a turn without work may be long, and then the next turn is timed
        // exactly.
        let timed = (0..1000).filter(|_| turn(&mut clock, control, || ())).count();
        assert!((1000 / TIMED_ONE_IN as usize..1000).contains(&timed), "{timed}");
        while clock.until_exact == 0 {
            turn(&mut clock, control, || ());
        }
        let before = control.counters.turns(0).unwrap().ran;
        let long = Duration::from_millis(50);
        assert!(!turn(&mut clock, control, || sleep(long)), "not timed exactly");
        assert!(turn(&mut clock, control, || sleep(long)), "the coarse clock has ticked");
        assert!(turn(&mut clock, control, || ()), "behind a long turn");
        clock.flush(control, 0);
        let turns = control.counters.turns(0).unwrap();
        assert!(turns.ran - before >= long + long * 3 / 4, "{turns:?}");
        assert_eq!(turns.threads, 1);
    }

    #[test]
    fn a_turn_without_events_is_not_counted() {
        let ring = ring();
        let mut clock = TurnClock::default();
        let turn = clock.begin(&ring.control, 0, 0);
        clock.end(&ring.control, turn, false);
        clock.flush(&ring.control, 0);
        assert!(ring.control.counters.turns(0).is_none());
        assert!(clock.begin(&ring.control, 0, 0).exact.is_some(), "the first that counts is exact");
    }
}
