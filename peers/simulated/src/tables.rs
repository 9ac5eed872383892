//! The tables of counts.
//!
//! - I1: All contenders of a table publish and receive the same events, at the same pace.

use peers_unchanged::{Build, Shape, Spec};
use slipring_coherence::{Machine, Placement, Topology};

use crate::simulated;

/// How far latencies vary by the seed, in percent.
const JITTER: u64 = 10;

/// A kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Table {
    /// Several producers that only publish, to one reader
    Producers,
    /// A producer that is slower than the workers of a pool, so that they wait
    WaitingPool,
    /// A producer that is faster than the workers of a pool, so that events wait
    BusyPool,
    /// One producer, slower than its readers, each of which sees all events
    Multicast,
    /// One producer and one reader, as fast as they can, by capacity
    Unicast,
}

impl Table {
    /// Returns the heading.
    pub fn heading(self) -> &'static str {
        match self {
            Table::Producers => "producers that only publish, one reader, ring of 1,024",
            Table::WaitingPool => "workers that wait for a producer, 5 µs an event, ring of 256",
            Table::BusyPool => "workers with a backlog, 100 ns of work an event, ring of 1,024",
            Table::Multicast => "readers of all events, 2 µs an event, ring of 256",
            Table::Unicast => "capacity, one producer, one reader, 1 ns of work each",
        }
    }

    /// Returns the columns with their specifications, `events` measured in each.
    fn columns(self, events: u64) -> Vec<(usize, Spec)> {
        let spec = Spec {
            shape: Shape::Stream,
            producers: 1,
            consumers: 1,
            capacity: 1024,
            warm_up: 2048.min(events),
            events,
            pace: 1,
            work: 1,
        };
        let many = [1, 2, 3, 5, 8, 11, 31, 48];
        // A paced event costs each waiting thread hundreds of polls, and all counts are alike.
        let events = events.min(1_000);
        let paced = Spec { capacity: 256, warm_up: 512.min(events), events, ..spec };
        let pool = |spec, pace, work| {
            let pool = Spec { shape: Shape::Pool, pace, work, ..spec };
            many.map(|consumers| (consumers, Spec { consumers, ..pool })).to_vec()
        };
        match self {
            Table::Producers => {
                many.map(|producers| (producers, Spec { producers, ..spec })).to_vec()
            }
            Table::WaitingPool => pool(paced, 5_000, 1),
            Table::BusyPool => pool(spec, 1, 100),
            Table::Multicast => {
                let spec = Spec { shape: Shape::Multicast, pace: 2_000, ..paced };
                (1..=11).map(|consumers| (consumers, Spec { consumers, ..spec })).collect()
            }
            Table::Unicast => capacities(spec).map(|spec| (spec.capacity, spec)).to_vec(),
        }
    }
}

/// Returns streams by capacity, each with a warm-up of two laps. The measurement has four laps at
/// least, except of a smoke run: otherwise it would cover events that were published before it.
fn capacities(spec: Spec) -> [Spec; 3] {
    [64, 1024, 16_384].map(|capacity| {
        let laps = |count| count * capacity as u64;
        let is_smoke = spec.events < 1_000;
        let events = if is_smoke { spec.events } else { spec.events.max(laps(4)) };
        Spec { capacity, warm_up: laps(2).min(8 * events), events, ..spec }
    })
}

/// Returns the streams whose order of contenders is compared with real cores.
pub fn unicast(events: u64) -> [Spec; 3] {
    let columns = Table::Unicast.columns(events);
    [0, 1, 2].map(|column| columns[column].1)
}

/// Counts of one run, or the medians of several, by event.
#[derive(Clone, Copy)]
pub struct Counted {
    transfers: f64,
    rmws: f64,
    fences: f64,
    /// Virtual nanoseconds an event.
    pub nanos: f64,
}

/// Runs a contender with seeds `1..=seeds`, and returns the median of each count. Returns `None`
/// if the contender has not this shape.
///
/// # Errors
///
/// If a run fails.
pub fn count(
    machine: &Machine,
    placement: Placement,
    spec: Spec,
    build: Build,
    seeds: u64,
) -> Result<Option<Counted>, String> {
    let mut all = Vec::new();
    for seed in 1..=seeds {
        let machine = Machine { seed, jitter: JITTER, ..machine.clone() };
        let Some(report) = simulated::run(&machine, placement, spec, build)? else {
            return Ok(None);
        };
        // Those that end the workers are events, too.
        let ends = if spec.shape == Shape::Pool { spec.consumers as u64 } else { 0 };
        let events = spec.measured() + ends;
        let each = report.counts().per_event(events);
        all.push(Counted {
            transfers: each.transfers,
            rmws: each.rmws,
            fences: each.fences,
            nanos: report.time.as_nanos() as f64 / events as f64,
        });
    }
    let median = |of: fn(&Counted) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Ok(Some(Counted {
        transfers: median(|counted| counted.transfers),
        rmws: median(|counted| counted.rmws),
        fences: median(|counted| counted.fences),
        nanos: median(|counted| counted.nanos),
    }))
}

/// Returns a table's header and rows on one machine. `tell` learns of each run that begins.
pub fn fill(
    table: Table,
    topology: Topology,
    placement: Placement,
    contenders: &[(&str, Build)],
    events: u64,
    seeds: u64,
    mut tell: impl FnMut(&str),
) -> (Vec<String>, Vec<Vec<String>>) {
    let machine = Machine::server(topology);
    let mut columns = table.columns(events);
    columns.retain(|(_, spec)| spec.producers + spec.consumers <= topology.total());
    let header = [format!("transfers; RMW; fences an event: {}", table.heading())];
    let header = header.into_iter().chain(columns.iter().map(|(column, _)| column.to_string()));
    let row = |(name, build): &(&str, Build)| {
        let mut cells = vec![(*name).to_owned()];
        for (column, spec) in &columns {
            tell(&format!("{topology}, {table:?}, {column}: {name}"));
            cells.push(match count(&machine, placement, *spec, *build, seeds) {
                Ok(Some(Counted { transfers, rmws, fences, .. })) => {
                    format!("{transfers:.2}; {rmws:.2}; {fences:.2}")
                }
                // A contender has a shape at all numbers of threads, or only with one of a kind.
                Ok(None) => "—".to_owned(),
                Err(error) => format!("failed: {}", error.lines().next().unwrap_or_default()),
            });
        }
        cells
    };
    let rows: Vec<_> = contenders.iter().map(row).collect();
    let ran = |row: &Vec<String>| row[1..].iter().any(|cell| cell != "—");
    (header.collect(), rows.into_iter().filter(ran).collect())
}
