//! A clock that advances with its readings, in the place of the C library's. The loop of `for_each`
//! learns from the clock how long its events take. With real time, it would learn something else in
//! each run, and execute other numbers of instructions.
//!
//! Invariants
//! - I1: callers of `clock_gettime` pass a pointer to a `timespec`, as POSIX demands.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Time from one reading to the next, in nanoseconds: as long as some hundred quick events take.
const STEP: i64 = 1_000;

/// The C library's `timespec`.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: c_long,
}

/// Reads the clock. The linker prefers this function to the C library's of the same name.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(_: c_int, time: *mut Timespec) -> c_int {
    static NOW: AtomicI64 = AtomicI64::new(0);
    let now = NOW.fetch_add(STEP, Relaxed);
    // SAFETY: I1.
    unsafe { *time = Timespec { seconds: now / 1_000_000_000, nanoseconds: now % 1_000_000_000 } };
    0
}
