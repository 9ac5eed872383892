//! Graphs whose stages the library runs: the call that starts them, and the end of the run.
//!
//! - I1: A closure's threads have ended before its run counts as ended.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipring::{
    Error, Pipeline,
    errors::JoinError,
    faults::Fault,
    handles::Inline,
    markers::{Layout, Many},
    reports::Done,
    stages::PRODUCER,
};
use slipring::{Producer, Report, markers::Single};
use slipring_coherence::sync;

use super::acts::Acts;
use super::consumers::panic_as_planned;
use super::env::{Env, spawn};
use super::producers::{Tx, produce, produce_within};
use crate::event::Event;
use crate::oracle::{Disruption, Log};
use crate::plan::{Kind, Run, Verb};

/// A graph whose stages the library runs.
pub enum Running {
    Pipeline(Pipeline),
    /// It runs within this call, which publishes.
    Within(Box<dyn FnOnce() -> Result<Report, Error>>),
}

/// The closure of a run, to which a producer of this kind is lent.
pub type Within<P> = Box<dyn FnOnce(&mut P) -> Result<(), Fault>>;

/// The items of a `feed`, and the closure that fills an event with one.
pub type Items = Box<dyn Iterator<Item = u64>>;
pub type Fill = Box<dyn FnMut(&mut Event, u64)>;

/// A producer that is lent to a closure.
pub trait Lent<L: Layout>: Acts {
    /// Returns another producer of the ring, if it can have one.
    fn another(&self) -> Option<Tx<L>> {
        None
    }
}

impl<L: Layout> Lent<L> for Producer<Event, L, Single> {}
impl<L: Layout> Lent<L> for Inline<'static, Event, L> {}
impl<L: Layout> Lent<L> for Producer<Event, L, Many> {
    fn another(&self) -> Option<Tx<L>> {
        Some(Tx::Many(self.clone()))
    }
}

impl Running {
    /// Returns a graph that runs within a call of `run`, which lends its producer.
    pub fn within<L: Layout, P: Lent<L>>(
        verbs: Vec<Vec<Verb>>,
        log: &Arc<Log>,
        env: &Arc<Env>,
        run: impl FnOnce(Within<P>) -> Result<Done, Error> + 'static,
    ) -> Running {
        log.produce(1);
        let (log, env) = (log.clone(), env.clone());
        Running::Within(Box::new(move || {
            let threads = Rc::new(RefCell::new(Vec::new()));
            let started = threads.clone();
            let produce: Within<P> = Box::new(move |producer| {
                let mut verbs = verbs.into_iter();
                let own = verbs.next().unwrap_or_default();
                for (number, verbs) in verbs.enumerate() {
                    let Some(tx) = producer.another() else { break };
                    let (log, env) = (log.clone(), env.clone());
                    let name = format!("ring {} clone {number}", log.number());
                    let body = move || {
                        produce(tx, &verbs, &log, &|| env.rings[log.number()].report());
                    };
                    started.borrow_mut().push(spawn(name, body));
                }
                let report = || env.rings[log.number()].report();
                let ended = produce_within(producer, &own, &log, &report);
                log.produced();
                ended
            });
            let ended = run(produce).map(|done| done.report);
            for thread in threads.take() {
                if let Err(payload) = thread.join() {
                    std::panic::resume_unwind(payload);
                }
            }
            ended
        }))
    }

    /// Returns a graph that is fed by a call of `feed`.
    pub fn feeding(
        verbs: Vec<Vec<Verb>>,
        log: &Arc<Log>,
        feed: impl FnOnce(Items, Fill) -> Result<Done<u64>, Error> + 'static,
    ) -> Running {
        let log = log.clone();
        Running::Within(Box::new(move || {
            let filled = Rc::new(RefCell::new(Vec::new()));
            let fills = filled.clone();
            let fill: Fill = Box::new(move |event, id| {
                event.fill(id);
                fills.borrow_mut().push(id);
            });
            let items = items(verbs.into_iter().flatten().collect(), log.clone());
            let done = feed(Box::new(items), fill)?;
            let filled = filled.take();
            if done.value != filled.len() as u64 {
                log.violation(format!("fed {} of {} events", done.value, filled.len()));
            }
            filled.into_iter().for_each(|id| log.published(id, None));
            Ok(done.report)
        }))
    }
}

/// The items of some verbs: as many as they publish events.
fn items(verbs: Vec<Verb>, log: Arc<Log>) -> impl Iterator<Item = u64> {
    verbs.into_iter().flat_map(move |verb| {
        let events = match verb {
            Verb::Publish(events) | Verb::All(events) | Verb::Batches(_, events) => events,
            Verb::Claim(events, _) => events as u64,
            Verb::Sleep(micros) => {
                sync::sleep(Duration::from_micros(micros));
                0
            }
            Verb::Panic => {
                log.disrupt(Disruption::Failure(PRODUCER.to_owned()));
                panic_as_planned()
            }
            _ => 0,
        };
        let log = log.clone();
        (0..events).map(move |_| log.begin())
    })
}

/// Ends a pipeline by its plan. Returns how its run has ended, if a call tells.
pub fn end(pipeline: Pipeline, log: &Log) -> Option<Result<Report, Error>> {
    match log.plan().run {
        Run::Within(micros) => join_within(pipeline, Duration::from_micros(micros), log),
        Run::OnDrop(micros) => join_on_drop(pipeline, Duration::from_micros(micros), log),
        Run::Halt(micros) => {
            let first = pipeline.join_within(Duration::from_micros(micros));
            if matches!(first, Err(JoinError::StillRunning { .. })) {
                log.disrupt(Disruption::Halt);
                pipeline.halt();
            }
            Some(pipeline.join())
        }
        Run::Drop => {
            drop(pipeline);
            None
        }
        _ => Some(pipeline.join()),
    }
}

fn join_within(pipeline: Pipeline, limit: Duration, log: &Log) -> Option<Result<Report, Error>> {
    loop {
        let begin = sync::now();
        match pipeline.join_within(limit) {
            Ok(report) => {
                // All stages have ended, so nothing is counted behind it.
                let last = pipeline.join();
                let counts = |report: &Report| -> Vec<u64> {
                    report.stages().iter().map(|stage| stage.events).collect()
                };
                let stages = &log.plan().stages;
                let joins = stages.iter().any(|stage| stage.room != 0);
                match &last {
                    Ok(last) if joins || counts(last) == counts(&report) => {}
                    // A pipeline without stages has ended while its producers publish.
                    _ if stages.iter().all(|stage| stage.kind == Kind::Tap) => {}
                    // After a halt, the producer may still fail.
                    _ if log.is_disrupted() => {}
                    other => log.violation(format!(
                        "`join_within` told of {:?}, and `join` of {other:?}",
                        counts(&report)
                    )),
                }
                return Some(last);
            }
            Err(JoinError::Failed(error)) => return Some(Err(error)),
            Err(JoinError::StillRunning { stage, .. }) => {
                if sync::now() - begin < limit {
                    log.violation(format!("`join_within` ended early, for stage `{stage}`"));
                }
                let mut stages = 0..log.plan().stages.len();
                if !stages.any(|number| stage.to_string() == Log::name(number)) {
                    log.violation(format!("`join_within` names `{stage}`, which is no stage"));
                }
            }
            Err(other) => log.violation(format!("`join_within`: {other}")),
        }
        sync::spin_loop();
    }
}

fn join_on_drop(pipeline: Pipeline, limit: Duration, log: &Log) -> Option<Result<Report, Error>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = told.clone();
    let pipeline = pipeline.join_on_drop(limit, move |ended| {
        tells.lock().expect("no thread panics with it").push(ended);
    });
    let before = log.unhandled();
    // The publications of these events are visible to all threads from now on.
    slipring_coherence::membarrier();
    let begin = sync::now();
    drop(pipeline);
    let early = sync::now() - begin < limit;
    let mut told = told.lock().expect("no thread panics with it");
    let (ended, others) = (told.pop(), told.len());
    if others != 0 {
        log.violation(format!("a pipeline's drop told {others} times more than once"));
    }
    match ended {
        None => log.violation("a pipeline's drop did not tell how it ended".to_owned()),
        Some(Ok(report)) => return Some(Ok(report)),
        Some(Err(JoinError::Failed(error))) => return Some(Err(error)),
        // A producer is still open.
        Some(Err(_)) if early && !log.is_disrupted() => {
            let now = log.unhandled();
            if let Some(id) = before.intersection(&now).next() {
                log.violation(format!("a pipeline's drop did not wait for event {id:x}"));
            }
        }
        Some(Err(_)) => {}
    }
    None
}
