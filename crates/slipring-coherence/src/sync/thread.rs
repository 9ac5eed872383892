//! Handles of threads, virtual and real, and parking.
//!
//! - I1: A handle of a virtual thread has the number of its run. After the run it wakes no thread.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::running::{self, Handle, Running, VirtualId};
use crate::waiting::{self, Sleep};

/// A handle of a thread.
///
/// ```
/// use slipring_coherence::sync;
///
/// let me = sync::current();
/// me.unpark();
/// sync::park();
/// assert_eq!(me.id(), sync::current().id());
/// ```
#[derive(Clone)]
pub struct Thread(Inner);

#[derive(Clone)]
enum Inner {
    Real(std::thread::Thread),
    Virtual { id: VirtualId, name: Arc<str> },
}

/// Identity of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadId(Id);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Id {
    Real(std::thread::ThreadId),
    Virtual(VirtualId),
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Id::Real(id) => id.fmt(f),
            // The run's number would differ between two runs of the same program.
            Id::Virtual(id) => write!(f, "ThreadId(virtual {})", id.thread),
        }
    }
}

impl Thread {
    pub(crate) fn real(thread: std::thread::Thread) -> Thread {
        Thread(Inner::Real(thread))
    }

    pub(crate) fn of_run(id: VirtualId, name: Arc<str>) -> Thread {
        Thread(Inner::Virtual { id, name })
    }

    pub(crate) fn virtual_id(&self) -> Option<VirtualId> {
        match &self.0 {
            Inner::Real(_) => None,
            Inner::Virtual { id, .. } => Some(*id),
        }
    }

    /// Ends the thread's [`park`], or its next one if it is not parked.
    ///
    /// Example: [`Thread`].
    #[track_caller]
    pub fn unpark(&self) {
        match &self.0 {
            Inner::Real(thread) => thread.unpark(),
            Inner::Virtual { id, .. } => waiting::unpark(*id, Location::caller()),
        }
    }

    /// Returns the thread's identity.
    ///
    /// Example: [`Thread`].
    pub fn id(&self) -> ThreadId {
        match &self.0 {
            Inner::Real(thread) => ThreadId(Id::Real(thread.id())),
            Inner::Virtual { id, .. } => ThreadId(Id::Virtual(*id)),
        }
    }

    /// Returns the thread's name, if it has one.
    ///
    /// Example: [`Thread`].
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Inner::Real(thread) => thread.name(),
            Inner::Virtual { name, .. } => Some(name),
        }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// Returns a handle of the calling thread.
///
/// ```
/// assert!(slipring_coherence::sync::current().name().is_some());
/// ```
pub fn current() -> Thread {
    match waiting::current() {
        Some((id, name)) => Thread::of_run(id, name),
        None => Thread::real(std::thread::current()),
    }
}

/// Sleeps until [`Thread::unpark`]. It may wake without a reason.
///
/// ```
/// use slipring_coherence::sync;
///
/// sync::current().unpark();
/// sync::park();
/// ```
#[track_caller]
pub fn park() {
    if !waiting::park(None, Sleep::Park, Location::caller()) {
        std::thread::park();
    }
}

/// Sleeps until [`Thread::unpark`], at most for `limit`. It may wake without a reason.
///
/// ```
/// use slipring_coherence::sync;
///
/// sync::park_timeout(std::time::Duration::from_millis(1));
/// ```
#[track_caller]
pub fn park_timeout(limit: Duration) {
    if !waiting::park(Some(limit), Sleep::Park, Location::caller()) {
        std::thread::park_timeout(limit);
    }
}

/// Returns whether the calling thread unwinds because of a panic.
///
/// The virtual threads of a run share one system thread, so the standard library's function returns
/// `true` in all of them while one unwinds. This function tells them apart while one thread at a
/// time unwinds, or each panic that begins meanwhile has [`Panics`] in its payload.
///
/// ```
/// assert!(!slipring_coherence::sync::panicking());
/// ```
pub fn panicking() -> bool {
    running::panicking()
}

/// A part of a panic's payload, by which [`panicking`] knows whose panic it is, although several
/// virtual threads unwind at once. It is dropped with the payload, by the thread that catches it.
///
/// ```
/// use std::panic::{catch_unwind, resume_unwind};
/// use slipring_coherence::sync::Panics;
///
/// let caught = catch_unwind(|| resume_unwind(Box::new(Panics::begin())));
/// assert!(caught.is_err());
/// ```
#[derive(Debug)]
pub struct Panics(Option<usize>);

impl Panics {
    /// Notes that the calling thread is about to panic.
    ///
    /// Example: [`Panics`].
    pub fn begin() -> Panics {
        let mark = |running: &mut Running| {
            running.panics.push(running.current);
            running.current
        };
        Panics(Handle::current().map(|handle| handle.with(mark)))
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        let (Some(core), Some(handle)) = (self.0, Handle::current()) else { return };
        handle.with(|running| {
            if let Some(place) = running.panics.iter().position(|it| *it == core) {
                running.panics.swap_remove(place);
            }
        });
    }
}
