//! One run: a producer that keeps to a schedule, a reader that waits by a strategy, and a thread
//! that samples the reader's processor time.
//!
//! The load is open: each event is due at a fixed time, and its latency starts then, even if the
//! producer publishes it late. So a delay of the waiter counts for every event that becomes due
//! during it (no coordinated omission).

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use slipring::{
    Graph, Producer, Reader, Wait,
    errors::{Cause, Failure, WaitError},
    stages::ReaderKey,
};
use slipring_machine::{self as machine, Clock, CorePair, MachineUsage, ThreadTimes};

use super::arrivals::Pattern;
use super::figures::{CpuSamples, Figures};
use super::measured::StrategyRun;

/// Slots of the ring: more than a scheduled load ever fills, and few enough for the second-level
/// cache.
const CAPACITY: usize = 1 << 12;
/// Time by which a run may exceed its schedule. A run that takes longer has failed: a wait did not
/// end, or the strategy's sleeps are too long for a burst.
const GRACE: Duration = Duration::from_secs(60);
/// Sampling interval of latency in bursts, in events. Reading the clock for every event would take
/// longer than the hand-over.
const TIMED: u64 = 256;
/// Interval between samples of the waiter's processor time.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Quantiles of the latency curve.
const QUANTILES: [f64; 12] =
    [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0];
/// Window over which the largest share of a core is measured.
const WINDOW: Duration = Duration::from_secs(1);
/// Time from the start gate to the schedule's start. It gives both threads time to run.
const LEAD: Duration = Duration::from_millis(1);

/// How the producer waits until the next event is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The producer spins. That is exact, but takes up a core.
    Spin,
    /// The producer sleeps, which leaves the core to other threads.
    Sleep,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Wait strategy of all stages.
    pub wait: Wait,
    /// Gaps between events.
    pub pattern: Pattern,
    /// Seed of the schedule.
    pub seed: u64,
    /// Length of the schedule.
    pub length: Duration,
    /// Producer's way to wait for the next event.
    pub pace: Pace,
    /// Number of stages in a row; the last one is the waiter.
    pub stages: usize,
    /// Cores of producer and waiter, if they are pinned.
    pub pair: Option<CorePair>,
}

/// The ring's event.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    /// Number of events before this one.
    number: u64,
    /// Clock time at which the event is due, in nanoseconds; 0 if its latency is not measured.
    due: u64,
}

impl Event {
    /// Returns a hash of all fields. Both ends add up the hashes, so that a changed event is
    /// noticed.
    fn hash(&self) -> u64 {
        (self.number ^ self.due.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The producer's account of a run.
#[derive(Debug, Default)]
struct ProducerResult {
    events: u64,
    checksum: u64,
    /// Time within publishing calls, in nanoseconds.
    spent: u64,
    /// Processor time of publishing, in nanoseconds.
    cpu: Option<u64>,
    /// Clock time at which the schedule starts, in nanoseconds.
    start: u64,
    /// Delays of publishing calls after their events were due, in nanoseconds. Absent for bursts.
    late: Option<Histogram<u64>>,
}

/// The waiter's account of a run.
#[derive(Debug)]
struct WaiterResult {
    events: u64,
    /// Number of events that came out of order.
    misplaced: u64,
    checksum: u64,
    /// Latencies, in nanoseconds.
    latencies: Histogram<u64>,
    /// Clock time before the first wait, in nanoseconds.
    begin: u64,
    /// Clock time after the last event, in nanoseconds.
    end: u64,
    /// Processor time used, in nanoseconds.
    cpu: Option<u64>,
    /// Time in which the waiter was runnable but had no core, in nanoseconds.
    waiting_for_core: Option<u64>,
}

/// Runs the setup. Fails if an event is lost, changed or out of order, or if the run takes longer
/// than [`GRACE`] allows.
pub fn run_once(setup: &Setup) -> Result<StrategyRun> {
    let graph = Graph::new(CAPACITY, Event::default)
        .wait(setup.wait.clone())
        .deadline(setup.length + GRACE);
    let mut keys: Vec<ReaderKey> = Vec::new();
    for number in 1..=setup.stages {
        let key = graph.reader(&if number == setup.stages {
            "waiter".to_owned()
        } else {
            format!("stage {number}")
        });
        keys.push(match keys.last() {
            Some(before) => key.after(before),
            None => key,
        });
    }
    // The ring is built before any thread is pinned, because the library counts the cores that it
    // may use.
    let ring = graph.build()?;
    let producer = ring.producer();
    let mut before: Vec<Reader<Event>> = keys.into_iter().map(|key| ring.reader(key)).collect();
    let reader = before.pop().ok_or_else(|| anyhow!("a run needs at least one stage"))?;
    let (clock, gate) = (Clock::start(), Barrier::new(2));
    let (id_sender, id_receiver) = channel();
    let usage = MachineUsage::now();

    let (producer, waiter, stages, samples) = thread::scope(|scope| -> Result<_> {
        let (clock, gate) = (&clock, &gate);
        // If a thread does not start, the unused handles are dropped here, which ends the stages
        // that run.
        let refused = "cannot start a thread";
        let stage = |reader| {
            thread::Builder::new().spawn_scoped(scope, move || run_stage(reader)).context(refused)
        };
        let stages = before.into_iter().map(stage).collect::<Result<Vec<_>>>()?;
        let waiter = move || {
            setup.pair.inspect(|pair| machine::pin(pair.waiter));
            run_waiter(reader, clock, gate, &id_sender)
        };
        let waiter = thread::Builder::new().spawn_scoped(scope, waiter).context(refused)?;
        let producer = move || {
            setup.pair.inspect(|pair| machine::pin(pair.producer));
            match setup.pattern {
                Pattern::AtOnce { events } => publish_at_once(producer, events, clock, gate),
                _ => publish_on_time(producer, setup, clock, gate),
            }
        };
        let producer = thread::Builder::new().spawn_scoped(scope, producer).inspect_err(|_| {
            // The producer did not start, but the waiter waits for it at the gate. So this thread
            // enters the gate in the producer's place.
            gate.wait();
        });
        let producer = producer.context(refused)?;
        let samples = sample_cpu(&id_receiver, clock);
        let stages: Vec<_> = stages.into_iter().map(|stage| stage.join()).collect();
        Ok((producer.join(), waiter.join(), stages, samples))
    })?;
    let others_cores = usage.and_then(MachineUsage::others_since);
    let waiter = waiter.map_err(|_| anyhow!("the waiter's thread panicked"))?.map_err(explain)?;
    let producer =
        producer.map_err(|_| anyhow!("the producer's thread panicked"))?.map_err(explain)?;
    check(&producer, &waiter)?;
    let mut figures = Figures { others_cores, ..figures(&producer, &waiter, &samples) };
    for stage in stages {
        let stage = stage.map_err(|_| anyhow!("a stage's thread panicked"))?.map_err(explain)?;
        ensure!(
            stage.checksum == producer.checksum,
            "a stage received other events than the producer published"
        );
        figures.cpu_s_per_million = figures
            .cpu_s_per_million
            .zip(stage.cpu)
            .map(|(all, cpu)| all + cpu as f64 / waiter.events as f64 / 1e3);
    }
    let curve = QUANTILES.map(|at| (at, waiter.latencies.value_at_quantile(at) as f64)).to_vec();
    Ok(StrategyRun { events: waiter.events, figures, curve })
}

/// Turns the reason for an early end into an error, with advice where there is any.
fn explain(closed: WaitError) -> anyhow::Error {
    match closed.failure().map(Failure::cause) {
        Some(Cause::Deadline(_)) => {
            anyhow!(
                "{closed}; a strategy that sleeps for milliseconds at a time may be too slow for a \
                 burst: leave out the strategy or `burst`"
            )
        }
        _ => anyhow!("{closed}"),
    }
}

/// The account of a stage before the waiter.
struct StageResult {
    checksum: u64,
    /// Processor time used, in nanoseconds.
    cpu: Option<u64>,
}

/// Runs a stage before the waiter. The stage reads each event and releases it.
fn run_stage(mut reader: Reader<Event>) -> Result<StageResult, WaitError> {
    let (mut checksum, cpu) = (0u64, machine::thread_cpu());
    reader.for_each(|event, _| checksum = checksum.wrapping_add(event.hash()))?;
    Ok(StageResult {
        checksum,
        cpu: machine::thread_cpu().zip(cpu).map(|(after, before)| after - before),
    })
}

/// Publishes an event, and repeats the call after each timeout of the strategy.
fn publish(producer: &mut Producer<Event>, event: Event) -> Result<(), WaitError> {
    loop {
        match producer.publish(|slot| *slot = event) {
            Err(WaitError::TimedOut(_)) => {}
            done => return done.map(drop),
        }
    }
}

/// Publishes each event at the time when it is due.
fn publish_on_time(
    mut producer: Producer<Event>,
    setup: &Setup,
    clock: &Clock,
    gate: &Barrier,
) -> Result<ProducerResult, WaitError> {
    if setup.pace == Pace::Sleep {
        machine::set_fine_timer();
    }
    let mut late = latencies();
    gate.wait();
    let start = clock.ns() + LEAD.as_nanos() as u64;
    let mut done = ProducerResult { start, ..ProducerResult::default() };
    for time in setup.pattern.schedule(setup.seed, setup.length) {
        let event = Event { number: done.events, due: start + time };
        let begin = match setup.pace {
            Pace::Spin => clock.spin_until(event.due),
            Pace::Sleep => clock.sleep_until(event.due),
        };
        publish(&mut producer, event)?;
        done.spent += clock.ns() - begin;
        late.saturating_record(begin.saturating_sub(event.due));
        done.events += 1;
        done.checksum = done.checksum.wrapping_add(event.hash());
    }
    // The ring is never full under a schedule, so the calls do not sleep and all their time counts
    // as processor time.
    done.cpu = Some(done.spent);
    done.late = Some(late);
    Ok(done)
}

/// Publishes events without a pause. The calls may sleep while the ring is full, so the processor
/// time is measured separately.
fn publish_at_once(
    mut producer: Producer<Event>,
    events: u64,
    clock: &Clock,
    gate: &Barrier,
) -> Result<ProducerResult, WaitError> {
    gate.wait();
    let (start, cpu) = (clock.ns(), machine::thread_cpu());
    let mut done = ProducerResult { start, ..ProducerResult::default() };
    while done.events < events {
        let due = if done.events.is_multiple_of(TIMED) { clock.ns() } else { 0 };
        let event = Event { number: done.events, due };
        publish(&mut producer, event)?;
        done.events += 1;
        done.checksum = done.checksum.wrapping_add(event.hash());
    }
    done.spent = clock.ns() - start;
    done.cpu = machine::thread_cpu().zip(cpu).map(|(after, before)| after - before);
    Ok(done)
}

/// Runs the waiter, which handles all events. It sends its thread id first. The end of the channel
/// then tells the sampling thread that the waiter has ended, even after a failure.
fn run_waiter(
    mut reader: Reader<Event>,
    clock: &Clock,
    gate: &Barrier,
    id_sender: &Sender<Option<u32>>,
) -> Result<WaiterResult, WaitError> {
    let thread = machine::thread_id();
    let waiting_for_core = || thread.and_then(ThreadTimes::of).unwrap_or_default().waiting_for_core;
    let mut latencies = latencies();
    let (mut events, mut misplaced, mut checksum) = (0, 0, 0u64);
    let _ = id_sender.send(thread);
    gate.wait();
    let waiting_before = waiting_for_core();
    let (begin, cpu) = (clock.ns(), machine::thread_cpu());
    let mut handle = |event: &Event, _| {
        misplaced += u64::from(event.number != events);
        events += 1;
        checksum = checksum.wrapping_add(event.hash());
        if event.due != 0 {
            latencies.saturating_record(clock.ns().saturating_sub(event.due));
        }
    };
    // A timeout of the strategy does not end the run.
    while let Err(closed) = reader.for_each(&mut handle) {
        if !matches!(closed, WaitError::TimedOut(_)) {
            return Err(closed);
        }
    }
    // The clock is read outside of the CPU time's interval, so the share is at most 1 in a short
    // run.
    let after = machine::thread_cpu();
    let end = clock.ns();
    let waiting_for_core = thread.map(|_| waiting_for_core().saturating_sub(waiting_before));
    let cpu = after.zip(cpu).map(|(after, before)| after - before);
    Ok(WaiterResult { events, misplaced, checksum, latencies, begin, end, cpu, waiting_for_core })
}

/// Returns an empty histogram for latencies of up to two minutes, with three digits. It allocates
/// all its memory now and none during the measurement.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 37, 3).expect("these are bounds")
}

/// Samples the waiter's processor time until the waiter ends. The sampling thread is not pinned, so
/// that it can run on a core that is free.
fn sample_cpu(id_receiver: &Receiver<Option<u32>>, clock: &Clock) -> CpuSamples {
    let mut samples = CpuSamples::default();
    let Ok(Some(thread)) = id_receiver.recv() else { return samples };
    loop {
        if let Some(times) = ThreadTimes::of(thread) {
            samples.add(clock.ns(), times.on_core);
        }
        if id_receiver.recv_timeout(SAMPLE_EVERY) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    samples
}

/// Fails unless the waiter received exactly the published events, unchanged and in order.
fn check(producer: &ProducerResult, waiter: &WaiterResult) -> Result<()> {
    ensure!(
        waiter.events == producer.events,
        "{} events were published, {} arrived",
        producer.events,
        waiter.events
    );
    ensure!(
        waiter.misplaced == 0,
        "{} of {} events were out of order",
        waiter.misplaced,
        waiter.events
    );
    ensure!(waiter.checksum == producer.checksum, "an event changed on its way to the waiter");
    Ok(())
}

fn figures(producer: &ProducerResult, waiter: &WaiterResult, samples: &CpuSamples) -> Figures {
    let events = waiter.events as f64;
    let time = (waiter.end - waiter.begin) as f64;
    let quantile = |q| waiter.latencies.value_at_quantile(q) as f64;
    Figures {
        events_per_s: events * 1e9 / waiter.end.saturating_sub(producer.start).max(1) as f64,
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        p999_ns: quantile(0.999),
        max_ns: waiter.latencies.max() as f64,
        waiter_share: waiter.cpu.map(|cpu| cpu as f64 / time),
        share_max_1s: samples.largest_share(WINDOW.as_nanos() as u64),
        waiter_kept_waiting: waiter.waiting_for_core.map(|waiting| waiting as f64 / time),
        publish_ns: producer.spent as f64 / events,
        producer_late_p50_ns: producer.late.as_ref().map(|late| late.value_at_quantile(0.5) as f64),
        // One nanosecond per event is one millisecond per million events.
        cpu_s_per_million: waiter
            .cpu
            .zip(producer.cpu)
            .map(|(waiter, producer)| (waiter + producer) as f64 / events / 1e3),
        others_cores: None,
        bystander_loss: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_events() -> (ProducerResult, WaiterResult) {
        let producer = ProducerResult { events: 3, checksum: 7, ..ProducerResult::default() };
        let latencies = Histogram::new(3).unwrap();
        let waiter = WaiterResult {
            events: 3,
            misplaced: 0,
            checksum: 7,
            latencies,
            begin: 0,
            end: 1,
            cpu: None,
            waiting_for_core: None,
        };
        (producer, waiter)
    }

    #[test]
    fn a_lost_misplaced_or_changed_event_is_an_error() {
        let (producer, waiter) = three_events();
        assert!(check(&producer, &waiter).is_ok());
        let message = |waiter: WaiterResult| check(&producer, &waiter).unwrap_err().to_string();
        let waiter = || three_events().1;
        assert!(message(WaiterResult { events: 2, ..waiter() }).contains("2 arrived"));
        assert!(message(WaiterResult { misplaced: 1, ..waiter() }).contains("out of order"));
        assert!(message(WaiterResult { checksum: 8, ..waiter() }).contains("changed"));
        assert_ne!(Event { number: 1, due: 2 }.hash(), Event { number: 2, due: 1 }.hash());
    }

    #[test]
    fn every_event_arrives_at_each_pace_and_after_timeouts() {
        for (pace, wait) in [
            (Pace::Spin, "blocking"),
            (Pace::Sleep, "blocking"),
            (Pace::Sleep, "timeout:100us,blocking"),
        ] {
            let pattern = Pattern::Regular { gap: Duration::from_millis(1) };
            let (length, pair, wait) =
                (Duration::from_millis(10), CorePair::choose(), wait.parse().unwrap());
            let run =
                run_once(&Setup { wait, pattern, seed: 1, length, pace, stages: 3, pair }).unwrap();
            assert_eq!(run.events, 10);
            assert!(run.figures.p50_ns <= run.figures.max_ns);
        }
    }
}
