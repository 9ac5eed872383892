//! Handles that copy events in and out, for a mapped segment whose other processes are not trusted.
//!
//! Invariants
//! - I1: the ring's events are `AtomicBytes`, so each access of this process to an event is a
//!   relaxed atomic one, and no `&E` into the mapping exists. So making an `Attached<Copies<E>>`
//!   needs no promise from the caller.
//! - I2: words that other processes can store decide only what a call returns, and how long a call
//!   without a deadline waits. They decide no address and no allocation, and the ring's size bounds
//!   the number of steps. The head, which states the sizes, is copied and checked once, before the
//!   segment is mapped.

use std::marker::PhantomData;
use std::sync::Arc;

use slipring::segment::{
    AtomicBytes, CopyingConsumer, CopyingProducer, Delivery, SegmentConsumer, SegmentProducer,
    Sharing,
};
use slipring::{
    handles::StartAt,
    markers::{Interleaved, Reading, Updating},
};

use crate::attach::participant::Participation;
use crate::attach::places::RingPlaces;
use crate::attach::ring;
use crate::contents::{Divisible, Event, Handles, sealed};
use crate::errors::Problem;
use crate::handles::attached::Attached;

/// Marker type: the handles of an `Attached<Copies<E>>` copy events of type `E` in and out, and
/// lend none. So this process need not trust the others. Other processes may still take handles of
/// the same ring that lend events.
///
/// [`Segment::attach_copies`](crate::Segment::attach_copies) makes such an `Attached`.
///
/// ```
/// use slipring::{Wait, handles::StartAt};
/// use slipring_shm::Segment;
/// let segment = Segment::<u64>::create_memfd("numbers")
///     .capacity(8)
///     .producers(2)
///     .reader("sum")
///     .shard_reader("by number", 2, |number| number)
///     .tap("viewers", 4)
///     .build()?;
/// let copies = segment.attach_copies()?.wait(Wait::Blocking)?;
/// let (mut one, mut other) = (copies.shared_producer()?, copies.shared_producer()?);
/// (one.publish(&10)?, other.publish(&20)?);
///
/// let mut viewer = copies.subscribe("viewers", StartAt::Now)?;
/// one.publish_batch(&[30, 40])?;
/// assert_eq!(viewer.next()?, (30, 2));
///
/// drop((one, other)); // closes the ring
/// let (mut total, mut count) = (0, 0);
/// copies.reader("sum")?.for_each(|number, _| total += number)?;
/// for shard in 0..2 { count += copies.shard_reader("by number", shard)?.for_each(|_, _| ())?; }
/// assert_eq!((total, count), (100, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// If a pool's worker leaves in the middle of its events, other workers get the events that it has
/// not released:
///
/// ```
/// use slipring_shm::Segment;
/// let segment = Segment::<u64>::create_memfd("n").capacity(8).pool_reader("print", 2).build()?;
/// let copies = segment.attach_copies()?;
/// let (mut tx, mut one) = (copies.producer()?, copies.pool_reader("print")?);
/// tx.publish(&7)?;
/// assert_eq!(one.next()?, (7, 0));
/// drop(one); // not released
/// let mut other = copies.pool_reader("print")?;
/// assert_eq!((other.next()?, other.redelivered()), ((7, 0), (0..1).into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Copies<E>(PhantomData<fn() -> E>);

impl<E: Event> sealed::Sealed for Copies<E> {}

impl<E: Event> Handles for Copies<E> {
    type Producer<S: Sharing> = CopyingProducer<E, S>;
    type Reader<D: Delivery> = CopyingConsumer<E, Reading, D>;
    type Start = StartAt;
    type Slot = AtomicBytes<E>;
    type Layout = Interleaved;

    unsafe fn producer<S: Sharing>(
        tx: SegmentProducer<AtomicBytes<E>, Interleaved, S>,
        _size: usize,
    ) -> CopyingProducer<E, S> {
        CopyingProducer::over(tx)
    }

    unsafe fn reader<D: Delivery>(
        rx: SegmentConsumer<AtomicBytes<E>, Reading, D>,
        _size: usize,
    ) -> CopyingConsumer<E, Reading, D> {
        CopyingConsumer::over(rx)
    }
}

impl<E: Event> Divisible for Copies<E> {
    type Updater<D: Delivery> = CopyingConsumer<E, Updating, D>;

    unsafe fn updater<D: Delivery>(
        rx: SegmentConsumer<AtomicBytes<E>, Updating, D>,
        _size: usize,
    ) -> CopyingConsumer<E, Updating, D> {
        CopyingConsumer::over(rx)
    }
}

impl<E: Event> Attached<Copies<E>> {
    pub(crate) fn copying(inner: Arc<Participation>) -> Result<Attached<Copies<E>>, Problem> {
        // SAFETY: `over_copies` asks for no promise about other processes (I1). The participation's
        // segment was checked to hold events of type `E` when it was opened.
        let places = unsafe { RingPlaces::new::<E>(inner, ring::over_copies::<E>)? };
        Ok(Attached { places })
    }
}
