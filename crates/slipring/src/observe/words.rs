//! The shared words of a mirror: a ring of slots, each a sequence lock around one value.
//!
//! A slot of the event ring is plain memory, so a reader of it must hold up its writer. Observers
//! hold up nothing. They read a *mirror* beside the ring: a ring of atomic words into which one
//! writer copies one value per event, over the oldest one.
//!
//! Each slot has a sequence lock, whose version word is called its *mark*. The writer changes the
//! mark before it stores the words of a value and again after them. So the mark tells an observer
//! whether its copy is whole, and which value it is (H.-J. Boehm, "Can seqlocks get along with
//! programming language memory models?", MSPC 2012). There is no `unsafe` here: every word that two
//! threads share is atomic, and a copy stays bytes until its mark is checked.
//!
//! A *put* is one copy of the writer. Puts are counted densely, whatever the positions of their
//! events; counts are kept doubled:
//!
//! | mark of a slot | meaning |
//! |---|---|
//! | `2n + 1` | the writer is storing put number `n` |
//! | `2n + 2` | the slot holds put number `n`, whole |
//!
//! Invariants
//! - I1: The mark of a slot only grows. It says *being written* before the writer stores any word
//!   of a put, and *holds* after the last one.
//! - I2: [`Words::read`] returns a value that it copied between two loads of the mark. Both loads
//!   said *holds*, for the put that was asked for. The first load acquires the words of that put
//!   (`SYNC[mirrored]`). No word of a later put is among the copies: otherwise the second load,
//!   after a fence, would see the later mark (`SYNC[overwritten]`).
//! - I3: `completed` is the number of finished puts. An observer that has acquired it finds each of
//!   these puts, or a later one, in its slot (`SYNC[completed]`).
//! - I4: The writer stores nothing after `closed`. An observer that has acquired `closed` sees all
//!   puts (`SYNC[mirror-closed]`).
//! - I5: Observers store to none of the words, so the writer never waits for one.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::base::edge;
use crate::base::sync::{AtomicU32, AtomicU64, Line, Relaxed, twin};
use crate::errors::BuildError;
use crate::ring::words::ahead;

/// One put, in doubled counts.
pub(super) const PUT: u64 = 2;
/// Bit of a mark: the writer is storing the slot's words.
const WRITING: u64 = 1;
/// Words of a slot before its value: the mark and the event's position.
const HEAD: usize = 2;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Words of a slot for values of type `T`.
const fn stride<T>() -> usize {
    HEAD + size_of::<T>().div_ceil(WORD)
}

/// Bytes of a slot for values of type `T`.
pub(super) const fn bytes_per_slot<T>() -> usize {
    stride::<T>() * WORD
}

/// The outcome of [`Words::read`].
pub(super) enum SlotRead<T> {
    /// The event's position, and the value.
    Value(u64, T),
    /// The put is not made yet, or not finished.
    NotYet,
    /// The slot holds a later put, or one is being written. The count of finished puts is at least
    /// this (doubled).
    Overwritten(u64),
}

/// Plain data, which a [`Mirror`](crate::Mirror) can hold: every byte of a value counts, and any
/// bytes are a value.
///
/// Integers, floats, and arrays of plain data are plain. For a type of your own derive the traits
/// of the crate `zerocopy` (0.8, with its feature `derive`): `#[derive(Clone, Copy, FromBytes,
/// IntoBytes, Immutable)]` on a `#[repr(C)]` struct without padding. Every type with these traits
/// is `Plain`.
///
/// Example: [`Observer`](crate::Observer).
#[doc(alias = "Pod")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain data",
    label = "observers copy bytes, so a value must be nothing but its bytes",
    note = "let `{Self}` be `#[repr(C)]` without padding, and derive `Clone, Copy` and zerocopy's `FromBytes, IntoBytes, Immutable`"
)]
pub trait Plain: FromBytes + IntoBytes + Immutable + Copy + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + 'static> Plain for T {}

/// The words that a mirror's writer and its observers share.
pub(super) struct Words {
    /// For each slot its mark, the event's position, and the words of the value.
    slots: Box<[AtomicU64]>,
    mask: usize,
    /// Value of `completed` before the first put.
    start: u64,
    /// Whether the writer is gone; on a line that nothing is stored to before that.
    closed: AtomicU32,
    /// Number of finished puts, doubled.
    completed: Line<AtomicU64>,
}

impl Words {
    /// Slots for `capacity` values of type `T`; the count of puts begins at `start` (doubled).
    pub(super) fn new<T>(capacity: usize, start: u64) -> Result<Words, BuildError> {
        let stride = stride::<T>();
        if !capacity.is_power_of_two() {
            return Err(BuildError::Capacity { asked: capacity });
        }
        let no_memory = || BuildError::Memory { capacity, bytes_per_slot: stride * WORD };
        let mut slots = Vec::new();
        slots
            .try_reserve_exact(capacity.checked_mul(stride).ok_or_else(no_memory)?)
            .map_err(|_| no_memory())?;
        let mask = capacity - 1;
        for slot in 0..capacity as u64 {
            // The first mark of a slot is that of the put a lap before its first one.
            let lap = slot.wrapping_sub(start / PUT) & mask as u64;
            let first = start.wrapping_add(lap * PUT);
            slots.push(AtomicU64::new(first.wrapping_sub(mask as u64 * PUT)));
            slots.extend((1..stride).map(|_| AtomicU64::new(0)));
        }
        Ok(Words {
            slots: slots.into(),
            mask,
            start,
            closed: AtomicU32::new(0),
            completed: Line(AtomicU64::new(start)),
        })
    }

    pub(super) fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// The words of a put's slot. The stride is a constant of `T`, so copies compile to straight
    /// lines.
    #[inline(always)]
    fn slot<T>(&self, put: u64) -> &[AtomicU64] {
        let at = ((put / PUT) as usize & self.mask) * stride::<T>();
        &self.slots[at..at + stride::<T>()]
    }

    // The observers' side.

    /// The number of finished puts, doubled.
    pub(super) fn completed(&self) -> u64 {
        edge::completed::see(&self.completed.0)
    }

    /// The oldest put that a slot still holds, unless the writer is storing another one.
    pub(super) fn oldest(&self) -> u64 {
        let completed = self.completed();
        completed
            .wrapping_sub((completed.wrapping_sub(self.start)).min(self.capacity() as u64 * PUT))
    }

    /// The number of puts (doubled), if the writer is gone. An observer that found no value before
    /// this call reads once more: all puts are visible now (I4).
    #[inline]
    pub(super) fn closed(&self) -> Option<u64> {
        let closed = edge::mirror_closed::see(&self.closed);
        (closed != 0).then(|| self.completed.0.load(Relaxed))
    }

    /// Copies the value of one put, if its slot holds that put whole (I2).
    #[inline]
    pub(super) fn read<T: Plain>(&self, put: u64) -> SlotRead<T> {
        let slot = self.slot::<T>(put);
        let holds = put.wrapping_add(PUT);
        let mut mark = edge::mirrored::see(&slot[0]);
        if twin!("lapless": mark == holds => mark & WRITING == 0) {
            let (seq, value) = copy(&slot[1..]);
            edge::overwritten::fence_observer(); // words before mark (I2)
            let again = slot[0].load(Relaxed);
            if twin!("unvalidated": again == mark => true) {
                return SlotRead::Value(seq, value);
            }
            mark = again;
        } else if ahead(mark, holds) < 0 {
            return SlotRead::NotYet;
        }
        // Either count may be the newer one: the mark's or `completed`.
        let (completed, marked) = (self.completed(), mark & !WRITING);
        SlotRead::Overwritten(if ahead(completed, marked) > 0 { completed } else { marked })
    }

    // The writer's side.

    /// Copies a value and its position into the slot of put number `next` (doubled); returns the
    /// number of the put after it.
    #[inline(always)]
    pub(super) fn write<T: Plain>(&self, next: u64, seq: u64, value: &T) -> u64 {
        let slot = self.slot::<T>(next);
        let done = next.wrapping_add(PUT);
        twin!("unmarked": slot[0].store(next | WRITING, Relaxed) => ());
        edge::overwritten::fence_writer(); // mark before words (I1)
        slot[1].store(seq, Relaxed);
        let (whole, rest) = value.as_bytes().as_chunks::<WORD>();
        let mut words = slot[HEAD..].iter();
        for (bytes, word) in whole.iter().zip(words.by_ref()) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        if let Some(word) = words.next() {
            let mut bytes = [0; WORD];
            bytes[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(bytes), Relaxed);
        }
        edge::mirrored::put(&slot[0], done);
        edge::completed::complete(&self.completed.0, done);
        done
    }

    /// Marks the mirror as closed; the writer stores nothing after it.
    pub(super) fn close(&self) {
        edge::mirror_closed::close(&self.closed);
    }
}

/// Copies the position and the value in the words after a mark. The caller checks with the mark
/// whether the copy is whole.
#[inline(always)]
fn copy<T: Plain>(words: &[AtomicU64]) -> (u64, T) {
    let mut value = T::new_zeroed();
    let (whole, rest) = value.as_mut_bytes().as_chunks_mut::<WORD>();
    let seq = words[0].load(Relaxed);
    let mut words = words[1..].iter();
    for (bytes, word) in whole.iter_mut().zip(words.by_ref()) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    if let Some(word) = words.next() {
        rest.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..rest.len()]);
    }
    (seq, value)
}
