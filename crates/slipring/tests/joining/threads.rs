//! Readers and workers that join count as threads of the graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Reader, Wait,
    errors::BatchError,
    handles::{PoolReader, StartAt},
    waiting::{WaitAction, WaitContext, WaitStrategy},
};

/// A strategy that notes whether the graph has more threads than cores.
#[derive(Debug, Default)]
struct Noting(AtomicBool);

impl WaitStrategy for Noting {
    fn next_action(&self, context: &WaitContext) -> WaitAction {
        self.0.store(context.oversubscribed, Relaxed);
        WaitAction::Yield
    }
    fn parks(&self) -> bool {
        false
    }
    fn alias(&self) -> String {
        "noting".into()
    }
}

/// Waits for an event that does not come; meanwhile the strategy notes the state of the graph.
macro_rules! wait {
    ($handle:expr) => {
        assert!(matches!(
            $handle.batch_by(1, Instant::now() + Duration::from_millis(1)),
            Err(BatchError::TimedOut(_))
        ))
    };
}

fn cores() -> usize {
    thread::available_parallelism().unwrap().get()
}

#[test]
fn members_of_a_tap_count_while_they_are_there() {
    let _watched = crate::common::watched();
    let strategy = Arc::new(Noting::default());
    let graph = Graph::new(8, || 0u64).wait(Wait::Custom(strategy.clone()));
    let (reader, tap) = (graph.reader("reader"), graph.tap("tap", cores()));
    let ring = graph.build().unwrap();
    let (_tx, mut reader, tap): (_, Reader<u64>, _) =
        (ring.producer(), ring.reader(reader), ring.tap(tap));
    let mut members = Vec::new();
    for threads in 2..=cores() + 1 {
        wait!(reader);
        assert_eq!(strategy.0.load(Relaxed), threads > cores(), "{threads} threads");
        members.push(tap.subscribe(StartAt::Now).unwrap());
    }
    wait!(reader);
    assert!(strategy.0.load(Relaxed), "two threads more than cores");
    drop(members);
    wait!(reader);
    assert_eq!(strategy.0.load(Relaxed), 2 > cores(), "all members have left");
}

#[test]
fn workers_that_joined_count_while_they_are_there() {
    let _watched = crate::common::watched();
    let strategy = Arc::new(Noting::default());
    let graph = Graph::new(8, || 0u64).wait(Wait::Custom(strategy.clone()));
    let key = graph.pool_reader("pool", 1).room(cores() + 1);
    let ring = graph.build().unwrap();
    let (_tx, mut first): (_, PoolReader<u64>) =
        (ring.producer(), ring.pool_readers(key).pop().unwrap());
    let pool = first.pool();
    let mut joined = Vec::new();
    for threads in 2..=cores() + 1 {
        wait!(first);
        assert_eq!(strategy.0.load(Relaxed), threads > cores(), "{threads} threads");
        joined.push(pool.join().unwrap());
    }
    drop(joined);
    wait!(first);
    assert_eq!(strategy.0.load(Relaxed), 2 > cores(), "all others have left");
}
