//! The askers of a ring: threads and tasks that wait for answers to requests in the ring.
//!
//! An asker's wait must end when the graph ends, and the asker must not keep the graph alive. So
//! the ring and its askers share a separate allocation, the [`Askers`]. It holds a wait queue, and
//! a pointer to the ring's control that is valid while the ring has an owner. If no request is ever
//! made in a ring, the askers cost only one load, when the ring ends.
//!
//! Invariants
//! - I1: while [`Link::ring`] is set, the control that it points to is valid. The last owner of the
//!   ring removes the pointer under the lock, and then frees the ring (`owner::Owner::end`).
//!   Threads use the control only under the lock.
//! - I2: under the lock, threads load words of the ring, change the record of skips, clone the
//!   failure, and record a passed deadline. No user code runs there, no queue's lock is taken, and
//!   no queue is notified.
//! - I3: an asker announces itself in the queue, executes a fence, and then loads
//!   [`Askers::stirred`] and the ring's words. The thread that stores the ring's end, or a stage's
//!   last release, then stores `stirred`, executes a fence, and notifies the queue. So the asker
//!   sees the end, or the notifier sees the asker (queue::I1).

use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;
use std::task::Waker;

use crate::base::edge::announced;
use crate::base::panics::drop_contained;
use crate::base::sync::{Arc, AtomicU32, Line, Mutex, Relaxed, lock, twin};
use crate::errors::{AwaitError, WaitError};
use crate::wait::queue::{self, WaitQueue};

/// The questions that an asker may put to a ring's control. No method runs user code or takes a
/// queue's lock.
pub(crate) trait AskedRing: Send + Sync {
    /// Returns whether an asker has to check the ring: the ring was closed or halted or has failed,
    /// or other processes may end the ring without notifying a queue of this process.
    fn has_stirred(&self) -> bool;
    /// Returns whether the graph was halted or has failed.
    fn is_stopped(&self) -> bool;
    /// Returns the failure or the halt as an error, if the graph has failed or was halted.
    fn why_stopped(&self) -> Option<WaitError>;
    /// Returns whether the producers have closed the ring, or have begun to.
    fn is_closed(&self) -> bool;
    /// Returns whether `stage` has released the event at `seq`; for a tap, whether each of its
    /// members has. Returns `None` if the ring has no stage with this index.
    fn has_released(&self, stage: usize, seq: u64) -> Option<bool>;
    /// Records that the graph's deadline has passed, if it has. Notifies no queue.
    fn record_deadline(&self, seq: u64) -> bool;
    /// Number of slots.
    fn capacity(&self) -> u64;
    /// Position of the ring's first event.
    fn start(&self) -> u64;
}

/// Largest number of skips that one call of [`Link::take_passed`] checks.
const LOOKS: usize = 64;

/// The events of the last lap that stages have skipped by their policies.
#[derive(Default)]
struct Skips {
    /// Number of events in each skip. A skip's key consists of the stage that skipped the events,
    /// and of the distance from the ring's start to the first of them.
    all: BTreeMap<(usize, u64), u64>,
    /// The skips that at least one stage has not passed yet, in the order in which they were made.
    /// Each is given by its last position.
    left: VecDeque<u64>,
}

impl Skips {
    /// Records that `stage` skips `len` events, starting at `first`.
    fn note(&mut self, ring: &dyn AskedRing, stage: usize, first: u64, len: u64) {
        let at = first.wrapping_sub(ring.start());
        // A skip that is more than a lap old can be forgotten: the slots of its events were filled
        // again, which dropped the promises.
        let is_old = |&(of, before): &(usize, u64)| {
            of == stage && at.saturating_sub(before) > ring.capacity().saturating_add(len)
        };
        while let Some(oldest) = self.all.range((stage, 0)..).next().map(|(key, _)| *key)
            && is_old(&oldest)
        {
            self.all.remove(&oldest);
        }
        self.all.insert((stage, at), len);
        self.left.push_back(first.wrapping_add(len).wrapping_sub(1));
    }

    fn has(&self, ring: &dyn AskedRing, stage: usize, seq: u64) -> bool {
        let at = seq.wrapping_sub(ring.start());
        let before = self.all.range((stage, 0)..=(stage, at)).next_back();
        before.is_some_and(|(&(_, first), &len)| at - first < len)
    }
}

/// The connection from the askers to their ring.
struct Link {
    /// Pointer to the ring's control; `None` before the first request, and after the ring's last
    /// owner was dropped.
    ring: Option<NonNull<dyn AskedRing>>,
    /// The error that says how the ring ended; `None` while the ring has an owner.
    gone: Option<WaitError>,
    skips: Skips,
}

// SAFETY: the pointer is used only under a lock (I1), and its target is `Sync`.
unsafe impl Send for Link {}

impl Link {
    /// Returns the control. The result is used under the lock only.
    fn ring(&self) -> Option<&dyn AskedRing> {
        // SAFETY: the control is valid under the lock (I1), and the link is borrowed under the lock
        // only.
        self.ring.map(|ring| unsafe { ring.as_ref() })
    }

    /// Returns whether each stage has released or skipped the event at `seq`, and whether at least
    /// one stage has skipped it.
    fn passed(&self, ring: &dyn AskedRing, seq: u64) -> (bool, bool) {
        let mut skipped = false;
        for stage in 0.. {
            let Some(released) = ring.has_released(stage, seq) else { break };
            let skips = self.skips.has(ring, stage, seq);
            skipped |= skips;
            if !released && !skips {
                return (false, skipped);
            }
        }
        (true, skipped)
    }

    /// Removes from `left` the skips whose events every stage has passed. Returns whether the call
    /// has removed a skip, and whether skips are left.
    fn take_passed(&mut self) -> (bool, bool) {
        let (mut found, mut at) = (false, 0);
        while let Some(&last) = self.skips.left.get(at)
            && at < LOOKS
        {
            if self.ring().is_none_or(|ring| self.passed(ring, last).0) {
                self.skips.left.remove(at);
                found = true;
            } else {
                at += 1;
            }
        }
        (found, !self.skips.left.is_empty())
    }

    /// If the request at `seq` will get no answer, calls `why` with the reason and returns its
    /// result. Returns `None` if an answer may still come.
    fn over<R>(&self, seq: u64, why: impl FnOnce(Over<'_>) -> R) -> Option<R> {
        let Some(ring) = self.ring() else {
            return self.gone.as_ref().map(|gone| why(Over::Gone(gone)));
        };
        if ring.is_stopped() {
            return Some(why(Over::Stopped(ring)));
        }
        match (ring.is_closed(), self.passed(ring, seq)) {
            (true, (true, _)) => Some(why(Over::Drained)),
            (false, (true, true)) => Some(why(Over::Skipped)),
            _ => None,
        }
    }
}

/// The reason why a request will get no answer.
enum Over<'a> {
    /// The ring's last owner was dropped.
    Gone(&'a WaitError),
    /// The graph was halted or has failed.
    Stopped(&'a dyn AskedRing),
    /// The ring is closed, and every stage has passed the request.
    Drained,
    /// A stage has skipped the request, and every stage has passed it.
    Skipped,
}

/// The askers of one ring. The ring and each asker hold a reference.
pub(crate) struct Askers {
    /// 1 once the first request has been made. Until then, the ring does not notify askers.
    asked: AtomicU32,
    /// 1 once askers have something to check: the ring, which may have ended
    /// ([`AskedRing::has_stirred`]), or the link, which has recorded a skip or the ring's end.
    ///
    /// Spinning askers poll this word, so it has a cache line of its own.
    stirred: Line<AtomicU32>,
    /// 1 while a stage has not passed an event that another stage has skipped.
    skips_left: AtomicU32,
    link: Mutex<Link>,
    queue: WaitQueue,
}

impl Askers {
    pub(crate) fn new() -> Arc<Askers> {
        Arc::new(Askers {
            asked: AtomicU32::new(0),
            stirred: Line::new(AtomicU32::new(0)),
            skips_left: AtomicU32::new(0),
            link: Mutex::new(Link { ring: None, gone: None, skips: Skips::default() }),
            queue: WaitQueue::new(),
        })
    }

    // The ring's side.

    /// Called before a request is published in `ring`, which is the ring of these askers and has an
    /// owner.
    #[inline]
    pub(crate) fn attach(&self, ring: &(dyn AskedRing + 'static)) {
        if !self.is_asked() {
            self.attach_first(ring);
        }
    }

    #[cold]
    fn attach_first(&self, ring: &(dyn AskedRing + 'static)) {
        lock(&self.link).ring.get_or_insert(NonNull::from(ring));
        self.asked.store(1, Relaxed); // SYNC[announced]: before the look at the status
        announced::fence_asker();
        // If the ring ended before this call, no asker was notified of the end.
        if ring.has_stirred() {
            self.stirred.store(1, Relaxed);
        }
    }

    /// Returns whether a request was asked.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Relaxed) != 0
    }

    /// Notifies the askers that the ring has ended, or that a stage has released its last event.
    /// The caller has stored the end, or the release, and has then executed a `SeqCst` fence.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.is_asked() {
            self.stir();
        }
    }

    #[cold]
    fn stir(&self) {
        twin!("askers-unstirred": self.stirred.store(1, Relaxed) => ()); // SYNC[announced]: before
        twin!("askers-unnotified": queue::notify_all(std::slice::from_ref(&self.queue)) => ());
    }

    /// Records that `stage` skips `len` events, starting at `first`, because its policy says so.
    pub(crate) fn note_skip(&self, stage: usize, first: u64, len: u64) {
        if !self.is_asked() {
            return;
        }
        {
            let mut link = lock(&self.link);
            let Link { ring, skips, .. } = &mut *link;
            let Some(ring) = ring else { return };
            // SAFETY: I1; this thread has the lock.
            skips.note(unsafe { ring.as_ref() }, stage, first, len);
        }
        self.skips_left.store(1, Relaxed); // SYNC[announced]: before the look at the positions
        announced::fence_asker();
        self.settle_skips();
    }

    /// Called by each party from time to time after its releases. Notifies the askers if every
    /// stage has now passed a skipped event. `may_look` says whether this process may look at the
    /// ring, and is asked only if a skip is left, because the answer may take a call of the system.
    #[inline]
    pub(crate) fn note_releases(&self, may_look: impl FnOnce() -> bool) {
        if self.is_asked() {
            announced::fence_notifier(); // The release comes before the load.
            if self.skips_left.load(Relaxed) != 0 && may_look() {
                self.settle_skips();
            }
        }
    }

    #[cold]
    fn settle_skips(&self) {
        let found = {
            let mut link = lock(&self.link);
            let (found, left) = link.take_passed();
            self.skips_left.store(u32::from(left), Relaxed);
            found
        };
        if found {
            self.stir();
        }
    }

    /// Removes the pointer from the askers to their ring. The caller is the ring's last owner, and
    /// calls [`Askers::notify`] after it has dropped the events.
    pub(crate) fn detach(&self) {
        if !self.is_asked() {
            return;
        }
        let mut link = lock(&self.link);
        let why = link.ring().and_then(AskedRing::why_stopped);
        link.gone = Some(why.unwrap_or(WaitError::Closed));
        link.ring = None; // I1
        link.skips = Skips::default();
        self.stirred.store(1, Relaxed);
    }

    // The askers' side.

    /// Returns whether the ring's end, or a skip, may have ended a wait.
    #[inline]
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred.load(Relaxed) != 0
    }

    /// Returns whether it is certain that the request at `seq` will get no answer. The caller may
    /// hold the lock of these askers' queue.
    #[inline]
    pub(crate) fn is_over(&self, seq: u64) -> bool {
        self.is_stirred() && lock(&self.link).over(seq, |_| ()).is_some()
    }

    /// Returns why the request at `seq` will get no answer, or `None` if an answer may still come.
    #[inline]
    pub(crate) fn over(&self, seq: u64) -> Option<AwaitError> {
        if self.is_stirred() { self.why_over(seq) } else { None }
    }

    #[cold]
    fn why_over(&self, seq: u64) -> Option<AwaitError> {
        lock(&self.link).over(seq, |over| match over {
            Over::Gone(gone) => AwaitError::Wait(gone.clone()),
            Over::Stopped(ring) => {
                AwaitError::Wait(ring.why_stopped().unwrap_or(WaitError::Halted))
            }
            Over::Drained => AwaitError::Wait(WaitError::Closed),
            Over::Skipped => AwaitError::Skipped,
        })
    }

    /// Fails the graph if its deadline has passed. The threads that wait at the ring's own queues
    /// are not notified: each of them has the same deadline.
    pub(crate) fn expire(&self, seq: u64) {
        let failed = lock(&self.link).ring().is_some_and(|ring| ring.record_deadline(seq));
        if failed {
            self.stir();
        }
    }

    /// Registers a task, or a thread's waker, for the next notification, unless `ready` returns
    /// `true`. Returns `true` if the caller must poll again. Each request has a single asker, so
    /// the request's position serves as the asker's number.
    pub(crate) fn arm(&self, seq: u64, waker: &Waker, ready: &mut dyn FnMut() -> bool) -> bool {
        self.queue.arm(seq, waker, ready)
    }

    /// Removes the asker of the request at `seq`, if it is registered.
    pub(crate) fn disarm(&self, seq: u64) {
        self.queue.disarm(seq);
    }
}

impl Drop for Askers {
    fn drop(&mut self) {
        // The failure may hold the last reference to a user's error.
        drop_contained(lock(&self.link).gone.take());
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    const START: u64 = u64::MAX - 1;
    const CAPACITY: u64 = 4;

    /// A ring of two stages. It holds the position of each stage, counted from the ring's start.
    #[derive(Default)]
    struct Fake([AtomicU64; 2]);

    impl AskedRing for Fake {
        fn has_stirred(&self) -> bool {
            false
        }
        fn is_stopped(&self) -> bool {
            false
        }
        fn why_stopped(&self) -> Option<WaitError> {
            None
        }
        fn is_closed(&self) -> bool {
            false
        }
        fn has_released(&self, stage: usize, seq: u64) -> Option<bool> {
            let position = self.0.get(stage)?.load(Relaxed);
            Some(seq.wrapping_sub(START) < position)
        }
        fn record_deadline(&self, _seq: u64) -> bool {
            false
        }
        fn capacity(&self) -> u64 {
            CAPACITY
        }
        fn start(&self) -> u64 {
            START
        }
    }

    fn seq(at: u64) -> u64 {
        START.wrapping_add(at)
    }

    #[test]
    fn a_skip_counts_once_every_other_stage_has_passed_it() {
        let _watched = crate::watchdog::watched();
        let (askers, ring) = (Askers::new(), Fake::default());
        askers.note_skip(0, seq(0), 1);
        assert!(!askers.is_asked(), "a ring that was not asked notes nothing");
        askers.attach(&ring);
        // The first stage skips a batch of three events, and the second stage has passed none of
        // these events.
        askers.note_skip(0, seq(1), 3);
        assert!((0..5).all(|at| askers.over(seq(at)).is_none()));
        assert!(!askers.is_stirred());
        ring.0[1].store(3, Relaxed);
        askers.note_releases(|| true);
        assert!(!askers.is_stirred(), "the last event of the batch is left");
        ring.0[1].store(4, Relaxed);
        askers.note_releases(|| true);
        let skipped = [0, 1, 2, 3, 4].map(|at| askers.over(seq(at)).is_some());
        assert_eq!(skipped, [false, true, true, true, false]);
        assert_eq!(askers.over(seq(3)), Some(AwaitError::Skipped));
        askers.detach();
        assert_eq!(askers.over(seq(0)), Some(AwaitError::Wait(WaitError::Closed)));
    }

    #[test]
    fn notes_of_skips_last_for_a_lap() {
        let _watched = crate::watchdog::watched();
        let (askers, ring) = (Askers::new(), Fake::default());
        askers.attach(&ring);
        for at in 0..1000 {
            // The second stage is three events behind the first.
            ring.0[1].store(at.max(3) - 3, Relaxed);
            ring.0[0].store(at, Relaxed);
            askers.note_skip(0, seq(at), 1);
            let link = lock(&askers.link);
            assert!(link.skips.all.len() <= 2 * CAPACITY as usize, "{at}");
            assert!(link.skips.left.len() <= CAPACITY as usize, "{at}");
        }
        assert_eq!(askers.over(seq(995)), Some(AwaitError::Skipped));
        assert_eq!(askers.over(seq(997)), None);
        askers.detach();
    }
}
