//! Tests of blocks over memory on the heap, so that Miri can run them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::for_tests::{Dead, stage};
use super::zeroed::blocks_on_heap;
use super::*;
use crate::consumer::markers::Updating;
use crate::errors::{BatchError, WaitError};
use crate::processes::markers::Seated;
use crate::wait::Wait;

/// Makes a ring of four blocks of 24 bytes, side by side or each behind its stamp. Two rings over
/// the same memory stand for two processes.
fn rings(inside: bool) -> [SegmentRing<BlockStart, Strided>; 2] {
    let (capacity, size) = (4, 24);
    let stages = vec![StageDeclaration { writes: true, ..stage("only", &[], OnDeath::Wait) }];
    let producer_on_death = OnDeath::Wait;
    let declaration =
        Declaration { capacity, start: u64::MAX - 5, stages, producers: 1, producer_on_death };
    let areas = blocks_on_heap(&declaration, size, inside).unwrap();
    [1, 2].map(|number| {
        let participant = Participant {
            number,
            proof: Arc::new(Dead::default()),
            notice: Duration::from_millis(1),
            always_fences: true,
            wait: Wait::Blocking,
            producer_wait: Wait::Blocking,
        };
        // SAFETY: the areas were laid out as the declaration needs them, and both rings follow the
        // protocol.
        unsafe { SegmentRing::over(&declaration, &areas, &participant) }.unwrap()
    })
}

#[test]
fn blocks_go_from_one_process_to_another() {
    let _watched = crate::watchdog::watched();
    for inside in [false, true] {
        let [one, other] = rings(inside);
        one.seat(one.seats_of(one.producer_party()).start).take(1).unwrap();
        other.seat(other.seats_of(0).start).take(2).unwrap();
        // SAFETY: the seats were taken, and the blocks have this size.
        let (mut tx, mut rx) = unsafe {
            (BlockProducer::over(one.producer(), 24), BlockConsumer::over(other.updater(0), 24))
        };
        let sending = std::thread::spawn(move || {
            for run in [1, 3, 4, 2, 2, 3] {
                let mut claim = tx.claim_n(run).unwrap();
                let first = claim.first_seq() as u8;
                for offset in 0..run {
                    claim[offset].fill(first.wrapping_add(offset as u8));
                }
                if run == 4 {
                    drop(claim);
                } else {
                    claim.publish();
                }
            }
        });
        let (mut seen, mut next) = (0, (u64::MAX - 5) as u8);
        let end = loop {
            match rx.batch(3) {
                Ok(mut batch) => {
                    for offset in 0..batch.len() {
                        assert_eq!(batch.get(offset).unwrap(), [next; 24]);
                        batch.get_mut(offset).unwrap().fill(0);
                        next = next.wrapping_add(1);
                    }
                    let [first, second] = batch.stretches();
                    assert_eq!(
                        (first.stride, first.count + second.count),
                        (if inside { 32 } else { 24 }, batch.len())
                    );
                    seen += batch.len();
                    batch.release();
                }
                Err(end) => break end,
            }
        };
        assert!(matches!(end, WaitError::Closed), "{end}");
        assert_eq!(seen, 11);
        sending.join().unwrap();
    }
}

/// A wait that ends with an error lends no block, so none has a place.
#[test]
fn a_failed_wait_lends_no_blocks() {
    let _watched = crate::watchdog::watched();
    let [one, other] = rings(false);
    one.seat(one.seats_of(one.producer_party()).start).take(1).unwrap();
    other.seat(other.seats_of(0).start).take(2).unwrap();
    // SAFETY: the seats were taken, and the blocks have this size.
    let (mut tx, rx) = unsafe { (one.producer(), BlockConsumer::over(other.updater(0), 24)) };
    let seq = tx.publish(|_| ()).unwrap();
    let mut rx = rx.into_raw();
    let counts =
        |rx: &RawBlockConsumer<Updating, Seated>| rx.stretches().map(|stretch| stretch.count);
    assert_eq!((rx.available(8).unwrap().len(), counts(&rx)), (1, [1, 0]));
    tx.halt();
    let error = rx.wait_by(8, Instant::now() + Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, BatchError::Wait(WaitError::Halted)), "{error}");
    assert_eq!(counts(&rx), [0, 0]);
    assert!(rx.done(seq).is_err());
}
