//! Counts of textbook cases, and that they are the same in every run and build.

use std::time::Duration;

use slipring_coherence::sync::Ordering::{Acquire, Relaxed, Release};
use slipring_coherence::sync::{self, AtomicU64, Payload};
use slipring_coherence::{
    Counts, Lines, Machine, Placement, Report, Simulation, begin_measuring, end_measuring, label,
    own_lines, work,
};

#[global_allocator]
static LINES: Lines = Lines;

fn server(topology: &str) -> Machine {
    Machine::server(topology.parse().unwrap())
}

fn word() -> Box<AtomicU64> {
    own_lines(|| Box::new(AtomicU64::new(0)))
}

const ROUNDS: u64 = 200;

/// Two threads that answer each other.
fn ping_pong(machine: &Machine, placement: Placement) -> Report {
    let [ping, pong] = [word(), word()];
    let turns = 1..=ROUNDS;
    Simulation::new(machine)
        .place(placement)
        .trace_lines(true)
        .thread("ping", || {
            label(&*ping, "ping");
            label(&*pong, "pong");
            for turn in turns.clone() {
                ping.store(turn, Release);
                while pong.load(Acquire) < turn {
                    sync::spin_loop();
                }
            }
        })
        .thread("pong", || {
            for turn in turns.clone() {
                while ping.load(Acquire) < turn {
                    sync::spin_loop();
                }
                pong.store(turn, Release);
            }
        })
        .run()
        .unwrap()
}

#[test]
fn a_ping_pong_moves_each_line_twice_a_round() {
    for (placement, cross) in [(Placement::Packed, 0.0), (Placement::Spread, 1.0)] {
        let report = ping_pong(&server("2x6"), placement);
        let round = report.counts().per_event(ROUNDS);
        // One transfer to its writer and one to its reader, for both lines.
        assert!((3.9..4.1).contains(&round.transfers), "{report}");
        assert_eq!(round.cross, round.transfers * cross, "{report}");
        assert_eq!((round.rmws, round.fences), (0.0, 0.0), "{report}");
        let labels: Vec<_> = report.hot.iter().map(|line| line.label.as_deref()).collect();
        assert_eq!(labels, [Some("pong"), Some("ping")], "{report}");
    }
}

#[test]
fn a_contended_count_moves_at_each_addition_at_most() {
    for threads in [1, 2, 6] {
        let count = word();
        let mut simulation = Simulation::new(&server("1x6"));
        for number in 0..threads {
            simulation = simulation.thread(format!("adder {number}"), || {
                for _ in 0..ROUNDS {
                    count.fetch_add(1, Relaxed);
                    work(Duration::from_nanos(200));
                }
            });
        }
        let report = simulation.run().unwrap();
        let additions = threads * ROUNDS;
        assert_eq!(count.load(Relaxed), additions);
        let each = report.counts().per_event(additions);
        assert_eq!(each.rmws, 1.0);
        let transfers = if threads == 1 { 0.0..0.01 } else { 0.9..1.01 };
        assert!(transfers.contains(&each.transfers), "{threads}: {report}");
    }
}

/// Two threads that each count in a word of their own, so many words apart.
fn neighbours(distance: usize) -> Counts {
    let words = own_lines(|| Box::new([const { AtomicU64::new(0) }; 16]));
    let count = |word: &AtomicU64| {
        for turn in 0..ROUNDS {
            word.store(turn, Relaxed);
            work(Duration::from_nanos(100));
        }
    };
    let report = Simulation::new(&server("1x2"))
        .thread("left", || count(&words[0]))
        .thread("right", || count(&words[distance]))
        .run()
        .unwrap();
    *report.counts()
}

#[test]
fn words_of_one_line_are_shared_though_no_thread_shares_them() {
    // When both store at once, one of them still has the line.
    assert!(neighbours(1).per_event(2 * ROUNDS).transfers > 0.4, "{:?}", neighbours(1));
    let padded = neighbours(8);
    assert_eq!((padded.transfers(), padded.cold), (0, 2));
}

#[test]
fn an_unchanged_line_stays_in_all_caches() {
    let word = &word();
    let mut simulation = Simulation::new(&server("2x6"));
    for number in 0..12 {
        simulation = simulation.thread(format!("reader {number}"), move || {
            word.load(Acquire);
            work(Duration::from_micros(2));
            if number == 0 {
                begin_measuring();
            }
            work(Duration::from_micros(2));
            for _ in 0..ROUNDS {
                word.load(Acquire);
            }
            work(Duration::from_micros(2));
            if number == 0 {
                end_measuring();
            }
            work(Duration::from_micros(2));
            word.store(1, Release);
        });
    }
    let report = simulation.run().unwrap();
    assert_eq!((report.counts().loads, report.counts().stores), (12 * ROUNDS, 0));
    assert_eq!((report.counts().transfers(), report.counts().cold), (0, 0));
    assert_eq!(report.time.as_micros() / 2, 2);
}

#[test]
fn a_change_is_fetched_once_by_each_reader() {
    let word = word();
    let mut simulation = Simulation::new(&server("2x4")).thread("writer", || {
        for turn in 1..=ROUNDS {
            word.store(turn, Release);
            work(Duration::from_micros(2));
        }
    });
    for number in 0..5 {
        simulation = simulation.thread(format!("reader {number}"), || {
            while word.load(Acquire) < ROUNDS {
                work(Duration::from_nanos(50));
            }
        });
    }
    let each = simulation.run().unwrap().counts().per_event(ROUNDS);
    assert!((5.9..6.1).contains(&each.transfers), "{each:?}");
}

#[test]
fn events_count_by_their_lines() {
    let event = own_lines(|| Box::new([0u8; 256]));
    let payload = own_lines(|| Box::new(Payload::new([0u8; 65])));
    let report = Simulation::new(&server("1x1"))
        .thread("reader", || {
            slipring_coherence::read(&event[0], 64);
            slipring_coherence::read(&event[63], 2);
            slipring_coherence::write(&event[0], 200);
            slipring_coherence::write(&event[0], 0);
            // SAFETY: there is one thread.
            assert_eq!(unsafe { payload.get() }, [0; 65]);
        })
        .run()
        .unwrap();
    assert_eq!((report.counts().loads, report.counts().stores), (1 + 2 + 2, 4));
}

#[test]
fn a_prefetched_line_is_there_when_it_is_stored_to() {
    let time = |prefetch: bool| {
        let word = word();
        let report = Simulation::new(&server("1x2"))
            .thread("earlier", || word.store(1, Relaxed))
            .thread("later", || {
                work(Duration::from_micros(1));
                if prefetch {
                    slipring_coherence::prefetch_for_store(word.as_ptr().cast());
                }
                work(Duration::from_micros(1));
                word.fetch_add(1, Relaxed);
            });
        let report = report.run().unwrap();
        assert_eq!(report.counts().transfers(), 1);
        report.time
    };
    assert_eq!(time(false) - time(true), Duration::from_nanos(40));
}

#[test]
fn a_full_store_buffer_makes_the_core_wait() {
    let words = own_lines(|| [(); 100].map(|()| Box::new(AtomicU64::new(0))));
    let report = Simulation::new(&server("1x1"))
        .thread("writer", || words.iter().for_each(|word| word.store(1, Relaxed)))
        .run()
        .unwrap();
    let counts = report.counts();
    assert_eq!((counts.stores, counts.cold, counts.transfers()), (100, 100, 0));
    assert!(counts.waited.buffer > 0 && counts.waited.drain > 0, "{counts:?}");
}

/// A program with some of everything.
fn mixture(seed: u64) -> Report {
    let mut machine = server("2x3");
    (machine.jitter, machine.seed) = (20, seed);
    let [turn, total] = [word(), word()];
    let lock = own_lines(|| Box::new(sync::Mutex::new(0)));
    let mut simulation = Simulation::new(&machine).place(Placement::Spread).trace_lines(true);
    simulation = simulation.thread("leader", || {
        label(&*turn, "turn");
        let helper = sync::spawn(|| sync::sleep(Duration::from_micros(5)));
        for _ in 0..50 {
            turn.fetch_add(1, Release);
            work(Duration::from_nanos(300));
        }
        helper.join().unwrap();
    });
    for number in 0..4 {
        simulation = simulation.thread(format!("follower {number}"), || {
            for _ in 0..50 {
                total.fetch_add(turn.load(Acquire), Relaxed);
                *lock.lock().unwrap() += 1;
                sync::spin_loop();
            }
            sync::fence(sync::Ordering::SeqCst);
        });
    }
    let report = simulation.run().unwrap();
    assert_eq!(lock.lock().map(|count| *count).unwrap(), 200);
    report
}

#[test]
fn a_run_is_repeated_exactly_and_a_seed_makes_another() {
    let first = mixture(1);
    // Allocations between the runs move those of the second.
    let _moved: Vec<Box<[u8]>> = (0..100).map(|n| vec![0; 1 + n * 50].into()).collect();
    assert_eq!(mixture(1), first);
    assert_eq!(mixture(1).to_string(), first.to_string());
    let others: Vec<Report> = (2..5).map(mixture).collect();
    assert!(others.iter().all(|other| *other != first));
    assert_ne!(others[0], others[1]);
}

/// The expected report is the same file for debug and release builds.
#[test]
fn each_build_makes_the_report_that_is_written_down() {
    let mut text = ping_pong(&Machine::two_vcpus(), Placement::Packed).to_string();
    for seed in 1..4 {
        text += &mixture(seed).to_string();
    }
    if std::env::var_os("SLIPRING_BLESS").is_some() {
        std::fs::write("tests/expected-report.txt", &text).unwrap();
    }
    assert_eq!(text, include_str!("expected-report.txt"), "SLIPRING_BLESS=1 writes the new one");
}
