//! Pools whose idle workers sleep: each event finds a worker, although a publication wakes as many
//! workers as it brings events, and not all that sleep.
//!
//! The events come in groups, each as large as the pool. A handler blocks until all events of its
//! group are being handled. So a worker that stays asleep although an event is left hangs the test.

use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, SharedProducer, Wait,
    errors::{BatchError, WaitError},
    handles::PoolReader,
    waiting::{WaitAction, WaitContext, WaitStrategy},
};

/// The groups whose events are being handled.
#[derive(Default)]
struct Groups {
    /// Number of events that workers have begun to handle.
    begun: Mutex<u64>,
    changed: Condvar,
}

impl Groups {
    /// Blocks until workers handle all events before the position `end`.
    fn wait(&self, end: u64) {
        let begun = self.begun.lock().unwrap();
        drop(self.changed.wait_while(begun, |begun| *begun < end).unwrap());
    }

    /// Handles an event of groups of `len`.
    fn handle(&self, event: u64, len: u64) {
        *self.begun.lock().unwrap() += 1;
        self.changed.notify_all();
        self.wait((event / len + 1) * len);
    }
}

/// Handles one event at a time until the end, and returns the number of events.
fn work(worker: &mut PoolReader<u64>, groups: &Groups, len: u64) -> u64 {
    let mut handled = 0;
    loop {
        match worker.batch(1) {
            Ok(batch) => {
                groups.handle(batch[0], len);
                batch.release();
                handled += 1;
            }
            Err(WaitError::TimedOut(_)) => {}
            Err(_) => return handled,
        }
    }
}

/// Publishes the group of `len` events that begins with `first`, in one of several ways.
fn publish(tx: &mut [SharedProducer<u64>; 2], first: u64, len: u64, way: u64) {
    let one =
        |tx: &mut SharedProducer<u64>, event| tx.publish(|slot| *slot = event).map(drop).unwrap();
    let batch = |tx: &mut SharedProducer<u64>, first, len| {
        let mut claim = tx.claim_n(len as usize).unwrap();
        (first..).zip(claim.iter_mut()).for_each(|(event, slot)| *slot = event);
        claim.publish();
    };
    let [left, right] = tx;
    match way % 4 {
        0 => batch(left, first, len),
        1 => (first..first + len).for_each(|event| one(left, event)),
        2 => {
            one(left, first);
            batch(right, first + 1, len - 1);
        }
        // The last publication makes all events available at once.
        _ => {
            let mut claim = left.claim().unwrap();
            *claim = first;
            batch(right, first + 1, len - 1);
            claim.publish();
        }
    }
}

/// A strategy of a user's own, which sleeps at once.
#[derive(Debug)]
struct Parks;

impl WaitStrategy for Parks {
    fn next_action(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Park
    }
    fn parks(&self) -> bool {
        true
    }
    fn alias(&self) -> String {
        "parks".into()
    }
}

fn strategies() -> Vec<Wait> {
    let aliases = ["blocking", "adaptive", "timeout:200us,blocking", "alternating-yield-block"];
    let custom = Wait::Custom(std::sync::Arc::new(Parks));
    aliases.map(|alias| alias.parse().unwrap()).into_iter().chain([custom]).collect()
}

/// Number of groups of one run.
fn groups() -> u64 {
    match std::env::var_os("SLIPRING_SOAK") {
        Some(_) => 20_000,
        None if cfg!(miri) => 8,
        None => 400,
    }
}

/// Runs groups through a pool of `len` workers, behind a stage if `behind`, while `guests` more
/// workers join, handle a few events, and leave. Returns the number of sleeps of an event.
fn run(wait: &Wait, len: usize, behind: bool, guests: usize) -> f64 {
    let graph = Graph::new(64, || 0u64).shared().wait(wait.clone());
    let mut pool = graph.pool_reader("work", len).room(len + guests);
    let first = behind.then(|| graph.reader("first"));
    if let Some(first) = &first {
        pool = pool.after(first);
    }
    let ring = graph.build().unwrap();
    let join = ring.pool(&pool);
    let first = first.map(|key| ring.reader(key));
    let mut tx = [ring.producer(), ring.producer()];
    let blocked = Groups::default();
    let workers = ring.pool_readers(pool);
    let (events, size) = (groups() * len as u64, len as u64);
    let handled: u64 = thread::scope(|scope| {
        let blocked = &blocked;
        let mut threads: Vec<_> = workers
            .into_iter()
            .map(|mut worker| scope.spawn(move || work(&mut worker, blocked, size)))
            .collect();
        threads.extend((0..guests).map(|guest| {
            let join = join.clone();
            scope.spawn(move || {
                let mut handled = 0;
                for visit in 0.. {
                    let Ok(mut worker) = join.join() else { break };
                    let soon = Instant::now() + Duration::from_micros(visit * 37 % 900);
                    match worker.batch_by(1, soon) {
                        // A guest that leaves its chunk leaves it to another worker.
                        Ok(_) if (visit + guest as u64).is_multiple_of(5) => {}
                        Ok(batch) => {
                            blocked.handle(batch[0], size);
                            batch.release();
                            handled += 1;
                        }
                        Err(BatchError::TimedOut(_)) => {}
                        Err(_) => break,
                    }
                }
                handled
            })
        }));
        if let Some(mut first) = first {
            scope.spawn(move || first.for_each(|_, _| ()).unwrap());
        }
        for group in 0..groups() {
            // In most groups, all workers sleep before the group comes.
            if group % 3 != 0 {
                thread::sleep(Duration::from_micros(300));
            }
            publish(&mut tx, group * size, size, group);
            blocked.wait((group + 1) * size);
        }
        drop(tx);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(handled, events, "{wait}: events were lost or handled twice");
    let report = ring.report();
    let stage = report.stages().iter().find(|stage| stage.name.as_str() == "work").unwrap();
    stage.wakes as f64 / events as f64
}

#[test]
fn no_event_is_left_while_workers_sleep() {
    let _watched = crate::common::watched();
    for wait in strategies() {
        for (len, behind, guests) in [(2, false, 0), (4, false, 0), (3, true, 0), (3, false, 2)] {
            let sleeps = run(&wait, len, behind, guests);
            println!(
                "{wait}: {len} workers, behind: {behind}, {guests} guests: {sleeps:.2} sleeps"
            );
        }
    }
}

/// A single event wakes a single worker.
#[test]
fn an_event_wakes_one_worker() {
    let _watched = crate::common::watched();
    for workers in [2, 4, 8] {
        let graph = Graph::new(64, || 0u64).wait(Wait::Blocking);
        let key = graph.pool_reader("work", workers);
        let ring = graph.build().unwrap();
        let mut tx = ring.producer();
        let events = if cfg!(miri) { 3 } else { 100 };
        thread::scope(|scope| {
            for mut worker in ring.pool_readers(key) {
                scope.spawn(move || worker.for_each(|_, _| ()).unwrap());
            }
            for event in 0..events {
                thread::sleep(Duration::from_millis(1));
                tx.publish(|slot| *slot = event).unwrap();
            }
            drop(tx);
        });
        let report = ring.report();
        let stage = &report.stages()[0];
        println!("{workers} workers: {} sleeps of {events} events", stage.wakes);
        assert_eq!(stage.events, events);
        // A worker may also fall asleep before it sees an event, or at the end.
        assert!(stage.wakes <= 2 * (events + workers as u64), "{} sleeps", stage.wakes);
    }
}
