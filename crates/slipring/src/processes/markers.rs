//! The delivery markers of the handles of a segment. Each handle may follow the handle of a process
//! that died or left.

use crate::consumer::markers::sealed::{Delivery, Holds};
use crate::consumer::sequential::SequentialPosition;
use crate::consumer::shard::ShardPosition;
use crate::consumer::worker::WorkerPosition;
use crate::errors::WaitError;
use crate::processes::successor::{self, SeatRole};
use crate::processes::worker::SeatedRole;
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::Layout;

/// Delivery marker of a [`Consumer`](crate::Consumer) that sits at a stage of a segment and sees
/// every event. Another process may take its place after it has left or died.
pub struct Seated(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that is a worker of a segment's pool. Another
/// process may take its place, and its unfinished events, after it has left or died.
pub struct SeatedWorker(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that is a shard of a segment and sees the
/// events of its own keys. Another process may take its place after it has left or died.
pub struct SeatedShard(());

impl Delivery for Seated {
    type Position<E, L: Layout> = SequentialPosition<E, L, SeatRole>;
}
impl Delivery for SeatedShard {
    type Position<E, L: Layout> = ShardPosition<E, L, SeatRole>;
}
impl Delivery for SeatedWorker {
    type Position<E, L: Layout> = WorkerPosition<E, L, SeatedRole>;
}

/// A kind of delivery in which a new handle takes over from the handle of a process that died or
/// left.
pub trait Succeeds: Delivery {
    /// Returns the positions of the events that the handle lends again.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn again<E, L: Layout>(position: &Self::Position<E, L>) -> SeqRange;
}

/// A delivery in which a handle begins with the events that the previous handle was lent and has
/// not released: it lends these events again.
pub trait BeginsAgain: Succeeds {
    /// Passes over the events that the previous handle was lent and has not released; see
    /// `processes::successor`.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn pass_over<E, L: Layout>(position: &mut Self::Position<E, L>) -> Result<u64, WaitError>;
}

impl Succeeds for Seated {
    fn again<E, L: Layout>(position: &Self::Position<E, L>) -> SeqRange {
        position.role().again.clone()
    }
}
impl Succeeds for SeatedShard {
    fn again<E, L: Layout>(position: &Self::Position<E, L>) -> SeqRange {
        position.sequence().role().again.clone()
    }
}
impl Succeeds for SeatedWorker {
    fn again<E, L: Layout>(position: &Self::Position<E, L>) -> SeqRange {
        position.again().clone()
    }
}

impl BeginsAgain for Seated {
    fn pass_over<E, L: Layout>(position: &mut Self::Position<E, L>) -> Result<u64, WaitError> {
        let end = position.role().again.end_seq();
        successor::pass_over(position, end)
    }
}
impl BeginsAgain for SeatedShard {
    fn pass_over<E, L: Layout>(position: &mut Self::Position<E, L>) -> Result<u64, WaitError> {
        let end = position.sequence().role().again.end_seq();
        successor::pass_over(position, end)
    }
}

impl Holds for Seated {
    fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64) {
        position.release_until(seq);
    }
}
