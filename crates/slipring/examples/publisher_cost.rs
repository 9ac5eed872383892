//! Measures what a publication costs through a [`Publisher`], beside a handle that each thread
//! holds, and a handle that is cloned for each event.
//!
//! Each burst goes into a ring with room for all of it, so no call waits. It is read and checked
//! after the clock was stopped, or with `reading` by a thread that reads meanwhile. Every round
//! runs all contenders, one after the other; the first rounds count as practice. The program prints
//! nanoseconds per event, from the start of a burst to the end of its last thread, divided by the
//! number of events: each round, then medians, quarters and ends, then the ratios by round.
//!
//! ```text
//! cargo run --release --offline -p slipring --example publisher_cost -- 300
//! cargo run --release --offline -p slipring --example publisher_cost -- 300 reading
//! ```

use std::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use slipring::{Graph, Publisher, Reader, SharedProducer};

/// Number of events of a burst, of all threads together.
const BURST: u64 = 8_192;
/// Number of rounds before those that count.
const PRACTICE: usize = 10;

#[allow(clippy::large_enum_variant)] // four values
enum Contender {
    /// Each thread's own handle.
    Held(Vec<Mutex<SharedProducer<u64>>>),
    /// The only handle of its ring, which never had another one.
    Alone(Mutex<SharedProducer<u64>>),
    Shared(Publisher<u64>),
    Cloned(SharedProducer<u64>),
}

impl Contender {
    const NAMES: [&str; 4] = ["held", "held alone", "Publisher", "clone each"];

    fn new(kind: usize, threads: usize) -> (Contender, Reader<u64>) {
        let graph = Graph::new(2 * BURST as usize, || 0).shared();
        let key = graph.reader("sum");
        let ring = graph.build().expect("a sound graph");
        let (producer, reader) = (ring.producer(), ring.reader(key));
        let contender = match kind {
            0 => Contender::Held((0..=threads).map(|_| Mutex::new(producer.clone())).collect()),
            1 => Contender::Alone(Mutex::new(producer)),
            2 => Contender::Shared(producer.into_publisher()),
            _ => Contender::Cloned(producer),
        };
        (contender, reader)
    }

    /// Publishes one thread's share of a burst.
    fn publish(&self, thread: usize, events: u64) {
        let values = (0..events).map(black_box);
        match self {
            Contender::Held(all) => held(&mut all[thread].lock().expect("no panic"), values),
            Contender::Alone(one) => held(&mut one.lock().expect("no panic"), values),
            Contender::Shared(publisher) => {
                values.for_each(|i| _ = publisher.publish(|slot| *slot = i).expect("room"));
            }
            Contender::Cloned(producer) => values.for_each(|i| {
                producer.clone().publish(|slot| *slot = i).expect("room");
            }),
        }
    }
}

fn held(producer: &mut SharedProducer<u64>, values: impl Iterator<Item = u64>) {
    values.for_each(|i| _ = producer.publish(|slot| *slot = i).expect("room"));
}

/// Returns each contender's nanoseconds per event in each round; `None` where a contender has no
/// part.
fn measure(threads: usize, rounds: usize, reading: bool) -> Vec<[Option<f64>; 4]> {
    let mut all = [0, 1, 2, 3].map(|kind| Contender::new(kind, threads));
    let (share, begin, end) = (BURST / threads as u64, Barrier::new(threads), Mutex::new(None));
    let mut times = Vec::new();
    for round in 0..PRACTICE + rounds {
        let mut row = [None; 4];
        for turn in 0..4 {
            let kind = (round + turn) % 4;
            let (contender, reader) = &mut all[kind];
            if kind == 1 && threads > 1 {
                continue;
            }
            // One burst per scope would time the start of threads; a thread's first share is small.
            let run = |thread: usize| {
                contender.publish(thread, 1);
                begin.wait();
                let started = Instant::now();
                contender.publish(thread, share);
                let ended = Instant::now();
                let mut span = end.lock().expect("no panic");
                let (first, last) = span.unwrap_or((started, ended));
                *span = Some((first.min(started), last.max(ended)));
            };
            let mut read = || {
                let (mut events, mut sum) = (0, 0);
                while events < BURST + threads as u64 {
                    let read = reader.poll(1024, |value, _| sum += value).expect("an open ring");
                    assert!(reading || read != 0, "an event is missing");
                    events += read as u64;
                }
                assert_eq!(sum, threads as u64 * share * (share - 1) / 2, "the events of a burst");
            };
            std::thread::scope(|scope| {
                if reading {
                    scope.spawn(&mut read);
                }
                (1..threads).for_each(|thread| _ = scope.spawn(move || run(thread)));
                run(0);
            });
            if !reading {
                read();
            }
            let (first, last) = end.lock().expect("no panic").take().expect("a burst ran");
            row[kind] = Some((last - first).as_nanos() as f64 / BURST as f64);
        }
        if round >= PRACTICE {
            let row = row.map(|time| time.map_or("-".into(), |time| format!("{time:.2}")));
            println!("{threads} {}", row.join(" "));
        }
        times.push(row);
    }
    times.split_off(PRACTICE)
}

/// Returns the median, the quarters and the ends of `values`.
fn spread(mut values: Vec<f64>) -> [f64; 5] {
    values.sort_by(f64::total_cmp);
    [2, 1, 3, 0, 4].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

fn main() {
    println!("# threads, ns per event: {}", Contender::NAMES.join(", "));
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let reading = std::env::args().nth(2).is_some_and(|word| word == "reading");
    for threads in [1, 2, 4] {
        let times = measure(threads, rounds, reading);
        let column = |kind: usize| times.iter().filter_map(move |row| row[kind]);
        for (kind, name) in Contender::NAMES.into_iter().enumerate() {
            if column(kind).next().is_none() {
                continue;
            }
            let [median, low, high, least, most] = spread(column(kind).collect());
            let ratios = times.iter().filter_map(|row| Some(row[2]? / row[kind]?));
            let [ratio, ratio_low, ratio_high, ..] = spread(ratios.collect());
            println!(
                "# {threads} threads, {name}: {median:.1} ns ({low:.1} to {high:.1}; {least:.1} to \
                 {most:.1}); Publisher to {name}: {ratio:.3} ({ratio_low:.3} to {ratio_high:.3})"
            );
        }
    }
}
