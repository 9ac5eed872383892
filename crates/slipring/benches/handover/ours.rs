//! The same work through the library.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use slipring::{Contiguous, Graph, Inside, Layout, Producer, Reader, Wait};

use crate::{pin, work};

/// A layout that a graph can be switched to.
pub trait Chosen: Layout {
    fn unicast(capacity: usize) -> (Producer<u64, Self>, Reader<u64, Self>);
}

impl Chosen for Inside {
    fn unicast(capacity: usize) -> (Producer<u64>, Reader<u64>) {
        let graph = Graph::new(capacity, || 0u64).wait(Wait::BusySpin);
        let reader = graph.reader("reader");
        let ring = graph.build().expect("the graph is sound");
        (ring.producer(), ring.reader(reader))
    }
}

impl Chosen for Contiguous {
    fn unicast(capacity: usize) -> (Producer<u64, Contiguous>, Reader<u64, Contiguous>) {
        let graph = Graph::new(capacity, || 0u64).wait(Wait::BusySpin).contiguous();
        let reader = graph.reader("reader");
        let ring = graph.build().expect("the graph is sound");
        (ring.producer(), ring.reader(reader))
    }
}

pub fn stream<L: Chosen>(capacity: usize, events: u64, batch: u64, steps: u32) -> f64 {
    let (mut tx, mut rx) = L::unicast(capacity);
    let ready = AtomicBool::new(false);
    let (took, sum) = thread::scope(|scope| {
        let ready = &ready;
        let consumer = scope.spawn(move || {
            pin(1);
            ready.store(true, Ordering::Release);
            let (mut sum, mut expected) = (0u64, 0);
            rx.for_each(|value, at| {
                sum = sum.wrapping_add(*value);
                expected += u64::from(at.seq + 1 == *value);
            })
            .expect("the stream ends well");
            assert_eq!(expected, events);
            sum
        });
        pin(0);
        while !ready.load(Ordering::Acquire) {
            spin_loop();
        }
        let mut state = 1;
        let begin = Instant::now();
        if batch == 1 {
            for i in 1..=events {
                work(steps, &mut state);
                tx.publish(|slot| *slot = i).expect("the ring is open");
            }
        } else {
            let mut next = 1;
            while next <= events {
                work(steps, &mut state);
                let mut slots = tx.claim_n(batch.min(events - next + 1) as usize).expect("the ring is open");
                for slot in slots.iter_mut() {
                    *slot = next;
                    next += 1;
                }
                slots.publish();
            }
        }
        tx.close();
        black_box(state);
        let sum = consumer.join().expect("the consumer ends");
        (begin.elapsed(), sum)
    });
    assert_eq!(sum, events * (events + 1) / 2);
    took.as_nanos() as f64 / events as f64
}

pub fn round_trip<L: Chosen>(rounds: usize) -> Vec<u64> {
    let ((mut tx, mut rx), (mut tx_back, mut rx_back)) = (L::unicast(1024), L::unicast(1024));
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            rx.for_each(|value, _| {
                tx_back.publish(|slot| *slot = *value).expect("the ring is open");
            })
            .expect("the stream ends well");
        });
        pin(0);
        let times = (1..=rounds as u64)
            .map(|i| {
                let begin = Instant::now();
                tx.publish(|slot| *slot = i).expect("the ring is open");
                let mut value = 0;
                while rx_back.poll(1, |v, _| value = *v).expect("the ring is open") == 0 {
                    spin_loop();
                }
                let took = begin.elapsed();
                assert_eq!(value, i);
                took.as_nanos() as u64
            })
            .collect();
        tx.close();
        drop(rx_back.for_each(|_, _| ()));
        times
    })
}
