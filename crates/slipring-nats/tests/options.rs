//! Options that make no sense are refused with an error of one line. All others work at their
//! extreme values.

#[path = "common/checks.rs"]
mod checks;
mod common;

use std::time::Duration;

use checks::{refused, until_next};
use common::*;
use serde_json::json;
use slipring_nats::{
    Decoding, Encoding, Error, Outage, Server as At, Sink, Source, StreamSettings,
};
use slipring_nats_server::{Options, Server};

#[test]
fn options_without_a_meaning_are_refused_before_a_connection_is_made() {
    let _watched = watched();
    let sink = || Sink::to(At::at("nats://127.0.0.1:1"), STREAM);
    for (sink, option) in [
        (sink().window(0), "Sink::window"),
        (sink().window(257), "Sink::window"),
        (sink().ack_timeout(Duration::ZERO), "Sink::ack_timeout"),
        (sink().ack_timeout(Duration::MAX), "Sink::ack_timeout"),
        (sink().linger(Duration::from_secs(61)), "Sink::linger"),
        (sink().linger(Duration::MAX), "Sink::linger"),
        (sink().resume_at(u64::MAX), "Sink::resume_at"),
        (sink().subject(""), "Sink::subject"),
        (sink().subject("a b"), "Sink::subject"),
        (sink().subject("a\r\nPUB x 0\r\n\r\n"), "Sink::subject"),
        (sink().subject("a..b"), "Sink::subject"),
        (sink().subject(".a"), "Sink::subject"),
        (sink().subject("a."), "Sink::subject"),
        (sink().subject("a.*"), "Sink::subject"),
        (sink().subject(">"), "Sink::subject"),
        (sink().create(StreamSettings::new(SUBJECT).max_bytes(0)), "StreamSettings::max_bytes"),
        (sink().create(StreamSettings::new(SUBJECT).replicas(0)), "StreamSettings::replicas"),
        (sink().create(StreamSettings::new(SUBJECT).replicas(6)), "StreamSettings::replicas"),
        (sink().create(StreamSettings::new("")), "StreamSettings::new"),
        (sink().create(StreamSettings::new(SUBJECT).subject("a b")), "StreamSettings::new"),
    ] {
        refused!(sink.open(numbers()).unwrap_err(), Error::Option { .. }, option);
    }
}

#[test]
fn settings_that_the_server_refuses_come_with_its_reason() {
    let _watched = watched();
    let Some(server) = server() else { return };
    for (settings, why) in [
        (StreamSettings::new(SUBJECT).replicas(3), "replicas > 1 not supported"),
        (StreamSettings::new("a.>.b"), "subject"),
        (StreamSettings::new("a").subject("a"), "overlaps"),
        (StreamSettings::new("$JS.API.x"), "subjects"),
        (StreamSettings::new(SUBJECT).max_bytes(1 << 62), "storage"),
    ] {
        let sink = Sink::to(At::at(server.url()), STREAM).create(settings);
        refused!(sink.open(numbers()).unwrap_err(), Error::Server { .. }, why, "configuration");
    }
}

#[test]
fn the_settings_of_a_created_stream_are_those_that_were_asked_for() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let settings = StreamSettings::new("a").subject("b.*").max_bytes(1 << 20).max_age(60);
    let sink = Sink::to(At::at(server.url()), STREAM).subject("b.frames");
    sink.create(settings.discard_old()).open(numbers()).unwrap();
    let config = client(&server).stream_info(STREAM).unwrap()["config"].clone();
    for (key, value) in [
        ("subjects", json!(["a", "b.*"])),
        ("max_bytes", json!(1 << 20)),
        ("max_age", json!(60_000_000_000u64)),
        ("discard", json!("old")),
        ("retention", json!("limits")),
        ("num_replicas", json!(1)),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
}

#[test]
fn a_stream_that_has_less_than_the_sink_would_create_is_refused_and_one_that_has_more_is_told() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let config = json!({
        "name": STREAM, "subjects": ["orders.>"], "storage": "file", "discard": "new",
        "max_bytes": 1 << 20, "max_age": 60_000_000_000u64,
    });
    client(&server).create_stream(config).unwrap();
    let asked = || StreamSettings::new("orders.frames");
    let open = |settings: StreamSettings| {
        let sink = Sink::to(At::at(server.url()), STREAM).subject("orders.frames");
        sink.create(settings).open(numbers())
    };
    let none: [String; 0] = [];
    assert_eq!(open(asked()).unwrap().remarks(), none);
    assert_eq!(open(asked().replicas(1).max_bytes(1 << 20).max_age(60)).unwrap().remarks(), none);
    for (settings, what) in [
        (asked().replicas(3), "it has 1 replicas, and 3 were asked for"),
        (asked().max_bytes(1 << 21), "its max_bytes is 1048576 bytes, and 2097152 bytes was"),
        (asked().max_age(0), "its max_age is 60 s, and no limit was asked for"),
        (asked().subject("more"), "its subjects are orders.>, and lack more"),
    ] {
        let error = open(settings).unwrap_err();
        refused!(error, Error::WrongStream { .. }, STREAM, what, "change it");
    }
    let open = open(asked().max_bytes(1 << 19).max_age(30).in_memory().discard_old()).unwrap();
    let remarks = open.remarks().to_vec();
    for (remark, word) in remarks.iter().zip(["524288", "30 s", "memory", "discard_old"]) {
        assert!(remark.contains(word), "{word}: {remark}");
    }
    assert_eq!(remarks.len(), 4, "{remarks:?}");
    // The running sink returns the remarks as well.
    let (tx, running) = start(open, 64);
    assert_eq!(running.remarks(), remarks);
    tx.close();
    running.join().unwrap();
}

/// A plain event of two kilobytes.
#[derive(Clone, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(transparent)]
struct Big([u8; 2048]);

#[test]
fn an_event_that_no_message_can_hold_is_refused_at_the_start() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let big = || Encoding::<Big>::plain("big", 1);
    let small = Server::start(Options::new().max_payload(1024)).unwrap();
    let to = |server: &Server| {
        Sink::to(At::at(server.url()), STREAM).create(StreamSettings::new(SUBJECT))
    };
    let needs = (HEADER + 2048).to_string();
    refused!(
        to(&small).open(big()).unwrap_err(),
        Error::TooLarge { .. },
        needs,
        "max_payload",
        "max_msg_size",
        "Sink::max_frame",
        "make events smaller"
    );
    let server = Server::start(Options::new()).unwrap();
    refused!(
        to(&server).max_frame(2000).open(big()).unwrap_err(),
        Error::TooLarge { .. },
        needs,
        "2000"
    );
    for bytes in [0, 1, HEADER, HEADER + 2047] {
        let error = to(&server).max_frame(bytes).open(big()).unwrap_err();
        refused!(error, Error::TooLarge { .. }, needs, bytes.to_string());
    }
    assert!(client(&server).messages(STREAM).unwrap().is_empty(), "no sink has begun");
    to(&server).max_frame(HEADER + 2048).open(big()).unwrap();
    let config = json!({ "name": "SMALL", "subjects": ["small"], "max_msg_size": 1500 });
    client(&server).create_stream(config).unwrap();
    let error = Sink::to(At::at(server.url()), "SMALL").open(big()).unwrap_err();
    refused!(error, Error::TooLarge { .. }, needs, "max_msg_size");
    // Numbers still fit.
    Sink::to(At::at(server.url()), "SMALL").open(numbers()).unwrap();
}

#[test]
fn frames_keep_to_the_least_limit() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let server = Server::start(Options::new().max_payload(4096)).unwrap();
    let mut client = client(&server);
    // Headers count as well, and the longest name makes the longest headers.
    let (short, long) = ("S", "L".repeat(200));
    for (name, size) in [(short, 1024), (short, -1), (long.as_str(), -1), (long.as_str(), 1024)] {
        let _ = client.delete_stream(name);
        let config = json!({ "name": name, "subjects": ["limited"], "max_msg_size": size });
        client.create_stream(config).unwrap();
        let sink = Sink::to(At::at(server.url()), name).ack_timeout(Duration::from_millis(500));
        let (mut tx, running) = start(sink.open(numbers()).unwrap(), 8192);
        feed(&mut tx, 8000).unwrap();
        tx.close();
        let counters = running.join().unwrap();
        assert_eq!((counters.events, counters.doubts), (8000, 0), "{name} {size}");
        let frames: Vec<_> = client.messages(name).unwrap().iter().map(frame).collect();
        check(&frames);
        client.delete_stream(name).unwrap();
    }
}

#[test]
fn a_sink_holds_at_the_extremes_of_its_options() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let to = || sink(&server.url());
    let mut end = 0;
    for sink in [
        to().window(1),
        to().window(256),
        to().linger(Duration::ZERO),
        to().linger(Duration::from_secs(60)),
        to().max_frame(HEADER + 8),
        to().max_frame(usize::MAX),
        to().outage(Outage::FailAfter(Duration::MAX)),
        to().outage(Outage::DropAfter(Duration::MAX)),
        // Each acknowledgement is late, so the sink keeps asking for the stream's end.
        to().ack_timeout(Duration::from_micros(300)),
    ] {
        let (mut tx, running) = start(sink.open(numbers()).unwrap(), 256);
        end += 2000;
        feed(&mut tx, end).unwrap();
        tx.close();
        let counters = running.join().unwrap();
        assert_eq!((counters.events, counters.acknowledged), (2000, end));
    }
    assert_eq!(scan(&mut client(&server)).last().unwrap().end(), end);
}

#[test]
fn a_source_of_another_journal_is_refused() {
    let _watched = watched();
    let Some(server) = server() else { return };
    sink(&server.url()).open(numbers()).unwrap();
    let source = || Source::of(At::at(server.url()), STREAM);
    let journal = source().open().unwrap().journal().unwrap();
    source().expect_journal(journal).open().unwrap();
    let (other, ours) = ("07".repeat(16), journal.map(|byte| format!("{byte:02x}")).concat());
    let error = source().expect_journal([7; 16]).open().unwrap_err();
    refused!(error, Error::OtherJournal { .. }, other, ours, "Source::expect_journal");
    // The stream is recreated while a source reads it.
    let open = source().open().unwrap();
    let (tx, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 10).unwrap();
    until_next(&source, 10);
    tx.close();
    running.join().unwrap();
    client(&server).delete_stream(STREAM).unwrap();
    let open = sink(&server.url()).resume_at(10).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 64);
    feed(&mut tx, 20).unwrap();
    tx.close();
    running.join().unwrap();
    refused!(source.join().unwrap_err(), Error::OtherJournal { .. }, ours);
    assert!(rx.for_each(|_, _| ()).is_err(), "the ring halts");
}
