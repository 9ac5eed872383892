//! A stream that is trimmed, purged, emptied, filled by a foreign writer, or loses its end.

use fastrand::Rng;
use slipring::Producer;
use slipring_nats::{Error, RunningSink, Server as At};
use slipring_nats_server::{ApiError, Client, Proxy, Purge, Server};

use crate::common::*;
use crate::support::*;

/// The server's code of "error creating store for stream".
const NO_STORE: u64 = 10_049;

/// A server whose stream is recreated for each scenario.
struct World {
    server: Server,
    client: Client,
    /// The proxy between the sink and the server.
    proxy: Proxy,
}

/// A stream with a running sink and the producer of its ring.
struct Stream {
    tx: Producer<u64>,
    sink: RunningSink,
    first: u64,
}

impl World {
    fn new() -> Option<World> {
        let server = server()?;
        let (client, proxy) = (client(&server), Proxy::to(server.port()).unwrap());
        Some(World { server, client, proxy })
    }

    /// Recreates the stream with at least 20 messages, all of them acknowledged.
    fn stream(&mut self, rng: &mut Rng) -> Stream {
        self.make_anew();
        let first = rng.u64(..1000);
        let open = sink(&self.proxy.url()).resume_at(first).max_frame(HEADER + 8 * 4);
        let (mut tx, sink) = start(open.open(numbers()).unwrap(), 512);
        feed(&mut tx, first + rng.u64(80..200)).unwrap();
        acknowledged(&sink, tx.next_seq());
        Stream { tx, sink, first }
    }

    /// Removes the stream if there is one, and creates it. Once in a few hundred times, the server
    /// (2.15.1) reports the removal before it is complete: it then brings the old messages back, or
    /// cannot create the store.
    fn make_anew(&mut self) {
        let config = serde_json::json!({
            "name": STREAM, "subjects": [SUBJECT], "allow_atomic": true, "discard": "new",
        });
        until("an empty stream", || {
            let _ = self.client.delete_stream(STREAM); // there may be none
            match self.client.create_stream(config.clone()) {
                Ok(made) => made["state"]["last_seq"] == 0,
                Err(error) => {
                    assert_eq!(ApiError::of(&error).map(|api| api.err_code), Some(NO_STORE));
                    false
                }
            }
        });
    }

    fn at(&self) -> At {
        At::at(self.server.url())
    }

    fn last(&mut self) -> u64 {
        self.client.stream_info(STREAM).unwrap()["state"]["last_seq"].as_u64().unwrap()
    }

    fn frame(&mut self, sequence: u64) -> Frame {
        frame(&self.client.get_message(STREAM, sequence).unwrap().unwrap())
    }

    fn foreign(&mut self) -> u64 {
        self.client.publish_acknowledged(SUBJECT, None, b"{\"order\": 7}").unwrap().0
    }

    /// Puts the sink in doubt, and returns its error.
    fn doubt(&mut self, stream: Stream) -> Error {
        self.proxy.cut_now();
        failure(stream.sink)
    }

    /// Makes a new sink, which must be refused.
    fn refused(&self) -> Error {
        sink(&self.server.url()).open(numbers()).unwrap_err()
    }
}

/// A purge of events that the source has already read disturbs neither the sink nor the source.
fn purged_while_healthy(world: &mut World, rng: &mut Rng) {
    let mut stream = world.stream(rng);
    let follower = Follower::start(world.at(), stream.first);
    for _ in 0..3 {
        follower.wait_for(stream.tx.next_seq());
        let last = world.last();
        let purge = match rng.u8(..3) {
            0 => Purge::All,
            1 => Purge::Keep(rng.u64(1..5)),
            _ => Purge::Below(rng.u64(1..=last)),
        };
        world.client.purge(STREAM, purge).unwrap();
        feed_some(&mut stream.tx, rng, 100);
        acknowledged(&stream.sink, stream.tx.next_seq());
    }
    let end = stream.tx.next_seq();
    stream.tx.close();
    assert_eq!(stream.sink.join().unwrap().doubts, 0);
    follower.finish(end);
    assert_eq!(scan(&mut world.client).last().unwrap().end(), end);
}

/// The oldest positions are removed, and a source still needs some of them.
fn trimmed(world: &mut World, rng: &mut Rng) {
    let stream = world.stream(rng);
    let keep = rng.u64(2..world.last() - 1);
    world.client.purge(STREAM, Purge::Below(keep + 1)).unwrap();
    let oldest = world.frame(keep + 1).first;
    let wanted = rng.u64(stream.first..oldest);
    let (error, end) = Follower::start(world.at(), wanted).failure();
    let expected = (wanted, oldest);
    assert!(
        matches!(error, Error::Trimmed { wanted, oldest } if (wanted, oldest) == expected),
        "{error:?} {expected:?}"
    );
    assert_numbers(&error, &[wanted, oldest]);
    assert_eq!(end, wanted);
    Follower::start(world.at(), oldest).finish(stream.tx.next_seq());
}

/// While a source reads, all messages are removed and others are appended.
fn trimmed_before_a_reading_source(world: &mut World, rng: &mut Rng) {
    let mut stream = world.stream(rng);
    let theirs = Proxy::to(world.server.port()).unwrap();
    let follower = Follower::start(At::at(theirs.url()), stream.first);
    let wanted = stream.tx.next_seq();
    follower.wait_for(wanted);
    theirs.refuse(true);
    theirs.cut_now();
    let lost = world.last();
    feed_some(&mut stream.tx, rng, 50);
    acknowledged(&stream.sink, stream.tx.next_seq());
    let removed = world.last();
    feed_some(&mut stream.tx, rng, 50);
    acknowledged(&stream.sink, stream.tx.next_seq());
    assert!(removed > lost);
    world.client.purge(STREAM, Purge::Below(removed + 1)).unwrap();
    let oldest = world.frame(removed + 1).first;
    theirs.refuse(false);
    let (error, end) = follower.failure();
    assert!(matches!(error, Error::Trimmed { .. }), "{error:?}");
    assert_numbers(&error, &[wanted, oldest]);
    assert_eq!(end, wanted);
}

/// A message in the middle is missing.
fn gap(world: &mut World, rng: &mut Rng) {
    let stream = world.stream(rng);
    let removed = rng.u64(3..world.last());
    let missing = world.frame(removed);
    world.client.delete_message(STREAM, removed).unwrap();
    let (error, end) = Follower::start(world.at(), stream.first).failure();
    let (sequence, from, to) = (removed + 1, missing.first, missing.end());
    assert!(
        matches!(error, Error::Gap { expected, found, sequence: at }
            if (expected, found, at) == (from, to, sequence)),
        "{error:?} {missing:?}"
    );
    assert_numbers(&error, &[from, to - 1, sequence]);
    // A halted ring does not hand out all of its events.
    assert!(end <= from);
}

/// The stream has a foreign message behind the sink's messages, or in place of one.
fn foreign(world: &mut World, rng: &mut Rng) {
    let mut stream = world.stream(rng);
    let follower = Follower::start(world.at(), stream.first);
    follower.wait_for(stream.tx.next_seq());
    let emptied = rng.bool();
    if emptied {
        world.client.purge(STREAM, Purge::All).unwrap();
    }
    let sequence = world.foreign();
    let mut errors = vec![follower.failure().0, world.refused()];
    match rng.bool() {
        true => feed_some(&mut stream.tx, rng, 20),
        false => world.proxy.cut_now(),
    }
    errors.push(failure(stream.sink));
    for error in errors {
        assert!(matches!(error, Error::Foreign { sequence: at } if at == sequence), "{error:?}");
        assert_numbers(&error, &[sequence]);
    }
}

/// No message is left that shows where to continue. A running sink still knows the place, unless
/// another program has appended a message after the sink's last one.
fn emptied(world: &mut World, rng: &mut Rng) {
    let mut stream = world.stream(rng);
    world.client.purge(STREAM, Purge::All).unwrap();
    world.proxy.cut_now();
    feed_some(&mut stream.tx, rng, 50);
    acknowledged(&stream.sink, stream.tx.next_seq());
    assert_eq!(scan(&mut world.client).last().unwrap().end(), stream.tx.next_seq());

    let appended = rng.bool();
    if appended {
        world.foreign();
    }
    let (last, end) = (world.last(), stream.tx.next_seq());
    world.client.purge(STREAM, Purge::All).unwrap();
    let mut errors = vec![world.refused()];
    if appended {
        errors.push(world.doubt(stream));
    }
    for error in errors {
        assert!(matches!(error, Error::Emptied { last_sequence } if last_sequence == last));
        assert_numbers(&error, &[last]);
    }
    let open = sink(&world.server.url()).resume_at(end).open(numbers()).unwrap();
    assert_eq!(open.next_seq(), end);
    let (mut tx, running) = start(open, 64);
    feed_some(&mut tx, rng, 50);
    tx.close();
    running.join().unwrap();
    scan(&mut world.client);
}

/// The last messages are gone although they were acknowledged.
fn tail_removed(world: &mut World, rng: &mut Rng) {
    let stream = world.stream(rng);
    let (last, end) = (world.last(), stream.tx.next_seq());
    let count = rng.u64(1..8);
    let found = world.frame(last - count).end();
    for sequence in last - count + 1..=last {
        world.client.delete_message(STREAM, sequence).unwrap();
    }
    let error = world.doubt(stream);
    assert!(matches!(error, Error::LostAcknowledged { .. }), "{error:?}");
    assert_numbers(&error, &[end - 1, found]);
}

/// The stream is removed, and recreated by another ring.
fn made_anew(world: &mut World, rng: &mut Rng) {
    let mut stream = world.stream(rng);
    let follower = Follower::start(world.at(), stream.first);
    let ours = stream.tx.next_seq();
    follower.wait_for(ours);
    // The sink and the source learn of the change only after the other ring has begun.
    world.proxy.refuse(true);
    world.proxy.cut_now();
    world.make_anew();
    let theirs = stream.first + rng.u64(1..300);
    let open = sink(&world.server.url()).resume_at(theirs).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 64);
    feed_some(&mut tx, rng, 100);
    if tx.next_seq() == ours {
        feed_some(&mut tx, rng, 1); // otherwise the source learns nothing before the next message
    }
    let end = tx.next_seq();
    tx.close();
    running.join().unwrap();
    world.proxy.refuse(false);
    if rng.bool() {
        feed_some(&mut stream.tx, rng, 20);
    }
    let error = failure(stream.sink);
    assert!(matches!(error, Error::WrongEpoch { .. }), "{error:?}");
    assert_numbers(&error, &[ours, end]);
    // The source may have learned of the removal first.
    let (error, at) = follower.failure();
    assert!(
        matches!(
            error,
            Error::OtherJournal { .. }
                | Error::NoStream { .. }
                | Error::LostAcknowledged { .. }
                | Error::Trimmed { .. }
        ),
        "{error:?}"
    );
    assert_eq!(at, ours);
}

#[test]
fn a_stream_is_changed_under_the_hands_of_a_sink_and_a_source() {
    let _watched = watched();
    let Some(mut world) = World::new() else { return };
    type Scenario = fn(&mut World, &mut Rng);
    let scenarios: [(&str, Scenario); 8] = [
        ("purged while healthy", purged_while_healthy),
        ("trimmed", trimmed),
        ("trimmed before a reading source", trimmed_before_a_reading_source),
        ("gap", gap),
        ("foreign", foreign),
        ("emptied", emptied),
        ("tail removed", tail_removed),
        ("made anew", made_anew),
    ];
    seeded(|rng| {
        for _ in 0..faults(3) {
            for (name, scenario) in scenarios {
                let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    scenario(&mut world, rng);
                }));
                if let Err(panic) = panic {
                    eprintln!("scenario: {name}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
    });
}

/// The server comes back with an earlier state of its disk.
#[test]
fn a_servers_tail_is_removed() {
    let _watched = watched();
    let Some(mut world) = World::new() else { return };
    seeded(|rng| {
        for _ in 0..faults(3) {
            let mut stream = world.stream(rng);
            let found = stream.tx.next_seq();
            world.server.stop().unwrap();
            let store = world.server.dir().join("store");
            let saved = world.server.dir().join("saved");
            copy(&store, &saved);
            world.server.restart().unwrap();
            feed_some(&mut stream.tx, rng, 100);
            acknowledged(&stream.sink, stream.tx.next_seq());
            let end = stream.tx.next_seq();
            world.server.kill().unwrap();
            std::fs::remove_dir_all(&store).unwrap();
            std::fs::rename(&saved, &store).unwrap();
            world.server.restart().unwrap();
            world.client = client(&world.server);
            let error = failure(stream.sink);
            assert!(matches!(error, Error::LostAcknowledged { .. }), "{error:?}");
            assert_numbers(&error, &[end - 1, found]);
            // A new ring of threads begins where the stream ends now.
            let open = sink(&world.server.url()).open(numbers()).unwrap();
            assert_eq!(open.next_seq(), found);
        }
    });
}
