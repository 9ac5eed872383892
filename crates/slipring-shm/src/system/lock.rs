//! Byte locks, which prove that a participant is alive or dead.
//!
//! Invariants
//! - I1: a lock belongs to an open file description, and ends with the last reference to it. A
//!   mapping is a reference. Closing another descriptor of the file does not touch the lock.
//! - I2: participant *k* holds byte *k* alone. A process holds byte 0 shared while it makes a
//!   segment or attaches to one, and alone while it removes one.
//! - I3: a description does not see its own locks, so a probe uses another description.
//! - I4: lock bytes begin at offset 2^40, which no segment reaches. A lock needs no byte in the
//!   file.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::system::sys::{self, LockKind};

/// Offset of byte 0 in the file (I4).
pub const FIRST: u64 = 1 << 40;

/// Number of the byte that guards making, attaching and removing.
pub const GUARD: u32 = 0;

/// Mode of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Several open file descriptions may hold the lock at once. A read-only descriptor is enough.
    Shared,
    /// A single description holds the lock. The descriptor must be writable.
    Alone,
}

/// A lock that a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// First of the probed bytes that is locked.
    pub byte: u32,
    /// Mode of the lock.
    pub hold: Hold,
}

fn place(bytes: Range<u32>) -> (i64, i64) {
    // The sum does not overflow, because 2^40 and a `u32` are far below 2^63.
    (FIRST as i64 + i64::from(bytes.start), i64::from(bytes.end) - i64::from(bytes.start))
}

/// Locks all of `bytes` for the description behind `fd` and returns `true`, or locks none of them
/// and returns `false`. Never waits.
pub fn try_lock(fd: BorrowedFd<'_>, bytes: Range<u32>, hold: Hold) -> io::Result<bool> {
    let (at, length) = place(bytes);
    let kind = match hold {
        Hold::Shared => LockKind::Read,
        Hold::Alone => LockKind::Write,
    };
    match sys::set_lock(fd, kind, at, length) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
    }
}

/// Unlocks `bytes` for the description behind `fd`, and so for all processes that share the
/// description.
pub fn unlock(fd: BorrowedFd<'_>, bytes: Range<u32>) -> io::Result<()> {
    let (at, length) = place(bytes);
    sys::set_lock(fd, LockKind::Unlock, at, length)
}

/// Returns a lock that another description holds on some of `bytes` (I3), or `None` if all of them
/// are free. Changes nothing, so a read-only descriptor is enough.
pub fn probe(fd: BorrowedFd<'_>, bytes: Range<u32>) -> io::Result<Option<Held>> {
    let (at, length) = place(bytes.clone());
    let Some((found, kind)) = sys::get_lock(fd, at, length)? else { return Ok(None) };
    let hold = if kind == LockKind::Read { Hold::Shared } else { Hold::Alone };
    // Another program's lock may begin before the first probed byte, even at the file's beginning.
    let byte = (found - FIRST as i64).clamp(bytes.start.into(), bytes.end.into()) as u32;
    Ok(Some(Held { byte, hold }))
}

/// Returns the range that contains only byte `number`.
pub fn byte(number: u32) -> Range<u32> {
    number..number + 1
}
