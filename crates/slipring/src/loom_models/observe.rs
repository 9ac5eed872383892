//! Models of a mirror's writer and its observers. An observer copies whole values, and each put is
//! either seen or counted as missed.
//!
//! The writer's first put stores the value 1 at position 1, the second put the value 2 at position
//! 2, and so on. In each observation, the value, the position, and the number of puts seen or
//! missed so far must be equal. Each model has one writer, one observer, a mirror of 1 or 2 slots,
//! and 1 to 3 puts.

use loom::thread;

use super::*;
use crate::observe::mirror::{Mirror, MirrorHandle};
use crate::observe::observer::{ObserveError, Observed, Observer};
use crate::observe::words::Plain;

/// An observer, with a count of the puts that the observer has seen or missed.
struct Watch<T> {
    observer: Observer<T>,
    /// Number of puts that the observer has seen or missed so far.
    counted: u64,
}

impl<T: Plain + Into<u64>> Watch<T> {
    fn of(mirror: &Mirror<T>) -> Watch<T> {
        Watch { observer: mirror.handle().observe(), counted: 0 }
    }

    /// Checks one observation. If the mirror is closed, asserts that all `puts` were seen or
    /// missed, and returns `false`.
    fn account(&mut self, observed: Result<Observed<T>, ObserveError>, puts: u64) -> bool {
        match observed {
            Ok(seen) => {
                let value: u64 = seen.value.into();
                self.counted += seen.missed + 1;
                assert_eq!(value, seen.seq, "a torn value");
                assert_eq!(value, self.counted, "the value differs from the count of puts");
            }
            Err(ObserveError::Closed) => {
                assert_eq!(self.counted, puts, "seen and missed do not add up to the puts");
                return false;
            }
            Err(ObserveError::Unavailable | ObserveError::Overrun) => {}
            Err(other) => panic!("a poll without waiting: {other}"),
        }
        true
    }

    /// Observes `polls` times, or until the mirror is closed.
    fn poll(&mut self, polls: usize, puts: u64) {
        for _ in 0..polls {
            let observed = self.observer.try_next();
            if !self.account(observed, puts) {
                return;
            }
        }
    }

    /// Observes a mirror to its end; the writer was dropped before the call.
    fn drain(mut self, puts: u64) {
        loop {
            let observed = self.observer.try_next();
            assert!(
                !matches!(observed, Err(ObserveError::Unavailable | ObserveError::Overrun)),
                "a closed mirror has neither a value nor an end"
            );
            if !self.account(observed, puts) {
                return;
            }
        }
    }
}

/// Makes a mirror whose count of puts wraps to 0 at the first put.
fn mirror<T: Plain>(capacity: usize) -> Mirror<T> {
    Mirror::starting_at(capacity, u64::MAX - 1, false).expect("a power of two")
}

/// The writer overwrites one slot. Shows that an observer rejects every torn copy, and that each
/// accepted value belongs to the right put.
fn a_value_is_seen_whole<T: Plain + Into<u64> + From<u8>>() {
    explore_unfenced(2_000, Some(3), || {
        let mut mirror = mirror::<T>(1);
        let mut watch = Watch::of(&mirror);
        let observing = thread::spawn(move || {
            watch.poll(2, 2);
            watch
        });
        (1..=2u8).for_each(|i| mirror.put(i.into(), &i.into()));
        let watch = observing.join().unwrap();
        drop(mirror);
        watch.drain(2);
    });
}

/// Shows that observers see no torn value of 8 bytes. A value of 8 bytes fills one word of a slot.
#[test]
fn loom_a_value_is_seen_whole() {
    a_value_is_seen_whole::<u64>();
}

/// Shows that observers see no torn value of 4 bytes, which fills half a word of a slot.
/// `Words::write` has a branch of its own for a last word that the value does not fill.
#[test]
fn loom_a_short_value_is_seen_whole() {
    a_value_is_seen_whole::<u32>();
}

#[test]
fn loom_twin_short_put_relaxed() {
    caught(
        "observe::loom_a_short_value_is_seen_whole",
        "put-relaxed",
        Caught::Message("the value differs from the count of puts"),
    );
}

#[test]
fn loom_twin_short_writer_unfenced() {
    caught(
        "observe::loom_a_short_value_is_seen_whole",
        "writer-unfenced",
        Caught::Message("a torn value"),
    );
}

#[test]
fn loom_twin_unmarked() {
    caught("observe::loom_a_value_is_seen_whole", "unmarked", Caught::Message("a torn value"));
}

#[test]
fn loom_twin_writer_unfenced() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "writer-unfenced",
        Caught::Message("a torn value"),
    );
}

#[test]
fn loom_twin_put_relaxed() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "put-relaxed",
        Caught::Message("the value differs from the count of puts"),
    );
}

#[test]
fn loom_twin_put_seen_relaxed() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "put-seen-relaxed",
        Caught::Message("the value differs from the count of puts"),
    );
}

#[test]
fn loom_twin_observer_unfenced() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "observer-unfenced",
        Caught::Message("a torn value"),
    );
}

#[test]
fn loom_twin_unvalidated() {
    caught("observe::loom_a_value_is_seen_whole", "unvalidated", Caught::Message("a torn value"));
}

#[test]
fn loom_twin_lapless() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "lapless",
        Caught::Message("the value differs from the count of puts"),
    );
}

/// The writer laps a mirror of two slots and drops the mirror. Shows that each put is seen or
/// counted as missed.
#[test]
fn loom_each_value_is_seen_or_missed() {
    explore_unfenced(20_000, Some(2), || {
        let mut mirror = mirror::<u64>(2);
        let mut watch = Watch::of(&mirror);
        let observing = thread::spawn(move || {
            watch.poll(4, 3);
            watch
        });
        (1..=3).for_each(|i| mirror.put(i, &i));
        drop(mirror);
        observing.join().unwrap().drain(3);
    });
}

/// The writer puts one value and drops the mirror: the observer sees the value before the end.
#[test]
fn loom_a_mirror_closes() {
    explore_unfenced(150, None, || {
        let mut mirror = mirror::<u64>(1);
        let mut watch = Watch::of(&mirror);
        let observing = thread::spawn(move || {
            watch.poll(2, 1);
            watch
        });
        mirror.put(1, &1);
        drop(mirror);
        observing.join().unwrap().drain(1);
    });
}

#[test]
fn loom_twin_mirror_closed_relaxed() {
    caught(
        "observe::loom_a_mirror_closes",
        "mirror-closed-relaxed",
        Caught::Message("seen and missed do not add up to the puts"),
    );
}

#[test]
fn loom_twin_mirror_closed_seen_relaxed() {
    caught(
        "observe::loom_a_mirror_closes",
        "mirror-closed-seen-relaxed",
        Caught::Message("seen and missed do not add up to the puts"),
    );
}

/// Shows that after a completed put the call `latest` finds a value, and that an observer that
/// begins at the oldest value finds one, too.
#[test]
fn loom_a_completed_value_is_there() {
    explore_unfenced(150, None, || {
        let mut mirror = mirror::<u64>(2);
        let mirrored: MirrorHandle<u64> = mirror.handle();
        let mut watch = Watch::of(&mirror);
        let observing = thread::spawn(move || {
            let completed = watch.observer.behind();
            let observed = if completed == 2 {
                watch.observer.latest()
            } else {
                mirrored.observe_from_oldest().try_next()
            };
            if completed > 0 {
                assert_ne!(
                    observed.map(|seen| seen.value),
                    Err(ObserveError::Unavailable),
                    "a completed value is not there"
                );
            }
            if completed == 2 {
                watch.account(observed, 2);
                assert_eq!(watch.counted, 2);
            }
        });
        (1..=2).for_each(|i| mirror.put(i, &i));
        observing.join().unwrap();
    });
}

#[test]
fn loom_twin_completed_relaxed() {
    caught(
        "observe::loom_a_completed_value_is_there",
        "completed-relaxed",
        Caught::Message("a completed value is not there"),
    );
}

#[test]
fn loom_twin_completed_seen_relaxed() {
    caught(
        "observe::loom_a_completed_value_is_there",
        "completed-seen-relaxed",
        Caught::Message("a completed value is not there"),
    );
}
