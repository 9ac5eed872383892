//! Several producers, each with a slipring ring of its own, and one thread that merges the rings.
//! This is a rejected alternative to shared producers.

use std::thread;

use alternatives::lanes;
use slipring::{Graph, Producer, Wait};

use super::RING;
use super::timing::{Timing, TwoCores};

/// Runs several producers, each with `steps` of work between two events. The merging thread is the
/// only stage, or it moves the events to a further ring that has one stage.
pub fn many_to_one<const PRODUCERS: usize>(ring_behind: bool, events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::with_producers(PRODUCERS, 1, events / PRODUCERS as u64);
    let mut stage = timing.stage::<PRODUCERS>();
    let (mut producers, mut lanes) =
        lanes(PRODUCERS, RING, &Wait::YIELDING, || 0u64).expect("the graphs are sound");
    thread::scope(|scope| {
        if ring_behind {
            let graph = Graph::new(RING, || 0u64).wait(Wait::YIELDING);
            let key = graph.reader("behind");
            let ring = graph.build().expect("the graph is sound");
            let (mut to, mut behind) = (ring.producer(), ring.reader(key));
            scope.spawn(move || behind.for_each(|event, _| stage.see(event)));
            scope.spawn(move || {
                let take = |slot: &mut u64, event: &u64| *slot = *event;
                while lanes.forward(&mut to, take).expect("the rings are open") {}
            });
        } else {
            scope.spawn(
                move || {
                    while lanes.poll(|event| stage.see(event)).expect("the lanes are open") {}
                },
            );
        }
        let timing = &timing;
        let produce = move |producer: usize, mut tx: Producer<u64>| {
            timing.produce_as(producer as u64, steps, |event| {
                tx.publish(|slot| *slot = event).expect("the ring is open");
            });
        };
        for (producer, tx) in producers.drain(1..).enumerate() {
            scope.spawn(move || produce(producer + 1, tx));
        }
        producers.into_iter().for_each(|tx| produce(0, tx));
    });
    timing.result()
}
