//! Waiting until stages have passed what was published.

use std::time::Instant;

use crate::base::name::PRODUCER;
use crate::errors::{PassError, WaitError};
use crate::producer::handle::{Producer, SharedProducer, sealed};
use crate::producer::publisher::Publisher;
use crate::ring::passing::{Goal, PassAsync};
use crate::ring::slots::Layout;
use crate::ring::words::ahead;

impl<E: Send, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Waits until the stage named `stage` has passed the position `seq`, which
    /// [`publish`](Producer::publish) returned.
    ///
    /// A stage has passed a position once it has released the event there: its handler has
    /// returned, and so has its end of batch. So the caller sees the effects of the handler. An
    /// event that the stage skipped by its policy counts as passed, and so does a claim that was
    /// given up. A pool passes a position once its workers have released every event up to there,
    /// and a sharded stage once every shard has. A tap passes it once the stages before it have,
    /// and each of its members; a tap without members holds nothing up.
    ///
    /// A group commit, which answers once the event is in the journal:
    ///
    /// ```
    /// use std::sync::Mutex;
    /// let journal = Mutex::new(Vec::new());
    /// slipring::ring(64, String::new)
    ///     .read_batch("journal", |orders, _| {
    ///         // One write for all orders that have come meanwhile.
    ///         journal.lock().unwrap().extend(orders.iter().cloned());
    ///     })
    ///     .read("execute", |_, _| ())
    ///     .run(|tx| {
    ///         let seq = tx.publish(|slot| *slot = "buy 7".into())?;
    ///         tx.wait_for("journal", seq)?;
    ///         assert_eq!(journal.lock().unwrap()[0], "buy 7"); // now answer "accepted"
    ///         Ok(())
    ///     })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// The call waits as the party does that follows the stage: by its strategy, and in its wait
    /// queue. If the calling thread is one of the threads that run the graph's stages
    /// ([`Chain::threads`](crate::Chain::threads),
    /// [`Chain::run_inline`](crate::Chain::run_inline)), it runs these stages meanwhile.
    ///
    /// # Errors
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::NotPublished`]: the ring was closed before `seq`, or begins behind it.
    /// - [`PassError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`PassError::Wait`]: the graph was halted or has failed, or its deadline has passed.
    /// - [`PassError::Wait`] with [`WaitError::WaitsForItself`]: the caller is inside a handler of
    ///   this stage or of a stage before it, or only this producer can publish `seq`.
    /// - [`PassError::Wait`] with [`WaitError::PeerDead`], in segments: the process of the stage,
    ///   or of a stage before it, has died.
    /// - [`PassError::Wait`] with [`WaitError::NameLost`] or [`WaitError::Damaged`], in segments:
    ///   the name no longer refers to the segment's file, or the segment's words contradict each
    ///   other.
    ///
    /// A caller that holds a batch of the stage by hand waits for ever; the guide has [more such
    /// waits](crate::guide::waiting#waits-that-never-would-end).
    ///
    /// # Cost
    /// A graph without such calls pays nothing for them. A call looks for the name among the
    /// stages, and costs a few loads if the stage has passed. A sleeping caller is woken by each
    /// release of the stage until it has passed, which costs the stage a system call each. Where no
    /// party behind the stage sleeps, or the stage and its followers run on shared threads, the
    /// stage wakes no caller, and the caller polls.
    #[doc(alias = "waitFor")]
    pub fn wait_for(&mut self, stage: &str, seq: u64) -> Result<(), PassError> {
        let goal = self.goal(stage, seq)?;
        self.wait_goal(goal, None)
    }

    /// Like [`wait_for`](Producer::wait_for), but waits at most until `deadline`, which replaces
    /// the strategy's timeout.
    ///
    /// ```
    /// use slipring::errors::PassError;
    /// use std::time::{Duration, Instant};
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// let seq = tx.publish(|slot| *slot = 1)?;
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// let late = tx.wait_for_by("reader", seq, soon);
    /// assert!(matches!(late, Err(PassError::TimedOut(stage)) if &*stage == "reader"));
    /// rx.poll(8, |_, _| ())?;
    /// tx.wait_for_by("reader", seq, soon)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::NotPublished`]: the ring was closed before `seq`, or begins behind it.
    /// - [`PassError::TimedOut`]: `deadline` passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn wait_for_by(
        &mut self,
        stage: &str,
        seq: u64,
        deadline: Instant,
    ) -> Result<(), PassError> {
        let goal = self.goal(stage, seq)?;
        self.wait_goal(goal, Some(deadline))
    }

    /// Like [`wait_for`](Producer::wait_for), but for a task instead of a thread.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// let seq = tx.publish(|slot| *slot = 1)?;
    /// let mut passed = pin!(tx.wait_for_async("reader", seq));
    /// # let mut context = Context::from_waker(Waker::noop());
    /// assert!(passed.as_mut().poll(&mut context).is_pending());
    /// rx.poll(8, |_, _| ())?;
    /// assert!(matches!(passed.poll(&mut context), Poll::Ready(Ok(()))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::NotPublished`]: the ring was closed before `seq`, or begins behind it.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn wait_for_async(&mut self, stage: &str, seq: u64) -> PassAsync<'_> {
        let goal = self.goal(stage, seq);
        PassAsync::owned(&**self.core(), goal)
    }

    /// Waits until every last stage has passed everything that was published before the call, by
    /// this producer or by others. Stages that no stage follows are the last; see
    /// [`wait_for`](Producer::wait_for) for the meaning of "passed".
    ///
    /// ```
    /// let written = std::sync::atomic::AtomicUsize::new(0);
    /// slipring::ring(64, String::new)
    ///     .read("write", |line, _| { written.fetch_add(line.len(), std::sync::atomic::Ordering::Relaxed); })
    ///     .run(|log| {
    ///         log.publish(|line| *line = "started".into())?;
    ///         log.flush()?;
    ///         assert_eq!(written.load(std::sync::atomic::Ordering::Relaxed), 7);
    ///         Ok(())
    ///     })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// In a ring with several producers, the call also waits for what the others have claimed
    /// before the call. So a producer that keeps a claim open holds the call up. If a stage gathers
    /// its batches ([`batch_within(max, time)`](crate::Chain::batch_within)), the call takes as
    /// long as the batch: up to `time`.
    ///
    /// # Errors
    /// - [`PassError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    ///
    /// If the ring was closed, the call waits for the last event.
    ///
    /// # Cost
    /// Costs what [`wait_for`](Producer::wait_for) costs for each last stage, without the name.
    pub fn flush(&mut self) -> Result<(), PassError> {
        let goal = self.all_before();
        self.wait_goal(goal, None)
    }

    /// Like [`flush`](Producer::flush), but waits at most until `deadline`.
    ///
    /// Example: [`wait_for_by`](Producer::wait_for_by).
    ///
    /// # Errors
    /// - [`PassError::TimedOut`]: `deadline` passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn flush_by(&mut self, deadline: Instant) -> Result<(), PassError> {
        let goal = self.all_before();
        self.wait_goal(goal, Some(deadline))
    }

    /// Like [`flush`](Producer::flush), but for a task instead of a thread. The future waits for
    /// what was published before this call, not before its first poll.
    ///
    /// Example: [`wait_for_async`](Producer::wait_for_async).
    ///
    /// # Errors
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    /// - [`PassError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn flush_async(&mut self) -> PassAsync<'_> {
        let goal = self.all_before();
        PassAsync::owned(&**self.core(), Ok(goal))
    }

    pub(super) fn goal(&mut self, stage: &str, seq: u64) -> Result<Goal, PassError> {
        self.give_up_open_claim();
        let control = &self.core.control;
        let goal = Goal::stage(control, stage, seq)?;
        // No other producer can publish the position while this call borrows the only one.
        if !S::MANY && control.is_own_process() && ahead(seq, self.next) >= 0 {
            let name = control.plan.name_of(control.plan.producer_party());
            debug_assert_eq!(&*name, PRODUCER);
            return Err(PassError::Wait(WaitError::WaitsForItself(name)));
        }
        Ok(goal)
    }

    /// Waits for everything that was published before the call.
    pub(super) fn all_before(&mut self) -> Goal {
        self.give_up_open_claim();
        let is_own = self.core.control.is_own_process();
        Goal::before(if is_own { S::claimed(&self.core, self.next).0 } else { self.next })
    }

    fn wait_goal(&mut self, goal: Goal, deadline: Option<Instant>) -> Result<(), PassError> {
        if let Some(result) = goal.result(&**self.core()) {
            return result;
        }
        self.flush_if_new();
        goal.wait(&**self.core(), deadline)
    }
}

impl<E: Send, L: Layout> Publisher<E, L> {
    /// Waits until `stage` has passed the event at `seq`, as [`Producer::wait_for`] does.
    ///
    /// ```
    /// let (journal, pipeline) =
    ///     slipring::ring(64, String::new).read("write", |_, _| ()).spawn_shared()?;
    /// let journal = journal.into_publisher();
    /// let seq = journal.publish(|line| *line = "an order".into())?;
    /// journal.wait_for("write", seq)?; // the order is written
    /// drop(journal);
    /// pipeline.join()?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::NotPublished`]: the ring was closed before `seq`, or begins behind it.
    /// - [`PassError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    pub fn wait_for(&self, stage: &str, seq: u64) -> Result<(), PassError> {
        self.with(|producer| producer.wait_for(stage, seq))
    }

    /// Like [`wait_for`](Publisher::wait_for), but waits at most until `deadline`, as
    /// [`Producer::wait_for_by`].
    ///
    /// Example: [`Producer::wait_for_by`].
    ///
    /// # Errors
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::NotPublished`]: the ring was closed before `seq`, or begins behind it.
    /// - [`PassError::TimedOut`]: `deadline` passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    pub fn wait_for_by(&self, stage: &str, seq: u64, deadline: Instant) -> Result<(), PassError> {
        self.with(|producer| producer.wait_for_by(stage, seq, deadline))
    }

    /// Like [`wait_for`](Publisher::wait_for), but for a task instead of a thread, as
    /// [`Producer::wait_for_async`].
    ///
    /// Example: [`Producer::wait_for_async`].
    ///
    /// # Errors
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::NotPublished`]: the ring was closed before `seq`, or begins behind it.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    pub fn wait_for_async(&self, stage: &str, seq: u64) -> PassAsync<'_> {
        let goal = self.with(|producer| producer.goal(stage, seq));
        PassAsync::owned(&**self.core(), goal)
    }

    /// Waits until every last stage has passed everything that was published before the call, by
    /// any thread, as [`Producer::flush`] does.
    ///
    /// ```
    /// let (log, pipeline) =
    ///     slipring::ring(64, String::new).read("write", |_, _| ()).spawn_shared()?;
    /// let log = log.into_publisher();
    /// log.publish(|line| *line = "the last words".into())?;
    /// log.flush()?; // they are written
    /// drop(log);
    /// pipeline.join()?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`PassError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    pub fn flush(&self) -> Result<(), PassError> {
        self.with(SharedProducer::flush)
    }

    /// Like [`flush`](Publisher::flush), but waits at most until `deadline`.
    ///
    /// Example: [`Producer::wait_for_by`].
    ///
    /// # Errors
    /// - [`PassError::TimedOut`]: `deadline` passed.
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    pub fn flush_by(&self, deadline: Instant) -> Result<(), PassError> {
        self.with(|producer| producer.flush_by(deadline))
    }

    /// Like [`flush`](Publisher::flush), but for a task instead of a thread.
    ///
    /// Example: [`Producer::wait_for_async`].
    ///
    /// # Errors
    /// - [`PassError::Wait`]: the graph has stopped, or the call would wait for itself.
    pub fn flush_async(&self) -> PassAsync<'_> {
        let goal = self.with(SharedProducer::all_before);
        PassAsync::owned(&**self.core(), Ok(goal))
    }
}
