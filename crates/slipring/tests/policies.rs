//! Policies of stages: retry and skip after a failure, size of batches, time of release.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use slipring::{
    At, Error, Graph, OnFault,
    errors::{BatchError, ErrorKind, WaitError},
    faults::{Fault, Marks, Verdict},
    reports::Done,
    stages::{ReadHandler, UpdateHandler},
};

/// Publishes `0..count` and runs the stages on this thread.
fn inline<'env>(chain: slipring::Chain<'env, u64>, count: u64) -> Result<Done<()>, Error> {
    chain.deadline(Duration::from_secs(60)).run_inline(|p| {
        (0..count).try_for_each(|i| p.publish(|slot| *slot = i).map(drop)).map_err(Into::into)
    })
}

/// Runs a stage in batches of at most `batch` events. `fails` says at which events the stage fails,
/// and how often. Returns the events that the stage saw, the events that the stage behind it saw,
/// and the outcome.
fn run_with_retries(
    fails: &[(u64, u32)],
    batch: usize,
    count: u64,
    on: OnFault,
) -> (Vec<u64>, Vec<u64>, Result<Done<()>, Error>) {
    let (mut seen, mut behind, mut left) = (Vec::new(), Vec::new(), fails.to_vec());
    let outcome = inline(
        slipring::ring(16, || 0u64)
            .read("tries", |v, _| {
                seen.push(*v);
                match left.iter_mut().find(|(at, times)| at == v && *times > 0) {
                    Some((_, times)) => {
                        *times -= 1;
                        Err("not yet")
                    }
                    None => Ok(()),
                }
            })
            .on_error(on)
            .max_batch(batch)
            .read("behind", |v, _| behind.push(*v)),
        count,
    );
    (seen, behind, outcome)
}

/// On one thread, `work` returns 0 only if no stage has an event left: a stage that skips an event
/// releases it in its next turn, and a stage that took its turn before gets it in the turn behind.
#[test]
fn a_turn_that_releases_a_skipped_event_counts_as_work() {
    let _watched = crate::common::watched();
    let mut behind = Vec::new();
    slipring::ring(8, || 0u64)
        .read("first", |_, _| ())
        .on("outer")
        .read("skips", |_, _| Err("never"))
        .on_error(OnFault::skip())
        .read("behind", |v, _| behind.push(*v))
        .on("outer")
        .run_inline(|p| {
            p.publish(|slot| *slot = 7)?;
            // Handled once, failed once; released; handled behind.
            assert_eq!([p.work(), p.work(), p.work(), p.work()], [2, 1, 1, 0]);
            p.halt();
            Ok(())
        })
        .unwrap();
    assert_eq!(behind, [7]);
}

#[test]
fn a_retry_starts_again_at_the_last_release() {
    let _watched = crate::common::watched();
    let all: Vec<u64> = (0..8).collect();
    let on = OnFault::retry(3);
    // The first three cases fail at the first, a middle and the last event of a batch of four.
    for (fails, expected) in [
        (vec![(4, 1)], vec![0, 1, 2, 3, 4, 4, 5, 6, 7]),
        (vec![(6, 1)], vec![0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7]),
        (vec![(7, 1)], vec![0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7]),
        // The next cases fail several times, at one event or at several events of a batch.
        (vec![(5, 3)], vec![0, 1, 2, 3, 4, 5, 4, 5, 4, 5, 4, 5, 6, 7]),
        (vec![(4, 1), (5, 1), (7, 1)], vec![0, 1, 2, 3, 4, 4, 5, 4, 5, 6, 7, 4, 5, 6, 7]),
        (vec![(0, 2)], vec![0, 0, 0, 1, 2, 3, 4, 5, 6, 7]),
    ] {
        let (seen, behind, done) = run_with_retries(&fails, 4, 8, on);
        let done = done.unwrap();
        assert_eq!(seen, expected, "{fails:?}");
        assert_eq!(behind, all, "the stage behind gets each event once");
        let stage = done.report.stage("tries").unwrap();
        let retries: u32 = fails.iter().map(|(_, times)| times).sum();
        assert_eq!((stage.retries, stage.events, stage.skipped), (u64::from(retries), 8, 0));
    }
    // In batches of one event, only the failed event is handled again.
    let (seen, behind, done) = run_with_retries(&[(3, 2), (7, 1)], 1, 8, on);
    done.unwrap();
    assert_eq!((seen, behind), (vec![0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 7], all));
}

/// The graph is halted while a handler runs that fails. A failure that is skipped or would be
/// retried is no failure of the graph, as if the halt had come before the handler or between tries.
#[test]
fn a_failure_after_a_halt_is_skipped_but_not_retried() {
    let _watched = crate::common::watched();
    let policies =
        [(OnFault::skip(), Some(1)), (OnFault::retry(5), Some(0)), (OnFault::stop(), None)];
    for (on, skipped) in policies {
        let graph = slipring::Graph::new(8, || 0u64);
        let stage = graph.reader("halts").on_error(on);
        let ring = graph.build().unwrap();
        let mut handlers = ring.handlers();
        let (told, tell) = std::sync::mpsc::channel();
        let (halted, go) = std::sync::mpsc::channel();
        handlers.read(stage, move |_, _| {
            told.send(()).unwrap();
            go.recv().unwrap();
            Err("late")
        });
        let (mut tx, pipeline) = handlers.spawn().unwrap();
        tx.publish(|value| *value = 1).unwrap();
        tell.recv().unwrap();
        pipeline.halt();
        halted.send(()).unwrap();
        drop(tx);
        match pipeline.join() {
            Ok(report) => {
                assert!(report.halted() && skipped == Some(report.stages()[0].skipped), "{report}");
                assert_eq!(report.stages()[0].retries, 0);
            }
            Err(error) => {
                assert!(skipped.is_none() && error.to_string().contains("late"), "{error}")
            }
        }
    }
}

#[test]
fn after_the_last_retry_the_graph_fails_or_the_event_is_skipped() {
    let _watched = crate::common::watched();
    let (seen, behind, outcome) = run_with_retries(&[(5, 10)], 4, 8, OnFault::retry(2));
    let error = outcome.unwrap_err();
    let ErrorKind::Failed(failure) = error.kind() else { panic!("{error}") };
    assert_eq!((failure.stage().as_str(), failure.seq()), ("tries", Some(5)));
    assert!(error.to_string().contains("not yet"), "{error}");
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 4, 5, 4, 5]);
    assert!(behind.len() <= 4);
    let (seen, behind, done) = run_with_retries(&[(5, 10)], 4, 8, OnFault::retry(2).then_skip());
    let done = done.unwrap();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 4, 5, 4, 5, 6, 7]);
    assert_eq!(behind, (0..8).collect::<Vec<_>>());
    assert_eq!(
        (done.report.stage("tries").unwrap().retries, done.report.stage("tries").unwrap().skipped),
        (2, 1)
    );
}

#[test]
fn each_event_has_its_own_number_of_retries() {
    let _watched = crate::common::watched();
    let fails: Vec<_> = (0..8).map(|i| (i, 2)).collect();
    let (_, behind, done) = run_with_retries(&fails, 1, 8, OnFault::retry(2));
    assert_eq!(done.unwrap().report.stage("tries").unwrap().retries, 16);
    assert_eq!(behind.len(), 8);
}

#[test]
fn alternating_failures_use_up_their_retries() {
    let _watched = crate::common::watched();
    // Two events of one batch fail alternately. Retries are counted from release to release, so
    // they run out.
    let mut calls = 0u64;
    let error = inline(
        slipring::ring(16, || 0u64)
            .read("alternating", |v, _| {
                calls += 1;
                assert!(calls < 1000, "endless retries");
                match *v {
                    1 if calls.is_multiple_of(3) => Err("one"),
                    2 => Err("two"),
                    _ => Ok(()),
                }
            })
            .on_error(OnFault::retry(5)),
        4,
    )
    .unwrap_err();
    assert!(error.to_string().contains("alternating"), "{error}");
    // A retry of a later event does not repeat an event that was skipped.
    let (seen, behind, done) =
        run_with_retries(&[(1, 99), (2, 99), (3, 1)], 4, 4, OnFault::retry(1).then_skip());
    assert_eq!(seen, [0, 1, 0, 1, 2, 2, 3, 3]);
    assert_eq!(behind, [0, 1, 2, 3]);
    assert_eq!(done.unwrap().report.stage("tries").unwrap().skipped, 2);
}

#[test]
fn a_batch_end_that_always_fails_can_be_skipped() {
    let _watched = crate::common::watched();
    let log = Mutex::new(Vec::new());
    let done = inline(
        slipring::ring(8, || 0u64)
            .read_with("life", Counting { log: &log, fail_end: u32::MAX, fail_idle: 0 })
            .on_error(OnFault::retry(1).then_skip())
            .max_batch(2),
        4,
    )
    .unwrap();
    assert_eq!(
        log.into_inner().unwrap(),
        [
            "start", "0", "1", "end 2", "0", "1", "end 2", "2", "3", "end 4", "2", "3", "end 4",
            "stop"
        ]
    );
    assert_eq!(
        (done.report.stage("life").unwrap().skipped, done.report.stage("life").unwrap().events),
        (0, 4)
    );
}

#[test]
fn a_retried_writer_finds_its_own_changes() {
    let _watched = crate::common::watched();
    let mut failed = false;
    let mut behind = Vec::new();
    inline(
        slipring::ring(8, || 0u64)
            .update("adds", |v, at: At| {
                *v += 100;
                if at.seq == 2 && !std::mem::replace(&mut failed, true) {
                    Err("once")
                } else {
                    Ok(())
                }
            })
            .on_error(OnFault::retry(1))
            .max_batch(4)
            .read("behind", |v, _| behind.push(*v)),
        4,
    )
    .unwrap();
    assert_eq!(behind, [200, 201, 202, 103]);
}

#[test]
fn skipped_events_are_counted_and_marked_for_later_stages() {
    let _watched = crate::common::watched();
    for on_threads in [false, true] {
        let marks = Marks::new();
        let (mut kept, mut marked) = (Vec::new(), Vec::new());
        let chain = slipring::ring(8, || 0u64)
            .first_seq(u64::MAX - 3)
            .update("parse", |v, _| if *v % 3 == 0 { Err(format!("{v}")) } else { Ok(()) })
            .on_error(OnFault::skip())
            .marks(&marks)
            .read(
                "keep",
                |v, at| if marks.skipped(at.seq) { marked.push(*v) } else { kept.push(*v) },
            );
        let done = if on_threads {
            chain.feed(0..30, |slot, i| *slot = i).map(|done| done.report)
        } else {
            inline(chain, 30).map(|done| done.report)
        };
        assert_eq!(marked, (0..30).filter(|i| i % 3 == 0).collect::<Vec<_>>());
        assert_eq!(kept, (0..30).filter(|i| i % 3 != 0).collect::<Vec<_>>());
        assert_eq!(done.unwrap().stage("parse").unwrap().skipped, 10);
    }
}

#[test]
fn panics_and_errors_have_separate_policies() {
    let _watched = crate::common::watched();
    let faults = Mutex::new(Vec::new());
    let (mut tries, mut behind) = (0, Vec::new());
    let done = inline(
        slipring::ring(8, || 0u64)
            .on_faults(|fault| {
                faults.lock().unwrap().push((fault.seq, fault.verdict, fault.to_string()))
            })
            .read("fragile", |v, _| {
                if *v == 3 {
                    tries += 1;
                    assert!(tries > 2, "three");
                }
                if *v == 5 { Err("five") } else { Ok(()) }
            })
            .on_panic(OnFault::retry(5))
            .on_error(OnFault::skip())
            .max_batch(4)
            .read("behind", |v, _| behind.push(*v)),
        8,
    )
    .unwrap();
    assert_eq!(
        (
            done.report.stage("fragile").unwrap().retries,
            done.report.stage("fragile").unwrap().skipped
        ),
        (2, 1)
    );
    assert_eq!(behind.len(), 8);
    let faults = faults.into_inner().unwrap();
    assert_eq!(faults.len(), 3);
    assert_eq!((faults[0].0, faults[0].1), (Some(3), Verdict::Retried));
    assert_eq!((faults[2].0, faults[2].1), (Some(5), Verdict::Skipped));
    assert!(faults[0].2.contains("fragile") && faults[0].2.contains("three"), "{}", faults[0].2);
    // `on_error` does not apply to panics.
    let error = inline(
        slipring::ring(8, || 0u64)
            .read("s", |_, _| -> () { panic!("no") })
            .on_error(OnFault::skip()),
        1,
    )
    .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Failed(_)), "{error}");
}

#[test]
fn a_hook_that_panics_ends_the_graph_and_names_the_stage() {
    let _watched = crate::common::watched();
    let error = inline(
        slipring::ring(8, || 0u64)
            .on_faults(|_| panic!("the hook"))
            .read("s", |_, _| Err::<(), _>("no"))
            .on_error(OnFault::skip()),
        4,
    )
    .unwrap_err();
    assert!(error.to_string().contains("the hook") && error.to_string().contains("`s`"), "{error}");
}

#[test]
fn a_batch_handler_skips_or_retries_its_batch() {
    let _watched = crate::common::watched();
    let (mut calls, mut behind) = (Vec::new(), 0);
    let marks = Marks::new();
    let mut failed = false;
    let done = inline(
        slipring::ring(16, || 0u64)
            .read_batch("batches", |events, first| {
                calls.push((first, events.len()));
                match first {
                    0 if !std::mem::replace(&mut failed, true) => Err("once"),
                    4 => Err("never"),
                    _ => Ok(()),
                }
            })
            .on_error(OnFault::retry(1).then_skip())
            .marks(&marks)
            .max_batch(4)
            .read("behind", |_, at| behind += u32::from(marks.skipped(at.seq))),
        12,
    )
    .unwrap();
    assert_eq!(calls, [(0, 4), (0, 4), (4, 4), (4, 4), (8, 4)]);
    assert_eq!((behind, done.report.stage("batches").unwrap().skipped), (4, 4));
}

#[test]
fn each_worker_of_a_pool_retries_and_skips_its_own_events() {
    let _watched = crate::common::watched();
    for threads in [false, true] {
        let tries = AtomicU64::new(0);
        let seen = Mutex::new(Vec::new());
        let mut behind = Vec::new();
        let chain = slipring::ring(16, || 0u64)
            .update_pool("pool", 3, |_| {
                |v: &mut u64, _| match *v {
                    11 if tries.fetch_add(1, Relaxed) < 2 => Err("busy"),
                    20 => Err("never"),
                    _ => {
                        seen.lock().unwrap().push(*v);
                        Ok(())
                    }
                }
            })
            .on_error(OnFault::retry(2).then_skip())
            .max_batch(1)
            .read("behind", |v, _| behind.push(*v));
        let report = if threads {
            chain.feed(0..40, |slot, i| *slot = i).unwrap().report
        } else {
            inline(chain, 40).unwrap().report
        };
        let pool = report.stage("pool").unwrap();
        assert_eq!((pool.retries, pool.skipped, pool.events), (4, 1, 40));
        assert_eq!(behind, (0..40).collect::<Vec<_>>());
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (0..40).filter(|i| *i != 20).collect::<Vec<_>>(), "each at least once");
    }
}

#[test]
fn a_pause_before_a_retry_ends_with_the_graph() {
    let _watched = crate::common::watched();
    let began = Instant::now();
    let error = slipring::ring(8, || 0u64)
        .read("stubborn", |_, _| Err::<(), _>("busy"))
        .on_error(OnFault::retry(u32::MAX).pause(Duration::from_secs(3600)))
        .run(|tx| {
            tx.publish(|_| ())?;
            std::thread::sleep(Duration::from_millis(20));
            tx.halt();
            Ok(())
        });
    assert!(began.elapsed() < Duration::from_secs(600));
    // A halt is not a stage's failure; the report shows that the event was not handled.
    match error {
        Ok(done) => assert_eq!(done.report.stage("stubborn").unwrap().events, 0),
        Err(error) => assert!(!error.is_build(), "{error}"),
    }
}

/// Logs its calls.
struct Counting<'a> {
    log: &'a Mutex<Vec<String>>,
    /// Number of `batch_end` calls that fail.
    fail_end: u32,
    /// Number of `idle` calls that fail.
    fail_idle: u32,
}

impl ReadHandler<u64> for Counting<'_> {
    fn start(&mut self) -> Result<(), Fault> {
        self.log.lock().unwrap().push("start".into());
        Ok(())
    }
    fn event(&mut self, event: &u64, _: At) -> Result<(), Fault> {
        self.log.lock().unwrap().push(event.to_string());
        Ok(())
    }
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        self.log.lock().unwrap().push(format!("end {next_seq}"));
        match std::mem::take(&mut self.fail_end) {
            0 => Ok(()),
            left => {
                self.fail_end = left - 1;
                Err(std::io::Error::other("end").into())
            }
        }
    }
    fn idle(&mut self) -> Result<(), Fault> {
        self.log.lock().unwrap().push("idle".into());
        if self.fail_idle == 0 {
            return Ok(());
        }
        self.fail_idle -= 1;
        Err(std::io::Error::other("idle").into())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.log.lock().unwrap().push("stop".into());
        Ok(())
    }
}

#[test]
fn a_batch_end_that_fails_is_retried_between_start_and_stop() {
    let _watched = crate::common::watched();
    let log = Mutex::new(Vec::new());
    inline(
        slipring::ring(8, || 0u64)
            .read_with("life", Counting { log: &log, fail_end: 1, fail_idle: 0 })
            .on_error(OnFault::retry(1))
            .max_batch(2),
        4,
    )
    .unwrap();
    assert_eq!(
        log.into_inner().unwrap(),
        ["start", "0", "1", "end 2", "0", "1", "end 2", "2", "3", "end 4", "stop"]
    );
    // A failed batch end has no event to skip, so the stage continues.
    let log = Mutex::new(Vec::new());
    let done = inline(
        slipring::ring(8, || 0u64)
            .read_with("life", Counting { log: &log, fail_end: 1, fail_idle: 0 })
            .on_error(OnFault::skip())
            .max_batch(2),
        4,
    )
    .unwrap();
    assert_eq!(
        (done.report.stage("life").unwrap().skipped, done.report.stage("life").unwrap().events),
        (0, 4)
    );
    assert_eq!(log.into_inner().unwrap().iter().filter(|line| *line == "3").count(), 1);
}

#[test]
fn idle_is_called_before_a_wait_and_then_periodically() {
    let _watched = crate::common::watched();
    let threads = ["own", "one", "shared"];
    for (threads, fail_idle) in threads.into_iter().flat_map(|on| [(on, 0), (on, 2)]) {
        let log = Mutex::new(Vec::new());
        let chain = slipring::ring(8, || 0u64)
            .read_with("life", Counting { log: &log, fail_end: 0, fail_idle })
            .on_error(OnFault::retry(5))
            .idle_every(Duration::from_millis(2));
        let chain = match threads {
            "own" => chain,
            "one" => chain.on("t").read("other", |_, _| ()).on("t"),
            _ => chain.threads(3).read("other", |_, _| ()),
        };
        chain
            .run(|tx| {
                tx.publish(|slot| *slot = 1)?;
                let deadline = Instant::now() + Duration::from_secs(30);
                // The loop ends only if `idle` is called several times in one wait.
                while log.lock().unwrap().iter().filter(|line| *line == "idle").count() < 8 {
                    assert!(
                        Instant::now() < deadline,
                        "no more idle calls: {:?}",
                        log.lock().unwrap()
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
                tx.publish(|slot| *slot = 2)?;
                Ok(())
            })
            .unwrap();
        let log = log.into_inner().unwrap();
        assert!(log.contains(&"2".to_owned()) && log.last().unwrap() == "stop", "{log:?}");
    }
}

struct Journal(Vec<u64>);

impl UpdateHandler<u64> for Journal {
    fn event(&mut self, event: &mut u64, _: At) -> Result<(), Fault> {
        self.0.push(*event);
        *event = 0;
        Ok(())
    }
}

#[test]
fn max_batch_limits_the_size_of_a_batch() {
    let _watched = crate::common::watched();
    let sizes = Mutex::new(Vec::new());
    let mut journal = Journal(Vec::new());
    inline(
        slipring::ring(64, || 0u64)
            .read_batch("three", |events, _| sizes.lock().unwrap().push(events.len()))
            .max_batch(3)
            .update_with("journal", &mut journal)
            .max_batch(0),
        20,
    )
    .unwrap();
    let sizes = sizes.into_inner().unwrap();
    assert_eq!((sizes.iter().sum::<usize>(), *sizes.iter().max().unwrap()), (20, 3));
    assert_eq!(journal.0.len(), 20);
}

#[test]
fn the_front_of_a_batch_is_released_early() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64);
    let stage = graph.updater("stage");
    let ring = graph.build().unwrap();
    let (mut tx, mut stage) = (ring.producer(), ring.updater(stage));
    (0..4).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    let mut batch = stage.try_batch(4).unwrap();
    assert!(tx.try_publish(|_| ()).is_err());
    batch.release_front(0);
    batch.release_front(3);
    assert_eq!((batch.len(), batch[0], batch.first_seq()), (1, 3, 3));
    assert_eq!(batch.get_mut(1), None);
    (4..7).for_each(|i| _ = tx.try_publish(|slot| *slot = i).unwrap());
    assert!(tx.try_publish(|_| ()).is_err(), "the last one is still held");
    batch.release_front(1);
    assert!(batch.is_empty());
    batch.release();
    tx.try_publish(|slot| *slot = 7).unwrap();
    let mut seen = Vec::new();
    stage.poll(8, |v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [4, 5, 6, 7]);
}

#[test]
#[should_panic(expected = "cannot release 5 events of a batch of 4")]
fn releasing_more_events_than_the_batch_has_panics() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    (0..4).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    rx.try_batch(4).unwrap().release_front(5);
}

#[test]
fn held_batches_are_released_up_to_a_position() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(8, || 0u64).unwrap();
    (0..8).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    rx.try_batch(3).unwrap().hold();
    rx.try_batch(3).unwrap().hold();
    assert_eq!(rx.next_seq(), 6);
    assert!(tx.try_publish(|_| ()).is_err(), "all are held");
    rx.release_until(2);
    (8..10).for_each(|i| _ = tx.try_publish(|slot| *slot = i).unwrap());
    assert!(tx.try_publish(|_| ()).is_err());
    rx.release_until(1); // already released
    assert!(tx.try_publish(|_| ()).is_err());
    rx.release_until(u64::MAX / 2); // releases only held events
    let mut seen = Vec::new();
    while let Ok(batch) = rx.try_batch(8) {
        seen.extend(batch.iter().copied());
        batch.hold();
    }
    assert_eq!(seen, [6, 7, 8, 9]);
    tx.close();
    assert!(matches!(rx.batch(1), Err(WaitError::Closed)));
}

#[test]
fn held_events_before_a_tombstone_stay_held() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64).shared();
    let (first, second) = (graph.reader("first"), graph.reader("second"));
    let second = second.after(&first);
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut second) =
        (ring.producer(), ring.reader(first), ring.reader(second));
    tx.publish(|slot| *slot = 1).unwrap();
    drop(tx.claim().unwrap());
    first.try_batch(4).unwrap().hold();
    assert!(matches!(first.try_batch(4), Err(BatchError::Unavailable)));
    assert!(
        matches!(second.try_batch(4), Err(BatchError::Unavailable)),
        "the first stage has not released it"
    );
    first.release_until(1);
    assert_eq!(second.try_batch(4).unwrap().len(), 1);
}

#[test]
fn a_reader_that_holds_the_whole_ring_waits_for_itself() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(2, || 0u64).unwrap();
    (0..2).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    rx.batch(2).unwrap().hold();
    let error = rx.batch(1).unwrap_err();
    assert!(
        matches!(&error, WaitError::WaitsForItself(stage) if stage.as_str() == "reader"),
        "{error}"
    );
    rx.release_until(1);
    tx.publish(|slot| *slot = 2).unwrap();
    assert_eq!(rx.batch(1).unwrap()[0], 2);
}

#[test]
fn a_stages_own_loop_may_return_early_or_panic() {
    let _watched = crate::common::watched();
    let error = slipring::ring(8, || 0u64)
        .read_by("own", |rx| rx.batch(1).map(|batch| batch.release()))
        .feed(0..100, |slot, i| *slot = i);
    let error = error.unwrap_err();
    assert!(error.to_string().contains("own"), "{error}");
    let mut changed = Vec::new();
    slipring::ring(8, || 0u64)
        .update_by("own", |rx| {
            let _ = rx.for_each(|v, _| *v += 1);
            Ok::<(), Fault>(())
        })
        .read("behind", |v, _| changed.push(*v))
        .feed(0..100, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(changed, (1..=100).collect::<Vec<_>>());
    let error = slipring::ring(8, || 0u64)
        .read_by("own", |_| -> () { panic!("own loop") })
        .feed(0..100, |slot, i| *slot = i)
        .unwrap_err();
    assert!(error.to_string().contains("own loop"), "{error}");
}

#[test]
fn settings_without_a_stage_and_marks_of_two_stages_are_build_errors() {
    let _watched = crate::common::watched();
    let misplaced = |chain: slipring::Chain<'_, u64>| match inline(chain, 1) {
        Err(error) if error.is_build() => error.to_string(),
        other => panic!("{other:?}"),
    };
    let ring = || slipring::ring(8, || 0u64);
    for text in [
        misplaced(ring().on_error(OnFault::skip())),
        misplaced(ring().on_panic(OnFault::skip())),
        misplaced(ring().max_batch(3)),
        misplaced(ring().idle_every(Duration::ZERO)),
        misplaced(ring().tap(&slipring::Tap::new()).max_batch(3)),
    ] {
        assert!(
            text.contains("must follow") || text.contains("readers are not the chain's"),
            "{text}"
        );
    }
    let own = || ring().read_by("own", |rx| rx.for_each(|_, _| ()).map(drop));
    for text in [
        misplaced(own().on_error(OnFault::skip())),
        misplaced(own().max_batch(1)),
        misplaced(own().marks(&Marks::new())),
    ] {
        assert!(text.contains("`own`, which has a loop of its own"), "{text}");
    }
    let marks = Marks::new();
    let text =
        misplaced(ring().read("a", |_, _| ()).marks(&marks).read("b", |_, _| ()).marks(&marks));
    assert!(text.contains("`b`"), "{text}");
    let text = misplaced(ring().read_by("own", |_| ()));
    assert!(text.contains("own"), "{text}");
    assert!(!marks.skipped(3) && !Marks::new().skipped(0));
}
