//! The processes that share a segment, as one of them sees them while it waits or polls.
//!
//! A party that waits asks once a *notice* whether the party that it waits for has died. The
//! consequence was declared when the segment was made.
//!
//! Invariants
//! - I1: a death is never concluded from time that passed. Only a [`Proof`] says that a participant
//!   is dead.
//! - I2: each handle keeps its own dates ([`DeathChecks`]), so no handle's check puts another's
//!   off.

use std::time::Duration;

use crate::base::name_lost::NameLost;
use crate::base::sync::{Arc, Line, Mutex, Relaxed, Statistic, lock, twin};
use crate::base::system;
use crate::errors::WaitError;
use crate::processes::reactors::Reactors;
use crate::ring::seat::Seat;
use crate::ring::world::Recover;

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

    /// Returns the loss of the segment's name, if waiting calls must return it. Waiting parties ask
    /// once a notice.
    fn lost_name(&self) -> Option<NameLost> {
        None
    }

    /// Returns whether the calling process is the one that attached. A forked child inherits
    /// handles, but not the memory of the segment.
    fn is_own_process(&self) -> bool {
        true
    }
}

/// The effect of a process's death on the parties that wait for its stage or producer.
///
/// A pool is dead once none of its workers lives, and one of them has died: while another worker
/// lives, it finishes the events of the dead one, and the parties that wait for the pool wait on.
/// The same holds for several producers. Shards do not replace each other: a dead shard counts once
/// the parties wait for it.
///
/// Of several producers, only the death of the last living one has the effect: while another one
/// lives, the claim of the dead one is given up, and the stages go on with the events of the
/// others. A party whose last handle has left is not dead, also if others of the party died before.
///
/// The death of a tap's reader has no such effect: the parties that wait for it remove it and go
/// on.
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

/// The world of a segment's ring, as one process sees it: how the process learns of deaths, and the
/// threads that sleep for its tasks.
pub struct Processes {
    /// For each party, what happens when a process dies that has a place of the party.
    pub(crate) on_death: Box<[OnDeath]>,
    /// Longest time between two checks for deaths.
    pub(crate) notice: Duration,
    pub(crate) proof: Arc<dyn Proof>,
    /// Errors that the next calls of this process's waiting tasks return.
    pub(crate) noted: NotedDeaths,
    pub(crate) reactors: Reactors,
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

/// Largest number of refused calls for each of which a handle does not read the clock.
const MOST_SKIPPED: u8 = 15;

/// The dates at which a handle checks for deaths because its calls were refused: they found
/// nothing, and did not wait.
///
/// A refused call checks if a notice has passed since the handle's last check. A call that follows
/// a pause reads the clock, which costs about as much as an empty poll. A call of a tight loop
/// mostly counts instead. After each reading that finds the clock at the same tick, the handle
/// skips twice as many calls, up to [`MOST_SKIPPED`]; after any other reading it skips none. So
/// the skipped calls of an even loop take less than a tick together. A loop that begins to pause
/// may skip some calls once more.
///
/// The clock is the coarse one ([`system::coarse_nanos`]). So a check may be late by one of its
/// ticks, of 1 to 10 ms, and a notice below a tick acts as a tick.
#[derive(Default)]
pub struct DeathChecks {
    /// Number of refused calls before the next reading of the clock.
    skips: u8,
    /// Number of refused calls that the last reading decided to skip.
    skipped: u8,
    /// Whether the last check found a death that its call could not tell.
    is_untold: bool,
    /// Time of the last reading, in nanoseconds of the coarse clock.
    read: u64,
    /// Time of the last check, in nanoseconds of the coarse clock; 0: there was none.
    checked: u64,
}

impl DeathChecks {
    /// Notes a refused call. Returns whether the call must check for deaths.
    #[inline(always)]
    pub(crate) fn is_due(&mut self, notice: Duration) -> bool {
        if self.skips != 0 {
            self.skips -= 1;
            return false;
        }
        self.is_due_now(notice)
    }

    /// Works as [`DeathChecks::is_due`], by the clock.
    #[inline(never)]
    fn is_due_now(&mut self, notice: Duration) -> bool {
        // The models know no time: there, only calls that wait check.
        !cfg!(slipring_loom) && self.is_due_at(system::coarse_nanos(), notice)
    }

    fn is_due_at(&mut self, now: u64, notice: Duration) -> bool {
        let same = now == self.read;
        self.skipped = if same { (2 * self.skipped + 1).min(MOST_SKIPPED) } else { 0 };
        (self.skips, self.read) = (self.skipped, now);
        let notice = u64::try_from(notice.as_nanos()).unwrap_or(u64::MAX);
        let due = self.is_untold || now.saturating_sub(self.checked) >= notice;
        if due {
            (self.checked, self.is_untold) = (now, false);
        }
        due
    }

    /// Has the next refused call check, because this one has found a death and cannot tell it.
    #[cold]
    pub(crate) fn tell_later(&mut self) {
        (self.skips, self.is_untold) = (0, true);
    }
}

impl Processes {
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

    /// Returns whether the participant that owns a seat is dead. Notes the death on the seat
    /// ([`Seat::find_dead`]), before any process that has not noted it can hold the proof of the
    /// death.
    pub(crate) fn find_dead(&self, seat: &Seat) -> bool {
        seat.owner().is_some_and(|owner| self.find_owner_dead(seat, owner))
    }

    fn find_owner_dead(&self, seat: &Seat, owner: u32) -> bool {
        let proof = || self.proof.is_dead(owner).then(|| self.proof.pid(owner));
        seat.find_dead(owner, proof)
    }

    /// Recovers the participant `dead`, if it is dead. Its death is noted on all of its `seats`
    /// first: while the proof is held, the participant does not look dead.
    pub(crate) fn recover(&self, seats: &[Line<Seat>], dead: u32, ring: &dyn Recover) {
        let find = |seat: &Line<Seat>| self.find_owner_dead(seat, dead);
        let found = twin!("death-unnoted":
            seats.iter().filter(|seat| find(seat)).count() != 0 =>
            self.proof.is_dead(dead)
        );
        if found {
            self.proof.recover(dead, &mut || ring.settle(dead));
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    const NOTICE: Duration = Duration::from_millis(20);
    /// A tick of the coarse clock, in nanoseconds.
    const TICK: u64 = 4_000_000;

    /// A handle's dates, and a count of its readings of the clock.
    #[derive(Default)]
    struct Loop {
        checks: DeathChecks,
        readings: u64,
    }

    impl Loop {
        /// Makes a refused call at `now`, in nanoseconds.
        fn call(&mut self, now: u64) -> bool {
            if self.checks.skips != 0 {
                self.checks.skips -= 1;
                return false;
            }
            self.readings += 1;
            self.checks.is_due_at(now / TICK * TICK, NOTICE)
        }
    }

    #[test]
    fn a_tight_loop_checks_once_a_notice_and_reads_the_clock_seldom() {
        let (mut calls, mut due) = (Loop::default(), Vec::new());
        let start = 1_000_000_000;
        // A call each 50 ns, for 200 ms.
        (0..4_000_000).for_each(|n| {
            if calls.call(start + n * 50) {
                due.push(n * 50);
            }
        });
        assert_eq!(due.len(), 10, "{due:?}");
        assert!(due.windows(2).all(|due| due[1] - due[0] < 20_000_000 + 100 * 50), "{due:?}");
        let most = 4_000_000 / (u64::from(MOST_SKIPPED) + 1) + 1_000;
        assert!(calls.readings < most, "{} readings", calls.readings);
    }

    #[test]
    fn a_loop_that_pauses_checks_within_a_notice_a_tick_and_a_pause() {
        for pause in [100_000, 1_000_000, 3_000_000, 10_000_000, 50_000_000, 1_000_000_000] {
            let (mut calls, mut last) = (Loop::default(), 1_000_000_000);
            for n in 0..10_000 {
                let now = 1_000_000_000 + n * pause;
                if calls.call(now) {
                    // The skipped calls of a tick may end in the next.
                    assert!(now - last <= 20_000_000 + 2 * TICK + pause, "{pause}: {now} {last}");
                    last = now;
                }
            }
            assert!(last > 1_000_000_000, "{pause}: no check");
        }
    }

    #[test]
    fn a_loop_that_begins_to_pause_skips_few_calls() {
        let (mut calls, mut now) = (Loop::default(), 1_000_000_000);
        (0..1_000).for_each(|_| {
            now += 10;
            calls.call(now);
        });
        let mut skipped = 0;
        now += 1_000_000_000;
        while !calls.call(now) {
            skipped += 1;
            now += 1_000_000_000;
        }
        assert!(skipped <= u64::from(MOST_SKIPPED), "{skipped}");
        now += 1_000_000_000;
        assert!(calls.call(now), "the first call after the next pause");
    }

    #[test]
    fn a_death_that_could_not_be_told_is_found_again() {
        let mut calls = Loop::default();
        let now = 1_000_000_000;
        assert!(calls.call(now), "the first refused call checks");
        assert!(!calls.call(now));
        calls.checks.tell_later();
        assert!(calls.call(now));
        assert!(!calls.call(now));
    }
}
