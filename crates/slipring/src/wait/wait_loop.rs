//! The loop of a wait, which polls, acts as the strategy decides, and polls again. The loop is a
//! value that is stepped ([`WaitRun`]).

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::built_in::Wait;
use super::full_ring::FullRing;
use super::hardware::first_polls;
use super::queue::WaitQueue;
use super::strategy::{CLOCK_INTERVAL, WaitAction, WaitContext, WaitLearner, WaitStrategy};
use crate::base::panics::drop_contained;
use crate::base::sync::{self, now, per_thread, spin_loop, yield_now};
use crate::base::system;
use crate::errors::WaitError;

/// The learner of one handle, if its strategy has one. A panic of the learner's drop is contained.
#[derive(Default)]
pub(crate) struct HandleLearner {
    learner: Option<Box<dyn WaitLearner>>,
    /// Number of waits that ended at their first polls and were not yet reported to the learner.
    short_waits: u32,
    /// The thread that was noted as the handle's.
    pub(crate) noted: NotedThread,
}

/// The thread that a graph knows to hold a handle, or none.
#[derive(Clone, Copy, Default)]
pub(crate) struct NotedThread(usize);

impl NotedThread {
    /// Returns the current thread.
    #[inline]
    pub(crate) fn this() -> NotedThread {
        per_thread! {
            /// Each living thread has its own at an address of its own.
            static MARK: u8 = const { 0 };
        }
        NotedThread(MARK.try_with(|mark| std::ptr::from_ref(mark).addr()).unwrap_or(0))
    }

    /// Returns whether the current thread is another one.
    #[inline]
    pub(crate) fn is_another(self) -> bool {
        self.0 != NotedThread::this().0
    }
}

/// Largest number of short waits that the loop reports to a learner before a longer wait. After
/// this number of short waits in a row, an average over the waits has forgotten all earlier waits.
const MOST_SHORT_WAITS: u32 = 32;

impl HandleLearner {
    /// Notes a wait that ended at its first polls (see [`Wait::first_polls`]). The loop reports
    /// this wait to the learner before the next longer wait, so that learning delays no event.
    #[inline(always)]
    pub(crate) fn note_short_wait(&mut self) {
        self.short_waits = self.short_waits.saturating_add(1);
    }

    /// Returns the state of a wait of the same handle from which no learner learns.
    pub(crate) fn without_learner(&self) -> HandleLearner {
        HandleLearner { learner: None, short_waits: 0, noted: self.noted }
    }

    /// Tells the learner how a longer wait ended.
    fn wait_ended(&mut self, context: &WaitContext, progress: bool) {
        if let Some(learner) = &mut self.learner {
            learner.wait_ended(context, progress);
        }
    }

    /// Reports to the learner the short waits since the last longer wait.
    fn learn_short_waits(&mut self, oversubscribed: bool) {
        let waits = std::mem::take(&mut self.short_waits).min(MOST_SHORT_WAITS);
        if let (1.., Some(learner)) = (waits, &mut self.learner) {
            let context = WaitContext::new(oversubscribed);
            (0..waits).for_each(|_| learner.wait_ended(&context, true));
        }
    }
}

impl From<Option<Box<dyn WaitLearner>>> for HandleLearner {
    fn from(learner: Option<Box<dyn WaitLearner>>) -> HandleLearner {
        HandleLearner { learner, short_waits: 0, noted: NotedThread::default() }
    }
}

impl Drop for HandleLearner {
    fn drop(&mut self) {
        if self.learner.is_some() {
            drop_contained(self.learner.take());
        }
    }
}

/// A place where waiters sleep until progress notifies them.
pub(crate) trait SleepPlace {
    /// Sleeps until a notification, but for at most `limit`, unless `ready` returns `true`. A sleep
    /// can end before `limit` without a notification. If a notification is known to have ended the
    /// sleep, returns the time since that notification.
    fn sleep(&self, limit: Option<Duration>, ready: &mut dyn FnMut() -> bool) -> Option<Duration>;
}

impl SleepPlace for WaitQueue {
    fn sleep(&self, limit: Option<Duration>, ready: &mut dyn FnMut() -> bool) -> Option<Duration> {
        WaitQueue::sleep(self, limit, ready)
    }
}

/// The rules of one wait.
pub(crate) struct WaitOptions<'a> {
    pub(crate) wait: &'a Wait,
    /// Number of polls that the waiter has made since the wait began.
    pub(crate) polls: u64,
    /// The full ring in which the waiter waits for room, if the waiter's thread has nothing else to
    /// do.
    pub(crate) full_ring: Option<FullRing>,
    /// The place where the waiter sleeps until a notification; `None` if progress notifies no
    /// sleeper, so that the waiter must wake up by a timer.
    pub(crate) queue: Option<&'a dyn SleepPlace>,
    pub(crate) deadline: Option<Instant>,
    /// Longest duration of the wait, from the clock's first reading on.
    pub(crate) timeout: Option<Duration>,
}

/// The reason why a wait ended before its condition held. A call that returns the reason to a user
/// adds the name of the party for which it was waiting at that time.
#[derive(Debug)]
pub(crate) enum Unmet {
    /// The deadline of the call, or the timeout of the waiting strategy, passed.
    TimedOut,
    /// The graph has ended, or the wait would never end.
    Ended(WaitError),
}

impl From<WaitError> for Unmet {
    fn from(reason: WaitError) -> Unmet {
        Unmet::Ended(reason)
    }
}

/// Whether a wait continues. If it does, the value is the time after which the loop asks again, or
/// `None` if the loop need not ask again.
pub(crate) type KeepWaiting = ControlFlow<Unmet, Option<Duration>>;

/// The condition that a waiter waits for, and the questions that the wait loop asks about it.
pub(crate) trait Condition {
    /// Polls. The call may run under a wait queue's lock, so an implementation runs no user code.
    fn is_ready(&mut self) -> bool;

    /// Returns whether the wait continues. The loop calls this function at the clock's first
    /// reading, and again whenever the returned time has passed; no sleep lasts longer than that
    /// time. If it returns `Break`, the wait ends after one more poll.
    fn keep_waiting(&mut self) -> KeepWaiting {
        ControlFlow::Continue(None)
    }

    /// Returns the time from the clock's first reading until a flush is due; `None` if the waiter
    /// has no counts. The loop asks once in a wait, at that first reading.
    fn flush_after(&self) -> Option<Duration> {
        None
    }

    /// Flushes the waiter's counts. The loop calls this function at most once in a wait: before its
    /// first sleep, or when the time of [`Condition::flush_after`] has passed.
    fn flush(&mut self) {}

    /// Called before each sleep. If the result is a time, the waiter sleeps by a timer for that
    /// time instead, and no notification ends this sleep.
    fn nap(&mut self) -> Option<Duration> {
        None
    }

    /// Returns whether the graph has more threads than cores. Handles join and leave while the wait
    /// lasts, so the loop asks again at each reading of the clock.
    fn is_oversubscribed(&self) -> bool {
        false
    }

    /// Notes the waiting thread, unless `noted` says that it is noted, and looks at the cores of
    /// the graph's threads, if that is due. The loop calls this function at each reading of the
    /// clock.
    fn look_at_cores(&self, _noted: &mut NotedThread, _now: Instant) {}
}

/// The condition of a wait that ends only at a successful poll, at its deadline or at its timeout.
impl<F: FnMut() -> bool> Condition for F {
    fn is_ready(&mut self) -> bool {
        self()
    }
}

/// Duration of the sleep that replaces [`WaitAction::Park`] if progress notifies no queue, or if
/// the waiter may not sleep until a notification.
pub(crate) const UNNOTIFIED_SLEEP: Duration = Duration::from_micros(50);

/// Longest duration of a [`WaitAction::Sleep`], which no notification can end early. After at most
/// this time the waiter polls again, and sees a close or a failure.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// One run of the wait loop. While the strategy spins, the loop leaves the polls to its caller: an
/// event that comes meanwhile is then found by the caller's own code, and everything else can be
/// done later.
pub(crate) struct WaitRun {
    context: WaitContext,
    /// The polls that the caller makes now, if the last step has left polls to it.
    spinning: Option<u32>,
    deadline: Option<Instant>,
    /// Time of the next question whether the wait continues.
    next_call: Option<Instant>,
    flush_at: Option<Instant>,
    /// Number of sleeps.
    pub(crate) sleeps: u64,
    /// The reason why the wait ended before its condition held; `None` if the condition holds, or
    /// if the wait goes on.
    pub(crate) unmet: Option<Unmet>,
}

impl WaitRun {
    /// Begins a wait, without a poll. `oversubscribed` says whether the graph has more threads than
    /// cores.
    pub(crate) fn new(options: &WaitOptions<'_>, oversubscribed: bool) -> WaitRun {
        let WaitOptions { polls, full_ring, deadline, .. } = *options;
        WaitRun {
            context: WaitContext { polls, full_ring, ..WaitContext::new(oversubscribed) },
            spinning: None,
            deadline,
            next_call: None,
            flush_at: None,
            sleeps: 0,
            unmet: None,
        }
    }

    /// Polls, and acts as the strategy decides between two polls, until the wait is over or the
    /// strategy spins on. In the latter case, returns the number of polls that the caller makes by
    /// [`spin`] before it calls again. If one of them finds that the condition holds, the wait is
    /// over, and the caller calls [`WaitRun::found`] instead.
    ///
    /// `options`, `learner` and `condition` are the same in each step of a wait.
    #[cold]
    pub(crate) fn step(
        &mut self,
        options: &WaitOptions<'_>,
        learner: &mut HandleLearner,
        condition: &mut dyn Condition,
    ) -> Option<u32> {
        if let Some(polls) = self.spinning.take() {
            self.context.polls += u64::from(polls);
            self.polled(true, learner, condition);
        }
        loop {
            // The first poll comes before any reading of the clock, so that an event that is
            // available is not delayed.
            if condition.is_ready() {
                return None;
            }
            learner.learn_short_waits(self.context.oversubscribed);
            let action = match &mut learner.learner {
                Some(learner) => learner.next_action(&self.context),
                None => options.wait.next_action(&self.context),
            };
            let spins = matches!(action, WaitAction::Spin(_) | WaitAction::SpinOn);
            let is_timed = self.context.started.is_some();
            if !is_timed && (self.context.polls >= CLOCK_INTERVAL || !spins) {
                self.read_first(options.timeout, learner, condition);
            }
            if let Err(why) = self.goes_on(condition) {
                // One last poll decides whether the condition held in time.
                if !condition.is_ready() {
                    self.unmet = Some(why);
                }
                return None;
            }
            if action == WaitAction::SpinOn {
                self.flush_if_due(true, condition);
                self.context.wake_latency = None;
                // The last poll before the clock's reading is that of this loop. A strategy that
                // has decided before the clock's first reading soon decides again.
                let most = match is_timed {
                    false => CLOCK_INTERVAL - self.context.polls % CLOCK_INTERVAL,
                    true => CLOCK_INTERVAL.max(first_polls().into()),
                };
                self.spinning = Some(most as u32 - 1);
                return self.spinning;
            }
            self.act(action, options.queue, condition);
            let is_due = !spins || (self.context.polls + 1).is_multiple_of(CLOCK_INTERVAL);
            self.polled(is_due, learner, condition);
        }
    }

    /// Notes that the last of `polls` polls, which the caller made after a step, found that the
    /// condition holds.
    #[inline(always)]
    pub(crate) fn found(&mut self, polls: u32) {
        self.context.polls += u64::from(polls);
    }

    /// Returns the part of the ended wait that a learner and the counts need later, unless the wait
    /// has slept: then it is settled at once.
    #[inline(always)]
    pub(crate) fn leave(&self) -> Option<LeftWait> {
        let WaitContext { polls, oversubscribed, started, now, .. } = self.context;
        (self.sleeps == 0).then_some(LeftWait { polls, oversubscribed, started, now })
    }

    /// Tells the learner how the wait ended.
    pub(crate) fn learn(&self, learner: &mut HandleLearner) {
        learner.wait_ended(&self.context, self.unmet.is_none());
    }

    /// Returns the number of polls that found nothing and were followed by an action, if the wait
    /// has neither read the clock nor slept.
    #[inline(always)]
    pub(crate) fn untimed_polls(&self) -> Option<u64> {
        (self.context.started.is_none() && self.sleeps == 0).then_some(self.context.polls)
    }

    /// Returns the time between the clock's first and last readings in the wait. Zero if the wait
    /// ended before the clock's first reading ([`WaitContext::now`]).
    pub(crate) fn time(&self) -> Duration {
        self.context.elapsed()
    }

    /// Reads the clock for the first time in this wait.
    fn read_first(
        &mut self,
        timeout: Option<Duration>,
        learner: &mut HandleLearner,
        condition: &mut dyn Condition,
    ) {
        let now = now();
        (self.context.started, self.context.now) = (Some(now), Some(now));
        let timeout = timeout.and_then(|after| now.checked_add(after));
        self.deadline = self.deadline.into_iter().chain(timeout).min();
        self.next_call = Some(now);
        condition.look_at_cores(&mut learner.noted, now);
        self.context.oversubscribed = condition.is_oversubscribed();
        self.flush_at = condition.flush_after().and_then(|after| now.checked_add(after));
    }

    /// Asks whether the wait continues, if that is due. Returns the reason if it does not.
    fn goes_on(&mut self, condition: &mut dyn Condition) -> Result<(), Unmet> {
        let Some(now) = self.context.now else { return Ok(()) };
        if self.next_call.is_some_and(|next| next <= now) {
            let again = match condition.keep_waiting() {
                ControlFlow::Continue(again) => again,
                ControlFlow::Break(why) => return Err(why),
            };
            self.next_call = again.and_then(|again| now.checked_add(again));
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(Unmet::TimedOut);
        }
        Ok(())
    }

    fn flush_if_due(&mut self, is_awake: bool, condition: &mut dyn Condition) {
        if self.flush_at.zip(self.context.now).is_some_and(|(at, now)| at <= now || !is_awake) {
            condition.flush();
            self.flush_at = None;
        }
    }

    /// Does what the strategy has decided, other than [`WaitAction::SpinOn`].
    fn act(
        &mut self,
        mut action: WaitAction,
        queue: Option<&dyn SleepPlace>,
        condition: &mut dyn Condition,
    ) {
        let left = || {
            let until = self.deadline.into_iter().chain(self.next_call).min();
            until.zip(self.context.now).map(|(until, now)| until.saturating_duration_since(now))
        };
        let left = left();
        let is_awake =
            matches!(action, WaitAction::Spin(_) | WaitAction::Clock | WaitAction::Yield);
        self.flush_if_due(is_awake, condition);
        if !is_awake && let Some(nap) = condition.nap() {
            action = WaitAction::Sleep(nap);
        }
        self.context.wake_latency = None;
        match action {
            WaitAction::Spin(pauses) => (0..pauses.clamp(1, 1 << 16)).for_each(|_| pause()),
            WaitAction::SpinOn | WaitAction::Clock => {}
            WaitAction::Yield => yield_now(),
            WaitAction::Park | WaitAction::ParkFor(_) => {
                self.sleeps += 1;
                let longest =
                    if let WaitAction::ParkFor(time) = action { Some(time) } else { None };
                let limit = left.into_iter().chain(longest).min();
                match queue {
                    Some(queue) => {
                        if longest.is_some() {
                            system::sharpen_timers();
                        }
                        let wake_latency = queue.sleep(limit, &mut || condition.is_ready());
                        self.context.wake_latency = wake_latency;
                    }
                    // If progress notifies no queue, the waiter must wake by a timer.
                    None => {
                        system::sharpen_timers();
                        sleep(limit.map_or(UNNOTIFIED_SLEEP, |limit| limit.min(UNNOTIFIED_SLEEP)));
                    }
                }
            }
            WaitAction::Sleep(time) => {
                self.sleeps += 1;
                let time = left.unwrap_or(LONGEST_SLEEP).min(time).min(LONGEST_SLEEP);
                system::sharpen_timers();
                sleep(time);
            }
        }
    }

    /// Counts a poll that an action has followed, and reads the clock if that is due.
    fn polled(&mut self, is_due: bool, learner: &mut HandleLearner, condition: &mut dyn Condition) {
        self.context.polls += 1;
        if self.context.started.is_some() && is_due {
            let now = now();
            self.context.now = Some(now);
            condition.look_at_cores(&mut learner.noted, now);
            self.context.oversubscribed = condition.is_oversubscribed();
        }
    }
}

/// A wait that found what it waited for, without a sleep, and that the strategy's learner has not
/// heard of yet.
#[derive(Clone, Copy)]
pub(crate) struct LeftWait {
    polls: u64,
    oversubscribed: bool,
    started: Option<Instant>,
    now: Option<Instant>,
}

impl LeftWait {
    fn context(self) -> WaitContext {
        let LeftWait { polls, oversubscribed, started, now } = self;
        WaitContext { polls, started, now, ..WaitContext::new(oversubscribed) }
    }

    /// Tells the learner how the wait ended.
    pub(crate) fn learn(self, learner: &mut HandleLearner) {
        learner.wait_ended(&self.context(), true);
    }

    /// Returns the time between the clock's first and last readings in the wait.
    pub(crate) fn time(self) -> Duration {
        let context = self.context();
        context.elapsed()
    }
}

/// Waits until the condition holds, or until the deadline or timeout, and tells the learner.
#[cold]
pub(crate) fn wait_until(
    options: WaitOptions<'_>,
    learner: &mut HandleLearner,
    condition: &mut dyn Condition,
) -> WaitRun {
    let mut run = WaitRun::new(&options, condition.is_oversubscribed());
    while let Some(polls) = run.step(&options, learner, condition) {
        if let Some(polls) = spin(polls, || condition.is_ready()) {
            run.found(polls);
            break;
        }
    }
    run.learn(learner);
    run
}

/// Pauses and polls, at most `most` times, and pauses once more if no poll succeeds. Returns the
/// number of polls, the last of which succeeded.
#[inline(always)]
pub(crate) fn spin(most: u32, mut is_ready: impl FnMut() -> bool) -> Option<u32> {
    for polls in 1..=most {
        pause();
        if is_ready() {
            return Some(polls);
        }
    }
    pause();
    None
}

#[inline(always)]
fn pause() {
    if cfg!(slipring_loom) { yield_now() } else { spin_loop() }
}

fn sleep(time: Duration) {
    if cfg!(slipring_loom) { yield_now() } else { sync::sleep(time) }
}
