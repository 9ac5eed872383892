//! The turns that a thread of an executor remembers, to choose its next entry.
//!
//! # Which entry comes next
//!
//! A thread takes its next entry by the first of these rules that fits:
//! 1. The entry of the last turn, if the batch was so long that events were left. A thread stays at
//!    an entry for up to [`STAYS`] turns in a row. The handler's code and state are in the nearest
//!    caches.
//! 2. The entries that this thread ran last. The states of their handlers are in the cache of the
//!    thread's core. The events of a pipeline then cross to another core only where one thread's
//!    stages end and the next thread's begin.
//! 3. The entries of the stages that follow the stage whose batch the thread has just handled. The
//!    batch is in the cache of the thread's core.
//! 4. The entries furthest downstream, so that the backlog in the ring stays short. Entries of the
//!    same depth come in turn.
//!
//! If rule 2 allows several entries, rules 3 and 4 choose among them.
//!
//! Once in each interval of [`FAIR_AFTER`], a thread makes a fair choice instead: it takes the
//! entries one after the other. So an entry does not starve if its thread is busy with a long
//! event, or if another entry always has events. Such an entry waits for at most one interval per
//! entry of the executor, plus the time by which turns exceed an interval.
//!
//! Invariants
//! - I1: the choice affects only the speed. A thread that finds no entry by rules 1 and 2 checks
//!   all other entries before it waits.

use crate::base::sync::shortened;

/// Largest number of turns in a row that a thread takes at one entry while other entries are ready.
/// In the example `readings` on one core, limits of 1 to 8 turns cost two percent of the rows per
/// second.
const STAYS: u64 = 16;

/// Time after which a thread makes a fair choice, in nanoseconds. The chosen entry often ran on
/// another core before, and its handler's state takes some microseconds to follow. An interval of 2
/// ms costs the example `readings` one percent of its rows per second.
const FAIR_AFTER: u64 = 5_000_000;

/// The turns of a thread so far.
#[derive(Clone, Copy)]
pub(super) struct History {
    /// Number of the thread.
    pub(super) thread: u64,
    /// The entry of the last turn; `None` if the thread has waited since that turn.
    last: Option<usize>,
    /// Number of turns.
    count: usize,
    /// Number of turns in a row that were taken at the entry `last` and left events there.
    stays: u64,
    /// Readings of the coarse clock: at the end of the last turn, and at the time when the last
    /// fair choice was due.
    ended: u64,
    last_fair: u64,
    /// The entry that the next fair choice checks first.
    next_fair: usize,
}

/// A turn that has ended.
pub(super) struct Done {
    pub(super) entry: usize,
    /// Whether the entry was ready again at the end of the turn.
    pub(super) is_ready: bool,
    /// Whether the batch was so long that the turn ended with events left in the entry.
    pub(super) is_behind: bool,
    /// Reading of the coarse clock at the end of the turn, in nanoseconds.
    pub(super) ended: u64,
    /// Whether the entry is due at some time, although no event comes.
    pub(super) is_timed: bool,
}

impl History {
    /// Makes the history of a thread that has had no turn.
    pub(super) fn of(thread: usize) -> History {
        let (last, count, stays) = (None, 0, 0);
        let (ended, last_fair, next_fair) = (0, 0, 0);
        History { thread: thread as u64, last, count, stays, ended, last_fair, next_fair }
    }

    /// Adds a turn.
    pub(super) fn add(&mut self, done: &Done) {
        let is_same = self.last.replace(done.entry) == Some(done.entry);
        let stays = if is_same { self.stays } else { 0 };
        self.stays = if done.is_behind { stays + 1 } else { 0 };
        if self.is_fair() {
            (self.last_fair, self.next_fair) = (self.ended, done.entry + 1);
        }
        self.ended = done.ended;
        self.count = self.count.wrapping_add(1);
    }

    /// Adds a wait.
    pub(super) fn add_wait(&mut self) {
        (self.last, self.stays) = (None, 0);
    }

    /// Returns the entry that rule 1 chooses, if any.
    pub(super) fn stay(&self) -> Option<usize> {
        self.last.filter(|_| !self.stays.is_multiple_of(shortened(STAYS)))
    }

    /// Returns whether a fair choice is due. A fair choice takes the entries in the order of
    /// [`History::fair_order`].
    pub(super) fn is_fair(&self) -> bool {
        self.ended.saturating_sub(self.last_fair) >= FAIR_AFTER
    }

    /// Returns all of `count` entries, beginning with the entry after the last fair choice.
    pub(super) fn fair_order(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.next_fair;
        (0..count).map(move |entry| (first + entry) % count)
    }

    /// Returns the entries in the order of rules 3 and 4. `followers` holds, for each entry, the
    /// entries that follow it; `levels` holds the entries by depth, the deepest first.
    pub(super) fn order<'a>(
        &self,
        followers: &'a [Box<[usize]>],
        levels: &'a [Box<[usize]>],
    ) -> impl Iterator<Item = usize> + use<'a> {
        let count = self.count;
        let in_turn = levels.iter().flat_map(move |level| {
            let (before, behind) = level.split_at(count % level.len());
            behind.iter().chain(before)
        });
        let followers = self.last.map_or(&[][..], |last| &followers[last]);
        let others = in_turn.filter(|entry| !followers.contains(entry));
        followers.iter().chain(others).copied()
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    fn done(entry: usize, is_behind: bool, millis: u64) -> Done {
        Done { entry, is_ready: true, is_behind, ended: millis * 1_000_000, is_timed: false }
    }

    #[test]
    fn a_thread_stays_with_an_entry_that_is_behind_for_some_turns() {
        let mut history = History::of(0);
        assert_eq!(history.stay(), None);
        for _ in 1..STAYS {
            history.add(&done(3, true, 0));
            assert_eq!(history.stay(), Some(3));
        }
        history.add(&done(3, true, 0));
        assert_eq!(history.stay(), None, "others have their turn");
        history.add(&done(3, true, 0));
        assert_eq!(history.stay(), Some(3), "no other was ready");
        history.add(&done(3, false, 0));
        assert_eq!(history.stay(), None, "the entry had no event left");
        history.add(&done(3, true, 0));
        history.add(&done(4, true, 0));
        assert_eq!(history.stay(), Some(4));
        history.add_wait();
        assert_eq!(history.stay(), None);
    }

    #[test]
    fn a_thread_looks_at_the_entries_of_others_once_in_a_while() {
        let mut history = History::of(0);
        history.add(&done(0, true, 1_000));
        let mut chosen = Vec::new();
        for millis in 1_001..=1_020 {
            let fair = history.is_fair();
            // Entry 0 always has events, and is the choice of rule 1.
            let next = if fair { history.fair_order(3).next().unwrap() } else { 0 };
            chosen.extend(fair.then_some(next));
            history.add(&done(next, true, millis));
        }
        assert_eq!(chosen, [0, 1, 2, 0]);
    }

    #[test]
    fn followers_come_first_and_then_the_deepest_in_turn() {
        let levels: [Box<[usize]>; 2] = [[2, 3].into(), [0, 1].into()];
        let followers: [Box<[usize]>; 4] = [[2].into(), [3].into(), [].into(), [].into()];
        let mut history = History::of(0);
        let order = |history: &History| history.order(&followers, &levels).collect::<Vec<_>>();
        assert_eq!(order(&history), [2, 3, 0, 1]);
        history.add(&done(1, false, 0));
        assert_eq!(order(&history), [3, 2, 1, 0]);
        history.add(&done(0, false, 0));
        assert_eq!(order(&history), [2, 3, 0, 1]);
        history.add_wait();
        assert_eq!(order(&history), [2, 3, 0, 1]);
    }
}
