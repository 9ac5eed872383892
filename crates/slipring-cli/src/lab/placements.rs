//! `slipring lab placements`: how the cost depends on where threads run and where a ring's memory
//! lies.
//!
//! The experiment answers three questions, each with contenders of its own:
//!
//! - *threads*: the same hand-over with producer and stage at each placement that the machine has;
//! - *pages*: a ring of many megabytes on ordinary and on huge pages;
//! - *node*: a ring whose memory was touched first on the node of its threads, or on another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use slipring::{
    Graph, Wait,
    faults::Fault,
    placement::{Bound, Places},
};
use slipring_machine::{CpuSet, Machine, Placement, bind_thread, process_cpu};

use super::experiment::{About, Case, CaseResult, Experiment, Source, Unsuitable};
use super::figure::{Figure, PlotKind};
use super::machine::MeasuredMachine;
use super::metric::{Better, Metric};
use super::record::Results;
use super::size::Size;
use super::statistics::{Noise, Spread};
use super::wording::{Pair, number};

static TIME: Metric = Metric { name: "time", unit: "ns/event", better: Better::Less };
static TRIP: Metric = Metric { name: "round trip", unit: "ns", better: Better::Less };
static BUILD: Metric = Metric { name: "build", unit: "ms", better: Better::Less };
static CPU: Metric = Metric { name: "CPU", unit: "cores", better: Better::Neither };

static ABOUT: About = About {
    name: "placements",
    title: "Placements: where threads run, and where memory lies",
    paragraph: "One producer hands events to one stage. First the two threads are bound to each \
        placement that this machine has, from one CPU for both to cores as far apart as possible. \
        Then a ring of many megabytes has its slots on ordinary and on huge pages. On a machine \
        with several memory nodes, the slots are also touched first on the node of the threads, \
        and on another one. Each answers the question what the choice is worth here.",
    drawing: "\
  placement            pages                  node
  producer ─> stage    producer ─> stage      producer ─> stage
    │           │        64-byte slots,         slots on this node,
   CPU a       CPU b     64 MiB and more        or on another one",
    source: Source {
        citation: "Slipring's own question; studies of the Disruptor, such as that of `lab scaling`, \
            place threads on one and on two memory nodes",
        address: None,
        machine: "none",
        finding: "No published figures stand beside these.",
        figures: &[],
    },
    figures: &[
        Figure {
            title: "Hand-over by placement",
            panels: None,
            kind: PlotKind::Lines { x: "placement", metric: "time", logarithmic: true },
        },
        Figure {
            title: "Round trip by placement",
            panels: None,
            kind: PlotKind::Lines { x: "placement", metric: "round trip", logarithmic: true },
        },
        Figure {
            title: "Hand-over through a large ring, by its memory",
            panels: None,
            kind: PlotKind::Lines { x: "memory", metric: "time", logarithmic: false },
        },
        Figure {
            title: "Time to build a large ring, by its memory",
            panels: None,
            kind: PlotKind::Lines { x: "memory", metric: "build", logarithmic: false },
        },
    ],
};

/// Contenders.
const ONE_BY_ONE: &str = "one by one";
const TRIPS: &str = "there and back";
const LARGE: &str = "large ring";

/// Further values of the parameters `placement` and `memory`, besides the names of placements.
const SYSTEM: &str = "system";
const ORDINARY: &str = "ordinary pages";
const HUGE: &str = "huge pages";
const OTHER_NODE: &str = "another node";

/// The experiment.
pub struct Placements;

impl Experiment for Placements {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn cases(&self, size: Size, machine: &MeasuredMachine) -> Result<Vec<Case>> {
        let undescribed = || Unsuitable("this system does not describe its cores".to_owned());
        let machine = machine.description.as_ref().ok_or_else(undescribed)?;
        let mut cases = Vec::new();
        for place in places(machine) {
            cases.push(hand_over(size, machine, place.clone()));
            cases.push(round_trips(size, machine, place));
        }
        for memory in [Some(ORDINARY), Some(HUGE), other_node(machine).map(|_| OTHER_NODE)] {
            cases.extend(memory.map(|memory| large_ring(size, machine, memory)));
        }
        Ok(cases)
    }

    fn rounds(&self, size: Size) -> u32 {
        size.pick(2, 7, 15)
    }

    fn missing(&self, _: Size, machine: &MeasuredMachine) -> Vec<String> {
        let Some(machine) = &machine.description else { return Vec::new() };
        let impossible =
            Placement::NAMED.into_iter().filter(|placement| assigned(machine, placement).is_none());
        let mut notes: Vec<String> = impossible
            .map(|placement| format!("This machine has no placement {placement} for two threads."))
            .collect();
        let pages = machine.memory().transparent_huge_pages.as_deref();
        match pages {
            Some("madvise") => {}
            Some("always") => notes.push(
                "This system gives huge pages unasked (transparent_hugepage is `always`), so both \
                 rings have them."
                    .into(),
            ),
            _ => notes.push(
                "This system has no huge pages on request, so both rings have ordinary ones."
                    .into(),
            ),
        }
        if other_node(machine).is_none() {
            notes.push(
                "This machine has one memory node, so memory on another one was not measured."
                    .into(),
            );
        }
        notes
    }

    fn headline(&self, results: &Results, noise: &Noise) -> String {
        let values = |contender: &str, name: &str, value: &str, metric: &str| -> Vec<f64> {
            let found = results.find(contender, &[(name, value.into())]);
            found.map_or(Vec::new(), |series| series.values(metric).to_vec())
        };
        let median = |values: &[f64]| Spread::of(values).map(|spread| spread.median);
        let mut trips: Vec<(String, Vec<f64>)> = results
            .values_of("placement")
            .into_iter()
            .map(ToString::to_string)
            .filter(|place| place != SYSTEM)
            .map(|place| (place.clone(), values(TRIPS, "placement", &place, TRIP.name)))
            .filter(|(_, values)| !values.is_empty())
            .collect();
        trips.sort_by(|(_, one), (_, other)| {
            median(one).unwrap_or(0.0).total_cmp(&median(other).unwrap_or(0.0))
        });
        let near = match (trips.first(), trips.last()) {
            (Some((near, least)), Some((far, most))) if near != far => {
                let pair = Pair { one: (near, least), other: (far, most) };
                let least = median(least).unwrap_or(0.0);
                let speed = pair.speed(Better::Less, noise);
                format!("a round trip takes {} ns at best, and {speed}", number(least))
            }
            _ => "the threads have one placement".to_owned(),
        };
        let [huge, ordinary] =
            [HUGE, ORDINARY].map(|memory| values(LARGE, "memory", memory, TIME.name));
        let pages = Pair { one: (HUGE, &huge), other: (ORDINARY, &ordinary) };
        format!(
            "On this machine, {near}; through a large ring, {}.",
            pages.speed(Better::Less, noise)
        )
    }
}

/// The CPUs of the two threads, with the name of their placement.
#[derive(Clone, Debug)]
struct Spot {
    name: String,
    placement: Option<Placement>,
}

/// Returns the places for two threads that this machine allows: the system's choice, and all named
/// placements. Placements that give the same CPUs here are merged into one place with all of their
/// names.
fn places(machine: &Machine) -> Vec<Spot> {
    let mut places: Vec<(Vec<usize>, Spot)> = Vec::new();
    for placement in Placement::NAMED {
        let Some(cpus) = assigned(machine, &placement) else { continue };
        match places.iter_mut().find(|(known, _)| *known == cpus) {
            Some((_, spot)) => spot.name = format!("{}, {placement}", spot.name),
            None => {
                let name = placement.to_string();
                places.push((cpus, Spot { name, placement: Some(placement) }));
            }
        }
    }
    let system = Spot { name: SYSTEM.to_owned(), placement: None };
    std::iter::once(system).chain(places.into_iter().map(|(_, spot)| spot)).collect()
}

/// Returns the CPUs of producer and stage at a placement.
fn assigned(machine: &Machine, placement: &Placement) -> Option<Vec<usize>> {
    let threads = [slipring::stages::PRODUCER, "stage"];
    let assignment = machine.assign(placement, &threads).ok()?;
    threads.iter().map(|thread| assignment.cpu(thread)).collect()
}

fn cpus(machine: &Machine, spot: &Spot) -> Vec<usize> {
    spot.placement.as_ref().and_then(|placement| assigned(machine, placement)).unwrap_or_default()
}

/// Returns CPUs of a memory node other than the node where `Placement::SameNode` puts the threads.
fn other_node(machine: &Machine) -> Option<CpuSet> {
    let own =
        machine.assign(&Placement::SameNode, &[slipring::stages::PRODUCER, "stage"]).ok()?.node();
    let mut nodes = machine.nodes().iter().filter(|node| Some(node.number) != own);
    nodes.find_map(|node| {
        let cpus = node.cpus.intersection(machine.allowed());
        (!cpus.is_empty()).then_some(cpus)
    })
}

/// Returns the wait strategy of all cases here. It spins for a while and then yields, so that it
/// works on one CPU, too.
fn wait() -> Wait {
    Wait::YIELDING
}

fn hand_over(size: Size, machine: &Machine, spot: Spot) -> Case {
    let events: u64 = size.pick(2_000, 5_000_000, 20_000_000);
    let cpus = cpus(machine, &spot);
    let machine = machine.clone();
    let point = vec![("placement", spot.name.as_str().into())];
    let run = move || -> Result<CaseResult> {
        let mut sum = 0_u64;
        let mut chain = slipring::ring(1024, || 0_u64).wait(wait());
        if let Some(placement) = &spot.placement {
            chain = chain.placement(machine.clone().at(placement.clone()));
        }
        let (began, cpu) = (Instant::now(), process_cpu());
        chain
            .read("stage", |event, _| sum += event)
            .feed(0..events, |slot, event| *slot = event)?;
        let took = began.elapsed();
        ensure!(sum == events * (events - 1) / 2, "events were lost or changed");
        let outcome = CaseResult::default().value(&TIME, took.as_nanos() as f64 / events as f64);
        Ok(match process_cpu().zip(cpu) {
            Some((after, before)) => {
                outcome.value(&CPU, (after - before).as_secs_f64() / took.as_secs_f64())
            }
            None => outcome,
        })
    };
    let expected = Duration::from_nanos(15 * events);
    case(ONE_BY_ONE, point, cpus, expected, run)
}

/// Measures round trips of one event at a time through two rings of one slot each.
fn round_trips(size: Size, machine: &Machine, spot: Spot) -> Case {
    let trips: u64 = size.pick(200, 50_000, 200_000);
    let cpus = cpus(machine, &spot);
    let machine = machine.clone();
    let point = vec![("placement", spot.name.as_str().into())];
    let run = move || -> Result<CaseResult> {
        let graph = || Graph::new(1, || 0_u64).wait(wait()).deadline(Duration::from_secs(60));
        let (mut there, back) = (graph(), graph());
        if let Some(placement) = &spot.placement {
            there = there.placement(machine.clone().at(placement.clone()));
        }
        let (out, home) = (there.reader("stage"), back.reader("home"));
        let (there, back) = (there.build()?, back.build()?);
        let (mut out_tx, mut out) = (there.producer(), there.reader(out));
        let (mut home_tx, mut home) = (back.producer(), back.reader(home));
        let times = std::thread::scope(|scope| -> Result<Vec<u64>> {
            let there = &there;
            let stage = scope.spawn(move || -> Result<()> {
                let _bound = there.bind_thread("stage")?;
                for trip in 0..trips {
                    let batch = out.batch(1)?;
                    let event = batch.iter().next().copied();
                    ensure!(event == Some(trip), "an event was lost or changed");
                    batch.release();
                    home_tx.publish(|slot| *slot = trip)?;
                }
                Ok(())
            });
            let mut times = Vec::with_capacity(trips as usize);
            let producing = (|| -> Result<()> {
                let _bound = there.bind_thread(slipring::stages::PRODUCER)?;
                for trip in 0..trips {
                    let began = Instant::now();
                    out_tx.publish(|slot| *slot = trip)?;
                    let batch = home.batch(1)?;
                    ensure!(batch.iter().next() == Some(&trip), "an event was lost or changed");
                    batch.release();
                    times.push(began.elapsed().as_nanos() as u64);
                }
                Ok(())
            })();
            // Dropped handles end the waits of the other thread.
            drop((out_tx, home));
            stage.join().map_err(|_| anyhow!("the stage's thread panicked"))??;
            producing.map(|()| times)
        })?;
        let mut times: Vec<f64> = times.into_iter().map(|time| time as f64).collect();
        times.sort_by(f64::total_cmp);
        Ok(CaseResult::default().value(&TRIP, times[times.len() / 2]))
    };
    case(TRIPS, point, cpus, Duration::from_nanos(600 * trips), run)
}

/// An event of one cache line, with its stamp.
type Block = [u64; 7];

/// Binds the threads as the placement on one node says, but binds the thread that first touches the
/// memory to `cpus`.
struct MemoryAt {
    cpus: CpuSet,
    threads: slipring_machine::Assignment,
}

impl Places for MemoryAt {
    fn cores(&self) -> usize {
        self.threads.cores()
    }

    fn bind(&self, thread: &str) -> Result<Bound, Fault> {
        self.threads.bind(thread)
    }

    fn bind_to_memory(&self) -> Result<Bound, Fault> {
        let bound = bind_thread(&self.cpus)?;
        Ok(Bound::new(move || drop(bound)))
    }
}

/// A placement whose memory lies on a different node from its threads.
struct Apart(Machine, CpuSet);

impl slipring::placement::Placement for Apart {
    fn assign(&self, threads: &[String]) -> Result<Arc<dyn Places>, Fault> {
        let assignment = self.0.assign(&Placement::SameNode, threads)?;
        Ok(Arc::new(MemoryAt { cpus: self.1.clone(), threads: assignment }))
    }
}

fn large_ring(size: Size, machine: &Machine, memory: &'static str) -> Case {
    let capacity: usize = size.pick(1 << 12, 1 << 20, 1 << 22);
    let events = 3 * capacity as u64;
    let machine = machine.clone();
    let placement = [Placement::SameNode, Placement::SameCore]
        .into_iter()
        .find(|placement| assigned(&machine, placement).is_some());
    let cpus = placement.as_ref().and_then(|of| assigned(&machine, of)).unwrap_or_default();
    let run = move || -> Result<CaseResult> {
        let mut sum = 0_u64;
        let mut chain = slipring::ring(capacity, || [0_u64; 7] as Block).wait(wait());
        match (memory, other_node(&machine), &placement) {
            (OTHER_NODE, Some(cpus), _) => chain = chain.placement(Apart(machine.clone(), cpus)),
            (_, _, Some(placement)) => {
                chain = chain.placement(machine.clone().at(placement.clone()));
            }
            _ => {}
        }
        if memory == HUGE {
            chain = chain.huge_pages();
        }
        let began = Instant::now();
        let mut built = began;
        let stage = chain.read("stage", |event, _| sum = sum.wrapping_add(event[0]));
        stage.run(|tx| {
            // The build is over when the producer's closure begins.
            built = Instant::now();
            tx.publish_all(0..events, |slot, event| slot.fill(event))?;
            Ok(())
        })?;
        let took = built.elapsed();
        ensure!(sum == events * (events - 1) / 2, "events were lost or changed");
        Ok(CaseResult::default()
            .value(&TIME, took.as_nanos() as f64 / events as f64)
            .value(&BUILD, (built - began).as_secs_f64() * 1e3))
    };
    let expected = Duration::from_nanos(30 * events);
    case(LARGE, vec![("memory", memory.into())], cpus, expected, run)
}

fn case(
    contender: &str,
    point: Vec<(&'static str, super::metric::Value)>,
    cpus: Vec<usize>,
    expected: Duration,
    mut run: impl FnMut() -> Result<CaseResult> + 'static,
) -> Case {
    Case {
        contender: contender.to_owned(),
        point,
        threads: 2,
        cpus,
        expected,
        run: Box::new(move |_| run()),
    }
}
