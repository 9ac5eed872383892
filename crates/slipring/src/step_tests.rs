//! Tests of single protocol steps. In a test of the whole library, a missing step may stay
//! unnoticed, because other steps make up for it. Each test of this file covers one step, and fails
//! if that step alone is left out.

use std::sync::Mutex;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::base::sync::Relaxed;
use crate::consumer::position::{Availability, ConsumerPosition};

use crate::ring::words::{ClaimWord, IDLE, PoolWord, ahead};
use crate::{
    Graph, OnFault, errors::ClaimError, faults::Marks, markers::Interleaved, stages::ReadHandler,
    tasks::Waitable,
};

// Frontiers and limits.

/// A frontier is never below the caller's lower bound, even if a line holds an earlier position.
/// The line of a worker that lost the race for a chunk holds that chunk's start until its next try.
/// A joiner may store a position on its line, and withdraw it later.
#[test]
fn a_frontier_never_falls_below_its_lower_bound() {
    let graph = Graph::new(8, || 0u64);
    let pool = graph.pool_reader("pool", 2);
    let shards = graph.shard_reader("shards", 2, |v| *v).after(&pool);
    let tap = graph.tap("tap", 1).after(&shards);
    let end = graph.reader("end").after(&tap);
    let ring = graph.build().unwrap();
    let (mut tx, mut pool, mut shards, tap, mut end) = (
        ring.producer(),
        ring.pool_readers(pool),
        ring.shard_readers(shards),
        ring.tap(tap),
        ring.reader(end),
    );
    (0..4).for_each(|i| _ = tx.publish(|v| *v = i).unwrap());
    while pool[0].poll(8, |_, _| ()).unwrap() != 0 {}
    shards.iter_mut().for_each(|shard| _ = shard.poll(8, |_, _| ()).unwrap());
    shards.iter_mut().for_each(|shard| _ = shard.poll(8, |_, _| ()).unwrap());
    assert_eq!(end.poll(8, |_, _| ()).unwrap(), 4);
    let core = end.state().core.clone();
    let control = &core.control;
    let stage = |name: &str| {
        control.plan.stages.iter().position(|stage| stage.name.as_str() == name).unwrap()
    };
    let (pool_stage, shard_stage, tap_stage, end_stage) =
        (stage("pool"), stage("shards"), stage("tap"), stage("end"));
    let line = |stage: usize| control.plan.stages[stage].line;

    // A pool's frontier stays at the caller's lower bound, even while a worker's line holds an
    // earlier position.
    let bound = control.positions.line(line(pool_stage) + 2);
    assert_eq!(bound.load(Relaxed), IDLE);
    bound.store(0, Relaxed);
    assert_eq!(control.positions.frontier(&control.plan, pool_stage, 0), 0);
    assert_eq!(
        control.positions.frontier(&control.plan, pool_stage, 4),
        4,
        "a pool's frontier goes back"
    );
    assert_eq!(control.positions.least_frontier(&control.plan, &[pool_stage], 4).0, 4);
    bound.store(IDLE, Relaxed);
    // The frontiers of shards and of a reader stay at the caller's lower bound, even if that bound
    // is beyond the released positions.
    assert_eq!(control.positions.frontier(&control.plan, shard_stage, 4), 4);
    assert_eq!(
        control.positions.frontier(&control.plan, shard_stage, 6),
        6,
        "the frontier of shards goes back"
    );
    assert_eq!(
        control.positions.least_frontier(&control.plan, &[end_stage], 6).0,
        6,
        "the least frontier goes back"
    );
    assert_eq!(core.gate(6).0, 6, "a gate goes back");
    // A tap's frontier stays at the caller's lower bound while a joiner's line holds an earlier
    // position.
    let member = tap.subscribe(crate::handles::StartAt::Now).unwrap();
    let pin = control.positions.line(line(tap_stage) + 1);
    pin.store(2 << 1, Relaxed);
    assert_eq!(
        control.positions.frontier(&control.plan, tap_stage, 4),
        4,
        "a tap's frontier goes back"
    );
    assert_eq!(core.pass(end_stage, 4), 4, "a passer goes back");
    (4..6).for_each(|i| _ = tx.publish(|v| *v = i).unwrap());
    while pool[0].poll(8, |_, _| ()).unwrap() != 0 {}
    (0..2).for_each(|_| shards.iter_mut().for_each(|shard| _ = shard.poll(8, |_, _| ()).unwrap()));
    assert_eq!(core.pass(end_stage, 4), 4, "a passer goes back");
    let guard = &control.plan.stages[end_stage].guard;
    assert_eq!(
        control.positions.secure(&control.plan, guard, 6, 4),
        4,
        "a passer goes back over a pin"
    );
    assert_eq!(core.lag(end_stage, 1), 0, "a stage ahead of a stale position has no lag");
    pin.store(4 << 1, Relaxed);
    drop(member);
}

/// The first pool's frontier may fall below positions that the second pool has taken. Until it
/// rises again, the workers of the second pool take no chunk.
#[test]
fn a_worker_whose_limit_is_behind_its_pool_takes_no_chunk() {
    let graph = Graph::new(8, || 0u64);
    let first = graph.pool_updater("first", 2);
    let second = graph.pool_updater("second", 2).after(&first);
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut second) =
        (ring.producer(), ring.pool_updaters(first), ring.pool_updaters(second));
    (0..2).for_each(|i| _ = tx.publish(|v| *v = i).unwrap());
    while first[0].poll(8, |_, _| ()).unwrap() != 0 {}
    while second[0].poll(8, |_, _| ()).unwrap() != 0 {}
    let state = first[0].state();
    let core = state.core.clone();
    core.control.positions.line(state.plan().line + 2).store(0, Relaxed);
    assert!(second[1].try_batch(1).is_err(), "a chunk that the stage before has not released");
    core.control.positions.line(state.plan().line + 2).store(IDLE, Relaxed);
}

/// The position that gates a producer may fall for a moment, for example until a refused joiner
/// withdraws its position. That does not move the producer's limit behind its earlier claims.
#[test]
fn a_producers_limit_never_falls_behind_its_claims() {
    for pool in [false, true] {
        let graph = Graph::new(8, || 0u64);
        let stage = if pool { None } else { Some(graph.reader("stage")) };
        let workers = if pool { Some(graph.pool_reader("workers", 2)) } else { None };
        let tap = graph.tap("tap", 1);
        let ring = graph.build().unwrap();
        let (mut tx, tap) = (ring.producer().into_raw(), ring.tap(tap));
        let _stage = stage.map(|stage| ring.reader(stage));
        let workers = workers.map(|workers| ring.pool_readers(workers));
        let member = tap.subscribe(crate::handles::StartAt::Now).unwrap();
        let core = member.state().core.clone();
        let bound = match &workers {
            Some(workers) => workers[0].state().plan().line + 2,
            None => member.state().plan().line + 1,
        };
        let before = core.control.positions.line(bound).load(Relaxed);
        tx.next_n(8).unwrap();
        core.control.positions.line(bound).store(0u64.wrapping_sub(4) << 1, Relaxed);
        assert_eq!(tx.available(), 0);
        core.control.positions.line(bound).store(before, Relaxed);
        tx.done(7).unwrap();
        assert!(tx.next().is_err(), "all slots are lent to the stages");
    }
}

/// While a producer handle is unused, other producers may publish any number of events. Its
/// position and limit may lie any distance behind their claims.
#[test]
fn an_idle_producer_claims_after_any_distance() {
    const QUARTER: u64 = 1 << 62;
    for far in [
        QUARTER - 3,
        QUARTER + 3,
        2 * QUARTER - 9,
        2 * QUARTER + 9,
        3 * QUARTER - 3,
        3 * QUARTER + 3,
        0u64.wrapping_sub(9),
    ] {
        for gate in ["a reader", "a pool", "a tap"] {
            let graph = Graph::new(4, || 0u64).shared();
            // The tap comes after the reader, but is declared before the reader.
            let tap = (gate == "a tap").then(|| graph.tap("tap", 1));
            let reader = ["a reader", "a tap"].contains(&gate).then(|| graph.reader("reader"));
            let _tap = tap.zip(reader.as_ref()).map(|(tap, reader)| tap.after(reader));
            let _pool = (gate == "a pool").then(|| graph.pool_reader("pool", 1));
            let ring = graph.build().unwrap();
            let mut idle = ring.producer();
            let core = idle.core().clone();
            // The store to the claim word stands for the claims of other producers, which end at
            // the position `far`. The stages have released all events up to one lap before the
            // position `far`.
            core.control.positions.claim().store(ClaimWord::open(far).0, Relaxed);
            let line = |stage: usize| core.control.plan.stages[stage].line;
            let release_to = |seq: u64| match gate {
                "a reader" => core.control.positions.line(line(0)).store(seq, Relaxed),
                "a tap" => core.control.positions.line(line(1)).store(seq, Relaxed),
                "a pool" => {
                    core.control.positions.line(line(0)).store(PoolWord::new(seq, 0).0, Relaxed);
                    core.control
                        .positions
                        .line(core.control.plan.stages[0].landmark_line())
                        .store(seq - (seq & u64::from(u32::MAX)), Relaxed);
                }
                _ => unreachable!(),
            };
            release_to(far - 4);
            assert!(idle.try_claim().is_err(), "{gate}, at {far:#x}: a slot that is not released");
            assert_eq!(idle.clone().next_seq(), far, "a clone");
            assert!(!is_ready(&mut ring.producer()), "{gate}, at {far:#x}: no room");
            release_to(far - 1);
            assert!(is_ready(&mut ring.producer()), "{gate}, at {far:#x}: room for three");
            assert_eq!(ring.producer().remaining(), 3);
            assert_eq!(idle.try_claim().expect("room for three").publish(), far);
        }
    }
}

/// A producer handle learns from a failed swap how far other producers have claimed.
#[test]
fn an_outdated_producer_claims_in_one_call() {
    let graph = Graph::new(4, || 0u64).shared();
    let reader = graph.reader("reader");
    let ring = graph.build().unwrap();
    let (mut one, mut two, _rx) = (ring.producer(), ring.producer(), ring.reader(reader));
    assert_eq!([0; 2].map(|_| one.try_publish(|_| ()).unwrap()), [0, 1]);
    assert_eq!(two.try_publish(|_| ()).unwrap(), 2);
    assert_eq!(one.try_publish(|_| ()).unwrap(), 3);
    assert!(matches!(two.try_publish(|_| ()), Err(ClaimError::Gated { lag: 4, .. })));
}

/// One call publishes up to a whole ring of events, so the call may wrap the count of published
/// events.
#[test]
fn a_producers_count_of_published_events_may_wrap() {
    let graph = Graph::new(4, || 0u64).contiguous();
    let reader = graph.reader("reader");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(reader));
    tx.count_coalesced(u64::MAX);
    for _ in 0..2 {
        tx.claim_n(4).unwrap().publish();
        rx.try_batch(4).unwrap().release();
    }
}

/// The count of handled events may wrap in the middle of a call.
#[test]
fn the_count_of_handled_events_may_wrap_within_a_call() {
    let (mut tx, mut rx) = crate::unicast(8, || 0u64).unwrap();
    tx.publish_all(0..6, |slot, i| *slot = i).unwrap();
    tx.close();
    rx.position().count_passed(2);
    assert_eq!(rx.for_each(|_, _| ()).unwrap(), 6);
}

// The tests that follow check a stage's position while the stage rewinds, releases and polls.

/// Gathers all available events without a release; returns their positions.
fn walk_all(position: &mut impl Availability<u64, Interleaved>) -> Vec<u64> {
    let mut lent = Vec::new();
    loop {
        let len = position.gather(8, 8);
        if len == 0 {
            return lent;
        }
        lent.extend((0..len).map(|offset| position.next().wrapping_add(offset)));
        position.advance(len, len);
    }
}

/// Gathers all unreleased events, rewinds, and gathers them again. Asserts that every round gathers
/// the same events, and no slot of a tombstone.
fn assert_rewinds(position: &mut impl Availability<u64, Interleaved>) {
    let counted = |position: &dyn Fn() -> (u64, u64), expected| {
        assert_eq!(position(), expected, "events and tombstones")
    };
    position.state_mut().bookkeeping = true;
    for _ in 0..2 {
        assert_eq!(walk_all(position), [0, 1, 4, 6]);
        counted(&|| (position.handled(), position.state().counts.tombstones), (4, 3));
        position.rewind();
        assert_eq!(position.next(), 0);
        counted(&|| (position.handled(), position.state().counts.tombstones), (0, 0));
    }
    // Events 0 and 1 form one run. The stage now releases event 0, so that each later rewind
    // returns to event 1, in the middle of the run.
    assert_eq!(position.gather(1, 1), 1);
    position.advance(1, 1);
    position.release();
    for _ in 0..2 {
        assert_eq!(walk_all(position), [1, 4, 6]);
        counted(&|| (position.handled(), position.state().counts.tombstones), (4, 3));
        position.rewind();
        counted(&|| (position.handled(), position.state().counts.tombstones), (1, 0));
    }
    assert_eq!(walk_all(position), [1, 4, 6]);
    position.release();
}

#[test]
fn a_retry_passes_over_tombstones_again() {
    let graph = Graph::new(16, || 0u64).shared();
    let first = graph.reader("first");
    let behind = graph.reader("behind").after(&first);
    let shards = graph.shard_reader("shards", 1, |v| *v).after(&behind);
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut behind, mut shards) =
        (ring.producer(), ring.reader(first), ring.reader(behind), ring.shard_readers(shards));
    tx.claim_n(2).unwrap().publish();
    drop(tx.claim_n(2).unwrap());
    tx.publish(|_| ()).unwrap();
    drop(tx.claim().unwrap());
    tx.publish(|_| ()).unwrap();
    assert_rewinds(first.position());
    assert_rewinds(behind.position());
    assert_rewinds(shards[0].position());
}

/// A shard stores how many consecutive events from its next position on are its own. A rewind moves
/// the shard's next position back, and must discard the stored number of own events.
#[test]
fn a_shard_that_retries_gets_only_its_own_events() {
    let graph = Graph::new(32, || 0u64);
    let shards = graph.shard_reader("shards", 2, |v| *v);
    let ring = graph.build().unwrap();
    let (mut tx, mut shards) = (ring.producer(), ring.shard_readers(shards));
    // The events are published as one run, so that a poll finds several events of one shard in a
    // row.
    let mut slots = tx.claim_n(32).unwrap();
    slots.iter_mut().zip(0..).for_each(|(v, i)| *v = i);
    slots.publish();
    for shard in &mut shards {
        let position = shard.position();
        position.state_mut().bookkeeping = true;
        let mut own = Vec::new();
        while position.gather(1, 1) != 0 {
            own.push(position.next());
            position.advance(1, 1);
        }
        assert!(!own.is_empty());
        // In each round, the shard rewinds to its first event and gathers one event more than in
        // the round before.
        for handled in 1..own.len() {
            position.rewind();
            for &seq in &own[..handled] {
                assert_ne!(position.gather(1, 1), 0);
                assert_eq!(position.next(), seq, "an event of another shard");
                position.advance(1, 1);
            }
        }
    }
}

#[test]
fn a_release_covers_only_lent_events() {
    for shared in [false, true] {
        macro_rules! check {
            ($graph:expr) => {{
                let graph = $graph;
                let first = graph.reader("first");
                let behind = graph.updater("behind").after(&first);
                let ring = graph.build().unwrap();
                let (mut tx, mut first, mut behind) =
                    (ring.producer(), ring.reader(first), ring.updater(behind));
                (0..4).for_each(|i| _ = tx.publish(|v| *v = i).unwrap());
                first.try_batch(2).unwrap().hold();
                first.release_until(3);
                assert_eq!(
                    behind.try_batch(4).unwrap().len(),
                    2,
                    "an event that the first stage has not seen"
                );
                first.release_until(1);
                let state = first.state();
                assert_eq!(
                    state.control().positions.frontier(&state.control().plan, state.stage, 0),
                    2,
                    "a release moves back"
                );
                let rest = first.try_batch(4).unwrap();
                assert_eq!((rest.first_seq(), rest.len()), (2, 2));
            }};
        }
        if shared {
            check!(Graph::new(4, || 0u64).shared())
        } else {
            check!(Graph::new(4, || 0u64))
        }
    }
}

/// A reader finds two adjacent tombstones in two polls. Both are released together with the event
/// before them.
#[test]
fn releasing_a_held_event_releases_the_tombstones_behind_it() {
    let graph = Graph::new(8, || 0u64).shared();
    let reader = graph.reader("reader");
    let ring = graph.build().unwrap();
    let (mut tx, mut reader) = (ring.producer(), ring.reader(reader));
    tx.publish(|_| ()).unwrap();
    reader.try_batch(1).unwrap().hold();
    for _ in 0..2 {
        drop(tx.claim().unwrap());
        assert!(reader.try_batch(1).is_err());
    }
    reader.release_until(1);
    assert_eq!(tx.remaining(), 8);
}

/// Returns whether a task would poll again at once instead of sleeping.
fn is_ready(handle: &mut impl Waitable) -> bool {
    let ready = handle.arm(Waker::noop());
    handle.disarm();
    ready
}

/// Takes three events one by one, and asserts that the handle is ready until the last is taken.
macro_rules! ready_until_all_is_taken {
    ($handle:expr, $name:expr) => {{
        let handle = $handle;
        for left in (0..3).rev() {
            assert!(is_ready(handle), "{}: not ready with {} events", $name, left + 1);
            handle.try_batch(1).unwrap().release();
        }
        assert!(!is_ready(handle), "{}: ready without events", $name);
    }};
}

#[test]
fn a_handle_with_available_events_is_ready() {
    macro_rules! check {
        ($graph:expr, $runs:expr, $name:expr) => {{
            let graph = $graph;
            let first = graph.reader("first");
            let behind = graph.reader("behind").after(&first);
            let pool = graph.pool_reader("pool", 1).after(&behind);
            let shards = graph.shard_reader("shards", 1, |v| *v).after(&pool);
            let own_pool = graph.pool_reader("own pool", 1);
            let ring = graph.build().unwrap();
            let (mut tx, mut first, mut behind) =
                (ring.producer(), ring.reader(first), ring.reader(behind));
            let (mut pool, mut own_pool, mut shards) =
                (ring.pool_readers(pool), ring.pool_readers(own_pool), ring.shard_readers(shards));
            match $runs {
                1 => _ = tx.claim_n(3).unwrap().publish(),
                _ => (0..3).for_each(|_| _ = tx.publish(|_| ()).unwrap()),
            }
            ready_until_all_is_taken!(&mut own_pool[0], format!("{}, a pool", $name));
            ready_until_all_is_taken!(&mut first, format!("{}, the first stage", $name));
            ready_until_all_is_taken!(&mut behind, format!("{}, a stage behind", $name));
            ready_until_all_is_taken!(&mut pool[0], format!("{}, a pool behind", $name));
            ready_until_all_is_taken!(&mut shards[0], format!("{}, a shard", $name));
        }};
    }
    for runs in [1, 3] {
        check!(Graph::new(8, || 0u64), runs, format!("one producer, {runs} runs"));
        check!(Graph::new(8, || 0u64).shared(), runs, format!("many producers, {runs} runs"));
        check!(Graph::new(8, || 0u64).contiguous(), runs, format!("contiguous, {runs} runs"));
        check!(
            Graph::new(8, || 0u64).contiguous().shared(),
            runs,
            format!("contiguous, many producers, {runs} runs")
        );
    }
}

/// A stage must pass over a tombstone at once: a stage asleep before a tombstone would hold back
/// the producers.
#[test]
fn a_handle_before_a_tombstone_is_ready() {
    let graph = Graph::new(4, || 0u64).shared();
    let (reader, pool, shards) = (
        graph.reader("reader"),
        graph.pool_reader("pool", 1),
        graph.shard_reader("shards", 2, |v| *v),
    );
    let ring = graph.build().unwrap();
    let (mut tx, mut reader) = (ring.producer(), ring.reader(reader));
    let (mut pool, mut shards) = (ring.pool_readers(pool), ring.shard_readers(shards));
    drop(tx.claim_n(3).unwrap());
    macro_rules! passes {
        ($handle:expr) => {{
            let handle = $handle;
            assert!(is_ready(handle));
            assert_eq!(handle.poll(4, |_, _| ()).unwrap(), 0);
            assert!(!is_ready(handle));
        }};
    }
    passes!(&mut reader);
    passes!(&mut pool[0]);
    passes!(&mut shards[0]);
    passes!(&mut shards[1]);
    assert_eq!(
        [0, 1].map(|shard| shards[shard].state().counts.tombstones),
        [3, 0],
        "all shards pass the tombstones, and one counts them"
    );
    assert_eq!(tx.remaining(), 4);
}

// Pools.

#[test]
fn a_worker_adopts_no_chunk_of_another_pool() {
    let graph = Graph::new(8, || 0u64);
    let first = graph.pool_updater("first", 2);
    let second = graph.pool_updater("second", 2).after(&first);
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut second) =
        (ring.producer(), ring.pool_updaters(first), ring.pool_updaters(second));
    (0..4).for_each(|i| _ = tx.publish(|v| *v = i).unwrap());
    assert_eq!(first[0].poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(first[0].try_batch(1).unwrap().first_seq(), 1);
    assert_eq!(second[0].try_batch(1).unwrap().first_seq(), 0);
    // The worker of the first pool leaves its chunk, and then the worker of the second pool leaves
    // its chunk.
    drop((first.remove(0), second.remove(0)));
    assert!(is_ready(&mut second[0]));
    let adopted = second[0].try_batch(1).unwrap();
    assert_eq!(adopted.first_seq(), 0, "the chunk of another pool");
    adopted.release();
    let adopted = first[0].try_batch(1).unwrap();
    assert_eq!(adopted.first_seq(), 1);
    adopted.release();
}

/// A pool's landmark is a copy of the position in its claim word, at most about 2^32 events old. A
/// joining worker takes the high bits of the pool's position from the landmark. A worker whose
/// chunk or tombstone crosses a multiple of 2^32 stores its end as the landmark.
#[test]
fn a_worker_that_joins_past_2_pow_32_events_starts_at_the_pools_position() {
    for tombstone in [false, true] {
        let start = (1 << 32) - 1;
        let graph = Graph::new(8, || 0u64).first_seq(start).shared();
        let pool = graph.pool_reader("pool", 1).room(2);
        let ring = graph.build().unwrap();
        let (mut tx, mut pool) = (ring.producer(), ring.pool_readers(pool));
        if tombstone {
            drop(tx.claim().unwrap());
        } else {
            tx.publish(|_| ()).unwrap();
        }
        tx.publish(|_| ()).unwrap();
        while pool[0].poll(8, |_, _| ()).unwrap() != 0 {}
        let joined = pool[0].pool().join().unwrap();
        assert!(
            (1..=2).contains(&ahead(joined.next_seq(), start)),
            "the landmark stays behind: {:#x}",
            joined.next_seq()
        );
    }
}

// Policies.

#[test]
fn only_skipped_events_are_marked() {
    for start in [0, 1, 7, u64::MAX - 8, u64::MAX - 3, u64::MAX] {
        for capacity in [1, 2, 8] {
            let marks = Marks::new();
            assert_eq!(marks.allocate(start, capacity), Some(true));
            let lap = |lap: usize| {
                (0..capacity)
                    .map(move |offset| start.wrapping_add((lap * capacity + offset) as u64))
            };
            let skipped = |laps: std::ops::Range<usize>| {
                laps.flat_map(lap).filter(|&seq| marks.skipped(seq)).collect::<Vec<_>>()
            };
            assert_eq!(skipped(0..3), [], "blank, from {start} on");
            marks.mark(start, capacity as u64);
            assert_eq!(skipped(0..3), lap(0).collect::<Vec<_>>());
            marks.mark(start.wrapping_add(capacity as u64), 1);
            assert_eq!(skipped(1..3), [start.wrapping_add(capacity as u64)]);
        }
    }
}

/// A handler that panics at event 1, and whose next `batch_end` fails if `fails` is set.
struct FailingEnd<'a> {
    log: &'a Mutex<Vec<String>>,
    fails: bool,
}

impl ReadHandler<u64> for FailingEnd<'_> {
    fn event(&mut self, event: &u64, _: crate::At) -> Result<(), crate::faults::Fault> {
        self.log.lock().unwrap().push(event.to_string());
        assert_ne!(*event, 1, "an event that panics");
        Ok(())
    }
    fn batch_end(&mut self, next_seq: u64) -> Result<(), crate::faults::Fault> {
        self.log.lock().unwrap().push(format!("end {next_seq}"));
        if std::mem::take(&mut self.fails) {
            Err(std::io::Error::other("once").into())
        } else {
            Ok(())
        }
    }
}

/// An event is skipped, and the next `batch_end` fails: only `batch_end` is retried.
#[test]
fn a_retry_does_not_go_back_over_a_skipped_event() {
    let log = Mutex::new(Vec::new());
    let done = crate::ring(8, || 0u64)
        .deadline(Duration::from_secs(60))
        .read_with("life", FailingEnd { log: &log, fails: true })
        .on_panic(OnFault::skip())
        .on_error(OnFault::retry(3))
        .run_inline(|p| {
            (0..4).try_for_each(|i| p.publish(|slot| *slot = i).map(drop)).map_err(Into::into)
        })
        .unwrap();
    assert_eq!(log.into_inner().unwrap(), ["0", "1", "end 2", "end 2", "2", "3", "end 4"]);
    let stage = done.report.stage("life").unwrap();
    assert_eq!((stage.skipped, stage.retries, stage.events), (1, 1, 4));
}

// Selecting.

/// `Selector::wait` returns ready handles in turn, also with a deadline that has passed.
#[test]
fn a_selector_returns_ready_handles_in_turn() {
    let (mut one, mut left) = crate::unicast(8, || 0u64).unwrap();
    let (mut two, mut right) = crate::unicast(8, || 0u64).unwrap();
    let mut selector = crate::tasks::Selector::new();
    (0..4).for_each(|_| _ = (one.publish(|_| ()).unwrap(), two.publish(|_| ()).unwrap()));
    let turns: Vec<_> =
        (0..4).map(|_| selector.wait(&mut [&mut left, &mut right], Some(Instant::now()))).collect();
    assert_eq!(turns, [Some(0), Some(1), Some(0), Some(1)]);
}
