//! Queues of several producers and consumers: Vyukov's bounded queue, and a lock with two
//! conditions.
//!
//! - I1: A thread has a cell of Vyukov's queue for itself from the compare-and-swap by which it
//!   took the cell's position until it stores the cell's next turn.
//! - I2: All words of the locked queue are read and written under its lock. They are atomics so
//!   that a simulation counts their accesses.

use peers_unchanged::{Host, Spec, Threads};

use super::super::sync::{AtomicU64, Condvar, Mutex, Ordering::*};
use super::parts::{Padded, Queue, Slots, queue_threads};

/// A slot with its turn: the position of the producer that may write it, or plus one, of the
/// consumer that may read it.
struct Cell {
    turn: AtomicU64,
    event: AtomicU64,
}

/// Dmitry Vyukov's bounded queue of several producers and consumers (1024cores.net).
struct Vyukov {
    cells: Box<[Cell]>,
    tail: Padded<AtomicU64>,
    head: Padded<AtomicU64>,
}

impl Vyukov {
    /// Takes the next position of `end` whose cell is at its turn, which is `ahead` of the
    /// position. Returns `None` if the cell's turn has not come.
    fn take(&self, end: &AtomicU64, ahead: u64) -> Option<(&Cell, u64)> {
        let mut at = end.load(Relaxed);
        loop {
            let cell = &self.cells[at as usize & (self.cells.len() - 1)];
            let turn = cell.turn.load(Acquire);
            if turn < at + ahead {
                return None;
            }
            if turn > at + ahead {
                at = end.load(Relaxed);
                continue;
            }
            match end.compare_exchange_weak(at, at + 1, Relaxed, Relaxed) {
                Ok(_) => return Some((cell, at)),
                Err(other) => at = other,
            }
        }
    }
}

impl Queue for Vyukov {
    fn push(&self, event: u64) -> bool {
        let Some((cell, at)) = self.take(&self.tail.0, 0) else { return false };
        cell.event.store(event, Relaxed);
        cell.turn.store(at + 1, Release);
        true
    }
    fn pop(&self) -> Option<u64> {
        let (cell, at) = self.take(&self.head.0, 1)?;
        let event = cell.event.load(Relaxed);
        cell.turn.store(at + self.cells.len() as u64, Release);
        Some(event)
    }
}

/// Returns the threads of Vyukov's queue.
pub fn vyukov(spec: Spec, host: Host) -> Option<Threads> {
    let cell = |turn| Cell { turn: AtomicU64::new(turn), event: AtomicU64::new(0) };
    let word = || Padded(AtomicU64::new(0));
    let cells = (0..spec.capacity as u64).map(cell).collect();
    queue_threads(spec, host, Vyukov { cells, tail: word(), head: word() })
}

/// A queue under a lock, whose threads sleep until there is room or an event, as Java's
/// `ArrayBlockingQueue`.
struct Locked {
    lock: Mutex<()>,
    not_full: Condvar,
    not_empty: Condvar,
    head: AtomicU64,
    tail: AtomicU64,
    /// Numbers of threads that sleep, so that a condition is not signalled in vain.
    want_room: AtomicU64,
    want_event: AtomicU64,
    slots: Slots,
}

/// Changes a word under the lock (I2).
fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Queue for Locked {
    fn push(&self, event: u64) -> bool {
        let mut guard = self.lock.lock().expect("no thread panics under the lock");
        while self.tail.load(Relaxed) - self.head.load(Relaxed) == self.slots.capacity() {
            add(&self.want_room, 1);
            guard = self.not_full.wait(guard).expect("no thread panics under the lock");
            add(&self.want_room, u64::MAX);
        }
        self.slots.write(self.tail.load(Relaxed), event);
        add(&self.tail, 1);
        if self.want_event.load(Relaxed) > 0 {
            self.not_empty.notify_one();
        }
        drop(guard);
        true
    }
    fn pop(&self) -> Option<u64> {
        let mut guard = self.lock.lock().expect("no thread panics under the lock");
        while self.tail.load(Relaxed) == self.head.load(Relaxed) {
            add(&self.want_event, 1);
            guard = self.not_empty.wait(guard).expect("no thread panics under the lock");
            add(&self.want_event, u64::MAX);
        }
        let event = self.slots.read(self.head.load(Relaxed));
        add(&self.head, 1);
        if self.want_room.load(Relaxed) > 0 {
            self.not_full.notify_one();
        }
        drop(guard);
        Some(event)
    }
}

/// Returns the threads of a queue under a lock.
pub fn lock(spec: Spec, host: Host) -> Option<Threads> {
    let word = || AtomicU64::new(0);
    let queue = Locked {
        lock: Mutex::new(()),
        not_full: Condvar::new(),
        not_empty: Condvar::new(),
        head: word(),
        tail: word(),
        want_room: word(),
        want_event: word(),
        slots: Slots::new(spec.capacity),
    };
    queue_threads(spec, host, queue)
}
