//! Plain data in memory that other processes may write at any time, even against the protocol.
//!
//! A reference `&E` to such memory would cause undefined behaviour, because the compiler may assume
//! that the memory behind a `&E` does not change. So the bytes are copied in and out by atomic
//! words: a relaxed atomic copy, as Rust's RFC 3301 ("atomic memcpy") describes it. If another
//! process stores at the same time, this affects only which bytes a copy has. Any bytes form a
//! valid value, because the data are plain.
//!
//! Invariants
//! - I1: all accesses to the bytes of an [`AtomicBytes`] are relaxed atomic accesses of the words
//!   of its *grid*. The size of the value alone determines the grid: words of eight bytes from the
//!   beginning, and then at most one word each of four, two and one byte. So two accesses of one
//!   process are never a data race, and never overlap in part.
//! - I2: an [`AtomicBytes`] is aligned to eight bytes at least, so each word of the grid is
//!   aligned.
//! - I3: references to an [`AtomicBytes`] are shared. If an [`AtomicBytes`] lies in shared memory,
//!   no code of this crate makes a `&mut` to it, because a `&mut` would claim that no other process
//!   has access.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::sync::Relaxed;
use super::sync::machine::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Plain data that is copied in and out of a segment: values have no padding, and any bytes form a
/// value.
pub trait PlainBytes: FromBytes + IntoBytes + Immutable + Send + Sync + 'static {}

impl<E: FromBytes + IntoBytes + Immutable + Send + Sync + 'static> PlainBytes for E {}

/// The bytes of an `E`, which are copied in and out by relaxed atomic words.
///
/// In a slot, behind a stamp of eight bytes, an `AtomicBytes<E>` lies where an `E` would lie, and
/// the slot has the same size as with an `E`. Its alignment is the larger of 8 and the alignment of
/// `E`; its size is the size of `E`, rounded up to that alignment.
#[repr(transparent)]
pub struct AtomicBytes<E>(UnsafeCell<Aligned<E>>);

/// The alignment is inside of the cell, so that a `&AtomicBytes` says nothing about the bytes
/// behind the value (`line::I1`).
#[repr(C, align(8))]
struct Aligned<E>(MaybeUninit<E>);

// SAFETY: all threads access the bytes only by atomic loads and stores of words (I1).
unsafe impl<E: PlainBytes> Sync for AtomicBytes<E> {}

/// A word of the grid.
trait Word: Copy {
    /// Loads the word at `from`.
    ///
    /// # Safety
    /// `from` is a word of the grid of an [`AtomicBytes`] that is borrowed.
    unsafe fn load(from: *mut u8) -> Self;
    /// Stores the word to `to`.
    ///
    /// # Safety
    /// As [`Word::load`].
    unsafe fn store(self, to: *mut u8);
}

macro_rules! words {
    ($($word:ty: $atomic:ty),*) => {
        $(impl Word for $word {
            #[inline(always)]
            unsafe fn load(from: *mut u8) -> $word {
                // SAFETY: the word is valid and aligned (I2), and accessed by atomic words only
                // (I1).
                unsafe { <$atomic>::from_ptr(from.cast()) }.load(Relaxed)
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: as above.
                unsafe { <$atomic>::from_ptr(to.cast()) }.store(self, Relaxed);
            }
        })*
    };
}

words!(u8: AtomicU8, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64);

/// Calls `copy` with the offset of each whole word of type `W` in the bytes from `at` to `size`.
/// Returns the offset behind the last whole word.
#[inline(always)]
fn words<W: Word>(at: usize, size: usize, mut copy: impl FnMut(usize)) -> usize {
    let mut at = at;
    while size - at >= size_of::<W>() {
        copy(at);
        at += size_of::<W>();
    }
    at
}

impl<E: PlainBytes> AtomicBytes<E> {
    /// Checks I2, and the alignment and size that the type's comment promises.
    const CHECKED: () = {
        let align = if align_of::<E>() > 8 { align_of::<E>() } else { 8 };
        assert!(align_of::<Self>() == align);
        assert!(size_of::<Self>() == size_of::<E>().next_multiple_of(align));
    };

    /// Makes bytes outside of shared memory, from a value.
    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn new(event: E) -> AtomicBytes<E> {
        AtomicBytes(UnsafeCell::new(Aligned(MaybeUninit::new(event))))
    }

    /// Loads each word of the grid, and stores it at the same offset of `to`.
    ///
    /// # Safety
    /// `to` is valid for writes of `size_of::<E>()` bytes, and these bytes lie outside of shared
    /// memory.
    #[inline(always)]
    unsafe fn copy_out(&self, to: *mut u8) {
        let (from, size) = (self.0.get().cast::<u8>(), size_of::<E>());
        macro_rules! copy {
            ($word:ty, $at:expr) => {
                words::<$word>($at, size, |at| {
                    // SAFETY: `words` passes only offsets of words that lie in the event (I2). The
                    // caller promises that the same offsets lie in `to`.
                    unsafe {
                        let word = <$word as Word>::load(from.add(at));
                        to.add(at).cast::<$word>().write_unaligned(word);
                    }
                })
            };
        }
        let at = copy!(u64, 0);
        let at = copy!(u32, at);
        let at = copy!(u16, at);
        copy!(u8, at);
    }

    /// Returns a copy of the value. If another process writes the value during the call, the copy
    /// may mix bytes of several values.
    #[inline]
    pub(crate) fn load(&self) -> E {
        const { Self::CHECKED };
        let mut event = MaybeUninit::<E>::uninit();
        // SAFETY: `event` has as many bytes as the value, and only this thread can access them.
        unsafe { self.copy_out(event.as_mut_ptr().cast()) };
        // SAFETY: all bytes are copied, and any bytes form an `E` (`FromBytes`).
        unsafe { event.assume_init() }
    }

    /// Copies the value to `event`, as [`AtomicBytes::load`] does.
    #[inline]
    pub(crate) fn load_to(&self, event: &mut E) {
        const { Self::CHECKED };
        // SAFETY: `event` has as many bytes as the value, and only the caller can access them. Any
        // bytes form an `E` (`FromBytes`).
        unsafe { self.copy_out(std::ptr::from_mut(event).cast()) };
    }

    /// Stores a copy of `event`, one word after the other.
    #[inline]
    pub(crate) fn store(&self, event: &E) {
        const { Self::CHECKED };
        let (to, size) = (self.0.get().cast::<u8>(), size_of::<E>());
        let from = std::ptr::from_ref(event).cast::<u8>();
        macro_rules! copy {
            ($word:ty, $at:expr) => {
                words::<$word>($at, size, |at| {
                    // SAFETY: `words` calls this with words that lie in the event (I2). No byte of
                    // `event` is padding (`IntoBytes`), and none changes (`Immutable`).
                    unsafe {
                        let word = from.add(at).cast::<$word>().read_unaligned();
                        word.store(to.add(at));
                    }
                })
            };
        }
        let at = copy!(u64, 0);
        let at = copy!(u32, at);
        let at = copy!(u16, at);
        copy!(u8, at);
    }

    /// Fills `part` with the value's bytes, beginning at the offset `from`. Bytes behind the
    /// value's end are zero.
    pub(crate) fn load_part(&self, from: usize, part: &mut [u8]) {
        const { Self::CHECKED };
        let (bytes, size) = (self.0.get().cast::<u8>(), size_of::<E>());
        part.fill(0);
        let end = from.saturating_add(part.len()).min(size);
        // Copies the bytes that belong both to the word at offset `at` and to `part`.
        let mut copy = |at: usize, word: &[u8]| {
            let (first, last) = (at.max(from), (at + word.len()).min(end));
            if first < last {
                part[first - from..last - from].copy_from_slice(&word[first - at..last - at]);
            }
        };
        macro_rules! copy {
            ($word:ty, $at:expr) => {
                words::<$word>($at, size, |at| {
                    if at < end && at + size_of::<$word>() > from {
                        // SAFETY: `words` calls this with words that lie in the event (I2).
                        let word = unsafe { <$word as Word>::load(bytes.add(at)) };
                        copy(at, &word.to_ne_bytes());
                    }
                })
            };
        }
        // The copy begins with the word that contains the first byte of the part.
        let at = copy!(u64, from.min(size) / 8 * 8);
        let at = copy!(u32, at);
        let at = copy!(u16, at);
        copy!(u8, at);
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
    #[repr(C, align(16))]
    struct Wide([u64; 4]);

    fn check<E: PlainBytes + Clone + PartialEq + std::fmt::Debug>(event: E, other: E) {
        let slot = |size: usize, align: usize| {
            let at = size_of::<u64>().next_multiple_of(align);
            (at, (at + size).next_multiple_of(align.max(8)))
        };
        assert_eq!(
            slot(size_of::<E>(), align_of::<E>()),
            slot(size_of::<AtomicBytes<E>>(), align_of::<AtomicBytes<E>>()),
            "a slot has the same size"
        );
        let bytes = AtomicBytes::new(event.clone());
        assert_eq!(bytes.load(), event);
        let size = size_of::<E>();
        for from in 0..=size + 1 {
            for len in 0..=(size + 2 - from).min(19) {
                let mut part = vec![0xAA; len];
                bytes.load_part(from, &mut part);
                let whole = event.as_bytes().iter().chain(&[0; 24]).skip(from).take(len);
                assert!(part.iter().eq(whole), "{from}, {len}: {part:?}");
            }
        }
        bytes.store(&other);
        let mut loaded = event;
        bytes.load_to(&mut loaded);
        assert_eq!(loaded, other);
    }

    /// Copies arrays of each length up to 17 bytes and values of other types, and checks every
    /// byte.
    #[test]
    fn a_copy_has_all_bytes_of_the_value() {
        macro_rules! arrays {
            ($($len:literal)*) => {
                $(check::<[u8; $len]>(
                    std::array::from_fn(|i| i as u8 + 1),
                    std::array::from_fn(|i| 200 - i as u8),
                );)*
            };
        }
        arrays!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 63);
        check(7u8, 9);
        check([0x0102u16, 0x0304, 0x0506], [9, 8, 7]);
        check([1u32; 5], [2; 5]);
        check(f64::MAX, 0.5);
        check(Wide([1, 2, 3, 4]), Wide([5; 4]));
    }

    /// Two threads access the bytes at once, which Miri checks for a data race.
    #[test]
    fn copies_do_not_race() {
        let _watched = crate::watchdog::watched();
        let bytes = AtomicBytes::new([1u8; 15]);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..50).for_each(|i| bytes.store(&[i; 15])));
            for _ in 0..50 {
                assert!(bytes.load().iter().all(|&byte| byte < 50));
                let mut part = [0; 9];
                bytes.load_part(3, &mut part);
                assert!(part.iter().all(|&byte| byte < 50));
            }
        });
    }
}
