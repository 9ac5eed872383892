//! Models of pools: each event goes to one worker. A stage behind the pool, or the producer, uses
//! the event's slot only after that worker has released the event.
//!
//! The models have one producer, two workers and up to one reader, on rings of 2 or 4 slots, with
//! chunks of 2 events.

use loom::thread;

use super::*;
use Access::{Read, Write};

pub(super) const LOST: Caught = Caught::Message("events were lost or handled twice");
/// A worker polls without end.
pub(super) const ENDLESS: Caught = Caught::Message("exceeded maximum number of branches");

/// Adds 100 to an event's value, so that the value shows how often the event was handled.
pub(super) fn mark(event: &mut u64) {
    *event += 100;
}

/// Handles one chunk if one is available, and returns its length in events.
pub(super) fn work(worker: &mut PoolUpdater<u64>) -> u64 {
    available(worker.try_batch(4)).map_or(0, |mut batch| {
        batch.iter_mut().for_each(mark);
        let len = batch.len() as u64;
        batch.release();
        len
    })
}

/// Handles all available events, and returns their number.
pub(super) fn work_off(worker: &mut PoolUpdater<u64>) -> u64 {
    worker.poll(4, |event, _| mark(event)).unwrap() as u64
}

/// Reads one batch if one is available, and returns its length in events. Asserts that each event's
/// value is its position, counted from the ring's first event, plus 100.
pub(super) fn read_handled(reader: &mut Reader<u64>) -> u64 {
    available(reader.try_batch(4)).map_or(0, |batch| {
        for (i, event) in batch.iter().enumerate() {
            let seq = batch.first_seq().wrapping_add(i as u64);
            assert_eq!(*event, seq.wrapping_sub(START) + 100, "handled not once");
        }
        let len = batch.len() as u64;
        batch.release();
        len
    })
}

/// Reads all available events, and returns their number.
pub(super) fn read_rest(reader: &mut Reader<u64>) -> u64 {
    let mut seen = 0;
    loop {
        match read_handled(reader) {
            0 => return seen,
            read => seen += read,
        }
    }
}

pub(super) fn publish(tx: &mut Producer<u64>, count: u64) {
    for i in 0..count {
        tx.publish(|event| *event = i).unwrap();
    }
}

/// Two workers share one run, in a pool that draws no tickets. The second worker takes the rest of
/// the run without loading the run's stamp.
#[test]
fn loom_two_workers_share_a_run() {
    explore_unfenced(180, Some(3), || {
        let napping = Settings { wait: Contained::new(Wait::SLEEPING), ..settings(4) };
        let ring = ring(napping, &[(Write, 2, &[])]);
        let (mut tx, mut one, mut two) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        let working = thread::spawn(move || (work(&mut one), one));
        let other = thread::spawn(move || (work(&mut two), two));
        let mut slots = tx.claim_n(3).unwrap();
        slots.iter_mut().zip(0..).for_each(|(event, i)| *event = i);
        slots.publish();
        let ((mut handled, mut one), (more, _two)) =
            (working.join().unwrap(), other.join().unwrap());
        handled += more + work_off(&mut one);
        assert_eq!(handled, 3, "events were lost or handled twice");
    });
}

#[test]
fn loom_twin_take_by_store() {
    caught("pool::loom_two_workers_share_a_run", "take-by-store", Caught::Race);
}

#[test]
fn loom_twin_word_relaxed() {
    caught("pool::loom_two_workers_share_a_run", "word-relaxed", Caught::Race);
}

/// A reader behind a pool reads an event only after a worker has released it, and reads all events
/// in order.
#[test]
fn loom_a_follower_behind_a_pool() {
    explore_unfenced(30_000, Some(3), || {
        let ring = ring(settings(4), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut one, mut two, mut rx) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1), reader(&ring, 1));
        publish(&mut tx, 3);
        let working = thread::spawn(move || (work(&mut one), one));
        let other = thread::spawn(move || (work(&mut two), two));
        let reading = thread::spawn(move || (read_handled(&mut rx), rx));
        let ((handled, _one), (more, _two)) = (working.join().unwrap(), other.join().unwrap());
        assert_eq!(handled + more, 3);
        let (seen, mut rx) = reading.join().unwrap();
        assert_eq!(seen + read_rest(&mut rx), 3, "handled events are not released");
    });
}

#[test]
fn loom_twin_frontier_word_last() {
    caught("pool::loom_a_follower_behind_a_pool", "frontier-word-last", Caught::Race);
}

#[test]
fn loom_twin_frontier_word_relaxed() {
    caught("pool::loom_a_follower_behind_a_pool", "frontier-word-relaxed", Caught::Race);
}

#[test]
fn loom_twin_bound_after_swap() {
    caught("pool::loom_a_follower_behind_a_pool", "bound-after-swap", Caught::Race);
}

#[test]
fn loom_twin_swap_unreleased() {
    caught("pool::loom_a_follower_behind_a_pool", "swap-unreleased", Caught::Race);
}

#[test]
fn loom_twin_bound_relaxed() {
    caught("pool::loom_a_follower_behind_a_pool", "bound-relaxed", Caught::Race);
}

#[test]
fn loom_twin_released_relaxed_by_a_worker() {
    caught("pool::loom_a_follower_behind_a_pool", "released-relaxed", Caught::Race);
}

#[test]
fn loom_twin_never_idle() {
    caught(
        "pool::loom_a_follower_behind_a_pool",
        "never-idle",
        Caught::Message("handled events are not released"),
    );
}

/// A worker stores the start position of its second chunk, and a reader loads the stored position.
/// Shows that the reader sees the worker's changes to the first chunk.
#[test]
fn loom_a_worker_takes_a_second_chunk() {
    explore_unfenced(900, None, || {
        let ring = ring(settings(4), &[(Write, 1, &[]), (Read, 0, &[0])]);
        let (mut tx, mut worker, mut rx) = (producer(&ring), worker(&ring, 0, 0), reader(&ring, 1));
        publish(&mut tx, 3);
        let working = thread::spawn(move || (work(&mut worker) + work(&mut worker), worker));
        let reading = thread::spawn(move || (read_handled(&mut rx), rx));
        let (handled, _worker) = working.join().unwrap();
        assert_eq!(handled, 3);
        let (seen, mut rx) = reading.join().unwrap();
        assert_eq!(seen + read_rest(&mut rx), 3, "handled events are not released");
    });
}

#[test]
fn loom_twin_bound_unreleased() {
    caught("pool::loom_a_worker_takes_a_second_chunk", "bound-unreleased", Caught::Race);
}

/// Shows that a pool alone gates the producer: the producer fills a slot again only after a worker
/// has released the slot.
#[test]
fn loom_a_pool_gates_the_producer() {
    explore_unfenced(10_000, Some(2), || {
        let ring = ring(settings(2), &[(Write, 2, &[])]);
        let (mut tx, mut one, mut two) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish(&mut tx, 1);
        let working = thread::spawn(move || (work(&mut one), one));
        let other = thread::spawn(move || (work(&mut two), two));
        let published =
            (0..2).filter(|_| tx.try_publish(|event| *event = 0).is_ok()).count() as u64;
        let ((mut handled, mut one), (more, _two)) =
            (working.join().unwrap(), other.join().unwrap());
        handled += more + work_off(&mut one);
        assert_eq!(handled, 1 + published, "events were lost or handled twice");
    });
}

#[test]
fn loom_twin_frontier_word_last_to_the_producer() {
    caught("pool::loom_a_pool_gates_the_producer", "frontier-word-last", Caught::Race);
}

#[test]
fn loom_twin_bound_after_swap_to_the_producer() {
    caught("pool::loom_a_pool_gates_the_producer", "bound-after-swap", Caught::Race);
}

/// A pool behind a writer takes only events that the writer has released.
#[test]
fn loom_a_pool_behind_a_writer() {
    explore_unfenced(800, Some(3), || {
        let ring = ring(settings(2), &[(Write, 0, &[]), (Write, 2, &[0])]);
        let (mut tx, mut writer) = (producer(&ring), writer(&ring, 0));
        let (mut one, mut two) = (worker(&ring, 1, 0), worker(&ring, 1, 1));
        publish(&mut tx, 2);
        let working = thread::spawn(move || (work(&mut one), one));
        let other = thread::spawn(move || (work(&mut two), two));
        for _ in 0..2 {
            writer.poll(1, |event, at| assert_eq!(*event, at.seq.wrapping_sub(START))).unwrap();
        }
        let ((mut handled, mut one), (more, _two)) =
            (working.join().unwrap(), other.join().unwrap());
        handled += more + work_off(&mut one);
        assert_eq!(handled, 2, "events were lost or handled twice");
    });
}

#[test]
fn loom_twin_frontier_relaxed_to_a_pool() {
    caught("pool::loom_a_pool_behind_a_writer", "frontier-relaxed", Caught::Race);
}

#[test]
fn loom_twin_take_by_store_behind_a_writer() {
    caught("pool::loom_a_pool_behind_a_writer", "take-by-store", Caught::Race);
}

/// A worker takes a tombstone in the same way as a chunk, and releases the tombstone at once.
#[test]
fn loom_a_pool_passes_a_tombstone() {
    explore_unfenced(30_000, Some(3), || {
        let ring = ring(shared(settings(2)), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut one, mut two, mut rx) =
            (shared_producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1), reader(&ring, 1));
        tx.publish(|event| *event = 0).unwrap();
        drop(tx.claim().unwrap());
        let working = thread::spawn(move || (work(&mut one), one));
        let other = thread::spawn(move || (work(&mut two), two));
        let reading = thread::spawn(move || (read_handled(&mut rx), rx));
        let ((handled, _one), (more, _two)) = (working.join().unwrap(), other.join().unwrap());
        assert_eq!(handled + more, 1);
        let (seen, mut rx) = reading.join().unwrap();
        assert_eq!(seen + read_rest(&mut rx), 1);
        assert_eq!(
            ring.control.positions.frontier(&ring.control.plan, 0, START),
            START.wrapping_add(2),
            "the tombstone is not released"
        );
    });
}

#[test]
fn loom_twin_passed_unreleased() {
    caught(
        "pool::loom_a_pool_passes_a_tombstone",
        "passed-unreleased",
        Caught::Message("the tombstone is not released"),
    );
}

#[test]
fn loom_twin_frontier_word_last_at_a_tombstone() {
    caught("pool::loom_a_pool_passes_a_tombstone", "frontier-word-last", Caught::Race);
}

/// A worker drops its handle with an unfinished chunk. Another worker sleeps, wakes, and handles
/// the unfinished chunk.
#[test]
fn loom_a_chunk_is_adopted() {
    explore(600, Some(3), || {
        let ring = ring(blocking(2), &[(Write, 2, &[])]);
        let (mut tx, mut one, mut two) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish(&mut tx, 2);
        drop(tx);
        let leaving = thread::spawn(move || drop(one.try_batch(2).map(drop)));
        let working = thread::spawn(move || two.for_each(|event, _| mark(event)).unwrap());
        leaving.join().unwrap();
        assert_eq!(working.join().unwrap(), 2, "events were lost or handled twice");
    });
}

#[test]
fn loom_twin_orphan_unnotified() {
    caught("pool::loom_a_chunk_is_adopted", "orphan-unnotified", Caught::Deadlock(&["s0"]));
}

/// The line of a departed worker still holds the position of the first unreleased event in its
/// orphaned chunk. A reader behind the pool waits until another worker has adopted and handled that
/// chunk.
#[test]
fn loom_an_orphaned_chunk_bounds_the_frontier() {
    explore_unfenced(20_000, Some(3), || {
        let ring = ring(settings(2), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut one, mut two, mut rx) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1), reader(&ring, 1));
        publish(&mut tx, 2);
        let leaving = thread::spawn(move || drop(one.try_batch(2).map(drop)));
        let working = thread::spawn(move || (work(&mut two), two));
        let reading = thread::spawn(move || (read_handled(&mut rx), rx));
        leaving.join().unwrap();
        let (mut handled, mut two) = working.join().unwrap();
        handled += work_off(&mut two);
        assert_eq!(handled, 2, "events were lost or handled twice");
        let (seen, mut rx) = reading.join().unwrap();
        assert_eq!(seen + read_rest(&mut rx), 2, "handled events are not released");
        (tx, two, rx)
    });
}

/// A thread drops two workers, each of which leaves a chunk, and a third worker adopts chunks. An
/// orphan is counted before it is there, so the third worker may look for it in vain.
#[test]
fn loom_an_orphan_is_counted_before_it_is_left() {
    explore_unfenced(25, None, || {
        let ring = ring(settings(4), &[(Write, 3, &[])]);
        let mut tx = producer(&ring);
        let [mut one, mut two, mut three] = [0, 1, 2].map(|seat| worker(&ring, 0, seat));
        publish(&mut tx, 4);
        drop((one.try_batch(2).unwrap(), two.try_batch(2).unwrap()));
        let leaving = thread::spawn(move || {
            drop(two);
            one.try_batch(2).unwrap().iter_mut().for_each(mark);
            drop(one);
        });
        let mut handled = work(&mut three);
        leaving.join().unwrap();
        handled += work_off(&mut three);
        assert_eq!(handled, 4, "events were lost or handled twice");
        (tx, three)
    });
}

#[test]
fn loom_twin_orphan_unreleased() {
    caught("pool::loom_an_orphan_is_counted_before_it_is_left", "orphan-unreleased", LOST);
}

#[test]
fn loom_twin_orphan_unacquired() {
    caught("pool::loom_an_orphan_is_counted_before_it_is_left", "orphan-unacquired", LOST);
}

#[test]
fn loom_twin_orphan_unbound() {
    caught("pool::loom_an_orphaned_chunk_bounds_the_frontier", "orphan-unbound", Caught::Race);
}

/// The two workers of a pool handle the events of a closed ring, and leave at the same time. The
/// last one sees the other's releases, so the graph does not fail.
#[test]
fn loom_the_last_worker_leaves() {
    explore_unfenced(3_000, Some(3), || {
        let ring = ring(settings(4), &[(Write, 2, &[])]);
        let (mut tx, one, two) = (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish(&mut tx, 3);
        drop(tx);
        // A worker that finds no event may get `WaitError::Closed`.
        let leaving = [one, two]
            .map(|mut worker| thread::spawn(move || drop(worker.poll(4, |event, _| mark(event)))));
        leaving.into_iter().for_each(|leaving| leaving.join().unwrap());
        assert!(ring.control.status.failure().is_none(), "failed although all was handled");
    });
}

#[test]
fn loom_twin_signed_off_relaxed() {
    caught(
        "pool::loom_the_last_worker_leaves",
        "signed-off-relaxed",
        Caught::Message("failed although all was handled"),
    );
}

/// An idle worker sleeps until the last chunk is handled, and then wakes and ends.
#[test]
fn loom_idle_workers_end() {
    explore(1_000, Some(3), || {
        let ring = ring(blocking(2), &[(Write, 2, &[])]);
        let (mut tx, one, two) = (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish(&mut tx, 1);
        drop(tx);
        let working = [one, two].map(|mut worker| {
            thread::spawn(move || worker.for_each(|event, _| mark(event)).unwrap())
        });
        let handled: u64 = working.map(|working| working.join().unwrap()).iter().sum();
        assert_eq!(handled, 1, "events were lost or handled twice");
    });
}

#[test]
fn loom_twin_idle_workers_unnotified() {
    caught("pool::loom_idle_workers_end", "idle-workers-unnotified", Caught::Deadlock(&["s0"]));
}

/// A worker stores a chunk's start on its line before it tries to take the chunk. If another worker
/// takes it, the stored start holds back the stage behind the pool, which may fall asleep. Shows
/// that the worker wakes that stage when it replaces the stored start.
#[test]
fn loom_a_lagging_bound_is_notified() {
    explore(60_000, Some(2), || {
        let ring = ring(blocking(4), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut one, mut two, mut rx) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1), reader(&ring, 1));
        publish(&mut tx, 3);
        let working = thread::spawn(move || (work(&mut one), one));
        let keeping = thread::spawn(move || {
            let kept = available(two.try_batch(2)).map(|batch| batch.first_seq());
            if kept == Some(START) {
                work(&mut two);
            }
            two
        });
        // The reader waits for the first event before the workers' threads are joined. This wait
        // always ends, because the worker that takes the first event also handles it.
        assert_eq!(rx.batch(1).unwrap().first_seq(), START);
        drop((working.join().unwrap(), keeping.join().unwrap()));
    });
}

#[test]
fn loom_twin_lagging_bound_unnotified() {
    caught(
        "pool::loom_a_lagging_bound_is_notified",
        "lagging-bound-unnotified",
        Caught::Deadlock(&["s1"]),
    );
}

/// Two pools stand one behind the other. In each pool, one worker leaves without finishing its
/// chunk. Shows that each orphaned chunk is adopted by a worker of its own pool. The first pool's
/// chunk is orphaned first, and may still be unhandled when the second pool's chunk is orphaned.
#[test]
fn loom_each_pool_adopts_its_own_chunks() {
    explore_unfenced(90, Some(2), || {
        let ring = ring(settings(4), &[(Write, 2, &[]), (Write, 2, &[0])]);
        let (mut tx, mut first, mut second) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 1, 0));
        let (mut heir, mut other_heir) = (worker(&ring, 0, 1), worker(&ring, 1, 1));
        publish(&mut tx, 4);
        assert_eq!(work(&mut first), 2);
        // The workers `first` and `second` each take a chunk of two events, and release none of
        // them. The first pool's chunk has the later positions.
        drop((first.try_batch(2).unwrap(), second.try_batch(2).unwrap()));
        let leaving = thread::spawn(move || {
            drop(first);
            drop(second);
        });
        let adopting = thread::spawn(move || (work(&mut heir), heir));
        let handled = |event: u64, first: u64| first.wrapping_sub(START) + 100 == event;
        let mut take = || {
            available(other_heir.try_batch(4)).map_or(0, |mut chunk| {
                assert!(handled(chunk[0], chunk.first_seq()), "a chunk of the other pool");
                chunk.iter_mut().for_each(mark);
                let len = chunk.len() as u64;
                chunk.release();
                len
            })
        };
        let mut done = take();
        leaving.join().unwrap();
        let (adopted, mut heir) = adopting.join().unwrap();
        assert_eq!(adopted + work_off(&mut heir), 2, "events were lost or handled twice");
        done += take() + take();
        assert_eq!(done, 4, "events were lost or handled twice");
        (tx, heir, other_heir)
    });
}

#[test]
fn loom_twin_any_orphan() {
    caught(
        "pool::loom_each_pool_adopts_its_own_chunks",
        "any-orphan",
        Caught::Message("a chunk of the other pool"),
    );
}
