//! Models of the end of a ring in which several processes produce.
//!
//! The models have two producers and one or two stages, on rings of 1 to 4 slots. Stages and
//! producers wait in their calls, so a missing notification leaves at least one of them asleep.

use loom::thread;

use super::mortal::lives;
use super::processes::Segment;
use super::*;
use crate::errors::{BatchError, ClaimError, PassError, WaitError};
use crate::segment::handles_for_tests::{SegmentReader, SegmentSharedProducer};
use crate::segment::{Proof as _, StageDelivery};
use Access::Read;

const BEHIND_THE_END: Caught = Caught::Message("an event is behind the end");

/// Publishes events until the ring closes, at most `most`. Returns their number.
fn publish_until_closed(tx: &mut SegmentSharedProducer<u64>, most: u64) -> u64 {
    for sent in 0..most {
        match tx.publish(|event| *event = sent) {
            Ok(_) => {}
            Err(WaitError::Closed) => return sent,
            Err(error) => panic!("{error}"),
        }
    }
    most
}

/// Reads until the stream ends. Returns the number of events.
fn drain(reader: &mut SegmentReader<u64>) -> u64 {
    let mut seen = 0;
    loop {
        match reader.batch(4) {
            Ok(batch) => {
                seen += batch.len() as u64;
                batch.release();
            }
            Err(WaitError::Closed) => return seen,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A producer publishes, and another process closes the ring. The stage sees every published event.
#[test]
fn loom_a_ring_closes_while_a_producer_claims() {
    explore(1_000, Some(2), || {
        let segment = Segment::shared(2, &[(Read, &[])], Wait::Blocking);
        let mut tx = segment.shared_producer(1, 0);
        let closer = segment.shared_producer(2, 1);
        let mut reader = segment.reader(5, 0);
        let publishing = thread::spawn(move || {
            let sent = publish_until_closed(&mut tx, 1);
            (tx, sent)
        });
        // The closer's own fences order nothing for the stage.
        let closing = thread::spawn(move || {
            closer.core().control.begin_closing();
            closer
        });
        let seen = drain(&mut reader);
        let (tx, sent) = publishing.join().unwrap();
        assert_eq!(seen, sent, "an event is behind the end");
        drop((tx, closing.join().unwrap(), reader));
    });
}

/// A producer waits for a position while another one publishes, and the ring closes. It finds the
/// end without a stage, behind every published event.
#[test]
fn loom_a_waiter_for_a_position_finds_the_end() {
    explore(100, Some(2), || {
        let segment = Segment::shared(2, &[(Read, &[])], Wait::Blocking);
        let mut tx = segment.shared_producer(1, 0);
        let mut waiter = segment.shared_producer(2, 1);
        let reader = segment.reader(5, 0);
        let closing = segment.attach(6);
        let publishing = thread::spawn(move || {
            let sent = publish_until_closed(&mut tx, 1);
            (tx, sent)
        });
        let waiting = thread::spawn(move || {
            let start = waiter.core().control.start;
            match waiter.wait_for("s0", start.wrapping_add(1)) {
                Err(PassError::NotPublished { end, .. }) => (waiter, end.wrapping_sub(start)),
                other => panic!("{other:?}"),
            }
        });
        closing.control().begin_closing();
        let (tx, sent) = publishing.join().unwrap();
        let (waiter, end) = waiting.join().unwrap();
        assert_eq!(end, sent, "an event is behind the end");
        drop((tx, waiter, closing, reader));
    });
}

/// A stage looks for the end while a producer publishes. Once the producer has learned of the end,
/// it stores no further intent.
#[test]
fn loom_a_producer_publishes_while_a_stage_looks_for_the_end() {
    explore(200, Some(3), || {
        let segment = Segment::shared(2, &[(Read, &[])], Wait::Blocking);
        let mut tx = segment.shared_producer(1, 0);
        let mut reader = segment.reader(5, 0);
        let closing = segment.attach(6);
        let publishing = thread::spawn(move || {
            let sent = publish_until_closed(&mut tx, 2);
            (tx, sent)
        });
        closing.control().begin_closing();
        let seen = drain(&mut reader);
        let (tx, sent) = publishing.join().unwrap();
        assert_eq!(seen, sent, "an event is behind the end");
        drop((tx, closing, reader));
    });
}

/// Two producers claim at the same position while the ring closes.
#[test]
fn loom_a_ring_closes_while_two_producers_claim() {
    explore(500, Some(2), || {
        let segment = Segment::shared(2, &[(Read, &[])], Wait::Blocking);
        let producers = [0, 1].map(|seat| segment.shared_producer(1 + seat as u32, seat));
        let mut reader = segment.reader(5, 0);
        let closing = segment.attach(6);
        let threads = producers.map(|mut tx| {
            thread::spawn(move || {
                let sent = publish_until_closed(&mut tx, 1);
                (tx, sent)
            })
        });
        closing.control().begin_closing();
        let seen = drain(&mut reader);
        let ended = threads.map(|thread| thread.join().unwrap());
        assert_eq!(seen, ended.iter().map(|(_, sent)| sent).sum(), "an event is behind the end");
        drop((ended, reader, closing));
    });
}

/// Two producers race for the ring's only slot. The loser finds no room, because the second stage
/// has died and has no successor. The first stage still finds the end.
#[test]
fn loom_a_ring_closes_without_room() {
    explore(20, Some(3), || {
        let segment = Segment::shared(1, &[(Read, &[]), (Read, &[])], Wait::Blocking);
        let producers = [0, 1].map(|seat| segment.shared_producer(1 + seat as u32, seat));
        let (mut reader, dead) = (segment.reader(5, 0), segment.reader(6, 1));
        let threads = producers.map(|mut tx| {
            thread::spawn(move || {
                let sent = tx.try_publish(|event| *event = 0).is_ok();
                (tx, u64::from(sent))
            })
        });
        let ended = threads.map(|thread| thread.join().unwrap());
        // From here on no producer uses its handle, but the handles are not dropped yet.
        ended[0].0.core().control.begin_closing();
        let seen = drain(&mut reader);
        assert_eq!(seen, ended.iter().map(|(_, sent)| sent).sum(), "an event is behind the end");
        drop((ended, reader, dead));
    });
}

/// Two producers leave at the same time. The last one to leave closes the ring.
#[test]
fn loom_two_producers_leave() {
    explore(1_000, Some(2), || {
        let segment = Segment::shared(2, &[(Read, &[])], Wait::Blocking);
        let producers = [0, 1].map(|seat| segment.shared_producer(1 + seat as u32, seat));
        let mut reader = segment.reader(5, 0);
        let threads = producers.map(|tx| thread::spawn(move || drop(tx)));
        assert_eq!(drain(&mut reader), 0);
        for thread in threads {
            thread.join().unwrap();
        }
        drop(reader);
    });
}

/// The last producer dies while it leaves, after its first `stores` stores. A process recovers it,
/// and the ring is closed if the producer had begun to leave.
#[test]
fn loom_the_last_producer_dies_while_it_leaves() {
    for stores in 0..6 {
        for recovered in 0..6 {
            explore(1, None, move || {
                let segment = Segment::shared(2, &[(Read, &[])], Wait::BusySpin);
                let (tx, other) = (segment.shared_producer(1, 0), segment.shared_producer(2, 1));
                drop(other);
                let mut reader = segment.reader(5, 0);
                let core = tx.core().clone();
                lives(stores, || tx.leave_seat(true));
                segment.bytes.unlock(1);
                let ring = segment.attach(3);
                lives(recovered, || {
                    let settle =
                        &mut || (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, 1));
                    segment.bytes.recover(1, settle);
                });
                segment.bytes.unlock(1);
                segment.recover(4, 1);
                // The producer's first store settles its claim, and the second one says that the
                // producer leaves.
                let ended = reader.try_batch(1).map(drop);
                let closed = matches!(ended, Err(BatchError::Wait(WaitError::Closed)));
                assert_eq!(closed, stores > 1, "the end of the last producer");
                assert!(segment.try_shared_producer(7, 0).is_some(), "the seat is not free");
                drop((reader, core));
                std::mem::forget(tx);
            });
        }
    }
}

/// A producer closes the ring for all producers, and dies after its first `stores` stores. If it
/// has stored that the ring is closing, a stage closes the ring in its place.
#[test]
fn loom_a_producer_dies_while_it_closes() {
    for stores in 0..4 {
        explore(1, None, move || {
            let segment = Segment::shared(2, &[(Read, &[])], Wait::BusySpin);
            let (dying, mut other) = (segment.shared_producer(1, 0), segment.shared_producer(2, 1));
            let mut reader = segment.reader(5, 0);
            other.publish(|event| *event = 0).unwrap();
            lives(stores, || dying.core().control.begin_closing());
            assert_eq!(reader.poll(4, |_, _| ()).unwrap(), 1);
            let ended = reader.try_batch(1).map(drop);
            let closed = matches!(ended, Err(BatchError::Wait(WaitError::Closed)));
            assert_eq!(closed, stores > 0, "the ring stays open");
            assert_eq!(
                other.try_publish(|event| *event = 1).is_err(),
                closed,
                "a claim at the end"
            );
            drop((dying, other, reader));
        });
    }
}

/// A producer marks the ring as closing and dies, and no stage reaches the end. Another producer
/// closes the ring when it finds no room.
#[test]
fn loom_a_producer_closes_for_a_dead_one() {
    explore(1, None, || {
        let segment = Segment::shared(1, &[(Read, &[])], Wait::BusySpin);
        let (dying, mut other) = (segment.shared_producer(1, 0), segment.shared_producer(2, 1));
        let mut reader = segment.reader(5, 0);
        lives(1, || dying.core().control.begin_closing());
        for _ in 0..2 {
            let claimed = other.try_publish(|event| *event = 0);
            assert!(
                matches!(claimed, Err(ClaimError::Wait(WaitError::Closed))),
                "a claim at the end"
            );
        }
        assert_eq!(drain(&mut reader), 0);
        drop((dying, other, reader));
    });
}

/// A stage dies while it closes the ring, after its first `stores` stores. Its successor and the
/// other stage find the same end.
#[test]
fn loom_a_stage_dies_while_it_closes() {
    for stores in 0..4 {
        explore(1, None, move || {
            let segment = Segment::shared(2, &[(Read, &[]), (Read, &[])], Wait::BusySpin);
            let mut tx = segment.shared_producer(1, 0);
            let (mut dying, mut other) = (segment.reader(5, 0), segment.reader(6, 1));
            tx.publish(|event| *event = 0).unwrap();
            drop(tx);
            assert_eq!(
                (dying.poll(4, |_, _| ()).unwrap(), other.poll(4, |_, _| ()).unwrap()),
                (1, 1)
            );
            lives(stores, || _ = dying.try_batch(1).map(|_| ()));
            segment.bytes.unlock(5);
            segment.recover(3, 5);
            let mut next = segment.reader(7, 0);
            for reader in [&mut next, &mut other] {
                assert_eq!(drain(reader), 0);
            }
            drop((dying, next, other));
        });
    }
}

/// A producer dies with a claim, or with an intent only, while the ring closes. The waiting stage
/// gives up the claim, and finds the end.
#[test]
fn loom_a_closing_stage_recovers_a_producer() {
    for stores in 0..6 {
        explore(10, Some(2), move || {
            let segment = Segment::shared(2, &[(Read, &[])], Wait::Blocking);
            let mut dying = segment.shared_producer(1, 0).into_raw();
            let mut reader = segment.hasty_reader(5, 0);
            let closing = segment.attach(6);
            let of_dying = segment.clone();
            let thread = thread::spawn(move || {
                let mut published = false;
                lives(stores, || {
                    if let Ok(seq) = dying.next() {
                        *dying.at_mut(seq).expect("claimed") = 0;
                        dying.done(seq).unwrap();
                        published = true;
                    }
                });
                of_dying.bytes.unlock(1);
                (dying, published)
            });
            closing.control().begin_closing();
            let seen = drain(&mut reader);
            let (dying, published) = thread.join().unwrap();
            assert_eq!(seen, u64::from(published), "an event is behind the end");
            drop((dying, reader, closing));
        });
    }
}

/// A stage's process leaves the ring in the middle of runs and tombstones. Its successor continues
/// at the same place.
#[test]
fn loom_a_stage_goes_on_among_tombstones() {
    explore(1, None, || {
        let segment = Segment::shared(8, &[(Read, &[])], Wait::BusySpin);
        let mut tx = segment.shared_producer(1, 0);
        for (len, live) in [(2, true), (2, false), (1, true)] {
            let claim = tx.claim_n(len).unwrap();
            if live { _ = claim.publish() } else { drop(claim) }
        }
        let mut first = segment.reader(5, 0);
        // The stage holds both runs, and releases the first event. The boundary lies behind both
        // runs.
        first.try_batch(8).unwrap().hold();
        first.try_batch(8).unwrap().hold();
        first.release_until(1);
        drop(first);
        let mut next = segment.reader(6, 0);
        assert_eq!(drain_now(&mut next), 2, "a tombstone is handled");
        drop((tx, next));
    });
}

fn drain_now(reader: &mut SegmentReader<u64>) -> usize {
    let mut seen = 0;
    while let Some(batch) = available(reader.try_batch(8)) {
        seen += batch.len();
        batch.release();
    }
    seen
}

/// Publishes a run of `len` events, and leaves as the last producer.
fn run_and_leave(segment: &Arc<Segment>, len: usize) -> impl FnOnce() + Send + 'static {
    let mut tx = segment.shared_producer(1, 0);
    move || {
        tx.claim_n(len).unwrap().publish();
        drop(tx);
    }
}

/// The first stage of a closing ring with a tap releases only a part of a run. The next stage waits
/// behind that part, so the frontier that limits it lies inside the run.
#[test]
fn loom_a_stage_waits_inside_of_a_run_of_a_closing_ring() {
    explore(300, Some(2), || {
        let stages: [(_, &[usize]); 3] =
            [(StageDelivery::Tap(1), &[]), (StageDelivery::Each, &[]), (StageDelivery::Each, &[1])];
        let segment = Segment::shared_among(2, &stages, Wait::Blocking);
        let (mut first, mut later) = (segment.reader(5, 1), segment.reader(6, 2));
        run_and_leave(&segment, 2)();
        let later = thread::spawn(move || (drain(&mut later), later));
        let part = first.poll(1, |_, _| ()).unwrap() as u64;
        let seen = part + drain(&mut first);
        assert_eq!(seen, 2, "events were lost");
        let (seen, later) = later.join().unwrap();
        assert_eq!(seen, 2, "events were lost");
        drop((first, later));
    });
}

/// A pool learns of the ring's end, although it stands behind a tap without members.
#[test]
fn loom_a_pool_behind_a_tap_ends() {
    explore(60, Some(3), || {
        let stages: [(_, &[usize]); 2] =
            [(StageDelivery::Tap(1), &[]), (StageDelivery::Pool(2), &[0])];
        let segment = Segment::shared_among(2, &stages, Wait::Blocking);
        let ring = segment.attach(5);
        let seat = ring.seats_of(1).start;
        ring.seat(seat).take(5).expect("a free seat");
        // SAFETY: the seat was taken.
        let mut worker = unsafe { ring.pool_reader(1, seat) };
        let publishing = thread::spawn(run_and_leave(&segment, 1));
        let mut seen = 0;
        let end = loop {
            match worker.batch(2) {
                Ok(batch) => {
                    seen += batch.len();
                    batch.release();
                }
                Err(end) => break end,
            }
        };
        assert!(matches!(end, WaitError::Closed), "{end}");
        assert_eq!(seen, 1, "events were lost");
        publishing.join().unwrap();
        drop(worker);
    });
}

#[test]
fn loom_twin_boundary_assumed() {
    caught(
        "closing::loom_a_stage_waits_inside_of_a_run_of_a_closing_ring",
        "boundary-assumed",
        Caught::Message("the segment is damaged"),
    );
}

#[test]
fn loom_twin_pool_unended() {
    caught("closing::loom_a_pool_behind_a_tap_ends", "pool-unended", Caught::Deadlock(&["s1"]));
}

#[test]
fn loom_twin_claims_unclosed() {
    caught(
        "closing::loom_a_ring_closes_while_a_producer_claims",
        "claims-unclosed",
        BEHIND_THE_END,
    );
}

#[test]
fn loom_twin_closing_overlooked() {
    caught(
        "closing::loom_a_producer_closes_for_a_dead_one",
        "closing-overlooked",
        Caught::Message("a claim at the end"),
    );
}

#[test]
fn loom_twin_closing_unhelped() {
    caught(
        "closing::loom_a_producer_dies_while_it_closes",
        "closing-unhelped",
        Caught::Message("the ring stays open"),
    );
}

#[test]
fn loom_twin_leaver_unfenced() {
    caught("closing::loom_two_producers_leave", "leaver-unfenced", Caught::Deadlock(&["s0"]));
}

#[test]
fn loom_twin_closing_unnotified_to_a_waiter() {
    let model = "closing::loom_a_waiter_for_a_position_finds_the_end";
    caught(model, "closing-unnotified", Caught::Deadlock(&["passing"]));
}

#[test]
fn loom_twin_claims_unclosed_before_a_waiter() {
    let model = "closing::loom_a_waiter_for_a_position_finds_the_end";
    caught(model, "claims-unclosed", BEHIND_THE_END);
}

#[test]
fn loom_twin_closing_unnotified() {
    caught("closing::loom_two_producers_leave", "closing-unnotified", Caught::Deadlock(&["s0"]));
}

#[test]
fn loom_twin_tombstones_assumed_live() {
    caught(
        "closing::loom_a_stage_goes_on_among_tombstones",
        "tombstones-assumed-live",
        Caught::Message("a tombstone is handled"),
    );
}
