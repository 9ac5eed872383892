//! The type of each [`Consumer`](crate::Consumer) contains two markers: one for the access to
//! events, and one for the delivery of events. The delivery marker selects the type of the
//! consumer's position.

pub(crate) mod sealed {
    use crate::consumer::local_worker::LocalWorkerPosition;
    use crate::consumer::position::Availability;
    use crate::consumer::role::MemberRole;
    use crate::consumer::seated_worker::SeatedRole;
    use crate::consumer::sequential::{SequentialPosition, StagePosition};
    use crate::consumer::shard::ShardPosition;
    use crate::consumer::successor::{self, SeatRole};
    use crate::consumer::worker::WorkerPosition;
    use crate::errors::WaitError;
    use crate::ring::seq_range::SeqRange;
    use crate::ring::slots::Layout;

    /// The access of a handle to events: `Reading` or `Writing`.
    pub trait Access: 'static {}

    /// Which events a handle sees, and among which other handles.
    pub trait Delivery: 'static {
        /// Position of the handle.
        #[doc(hidden)]
        #[allow(private_bounds)]
        type Position<E, L: Layout>: Availability<E, L>;
    }

    /// A delivery whose handles may go on to later events without a release.
    pub trait Holds: Delivery {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64);
    }

    impl Access for super::Reading {}
    impl Access for super::Writing {}

    impl Delivery for super::Every {
        type Position<E, L: Layout> = StagePosition<E, L>;
    }
    impl<const SEGMENT: bool> Delivery for super::Joined<SEGMENT> {
        type Position<E, L: Layout> = SequentialPosition<E, L, MemberRole<SEGMENT>>;
    }
    impl Delivery for super::Seated {
        type Position<E, L: Layout> = SequentialPosition<E, L, SeatRole>;
    }
    impl Delivery for super::Sharded {
        type Position<E, L: Layout> = ShardPosition<E, L>;
    }
    impl Delivery for super::SeatedShard {
        type Position<E, L: Layout> = ShardPosition<E, L, SeatRole>;
    }
    impl Delivery for super::Shared {
        type Position<E, L: Layout> = LocalWorkerPosition<E, L>;
    }
    impl Delivery for super::SeatedWorker {
        type Position<E, L: Layout> = WorkerPosition<E, L, SeatedRole>;
    }

    /// A delivery whose handles follow the handle of a process that died or left.
    pub trait Succeeds: Delivery {
        /// Returns the positions that were lent before and that the handle lends again.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn again<E, L: Layout>(position: &Self::Position<E, L>) -> SeqRange;
    }

    /// A delivery whose handles lend first what the handle before was lent and has not released.
    pub trait BeginsAgain: Succeeds {
        /// Passes over those events; see `consumer::successor`.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn pass_over<E, L: Layout>(position: &mut Self::Position<E, L>) -> Result<u64, WaitError>;
    }

    impl Succeeds for super::Seated {
        fn again<E, L: Layout>(position: &Self::Position<E, L>) -> SeqRange {
            position.role().again.clone()
        }
    }
    impl Succeeds for super::SeatedShard {
        fn again<E, L: Layout>(position: &Self::Position<E, L>) -> SeqRange {
            position.sequence().role().again.clone()
        }
    }
    impl Succeeds for super::SeatedWorker {
        fn again<E, L: Layout>(position: &Self::Position<E, L>) -> SeqRange {
            position.again().clone()
        }
    }

    impl BeginsAgain for super::Seated {
        fn pass_over<E, L: Layout>(position: &mut Self::Position<E, L>) -> Result<u64, WaitError> {
            let end = position.role().again.end_seq();
            successor::pass_over(position, end)
        }
    }
    impl BeginsAgain for super::SeatedShard {
        fn pass_over<E, L: Layout>(position: &mut Self::Position<E, L>) -> Result<u64, WaitError> {
            let end = position.sequence().role().again.end_seq();
            successor::pass_over(position, end)
        }
    }

    impl Holds for super::Every {
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64) {
            position.release_until(seq);
        }
    }
    impl Holds for super::Seated {
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64) {
            position.release_until(seq);
        }
    }
    impl<const SEGMENT: bool> Holds for super::Joined<SEGMENT> {
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64) {
            position.release_until(seq);
        }
    }
}

/// Access marker of a [`Consumer`](crate::Consumer) that lends `&E`.
pub struct Reading(());

/// Access marker of a [`Consumer`](crate::Consumer) that lends `&mut E`.
pub struct Writing(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that sees every event.
pub struct Every(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that sits at a stage of a segment and sees
/// every event. Another process may take its place after it has left or died.
pub struct Seated(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that joined a tap and sees every event from
/// its first position on. If `SEGMENT`, the tap lies in a segment, and its other members may be
/// other processes.
pub struct Joined<const SEGMENT: bool = false>(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that is a worker and shares the events with
/// the other workers of its pool.
pub struct Shared(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that is a worker of a segment's pool. Another
/// process may take its place, and its unfinished events, after it has left or died.
pub struct SeatedWorker(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that is a shard and sees the events of its
/// own keys.
pub struct Sharded(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that is a shard of a segment and sees the
/// events of its own keys. Another process may take its place after it has left or died.
pub struct SeatedShard(());
