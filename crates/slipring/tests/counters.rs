//! Reports of a running graph: positions, lags, counts, waits and latencies.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use slipring::{Graph, Monitor, Wait, stages::PRODUCER};

#[test]
fn a_running_graph_reports_positions_lags_and_free_slots() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64).publish_cursor().first_seq(u64::MAX - 1);
    let parse = graph.pool_updater("parse", 2);
    let (end, tap) = (graph.reader("end").after(&parse), graph.tap("tap", 1).after(&parse));
    let ring = graph.build().unwrap();
    let (mut tx, mut parse, mut end, _tap) =
        (ring.producer(), ring.pool_updaters(parse), ring.reader(end), ring.tap(tap));
    let monitor = ring.monitor();
    let position_and_lag = |stage: &str| {
        let report = monitor.report().unwrap();
        let stage = report.stage(stage).unwrap();
        (stage.seq, stage.lag)
    };
    (0..5).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    assert_eq!(
        (position_and_lag("parse"), position_and_lag("end"), position_and_lag("tap")),
        ((u64::MAX - 1, 5), (u64::MAX - 1, 5), (u64::MAX - 1, 5))
    );
    assert_eq!(position_and_lag(PRODUCER), (3, 0));
    let mut parsed = 0;
    while parsed < 5 {
        parsed +=
            parse.iter_mut().map(|worker| worker.poll(1, |v, _| *v += 1).unwrap()).sum::<usize>();
    }
    assert_eq!(
        (position_and_lag("parse"), position_and_lag("end"), position_and_lag("tap")),
        ((3, 0), (u64::MAX - 1, 5), (3, 0))
    );
    assert_eq!(end.poll(2, |_, _| ()).unwrap(), 2);
    let now = monitor.report().unwrap();
    assert_eq!((now.capacity(), now.published_seq(), now.remaining()), (8, Some(3), Some(5)));
    assert_eq!(position_and_lag("end"), (0, 3));
    drop((ring, tx, parse, end));
    assert!(monitor.report().is_none(), "a monitor does not keep the graph alive");
}

#[test]
fn counts_are_flushed_at_waits_and_after_many_batches() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64).shared();
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut tx, mut end) = (ring.producer(), ring.reader(end));
    for i in 0..2048 {
        tx.publish(|slot| *slot = i).unwrap();
        assert_eq!(end.poll(1, |_, _| ()).unwrap(), 1);
    }
    drop(tx.try_claim().unwrap());
    let now = ring.report();
    assert_eq!((now.stage("end").unwrap().events, now.stage("end").unwrap().batches), (2048, 2048));
    assert_eq!(now.published_seq(), Some(2049), "includes claims");
    // A short wait may end before it sleeps, for example under load or in Miri.
    let slept = (0..20).any(|round: u32| {
        let short = Duration::from_millis(5 << round.min(8));
        assert!(end.batch_by(1, Instant::now() + short).is_err());
        ring.report().stage("end").unwrap().wakes > 0
    });
    let now = ring.report();
    let end_now = now.stage("end").unwrap();
    assert_eq!((end_now.events, end_now.tombstones, end_now.lag), (2048, 1, 0));
    assert!(slept && end_now.waits >= 1);
    assert!(
        now.waited("end", PRODUCER).unwrap() > Duration::ZERO
            && now.waited(PRODUCER, "end") == Some(Duration::ZERO)
    );
    assert_eq!(now.waited("end", "missing"), None);
    drop(tx);
    let now = ring.report();
    assert_eq!((now.producer().events, now.producer().tombstones), (2048, 1));
}

const EVENTS: u64 = if cfg!(miri) { 1_000 } else { 20_000 };

#[test]
fn a_monitor_reports_a_chain_from_another_thread() {
    let _watched = crate::common::watched();
    let began = Instant::now();
    let monitor = Monitor::new();
    assert!(monitor.report().is_none());
    let watching = thread::scope(|s| {
        let watched = monitor.clone();
        let watcher = s.spawn(move || {
            let end = Instant::now() + Duration::from_secs(20);
            let mut polls = 0;
            while Instant::now() < end {
                match watched.report() {
                    None if polls > 0 => break,
                    None => thread::yield_now(),
                    Some(report) => {
                        polls += 1;
                        let (first, second) =
                            (report.stage("first").unwrap(), report.stage("second").unwrap());
                        assert!(
                            first.events <= EVENTS && second.lag <= 64 + report.capacity() as u64,
                            "{report}"
                        );
                        thread::sleep(Duration::from_micros(100));
                    }
                }
            }
            polls
        });
        slipring::ring(64, || 0u64)
            .wait(Wait::YIELDING)
            .monitor(&monitor)
            .sample_latency(50)
            .update("first", |v, _| *v += 1)
            .read("second", |_, _| ())
            .feed(0..EVENTS, |slot, i| *slot = i)
            .map(|done| (done, watcher.join().unwrap()))
    });
    let (done, polls) = watching.unwrap();
    assert!(polls > 0, "no report while the chain ran");
    let latency = |stage: &str| done.report.stage(stage).unwrap().latency.expect("sampled");
    for stage in ["first", "second"] {
        let latency = latency(stage);
        assert!(
            latency.samples > EVENTS / 200 && latency.samples <= EVENTS / 64 + 1,
            "{latency:?}"
        );
        assert!(
            latency.p50 <= latency.p99
                && latency.p99 <= latency.max
                && latency.max <= began.elapsed()
        );
    }
    assert!(done.report.producer().latency.is_none());
    assert!(done.report.to_string().contains("`second` released after"));
}

#[test]
fn a_pool_behind_many_producers_samples_latencies() {
    let _watched = crate::common::watched();
    let began = Instant::now();
    let done = slipring::ring(16, || 0u64)
        .sample_latency(1)
        .read_pool("pool", 2, |_| |_, _| ())
        .run_shared(|p| {
            let mut other = p.clone();
            // The run has enough events for workers to lose the race for the last available event
            // now and then.
            for i in 0..if cfg!(miri) { 100 } else { 5_000 } {
                p.publish(|slot| *slot = i)?;
                other.publish(|slot| *slot = i)?;
                drop(other.claim()?);
            }
            Ok(())
        })
        .unwrap();
    let latency = done.report.stage("pool").unwrap().latency.unwrap();
    assert!(latency.samples > 0 && latency.max <= began.elapsed(), "{latency:?}");
}

#[test]
fn stages_that_share_threads_count_their_turns() {
    let _watched = crate::common::watched();
    let pause = Duration::from_millis(1);
    // Both workers must be in a handler at once, so two threads run the pool. In a ring of four
    // slots a chunk has one event. With larger chunks, a worker could take the last two events and
    // then wait for the other worker for ever.
    let meet = std::sync::Barrier::new(2);
    let monitor = Monitor::new();
    let done = slipring::ring(4, || 0u64)
        .threads(3)
        .monitor(&monitor)
        .read("sleeps", |_, _| thread::sleep(pause))
        .read_pool("meets", 2, |_| {
            |_: &u64, _| {
                meet.wait();
            }
        })
        .read("own thread", |_, _| {
            let turns = monitor.report().unwrap().stage("sleeps").unwrap().turns;
            assert!(turns.is_some(), "a running graph tells of its turns");
        })
        .on("io")
        .feed(0..4, |slot, i| *slot = i)
        .unwrap();
    let turns = |stage: &str| done.report.stage(stage).unwrap().turns;
    let sleeps = turns("sleeps").unwrap();
    assert!(sleeps.ran >= 4 * pause && sleeps.count >= 1, "{sleeps:?}");
    assert!((1..=3).contains(&sleeps.threads), "{sleeps:?}");
    let meets = turns("meets").unwrap();
    assert!((2..=3).contains(&meets.threads) && meets.count >= 4, "{meets:?}");
    assert!(turns("own thread").is_none() && turns(PRODUCER).is_none());
    let text = done.to_string();
    assert!(text.contains("`sleeps` ran 0.0") && text.contains(" turns on "), "{text}");
}

/// One stage has its own thread. The stages that share threads wait for it, and so does the
/// producer. The report names the stage that they waited for.
#[test]
fn a_report_says_who_waited_for_whom_on_shared_threads() {
    let _watched = crate::common::watched();
    for threads in [2, 3] {
        let done = slipring::ring(8, || 0u64)
            .wait(Wait::Blocking)
            .threads(threads)
            .read("slow", |_, _| thread::sleep(Duration::from_millis(2)))
            .on("own")
            .read("fast", |_, _| ())
            .read("last", |_, _| ())
            .feed(0..60, |slot, i| *slot = i)
            .unwrap();
        let report = &done.report;
        assert_eq!(&*report.bottleneck().unwrap().name, "slow", "{threads} threads\n{report}");
        let waited = report.waited("fast", "slow").unwrap();
        assert!(waited >= Duration::from_millis(20), "{threads} threads\n{report}");
    }
}

#[test]
fn stages_that_take_turns_on_one_thread_count_them() {
    let _watched = crate::common::watched();
    let chain = || slipring::ring(8, || 0u64).read("a", |_, _| ()).on("io");
    let done = chain().read("b", |_, _| ()).on("io").feed(0..50, |slot, i| *slot = i).unwrap();
    for stage in &done.report.stages()[..2] {
        let turns = stage.turns.unwrap();
        assert!(turns.count > 0 && turns.threads == 1, "{turns:?}");
    }
    let inline = chain().run_inline(|tx| Ok(tx.publish_all(0..50, |slot, i| *slot = i)?)).unwrap();
    assert!(inline.report.stage("a").unwrap().turns.is_none(), "no clock is read");
}

#[cfg(feature = "metrics")]
#[test]
fn a_recorder_gets_each_series_by_ring_and_stage() {
    let _watched = crate::common::watched();
    use metrics::{
        Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };
    use std::sync::{Arc, Mutex};

    /// Keeps the last value of every series.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<std::collections::BTreeMap<String, f64>>>);
    struct Series(Kept, String);
    impl metrics::CounterFn for Series {
        fn increment(&self, _: u64) {}
        fn absolute(&self, value: u64) {
            self.0.0.lock().unwrap().insert(self.1.clone(), value as f64);
        }
    }
    impl metrics::GaugeFn for Series {
        fn increment(&self, _: f64) {}
        fn decrement(&self, _: f64) {}
        fn set(&self, value: f64) {
            self.0.0.lock().unwrap().insert(self.1.clone(), value);
        }
    }
    impl Kept {
        fn series(&self, key: &Key) -> Arc<Series> {
            let labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            Arc::new(Series(self.clone(), format!("{} {}", key.name(), labels.join(" "))))
        }
    }
    impl Recorder for Kept {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.series(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.series(key))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    let graph = Graph::new(8, || 0u64).publish_cursor();
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut tx, mut end) = (ring.producer(), ring.reader(end));
    (0..5).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    end.poll(2, |_, _| ()).unwrap();
    let kept = Kept::default();
    metrics::with_local_recorder(&kept, || ring.monitor().report().unwrap().export("feed"));
    drop((end, tx));
    let kept = kept.0.lock().unwrap();
    let value = |series: &str| kept.get(series).copied();
    assert_eq!(value("slipring_lag_events ring=feed stage=end"), Some(3.0), "{kept:?}");
    assert_eq!(value("slipring_remaining_slots ring=feed"), Some(5.0));
    assert_eq!(value("slipring_tombstones_total ring=feed stage=producer"), Some(0.0));

    let done = slipring::ring(8, || 0u64).threads(1).read("a", |_, _| ()).feed(0..9, |_, _| ());
    let (kept, report) = (Kept::default(), done.unwrap().report);
    metrics::with_local_recorder(&kept, || report.export("shared"));
    let kept = kept.0.lock().unwrap();
    let turns = report.stage("a").unwrap().turns.unwrap();
    let value = |series: &str| kept.get(&format!("{series} ring=shared stage=a")).copied();
    assert_eq!(value("slipring_turns_total"), Some(turns.count as f64), "{kept:?}");
    assert_eq!(value("slipring_threads"), Some(1.0));
    assert_eq!(value("slipring_ran_seconds"), Some(turns.ran.as_secs_f64()));
}
