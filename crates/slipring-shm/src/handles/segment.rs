//! The segment as users see it: they make or open it, and then attach to it.
//!
//! Invariants
//! - I1: an [`OpenedFile`] is a file whose head was checked for the segment's contents. If this
//!   process made the segment, the value holds byte 0 shared until the process has attached, or has
//!   dropped the value.

use std::ffi::OsStr;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::attach::participant::{self, Attempt, Participation, Recover};
use crate::attach::ring;
use crate::contents::{self, Contents, Event};
use crate::errors::{Problem, SegmentError};
use crate::file::descriptor::{File, Rights};
use crate::file::location::Location;
use crate::file::open::read_head;
use crate::handles::attached::Attached;
use crate::handles::copies::Copies;
use crate::layout::Checked;
use crate::system::fork::OwnerProcess;
use crate::system::lock::{self, GUARD};
use crate::system::machine;

/// Largest number of times that attaching starts again because the name has come to refer to a new
/// file.
const FOLLOWS: u32 = 64;

/// The shared memory of one ring, which is made or opened but not mapped yet.
///
/// Example: the [first page](crate).
pub struct Segment<C> {
    location: Location,
    opened: Mutex<Arc<OpenedFile>>,
    event: PhantomData<fn() -> C>,
}

/// An open file of a segment, and its checked head (I1).
pub(crate) struct OpenedFile {
    file: File,
    checked: Checked,
    guards: AtomicBool,
    owner: OwnerProcess,
}

impl OpenedFile {
    pub(crate) fn new(file: File, checked: Checked, guards: bool) -> Arc<OpenedFile> {
        let guards = AtomicBool::new(guards);
        Arc::new(OpenedFile { file, checked, guards, owner: OwnerProcess::this() })
    }

    /// Unlocks byte 0. Does nothing in a forked child, whose copy of the value shares the
    /// description with its parent.
    fn release(&self) {
        if self.owner.is_this() && self.guards.swap(false, AcqRel) {
            let _ = lock::unlock(self.file.as_fd(), lock::byte(GUARD));
        }
    }
}

impl Drop for OpenedFile {
    fn drop(&mut self) {
        self.release();
    }
}

impl<C> Segment<C> {
    /// Opens the segment with that name, and checks its file, header and event type. Maps nothing.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// - [`Problem::Name`]: the name is not allowed.
    /// - [`Problem::Missing`]: there is no such segment.
    /// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
    /// - [`Problem::EventType`]: the segment holds events of another type.
    /// - [`Problem::System`]: a system call failed.
    pub fn open(name: impl AsRef<OsStr>) -> Result<Segment<C>, SegmentError>
    where
        C: Contents,
    {
        Segment::open_location(Location::named(name)?)
    }
}

impl<C: Contents> Segment<C> {
    /// Opens the segment at `path`.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// - [`Problem::Missing`]: there is no such segment.
    /// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
    /// - [`Problem::EventType`]: the segment holds events of another type.
    /// - [`Problem::System`]: a system call failed.
    pub fn open_at(path: impl Into<PathBuf>) -> Result<Segment<C>, SegmentError> {
        Segment::open_location(Location::Path(path.into()))
    }

    /// Opens the segment behind the descriptor of a memfd. The call opens the memfd again, so the
    /// passed descriptor can be closed.
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
    /// let made = Segment::<Block>::create_memfd("field").capacity(8).reader("all").build()?;
    /// let fd = made.memfd().unwrap(); // a child inherits it, or a socket sends it
    /// let opened = Segment::<Block>::open_memfd(fd, "field")?;
    /// assert_eq!(opened.capacity(), 8);
    /// # Ok::<(), slipring_shm::SegmentError>(())
    /// ```
    ///
    /// # Errors
    /// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
    /// - [`Problem::EventType`]: the segment holds events of another type.
    /// - [`Problem::System`]: a system call failed.
    pub fn open_memfd(fd: impl AsFd, label: &str) -> Result<Segment<C>, SegmentError> {
        let location = Location::Memfd(label.to_owned());
        match File::open_memfd(fd.as_fd()).and_then(checked::<C>) {
            Ok(opened) => Ok(Segment::from(location, opened)),
            Err(problem) => Err(SegmentError::at(&location, problem)),
        }
    }

    fn open_location(location: Location) -> Result<Segment<C>, SegmentError> {
        match open_checked::<C>(&location) {
            Ok(opened) => Ok(Segment::from(location, opened)),
            Err(problem) => Err(SegmentError::at(&location, problem)),
        }
    }

    /// Makes the segment of a file whose head was checked for `C` (I1).
    pub(crate) fn from(location: Location, opened: Arc<OpenedFile>) -> Segment<C> {
        Segment { location, opened: Mutex::new(opened), event: PhantomData }
    }

    /// Maps the segment, touches all of its pages, and makes this process a participant. Reports
    /// show the participant under its program's name.
    ///
    /// Attaching to a named segment follows the name: if the segment was removed and made again
    /// since it was opened, the call attaches to the new one, after the same checks. A process that
    /// attaches several times counts as several participants.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Cost
    /// The call takes about twenty system calls, and one page fault for each page. Meanwhile, other
    /// threads that fork wait, usually for less than a millisecond. While the process is attached,
    /// it keeps two file descriptors open, and needs no others. So even a process that has no
    /// descriptor left learns of deaths, and recovers the dead.
    ///
    /// # Errors
    /// - [`Problem::Full`]: living participants have all places.
    /// - [`Problem::Busy`]: another process is making or removing the segment, and does not end.
    /// - [`Problem::LocksLost`]: the file system frees a lock although the file is mapped.
    /// - [`Problem::PageSize`]: the system's pages are too large.
    /// - [`Problem::Graph`]: the segment declares no ring that could be made, or there is no memory
    ///   for it.
    /// - [`Problem::System`]: a system call failed, for instance because the process has fewer than
    ///   two descriptors left.
    /// - [`Problem::Replaced`]: each attempt found the segment removed and made anew.
    /// - [`Problem::File`], [`Problem::Header`], [`Problem::EventType`], [`Problem::Missing`]: the
    ///   name now refers to another file, which is refused, or to none.
    ///
    /// # Safety
    /// The caller promises the following as long as the result, or a handle made from it, lives.
    /// Every process that can write to the file follows the protocol. No process resizes the file
    /// or punches holes into it. No device or kernel thread writes into a slot for a process that
    /// is dead (io_uring, RDMA, a GPU). A forked child does not use the result.
    pub unsafe fn attach(&self) -> Result<Attached<C>, SegmentError> {
        // SAFETY: the caller promises the same.
        unsafe { self.attach_as(&machine::program()) }
    }

    /// Like [`attach`](Segment::attach), but reports show this participant under the given name, of
    /// up to 64 bytes.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// Those of [`attach`](Segment::attach).
    ///
    /// # Safety
    /// As [`attach`](Segment::attach).
    pub unsafe fn attach_as(&self, name: &str) -> Result<Attached<C>, SegmentError> {
        // SAFETY: the caller promises the same.
        unsafe { self.attach_recovering(name, &mut ring::settle_unattached) }
    }

    /// Attaches, and calls `recover` for dead participants if all places are taken.
    ///
    /// # Safety
    /// As [`attach`](Segment::attach).
    #[doc(hidden)]
    pub unsafe fn attach_recovering(
        &self,
        name: &str,
        recover: Recover<'_>,
    ) -> Result<Attached<C>, SegmentError> {
        let participation = self.participate(name, recover)?;
        // SAFETY: the caller's promise.
        unsafe { Attached::new(participation) }.map_err(|problem| self.failed(problem))
    }

    fn failed(&self, problem: Problem) -> SegmentError {
        SegmentError::at(&self.location, problem)
    }

    /// Makes this process a participant.
    fn participate(
        &self,
        name: &str,
        recover: Recover<'_>,
    ) -> Result<Arc<Participation>, SegmentError> {
        let failed = |problem| self.failed(problem);
        for _ in 0..FOLLOWS {
            let opened = self.opened();
            let path = self.location.path();
            let result =
                participant::attach(&opened.file, path, &opened.checked, name, &mut *recover);
            match result.map_err(failed)? {
                Attempt::Attached(participation) => {
                    opened.release();
                    return Ok(participation);
                }
                Attempt::Replaced => {
                    let opened = open_checked::<C>(&self.location).map_err(failed)?;
                    *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = opened;
                }
            }
        }
        Err(failed(Problem::Replaced))
    }

    /// Returns the number of slots.
    ///
    /// Example: [`Segment::open_memfd`].
    pub fn capacity(&self) -> u64 {
        self.opened().checked.shape.capacity
    }

    /// Returns the type name of the segment's events, blocks or messages.
    ///
    /// Example: [`Segment::type_version`].
    pub fn type_name(&self) -> String {
        self.opened().checked.type_name()
    }

    /// Returns the type version of the segment's events, blocks or messages.
    ///
    /// ```
    /// use slipring_shm::{Segment, messages::Messages};
    /// let segment = Segment::<Messages>::create_memfd("lines").capacity(64);
    /// let segment = segment.type_name("log/line", 3).reader("print").build()?;
    /// assert_eq!((segment.type_name().as_str(), segment.type_version()), ("log/line", 3));
    /// # Ok::<(), slipring_shm::SegmentError>(())
    /// ```
    pub fn type_version(&self) -> u32 {
        self.opened().checked.header.type_version
    }

    /// Returns the schema, which describes the events to programs in other languages. The schema is
    /// empty if the creator gave none.
    ///
    /// Example: [`Blocks`](crate::blocks::Blocks).
    pub fn schema(&self) -> Vec<u8> {
        self.opened().checked.schema.clone()
    }

    /// Returns the descriptor of a memfd, which can be passed to other processes, or `None` for a
    /// segment with a name.
    ///
    /// Every process that gets the descriptor can write to the segment.
    ///
    /// Example: [`Segment::open_memfd`].
    pub fn memfd(&self) -> Option<impl AsFd> {
        match self.location {
            Location::Memfd(_) => Some(MemfdDescriptor(self.opened())),
            Location::Path(_) => None,
        }
    }

    /// Applies `check` to the head of the opened file.
    pub(crate) fn check(
        &self,
        check: fn(&Checked) -> Result<(), Problem>,
    ) -> Result<(), SegmentError> {
        check(&self.opened().checked).map_err(|problem| SegmentError::at(&self.location, problem))
    }

    fn opened(&self) -> Arc<OpenedFile> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<E: Event> Segment<E> {
    /// Attaches this process to the segment without the promise of [`attach`](Segment::attach): its
    /// handles copy events in and out, and lend none. Whatever other processes store in the
    /// segment, the worst that a call returns is a wrong event or an error.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let made = Segment::<u64>::create_memfd("numbers").capacity(8).reader("sum").build()?;
    /// // A process that is not trusted gets the descriptor.
    /// let copies = made.attach_copies()?;
    /// let (mut tx, mut sum) = (copies.producer()?, copies.reader("sum")?);
    /// tx.publish(&7)?;
    /// assert_eq!(sum.next()?, (7, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The [first page](crate#trust) lists what other processes can still do. Only one thing can
    /// end this process: if the file is shortened, an access behind its end raises SIGBUS. A memfd
    /// that this crate makes or opens is sealed against that.
    ///
    /// After a `fork`, which is an unsafe call, the child must not use the result, because the
    /// memory is not mapped in the child.
    ///
    /// # Cost
    /// The call costs as much as [`attach`](Segment::attach). Copying an event later costs one load
    /// or store for each eight bytes.
    ///
    /// # Errors
    /// Those of [`attach`](Segment::attach).
    pub fn attach_copies(&self) -> Result<Attached<Copies<E>>, SegmentError> {
        self.attach_copies_as(&machine::program())
    }

    /// Like [`attach_copies`](Segment::attach_copies), but reports show this participant under the
    /// given name, of up to 64 bytes.
    ///
    /// Example: [`attach_copies`](Segment::attach_copies).
    ///
    /// # Errors
    /// Those of [`attach`](Segment::attach).
    pub fn attach_copies_as(&self, name: &str) -> Result<Attached<Copies<E>>, SegmentError> {
        let participation = self.participate(name, &mut ring::settle_unattached)?;
        Attached::copying(participation).map_err(|problem| self.failed(problem))
    }
}

/// The descriptor of a segment's memfd.
struct MemfdDescriptor(Arc<OpenedFile>);

impl AsFd for MemfdDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

fn open_checked<C: Contents>(location: &Location) -> Result<Arc<OpenedFile>, Problem> {
    let path = location.path().ok_or(Problem::Missing)?;
    checked::<C>(File::open(path, Rights::Write)?)
}

fn checked<C: Contents>(file: File) -> Result<Arc<OpenedFile>, Problem> {
    let checked = read_head(&file)?;
    contents::check::<C>(&checked)?;
    Ok(OpenedFile::new(file, checked, false))
}

impl<C> fmt::Debug for Segment<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Segment").field(&self.location.to_string()).finish()
    }
}
