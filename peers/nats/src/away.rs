//! Measures an outage of the server under a paced load: lost events, memory in use, and the rate at
//! which the sink catches up.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slipring::Graph;
use slipring_machine::{Clock, set_fine_timer};
use slipring_nats::{Encoding, Sink, StreamSettings};

use crate::append::check;
use crate::bench::{Bench, BenchResult, EVENT, Event, TYPE};
use crate::stream::Form;

/// Events a second.
pub const RATE: u64 = 100_000;
/// Number of events that the producer publishes together, once a millisecond.
const BURST: u64 = RATE / 1000;
/// Time between two checks of the sink's progress.
const LOOK: Duration = Duration::from_millis(2);
/// Greatest number of unacknowledged events at which the sink counts as caught up.
const CAUGHT_UP: u64 = RATE / 20;
/// Time limit of the whole.
const LIMIT: Duration = Duration::from_secs(120);

/// Kills the server under load, and starts it again. The rate counts acknowledged events, from the
/// first acknowledgement until the sink has caught up.
pub fn measure(bench: &mut Bench) -> BenchResult<Vec<(&'static str, f64)>> {
    let (name, away) = (bench.name(), bench.amounts.away);
    let sink = Sink::to(bench.at(), &name)
        .create(StreamSettings::new(&name))
        .window(bench.flight.window)
        .max_frame(bench.flight.frame)
        .open(Encoding::<Event>::plain(TYPE.0, TYPE.1))?;
    // The ring has room for one and a half times the events that come while the server is away.
    let slots = ((away.as_secs_f64() * RATE as f64 * 1.5) as usize).next_power_of_two();
    let graph = Graph::new(slots, Event::default);
    let key = graph.reader("journal");
    let ring = graph.build()?;
    let (mut tx, journal) = (ring.producer(), ring.reader(key));
    let running = sink.start(journal)?;
    let (published, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (of_thread, stopped) = (published.clone(), stop.clone());
    let producer = thread::spawn(move || {
        set_fine_timer();
        let (clock, mut next) = (Clock::start(), 0);
        while !stopped.load(Relaxed) {
            clock.sleep_until(next / BURST * 1_000_000);
            for seq in next..next + BURST {
                tx.publish(|slot| *slot = Event::at(seq))?;
            }
            next += BURST;
            of_thread.store(next, Relaxed);
        }
        tx.close();
        Ok::<u64, slipring::errors::WaitError>(next)
    });
    let acknowledged = || running.counters().acknowledged;
    let mut peak = 0.0_f64;
    let mut watch = |limit: Duration, until: &mut dyn FnMut() -> bool| -> BenchResult<()> {
        let begin = Instant::now();
        while !until() {
            peak = peak.max(resident()?);
            if begin.elapsed() > limit || running.is_finished() {
                return Err(format!("the sink does not go on: {:?}", running.counters()).into());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    };
    let wait = |time: Duration| {
        let end = Instant::now() + time;
        move || Instant::now() >= end
    };

    watch(LIMIT, &mut wait((away / 5).min(Duration::from_secs(1))))?;
    let before = resident()?;
    bench.server.kill()?;
    // The killed server has stored no event from this position on: the producer publishes a burst
    // before it counts it.
    let unsent = published.load(Relaxed) + BURST;
    watch(LIMIT, &mut wait(away))?;
    bench.server.restart()?;
    let back = Instant::now();
    // The server may have stored events before the kill without acknowledging them. The sink counts
    // these as acknowledged when it has inspected the stream, before it sends anything. So the
    // watch waits for the acknowledgement of an event that came later. The sink's first frame has
    // such events, unless it is full of earlier ones.
    watch(LIMIT, &mut || acknowledged() > unsent)?;
    let (first, at_first, noticed) = (acknowledged(), Instant::now(), back.elapsed());
    let backlog = published.load(Relaxed).saturating_sub(first);
    watch(LIMIT, &mut || published.load(Relaxed).saturating_sub(acknowledged()) <= CAUGHT_UP)?;
    let rate = (acknowledged() - first) as f64 / at_first.elapsed().as_secs_f64();
    watch(LIMIT, &mut wait((away / 5).min(Duration::from_secs(1))))?;
    stop.store(true, Relaxed);
    let events = producer.join().map_err(|_| "the producer panicked")??;
    let counters = running.join()?;
    if (counters.events, counters.dropped) != (events, 0) {
        return Err(format!("{events} events were published: {counters:?}").into());
    }
    check(bench, &name, Form::Frames, events)?;
    let bound = slots * EVENT + (bench.flight.window + 2) * bench.flight.frame;
    Ok(vec![
        ("events/s", rate),
        ("waiting at the first acknowledgement, events", backlog as f64),
        ("server's return to first acknowledgement, ms", noticed.as_secs_f64() * 1000.0),
        ("memory before, MiB", before),
        ("memory at most, MiB", peak),
        ("ring's events and window, MiB", bound as f64 / f64::from(1 << 20)),
    ])
}

/// Returns the resident memory of this process, in MiB; 0 where the system does not report it.
fn resident() -> BenchResult<f64> {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let Some(kib) = line.and_then(|line| line.split_whitespace().next()) else { return Ok(0.0) };
    Ok(kib.parse::<f64>()? / 1024.0)
}
