//! Pools: room, the last worker, misplaced pools.

use slipring::{
    Graph, Pool,
    errors::{SubscribeError, WaitError},
};

#[test]
fn a_pool_has_limited_room_and_fails_without_workers() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64);
    let work = graph.pool_reader("work", 1).room(2);
    let ring = graph.build().unwrap();
    let (mut tx, mut first) = (ring.producer(), ring.pool_readers(work).pop().unwrap());
    let pool = first.pool();
    let mut second = pool.join().unwrap();
    assert!(matches!(pool.join(), Err(SubscribeError::Full { room: 2 })));
    (0..4).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    assert_eq!(first.poll(1, |_, _| ()).unwrap(), 1);
    drop(first);
    let mut rest = Vec::new();
    while rest.len() < 3 {
        second.poll(8, |v, _| rest.push(*v)).unwrap();
    }
    assert_eq!(rest, [1, 2, 3]);
    drop(pool.join().unwrap());
    drop(second);
    assert!(matches!(pool.join(), Err(SubscribeError::Ended(WaitError::Failed(_)))));
    assert!(tx.publish(|_| ()).is_err());
}

#[test]
fn a_misplaced_pool_is_a_build_error() {
    let _watched = crate::common::watched();
    let wrong = Pool::reading(2);
    let wrong = slipring::ring(8, || 0u64)
        .update_pool("p", 1, |_| |_: &mut u64, _| ())
        .open(&wrong)
        .feed(0..1, |s, i| *s = i)
        .unwrap_err();
    assert_eq!(wrong.to_string(), "pool `p` may update events: open it with `Pool::updating`");
    let small = Pool::reading(1);
    let small = slipring::ring(8, || 0u64)
        .read_pool("p", 2, |_| |_: &u64, _| ())
        .open(&small)
        .feed(0..1, |s, i| *s = i)
        .unwrap_err();
    assert_eq!(
        small.to_string(),
        "pool `p` begins with 2 workers and has room for 1; give it room for all"
    );
    let none = Pool::reading(1);
    let none = slipring::ring(8, || 0u64)
        .read("r", |_, _| ())
        .open(&none)
        .feed(0..1, |s, i| *s = i)
        .unwrap_err();
    assert_eq!(none.to_string(), "`open` follows `r`, which is no pool");
}
