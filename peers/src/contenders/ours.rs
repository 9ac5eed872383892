//! One producer and one consumer in slipring.

use std::hint::spin_loop;

use slipring::{
    Graph, Producer, Reader, Wait,
    markers::{Contiguous, Interleaved, Layout},
};

use super::{Rounds, Sides, StreamSpec, ping_pong, run_stream};
use crate::work::{Check, Event};

/// A layout that a graph can be built with.
pub trait GraphLayout: Layout {
    /// Builds a ring with one reader.
    fn unicast<E: Event>(capacity: usize) -> (Producer<E, Self>, Reader<E, Self>);
}

impl GraphLayout for Interleaved {
    fn unicast<E: Event>(capacity: usize) -> (Producer<E>, Reader<E>) {
        let graph = Graph::new(capacity, E::default).wait(Wait::BusySpin);
        let reader = graph.reader("reader");
        let ring = graph.build().expect("the graph is sound");
        (ring.producer(), ring.reader(reader))
    }
}

impl GraphLayout for Contiguous {
    fn unicast<E: Event>(capacity: usize) -> (Producer<E, Contiguous>, Reader<E, Contiguous>) {
        let graph = Graph::new(capacity, E::default).wait(Wait::BusySpin).contiguous();
        let reader = graph.reader("reader");
        let ring = graph.build().expect("the graph is sound");
        (ring.producer(), ring.reader(reader))
    }
}

#[inline(always)]
fn send_batch<E: Event, L: Layout>(tx: &mut Producer<E, L>, first: u64, len: u64) {
    let mut slots = tx.claim_n(len as usize).expect("the ring is open");
    let mut number = first;
    // `for_each` tests once whether the slots wrap around the end of the ring. A `for` loop would
    // test at each slot.
    slots.iter_mut().for_each(|slot| {
        slot.fill(number);
        number += 1;
    });
    slots.publish();
}

/// Measures a stream.
pub fn stream<E: Event, L: GraphLayout>(spec: StreamSpec) -> f64 {
    let (mut tx, mut rx) = L::unicast::<E>(spec.ring);
    let receive = move |_, check: &mut Check| {
        rx.for_each(|event, _| check.see(event)).expect("the stream ended with a failure");
    };
    // The producer is moved into its thread, where dropping it closes the ring.
    if spec.batch == 1 {
        let send = move |number, _| {
            tx.publish(|slot| slot.fill(number)).expect("the ring is open");
        };
        return run_stream(spec, Sides { send, close: || (), receive });
    }
    let send = move |first, len| send_batch(&mut tx, first, len);
    run_stream(spec, Sides { send, close: || (), receive })
}

/// Measures a stream one by one through a producer that several threads can share.
pub fn shared_stream(spec: StreamSpec) -> f64 {
    let graph = Graph::new(spec.ring, || 0u64).wait(Wait::BusySpin).shared();
    let reader = graph.reader("reader");
    let ring = graph.build().expect("the graph is sound");
    let (mut tx, mut rx) = (ring.producer(), ring.reader(reader));
    drop(ring);
    let receive = move |_, check: &mut Check| {
        rx.for_each(|event, _| check.see(event)).expect("the stream ended with a failure");
    };
    let send = move |number, _| {
        tx.publish(|slot| *slot = number).expect("the ring is open");
    };
    run_stream(spec, Sides { send, close: || (), receive })
}

/// Measures a stream in batches. The consumer takes batches, and no callback is called per event.
pub fn batches<L: GraphLayout>(spec: StreamSpec) -> f64 {
    let (mut tx, mut rx) = L::unicast::<u64>(spec.ring);
    let receive = move |events, check: &mut Check| {
        while check.seen() < events {
            match rx.try_batch(spec.ring / 8) {
                Ok(batch) => {
                    batch.iter().for_each(|event| check.see(event));
                    batch.release();
                }
                Err(_) => spin_loop(),
            }
        }
    };
    let send = move |first, len| send_batch(&mut tx, first, len);
    run_stream(spec, Sides { send, close: || (), receive })
}

/// Measures round trips through two rings whose waiting sides call `batch`.
pub fn round_trip_by_batches(rounds: Rounds, wait: Wait) -> Vec<u64> {
    let ring = |wait| {
        let graph = Graph::new(1024, || 0u64).wait(wait);
        let reader = graph.reader("reader");
        let ring = graph.build().expect("the graph is sound");
        (ring.producer(), ring.reader(reader))
    };
    fn receive(rx: &mut Reader<u64>) -> u64 {
        let batch = rx.batch(1).expect("the ring is open");
        let number = batch[0];
        batch.release();
        number
    }
    let ((mut tx, mut rx), (mut tx_back, mut rx_back)) = (ring(wait.clone()), ring(wait));
    ping_pong(
        rounds,
        move || {
            for _ in 0..rounds.count {
                let number = receive(&mut rx);
                tx_back.publish(|slot| *slot = number).expect("the ring is open");
            }
        },
        move |number| {
            tx.publish(|slot| *slot = number).expect("the ring is open");
            receive(&mut rx_back)
        },
    )
}

/// Measures round trips through two rings.
pub fn round_trip<L: GraphLayout>(rounds: Rounds) -> Vec<u64> {
    let (mut tx, mut rx) = L::unicast::<u64>(1024);
    let (mut tx_back, mut rx_back) = L::unicast::<u64>(1024);
    ping_pong(
        rounds,
        move || {
            let mut left = rounds.count;
            rx.for_each(|number, _| {
                tx_back.publish(|slot| *slot = *number).expect("the ring is open");
                left -= 1;
            })
            .expect("the stream ended with a failure");
            assert_eq!(left, 0);
        },
        move |number| {
            tx.publish(|slot| *slot = number).expect("the ring is open");
            let mut answer = 0;
            while rx_back.poll(1, |number, _| answer = *number).expect("the ring is open") == 0 {
                spin_loop();
            }
            answer
        },
    )
}
