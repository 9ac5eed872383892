//! One producer and one consumer through designs that slipring rejected.

use std::hint::spin_loop;

use alternatives::{Design, channel};

use super::{Sides, StreamSpec, run_stream};
use crate::work::{Check, Event, spacing};

/// Measures a stream; the consumer pauses after each poll that found events.
pub fn stream<E: Event, D: Design<E>>(spec: StreamSpec) -> f64 {
    let (mut tx, mut rx) = channel::<E, D>(spec.ring);
    let spacing = spacing();
    let receive = move |events, check: &mut Check| {
        while check.seen() < events {
            let had = rx.poll(|event| check.see(event));
            (0..if had == 0 { 1 } else { spacing }).for_each(|_| spin_loop());
        }
    };
    let send = move |first, len| {
        let mut number = first;
        let mut make = || {
            let event = E::make(number);
            number += 1;
            event
        };
        while !tx.try_send(len, &mut make) {
            spin_loop();
        }
    };
    run_stream(spec, Sides { send, close: || (), receive })
}
