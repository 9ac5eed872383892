//! A producer's handle: its state, its open claim, its counts, and its drop. The module
//! [`producer`](crate::producer) states the invariants.

use std::fmt;
use std::time::Duration;

use crate::base::direct::Direct;
use crate::base::prefetch::FetchForStore;
use crate::base::sync::{AtomicU64, panicking, twin};
use crate::errors::{Cause, ClaimError, WaitError};
use crate::ring::control::Control;
use crate::ring::core::{Core, Taken};
use crate::ring::counters::LocalCounts;
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout, Storage as _, View};
use crate::ring::stamp::Lap;
use crate::ring::status::StatusWords;
use crate::ring::task_budget::TaskBudget;
use crate::ring::task_number::TaskNumber;
use crate::ring::world::World;
use crate::wait::HandleLearner;
use crate::wait::quiet_check::QuietCheck;

/// The reason why a reservation did not succeed at once.
pub(crate) enum Refusal {
    /// The ring is full. The field is the index of the slowest gating stage or, in a ring without
    /// one, of the producers (see `Plan::producer_party`).
    Gated(usize),
    /// Another producer moved the claim word during the call.
    Contended,
    /// The graph takes no more events.
    Wait(WaitError),
}

/// How a producer shares its ring with others.
pub(crate) mod sealed {
    use super::{Producer, Refusal};
    use crate::ring::core::Core;
    use crate::ring::slots::Layout;

    /// The kind of a producer's handle: whether it is the only one of its ring, how it takes
    /// positions, and how it ends.
    #[allow(private_interfaces)]
    pub trait Sharing: Sized + 'static {
        /// Whether the ring may have several producers.
        #[doc(hidden)]
        const MANY: bool;

        /// Returns the state of a new handle. The handle's first claim begins at `next`, unless
        /// another producer claims first.
        #[doc(hidden)]
        fn at(next: u64) -> Self;

        /// Takes `len` positions if they are free now. The caller has checked that the ring is
        /// running.
        #[doc(hidden)]
        fn reserve<E, L: Layout>(
            producer: &mut Producer<E, L, Self>,
            len: u64,
        ) -> Result<u64, Refusal>;

        /// Like [`Sharing::reserve`], for a call that waits without a deadline. The result may come
        /// late, after a wait for the slots of an early claim.
        #[doc(hidden)]
        #[inline(always)]
        fn reserve_patiently<E, L: Layout>(
            producer: &mut Producer<E, L, Self>,
            len: u64,
        ) -> Result<u64, Refusal> {
            Self::reserve(producer, len)
        }

        /// Returns how many positions a claim takes if it asks for `len` positions from `seq` on.
        /// The claims of some producers stop at the ring's end.
        #[doc(hidden)]
        #[inline(always)]
        fn within_end<E, L: Layout>(_: &Producer<E, L, Self>, _seq: u64, len: u64) -> u64 {
            len
        }

        /// Makes later claims stop at the ring's end, if this kind of producer needs that.
        #[doc(hidden)]
        fn stop_at_end(&mut self) {}

        /// Returns the position from which the next claim takes slots, and whether the ring is
        /// closed to claims. `next` is the position that the handle learned last.
        #[doc(hidden)]
        fn claimed<E, L: Layout>(core: &Core<E, L>, next: u64) -> (u64, bool);

        /// Called before the positions `[seq, seq + len)` of a claim are published.
        #[doc(hidden)]
        #[inline(always)]
        fn begin_front<E, L: Layout>(_: &mut Producer<E, L, Self>, _seq: u64, _len: u64) {}

        /// Called after the positions `[seq, seq + len)` of a claim were published.
        #[doc(hidden)]
        #[inline(always)]
        fn end_front<E, L: Layout>(_: &mut Producer<E, L, Self>, _seq: u64, _len: u64) {}

        /// Ends a handle that has no open claim and no longer counts as a producer. If the handle
        /// was the `last` one, closes the ring. If `leaves` is `true`, the handle does not close
        /// the ring, but leaves its place to another process.
        #[doc(hidden)]
        fn leave<E, L: Layout>(producer: &Producer<E, L, Self>, last: bool, leaves: bool);

        /// Called as the last step of a handle's drop, after the handle has flushed its counts.
        #[doc(hidden)]
        #[inline(always)]
        fn left<E, L: Layout>(_: &Core<E, L>) {}
    }

    /// The kind of producer that can be cloned.
    #[diagnostic::on_unimplemented(
        message = "a `Producer` that is not a `SharedProducer` cannot be cloned",
        label = "the ring has room for this producer only",
        note = "several producers need `spawn_shared`, `run_shared`, or a graph `Graph::new(..).shared()`: these give a `SharedProducer`, which each thread can clone"
    )]
    pub trait Shared: Sharing {}
}

/// Marks the only producer of a ring.
pub struct Single(pub(super) ());
/// Marks one of several producers that share a ring. A producer of a shared ring can be cloned.
pub struct Many {
    /// The number of free slots behind a claim that this handle must know of to claim early; see
    /// [`many`](super::many).
    pub(super) margin: u64,
    /// Whether no other producer claimed between this handle's last two claims.
    pub(super) is_undisturbed: bool,
}

/// A producer's handle: it claims slots, fills them in place and publishes them.
///
/// A ring has one producer (the default) or several ([`SharedProducer`]).
///
/// - [`publish`](Producer::publish) calls a closure that fills one slot, and then publishes the
///   event. [`claim`](Producer::claim) and [`claim_n`](Producer::claim_n) lend slots to fill
///   without a closure. Stages see no event after an open claim until that claim is published or
///   given up.
/// - Dropping a ring's last producer closes the ring. The stages drain a closed ring.
/// - A claimed slot still holds the event of one lap ago, so reset every field that matters.
/// - A producer that is dropped by a panic of its thread fails the graph.
///
/// ```
/// let (mut tx, mut rx) = slipring::unicast(4, || 0u64)?;
/// assert_eq!(tx.publish(|slot| *slot = 7)?, 0); // the position
/// let mut claim = tx.claim_n(2)?;
/// claim[0] = 8;
/// claim[1] = 9;
/// claim.publish();
/// drop(tx);
/// let mut sum = 0;
/// rx.for_each(|value, _| sum += value)?;
/// assert_eq!(sum, 24);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "Sender")]
#[doc(alias = "RingBuffer")]
// The alignment gives the handle its own cache lines, so that its stores slow down no thread that
// uses neighbouring memory.
#[repr(align(128))]
pub struct Producer<E, L: Layout = Interleaved, S: sealed::Sharing = Single> {
    pub(crate) core: Owner<E, L>,
    pub(crate) slots: View<E, L>,
    /// With a single producer, the next position to claim. With many producers, the claim word's
    /// position at this handle's last load or claim.
    pub(crate) next: u64,
    /// Known end of the free positions: the gating stages have released every position before
    /// `limit - capacity`.
    pub(crate) limit: u64,
    /// End of the *plain* publications (producer::I5). With a single producer, a position; with
    /// many producers, a number of events of this handle.
    pub(crate) plain_until: u64,
    /// The lap of the plain publications. Only the handle of a single producer uses this field.
    pub(crate) lap: Lap,
    /// The instruction by which publications and claims fetch the line of a later slot, if the
    /// processor has it; see [`Producer::fetch_ahead`].
    pub(crate) fetch: Option<FetchForStore>,
    /// The same, if the next publication fetches a line.
    pub(crate) fetches: Option<FetchForStore>,
    /// Position before which publications fetch the lines of later slots.
    pub(crate) fetch_until: u64,
    /// The graph's status, by which each claim notices a halt or a failure.
    pub(crate) status: Direct<StatusWords>,
    /// The word by which several producers claim: the claim word. With a single producer, the word
    /// by which it publishes in a ring without stamps: the cursor.
    pub(crate) word: Direct<AtomicU64>,
    /// Position and length of a claim that is neither published nor given up. Only the handles of a
    /// ring with many producers use this field.
    open_claim: Option<(u64, u64)>,
    /// Number under which the tasks of this handle wait.
    pub(crate) number: TaskNumber,
    /// Number of results that this handle's futures may return before they give the thread back.
    pub(crate) budget: TaskBudget,
    /// Schedule by which this handle's refused calls check for dead processes.
    pub(crate) checks: <L::World as World>::Checks,
    /// Whether no publication is plain (producer::I5), because each one records latency samples,
    /// assigns shard ids, or stores a cursor beside the stamps.
    pub(crate) always_does_more: bool,
    /// Whether a publication may have to refresh stamps (stamp::I1).
    pub(crate) refreshes: bool,
    pub(crate) learned: HandleLearner,
    /// The check by which a publication decides whether to notify wait queues.
    pub(crate) quiet_check: QuietCheck,
    /// A position that the claim word of a sleeping pool has reached, as this handle last saw it.
    pub(crate) taken: Taken,
    pub(crate) counts: LocalCounts,
    /// The values of `counts` at the handle's last flush to the graph's counters.
    flushed: LocalCounts,
    /// Number of published events at the last counted wait of a task, or `u64::MAX` if no wait was
    /// counted.
    armed_at: u64,
    /// Number of events that were published together with an earlier event. The number of batches
    /// is the number of events minus `coalesced`. A publication of a single event leaves
    /// `coalesced` unchanged.
    pub(crate) coalesced: u64,
    /// Whether the graph survives a drop of this handle during a panic. This is true from the start
    /// if the thread that creates the handle is already unwinding, and it becomes true at `close`
    /// or `close_all`.
    pub(crate) ignores_panic: bool,
    /// The part of the handle's state that depends on the kind of producer.
    pub(crate) sharing: S,
}

/// A producer's handle of a ring that several producers share. Clone the handle for each thread, or
/// turn it into a [`Publisher`](crate::Publisher), by which all threads publish through `&self`.
///
/// ```
/// let graph = slipring::Graph::new(64, || 0u64).shared();
/// let key = graph.reader("sum");
/// let ring = graph.build()?;
/// let (producer, mut reader) = (ring.producer(), ring.reader(key));
/// std::thread::scope(|s| {
///     for i in 1..=3 {
///         let mut producer = producer.clone();
///         s.spawn(move || producer.publish(|slot| *slot = i));
///     }
///     drop(producer); // the last clone closes the ring
///     let mut sum = 0;
///     reader.for_each(|value, _| sum += value).unwrap();
///     assert_eq!(sum, 6);
/// });
/// # Ok::<(), slipring::Error>(())
/// ```
pub type SharedProducer<E, L = Interleaved> = Producer<E, L, Many>;

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Creates a handle, and counts it as a producer. The caller creates `learned`, because the
    /// wait strategy may panic while it does so. A panic in this function would leave the number of
    /// producers too high.
    pub(crate) fn new(core: Owner<E, L>, learned: HandleLearner) -> Self {
        core.control.membership.add_producer();
        let start = core.control.start;
        let next = if S::MANY { core.control.claimed(start).0 } else { start };
        // With many producers, other handles may have claimed the positions before `next`. The new
        // handle knows only that the gating stages allowed those claims.
        let limit = if S::MANY { next } else { start.wrapping_add(core.capacity()) };
        let plan = &core.control.plan;
        let refreshes = core.may_refresh(next, limit);
        let always_does_more = core.control.counters.samples.is_some()
            || !plan.producer_partitions.is_empty()
            || (!S::MANY && plan.cursor && plan.stamped);
        let mut producer = Producer {
            slots: core.slots,
            next,
            limit,
            plain_until: 0,
            lap: core.slots.lap(next),
            fetch: FetchForStore::known(),
            fetches: None,
            fetch_until: next,
            status: Direct::to(core.control.status.words()),
            word: Direct::to(match S::MANY {
                true => core.control.positions.claim(),
                false => core.control.positions.cursor_word(),
            }),
            open_claim: None,
            learned,
            quiet_check: core.control.waits.quiet_check(&core.control.plan),
            taken: Taken::at(next),
            counts: LocalCounts::default(),
            flushed: LocalCounts::default(),
            armed_at: u64::MAX,
            number: TaskNumber::default(),
            budget: TaskBudget::default(),
            checks: Default::default(),
            always_does_more,
            refreshes,
            coalesced: 0,
            ignores_panic: panicking(),
            sharing: S::at(next),
            core,
        };
        producer.plan_ahead();
        producer
    }

    /// Creates a single producer that continues at `next`, where another process stopped.
    pub(crate) fn resume(core: Owner<E, L>, next: u64, learned: HandleLearner) -> Self {
        let mut producer = Producer::new(core, learned);
        // The handle finds out at its first claim which slots are free.
        (producer.next, producer.limit, producer.fetch_until) = (next, next, next);
        producer.plan_ahead();
        // The earlier producers have counted their events.
        let before = next.wrapping_sub(producer.core.control.start);
        (producer.flushed.events, producer.flushed.batches) = (before, before);
        producer
    }

    /// Creates the producer of a run. A panic of the wait strategy's learner fails the graph.
    pub(crate) fn of_run(core: &Owner<E, L>) -> Self {
        Producer::new(
            core.clone(),
            core.control.learner_contained(core.control.plan.producer_party()),
        )
    }

    /// Returns a pointer to the event of a position that this handle has claimed.
    #[inline(always)]
    pub(crate) fn cell(&self, seq: u64) -> *mut E {
        self.slots.event(seq)
    }

    pub(crate) fn view(&self) -> View<E, L> {
        self.slots
    }

    pub(crate) fn core(&self) -> &Owner<E, L> {
        &self.core
    }

    /// Returns the number of slots of the ring.
    ///
    /// ```
    /// let (tx, _rx) = slipring::unicast(8, || 0u64)?;
    /// assert_eq!(tx.capacity(), 8);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.slots.mask() as usize + 1
    }

    /// Returns the position that this handle's next claim gets, unless another producer of the ring
    /// claims it first: the position was free when this handle last claimed slots or was made.
    ///
    /// ```
    /// let (mut tx, _rx) = slipring::unicast(8, || 0u64)?;
    /// assert_eq!(tx.next_seq(), 0);
    /// tx.publish(|slot| *slot = 7)?;
    /// assert_eq!(tx.next_seq(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// Closes this handle, as a drop does. After the close of the last handle, the stages drain the
    /// published events and end.
    ///
    /// A drop of the handle during a panic of the thread fails the graph; a close does not.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// tx.publish(|slot| *slot = 1)?;
    /// tx.close();
    /// assert_eq!(rx.for_each(|_, _| ())?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(mut self) {
        self.ignores_panic = true;
    }

    /// Ends the graph at once, without draining the ring. The stages end, and leave the remaining
    /// published events unhandled. Every blocking call returns
    /// [`WaitError::Halted`](crate::errors::WaitError::Halted).
    ///
    /// ```
    /// use slipring::errors::WaitError;
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// tx.publish(|slot| *slot = 1)?;
    /// tx.halt();
    /// assert!(matches!(rx.for_each(|_, _| ()), Err(WaitError::Halted)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn halt(&self) {
        self.core.control.halt();
    }

    #[inline]
    pub(crate) fn check_length(&self, asked: usize) -> Result<(), ClaimError> {
        let capacity = self.capacity();
        if (1..=capacity).contains(&asked) {
            Ok(())
        } else {
            Err(ClaimError::Length { asked, capacity })
        }
    }

    /// Returns the number under which tasks of this handle wait. The first call draws the number.
    pub(crate) fn task_number(&mut self) -> u64 {
        self.number.get(&self.core.control.membership)
    }

    pub(crate) fn disarm(&mut self) {
        if let Some(number) = self.number.taken() {
            let control = &self.core.control;
            self.core.world.disarm(control, control.plan.producer_party(), number);
        }
    }

    // The open claim.

    /// Records the claim that this handle has neither published nor given up.
    #[inline(always)]
    pub(crate) fn set_open_claim(&mut self, open: Option<(u64, u64)>) {
        if S::MANY {
            self.open_claim = open;
        }
    }

    /// Clears the record of the open claim. The claim's lease publishes the claim or gives it up.
    #[inline(always)]
    pub(crate) fn clear_open_claim(&mut self) {
        self.open_claim = None;
    }

    /// Gives up the open claim, if any. A lease that was forgotten leaves its claim open. A raw
    /// handle's claim is open until the claim is published or given up.
    #[inline(always)]
    pub(crate) fn give_up_open_claim(&mut self) {
        // Without this check, `Option::take` would write to memory at every claim, even if no claim
        // is open.
        if self.open_claim.is_some() {
            self.take_open_claim();
        }
    }

    #[cold]
    fn take_open_claim(&mut self) {
        if let Some((seq, len)) = self.open_claim.take() {
            twin!("forgotten-unburied": self.give_up(seq, len) => ());
        }
    }

    /// Gives up claimed positions. In a ring with many producers, turns the positions into
    /// tombstones.
    #[cold]
    pub(crate) fn give_up(&mut self, seq: u64, len: u64) {
        // A forked child must not touch the memory of a segment, because it is not mapped there.
        if L::World::SHARED && !self.core.control.is_own_process() {
            return;
        }
        // A single producer claims the given-up positions again (I3).
        if S::MANY && len != 0 {
            if let Some(samples) = &self.core.control.counters.samples {
                samples.publishing(seq, len, false);
            }
            twin!("given-up-unburied": self.core.bury(seq, len) => ());
            self.counts.tombstones += len;
            self.flush_counts();
        }
    }

    // Counting.

    /// Counts an event that was dropped instead of published.
    pub(crate) fn count_dropped(&mut self) {
        self.counts.dropped += 1;
        self.flush_counts();
    }

    /// Adds `events` to the number of events that were published together with an earlier event.
    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn count_coalesced(&mut self, events: u64) {
        self.coalesced = self.coalesced.wrapping_add(events);
    }

    /// Returns the number of events that this handle has published. In a ring with a single
    /// producer, the number includes the events of its predecessors in other processes.
    fn published(&self) -> u64 {
        if S::MANY { self.counts.events } else { self.next.wrapping_sub(self.core.control.start) }
    }

    /// Adds the counts of this handle to the graph's counters.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush_counts(&mut self) {
        let (_, _, mut counts) = self.begin_wait();
        counts.flush();
    }

    /// Like [`Producer::flush_counts`], after every [`FLUSH_EVERY`] events.
    ///
    /// [`FLUSH_EVERY`]: crate::ring::counters::FLUSH_EVERY
    #[cold]
    #[inline(never)]
    pub(crate) fn flush_regularly(&mut self) {
        self.note_thread();
        self.flush_counts();
    }

    fn note_thread(&mut self) {
        let control = &self.core.control;
        control.note_thread(control.plan.producer_party(), &mut self.learned.noted);
    }

    /// Called before a wait, which uses the returned parts of the handle.
    pub(super) fn begin_wait(&mut self) -> (&Core<E, L>, &mut HandleLearner, WaitingCounts<'_>) {
        self.counts.events = self.published();
        self.counts.batches = self.counts.events.wrapping_sub(self.coalesced);
        let core = &*self.core;
        core.control.note_releases();
        let (counts, flushed) = (&self.counts, &mut self.flushed);
        (core, &mut self.learned, WaitingCounts { control: &core.control, counts, flushed })
    }

    /// Flushes the counts if an event was published since the last flush. A handle that finds no
    /// room calls this method, so that the counts of a handle behind a full ring are complete.
    pub(crate) fn flush_if_new(&mut self) {
        if self.published() != self.flushed.events {
            self.flush_counts();
        }
    }

    /// Counts the wait of a task, or of another owner of a waker. Several waits without a
    /// publication in between count once.
    pub(crate) fn count_armed(&mut self) {
        let published = self.published();
        if self.armed_at != published {
            self.armed_at = published;
            self.counts.waits += 1;
            self.note_thread();
            self.flush_counts();
        } else {
            self.flush_if_new();
        }
    }
}

/// The counts of a producer that waits.
pub(super) struct WaitingCounts<'p> {
    control: &'p Control,
    counts: &'p LocalCounts,
    flushed: &'p mut LocalCounts,
}

impl WaitingCounts<'_> {
    /// See [`Awaited::flush_after`](crate::ring::waits::Awaited::flush_after).
    pub(super) fn flush_after(&self) -> Option<Duration> {
        Some(self.counts.flush_after(self.flushed, self.control.plan.gating.len() > 1))
    }

    /// Adds the counts to the graph's counters.
    pub(super) fn flush(&mut self) {
        let party = self.control.plan.producer_party();
        self.control.counters.flush(party, self.counts, self.flushed);
        *self.flushed = *self.counts;
    }
}

impl<E, L: Layout, S: sealed::Sharing> Drop for Producer<E, L, S> {
    fn drop(&mut self) {
        if !self.core.control.is_own_process() {
            return;
        }
        self.give_up_open_claim();
        self.disarm();
        let control = &self.core.control;
        let fail = || {
            control.fail(
                control.plan.producer_party(),
                Some(self.next),
                Cause::Panic(HELD_PANIC.into()),
            )
        };
        // If a panic drops a producer of a segment, the graph does not fail: another process may
        // take the producer's place.
        let leaves = L::World::SHARED && panicking();
        let unwinds = panicking() && !self.ignores_panic && !leaves;
        if unwinds {
            twin!("failed-late": fail() => ()); // SYNC[failed]: before the count
        }
        // A handle that is dropped during a panic records a failure before it leaves the count of
        // producers. So the failures of all other handles have been recorded by the time the last
        // handle closes the ring (`edge::counted_out`). With several producers, the last handle
        // closes the ring at the claim word's position.
        let last = control.membership.remove_producer(); // SYNC[counted-out]: before the close
        twin!("left-unclosed": () => control.membership.remove_claimant());
        S::leave(self, last, leaves);
        twin!("failed-late": () => if unwinds {
            fail();
        });
        // This handle stops counting as a claimant only after it has closed the ring. So if one
        // claimant remains, and claims without a compare-and-swap, it finds the ring closed.
        twin!("left-unclosed": control.membership.remove_claimant() => ()); // SYNC[left-alone]
        self.flush_counts();
        S::left(&self.core);
    }
}

/// Failure message for a producer that a panic dropped: the library does not see the panic's
/// payload.
pub(crate) const HELD_PANIC: &str = "the thread that held the producer panicked";

impl<E, L: Layout, S: sealed::Sharing> fmt::Debug for Producer<E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("next_seq", &self.next)
            .field("capacity", &self.capacity())
            .finish()
    }
}
