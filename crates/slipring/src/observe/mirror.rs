//! A mirror of events in atomic words, for observers that hold nobody up.
//!
//! A slot of a ring is plain memory: whoever reads it must keep it from being written. So observers
//! read a *mirror* beside the ring: a ring of atomic words into which one writer copies a value for
//! each event, over whatever is there. Each of its slots has a sequence lock: a mark, changed
//! before the words are and again after them, which tells an observer whether what it copied is one
//! value, and which one (H.-J. Boehm, "Can seqlocks get along with programming language memory
//! models?", MSPC 2012). There is no `unsafe` here: every word that two threads share is atomic,
//! and what an observer copied is bytes until the mark has said that they are one value.
//!
//! Puts are counted densely, whatever the positions of the events; counts are kept doubled:
//!
//! | a slot's mark | says |
//! |---|---|
//! | `2n + 1` | put number `n` is being written here |
//! | `2n + 2` | the slot holds put number `n`, whole |
//!
//! Invariants
//! - I1: the mark of a slot only grows. It says *being written* before any word of that put is
//!   stored, and *holds* after the last one.
//! - I2: what is found was copied between two looks at the mark that both said *holds*, of the very
//!   put that was asked for. The first look acquires what was put (`SYNC[mirrored]`). A word of a
//!   later put cannot be among the copies: then the second look, behind a fence, would see the
//!   later mark (`SYNC[overwritten]`).
//! - I3: `completed` is how many puts are done. Whoever has acquired it finds each of these in its slot,
//!   or a later one (`SYNC[completed]`).
//! - I4: the writer stores nothing after `closed`, and whoever has acquired that sees all that was
//!   put (`SYNC[mirror-closed]`).
//! - I5: observers write none of the words, so there is nothing that the writer could wait for.

use std::fmt;
use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::base::edge;
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Line, Relaxed, twin};
use crate::errors::BuildError;
use crate::observe::observer::Observer;
use crate::ring::words::ahead;

/// One put, in doubled counts.
pub(crate) const PUT: u64 = 2;
/// A mark with this bit: being written.
const WRITING: u64 = 1;
/// A slot begins with its mark and the event's position; the value's words follow.
const HEAD: usize = 2;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Words of a slot for values of this type.
const fn stride<T>() -> usize {
    HEAD + size_of::<T>().div_ceil(WORD)
}

/// What stands where a put is looked for.
pub(crate) enum Found<T> {
    /// The event's position, and the value.
    Held(u64, T),
    /// It is not put yet, or not whole.
    Nothing,
    /// A later one is there, or is being written. So many puts are done, at least (doubled).
    Overwritten(u64),
}

/// Plain data: a value is its bytes, all of them, and any bytes are a value. What a [`Mirror`] can
/// hold.
///
/// Integers, floats, and arrays of plain data are plain. For a type of your own derive what the
/// crate `zerocopy` (0.8, with its feature `derive`) has for it: `#[derive(Clone, Copy, FromBytes,
/// IntoBytes, Immutable)]` on a `#[repr(C)]` struct without padding. Implemented for all that has
/// these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain data",
    label = "observers copy bytes, so a value must be nothing but its bytes",
    note = "let `{Self}` be `#[repr(C)]` without padding, and derive `Clone, Copy` and zerocopy's `FromBytes, IntoBytes, Immutable`"
)]
pub trait Plain: FromBytes + IntoBytes + Immutable + Copy + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: FromBytes + IntoBytes + Immutable + Copy + Send + 'static> Plain for T {}

/// What a mirror's writer and its observers share.
pub(crate) struct Shared {
    /// For each slot its mark, the event's position, and the words of the value.
    words: Box<[AtomicU64]>,
    mask: usize,
    /// What `completed` was before the first put.
    start: u64,
    /// Whether the writer is gone; on a line that is not written before.
    closed: AtomicU32,
    /// How many puts are done, doubled.
    completed: Line<AtomicU64>,
}

impl Shared {
    fn new(capacity: usize, stride: usize, start: u64) -> Result<Shared, BuildError> {
        if !capacity.is_power_of_two() {
            return Err(BuildError::Capacity { asked: capacity });
        }
        let no_memory = || BuildError::Memory { capacity, bytes_per_slot: stride * WORD };
        let mut words = Vec::new();
        words
            .try_reserve_exact(capacity.checked_mul(stride).ok_or_else(no_memory)?)
            .map_err(|_| no_memory())?;
        let mask = capacity - 1;
        for slot in 0..capacity as u64 {
            // Each slot looks as if it held what was put a lap before its first put.
            let lap = slot.wrapping_sub(start / PUT) & mask as u64;
            let first = start.wrapping_add(lap * PUT);
            words.push(AtomicU64::new(first.wrapping_sub(mask as u64 * PUT)));
            words.extend((1..stride).map(|_| AtomicU64::new(0)));
        }
        Ok(Shared {
            words: words.into(),
            mask,
            start,
            closed: AtomicU32::new(0),
            completed: Line(AtomicU64::new(start)),
        })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// The slot of a put, in a mirror of such values: that its length is known when this is
    /// compiled makes the copies straight lines.
    #[inline(always)]
    fn slot<T>(&self, put: u64) -> &[AtomicU64] {
        let at = ((put / PUT) as usize & self.mask) * stride::<T>();
        &self.words[at..at + stride::<T>()]
    }

    /// How many puts are done.
    pub(crate) fn completed(&self) -> u64 {
        edge::completed::see(&self.completed.0)
    }

    /// The oldest put that is still held, if nothing is put just now.
    fn oldest(&self) -> u64 {
        let completed = self.completed();
        completed
            .wrapping_sub((completed.wrapping_sub(self.start)).min(self.capacity() as u64 * PUT))
    }

    /// How many puts there were, if the writer is gone. All of them can be seen now, so whoever
    /// found nothing before it asked looks again (I4).
    #[inline]
    pub(crate) fn closed(&self) -> Option<u64> {
        let closed = edge::mirror_closed::see(&self.closed);
        (closed != 0).then(|| self.completed.0.load(Relaxed))
    }

    /// Looks for one put. What it comes back with is whole, and that very put (I2).
    #[inline]
    pub(crate) fn find<T: Plain>(&self, put: u64) -> Found<T> {
        let slot = self.slot::<T>(put);
        let holds = put.wrapping_add(PUT);
        let mut mark = edge::mirrored::see(&slot[0]);
        if twin!("lapless": mark == holds => mark & WRITING == 0) {
            let (seq, value) = copy(&slot[1..]);
            edge::overwritten::fence_observer(); // words before mark (I2)
            let again = slot[0].load(Relaxed);
            if twin!("unvalidated": again == mark => true) {
                return Found::Held(seq, value);
            }
            mark = again;
        } else if ahead(mark, holds) < 0 {
            return Found::Nothing;
        }
        // What the mark tells may be newer than what is told, and the other way round.
        let (completed, marked) = (self.completed(), mark & !WRITING);
        Found::Overwritten(if ahead(completed, marked) > 0 { completed } else { marked })
    }
}

/// The position and the value in the words after a mark; whether they belong together, the mark
/// says.
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

/// Where values are copied to, for observers to see: the one writer of a small ring that holds the
/// newest `capacity` values.
///
/// A [`put`](Mirror::put) never waits, whoever observes. [`Chain::observe`](crate::Chain::observe)
/// makes a stage of it; whoever owns a thread and a [`Consumer`](crate::Consumer) calls `put` in
/// its loop. Dropping the mirror closes it: observers see what is left, and then the end. (One that
/// is *forgotten* never closes.)
///
/// A slot takes 16 bytes and the value, rounded up to 8 bytes.
///
/// ```
/// use slipring::{Graph, Mirror};
///
/// let graph = Graph::new(8, || 0u32);
/// let rx = graph.reader("mirror");
/// let ring = graph.build()?;
/// let (mut tx, mut rx) = (ring.producer(), ring.reader(rx));
///
/// let mut mirror = Mirror::new(4)?;
/// let mut observer = mirror.mirrored().observe();
/// for i in 0..8 { tx.publish(|slot| *slot = i * 10).unwrap(); }
/// drop(tx);
/// rx.for_each(|event, at| mirror.put(at.seq, event)).unwrap(); // overwrites what nobody has looked at
///
/// let seen = observer.try_next()?;
/// assert_eq!((seen.missed, seen.seq, seen.value), (5, 5, 50)); // of 4 slots, 3 are kept by whoever is overtaken
/// assert_eq!(observer.map(|seen| seen.seq).take(2).collect::<Vec<_>>(), [6, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mirror<T> {
    shared: Arc<Shared>,
    /// The number of the next put, doubled.
    next: u64,
    values: PhantomData<fn(T)>,
}

impl<T: Plain> Mirror<T> {
    /// Bytes that a slot takes.
    pub const BYTES_PER_SLOT: usize = stride::<T>() * WORD;

    /// A mirror that holds the newest `capacity` values. Observers that stay away for longer than
    /// that miss some.
    ///
    /// # Errors
    /// [`BuildError::Capacity`] if that is no power of two (1 is one, but then a value can be seen
    /// only while none is put), [`BuildError::Memory`] if there is no room for so many.
    pub fn new(capacity: usize) -> Result<Mirror<T>, BuildError> {
        Mirror::starting_at(capacity, 0)
    }

    /// As if so many puts (doubled) had been made, and nobody had seen them.
    pub(crate) fn starting_at(capacity: usize, start: u64) -> Result<Mirror<T>, BuildError> {
        let shared = Arc::new(Shared::new(capacity, stride::<T>(), start)?);
        Ok(Mirror { shared, next: start, values: PhantomData })
    }

    /// Copies a value into the mirror, over the oldest one, and tells `seq` with it: usually its
    /// event's position; nothing depends on it.
    ///
    /// Never waits, allocates or fails: it takes as many stores as the value has words of 8 bytes,
    /// and four.
    #[inline]
    pub fn put(&mut self, seq: u64, value: &T) {
        let slot = self.shared.slot::<T>(self.next);
        let done = self.next.wrapping_add(PUT);
        twin!("unmarked": slot[0].store(self.next | WRITING, Relaxed) => ());
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
        edge::completed::complete(&self.shared.completed.0, done);
        self.next = done;
    }
}

impl<T> Mirror<T> {
    /// What observers are made of; any number, any time, also after the mirror is gone.
    pub fn mirrored(&self) -> MirrorHandle<T> {
        MirrorHandle { shared: self.shared.clone(), values: PhantomData }
    }
}

impl<T> Drop for Mirror<T> {
    fn drop(&mut self) {
        edge::mirror_closed::close(&self.shared.closed);
    }
}

impl<T> fmt::Debug for Mirror<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").field("capacity", &self.shared.capacity()).finish_non_exhaustive()
    }
}

/// Makes observers of a [`Mirror`]. Clones are the same; any thread may have one. It keeps the
/// mirror's memory, and nothing else.
pub struct MirrorHandle<T> {
    pub(crate) shared: Arc<Shared>,
    values: PhantomData<fn() -> T>,
}

impl<T> Clone for MirrorHandle<T> {
    fn clone(&self) -> Self {
        MirrorHandle { shared: self.shared.clone(), values: PhantomData }
    }
}

impl<T: Plain> MirrorHandle<T> {
    /// An observer from now on: it sees, or counts as missed, all that is put later.
    #[doc(alias = "subscribe")]
    pub fn observe(&self) -> Observer<T> {
        Observer::new(self.clone(), self.shared.completed())
    }

    /// An observer that begins at the oldest value that is still held: up to `capacity` values that
    /// are there already. The writer may overwrite some of them before it has looked; those count
    /// as missed.
    pub fn observe_from_oldest(&self) -> Observer<T> {
        Observer::new(self.clone(), self.shared.oldest())
    }

    /// How many values the mirror holds.
    pub fn capacity(&self) -> usize {
        self.shared.capacity()
    }
}

impl<T> fmt::Debug for MirrorHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorHandle")
            .field("capacity", &self.shared.capacity())
            .finish_non_exhaustive()
    }
}
