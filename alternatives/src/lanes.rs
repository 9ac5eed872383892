//! Many producers with a ring each, and one thread that merges the rings.
//!
//! A shared producer moves the claim word by a compare-and-swap, which waits until the stores of
//! its previous publication have left the core. A producer with a ring of its own has no such wait.
//! Within a lane the order is the producer's, and the merging thread gives all events one order:
//! [`Lanes::poll`] hands them to one handler, and [`Lanes::forward`] moves them to a ring whose
//! stages follow.
//!
//! The library rejected the design for three reasons:
//!
//! - Two lanes and one handler reach 0.9 of the rate of one producer alone if the producers do
//!   nothing else, and 0.7 with 10 ns of work between two events; the aim was 0.8. (They take 1/3
//!   and 3/4 of the time of two shared producers.)
//! - If a ring follows, the copy and the additional thread use up most of the gain.
//! - Users can build the design themselves: this module works through the library's public calls.

use std::hint::spin_loop;
use std::thread;

use slipring::{
    Error, Graph, Producer, Reader, Wait,
    errors::{BatchError, WaitError},
};

/// Maximum number of events that a turn takes from one lane.
const TURN: usize = 256;
/// Number of events below which the merging thread pauses after a round of all lanes. The pause
/// keeps it from taking the cache lines that the producers are filling.
const FEW: usize = 64;
/// Number of rounds without an event before the merging thread yields its core.
const EMPTY_ROUNDS: u32 = 8;
/// Length of a pause, in spin hints.
const PAUSE: u32 = 4;

/// The consumer's side of all lanes.
pub struct Lanes<E> {
    /// Readers of the lanes that have not ended.
    open: Vec<Reader<E>>,
    /// Number of rounds without an event.
    empty: u32,
}

/// Makes a ring of `capacity` slots for each producer. `wait` is the producers' strategy; the
/// consumer yields its core.
///
/// # Errors
/// Returns the errors of [`Graph::build`].
pub fn lanes<E: Send + Sync + 'static>(
    producers: usize,
    capacity: usize,
    wait: &Wait,
    event: impl FnMut() -> E + Clone + 'static,
) -> Result<(Vec<Producer<E>>, Lanes<E>), Error> {
    let (mut all, mut open) = (Vec::new(), Vec::new());
    for _ in 0..producers {
        let graph = Graph::new(capacity, event.clone()).wait(wait.clone());
        let key = graph.reader("lane");
        let ring = graph.build()?;
        all.push(ring.producer());
        open.push(ring.reader(key));
    }
    Ok((all, Lanes { open, empty: 0 }))
}

impl<E> Lanes<E> {
    /// Hands up to 256 published events of each lane to `handle`, in the order of the lane, and
    /// releases them. If no lane has an event, spins or yields. Returns whether a lane is open.
    ///
    /// # Errors
    /// Returns the error of a lane that ended for a reason other than the drop of its producer.
    pub fn poll(&mut self, mut handle: impl FnMut(&E)) -> Result<bool, WaitError> {
        self.round(|lane| lane.poll(TURN, |event, _| handle(event)))
    }

    /// Moves up to 256 published events of each lane to the ring of `to`, which must have at least
    /// 256 slots. `take` fills a slot from an event. Returns whether a lane is open.
    ///
    /// # Errors
    /// Returns the error of a lane that ended for a reason other than the drop of its producer, or
    /// the error of the ring that `to` publishes to.
    pub fn forward(
        &mut self,
        to: &mut Producer<E>,
        mut take: impl FnMut(&mut E, &E),
    ) -> Result<bool, WaitError> {
        self.round(|lane| {
            let batch = match lane.try_batch(TURN) {
                Ok(batch) => batch,
                Err(BatchError::Wait(error)) => return Err(error),
                Err(_) => return Ok(0),
            };
            let mut slots = to.claim_n(batch.len()).map_err(|_| WaitError::Closed)?;
            slots.iter_mut().zip(batch.iter()).for_each(|(slot, event)| take(slot, event));
            slots.publish();
            let len = batch.len();
            batch.release();
            Ok(len)
        })
    }

    /// Takes a turn at each open lane, and pauses if there was little to do.
    #[inline(always)]
    fn round(
        &mut self,
        mut turn: impl FnMut(&mut Reader<E>) -> Result<usize, WaitError>,
    ) -> Result<bool, WaitError> {
        let (mut count, mut at) = (0, 0);
        while let Some(lane) = self.open.get_mut(at) {
            match turn(lane) {
                Ok(len) => (count, at) = (count + len, at + 1),
                Err(WaitError::Closed) => drop(self.open.remove(at)),
                Err(error) => return Err(error),
            }
        }
        self.empty = if count == 0 { self.empty + 1 } else { 0 };
        if self.empty > EMPTY_ROUNDS {
            thread::yield_now();
        } else if count < FEW {
            (0..PAUSE).for_each(|_| spin_loop());
        }
        Ok(!self.open.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCERS: u64 = 3;
    const EVENTS: u64 = 2_000;

    /// The number of a producer, and the number of its event.
    type Numbers = (u64, u64);

    /// Starts a thread for each producer. The thread publishes pairs: the producer's number, and 0,
    /// 1, 2, and so on.
    fn produce(producers: Vec<Producer<Numbers>>) -> Vec<thread::JoinHandle<()>> {
        let start = |(producer, mut tx): (usize, Producer<Numbers>)| {
            thread::spawn(move || {
                for number in 0..EVENTS {
                    tx.publish(|slot| *slot = (producer as u64, number)).expect("a lane is open");
                }
            })
        };
        producers.into_iter().enumerate().map(start).collect()
    }

    /// Counts the events of each producer, and checks their order.
    #[derive(Default)]
    struct Seen([u64; PRODUCERS as usize]);

    impl Seen {
        fn see(&mut self, &(producer, number): &Numbers) {
            let next = &mut self.0[producer as usize];
            assert_eq!(number, *next, "events of producer {producer} are lost or out of order");
            *next += 1;
        }
    }

    fn make() -> (Vec<Producer<Numbers>>, Lanes<Numbers>) {
        lanes(PRODUCERS as usize, 64, &Wait::YIELDING, || (0, 0)).expect("the graphs are sound")
    }

    #[test]
    fn each_lane_keeps_its_order() {
        let (producers, mut lanes) = make();
        let sending = produce(producers);
        let mut seen = Seen::default();
        while lanes.poll(|event| seen.see(event)).expect("the lanes ended well") {}
        assert_eq!(seen.0, [EVENTS; PRODUCERS as usize]);
        sending.into_iter().for_each(|thread| thread.join().expect("a producer panicked"));
    }

    #[test]
    fn a_ring_behind_sees_what_the_lanes_had() {
        let (producers, mut lanes) = make();
        let graph = Graph::new(256, || (0, 0)).wait(Wait::YIELDING);
        let key = graph.reader("behind");
        let ring = graph.build().expect("the graph is sound");
        let (mut to, mut behind) = (ring.producer(), ring.reader(key));
        drop(ring);
        let sending = produce(producers);
        let merging = thread::spawn(move || {
            while lanes.forward(&mut to, |slot, event| *slot = *event).expect("the rings are open")
            {
            }
        });
        let mut seen = Seen::default();
        behind.for_each(|event, _| seen.see(event)).expect("the stream ended well");
        assert_eq!(seen.0, [EVENTS; PRODUCERS as usize]);
        merging.join().expect("the merging thread panicked");
        sending.into_iter().for_each(|thread| thread.join().expect("a producer panicked"));
    }

    #[test]
    fn a_capacity_that_is_no_power_of_two_is_refused() {
        assert!(lanes(2, 3, &Wait::YIELDING, || 0).is_err());
    }
}
