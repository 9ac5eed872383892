//! Named consumers: their acknowledgements, and the removal of acknowledged events.

#[path = "common/checks.rs"]
mod checks;
mod common;

use checks::{refused, until};
use common::*;
use serde_json::json;
use slipring_nats::{Decoding, Error, NamedConsumer, Server as At, Source, StreamSettings, trim};
use slipring_nats_server::{Cluster, Purge, Server, free_port};

/// Stores the events up to position `end`, at most ten per message.
fn store_small(server: &Server, end: u64) {
    let open = sink(&server.url()).max_frame(HEADER + 10 * 8).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 64);
    feed(&mut tx, end).unwrap();
    tx.close();
    running.join().unwrap();
}

fn named(server: &Server, name: &str) -> NamedConsumer {
    NamedConsumer::open(At::at(server.url()), STREAM, name).unwrap()
}

/// Returns the position at which a newly opened consumer continues.
fn next(server: &Server, name: &str) -> u64 {
    named(server, name).next_seq().unwrap()
}

fn trimmed(server: &Server, names: &[&str]) -> Result<slipring_nats::Trim, Error> {
    trim(At::at(server.url()), STREAM, names)
}

/// Reads the events from `first` to the stream's end, and returns their number.
fn read(server: &Server, first: u64) -> Result<u64, Error> {
    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    let (tx, mut rx) = ring(first, 64);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    let _ = rx.for_each(|value, at| assert_eq!(*value, event(at.seq)));
    source.join().map(|progress| progress.events)
}

/// Returns the first position of the message that has position `seq`.
fn message_of(frames: &[Frame], seq: u64) -> u64 {
    frames.iter().find(|frame| frame.end() > seq).map_or(seq, |frame| frame.after)
}

#[test]
fn a_consumer_goes_on_where_it_has_acknowledged() {
    let _watched = watched();
    let Some(server) = server() else { return };
    sink(&server.url()).open(numbers()).unwrap();
    assert_eq!(next(&server, "empty"), 0);
    store_small(&server, 1000);
    let frames = scan(&mut client(&server));
    assert_eq!((next(&server, "billing"), next(&server, "empty")), (0, 0));
    let mut billing = named(&server, "billing");
    for seq in [1, 10, 11, 400, 999, 1000] {
        billing.acknowledge(seq).unwrap();
        assert_eq!(billing.next_seq(), Some(seq));
        // A message that was acknowledged in part comes again.
        assert_eq!(next(&server, "billing"), message_of(&frames, seq), "{seq}");
    }
    // The note can be moved back.
    billing.acknowledge(300).unwrap();
    assert_eq!(next(&server, "billing"), message_of(&frames, 300));
    billing.acknowledge(1000).unwrap();
    for beyond in [1001, u64::MAX] {
        let error = billing.acknowledge(beyond).unwrap_err();
        refused!(error, Error::LostAcknowledged { .. }, "position 1000", "acknowledged");
    }
    assert_eq!((billing.next_seq(), next(&server, "billing")), (Some(1000), 1000));
    store_small(&server, 1100);
    assert_eq!(next(&server, "billing"), 1000);
    billing.acknowledge(1100).unwrap();
    // The note belongs to the stream, and is gone with it.
    client(&server).delete_stream(STREAM).unwrap();
    sink(&server.url()).open(numbers()).unwrap();
    assert_eq!(next(&server, "other"), 0);
    refused!(billing.acknowledge(0).unwrap_err(), Error::NoConsumer { .. }, STREAM, "billing");
}

/// The stream is recreated. A handle that was opened before fails, and does not move the note of a
/// handle that was opened afterwards.
#[test]
fn a_consumer_does_not_outlive_its_stream() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store_small(&server, 1000);
    let mut old = named(&server, "billing");
    old.acknowledge(500).unwrap();
    client(&server).delete_stream(STREAM).unwrap();
    refused!(old.acknowledge(501).unwrap_err(), Error::NoStream { .. }, STREAM);
    store_small(&server, 100);
    let mut billing = named(&server, "billing");
    billing.acknowledge(50).unwrap();
    let held = next(&server, "billing");
    for seq in [0, 50, 100, 101, 500, 501, 1000] {
        let error = old.acknowledge(seq).unwrap_err();
        refused!(error, Error::NoConsumer { .. }, STREAM, "billing", "open it");
    }
    assert_eq!((old.next_seq(), next(&server, "billing")), (Some(500), held));
    assert_eq!(trimmed(&server, &["billing"]).unwrap().oldest, Some(held));
    billing.acknowledge(100).unwrap();
}

/// One handle has acknowledged the whole stream. The stream of the other handle has lost its end.
#[test]
fn what_the_stream_does_not_have_is_not_acknowledged() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store_small(&server, 100);
    let mut billing = named(&server, "billing");
    let beyond = |billing: &mut NamedConsumer, seq| {
        let error = billing.acknowledge(seq).unwrap_err();
        refused!(error, Error::LostAcknowledged { .. }, "acknowledged");
    };
    billing.acknowledge(100).unwrap();
    beyond(&mut billing, 101);
    beyond(&mut billing, u64::MAX);
    billing.acknowledge(100).unwrap();
    let mut client = client(&server);
    let last = scan(&mut client).pop().unwrap();
    client.delete_message(STREAM, last.sequence).unwrap();
    beyond(&mut billing, 100);
    beyond(&mut billing, 101);
    billing.acknowledge(last.after).unwrap();
    assert_eq!(next(&server, "billing"), last.after);

    // A stream that was never used ends at 0.
    client.delete_stream(STREAM).unwrap();
    sink(&server.url()).open(numbers()).unwrap();
    let mut billing = named(&server, "billing");
    beyond(&mut billing, 1);
    billing.acknowledge(0).unwrap();
    assert_eq!(next(&server, "billing"), 0);
}

/// A mirror cannot have notes, because its positions need not grow with its sequences.
#[test]
fn a_mirror_has_no_named_consumers() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store_small(&server, 100);
    let mirror = json!({ "name": "MIRROR", "mirror": { "name": STREAM } });
    client(&server).create_stream(mirror).unwrap();
    let at = || At::at(server.url());
    let error = NamedConsumer::open(at(), "MIRROR", "billing").unwrap_err();
    refused!(error, Error::WrongStream { .. }, "MIRROR", "it is a mirror", "its origin");
    let error = trim(at(), "MIRROR", &["billing"]).unwrap_err();
    refused!(error, Error::WrongStream { .. }, "MIRROR", "it is a mirror", "its origin");
}

#[test]
fn what_all_named_consumers_have_acknowledged_is_removed_and_no_more() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store_small(&server, 1000);
    let frames = scan(&mut client(&server));
    let (mut billing, mut audit) = (named(&server, "billing"), named(&server, "audit"));
    billing.acknowledge(700).unwrap();
    // All messages are kept for a consumer that has acknowledged nothing.
    let trim = trimmed(&server, &["billing", "audit"]).unwrap();
    assert_eq!((trim.messages, trim.oldest, trim.held_by.as_str()), (0, Some(0), "audit"));
    audit.acknowledge(405).unwrap();
    let trim = trimmed(&server, &["billing", "audit"]).unwrap();
    let left = scan(&mut client(&server));
    assert_eq!(
        (trim.held_by.as_str(), trim.messages),
        ("audit", (frames.len() - left.len()) as u64)
    );
    let held = message_of(&frames, 405);
    assert_eq!((trim.oldest, left[0].after), (Some(held), held));
    // A source that needs the remaining events gets them all. One that needs more fails.
    assert_eq!(next(&server, "audit"), held);
    assert_eq!(read(&server, 405).unwrap(), 595);
    refused!(read(&server, held - 1).unwrap_err(), Error::Trimmed { .. }, held.to_string());
    refused!(audit.acknowledge(held - 1).unwrap_err(), Error::Trimmed { .. }, held.to_string());
    // A note with a new name begins at the oldest remaining event.
    assert_eq!(next(&server, "late"), held);

    // The last message stays, and a sink continues behind it.
    for consumer in [&mut billing, &mut audit] {
        consumer.acknowledge(1000).unwrap();
    }
    let trim = trimmed(&server, &["audit", "billing"]).unwrap();
    let last = frames.last().unwrap();
    assert_eq!(trim.oldest, Some(last.first));
    assert_eq!(scan(&mut client(&server)), std::slice::from_ref(last));
    assert_eq!(trimmed(&server, &["audit"]).unwrap().messages, 0);
    store_small(&server, 1200);
    assert_eq!((next(&server, "audit"), next(&server, "billing")), (1000, 1000));
    assert_eq!(read(&server, 1000).unwrap(), 200);
}

/// A program is killed after it has done more than it has acknowledged.
#[test]
fn a_crash_before_the_acknowledgement_only_keeps_more() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    store_small(&server, 1000);
    let mut billing = named(&server, "billing");
    billing.acknowledge(200).unwrap();
    let source = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (tx, mut rx) = ring(200, 64);
    let source = source.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    let mut done = 200;
    while done < 600 {
        done += rx.poll(64, |value, at| assert_eq!(*value, event(at.seq))).unwrap() as u64;
    }
    // The program has handled and released these events, but the server does not know that.
    drop((billing, source, rx));
    server.kill().unwrap();
    server.restart().unwrap();
    trimmed(&server, &["billing"]).unwrap();
    let first = next(&server, "billing");
    assert!((190..=200).contains(&first), "{first}");
    assert_eq!(read(&server, first).unwrap(), 1000 - first);
    named(&server, "billing").acknowledge(done).unwrap();
    trimmed(&server, &["billing"]).unwrap();
    assert_eq!(read(&server, done).unwrap(), 1000 - done);
}

#[test]
fn a_stream_is_trimmed_while_a_sink_writes_it() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let open = sink(&server.url()).max_frame(HEADER + 10 * 8).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 256);
    let mut billing = named(&server, "billing");
    let mut removed = 0;
    for round in 1..=40 {
        feed(&mut tx, round * 500).unwrap();
        billing.acknowledge(running.counters().acknowledged).unwrap();
        removed += trimmed(&server, &["billing"]).unwrap().messages;
    }
    tx.close();
    let counters = running.join().unwrap();
    assert_eq!((counters.acknowledged, counters.events, counters.doubts), (20_000, 20_000, 0));
    billing.acknowledge(20_000).unwrap();
    removed += trimmed(&server, &["billing"]).unwrap().messages;
    let frames = scan(&mut client(&server));
    assert_eq!((frames.len(), frames[0].end()), (1, 20_000));
    assert_eq!(frames[0].sequence, removed + 1);
    store_small(&server, 20_100);
    assert_eq!(read(&server, next(&server, "billing")).unwrap(), 100);
}

#[test]
fn names_that_say_nothing_are_refused() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let at = || At::at(server.url());
    let error = NamedConsumer::open(at(), STREAM, "billing").unwrap_err();
    refused!(error, Error::NoStream { .. }, STREAM);
    store_small(&server, 100);
    for name in ["", "a.b", "a b", "*", "a/b", &"x".repeat(256)] {
        let error = NamedConsumer::open(at(), STREAM, name).unwrap_err();
        refused!(error, Error::Option { .. }, "is no name of a consumer");
        let error = trimmed(&server, &[name]).unwrap_err();
        refused!(error, Error::Option { .. }, "is no name of a consumer");
    }
    refused!(trimmed(&server, &[]).unwrap_err(), Error::Option { .. }, "no consumer is named");
    let mut billing = named(&server, "billing");
    billing.acknowledge(100).unwrap();
    let error = trimmed(&server, &["billing", "biling"]).unwrap_err();
    refused!(error, Error::NoConsumer { .. }, STREAM, "biling", "NamedConsumer::open");

    // A consumer that another program has made counts for `trim` if it acknowledges. It cannot be
    // opened as a note.
    let mut client = client(&server);
    for (name, policy) in [("go", "explicit"), ("tail", "none")] {
        let config = json!({ "name": name, "durable_name": name, "ack_policy": policy });
        let request = json!({ "stream_name": STREAM, "config": config });
        client.api(&format!("CONSUMER.CREATE.{STREAM}.{name}"), request).unwrap();
        let error = NamedConsumer::open(at(), STREAM, name).unwrap_err();
        refused!(error, Error::Option { .. }, name, "choose another name");
    }
    assert_eq!(trimmed(&server, &["billing", "go"]).unwrap().held_by, "go");
    let error = trimmed(&server, &["billing", "tail"]).unwrap_err();
    refused!(error, Error::Option { .. }, "tail", "acknowledges nothing");
    assert_eq!(read(&server, 0).unwrap(), 100, "nothing was removed");

    // Calls that the server refuses.
    let mut config = client.stream_info(STREAM).unwrap()["config"].clone();
    config["deny_purge"] = json!(true);
    client.api(&format!("STREAM.UPDATE.{STREAM}"), config).unwrap();
    refused!(trimmed(&server, &["billing"]).unwrap_err(), Error::Server { .. }, "purge");

    // A removed name is unknown, and can be opened again from the start.
    billing.remove().unwrap();
    refused!(trimmed(&server, &["billing"]).unwrap_err(), Error::NoConsumer { .. }, "billing");
    assert_eq!(next(&server, "billing"), 0);
    let nowhere = At::at(format!("nats://127.0.0.1:{}", free_port().unwrap()));
    let error = NamedConsumer::open(nowhere.clone(), STREAM, "a").unwrap_err();
    refused!(error, Error::Unreachable { .. }, "check the address");
    refused!(trim(nowhere, STREAM, &["a"]).unwrap_err(), Error::Unreachable { .. }, "address");
}

#[test]
fn an_emptied_stream_has_notes_still() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store_small(&server, 100);
    let mut billing = named(&server, "billing");
    billing.acknowledge(50).unwrap();
    client(&server).purge(STREAM, Purge::All).unwrap();
    assert_eq!(named(&server, "billing").next_seq(), None);
    let trim = trimmed(&server, &["billing"]).unwrap();
    assert_eq!((trim.messages, trim.oldest), (0, None));
    let open = sink(&server.url()).resume_at(100).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 64);
    feed(&mut tx, 110).unwrap();
    tx.close();
    running.join().unwrap();
    assert_eq!(next(&server, "billing"), 100);
}

#[test]
fn a_note_outlives_a_server_of_a_cluster() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let mut cluster = Cluster::of_three().unwrap();
    let urls = cluster.urls();
    let at = || At::at(&urls[0]).or_at(&urls[1]).or_at(&urls[2]);
    let settings = StreamSettings::new(SUBJECT).replicas(3);
    let sink = || slipring_nats::Sink::to(at(), STREAM).create(settings.clone());
    let (mut tx, running) = start(sink().max_frame(HEADER + 8).open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    until("the events", || running.counters().acknowledged == 100);
    let mut billing = NamedConsumer::open(at(), STREAM, "billing").unwrap();
    billing.acknowledge(60).unwrap();
    let leader = cluster.leader_of(STREAM).unwrap();
    cluster.kill(leader).unwrap();
    cluster.wait_for_leader(STREAM).unwrap();
    let mut opened = None;
    until("the note", || {
        opened = NamedConsumer::open(at(), STREAM, "billing").ok();
        opened.is_some()
    });
    assert_eq!(opened.unwrap().next_seq(), Some(60));
    until("the acknowledgement", || billing.acknowledge(80).is_ok());
    until("the removal", || {
        trim(at(), STREAM, &["billing"]).is_ok_and(|trim| trim.oldest == Some(80))
    });
    tx.close();
    running.join().unwrap();
}
