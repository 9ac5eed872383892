//! A mapped segment, from which this process takes handles and learns about the other participants.
//!
//! Invariants
//! - I1: only unsafe functions make an [`Attached`] whose handles lend. Their callers promise how
//!   other processes treat the file.

use std::fmt;
use std::sync::Arc;

use slipring::{Report, Wait};

use crate::attach::participant::{Liveness, Participation};
use crate::attach::places::RingPlaces;
use crate::attach::ring;
use crate::contents::{Contents, Handles};
use crate::errors::{Problem, SegmentError};
use crate::layout::Checked;

/// A mapped segment. This process is a participant until the value, and all handles made from it,
/// are dropped.
///
/// The segment's contents decide which handles the calls return ([`Handles`]).
///
/// Example: the [first page](crate).
pub struct Attached<H: Handles> {
    pub(crate) places: RingPlaces<H::Slot, H::Layout>,
}

impl<C: Contents> Attached<C> {
    /// # Safety
    /// As [`Segment::attach`](crate::Segment::attach).
    pub(crate) unsafe fn new(inner: Arc<Participation>) -> Result<Attached<C>, Problem> {
        // SAFETY: the caller keeps the contract of `attach`. The segment was checked to hold `C`
        // (contents::I1).
        let places = unsafe { RingPlaces::new::<C>(inner, ring::over::<C::Slot, C::Layout>)? };
        Ok(Attached { places })
    }
}

impl<H: Handles> Attached<H> {
    /// Sets the waiting strategy of the handles that this process makes from now on. The strategy
    /// applies to stages that wait for events, and to producers that wait for room. Without this
    /// call, it is [`Wait::ADAPTIVE`]. Each process chooses its own strategy.
    ///
    /// ```
    /// use slipring::Wait;
    /// use slipring_shm::Segment;
    /// let segment =
    ///     Segment::<u64>::create_memfd("waits").capacity(8).reader("sum").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? }.wait(Wait::Blocking)?;
    /// let (mut tx, mut sum) = (attached.producer()?, attached.reader("sum")?);
    /// tx.publish(|slot| *slot = 7)?;
    /// assert_eq!(sum.batch(1)?[0], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if there is no memory for the strategy's state.
    pub fn wait(mut self, wait: Wait) -> Result<Attached<H>, SegmentError> {
        self.places.wait(wait)?;
        Ok(self)
    }

    /// Makes waiting calls return [`WaitError::NameLost`](slipring::errors::WaitError::NameLost)
    /// once the segment's name no longer refers to the attached file. A waiting call finds this
    /// within a notice (20 ms by default). Without this setting, the first waiting call that finds
    /// the loss gives a warning ([`slipring::waiting::on_warning`]), and continues to wait. The
    /// setting holds for all handles that this value makes or has made.
    ///
    /// ```
    /// use slipring::errors::WaitError;
    /// use slipring_shm::Segment;
    /// let name = format!("required-{}", std::process::id());
    /// let segment = Segment::<u64>::create(&name).capacity(8).reader("sum").build()?;
    /// // SAFETY: no other program opens the segment.
    /// let attached = unsafe { segment.attach()? }.require_name();
    /// let mut sum = attached.reader("sum")?;
    /// std::fs::remove_file(format!("/dev/shm/{name}.slipring"))?; // as `rm` does
    /// assert!(matches!(sum.batch(8), Err(WaitError::NameLost(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cost
    /// None: with or without this setting, a waiting call makes one system call per notice.
    pub fn require_name(self) -> Attached<H> {
        self.places.require_name();
        self
    }

    /// Applies `check` to the head of the attached segment.
    pub(crate) fn check(
        &self,
        check: fn(&Checked) -> Result<(), Problem>,
    ) -> Result<(), SegmentError> {
        check(self.participation().checked()).map_err(|problem| self.failed(problem))
    }

    /// Returns the position of the first event.
    pub(crate) fn first_seq(&self) -> u64 {
        self.participation().checked().header.first
    }

    /// Returns the ring's last position, if the ring was closed and neither halted nor failed.
    pub(crate) fn last_position(&self) -> Option<u64> {
        self.places.last_position()
    }

    pub(crate) fn failed(&self, problem: Problem) -> SegmentError {
        self.places.failed(problem)
    }

    /// Returns the positions and counts of all parties, whichever process runs them.
    ///
    /// Example: the [first page](crate).
    pub fn report(&self) -> Option<Report> {
        self.places.report()
    }

    /// Returns the number of this participant, from 1.
    ///
    /// Example: the [first page](crate).
    pub fn participant(&self) -> u32 {
        self.participation().number()
    }

    /// Returns the segment's random number, which no other segment has. All participants get the
    /// same number.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let make = || Segment::<u64>::create_memfd("sums").capacity(8).reader("sum").build();
    /// let (one, other) = (make()?, make()?);
    /// // SAFETY: no other process has the memfds.
    /// let (a, b, c) = unsafe { (one.attach()?, one.attach()?, other.attach()?) };
    /// assert!(a.id() == b.id() && a.id() != c.id());
    /// # Ok::<(), slipring_shm::SegmentError>(())
    /// ```
    pub fn id(&self) -> [u8; 16] {
        self.participation().checked().header.id
    }

    /// Returns the number of slots.
    ///
    /// Example: [`Segment::open_memfd`](crate::Segment::open_memfd).
    pub fn capacity(&self) -> u64 {
        self.participation().checked().shape.capacity
    }

    /// Returns whether the segment's name no longer refers to the file that this process is
    /// attached to. This happens if a program other than `slipring rm` removes or renames the file,
    /// or makes another file of that name. The attached processes then continue to work, but
    /// programs that open the name find another file or none. A memfd has no name, so the result is
    /// `false`.
    ///
    /// Waiting calls check by themselves: see [`require_name`](Attached::require_name). The call
    /// does not notice if the folder was renamed and made again, because it cannot tell this from a
    /// change of the process's root.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let name = format!("lost-{}", std::process::id());
    /// let segment = Segment::<u64>::create(&name).capacity(8).reader("sum").build()?;
    /// // SAFETY: no other program opens the segment.
    /// let attached = unsafe { segment.attach()? };
    /// assert!(!attached.has_lost_name()?);
    /// std::fs::remove_file(format!("/dev/shm/{name}.slipring"))?; // as `rm` does
    /// assert!(attached.has_lost_name()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cost
    /// The call costs one system call as long as the name refers to the attached file.
    ///
    /// # Errors
    /// Fails if the system does not report which file the name refers to.
    pub fn has_lost_name(&self) -> Result<bool, SegmentError> {
        self.places.has_lost_name()
    }

    /// Returns the liveness of participant `number`. The call takes one system call. If the
    /// participant's byte is locked, it takes a few more, which read `/proc`.
    ///
    /// ```
    /// # use slipring_shm::{Event, Segment};
    /// # use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    /// # #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    /// # #[repr(C)]
    /// # struct Block(u64);
    /// # impl Event for Block {
    /// #     const NAME: &'static str = "field/Block";
    /// #     const VERSION: u32 = 1;
    /// # }
    /// use slipring_shm::summaries::Liveness;
    ///
    /// let made = Segment::<Block>::create_memfd("field").capacity(8).reader("all").build()?;
    /// // SAFETY: no other process has the descriptor.
    /// let attached = unsafe { made.attach()? };
    /// assert_eq!(attached.liveness(1)?, Liveness::Alive);
    /// assert_eq!(attached.liveness(2)?, Liveness::Free);
    /// # Ok::<(), slipring_shm::SegmentError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the kernel refuses to probe the lock.
    pub fn liveness(&self, number: u32) -> Result<Liveness, SegmentError> {
        self.places.liveness(number)
    }

    /// Returns the participation, which keeps the segment mapped.
    #[doc(hidden)]
    pub fn participation(&self) -> &Arc<Participation> {
        self.places.participation()
    }
}

impl<H: Handles> fmt::Debug for Attached<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("participant", &self.participant()).finish()
    }
}
