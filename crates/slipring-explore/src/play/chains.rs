//! Rings that are declared as a chain: each stage is behind its predecessor.

use std::sync::Arc;
use std::time::Duration;

use slipring::{
    At, Chain, Error, Mirror, Monitor, OnFault, Pipeline, Pool, Producer, Tap,
    handles::Inline,
    markers::{Contiguous, Interleaved, Layout, Many},
};

use super::consumers::handler;
use super::env::Env;
use super::producers::Tx;
use super::rings::{Opened, Spawns, Started, Visited, producer_bodies};
use super::runs::{Running, Within};
use super::whole::{Whole, survives};
use crate::event::Event;
use crate::oracle::Log;
use crate::plan::{Fault, Front, Kind, RingPlan, Run, Verb};
use crate::watch::Watch;

/// Opens a ring by its plan, whose front is a chain.
pub fn open(plan: &RingPlan, log: &Arc<Log>, verbs: Vec<Vec<Verb>>) -> Result<Started, Error> {
    let chain = || slipring::ring(plan.capacity, Event::default);
    match plan.contiguous {
        false => declare::<Interleaved>(plan, log, verbs, chain),
        true => declare::<Contiguous>(plan, log, verbs, move || chain().contiguous()),
    }
}

fn declare<L: Layout>(
    plan: &RingPlan,
    log: &Arc<Log>,
    verbs: Vec<Vec<Verb>>,
    chain: impl FnOnce() -> Chain<'static, Event, L>,
) -> Result<Started, Error> {
    let monitor = Monitor::new();
    log.builds();
    let mut chain = chain().first_seq(plan.first).wait(plan.wait.strategy()).monitor(&monitor);
    chain = chain.on_faults(survives(log));
    if let Some(micros) = plan.deadline {
        chain = chain.deadline(Duration::from_micros(micros));
    }
    if let Front::Chain(Some(threads)) = plan.front {
        chain = chain.threads(threads);
    }
    let (mut visited, mut mirrors, mut handles) = (Vec::new(), Vec::new(), Vec::new());
    for stage in &plan.stages {
        let room = stage.room.max(stage.drives.len());
        visited.push(match stage.kind {
            Kind::Tap => Visited::Tap(Tap::named(&Log::name(visited.len())).room(stage.room)),
            Kind::PoolReader => Visited::Readers(Pool::reading(room)),
            Kind::PoolWriter => Visited::Writers(Pool::updating(room)),
            _ => Visited::None,
        });
        let mirror = stage.own_mirror();
        handles.push(mirror.as_ref().map(Mirror::handle));
        mirrors.push(mirror);
    }
    let opened = Opened::of_library(log, monitor, visited, handles);
    let ring = Arc::new(opened);
    let (own_ring, own_plan, own_log) = (ring.clone(), plan.clone(), log.clone());
    let spawns: Spawns = Box::new(move |env| {
        let mut chain = chain;
        for (number, mirror) in mirrors.into_iter().enumerate() {
            chain =
                add(chain, number, &own_plan, &own_log, env, (&own_ring.visited[number], mirror));
        }
        if own_plan.is_run() {
            return Ok((Vec::new(), run(chain, verbs, &own_log, env)));
        }
        let (tx, pipeline): (Tx<L>, Pipeline) = match own_plan.shared {
            false => chain.spawn().map(|(tx, pipeline)| (Tx::One(tx), pipeline))?,
            true => chain.spawn_shared().map(|(tx, pipeline)| (Tx::Many(tx), pipeline))?,
        };
        own_ring.lend(&tx);
        Ok((producer_bodies(tx, verbs, &own_log), Running::Pipeline(pipeline)))
    });
    Ok(Started { ring, producers: Vec::new(), stages: Vec::new(), spawns: Some(spawns) })
}

/// Runs a chain within a call that publishes.
fn run<L: Layout>(
    chain: Chain<'static, Event, L>,
    verbs: Vec<Vec<Verb>>,
    log: &Arc<Log>,
    env: &Arc<Env>,
) -> Running {
    match log.plan().run {
        Run::Feed => Running::feeding(verbs, log, |items, fill| chain.feed(items, fill)),
        Run::Inline => Running::within(verbs, log, env, |produce: Within<Inline<'_, _, L>>| {
            chain.run_inline(produce)
        }),
        Run::Shared => Running::within(verbs, log, env, |produce: Within<Producer<_, L, Many>>| {
            chain.run_shared(produce)
        }),
        _ => Running::within(verbs, log, env, |produce: Within<Producer<_, L>>| chain.run(produce)),
    }
}

/// Adds a stage to a chain.
fn add<L: Layout>(
    chain: Chain<'static, Event, L>,
    number: usize,
    plan: &RingPlan,
    own_log: &Arc<Log>,
    env: &Arc<Env>,
    (visited, mut mirror): (&Visited<L>, Option<Mirror<[u64; 3]>>),
) -> Chain<'static, Event, L> {
    let (stage, name, len) =
        (&plan.stages[number], Log::name(number), plan.stages[number].drives.len());
    let marks = own_log.marks(number).cloned();
    let (log, env, drives, on_fault) =
        (own_log.clone(), env.clone(), stage.drives.clone(), stage.on_fault);
    let idles = stage.idles.filter(|_| matches!(stage.kind, Kind::Reader | Kind::Writer));
    let mut make = move |worker: usize| {
        let (watch, drive) = (Watch::new(&log, number, None), drives[worker % drives.len()]);
        handler(watch, drive, on_fault, env.clone(), mirror.take())
    };
    macro_rules! reads {
        ($handle:expr) => {{
            let mut handle = $handle;
            move |event: &Event, at: At| handle(at.seq, event).1
        }};
    }
    macro_rules! writes {
        ($handle:expr) => {{
            let mut handle = $handle;
            move |event: &mut Event, at: At| {
                let (trail, result) = handle(at.seq, event);
                trail.into_iter().for_each(|trail| event.write(trail));
                result
            }
        }};
    }
    let chain = match (stage.kind, visited) {
        (Kind::Tap, Visited::Tap(tap)) => return chain.tap(tap),
        (Kind::Tap, _) => return chain,
        (Kind::Reader, _) if idles.is_some() => {
            chain.read_with(&name, Whole::new(reads!(make(0)), own_log, number))
        }
        (Kind::Writer, _) if idles.is_some() => {
            chain.update_with(&name, Whole::new(writes!(make(0)), own_log, number))
        }
        (Kind::Reader, _) => chain.read(&name, reads!(make(0))),
        (Kind::Writer, _) => chain.update(&name, writes!(make(0))),
        (Kind::PoolReader, _) => chain.read_pool(&name, len, move |worker| reads!(make(worker))),
        (Kind::PoolWriter, _) => chain.update_pool(&name, len, move |worker| writes!(make(worker))),
        (Kind::ShardReader, _) => {
            chain.read_shards(&name, len, Event::key, move |shard| reads!(make(shard)))
        }
        (Kind::ShardWriter, _) => {
            chain.update_shards(&name, len, Event::key, move |shard| writes!(make(shard)))
        }
    };
    let chain = if plan.front == Front::Thread { chain.on("all") } else { chain };
    let chain = match visited {
        Visited::Readers(pool) => chain.open(pool),
        Visited::Writers(pool) => chain.open(pool),
        _ => chain,
    };
    let chain = match stage.on.filter(|_| matches!(stage.kind, Kind::Reader | Kind::Writer)) {
        Some(thread) => chain.on(&format!("t{thread}")),
        None => chain,
    };
    let chain = match idles {
        Some(micros) if micros != 0 => chain.idle_every(Duration::from_micros(micros)),
        _ => chain,
    };
    let chain = match stage.wait {
        Some(wait) => chain.stage_wait(wait.strategy()),
        None => chain,
    };
    let on = match stage.on_fault {
        Fault::Stop => return chain,
        Fault::Skip => OnFault::skip(),
        Fault::Retry => OnFault::retry(3),
    };
    let chain = chain.on_error(on);
    let chain = match marks {
        Some(marks) => chain.marks(&marks),
        None => chain,
    };
    if stage.kind.writes() { chain } else { chain.on_panic(on) }
}
