//! Building a ring by its plan, and handing its handles to threads.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipring::{
    Error, Graph, Mirror, Monitor, OnFault, Pipeline, Pool, Producer, Report, Ring, Tap,
    errors::SubscribeError,
    faults::Marks,
    handles::{MirrorHandle, StartAt},
    markers::{Contiguous, Interleaved, Layout, Many, Reading, Single, Updating},
    placement::Threads,
    stages::{Handlers, PoolReaderKey, PoolUpdaterKey, ShardReaderKey, ShardUpdaterKey, TapKey},
};

use super::consumers::{Driven, handler};
use super::env::{AnyRing, Env, Subscribed};
use super::handles::{Handle, Held};
use super::inside::publish_one;
use super::producers::{Tx, produce};
use super::runs::Running;
use super::whole::{Whole, survives};
use crate::event::Event;
use crate::oracle::Log;
use crate::plan::{Fault, Front, Kind, RingPlan, Run, StagePlan, Verb};
use crate::watch::Watch;

/// A ring's place for visitors.
pub enum Visited<L: Layout> {
    Tap(Tap<Event, L>),
    Readers(Pool<Event, Reading, L>),
    Writers(Pool<Event, Updating, L>),
    None,
}

/// An open ring.
pub struct Opened<L: Layout, S> {
    log: Arc<Log>,
    /// The ring's handle, until a thread drops it. This lock is real, and not held within a call of
    /// the library.
    ring: Mutex<Option<Arc<Ring<Event, L, S>>>>,
    /// A producer for a handler of a ring whose stages the library runs. This lock is such a one,
    /// too.
    spare: Mutex<Option<Tx<L>>>,
    monitor: Monitor,
    pub visited: Vec<Visited<L>>,
    mirrors: Vec<Option<MirrorHandle<[u64; 3]>>>,
}

impl<L: Layout> Opened<L, Single> {
    /// Returns a ring whose stages and producers the library hands out.
    pub fn of_library(
        log: &Arc<Log>,
        monitor: Monitor,
        visited: Vec<Visited<L>>,
        mirrors: Vec<Option<MirrorHandle<[u64; 3]>>>,
    ) -> Opened<L, Single> {
        let (log, ring, spare) = (log.clone(), Mutex::new(None), Mutex::new(None));
        Opened { log, ring, spare, monitor, visited, mirrors }
    }
}

impl<L: Layout, S> Opened<L, S> {
    fn ring(&self) -> Option<Arc<Ring<Event, L, S>>> {
        self.ring.lock().expect("no thread panics with it").clone()
    }

    /// Keeps a producer like `tx` for one of the ring's handlers, if one publishes there.
    pub fn lend(&self, tx: &Tx<L>) {
        let wanted = self.log.plan().publishes_into(self.log.number());
        let another = wanted.then(|| tx.another()).flatten();
        *self.spare.lock().expect("no thread panics with it") = another;
    }

    fn take_spare(&self) -> Option<Tx<L>> {
        self.spare.lock().expect("no thread panics with it").take()
    }

    fn take_ring(&self) -> Option<Arc<Ring<Event, L, S>>> {
        self.log.drops_ring();
        self.ring.lock().expect("no thread panics with it").take()
    }
}

/// A body of a thread, which gets the other rings.
pub type Body = Box<dyn FnOnce(&Env) + Send>;

/// A ring's threads, by their names, and the library's own if it runs the stages.
pub struct Started {
    pub ring: Arc<dyn AnyRing>,
    pub producers: Vec<Body>,
    pub stages: Vec<(String, Driven)>,
    pub spawns: Option<Spawns>,
}

/// Starts the stages that the library runs. Returns the bodies of the producers, and the running
/// graph.
pub type Spawns = Box<dyn FnOnce(&Arc<Env>) -> Result<(Vec<Body>, Running), Error>>;

/// How many producers a ring has.
pub trait Sharing: Sized + Send + Sync + 'static {
    fn first<L: Layout>(ring: &Ring<Event, L, Self>) -> Tx<L>;
    /// Makes another producer, if the ring can have one.
    fn another<L: Layout>(ring: &Ring<Event, L, Self>) -> Option<Tx<L>>;
    fn spawn<L: Layout>(
        handlers: Handlers<'static, Event, L, Self>,
    ) -> Result<(Tx<L>, Pipeline), Error>;
    /// Runs the stages within a call that publishes.
    fn run<L: Layout>(
        handlers: Handlers<'static, Event, L, Self>,
        verbs: Vec<Vec<Verb>>,
        log: &Arc<Log>,
        env: &Arc<Env>,
    ) -> Running;
}

impl Sharing for Single {
    fn first<L: Layout>(ring: &Ring<Event, L, Single>) -> Tx<L> {
        Tx::One(ring.producer())
    }
    fn another<L: Layout>(_: &Ring<Event, L, Single>) -> Option<Tx<L>> {
        None
    }
    fn spawn<L: Layout>(
        handlers: Handlers<'static, Event, L, Single>,
    ) -> Result<(Tx<L>, Pipeline), Error> {
        handlers.spawn().map(|(tx, pipeline)| (Tx::One(tx), pipeline))
    }
    fn run<L: Layout>(
        handlers: Handlers<'static, Event, L, Single>,
        verbs: Vec<Vec<Verb>>,
        log: &Arc<Log>,
        env: &Arc<Env>,
    ) -> Running {
        if log.plan().run == Run::Feed {
            return Running::feeding(verbs, log, |items, fill| handlers.feed(items, fill));
        }
        Running::within::<L, Producer<Event, L, Single>>(verbs, log, env, |produce| {
            handlers.run(produce)
        })
    }
}

impl Sharing for Many {
    fn first<L: Layout>(ring: &Ring<Event, L, Many>) -> Tx<L> {
        Tx::Many(ring.producer())
    }
    fn another<L: Layout>(ring: &Ring<Event, L, Many>) -> Option<Tx<L>> {
        Some(Tx::Many(ring.producer()))
    }
    fn spawn<L: Layout>(
        handlers: Handlers<'static, Event, L, Many>,
    ) -> Result<(Tx<L>, Pipeline), Error> {
        handlers.spawn().map(|(tx, pipeline)| (Tx::Many(tx), pipeline))
    }
    fn run<L: Layout>(
        handlers: Handlers<'static, Event, L, Many>,
        verbs: Vec<Vec<Verb>>,
        log: &Arc<Log>,
        env: &Arc<Env>,
    ) -> Running {
        Running::within::<L, Producer<Event, L, Many>>(verbs, log, env, |produce| {
            handlers.run(produce)
        })
    }
}

impl<L: Layout, S: Sharing> AnyRing for Opened<L, S> {
    fn halt(&self) {
        if let Some(ring) = self.ring() {
            ring.halt();
        }
    }
    fn publish_one(&self) {
        self.log.publishes_inside();
        let ring = self.ring();
        let tx = ring.as_deref().and_then(S::another).or_else(|| self.take_spare());
        if let Some(Tx::Many(producer)) = tx {
            publish_one(producer, &self.log);
        }
    }
    fn end_lending(&self) {
        drop(self.take_spare());
    }
    fn produce(&self, verbs: &[Verb], last: bool) {
        let ring = if last { self.take_ring() } else { self.ring() };
        let tx = ring.as_deref().and_then(S::another);
        drop(ring);
        if let Some(tx) = tx {
            produce(tx, verbs, &self.log, &|| self.report());
        }
    }
    fn report(&self) -> Option<Report> {
        self.monitor.report()
    }
    fn subscribe(&self, stage: usize, start: StartAt) -> Result<Subscribed, SubscribeError> {
        let Visited::Tap(tap) = &self.visited[stage] else {
            return Err(SubscribeError::NotRunning);
        };
        let reader = tap.subscribe(start).inspect_err(|e| self.log.refused(stage, start, e))?;
        if matches!(start, StartAt::At(asked) if asked != reader.next_seq()) {
            let next = reader.next_seq();
            self.log.violation(format!("a reader began at {next}, not at {start:?}"));
        }
        let leaves = reader.leave_handle();
        Ok((Box::new(Held::new(reader)), Box::new(move || leaves.leave())))
    }
    fn mirror(&self, stage: usize) -> Option<MirrorHandle<[u64; 3]>> {
        self.mirrors[stage].clone()
    }
    fn join(&self, stage: usize) -> Result<Box<dyn Handle>, SubscribeError> {
        match &self.visited[stage] {
            Visited::Readers(pool) => Ok(Box::new(Held::new(pool.join()?))),
            Visited::Writers(pool) => Ok(Box::new(Held::new(pool.join()?))),
            _ => Err(SubscribeError::NotRunning),
        }
    }
}

enum AnyKey {
    Reader(slipring::stages::ReaderKey),
    Writer(slipring::stages::UpdaterKey),
    PoolReader(PoolReaderKey),
    PoolWriter(PoolUpdaterKey),
    ShardReader(ShardReaderKey),
    ShardWriter(ShardUpdaterKey),
    Tap(TapKey),
}

macro_rules! on_key {
    ($any:expr, $key:ident => $with:expr) => {
        match $any {
            AnyKey::Reader($key) => $with,
            AnyKey::Writer($key) => $with,
            AnyKey::PoolReader($key) => $with,
            AnyKey::PoolWriter($key) => $with,
            AnyKey::ShardReader($key) => $with,
            AnyKey::ShardWriter($key) => $with,
            AnyKey::Tap($key) => $with,
        }
    };
}

macro_rules! map_key {
    ($any:expr, $key:ident => $with:expr) => {
        match $any {
            AnyKey::Reader($key) => AnyKey::Reader($with),
            AnyKey::Writer($key) => AnyKey::Writer($with),
            AnyKey::PoolReader($key) => AnyKey::PoolReader($with),
            AnyKey::PoolWriter($key) => AnyKey::PoolWriter($with),
            AnyKey::ShardReader($key) => AnyKey::ShardReader($with),
            AnyKey::ShardWriter($key) => AnyKey::ShardWriter($with),
            AnyKey::Tap($key) => AnyKey::Tap($with),
        }
    };
}

fn declare<L: Layout, S>(graph: &Graph<Event, L, S>, plan: &RingPlan, log: &Log) -> Vec<AnyKey> {
    let mut keys: Vec<Option<AnyKey>> = plan.stages.iter().map(|_| None).collect();
    let count = plan.stages.len();
    for number in (0..count).map(|at| if plan.reversed { count - 1 - at } else { at }) {
        let stage = &plan.stages[number];
        let (name, handles) = (Log::name(number), stage.drives.len());
        let room = stage.room.max(handles);
        let key = match stage.kind {
            Kind::Reader => AnyKey::Reader(graph.reader(&name)),
            Kind::Writer => AnyKey::Writer(graph.updater(&name)),
            Kind::PoolReader => AnyKey::PoolReader(graph.pool_reader(&name, handles).room(room)),
            Kind::PoolWriter => AnyKey::PoolWriter(graph.pool_updater(&name, handles).room(room)),
            Kind::ShardReader => {
                AnyKey::ShardReader(graph.shard_reader(&name, handles, Event::key))
            }
            Kind::ShardWriter => {
                AnyKey::ShardWriter(graph.shard_updater(&name, handles, Event::key))
            }
            Kind::Tap => AnyKey::Tap(graph.tap(&name, stage.room)),
        };
        let key = match stage.wait {
            Some(wait) => map_key!(key, key => key.wait(wait.strategy())),
            None => key,
        };
        let key = match plan.front {
            Front::Handles => key,
            _ => with_thread(with_policy(key, stage), stage),
        };
        keys[number] = Some(with_marks(key, log.marks(number)));
    }
    for (number, stage) in plan.stages.iter().enumerate() {
        let key = keys[number].take().expect("each was declared");
        let key = stage.after.iter().fold(key, |key, &earlier| {
            let earlier = keys[earlier].as_ref().expect("a stage is behind others only");
            map_key!(key, key => on_key!(earlier, earlier => key.after(earlier)))
        });
        keys[number] = Some(key);
    }
    keys.into_iter().flatten().collect()
}

/// Sets the thread of a stage that the library runs, and how often its handler is called while it
/// waits.
fn with_thread(key: AnyKey, stage: &StagePlan) -> AnyKey {
    let key = match (key, stage.on) {
        (AnyKey::Reader(key), Some(thread)) => AnyKey::Reader(key.on(&format!("t{thread}"))),
        (AnyKey::Writer(key), Some(thread)) => AnyKey::Writer(key.on(&format!("t{thread}"))),
        (key, _) => key,
    };
    match (key, stage.idles.filter(|micros| *micros != 0).map(Duration::from_micros)) {
        (AnyKey::Reader(key), Some(time)) => AnyKey::Reader(key.idle_every(time)),
        (AnyKey::Writer(key), Some(time)) => AnyKey::Writer(key.idle_every(time)),
        (key, _) => key,
    }
}

/// Lets a stage mark the events that it skips, if the program checks the marks.
fn with_marks(key: AnyKey, marks: Option<&Marks>) -> AnyKey {
    match (key, marks) {
        (AnyKey::Reader(key), Some(marks)) => AnyKey::Reader(key.marks(marks)),
        (AnyKey::Writer(key), Some(marks)) => AnyKey::Writer(key.marks(marks)),
        (AnyKey::PoolReader(key), Some(marks)) => AnyKey::PoolReader(key.marks(marks)),
        (AnyKey::PoolWriter(key), Some(marks)) => AnyKey::PoolWriter(key.marks(marks)),
        (AnyKey::ShardReader(key), Some(marks)) => AnyKey::ShardReader(key.marks(marks)),
        (AnyKey::ShardWriter(key), Some(marks)) => AnyKey::ShardWriter(key.marks(marks)),
        (key, _) => key,
    }
}

/// Sets what happens when the handler fails, for a stage that the library runs.
fn with_policy(key: AnyKey, stage: &StagePlan) -> AnyKey {
    let on = match stage.on_fault {
        Fault::Stop => return key,
        Fault::Skip => OnFault::skip(),
        Fault::Retry => OnFault::retry(3),
    };
    match key {
        AnyKey::Reader(key) => AnyKey::Reader(key.on_error(on).on_panic(on)),
        AnyKey::Writer(key) => AnyKey::Writer(key.on_error(on)),
        AnyKey::PoolReader(key) => AnyKey::PoolReader(key.on_error(on).on_panic(on)),
        AnyKey::PoolWriter(key) => AnyKey::PoolWriter(key.on_error(on)),
        AnyKey::ShardReader(key) => AnyKey::ShardReader(key.on_error(on).on_panic(on)),
        AnyKey::ShardWriter(key) => AnyKey::ShardWriter(key.on_error(on)),
        AnyKey::Tap(key) => AnyKey::Tap(key),
    }
}

/// Opens a ring by its plan. `verbs`: what each of its producers does.
pub fn open(plan: &RingPlan, log: &Arc<Log>, verbs: Vec<Vec<Verb>>) -> Result<Started, Error> {
    let mut graph =
        Graph::new(plan.capacity, Event::default).first_seq(plan.first).wait(plan.wait.strategy());
    if let Front::Handlers(Some(threads)) = plan.front {
        graph = graph.threads(Threads::from(threads));
    }
    if plan.cursor {
        graph = graph.publish_cursor();
    }
    log.builds();
    if let Some(micros) = plan.deadline {
        graph = graph.deadline(Duration::from_micros(micros));
    }
    match (plan.contiguous, plan.shared) {
        (false, false) => start::<Interleaved, Single>(graph, plan, log, verbs),
        (false, true) => start::<Interleaved, Many>(graph.shared(), plan, log, verbs),
        (true, false) => start::<Contiguous, Single>(graph.contiguous(), plan, log, verbs),
        (true, true) => start::<Contiguous, Many>(graph.contiguous().shared(), plan, log, verbs),
    }
}

/// Returns the bodies of a ring's producers, of which the first one has `tx`.
pub fn producer_bodies<L: Layout>(tx: Tx<L>, verbs: Vec<Vec<Verb>>, log: &Arc<Log>) -> Vec<Body> {
    let mut verbs = verbs.into_iter();
    let first = verbs.next().unwrap_or_default();
    let others: Vec<(Tx<L>, Vec<Verb>)> =
        verbs.filter_map(|verbs| Some((tx.another()?, verbs))).collect();
    let all = std::iter::once((tx, first)).chain(others);
    let body = |(tx, verbs): (Tx<L>, Vec<Verb>)| {
        let log = log.clone();
        Box::new(move |env: &Env| {
            produce(tx, &verbs, &log, &|| env.rings[log.number()].report());
            env.rings[log.number()].end_lending();
            log.produced();
        }) as Body
    };
    let bodies: Vec<Body> = all.map(body).collect();
    log.produce(bodies.len());
    bodies
}

fn start<L: Layout, S: Sharing>(
    graph: Graph<Event, L, S>,
    plan: &RingPlan,
    log: &Arc<Log>,
    verbs: Vec<Vec<Verb>>,
) -> Result<Started, Error> {
    let keys = declare(&graph, plan, log);
    let ring = graph.build()?;
    let monitor = ring.monitor();
    let mirrors: Vec<_> = plan.stages.iter().map(StagePlan::own_mirror).collect();
    let handles_of = |mirror: &Option<Mirror<_>>| mirror.as_ref().map(Mirror::handle);
    let mirror_handles = mirrors.iter().map(handles_of).collect();
    let mut visited = Vec::new();
    let mut rest = Vec::new();
    for key in keys {
        visited.push(match &key {
            AnyKey::PoolReader(key) => Visited::Readers(ring.pool(key)),
            AnyKey::PoolWriter(key) => Visited::Writers(ring.pool(key)),
            _ => Visited::None,
        });
        match key {
            AnyKey::Tap(key) => {
                *visited.last_mut().expect("just pushed") = Visited::Tap(ring.tap(key));
                rest.push(None);
            }
            key => rest.push(Some(key)),
        }
    }
    if plan.front == Front::Handles {
        let producers = producer_bodies(S::first(&ring), verbs, log);
        let stages = rest.into_iter().enumerate();
        let attached = stages.zip(mirrors).filter_map(|((stage, key), mirror)| {
            Some(attach(&ring, plan, log, stage, key?, mirror))
        });
        let stages = attached.flatten().collect();
        let (ring, spare) = (Mutex::new(Some(Arc::new(ring))), Mutex::new(None));
        let log = log.clone();
        let opened = Opened { log, ring, spare, monitor, visited, mirrors: mirror_handles };
        return Ok(Started { ring: Arc::new(opened), producers, stages, spawns: None });
    }
    let (handlers, own_plan, own_log) = (ring.handlers(), plan.clone(), log.clone());
    let (log, ring, spare) = (log.clone(), Mutex::new(None), Mutex::new(None));
    let opened = Opened::<L, S> { log, ring, spare, monitor, visited, mirrors: mirror_handles };
    let opened = Arc::new(opened);
    let own_ring = opened.clone();
    let spawns: Spawns = Box::new(move |env| {
        let mut handlers = handlers;
        handlers.on_faults(survives(&own_log));
        for (stage, (key, mirror)) in rest.into_iter().zip(mirrors).enumerate() {
            if let Some(key) = key {
                hand_over(&mut handlers, key, &own_plan, &own_log, stage, env, mirror);
            }
        }
        if own_plan.is_run() {
            return Ok((Vec::new(), S::run(handlers, verbs, &own_log, env)));
        }
        let (tx, pipeline) = S::spawn(handlers)?;
        own_ring.lend(&tx);
        Ok((producer_bodies(tx, verbs, &own_log), Running::Pipeline(pipeline)))
    });
    Ok(Started { ring: opened, producers: Vec::new(), stages: Vec::new(), spawns: Some(spawns) })
}

/// The name of a stage's handle.
pub fn handle_name(stage: usize, number: usize) -> String {
    format!("{} handle {number}", Log::name(stage))
}

/// Exchanges a stage's key for its handles.
fn attach<L: Layout, S>(
    ring: &Ring<Event, L, S>,
    plan: &RingPlan,
    log: &Arc<Log>,
    stage: usize,
    key: AnyKey,
    mut mirror: Option<Mirror<[u64; 3]>>,
) -> Vec<(String, Driven)> {
    fn boxed<H>(handles: Vec<H>) -> Vec<Box<dyn Handle>>
    where
        Held<H>: Handle + 'static,
    {
        let boxed = |handle| Box::new(Held::new(handle)) as Box<dyn Handle>;
        handles.into_iter().map(boxed).collect()
    }
    let handles = match key {
        AnyKey::Reader(key) => boxed(vec![ring.reader(key)]),
        AnyKey::Writer(key) => boxed(vec![ring.updater(key)]),
        AnyKey::PoolReader(key) => boxed(ring.pool_readers(key)),
        AnyKey::PoolWriter(key) => boxed(ring.pool_updaters(key)),
        AnyKey::ShardReader(key) => boxed(ring.shard_readers(key)),
        AnyKey::ShardWriter(key) => boxed(ring.shard_updaters(key)),
        AnyKey::Tap(_) => Vec::new(),
    };
    let is_pool = plan.stages[stage].kind.is_pool();
    let bodies = handles.into_iter().zip(&plan.stages[stage].drives).enumerate();
    bodies
        .map(|(number, (handle, drive))| {
            // The first worker of a pool stays, by the generator's rule.
            let (watch, leaving_fails) = (Watch::new(log, stage, None), !is_pool || number == 0);
            let (drive, mirror) = (*drive, mirror.take());
            let body = Driven { handle, watch, drive, leaving_fails, mirror, inner: None };
            (handle_name(stage, number), body)
        })
        .collect()
}

/// Gives a stage its handlers.
fn hand_over<L: Layout, S>(
    handlers: &mut Handlers<'static, Event, L, S>,
    key: AnyKey,
    plan: &RingPlan,
    log: &Arc<Log>,
    stage: usize,
    env: &Arc<Env>,
    mut mirror: Option<Mirror<[u64; 3]>>,
) {
    let StagePlan { drives, on_fault, idles, .. } = plan.stages[stage].clone();
    let mirror = std::cell::RefCell::new(&mut mirror);
    let make = |worker: usize| {
        let (watch, drive) = (Watch::new(log, stage, None), drives[worker % drives.len()]);
        handler(watch, drive, on_fault, env.clone(), mirror.borrow_mut().take())
    };
    let reads = |worker| {
        let mut handle = make(worker);
        move |event: &Event, at: slipring::At| handle(at.seq, event).1
    };
    let writes = |worker| {
        let mut handle = make(worker);
        move |event: &mut Event, at: slipring::At| {
            let (trail, result) = handle(at.seq, event);
            trail.into_iter().for_each(|trail| event.write(trail));
            result
        }
    };
    match key {
        AnyKey::Reader(key) if idles.is_some() => {
            handlers.read_with(key, Whole::new(reads(0), log, stage))
        }
        AnyKey::Writer(key) if idles.is_some() => {
            handlers.update_with(key, Whole::new(writes(0), log, stage))
        }
        AnyKey::Reader(key) => handlers.read(key, reads(0)),
        AnyKey::Writer(key) => handlers.update(key, writes(0)),
        AnyKey::PoolReader(key) => handlers.read_pool(key, reads),
        AnyKey::PoolWriter(key) => handlers.update_pool(key, writes),
        AnyKey::ShardReader(key) => handlers.read_shards(key, reads),
        AnyKey::ShardWriter(key) => handlers.update_shards(key, writes),
        AnyKey::Tap(_) => handlers,
    };
}
