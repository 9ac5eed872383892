//! One process's view of the other processes of a segment, and the schedule by which the process
//! checks whether they live.
//!
//! A waiting party checks once per *notice* whether the party that it waits for has died. The
//! declaration of the segment states the notice, which is the longest time between two checks, and
//! what happens after a death ([`OnDeath`]).
//!
//! Invariants
//! - I1: a death is never concluded from time that passed. Only a [`Proof`] says that a participant
//!   is dead.
//! - I2: each handle keeps its own schedule of checks ([`DeathChecks`]), so a check by one handle
//!   does not delay the check of another.

use std::time::Duration;

use crate::base::name_lost::NameLost;
use crate::base::sync::{Arc, Line, Mutex, Relaxed, Statistic, lock, twin};
use crate::base::system;
use crate::errors::WaitError;
use crate::processes::reactors::Reactors;
use crate::ring::seat::Seat;
use crate::ring::world::Recover;

/// Source of proof that participants of a segment are dead.
pub trait Proof: Send + Sync {
    /// Returns whether the participant `number` is dead. A participant that is dead stays dead
    /// until its number is given to another process.
    fn is_dead(&self, number: u32) -> bool;

    /// Calls `settle` while it holds the proof that the participant `number` is dead, and then
    /// frees the participant's number. During the call, no other thread or process settles what the
    /// participant left. Returns `false` without a call of `settle` if the participant lives, has
    /// left, or is being recovered by another process, or if the proof is not available.
    fn recover(&self, number: u32, settle: &mut dyn FnMut()) -> bool;

    /// Returns the process id of a participant, for messages, or 0 if the id is not known.
    fn pid(&self, number: u32) -> u32;

    /// Checks whether the segment's name is lost. If it is, returns the error that waiting calls
    /// must return. Waiting parties call this method once per notice.
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
/// - A pool counts as dead once no worker lives and at least one worker has died. While another
///   worker lives, that worker finishes the dead worker's events, and the parties that wait for the
///   pool continue to wait.
/// - Several producers count as dead by the same rule. While another producer lives, the dead
///   producer's claim is given up, and the stages continue with the events of the living producers.
/// - Shards do not replace each other, so the death of a shard takes effect as soon as another
///   party waits for that shard.
///
/// A party whose last handle has left does not count as dead, even if other handles of the party
/// died before.
///
/// The death of a tap's reader has none of these effects: the parties that wait for the reader
/// remove it and continue.
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
    /// The waiting parties wait until another process takes the dead process's place. A wait still
    /// ends at its deadline and at the end of the graph.
    #[default]
    Wait,
    /// The calls of the waiting parties return
    /// [`WaitError::PeerDead`](crate::errors::WaitError::PeerDead). A later call waits again.
    Tell,
    /// The graph fails.
    Fail,
    /// The ring closes behind the last published event, as if the producer had left: the stages
    /// handle all published events, and end. Only producers can have this effect.
    Close,
}

/// The death of a process that had a place of a party. If several processes of the party died,
/// waiting calls report the greatest `Death`. A death that is not settled yet is greater than one
/// that is settled. Otherwise, the death with the higher process id is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Death {
    /// Whether the words and seats that the dead process left still have to be settled. Waiting
    /// calls report such a death before other deaths.
    is_unsettled: bool,
    /// The process id, or 0 if the id is not known.
    pub(crate) pid: u32,
}

/// The `World` of a segment's ring in one process. It says how the process learns of deaths, and
/// has the threads that sleep on behalf of the process's tasks.
pub struct Processes {
    /// For each party, the effect of the death of one of its processes.
    pub(crate) on_death: Box<[OnDeath]>,
    /// Longest time between two checks for deaths.
    pub(crate) notice: Duration,
    pub(crate) proof: Arc<dyn Proof>,
    /// Errors that the next calls of this process's waiting tasks return.
    pub(crate) noted: NotedDeaths,
    pub(crate) reactors: Reactors,
}

/// The errors that the next calls of waiting tasks return, each with its task's number. If a handle
/// is dropped before its next call, its error stays until the ring is freed.
#[derive(Default)]
pub(crate) struct NotedDeaths {
    /// Number of noted errors. Most calls load only this number, because it is 0.
    count: Statistic,
    errors: Mutex<Vec<(u64, WaitError)>>,
}

impl NotedDeaths {
    /// Notes an error for the task. It replaces the task's earlier error, if there is one.
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

/// Largest number of successive refused calls that do not read the clock.
const MOST_SKIPPED: u8 = 15;

/// The schedule by which a handle's refused calls check for dead processes. A call is refused if it
/// finds no event, or no room, and does not wait.
///
/// A refused call checks for deaths once a notice has passed since the handle's last check. A
/// reading of the clock costs about as much as an empty poll, so most calls of a tight loop only
/// count, and do not read the clock:
///
/// - If a reading finds the clock at the same tick as the previous reading did, the handle then
///   skips some readings. Their number is twice the number that was skipped after the previous
///   reading, plus one, and at most [`MOST_SKIPPED`].
/// - After any other reading, the handle skips none. So a call that follows a pause reads the
///   clock.
///
/// In a loop whose rounds are equally long, the skipped calls between two readings take less than a
/// tick together. When the loop begins to pause between its rounds, the skips that are left at that
/// moment may take longer than a tick, but only once.
///
/// The clock is the coarse one ([`system::coarse_nanos`]), whose ticks last 1 to 10 ms. So a check
/// may be late by two ticks: one tick during which the clock stands still, and one because the
/// skipped calls may reach into the next tick. A notice that is shorter than a tick acts as a
/// notice of one tick.
#[derive(Default)]
pub struct DeathChecks {
    /// Number of refused calls before the next reading of the clock.
    skips: u8,
    /// Number of refused calls that the handle decided to skip at its last reading of the clock.
    skipped: u8,
    /// Whether the last check found a death that its call could not return as an error.
    is_untold: bool,
    /// Time of the last reading, in nanoseconds of the coarse clock.
    read: u64,
    /// Time of the last check, in nanoseconds of the coarse clock, or 0 if the handle has not
    /// checked yet.
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

    /// Like [`DeathChecks::is_due`], but reads the clock in any case.
    #[inline(never)]
    fn is_due_now(&mut self, notice: Duration) -> bool {
        // A model has no time, so in a model only waiting calls check for deaths.
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

    /// Makes the next refused call check for deaths, because the current call has found a death and
    /// cannot return it as an error.
    #[cold]
    pub(crate) fn tell_later(&mut self) {
        (self.skips, self.is_untold) = (0, true);
    }
}

impl Processes {
    /// Returns the death of a seat's owner. If the seat has no owner now, returns the death of its
    /// last owner. Returns `None` if the owner lives, if the last owner has left, or if another
    /// handle of the party lived when the last owner was recovered (`seat::I4`).
    pub(crate) fn death_of(&self, seat: &Seat) -> Option<Death> {
        let Some(owner) = seat.owner() else {
            return seat.last_death().map(|pid| Death { is_unsettled: false, pid });
        };
        let is_dead = self.proof.is_dead(owner);
        let pid = self.proof.pid(owner);
        // If the seat now has another owner, that owner has taken the dead process's place, and the
        // death holds up no party.
        let still = twin!("owner-unchecked": seat.owner() == Some(owner) => true);
        (is_dead && still).then_some(Death { is_unsettled: true, pid })
    }

    /// Returns whether the participant that owns a seat is dead. If it is, notes the death on the
    /// seat ([`Seat::find_dead`]). Each process notes a death before it takes the proof of the
    /// death.
    pub(crate) fn find_dead(&self, seat: &Seat) -> bool {
        seat.owner().is_some_and(|owner| self.find_owner_dead(seat, owner))
    }

    fn find_owner_dead(&self, seat: &Seat, owner: u32) -> bool {
        let proof = || self.proof.is_dead(owner).then(|| self.proof.pid(owner));
        seat.find_dead(owner, proof)
    }

    /// Recovers the participant `dead`, if it is dead. Before that, notes the death on each of the
    /// participant's seats. It could not do so later: while a process holds the proof of the death,
    /// the participant does not look dead.
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

    /// A handle's schedule of checks, and the number of times that the handle has read the clock.
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
        // Makes a call every 50 ns, for 200 ms.
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
    fn a_loop_that_pauses_checks_within_a_notice_two_ticks_and_a_pause() {
        for pause in [100_000, 1_000_000, 3_000_000, 10_000_000, 50_000_000, 1_000_000_000] {
            let (mut calls, mut last) = (Loop::default(), 1_000_000_000);
            for n in 0..10_000 {
                let now = 1_000_000_000 + n * pause;
                if calls.call(now) {
                    // The calls that are skipped in one tick may reach into the next tick.
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
