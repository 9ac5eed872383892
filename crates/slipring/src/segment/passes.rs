//! Calls of a segment's producers that wait until stages have passed. Producers of blocks, of
//! messages and of copies have them alike: each contains a [`Producer`](crate::Producer), which
//! waits.

/// Implements the calls for a handle whose method `producer` lends the producer in it.
macro_rules! passes {
    ($handle:ty, $($parameters:tt)*) => {
        impl<$($parameters)*> $handle {
            /// Waits until the stage named `stage` has passed the position `seq`, which a
            /// publication of this ring returned, as
            /// [`Producer::wait_for`](crate::Producer::wait_for) does. A stage that has passed a
            /// message's position has released the whole message.
            ///
            /// ```
            /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
            /// use slipring::errors::PassError;
            /// use slipring_shm::{Segment, messages::Messages};
            /// use std::time::{Duration, Instant};
            /// let segment = Segment::<Messages>::create_memfd("orders").capacity(64);
            /// let segment = segment.type_name("order", 1).reader("journal").build()?;
            /// // SAFETY: no other process has the memfd.
            /// let attached = unsafe { segment.attach()? };
            /// let (mut tx, mut journal) = (attached.producer()?, attached.reader("journal")?);
            /// let seq = tx.publish(1, b"buy 7")?;
            /// let soon = Instant::now() + Duration::from_millis(1);
            /// assert!(matches!(tx.flush_by(soon), Err(PassError::TimedOut(_))));
            /// journal.poll(|_| ())?;
            /// tx.wait_for("journal", seq)?;
            /// tx.flush()?;
            /// # }
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Errors
            /// The call returns the errors of [`Producer::wait_for`](crate::Producer::wait_for),
            /// such as [`WaitError::PeerDead`](crate::errors::WaitError::PeerDead) if the process
            /// of the stage, or of a stage before it, has died.
            ///
            /// # Cost
            /// Costs what [`Producer::wait_for`](crate::Producer::wait_for) costs.
            pub fn wait_for(
                &mut self,
                stage: &str,
                seq: u64,
            ) -> Result<(), crate::errors::PassError> {
                self.producer().wait_for(stage, seq)
            }

            /// Like [`wait_for`](Self::wait_for), but waits at most until `deadline`, whatever
            /// other processes store.
            ///
            /// Example: [`wait_for`](Self::wait_for).
            ///
            /// # Errors
            /// The call returns the errors of
            /// [`Producer::wait_for_by`](crate::Producer::wait_for_by).
            pub fn wait_for_by(
                &mut self,
                stage: &str,
                seq: u64,
                deadline: std::time::Instant,
            ) -> Result<(), crate::errors::PassError> {
                self.producer().wait_for_by(stage, seq, deadline)
            }

            /// Like [`wait_for`](Self::wait_for), but for a task instead of a thread.
            ///
            /// Example: [`Producer::wait_for_async`](crate::Producer::wait_for_async).
            ///
            /// # Errors
            /// The future yields the errors of
            /// [`Producer::wait_for_async`](crate::Producer::wait_for_async).
            pub fn wait_for_async(
                &mut self,
                stage: &str,
                seq: u64,
            ) -> crate::ring::passing::PassAsync<'_> {
                self.producer().wait_for_async(stage, seq)
            }

            /// Waits until every last stage has passed everything that was published before the
            /// call, as [`Producer::flush`](crate::Producer::flush) does.
            ///
            /// Example: [`wait_for`](Self::wait_for).
            ///
            /// # Errors
            /// The call returns the errors of [`Producer::flush`](crate::Producer::flush).
            ///
            /// # Cost
            /// Costs what [`Producer::flush`](crate::Producer::flush) costs.
            pub fn flush(&mut self) -> Result<(), crate::errors::PassError> {
                self.producer().flush()
            }

            /// Like [`flush`](Self::flush), but waits at most until `deadline`, whatever other
            /// processes store.
            ///
            /// Example: [`wait_for`](Self::wait_for).
            ///
            /// # Errors
            /// The call returns the errors of [`Producer::flush_by`](crate::Producer::flush_by).
            pub fn flush_by(
                &mut self,
                deadline: std::time::Instant,
            ) -> Result<(), crate::errors::PassError> {
                self.producer().flush_by(deadline)
            }

            /// Like [`flush`](Self::flush), but for a task instead of a thread. The future waits
            /// for what was published before this call, not before its first poll.
            ///
            /// Example: [`Producer::wait_for_async`](crate::Producer::wait_for_async).
            ///
            /// # Errors
            /// The future yields the errors of
            /// [`Producer::flush_async`](crate::Producer::flush_async).
            pub fn flush_async(&mut self) -> crate::ring::passing::PassAsync<'_> {
                self.producer().flush_async()
            }
        }
    };
}

pub(super) use passes;
