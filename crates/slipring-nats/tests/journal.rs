//! A journal without faults: a sink, its restart, and a source.

#[path = "common/checks.rs"]
mod checks;
mod common;

use checks::{refused, until, until_next};
use common::*;
use serde_json::json;
use slipring::Graph;
use slipring_nats::{Decoding, Error, Server as At, Sink, Source};
use slipring_nats_server::{Purge, Server};

#[test]
fn a_restarted_sink_goes_on_behind_the_streams_last_event() {
    let _watched = watched();
    let Some(server) = server() else { return };
    for round in 0..3 {
        let open = sink(&server.url()).open(numbers()).unwrap();
        assert_eq!(open.next_seq(), round * 10_000);
        let (mut tx, running) = start(open, 1024);
        feed(&mut tx, (round + 1) * 10_000).unwrap();
        tx.close();
        let counters = running.join().unwrap();
        assert_eq!((counters.events, counters.incarnation), (10_000, round + 1));
        assert_eq!((counters.acknowledged, counters.lag), ((round + 1) * 10_000, 0));
    }
    let frames = scan(&mut client(&server));
    assert_eq!(frames.last().unwrap().end(), 30_000);
    // A sink begins with as many messages as its predecessor may have in flight, which is 8. The
    // first sink has no predecessor, and begins with one message.
    let begun = frames.iter().filter(|frame| frame.events.is_empty()).count();
    assert_eq!(begun, 1 + 8 + 8);
    // The rings have different epochs, but belong to one journal.
    assert!(frames.iter().all(|frame| frame.ring == frames[0].ring));
    assert!(frames[0].epoch != frames.last().unwrap().epoch);
}

#[test]
fn a_source_fills_a_ring_with_the_sinks_positions() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).resume_at(77).open(numbers()).unwrap(), 256);
    feed(&mut tx, 50_077).unwrap();
    tx.close();
    running.join().unwrap();

    for first in [77, 78, 30_000, 50_076] {
        let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
        assert_eq!((open.oldest(), open.end()), (Some(77), Some(50_077)));
        let (tx, mut rx) = ring(first, 128);
        let source = open.start(Decoding::plain("number", 1), tx).unwrap();
        let mut next = first;
        rx.for_each(|value, at| {
            assert_eq!((*value, at.seq), (event(next), next));
            next += 1;
        })
        .unwrap();
        assert_eq!(next, 50_077);
        assert_eq!(source.join().unwrap().events, 50_077 - first);
    }
}

/// Reads the stream to its end, and returns the position behind it.
fn read_all(server: &Server, stream: &str, first: u64) -> u64 {
    let open = Source::of(At::at(server.url()), stream).until_end().open().unwrap();
    let (tx, mut rx) = ring(first, 128);
    let source = open.start(Decoding::plain("number", 1), tx).unwrap();
    let checked = |value: &u64, at: slipring::At| assert_eq!(*value, event(at.seq));
    rx.for_each(checked).unwrap();
    source.join().unwrap().next
}

#[test]
fn a_mirror_can_be_read() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let mut client = client(&server);
    store(&server, 1000);
    client.create_stream(json!({ "name": "MIRROR", "mirror": { "name": STREAM } })).unwrap();
    let mut end = |name: &str| client.stream_info(name).unwrap()["state"]["last_seq"].clone();
    let all = end(STREAM);
    until("the mirror", || end("MIRROR") == all);
    assert_eq!(read_all(&server, "MIRROR", 0), 1000);
}

#[test]
fn a_stream_may_begin_at_any_sequence() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let mut client = client(&server);
    let config = json!({ "name": STREAM, "subjects": [SUBJECT], "first_seq": 1000 });
    client.create_stream(config).unwrap();
    let open = sink(&server.url()).resume_at(5).open(numbers()).unwrap();
    assert_eq!(open.next_seq(), 5);
    let (mut tx, running) = start(open, 64);
    feed(&mut tx, 505).unwrap();
    tx.close();
    running.join().unwrap();
    assert_eq!(scan(&mut client)[0].sequence, 1000);
    assert_eq!(read_all(&server, STREAM, 5), 505);
    store(&server, 600); // a second sink continues behind the first
    assert_eq!(scan(&mut client).last().unwrap().end(), 600);

    // If the stream is unused, a source that was asked to read to its end stops at once, and a sink
    // begins at position 0.
    client.delete_stream(STREAM).unwrap();
    client.create_stream(json!({ "name": STREAM, "subjects": [SUBJECT], "first_seq": 7 })).unwrap();
    assert_eq!(read_all(&server, STREAM, 0), 0);
    store(&server, 10);
    assert_eq!(read_all(&server, STREAM, 0), 10);

    // A used stream that is empty has lost events, even if its first sequence was moved.
    client.purge(STREAM, Purge::All).unwrap();
    let last = client.stream_info(STREAM).unwrap()["state"]["last_seq"].as_u64().unwrap();
    let mut config = client.stream_info(STREAM).unwrap()["config"].clone();
    config["first_seq"] = json!(last + 1);
    client.api(&format!("STREAM.UPDATE.{STREAM}"), config).unwrap();
    let error = sink(&server.url()).open(numbers()).unwrap_err();
    assert!(matches!(error, Error::Emptied { last_sequence } if last_sequence == last), "{error}");
}

#[test]
fn a_source_leaves_out_the_positions_that_had_no_events() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let open = sink(&server.url()).open(numbers()).unwrap();
    let graph = Graph::new(64, || 0u64).shared();
    let key = graph.reader("journal");
    let ring = graph.build().unwrap();
    let (mut tx, journal) = (ring.producer(), ring.reader(key));
    let running = open.start(journal).unwrap();
    let mut expected = Vec::new();
    for round in 0..500u64 {
        // Some claims are given up, and leave holes of one to three positions.
        drop(tx.claim_n(1 + round as usize % 3).unwrap());
        let seq = tx.publish_at();
        expected.push(seq);
    }
    drop(tx);
    running.join().unwrap();
    let frames = scan(&mut client(&server));
    assert!(frames.iter().any(|frame| frame.first > frame.after));

    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    let graph = Graph::new(64, || 0u64).shared();
    let key = graph.reader("replay");
    let ring = graph.build().unwrap();
    let mut replay = ring.reader(key);
    let source = open.start(Decoding::plain("number", 1), ring.producer()).unwrap();
    let mut seen = Vec::new();
    replay
        .for_each(|value, at| {
            assert_eq!(*value, event(at.seq));
            seen.push(at.seq);
        })
        .unwrap();
    assert_eq!(seen, expected);
    source.join().unwrap();
}

/// Publishes the event that belongs to the next position, whatever that position is.
trait PublishAt {
    fn publish_at(&mut self) -> u64;
}

impl PublishAt
    for slipring::Producer<u64, slipring::markers::Interleaved, slipring::markers::Many>
{
    fn publish_at(&mut self) -> u64 {
        let mut slot = self.claim().unwrap();
        *slot = event(slot.seq());
        slot.publish()
    }
}

#[test]
fn a_sink_is_a_stage_of_a_chain() {
    let _watched = watched();
    let Some(server) = server() else { return };
    for round in 0..2 {
        let open = sink(&server.url()).open(numbers()).unwrap();
        let (next, watch) = (open.next_seq(), open.watch());
        slipring::ring(256, || 0u64)
            .first_seq(next)
            .update("mix", |value, at| {
                assert_eq!(*value, at.seq);
                *value = event(*value);
            })
            .read_by("journal", |rx| open.run(rx).map(drop))
            .feed(next..next + 3_000, |slot, seq| *slot = seq)
            .unwrap();
        assert_eq!(watch.counters().acknowledged, (round + 1) * 3_000);
    }
    assert_eq!(scan(&mut client(&server)).last().unwrap().end(), 6_000);
}

#[test]
fn a_chain_whose_sink_is_stopped_fails_with_the_stages_name() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let open = sink(&server.url()).open(numbers()).unwrap();
    let watch = open.watch();
    let error = slipring::ring(256, || 0u64)
        .read_by("journal", |rx| open.run(rx).map(drop))
        .run(|tx| {
            tx.publish(|slot| *slot = event(0))?;
            watch.stop();
            while tx.publish(|slot| *slot = 1).is_ok() {}
            Ok(())
        })
        .unwrap_err();
    assert!(error.to_string().contains("`journal` failed"), "{error}");
}

/// Opens the sink, and stores the events up to position `end` through a new ring.
fn store_by(sink: Sink, end: u64) {
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    feed(&mut tx, end).unwrap();
    tx.close();
    running.join().unwrap();
}

#[test]
fn a_journal_keeps_its_number_by_its_users_word() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let to = || sink(&server.url());
    let source = || Source::of(At::at(server.url()), STREAM);
    store_by(to(), 100);
    let journal = source().open().unwrap().journal().unwrap();
    let (tx, mut rx) = ring(0, 1024);
    let open = source().expect_journal(journal).open().unwrap();
    let following = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    until_next(&following, 100);
    let mut client = client(&server);
    for end in [200, 300] {
        client.purge(STREAM, Purge::All).unwrap();
        store_by(to().resume_at(end - 100).journal(journal), end);
        until_next(&following, end);
    }
    // As long as the stream has messages, the user needs to name only the number.
    store_by(to().journal(journal), 400);
    until_next(&following, 400);
    assert_eq!(following.progress().journal, Some(journal));
    refused!(
        to().journal([7; 16]).open(numbers()).unwrap_err(),
        Error::OtherJournal { .. },
        "07".repeat(16),
        "Sink::journal"
    );
    // Without a number from the user, the journal gets a new one.
    client.purge(STREAM, Purge::All).unwrap();
    store_by(to().resume_at(400), 500);
    until("the end", || following.is_finished());
    refused!(following.join().unwrap_err(), Error::OtherJournal { .. }, "Source::expect_journal");
    assert!(rx.for_each(|_, _| ()).is_err(), "the ring halts");
}

#[test]
fn a_source_that_is_opened_before_the_first_event_learns_the_journals_number() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let config = serde_json::json!({ "name": STREAM, "subjects": [SUBJECT], "allow_atomic": true });
    client(&server).create_stream(config).unwrap();
    let start = || {
        let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
        let number = open.journal();
        let (tx, rx) = ring(0, 64);
        (open.start(Decoding::<u64>::plain("number", 1), tx).unwrap(), number, rx)
    };
    let (early, number, _rx) = start();
    assert_eq!((number, early.progress().journal), (None, None));
    let open = sink(&server.url()).open(numbers()).unwrap();
    until("the number", || early.progress().journal.is_some());
    assert_eq!(early.progress().journal, Some(open.journal()));
    // A sink has begun, but there is no event yet.
    let (later, number, _rx) = start();
    assert_eq!(number, Some(open.journal()));
    until("the same number", || later.progress().journal == number);
}
