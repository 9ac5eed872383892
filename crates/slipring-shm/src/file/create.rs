//! Makes the file of a segment, whole or not at all.
//!
//! Invariants
//! - I1: a file gets its name in the last step. A creator that dies earlier leaves nothing behind,
//!   because the kernel frees an unnamed file once its last descriptor is closed.
//! - I2: all bytes of the file are allocated before it has a name. So a full file system is an
//!   error for the creator, and not a SIGBUS for a participant.
//! - I3: the creator holds byte 0 shared, from before the file gets its name until the creator has
//!   attached or its value is dropped. So no process removes the segment in between. A child that
//!   is forked meanwhile shares the description. If the creator then dies without attaching, the
//!   segment cannot be removed while the child lives.
//! - I4: before the allocation, the length is compared with the room of the file system and, for a
//!   file in memory, with the available memory. Without this check, the kernel would allocate page
//!   by page until no memory is left, and would kill programs to get more, before it refused.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod,
    fcntl_add_seals, fstatvfs, linkat, memfd_create, open,
};
use rustix::io::{Errno, pwrite};
use rustix::process::{Resource, geteuid, getrlimit};
use slipring::segment::check_memory;

use crate::errors::{FileProblem, Problem};
use crate::file::descriptor::{self, File, Medium};
use crate::layout::{Head, Shape, StageRecord};
use crate::system::lock::{self, GUARD, Hold};

/// Properties of a new segment, except for its location and its notice.
#[derive(Debug, Clone)]
pub struct NewSegment {
    /// Counts and sizes. The creator chooses the capacity, the number of participants and the
    /// event's size. The others follow from the graph.
    pub shape: Shape,
    /// First position.
    pub first: u64,
    /// [`KIND_EVENTS`](crate::layout::KIND_EVENTS), `KIND_MESSAGES` or `KIND_BLOCKS`.
    pub kind: u32,
    /// Name of the events' type.
    pub type_name: String,
    /// Version of the events' type.
    pub type_version: u32,
    /// Effect of the producer's death, numbered as in the stage table.
    pub producer_on_death: u32,
    /// Records of the stages, as many as the shape says.
    pub stages: Vec<StageRecord>,
    /// Bytes of the schema, as many as the shape says.
    pub schema: Vec<u8>,
    /// Bytes that are not zero in a fresh segment.
    pub initial: Vec<Initial>,
}

/// Bytes of a fresh segment that are not zero.
#[derive(Debug, Clone)]
pub struct Initial {
    /// Offset in the file, behind the head.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A file to make.
pub(crate) struct NewFile<'a> {
    pub(crate) head: &'a Head,
    pub(crate) initial: &'a [Initial],
    /// Whether the file may take more memory than is available.
    pub(crate) overcommit: bool,
}

/// Makes the file at `path` (I1 to I4). The description of the result holds byte 0 shared.
pub(crate) fn create_named(path: &Path, new: &NewFile<'_>) -> Result<File, Problem> {
    let length = new.head.header().length;
    check_limit(length)?;
    // If the name is taken, the link at the end fails anyway. This early check only avoids
    // allocating a file that would not be used.
    if fs::symlink_metadata(path).is_ok() {
        return Err(Problem::Exists);
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = open(folder, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|error| Problem::system("making a file without a name in the folder", error))?;
    step!("tmpfile");
    let medium = descriptor::check_file_system(fd.as_fd())?;
    new.fill(&fd, medium)?;
    step!("filled");
    let locked = lock::try_lock(fd.as_fd(), lock::byte(GUARD), Hold::Shared)
        .map_err(|error| Problem::system("locking a byte of the file", error))?;
    debug_assert!(locked, "no other process knows the file");
    step!("locked");
    link(&fd, path)?;
    step!("linked");
    File::unchecked(fd)
}

/// Makes a memfd, sealed against resizing.
pub(crate) fn create_memfd(label: &str, new: &NewFile<'_>) -> Result<File, Problem> {
    let length = new.head.header().length;
    check_limit(length)?;
    let step = "making a memfd";
    let name = CString::new(label.replace('\0', " ")).unwrap_or_default();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag by which a memfd can never be executed.
    let fd = match memfd_create(&name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(&name, flags),
        other => other,
    }
    .map_err(|error| Problem::system(step, error))?;
    new.fill(&fd, Medium::Memory)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(|error| Problem::system("sealing the memfd", error))?;
    File::unchecked(fd)
}

/// Refuses a length above the process's limit on file sizes, because the kernel sends SIGXFSZ to a
/// process that exceeds it.
fn check_limit(bytes: u64) -> Result<(), Problem> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => Err(Problem::FileSizeLimit { bytes, limit }),
        _ => Ok(()),
    }
}

impl NewFile<'_> {
    /// Sets the mode, allocates all bytes (I2, I4), and writes the head and the initial bytes. The
    /// magic is written last.
    fn fill(&self, fd: &OwnedFd, medium: Medium) -> Result<(), Problem> {
        let bytes = self.head.header().length;
        // The mode is set here because the umask has removed bits from a file's mode, and memfds
        // are made with 0777.
        fchmod(fd, Mode::RUSR | Mode::WUSR)
            .map_err(|error| Problem::system("setting the mode of the file", error))?;
        let room = room(fd);
        if room.is_some_and(|room| room < bytes) {
            return Err(Problem::NoSpace { bytes, room });
        }
        if medium == Medium::Memory && !self.overcommit {
            check_memory(bytes).map_err(Problem::MemoryShortage)?;
        }
        loop {
            match fallocate(fd, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::NOMEM) => {
                    return Err(Problem::NoSpace { bytes, room });
                }
                Err(error) => return Err(Problem::system("allocating the file", error)),
            }
        }
        for part in self.initial {
            write(fd, part.at, &part.bytes)?;
        }
        let (magic, rest) = self.head.bytes().split_at(8);
        write(fd, 8, rest)?;
        step!("written");
        write(fd, 0, magic)
    }
}

/// Returns how much room the file system has for this user, in bytes. Returns `None` if the file
/// system has no limit, as for memfds, or does not report one.
fn room(fd: &OwnedFd) -> Option<u64> {
    let found = fstatvfs(fd).ok().filter(|found| found.f_blocks != 0)?;
    // The file system reserves a part of the disk for root.
    let free = if geteuid().is_root() { found.f_bfree } else { found.f_bavail };
    free.checked_mul(found.f_frsize)
}

fn write(fd: &OwnedFd, mut at: u64, mut bytes: &[u8]) -> Result<(), Problem> {
    while !bytes.is_empty() {
        match pwrite(fd, bytes, at) {
            Ok(written) => {
                at += written as u64;
                bytes = &bytes[written..];
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(Problem::system("writing the file", error)),
        }
    }
    Ok(())
}

/// Gives the file its name, unless another file has the name.
fn link(fd: &OwnedFd, path: &Path) -> Result<(), Problem> {
    let proc = descriptor::proc_path(fd.as_fd());
    let result = match linkat(CWD, proc, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        // Without `/proc`, the descriptor itself is linked. Kernels before 6.10 allow only root to
        // do so.
        Err(Errno::NOENT) => linkat(fd, "", CWD, path, AtFlags::EMPTY_PATH),
        other => other,
    };
    result.map_err(|error| match error {
        Errno::EXIST => Problem::Exists,
        Errno::NOENT => FileProblem::NoProc { step: "naming the file" }.into(),
        error => Problem::system("naming the file", error),
    })
}
