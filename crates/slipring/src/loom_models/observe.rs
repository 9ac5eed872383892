//! Models of a mirror's writer and its observers. An observer copies whole values, and each put is
//! either seen or counted as missed.
//!
//! The writer's first put stores the value 1 at position 1, the second put the value 2 at position
//! 2, and so on. In each observation, the value, the position, and the number of puts seen or
//! missed so far must be equal. Each model has one writer, one or two observers, a mirror of 1 or 2
//! slots, and 1 to 3 puts.
//!
//! In the models of waiting observers, a lost wake-up is a deadlock. The observers wait there by
//! [`Wait::Blocking`]. In the other models, which are about data edges, no put notifies.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::thread;

use super::promise::Alarm;
use super::task::block_on;
use super::*;
use crate::errors::ObserveError;
use crate::observe::mirror::{Mirror, MirrorHandle};
use crate::observe::observer::{Observed, Observer};
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
        (1..=2u8).for_each(|i| mirror.put_quietly(i.into(), &i.into()));
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
        (1..=3).for_each(|i| mirror.put_quietly(i, &i));
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
        mirror.put_quietly(1, &1);
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

/// Shows that after a completed put the call `try_latest` finds a value, and that an observer that
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
                watch.observer.try_latest()
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
        (1..=2).for_each(|i| mirror.put_quietly(i, &i));
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

/// Creates an observer that sleeps until it is notified.
fn blocking_observer<T: Plain>(mirror: &Mirror<T>) -> Observer<T> {
    mirror.handle().observe().wait(Wait::Blocking)
}

/// Shows that a put wakes a sleeping observer.
#[test]
fn loom_an_observer_sleeps() {
    explore(40, None, || {
        let mut mirror = mirror::<u64>(1);
        let mut observer = blocking_observer(&mirror);
        let observing = thread::spawn(move || {
            assert_eq!(observer.next().unwrap().value, 1);
        });
        mirror.put(1, &1);
        observing.join().unwrap();
    });
}

/// Shows that an observer that is woken by one of two puts sees the second put, or sees the two.
#[test]
fn loom_an_observer_sleeps_until_the_newest() {
    explore(100, Some(3), || {
        let mut mirror = mirror::<u64>(2);
        let mut observer = blocking_observer(&mirror);
        let observing = thread::spawn(move || {
            let mut newest = 0;
            while newest < 2 {
                let seen = observer.latest().expect("the mirror is open");
                newest += seen.missed + 1;
                assert_eq!(seen.value, newest);
            }
        });
        (1..=2).for_each(|i| mirror.put(i, &i));
        observing.join().unwrap();
    });
}

/// Shows that the mirror's drop wakes a sleeping observer, which saw or missed each put.
#[test]
fn loom_an_observer_sleeps_until_the_end() {
    explore(100, Some(3), || {
        let mut mirror = mirror::<u64>(1);
        let mut observer = blocking_observer(&mirror);
        let observing = thread::spawn(move || {
            let seen: u64 = observer.by_ref().map(|seen| seen.missed + 1).sum();
            assert_eq!(seen, 1);
        });
        mirror.put(1, &1);
        drop(mirror);
        observing.join().unwrap();
    });
}

/// Shows that one put wakes two sleeping observers.
#[test]
fn loom_two_observers_sleep() {
    explore(500, Some(2), || {
        let mut mirror = mirror::<u64>(1);
        let observing = [(); 2].map(|()| {
            let mut observer = blocking_observer(&mirror);
            thread::spawn(move || assert_eq!(observer.next().unwrap().value, 1))
        });
        mirror.put(1, &1);
        observing.into_iter().for_each(|observing| observing.join().unwrap());
    });
}

/// Shows that a put wakes a task that waits for a value.
#[test]
fn loom_a_task_observes() {
    explore(40, None, || {
        let mut mirror = mirror::<u64>(1);
        let mut observer = mirror.handle().observe();
        let observing = thread::spawn(move || {
            let seen = block_on("observer", observer.next_async());
            assert_eq!(seen.unwrap().value, 1);
        });
        mirror.put(1, &1);
        observing.join().unwrap();
    });
}

/// Shows that the mirror's drop wakes a task.
#[test]
fn loom_a_task_observes_the_end() {
    explore(40, None, || {
        let mirror = mirror::<u64>(1);
        let mut observer = mirror.handle().observe();
        let observing = thread::spawn(move || {
            let end = block_on("observer", observer.latest_async());
            assert_eq!(end, Err(ObserveError::Closed));
        });
        drop(mirror);
        observing.join().unwrap();
    });
}

/// Two tasks wait. Shows that a put wakes the first, even if the other one is dropped meanwhile.
#[test]
fn loom_an_observing_task_goes_away() {
    explore(100, Some(2), || {
        let mut mirror = mirror::<u64>(1);
        let (mut stays, mut goes) = (mirror.handle().observe(), mirror.handle().observe());
        let staying = thread::spawn(move || {
            let seen = block_on("observer", stays.next_async());
            assert_eq!(seen.unwrap().value, 1);
        });
        let going = thread::spawn(move || {
            let waker = Waker::from(Alarm::new());
            let polled = Pin::new(&mut goes.next_async()).poll(&mut Context::from_waker(&waker));
            assert!(!matches!(polled, Poll::Ready(Err(_))));
        });
        mirror.put(1, &1);
        staying.join().unwrap();
        going.join().unwrap();
    });
}

/// Declares a test for each twin of the models of waiting observers. All observers of a model that
/// a deadlock leaves asleep are listed.
macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal, $asleep:expr;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("observe::", $model), $twin, Caught::Deadlock(&$asleep));
            }
        )+
    };
}
twins! {
    loom_twin_observer_notified_early: "loom_an_observer_sleeps", "observers-notified-early", ["observer"];
    loom_twin_notifier_unfenced_before_an_observer: "loom_an_observer_sleeps", "notifier-unfenced", ["observer"];
    loom_twin_sleeper_unfenced_observer: "loom_an_observer_sleeps", "sleeper-unfenced", ["observer"];
    loom_twin_sleeper_blind_observer: "loom_an_observer_sleeps", "sleeper-blind", ["observer"];
    loom_twin_newest_notified_early: "loom_an_observer_sleeps_until_the_newest", "observers-notified-early", ["observer"];
    loom_twin_mirror_closed_unnotified: "loom_an_observer_sleeps_until_the_end", "mirror-closed-unnotified", ["observer"];
    loom_twin_ending_unfenced_before_an_observer: "loom_an_observer_sleeps_until_the_end", "ending-unfenced", ["observer"];
    loom_twin_one_of_two_observers_woken: "loom_two_observers_sleep", "one-woken", ["observer"];
    loom_twin_observing_task_notified_early: "loom_a_task_observes", "observers-notified-early", ["observer"];
    loom_twin_observing_task_unfenced: "loom_a_task_observes", "task-unfenced", ["observer"];
    loom_twin_observing_task_blind: "loom_a_task_observes", "task-blind", ["observer"];
    loom_twin_mirror_closed_unnotified_to_a_task: "loom_a_task_observes_the_end", "mirror-closed-unnotified", ["observer"];
    loom_twin_observing_tasks_unwoken: "loom_an_observing_task_goes_away", "tasks-unwoken", ["observer"];
}
