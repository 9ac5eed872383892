//! Numbers that are too large: every one is an error of the build, and none a panic or an abort.

mod common;

use slipring::{BuildError, Graph, MAX_STAGE_HANDLES, Mirror, Pool, Tap, Wait};

/// Sizes that no machine has memory for, or that no arithmetic of a machine word holds.
const HUGE: [usize; 6] = [1 << 40, 1 << 44, 1 << 50, 1 << 62, 1 << 63, usize::MAX];

fn problem<T>(what: &str, built: Result<T, slipring::Error>) -> BuildError {
    match built.err().unwrap_or_else(|| panic!("{what}: it was built")).kind() {
        slipring::ErrorKind::Build(problem) => problem.clone(),
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn capacities_that_no_memory_holds() {
    let _watched = crate::common::watched();
    for capacity in
        HUGE.into_iter().filter(|capacity| capacity.is_power_of_two() && *capacity > 1 << 43)
    {
        let memory = |what: &str, problem: BuildError| {
            assert!(matches!(problem, BuildError::Memory { .. }), "{what}, {capacity}: {problem}");
            assert!(problem.to_string().contains("no memory for"), "{problem}");
        };
        for every in [1, 3, u64::MAX] {
            memory(
                "sampled",
                problem("sampled", Graph::new(capacity, || 0u64).sample_latency(every).build()),
            );
            memory(
                "contiguous",
                problem(
                    "contiguous",
                    Graph::new(capacity, || 0u64).contiguous().sample_latency(every).build(),
                ),
            );
            let chain =
                slipring::ring(capacity, || 0u64).sample_latency(every).read("r", |_, _| ());
            memory("chain", problem("chain", chain.run(|_| Ok(()))));
        }
        memory("bytes", problem("bytes", Graph::new(capacity, || 0u8).sample_latency(1).build()));
        memory(
            "nothing",
            problem(
                "nothing",
                Graph::new(capacity, || ()).contiguous().shared().sample_latency(1).build(),
            ),
        );
        let sharded =
            slipring::ring(capacity, || 0u64).read_shards("s", 2, |v| *v, |_| |_: &u64, _| ());
        memory("shards", problem("shards", sharded.run(|_| Ok(()))));
        assert!(matches!(Mirror::<u64>::new(capacity), Err(BuildError::Memory { .. })));
    }
}

#[test]
fn rooms_beyond_the_limit() {
    let _watched = crate::common::watched();
    for room in HUGE.into_iter().chain([MAX_STAGE_HANDLES + 1]) {
        let limit = MAX_STAGE_HANDLES.to_string();
        let named = |what: &str, problem: BuildError| {
            let text = problem.to_string();
            assert!(text.contains(&limit) && text.contains(&room.to_string()), "{what}: {text}");
        };
        let tap = Tap::<u64>::new().room(room);
        named(
            "a chain's tap",
            problem("tap", slipring::ring(8, || 0u64).tap(&tap).run(|_| Ok(()))),
        );
        let graph = Graph::new(8, || 0u64);
        let keys = [graph.tap("t", room), graph.tap("u", room)];
        named("taps of a graph", problem("taps", graph.build()));
        drop(keys);
        // A ring that is as large as the pool, so that only the limit stands in the way.
        let capacity = room.checked_next_power_of_two().unwrap_or(1 << 63);
        let graph = Graph::new(capacity, || 0u64);
        let keys = (graph.pool_reader("p", room), graph.pool_reader("q", room));
        named("pools of a graph", problem("pools", graph.build()));
        drop(keys);
        let graph = Graph::new(capacity, || 0u64);
        let key = graph.pool_reader("p", 1).room(room);
        named("a pool's room", problem("room", graph.build()));
        drop(key);
        let graph = Graph::new(capacity, || 0u64);
        let key = graph.shard_reader("s", room, |v| *v);
        named("shards", problem("shards", graph.build()));
        drop(key);
        let pool = Pool::reading(room);
        let chain =
            slipring::ring(capacity, || 0u64).read_pool("p", 1, |_| |_: &u64, _| ()).open(&pool);
        assert!(!format!("{chain}").is_empty());
        named("an open pool", problem("open", chain.run(|_| Ok(()))));
    }
}

#[test]
fn as_much_room_as_the_limit_allows() {
    let _watched = crate::common::watched();
    let tap = Tap::new().room(MAX_STAGE_HANDLES);
    slipring::ring(8, || 0u64)
        .wait(Wait::Blocking)
        .tap(&tap)
        .run(|p| {
            let mut late = tap.subscribe(slipring::StartAt::Now)?;
            p.publish(|v| *v = 7)?;
            late.batch(1)?.release();
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_conflator_that_no_memory_holds() {
    let _watched = crate::common::watched();
    for room in HUGE.into_iter().filter(|room| *room > 1 << 43) {
        let (tx, _rx) = slipring::unicast(8, || 0u64).unwrap();
        let made = tx.conflate(room, |slot, _: &u64, value: u64| *slot = value);
        assert!(matches!(made.map(drop), Err(BuildError::Memory { .. })));
    }
}
