//! The calls of the C library that `rustix` lacks: byte locks of open file descriptions, a mutex
//! without a guard, and handlers around forks.
//!
//! Invariants
//! - I1: no other file names `libc`.
//! - I2: each call borrows its descriptor, so the descriptor stays open during the call. The kernel
//!   reads and writes only the argument that is passed.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Kind of a byte lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockKind {
    Read,
    Write,
    Unlock,
}

fn request(kind: LockKind, start: i64, length: i64) -> libc::flock {
    let kind = match kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    // SAFETY: `flock` is plain data, and zero is a value of each field.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind as _;
    request.l_whence = libc::SEEK_SET as _;
    request.l_start = start;
    request.l_len = length;
    request
}

/// Locks or unlocks bytes for the open file description behind `fd`, without waiting.
pub(crate) fn set_lock(fd: BorrowedFd<'_>, kind: LockKind, at: i64, length: i64) -> io::Result<()> {
    let request = request(kind, at, length);
    // SAFETY: the descriptor is open while it is borrowed, and the kernel only reads the request.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Returns the first byte and the kind of a lock that another open file description holds on some
/// of the bytes, or `None` if all of them could be locked for writing.
pub(crate) fn get_lock(
    fd: BorrowedFd<'_>,
    at: i64,
    length: i64,
) -> io::Result<Option<(i64, LockKind)>> {
    let mut request = request(LockKind::Write, at, length);
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes a whole `flock`.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &mut request) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(match c_int::from(request.l_type) {
        libc::F_UNLCK => None,
        libc::F_RDLCK => Some((request.l_start, LockKind::Read)),
        _ => Some((request.l_start, LockKind::Write)),
    })
}

/// A mutex without a guard value, because one function locks it and another one unlocks it.
pub(crate) struct RawMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: all threads may use the C library's mutex, and no reference to its contents is created.
unsafe impl Sync for RawMutex {}

impl RawMutex {
    pub(crate) const fn new() -> RawMutex {
        RawMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    pub(crate) fn lock(&'static self) {
        // SAFETY: the mutex is initialized, and never moves, because it is static.
        let result = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        debug_assert_eq!(result, 0, "a plain mutex reports no error");
    }

    /// Unlocks the mutex.
    ///
    /// # Safety
    /// The calling thread holds the mutex, or is a copy, made by a fork, of the thread that holds
    /// it.
    pub(crate) unsafe fn unlock(&'static self) {
        // SAFETY: as in `lock`, and the caller holds the mutex. A plain mutex does not check its
        // owner, so a forked copy of the thread may unlock the copy of the mutex.
        let result = unsafe { libc::pthread_mutex_unlock(self.0.get()) };
        debug_assert_eq!(result, 0, "a plain mutex reports no error");
    }
}

/// Registers three handlers that the C library calls around each fork of the process: `before` runs
/// before the fork. After the fork, `after_in_parent` runs in the parent, and `after_in_child` in
/// the child.
pub(crate) fn around_forks(
    before: extern "C" fn(),
    after_in_parent: extern "C" fn(),
    after_in_child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: the handlers are functions of this library, which is never unloaded while it runs.
    match unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) }
    {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
