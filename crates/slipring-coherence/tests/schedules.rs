//! Runs by schedules: they repeat themselves, interleave threads at any access, show the orders of
//! stores that x86 allows and no others, and end sleeps early and late.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use slipring_coherence::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use slipring_coherence::sync::{self, AtomicU32, AtomicU64, Condvar, Mutex, fence};
use slipring_coherence::{
    Lines, Machine, Order, Report, Schedule, Simulation, SimulationError, own_lines, shortened,
};

#[global_allocator]
static LINES: Lines = Lines;

type Body<'a> = Box<dyn FnOnce() + 'a>;

fn run(schedule: Schedule, threads: Vec<Body<'_>>) -> Result<Report, SimulationError> {
    let simulation = Simulation::new(&Machine::server("1x8".parse().unwrap())).schedule(schedule);
    let bodies = threads.into_iter().enumerate();
    bodies.fold(simulation, |all, (number, body)| all.thread(format!("t{number}"), body)).run()
}

fn words<const N: usize>() -> [Box<AtomicU64>; N] {
    own_lines(|| [0; N].map(|_| Box::new(AtomicU64::new(0))))
}

/// The schedule of a seed, with one order of threads.
fn with(order: Order, seed: u64) -> Schedule {
    Schedule { order, ..Schedule::new(seed) }
}

/// All results that two threads see under many schedules.
fn results(
    first: fn(&AtomicU64, &AtomicU64) -> u64,
    late: bool,
    order: Order,
) -> BTreeSet<[u64; 2]> {
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        let [a, b] = words();
        let got = [Cell::new(9), Cell::new(9)];
        let late_stores = if late { 1 + seed % 16 } else { 0 };
        let schedule = Schedule { late_stores, ..with(order, seed) };
        run(
            schedule,
            vec![Box::new(|| got[0].set(first(&a, &b))), Box::new(|| got[1].set(first(&b, &a)))],
        )
        .unwrap();
        seen.insert(got.map(|value| value.get()));
    }
    seen
}

fn store_and_load(own: &AtomicU64, other: &AtomicU64) -> u64 {
    own.store(1, Release);
    other.load(Acquire)
}

fn store_fence_and_load(own: &AtomicU64, other: &AtomicU64) -> u64 {
    own.store(1, Release);
    fence(SeqCst);
    other.load(Acquire)
}

#[test]
fn late_stores_show_what_fences_prevent() {
    for order in Order::ALL {
        let reached = |first, late| results(first, late, order).into_iter().collect::<Vec<_>>();
        assert_eq!(reached(store_and_load, true), [[0, 0], [0, 1], [1, 0], [1, 1]], "{order}");
        assert_eq!(reached(store_and_load, false), [[0, 1], [1, 0], [1, 1]], "{order}");
        assert_eq!(reached(store_fence_and_load, true), [[0, 1], [1, 0], [1, 1]], "{order}");
    }
}

#[test]
fn stores_of_a_core_become_visible_in_order() {
    for seed in 0..400 {
        let [a, b] = words();
        let reader = || {
            for _ in 0..20 {
                let (later, earlier) = (b.load(Acquire), a.load(Acquire));
                assert!(earlier >= later, "{later} before {earlier}");
            }
        };
        let writer = || {
            (1..20)
                .for_each(|value| [&a, &b].map(|w| w.store(value, Release)).into_iter().collect())
        };
        run(Schedule::new(seed), vec![Box::new(writer), Box::new(reader)]).unwrap();
    }
}

#[test]
fn a_barrier_on_all_cores_makes_their_stores_visible() {
    let mut both_zero = [0; 2];
    for seed in 0..2_000 {
        let [a, b] = words();
        let got = [Cell::new(9), Cell::new(9)];
        let barrier = seed % 2 == 1;
        let light = || {
            a.store(1, Release);
            got[0].set(b.load(Acquire));
        };
        let heavy = || {
            b.store(1, Release);
            if barrier {
                slipring_coherence::membarrier();
            }
            got[1].set(a.load(Acquire));
        };
        run(Schedule::new(seed), vec![Box::new(light), Box::new(heavy)]).unwrap();
        both_zero[usize::from(barrier)] += u32::from(got[0].get() + got[1].get() == 0);
    }
    assert!(both_zero[0] > 0 && both_zero[1] == 0, "{both_zero:?}");
}

/// A program with locks, sleeps, conditions and spinning. Returns what it noted.
fn mixed(schedule: Schedule) -> (Vec<(usize, u64)>, Report) {
    let notes = RefCell::new(Vec::new());
    let shared = own_lines(|| Box::new((Mutex::new(0), Condvar::new(), AtomicU64::new(0))));
    let bodies = (0..4).map(|me| {
        let (notes, (lock, changed, turn)) = (&notes, &*shared);
        let body = move || {
            for round in 0..5 {
                let mut value = lock.lock().unwrap();
                *value += 1;
                notes.borrow_mut().push((me, *value));
                changed.notify_all();
                drop(value);
                if me == 0 {
                    sync::sleep(Duration::from_micros(round));
                }
                turn.fetch_add(1, Relaxed);
            }
            let mut value = lock.lock().unwrap();
            while *value < 20 {
                value = changed.wait(value).unwrap();
            }
            drop(value);
            while turn.load(Relaxed) < 20 {
                sync::spin_loop();
            }
        };
        Box::new(body) as Body<'_>
    });
    let bodies = bodies.collect();
    let report = run(schedule, bodies).unwrap();
    (notes.into_inner(), report)
}

#[test]
fn a_schedule_repeats_itself_and_no_two_are_alike() {
    let mut all = BTreeSet::new();
    for seed in 0..60 {
        let schedule = Schedule::new(seed);
        let (notes, report) = mixed(schedule.clone());
        assert_eq!((&notes, &report), (&mixed(schedule.clone()).0, &mixed(schedule).1));
        assert!(report.switches > 0 && report.accesses > 100);
        assert_eq!(notes.len(), 20);
        all.insert(notes);
    }
    assert!(all.len() > 30, "{} of 60 differ", all.len());
}

#[test]
fn a_lost_wake_up_is_found_by_each_order_of_threads() {
    for order in Order::ALL {
        // The sleeper looks, and then sleeps, without a value to compare between.
        let hangs = |seed| {
            let [word] = words();
            let futex = own_lines(|| Box::new(AtomicU32::new(0)));
            let sleeper = || {
                if word.load(Acquire) == 0 {
                    sync::futex_wait(&futex, 0, None);
                }
            };
            let waker = || {
                word.store(1, SeqCst);
                sync::futex_wake_all(&futex);
            };
            run(with(order, seed), vec![Box::new(sleeper), Box::new(waker)])
        };
        let found = (0..300).find_map(|seed| hangs(seed).err());
        let text = found.unwrap_or_else(|| panic!("{order} finds no hang")).to_string();
        assert!(text.contains("`t0` on core 0 waits for a futex word"), "{text}");
    }
}

#[test]
fn sleeps_end_early_late_and_without_a_reason() {
    let (mut spurious, mut late, mut leaps) = (0, 0, 0);
    for seed in 0..300 {
        let futex = own_lines(|| Box::new(AtomicU32::new(0)));
        let waits = || {
            let began = sync::now();
            let woken = sync::futex_wait(&futex, 0, Some(Duration::from_micros(100)));
            let slept = sync::now() - began;
            assert!(woken || slept >= Duration::from_micros(100), "a timer never ends early");
            spurious += u32::from(woken);
            late += u32::from(slept > Duration::from_micros(110));
        };
        let works = || {
            let began = sync::now();
            let [word] = words();
            (0..1_000).for_each(|_| word.store(1, Release));
            leaps += u32::from(sync::now() - began > Duration::from_micros(50));
        };
        run(Schedule::new(seed), vec![Box::new(waits), Box::new(works)]).unwrap();
    }
    assert!(spurious > 5 && late > 5 && leaps > 5, "{spurious} {late} {leaps}");
}

#[test]
fn a_loop_that_waits_for_ever_is_a_livelock() {
    for order in Order::ALL {
        let schedule = Schedule { limit: 10_000, ..with(order, 1) };
        let spins = || loop {
            sync::spin_loop();
        };
        let text = run(schedule, vec![Box::new(spins), Box::new(|| ())]).unwrap_err().to_string();
        assert!(text.contains("its limit of 10000 accesses (a livelock?)"), "{text}");
    }
}

#[test]
fn repetitions_are_short_where_the_schedule_says_so() {
    for short in [false, true] {
        let schedule = Schedule { short, cores: 3, membarrier: short, ..Schedule::new(1) };
        let looks = || {
            assert_eq!(shortened(200) == 200, !short);
            assert_eq!(sync::available_parallelism(), 3);
            assert_eq!(slipring_coherence::has_membarrier(), short);
        };
        run(schedule, vec![Box::new(looks)]).unwrap();
    }
}

/// A process with two threads dies at any access. Its stores are those of the accesses before, and
/// neither its destructors nor its other accesses happen.
#[test]
fn a_process_dies_at_any_access_with_all_of_its_threads() {
    struct Dropped<'a>(&'a AtomicU64);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let mut lengths = BTreeSet::new();
    for seed in 0..600 {
        let words: &'static [Box<AtomicU64>; 3] = Box::leak(Box::new(words()));
        let [count, other, ended] = words;
        let body = || {
            let start = |word: &'static AtomicU64, name: &str| {
                let life = move || {
                    let _dropped = Dropped(ended);
                    (1..=40).for_each(|value| word.store(value, Release));
                };
                sync::Builder::new().name(name.into()).process(3).spawn(life).unwrap()
            };
            let threads = [start(count, "first"), start(other, "second")];
            let joined = threads.map(|thread| thread.join().is_ok());
            let died = slipring_coherence::has_died(3);
            let values = [count, other].map(|word| word.load(Acquire));
            // A thread that ends before the death has ended well.
            for (joined, value) in joined.into_iter().zip(values) {
                assert!(joined || died);
                assert!(!joined || value == 40);
            }
            let sum = joined.into_iter().filter(|joined| *joined).count() as u64;
            // A destructor may have run, of which the death left no more.
            assert!(ended.load(Relaxed) >= sum);
            lengths.insert(values);
        };
        let schedule = Schedule { deaths: 1 + seed % 60, most_deaths: 1, ..Schedule::new(seed) };
        run(schedule, vec![Box::new(body)]).unwrap();
    }
    assert!(lengths.len() > 200, "{}", lengths.len());
}

#[test]
fn a_dead_process_wakes_those_that_join_it_and_nobody_else() {
    let futex = own_lines(|| Box::leak(Box::new(AtomicU32::new(0))) as &'static AtomicU32);
    let body = || {
        let start = |number, name: &str| {
            let life = || {
                sync::futex_wait(futex, 0, None);
            };
            sync::Builder::new().name(name.into()).process(number).spawn(life).unwrap()
        };
        let (dies, stays) = (start(1, "dies"), start(2, "stays"));
        while !matches!(sync::futex_wake(futex, 0), 0) {}
        assert!(slipring_coherence::kill(1) && !slipring_coherence::kill(1));
        assert!(dies.join().is_err());
        drop(stays);
        // The sleeper that died takes no wake-up.
        sync::futex_wait(futex, 0, None);
    };
    let schedule = Schedule { deaths: 0, spurious: 0, leaps: 0, ..Schedule::new(5) };
    let text = run(schedule, vec![Box::new(body)]).unwrap_err().to_string();
    assert!(text.contains("`stays`") && !text.contains("`dies`"), "{text}");
}
