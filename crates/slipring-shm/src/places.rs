//! Taking places in a ring: this process takes a seat, and then makes the seat's handle. What the
//! handle lends (events, blocks, messages) is for `handles.rs`.

use slipring::segment::{
    SegmentPoolReader, SegmentPoolWriter, SegmentProducer, SegmentReader, SegmentSharedProducer,
    SegmentSubscription, SegmentWriter, StageDeclaration, StageDelivery,
};
use slipring::{PRODUCER, StartAt, SubscribeError};

use crate::attached::Attached;
use crate::contents::{Contents, Kind};
use crate::errors::{Problem, SegmentError};
use crate::graph;
use crate::ring::{self, Ring};

/// The kinds of deliveries that calls serve. The number of places is that of the stage.
const EACH: StageDelivery = StageDelivery::Each;
const POOL: StageDelivery = StageDelivery::Pool(0);
const TAP: StageDelivery = StageDelivery::Tap(0);
const SHARDS: StageDelivery = StageDelivery::Shards { shards: 0, key_offset: 0, key_length: 0 };

/// The result of taking a place: a handle of the ring's protocol.
type Taken<T> = Result<T, SegmentError>;
/// The event of a slot, and the layout of the slots.
type Slot<C> = <C as Kind>::Slot;
type Layout<C> = <C as Kind>::Layout;

impl<C: Contents> Attached<C> {
    /// Takes the place of the only producer.
    pub(crate) fn take_producer(&self) -> Taken<SegmentProducer<Slot<C>, Layout<C>>> {
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

    /// Takes the place of one of several producers.
    pub(crate) fn take_shared_producer(&self) -> Taken<SegmentSharedProducer<Slot<C>, Layout<C>>> {
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

    /// Takes the place of a stage that reads.
    pub(crate) fn take_reader(&self, stage: &str) -> Taken<SegmentReader<Slot<C>, Layout<C>>> {
        let (ring, number, _) = self.take(stage, EACH, false)?;
        // SAFETY: the seat was just taken, so no other handle exists.
        Ok(unsafe { ring.reader(number) })
    }

    /// Takes the place of a stage that may write.
    pub(crate) fn take_writer(&self, stage: &str) -> Taken<SegmentWriter<Slot<C>, Layout<C>>> {
        let (ring, number, _) = self.take(stage, EACH, true)?;
        // SAFETY: the seat was just taken, so no other handle exists. The stage writes.
        Ok(unsafe { ring.writer(number) })
    }

    /// Joins a tap.
    pub(crate) fn join_tap(
        &self,
        tap: &str,
        start: StartAt,
    ) -> Taken<SegmentSubscription<Slot<C>, Layout<C>>> {
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

    /// Takes a place in a pool that reads.
    pub(crate) fn take_pool_reader(
        &self,
        pool: &str,
    ) -> Taken<SegmentPoolReader<Slot<C>, Layout<C>>> {
        let (ring, number, seat) = self.take(pool, POOL, false)?;
        // SAFETY: the seat was just taken, so no other handle of it exists.
        Ok(unsafe { ring.pool_reader(number, seat) })
    }

    /// Takes a place in a pool that may write.
    pub(crate) fn take_pool_writer(
        &self,
        pool: &str,
    ) -> Taken<SegmentPoolWriter<Slot<C>, Layout<C>>> {
        let (ring, number, seat) = self.take(pool, POOL, true)?;
        // SAFETY: the seat was just taken, so no other handle of it exists. The pool writes.
        Ok(unsafe { ring.pool_writer(number, seat) })
    }

    /// Takes the seat of one shard. Returns the stage.
    pub(crate) fn take_shard(
        &self,
        stage: &str,
        shard: usize,
        writes: bool,
    ) -> Result<(&Ring<C>, usize), SegmentError> {
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
    ) -> Result<(&Ring<C>, usize, &StageDeclaration), SegmentError> {
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
    ) -> Result<(&Ring<C>, usize), SegmentError> {
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
    ) -> Result<(&Ring<C>, usize, usize), SegmentError> {
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

    fn ring(&self, asked: &str) -> Result<(&Ring<C>, &ring::Made), SegmentError> {
        let none = || Problem::NoStage { asked: asked.into(), known: Vec::new() };
        let (ring, made) = self.ring.as_ref().ok_or_else(|| self.failed(none()))?;
        Ok((ring, made))
    }
}
