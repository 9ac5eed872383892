//! Detection of threads that wait for themselves: which stages the current thread is inside of.
//!
//! Invariants
//! - I1: a thread is inside of a stage while a loop of the library runs the stage's handler on it. It
//!   leaves when that loop does, also by a panic. The ring is alive meanwhile: the loop has a
//!   handle. A loop enters once, not for each batch; so `poll`, which is a batch, does not enter:
//!   that took 2 to 3 ns of the 17 that publishing and polling one event take.
//! - I2: a self-wait may be detected late, never falsely: a stage that this thread is inside of does
//!   not move on while this thread waits. One exception: a worker could adopt a colleague's chunk,
//!   which lies before what it waits for. To wait for that would be to wait for ever where the
//!   colleague keeps its chunk.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use crate::base::sync::Relaxed;
use crate::ring::control::Control;
use crate::ring::words::{IDLE, ahead, bound_ahead};

/// Largest depth of nested stages that is detected. The list has a fixed length, because a loop
/// allocates nothing.
const DEPTH: usize = 16;

/// A ring, by its address, and the line on which one of its positions releases.
type Entry = (*const Control, usize);

/// The stages that a thread is inside of. Entries from `depth` on are left over.
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
    static INSIDE: Nesting = const { Nesting { depth: Cell::new(0), entries: [const { Cell::new((ptr::null(), 0)) }; DEPTH] } };
}

/// Returns the default under the model checker, which runs all threads of a model on one.
#[inline(always)]
fn with<T: Default>(look: impl FnOnce(&Nesting) -> T) -> T {
    if cfg!(slipring_loom) { T::default() } else { INSIDE.with(look) }
}

/// Leaves when it is dropped, in the opposite order of entering. The pointer keeps it on one thread.
pub(crate) struct Inside {
    /// Depth of the thread before it entered.
    before: usize,
    thread: PhantomData<*const ()>,
}

/// Notes that the current thread runs the handlers of the positions that release on these lines.
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

/// Notes that a position which released on the line `from` releases on the line `to` from now on.
#[cold]
pub(crate) fn moved(control: &Control, from: usize, to: usize) {
    let own = (ptr::from_ref(control), from);
    with(|nest| {
        nest.inside().filter(|entry| entry.get() == own).for_each(|entry| entry.set((control, to)))
    });
}

/// Returns a stage that this thread is inside of and that has not released everything before
/// `seq(stage)`. `None` there: that stage does not matter.
fn holder(control: &Control, seq: impl Fn(usize) -> Option<u64>) -> Option<usize> {
    let holds = |&(stage, line): &(usize, usize)| {
        let Some(seq) = seq(stage) else { return false };
        let word = control.line(line).load(Relaxed); // the thread's own stage: what it stored last
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

/// Returns the stage that this thread is inside of and that holds events before `seq`. A producer
/// on this thread that waits for those would wait for ever.
pub(crate) fn stuck(control: &Control, seq: u64) -> Option<usize> {
    holder(control, |_| Some(seq))
}

/// As [`stuck`], for a consumer of `stage` that waits for the event at `next`, if the stream goes on
/// there: a stage before it has to release that event.
///
/// A stage that is not before it does not matter, even if the slot of `next` is free only when that
/// stage releases: the producers may close instead, and the wait ends.
pub(crate) fn stuck_at(control: &Control, stage: usize, next: u64) -> Option<usize> {
    holder(control, |other| control.plan.before[stage][other].then_some(next.wrapping_add(1)))
}
