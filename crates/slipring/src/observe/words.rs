//! A mirror's shared words form a ring of slots; each slot is a sequence lock around one value.
//!
//! A slot of the event ring is plain memory, so a stage that reads the slot must hold up the
//! producer. Observers hold up no thread. They read a *mirror* instead, a ring of atomic words,
//! into which one writer copies one value per event, over the oldest value.
//!
//! Each slot has a sequence lock, whose version word is the slot's *mark*. The writer changes the
//! mark before it stores the words of a value, and again after the last word. An observer loads the
//! mark before and after it copies the value. The two loaded marks show whether the copy is whole,
//! and which of the writer's values was copied (Hans Boehm, "Can seqlocks get along with
//! programming language memory models?", MSPC 2012). The module needs no `unsafe`: every word that
//! two threads share is atomic, and any copied bytes form a valid value.
//!
//! A *put* is one copy of a value by the writer. Puts have consecutive indices, even if the
//! positions of their events have gaps. *Put `n`* is the put with the index `n`. The word
//! `completed` and the handles store the doubled indices of puts. A slot's mark shows the index of
//! the slot's put, and whether the put is finished. The mark's lowest bit is [`WRITING`].
//!
//! | mark of a slot | meaning |
//! |---|---|
//! | `2n + 1` | the writer is storing put `n` |
//! | `2n + 2` | the slot holds the complete put `n` |
//!
//! Invariants
//! - I1: the mark of a slot only grows. The writer sets it to `2n + 1` before it stores the first
//!   word of put `n`, and to `2n + 2` after the last one.
//! - I2: [`Words::read`] copies a value between two loads of the slot's mark, and returns a copy of
//!   put `n` only if both loads find `2n + 2`. The first load acquires the words of put `n` (edge
//!   `SYNC[mirrored]`). A fence stands between the copy and the second load. If the copy contains a
//!   word of a later put, the second load finds a changed mark (edge `SYNC[overwritten]`).
//! - I3: the word `completed` is the number of finished puts, times two. An observer that has
//!   acquired `completed` finds each put that the word counts, or a later put, in that put's slot
//!   (`SYNC[completed]`).
//! - I4: the store to `closed` is the writer's last store. An observer that has acquired it sees
//!   all puts (`SYNC[mirror-closed]`).
//! - I5: an observer that polls stores to no shared word. An observer that sleeps, and a task that
//!   waits, are in the wait queue. After each put, and after the close, the writer notifies the
//!   queue, so no observer sleeps while its next put, or the end, is there (queue::I1).

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::base::available_memory;
use crate::base::edge;
use crate::base::sync::{AtomicU32, AtomicU64, Line, Relaxed, Statistic, twin};
use crate::errors::BuildError;
use crate::ring::words::ahead;
use crate::wait::queue::{self, WaitQueue};

/// Difference between the stored indices of two consecutive puts. The stored index of a put is
/// doubled, which leaves the lowest bit free for [`WRITING`].
pub(super) const PUT: u64 = 2;
/// Bit of a slot's mark (version word): the writer is storing the slot's words.
const WRITING: u64 = 1;
/// Number of words of a slot before the slot's value: the mark (version word) and the event's
/// position.
const HEAD: usize = 2;
/// Size of a word, in bytes.
const WORD: usize = size_of::<u64>();

/// Returns the size of a slot for values of type `T`, in words.
const fn stride<T>() -> usize {
    HEAD + size_of::<T>().div_ceil(WORD)
}

/// Returns the size of a slot for values of type `T`, in bytes.
pub(super) const fn bytes_per_slot<T>() -> usize {
    stride::<T>() * WORD
}

/// The outcome of [`Words::read`].
pub(super) enum SlotRead<T> {
    /// The event's position, and the value.
    Value(u64, T),
    /// The requested put has not begun, or is not finished.
    NotYet,
    /// The slot holds a later put, or the writer is storing a later put in the slot. The field is a
    /// count of finished puts, times two (see [`PUT`]).
    Overwritten(u64),
}

/// Plain data, which a [`Mirror`](crate::Mirror) can hold: values have no padding, and any bytes
/// form a valid value.
///
/// Integers, floats and arrays of `Plain` elements are `Plain`. For a type of your own, derive the
/// traits of the crate `zerocopy` (0.8, feature `derive`): `#[derive(Clone, Copy, FromBytes,
/// IntoBytes, Immutable)]` on a `#[repr(C)]` struct without padding. Every type that is
/// `FromBytes`, `IntoBytes`, `Immutable`, `Copy`, `Send` and `'static` is `Plain`.
///
/// Example: [`Observer`](crate::handles::Observer).
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
    /// The words of all slots. Each slot has a mark (version word), an event's position, and the
    /// words of a value.
    slots: Box<[AtomicU64]>,
    mask: usize,
    /// Value of `completed` before the first put.
    start: u64,
    /// Whether the writer is gone. Before the writer's end, no thread stores to this field's cache
    /// line.
    closed: AtomicU32,
    /// Number of finished puts, times two (see [`PUT`]).
    completed: Line<AtomicU64>,
    /// The queue in which observers sleep until the next put, or the close.
    pub(super) queue: WaitQueue,
    /// Number of observers whose tasks have waited so far.
    tasks: Statistic,
}

impl Words {
    /// Creates slots for `capacity` values of type `T`. `start` is twice the index of the first put
    /// (see [`PUT`]). Unless `overcommit` is `true`, returns an error if the slots take more memory
    /// than is available.
    pub(super) fn new<T>(
        capacity: usize,
        start: u64,
        overcommit: bool,
    ) -> Result<Words, BuildError> {
        let stride = stride::<T>();
        if !capacity.is_power_of_two() {
            return Err(BuildError::Capacity { asked: capacity });
        }
        if !overcommit {
            let needed = capacity as u128 * bytes_per_slot::<T>() as u128;
            available_memory::check(u64::try_from(needed).unwrap_or(u64::MAX))?;
        }
        let no_memory = || BuildError::Memory { capacity, bytes_per_slot: stride * WORD };
        let mut slots = Vec::new();
        slots
            .try_reserve_exact(capacity.checked_mul(stride).ok_or_else(no_memory)?)
            .map_err(|_| no_memory())?;
        let mask = capacity - 1;
        for slot in 0..capacity as u64 {
            // A new slot's mark (version word) names the put that comes `capacity` puts before the
            // slot's first put.
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
            completed: Line::new(AtomicU64::new(start)),
            queue: WaitQueue::new(),
            tasks: Statistic::new(0),
        })
    }

    pub(super) fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// Returns the words of a put's slot. Their number is a constant for each `T`, so the compiler
    /// can copy a value without a loop.
    #[inline(always)]
    fn slot<T>(&self, put: u64) -> &[AtomicU64] {
        let at = ((put / PUT) as usize & self.mask) * stride::<T>();
        &self.slots[at..at + stride::<T>()]
    }

    // The observers' side.

    /// Returns the number of finished puts, times two (see [`PUT`]).
    pub(super) fn completed(&self) -> u64 {
        edge::completed::see(&self.completed)
    }

    /// Returns twice the index of the oldest put that the slots hold (see [`PUT`]). The writer may
    /// already be overwriting the oldest put.
    pub(super) fn oldest(&self) -> u64 {
        let completed = self.completed();
        completed
            .wrapping_sub((completed.wrapping_sub(self.start)).min(self.capacity() as u64 * PUT))
    }

    /// Returns the number of all puts, times two (see [`PUT`]), or `None` while the writer still
    /// exists. Once the call has returned `Some`, all puts are visible to the observer (I4). An
    /// observer that found no value before the call must read once more, because the writer may
    /// have put a value meanwhile.
    #[inline]
    pub(super) fn closed(&self) -> Option<u64> {
        let closed = edge::mirror_closed::see(&self.closed);
        (closed != 0).then(|| self.completed.load(Relaxed))
    }

    /// Returns whether an observer that waits for `put` should read it: the put is complete or was
    /// overwritten, or the mirror is closed. Costs a load of the mark that [`Words::read`] loads,
    /// and a load of `closed`.
    #[inline]
    pub(super) fn is_due<T>(&self, put: u64) -> bool {
        let mark = edge::mirrored::see(&self.slot::<T>(put)[0]);
        ahead(mark, put.wrapping_add(PUT)) >= 0 || self.closed().is_some()
    }

    /// Returns the number by which the queue knows the tasks of one observer.
    pub(super) fn next_task(&self) -> u64 {
        self.tasks.fetch_add(1, Relaxed)
    }

    /// Copies the value of one put, if the put's slot holds the put's complete value (I2).
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
        // Two words tell how many puts are finished, times two: `completed`, and the slot's mark
        // without its lowest bit. `Overwritten` carries the larger one.
        let (completed, marked) = (self.completed(), mark & !WRITING);
        SlotRead::Overwritten(if ahead(completed, marked) > 0 { completed } else { marked })
    }

    // The writer's side.

    /// Puts a value and its position, and wakes the observers that sleep. `next` is twice the index
    /// of the new put (see [`PUT`]). Returns the new value of `completed`.
    #[inline(always)]
    pub(super) fn put<T: Plain>(&self, next: u64, seq: u64, value: &T) -> u64 {
        twin!("observers-notified-early": {
            let done = self.write(next, seq, value);
            self.notify(); // SYNC[announced]: behind the mark of the put (I5)
            done
        } => {
            self.notify();
            self.write(next, seq, value)
        })
    }

    /// Wakes the observers that sleep. Costs a load while the queue is quiet.
    #[inline(always)]
    fn notify(&self) {
        queue::notify(std::slice::from_ref(&self.queue), &[0]);
    }

    /// Copies a value and its position into the slot of a new put, as [`Words::put`] does.
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
        edge::completed::complete(&self.completed, done);
        done
    }

    /// Marks the mirror as closed, and wakes all observers that sleep. The writer stores nothing
    /// after this call.
    pub(super) fn close(&self) {
        edge::mirror_closed::close(&self.closed);
        // SYNC[announced]: behind the close (I5)
        twin!("mirror-closed-unnotified":
            queue::notify_all(std::slice::from_ref(&self.queue)) => ());
    }
}

/// Copies an event's position and a value out of `words`, which are a slot's words without its
/// mark. The caller checks the mark, to learn whether the value is whole.
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
