//! The default strategy beside the others, as programs use them: with free threads, and with a ring
//! that a bound thread builds, which then produces, while the other thread is bound to another
//! core.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use slipring::{Graph, Producer, Reader, Wait};
use slipring_machine::pin;

use super::arrivals::{now, percentiles, schedule};
use crate::measure::{Contender, ContenderKind, Figure, Size, Values};

/// Whether the threads are bound to cores.
#[derive(Clone, Copy)]
enum Threads {
    Free,
    Bound,
}

impl Threads {
    fn bind(self, core: usize) {
        if let Threads::Bound = self {
            pin(core);
        }
    }

    fn name(self) -> &'static str {
        match self {
            Threads::Free => "free threads",
            Threads::Bound => "bound threads, built on one of them",
        }
    }
}

/// The call by which the consumer takes its events.
#[derive(Clone, Copy)]
enum Call {
    ForEach,
    Batch,
    /// Polls without a wait, whatever the strategy is.
    Poll,
}

/// Returns the contenders: a name, a strategy and a call.
fn contenders() -> Vec<(&'static str, Wait, Call)> {
    vec![
        ("default, for_each", Wait::default(), Call::ForEach),
        ("default, batch", Wait::default(), Call::Batch),
        ("busy spin, for_each", Wait::BusySpin, Call::ForEach),
        ("busy spin, batch", Wait::BusySpin, Call::Batch),
        ("busy spin, poll", Wait::BusySpin, Call::Poll),
        ("yielding, batch", Wait::YIELDING, Call::Batch),
        ("blocking, batch", Wait::Blocking, Call::Batch),
        ("sleeping, batch", Wait::SLEEPING, Call::Batch),
    ]
}

/// Returns the figures: round trips, and events at random times.
pub fn figures(size: Size) -> Vec<Figure> {
    let rounds = size.pick(500, 20_000, 60_000);
    let mut figures = Vec::new();
    for threads in [Threads::Free, Threads::Bound] {
        let all = contenders().into_iter().map(|(name, wait, call)| {
            contender(name, move || round_trips(threads, call, &wait, rounds))
        });
        let table = format!("strategies: round trip, {}", threads.name());
        figures.push(figure(table, "ns", all.collect()));
        for (gap, rate) in [
            (1_000, "1,000,000 a second"),
            (10_000, "100,000 a second"),
            (100_000, "10,000 a second"),
        ] {
            let events = size.pick(100, 300_000_000, 1_000_000_000) / gap as usize;
            let all = contenders().into_iter().map(|(name, wait, call)| {
                contender(name, move || open(threads, call, &wait, gap, events.max(100)))
            });
            let table = format!("strategies: events at random times, {}", threads.name());
            figures.push(figure(table, rate, all.collect()));
        }
    }
    figures
}

fn contender(name: &str, run: impl Fn() -> Values + Send + Sync + 'static) -> Contender {
    // The run binds threads of its own, so that the next run begins with a free one.
    let run = move || thread::scope(|scope| scope.spawn(&run).join().expect("a run failed"));
    Contender::with_metrics(ContenderKind::Ours, name, run)
}

fn figure(table: String, column: &str, contenders: Vec<Contender>) -> Figure {
    Figure { table, column: column.to_owned(), baseline: None, contenders }
}

fn ring(wait: &Wait) -> (Producer<u64>, Reader<u64>) {
    let graph = Graph::new(1024, || 0u64).wait(wait.clone());
    let key = graph.reader("reader");
    let ring = graph.build().expect("the graph is sound");
    (ring.producer(), ring.reader(key))
}

/// Hands each event to `handle`, until `handle` returns `false`.
#[inline(always)]
fn consume(rx: &mut Reader<u64>, call: Call, mut handle: impl FnMut(u64)) {
    match call {
        Call::ForEach => {
            rx.for_each(|event, _| handle(*event)).expect("the stream ended well");
        }
        Call::Batch => {
            while let Ok(batch) = rx.batch(1024) {
                batch.iter().for_each(|event| handle(*event));
                batch.release();
            }
        }
        Call::Poll => {
            while rx.poll(1024, |event, _| handle(*event)).is_ok() {
                std::hint::spin_loop();
            }
        }
    }
}

/// Waits for one event.
#[inline(always)]
fn receive(rx: &mut Reader<u64>, call: Call) -> u64 {
    let mut got = None;
    match call {
        Call::ForEach | Call::Batch => {
            let batch = rx.batch(1).expect("the ring is open");
            got = Some(batch[0]);
            batch.release();
        }
        Call::Poll => {
            while got.is_none() {
                rx.poll(1, |event, _| got = Some(*event)).expect("the ring is open");
                if got.is_none() {
                    std::hint::spin_loop();
                }
            }
        }
    }
    got.expect("an event")
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Time at the start of a run that is not measured, in nanoseconds. Strategies learn in that time,
/// and the system, which may begin a thread on its creator's core, spreads the threads over the
/// cores. It took 12 ms for threads that sleep now and then, and 8 for threads that spin.
const START: u64 = 50_000_000;

/// Measures round trips through two rings, each timed by itself.
fn round_trips(threads: Threads, call: Call, wait: &Wait, rounds: usize) -> Values {
    threads.bind(0);
    let ((mut tx, mut rx), (mut tx_back, mut rx_back)) = (ring(wait), ring(wait));
    let times = thread::scope(|scope| {
        scope.spawn(move || {
            threads.bind(1);
            let answer = |number| _ = tx_back.publish(|slot| *slot = number).expect("open");
            consume(&mut rx, call, answer);
        });
        let mut round = |number: u64| {
            tx.publish(|slot| *slot = number).expect("the ring is open");
            assert_eq!(receive(&mut rx_back, call), number, "a wrong answer");
        };
        let began = now();
        let first = (0..).take_while(|_| now() - began < START).map(&mut round).count() as u64;
        let times = (first..first + rounds as u64).map(|number| {
            let begin = now();
            round(number);
            now() - begin
        });
        let times: Vec<u64> = times.collect();
        tx.close();
        times
    });
    percentiles(times)
}

/// Publishes events at random times. Measures the time from an event's due time until the consumer
/// has it, and the consumer's CPU time in percent of the time that passed.
fn open(threads: Threads, call: Call, wait: &Wait, gap: u32, events: usize) -> Values {
    threads.bind(0);
    let start = START as usize / gap as usize;
    let due = schedule(gap, start + events);
    let (mut tx, mut rx) = ring(wait);
    let (ready, begun) = mpsc::channel();
    let (latencies, percent) = thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            threads.bind(1);
            ready.send(()).expect("the producer waits");
            let mut latencies = Vec::with_capacity(due.len());
            let (began, used) = (now(), cpu());
            consume(&mut rx, call, |at| latencies.push(now().saturating_sub(at)));
            let used = (cpu() - used).as_nanos() as f64;
            (latencies, used / (now() - began) as f64 * 100.0)
        });
        begun.recv().expect("the consumer begins");
        let begin = now() + 1_000_000;
        for at in due {
            let at = begin + at;
            while now() < at {
                std::hint::spin_loop();
            }
            tx.publish(|slot| *slot = at).expect("the ring is open");
        }
        tx.close();
        consumer.join().expect("the consumer failed")
    });
    assert_eq!(latencies.len(), due.len(), "events are lost or doubled");
    let mut values = percentiles(latencies.into_iter().skip(start).collect());
    values.push(("CPU %", percent));
    values
}
