//! A mapped segment: the handles that this process takes from it, and what it knows of the other
//! participants.
//!
//! Invariants
//! - I1: only unsafe functions make an [`Attached`]. Their callers promise how other processes
//!   treat the file.

use std::fmt;
use std::sync::Arc;

use slipring::segment::{SegmentRing, StageDeclaration, StageDelivery};
use slipring::{PRODUCER, Producer, Report, StartAt, SubscribeError, Wait};

use crate::errors::{Problem, SegmentError};
use crate::event::Event;
use crate::graph;
use crate::participant::{Liveness, Participation};
use crate::ring;
use crate::{
    PoolReader, PoolWriter, Reader, ShardReader, ShardWriter, SharedProducer, Subscription, Writer,
};

/// The kinds of deliveries that calls serve. The number of places is that of the stage.
const EACH: StageDelivery = StageDelivery::Each;
const POOL: StageDelivery = StageDelivery::Pool(0);
const TAP: StageDelivery = StageDelivery::Tap(0);
const SHARDS: StageDelivery = StageDelivery::Shards { shards: 0, key_offset: 0, key_length: 0 };

/// A mapped segment. This process is a participant until the value and all that is made of it are
/// dropped.
///
/// Example: the [first page](crate).
pub struct Attached<E> {
    inner: Arc<Participation>,
    /// The ring, and what it was made from; `None`: the segment has no ring.
    ring: Option<(SegmentRing<E>, ring::Made)>,
}

impl<E: Event> Attached<E> {
    /// # Safety
    /// As [`Segment::attach`](crate::Segment::attach).
    pub(crate) unsafe fn new(inner: Arc<Participation>) -> Result<Attached<E>, Problem> {
        let made = graph::declaration::<E>(inner.checked())?;
        let made = made.map(|(declaration, needs)| ring::Made { declaration, needs });
        let ring = match made {
            // SAFETY: the caller's promise.
            Some(made) => Some((unsafe { ring::over(&inner, &made, Default::default())? }, made)),
            None => None,
        };
        Ok(Attached { inner, ring })
    }

    /// Chooses how the handles that this process makes from now on wait: stages for events, and the
    /// producer for room. The other processes choose for themselves. [`Wait::ADAPTIVE`] unless
    /// stated.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring::Wait;
    /// use slipring_shm::Segment;
    /// let segment =
    ///     Segment::<u64>::create_memfd("waits").capacity(8).reader("sum").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? }.wait(Wait::Blocking)?;
    /// let (mut tx, mut sum) = (attached.producer()?, attached.reader("sum")?);
    /// tx.publish(|slot| *slot = 7)?;
    /// assert_eq!(sum.batch(1)?[0], 7);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no memory for the strategy's state.
    pub fn wait(mut self, wait: Wait) -> Result<Attached<E>, SegmentError> {
        if let Some((ring, made)) = &mut self.ring {
            // SAFETY: the caller of `attach` has promised what a ring asks for.
            let over = unsafe { ring::over(&self.inner, made, (wait.clone(), wait)) };
            *ring = over.map_err(|problem| SegmentError::new("(attached)", problem))?;
        }
        Ok(self)
    }

    /// Takes the producer's place, and returns its handle, which goes on where the producer before
    /// stopped: behind the last published event. What a dead producer had claimed and not published
    /// is never seen. Dropping the handle closes the ring, unless a panic drops it.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// [`Problem::Taken`], if a living process has the place; [`Problem::Over`];
    /// [`Problem::Producers`], if the ring has room for several.
    ///
    /// # Cost
    /// A few system calls, and a load of each slot's stamp.
    pub fn producer(&self) -> Result<Producer<E>, SegmentError> {
        let (ring, _) = self.ring(PRODUCER)?;
        if ring.is_over() {
            return Err(self.failed(Problem::Over));
        }
        let seats = ring.seats_of(ring.producer_party());
        if seats.len() != 1 {
            return Err(self.failed(Problem::Producers { declared: seats.len() as u32 }));
        }
        let seat = seats.start;
        ring::take(&self.inner, ring, seat, PRODUCER).map_err(|problem| self.failed(problem))?;
        // The producer before may have closed the ring since, and closes it before it frees the
        // place.
        if ring.is_over() {
            ring.seat(seat).free(self.participant());
            return Err(self.failed(Problem::Over));
        }
        // SAFETY: the seat was just taken, so no other handle exists.
        Ok(unsafe { ring.producer() })
    }

    /// Takes the place of one of several producers, and returns its handle. What a dead producer had
    /// claimed and not published is never seen, and the stream goes on behind it. The drop of the
    /// last producer's handle closes the ring, unless a panic drops it.
    ///
    /// Example: [`Builder::producers`](crate::Builder::producers).
    ///
    /// # Errors
    /// [`Problem::AllTaken`], if living processes have all places; [`Problem::Over`];
    /// [`Problem::Producers`], if the ring was declared for a single producer.
    ///
    /// # Cost
    /// A compare-and-swap for each place until a free one. If none is free, a few system calls for
    /// each place.
    pub fn shared_producer(&self) -> Result<SharedProducer<E>, SegmentError> {
        let (ring, _) = self.ring(PRODUCER)?;
        let seats = ring.seats_of(ring.producer_party());
        if seats.len() == 1 {
            return Err(self.failed(Problem::Producers { declared: 1 }));
        }
        if ring.is_over() {
            return Err(self.failed(Problem::Over));
        }
        let seat = ring::take_any(&self.inner, ring, seats, PRODUCER);
        let seat = seat.map_err(|problem| self.failed(problem))?;
        // SAFETY: the seat was just taken, so no other handle of it exists. There are several.
        Ok(unsafe { ring.shared_producer(seat) })
    }

    /// Takes the place of a stage that reads, and returns its handle, which goes on behind the last
    /// event that the stage has released. [`redelivered`](slipring::Consumer::redelivered) tells
    /// which events may come again. Dropping the handle leaves the place to another process.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// [`Problem::Taken`], if a living process has the place; [`Problem::NoStage`];
    /// [`Problem::Access`].
    pub fn reader(&self, stage: &str) -> Result<Reader<E>, SegmentError> {
        let (ring, number, _) = self.take(stage, EACH, false)?;
        // SAFETY: the seat was just taken, so no other handle exists.
        Ok(unsafe { ring.reader(number) })
    }

    /// Takes the place of a stage that may write, as [`reader`](Attached::reader) does for one that
    /// reads. The process before may have left events half-written: the handle's
    /// [`suspects`](slipring::Consumer::suspects), the first events that it lends. The handler
    /// repairs or marks them, or
    /// [`pass_over_suspects`](slipring::Consumer::pass_over_suspects) leaves them out.
    ///
    /// Example: [`Builder::after`](crate::Builder::after).
    ///
    /// # Errors
    /// As [`reader`](Attached::reader).
    pub fn writer(&self, stage: &str) -> Result<Writer<E>, SegmentError> {
        let (ring, number, _) = self.take(stage, EACH, true)?;
        // SAFETY: the seat was just taken, so no other handle exists. The stage writes.
        Ok(unsafe { ring.writer(number) })
    }

    /// Adds a reader to a tap, as [`Tap::subscribe`](slipring::Tap::subscribe) does within one
    /// process. The reader sees each event exactly once, from its first position on, and holds back
    /// the parties behind the tap until it leaves, is dropped, or dies.
    ///
    /// A reader that dies is removed within a notice by the parties that wait for it. Nothing comes
    /// again: a reader that joins in its place begins where it asks to. [`inspect`](crate::inspect)
    /// tells how many events the dead one had not read.
    ///
    /// Example: [`Builder::tap`](crate::Builder::tap).
    ///
    /// # Errors
    /// [`Problem::AllTaken`], if living readers have all places; [`Problem::Subscribe`];
    /// [`Problem::NoStage`]; [`Problem::Delivery`].
    ///
    /// # Cost
    /// A compare-and-swap for each place until a free one, and a fence. If none is free, a few
    /// system calls for each place.
    pub fn subscribe(&self, tap: &str, start: StartAt) -> Result<Subscription<E>, SegmentError> {
        let (ring, number, _) = self.stage(tap, TAP)?;
        // Each round but the last follows the death or the leaving of a reader.
        for _ in 0..64 {
            step!("subscribing");
            match ring.subscribe(number, start) {
                Ok(member) => {
                    step!("subscribed");
                    return Ok(member);
                }
                Err(SubscribeError::Full { .. }) => {
                    let seat = ring::take_any(&self.inner, ring, ring.seats_of(number), tap);
                    let seat = seat.map_err(|problem| self.failed(problem))?;
                    ring.seat(seat).free(self.participant());
                }
                Err(reason) => {
                    return Err(self.failed(Problem::Subscribe { tap: tap.into(), reason }));
                }
            }
        }
        Err(self.failed(Problem::Busy))
    }

    /// Takes a place in a pool that reads, and returns the worker's handle, which gets the events
    /// that no other worker of the pool takes. A worker that dies or leaves in the middle of its
    /// events leaves these to the other workers, which are told so
    /// ([`Batch::redelivered`](slipring::Batch::redelivered)). If no place is free, the handle begins
    /// with the events of such a worker. Dropping the last handle leaves the pool open.
    ///
    /// Example: [`Builder::pool_reader`](crate::Builder::pool_reader).
    ///
    /// # Errors
    /// [`Problem::AllTaken`], if living processes have all places; [`Problem::NoStage`];
    /// [`Problem::Delivery`]; [`Problem::Access`].
    ///
    /// # Cost
    /// A compare-and-swap for each place until a free one. If none is free, a few system calls for
    /// each place.
    pub fn pool_reader(&self, pool: &str) -> Result<PoolReader<E>, SegmentError> {
        let (ring, number, seat) = self.take(pool, POOL, false)?;
        // SAFETY: the seat was just taken, so no other handle of it exists.
        Ok(unsafe { ring.pool_reader(number, seat) })
    }

    /// Takes a place in a pool that may write, as [`pool_reader`](Attached::pool_reader) does in one
    /// that reads. Events that [`redelivered`](slipring::Batch::redelivered) names may be
    /// half-changed by the worker before.
    ///
    /// Example: [`Builder::pool_writer`](crate::Builder::pool_writer).
    ///
    /// # Errors
    /// As [`pool_reader`](Attached::pool_reader).
    pub fn pool_writer(&self, pool: &str) -> Result<PoolWriter<E>, SegmentError> {
        let (ring, number, seat) = self.take(pool, POOL, true)?;
        // SAFETY: the seat was just taken, so no other handle of it exists. The pool writes.
        Ok(unsafe { ring.pool_writer(number, seat) })
    }

    /// Takes the place of one shard of a stage that reads, by its number from 0 on, and returns its
    /// handle, which sees the events whose keys belong to the shard, in their order. The handle goes
    /// on behind the last event that the shard has released, and
    /// [`redelivered`](slipring::Consumer::redelivered) tells which events may come again. Dropping
    /// the handle leaves the place to another process. The parties behind the stage wait for each
    /// shard, whether a process runs it or not.
    ///
    /// Example: [`Builder::shard_reader`](crate::Builder::shard_reader).
    ///
    /// # Errors
    /// [`Problem::Taken`], if a living process has the place; [`Problem::NoShard`];
    /// [`Problem::NoStage`]; [`Problem::Delivery`]; [`Problem::Access`].
    ///
    /// # Cost
    /// As of [`reader`](Attached::reader). Finding the next own event costs a load for each event of
    /// the other shards.
    pub fn shard_reader(&self, stage: &str, shard: usize) -> Result<ShardReader<E>, SegmentError> {
        let (ring, number) = self.take_shard(stage, shard, false)?;
        // SAFETY: the seat was just taken, so no other handle of it exists.
        Ok(unsafe { ring.shard_reader(number, shard) })
    }

    /// Takes the place of one shard of a stage that may write, as
    /// [`shard_reader`](Attached::shard_reader) does for one that reads. The process before may have
    /// left events half-written: see [`writer`](Attached::writer).
    ///
    /// Example: [`Builder::shard_writer`](crate::Builder::shard_writer).
    ///
    /// # Errors
    /// As [`shard_reader`](Attached::shard_reader).
    pub fn shard_writer(&self, stage: &str, shard: usize) -> Result<ShardWriter<E>, SegmentError> {
        let (ring, number) = self.take_shard(stage, shard, true)?;
        // SAFETY: the seat was just taken, so no other handle of it exists. The stage writes.
        Ok(unsafe { ring.shard_writer(number, shard) })
    }

    /// Takes the seat of one shard. Returns the stage.
    fn take_shard(
        &self,
        stage: &str,
        shard: usize,
        writes: bool,
    ) -> Result<(&SegmentRing<E>, usize), SegmentError> {
        let (ring, number) = self.stage_of(stage, SHARDS, writes)?;
        let seats = ring.seats_of(number);
        let (name, shards) = (stage.to_owned(), seats.len());
        let Some(seat) = seats.clone().nth(shard) else {
            return Err(self.failed(Problem::NoShard { stage: name, asked: shard, shards }));
        };
        let place = format!("{stage}, shard {shard}");
        ring::take(&self.inner, ring, seat, &place).map_err(|problem| self.failed(problem))?;
        Ok((ring, number))
    }

    /// Finds a stage of the kind of `delivery`.
    fn stage(
        &self,
        stage: &str,
        delivery: StageDelivery,
    ) -> Result<(&SegmentRing<E>, usize, &StageDeclaration), SegmentError> {
        let (ring, made) = self.ring(stage)?;
        let stages = &made.declaration.stages;
        let number = stages.iter().position(|known| known.name == stage);
        let number = number.ok_or_else(|| {
            let known = stages.iter().map(|known| known.name.clone()).collect();
            self.failed(Problem::NoStage { asked: stage.into(), known })
        })?;
        let declared = graph::delivery_number(stages[number].delivery);
        if declared != graph::delivery_number(delivery) {
            let (stage, delivery) = (stage.into(), graph::DELIVERIES[usize::from(declared)]);
            return Err(self.failed(Problem::Delivery { stage, delivery }));
        }
        Ok((ring, number, &stages[number]))
    }

    /// Finds a stage of the kind of `delivery` that writes, or that reads.
    fn stage_of(
        &self,
        stage: &str,
        delivery: StageDelivery,
        writes: bool,
    ) -> Result<(&SegmentRing<E>, usize), SegmentError> {
        let (ring, number, declared) = self.stage(stage, delivery)?;
        if declared.writes != writes {
            let stage = stage.into();
            return Err(self.failed(Problem::Access { stage, writes: !writes }));
        }
        Ok((ring, number))
    }

    /// Takes a seat of a stage of the kind of `delivery`. Returns the stage and the seat.
    fn take(
        &self,
        stage: &str,
        delivery: StageDelivery,
        writes: bool,
    ) -> Result<(&SegmentRing<E>, usize, usize), SegmentError> {
        let (ring, number) = self.stage_of(stage, delivery, writes)?;
        let seats = ring.seats_of(number);
        let seat = match delivery {
            StageDelivery::Each => {
                ring::take(&self.inner, ring, seats.start, stage).map(|()| seats.start)
            }
            _ => ring::take_any(&self.inner, ring, seats, stage),
        };
        Ok((ring, number, seat.map_err(|problem| self.failed(problem))?))
    }

    fn ring(&self, asked: &str) -> Result<(&SegmentRing<E>, &ring::Made), SegmentError> {
        let none = || Problem::NoStage { asked: asked.into(), known: Vec::new() };
        let (ring, made) = self.ring.as_ref().ok_or_else(|| self.failed(none()))?;
        Ok((ring, made))
    }

    fn failed(&self, problem: Problem) -> SegmentError {
        let place =
            self.inner.path().map_or_else(|| "(memfd)".into(), |path| path.display().to_string());
        SegmentError::new(place, problem)
    }

    /// Returns positions and counts of all parties, of all processes.
    ///
    /// Example: the [first page](crate).
    pub fn report(&self) -> Option<Report> {
        self.ring.as_ref().map(|(ring, _)| ring.report())
    }

    /// Returns the number of this participant, from 1.
    ///
    /// Example: the [first page](crate).
    pub fn participant(&self) -> u32 {
        self.inner.number()
    }

    /// Returns the number of slots.
    ///
    /// Example: [`Segment::open_memfd`](crate::Segment::open_memfd).
    pub fn capacity(&self) -> u64 {
        self.inner.checked().shape.capacity
    }

    /// Returns what is known of participant `number`. Two system calls at most, or a few reads of
    /// `/proc`.
    ///
    /// ```
    /// # use slipring_shm::{Event, Segment};
    /// # use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    /// # #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    /// # #[repr(C)]
    /// # struct Block(u64);
    /// # impl Event for Block {
    /// #     const NAME: &'static str = "field/Block";
    /// #     const VERSION: u32 = 1;
    /// # }
    /// use slipring_shm::Liveness;
    ///
    /// let made = Segment::<Block>::create_memfd("field").capacity(8).reader("all").build()?;
    /// // SAFETY: no other process has the descriptor.
    /// let attached = unsafe { made.attach()? };
    /// assert_eq!(attached.liveness(1)?, Liveness::Alive);
    /// assert_eq!(attached.liveness(2)?, Liveness::Free);
    /// # Ok::<(), slipring_shm::SegmentError>(())
    /// ```
    ///
    /// # Errors
    /// The kernel refuses to probe the lock.
    pub fn liveness(&self, number: u32) -> Result<Liveness, SegmentError> {
        let place = format!("of participant {}", self.participant());
        self.inner.liveness(number).map_err(|problem| SegmentError::new(place, problem))
    }

    /// Returns what keeps the segment mapped.
    #[doc(hidden)]
    pub fn participation(&self) -> &Arc<Participation> {
        &self.inner
    }
}

impl<E> fmt::Debug for Attached<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("participant", &self.inner.number()).finish()
    }
}
