//! This module detects threads that would wait for themselves. Each thread has a list of the stages
//! whose handlers are running on the thread.
//!
//! Invariants
//! - I1: a thread is *inside* a stage while a loop of the library runs the stage's handler on the
//!   thread. A thread leaves a stage when the loop that runs the stage's handler returns or panics.
//!   The ring is alive while a thread is inside one of the ring's stages, because the thread's loop
//!   has a handle. A loop adds its stage to the thread's list of stages once, not for each batch.
//!   The method `poll` handles a single batch, and does not add a stage to the thread's list of
//!   stages. In a version of `poll` that added the stage, the addition took 2 to 3 of the 17 ns for
//!   publishing and polling one event.
//! - I2: except in a pool, a detected self-wait would never end, because a stage does not progress
//!   while its thread waits. A self-wait may be detected late. A pool worker's self-wait could
//!   still end, because the worker could adopt a chunk that another worker abandons. The library
//!   refuses a pool worker's self-wait, too.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use crate::base::sync::Relaxed;
use crate::ring::control::Control;
use crate::ring::words::{IDLE, ahead, bound_ahead};

/// Largest depth of nested stages that is detected. The list of a thread's stages has a fixed
/// length, so that entering a stage allocates nothing.
const DEPTH: usize = 16;

/// The address of a ring's control, and the index of the cache line on which a stage, worker or
/// shard stores its progress.
type Entry = (*const Control, usize);

/// A thread's list of stages (I1). The entries from `depth` on are not in use.
struct Nesting {
    depth: Cell<usize>,
    entries: [Cell<Entry>; DEPTH],
}

impl Nesting {
    fn inside(&self) -> impl Iterator<Item = &Cell<Entry>> {
        self.entries.iter().take(self.depth.get())
    }
}

thread_local! {
    static INSIDE: Nesting = const {
        Nesting { depth: Cell::new(0), entries: [const { Cell::new((ptr::null(), 0)) }; DEPTH] }
    };
}

/// Calls `look` with the current thread's list of stages, and returns the result of `look`. In a
/// model, returns the default of the result type without calling `look`. A model's threads have no
/// lists of their own, because they run on one system thread.
#[inline(always)]
fn with<T: Default>(look: impl FnOnce(&Nesting) -> T) -> T {
    if cfg!(slipring_loom) { T::default() } else { INSIDE.with(look) }
}

/// A guard of the stages that a thread entered; dropping the guard leaves these stages. A thread
/// drops its guards in the reverse order of their creation. The guard is marked as if it held a raw
/// pointer, so that the guard stays on its thread.
pub(crate) struct Inside {
    /// Length of the thread's list of stages before this guard was created.
    before: usize,
    thread: PhantomData<*const ()>,
}

/// Records that the current thread runs handlers of stages, workers or shards. `lines` are the
/// indices of the cache lines on which the stages, workers or shards store their progress.
#[inline(always)]
pub(crate) fn enter(control: &Control, lines: impl IntoIterator<Item = usize>) -> Inside {
    let before = with(|nest| {
        let before = nest.depth.get();
        let mut depth = before;
        for line in lines {
            if let Some(entry) = nest.entries.get(depth) {
                entry.set((control, line));
            }
            depth += 1;
        }
        nest.depth.set(depth);
        before
    });
    Inside { before, thread: PhantomData }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        with(|nest| nest.depth.set(self.before));
    }
}

/// Records that a worker now stores its progress on the line `to` instead of the line `from`.
#[cold]
pub(crate) fn moved(control: &Control, from: usize, to: usize) {
    let own = (ptr::from_ref(control), from);
    with(|nest| {
        nest.inside().filter(|entry| entry.get() == own).for_each(|entry| entry.set((control, to)))
    });
}

/// Returns the stage whose handler the current thread runs in the ring of `control`.
pub(crate) fn innermost(control: &Control) -> Option<usize> {
    with(|nest| {
        let own = nest.inside().map(Cell::get).filter(|(ring, _)| ptr::eq(*ring, control));
        own.last().and_then(|(_, line)| control.plan.stage_of(line))
    })
}

/// Returns the first stage of the current thread's list that has not released all events before
/// `seq(stage)`. The function ignores stages for which `seq` returns `None`.
fn holder(control: &Control, seq: impl Fn(usize) -> Option<u64>) -> Option<usize> {
    let holds = |&(stage, line): &(usize, usize)| {
        let Some(seq) = seq(stage) else { return false };
        let word = control.line(line).load(Relaxed); // this thread's store, or an adopted bound
        if control.plan.stages[stage].delivery.has_bounds() {
            word & IDLE == 0 && bound_ahead(word, seq) < 0
        } else {
            ahead(word, seq) < 0
        }
    };
    with(|nest| {
        let own = nest.inside().map(Cell::get).filter(|(ring, _)| ptr::eq(*ring, control));
        own.filter_map(|(_, line)| Some((control.plan.stage_of(line)?, line)))
            .find(holds)
            .map(|(stage, _)| stage)
    })
}

/// Returns a stage whose handler is running on the current thread, if the stage has not released
/// all events before `seq`. On the current thread, a producer that waited for the returned stage
/// would wait for ever.
pub(crate) fn stuck(control: &Control, seq: u64) -> Option<usize> {
    holder(control, |_| Some(seq))
}

/// Works as [`stuck`], but for a consumer: a handle of `stage` waits for the event at `next`. The
/// event at `next` is known to come. The handle gets the event only after the stages before `stage`
/// have released it.
///
/// The function ignores stages that are not before `stage`, because such stages do not delay an
/// event whose slot is claimed.
pub(crate) fn stuck_at(control: &Control, stage: usize, next: u64) -> Option<usize> {
    holder(control, |other| control.plan.before[stage][other].then_some(next.wrapping_add(1)))
}
