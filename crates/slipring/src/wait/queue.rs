//! The wait queue: threads and tasks sleep in it until progress is made, and lose no wake-up.
//!
//! [`WaitQueue`] documents the dangers, the protocol and the invariants.

use std::task::Waker;
use std::time::Duration;

// The imports below begin with `super`, because `queue_model.rs` compiles this file a second time,
// for a simulated machine.
use super::edge::announced;
use super::maybe_mapped::MaybeMapped;
use super::queue_state::{
    BARRIER_PAUSE, FENCED, LONGEST_PAUSE, QUIET, QueueState, SLEEPER, quiet_after,
};
use super::shared_queue;
#[cfg(not(slipring_loom))]
use super::sync::AtomicU64;
use super::sync::{
    Condvar, Instant, Line, Mutex, Relaxed, elapsed, lock, now, shortened, sleep, twin, whole,
};
use super::system;

/// Number of fenced notifications without a sleeper, after which a queue may become quiet. The
/// fences of 512 notifications cost more than the membarrier of a sleeper in a quiet queue.
pub(super) const NOTIFIES_BEFORE_QUIET: u64 = 512;
/// Longest duration of a sleep in a queue that processes share (`shared_queue::I3`).
pub(super) const LONGEST_SHARED_SLEEP: Duration = Duration::from_secs(1);

/// The sleepers of a queue.
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct Sleepers {
    /// Number of threads that sleep and were not notified.
    pub(super) threads: usize,
    /// Number of permits: of notified threads that have not left the condition variable (I6).
    permits: usize,
    /// Sum of the times at which the permits were given, in nanoseconds of the queue's clock.
    permitted_at: u64,
    /// Numbers and wakers of the armed tasks. The vector grows to the largest number of tasks that
    /// sleep at once.
    tasks: Vec<(u64, Waker)>,
    /// An empty vector that replaces `tasks` when a notification takes the tasks out, so that later
    /// tasks need no allocation.
    spare_buffer: Vec<(u64, Waker)>,
}

impl Sleepers {
    /// Gives permits to sleeping threads, at the time `now`, until `most` permits are left to take.
    /// Returns the number of permits given.
    fn permit(&mut self, most: usize, now: u64) -> usize {
        let woken = self.threads.min(most.saturating_sub(self.permits));
        self.threads -= woken;
        self.permits += twin!("one-of-two-permits": woken => woken.min(1));
        self.permitted_at = self.permitted_at.wrapping_add(now.wrapping_mul(woken as u64));
        woken
    }

    /// Takes a permit, if there is one. Returns the mean of the times at which the permits were
    /// given.
    fn take_permit(&mut self) -> Option<u64> {
        let mean = self.permitted_at.checked_div(self.permits as u64)?;
        self.permits -= 1;
        self.permitted_at -= mean;
        Some(mean)
    }
}

/// A queue of sleeping threads and tasks that wait for the same progress: an eventcount.
///
/// An eventcount is a condition variable whose condition no lock guards (Dmitry Vyukov,
/// "Eventcounts", 1024cores.net; Folly's `EventCount`). The sleepers of a `WaitQueue` wait for
/// progress that notifiers store in the ring's atomic words: a stamp, a cursor, a close. All
/// producers share one queue. All stages with the same dependencies share one queue, except pools
/// of one process: the workers of such a pool have a queue of their own, which *wakes one* (I6).
///
/// A `WaitQueue` has a state that other eventcounts lack: after many notifications without a
/// sleeper it becomes *quiet*, and a notification is then one load and no fence. The next sleeper
/// calls membarrier(2), which executes a full memory barrier in every thread of the process, in
/// place of the fences that notifiers omit.
///
/// # Dangers
///
/// - **A lost wake-up.** A wake-up would be lost in this order: the sleeper's poll finds no
///   progress; the notifier stores its progress and finds no sleeper; the sleeper falls asleep, for
///   ever if no notifier makes more progress. So both must store before they load (I1, I4), and
///   store buffers and compilers can reverse the order of a store and a load.
/// - **A notification between the last poll and the sleep.** The notifier finds the announcement,
///   but no thread sleeps on the condition variable yet (I2).
/// - **A wasted wake-up.** A queue that wakes one may wake a thread that gives up or leaves, while
///   another one sleeps that could have taken the event (I6).
/// - **User code under the lock.** A waker may panic, block, or call this queue again (I3).
/// - **A dangling [`QuietCheck`](super::quiet_check::QuietCheck).** It points to the state word of
///   a queue and does not keep the queue alive (I5).
///
/// # Protocol
///
/// A sleeper:
///
/// 1. The sleeper locks the queue.
/// 2. The sleeper announces itself by adding [`SLEEPER`] to the state word. If the word was
///    [`QUIET`], the sleeper issues a membarrier and then sets [`FENCED`]. A sleeper that is a task
///    also puts its waker into the queue.
/// 3. The sleeper issues a `SeqCst` fence.
/// 4. The sleeper polls. If it finds progress, it withdraws its announcement, unlocks the queue,
///    and does not sleep.
/// 5. Without progress, the sleeper falls asleep. If it is a thread, it waits on the condition
///    variable, which unlocks the queue. If it is a task, it leaves its waker in the queue, and
///    unlocks the queue.
///
/// A notifier:
///
/// 1. The notifier stores its progress.
/// 2. After a compiler fence, the notifier loads the state word. If the word is [`QUIET`], the
///    notification ends at this step.
/// 3. The notifier issues a `SeqCst` fence and loads the state word again.
/// 4. If sleepers are announced, the notifier locks the queue, takes all tasks out, gives a permit
///    to each thread that it wakes, withdraws these threads' announcements, and unlocks the queue.
///    It wakes all threads, unless the queue wakes one.
/// 5. After the unlock the notifier withdraws the tasks' announcements, and wakes each thread and
///    task that it took out of the queue. The wake-ups come after the unlock, so no woken thread
///    finds the lock held by its notifier, and no waker runs under the lock.
/// 6. If no sleeper is announced, the notifier counts the notification. After
///    [`NOTIFIES_BEFORE_QUIET`] of these, it replaces [`FENCED`] by [`QUIET`] in the state word,
///    unless the queue's last membarrier was too recent ([`BARRIER_PAUSE`]).
///
/// # Invariants
///
/// - I1: a sleeper announces itself, executes a `SeqCst` fence, and polls. A notifier of a queue
///   that is not quiet stores its progress, executes a `SeqCst` fence, and loads the state word. If
///   the sleeper's fence comes first, the notifier's load sees the announcement; if the notifier's
///   fence comes first, the sleeper's poll sees the progress ([`announced`]).
/// - I2: a sleeper holds the lock from its announcement until it sleeps. A notifier that saw the
///   announcement gets the lock only after the sleeper fell asleep or withdrew the announcement. So
///   no notifier wakes sleepers between a sleeper's last poll and its sleep.
/// - I3: no user code runs under the lock. A task's waker is cloned before the queue is locked, and
///   is woken or dropped after it is unlocked. While a thread holds a queue's lock, it does not
///   notify, and takes at most one other lock: the lock of the graph's failure record, or the lock
///   of the askers' link (askers::I2). A thread that holds one of these two locks takes no queue's
///   lock. The lock of the link may be held while the lock of the failure record is taken, but not
///   the other way round. So these locks cause no deadlock.
/// - I4: a sleeper that finds the queue quiet issues the membarrier after its announcement and
///   before its poll, under the lock. The membarrier takes effect at some point in every notifier's
///   code. If that point is before the notifier's load, the load does not return [`QUIET`]. If that
///   point is after the load, the notifier stored its progress before that point, and the sleeper's
///   poll sees the progress. A queue becomes quiet only by a compare-and-exchange of its state word
///   from [`FENCED`] to [`QUIET`], and the word differs from [`FENCED`] while a sleeper is
///   announced. So in a queue that is not quiet the sleeper needs no membarrier: every notifier
///   executes a fence while the sleeper is announced.
/// - I5: a queue's state does not move (`maybe_mapped::I1`), and a ring keeps its queues. The
///   ring's handles keep the ring alive.
/// - I6: the threads of a queue that wakes one are workers of one pool, each of which can take any
///   event. While an event waits and a worker sleeps, a notifier is about to wake a worker, or a
///   worker *owes a poll*: it is awake, and will poll before it sleeps or runs user code. For the
///   notifier of the event finds the sleeper announced (I1), and wakes a thread, which owes a poll,
///   or finds that the event's position is taken, and not as an orphan: then its worker has taken
///   the event, or waits for it with a ticket, and so owes a poll (`worker::I6`). If a poll finds
///   nothing, the event was taken. If a worker that slept takes a chunk and then finds another one,
///   it notifies the queue again before it handles its chunk; so does a worker that leaves. A
///   worker that did not sleep owes nothing, so if the claim word has passed a publication and an
///   event follows there, the publication's notifier wakes a thread for that event. A notification
///   that finds as many permits as it would give gives none, because the threads that take them owe
///   a poll, too. Each permit comes with a signal, `threads + permits` threads are inside the
///   condition variable, and a thread that leaves it takes a permit if there is one, even if its
///   time was up; it then polls at least once more. So every permit is taken, and it does not
///   matter by which thread. A task may be dropped before it polls, so a notification wakes all
///   tasks, and as many threads as if there were no task. The end of the graph, and a chunk that a
///   worker left, wake all threads.
pub(crate) struct WaitQueue {
    state: MaybeMapped<Line<QueueState>>,
    /// Whether the queue may become quiet. It may if membarrier was available when the queue was
    /// created.
    can_be_quiet: bool,
    created: Instant,
    sleepers: Mutex<Sleepers>,
    condvar: Condvar,
    /// Whether the processes of a segment share the queue; see [`shared_queue`].
    between_processes: bool,
    /// Whether a notification of progress wakes as many threads as it brings events, not all (I6).
    wakes_one: bool,
}

impl WaitQueue {
    /// Names the queue's state for the simulator's reports.
    #[cfg(slipring_coherence)]
    pub(crate) fn label(&self, name: &str) {
        slipring_coherence::label(self, &format!("lock of {name}"));
        slipring_coherence::label(&*self.state, name);
    }

    pub(crate) fn new() -> WaitQueue {
        WaitQueue::with_quiet(system::membarrier_available())
    }

    /// Creates a queue that becomes quiet only if `can_be_quiet` is `true`.
    pub(super) fn with_quiet(can_be_quiet: bool) -> WaitQueue {
        let sleepers = Sleepers {
            threads: 0,
            permits: 0,
            permitted_at: 0,
            tasks: Vec::new(),
            spare_buffer: Vec::new(),
        };
        WaitQueue {
            state: MaybeMapped::new(Line::new(QueueState::new())),
            can_be_quiet,
            created: now(),
            sleepers: Mutex::new(sleepers),
            condvar: Condvar::new(),
            between_processes: false,
            wakes_one: false,
        }
    }

    /// Creates the queue of a pool's workers, which wakes one thread for each event (I6).
    pub(crate) fn of_pool() -> WaitQueue {
        WaitQueue { wakes_one: true, ..WaitQueue::new() }
    }

    /// Makes this process's view of a queue that the processes of a segment share.
    pub(crate) fn between_processes(state: MaybeMapped<Line<QueueState>>) -> WaitQueue {
        WaitQueue { state, between_processes: true, ..WaitQueue::with_quiet(true) }
    }

    /// Returns the time of the queue's clock, in nanoseconds: the time since the queue was created,
    /// or the system's monotonic clock, which processes share.
    fn now(&self) -> u64 {
        if self.between_processes {
            return system::monotonic_nanos();
        }
        u64::try_from(elapsed(self.created).as_nanos()).unwrap_or(u64::MAX)
    }

    /// If `ready` returns `true`, does not sleep. Otherwise sleeps until a notification, but for at
    /// most `limit`. A sleep can end before `limit` without a notification. If a notification ended
    /// the sleep, returns the time since that notification.
    pub(crate) fn sleep(
        &self,
        limit: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) -> Option<Duration> {
        if self.between_processes {
            let limit = limit.map_or(LONGEST_SHARED_SLEEP, |limit| limit.min(LONGEST_SHARED_SLEEP));
            let notified_at = shared_queue::sleep(&self.state, limit, ready)?;
            // A process that uses another clock may have stored the time. Such a time means nothing
            // here.
            let since = Duration::from_nanos(self.now().checked_sub(notified_at)?);
            return (since <= LONGEST_SHARED_SLEEP).then_some(since);
        }
        let (mut guard, ordered) = twin!("announced-unlocked": {
            let guard = lock(&self.sleepers);
            (guard, self.announce())
        } => {
            let ordered = self.announce();
            (lock(&self.sleepers), ordered)
        });
        announced::fence_sleeper(); // The announcement comes before the poll (I1).
        if !twin!("sleeper-blind": ready() => false) && ordered {
            guard.threads += 1;
            guard = match limit {
                None => whole(self.condvar.wait(guard)),
                Some(limit) => whole(self.condvar.wait_timeout(guard, limit)).0,
            };
            let takes = twin!("permit-left": true => limit.is_none());
            if takes && let Some(notified_at) = guard.take_permit() {
                // The notifier that gave the permit has withdrawn an announcement.
                drop(guard);
                return Some(Duration::from_nanos(self.now().saturating_sub(notified_at)));
            }
            guard.threads -= 1;
        }
        self.withdraw(1);
        None
    }

    /// Announces one more sleeper; called under the queue's lock (I4). Returns `false` if the
    /// system refused the membarrier; the caller must then not sleep, because I4 does not hold.
    fn announce(&self) -> bool {
        let state = &self.state;
        if state.word.fetch_add(u64::from(SLEEPER), Relaxed) as u32 != QUIET {
            return true;
        }
        let began = self.now();
        let barred = announced::fence_all_threads(); // The announcement comes before the poll (I4).
        let quiet_after = if barred { quiet_after(began, self.now()) } else { u64::MAX };
        state.quiet_after.store(quiet_after, Relaxed);
        state.word.fetch_or(u64::from(FENCED), Relaxed);
        if !barred {
            // If the system refuses the membarrier, the queue never becomes quiet again, so all
            // later notifications execute a fence. A sleep of `BARRIER_PAUSE` replaces the
            // membarrier: during this sleep, the stores that notifiers made without a fence reach
            // memory.
            sleep(BARRIER_PAUSE);
        }
        barred
    }

    /// Withdraws the announcements of `sleepers` threads or tasks.
    fn withdraw(&self, sleepers: usize) {
        self.state.word.fetch_sub(u64::from(SLEEPER) * sleepers as u64, Relaxed);
    }

    /// Continues a notification after its fence: wakes sleepers, or counts the notification if no
    /// sleeper is announced. A queue that wakes one wakes at most `most()` threads, and if that is
    /// 0, no task.
    #[inline]
    fn notify_fenced(&self, most: impl Fn() -> usize) {
        match self.state.load() {
            QUIET => {}
            FENCED if self.can_be_quiet => self.count_fenced_notify(),
            FENCED => {}
            _ if !self.wakes_one => self.wake(usize::MAX),
            _ => match most() {
                0 => {}
                most => self.wake(most),
            },
        }
    }

    /// Counts a fenced notification without a sleeper. Every [`NOTIFIES_BEFORE_QUIET`]th such
    /// notification makes the queue quiet, unless its last membarrier was too recent. If notifiers
    /// overwrite each other's counts, the queue becomes quiet a little later.
    fn count_fenced_notify(&self) {
        let QueueState { word, restless, fenced_notifies, quiet_after, .. } = &**self.state;
        // Another process can have stored any number.
        let notifies = fenced_notifies.load(Relaxed).wrapping_add(1);
        let enough = shortened(NOTIFIES_BEFORE_QUIET);
        fenced_notifies.store(notifies % enough, Relaxed);
        if notifies == enough && self.pause_is_over(quiet_after.load(Relaxed)) {
            let fenced = word.load(Relaxed);
            if fenced as u32 != FENCED || (self.between_processes && restless.load(Relaxed) != 0) {
                return;
            }
            let quiet = fenced - u64::from(FENCED);
            // The compare-and-exchange fails if a sleeper has announced itself since the notifier's
            // load of the state word (I4).
            twin!("quiet-by-store":
                { let _ = word.compare_exchange(fenced, quiet, Relaxed, Relaxed); } =>
                word.store(quiet, Relaxed)
            );
        }
    }

    /// Returns whether the pause until the time `quiet_after` is over, so that the queue may become
    /// quiet.
    fn pause_is_over(&self, quiet_after: u64) -> bool {
        let left = quiet_after.saturating_sub(self.now());
        left == 0 || (self.between_processes && left > LONGEST_PAUSE.as_nanos() as u64)
    }

    /// Wakes all tasks, and threads until `most` of them were notified and have not woken up yet.
    #[cold]
    fn wake(&self, most: usize) {
        self.state.fenced_notifies.store(0, Relaxed);
        if self.between_processes {
            return shared_queue::wake(&self.state);
        }
        let now = self.now();
        // The notifier, not the woken thread, withdraws the thread's announcement, so that later
        // notifications make no system call to wake the thread again.
        let take = || {
            let sleepers = &mut *lock(&self.sleepers);
            let woken = sleepers.permit(most, now);
            self.withdraw(woken);
            let Sleepers { threads, tasks, spare_buffer, .. } = sleepers;
            let tasks = if tasks.is_empty() {
                Vec::new()
            } else {
                std::mem::replace(tasks, std::mem::take(spare_buffer))
            };
            (woken, *threads == 0, tasks)
        };
        let (woken, is_last, mut tasks) =
            twin!("notifier-unlocked": take() => (1, true, Vec::<(u64, Waker)>::new())); // I2
        self.withdraw(tasks.len());
        match woken {
            0 if self.wakes_one => {}
            1 if self.wakes_one => self.condvar.notify_one(),
            _ if is_last => {
                twin!("one-woken": self.condvar.notify_all() => self.condvar.notify_one());
            }
            _ => (0..woken).for_each(|_| self.condvar.notify_one()),
        }
        twin!("tasks-unwoken": () => tasks.clear());
        for (_, task) in tasks.drain(..) {
            // `wake` runs code of the task's executor. A panic in it must not leave the other tasks
            // asleep.
            crate::base::panics::call_contained(|| task.wake());
        }
        if tasks.capacity() != 0 {
            let spare_buffer = &mut lock(&self.sleepers).spare_buffer;
            if spare_buffer.capacity() < tasks.capacity() {
                *spare_buffer = tasks;
            }
        }
    }

    /// Registers a task's waker for the next notification, unless `ready` returns `true`. Returns
    /// `true` if the task must poll again, because no notification will wake it.
    ///
    /// `number` identifies the task. If that task is armed already, `waker` replaces its earlier
    /// waker. If processes share the queue, its tasks belong to a
    /// [`Reactor`](super::reactor::Reactor).
    pub(crate) fn arm(&self, number: u64, waker: &Waker, ready: &mut dyn FnMut() -> bool) -> bool {
        debug_assert!(!self.between_processes, "a reactor keeps the tasks of a shared queue");
        let waker = waker.clone();
        let mut sleepers = lock(&self.sleepers);
        let tasks = &mut sleepers.tasks;
        let mut ordered = true;
        let replaced = match tasks.iter_mut().find(|(other, _)| *other == number) {
            Some((_, armed)) => Some(std::mem::replace(armed, waker)),
            None => {
                tasks.push((number, waker));
                ordered = self.announce();
                None
            }
        };
        announced::fence_task(); // The announcement comes before the poll (I1).
        // If the system refused the membarrier, notifiers may miss the task's announcement, so the
        // task must poll again.
        let ready = twin!("task-blind": ready() => false) || !ordered;
        let own = if ready { self.remove(&mut sleepers.tasks, number) } else { None };
        drop(sleepers);
        // Dropping a waker runs user code. Two wakers may be dropped here, the replaced one and the
        // task's own, and if both drops panicked, the process would abort.
        crate::base::panics::drop_contained(replaced);
        crate::base::panics::drop_contained(own);
        ready
    }

    /// Removes a task's waker, if the task is armed. A task calls this when it gives up a wait.
    pub(crate) fn disarm(&self, number: u64) {
        let own = self.remove(&mut lock(&self.sleepers).tasks, number);
        // The waker's drop is user code, whose panic would abort the process if the caller is
        // unwinding.
        crate::base::panics::drop_contained(own);
    }

    // Tasks of a queue that processes share. See `reactor`.

    /// Announces a task of a queue that processes share, and returns the epoch that the task notes.
    pub(super) fn announce_shared(&self) -> u32 {
        shared_queue::announce(&self.state)
    }

    /// Withdraws the announcement of a task that noted the epoch `noted`, unless a wake-up has
    /// withdrawn it.
    pub(super) fn withdraw_shared(&self, noted: u32) {
        shared_queue::withdraw(&self.state, noted);
    }

    /// Returns the epoch of a queue that processes share. Each wake-up raises the epoch.
    pub(super) fn epoch(&self) -> u32 {
        shared_queue::current_epoch(&self.state)
    }

    /// Sleeps as long as the epoch equals `noted`, but for at most `limit`. A sleep can end early.
    pub(super) fn sleep_at(&self, noted: u32, limit: Duration) {
        shared_queue::sleep_at(&self.state, noted, limit.min(LONGEST_SHARED_SLEEP));
    }

    /// Wakes all sleepers of a queue that processes share, even if there is no progress. Each of
    /// them then polls once more.
    pub(super) fn interrupt(&self) {
        shared_queue::interrupt(&self.state);
    }

    /// Returns the state word.
    #[cfg(not(slipring_loom))]
    pub(super) fn word(&self) -> &AtomicU64 {
        &self.state.word
    }

    /// Takes a task's waker out and withdraws the task's announcement; called under the queue's
    /// lock.
    fn remove(&self, tasks: &mut Vec<(u64, Waker)>, number: u64) -> Option<Waker> {
        let at = tasks.iter().position(|(other, _)| *other == number)?;
        self.withdraw(1);
        Some(tasks.swap_remove(at).1)
    }
}

/// Access to private fields for the tests and the model.
#[cfg(all(test, not(slipring_loom)))]
impl WaitQueue {
    pub(super) fn fenced_notifies(&self) -> &super::sync::Statistic {
        &self.state.fenced_notifies
    }
    pub(super) fn quiet_after(&self) -> &super::sync::Statistic {
        &self.state.quiet_after
    }
    pub(super) fn can_be_quiet(&self) -> bool {
        self.can_be_quiet
    }
    /// Stores arbitrary values in the words of the state: the state word, `restless`,
    /// `fenced_notifies`, `quiet_after` and `notified_at`, in this order.
    pub(super) fn fill(&self, values: [u64; 5]) {
        let QueueState { word, restless, fenced_notifies, quiet_after, notified_at } =
            &**self.state;
        word.store(values[0], Relaxed);
        restless.store(values[1], Relaxed);
        [fenced_notifies, quiet_after, notified_at]
            .into_iter()
            .zip(&values[2..])
            .for_each(|(word, &value)| word.store(value, Relaxed));
    }
    pub(super) fn sleepers(&self) -> &Mutex<Sleepers> {
        &self.sleepers
    }
}

/// Notifies those `queues` whose indices are in `notifies`; called after the progress is stored. If
/// all notified queues are quiet, the call costs one load per queue. A queue that wakes one wakes
/// one thread.
#[inline]
pub(crate) fn notify(queues: &[WaitQueue], notifies: &[usize]) {
    notify_up_to(queues, notifies, |_| 1);
}

/// Like [`notify`], but a queue that wakes one wakes up to `most(queue)` threads, where `queue` is
/// its index: as many as the events that no worker has taken. Threads that were notified before and
/// have not polled yet count, too (I6).
#[inline]
pub(crate) fn notify_up_to(
    queues: &[WaitQueue],
    notifies: &[usize],
    most: impl Fn(usize) -> usize,
) {
    if is_any_noisy(queues, notifies) {
        notify_fenced(queues, notifies, most);
    }
}

/// Returns whether at least one of the notified queues is not quiet.
#[inline]
fn is_any_noisy(queues: &[WaitQueue], notifies: &[usize]) -> bool {
    announced::order_quiet_check(); // The progress comes before the check (I4).
    let checked = twin!("one-queue-checked": notifies => &notifies[..notifies.len().min(1)]);
    // In a loom model no queue is quiet, because loom has no membarrier.
    cfg!(slipring_loom) || checked.iter().any(|&queue| queues[queue].state.load() != QUIET)
}

/// Like [`notify_up_to`]. The caller has found that at least one of the queues is not quiet.
#[inline(never)]
pub(crate) fn notify_fenced(
    queues: &[WaitQueue],
    notifies: &[usize],
    most: impl Fn(usize) -> usize,
) {
    // A single fence suffices for all notified queues: it orders the store of progress before the
    // loads of their state words.
    announced::fence_notifier(); // The progress comes before the state word (I1).
    let notifies = twin!("one-queue-notified": notifies => &notifies[..notifies.len().min(1)]);
    notifies.iter().for_each(|&queue| queues[queue].notify_fenced(|| most(queue)));
}

/// Like [`notify`], for the release of a chunk by a pool whose own queue `own` wakes one. A release
/// brings the pool's workers no event, but the last release of a closed ring ends the pool. So the
/// release wakes all sleepers of `own` if `is_over` returns `true`, and otherwise none.
#[inline]
pub(crate) fn notify_released(
    queues: &[WaitQueue],
    notifies: &[usize],
    own: usize,
    is_over: impl Fn() -> bool,
) {
    if is_any_noisy(queues, notifies) {
        notify_released_fenced(queues, notifies, own, is_over);
    }
}

/// Continues [`notify_released`] if one of the queues is not quiet.
#[inline(never)]
fn notify_released_fenced(
    queues: &[WaitQueue],
    notifies: &[usize],
    own: usize,
    is_over: impl Fn() -> bool,
) {
    // The thread that ends the graph stores the status, fences, and notifies `own`. If its fence
    // comes before this one, `is_over` sees the end; otherwise the workers that it wakes see the
    // release.
    let unfenced = twin!("last-release-unfenced": None => Some(is_over()));
    announced::fence_notifier(); // The release comes before the state words (I1) and the status.
    let most = if unfenced.unwrap_or_else(is_over) { usize::MAX } else { 0 };
    for &queue in notifies {
        queues[queue].notify_fenced(|| if queue == own { most } else { 1 });
    }
}

/// Notifies all queues, and wakes all of their sleepers. Called when the graph ends.
pub(crate) fn notify_all(queues: &[WaitQueue]) {
    announced::fence_ending(); // The ending comes before the state words (I1).
    let most = twin!("ending-wakes-one": usize::MAX => 1);
    queues.iter().for_each(|queue| queue.notify_fenced(|| most));
}
