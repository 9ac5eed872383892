//! The server or the stream lowers its size limit while a sink has frames in flight.

#[path = "common/checks.rs"]
mod checks;
mod common;

use std::time::Duration;

use checks::{refused, until, until_next, until_state};
use common::*;
use slipring::Producer;
use slipring_nats::{
    Counters, Decoding, Encoding, Error, RunningSink, Server as At, Sink, Source, State,
    StreamSettings,
};
use slipring_nats_server::{Client, Direction, Options, Proxy, Server};

/// The lowered size limit of a server, in bytes. Before it is lowered, the limit is a megabyte.
const SMALL: u64 = 4096;

/// Numbers as events of varying size.
fn varied() -> Encoding<u64> {
    Encoding::by("text", 1, |number: &u64, bytes| bytes.extend(number.to_le_bytes()))
}

/// Starts a server with the lowered limit, in the folder and at the port of the killed server.
fn small(server: &Server) -> Server {
    let options = Options::new().max_payload(SMALL);
    Server::start(options.dir(server.dir()).port(server.port())).unwrap()
}

/// Checks the stream's frames of plain numbers, or of varying ones.
fn check_all(client: &mut Client, end: u64) -> Vec<Frame> {
    let frames: Vec<Frame> = client.messages(STREAM).unwrap().iter().map(frame).collect();
    check(&frames);
    assert_eq!(frames.last().unwrap().end(), end);
    frames
}

#[test]
fn frames_in_flight_are_divided_when_the_server_takes_less() {
    let _watched = watched();
    for (encoding, stored) in
        [(numbers(), false), (numbers(), true), (varied(), false), (varied(), true)]
    {
        let Some(mut server) = server() else { return };
        let door = Proxy::to(server.port()).unwrap();
        let sink = sink(&door.url()).window(3).max_frame(16 << 10);
        let sink = sink.ack_timeout(Duration::from_millis(500));
        let (mut tx, running) = start(sink.open(encoding).unwrap(), 1 << 14);
        feed(&mut tx, 100).unwrap();
        until("the first events", || running.counters().acknowledged == 100);
        // Frames of 16 kilobytes are in flight. If `stored` is set, the server has stored them.
        match stored {
            true => door.swallow(Direction::ToClient, true),
            false => door.hold(Direction::ToServer, true),
        }
        fill(&mut tx);
        until("a full window", || running.counters().in_flight == 3);
        if stored {
            let mut client = client(&server);
            until("the window's frames", || stored_behind(&mut client, 100) == 3);
        }
        server.kill().unwrap();
        door.cut_now();
        door.swallow(Direction::ToClient, false);
        door.hold(Direction::ToServer, false);
        let server = small(&server);
        feed(&mut tx, 40_000).unwrap();
        tx.close();
        let counters = running.join().unwrap();
        assert_eq!((counters.acknowledged, counters.events), (40_000, 40_000), "{counters:?}");
        let frames = check_all(&mut client(&server), 40_000);
        let begun = frames.iter().filter(|frame| frame.events.is_empty()).count();
        // The sink begins anew with as many messages as it may have in flight. If the frames in
        // flight were stored, the sink only divides unsent frames, and does not begin anew.
        let expected = if stored { (1, 1) } else { (2, 1 + 3) };
        assert_eq!((counters.incarnation, begun), expected, "{counters:?}");
    }
}

/// Returns the number of frames that the stream has from position `first` on.
fn stored_behind(client: &mut Client, first: u64) -> usize {
    let messages = client.messages(STREAM).unwrap();
    messages.iter().map(frame).filter(|frame| frame.first >= first).count()
}

/// Starts a sink, and then lowers the stream's size limit to `size` bytes, so that the stream
/// refuses the sink's next frame that is longer.
fn refused_by_stream(server: &Server, size: u64) -> (Producer<u64>, RunningSink) {
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 1 << 14);
    feed(&mut tx, 100).unwrap();
    until("the first events", || running.counters().acknowledged == 100);
    let mut client = client(server);
    let mut config = client.stream_info(STREAM).unwrap()["config"].clone();
    config["max_msg_size"] = serde_json::json!(size);
    client.api(&format!("STREAM.UPDATE.{STREAM}"), config).unwrap();
    (tx, running)
}

#[test]
fn frames_in_flight_are_divided_when_the_stream_takes_less() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = refused_by_stream(&server, 1000);
    feed(&mut tx, 60_000).unwrap();
    tx.close();
    let counters: Counters = running.join().unwrap();
    assert_eq!((counters.acknowledged, counters.events), (60_000, 60_000), "{counters:?}");
    let frames = check_all(&mut client(&server), 60_000);
    assert!(frames.last().unwrap().events.len() * 8 + HEADER <= 1000);
}

#[test]
fn an_event_that_does_not_fit_any_more_is_named() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = refused_by_stream(&server, 200);
    let fed = feed(&mut tx, 200_000);
    assert!(fed.is_err(), "the graph fails");
    refused!(running.join().unwrap_err(), Error::TooLarge { .. }, "112 bytes", "max_msg_size");
}

/// The server lowers its limit, and one of the events in flight does not fit.
#[test]
fn a_single_event_that_the_server_does_not_take_any_more_is_named() {
    let _watched = watched();
    let lengths = |length: &u64, to: &mut Vec<u8>| to.resize(*length as usize, 7);
    let frames = || Encoding::by("bytes", 1, lengths);
    let messages = || Encoding::messages("bytes", 1, |_| SUBJECT.into(), lengths);
    for encoding in [frames(), messages()] {
        let Some(mut server) = server() else { return };
        let (mut tx, running) = start(sink(&server.url()).open(encoding).unwrap(), 64);
        tx.publish(|slot| *slot = 10).unwrap();
        until("the first event", || running.counters().acknowledged == 1);
        server.kill().unwrap();
        until_state(&running, State::Away);
        for length in [100, 5000, 100] {
            tx.publish(|slot| *slot = length).unwrap();
        }
        let server = small(&server);
        // An event that is not in flight yet is refused when the sink takes it.
        until("the end", || running.is_finished());
        let error = running.join().unwrap_err();
        refused!(error, Error::TooLarge { needs: 5000.., .. }, "max_payload");
        assert!(check_is_whole(&server), "what is stored is whole");
    }
}

/// Returns whether a source can open the stream, which reads the stream's first and last message.
fn check_is_whole(server: &Server) -> bool {
    Source::of(At::at(server.url()), STREAM).open().is_ok()
}

/// A source follows the stream before, during and after the division of its frames.
#[test]
fn a_source_reads_on_across_frames_that_were_divided() {
    let _watched = watched();
    let Some(server) = server() else { return };
    Sink::to(At::at(server.url()), STREAM)
        .create(StreamSettings::new(SUBJECT))
        .open(numbers())
        .unwrap();
    let open = Source::of(At::at(server.url()), STREAM).open().unwrap();
    let (to, mut rx) = ring(0, 1024);
    let source = open.start(Decoding::<u64>::plain("number", 1), to).unwrap();
    let reading = std::thread::spawn(move || {
        let _ = rx.for_each(|number, at| assert_eq!(*number, event(at.seq)));
        rx.next_seq()
    });
    let (mut tx, running) = refused_by_stream(&server, 800);
    feed(&mut tx, 30_000).unwrap();
    tx.close();
    running.join().unwrap();
    until_next(&source, 30_000);
    source.stop();
    source.join().unwrap();
    assert_eq!(reading.join().unwrap(), 30_000);
}
