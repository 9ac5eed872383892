//! Reasons why the name, the file or the header of a segment is refused.
//!
//! Invariants
//! - I1: each of these problems is found before any byte of the file is mapped.

use crate::system::limits::{FOLDER, MAX_NAME};

/// Reason why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// The name has no character.
    #[error("the name is empty: take 1 to {MAX_NAME} letters, digits, `-`, `_`, `.`")]
    Empty,
    /// The name has more than 48 bytes.
    #[error("the name has {bytes} bytes: take at most {MAX_NAME}")]
    TooLong {
        /// Length of the name, in bytes.
        bytes: usize,
    },
    /// The name has a slash.
    #[error("the name has a slash: leave it out, or give a whole path (`create_at`, `open_at`)")]
    Slash,
    /// The name begins with a dot.
    #[error("the name begins with a dot: begin with a letter, so that listings show it")]
    LeadingDot,
    /// The name is not valid UTF-8.
    #[error("the name is not UTF-8: take letters, digits, `-`, `_`, `.`")]
    NotUtf8,
    /// The name has a character other than letters, digits, `-`, `_` and `.`.
    #[error("the name has {character:?}: take letters, digits, `-`, `_`, `.`")]
    Character {
        /// The first character in the name that is not allowed.
        character: char,
    },
}

/// Reason why a file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The file is not a regular file.
    #[error("it is {found} and no regular file: take another name")]
    Kind {
        /// Kind of the file, such as `a directory`.
        found: &'static str,
    },
    /// The file has several names (hard links).
    #[error("the file has {found} names, and a segment has exactly one: remove the other links")]
    Links {
        /// Number of names.
        found: u64,
    },
    /// Another user owns the file.
    #[error(
        "user {found} owns the file, and this process acts for user {ours}: run both as one user"
    )]
    Owner {
        /// User id of the owner.
        found: u32,
        /// Effective user id of this process.
        ours: u32,
    },
    /// The file's owner has no user id in this user namespace.
    #[error(
        "the file's owner has no number in this user namespace, so it may be anybody: run both processes in one user namespace"
    )]
    UnmappedOwner,
    /// Users other than the owner may access the file.
    #[error(
        "the file's mode is {found:04o}, so others than its owner may open it: set it to 0600 (`chmod 600`) if you trust what is in it, or make the segment anew"
    )]
    Mode {
        /// The mode's permission bits.
        found: u32,
    },
    /// The file's file system cannot keep segments.
    #[error(
        "its file system is {name} (0x{magic:x}), where locks or mappings do not hold what a segment needs: put it on tmpfs or ext4, such as {FOLDER}"
    )]
    FileSystem {
        /// Name of the file system, or `unknown`.
        name: &'static str,
        /// Number of the file system, as `statfs` returns it.
        magic: u64,
    },
    /// The descriptor does not refer to a memfd that is sealed against resizing.
    #[error(
        "the descriptor is no memfd that is sealed against resizing: pass the one that `create_memfd` made"
    )]
    NotSealed,
    /// The file has a name, but the call expects a memfd.
    #[error(
        "the descriptor is that of a file with a name, and of no memfd: open the file by its name (`open`) or path (`open_at`)"
    )]
    Named,
    /// A step of the call needs `/proc`, which is not mounted.
    #[error("{step} needs /proc, which is not mounted here: mount it")]
    NoProc {
        /// Step that needs `/proc`, worded as the beginning of a sentence.
        step: &'static str,
    },
    /// The file is shorter than a segment's head, or shorter than its header says.
    #[error(
        "the file has {bytes} bytes and should have {expected}: it is no segment or was shortened; remove it and make it anew"
    )]
    TooShort {
        /// Length of the file, in bytes.
        bytes: u64,
        /// Length that the file should have, in bytes.
        expected: u64,
    },
    /// The file is longer than its header says.
    #[error(
        "the file has {bytes} bytes and should have {expected}: it is no segment or was lengthened; remove it and make it anew"
    )]
    TooLong {
        /// Length of the file, in bytes.
        bytes: u64,
        /// Length that the file should have, in bytes.
        expected: u64,
    },
}

/// Reason why a header is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderProblem {
    /// The file does not begin as a segment does.
    #[error(
        "the file begins with {:?} and not with `SLIPRING`, so it is no segment: take another name",
        .found.escape_ascii().to_string()
    )]
    Magic {
        /// The first eight bytes.
        found: [u8; 8],
    },
    /// A machine of the other byte order wrote the header.
    #[error(
        "its order mark reads 0x{found:016x}, so a machine of another byte order made it: share segments only within one machine"
    )]
    ByteOrder {
        /// Order mark of the header, as this machine reads it.
        found: u64,
    },
    /// The segment has another major version than this library reads.
    #[error(
        "it has version {found}, and this program reads version {ours}: build both programs with one version of slipring-shm, or make it anew"
    )]
    Major {
        /// Major version of the segment.
        found: u32,
        /// Major version that this library reads.
        ours: u32,
    },
    /// The segment was made before the machine's last start.
    #[error(
        "it was made before this machine was started last, so nothing in it holds any more: remove it (`slipring rm`) and make it anew"
    )]
    Boot,
    /// It cannot be ruled out that the segment was made before the machine's last start: its file
    /// system outlives a restart, and no process is attached. The boot of the segment or the
    /// current one is unknown, because `/proc` was missing for the segment's maker, or is missing
    /// here.
    #[error(
        "it may be older than the last start of this machine, which only /proc tells, and /proc was missing for its maker or is missing here: mount /proc for both programs, or put the segment in /dev/shm"
    )]
    UnknownBoot,
    /// The segment uses features that this version does not know.
    #[error(
        "it uses features that this version does not know (bits 0x{unknown:x}): build this program with the maker's version of slipring-shm"
    )]
    Features {
        /// Bits of the unknown features.
        unknown: u32,
    },
    /// The checksum of the header's bytes differs from the one that the header states.
    #[error(
        "its header is damaged: the checksum is 0x{computed:08x} and should be 0x{stated:08x}; remove it and make it anew"
    )]
    Checksum {
        /// Checksum that the header states.
        stated: u32,
        /// Checksum computed from the header's bytes.
        computed: u32,
    },
    /// A field has a value that it cannot have.
    #[error("its header is damaged: {field} is {found}, which {rule}; remove it and make it anew")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        found: u64,
        /// Rule that the value breaks, worded as the end of a sentence.
        rule: &'static str,
    },
    /// A field of a stage has a value that it cannot have.
    #[error(
        "its header is damaged: {field} of stage {stage} is {found}, which it cannot be; remove it and make it anew"
    )]
    Stage {
        /// Index of the stage in the table.
        stage: u32,
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        found: u64,
    },
    /// Two areas overlap.
    #[error("its header is damaged: {area} and {other} overlap; remove it and make it anew")]
    Overlap {
        /// Name of the first area.
        area: &'static str,
        /// Name of the second area, which begins inside the first one.
        other: &'static str,
    },
}
