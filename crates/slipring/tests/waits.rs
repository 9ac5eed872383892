//! How stages and producers wait: strategies for each of them, timeouts, warnings, and no wake-up
//! lost, whatever strategies meet.
//!
//! `SLIPRING_SOAK` makes the long test longer.

mod common;

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    BatchError, ClaimError, Graph, Learner, Wait, WaitAction, WaitContext, WaitError, WaitStrategy,
    Warning,
};

/// A wait that lasts longer than this has lost its wake-up, on a machine however busy.
const BOUND: Duration = Duration::from_secs(30);

/// One of each kind, budgets included.
fn strategies() -> Vec<Wait> {
    let mut all = Wait::all().to_vec();
    all.extend(
        ["adaptive:25%", "adaptive:1%", "phased-backoff:1us,5us,sleeping", "timeout:1ms,blocking"]
            .map(|alias| alias.parse().unwrap()),
    );
    all
}

/// A thread that spins for a time, not asleep and not yielding, so that gaps may be shorter than a
/// wake.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// What it costs here to be woken, about.
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

/// Runs until the time is up: a ring of one or two slots, so that both sides wait for each other
/// again and again, after gaps around what a wake costs, so that each begins to wait, or to sleep,
/// just when the other one has come. Each event is the last one until the other side has seen it.
fn meet(producers: &Wait, readers: &Wait, capacity: usize, wake: Duration, time: Duration) -> u64 {
    note_warnings();
    let about = format!("{producers} producing, {readers} reading, {capacity} slots");
    let graph =
        Graph::new(capacity, || 0u64).wait(readers.clone()).producer_wait(producers.clone());
    let key = graph.reader("reader");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let until = Instant::now() + time;
    // From nothing to twice the cost of a wake, most of them in the neighbourhood of it.
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
                // Later than the other side would, so that none wakes the other up by giving up.
                match rx.batch_by(1, began + 2 * BOUND) {
                    Ok(batch) => {
                        assert!(began.elapsed() < BOUND, "event {seen} woke nobody");
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
                        "{about}: the release before event {next} woke nobody"
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
fn every_strategy_meets_every_other_around_the_cost_of_a_wake() {
    let _watched = crate::common::watched();
    let wake = wake_cost().clamp(Duration::from_micros(2), Duration::from_micros(100));
    let time =
        Duration::from_millis(if std::env::var_os("SLIPRING_SOAK").is_some() { 1_000 } else { 20 });
    let mut events = 0;
    for producers in &strategies() {
        for readers in &strategies() {
            for capacity in [1, 2] {
                events += meet(producers, readers, capacity, wake, time);
            }
        }
    }
    println!("{events} events, a wake of {wake:?}");
}

/// Bursts long enough for the bell to fall quiet, each ending with an event on which all depends,
/// at any moment of the reader's falling asleep.
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
                        assert!(began.elapsed() < BOUND, "{wait}: event {next} woke nobody");
                        std::hint::spin_loop();
                    }
                }
            }
            tx.close();
        });
    }
}

#[test]
fn stages_and_producers_wait_each_in_its_own_way() {
    let _watched = crate::common::watched();
    note_warnings();
    let all = strategies();
    for (i, _) in all.iter().enumerate() {
        // Whoever spins for ever needs a core of its own, and here are four threads.
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
            .write("double", |value, _| {
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
fn a_graph_says_who_waits_how() {
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
    // One says it for both.
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
fn a_timeout_comes_back_and_loses_nothing() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let wait = wait.or_timeout(Duration::from_millis(1));
        let graph = Graph::new(2, || 0u64).wait(wait.clone());
        let key = graph.reader("reader");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        assert!(
            matches!(rx.batch(1), Err(WaitError::TimedOut(who)) if who.as_str() == "producer"),
            "{wait}"
        );
        tx.publish_all(0..2, |event, i| *event = i).unwrap();
        assert!(
            matches!(tx.publish(|_| panic!("there is no room")), Err(WaitError::TimedOut(who)) if who.as_str() == "reader"),
            "{wait}"
        );
        assert!(matches!(tx.claim(), Err(WaitError::TimedOut(_))), "{wait}");
        assert!(matches!(tx.claim_n(1), Err(ClaimError::TimedOut { .. })), "{wait}");
        let error = tx.publish(|_| ()).unwrap_err().to_string();
        assert!(error.contains("`reader` took longer than the strategy's timeout"), "{error}");
        // Later calls go on where they were.
        rx.poll(1, |event, _| assert_eq!(*event, 0)).unwrap();
        tx.publish(|event| *event = 2).unwrap();
        tx.close();
        let mut seen = Vec::new();
        rx.for_each(|event, _| seen.push(*event)).unwrap();
        assert_eq!(seen, [1, 2], "{wait}");
    }
}

/// Whoever publishes all of something has items in hand, and waits on.
#[test]
fn no_item_of_many_is_lost_to_a_timeout() {
    let _watched = crate::common::watched();
    let wait = Wait::Blocking.or_timeout(Duration::from_micros(100));
    let mut idle = 0;
    let mut seen = Vec::new();
    struct Slow<'a>(&'a mut u64, &'a mut Vec<u64>);
    impl slipring::ReadHandler<u64> for Slow<'_> {
        fn event(&mut self, event: &u64, _: slipring::At) -> Result<(), slipring::Fault> {
            thread::sleep(Duration::from_millis(2));
            self.1.push(*event);
            Ok(())
        }
        fn idle(&mut self) -> Result<(), slipring::Fault> {
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
    assert!(idle > 1, "the handler was told that nothing came {idle} times");
}

/// Learns nothing; notes what it is told, and which waits it was asked in.
#[derive(Debug)]
struct Noting(&'static Mutex<Vec<(u64, bool)>>);

impl Learner for Noting {
    fn idle(&mut self, waited: &WaitContext) -> WaitAction {
        if waited.polls < 3 {
            WaitAction::Spin(1)
        } else {
            WaitAction::ParkFor(Duration::from_millis(1))
        }
    }
    fn over(&mut self, waited: &WaitContext, progress: bool) {
        self.0.lock().unwrap().push((waited.polls, progress));
    }
}

#[derive(Debug)]
struct Noted(&'static Mutex<Vec<(u64, bool)>>);

impl WaitStrategy for Noted {
    fn idle(&self, _: &WaitContext) -> WaitAction {
        panic!("its learner is asked")
    }
    fn parks(&self) -> bool {
        true
    }
    fn alias(&self) -> String {
        "noted".into()
    }
    fn learner(&self) -> Option<Box<dyn Learner>> {
        Some(Box::new(Noting(self.0)))
    }
}

#[test]
fn each_waiter_learns_for_itself() {
    let _watched = crate::common::watched();
    let notes: &'static Mutex<Vec<(u64, bool)>> = Box::leak(Box::default());
    let graph = Graph::new(2, || 0u64).wait(Wait::Custom(std::sync::Arc::new(Noted(notes))));
    let key = graph.reader("reader");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    assert!(matches!(
        rx.batch_by(1, Instant::now() + Duration::from_millis(5)),
        Err(BatchError::TimedOut)
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

/// Every test in which somebody spins in a crowd begins with this: warnings come once per process,
/// and the first hook stays.
fn note_warnings() {
    slipring::on_warning(|warning| WARNINGS.lock().unwrap().push(warning.clone()));
}

#[test]
fn who_spins_in_a_crowd_is_warned_once() {
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

/// Needs a system that binds threads to cores, and says so.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn two_that_spin_on_one_core_are_warned_once() {
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
                    // For as long as it takes both of them to have their turn there.
                    assert!(matches!(
                        rx.batch_by(1, Instant::now() + Duration::from_millis(100)),
                        Err(BatchError::TimedOut)
                    ));
                    rx
                })
            });
            // A handle that went would end the graph for the others.
            let all: Vec<_> =
                waiting.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect();
            assert_eq!(all.len(), 3);
        });
    }
    let told: Vec<Warning> = WARNINGS
        .lock()
        .unwrap()
        .iter()
        .filter(|warning| matches!(warning, Warning::SharedCore { .. }))
        .cloned()
        .collect();
    let [Warning::SharedCore { stage, other, core: held }] = &told[..] else { panic!("{told:?}") };
    let mut both = [stage.to_string(), other.to_string()];
    both.sort();
    assert_eq!((both, *held), (["left".to_owned(), "right".to_owned()], core));
    assert!(told[0].to_string().contains(&format!("bound to core {core}")), "{}", told[0]);
}
