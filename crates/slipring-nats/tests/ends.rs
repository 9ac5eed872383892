//! Sinks and sources that end because a function of the user fails, because their ring ends, or on
//! request.

#[path = "common/checks.rs"]
mod checks;
mod common;

use std::time::{Duration, Instant};

use checks::{refused, until, until_next};
use common::*;
use slipring::{Graph, errors::WaitError};
use slipring_nats::{Decoding, Encoding, Error, Server as At, Sink, Source, StreamSettings};
use slipring_nats_server::Server;

/// A sink whose messages' subjects are below `orders`.
fn by_market(server: &Server, encoding: Encoding<u64>) -> Sink2 {
    let sink = Sink::to(At::at(server.url()), STREAM).create(StreamSettings::new("orders.*"));
    Sink2 { sink, encoding }
}

/// A sink with its encoding.
struct Sink2 {
    sink: Sink,
    encoding: Encoding<u64>,
}

/// Runs a sink whose function fails at position 20. A second stage of the ring reads everything.
#[track_caller]
fn fails_at_20(sink: Sink2) -> Error {
    let open = sink.sink.open(sink.encoding).unwrap();
    let graph = Graph::new(64, || 0u64).first_seq(open.next_seq());
    let (journal, other) = (graph.reader("journal"), graph.reader("other"));
    let ring = graph.build().unwrap();
    let (mut tx, journal, mut other) = (ring.producer(), ring.reader(journal), ring.reader(other));
    drop(ring);
    let running = open.start(journal).unwrap();
    let reading = std::thread::spawn(move || other.for_each(|_, _| ()));
    let fed = feed(&mut tx, 10_000);
    assert!(matches!(fed, Err(WaitError::Failed(_))), "{fed:?}");
    let read = reading.join().unwrap();
    assert!(matches!(read, Err(WaitError::Failed(_))), "{read:?}");
    running.join().unwrap_err()
}

/// Number of slots of a ring in which a source claims one slot at a time: it always claims a
/// quarter of the slots.
const ONE_AT_A_TIME: usize = 4;

#[test]
fn an_encoder_that_panics_fails_the_graph() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let is = |number: &u64, seq: u64| *number == event(seq);
    let frames = || {
        Encoding::by("number", 1, move |number, bytes: &mut Vec<u8>| {
            assert!(!is(number, 20), "the encoder's fault,\nin two lines");
            bytes.extend(number.to_le_bytes());
        })
    };
    let name = ["`journal`", "position 20", "the encoder's fault, in two lines"];
    for _ in 0..2 {
        let encoding = frames();
        let sink = sink(&server.url());
        let error = fails_at_20(Sink2 { sink, encoding });
        refused!(error, Error::Function { seq: 20, .. }, name[0], name[1], name[2]);
        // The events before position 20 may be stored or not, but no later event is.
        let end = client(&server).messages(STREAM).unwrap().last().map(|last| frame(last).end());
        assert!(end.unwrap() <= 20);
        client(&server).delete_stream(STREAM).unwrap();
    }
}

#[test]
fn functions_of_single_messages_that_panic_fail_the_graph() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let is = |number: &u64, seq: u64| *number == event(seq);
    let bytes = |number: &u64, bytes: &mut Vec<u8>| bytes.extend(number.to_le_bytes());
    let market = |_: &u64| "orders.a".to_string();
    let named = move |number: &u64| {
        if is(number, 20) {
            std::panic::panic_any(7); // a panic without a text
        }
        market(number)
    };
    let encode = move |number: &u64, to: &mut Vec<u8>| {
        assert!(!is(number, 20), "the encoder's fault");
        bytes(number, to);
    };
    for (encoding, why) in [
        (Encoding::messages("number", 1, named, bytes), "a panic"),
        (Encoding::messages("number", 1, market, encode), "the encoder's fault"),
    ] {
        let error = fails_at_20(by_market(&server, encoding));
        refused!(error, Error::Function { seq: 20, .. }, "`journal`", "position 20", why);
        client(&server).delete_stream(STREAM).unwrap();
    }
}

#[test]
fn subjects_that_the_stream_does_not_have_fail_the_graph() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let bytes = |number: &u64, bytes: &mut Vec<u8>| bytes.extend(number.to_le_bytes());
    let long = format!("orders.{}", "a".repeat(1024 - 6)); // for this length the server would end the connection
    for subject in [
        &long,
        "",
        "orders",
        "orders.a.b",
        "other",
        "orders.*",
        "orders.>",
        "orders.a b",
        "orders.",
        "orders.a\r\nPUB orders.b 0\r\n\r\n",
    ] {
        let subject = subject.to_string();
        let market = move |number: &u64| match *number == event(20) {
            true => subject.clone(),
            false => "orders.a".to_string(),
        };
        let encoding = Encoding::messages("number", 1, market, bytes);
        let error = fails_at_20(by_market(&server, encoding));
        refused!(error, Error::Function { seq: 20, .. }, "`journal`", "position 20", "orders.*");
        client(&server).delete_stream(STREAM).unwrap();
    }
}

/// A stream with 50 numbers.
fn with_50() -> Option<Server> {
    let server = server()?;
    store(&server, 50);
    Some(server)
}

#[test]
fn a_decoder_that_fails_or_panics_halts_the_ring_in_front_of_the_event() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let encoding =
        Encoding::by("text", 1, |n: &u64, bytes: &mut Vec<u8>| bytes.extend(n.to_le_bytes()));
    let (mut tx, running) = start(sink(&server.url()).open(encoding).unwrap(), 64);
    feed(&mut tx, 50).unwrap();
    tx.close();
    running.join().unwrap();
    for panics in [false, true] {
        let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
        let (tx, mut rx) = ring(0, 16);
        let decoding = Decoding::by("text", 1, move |bytes, slot: &mut u64| {
            let number = u64::from_le_bytes(bytes.try_into().unwrap());
            if number == event(33) {
                assert!(!panics, "no\nsuch number");
                return Err("no\nsuch number".into());
            }
            *slot = number;
            Ok(())
        });
        let source = open.start(decoding, tx).unwrap();
        let mut seen = 0;
        let read = rx.for_each(|number, at| {
            assert_eq!(*number, event(at.seq));
            seen = at.seq + 1;
        });
        assert!(matches!(read, Err(WaitError::Halted)), "{read:?}");
        assert!(seen <= 33);
        let error = source.join().unwrap_err();
        refused!(
            error,
            Error::Function { seq: 33, .. },
            "`slipring-source`",
            "position 33",
            "no such number"
        );
    }
}

#[test]
fn a_sink_ends_with_its_ring() {
    let _watched = watched();
    let Some(server) = server() else { return };
    // The ring is halted.
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 10).unwrap();
    tx.halt();
    refused!(running.join().unwrap_err(), Error::Ring(WaitError::Halted), "ring", "halt");
    // Another stage fails.
    let open = sink(&server.url()).open(numbers()).unwrap();
    let graph = Graph::new(64, || 0u64).first_seq(open.next_seq());
    let (journal, other) = (graph.reader("journal"), graph.reader("other"));
    let ring = graph.build().unwrap();
    let (mut tx, journal, other) = (ring.producer(), ring.reader(journal), ring.reader(other));
    let running = open.start(journal).unwrap();
    let next = tx.next_seq();
    feed(&mut tx, next + 10).unwrap();
    drop(other);
    refused!(running.join().unwrap_err(), Error::Ring(WaitError::Failed(_)), "ring", "other");
    scan(&mut client(&server));
    // The ring is closed without an event.
    let (tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    tx.close();
    assert_eq!(running.join().unwrap().events, 0);
}

#[test]
fn a_stopped_sink_fails_a_ring_of_threads() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 10).unwrap();
    running.stop();
    until("the end", || running.is_finished());
    refused!(running.join().unwrap_err(), Error::Stopped, "told to stop", "start it again");
    let fed = feed(&mut tx, 1000);
    assert!(matches!(fed, Err(WaitError::Failed(_))), "{fed:?}");
    scan(&mut client(&server));
}

#[test]
fn a_dropped_handle_lets_the_sink_go_on() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    drop(running);
    feed(&mut tx, 5_000).unwrap();
    tx.close();
    let mut client = client(&server);
    until("all events", || scan(&mut client).last().unwrap().end() == 5_000);
}

#[test]
fn a_sink_that_is_dropped_before_its_start_leaves_the_stream_usable() {
    let _watched = watched();
    let Some(server) = with_50() else { return };
    drop(sink(&server.url()).open(numbers()).unwrap());
    assert_eq!(sink(&server.url()).open(numbers()).unwrap().next_seq(), 50);
}

#[test]
fn join_by_waits_for_a_running_sink_no_longer_than_asked() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, mut running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    assert!(running.join_by(Instant::now()).unwrap().is_none());
    assert!(running.join_by(Instant::now() + Duration::from_millis(30)).unwrap().is_none());
    feed(&mut tx, 10).unwrap();
    tx.close();
    let counters = running.join_by(Instant::now() + SOON).unwrap().unwrap();
    assert_eq!(counters.acknowledged, 10);
    assert_eq!(running.join_by(Instant::now()).unwrap().unwrap().acknowledged, 10);
}

#[test]
fn a_stopped_source_closes_its_ring() {
    let _watched = watched();
    let Some(server) = with_50() else { return };
    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (tx, mut rx) = ring(0, 64);
    let mut source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    until_next(&source, 50);
    assert!(source.join_by(Instant::now() + Duration::from_millis(20)).unwrap().is_none());
    source.stop();
    assert_eq!(rx.for_each(|number, at| assert_eq!(*number, event(at.seq))).unwrap(), 50);
    let progress = source.join_by(Instant::now() + SOON).unwrap().unwrap();
    assert_eq!((progress.events, progress.next), (50, 50));
}

#[test]
fn a_source_at_a_full_ring_is_stopped() {
    let _watched = watched();
    let Some(server) = with_50() else { return };
    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (tx, mut rx) = ring(0, ONE_AT_A_TIME);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    until_next(&source, 4);
    source.stop();
    assert_eq!(source.join().unwrap().next, 4);
    assert_eq!(rx.for_each(|number, at| assert_eq!(*number, event(at.seq))).unwrap(), 4);
}

#[test]
fn a_source_ends_with_its_ring() {
    let _watched = watched();
    let Some(server) = with_50() else { return };
    let source = |tx| {
        let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
        open.start(Decoding::<u64>::plain("number", 1), tx).unwrap()
    };
    let (tx, rx) = ring(0, ONE_AT_A_TIME);
    let running = source(tx);
    until_next(&running, 4);
    drop(rx);
    refused!(running.join().unwrap_err(), Error::Ring(WaitError::Failed(_)), "ring", "journal");
    let graph = Graph::new(ONE_AT_A_TIME, || 0u64);
    let key = graph.reader("journal");
    let ring = graph.build().unwrap();
    let (tx, _rx) = (ring.producer(), ring.reader(key));
    let running = source(tx);
    until_next(&running, 4);
    ring.halt();
    refused!(running.join().unwrap_err(), Error::Ring(WaitError::Halted), "ring", "halt");
}

#[test]
fn a_dropped_handle_lets_the_source_go_on() {
    let _watched = watched();
    let Some(server) = with_50() else { return };
    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    let (tx, mut rx) = ring(0, 8);
    drop(open.start(Decoding::<u64>::plain("number", 1), tx).unwrap());
    assert_eq!(rx.for_each(|_, _| ()).unwrap(), 50);
}

#[test]
fn a_source_follows_a_stream_that_has_no_message_yet() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let config = serde_json::json!({ "name": STREAM, "subjects": [SUBJECT] });
    client(&server).create_stream(config).unwrap();
    // A source that reads to the end of an unused stream has nothing to do.
    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    assert_eq!((open.oldest(), open.end(), open.journal()), (None, None, None));
    let (tx, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    assert_eq!(rx.for_each(|_, _| ()).unwrap(), 0);
    assert_eq!(source.join().unwrap().messages, 0);

    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (tx, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    let reading = std::thread::spawn(move || {
        rx.for_each(|number, at| assert_eq!(*number, event(at.seq))).unwrap()
    });
    for round in 1..=10 {
        feed(&mut tx, round * 1000).unwrap();
        until_next(&source, round * 1000);
    }
    tx.close();
    running.join().unwrap();
    // The next sink's events follow.
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 11_000).unwrap();
    tx.close();
    running.join().unwrap();
    until_next(&source, 11_000);
    source.stop();
    assert_eq!(reading.join().unwrap(), 11_000);
    let progress = source.join().unwrap();
    assert_eq!((progress.events, progress.restarts, progress.holes), (11_000, 0, 0));
}
