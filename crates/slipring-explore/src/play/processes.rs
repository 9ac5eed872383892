//! Virtual processes on a segment. Each has a thread that may die at any access, and a keeper that
//! starts it again, which does not die.
//!
//! - I1: A life takes its seat before it makes the handle, and there is one handle of a seat at a
//!   time: a seat is taken from a process only after its death was proven.
//! - I2: A producer notes how far it has come before it begins an action, so a life that begins
//!   after a death repeats none.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use slipring::segment::shard_of_bytes;
use slipring::{errors::ClaimError, handles::StartAt};
use slipring_coherence::has_died;
use slipring_coherence::sync::{self, Builder, JoinHandle, spin_loop};

use super::acts::{Acts, act};
use super::answers::await_request;
use super::consumers::{Driven, alternate};
use super::env::Env;
use super::handles::Handle;
use super::memory::Heap;
use super::onlooker::Onlooker;
use super::shared_ring::{SharedRing, Sits};
use crate::oracle::{Disruption, Log};
use crate::plan::{Answer, By, Drive, Kind, Quirk, StagePlan, Verb};
use crate::segment::{Death, SegmentPlan};
use crate::watch::Watch;

/// A handle's place: its stage, its number there, and how it is driven.
#[derive(Clone)]
struct Place {
    stage: usize,
    kind: Kind,
    handle: usize,
    drive: Drive,
}

/// The part of a process.
#[derive(Clone)]
enum Role {
    /// Drives handles of stages, one or two.
    Stages(Vec<Place>),
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
pub fn run(
    plan: &SegmentPlan,
    log: &Arc<Log>,
    first: u32,
) -> Result<(), slipring::errors::BuildError> {
    log.shared_by_processes(plan);
    let heap = Arc::new(Heap::new(plan, log)?);
    let mut roles = Vec::new();
    for (stage, of) in plan.ring.stages.iter().enumerate() {
        let place = |(handle, drive): (usize, &Drive)| Place {
            stage,
            kind: of.kind,
            handle,
            drive: *drive,
        };
        roles.extend(of.drives.iter().enumerate().map(place).map(|place| vec![place]));
    }
    if let Some(together) = plan.together {
        let places = together.map(|(stage, handle)| {
            roles.iter().position(|all| (all[0].stage, all[0].handle) == (stage, handle))
        });
        if let [Some(one), Some(other)] = places
            && one < other
        {
            let moved = roles.remove(other);
            roles[one].extend(moved);
        }
    }
    let mut roles: Vec<Role> = roles.into_iter().map(Role::Stages).collect();
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
    let on_death: Vec<Death> =
        plan.on_death.iter().chain([&plan.producer_on_death]).copied().collect();
    let deaths = Deaths { on_death, absent: Duration::from_micros(plan.absent) };
    let keepers: Vec<JoinHandle<()>> = roles
        .into_iter()
        .enumerate()
        .map(|(number, role)| {
            let (heap, log) = (heap.clone(), log.clone());
            let name = format!("keeper {number}");
            let deaths = deaths.clone();
            let keep = move || keep(&heap, &log, role, &deaths, first + 1_000 * number as u32);
            Builder::new().name(name).spawn(keep).expect("the machine has cores for all")
        })
        .collect();
    let (seen, own_log) = (heap.clone(), log.clone());
    let (copies, producers) = (plan.copies, plan.producers.len());
    let onlooks = move || {
        let mut onlooker = Onlooker::new(&seen, &own_log, producers);
        for _ in 0..copies {
            onlooker.look();
            spin_loop();
        }
    };
    let onlooker = (copies != 0).then(|| {
        let started = Builder::new().name("onlooker".to_owned()).spawn(onlooks);
        started.expect("the machine has cores for all")
    });
    for keeper in keepers.into_iter().chain(onlooker) {
        if let Err(payload) = keeper.join() {
            resume_unwind(payload);
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
) -> Result<(), slipring::errors::BuildError> {
    let Some(number) = heap.places.take(process) else { return Ok(()) };
    let ring = heap.attach(number, process)?;
    heap.recover_all(&*ring, process);
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

/// The effects of deaths on a keeper.
#[derive(Clone)]
struct Deaths {
    /// The effect of the death of each party's process.
    on_death: Vec<Death>,
    /// How long a process stays away whose death is told.
    absent: Duration,
}

/// Starts a process again and again, until it has nothing left to do.
fn keep(heap: &Arc<Heap>, log: &Arc<Log>, mut role: Role, deaths: &Deaths, first: u32) {
    let parties: Vec<usize> = match &role {
        Role::Stages(places) => places.iter().map(|place| place.stage).collect(),
        Role::Producer { .. } => vec![log.plan().stages.len()],
        Role::Subscriber { .. } | Role::Looker { .. } => Vec::new(),
    };
    let drives: Vec<Drive> = role.drives().map(|drive| *drive).collect();
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
        let ended = match ended {
            Err(payload) if !has_died(process) => resume_unwind(payload),
            ended => ended,
        };
        if ended.is_err() {
            if let Role::Producer { shared: true, .. } = role
                && heap.needs_no_successor(process)
            {
                return;
            }
            let had_seat = |party: &&usize| log.had_seat(process, **party);
            let lost = |death: Death| {
                let mut seats = parties.iter().filter(had_seat);
                seats.find(|party| deaths.on_death[**party] == death).copied()
            };
            // A process with two places comes again for the sake of the other one.
            if let (Some(party), 1) = (lost(Death::Fail).or(lost(Death::Close)), parties.len()) {
                if party < log.plan().stages.len() {
                    // The others may have ended without an error.
                    log.disrupt(Disruption::Failure(Log::name(party)));
                }
                return;
            }
            if lost(Death::Tell).is_some() {
                sync::sleep(deaths.absent);
            }
        }
        for (drive, first) in role.drives().zip(&drives) {
            // Each leaves in its first life only. Lives take one event and several in turn.
            let leaves = |(_, quirk): &(u64, Quirk)| *quirk == Quirk::Leave;
            drive.quirk = drive.quirk.filter(|quirk| !leaves(quirk));
            drive.max = if drive.max == 1 { first.max } else { 1 };
        }
        spin_loop();
    }
}

impl Role {
    /// How its handles are driven.
    fn drives(&mut self) -> Box<dyn Iterator<Item = &mut Drive> + '_> {
        match self {
            Role::Stages(places) => Box::new(places.iter_mut().map(|place| &mut place.drive)),
            Role::Subscriber { drive, .. } => Box::new(std::iter::once(drive)),
            Role::Producer { .. } | Role::Looker { .. } => Box::new(std::iter::empty()),
        }
    }
}

/// A life of a process, from its attachment until it leaves.
fn live(heap: &Heap, log: &Arc<Log>, role: Role, process: u32) -> Ended {
    let Some(number) = heap.places.take(process) else { return Ended::Again };
    let ended = match heap.attach(number, process) {
        Ok(ring) => act_out(heap, &*ring, log, role, (number, process)),
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
    ring: &dyn SharedRing,
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
        Role::Stages(places) => {
            let selects = places.iter().any(|place| place.drive.by == By::Select);
            let alone = places.len() == 1 && !selects;
            let mut all = Vec::new();
            for place in &places {
                let seats = ring.seats_of(place.stage);
                let own = seats.start + place.handle;
                let seats = if place.kind.is_pool() { seats } else { own..own + 1 };
                let Some(seat) = seat_of(seats, place.stage) else {
                    places.iter().for_each(|place| log.unseated(process, place.stage));
                    return Ended::Again;
                };
                all.push(sit(heap, ring, log, place, seat));
            }
            let leaves = |stage: usize| log.seated(process, stage, false);
            if alone && let Some(driven) = all.pop() {
                return ended(driven.run_until(&Env::default(), 0, || leaves(places[0].stage)));
            }
            for driven in &mut all {
                // A call by positions of so many blocks does not wait.
                driven.drive.max |= usize::from(driven.drive.by == By::Raw);
                driven.drive.by = match driven.drive.by {
                    _ if selects => By::Select,
                    // A wait in one handle's call would hold up the other.
                    by @ (By::Try | By::Raw) => by,
                    _ => By::Poll,
                };
            }
            ended(alternate(&Env::default(), all, selects, &leaves))
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
            let go_on = |producer: &mut dyn Acts| {
                while let Some(verb) = verbs.get(done.fetch_add(1, Relaxed)) {
                    let goes_on = match *verb {
                        Verb::CloseAll => return true,
                        Verb::Ask(times, how) => ask(producer, ring, log, times, how),
                        verb => act(producer, verb, log),
                    };
                    if !goes_on {
                        break;
                    }
                }
                false
            };
            let mut producer = match shared {
                true => ring.shared_producer(seat),
                false => ring.producer(),
            };
            let closes = go_on(&mut *producer);
            log.seated(process, party, false);
            if closes && shared {
                log.disrupt(Disruption::CloseAll);
                producer.close_all();
            } else {
                drop(producer);
            }
            log.gone(process);
            Ended::Over
        }
        Role::Looker { times, stages } => {
            look_on(ring, log, times, &stages);
            Ended::Over
        }
        Role::Subscriber { tap, drive, number } => {
            log.seated(process, tap, false);
            // One life begins with what is there, the next one with what comes. Each is a reader of
            // its own.
            let start = if process.is_multiple_of(2) { StartAt::Oldest } else { StartAt::Now };
            let subscriber = number + process as usize;
            if let Ok(reader) = ring.subscribe(tap, start) {
                log.seated(process, tap, true);
                log.reads(process, subscriber);
                let watch = Watch::new(log, tap, Some(subscriber));
                let leaves = || log.seated(process, tap, false);
                drive_to_end(reader, watch, drive, leaves);
            }
            log.gone(process);
            Ended::Over
        }
    }
}

/// Looks at the positions and counts of a ring, whose processes die meanwhile. A stage with one
/// handle never goes back.
fn look_on(ring: &dyn SharedRing, log: &Log, times: u64, stages: &[usize]) {
    let mut before: Vec<u64> = Vec::new();
    for _ in 0..times {
        ring.report();
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

/// Makes the handle of a place on a seat of this process.
fn sit(heap: &Heap, ring: &dyn SharedRing, log: &Arc<Log>, place: &Place, seat: usize) -> Driven {
    let Place { stage, kind, handle: number, mut drive } = *place;
    let mut handle = ring.handle(Sits { stage, kind, seat, number });
    let mut watch = Watch::new(log, stage, None);
    match kind.is_pool() {
        // A worker is told with each chunk, so any event may come again after a death.
        true => watch.may_repeat(),
        false => watch.may_repeat_at(handle.suspects().unwrap_or(handle.redelivered())),
    }
    if let Some((_, Quirk::PassOver)) = drive.quirk {
        drive.quirk = None;
        pass_over(heap, log, &mut *handle, &watch, number);
    }
    let (leaving_fails, mirror) = (false, None);
    Driven { handle, watch, drive, leaving_fails, mirror, inner: None }
}

/// Passes over the suspects of a new handle. Nothing overwrites their slots until it has released
/// them.
fn pass_over(heap: &Heap, log: &Log, handle: &mut dyn Handle, watch: &Watch, number: usize) {
    let Some((first, len)) = handle.suspects() else { return };
    let stage = &log.plan().stages[watch.stage()];
    let own = |id: u64| {
        let shard = || shard_of_bytes(&id.to_ne_bytes(), stage.drives.len()) as usize;
        stage.kind != Kind::ShardWriter || shard() == number
    };
    let seqs = (0..len as u64).map(|offset| first.wrapping_add(offset));
    let slots = seqs.map(|seq| (seq, heap.event(seq)[0])).filter(|(_, id)| own(*id));
    watch.passes_over(slots.collect::<Vec<_>>());
    let passed = handle.pass_over();
    let left = handle.suspects().map_or(0, |(_, len)| len);
    match passed {
        Ok(passed) if passed > len as u64 || left != 0 => log.violation(format!(
            "stage s{} passed over {passed} of {len} suspects, and {left} are left",
            watch.stage()
        )),
        _ => {}
    }
}

/// Publishes some requests, one after the other, and waits for each answer. Returns whether the
/// stream goes on.
fn ask(producer: &mut dyn Acts, ring: &dyn SharedRing, log: &Log, times: u64, how: Answer) -> bool {
    for _ in 0..times {
        let (id, seq) = loop {
            match producer.put(log).map_err(ClaimError::from) {
                Ok(put) => break put,
                Err(error) if !log.claim_error(&error) => return false,
                Err(_) => spin_loop(),
            }
        };
        if !await_request(ring.request(seq), id, how, log) {
            return false;
        }
    }
    true
}

fn ended(over: bool) -> Ended {
    if over { Ended::Over } else { Ended::Again }
}

fn drive_to_end(
    handle: Box<dyn Handle>,
    watch: Watch,
    drive: Drive,
    leaves: impl FnOnce(),
) -> Ended {
    let (leaving_fails, mirror) = (false, None);
    let driven = Driven { handle, watch, drive, leaving_fails, mirror, inner: None };
    ended(driven.run_until(&Env::default(), 0, leaves))
}
