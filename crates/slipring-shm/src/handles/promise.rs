//! A promise between processes: one value that is handed over once, and survives a killed process
//! on either side.
//!
//! A promise is a ring of one slot, with a single producer and a single stage. The producer
//! publishes one event and closes the ring. So a promise needs no other protocol or recovery than a
//! ring's: a successor takes the place of a dead owner, and an event that was lent to a dead waiter
//! is lent again.
//!
//! Invariants
//! - I1: only the first position of a promise's ring is ever published: [`Promise::fulfil`]
//!   consumes the handle, and a handle is made only while that position is unpublished.
//! - I2: only a published first position fulfils a promise. A ring that is closed at its first
//!   position is a broken promise.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use slipring::segment::{OnDeath, SegmentProducer};
use slipring::{
    Wait,
    errors::{ClaimError, WaitError},
    waiting::WaitStrategy as _,
};

use crate::contents::Event;
use crate::errors::{Problem, SegmentError};
use crate::handles::attached::Attached;
use crate::handles::awaited::Awaited;
use crate::handles::builder::Builder;
use crate::handles::segment::Segment;
use crate::layout::Checked;

/// Name of the waiting stage, as the segment stores it and `slipring ls` shows it.
const WAITER: &str = "waiter";
/// Default number of processes that can be attached at once.
const PARTICIPANTS: u32 = 8;

/// The shared memory of one promise, which is made or opened but not mapped yet.
///
/// A promise hands one value of plain data from one process to another, once. Either process may be
/// killed at any moment, and another process can take its place.
///
/// ```
/// use slipring_shm::promises::PromiseSegment;
///
/// // One program.
/// let name = format!("answer-{}", std::process::id());
/// let asked = PromiseSegment::<u64>::create(&name).build()?;
/// // SAFETY: only our programs open the segment.
/// let mut answer = unsafe { asked.awaited()? };
///
/// // Another program.
/// // SAFETY: as above.
/// let promise = unsafe { PromiseSegment::<u64>::open(&name)?.promise()? };
/// promise.fulfil(42)?;
///
/// // The first one again.
/// let value = answer.wait()?;
/// assert_eq!((*value, value.is_redelivered()), (42, false));
/// value.release();
///
/// drop((asked, answer));
/// slipring_shm::remove(&name)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Outcomes
///
/// | what happens | the waiter | the next process that asks for the promise |
/// |---|---|---|
/// | it is fulfilled | gets the value, even if the owner is gone by then | [`Problem::Fulfilled`] |
/// | its owner is killed, or panics | waits on, gets an error for this call, or fails for good ([`PromiseBuilder::on_death`]) | may fulfil it |
/// | its owner drops it | [`Broken`](crate::errors::PromiseError::Broken) | [`Problem::Broken`] |
/// | its waiter is killed, or leaves | its successor gets the value, and learns whether it was lent before ([`is_redelivered`](crate::promises::Promised::is_redelivered)) | is not concerned |
/// | its waiter has released the value | [`Taken`](crate::errors::PromiseError::Taken), and so does each successor | [`Problem::Fulfilled`] |
/// | no process ever asks for the promise | waits until its deadline: no process has died that owned it | may fulfil it |
/// | as before, and the ring ends through which the value was asked for | [`Request`](crate::errors::PromiseError::Request), if the waiter knows the request ([`of_request`](crate::promises::Awaited::of_request)) | may fulfil it |
///
/// A named segment stays until it is removed ([`remove`](crate::remove)). While no process is
/// attached, the segment counts as stale, so `slipring rm --stale` removes it, even if it holds a
/// value that no process has taken.
pub struct PromiseSegment<T> {
    segment: Segment<T>,
    wait: Wait,
}

impl<T: Event> PromiseSegment<T> {
    /// Declares a new promise with that name, in `/dev/shm`. Nothing is made before
    /// [`build`](PromiseBuilder::build).
    ///
    /// Example: [`PromiseSegment`].
    pub fn create(name: impl AsRef<OsStr>) -> PromiseBuilder<T> {
        PromiseBuilder::new(Segment::create(name))
    }

    /// Declares a new promise at `path`, on tmpfs or ext4.
    ///
    /// ```
    /// use slipring_shm::promises::PromiseSegment;
    /// let path = format!("/dev/shm/promise-{}.slipring", std::process::id());
    /// let made = PromiseSegment::<u64>::create_at(&path).build()?;
    /// let opened = PromiseSegment::<u64>::open_at(&path)?;
    /// drop((made, opened));
    /// slipring_shm::remove_at(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create_at(path: impl Into<PathBuf>) -> PromiseBuilder<T> {
        PromiseBuilder::new(Segment::create_at(path))
    }

    /// Declares a new promise without a name: a memfd, which other processes open by a descriptor
    /// that they inherit or receive. `label` appears in messages.
    ///
    /// Example: [`PromiseSegment::open_memfd`].
    pub fn create_memfd(label: impl Into<String>) -> PromiseBuilder<T> {
        PromiseBuilder::new(Segment::create_memfd(label))
    }

    /// Opens the promise with that name, and checks its file, header, type and shape. Maps nothing.
    ///
    /// Example: [`PromiseSegment`].
    ///
    /// # Errors
    /// - [`Problem::Name`]: the name is not allowed.
    /// - [`Problem::Missing`]: there is no such segment.
    /// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
    /// - [`Problem::EventType`]: the promise is of another type.
    /// - [`Problem::NotPromise`]: the segment holds a ring that is not a promise.
    /// - [`Problem::System`]: a system call failed.
    pub fn open(name: impl AsRef<OsStr>) -> Result<PromiseSegment<T>, SegmentError> {
        PromiseSegment::checked(Segment::open(name)?)
    }

    /// Opens the promise at `path`, as [`open`](PromiseSegment::open) does.
    ///
    /// Example: [`PromiseSegment::create_at`].
    ///
    /// # Errors
    /// - [`Problem::Missing`]: there is no such segment.
    /// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
    /// - [`Problem::EventType`]: the promise is of another type.
    /// - [`Problem::NotPromise`]: the segment holds a ring that is not a promise.
    /// - [`Problem::System`]: a system call failed.
    pub fn open_at(path: impl Into<PathBuf>) -> Result<PromiseSegment<T>, SegmentError> {
        PromiseSegment::checked(Segment::open_at(path)?)
    }

    /// Opens the promise behind the descriptor of a memfd. The call opens the memfd again, so the
    /// passed descriptor can be closed.
    ///
    /// ```
    /// use slipring_shm::promises::PromiseSegment;
    /// let made = PromiseSegment::<u64>::create_memfd("answer").build()?;
    /// let fd = made.memfd().unwrap(); // a child inherits it, or a socket sends it
    /// let opened = PromiseSegment::<u64>::open_memfd(fd, "answer")?;
    /// // SAFETY: no other process has the memfd.
    /// unsafe { opened.promise()? }.fulfil(42)?;
    /// // SAFETY: as above.
    /// assert_eq!(unsafe { made.awaited()? }.wait()?.take(), 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
    /// - [`Problem::EventType`]: the promise is of another type.
    /// - [`Problem::NotPromise`]: the segment holds a ring that is not a promise.
    /// - [`Problem::System`]: a system call failed.
    pub fn open_memfd(fd: impl AsFd, label: &str) -> Result<PromiseSegment<T>, SegmentError> {
        PromiseSegment::checked(Segment::open_memfd(fd, label)?)
    }

    fn checked(segment: Segment<T>) -> Result<PromiseSegment<T>, SegmentError> {
        segment.check(shape)?;
        Ok(PromiseSegment { segment, wait: Wait::Blocking })
    }

    /// Sets the waiting strategy of the handles that this process makes from now on. By default, it
    /// is [`Wait::Blocking`]. Each process chooses its own strategy.
    ///
    /// ```
    /// use slipring::Wait;
    /// use slipring_shm::promises::PromiseSegment;
    /// let segment = PromiseSegment::<u64>::create_memfd("soon").build()?.with_wait(Wait::BusySpin);
    /// // SAFETY: no other process has the memfd.
    /// let (promise, mut answer) = unsafe { (segment.promise()?, segment.awaited()?) };
    /// promise.fulfil(7)?;
    /// assert_eq!(*answer.wait()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_wait(self, wait: Wait) -> PromiseSegment<T> {
        PromiseSegment { wait, ..self }
    }

    /// Returns the descriptor of a memfd, which can be passed to other processes, or `None` for a
    /// promise with a name.
    ///
    /// Example: [`PromiseSegment::open_memfd`].
    pub fn memfd(&self) -> Option<impl AsFd> {
        self.segment.memfd()
    }

    /// Attaches, and takes the place of the process that has to fulfil the promise. If an earlier
    /// owner was killed or panicked, this handle takes over. No waiter ever sees a value that the
    /// earlier owner left half-written.
    ///
    /// Example: [`PromiseSegment`].
    ///
    /// # Errors
    /// - [`Problem::Taken`]: a living process owns the promise.
    /// - [`Problem::Fulfilled`], [`Problem::Broken`]: the promise is fulfilled or broken already.
    /// - [`Problem::Over`]: the promise's ring has failed.
    /// - Those of [`Segment::attach`], and [`Problem::NotPromise`] if the name refers to another
    ///   file now.
    ///
    /// # Cost
    /// The call costs a few system calls more than [`Segment::attach`].
    ///
    /// # Safety
    /// The caller makes the promise of [`Segment::attach`], for as long as the handle lives.
    pub unsafe fn promise(&self) -> Result<Promise<T>, SegmentError> {
        // SAFETY: the caller's promise.
        let attached = unsafe { self.attach()? };
        let mut tx = match attached.producer() {
            Err(error) if matches!(error.problem(), Problem::Over) => {
                let first = attached.first_seq();
                return Err(match attached.last_position() {
                    Some(last) if last == first => attached.failed(Problem::Broken),
                    Some(_) => attached.failed(Problem::Fulfilled),
                    None => error,
                });
            }
            other => other?,
        };
        step!("promise-owned");
        // An earlier owner may have died after it published the value and before it closed the
        // ring.
        let fulfilled = match tx.try_claim() {
            Ok(slot) => slot.seq() != attached.first_seq(),
            Err(ClaimError::Gated { .. }) => true,
            Err(_) => return Err(attached.failed(Problem::Over)),
        };
        if fulfilled {
            tx.close();
            return Err(attached.failed(Problem::Fulfilled));
        }
        Ok(Promise { tx })
    }

    /// Attaches, and takes the place of the waiter. If an earlier waiter was killed or has left,
    /// this handle takes over.
    ///
    /// Example: [`PromiseSegment`].
    ///
    /// # Errors
    /// - [`Problem::Taken`]: a living process has the waiter's place.
    /// - Those of [`Segment::attach`], and [`Problem::NotPromise`] if the name refers to another
    ///   file now.
    ///
    /// # Cost
    /// As for [`PromiseSegment::promise`].
    ///
    /// # Safety
    /// As for [`PromiseSegment::promise`].
    pub unsafe fn awaited(&self) -> Result<Awaited<T>, SegmentError> {
        // SAFETY: the caller's promise.
        let attached = unsafe { self.attach()? };
        let reader = attached.reader(WAITER)?;
        step!("promise-awaited");
        Ok(Awaited::new(reader, attached.first_seq(), self.wait.timeout()))
    }

    /// # Safety
    /// As for [`Segment::attach`].
    unsafe fn attach(&self) -> Result<Attached<T>, SegmentError> {
        // SAFETY: the caller's promise.
        let attached = unsafe { self.segment.attach()? };
        // The check is repeated, because the name may now refer to another segment than the one
        // that was opened.
        attached.check(shape)?;
        attached.wait(self.wait.clone())
    }
}

/// Checks that a segment has the shape of a promise. The error names the property that the segment
/// lacks.
fn shape(checked: &Checked) -> Result<(), Problem> {
    let lacks = |expected| Err(Problem::NotPromise { expected });
    let [stage] = &checked.stages[..] else { return lacks("a single stage") };
    if stage.name() != WAITER || stage.access != 0 || stage.delivery != 0 {
        return lacks("a stage `waiter`, which reads");
    }
    if checked.shape.capacity != 1 {
        return lacks("a single slot");
    }
    if checked.header.producers > 1 {
        return lacks("a single producer");
    }
    Ok(())
}

impl<T> fmt::Debug for PromiseSegment<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PromiseSegment").field(&self.segment).finish()
    }
}

/// A promise between processes that is declared but not made yet.
///
/// Example: [`PromiseSegment`].
#[derive(Debug)]
#[must_use = "nothing is made before `build`"]
pub struct PromiseBuilder<T>(Builder<T>);

impl<T: Event> PromiseBuilder<T> {
    fn new(builder: Builder<T>) -> PromiseBuilder<T> {
        PromiseBuilder(builder.capacity(1).reader(WAITER).participants(PARTICIPANTS))
    }

    /// Sets how a waiter reacts when the process that owns the promise dies. By default, the waiter
    /// waits for the owner's successor. With [`OnDeath::Tell`], its call returns an error
    /// ([`PeerDead`](crate::errors::PromiseError::PeerDead)). With [`OnDeath::Fail`], the promise
    /// fails for good ([`Ended`](crate::errors::PromiseError::Ended)).
    ///
    /// With [`OnDeath::Fail`], a fulfilled promise may fail as well, if the owner dies right after
    /// it has fulfilled the promise, while the waiter checks for deaths.
    ///
    /// ```
    /// use slipring_shm::{OnDeath, promises::PromiseSegment};
    /// let segment =
    ///     PromiseSegment::<u64>::create_memfd("told").on_death(OnDeath::Tell).build()?;
    /// # let _ = segment;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_death(self, on_death: OnDeath) -> PromiseBuilder<T> {
        PromiseBuilder(self.0.producer_on_death(on_death))
    }

    /// Sets the *notice*: the longest time between two checks by which a waiter finds out whether
    /// the owner has died. It is 1 ms to 1 s, and 20 ms by default.
    ///
    /// Example: [`PromiseBuilder::participants`].
    pub fn notice(self, time: Duration) -> PromiseBuilder<T> {
        PromiseBuilder(self.0.notice(time))
    }

    /// Sets the number of processes that can be attached at once: 1 to 1,024, and 8 by default. The
    /// place of a dead process is recovered when another process needs it.
    ///
    /// ```
    /// use slipring_shm::promises::PromiseSegment;
    /// use std::time::Duration;
    /// let segment = PromiseSegment::<u64>::create_memfd("two")
    ///     .participants(2)
    ///     .notice(Duration::from_millis(5))
    ///     .build()?;
    /// # let _ = segment;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn participants(self, places: u32) -> PromiseBuilder<T> {
        PromiseBuilder(self.0.participants(places))
    }

    /// Lets the segment of a large value take more memory than is available, as
    /// [`Builder::allow_overcommit`] does.
    ///
    /// ```
    /// use slipring_shm::promises::PromiseSegment;
    /// let segment = PromiseSegment::<u64>::create_memfd("insists").allow_overcommit().build()?;
    /// # let _ = segment;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allow_overcommit(self) -> PromiseBuilder<T> {
        PromiseBuilder(self.0.allow_overcommit())
    }

    /// Makes the segment, whole or not at all.
    ///
    /// Example: [`PromiseSegment`].
    ///
    /// # Errors
    /// - [`Problem::Name`], [`Problem::Participants`], [`Problem::Notice`]: the name, or a number,
    ///   is not allowed.
    /// - [`Problem::EventSize`], [`Problem::TooLarge`]: a segment cannot hold such a value.
    /// - [`Problem::Exists`]: the name is taken.
    /// - [`Problem::NoSpace`], [`Problem::MemoryShortage`], [`Problem::FileSizeLimit`]: the segment
    ///   is too large for the file system, the memory, or a limit of the process.
    /// - [`Problem::File`]: the file system is refused.
    /// - [`Problem::System`]: a system call failed.
    ///
    /// # Cost
    /// The kernel allocates and zeroes a file of about 80 KiB plus the size of the value.
    pub fn build(self) -> Result<PromiseSegment<T>, SegmentError> {
        Ok(PromiseSegment { segment: self.0.build()?, wait: Wait::Blocking })
    }
}

/// The place of the process that has to fulfil a promise.
///
/// Dropping the handle breaks the promise. But if a panic drops it, or its process is killed, a
/// successor may still fulfil the promise.
///
/// Example: [`PromiseSegment`].
#[must_use = "a promise that is dropped is broken"]
pub struct Promise<T> {
    tx: SegmentProducer<T>,
}

impl<T: Event> Promise<T> {
    /// Hands the value over, and wakes the waiter if it sleeps. If no process waits yet, the
    /// segment keeps the value.
    ///
    /// Example: [`PromiseSegment`].
    ///
    /// # Errors
    /// - [`WaitError::Failed`]: the promise's ring has failed.
    /// - [`WaitError::Damaged`]: the ring's words contradict each other.
    ///
    /// # Cost
    /// The call copies the value, publishes it, and closes the ring. It makes a system call if the
    /// waiter sleeps, and never waits.
    pub fn fulfil(self, value: T) -> Result<(), WaitError> {
        self.fulfil_with(|slot| *slot = value)
    }

    /// Lets `fill` write the value at the place where the waiter reads it, and hands the value over
    /// without a copy. Before `fill` runs, the place may hold any bytes: zeros, or bytes that an
    /// earlier owner has left.
    ///
    /// If `fill` panics, the promise is left to a successor.
    ///
    /// ```
    /// use slipring_shm::promises::PromiseSegment;
    /// let segment = PromiseSegment::<u64>::create_memfd("filled").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let (promise, mut answer) = unsafe { (segment.promise()?, segment.awaited()?) };
    /// promise.fulfil_with(|value| *value = 42)?;
    /// assert_eq!(*answer.wait()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Failed`]: the promise's ring has failed.
    /// - [`WaitError::Damaged`]: the ring's words contradict each other.
    ///
    /// # Cost
    /// The call costs as much as [`fulfil`](Promise::fulfil), without the copy.
    pub fn fulfil_with(mut self, fill: impl FnOnce(&mut T)) -> Result<(), WaitError> {
        step!("fulfilling");
        self.tx.publish(|slot| {
            fill(slot);
            step!("filled-in");
        })?;
        step!("fulfilled");
        self.tx.close();
        step!("settled");
        Ok(())
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").finish_non_exhaustive()
    }
}
