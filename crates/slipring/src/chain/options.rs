//! Options of the whole chain, and of the last declared stage.

use std::time::Duration;

use super::declare::{Chain, MakeRunners, Monitored};
use super::scope::{Sequential, sealed};
use crate::base::panics::Contained;
use crate::live::monitor::Monitor;
use crate::ring::policy::{Faulted, Marks, OnFault, Policy};
use crate::ring::settings::ring_options;
use crate::ring::slots::Layout;
use crate::ring::spec::{Delivery, StageSpec, ThreadChoice};
use crate::run::judge::{Failed, Judge, Judges};
use crate::run::placement::Placement;
use crate::run::threads::Threads;
use crate::wait::Wait;

impl<'env, E: Send, L: Layout> Chain<'env, E, L, Sequential> {
    ring_options! {
        /// ```
        /// use slipring::Wait;
        /// let mut sum = 0;
        /// slipring::ring(64, || 0u64)
        ///     .wait(Wait::SLEEPING)
        ///     .read("sum", |value, _| sum += value)
        ///     .feed(1..=3, |slot, i| *slot = i)?;
        /// assert_eq!(sum, 6);
        /// # Ok::<(), slipring::Error>(())
        /// ```
        wait;
        /// Example: [`Chain::stage_wait`].
        producer_wait;
        /// ```
        /// let mut first = None;
        /// slipring::ring(64, || 0u64)
        ///     .first_seq(100)
        ///     .read("note", |_, at| _ = first.get_or_insert(at.seq))
        ///     .feed(0..3, |slot, i| *slot = i)?;
        /// assert_eq!(first, Some(100));
        /// # Ok::<(), slipring::Error>(())
        /// ```
        first_seq;
        /// ```
        /// use std::time::Duration;
        /// let error = slipring::ring(2, || 0u64)
        ///     .deadline(Duration::from_millis(1))
        ///     .read_by("stuck", |rx| {
        ///         let batch = rx.batch(1)?; // never released while the producer waits
        ///         std::thread::sleep(Duration::from_millis(20));
        ///         Ok::<_, slipring::errors::BatchError>(batch.release())
        ///     })
        ///     .feed(0.., |slot, i| *slot = i)
        ///     .unwrap_err();
        /// assert!(error.failure().is_some());
        /// ```
        deadline;
        /// ```
        /// let done = slipring::ring(64, || 0u64)
        ///     .sample_latency(1)
        ///     .read("sum", |_, _| ())
        ///     .feed(0..10, |slot, i| *slot = i)?;
        /// assert_eq!(done.report.stage("sum").unwrap().latency.unwrap().samples, 10);
        /// # Ok::<(), slipring::Error>(())
        /// ```
        sample_latency;
        /// ```
        /// let mut sum = 0;
        /// slipring::ring(1 << 16, || [0u64; 4])
        ///     .huge_pages()
        ///     .read("sum", |block, _| sum += block[0])
        ///     .feed(0..10, |slot, i| *slot = [i; 4])?;
        /// assert_eq!(sum, 45);
        /// # Ok::<(), slipring::Error>(())
        /// ```
        huge_pages;
        /// ```
        /// let mut sum = 0;
        /// slipring::ring(64, || 0u64)
        ///     .allow_overcommit()
        ///     .read("sum", |value, _| sum += value)
        ///     .feed(1..=3, |slot, i| *slot = i)?;
        /// assert_eq!(sum, 6);
        /// # Ok::<(), slipring::Error>(())
        /// ```
        allow_overcommit;
    }

    /// Lets a monitor observe the running chain.
    ///
    /// Example: [`Monitor`].
    ///
    /// With a monitor, a single producer publishes its position, so that lags and free slots are
    /// exact. The monitor costs the producer one more store for each publication.
    pub fn monitor(mut self, monitor: &Monitor) -> Self {
        self.settings_mut().publish_cursor = true;
        self.declared.monitors.push(Monitored::new(monitor));
        self
    }

    /// Sets a hook for failures that a stage survives by its policy ([`Chain::on_error`],
    /// [`Chain::on_panic`]) or by the decision of its closure ([`Chain::on_error_with`]). One hook
    /// hears of all stages, for a log or a counter, and decides nothing. The hook is called on the
    /// stage's thread, before the stage continues. A panic in the hook ends the graph.
    ///
    /// ```
    /// use slipring::OnFault;
    /// use std::sync::Mutex;
    /// let log = Mutex::new(Vec::new());
    /// slipring::ring(8, || 0u64)
    ///     .on_faults(|fault| log.lock().unwrap().push(fault.to_string()))
    ///     .read("send", |value, _| if *value == 2 { Err("busy") } else { Ok(()) })
    ///     .on_error(OnFault::skip())
    ///     .feed(0..4, |slot, i| *slot = i)?;
    /// assert_eq!(log.into_inner().unwrap(), ["stage `send` failed at event 2 (skipped): busy"]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn on_faults(mut self, hook: impl Fn(&Faulted) + Send + Sync + 'env) -> Self {
        self.declared.hooks.set_on_faults(hook);
        self
    }

    /// Runs the stages on `threads` threads that all stages share, instead of a thread for each
    /// stage, worker and shard.
    ///
    /// Any of these threads takes the next batch of any stage that has events. A thread prefers the
    /// stages that it ran last, and among these the stages behind the stage that it has just run.
    /// After these it takes stages that another thread ran last, beginning with the stage that is
    /// furthest downstream. A batch takes about 32 µs, and less if a thread waits for the stage's
    /// release.
    ///
    /// A stage runs on one thread at a time, so its handler keeps its state and needs only be
    /// `Send`. A pool or a sharded stage runs on as many threads at once as it has workers or
    /// shards. Order, draining, failures, policies and deadlines work as they do for stages with
    /// threads of their own. Reports say how long each stage ran, and on how many threads
    /// ([`StageReport::turns`](crate::reports::StageReport::turns)).
    ///
    /// The thread that calls [`run`](Chain::run) or [`feed`](Chain::feed) is one of the shared
    /// threads: it runs stages whenever it would wait for room, and after it has closed the ring.
    /// With `threads(1)`, a thread is started for the stages, and the calling thread only produces,
    /// because its closure may wait for a stage. [`spawn`](Chain::spawn) starts all `threads`. The
    /// library never starts more threads than there are stages, workers and shards.
    /// [`run_inline`](Chain::run_inline) ignores `threads`, and runs all stages on the calling
    /// thread.
    ///
    /// Shared threads suit graphs with more stages than cores. A stage whose handler blocks, such
    /// as a journal that waits for a disk, keeps one of the threads busy; [`on`](Chain::on) and
    /// [`read_by`](Chain::read_by) give such a stage a thread of its own. A handler also needs its
    /// own thread if it waits, outside of the ring, for another handler or for the producer's
    /// closure. Otherwise all shared threads may end up waiting; or the producer's thread may
    /// itself run the handler that waits for its closure.
    ///
    /// While a handler waits for the ring itself, for room or for an event of a handle, its thread
    /// runs other stages. The handlers of these stages run inside the waiting handler. If such an
    /// inner handler waits for a release that the waiting handler still has to make, its call
    /// returns [`WaitError::WaitsForItself`](crate::errors::WaitError::WaitsForItself).
    ///
    /// In the producer's closure, a call with a deadline, such as
    /// [`publish_by`](crate::Producer::publish_by), runs no stage whose usual turn would pass the
    /// deadline; one of the started threads runs that stage. Inside a handler, a call with a
    /// deadline runs any stage, because no other thread may be free. So the call may return late by
    /// the length of that stage's turn.
    ///
    /// ```
    /// let mut sum = 0;
    /// slipring::ring(64, || 0u64)
    ///     .threads(2)
    ///     .update("double", |value, _| *value *= 2)
    ///     .update("increment", |value, _| *value += 1)
    ///     .read("sum", |value, _| sum += value)
    ///     .feed(1..=3, |slot, i| *slot = i)?;
    /// assert_eq!(sum, 15);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// All stages on these threads wait together, so all strategies that
    /// [`stage_wait`](Chain::stage_wait) sets for them must be the same. The start fails if
    /// `threads` is zero.
    pub fn threads(mut self, threads: impl Into<Threads>) -> Self {
        self.declared.threads = Some(threads.into());
        self
    }

    /// Sets where the threads of the chain run. By default, the system decides.
    ///
    /// The build asks `placement` for a place for each thread, the producer's among them. Each
    /// thread of the library is bound to its place before its first stage starts, and before the
    /// hook of [`on_thread_start`](Chain::on_thread_start), so the hook can still change the
    /// binding. The thread that calls [`run`](Chain::run) or [`feed`](Chain::feed) is bound to the
    /// producer's place until the call returns. A chain of several producers
    /// ([`run_shared`](Chain::run_shared)) binds no producer's thread. A thread that produces for a
    /// [`spawn`](Chain::spawn)ed chain binds itself
    /// ([`Pipeline::bind_thread`](crate::Pipeline::bind_thread)).
    ///
    /// A thread begins with the binding of the thread that starts it. So start your program's
    /// thread pools and child processes before the chain. If a handler or the closure that produces
    /// started them, they would stay on one core.
    ///
    /// The calling thread makes the slots while it is bound to the place that the placement chose
    /// for the ring's memory. On a machine with several NUMA nodes, the memory is then near the
    /// stages, if the allocator takes it fresh from the system, as it does for large rings.
    ///
    /// ```
    /// use slipring_machine::{Machine, Placement};
    /// let machine = Machine::this()?;
    /// # // A machine of one core has no such placement.
    /// # if machine.assign(&Placement::SharedCache, &["producer", "sum"]).is_err() { return Ok(()); }
    /// let mut sum = 0;
    /// slipring::ring(1024, || 0u64)
    ///     .placement(machine.at(Placement::SharedCache))
    ///     .read("sum", |value, _| sum += value)
    ///     .feed(1..=3, |slot, i| *slot = i)?;
    /// assert_eq!(sum, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// To write a placement of your own, implement [`Placement`]. The start fails with
    /// [`BuildError::Placement`](crate::errors::BuildError::Placement) if the machine does not
    /// allow the placement. [`run_inline`](Chain::run_inline) binds no thread.
    pub fn placement(mut self, placement: impl Placement + 'env) -> Self {
        self.declared.placement = Some(Contained::new(Box::new(placement)));
        self
    }

    /// Sets a hook that each thread calls with its own name, before the thread's first stage
    /// starts. The hook may pin the thread or set its priority. A panic in the hook ends the graph.
    ///
    /// Build the chain before you bind the calling thread. The build counts the cores on which that
    /// thread may run; adaptive waits and [`Threads::Auto`] depend on this number.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// let names = Mutex::new(Vec::new());
    /// slipring::ring(8, || 0u64)
    ///     .on_thread_start(|thread| names.lock().unwrap().push(thread.to_owned()))
    ///     .read("print", |_, _| ())
    ///     .feed(0..1, |slot, i| *slot = i)?;
    /// assert_eq!(names.into_inner().unwrap(), ["print"]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn on_thread_start(mut self, hook: impl Fn(&str) + Send + Sync + 'env) -> Self {
        self.declared.hooks.set_on_start(hook);
        self
    }
}

impl<'env, E: Send + 'env, L: Layout, P: sealed::ChainScope> Chain<'env, E, L, P> {
    /// Changes the last declared stage for the option `option`. If the option follows no stage,
    /// records the mistake that `missing` returns, or that it follows a fan-out; otherwise records
    /// a mistake that `change` returns.
    fn edit_last(
        mut self,
        option: &str,
        missing: impl FnOnce() -> String,
        change: impl FnOnce(&mut StageSpec) -> Result<(), String>,
    ) -> Self {
        let changed = self.declared.stage_of(option, missing).and_then(change);
        if let Err(problem) = changed {
            self.declared.stages.reject(problem);
        }
        self
    }

    /// Changes the policy of the last declared stage. `option` is the name of the calling method,
    /// for error messages.
    fn edit_policy(self, option: &str, change: impl FnOnce(&mut Policy)) -> Self {
        let missing = || format!("`{option}` must follow the stage that it is for");
        self.edit_last(option, missing, |spec| match spec {
            StageSpec { delivery: Delivery::Tap(_), name, .. } => Err(format!(
                "`{option}` follows tap `{name}`, whose readers are not the chain's: it must follow a stage"
            )),
            StageSpec { policy: Policy { user_loop: true, .. }, name, .. } => Err(format!(
                "`{option}` follows `{name}`, which has a loop of its own: handle failures and batches in that loop"
            )),
            StageSpec { policy, .. } => {
                change(policy);
                Ok(())
            }
        })
    }

    /// Gives the last declared stage a closure that decides about its failures. `set` puts the
    /// closure into the stage's [`Judges`], unless a later call has set another one.
    fn judged(self, option: &str, set: impl FnOnce(&mut Judges<'env, E, L>) + 'env) -> Self {
        let set = Contained::new(set);
        let mut has_handler = false;
        let mut chain = self.edit_policy(option, |_| has_handler = true);
        if has_handler && let Some(make_runners) = chain.declared.make_runners.pop() {
            let judged: MakeRunners<'env, E, L> = Box::new(move |core, stage, mut judges| {
                set.into_inner()(&mut judges);
                make_runners.into_inner()(core, stage, judges)
            });
            chain.declared.make_runners.push(Contained::new(judged));
        }
        chain
    }

    /// Sets a policy for errors that the handler of the last declared stage returns. Default:
    /// [`OnFault::stop`]. [`Chain::on_error_with`] takes a closure instead, which sees the event
    /// and the error of each failure.
    ///
    /// Example: [`OnFault`].
    ///
    /// The policy also applies to an error of `batch_end` or `idle`, which belongs to no event.
    /// After such an error, a stage with [`OnFault::skip`] skips no event, and releases the events
    /// that its handler has handled.
    pub fn on_error(self, on: OnFault) -> Self {
        self.edit_policy("on_error", |policy| policy.on_error = on)
    }

    /// Lets a closure decide what follows an error that the handler of the last declared stage
    /// returns. The closure gets the error, the failed event, its position, and the number of
    /// tries so far ([`Failed`]). So it can put the event aside as a dead letter:
    ///
    /// ```
    /// use slipring::OnFault;
    /// use std::time::Duration;
    /// # fn send(order: &String) -> Result<(), std::io::Error> {
    /// #     if order == "bad" { Err(std::io::Error::other("refused")) } else { Ok(()) }
    /// # }
    /// let mut dead = Vec::new();
    /// let done = slipring::ring(8, String::new)
    ///     .read("send", |order, _| send(order))
    ///     .on_error_with(|failed| {
    ///         if failed.tries() <= 2 {
    ///             return OnFault::retry(2).pause(Duration::from_millis(1));
    ///         }
    ///         dead.push((failed.seq(), failed.error().to_string(), failed.event().cloned()));
    ///         OnFault::skip()
    ///     })
    ///     .feed(["good", "bad"], |slot, order| *slot = order.into())?;
    /// assert_eq!(dead, [(Some(1), "refused".to_owned(), Some("bad".to_owned()))]);
    /// let send = done.report.stage("send").unwrap();
    /// assert_eq!((send.retries, send.skipped), (2, 1));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// The stage acts on each result as if it were the stage's policy: it counts tries from release
    /// to release, and stops if `OnFault::retry(n)` has no retry left. The closure takes the place
    /// of [`Chain::on_error`], also if `on_error` is called later. A closure may publish dead
    /// letters into a ring of their own, with a producer that it owns.
    ///
    /// The stage's thread calls the closure, and handles nothing meanwhile. The workers of a pool,
    /// and the shards of a stage, share one closure, and call it one at a time. A panic of the
    /// closure ends the graph. Inside of the closure, a wait that needs any worker or shard of the
    /// same stage returns [`WaitError::WaitsForItself`](crate::errors::WaitError::WaitsForItself),
    /// because each of them may fail, and would then wait for the closure. Such waits are a
    /// publication into the stage's own full ring, `wait_for`, `flush`, and a wait for an answer.
    ///
    /// # Cost
    /// As for [`OnFault::retry`], because the closure may ask for retries: the stage releases
    /// often, so that a retry repeats little. A failure costs the call. If another worker is in the
    /// closure, the failed worker looks again after each millisecond.
    #[doc(alias = "ExceptionHandler")]
    pub fn on_error_with(
        self,
        decide: impl FnMut(&Failed<'_, E, L>) -> OnFault + Send + 'env,
    ) -> Self {
        let judge = Judge::new(decide);
        self.judged("on_error_with", |judges| _ = judges.on_error.get_or_insert(judge))
    }

    /// Lets a closure decide what follows a panic in the handler of the last declared stage, as
    /// [`Chain::on_error_with`] does for errors. [`Failed::error`] has the panic's message.
    ///
    /// ```
    /// use slipring::OnFault;
    /// let mut lost = Vec::new();
    /// slipring::ring(8, || 0u64)
    ///     .read("divide", |value, _| drop(10_u64.checked_div(*value).expect("not zero")))
    ///     .on_panic_with(|failed| {
    ///         lost.push((failed.seq(), failed.error().to_string()));
    ///         OnFault::skip()
    ///     })
    ///     .feed([5, 0, 2], |slot, i| *slot = i)?;
    /// assert_eq!(lost, [(Some(1), "not zero".to_owned())]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn on_panic_with(
        self,
        decide: impl FnMut(&Failed<'_, E, L>) -> OnFault + Send + 'env,
    ) -> Self {
        let judge = Judge::new(decide);
        self.judged("on_panic_with", |judges| _ = judges.on_panic.get_or_insert(judge))
    }

    /// Sets a policy for panics in the handler of the last declared stage. Default:
    /// [`OnFault::stop`].
    ///
    /// The stage calls the handler again after its panic, so the handler's state must be consistent
    /// at every point where the handler may panic.
    ///
    /// ```
    /// use slipring::OnFault;
    /// let mut sum = 0;
    /// let done = slipring::ring(8, || 0u64)
    ///     .read("sum", |value, _| sum += 10_u64.checked_div(*value).expect("not zero"))
    ///     .on_panic(OnFault::skip())
    ///     .feed([0, 2, 5], |slot, i| *slot = i)?;
    /// assert_eq!((done.report.stage("sum").unwrap().skipped, sum), (1, 7));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    #[doc(alias = "ExceptionHandler")]
    pub fn on_panic(self, on: OnFault) -> Self {
        self.edit_policy("on_panic", |policy| policy.on_panic = on)
    }

    /// Lets the last declared stage record its skipped events in `marks`. Later stages can look up
    /// the skipped events in `marks`.
    ///
    /// Example: [`Marks`].
    ///
    /// A [`Marks`] belongs to one stage, and takes eight bytes of memory for each slot of the ring.
    pub fn marks(self, marks: &Marks) -> Self {
        self.edit_policy("marks", |policy| policy.marks = Some(marks.clone()))
    }

    /// Sets the largest number of events that the last declared stage handles before a release.
    /// `events` applies to each worker or shard of the stage; 0 counts as 1.
    ///
    /// Smaller batches let later stages start earlier, and let a retry repeat fewer events. Each
    /// release costs the stage one store, and a wake-up if another thread sleeps.
    ///
    /// ```
    /// let mut longest = 0;
    /// slipring::ring(64, || 0u64)
    ///     .read_batch("send", |events, _| longest = longest.max(events.len()))
    ///     .max_batch(4)
    ///     .feed(0..100, |slot, i| *slot = i)?;
    /// assert!((1..=4).contains(&longest));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn max_batch(self, events: usize) -> Self {
        self.edit_policy("max_batch", |policy| policy.max_batch = (events as u64).max(1))
    }

    /// Lets the last declared stage wait until it has `max` events, or until its oldest event has
    /// waited for `time`, before it calls its handler. The stage takes batches
    /// ([`Chain::read_batch`], [`Chain::update_batch`]). So it can send "up to 1,000 records, or
    /// what came in 50 ms" in one write.
    ///
    /// A batch also ends with the stream, at a position that was given up, and when its events and
    /// those that later stages have not released fill the ring. 0 events count as 1, and a smaller
    /// [`Chain::max_batch`] wins. A batch that is retried is not gathered again.
    ///
    /// The stage may hold the whole ring, unlike a stage without this option, so the ring should be
    /// a few times as large as `max`, or as the sum of the batches of all stages in a row that
    /// gather. In a ring that is too small for that sum, or that a slow later stage keeps full, an
    /// earlier stage gets shorter batches.
    ///
    /// On shared threads ([`Chain::threads`], [`Chain::on`]), a batch that is due may have to wait
    /// for a thread, as any event does. [`Chain::run_inline`] reads no clock: a turn of the stage
    /// handles what is there.
    ///
    /// ```
    /// use std::time::Duration;
    /// let mut sent = Vec::new();
    /// slipring::ring(64, || 0u64)
    ///     .read_batch("send", |events, _| sent.push(events.len()))
    ///     .batch_within(16, Duration::from_secs(60))
    ///     .feed(0..40, |slot, i| *slot = i)?;
    /// assert_eq!(sent, [16, 16, 8]); // the last batch ended with the stream
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// [`Consumer::batch_within`](crate::Consumer::batch_within) says more about the wait. A stage
    /// with a loop of its own calls that function.
    pub fn batch_within(self, max: usize, time: Duration) -> Self {
        let takes_batches = self.declared.takes_batches;
        let mut chain = self.edit_policy("batch_within", |policy| policy.gather(max, time));
        let stages = &mut chain.declared.stages;
        if let Some(StageSpec { policy, name, .. }) = stages.last_mut()
            && let Some(correction) = policy.gathers_in_vain(takes_batches)
        {
            let problem = format!("`batch_within` follows `{name}`, {correction}");
            stages.reject(problem);
        }
        chain
    }

    /// Sets the interval at which the last declared stage calls
    /// [`ReadHandler::idle`](crate::stages::ReadHandler::idle) while it waits. By default, it calls
    /// `idle` once before each wait.
    ///
    /// ```
    /// use slipring::{At, faults::Fault, stages::ReadHandler};
    /// use std::time::Duration;
    /// struct Journal { idles: u64 }
    /// impl ReadHandler<u64> for Journal {
    ///     fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> { Ok(()) }
    ///     fn idle(&mut self) -> Result<(), Fault> { self.idles += 1; Ok(()) }
    /// }
    /// let mut journal = Journal { idles: 0 };
    /// slipring::ring(8, || 0u64)
    ///     .read_with("journal", &mut journal)
    ///     .idle_every(Duration::from_millis(1))
    ///     .run(|_tx| Ok(std::thread::sleep(Duration::from_millis(20))))?;
    /// println!("{} calls while nothing came", journal.idles);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    #[doc(alias = "onTimeout")]
    pub fn idle_every(self, time: Duration) -> Self {
        self.edit_policy("idle_every", |policy| policy.idle_every = Some(time))
    }

    /// Sets the waiting strategy of the last declared stage, in place of [`Chain::wait`]. The
    /// strategy applies to each worker or shard of the stage.
    ///
    /// Stages that share a thread ([`Chain::on`]) wait together, so all strategies that are set for
    /// these stages must be the same.
    ///
    /// ```
    /// use slipring::Wait;
    /// let mut sum = 0;
    /// slipring::ring(64, || 0u64)
    ///     .producer_wait(Wait::YIELDING)
    ///     .read("trade", |value, _| sum += value).stage_wait(Wait::BusySpin)
    ///     .read("journal", |_, _| ()).stage_wait(Wait::SLEEPING)
    ///     .feed(0..100, |slot, i| *slot = i)?;
    /// assert_eq!(sum, 4950);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn stage_wait(self, wait: Wait) -> Self {
        let wait = Contained::new(wait);
        let missing =
            || "`stage_wait` must follow the stage that it is for; `wait` is for all".to_owned();
        self.edit_last("stage_wait", missing, |spec| {
            spec.wait = Some(wait);
            Ok(())
        })
    }

    /// Puts the last declared stage on the thread of this name. All stages that name the same
    /// thread take turns on that thread. A chain with more stages than the machine has cores is
    /// often faster when some of them share a thread.
    ///
    /// Pools, shards, taps, and stages that run a user's loop ([`Chain::read_by`]) cannot share a
    /// thread with other stages.
    ///
    /// ```
    /// let mut sum = 0;
    /// slipring::ring(64, || 0u64)
    ///     .update("double", |value, _| *value *= 2).on("worker")
    ///     .read("sum", |value, _| sum += value).on("worker")
    ///     .feed(1..=3, |slot, i| *slot = i)?;
    /// assert_eq!(sum, 12);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn on(self, thread: &str) -> Self {
        let missing =
            || format!("`on({thread:?})` must follow the stage that it puts on that thread");
        self.edit_last("on", missing, |spec| {
            let StageSpec { name, delivery, policy, .. } = &*spec;
            let reason = match delivery {
                _ if policy.user_loop => {
                    format!("`{name}`, which has a loop of its own and cannot take turns")
                }
                Delivery::Each => {
                    spec.thread = ThreadChoice::Named(thread.to_owned());
                    return Ok(());
                }
                Delivery::Tap(_) => {
                    format!("tap `{name}`, whose readers come with threads of their own")
                }
                Delivery::Shards(_) => format!("shards `{name}`, which have threads of their own"),
                Delivery::Pool { .. } => {
                    format!("pool `{name}`, whose workers have threads of their own")
                }
            };
            Err(format!("`on({thread:?})` follows {reason}"))
        })
    }
}
