//! Rows, and the run of a row.
//!
//! - I1: A row is measured from an event on before which the queues have become quiet and the loops
//!   have learned their spacing.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use slipring_coherence::sync::{now, sleep};
use slipring_coherence::{
    Counts, Machine, Placement, Report, Simulation, begin_measuring, end_measuring, work,
};

use crate::shapes::Shape;

/// How the producers and the stages compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Regime {
    /// A producer works for a while before each event, so the stages wait for it.
    Paced,
    /// The stages work for a while at each event, so the ring is full and the producers wait.
    Draining,
    /// The producers fill an empty ring as fast as they can, and then rest until it is empty.
    Filling,
}
pub use Regime::{Draining, Filling, Paced};

/// The range in which a count for each event must lie.
pub type Range = [f64; 2];

/// A shape in a regime on a machine, and what an event may cost there.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub shape: Shape,
    pub regime: Regime,
    /// The topology, and `spread` behind it if the threads get cores of the sockets in turn.
    pub machine: &'static str,
    pub transfers: Range,
    pub rmws: Range,
    pub fences: Range,
    /// A second mode, into which a run may fall instead, and what an event costs in it.
    pub second: Option<Counted>,
}

impl Row {
    /// Allows some runs to fall into a second mode, but not all.
    pub const fn or(self, transfers: Range, rmws: Range, fences: Range) -> Row {
        Row { second: Some(Counted { transfers, rmws, fences }), ..self }
    }

    /// Returns whether a run is in the second mode.
    fn is_second(&self, run: &Counted) -> bool {
        let budgets = |of: &Counted| [of.transfers, of.rmws, of.fences];
        self.second.is_some_and(|second| {
            budgets(&second).into_iter().zip(budgets(run)).all(|(of, run)| !leaves(of, run))
        })
    }
}

pub const fn row(
    shape: Shape,
    regime: Regime,
    machine: &'static str,
    transfers: Range,
    rmws: Range,
    fences: Range,
) -> Row {
    Row { shape, regime, machine, transfers, rmws, fences, second: None }
}

/// The load of a run, which its threads share.
pub struct Load {
    pub regime: Regime,
    /// Number of events of all producers.
    pub events: u64,
    /// Capacity of the ring.
    pub capacity: usize,
    /// Private work of a producer before each event, when paced.
    pub pace: Duration,
    /// Private work of a stage at each event, when the stages are slower.
    pub handling: Duration,
    /// Number of threads that share the handling of the events.
    parallel: u32,
    /// Handles of each kind that exist and do nothing.
    pub idle: usize,
    /// Number of producers.
    pub producers: u64,
    /// Number of events that are paced in any regime.
    warm: u64,
    /// Number of published events. Neither this nor the next word is an access of the simulation.
    published: Cell<u64>,
    measured_from: Cell<u64>,
}

// SAFETY: all virtual threads of a run are on one system thread.
unsafe impl Sync for Load {}

/// Number of events before the regime begins. A queue becomes quiet after 512 publications, and not
/// within a millisecond of the last sleep of its waiters.
const WARM: u64 = 1_024;
/// Time between two of these events.
const WARM_PACE: Duration = Duration::from_nanos(1_500);

impl Load {
    fn new(shape: Shape, regime: Regime, idle: usize) -> Load {
        let (threads, producers) = (shape.threads() as u64, shape.producers());
        // As many events as fit the time that the harness may take.
        let (warm, measured) = match threads {
            _ if shape.sleeps() => (64, 256),
            _ if shape.spins() => (256, (12_288 / threads).clamp(256, 2_048)),
            ..=12 => (WARM, (12_288 / threads).min(2_048)),
            _ => (WARM, 512),
        };
        // After a change of pace, the ring is as full as the regime makes it within two laps.
        let settled = warm + if regime == Paced { 0 } else { 2 * shape.capacity() as u64 };
        let nanos = Duration::from_nanos;
        Load {
            regime,
            events: (settled + measured).next_multiple_of(producers),
            capacity: shape.capacity(),
            pace: shape.pace(),
            handling: nanos(100) * shape.parallel_handlers(),
            parallel: shape.parallel_handlers(),
            idle,
            producers,
            published: Cell::new(0),
            warm: if shape.sleeps() { 0 } else { warm },
            measured_from: Cell::new(settled),
        }
    }

    /// Publishes `count` events through `publish`, which gets the number of each and publishes
    /// `batch` of them at a time.
    pub fn produce(&self, count: u64, batch: u64, mut publish: impl FnMut(u64)) {
        let burst = (self.capacity as u64 / self.producers).max(batch);
        for number in (0..count).step_by(batch as usize) {
            match self.regime {
                _ if self.published.get() < self.warm => pass(self.warm_pace() * batch as u32),
                Paced => pass(self.pace * batch as u32),
                Filling if number % burst == 0 => pass(Duration::from_micros(20)),
                _ => {}
            }
            publish(number);
            self.count(batch.min(count - number));
        }
    }

    fn warm_pace(&self) -> Duration {
        self.pace.max(WARM_PACE * self.producers as u32)
    }

    fn count(&self, events: u64) {
        let (before, from) = (self.published.get(), self.measured_from.get());
        self.published.set(before + events);
        if before < from && before + events >= from {
            self.measured_from.set(before + events);
            begin_measuring();
        }
        if before + events == self.events {
            // Nothing of the graph's end is counted.
            end_measuring();
        }
    }

    /// Handles an event, as a stage that the regime may make slower than the producers.
    pub fn handle(&self) {
        if self.regime == Draining && self.published.get() >= self.warm {
            work(self.handling);
        } else {
            self.handle_early();
        }
    }

    /// Handles an event, as a stage that waits for others. In the warm-up it works for most of the
    /// pace, since polls take long to simulate.
    pub fn handle_early(&self) {
        if self.published.get() < self.warm {
            work(WARM_PACE * 2 / 3 * self.parallel);
        }
    }
}

/// Lets time pass: by work, or asleep if the time is long.
fn pass(time: Duration) {
    if time > Duration::from_micros(50) { sleep(time) } else { work(time) }
}

/// Runs the row's program once. Returns the report and the number of measured events.
fn run_once(
    shape: Shape,
    regime: Regime,
    (machine, placement): &(Machine, Placement),
    idle: usize,
    trace: bool,
) -> (Report, u64) {
    let load = Load::new(shape, regime, idle);
    let body = || {
        let _ = now();
        shape.run(&load);
    };
    let simulation = Simulation::new(machine).place(*placement).thread("main", body);
    let simulation = simulation.trace_lines(trace);
    let report = simulation.run().unwrap_or_else(|error| panic!("{shape:?}, {regime:?}: {error}"));
    assert_eq!(load.published.get(), load.events, "{shape:?}: not all events were published");
    (report, load.events - load.measured_from.get())
}

/// Returns a machine whose latencies vary by a tenth, and the order in which threads get its cores.
fn machine(text: &str, seed: u64) -> (Machine, Placement) {
    let (topology, placement) = match text.strip_suffix(" spread") {
        Some(topology) => (topology, Placement::Spread),
        None => (text, Placement::Packed),
    };
    let mut machine = Machine::server(topology.parse().unwrap());
    (machine.jitter, machine.seed) = (10, seed);
    (machine, placement)
}

/// The counts of an event: least and most of all seeds.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub transfers: Range,
    pub rmws: Range,
    pub fences: Range,
}

/// Runs a shape over several seeds, without checking a budget.
pub fn count(shape: Shape, regime: Regime, topology: &str, idle: usize) -> Counted {
    count_but(shape, regime, topology, idle, |_| false)
}

/// Like [`count`], without the runs that `leaves_out` chooses.
fn count_but(
    shape: Shape,
    regime: Regime,
    topology: &str,
    idle: usize,
    leaves_out: impl Fn(&Counted) -> bool,
) -> Counted {
    let seeds = match shape.threads() {
        0..=4 => 8,
        5..=12 => 5,
        _ => 2,
    };
    let mut all = Counted { transfers: NONE, rmws: NONE, fences: NONE };
    for seed in 1..=seeds {
        let (report, events) = run_once(shape, regime, &machine(topology, seed), idle, false);
        let event = report.counts().per_event(events);
        let [transfers, rmws, fences] =
            [event.transfers, event.rmws, event.fences].map(|count| [count, count]);
        if leaves_out(&Counted { transfers, rmws, fences }) {
            continue;
        }
        widen(&mut all.transfers, event.transfers);
        widen(&mut all.rmws, event.rmws);
        widen(&mut all.fences, event.fences);
    }
    all
}

const NONE: Range = [f64::INFINITY, f64::NEG_INFINITY];

fn widen(range: &mut Range, count: f64) {
    *range = [range[0].min(count), range[1].max(count)];
}

/// Runs each of the rows, and fails with all that leave their budget.
pub fn check(rows: &[Row]) {
    let failures: Vec<String> = rows.iter().filter_map(failure).collect();
    assert!(
        failures.is_empty(),
        "{}\nIf the change is meant, replace the row in table.rs by the printed one, and say in the \
         commit why its counts changed. Otherwise look at the hot lines: one of them moves more \
         often than it should.",
        failures.join("\n")
    );
}

/// Runs a row. Returns a text about the counts that leave their budget.
fn failure(row: &Row) -> Option<String> {
    let counted = count_but(row.shape, row.regime, row.machine, 0, |run| row.is_second(run));
    println!("{}", Line(row, counted));
    let ranges = [
        ("transfers", row.transfers, counted.transfers),
        ("read-modify-writes", row.rmws, counted.rmws),
        ("fences", row.fences, counted.fences),
    ];
    let leaves = ranges.iter().filter(|(_, budget, counted)| leaves(*budget, *counted));
    let texts: Vec<String> = leaves
        .map(|(what, [low, high], [least, most])| {
            format!("  {least:.3} to {most:.3} {what} an event, budget {low:.2} to {high:.2}\n")
        })
        .collect();
    (!texts.is_empty()).then(|| {
        format!(
            "{:?}, {:?}, {}:\n{}{}The row as it is now:\n{}\n",
            row.shape,
            row.regime,
            row.machine,
            texts.concat(),
            hot_lines(row.shape, row.regime, row.machine, 0),
            Line(row, counted)
        )
    })
}

/// Returns whether counts leave a budget by more than half of its width and a twentieth of its
/// amount. A row's width says how far its count differs from seed to seed. A change that moves no
/// line any more often still changes the order in which threads meet, as other seeds do, and a few
/// seeds do not show the whole width. Another build of the same sources, with other features, is
/// such a change: one has 1.24 to 1.26 transfers where the other has 1.25 to 1.30.
fn leaves([low, high]: Range, [least, most]: Range) -> bool {
    let slack = (high - low) / 2.0 + high / 20.0;
    least < low - slack || most > high + slack
}

/// Returns the lines that moved most in a run.
pub fn hot_lines(shape: Shape, regime: Regime, topology: &str, idle: usize) -> String {
    let (report, events) = run_once(shape, regime, &machine(topology, 1), idle, true);
    let mut text = String::from("  Transfers and read-modify-writes an event, by lines:\n");
    let (mut others, mut listed) = (Counts::default(), 0);
    for line in &report.hot {
        // A line that moves once an event is worth its place, even without a name.
        let is_hot = line.counts.transfers() >= events / 2;
        if (line.label.is_none() && !is_hot) || listed == 8 {
            others.fetched_same += line.counts.transfers();
            others.rmws += line.counts.rmws;
            continue;
        }
        listed += 1;
        let number = format!("line {}", line.number);
        text += &hot_line(line.label.as_ref().unwrap_or(&number), &line.counts, events);
    }
    text + &hot_line("all others, most of them slots", &others, events)
}

fn hot_line(name: &str, counts: &Counts, events: u64) -> String {
    let event = counts.per_event(events);
    format!("  {:7.3} {:7.3}  {name}\n", event.transfers, event.rmws)
}

/// A row as `table.rs` has it, with the budgets that the counts ask for.
struct Line<'a>(&'a Row, Counted);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line(row, counted) = self;
        let [transfers, rmws, fences] =
            [counted.transfers, counted.rmws, counted.fences].map(budget);
        write!(
            f,
            "    row({:?}, {:?}, {:?}, {transfers}, {rmws}, {fences}),",
            row.shape, row.regime, row.machine
        )
    }
}

/// Writes the budget for what was counted: to the third digit where the seeds agree, and with a
/// margin of three percent where contention decides.
fn budget([least, most]: Range) -> String {
    let fixed = most - least <= 0.005 + most / 100.0;
    let (margin, more) = if fixed { (0.0, 0.004) } else { (0.03, 0.01) };
    let low = ((least * (1.0 - margin) - more).max(0.0) * 100.0).floor() / 100.0;
    let high = ((most * (1.0 + margin) + more) * 100.0).ceil() / 100.0;
    format!("[{low:.2}, {high:.2}]")
}
