//! Shards: the events of one key stay in order on one shard, and a stage behind sees all in order.

mod common;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use slipring::{
    Graph, OnFault, Wait,
    errors::{BatchError, BuildError, ErrorKind, WaitError},
};

#[derive(Clone, Copy, Default)]
struct Order {
    symbol: u64,
    number: u64,
    sum: u64,
}

/// Runs a writer (if `key_from_writer`), shards and a collector on threads, and asserts that each
/// key keeps its shard and its order.
fn run(
    (capacity, shards): (usize, usize),
    symbols: u64,
    events: u64,
    start: u64,
    (writes, key_from_writer): (bool, bool),
    wait: Wait,
) {
    let seen: Vec<Mutex<Vec<(u64, u64, u64)>>> = (0..shards).map(|_| Mutex::default()).collect();
    let mut sums = Vec::new();
    let note = |shard: usize, order: &Order, seq: u64| {
        seen[shard].lock().unwrap().push((order.symbol, order.number, seq))
    };
    let chain = slipring::ring(capacity, Order::default)
        .wait(wait)
        .first_seq(start)
        .deadline(Duration::from_secs(60));
    let chain = match key_from_writer {
        true => chain.update("symbol", |order, _| order.symbol = order.number * 7919 % symbols),
        false => chain,
    };
    let chain = match writes {
        true => chain.update_shards(
            "shards",
            shards,
            |order| order.symbol,
            |shard| {
                let (mut last, note) = (HashMap::new(), &note);
                move |order: &mut Order, at: slipring::At| {
                    let sum = last.entry(order.symbol).or_insert(0);
                    *sum += order.number;
                    order.sum = *sum;
                    note(shard, order, at.seq);
                }
            },
        ),
        false => chain.read_shards(
            "shards",
            shards,
            |order| order.symbol,
            |shard| {
                let note = &note;
                move |order, at| note(shard, order, at.seq)
            },
        ),
    };
    let done = chain
        .read("collect", |order, at| sums.push((at.seq, order.symbol, order.number, order.sum)))
        .feed(0..events, |slot, i| {
            *slot = Order {
                symbol: if key_from_writer { u64::MAX } else { i * 7919 % symbols },
                number: i,
                sum: 0,
            };
        })
        .unwrap();

    let seen: Vec<Vec<_>> = seen.into_iter().map(|seen| seen.into_inner().unwrap()).collect();
    let mut home = HashMap::new();
    for (shard, seen) in seen.iter().enumerate() {
        assert!(
            seen.windows(2).all(|pair| pair[0].1 < pair[1].1),
            "shard {shard} sees its events in sequence"
        );
        for &(symbol, number, seq) in seen {
            assert_eq!(seq, start.wrapping_add(number));
            assert_eq!(*home.entry(symbol).or_insert(shard), shard, "one key, one shard");
        }
    }
    assert_eq!(seen.iter().map(Vec::len).sum::<usize>() as u64, events, "every event once");
    assert_eq!(sums.len() as u64, events);
    let mut expected = HashMap::new();
    for (i, &(seq, symbol, number, sum)) in sums.iter().enumerate() {
        assert_eq!(
            (seq, number, symbol),
            (start.wrapping_add(i as u64), i as u64, i as u64 * 7919 % symbols)
        );
        let total = expected.entry(symbol).or_insert(0);
        *total += number;
        assert_eq!(sum, if writes { *total } else { 0 });
    }
    let report = done.report.stage("shards").unwrap();
    assert_eq!((report.events, report.lag, report.tombstones), (events, 0, 0));
}

#[test]
fn each_key_keeps_its_shard_and_order_and_stages_behind_see_all_in_order() {
    let _watched = crate::common::watched();
    let events = if cfg!(miri) { 60 } else { 20_000 };
    for (i, (capacity, shards)) in
        [(1, 1), (2, 2), (4, 3), (64, 4), (1024, 2)].into_iter().enumerate()
    {
        let waits = [Wait::Blocking, Wait::YIELDING];
        for how in [(false, false), (true, false), (false, true), (true, true)] {
            let events = if capacity < 8 { events / 10 } else { events };
            run(
                (capacity, shards),
                17,
                events,
                [0, u64::MAX - 30][i % 2],
                how,
                waits[i % 2].clone(),
            );
        }
    }
}

#[test]
fn shards_without_events_do_not_gate() {
    let _watched = crate::common::watched();
    run((8, 4), 1, if cfg!(miri) { 40 } else { 5_000 }, 0, (true, false), Wait::Blocking);
}

#[test]
fn a_second_sharded_stage_partitions_by_another_key() {
    let _watched = crate::common::watched();
    let totals = [const { AtomicU64::new(0) }; 5];
    let mut last = None;
    let events = if cfg!(miri) { 50 } else { 5_000 };
    let done = slipring::ring(32, Order::default)
        .deadline(Duration::from_secs(60))
        .update_shards("first", 2, |order| order.symbol, |_| |order: &mut Order, _| order.sum += 1)
        .update_pool("pool", 2, |_| |order: &mut Order, _| order.symbol = order.number % 5)
        .update_shards(
            "second",
            3,
            |order| order.symbol,
            |_| {
                |order: &mut Order, _| {
                    order.sum += 1;
                    totals[order.symbol as usize].fetch_add(1, Relaxed);
                }
            },
        )
        .read("end", |order, at| {
            assert_eq!(order.sum, 2);
            assert!(last.is_none_or(|last| last + 1 == at.seq));
            last = Some(at.seq);
        })
        .feed(0..events, |slot, i| *slot = Order { symbol: i % 3, number: i, sum: 0 })
        .unwrap();
    assert!(totals.iter().all(|total| total.load(Relaxed) == events / 5));
    assert!(
        ["first", "pool", "second", "end"].iter().all(|stage| done
            .report
            .stage(stage)
            .unwrap()
            .events
            == events)
    );
}

#[test]
fn shards_pass_over_tombstones_of_many_producers() {
    let _watched = crate::common::watched();
    let seen = AtomicU64::new(0);
    let mut behind = 0;
    let each = if cfg!(miri) { 30 } else { 3_000 };
    let done = slipring::ring(16, || 0u64)
        .deadline(Duration::from_secs(60))
        .read_shards(
            "shards",
            3,
            |v| *v,
            |_| {
                |v: &u64, _| {
                    seen.fetch_add(*v, Relaxed);
                }
            },
        )
        .read("end", |v, _| behind += *v)
        .run_shared(|tx| {
            std::thread::scope(|s| {
                for _ in 0..2 {
                    let mut tx = tx.clone();
                    s.spawn(move || {
                        for i in 0..each {
                            let mut claim = tx.claim().unwrap();
                            *claim = i;
                            if i % 3 != 0 {
                                claim.publish();
                            }
                        }
                    });
                }
            });
            Ok(())
        })
        .unwrap();
    let expected = 2 * (0..each).filter(|i| i % 3 != 0).sum::<u64>();
    assert_eq!((seen.load(Relaxed), behind), (expected, expected));
    let published = 2 * (0..each).filter(|i| i % 3 != 0).count() as u64;
    let stage = done.report.stage("shards").unwrap();
    assert_eq!((stage.events, stage.tombstones), (published, 2 * each - published));
}

/// One call of `poll` finds all available events of the shard, even behind tombstones and behind
/// events of other shards.
#[test]
fn one_poll_finds_all_events_of_a_shard() {
    let _watched = crate::common::watched();
    let graph = slipring::Graph::new(64, || 0u64).shared();
    let key = graph.shard_reader("shards", 2, |v| *v);
    let ring = graph.build().unwrap();
    let (mut tx, mut shards) = (ring.producer(), ring.shard_readers(key));
    drop(ring);
    tx.publish(|v| *v = 0).unwrap();
    let first = (0..2).find(|&i| shards[i].poll(8, |_, _| ()).unwrap() == 1).unwrap();
    let (own, others): (Vec<u64>, Vec<u64>) = (1..200).partition(|&key| {
        tx.publish(|v| *v = key).unwrap();
        let seen = shards[first].poll(8, |v, _| assert_eq!(*v, key)).unwrap();
        assert_eq!(shards[1 - first].poll(8, |v, _| assert_eq!(*v, key)).unwrap(), 1 - seen);
        seen == 1
    });
    for keys in [[others[0], own[0], others[1], own[1]], [own[0], others[0], own[1], others[1]]] {
        for key in keys {
            tx.publish(|v| *v = key).unwrap();
            drop(tx.claim().unwrap());
        }
        for rx in &mut shards {
            assert_eq!(rx.poll(usize::MAX, |_, _| ()).unwrap(), 2);
            assert_eq!(rx.poll(usize::MAX, |_, _| ()).unwrap(), 0);
        }
    }
}

#[test]
fn a_key_keeps_its_shard_in_contiguous_rings_and_inline_runs() {
    let _watched = crate::common::watched();
    let sums = [const { AtomicU64::new(0) }; 2];
    let add = |shard: usize| {
        let sums = &sums;
        move |v: &u64, _: slipring::At| {
            sums[shard].fetch_add(*v, Relaxed);
        }
    };
    slipring::ring(8, || 0u64)
        .contiguous()
        .read_shards("s", 2, |v| *v % 10, add)
        .feed(0..100, |slot, i| *slot = i)
        .unwrap();
    let threaded: Vec<u64> = sums.iter().map(|sum| sum.swap(0, Relaxed)).collect();
    slipring::ring(8, || 0u64)
        .read_shards("s", 2, |v| *v % 10, add)
        .run_inline(|p| {
            (0..100).try_for_each(|i| p.publish(|slot| *slot = i).map(drop)).map_err(Into::into)
        })
        .unwrap();
    let inline: Vec<u64> = sums.iter().map(|sum| sum.load(Relaxed)).collect();
    assert_eq!(threaded, inline, "a key changes its shard");
    assert_eq!(threaded.iter().sum::<u64>(), 99 * 50);
}

#[test]
fn a_shards_lease_lends_only_its_own_events() {
    let _watched = crate::common::watched();
    let graph = Graph::new(16, || 0u64);
    let shards = graph.shard_updater("shards", 2, |v: &u64| *v % 100);
    let end = graph.reader("end").after(&shards);
    let ring = graph.build().unwrap();
    assert!(ring.to_string().contains("2 shards by key, updates"), "{ring}");
    let (mut tx, mut shards, mut end) =
        (ring.producer(), ring.shard_updaters(shards), ring.reader(end));
    for i in 0..16 {
        tx.publish(|v| *v = i / 2).unwrap();
    }
    let mut all = Vec::new();
    for shard in &mut shards {
        let mut own = Vec::new();
        // A dropped batch is delivered again.
        let again = shard.try_batch(10).unwrap().iter().copied().collect::<Vec<_>>();
        while let Ok(mut batch) = shard.try_batch(10) {
            assert!(!own.is_empty() || batch.iter().eq(&again));
            own.extend(batch.iter().copied());
            batch.iter_mut().for_each(|v| *v += 100);
            batch.release();
        }
        assert!(!own.is_empty() && own.is_sorted(), "{own:?}");
        all.extend(own);
    }
    all.sort_unstable();
    assert_eq!(all, (0..16).map(|i| i / 2).collect::<Vec<_>>());
    let mut seen = Vec::new();
    end.poll(16, |v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, (0..16).map(|i| 100 + i / 2).collect::<Vec<_>>());
    tx.close();
    for shard in &mut shards {
        assert!(matches!(shard.try_batch(1), Err(BatchError::Wait(WaitError::Closed))));
    }
    end.for_each(|_, _| ()).unwrap();
}

#[test]
fn an_idle_shard_gates_the_producer() {
    let _watched = crate::common::watched();
    let graph = Graph::new(16, || 0u64);
    let shards = graph.shard_reader("shards", 2, |v: &u64| *v);
    let ring = graph.build().unwrap();
    let (mut tx, mut shards) = (ring.producer(), ring.shard_readers(shards));
    for i in 0..16 {
        tx.publish(|v| *v = i).unwrap();
    }
    // Only the first shard polls.
    while shards[0].poll(1, |_, _| ()).unwrap() != 0 {}
    assert!(tx.try_publish(|_| ()).is_err());
    while shards[1].poll(1, |_, _| ()).unwrap() != 0 {}
    tx.try_publish(|_| ()).unwrap();
    drop(shards.pop());
    let error = tx.publish(|_| ()).unwrap_err();
    assert!(
        matches!(&error, WaitError::Failed(failure) if failure.stage().as_str() == "shards"),
        "{error}"
    );
}

#[test]
fn a_key_that_panics_fails_the_stage_that_computes_it() {
    let _watched = crate::common::watched();
    for from_writer in [false, true] {
        let chain = slipring::ring(8, || 0u64);
        let chain = if from_writer { chain.update("before", |_, _| ()) } else { chain };
        let seen = AtomicU64::new(0);
        let error = chain
            .read_shards(
                "shards",
                2,
                |v: &u64| if *v == 5 { panic!("no key") } else { *v },
                |_| {
                    |v: &u64, _| {
                        assert_ne!(*v, 5, "an event without a key is not delivered");
                        seen.fetch_add(1, Relaxed);
                    }
                },
            )
            .feed(0..100, |slot, i| *slot = i)
            .unwrap_err();
        let ErrorKind::Failed(failure) = error.kind() else { panic!("{error}") };
        assert_eq!(
            failure.stage().as_str(),
            if from_writer { "before" } else { slipring::stages::PRODUCER }
        );
        assert_eq!(failure.seq(), Some(5));
        assert!(error.to_string().contains("no key"), "{error}");
        assert!(seen.load(Relaxed) <= 5);
    }
}

#[test]
fn a_key_that_panics_after_its_handler_does_not_abort() {
    let _watched = crate::common::watched();
    let error = slipring::ring(8, || 0u64)
        .update("before", |v, _| {
            if *v == 5 {
                panic!("the handler")
            }
        })
        .read_shards(
            "shards",
            2,
            |v: &u64| if *v == 4 { panic!("the key") } else { *v },
            |_| |_: &u64, _| (),
        )
        .run_inline(|p| {
            (0..100).try_for_each(|i| p.publish(|slot| *slot = i).map(drop)).map_err(Into::into)
        })
        .unwrap_err();
    assert!(error.to_string().contains("before"), "{error}");
}

#[test]
fn a_shard_retries_and_skips_its_own_events() {
    let _watched = crate::common::watched();
    let tries = AtomicU64::new(0);
    let mut behind = 0;
    let done = slipring::ring(16, || 0u64)
        .read_shards(
            "shards",
            3,
            |v: &u64| *v,
            |_| {
                |v: &u64, _| match *v {
                    7 if tries.fetch_add(1, Relaxed) < 3 => Err("busy"),
                    9 => Err("never"),
                    _ => Ok(()),
                }
            },
        )
        .on_error(OnFault::retry(3).then_skip())
        .max_batch(1)
        .read("end", |_, _| behind += 1)
        .feed(0..50, |slot, i| *slot = i)
        .unwrap();
    let stage = done.report.stage("shards").unwrap();
    assert_eq!((tries.load(Relaxed), stage.retries, stage.skipped, behind), (4, 6, 1, 50));
    assert_eq!(stage.events, 50, "a skipped event counts, and a retried event counts once");
}

#[test]
fn shards_out_of_range_or_on_a_shared_thread_are_build_errors() {
    let _watched = crate::common::watched();
    for shards in [0, 9, usize::MAX] {
        let error = slipring::ring(8, || 0u64)
            .read_shards("s", shards, |v: &u64| *v, |_| |_: &u64, _| ())
            .feed(0..1, |_, _| ())
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Build(BuildError::Workers { asked, .. }) if *asked == shards),
            "{error}"
        );
    }
    let error = slipring::ring(8, || 0u64)
        .read_shards("s", 2, |v: &u64| *v, |_| |_: &u64, _| ())
        .on("t")
        .feed(0..1, |_, _| ())
        .unwrap_err();
    assert!(error.to_string().contains("threads of their own"), "{error}");
    let error = slipring::ring(8, || 0u64)
        .read_shards(
            "s",
            2,
            |v: &u64| *v,
            |shard| {
                assert_eq!(shard, 0, "second shard");
                |_: &u64, _| ()
            },
        )
        .feed(0..1, |_, _| ())
        .unwrap_err();
    assert!(error.to_string().contains("second shard"), "{error}");
}
