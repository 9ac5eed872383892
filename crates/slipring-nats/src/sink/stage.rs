//! The ring's side of a sink: a handle that reads each event and releases late.

use slipring::{BatchError, Consumer, Every, Layout, Reading, Seated, Waitable};

use self::sealed::Sealed;

/// A stage's handle that a sink can own: a [`Reader`](slipring::Reader) of a graph, or one of a
/// segment (`slipring_shm::Reader`).
///
/// A sink is a required stage: the ring waits for it. So it takes no subscription of a tap.
pub trait Stage: Sealed + Send + 'static {
    /// The events of the ring.
    type Event;
}

pub(super) mod sealed {
    use super::{BatchError, Waitable};

    pub trait Sealed: Waitable {
        type Of;
        fn name(&self) -> String;
        fn next(&self) -> u64;
        /// Number of events that are available now, beyond the held ones.
        fn known(&mut self) -> Result<usize, BatchError>;
        /// Shows up to `max` events, and holds them.
        fn hold(
            &mut self,
            max: usize,
            each: impl FnMut(&Self::Of, u64),
        ) -> Result<usize, BatchError>;
        fn release(&mut self, end: u64);
    }
}

macro_rules! stages {
    ($($delivery:ident)*) => {$(
        impl<E: Send + 'static, L: Layout + 'static> Sealed for Consumer<E, Reading, $delivery, L>
        where
            Self: Waitable,
        {
            type Of = E;
            fn name(&self) -> String {
                self.stage().to_string()
            }
            fn next(&self) -> u64 {
                self.next_seq()
            }
            fn known(&mut self) -> Result<usize, BatchError> {
                Ok(self.try_batch(usize::MAX)?.len())
            }
            fn hold(
                &mut self,
                max: usize,
                mut each: impl FnMut(&E, u64),
            ) -> Result<usize, BatchError> {
                let batch = self.try_batch(max)?;
                let (first, len) = (batch.first_seq(), batch.len());
                for (event, seq) in batch.iter().zip(first..) {
                    each(event, seq);
                }
                batch.hold();
                Ok(len)
            }
            fn release(&mut self, end: u64) {
                self.release_until(end);
            }
        }

        impl<E: Send + 'static, L: Layout + 'static> Stage for Consumer<E, Reading, $delivery, L>
        where
            Self: Waitable + Send,
        {
            type Event = E;
        }
    )*};
}

stages!(Every Seated);
