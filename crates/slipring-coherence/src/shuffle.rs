//! The state of a run by a schedule: whose turn it is, and for how long.
//!
//! - I1: All chance comes from the schedule's seed, and nothing depends on an address, so a run
//!   repeats itself.
//! - I2: `countdown` is the number of accesses until something can happen: the end of a turn, a
//!   store that becomes visible, a change of priorities, or the run's limit. Between, an access
//!   only counts.
//! - I3: The clock never goes back.

use crate::memory::cores;
use crate::planted::{count_class, interfere_after};
use crate::schedule::{Dice, Order, Schedule};

/// Virtual time of an access, in picoseconds.
const ACCESS: u64 = 2_000;

/// A run's chance.
pub(crate) struct Shuffle {
    pub(crate) schedule: Schedule,
    pub(crate) dice: Dice,
    /// Virtual time, in picoseconds.
    pub(crate) now: u64,
    /// Number of accesses since the start.
    pub(crate) steps: u64,
    /// Accesses until something happens (I2), and how many there were at the start of it.
    countdown: u64,
    counted: u64,
    /// When the turn ends, when a store becomes visible, in accesses.
    pub(crate) turn_ends: u64,
    pub(crate) commits: u64,
    /// When the running thread's process dies, if it can, in accesses.
    pub(crate) dies: u64,
    deaths: u64,
    /// Cores that are held, as bits, and until which access.
    held: u64,
    held_until: Vec<u64>,
    /// Those of the cores whose processes die when they are held no longer.
    doomed: u64,
    /// Accesses at which the running thread gets the lowest priority, the last one first.
    pub(crate) changes: Vec<u64>,
    priorities: Vec<u64>,
    lowest: u64,
    /// The core that hardly runs.
    slow: usize,
    pub(crate) switches: u64,
    /// Number of accesses that each core has made before its current turn, and when the current
    /// turn began, in accesses.
    made: Vec<u64>,
    turn_began: u64,
}

const NEVER: u64 = u64::MAX;

impl Shuffle {
    pub(crate) fn new(schedule: Schedule, cores: usize) -> Shuffle {
        let mut dice = Dice::new(schedule.seed);
        let changes = if schedule.order == Order::Priorities { schedule.changes } else { 0 };
        // Most programs of a test are over after some thousand accesses; the range of the random
        // points fits some of them, whatever their length.
        let range = 1 << (2 + dice.below(13));
        let mut changes: Vec<u64> = (0..changes).map(|_| 1 + dice.below(range)).collect();
        changes.sort_by_key(|at| std::cmp::Reverse(*at));
        let priorities = (0..cores).map(|_| NEVER / 2 + dice.below(NEVER / 4)).collect();
        let slow = dice.below(4.min(cores as u64)) as usize;
        let mut shuffle = Shuffle {
            schedule,
            dice,
            now: 0,
            steps: 0,
            countdown: 1,
            counted: 1,
            turn_ends: NEVER,
            commits: NEVER,
            dies: NEVER,
            deaths: 0,
            held: 0,
            held_until: vec![0; cores],
            doomed: 0,
            changes,
            priorities,
            lowest: NEVER / 4,
            slow,
            switches: 0,
            made: vec![0; cores],
            turn_began: 0,
        };
        shuffle.commits = shuffle.next_commit();
        shuffle.dies = shuffle.next_death();
        shuffle.plan();
        count_class(shuffle.schedule.class);
        interfere_after(shuffle.next_hold());
        shuffle
    }

    /// Counts an access. Returns whether something happens at it.
    #[inline(always)]
    pub(crate) fn count(&mut self) -> bool {
        self.countdown -= 1;
        self.countdown == 0
    }

    /// Brings `steps` and the clock up to date.
    pub(crate) fn settle(&mut self) {
        let made = self.counted - self.countdown;
        self.steps += made;
        self.now = self.now.saturating_add(made * ACCESS);
        self.counted = self.countdown;
    }

    /// Plans the next thing that happens (I2).
    pub(crate) fn plan(&mut self) {
        let change = self.changes.last().copied().unwrap_or(NEVER);
        let next = self.turn_ends.min(self.commits).min(self.dies).min(change);
        let next = next.min(self.schedule.limit);
        self.countdown = next.saturating_sub(self.steps).max(1);
        self.counted = self.countdown;
    }

    /// Returns a number of accesses with the given mean.
    fn span(&mut self, mean: u64) -> u64 {
        1 + self.dice.below(2 * mean)
    }

    pub(crate) fn next_commit(&mut self) -> u64 {
        match self.schedule.late_stores {
            0 => NEVER,
            late => self.steps + self.span(late),
        }
    }

    /// Returns when the next process dies, if another one does.
    pub(crate) fn next_death(&mut self) -> u64 {
        let Schedule { deaths, most_deaths, .. } = self.schedule;
        self.deaths += 1;
        match deaths {
            0 => NEVER,
            _ if self.deaths > most_deaths => NEVER,
            mean => self.steps + self.span(mean),
        }
    }

    /// Returns the number of steps of protocols until the next at which the run interferes.
    fn next_hold(&mut self) -> u64 {
        match self.schedule.holds {
            0 => NEVER,
            // Holds at each of some steps would take the run to its limit.
            _ if self.steps > self.schedule.limit / 8 => NEVER,
            mean => self.span(mean),
        }
    }

    /// Interferes with the thread of a core, which has reached a step of a protocol: lets it make
    /// a few more accesses, and then holds it while others can run, or ends its process, or first
    /// holds it and then ends its process. Returns after how many steps the run interferes again.
    pub(crate) fn interfere(&mut self, core: usize, is_mortal: bool) -> u64 {
        self.settle();
        let at = self.steps + self.dice.below(6);
        let way = if is_mortal && self.dies != NEVER { self.dice.below(3) } else { 2 };
        if way == 0 {
            self.dies = self.dies.min(at);
        } else {
            self.turn_ends = self.turn_ends.min(at);
            self.held |= 1 << core;
            self.doomed |= u64::from(way == 1) << core;
            self.held_until[core] = at + (16 << self.dice.below(10));
        }
        self.plan();
        self.next_hold()
    }

    /// Returns the cores that are held now, as bits.
    pub(crate) fn held(&mut self) -> u64 {
        for core in cores(self.held) {
            if self.held_until[core] <= self.steps {
                self.held &= !(1 << core);
            }
        }
        self.held
    }

    /// Returns those of the cores that are not held, or all of them if all are.
    fn unheld(&mut self, able: u64) -> u64 {
        match able & !self.held() {
            0 => able,
            others => others,
        }
    }

    /// Lets time pass.
    #[inline]
    pub(crate) fn pay(&mut self, time: u64) {
        self.now = self.now.saturating_add(time);
    }

    /// Returns the clock.
    pub(crate) fn clock(&self) -> u64 {
        self.now.saturating_add((self.counted - self.countdown) * ACCESS)
    }

    /// Returns the number of the access.
    pub(crate) fn step(&self) -> u64 {
        self.steps + (self.counted - self.countdown)
    }

    /// Returns the number of accesses that a core has made.
    pub(crate) fn made_by(&self, core: usize, current: usize) -> u64 {
        let turn = if core == current { self.step() - self.turn_began } else { 0 };
        self.made[core] + turn
    }

    pub(crate) fn limit_reached(&self) -> bool {
        self.steps >= self.schedule.limit
    }

    /// Gives the thread of a core, which spins, the lowest priority.
    pub(crate) fn give_way(&mut self, core: usize) {
        self.lowest -= 1;
        self.priorities[core] = self.lowest;
    }

    /// Gives a new thread a priority.
    pub(crate) fn add_thread(&mut self, core: usize) {
        self.priorities[core] = NEVER / 2 + self.dice.below(NEVER / 4);
        self.held &= !(1 << core);
        self.doomed &= !(1 << core);
    }

    /// Returns whether a thread that spins is replaced.
    pub(crate) fn replaces_spinner(&mut self) -> bool {
        self.schedule.order == Order::Priorities || self.dice.one_in(2)
    }

    /// Returns `number`, or a small number in its place if the schedule says so.
    pub(crate) fn shortened(&mut self, number: u64) -> u64 {
        if self.schedule.short { number.min(1 + self.dice.below(3)) } else { number }
    }

    /// Chooses one of the cores, whose bits are set.
    pub(crate) fn choose(&mut self, able: u64) -> usize {
        let pick = |dice: &mut Dice, bits: u64| {
            let number = dice.below(bits.count_ones().into()) as usize;
            cores(bits).nth(number).expect("the number is below that of the bits")
        };
        let able = self.unheld(able);
        let others = able & !(1 << self.slow);
        match self.schedule.order {
            Order::Priorities => {
                let highest = cores(able).max_by_key(|core| self.priorities[*core]);
                highest.expect("a core is able to run")
            }
            // A thread that has to do most of the work would take the run to its limit.
            Order::OneSlow
                if others != 0 && self.steps < self.schedule.limit / 8 && !self.dice.one_in(64) =>
            {
                pick(&mut self.dice, others)
            }
            _ => pick(&mut self.dice, able),
        }
    }

    /// Begins the turn of a core, after the turn of the core `before`.
    pub(crate) fn begin_turn(&mut self, core: usize, before: usize) {
        if self.doomed & !self.held & 1 << core != 0 {
            self.doomed &= !(1 << core);
            // Not if the run has no death left.
            self.dies = if self.dies == NEVER { NEVER } else { self.steps };
        }
        self.made[before] += self.steps - self.turn_began;
        self.turn_began = self.steps;
        self.turn_ends = match self.schedule.order {
            Order::Priorities => NEVER,
            _ => self.steps + self.span(self.schedule.turn),
        };
    }
}
