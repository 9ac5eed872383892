//! Reports and the printed forms of rings and chains.

use std::thread;
use std::time::Duration;

use slipring::{Graph, Wait, stages::PRODUCER};

use crate::common::ends;

#[test]
fn a_report_counts_events_batches_and_tombstones() {
    let _watched = crate::common::watched();
    let graph = Graph::new(16, || 0u64).shared();
    let pool = graph.pool_reader("pool", 2);
    let last = graph.reader("last").after(&pool);
    let ring = graph.build().unwrap();
    let (mut tx, mut pool, mut last) =
        (ring.producer(), ring.pool_readers(pool), ring.reader(last));
    tx.publish(|_| ()).unwrap();
    drop(tx.claim_n(3).unwrap());
    tx.claim_n(4).unwrap().publish();
    tx.publish_batches(4, 0..5, |_, _| ()).unwrap();
    tx.close();
    for worker in pool.iter_mut() {
        worker.poll(2, |_, _| ()).unwrap();
    }
    while pool[0].poll(9, |_, _| ()).is_ok() {
        pool[1].poll(9, |_, _| ()).ok();
    }
    last.batch(1).unwrap().release();
    last.batch(9).unwrap().release();
    last.for_each(|_, _| ()).unwrap();
    drop((pool, last));
    let report = ring.report();
    let names: Vec<&str> = report.stages().iter().map(|stage| &*stage.name).collect();
    assert_eq!(names, ["pool", "last", PRODUCER]);
    let of = |name: &str| report.stage(name).map(|stage| (stage.events, stage.tombstones)).unwrap();
    assert_eq!((of("pool"), of("last"), of(PRODUCER)), ((10, 6), (10, 6), (10, 6)));
    assert_eq!(report.producer().batches, 4);
    let last = report.stage("last").unwrap();
    assert!((2..=10).contains(&last.batches), "{}", last.batches);
    assert!(report.stage("missing").is_none() && !report.halted());

    let shown = report.to_string();
    for expected in ["stage", "events", "batches", "tombstones", "pool", "last", PRODUCER] {
        assert!(shown.contains(expected), "{shown}");
    }
    assert_eq!(shown.lines().count(), 4 + usize::from(report.bottleneck().is_some()), "{shown}");
}

#[test]
fn the_bottleneck_is_the_slowest_stage() {
    let _watched = crate::common::watched();
    for slow in ["a", "b", "c", PRODUCER] {
        let report = ends(&format!("bottleneck {slow}"), move || {
            let work = move |name| {
                if name == slow {
                    // The sleep is far longer than any delay that the other stages have on a busy
                    // machine or under Miri.
                    thread::sleep(Duration::from_millis(if cfg!(miri) { 1_000 } else { 20 }));
                }
            };
            let done = slipring::ring(4, || 0u64)
                .update("a", move |_, _| work("a"))
                .update_pool("b", 1, move |_| move |_, _| work("b"))
                .read("c", move |_, _| work("c"))
                .feed(0..10, |_, _| work(PRODUCER))
                .unwrap();
            done.report
        });
        assert_eq!(&*report.bottleneck().unwrap().name, slow, "{report}");
        assert!(report.to_string().contains(&format!("`{slow}`")), "{report}");
    }
}

#[test]
fn rings_and_chains_print_their_stages_and_sizes() {
    let _watched = crate::common::watched();
    let graph = Graph::new(64, || 0u64);
    let parse = graph.pool_updater("parse", 3);
    let (a, b) = (graph.reader("journal").after(&parse), graph.reader("ui").after(&parse));
    let last = graph.updater("last").after(&a).after(&b);
    let ring = graph.build().unwrap();
    let shown = ring.to_string();
    for expected in [
        "64 slots",
        "16 bytes",
        "one producer",
        "adaptive",
        "pool of 3, updates, after producer",
        "updates, after journal and ui",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(shown.contains("gating the producer: last"), "{shown}");
    assert_eq!(format!("{ring:?}"), shown);
    assert_eq!(
        ring.stages().map(|name| name.to_string()).collect::<Vec<_>>(),
        ["parse", "journal", "ui", "last"]
    );
    drop((parse, a, b, last));

    let shown = slipring::ring(8, || 0u64)
        .contiguous()
        .wait(Wait::SLEEPING)
        .update("w", |_, _| ())
        .on("io")
        .fan_out(|side| side.read("a", |_, _| ()).read_pool("b", 2, |_| |_, _| ()))
        .to_string();
    for expected in [
        "8 slots",
        "contiguous",
        "sleeping",
        "on thread io",
        "pool of 2, reads, after w",
        "gating the producer: a and b",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(slipring::ring(8, || 0u64).to_string().contains("overwritten unseen"));
}

/// `format!` panics at a width beyond 2^16 - 1.
#[test]
fn names_of_any_length_are_printed() {
    let _watched = crate::common::watched();
    let long = "n".repeat(70_000);
    let chain = || slipring::ring(8, || 0u64).read(&long, |_, _| ()).read("short", |_, _| ());
    let shown = chain().to_string();
    let done = chain().feed(0..8, |slot, i| *slot = i).unwrap();
    let graph = Graph::new(8, || 0u64);
    let _key = graph.reader(&long);
    for text in [shown, done.report.to_string(), graph.build().unwrap().to_string()] {
        assert!(
            text.contains(&long)
                && text.lines().filter(|line| !line.contains(&long)).all(|line| line.len() < 200)
        );
    }
}
