//! Faults of sinks that publish one message for each event, in atomic batches.

use std::time::Duration;

use slipring::Producer;
use slipring_nats::{Encoding, Error, OpenSink, RunningSink, Server as At, Sink, StreamSettings};
use slipring_nats_server::{Client, Counts, Direction, Proxy};

use crate::common::*;
use crate::support::*;

pub fn open(url: &str) -> OpenSink<u64> {
    let encoding = Encoding::messages(
        "order",
        1,
        |order: &u64| format!("orders.{}", order % 3),
        |order, bytes| bytes.extend(order.to_be_bytes()),
    );
    let sink = Sink::to(At::at(url), STREAM).create(StreamSettings::new("orders.*"));
    sink.ack_timeout(Duration::from_millis(300)).open(encoding).unwrap()
}

fn start(open: OpenSink<u64>) -> (Producer<u64>, RunningSink) {
    let (tx, journal) = ring(open.next_seq(), 256);
    (tx, open.start(journal).unwrap())
}

/// Checks that the stream has the event of each position up to `end`, once and in order.
#[track_caller]
pub fn assert_singles(client: &mut Client, end: u64) {
    let mut next = 0;
    for message in client.messages(STREAM).unwrap() {
        let position = message.header("Slipring-Position").unwrap().parse();
        assert_eq!(position, Ok(next), "{message:?}");
        if !message.payload.is_empty() {
            assert_eq!(message.payload, event(next).to_be_bytes());
            next += 1;
        }
    }
    assert_eq!(next, end);
}

#[test]
fn connections_are_cut_in_the_middle_of_batches() {
    let _watched = watched();
    let Some(server) = server() else { return };
    seeded(|rng| {
        let proxy = Proxy::to(server.port()).unwrap();
        let (mut tx, running) = start(open(&proxy.url()));
        for _ in 0..faults(20) {
            let direction = [Direction::ToServer, Direction::ToClient][rng.usize(..2)];
            proxy.cut_after(direction, rng.u64(..10_000));
            feed_some(&mut tx, rng, 100);
            if rng.bool() {
                acknowledged(&running, tx.next_seq());
            }
        }
        acknowledged(&running, tx.next_seq());
        let end = tx.next_seq();
        tx.close();
        running.join().unwrap();
        assert_singles(&mut client(&server), end);
    });
}

#[test]
fn batches_on_the_way_are_refused_after_a_takeover() {
    let _watched = watched();
    let Some(server) = server() else { return };
    seeded(|rng| {
        let proxy = Proxy::to(server.port()).unwrap();
        let mut end = 0;
        for _ in 0..faults(10) {
            let (mut tx, earlier) = start(open(&proxy.url()));
            feed(&mut tx, end + 10).unwrap();
            acknowledged(&earlier, end + 10);
            end += 10;
            proxy.hold(Direction::ToServer, true);
            // First one message or a batch of messages is sent. More follow.
            feed_some(&mut tx, rng, 3);
            spin(rng, 2_000);
            feed_some(&mut tx, rng, 50);
            proxy.wait_until(SOON, |counts: &Counts| counts.to_server.held > 200).unwrap();
            let open = open(&server.url());
            assert_eq!(open.next_seq(), end);
            let (mut next, later) = start(open);
            proxy.hold(Direction::ToServer, false);
            let error = failure(earlier);
            assert!(matches!(error, Error::Fenced { .. }), "{error:?}");
            feed(&mut next, end + 10).unwrap();
            end += 10;
            next.close();
            later.join().unwrap();
        }
        assert_singles(&mut client(&server), end);
    });
}
