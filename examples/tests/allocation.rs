//! A row that is filled again allocates nothing.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{HEADER, slice};
use indicatif::ProgressBar;
use slipring_examples::readings::input::Input;
use slipring_examples::readings::row::Row;
use slipring_examples::readings::schema::{Options, Parser};

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
fn a_row_keeps_its_memory() {
    // The rows have quoted fields, decimal commas, times without a zone, and bad readings. Some
    // rows are malformed, in every way except one: no row has an invalid time, because jiff would
    // allocate memory for the error.
    let mut text = slice(&["2013-09"]).replace("NA", "\"n/a\"").replace(',', ";");
    text = text.replace("00Z\n", "00\n").replace(".5;", ",5;").replace("EWR", "\"E;\"\"W\"");
    let hour = "2013-09-01T00:00";
    text += &format!("EWR;2013;9;1;0;hot;1;1;1;1;warm;1;1;1;{hour}\n?\n");
    text += &format!(";;;;;1;1;1;1;1;1;1;1;1;{hour}\n");
    let zone = jiff::tz::TimeZone::get("America/New_York").unwrap();
    let options = Options { zone: Some(zone), ..Options::default() };
    let mut text = text.into_bytes();
    text.extend_from_slice(b"\xff;;;;;1;1;1;1;1;1;1;1;1;2013-09-01\n\"");
    let input = Input::new(text, &options).unwrap();

    let bar = ProgressBar::hidden();
    let header = HEADER.replace(',', ";");
    let long = format!("{header}{}\n", [&"x".repeat(100); 15].map(String::as_str).join(";"));
    let good = format!("{header}{};1;1;1;1;1,5;1;1;1;1;1;1;1;1;{hour}\n", "x".repeat(200));
    let mut row = Row::default();
    let mut parser = Parser::new(input.schema());
    for text in [good, long] {
        row.fill(&Input::from_text(text).unwrap().feed(1, &bar).unwrap().next().unwrap());
        row.parse(&mut parser);
    }

    let (mut readings, mut malformed, mut bad) = (0, 0, 0);
    let before = ALLOCATIONS.get();
    for record in input.feed(2, &bar).unwrap() {
        row.fill(&record);
        row.parse(&mut parser);
        readings += row.readings().count();
        malformed += u32::from(row.fault().is_some());
        bad += row.bad_readings();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(readings > 20_000);
    assert_eq!((malformed, bad), (8, 4));
}
