//! One producer and one consumer in the `disruptor` crate, which starts the consumer's thread
//! itself.

use std::hint::spin_loop;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use disruptor::{
    BusySpin, ProcessorSettings, Producer, Sequence, build_multi_producer, build_single_producer,
};

use slipring_machine::pin;

use super::{Rounds, StreamSpec, ping_pong, produce};
use crate::work::{Check, Event};

/// Defines the function `$name`, which measures a stream through a ring whose builder comes from
/// `$build`. This is a macro, because the crate's builders share no trait.
macro_rules! stream {
    ($(#[$doc:meta])* $name:ident, $build:ident) => {
        $(#[$doc])*
        pub fn $name<E: Event>(spec: StreamSpec) -> f64 {
    let ended: Arc<OnceLock<(Instant, Check)>> = Arc::default();
    let end = ended.clone();
    let (mut check, all) = (Check::default(), spec.all());
    let see = move |event: &E, _: Sequence, _: bool| {
        check.see(event);
        if check.seen() == all {
            let _ = end.set((Instant::now(), std::mem::take(&mut check)));
        }
    };
    let begin = thread::scope(|scope| {
        let producer = scope.spawn(move || {
            // This thread is pinned after the ring is built: the crate checks the consumer's core
            // against the calling thread's affinity.
            let mut tx = $build(spec.ring, E::default, BusySpin)
                .pin_at_core(1)
                .handle_events_with(see)
                .build();
            pin(0);
            if spec.batch == 1 {
                return produce(spec, |number, _| tx.publish(|slot| slot.fill(number)));
            }
            produce(spec, |first, len| {
                tx.batch_publish(len as usize, |slots| {
                    let mut number = first;
                    slots.for_each(|slot| {
                        slot.fill(number);
                        number += 1;
                    });
                })
            })
            // The producer is dropped here, which waits until all events are handled.
        });
        producer.join().expect("the producer panicked")
    });
    let (end, check) = ended.get().expect("the consumer saw the last event");
    check.finish(spec.all());
    end.duration_since(begin).as_nanos() as f64 / spec.events as f64
}
    };
}

stream!(
    /// Measures a stream.
    stream, build_single_producer
);
stream!(
    /// Measures a stream through a producer that several threads can share.
    shared_stream, build_multi_producer
);

/// Measures round trips through two rings, which both threads poll, because polling is the crate's
/// interface for the user's own threads.
pub fn round_trip(rounds: Rounds) -> Vec<u64> {
    let (mut there, builder) = build_single_producer(1024, || 0u64, BusySpin).new_event_poller();
    let mut tx = builder.build();
    let (mut back, builder) = build_single_producer(1024, || 0u64, BusySpin).new_event_poller();
    let mut tx_back = builder.build();
    ping_pong(
        rounds,
        move || {
            let mut answered = 0;
            while answered < rounds.count {
                let Ok(mut events) = there.poll() else {
                    spin_loop();
                    continue;
                };
                for number in &mut events {
                    tx_back.publish(|slot| *slot = *number);
                    answered += 1;
                }
            }
        },
        move |number| {
            tx.publish(|slot| *slot = number);
            let mut answer = 0;
            while answer == 0 {
                match back.poll() {
                    Ok(mut events) => (&mut events).for_each(|number| answer = *number),
                    Err(_) => spin_loop(),
                }
            }
            answer
        },
    )
}
