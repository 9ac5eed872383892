//! A stage behind a stage through the library, and the first hand-over beside it.

use std::thread;

use slipring::{Contiguous, Graph, Interleaved, Layout, Wait};

use crate::figures::oversubscribed::line::Line;
use crate::machine::{pin, unpin};

/// A layout that a graph can be switched to.
pub trait Chosen: Layout {
    /// A graph of this layout whose stages spin.
    fn graph(capacity: usize) -> Graph<u64, Self>
    where
        Self: Sized;
}

impl Chosen for Interleaved {
    fn graph(capacity: usize) -> Graph<u64> {
        Graph::new(capacity, || 0u64).wait(Wait::BusySpin)
    }
}

impl Chosen for Contiguous {
    fn graph(capacity: usize) -> Graph<u64, Contiguous> {
        Graph::new(capacity, || 0u64).wait(Wait::BusySpin).contiguous()
    }
}

/// One thread publishes one by one and is the first stage too, which it polls after every `every`
/// events; another thread is the second stage.
pub fn second<L: Chosen>(capacity: usize, events: u64, every: u64, steps: u32) -> f64 {
    let graph = L::graph(capacity);
    let first = graph.reader("first");
    let second = graph.reader("second").after(&first);
    let ring = graph.build().expect("the graph is sound");
    let (mut tx, mut first, mut second) = (ring.producer(), ring.reader(first), ring.reader(second));
    let line = Line::new(2, events);
    let (mut sees_first, mut sees_second) = (line.stage::<1>(), line.stage::<1>());
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            second.for_each(|event, _| sees_second.see(event)).expect("the stream ends well");
        });
        pin(0);
        let mut unhandled = 0;
        line.produce(steps, |event| {
            tx.publish(|slot| *slot = event).expect("the ring is open");
            unhandled += 1;
            // The first event is awaited, and the last ones must not stay behind.
            if unhandled == every || event == events || event == 1 {
                let done = first.poll(every as usize, |event, _| sees_first.see(event)).expect("the ring is open");
                assert_eq!(done as u64, unhandled, "this thread's own events are there");
                unhandled = 0;
            }
        });
        // Closed before the first stage's handle goes: it has seen all there will be.
        tx.close();
        drop((first, sees_first));
    });
    unpin();
    line.result()
}

/// The hand-over that the producer makes itself: one thread publishes, and another is the only
/// stage.
pub fn first<L: Chosen>(capacity: usize, events: u64, steps: u32) -> f64 {
    let graph = L::graph(capacity);
    let reader = graph.reader("only");
    let ring = graph.build().expect("the graph is sound");
    let (mut tx, mut reader) = (ring.producer(), ring.reader(reader));
    let line = Line::new(1, events);
    let mut sees = line.stage::<1>();
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            reader.for_each(|event, _| sees.see(event)).expect("the stream ends well");
        });
        pin(0);
        line.produce(steps, |event| {
            tx.publish(|slot| *slot = event).expect("the ring is open");
        });
        tx.close();
    });
    unpin();
    line.result()
}
