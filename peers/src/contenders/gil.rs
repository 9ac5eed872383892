//! One consumer, or a pool of workers, behind the queues of the `gil` crate: that of one producer,
//! that of several, that of several with a queue inside for each of them, and that of several
//! consumers.
//!
//! The crate has no end of a stream: a receiver does not learn that its last sender is gone. So it
//! takes part where the number of events is known, or where the figure closes the queue itself.
//!
//! Invariants
//! - I1: slots are committed after all of them are initialised.

use std::hint::spin_loop;
use std::num::NonZeroUsize;

use gil::mpsc::{sharded, sharded_parking};
use gil::{mpmc, mpsc, spsc};

use super::queues::{Blocking, Queue};
use crate::work::Event;

/// Number of producers, and of queues inside, of the sharded queues.
const SHARDS: usize = 2;

/// Returns a capacity as the crate takes it.
fn sized(capacity: usize) -> NonZeroUsize {
    NonZeroUsize::new(capacity).expect("the ring has slots")
}

/// The queue of one producer and one consumer. Batches are written and read in place.
pub struct Gil;

impl<E: Event> Queue<E> for Gil {
    type Tx = spsc::Sender<E>;
    type Rx = spsc::Receiver<E>;
    fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
        spsc::channel(sized(capacity))
    }
    #[inline(always)]
    fn try_send(tx: &mut Self::Tx, event: E) -> bool {
        tx.try_send(event).is_ok()
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<E> {
        rx.try_recv()
    }
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, mut first: u64, len: u64) {
        let end = first + len;
        while first < end {
            // The free slots up to the end of the buffer.
            let slots = tx.write_buffer();
            let count = slots.len().min((end - first) as usize);
            if count == 0 {
                spin_loop();
                continue;
            }
            slots[..count].iter_mut().zip(first..).for_each(|(slot, number)| {
                E::init(slot, number);
            });
            // SAFETY: these slots were lent, and are initialised (I1).
            unsafe { tx.commit(count) }
            first += count as u64;
        }
    }
    #[inline(always)]
    fn receive_batch(rx: &mut Self::Rx, max: u64, f: impl FnMut(&E)) -> u64 {
        let mut events = rx.read_guard();
        let had = events.len().min(max as usize);
        events.as_slice()[..had].iter().for_each(f);
        events.advance(had);
        had as u64
    }
}

/// The queue of several producers and one consumer.
pub struct GilMany;

impl<E: Event> Queue<E> for GilMany {
    type Tx = mpsc::Sender<E>;
    type Rx = mpsc::Receiver<E>;
    fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
        mpsc::channel(sized(capacity))
    }
    #[inline(always)]
    fn try_send(tx: &mut Self::Tx, event: E) -> bool {
        tx.try_send(event).is_ok()
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<E> {
        rx.try_recv()
    }
}

/// The queue of several producers and several consumers.
pub struct GilShared;

impl<E: Event> Queue<E> for GilShared {
    type Tx = mpmc::Sender<E>;
    type Rx = mpmc::Receiver<E>;
    fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
        mpmc::channel(sized(capacity))
    }
    #[inline(always)]
    fn try_send(tx: &mut Self::Tx, event: E) -> bool {
        tx.try_send(event).is_ok()
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<E> {
        rx.try_recv()
    }
}

/// Implements a queue of two producers, each of which has half of the capacity for itself.
macro_rules! sharded {
    ($(#[$doc:meta])* $name:ident, $tx:ident, $module:ident) => {
        $(#[$doc])*
        pub struct $name;

        /// A producer, which has a queue inside for itself.
        pub struct $tx<E>($module::Sender<E>);

        impl<E> Clone for $tx<E> {
            fn clone(&self) -> Self {
                $tx(self.0.clone().expect("there are no more producers than shards"))
            }
        }

        impl<E: Event> Queue<E> for $name {
            type Tx = $tx<E>;
            type Rx = $module::Receiver<E>;
            fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
                let (tx, rx) = $module::channel(sized(SHARDS), sized(capacity / SHARDS));
                ($tx(tx), rx)
            }
            #[inline(always)]
            fn try_send(tx: &mut Self::Tx, event: E) -> bool {
                tx.0.try_send(event).is_ok()
            }
            #[inline(always)]
            fn try_receive(rx: &mut Self::Rx) -> Option<E> {
                rx.try_recv()
            }
        }
    };
}

sharded!(
    /// The queue of two producers with a queue inside for each.
    GilSharded, ShardedTx, sharded
);
sharded!(
    /// The same queue with calls whose producers sleep while their queue is full.
    GilParking, ParkingTx, sharded_parking
);

impl Blocking for GilParking {
    #[inline(always)]
    fn send(tx: &mut Self::Tx, event: u64) {
        tx.0.send(event);
    }
    #[inline(always)]
    fn receive(rx: &mut Self::Rx) -> Option<u64> {
        Some(rx.recv())
    }
}
