//! Tests of outages. The ring waits or, on request, the sink fails or drops events. A sink that has
//! not failed continues afterwards.

#[path = "common/checks.rs"]
mod checks;
mod common;

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use checks::{refused, says, until, until_next, until_state};
use common::*;
use slipring::{Producer, errors::WaitError};
use slipring_nats::{
    Decoding, Error, Outage, RunningSink, RunningSource, Server as At, Sink, Source, State,
    StreamSettings,
};
use slipring_nats_server::{Options, Proxy, Server, free_port, has_namespaces};

/// A short time limit for waits.
const SHORT: Duration = Duration::from_millis(200);

/// Closes the ring of a sink, ends the source, and checks that both have all events before `end`.
fn finish(
    tx: Producer<u64>,
    running: RunningSink,
    source: RunningSource,
    reading: JoinHandle<u64>,
    end: u64,
) {
    tx.close();
    assert_eq!(running.join().unwrap().acknowledged, end);
    source.stop();
    source.join().unwrap();
    assert_eq!(reading.join().unwrap(), end);
}

#[test]
fn the_ring_fills_while_the_server_is_away_and_drains_when_it_is_back() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let sink = sink(&server.url()).max_frame(HEADER + 8 * 8).window(2);
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    until("the first events", || running.counters().acknowledged == 100);
    server.kill().unwrap();
    until_state(&running, State::Away);
    // The ring keeps events until they are acknowledged, so it is full after 64 more events.
    assert_eq!(fill(&mut tx), 164);
    until("the lag", || running.counters().lag == 64);
    std::thread::sleep(Duration::from_millis(100));
    assert!(tx.try_publish(|_| ()).is_err(), "nothing was released");
    server.restart().unwrap();
    feed(&mut tx, 1000).unwrap();
    tx.close();
    let counters = running.join().unwrap();
    assert_eq!((counters.acknowledged, counters.events, counters.dropped), (1000, 1000, 0));
    assert!(counters.reconnects >= 1 && counters.doubts >= 1, "{counters:?}");
    assert_eq!(scan(&mut client(&server)).last().unwrap().end(), 1000);
}

#[test]
fn a_sink_and_a_source_wait_on_request_for_a_server_that_starts_later() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let port = free_port().unwrap();
    let url = format!("nats://127.0.0.1:{port}");
    // If the sink and the source are given no time to wait, they return the error at once.
    // Otherwise they return it when the time is over.
    for wait in [Duration::ZERO, SHORT] {
        let begun = Instant::now();
        let error = sink(&url).wait_for_server(wait).open(numbers()).unwrap_err();
        assert!(begun.elapsed() >= wait);
        refused!(error, Error::Unreachable { .. }, url, "check the address");
        let error = Source::of(At::at(&url), STREAM).wait_for_server(wait).open().unwrap_err();
        refused!(error, Error::Unreachable { .. }, url, "check the address");
    }
    let opening = [SOON, Duration::MAX].map(|wait| {
        let sink = sink(&url).wait_for_server(wait);
        std::thread::spawn(move || sink.open(numbers()).map(drop))
    });
    let (writing, at) = (sink(&url).wait_for_server(SOON), At::at(&url));
    let attached = std::thread::spawn(move || {
        let (mut tx, journal) = ring(0, 64);
        feed(&mut tx, 10).unwrap();
        tx.close();
        writing.attach(numbers(), journal, [7; 16]).unwrap().join()
    });
    std::thread::sleep(SHORT);
    assert!(opening.iter().all(|thread| !thread.is_finished()) && !attached.is_finished());
    let _server = Server::start(Options::new().port(port)).unwrap();
    for thread in opening {
        // Both threads succeed, because the later sink takes the stream over from the earlier one.
        thread.join().unwrap().unwrap();
    }
    let _ = attached.join().unwrap();
    Source::of(at, STREAM).wait_for_server(SOON).open().unwrap();
}

#[test]
fn a_source_waits_on_request_for_a_server_that_starts_later() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    store(&server, 10);
    server.kill().unwrap();
    let source = Source::of(At::at(server.url()), STREAM).wait_for_server(SOON);
    let opening = std::thread::spawn(move || source.open());
    std::thread::sleep(SHORT);
    assert!(!opening.is_finished());
    server.restart().unwrap();
    assert_eq!(opening.join().unwrap().unwrap().end(), Some(10));
}

#[test]
fn a_sink_says_that_the_disk_of_a_server_that_acknowledges_nothing_may_be_full() {
    let _watched = watched();
    if !has_server() || !has_namespaces() {
        eprintln!("\nSKIPPED: this needs a server, and namespaces for users");
        return;
    }
    let options = Options::new().disk(4 << 20).max_file_store(1 << 30);
    let server = Server::start(options).unwrap();
    let sink = || sink(&server.url()).ack_timeout(SHORT);
    let open = sink().outage(Outage::FailAfter(Duration::from_secs(2))).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 1 << 16);
    // These events need a megabyte more than the disk has.
    let fed = feed(&mut tx, 5 << 17);
    assert!(fed.is_err() || running.counters().acknowledged < 5 << 17);
    assert!(server.log().contains("no space left on device"), "{}", server.log());
    let words = ["acknowledgement", "disk is full", "restart it", "log"];
    let error = running.join().unwrap_err();
    assert!(matches!(error, Error::Away { .. }), "{error:?}");
    says(&error, &words);
    // A sink that begins now reports the same error, after 15 s, the time limit of a takeover.
    let error = sink().open(numbers()).unwrap_err();
    assert!(matches!(error, Error::Away { .. }), "{error:?}");
    says(&error, &words);
}

#[test]
fn a_sink_fails_on_request_when_the_server_stays_away() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let sink = sink(&server.url()).outage(Outage::FailAfter(SHORT));
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    until("the first events", || running.counters().acknowledged == 100);
    server.kill().unwrap();
    let fed = feed(&mut tx, 100_000);
    assert!(matches!(fed, Err(WaitError::Failed(_))), "{fed:?}");
    refused!(
        running.join().unwrap_err(),
        Error::Away { .. },
        "did not answer for",
        "bring it back"
    );
    server.restart().unwrap();
    assert_eq!(scan(&mut client(&server)).last().unwrap().end(), 100);
}

#[test]
fn a_sink_drops_on_request_and_the_stream_tells_the_hole() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let sink = sink(&server.url()).outage(Outage::DropAfter(SHORT)).max_frame(HEADER + 16 * 8);
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    let mut end = 0;
    for round in 0..2 {
        end += 100;
        feed(&mut tx, end).unwrap();
        until("all that was fed", || running.counters().acknowledged == end);
        server.kill().unwrap();
        let before = running.counters().dropped;
        // Producers no longer wait once the sink drops events.
        end += 5_000;
        feed(&mut tx, end).unwrap();
        until("dropped events", || running.counters().dropped > before + 4_500);
        server.restart().unwrap();
        until_state(&running, State::Publishing);
        let dropped = running.counters().dropped;
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(running.counters().dropped, dropped, "round {round}");
    }
    end += 100;
    feed(&mut tx, end).unwrap();
    tx.close();
    let counters = running.join().unwrap();
    assert_eq!((counters.events + counters.dropped, counters.acknowledged), (end, end));
    let frames = scan(&mut client(&server));
    let holes: Vec<u64> = frames.iter().map(|frame| frame.first - frame.after).collect();
    assert_eq!(holes.iter().filter(|hole| **hole > 0).count(), 2, "{holes:?}");
    assert_eq!(holes.iter().sum::<u64>(), counters.dropped);
    // A source leaves out the same positions.
    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    let graph = slipring::Graph::new(64, || 0u64).shared();
    let key = graph.reader("replay");
    let ring = graph.build().unwrap();
    let (tx, mut rx) = (ring.producer(), ring.reader(key));
    drop(ring);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    let read = rx.for_each(|number, at| assert_eq!(*number, event(at.seq))).unwrap();
    let progress = source.join().unwrap();
    assert_eq!((read, progress.events), (counters.events, counters.events));
    assert_eq!((progress.holes, progress.next), (counters.dropped, end));
}

#[test]
fn events_that_are_dropped_at_the_rings_end_are_told_as_well() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let sink = sink(&server.url()).outage(Outage::DropAfter(SHORT)).max_frame(HEADER + 16 * 8);
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    until("the first events", || running.counters().acknowledged == 100);
    server.kill().unwrap();
    feed(&mut tx, 5_000).unwrap();
    tx.close();
    until("dropped events", || running.counters().dropped > 4_500);
    server.restart().unwrap();
    let counters = running.join().unwrap();
    assert_eq!((counters.events + counters.dropped, counters.acknowledged), (5_000, 5_000));
    assert_eq!(scan(&mut client(&server)).last().unwrap().end(), 5_000);
}

#[test]
fn a_full_stream_at_a_server_that_goes_away_is_an_outage() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let settings = StreamSettings::new(SUBJECT).max_bytes(4 << 10);
    let sink = Sink::to(At::at(server.url()), STREAM).create(settings);
    let sink = sink.outage(Outage::FailAfter(Duration::from_secs(3)));
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    let feeding = std::thread::spawn(move || feed(&mut tx, 20_000));
    until_state(&running, State::Full);
    server.kill().unwrap();
    refused!(running.join().unwrap_err(), Error::Away { .. }, "did not answer for");
    assert!(feeding.join().unwrap().is_err());
}

#[test]
fn each_outage_has_its_own_deadline_also_of_an_idle_sink_and_source() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let door = Proxy::to(server.port()).unwrap();
    let limit = Duration::from_secs(3);
    let sink = sink(&door.url()).outage(Outage::FailAfter(limit));
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    let (source, reading) = follow(Source::of(At::at(door.url()), STREAM).fail_after(limit), 0, 64);
    let cut = |count: u64| {
        // If the source were still in the previous outage, it would count the two outages as one.
        until("both connections", || door.counts().open == 2);
        let before = (running.counters().reconnects, source.progress().restarts);
        door.cut_now();
        until("another connection", || {
            running.counters().reconnects > before.0
                && running.counters().state == State::Publishing
                && source.progress().restarts > before.1
        });
        assert!(!running.is_finished() && !source.is_finished(), "outage {count}");
    };
    cut(1);
    // The pause is longer than an outage may take, and no event comes.
    std::thread::sleep(limit + Duration::from_millis(200));
    cut(2);
    feed(&mut tx, 100).unwrap();
    until_next(&source, 100);
    cut(3);
    feed(&mut tx, 200).unwrap();
    until_next(&source, 200);
    finish(tx, running, source, reading, 200);
}

#[test]
fn a_source_fails_on_request_when_the_server_stays_away() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    store(&server, 100);
    let source = Source::of(At::at(server.url()), STREAM).fail_after(SHORT);
    let (source, reading) = follow(source, 0, 64);
    until_next(&source, 100);
    server.kill().unwrap();
    refused!(source.join().unwrap_err(), Error::Away { .. }, "did not answer for", "bring it back");
    assert_eq!(reading.join().unwrap(), 100);
}

/// Starts a server with the settings `options`, in the folder and at the port of `server`.
fn again(server: &Server, options: Options) -> Server {
    Server::start(options.dir(server.dir()).port(server.port())).unwrap()
}

#[test]
fn a_sink_and_a_source_come_back_when_their_credentials_are_valid_again() {
    let _watched = watched();
    if !has_server() {
        return;
    }
    let port = free_port().unwrap();
    let mut first = Server::start(Options::new().user("u", "old").port(port)).unwrap();
    let at = || At::at(first.url()).user("u", "old");
    let sink = Sink::to(at(), STREAM).create(StreamSettings::new(SUBJECT));
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    let (source, reading) = follow(Source::of(at(), STREAM), 0, 64);
    for round in 1..=2 {
        feed(&mut tx, round * 100).unwrap();
        until_next(&source, round * 100);
        first.kill().unwrap();
        let mut rotated = again(&first, Options::new().user("u", "new"));
        let refused = || rotated.log().matches("authentication error").count();
        until("refused clients", || running.counters().state == State::Away && refused() >= 4);
        feed(&mut tx, round * 100 + 20).unwrap();
        rotated.kill().unwrap();
        first.restart().unwrap();
        until_next(&source, round * 100 + 20);
        assert!(!running.is_finished() && !source.is_finished());
    }
    finish(tx, running, source, reading, 220);
}

#[test]
fn a_ring_that_is_closed_while_the_server_is_away_is_stored_when_it_is_back() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let (mut tx, mut running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    server.kill().unwrap();
    fill(&mut tx);
    let end = tx.next_seq();
    tx.close();
    until_state(&running, State::Away);
    assert!(running.join_by(Instant::now() + SHORT).unwrap().is_none());
    server.restart().unwrap();
    assert_eq!(running.join().unwrap().acknowledged, end);
    assert_eq!(scan(&mut client(&server)).last().unwrap().end(), end);
}

#[test]
fn a_sink_and_a_source_are_stopped_while_the_server_is_away() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let (mut tx, mut running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    let (source, reading) = follow(Source::of(At::at(server.url()), STREAM), 0, 64);
    feed(&mut tx, 100).unwrap();
    until_next(&source, 100);
    server.kill().unwrap();
    until_state(&running, State::Away);
    fill(&mut tx);
    assert!(running.join_by(Instant::now() + SHORT).unwrap().is_none());
    running.stop();
    source.stop();
    let error = running.join_by(Instant::now() + SOON).unwrap_err();
    refused!(error, Error::Stopped, "start it again");
    source.join().unwrap();
    assert_eq!(reading.join().unwrap(), 100);
    assert!(tx.publish(|_| ()).is_err(), "the graph fails");
}

#[test]
fn a_ring_that_halts_while_the_server_is_away_ends_the_sink() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    server.kill().unwrap();
    feed(&mut tx, 50).unwrap();
    until_state(&running, State::Away);
    tx.halt();
    until("the end", || running.is_finished());
    refused!(running.join().unwrap_err(), Error::Ring(WaitError::Halted), "ring");
}

#[test]
fn a_dropped_handle_lets_the_sink_come_back() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    server.kill().unwrap();
    feed(&mut tx, 50).unwrap();
    until_state(&running, State::Away);
    drop(running);
    tx.close();
    server.restart().unwrap();
    let mut client = client(&server);
    until("the events", || scan(&mut client).last().is_some_and(|frame| frame.end() == 50));
}

#[test]
fn a_server_that_stands_still_is_waited_for() {
    let _watched = watched();
    let Some(mut server) = server() else { return };
    let sink = sink(&server.url()).ack_timeout(SHORT).max_frame(HEADER + 8 * 8);
    let (mut tx, running) = start(sink.open(numbers()).unwrap(), 64);
    feed(&mut tx, 1000).unwrap();
    until("the first events", || running.counters().acknowledged == 1000);
    server.pause().unwrap();
    assert_eq!(fill(&mut tx), 1064);
    until("a doubt", || running.counters().state != State::Publishing);
    std::thread::sleep(SHORT);
    server.resume().unwrap();
    feed(&mut tx, 2000).unwrap();
    tx.close();
    let counters = running.join().unwrap();
    assert!(counters.acknowledged == 2000 && counters.doubts > 0, "{counters:?}");
    assert_eq!(scan(&mut client(&server)).last().unwrap().end(), 2000);
}
