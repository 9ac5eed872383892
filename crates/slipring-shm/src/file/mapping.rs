//! The mapping of a segment into this process.
//!
//! Invariants
//! - I1: from `new` to the drop, the kernel maps `length` bytes of the file at `base`, shared. The
//!   first 65,536 bytes are read-only, and the rest can be written.
//! - I2: forked children do not inherit the mapping, and core dumps leave it out. So a child does
//!   not keep the lock of its parent. In a child, an access is a segmentation fault, and dropping
//!   the value does nothing, because other memory may lie there.
//! - I3: other processes write to the mapping at any time. So references into it refer only to
//!   atomics. References to events are the exception: the caller of a segment's unsafe `attach` has
//!   made a promise about them.
//! - I4: a borrowed record lies within the mapping (I1), at a multiple of its alignment.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect, munmap};
use rustix::param::page_size;

use crate::errors::Problem;
use crate::layout::records::Record;
use crate::layout::{Area, HEAD};
use crate::system::fork::OwnerProcess;

/// A mapped segment.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
    owner: OwnerProcess,
}

// SAFETY: the mapping belongs to the process and not to a thread, and all access through a shared
// reference is atomic (I3).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of the file through the description behind `fd`, which the mapping keeps
    /// open.
    ///
    /// The caller holds a fork guard, because a child that is forked between two system calls of
    /// this function would inherit the mapping.
    pub(crate) fn new(fd: BorrowedFd<'_>, length: u64) -> Result<Mapping, Problem> {
        let step = "mapping the segment";
        if page_size() as u64 > HEAD {
            return Err(Problem::PageSize { bytes: page_size() as u64 });
        }
        let length = usize::try_from(length).map_err(|_| Problem::system(step, Errno::NOMEM))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let base = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, fd, 0) }
            .map_err(|error| Problem::system(step, error))?;
        let base = NonNull::new(base.cast()).ok_or(Problem::system(step, Errno::NOMEM))?;
        let mapping = Mapping { base, length, owner: OwnerProcess::this() };
        step!("mapped");
        for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
            // SAFETY: I1; the advice changes no memory of this process.
            unsafe { madvise(base.as_ptr().cast(), length, advice) }
                .map_err(|error| Problem::system("keeping the mapping out of children", error))?;
        }
        // SAFETY: I1; no reference into the mapping exists yet. The head is at least a page long.
        unsafe { mprotect(base.as_ptr().cast(), HEAD as usize, MprotectFlags::READ) }
            .map_err(|error| Problem::system("protecting the head of the mapping", error))?;
        Ok(mapping)
    }

    /// Touches all pages behind the head, so that the first lap of the ring takes no page faults.
    /// The pages themselves were allocated when the file was made (I2 of `create`). An attaching
    /// process adds only page tables, which take a five-hundredth of the pages' memory. So the call
    /// does not check that enough memory is available.
    pub(crate) fn populate(&self) -> Result<(), Problem> {
        let Some(length) = self.length.checked_sub(HEAD as usize).filter(|&length| length > 0)
        else {
            return Ok(());
        };
        // SAFETY: I1: the address is within the mapping, because the mapping is longer than the
        // head.
        let behind = unsafe { self.base.add(HEAD as usize) };
        // SAFETY: I1; populating changes no byte.
        match unsafe { madvise(behind.as_ptr().cast(), length, Advice::LinuxPopulateWrite) } {
            // There is no memory for a page. If a handle touched the page later, SIGBUS would end
            // the process.
            Err(error @ (Errno::FAULT | Errno::NOMEM | Errno::HWPOISON)) => {
                Err(Problem::system("touching the pages of the segment", error))
            }
            // Kernels before 5.14 do not know this advice.
            _ => Ok(()),
        }
    }

    /// Returns the address of the file's first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length, in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns whether the calling process made the mapping (I2).
    pub fn is_ours(&self) -> bool {
        self.owner.is_this()
    }

    /// Returns the address of `length` bytes at offset `at`, or `None` if they do not lie in the
    /// mapping.
    pub fn address(&self, at: u64, length: usize) -> Option<NonNull<u8>> {
        let at = usize::try_from(at).ok()?;
        if at.checked_add(length)? > self.length {
            return None;
        }
        // SAFETY: I1: the offset is within the mapping, or directly behind it.
        Some(unsafe { self.base.add(at) })
    }

    /// Lends item `index` of an area, or returns `None` if the area has no such item.
    pub fn record<R: Record>(&self, area: &Area, index: u64) -> Option<&R> {
        let at = area.item(index)?;
        let address = self.address(at, size_of::<R>())?.cast::<R>();
        if at < HEAD || !address.is_aligned() {
            return None;
        }
        // SAFETY: I4: the record is in bounds, aligned, and mapped for writing as long as `self` is
        // borrowed. A record is made of atomics, for which any bytes are a value (I1 of `records`).
        Some(unsafe { address.as_ref() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: I1; nothing borrows the mapping any more.
            let result = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
            debug_assert!(result.is_ok(), "a whole mapping can be unmapped: {result:?}");
        }
    }
}
