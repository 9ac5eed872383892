//! The file of a segment: opening it, and checking it by its descriptor before anything is mapped.
//!
//! Invariants
//! - I1: a [`File`] that a call opens is a regular file on a file system that keeps locks with
//!   mappings. It belongs to this process's effective user, and no other user may open it.
//!   [`File::unchecked`] makes no such checks: it is for files that this process has just made, and
//!   for files of tests.
//! - I2: no lock is taken through the descriptor of a [`File`] if other processes may share its
//!   description. Locks are taken on descriptions that [`File::reopen`] opens.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, SealFlags, Stat, fcntl_get_seals, fstat, fstatfs, open};
use rustix::io::{Errno, pread};
use rustix::process::geteuid;

use crate::errors::{FileProblem, Problem};
use crate::layout::HEAD;

/// An open file that may hold a segment.
#[derive(Debug)]
pub struct File {
    fd: OwnedFd,
    /// Device and inode.
    identity: (u64, u64),
    length: u64,
}

/// Rights of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Reading the file, and probing its locks.
    Read,
    /// Mapping the file for writing, and locking its bytes exclusively.
    Write,
}

impl Rights {
    fn flags(self) -> OFlags {
        match self {
            Rights::Read => OFlags::RDONLY | OFlags::CLOEXEC,
            Rights::Write => OFlags::RDWR | OFlags::CLOEXEC,
        }
    }
}

/// Names of file systems and their numbers from `statfs`, for the message that refuses a file
/// system.
const FILE_SYSTEMS: [(u64, &str); 16] = [
    (TMPFS, "tmpfs"),
    (EXT4, "ext4"),
    (0x794c_7630, "overlayfs"),
    (0x9584_58f6, "hugetlbfs"),
    (0x6573_5546, "FUSE"),
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x9123_683e, "btrfs"),
    (0x5846_5342, "xfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x8584_58f6, "ramfs"),
    (0x9fa0, "proc"),
];
const TMPFS: u64 = 0x0102_1994;
const EXT4: u64 = 0xef53;
/// User id that the kernel reports for a user that has no id in this user namespace.
const OVERFLOW_UID: u32 = 65_534;

impl File {
    /// Opens the file at `path`, and checks I1. Never waits, not even for a FIFO.
    pub fn open(path: &Path, access: Rights) -> Result<File, Problem> {
        let file = File::open_unchecked(path, access)?;
        file.check(1)?;
        file.check_length()?;
        Ok(file)
    }

    /// Opens a file that is about to be removed. The file may have any length.
    pub(crate) fn open_damaged(path: &Path) -> Result<File, Problem> {
        let file = File::open_unchecked(path, Rights::Read)?;
        file.check(1)?;
        Ok(file)
    }

    fn open_unchecked(path: &Path, access: Rights) -> Result<File, Problem> {
        let flags = access.flags() | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = open(path, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOENT => Problem::Missing,
            Errno::LOOP => FileProblem::Kind { found: "a symbolic link" }.into(),
            Errno::ISDIR => FileProblem::Kind { found: "a directory" }.into(),
            Errno::NXIO | Errno::NODEV => FileProblem::Kind { found: "a socket or device" }.into(),
            error => Problem::system("opening the file", error),
        })?;
        File::unchecked(fd)
    }

    /// Opens the memfd behind `fd` again, and checks I1 and the seals. The new description shares
    /// no lock with the one that was passed.
    pub fn open_memfd(fd: BorrowedFd<'_>) -> Result<File, Problem> {
        let file = File::unchecked(reopen(fd, None, Rights::Write)?)?;
        file.check(0).map_err(|problem| match problem {
            Problem::File(FileProblem::Links { .. }) => FileProblem::Named.into(),
            other => other,
        })?;
        file.check_length()?;
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        match fcntl_get_seals(&file.fd) {
            Ok(seals) if seals.contains(sealed) => Ok(file),
            _ => Err(FileProblem::NotSealed.into()),
        }
    }

    /// Takes a descriptor without the checks of I1. The file's owner may then be any user, and its
    /// file system may lose locks, so users never get such a file.
    pub fn unchecked(fd: OwnedFd) -> Result<File, Problem> {
        let stat = stat(&fd)?;
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(File { fd, identity: (stat.st_dev, stat.st_ino), length })
    }

    /// Checks I1. `links` is the number of names that the file must have.
    pub(crate) fn check(&self, links: u64) -> Result<(), Problem> {
        let stat = stat(&self.fd)?;
        let found = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some("a directory"),
            FileType::Fifo => Some("a FIFO"),
            FileType::Socket => Some("a socket"),
            FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
            _ => Some("something else"),
        };
        if let Some(found) = found {
            return Err(FileProblem::Kind { found }.into());
        }
        check_file_system(self.as_fd())?;
        let ours = geteuid().as_raw();
        if stat.st_uid == OVERFLOW_UID && ours != OVERFLOW_UID {
            return Err(FileProblem::UnmappedOwner.into());
        }
        if stat.st_uid != ours {
            return Err(FileProblem::Owner { found: stat.st_uid, ours }.into());
        }
        let mode = stat.st_mode & 0o7777;
        if mode & !0o600 != 0 {
            return Err(FileProblem::Mode { found: mode }.into());
        }
        #[allow(clippy::unnecessary_cast, reason = "32 bits on arm64")]
        let found = stat.st_nlink as u64;
        if found == 0 && links == 1 {
            // The file was removed since it was opened.
            return Err(Problem::Missing);
        }
        if found != links {
            return Err(FileProblem::Links { found }.into());
        }
        Ok(())
    }

    fn check_length(&self) -> Result<(), Problem> {
        if self.length < HEAD {
            return Err(FileProblem::TooShort { bytes: self.length, expected: HEAD }.into());
        }
        Ok(())
    }

    /// Opens another description of the same file.
    pub fn reopen(&self, path: Option<&Path>, access: Rights) -> Result<OwnedFd, Problem> {
        reopen(self.as_fd(), path, access)
    }

    /// Returns device and inode, a pair that no other file has while this file is open or mapped.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns the length, in bytes, that the file had when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns whether `path` still names this file.
    pub fn is_named(&self, path: &Path) -> Result<bool, Problem> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok((found.dev(), found.ino()) == self.identity),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Problem::system("looking at the name", error)),
        }
    }

    /// Reads `length` bytes at offset `at`, or fewer at the file's end.
    pub fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, Problem> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match pread(&self.fd, &mut bytes[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Problem::system("reading the file", error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The medium in which a file system keeps its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// Memory: the file is on tmpfs or is a memfd, and does not outlive the boot.
    Memory,
    /// A disk: the file is on ext4, so the kernel can write its pages back and use their memory for
    /// other data.
    Disk,
}

/// Returns the medium of a file. Refuses a file system that is neither tmpfs nor ext4.
pub(crate) fn check_file_system(fd: BorrowedFd<'_>) -> Result<Medium, Problem> {
    let found =
        fstatfs(fd).map_err(|error| Problem::system("asking for the file system", error))?;
    let magic = found.f_type as u64;
    match magic {
        TMPFS => return Ok(Medium::Memory),
        EXT4 => return Ok(Medium::Disk),
        _ => {}
    }
    let name = FILE_SYSTEMS.iter().find(|(number, _)| *number == magic);
    Err(FileProblem::FileSystem { name: name.map_or("unknown", |(_, name)| name), magic }.into())
}

/// Opens another description of the file behind `fd`. The call opens the file through `/proc`, or
/// by `path` where `/proc` is missing. It fails if `path` names another file.
pub(crate) fn reopen(
    fd: BorrowedFd<'_>,
    path: Option<&Path>,
    access: Rights,
) -> Result<OwnedFd, Problem> {
    let step = "opening the file anew";
    match (open(proc_path(fd), access.flags(), Mode::empty()), path) {
        (Ok(other), _) => Ok(other),
        (Err(Errno::NOENT), Some(path)) => {
            let flags = access.flags() | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let other = open(path, flags, Mode::empty()).map_err(|e| Problem::system(step, e))?;
            let (one, two) = (stat(fd)?, stat(&other)?);
            match (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino) {
                true => Ok(other),
                false => Err(Problem::Replaced),
            }
        }
        (Err(Errno::NOENT), None) => Err(FileProblem::NoProc { step: "opening a memfd" }.into()),
        (Err(error), _) => Err(Problem::system(step, error)),
    }
}

/// Returns the current length of the file behind `fd`, in bytes.
pub(crate) fn length(fd: BorrowedFd<'_>) -> Result<u64, Problem> {
    Ok(u64::try_from(stat(fd)?.st_size).unwrap_or(0))
}

/// Returns the path below `/proc` by which this process can open the file behind `fd`.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn stat(fd: impl AsFd) -> Result<Stat, Problem> {
    fstat(fd).map_err(|error| Problem::system("looking at the file", error))
}
