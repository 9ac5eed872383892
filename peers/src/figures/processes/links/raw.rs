//! Hand-made lower bounds in a shared mapping. They protect nothing and cannot be closed.
//!
//! Invariants
//! - I1: the mapping has a first line and, behind it, as many slots as the ring's capacity. `open`
//!   has checked this. A slot may consist of zeros.
//! - I2: there is one writer. It writes a slot after the reader has released it and before it
//!   stamps the slot's run; the reader reads it between the stamp and the release.
//! - I3: all accesses to the second line of a futex's mapping have 32 bits.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use rustix::thread::futex;

use crate::figures::processes::ends::Link;
use crate::figures::processes::mapping::{Line, Mapping, create};
use crate::figures::processes::task::{RoleResult, Task};
use crate::work::{Check, Event};

fn path(task: &Task, name: &str) -> PathBuf {
    task.folder.join(format!("{name}.raw"))
}

/// A slot with its stamp and its event. The stamp is the end of the run of events that begins in
/// this slot.
#[repr(C)]
struct Slot<E>(AtomicU64, UnsafeCell<E>);

/// One end of a ring with a stamp in each slot.
pub struct RingEnd<E> {
    /// Mapping with the reader's position in its first line, and with the slots behind that line.
    mapping: Mapping,
    capacity: u64,
    /// Next position of this end.
    next: u64,
    /// First position that may not be free, as far as the writer knows.
    limit: u64,
    event: PhantomData<E>,
}

impl<E: Event> RingEnd<E> {
    fn open(task: &Task, name: &str) -> RoleResult<Self> {
        let capacity = task.work.ring() as u64;
        assert!(capacity.is_power_of_two());
        let mapping = Mapping::open(&path(task, name))?;
        assert!(mapping.len() * size_of::<Line>() >= bytes::<E>(capacity as usize));
        Ok(RingEnd { mapping, capacity, next: 0, limit: capacity, event: PhantomData })
    }
    #[inline(always)]
    fn slot(&self, seq: u64) -> &Slot<E> {
        let index = (seq & (self.capacity - 1)) as usize;
        // SAFETY: the index is below the capacity, and the first line aligns the slots (I1).
        unsafe { &*self.mapping.bytes_from(1).cast::<Slot<E>>().add(index) }
    }
    fn released(&self) -> &AtomicU64 {
        self.mapping[0].word()
    }
    #[inline(always)]
    fn fill(&mut self, first: u64, len: u64) {
        while self.next + len > self.limit {
            self.limit = self.released().load(Acquire) + self.capacity;
            if self.next + len > self.limit {
                spin_loop();
            }
        }
        for (seq, number) in (self.next..).zip(first..first + len) {
            // SAFETY: the reader has released the slot, and reads the event only after its stamp
            // (I2).
            unsafe { (*self.slot(seq).1.get()).fill(number) }
        }
    }
    /// Calls `f` with the available events, up to an eighth of the ring, and releases them. Returns
    /// their number.
    #[inline(always)]
    fn poll(&mut self, mut f: impl FnMut(&E)) -> u64 {
        let begin = self.next;
        while self.next - begin <= self.capacity / 8 {
            let slot = self.slot(self.next);
            // The stamp is the end of a run. A stamp of an older lap is not beyond `next`.
            let end = slot.0.load(Acquire);
            if end <= self.next {
                break;
            }
            for seq in self.next..end {
                // SAFETY: the writer has stamped the run that begins at the first of these slots,
                // and does not change its events before the release (I2).
                f(unsafe { &*self.slot(seq).1.get() });
            }
            self.next = end;
        }
        if self.next != begin {
            self.released().store(self.next, Release);
        }
        self.next - begin
    }
}

fn bytes<E>(capacity: usize) -> usize {
    size_of::<Line>() + capacity * size_of::<Slot<E>>()
}

/// A ring with stamps inside the slots.
pub struct Ring;

impl<E: Event> Link<E> for Ring {
    type Tx = RingEnd<E>;
    type Rx = RingEnd<E>;
    fn make(task: &Task, name: &str) -> RoleResult<()> {
        Ok(create(&path(task, name), bytes::<E>(task.work.ring()))?)
    }
    fn tx(task: &Task, name: &str) -> RoleResult<Self::Tx> {
        RingEnd::open(task, name)
    }
    fn rx(task: &Task, name: &str) -> RoleResult<Self::Rx> {
        RingEnd::open(task, name)
    }
    #[inline(always)]
    fn send(tx: &mut Self::Tx, number: u64) {
        Self::send_batch(tx, number, 1);
    }
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        tx.fill(first, len);
        tx.slot(tx.next).0.store(tx.next + len, Release);
        tx.next += len;
    }
    fn stream(rx: &mut Self::Rx, events: u64, check: &mut Check) {
        while check.seen() < events {
            if rx.poll(|event| check.see(event)) == 0 {
                spin_loop();
            }
        }
    }
    fn receive(rx: &mut Self::Rx) -> u64 {
        let mut number = 0;
        while rx.poll(|event| number = event.number()) == 0 {
            spin_loop();
        }
        number
    }
}

/// One word on a line of its own. The writer never waits for room, so this link serves round trips
/// only.
pub struct Word;

/// One end of a word: the mapping, and the value that this end has seen last.
pub struct WordEnd(Mapping, u64);

impl WordEnd {
    fn open(task: &Task, name: &str) -> RoleResult<WordEnd> {
        Ok(WordEnd(Mapping::open(&path(task, name))?, 0))
    }
}

impl Link<u64> for Word {
    type Tx = WordEnd;
    type Rx = WordEnd;
    fn make(task: &Task, name: &str) -> RoleResult<()> {
        Ok(create(&path(task, name), size_of::<Line>())?)
    }
    fn tx(task: &Task, name: &str) -> RoleResult<WordEnd> {
        WordEnd::open(task, name)
    }
    fn rx(task: &Task, name: &str) -> RoleResult<WordEnd> {
        WordEnd::open(task, name)
    }
    #[inline(always)]
    fn send(tx: &mut WordEnd, number: u64) {
        tx.0[0].word().store(number, Release);
    }
    fn stream(rx: &mut WordEnd, events: u64, check: &mut Check) {
        <Word as Link<u64>>::each(rx, events as usize, |number| check.see(&number));
    }
    #[inline(always)]
    fn receive(rx: &mut WordEnd) -> u64 {
        loop {
            let number = rx.0[0].word().load(Acquire);
            if number != rx.1 {
                rx.1 = number;
                return number;
            }
        }
    }
}

/// One word, and a futex on which the reader sleeps.
pub struct Futex;

/// One end of a word with a futex: the mapping, and the count of events at this end.
pub struct FutexEnd(Mapping, u32);

impl FutexEnd {
    fn open(task: &Task, name: &str) -> RoleResult<FutexEnd> {
        Ok(FutexEnd(Mapping::open(&path(task, name))?, 0))
    }
    /// Returns the word of the futex: the count of events sent.
    fn count(&self) -> &AtomicU32 {
        let word = self.0[1].word().as_ptr().cast::<u32>();
        // SAFETY: this is the first half of a word of the mapping, and all accesses to it have this
        // size (I3).
        unsafe { AtomicU32::from_ptr(word) }
    }
}

impl Link<u64> for Futex {
    type Tx = FutexEnd;
    type Rx = FutexEnd;
    fn make(task: &Task, name: &str) -> RoleResult<()> {
        Ok(create(&path(task, name), 2 * size_of::<Line>())?)
    }
    fn tx(task: &Task, name: &str) -> RoleResult<FutexEnd> {
        FutexEnd::open(task, name)
    }
    fn rx(task: &Task, name: &str) -> RoleResult<FutexEnd> {
        FutexEnd::open(task, name)
    }
    fn send(tx: &mut FutexEnd, number: u64) {
        tx.1 += 1;
        tx.0[0].word().store(number, Relaxed);
        tx.count().store(tx.1, Release);
        futex::wake(tx.count(), futex::Flags::empty(), 1).expect("a shared futex");
    }
    fn stream(rx: &mut FutexEnd, events: u64, check: &mut Check) {
        <Futex as Link<u64>>::each(rx, events as usize, |number| check.see(&number));
    }
    fn receive(rx: &mut FutexEnd) -> u64 {
        while rx.count().load(Acquire) == rx.1 {
            // The call may fail because of a signal or a changed word. In both cases the loop reads
            // the word again.
            let _ = futex::wait(rx.count(), futex::Flags::empty(), rx.1, None);
        }
        rx.1 += 1;
        rx.0[0].word().load(Relaxed)
    }
}
