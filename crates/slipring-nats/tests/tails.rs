//! Streams that have lost their end, according to the server itself.

#[path = "common/checks.rs"]
mod checks;
mod common;

use std::path::PathBuf;

use checks::{Unanswered, refused, until, until_next};
use common::*;
use slipring_nats::{Error, Progress, Server as At, Source};
use slipring_nats_server::{Client, Proxy, Server};

/// The file of the stream's last messages.
fn last_block(server: &Server) -> PathBuf {
    let folder = server.dir().join("store/jetstream/$G/streams").join(STREAM).join("msgs");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|name| name == "blk")).max().unwrap()
}

/// Stores the events up to position 1000, in frames of 8 events at most.
fn store_1000(server: &Server) {
    let sink = sink(&server.url()).max_frame(HEADER + 8 * 8);
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    feed(&mut tx, 1000).unwrap();
    tx.close();
    running.join().unwrap();
}

fn last_sequence(client: &mut Client) -> u64 {
    client.stream_info(STREAM).unwrap()["state"]["last_seq"].as_u64().unwrap()
}

type Way = fn(&mut Server);
/// Ways in which a stream loses its last messages.
const WAYS: [(&str, Way); 3] = [
    ("an administrator deletes the last message", |server| {
        let mut client = client(server);
        let last = last_sequence(&mut client);
        client.delete_message(STREAM, last).unwrap();
    }),
    ("the last block is cut off", |server| {
        server.stop().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(last_block(server)).unwrap();
        file.set_len(file.metadata().unwrap().len() - 300).unwrap();
        server.restart().unwrap();
    }),
    ("a byte of the last message is flipped", |server| {
        server.stop().unwrap();
        let block = last_block(server);
        let mut bytes = std::fs::read(&block).unwrap();
        let at = bytes.len() - 30;
        bytes[at] ^= 1;
        std::fs::write(&block, bytes).unwrap();
        server.restart().unwrap();
    }),
];

/// Returns the position behind the last readable event, and the first and the last sequence of the
/// lost messages.
fn end(server: &Server) -> (u64, u64, u64) {
    let mut client = client(server);
    let last = last_sequence(&mut client);
    let message = (1..=last).rev().find_map(|at| client.get_message(STREAM, at).ok().flatten());
    let frame = frame(&message.unwrap());
    assert!(frame.sequence < last && frame.end() < 1000, "nothing is gone");
    (frame.end(), frame.sequence + 1, last)
}

fn source(server: &Server) -> Source {
    Source::of(At::at(server.url()), STREAM)
}

/// Returns the result of a source whose ring begins at `first`.
fn ends(source: Source, first: u64) -> Result<Progress, Error> {
    let (running, reading) = follow(source, first, 1024);
    let ended = running.join();
    reading.join().unwrap();
    ended
}

#[test]
fn a_new_ring_does_not_begin_where_acknowledged_events_are_gone() {
    let _watched = watched();
    for (name, way) in WAYS {
        let Some(mut server) = server() else { return };
        println!("{name}");
        store_1000(&server);
        let journal = source(&server).open().unwrap().journal().unwrap();
        // A program has read all events. It continues later, at position 1000.
        assert_eq!(ends(source(&server).until_end(), 0).unwrap().next, 1000);
        way(&mut server);
        let (end, first, last) = end(&server);
        let numbers_of = |error| {
            refused!(
                error,
                Error::LostAcknowledged { gone: Some(_), .. },
                format!("position {end}"),
                format!("of sequence{}", if first == last { "" } else { "s" }),
                format!(" {first} "),
                format!(" {last} "),
                "gone",
                "Sink::accept_loss"
            );
        };
        numbers_of(sink(&server.url()).open(numbers()).unwrap_err());
        numbers_of(sink(&server.url()).resume_at(end - 1).open(numbers()).unwrap_err());
        let noted = sink(&server.url()).resume_at(1000).open(numbers()).unwrap_err();
        assert!(noted.to_string().contains("acknowledged position 999"), "{noted}");
        numbers_of(noted);
        // No source mistakes the rest of the stream for the whole stream.
        for first in [0, end, 1000] {
            numbers_of(ends(source(&server).until_end(), first).unwrap_err());
        }
        let consumer = || source(&server).expect_journal(journal);
        let (follower, reading) = follow(consumer(), end, 1024);
        until("a word of it", || follower.progress().last_doubt.contains("gone): restore"));
        assert!(!follower.is_finished());

        // The user of the sink accepts the loss.
        let open = sink(&server.url()).accept_loss().open(numbers()).unwrap();
        assert_eq!(open.next_seq(), end);
        let other = open.journal();
        assert!(other != journal, "sources must notice");
        let (mut tx, running) = start(open, 64);
        feed(&mut tx, 1100).unwrap();
        tx.close();
        running.join().unwrap();
        let is_other = |error| refused!(error, Error::OtherJournal { .. }, "lost its end");
        is_other(follower.join().unwrap_err());
        assert_eq!(reading.join().unwrap(), end);
        is_other(consumer().open().unwrap_err());
        // A source reads only one of the two journals: the first one up to the loss, or the other
        // one from there on.
        is_other(ends(source(&server).until_end(), 0).unwrap_err());
        let goes_on = source(&server).until_end().expect_journal(other);
        let progress = ends(goes_on.clone(), end).unwrap();
        assert_eq!((progress.next, progress.journal), (1100, Some(other)));
        is_other(ends(goes_on, 0).unwrap_err());
        assert_eq!(ends(source(&server).until_end(), end).unwrap().next, 1100);
        // The stream has a sound end again.
        assert_eq!(sink(&server.url()).open(numbers()).unwrap().next_seq(), 1100);
    }
}

/// The test takes ten seconds, because a source that gets no messages asks only after that time
/// whether the stream has more.
#[test]
fn a_source_that_has_read_what_is_left_says_what_is_gone() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    store_1000(&server);
    (WAYS[0].1)(&mut server);
    let (end, ..) = end(&server);
    let (follower, reading) = follow(source(&server), 0, 1024);
    until_next(&follower, end);
    until("a word of it", || follower.progress().last_doubt.contains("is gone"));
    let restarts = follower.progress().restarts;
    assert!(!follower.is_finished());
    follower.stop();
    assert_eq!(follower.join().unwrap().restarts, restarts);
    assert_eq!(reading.join().unwrap(), end);
}

#[test]
fn a_ring_keeps_the_journal_by_its_users_word() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    store_1000(&server);
    let journal = source(&server).open().unwrap().journal().unwrap();
    (WAYS[0].1)(&mut server);
    let (end, ..) = end(&server);
    let accepts = || sink(&server.url()).accept_loss().journal(journal);
    let open = accepts().resume_at(1000).open(numbers()).unwrap();
    assert_eq!((open.next_seq(), open.journal()), (1000, journal));
    let (mut tx, running) = start(open, 64);
    feed(&mut tx, 1100).unwrap();
    tx.close();
    running.join().unwrap();
    // The program that has read all events continues without a gap. To others, the stream declares
    // a hole.
    let progress = ends(source(&server).until_end().expect_journal(journal), 1000).unwrap();
    assert_eq!((progress.events, progress.holes), (100, 0));
    let behind = ends(source(&server).until_end(), 0).unwrap_err();
    assert!(matches!(behind, Error::Hole { from, to: 1000 } if from == end), "{behind}");
}

#[test]
fn a_sink_in_doubt_names_an_end_that_is_gone() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let unanswered = Unanswered::start(&server);
    let mut client = client(&server);
    // The sink cannot know that the lost message was its own: another program may have appended it.
    let sequence = last_sequence(&mut client);
    client.delete_message(STREAM, sequence).unwrap();
    refused!(
        unanswered.failure(),
        Error::LostAcknowledged { acknowledged: None, found: 10.., gone: Some(_) },
        "is gone",
        "Sink::accept_loss"
    );
}

/// The lost messages were there at the sink's last acknowledgement, so it knows that they had no
/// events.
#[test]
fn a_sink_goes_on_behind_begin_messages_that_are_gone() {
    let _watched = watched();
    let Some(server) = server() else { return };
    store_1000(&server);
    let door = Proxy::to(server.port()).unwrap();
    let (mut tx, running) = start(sink(&door.url()).open(numbers()).unwrap(), 64);
    let mut client = client(&server);
    let last = last_sequence(&mut client);
    for sequence in last - 7..=last {
        client.delete_message(STREAM, sequence).unwrap();
    }
    door.cut_now();
    until("another connection", || running.counters().reconnects > 0);
    feed(&mut tx, 1100).unwrap();
    tx.close();
    assert_eq!(running.join().unwrap().acknowledged, 1100);
    assert_eq!(scan(&mut client).last().unwrap().end(), 1100);
}

/// A new sink checks the stream's last messages, as many as the previous sink may have had in
/// flight at once. The first of these messages must also follow the message before it.
#[test]
fn a_gap_in_the_window_of_the_sink_before_is_named() {
    let _watched = watched();
    for back in [0, 1, 7] {
        let Some(server) = server() else { return };
        store_1000(&server);
        let mut client = client(&server);
        let last = last_sequence(&mut client);
        let missing = frame(&client.get_message(STREAM, last - back).unwrap().unwrap());
        client.delete_message(STREAM, last - back).unwrap();
        let error = sink(&server.url()).open(numbers()).unwrap_err();
        match back {
            0 => refused!(error, Error::LostAcknowledged { .. }, missing.first.to_string()),
            _ => refused!(error, Error::Gap { .. }, missing.first.to_string(), "Sink::accept_loss"),
        }
    }
}
