//! Tests of the refresh of stamps. A stamp's lap number wraps around, and every stamp is refreshed
//! before it repeats. Publications take the slow path only in the few laps around a refresh.

use crate::base::panics::Contained;
use crate::consumer::handle::{Consumer, Reader};
use crate::producer::{Many, Producer, Single, sealed::Sharing};
use crate::ring::build::build;
use crate::ring::owner::Owner;
use crate::ring::settings::Settings;
use crate::ring::slots::{Contiguous, Interleaved, Layout};
use crate::ring::spec::{Access, Delivery, StageSpec};
use crate::ring::stamp::Stamp;
use crate::wait::{HandleLearner, Wait};

/// Publishes one run of events for each entry of `lens`, which gives the run's length. The first
/// run begins four laps before the end of a refresh period (2^44 laps). Then reads the stamps as
/// they would appear 2^46 laps after the first run: returns how the slots' stamps would be
/// interpreted at each position of two laps.
fn answers_later<L: Layout, S: Sharing>(
    capacity: usize,
    many: bool,
    publish_cursor: bool,
    raw: bool,
    lens: &[usize],
) -> Vec<Stamp> {
    let shift = capacity.trailing_zeros();
    let start = ((1u64 << 44) - 4) << shift;
    let settings = Settings {
        start,
        many_producers: many,
        publish_cursor,
        wait: Contained::new(Wait::BusySpin),
        ..Settings::new(capacity)
    };
    let reader = StageSpec::new("s", Access::Read, Delivery::Each, &[]);
    let ring: Owner<u64, L> = build(settings, vec![reader], Vec::new(), &mut || 0).unwrap();
    let (mut tx, mut rx): (Producer<u64, L, S>, Reader<u64, L>) = (
        Producer::new(ring.clone(), HandleLearner::default()),
        Consumer::every(ring.clone(), 0, HandleLearner::default()),
    );
    let mut seen = 0;
    for &len in lens {
        if raw {
            // The call of `available` makes the producer load its limit again while a claim is
            // open.
            let mut open = tx.into_raw();
            let first = open.next_n(len).unwrap();
            open.available();
            open.done(first.wrapping_add(len as u64 - 1)).unwrap();
            tx = open.into_inner();
        } else {
            tx.claim_n(len).unwrap().publish();
        }
        seen += rx.poll(usize::MAX, |_, _| ()).unwrap();
    }
    assert_eq!(seen, lens.iter().sum::<usize>(), "every event is seen");
    let repeats = 1u64 << (46 + shift);
    (0..2 * capacity as u64)
        .map(|offset| ring.slots.run_at(start.wrapping_add(offset).wrapping_add(repeats)))
        .collect()
}

/// `Core::may_refresh` ignores positions before the ring's start.
#[test]
fn a_ring_begins_on_the_short_way() {
    let capacity = 8u64;
    let period = capacity << 44;
    let may_refresh = |start: u64, from: u64| {
        let settings = Settings {
            start,
            wait: Contained::new(Wait::BusySpin),
            ..Settings::new(capacity as usize)
        };
        let ring: Owner<u64, Interleaved> = build(
            settings,
            vec![StageSpec::new("s", Access::Read, Delivery::Each, &[])],
            Vec::new(),
            &mut || 0,
        )
        .unwrap();
        ring.may_refresh(from, from.wrapping_add(capacity))
    };
    // Each case gives the ring's first position, the first position of the checked range (one lap),
    // and the expected result of `may_refresh`. A refresh period is 2^44 laps. Each ring starts at
    // the first position of a refresh period, or up to four laps earlier.
    for (start, from, refreshes) in [
        (0, 0, false),
        (0, 1, false),
        (0, capacity, false),
        (0, period - 3 * capacity, true),
        (period, period, false),
        (period - 1, period, true),
        (period - 1, period + capacity - 1, true),
        (period - 1, period + capacity, false),
        (period - 4 * capacity, period - 4 * capacity, false),
        (0u64.wrapping_sub(capacity), 0, true),
    ] {
        assert_eq!(may_refresh(start, from), refreshes, "a ring that starts at {start}, at {from}");
    }
}

/// A slot is the head of a run once, and then lies inside of other runs for 2^46 laps. The slot's
/// old stamp must not be mistaken for the stamp of a new run.
#[test]
fn a_stamp_is_refreshed_before_its_lap_repeats() {
    let singles = |count| [1].repeat(count);
    // Each case publishes a lap of single events, and then the listed runs, each at most a lap
    // long. In some cases the runs begin at a lap's first slot; in others they cross the ends of
    // laps.
    for (capacity, runs) in [
        (2, vec![2; 6]),
        (2, vec![1, 2, 2, 2, 2]),
        (8, vec![8; 6]),
        (8, vec![5, 8, 8, 3, 8, 8]),
        (8, vec![5, 8, 3, 8, 8]),
    ] {
        let lens = [singles(capacity), runs].concat();
        for answers in [
            answers_later::<Interleaved, Single>(capacity, false, false, false, &lens),
            answers_later::<Interleaved, Single>(capacity, false, true, false, &lens),
            answers_later::<Interleaved, Single>(capacity, false, false, true, &lens),
            answers_later::<Interleaved, Many>(capacity, true, false, false, &lens),
            answers_later::<Interleaved, Many>(capacity, true, false, true, &lens),
            answers_later::<Contiguous, Many>(capacity, true, false, false, &lens),
        ] {
            let wrong = answers.iter().filter(|run| **run != Stamp::Unpublished).count();
            assert_eq!(wrong, 0, "capacity {capacity}, publications of {lens:?}: {answers:?}");
        }
    }
}
