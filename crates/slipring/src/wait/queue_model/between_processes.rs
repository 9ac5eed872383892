//! Models of the queue that processes share (shared_queue::I1 to I3).
//!
//! As long as no thread dies, no wake-up depends on a limit, so the sleeps of these models have no
//! limit unless a model gives them one. If threads die, a limit can end a sleep, but only while no
//! other thread can take a step, and only as often as the model allows. So the models also count
//! the sleeps that last until their limit because of a death.

use super::explore::{Model, Program};
use super::machine::wait_for_others;
use super::maybe_mapped::MaybeMapped;
use super::queue::{self, WaitQueue};
use super::queue_state::{EPOCH, FENCED, QUIET, QueueState, SLEEPER};
use super::sync::{AtomicU64, Line, Relaxed, Statistic};
use super::{Explored, ModelData};
use crate::wait::queue_tests::soaks;

/// Epoch of a queue whose next wake-up begins again at epoch 0.
const LAST_EPOCH: u64 = EPOCH.wrapping_neg();
/// All bits of an epoch but the lowest.
const ALL_BUT_ONE_BIT: u64 = LAST_EPOCH << 1;

impl ModelData {
    /// Returns the data of a model with one queue, whose state word begins as `word`.
    pub(super) fn between_processes(word: u64, notifiers: usize, publications: u8) -> ModelData {
        let state = QueueState {
            word: AtomicU64::new(word),
            restless: AtomicU64::new(0),
            fenced_notifies: Statistic::new(0),
            quiet_after: Statistic::new(0),
            notified_at: Statistic::new(0),
        };
        let queue = WaitQueue::between_processes(MaybeMapped::new(Line::new(state)));
        ModelData {
            queues: vec![queue],
            notifies: vec![0],
            ..ModelData::new(0, notifiers, publications)
        }
    }

    /// Returns the [`Program`] of a notifier that a successor can replace at any step. Each call
    /// continues from the stored progress.
    fn continues(&self, notifier: usize) -> Program<'_> {
        Box::new(move |_| {
            let published = self.progress[notifier].load(Relaxed);
            if published == u64::from(self.publications) {
                return None;
            }
            self.progress[notifier].store(published + 1, Relaxed);
            queue::notify(&self.queues, &self.notifies);
            Some(0)
        })
    }

    /// Returns the [`Program`] of a sleeper that polls once, and finds progress.
    fn polls_once(&self) -> Program<'_> {
        Box::new(move |_| {
            self.queues[0].sleep(None, &mut || true);
            None
        })
    }

    /// Returns the [`Program`] of a sleeper that dies as soon as it is announced.
    fn announces(&self) -> Program<'_> {
        Box::new(move |_| {
            self.queues[0].word().fetch_add(u64::from(SLEEPER), Relaxed);
            None
        })
    }

    /// Returns the [`Program`] of a notifier that notifies once, without progress.
    fn notifies_once(&self) -> Program<'_> {
        Box::new(move |_| {
            queue::notify(&self.queues, &self.notifies);
            None
        })
    }

    /// Returns the [`Program`] that notifies once after all other threads have ended.
    fn notifies_last(&self) -> Program<'_> {
        Box::new(move |_| {
            wait_for_others();
            queue::notify(&self.queues, &self.notifies);
            None
        })
    }
}

/// Number of publications that each notifier makes. The soak explores more.
pub(super) fn publications() -> u8 {
    if soaks() { 2 } else { 1 }
}

/// Explores one sleeper and two notifiers.
fn two_notifiers(start: u64, publications: u8, refuses: bool, twin: &'static str) -> Explored {
    let data = ModelData::between_processes(start, 2, publications);
    let threads = vec![
        ("first notifier", data.publishes(0)),
        ("second notifier", data.publishes(1)),
        ("sleeper", data.sleeps(0, 0)),
    ];
    Model { refuses, ..data.model(threads) }.explore(twin)
}

/// Explores two sleepers and one notifier. The second sleeper's first sleep has a time limit.
fn two_sleepers(start: u64, publications: u8, twin: &'static str) -> Explored {
    let data = ModelData::between_processes(start, 1, publications);
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("first sleeper", data.sleeps(0, 0)),
        ("second sleeper", data.sleeps(0, 1)),
    ];
    data.model(threads).explore(twin)
}

/// Explores a sleeper and its notifier, a second sleeper that dies as soon as it is announced, and
/// a second notifier that stores no progress. In the soak, the second sleeper does not die but
/// polls once.
fn four_threads(start: u64, soaks: bool, twin: &'static str) -> Explored {
    let data = ModelData::between_processes(start, 1, 1);
    let second = if soaks { data.polls_once() } else { data.announces() };
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("second notifier", data.notifies_once()),
        ("second sleeper", second),
        ("sleeper", data.sleeps(0, 0)),
    ];
    // If the second sleeper dies after the last notification, its announcement is left.
    let model = data.model(threads);
    if soaks { model.explore(twin) } else { Model { end: None, ..model }.explore(twin) }
}

/// Explores one notifier, two sleepers, and a notification after all of these have ended. At most
/// `deaths` sleepers die. If `notifier_dies` is set, the notifier may die, too. `limits` sleeps of
/// each thread may end by their limit.
fn deaths(start: u64, publications: u8, notifier_dies: bool, deaths: u8, limits: u8) -> Explored {
    let data = ModelData::between_processes(start, 1, publications);
    let threads = vec![
        ("first sleeper", data.sleeps(0, 0)),
        ("second sleeper", data.sleeps(0, 0)),
        ("notifier", data.continues(0)),
        ("last notifier", data.notifies_last()),
    ];
    // A dead sleeper has no successor. A dead notifier's successor continues the publications.
    let mut mortal = vec![None, None, Some(0)];
    mortal.truncate(if notifier_dies { 3 } else { 2 });
    Model { mortal, deaths, limits, ..data.model(threads) }.explore("")
}

/// Explores a notifier and two sleepers, of which the second polls only once, with epochs of one
/// bit.
fn one_bit(start: u64, limits: u8, twin: &'static str) -> Explored {
    let data = ModelData::between_processes(start, 1, 2);
    let threads = vec![
        ("notifier", data.publishes(0)),
        ("second sleeper", data.polls_once()),
        ("sleeper", data.sleeps(0, 0)),
    ];
    Model { not_kept: ALL_BUT_ONE_BIT, limits, ..data.model(threads) }.explore(twin)
}

/// Returns `start` in a soak, and otherwise the word of a fenced queue. From a quiet start, each of
/// the large models takes half a minute, which is too long for a usual run.
fn in_soak(start: u64) -> u64 {
    if soaks() { start } else { u64::from(FENCED) }
}

/// Asserts that a model passes from a quiet start and from a fenced start.
pub(super) fn passes(least: usize, model: impl Fn(u64) -> Explored) {
    for start in [QUIET, FENCED] {
        let states = model(u64::from(start)).unwrap_or_else(|reason| panic!("{reason}"));
        println!("{states} states from {start}");
        assert!(states >= least, "{states} states are fewer than the {least} expected");
    }
}

/// Asserts that a model fails for a reason that contains `reason`.
pub(super) fn fails(found: Explored, reason: &str) {
    let found = found.expect_err("the model must fail");
    assert!(found.contains(reason), "{found}");
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn no_sleeper_misses_one_of_two_notifiers_of_other_processes() {
    passes(9_000, |start| two_notifiers(start, publications(), false, ""));
}

/// The queue starts in the last epoch, so the epoch wraps around to zero.
#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn neither_of_two_sleepers_of_two_processes_is_left_asleep() {
    passes(31_000, |start| two_sleepers(LAST_EPOCH | in_soak(start), publications(), ""));
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn two_sleepers_and_two_notifiers_lose_no_wake_up() {
    passes(57_000, |start| four_threads(start, soaks(), ""));
}

/// Shows that sleeps without a limit lose no wake-up if a nap replaces a refused barrier.
#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn a_refused_barrier_of_processes_loses_no_wake_up() {
    passes(10_000, |start| two_notifiers(start, publications(), true, ""));
}

/// Shows that the death of a sleeper leaves no living sleeper asleep, even if sleeps have no limit.
/// The next notification takes the announcement that the dead sleeper left.
#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn a_dead_sleeper_leaves_no_other_asleep() {
    passes(19_000, |start| deaths(in_soak(start), publications(), false, 1, 0));
}

/// Shows that one death of a notifier makes each sleeper sleep until its limit at most once, and
/// that a sleeper without a limit would sleep for ever. The next test has two deaths.
#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn a_death_between_the_epoch_and_the_wake_costs_one_limit() {
    for start in [QUIET, FENCED] {
        for most in [1, 2] {
            fails(deaths(u64::from(start), 1, true, most, 0), "left asleep: ");
        }
    }
    passes(29_000, |start| deaths(in_soak(start), publications(), true, 1, 1));
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn two_such_deaths_cost_two_limits() {
    passes(29_000, |start| deaths(in_soak(start), publications(), true, 2, 2));
}

/// An epoch of one bit soon wraps around during a sleep. Then only the limit ends that sleep, but
/// the count of sleepers and the epoch stay correct.
#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn an_epoch_that_comes_round_costs_one_limit() {
    for start in [QUIET, FENCED] {
        fails(one_bit(u64::from(start), 0, ""), "left asleep: sleeper;");
    }
    passes(85_000, |start| one_bit(in_soak(start), 1, ""));
}

#[test]
#[cfg_attr(miri, ignore = "takes an hour, and runs no unsafe code")]
fn every_step_of_a_shared_queue_is_needed() {
    let notifiers = |start, twin| two_notifiers(start, 2, false, twin);
    let sleepers = |start, twin| two_sleepers(LAST_EPOCH | start, 2, twin);
    let (quiet, fenced) = (u64::from(QUIET), u64::from(FENCED));
    for start in [quiet, fenced] {
        for twin in [
            "process-barrier-left-out",
            "notifier-unfenced",
            "sleeper-blind",
            "fenced-late",
            "quiet-by-store",
            "same-epoch",
        ] {
            fails(notifiers(start, twin), "left asleep: sleeper;");
        }
        for twin in ["announced-trusted", "other-epoch-withdrawn"] {
            fails(sleepers(start, twin), "left asleep: ");
        }
    }
    fails(four_threads(quiet, false, "fenced-by-waker"), "left asleep: sleeper;");
    fails(one_bit(quiet, 1, "withdrawn-uncounted"), "ends with the word");
    fails(one_bit(fenced, 1, "withdrawn-uncounted"), "ends with the word");
}
