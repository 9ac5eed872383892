//! Scales the slots of the ring and the bytes of an event, between two threads that have a core
//! each.
//!
//! Events of many bytes are filled in their slots where the contender's interface allows that.
//! `rtrb` copies each event twice in its `push` and `pop`.
//!
//! Invariants
//! - I1: a chunk of `rtrb` is committed after all of its slots are initialised.

use std::hint::{black_box, spin_loop};
use std::time::Instant;

use slipring::markers::{Contiguous, Interleaved};

use crate::contenders::gil::Gil;
use crate::contenders::queues::{self, Queue, Rtrb, Yring, drain};
use crate::contenders::{Sides, StreamSpec, ours, rings, run_stream};
use crate::figures::one_by_one::{self, StreamFn, measured};
use crate::limits;
use crate::measure::{Contender, ContenderKind, Figure, Size, numbered_column};
use crate::work::{Check, Event, Words, per_event};

/// Number of events in a batch.
const BATCH: u64 = 100;
/// Number of slots of the ring whose events grow.
const SLOTS: usize = 64;
/// Size of all events together, in bytes, in the ring whose number of slots shrinks as the events
/// grow.
const MEMORY: usize = 16 << 20;

/// Returns the figures of slots and of bytes.
pub fn figures(size: Size) -> Vec<Figure> {
    let mut figures: Vec<Figure> = (6..=22).step_by(2).map(|log| slots(size, 1 << log)).collect();
    figures.extend(bytes(size, "64 slots", |_| SLOTS));
    figures.extend(bytes(size, "16 MiB", |bytes| MEMORY / bytes));
    figures
}

fn slots(size: Size, ring: usize) -> Figure {
    let events = at_least_laps(size, ring, one_by_one::events(size, 0));
    let spec = StreamSpec { ring, events, batch: 1, steps: 0 };
    let mut contenders = measured(streams::<u64>(), spec);
    // A batch must fit the ring, or the producer would wait forever.
    if ring as u64 >= BATCH {
        let batches: [(ContenderKind, &str, StreamFn); 6] = [
            (ContenderKind::Ours, "slipring, batches of 100", ours::stream::<u64, Interleaved>),
            (
                ContenderKind::Ours,
                "slipring contiguous, batches of 100",
                ours::stream::<u64, Contiguous>,
            ),
            (ContenderKind::Peer, "disruptor, batches of 100", rings::stream::<u64>),
            (ContenderKind::Peer, "rtrb, batches of 100", queues::stream::<u64, Rtrb>),
            (ContenderKind::Peer, "yring, batches of 100", queues::stream::<u64, Yring>),
            (ContenderKind::Peer, "gil, batches of 100", queues::stream::<u64, Gil>),
        ];
        contenders.extend(measured(batches, StreamSpec { batch: BATCH, ..spec }));
    }
    Figure {
        table: "scaling: slots".to_owned(),
        column: numbered_column(ring, "slot"),
        baseline: None,
        contenders,
    }
}

/// Returns the number of timed events: `events`, or several laps if these are more. The consumer
/// may be a lap behind when the clock starts, and handles that lap in the timed span.
fn at_least_laps(size: Size, ring: usize, events: u64) -> u64 {
    events.max(size.pick(0, 4, 8) * ring as u64)
}

/// Returns the kind, the name and the stream function of the contenders, which publish one by one.
fn streams<E: Event>() -> [(ContenderKind, &'static str, StreamFn); 8] {
    use ContenderKind::{Limit, Ours, Peer};
    [
        (Ours, "slipring", ours::stream::<E, Interleaved>),
        (Ours, "slipring contiguous", ours::stream::<E, Contiguous>),
        (Limit, "limit stamps inside, spaced", limits::stream::<E, limits::Interleaved<E>, true>),
        (Limit, "limit cursor, spaced", limits::stream::<E, limits::Cursor<E>, true>),
        (Peer, "disruptor", rings::stream::<E>),
        (Peer, "rtrb", queues::stream::<E, Rtrb>),
        (Peer, "yring", queues::stream::<E, Yring>),
        (Peer, "gil", queues::stream::<E, Gil>),
    ]
}

/// Returns the figures of one table. `slots` returns the number of slots, given the size of an
/// event in bytes.
fn bytes(size: Size, memory: &str, slots: fn(usize) -> usize) -> [Figure; 6] {
    let table = format!("scaling: bytes of an event, {memory}");
    [
        of_size::<u64>(size, &table, slots),
        of_size::<Words<8>>(size, &table, slots),
        of_size::<Words<64>>(size, &table, slots),
        of_size::<Words<512>>(size, &table, slots),
        of_size::<Words<2048>>(size, &table, slots),
        of_size::<Words<8192>>(size, &table, slots),
    ]
}

fn of_size<E: Event>(size: Size, table: &str, slots: fn(usize) -> usize) -> Figure {
    let bytes = size_of::<E>();
    // Writing a word and reading it takes about a nanosecond in all.
    let nanos = 10 + bytes as u64 / 8;
    let events = size.pick(3_000_000 / nanos, 5_000_000 / nanos, 30_000_000 / nanos);
    let events = if size == Size::Smoke { events.min(3_000) } else { events };
    let ring = slots(bytes);
    let events = at_least_laps(size, ring, events);
    let spec = StreamSpec { ring, events, batch: 1, steps: 0 };
    let mut contenders =
        vec![Contender::new(ContenderKind::Alone, "one thread doing it all", move || {
            alone::<E>(spec)
        })];
    contenders.extend(measured(streams::<E>(), spec));
    let in_place: [(ContenderKind, &str, StreamFn); 2] = [
        (ContenderKind::Peer, "rtrb, chunks in place", rtrb_in_place::<E>),
        (ContenderKind::Peer, "gil, in place", gil_in_place::<E>),
    ];
    contenders.extend(measured(in_place, spec));
    Figure {
        table: table.to_owned(),
        column: numbered_column(bytes, "byte"),
        baseline: None,
        contenders,
    }
}

/// Fills and checks the same events on one thread, without a hand-over.
fn alone<E: Event>(spec: StreamSpec) -> f64 {
    let mut slots: Box<[E]> = (0..spec.ring).map(|_| E::default()).collect();
    let mut check = Check::default();
    let mut begin = Instant::now();
    for number in 1..=spec.all() {
        let slot = &mut slots[number as usize & (spec.ring - 1)];
        slot.fill(number);
        check.see(black_box(&*slot));
        if number == spec.all() - spec.events {
            begin = Instant::now();
        }
    }
    let took = per_event(begin, spec.events);
    check.finish(spec.all());
    took
}

/// Measures a stream through `rtrb` whose producer fills events in their slots, and whose consumer
/// reads them there.
fn rtrb_in_place<E: Event>(spec: StreamSpec) -> f64 {
    let (mut tx, rx) = rtrb::RingBuffer::<E>::new(spec.ring);
    let send = move |number, _| loop {
        let Ok(mut chunk) = tx.write_chunk_uninit(1) else {
            spin_loop();
            continue;
        };
        let [slot] = chunk.as_mut_slices().0 else { panic!("a chunk of one slot") };
        E::init(slot, number);
        // SAFETY: `init` has initialised the only slot of the chunk (I1).
        unsafe { chunk.commit_all() }
        return;
    };
    let receive = receive_in_parts::<E, Rtrb>(spec, rx);
    run_stream(spec, Sides { send, close: || (), receive })
}

/// Measures such a stream through `gil`.
fn gil_in_place<E: Event>(spec: StreamSpec) -> f64 {
    let (mut tx, rx) = <Gil as Queue<E>>::new(spec.ring);
    let send = move |number, _| <Gil as Queue<E>>::send_batch(&mut tx, number, 1);
    let receive = receive_in_parts::<E, Gil>(spec, rx);
    run_stream(spec, Sides { send, close: || (), receive })
}

/// Returns a consumer that reads events in their slots.
fn receive_in_parts<E: Event, Q: Queue<E>>(
    spec: StreamSpec,
    mut rx: Q::Rx,
) -> impl FnOnce(u64, &mut Check) + Send {
    move |events, check| {
        // The events are released in parts, so that the producer can continue meanwhile.
        let part = spec.ring as u64 / 8;
        drain(events, |max| {
            Q::receive_batch(&mut rx, max.min(part), |event| {
                check.see(event);
            })
        });
    }
}
