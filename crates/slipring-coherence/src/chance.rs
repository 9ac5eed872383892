//! A run by a schedule: what happens between accesses, and which thread comes next.
//!
//! - I1: A sleep that may not end early ends at its time, or later. One that may end without a
//!   reason ends as by a wake-up.
//! - I2: When all threads sleep without a timer, the run is over: it is a deadlock.

use crate::memory::cores;
use crate::running::{Body, Running, Sleep, State};

/// Longest virtual time of a spin hint, in picoseconds, where repetitions are short.
const LONG_HINT: u64 = 20_000_000;

impl Running {
    /// Returns whether stores wait in buffers, in a run by a schedule; `None` in any other.
    #[inline(always)]
    pub(crate) fn stores_late(&self) -> Option<bool> {
        self.shuffle.as_ref().map(|shuffle| shuffle.schedule.late_stores != 0)
    }

    /// Lets a spin hint or a yield take a long time, so that waits whose stages have durations pass
    /// through all of them, and others' sleeps end meanwhile.
    pub(crate) fn spin(&mut self) {
        if let Some(shuffle) = &mut self.shuffle {
            let most = if shuffle.schedule.short { LONG_HINT } else { LONG_HINT / 16 };
            let time = shuffle.dice.below(most);
            shuffle.pay(time);
        }
    }

    /// Does what is due at this access. Returns whether the thread's turn is over.
    #[cold]
    pub(crate) fn due(&mut self) -> bool {
        let Some(shuffle) = &mut self.shuffle else { return false };
        shuffle.settle();
        if shuffle.steps >= shuffle.commits {
            shuffle.commits = shuffle.next_commit();
            let chance = shuffle.dice.roll();
            // A thread that is held is so wherever it is, also between a store and its effect.
            let held = shuffle.held();
            self.memory.commit_one(chance, held);
        }
        let mut over = shuffle.limit_reached() || shuffle.steps >= shuffle.turn_ends;
        if shuffle.changes.last().is_some_and(|at| shuffle.steps >= *at) {
            shuffle.changes.pop();
            shuffle.give_way(self.current);
            over = true;
        }
        self.die_by_chance();
        if let Some(shuffle) = &mut self.shuffle {
            shuffle.plan();
        }
        over || self.is_dead(self.current)
    }

    /// Chooses the core that runs next, by chance. Returns `None` if all sleep without a timer.
    pub(crate) fn choose_by_chance(&mut self) -> Option<usize> {
        loop {
            self.end_some_sleeps();
            let able = cores(self.busy)
                .filter(|core| matches!(self.places[*core].state, State::Runnable))
                .fold(0, |bits, core| bits | 1 << core);
            let shuffle = self.shuffle.as_mut()?;
            if able != 0 {
                shuffle.settle();
                let core = shuffle.choose(able);
                shuffle.switches += u64::from(core != self.current);
                shuffle.begin_turn(core, self.current);
                shuffle.plan();
                self.current = core;
                return Some(core);
            }
            // All sleep. Their stores do not.
            self.memory.commit_everywhere();
            let rescues = self.shuffle.as_ref()?.schedule.rescues;
            let may_end = |core: usize| match self.places[core].state {
                State::Asleep(asleep) => rescues || asleep.cause == Sleep::Time,
                _ => false,
            };
            let timed = self.timed_sleepers().filter(|(core, _)| may_end(*core));
            let (core, until) = timed.min_by_key(|(_, until)| *until)?;
            self.leap(core, until);
        }
    }

    /// Interferes with the current thread. Returns after how many steps of protocols to do so
    /// again.
    #[cold]
    pub(crate) fn interfere(&mut self) -> u64 {
        let is_mortal = self.places[self.current].process.is_some();
        let (core, shuffle) = (self.current, self.shuffle.as_mut());
        shuffle.map_or(u64::MAX, |shuffle| shuffle.interfere(core, is_mortal))
    }

    /// Returns the cores that sleep with a timer, and when each ends.
    fn timed_sleepers(&self) -> impl Iterator<Item = (usize, u64)> {
        cores(self.busy).filter_map(|core| match self.places[core].state {
            State::Asleep(asleep) if asleep.until != u64::MAX => Some((core, asleep.until)),
            _ => None,
        })
    }

    /// Lets the clock leap to the end of a sleep.
    fn leap(&mut self, core: usize, until: u64) {
        let Some(shuffle) = &mut self.shuffle else { return };
        shuffle.settle();
        shuffle.now = shuffle.now.max(until);
        self.end_sleep(core, until, false);
    }

    /// Ends sleeps that are over, others without a reason, and lets the clock leap, by chance.
    fn end_some_sleeps(&mut self) {
        let asleep = |core: &usize| matches!(self.places[*core].state, State::Asleep(_));
        let sleepers: Vec<usize> = cores(self.busy).filter(asleep).collect();
        let Some(shuffle) = &mut self.shuffle else { return };
        if sleepers.is_empty() {
            return;
        }
        let now = shuffle.clock();
        let any = shuffle.dice.pick(&sleepers);
        let (spurious, leaps) = (shuffle.schedule.spurious, shuffle.schedule.leaps);
        let (wakes, leaps) = (shuffle.dice.one_in(spurious), shuffle.dice.one_in(leaps));
        let State::Asleep(sleep) = self.places[any].state else { return };
        let may_wake = matches!(sleep.cause, Sleep::Futex | Sleep::Condvar | Sleep::Park);
        if wakes && may_wake {
            self.end_without_reason(any);
        } else if sleep.until <= now {
            // Late, if chance has picked another core.
            self.end_sleep(any, now, false);
        } else if leaps && sleep.until != u64::MAX {
            self.leap(any, sleep.until);
        }
    }

    /// Ends a sleep as a wake-up would, which no thread has made.
    fn end_without_reason(&mut self, core: usize) {
        if let State::Asleep(asleep) = self.places[core].state {
            if let Some(queue) = self.futexes.get_mut(&asleep.word) {
                queue.retain(|sleeper| *sleeper != core);
            }
            self.end_sleep(core, 0, true);
        }
    }
}

/// Deaths of virtual processes.
impl Running {
    /// Returns whether the thread of a core is dead.
    pub(crate) fn is_dead(&self, core: usize) -> bool {
        matches!(self.places[core].state, State::Dead)
    }

    /// Returns the body of a dead thread, whose core is then free.
    pub(crate) fn next_corpse(&mut self) -> Option<Body> {
        let core = cores(self.busy).find(|core| self.is_dead(*core))?;
        self.places[core].state = State::Free;
        self.busy &= !(1 << core);
        self.places[core].body.take().or_else(|| self.next_corpse())
    }

    /// Ends all threads of a virtual process where they are. The stores that it has made become
    /// visible, as those of a core whose thread is ended. Returns whether the process lived.
    pub(crate) fn kill(&mut self, process: u32) -> bool {
        let its =
            |core: &usize| self.places[*core].process == Some(process) && !self.is_dead(*core);
        let its_cores: Vec<usize> = cores(self.busy).filter(its).collect();
        for &core in &its_cores {
            self.memory.commit_own(core);
            if let State::Asleep(asleep) = self.places[core].state
                && let Some(queue) = self.futexes.get_mut(&asleep.word)
            {
                queue.retain(|sleeper| *sleeper != core);
            }
            self.places[core].state = State::Dead;
            let thread = &mut self.threads[self.places[core].thread];
            thread.ended = true;
            let joiners = std::mem::take(&mut thread.joiners);
            joiners.into_iter().for_each(|joiner| self.end_sleep(joiner, 0, true));
        }
        if !its_cores.is_empty() {
            self.died.push(process);
        }
        !its_cores.is_empty()
    }

    /// Kills the process of the current thread, if its time has come.
    fn die_by_chance(&mut self) {
        let Some(shuffle) = &mut self.shuffle else { return };
        if shuffle.steps < shuffle.dies {
            return;
        }
        let process = self.places[self.current].process;
        // The standard library would count the panic of a thread that never ends.
        if let Some(process) = process.filter(|_| !std::thread::panicking()) {
            shuffle.dies = shuffle.next_death();
            self.kill(process);
        } else {
            shuffle.dies = shuffle.steps + 1;
        }
    }
}
