//! Detection of threads that would wait for themselves. Each thread has a list of the stages whose
//! handlers run on it, and of claims that it fills while it publishes more (`Publisher`).
//!
//! Invariants
//! - I1: a thread is *inside* a stage while a loop of the library runs the stage's handler on it,
//!   until the loop returns or panics. The loop has a handle, so the ring is alive meanwhile. A
//!   loop adds its stage to the thread's list once, not for each batch. `poll`, which handles a
//!   single batch, does not add its stage: that would take 2 to 3 of the 17 ns that publishing and
//!   polling one event take. Claims of handles are not in the list, because that would slow
//!   down each claim. A `Publisher` adds the claim that a closure fills when the closure publishes
//!   with it again, for instance a log line.
//! - I2: a detected self-wait would never end, because a stage does not progress while its thread
//!   waits, nor does any stage get past a claim of that thread. The detection may be late. There
//!   are two exceptions, and the library refuses these waits all the same. A pool's worker could
//!   adopt a chunk that another worker abandons. And while a thread runs the closure that decides
//!   about a stage's failures, it counts as inside all workers or shards of the stage: each of them
//!   may fail, and then waits for that closure.
//! - I3: the awaited position may change while a thread waits. For example, another producer takes
//!   the free slot, and the wait continues for a slot that the waiting thread itself holds. So a
//!   wait inside a handler repeats the check while it lasts (`ASK_AGAIN`). Other waits need no
//!   repetition.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr;

use crate::base::sync::{Relaxed, per_thread};
use crate::ring::control::Control;
use crate::ring::waits::SelfWait;
use crate::ring::words::{IDLE, ahead, bound_ahead};

/// Number of stages that a thread's list can hold without an allocation. Few threads ever enter so
/// many stages.
const DEPTH: usize = 16;

/// The address of a ring's control, and what the thread holds of that ring.
type Entry = (*const Control, Held);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// A stage, worker or shard: the index of the cache line on which it stores its progress.
    Line(usize),
    /// All workers or shards of a stage, by the closure that decides about their failures: the
    /// stage's index.
    Judge(usize),
    /// A claim that is not published: its first position.
    Claim(u64),
}

/// A thread's list of stages (I1). The entries from `depth` on are not in use. The entries from
/// [`DEPTH`] on are in [`DEEPER`].
struct Nesting {
    depth: Cell<usize>,
    entries: [Cell<Entry>; DEPTH],
}

per_thread! {
    static INSIDE: Nesting = const {
        Nesting { depth: Cell::new(0), entries: [const { Cell::new((ptr::null(), Held::Line(0))) }; DEPTH] }
    };
    /// The entries beyond the first [`DEPTH`]. This list must be dropped when the thread ends. If
    /// it were a part of `INSIDE`, the bookkeeping for that drop would slow down each access to the
    /// first entries.
    static DEEPER: RefCell<Vec<Cell<Entry>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `look` with the current thread's list of stages. In a model, returns the default without a
/// call: a model's threads have no lists of their own, because they run on one system thread.
fn inside<T: Default>(look: impl FnOnce(&mut dyn Iterator<Item = &Cell<Entry>>) -> T) -> T {
    if cfg!(slipring_loom) {
        return T::default();
    }
    INSIDE.with(|nest| {
        let depth = nest.depth.get();
        let mut first = nest.entries.iter().take(depth);
        if depth <= DEPTH {
            return look(&mut first);
        }
        DEEPER.with(|deeper| look(&mut first.chain(deeper.borrow().iter())))
    })
}

/// Calls `look` with the lines of the current thread's list that belong to the ring of `control`.
fn inside_ring<T: Default>(
    control: &Control,
    look: impl FnOnce(&mut dyn Iterator<Item = usize>) -> T,
) -> T {
    inside(|entries| {
        let own = entries.map(Cell::get).filter(|&(ring, _)| ptr::eq(ring, control));
        look(&mut own.flat_map(|(_, held)| match held {
            Held::Line(line) => line..line + 1,
            Held::Judge(stage) => control.plan.stages[stage].handle_lines(),
            Held::Claim(_) => 0..0,
        }))
    })
}

/// A guard for stages that a thread has entered; its drop leaves these stages. A thread drops its
/// guards in the reverse order of their creation. The type is marked as if it held a raw pointer,
/// so that a guard stays on its thread.
pub(crate) struct Inside {
    /// Length of the thread's list of stages before this guard was created.
    before: usize,
    thread: PhantomData<*const ()>,
}

/// Records that the current thread runs handlers of stages, workers or shards. `lines` are the
/// indices of the cache lines on which these handles store their progress.
#[inline(always)]
pub(crate) fn enter(control: &Control, lines: impl IntoIterator<Item = usize>) -> Inside {
    hold(control, lines.into_iter().map(Held::Line))
}

/// Records that the current thread fills a claim, and publishes it only after the guard's drop.
/// `seq` is the claim's first position.
#[inline(always)]
pub(crate) fn enter_claim(control: &Control, seq: u64) -> Inside {
    hold(control, [Held::Claim(seq)])
}

/// Records that the current thread runs the closure that decides about failures of `stage`.
pub(crate) fn enter_judge(control: &Control, stage: usize) -> Inside {
    hold(control, [Held::Judge(stage)])
}

/// Returns whether the current thread runs the closure that decides about failures of `stage`.
pub(crate) fn is_judging(control: &Control, stage: usize) -> bool {
    let judge = (ptr::from_ref(control), Held::Judge(stage));
    inside(|mut all| Iterator::any(&mut all, |entry| entry.get() == judge))
}

#[inline(always)]
fn hold(control: &Control, all: impl IntoIterator<Item = Held>) -> Inside {
    if cfg!(slipring_loom) {
        return Inside { before: 0, thread: PhantomData };
    }
    let before = INSIDE.with(|nest| {
        let before = nest.depth.get();
        let mut depth = before;
        for held in all {
            match nest.entries.get(depth) {
                Some(entry) => entry.set((control, held)),
                None => enter_deeper((control, held)),
            }
            depth += 1;
            nest.depth.set(depth);
        }
        before
    });
    Inside { before, thread: PhantomData }
}

#[cold]
fn enter_deeper(entry: Entry) {
    DEEPER.with(|deeper| deeper.borrow_mut().push(Cell::new(entry)));
}

#[cold]
fn leave_deeper(before: usize) {
    DEEPER.with(|deeper| deeper.borrow_mut().truncate(before.saturating_sub(DEPTH)));
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        if cfg!(slipring_loom) {
            return;
        }
        if INSIDE.with(|nest| nest.depth.replace(self.before)) > DEPTH {
            leave_deeper(self.before);
        }
    }
}

/// Records that a worker now stores its progress on the line `to` instead of the line `from`.
#[cold]
pub(crate) fn moved(control: &Control, from: usize, to: usize) {
    let own = (ptr::from_ref(control), Held::Line(from));
    let moved = (own.0, Held::Line(to));
    inside(|entries| {
        entries.filter(|entry| entry.get() == own).for_each(|entry| entry.set(moved));
    });
}

/// Returns the stage of the ring of `control` whose handler the current thread runs. If there are
/// several, returns the innermost one.
pub(crate) fn innermost(control: &Control) -> Option<usize> {
    inside_ring(control, |lines| lines.last().and_then(|line| control.plan.stage_of(line)))
}

/// Returns the first stage of the current thread's list that has not released all events before
/// `seq(stage, line)`. Ignores lines for which `seq` returns `None`.
fn holder(control: &Control, seq: impl Fn(usize, usize) -> Option<u64>) -> Option<usize> {
    let holds = |&(stage, line): &(usize, usize)| {
        seq(stage, line).is_some_and(|seq| is_behind(control, stage, line, seq))
    };
    inside_ring(control, |lines| {
        let stages = &mut lines.filter_map(|line| Some((control.plan.stage_of(line)?, line)));
        stages.find(holds).map(|(stage, _)| stage)
    })
}

/// Returns whether the current thread runs a handler of the ring of `control`, not counting the
/// handle that releases on the line `own`.
pub(crate) fn is_inside_other(control: &Control, own: Option<usize>) -> bool {
    inside_ring(control, |mut lines| Iterator::any(&mut lines, |line| Some(line) != own))
}

/// Returns whether the current thread runs a handler of the ring of `control`, or holds a claim of
/// the ring that is in the thread's list.
#[inline(always)]
pub(crate) fn is_inside(control: &Control) -> bool {
    // Each claim among several producers asks, and most threads run no stage.
    !cfg!(slipring_loom)
        && INSIDE.with(|nest| nest.depth.get()) != 0
        && inside(|mut all| Iterator::any(&mut all, |entry| ptr::eq(entry.get().0, control)))
}

/// Returns whether the current thread holds a claim of a position before `seq`.
fn holds_claim(control: &Control, seq: u64) -> bool {
    let is_before = |claim| matches!(claim, Held::Claim(claim) if ahead(seq, claim) > 0);
    let holds = |(ring, held): Entry| ptr::eq(ring, control) && is_before(held);
    inside(|mut entries| Iterator::any(&mut entries, |entry| holds(entry.get())))
}

/// Calls `look` with the ring that `is_ring` accepts, if the current thread runs a handler of one
/// of that ring's stages.
pub(crate) fn at<T>(
    is_ring: impl Fn(&Control) -> bool,
    look: impl FnOnce(&Control) -> Option<T>,
) -> Option<T> {
    // SAFETY: the ring of each entry is alive (I1).
    let is_ring = |ring: &*const Control| is_ring(unsafe { &**ring });
    let runs = |&(_, held): &Entry| matches!(held, Held::Line(_));
    let ring =
        inside(|entries| entries.map(Cell::get).filter(runs).map(|(ring, _)| ring).find(is_ring))?;
    // SAFETY: as above.
    look(unsafe { &*ring })
}

/// Returns the number of handles of `stage` that the current thread runs and that have not released
/// all events before `seq`.
pub(crate) fn held(control: &Control, stage: usize, seq: u64) -> usize {
    let runs =
        |line: usize| inside_ring(control, |mut lines| Iterator::any(&mut lines, |it| it == line));
    let all = control.plan.stages[stage].handle_lines();
    all.filter(|&line| runs(line) && is_behind(control, stage, line, seq)).count()
}

/// Returns whether the handle that stores its progress on `line` still has to release an event
/// before `seq`.
fn is_behind(control: &Control, stage: usize, line: usize, seq: u64) -> bool {
    let word = control.positions.line(line).load(Relaxed); // this thread's store, or an adopted bound
    if control.plan.stages[stage].delivery.has_bounds() {
        word & IDLE == 0 && bound_ahead(word, seq) < 0
    } else {
        ahead(word, seq) < 0
    }
}

fn found(holder: Option<usize>) -> SelfWait {
    holder.map_or(SelfWait::NotNow, SelfWait::Holds)
}

/// Checks whether the current thread would wait for itself if it waited, as a producer, until all
/// stages have released the events before `seq()`.
pub(crate) fn of_producer(control: &Control, seq: impl FnOnce() -> u64) -> SelfWait {
    if !is_inside(control) {
        return SelfWait::Never;
    }
    let seq = seq();
    let claim = || holds_claim(control, seq).then(|| control.plan.producer_party());
    found(holder(control, |_, _| Some(seq)).or_else(claim))
}

/// Returns a stage whose handler the current thread runs, if `stage` cannot release the event at
/// `seq` before that handler returns: it is the stage itself, or comes before it; or the event's
/// slot still holds an event that this handler has not released. Returns the producers' party if
/// the thread holds a claim up to `seq` that is in its list.
pub(crate) fn of_release(control: &Control, stage: usize, seq: u64) -> Option<usize> {
    if !is_inside(control) {
        return None;
    }
    let (behind, a_lap) = (seq.wrapping_add(1), control.plan.capacity as u64);
    let holds = holder(control, |held, _| {
        let comes_first = held == stage || control.plan.before[stage][held];
        Some(if comes_first { behind } else { behind.wrapping_sub(a_lap) })
    });
    holds.or_else(|| holds_claim(control, behind).then(|| control.plan.producer_party()))
}

/// A handle of a stage, as a thread's list identifies it.
pub(crate) struct StageHandle {
    pub(crate) stage: usize,
    /// Index of the line on which the handle stores its progress.
    pub(crate) line: usize,
}

/// Checks whether the current thread would wait for itself if its handle `own` waited for the event
/// at `at()`. `is_claimed` returns whether that event is known to come.
///
/// - If the event is known to come, only the earlier stages can delay it, so the check looks for
///   them.
/// - If the event's slot is not claimed yet, other stages may delay the event, too. But the wait
///   ends at the latest when the stream does, and those stages do not delay the stream's end. So
///   the check finds nothing.
/// - If the stream ends at the awaited position, a pool ends once its other workers have released
///   their chunks, so the check looks for those workers.
pub(crate) fn of_consumer(
    control: &Control,
    own: StageHandle,
    at: impl FnOnce() -> u64,
    is_claimed: impl FnOnce(u64) -> bool,
) -> SelfWait {
    // In a model, which has no lists of stages, the check returns before it loads the awaited
    // position, because the load would multiply the model's executions.
    let StageHandle { stage, line } = own;
    if !is_inside_other(control, Some(line)) {
        return SelfWait::Never;
    }
    let at = at();
    found(if control.status.ended(at).is_some() {
        holder(control, |other, others| (other == stage && others != line).then_some(at))
    } else if is_claimed(at) {
        holder(control, |other, _| control.plan.before[stage][other].then_some(at.wrapping_add(1)))
    } else {
        None
    })
}
