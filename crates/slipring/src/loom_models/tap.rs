//! Models of taps in larger graphs: several parties behind one tap, one party behind several taps,
//! a pool before a tap, and parties that sleep behind a tap. The models at the end of this file
//! show the data edges through a tap.
//!
//! loom lets any two `SeqCst` fences synchronise, which C++20 does not promise. A fence between a
//! thread's access to an event and its releasing store could hide that the store is too weak. So in
//! the models of data edges, the releasing thread issues no fence after its access: it never checks
//! a tap's members, and its release notifies no queue, because all threads poll instead of
//! sleeping.

use loom::thread;

use super::join::{follow, observed, subscribe, subscribe_to};
use super::*;
use crate::At;
use crate::errors::SubscribeError;
use crate::live::tap::{StartAt, Subscription, join};
use Access::{Read, Write};
use Delivery::{Each, Tap};

/// Declares a test for each twin: `$model` must catch the weakened step `$twin` by the failure
/// `$how`.
macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal, $how:expr;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("tap::", $model), $twin, $how);
            }
        )+
    };
}

/// Changes an event's value, as an updating stage behind a tap does. A member that reads the event
/// later sees a wrong value.
fn spoil(event: &mut u64) {
    *event += 100;
}

/// Publishes one event whose value is its position, counted from the ring's first event; returns
/// whether there was room.
fn try_fill(tx: &mut SharedProducer<u64>) -> bool {
    tx.try_claim().is_ok_and(|mut slot| {
        *slot = slot.seq().wrapping_sub(START);
        slot.publish();
        true
    })
}

/// Handles one chunk if a chunk is available.
fn work(worker: &mut PoolUpdater<u64>) {
    if let Some(mut chunk) = available(worker.try_batch(4)) {
        chunk.iter_mut().for_each(spoil);
        chunk.release();
    }
}

/// Polls once, and asserts that a found event's value is its position, counted from the ring's
/// first event.
fn see(reader: &mut Subscription<u64>) {
    if let Some(batch) = available(reader.try_batch(1)) {
        assert_eq!(
            batch[0],
            batch.first_seq().wrapping_sub(START),
            "the event at {}",
            batch.first_seq()
        );
    }
}

// Models of several parties behind one tap, and of one party behind several taps.

/// Two producers behind a tap announce their positions in one shared word. Each producer stores its
/// position in that word only if the word holds an earlier one.
#[test]
fn loom_two_producers_pass_a_tap() {
    explore(4_000, Some(2), || {
        let ring = ring_of(shared(settings(1)), [(Read, Each, &[][..]), (Read, Tap(1), &[0][..])]);
        let (mut one, mut two, mut before) =
            (shared_producer(&ring), shared_producer(&ring), reader(&ring, 0));
        assert!(try_fill(&mut one));
        before.poll(1, |_, _| ()).unwrap();
        let other = thread::spawn(move || {
            try_fill(&mut two);
            two
        });
        let joining = ring.clone();
        let late = thread::spawn(move || {
            let mut late = subscribe_to(&joining, 1, StartAt::Oldest);
            see(&mut late);
            late
        });
        try_fill(&mut one);
        drop((late.join().unwrap(), other.join().unwrap(), one, before));
    });
}

/// Two workers of a pool behind a tap announce their positions in one shared word. Shows that the
/// earlier position of one worker does not overwrite the later position of the other.
#[test]
fn loom_two_workers_pass_a_tap() {
    explore(25_000, Some(2), || {
        let ring =
            ring_of(settings(2), [(Read, Tap(1), &[][..]), (Write, Delivery::pool(2), &[0][..])]);
        let (mut tx, mut one, mut two) =
            (producer(&ring), worker(&ring, 1, 0), worker(&ring, 1, 1));
        publish_some(&mut tx, 0..1, 1);
        let working = thread::spawn(move || {
            work(&mut one);
            one
        });
        let joining = ring.clone();
        let late = thread::spawn(move || {
            let mut late = subscribe(&joining, StartAt::Oldest);
            see(&mut late);
            late
        });
        publish_some(&mut tx, 1..2, 1);
        work(&mut two);
        drop((late.join().unwrap(), working.join().unwrap(), tx, two));
    });
}

/// The producer is behind two taps, and a reader joins one of the two taps.
fn passes_two_taps(joined: usize) {
    explore(100, Some(3), move || {
        let ring = ring_of(settings(1), [(Read, Tap(1), &[][..]), (Read, Tap(1), &[][..])]);
        let mut tx = producer(&ring);
        publish_some(&mut tx, 0..1, 1);
        let joining = ring.clone();
        let late = thread::spawn(move || {
            let mut late = subscribe_to(&joining, joined, StartAt::Oldest);
            follow(&mut late, 1);
            late
        });
        publish_some(&mut tx, 1..2, 1);
        drop((late.join().unwrap(), tx));
    });
}

#[test]
fn loom_the_first_of_two_taps_is_passed() {
    passes_two_taps(0);
}

#[test]
fn loom_the_second_of_two_taps_is_passed() {
    passes_two_taps(1);
}

/// A writer depends on a tap, and a reader depends on both. Each of them announces a position on a
/// line of its own, and a joiner begins at the furthest announced position. The joiner loads the
/// lines in the order of the stages' indices, which are `reader` and `writer`.
fn two_stages_pass_a_tap(reader: usize, writer: usize) {
    explore(200, None, move || {
        let behind: [(Access, Delivery, &[usize]); 2] = match reader {
            1 => [(Read, Each, &[0, 2]), (Write, Each, &[0])],
            _ => [(Write, Each, &[0]), (Read, Each, &[0, 1])],
        };
        let ring = ring_of(settings(2), [(Read, Tap(1), &[][..])].into_iter().chain(behind));
        let (mut tx, mut spoiling, end) =
            (producer(&ring), super::writer(&ring, writer), super::reader(&ring, reader));
        publish_some(&mut tx, 0..1, 1);
        let joining = ring.clone();
        let late = thread::spawn(move || {
            let mut late = subscribe(&joining, StartAt::Oldest);
            follow(&mut late, 1);
            late
        });
        spoiling.poll(1, |event, _| spoil(event)).unwrap();
        drop((late.join().unwrap(), tx, spoiling, end));
    });
}

#[test]
fn loom_the_further_line_is_the_second() {
    two_stages_pass_a_tap(1, 2);
}

#[test]
fn loom_the_further_line_is_the_first() {
    two_stages_pass_a_tap(2, 1);
}

twins! {
    loom_twin_passer_unfenced_beside_a_producer: "loom_two_producers_pass_a_tap", "passer-unfenced", Caught::Race;
    loom_twin_joiner_unfenced_before_two_producers: "loom_two_producers_pass_a_tap", "joiner-unfenced", Caught::Race;
    loom_twin_announced_stored: "loom_two_workers_pass_a_tap", "announced-stored", Caught::Race;
    loom_twin_high_word_unfenced: "loom_two_producers_pass_a_tap", "high-word-unfenced", Caught::Race;
    loom_twin_passer_unfenced_beside_a_worker: "loom_two_workers_pass_a_tap", "passer-unfenced", Caught::Race;
    loom_twin_one_tap_asked: "loom_the_second_of_two_taps_is_passed", "one-tap-asked", Caught::Race;
    loom_twin_counted_late: "loom_the_first_of_two_taps_is_passed", "counted-late", Caught::Race;
    loom_twin_announced_by_first: "loom_the_further_line_is_the_second", "announced-by-first", Caught::Race;
    loom_twin_announced_least: "loom_the_further_line_is_the_first", "announced-least", Caught::Race;
    loom_twin_announced_least_by_the_first: "loom_the_further_line_is_the_second", "announced-least", Caught::Race;
}

// Models of a tap behind a pool.

/// Polls `polls` times, and asserts that the stage before the tap handled each event once.
fn follow_handled(reader: &mut Subscription<u64>, polls: usize) {
    for _ in 0..polls {
        let handled = |event: &u64, at: At| {
            assert_eq!(*event, at.seq.wrapping_sub(START) + 100, "handled not once")
        };
        reader.poll(4, handled).unwrap();
    }
}

/// Shows that a member reads an event only after the event's worker has released it. The workers in
/// this model issue no fence.
#[test]
fn loom_a_member_behind_a_pool() {
    explore(30_000, Some(3), || {
        let ring =
            ring_of(settings(4), [(Write, Delivery::pool(2), &[][..]), (Read, Tap(1), &[0][..])]);
        let (mut tx, mut one, mut two) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        let mut member = subscribe_to(&ring, 1, StartAt::Now);
        publish_some(&mut tx, 0..3, 3);
        let working = thread::spawn(move || {
            work(&mut one);
            one
        });
        let other = thread::spawn(move || {
            work(&mut two);
            two
        });
        let reading = thread::spawn(move || {
            follow_handled(&mut member, 1);
            member
        });
        drop((working.join().unwrap(), other.join().unwrap(), reading.join().unwrap(), tx));
    });
}

/// A reader joins between a pool and a writer while a worker handles an event.
#[test]
fn loom_a_reader_joins_behind_a_pool() {
    explore(30_000, Some(2), || {
        let stages = [
            (Write, Delivery::pool(1), &[][..]),
            (Read, Tap(1), &[0][..]),
            (Write, Each, &[1][..]),
        ];
        let ring = ring_of(settings(2), stages);
        let (mut tx, mut working, mut spoiling) =
            (producer(&ring), worker(&ring, 0, 0), writer(&ring, 2));
        publish_some(&mut tx, 0..1, 1);
        let working = thread::spawn(move || {
            work(&mut working);
            working
        });
        let passing = thread::spawn(move || {
            spoiling.poll(1, |event, _| spoil(event)).unwrap();
            spoiling
        });
        let joining = ring.clone();
        let late = thread::spawn(move || {
            let mut late = subscribe_to(&joining, 1, StartAt::Oldest);
            drop(available(late.try_batch(1)));
            late
        });
        drop((late.join().unwrap(), passing.join().unwrap(), working.join().unwrap(), tx));
    });
}

twins! {
    loom_twin_frontier_word_last_behind_a_tap: "loom_a_member_behind_a_pool", "frontier-word-last", Caught::Race;
    loom_twin_frontier_word_relaxed_behind_a_tap: "loom_a_member_behind_a_pool", "frontier-word-relaxed", Caught::Race;
    loom_twin_swap_unreleased_behind_a_tap: "loom_a_member_behind_a_pool", "swap-unreleased", Caught::Race;
    loom_twin_bound_after_swap_behind_a_tap: "loom_a_member_behind_a_pool", "bound-after-swap", Caught::Race;
    loom_twin_worker_bound_relaxed_behind_a_tap: "loom_a_member_behind_a_pool", "bound-relaxed", Caught::Race;
    loom_twin_released_relaxed_by_a_worker_to_a_tap: "loom_a_member_behind_a_pool", "released-relaxed", Caught::Race;
    loom_twin_joiner_unfenced_behind_a_pool: "loom_a_reader_joins_behind_a_pool", "joiner-unfenced", Caught::Race;
    loom_twin_passer_unfenced_behind_a_pool: "loom_a_reader_joins_behind_a_pool", "passer-unfenced", Caught::Race;
}

// Models of a member that leaves while a reader joins.

/// A member leaves while another reader joins, in the same seat if that seat is free. Meanwhile,
/// the producer tries to fill the ring's only slot again. `room` is the tap's number of seats.
fn one_leaves_and_another_joins(room: usize) {
    explore(1_000, Some(2), move || {
        let ring = ring_of(settings(1), [(Read, Tap(room), &[][..])]);
        let mut tx = producer(&ring);
        let member = subscribe(&ring, StartAt::Now);
        publish_some(&mut tx, 0..1, 1);
        let leaving = thread::spawn(move || drop(member));
        let joining = ring.clone();
        let late = thread::spawn(move || {
            // The join is refused while the only seat is taken.
            let mut late = join(&observed(&joining), 0, StartAt::Oldest).ok()?;
            follow(&mut late, 1);
            Some(late)
        });
        publish_some(&mut tx, 1..2, 1);
        leaving.join().unwrap();
        drop((late.join().unwrap(), tx));
    });
}

#[test]
fn loom_one_leaves_while_another_takes_its_seat() {
    one_leaves_and_another_joins(1);
}

#[test]
fn loom_one_leaves_while_another_takes_a_seat_beside_it() {
    one_leaves_and_another_joins(2);
}

twins! {
    loom_twin_seat_freed_first: "loom_one_leaves_while_another_takes_its_seat", "seat-freed-first", Caught::Race;
    loom_twin_joiner_unfenced_beside_one_who_leaves: "loom_one_leaves_while_another_takes_a_seat_beside_it", "joiner-unfenced", Caught::Race;
    loom_twin_bound_relaxed_beside_one_who_leaves: "loom_one_leaves_while_another_takes_a_seat_beside_it", "bound-relaxed", Caught::Race;
    loom_twin_counted_late_beside_one_who_leaves: "loom_one_leaves_while_another_takes_a_seat_beside_it", "counted-late", Caught::Race;
}

// Models of a party that sleeps behind a tap until the model's last step wakes the party.

/// The stage behind a tap sleeps, because a member's position holds it back. Shows that the
/// member's release wakes it.
#[test]
fn loom_a_member_releases_and_wakes_a_follower() {
    explore(500, None, || {
        let ring = ring_of(blocking(2), [(Read, Tap(1), &[][..]), (Write, Each, &[0][..])]);
        let (mut tx, mut member, mut behind) =
            (producer(&ring), subscribe(&ring, StartAt::Now), writer(&ring, 1));
        tx.publish(|event| *event = 0).unwrap();
        let reading = thread::spawn(move || {
            follow(&mut member, 1);
            member
        });
        behind.batch(1).unwrap().release();
        drop((reading.join().unwrap(), tx, behind));
    });
}

/// The stage behind a tap sleeps, because a member's position holds it back. Shows that a member
/// that leaves without reading an event wakes it.
#[test]
fn loom_a_member_leaves_and_wakes_a_follower() {
    explore(3_000, Some(3), || {
        let ring = ring_of(blocking(2), [(Read, Tap(1), &[][..]), (Write, Each, &[0][..])]);
        let (mut tx, member, mut behind) =
            (producer(&ring), subscribe(&ring, StartAt::Now), writer(&ring, 1));
        tx.publish(|event| *event = 0).unwrap();
        let leaving = thread::spawn(move || drop(member));
        behind.batch(1).unwrap().release();
        leaving.join().unwrap();
        drop((tx, behind));
    });
}

/// Two stages follow a tap, and one of them has released the first event. The tap refuses a joiner
/// that asks for that event. Shows that the joiner wakes a stage that fell asleep while the
/// joiner's position held it back.
#[test]
fn loom_a_refused_joiner_wakes_a_follower() {
    explore(3_000, Some(3), || {
        let ring = ring_of(
            blocking(2),
            [(Read, Tap(1), &[][..]), (Read, Each, &[0][..]), (Read, Each, &[0][..])],
        );
        let (mut tx, mut one, mut other) = (producer(&ring), reader(&ring, 1), reader(&ring, 2));
        tx.publish(|event| *event = 0).unwrap();
        other.batch(1).unwrap().release();
        let refused = thread::spawn(move || {
            assert!(matches!(
                join(&observed(&ring), 0, StartAt::At(START)),
                Err(SubscribeError::Overwritten { .. })
            ));
        });
        one.batch(1).unwrap().release();
        refused.join().unwrap();
        drop((tx, one, other));
    });
}

/// Shows that a publication wakes the stage behind a tap without members.
#[test]
fn loom_a_follower_sleeps_behind_an_empty_tap() {
    explore(150, None, || {
        let ring = ring_of(blocking(2), [(Read, Tap(1), &[][..]), (Read, Each, &[0][..])]);
        let (mut tx, mut behind) = (producer(&ring), reader(&ring, 1));
        let reading = thread::spawn(move || {
            behind.batch(1).unwrap().release();
            behind
        });
        tx.publish(|event| *event = 0).unwrap();
        drop((reading.join().unwrap(), tx));
    });
}

/// The tap, which has no members, is the only stage that gates the producer. Shows that a release
/// by the stage before the tap wakes the producer.
#[test]
fn loom_a_producer_sleeps_behind_an_empty_tap() {
    explore(100, None, || {
        let ring = ring_of(blocking(1), [(Read, Each, &[][..]), (Read, Tap(1), &[0][..])]);
        let (mut tx, mut before) = (producer(&ring), reader(&ring, 0));
        tx.publish(|event| *event = 0).unwrap();
        let publishing = thread::spawn(move || {
            tx.publish(|event| *event = 1).unwrap();
            tx
        });
        before.batch(1).unwrap().release();
        drop((publishing.join().unwrap(), before));
    });
}

/// In a ring whose only stage is a tap without members, a producer sleeps until another producer's
/// publication moves the sentinel.
#[test]
fn loom_a_producer_sleeps_behind_a_tap_alone() {
    explore(80, None, || {
        let ring = ring_of(shared(blocking(1)), [(Read, Tap(1), &[][..])]);
        let (mut one, mut two) = (shared_producer(&ring), shared_producer(&ring));
        let slot = one.claim().unwrap();
        let publishing = thread::spawn(move || {
            two.publish(|event| *event = 1).unwrap();
            two
        });
        slot.publish();
        drop((publishing.join().unwrap(), one));
    });
}

twins! {
    loom_twin_behind_member_unnotified: "loom_a_member_releases_and_wakes_a_follower", "behind-member-unnotified", Caught::Deadlock(&["s1"]);
    loom_twin_notifier_unfenced_by_a_member: "loom_a_member_releases_and_wakes_a_follower", "notifier-unfenced", Caught::Deadlock(&["s1"]);
    loom_twin_sleeper_unfenced_over_a_pin: "loom_a_member_releases_and_wakes_a_follower", "sleeper-unfenced", Caught::Deadlock(&["s1"]);
    loom_twin_behind_member_unnotified_by_leaving: "loom_a_member_leaves_and_wakes_a_follower", "behind-member-unnotified", Caught::Deadlock(&["s1"]);
    loom_twin_vacated_unnotified_to_a_follower: "loom_a_member_leaves_and_wakes_a_follower", "vacated-unnotified", Caught::Deadlock(&["s1"]);
    loom_twin_notifier_unfenced_by_leaving: "loom_a_member_leaves_and_wakes_a_follower", "notifier-unfenced", Caught::Deadlock(&["s1"]);
    loom_twin_vacated_unnotified_by_a_refused_joiner: "loom_a_refused_joiner_wakes_a_follower", "vacated-unnotified", Caught::Deadlock(&["s1"]);
    loom_twin_behind_tap_unnotified: "loom_a_follower_sleeps_behind_an_empty_tap", "behind-tap-unnotified", Caught::Deadlock(&["s1"]);
    loom_twin_producer_behind_tap_unnotified: "loom_a_producer_sleeps_behind_an_empty_tap", "producer-behind-tap-unnotified", Caught::Deadlock(&["producer"]);
    loom_twin_producer_behind_a_tap_alone_unnotified: "loom_a_producer_sleeps_behind_a_tap_alone", "producer-behind-tap-unnotified", Caught::Deadlock(&["producer"]);
}

// Models of data edges (release stores with acquire loads) through a tap.

/// Shows that a member directly behind the producer sees the content of published events. A
/// producer issues a fence only when it checks the tap's members before it fills a slot again. The
/// producer of this model fills each slot at most once, so it issues none.
#[test]
fn loom_a_member_reads_published_events() {
    explore(100, None, || {
        let ring = ring_of(settings(4), [(Read, Tap(1), &[][..])]);
        let (mut tx, mut member) = (producer(&ring), subscribe(&ring, StartAt::Now));
        let reading = thread::spawn(move || {
            follow(&mut member, 2);
            member
        });
        publish_some(&mut tx, 0..3, 3);
        drop((reading.join().unwrap(), tx));
    });
}

/// A writer releases events to two taps. The first tap has a member; the second has none, but a
/// reading stage depends on it. Shows that the member and the reader see the writer's changes.
#[test]
fn loom_a_writer_before_a_tap_releases() {
    explore(700, Some(3), || {
        let stages = [
            (Write, Each, &[][..]),
            (Read, Tap(1), &[0][..]),
            (Read, Tap(1), &[0][..]),
            (Read, Each, &[2][..]),
        ];
        let ring = ring_of(settings(2), stages);
        let (mut tx, mut writing, mut behind) =
            (producer(&ring), writer(&ring, 0), reader(&ring, 3));
        let mut member = subscribe_to(&ring, 1, StartAt::Now);
        publish_some(&mut tx, 0..2, 2);
        let reading = thread::spawn(move || {
            follow_handled(&mut member, 1);
            member
        });
        let following = thread::spawn(move || {
            behind
                .poll(4, |event, at| {
                    assert_eq!(*event, at.seq.wrapping_sub(START) + 100, "not handled")
                })
                .unwrap();
            behind
        });
        for _ in 0..2 {
            writing.poll(1, |event, _| spoil(event)).unwrap();
        }
        drop((reading.join().unwrap(), following.join().unwrap(), tx, writing));
    });
}

/// Shows that the updating stage behind a tap changes an event only after the member has read and
/// released the event.
#[test]
fn loom_a_member_releases_to_a_writer() {
    explore(150, None, || {
        let ring = ring_of(settings(2), [(Read, Tap(1), &[][..]), (Write, Each, &[0][..])]);
        let (mut tx, mut member, mut behind) =
            (producer(&ring), subscribe(&ring, StartAt::Now), writer(&ring, 1));
        publish_some(&mut tx, 0..2, 2);
        let writing = thread::spawn(move || {
            for _ in 0..2 {
                behind.poll(4, |event, _| spoil(event)).unwrap();
            }
            behind
        });
        for _ in 0..2 {
            member
                .poll(1, |event, at| {
                    assert_eq!(*event, at.seq.wrapping_sub(START), "the event at {}", at.seq)
                })
                .unwrap();
        }
        drop((writing.join().unwrap(), tx, member));
    });
}

/// Shows that the updating stage behind a tap changes an event only after a leaving member has read
/// it. Another member stays, so the count of members is not zero, and the stage must load the
/// members' bounds.
#[test]
fn loom_one_of_two_members_leaves() {
    explore(50, None, || {
        let ring = ring_of(settings(2), [(Read, Tap(2), &[][..]), (Write, Each, &[0][..])]);
        let (mut tx, mut member, mut behind) =
            (producer(&ring), subscribe(&ring, StartAt::Now), writer(&ring, 1));
        publish_some(&mut tx, 0..1, 1);
        let stays = subscribe(&ring, StartAt::Now);
        let writing = thread::spawn(move || {
            behind.poll(4, |event, _| spoil(event)).unwrap();
            behind
        });
        drop(member.try_batch(1).expect("an event published before"));
        drop(member);
        drop((writing.join().unwrap(), tx, stays));
    });
}

twins! {
    loom_twin_cursor_relaxed_to_a_member: "loom_a_member_reads_published_events", "cursor-relaxed", Caught::Race;
    loom_twin_cursor_seen_relaxed_by_a_member: "loom_a_member_reads_published_events", "cursor-seen-relaxed", Caught::Race;
    loom_twin_released_relaxed_before_a_tap: "loom_a_writer_before_a_tap_releases", "released-relaxed", Caught::Race;
    loom_twin_frontier_relaxed_through_a_tap: "loom_a_writer_before_a_tap_releases", "frontier-relaxed", Caught::Race;
    loom_twin_released_relaxed_by_a_member: "loom_a_member_releases_to_a_writer", "released-relaxed", Caught::Race;
    loom_twin_idle_unreleased: "loom_one_of_two_members_leaves", "idle-unreleased", Caught::Race;
}
