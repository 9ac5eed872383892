//! Strategies: no pair of them loses a wake-up; one per stage and producer; timeouts; learners;
//! warnings.
//!
//! `SLIPRING_SOAK` prolongs the tests of lost wake-ups.

mod common;

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Wait,
    errors::{BatchError, ClaimError, WaitError},
    waiting::{WaitAction, WaitContext, WaitLearner, WaitStrategy, Warning},
};

/// Time after which a wake-up counts as lost, also on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// Strategies of each kind, some with a CPU budget or a timeout.
fn strategies() -> Vec<Wait> {
    let mut all = Wait::all().to_vec();
    all.extend(
        ["adaptive:25%", "adaptive:1%", "phased-backoff:1us,5us,sleeping", "timeout:1ms,blocking"]
            .map(|alias| alias.parse().unwrap()),
    );
    all
}

/// Spins for a time without sleeping or yielding, so that a gap may be shorter than a wake-up.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Measures the median time of a wake-up on this machine.
fn wake_cost() -> Duration {
    let (parked, mut costs) = (AtomicU64::new(0), Vec::new());
    let epoch = Instant::now();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut costs = Vec::new();
            while costs.len() < 20 {
                thread::park();
                costs.push(
                    epoch.elapsed().saturating_sub(Duration::from_nanos(parked.load(SeqCst))),
                );
            }
            costs
        });
        while !sleeper.is_finished() {
            thread::sleep(Duration::from_millis(1));
            parked.store(epoch.elapsed().as_nanos() as u64, SeqCst);
            sleeper.thread().unpark();
        }
        costs = sleeper.join().unwrap();
    });
    costs.sort_unstable();
    costs[costs.len() / 2]
}

/// Passes events through a ring of one or two slots for `time`, and returns their number. Each side
/// pauses for about the time of a wake-up between two steps, so that it often makes progress just
/// when the other side begins to wait or to sleep. In a ring of one slot, no further event comes
/// before the other side has seen the last one, so a lost wake-up is noticed.
fn ping_pong(
    producers: &Wait,
    readers: &Wait,
    capacity: usize,
    wake: Duration,
    time: Duration,
) -> u64 {
    note_warnings();
    let about = format!("{producers} producing, {readers} reading, {capacity} slots");
    let graph =
        Graph::new(capacity, || 0u64).wait(readers.clone()).producer_wait(producers.clone());
    let key = graph.reader("reader");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let until = Instant::now() + time;
    // Gaps last from 0 to twice the time of a wake-up, mostly near that time.
    let gap = move |random: &mut fastrand::Rng| match random.u32(..4) {
        0 => Duration::ZERO,
        1 => wake.mul_f64(2.0 * random.f64()),
        _ => wake.mul_f64(0.8 + 0.4 * random.f64()),
    };
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let (mut seen, mut random) = (0, fastrand::Rng::with_seed(1));
            loop {
                let began = Instant::now();
                // The reader's deadline is longer than the producer's. Otherwise the reader could
                // wake up by its own timeout and hide a lost wake-up.
                match rx.batch_by(1, began + 2 * BOUND) {
                    Ok(batch) => {
                        assert!(
                            began.elapsed() < BOUND,
                            "event {seen} did not wake the other side"
                        );
                        assert_eq!(batch[0], seen);
                        seen += 1;
                        batch.release();
                    }
                    Err(BatchError::Wait(WaitError::Closed)) => return seen,
                    Err(other) => panic!("{other}"),
                }
                spin(gap(&mut random));
            }
        });
        let (mut next, mut random) = (0, fastrand::Rng::with_seed(2));
        while Instant::now() < until {
            let began = Instant::now();
            match tx.publish_by(began + BOUND, |event| *event = next) {
                Ok(_) => {
                    assert!(
                        began.elapsed() < BOUND,
                        "{about}: the release before event {next} did not wake the other side"
                    );
                    next += 1;
                }
                Err(other) => panic!("{about}: event {next}: {other}"),
            }
            spin(gap(&mut random));
        }
        tx.close();
        assert_eq!(
            reading.join().unwrap_or_else(|_| panic!("{about}: the reader failed")),
            next,
            "{about}"
        );
        next
    })
}

#[test]
#[cfg_attr(miri, ignore = "goes by the clock, and there is no barrier to check")]
fn no_pair_of_strategies_loses_a_wake_up() {
    let _watched = crate::common::watched();
    let wake = wake_cost().clamp(Duration::from_micros(2), Duration::from_micros(100));
    let time =
        Duration::from_millis(if std::env::var_os("SLIPRING_SOAK").is_some() { 1_000 } else { 20 });
    let mut events = 0;
    for producers in &strategies() {
        for readers in &strategies() {
            for capacity in [1, 2] {
                events += ping_pong(producers, readers, capacity, wake, time);
            }
        }
    }
    println!("{events} events, a wake of {wake:?}");
}

/// Each burst is long enough for the wait queue to become quiet. After a burst, single events come
/// at any moment while the reader falls asleep, and each event must wake it.
#[test]
#[cfg_attr(miri, ignore = "goes by the clock, and there is no barrier to check")]
fn the_last_event_of_a_burst_wakes() {
    let _watched = crate::common::watched();
    let rounds = if std::env::var_os("SLIPRING_SOAK").is_some() { 200_000 } else { 2_000 };
    for wait in strategies().into_iter().filter(|wait| wait.parks() && wait.timeout().is_none()) {
        let graph = Graph::new(1024, || 0u64).wait(wait.clone());
        let key = graph.reader("reader");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        let seen = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| rx.for_each(|event, _| seen.store(*event, SeqCst)).unwrap());
            let mut random = fastrand::Rng::with_seed(3);
            let mut next = 0;
            for _ in 0..rounds / 10 {
                for _ in 0..1500 {
                    next += 1;
                    tx.publish(|event| *event = next).unwrap();
                }
                for _ in 0..10 {
                    spin(Duration::from_nanos(random.u64(..30_000)));
                    next += 1;
                    tx.publish(|event| *event = next).unwrap();
                    let began = Instant::now();
                    while seen.load(SeqCst) != next {
                        assert!(
                            began.elapsed() < BOUND,
                            "{wait}: event {next} did not wake the other side"
                        );
                        std::hint::spin_loop();
                    }
                }
            }
            tx.close();
        });
    }
}

#[test]
fn each_stage_and_producer_may_have_its_own_strategy() {
    let _watched = crate::common::watched();
    note_warnings();
    let all = strategies();
    for (i, _) in all.iter().enumerate() {
        // A stage that never stops spinning needs a core of its own, and the test has four threads.
        let pick = |offset: usize| {
            let wait = all[(i + offset) % all.len()].clone();
            if wait.to_string() == "busy-spin" || wait.timeout().is_some() {
                Wait::YIELDING
            } else {
                wait
            }
        };
        let mut sums = [0, 0, 0];
        let [double, left, right] = &mut sums;
        slipring::ring(4, || 0u64)
            .producer_wait(pick(0))
            .update("double", |value, _| {
                *value *= 2;
                *double += *value;
            })
            .stage_wait(pick(1))
            .fan_out(|beside| {
                beside
                    .read("left", |value, _| *left += value)
                    .stage_wait(pick(2))
                    .read("right", |value, _| *right += value)
            })
            .feed(0..2_000, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(sums, [2_000 * 1_999; 3], "{}", pick(0));
    }
}

#[test]
fn a_graph_prints_the_strategy_of_each_stage() {
    let _watched = crate::common::watched();
    let chain = slipring::ring(4, || 0u64)
        .wait(Wait::SLEEPING)
        .producer_wait(Wait::YIELDING)
        .read("quick", |_, _| ())
        .stage_wait(Wait::BusySpin)
        .read("slow", |_, _| ());
    let text = chain.to_string();
    assert!(
        text.contains("sleeping")
            && text.contains("quick  reads, after producer, waits: busy-spin"),
        "{text}"
    );
    assert!(
        text.contains("producer waits: yielding")
            && !text.contains("slow   reads, after quick, waits"),
        "{text}"
    );

    let error =
        |chain: slipring::Chain<'_, u64>| chain.feed(0..1, |_, _| ()).unwrap_err().to_string();
    let early = error(slipring::ring(4, || 0u64).stage_wait(Wait::Blocking).read("r", |_, _| ()));
    assert!(early.contains("`stage_wait` must follow"), "{early}");
    let both = error(
        slipring::ring(4, || 0u64)
            .read("a", |_, _| ())
            .on("t")
            .stage_wait(Wait::Blocking)
            .read("b", |_, _| ())
            .on("t")
            .stage_wait(Wait::YIELDING),
    );
    assert!(
        both.contains("`a` (blocking)") && both.contains("`b` (yielding)") && both.contains("`t`"),
        "{both}"
    );
    // One `stage_wait` applies to both stages of the thread.
    let mut sum = 0;
    slipring::ring(4, || 0u64)
        .wait(Wait::Blocking)
        .read("a", |_, _| ())
        .on("t")
        .read("b", |value, _| sum += value)
        .on("t")
        .stage_wait(Wait::YIELDING)
        .feed(0..100, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(sum, 4950);
}

#[test]
fn a_strategys_timeout_returns_an_error_and_loses_no_event() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let wait = wait.or_timeout(Duration::from_millis(1));
        let graph = Graph::new(2, || 0u64).wait(wait.clone());
        let key = graph.reader("reader");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        assert!(
            matches!(rx.batch(1), Err(WaitError::TimedOut(name)) if name.as_str() == "producer"),
            "{wait}"
        );
        tx.publish_all(0..2, |event, i| *event = i).unwrap();
        assert!(
            matches!(tx.publish(|_| panic!("there is no room")), Err(WaitError::TimedOut(name)) if name.as_str() == "reader"),
            "{wait}"
        );
        assert!(matches!(tx.claim(), Err(WaitError::TimedOut(_))), "{wait}");
        assert!(matches!(tx.claim_n(1), Err(ClaimError::TimedOut(_))), "{wait}");
        let error = tx.publish(|_| ()).unwrap_err().to_string();
        assert!(error.contains("`reader` exceeded the strategy's timeout"), "{error}");
        // Later calls continue at the same position.
        rx.poll(1, |event, _| assert_eq!(*event, 0)).unwrap();
        tx.publish(|event| *event = 2).unwrap();
        tx.close();
        let mut seen = Vec::new();
        rx.for_each(|event, _| seen.push(*event)).unwrap();
        assert_eq!(seen, [1, 2], "{wait}");
    }
}

/// `publish_all` and `publish_batches` hold items of their iterator, so they continue to wait after
/// a strategy's timeout instead of losing these items.
#[test]
fn publish_all_waits_on_after_a_timeout() {
    let _watched = crate::common::watched();
    let wait = Wait::Blocking.or_timeout(Duration::from_micros(100));
    let mut idle = 0;
    let mut seen = Vec::new();
    struct Slow<'a>(&'a mut u64, &'a mut Vec<u64>);
    impl slipring::stages::ReadHandler<u64> for Slow<'_> {
        fn event(&mut self, event: &u64, _: slipring::At) -> Result<(), slipring::faults::Fault> {
            thread::sleep(Duration::from_millis(2));
            self.1.push(*event);
            Ok(())
        }
        fn idle(&mut self) -> Result<(), slipring::faults::Fault> {
            *self.0 += 1;
            Ok(())
        }
    }
    slipring::ring(2, || 0u64)
        .wait(wait)
        .read_with("slow", Slow(&mut idle, &mut seen))
        .run(|tx| {
            tx.publish_all(0..8, |slot, i| *slot = i)?;
            tx.publish_batches(2, 8..14, |slot, i| *slot = i)?;
            thread::sleep(Duration::from_millis(20));
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, (0..14).collect::<Vec<u64>>());
    assert!(idle > 1, "`idle` was called {idle} times");
}

/// A learner that records the polls and the outcome of each wait.
#[derive(Debug)]
struct Noting(&'static Mutex<Vec<(u64, bool)>>);

impl WaitLearner for Noting {
    fn next_action(&mut self, waited: &WaitContext) -> WaitAction {
        if waited.polls < 3 {
            WaitAction::Spin(1)
        } else {
            WaitAction::ParkFor(Duration::from_millis(1))
        }
    }
    fn wait_ended(&mut self, waited: &WaitContext, progress: bool) {
        self.0.lock().unwrap().push((waited.polls, progress));
    }
}

/// A strategy with [`Noting`] as its learner.
#[derive(Debug)]
struct Noted(&'static Mutex<Vec<(u64, bool)>>);

impl WaitStrategy for Noted {
    fn next_action(&self, _: &WaitContext) -> WaitAction {
        panic!("the library must ask the learner")
    }
    fn parks(&self) -> bool {
        true
    }
    fn alias(&self) -> String {
        "noted".into()
    }
    fn learner(&self) -> Option<Box<dyn WaitLearner>> {
        Some(Box::new(Noting(self.0)))
    }
}

#[test]
fn each_handle_has_its_own_learner() {
    let _watched = crate::common::watched();
    let notes: &'static Mutex<Vec<(u64, bool)>> = Box::leak(Box::default());
    let graph = Graph::new(2, || 0u64).wait(Wait::Custom(std::sync::Arc::new(Noted(notes))));
    let key = graph.reader("reader");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    assert!(matches!(
        rx.batch_by(1, Instant::now() + Duration::from_millis(5)),
        Err(BatchError::TimedOut(_))
    ));
    let (polls, progress) = notes.lock().unwrap().pop().unwrap();
    assert!(polls > 3 && !progress);
    thread::scope(|scope| {
        scope.spawn(move || {
            rx.batch(1).unwrap().release();
            drop(rx.batch(1));
        });
        thread::sleep(Duration::from_millis(5));
        tx.publish(|_| ()).unwrap();
        thread::sleep(Duration::from_millis(5));
        tx.close();
    });
    assert!(notes.lock().unwrap().iter().any(|&(polls, progress)| polls > 3 && progress));
}

static WARNINGS: Mutex<Vec<Warning>> = Mutex::new(Vec::new());

/// Installs the hook that records warnings. Every test with oversubscribed spinning threads calls
/// it first: each warning comes once per process, and the first hook stays.
fn note_warnings() {
    slipring::waiting::on_warning(|warning| WARNINGS.lock().unwrap().push(warning.clone()));
}

#[test]
fn an_oversubscribed_spinning_stage_is_warned_of_once() {
    let _watched = crate::common::watched();
    note_warnings();
    let cores = thread::available_parallelism().unwrap().get();
    for _ in 0..3 {
        let graph = Graph::new(2, || 0u64).wait(Wait::SLEEPING);
        let mut keys = Vec::new();
        for i in 0..cores + 1 {
            let key = graph.reader(&format!("s{i}"));
            keys.push(if i == 1 { key.wait(Wait::BusySpin) } else { key });
        }
        let ring = graph.build().unwrap();
        drop((ring, keys));
    }
    let oversubscribed: Vec<Warning> = WARNINGS
        .lock()
        .unwrap()
        .iter()
        .filter(|warning| matches!(warning, Warning::Oversubscribed { .. }))
        .cloned()
        .collect();
    let [Warning::Oversubscribed { threads, cores: counted, .. }] = &oversubscribed[..] else {
        panic!("{oversubscribed:?}")
    };
    assert!(threads > counted && *counted == cores);
    let text = oversubscribed[0].to_string();
    assert!(text.contains("holds a core") && text.contains("adaptive"), "{text}");
}

/// The test needs a system that binds threads to cores.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn two_spinning_stages_on_one_core_are_warned_of_once() {
    let _watched = crate::common::watched();
    note_warnings();
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|&core| allowed.is_set(core)).unwrap();
    for _ in 0..2 {
        let graph = Graph::new(2, || 0u64).wait(Wait::BusySpin);
        let keys = ["left", "right", "elsewhere"].map(|name| graph.reader(name));
        let ring = graph.build().unwrap();
        let _tx = ring.producer();
        thread::scope(|scope| {
            let waiting = keys.into_iter().enumerate().map(|(i, key)| {
                let mut rx = ring.reader(key);
                scope.spawn(move || {
                    if i < 2 {
                        let mut one = rustix::thread::CpuSet::new();
                        one.set(core);
                        rustix::thread::sched_setaffinity(None, &one).unwrap();
                    }
                    // The time is long enough for both threads to run on the core.
                    assert!(matches!(
                        rx.batch_by(1, Instant::now() + Duration::from_millis(100)),
                        Err(BatchError::TimedOut(_))
                    ));
                    rx
                })
            });
            // The threads return their readers, because a dropped reader would fail the graph for
            // the other readers.
            let all: Vec<_> =
                waiting.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect();
            assert_eq!(all.len(), 3);
        });
    }
    let warnings: Vec<Warning> = WARNINGS
        .lock()
        .unwrap()
        .iter()
        .filter(|warning| matches!(warning, Warning::SharedCore { .. }))
        .cloned()
        .collect();
    let [Warning::SharedCore { stage, other, core: held }] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    let mut both = [stage.to_string(), other.to_string()];
    both.sort();
    assert_eq!((both, *held), (["left".to_owned(), "right".to_owned()], core));
    assert!(warnings[0].to_string().contains(&format!("bound to core {core}")), "{}", warnings[0]);
}
