//! Tests of how many events a stage's loop lends at a time, and of the position that it stores on
//! the seat.

use super::for_tests::{Segment, stage};
use super::ring::SegmentRing;
use crate::base::fault::Fault;
use crate::consumer::drive::step;
use crate::consumer::handler::{Handler, LentEvents, Progress};
use crate::consumer::pace::Pace;
use crate::processes::deaths::OnDeath;
use crate::processes::layout::InSegment;
use crate::ring::slots::Interleaved;
use crate::segment::SegmentProducer;

/// A handler that publishes the next event while it handles an event, up to position 7. For each
/// event, it notes the seat's `held`, the position up to which events are lent.
struct Successive {
    tx: SegmentProducer<u64>,
    ring: SegmentRing<u64>,
    held: Vec<u64>,
}

impl Handler<u64, InSegment<Interleaved>> for Successive {
    fn handle(
        &mut self,
        lent: LentEvents<'_, u64, InSegment<Interleaved>>,
        progress: &mut Progress,
    ) -> Result<(), Fault> {
        lent.each(progress, |_, at| {
            self.held.push(self.ring.seat(0).held());
            if at.seq < 7 {
                self.tx.publish(|slot| *slot = at.seq + 1).unwrap();
            }
            Ok(())
        })
    }
}

/// If events come sparsely, a stage with a seat is lent one event at a time: it handles the event
/// before it loads the next stamp, and stores the lent position on its seat once per event.
#[test]
fn sparse_events_are_lent_one_by_one() {
    for (is_sparse, found) in [(true, 8), (false, 1)] {
        let segment = Segment::new(64, 0, vec![stage("only", &[], OnDeath::Wait)]);
        let mut tx = segment.producer(1);
        let mut reader = segment.reader(2, 0);
        tx.publish(|slot| *slot = 0).unwrap();
        let mut pace = Pace::new(reader.state());
        pace.is_sparse = is_sparse;
        let mut handler = Successive { tx, ring: segment.attach(3), held: Vec::new() };
        let handled = step(reader.position(), &mut handler, &mut pace);
        assert_eq!(handled.ok(), Some(found), "is_sparse: {is_sparse}");
        assert_eq!(handler.held, (1..=found).collect::<Vec<_>>(), "is_sparse: {is_sparse}");
    }
}

/// A long run is lent as a whole, and without other runs. Short runs are lent together.
#[test]
fn long_runs_are_lent_one_after_another() {
    for (len, lent) in [(16, 16), (4, 32)] {
        let segment = Segment::new(64, 0, vec![stage("only", &[], OnDeath::Wait)]);
        let mut tx = segment.producer(1);
        let mut reader = segment.reader(2, 0);
        for _ in 0..32 / len {
            tx.claim_n(len).unwrap().publish();
        }
        let (ring, mut held) = (segment.attach(3), Vec::new());
        reader.poll(usize::MAX, |_, _| held.push(ring.seat(0).held())).unwrap();
        let expected: Vec<u64> = (0..32).map(|at| (at / lent + 1) * lent).collect();
        assert_eq!(held, expected, "runs of {len}");
    }
}

/// A poll lends no more events than it was asked for, wherever the runs begin and end.
#[test]
fn a_bounded_poll_lends_no_more() {
    for len in [1, 3, 16] {
        let segment = Segment::new(64, 0, vec![stage("only", &[], OnDeath::Wait)]);
        let mut tx = segment.producer(1);
        let mut reader = segment.reader(2, 0);
        for _ in 0..48 / len {
            tx.claim_n(len).unwrap().publish();
        }
        let ring = segment.attach(3);
        for max in [1, 2, 5, 17] {
            let before = reader.next_seq();
            assert_eq!(reader.poll(max, |_, _| ()).unwrap(), max);
            assert_eq!(ring.seat(0).held(), before + max as u64, "runs of {len}");
        }
    }
}
