//! One producer and one consumer through designs that the library does not use.

use std::hint::spin_loop;

use alternatives::{Design, channel};

use super::{Both, Pair, both};
use crate::machine::spacing;
use crate::work::{Check, Event};

/// See [`Pair`]; the consumer pauses after a look that found something.
pub fn stream<E: Event, D: Design<E>>(pair: Pair) -> f64 {
    let (mut tx, mut rx) = channel::<E, D>(pair.ring);
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
    both(pair, Both { send, close: || (), receive })
}
