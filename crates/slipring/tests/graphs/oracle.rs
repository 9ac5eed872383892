//! Two kinds of tests on random graphs. On one thread, random operations use graphs of up to six
//! stages, and a sequential model (the oracle) predicts each call's result. On many threads, each
//! event shows which stages have written it, and in which order.
//!
//! `PROPTEST_CASES` sets the number of random cases, and `SLIPRING_SOAK_SECONDS` the duration of
//! the soak (`--ignored`).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::Config;
use slipring::{
    Graph, Wait,
    errors::{ClaimError, WaitError},
    markers::{Contiguous, Interleaved},
};

use crate::handles::{AnyHandle, AnyRing, Ask, Ends, Finish, TestLayout, Tx, declare, with_tx};
use crate::model::{Claimed, End, Model};
use crate::shape::{Dice, Ev, Shape, Stage, StageKind};
use crate::threads;

/// The fate of a claim.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Publish,
    Drop,
    Forget,
}

/// One operation. An index selects one of the live handles, modulo their number.
#[derive(Clone, Debug)]
enum Op {
    Claim { tx: usize, len: usize, fate: Fate, late: bool },
    Publish { tx: usize },
    PublishPanics { tx: usize },
    Batches { tx: usize, len: usize, items: usize },
    Batch { at: usize, ask: Ask, max: usize, finish: Finish },
    Poll { at: usize, max: usize },
    PollPanics { at: usize, max: usize, nth: usize },
    Clone { tx: usize },
    DropTx { tx: usize, even_the_last: bool },
    CloseAll { tx: usize },
    DropHandle { at: usize, even_the_last: bool },
    Halt,
}

#[derive(Clone, Debug)]
struct Case {
    shape: Shape,
    capacity: usize,
    many: bool,
    start: u64,
    wait: usize,
    ops: Vec<Op>,
}

fn kinds() -> impl Strategy<Value = StageKind> {
    prop_oneof![4 => Just(StageKind::Reader), 2 => Just(StageKind::PoolReader), 1 => Just(StageKind::Updater), 1 => Just(StageKind::PoolUpdater)]
}

/// Generates shapes whose stages come after stages of smaller numbers.
fn forward_shapes() -> impl Strategy<Value = Shape> {
    prop::collection::vec((kinds(), 1..=3usize, any::<u8>(), any::<u8>()), 0..=6).prop_map(
        |stages| {
            let stage =
                |(i, (kind, workers, some, others)): (usize, (StageKind, usize, u8, u8))| {
                    let after =
                        (0..i).filter(|earlier| some & others & (1 << earlier) != 0).collect();
                    Stage { kind, workers, after }
                };
            Shape(stages.into_iter().enumerate().map(stage).collect())
        },
    )
}

fn reordered(shape: Shape, seed: u8) -> Shape {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if seed != 0 {
        let mut dice = Dice::new(seed.into());
        order.sort_by_cached_key(|_| dice.next());
    }
    shape.reordered(&order)
}

/// Generates any shapes, including unsound and cyclic ones.
fn wild_shapes() -> impl Strategy<Value = Shape> {
    let back =
        prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<prop::sample::Index>()));
    (forward_shapes(), back, any::<bool>(), any::<u8>()).prop_map(|(shape, back, repair, order)| {
        let mut shape = if repair { shape.repaired() } else { shape };
        if let (Some((a, b)), true) = (back, shape.len() > 1) {
            let (a, b) = (a.index(shape.len()), b.index(shape.len()));
            if a != b {
                shape.0[a].after.push(b);
            }
        }
        reordered(shape, order)
    })
}

fn ops() -> impl Strategy<Value = Op> {
    let some = || 0..12usize;
    let few = || prop_oneof![8 => 1..=4usize, 2 => 5..=9usize, 1 => Just(0), 1 => Just(100)];
    let asks = prop_oneof![4 => Just(Ask::Try), 1 => Just(Ask::Late)];
    let finishes =
        prop_oneof![6 => Just(Finish::Release), 1 => Just(Finish::Drop), 1 => Just(Finish::Forget)];
    let fates =
        prop_oneof![6 => Just(Fate::Publish), 2 => Just(Fate::Drop), 1 => Just(Fate::Forget)];
    prop_oneof![
        100 => (some(), few(), fates, prop::bool::weighted(0.1)).prop_map(|(tx, len, fate, late)| Op::Claim { tx, len, fate, late }),
        100 => some().prop_map(|tx| Op::Publish { tx }),
        40 => (some(), few(), 0..=10usize).prop_map(|(tx, len, items)| Op::Batches { tx, len, items }),
        200 => (some(), asks, few(), finishes).prop_map(|(at, ask, max, finish)| Op::Batch { at, ask, max, finish }),
        150 => (some(), few()).prop_map(|(at, max)| Op::Poll { at, max }),
        30 => (some(), few(), 0..4usize).prop_map(|(at, max, nth)| Op::PollPanics { at, max, nth }),
        15 => some().prop_map(|tx| Op::Clone { tx }),
        15 => (some(), prop::bool::weighted(0.1)).prop_map(|(tx, even_the_last)| Op::DropTx { tx, even_the_last }),
        1 => some().prop_map(|tx| Op::CloseAll { tx }),
        10 => (some(), prop::bool::weighted(0.05)).prop_map(|(at, even_the_last)| Op::DropHandle { at, even_the_last }),
        1 => Just(Op::Halt),
        1 => some().prop_map(|tx| Op::PublishPanics { tx }),
    ]
}

/// Generates first positions: 0, and positions just before a wrap.
fn starts(capacity: usize) -> impl Strategy<Value = u64> {
    let capacity = capacity as u64;
    let laps = (1u64 << 46).wrapping_mul(capacity);
    prop_oneof![
        4 => Just(0),
        1 => Just(u64::MAX - 3),
        1 => Just(0u64.wrapping_sub(2 * capacity)),
        1 => Just(u64::MAX),
        1 => Just(laps - 2),                          // a stamp's lap field wraps
        1 => Just(laps.wrapping_sub(capacity + 1)),   // a lap before that
        1 => Just((1 << 48) - 3),                     // a pool's claim word
        1 => Just((1 << 63) - 3),                     // a bound, and the producers' claim word
        1 => Just((1 << 62) - 1),
    ]
}

fn cases(lengths: std::ops::Range<usize>) -> impl Strategy<Value = Case> {
    let settings = prop_oneof![Just(1usize), Just(2), Just(4), Just(8)]
        .prop_flat_map(|capacity| (Just(capacity), starts(capacity)));
    (
        forward_shapes(),
        any::<u8>(),
        settings,
        any::<bool>(),
        0..4usize,
        prop::collection::vec(ops(), lengths),
    )
        .prop_map(|(shape, order, (capacity, start), many, wait, ops)| {
            let shape = reordered(shape.repaired(), order).fitting(capacity);
            Case { shape, capacity, many, start, wait, ops }
        })
}

fn config(cases: u32) -> Config {
    let cases =
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    Config {
        cases: if cfg!(miri) { cases.min(5) } else { cases },
        failure_persistence: None,
        max_shrink_time: 20_000,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn each_call_returns_the_oracles_result(case in cases(0..120)) {
        let _watched = crate::common::watched();
        check_case::<Interleaved>(&case);
    }

    #[test]
    fn each_call_returns_the_oracles_result_with_contiguous_events(case in cases(0..120)) {
        let _watched = crate::common::watched();
        check_case::<Contiguous>(&case);
    }

    #[test]
    fn a_build_refuses_exactly_the_unsound_shapes(shape in wild_shapes()) {
        let _watched = crate::common::watched();
        let graph = Graph::new(4, || 0u8);
        let keys = declare(&graph, &shape);
        let built = graph.build();
        shape.check_build(&built);
        drop(keys);
    }
}

proptest! {
    #![proptest_config(config(30))]

    #[test]
    fn each_call_of_a_long_history_returns_the_oracles_result(case in cases(if cfg!(miri) { 60..100 } else { 300..1200 })) {
        let _watched = crate::common::watched();
        let lasting = |op: &Op| !matches!(op, Op::Halt | Op::PublishPanics { .. } | Op::CloseAll { .. });
        let ops = case.ops.iter().filter(|&op| lasting(op)).cloned().collect();
        check_case::<Interleaved>(&Case { ops, ..case });
    }
}

fn check_case<L: TestLayout>(case: &Case) {
    let graph = Graph::new(case.capacity, Ev::default)
        .first_seq(case.start)
        .wait(Wait::all()[case.wait].clone());
    // A wait without end becomes a failure.
    let graph = graph.deadline(Duration::from_secs(60));
    let (ring, tx, handles) =
        AnyRing::<L>::build(&case.shape, case.many, graph).expect("a sound shape");
    let model = Model::new(&case.shape, case.capacity, case.many, case.start);
    let mut checked = CheckedRing::new((ring, tx, handles), model);
    for op in &case.ops {
        checked.step(op);
        checked.check_positions();
    }
    checked.finish();
}

/// A ring, and the oracle that predicts its results.
struct CheckedRing<L: TestLayout> {
    ring: AnyRing<L>,
    producers: Vec<Option<Tx<L>>>,
    handles: Vec<Vec<Option<AnyHandle<L>>>>,
    model: Model,
}

impl<L: TestLayout> CheckedRing<L> {
    fn new((ring, tx, handles): Ends<L>, model: Model) -> CheckedRing<L> {
        let handles =
            handles.into_iter().map(|stage| stage.into_iter().map(Some).collect()).collect();
        CheckedRing { ring, producers: vec![Some(tx)], handles, model }
    }

    /// Returns the index of the living producer that `number` selects, if any is alive.
    fn tx(&self, number: usize) -> Option<usize> {
        let there: Vec<usize> =
            (0..self.producers.len()).filter(|&tx| self.producers[tx].is_some()).collect();
        (!there.is_empty()).then(|| there[number % there.len()])
    }

    /// Returns the stage and the worker of the living handle that `number` selects, if any is
    /// alive.
    fn at(&self, number: usize) -> Option<(usize, usize)> {
        let mut there = Vec::new();
        for (stage, handles) in self.handles.iter().enumerate() {
            there.extend(
                (0..handles.len())
                    .filter(|&worker| handles[worker].is_some())
                    .map(|worker| (stage, worker)),
            );
        }
        (!there.is_empty()).then(|| there[number % there.len()])
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Claim { tx, len, fate, late } => {
                if let Some(tx) = self.tx(tx) {
                    self.claim(tx, len, fate, late);
                }
            }
            Op::Publish { tx } => {
                if let Some(tx) = self.tx(tx) {
                    self.publish(tx);
                }
            }
            Op::PublishPanics { tx } => {
                if let Some(tx) = self.tx(tx) {
                    self.publish_panics(tx);
                }
            }
            Op::Batches { tx, len, items } => {
                if let Some(tx) = self.tx(tx) {
                    self.batches(tx, len, items);
                }
            }
            Op::Batch { at, ask, max, finish } => {
                if let Some(at) = self.at(at) {
                    self.batch(at, ask, max, finish);
                }
            }
            Op::Poll { at, max } => {
                if let Some(at) = self.at(at) {
                    self.poll(at, max, usize::MAX);
                }
            }
            Op::PollPanics { at, max, nth } => {
                if let Some(at) = self.at(at) {
                    self.poll(at, max, nth);
                }
            }
            Op::Clone { tx } => self.clone_tx(tx),
            Op::DropTx { tx, even_the_last } => {
                let left = self.producers.iter().flatten().count();
                if let Some(tx) = self.tx(tx).filter(|_| left > 1 || even_the_last) {
                    self.producers[tx] = None;
                    self.model.drop_producer(tx);
                }
            }
            Op::CloseAll { tx } => {
                if let Some(tx) = self.tx(tx).filter(|_| self.model.many)
                    && let Some(Tx::Many(producer)) = self.producers[tx].take()
                {
                    producer.close_all();
                    self.model.bury_forgotten(tx);
                    self.model.close();
                    self.model.drop_producer(tx);
                }
            }
            Op::DropHandle { at, even_the_last } => {
                if let Some((stage, worker)) = self.at(at)
                    && (even_the_last || self.handles[stage].iter().flatten().count() > 1)
                {
                    self.handles[stage][worker] = None;
                    self.model.drop_handle(stage, worker);
                }
            }
            Op::Halt => {
                self.ring.halt();
                self.model.halted = true;
                self.model.end.get_or_insert(End::Halted);
            }
        }
    }

    fn claim(&mut self, tx: usize, len: usize, fate: Fate, late: bool) {
        let model = &mut self.model;
        let expected = model.claim(tx, len);
        let ids: Vec<u64> = (0..len).map(|_| model.id()).collect();
        with_tx!(self.producers[tx].as_mut().unwrap(), producer => {
            let claimed = if late { producer.claim_n_by(len, Instant::now()) } else { producer.try_claim_n(len) };
            match (claimed, &expected) {
                (Ok(mut slots), &Claimed::At(at)) => {
                    assert_eq!((slots.first_seq(), slots.len()), (model.seq(at), len));
                    // Fills the slots through the iterator, then writes the second half again by
                    // index.
                    for (event, id) in slots.iter_mut().zip(&ids) {
                        event.fill(*id);
                    }
                    for (offset, &id) in ids.iter().enumerate().skip(len / 2) {
                        slots[offset] = Ev::default();
                        slots[offset].fill(id);
                        assert_eq!(slots[offset].id, id);
                    }
                    assert!(slots.get_mut(len).is_none());
                    match fate {
                        Fate::Publish => {
                            assert_eq!(slots.publish(), model.seq(at));
                            model.publish(at, &ids);
                        }
                        Fate::Drop => {
                            drop(slots);
                            model.bury(at);
                        }
                        Fate::Forget => {
                            std::mem::forget(slots);
                            model.forget_claim(tx, at);
                        }
                    }
                }
                (Err(error), expected) => model.check_claim_error(expected, &error, late),
                (Ok(slots), expected) => panic!("claimed {len} from {} on instead of {expected:?}", slots.first_seq()),
            }
        });
    }

    fn publish(&mut self, tx: usize) {
        let expected = self.model.claim(tx, 1);
        let id = self.model.id();
        match (self.producers[tx].as_mut().unwrap().try_publish(id), &expected) {
            (Ok(seq), &Claimed::At(at)) => {
                assert_eq!(seq, self.model.seq(at));
                self.model.publish(at, &[id]);
            }
            (Err(error), expected) => self.model.check_claim_error(expected, &error, false),
            (Ok(seq), expected) => panic!("published at {seq} instead of {expected:?}"),
        }
    }

    fn publish_panics(&mut self, tx: usize) {
        let expected = self.model.claim(tx, 1);
        let outcome = catch_unwind(AssertUnwindSafe(
            || with_tx!(self.producers[tx].as_mut().unwrap(), producer => producer.try_publish(|_| resume_unwind(Box::new("filling")))),
        ));
        match (outcome, expected) {
            (Err(_), Claimed::At(at)) => {
                let seq = self.model.seq(at);
                self.model.bury(at);
                self.model.fail(slipring::stages::PRODUCER.to_owned(), Some(seq));
            }
            (Ok(Err(error)), expected) => self.model.check_claim_error(&expected, &error, false),
            (outcome, expected) => panic!("{outcome:?} instead of {expected:?}"),
        }
    }

    /// Publishes batches of items, but only as many items as surely fit. With more, the call would
    /// wait for ever.
    fn batches(&mut self, tx: usize, len: usize, items: usize) {
        let model = &mut self.model;
        let is_open =
            model.last.is_none() && model.end.is_none() && (1..=model.capacity).contains(&len);
        // The call claims each batch as a whole, even if only one item is left for the last batch.
        let items = if is_open { items.min(model.room() / len * len) } else { items };
        let ids: Vec<u64> = (0..items).map(|_| model.id()).collect();
        let outcome = with_tx!(self.producers[tx].as_mut().unwrap(), producer => producer.publish_batches(len, ids.iter(), |event, &id| event.fill(id)));
        if !(1..=model.capacity).contains(&len) {
            assert!(
                matches!(outcome, Err(ClaimError::Length { asked, .. }) if asked == len),
                "{outcome:?}"
            );
        } else if items == 0 {
            assert_eq!(outcome.expect("nothing to publish"), 0);
        } else if !is_open {
            let expected = model.claim(tx, len);
            model.check_claim_error(&expected, &outcome.expect_err("the ring is closed"), true);
        } else {
            assert_eq!(outcome.expect("room for the items"), items as u64);
            for batch in ids.chunks(len) {
                let claimed = model.claim(tx, len);
                let Claimed::At(at) = claimed else {
                    panic!("the oracle contradicts itself: {claimed:?}")
                };
                model.publish(at, batch);
                if batch.len() < len {
                    model.bury(at + batch.len());
                }
            }
        }
    }

    fn batch(&mut self, (stage, worker): (usize, usize), ask: Ask, max: usize, finish: Finish) {
        let mut seen = Vec::new();
        let handle = self.handles[stage][worker].as_mut().unwrap();
        let lent = handle
            .batch(ask, max, finish, stage, &mut |seq, event| seen.push((seq, event.clone())));
        self.model.batch((stage, worker), (ask, max, finish), lent, &seen);
    }

    fn poll(&mut self, (stage, worker): (usize, usize), max: usize, panic_at: usize) {
        let mut seen = Vec::new();
        let handle = self.handles[stage][worker].as_mut().unwrap();
        let mut see = |seq: u64, event: &Ev| {
            seen.push((seq, event.clone()));
            if seen.len() == panic_at.saturating_add(1) {
                resume_unwind(Box::new("handling"));
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| handle.poll(max, stage, &mut see))).ok();
        self.model.poll((stage, worker), max, outcome, &seen);
    }

    fn clone_tx(&mut self, number: usize) {
        let existing = self.tx(number).and_then(|tx| self.producers[tx].as_ref());
        let clone = match (existing, &self.ring) {
            (Some(Tx::Many(producer)), _) => Tx::Many(producer.clone()),
            (None, AnyRing::Many(ring)) => Tx::Many(ring.producer()),
            (_, AnyRing::One(ring)) => {
                assert!(ring.try_producer().is_none());
                return;
            }
            (Some(Tx::One(_)), AnyRing::Many(_)) => unreachable!(),
        };
        self.producers.push(Some(clone));
        self.model.producers.push((true, None));
    }

    fn check_positions(&self) {
        for (stage, handles) in self.handles.iter().enumerate() {
            if let [Some(handle)] = &handles[..]
                && self.model.stages[stage].workers.is_empty()
            {
                assert_eq!(
                    handle.next_seq(),
                    self.model.seq(self.model.next(stage)),
                    "the position of s{stage}"
                );
                assert_eq!(handle.stage(), Shape::name(stage));
            }
        }
    }

    /// Closes and drains the ring, and compares the report with the oracle.
    fn finish(mut self) {
        for tx in 0..self.producers.len() {
            if self.producers[tx].take().is_some() {
                self.model.drop_producer(tx);
            }
        }
        if self.model.end.is_none() {
            let rounds = 2 * self.model.log.len() + 4 + 2 * self.handles.len();
            for round in 0.. {
                let mut open = 0;
                for stage in 0..self.handles.len() {
                    for worker in 0..self.handles[stage].len() {
                        if self.handles[stage][worker].is_some() && !self.is_drained(stage, worker)
                        {
                            open += 1;
                        }
                    }
                }
                if open == 0 {
                    break;
                }
                assert!(round < rounds, "the stages do not end");
            }
            for stage in &self.model.stages {
                assert_eq!(stage.handled, self.model.live_events());
            }
        }
        for stage in 0..self.handles.len() {
            for worker in 0..self.handles[stage].len() {
                if self.handles[stage][worker].take().is_some() {
                    self.model.drop_handle(stage, worker);
                }
            }
        }
        let report = self.ring.report();
        assert_eq!(report.halted(), self.model.halted, "{report}");
        if self.model.end.is_none() {
            let counts = |stage: &slipring::reports::StageReport| (stage.events, stage.tombstones);
            let all = (self.model.live_events(), self.model.tombstones());
            for stage in report.stages() {
                assert_eq!(counts(stage), all, "{}", stage.name);
            }
            assert_eq!(report.stages().len(), self.model.stages.len() + 1);
        } else {
            for (i, stage) in self.model.stages.iter().enumerate() {
                assert_eq!(report.stages()[i].events, stage.handled);
            }
            assert_eq!(report.producer().events, self.model.live_events());
        }
    }

    fn is_drained(&mut self, stage: usize, worker: usize) -> bool {
        let mut seen = Vec::new();
        let handle = self.handles[stage][worker].as_mut().unwrap();
        let outcome = handle.poll(3, stage, &mut |seq, event| seen.push((seq, event.clone())));
        let drained = matches!(outcome, Err(WaitError::Closed));
        self.model.poll((stage, worker), 3, Some(outcome), &seen);
        drained
    }
}

#[test]
fn random_graphs_on_threads_deliver_each_event_in_order() {
    let _watched = crate::common::watched();
    let (runs, events) = if cfg!(miri) { (4, 12) } else { (40, 400) };
    for seed in 0..runs {
        threads::run(seed, events);
    }
}

#[test]
#[ignore = "runs for SLIPRING_SOAK_SECONDS, 60 unless set"]
fn random_graphs_on_threads_run_for_a_soak() {
    let _watched = crate::common::watched();
    let seconds = std::env::var("SLIPRING_SOAK_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(60);
    let end = Instant::now() + Duration::from_secs(seconds);
    // Each soak starts at another seed. A failure names the seed that caused it.
    let first = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() << 20);
    for seed in first.. {
        if Instant::now() >= end {
            println!("{} random graphs", seed - first);
            break;
        }
        threads::run(seed, 4000);
    }
}
