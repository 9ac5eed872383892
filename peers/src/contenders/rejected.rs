//! One producer and one consumer through designs that slipring rejected.
//!
//! # Figures without a crate that takes part in others
//!
//! - `omango` 0.2.6 frees its events twice. A `String` was sent through `spsc::bounded(2)` by
//!   `try_send`, received by `try_recv`, and printed. Dropping both ends then ended the process
//!   with "double free detected", in each of three runs. The drop of a slot drops its event,
//!   whether or not the slot has one. Numbers own no memory, so it takes part in streams and round
//!   trips of numbers, and in nothing else.
//! - `yring` has one producer and one consumer. It has no call that waits, and events are not
//!   filled in their slots: it is not in the figures of several producers and of pools, nor among
//!   the contenders that block or that fill events in place.
//! - `gil` does not tell a receiver that the last sender is gone, so workers that block would never
//!   end: its pools yield. A sharded queue has a fixed number of producers, and takes part in the
//!   figures of two producers and of one producer alone.
//! - Neither has a one-shot channel, or a ring in shared memory.

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
