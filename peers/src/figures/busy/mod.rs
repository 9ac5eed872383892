//! A consumer whose handler works, behind a producer that does not: the ring is always full. This is
//! the normal state of many programs. The figures are the overhead above the handler's own work.

use std::hint::{black_box, spin_loop};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use disruptor::{BusySpin, ProcessorSettings, Producer as _, Sequence, build_single_producer};
use slipring::{Contiguous, Interleaved, Layout, Producer, Reader};
use slipring_support::machine::pin;

use crate::contenders::ours::GraphLayout;
use crate::contenders::queues::{
    self, Array, Crossfire, Queue, Ringbuf, Rtrb, drain, receive_each,
};
use crate::measure::{Contender, Figure, Kind, Size};
use crate::work::{Check, amount, steps, steps_for};

/// The parameters of a stream to a busy consumer.
#[derive(Clone, Copy)]
struct Spec {
    /// Capacity of the ring, in events.
    ring: usize,
    /// Number of timed events, behind a lap of the ring that is not timed.
    events: u64,
    /// Steps of the handler's work on an event.
    steps: u32,
}

impl Spec {
    fn all(&self) -> u64 {
        self.ring as u64 + self.events
    }
}

/// The consumer's side: checks each event, works on it, and times the events behind the first lap.
struct Busy {
    spec: Spec,
    check: Check,
    state: u64,
    begin: Option<Instant>,
    end: Option<Instant>,
}

impl Busy {
    fn new(spec: Spec) -> Self {
        Busy { spec, check: Check::default(), state: 1, begin: None, end: None }
    }
    /// Handles the next event.
    #[inline(always)]
    fn handle(&mut self, event: &u64) {
        self.check.see(event);
        steps(self.spec.steps, &mut self.state);
        let seen = self.check.seen();
        if seen == self.spec.ring as u64 {
            self.begin = Some(Instant::now());
        } else if seen == self.spec.all() {
            self.end = Some(Instant::now());
        }
    }
    /// Returns whether more events come.
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.check.seen() < self.spec.all()
    }
    /// Returns the nanoseconds per timed event.
    fn finish(&self) -> f64 {
        black_box(self.state);
        self.check.finish(self.spec.all());
        let (Some(begin), Some(end)) = (self.begin, self.end) else { panic!("events were lost") };
        end.duration_since(begin).as_nanos() as f64 / self.spec.events as f64
    }
}

/// Runs a producer on core 0 and a busy consumer on core 1. Returns the nanoseconds per event. The
/// closures own their handles, so that the threads share no cache line of one stack.
#[inline(always)]
fn run(
    spec: Spec,
    mut send: impl FnMut(u64) + Send,
    receive: impl FnOnce(&mut Busy) + Send,
) -> f64 {
    thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            pin(1);
            let mut busy = Busy::new(spec);
            receive(&mut busy);
            busy.finish()
        });
        scope.spawn(move || {
            pin(0);
            (1..=spec.all()).for_each(&mut send);
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

/// A consumer that slipring's own loop drives.
fn driven<L: Layout>(spec: Spec, (tx, mut rx): (Producer<u64, L>, Reader<u64, L>)) -> f64 {
    run(spec, publisher(tx), move |busy| {
        rx.for_each(|event, _| busy.handle(event)).expect("the stream ended with a failure");
    })
}

/// The library's loop, spinning.
fn for_each<L: GraphLayout>(spec: Spec) -> f64 {
    driven(spec, L::unicast(spec.ring))
}

/// The library's loop, with the default wait strategy.
fn for_each_default(spec: Spec) -> f64 {
    driven(spec, slipring::unicast(spec.ring, || 0u64).expect("the ring is sound"))
}

/// A loop of the user's own that polls.
fn poll<L: GraphLayout>(spec: Spec) -> f64 {
    let (tx, mut rx) = L::unicast::<u64>(spec.ring);
    run(spec, publisher(tx), move |busy| {
        while busy.is_open() {
            if rx.poll(usize::MAX, |event, _| busy.handle(event)).expect("the ring is open") == 0 {
                spin_loop();
            }
        }
    })
}

/// A loop of the user's own that takes batches of at most an eighth of the ring.
fn batches<L: GraphLayout>(spec: Spec) -> f64 {
    let (tx, mut rx) = L::unicast::<u64>(spec.ring);
    run(spec, publisher(tx), move |busy| {
        while busy.is_open() {
            match rx.try_batch(spec.ring / 8) {
                Ok(batch) => {
                    batch.iter().for_each(|event| busy.handle(event));
                    batch.release();
                }
                Err(_) => spin_loop(),
            }
        }
    })
}

/// A consumer that the `disruptor` crate drives on a thread of its own.
fn disruptor_thread(spec: Spec) -> f64 {
    let ended: Arc<OnceLock<f64>> = Arc::default();
    let end = ended.clone();
    let mut busy = Busy::new(spec);
    let handle = move |event: &u64, _: Sequence, _: bool| {
        busy.handle(event);
        if !busy.is_open() {
            let _ = end.set(busy.finish());
        }
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            // This thread is pinned after the ring is built: the crate checks the consumer's core
            // against the calling thread's affinity.
            let mut tx = build_single_producer(spec.ring, || 0u64, BusySpin)
                .pin_at_core(1)
                .handle_events_with(handle)
                .build();
            pin(0);
            (1..=spec.all()).for_each(|number| tx.publish(|slot| *slot = number));
            // Dropping the producer waits until all events are handled.
        });
    });
    *ended.get().expect("the consumer saw the last event")
}

/// A loop of the user's own that polls a ring of the `disruptor` crate.
fn disruptor_poller(spec: Spec) -> f64 {
    let (mut rx, builder) = build_single_producer(spec.ring, || 0u64, BusySpin).new_event_poller();
    let mut tx = builder.build();
    let send = move |number| tx.publish(|slot| *slot = number);
    run(spec, send, move |busy| {
        while busy.is_open() {
            match rx.poll() {
                Ok(mut events) => (&mut events).for_each(|event| busy.handle(event)),
                Err(_) => spin_loop(),
            }
        }
    })
}

/// A loop that receives from a queue one by one.
fn queue<Q: Queue<u64>>(spec: Spec) -> f64 {
    let (mut tx, mut rx) = Q::new(spec.ring);
    let send = move |number| queues::send::<u64, Q>(&mut tx, number);
    run(spec, send, move |busy| {
        drain(spec.all(), |max| receive_each::<u64, Q>(&mut rx, max, |event| busy.handle(event)));
    })
}

/// A loop that takes batches of at most an eighth of the queue, by the queue's own batch call.
fn queue_batches<Q: Queue<u64>>(spec: Spec) -> f64 {
    let (mut tx, mut rx) = Q::new(spec.ring);
    let send = move |number| queues::send::<u64, Q>(&mut tx, number);
    let most = spec.ring as u64 / 8;
    run(spec, send, move |busy| {
        drain(spec.all(), |max| {
            Q::receive_batch(&mut rx, max.min(most), |event| busy.handle(event))
        });
    })
}

/// Measures a stream to a busy consumer, in nanoseconds per event.
type Run = fn(Spec) -> f64;

/// Returns the figures of one busy stage.
pub fn figures(size: Size) -> Vec<Figure> {
    let mut figures = Vec::new();
    for ring in [64, 1024, 4096, 65_536] {
        figures.extend([0, 10, 50, 170, 700].map(|nanos| figure(size, ring, nanos)));
    }
    figures
}

fn figure(size: Size, ring: usize, nanos: u32) -> Figure {
    use Kind::{Ours, Peer};
    let full = 8_000_000 / u64::from(nanos + 10) + ring as u64;
    let spec = Spec { ring, events: size.pick(500, full / 3, full), steps: steps_for(nanos) };
    let all: [(Kind, &str, Run); 14] = [
        (Ours, "slipring, for_each", for_each::<Interleaved>),
        (Ours, "slipring, for_each, default wait", for_each_default),
        (Ours, "slipring, poll", poll::<Interleaved>),
        (Ours, "slipring, batch", batches::<Interleaved>),
        (Ours, "slipring contiguous, for_each", for_each::<Contiguous>),
        (Ours, "slipring contiguous, poll", poll::<Contiguous>),
        (Ours, "slipring contiguous, batch", batches::<Contiguous>),
        (Peer, "disruptor, thread", disruptor_thread),
        (Peer, "disruptor, poller", disruptor_poller),
        (Peer, "rtrb", queue::<Rtrb>),
        (Peer, "rtrb, batches", queue_batches::<Rtrb>),
        (Peer, "ringbuf, batches", queue_batches::<Ringbuf>),
        (Peer, "crossbeam ArrayQueue", queue::<Array>),
        (Peer, "crossfire", queue::<Crossfire>),
    ];
    let contender =
        |(kind, name, run): (Kind, &str, Run)| Contender::new(kind, name, move || run(spec));
    Figure {
        table: format!("busy consumer, full ring of {ring}, overhead"),
        column: amount(nanos),
        baseline: Some(Box::new(move || alone(spec))),
        contenders: all.into_iter().map(contender).collect(),
    }
}

/// Does the handler's work on one thread, without a hand-over.
fn alone(spec: Spec) -> f64 {
    let mut busy = Busy::new(spec);
    (1..=spec.all()).for_each(|number| busy.handle(&black_box(number)));
    busy.finish()
}
