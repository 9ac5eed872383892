//! Sleeping until somebody made progress, with no wake-up lost.
//!
//! A bell belongs to those who wait for the same thing: the producers, or the stages behind the same stages. Whoever makes the
//! progress rings it. While nobody has slept for a while and the system can bar, the bell is *quiet*: ringing it is one load, and the fence that a ringer
//! saves is made up for by the next sleeper, in every thread at once. See ARCHITECTURE.md ("Quiet bells").
//!
//! Invariants
//! - I1: a sleeper announces itself, fences, and looks again before it sleeps; a ringer stores its progress, fences, and reads the
//!   announcement. One of the two sees the other (`SYNC[announced]`), so a sleeper never sleeps through progress.
//! - I2: announcing, looking and falling asleep happen under the bell's lock, and a ringer takes that lock before it notifies, so the
//!   notification cannot fall between the look and the sleep.
//! - I3: no user code runs under the lock (a task's waker is copied before and woken after), and nobody rings a bell while holding one's lock (a look only looks; the one lock it may take
//!   guards the failure, and whoever holds that waits for nobody), so nobody waits in a circle.
//! - I4: a ringer that reads `QUIET` does not fence. Whoever announces itself at a quiet bell has every thread pass a full barrier before it looks, still under
//!   the lock: a ringer's barrier came either before its read, and then it does not read `QUIET`, or after its progress, and then the look sees that. Only a
//!   swap from `FENCED`, with nobody announced, makes a bell quiet again; so a sleeper that does not find it quiet may rely on the ringers' fences.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::sync::{AtomicU32, Condvar, Line, Mutex, Relaxed, SeqCst, Statistic, compiler_fence, fence, lock, twin, whole};
use crate::system;

/// Nobody sleeps, and ringers do not fence.
const QUIET: u32 = 0;
/// Ringers fence.
const FENCED: u32 = 1;
/// One sleeper, or one about to sleep; a thread or a task.
const SLEEPER: u32 = 2;

/// After so many fences for nobody a bell may fall quiet: by then they have cost more than the barrier that it takes to wake it.
const CALM: u64 = 512;
/// The barriers of one bell take no more than this fraction of the time, counting as much again for the threads that they interrupt.
const BARRIER_SHARE: u64 = 128;
const BARRIER_PAUSE: Duration = Duration::from_millis(1);

struct Tasks {
    /// Under numbers of their own. It grows when more tasks sleep at once than ever before.
    asleep: Vec<(u64, Waker)>,
    /// Empty, with room for as many as ever slept: so that waking allocates nothing the next time.
    spare: Vec<(u64, Waker)>,
}

/// What ringers look at after every release. Alone on its line.
struct Notice {
    /// [`QUIET`], or [`FENCED`] and how many sleep.
    word: AtomicU32,
    /// How often it was rung with fences for nobody.
    calm: Statistic,
    /// When it may fall quiet again: nanoseconds since the bell was made.
    rests_until: Statistic,
    /// When somebody was woken last.
    rung: Statistic,
}

pub(crate) struct Bell {
    notice: Line<Notice>,
    /// Whether it may ever be quiet: whether the system can bar. Settled when the bell is made.
    may_rest: bool,
    born: Instant,
    /// Tasks that sleep here.
    gate: Mutex<Tasks>,
    condvar: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell::resting(system::can_bar())
    }

    /// `may_rest`: whether it falls quiet when nobody sleeps.
    pub(crate) fn resting(may_rest: bool) -> Bell {
        let notice =
            Notice { word: AtomicU32::new(FENCED), calm: Statistic::new(0), rests_until: Statistic::new(0), rung: Statistic::new(0) };
        Bell {
            notice: Line(notice),
            may_rest,
            born: Instant::now(),
            gate: Mutex::new(Tasks { asleep: Vec::new(), spare: Vec::new() }),
            condvar: Condvar::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sleeps until rung, unless `ready` already holds. May return early; at the latest after `limit`. How long ago it was rung, if that ended the sleep.
    pub(crate) fn sleep(&self, limit: Option<Duration>, ready: &mut dyn FnMut() -> bool) -> Option<Duration> {
        let guard = lock(&self.gate);
        let ordered = self.announce();
        twin!("sleeper-unfenced": fence(SeqCst) => ()); // SYNC[announced]: sleeper's side, announce before look (I1)
        let mut woken = None;
        if !twin!("sleeper-blind": ready() => false) && ordered {
            let since = self.rung_at();
            drop(match limit {
                None => whole(self.condvar.wait(guard)),
                Some(limit) => whole(self.condvar.wait_timeout(guard, limit)).0,
            });
            let rung = self.rung_at();
            woken = (rung != since).then(|| Duration::from_nanos(self.now().saturating_sub(rung)));
        }
        self.withdraw(1);
        woken
    }

    fn rung_at(&self) -> u64 {
        self.notice.0.rung.load(Relaxed)
    }

    /// Says that one more sleeps. Under the lock (I4). `false`: a ringer may not see it yet, and what it rings may not be seen; so do not sleep.
    fn announce(&self) -> bool {
        let notice = &self.notice.0;
        if notice.word.fetch_add(SLEEPER, Relaxed) != QUIET {
            return true;
        }
        let began = self.now();
        let barred = system::bar_all(); // SYNC[announced]: sleeper's side at a quiet bell (I4)
        let now = self.now();
        let pause = ((now - began) * 2 * BARRIER_SHARE).max(BARRIER_PAUSE.as_nanos() as u64);
        notice.rests_until.store(if barred { now.saturating_add(pause) } else { u64::MAX }, Relaxed);
        notice.word.fetch_or(FENCED, Relaxed);
        if !barred {
            // It was granted when the bell was made. Nothing orders the ringers now, but what they have stored reaches everybody in less time
            // than this; and from now on they fence.
            std::thread::sleep(BARRIER_PAUSE);
        }
        barred
    }

    /// So many sleep no longer.
    fn withdraw(&self, sleepers: usize) {
        self.notice.0.word.fetch_sub(SLEEPER * sleepers as u32, Relaxed);
    }

    /// Rings with a fence made: wakes whoever sleeps; if nobody has for long, ringers need not fence any more.
    #[inline]
    fn ring_fenced(&self) {
        match self.notice.0.word.load(Relaxed) {
            QUIET => {}
            FENCED if self.may_rest => self.calm_down(),
            FENCED => {}
            _ => self.wake(),
        }
    }

    /// Several ringers may count each other's rings away; then it takes a little longer.
    fn calm_down(&self) {
        let Notice { word, calm, rests_until, .. } = &self.notice.0;
        let fences = calm.load(Relaxed) + 1;
        calm.store(fences % CALM, Relaxed);
        if fences == CALM && self.now() >= rests_until.load(Relaxed) {
            let _ = word.compare_exchange(FENCED, QUIET, Relaxed, Relaxed); // unless somebody sleeps meanwhile (I4)
        }
    }

    #[cold]
    fn wake(&self) {
        self.notice.0.calm.store(0, Relaxed);
        self.notice.0.rung.store(self.now().max(1), Relaxed);
        let take = || {
            let Tasks { asleep, spare } = &mut *lock(&self.gate);
            if asleep.is_empty() { Vec::new() } else { std::mem::replace(asleep, std::mem::take(spare)) }
        };
        let mut tasks = twin!("ringer-unlocked": take() => Vec::new()); // I2
        self.withdraw(tasks.len());
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
        let mut ordered = true;
        let replaced = match tasks_asleep.iter_mut().find(|(other, _)| *other == number) {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                tasks_asleep.push((number, waker));
                ordered = self.announce();
                None
            }
        };
        twin!("task-unfenced": fence(SeqCst) => ()); // SYNC[announced]: a task's side, announce before look (I1)
        // A task that cannot rely on being woken looks again at once.
        let ready = twin!("task-blind": ready() => false) || !ordered;
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
        self.withdraw(1);
        Some(tasks.swap_remove(at).1)
    }
}

/// Rings bells after progress was stored. Where all are quiet, it is a load for each.
#[inline]
pub(crate) fn ring<'b>(bells: impl Iterator<Item = &'b Bell> + Clone) {
    compiler_fence(SeqCst); // SYNC[announced]: ringer's side at a quiet bell, progress before word; the sleeper bars (I4)
    // The model checker knows no barriers in other threads, so nothing is quiet there.
    if cfg!(slipring_loom) || bells.clone().any(|bell| bell.notice.0.word.load(Relaxed) != QUIET) {
        ring_fenced(bells);
    }
}

#[inline(never)]
fn ring_fenced<'b>(bells: impl Iterator<Item = &'b Bell>) {
    // Once, however many bells are rung.
    twin!("ringer-unfenced": fence(SeqCst) => ()); // SYNC[announced]: ringer's side, progress before flag (I1)
    bells.for_each(Bell::ring_fenced);
}
