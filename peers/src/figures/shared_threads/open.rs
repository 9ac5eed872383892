//! A pipeline of three working stages whose events arrive at random times (a Poisson process, an
//! open loop). The figures are the latencies from an event's scheduled time until the last handler
//! has finished.
//!
//! The producer spins until an event is due, and so keeps one of the two cores. The load is the
//! share of time for which the handlers occupy the other core.
//!
//! One event goes ahead of the schedule, so that no latency includes the start of a thread.

use std::hint::{black_box, spin_loop};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Config;
use crate::figures::arrivals::{now, percentiles, schedule};
use crate::figures::oversubscribed::RING;
use crate::figures::oversubscribed::timing::TwoCores;
use crate::measure::{Contender, ContenderKind, Figure, Size, Values};
use crate::work::{Check, steps, steps_for};

/// Work of a handler on an event, in nanoseconds.
const WORK: [u32; 2] = [100, 1000];
/// Load in percent.
const LOADS: [u32; 3] = [25, 50, 75];
const STAGES: u32 = 3;

/// Returns the figures of each load.
pub fn figures(size: Size) -> Vec<Figure> {
    let figure = |nanos: u32, load: u32| {
        let gap = STAGES * nanos * 100 / load;
        let full = 100_000_000 / gap as usize;
        let due = schedule(gap, size.pick(500, full / 3, full));
        let steps = steps_for(nanos);
        let contender = |config: Config| {
            let few = &due[..due.len().min(1000)];
            let due = if config.is_busy_spin() { few } else { due };
            Contender::with_metrics(ContenderKind::Ours, config.name(), move || {
                run(&config, due, steps)
            })
        };
        Figure {
            table: format!(
                "shared threads, two cores: pipeline of 3, work {nanos} ns, random times"
            ),
            column: format!("load {load} %"),
            baseline: None,
            contenders: Config::all(size).into_iter().map(contender).collect(),
        }
    };
    WORK.into_iter().flat_map(|nanos| LOADS.map(|load| figure(nanos, load))).collect()
}

/// Runs the pipeline with events at the times `due`, in nanoseconds since the schedule's start.
fn run(config: &Config, due: &'static [u64], count: u32) -> Values {
    let _cores = TwoCores::take();
    // `begin` is the start of the schedule, in nanoseconds on the clock of `now`. The producer sets
    // it before its first scheduled event.
    let (begin, running) = (AtomicU64::new(0), AtomicBool::new(false));
    let ended = Mutex::new(Values::new());
    let checked = |events: u64| {
        let (mut check, mut state) = (Check::default(), 1);
        move |event: &u64| {
            check.see(event);
            steps(count, &mut state);
            black_box(state);
            if check.seen() == events {
                check.finish(events);
            }
            check.seen()
        }
    };
    let events = 1 + due.len() as u64;
    let [mut first, mut second, mut third] = [(); 3].map(|()| checked(events));
    let mut latencies = Vec::with_capacity(due.len());
    let done = config
        .chain(RING)
        .read("first", |event, _| _ = first(event))
        .read("second", |event, _| _ = second(event))
        .read("third", |event, _| {
            let seen = third(event);
            if seen == 1 {
                return running.store(true, Ordering::Release);
            }
            let due = begin.load(Ordering::Relaxed) + due[seen as usize - 2];
            latencies.push(now() - due);
            if seen == events {
                *ended.lock().expect("no thread panics with the lock") =
                    percentiles(std::mem::take(&mut latencies));
            }
        })
        .run(|tx| {
            let mut send = |number| {
                tx.publish(|slot| *slot = number).expect("the ring is open");
            };
            send(1);
            while !running.load(Ordering::Acquire) {
                spin_loop();
            }
            let start = now();
            begin.store(start, Ordering::Relaxed); // the next event publishes it
            for (due, number) in due.iter().zip(2..) {
                while now() < start + due {
                    spin_loop();
                }
                send(number);
            }
            Ok(())
        });
    let done = done.expect("the stream ended with a failure");
    assert!(done.report.stages().iter().all(|stage| stage.events == events));
    ended.into_inner().expect("no thread panics with the lock")
}
