//! The time from publication to acknowledgement at a paced rate, through a ring with a sink and
//! through async-nats alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use async_nats::jetstream::context::PublishAckFuture;
use bytes::Bytes;
use slipring::{Graph, Wait};
use slipring_machine::{Clock, set_fine_timer};
use slipring_nats::{Encoding, Sink, StreamSettings};
use tokio::sync::{mpsc, oneshot};
use zerocopy::IntoBytes as _;

use crate::append::check;
use crate::bench::{Bench, BenchResult, Event, TYPE, connect, context, lone_runtime};
use crate::stream::{self, Form};

/// Time between two events, in nanoseconds: 10,000 events a second.
const EVERY: u64 = 100_000;
/// Slots of the ring.
const RING: usize = 1 << 14;

/// Latencies, in microseconds.
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

impl Latency {
    fn of(mut nanos: Vec<u64>) -> Latency {
        nanos.sort_unstable();
        let at = |share: f64| nanos[((nanos.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
        Latency { p50: at(0.5), p99: at(0.99) }
    }
}

/// Returns the number of events of a run.
fn events(bench: &Bench) -> u64 {
    bench.amounts.paced.as_nanos() as u64 / EVERY
}

/// Measures a ring with a sink. A stage behind the sink sees an event once it is acknowledged.
pub fn sink(bench: &mut Bench) -> BenchResult<Latency> {
    let (name, events) = (bench.name(), events(bench));
    let sink =
        Sink::to(bench.at(), &name)
            .create(StreamSettings::new(&name))
            .open(Encoding::<Event>::plain(TYPE.0, TYPE.1))?;
    let graph = Graph::new(RING, Event::default);
    let journal = graph.reader("journal");
    // The stage parks at once. So does the task that waits for an acknowledgement in async-nats.
    let behind = graph.reader("acknowledged").after(&journal).wait(Wait::Blocking);
    let ring = graph.build()?;
    let (mut tx, journal, mut behind) =
        (ring.producer(), ring.reader(journal), ring.reader(behind));
    let running = sink.start(journal)?;
    let clock = Clock::start();
    let sent: Arc<[AtomicU64]> = (0..events).map(|_| AtomicU64::new(0)).collect();
    let of_reader = sent.clone();
    let reader = thread::spawn(move || {
        let mut latencies = Vec::with_capacity(events as usize);
        let read = behind.for_each(|event, _| {
            latencies.push(clock.ns() - of_reader[event.word() as usize].load(Relaxed));
        });
        read.map(|_| latencies)
    });
    set_fine_timer();
    for seq in 0..events {
        clock.sleep_until(seq * EVERY);
        sent[seq as usize].store(clock.ns(), Relaxed);
        tx.publish(|slot| *slot = Event::at(seq))?;
    }
    tx.close();
    let latencies = reader.join().map_err(|_| "the reader panicked")??;
    running.join()?;
    check(bench, &name, Form::Frames, events)?;
    finish(latencies, events)
}

/// Measures async-nats with one message for each event. One thread publishes, and another one runs
/// the client and waits for the acknowledgements in order.
pub fn bare(bench: &mut Bench) -> BenchResult<Latency> {
    let (name, events) = (bench.name(), events(bench));
    let (url, subject) = (bench.server.url(), async_nats::Subject::from(name.clone()));
    let (clock, runtime) = (Clock::start(), lone_runtime()?);
    let handle = runtime.handle().clone();
    let (ready, context_of) = oneshot::channel();
    let (sender, mut waiting) = mpsc::unbounded_channel::<(u64, PublishAckFuture)>();
    let client = thread::spawn(move || {
        runtime.block_on(async {
            let context = context(&connect(&url).await?, 1 << 16);
            stream::create(&context, &name).await?;
            let _ = ready.send(context.clone());
            let mut latencies = Vec::with_capacity(events as usize);
            while let Some((sent, acknowledgement)) = waiting.recv().await {
                acknowledgement.await?;
                latencies.push(clock.ns() - sent);
            }
            stream::check(&context, &name, Form::Messages, events).await?;
            BenchResult::Ok(latencies)
        })
    });
    let published = context_of.blocking_recv().map_err(Into::into).and_then(|context| {
        set_fine_timer();
        let start = clock.ns() + EVERY;
        for seq in 0..events {
            clock.sleep_until(start + seq * EVERY);
            let sent = clock.ns();
            let payload = Bytes::copy_from_slice(Event::at(seq).as_bytes());
            let publishing = context.publish(subject.clone(), payload);
            sender.send((sent, handle.block_on(publishing)?))?;
        }
        drop(sender);
        BenchResult::Ok(())
    });
    let latencies = client.join().map_err(|_| "the client's thread panicked")??;
    published?;
    finish(latencies, events)
}

fn finish(latencies: Vec<u64>, events: u64) -> BenchResult<Latency> {
    if latencies.len() as u64 == events {
        Ok(Latency::of(latencies))
    } else {
        Err(format!("{} of {events} events were acknowledged", latencies.len()).into())
    }
}
