//! `slipring lab scaling --simulate`: the experiment on virtual cores, by a simulator of cache
//! coherence. It yields counts and the shapes of curves, and no speeds.
//!
//! - [`contenders`]: the programs
//! - [`queue`]: the queue with one lock
//! - [`metrics`]: the counts and shapes
//! - [`claims`]: the statements of the study, and whether their shapes appear
//! - [`about`]: the texts

mod about;
mod claims;
mod contenders;
mod metrics;
mod queue;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use slipring_coherence::{Machine, Placement, Topology};

use super::super::experiment::{About, Case, CaseResult, Experiment, Finding, Repetition};
use super::super::machine::{MeasuredMachine, Model};
use super::super::record::Results;
use super::super::size::Size;
use super::super::statistics::Noise;
use super::about::{CONSUMERS, SORTS};
use crate::base::exit;
use contenders::{Contender, Run, SORT};
use metrics::{AGAINST_ONE_THREAD, BUSY, CROSS, RELATIVE, RMWS, TRANSFERS};

/// Variation of the latency of transfers, in percent. It makes repetitions with different seeds
/// different schedules.
const JITTER: u64 = 10;

const PLACEMENTS: [(Placement, &str); 2] =
    [(Placement::Packed, "packed"), (Placement::Spread, "spread")];

/// The experiment.
pub struct Simulated(Option<Plan>);

/// The runs of the experiment.
#[derive(Clone, Copy)]
struct Plan {
    topology: Topology,
    /// The largest number of consumers.
    consumers: usize,
}

/// The experiment without runs, which shows records.
pub static SHOWN: Simulated = Simulated(None);

/// Returns the experiment on this topology, with up to `consumers` consumers (by default as many as
/// in the study, or as the topology has cores for), and the model of its machine.
///
/// # Errors
///
/// If the topology has too few cores.
pub fn plan(topology: Topology, consumers: Option<usize>) -> Result<(Simulated, Model)> {
    let room = topology.total() - 1;
    if room == 0 {
        return Err(exit::usage(format!(
            "--simulate: the topology {topology} has a single core, which the producer takes: \
             give it at least two, such as 1x2"
        )));
    }
    let consumers = consumers.unwrap_or(room.min(*CONSUMERS.end()));
    if consumers > room {
        return Err(exit::usage(format!(
            "--consumers: {consumers} consumers and the producer need {} cores, and the topology \
             {topology} has {}: take at most {room} consumers, or a larger topology",
            consumers + 1,
            room + 1,
        )));
    }
    let machine = Machine { jitter: JITTER, ..Machine::server(topology) };
    Ok((Simulated(Some(Plan { topology, consumers })), about::model(&machine)))
}

/// Returns the number of events in a run, for each of [`SORTS`].
fn events(size: Size) -> [u64; SORTS.len()] {
    size.pick([200, 60, 30], [3_000, 1_500, 1_000], [10_000, 5_000, 3_000])
}

/// Virtual times of one consumer, by contender, sorts, placement and seed.
type OneConsumer = Rc<RefCell<BTreeMap<(&'static str, u32, &'static str, u64), Duration>>>;

impl Experiment for Simulated {
    fn about(&self) -> &'static About {
        &about::ABOUT
    }

    fn cases(&self, size: Size, _: &MeasuredMachine) -> Result<Vec<Case>> {
        let Some(Plan { topology, consumers: most }) = self.0 else { return Ok(Vec::new()) };
        let one = OneConsumer::default();
        let mut cases = Vec::new();
        for (sorts, events) in SORTS.into_iter().zip(events(size)) {
            for (placement, placed) in PLACEMENTS {
                // On one socket, the placements are the same.
                if placement == Placement::Spread && topology.sockets() == 1 {
                    continue;
                }
                for contender in Contender::ALL {
                    for consumers in 1..=most {
                        let machine = Machine::server(topology);
                        let of = move |consumers| Run { contender, consumers, events, sorts };
                        let one = one.clone();
                        cases.push(Case {
                            contender: contender.name().to_owned(),
                            point: vec![
                                ("sorts", u64::from(sorts).into()),
                                ("placement", placed.into()),
                                ("consumers", consumers.into()),
                            ],
                            threads: consumers + 1,
                            cpus: Vec::new(),
                            // The simulation's own time, mostly that of the threads that spin.
                            expected: Duration::from_micros(
                                events * (20 + u64::from(sorts)) * consumers as u64 / 20,
                            ),
                            run: Box::new(move |Repetition { seed }| {
                                let machine = Machine { jitter: JITTER, seed, ..machine.clone() };
                                let key = (contender.name(), sorts, placed, seed);
                                let known = one.borrow().get(&key).copied();
                                let one_took = match known {
                                    Some(took) => took,
                                    None => of(1).simulate(&machine, placement)?.took,
                                };
                                one.borrow_mut().insert(key, one_took);
                                measure(of(consumers), &machine, placement, one_took)
                            }),
                        });
                    }
                }
            }
        }
        Ok(cases)
    }

    fn rounds(&self, size: Size) -> u32 {
        size.pick(2, 3, 5)
    }

    fn missing(&self, size: Size, _: &MeasuredMachine) -> Vec<String> {
        self.0.map_or(Vec::new(), |Plan { topology, consumers }| {
            about::missing(events(size), topology, consumers)
        })
    }

    fn headline(&self, results: &Results, _: &Noise) -> String {
        claims::headline(&claims::findings(results))
    }

    fn findings(&self, results: &Results) -> Vec<Finding> {
        claims::findings(results)
    }
}

/// Runs a case once.
fn measure(
    run: Run,
    machine: &Machine,
    placement: Placement,
    one_took: Duration,
) -> Result<CaseResult> {
    let simulated = run.simulate(machine, placement)?;
    let (report, took) = (simulated.report, simulated.took);
    let each = report.counts().per_event(run.events);
    let one_thread =
        SORT * run.sorts * u32::try_from(run.events).map_err(|_| anyhow!("too many"))?;
    let ratio = |took: Duration, of: Duration| took.as_nanos() as f64 / of.as_nanos() as f64;
    // A thread is busy while it does not sleep. Threads sleep in virtual picoseconds.
    let busy = report.cores.iter().map(|(_, counts)| {
        let asleep = counts.waited.asleep as f64 / (report.time.as_nanos() as f64 * 1_000.0);
        1.0 - asleep.min(1.0)
    });
    Ok(CaseResult::default()
        .value(&TRANSFERS, each.transfers)
        .value(&CROSS, each.cross)
        .value(&RMWS, each.rmws)
        .value(&RELATIVE, ratio(took, one_took))
        .value(&AGAINST_ONE_THREAD, ratio(took, one_thread))
        .value(&BUSY, busy.sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_contenders_do_all_the_work_with_the_same_counts_each_time() {
        let machine = Machine { jitter: JITTER, ..Machine::server("2x3".parse().unwrap()) };
        for contender in Contender::ALL {
            for (placement, consumers) in [(Placement::Packed, 1), (Placement::Spread, 5)] {
                let run = Run { contender, consumers, events: 300, sorts: 1 };
                let simulate = || {
                    let simulated = run.simulate(&machine, placement);
                    let simulated = simulated
                        .unwrap_or_else(|error| panic!("{contender:?}, {consumers}: {error:#}"));
                    (simulated.report.to_string(), simulated.took)
                };
                assert_eq!(simulate(), simulate(), "{contender:?}, {consumers}");
            }
        }
    }

    #[test]
    fn spread_threads_have_transfers_between_sockets_and_packed_ones_have_none() {
        let cross = |placement| {
            let machine = Machine::server("2x2".parse().unwrap());
            let run = Run { contender: Contender::Queue, consumers: 1, events: 50, sorts: 1 };
            run.simulate(&machine, placement).unwrap().report.counts().cross()
        };
        assert_eq!(cross(Placement::Packed), 0);
        assert!(cross(Placement::Spread) > 0);
    }

    #[test]
    fn one_consumer_is_the_measure_of_relative_time() {
        let machine = MeasuredMachine::this();
        let plan = Plan { topology: "1x3".parse().unwrap(), consumers: 2 };
        let cases = Simulated(Some(plan)).cases(Size::Smoke, &machine).unwrap();
        assert_eq!(cases.len(), 3 * 3 * 2, "sorts, contenders, consumers");
        // A case with two consumers finds out by itself how long one takes.
        for mut case in cases.into_iter().rev().take(4) {
            let outcome = (case.run)(Repetition { seed: 1 }).unwrap();
            let relative = outcome.values.iter().find(|(metric, _)| metric.name == RELATIVE.name);
            let (_, relative) = relative.unwrap();
            let consumers = case.point.last().unwrap().1.to_string();
            assert_eq!(*relative == 1.0, consumers == "1", "{consumers}: {relative}");
        }
    }

    #[test]
    fn topologies_without_room_are_refused() {
        let refused = |topology: &str, consumers| {
            let error = plan(topology.parse().unwrap(), consumers).err().unwrap();
            assert_eq!(exit::code(&error), exit::USAGE);
            error.to_string()
        };
        assert!(refused("1x1", None).contains("such as 1x2"));
        let message = refused("2x6", Some(12));
        assert!(message.contains("need 13 cores") && message.contains("at most 11"), "{message}");
    }
}
