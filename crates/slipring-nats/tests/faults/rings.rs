//! Faults on the ring's side: wake-ups, releases, and rings that end while the server is away.

use std::time::{Duration, Instant};

use slipring::errors::WaitError;
use slipring_nats::{Error, Outage, RunningSink, Server as At, Source, State};
use slipring_nats_server::{Direction, Proxy};

use crate::common::*;
use crate::support::*;

/// An idle sink sleeps until the ring wakes it.
#[test]
fn an_idle_sink_loses_no_wakeup() {
    let _watched = watched();
    let Some(server) = server() else { return };
    seeded(|rng| {
        let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 4);
        for _ in 0..faults(300) * 5 {
            feed_some(&mut tx, rng, 6);
            match rng.u8(..3) {
                0 => acknowledged(&running, tx.next_seq()),
                1 => spin(rng, 300),
                _ => {}
            }
        }
        acknowledged(&running, tx.next_seq());
        let end = tx.next_seq();
        tx.close();
        running.join().unwrap();
        assert_stored(&mut client(&server), 0, end);
    });
}

#[test]
fn no_event_is_released_before_its_acknowledgement() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let open = sink(&proxy.url()).max_frame(HEADER + 8 * 4).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 64);
    for _ in 0..5 {
        feed_more(&mut tx, 10).unwrap();
        acknowledged(&running, tx.next_seq());
        until("releases", || tx.remaining() == 64);
        let before = client(&server).stream_info(STREAM).unwrap()["state"]["last_seq"].clone();
        proxy.hold(Direction::ToClient, true);
        feed_more(&mut tx, 20).unwrap();
        let stored = || client(&server).stream_info(STREAM).unwrap()["state"]["last_seq"].clone();
        until("storing", || stored() != before);
        assert_eq!((tx.remaining(), running.counters().lag), (44, running.counters().lag));
        proxy.hold(Direction::ToClient, false);
    }
    let end = tx.next_seq();
    tx.close();
    running.join().unwrap();
    assert_stored(&mut client(&server), 0, end);
}

fn feed_more(tx: &mut slipring::Producer<u64>, count: u64) -> Result<(), WaitError> {
    let end = tx.next_seq() + count;
    feed(tx, end)
}

/// Starts a sink whose server then goes away while events are in flight.
fn away(proxy: &Proxy, outage: Outage) -> (slipring::Producer<u64>, RunningSink) {
    proxy.refuse(false);
    let open = sink(&proxy.url()).outage(outage).open(numbers()).unwrap();
    let (mut tx, running) = start(open, 64);
    proxy.refuse(true);
    proxy.cut_now();
    let end = tx.next_seq() + 40;
    feed(&mut tx, end).unwrap();
    (tx, running)
}

#[test]
fn a_ring_ends_while_the_server_is_away() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    for round in 0..4 {
        std::thread::sleep(Duration::from_millis(round * 5));
        let (tx, running) = away(&proxy, Outage::Wait);
        tx.halt();
        let error = failure(running);
        assert!(matches!(error, Error::Ring(WaitError::Halted)), "{error:?}");

        let (tx, running) = away(&proxy, Outage::Wait);
        let failed = std::thread::spawn(move || {
            let _tx = tx;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(failed.join().is_err());
        let error = failure(running);
        assert!(matches!(error, Error::Ring(WaitError::Failed(_))), "{error:?}");

        let (mut tx, running) = away(&proxy, Outage::Wait);
        running.stop();
        assert!(matches!(failure(running), Error::Stopped));
        let ended = feed(&mut tx, u64::MAX);
        assert!(matches!(ended, Err(WaitError::Failed(_))), "{ended:?}");

        let (mut tx, running) = away(&proxy, Outage::FailAfter(Duration::from_millis(20)));
        let error = failure(running);
        assert!(matches!(error, Error::Away { .. }), "{error:?}");
        let ended = feed(&mut tx, u64::MAX);
        assert!(matches!(ended, Err(WaitError::Failed(_))), "{ended:?}");
    }
    proxy.refuse(false);
    scan(&mut client(&server));
}

#[test]
fn a_closed_ring_waits_for_the_server() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let (tx, mut running) = away(&proxy, Outage::Wait);
    let end = tx.next_seq();
    tx.close();
    let waited = running.join_by(Instant::now() + Duration::from_millis(50)).unwrap();
    assert!(waited.is_none());
    proxy.refuse(false);
    let counters = running.join().unwrap();
    assert_eq!(counters.acknowledged, end);
    assert_stored(&mut client(&server), 0, end);
}

#[test]
fn dropped_events_leave_a_hole() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let (mut tx, running) = away(&proxy, Outage::DropAfter(Duration::from_millis(20)));
    feed(&mut tx, 5_000).unwrap();
    until("dropped events", || running.counters().dropped > 4_000);
    proxy.refuse(false);
    until("the server", || running.counters().state == State::Publishing);
    let last = 6_000;
    feed(&mut tx, last).unwrap();
    tx.close();
    let counters = running.join().unwrap();
    assert_eq!(counters.acknowledged, last);
    let frames = scan(&mut client(&server));
    let holes: u64 = frames.iter().map(|frame| frame.first - frame.after).sum();
    let events: u64 = frames.iter().map(|frame| frame.events.len() as u64).sum();
    assert_eq!((holes, holes + events), (counters.dropped, last));
}

/// The ring of a source ends, or the source is stopped, while its server is away.
#[test]
fn a_source_ends_while_the_server_is_away() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, 100).unwrap();
    tx.close();
    running.join().unwrap();
    let proxy = Proxy::to(server.port()).unwrap();
    for fails in [false, true] {
        proxy.refuse(false);
        let source = Source::of(At::at(proxy.url()), STREAM);
        let source = if fails { source.fail_after(Duration::from_millis(50)) } else { source };
        let open = source.open().unwrap();
        proxy.refuse(true);
        proxy.cut_now();
        let (tx, mut rx) = ring(0, 16);
        let running = open.start(slipring_nats::Decoding::plain("number", 1), tx).unwrap();
        if !fails {
            running.stop();
            running.join().unwrap();
            assert!(matches!(rx.batch(1), Err(WaitError::Closed)));
            continue;
        }
        until("the source's end", || running.is_finished());
        assert!(matches!(running.join().unwrap_err(), Error::Away { .. }));
        assert!(matches!(rx.batch(1), Err(WaitError::Halted)));
    }
}
