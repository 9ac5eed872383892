//! Unchanged queues and rings, as threads that a simulation or a measurement runs.
//!
//! `instrumented.toml` has the compiler instrument this crate together with the contenders: most of
//! their code is generic, so it is compiled here.

mod threads;

use std::mem::ManuallyDrop;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use disruptor::{BusySpin, build_multi_producer, build_single_producer};
use ringbuf::HeapRb;
use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
pub use threads::{Body, Ends, Host, Seen, Shape, Spec, Threads, expected, threads};

/// Whether the compiler has instrumented this crate and the contenders.
pub const INSTRUMENTED: bool = cfg!(instrumented);

/// Returns the threads of a contender, or `None` if it has not this shape.
pub type Build = fn(Spec, Host) -> Option<Threads>;

/// The contenders by name.
pub const CONTENDERS: [(&str, Build); 6] = [
    ("rtrb", rtrb),
    ("ringbuf", ringbuf),
    ("crossbeam ArrayQueue", array_queue),
    ("crossbeam-channel", crossbeam_channel),
    ("disruptor", disruptor),
    ("slipring, instrumented", slipring),
];

/// Returns `n` clones.
fn clones<T: Clone>(value: &T, n: usize) -> Vec<T> {
    vec![value.clone(); n]
}

/// Returns whether there is one producer and one consumer.
fn is_unicast(spec: Spec) -> bool {
    spec.shape == Shape::Stream && spec.producers == 1
}

fn rtrb(spec: Spec, host: Host) -> Option<Threads> {
    let (mut tx, mut rx) = rtrb::RingBuffer::<u64>::new(spec.capacity);
    let send = move |event| tx.push(event).is_ok();
    let receive = move |seen: &mut Seen| {
        seen.receive(|seen| rx.pop().map(|event| seen.see(event)).is_ok());
    };
    is_unicast(spec).then(|| threads(spec, host, Ends::ByEvents, [send], [receive]))
}

fn ringbuf(spec: Spec, host: Host) -> Option<Threads> {
    let (mut tx, mut rx) = HeapRb::<u64>::new(spec.capacity).split();
    let send = move |event| tx.try_push(event).is_ok();
    let receive = move |seen: &mut Seen| {
        seen.receive(|seen| rx.try_pop().map(|event| seen.see(event)).is_some());
    };
    is_unicast(spec).then(|| threads(spec, host, Ends::ByEvents, [send], [receive]))
}

fn array_queue(spec: Spec, host: Host) -> Option<Threads> {
    let queue = Arc::new(ArrayQueue::<u64>::new(spec.capacity));
    let send = |queue: Arc<ArrayQueue<u64>>| move |event| queue.push(event).is_ok();
    let receive = |queue: Arc<ArrayQueue<u64>>| {
        move |seen: &mut Seen| {
            seen.receive(|seen| queue.pop().map(|event| seen.see(event)).is_some());
        }
    };
    let producers = clones(&queue, spec.producers).into_iter().map(send);
    let consumers = clones(&queue, spec.consumers).into_iter().map(receive);
    (spec.shape != Shape::Multicast)
        .then(|| threads(spec, host, Ends::ByEvents, producers, consumers))
}

fn crossbeam_channel(spec: Spec, host: Host) -> Option<Threads> {
    let (tx, rx) = crossbeam_channel::bounded::<u64>(spec.capacity);
    let send = |tx: crossbeam_channel::Sender<u64>| move |event| tx.try_send(event).is_ok();
    let receive = |rx: crossbeam_channel::Receiver<u64>| {
        move |seen: &mut Seen| {
            seen.receive(|seen| rx.try_recv().map(|event| seen.see(event)).is_ok());
        }
    };
    let producers = clones(&tx, spec.producers).into_iter().map(send);
    let consumers = clones(&rx, spec.consumers).into_iter().map(receive);
    (spec.shape != Shape::Multicast)
        .then(|| threads(spec, host, Ends::ByEvents, producers, consumers))
}

/// Returns the loop of a consumer of the `disruptor` crate. This is a macro, because the crate
/// exports no name for what its pollers have in common.
macro_rules! receive {
    ($poller:ident) => {
        move |seen: &mut Seen| {
            seen.receive(|seen| match $poller.poll() {
                Ok(mut events) => {
                    (&mut events).for_each(|event| seen.see(*event));
                    true
                }
                Err(_) => false,
            });
        }
    };
}

fn disruptor(spec: Spec, host: Host) -> Option<Threads> {
    if spec.shape == Shape::Pool {
        return None;
    }
    // The crate's producers wait for room by themselves. They are never dropped: their drop stores
    // under a lock of the standard library, and a simulation may switch to another thread there.
    fn send<P: disruptor::Producer<u64>>(producer: P) -> impl FnMut(u64) -> bool {
        let mut producer = ManuallyDrop::new(producer);
        move |event| {
            producer.publish(|slot| *slot = event);
            true
        }
    }
    if spec.producers > 1 {
        let ring = build_multi_producer(spec.capacity, || 0, BusySpin);
        let (mut poller, ring) = ring.new_event_poller();
        let producers = clones(&ring.build(), spec.producers).into_iter().map(send);
        return Some(threads(spec, host, Ends::ByEvents, producers, [receive!(poller)]));
    }
    let ring = build_single_producer(spec.capacity, || 0, BusySpin);
    let (mut poller, ring) = ring.new_event_poller();
    if spec.consumers == 1 {
        let producers = [send(ring.build())];
        return Some(threads(spec, host, Ends::ByEvents, producers, [receive!(poller)]));
    }
    let (second, mut ring) = ring.new_event_poller();
    let mut pollers = vec![poller, second];
    while pollers.len() < spec.consumers {
        let (poller, next) = ring.new_event_poller();
        pollers.push(poller);
        ring = next;
    }
    let consumers = pollers.into_iter().map(|mut poller| receive!(poller));
    Some(threads(spec, host, Ends::ByEvents, [send(ring.build())], consumers))
}

/// Defines the function `$name`, which returns the threads of the library that the crate `$library`
/// is: the real one, or the one that is compiled for the simulator. With `polls`, readers call
/// `poll`, and otherwise `for_each`.
#[macro_export]
macro_rules! slipring_threads {
    ($(#[$doc:meta])* $name:ident, $library:ident, polls: $polls:expr) => {
        $(#[$doc])*
        pub fn $name(spec: $crate::Spec, host: $crate::Host) -> Option<$crate::Threads> {
            use $crate::{Ends, Seen, Shape, threads};
            use $library::{Graph, Wait};

            let read = |mut rx: $library::Reader<u64>| {
                move |seen: &mut Seen| {
                    if $polls {
                        // The end is an error. A reader that is dropped before would fail the ring.
                        while let Ok(found) = rx.poll(64, |event, _| seen.see(*event)) {
                            if found == 0 {
                                (host.pause)();
                            }
                        }
                    } else {
                        rx.for_each(|event, _| seen.see(*event)).expect("no failure");
                    }
                }
            };
            let graph = Graph::new(spec.capacity, || 0u64).wait(Wait::BusySpin);
            let ends = Ends::Itself;
            if spec.producers > 1 {
                let graph = graph.shared();
                let key = graph.reader("reader");
                let ring = graph.build().expect("the graph is sound");
                let producers = (0..spec.producers).map(|_| {
                    let mut tx = ring.producer();
                    move |event| {
                        tx.publish(|slot| *slot = event).expect("the ring is open");
                        true
                    }
                });
                let receive = read(ring.reader(key));
                return Some(threads(spec, host, ends, producers, [receive]));
            }
            let send = |mut tx: $library::Producer<u64>| {
                move |event| {
                        tx.publish(|slot| *slot = event).expect("the ring is open");
                        true
                    }
            };
            if spec.shape == Shape::Pool {
                let key = graph.pool_reader("pool", spec.consumers);
                let ring = graph.build().expect("the graph is sound");
                let workers = ring.pool_readers(key).into_iter().map(|mut worker| {
                    move |seen: &mut Seen| {
                        worker.for_each(|event, _| seen.see(*event)).expect("no failure");
                    }
                });
                return Some(threads(spec, host, ends, [send(ring.producer())], workers));
            }
            let names = (0..spec.consumers).map(|number| format!("reader {number}"));
            let keys: Vec<_> = names.map(|name| graph.reader(&name)).collect();
            let ring = graph.build().expect("the graph is sound");
            let readers = keys.into_iter().map(|key| read(ring.reader(key)));
            Some(threads(spec, host, ends, [send(ring.producer())], readers))
        }
    };
}

slipring_threads!(
    /// Returns the threads of the library as its users compile it.
    any_slipring, slipring, polls: INSTRUMENTED
);

/// Returns the threads of the library as its users compile it.
///
/// Instrumented, it has one producer and no pool: a claim and a chunk depend on the real machine's
/// cores and clock. Its thread-locals are those of the one system thread, and the list of stages
/// whose handlers run would be that of all virtual threads, so readers call `poll`, which adds
/// nothing to it.
fn slipring(spec: Spec, host: Host) -> Option<Threads> {
    let is_right = !INSTRUMENTED || spec.shape != Shape::Pool && spec.producers == 1;
    // A warning of too few real cores would be printed under a lock of the standard library.
    slipring::waiting::on_warning(|_| ());
    is_right.then(|| any_slipring(spec, host))?
}
