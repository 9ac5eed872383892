//! Models of a publisher, by which threads publish through a shared reference.
//!
//! Each model has two or three threads, on a ring of 4 slots with one stage. A thread of a model
//! has a number of its own, and gives it back when it ends, so a thread that begins late gets the
//! number and the handle of one that has ended.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::errors::WaitError;
use crate::producer::publisher::Publisher;
use Access::Read;

fn publisher(settings: Settings) -> (Arc<Publisher<u64>>, Reader<u64>) {
    let ring = ring(shared(Settings { start: 0, ..settings }), &[(Read, 0, &[])]);
    (Arc::new(shared_producer(&ring).into_publisher()), reader(&ring, 0))
}

/// Two threads publish. The second one gets the number of the first one, if that has ended.
#[test]
fn loom_two_threads_publish_by_reference() {
    explore_unfenced(500, Some(3), || {
        let (publisher, mut reader) = publisher(settings(4));
        let threads = [1, 2].map(|value| {
            let publisher = publisher.clone();
            thread::spawn(move || {
                let sent = (0..3).any(|_| publisher.try_publish(|event| *event = value).is_ok());
                if sent { value } else { 0 }
            })
        });
        let sent: u64 = threads.map(|thread| thread.join().unwrap()).iter().sum();
        let mut seen = 0;
        assert_eq!(reader.poll(4, |event, _| seen += event).unwrap(), sent.count_ones() as usize);
        assert_eq!(seen, sent, "an event is lost");
        (publisher, reader)
    });
}

#[test]
fn loom_twin_number_returned_relaxed() {
    caught(
        "publisher::loom_two_threads_publish_by_reference",
        "number-returned-relaxed",
        Caught::Race,
    );
}

#[test]
fn loom_twin_number_taken_relaxed() {
    caught(
        "publisher::loom_two_threads_publish_by_reference",
        "number-taken-relaxed",
        Caught::Race,
    );
}

#[test]
fn loom_twin_number_taken_by_store() {
    caught(
        "publisher::loom_two_threads_publish_by_reference",
        "number-taken-by-store",
        Caught::Race,
    );
}

/// A closure that fills an event publishes another one, while another thread publishes. Each stage
/// sees the inner event behind the outer one.
#[test]
fn loom_a_fill_publishes() {
    explore_unfenced(100, Some(2), || {
        let (publisher, mut reader) = publisher(settings(4));
        let other = publisher.clone();
        let beside = thread::spawn(move || {
            assert!((0..3).any(|_| other.try_publish(|event| *event = 9).is_ok()));
        });
        let own = publisher.clone();
        let nested = thread::spawn(move || {
            // A call that finds another one in its way has not called its closure.
            let inner = || assert!((0..3).any(|_| own.try_publish(|event| *event = 2).is_ok()));
            let outer = || {
                own.try_publish(|event| {
                    inner();
                    *event = 1;
                })
            };
            assert!((0..3).any(|_| outer().is_ok()));
        });
        beside.join().unwrap();
        nested.join().unwrap();
        let mut seen = Vec::new();
        reader.poll(4, |event, _| seen.push(*event)).unwrap();
        assert!(matches!(seen[..], [1, 2, 9] | [1, 9, 2] | [9, 1, 2]), "{seen:?}");
        (publisher, reader)
    });
}

/// A thread publishes and drops its reference, while another thread drops the other one. The last
/// of them closes the ring, with the event before its end.
#[test]
fn loom_the_last_reference_closes() {
    explore(100, Some(2), || {
        let (publisher, mut reader) = publisher(blocking(4));
        let other = publisher.clone();
        let publishing =
            thread::spawn(move || publisher.publish(|event| *event = 1).map(drop).unwrap());
        drop(other);
        assert_eq!(reader.for_each(|event, _| assert_eq!(*event, 1)).unwrap(), 1);
        publishing.join().unwrap();
    });
}

/// A thread publishes, while another one closes the ring for all.
#[test]
fn loom_a_publisher_closes_for_all() {
    explore(100, Some(2), || {
        let (publisher, mut reader) = publisher(blocking(4));
        let closing = publisher.clone();
        let publishing = thread::spawn(move || match publisher.publish(|event| *event = 1) {
            Ok(_) => 1,
            Err(WaitError::Closed) => 0,
            Err(error) => panic!("{error}"),
        });
        let closing = thread::spawn(move || closing.close_all());
        let seen = reader.for_each(|event, _| assert_eq!(*event, 1)).unwrap();
        assert_eq!(seen, publishing.join().unwrap(), "an event is behind the end");
        closing.join().unwrap();
    });
}
