//! The texts of runs that fail, and of input that makes no run.

use std::time::Duration;

use slipring_coherence::sync::Ordering::{Acquire, Relaxed};
use slipring_coherence::sync::{self, AtomicU32, Condvar, Mutex};
use slipring_coherence::{
    Costs, Limit, Lines, Machine, Simulation, SimulationError, Topology, label, own_lines, work,
};

#[global_allocator]
static LINES: Lines = Lines;

fn server(topology: &str) -> Machine {
    Machine::server(topology.parse().unwrap())
}

/// The text of a failure, with the numbers of source lines left out.
fn text(simulation: Simulation<'_>) -> String {
    let error = simulation.run().unwrap_err().to_string();
    let place = |line: &str| match line.rfind(".rs:") {
        Some(at) => format!("{}.rs", &line[..at]),
        None => line.to_owned(),
    };
    error.lines().map(place).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_deadlock_says_what_each_thread_waits_for() {
    let shared = own_lines(|| Box::new((Mutex::new(()), AtomicU32::new(0))));
    let condition = own_lines(|| Box::new((Mutex::new(()), Condvar::new())));
    let (lock, word) = &*shared;
    let simulation = Simulation::new(&server("2x3"))
        .thread("owner", || {
            label(&*shared, "shared");
            let _guard = lock.lock().unwrap();
            sync::futex_wait(word, 0, None);
        })
        .thread("waiter", || {
            work(Duration::from_micros(1));
            drop(lock.lock());
        })
        .thread("conditional", || {
            drop(condition.1.wait(condition.0.lock().unwrap()));
        })
        .thread("parked", sync::park)
        .thread("joiner", || {
            let builder = sync::Builder::new().name("child".into());
            builder.spawn(sync::park).unwrap().join().unwrap();
        })
        .thread("ended", || ());
    let expected = "deadlock: at 15850 ns all virtual threads sleep
  `owner` on core 0 waits for a futex word (line 0, byte 8, shared) since 924 ns, at FILE
  `waiter` on core 1 waits for a lock (line 0, byte 0, shared) since 2407 ns, at FILE
  `conditional` on core 2 waits for a condition (line 1, byte 8) since 933 ns, at FILE
  `parked` on core 3 waits for an unpark since 700 ns, at FILE
  `joiner` on core 4 waits for the end of `child` since 15850 ns, at FILE
  `child` on core 5 waits for an unpark since 15700 ns, at FILE";
    let error = text(simulation);
    assert!(error.contains(file!()), "{error}");
    // `park` without a closure around it is called by a function of the standard library.
    let lines = error.lines().map(|line| match line.split_once(", at ") {
        Some((wait, _)) => format!("{wait}, at FILE"),
        None => line.to_owned(),
    });
    assert_eq!(lines.collect::<Vec<_>>().join("\n"), expected);
}

#[test]
fn a_deadlock_names_the_source_line_of_the_wait() {
    let line = line!() + 1;
    let error = Simulation::new(&server("1x1")).thread("only", || sync::park()).run().unwrap_err();
    let SimulationError::Deadlock(deadlock) = error else { panic!("{error}") };
    assert_eq!((deadlock.waits.len(), deadlock.waits[0].location.line()), (1, line));
    assert_eq!(deadlock.waits[0].location.file(), file!());
}

#[test]
fn a_livelock_says_where_the_threads_are() {
    let word = AtomicU32::new(0);
    let spin = || {
        while word.load(Acquire) == 0 {
            sync::spin_loop();
        }
    };
    let limited = |limit| {
        let simulation = Simulation::new(&server("1x2")).limit(limit);
        text(simulation.thread("first", spin).thread("second", || {
            sync::sleep(Duration::from_secs(5));
        }))
    };
    let by_time = limited(Limit { time: Duration::from_micros(10), ..Limit::default() });
    let expected = format!(
        "the run reached its limit of 10000 ns of virtual time (a livelock?)
  `first` on core 0 runs at 10001 ns, at {file}
  `second` on core 1 waits for the time to pass since 700 ns, with a timer, at {file}",
        file = file!()
    );
    assert_eq!(by_time, expected);
    let by_accesses = limited(Limit { accesses: 1_000, ..Limit::default() });
    assert!(by_accesses.starts_with("the run reached its limit of 1000 accesses"), "{by_accesses}");
}

#[test]
fn loops_without_accesses_reach_the_limit() {
    let machine = server("1x2");
    let limit = Limit { time: Duration::from_micros(10), ..Limit::default() };
    let loops: [fn(); 4] = [
        || work(Duration::from_nanos(10)),
        || {
            sync::now();
        },
        sync::spin_loop,
        || sync::sleep(Duration::ZERO),
    ];
    for body in loops {
        let repeat = move || {
            loop {
                body();
            }
        };
        let error = Simulation::new(&machine).limit(limit).thread("only", repeat).run();
        assert!(matches!(error, Err(SimulationError::Limit(_))), "{error:?}");
    }
}

#[test]
fn a_panic_names_its_thread_and_keeps_its_text() {
    let quiet = Simulation::new(&server("1x3"))
        .thread("waits", sync::park)
        .thread("fails", || panic!("event {} is missing", 7));
    assert_eq!(text(quiet), "the virtual thread `fails` panicked: event 7 is missing");
    let payload = Simulation::new(&server("1x1")).thread("fails", || std::panic::panic_any(1));
    assert_eq!(text(payload), "the virtual thread `fails` panicked: a payload that is no text");
}

#[test]
fn the_panic_of_a_thread_that_is_not_joined_is_the_cause() {
    let detached = || {
        let builder = sync::Builder::new().name("worker".into());
        drop(builder.spawn(|| panic!("no input")).unwrap());
        sync::sleep(Duration::from_millis(1));
    };
    let expected = "the virtual thread `worker` panicked: no input";
    assert_eq!(text(Simulation::new(&server("1x3")).thread("main", detached)), expected);
    let waits = Simulation::new(&server("1x3")).thread("main", move || {
        detached();
        sync::park();
    });
    assert_eq!(text(waits), expected);
}

#[test]
fn a_failed_run_leaves_its_thread_able_to_run_another() {
    let word = AtomicU32::new(0);
    for _ in 0..3 {
        let failed = Simulation::new(&server("1x2"))
            .thread("stores", || word.store(5, Relaxed))
            .thread("fails", || {
                work(Duration::from_nanos(1));
                panic!("on purpose")
            });
        assert!(failed.run().is_err());
        let count = || {
            word.fetch_add(1, Relaxed);
        };
        Simulation::new(&server("1x2")).thread("counts", count).run().unwrap();
    }
}

#[test]
fn bad_topologies_are_refused() {
    let texts = [
        ("2y6", "`2y6` is not a topology: write sockets x cores of each socket, such as 2x6"),
        ("", "`` is not a topology: write sockets x cores of each socket, such as 2x6"),
        ("-1x2", "`-1x2` is not a topology: write sockets x cores of each socket, such as 2x6"),
        ("0x6", "the topology 0x6 has no cores: both numbers have to be at least 1"),
        ("2x0", "the topology 2x0 has no cores: both numbers have to be at least 1"),
        ("4x32", "the topology 4x32 has more cores than the 64 that the simulator takes"),
    ];
    for (topology, expected) in texts {
        assert_eq!(topology.parse::<Topology>().unwrap_err().to_string(), expected);
    }
    assert!(Topology::new(usize::MAX, 2).is_err());
    assert!("1x64".parse::<Topology>().is_ok() && "64x1".parse::<Topology>().is_ok());
    assert_eq!(" 2 x 6 ".parse::<Topology>().unwrap().to_string(), "2x6");
}

#[test]
fn bad_simulations_are_refused() {
    let machine = server("1x2");
    let none = Simulation::new(&machine);
    assert_eq!(text(none), "the simulation has no threads: add some with `thread`");
    let three = (0..3).fold(Simulation::new(&machine), |all, n| all.thread(n.to_string(), || ()));
    let expected = "3 threads need a core each, and the topology 1x2 has 2";
    assert_eq!(text(three), expected);
    let jittery = Machine { jitter: 101, ..machine.clone() };
    let expected = "a jitter of 101 percent: latencies vary by at most 100 percent";
    assert_eq!(text(Simulation::new(&jittery).thread("only", || ())), expected);
    let costs = |costs| text(Simulation::new(&Machine { costs, ..machine.clone() }));
    let zero = Costs { clock: 0, ..Costs::server() };
    assert_eq!(costs(zero), "the cost `clock` is zero: the model needs at least 1");
    let long = Costs { interrupt: u64::MAX, ..Costs::server() };
    let expected = "the cost `interrupt` is 18446744073709551615: the model takes at most \
                    1000000000000 (a second in picoseconds)";
    assert_eq!(costs(long), expected);
    let nested = || {
        let inner = Simulation::new(&machine).thread("inner", || ());
        let expected = "a virtual thread cannot run a simulation of its own";
        assert_eq!(inner.run().unwrap_err().to_string(), expected);
    };
    Simulation::new(&machine).thread("outer", nested).run().unwrap();
}

#[test]
fn a_run_on_one_system_thread_ignores_the_others() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let count = own_lines(|| Box::new(AtomicU32::new(0)));
                let add = || {
                    for _ in 0..1_000 {
                        count.fetch_add(1, Relaxed);
                    }
                };
                let both = Simulation::new(&server("1x2")).thread("left", add);
                assert_eq!(both.thread("right", add).run().unwrap().counts().rmws, 2_000);
                assert_eq!(count.load(Relaxed), 2_000);
            });
        }
    });
}
