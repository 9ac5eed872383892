//! A tap is a declared place where readers join and leave while the graph runs.
//!
//! A tap is a stage whose members change. Its frontier is the smallest position among its members
//! and the stages before it; without members, it holds nothing back. A party behind a tap is a
//! stage, or the producers if no stage follows. It first announces the position up to which it will
//! go, and then loads the members' bounds (positions::I3).
//!
//! Invariants
//! - I1: a member's line holds the member's first unreleased position, or `IDLE`. Between joining
//!   and leaving, only the member's handle stores to the line. If the member's process dies, the
//!   process that recovers the member stores to the line instead.
//! - I2: a joiner *pins* a position by storing it on its line. It then issues a fence, loads the
//!   announced positions, and keeps its pin, or moves it on to the furthest announced position. For
//!   each party behind the tap, either the joiner sees the party's announcement, or the party sees
//!   the pin (`edge::joined`). So no party behind the tap passes the joiner's position before the
//!   joiner releases it.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use crate::base::edge;
use crate::base::sync::{Arc, Relaxed, Weak, twin};
use crate::consumer::handle::Consumer;
use crate::consumer::markers::{Joined, Reading};
use crate::consumer::role::MemberRole;
use crate::consumer::sequential::SequentialPosition;
use crate::errors::{BuildError, SubscribeError};
use crate::live::stage_ref::StageRef;
use crate::ring::core::Core;
use crate::ring::membership::ask_to_leave;
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout};
use crate::ring::spec::Delivery;
use crate::ring::waits::Place;
use crate::ring::words::{ahead, later};

/// The position at which a tap's new reader begins.
///
/// Example: [`Tap::subscribe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartAt {
    /// The next event that reaches the tap.
    Now,
    /// The oldest event that is still held for the tap. How old that event is depends on how far
    /// the producers and the stages behind the tap have advanced.
    Oldest,
    /// The given position, for instance the [`next_seq`](Consumer::next_seq) of a subscription that
    /// has left.
    At(u64),
}

/// A reader that has joined a tap. It is used like a [`Reader`](crate::Reader), but the graph
/// continues after it leaves. It sees each event exactly once, starting with the event at
/// [`next_seq`](Consumer::next_seq). Until the reader releases an event or leaves, it holds back
/// the producers, and each stage behind the tap that may write events. Dropping the subscription,
/// on any thread, makes the reader leave.
///
/// Example: [`Tap::subscribe`].
pub type Subscription<E, L = Interleaved> = Consumer<E, Reading, Joined, L>;

/// A place of a running graph where readers join and leave. [`Chain::tap`](crate::Chain::tap) or
/// [`Graph::tap`](crate::Graph::tap) declares it, and all clones refer to the same place. Without
/// readers, a tap costs each stage behind it at most one fence per batch, and each producer one
/// fence whenever the producer checks for free slots.
///
/// A tap belongs to one running graph at a time. Once [`run`](crate::Chain::run) has returned, or
/// an ended pipeline was joined, the tap can be declared in another graph. A [`Subscription`] keeps
/// the ring alive even after the graph's run. When the last owner of the ring is dropped, which may
/// be a subscription, the ring's events are dropped, too.
///
/// ```
/// use slipring::{Tap, handles::StartAt};
/// let tap = Tap::new();
/// slipring::ring(64, || 0u64).update("double", |v, _| *v *= 2).tap(&tap).run(|p| {
///     p.publish(|v| *v = 1)?;
///     let mut late = tap.subscribe(StartAt::Now)?;
///     for i in 2..5 { p.publish(|v| *v = i)?; }
///     let first = late.batch(1)?;
///     assert!([2, 4].contains(&first[0])); // the writer may have released the first event already
///     first.release();
///     Ok(()) // the reader is dropped here: it leaves
/// })?;
/// # Ok::<(), slipring::Error>(())
/// ```
#[doc(alias = "FanOut")]
pub struct Tap<E, L: Layout = Interleaved> {
    stage_ref: StageRef<Core<E, L>>,
    name: Option<std::sync::Arc<str>>,
    room: usize,
}

impl<E, L: Layout> Clone for Tap<E, L> {
    fn clone(&self) -> Self {
        Tap { stage_ref: self.stage_ref.clone(), name: self.name.clone(), room: self.room }
    }
}

impl<E, L: Layout> Default for Tap<E, L> {
    fn default() -> Self {
        Tap::new()
    }
}

impl<E, L: Layout> Tap<E, L> {
    /// Creates a tap named `tap`, with room for 16 readers at a time. The second such tap of a
    /// chain is named `tap-2`, and so on.
    ///
    /// Example: [`Tap`].
    pub fn new() -> Self {
        Tap { stage_ref: StageRef::unbound(), name: None, room: 16 }
    }

    /// Creates a tap with a name of its own, for errors and reports.
    ///
    /// Example: [`Tap::room`].
    pub fn named(name: &str) -> Self {
        Tap { name: Some(name.into()), ..Tap::new() }
    }

    /// Sets how many readers can be subscribed to this tap at the same time: 1 to
    /// [`MAX_STAGE_HANDLES`](crate::stages::MAX_STAGE_HANDLES).
    ///
    /// The ring allocates 256 bytes for each reader that the tap has room for. Each thread that the
    /// tap can hold back checks the tap. While a reader is subscribed, each check loads one cache
    /// line for every reader that the tap has room for.
    ///
    /// ```
    /// use slipring::{Tap, errors::SubscribeError, handles::StartAt};
    /// let tap = Tap::named("audit").room(1);
    /// slipring::ring(8, || 0u64).tap(&tap).run(|_producer| {
    ///     let _first = tap.subscribe(StartAt::Now)?;
    ///     let second = tap.subscribe(StartAt::Now);
    ///     assert!(matches!(second, Err(SubscribeError::Full { room: 1 })));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn room(self, readers: usize) -> Self {
        Tap { room: readers, ..self }
    }

    pub(crate) fn delivery(&self) -> Delivery {
        Delivery::Tap(self.room)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the tap at a stage of a built graph.
    pub(crate) fn of(core: &Owner<E, L>, stage: usize) -> Self {
        let plan = &core.control.plan.stages[stage];
        Tap {
            stage_ref: StageRef::bound(core.observed(), stage),
            name: Some(plan.name.as_str().into()),
            room: plan.delivery.room(),
        }
    }

    /// Binds the tap to the stage where it was declared.
    pub(crate) fn bind(&self, core: &Owner<E, L>, stage: usize) -> Result<(), BuildError> {
        self.stage_ref.bind(core.observed(), stage)
    }
}

impl<E: Send + Sync, L: Layout> Tap<E, L> {
    /// Adds a reader, which sees each event exactly once, starting with the event at its first
    /// position.
    ///
    /// The call never waits, and stops no stage. Any thread may subscribe at any time while the
    /// graph runs. A subscription costs about as much as ten claims: a lock that only joiners take,
    /// a compare-and-swap of a seat, a fence, and one load for each party behind the tap. The call
    /// allocates only for a wait strategy that learns, such as the default
    /// [`Wait::Adaptive`](crate::Wait::Adaptive) (once, a few hundred bytes).
    ///
    /// ```
    /// use slipring::{Graph, handles::StartAt};
    /// let graph = Graph::new(8, || 0u64);
    /// let (log, tap) = (graph.reader("log"), graph.tap("tap", 4));
    /// let ring = graph.build()?;
    /// let (mut tx, mut log, tap) = (ring.producer(), ring.reader(log), ring.tap(tap));
    /// tx.publish(|slot| *slot = 10)?;
    /// let mut late = tap.subscribe(StartAt::Now)?;
    /// assert_eq!(late.next_seq(), 1);
    /// tx.publish(|slot| *slot = 20)?;
    /// tx.close();
    /// assert_eq!(log.for_each(|_, _| ())?, 2);
    /// assert_eq!(late.for_each(|value, _| assert_eq!(*value, 20))?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`SubscribeError::Overwritten`]: the event at the position of [`StartAt::At`] is no longer
    ///   held for the tap.
    /// - [`SubscribeError::NotYet`]: the event at the position of [`StartAt::At`] has not reached
    ///   the tap.
    /// - [`SubscribeError::Full`]: the tap has no room for another reader.
    /// - [`SubscribeError::NotRunning`]: the tap belongs to no running graph.
    /// - [`SubscribeError::Ended`]: the graph was halted or has failed.
    ///
    /// `?` converts a [`SubscribeError`] into a [`WaitError`](crate::errors::WaitError).
    pub fn subscribe(&self, start: StartAt) -> Result<Subscription<E, L>, SubscribeError> {
        let (core, stage) = self.stage_ref.find()?;
        join(&core, stage, start)
    }
}

impl<E, L: Layout> fmt::Debug for Tap<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("name", &self.name).field("room", &self.room).finish()
    }
}

/// A handle with which any thread asks one [`Subscription`] to leave: see
/// [`Consumer::leave_handle`].
///
/// Example: [`Consumer::leave_handle`].
#[doc(alias = "AbortHandle")]
pub struct LeaveHandle<E, L: Layout = Interleaved> {
    core: Weak<Core<E, L>>,
    stage: usize,
    /// Line of the member's badge.
    badge_line: usize,
    /// Value of the member's badge until the member leaves or is asked to leave.
    badge: u64,
    kind: PhantomData<E>,
}

impl<E, L: Layout> Clone for LeaveHandle<E, L> {
    fn clone(&self) -> Self {
        LeaveHandle { core: self.core.clone(), kind: PhantomData, ..*self }
    }
}

impl<E, L: Layout> LeaveHandle<E, L> {
    /// Asks the reader to leave: its current wait, or its next call, returns
    /// [`WaitError::Left`](crate::errors::WaitError::Left).
    ///
    /// The reader holds its unreleased events until it is dropped. The call returns `false` if the
    /// reader was asked to leave before, or is gone.
    ///
    /// Example: [`Consumer::leave_handle`].
    pub fn leave(&self) -> bool {
        let Some(core) = self.core.upgrade() else { return false };
        let control = &core.control;
        let asked = ask_to_leave(control.positions.line(self.badge_line), self.badge);
        if asked {
            let queues = [control.plan.stages[self.stage].queue];
            control.waits.notify(twin!("leaving-unnotified": &queues[..] => &[]));
        }
        asked
    }
}

impl<E, L: Layout> fmt::Debug for LeaveHandle<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaveHandle").finish_non_exhaustive()
    }
}

impl<E, L: Layout> Consumer<E, Reading, Joined, L> {
    /// Leaves the tap, as dropping the reader does.
    ///
    /// ```
    /// use slipring::{Tap, handles::StartAt};
    /// let tap = Tap::new().room(1);
    /// slipring::ring(8, || 0u64).tap(&tap).run(|_producer| {
    ///     tap.subscribe(StartAt::Now)?.leave();
    ///     tap.subscribe(StartAt::Now)?; // the room is free again
    ///     Ok(())
    /// })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn leave(self) {}

    /// Returns a handle with which another thread asks this reader to leave.
    ///
    /// ```
    /// use slipring::{Tap, errors::WaitError, handles::StartAt};
    /// let tap = Tap::new();
    /// slipring::ring(8, || 0u64).tap(&tap).run(|_producer| {
    ///     let mut reader = tap.subscribe(StartAt::Now)?;
    ///     let handle = reader.leave_handle();
    ///     let waiting = std::thread::spawn(move || reader.batch(1).map(drop));
    ///     assert!(handle.leave());
    ///     assert!(matches!(waiting.join().unwrap(), Err(WaitError::Left)));
    ///     assert!(!handle.leave()); // gone already
    ///     Ok(())
    /// })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn leave_handle(&self) -> LeaveHandle<E, L> {
        let (state, member) = self.membership();
        LeaveHandle {
            core: state.core.observed(),
            stage: state.stage,
            badge_line: member.badge_line,
            badge: member.badge,
            kind: PhantomData,
        }
    }
}

/// Adds a member to the tap `stage`. The caller only observes the ring, and the new member becomes
/// one of the ring's owners.
pub(crate) fn join<E, L: Layout>(
    core: &Arc<Core<E, L>>,
    stage: usize,
    start: StartAt,
) -> Result<Consumer<E, Reading, Joined, L>, SubscribeError> {
    core.control.status.check_running()?;
    let control = &core.control;
    let learned = control.learner(stage); // user code: before a member is counted or pinned
    let tap = &control.plan.stages[stage];
    // The stages before the tap have released every position that a party behind the tap announces.
    let lower_bound = control.positions.announced(tap);
    let newest = later(core.upstream(stage, lower_bound).0, lower_bound);
    let asked = match start {
        StartAt::Now => newest,
        StartAt::Oldest => lower_bound,
        // The caller may ask for any position. A position at distance 2^63 from `newest` lies
        // neither ahead of `newest` nor behind it. A position is accepted if its distance behind
        // `newest` is at most the capacity. If the position is refused, the comparison with
        // `newest` decides only which error the caller gets.
        StartAt::At(asked) if newest.wrapping_sub(asked) <= core.capacity() => asked,
        StartAt::At(asked) if ahead(asked, newest) > 0 => {
            return Err(SubscribeError::NotYet { asked, newest });
        }
        StartAt::At(asked) => {
            // The stages before the tap may have gone further than a lap since `lower_bound` was
            // loaded.
            let held = newest.wrapping_sub(core.capacity());
            return Err(SubscribeError::Overwritten { asked, oldest: later(held, lower_bound) });
        }
    };
    let seat = control
        .membership
        .acquire_member(&control.positions, tap)
        .ok_or(SubscribeError::Full { room: tap.delivery.room() })?;
    let bound = tap.bound_line(seat);
    edge::released::pin(control.positions.line(bound), asked << 1); // I2: pinned
    twin!("counted-late": control.positions.add_member(tap, seat) => ());
    edge::joined::fence_joiner();
    let oldest = control.positions.announced(tap);
    twin!("counted-late": () => control.positions.add_member(tap, seat));
    // The parties behind the tap may have passed any number of events between the store of the
    // joiner's position and the load of `oldest`. The joiner keeps its position only if the
    // position is not behind `oldest`, and is at most one lap ahead of `oldest`.
    let late = twin!("joiner-unvalidated": asked.wrapping_sub(oldest) > core.capacity() => false);
    if late && matches!(start, StartAt::At(_)) {
        control.release_member(stage, seat);
        return Err(SubscribeError::Overwritten { asked, oldest });
    }
    let at = if late { oldest } else { asked };
    if late {
        // A party behind the tap may be asleep because the joiner's position holds it back. A
        // joiner that moves its position must wake it.
        control.release(bound, at << 1, twin!("late-unnotified": &tap.notifies[..] => &[]));
    }
    let badge_line = tap.badge_line(seat);
    let member = MemberRole {
        seat,
        badge_line,
        badge: control.positions.line(badge_line).load(Relaxed),
        damaged: Cell::new(false),
    };
    // The last step of `join` makes the new member an owner of the ring. A refused member never
    // owns the ring, and never drops the ring's events.
    let Some(owner) = Owner::of(core) else {
        control.release_member(stage, seat);
        return Err(SubscribeError::NotRunning);
    };
    let place = Place { party: stage, at };
    Ok(Consumer::joined(SequentialPosition::begin(owner, place, bound, member, learned)))
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;
    use crate::producer::Producer;
    use crate::ring::build::build;
    use crate::ring::control::Control;
    use crate::ring::settings::Settings;
    use crate::ring::spec::{Access, StageSpec};
    use crate::{Monitor, Pool, errors::ErrorKind, faults::Fault};

    /// The stages behind a tap load a single word while the tap has no member. If the tap has at
    /// most 64 seats, the word has a bit for each seat; otherwise it holds a count.
    #[test]
    fn a_tap_knows_its_members() {
        for (room, first, last) in [(1, 1, 1), (64, 1, 1 << 63), (65, 1, 65), (200, 1, 200)] {
            let tap = StageSpec::new("tap", Access::Read, Delivery::Tap(room), &[]);
            let core =
                build::<u64, Interleaved>(Settings::new(2), vec![tap], Vec::new(), &mut || 0)
                    .unwrap();
            let observed = core.observed().upgrade().unwrap();
            let Control { plan, positions, membership, .. } = &core.control;
            let tap = &plan.stages[0];
            let word = || core.control.positions.line(tap.line).load(Relaxed);
            let mut members: Vec<Subscription<u64>> = Vec::new();
            for count in 1..=room {
                members.push(join(&observed, 0, StartAt::Now).unwrap());
                assert_eq!(membership.joined(positions, plan), count);
                if count == 1 {
                    assert_eq!(word(), first);
                }
            }
            assert!(join::<u64, Interleaved>(&observed, 0, StartAt::Now).is_err());
            assert_eq!(word(), if room == 64 { u64::MAX } else { last });
            assert_eq!(positions.held(tap, 0), 0);
            // All members leave, except the one in the last seat, which holds the event at position
            // 0.
            Producer::<u64>::new(core.clone(), Default::default()).publish(|_| ()).unwrap();
            let held = members.pop().unwrap();
            members.drain(..).rev().for_each(drop);
            assert_eq!(word(), if room > 64 { 1 } else { last });
            assert_eq!(positions.held(tap, 0), 0);
            drop(held);
            assert_eq!((word(), positions.held(tap, 0)), (0, i64::MAX));
        }
    }

    struct Fragile;
    impl Drop for Fragile {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::resume_unwind(Box::new("an event's drop"));
            }
        }
    }

    /// If a run ends during calls on a tap, a pool handle and a monitor, the calls' references to
    /// the graph keep no event alive.
    #[test]
    fn handles_inside_their_calls_own_no_event_of_a_run() {
        let (tap, pool, monitor) = (Tap::new(), Pool::reading(2), Monitor::new());
        let inside = std::cell::RefCell::new(Vec::new());
        let observed = std::cell::RefCell::new(Vec::new());
        let leave = |inside: Vec<Arc<Core<Fragile, Interleaved>>>| {
            for core in inside {
                assert!(Owner::of(&core).is_none(), "the run is over, so no reader joins");
                assert!(matches!(
                    join(&core, 0, StartAt::Now),
                    Err(SubscribeError::NotRunning | SubscribeError::Ended(_))
                ));
                drop(core.report());
            }
        };
        let look = || {
            observed.borrow_mut().push(monitor.stage_ref().find().unwrap().0);
            inside
                .borrow_mut()
                .extend([tap.stage_ref.find().unwrap().0, pool.stage_ref().find().unwrap().0]);
            Ok::<_, Fault>(())
        };
        for run in 0..3 {
            let chain = || {
                let chain = crate::ring(4, || Fragile).monitor(&monitor).tap(&tap);
                chain.read_pool("p", 1, |_| |_: &Fragile, _| ()).open(&pool)
            };
            let ended =
                if run == 0 { chain().run(|_| look()) } else { chain().run_inline(|_| look()) };
            let error =
                ended.expect_err("the events are dropped with the run, though references are held");
            assert!(
                matches!(error.kind(), ErrorKind::EventDrop(message) if message == "an event's drop"),
                "{run}: {error}"
            );
            assert!(tap.stage_ref.find().is_err());
            if run != 1 {
                leave(inside.take());
                observed.take().iter().for_each(|ring| drop(ring.report()));
            }
        }
        leave(inside.take());
        let (tx, pipeline) = crate::ring(4, || 0u64).spawn().unwrap();
        drop(tx);
        pipeline.join().unwrap();
    }

    #[test]
    fn an_observer_does_not_outlive_the_last_owner() {
        let graph = crate::Graph::new(4, || 0u64);
        let (key, tap_key) = (graph.reader("r"), graph.tap("t", 1));
        let ring = graph.build().unwrap();
        let (tx, rx, tap) = (ring.producer(), ring.reader(key), ring.tap(tap_key));
        drop(ring);
        let (core, stage) = tap.stage_ref.find().unwrap();
        let late = join(&core, stage, StartAt::Now).unwrap();
        drop((tx, rx));
        let again = Owner::of(&core).expect("the member owns the ring");
        drop((again, late));
        assert!(Owner::of(&core).is_none() && tap.stage_ref.find().is_err());
    }
}
