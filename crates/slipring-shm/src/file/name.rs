//! Checks whether a segment's name still refers to the file that a process is attached to.
//!
//! A person or the system may remove the file by other means than `remove`, which never removes a
//! segment in use. The attached processes then continue to use a file that no other program can
//! find.
//!
//! Invariants
//! - I1: a name counts as lost only if it is lost for every program: the file has no link left, or
//!   the folder is the same one as when the process attached, but has another file of that name, or
//!   none. A process that has changed its root or its mounts since then sees another folder, which
//!   proves nothing.
//! - I2: once a name was found lost, every later call that reports losses checks again. So every
//!   waiting thread gets the error, and not only the first one that checks.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::fs::fstat;
use slipring::segment::warn_of_segment;
use slipring::{errors::NameLost, waiting::Warning};

use crate::file::descriptor::File;
use crate::layout::Header;

/// Device and inode of a file.
type Identity = (u64, u64);

/// The name of the file that a process is attached to.
#[derive(Debug)]
pub(crate) struct AttachedName {
    path: PathBuf,
    file: Identity,
    /// Identity of the folder, or `None` if the system did not report it.
    folder: Option<Identity>,
    /// Random number of the segment.
    id: [u8; 16],
    /// The segment's notice: the longest time between two checks by a waiting process, in ms.
    notice_ms: u64,
    attached: Instant,
    /// Time of the last check, in ms since `attached`.
    looked: AtomicU64,
    is_lost: AtomicBool,
    is_required: AtomicBool,
}

/// Ids of the segments for which this process has already warned of a lost name.
static WARNED: Mutex<Vec<[u8; 16]>> = Mutex::new(Vec::new());

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

fn folder(path: &Path) -> Option<Identity> {
    fs::metadata(path.parent()?).ok().as_ref().map(identity)
}

impl AttachedName {
    /// Notes the path by which this process attaches to `file`, and the identities of the file and
    /// its folder.
    pub(crate) fn new(path: &Path, file: &File, header: &Header) -> AttachedName {
        // The path is made absolute, because the process may change its working folder later.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        AttachedName {
            folder: folder(&path),
            path,
            file: file.identity(),
            id: header.id,
            notice_ms: header.notice_ms.into(),
            attached: Instant::now(),
            looked: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            is_required: AtomicBool::new(false),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From now on, [`AttachedName::told`] returns the loss of the name instead of only warning of
    /// it.
    pub(crate) fn require(&self) {
        self.is_required.store(true, Relaxed);
    }

    /// Checks which file the name refers to. `fd` is a descriptor of the attached file. Returns the
    /// loss, or `None` if the name still refers to the attached file, or if this process cannot see
    /// which file it refers to (I1).
    pub(crate) fn find_loss(&self, fd: BorrowedFd<'_>) -> io::Result<Option<NameLost>> {
        let found = match fs::symlink_metadata(&self.path) {
            Ok(found) if identity(&found) == self.file => return Ok(None),
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(false),
                _ => Err(error),
            },
        };
        let has_link = fstat(fd)?.st_nlink != 0;
        let replaced = match found {
            Err(error) if has_link => return Err(error),
            found => found.unwrap_or(false),
        };
        let is_same_folder = || self.folder.is_some() && folder(&self.path) == self.folder;
        let is_lost = !has_link || is_same_folder();
        Ok(is_lost.then(|| NameLost::new(self.path.clone(), replaced)))
    }

    /// Checks the name, at most once in each notice interval. If the name is lost, and waiting
    /// calls have to report that, returns the loss; otherwise warns of it, once for each segment.
    /// Once a loss that has to be reported is known, every call checks the name (I2).
    pub(crate) fn told(&self, fd: BorrowedFd<'_>) -> Option<NameLost> {
        let (was_lost, required) = (self.is_lost.load(Relaxed), self.is_required.load(Relaxed));
        if was_lost && !required || !was_lost && !self.is_look_due() {
            return None;
        }
        // A name that cannot be checked does not count as lost.
        let lost = self.find_loss(fd).ok()??;
        self.is_lost.store(true, Relaxed);
        if required {
            return Some(lost);
        }
        let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
        let first = !warned.contains(&self.id);
        if first {
            warned.push(self.id);
        }
        drop(warned);
        if first {
            warn_of_segment(Warning::NameLost(lost));
        }
        None
    }

    /// Returns whether the time of a notice has passed since the last check, and if so, records the
    /// time of a new check. Several threads may get `true` at once.
    fn is_look_due(&self) -> bool {
        let now = u64::try_from(self.attached.elapsed().as_millis()).unwrap_or(u64::MAX);
        let due = now.saturating_sub(self.looked.load(Relaxed)) >= self.notice_ms;
        if due {
            self.looked.store(now, Relaxed);
        }
        due
    }
}
