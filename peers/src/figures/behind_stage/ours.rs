//! A stage that follows another stage in slipring, and for comparison the first stage alone.

use std::thread;

use slipring::{
    Graph, Wait,
    markers::{Contiguous, Interleaved, Layout},
};

use slipring_machine::{pin, unpin};

use crate::figures::oversubscribed::timing::Timing;

/// A layout that a graph can be built with.
pub trait GraphLayout: Layout {
    /// Returns a graph of this layout whose stages spin.
    fn graph(capacity: usize) -> Graph<'static, u64, Self>
    where
        Self: Sized;
}

impl GraphLayout for Interleaved {
    fn graph(capacity: usize) -> Graph<'static, u64> {
        Graph::new(capacity, || 0u64).wait(Wait::BusySpin)
    }
}

impl GraphLayout for Contiguous {
    fn graph(capacity: usize) -> Graph<'static, u64, Contiguous> {
        Graph::new(capacity, || 0u64).wait(Wait::BusySpin).contiguous()
    }
}

/// Measures the hand-over from the first to the second stage. One thread publishes one by one and
/// polls the first stage after every `every` events; another thread runs the second stage.
pub fn second<L: GraphLayout>(capacity: usize, events: u64, every: u64, steps: u32) -> f64 {
    let graph = L::graph(capacity);
    let first = graph.reader("first");
    let second = graph.reader("second").after(&first);
    let ring = graph.build().expect("the graph is sound");
    let (mut tx, mut first, mut second) =
        (ring.producer(), ring.reader(first), ring.reader(second));
    let timing = Timing::new(2, events);
    let (mut sees_first, mut sees_second) = (timing.stage::<1>(), timing.stage::<1>());
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            second
                .for_each(|event, _| sees_second.see(event))
                .expect("the stream ended with a failure");
        });
        pin(0);
        let mut unhandled = 0;
        timing.produce(steps, |event| {
            tx.publish(|slot| *slot = event).expect("the ring is open");
            unhandled += 1;
            // The first event is handled at once, because it starts the clock; the last events are
            // handled even if there are fewer than `every`.
            if unhandled == every || event == events || event == 1 {
                let done = first
                    .poll(every as usize, |event, _| sees_first.see(event))
                    .expect("the ring is open");
                assert_eq!(done as u64, unhandled, "this thread's own events are there");
                unhandled = 0;
            }
        });
        // The ring must close before the first stage's handle is dropped.
        tx.close();
        drop((first, sees_first));
    });
    unpin();
    timing.result()
}

/// Measures the hand-over from the producer to the first stage, each on its own thread.
pub fn first<L: GraphLayout>(capacity: usize, events: u64, steps: u32) -> f64 {
    let graph = L::graph(capacity);
    let reader = graph.reader("only");
    let ring = graph.build().expect("the graph is sound");
    let (mut tx, mut reader) = (ring.producer(), ring.reader(reader));
    let timing = Timing::new(1, events);
    let mut sees = timing.stage::<1>();
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            reader.for_each(|event, _| sees.see(event)).expect("the stream ended with a failure");
        });
        pin(0);
        timing.produce(steps, |event| {
            tx.publish(|slot| *slot = event).expect("the ring is open");
        });
        tx.close();
    });
    unpin();
    timing.result()
}
