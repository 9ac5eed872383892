//! The work that all contenders do: the events of a load, the steps of the stages, and the check
//! that every stage handled each event once and in order.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use slipring_machine::{Clock, process_cpu, set_fine_timer, thread_cpu};

/// Capacity of the ring and of each queue, in events.
pub const CAPACITY: usize = 1024;
/// Time from the creation of a paced load to its first event. The threads start during this time.
const LEAD: Duration = Duration::from_millis(10);
/// Number of producers of the sequencer.
pub const PRODUCERS: u64 = 3;
/// Number of low bits of a sequencer's event that name its producer.
const PRODUCER_BITS: u32 = 2;

/// A graph of stages, named as in the publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One producer, one consumer.
    Unicast,
    /// One producer, three stages in a row, two of which change the event.
    Pipeline,
    /// Three producers, one consumer.
    Sequencer,
    /// One producer, and three consumers, each of which sees all events.
    Multicast,
    /// One producer, two stages side by side, and a stage that needs the results of both.
    Diamond,
}

impl Shape {
    pub const ALL: [Shape; 5] =
        [Shape::Unicast, Shape::Pipeline, Shape::Sequencer, Shape::Multicast, Shape::Diamond];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Unicast => "unicast",
            Shape::Pipeline => "pipeline",
            Shape::Sequencer => "sequencer",
            Shape::Multicast => "multicast",
            Shape::Diamond => "diamond",
        }
    }

    /// Returns the number of producers and stages. A contender with a thread for each of them has
    /// as many threads.
    pub fn threads(self) -> usize {
        if self == Shape::Unicast { 2 } else { 4 }
    }

    /// Returns the number of stages.
    pub fn stages(self) -> usize {
        match self {
            Shape::Unicast | Shape::Sequencer => 1,
            Shape::Pipeline | Shape::Multicast | Shape::Diamond => 3,
        }
    }

    /// Returns whether the events can be paced. Three producers that spin until their next event is
    /// due would leave no core of a small machine to the consumer.
    pub fn has_latency(self) -> bool {
        self != Shape::Sequencer
    }

    /// Computes on this thread the tallies of all stages, in the order in which contenders return
    /// them.
    pub fn expected(self, load: &Load) -> Vec<Tally> {
        let tally = |content: &dyn Fn(u64) -> u64| {
            let mut tally = Tally::default();
            (0..load.events).for_each(|value| tally.add(content(value)));
            tally
        };
        let value = tally(&|value| value);
        match self {
            Shape::Unicast => vec![value],
            Shape::Pipeline => {
                vec![value, tally(&step_one), tally(&|value| step_two(step_one(value)))]
            }
            Shape::Sequencer => (0..PRODUCERS)
                .map(|producer| {
                    let mut tally = Tally::default();
                    Load::share(load.events, producer)
                        .for_each(|number| tally.add(stamped(producer, number)));
                    tally
                })
                .collect(),
            Shape::Multicast => vec![value; 3],
            Shape::Diamond => {
                vec![value, value, tally(&|value| join(left(value), right(value)))]
            }
        }
    }
}

/// Does the step of the pipeline's first stage.
pub fn step_one(value: u64) -> u64 {
    value.wrapping_add(0x5851_f42d_4c95_7f2d)
}

/// Does the step of the pipeline's second stage.
pub fn step_two(result: u64) -> u64 {
    result.rotate_left(23) ^ 0x1405_7b7e_f767_814f
}

/// Does the step of the diamond's left side.
pub fn left(value: u64) -> u64 {
    value.wrapping_mul(3)
}

/// Does the step of the diamond's right side.
pub fn right(value: u64) -> u64 {
    value.rotate_left(32)
}

/// Does the step of the diamond's last stage.
pub fn join(left: u64, right: u64) -> u64 {
    left ^ right
}

/// Returns an event of the sequencer: its number, with its producer's number in the low bits.
pub fn stamped(producer: u64, number: u64) -> u64 {
    number << PRODUCER_BITS | producer
}

/// A stage's account of the events that it has handled: their number, and a hash that depends on
/// the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub events: u64,
    hash: u64,
}

impl Tally {
    #[inline]
    pub fn add(&mut self, content: u64) {
        self.events += 1;
        self.hash = self.hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(content);
    }
}

/// The tallies of the sequencer's consumer, by producer. Events of different producers have no
/// order.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ByProducer([Tally; 1 << PRODUCER_BITS]);

impl ByProducer {
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.0[value as usize & ((1 << PRODUCER_BITS) - 1)].add(value);
    }

    pub fn tallies(&self) -> Vec<Tally> {
        self.0[..PRODUCERS as usize].to_vec()
    }
}

/// The tally of a stage that others follow, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Middle(pub Tally);

/// The tally of a stage that no stage follows, and the latencies of a paced load, on cache lines of
/// their own.
#[derive(Debug)]
#[repr(align(128))]
pub struct Last {
    pub tally: Tally,
    paced: Option<(Pace, Histogram<u64>)>,
}

impl Last {
    pub fn new(load: &Load) -> Self {
        Self { tally: Tally::default(), paced: load.pace.map(|pace| (pace, latencies())) }
    }

    /// Counts an event. `value` is its number, and `content` is the result of the previous stages.
    #[inline]
    pub fn add(&mut self, value: u64, content: u64) {
        self.tally.add(content);
        if let Some((pace, latencies)) = &mut self.paced {
            latencies.saturating_record(pace.clock.ns().saturating_sub(pace.due(value)));
        }
    }
}

/// Returns an empty histogram for latencies of up to two minutes, with three digits. It allocates
/// all its memory now and none during the measurement.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 37, 3).expect("these are bounds")
}

/// The events of a run, and the times of their publication.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub events: u64,
    /// Times at which the events are due; `None` if they come as fast as the contender takes them.
    pub pace: Option<Pace>,
}

/// A schedule with equal gaps. Latency counts from the time at which an event is due, even if the
/// producer is late, so that a delay counts for all events that become due during it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    clock: Clock,
    /// Clock time of the first event, in nanoseconds.
    start: u64,
    /// Time between two events, in nanoseconds.
    gap: u64,
    rest: Rest,
}

/// The producer's way to wait until the next event is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The producer spins. That is exact, but takes up a core.
    Spin,
    /// The producer sleeps. That leaves the core to the stages, and adds the lateness of the
    /// system's timer to each latency.
    Sleep,
}

impl Pace {
    fn wait(&self, until: u64) {
        match self.rest {
            Rest::Spin => self.clock.spin_until(until),
            Rest::Sleep => self.clock.sleep_until(until),
        };
    }

    fn due(&self, value: u64) -> u64 {
        self.start + value * self.gap
    }
}

impl Load {
    /// Returns events that are published as fast as possible.
    pub fn at_once(events: u64) -> Self {
        Self { events, pace: None }
    }

    /// Returns events that are due one after the other, the first one soon after this call.
    pub fn paced(events: u64, gap: Duration, rest: Rest) -> Self {
        let clock = Clock::start();
        let start = clock.ns() + LEAD.as_nanos() as u64;
        Self { events, pace: Some(Pace { clock, start, gap: gap.as_nanos() as u64, rest }) }
    }

    /// Publishes all events of a single producer.
    pub fn produce<E>(&self, mut publish: impl FnMut(u64) -> Result<(), E>) -> Result<Meter, E> {
        let Some(pace) = self.pace else {
            let meter = Meter::start();
            (0..self.events).try_for_each(publish)?;
            return Ok(meter);
        };
        if pace.rest == Rest::Sleep {
            set_fine_timer();
        }
        pace.wait(pace.start);
        let (mut meter, cpu) = (Meter::start(), thread_cpu());
        for value in 0..self.events {
            pace.wait(pace.due(value));
            publish(value)?;
        }
        meter.producer_cpu = thread_cpu()
            .zip(cpu)
            .map(|(after, before)| Duration::from_nanos(after.saturating_sub(before)));
        Ok(meter)
    }

    /// Returns the numbers that a producer of the sequencer publishes.
    pub fn share(events: u64, producer: u64) -> std::ops::Range<u64> {
        0..(events + PRODUCERS - 1 - producer) / PRODUCERS
    }
}

/// The time and the processor time since the first event.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    began: Instant,
    cpu: Option<Duration>,
    /// Processor time of a producer that spins between events.
    producer_cpu: Option<Duration>,
}

impl Meter {
    pub fn start() -> Self {
        Self { began: Instant::now(), cpu: process_cpu(), producer_cpu: None }
    }

    /// Ends the measurement, after all stages have ended.
    pub fn stop(self, stages: Vec<Tally>, ends: impl IntoIterator<Item = Last>) -> Measured {
        let wall = self.began.elapsed();
        let cpu = process_cpu().zip(self.cpu).map(|(after, before)| {
            after.saturating_sub(before).saturating_sub(self.producer_cpu.unwrap_or_default())
        });
        let mut latencies: Option<Histogram<u64>> = None;
        for (_, one) in ends.into_iter().filter_map(|last| last.paced) {
            match &mut latencies {
                // Both histograms have the same bounds.
                Some(all) => all.add(one).expect("equal histograms"),
                None => latencies = Some(one),
            }
        }
        Measured { wall, cpu, stages, latencies }
    }
}

/// The result of a contender for a load.
#[derive(Debug)]
pub struct Measured {
    pub wall: Duration,
    /// Processor time, without that of a producer that spins between paced events.
    pub cpu: Option<Duration>,
    /// Tallies, in the order of [`Shape::expected`].
    pub stages: Vec<Tally>,
    /// Latencies of a paced load, in nanoseconds.
    pub latencies: Option<Histogram<u64>>,
}

impl Measured {
    /// Fails unless each stage handled each event once and in order.
    pub fn check(&self, shape: Shape, load: &Load) -> Result<()> {
        let expected = shape.expected(load);
        ensure!(self.stages.len() == expected.len(), "a stage is missing");
        for (number, (seen, expected)) in self.stages.iter().zip(&expected).enumerate() {
            let of = if shape == Shape::Sequencer { "producer" } else { "stage" };
            let number = number + 1;
            ensure!(
                seen.events == expected.events,
                "{of} {number}: {} of {} events arrived",
                seen.events,
                expected.events
            );
            ensure!(
                seen.hash == expected.hash,
                "{of} {number}: events arrived changed or out of order"
            );
        }
        Ok(())
    }

    /// Returns the average number of cores in use; `None` where the system does not account for it.
    pub fn cores(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() / self.wall.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_order_and_content() {
        let tally = |contents: &[u64]| {
            let mut tally = Tally::default();
            contents.iter().for_each(|content| tally.add(*content));
            tally
        };
        assert_eq!(tally(&[1, 2, 3]), tally(&[1, 2, 3]));
        for other in [[1, 3, 2], [1, 2, 4], [2, 2, 3]] {
            assert_ne!(tally(&[1, 2, 3]), tally(&other));
        }
    }

    #[test]
    fn producers_share_all_events() {
        for events in [0, 1, 2, 3, 10, 3_000] {
            let shares = (0..PRODUCERS).map(|producer| Load::share(events, producer));
            assert_eq!(shares.map(|share| share.end).sum::<u64>(), events);
        }
    }

    #[test]
    fn a_paced_load_is_never_early_and_its_latencies_are_counted() {
        for rest in [Rest::Spin, Rest::Sleep] {
            never_early(&Load::paced(20, Duration::from_micros(100), rest));
        }
    }

    fn never_early(load: &Load) {
        let pace = load.pace.unwrap();
        let mut last = Last::new(load);
        let meter = load
            .produce(|value| {
                assert!(pace.clock.ns() >= pace.due(value));
                last.add(value, value);
                Ok::<(), ()>(())
            })
            .unwrap();
        let measured = meter.stop(vec![last.tally], [last]);
        measured.check(Shape::Unicast, load).unwrap();
        assert_eq!(measured.latencies.unwrap().len(), 20);
    }

    #[test]
    fn a_lost_or_misplaced_event_is_an_error_that_names_the_stage() {
        let load = Load::at_once(10);
        for shape in Shape::ALL {
            let whole = || Measured {
                wall: Duration::ZERO,
                cpu: None,
                stages: shape.expected(&load),
                latencies: None,
            };
            whole().check(shape, &load).unwrap();
            for stage in 0..whole().stages.len() {
                let mut lost = whole();
                lost.stages[stage].events -= 1;
                let message = lost.check(shape, &load).unwrap_err().to_string();
                assert!(message.contains(&format!(" {}: ", stage + 1)), "{message}");
                let mut misplaced = whole();
                misplaced.stages[stage].hash ^= 1;
                assert!(misplaced.check(shape, &load).is_err());
            }
        }
    }
}
