//! Measures how fast a stream is read at full speed, by a source that decodes into a ring and by a
//! consumer that decodes nothing.

use std::time::Instant;

use slipring::Graph;
use slipring_nats::{Decoding, Source};

use crate::bench::{Bench, BenchResult, Event, TYPE, connect, context, runtime};
use crate::stream;

/// Slots of the ring behind the source.
const RING: usize = 1 << 14;

/// Measures a source that fills a ring, whose reader checks each event. Returns the events per
/// second.
pub fn source(bench: &mut Bench, name: &str) -> BenchResult<f64> {
    let events = bench.amounts.replayed;
    let source = Source::of(bench.at(), name).until_end().open()?;
    let graph = Graph::new(RING, Event::default);
    let key = graph.reader("check");
    let ring = graph.build()?;
    let (tx, mut check) = (ring.producer(), ring.reader(key));
    let begin = Instant::now();
    let source = source.start(Decoding::plain(TYPE.0, TYPE.1), tx)?;
    let (mut wrong, mut next) = (0, 0);
    check.for_each(|event, at| {
        wrong += u64::from(at.seq != next || !event.is_at(next));
        next += 1;
    })?;
    let rate = events as f64 / begin.elapsed().as_secs_f64();
    let progress = source.join()?;
    if wrong != 0 || next != events || progress.events != events {
        return Err(format!("{next} events came, {wrong} of them wrong").into());
    }
    Ok(rate)
}

/// Measures a pull consumer that fetches the same messages, and reads only their lengths. Returns
/// the events per second.
pub fn undecoded(bench: &mut Bench, name: &str) -> BenchResult<f64> {
    let events = bench.amounts.replayed;
    runtime()?.block_on(async {
        let context = context(&connect(&bench.server.url()).await?, 1);
        let begin = Instant::now();
        let mut bytes = 0;
        let count = |payload: bytes::Bytes| {
            bytes += payload.len() as u64;
            Ok(())
        };
        let messages = stream::fetch(&context, name, count).await?;
        let rate = events as f64 / begin.elapsed().as_secs_f64();
        let expected = events * 64 + messages * 104;
        if bytes == expected { Ok(rate) } else { Err(format!("{bytes} bytes came").into()) }
    })
}
