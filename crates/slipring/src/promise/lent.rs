//! A value that its borrower's drop hands back to its owner.
//!
//! Invariants
//! - I1: the value and the promise are there until the drop, which takes each of them once.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use super::awaited::Awaited;
use super::fulfilling::{Promise, promise};
use crate::errors::Abandoned;

/// Lends a value to a handler that outlives the call, such as a stage of
/// [`Chain::spawn`](crate::Chain::spawn). The value comes back when the handler is dropped.
///
/// The first half dereferences to the value, and moves into the handler. The second half gets the
/// value when the first half is dropped. A stage drops its handler when it has ended, also after a
/// failure or a halt, and before [`Pipeline::join`](crate::Pipeline::join) returns.
///
/// ```
/// let (mut sum, mut back) = slipring::lend(0);
/// let (mut tx, pipeline) = slipring::ring(8, || 0u64)
///     .read("sum", move |value, _| *sum += value)
///     .spawn()?;
/// tx.publish_all(1..=3, |slot, i| *slot = i)?;
/// tx.close();
/// pipeline.join()?;
/// assert_eq!(back.wait()?, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A lent [`ReadHandler`](crate::stages::ReadHandler) or
/// [`UpdateHandler`](crate::stages::UpdateHandler) is such a handler itself. The guide shows [pools
/// and shards](crate::guide::worker_state).
///
/// If the second half is dropped first, the value is dropped with the handler, on the stage's
/// thread.
///
/// # Errors
/// The calls of the second half speak of a promise, by which the value comes back:
/// - [`AwaitError::TimedOut`](crate::errors::AwaitError::TimedOut), or `None` of
///   [`Awaited::try_take`]: the handler is still there, because its stage has not ended. Close the
///   producers, or halt the pipeline, and call again.
/// - [`AwaitError::Taken`](crate::errors::AwaitError::Taken): an earlier call has returned the
///   value.
///
/// The other errors do not occur. [`Awaited::wait`] waits for ever if the calling thread owns a
/// producer of the stage's ring.
///
/// # Cost
/// One allocation, like [`promise`]. Access to the lent value costs nothing.
#[must_use = "the value comes back through the second half, when the first half is dropped"]
pub fn lend<T>(value: T) -> (Lent<T>, Awaited<T>) {
    let (promise, back) = promise();
    let (value, promise) = (ManuallyDrop::new(value), ManuallyDrop::new(promise));
    (Lent { value, promise }, back)
}

/// A lent value. Its drop hands the value back. [`lend`] makes it.
///
/// A value that is forgotten (`std::mem::forget`) never comes back.
///
/// Example: [`lend`].
pub struct Lent<T> {
    value: ManuallyDrop<T>,
    promise: ManuallyDrop<Promise<T>>,
}

impl<T> Deref for Lent<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Lent<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        // SAFETY: the drop is the only taker, and runs once (I1).
        let (value, promise) =
            unsafe { (ManuallyDrop::take(&mut self.value), ManuallyDrop::take(&mut self.promise)) };
        if let Err(Abandoned(value)) = promise.fulfil(value) {
            drop(value);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&*self.value).finish()
    }
}
