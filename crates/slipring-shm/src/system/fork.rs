//! Protection against the effects of `fork`: a guard that keeps other threads from forking,
//! descriptors that no forked child keeps, and values that know which process owns them.
//!
//! Invariants
//! - I1: while a thread holds a [`ForkGuard`], no other thread of the process calls `fork`. So a
//!   descriptor that is open only under the guard has no copy in a child, and its locks do not pass
//!   to a child.
//! - I2: the forking thread holds the mutex from before the fork until after it, in both processes.
//!   So no other thread of the parent holds the mutex at the fork, and the child can unlock it.
//! - I3: `DEPTH` counts the nested calls of `enter` by this thread, which come from its guards and
//!   from a fork. Only the outermost call locks the mutex, so a thread that recovers another
//!   participant while it attaches does not wait for itself.
//! - I4: `UNSHARED` names the descriptors of this process's [`UnsharedFd`]s. A thread changes the
//!   list, and opens or closes its descriptors, only while it holds a [`ForkGuard`]. So a child's
//!   copy of the list is whole and unlocked, and names descriptors that are open.
//!
//! `posix_spawn`, `vfork`, `_Fork` and plain `clone` bypass the guard. A child of `posix_spawn` or
//! `vfork` keeps copies of the descriptors until it calls `exec` or ends.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, getpid};

use crate::system::sys::{self, RawMutex};

static MUTEX: RawMutex = RawMutex::new();
/// Number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// The descriptors that a child closes (I4).
static UNSHARED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

extern "C" fn enter() {
    DEPTH.with(|depth| {
        if depth.get() == 0 {
            MUTEX.lock();
        }
        depth.set(depth.get() + 1);
    });
}

extern "C" fn leave() {
    DEPTH.with(|depth| {
        depth.set(depth.get() - 1);
        if depth.get() == 0 {
            // SAFETY: `enter` has locked the mutex at depth 0, in this thread, or in the parent's
            // thread of which this thread is the copy (I2, I3).
            unsafe { MUTEX.unlock() };
        }
    });
}

extern "C" fn leave_in_child() {
    GENERATION.fetch_add(1, Relaxed);
    // `drain` keeps the list's memory, because a child of a process with several threads must not
    // free memory.
    if let Ok(mut unshared) = UNSHARED.try_lock() {
        for fd in unshared.drain(..) {
            // SAFETY: the descriptor is open (I4). No value in the child closes it, because another
            // process owns each `UnsharedFd`.
            unsafe { rustix::io::close(fd) };
        }
    }
    leave();
}

/// Keeps the process from forking while the guard lives (I1). One thread may hold several guards.
pub struct ForkGuard {
    /// Keeps the guard in the thread that locked the mutex, because the same thread must unlock it.
    not_send: PhantomData<*const ()>,
}

impl ForkGuard {
    /// Waits until no other thread holds a guard or forks. From then on, a thread that forks waits
    /// until the guard is dropped.
    ///
    /// # Errors
    /// Fails if there is no memory to register the handlers around forks.
    pub fn enter() -> io::Result<ForkGuard> {
        static INSTALLED: OnceLock<Option<i32>> = OnceLock::new();
        let refused = INSTALLED.get_or_init(|| {
            let result = sys::around_forks(enter, leave, leave_in_child);
            result.err().map(|error| error.raw_os_error().unwrap_or(0))
        });
        if let Some(error) = refused {
            return Err(io::Error::from_raw_os_error(*error));
        }
        enter();
        Ok(ForkGuard { not_send: PhantomData })
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        leave();
    }
}

/// A descriptor that no child keeps: a forked child closes its copy before `fork` returns in the
/// child. So a lock on its description ends with this process.
#[derive(Debug)]
pub(crate) struct UnsharedFd {
    fd: ManuallyDrop<OwnedFd>,
    owner: OwnerProcess,
}

impl UnsharedFd {
    /// Takes a descriptor that was opened under the guard, so that no child has a copy yet.
    pub(crate) fn new(fd: OwnedFd, _guard: &ForkGuard) -> UnsharedFd {
        unshared().push(fd.as_raw_fd());
        UnsharedFd { fd: ManuallyDrop::new(fd), owner: OwnerProcess::this() }
    }
}

fn unshared() -> std::sync::MutexGuard<'static, Vec<RawFd>> {
    UNSHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsFd for UnsharedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for UnsharedFd {
    fn drop(&mut self) {
        // A forked child has already closed its copy of the descriptor, and may use the
        // descriptor's number for another file.
        if !self.owner.is_this() {
            return;
        }
        // `enter` does not fail here, because the handlers around forks were registered before the
        // value was made.
        let _guard = ForkGuard::enter();
        let own = self.fd.as_raw_fd();
        unshared().retain(|&fd| fd != own);
        // SAFETY: the descriptor is dropped only here, and is not used again.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

/// The process that made a value. A forked child inherits the value, but not the lock or mapping
/// that the value manages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerProcess {
    pid: Pid,
    generation: u64,
}

impl OwnerProcess {
    /// Returns the calling process.
    pub fn this() -> OwnerProcess {
        OwnerProcess { pid: getpid(), generation: GENERATION.load(Relaxed) }
    }

    /// Returns whether the calling process made the value. A child in a new pid namespace may have
    /// the same pid as its parent, so the call also compares the number of forks. A child that was
    /// made by a plain `clone` differs only in its pid.
    pub fn is_this(&self) -> bool {
        *self == OwnerProcess::this()
    }
}
