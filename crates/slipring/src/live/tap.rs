//! Taps: declared places where readers join and leave while the graph runs.
//!
//! A tap is a stage whose crew changes. Its frontier is what the stages before it have let go, held
//! back by the members that are there; with nobody there, everything passes. Whoever comes after a
//! tap (stages, or the producers if nobody does) says how far it is going to before it asks who is
//! there.
//!
//! Invariants
//! - I1: a member's line holds the position it has not let go of, or [`IDLE`]; between joining and
//!   leaving only its handle stores there.
//! - I2: whoever passes a tap up to a position has said that position, fenced, and then found every
//!   member at that position or later.
//! - I3: a joiner pins a position, fences, and then reads what was said: it keeps its position, or
//!   moves on to the furthest that was said. So of a joiner and a passer one sees the other
//!   (`SYNC[joined]`), and nothing from the joiner's position on is passed without it.
//! - I4: seats are given and taken under the tap's lock; a ticket is stored once per seat taken,
//!   and names the member.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex as StdMutex, MutexGuard as StdGuard};

use crate::base::edge;
use crate::base::sync::{Arc, Relaxed, Weak, twin, whole};
use crate::consumer::handle::Consumer;
use crate::consumer::markers::{Joined, Reading};
use crate::consumer::role::MemberRole;
use crate::consumer::sequential::SequentialPosition;
use crate::errors::{BuildError, SubscribeError};
use crate::ring::core::Core;
use crate::ring::membership::ask_to_leave;
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout};
use crate::ring::spec::Delivery;
use crate::ring::words::{ahead, later};

/// Where a new member begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartAt {
    /// At what the stages before the tap have let go of by now: the first event that it sees is the
    /// next one they let go.
    Now,
    /// At the oldest event that is still held for it. How many those are is up to the stages and
    /// the producer behind.
    Oldest,
    /// At this position, as where it left before.
    At(u64),
}

/// A reader that has joined a tap: as [`Reader`](crate::Reader), but it may go at any time, and the
/// graph goes on without it.
///
/// It sees every event from [`next_seq`](Consumer::next_seq) on, once, and holds back the stages
/// that write behind the tap, and the producers, until it releases or leaves. Dropping it, on
/// whatever thread and for whatever reason, is leaving.
pub type Subscription<E, L = Interleaved> = Consumer<E, Reading, Joined, L>;

/// A place of a running graph where readers come and go.
///
/// Declared with [`Chain::tap`](crate::Chain::tap) or [`Graph::tap`](crate::Graph::tap). Clones are
/// the same tap. With nobody there it is a placeholder, and costs those behind it a fence for each
/// batch, and nothing else.
///
/// A tap stands in one running graph at a time. When [`run`](crate::Chain::run) has come back, or a
/// pipeline has ended and was joined, it can stand in the next graph. A [`Subscription`] that
/// outlives its run keeps its own ring, whose events go with it.
///
/// ```
/// use slipring::{StartAt, Tap};
/// let tap = Tap::new();
/// slipring::ring(64, || 0u64).write("double", |v, _| *v *= 2).tap(&tap).run(|p| {
///     p.publish(|v| *v = 1)?;
///     let mut late = tap.subscribe(StartAt::Now)?;
///     for i in 2..5 { p.publish(|v| *v = i)?; }
///     let first = late.batch(1)?;
///     assert!([2, 4].contains(&first[0])); // the first event may have passed already, or not
///     first.release();
///     Ok(()) // dropped here: it leaves
/// })?;
/// # Ok::<(), slipring::Error>(())
/// ```
#[doc(alias = "FanOut")]
pub struct Tap<E, L: Layout = Interleaved> {
    place: Place<E, L>,
    name: Option<std::sync::Arc<str>>,
    room: usize,
}

/// Which stage of which graph a handle stands for, once that is built. It observes the graph, and
/// owns nothing of it.
pub(crate) struct Place<E, L: Layout>(Arc<StdMutex<Found<E, L>>>);
type Found<E, L> = (Weak<Core<E, L>>, usize);

impl<E, L: Layout> Clone for Place<E, L> {
    fn clone(&self) -> Self {
        Place(self.0.clone())
    }
}

impl<E, L: Layout> Place<E, L> {
    pub(crate) fn nowhere() -> Self {
        Place(Arc::new(StdMutex::new((Weak::new(), 0))))
    }

    pub(crate) fn at(core: &Owner<E, L>, stage: usize) -> Self {
        Place(Arc::new(StdMutex::new((core.observed(), stage))))
    }

    fn lock(&self) -> StdGuard<'_, Found<E, L>> {
        whole(self.0.lock())
    }

    /// Where that is, if the graph is there: for as long as one call takes. What comes back owns no
    /// event.
    pub(crate) fn find(&self) -> Result<(Arc<Core<E, L>>, usize), SubscribeError> {
        // What this drops may be the last reference, so it is dropped under no lock.
        let (ring, stage) = {
            let place = self.lock();
            (place.0.clone(), place.1)
        };
        let core = ring.upgrade().filter(|core| core.owners.are_there());
        Ok((core.ok_or(SubscribeError::NotRunning)?, stage))
    }

    /// It is there from now on, until the run is over
    /// ([`Owners::end_run`](crate::ring::owner_count::OwnerCount::end_run)) or the last owner gone.
    pub(crate) fn bind(&self, core: &Owner<E, L>, stage: usize) -> Result<(), BuildError> {
        let mut place = self.lock();
        let before = place.0.upgrade();
        if before.as_ref().is_some_and(|core| core.owners.are_there()) {
            drop(place);
            let name = &core.control.plan.stages[stage].name;
            return Err(BuildError::Misplaced {
                what: format!(
                    "what was declared at `{name}` stands in a graph already; make one for each place"
                ),
            });
        }
        let replaced = std::mem::replace(&mut *place, (core.observed(), stage));
        drop(place);
        // Under no lock: this may free what observers held last.
        drop((replaced, before));
        Ok(())
    }
}

impl<E, L: Layout> Clone for Tap<E, L> {
    fn clone(&self) -> Self {
        Tap { place: self.place.clone(), name: self.name.clone(), room: self.room }
    }
}

impl<E, L: Layout> Default for Tap<E, L> {
    fn default() -> Self {
        Tap::new()
    }
}

impl<E, L: Layout> Tap<E, L> {
    /// A tap named `tap` (`tap-2` for the second of a chain, and so on), with room for 16 readers
    /// at a time.
    pub fn new() -> Self {
        Tap { place: Place::nowhere(), name: None, room: 16 }
    }

    /// A tap with a name of its own, for errors and reports.
    pub fn named(name: &str) -> Self {
        Tap { name: Some(name.into()), ..Tap::new() }
    }

    /// With room for so many readers at a time, 1 to [`MAX_STAGE_HANDLES`](crate::MAX_STAGE_HANDLES). Each takes two
    /// lines of 128 bytes, and those behind the tap look at all of them when one is there.
    pub fn room(self, readers: usize) -> Self {
        Tap { room: readers, ..self }
    }

    pub(crate) fn delivery(&self) -> Delivery {
        Delivery::Tap(self.room)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The tap `stage` of a graph.
    pub(crate) fn of(core: &Owner<E, L>, stage: usize) -> Self {
        let plan = &core.control.plan.stages[stage];
        Tap {
            place: Place::at(core, stage),
            name: Some(plan.name.as_str().into()),
            room: plan.delivery.room(),
        }
    }

    /// Puts the tap where it was declared.
    pub(crate) fn bind(&self, core: &Owner<E, L>, stage: usize) -> Result<(), BuildError> {
        self.place.bind(core, stage)
    }
}

impl<E: Send + Sync, L: Layout> Tap<E, L> {
    /// Joins: from the position it says on, the new reader misses nothing and sees nothing twice.
    /// Never waits, and stops no stage; from any thread, at any time while the graph runs.
    /// Allocates nothing but what a strategy that learns keeps for the reader
    /// ([`Wait::Adaptive`](crate::Wait::Adaptive), the default: once, some hundred bytes).
    ///
    /// Joining takes about as long as ten claims: a lock that only joiners and leavers take, a
    /// fence, and a look at who stands behind.
    ///
    /// # Errors
    /// [`SubscribeError::Overwritten`] and [`SubscribeError::NotYet`] only for [`StartAt::At`];
    /// [`SubscribeError::Full`], [`SubscribeError::NotRunning`], [`SubscribeError::Ended`]. It
    /// turns into [`WaitError`] with `?`.
    pub fn subscribe(&self, from: StartAt) -> Result<Subscription<E, L>, SubscribeError> {
        let (core, stage) = self.place.find()?;
        join(&core, stage, from)
    }
}

impl<E, L: Layout> fmt::Debug for Tap<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("name", &self.name).field("room", &self.room).finish()
    }
}

/// Makes one subscription leave, from any thread. See [`Consumer::leaver`].
pub struct Leaver<E, L: Layout = Interleaved> {
    ring: Weak<Core<E, L>>,
    stage: usize,
    line: usize,
    ticket: u64,
    kind: PhantomData<E>,
}

impl<E, L: Layout> Clone for Leaver<E, L> {
    fn clone(&self) -> Self {
        Leaver { ring: self.ring.clone(), kind: PhantomData, ..*self }
    }
}

impl<E, L: Layout> Leaver<E, L> {
    /// Asks the reader to leave: its next call, or the one it waits in, comes back with
    /// [`WaitError::Left`]. It holds what it was lent until then, and until it is dropped. `false`: it
    /// was asked before, or is gone.
    pub fn leave(&self) -> bool {
        let Some(core) = self.ring.upgrade() else { return false };
        let control = &core.control;
        let asked = ask_to_leave(control.line(self.line), self.ticket);
        if asked {
            let queues = [control.plan.stages[self.stage].queue];
            control.notify(twin!("leaving-unnotified": &queues[..] => &[]));
        }
        asked
    }
}

impl<E, L: Layout> fmt::Debug for Leaver<E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaver").finish_non_exhaustive()
    }
}

impl<E, L: Layout> Consumer<E, Reading, Joined, L> {
    /// Leaves; what dropping does, too.
    pub fn leave(self) {}

    /// What makes this reader leave from another thread.
    pub fn leaver(&self) -> Leaver<E, L> {
        let (state, member) = self.membership();
        Leaver {
            ring: state.core.observed(),
            stage: state.stage,
            line: member.ticket_line,
            ticket: member.ticket,
            kind: PhantomData,
        }
    }
}

/// Joins the tap `stage`. The caller observes the ring; only a member that has joined owns it.
pub(crate) fn join<E, L: Layout>(
    core: &Arc<Core<E, L>>,
    stage: usize,
    from: StartAt,
) -> Result<Subscription<E, L>, SubscribeError> {
    core.control.check_running()?;
    let control = &core.control;
    let learned = control.learner(stage); // the user's code: before anything is counted or pinned
    let tap = &control.plan.stages[stage];
    // Everybody behind says positions that the stages before had let go.
    let lower_bound = control.positions.announced(tap);
    let newest = later(core.upstream(stage, lower_bound).0, lower_bound);
    let asked = match from {
        StartAt::Now => newest,
        StartAt::Oldest => lower_bound,
        // The caller may name any number, and one that is 2^63 away lies neither ahead nor behind.
        // So the distance decides whether it is accepted, and the sign only which error it is.
        StartAt::At(asked) if newest.wrapping_sub(asked) <= core.capacity() => asked,
        StartAt::At(asked) if ahead(asked, newest) > 0 => {
            return Err(SubscribeError::NotYet { asked, newest });
        }
        StartAt::At(asked) => {
            return Err(SubscribeError::Overwritten { asked, oldest: lower_bound });
        }
    };
    let seat =
        control.acquire_member(stage).ok_or(SubscribeError::Full { room: tap.delivery.room() })?;
    let bound = tap.bound_line(seat);
    edge::released::pin(control.line(bound), asked << 1); // I3: pinned
    twin!("counted-late": { control.line(tap.line).fetch_add(1, Relaxed); } => ());
    edge::joined::fence_joiner();
    let oldest = control.positions.announced(tap);
    twin!("counted-late": () => { control.line(tap.line).fetch_add(1, Relaxed); });
    // By distance: however far others went between the pin and this look, the pin is good only if
    // it is within a lap.
    let late = twin!("joiner-unvalidated": asked.wrapping_sub(oldest) > core.capacity() => false);
    if late && matches!(from, StartAt::At(_)) {
        control.release_member(stage, seat);
        return Err(SubscribeError::Overwritten { asked, oldest });
    }
    let at = if late { oldest } else { asked };
    if late {
        // Somebody behind may have fallen asleep over the pin.
        control.release(bound, at << 1, twin!("late-unnotified": &tap.notifies[..] => &[]));
    }
    let ticket_line = tap.ticket_line(seat);
    let member = MemberRole { seat, ticket_line, ticket: control.line(ticket_line).load(Relaxed) };
    // Last, so that a joiner that is refused has owned nothing.
    let Some(owner) = Owner::of(core) else {
        control.release_member(stage, seat);
        return Err(SubscribeError::NotRunning);
    };
    Ok(Consumer::joined(SequentialPosition::begin(owner, stage, member, (bound, 1), at, learned)))
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;
    use crate::ring::build::build;
    use crate::ring::core::Settings;
    use crate::ring::spec::{Access, StageSpec};
    use crate::{ErrorKind, Fault, Monitor, Pool};

    /// A tap with nobody there costs the stages behind it one load, because they look at its count
    /// alone.
    #[test]
    fn a_tap_counts_its_members() {
        let tap = StageSpec::new("tap", Access::Read, Delivery::Tap(2), &[]);
        let core =
            build::<u64, Interleaved>(Settings::new(2), vec![tap], Vec::new(), &mut || 0).unwrap();
        let observed = core.observed().upgrade().unwrap();
        let count = || core.control.line(core.control.plan.stages[0].line).load(Relaxed);
        let one = join(&observed, 0, StartAt::Now).unwrap();
        let two = join(&observed, 0, StartAt::Now).unwrap();
        assert_eq!(count(), 2);
        drop(one);
        assert_eq!(count(), 1);
        drop(two);
        assert_eq!(
            (count(), core.control.positions.held(&core.control.plan.stages[0], 0)),
            (0, i64::MAX)
        );
    }

    struct Fragile;
    impl Drop for Fragile {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::resume_unwind(Box::new("an event's drop"));
            }
        }
    }

    /// The race of a run's end with observers, as if each of them were inside of its call at that
    /// moment.
    #[test]
    fn observers_inside_their_calls_own_nothing_of_a_run() {
        let (tap, pool, monitor) = (Tap::new(), Pool::reading(2), Monitor::new());
        let inside = std::cell::RefCell::new(Vec::new());
        let leave = |inside: Vec<Arc<Core<Fragile, Interleaved>>>| {
            for core in inside {
                assert!(Owner::of(&core).is_none(), "the run is over, so nobody joins");
                assert!(matches!(
                    join(&core, 0, StartAt::Now),
                    Err(SubscribeError::NotRunning | SubscribeError::Ended(_))
                ));
                drop(core.report());
            }
        };
        let look = || {
            inside
                .borrow_mut()
                .extend([tap.place.find().unwrap().0, monitor.place().find().unwrap().0]);
            inside.borrow_mut().push(pool.place().find().unwrap().0);
            Ok::<_, Fault>(())
        };
        for run in 0..3 {
            let chain = || {
                let chain = crate::ring(4, || Fragile).monitor(&monitor).tap(&tap);
                chain.read_pool("p", 1, |_| |_: &Fragile, _| ()).open(&pool)
            };
            let ended =
                if run == 0 { chain().run(|_| look()) } else { chain().run_inline(|_| look()) };
            let error = ended.expect_err("the events went with the run, whoever looked");
            assert!(
                matches!(error.kind(), ErrorKind::EventDrop(announced) if announced == "an event's drop"),
                "{run}: {error}"
            );
            assert!(tap.place.find().is_err());
            if run != 1 {
                leave(inside.take());
            }
        }
        leave(inside.take());
        let (tx, pipeline) = crate::ring(4, || 0u64).spawn().unwrap();
        drop(tx);
        pipeline.join().unwrap();
    }

    #[test]
    fn the_last_owner_is_not_outlived_by_an_observer() {
        let graph = crate::Graph::new(4, || 0u64);
        let (key, tap_key) = (graph.reader("r"), graph.tap("t", 1));
        let ring = graph.build().unwrap();
        let (tx, rx, tap) = (ring.producer(), ring.reader(key), ring.tap(tap_key));
        drop(ring);
        let (core, stage) = tap.place.find().unwrap();
        let late = join(&core, stage, StartAt::Now).unwrap();
        drop((tx, rx));
        let again = Owner::of(&core).expect("the member owns the ring");
        drop((again, late));
        assert!(Owner::of(&core).is_none() && tap.place.find().is_err());
    }
}
