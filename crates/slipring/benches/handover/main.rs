//! What one hand-over costs, beside hand-made limits, in one run:
//!
//! - `overhead`: nanoseconds per event above the producer's own work, events published one by one, for several amounts of work;
//! - `batch`: nanoseconds per event, published 10 and 100 at a time;
//! - `round-trip`: nanoseconds there and back, p50 and p99.
//!
//! ```text
//!   producer (core 0) ──> ring ──> consumer (core 1)          round trip: the same, and a second ring back
//! ```
//!
//! Contenders take turns within each repetition; every result is checked for order and sum before it counts; figures are medians
//! with the lowest and highest beside. `cargo bench --bench handover -- [--reps N] [--json FILE] [--smoke]`. Without two cores the figures are of
//! threads that share one, and say so.

mod limits;
mod ours;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

/// How much each measurement does.
#[derive(Clone, Copy)]
struct Size {
    events: u64,
    batch_events: u64,
    rounds: usize,
}

/// A contender in the stream figures: (capacity, events, batch, work steps) to nanoseconds per event.
type Stream = fn(usize, u64, u64, u32) -> f64;
/// A contender in the round trip: rounds to every round's nanoseconds.
type RoundTrip = fn(usize) -> Vec<u64>;

const STREAMS: [(&str, Stream); 8] = [
    ("limit cursor", limits::stream::<limits::Cursor, false>),
    ("limit cursor, spaced", limits::stream::<limits::Cursor, true>),
    ("limit stamps beside", limits::stream::<limits::Beside, false>),
    ("limit stamps beside, spaced", limits::stream::<limits::Beside, true>),
    ("limit stamps inside", limits::stream::<limits::Inside, false>),
    ("limit stamps inside, spaced", limits::stream::<limits::Inside, true>),
    ("slipring", ours::stream::<slipring::Inside>),
    ("slipring contiguous", ours::stream::<slipring::Contiguous>),
];

const ROUND_TRIPS: [(&str, RoundTrip); 4] = [
    ("raw atomics, two lines", limits::raw_round_trip),
    ("limit stamps inside, spaced", limits::round_trip::<limits::Inside, true>),
    ("slipring", ours::round_trip::<slipring::Inside>),
    ("slipring contiguous", ours::round_trip::<slipring::Contiguous>),
];

/// The producer's own work: a chain of multiplications that the compiler cannot shorten.
#[inline(always)]
fn work(steps: u32, state: &mut u64) {
    for _ in 0..steps {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        black_box(&state);
    }
}

fn work_alone(events: u64, steps: u32) -> f64 {
    pin(0);
    let mut state = 1;
    let begin = Instant::now();
    for _ in 0..events {
        work(steps, &mut state);
    }
    begin.elapsed().as_nanos() as f64 / events as f64
}

#[cfg(target_os = "linux")]
fn pin(core: usize) {
    // SAFETY: a zeroed set is an empty set, and the call reads it only. Where the core is not there the call fails and changes nothing.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(not(target_os = "linux"))]
fn pin(_core: usize) {}

fn percentile(sorted: &[u64], share: f64) -> u64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

struct Figures(BTreeMap<(String, String), Vec<f64>>, String);

impl Figures {
    fn add(&mut self, rep: usize, figure: &str, contender: &str, value: f64) {
        let _ = writeln!(self.1, r#"{{"rep":{rep},"figure":"{figure}","contender":"{contender}","ns":{value:.3}}}"#);
        self.0.entry((figure.to_owned(), contender.to_owned())).or_default().push(value);
    }

    fn print(&mut self) {
        let mut last = "";
        println!("{:34} {:28} {:>9} {:>9} {:>9}", "figure", "contender", "median ns", "lowest", "highest");
        for ((figure, contender), values) in &mut self.0 {
            values.sort_by(f64::total_cmp);
            if figure != last {
                println!();
            }
            last = figure;
            println!("{figure:34} {contender:28} {:9.2} {:9.2} {:9.2}", values[values.len() / 2], values[0], values[values.len() - 1]);
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let smoke = args.iter().any(|arg| arg == "--smoke" || arg == "--test") || !args.iter().any(|arg| arg == "--bench");
    let reps = value("--reps").map_or(if smoke { 1 } else { 9 }, |n| n.parse().expect("--reps takes a number"));
    let size = if smoke {
        Size { events: 20_000, batch_events: 20_000, rounds: 500 }
    } else {
        Size { events: 500_000, batch_events: 4_000_000, rounds: 50_000 }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores; two threads a measurement{}", if cores < 2 { ": OVERSUBSCRIBED, figures are of taking turns" } else { "" });

    let mut figures = Figures(BTreeMap::new(), String::new());
    for rep in 0..reps {
        for capacity in [65_536, 1024] {
            for steps in [0, 2, 8, 16, 32] {
                let alone = work_alone(size.events, steps);
                let figure = format!("overhead, ring {capacity:5}, work {steps:2}");
                for (name, stream) in STREAMS {
                    figures.add(rep, &figure, name, stream(capacity, size.events, 1, steps) - alone);
                }
            }
            for batch in [10, 100] {
                let figure = format!("batch of {batch:3}, ring {capacity:5}");
                for (name, stream) in STREAMS {
                    figures.add(rep, &figure, name, stream(capacity, size.batch_events, batch, 0));
                }
            }
        }
        for (name, round_trip) in ROUND_TRIPS {
            let mut times = round_trip(size.rounds);
            times.sort_unstable();
            figures.add(rep, "round trip p50", name, percentile(&times, 0.5) as f64);
            figures.add(rep, "round trip p99", name, percentile(&times, 0.99) as f64);
        }
    }
    figures.print();
    if let Some(file) = value("--json") {
        std::fs::File::create(file).and_then(|mut out| out.write_all(figures.1.as_bytes())).expect("the figures can be written");
    }
}
