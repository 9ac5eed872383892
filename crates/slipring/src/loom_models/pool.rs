//! Pools: each event to one worker, and whoever comes behind sees them in order.

use loom::thread;

use super::*;
use Access::{Read, Write};

/// Marks an event as handled; twice would show.
fn mark(event: &mut u64) {
    *event += 100;
}

/// Takes a chunk, if there is one, and works through it; says how long it was.
fn work(worker: &mut PoolWriter<u64>) -> u64 {
    nothing(worker.try_batch(4)).map_or(0, |mut batch| {
        batch.iter_mut().for_each(mark);
        let len = batch.len() as u64;
        batch.release();
        len
    })
}

/// Works through all that is left.
fn work_off(worker: &mut PoolWriter<u64>) -> u64 {
    worker.poll(4, |event, _| mark(event)).unwrap() as u64
}

/// Reads what is there; each event is handled, and in its place.
fn read_handled(reader: &mut Reader<u64>) -> u64 {
    nothing(reader.try_batch(4)).map_or(0, |batch| {
        for (i, event) in batch.iter().enumerate() {
            let seq = batch.first_seq().wrapping_add(i as u64);
            assert_eq!(*event, seq.wrapping_sub(START) + 100, "not handled, or twice");
        }
        let len = batch.len() as u64;
        batch.release();
        len
    })
}

/// Reads all that is left.
fn read_rest(reader: &mut Reader<u64>) -> u64 {
    let mut seen = 0;
    loop {
        match read_handled(reader) {
            0 => return seen,
            read => seen += read,
        }
    }
}

fn publish(tx: &mut Producer<u64>, count: u64) {
    for i in 0..count {
        tx.publish(|event| *event = i).unwrap();
    }
}

/// One run shared by two workers: the second takes what the first has left of it, without ever
/// looking at its stamp.
#[test]
fn loom_two_workers_share_a_run() {
    explore_unfenced(400, Some(3), || {
        let ring = ring(settings(4), &[(Write, 2, &[])]);
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
        assert_eq!(handled, 3, "events were lost, or came twice");
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

/// Whoever follows a pool reads an event only when its worker is done with it, and all in order.
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
        assert_eq!(seen + read_rest(&mut rx), 3, "what was handled is not let go");
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
        Caught::Saying("what was handled is not let go"),
    );
}

/// The bound of a worker's next chunk also says that it is done with the one before.
#[test]
fn loom_a_worker_goes_on() {
    explore_unfenced(900, None, || {
        let ring = ring(settings(4), &[(Write, 1, &[]), (Read, 0, &[0])]);
        let (mut tx, mut worker, mut rx) = (producer(&ring), worker(&ring, 0, 0), reader(&ring, 1));
        publish(&mut tx, 3);
        let working = thread::spawn(move || (work(&mut worker) + work(&mut worker), worker));
        let reading = thread::spawn(move || (read_handled(&mut rx), rx));
        let (handled, _worker) = working.join().unwrap();
        assert_eq!(handled, 3);
        let (seen, mut rx) = reading.join().unwrap();
        assert_eq!(seen + read_rest(&mut rx), 3, "what was handled is not let go");
    });
}

#[test]
fn loom_twin_bound_unreleased() {
    caught("pool::loom_a_worker_goes_on", "bound-unreleased", Caught::Race);
}

/// A pool alone gates the producer, whose second lap must wait for the workers of the first.
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
        assert_eq!(handled, 1 + published, "events were lost, or came twice");
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

/// A pool behind a stage takes no more than that one has let go.
#[test]
fn loom_a_pool_behind_a_writer() {
    explore_unfenced(2_000, Some(3), || {
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
        assert_eq!(handled, 2, "events were lost, or came twice");
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

/// A worker takes a tombstone like a chunk, and lets it go at once.
#[test]
fn loom_a_pool_passes_a_tombstone() {
    explore_unfenced(70_000, Some(3), || {
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
            ring.control.frontier(0, START),
            START.wrapping_add(2),
            "the tombstone is not let go"
        );
    });
}

#[test]
fn loom_twin_passed_unreleased() {
    caught(
        "pool::loom_a_pool_passes_a_tombstone",
        "passed-unreleased",
        Caught::Saying("the tombstone is not let go"),
    );
}

#[test]
fn loom_twin_frontier_word_last_at_a_tombstone() {
    caught("pool::loom_a_pool_passes_a_tombstone", "frontier-word-last", Caught::Race);
}

/// A worker goes with a chunk in its hands: the other sleeps, is woken, and finishes it.
#[test]
fn loom_a_chunk_is_adopted() {
    explore(800, Some(3), || {
        let ring = ring(blocking(2), &[(Write, 2, &[])]);
        let (mut tx, mut one, mut two) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish(&mut tx, 2);
        drop(tx);
        let leaving = thread::spawn(move || drop(one.try_batch(2).map(drop)));
        let working = thread::spawn(move || two.for_each(|event, _| mark(event)).unwrap());
        leaving.join().unwrap();
        assert_eq!(working.join().unwrap(), 2, "events were lost, or came twice");
    });
}

#[test]
fn loom_twin_orphan_unrung() {
    caught("pool::loom_a_chunk_is_adopted", "orphan-unnotified", Caught::Deadlock(&["s0"]));
}

/// Meanwhile the chunk is bounded by the line of the worker that went: a follower waits for the one
/// who finishes it.
#[test]
fn loom_a_chunk_in_between_is_bounded() {
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
        assert_eq!(handled, 2, "events were lost, or came twice");
        let (seen, mut rx) = reading.join().unwrap();
        assert_eq!(seen + read_rest(&mut rx), 2, "what was handled is not let go");
        (tx, two, rx)
    });
}

#[test]
fn loom_twin_orphan_unbound() {
    caught("pool::loom_a_chunk_in_between_is_bounded", "orphan-unbound", Caught::Race);
}

/// Workers that leave a drained stream at once harm nobody: the last one out sees that the others
/// were done.
#[test]
fn loom_the_last_worker_out() {
    explore_unfenced(3_000, Some(3), || {
        let ring = ring(settings(4), &[(Write, 2, &[])]);
        let (mut tx, one, two) = (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish(&mut tx, 3);
        drop(tx);
        // One who finds nothing may be told that the stream is drained.
        let leaving = [one, two]
            .map(|mut worker| thread::spawn(move || drop(worker.poll(4, |event, _| mark(event)))));
        leaving.into_iter().for_each(|leaving| leaving.join().unwrap());
        assert!(ring.control.status.failure().is_none(), "failed although all was handled");
    });
}

#[test]
fn loom_twin_signed_off_relaxed() {
    caught(
        "pool::loom_the_last_worker_out",
        "signed-off-relaxed",
        Caught::Saying("failed although all was handled"),
    );
}

/// An idle worker stays until the last chunk is done, and is woken for its end.
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
        assert_eq!(handled, 1, "events were lost, or came twice");
    });
}

#[test]
fn loom_twin_idle_workers_unrung() {
    caught("pool::loom_idle_workers_end", "idle-workers-unnotified", Caught::Deadlock(&["s0"]));
}

/// A worker that lost a race shows an old bound for a while. When it takes the next chunk, and
/// keeps it, the follower must be told.
#[test]
fn loom_a_bound_that_lagged_is_rung() {
    explore(60_000, Some(2), || {
        let ring = ring(blocking(4), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut one, mut two, mut rx) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1), reader(&ring, 1));
        publish(&mut tx, 3);
        let working = thread::spawn(move || (work(&mut one), one));
        let keeping = thread::spawn(move || {
            let kept = nothing(two.try_batch(2)).map(|batch| batch.first_seq());
            if kept == Some(START) {
                work(&mut two);
            }
            two
        });
        // Nobody is joined before: what is kept is not the first event.
        assert_eq!(rx.batch(1).unwrap().first_seq(), START);
        drop((working.join().unwrap(), keeping.join().unwrap()));
    });
}

#[test]
fn loom_twin_lagging_bound_unrung() {
    caught(
        "pool::loom_a_bound_that_lagged_is_rung",
        "lagging-bound-unnotified",
        Caught::Deadlock(&["s1"]),
    );
}

/// Two pools, one behind the other, and in each a worker that leaves its chunk: a colleague of the
/// same pool finishes it. The chunk of the first pool is left first, and its events are not handled
/// yet.
#[test]
fn loom_each_pool_adopts_its_own_chunks() {
    explore_unfenced(90, Some(2), || {
        let ring = ring(settings(4), &[(Write, 2, &[]), (Write, 2, &[0])]);
        let (mut tx, mut first, mut second) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 1, 0));
        let (mut heir, mut other_heir) = (worker(&ring, 0, 1), worker(&ring, 1, 1));
        publish(&mut tx, 4);
        assert_eq!(work(&mut first), 2);
        // Each holds a chunk of two now: the first pool the later one.
        drop((first.try_batch(2).unwrap(), second.try_batch(2).unwrap()));
        let leaving = thread::spawn(move || {
            drop(first);
            drop(second);
        });
        let adopting = thread::spawn(move || (work(&mut heir), heir));
        let handled = |event: u64, first: u64| first.wrapping_sub(START) + 100 == event;
        let mut take = || {
            nothing(other_heir.try_batch(4)).map_or(0, |mut chunk| {
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
        assert_eq!(adopted + work_off(&mut heir), 2, "events were lost, or came twice");
        done += take() + take();
        assert_eq!(done, 4, "events were lost, or came twice");
        (tx, heir, other_heir)
    });
}

#[test]
fn loom_twin_any_orphan() {
    caught(
        "pool::loom_each_pool_adopts_its_own_chunks",
        "any-orphan",
        Caught::Saying("a chunk of the other pool"),
    );
}
