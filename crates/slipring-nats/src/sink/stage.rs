//! The ring's side of a sink: a handle that reads each event and releases it later.

use std::ops::ControlFlow;
use std::task::Waker;

use slipring::{
    Consumer,
    errors::BatchError,
    markers::{Each, Layout, Reading},
    segment::Seated,
    tasks::Waitable,
};

/// A stage's handle that a sink can own: a [`Reader`](slipring::Reader) of a graph or of a segment
/// (`slipring_shm::Reader`).
///
/// A sink must be a required stage, for which the ring waits. So a sink cannot own a subscription
/// to a tap.
pub trait Stage: sealed::Sealed + Send {
    /// The events of the ring.
    type Event: Send + 'static;
    #[doc(hidden)]
    fn name(&self) -> String;
    #[doc(hidden)]
    fn next(&self) -> u64;
    /// Returns the number of events that are available now, without the held ones.
    #[doc(hidden)]
    fn known(&mut self) -> Result<usize, BatchError>;
    /// Calls `each` for up to `max` events, and holds these events. Stops after the first event for
    /// which `each` breaks.
    #[doc(hidden)]
    fn hold(
        &mut self,
        max: usize,
        each: impl FnMut(&Self::Event, u64) -> ControlFlow<()>,
    ) -> Result<usize, BatchError>;
    #[doc(hidden)]
    fn release(&mut self, end: u64);
    #[doc(hidden)]
    fn arm(&mut self, waker: &Waker) -> bool;
    #[doc(hidden)]
    fn disarm(&mut self);
}

impl<S: Stage> sealed::Sealed for &mut S {}

impl<S: Stage> Stage for &mut S {
    type Event = S::Event;
    fn name(&self) -> String {
        (**self).name()
    }
    fn next(&self) -> u64 {
        (**self).next()
    }
    fn known(&mut self) -> Result<usize, BatchError> {
        (**self).known()
    }
    fn hold(
        &mut self,
        max: usize,
        each: impl FnMut(&S::Event, u64) -> ControlFlow<()>,
    ) -> Result<usize, BatchError> {
        (**self).hold(max, each)
    }
    fn release(&mut self, end: u64) {
        (**self).release(end);
    }
    fn arm(&mut self, waker: &Waker) -> bool {
        (**self).arm(waker)
    }
    fn disarm(&mut self) {
        (**self).disarm();
    }
}

#[cfg(test)]
pub(crate) use self::sealed::Sealed as StageSealed;

mod sealed {
    pub trait Sealed {}
}

macro_rules! stages {
    ($($delivery:ident)*) => {$(
        impl<E, L: Layout> sealed::Sealed for Consumer<E, Reading, $delivery, L> {}

        impl<E: Send + 'static, L: Layout + 'static> Stage for Consumer<E, Reading, $delivery, L>
        where
            Self: Send,
        {
            type Event = E;
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
                mut each: impl FnMut(&E, u64) -> ControlFlow<()>,
            ) -> Result<usize, BatchError> {
                let batch = self.try_batch(max)?;
                let (first, len) = (batch.first_seq(), batch.len());
                for (event, seq) in batch.iter().zip(first..) {
                    let shown = (seq - first) as usize + 1;
                    if each(event, seq).is_break() && shown < len {
                        self.try_batch(shown)?.hold();
                        return Ok(shown);
                    }
                }
                batch.hold();
                Ok(len)
            }
            fn release(&mut self, end: u64) {
                self.release_until(end);
            }
            fn arm(&mut self, waker: &Waker) -> bool {
                Waitable::arm(self, waker)
            }
            fn disarm(&mut self) {
                Waitable::disarm(self);
            }
        }
    )*};
}

stages!(Each Seated);
