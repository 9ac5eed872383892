//! The cost of a publication for its producer at a paced million events a second: in front of a
//! sink, and in front of a stage that only counts.

use std::thread;

use slipring::{Graph, Producer};
use slipring_machine::Clock;
use slipring_nats::{Encoding, Sink, StreamSettings};

use crate::append::check;
use crate::bench::{Bench, BenchResult, Event, TYPE};
use crate::stream::Form;

/// Slots of the ring.
const RING: usize = 1 << 17;
/// Size of a burst, in events, and the time between the starts of two bursts, in nanoseconds. The
/// producer publishes a burst's events one by one and reads the clock only between bursts, because
/// a reading takes as long as several publications.
const BURST: (u64, u64) = (10, 10_000);

/// Time of a publication, in nanoseconds.
pub struct Cost {
    /// Mean without the slowest hundredth of the bursts, because the system took the core away
    /// during those.
    pub mean: f64,
    pub median: f64,
}

/// Measures a producer in front of a sink.
pub fn sink(bench: &mut Bench) -> BenchResult<Cost> {
    let name = bench.name();
    let sink =
        Sink::to(bench.at(), &name)
            .create(StreamSettings::new(&name))
            .open(Encoding::<Event>::plain(TYPE.0, TYPE.1))?;
    let graph = Graph::new(RING, Event::default);
    let key = graph.reader("journal");
    let ring = graph.build()?;
    let (mut tx, journal) = (ring.producer(), ring.reader(key));
    let running = sink.start(journal)?;
    let events = events(bench);
    let cost = publish(&mut tx, events)?;
    tx.close();
    running.join()?;
    check(bench, &name, Form::Frames, events)?;
    Ok(cost)
}

/// Measures a producer in front of a stage that only counts.
pub fn counting(bench: &mut Bench) -> BenchResult<Cost> {
    let graph = Graph::new(RING, Event::default);
    let key = graph.reader("count");
    let ring = graph.build()?;
    let (mut tx, mut reader) = (ring.producer(), ring.reader(key));
    let events = events(bench);
    let counter = thread::spawn(move || {
        let mut count = 0;
        reader.for_each(|_, _| count += 1).map(|_| count)
    });
    let cost = publish(&mut tx, events)?;
    tx.close();
    let count: u64 = counter.join().map_err(|_| "the counting stage panicked")??;
    if count == events { Ok(cost) } else { Err(format!("{count} events were counted").into()) }
}

/// Returns the number of events of a run.
fn events(bench: &Bench) -> u64 {
    bench.amounts.paced.as_nanos() as u64 / BURST.1 * BURST.0
}

/// Publishes on schedule: a late burst does not delay later bursts.
fn publish(tx: &mut Producer<Event>, events: u64) -> BenchResult<Cost> {
    let (burst, every) = BURST;
    let mut costs = Vec::with_capacity((events / burst) as usize);
    let (clock, looking) = (Clock::start(), Clock::cost());
    for round in 0..events / burst {
        let before = clock.spin_until(round * every);
        for seq in round * burst..(round + 1) * burst {
            tx.publish(|slot| *slot = Event::at(seq))?;
        }
        costs.push(clock.ns() - before);
    }
    costs.sort_unstable();
    let cost = |time: f64| (time - looking) / burst as f64;
    let most = &costs[..costs.len() - costs.len() / 100];
    let mean = most.iter().sum::<u64>() as f64 / most.len() as f64;
    Ok(Cost { mean: cost(mean), median: cost(costs[costs.len() / 2] as f64) })
}
