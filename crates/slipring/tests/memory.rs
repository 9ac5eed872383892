//! Sizes that are too large: each is a build error, never a panic or an abort. Miri ends at an
//! allocation that is larger than memory, so these tests do not run there.
#![cfg(not(miri))]

mod common;

use slipring::{Graph, Mirror, Pool, Tap, Wait, errors::BuildError, stages::MAX_STAGE_HANDLES};

/// Sizes that exceed the memory of any machine, or that overflow a machine word when the library
/// computes with them.
const HUGE: [usize; 6] = [1 << 40, 1 << 44, 1 << 50, 1 << 62, 1 << 63, usize::MAX];

fn problem<T>(name: &str, built: Result<T, slipring::Error>) -> BuildError {
    match built.err().unwrap_or_else(|| panic!("{name}: the build succeeded")).kind() {
        slipring::errors::ErrorKind::Build(problem) => problem.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_capacity_beyond_memory_is_a_build_error() {
    let _watched = crate::common::watched();
    for capacity in
        HUGE.into_iter().filter(|capacity| capacity.is_power_of_two() && *capacity > 1 << 43)
    {
        let memory = |name: &str, problem: BuildError| {
            assert!(matches!(problem, BuildError::Memory { .. }), "{name}, {capacity}: {problem}");
            assert!(problem.to_string().contains("no memory for"), "{problem}");
        };
        for every in [1, 3, u64::MAX] {
            let sampled = || Graph::new(capacity, || 0u64).sample_latency(every).allow_overcommit();
            memory("sampled", problem("sampled", sampled().build()));
            memory("contiguous", problem("contiguous", sampled().contiguous().build()));
            let chain = slipring::ring(capacity, || 0u64).allow_overcommit();
            let chain = chain.sample_latency(every).read("r", |_, _| ());
            memory("chain", problem("chain", chain.run(|_| Ok(()))));
        }
        let bytes = Graph::new(capacity, || 0u8).allow_overcommit().sample_latency(1);
        memory("bytes", problem("bytes", bytes.build()));
        let nothing = Graph::new(capacity, || ()).allow_overcommit().contiguous().shared();
        memory("nothing", problem("nothing", nothing.sample_latency(1).build()));
        let sharded = slipring::ring(capacity, || 0u64).allow_overcommit();
        let sharded = sharded.read_shards("s", 2, |v| *v, |_| |_: &u64, _| ());
        memory("shards", problem("shards", sharded.run(|_| Ok(()))));
        memory("mirror", problem("mirror", Mirror::<u64>::allow_overcommit(capacity)));
    }
}

#[test]
fn a_need_beyond_a_machine_word_is_a_build_error() {
    let _watched = crate::common::watched();
    for capacity in [1 << 54, 1 << 63] {
        let sampled = Graph::new(capacity, || [0u64; 1 << 10]).shared().sample_latency(1);
        let keys = ["a", "b"].map(|name| sampled.shard_reader(name, 2, |event| event[0]));
        match problem("graph", sampled.build()) {
            BuildError::MemoryShortage(shortage) => assert_eq!(shortage.needed, u64::MAX),
            // On a system that does not state its available memory, the error is this one.
            other => assert!(matches!(other, BuildError::Memory { .. }), "{other}"),
        }
        drop(keys);
        let mirror = problem("mirror", Mirror::<[u64; 1 << 10]>::new(capacity));
        let expected = |problem: &BuildError| match problem {
            BuildError::MemoryShortage(shortage) => shortage.needed == u64::MAX,
            other => matches!(other, BuildError::Memory { .. }),
        };
        assert!(expected(&mirror), "{mirror}");
    }
}

#[test]
fn room_beyond_the_limit_is_a_build_error() {
    let _watched = crate::common::watched();
    for room in HUGE.into_iter().chain([MAX_STAGE_HANDLES + 1]) {
        let limit = MAX_STAGE_HANDLES.to_string();
        let named = |name: &str, problem: BuildError| {
            let text = problem.to_string();
            assert!(text.contains(&limit) && text.contains(&room.to_string()), "{name}: {text}");
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
        // The ring is as large as the pool, so that only the limit is exceeded.
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
fn a_tap_has_room_up_to_the_limit() {
    let _watched = crate::common::watched();
    let tap = Tap::new().room(MAX_STAGE_HANDLES);
    slipring::ring(8, || 0u64)
        .wait(Wait::Blocking)
        .tap(&tap)
        .run(|p| {
            let mut late = tap.subscribe(slipring::handles::StartAt::Now)?;
            p.publish(|v| *v = 7)?;
            late.batch(1)?.release();
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_conflator_beyond_memory_is_a_build_error() {
    let _watched = crate::common::watched();
    for room in HUGE.into_iter().filter(|room| *room > 1 << 43) {
        let (tx, _rx) = slipring::unicast(8, || 0u64).unwrap();
        let made = tx.conflate(room, |slot, _: &u64, value: u64| *slot = value);
        assert!(matches!(problem("conflator", made), BuildError::Memory { .. }));
    }
}
