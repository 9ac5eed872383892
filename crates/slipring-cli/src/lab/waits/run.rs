//! One run: a producer that keeps to a schedule, a reader that waits as it is told, and somebody
//! who looks on.
//!
//! The load is open: an event is due when the schedule says so, whatever became of those before it,
//! and its latency counts from then. So a waiter that is late once is late for everything that was
//! due meanwhile.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use slipring::{Cause, Failure, Graph, Producer, Reader, ReaderKey, Wait, WaitError};

use super::arrivals::Pattern;
use super::figures::{Figures, Looks};
use crate::machine::{self, Busy, Clock, Pair, Ran};

/// Slots of the ring: more than ever wait where events have a schedule, and few enough for a cache.
const CAPACITY: usize = 1 << 12;
/// A run that takes longer than its schedule by this has failed: a wait does not end, or the
/// strategy sleeps for so long at a time that a burst does not get through.
const GRACE: Duration = Duration::from_secs(60);
/// Of a burst, one of so many events is timed: to read the clock takes longer than to hand an event
/// over.
const TIMED: u64 = 256;
/// Between two looks at what the waiter uses.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Over what the greatest share is taken.
const WINDOW: Duration = Duration::from_secs(1);
/// The schedule begins when both threads are surely under way.
const LEAD: Duration = Duration::from_millis(1);

/// What the producer does until the next event is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It holds its core, and is exact.
    Spin,
    /// It sleeps, and leaves its core to others.
    Sleep,
}

/// A run to be done.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How the reader waits.
    pub wait: Wait,
    /// When events are due.
    pub pattern: Pattern,
    /// What is drawn from.
    pub seed: u64,
    /// For how long events come.
    pub length: Duration,
    /// What the producer does meanwhile.
    pub pace: Pace,
    /// How many stages there are, one behind the other; the last one is the waiter.
    pub stages: usize,
    /// Where the threads run.
    pub pair: Option<Pair>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How many events there were; all of them were right, and in order.
    pub events: u64,
    /// What they took.
    pub figures: Figures,
}

/// What goes through the ring.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    /// How many were before it.
    number: u64,
    /// When it was due, or 0 if nobody wants to know.
    due: u64,
}

impl Event {
    /// What both ends add up, so that an event that was changed on its way is noticed.
    fn print(&self) -> u64 {
        (self.number ^ self.due.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// What the producer has done.
#[derive(Debug, Default)]
struct Published {
    events: u64,
    checksum: u64,
    /// Nanoseconds within calls that publish.
    spent: u64,
    /// Nanoseconds of processor time that publishing took.
    cpu: Option<u64>,
    start: u64,
    /// How late events were when they were published, where they had a schedule.
    late: Option<Histogram<u64>>,
}

/// What the waiter has seen.
#[derive(Debug)]
struct WaitContext {
    events: u64,
    misplaced: u64,
    checksum: u64,
    latencies: Histogram<u64>,
    begin: u64,
    end: u64,
    cpu: Option<u64>,
    kept_waiting: Option<u64>,
}

/// Does it. An error is a wrong result, or a run that takes longer than [`GRACE`] allows.
pub fn once(setup: &Setup) -> Result<Outcome> {
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
    // Built on a thread that is not pinned: the library counts the cores that it may use.
    let ring = graph.build()?;
    let producer = ring.producer();
    let mut before: Vec<Reader<Event>> = keys.into_iter().map(|key| ring.reader(key)).collect();
    let reader = before.pop().ok_or_else(|| anyhow!("a run has a waiter"))?;
    let (clock, gate) = (Clock::start(), Barrier::new(2));
    let (tell, told) = channel();
    let busy = Busy::look();

    let (published, waited, others, looks) = thread::scope(|scope| -> Result<_> {
        let (clock, gate) = (&clock, &gate);
        // Where a thread does not start, the handles of the others' rings are dropped here, so that
        // the others end.
        let refused = "cannot start a thread";
        let other = |reader| {
            thread::Builder::new().spawn_scoped(scope, move || pass_on(reader)).context(refused)
        };
        let others = before.into_iter().map(other).collect::<Result<Vec<_>>>()?;
        let waiter = move || {
            setup.pair.inspect(|pair| machine::pin(pair.waiter));
            wait_for_all(reader, clock, gate, &tell)
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
            // The waiter stands at the gate for a producer that does not come.
            gate.wait();
        });
        let producer = producer.context(refused)?;
        let looks = look_on(&told, clock);
        let others: Vec<_> = others.into_iter().map(|other| other.join()).collect();
        Ok((producer.join(), waiter.join(), others, looks))
    })?;
    let others_cores = busy.and_then(Busy::others_since);
    let waited = waited.map_err(|_| anyhow!("the waiter's thread panicked"))?.map_err(early)?;
    let published =
        published.map_err(|_| anyhow!("the producer's thread panicked"))?.map_err(early)?;
    check(&published, &waited)?;
    let mut figures = Figures { others_cores, ..figures(&published, &waited, &looks) };
    for other in others {
        let other = other.map_err(|_| anyhow!("a stage's thread panicked"))?.map_err(early)?;
        ensure!(
            other.checksum == published.checksum,
            "a stage has seen other events than those that were published"
        );
        figures.cpu_s_per_million = figures
            .cpu_s_per_million
            .zip(other.cpu)
            .map(|(all, cpu)| all + cpu as f64 / waited.events as f64 / 1e3);
    }
    Ok(Outcome { events: waited.events, figures })
}

/// Why a run ended before all events had come through.
fn early(closed: WaitError) -> anyhow::Error {
    match closed.failure().map(Failure::cause) {
        Some(Cause::Deadline(_)) => {
            anyhow!(
                "{closed}; a strategy that sleeps for milliseconds at a time may need longer than that for a burst: leave it or `burst` out"
            )
        }
        _ => anyhow!("{closed}"),
    }
}

/// What a stage before the waiter did.
struct PassedOn {
    checksum: u64,
    cpu: Option<u64>,
}

/// A stage before the waiter: looks at each event, and lets it go.
fn pass_on(mut reader: Reader<Event>) -> Result<PassedOn, WaitError> {
    let (mut checksum, cpu) = (0u64, machine::thread_cpu());
    reader.for_each(|event, _| checksum = checksum.wrapping_add(event.print()))?;
    Ok(PassedOn {
        checksum,
        cpu: machine::thread_cpu().zip(cpu).map(|(after, before)| after - before),
    })
}

/// Publishes an event, as often as a strategy with a timeout has to be asked.
fn publish(producer: &mut Producer<Event>, event: Event) -> Result<(), WaitError> {
    loop {
        match producer.publish(|slot| *slot = event) {
            Err(WaitError::TimedOut(_)) => {}
            done => return done.map(drop),
        }
    }
}

/// Publishes each event when it is due.
fn publish_on_time(
    mut producer: Producer<Event>,
    setup: &Setup,
    clock: &Clock,
    gate: &Barrier,
) -> Result<Published, WaitError> {
    if setup.pace == Pace::Sleep {
        machine::finest_timer();
    }
    let mut late = latencies();
    gate.wait();
    let start = clock.ns() + LEAD.as_nanos() as u64;
    let mut done = Published { start, ..Published::default() };
    for moment in setup.pattern.schedule(setup.seed, setup.length) {
        let event = Event { number: done.events, due: start + moment };
        let begin = match setup.pace {
            Pace::Spin => clock.spin_until(event.due),
            Pace::Sleep => clock.sleep_until(event.due),
        };
        publish(&mut producer, event)?;
        done.spent += clock.ns() - begin;
        late.saturating_record(begin.saturating_sub(event.due));
        done.events += 1;
        done.checksum = done.checksum.wrapping_add(event.print());
    }
    // A slot is free whenever it is wanted, so nobody sleeps in these calls but for what the system
    // itself does.
    done.cpu = Some(done.spent);
    done.late = Some(late);
    Ok(done)
}

/// Publishes events one after the other. The producer does nothing else, so all of its time is
/// spent in these calls; where it has to wait for room, it may sleep in them.
fn publish_at_once(
    mut producer: Producer<Event>,
    events: u64,
    clock: &Clock,
    gate: &Barrier,
) -> Result<Published, WaitError> {
    gate.wait();
    let (start, cpu) = (clock.ns(), machine::thread_cpu());
    let mut done = Published { start, ..Published::default() };
    while done.events < events {
        let due = if done.events.is_multiple_of(TIMED) { clock.ns() } else { 0 };
        let event = Event { number: done.events, due };
        publish(&mut producer, event)?;
        done.events += 1;
        done.checksum = done.checksum.wrapping_add(event.print());
    }
    done.spent = clock.ns() - start;
    done.cpu = machine::thread_cpu().zip(cpu).map(|(after, before)| after - before);
    Ok(done)
}

/// Handles all events; says first which thread it is, and by hanging up that it has come to an end,
/// good or bad.
fn wait_for_all(
    mut reader: Reader<Event>,
    clock: &Clock,
    gate: &Barrier,
    tell: &Sender<Option<u32>>,
) -> Result<WaitContext, WaitError> {
    let thread = machine::thread_id();
    let ran = || thread.and_then(machine::ran).unwrap_or_default();
    let mut latencies = latencies();
    let (mut events, mut misplaced, mut checksum) = (0, 0, 0u64);
    let _ = tell.send(thread);
    gate.wait();
    let Ran { kept_waiting, .. } = ran();
    let (begin, cpu) = (clock.ns(), machine::thread_cpu());
    let mut handle = |event: &Event, _| {
        misplaced += u64::from(event.number != events);
        events += 1;
        checksum = checksum.wrapping_add(event.print());
        if event.due != 0 {
            latencies.saturating_record(clock.ns().saturating_sub(event.due));
        }
    };
    // A strategy with a timeout is asked again.
    while let Err(closed) = reader.for_each(&mut handle) {
        if !matches!(closed, WaitError::TimedOut(_)) {
            return Err(closed);
        }
    }
    let (end, after) = (clock.ns(), machine::thread_cpu());
    // Nothing is told of a thread whose counters could not be read once.
    let kept_waiting = thread.map(|_| ran().kept_waiting.saturating_sub(kept_waiting));
    let cpu = after.zip(cpu).map(|(after, before)| after - before);
    Ok(WaitContext { events, misplaced, checksum, latencies, begin, end, cpu, kept_waiting })
}

/// Room for latencies of up to two minutes, to three digits. All its memory is there before
/// anything counts.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 37, 3).expect("these are bounds")
}

/// Looks ten times a second at what the waiter uses, until it hangs up. This thread is pinned
/// nowhere, so that it finds a core that is free, if there is one.
fn look_on(told: &Receiver<Option<u32>>, clock: &Clock) -> Looks {
    let mut looks = Looks::default();
    let Ok(Some(thread)) = told.recv() else { return looks };
    loop {
        if let Some(ran) = machine::ran(thread) {
            looks.note(clock.ns(), ran.on_core);
        }
        if told.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    looks
}

fn check(published: &Published, waited: &WaitContext) -> Result<()> {
    ensure!(
        waited.events == published.events,
        "{} events were published, {} arrived",
        published.events,
        waited.events
    );
    ensure!(
        waited.misplaced == 0,
        "{} of {} events were out of order",
        waited.misplaced,
        waited.events
    );
    ensure!(
        waited.checksum == published.checksum,
        "the events that arrived are not those that were published"
    );
    Ok(())
}

fn figures(published: &Published, waited: &WaitContext, looks: &Looks) -> Figures {
    let events = waited.events as f64;
    let time = (waited.end - waited.begin) as f64;
    let quantile = |q| waited.latencies.value_at_quantile(q) as f64;
    Figures {
        events_per_s: events * 1e9 / waited.end.saturating_sub(published.start).max(1) as f64,
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        p999_ns: quantile(0.999),
        max_ns: waited.latencies.max() as f64,
        waiter_share: waited.cpu.map(|cpu| cpu as f64 / time),
        share_max_1s: looks.greatest_share(WINDOW.as_nanos() as u64),
        waiter_kept_waiting: waited.kept_waiting.map(|kept| kept as f64 / time),
        publish_ns: published.spent as f64 / events,
        producer_late_p50_ns: published
            .late
            .as_ref()
            .map(|late| late.value_at_quantile(0.5) as f64),
        // Nanoseconds an event are milliseconds a million.
        cpu_s_per_million: waited
            .cpu
            .zip(published.cpu)
            .map(|(waiter, producer)| (waiter + producer) as f64 / events / 1e3),
        others_cores: None,
        bystander_loss: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Published, WaitContext) {
        let published = Published { events: 3, checksum: 7, ..Published::default() };
        let latencies = Histogram::new(3).unwrap();
        let waited = WaitContext {
            events: 3,
            misplaced: 0,
            checksum: 7,
            latencies,
            begin: 0,
            end: 1,
            cpu: None,
            kept_waiting: None,
        };
        (published, waited)
    }

    #[test]
    fn what_is_lost_misplaced_or_changed_is_an_error() {
        let (published, waited) = ends();
        assert!(check(&published, &waited).is_ok());
        let said = |waited: WaitContext| check(&published, &waited).unwrap_err().to_string();
        assert!(said(WaitContext { events: 2, ..ends().1 }).contains("2 arrived"));
        assert!(said(WaitContext { misplaced: 1, ..ends().1 }).contains("out of order"));
        assert!(said(WaitContext { checksum: 8, ..ends().1 }).contains("not those"));
        assert_ne!(Event { number: 1, due: 2 }.print(), Event { number: 2, due: 1 }.print());
    }

    #[test]
    fn each_pace_hands_every_event_over_and_a_timeout_ends_nothing() {
        for (pace, wait) in [
            (Pace::Spin, "blocking"),
            (Pace::Sleep, "blocking"),
            (Pace::Sleep, "timeout:100us,blocking"),
        ] {
            let pattern = Pattern::Regular { gap: Duration::from_millis(1) };
            let (length, pair, wait) =
                (Duration::from_millis(10), Pair::choose(), wait.parse().unwrap());
            let outcome =
                once(&Setup { wait, pattern, seed: 1, length, pace, stages: 3, pair }).unwrap();
            assert_eq!(outcome.events, 10);
            assert!(outcome.figures.p50_ns <= outcome.figures.max_ns);
        }
    }
}
