//! All shapes of up to four stages, and the named shapes; every kind of event; rings that start
//! next to a wrap; publications longer than a run.

use slipring::{
    Graph,
    markers::{Contiguous, Interleaved},
};

use crate::handles::declare;
use crate::script::{Publication, run, short};
use crate::shape::{Shape, Stage, StageKind};
use crate::threads;

/// Returns every graph that has this number of stages, of any kind, but only one graph per
/// isomorphism class. Each stage follows only stages that have smaller numbers.
fn all_shapes(stages: usize) -> Vec<Shape> {
    let pairs: Vec<(usize, usize)> =
        (0..stages).flat_map(|late| (0..late).map(move |early| (early, late))).collect();
    let numberings = permutations(stages);
    let mut shapes = Vec::new();
    for edges in 0..1usize << pairs.len() {
        for kinds in 0..4usize.pow(stages as u32) {
            let kind = |stage: usize| kinds >> (2 * stage) & 3;
            let code = |order: &[usize]| {
                let mut renumbered = (0, 0);
                for (i, &(early, late)) in pairs.iter().enumerate() {
                    if edges >> i & 1 == 1 {
                        let there =
                            pairs.iter().position(|&pair| pair == (order[early], order[late]))?;
                        renumbered.0 |= 1 << there;
                    }
                }
                (0..stages).for_each(|stage| renumbered.1 |= kind(stage) << (2 * order[stage]));
                Some(renumbered)
            };
            if numberings.iter().filter_map(|order| code(order)).min() < Some((edges, kinds)) {
                continue;
            }
            let stage = |late: usize| {
                let after = pairs
                    .iter()
                    .enumerate()
                    .filter(|&(i, pair)| pair.1 == late && edges >> i & 1 == 1);
                Stage {
                    kind: StageKind::ALL[kind(late)],
                    workers: 2,
                    after: after.map(|(_, pair)| pair.0).collect(),
                }
            };
            shapes.push(Shape((0..stages).map(stage).collect()));
        }
    }
    shapes
}

fn permutations(len: usize) -> Vec<Vec<usize>> {
    if len == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(len - 1) {
        for at in 0..len {
            let mut longer = shorter.clone();
            longer.insert(at, len - 1);
            all.push(longer);
        }
    }
    all
}

/// Limits under Miri: number of stages per shape, and number of shapes that run.
const SMALL: (usize, usize) = (2, 8);

#[test]
fn every_shape_of_up_to_four_stages_delivers_each_event() {
    let _watched = crate::common::watched();
    let most = if cfg!(miri) { SMALL.0 } else { 4 };
    let mut legal = Vec::new();
    for stages in 0..=most {
        let numberings = permutations(stages);
        for (i, shape) in all_shapes(stages).into_iter().enumerate() {
            // The order of declaration must not matter, so it varies.
            let shape = shape.reordered(&numberings[i % numberings.len()]);
            let graph = Graph::new(4, || 0u8);
            let keys = declare(&graph, &shape);
            if shape.check_build(&graph.build()) {
                legal.push(shape);
            }
            drop(keys);
        }
    }
    if cfg!(miri) {
        let step = legal.len() / SMALL.1;
        legal = legal.into_iter().step_by(step).collect();
    } else {
        assert_eq!(legal.len(), 2920, "number of legal graphs");
    }
    for (i, shape) in legal.iter().enumerate() {
        for capacity in [1, 2, 4] {
            let script = short(if cfg!(miri) { 4 } else { 25 } + capacity, capacity);
            let many = (i + capacity) % 2 == 0;
            if i % 4 < 2 {
                run::<Interleaved>(shape, capacity, many, 0, &script, 3)
            } else {
                run::<Contiguous>(shape, capacity, many, 0, &script, 3)
            }
        }
    }
}

#[test]
fn sampled_shapes_deliver_each_event_on_threads() {
    let _watched = crate::common::watched();
    let mut legal: Vec<Shape> =
        (1..=if cfg!(miri) { 2 } else { 4 }).flat_map(all_shapes).filter(Shape::is_legal).collect();
    let step = legal.len() / if cfg!(miri) { 3 } else { 40 };
    legal = legal.into_iter().step_by(step).collect();
    for (seed, shape) in legal.iter().enumerate() {
        threads::run_shape(shape, seed as u64, if cfg!(miri) { 8 } else { 150 });
    }
}

/// Returns shapes with every kind of stage, and with pools directly behind the producers.
fn around_the_wraps() -> Vec<Shape> {
    let stage = |kind, after: &[usize]| Stage { kind, workers: 2, after: after.to_vec() };
    use StageKind::{PoolReader, PoolUpdater, Reader, Updater};
    vec![
        Shape(vec![stage(Reader, &[])]),
        Shape(vec![stage(Updater, &[]), stage(PoolUpdater, &[0]), stage(Reader, &[1])]),
        Shape(vec![
            stage(PoolUpdater, &[]),
            stage(PoolReader, &[0]),
            stage(Reader, &[0]),
            stage(PoolUpdater, &[1, 2]),
        ]),
        Shape(vec![stage(PoolReader, &[]), stage(PoolReader, &[])]),
        Shape(vec![]),
    ]
}

#[test]
fn a_ring_that_starts_next_to_a_wrap_delivers_each_event() {
    let _watched = crate::common::watched();
    for capacity in [1u64, 2, 8] {
        let lap_field = (1u64 << 46).wrapping_mul(capacity);
        // Each start lies just before one of these values wraps: the position, a stamp's lap, that
        // lap + 1, a pool's claim word, a bound, and the producers' claim word.
        for wrap in [0, lap_field, lap_field.wrapping_sub(capacity), 1 << 48, 1 << 63, 1 << 62] {
            for before in [3 * capacity, capacity, 1] {
                let start = wrap.wrapping_sub(before);
                for (i, shape) in around_the_wraps().iter().enumerate() {
                    if cfg!(miri) && !(i as u64 + before + wrap % 7).is_multiple_of(7) {
                        continue;
                    }
                    let shape = shape.clone().fitting(capacity as usize);
                    let script = short((before + 3 * capacity) as usize + 5, capacity as usize);
                    for many in [false, true] {
                        run::<Interleaved>(&shape, capacity as usize, many, start, &script, 3);
                        run::<Contiguous>(&shape, capacity as usize, many, start, &script, 100);
                    }
                }
            }
        }
    }
}

/// A run holds 32,768 slots, so these publications take several runs.
#[test]
fn publications_longer_than_a_run_are_delivered() {
    let _watched = crate::common::watched();
    if cfg!(miri) {
        return; // a hundred thousand slots take too long
    }
    let stage = |kind, after: &[usize]| Stage { kind, workers: 3, after: after.to_vec() };
    use StageKind::{PoolReader, PoolUpdater, Reader, Updater};
    let shapes = [
        Shape(vec![stage(Reader, &[])]),
        Shape(vec![stage(PoolReader, &[]), stage(PoolUpdater, &[0]), stage(Reader, &[1])]),
        Shape(vec![stage(Updater, &[]), stage(PoolReader, &[0]), stage(Reader, &[0])]),
    ];
    let live = |len| Publication { len, live: true };
    let dead = |len| Publication { len, live: false };
    for shape in &shapes {
        for (capacity, start) in
            [(1 << 16, 0), (1 << 17, 0u64.wrapping_sub(40_000)), (1 << 16, (1 << 48) - 40_000)]
        {
            for many in [false, true] {
                let script = [
                    live(7),
                    live(32_768),
                    dead(32_769),
                    live(32_769),
                    dead(65_536),
                    live(50_000),
                    dead(40_000),
                    live(capacity),
                    dead(1),
                    live(65_535),
                    dead(capacity),
                    live(1),
                ];
                run::<Interleaved>(shape, capacity, many, start, &script, 10_000);
            }
        }
        run::<Contiguous>(
            shape,
            1 << 16,
            true,
            3,
            &[live(60_000), dead(60_000), live(65_536)],
            usize::MAX,
        );
    }
}

#[test]
fn batches_longer_than_a_run_are_delivered() {
    let _watched = crate::common::watched();
    if cfg!(miri) {
        return;
    }
    for workers in [1, 3] {
        let mut next = 0;
        let done = slipring::ring(1 << 16, || 0u32)
            .first_seq(0u64.wrapping_sub(50_000))
            .update_pool("add", workers, |_| |event, _| *event += 1)
            .read("check", |event, _| {
                assert_eq!(*event, next + 1);
                next += 1;
            })
            .run_shared(|producer| {
                Ok(producer.publish_batches(40_000, 0..150_000, |event, i| *event = i)?)
            });
        let done = done.unwrap();
        assert_eq!((done.value, next), (150_000, 150_000));
        // The rest of the last claim becomes a tombstone.
        assert_eq!(done.report.producer().tombstones, 10_000);
        assert_eq!(done.report.stage("check").unwrap().tombstones, 10_000);
        assert_eq!(done.report.stage("add").unwrap().tombstones, 10_000);
    }
}
