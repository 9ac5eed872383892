//! Virtual processes on a segment. Each has a thread that may die at any access, and a keeper that
//! starts it again, which does not die.
//!
//! - I1: A life takes its seat before it makes the handle, and there is one handle of a seat at a
//!   time: a seat is taken from a process only after its death was proven.
//! - I2: A producer notes how far it has come before it begins an action, so a life that begins
//!   after a death repeats none.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use slipring::StartAt;
use slipring::segment::SegmentRing;
use slipring_coherence::sync::{Builder, JoinHandle, spin_loop};

use super::consumers::Driven;
use super::env::Env;
use super::handles::{Handle, Held};
use super::memory::Heap;
use super::producers::act;
use crate::event::Parts;
use crate::oracle::{Disruption, Log};
use crate::plan::{Drive, Kind, Quirk, StagePlan, Verb};
use crate::segment::{Death, SegmentPlan};
use crate::watch::Watch;

/// The part of a process.
#[derive(Clone)]
enum Role {
    /// Drives the handle of this number, of a stage.
    Stage { stage: usize, kind: Kind, handle: usize, drive: Drive },
    /// Publishes.
    Producer { verbs: Vec<Verb>, shared: bool, done: Arc<AtomicUsize> },
    /// Joins a tap.
    Subscriber { tap: usize, drive: Drive, number: usize },
    /// Looks on. `stages`: those with one handle.
    Looker { times: u64, stages: Vec<usize> },
}

/// How a life ended that did not end in death.
enum Ended {
    /// Nothing is left to do.
    Over,
    /// The process has left, or found no place, and comes again.
    Again,
}

/// Runs the processes of a segment until all have ended. `first`: a number that no other virtual
/// process has, nor those after it.
pub fn run(plan: &SegmentPlan, log: &Arc<Log>, first: u32) -> Result<(), slipring::BuildError> {
    log.shared_by_processes();
    let heap = Arc::new(Heap::new(plan)?);
    let mut roles = Vec::new();
    for (stage, of) in plan.ring.stages.iter().enumerate() {
        let drives = of.drives.iter().enumerate();
        roles.extend(drives.map(|(handle, drive)| Role::Stage {
            stage,
            kind: of.kind,
            handle,
            drive: *drive,
        }));
    }
    let shared = plan.producers.len() > 1;
    let done = || Arc::new(AtomicUsize::new(0));
    let producer =
        |verbs: &Vec<Verb>| Role::Producer { verbs: verbs.clone(), shared, done: done() };
    roles.extend(plan.producers.iter().map(producer));
    let subscribers = plan.subscribers.iter().enumerate();
    roles.extend(subscribers.map(|(number, (tap, drive))| Role::Subscriber {
        tap: *tap,
        drive: *drive,
        number,
    }));
    if plan.looks != 0 {
        let single =
            |&stage: &usize| matches!(plan.ring.stages[stage].kind, Kind::Reader | Kind::Writer);
        let stages = (0..plan.ring.stages.len()).filter(single).collect();
        roles.push(Role::Looker { times: plan.looks, stages });
    }
    let keepers: Vec<JoinHandle<()>> = roles
        .into_iter()
        .enumerate()
        .map(|(number, role)| {
            let (heap, log) = (heap.clone(), log.clone());
            let name = format!("keeper {number}");
            let ends = |death: &Death| matches!(death, Death::Fail | Death::Close);
            let ends = match &role {
                Role::Stage { stage, .. } => ends(&plan.on_death[*stage]),
                Role::Producer { .. } => ends(&plan.producer_on_death),
                Role::Subscriber { .. } | Role::Looker { .. } => false,
            };
            let keep = move || keep(&heap, &log, role, ends, first + 1_000 * number as u32);
            Builder::new().name(name).spawn(keep).expect("the machine has cores for all")
        })
        .collect();
    for keeper in keepers {
        if let Err(payload) = keeper.join() {
            std::panic::resume_unwind(payload);
        }
    }
    count_deaths(&heap, plan, log, first + 99_000)
}

/// Recovers all that have died, as `process`, and checks the deaths that their seats have counted.
/// A seat whose worker has left a chunk counts its death later, and a member of a tap has a seat
/// for each life.
fn count_deaths(
    heap: &Heap,
    plan: &SegmentPlan,
    log: &Log,
    process: u32,
) -> Result<(), slipring::BuildError> {
    let Some(number) = heap.places.take(process) else { return Ok(()) };
    let ring = heap.attach(number, process)?;
    heap.recover_all(&ring, process);
    let single = |stage: &StagePlan| !stage.kind.is_pool() && stage.kind != Kind::Tap;
    let stages = plan.ring.stages.iter().enumerate().filter(|(_, stage)| single(stage));
    for party in stages.map(|(stage, _)| stage).chain([ring.producer_party()]) {
        let deaths = ring.seats_of(party).map(|seat| u64::from(ring.seat(seat).deaths()));
        log.check_deaths(party, deaths.sum());
    }
    drop(ring);
    heap.places.leave(number);
    Ok(())
}

/// Starts a process again and again, until it has nothing left to do. `ends`: whether its death
/// ends the graph.
fn keep(heap: &Arc<Heap>, log: &Arc<Log>, mut role: Role, ends: bool, first: u32) {
    let most = match &role {
        Role::Stage { drive, .. } | Role::Subscriber { drive, .. } => drive.max,
        Role::Producer { .. } | Role::Looker { .. } => 0,
    };
    for process in first.. {
        let (own_heap, own_log, own_role) = (heap.clone(), log.clone(), role.clone());
        let life = move || live(&own_heap, &own_log, own_role, process);
        let name = format!("process {process}");
        let started = Builder::new().name(name).process(process).spawn(life);
        let ended = started.expect("the machine has cores for all").join();
        // A death that ends the graph needs no successor.
        if let Ok(Ended::Over) = ended {
            return;
        }
        if ended.is_err() && ends && log.had_seat(process) {
            if let Role::Stage { stage, .. } = role {
                // The others may have ended without an error.
                log.disrupt(Disruption::Failure(Log::name(stage)));
            }
            return;
        }
        match &mut role {
            Role::Stage { drive, .. } | Role::Subscriber { drive, .. } => {
                // Each leaves in its first life only. Lives take one event and several in turn.
                let leaves = |(_, quirk): &(u64, Quirk)| *quirk == Quirk::Leave;
                drive.quirk = drive.quirk.filter(|quirk| !leaves(quirk));
                drive.max = if drive.max == 1 { most } else { 1 };
            }
            Role::Producer { .. } | Role::Looker { .. } => {}
        }
        spin_loop();
    }
}

/// A life of a process, from its attachment until it leaves.
fn live(heap: &Heap, log: &Arc<Log>, role: Role, process: u32) -> Ended {
    let Some(number) = heap.places.take(process) else { return Ended::Again };
    let ended = match heap.attach(number, process) {
        Ok(ring) => act_out(heap, &ring, log, role, (number, process)),
        Err(error) => {
            log.violation(format!("a process cannot attach: {error}"));
            Ended::Over
        }
    };
    heap.places.leave(number);
    ended
}

fn act_out(
    heap: &Heap,
    ring: &SegmentRing<Parts>,
    log: &Arc<Log>,
    role: Role,
    (number, process): (u32, u32),
) -> Ended {
    let seat_of = |seats: Range<usize>, party: usize| {
        log.seated(process, party, false);
        let seat = heap.take_any(ring, seats, number, process);
        log.seated(process, party, seat.is_some());
        seat
    };
    match role {
        Role::Stage { stage, kind, handle, drive } => {
            let seats = ring.seats_of(stage);
            let own = seats.start + handle;
            let seat = seat_of(if kind.is_pool() { seats } else { own..own + 1 }, stage);
            let Some(seat) = seat else { return Ended::Again };
            // SAFETY: I1, and the stage was declared with this kind.
            let handle: Box<dyn Handle> = unsafe {
                match kind {
                    Kind::Reader => Box::new(Held::new(ring.reader(stage))),
                    Kind::Writer => Box::new(Held::new(ring.writer(stage))),
                    Kind::PoolReader => Box::new(Held::new(ring.pool_reader(stage, seat))),
                    Kind::PoolWriter => Box::new(Held::new(ring.pool_writer(stage, seat))),
                    Kind::ShardReader => Box::new(Held::new(ring.shard_reader(stage, handle))),
                    Kind::ShardWriter => Box::new(Held::new(ring.shard_writer(stage, handle))),
                    Kind::Tap => return Ended::Over,
                }
            };
            let mut watch = Watch::new(log, stage, None);
            match kind.is_pool() {
                // A worker is told with each chunk, so any event may come again after a death.
                true => watch.may_repeat(),
                false => watch.may_repeat_at(handle.redelivered()),
            }
            drive_to_end(handle, watch, drive, || log.seated(process, stage, false))
        }
        Role::Producer { verbs, shared, done } => {
            if ring.is_over() {
                return Ended::Over;
            }
            let party = ring.producer_party();
            let Some(seat) = seat_of(ring.seats_of(party), party) else {
                return Ended::Again;
            };
            // A dead producer's recoverer closes the ring before it frees the place.
            if !shared && ring.is_over() {
                log.seated(process, party, false);
                ring.seat(seat).free(number);
                return Ended::Over;
            }
            let go_on = |producer: &mut dyn super::producers::Acts| {
                while let Some(verb) = verbs.get(done.fetch_add(1, Relaxed)) {
                    if !act(producer, *verb, log) {
                        break;
                    }
                }
                log.seated(process, party, false);
            };
            match shared {
                // SAFETY: I1.
                true => go_on(&mut unsafe { ring.shared_producer(seat) }),
                // SAFETY: I1.
                false => go_on(&mut unsafe { ring.producer() }),
            }
            Ended::Over
        }
        Role::Looker { times, stages } => {
            look_on(ring, log, times, &stages);
            Ended::Over
        }
        Role::Subscriber { tap, drive, number } => {
            log.seated(process, tap, false);
            let Ok(reader) = ring.subscribe(tap, StartAt::Oldest) else { return Ended::Over };
            // Each life is a reader of its own.
            let subscriber = number + process as usize;
            let watch = Watch::new(log, tap, Some(subscriber));
            drive_to_end(Box::new(Held::new(reader)), watch, drive, || ());
            Ended::Over
        }
    }
}

/// Looks at the positions and counts of a ring, whose processes die meanwhile. A stage with one
/// handle never goes back.
fn look_on(ring: &SegmentRing<Parts>, log: &Log, times: u64, stages: &[usize]) {
    let mut before: Vec<u64> = Vec::new();
    for _ in 0..times {
        drop(ring.report());
        let places: Vec<u64> =
            stages.iter().map(|&stage| log.place(ring.position(stage))).collect();
        for (number, (earlier, later)) in before.iter().zip(&places).enumerate() {
            if earlier > later {
                let stage = stages[number];
                log.violation(format!("stage s{stage} went back from {earlier} to {later}"));
            }
        }
        before = places;
        spin_loop();
    }
}

fn drive_to_end(
    handle: Box<dyn Handle>,
    watch: Watch,
    drive: Drive,
    leaves: impl FnOnce(),
) -> Ended {
    let (leaving_fails, mirror) = (false, None);
    let driven = Driven { handle, watch, drive, leaving_fails, mirror, inner: None };
    match driven.run_until(&Env::default(), 0, leaves) {
        true => Ended::Over,
        false => Ended::Again,
    }
}
