//! The fork guard, the descriptors that no child keeps, and the process that owns a value.
//!
//! Invariants
//! - I1: while a thread holds a [`ForkGuard`], no other thread of the process calls `fork`. So a
//!   descriptor that lives only under the guard has no copy in a child, and neither do its locks.
//! - I2: the forking thread holds the mutex from before the fork until after it, in both processes.
//!   So the mutex is free in a child, whatever other threads of the parent did.
//! - I3: `DEPTH` counts the nested calls of `enter` by this thread: its guards, and a fork. Only
//!   the outermost call locks the mutex, so a thread that recovers another participant while it
//!   attaches does not wait for itself.
//! - I4: `UNSHARED` names the descriptors of this process's [`UnsharedFd`]s. A thread changes it,
//!   and opens or closes these descriptors, while it holds a [`ForkGuard`]. So the list of a child
//!   is whole and unlocked, and names descriptors that are open.
//!
//! `posix_spawn`, `vfork`, `_Fork` and plain `clone` bypass the guard. A child of the first two
//! keeps a copy of the descriptors until its `exec` or its end.

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
            // SAFETY: `enter` of this thread, or of the thread of which it is the copy, has locked
            // the mutex at depth 0 (I2, I3).
            unsafe { MUTEX.unlock() };
        }
    });
}

extern "C" fn leave_in_child() {
    GENERATION.fetch_add(1, Relaxed);
    // The list keeps its memory: a child of several threads may not free any.
    if let Ok(mut unshared) = UNSHARED.try_lock() {
        for fd in unshared.drain(..) {
            // SAFETY: open (I4), and no value of the child closes it: the owner of each
            // `UnsharedFd` is another process.
            unsafe { rustix::io::close(fd) };
        }
    }
    leave();
}

/// Keeps the process from forking while the guard lives (I1). One thread may hold several guards.
pub struct ForkGuard {
    /// The thread that locked must unlock.
    not_send: PhantomData<*const ()>,
}

impl ForkGuard {
    /// Waits until no other thread holds a guard or forks. From then until the guard's drop, other
    /// threads that fork wait.
    ///
    /// # Errors
    /// There is no memory to register the handlers around forks.
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

/// A descriptor that no child keeps: a forked child closes its copy before `fork` returns there. So
/// a lock of its description ends with this process.
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
        // A child has closed its copy, and may use the number for another file.
        if !self.owner.is_this() {
            return;
        }
        // The handlers around forks are registered, so the guard is not refused.
        let _guard = ForkGuard::enter();
        let own = self.fd.as_raw_fd();
        unshared().retain(|&fd| fd != own);
        // SAFETY: dropped once, here; it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

/// The process that made a value. A forked child inherits the value, but not the lock or the
/// mapping that it stands for.
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
    /// its parent's process number, so the call compares the number of forks as well. A child that
    /// was made by a plain `clone` differs only in its process number.
    pub fn is_this(&self) -> bool {
        *self == OwnerProcess::this()
    }
}
