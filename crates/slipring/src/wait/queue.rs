//! Sleeping until somebody made progress, with no wake-up lost.
//!
//! A bell belongs to those who wait for the same thing: the producers, or the stages behind the
//! same stages. Whoever makes the progress rings it. While nobody has slept for a while and the
//! system can bar, the bell is *quiet*: ringing it is one load, and the fence that a ringer saves
//! is made up for by the next sleeper, in every thread at once. See ARCHITECTURE.md ("Quiet
//! bells").
//!
//! Invariants
//! - I1: a sleeper announces itself, fences, and looks again before it sleeps; a ringer stores its
//!   progress, fences, and reads the announcement. One of the two sees the other
//!   (`SYNC[announced]`), so a sleeper never sleeps through progress.
//! - I2: announcing, looking and falling asleep happen under the bell's lock, and a ringer takes
//!   that lock before it notifies, so the notification cannot fall between the look and the sleep.
//! - I3: no user code runs under the lock (a task's waker is copied before and woken after), and
//!   nobody rings a bell while holding one's lock (a look only looks; the one lock it may take
//!   guards the failure, and whoever holds that waits for nobody), so nobody waits in a circle.
//! - I4: a ringer that reads `QUIET` does not fence. Whoever announces itself at a quiet bell has
//!   every thread pass a full barrier before it looks, still under the lock: a ringer's barrier
//!   came either before its read, and then it does not read `QUIET`, or after its progress, and
//!   then the look sees that. Only a swap from `FENCED`, with nobody announced, makes a bell quiet
//!   again; so a sleeper that does not find it quiet may rely on the ringers' fences.
//! - I5: bells are made with their ring's control, boxed, and neither move nor go before the ring
//!   does, which the handles keep alive.

use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(not(slipring_loom))]
use std::ptr::NonNull;
use std::task::Waker;
use std::time::Duration;

// By `super`, because `bell_model.rs` includes this file a second time, on a machine of its own.
use super::edge::announced;
use super::sync::{
    AtomicU32, Condvar, Instant, Line, Mutex, Relaxed, Statistic, lock, sleep, twin, whole,
};
use super::system;

/// Nobody sleeps, and ringers do not fence.
pub(super) const QUIET: u32 = 0;
/// Ringers fence.
pub(super) const FENCED: u32 = 1;
/// One sleeper, or one about to sleep; a thread or a task. The count does not wrap: 2^31 tasks
/// would be as many handles, and arming each of them passes over all that are armed.
pub(super) const SLEEPER: u32 = 2;

/// After so many fences for nobody a bell may fall quiet: by then they have cost more than the
/// barrier that it takes to wake it.
pub(super) const CALM: u64 = 512;
/// The barriers of one bell take no more than this fraction of the time, counting as much again for
/// the threads that they interrupt.
const BARRIER_SHARE: u64 = 128;
const BARRIER_PAUSE: Duration = Duration::from_millis(1);

#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Asleep {
    /// How many threads sleep, and how often all of them were woken.
    pub(super) threads: usize,
    pub(super) woken: u64,
    /// Tasks, under numbers of their own. It grows when more of them sleep at once than ever
    /// before.
    tasks: Vec<(u64, Waker)>,
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
    /// When it was rung first since somebody fell asleep; 0: it was not.
    notified_at: Statistic,
}

pub(crate) struct WaitQueue {
    notice: Line<Notice>,
    /// Whether it may ever be quiet: whether the system can bar. Settled when the bell is made.
    may_rest: bool,
    born: Instant,
    /// Who sleeps here.
    gate: Mutex<Asleep>,
    condvar: Condvar,
}

impl WaitQueue {
    pub(crate) fn new() -> WaitQueue {
        WaitQueue::resting(system::membarrier_available())
    }

    /// `may_rest`: whether it falls quiet when nobody sleeps.
    pub(super) fn resting(may_rest: bool) -> WaitQueue {
        let notice = Notice {
            word: AtomicU32::new(FENCED),
            calm: Statistic::new(0),
            rests_until: Statistic::new(0),
            notified_at: Statistic::new(0),
        };
        WaitQueue {
            notice: Line(notice),
            may_rest,
            born: Instant::now(),
            gate: Mutex::new(Asleep { threads: 0, woken: 0, tasks: Vec::new(), spare: Vec::new() }),
            condvar: Condvar::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sleeps until rung, unless `ready` already holds. May return early; at the latest after
    /// `limit`. How long ago it was rung, if that ended the sleep.
    pub(crate) fn sleep(
        &self,
        limit: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Option<Duration> {
        let (mut guard, ordered) = twin!("announced-unlocked": {
            let guard = lock(&self.gate);
            (guard, self.announce())
        } => {
            let ordered = self.announce();
            (lock(&self.gate), ordered)
        });
        announced::fence_sleeper(); // announce before look (I1)
        if !twin!("sleeper-blind": ready() => false) && ordered {
            self.notice.0.notified_at.store(0, Relaxed);
            guard.threads += 1;
            let before = guard.woken;
            guard = match limit {
                None => whole(self.condvar.wait(guard)),
                Some(limit) => whole(self.condvar.wait_timeout(guard, limit)).0,
            };
            if guard.woken != before {
                // Whoever woke it has withdrawn it.
                let notified_at = self.notice.0.notified_at.load(Relaxed);
                return (notified_at != 0)
                    .then(|| Duration::from_nanos(self.now().saturating_sub(notified_at)));
            }
            guard.threads -= 1;
        }
        self.withdraw(1);
        None
    }

    /// Says that one more sleeps. Under the lock (I4). `false`: a ringer may not see it yet, and
    /// what it rings may not be seen; so do not sleep.
    fn announce(&self) -> bool {
        let notice = &self.notice.0;
        if notice.word.fetch_add(SLEEPER, Relaxed) != QUIET {
            return true;
        }
        let began = self.now();
        let barred = announced::fence_all_threads(); // announce before look (I4)
        let now = self.now();
        let pause = now
            .saturating_sub(began)
            .saturating_mul(2 * BARRIER_SHARE)
            .max(BARRIER_PAUSE.as_nanos() as u64);
        notice
            .rests_until
            .store(if barred { now.saturating_add(pause) } else { u64::MAX }, Relaxed);
        notice.word.fetch_or(FENCED, Relaxed);
        if !barred {
            // It was granted when the bell was made. Nothing orders the ringers now, but what they
            // have stored reaches everybody in less time than this; and from now on they fence.
            sleep(BARRIER_PAUSE);
        }
        barred
    }

    /// So many sleep no longer.
    fn withdraw(&self, sleepers: usize) {
        self.notice.0.word.fetch_sub(SLEEPER * sleepers as u32, Relaxed);
    }

    /// Rings with a fence made: wakes whoever sleeps; if nobody has for long, ringers need not
    /// fence any more.
    #[inline]
    fn notify_fenced(&self) {
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
            // Fails if a sleeper has announced itself meanwhile (I4).
            twin!("quiet-by-store":
                { let _ = word.compare_exchange(FENCED, QUIET, Relaxed, Relaxed); } =>
                word.store(QUIET, Relaxed)
            );
        }
    }

    #[cold]
    fn wake(&self) {
        self.notice.0.calm.store(0, Relaxed);
        // What it takes to be woken counts from here. Later rings find nobody to wake.
        let _ = self.notice.0.notified_at.compare_exchange(0, self.now().max(1), Relaxed, Relaxed);
        // Whoever is taken here is withdrawn at once, so that nobody is woken twice: each time
        // would be a system call.
        let take = || {
            let Asleep { threads, woken, tasks, spare } = &mut *lock(&self.gate);
            self.withdraw(std::mem::take(threads));
            *woken += 1;
            if tasks.is_empty() {
                Vec::new()
            } else {
                std::mem::replace(tasks, std::mem::take(spare))
            }
        };
        let mut tasks = twin!("notifier-unlocked": take() => Vec::new()); // I2
        self.withdraw(tasks.len());
        twin!("one-woken": self.condvar.notify_all() => self.condvar.notify_one());
        twin!("tasks-unwoken": () => tasks.clear());
        for (_, task) in tasks.drain(..) {
            // The executor's code. That it panics is no reason to leave the others asleep.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task.wake())) {
                crate::base::panics::discard(panic);
            }
        }
        if tasks.capacity() != 0 {
            let spare = &mut lock(&self.gate).spare;
            if spare.capacity() < tasks.capacity() {
                *spare = tasks;
            }
        }
    }

    /// Has a task woken at the next ring, once, unless `ready` already holds; `true`: it does, and
    /// nobody will wake the task. `number` is the task's own, under which a waker of an earlier
    /// call is replaced.
    pub(crate) fn arm(&self, number: u64, waker: &Waker, ready: &mut dyn FnMut() -> bool) -> bool {
        let waker = waker.clone();
        let mut tasks = lock(&self.gate);
        let tasks_asleep = &mut tasks.tasks;
        let mut ordered = true;
        let replaced = match tasks_asleep.iter_mut().find(|(other, _)| *other == number) {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                tasks_asleep.push((number, waker));
                ordered = self.announce();
                None
            }
        };
        announced::fence_task(); // announce before look (I1)
        // A task that cannot rely on being woken looks again at once.
        let ready = twin!("task-blind": ready() => false) || !ordered;
        let own = if ready { self.remove(&mut tasks.tasks, number) } else { None };
        drop(tasks);
        // Both wakers are the user's. Panics of both at once would end the process.
        crate::base::panics::let_go(replaced);
        crate::base::panics::let_go(own);
        ready
    }

    /// Lets a task sleep on, which waits for something else now or is gone.
    pub(crate) fn disarm(&self, number: u64) {
        let own = self.remove(&mut lock(&self.gate).tasks, number);
        // A task that is let go is the user's, and this may be called while unwinding.
        crate::base::panics::let_go(own);
    }

    fn remove(&self, tasks: &mut Vec<(u64, Waker)>, number: u64) -> Option<Waker> {
        let at = tasks.iter().position(|(other, _)| *other == number)?;
        self.withdraw(1);
        Some(tasks.swap_remove(at).1)
    }
}

/// What its tests and its model look at and set.
#[cfg(all(test, not(slipring_loom)))]
impl WaitQueue {
    pub(super) fn word(&self) -> &AtomicU32 {
        &self.notice.0.word
    }
    pub(super) fn calm(&self) -> &Statistic {
        &self.notice.0.calm
    }
    pub(super) fn rests_until(&self) -> &Statistic {
        &self.notice.0.rests_until
    }
    pub(super) fn may_rest(&self) -> bool {
        self.may_rest
    }
    pub(super) fn gate(&self) -> &Mutex<Asleep> {
        &self.gate
    }
}

/// Where a handle looks whether all that it rings is quiet: in most graphs a publication rings one
/// bell, and to find that by way of the plan at each of them took half as long as all the rest.
pub(crate) struct QuietCheck(#[cfg(not(slipring_loom))] NonNull<AtomicU32>);

// SAFETY: it is only looked through, and an atomic may be read by any thread (I5 says that it is
// there).
unsafe impl Send for QuietCheck {}
// SAFETY: as above.
unsafe impl Sync for QuietCheck {}

impl QuietCheck {
    /// At those of `queues` that `notifies` names.
    pub(crate) fn at(queues: &[WaitQueue], notifies: &[usize]) -> QuietCheck {
        #[cfg(slipring_loom)]
        let quiet_check = {
            let _ = (queues, notifies);
            QuietCheck()
        };
        #[cfg(not(slipring_loom))]
        let quiet_check = {
            static NO_SHARD: AtomicU32 = AtomicU32::new(QUIET);
            static SEVERAL: AtomicU32 = AtomicU32::new(FENCED);
            QuietCheck(NonNull::from(match notifies {
                [] => &NO_SHARD,
                [one] => &queues[*one].notice.0.word,
                _ => &SEVERAL,
            }))
        };
        quiet_check
    }

    /// Whether nobody need be rung. Comes after the progress, and after a fence for the compiler.
    ///
    /// # Safety
    /// The bells that it was made for are alive (I5).
    #[inline(always)]
    pub(crate) unsafe fn is_quiet(&self) -> bool {
        // The model checker knows no barriers in other threads, so nothing is quiet there.
        #[cfg(slipring_loom)]
        let quiet = false;
        // SAFETY: the caller's.
        #[cfg(not(slipring_loom))]
        let quiet = unsafe { self.0.as_ref() }.load(Relaxed) == QUIET;
        quiet
    }
}

/// Rings bells after progress was stored. Where all are quiet, it is a load for each.
#[inline]
pub(crate) fn notify(queues: &[WaitQueue], notifies: &[usize]) {
    announced::order_quiet_check(); // progress before the check (I4)
    let looked_at = twin!("one-queue-checked": notifies => &notifies[..notifies.len().min(1)]);
    // The model checker knows no barriers in other threads, so nothing is quiet there.
    if cfg!(slipring_loom)
        || looked_at.iter().any(|&queue| queues[queue].notice.0.word.load(Relaxed) != QUIET)
    {
        notify_fenced(queues, notifies);
    }
}

/// Rings bells of which some are not quiet.
#[inline(never)]
pub(crate) fn notify_fenced(queues: &[WaitQueue], notifies: &[usize]) {
    // Once, however many bells are rung.
    announced::fence_notifier(); // progress before the announcements (I1)
    let notifies = twin!("one-queue-notified": notifies => &notifies[..notifies.len().min(1)]);
    notifies.iter().for_each(|&queue| queues[queue].notify_fenced());
}

/// Rings all of them: at an ending.
pub(crate) fn notify_all(queues: &[WaitQueue]) {
    announced::fence_ending(); // the ending before the announcements (I1)
    queues.iter().for_each(WaitQueue::notify_fenced);
}
