//! Models of membership. Readers join and leave a tap, and workers join a pool, while producers and
//! stages continue to work. In the names of twins, a *passer* is a producer or stage directly
//! behind a tap.
//!
//! The models have one producer and up to two other threads, on rings of 1 to 4 slots.

use loom::thread;

use super::*;
use crate::live::tap::{StartAt, Subscription, join};
use Access::{Read, Write};
use Delivery::{Each, Tap};

/// A stage behind a pool is lent an event that no worker has handled.
const UNHANDLED: Caught = Caught::Message("the event at");

/// Returns the ring's core, upgraded from the weak reference that an observer holds.
pub(super) fn observed(ring: &Ring) -> Arc<Core<u64, Interleaved>> {
    ring.observed().upgrade().expect("the owner is alive")
}

/// Subscribes a reader to the tap, which is the first stage of the ring.
pub(super) fn subscribe(ring: &Ring, from: StartAt) -> Subscription<u64> {
    subscribe_to(ring, 0, from)
}

/// Subscribes a reader to the tap whose stage number is `stage`.
pub(super) fn subscribe_to(ring: &Ring, stage: usize, from: StartAt) -> Subscription<u64> {
    join(&observed(ring), stage, from).expect("a free member seat and a running graph")
}

/// Polls `polls` times, and asserts that each event's value is its position, counted from the
/// ring's first event, and that no position is missing.
pub(super) fn follow(reader: &mut Subscription<u64>, polls: usize) {
    let mut next = reader.next_seq();
    for _ in 0..polls {
        reader
            .poll(4, |event, at| {
                assert_eq!(*event, at.seq.wrapping_sub(START), "the event at {}", at.seq);
                assert_eq!(at.seq, next, "a gap");
                next = at.seq.wrapping_add(1);
            })
            .unwrap();
    }
}

/// Shows that a tap gates the producer of a ring of one slot. A producer that missed a joiner would
/// overwrite the joiner's event.
#[test]
fn loom_a_reader_joins_before_the_producer() {
    explore(10_000, Some(3), || {
        let ring = ring_of(settings(1), [(Read, Tap(1), &[][..])]);
        let mut tx = producer(&ring);
        publish_some(&mut tx, 0..1, 1);
        let joining = ring.clone();
        let late = thread::spawn(move || {
            let mut late = subscribe(&joining, StartAt::Oldest);
            follow(&mut late, 1);
            drop(late);
        });
        publish_some(&mut tx, 1..3, 2);
        late.join().unwrap();
    });
}

#[test]
fn loom_twin_joiner_unfenced() {
    caught("join::loom_a_reader_joins_before_the_producer", "joiner-unfenced", Caught::Race);
}

#[test]
fn loom_twin_joiner_unvalidated() {
    caught("join::loom_a_reader_joins_before_the_producer", "joiner-unvalidated", Caught::Race);
}

#[test]
fn loom_twin_passer_unfenced() {
    caught("join::loom_a_reader_joins_before_the_producer", "passer-unfenced", Caught::Race);
}

#[test]
fn loom_twin_unannounced() {
    caught("join::loom_a_reader_joins_before_the_producer", "unannounced", Caught::Race);
}

#[test]
fn loom_twin_unasked() {
    caught("join::loom_a_reader_joins_before_the_producer", "unasked", Caught::Race);
}

/// Shows that a writer behind the tap gets an event only after the joiner has released the event.
#[test]
fn loom_a_reader_joins_before_a_writer() {
    explore(4_000, Some(3), || {
        let ring = ring_of(settings(2), [(Read, Tap(1), &[][..]), (Write, Each, &[0][..])]);
        let (mut tx, mut spoil) = (producer(&ring), writer(&ring, 1));
        publish_some(&mut tx, 0..2, 2);
        let joining = ring.clone();
        let late = thread::spawn(move || {
            let mut late = subscribe(&joining, StartAt::Now);
            follow(&mut late, 1);
            drop(late);
            let mut late = subscribe(&joining, StartAt::Oldest);
            follow(&mut late, 1);
            late
        });
        for _ in 0..2 {
            spoil.poll(1, |event, _| *event += 100).unwrap();
        }
        drop((late.join().unwrap(), tx, spoil));
    });
}

#[test]
fn loom_twin_joiner_unfenced_before_a_writer() {
    caught("join::loom_a_reader_joins_before_a_writer", "joiner-unfenced", Caught::Race);
}

#[test]
fn loom_twin_passer_unfenced_before_a_writer() {
    caught("join::loom_a_reader_joins_before_a_writer", "passer-unfenced", Caught::Race);
}

#[test]
fn loom_twin_left_unseen() {
    caught("join::loom_a_reader_joins_before_the_producer", "left-unseen", Caught::Race);
}

#[test]
fn loom_twin_bound_relaxed_behind_a_tap() {
    caught("join::loom_a_reader_joins_before_the_producer", "bound-relaxed", Caught::Race);
}

/// Shows that the producer refills a slot only after the member has read the slot's event and left.
#[test]
fn loom_a_reader_leaves() {
    explore(4_000, None, || {
        let ring = ring_of(settings(1), [(Read, Tap(1), &[][..])]);
        let mut tx = producer(&ring);
        let mut member = subscribe(&ring, StartAt::Now);
        publish_some(&mut tx, 0..1, 1);
        let leaving = thread::spawn(move || {
            let batch = member.try_batch(1).expect("an event published before");
            assert_eq!(batch[0], 0);
            drop(batch);
            drop(member);
        });
        publish_some(&mut tx, 1..3, 2);
        leaving.join().unwrap();
    });
}

#[test]
fn loom_twin_left_unreleased() {
    caught("join::loom_a_reader_leaves", "left-unreleased", Caught::Race);
}

/// A member stays and releases its events one after the other, while another member leaves.
#[test]
fn loom_a_reader_stays() {
    explore(1_000, None, || {
        let ring = ring_of(settings(1), [(Read, Tap(2), &[][..])]);
        let mut tx = producer(&ring);
        let (mut member, other) = (subscribe(&ring, StartAt::Now), subscribe(&ring, StartAt::Now));
        let reading = thread::spawn(move || {
            follow(&mut member, 2);
            member
        });
        drop(other);
        publish_some(&mut tx, 0..3, 3);
        drop((reading.join().unwrap(), tx));
    });
}

#[test]
fn loom_twin_released_relaxed_by_a_member() {
    caught("join::loom_a_reader_stays", "released-relaxed", Caught::Race);
}

/// A second member takes the seat that the first one has left, and stores its position on the
/// seat's line. Shows that a producer that loads this position also sees the first member's
/// release.
#[test]
fn loom_a_seat_is_taken_again() {
    explore(6_000, Some(2), || {
        let ring = ring_of(settings(1), [(Read, Tap(1), &[][..])]);
        let mut tx = producer(&ring);
        let mut member = subscribe(&ring, StartAt::Now);
        publish_some(&mut tx, 0..1, 1);
        let again = ring.clone();
        let changing = thread::spawn(move || {
            follow(&mut member, 1);
            drop(member);
            let mut member = subscribe(&again, StartAt::Now);
            follow(&mut member, 1);
            member
        });
        publish_some(&mut tx, 1..3, 2);
        drop((changing.join().unwrap(), tx));
    });
}

#[test]
fn loom_twin_pin_unreleased() {
    caught("join::loom_a_seat_is_taken_again", "pin-unreleased", Caught::Race);
}

/// Two members share a tap directly behind many producers. One of them moves the sentinel over a
/// publication, and the other learns of the publication from the sentinel.
#[test]
fn loom_two_readers_behind_many_producers() {
    explore(200, Some(3), || {
        let ring = ring_of(shared(settings(2)), [(Read, Tap(2), &[][..])]);
        let mut tx = shared_producer(&ring);
        let (mut one, mut two) = (subscribe(&ring, StartAt::Now), subscribe(&ring, StartAt::Now));
        let first = thread::spawn(move || {
            follow(&mut one, 1);
            one
        });
        let second = thread::spawn(move || {
            follow(&mut two, 1);
            two
        });
        tx.try_publish(|event| *event = 0).unwrap();
        drop((first.join().unwrap(), second.join().unwrap(), tx));
    });
}

#[test]
fn loom_twin_sentinel_seen_relaxed() {
    caught("join::loom_two_readers_behind_many_producers", "sentinel-seen-relaxed", Caught::Race);
}

/// The producer sleeps because a member holds the ring's only slot; the member wakes the producer
/// by leaving.
#[test]
fn loom_leaving_wakes_the_producer() {
    explore(10_000, None, || {
        let ring = ring_of(blocking(1), [(Read, Tap(1), &[][..])]);
        let mut tx = producer(&ring);
        let member = subscribe(&ring, StartAt::Now);
        tx.publish(|event| *event = 0).unwrap();
        let leaving = thread::spawn(move || drop(member));
        tx.publish(|event| *event = 1).unwrap();
        leaving.join().unwrap();
    });
}

#[test]
fn loom_twin_vacated_unnotified() {
    caught(
        "join::loom_leaving_wakes_the_producer",
        "vacated-unnotified",
        Caught::Deadlock(&["producer"]),
    );
}

/// A `LeaveHandle` wakes a member that sleeps in an empty ring.
#[test]
fn loom_a_sleeper_is_asked_to_leave() {
    explore(150, None, || {
        let ring = ring_of(blocking(1), [(Read, Tap(1), &[][..])]);
        let tx = producer(&ring);
        let mut member = subscribe(&ring, StartAt::Now);
        let leaver = member.leave_handle();
        let asking = thread::spawn(move || assert!(leaver.leave()));
        assert!(matches!(member.batch(1), Err(crate::errors::WaitError::Left)));
        asking.join().unwrap();
        drop((member, tx));
    });
}

#[test]
fn loom_twin_leaving_unnotified() {
    caught(
        "join::loom_a_sleeper_is_asked_to_leave",
        "leaving-unnotified",
        Caught::Deadlock(&["s0"]),
    );
}

/// Two stages follow a tap. The first has already passed the position that a joiner stores; the
/// second sleeps, because that position holds it back. Shows that the second stage wakes when the
/// joiner moves its position forward.
#[test]
fn loom_a_late_pin_moves_on() {
    explore(1_000, Some(3), || {
        let ring = ring_of(
            blocking(2),
            [(Read, Tap(1), &[][..]), (Read, Each, &[0][..]), (Read, Each, &[0][..])],
        );
        let (mut tx, mut one, mut other) = (producer(&ring), reader(&ring, 1), reader(&ring, 2));
        tx.publish(|event| *event = 0).unwrap();
        let passing = thread::spawn(move || {
            other.poll(1, |_, _| ()).unwrap();
            other
        });
        let joining = ring.clone();
        let late = thread::spawn(move || {
            let mut late = subscribe(&joining, StartAt::Oldest);
            if late.next_seq() == START {
                follow(&mut late, 1);
            }
            late
        });
        one.batch(1).unwrap().release();
        drop((late.join().unwrap(), passing.join().unwrap(), tx, one));
    });
}

#[test]
fn loom_twin_late_unnotified() {
    caught("join::loom_a_late_pin_moves_on", "late-unnotified", Caught::Deadlock(&["s1"]));
}

/// Takes a chunk of two events, and releases the first event.
fn one_of_two(worker: &mut PoolUpdater<u64>) {
    if let Some(mut chunk) = available(worker.try_batch(2)) {
        chunk[0] += 100;
        chunk.release_front(1);
    }
}

/// A worker leaves an unfinished chunk, which another worker handles. Until that is done, the
/// departed worker's line holds the position of the chunk's first unreleased event, and no joining
/// worker gets its seat.
#[test]
fn loom_a_worker_joins_where_one_left() {
    explore(10, None, || {
        let ring =
            ring_of(settings(4), [(Write, Delivery::pool(2), &[][..]), (Read, Each, &[0][..])]);
        let (mut tx, mut end) = (producer(&ring), reader(&ring, 1));
        let (mut first, mut second) = (worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish_some(&mut tx, 0..4, 4);
        one_of_two(&mut first);
        let pool = first.pool();
        drop(first); // leaves the second event of its chunk
        let adopting = thread::spawn(move || {
            second.poll(1, |event, _| *event += 100).unwrap();
            second
        });
        let joining = thread::spawn(move || {
            let mut third = pool.join().ok()?;
            one_of_two(&mut third);
            Some(third)
        });
        let read_handled = |end: &mut Reader<u64>| {
            end.poll(4, |event, at| {
                assert_eq!(*event, at.seq.wrapping_sub(START) + 100, "the event at {}", at.seq)
            })
            .unwrap();
        };
        // The reader `end` polls after the thread of the worker `third` has ended, so it sees the
        // accesses of `third`. By joining, `third` must acquire the accesses of the worker
        // `second`; otherwise the reads of `end` could race with these.
        let joined = joining.join().unwrap();
        read_handled(&mut end);
        drop((adopting.join().unwrap(), joined, tx, end));
    });
}

#[test]
fn loom_twin_bounded_seat() {
    caught("join::loom_a_worker_joins_where_one_left", "bounded-seat", UNHANDLED);
}

/// A worker handles an event and leaves, and another worker takes its seat. Both store bounds on
/// the seat's line. The reader behind the pool may load only the second worker's bound, and still
/// reads the first worker's event after that worker.
#[test]
fn loom_a_worker_joins_at_a_used_seat() {
    explore(10, None, || {
        let ring =
            ring_of(settings(4), [(Write, Delivery::pool(2), &[][..]), (Read, Each, &[0][..])]);
        let (mut tx, mut end) = (producer(&ring), reader(&ring, 1));
        let (mut first, second) = (worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish_some(&mut tx, 0..2, 2);
        let pool = first.pool();
        let leaving = thread::spawn(move || {
            first.poll(1, |event, _| *event += 100).unwrap();
            drop(first);
        });
        let joining = thread::spawn(move || {
            let mut third = pool.join().ok()?;
            third.poll(1, |event, _| *event += 100).unwrap();
            Some(third)
        });
        // The reader synchronises with the thread of the worker `third`, but not with that of
        // `first`.
        let joined = joining.join().unwrap();
        end.poll(4, |event, at| {
            assert_eq!(*event, at.seq.wrapping_sub(START) + 100, "the event at {}", at.seq)
        })
        .unwrap();
        leaving.join().unwrap();
        drop((joined, second, tx, end));
    });
}

#[test]
fn loom_twin_worker_seat_taken_relaxed() {
    caught("join::loom_a_worker_joins_at_a_used_seat", "seat-taken-relaxed", Caught::Race);
}

#[test]
fn loom_twin_worker_seat_freed_relaxed() {
    caught("join::loom_a_worker_joins_at_a_used_seat", "seat-freed-relaxed", Caught::Race);
}

/// A worker joins a pool while another worker handles events. Shows that the two share the events,
/// and that a reader behind the pool sees all of them in order.
#[test]
fn loom_a_worker_joins_another() {
    explore(10_000, Some(3), || {
        let ring = ring_of(
            settings(4),
            [(Write, Delivery::Pool { workers: 1, room: 2 }, &[][..]), (Read, Each, &[0][..])],
        );
        let (mut tx, mut end, mut first) = (producer(&ring), reader(&ring, 1), worker(&ring, 0, 0));
        publish_some(&mut tx, 0..4, 4);
        let pool = first.pool();
        let joining = thread::spawn(move || {
            let mut second = pool.join().expect("a free member seat");
            second.poll(2, |event, _| *event += 100).unwrap();
            second
        });
        let working = thread::spawn(move || {
            first.poll(2, |event, _| *event += 100).unwrap();
            first
        });
        let mut next = START;
        for _ in 0..2 {
            end.poll(4, |event, at| {
                assert_eq!(
                    (*event, at.seq),
                    (at.seq.wrapping_sub(START) + 100, next),
                    "handled once, and in order"
                );
                next = next.wrapping_add(1);
            })
            .unwrap();
        }
        drop((joining.join().unwrap(), working.join().unwrap(), tx, end));
    });
}

#[test]
fn loom_twin_take_by_store_beside_a_joiner() {
    caught("join::loom_a_worker_joins_another", "take-by-store", Caught::Race);
}
