//! Models of the end of a ring whose producers leave and die. The last producer that leaves closes
//! the ring; the last producer that dies closes it, too, if the ring declares that.
//!
//! The models have one or two producers, one stage, and up to three threads, on rings of 1 to 4
//! slots. A process that dies and the process that recovers it run on one thread, because the
//! kernel orders a death before the proof of the death.

use loom::thread;

use super::mortal::lives;
use super::processes::{Segment, publish_runs};
use super::*;
use crate::errors::WaitError;
use crate::producer::Single;
use crate::producer::sealed::Sharing as _;
use crate::segment::OnDeath;
use crate::segment::handles_for_tests::SegmentReader;

const OPEN: Caught = Caught::Message("the ring stays open");

/// Returns whether a ring takes no more claims.
fn is_closing(segment: &Segment) -> bool {
    segment.attach(7).control().status.is_closing()
}

/// Reads all available events. Returns their number, and whether the stream has ended.
fn read(reader: &mut SegmentReader<u64>, polls: usize) -> (u64, bool) {
    let mut seen = 0;
    for _ in 0..polls {
        match reader.try_batch(4) {
            Ok(batch) => {
                seen += batch.len() as u64;
                batch.release();
            }
            Err(BatchError::Wait(WaitError::Closed)) => return (seen, true),
            Err(BatchError::Unavailable) => {}
            Err(error) => panic!("{error}"),
        }
    }
    (seen, false)
}

/// The last living producer leaves. Meanwhile, a process recovers a dead producer, and dies after
/// the first `stores` stores of the recovery.
#[test]
fn loom_a_producer_leaves_while_a_dead_one_is_recovered() {
    for (stores, least) in [(0, 200), (1, 500), (2, 500), (3, 500), (4, 500), (9, 500)] {
        explore(least, Some(3), move || {
            let segment = Segment::produced(1, (2, OnDeath::Wait), Wait::BusySpin);
            let (dead, leaving) = (segment.shared_producer(1, 0), segment.shared_producer(2, 1));
            segment.bytes.unlock(1);
            let recovering = segment.clone();
            let recovering = thread::spawn(move || {
                let ring = recovering.attach(3);
                lives(stores, || _ = recovering.recover_as(&ring, 1));
                // The kernel frees the recoverer's lock if its process dies.
                if stores < 9 {
                    recovering.bytes.unlock(1);
                }
                ring
            });
            let of_leaving = thread::spawn(move || drop(leaving));
            of_leaving.join().unwrap();
            let ring = recovering.join().unwrap();
            assert!(is_closing(&segment), "the ring stays open");
            drop(ring);
            std::mem::forget(dead);
        });
    }
}

/// One producer has died, and another one died while it left as the last producer. Each of two
/// processes recovers one of the dead producers.
#[test]
fn loom_a_dead_leaver_is_recovered_beside_a_dead_producer() {
    explore(100, Some(3), || {
        let segment = Segment::produced(1, (2, OnDeath::Wait), Wait::BusySpin);
        let (dead, left) = (segment.shared_producer(1, 0), segment.shared_producer(2, 1));
        let rings = [3, 4].map(|number| segment.attach(number));
        rings[0].seat(rings[0].seats_of(1).start + 1).leave();
        let mut number = 0;
        let recovering = rings.map(|ring| {
            number += 1;
            let (segment, dead) = (segment.clone(), number);
            segment.bytes.unlock(dead);
            thread::spawn(move || {
                segment.recover_as(&ring, dead);
                ring
            })
        });
        let rings = recovering.map(|thread| thread.join().unwrap());
        assert!(is_closing(&segment), "the ring stays open");
        drop(rings);
        std::mem::forget((dead, left));
    });
}

/// The last producer dies while it leaves, after its first `stores` stores. A stage waits for it,
/// in a ring that declares that waiting stages return `PeerDead`. If the producer had begun to
/// leave, the stream ends, and no call of the stage returns `PeerDead`, also if another process
/// recovers the producer meanwhile.
#[test]
fn loom_the_death_of_a_leaver_is_not_told() {
    for (stores, is_recovered) in (0..5).flat_map(|stores| [(stores, false), (stores, true)]) {
        explore(5, Some(2), move || {
            let segment = Segment::produced(1, (2, OnDeath::Tell), Wait::Blocking);
            let leaving = segment.shared_producer(1, 0);
            let mut reader = segment.hasty_reader(5, 0);
            let of_leaving = segment.clone();
            let dying = thread::spawn(move || {
                lives(stores, || leaving.leave_seat(true));
                of_leaving.bytes.unlock(1);
                let ring = is_recovered.then(|| of_leaving.attach(6));
                ring.iter().for_each(|ring| _ = of_leaving.recover_as(ring, 1));
                leaving
            });
            let end = reader.batch(1).map(drop).unwrap_err();
            match end {
                WaitError::Closed => assert!(stores > 1, "closed before the producer left"),
                WaitError::PeerDead(_) => assert!(stores <= 1, "a complete stream tells a death"),
                end => panic!("{end}"),
            }
            std::mem::forget(dying.join().unwrap());
            drop(reader);
        });
    }
}

/// A single producer dies while it closes the ring, after its first `stores` stores. If it has
/// closed the ring, no call of the stage returns `PeerDead`.
#[test]
fn loom_the_death_of_a_closer_is_not_told() {
    for stores in 0..3 {
        explore(5, Some(2), move || {
            let segment = Segment::produced(1, (1, OnDeath::Tell), Wait::Blocking);
            let closing = segment.producer(1, 1);
            let mut reader = segment.hasty_reader(5, 0);
            let of_closing = segment.clone();
            let dying = thread::spawn(move || {
                lives(stores, || Single::leave(&closing, true, false));
                of_closing.bytes.unlock(1);
                closing
            });
            match reader.batch(1).map(drop).unwrap_err() {
                WaitError::Closed => assert!(stores > 1, "closed before the producer closed it"),
                WaitError::PeerDead(_) => assert!(stores <= 1, "a complete stream tells a death"),
                end => panic!("{end}"),
            }
            std::mem::forget(dying.join().unwrap());
            drop(reader);
        });
    }
}

/// One producer leaves, and the other dies in a publication, after its first `stores` stores. The
/// ring is declared so that a producer's death closes it. Whichever comes first, the ring closes
/// behind the published events.
#[test]
fn loom_the_last_producer_dies_and_closes() {
    for stores in 0..6 {
        explore(3_000, Some(3), move || {
            let segment = Segment::produced(2, (2, OnDeath::Close), Wait::BusySpin);
            let mut dying = segment.shared_producer(1, 0);
            let leaving = segment.shared_producer(2, 1);
            let mut reader = segment.reader(5, 0);
            let of_dying = segment.clone();
            let dead = thread::spawn(move || {
                let mut published = 0;
                lives(stores, || published = u64::from(dying.try_publish(|_| ()).is_ok()));
                of_dying.bytes.unlock(1);
                let ring = of_dying.attach(3);
                of_dying.recover_as(&ring, 1);
                (dying, ring, published)
            });
            let of_leaving = thread::spawn(move || drop(leaving));
            of_leaving.join().unwrap();
            let (dying, ring, published) = dead.join().unwrap();
            assert!(is_closing(&segment), "the ring stays open");
            let (seen, ended) = read(&mut reader, 4);
            // The producer may have stored its stamp before it died.
            assert!(ended && (seen == published || published == 0), "another end: {seen}");
            std::mem::forget(dying);
            drop((reader, ring));
        });
    }
}

/// A single producer dies after `stores` stores, in a ring that its death closes. A process
/// recovers it, and dies after `recovered` stores. The next process repeats the recovery, while
/// another process tries to take the producer's place. Meanwhile, the stage reads.
fn a_single_producer_dies(stores: usize, recovered: usize, runs: &'static [usize]) {
    explore(12, Some(2), move || {
        let segment = Segment::produced(4, (1, OnDeath::Close), Wait::BusySpin);
        let mut dying = segment.producer(1, 1);
        let mut reader = segment.reader(5, 0);
        let mut published = 0;
        lives(stores, || {
            runs.iter().for_each(|&run| published += publish_runs(&mut dying, 0, &[run], 1));
        });
        segment.bytes.unlock(1);
        let of_recovering = segment.clone();
        let recovering = thread::spawn(move || {
            let ring = of_recovering.attach(3);
            lives(recovered, || _ = of_recovering.recover_as(&ring, 1));
            of_recovering.bytes.unlock(1);
            of_recovering.recover(4, 1);
            ring
        });
        let of_newcomer = segment.clone();
        let newcomer = thread::spawn(move || {
            let ring = of_newcomer.attach(6);
            if ring.seat(ring.seats_of(1).start).take(6).is_ok() {
                assert!(ring.is_over(), "another producer follows one that closes");
            }
            ring
        });
        let (before, ended) = read(&mut reader, 1);
        assert!(!ended, "the stream has ended before");
        let rings = (recovering.join().unwrap(), newcomer.join().unwrap());
        let (after, ended) = read(&mut reader, 3);
        let seen = (before + after) as usize;
        let torn = runs.iter().any(|&run| published + run == seen);
        assert!(ended, "the ring stays open");
        assert!(seen == published || torn, "another end: {seen} of {published}");
        std::mem::forget(dying);
        drop((reader, rings));
    });
}

#[test]
fn loom_a_single_producer_dies_and_closes() {
    for stores in 0..4 {
        for recovered in 0..5 {
            a_single_producer_dies(stores, recovered, &[1, 2]);
        }
    }
}

/// The publication in which the producer dies has two runs.
#[test]
fn loom_a_single_producer_dies_between_two_runs_and_closes() {
    for stores in 0..3 {
        a_single_producer_dies(stores, 9, &[4]);
    }
}

/// One of two producers dies while the other one leaves. Either the leaver sees that it is the last
/// one, and closes the ring, or the seat of the dead one shows its death.
#[test]
fn loom_a_producer_dies_beside_one_that_leaves() {
    explore(50, Some(3), || {
        let segment = Segment::produced(1, (2, OnDeath::Tell), Wait::BusySpin);
        let (dead, leaving) = (segment.shared_producer(1, 0), segment.shared_producer(2, 1));
        let recovering = segment.clone();
        let recovering = thread::spawn(move || {
            let ring = recovering.attach(3);
            recovering.bytes.unlock(1);
            recovering.recover_as(&ring, 1);
            ring
        });
        let of_leaving = thread::spawn(move || drop(leaving));
        let ring = recovering.join().unwrap();
        of_leaving.join().unwrap();
        let seat = ring.seat(ring.seats_of(ring.producer_party()).start);
        assert!(is_closing(&segment) || seat.last_death().is_some(), "a death is forgotten");
        drop(ring);
        std::mem::forget(dead);
    });
}

/// Both of two producers die, and are recovered at once. The seat of one of them shows its death.
#[test]
fn loom_two_dead_producers_are_recovered() {
    explore(50, Some(3), || {
        let segment = Segment::produced(1, (2, OnDeath::Tell), Wait::BusySpin);
        let dead = [segment.shared_producer(1, 0), segment.shared_producer(2, 1)];
        let mut number = 0;
        let recovering = [3, 4].map(|participant| {
            number += 1;
            let (segment, dead) = (segment.clone(), number);
            let ring = segment.attach(participant);
            segment.bytes.unlock(dead);
            thread::spawn(move || {
                segment.recover_as(&ring, dead);
                ring
            })
        });
        let [ring, _other] = recovering.map(|thread| thread.join().unwrap());
        let mut seats = ring.seats_of(ring.producer_party());
        assert!(seats.any(|seat| ring.seat(seat).last_death().is_some()), "a death is forgotten");
        std::mem::forget(dead);
    });
}

#[test]
fn loom_twin_leaver_stays() {
    caught(
        "last_out::loom_a_producer_dies_beside_one_that_leaves",
        "leaver-stays",
        Caught::Message("a death is forgotten"),
    );
}

#[test]
fn loom_twin_recoverer_unfenced() {
    caught(
        "last_out::loom_two_dead_producers_are_recovered",
        "recoverer-unfenced",
        Caught::Message("a death is forgotten"),
    );
}

#[test]
fn loom_twin_leaver_stays_beside_a_death() {
    caught(
        "last_out::loom_two_dead_producers_are_recovered",
        "leaver-stays",
        Caught::Message("a death is forgotten"),
    );
}

#[test]
fn loom_twin_death_unnoted() {
    caught("last_out::loom_a_producer_leaves_while_a_dead_one_is_recovered", "death-unnoted", OPEN);
}

#[test]
fn loom_twin_note_seen_early() {
    caught(
        "last_out::loom_a_dead_leaver_is_recovered_beside_a_dead_producer",
        "note-seen-early",
        OPEN,
    );
}

#[test]
fn loom_twin_leaver_told() {
    caught(
        "last_out::loom_the_death_of_a_leaver_is_not_told",
        "leaver-told",
        Caught::Message("a complete stream tells a death"),
    );
}

#[test]
fn loom_twin_closing_seen_early() {
    caught(
        "last_out::loom_the_death_of_a_leaver_is_not_told",
        "closing-seen-early",
        Caught::Message("a complete stream tells a death"),
    );
}

#[test]
fn loom_twin_end_asked_early() {
    caught(
        "last_out::loom_the_death_of_a_closer_is_not_told",
        "end-asked-early",
        Caught::Message("a complete stream tells a death"),
    );
}

#[test]
fn loom_twin_death_keeps_open() {
    caught("last_out::loom_the_last_producer_dies_and_closes", "death-keeps-open", OPEN);
}

#[test]
fn loom_twin_leaver_unfenced_beside_a_death() {
    caught("last_out::loom_the_last_producer_dies_and_closes", "leaver-unfenced", OPEN);
}

#[test]
fn loom_twin_freed_before_closed() {
    caught(
        "last_out::loom_a_single_producer_dies_and_closes",
        "freed-before-closed",
        Caught::Message("another producer follows one that closes"),
    );
}
