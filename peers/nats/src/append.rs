//! Measures how fast events are appended at full speed, by the sink and by its rivals.

use std::collections::VecDeque;
use std::time::Instant;

use async_nats::HeaderMap;
use async_nats::jetstream::context::PublishAckFuture;
use async_nats_of_extra as old;
use bytes::Bytes;
use futures_util::StreamExt as _;
use jetstream_extra::batch_publish_fast::{FastPublishExt as _, GapMode};
use slipring::Graph;
use slipring_nats::{Encoding, Sink, StreamSettings};
use zerocopy::IntoBytes as _;

use crate::bench::{Bench, BenchResult, Event, TYPE, connect, context, runtime};
use crate::stream::{self, Form};

/// Number of events that the producer publishes together.
const BATCH: u64 = 256;
/// Maximum number of messages between two acknowledgements of fast ingest, and maximum number of
/// acknowledgements in flight: the greatest settings that the crate's own sweep tries.
const FAST: (u16, u16) = (10_000, 3);

/// Writes `events` events through a sink to a new stream, and leaves the stream. If `fill` is set,
/// the ring has all events before the sink begins, so that each frame but the last is full. Returns
/// the stream's name and the events per second.
fn through_sink(bench: &mut Bench, events: u64, fill: bool) -> BenchResult<(String, f64)> {
    let name = bench.name();
    let sink = Sink::to(bench.at(), &name)
        .create(StreamSettings::new(&name))
        .window(bench.flight.window)
        .max_frame(bench.flight.frame)
        .open(Encoding::<Event>::plain(TYPE.0, TYPE.1))?;
    // The ring keeps the events in flight until they are acknowledged, so it has room for twice as
    // many.
    let slots = if fill { events as usize } else { bench.flight.events() * 2 };
    let slots = slots.next_power_of_two();
    let graph = Graph::new(slots, Event::default).first_seq(sink.next_seq());
    let key = graph.reader("journal");
    let ring = graph.build()?;
    let (mut tx, mut journal) = (ring.producer(), Some(ring.reader(key)));
    let mut sink = Some(sink);
    let mut running = None;
    let mut start = || -> BenchResult<()> {
        if let (Some(sink), Some(journal)) = (sink.take(), journal.take()) {
            running = Some(sink.start(journal)?);
        }
        Ok(())
    };
    if !fill {
        start()?;
    }
    let begin = Instant::now();
    let mut next = 0;
    while next < events {
        let mut slots = tx.claim_n((events - next).min(BATCH) as usize)?;
        for slot in slots.iter_mut() {
            *slot = Event::at(next);
            next += 1;
        }
        slots.publish();
    }
    start()?;
    tx.close();
    let counters = running.ok_or("the sink did not start")?.join()?;
    let rate = events as f64 / begin.elapsed().as_secs_f64();
    if counters.events != events || counters.doubts != 0 {
        return Err(format!("the sink had a trouble: {counters:?}").into());
    }
    Ok((name, rate))
}

/// Measures a sink behind a producer that does nothing else. Returns the events per second.
pub fn sink(bench: &mut Bench) -> BenchResult<f64> {
    let (name, rate) = through_sink(bench, bench.amounts.framed, false)?;
    check(bench, &name, Form::Frames, bench.amounts.framed)?;
    Ok(rate)
}

/// Makes a stream of full frames for readers. Returns its name.
pub fn stream_of_frames(bench: &mut Bench) -> BenchResult<String> {
    Ok(through_sink(bench, bench.amounts.replayed, true)?.0)
}

/// Returns the frames that a sink writes for the events of a run. The frames lie in memory.
pub fn ready_frames(bench: &mut Bench) -> BenchResult<Vec<Bytes>> {
    let (name, _) = through_sink(bench, bench.amounts.framed, true)?;
    runtime()?.block_on(async {
        let context = context(&connect(&bench.server.url()).await?, 1);
        let mut frames = Vec::new();
        let copy = |payload: Bytes| {
            frames.push(Bytes::copy_from_slice(&payload));
            Ok(())
        };
        stream::fetch(&context, &name, copy).await?;
        stream::delete(&context, &name).await?;
        Ok(frames)
    })
}

/// Measures a loop that sends frames made in advance, and reads each acknowledgement. The loop uses
/// the same window as the sink, and sends its messages with the same conditions. Returns the events
/// per second.
pub fn ready(bench: &mut Bench, frames: &[Bytes]) -> BenchResult<f64> {
    let (name, events) = (bench.name(), bench.amounts.framed);
    runtime()?.block_on(async {
        let client = connect(&bench.server.url()).await?;
        let context = context(&client, 1);
        stream::create(&context, &name).await?;
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(inbox.clone()).await?;
        client.flush().await?;
        let begin = Instant::now();
        let mut acknowledged = 0;
        for (sent, frame) in (0..).zip(frames) {
            while sent - acknowledged >= bench.flight.window as u64 {
                acknowledged = sequence(answers.next().await, acknowledged)?;
            }
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Expected-Last-Sequence", sent.to_string());
            headers.insert("Nats-Expected-Stream", name.as_str());
            let (subject, reply) = (name.clone(), inbox.clone());
            client.publish_with_reply_and_headers(subject, reply, headers, frame.clone()).await?;
        }
        while acknowledged < frames.len() as u64 {
            acknowledged = sequence(answers.next().await, acknowledged)?;
        }
        let rate = events as f64 / begin.elapsed().as_secs_f64();
        stream::check(&context, &name, Form::Frames, events).await?;
        Ok(rate)
    })
}

/// Returns the sequence number in an acknowledgement, which must follow `last`.
fn sequence(message: Option<async_nats::Message>, last: u64) -> BenchResult<u64> {
    let message = message.ok_or("the connection is closed")?;
    let answer: serde_json::Value = serde_json::from_slice(&message.payload)?;
    match answer["seq"].as_u64() {
        Some(sequence) if sequence == last + 1 => Ok(sequence),
        _ => Err(format!("the acknowledgement behind {last} is {answer}").into()),
    }
}

/// Measures async-nats with one message for each event, and with as many bytes in flight as the
/// sink has. Returns the events per second.
pub fn messages(bench: &mut Bench) -> BenchResult<f64> {
    let (name, events) = (bench.name(), bench.amounts.single);
    let in_flight = bench.flight.events();
    runtime()?.block_on(async {
        let client = connect(&bench.server.url()).await?;
        let context = context(&client, in_flight);
        stream::create(&context, &name).await?;
        let subject = async_nats::Subject::from(name.clone());
        let begin = Instant::now();
        let (mut waiting, mut last) = (VecDeque::<PublishAckFuture>::new(), 0);
        for seq in 0..events {
            if waiting.len() == in_flight
                && let Some(oldest) = waiting.pop_front()
            {
                last = oldest.await?.sequence;
            }
            let payload = Bytes::copy_from_slice(Event::at(seq).as_bytes());
            waiting.push_back(context.publish(subject.clone(), payload).await?);
        }
        for waiting in waiting {
            last = waiting.await?.sequence;
        }
        let rate = events as f64 / begin.elapsed().as_secs_f64();
        if last != events {
            return Err(format!("the last acknowledgement names {last}").into());
        }
        stream::check(&context, &name, Form::Messages, events).await?;
        Ok(rate)
    })
}

/// Measures fast-ingest batches of `jetstream-extra`, one batch for the run. Returns the events per
/// second.
pub fn fast_ingest(bench: &mut Bench) -> BenchResult<f64> {
    let (name, events) = (bench.name(), bench.amounts.single);
    runtime()?.block_on(async {
        let url = bench.server.url();
        let context = context(&connect(&url).await?, 1);
        stream::create(&context, &name).await?;
        let options = old::ConnectOptions::new().client_capacity(8192).subscription_capacity(8192);
        let jetstream = old::jetstream::new(options.connect(&url).await?);
        let subject = old::Subject::from(name.clone());
        let begin = Instant::now();
        let mut batch = jetstream
            .fast_publish()
            .flow(FAST.0)
            .max_outstanding_acks(FAST.1)
            .gap_mode(GapMode::Fail)
            .build()?;
        for seq in 0..events - 1 {
            let payload = Bytes::copy_from_slice(Event::at(seq).as_bytes());
            batch.add(subject.clone(), payload).await?;
        }
        let payload = Bytes::copy_from_slice(Event::at(events - 1).as_bytes());
        let acknowledged = batch.commit(subject, payload).await?;
        let rate = events as f64 / begin.elapsed().as_secs_f64();
        if acknowledged.sequence != events {
            return Err(format!("the batch ends at {}", acknowledged.sequence).into());
        }
        stream::check(&context, &name, Form::Messages, events).await?;
        Ok(rate)
    })
}

/// Checks that a stream has the events of a run, and removes the stream.
pub fn check(bench: &Bench, name: &str, form: Form, events: u64) -> BenchResult<u64> {
    runtime()?.block_on(async {
        let context = context(&connect(&bench.server.url()).await?, 1);
        stream::check(&context, name, form, events).await
    })
}
