//! The half of a promise that waits for the value.
//!
//! Invariants
//! - I1: a call through a shared reference to an [`Awaited`] only loads the word of the handover,
//!   and asks the graph whether it has ended. Each call that registers a sleeper, or takes the
//!   value, has a mutable reference.
//! - I2: a sleeper that stays registered between two calls belongs to a task. A waiting thread
//!   takes its registration back before its call returns.
//! - I3: the value wins over the graph's end. A call checks the promise, then the graph, and then
//!   the promise again. It returns the graph's end only if neither check found the promise
//!   *settled*, that is, fulfilled or broken.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::handover::{Settlement, WaiterHalf};
use super::sleep::Sleep;
use super::sleeper::Sleeper;
use crate::base::panics::{Contained, drop_contained};
use crate::base::sync::now;
use crate::errors::{AwaitError, WaitError};
use crate::ring::asked::Asked;
use crate::ring::helper;
use crate::wait::{
    Condition, HandleLearner, KeepWaiting, Unmet, Wait, WaitOptions, WaitStrategy, wait_until,
};

/// The time limits of one wait of an [`Awaited`].
struct Bounds {
    /// Deadline of the user's call.
    deadline: Option<Instant>,
    /// Latest time at which the wait returns. It is never after the deadline.
    until: Option<Instant>,
    /// Longest duration of the wait, if the strategy limits it.
    timeout: Option<Duration>,
    /// Longest time between two checks, each of which finds out whether the wait would never end.
    /// `None` means no checks.
    notice: Option<Duration>,
}

/// The half of a promise that waits for the value. [`Producer::ask`](crate::Producer::ask) and
/// [`promise`](crate::promise()) make it.
///
/// The handle of an answer to a request knows the request's graph. So a wait also ends if the graph
/// fails, is halted, or has no stage left that could answer ([`AwaitError::Wait`],
/// [`AwaitError::Skipped`]). The value takes precedence: such an error says that the promise was
/// neither fulfilled nor broken when the call checked it last. The handle does not keep the ring
/// alive.
///
/// Threads call [`wait`](Awaited::wait), [`wait_for`](Awaited::wait_for) or
/// [`wait_until`](Awaited::wait_until). Tasks of any runtime await the handle, which is a future:
/// `(&mut answer).await` leaves the handle usable. One program may do both. The value is returned
/// once; each later call returns [`AwaitError::Taken`].
///
/// Dropping the handle abandons the promise: the other half gets its value back, or the value is
/// dropped with the handle if it was handed over already.
///
/// Example: [`Awaited::wait`].
#[must_use = "the promise is abandoned if this half is dropped"]
pub struct Awaited<T> {
    /// `None` once the value was taken.
    half: Option<WaiterHalf<T>>,
    /// How threads wait; `None` stands for [`Wait::Blocking`].
    wait: Option<Contained<Wait>>,
    /// The request; `None` if the promise knows no graph, or if the value was taken.
    asked: Option<Asked>,
}

// SAFETY: the value is moved from the thread that fulfils the promise. All other parts of the
// handover may be used by any thread that owns a half; a sleeper may be dropped anywhere. A
// request is `Send`.
unsafe impl<T: Send> Send for Awaited<T> {}
// SAFETY: a shared reference only loads an atomic word, and asks the graph (I1). Strategies and
// requests are `Sync`.
unsafe impl<T: Send> Sync for Awaited<T> {}

impl<T> Awaited<T> {
    pub(super) fn new(half: WaiterHalf<T>) -> Awaited<T> {
        Awaited { half: Some(half), wait: None, asked: None }
    }

    /// Ties the handle to the request `asked`: from now on, the end of the request's graph ends a
    /// wait, too.
    pub(crate) fn of_request(self, asked: Asked) -> Awaited<T> {
        Awaited { asked: Some(asked), ..self }
    }

    /// Chooses how threads wait for the value. Default: [`Wait::Blocking`]. [`Wait::Adaptive`] acts
    /// like [`Wait::Blocking`] here: it learns from earlier waits, and a promise is awaited only
    /// once.
    ///
    /// ```
    /// use slipring::Wait;
    /// let (promise, answer) = slipring::promise();
    /// let mut answer = answer.with_wait(Wait::BusySpin);
    /// std::thread::spawn(move || promise.fulfil("soon"));
    /// assert_eq!(answer.wait()?, "soon");
    /// # Ok::<(), slipring::errors::AwaitError>(())
    /// ```
    pub fn with_wait(self, wait: Wait) -> Awaited<T> {
        Awaited { wait: Some(Contained::new(wait)), ..self }
    }

    /// Waits for the value, and returns it.
    ///
    /// ```
    /// let (promise, mut answer) = slipring::promise();
    /// std::thread::spawn(move || promise.fulfil(42));
    /// assert_eq!(answer.wait(), Ok(42));
    /// ```
    ///
    /// A thread that also owns the promise's other half waits for ever, unless the strategy has a
    /// timeout, because the library does not know which thread owns a half. If the other half was
    /// forgotten (`std::mem::forget`), the thread waits until the graph of its request ends, or for
    /// ever if the promise belongs to no request.
    ///
    /// If the calling thread is one of the threads that run the stages of the request's graph
    /// ([`Chain::threads`](crate::Chain::threads),
    /// [`Chain::run_inline`](crate::Chain::run_inline)), it runs these stages while it waits.
    ///
    /// # Errors
    /// - [`AwaitError::Broken`]: the promise was dropped.
    /// - [`AwaitError::Taken`]: an earlier call has returned the value.
    /// - [`AwaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`AwaitError::Wait`], for a request: its graph has ended, or the wait would never end.
    /// - [`AwaitError::Skipped`], for a request: a stage has failed at it, and skipped it.
    ///
    /// # Cost
    /// Costs a load and a move if the value is already there. A sleeping waiter costs the promise's
    /// owner one wake-up. A thread that sleeps until the answer to a request comes also allocates a
    /// waker, and takes a lock that all sleeping askers of the ring share.
    #[inline]
    pub fn wait(&mut self) -> Result<T, AwaitError> {
        match self.try_take()? {
            Some(value) => Ok(value),
            None => self.wait_on(None),
        }
    }

    /// Waits for the value as [`wait`](Awaited::wait) does, at most for the given time.
    ///
    /// ```
    /// use slipring::errors::AwaitError;
    /// use std::time::Duration;
    ///
    /// let (promise, mut answer) = slipring::promise();
    /// assert_eq!(answer.wait_for(Duration::from_millis(1)), Err(AwaitError::TimedOut));
    /// promise.fulfil(7).unwrap();
    /// assert_eq!(answer.wait_for(Duration::from_millis(1)), Ok(7));
    /// ```
    ///
    /// # Errors
    /// - [`AwaitError::Broken`]: the promise was dropped.
    /// - [`AwaitError::Taken`]: an earlier call has returned the value.
    /// - [`AwaitError::TimedOut`]: the given time is over, which replaces the strategy's timeout.
    ///   The call may be repeated.
    /// - [`AwaitError::Wait`], for a request: its graph has ended, or the wait would never end.
    /// - [`AwaitError::Skipped`], for a request: a stage has failed at it, and skipped it.
    ///
    /// If the time exceeds the clock's range, only the strategy's timeout limits the wait.
    ///
    /// # Cost
    /// Costs what [`wait`](Awaited::wait) costs. If the value is not there yet, the call also reads
    /// the clock.
    #[inline]
    pub fn wait_for(&mut self, time: Duration) -> Result<T, AwaitError> {
        match self.try_take()? {
            Some(value) => Ok(value),
            None => match now().checked_add(time) {
                Some(deadline) => self.wait_on(Some(deadline)),
                None => self.wait_on(None),
            },
        }
    }

    /// Waits for the value as [`wait`](Awaited::wait) does, at most until `deadline`.
    ///
    /// Example: [`wait_for`](Awaited::wait_for).
    ///
    /// # Errors
    /// - [`AwaitError::Broken`]: the promise was dropped.
    /// - [`AwaitError::Taken`]: an earlier call has returned the value.
    /// - [`AwaitError::TimedOut`]: `deadline` passed. The call may be repeated.
    /// - [`AwaitError::Wait`], for a request: its graph has ended, or the wait would never end.
    /// - [`AwaitError::Skipped`], for a request: a stage has failed at it, and skipped it.
    ///
    /// # Cost
    /// Costs what [`wait_for`](Awaited::wait_for) costs.
    #[inline]
    pub fn wait_until(&mut self, deadline: Instant) -> Result<T, AwaitError> {
        match self.try_take()? {
            Some(value) => Ok(value),
            None => self.wait_on(Some(deadline)),
        }
    }

    /// Returns the value of a fulfilled promise, or `None` if the promise is neither fulfilled nor
    /// broken yet. Never waits.
    ///
    /// ```
    /// let (promise, mut answer) = slipring::promise();
    /// assert_eq!(answer.try_take()?, None);
    /// promise.fulfil(7).unwrap();
    /// assert_eq!(answer.try_take()?, Some(7));
    /// assert_eq!(answer.try_take(), Err(slipring::errors::AwaitError::Taken));
    /// # Ok::<(), slipring::errors::AwaitError>(())
    /// ```
    ///
    /// # Errors
    /// - [`AwaitError::Broken`]: the promise was dropped.
    /// - [`AwaitError::Taken`]: an earlier call has returned the value.
    /// - [`AwaitError::Wait`], for a request: its graph has ended without an answer.
    /// - [`AwaitError::Skipped`], for a request: a stage has failed at it, and skipped it.
    ///
    /// # Cost
    /// Costs a load, and a move if the value is there. If the answer to a request is not there, the
    /// call executes a second load. If the graph has ended or is about to end, it also takes a
    /// lock, and loads each stage's position.
    #[inline]
    pub fn try_take(&mut self) -> Result<Option<T>, AwaitError> {
        match self.take_settled() {
            Ok(None) if self.asked.is_some() => self.take_or_end(),
            found => found,
        }
    }

    /// Takes the value. If the promise is not settled and its graph has ended, returns the error
    /// that says how the graph ended (I3).
    fn take_or_end(&mut self) -> Result<Option<T>, AwaitError> {
        match self.asked.as_ref().and_then(Asked::over) {
            None => Ok(None),
            Some(end) => self.take_settled()?.map_or(Err(end), |value| Ok(Some(value))),
        }
    }

    /// Takes the value of a fulfilled promise, even if the graph has ended.
    #[inline]
    fn take_settled(&mut self) -> Result<Option<T>, AwaitError> {
        let half = self.half.as_ref().ok_or(AwaitError::Taken)?;
        match half.settlement() {
            None => Ok(None),
            Some(Settlement::Broken) => Err(AwaitError::Broken),
            Some(Settlement::Fulfilled) => {
                self.asked = None;
                Ok(self.half.take().and_then(WaiterHalf::leave))
            }
        }
    }

    /// Returns whether a call would return at once: the value is there or was taken, the promise is
    /// broken, or the graph of the request has ended. Once it has returned `true`, it always does.
    ///
    /// ```
    /// let (promise, answer) = slipring::promise::<u64>();
    /// assert!(!answer.is_settled());
    /// drop(promise);
    /// assert!(answer.is_settled());
    /// ```
    ///
    /// # Cost
    /// Costs what [`try_take`](Awaited::try_take) costs, without the move.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.half.as_ref().is_none_or(|half| half.settlement().is_some())
            || self.asked.as_ref().is_some_and(Asked::is_over)
    }

    #[cold]
    #[inline(never)]
    fn wait_on(&mut self, deadline: Option<Instant>) -> Result<T, AwaitError> {
        if self.asked.is_some() {
            return self.wait_for_answer(deadline);
        }
        let timeout = if deadline.is_none() { self.strategy().timeout() } else { None };
        self.wait_once(Bounds { deadline, until: deadline, timeout, notice: None })?;
        self.take_settled()?.ok_or(AwaitError::TimedOut)
    }

    fn strategy(&self) -> &Wait {
        self.wait.as_deref().unwrap_or(&Wait::Blocking)
    }

    /// Waits for the answer to a request.
    fn wait_for_answer(&mut self, deadline: Option<Instant>) -> Result<T, AwaitError> {
        // A caller's own deadline replaces the strategy's timeout.
        let timeout = || self.strategy().timeout().and_then(|it| now().checked_add(it));
        let deadline = deadline.or_else(timeout);
        loop {
            let Some(asked) = &self.asked else { return Err(AwaitError::Taken) };
            let is_late = deadline.is_some_and(|deadline| now() >= deadline);
            // This thread may itself run the stage that gives the answer.
            let stepped = !is_late && asked.step(deadline);
            if !stepped {
                let look = || now().checked_add(helper::LOOK_AGAIN);
                let look = if asked.is_helped() { look() } else { None };
                let until = [deadline, asked.deadline(), look].into_iter().flatten().min();
                let notice = asked.is_inside().then_some(Asked::NAP);
                let stuck = self.wait_once(Bounds { deadline, until, timeout: None, notice })?;
                if let Some(value) = self.try_take()? {
                    return Ok(value);
                }
                if let Some(stuck) = stuck {
                    return Err(AwaitError::Wait(stuck));
                }
            }
            if let Some(asked) = &self.asked {
                asked.expire();
            }
            if let Some(value) = self.try_take()? {
                return Ok(value);
            }
            if is_late {
                return Err(AwaitError::TimedOut);
            }
        }
    }

    /// Waits until a poll is due, or until one of the `bounds` is reached. If the wait would never
    /// end, returns the error that says so.
    fn wait_once(&mut self, bounds: Bounds) -> Result<Option<WaitError>, AwaitError> {
        let Bounds { deadline, until, timeout, notice } = bounds;
        let half = self.half.as_mut().ok_or(AwaitError::Taken)?;
        let wait = self.wait.as_deref().unwrap_or(&Wait::Blocking);
        let asked = self.asked.as_ref();
        let sleep = Sleep::new(half, asked);
        let wait = || {
            let options = WaitOptions {
                wait,
                polls: 0,
                full_ring: None,
                queue: wait.parks().then_some(&sleep as _),
                deadline: until,
                timeout,
            };
            let mut answer = Answer { sleep: &sleep, asked, deadline, notice, stuck: None };
            wait_until(options, &mut HandleLearner::default(), &mut answer);
            answer.stuck
        };
        Ok(match asked {
            Some(asked) => asked.waiting(wait),
            None => wait(),
        })
    }

    /// Registers a task, unless the promise is settled.
    fn arm(&mut self, context: &Context<'_>) {
        let Some(half) = &self.half else { return };
        // SAFETY: the mutable reference excludes other uses of the half.
        let before = unsafe { half.withdraw() };
        let (own, replaced) = match before {
            Some(Sleeper::Task(waker)) if waker.will_wake(context.waker()) => (waker, None),
            before => (context.waker().clone(), before),
        };
        // SAFETY: the mutable reference excludes other uses of the half. The registered sleeper was
        // taken back, or the promise is settled.
        unsafe { half.register(Sleeper::Task(own)) };
        // Dropping a waker runs user code, so a panic of the drop is contained.
        drop_contained(replaced);
    }

    /// Registers a task with the graph of the request, unless a poll is due.
    fn arm_with_graph(&mut self, context: &Context<'_>) {
        let (Some(half), Some(asked)) = (&self.half, &mut self.asked) else { return };
        asked.expire();
        asked.keeps_task();
        let asked = &*asked;
        let ready = &mut || half.settlement().is_some() || asked.is_over();
        // `arm` returns `true` if a poll is due, or if the system refused the barrier that a
        // sleeper needs. Then the task polls again.
        if asked.arm(context.waker(), ready) {
            context.waker().wake_by_ref();
        }
    }
}

/// The condition for which a thread waits: the promise is settled, its graph has ended, or there is
/// a stage to run.
struct Answer<'a, T> {
    sleep: &'a Sleep<'a, T>,
    asked: Option<&'a Asked>,
    /// Deadline of the call.
    deadline: Option<Instant>,
    /// Longest time between two checks whether the wait would never end.
    notice: Option<Duration>,
    /// The error of a wait that would never end.
    stuck: Option<WaitError>,
}

impl<T> Condition for Answer<'_, T> {
    fn is_ready(&mut self) -> bool {
        let has_step = |asked: &Asked| asked.has_step(self.deadline);
        self.sleep.is_over() || self.asked.is_some_and(has_step)
    }

    fn keep_waiting(&mut self) -> KeepWaiting {
        self.stuck = self.asked.and_then(Asked::stuck);
        match self.stuck {
            Some(_) => ControlFlow::Break(Unmet::TimedOut),
            None => ControlFlow::Continue(self.notice),
        }
    }
}

/// The task is woken when the promise is fulfilled or broken, or when the promise's graph ends. A
/// later poll may bring another waker, which replaces the previous waker; only the last waker is
/// woken.
///
/// No thread wakes a task when the graph's deadline passes; the task's next poll then fails the
/// graph. A poll on a thread that runs the graph's stages
/// ([`Chain::threads`](crate::Chain::threads), [`Chain::run_inline`](crate::Chain::run_inline))
/// runs one batch of one of these stages, and asks to be polled again at once.
///
/// The value is ready only once, so this future needs no budget, unlike a ring's futures.
///
/// ```
/// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
/// let (promise, answer) = slipring::promise::<u64>();
/// let mut task = pin!(async { Ok::<u64, slipring::errors::AwaitError>(answer.await? + 1) });
/// # let mut context = Context::from_waker(Waker::noop());
/// assert!(task.as_mut().poll(&mut context).is_pending());
/// promise.fulfil(41).unwrap();
/// assert_eq!(task.poll(&mut context), Poll::Ready(Ok(42)));
/// ```
impl<T> Future for Awaited<T> {
    type Output = Result<T, AwaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(taken) = self.try_take().transpose() {
            return Poll::Ready(taken);
        }
        if self.asked.as_ref().is_some_and(Asked::is_helped) {
            self.asked.as_ref().map(|asked| asked.step(None));
            context.waker().wake_by_ref();
        } else {
            self.arm(context);
            self.arm_with_graph(context);
        }
        self.try_take().transpose().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> fmt::Debug for Awaited<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.half.as_ref().map(WaiterHalf::settlement);
        let state = match outcome {
            None => "taken",
            Some(None) => "pending",
            Some(Some(Settlement::Fulfilled)) => "fulfilled",
            Some(Some(Settlement::Broken)) => "broken",
        };
        f.debug_struct("Awaited").field("state", &state).finish()
    }
}
