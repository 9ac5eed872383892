//! A global allocator that gives each allocation lines of its own while a simulation runs.
//!
//! - I1: `ALIGNED` is above zero on a system thread while it runs a simulation, or builds what one
//!   will use. Only then are its allocations aligned to [`PAIR`] and padded to it.
//! - I2: `DEFERRED` lists what a simulating thread has freed. It is freed for real when the run has
//!   ended, since a store to it may wait in a virtual store buffer, and so that no address is used
//!   twice in a run.
//! - I4: `OWNED` lists what the virtual processes of a run have allocated, with their numbers. At
//!   the run's end, what a process has allocated that died, and has not freed, is freed: nothing
//!   uses it, as after the death of a real process. `OWNER` is none while a process makes what
//!   outlives it.
//! - I3: On Unix all memory is of `malloc` and `posix_memalign`, which `free` takes back without
//!   its alignment. Elsewhere all allocations are aligned and padded, so that the layout for the
//!   system's allocator follows from that of the allocation.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::ptr;

/// Alignment and padding: two lines, since a neighbour is often fetched along with a line.
const PAIR: usize = 128;

thread_local! {
    /// Number of reasons for which allocations have lines of their own.
    static ALIGNED: Cell<usize> = const { Cell::new(0) };
    /// Whether a simulation runs.
    static RUNS: Cell<bool> = const { Cell::new(false) };
    /// Number of aligned allocations.
    static SERVED: Cell<usize> = const { Cell::new(0) };
    static DEFERRED: Cell<*mut Deferred> = const { Cell::new(ptr::null_mut()) };
    /// The virtual process whose thread runs.
    static OWNER: Cell<Option<u32>> = const { Cell::new(None) };
    static OWNED: RefCell<Vec<Owned>> = const { RefCell::new(Vec::new()) };
}

/// An allocation of a virtual process.
#[derive(Clone, Copy)]
struct Owned {
    process: u32,
    at: *mut u8,
    layout: Layout,
}

/// Sets the virtual process whose thread runs.
pub(crate) fn set_owner(process: Option<u32>) {
    OWNER.set(process);
}

/// While this value lives, allocations of the calling virtual thread are kept when its process
/// dies: those of structures that other threads use afterwards.
///
/// Example: [`outlives`].
#[must_use = "the effect ends when this value is dropped"]
pub struct Outlives(Option<u32>);

/// Begins the allocation of what outlives the calling thread's virtual process.
///
/// ```
/// let log = std::sync::Mutex::new(Vec::new());
/// let _outlives = slipring_coherence::outlives();
/// log.lock().unwrap().push("kept when the process dies");
/// ```
pub fn outlives() -> Outlives {
    Outlives(OWNER.take())
}

impl Drop for Outlives {
    fn drop(&mut self) {
        OWNER.set(self.0);
    }
}

/// Frees what the dead processes of the run have left. `deferred` has the addresses that they
/// freed, in order.
fn free_estates(died: &[u32], deferred: &[usize]) {
    let owned = OWNED.take();
    for Owned { process, at, layout } in &owned {
        if died.contains(process) && deferred.binary_search(&at.addr()).is_err() {
            // SAFETY: I4.
            unsafe { system::free(*at, *layout) }
        }
    }
}

/// The allocator that a program with simulations has as its global one.
///
/// While the calling thread runs a [`Simulation`](crate::Simulation) or is in [`own_lines`], each
/// allocation begins at a line and has its lines for itself. Memory that is freed in a run is given
/// back at its end, so a run needs as much memory as it allocates in all. Everywhere else, it is
/// the system's allocator.
///
/// ```
/// use slipring_coherence::Lines;
///
/// #[global_allocator]
/// static LINES: Lines = Lines;
///
/// let boxes = slipring_coherence::own_lines(|| [Box::new(1u8), Box::new(2u8)]);
/// assert!(boxes.iter().all(|value| (&raw const **value).addr() % 128 == 0));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines;

/// Calls `build`, during which each allocation of this thread has lines of its own, as in a run:
/// for what is built before a run.
///
/// ```
/// use slipring_coherence::{Lines, own_lines, sync::AtomicU64};
///
/// #[global_allocator]
/// static LINES: Lines = Lines;
///
/// let word = own_lines(|| Box::new(AtomicU64::new(0)));
/// assert_eq!((&raw const *word).addr() % 64, 0);
/// ```
pub fn own_lines<R>(build: impl FnOnce() -> R) -> R {
    let _aligned = Aligned::begin();
    build()
}

struct Aligned;

impl Aligned {
    fn begin() -> Aligned {
        ALIGNED.set(ALIGNED.get() + 1);
        Aligned
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        ALIGNED.set(ALIGNED.get() - 1);
    }
}

/// A run on this system thread. Its drop frees what was freed during the run.
pub(crate) struct Run {
    _aligned: Aligned,
    /// The virtual processes that died.
    pub(crate) died: Vec<u32>,
}

/// Begins a run. Returns `None` if the global allocator is not [`Lines`].
pub(crate) fn begin_run() -> Option<Run> {
    let aligned = Aligned::begin();
    let before = SERVED.get();
    drop(std::hint::black_box(Box::new(1u8)));
    if SERVED.get() == before {
        return None;
    }
    RUNS.set(true);
    Some(Run { _aligned: aligned, died: Vec::new() })
}

impl Drop for Run {
    fn drop(&mut self) {
        RUNS.set(false);
        OWNER.set(None);
        let mut list = DEFERRED.replace(ptr::null_mut());
        if self.died.is_empty() {
            OWNED.with_borrow_mut(Vec::clear);
        } else {
            // SAFETY: I2.
            let mut freed = unsafe { addresses(list) };
            freed.sort_unstable();
            free_estates(&self.died, &freed);
        }
        while !list.is_null() {
            // SAFETY: I2: the list has `Deferred` of `defer`, each once, whose entries were freed
            // by their owners.
            unsafe {
                let next = (*list).next;
                for (at, layout) in (&(*list).entries)[..(*list).used].iter().flatten() {
                    system::free(*at, *layout);
                }
                system::free(list.cast(), Layout::new::<Deferred>());
                list = next;
            }
        }
    }
}

/// Allocations that are freed at the end of the run.
struct Deferred {
    next: *mut Deferred,
    used: usize,
    entries: [Option<(*mut u8, Layout)>; 500],
}

/// Returns the addresses in a list.
///
/// # Safety
///
/// The list is one of `defer`, or null.
unsafe fn addresses(mut list: *mut Deferred) -> Vec<usize> {
    let mut all = Vec::new();
    while !list.is_null() {
        // SAFETY: the caller's promise.
        let entries = unsafe { &*list };
        all.extend(entries.entries[..entries.used].iter().flatten().map(|(at, _)| at.addr()));
        list = entries.next;
    }
    all
}

/// Notes an allocation of the running virtual process.
#[cold]
fn own(process: u32, at: *mut u8, layout: Layout) {
    // The list's own memory belongs to no process.
    let _outlives = outlives();
    OWNED.with_borrow_mut(|owned| owned.push(Owned { process, at, layout }));
}

/// Notes an allocation to be freed at the end of the run.
///
/// # Safety
///
/// As `dealloc`.
unsafe fn defer(at: *mut u8, layout: Layout) {
    let mut list = DEFERRED.get();
    // SAFETY: I2: the list's head is initialised.
    if list.is_null() || unsafe { (*list).used == (*list).entries.len() } {
        // SAFETY: the layout has a size.
        let new: *mut Deferred = unsafe { system::allocate(Layout::new::<Deferred>()) }.cast();
        if new.is_null() {
            return; // Leaked: there is no memory to note it in.
        }
        // SAFETY: `new` has the layout of `Deferred`.
        unsafe { new.write(Deferred { next: list, used: 0, entries: [None; 500] }) };
        DEFERRED.set(new);
        list = new;
    }
    // SAFETY: I2, and there is room.
    unsafe {
        let used = (*list).used;
        (&mut (*list).entries)[used] = Some((at, layout));
        (*list).used = used + 1;
    }
}

/// Returns the layout with lines of its own.
fn padded(layout: Layout) -> Option<Layout> {
    layout.align_to(PAIR).ok().map(|layout| layout.pad_to_align())
}

// SAFETY: memory is the system's, with at least the size and alignment asked for, and is freed
// once, in `dealloc` or at the end of the run (I2).
unsafe impl GlobalAlloc for Lines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ALIGNED.get() == 0 && system::ANY_FREES {
            // SAFETY: the caller's promise.
            return unsafe { system::allocate(layout) };
        }
        SERVED.set(SERVED.get().wrapping_add(1));
        match padded(layout) {
            Some(padded) => {
                // SAFETY: its size is not zero, since the caller's is not.
                let at = unsafe { system::allocate(padded) };
                if let (Some(process), false) = (OWNER.get(), at.is_null()) {
                    own(process, at, layout);
                }
                at
            }
            None => ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if ALIGNED.get() == 0 && layout.align() <= system::LEAST_ALIGNMENT {
            // SAFETY: the caller's promise.
            return unsafe { system::allocate_zeroed(layout.size()) };
        }
        // SAFETY: the caller's promise, and the memory has the size.
        unsafe {
            let at = self.alloc(layout);
            if !at.is_null() {
                at.write_bytes(0, layout.size());
            }
            at
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if RUNS.get() {
            // SAFETY: the caller's promise.
            unsafe { defer(at, layout) }
        } else {
            // SAFETY: I3.
            unsafe { system::free(at, layout) }
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if ALIGNED.get() == 0 && layout.align() <= system::LEAST_ALIGNMENT {
            // SAFETY: the caller's promise.
            return unsafe { system::reallocate(at, size) };
        }
        // SAFETY: the caller's promise; the new layout has the old alignment, and fits by it.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                ptr::copy_nonoverlapping(at, new, size.min(layout.size()));
                self.dealloc(at, layout);
            }
            new
        }
    }
}

#[cfg(unix)]
mod system {
    use std::alloc::Layout;
    use std::ptr;

    /// `free` needs no layout.
    pub(super) const ANY_FREES: bool = true;
    /// The alignment of `malloc`, on all supported targets.
    pub(super) const LEAST_ALIGNMENT: usize = if size_of::<usize>() == 8 { 16 } else { 8 };

    /// # Safety
    ///
    /// The layout has a size.
    pub(super) unsafe fn allocate(layout: Layout) -> *mut u8 {
        if layout.align() <= LEAST_ALIGNMENT && layout.align() <= layout.size() {
            // SAFETY: the functions have no other conditions.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        let mut at = ptr::null_mut();
        let align = layout.align().max(size_of::<usize>());
        // SAFETY: the alignment is a power of two, and a multiple of a pointer's size.
        match unsafe { libc::posix_memalign(&mut at, align, layout.size()) } {
            0 => at.cast(),
            _ => ptr::null_mut(),
        }
    }

    /// # Safety
    ///
    /// The size is not zero.
    pub(super) unsafe fn allocate_zeroed(size: usize) -> *mut u8 {
        // SAFETY: the function has no other conditions.
        unsafe { libc::calloc(1, size) }.cast()
    }

    /// # Safety
    ///
    /// `at` is of [`allocate`] or [`reallocate`], and not freed.
    pub(super) unsafe fn free(at: *mut u8, _: Layout) {
        // SAFETY: the caller's promise.
        unsafe { libc::free(at.cast()) }
    }

    /// # Safety
    ///
    /// As [`free`], and the size is not zero.
    pub(super) unsafe fn reallocate(at: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { libc::realloc(at.cast(), size) }.cast()
    }
}

#[cfg(not(unix))]
mod system {
    use std::alloc::{GlobalAlloc, Layout, System};

    pub(super) const ANY_FREES: bool = false;
    /// No allocation is resized in place.
    pub(super) const LEAST_ALIGNMENT: usize = 0;

    /// # Safety
    ///
    /// The layout has a size.
    pub(super) unsafe fn allocate(layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(super::padded(layout).unwrap_or(layout)) }
    }

    /// # Safety
    ///
    /// Never called, see [`LEAST_ALIGNMENT`].
    pub(super) unsafe fn allocate_zeroed(_: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    /// # Safety
    ///
    /// `at` is of [`allocate`] with this layout, or its padded one, and not freed.
    pub(super) unsafe fn free(at: *mut u8, layout: Layout) {
        // SAFETY: I3.
        unsafe { System.dealloc(at, super::padded(layout).unwrap_or(layout)) }
    }

    /// # Safety
    ///
    /// Never called, see [`LEAST_ALIGNMENT`].
    pub(super) unsafe fn reallocate(_: *mut u8, _: usize) -> *mut u8 {
        std::ptr::null_mut()
    }
}
