//! Streams that are full, emptied, damaged or foreign, and events that are too large.

#[path = "common/checks.rs"]
mod checks;
mod common;

use std::time::Duration;

use checks::{Unanswered, refused, until, until_state};
use common::*;
use serde_json::json;
use slipring::Graph;
use slipring_nats::{
    Decoding, Encoding, Error, Outage, Server as At, Sink, Source, State, StreamSettings,
};
use slipring_nats_server::{Client, Direction, Options, Proxy, Purge, Server};

/// A stream that has room for some frames, and a sink whose frames have 64 numbers.
fn small(url: &str) -> Sink {
    let settings = StreamSettings::new(SUBJECT).max_bytes(8 << 10);
    let sink = Sink::to(At::at(url), STREAM).create(settings);
    sink.max_frame(HEADER + 64 * 8)
}

/// Checks that the positions of the remaining messages are contiguous, and returns their end.
fn checked_end(client: &mut Client) -> u64 {
    scan(client).last().unwrap().end()
}

#[test]
fn a_sink_waits_at_a_full_stream_and_goes_on_when_there_is_room() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let mut client = client(&server);
    let (mut tx, running) = start(small(&server.url()).open(numbers()).unwrap(), 64);
    let feeding = std::thread::spawn(move || {
        feed(&mut tx, 5_000).unwrap();
        tx.close();
    });
    let mut purges = 0;
    let last = |client: &mut Client| {
        client.stream_info(STREAM).unwrap()["state"]["last_seq"].as_u64().unwrap()
    };
    while !running.is_finished() {
        until("full, or the end", || {
            running.is_finished() || running.counters().state == State::Full
        });
        if running.counters().state == State::Full {
            checked_end(&mut client);
            let before = last(&mut client);
            let kept = if purges % 2 == 0 { Purge::All } else { Purge::Keep(1) };
            client.purge(STREAM, kept).unwrap();
            purges += 1;
            until("a frame behind the purge", || {
                running.is_finished() || last(&mut client) > before
            });
        }
    }
    feeding.join().unwrap();
    let counters = running.join().unwrap();
    assert_eq!((counters.events, counters.acknowledged, counters.dropped), (5_000, 5_000, 0));
    assert!(purges > 2 && counters.doubts >= purges);
    assert_eq!(checked_end(&mut client), 5_000);
}

#[test]
fn a_sink_fails_on_request_when_the_stream_stays_full() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let sink = small(&server.url()).outage(Outage::FailAfter(Duration::from_millis(200)));
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    assert!(feed(&mut tx, 100_000).is_err(), "the graph fails");
    let error = running.join().unwrap_err();
    refused!(error, Error::Full { .. }, "maximum bytes exceeded", "raise its limits", "remove");
    let end = checked_end(&mut client(&server));
    // The next sink fails as well, if the stream has no room for its begin messages.
    let mut config = client(&server).stream_info(STREAM).unwrap()["config"].clone();
    let state = client(&server).stream_info(STREAM).unwrap()["state"].clone();
    config["max_bytes"] = state["bytes"].clone();
    client(&server).api(&format!("STREAM.UPDATE.{STREAM}"), config).unwrap();
    let next = || Sink::to(At::at(server.url()), STREAM).open(numbers());
    let error = next().unwrap_err();
    refused!(error, Error::Full { .. }, "maximum bytes exceeded", "raise its limits", "remove");
    client(&server).purge(STREAM, Purge::Keep(1)).unwrap();
    assert_eq!(next().unwrap().next_seq(), end);
}

#[test]
fn a_sink_drops_on_request_when_the_stream_stays_full() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let sink = small(&server.url()).outage(Outage::DropAfter(Duration::from_millis(100)));
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    feed(&mut tx, 10_000).unwrap();
    until("dropped events", || running.counters().dropped > 5_000);
    assert_eq!(running.counters().state, State::Full);
    client(&server).purge(STREAM, Purge::Keep(1)).unwrap();
    until_state(&running, State::Publishing);
    feed(&mut tx, 10_100).unwrap();
    tx.close();
    let counters = running.join().unwrap();
    assert_eq!(counters.events + counters.dropped, 10_100);
    let frames = scan(&mut client(&server));
    let holes: u64 = frames.iter().map(|frame| frame.first - frame.after).sum();
    assert_eq!((holes, frames.last().unwrap().end()), (counters.dropped, 10_100));
}

#[test]
fn a_server_without_room_counts_as_full() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let server = Server::start(Options::new().max_file_store(16 << 10)).unwrap();
    let sink = sink(&server.url()).outage(Outage::FailAfter(Duration::from_millis(200)));
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    assert!(feed(&mut tx, 100_000).is_err(), "the graph fails");
    refused!(running.join().unwrap_err(), Error::Full { .. }, "resources", "raise its limits");
    checked_end(&mut client(&server));
}

#[test]
fn a_stream_that_discards_the_oldest_is_never_full() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let settings = StreamSettings::new(SUBJECT).max_bytes(8 << 10).discard_old();
    let sink = Sink::to(At::at(server.url()), STREAM).create(settings);
    let open = sink.outage(Outage::FailAfter(Duration::ZERO)).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 64);
    feed(&mut tx, 20_000).unwrap();
    tx.close();
    assert_eq!(running.join().unwrap().doubts, 0);
    assert_eq!(checked_end(&mut client(&server)), 20_000);
    // A source that needs removed events says where it can begin.
    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    let oldest = open.oldest().unwrap();
    assert!(oldest > 0);
    let (tx, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    assert!(rx.for_each(|_, _| ()).is_err(), "the ring halts");
    refused!(
        source.join().unwrap_err(),
        Error::Trimmed { wanted: 0, .. },
        oldest.to_string(),
        "first_seq",
        "raise the stream's limits"
    );
}

#[test]
fn an_emptied_stream_needs_a_position() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store(&server, 100);
    let mut client = client(&server);
    let last = client.stream_info(STREAM).unwrap()["state"]["last_seq"].to_string();
    client.purge(STREAM, Purge::All).unwrap();
    let error = sink(&server.url()).open(numbers()).unwrap_err();
    refused!(error, Error::Emptied { .. }, last, "Sink::resume_at");
    let open = sink(&server.url()).resume_at(100).open(numbers()).unwrap();
    assert_eq!(open.next_seq(), 100);
    let (mut tx, running) = start(open, 64);
    feed(&mut tx, 200).unwrap();
    tx.close();
    running.join().unwrap();
    let frames = scan(&mut client);
    assert_eq!((frames[0].after, frames.last().unwrap().end()), (100, 200));
}

/// An emptied stream does not show which events it had. So a source must not end there as if it had
/// read everything. A source that waits reports why it waits.
#[test]
fn a_source_of_an_emptied_stream_does_not_say_that_it_has_all() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store(&server, 100);
    let source = || Source::of(At::at(server.url()), STREAM);
    let journal = source().open().unwrap().journal().unwrap();
    client(&server).purge(STREAM, Purge::All).unwrap();
    let start = |source: Source, first| {
        let (tx, rx) = ring(first, 128);
        (source.open().unwrap().start(Decoding::<u64>::plain("number", 1), tx).unwrap(), rx)
    };
    for first in [0, 50, 100] {
        for source in [source().until_end(), source().until_end().expect_journal(journal)] {
            let (ending, _rx) = start(source, first);
            refused!(ending.join().unwrap_err(), Error::Emptied { .. }, "no message left");
        }
        let (waiting, _rx) = start(source().expect_journal(journal), first);
        until("the doubt", || waiting.progress().last_doubt.contains("no message left"));
        assert!(!waiting.is_finished());
    }
}

/// Opens a source that reads to the end, calls `change` before the source starts, and returns the
/// source's result.
fn changed(server: &Server, first: u64, change: impl FnOnce(&mut Client)) -> Error {
    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    change(&mut client(server));
    let (tx, mut rx) = ring(first, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    assert!(rx.for_each(|_, _| ()).is_err(), "the ring halts");
    source.join().unwrap_err()
}

#[test]
fn a_source_does_not_wait_for_an_end_that_is_gone() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store(&server, 50);
    store(&server, 100);
    let lost = |error| refused!(error, Error::LostAcknowledged { .. }, "position 149", "100");
    lost(changed(&server, 150, |_| ()));
    let cut = changed(&server, 0, |client| {
        let last = scan(client).last().unwrap().sequence;
        client.delete_message(STREAM, last).unwrap();
    });
    assert!(matches!(cut, Error::LostAcknowledged { acknowledged: Some(99), .. }), "{cut:?}");
    let purged = changed(&server, 0, |client| {
        client.purge(STREAM, Purge::All).unwrap();
    });
    refused!(purged, Error::Emptied { .. }, "first_seq");
}

/// The stream is recreated after a source has read all of it, and has no message yet.
#[test]
fn a_source_whose_ring_has_more_than_a_stream_without_messages_says_so() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store(&server, 100);
    let source = || Source::of(At::at(server.url()), STREAM);
    let journal = source().open().unwrap().journal().unwrap();
    let start = |source: Source, first| {
        let (tx, rx) = ring(first, 128);
        (source.open().unwrap().start(Decoding::<u64>::plain("number", 1), tx).unwrap(), rx)
    };
    let (following, _rx) = start(source(), 0);
    until("the events", || following.progress().next == 100);
    assert_eq!(following.progress().journal, Some(journal));
    let mut client = client(&server);
    let config = client.stream_info(STREAM).unwrap()["config"].clone();
    client.delete_stream(STREAM).unwrap();
    // The server (2.15.1) may still be removing the stream.
    until("another stream", || client.create_stream(config.clone()).is_ok());
    let lost = |error: Error| {
        refused!(
            error,
            Error::LostAcknowledged { acknowledged: Some(99), found: 0, .. },
            "position 99",
            "has no event"
        );
    };
    until("the end", || following.is_finished());
    assert!(following.progress().last_doubt.contains("position 99"), "{following:?}");
    lost(following.join().unwrap_err());
    lost(start(source().until_end(), 100).0.join().unwrap_err());
    lost(start(source().until_end().expect_journal(journal), 100).0.join().unwrap_err());
    lost(start(source().expect_journal(journal), 100).0.join().unwrap_err());

    // A ring at position 0 has lost nothing. A source that knows neither an end nor a journal
    // waits.
    start(source().until_end().expect_journal(journal), 0).0.join().unwrap();
    let (waiting, _of) = start(source(), 100);
    let open = sink(&server.url()).resume_at(100).open(numbers()).unwrap();
    until("the journal's number", || waiting.progress().journal == Some(open.journal()));
    assert!(!waiting.is_finished());
}

/// The server comes back with fewer events than a source has read. Then other events are stored at
/// the lost positions.
#[test]
fn a_source_that_has_read_later_messages_than_the_stream_has_says_so() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    store(&server, 50);
    server.stop().unwrap();
    let (store_now, saved) = (server.dir().join("store"), server.dir().join("saved"));
    copy(&store_now, &saved);
    server.restart().unwrap();
    for end in [60, 70, 80, 90, 100] {
        store(&server, end);
    }
    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (tx, _rx) = ring(0, 256);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    until("the events", || source.progress().next == 100);
    server.kill().unwrap();
    std::fs::remove_dir_all(&store_now).unwrap();
    std::fs::rename(&saved, &store_now).unwrap();
    server.restart().unwrap();
    store(&server, 120);
    until("the end", || source.is_finished());
    refused!(
        source.join().unwrap_err(),
        Error::LostAcknowledged { gone: Some(_), .. },
        "are gone",
        "accept the loss"
    );
}

#[test]
fn a_sink_in_doubt_goes_on_behind_frames_that_retention_removed() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let door = Proxy::to(server.port()).unwrap();
    let settings = StreamSettings::new(SUBJECT).max_bytes(2 << 10).discard_old();
    let sink = Sink::to(At::at(door.url()), STREAM).create(settings).max_frame(HEADER + 8 * 8);
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 1024);
    feed(&mut tx, 10).unwrap();
    until("the events", || running.counters().acknowledged == 10);
    door.swallow(Direction::ToClient, true);
    feed(&mut tx, 500).unwrap();
    let mut client = client(&server);
    // The frames in the window are stored, and then retention removes the first of them.
    until("frames", || scan(&mut client).first().is_some_and(|frame| frame.after > 10));
    door.swallow(Direction::ToClient, false);
    door.cut_now();
    tx.close();
    assert_eq!(running.join().unwrap().acknowledged, 500);
    assert_eq!(checked_end(&mut client), 500);
}

#[test]
fn a_source_leaves_no_consumer_at_the_server() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store(&server, 100);
    let mut client = client(&server);
    let mut consumers = || {
        let names = client.api(&format!("CONSUMER.NAMES.{STREAM}"), json!({})).unwrap();
        names["consumers"].as_array().unwrap().clone()
    };
    let door = Proxy::to(server.port()).unwrap();
    let open = Source::of(At::at(door.url()), STREAM).open().unwrap();
    let (tx, _rx) = ring(0, 128);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    until("the events", || source.progress().next == 100);
    assert_eq!((consumers().len(), source.progress().last_doubt), (1, String::new()));
    for _ in 0..3 {
        let before = consumers();
        door.cut_now();
        until("another consumer", || {
            let now = consumers();
            now.len() == 1 && now != before
        });
    }
    let progress = source.progress();
    assert!(progress.restarts >= 3 && !progress.last_doubt.is_empty(), "{progress:?}");
    source.stop();
    source.join().unwrap();
    until("no consumer", || consumers().is_empty());
}

#[test]
fn a_source_reads_a_stream_that_limits_its_consumers() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let mut client = client(&server);
    let limits = json!({ "inactive_threshold": 30_000_000_000_u64 });
    let config = json!({ "name": STREAM, "subjects": [SUBJECT], "storage": "file",
        "discard": "new", "consumer_limits": limits });
    client.create_stream(config).unwrap();
    let (mut tx, running) =
        start(Sink::to(At::at(server.url()), STREAM).window(1).open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    tx.close();
    running.join().unwrap();
    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    let (tx, mut rx) = ring(0, 128);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    assert_eq!(rx.for_each(|_, _| ()).unwrap(), 100);
    assert_eq!(source.join().unwrap().restarts, 0);
}

#[test]
fn a_running_sink_goes_on_behind_a_purge_of_all() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    for end in [100, 200, 300] {
        feed(&mut tx, end).unwrap();
        until("the events", || running.counters().acknowledged == end);
        client(&server).purge(STREAM, Purge::All).unwrap();
        if end == 200 {
            // The sink is in doubt, and nothing was appended since the last acknowledgement.
            server.restart().unwrap();
        }
    }
    tx.close();
    assert_eq!(running.join().unwrap().acknowledged, 300);
}

#[test]
fn a_sink_in_doubt_about_a_frame_that_was_purged_ends_as_emptied() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let unanswered = Unanswered::start(&server);
    let mut client = client(&server);
    client.purge(STREAM, Purge::All).unwrap();
    refused!(unanswered.failure(), Error::Emptied { .. }, "Sink::resume_at");
}

#[test]
fn a_stream_that_is_deleted_ends_its_sink_and_its_source() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (to, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), to).unwrap();
    until("the events", || {
        rx.poll(64, |_, _| ()).unwrap();
        rx.next_seq() == 100
    });
    client(&server).delete_stream(STREAM).unwrap();
    let _ = feed(&mut tx, 200);
    refused!(running.join().unwrap_err(), Error::NoStream { .. }, STREAM, "create it");
    refused!(source.join().unwrap_err(), Error::NoStream { .. }, STREAM, "create it");
    assert!(rx.for_each(|_, _| ()).is_err(), "the ring halts");
}

#[test]
fn a_stream_that_is_made_anew_without_a_message_ends_its_sink() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    until("the events", || running.counters().acknowledged == 100);
    let mut client = client(&server);
    let config = client.stream_info(STREAM).unwrap()["config"].clone();
    client.delete_stream(STREAM).unwrap();
    until("another stream", || client.create_stream(config.clone()).is_ok());
    let _ = feed(&mut tx, 200);
    refused!(
        running.join().unwrap_err(),
        Error::LostAcknowledged { acknowledged: Some(99), found: 0, .. },
        "position 99",
        "has no event"
    );
}

/// Writes a message that looks like a frame, and returns the errors of the sink and the source.
fn strange(server: &Server, payload: &[u8], headers: Option<&[(&str, &str)]>) -> [Error; 2] {
    let (seq, _) = client(server).publish_acknowledged(SUBJECT, headers, payload).unwrap();
    let errors = [
        sink(&server.url()).open(numbers()).unwrap_err(),
        Source::of(At::at(server.url()), STREAM).open().unwrap_err(),
    ];
    for error in &errors {
        let seq = seq.to_string();
        checks::says(error, &[&format!("message of sequence {seq} is")]);
    }
    client(server).delete_message(STREAM, seq).unwrap();
    errors
}

#[test]
fn messages_of_others_and_damaged_ones_are_refused() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store(&server, 10);
    let frame = client(&server).messages(STREAM).unwrap().pop().unwrap().payload;
    for payload in [&b"hello"[..], b"", &frame[..50], &[0; 104]] {
        for error in strange(&server, payload, None) {
            refused!(error, Error::Foreign { .. }, "none of ours", "remove");
        }
    }
    let mut damaged = frame.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let mut newer = frame.clone();
    newer[8] = 2;
    for (payload, what) in
        [(&damaged, "checksum"), (&frame[..110].to_vec(), "length"), (&newer, "version")]
    {
        for error in strange(&server, payload, None) {
            refused!(error, Error::Damaged { .. }, "damaged", what);
        }
    }
    for error in strange(&server, b"x", Some(&[("Slipring", "1 2 3")])) {
        refused!(error, Error::Damaged { .. }, "damaged");
    }
    // The sink cannot know that the lost messages had no events.
    refused!(
        sink(&server.url()).open(numbers()).unwrap_err(),
        Error::LostAcknowledged { acknowledged: None, found: 10, gone: Some((3, 10)) },
        "sequences 3 to 10 are gone",
        "Sink::resume_at"
    );
    let journal = scan(&mut client(&server))[0].ring.to_be_bytes();
    let open = sink(&server.url()).resume_at(10).open(numbers()).unwrap();
    assert_eq!((open.next_seq(), open.journal()), (10, journal));
}

#[test]
fn a_source_that_meets_a_strange_message_halts_its_ring_behind_the_events_before() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 50).unwrap();
    until("the first events", || running.counters().acknowledged == 50);
    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (to, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), to).unwrap();
    until("the events", || {
        rx.poll(64, |_, _| ()).unwrap();
        rx.next_seq() == 50
    });
    client(&server).publish_acknowledged(SUBJECT, None, b"hello").unwrap();
    refused!(source.join().unwrap_err(), Error::Foreign { .. }, "none of ours", "remove");
    assert!(rx.for_each(|_, _| ()).is_err(), "the ring halts");
    assert_eq!(rx.next_seq(), 50);
    // The sink finds the foreign message at its next append.
    let _ = feed(&mut tx, 100);
    refused!(running.join().unwrap_err(), Error::Foreign { .. }, "none of ours", "remove");
}

#[test]
fn a_source_of_another_type_is_refused() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store(&server, 50);
    let decoding = Decoding::<u64>::plain("number", 2);
    let (ours, theirs) = (decoding.fingerprint(), numbers().fingerprint());
    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    let (tx, mut rx) = ring(0, 64);
    let source = open.start(decoding, tx).unwrap();
    assert!(rx.for_each(|_, _| ()).is_err(), "the ring halts");
    refused!(
        source.join().unwrap_err(),
        Error::WrongType { .. },
        format!("{ours:016x}"),
        format!("{theirs:016x}"),
        "use the type's name and version"
    );
}

#[test]
fn a_ring_that_does_not_go_on_behind_the_stream_is_refused() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store(&server, 50);
    for first in [0, 49, 51] {
        let open = sink(&server.url()).open(numbers()).unwrap();
        let (_tx, stage) = ring(first, 64);
        refused!(
            open.start(stage).unwrap_err(),
            Error::WrongEpoch { stream: 50, .. },
            format!("goes on at {first}"),
            "first_seq(50)"
        );
    }
}

#[test]
fn an_encoder_that_makes_too_large_an_event_ends_the_sink() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let server = Server::start(Options::new().max_payload(4096)).unwrap();
    let bytes = |length: &u64, to: &mut Vec<u8>| to.resize(*length as usize, 7);
    let frames = Encoding::by("bytes", 1, bytes);
    let messages = Encoding::messages("bytes", 1, |_| SUBJECT.into(), bytes);
    for (name, encoding, fits) in [("FRAMES", frames, 3500), ("MESSAGES", messages, 3000)] {
        let mut client = client(&server);
        let config = json!({ "name": name, "subjects": [SUBJECT], "allow_atomic": true });
        client.create_stream(config).unwrap();
        let open = Sink::to(At::at(server.url()), name).open(encoding).unwrap();
        let (mut tx, running) = start(open, 64);
        for length in [0, 1, fits, fits, 0] {
            tx.publish(|slot| *slot = length).unwrap();
        }
        until("what fits", || running.counters().acknowledged == 5);
        tx.publish(|slot| *slot = 5000).unwrap();
        until("the end", || running.is_finished());
        assert!(tx.publish(|slot| *slot = 1).is_err(), "the graph fails");
        refused!(
            running.join().unwrap_err(),
            Error::TooLarge { .. },
            "max_payload",
            "make events smaller"
        );
        client.delete_stream(name).unwrap();
    }
}

#[test]
fn a_hole_needs_a_ring_with_several_producers() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let open = sink(&server.url()).open(numbers()).unwrap();
    let graph = Graph::new(64, || 0u64).shared();
    let key = graph.reader("journal");
    let ring_of_many = graph.build().unwrap();
    let (mut tx, journal) = (ring_of_many.producer(), ring_of_many.reader(key));
    let running = open.start(journal).unwrap();
    for seq in [0, 1] {
        assert_eq!(tx.publish(|slot| *slot = event(seq)).unwrap(), seq);
    }
    drop(tx.claim_n(3).unwrap());
    assert_eq!(tx.publish(|slot| *slot = event(5)).unwrap(), 5);
    drop(tx);
    assert_eq!(running.join().unwrap().acknowledged, 6);

    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    let (tx, mut rx) = ring(0, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    assert!(rx.for_each(|_, _| ()).is_err(), "the ring halts");
    assert!(rx.next_seq() <= 2);
    refused!(
        source.join().unwrap_err(),
        Error::Hole { from: 2, to: 5 },
        "from position 2 up to 5",
        "Graph::shared"
    );
}
