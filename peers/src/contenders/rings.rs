//! One producer and one consumer through the `disruptor` crate, which runs the consumer's thread
//! itself.

use std::hint::spin_loop;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use disruptor::{BusySpin, ProcessorSettings, Producer, Sequence, build_multi_producer, build_single_producer};

use super::{Pair, ping_pong, produce};
use crate::machine::pin;
use crate::work::{Check, Event};

/// A stream through a ring that `$build` begins; a macro, because the crate's builders have nothing
/// in common that could be named.
macro_rules! stream {
    ($(#[$doc:meta])* $name:ident, $build:ident) => {
        $(#[$doc])*
        pub fn $name<E: Event>(pair: Pair) -> f64 {
    let ended: Arc<OnceLock<(Instant, Check)>> = Arc::default();
    let end = ended.clone();
    let (mut check, all) = (Check::default(), pair.all());
    let see = move |event: &E, _: Sequence, _: bool| {
        check.see(event);
        if check.seen() == all {
            let _ = end.set((Instant::now(), std::mem::take(&mut check)));
        }
    };
    let begin = thread::scope(|scope| {
        let producer = scope.spawn(move || {
            // The crate asks the calling thread's mask whether there is such a core, so this one is
            // bound to its own only then.
            let mut tx = $build(pair.ring, E::default, BusySpin).pin_at_core(1).handle_events_with(see).build();
            pin(0);
            if pair.batch == 1 {
                return produce(pair, |number, _| tx.publish(|slot| *slot = E::make(number)));
            }
            produce(pair, |first, len| {
                tx.batch_publish(len as usize, |slots| {
                    for (slot, number) in slots.zip(first..) {
                        *slot = E::make(number);
                    }
                })
            })
            // Dropping the producer waits until all is handled.
        });
        producer.join().expect("the producer ends well")
    });
    let (end, check) = ended.get().expect("the last event was seen");
    check.finish(pair.all());
    end.duration_since(begin).as_nanos() as f64 / pair.events as f64
}
    };
}

stream!(
    /// See [`Pair`].
    stream, build_single_producer
);
stream!(
    /// As [`stream`], through a producer that others may share.
    shared_stream, build_multi_producer
);

/// There and back through two rings, polled by the two threads: the crate's way for those who own
/// their threads.
pub fn round_trip(rounds: usize) -> Vec<u64> {
    let (mut there, builder) = build_single_producer(1024, || 0u64, BusySpin).new_event_poller();
    let mut tx = builder.build();
    let (mut back, builder) = build_single_producer(1024, || 0u64, BusySpin).new_event_poller();
    let mut tx_back = builder.build();
    ping_pong(
        rounds,
        move || {
            let mut answered = 0;
            while answered < rounds {
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
            let begin = Instant::now();
            tx.publish(|slot| *slot = number);
            let mut answer = 0;
            while answer == 0 {
                match back.poll() {
                    Ok(mut events) => (&mut events).for_each(|number| answer = *number),
                    Err(_) => spin_loop(),
                }
            }
            (begin.elapsed(), answer)
        },
    )
}
