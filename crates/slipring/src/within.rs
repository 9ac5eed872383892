//! Which stages the present thread is inside of, so that it can be told before it waits for itself.
//!
//! Invariants
//! - I1: a thread is inside of a stage while a loop of the library runs the stage's handler on it, and leaves when that loop does, also by a panic.
//!   The ring is alive meanwhile: the loop has a handle.
//! - I2: what is answered may come too late, never falsely: a stage that this thread is inside of does not move on while this thread waits.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ptr;

use crate::control::{Control, IDLE, ahead, bound_ahead};
use crate::seat::Seat;
use crate::slots::Layout;
use crate::sync::Relaxed;

/// Where a seat says what it has let go.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) stage: usize,
    pub(crate) line: usize,
    /// Whether the lowest bit says that nothing is held.
    pub(crate) idles: bool,
}

/// How many stages are known; whoever nests deeper may wait for himself. A list of fixed length, for a loop allocates nothing.
const DEPTH: usize = 16;

struct Nest {
    depth: usize,
    stages: [Option<(*const Control, Standing)>; DEPTH],
}

thread_local! {
    static WITHIN: RefCell<Nest> = const { RefCell::new(Nest { depth: 0, stages: [None; DEPTH] }) };
}

/// Nothing is known in a thread that is being taken down, nor under the model checker, which runs all threads of a model on one.
fn with<T>(look: impl FnOnce(&mut Nest) -> T) -> Option<T> {
    if cfg!(slipring_loom) { None } else { WITHIN.try_with(|within| look(&mut within.borrow_mut())).ok() }
}

/// Leaves when it is dropped. Of one thread: the pointer keeps it there.
pub(crate) struct Within(PhantomData<*const ()>);

/// The present thread runs a stage's handler from now on.
pub(crate) fn enter(control: &Control, standing: Standing) -> Within {
    with(|within| {
        if let Some(stage) = within.stages.get_mut(within.depth) {
            *stage = Some((control, standing));
        }
        within.depth += 1;
    });
    Within(PhantomData)
}

/// As [`enter`], for whoever sits at this seat.
pub(crate) fn enter_seat<E, L: Layout>(seat: &impl Seat<E, L>) -> Within {
    enter(seat.desk().control(), seat.standing())
}

impl Drop for Within {
    fn drop(&mut self) {
        with(|within| {
            within.depth -= 1;
            if let Some(stage) = within.stages.get_mut(within.depth) {
                *stage = None;
            }
        });
    }
}

/// The stage that this thread is inside of and that has not let go of everything before `seq`: waiting for that here would never end.
pub(crate) fn stuck(control: &Control, seq: u64) -> Option<usize> {
    let holds = |standing: &Standing| {
        let word = control.line(standing.line).load(Relaxed); // the thread's own stage: what it stored last
        if standing.idles { word & IDLE == 0 && bound_ahead(word, seq) < 0 } else { ahead(word, seq) < 0 }
    };
    let own = |(ring, standing): &&(*const Control, Standing)| ptr::eq(*ring, control) && holds(standing);
    with(|within| within.stages.iter().flatten().find(own).map(|(_, standing)| standing.stage))?
}
