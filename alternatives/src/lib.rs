//! Designs that slipring tried and rejected for handing over events. They are kept so that they can
//! be measured again.
//!
//! Each [`Design`] is a ring of one producer, one consumer and plain events. Positions, free slots
//! and release are common code; a design publishes events and finds published ones. [`Lanes`] are
//! rings of the library, one for each of many producers. Each module gives the reason for the
//! rejection, and `records/` has the figures.

mod beside;
mod blocks;
mod lanes;
mod prefetch;
mod ring;

pub use beside::Beside;
pub use blocks::Blocks;
pub use lanes::{Lanes, lanes};
pub use prefetch::Prefetch;
pub use ring::{Consumer, Design, Producer, channel};

#[cfg(test)]
mod tests {
    use super::*;

    fn streams<D: Design<u64> + 'static>(capacity: usize, batch: u64) {
        let (mut tx, mut rx) = channel::<u64, D>(capacity);
        let events = 20 * capacity as u64 / batch * batch + 10 * batch;
        let sending = std::thread::spawn(move || {
            let mut next = 0;
            while next < events {
                let mut number = next;
                let sent = tx.try_send(batch, || {
                    number += 1;
                    number
                });
                if sent {
                    next += batch;
                } else {
                    std::thread::yield_now();
                }
            }
        });
        let mut seen = 0;
        while seen < events {
            let had = rx.poll(|event| {
                seen += 1;
                assert_eq!(*event, seen);
            });
            if had == 0 {
                std::thread::yield_now();
            }
        }
        sending.join().expect("the sending thread panicked");
        assert_eq!(rx.poll(|_| ()), 0);
    }

    fn all_streams<D: Design<u64> + 'static>() {
        for capacity in [D::MIN_CAPACITY, 2 * D::MIN_CAPACITY, 1024] {
            for batch in [1, 2, 10, 100] {
                if batch <= capacity as u64 {
                    streams::<D>(capacity, batch);
                }
            }
        }
    }

    #[test]
    fn every_event_arrives_in_order() {
        all_streams::<Beside<u64>>();
        all_streams::<Blocks<u64>>();
        all_streams::<Prefetch<u64>>();
    }

    #[test]
    #[should_panic(expected = "a power of two of at least 64, not 32")]
    fn a_capacity_that_is_too_small_is_refused() {
        let _ = channel::<u64, Blocks<u64>>(32);
    }

    #[test]
    #[should_panic(expected = "a power of two of at least 1, not 3")]
    fn a_capacity_that_is_not_a_power_of_two_is_refused() {
        let _ = channel::<u64, Beside<u64>>(3);
    }
}
