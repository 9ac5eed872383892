//! Taking the places of a segment's ring: the seats of producers and stages, found by name.
//!
//! Invariants
//! - I1: a call returns a stage and a seat only after this process took the seat.
//! - I2: `RingPlaces::over` makes a ring over the participation's segment, with the type of events
//!   that the segment was checked to hold. The promise that `RingPlaces::new` asks of its caller
//!   holds as long as the participation lives.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use slipring::segment::{
    SegmentLayout, SegmentRequest, SegmentRing, StageDeclaration, StageDelivery,
};
use slipring::{Report, Wait, errors::SubscribeError, markers::Interleaved, stages::PRODUCER};

use crate::attach::participant::{Liveness, Participation};
use crate::attach::ring::{self, DeclaredRing};
use crate::contents::{Contents, stages};
use crate::errors::{Problem, SegmentError};

/// The deliveries that callers ask for. Only the kind of delivery is compared, so the numbers of
/// places and the keys are 0 here.
pub(crate) const EACH: StageDelivery = StageDelivery::Each;
pub(crate) const POOL: StageDelivery = StageDelivery::Pool(0);
const TAP: StageDelivery = StageDelivery::Tap(0);
const SHARDS: StageDelivery = StageDelivery::Shards { shards: 0, key_offset: 0, key_length: 0 };

/// Makes a process's ring from the declaration in the head, and from the wait strategy of its
/// handles.
type Over<T, L> =
    unsafe fn(&Arc<Participation>, &DeclaredRing, Wait) -> Result<SegmentRing<T, L>, Problem>;

/// The places of an attached process's ring, whose events are of type `T`.
pub(crate) struct RingPlaces<T, L: SegmentLayout = Interleaved> {
    inner: Arc<Participation>,
    /// The ring, and what it was made from; `None` if the segment has no ring.
    ring: Option<(SegmentRing<T, L>, DeclaredRing)>,
    /// Makes the ring (I2).
    over: Over<T, L>,
}

impl<T, L: SegmentLayout> RingPlaces<T, L> {
    /// Makes the ring of this process: reads the declaration of a ring with the contents `C` from
    /// the head, and passes it to `over`.
    ///
    /// # Safety
    /// It is sound to call `over` with this participation, any number of times (I2).
    pub(crate) unsafe fn new<C: Contents>(
        inner: Arc<Participation>,
        over: Over<T, L>,
    ) -> Result<RingPlaces<T, L>, Problem> {
        let made = stages::declaration::<C>(inner.checked())?;
        let made = made.map(|(declaration, needs)| DeclaredRing { declaration, needs });
        let ring = match made {
            // SAFETY: the caller's promise.
            Some(made) => Some((unsafe { over(&inner, &made, Default::default())? }, made)),
            None => None,
        };
        Ok(RingPlaces { inner, ring, over })
    }

    /// Makes the ring again, so that handles taken from now on use the wait strategy `wait`.
    pub(crate) fn wait(&mut self, wait: Wait) -> Result<(), SegmentError> {
        if let Some((ring, made)) = &mut self.ring {
            // SAFETY: I2.
            let over = unsafe { (self.over)(&self.inner, made, wait) };
            *ring = over.map_err(|problem| SegmentError::new("(attached)", problem))?;
        }
        Ok(())
    }

    /// Returns the request at `seq`, or `None` if the segment has no ring.
    pub(crate) fn request(&self, seq: u64) -> Option<SegmentRequest>
    where
        T: Send + 'static,
    {
        self.ring.as_ref().map(|(ring, _)| ring.request(seq))
    }

    /// Takes the seat of the only producer.
    pub(crate) fn take_producer(&self) -> Result<&SegmentRing<T, L>, SegmentError> {
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
        // An earlier producer may have closed the ring since the check above, because it closes the
        // ring before it frees the place.
        if ring.is_over() {
            ring.seat(seat).free(self.inner.number());
            return Err(self.failed(Problem::Over));
        }
        Ok(ring)
    }

    /// Takes the seat of one of several producers.
    pub(crate) fn take_shared_producer(&self) -> Result<(&SegmentRing<T, L>, usize), SegmentError> {
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
        Ok((ring, seat))
    }

    /// Joins a tap by `join`, which gets the tap's index. Recovers dead readers if all places are
    /// taken.
    pub(crate) fn subscribe<'a, M>(
        &'a self,
        tap: &str,
        join: impl Fn(&'a SegmentRing<T, L>, usize) -> Result<M, SubscribeError>,
    ) -> Result<M, SegmentError> {
        let (ring, number, _) = self.stage(tap, TAP)?;
        // The loop repeats only if a reader has died or left since the last attempt.
        for _ in 0..64 {
            step!("subscribing");
            match join(ring, number) {
                Ok(member) => {
                    step!("subscribed");
                    return Ok(member);
                }
                Err(SubscribeError::Full { .. }) => {
                    let seat = ring::take_any(&self.inner, ring, ring.seats_of(number), tap);
                    let seat = seat.map_err(|problem| self.failed(problem))?;
                    ring.seat(seat).free(self.inner.number());
                }
                Err(reason) => {
                    return Err(self.failed(Problem::Subscribe { tap: tap.into(), reason }));
                }
            }
        }
        Err(self.failed(Problem::Busy))
    }

    /// Takes the seat of one shard. Returns the ring and the index of the stage.
    pub(crate) fn take_shard(
        &self,
        stage: &str,
        shard: usize,
        writes: bool,
    ) -> Result<(&SegmentRing<T, L>, usize), SegmentError> {
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

    /// Finds a stage, and checks that its kind of delivery is that of `delivery`.
    fn stage(
        &self,
        stage: &str,
        delivery: StageDelivery,
    ) -> Result<(&SegmentRing<T, L>, usize, &StageDeclaration), SegmentError> {
        let (ring, made) = self.ring(stage)?;
        let stages = &made.declaration.stages;
        let number = stages.iter().position(|known| known.name == stage);
        let number = number.ok_or_else(|| {
            let known = stages.iter().map(|known| known.name.clone()).collect();
            self.failed(Problem::NoStage { asked: stage.into(), known })
        })?;
        let declared = stages::delivery_number(stages[number].delivery);
        if declared != stages::delivery_number(delivery) {
            let (stage, delivery) = (stage.into(), stages::DELIVERIES[usize::from(declared)]);
            return Err(self.failed(Problem::Delivery { stage, delivery }));
        }
        Ok((ring, number, &stages[number]))
    }

    /// Finds a stage, and checks its kind of delivery, and whether it was declared as a writer.
    fn stage_of(
        &self,
        stage: &str,
        delivery: StageDelivery,
        writes: bool,
    ) -> Result<(&SegmentRing<T, L>, usize), SegmentError> {
        let (ring, number, declared) = self.stage(stage, delivery)?;
        if declared.writes != writes {
            let stage = stage.into();
            return Err(self.failed(Problem::Access { stage, writes: !writes }));
        }
        Ok((ring, number))
    }

    /// Takes a seat of a stage, after the checks of [`RingPlaces::stage_of`]. Returns the ring, and
    /// the indices of the stage and the seat.
    pub(crate) fn take(
        &self,
        stage: &str,
        delivery: StageDelivery,
        writes: bool,
    ) -> Result<(&SegmentRing<T, L>, usize, usize), SegmentError> {
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

    fn ring(&self, asked: &str) -> Result<(&SegmentRing<T, L>, &ring::DeclaredRing), SegmentError> {
        let none = || Problem::NoStage { asked: asked.into(), known: Vec::new() };
        let (ring, made) = self.ring.as_ref().ok_or_else(|| self.failed(none()))?;
        Ok((ring, made))
    }

    /// Returns the ring's last position, if the ring was closed and neither halted nor failed.
    pub(crate) fn last_position(&self) -> Option<u64> {
        self.ring.as_ref().and_then(|(ring, _)| ring.last_position())
    }

    pub(crate) fn failed(&self, problem: Problem) -> SegmentError {
        let place =
            self.inner.path().map_or_else(|| "(memfd)".into(), |path| path.display().to_string());
        SegmentError::new(place, problem)
    }

    /// Returns the positions and counts of all parties, whichever process runs them.
    pub(crate) fn report(&self) -> Option<Report> {
        self.ring.as_ref().map(|(ring, _)| ring.report())
    }

    /// Returns the liveness of participant `number`.
    pub(crate) fn liveness(&self, number: u32) -> Result<Liveness, SegmentError> {
        let place = format!("of participant {}", self.inner.number());
        self.inner.liveness(number).map_err(|problem| SegmentError::new(place, problem))
    }

    /// Returns whether the segment has lost its name.
    pub(crate) fn has_lost_name(&self) -> Result<bool, SegmentError> {
        let Some(name) = self.inner.name() else { return Ok(false) };
        let lost = name.find_loss(self.inner.probe().as_fd());
        lost.map(|lost| lost.is_some())
            .map_err(|error| self.failed(Problem::system("looking at the name", error)))
    }

    /// Makes waiting calls of this participant return an error once the name is lost.
    pub(crate) fn require_name(&self) {
        self.inner.name().inspect(|name| name.require());
    }

    /// Returns the participation, which keeps the segment mapped.
    pub(crate) fn participation(&self) -> &Arc<Participation> {
        &self.inner
    }
}
