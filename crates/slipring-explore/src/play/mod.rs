//! Running a program under a schedule.
//!
//! - I1: All threads of a program are joined before its logs are checked.

mod acts;
mod answers;
mod block_producers;
mod blocks;
mod chains;
mod consumers;
mod copies;
mod env;
mod handles;
mod holding;
mod inside;
mod memory;
mod messages;
mod observers;
mod onlooker;
mod places;
mod plain;
mod processes;
mod producers;
mod recovering;
mod rings;
mod runs;
mod shared_ring;
mod whole;

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use slipring::handles::StartAt;
use slipring_coherence::sync::{sleep, spin_loop};
use slipring_coherence::{Machine, Report, Schedule, Simulation, Topology};

use crate::oracle::Log;
use crate::plan::{By, Front, RingPlan, Run, Verb};
use crate::program::{Actor, Program};
use crate::watch::{Watch, await_none, await_none_at_end};
use consumers::Driven;
use env::{Env, spawn};
use rings::Started;
use runs::{Running, end};

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Promises that were broken, or what the simulator found: a deadlock, a livelock, a panic.
    pub findings: Vec<String>,
}

impl Broken {
    /// The first line of the first finding.
    pub fn first_line(&self) -> &str {
        self.findings.first().and_then(|finding| finding.lines().next()).unwrap_or("")
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(f, "  {finding}"))
    }
}

/// Number of tries behind which joining a pool that has ended has to say so.
const JOINS: u32 = 50;

/// Number of threads that a program can have.
const CORES: usize = 40;

/// Runs a program under a schedule.
///
/// # Errors
///
/// The findings, if a promise was broken.
pub fn play(program: &Program, schedule: &Schedule) -> Result<Report, Broken> {
    let machine = Machine::server(Topology::new(1, CORES).expect("a small machine"));
    let plans = program.rings.iter().chain(program.segments.iter().map(|segment| &segment.ring));
    let late = schedule.late_stores != 0;
    let log = |(number, plan)| Arc::new(Log::new(plan, number).with_late_stores(late));
    let logs: Vec<Arc<Log>> = plans.enumerate().map(log).collect();
    let refused = Mutex::new(None);
    let simulation = Simulation::new(&machine).schedule(schedule.clone());
    let run = simulation
        .thread("main", || {
            if let Err(error) = run_and_free(program, &logs) {
                *refused.lock().expect("no thread panics with it") = Some(error);
            }
        })
        .run();
    let mut findings = Vec::new();
    if let Some(error) = refused.into_inner().expect("no thread panics with it") {
        findings.push(format!("the program cannot be built: {error}"));
    }
    logs.iter().for_each(|log| findings.append(&mut log.take_violations()));
    match run {
        Ok(report) if findings.is_empty() => Ok(report),
        Ok(_) => Err(Broken { findings }),
        Err(error) => {
            findings.push(error.to_string());
            Err(Broken { findings })
        }
    }
}

/// Runs the program, after which all of its events are dropped, and all promises are freed.
fn run_and_free(program: &Program, logs: &[Arc<Log>]) -> Result<(), slipring::Error> {
    let begun = slipring_coherence::lives();
    run_all(program, logs)?;
    let some_left = || Some(slipring_coherence::lives() - begun).filter(|left| *left != 0);
    // The stages of a dropped pipeline may drop the events.
    let detached = |ring: &RingPlan| matches!(ring.run, Run::OnDrop(_) | Run::Drop);
    let left = match program.rings.iter().any(detached) {
        true => await_none_at_end(some_left),
        false => some_left(),
    };
    let left = left.unwrap_or(0);
    // A dead process frees nothing, and its memory is gone with it.
    if left != 0 && slipring_coherence::deaths() == 0 {
        logs[0].violation(format!("{left} events or promises are never dropped"));
    }
    Ok(())
}

fn run_all(program: &Program, logs: &[Arc<Log>]) -> Result<(), slipring::Error> {
    for (number, segment) in program.segments.iter().enumerate() {
        let log = &logs[program.rings.len() + number];
        processes::run(segment, log, 100_000 * number as u32)?;
        log.check_end(None);
    }
    let logs = &logs[..program.rings.len()];
    let mut opened = Vec::new();
    for (number, (plan, log)) in program.rings.iter().zip(logs).enumerate() {
        let verbs = program.actors.iter().filter_map(|actor| match actor {
            Actor::Producer { ring, verbs } if *ring == number => Some(verbs.clone()),
            _ => None,
        });
        let verbs: Vec<Vec<Verb>> = verbs.collect();
        let open = if plan.front.is_chain() { chains::open } else { rings::open };
        opened.push(open(plan, log, verbs)?);
    }
    let rings = opened.iter().map(|started| started.ring.clone()).collect();
    let by_handles = program.rings.iter().all(|ring| ring.front == Front::Handles);
    let kept = (program.keeps && by_handles).then(Mutex::default);
    let env = Arc::new(Env { rings, leavers: Mutex::default(), kept });
    let mut selected = Vec::new();
    let mut threads = Vec::new();
    let mut pipelines = Vec::new();
    for (number, started) in opened.into_iter().enumerate() {
        let Started { mut producers, mut stages, spawns, .. } = started;
        if let (0, Some(nested)) = (number, program.nested) {
            logs[0].nests();
            nest(&mut stages, nested);
        }
        for (name, driven) in stages {
            if driven.drive.by == By::Select {
                selected.push((number, driven));
                continue;
            }
            let (env, name) = (env.clone(), format!("ring {number} {name}"));
            threads.push(spawn(name, move || {
                driven.run(&env, number);
            }));
        }
        if let Some(spawns) = spawns {
            let (bodies, running) = spawns(&env)?;
            producers = bodies;
            pipelines.push((number, running));
        }
        for (producer, body) in producers.into_iter().enumerate() {
            let env = env.clone();
            let name = format!("ring {number} producer {producer}");
            threads.push(spawn(name, move || body(&env)));
        }
    }
    if !selected.is_empty() {
        let env = env.clone();
        threads.push(spawn("selector".to_owned(), move || consumers::select(&env, selected)));
    }
    for (number, actor) in program.actors.iter().enumerate() {
        if let Some((name, body)) = visitor(number, actor, &env, logs) {
            threads.push(spawn(name, body));
        }
    }
    let mut reports: Vec<Option<slipring::Report>> = logs.iter().map(|_| None).collect();
    // Those that end by themselves come last.
    pipelines.sort_by_key(|(_, running)| matches!(running, Running::Pipeline(_)));
    let mut left = Vec::new();
    for (number, running) in pipelines {
        let ended = match running {
            Running::Pipeline(pipeline) => end(pipeline, &logs[number]),
            Running::Within(run) => Some(run()),
        };
        match ended {
            Some(Ok(report)) => {
                logs[number].ended_well();
                reports[number] = Some(report);
            }
            Some(Err(error)) => logs[number].run_failure(error.failure(), &error.to_string()),
            None => left.push(number),
        }
    }
    // A thread's panic ends the run, as the simulator reports it.
    for thread in threads {
        if let Err(payload) = thread.join() {
            std::panic::resume_unwind(payload);
        }
    }
    for number in left {
        // The stages' threads own the ring.
        let owned = || env.rings[number].report().map(|_| ());
        if await_none_at_end(owned).is_some() {
            logs[number].violation("the stages of a dropped pipeline do not end".to_owned());
        }
    }
    if let Some(kept) = &env.kept {
        let handles = std::mem::take(&mut *kept.lock().expect("no thread panics with it"));
        drop(handles);
    }
    for (number, log) in logs.iter().enumerate() {
        // A worker that has joined may outlive the pipeline, and counts its events when it leaves.
        let joins = |actor: &Actor| matches!(actor, Actor::Joiner { ring, .. } if *ring == number);
        if reports[number].is_some() && program.actors.iter().any(joins) {
            log.check_end(None);
            continue;
        }
        let report = reports[number].take().or_else(|| env.rings[number].report());
        log.check_end(report.as_ref());
    }
    Ok(())
}

/// Puts one handle into the thread of another one.
fn nest(stages: &mut Vec<(String, Driven)>, nested: [(usize, usize); 2]) {
    let names = nested.map(|(stage, handle)| rings::handle_name(stage, handle));
    let [outer, inner] = names.map(|name| stages.iter().position(|(own, _)| *own == name));
    if let (Some(outer), Some(inner)) = (outer, inner)
        && outer != inner
    {
        let outer = stages[outer].0.clone();
        let (_, moved) = stages.remove(inner);
        let mut others = stages.iter_mut();
        if let Some((_, driven)) = others.find(|(name, _)| *name == outer) {
            driven.inner = Some(Box::new(moved));
        }
    }
}

/// Returns the thread of an actor that visits a ring.
fn visitor(
    number: usize,
    actor: &Actor,
    env: &Arc<Env>,
    logs: &[Arc<Log>],
) -> Option<(String, Box<dyn FnOnce() + Send>)> {
    let env = env.clone();
    match *actor {
        Actor::Producer { .. } => None,
        Actor::Late { ring, last, ref verbs } => {
            let (log, verbs) = (logs[ring].clone(), verbs.clone());
            let body = move || {
                log.comes_late();
                env.rings[ring].produce(&verbs, last);
            };
            Some((format!("ring {ring} late producer {number}"), Box::new(body)))
        }
        Actor::Subscriber { ring, stage, oldest, at, drive, again } => {
            let log = logs[ring].clone();
            let body = move || {
                let start = match at {
                    Some(place) => StartAt::At(log.plan().first.wrapping_add(place)),
                    None if oldest => StartAt::Oldest,
                    None => StartAt::Now,
                };
                for number in (0..=again).map(|join| number + 1_000 * join) {
                    let Ok((handle, leaves)) = env.rings[ring].subscribe(stage, start) else {
                        continue;
                    };
                    let mut leavers = env.leavers.lock().expect("no thread panics with it");
                    leavers.push((ring, number, leaves));
                    drop(leavers);
                    let watch = Watch::new(&log, stage, Some(number));
                    let (leaving_fails, mirror) = (false, None);
                    let driven =
                        Driven { handle, watch, drive, leaving_fails, mirror, inner: None };
                    let ended = driven.run(&env, ring);
                    log.left(number);
                    if ended {
                        break;
                    }
                }
            };
            Some((format!("ring {ring} subscriber {number}"), Box::new(body)))
        }
        Actor::Joiner { ring, stage, drive, late } => {
            let log = logs[ring].clone();
            let body = move || {
                if late {
                    let _ = await_none(&log, || (!log.has_ended(stage)).then_some(()));
                }
                let mut tries = 0;
                let handle = loop {
                    let (number, had_ended) = (log.joins(stage), log.has_ended(stage));
                    match env.rings[ring].join(stage) {
                        Ok(handle) => break handle,
                        // A worker that has lost a race hides the end for a moment.
                        Err(error) if !log.join_refused(number, tries > JOINS, &error) => return,
                        Err(_) if !had_ended => return,
                        Err(_) => sleep(Duration::from_millis(1)),
                    }
                    tries += 1;
                };
                let watch = Watch::new(&log, stage, None);
                let (leaving_fails, mirror) = (false, None);
                Driven { handle, watch, drive, leaving_fails, mirror, inner: None }.run(&env, ring);
            };
            Some((format!("ring {ring} joiner {number}"), Box::new(body)))
        }
        Actor::Evictor { ring } => {
            let log = logs[ring].clone();
            let body = move || {
                log.evict();
                loop {
                    // The lock is not held within the call (`oracle::I1`).
                    let mut leavers = env.leavers.lock().expect("no thread panics with it");
                    let of_ring = leavers.iter().position(|(of, _, _)| *of == ring);
                    let leaver = of_ring.map(|place| leavers.swap_remove(place));
                    drop(leavers);
                    let Some((_, number, leaves)) = leaver else { break };
                    // A reader that has left meanwhile is not there any more.
                    log.asked_to_leave(number);
                    if !leaves() {
                        log.left(number);
                    }
                }
            };
            Some((format!("ring {ring} evictor {number}"), Box::new(body)))
        }
        Actor::Observer { ring, stage, how } => {
            let log = logs[ring].clone();
            let mirror = env.rings[ring].mirror(stage)?;
            let body = move || observers::observe(&mirror, stage, how, &log);
            Some((format!("ring {ring} observer {number}"), Box::new(body)))
        }
        Actor::Monitor { ring, times } => {
            let log = logs[ring].clone();
            let body = move || {
                let mut before: Option<slipring::Report> = None;
                for _ in 0..times {
                    let report = env.rings[ring].report();
                    if let (Some(before), Some(report)) = (&before, &report) {
                        check_counts(&log, before, report);
                    }
                    before = report.or(before);
                    spin_loop();
                }
            };
            Some((format!("ring {ring} monitor {number}"), Box::new(body)))
        }
    }
}

/// Counts never become smaller.
fn check_counts(log: &Log, before: &slipring::Report, after: &slipring::Report) {
    for (earlier, later) in before.stages().iter().zip(after.stages()) {
        if earlier.events > later.events {
            log.violation(format!(
                "the report's events of `{}` fell from {} to {}",
                later.name, earlier.events, later.events
            ));
        }
    }
}
