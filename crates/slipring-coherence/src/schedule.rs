//! Schedules by seed: the settings of a run in which chance decides whose turn it is.
//!
//! - I1: A schedule is plain data. Two runs of one program by equal schedules are the same, access
//!   by access.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::planted::CLASSES;

/// A generator of numbers by a seed (xorshift64*), for schedules and for programs.
///
/// ```
/// use slipring_coherence::Dice;
///
/// let rolls = |seed| { let mut dice = Dice::new(seed); [dice.below(6), dice.below(6)] };
/// assert_eq!(rolls(1), rolls(1));
/// ```
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Returns the generator of a seed. Seeds that differ in one bit give unlike numbers.
    ///
    /// Example: [`Dice`].
    pub fn new(seed: u64) -> Dice {
        // One step of splitmix64, whose result is not zero: this generator would keep a zero.
        let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Dice((z ^ (z >> 31)) | 1)
    }

    /// Returns the next number.
    ///
    /// Example: [`Dice`].
    #[inline]
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    ///
    /// Example: [`Dice`].
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: no division.
        ((u128::from(self.roll()) * u128::from(end)) >> 64) as u64
    }

    /// Returns `true` once in `times` calls on average; never if `times` is 0.
    ///
    /// Example: [`Dice`].
    #[inline]
    pub fn one_in(&mut self, times: u64) -> bool {
        times != 0 && self.below(times) == 0
    }

    /// Returns one of the values.
    ///
    /// # Panics
    ///
    /// If there is none.
    ///
    /// Example: [`Dice`].
    pub fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize].clone()
    }
}

/// How a schedule chooses the next thread.
///
/// ```
/// use slipring_coherence::Order;
///
/// assert_eq!("one-slow".parse(), Ok(Order::OneSlow));
/// assert_eq!(Order::Uniform.to_string(), "uniform");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Any thread that can run, each as likely. A thread may be replaced at each access.
    Uniform,
    /// The thread of the highest priority. The priorities are random, and the running thread gets
    /// the lowest one at some random accesses, and whenever it spins or yields (probabilistic
    /// concurrency testing).
    Priorities,
    /// As [`Order::Uniform`], but one thread hardly ever runs while another can, in the first
    /// eighth of the accesses that the run may take.
    OneSlow,
}

impl Order {
    /// All orders.
    pub const ALL: [Order; 3] = [Order::Uniform, Order::Priorities, Order::OneSlow];

    fn name(self) -> &'static str {
        match self {
            Order::Uniform => "uniform",
            Order::Priorities => "priorities",
            Order::OneSlow => "one-slow",
        }
    }
}

/// The text names no order.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no order of threads: there are uniform, priorities and one-slow")]
pub struct UnknownOrder(String);

impl FromStr for Order {
    type Err = UnknownOrder;

    fn from_str(text: &str) -> Result<Order, UnknownOrder> {
        let named = Order::ALL.into_iter().find(|order| order.name() == text);
        named.ok_or_else(|| UnknownOrder(text.to_owned()))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The part that chance has in a run, and its seed.
///
/// A run by a schedule has no costs and counts no transfers. It shows what a program does, not what
/// it costs: threads are interleaved at any access, lock, sleep or spin hint; stores become visible
/// late, in each core's order (as on x86); sleeps end without a reason; the clock leaps.
///
/// ```
/// use slipring_coherence::{Lines, Machine, Schedule, Simulation, sync};
/// use slipring_coherence::sync::Ordering::Relaxed;
///
/// #[global_allocator]
/// static LINES: Lines = Lines;
///
/// // Each thread stores its own word and loads the other's. On x86, both can see 0.
/// let both_zero = |seed| {
///     let words = slipring_coherence::own_lines(|| [0; 2].map(|_| Box::new(sync::AtomicU64::new(0))));
///     let seen = [0; 2].map(|_| std::cell::Cell::new(1));
///     let turn = |me: usize| {
///         words[me].store(1, Relaxed);
///         seen[me].set(words[1 - me].load(Relaxed));
///     };
///     let machine = Machine::server("1x2".parse().unwrap());
///     let simulation = Simulation::new(&machine).thread("a", || turn(0)).thread("b", || turn(1));
///     simulation.schedule(Schedule::new(seed)).run().unwrap();
///     seen[0].get() + seen[1].get() == 0
/// };
/// assert!((0..200).any(both_zero));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The seed of all of the run's chance.
    pub seed: u64,
    /// How the next thread is chosen.
    pub order: Order,
    /// Accesses between two points at which a thread may be replaced, on average. In
    /// [`Order::Priorities`], no such points: there are `changes`.
    pub turn: u64,
    /// Number of random accesses at which the running thread gets the lowest priority.
    pub changes: u64,
    /// Accesses until a waiting store becomes visible, on average; 0: at once.
    pub late_stores: u64,
    /// A sleep that may end without a reason does so once in so many turns; 0: never.
    pub spurious: u64,
    /// The clock leaps to the end of some sleep once in so many turns; 0: only when all sleep.
    pub leaps: u64,
    /// Whether a timer ends a sleep (except one that only waits for time to pass) when all threads
    /// sleep. Without such rescues, a lost wake-up is a deadlock, also where sleeps have limits.
    #[serde(default = "rescues")]
    pub rescues: bool,
    /// Once in so many steps that a defect could change ([`is_planted`](crate::is_planted)), on
    /// average, the thread is held there, or its process dies, or first the one and then the other;
    /// 0: never. Stores of a held thread that wait stay invisible.
    #[serde(default)]
    pub holds: u64,
    /// Only steps of this class, of 32 by their names, count for `holds`; 0: all steps.
    #[serde(default)]
    pub class: u64,
    /// A virtual process dies once in so many accesses, on average; 0: never.
    #[serde(default)]
    pub deaths: u64,
    /// Largest number of deaths.
    #[serde(default)]
    pub most_deaths: u64,
    /// Number of cores that the program is told the machine has.
    pub cores: usize,
    /// Whether the system offers the program a barrier on all cores.
    pub membarrier: bool,
    /// Whether numbers of polls, and of other repetitions, are short: see
    /// [`shortened`](crate::shortened).
    pub short: bool,
    /// Whether runs of slots are short: see [`longest_run`](crate::longest_run).
    #[serde(default)]
    pub short_runs: bool,
    /// Accesses after which the run is given up as a livelock.
    pub limit: u64,
}

impl Schedule {
    /// Returns the schedule of a seed, which chooses all settings too.
    ///
    /// Example: [`Schedule`].
    pub fn new(seed: u64) -> Schedule {
        let mut dice = Dice::new(seed ^ 0x5C4E_D01E);
        let mut schedule = Schedule {
            seed,
            order: dice.pick(&[Order::Uniform, Order::Uniform, Order::Priorities, Order::OneSlow]),
            turn: dice.pick(&[2, 4, 4, 8, 16, 64]),
            changes: 1 + dice.below(4),
            late_stores: dice.pick(&[0, 4, 16, 64]),
            spurious: dice.pick(&[0, 0, 0, 20]),
            leaps: dice.pick(&[0, 0, 10, 100]),
            rescues: true,
            holds: dice.pick(&[0, 0, 16, 128, 1024]),
            class: 0,
            deaths: dice.pick(&[16, 64, 256, 1024]),
            most_deaths: 1 + dice.below(4),
            cores: dice.pick(&[1, 2, 4, 16]),
            membarrier: !dice.one_in(4),
            short: !dice.one_in(16),
            short_runs: dice.one_in(2),
            limit: 2_000_000,
        };
        if dice.one_in(3) {
            // The same few steps again and again: some defects need a hold at one of them while
            // the others take their course.
            (schedule.holds, schedule.class) = (dice.pick(&[1, 2, 4, 16]), 1 + dice.below(CLASSES));
        }
        schedule
    }
}

fn rescues() -> bool {
    true
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Schedule { seed, order, turn, changes, late_stores, spurious, leaps, cores, .. } = self;
        write!(f, "seed {seed}: ")?;
        match order {
            Order::Priorities => write!(f, "priorities that change {changes} times")?,
            _ => write!(f, "{order}, a turn of {turn} accesses")?,
        }
        write!(f, "; stores late by {late_stores}, {cores} cores")?;
        if *spurious != 0 {
            write!(f, "; a sleep ends without a reason once in {spurious} turns")?;
        }
        if *leaps != 0 {
            write!(f, "; the clock leaps once in {leaps} turns")?;
        }
        if self.holds != 0 {
            write!(f, "; a thread is held at one in {} steps of a protocol", self.holds)?;
            if self.class != 0 {
                write!(f, " (class {})", self.class)?;
            }
        }
        f.write_str(if self.rescues { "" } else { "; no rescue by a timer" })?;
        f.write_str(if self.short_runs { "; runs of at most 3 slots" } else { "" })?;
        f.write_str(if self.membarrier { "" } else { "; no membarrier" })?;
        f.write_str(if self.short { "" } else { "; all repetitions as in earnest" })
    }
}
