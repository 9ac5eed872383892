//! Models of handles that gather a batch: they wait for a position behind the next event.
//!
//! A handle that gathers sleeps in the same queue as any other, and polls for another condition.
//! The models show that no wake-up is lost at the batch's last event, at the end of the stream, at
//! a position that was given up, and at a full ring. A model has no time, so its handles neither
//! nap nor time out: they sleep until the next publication. The models have two or three threads
//! and one to four events, on rings of 2 or 4 slots with `Wait::Blocking`.

use loom::thread;

use super::*;
use crate::base::fault::Fault;
use crate::consumer::drive::step;
use crate::consumer::handler::{Handler, LentEvents, Progress};
use crate::consumer::pace::Pace;
use crate::consumer::position::ConsumerPosition as _;
use crate::ring::slots::Contiguous;
use Access::{Read, Write};

/// A time that never passes.
const NEVER: Duration = Duration::MAX;

/// Gathers a batch of `max` events, and returns its length and the handle.
fn gather<L: crate::ring::slots::Layout>(
    mut rx: Reader<u64, L>,
    max: usize,
) -> (usize, Reader<u64, L>) {
    let batch = rx.batch_within(max, NEVER).unwrap();
    let len = batch.len();
    assert!(batch.iter().copied().eq(0..len as u64));
    batch.release();
    (len, rx)
}

/// The publication of the batch's last event wakes a reader that gathers.
#[test]
fn loom_the_last_event_wakes_a_reader_that_gathers() {
    explore(40, Some(3), || {
        let ring = ring(blocking(4), &[(Read, 0, &[])]);
        let (mut tx, rx) = (producer(&ring), reader(&ring, 0));
        tx.publish(|event| *event = 0).unwrap();
        let gathering = thread::spawn(move || gather(rx, 3));
        (1..3).for_each(|i| drop(tx.publish(|event| *event = i)));
        let (len, rx) = gathering.join().unwrap();
        assert_eq!(len, 3);
        drop((tx, rx));
    });
}

/// In the contiguous layout with one producer, the cursor's move wakes the reader.
#[test]
fn loom_a_cursor_wakes_a_reader_that_gathers() {
    explore(40, Some(3), || {
        let stages = named([(Read, Delivery::Each, &[][..])]);
        let ring = build::<u64, Contiguous>(blocking(4), stages, Vec::new(), &mut || u64::MAX)
            .expect("a sound graph");
        let rx: Reader<u64, Contiguous> =
            Consumer::every(ring.clone(), 0, HandleLearner::default());
        let mut tx: Producer<u64, Contiguous> = Producer::new(ring, HandleLearner::default());
        tx.publish(|event| *event = 0).unwrap();
        let gathering = thread::spawn(move || gather(rx, 2));
        tx.publish(|event| *event = 1).unwrap();
        let (len, rx) = gathering.join().unwrap();
        assert_eq!(len, 2);
        drop((tx, rx));
    });
}

/// Two producers publish in any order. The reader wakes at the later of the two publications, even
/// if it has the earlier position.
#[test]
fn loom_the_last_of_two_producers_wakes_a_reader_that_gathers() {
    explore(100, Some(2), || {
        let ring = ring(shared(blocking(4)), &[(Read, 0, &[])]);
        let (mut one, mut two, rx) =
            (shared_producer(&ring), shared_producer(&ring), reader(&ring, 0));
        one.publish(|event| *event = 0).unwrap();
        let mut early = one.claim().unwrap();
        let gathering = thread::spawn(move || gather(rx, 3));
        let publishing = thread::spawn(move || {
            two.publish(|event| *event = 2).unwrap();
            two
        });
        *early = 1;
        early.publish();
        let ((len, rx), two) = (gathering.join().unwrap(), publishing.join().unwrap());
        assert_eq!(len, 3);
        drop((one, two, rx));
    });
}

/// A release of the stage before it wakes a reader that gathers.
#[test]
fn loom_a_release_wakes_a_reader_that_gathers() {
    explore(40, Some(3), || {
        let ring = ring(blocking(4), &[(Write, 0, &[]), (Read, 0, &[0])]);
        let (mut tx, mut writer, rx) = (producer(&ring), writer(&ring, 0), reader(&ring, 1));
        (0..2).for_each(|i| drop(tx.publish(|event| *event = i)));
        writer.poll(1, |_, _| ()).unwrap();
        let gathering = thread::spawn(move || gather(rx, 2));
        writer.poll(1, |_, _| ()).unwrap();
        let (len, rx) = gathering.join().unwrap();
        assert_eq!(len, 2);
        drop((tx, writer, rx));
    });
}

/// The end of the stream wakes a reader that gathers, and the reader gets the rest.
#[test]
fn loom_the_end_wakes_a_reader_that_gathers() {
    explore(40, Some(3), || {
        let ring = ring(blocking(4), &[(Read, 0, &[])]);
        let (mut tx, rx) = (producer(&ring), reader(&ring, 0));
        tx.publish(|event| *event = 0).unwrap();
        let gathering = thread::spawn(move || gather(rx, 3));
        tx.publish(|event| *event = 1).unwrap();
        tx.close();
        let (len, mut rx) = gathering.join().unwrap();
        assert_eq!(len, 2, "the rest");
        assert!(matches!(rx.batch_within(3, NEVER), Err(crate::errors::WaitError::Closed)));
    });
}

/// A halt wakes a reader that gathers.
#[test]
fn loom_a_halt_wakes_a_reader_that_gathers() {
    explore(40, Some(3), || {
        let ring = ring(blocking(4), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        tx.publish(|event| *event = 0).unwrap();
        let gathering = thread::spawn(move || {
            // Also between two polls of the call, the halt is no reason to return the event.
            assert!(matches!(rx.batch_within(2, NEVER), Err(crate::errors::WaitError::Halted)));
            rx
        });
        tx.halt();
        drop((gathering.join().unwrap(), tx));
    });
}

/// A claim that is given up wakes a reader that gathers: no event can directly follow its batch.
#[test]
fn loom_a_given_up_claim_wakes_a_reader_that_gathers() {
    explore(40, Some(3), || {
        let ring = ring(shared(blocking(4)), &[(Read, 0, &[])]);
        let (mut tx, rx) = (shared_producer(&ring), reader(&ring, 0));
        tx.publish(|event| *event = 0).unwrap();
        let claim = tx.claim().unwrap();
        let gathering = thread::spawn(move || gather(rx, 2));
        drop(claim);
        let (len, rx) = gathering.join().unwrap();
        assert_eq!(len, 1);
        drop((tx, rx));
    });
}

/// A full ring wakes a reader that gathers, although the stage behind it holds a part of the ring,
/// and waits for the reader's events.
#[test]
fn loom_a_full_ring_wakes_a_reader_that_gathers_before_another() {
    explore(40, Some(3), || {
        let ring = ring(blocking(4), &[(Read, 0, &[]), (Read, 0, &[0])]);
        let (mut tx, mut first, second) = (producer(&ring), reader(&ring, 0), reader(&ring, 1));
        (0..3).for_each(|i| drop(tx.publish(|event| *event = i)));
        first.poll(2, |_, _| ()).unwrap();
        let gathering = thread::spawn(move || {
            let batch = first.batch_within(3, NEVER).unwrap();
            let len = batch.len();
            batch.release();
            (len, first)
        });
        tx.publish(|event| *event = 3).unwrap();
        let (len, second) = gather(second, 4);
        assert_eq!(len, 4);
        let (len, first) = gathering.join().unwrap();
        assert_eq!(len, 2);
        drop((tx, first, second));
    });
}

/// A batch of a stage is never shorter than the stage says, however publications and polls fall.
#[test]
fn loom_a_stage_hands_over_whole_batches() {
    explore(10, None, || {
        let mut stage = StageSpec::new("s0", Read, Delivery::Each, &[]);
        stage.policy.gather(2, NEVER);
        let settings = Settings { timed: true, ..settings(4) };
        let ring = build(settings, vec![stage], Vec::new(), &mut || u64::MAX).unwrap();
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let handling = thread::spawn(move || {
            let (mut pace, mut handled) = (Pace::new(rx.position().state()), 0);
            for _ in 0..2 {
                let Ok(len) = step(rx.position(), &mut Batches, &mut pace) else {
                    panic!("an end")
                };
                handled += len;
            }
            assert!(handled.is_multiple_of(2), "{handled} events");
            rx
        });
        publish_some(&mut tx, 0..2, 2);
        drop((handling.join().unwrap(), tx));
    });
}

/// A handler of batches that does nothing.
struct Batches;

impl Handler<u64, Interleaved> for Batches {
    const GATHERS: bool = true;

    fn handle(
        &mut self,
        lent: LentEvents<'_, u64, Interleaved>,
        progress: &mut Progress,
    ) -> Result<(), Fault> {
        progress.handled = lent.read().len() as u64;
        progress.found = progress.handled;
        Ok(())
    }
}

/// Declares a test for each twin of this file's models, whose reader `s0` or `s1` stays asleep.
macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal, $asleep:expr;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("gather::", $model), $twin, Caught::Deadlock(&$asleep));
            }
        )+
    };
}
twins! {
    loom_twin_gatherer_unfenced: "loom_the_last_event_wakes_a_reader_that_gathers", "sleeper-unfenced", ["s0"];
    loom_twin_gatherer_blind: "loom_the_last_event_wakes_a_reader_that_gathers", "sleeper-blind", ["s0"];
    loom_twin_notifier_unfenced_at_two_producers: "loom_the_last_of_two_producers_wakes_a_reader_that_gathers", "notifier-unfenced", ["s0"];
    loom_twin_notifier_unfenced_to_gatherer: "loom_a_release_wakes_a_reader_that_gathers", "notifier-unfenced", ["s1"];
    loom_twin_gatherer_unfenced_cursor: "loom_a_cursor_wakes_a_reader_that_gathers", "sleeper-unfenced", ["s0"];
    loom_twin_gathers_past_the_end: "loom_the_end_wakes_a_reader_that_gathers", "gathers-past-the-end", ["s0"];
    loom_twin_gathers_past_a_halt: "loom_a_halt_wakes_a_reader_that_gathers", "gathers-past-the-end", ["s0"];
    loom_twin_full_ring_unasked: "loom_a_full_ring_wakes_a_reader_that_gathers_before_another", "full-ring-unasked", ["s0", "s1"];
    loom_twin_gathers_past_a_tombstone: "loom_a_given_up_claim_wakes_a_reader_that_gathers", "gathers-past-a-tombstone", ["s0"];
}

#[test]
fn loom_twin_empty_batch_due() {
    let twin = ("gather::loom_a_stage_hands_over_whole_batches", "empty-batch-due");
    caught(twin.0, twin.1, Caught::Message("1 events"));
}
