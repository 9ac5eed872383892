//! Observers of a mirror, against its one writer.
//!
//! Put number `i`, counted from 1, is `i` at position `i`: so a look that was told `missed` says at
//! once whether the value is whole, the right one, and counted.

use loom::thread;

use super::*;
use crate::observe::mirror::{Mirror, MirrorHandle, Plain};
use crate::observe::observer::{ObserveError, Observer, Seen};

/// An observer, and how many puts it has accounted for.
struct Watch<T> {
    observer: Observer<T>,
    counted: u64,
}

impl<T: Plain + Into<u64>> Watch<T> {
    fn of(mirror: &Mirror<T>) -> Watch<T> {
        Watch { observer: mirror.mirrored().observe(), counted: 0 }
    }

    /// `false`: it is closed, and that after so many puts.
    fn account(&mut self, looked: Result<Seen<T>, ObserveError>, puts: u64) -> bool {
        match looked {
            Ok(seen) => {
                let value: u64 = seen.value.into();
                self.counted += seen.missed + 1;
                assert_eq!(value, seen.seq, "a torn value");
                assert_eq!(value, self.counted, "a value that is not the one it was counted as");
            }
            Err(ObserveError::Closed) => {
                assert_eq!(self.counted, puts, "seen and missed are not what was put");
                return false;
            }
            Err(ObserveError::Unavailable | ObserveError::Overrun) => {}
            Err(other) => panic!("a look without waiting: {other}"),
        }
        true
    }

    /// Looks so often, or until it is closed.
    fn look(&mut self, polls: usize, puts: u64) {
        for _ in 0..polls {
            let looked = self.observer.try_next();
            if !self.account(looked, puts) {
                return;
            }
        }
    }

    /// Nothing is put any more, and the writer is gone.
    fn drain(mut self, puts: u64) {
        loop {
            let looked = self.observer.try_next();
            assert!(
                !matches!(looked, Err(ObserveError::Unavailable | ObserveError::Overrun)),
                "the end hides something"
            );
            if !self.account(looked, puts) {
                return;
            }
        }
    }
}

/// One put before the wrap.
fn mirror<T: Plain>(capacity: usize) -> Mirror<T> {
    Mirror::starting_at(capacity, u64::MAX - 1).expect("a power of two")
}

/// One slot, written again and again: every copy is torn, or whole and the right one.
fn a_value_is_seen_whole<T: Plain + Into<u64> + From<u8>>() {
    explore_unfenced(2_000, Some(3), || {
        let mut mirror = mirror::<T>(1);
        let mut watch = Watch::of(&mirror);
        let observing = thread::spawn(move || {
            watch.look(2, 2);
            watch
        });
        (1..=2u8).for_each(|i| mirror.put(i.into(), &i.into()));
        let watch = observing.join().unwrap();
        drop(mirror);
        watch.drain(2);
    });
}

/// A value of whole words.
#[test]
fn loom_a_value_is_seen_whole() {
    a_value_is_seen_whole::<u64>();
}

/// A value that does not fill its last word, which is stored in a statement of its own.
#[test]
fn loom_a_short_value_is_seen_whole() {
    a_value_is_seen_whole::<u32>();
}

#[test]
fn loom_twin_short_put_relaxed() {
    caught(
        "observe::loom_a_short_value_is_seen_whole",
        "put-relaxed",
        Caught::Saying("not the one it was counted as"),
    );
}

#[test]
fn loom_twin_short_writer_unfenced() {
    caught(
        "observe::loom_a_short_value_is_seen_whole",
        "writer-unfenced",
        Caught::Saying("a torn value"),
    );
}

#[test]
fn loom_twin_unmarked() {
    caught("observe::loom_a_value_is_seen_whole", "unmarked", Caught::Saying("a torn value"));
}

#[test]
fn loom_twin_writer_unfenced() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "writer-unfenced",
        Caught::Saying("a torn value"),
    );
}

#[test]
fn loom_twin_put_relaxed() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "put-relaxed",
        Caught::Saying("not the one it was counted as"),
    );
}

#[test]
fn loom_twin_put_seen_relaxed() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "put-seen-relaxed",
        Caught::Saying("not the one it was counted as"),
    );
}

#[test]
fn loom_twin_observer_unfenced() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "observer-unfenced",
        Caught::Saying("a torn value"),
    );
}

#[test]
fn loom_twin_unvalidated() {
    caught("observe::loom_a_value_is_seen_whole", "unvalidated", Caught::Saying("a torn value"));
}

#[test]
fn loom_twin_lapless() {
    caught(
        "observe::loom_a_value_is_seen_whole",
        "lapless",
        Caught::Saying("not the one it was counted as"),
    );
}

/// Two slots, lapped once, by the time that the writer goes: whatever was not seen was missed.
#[test]
fn loom_all_is_seen_or_missed() {
    explore_unfenced(20_000, Some(2), || {
        let mut mirror = mirror::<u64>(2);
        let mut watch = Watch::of(&mirror);
        let observing = thread::spawn(move || {
            watch.look(4, 3);
            watch
        });
        (1..=3).for_each(|i| mirror.put(i, &i));
        drop(mirror);
        observing.join().unwrap().drain(3);
    });
}

/// The writer puts one value and goes.
#[test]
fn loom_a_mirror_closes() {
    explore_unfenced(150, None, || {
        let mut mirror = mirror::<u64>(1);
        let mut watch = Watch::of(&mirror);
        let observing = thread::spawn(move || {
            watch.look(2, 1);
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
        Caught::Saying("seen and missed are not what was put"),
    );
}

#[test]
fn loom_twin_mirror_closed_seen_relaxed() {
    caught(
        "observe::loom_a_mirror_closes",
        "mirror-closed-seen-relaxed",
        Caught::Saying("seen and missed are not what was put"),
    );
}

/// What is told to be there is there, for one who skips to the newest and for one who begins at the
/// oldest.
#[test]
fn loom_what_is_told_is_there() {
    explore_unfenced(150, None, || {
        let mut mirror = mirror::<u64>(2);
        let mirrored: MirrorHandle<u64> = mirror.mirrored();
        let mut watch = Watch::of(&mirror);
        let observing = thread::spawn(move || {
            let completed = watch.observer.behind();
            let looked = if completed == 2 {
                watch.observer.latest()
            } else {
                mirrored.observe_from_oldest().try_next()
            };
            if completed > 0 {
                assert_ne!(
                    looked.map(|seen| seen.value),
                    Err(ObserveError::Unavailable),
                    "what is told is not there"
                );
            }
            if completed == 2 {
                watch.account(looked, 2);
                assert_eq!(watch.counted, 2);
            }
        });
        (1..=2).for_each(|i| mirror.put(i, &i));
        observing.join().unwrap();
    });
}

#[test]
fn loom_twin_told_relaxed() {
    caught(
        "observe::loom_what_is_told_is_there",
        "completed-relaxed",
        Caught::Saying("what is told is not there"),
    );
}

#[test]
fn loom_twin_told_seen_relaxed() {
    caught(
        "observe::loom_what_is_told_is_there",
        "completed-seen-relaxed",
        Caught::Saying("what is told is not there"),
    );
}
