//! Producers that claim slots early, while their ring fills, drains and closes: nothing hangs, and
//! each published event is read, in the order of its producer.
//!
//! On a machine with fewer cores than producers, early claims are rare. On virtual cores they are
//! not, and each seed delays other accesses.

use std::cell::RefCell;
use std::time::Duration;

use slipring_coherence::sync::scope;
use slipring_coherence::{Lines, Machine, Simulation, work};
use slipring_simulated::{Graph, SharedProducer, Wait, errors::WaitError};

#[global_allocator]
static LINES: Lines = Lines;

/// Number of schedules for each program.
const SEEDS: u64 = 120;

/// The events that the reader has seen, and the number of events that each producer has published.
struct Run {
    seen: Vec<(usize, u64)>,
    published: Vec<u64>,
}

impl Run {
    fn assert_whole(&self) {
        for (producer, &published) in self.published.iter().enumerate() {
            let own = self.seen.iter().filter(|(by, _)| *by == producer).map(|(_, number)| *number);
            assert!(
                own.eq(0..published),
                "an event of producer {producer} is lost, or out of order"
            );
        }
        assert_eq!(self.seen.len() as u64, self.published.iter().sum::<u64>());
    }
}

/// Publishes until the ring is closed, and returns the number of published events.
fn publish_until_closed(mut tx: SharedProducer<(usize, u64)>, by: usize) -> u64 {
    let mut published = 0;
    loop {
        match tx.publish(|slot| *slot = (by, published)) {
            Ok(_) => published += 1,
            Err(WaitError::Closed) => return published,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Runs `producers` producers that publish until another thread closes the ring, after `open`. If
/// `drains_late`, no event is read before all producers have returned.
fn close_while_publishing(
    seed: u64,
    wait: &Wait,
    capacity: usize,
    producers: usize,
    open: Duration,
    drains_late: bool,
) -> Run {
    let machine = Machine { seed, jitter: 20, ..Machine::server("2x16".parse().unwrap()) };
    let result = RefCell::new(None);
    let body = || {
        let graph = Graph::new(capacity, || (0, 0)).shared().wait(wait.clone());
        let key = graph.reader("read");
        let ring = graph.build().unwrap();
        let handles: Vec<_> = (0..producers).map(|_| ring.producer()).collect();
        let (closer, mut rx) = (ring.producer(), ring.reader(key));
        drop(ring);
        let mut seen = Vec::new();
        let published = scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(handles)
                .map(|(by, tx)| scope.spawn(move || publish_until_closed(tx, by)))
                .collect();
            let join = || threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            scope.spawn(move || {
                work(open);
                closer.close_all();
            });
            let mut read = || rx.for_each(|&event, _| seen.push(event)).map(drop).unwrap();
            if drains_late {
                let published = join();
                read();
                published
            } else {
                read();
                join()
            }
        });
        *result.borrow_mut() = Some(Run { seen, published });
    };
    let report = Simulation::new(&machine).thread("main", body).run();
    report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    result.into_inner().expect("the thread has ended")
}

fn for_each_seed(wait: &Wait, drains_late: bool) {
    for seed in 1..=SEEDS {
        let (capacity, producers) = (1 << (seed % 5), 2 + (seed % 7) as usize);
        let open = Duration::from_nanos(200 + seed * 97 % 5_000);
        close_while_publishing(seed, wait, capacity, producers, open, drains_late).assert_whole();
    }
}

#[test]
fn a_close_loses_nothing_while_producers_spin() {
    for_each_seed(&Wait::BusySpin, false);
}

#[test]
fn a_close_loses_nothing_while_producers_sleep() {
    for_each_seed(&Wait::Blocking, false);
}

#[test]
fn a_close_loses_nothing_with_the_default_strategy() {
    for_each_seed(&Wait::ADAPTIVE, false);
}

/// The producers wait at a full ring, and return although no stage reads.
#[test]
fn a_close_frees_producers_at_a_ring_without_a_reader() {
    for wait in [Wait::BusySpin, Wait::Blocking, Wait::ADAPTIVE] {
        for_each_seed(&wait, true);
    }
}
