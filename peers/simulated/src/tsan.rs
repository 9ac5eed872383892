//! The functions that instrumented code calls at its accesses.
//!
//! They report to the simulator, and outside of a simulation they only make the access. The
//! compiler inserts the calls under `-Zsanitizer=thread`; the sanitizer's runtime is not linked.
//!
//! This way in has blind spots:
//!
//! - Spin hints, which are no accesses. A core that loads the same value from the same word again
//!   is taken to spin, and pays for a hint.
//! - Calls of the system and of the compiled part of the standard library: locks, parks, yields.
//!   So a contender may not sleep in a simulation, nor store under such a lock, which another
//!   virtual thread would wait for in vain.
//! - Accesses of the contenders' threads to their own stacks that the compiler keeps in registers,
//!   and those that optimization removes: an instrumented program makes more loads and stores than
//!   the real one. Transfers, read-modify-writes and fences are the same.
//!
//! A plain store is made at once, and only its cost is reported. No other core sees it too early,
//! since the atomic store that publishes it waits for its turn in the store buffer.
//!
//! - I1: The compiler passes addresses that the instrumented code may access at that place, with
//!   the size and, for atomics, the alignment of their type.
#![allow(clippy::missing_safety_doc)]

use std::cell::Cell;

use slipring_coherence::sync::{
    self, AtomicU8, AtomicU16, AtomicU32, AtomicU64, CoreLocal, Ordering, spin_loop,
};
use slipring_coherence::{is_simulating, read, write};

/// The compiler's number of sequential consistency, which alone costs a fence.
const SEQUENTIAL: i32 = 5;

/// Address and value of a core's last access, if it was the load of an atomic.
static LAST: CoreLocal<Cell<(usize, u64)>> = CoreLocal::new(|| Cell::new((0, 0)));

/// Notes a load, which is a spin if it is the last one again.
fn loaded(at: usize, value: u64) {
    if is_simulating() && LAST.with(|last| last.replace((at, value))) == (at, value) {
        spin_loop();
    }
}

/// Notes an access that ends a spin.
fn changed() {
    if is_simulating() {
        LAST.with(|last| last.set((0, 0)));
    }
}

macro_rules! plain {
    ($($len:literal: $read:ident $write:ident $both:ident;)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $read(at: *const u8) {
            read(at, $len);
        }
        #[unsafe(no_mangle)]
        extern "C" fn $write(at: *const u8) {
            write(at, $len);
        }
        #[unsafe(no_mangle)]
        extern "C" fn $both(at: *const u8) {
            read(at, $len);
            write(at, $len);
        }
    )* };
}
plain! {
    1: __tsan_read1 __tsan_write1 __tsan_read_write1;
    2: __tsan_read2 __tsan_write2 __tsan_read_write2;
    4: __tsan_read4 __tsan_write4 __tsan_read_write4;
    8: __tsan_read8 __tsan_write8 __tsan_read_write8;
    16: __tsan_read16 __tsan_write16 __tsan_read_write16;
    2: __tsan_unaligned_read2 __tsan_unaligned_write2 __tsan_unaligned_read_write2;
    4: __tsan_unaligned_read4 __tsan_unaligned_write4 __tsan_unaligned_read_write4;
    8: __tsan_unaligned_read8 __tsan_unaligned_write8 __tsan_unaligned_read_write8;
    16: __tsan_unaligned_read16 __tsan_unaligned_write16 __tsan_unaligned_read_write16;
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_init() {}
#[unsafe(no_mangle)]
extern "C" fn __tsan_func_entry(_: *const u8) {}
#[unsafe(no_mangle)]
extern "C" fn __tsan_func_exit() {}

#[unsafe(no_mangle)]
unsafe extern "C" fn __tsan_memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { __tsan_memmove(to, from, len) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __tsan_memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    read(from, len);
    write(to, len);
    // SAFETY: I1.
    unsafe { std::ptr::copy(from, to, len) };
    to
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __tsan_memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
    write(to, len);
    // SAFETY: I1.
    unsafe { std::ptr::write_bytes(to, value as u8, len) };
    to
}

#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_thread_fence(order: i32) {
    changed();
    sync::fence(if order == SEQUENTIAL { Ordering::SeqCst } else { Ordering::AcqRel });
}
#[unsafe(no_mangle)]
extern "C" fn __tsan_atomic_signal_fence(_: i32) {}

/// Read-modify-writes with one operand.
macro_rules! changes {
    ($atomic:ident $t:ty: $($name:ident $change:ident)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(at: *mut $t, value: $t, _: i32) -> $t {
            changed();
            // SAFETY: I1.
            unsafe { $atomic::from_ptr(at) }.$change(value, Ordering::SeqCst)
        }
    )* };
}
macro_rules! atomics {
    ($atomic:ident $t:ty: $load:ident $store:ident $exchange:ident; $($name:ident $change:ident)*) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $load(at: *mut $t, _: i32) -> $t {
            // SAFETY: I1.
            let value = unsafe { $atomic::from_ptr(at) }.load(Ordering::SeqCst);
            loaded(at.addr(), u64::from(value));
            value
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $store(at: *mut $t, value: $t, order: i32) {
            changed();
            let order = if order == SEQUENTIAL { Ordering::SeqCst } else { Ordering::Release };
            // SAFETY: I1.
            unsafe { $atomic::from_ptr(at) }.store(value, order);
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $exchange(at: *mut $t, old: $t, new: $t, _: i32, _: i32) -> $t {
            changed();
            // SAFETY: I1.
            let word = unsafe { $atomic::from_ptr(at) };
            match word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(found) | Err(found) => found,
            }
        }
        changes!($atomic $t: $($name $change)*);
    };
}
atomics! {
    AtomicU8 u8: __tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_compare_exchange_val;
    __tsan_atomic8_exchange swap __tsan_atomic8_fetch_add fetch_add
    __tsan_atomic8_fetch_sub fetch_sub __tsan_atomic8_fetch_and fetch_and
    __tsan_atomic8_fetch_or fetch_or __tsan_atomic8_fetch_xor fetch_xor
    __tsan_atomic8_fetch_nand fetch_nand
}
atomics! {
    AtomicU16 u16: __tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_compare_exchange_val;
    __tsan_atomic16_exchange swap __tsan_atomic16_fetch_add fetch_add
    __tsan_atomic16_fetch_sub fetch_sub __tsan_atomic16_fetch_and fetch_and
    __tsan_atomic16_fetch_or fetch_or __tsan_atomic16_fetch_xor fetch_xor
    __tsan_atomic16_fetch_nand fetch_nand
}
atomics! {
    AtomicU32 u32: __tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_compare_exchange_val;
    __tsan_atomic32_exchange swap __tsan_atomic32_fetch_add fetch_add
    __tsan_atomic32_fetch_sub fetch_sub __tsan_atomic32_fetch_and fetch_and
    __tsan_atomic32_fetch_or fetch_or __tsan_atomic32_fetch_xor fetch_xor
    __tsan_atomic32_fetch_nand fetch_nand
}
atomics! {
    AtomicU64 u64: __tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_compare_exchange_val;
    __tsan_atomic64_exchange swap __tsan_atomic64_fetch_add fetch_add
    __tsan_atomic64_fetch_sub fetch_sub __tsan_atomic64_fetch_and fetch_and
    __tsan_atomic64_fetch_or fetch_or __tsan_atomic64_fetch_xor fetch_xor
    __tsan_atomic64_fetch_nand fetch_nand
}
