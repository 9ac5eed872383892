//! Memory for one block and a turn: private to this process, or mapped from a file that another
//! process maps, too.
//!
//! Invariants
//! - I1: while the value lives, the address is valid for one page and the block behind it. The
//!   block begins at the second page.

use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

const PAGE: usize = 4096;

/// Memory for a block of numbers.
pub struct Memory {
    first: *mut u8,
    words: usize,
}

// SAFETY: the turn is atomic, and the ends of an exchange use the block in turns (crate::I1).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes memory of this process.
    pub fn private(words: usize) -> io::Result<Memory> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let flags = flags | MapFlags::POPULATE;
        // SAFETY: the mapping is new, and the kernel chooses its address.
        let first = unsafe { mmap_anonymous(ptr::null_mut(), length(words), protection, flags)? };
        Ok(Memory { first: first.cast(), words })
    }

    /// Makes a file for the memory, and maps it.
    pub fn create(path: &Path, words: usize) -> io::Result<Memory> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(length(words) as u64)?;
        Memory::map(&file, words)
    }

    /// Maps the file that another process has made.
    pub fn open(path: &Path, words: usize) -> io::Result<Memory> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != length(words) as u64 {
            return Err(io::Error::other("the shared memory has another size"));
        }
        Memory::map(&file, words)
    }

    fn map(file: &File, words: usize) -> io::Result<Memory> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let (flags, length) = (flags | MapFlags::POPULATE, length(words));
        // SAFETY: the mapping is new, the kernel chooses its address, and the file is as long as
        // the mapping.
        let first = unsafe { mmap(ptr::null_mut(), length, protection, flags, file, 0)? };
        Ok(Memory { first: first.cast(), words })
    }

    /// Returns the word that holds the number of the next turn. The word is 0 in new memory.
    pub fn turn(&self) -> &AtomicU64 {
        // SAFETY: I1; a page begins at a multiple of 8, and zero is a valid value.
        unsafe { &*self.first.cast() }
    }

    /// Returns the address of the block.
    pub fn block(&self) -> *mut u64 {
        // SAFETY: I1.
        unsafe { self.first.add(PAGE).cast() }
    }

    /// Returns the number of words of the block.
    pub fn words(&self) -> usize {
        self.words
    }
}

fn length(words: usize) -> usize {
    PAGE + words * size_of::<u64>()
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this length, and no end uses it any more.
        let _ = unsafe { munmap(self.first.cast(), length(self.words)) };
    }
}
