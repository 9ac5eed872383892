//! The accesses of virtual threads: each waits for its turn, pays, and then happens.
//!
//! - I1: When a function here returns, it is the calling core's turn, and all stores are visible
//!   that are due. The caller makes its access before it calls anything else, so no other core
//!   comes between.

use std::panic::Location;

use crate::lines::LINE;
use crate::memory::{Own, Use};
use crate::running::{Handle, Running};
use crate::trace;

pub(crate) use crate::memory::Width;

type Place = &'static Location<'static>;

/// Returns the run, at the calling core's turn.
#[inline(always)]
fn begin(location: Place) -> Option<Handle> {
    let handle = Handle::current()?;
    handle.memory(|memory, me| memory.cores[me].location = location);
    handle.point();
    Some(handle)
}

/// Loads a word. Returns the value if it is that of a store that waits in the core's own buffer;
/// otherwise the caller reads memory.
#[inline]
pub(crate) fn load_value(at: usize, width: Width, location: Place) -> Option<u64> {
    let handle = begin(location)?;
    if handle.is_shuffled() {
        trace::note(handle, "loads", at);
        return load_by_chance(handle, at, width);
    }
    let own = handle.memory(|memory, me| {
        let line = memory.lines.number(at);
        memory.load(me, line, Use::Control);
        memory.own_store(me, at, width)
    });
    if let Own::Part = own {
        handle.drain();
    }
    handle.point();
    match own {
        Own::Value(bits) => Some(bits),
        Own::Nothing | Own::Part => None,
    }
}

/// Loads a word in a run by a schedule.
#[inline]
fn load_by_chance(handle: Handle, at: usize, width: Width) -> Option<u64> {
    match handle.memory(|memory, me| memory.own_store(me, at, width)) {
        Own::Value(bits) => Some(bits),
        Own::Nothing => None,
        Own::Part => {
            handle.drain();
            None
        }
    }
}

/// Stores a word. Returns `false` outside of a simulation, where the caller stores.
#[inline]
pub(crate) fn store_value(at: usize, width: Width, bits: u64, location: Place) -> bool {
    let Some(handle) = begin(location) else { return false };
    if let Some(late) = handle.with(|running| running.stores_late()) {
        trace::note(handle, "stores", at);
        handle.memory(|memory, me| memory.store_by_chance(me, late, at, width, bits));
        return true;
    }
    store_line(handle, at, Some((at, width, bits)));
    true
}

#[inline]
fn store_line(handle: Handle, at: usize, word: Option<(usize, Width, u64)>) {
    let line = handle.memory(|memory, me| {
        let line = memory.lines.number(at);
        memory.begin_store(me, line);
        line
    });
    while !handle.memory(|memory, me| memory.has_room(me)) {
        handle.point();
    }
    handle.memory(|memory, me| memory.store(me, line, word));
}

/// Makes stores to the bytes visible that wait in a buffer, at no cost.
pub(crate) fn settle(at: usize, len: usize) {
    if let Some(handle) = Handle::current() {
        handle.memory(|memory, _| memory.settle(at..at + len));
    }
}

/// Gets the line of a word for a read-modify-write, which the caller then makes.
#[inline]
pub(crate) fn rmw(at: usize, location: Place) {
    let Some(handle) = begin(location) else { return };
    if handle.is_shuffled() {
        trace::note(handle, "changes", at);
        return handle.drain();
    }
    let line = handle.memory(|memory, me| {
        let line = memory.lines.number(at);
        memory.begin_rmw(me, line);
        line
    });
    handle.drain();
    handle.memory(|memory, me| memory.fetch_for_rmw(me, line));
    // Until the line is there, the others go on.
    handle.point();
    handle.memory(|memory, me| memory.end_rmw(me, line));
}

/// Waits until the core's stores are visible.
pub(crate) fn fence(location: Place) {
    if let Some(handle) = begin(location) {
        full_fence(handle);
    }
}

fn full_fence(handle: Handle) {
    handle.memory(|memory, me| memory.cores[me].counts.fences += 1);
    handle.drain();
    handle.with(|running| running.pay(running.memory.costs.fence));
}

/// Reads plain memory.
#[inline]
pub(crate) fn read(at: usize, len: usize, location: Place) {
    let Some(handle) = begin(location) else { return };
    if handle.is_shuffled() {
        return;
    }
    handle.memory(|memory, me| {
        for at in lines(at, len) {
            let line = memory.lines.number(at);
            memory.load(me, line, Use::Data);
        }
    });
}

/// Writes plain memory.
#[inline]
pub(crate) fn write(at: usize, len: usize, location: Place) {
    let Some(handle) = begin(location) else { return };
    if handle.is_shuffled() {
        return;
    }
    lines(at, len).for_each(|at| store_line(handle, at, None));
}

/// Returns an address in each line of a range.
fn lines(at: usize, len: usize) -> impl Iterator<Item = usize> {
    let end = at.saturating_add(len);
    let first = if len == 0 { end } else { at / LINE * LINE };
    (first..end).step_by(LINE)
}

/// Asks for a line that the core will change.
pub(crate) fn prefetch_for_store(at: usize, location: Place) {
    let Some(handle) = begin(location) else { return };
    if handle.is_shuffled() {
        return;
    }
    handle.memory(|memory, me| {
        let line = memory.lines.number(at);
        memory.prefetch(me, line);
    });
}

/// Makes the stores of all cores visible, by an interrupt of each.
pub(crate) fn membarrier(location: Place) {
    let Some(handle) = begin(location) else { return };
    handle.memory(|memory, me| memory.cores[me].counts.membarriers += 1);
    if handle.is_shuffled() {
        return handle.memory(|memory, _| memory.commit_everywhere());
    }
    full_fence(handle);
    let asked: Vec<u64> = handle.with(|running| {
        running.pay(running.memory.costs.membarrier);
        let cores = 0..running.places.len();
        for core in cores.clone().filter(|core| *core != running.current) {
            if let crate::running::State::Runnable = running.places[core].state {
                running.memory.cores[core].clock += running.memory.costs.interrupt;
            }
        }
        cores.map(|core| running.memory.buffered(core)).collect()
    });
    handle.point();
    for (core, &stores) in asked.iter().enumerate() {
        // The other core's buffer drains in its interrupt, which the caller waits for.
        while let Some(done) = handle.memory(|memory, _| memory.waits_before(core, stores)) {
            handle.memory(|memory, me| {
                memory.cores[me].clock = memory.cores[me].clock.max(done);
            });
            handle.point();
        }
    }
}

/// Lets the core spin once. Returns `false` outside of a simulation.
#[inline]
pub(crate) fn pause(location: Place) -> bool {
    let Some(handle) = Handle::current() else { return false };
    handle.memory(|memory, me| {
        memory.cores[me].location = location;
        memory.pause(me);
    });
    handle.with(Running::spin);
    handle.spin_point();
    true
}

/// Lets the core yield. Returns `false` outside of a simulation.
pub(crate) fn yield_now(location: Place) -> bool {
    let Some(handle) = begin(location) else { return false };
    handle.drain();
    handle.memory(|memory, me| memory.yielded(me));
    handle.with(Running::spin);
    handle.spin_point();
    true
}

/// Reads the clock, in virtual picoseconds. Returns `None` outside of a simulation.
pub(crate) fn read_clock(location: Place) -> Option<u64> {
    // The turn matters only for a loop that ends by the clock, and so for the run's limit.
    let handle = begin(location)?;
    Some(handle.with(|running| {
        running.pay(running.memory.costs.clock);
        running.clock()
    }))
}

/// Returns the core's clock, at no cost.
pub(crate) fn clock() -> Option<u64> {
    Some(Handle::current()?.with(|running| running.clock()))
}

/// Returns the cost of a spin hint.
pub(crate) fn pause_cost() -> Option<u64> {
    Some(Handle::current()?.memory(|memory, _| memory.costs.pause))
}

/// Lets private work take its time.
pub(crate) fn work(time: u64, location: Place) {
    if let Some(handle) = begin(location) {
        handle.with(|running| running.pay(time));
    }
}

/// Forgets all counts.
pub(crate) fn begin_measuring() {
    let Some(handle) = Handle::current() else { return };
    handle.with(|running| {
        running.memory.cores.iter_mut().for_each(|core| core.counts = Default::default());
        running.threads.iter_mut().for_each(|thread| thread.counts = Default::default());
        running.memory.lines.forget_counts();
        running.began_at = running.clock();
        running.measured = None;
    });
}

/// Keeps all counts as they are now.
pub(crate) fn end_measuring() {
    let Some(handle) = Handle::current() else { return };
    handle.with(|running| running.measured = Some(running.report(running.clock())));
}

/// Names the lines of a range.
pub(crate) fn label(at: usize, len: usize, name: &str) {
    if let Some(handle) = Handle::current() {
        handle.memory(|memory, _| memory.lines.add_label(at, len, name));
    }
}
