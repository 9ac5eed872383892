//! Streams: making them, reading them back, and checking their content.

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use zerocopy::FromBytes as _;

use crate::bench::{BenchResult, EVENT, Event, HEADER};

/// Greatest number of messages, and of bytes, that a reader requests at once. Of the sizes from 1
/// to 32 MiB, this one is the fastest for a reader that ignores the content.
const PULL: (usize, usize) = (1024, 16 << 20);

/// Creates a stream with the settings that a sink gives its own. Fast-ingest batches are allowed.
pub async fn create(context: &Context, name: &str) -> BenchResult<()> {
    let config = json!({
        "name": name,
        "subjects": [name],
        "retention": "limits",
        "storage": "file",
        "num_replicas": 1,
        "discard": "new",
        "duplicate_window": 100_000_000,
        "allow_batched": true,
    });
    let answer: Value = context.request(format!("STREAM.CREATE.{name}"), &config).await?;
    match answer.get("error") {
        Some(error) => Err(format!("stream {name}: {error}").into()),
        None => Ok(()),
    }
}

/// Removes a stream.
pub async fn delete(context: &Context, name: &str) -> BenchResult<()> {
    context.delete_stream(name).await?;
    Ok(())
}

/// Reads a stream from its first to its last message, and hands each payload to `each`. Returns the
/// number of messages.
pub async fn fetch(
    context: &Context,
    name: &str,
    mut each: impl FnMut(Bytes) -> BenchResult<()>,
) -> BenchResult<u64> {
    let stream = context.get_stream(name).await?;
    let total = stream.cached_info().state.messages;
    let config =
        pull::Config { ack_policy: AckPolicy::None, memory_storage: true, ..Default::default() };
    let consumer = stream.create_consumer(config).await?;
    let (messages, bytes) = PULL;
    let builder = consumer.stream().max_messages_per_batch(messages).max_bytes_per_batch(bytes);
    let mut messages = builder.messages().await?;
    for _ in 0..total {
        let message = messages.next().await.ok_or("the stream of messages ended early")??;
        each(message.message.payload)?;
    }
    Ok(total)
}

/// The form of events in a stream.
#[derive(Clone, Copy)]
pub enum Form {
    Frames,
    Messages,
}

/// Reads a stream back, checks that it has the events of the positions 0 to `events`, each once and
/// in order, and removes it. Returns the number of messages.
pub async fn check(context: &Context, name: &str, form: Form, events: u64) -> BenchResult<u64> {
    let mut next = 0;
    let messages = fetch(context, name, |payload| {
        next = match form {
            Form::Frames => frame(&payload, next)?,
            Form::Messages => self::events(&payload, next)?,
        };
        Ok(())
    });
    let messages = messages.await?;
    if next != events {
        return Err(format!("{name} ends at position {next} instead of {events}").into());
    }
    delete(context, name).await?;
    Ok(messages)
}

/// Checks a frame by the documented layout. Its first event must have position `next`. Returns the
/// position behind its last event.
fn frame(bytes: &[u8], next: u64) -> BenchResult<u64> {
    let at = |place: usize| bytes.get(place..place + 8).and_then(|b| b.try_into().ok());
    let number = |place| at(place).map(u64::from_le_bytes).ok_or("a frame is too short");
    let (after, first) = (number(72)?, number(80)?);
    if !bytes.starts_with(b"SLIPFRAM") || (after, first) != (next, next) {
        return Err(format!("a frame has the positions {after}, {first} instead of {next}").into());
    }
    let end = events(&bytes[HEADER..], next)?;
    if end - next == number(88)? & u64::from(u32::MAX) {
        Ok(end)
    } else {
        Err("a frame has another number of events than it names".into())
    }
}

/// Checks that the bytes are the events from position `next` on. Returns the position behind the
/// last event.
fn events(mut bytes: &[u8], mut next: u64) -> BenchResult<u64> {
    while !bytes.is_empty() {
        let (event, rest) = Event::read_from_prefix(bytes)
            .map_err(|_| format!("an event has {} bytes instead of {EVENT}", bytes.len()))?;
        if !event.is_at(next) {
            return Err(format!("the event at position {next} is another one").into());
        }
        (bytes, next) = (rest, next + 1);
    }
    Ok(next)
}
