//! A row that is filled again allocates nothing.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{HEADER, slice};
use indicatif::ProgressBar;
use slipring_examples::readings::input::Input;
use slipring_examples::readings::row::Row;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller guarantees the requirements of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees the requirements of this call.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller guarantees the requirements of this call.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_row_keeps_its_buffer() {
    let malformed = "EWR,2013,9,1,0,hot,1,1,1,1,1,1,1,1,2013-09-01T00:00:00Z\n?\n";
    let input = Input::from_text(slice(&["2013-09"]) + malformed).unwrap();
    let longest = Input::from_text(format!("{HEADER}{}\n", "x".repeat(200))).unwrap();
    let (mut row, mut readings) = (Row::default(), 0);
    let bar = ProgressBar::hidden();
    row.fill(&longest.feed(1, &bar).unwrap().next().unwrap());

    let before = ALLOCATIONS.get();
    for line in input.feed(2, &bar).unwrap() {
        row.fill(&line);
        row.parse(input.columns());
        readings += row.readings().count();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(readings > 20_000);
}
