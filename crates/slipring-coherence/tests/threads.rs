//! Locks, conditions, parking, futexes, sleeps, threads and thread-locals in virtual time, and the
//! same outside of a simulation.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use slipring_coherence::sync::Ordering::{Acquire, Relaxed, Release};
use slipring_coherence::sync::{self, AtomicU32, AtomicU64, Condvar, CoreLocal, Mutex};
use slipring_coherence::{Lines, Machine, Report, Simulation, is_simulating, work};

#[global_allocator]
static LINES: Lines = Lines;

const fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn machine() -> Machine {
    Machine::server("2x3".parse().unwrap())
}

/// Runs `body` as the only thread that the simulation has of its own.
fn alone(body: impl FnOnce()) -> Report {
    Simulation::new(&machine()).thread("main", body).run().unwrap()
}

/// Checks `body` in a simulation and outside of one.
fn both(body: impl Fn()) {
    alone(&body);
    body();
}

#[test]
fn a_mutex_excludes_and_a_waiter_sleeps() {
    both(|| {
        let total = Mutex::new((0, false));
        sync::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let mut guard = total.lock().unwrap();
                        assert!(!std::mem::replace(&mut guard.1, true));
                        work(Duration::from_nanos(50));
                        (guard.0, guard.1) = (guard.0 + 1, false);
                    }
                });
            }
        });
        assert_eq!(total.into_inner().unwrap().0, 400);
    });
    let lock = Mutex::new(());
    let report = Simulation::new(&machine())
        .thread("owner", || {
            let _guard = lock.lock().unwrap();
            sync::sleep(micros(500));
        })
        .thread("waiter", || {
            work(micros(1));
            assert!(lock.try_lock().is_err());
            drop(lock.lock().unwrap());
        })
        .run()
        .unwrap();
    assert_eq!((report.counts().sleeps, report.counts().wakes), (2, 1), "{report}");
}

#[test]
fn a_panic_poisons_the_lock_of_its_thread_only() {
    both(|| {
        let [held, free] = [Mutex::new(0), Mutex::new(0)];
        sync::scope(|scope| {
            let handle = scope.spawn(|| {
                let _guard = held.lock().unwrap();
                drop(free.lock().unwrap());
                panic!("on purpose");
            });
            assert!(handle.join().is_err());
        });
        assert!(held.is_poisoned() && held.lock().is_err() && held.try_lock().is_err());
        assert!(!free.is_poisoned() && free.lock().is_ok());
        held.clear_poison();
        assert!(held.lock().is_ok());
    });
}

/// Locks in its destructor, which lets other threads run while this one unwinds.
struct Locks<'a>(&'a Mutex<u32>);

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        assert!(sync::panicking());
        *self.0.lock().unwrap() += 1;
    }
}

#[test]
fn other_threads_do_not_unwind_with_one() {
    let [contended, other] = [Mutex::new(0), Mutex::new(0)];
    Simulation::new(&machine())
        .thread("busy", || {
            let guard = contended.lock().unwrap();
            sync::sleep(micros(100));
            assert!(std::thread::panicking() && !sync::panicking());
            *other.lock().unwrap() += 1;
            drop(guard);
        })
        .thread("panics", || {
            work(micros(1));
            sync::yield_now();
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let _locks = Locks(&contended);
                panic!("on purpose");
            }));
            assert!(ended.is_err() && !sync::panicking());
        })
        .run()
        .unwrap();
    assert!(!contended.is_poisoned() && !other.is_poisoned());
    assert_eq!(*contended.lock().unwrap(), 1);
}

#[test]
fn marked_panics_of_two_threads_are_told_apart() {
    let contended = Mutex::new(0);
    let panics = || {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _locks = Locks(&contended);
            resume_unwind(Box::new(sync::Panics::begin()));
        }));
        assert!(ended.is_err());
        drop(ended);
        assert!(!sync::panicking());
    };
    Simulation::new(&machine())
        .thread("busy", || {
            let guard = contended.lock().unwrap();
            sync::sleep(micros(100));
            assert!(std::thread::panicking() && !sync::panicking());
            drop(guard);
            sync::sleep(micros(100));
            assert!(!std::thread::panicking());
        })
        .thread("first", || {
            work(micros(1));
            sync::yield_now();
            panics();
        })
        .thread("second", || {
            work(micros(2));
            sync::yield_now();
            panics();
        })
        .run()
        .unwrap();
    assert_eq!(*contended.lock().unwrap(), 2);
}

#[test]
fn a_destructor_can_spin_for_another_thread() {
    struct Spins<'a>(&'a AtomicU32);
    impl Drop for Spins<'_> {
        fn drop(&mut self) {
            while self.0.load(Acquire) == 0 {
                sync::spin_loop();
            }
        }
    }
    let word = AtomicU32::new(0);
    Simulation::new(&machine())
        .thread("panics", || {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let _spins = Spins(&word);
                panic!("on purpose");
            }));
            assert!(ended.is_err());
        })
        .thread("stores", || {
            work(micros(1));
            assert!(!sync::panicking());
            word.store(1, Release);
        })
        .run()
        .unwrap();
}

#[test]
fn a_condition_wakes_its_waiters() {
    both(|| {
        let (turn, changed) = (Mutex::new(0), Condvar::new());
        sync::scope(|scope| {
            for me in 0..3 {
                let (turn, changed) = (&turn, &changed);
                scope.spawn(move || {
                    for round in 0..10 {
                        let guard = turn.lock().unwrap();
                        let is_next = |turn: &mut usize| *turn != round * 3 + me;
                        let mut guard = changed.wait_while(guard, is_next).unwrap();
                        *guard += 1;
                        changed.notify_all();
                    }
                });
            }
        });
        assert_eq!(*turn.lock().unwrap(), 30);
    });
}

#[test]
fn waits_end_with_their_limits() {
    both(|| {
        let limit = micros(200);
        let (lock, changed) = (Mutex::new(()), Condvar::new());
        let began = sync::now();
        let (_, result) = changed.wait_timeout(lock.lock().unwrap(), limit).unwrap();
        assert!(result.timed_out());
        assert!(!sync::futex_wait(&AtomicU32::new(1), 1, Some(limit)));
        sync::park_timeout(limit);
        sync::sleep(limit);
        assert!(sync::now() - began >= limit * 3);
        assert!(!sync::futex_wait(&AtomicU32::new(1), 1, Some(Duration::ZERO)));
    });
}

#[test]
fn virtual_time_passes_without_real_time() {
    let began = std::time::Instant::now();
    let report = alone(|| {
        let began = (sync::now(), sync::virtual_nanos().unwrap());
        sync::sleep(Duration::from_millis(900));
        let slept = sync::now() - began.0;
        assert!((900..910).contains(&slept.as_millis()), "{slept:?}");
        assert!(sync::virtual_nanos().unwrap() - began.1 >= 900_000_000);
    });
    assert!(report.time >= Duration::from_millis(900));
    assert!(began.elapsed() < Duration::from_millis(500));
}

#[test]
fn a_structure_from_before_the_run_has_no_age_in_it() {
    let made = sync::now();
    alone(|| {
        sync::sleep(Duration::from_millis(900));
        assert_eq!(sync::now().saturating_duration_since(made), Duration::ZERO);
    });
}

#[test]
fn an_unpark_before_the_park_is_kept() {
    both(|| {
        let main = sync::current();
        let ready = AtomicU32::new(0);
        sync::scope(|scope| {
            scope.spawn(|| {
                ready.store(1, Release);
                main.unpark();
            });
            while ready.load(Acquire) == 0 {
                sync::park();
            }
        });
        sync::current().unpark();
        sync::park();
    });
}

#[test]
fn an_unpark_wakes_no_thread_that_waits_for_something_else() {
    let word = AtomicU32::new(0);
    let report = Simulation::new(&machine())
        .thread("main", || {
            let waits = sync::spawn(|| {
                sync::sleep(micros(100));
                sync::virtual_nanos().unwrap()
            });
            work(micros(20));
            waits.thread().unpark();
            assert!(waits.join().unwrap() > 100_000);
            word.store(1, Relaxed);
        })
        .run()
        .unwrap();
    assert_eq!(report.counts().wakes, 1); // The joiner's.
}

#[test]
fn a_futex_wakes_as_many_as_asked_in_order() {
    let (word, woken) = (AtomicU32::new(0), Mutex::new(Vec::new()));
    let mut simulation = Simulation::new(&machine());
    for number in 0..3 {
        let (word, woken) = (&word, &woken);
        simulation = simulation.thread(format!("sleeper {number}"), move || {
            work(micros(number));
            assert!(sync::futex_wait(word, 0, None));
            woken.lock().unwrap().push(number);
        });
    }
    let waker = || {
        work(micros(50));
        assert_eq!(sync::futex_wake(&word, 1), 1);
        work(micros(50));
        assert_eq!(*woken.lock().unwrap(), [0]);
        word.store(1, Release);
        assert_eq!(sync::futex_wake_all(&word), 2);
        assert!(sync::futex_wait(&word, 0, None), "the word has changed");
    };
    simulation.thread("waker", waker).run().unwrap();
    assert_eq!(*woken.lock().unwrap(), [0, 1, 2]);
}

#[test]
fn threads_are_joined_with_their_results() {
    both(|| {
        let builder = sync::Builder::new().name("named".into()).stack_size(1 << 16);
        let handle = builder.spawn(|| sync::current().name().map(str::to_owned)).unwrap();
        let id = handle.thread().id();
        assert_eq!(handle.thread().name(), Some("named"));
        assert_eq!(handle.join().unwrap().as_deref(), Some("named"));
        assert_ne!(id, sync::current().id());
        let payload = sync::spawn(|| std::panic::panic_any(5)).join().unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&5));
        let unjoined = catch_unwind(|| sync::scope(|scope| drop(scope.spawn(|| panic!("lost")))));
        assert_eq!(unjoined.unwrap_err().downcast_ref(), Some(&"a scoped thread panicked"));
    });
}

#[test]
fn a_thread_gets_the_core_of_one_that_has_ended() {
    let report = alone(|| {
        for number in 0..20 {
            let handle = sync::spawn(move || number);
            while !handle.is_finished() {
                sync::spin_loop();
            }
            assert_eq!(handle.join().unwrap(), number);
        }
        let mut handles = Vec::new();
        for _ in 0..5 {
            handles.push(sync::spawn(|| sync::sleep(micros(300))));
        }
        let error = sync::Builder::new().spawn(|| ()).err().unwrap();
        assert_eq!(error.to_string(), "each of the machine's 6 cores has a thread");
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(sync::available_parallelism(), 6);
    });
    assert_eq!(report.cores.len(), 26);
    assert_eq!(report.cores[1].0, "thread 1");
}

#[test]
fn detached_threads_end_with_the_run() {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            panic!("the local of a leaked thread is leaked, too");
        }
    }
    static LOUD: CoreLocal<Loud> = CoreLocal::new(|| Loud);
    let kept = Arc::new(());
    let owned = kept.clone();
    alone(move || {
        sync::spawn(move || {
            let _owned = owned;
            LOUD.with(|_| ());
            loop {
                sync::park();
            }
        });
        sync::sleep(micros(10));
    });
    assert_eq!(Arc::strong_count(&kept), 2, "such a thread is leaked");
}

#[test]
fn each_thread_has_its_own_locals_and_drops_them() {
    static LIVE: AtomicU64 = AtomicU64::new(0);
    struct Counted(Cell<u64>);
    impl Drop for Counted {
        fn drop(&mut self) {
            LIVE.fetch_sub(1, Relaxed);
        }
    }
    static LOCAL: CoreLocal<Counted> = CoreLocal::new(|| {
        LIVE.fetch_add(1, Relaxed);
        Counted(Cell::new(0))
    });
    static OTHER: CoreLocal<Cell<u64>> = CoreLocal::new(|| Cell::new(7));
    both(|| {
        sync::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..20 {
                        assert_eq!(LOCAL.with(|local| local.0.replace(round + 1)), round);
                        sync::yield_now();
                    }
                    assert_eq!(OTHER.with(Cell::get), 7);
                });
            }
        });
    });
    // Real threads drop theirs a moment after the scope has ended.
    while LIVE.load(Relaxed) != 0 {
        sync::sleep(micros(100));
    }
}

#[test]
fn words_keep_their_values_across_the_border() {
    let word = AtomicU64::new(1);
    let lock = Mutex::new(1);
    word.store(2, Relaxed);
    assert!(!is_simulating());
    alone(|| {
        assert!(is_simulating());
        assert_eq!(word.load(Relaxed), 2);
        *lock.lock().unwrap() += 1;
        word.store(3, Release);
    });
    assert!(!is_simulating());
    assert_eq!((word.load(Relaxed), *lock.lock().unwrap()), (3, 2));
}

#[test]
fn atomics_change_as_the_standard_ones() {
    both(|| {
        let word = AtomicU32::new(0b1100);
        assert_eq!(word.fetch_and(0b0110, Relaxed), 0b1100);
        assert_eq!(word.fetch_or(0b0001, Relaxed), 0b0100);
        assert_eq!(word.fetch_xor(0b0111, Relaxed), 0b0101);
        assert_eq!(word.fetch_max(9, Relaxed), 0b0010);
        assert_eq!(word.fetch_min(3, Relaxed), 9);
        assert_eq!(word.fetch_nand(1, Relaxed), 3);
        assert_eq!(word.swap(5, Relaxed), !1);
        assert_eq!(word.compare_exchange(4, 6, Relaxed, Relaxed), Err(5));
        assert_eq!(word.compare_exchange_weak(5, 6, Relaxed, Relaxed), Ok(5));
        assert_eq!(word.fetch_update(Relaxed, Relaxed, |n| (n > 5).then_some(n + 1)), Ok(6));
        assert_eq!(word.fetch_update(Relaxed, Relaxed, |n| (n > 9).then_some(n + 1)), Err(7));
        let flag = sync::AtomicBool::default();
        assert!(!flag.fetch_not(Relaxed) && flag.fetch_nand(true, Relaxed));
        flag.store(true, Relaxed);
        assert!(flag.load(Relaxed));
        let mut value = 5;
        let pointer = Box::new(sync::AtomicPtr::default());
        pointer.store(&raw mut value, Release);
        // SAFETY: `value` lives, and there is no other reference to it.
        unsafe { *pointer.load(Acquire) += 1 };
        assert_eq!(value, 6);
        let signed = Box::new(sync::AtomicI16::new(-5));
        signed.store(-7, Relaxed);
        assert_eq!((signed.load(Relaxed), signed.fetch_add(1, Relaxed)), (-7, -7));
    });
}
