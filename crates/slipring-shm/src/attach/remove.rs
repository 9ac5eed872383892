//! Removing a segment that no process uses.
//!
//! Invariants
//! - I1: the remover unlinks a name only while it holds byte 0 and all participants' bytes of the
//!   file that the name refers to. No process unlinks a name without holding byte 0 of the named
//!   file, so the name refers to the same file until the remover unlinks it.
//! - I2: the locks are released explicitly, so a child's copy of the descriptor does not keep them.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::attach::participant::NAPS;
use crate::errors::{HeaderProblem, Problem, SegmentError};
use crate::file::descriptor::{File, Rights};
use crate::file::location::Location;
use crate::layout::{MAGIC, MAX_PARTICIPANTS};
use crate::system::fork::ForkGuard;
use crate::system::limits::SUFFIX;
use crate::system::lock::{self, GUARD, Hold};

/// A participant counts as attached only if more than this number of attempts in a row find it. One
/// attempt is not enough: a child that another thread is starting holds copies of the descriptors
/// for a moment, and these may still lock the byte of a participant that has just left.
const LEAVING: u32 = 20;

/// Removes the segment `name` if no process is attached to it. A damaged segment and a segment of
/// an earlier boot are removed as well.
///
/// ```
/// use slipring_shm::errors::Problem;
///
/// let name = format!("none-{}", std::process::id());
/// let error = slipring_shm::remove(&name).unwrap_err();
/// assert!(matches!(error.problem(), Problem::Missing));
/// ```
///
/// # Errors
/// - [`Problem::Name`]: the name is not allowed.
/// - [`Problem::InUse`]: a participant is alive.
/// - [`Problem::Busy`]: a process takes longer than a second to make it or to attach to it.
/// - [`Problem::Missing`]: there is no such segment.
/// - [`Problem::File`], [`Problem::Header`]: the file is no segment, or cannot be one.
/// - [`Problem::System`]: a system call failed.
pub fn remove(name: impl AsRef<OsStr>) -> Result<(), SegmentError> {
    remove_location(&Location::named(name)?)
}

/// Removes the segment at `path`. A file that neither ends with `.slipring` nor begins as a segment
/// does is refused.
///
/// Example: [`remove`].
///
/// # Errors
/// - [`Problem::InUse`]: a participant is alive.
/// - [`Problem::Busy`]: a process takes longer than a second to make it or to attach to it.
/// - [`Problem::Missing`]: there is no such segment.
/// - [`Problem::File`], [`Problem::Header`]: the file is no segment, or cannot be one.
/// - [`Problem::System`]: a system call failed.
pub fn remove_at(path: impl Into<PathBuf>) -> Result<(), SegmentError> {
    remove_location(&Location::Path(path.into()))
}

fn remove_location(location: &Location) -> Result<(), SegmentError> {
    let Some(path) = location.path() else { return Ok(()) };
    let mut in_use = 0;
    for _ in 0..NAPS {
        match try_remove(path) {
            Ok(true) => return Ok(()),
            Ok(false) => in_use = 0,
            Err(Problem::InUse { .. }) if in_use < LEAVING => in_use += 1,
            Err(problem) => return Err(SegmentError::at(location, problem)),
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(SegmentError::at(location, Problem::Busy))
}

/// Tries once to remove the file, and returns whether it did. The file stays if another process
/// holds byte 0, or if the name now refers to another file.
fn try_remove(path: &Path) -> Result<bool, Problem> {
    let locking = |error| Problem::system("locking a byte of the file", error);
    let _guard =
        ForkGuard::enter().map_err(|error| Problem::system("watching for forks", error))?;
    let file = File::open_damaged(path)?;
    step!("remove-opened");
    let magic = file.read(0, MAGIC.len())?;
    if magic != MAGIC && !path.to_string_lossy().ends_with(SUFFIX) {
        let mut found = [0; 8];
        found[..magic.len()].copy_from_slice(&magic);
        return Err(HeaderProblem::Magic { found }.into());
    }
    // The call locks through a description that only it uses, so that no other process shares the
    // locks.
    let own = file.reopen(Some(path), Rights::Write)?;
    if !lock::try_lock(own.as_fd(), lock::byte(GUARD), Hold::Alone).map_err(locking)? {
        return Ok(false);
    }
    step!("remove-guarded");
    let result = unlink(&file, own.as_fd(), path);
    // I2.
    lock::unlock(own.as_fd(), 0..MAX_PARTICIPANTS + 1).map_err(locking)?;
    result
}

/// Unlinks the name while byte 0 is held (I1).
fn unlink(file: &File, own: std::os::fd::BorrowedFd<'_>, path: &Path) -> Result<bool, Problem> {
    let locking = |error| Problem::system("locking a byte of the file", error);
    if !file.is_named(path)? {
        return Ok(false);
    }
    step!("remove-compared");
    let bytes = 1..MAX_PARTICIPANTS + 1;
    if !lock::try_lock(own, bytes.clone(), Hold::Alone).map_err(locking)? {
        let held = lock::probe(own, bytes).map_err(locking)?;
        return match held {
            Some(held) => Err(Problem::InUse { participant: held.byte }),
            // The participant left in between.
            None => Ok(false),
        };
    }
    step!("remove-locked");
    fs::remove_file(path).map_err(|error| Problem::system("removing the name", error))?;
    step!("remove-unlinked");
    Ok(true)
}
