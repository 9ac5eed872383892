//! Sleeping until somebody made progress, with no wake-up lost.
//!
//! A bell belongs to those who wait for the same thing: the producers, or the stages behind the same stages. Whoever makes the
//! progress rings it.
//!
//! Invariants
//! - I1: a sleeper announces itself, fences, and looks again before it sleeps; a ringer stores its progress, fences, and reads the
//!   announcement. One of the two sees the other (`SYNC[announced]`), so a sleeper never sleeps through progress.
//! - I2: announcing, looking and falling asleep happen under the bell's lock, and a ringer takes that lock before it notifies, so the
//!   notification cannot fall between the look and the sleep.
//! - I3: no user code runs under the lock (a task's waker is copied before and woken after), and nobody rings a bell while holding one's lock (a look only looks; the one lock it may take
//!   guards the failure, and whoever holds that waits for nobody), so nobody waits in a circle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::Duration;

use crate::sync::{AtomicU32, Condvar, Line, Mutex, Relaxed, SeqCst, fence, lock, twin, whole};

struct Tasks {
    /// Under numbers of their own. It grows when more tasks sleep at once than ever before.
    asleep: Vec<(u64, Waker)>,
    /// Empty, with room for as many as ever slept: so that waking allocates nothing the next time.
    spare: Vec<(u64, Waker)>,
}

pub(crate) struct Bell {
    /// How many sleep or are about to, threads and tasks. Alone on its line: ringers read it after every release.
    sleepers: Line<AtomicU32>,
    /// Tasks that sleep here.
    gate: Mutex<Tasks>,
    condvar: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell {
            sleepers: Line(AtomicU32::new(0)),
            gate: Mutex::new(Tasks { asleep: Vec::new(), spare: Vec::new() }),
            condvar: Condvar::new(),
        }
    }

    /// Sleeps until rung, unless `ready` already holds. May return early; at the latest after `limit`.
    pub(crate) fn sleep(&self, limit: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let guard = lock(&self.gate);
        self.sleepers.0.fetch_add(1, Relaxed);
        twin!("sleeper-unfenced": fence(SeqCst) => ()); // SYNC[announced]: sleeper's side, announce before look (I1)
        if !twin!("sleeper-blind": ready() => false) {
            drop(match limit {
                None => whole(self.condvar.wait(guard)),
                Some(limit) => whole(self.condvar.wait_timeout(guard, limit)).0,
            });
        }
        self.sleepers.0.fetch_sub(1, Relaxed);
    }

    /// Wakes the sleepers, if there are any. The caller has stored its progress and then called [`fence_before_ring`].
    #[inline]
    pub(crate) fn ring_fenced(&self) {
        if self.sleepers.0.load(Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let take = || {
            let Tasks { asleep, spare } = &mut *lock(&self.gate);
            if asleep.is_empty() { Vec::new() } else { std::mem::replace(asleep, std::mem::take(spare)) }
        };
        let mut tasks = twin!("ringer-unlocked": take() => Vec::new()); // I2
        self.sleepers.0.fetch_sub(tasks.len() as u32, Relaxed);
        twin!("one-woken": self.condvar.notify_all() => self.condvar.notify_one());
        twin!("tasks-unwoken": () => tasks.clear());
        for (_, task) in tasks.drain(..) {
            // The executor's code. That it panics is no reason to leave the others asleep.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task.wake())) {
                crate::error::discard(panic);
            }
        }
        if tasks.capacity() != 0 {
            let spare = &mut lock(&self.gate).spare;
            if spare.capacity() < tasks.capacity() {
                *spare = tasks;
            }
        }
    }

    /// Has a task woken at the next ring, once, unless `ready` already holds; `true`: it does, and nobody will wake the task. `number` is the
    /// task's own, under which a waker of an earlier call is replaced.
    pub(crate) fn arm(&self, number: u64, waker: &Waker, ready: &mut dyn FnMut() -> bool) -> bool {
        let waker = waker.clone();
        let mut tasks = lock(&self.gate);
        let tasks_asleep = &mut tasks.asleep;
        let replaced = match tasks_asleep.iter_mut().find(|(other, _)| *other == number) {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                tasks_asleep.push((number, waker));
                self.sleepers.0.fetch_add(1, Relaxed);
                None
            }
        };
        twin!("task-unfenced": fence(SeqCst) => ()); // SYNC[announced]: a task's side, announce before look (I1)
        let ready = twin!("task-blind": ready() => false);
        let own = if ready { self.remove(&mut tasks.asleep, number) } else { None };
        drop(tasks);
        drop((replaced, own));
        ready
    }

    /// Lets a task sleep on, which waits for something else now or is gone.
    pub(crate) fn disarm(&self, number: u64) {
        let own = self.remove(&mut lock(&self.gate).asleep, number);
        // A task that is let go is the user's, and this may be called while unwinding.
        crate::error::let_go(own);
    }

    fn remove(&self, tasks: &mut Vec<(u64, Waker)>, number: u64) -> Option<Waker> {
        let at = tasks.iter().position(|(other, _)| *other == number)?;
        self.sleepers.0.fetch_sub(1, Relaxed);
        Some(tasks.swap_remove(at).1)
    }
}

/// Orders the progress stored before against the announcements read after: once, however many bells are rung.
#[inline]
pub(crate) fn fence_before_ring() {
    twin!("ringer-unfenced": fence(SeqCst) => ()); // SYNC[announced]: ringer's side, progress before flag (I1)
}
