//! An asker learns of the end of its graph, no matter how a stage fails, where the stages run, and
//! what becomes of the promise.
//!
//! An event's `reaction` tells the stage to answer, or to end the graph before it takes the
//! promise, which then stays in its slot.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Awaited, Graph, OnFault, Promise, SharedProducer, Wait,
    errors::{AwaitError, Cause, WaitError},
    faults::Fault,
    handles::StartAt,
};

use crate::common::block_on;

use crate::common::{PURPOSE, ends, quiet};

/// The answering stage's reaction to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Reaction {
    #[default]
    Answer,
    Fail,
    Panic,
    /// Releases the request, and leaves the promise in its slot.
    Ignore,
}

#[derive(Default)]
struct Request {
    reaction: Reaction,
    answer: Option<Promise<u64>>,
}

impl Request {
    fn fill(reaction: Reaction) -> impl FnOnce(&mut Request, Promise<u64>) {
        move |request, answer| *request = Request { reaction, answer: Some(answer) }
    }

    fn handle(&mut self) -> Result<(), &'static str> {
        match self.reaction {
            Reaction::Answer => {
                if let Some(answer) = self.answer.take() {
                    let _ = answer.fulfil(7);
                }
            }
            Reaction::Fail => return Err("an error"),
            Reaction::Panic => panic!("a stage {PURPOSE}"),
            Reaction::Ignore => {}
        }
        Ok(())
    }
}

#[track_caller]
fn assert_failed(result: Result<u64, AwaitError>, stage: &str) {
    match result {
        Err(AwaitError::Wait(WaitError::Failed(failure))) => {
            assert_eq!(&**failure.stage(), stage, "{failure}");
        }
        other => panic!("{other:?}"),
    }
}

/// An asker's way to wait.
#[derive(Clone, Copy, Debug)]
enum AskerWait {
    Thread,
    Task,
    Poll,
}

const ASKER_WAITS: [AskerWait; 3] = [AskerWait::Thread, AskerWait::Task, AskerWait::Poll];

impl AskerWait {
    fn wait(self, mut answer: Awaited<u64>) -> Result<u64, AwaitError> {
        match self {
            AskerWait::Thread => answer.wait(),
            AskerWait::Task => block_on(answer),
            AskerWait::Poll => loop {
                if let Some(value) = answer.try_take()? {
                    break Ok(value);
                }
                thread::yield_now();
            },
        }
    }
}

/// The threads that the stages run on.
#[derive(Clone, Copy, Debug)]
enum RunsOn {
    Threads,
    Shared(usize),
    Pool,
    SharedPool,
    Shards,
}

const RUNS_ON: [RunsOn; 6] = [
    RunsOn::Threads,
    RunsOn::Shared(1),
    RunsOn::Shared(2),
    RunsOn::Pool,
    RunsOn::SharedPool,
    RunsOn::Shards,
];

/// Sends requests with these reactions one by one, in a graph with one stage before the answering
/// stage and one behind it. Returns the result of each request, and the failure of the run.
fn run(
    runs_on: RunsOn,
    wait: Wait,
    on: OnFault,
    how: AskerWait,
    reactions: &'static [Reaction],
) -> (Vec<Result<u64, AwaitError>>, Option<String>) {
    ends(&format!("{runs_on:?}, {wait}, {how:?}, {reactions:?}"), move || {
        let mut results = Vec::new();
        let chain = slipring::ring(4, Request::default).wait(wait).update("before", |_, _| ());
        let handle = |request: &mut Request, _| request.handle();
        let chain = match runs_on {
            RunsOn::Threads | RunsOn::Shared(_) => chain.update("answer", handle),
            RunsOn::Pool | RunsOn::SharedPool => chain.update_pool("answer", 2, |_| handle),
            RunsOn::Shards => {
                chain.update_shards("answer", 2, |request| request.reaction as u8, |_| handle)
            }
        };
        let chain = chain.on_error(on).on_panic(on).read("behind", |_, _| ());
        let chain = match runs_on {
            RunsOn::Shared(threads) => chain.threads(threads),
            RunsOn::SharedPool => chain.threads(1),
            _ => chain,
        };
        let done = chain.run(|producer| {
            for &reaction in reactions {
                let answer = producer.ask(Request::fill(reaction))?;
                results.push(how.wait(answer));
            }
            Ok(())
        });
        (results, done.err().map(|error| error.to_string()))
    })
}

#[test]
fn a_failure_before_the_promise_is_taken_ends_the_wait() {
    let _watched = crate::common::watched();
    for runs_on in RUNS_ON {
        for how in ASKER_WAITS {
            for reactions in
                [&[Reaction::Answer, Reaction::Fail][..], &[Reaction::Answer, Reaction::Panic]]
            {
                let (mut results, error) =
                    run(runs_on, Wait::ADAPTIVE, OnFault::stop(), how, reactions);
                assert_failed(results.pop().unwrap(), "answer");
                assert_eq!(results, [Ok(7)]);
                let error = error.unwrap();
                assert!(error.contains("`answer`") && error.contains("event 1"), "{error}");
            }
        }
    }
}

#[test]
fn every_strategy_hears_of_a_failure() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let of_answer = wait.clone();
        let (result, asked) = ends(&format!("{wait}"), move || {
            let mut result = None;
            let asked = slipring::ring(4, Request::default)
                .wait(of_answer.clone())
                .update("answer", |request, _| {
                    thread::sleep(Duration::from_millis(2));
                    request.handle()
                })
                .run(|producer| {
                    let answer = producer.ask(Request::fill(Reaction::Fail))?;
                    result = Some(answer.with_wait(of_answer).wait());
                    Ok(())
                });
            (result.unwrap(), asked.is_err())
        });
        assert_failed(result, "answer");
        assert!(asked);
    }
}

/// If the answering stage skips a request, the request gets no answer, and the graph continues.
#[test]
fn a_skip_ends_the_wait_and_not_the_graph() {
    let _watched = crate::common::watched();
    for runs_on in RUNS_ON {
        for how in ASKER_WAITS {
            let reactions = &[Reaction::Fail, Reaction::Answer, Reaction::Panic, Reaction::Answer];
            let (results, error) = run(runs_on, Wait::ADAPTIVE, OnFault::skip(), how, reactions);
            let skipped = Err(AwaitError::Skipped);
            assert_eq!(results, [skipped.clone(), Ok(7), skipped, Ok(7)], "{runs_on:?} {how:?}");
            assert_eq!(error, None);
        }
    }
}

/// A stage behind the one that skipped the request answers it.
#[test]
fn a_later_stage_answers_what_an_earlier_one_has_skipped() {
    let _watched = crate::common::watched();
    for how in ASKER_WAITS {
        let result = ends(&format!("{how:?}"), move || {
            let mut result = None;
            slipring::ring(4, Request::default)
                .update("skips", |request, _| request.handle())
                .on_error(OnFault::skip())
                .update("answers", |request, _| {
                    thread::sleep(Duration::from_millis(3));
                    request.reaction = Reaction::Answer;
                    request.handle()
                })
                .run(|producer| {
                    let answer = producer.ask(Request::fill(Reaction::Fail))?;
                    result = Some(how.wait(answer));
                    Ok(())
                })
                .unwrap();
            result.unwrap()
        });
        assert_eq!(result, Ok(7));
    }
}

#[test]
fn a_halt_ends_the_wait() {
    let _watched = crate::common::watched();
    for how in ASKER_WAITS {
        let result = ends(&format!("{how:?}"), move || {
            let graph = Graph::new(4, Request::default).shared();
            let key = graph.updater("never");
            let ring = graph.build().unwrap();
            let (mut tx, rx) = (ring.producer(), ring.updater(key));
            let other = tx.clone();
            let halting = thread::spawn(move || {
                thread::sleep(Duration::from_millis(2));
                other.halt();
            });
            let result = how.wait(tx.ask(Request::fill(Reaction::Answer)).unwrap());
            halting.join().unwrap();
            drop(rx);
            result
        });
        assert_eq!(result, Err(AwaitError::Wait(WaitError::Halted)));
    }
}

#[test]
fn a_dropped_handle_ends_the_wait() {
    let _watched = crate::common::watched();
    for how in ASKER_WAITS {
        let result = ends(&format!("{how:?}"), move || {
            let (mut tx, rx) = slipring::unicast(4, Request::default).unwrap();
            let dropping = thread::spawn(move || {
                thread::sleep(Duration::from_millis(2));
                drop(rx);
            });
            let result = how.wait(tx.ask(Request::fill(Reaction::Answer)).unwrap());
            dropping.join().unwrap();
            result
        });
        assert_failed(result, "reader");
    }
}

/// The deadline passes while the stage's handler does not return.
#[test]
fn the_deadline_of_the_graph_ends_the_wait() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let result = ends(&format!("{wait}"), move || {
            let (done, is_done) = channel::<()>();
            let mut result = None;
            let run = slipring::ring(4, Request::default)
                .deadline(Duration::from_millis(20))
                .update("hangs", move |_, _| {
                    let _ = is_done.recv();
                })
                .run(|producer| {
                    let answer = producer.ask(Request::fill(Reaction::Answer))?;
                    result = Some(answer.with_wait(wait).wait());
                    drop(done);
                    Ok(())
                });
            assert!(matches!(run.unwrap_err().failure().unwrap().cause(), Cause::Deadline(_)));
            result.unwrap()
        });
        assert!(matches!(result, Err(AwaitError::Wait(WaitError::Failed(_)))), "{result:?}");
    }
}

/// The promise stays in its slot while the ring is closed and drained.
#[test]
fn a_close_ends_the_wait_once_the_stages_have_passed_the_request() {
    let _watched = crate::common::watched();
    for how in ASKER_WAITS {
        let (before, after) = ends(&format!("a handle that ends, {how:?}"), move || {
            let (mut tx, mut rx) = slipring::unicast(4, Request::default).unwrap();
            let mut answer = tx.ask(Request::fill(Reaction::Ignore)).unwrap();
            let kept = tx.ask(Request::fill(Reaction::Answer)).unwrap();
            tx.close();
            // The stage has not passed the requests, and may still answer.
            let before = answer.try_take();
            let stage = thread::spawn(move || {
                thread::sleep(Duration::from_millis(2));
                rx.for_each(|_, _| ()).unwrap();
                rx
            });
            let after = how.wait(answer);
            drop(stage.join().unwrap());
            (before, [after, how.wait(kept)])
        });
        assert_eq!(before, Ok(None));
        assert_eq!(after[0], Err(AwaitError::Wait(WaitError::Closed)));
        // Dropping the ring drops the promises, too.
        assert!(matches!(after[1], Err(AwaitError::Broken | AwaitError::Wait(WaitError::Closed))));
    }
}

/// The handle that makes the last release stays alive and is not called again.
#[test]
fn a_thread_hears_of_the_last_release_after_the_close() {
    let _watched = crate::common::watched();
    let result = ends("a handle that stays", || {
        let (mut tx, mut rx) = slipring::unicast(4, Request::default).unwrap();
        let mut answer = tx.ask(Request::fill(Reaction::Ignore)).unwrap();
        tx.close();
        let (done, is_done) = channel::<()>();
        let stage = thread::spawn(move || {
            thread::sleep(Duration::from_millis(2));
            assert_eq!(rx.poll(4, |_, _| ()).unwrap(), 1);
            let _ = is_done.recv();
        });
        let result = answer.wait();
        drop(done);
        stage.join().unwrap();
        result
    });
    assert_eq!(result, Err(AwaitError::Wait(WaitError::Closed)));
}

/// A tap holds a request up while one of its readers does, and then no more.
#[test]
fn a_tap_passes_a_request_that_no_reader_holds() {
    let _watched = crate::common::watched();
    for how in ASKER_WAITS {
        let (held, closed) =
            ends(&format!("a reader that leaves a closed ring, {how:?}"), move || {
                let graph = Graph::new(4, Request::default).shared();
                let (stage, tap) = (graph.reader("stage"), graph.tap("tap", 1));
                let ring = graph.build().unwrap();
                let (mut tx, mut rx, tap) = (ring.producer(), ring.reader(stage), ring.tap(tap));
                let reader = tap.subscribe(StartAt::Now).unwrap();
                let mut answer = tx.ask(Request::fill(Reaction::Ignore)).unwrap();
                tx.close();
                assert_eq!(rx.for_each(|_, _| ()).unwrap(), 1);
                let held = answer.try_take();
                let leaving = thread::spawn(move || {
                    thread::sleep(Duration::from_millis(2));
                    drop(reader);
                });
                let closed = how.wait(answer);
                leaving.join().unwrap();
                drop((ring, rx));
                (held, closed)
            });
        assert_eq!((held, closed), (Ok(None), Err(AwaitError::Wait(WaitError::Closed))));
        let skipped = ends(&format!("a reader that leaves an open ring, {how:?}"), move || {
            let graph = Graph::new(4, Request::default).shared().wait(Wait::Blocking);
            let stage = graph.updater("stage").on_error(OnFault::skip());
            let tap = graph.tap("tap", 1).after(&stage);
            let ring = graph.build().unwrap();
            let tap = ring.tap(tap);
            let mut handlers = ring.handlers();
            handlers.update(stage, |request: &mut Request, _| request.handle());
            let (mut tx, pipeline) = handlers.spawn().unwrap();
            let reader = tap.subscribe(StartAt::Now).unwrap();
            let answer = tx.ask(Request::fill(Reaction::Fail)).unwrap();
            let leaving = thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                drop(reader);
            });
            let skipped = how.wait(answer);
            leaving.join().unwrap();
            drop(tx);
            pipeline.join().unwrap();
            skipped
        });
        assert_eq!(skipped, Err(AwaitError::Skipped));
    }
}

/// If a stage has handed a promise on, the promise may be fulfilled after the end. The wait then
/// returns the value.
#[test]
fn a_promise_that_was_handed_on_may_be_fulfilled_after_the_end() {
    let _watched = crate::common::watched();
    let (first, then) = ends("fulfilled after the halt", || {
        let (hand, handed) = channel::<Promise<u64>>();
        let graph = Graph::new(4, || Option::<Promise<u64>>::None);
        let key = graph.updater("hands on");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.updater(key));
        let mut answer = tx.ask(|event, answer| *event = Some(answer)).unwrap();
        rx.poll(4, |event, _| hand.send(event.take().unwrap()).unwrap()).unwrap();
        // Every stage has passed the request, but the graph still runs, so the answer may still
        // come.
        assert_eq!(answer.try_take(), Ok(None));
        assert_eq!(answer.wait_for(Duration::from_millis(1)), Err(AwaitError::TimedOut));
        tx.halt();
        let first = answer.wait();
        assert!(answer.is_settled());
        drop((tx, rx, ring));
        assert_eq!(answer.wait(), first);
        handed.recv().unwrap().fulfil(7).unwrap();
        (first, answer.wait())
    });
    assert_eq!(first, Err(AwaitError::Wait(WaitError::Halted)));
    assert_eq!(then, Ok(7));
}

/// An answer outlives its ring, and still says how the graph ended.
#[test]
fn an_answer_outlives_its_ring() {
    let _watched = crate::common::watched();
    ends("after a failure", || {
        quiet();
        let mut kept = Vec::new();
        let mut promises = Vec::new();
        let error = slipring::ring(4, Request::default)
            .update("answer", |request, at| {
                if at.seq == 0 {
                    promises.extend(request.answer.take());
                    return Ok(());
                }
                request.handle()
            })
            .run(|producer| {
                kept.push(producer.ask(Request::fill(Reaction::Answer))?);
                kept.push(producer.ask(Request::fill(Reaction::Fail))?);
                Ok(())
            })
            .unwrap_err();
        assert_eq!(error.stage(), Some("answer"));
        // The promise of the second request was dropped together with its slot.
        assert_eq!(kept[1].wait(), Err(AwaitError::Broken));
        assert_failed(kept[0].wait(), "answer");
        assert_failed(block_on(&mut kept[0]), "answer");
        drop(promises);
        assert_eq!(kept[0].wait(), Err(AwaitError::Broken));
    });
    ends("after a close", || {
        let (mut tx, rx) = slipring::unicast(4, || 0u64).unwrap();
        let mut promise = None;
        let mut answer = tx.ask(|_, answer: Promise<u64>| promise = Some(answer)).unwrap();
        tx.close();
        let mut rx = rx;
        rx.for_each(|_, _| ()).unwrap();
        drop(rx);
        assert_eq!(answer.wait(), Err(AwaitError::Wait(WaitError::Closed)));
        assert_eq!(block_on(&mut answer), Err(AwaitError::Wait(WaitError::Closed)));
        promise.unwrap().fulfil(7).unwrap();
        assert_eq!(answer.wait(), Ok(7));
    });
}

/// Several threads send requests, and one of the requests makes the stage fail.
#[test]
fn all_askers_hear_of_a_failure() {
    let _watched = crate::common::watched();
    for how in ASKER_WAITS {
        let results = ends(&format!("{how:?}"), move || {
            let (tx, pipeline) = slipring::ring(8, Request::default)
                .update("answer", |request, _| request.handle())
                .spawn_shared()
                .unwrap();
            let ask = |reaction, mut tx: SharedProducer<Request>| {
                thread::spawn(move || {
                    let answer = tx.ask(Request::fill(reaction)).map_err(AwaitError::Wait)?;
                    drop(tx);
                    how.wait(answer)
                })
            };
            let ignored: Vec<_> = (0..4).map(|_| ask(Reaction::Ignore, tx.clone())).collect();
            thread::sleep(Duration::from_millis(2));
            let failing = ask(Reaction::Fail, tx.clone());
            // The ring stays open, because a close would end the waits for requests that the stages
            // have passed.
            let results: Vec<_> =
                ignored.into_iter().chain([failing]).map(|asker| asker.join().unwrap()).collect();
            drop(tx);
            assert!(pipeline.join().is_err());
            results
        });
        for result in results {
            assert_failed(result, "answer");
        }
    }
}

/// Each task, on an executor of one thread, sends a request. Its wait ends with the failure of the
/// graph.
#[test]
fn tasks_hear_of_a_failure() {
    let _watched = crate::common::watched();
    let results = ends("tasks", || {
        let (tx, pipeline) = slipring::ring(8, Request::default)
            .update("answer", |request, _| {
                thread::sleep(Duration::from_millis(1));
                request.handle()
            })
            .spawn_shared()
            .unwrap();
        let ask = |reaction| {
            let mut tx = tx.clone();
            async move {
                let answer =
                    tx.ask_async(Request::fill(reaction)).await.map_err(AwaitError::Wait)?;
                answer.await
            }
        };
        let reactions = [
            Reaction::Answer,
            Reaction::Ignore,
            Reaction::Answer,
            Reaction::Fail,
            Reaction::Ignore,
        ];
        let mut tasks: Vec<_> = reactions.map(|reaction| Box::pin(ask(reaction))).into();
        let mut results = vec![None; tasks.len()];
        block_on(std::future::poll_fn(|context| {
            for (task, result) in tasks.iter_mut().zip(&mut results) {
                if result.is_none()
                    && let Poll::Ready(output) = task.as_mut().poll(context)
                {
                    *result = Some(output);
                }
            }
            if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        }));
        drop((tasks, tx));
        assert!(pipeline.join().is_err());
        results
    });
    let mut results = results.into_iter().flatten();
    assert_eq!(results.next(), Some(Ok(7)));
    assert_failed(results.next().unwrap(), "answer");
    assert_eq!(results.next(), Some(Ok(7)));
    assert_failed(results.next().unwrap(), "answer");
    assert_failed(results.next().unwrap(), "answer");
}

/// The asker's own thread runs all stages.
#[test]
fn an_asker_on_a_single_thread_runs_the_stages() {
    let _watched = crate::common::watched();
    for how in ASKER_WAITS {
        let (results, error) = ends(&format!("{how:?}"), move || {
            let mut results = Vec::new();
            let run = slipring::ring(2, Request::default)
                .update("before", |_, _| ())
                .update("answer", |request, _| request.handle())
                .run_inline(|p| {
                    for reaction in [Reaction::Answer, Reaction::Answer, Reaction::Fail] {
                        let answer = p.ask(Request::fill(reaction))?;
                        if matches!(how, AskerWait::Poll) {
                            while p.work() != 0 {}
                        }
                        results.push(how.wait(answer));
                    }
                    Ok(())
                });
            (results, run.unwrap_err())
        });
        assert_eq!(results[..2], [Ok(7), Ok(7)]);
        assert_failed(results[2].clone(), "answer");
        assert_eq!(error.stage(), Some("answer"));
    }
}

/// A handler asks its own ring, and then waits for an answer that only its own stage could give.
#[test]
fn a_handler_that_waits_for_its_own_answer_is_refused() {
    let _watched = crate::common::watched();
    for threads in [0, 1, 2] {
        for wait in Wait::all() {
            let result = ends(&format!("{threads} shared threads, {wait}"), move || {
                let (own, mine) = channel::<SharedProducer<Request>>();
                let (tell, told) = channel();
                let mut chain = slipring::ring(8, Request::default);
                if threads != 0 {
                    chain = chain.threads(threads);
                }
                let answer = move |request: &mut Request, _| -> Result<(), Fault> {
                    if request.reaction == Reaction::Ignore
                        && let Ok(mut producer) = mine.try_recv()
                    {
                        let answer = producer.ask(Request::fill(Reaction::Answer))?;
                        tell.send(answer.with_wait(wait.clone()).wait())?;
                    }
                    request.handle().map_err(Fault::msg)
                };
                let (mut tx, pipeline) = chain
                    .update("before", |_, _| ())
                    .update("answer", answer)
                    .read("behind", |_, _| ())
                    .spawn_shared()
                    .unwrap();
                own.send(tx.clone()).unwrap();
                tx.publish(|request| request.reaction = Reaction::Ignore).unwrap();
                let result = told.recv().unwrap();
                drop((tx, own));
                pipeline.join().unwrap();
                result
            });
            match result {
                Err(AwaitError::Wait(WaitError::WaitsForItself(stage))) => {
                    assert_eq!(&*stage, "answer");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A handler that asks an earlier stage of its own ring gets its answer.
#[test]
fn a_handler_may_wait_for_an_earlier_stage() {
    let _watched = crate::common::watched();
    for threads in [0, 1, 2] {
        for how in [AskerWait::Thread, AskerWait::Poll] {
            if threads == 1 && matches!(how, AskerWait::Poll) {
                continue; // no other thread runs the earlier stage
            }
            let result = ends(&format!("{threads} shared threads, {how:?}"), move || {
                let (own, mine) = channel::<SharedProducer<Request>>();
                let (tell, told) = channel();
                let mut chain = slipring::ring(8, Request::default);
                if threads != 0 {
                    chain = chain.threads(threads);
                }
                let ask = move |request: &Request, _| -> Result<(), Fault> {
                    if request.reaction == Reaction::Ignore
                        && let Ok(mut producer) = mine.try_recv()
                    {
                        tell.send(how.wait(producer.ask(Request::fill(Reaction::Answer))?))?;
                    }
                    Ok(())
                };
                let (mut tx, pipeline) = chain
                    .update("answer", |request, _| request.handle())
                    .read("asks", ask)
                    .spawn_shared()
                    .unwrap();
                own.send(tx.clone()).unwrap();
                tx.publish(|request| request.reaction = Reaction::Ignore).unwrap();
                let result = told.recv().unwrap();
                drop((tx, own));
                pipeline.join().unwrap();
                result
            });
            assert_eq!(result, Ok(7));
        }
    }
}

/// A self-wait begins while an earlier stage may still answer. That stage does not answer, so the
/// wait must end with an error.
#[test]
fn a_self_wait_is_found_when_the_last_other_stage_has_passed_the_request() {
    let _watched = crate::common::watched();
    let result = ends("an earlier stage that ignores the request", || {
        let (own, mine) = channel::<SharedProducer<Request>>();
        let (tell, told): (Sender<_>, _) = channel();
        let (mut tx, pipeline) = slipring::ring(8, Request::default)
            .update("slow", |_, _| thread::sleep(Duration::from_millis(20)))
            .read("asks", move |_, _| -> Result<(), Fault> {
                if let Ok(mut producer) = mine.try_recv() {
                    tell.send(producer.ask(Request::fill(Reaction::Ignore))?.wait())?;
                }
                Ok(())
            })
            .spawn_shared()
            .unwrap();
        own.send(tx.clone()).unwrap();
        tx.publish(|_| ()).unwrap();
        let result = told.recv().unwrap();
        drop((tx, own));
        pipeline.join().unwrap();
        result
    });
    assert!(matches!(result, Err(AwaitError::Wait(WaitError::WaitsForItself(_)))), "{result:?}");
}

/// A thread that runs the stages waits for an answer behind a slot that another producer has not
/// published yet.
#[test]
fn a_helping_asker_hears_of_a_later_publication() {
    let _watched = crate::common::watched();
    for how in [AskerWait::Thread, AskerWait::Task] {
        let result = ends(&format!("{how:?}"), move || {
            let mut result = None;
            slipring::ring(8, Request::default)
                .threads(1)
                .update("answer", |request, _| request.handle())
                .run_shared(|producer| {
                    let mut other = producer.clone();
                    let (claimed, is_claimed) = channel();
                    thread::scope(|scope| {
                        scope.spawn(move || {
                            let claim = other.claim().unwrap();
                            claimed.send(()).unwrap();
                            thread::sleep(Duration::from_millis(5));
                            claim.publish();
                        });
                        is_claimed.recv().unwrap();
                        let answer = producer.ask(Request::fill(Reaction::Answer)).unwrap();
                        result = Some(how.wait(answer));
                    });
                    Ok(())
                })
                .unwrap();
            result.unwrap()
        });
        assert_eq!(result, Ok(7));
    }
}

/// An asker's own deadline or timeout ends only the asker's wait.
#[test]
fn an_askers_deadline_leaves_the_graph_as_it_is() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let result = ends(&format!("{wait}"), move || {
            let graph = Graph::new(4, Request::default);
            let key = graph.updater("answer");
            let ring = graph.build().unwrap();
            let (mut tx, mut rx) = (ring.producer(), ring.updater(key));
            let answer = tx.ask(Request::fill(Reaction::Answer)).unwrap();
            let mut answer = answer.with_wait(wait.clone());
            let time = Duration::from_millis(1);
            assert_eq!(answer.wait_for(time), Err(AwaitError::TimedOut));
            assert_eq!(answer.wait_until(Instant::now()), Err(AwaitError::TimedOut));
            answer = answer.with_wait(wait.or_timeout(time));
            assert_eq!(answer.wait(), Err(AwaitError::TimedOut));
            rx.poll(4, |request, _| request.handle().unwrap()).unwrap();
            answer.wait()
        });
        assert_eq!(result, Ok(7));
    }
}

/// A task that gives up its wait leaves no waker behind.
#[test]
fn a_dropped_answer_takes_its_waker_along() {
    let _watched = crate::common::watched();
    struct Silent;
    impl Wake for Silent {
        fn wake(self: Arc<Self>) {}
    }
    let (mut tx, rx) = slipring::unicast(4, Request::default).unwrap();
    let mut answer = tx.ask(Request::fill(Reaction::Answer)).unwrap();
    let silent = Arc::new(Silent);
    let waker = Waker::from(silent.clone());
    assert!(pin!(&mut answer).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert_eq!(Arc::strong_count(&silent), 3, "one in the promise, and one with the graph");
    drop(answer);
    assert_eq!(Arc::strong_count(&silent), 1);
    drop((tx, rx));
}
