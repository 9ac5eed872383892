//! Every shape of graph that users ask for.

use slipring::{Graph, Tap, Wait, handles::StartAt};
use std::{
    collections::HashMap,
    error::Error,
    io::{self, Write as _},
    thread,
};

#[derive(Default, Clone, Debug)]
struct Reading {
    raw: String,
    station: u32,
    value: f64,
    seen: u32,
}
impl Reading {
    fn fill(&mut self, line: &str) {
        self.raw.clear();
        self.raw.push_str(line);
        self.seen = 0
    } // slots are reused, so each field is reset
    fn parse(&mut self) -> Result<(), std::num::ParseFloatError> {
        let (s, v) = self.raw.split_once(',').unwrap_or(("0", &self.raw));
        self.station = s.parse().unwrap_or(0);
        self.value = v.parse()?;
        Ok(())
    }
}

#[test]
fn every_shape_compiles_and_runs() -> Result<(), Box<dyn Error>> {
    let _watched = crate::common::watched();
    let lines: Vec<String> = (0..1000).map(|i| format!("{},{}", i % 7, i as f64 / 2.0)).collect();

    // 1. Unicast; the library starts the thread.
    let (mut tx, mut rx) = slipring::unicast(64, || 0u64)?;
    thread::scope(|s| {
        s.spawn(move || {
            for i in 0..1000 {
                tx.publish(|slot| *slot = i).unwrap();
            }
            tx.close()
        });
        let mut sum = 0;
        rx.for_each(|n, _| sum += n).unwrap();
        assert_eq!(sum, 499_500);
    });

    // 2. Three workers in parallel and output in order, in one expression whose handlers borrow
    //    locals.
    let mut out = Vec::new();
    let done = slipring::ring(128, Reading::default)
        .update_pool("parse", 3, |_worker| |r, _| r.parse())
        .read("retire", |r, at| {
            assert_eq!(at.seq as usize, out.len());
            out.push(r.value)
        })
        .feed(&lines, |slot, line| slot.fill(line))?;
    assert_eq!(out.len(), 1000);
    print!("{}", done.report);

    // 3. Diamond. Handlers use local state that is available after `run`, a handler returns an I/O
    //    result, and the producer uses `?` and `Ok(())`.
    let (mut journal, mut stats, mut last) = (Vec::new(), HashMap::<u32, f64>::new(), 0);
    slipring::ring(1 << 10, Reading::default)
        .wait(Wait::Blocking)
        .update("parse", |r, _| r.parse())
        .fan_out(|side| {
            side.read("journal", |r, _| writeln!(journal, "{}", r.raw))
                .read("stats", |r, _| *stats.entry(r.station).or_default() += r.value)
        })
        .read_batch("retire", |events, first_seq| last = first_seq + events.len() as u64)
        .run(|p| {
            for line in io::BufRead::lines(lines.join("\n").as_bytes()) {
                let line = line?;
                p.publish(|slot| slot.fill(&line))?;
            }
            Ok(())
        })?;
    assert_eq!(
        (stats.len(), last, journal.iter().filter(|&&b| b == b'\n').count()),
        (7, 1000, 1000)
    );

    // 4. Nested: a.then(FanOut.to(FanOut.to(b).and(c)).and(d.then(e))).then(f)
    let (mut b, mut c, mut d, mut e, mut f) = (0, 0, 0, 0, 0);
    slipring::ring(64, || 0u64)
        .fan_out(|x| {
            x.fan_out(|y| y.read("b", |v, _| b += v).read("c", |v, _| c += v))
                .branch(|y| y.read("d", |v, _| d += v).read("e", |v, _| e += v))
        })
        .read("f", |v, _| f += v)
        .feed(0..100, |slot, i| *slot = i)?;
    assert_eq!([b, c, d, e, f], [4950; 5]);

    // 4b. QuestDB's worker pool as one branch beside a journal: a pool that only reads.
    let pool_sum = std::sync::atomic::AtomicU64::new(0);
    let mut all = 0;
    slipring::ring(64, || 0u64)
        .fan_out(|x| {
            x.read_pool("workers", 3, |_| {
                |v, _| {
                    pool_sum.fetch_add(*v, std::sync::atomic::Ordering::Relaxed);
                }
            })
            .read("journal", |v, _| all += v)
        })
        .feed(0..100, |slot, i| *slot = i)?;
    assert_eq!((pool_sum.into_inner(), all), (4950, 4950));

    // 4c. A chain whose length is known only at run time.
    let mut stages = slipring::ring(64, || 0u64);
    for i in 0..4 {
        stages = stages.update(&format!("add-{i}"), |v, _| *v += 1)
    }
    let mut sum = 0;
    stages.read("sum", |v, _| sum += v).feed(0..10, |slot, i| *slot = i)?;
    assert_eq!(sum, 45 + 40);

    // 5. Subscribing and unsubscribing on another thread while the ring runs.
    let tap = Tap::new();
    slipring::ring(64, || 0u64)
        .update("double", |v, _| *v *= 2)
        .tap(&tap)
        .read("end", |_, _| ())
        .run(|p| {
        for i in 0..10 {
            p.publish(|v| *v = i)?;
        }
        thread::scope(|s| {
            let (joined, at) = std::sync::mpsc::channel();
            let tap = &tap;
            let late = s.spawn(move || {
                let mut sub = tap.subscribe(StartAt::Now)?;
                joined.send(()).ok();
                let batch = sub.batch(8)?;
                let first = batch[0];
                batch.release();
                Ok::<_, slipring::errors::WaitError>(first) // dropped here: unsubscribed
            });
            at.recv().ok();
            for i in 10..200 {
                p.publish(|v| *v = i)?;
            }
            assert!(late.join().unwrap()? % 2 == 0);
            Ok(())
        })
    })?;

    // 6. A graph declared at run time, polled on this thread by a loop with other work.
    let g = Graph::new(64, Reading::default);
    let parse = g.updater("parse");
    let ui = g.reader("ui").after(&parse);
    let audit = g.reader("audit").after(&parse);
    let ring = g.build()?;
    let (mut tx, mut parse, mut ui, mut audit) =
        (ring.producer(), ring.updater(parse), ring.reader(ui), ring.reader(audit));
    let (mut sent, mut shown, mut audited) = (0, 0, 0);
    while audited < 100 {
        if sent < 100
            && let Ok(mut slot) = tx.try_claim()
        {
            slot.fill(&lines[sent]);
            slot.publish();
            sent += 1
        }
        if let Ok(mut batch) = parse.try_batch(16) {
            for r in batch.iter_mut() {
                r.parse()?;
                r.seen += 1
            }
            batch.release()
        }
        shown += ui.poll(16, |r, _| assert_eq!(r.seen, 1)).map_err(|e| format!("{e:?}"))?;
        audited += audit.poll(4, |_, _| ()).map_err(|e| format!("{e:?}"))?;
        // ... timers, sockets ...
    }
    assert_eq!((sent, shown), (100, 100));

    // 7. Many producers.
    let mut total = 0;
    slipring::ring(64, || 0u64).read("sum", |v, _| total += v).run_shared(|p| {
        thread::scope(|s| {
            for _ in 0..3 {
                let mut p = p.clone();
                s.spawn(move || p.publish_all(0..100, |slot, i| *slot = i));
            }
        });
        Ok(())
    })?;
    assert_eq!(total, 3 * 4950);

    // 8. Async: slots are lent without a copy, and no thread waits.
    let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    let sum = block_on(async {
        let mut sum = 0;
        for i in 0..8 {
            tx.publish_async(|v| *v = i).await.unwrap();
        }
        tx.close();
        while let Ok(batch) = rx.batch_async(4).await {
            sum += batch.iter().sum::<u64>();
            batch.release()
        }
        sum
    });
    assert_eq!(sum, 28);

    // 9. `spawn`: the stages outlive the function.
    let (tally, seen) = std::sync::mpsc::channel();
    let (mut tx, pipeline) =
        slipring::ring(8, || 0u64).read("forward", move |v, _| tally.send(*v)).spawn()?;
    tx.publish(|v| *v = 7)?;
    tx.close();
    pipeline.join()?;
    assert_eq!(seen.recv()?, 7);

    // 10. Errors name the stage and the event, and carry the user's own error.
    let failure = slipring::ring(64, Reading::default)
        .update("parse", |r, _| r.parse())
        .feed(["1,2.0", "1,x"], |s, l| s.fill(l))
        .unwrap_err();
    println!("{failure}");
    assert!(failure.downcast_ref::<std::num::ParseFloatError>().is_some());
    println!(
        "{}",
        slipring::ring(64, || 0u64)
            .read("boom", |_, _| panic!("out of cheese"))
            .feed(0..3, |s, i| *s = i)
            .unwrap_err()
    );
    println!(
        "{}",
        slipring::ring(1000, || 0u64).read("r", |_, _| ()).feed(0..3, |s, i| *s = i).unwrap_err()
    );
    let g = Graph::new(8, || 0u64);
    let (_a, _b) = (g.updater("enrich"), g.reader("journal"));
    println!("{}", g.build().err().unwrap());
    Ok(())
}

fn block_on<F: Future>(f: F) -> F::Output {
    let mut f = std::pin::pin!(f);
    loop {
        if let std::task::Poll::Ready(v) =
            f.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
        {
            return v;
        }
        thread::yield_now()
    }
}
