//! A consumer whose handler works, the normal state of many programs. The handler's own work hides
//! no cost of the ring: a busy consumer pays for each release and each wait with time in which it
//! handles no event.
//!
//! - [`full`]: the producer does not work, so the ring is always full.
//! - [`uneven`]: the ring is always full, as in [`full`], but the handler is slow now and then.
//! - [`open`]: events arrive at random times, whether or not the consumer keeps up.
//! - [`shapes`]: a pipeline of two busy stages behind a full ring.
//!
//! The figures of a busy pool are in [`super::pools`], with those of the other pools.

pub mod full;
pub mod open;
pub mod shapes;
pub mod uneven;

use std::hint::spin_loop;
use std::sync::{Arc, OnceLock};
use std::thread;

use disruptor::{BusySpin, ProcessorSettings, Producer as _, Sequence, build_single_producer};
use slipring::{
    Graph, Producer, Reader, Wait,
    markers::{Contiguous, Interleaved, Layout},
};
use slipring_machine::pin;

use crate::contenders::gil::Gil;
use crate::contenders::ours::GraphLayout;
use crate::contenders::queues::{
    self, Array, Crossfire, Queue, Ringbuf, Rtrb, Yring, drain, receive_each,
};
use crate::measure::{Contender, ContenderKind, Values};

/// Capacities of the rings, in events.
pub const RINGS: [usize; 4] = [64, 1024, 4096, 65_536];

/// A stream of numbered events from a producer on core 0 to a busy consumer on core 1.
trait Stream: Copy + Send + Sync + 'static {
    /// The consumer's side.
    type Consumer: Consumer;
    /// Returns the capacity of the ring, in events.
    fn ring(&self) -> usize;
    /// Returns the number of events.
    fn events(&self) -> u64;
    /// Makes the consumer's side.
    fn consumer(&self) -> Self::Consumer;
    /// Publishes all events through `send`, which waits while the ring is full.
    fn produce(&self, send: impl FnMut(u64));
}

/// The consumer's side of a stream.
trait Consumer: Send + 'static {
    /// Handles the next event.
    fn handle(&mut self, event: &u64);
    /// Returns whether more events come.
    fn is_open(&self) -> bool;
    /// Checks the events, and returns the values of the run.
    fn finish(&self) -> Values;
}

/// Runs a producer on core 0 and a busy consumer on core 1. The closures own their handles, so that
/// the threads share no cache line of one stack.
#[inline(always)]
fn run<S: Stream>(
    stream: S,
    send: impl FnMut(u64) + Send,
    receive: impl FnOnce(&mut S::Consumer) + Send,
) -> Values {
    thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            pin(1);
            let mut consumer = stream.consumer();
            receive(&mut consumer);
            consumer.finish()
        });
        scope.spawn(move || {
            pin(0);
            stream.produce(send);
        });
        consumer.join().expect("the consumer panicked")
    })
}

/// Returns a closure that publishes an event.
fn publisher<L: Layout>(mut tx: Producer<u64, L>) -> impl FnMut(u64) + Send {
    move |number| {
        tx.publish(|slot| *slot = number).expect("the ring is open");
    }
}

/// Runs a consumer that slipring's own loop drives.
fn driven<S: Stream, L: Layout>(
    stream: S,
    (tx, mut rx): (Producer<u64, L>, Reader<u64, L>),
) -> Values {
    run(stream, publisher(tx), move |consumer| {
        rx.for_each(|event, _| consumer.handle(event)).expect("the stream ended with a failure");
    })
}

/// Runs the library's loop, which spins.
fn for_each<S: Stream, L: GraphLayout>(stream: S) -> Values {
    driven(stream, L::unicast(stream.ring()))
}

/// Runs the library's loop with the default wait strategy.
fn for_each_default<S: Stream>(stream: S) -> Values {
    driven(stream, slipring::unicast(stream.ring(), || 0u64).expect("the ring is sound"))
}

/// Runs the library's loop with the wait strategy that sleeps after 200 polls.
fn for_each_blocking<S: Stream>(stream: S) -> Values {
    let graph = Graph::new(stream.ring(), || 0u64).wait(Wait::Blocking);
    let key = graph.reader("reader");
    let ring = graph.build().expect("the graph is sound");
    driven(stream, (ring.producer(), ring.reader(key)))
}

/// Runs a hand-written loop that polls.
fn poll<S: Stream, L: GraphLayout>(stream: S) -> Values {
    let (tx, mut rx) = L::unicast::<u64>(stream.ring());
    run(stream, publisher(tx), move |consumer| {
        while consumer.is_open() {
            let handle = |event: &u64, _| consumer.handle(event);
            if rx.poll(usize::MAX, handle).expect("the ring is open") == 0 {
                spin_loop();
            }
        }
    })
}

/// Runs a hand-written loop that takes batches of at most a quarter of the ring.
fn batches<S: Stream, L: GraphLayout>(stream: S) -> Values {
    let (tx, mut rx) = L::unicast::<u64>(stream.ring());
    run(stream, publisher(tx), move |consumer| {
        while consumer.is_open() {
            match rx.try_batch(stream.ring() / 4) {
                Ok(batch) => {
                    batch.iter().for_each(|event| consumer.handle(event));
                    batch.release();
                }
                Err(_) => spin_loop(),
            }
        }
    })
}

/// Does the same as `batches`, but waits with the default strategy.
fn batches_default<S: Stream>(stream: S) -> Values {
    let (tx, mut rx) = slipring::unicast(stream.ring(), || 0u64).expect("the ring is sound");
    run(stream, publisher(tx), move |consumer| {
        while consumer.is_open() {
            let batch = rx.batch(stream.ring() / 4).expect("the ring is open");
            batch.iter().for_each(|event| consumer.handle(event));
            batch.release();
        }
    })
}

/// Runs a consumer on a thread that the `disruptor` crate starts for it.
fn disruptor_thread<S: Stream>(stream: S) -> Values {
    let ended: Arc<OnceLock<Values>> = Arc::default();
    let end = ended.clone();
    let mut consumer = stream.consumer();
    let handle = move |event: &u64, _: Sequence, _: bool| {
        consumer.handle(event);
        if !consumer.is_open() {
            let _ = end.set(consumer.finish());
        }
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            // This thread is pinned after the ring is built: the crate checks the consumer's core
            // against the calling thread's affinity.
            let mut tx = build_single_producer(stream.ring(), || 0u64, BusySpin)
                .pin_at_core(1)
                .handle_events_with(handle)
                .build();
            pin(0);
            stream.produce(|number| tx.publish(|slot| *slot = number));
            // The producer is dropped here, which waits until all events are handled.
        });
    });
    ended.get().expect("the consumer saw the last event").clone()
}

/// Runs a hand-written loop that polls a ring of the `disruptor` crate.
fn disruptor_poller<S: Stream>(stream: S) -> Values {
    let (mut rx, builder) =
        build_single_producer(stream.ring(), || 0u64, BusySpin).new_event_poller();
    let mut tx = builder.build();
    let send = move |number| tx.publish(|slot| *slot = number);
    run(stream, send, move |consumer| {
        while consumer.is_open() {
            match rx.poll() {
                Ok(mut events) => (&mut events).for_each(|event| consumer.handle(event)),
                Err(_) => spin_loop(),
            }
        }
    })
}

/// Runs a loop that receives events from a queue one by one.
fn queue<S: Stream, Q: Queue<u64>>(stream: S) -> Values {
    let (mut tx, mut rx) = Q::new(stream.ring());
    let send = move |number| queues::send::<u64, Q>(&mut tx, number);
    run(stream, send, move |consumer| {
        drain(stream.events(), |max| {
            receive_each::<u64, Q>(&mut rx, max, |event| consumer.handle(event))
        });
    })
}

/// Runs a loop that takes batches of at most a quarter of the queue through the queue's own batch
/// call.
fn queue_batches<S: Stream, Q: Queue<u64>>(stream: S) -> Values {
    let (mut tx, mut rx) = Q::new(stream.ring());
    let send = move |number| queues::send::<u64, Q>(&mut tx, number);
    let most = stream.ring() as u64 / 4;
    run(stream, send, move |consumer| {
        drain(stream.events(), |max| {
            Q::receive_batch(&mut rx, max.min(most), |event| consumer.handle(event))
        });
    })
}

/// A function that runs a stream.
type StreamRun<S> = fn(S) -> Values;

/// Returns the contenders of a stream.
fn contenders<S: Stream>(stream: S) -> Vec<Contender> {
    use ContenderKind::{Ours, Peer};
    let all: [(ContenderKind, &str, StreamRun<S>); 20] = [
        (Ours, "slipring, for_each", for_each::<S, Interleaved>),
        (Ours, "slipring, for_each, default wait", for_each_default),
        (Ours, "slipring, for_each, blocking wait", for_each_blocking),
        (Ours, "slipring, poll", poll::<S, Interleaved>),
        (Ours, "slipring, batch", batches::<S, Interleaved>),
        (Ours, "slipring, batch, default wait", batches_default),
        (Ours, "slipring contiguous, for_each", for_each::<S, Contiguous>),
        (Ours, "slipring contiguous, poll", poll::<S, Contiguous>),
        (Ours, "slipring contiguous, batch", batches::<S, Contiguous>),
        (Peer, "disruptor, thread", disruptor_thread),
        (Peer, "disruptor, poller", disruptor_poller),
        (Peer, "rtrb", queue::<S, Rtrb>),
        (Peer, "rtrb, batches", queue_batches::<S, Rtrb>),
        (Peer, "yring", queue::<S, Yring>),
        (Peer, "yring, batches", queue_batches::<S, Yring>),
        (Peer, "gil", queue::<S, Gil>),
        (Peer, "gil, batches", queue_batches::<S, Gil>),
        (Peer, "ringbuf, batches", queue_batches::<S, Ringbuf>),
        (Peer, "crossbeam ArrayQueue", queue::<S, Array>),
        (Peer, "crossfire", queue::<S, Crossfire>),
    ];
    let contender = |(kind, name, run): (ContenderKind, &str, StreamRun<S>)| {
        Contender::with_metrics(kind, name, move || run(stream))
    };
    all.into_iter().map(contender).collect()
}
