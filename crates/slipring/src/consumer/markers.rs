//! The type of each [`Consumer`](crate::Consumer) contains two markers: one for the access to
//! events, and one for the delivery of events, which selects the type of the consumer's position.

pub(crate) mod sealed {
    use crate::consumer::local_worker::LocalWorkerPosition;
    use crate::consumer::position::Availability;
    use crate::consumer::role::MemberRole;
    use crate::consumer::sequential::{SequentialPosition, StagePosition};
    use crate::consumer::shard::ShardPosition;
    use crate::ring::slots::Layout;

    /// The access of a handle to events: `Reading` or `Updating`.
    pub trait Access: 'static {}

    /// The delivery of events to a handle: which events the handle sees, and which other handles
    /// share the stage's events with it.
    pub trait Delivery: 'static {
        /// Position of the handle.
        #[doc(hidden)]
        #[allow(private_bounds)]
        type Position<E, L: Layout>: Availability<E, L>;
    }

    /// A delivery whose handles may hold events while they continue with later ones.
    pub trait Holds: Delivery {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64);
    }

    impl Access for super::Reading {}
    impl Access for super::Updating {}

    impl Delivery for super::Each {
        type Position<E, L: Layout> = StagePosition<E, L>;
    }
    impl Delivery for super::Joined {
        type Position<E, L: Layout> = SequentialPosition<E, L, MemberRole>;
    }
    impl Delivery for super::Sharded {
        type Position<E, L: Layout> = ShardPosition<E, L>;
    }
    impl Delivery for super::Pooled {
        type Position<E, L: Layout> = LocalWorkerPosition<E, L>;
    }

    impl Holds for super::Each {
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64) {
            position.release_until(seq);
        }
    }
    impl Holds for super::Joined {
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64) {
            position.release_until(seq);
        }
    }
}

/// Access marker of a [`Consumer`](crate::Consumer) that lends `&E`.
pub struct Reading(());

/// Access marker of a [`Consumer`](crate::Consumer) that lends `&mut E`.
pub struct Updating(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that sees every event.
pub struct Each(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that joined a tap and sees every event from
/// its first position on.
pub struct Joined(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that is a worker and shares the events with
/// the other workers of its pool.
pub struct Pooled(());

/// Delivery marker of a [`Consumer`](crate::Consumer) that is a shard and sees the events of its
/// own keys.
pub struct Sharded(());
