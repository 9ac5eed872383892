//! Models of gating: a producer claims a slot only after every gating stage has released it. In a
//! ring without stages, a producer claims a slot only after the slot's previous event is published.
//!
//! The models have one or two producers and up to two stages, on rings of 1 or 2 slots.

use loom::thread;

use super::*;
use crate::base::sync::{AtomicU64, Relaxed};
use Access::{Read, Write};

/// Shows that in a ring of one slot the producer waits for a release before every event but the
/// first.
#[test]
fn loom_the_producer_waits_for_a_release() {
    explore_unfenced(4_000, None, || {
        let ring = ring(settings(1), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let reading = thread::spawn(move || (read_some(&mut rx, 3), rx));
        let published = publish_some(&mut tx, 0..3, 4);
        let (seen, mut rx) = reading.join().unwrap();
        assert_eq!((seen + read_some(&mut rx, 1)) as u64, published, "events were lost");
    });
}

#[test]
fn loom_twin_released_relaxed() {
    caught("gate::loom_the_producer_waits_for_a_release", "released-relaxed", Caught::Race);
}

#[test]
fn loom_twin_frontier_relaxed() {
    caught("gate::loom_the_producer_waits_for_a_release", "frontier-relaxed", Caught::Race);
}

/// The producer waits only for the reader, which comes after the writer. Shows that it fills a slot
/// only after both have released the slot.
#[test]
fn loom_a_follower_behind_a_writer() {
    explore_unfenced(1_000, None, || {
        let ring = ring(settings(1), &[(Write, 0, &[]), (Read, 0, &[0])]);
        let (mut tx, mut writer, mut rx) = (producer(&ring), writer(&ring, 0), reader(&ring, 1));
        let writing = thread::spawn(move || {
            for _ in 0..2 {
                writer.poll(1, |event, _| *event += 100).unwrap();
            }
            writer
        });
        let reading = thread::spawn(move || {
            for _ in 0..2 {
                rx.poll(1, |&event, at| assert_eq!(event, at.seq.wrapping_sub(START) + 100))
                    .unwrap();
            }
            rx
        });
        publish_some(&mut tx, 0..2, 2);
        drop((writing.join().unwrap(), reading.join().unwrap()));
    });
}

#[test]
fn loom_twin_released_relaxed_to_a_follower() {
    caught("gate::loom_a_follower_behind_a_writer", "released-relaxed", Caught::Race);
}

#[test]
fn loom_twin_frontier_relaxed_of_a_follower() {
    caught("gate::loom_a_follower_behind_a_writer", "frontier-relaxed", Caught::Race);
}

/// A monitoring thread reads a report. Shows that every event counted there was handled, and that
/// the thread sees the handler's effects.
#[test]
fn loom_a_report_counts_only_handled_events() {
    explore_unfenced(100, None, || {
        let ring = ring(settings(2), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        publish_some(&mut tx, 0..2, 2);
        let done = Arc::new(AtomicU64::new(0));
        let handled = done.clone();
        let reading = thread::spawn(move || {
            for _ in 0..2 {
                rx.poll(1, |&event, _| handled.store(event + 1, Relaxed)).unwrap();
            }
            rx
        });
        let reporting = thread::spawn(move || {
            let reported = ring.report().stages()[0].seq.wrapping_sub(START);
            assert!(
                done.load(Relaxed) >= reported,
                "the report counts an event whose handling is not visible"
            );
        });
        drop((reading.join().unwrap(), reporting.join().unwrap()));
    });
}

#[test]
fn loom_twin_position_relaxed() {
    caught(
        "gate::loom_a_report_counts_only_handled_events",
        "position-relaxed",
        Caught::Message("the report counts an event whose handling is not visible"),
    );
}

/// Shows that the slower of two stages side by side gates the producer.
#[test]
fn loom_the_slower_of_two_stages_gates() {
    explore_unfenced(2_000, None, || {
        let ring = ring(settings(1), &[(Read, 0, &[]), (Read, 0, &[])]);
        let (mut tx, mut left, mut right) = (producer(&ring), reader(&ring, 0), reader(&ring, 1));
        tx.publish(|event| *event = 0).unwrap();
        let reading = thread::spawn(move || (read_some(&mut left, 1), left));
        let other = thread::spawn(move || (read_some(&mut right, 1), right));
        for _ in 0..2 {
            let _ = tx.try_publish(|event| *event = 1);
        }
        drop((reading.join().unwrap(), other.join().unwrap()));
    });
}

#[test]
fn loom_twin_gated_by_one_of_two() {
    caught("gate::loom_the_slower_of_two_stages_gates", "gated-by-one", Caught::Race);
}

/// Two producers fill one slot in turn, and a reader releases the slot between the producers' laps.
#[test]
fn loom_two_producers_wait_for_a_release() {
    explore_unfenced(6_000, None, || {
        let ring = ring(shared(settings(1)), &[(Read, 0, &[])]);
        let (mut one, mut two) = (shared_producer(&ring), shared_producer(&ring));
        let mut rx = reader(&ring, 0);
        one.publish(|event| *event = 0).unwrap();
        let try_publish = |tx: &mut SharedProducer<u64>| {
            let claimed = tx.try_claim();
            claimed.is_ok_and(|mut slot| {
                *slot = slot.seq().wrapping_sub(START);
                slot.publish();
                true
            })
        };
        let first = thread::spawn(move || (try_publish(&mut one), one));
        let second = thread::spawn(move || (try_publish(&mut two), two));
        let seen = read_some(&mut rx, 2);
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        let published = 1 + usize::from(first.0) + usize::from(second.0);
        assert_eq!(seen + read_some(&mut rx, 1), published, "events were lost");
    });
}

#[test]
fn loom_twin_released_relaxed_to_two_producers() {
    caught("gate::loom_two_producers_wait_for_a_release", "released-relaxed", Caught::Race);
}

/// Two producers fill one slot in turn, and a pool of one worker releases it between their laps.
/// One producer claims the slot after that release. The other producer may see this claim, and
/// still load the pool's claim word as it was before the release.
#[test]
fn loom_two_producers_wait_for_a_pool() {
    explore_unfenced(1, Some(3), || {
        let ring = ring(shared(settings(1)), &[(Write, 1, &[])]);
        let (mut one, mut two) = (shared_producer(&ring), shared_producer(&ring));
        let mut rx = worker(&ring, 0, 0);
        one.publish(|event| *event = 0).unwrap();
        let first = thread::spawn(move || (one.try_publish(|event| *event = 1).is_ok(), one));
        let second = thread::spawn(move || (two.try_publish(|event| *event = 2).is_ok(), two));
        let mut seen = 0;
        let mut read_twice = || (0..2).for_each(|_| seen += rx.poll(4, |_, _| ()).unwrap());
        read_twice();
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        read_twice();
        assert_eq!(seen, 1 + usize::from(first.0) + usize::from(second.0), "events were lost");
    });
}

#[test]
fn loom_twin_widened_forwards() {
    caught("gate::loom_two_producers_wait_for_a_pool", "widened-forwards", Caught::Race);
}

/// Shows that, in a ring without stages, a producer fills a slot again only after its previous
/// event is published. Without the sentinel's gate, two producers a lap apart would fill the same
/// slot.
#[test]
fn loom_two_producers_and_no_stage() {
    explore_unfenced(20_000, Some(5), || {
        let ring = ring(shared(settings(1)), &[]);
        let (mut one, mut two) = (shared_producer(&ring), shared_producer(&ring));
        let first = thread::spawn(move || {
            let _ = one.try_publish(|event| *event = 1);
            let _ = one.try_publish(|event| *event = 2);
            one
        });
        let _ = two.try_publish(|event| *event = 3);
        let _ = two.try_publish(|event| *event = 4);
        drop(first.join().unwrap());
    });
}

#[test]
fn loom_twin_no_sentinel() {
    caught("gate::loom_two_producers_and_no_stage", "no-sentinel", Caught::Race);
}

#[test]
fn loom_twin_sentinel_relaxed() {
    caught("gate::loom_two_producers_and_no_stage", "sentinel-relaxed", Caught::Race);
}

/// One producer moves the sentinel over several publications, while another producer tries to move
/// the sentinel over the first of those publications.
#[test]
fn loom_the_sentinel_is_moved_by_another() {
    explore_unfenced(1_000, Some(3), || {
        let ring = ring(shared(settings(2)), &[]);
        let (mut one, mut two) = (shared_producer(&ring), shared_producer(&ring));
        let first = thread::spawn(move || {
            for i in 0..3 {
                let _ = one.try_publish(|event| *event = i);
            }
            one
        });
        let second = thread::spawn(move || {
            two.try_claim_n(2).map(|slots| slots.publish()).ok();
            two
        });
        drop((first.join().unwrap(), second.join().unwrap()));
    });
}

#[test]
fn loom_twin_sentinel_lost_relaxed() {
    caught("gate::loom_the_sentinel_is_moved_by_another", "sentinel-lost-relaxed", Caught::Race);
}

#[test]
fn loom_twin_sentinel_unreleased() {
    caught("gate::loom_two_producers_and_no_stage", "sentinel-unreleased", Caught::Race);
}
