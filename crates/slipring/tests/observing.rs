//! Observers of mirrors: each value is seen whole or counted as missed, and no stage waits for an
//! observer.

mod common;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Error, Graph, Mirror, OnFault, Wait,
    errors::{BuildError, Cause, ErrorKind, ObserveError},
    handles::{MirrorHandle, Observed, Observer},
    markers::Plain,
    waiting::WaitStrategy as _,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Number of values; few under Miri.
const PUTS: u64 = if cfg!(miri) { 60 } else { 100_000 };

fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A value whose words all depend on its position, so that a word of another value is noticed.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Wide([u64; 13]);

impl Wide {
    fn of(seq: u64) -> Wide {
        let mut state = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Wide([(); 13].map(|()| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17);
            state
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Small {
    low: u16,
    high: u8,
    also: u8,
}

/// Sums of an observer's seen and missed values. `add` asserts that positions grow.
#[derive(Default)]
struct Account {
    seen: u64,
    missed: u64,
    next: u64,
}

impl Account {
    fn add<T>(&mut self, seen: &Observed<T>) {
        assert!(seen.seq >= self.next, "position {} again", seen.seq);
        assert_eq!(seen.seq - self.next, seen.missed, "before position {}", seen.seq);
        self.seen += 1;
        self.missed += seen.missed;
        self.next = seen.seq + 1;
    }

    fn total(&self) -> u64 {
        self.seen + self.missed
    }
}

fn drain<T: Plain>(observer: &mut Observer<T>) -> Vec<Observed<T>> {
    let mut seen = Vec::new();
    loop {
        match observer.try_next() {
            Ok(one) => seen.push(one),
            Err(ObserveError::Unavailable | ObserveError::Closed) => return seen,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Returns position, number of missed values, and value, or `None` for an error.
fn parts<T>(observed: Result<Observed<T>, ObserveError>) -> Option<(u64, u64, T)> {
    observed.ok().map(|seen| (seen.seq, seen.missed, seen.value))
}

/// Observes each value until the mirror is closed.
fn until_closed<T: Plain>(observer: &mut Observer<T>, mut each: impl FnMut(Observed<T>)) {
    loop {
        match observer.next_by(far_deadline()) {
            Ok(seen) => each(seen),
            Err(ObserveError::Closed) => return,
            Err(other) => panic!("{other}"),
        }
    }
}

fn seqs<T>(seen: &[Observed<T>]) -> Vec<u64> {
    seen.iter().map(|seen| seen.seq).collect()
}

#[test]
fn each_value_is_seen_whole_or_counted_as_missed() {
    let _watched = crate::common::watched();
    for capacity in [1, 2, 4, 64] {
        let mut mirror = Mirror::new(capacity).unwrap();
        let mirrored = mirror.handle();
        let whole =
            |seen: &Observed<Wide>| assert_eq!(seen.value, Wide::of(seen.seq), "at {}", seen.seq);
        thread::scope(|scope| {
            let mut all = mirrored.observe().wait(Wait::YIELDING);
            scope.spawn(move || {
                let mut account = Account::default();
                until_closed(&mut all, |seen| {
                    whole(&seen);
                    account.add(&seen);
                });
                assert_eq!(account.total(), PUTS);
                assert_eq!(all.try_next(), Err(ObserveError::Closed));
            });
            let mut newest = mirrored.observe();
            scope.spawn(move || {
                let mut account = Account::default();
                loop {
                    match newest.try_latest() {
                        Ok(seen) => {
                            whole(&seen);
                            account.add(&seen);
                        }
                        Err(ObserveError::Closed) => break,
                        Err(_) => thread::yield_now(),
                    }
                    // Each completed put was seen, was missed, or is ahead of the observer.
                    assert!(account.total() + newest.behind() <= PUTS);
                }
                assert_eq!(account.total(), PUTS);
            });
            let late = mirrored.clone();
            scope.spawn(move || {
                for _ in 0..10 {
                    let mut late = late.observe_from_oldest();
                    let mut next = 0;
                    for _ in 0..20 {
                        match late.next_by(far_deadline()) {
                            Ok(seen) => {
                                whole(&seen);
                                assert!(seen.seq >= next);
                                next = seen.seq + 1;
                            }
                            Err(ObserveError::Closed) => break,
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            });
            for seq in 0..PUTS {
                mirror.put(seq, &Wide::of(seq));
            }
            drop(mirror);
        });
    }
}

#[test]
fn a_slow_observer_gets_the_number_of_missed_values() {
    let _watched = crate::common::watched();
    let mut mirror = Mirror::new(8).unwrap();
    let mut slow = mirror.handle().observe();
    (0..3).for_each(|i| mirror.put(i, &i));
    assert_eq!(parts(slow.try_next()), Some((0, 0, 0)));
    (3..100).for_each(|i| mirror.put(i, &i));
    assert_eq!(slow.behind(), 99);
    // An overtaken observer skips two more values, because it leaves a quarter of the eight slots
    // to the writer.
    assert_eq!(parts(slow.try_next()), Some((94, 93, 94)));
    assert_eq!((slow.behind(), seqs(&drain(&mut slow))), (5, vec![95, 96, 97, 98, 99]));
    (100..107).for_each(|i| mirror.put(i, &i));
    assert_eq!(parts(slow.try_latest()), Some((106, 6, 106)));
    assert_eq!(slow.try_latest(), Err(ObserveError::Unavailable));
    assert_eq!(slow.try_next(), Err(ObserveError::Unavailable));
}

#[test]
fn an_observer_starts_at_the_next_or_the_oldest_value() {
    let _watched = crate::common::watched();
    let mut mirror = Mirror::new(4).unwrap();
    let mirrored = mirror.handle();
    let mut before = mirrored.observe_from_oldest();
    assert_eq!(before.try_next(), Err(ObserveError::Unavailable));
    (0..2).for_each(|i| mirror.put(i, &i));
    assert_eq!(seqs(&drain(&mut mirrored.observe_from_oldest())), [0, 1]);
    (2..10).for_each(|i| mirror.put(i, &i));
    let (mut now, mut oldest) = (mirrored.observe(), mirrored.observe_from_oldest());
    assert_eq!((now.behind(), oldest.behind(), before.behind()), (0, 4, 10));
    mirror.put(10, &10);
    let (now, oldest) = (drain(&mut now), drain(&mut oldest));
    assert_eq!((seqs(&now), now[0].missed), (vec![10], 0));
    // One value was overwritten before the first poll. The observer skips another value, to leave a
    // slot to the writer.
    assert_eq!((seqs(&oldest), oldest[0].missed), (vec![8, 9, 10], 2));
    let mut clone = before.clone();
    assert_eq!(drain(&mut before), drain(&mut clone));
}

#[test]
fn a_gap_in_the_users_positions_is_not_counted_as_missed() {
    let _watched = crate::common::watched();
    let mut mirror = Mirror::new(4).unwrap();
    let mut observer = mirror.handle().observe();
    for seq in [u64::MAX - 1, 7, 1_000_000, 3] {
        mirror.put(seq, &());
    }
    let seen = drain(&mut observer);
    assert_eq!(seqs(&seen), [u64::MAX - 1, 7, 1_000_000, 3]);
    assert!(seen.iter().all(|seen| seen.missed == 0));
}

#[test]
fn mirrors_of_one_and_two_slots_keep_the_newest_values() {
    let _watched = crate::common::watched();
    for capacity in [1, 2] {
        let mut mirror = Mirror::new(capacity).unwrap();
        let mut observer = mirror.handle().observe();
        for i in 0..10u64 {
            mirror.put(i, &i);
            assert_eq!(observer.try_next().unwrap().value, i);
        }
        (10..20).for_each(|i| mirror.put(i, &i));
        assert_eq!(parts(observer.try_next()), Some((19, 9, 19)));
        assert_eq!(observer.try_next(), Err(ObserveError::Unavailable));
    }
}

#[test]
fn values_of_any_size_are_copied_whole() {
    let _watched = crate::common::watched();
    fn round<T: Plain + PartialEq + std::fmt::Debug>(of: impl Fn(u64) -> T, bytes: usize) {
        assert_eq!(Mirror::<T>::BYTES_PER_SLOT, bytes);
        let mut mirror = Mirror::new(4).unwrap();
        let mut observer = mirror.handle().observe();
        for i in 0..if cfg!(miri) { 5 } else { 20 } {
            mirror.put(i, &of(i));
            assert_eq!(parts(observer.try_next()), Some((i, 0, of(i))));
        }
    }
    round(|_| (), 16);
    round(|i| i as u8, 24);
    round(|i| [i as u8, 1, 255], 24);
    round(|i| Small { low: i as u16, high: 255, also: i as u8 }, 24);
    round(|i| i, 24);
    round(|i| [i as u8; 9], 32);
    round(|i| i as f64, 24);
    round(|i| [i as u8; 4096], 16 + 4096);
    round(Wide::of, 16 + 13 * 8);
}

#[test]
fn a_mirrors_invalid_capacity_is_a_build_error() {
    let _watched = crate::common::watched();
    fn refused<T>(made: Result<Mirror<T>, Error>) -> BuildError {
        match made.err().unwrap().kind() {
            ErrorKind::Build(error) => error.clone(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused(Mirror::<u8>::new(0)), BuildError::Capacity { asked: 0 });
    assert_eq!(refused(Mirror::<u8>::new(3)), BuildError::Capacity { asked: 3 });
    assert!(Mirror::<u8>::new(3).unwrap_err().to_string().contains("take 2 or 4"));
    let capacity = 1 << (usize::BITS - 1);
    // A size that no address space holds is refused, even with `allow_overcommit`.
    let error = refused(Mirror::<[u8; 4096]>::allow_overcommit(capacity));
    assert_eq!(error, BuildError::Memory { capacity, bytes_per_slot: 4112 });
    let capacity = 1 << (usize::BITS - 5);
    let error = refused(Mirror::<()>::allow_overcommit(capacity));
    assert!(matches!(error, BuildError::Memory { bytes_per_slot: 16, .. }));
}

#[test]
fn a_dropped_mirror_leaves_its_values_readable() {
    let _watched = crate::common::watched();
    let mut mirror = Mirror::new(4).unwrap();
    let (mut early, mirrored) = (mirror.handle().observe(), mirror.handle());
    (0..3).for_each(|i| mirror.put(i, &i));
    drop(mirror);
    assert_eq!(early.by_ref().map(|seen| seen.value).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(early.try_next(), Err(ObserveError::Closed));
    assert_eq!(early.try_latest(), Err(ObserveError::Closed));
    assert_eq!(early.next_by(far_deadline()), Err(ObserveError::Closed));
    assert_eq!(early.next(), None);
    // A new observer still sees the values.
    assert_eq!(seqs(&drain(&mut mirrored.observe_from_oldest())), [0, 1, 2]);
    assert_eq!(mirrored.observe().try_next(), Err(ObserveError::Closed));
    assert_eq!(mirrored.observe_from_oldest().try_latest().unwrap().missed, 2);
    let unused = Mirror::<u8>::new(1).unwrap().handle();
    assert_eq!(unused.observe_from_oldest().next(), None);
}

#[test]
fn a_waiting_observer_gets_the_next_value_or_the_end() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let name = wait.alias();
        let mut mirror = Mirror::new(2).unwrap();
        let mut observer = mirror.handle().observe().wait(wait);
        assert_eq!(observer.next_by(Instant::now()), Err(ObserveError::TimedOut), "{name}");
        assert_eq!(
            observer.next_by(Instant::now() + Duration::from_millis(2)),
            Err(ObserveError::TimedOut),
            "{name}"
        );
        thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                (observer.next_by(far_deadline()).unwrap().value, observer.next(), observer.next())
            });
            thread::sleep(Duration::from_millis(2));
            mirror.put(0, &5u8);
            thread::sleep(Duration::from_millis(2));
            drop(mirror);
            let (value, ..) = waiting.join().unwrap();
            assert_eq!(value, 5, "{name}");
        });
    }
}

#[test]
fn observe_errors_print_their_reason() {
    let _watched = crate::common::watched();
    for (error, text) in [
        (ObserveError::Unavailable, "the mirror holds no new value yet"),
        (
            ObserveError::Overrun,
            "the mirror's writer is faster than its observer can copy: give the mirror more slots, or try again",
        ),
        (ObserveError::TimedOut, "the mirror got no new value until the deadline"),
        (ObserveError::Closed, "the mirror is closed"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn mirrors_and_observers_are_send() {
    let _watched = crate::common::watched();
    fn sendable<T: Send + 'static>() {}
    fn shared<T: Send + Sync + Clone + 'static>() {}
    sendable::<Mirror<Wide>>();
    shared::<MirrorHandle<Wide>>();
    shared::<Observer<Wide>>();
}

#[test]
fn a_chain_shows_its_events_to_observers() {
    let _watched = crate::common::watched();
    let count = if cfg!(miri) { 40 } else { 5_000u64 };
    let mirror = Mirror::new(16).unwrap();
    let mut observer = mirror.handle().observe();
    let mut sum = 0;
    thread::scope(|scope| {
        let observing = scope.spawn(move || {
            let mut account = Account::default();
            until_closed(&mut observer, |seen| {
                assert_eq!(seen.value, [seen.seq * 2, !seen.seq]);
                account.add(&seen);
            });
            account.total()
        });
        let done = slipring::ring(8, || 0u64)
            .update("double", |v, _| *v *= 2)
            .fan_out(|side| {
                side.observe("mirror", mirror, |v| [*v, !(*v / 2)]).read("sum", |v, _| sum += v)
            })
            .feed(0..count, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(done.report.stage("mirror").unwrap().events, count);
        assert_eq!(observing.join().unwrap(), count);
    });
    assert_eq!(sum, count * (count - 1));
}

#[test]
fn an_idle_observer_does_not_delay_the_ring() {
    let _watched = crate::common::watched();
    let mirror = Mirror::new(2).unwrap();
    let mut idle = mirror.handle().observe();
    // The observer does not poll while ten times the capacity of ring and mirror passes.
    slipring::ring(2, || 0u8)
        .observe("mirror", mirror, |v| *v)
        .feed(0..40, |slot, i| *slot = i)
        .unwrap();
    // The ring has been dropped.
    assert_eq!((parts(idle.try_next()), idle.next()), (Some((39, 39, 39)), None));
}

#[test]
fn a_panic_in_the_projection_fails_the_mirrors_stage() {
    let _watched = crate::common::watched();
    let mirror = Mirror::new(4).unwrap();
    let mut observer = mirror.handle().observe();
    let error = slipring::ring(8, || 0u64)
        .observe("screen", mirror, |v| if *v == 3 { panic!("no {v} please") } else { *v })
        .feed(0..8, |slot, i| *slot = i)
        .unwrap_err();
    assert_eq!((error.stage(), error.seq()), (Some("screen"), Some(3)));
    assert!(
        matches!(error.failure().unwrap().cause(), Cause::Panic(text) if text == "no 3 please")
    );
    assert_eq!(observer.by_ref().map(|seen| seen.value).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_skipped_event_is_not_put_and_a_retried_event_is_put_again() {
    let _watched = crate::common::watched();
    let mirror = Mirror::new(64).unwrap();
    let mut observer = mirror.handle().observe();
    slipring::ring(8, || 0u64)
        .observe("mirror", mirror, |v| if *v == 3 { panic!() } else { *v })
        .on_panic(OnFault::skip())
        .feed(0..6, |slot, i| *slot = i)
        .unwrap();
    let seen = drain(&mut observer);
    assert_eq!(seqs(&seen), [0, 1, 2, 4, 5]);
    assert!(seen.iter().all(|seen| seen.missed == 0));

    let mirror = Mirror::new(64).unwrap();
    let mut observer = mirror.handle().observe();
    let tries = AtomicU64::new(0);
    slipring::ring(8, || 0u64)
        .observe("mirror", mirror, |v| {
            if *v == 3 && tries.fetch_add(1, Relaxed) == 0 { panic!() } else { *v }
        })
        .on_panic(OnFault::retry(1))
        .feed(0..6, |slot, i| *slot = i)
        .unwrap();
    let seen = seqs(&drain(&mut observer));
    assert!(seen.len() >= 6 && seen.ends_with(&[3, 4, 5]), "{seen:?}");
}

#[test]
fn a_chain_that_fails_to_build_closes_its_mirror() {
    let _watched = crate::common::watched();
    let mirror = Mirror::<u8>::new(4).unwrap();
    let mut observer = mirror.handle().observe();
    let chain = slipring::ring(3, || 0u8).observe("mirror", mirror, |v| *v);
    assert_eq!(observer.try_next(), Err(ObserveError::Unavailable));
    chain.feed(0..3, |slot, i| *slot = i).unwrap_err();
    assert_eq!(observer.next(), None);
}

#[test]
fn a_pipeline_closes_its_mirror_when_the_stage_ends() {
    let _watched = crate::common::watched();
    let mirror = Mirror::new(64).unwrap();
    let mut observer = mirror.handle().observe();
    let (mut tx, pipeline) =
        slipring::ring(8, || 0u64).observe("mirror", mirror, |v| *v).spawn().unwrap();
    (0..20).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    drop(tx);
    // The mirror closes before the threads are joined.
    let mut account = Account::default();
    until_closed(&mut observer, |seen| account.add(&seen));
    assert_eq!(account.total(), 20);
    pipeline.join().unwrap();
}

#[test]
fn a_graphs_stage_may_fill_a_mirror_in_its_own_loop() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64).wait(Wait::YIELDING).shared();
    let rx = graph.reader("mirror");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(rx));
    let mut mirror = Mirror::new(64).unwrap();
    let mut observer = mirror.handle().observe();
    thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..12 {
                let mut slot = tx.claim().unwrap();
                *slot = i;
                if i % 3 != 2 {
                    slot.publish();
                }
            }
        });
        drop(ring);
        rx.for_each(|event, at| mirror.put(at.seq, event)).unwrap();
        drop(mirror);
    });
    // Tombstones are not counted as missed.
    let seen: Vec<_> = observer.by_ref().collect();
    assert_eq!(seqs(&seen), [0, 1, 3, 4, 6, 7, 9, 10]);
    assert!(seen.iter().all(|seen| seen.missed == 0 && seen.value == seen.seq));
}
