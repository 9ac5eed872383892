//! Which results of small programs the memory model allows: total store order, as on x86.

use std::collections::BTreeSet;
use std::time::Duration;

use slipring_coherence::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use slipring_coherence::sync::{self, AtomicU32, AtomicU64, Payload};
use slipring_coherence::{Lines, Machine, Placement, Simulation, membarrier, own_lines, work};

#[global_allocator]
static LINES: Lines = Lines;

fn machine(seed: u64) -> Machine {
    let mut machine = Machine::server("2x2".parse().unwrap());
    (machine.jitter, machine.seed) = (90, seed);
    // Much shorter than a transfer, so that a store of another core still waits when it ends.
    (machine.costs.membarrier, machine.costs.interrupt) = (1, 0);
    machine
}

fn words<const N: usize>() -> [Box<AtomicU64>; N] {
    own_lines(|| std::array::from_fn(|_| Box::new(AtomicU64::new(0))))
}

/// Runs both bodies from many relative starts, and returns the pairs that they returned.
fn outcomes(
    first: impl Fn(&[Box<AtomicU64>; 2]) -> u64,
    second: impl Fn(&[Box<AtomicU64>; 2]) -> u64,
) -> BTreeSet<(u64, u64)> {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let words = words();
        let results = [AtomicU64::new(0), AtomicU64::new(0)];
        let delay = Duration::from_nanos(seed % 150 * 2);
        let placement = if seed % 2 == 0 { Placement::Packed } else { Placement::Spread };
        Simulation::new(&machine(seed))
            .place(placement)
            .thread("first", || {
                warm(&words);
                work(Duration::from_nanos(150));
                results[0].store(first(&words), Relaxed);
            })
            .thread("second", || {
                warm(&words);
                work(delay);
                results[1].store(second(&words), Relaxed);
            })
            .run()
            .unwrap();
        seen.insert((results[0].load(Relaxed), results[1].load(Relaxed)));
    }
    seen
}

/// Lets both cores have copies of the words.
fn warm(words: &[Box<AtomicU64>; 2]) {
    for word in words {
        word.load(Relaxed);
    }
    work(Duration::from_micros(1));
}

#[test]
fn a_store_waits_in_the_buffer_behind_later_loads() {
    let seen = outcomes(
        |[x, y]| {
            x.store(1, Release);
            y.load(Acquire)
        },
        |[x, y]| {
            y.store(1, Release);
            x.load(Acquire)
        },
    );
    assert!(seen.contains(&(0, 0)), "{seen:?}");
    assert!(seen.contains(&(0, 1)) && seen.contains(&(1, 0)), "{seen:?}");
}

#[test]
fn sequentially_consistent_fences_forbid_what_the_buffer_allows() {
    let seen = outcomes(
        |[x, y]| {
            x.store(1, Relaxed);
            sync::fence(SeqCst);
            y.load(Relaxed)
        },
        |[x, y]| {
            y.store(1, Relaxed);
            sync::fence(SeqCst);
            x.load(Relaxed)
        },
    );
    assert!(!seen.contains(&(0, 0)), "{seen:?}");
    assert!(seen.contains(&(0, 1)) && seen.contains(&(1, 0)), "{seen:?}");
}

#[test]
fn one_fence_is_not_enough() {
    let seen = outcomes(
        |[x, y]| {
            x.store(1, Relaxed);
            sync::fence(SeqCst);
            y.load(Relaxed)
        },
        |[x, y]| {
            y.store(1, Relaxed);
            sync::fence(Acquire);
            x.load(Relaxed)
        },
    );
    assert!(seen.contains(&(0, 0)), "{seen:?}");
}

#[test]
fn read_modify_writes_and_consistent_stores_drain_the_buffer() {
    let seen = outcomes(
        |[x, y]| {
            x.swap(1, Relaxed);
            y.load(Relaxed)
        },
        |[x, y]| {
            y.store(1, SeqCst);
            x.load(Relaxed)
        },
    );
    assert!(!seen.contains(&(0, 0)), "{seen:?}");
}

#[test]
fn a_membarrier_stands_for_a_fence_on_the_other_core() {
    let seen = outcomes(
        |[x, y]| {
            x.store(1, Relaxed);
            membarrier();
            y.load(Relaxed)
        },
        |[x, y]| {
            y.store(1, Relaxed);
            sync::compiler_fence(SeqCst);
            x.load(Relaxed)
        },
    );
    assert!(!seen.contains(&(0, 0)), "{seen:?}");
}

#[test]
fn messages_are_never_reordered() {
    let seen = outcomes(
        |[data, flag]| {
            data.store(1, Relaxed);
            flag.store(1, Relaxed);
            0
        },
        |[data, flag]| {
            let flag = flag.load(Relaxed);
            flag * 2 + data.load(Relaxed)
        },
    );
    // The flag without the data would be 2.
    assert_eq!(seen, BTreeSet::from([(0, 0), (0, 1), (0, 3)]));
}

#[test]
fn a_core_sees_its_own_stores_at_once() {
    let [x, _y] = words::<2>();
    Simulation::new(&machine(1))
        .thread("other", || {
            for _ in 0..50 {
                x.load(Relaxed);
            }
        })
        .thread("writer", || {
            for value in 1..=200 {
                x.store(value, Relaxed);
                assert_eq!(x.load(Relaxed), value);
            }
        })
        .run()
        .unwrap();
    assert_eq!(x.load(Relaxed), 200);
}

#[test]
fn a_load_of_more_than_the_stored_part_waits_for_the_store() {
    let word = own_lines(|| Box::new(AtomicU64::new(0)));
    // SAFETY: the word lives as long as the reference, and has its size and alignment.
    let low = unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) };
    let first = if cfg!(target_endian = "little") { 7 } else { 7 << 32 };
    Simulation::new(&machine(1))
        .thread("writer", || {
            low.store(7, Relaxed);
            assert_eq!(word.load(Relaxed), first);
        })
        .run()
        .unwrap();
}

#[test]
fn an_exclusive_reference_sees_the_store_before_it() {
    Simulation::new(&machine(1))
        .thread("owner", || {
            let mut word = Box::new(AtomicU64::new(0));
            word.store(3, Relaxed);
            *word.get_mut() += 1;
            assert_eq!(word.load(Relaxed), 4);
        })
        .run()
        .unwrap();
}

#[test]
fn a_late_store_never_hits_a_stack() {
    Simulation::new(&machine(1))
        .thread("owner", || {
            for round in 0..1_000 {
                let word = AtomicU64::new(round);
                word.store(round + 1, Release);
                assert_eq!(word.into_inner(), round + 1);
                // The word's place, again and again.
                assert_eq!(std::hint::black_box([round; 16]).iter().sum::<u64>(), round * 16);
            }
        })
        .run()
        .unwrap();
}

#[test]
fn plain_memory_is_published_by_a_release() {
    let data = own_lines(|| Box::new([const { Payload::new(0u64) }; 8]));
    let [turn, _] = words::<2>();
    let expected = 1..=100u64;
    Simulation::new(&machine(3))
        .thread("writer", || {
            for value in expected.clone() {
                while turn.load(Acquire) % 2 == 1 {
                    sync::spin_loop();
                }
                // SAFETY: it is the writer's turn.
                data.iter().for_each(|payload| unsafe { payload.set(value) });
                turn.fetch_add(1, Release);
            }
        })
        .thread("reader", || {
            for value in expected.clone() {
                while turn.load(Acquire) % 2 == 0 {
                    sync::spin_loop();
                }
                // SAFETY: it is the reader's turn.
                assert!(data.iter().all(|payload| unsafe { payload.get() } == value));
                turn.fetch_add(1, Release);
            }
        })
        .run()
        .unwrap();
}
