//! Tickets beyond the end of the stream, and tickets that became orphans, change nothing that a
//! program can see: each program does the same with a strategy that draws tickets and with one that
//! draws none.
//!
//! On a machine with fewer cores than threads, workers draw no tickets. On virtual cores they do.

use std::panic::resume_unwind;
use std::time::Duration;

use slipring_coherence::sync::{now, scope};
use slipring_coherence::{Limit, Lines, Machine, Simulation, work};
use slipring_simulated::{
    Graph, Pool, Producer, Ring, Wait,
    errors::{BatchError, SubscribeError, WaitError},
    handles::PoolUpdater,
    markers::Updating,
};

#[global_allocator]
static LINES: Lines = Lines;

/// Longer than any of these programs needs to come to rest.
const LONG: Duration = Duration::from_micros(20);

/// Runs `body` on virtual cores, with each strategy.
fn with_each(body: impl Fn(&Wait)) {
    for wait in [Wait::SLEEPING, Wait::Blocking, Wait::ADAPTIVE, Wait::BusySpin] {
        let machine = Machine { jitter: 20, ..Machine::server("2x16".parse().unwrap()) };
        let limit = Limit { accesses: 10_000_000, time: Duration::from_millis(50) };
        let run = Simulation::new(&machine).limit(limit).thread("main", || body(&wait)).run();
        run.unwrap_or_else(|error| panic!("{wait}: {error}"));
    }
}

/// Builds a ring with a pool that has room for its `workers`.
fn pool(wait: &Wait, workers: usize) -> (Ring<u64>, Vec<PoolUpdater<u64>>) {
    let graph = Graph::new(8, || 0).wait(wait.clone());
    let key = graph.pool_updater("work", workers);
    let ring = graph.build().unwrap();
    let workers = ring.pool_updaters(key);
    (ring, workers)
}

/// A worker waits with a ticket. The other worker leaves the only event behind, and the first one
/// handles it and leaves its ticket. Returns the producer and the first worker.
fn leave_a_ticket(
    ring: &Ring<u64>,
    workers: Vec<PoolUpdater<u64>>,
) -> (Producer<u64>, PoolUpdater<u64>) {
    let [mut one, mut two] = <[_; 2]>::try_from(workers).expect("two workers");
    let mut tx = ring.producer();
    tx.publish(|event| *event = 1).unwrap();
    _ = two.batch(1).unwrap();
    scope(|scope| {
        let waiting = scope.spawn(move || {
            one.batch(1).unwrap().release();
            one
        });
        work(LONG);
        drop(two);
        (tx, waiting.join().unwrap())
    })
}

/// Inside a worker's handler of the last event, another worker of the pool waits on the same
/// thread, while a third one waits with a ticket at the end.
#[test]
fn a_wait_for_oneself_is_found_at_the_end() {
    with_each(|wait| {
        let (ring, workers) = pool(wait, 3);
        let [mut one, mut two, three] = <[_; 3]>::try_from(workers).expect("three workers");
        let mut tx = ring.producer();
        tx.publish(|event| *event = 1).unwrap();
        let mut left = Some((tx, three));
        scope(|scope| {
            one.for_each(|_, _| {
                let (tx, mut three) = left.take().expect("one event");
                scope.spawn(move || assert_eq!(three.for_each(|_, _| ()).unwrap(), 0));
                work(LONG);
                drop(tx);
                work(LONG);
                assert!(matches!(two.batch(1), Err(WaitError::WaitsForItself(_))), "{wait}");
            })
            .unwrap();
        });
    });
}

/// At the end, while another worker still handles the last event, a panic drops a worker that has
/// nothing to do. That is no failure.
#[test]
fn a_panic_after_the_end_is_no_failure() {
    with_each(|wait| {
        let (ring, workers) = pool(wait, 3);
        let [mut one, mut two, mut three] = <[_; 3]>::try_from(workers).expect("three workers");
        let mut tx = ring.producer();
        tx.publish(|event| *event = 1).unwrap();
        _ = one.batch(1).unwrap(); // and holds the event
        scope(|scope| {
            scope.spawn(move || assert_eq!(three.for_each(|_, _| ()).unwrap(), 0));
            work(LONG);
            drop(tx);
            work(LONG);
            let panics = scope.spawn(move || {
                assert!(matches!(two.try_batch(1), Err(BatchError::Unavailable)));
                resume_unwind(Box::new(()));
            });
            assert!(panics.join().is_err());
            one.batch(1).unwrap().release();
            assert!(matches!(one.batch(1), Err(WaitError::Closed)), "{wait}");
        });
    });
}

/// The failure of a pool whose last worker was dropped names the first unhandled event, although
/// a ticket was drawn for it.
#[test]
fn the_last_worker_names_the_first_unhandled_event() {
    with_each(|wait| {
        let (ring, workers) = pool(wait, 2);
        let (mut tx, one) = leave_a_ticket(&ring, workers);
        drop(one);
        match tx.publish(|_| ()) {
            Err(WaitError::Failed(failure)) => assert_eq!(failure.seq(), Some(1), "{wait}"),
            other => panic!("{wait}: {other:?}"),
        }
    });
}

/// A ticket that became an orphan keeps its seat when the ring closes. A worker that would join
/// then is told of the end, and not that the pool is full for now.
#[test]
fn a_pool_that_has_ended_is_not_full() {
    with_each(|wait| {
        let (ring, workers) = pool(wait, 2);
        let (tx, mut one) = leave_a_ticket(&ring, workers);
        drop(tx);
        assert!(matches!(one.batch(1), Err(WaitError::Closed)));
        match one.pool().join() {
            Ok(mut late) => assert!(matches!(late.batch(1), Err(WaitError::Closed)), "{wait}"),
            Err(error) => {
                assert!(
                    matches!(error, SubscribeError::Ended(WaitError::Closed)),
                    "{wait}: {error}"
                );
            }
        }
    });
}

/// Lets five workers wait while one claim is open and later events were published, so that more
/// tickets are out than a pool has room for if its workers sleep. Then calls `meanwhile`, and
/// publishes the claim. Returns the number of yields.
fn with_an_open_claim(wait: &Wait, seed: u64, meanwhile: impl Fn(&Pool<u64, Updating>)) -> u64 {
    let machine = Machine { seed, jitter: 20, ..Machine::server("2x16".parse().unwrap()) };
    let body = || {
        let graph = Graph::new(64, || 0).shared().wait(wait.clone());
        let key = graph.pool_updater("work", 5).room(6);
        let ring = graph.build().unwrap();
        let pool = ring.pool(&key);
        let (mut slow, mut fast) = (ring.producer(), ring.producer());
        let workers = ring.pool_updaters(key);
        drop(ring);
        scope(|scope| {
            for mut worker in workers {
                scope.spawn(move || worker.for_each(|_, _| ()).map(drop).unwrap());
            }
            let claim = slow.claim().unwrap();
            for number in 0..8 {
                fast.publish(|event| *event = number).unwrap();
                work(Duration::from_nanos(500));
            }
            work(Duration::from_micros(500));
            meanwhile(&pool);
            claim.publish();
            drop((slow, fast));
        });
    };
    let limit = Limit { accesses: 10_000_000, time: Duration::from_secs(1) };
    let report = Simulation::new(&machine).limit(limit).thread("main", body).run();
    report.unwrap_or_else(|error| panic!("{wait}, seed {seed}: {error}")).counts().yields
}

#[test]
fn workers_sleep_while_a_claim_is_open() {
    for wait in [Wait::Blocking, Wait::ADAPTIVE] {
        for seed in 1..=20 {
            let [short, long] = [1, 5].map(|millis| {
                with_an_open_claim(&wait, seed, |_| work(Duration::from_millis(millis)))
            });
            assert!(long < short + 100, "{wait}, seed {seed}: {short} yields, then {long}");
        }
    }
}

#[test]
fn a_worker_joins_while_a_claim_is_open() {
    for wait in [Wait::Blocking, Wait::ADAPTIVE, Wait::BusySpin] {
        for seed in 1..=20 {
            with_an_open_claim(&wait, seed, |pool| drop(pool.join().unwrap()));
        }
    }
}

/// Returns the number of sleeps of many workers that become idle at once, and stay idle.
fn sleeps_of_idle_workers(wait: &Wait, seed: u64, millis: u64) -> u64 {
    let machine = Machine { seed, jitter: 20, ..Machine::server("2x16".parse().unwrap()) };
    let body = || {
        let graph = Graph::new(64, || 0u64).wait(wait.clone());
        let key = graph.pool_updater("work", 12);
        let ring = graph.build().unwrap();
        let (tx, workers) = (ring.producer(), ring.pool_updaters(key));
        drop(ring);
        // The threads start one after the other, and begin together.
        let begin = now() + Duration::from_millis(2);
        scope(|scope| {
            for mut worker in workers {
                scope.spawn(move || {
                    work(begin.saturating_duration_since(now()));
                    worker.for_each(|_, _| ()).unwrap();
                });
            }
            work(Duration::from_millis(2 + millis));
            drop(tx);
        });
    };
    let report = Simulation::new(&machine).thread("main", body).run();
    report.unwrap_or_else(|error| panic!("{wait}, seed {seed}: {error}")).counts().sleeps
}

#[test]
fn idle_workers_stay_asleep() {
    for wait in [Wait::Blocking, Wait::ADAPTIVE] {
        for seed in 1..=10 {
            let [short, long] = [2, 4].map(|millis| sleeps_of_idle_workers(&wait, seed, millis));
            assert!(long <= short, "{wait}, seed {seed}: {short} sleeps, then {long}");
        }
    }
}
