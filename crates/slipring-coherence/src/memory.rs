//! The cost of accesses: store buffers, loads that run ahead, transfers.
//!
//! - I1: Stores of a core become visible in their order (total store order): only the oldest
//!   waiting store of a core is written, and its `done` is at least that of the stores before it.
//! - I2: Stores of all cores become visible in the order of their `done`, and before any access at
//!   a later virtual time: [`Memory::commit`] runs before each access.
//! - I3: A waiting store's address can be written until the run ends: the global allocator is
//!   [`Lines`](crate::Lines), which frees nothing while a simulation runs, and a store to a virtual
//!   thread's stack does not wait.
//! - I4: Nothing here switches to another virtual thread.

mod by_chance;

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use crate::costs::Costs;
use crate::counts::Counts;
use crate::lines::{Line, LineTable, NONE, Number};
use crate::machine::Machine;

/// The type of a word, as far as a late store needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    One,
    Two,
    Four,
    Eight,
    Word,
    Pointer,
}

impl Width {
    #[inline]
    fn bytes(self) -> usize {
        match self {
            Width::One => 1,
            Width::Two => 2,
            Width::Four => 4,
            Width::Eight => 8,
            Width::Word | Width::Pointer => size_of::<usize>(),
        }
    }
}

/// The purpose of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Control flow depends on it: in a loop that spins, the core waits for the line.
    Control,
    /// The core runs ahead of it.
    Data,
}

/// The word of a load in the core's own store buffer.
pub(crate) enum Own {
    Nothing,
    Value(u64),
    /// A store to a part of the word: the load has to wait until it is visible.
    Part,
}

/// The value of a waiting store.
#[derive(Clone, Copy)]
struct Value {
    at: usize,
    width: Width,
    bits: u64,
}

/// A store that waits for its line. Without a value, only its time counts.
#[derive(Clone, Copy)]
struct Waiting {
    /// When it becomes visible.
    done: u64,
    /// When the line arrives that was asked for.
    arrives: u64,
    line: Number,
    value: Option<Value>,
}

/// A core's clock, buffers and counts.
pub(crate) struct Core {
    /// Virtual time, in picoseconds.
    pub(crate) clock: u64,
    pub(crate) counts: Counts,
    /// Source line of the last access.
    pub(crate) location: &'static Location<'static>,
    buffer: VecDeque<Waiting>,
    /// Number of stores that ever entered the buffer.
    buffered: u64,
    /// When the last of the outstanding loads is done.
    loads_done: u64,
    /// Outstanding loads in program order: when each is done, and the number of the access.
    loads: VecDeque<(u64, u64)>,
    accesses: u64,
    /// Whether the core has just spun: the next load ends or continues a loop, and is not
    /// predicted.
    spun: bool,
    /// A bit for each core of the same socket.
    neighbours: u64,
}

/// The cores and the lines between them.
pub(crate) struct Memory {
    pub(crate) costs: Costs,
    pub(crate) cores: Vec<Core>,
    pub(crate) lines: LineTable,
    /// The virtual time from which on another core comes first.
    pub(crate) turn_ends: u64,
    /// Number of accesses until the run's limit.
    pub(crate) accesses_left: u64,
    /// When the next store of any core becomes visible.
    next_commit: u64,
    /// A bit for each core with waiting stores.
    buffering: u64,
    jitter: u64,
    random: u64,
    /// Memory of the virtual threads' stacks.
    stacks: Vec<Range<usize>>,
}

/// Returns the cores whose bits are set, the lowest first.
pub(crate) fn cores(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lowest
    })
}

impl Memory {
    #[track_caller]
    pub(crate) fn new(machine: &Machine, sockets: &[u8], trace: bool, accesses: u64) -> Memory {
        let same = |socket| {
            let cores = sockets.iter().enumerate().filter(|(_, of)| **of == socket);
            cores.fold(0, |all, (core, _)| all | 1 << core)
        };
        let core = |socket: &u8| Core {
            clock: 0,
            counts: Counts::default(),
            location: Location::caller(),
            buffer: VecDeque::new(),
            buffered: 0,
            loads_done: 0,
            loads: VecDeque::new(),
            accesses: 0,
            spun: false,
            neighbours: same(*socket),
        };
        Memory {
            costs: machine.costs.clone(),
            cores: sockets.iter().map(core).collect(),
            lines: LineTable::new(trace),
            turn_ends: 0,
            accesses_left: accesses,
            next_commit: u64::MAX,
            buffering: 0,
            jitter: machine.jitter,
            // Not zero, which this generator would keep.
            random: machine.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            stacks: Vec::new(),
        }
    }

    /// Notes the memory of a virtual thread's stack (I3).
    pub(crate) fn add_stack(&mut self, stack: Range<usize>) {
        self.stacks.push(stack);
    }

    #[inline]
    fn count(&mut self, core: usize, line: Number, count: impl Fn(&mut Counts)) {
        count(&mut self.cores[core].counts);
        if let Some(counts) = self.lines.counts(line) {
            count(counts);
        }
    }

    /// Makes the stores visible that are due at the clock of `core`.
    #[inline]
    pub(crate) fn commit_due(&mut self, core: usize) {
        let now = self.cores[core].clock;
        if self.next_commit <= now {
            self.commit(now);
        }
    }

    /// Makes all stores visible, in their order. The run is over.
    pub(crate) fn commit_all(&mut self) {
        self.commit(u64::MAX - 1);
    }

    #[inline(never)]
    fn commit(&mut self, to: u64) {
        loop {
            let (mut first, mut at) = (usize::MAX, u64::MAX);
            for number in cores(self.buffering) {
                let done = self.cores[number].buffer[0].done;
                if done < at {
                    (first, at) = (number, done);
                }
            }
            self.next_commit = at;
            if at > to {
                return;
            }
            let oldest = self.cores[first].buffer[0];
            let line = self.lines.get(oldest.line);
            let keeps = usize::from(line.owner) == first || line.still_owned_by(first, at);
            if oldest.arrives != at && !keeps {
                // Another core took the line before the store was the oldest: ask again.
                let done = self.own_at(first, oldest.line, at);
                if done > at {
                    self.postpone(first, done);
                    continue;
                }
            }
            let buffer = &mut self.cores[first].buffer;
            buffer.pop_front();
            if buffer.is_empty() {
                self.buffering &= !(1 << first);
            }
            if let Some(value) = oldest.value {
                value.write();
            }
        }
    }

    /// The oldest store of `core` gets its line at `done`; those behind it follow (I1).
    fn postpone(&mut self, core: usize, done: u64) {
        let mut last = done;
        self.cores[core].buffer[0].arrives = done;
        for waiting in &mut self.cores[core].buffer {
            waiting.done = waiting.done.max(last);
            last = waiting.done;
        }
    }

    /// Returns the latency of a transfer, and whether it crosses sockets; `None`: no core has the
    /// line.
    fn transfer(&self, me: usize, line: &Line, change: bool) -> Option<(u64, bool)> {
        let costs = &self.costs;
        let near = self.cores[me].neighbours;
        let others = line.sharers & !(1 << me);
        if line.sharers == 0 {
            return None;
        }
        let dirty = |cross| if cross { costs.dirty_cross } else { costs.dirty_same };
        if line.owner != NONE {
            let cross = near >> line.owner & 1 == 0;
            return Some((dirty(cross), cross));
        }
        if change {
            let cross = others & !near != 0;
            // The only sharer asks no other core.
            return Some((if others == 0 { 0 } else { dirty(cross) }, cross));
        }
        let cross = others & near == 0;
        Some((if cross { costs.clean_cross } else { costs.clean_same }, cross))
    }

    pub(crate) fn load(&mut self, me: usize, number: Number, used: Use) {
        self.count(me, number, |counts| counts.loads += 1);
        self.access(me, self.costs.load);
        let control = used == Use::Control;
        let spun = control && std::mem::take(&mut self.cores[me].spun);
        let waits = control && (spun || !self.costs.speculates);
        let clock = self.cores[me].clock;
        let line = *self.lines.get(number);
        if line.is_shared_by(me) {
            if usize::from(line.to) == me && line.arrives > clock {
                self.outstanding(me, line.arrives, waits);
            }
            return;
        }
        if line.still_shared_by(me, clock) {
            return;
        }
        let transfer = self.transfer(me, &line, false);
        self.count(me, number, |counts| match transfer {
            None => counts.cold += 1,
            Some((_, false)) => counts.fetched_same += 1,
            Some((_, true)) => counts.fetched_cross += 1,
        });
        let latency = self.jittered(transfer.map_or(self.costs.memory, |(latency, _)| latency));
        let begin = clock.max(line.free_at);
        let done = begin + latency;
        let occupancy = self.costs.occupancy;
        let to = self.lines.get_mut(number);
        if line.owner != NONE {
            to.earlier_sharers = line.sharers;
            to.earlier_owner = line.owner;
            to.lost = done - latency / 2;
            to.free_at = done;
        } else {
            to.free_at = begin + occupancy;
        }
        // A line that no core had is exclusive.
        to.owner = if line.sharers == 0 { me as u8 } else { NONE };
        to.sharers |= 1 << me;
        (to.to, to.arrives) = (me as u8, done);
        self.outstanding(me, done, waits);
    }

    /// Notes a load that is done at `done`. The core runs ahead of it as far as its number of
    /// outstanding loads allows, unless it `waits`.
    fn outstanding(&mut self, me: usize, done: u64, waits: bool) {
        let core = &mut self.cores[me];
        core.loads_done = core.loads_done.max(done);
        core.loads.push_back((done, core.accesses));
        let mut to = core.clock;
        if waits {
            to = to.max(core.loads_done);
        }
        while core.loads.front().is_some_and(|&(done, _)| done <= to) {
            core.loads.pop_front();
        }
        if core.loads.len() as u64 > self.costs.misses
            && let Some((done, _)) = core.loads.pop_front()
        {
            to = to.max(done);
        }
        core.counts.waited.lines += to - core.clock;
        core.clock = to;
    }

    /// Lets an access take its time. A core retires in order, so it waits for a load that is a
    /// whole window behind.
    #[inline]
    fn access(&mut self, me: usize, time: u64) {
        self.accesses_left = self.accesses_left.saturating_sub(1);
        if self.accesses_left == 0 {
            self.turn_ends = 0;
        }
        let core = &mut self.cores[me];
        core.accesses += 1;
        core.clock += time;
        if let Some(&(done, access)) = core.loads.front()
            && core.accesses - access > self.costs.window
        {
            core.loads.pop_front();
            core.counts.waited.lines += done.saturating_sub(core.clock);
            core.clock = core.clock.max(done);
        }
    }

    /// Returns a latency that varies by chance.
    fn jittered(&mut self, latency: u64) -> u64 {
        if self.jitter == 0 {
            return latency;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let span = latency * self.jitter / 100;
        latency - span + (self.random >> 11) % (2 * span + 1)
    }

    /// Takes the ownership of a line at `clock`. Returns when the line is there.
    fn own_at(&mut self, me: usize, number: Number, clock: u64) -> u64 {
        let line = *self.lines.get(number);
        if usize::from(line.owner) == me {
            return if usize::from(line.to) == me { clock.max(line.arrives) } else { clock };
        }
        if line.still_owned_by(me, clock) {
            return clock;
        }
        let transfer = self.transfer(me, &line, true);
        self.count(me, number, |counts| match transfer {
            None => counts.cold += 1,
            Some((0, _)) => {}
            Some((_, false)) => counts.owned_same += 1,
            Some((_, true)) => counts.owned_cross += 1,
        });
        let latency = self.jittered(transfer.map_or(self.costs.memory, |(latency, _)| latency));
        let done = clock.max(line.free_at) + latency;
        *self.lines.get_mut(number) = Line {
            sharers: 1 << me,
            owner: me as u8,
            free_at: done,
            to: me as u8,
            arrives: done,
            earlier_sharers: line.sharers,
            earlier_owner: line.owner,
            lost: done - latency / 2,
        };
        done
    }

    /// Asks for a line that the core will change, and keeps it busy until it is there.
    pub(crate) fn prefetch(&mut self, me: usize, line: Number) {
        let there = self.own_at(me, line, self.cores[me].clock);
        let line = self.lines.get_mut(line);
        line.free_at = line.free_at.max(there);
    }

    /// Returns whether the store buffer has a free entry. If it has none, the clock goes on to when
    /// the oldest store is visible.
    pub(crate) fn has_room(&mut self, me: usize) -> bool {
        let core = &mut self.cores[me];
        if (core.buffer.len() as u64) < self.costs.buffer {
            return true;
        }
        let done = core.buffer[0].done;
        core.counts.waited.buffer += done.saturating_sub(core.clock);
        core.clock = core.clock.max(done);
        false
    }

    /// Counts a store, which enters the buffer later.
    pub(crate) fn begin_store(&mut self, me: usize, line: Number) {
        self.count(me, line, |counts| counts.stores += 1);
        self.access(me, self.costs.store);
    }

    /// Puts a store into the buffer, or makes it visible if it need not wait.
    pub(crate) fn store(&mut self, me: usize, line: Number, word: Option<(usize, Width, u64)>) {
        let arrives = self.own_at(me, line, self.cores[me].clock);
        let mut value = word.map(|(at, width, bits)| Value { at, width, bits });
        if let Some(of_stack) = value.take_if(|value| self.is_on_stack(value.at)) {
            // I3. I1 holds, since the stores before it become visible first: their lines take as
            // long as before, only their values are early.
            self.reveal(me);
            of_stack.write();
        }
        let core = &mut self.cores[me];
        // In order, and behind the loads before it.
        let earlier = core.buffer.back().map_or(0, |waiting| waiting.done);
        let done = arrives.max(earlier).max(core.loads_done);
        if done > core.clock || !core.buffer.is_empty() {
            core.buffer.push_back(Waiting { done, arrives, line, value });
            core.buffered += 1;
            self.buffering |= 1 << me;
            self.next_commit = self.next_commit.min(done);
        } else if let Some(value) = value {
            value.write();
        }
    }

    fn is_on_stack(&self, at: usize) -> bool {
        self.stacks.iter().any(|stack| stack.contains(&at))
    }

    /// Writes the values of all waiting stores of `core`, whose times stay.
    fn reveal(&mut self, core: usize) {
        for waiting in &mut self.cores[core].buffer {
            if let Some(value) = waiting.value.take() {
                value.write();
            }
        }
    }

    /// Makes the stores to a range visible, before an access that is not simulated.
    pub(crate) fn settle(&mut self, range: Range<usize>) {
        for core in 0..self.cores.len() {
            let within = |waiting: &Waiting| waiting.value.is_some_and(|v| v.overlaps(&range));
            if self.cores[core].buffer.iter().any(within) {
                self.reveal(core);
            }
        }
    }

    /// Returns the value of the youngest store to the word that waits in the core's own buffer.
    #[inline]
    pub(crate) fn own_store(&self, me: usize, at: usize, width: Width) -> Own {
        let range = at..at + width.bytes();
        let values = self.cores[me].buffer.iter().rev().filter_map(|waiting| waiting.value);
        for value in values {
            if value.overlaps(&range) {
                let same = value.at == at && value.width.bytes() == width.bytes();
                return if same { Own::Value(value.bits) } else { Own::Part };
            }
        }
        Own::Nothing
    }

    /// Counts a read-modify-write or a fence, for which the core first drains its buffer.
    pub(crate) fn begin_rmw(&mut self, me: usize, line: Number) {
        self.count(me, line, |counts| counts.rmws += 1);
    }

    /// Waits for the outstanding loads, which a drain includes.
    pub(crate) fn end_loads(&mut self, me: usize) {
        let core = &mut self.cores[me];
        core.loads.clear();
        self.wait_drained(me, self.cores[me].loads_done);
    }

    /// Lets the clock go on to when the youngest waiting store is visible. Returns `false` if no
    /// store waits.
    pub(crate) fn drain_step(&mut self, me: usize) -> bool {
        let Some(done) = self.cores[me].buffer.back().map(|waiting| waiting.done) else {
            return false;
        };
        self.wait_drained(me, done);
        true
    }

    fn wait_drained(&mut self, me: usize, to: u64) {
        let core = &mut self.cores[me];
        core.counts.waited.drain += to.saturating_sub(core.clock);
        core.clock = core.clock.max(to);
    }

    /// Gets the line of a read-modify-write, with an empty buffer, and waits for it.
    pub(crate) fn fetch_for_rmw(&mut self, me: usize, line: Number) {
        let there = self.own_at(me, line, self.cores[me].clock);
        self.access(me, 0);
        let core = &mut self.cores[me];
        core.counts.waited.lines += there.saturating_sub(core.clock);
        core.clock = core.clock.max(there);
        core.spun = false;
    }

    /// Lets a read-modify-write take its time, in which the line stays.
    pub(crate) fn end_rmw(&mut self, me: usize, line: Number) {
        self.cores[me].clock += self.costs.rmw;
        let clock = self.cores[me].clock;
        let line = self.lines.get_mut(line);
        line.free_at = line.free_at.max(clock);
    }

    /// Lets a spin hint take its time. The check before it failed, so its load is done.
    pub(crate) fn pause(&mut self, me: usize) {
        let core = &mut self.cores[me];
        core.counts.pauses += 1;
        core.clock = core.clock.max(core.loads_done) + self.costs.pause;
        core.spun = true;
    }

    /// Lets a yield take its time.
    pub(crate) fn yielded(&mut self, me: usize) {
        let core = &mut self.cores[me];
        core.counts.yields += 1;
        core.clock += self.costs.yields;
        core.spun = true;
    }

    /// Returns the number of stores that ever entered the buffer of `core`.
    pub(crate) fn buffered(&self, core: usize) -> u64 {
        self.cores[core].buffered
    }

    /// Returns when the store after the first `number` of `core` becomes visible, if one of these
    /// waits.
    pub(crate) fn waits_before(&self, core: usize, number: u64) -> Option<u64> {
        let core = &self.cores[core];
        let gone = core.buffered - core.buffer.len() as u64;
        let last = number.checked_sub(gone + 1)?;
        Some(core.buffer[usize::try_from(last).ok()?].done)
    }
}

impl Core {
    /// Returns the number of accesses since the start of the run.
    pub(crate) fn accesses(&self) -> u64 {
        self.accesses
    }
}

impl Value {
    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.at < range.end && range.start < self.at + self.width.bytes()
    }

    fn write(self) {
        use std::ptr::with_exposed_provenance_mut as place;
        use std::sync::atomic::Ordering::Release;
        let Value { at, width, bits } = self;
        // SAFETY: I3: the address was an atomic's of this width when the store was made, whose
        // provenance was exposed.
        unsafe {
            match width {
                Width::One => AtomicU8::from_ptr(place(at)).store(bits as u8, Release),
                Width::Two => AtomicU16::from_ptr(place(at)).store(bits as u16, Release),
                Width::Four => AtomicU32::from_ptr(place(at)).store(bits as u32, Release),
                Width::Eight => AtomicU64::from_ptr(place(at)).store(bits, Release),
                Width::Word => AtomicUsize::from_ptr(place(at)).store(bits as usize, Release),
                Width::Pointer => {
                    AtomicPtr::<u8>::from_ptr(place(at)).store(place(bits as usize), Release);
                }
            }
        }
    }
}
