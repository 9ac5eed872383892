//! Files that processes map.
//!
//! Invariants
//! - I1: a mapped file lies in a folder of this run, which only the run's processes can open. No
//!   process shortens the file.

use std::fs::OpenOptions;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::ftruncate;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Words on cache lines of their own: 128 bytes, because the hardware fetches lines in pairs.
#[repr(C, align(128))]
pub struct Line(pub [AtomicU64; 16]);

impl Line {
    /// Returns the first word.
    pub fn word(&self) -> &AtomicU64 {
        &self.0[0]
    }
}

/// Makes a file of zeros, large enough for `bytes`.
pub fn create(path: &Path, bytes: usize) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    Ok(ftruncate(&file, bytes.next_multiple_of(size_of::<Line>()) as u64)?)
}

/// A mapped file that is used as lines of atomic words.
pub struct Mapping {
    first: NonNull<Line>,
    lines: usize,
}

// SAFETY: the mapping gives access to atomic words only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file that [`create`] has made, and touches all pages.
    pub fn open(path: &Path) -> io::Result<Mapping> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len() as usize;
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let first = unsafe { mmap(ptr::null_mut(), bytes, access, flags, &file, 0)? };
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { first, lines: bytes / size_of::<Line>() };
        // Adding zero atomically makes each page writable without changing its content.
        for line in mapping.iter().step_by(4096 / size_of::<Line>()) {
            line.word().fetch_add(0, Relaxed);
        }
        Ok(mapping)
    }

    /// Returns the address of the bytes from line `line` on.
    pub fn bytes_from(&self, line: usize) -> *mut u8 {
        self[line..].as_ptr().cast_mut().cast()
    }
}

impl Deref for Mapping {
    type Target = [Line];
    fn deref(&self) -> &[Line] {
        // SAFETY: the pages are mapped as long as `self` lives, and the file is not shortened (I1).
        // A page is aligned to 128 bytes. The words are atomic, so other processes may change them.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.lines) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `open` has mapped these bytes, and no reference outlives `self`.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.lines * size_of::<Line>()) };
    }
}

/// The shared words through which the processes of one run coordinate.
pub struct Control(Mapping);

impl Control {
    const NAME: &str = "control";

    /// Makes the file with the words of a run.
    pub fn create(folder: &Path) -> io::Result<()> {
        create(&folder.join(Self::NAME), 8 * size_of::<Line>())
    }
    /// Maps the words of a run.
    pub fn open(folder: &Path) -> io::Result<Control> {
        Ok(Control(Mapping::open(&folder.join(Self::NAME))?))
    }
    /// Number of calls of [`meet`](super::ends::meet) in all processes.
    pub fn arrived(&self) -> &AtomicU64 {
        self.0[0].word()
    }
    /// Number of events that the reader has finished.
    pub fn done(&self) -> &AtomicU64 {
        self.0[1].word()
    }
    /// Time at which the writer sent the last event.
    pub fn sent(&self) -> &AtomicU64 {
        self.0[2].word()
    }
    /// 1 as soon as the ring is full and the writer makes the call that waits.
    pub fn full(&self) -> &AtomicU64 {
        self.0[3].word()
    }
    /// Time at which the writer's waiting call returned.
    pub fn returned(&self) -> &AtomicU64 {
        self.0[4].word()
    }
    /// 1 as soon as the tap's reader waits.
    pub fn waits(&self) -> &AtomicU64 {
        self.0[5].word()
    }
    /// 1 as soon as the tap's reader has left.
    pub fn left(&self) -> &AtomicU64 {
        self.0[6].word()
    }
    /// 1 as soon as the stream may begin, because the tap's reader has left or is dead.
    pub fn begin(&self) -> &AtomicU64 {
        self.0[7].word()
    }
}
