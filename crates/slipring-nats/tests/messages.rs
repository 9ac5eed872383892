//! One message for each event, for consumers in other languages.

mod common;

use common::*;
use slipring::Graph;
use slipring_nats::{Decoding, Encoding, Error, Server as At, Sink, Source, StreamSettings};

fn by_market() -> Encoding<u64> {
    Encoding::messages(
        "order",
        1,
        |order: &u64| format!("orders.{}", order % 3),
        |order, bytes| bytes.extend(order.to_string().bytes()),
    )
}

fn parsed() -> Decoding<u64> {
    Decoding::by("order", 1, |bytes, order| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        *order = text.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
        Ok(())
    })
}

#[test]
fn each_event_is_a_message_with_its_position_in_a_header() {
    let _watched = watched();
    let Some(server) = server() else { return };
    let settings = StreamSettings::new("orders.*");
    for round in 0..2 {
        let sink = Sink::to(At::at(server.url()), STREAM).create(settings.clone());
        let open = sink.open(by_market()).unwrap();
        assert_eq!(open.next_seq(), round * 5_000);
        let (mut tx, running) = start(open, 4096);
        feed(&mut tx, (round + 1) * 5_000).unwrap();
        tx.close();
        let counters = running.join().unwrap();
        assert_eq!(counters.events, 5_000);
        assert!(counters.frames < 5_000, "no events were stored together");
    }
    let mut next = 0;
    for message in client(&server).messages(STREAM).unwrap() {
        let seq: u64 = message.header("Slipring-Position").unwrap().parse().unwrap();
        assert_eq!(seq, next);
        if message.payload.is_empty() {
            assert_eq!(message.subject, "orders.begin");
            continue;
        }
        assert_eq!(message.subject, format!("orders.{}", event(seq) % 3));
        assert_eq!(String::from_utf8(message.payload).unwrap(), event(seq).to_string());
        next += 1;
    }
    assert_eq!(next, 10_000);

    let open = Source::of(At::at(server.url()), STREAM).until_end().open().unwrap();
    let graph = Graph::new(64, || 0u64).first_seq(4_321);
    let key = graph.reader("replay");
    let ring = graph.build().unwrap();
    let mut replay = ring.reader(key);
    let source = open.start(parsed(), ring.producer()).unwrap();
    let mut next = 4_321;
    replay
        .for_each(|order, at| {
            assert_eq!((*order, at.seq), (event(next), next));
            next += 1;
        })
        .unwrap();
    assert_eq!(next, 10_000);
    source.join().unwrap();
}

#[test]
fn a_stream_that_takes_no_atomic_batches_is_refused() {
    let _watched = watched();
    let Some(server) = server() else { return };
    client(&server)
        .create_stream(serde_json::json!({"name": STREAM, "subjects": ["orders.*"]}))
        .unwrap();
    let error = Sink::to(At::at(server.url()), STREAM).open(by_market()).unwrap_err();
    assert!(
        matches!(&error, Error::WrongStream { wrong, .. } if wrong[0].contains("allow_atomic"))
    );
}
