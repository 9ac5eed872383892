//! Models of a claim word that names the winner of each claim: several processes produce, and die
//! at any store.
//!
//! Each model has two producers' seats and up to three threads, on rings of 1 to 4 slots. Where a
//! dying process and its recoverers need to race only with other parties, they run on one thread,
//! one after the other. Each event of a producer that dies is `100 * number + count`, with the
//! producer's number and the count of its events.

use loom::thread;

use super::mortal::lives;
use super::processes::Segment;
use super::*;
use crate::adapters::raw::RawProducer;
use crate::processes::layout::InSegment;
use crate::processes::producer::Apart;
use crate::segment::Proof as _;
use crate::segment::handles_for_tests::SegmentReader;
use Access::Read;

const LOST: Caught = Caught::Message("events were lost");
const NO_POSITION: Caught = Caught::Message("no position is free");
const FALSE: Caught = Caught::Message("a whole segment seems damaged");
const HELD_UP: Caught = Caught::Message("the stream is held up");

type Raw = RawProducer<u64, InSegment<Interleaved>, Apart>;

/// The events that a producer has published, and the events that it may have published when it
/// died.
#[derive(Default)]
struct Sent {
    sure: u64,
    unsure: u64,
}

/// Claims `len` positions, with at most `tries` attempts. Publishes the front of the claim in
/// parts, whose lengths `fronts` lists, and gives up the rest.
fn publish(tx: &mut Raw, by: u64, sent: &mut Sent, (len, fronts): (usize, &[u64]), tries: usize) {
    let Some(mut seq) = (0..tries).find_map(|_| tx.next_n(len).ok()) else { return };
    for &front in fronts {
        for event in 0..front {
            *tx.at_mut(seq + event).expect("claimed") = by * 100 + sent.sure + event;
        }
        sent.unsure = front;
        seq += front;
        tx.done(seq - 1).expect("claimed");
        (sent.sure, sent.unsure) = (sent.sure + front, 0);
    }
    tx.give_up();
}

/// For each producer, the number of its events that a stage has seen.
#[derive(Default)]
struct Seen([u64; 4]);

impl Seen {
    fn poll(&mut self, reader: &mut SegmentReader<u64>, polls: usize) {
        for _ in 0..polls {
            let Some(batch) = available(reader.try_batch(4)) else { continue };
            for &event in batch.iter() {
                let seen = &mut self.0[event as usize / 100];
                assert_eq!(event % 100, *seen, "an event is lost, or comes twice");
                *seen += 1;
            }
            batch.release();
        }
    }

    fn assert(&self, by: usize, sent: &Sent) {
        let all = [sent.sure, sent.sure + sent.unsure];
        assert!(all.contains(&self.0[by]), "events were lost: {} of {}", self.0[by], sent.sure);
    }
}

fn segment(capacity: usize) -> Arc<Segment> {
    Segment::shared(capacity, &[(Read, &[])], Wait::BusySpin)
}

/// A third process publishes at the end, so nothing that the others left holds the stream up.
fn goes_on(seen: &mut Seen, reader: &mut SegmentReader<u64>, tx: &mut Raw) {
    seen.poll(reader, 3);
    let mut last = Sent { sure: seen.0[3], unsure: 0 };
    publish(tx, 3, &mut last, (1, &[1]), 2);
    assert_eq!(last.sure, seen.0[3] + 1, "no position is free");
    seen.poll(reader, 2);
    assert_eq!(seen.0[3], last.sure, "the stream is held up");
}

/// The steps of one producer: for each claim its length, and the lengths of the parts in which the
/// producer publishes it, from the front.
type Claims = &'static [(usize, &'static [u64])];

/// Two producers claim, while a stage reads.
fn two_claim(
    capacity: usize,
    claims: [Claims; 2],
    polls: usize,
    bound: Option<usize>,
    least: usize,
) {
    explore_unfenced(least, bound, move || {
        let segment = segment(capacity);
        let producers =
            [0, 1].map(|seat| segment.shared_producer(1 + seat as u32, seat).into_raw());
        let mut reader = segment.reader(5, 0);
        let mut numbers = 1..;
        let threads = producers.map(|mut tx| {
            let by = numbers.next().expect("a number");
            thread::spawn(move || {
                let mut sent = Sent::default();
                for &claim in claims[by as usize - 1] {
                    publish(&mut tx, by, &mut sent, claim, 2);
                }
                (tx, sent)
            })
        });
        let mut seen = Seen::default();
        seen.poll(&mut reader, polls);
        let ended = threads.map(|thread| thread.join().unwrap());
        seen.poll(&mut reader, 4);
        (1..3).for_each(|by| seen.assert(by, &ended[by - 1].1));
        let [(one, _), (other, _)] = ended;
        (one, other, reader)
    });
}

#[test]
fn loom_two_processes_claim() {
    two_claim(4, [&[(2, &[1, 1])], &[(1, &[1]), (1, &[])]], 1, Some(3), 1_000);
}

#[test]
fn loom_two_processes_claim_over_laps() {
    two_claim(1, [&[(1, &[1]), (1, &[1])], &[(1, &[1])]], 2, Some(3), 1_000);
}

/// A producer dies after `stores` stores, and a process recovers it. Another process takes its seat
/// and publishes, while the other producer publishes and a stage reads.
fn a_producer_dies(stores: usize, capacity: usize, claims: Claims, others: Claims, least: usize) {
    explore_unfenced(least, Some(3), move || {
        let segment = segment(capacity);
        let mut first = segment.shared_producer(1, 0).into_raw();
        let mut other = segment.shared_producer(2, 1).into_raw();
        let mut reader = segment.reader(5, 0);
        let of_others = thread::spawn(move || {
            let mut sent = Sent::default();
            others.iter().for_each(|&claim| publish(&mut other, 2, &mut sent, claim, 1));
            (other, sent)
        });
        let of_seat = segment.clone();
        let of_seat = thread::spawn(move || {
            let mut sent = Sent::default();
            lives(stores, || {
                claims.iter().for_each(|&claim| publish(&mut first, 1, &mut sent, claim, 1));
            });
            of_seat.bytes.unlock(1);
            assert!(of_seat.recover(3, 1), "no other process recovers it");
            let second = of_seat.shared_producer(4, 0).into_raw();
            (first, second, sent)
        });
        let mut seen = Seen::default();
        seen.poll(&mut reader, 2);
        let (other, of_other) = of_others.join().unwrap();
        let (first, mut second, of_first) = of_seat.join().unwrap();
        seen.poll(&mut reader, 4);
        seen.assert(1, &of_first);
        seen.assert(2, &of_other);
        goes_on(&mut seen, &mut reader, &mut second);
        (first, second, other, reader)
    });
}

#[test]
fn loom_a_producer_of_several_dies() {
    for stores in 0..7 {
        a_producer_dies(stores, 2, &[(2, &[1, 1])], &[(1, &[1])], 100);
    }
}

/// A producer dies while another producer claims the next positions, and replaces the dead
/// producer's name in the claim word.
#[test]
fn loom_a_producer_dies_before_another_claim() {
    for stores in 0..6 {
        a_producer_dies(stores, 2, &[(1, &[1])], &[(1, &[1])], 100);
    }
}

/// A producer dies after it has stored its second intent, and before its second claim. The other
/// producer may have seen the first claim's head before, and now sees the end of the second intent.
#[test]
fn loom_a_producer_dies_before_its_second_claim() {
    for stores in 6..8 {
        a_producer_dies(stores, 4, &[(1, &[1]), (1, &[1])], &[(1, &[1])], 100);
    }
}

#[test]
fn loom_a_producer_of_several_dies_in_a_ring_of_one_slot() {
    for stores in 0..6 {
        a_producer_dies(stores, 1, &[(1, &[1]), (1, &[])], &[(1, &[1])], 100);
    }
}

/// A producer dies in its last claim, the stage reads, and the other producer claims the free
/// slots. A process recovers the dead producer, and then dies itself. Another process takes the
/// seat, if it is free, and claims. One more process repeats the recovery. The steps come one after
/// the other.
fn a_recoverer_dies(
    (stores, recovered): (usize, usize),
    capacity: usize,
    claims: Claims,
    others: Claims,
) {
    explore(1, None, move || {
        let segment = segment(capacity);
        let mut first = segment.shared_producer(1, 0).into_raw();
        let mut other = segment.shared_producer(2, 1).into_raw();
        let mut reader = segment.reader(5, 0);
        let (mut sent, mut of_other) = (Sent::default(), Sent::default());
        let mut seen = Seen::default();
        let (&last, before) = claims.split_last().expect("a claim");
        for &claim in before {
            publish(&mut first, 1, &mut sent, claim, 1);
            seen.poll(&mut reader, 2);
        }
        lives(stores, || publish(&mut first, 1, &mut sent, last, 1));
        segment.bytes.unlock(1);
        seen.poll(&mut reader, 2);
        others.iter().for_each(|&claim| publish(&mut other, 2, &mut of_other, claim, 1));
        let (ring, mut recovers) = (segment.attach(3), false);
        lives(recovered, || {
            let settle = &mut || {
                (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, 1));
                recovers = true;
            };
            assert!(segment.bytes.recover(1, settle));
        });
        segment.bytes.unlock(1);
        seen.poll(&mut reader, 2);
        let mut second = segment.try_shared_producer(4, 0).map(Producer::into_raw);
        assert!(second.is_some() || !recovers, "the seat is not free");
        let claimed = second.as_mut().and_then(|tx| tx.next().ok());
        assert!(segment.recover(6, 1));
        let mut second = second.unwrap_or_else(|| segment.shared_producer(4, 0).into_raw());
        if let Some(seq) = claimed {
            // The claim of a living producer is not given up.
            seen.poll(&mut reader, 2);
            *second.at_mut(seq).expect("claimed") = 300;
            second.done(seq).unwrap();
        }
        seen.poll(&mut reader, 4);
        assert_eq!(seen.0[3], u64::from(claimed.is_some()), "events were lost");
        seen.assert(1, &sent);
        seen.assert(2, &of_other);
        goes_on(&mut seen, &mut reader, &mut second);
        drop((first, other, second, reader));
    });
}

#[test]
fn loom_a_recoverer_of_a_producer_dies() {
    for stores in 0..12 {
        for recovered in 0..8 {
            a_recoverer_dies((stores, recovered), 2, &[(2, &[1, 1])], &[(1, &[1])]);
            a_recoverer_dies((stores, recovered), 2, &[(1, &[1]), (2, &[1])], &[(1, &[1])]);
            a_recoverer_dies((stores, recovered), 4, &[(2, &[2]), (3, &[1, 1])], &[(1, &[1])]);
            a_recoverer_dies((stores, recovered), 1, &[(1, &[1]), (1, &[1])], &[(1, &[1])]);
        }
    }
}

/// A producer dies in a claim of several runs. The whole claim, or the published front of it, is
/// seen as a whole or not at all.
#[test]
fn loom_a_producer_dies_between_the_runs_of_a_claim() {
    for stores in 0..10 {
        for recovered in 0..8 {
            a_recoverer_dies((stores, recovered), 8, &[(7, &[7])], &[(1, &[1])]);
            a_recoverer_dies((stores, recovered), 8, &[(7, &[5, 1])], &[(1, &[1])]);
        }
    }
}

/// Two processes find that a producer has died. One of them then takes the seat, and publishes over
/// the slots that the dead producer had claimed.
#[test]
fn loom_two_processes_recover_a_producer() {
    explore_unfenced(150, None, || {
        let segment = segment(1);
        let mut first = segment.shared_producer(1, 0).into_raw();
        let mut reader = segment.reader(5, 0);
        first.next().unwrap();
        segment.bytes.unlock(1);
        let other = segment.clone();
        let other = thread::spawn(move || other.recover(3, 1));
        let one = segment.clone();
        let one = thread::spawn(move || {
            one.recover(4, 1);
            let mut sent = Sent::default();
            let mut seen = Seen::default();
            seen.poll(&mut reader, 1);
            let mut second = one.try_shared_producer(4, 0).map(Producer::into_raw);
            if let Some(tx) = &mut second {
                publish(tx, 3, &mut sent, (1, &[1]), 1);
            }
            seen.poll(&mut reader, 1);
            (second, sent, seen, reader)
        });
        other.join().unwrap();
        let (second, sent, mut seen, mut reader) = one.join().unwrap();
        seen.poll(&mut reader, 3);
        seen.assert(3, &sent);
        let mut third = second.unwrap_or_else(|| {
            segment.recover(7, 1);
            segment.shared_producer(4, 0).into_raw()
        });
        goes_on(&mut seen, &mut reader, &mut third);
        (first, third, reader)
    });
}

/// A producer died. A process recovers its seat while a successor takes the seat and claims; the
/// recovery leaves the successor's claim alone.
#[test]
fn loom_a_seat_is_taken_during_a_recovery() {
    explore_unfenced(15, None, || {
        let segment = segment(2);
        let mut first = segment.shared_producer(1, 0).into_raw();
        let mut reader = segment.reader(5, 0);
        first.next().unwrap();
        segment.bytes.unlock(1);
        let recovering = segment.clone();
        let recovering = thread::spawn(move || recovering.recover(3, 1));
        let taking = segment.clone();
        let taking = thread::spawn(move || {
            let mut sent = Sent::default();
            let mut second = taking.try_shared_producer(4, 0).map(Producer::into_raw);
            if let Some(tx) = &mut second {
                publish(tx, 3, &mut sent, (1, &[1]), 1);
            }
            (second, sent)
        });
        assert!(recovering.join().unwrap());
        let (second, sent) = taking.join().unwrap();
        let mut seen = Seen::default();
        seen.poll(&mut reader, 3);
        seen.assert(3, &sent);
        let mut second = second.unwrap_or_else(|| segment.shared_producer(4, 0).into_raw());
        goes_on(&mut seen, &mut reader, &mut second);
        (first, second, reader)
    });
}

/// A producer dies with a claim, and is recovered. Another producer takes its seat and claims,
/// while a third producer records the dead producer's claim.
#[test]
fn loom_a_seat_is_taken_while_its_claim_is_recorded() {
    for stores in 3..5 {
        explore_unfenced(100, Some(3), move || {
            let segment = segment(4);
            let mut first = segment.shared_producer(1, 0).into_raw();
            let mut other = segment.shared_producer(2, 1).into_raw();
            let mut reader = segment.reader(5, 0);
            let of_other = thread::spawn(move || {
                let mut sent = Sent::default();
                publish(&mut other, 2, &mut sent, (1, &[1]), 2);
                (other, sent)
            });
            let of_seat = segment.clone();
            let of_seat = thread::spawn(move || {
                let (mut of_first, mut of_second) = (Sent::default(), Sent::default());
                lives(stores, || publish(&mut first, 1, &mut of_first, (1, &[1]), 1));
                of_seat.bytes.unlock(1);
                assert!(of_seat.recover(3, 1), "no other process recovers it");
                let mut second = of_seat.shared_producer(4, 0).into_raw();
                publish(&mut second, 3, &mut of_second, (1, &[1]), 2);
                (first, second, of_first, of_second)
            });
            let mut seen = Seen::default();
            let (other, of_other) = of_other.join().unwrap();
            let (first, mut second, of_first, of_second) = of_seat.join().unwrap();
            seen.poll(&mut reader, 5);
            seen.assert(1, &of_first);
            seen.assert(2, &of_other);
            seen.assert(3, &of_second);
            goes_on(&mut seen, &mut reader, &mut second);
            (first, second, other, reader)
        });
    }
}

/// A stage waits while two producers claim. The claim word, the intents and the stamp that it sees
/// never contradict each other.
#[test]
fn loom_a_waiting_stage_sees_no_position_passed_over() {
    explore_unfenced(5_000, Some(2), || {
        let segment = segment(2);
        let producers = [1, 2].map(|by| (by, segment.shared_producer(by as u32, by as usize - 1)));
        let mut reader = segment.reader(5, 0);
        let threads = producers.map(|(by, tx)| {
            let mut tx = tx.into_raw();
            thread::spawn(move || {
                let mut sent = Sent::default();
                (0..by).for_each(|_| publish(&mut tx, by, &mut sent, (1, &[1]), 1));
                (tx, sent)
            })
        });
        let reading = thread::spawn(move || {
            let mut seen = Seen::default();
            seen.poll(&mut reader, 1);
            assert!(!reader.finds_damage(), "a whole segment seems damaged");
            (reader, seen)
        });
        let ended = threads.map(|thread| thread.join().unwrap());
        let (mut reader, mut seen) = reading.join().unwrap();
        seen.poll(&mut reader, 4);
        (1..3).for_each(|by| seen.assert(by, &ended[by - 1].1));
        (ended, reader)
    });
}

#[test]
fn loom_twin_claim_unreleased() {
    caught("claims::loom_a_producer_dies_before_another_claim", "claim-unreleased", LOST);
}

#[test]
fn loom_twin_claim_seen_relaxed() {
    caught("claims::loom_a_producer_dies_before_another_claim", "claim-seen-relaxed", LOST);
}

#[test]
fn loom_twin_unrecorded() {
    caught("claims::loom_a_producer_dies_before_another_claim", "unrecorded", LOST);
}

#[test]
fn loom_twin_recorded_late() {
    caught("claims::loom_a_producer_dies_before_another_claim", "recorded-late", LOST);
}

#[test]
fn loom_twin_last_claim_ignored() {
    caught("claims::loom_a_producer_of_several_dies", "last-claim-ignored", NO_POSITION);
}

#[test]
fn loom_twin_recorded_by_store() {
    caught("claims::loom_two_processes_claim", "recorded-by-store", LOST);
}

#[test]
fn loom_twin_laps_unordered() {
    caught("claims::loom_two_processes_claim_over_laps", "laps-unordered", LOST);
}

#[test]
fn loom_twin_intent_unreleased() {
    caught("claims::loom_a_waiting_stage_sees_no_position_passed_over", "intent-unreleased", FALSE);
}

#[test]
fn loom_twin_intent_seen_relaxed() {
    caught(
        "claims::loom_a_waiting_stage_sees_no_position_passed_over",
        "intent-seen-relaxed",
        FALSE,
    );
}

#[test]
fn loom_twin_claimed_before_intent() {
    caught("claims::loom_a_producer_of_several_dies", "claimed-before-intent", NO_POSITION);
}

#[test]
fn loom_twin_front_first() {
    caught("claims::loom_a_producer_of_several_dies", "front-first", HELD_UP);
}

#[test]
fn loom_twin_mid_unstored() {
    caught("claims::loom_a_producer_of_several_dies", "mid-unstored", HELD_UP);
}

#[test]
fn loom_twin_head_assumed() {
    caught("claims::loom_a_producer_of_several_dies", "head-assumed", LOST);
}

#[test]
fn loom_twin_buried_head_first() {
    caught("claims::loom_a_producer_dies_between_the_runs_of_a_claim", "buried-head-first", LOST);
}

#[test]
fn loom_twin_owner_assumed() {
    caught("claims::loom_a_recoverer_of_a_producer_dies", "owner-assumed", LOST);
}

#[test]
fn loom_twin_freed_before_buried() {
    caught("claims::loom_a_seat_is_taken_during_a_recovery", "freed-before-buried", LOST);
}

#[test]
fn loom_twin_recovered_unlocked_of_a_producer() {
    caught("claims::loom_two_processes_recover_a_producer", "recovered-unlocked", LOST);
}

#[test]
fn loom_twin_stamp_seen_relaxed_at_a_head() {
    caught("claims::loom_two_processes_claim", "stamp-seen-relaxed", Caught::Race);
}

#[test]
fn loom_twin_first_run_first_of_a_claim() {
    caught("claims::loom_a_producer_dies_between_the_runs_of_a_claim", "first-run-first", LOST);
}
