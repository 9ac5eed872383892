//! The ring's side of a source: a producer's handle.

use slipring::{
    Producer,
    errors::ClaimError,
    markers::{Layout, Many, Single},
};

/// A producer's handle that a source can own. It belongs to a graph with one or several producers,
/// or to a segment with one producer (`slipring_shm::Producer`).
///
/// Even if the ring allows several producers, the source must be the only one, because each event
/// must get the same position in the ring as in the stream.
///
/// A segment that allows several producers skips the positions that a killed producer has claimed.
/// If a source were killed, the next one could not fill these positions. So a program that gives
/// such a segment to a source does not compile:
///
/// ```compile_fail,E0277
/// use slipring::{Producer, markers::Interleaved, segment::Apart};
/// use slipring_nats::{Decoding, OpenSource};
/// fn replay(source: OpenSource, of_several: Producer<u64, Interleaved, Apart>) {
///     let _ = source.start(Decoding::plain("number", 1), of_several);
/// }
/// ```
pub trait Feed: sealed::Sealed + Send + 'static {
    /// The events of the ring.
    type Event: Send + 'static;
    #[doc(hidden)]
    fn next(&self) -> u64;
    #[doc(hidden)]
    fn slots(&self) -> usize;
    #[doc(hidden)]
    fn end_failed(&self);
    /// Calls `fill` for `len` slots, and publishes all of them. If a call fails, publishes none.
    /// Returns the position of the first slot, or the error of the failed call.
    #[doc(hidden)]
    fn fill<R>(
        &mut self,
        len: usize,
        fill: impl FnMut(&mut Self::Event) -> Result<(), R>,
    ) -> impl Future<Output = Result<Result<u64, R>, ClaimError>>;
    /// Leaves out `len` positions, if the ring can do so. Returns whether it can.
    #[doc(hidden)]
    fn skip(&mut self, len: usize) -> impl Future<Output = Result<bool, ClaimError>>;
}

#[cfg(test)]
pub(crate) use self::sealed::Sealed as FeedSealed;

mod sealed {
    pub trait Sealed {}
}

macro_rules! feeds {
    ($($sharing:ident $skips:literal)*) => {$(
        impl<E, L: Layout> sealed::Sealed for Producer<E, L, $sharing> {}

        impl<E: Send + 'static, L: Layout + 'static> Feed for Producer<E, L, $sharing>
        where
            Self: Send,
        {
            type Event = E;
            fn next(&self) -> u64 {
                self.next_seq()
            }
            fn slots(&self) -> usize {
                self.capacity()
            }
            fn end_failed(&self) {
                self.halt();
            }
            async fn fill<R>(
                &mut self,
                len: usize,
                mut fill: impl FnMut(&mut E) -> Result<(), R>,
            ) -> Result<Result<u64, R>, ClaimError> {
                let mut claim = self.claim_n_async(len).await?;
                step!("source-claimed");
                for slot in claim.iter_mut() {
                    if let Err(error) = fill(slot) {
                        return Ok(Err(error));
                    }
                    step!("source-filling");
                }
                step!("source-filled");
                Ok(Ok(claim.publish()))
            }
            async fn skip(&mut self, len: usize) -> Result<bool, ClaimError> {
                if $skips {
                    // A claim that is given up leaves its positions without events.
                    let claim = self.claim_n_async(len).await?;
                    step!("source-leaving-out");
                    drop(claim);
                }
                Ok($skips)
            }
        }
    )*};
}

feeds!(Single false Many true);
