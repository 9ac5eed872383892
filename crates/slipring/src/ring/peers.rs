//! The other processes of a segment, as one process sees them while it waits.
//!
//! A party that waits asks once a *notice* whether the party that it waits for has died. What then
//! happens was declared when the segment was made.
//!
//! Invariants
//! - I1: a death is never concluded from time that passed. Only a [`Proof`] says that a participant
//!   is dead.

use std::time::{Duration, Instant};

use crate::base::sync::{Arc, Line, Mutex, Relaxed, Statistic, lock, twin};
use crate::errors::WaitError;
use crate::ring::seat::Seat;

/// Says whether the participants of a segment live.
pub trait Proof: Send + Sync {
    /// Returns whether the participant `number` is dead. A participant that is dead stays dead
    /// until its number is given to another process.
    fn is_dead(&self, number: u32) -> bool;

    /// Calls `settle` with the proof that the participant `number` is dead, and then makes its
    /// number free. Meanwhile no other thread or process settles what the participant left. Returns
    /// `false`, without a call, if the participant lives, has left, or is being recovered, or if
    /// the proof cannot be had.
    fn recover(&self, number: u32, settle: &mut dyn FnMut()) -> bool;

    /// Returns the process id of a participant, for messages; 0: it is not known.
    fn pid(&self, number: u32) -> u32;

    /// Returns whether the calling process is the one that attached. A forked child inherits
    /// handles, but not the memory of the segment.
    fn is_own_process(&self) -> bool {
        true
    }
}

/// What becomes of the parties that wait for a stage or a producer whose process has died.
///
/// A pool is dead once none of its workers lives, and one of them has died: while another worker
/// lives, it finishes the events of the dead one, and the parties that wait for the pool wait on.
/// The same holds for several producers. Shards do not replace each other: a dead shard counts once
/// the parties wait for it.
///
/// Of several producers, this is about the last living one. While another producer lives, the claim
/// of a dead one is given up, and the stages go on with the events of the others. A party whose
/// last handle has left is not dead, also if others of the party died before.
///
/// A tap has no such effect. The parties that wait for a dead reader of a tap remove it and go on.
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
/// use slipring_shm::{OnDeath, Segment};
/// let segment = Segment::<u64>::create_memfd("told")
///     .capacity(8)
///     .reader("journal")
///     .on_death(OnDeath::Tell) // a publication that waits for a dead journal returns an error
///     .reader("statistics") // a publication waits until the statistics are started again
///     .producer_on_death(OnDeath::Fail)
///     .build()?;
/// # let _ = segment;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeath {
    /// They wait until another process takes the dead one's place. A wait still ends by its
    /// deadline and by the end of the graph.
    #[default]
    Wait,
    /// Their calls return [`WaitError::PeerDead`](crate::WaitError::PeerDead). A later call waits
    /// again.
    Tell,
    /// The graph fails.
    Fail,
    /// The ring closes behind the last event that was published, as if the producer had left: the
    /// stages handle what is there, and end. Only producers can have this.
    Close,
}

/// The death of a process that had a place of a party. Of several deaths, the greatest is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Death {
    /// Whether what the process left is not settled yet. Such a death is told before others.
    is_unsettled: bool,
    /// The process id; 0: it is not known.
    pub(crate) pid: u32,
}

/// What a handle does at each check for deaths.
#[derive(Clone, Copy)]
pub(crate) struct Checkup<'a> {
    /// Settles what a dead participant left, for the holder of the proof of its death.
    pub(crate) settle: &'a dyn Fn(u32),
    /// Returns whether the words at which the handle waits contradict each other.
    pub(crate) is_damaged: &'a dyn Fn() -> bool,
}

impl Checkup<'_> {
    /// The checkup of a ring of one process.
    pub(crate) const NONE: Checkup<'static> = Checkup { settle: &|_| (), is_damaged: &|| false };
}

/// How a process of a segment learns of deaths.
pub(crate) struct Peers {
    /// For each party, what happens when a process dies that has a place of the party.
    pub(crate) on_death: Box<[OnDeath]>,
    /// Longest time between two checks for deaths.
    pub(crate) notice: Duration,
    pub(crate) proof: Arc<dyn Proof>,
    pub(crate) refusals: Refusals,
    /// The deaths of which waiting tasks of this process are to hear.
    pub(crate) deaths: NotedDeaths,
}

/// The errors that the next calls of waiting tasks return, by the numbers of the tasks. The error
/// of a handle that is dropped before its next call stays until the ring goes.
#[derive(Default)]
pub(crate) struct NotedDeaths {
    /// Number of errors. Most calls load it only.
    count: Statistic,
    errors: Mutex<Vec<(u64, WaitError)>>,
}

impl NotedDeaths {
    /// Notes an error in place of an earlier one of the task.
    pub(crate) fn note(&self, task: u64, error: WaitError) {
        let mut errors = lock(&self.errors);
        errors.retain(|(other, _)| *other != task);
        errors.push((task, error));
        self.count.store(errors.len() as u64, Relaxed);
    }

    /// Returns whether an error is noted for the task.
    pub(crate) fn has(&self, task: u64) -> bool {
        self.count.load(Relaxed) != 0 && lock(&self.errors).iter().any(|(other, _)| *other == task)
    }

    /// Takes the error of the task.
    pub(crate) fn take(&self, task: u64) -> Option<WaitError> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let mut errors = lock(&self.errors);
        let at = errors.iter().position(|(other, _)| *other == task)?;
        let (_, error) = errors.swap_remove(at);
        self.count.store(errors.len() as u64, Relaxed);
        Some(error)
    }
}

/// Counts the calls of one handle that found nothing and did not wait.
#[derive(Default)]
pub(crate) struct RefusedCalls(u8);

impl RefusedCalls {
    /// Counts a call. Returns whether the call is to look at the clock, as one call of 256 does.
    #[inline(always)]
    pub(crate) fn count(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0 == 0
    }
}

/// When the handles of a process last checked for deaths because their calls found nothing.
pub(crate) struct Refusals {
    began: Instant,
    /// Time of the last check for deaths, in nanoseconds since `began`.
    checked: Statistic,
}

impl Refusals {
    pub(crate) fn new() -> Refusals {
        Refusals { began: Instant::now(), checked: Statistic::new(0) }
    }

    /// Returns whether a check for deaths is due: whether a `notice` has passed since the last
    /// check. Of several threads, one or more may check.
    fn is_check_due(&self, notice: Duration) -> bool {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(self.began.elapsed());
        let due = now.saturating_sub(self.checked.load(Relaxed)) >= nanos(notice);
        if due {
            self.checked.store(now, Relaxed);
        }
        due
    }
}

impl Peers {
    /// Whether a call that found nothing, and did not wait, is to check for deaths. Reads the
    /// clock.
    pub(crate) fn is_check_due(&self) -> bool {
        self.refusals.is_check_due(self.notice)
    }

    /// Returns the death of a seat's owner, or of its last one if the seat was not taken since.
    /// `None`: the last owner has left, or the owner lives, or another handle of the party lived
    /// when the last owner was recovered (`seat::I4`).
    pub(crate) fn death_of(&self, seat: &Seat) -> Option<Death> {
        let Some(owner) = seat.owner() else {
            return seat.last_death().map(|pid| Death { is_unsettled: false, pid });
        };
        let is_dead = self.proof.is_dead(owner);
        let pid = self.proof.pid(owner);
        // If the seat has another owner by now, that owner took the place of the dead one.
        let still = twin!("owner-unchecked": seat.owner() == Some(owner) => true);
        (is_dead && still).then_some(Death { is_unsettled: true, pid })
    }

    /// Looks whether the participant that owns a seat is dead. Notes the death on the seat
    /// ([`Seat::find_dead`]), before any process can hold the proof of the death that has not noted
    /// it.
    pub(crate) fn find_dead(&self, seat: &Seat) -> bool {
        seat.owner().is_some_and(|owner| self.find_owner_dead(seat, owner))
    }

    fn find_owner_dead(&self, seat: &Seat, owner: u32) -> bool {
        let proof = || self.proof.is_dead(owner).then(|| self.proof.pid(owner));
        seat.find_dead(owner, proof)
    }

    /// Recovers the participant `dead`, if it is dead. Its death is noted on all of its `seats`
    /// first: while the proof is held, the participant does not look dead.
    pub(crate) fn recover(&self, seats: &[Line<Seat>], dead: u32, settle: &dyn Fn(u32)) {
        let find = |seat: &Line<Seat>| self.find_owner_dead(seat, dead);
        let found = twin!("death-unnoted":
            seats.iter().filter(|seat| find(seat)).count() != 0 =>
            self.proof.is_dead(dead)
        );
        if found {
            self.proof.recover(dead, &mut || settle(dead));
        }
    }
}
