//! What the LMAX Disruptor's users rely on.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    At, BatchError, BuildError, Cause, Chain, ClaimError, ErrorKind, Fault, Graph, JoinError,
    PRODUCER, PoolReader, PoolWriter, Producer, ReadHandler, Reader, ReaderKey, Wait, WaitAction,
    WaitContext, WaitError, WaitStrategy, Writer, WriterKey,
};

use crate::common::{LIMIT, Oops, PURPOSE, quiet};
use crate::{chain, graph, pair, shared, until};

/// A moment that comes soon.
fn soon() -> Instant {
    Instant::now() + Duration::from_millis(5)
}

fn refused<T: Debug>(build: Result<T, slipring::Error>) -> BuildError {
    match build.unwrap_err().kind() {
        ErrorKind::Build(error) => error.clone(),
        other => panic!("{other:?}"),
    }
}

// Claiming and publishing.

#[test]
fn claims_count_up_from_zero() {
    let _watched = crate::common::watched();
    let (mut tx, _rx) = pair(4);
    let slot = tx.claim().unwrap();
    assert_eq!(slot.seq(), 0);
    assert_eq!(slot.publish(), 0);
    assert_eq!(tx.publish(|v| *v = 1).unwrap(), 1);
    assert_eq!(tx.try_claim().unwrap().publish(), 2);
    assert_eq!(tx.try_publish(|v| *v = 3).unwrap(), 3);
}

#[test]
fn a_range_is_published_as_a_whole() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(8);
    let mut slots = tx.claim_n(6).unwrap();
    assert_eq!((slots.first_seq(), slots.len()), (0, 6));
    slots.iter_mut().zip(10..).for_each(|(slot, i)| *slot = i);
    assert!(matches!(rx.try_batch(8), Err(BatchError::Unavailable)));
    assert_eq!(slots.publish(), 0);
    let batch = rx.try_batch(8).unwrap();
    assert!(batch.iter().copied().eq(10..16));
    batch.release();
    assert_eq!(tx.claim().unwrap().seq(), 6);
}

#[test]
fn odd_claims_are_refused() {
    let _watched = crate::common::watched();
    let (mut single, _rx) = pair(4);
    let graph = shared(4);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut many, _reader) = (ring.producer(), ring.reader(key));
    for asked in [0, 5, usize::MAX] {
        let told = |error: Option<ClaimError>| matches!(error, Some(ClaimError::Length { asked: a, capacity: 4 }) if a == asked);
        assert!(told(single.claim_n(asked).err()) && told(single.try_claim_n(asked).err()));
        assert!(told(many.claim_n(asked).err()) && told(many.try_claim_n(asked).err()));
        assert!(told(single.publish_batches(asked, 0..9, |_, _| ()).err()));
    }
    // Nothing was claimed by it.
    assert_eq!((single.claim_n(4).unwrap().publish(), many.claim_n(4).unwrap().publish()), (0, 0));
}

#[test]
fn an_open_claim_holds_back_the_rest() {
    let _watched = crate::common::watched();
    let graph = shared(8);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut a, mut b, mut rx) = (ring.producer(), ring.producer(), ring.reader(key));
    let mut first = a.claim().unwrap();
    assert_eq!(b.publish(|v| *v = 1).unwrap(), 1);
    assert!(matches!(rx.try_batch(8), Err(BatchError::Unavailable)));
    *first = 0;
    first.publish();
    assert!(rx.try_batch(8).unwrap().iter().copied().eq(0..2));
}

#[test]
fn a_claim_may_be_given_up() {
    let _watched = crate::common::watched();
    // One producer takes the position back.
    let (mut tx, mut rx) = pair(4);
    drop(tx.claim().unwrap());
    assert_eq!(tx.publish(|v| *v = 7).unwrap(), 0);
    assert_eq!(rx.poll(9, |v, at| assert_eq!((*v, at.seq), (7, 0))).unwrap(), 1);
    // Of many producers, the position is passed over.
    let graph = shared(4);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    drop(tx.claim_n(2).unwrap());
    assert_eq!(tx.publish(|v| *v = 7).unwrap(), 2);
    assert_eq!(rx.poll(9, |v, at| assert_eq!((*v, at.seq), (7, 2))).unwrap(), 1);
}

#[test]
fn a_translator_is_a_closure() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    let (price, amount) = (3, 5);
    tx.publish(|slot| *slot = price * amount).unwrap();
    assert_eq!(tx.publish_all([20, 30], |slot, item| *slot = item).unwrap(), 2);
    // One that wants the position claims.
    let mut slot = tx.claim().unwrap();
    *slot = slot.seq() + 100;
    slot.publish();
    assert!(rx.try_batch(9).unwrap().iter().copied().eq([15, 20, 30, 103]));
}

#[test]
fn a_failed_translation_is_not_published() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    let fill = |tx: &mut Producer<u64>, text: &str| -> Result<u64, Fault> {
        let mut slot = tx.claim()?;
        *slot = text.parse()?;
        Ok(slot.publish())
    };
    assert!(fill(&mut tx, "x").is_err());
    assert_eq!(fill(&mut tx, "8").unwrap(), 0);
    assert_eq!(rx.poll(9, |v, _| assert_eq!(*v, 8)).unwrap(), 1);
    // A panic ends the graph.
    quiet();
    assert!(
        catch_unwind(AssertUnwindSafe(|| tx.publish(|_| panic!("filling {PURPOSE}")))).is_err()
    );
    let closed = rx.for_each(|v, _| panic!("saw {v}")).unwrap_err();
    let failure = closed.failure().unwrap();
    assert_eq!((&**failure.stage(), failure.seq()), (PRODUCER, Some(1)));
}

// The ring.

#[test]
fn events_are_made_once_and_reused() {
    let _watched = crate::common::watched();
    let made = Arc::new(AtomicU64::new(0));
    let count = made.clone();
    let graph = Graph::new(4, move || vec![count.fetch_add(1, SeqCst)]).deadline(LIMIT);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    assert_eq!(made.load(SeqCst), 4);
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    for seq in 0..12 {
        tx.publish(|slot| slot.push(seq + 100)).unwrap();
        rx.poll(9, |event, at| {
            assert!(event[0] == at.seq % 4 && event.len() as u64 == 2 + at.seq / 4)
        })
        .unwrap();
    }
    assert_eq!((made.load(SeqCst), tx.capacity()), (4, 4));
}

#[test]
fn the_capacity_is_a_power_of_two() {
    let _watched = crate::common::watched();
    for asked in [0, 3, 1000] {
        let graph = graph(asked);
        let _key = graph.reader("r");
        assert_eq!(refused(graph.build()), BuildError::Capacity { asked });
        assert!(chain(asked).read("r", |_, _| ()).feed(0..1, |_, _| ()).unwrap_err().is_build());
    }
    assert_eq!(pair(1).0.capacity(), 1);
}

#[test]
fn slots_come_round() {
    let _watched = crate::common::watched();
    let mut next = 0;
    let check = |v: &u64, at: At| {
        assert_eq!((*v, at.seq), (next, next));
        next += 1;
    };
    chain(32).read("r", check).feed(0..1032, |slot, i| *slot = i).unwrap();
    assert_eq!(next, 1032);
}

#[test]
fn a_ring_begins_anywhere() {
    let _watched = crate::common::watched();
    for start in [14, u64::MAX - 2] {
        let graph = graph(4).first_seq(start);
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        for i in 0..10 {
            let seq = start.wrapping_add(i);
            assert_eq!(rx.next_seq(), seq);
            assert_eq!(tx.publish(|v| *v = i).unwrap(), seq);
            assert_eq!(rx.poll(9, |v, at| assert_eq!((*v, at.seq), (i, seq))).unwrap(), 1);
        }
    }
}

#[test]
fn without_stages_a_ring_is_never_full() {
    let _watched = crate::common::watched();
    let ring = graph(4).build().unwrap();
    let mut tx = ring.producer();
    assert!((0..100).all(|i| tx.try_publish(|v| *v = i).unwrap() == i));
}

// Full rings.

#[test]
fn a_full_ring_refuses() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    assert!((0..4).all(|i| tx.try_publish(|v| *v = i).is_ok()));
    for _ in 0..2 {
        assert!(
            matches!(tx.try_publish(|v| *v = 4), Err(ClaimError::Gated { stage, lag: 4 }) if &*stage == "r")
        );
        assert!(matches!(tx.try_claim(), Err(ClaimError::Gated { .. })));
    }
    assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(tx.try_publish(|v| *v = 4).unwrap(), 4);
    assert!(rx.try_batch(9).unwrap().iter().copied().eq(1..5));
    // With many producers it is full for everybody.
    let graph = shared(2);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut producers, mut rx) = ([ring.producer(), ring.producer()], ring.reader(key));
    assert!(producers.iter_mut().all(|tx| tx.try_publish(|_| ()).is_ok()));
    for tx in &mut producers {
        assert!(
            matches!(tx.try_claim(), Err(ClaimError::Gated { stage, lag: 2 }) if &*stage == "r")
        );
    }
    assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(producers[1].try_publish(|_| ()).unwrap(), 2);
}

#[test]
fn a_full_ring_holds_the_producer() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    let published = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..5 {
                tx.publish(|v| *v = i).unwrap();
                published.fetch_add(1, SeqCst);
            }
        });
        until("the ring is full", || published.load(SeqCst) == 4);
        assert!(rx.batch(9).unwrap().iter().copied().eq(0..4)); // not released
        assert_eq!(published.load(SeqCst), 4);
        rx.batch(1).unwrap().release();
        until("the fifth is published", || published.load(SeqCst) == 5);
    });
    assert!(rx.try_batch(9).unwrap().iter().copied().eq(1..5));
}

#[test]
fn the_slowest_end_gates() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let first = graph.reader("first");
    let (quick, slow) = (graph.reader("quick").after(&first), graph.reader("slow").after(&first));
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut quick, mut slow) =
        (ring.producer(), ring.reader(first), ring.reader(quick), ring.reader(slow));
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    assert_eq!((first.poll(9, |_, _| ()).unwrap(), quick.poll(9, |_, _| ()).unwrap()), (4, 4));
    assert!(
        matches!(tx.try_claim(), Err(ClaimError::Gated { stage, lag: 4 }) if &*stage == "slow")
    );
    assert_eq!(slow.poll(3, |_, _| ()).unwrap(), 3);
    assert!(
        matches!(tx.try_claim_n(4), Err(ClaimError::Gated { stage, lag: 1 }) if &*stage == "slow")
    );
    tx.try_claim_n(3).unwrap().publish();
}

// Putting it together.

#[test]
fn events_before_the_start_are_seen() {
    let _watched = crate::common::watched();
    let graph = graph(8);
    let (a, b) = (graph.writer("a"), graph.pool_reader("b", 2));
    let b = b.after(&a);
    let ring = graph.build().unwrap();
    let mut tx = ring.producer();
    tx.publish_all(0..5, |slot, i| *slot = i).unwrap();
    tx.close();
    assert_eq!(ring.writer(a).for_each(|v, _| *v += 10).unwrap(), 5);
    let mut seen = Vec::new();
    let mut workers = ring.pool_readers(b);
    assert_eq!(workers[0].for_each(|v, _| seen.push(*v)).unwrap(), 5);
    assert!(seen.into_iter().eq(10..15));
}

#[test]
fn nothing_is_started_twice() {
    let _watched = crate::common::watched();
    // Does not compile if one of these can be had twice.
    macro_rules! not_clone {
        ($($kind:ty)*) => { $({
            trait Unless<A> {
                fn check() {}
            }
            struct Cloned;
            impl<T> Unless<()> for T {}
            impl<T: Clone> Unless<Cloned> for T {}
            <$kind as Unless<_>>::check();
        })* };
    }
    not_clone!(Chain<'static, u64> Graph<u64> ReaderKey WriterKey Producer<u64> Reader<u64> Writer<u64> PoolReader<u64> PoolWriter<u64>);
    let ring = graph(4).build().unwrap();
    let _tx = ring.producer();
    assert!(ring.try_producer().is_none());
    assert!(catch_unwind(AssertUnwindSafe(|| ring.producer())).is_err());
}

#[test]
fn a_built_graph_is_fixed() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let (a, b) = (graph.reader("a"), graph.reader("b"));
    let ring = graph.build().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| b.after(&a))).is_err());
    // The key of `b` went with it, and nobody can attach to `b` any more.
    let closed = ring.reader(a).batch(1).map(drop).unwrap_err();
    assert_eq!(&**closed.failure().unwrap().stage(), "b");
}

#[test]
fn a_stranger_cannot_be_followed() {
    let _watched = crate::common::watched();
    let (graph, other) = (graph(4), graph(4));
    let stranger = other.reader("stranger");
    let _stage = graph.reader("stage").after(&stranger);
    assert_eq!(
        refused(graph.build()),
        BuildError::Foreign { stage: "stage".into(), after: "stranger".into() }
    );
}

#[test]
fn names_tell_stages_apart() {
    let _watched = crate::common::watched();
    let handler = |_: &u64, _: At| ();
    assert!(chain(4).read("a", handler).read("b", handler).feed(0..9, |slot, i| *slot = i).is_ok());
    let error = chain(4).read("a", handler).read("a", handler).feed(0..9, |slot, i| *slot = i);
    assert_eq!(refused(error), BuildError::Twice { stage: "a".into() });
}

#[test]
fn a_multicast_keeps_order() {
    let _watched = crate::common::watched();
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    chain(8)
        .fan_out(|side| {
            side.read("a", |v, _| a.push(*v))
                .read("b", |v, _| b.push(*v))
                .read("c", |v, _| c.push(*v))
        })
        .feed(0..500, |slot, i| *slot = i)
        .unwrap();
    assert!([a, b, c].iter().all(|seen| seen.iter().copied().eq(0..500)));
}

#[test]
fn a_pipeline_hands_on() {
    let _watched = crate::common::watched();
    let mut seen = Vec::new();
    chain(8)
        .write("double", |v, _| *v *= 2)
        .write("add", |v, _| *v += 1)
        .read("keep", |v, _| seen.push(*v))
        .feed(0..500, |slot, i| *slot = i)
        .unwrap();
    assert!(seen.into_iter().eq((0..500).map(|i| 2 * i + 1)));
}

#[test]
fn a_diamond_joins() {
    let _watched = crate::common::watched();
    let (a, b) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut joined = 0;
    chain(8)
        .fan_out(|side| {
            side.read("a", |_, at| a.store(at.seq + 1, SeqCst))
                .read("b", |_, at| b.store(at.seq + 1, SeqCst))
        })
        .read("join", |_, at| {
            assert!(a.load(SeqCst) > at.seq && b.load(SeqCst) > at.seq);
            joined += 1;
        })
        .feed(0..500, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(joined, 500);
}

#[test]
fn a_stage_follows_those_it_names() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let (a, b) = (graph.reader("a"), graph.reader("b"));
    let (both, one) = (graph.reader("both").after(&a).after(&b), graph.reader("one").after(&a));
    let ring = graph.build().unwrap();
    let (mut tx, mut a, mut b) = (ring.producer(), ring.reader(a), ring.reader(b));
    let (mut both, mut one) = (ring.reader(both), ring.reader(one));
    tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
    assert!(matches!(one.try_batch(9), Err(BatchError::Unavailable)));
    assert_eq!(a.poll(9, |_, _| ()).unwrap(), 2);
    assert_eq!(one.poll(9, |_, _| ()).unwrap(), 2);
    assert!(matches!(both.try_batch(9), Err(BatchError::Unavailable)));
    assert_eq!(b.poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(both.poll(9, |_, at| assert_eq!(at.seq, 0)).unwrap(), 1);
}

#[test]
fn own_loops_stand_between_handlers() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let a = graph.writer("a");
    let own = graph.writer("own").after(&a);
    let c = graph.reader("c").after(&own);
    let ring = graph.build().unwrap();
    let (mut tx, mut a, mut own, mut c) =
        (ring.producer(), ring.writer(a), ring.writer(own), ring.reader(c));
    thread::scope(|scope| {
        scope.spawn(move || tx.publish_all(0..100, |slot, i| *slot = i).unwrap());
        scope.spawn(move || a.for_each(|v, _| *v *= 2).unwrap());
        scope.spawn(move || {
            while let Ok(mut batch) = own.batch(3) {
                batch.iter_mut().for_each(|v| *v += 1);
                batch.release();
            }
        });
        let mut seen = Vec::new();
        assert_eq!(c.for_each(|v, _| seen.push(*v)).unwrap(), 100);
        assert!(seen.into_iter().eq((0..100).map(|i| 2 * i + 1)));
    });
    // On a thread of a chain.
    let mut seen = Vec::new();
    chain(4)
        .write("a", |v, _| *v *= 2)
        .write_by("own", |own| {
            while let Ok(mut batch) = own.batch(3) {
                batch.iter_mut().for_each(|v| *v += 1);
                batch.release();
            }
        })
        .read("c", |v, _| seen.push(*v))
        .feed(0..100, |slot, i| *slot = i)
        .unwrap();
    assert!(seen.into_iter().eq((0..100).map(|i| 2 * i + 1)));
}

#[test]
fn threads_are_named() {
    let _watched = crate::common::watched();
    let (prepared, worked) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let note = || worked.lock().unwrap().push(thread::current().name().unwrap().to_owned());
    chain(8)
        .on_thread_start(|name| prepared.lock().unwrap().push(name.to_owned()))
        .read_pool("pool", 2, |_| |_, _| ())
        .read("last", |_, _| note())
        .feed(0..1, |_, _| ())
        .unwrap();
    let mut prepared = prepared.into_inner().unwrap();
    prepared.sort();
    assert_eq!(
        (prepared, worked.into_inner().unwrap()),
        (vec!["last".into(), "pool-0".into(), "pool-1".into()], vec!["last".to_owned()])
    );
}

#[test]
fn several_stages_share_a_thread() {
    let _watched = crate::common::watched();
    let threads = Mutex::new(Vec::new());
    let note = || threads.lock().unwrap().push(thread::current().id());
    chain(8)
        .fan_out(|side| {
            side.read("a", |_, _| note()).on("both").read("b", |_, _| note()).on("both")
        })
        .feed(0..10, |slot, i| *slot = i)
        .unwrap();
    let threads = threads.into_inner().unwrap();
    assert!(
        threads.len() == 20
            && threads.iter().all(|id| *id == threads[0] && *id != thread::current().id())
    );
}

// Pools.

#[test]
fn a_pool_lets_go_in_order() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let pool = graph.pool_reader("pool", 2);
    let last = graph.reader("last").after(&pool);
    let ring = graph.build().unwrap();
    let (mut tx, mut workers, mut last) =
        (ring.producer(), ring.pool_readers(pool), ring.reader(last));
    let [a, b] = &mut workers[..] else { unreachable!() };
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    // The second event first: it has to wait for the other.
    let (zero, one) = (a.try_batch(1).unwrap(), b.try_batch(1).unwrap());
    assert_eq!((zero[0], one[0]), (0, 1));
    one.release();
    assert!(matches!(last.try_batch(9), Err(BatchError::Unavailable)));
    zero.release();
    assert_eq!(last.poll(9, |_, _| ()).unwrap(), 2);
    // The first event first: it waits for nobody.
    let (two, three) = (a.try_batch(1).unwrap(), b.try_batch(1).unwrap());
    assert_eq!((two[0], three[0]), (2, 3));
    two.release();
    assert_eq!(last.poll(9, |v, _| assert_eq!(*v, 2)).unwrap(), 1);
    three.release();
    assert_eq!(last.poll(9, |v, _| assert_eq!(*v, 3)).unwrap(), 1);
}

// Handlers.

/// Writes down what it is told, and fails where it is to.
#[derive(Default)]
struct Diary {
    lines: Vec<String>,
    fails: &'static str,
}

impl Diary {
    fn note(&mut self, line: String) -> Result<(), Fault> {
        let fails = line == self.fails;
        self.lines.push(line);
        if fails { Err(Oops(1).into()) } else { Ok(()) }
    }
}

impl ReadHandler<u64> for Diary {
    fn start(&mut self) -> Result<(), Fault> {
        self.note("start".into())
    }
    fn event(&mut self, event: &u64, _: At) -> Result<(), Fault> {
        self.note(format!("event {event}"))
    }
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        self.note(format!("end {next_seq}"))
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.note("stop".into())
    }
}

#[test]
fn a_handler_has_a_life() {
    let _watched = crate::common::watched();
    let mut diary = Diary::default();
    chain(16)
        .read_with("diary", &mut diary)
        .run_inline(|p| {
            for len in [2, 1] {
                p.publish_all(0..len, |slot, i| *slot = i)?;
                p.work();
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(diary.lines, ["start", "event 0", "event 1", "end 2", "event 0", "end 3", "stop"]);
}

#[test]
fn a_batch_handler_knows_the_size() {
    let _watched = crate::common::watched();
    let mut batches = Vec::new();
    chain(16)
        .read_batch("r", |events, first_seq| batches.push((first_seq, events.len())))
        .run_inline(|p| {
            for len in [3, 10] {
                p.publish_all(0..len, |slot, i| *slot = i)?;
                while p.work() > 0 {}
            }
            Ok(())
        })
        .unwrap();
    // What is there, and no more than a quarter of the ring.
    assert_eq!(batches, [(0, 3), (3, 4), (7, 4), (11, 2)]);
}

#[test]
fn a_poll_never_waits() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let before = graph.reader("before");
    let polls = graph.reader("polls").after(&before);
    let ring = graph.build().unwrap();
    let (mut tx, mut before, mut polls) =
        (ring.producer(), ring.reader(before), ring.reader(polls));
    assert_eq!(polls.poll(9, |_, _| ()).unwrap(), 0); // nothing published
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    assert_eq!(polls.poll(9, |_, _| ()).unwrap(), 0); // held back by the stage before
    assert_eq!(before.poll(9, |_, _| ()).unwrap(), 4); // the whole ring at once
    assert_eq!(polls.poll(1, |v, _| assert_eq!(*v, 0)).unwrap(), 1); // and no more than wanted
    assert_eq!(polls.poll(9, |_, _| ()).unwrap(), 3);
    tx.close();
    assert!(matches!(polls.poll(9, |_, _| ()), Err(WaitError::Closed)));
}

#[test]
fn a_stage_tells_where_it_stands() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(8);
    assert_eq!(rx.next_seq(), 0);
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    assert_eq!((rx.next_seq(), &*rx.stage()), (0, "r"));
    assert_eq!(rx.try_batch(2).unwrap().len(), 2); // not released
    assert_eq!(rx.next_seq(), 0);
    rx.try_batch(2).unwrap().release();
    assert_eq!(rx.next_seq(), 2);
    rx.poll(9, |_, _| ()).unwrap();
    assert_eq!(rx.next_seq(), 3);
}

// Exceptions.

#[test]
fn an_error_comes_back_whole() {
    let _watched = crate::common::watched();
    let mut diary = Diary { fails: "event 3", ..Diary::default() };
    let error = chain(8)
        .read("beside", |_, _| ())
        .read_with("fails", &mut diary)
        .feed(0..9, |slot, i| *slot = i)
        .unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref()),
        (Some("fails"), Some(3), Some(&Oops(1)))
    );
    assert_eq!(error.report().unwrap().stage("fails").unwrap().events, 3);
    // It is stopped all the same, and sees nothing more.
    assert_eq!(diary.lines[diary.lines.len() - 2..], ["event 3", "stop"]);
}

#[test]
fn a_panic_comes_back() {
    let _watched = crate::common::watched();
    quiet();
    let panics = |v: &u64, _: At| assert!(*v < 3, "{v} {PURPOSE}");
    let error = chain(8).read("panics", panics).feed(0..9, |slot, i| *slot = i).unwrap_err();
    assert_eq!((error.stage(), error.seq()), (Some("panics"), Some(3)));
    assert!(
        matches!(error.failure().unwrap().cause(), Cause::Panic(text) if text == "3 on purpose")
    );
}

#[test]
fn an_error_at_the_start() {
    let _watched = crate::common::watched();
    let mut diary = Diary { fails: "start", ..Diary::default() };
    let error = chain(8).read_with("fails", &mut diary).feed(0.., |slot, i| *slot = i).unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref()),
        (Some("fails"), None, Some(&Oops(1)))
    );
    assert_eq!(diary.lines, ["start"]);
}

#[test]
fn an_error_at_the_end() {
    let _watched = crate::common::watched();
    for (fails, seen) in [("stop", 4), ("end 2", 3)] {
        let mut diary = Diary { fails, ..Diary::default() };
        let chain = chain(16).read_with("fails", &mut diary);
        let error =
            chain.run_inline(|p| Ok(p.publish_all(0..2, |slot, i| *slot = i)?)).unwrap_err();
        assert_eq!(
            (error.stage(), error.seq(), error.downcast_ref()),
            (Some("fails"), None, Some(&Oops(1)))
        );
        assert_eq!(diary.lines[seen], if seen == 4 { "stop" } else { "end 2" });
    }
}

// Endings.

#[test]
fn halting_wakes_whoever_waits() {
    let _watched = crate::common::watched();
    for full in [false, true] {
        let graph = graph(4);
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        let closed = thread::scope(|scope| {
            let (tx, rx) = (&mut tx, &mut rx);
            let waits = scope.spawn(move || {
                if full {
                    tx.publish_all(0.., |_, _| ()).unwrap_err()
                } else {
                    rx.batch(1).map(drop).unwrap_err()
                }
            });
            ring.halt();
            waits.join().unwrap()
        });
        assert!(matches!(closed, WaitError::Halted));
        // It stays so, for everybody, and what was published stays unseen.
        assert!(matches!(tx.publish(|_| ()), Err(WaitError::Halted)));
        assert!(matches!(rx.for_each(|_, _| ()), Err(WaitError::Halted)));
        assert!(ring.report().halted());
    }
}

#[test]
fn closing_drains() {
    let _watched = crate::common::watched();
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    let (mut tx, pipeline) = chain(4)
        .write_pool("pool", 2, |_| |v, _| *v += 1)
        .read("last", move |v, _| _ = count.fetch_add(*v, SeqCst))
        .spawn()
        .unwrap();
    tx.publish_all(0..100, |slot, i| *slot = i).unwrap();
    tx.close();
    let report = pipeline.join().unwrap();
    assert_eq!((seen.load(SeqCst), report.halted()), (5050, false));
    assert!(report.stages().iter().all(|stage| stage.events == 100));
}

#[test]
fn a_slow_shutdown_says_who_runs() {
    let _watched = crate::common::watched();
    let (go, gate) = mpsc::channel::<()>();
    let (mut tx, mut pipeline) =
        chain(4).read("slow", move |_, _| gate.recv_timeout(LIMIT)).spawn().unwrap();
    tx.publish(|_| ()).unwrap();
    tx.close();
    let error = pipeline.join_within(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(&error, JoinError::StillRunning { stage } if &**stage == "slow"), "{error}");
    go.send(()).unwrap();
    assert_eq!(pipeline.join_within(LIMIT).unwrap().stage("slow").unwrap().events, 1);
}

#[test]
fn a_wait_for_events_times_out() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let graph = graph(4).wait(wait);
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        let by = soon();
        assert!(matches!(rx.batch_by(1, by), Err(BatchError::TimedOut)) && Instant::now() >= by);
        tx.publish(|v| *v = 5).unwrap();
        assert_eq!(rx.batch_by(1, soon()).unwrap()[0], 5);
    }
}

#[test]
fn a_wait_for_room_times_out() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(2);
    tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
    let by = soon();
    assert!(
        matches!(tx.publish_by(by, |_| ()), Err(ClaimError::TimedOut { stage }) if &*stage == "r")
            && Instant::now() >= by
    );
    assert!(matches!(tx.claim_by(soon()), Err(ClaimError::TimedOut { .. })));
    assert!(matches!(tx.claim_n_by(2, soon()), Err(ClaimError::TimedOut { .. })));
    assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(tx.publish_by(Instant::now() + LIMIT, |_| ()).unwrap(), 2);
}

#[test]
fn a_deadline_ends_the_graph() {
    let _watched = crate::common::watched();
    let after = Duration::from_millis(20);
    let graph = Graph::new(4, || 0u64).deadline(after);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let closed = rx.batch(1).map(drop).unwrap_err();
    let failure = closed.failure().unwrap();
    assert_eq!((&**failure.stage(), failure.seq()), ("r", Some(0)));
    assert!(matches!(failure.cause(), Cause::Deadline(limit) if *limit == after));
    assert!(matches!(tx.publish(|_| ()), Err(WaitError::Failed(_))));
}

// Many producers, and waiting.

#[test]
fn many_producers_keep_their_order() {
    let _watched = crate::common::watched();
    let mut next = [0; 3];
    let mut count = 0;
    let check = |v: &u64, at: At| {
        let (producer, i) = (*v / 1000, *v % 1000);
        assert_eq!((i, at.seq), (next[producer as usize], count));
        next[producer as usize] += 1;
        count += 1;
    };
    let produce = |p: &mut slipring::SharedProducer<u64>| {
        thread::scope(|scope| {
            for producer in 0..3 {
                let mut p = p.clone();
                scope.spawn(move || {
                    p.publish_all(0..200, |slot, i| *slot = producer * 1000 + i).unwrap()
                });
            }
        });
        Ok(())
    };
    chain(8).read("r", check).run_shared(produce).unwrap();
    assert_eq!((next, count), ([200; 3], 600));
}

#[test]
fn every_wait_strategy_delivers() {
    let _watched = crate::common::watched();
    let names = Wait::all().map(|wait| wait.to_string());
    assert_eq!(names.each_ref().map(|name| name.parse::<Wait>().unwrap().to_string()), names);
    assert!("naps".parse::<Wait>().is_err());
    // The one that never yields needs cores of its own.
    for name in names.iter().filter(|name| *name != "busy-spin") {
        let mut sum = 0;
        chain(4)
            .wait(name.parse().unwrap())
            .write("a", |v, _| *v += 1)
            .read("b", |v, _| sum += v)
            .feed(0..50, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(sum, 50 * 51 / 2, "{name}");
    }
}

#[test]
fn a_strategy_may_time_out() {
    let _watched = crate::common::watched();
    let graph = graph(1).wait(Wait::Blocking.or_timeout(Duration::from_millis(1)));
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    assert!(matches!(rx.batch(1), Err(WaitError::TimedOut(_))));
    tx.publish(|slot| *slot = 1).unwrap();
    assert!(matches!(tx.publish(|_| ()), Err(WaitError::TimedOut(_))));
    // Nobody lost anything.
    assert_eq!(rx.batch(1).unwrap()[0], 1);
}

#[test]
fn each_stage_waits_in_its_own_way() {
    let _watched = crate::common::watched();
    let mut sum = 0;
    chain(4)
        .producer_wait(Wait::YIELDING)
        .write("a", |v, _| *v += 1)
        .stage_wait(Wait::SLEEPING)
        .read("b", |v, _| sum += v)
        .stage_wait(Wait::Blocking)
        .feed(0..50, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(sum, 50 * 51 / 2);
}

/// Spins, then yields, then sleeps until it is woken; counts how often it was asked.
#[derive(Debug, Default)]
struct Phased(AtomicU64);

impl WaitStrategy for Phased {
    fn idle(&self, waited: &WaitContext) -> WaitAction {
        self.0.fetch_add(1, SeqCst);
        match waited.polls {
            0..4 => WaitAction::Spin(1),
            4..8 => WaitAction::Yield,
            _ => WaitAction::Park,
        }
    }
    fn parks(&self) -> bool {
        true
    }
    fn alias(&self) -> String {
        "phased".into()
    }
}

#[test]
fn a_strategy_of_ones_own_is_asked() {
    let _watched = crate::common::watched();
    let phased = Arc::new(Phased::default());
    let graph = graph(4).wait(Wait::Custom(phased.clone()));
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    thread::scope(|scope| {
        let reads = scope.spawn(|| rx.for_each(|_, _| ()).unwrap());
        for round in 1..=3 {
            until("it sleeps", || phased.0.load(SeqCst) >= 9 * round);
            tx.publish(|_| ()).unwrap();
        }
        tx.close();
        assert_eq!(reads.join().unwrap(), 3);
    });
    assert!(ring.to_string().contains("phased"));
}
