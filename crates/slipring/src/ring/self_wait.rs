//! Detection of threads that would wait for themselves, by a list of the stages whose handlers are
//! running on the current thread.
//!
//! Invariants
//! - I1: a thread is inside of a stage while a loop of the library runs the stage's handler on the
//!   thread. The thread leaves the stage when this loop of the library returns or panics. The ring
//!   is alive while a thread is inside of one of the ring's stages, because the thread's loop has a
//!   handle. A loop adds its stage to the thread's list of stages once, not for each batch. A call
//!   of `poll` handles a single batch, and does not add its stage to the thread's list of stages.
//!   Adding a stage in `poll` took 2 to 3 ns of the 17 ns in which one event was published and
//!   polled.
//! - I2: a detected self-wait would never end, because a stage does not progress while the thread
//!   that runs the stage's handler waits. A self-wait may be detected late. I2 has one exception: a
//!   pool's waiting worker could adopt a chunk that another worker of the pool abandons, and so end
//!   the wait. The library also refuses self-waits of pool workers: without an abandoned chunk, a
//!   worker's self-wait lasts for ever.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use crate::base::sync::Relaxed;
use crate::ring::control::Control;
use crate::ring::words::{IDLE, ahead, bound_ahead};

/// Largest depth of nested stages that is detected. The list of a thread's stages has a fixed
/// length, so that entering a stage allocates nothing.
const DEPTH: usize = 16;

/// The address of a ring's control, and the number of the line on which a stage, worker or shard
/// releases.
type Entry = (*const Control, usize);

/// The stages that a thread is inside of. The entries from `depth` on are not in use.
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
/// model, returns the default of the result type: all threads of a model run on one system thread,
/// and would share one list of stages.
#[inline(always)]
fn with<T: Default>(look: impl FnOnce(&Nesting) -> T) -> T {
    if cfg!(slipring_loom) { T::default() } else { INSIDE.with(look) }
}

/// A guard of the stages that a thread entered; dropping the guard leaves these stages. A thread
/// drops its guards in the opposite order of entering. The guard is marked as if it held a raw
/// pointer, so that the guard stays on its thread.
pub(crate) struct Inside {
    /// Number of stages that the thread was inside of before this guard was created.
    before: usize,
    thread: PhantomData<*const ()>,
}

/// Records that the current thread runs handlers of stages, workers or shards. `lines` are the
/// lines on which the stages, workers or shards release.
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

/// Records that a worker releases on the line `to` from now on, in place of the line `from`.
#[cold]
pub(crate) fn moved(control: &Control, from: usize, to: usize) {
    let own = (ptr::from_ref(control), from);
    with(|nest| {
        nest.inside().filter(|entry| entry.get() == own).for_each(|entry| entry.set((control, to)))
    });
}

/// Returns a stage whose handler is running on the current thread, if the stage has not released
/// all events before `seq(stage)`. A stage for which `seq` returns `None` is left out of the
/// search.
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
/// all events before `seq`. A producer on the current thread that waits for this stage waits for
/// ever.
pub(crate) fn stuck(control: &Control, seq: u64) -> Option<usize> {
    holder(control, |_| Some(seq))
}

/// Works as [`stuck`], but for a consumer: a handle of `stage` waits for the event at `next`. The
/// event at `next` is known to come, and the stages before `stage` have to release the event first.
///
/// The search leaves out stages that are not before `stage`, even if the slot of the awaited event
/// becomes free only when such a stage releases. Until the slot of the awaited event is free, the
/// producers may close the ring, and the close ends the wait.
pub(crate) fn stuck_at(control: &Control, stage: usize, next: u64) -> Option<usize> {
    holder(control, |other| control.plan.before[stage][other].then_some(next.wrapping_add(1)))
}
