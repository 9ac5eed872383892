//! Making a failing case smaller: fewer rings, threads, stages, events and switches.
//!
//! - I1: Each step is kept only if the smaller case can be run, and fails in the same way, under
//!   its schedule or one like it. With a planted defect it may fail in any way, but not without it.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use slipring_coherence::{Order, Schedule};

use crate::case::Case;
use crate::plan::{By, Drive, Front, Kind, Quirk, RingPlan, Run, StagePlan, Verb, Waits};
use crate::program::{Actor, Program};
use crate::segment::SegmentPlan;

/// Number of schedules under which a smaller program may fail.
const SCHEDULES: u64 = 60;

/// Returns a smaller case that fails. Stops after `time`.
pub fn shrink(case: Case, time: Duration) -> Case {
    let mut shrinking = Shrinking { case, until: Instant::now() + time };
    while shrinking.smaller_program() {}
    shrinking.smaller_schedule();
    while shrinking.smaller_program() {}
    shrinking.case
}

/// The words of a finding that tell its kind: the first few that are no numbers or names of stages.
fn kind(found: &str) -> Vec<&str> {
    let has_digit = |word: &&str| word.contains(|c: char| c.is_ascii_digit());
    found.split_whitespace().filter(|word| !has_digit(word)).take(6).collect()
}

struct Shrinking {
    case: Case,
    until: Instant,
}

impl Shrinking {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Keeps `program` under `schedule` if it fails (I1).
    fn keep(&mut self, program: &Program, schedule: &Schedule) -> bool {
        for number in 0..SCHEDULES {
            if self.is_over() {
                return false;
            }
            let seed = schedule.seed.wrapping_add(number);
            let schedule = Schedule { seed, ..schedule.clone() };
            let case = Case { schedule, program: program.clone(), ..self.case.clone() };
            let Some(broken) = case.fails() else { continue };
            let found = broken.first_line();
            if case.twin.is_some() || kind(found) == kind(&self.case.found) {
                self.case = Case { found: found.to_owned(), ..case };
                return true;
            }
        }
        false
    }

    /// Tries each smaller program once. Returns whether one was kept.
    fn smaller_program(&mut self) -> bool {
        let mut any = false;
        let mut number = 0;
        // The list changes with the program: those before `number` have been tried.
        while let Some(candidate) = candidates(&self.case.program).into_iter().nth(number) {
            if self.is_over() {
                return false;
            }
            if self.keep(&candidate, &self.case.schedule.clone()) {
                any = true;
            } else {
                number += 1;
            }
        }
        any
    }

    /// Tries settings that leave less to chance, and as few switches as can be.
    fn smaller_schedule(&mut self) {
        let program = self.case.program.clone();
        let settings: [fn(&mut Schedule); 6] = [
            |schedule| schedule.spurious = 0,
            |schedule| schedule.leaps = 0,
            |schedule| schedule.late_stores = 0,
            |schedule| schedule.membarrier = true,
            |schedule| schedule.cores = 16,
            |schedule| schedule.short = true,
        ];
        for set in settings {
            let mut schedule = self.case.schedule.clone();
            set(&mut schedule);
            if schedule != self.case.schedule {
                self.keep(&program, &schedule);
            }
        }
        for changes in 0..4 {
            let order = Order::Priorities;
            let schedule = Schedule { order, changes, ..self.case.schedule.clone() };
            if (0..3).any(|some| {
                let seed = schedule.seed.wrapping_add(some * SCHEDULES);
                self.keep(&program, &Schedule { seed, ..schedule.clone() })
            }) {
                return;
            }
        }
    }
}

/// Returns smaller programs, those first that leave out the most.
fn candidates(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    let mut push = |change: &dyn Fn(&mut Program)| {
        let mut smaller = program.clone();
        change(&mut smaller);
        if smaller != *program {
            all.push(smaller);
        }
    };
    for ring in 0..program.rings.len() {
        if program.rings.len() > 1 {
            push(&|program| remove_ring(program, ring));
        }
        for stage in 0..program.rings[ring].stages.len() {
            push(&|program| remove_stage(program, ring, stage));
        }
    }
    for actor in 0..program.actors.len() {
        push(&|program| drop(program.actors.remove(actor)));
    }
    for actor in 0..program.actors.len() {
        if let Actor::Producer { verbs, .. } = &program.actors[actor] {
            for verb in 0..verbs.len() {
                push(&|program| {
                    change_verbs(program, actor, |verbs| {
                        verbs.remove(verb);
                    })
                });
            }
            for verb in 0..verbs.len() {
                for smaller in smaller_verbs(verbs[verb]) {
                    push(&|program| change_verbs(program, actor, |verbs| verbs[verb] = smaller));
                }
            }
        }
    }
    push(&|program| program.keeps = false);
    push(&|program| program.nested = None);
    for ring in 0..program.rings.len() {
        push(&|program| program.rings[ring].shared = false);
        push(&|program| program.rings[ring].reversed = false);
        push(&|program| program.rings[ring].run = Run::Join);
        push(&|program| program.rings[ring].deadline = None);
        push(&|program| program.rings[ring].cursor = false);
        push(&|program| program.rings[ring].contiguous = false);
        push(&|program| program.rings[ring].first = 0);
        push(&|program| program.rings[ring].front = Front::Handles);
        push(&|program| program.rings[ring].capacity = (program.rings[ring].capacity / 2).max(1));
        push(&|program| program.rings[ring].wait = Waits::Park);
        for stage in 0..program.rings[ring].stages.len() {
            push(&|program| program.rings[ring].stages[stage].wait = None);
            push(&|program| program.rings[ring].stages[stage].on = None);
            push(&|program| program.rings[ring].stages[stage].idles = None);
            push(&|program| {
                let stage = &mut program.rings[ring].stages[stage];
                if stage.drives.len() > 1 {
                    stage.drives.pop();
                }
            });
            push(&|program| {
                let stage = &mut program.rings[ring].stages[stage];
                if stage.kind != Kind::Tap && stage.drives.len() == 1 && !stage.kind.writes() {
                    stage.kind = Kind::Reader;
                }
            });
            for drive in 0..program.rings[ring].stages[stage].drives.len() {
                push(&|program| program.rings[ring].stages[stage].drives[drive].quirk = None);
                push(&|program| program.rings[ring].stages[stage].drives[drive].by = By::ForEach);
                push(&|program| program.rings[ring].stages[stage].drives[drive].max = 1);
            }
        }
    }
    for segment in 0..program.segments.len() {
        for smaller in smaller_segments(&program.segments[segment]) {
            push(&|program| program.segments[segment] = smaller.clone());
        }
    }
    all.retain(|program| (0..program.rings.len()).all(|ring| is_sound(program, ring)));
    all
}

/// Returns smaller segments, those first that leave out the most.
fn smaller_segments(segment: &SegmentPlan) -> Vec<SegmentPlan> {
    let mut all = Vec::new();
    let mut push = |change: &dyn Fn(&mut SegmentPlan)| {
        let mut smaller = segment.clone();
        change(&mut smaller);
        all.push(smaller);
    };
    for stage in 0..segment.ring.stages.len() {
        push(&|segment| {
            take_out(&mut segment.ring, stage);
            segment.on_death.remove(stage);
            segment.together = None;
            segment.subscribers.retain(|(tap, _)| *tap != stage);
            segment.subscribers.iter_mut().for_each(|(tap, _)| *tap -= usize::from(*tap > stage));
        });
    }
    for producer in 0..segment.producers.len() {
        push(&|segment| _ = segment.producers.remove(producer));
    }
    for subscriber in 0..segment.subscribers.len() {
        push(&|segment| _ = segment.subscribers.remove(subscriber));
    }
    for smaller in segment.content.smaller() {
        push(&|segment| segment.content = smaller.clone());
    }
    push(&|segment| segment.together = None);
    push(&|segment| segment.looks = 0);
    push(&|segment| segment.copies = 0);
    push(&|segment| segment.absent = 0);
    for producer in 0..segment.producers.len() {
        for verb in 0..segment.producers[producer].len() {
            push(&|segment| _ = segment.producers[producer].remove(verb));
            for smaller in smaller_verbs(segment.producers[producer][verb]) {
                push(&|segment| segment.producers[producer][verb] = smaller);
            }
        }
    }
    push(&|segment| segment.ring.first = 0);
    push(&|segment| segment.ring.capacity = (segment.ring.capacity / 2).max(1));
    push(&|segment| segment.ring.wait = Waits::Park);
    for stage in 0..segment.ring.stages.len() {
        for drive in 0..segment.ring.stages[stage].drives.len() {
            push(&|segment| segment.ring.stages[stage].drives[drive].quirk = None);
            push(&|segment| segment.ring.stages[stage].drives[drive].by = By::ForEach);
            push(&|segment| segment.ring.stages[stage].drives[drive].max = 1);
        }
    }
    let fits = |segment: &SegmentPlan| {
        let stages = &segment.ring.stages;
        stages.iter().any(|stage| stage.kind != Kind::Tap)
            && stages.iter().all(|stage| stage.drives.len() <= segment.ring.capacity)
            && !segment.producers.is_empty()
    };
    all.retain(|smaller| smaller != segment && fits(smaller));
    all
}

/// Whether a ring can be built and ends, by the rules of the generator.
fn is_sound(program: &Program, number: usize) -> bool {
    let ring = &program.rings[number];
    let is_tap = |stage: &usize| ring.stages[*stage].kind == Kind::Tap;
    let all = || 0..ring.stages.len();
    let has_room = |stage: usize| {
        let StagePlan { drives, room, .. } = &ring.stages[stage];
        is_tap(&stage) || drives.len().max(*room) <= ring.capacity
    };
    let behind_tap = |stage: usize| is_tap(&stage) && ring.before(stage).iter().any(is_tap);
    let verbs: Vec<&Vec<Verb>> =
        program.actors.iter().filter_map(|actor| verbs(actor, number)).collect();
    let is_asked = verbs.iter().any(|verbs| verbs.iter().any(Verb::asks));
    let mut waits = verbs.iter().flat_map(|verbs| verbs.iter()).filter(|it| it.needs_deadline());
    let ends = ring.deadline.is_some();
    let tells = |verb: &Verb| *verb != Verb::AwaitFailure || ring.tells();
    // Only the close ends such a wait.
    let closes = |verbs: &&Vec<Verb>| {
        let is_free = |verb: &Verb| matches!(verb, Verb::Sleep(_) | Verb::OrDrop(_));
        let (last, first) =
            verbs.split_last().map_or((None, &[][..]), |(last, first)| (Some(last), first));
        last == Some(&Verb::CloseAll) && first.iter().all(is_free)
    };
    // A nested call may wait for the close, too.
    let closes_in_time = || {
        let all = verbs.iter().flat_map(|verbs| verbs.iter());
        let events = |verb: &Verb| match verb {
            Verb::Publish(events) => *events as usize,
            Verb::Sleep(_) | Verb::CloseAll => 0,
            _ => usize::MAX,
        };
        let closes = |verbs: &&Vec<Verb>| verbs.last() == Some(&Verb::CloseAll);
        ring.shared
            && verbs.iter().all(closes)
            && all.map(events).fold(0, usize::saturating_add) <= ring.capacity
    };
    let is_patient = |stage: usize, drive: &Drive| match drive.quirk {
        Some((_, Quirk::AwaitProducers | Quirk::AwaitProducer)) => {
            ring.shared && verbs.iter().any(closes)
        }
        Some((_, Quirk::Await(other))) => {
            let is_behind = ring.before(other).contains(&stage);
            let has_threads = !ring.is_run()
                && ring.front != Front::Thread
                && !matches!(ring.front, Front::Handlers(Some(0 | 1)) | Front::Chain(Some(0 | 1)));
            match ring.front {
                Front::Handles => {
                    // A worker that waits for its colleagues has some, and they stay.
                    let leaves = |drive: &Drive| {
                        matches!(drive.quirk, Some((_, Quirk::Leave | Quirk::LeaveInside)))
                    };
                    let drives = &ring.stages[stage].drives;
                    let has_some = drives.iter().filter(|drive| !leaves(drive)).count() > 1;
                    (other != stage || has_some)
                        && drive.max == 1
                        && matches!(drive.by, By::Poll | By::Batch | By::Try | By::Task(0))
                }
                _ => has_threads && !is_behind,
            }
        }
        _ => true,
    };
    all().all(|stage| has_room(stage) && !behind_tap(stage))
        && all().all(|stage| ring.stages[stage].drives.iter().all(|drive| is_patient(stage, drive)))
        && (program.nested.is_none() || ring.capacity >= 256 || closes_in_time())
        && waits.all(|verb| ends && tells(verb))
        && (!is_asked || all().any(|stage| !is_tap(&stage)))
}

/// The actions of an actor on a ring, if it publishes.
fn verbs(actor: &Actor, number: usize) -> Option<&Vec<Verb>> {
    match actor {
        Actor::Producer { ring, verbs } | Actor::Late { ring, verbs, .. } => {
            (*ring == number).then_some(verbs)
        }
        _ => None,
    }
}

fn change_verbs(program: &mut Program, actor: usize, change: impl FnOnce(&mut Vec<Verb>)) {
    if let Actor::Producer { verbs, .. } = &mut program.actors[actor] {
        change(verbs);
    }
}

fn smaller_verbs(verb: Verb) -> Vec<Verb> {
    let halves = |number: u64| [number / 2, number - 1].into_iter().filter(|some| *some > 0);
    match verb {
        Verb::Publish(times) => halves(times).map(Verb::Publish).collect(),
        Verb::Try(times) => halves(times).map(Verb::Try).chain([Verb::Publish(times)]).collect(),
        Verb::All(times) => halves(times).map(Verb::All).chain([Verb::Publish(times)]).collect(),
        Verb::OrDrop(times) => {
            halves(times).map(Verb::OrDrop).chain([Verb::Publish(times)]).collect()
        }
        Verb::Insist(times) => {
            halves(times).map(Verb::Insist).chain([Verb::Publish(times)]).collect()
        }
        Verb::Task(times, polls) => halves(times).map(|times| Verb::Task(times, polls)).collect(),
        Verb::Batches(len, events) => {
            halves(events).map(|events| Verb::Batches(len, events)).collect()
        }
        Verb::Claim(len, fate) => {
            halves(len as u64).map(|len| Verb::Claim(len as usize, fate)).collect()
        }
        Verb::Every(times, micros) => halves(times).map(|it| Verb::Every(it, micros)).collect(),
        Verb::AskTask(times, polls) => halves(times).map(|it| Verb::AskTask(it, polls)).collect(),
        Verb::AskBroken(times, how) => halves(times).map(|it| Verb::AskBroken(it, how)).collect(),
        Verb::Ask(times, how) => halves(times).map(|times| Verb::Ask(times, how)).collect(),
        Verb::Conflate(room, values) => {
            halves(values).map(|values| Verb::Conflate(room, values)).collect()
        }
        Verb::When(times, how) => halves(times).map(|times| Verb::When(times, how)).collect(),
        Verb::Raw(len) => halves(len as u64).map(|len| Verb::Raw(len as usize)).collect(),
        _ => Vec::new(),
    }
}

fn remove_ring(program: &mut Program, ring: usize) {
    program.rings.remove(ring);
    let of = |actor: &Actor| match actor {
        Actor::Producer { ring, .. }
        | Actor::Late { ring, .. }
        | Actor::Subscriber { ring, .. }
        | Actor::Joiner { ring, .. }
        | Actor::Evictor { ring }
        | Actor::Observer { ring, .. }
        | Actor::Monitor { ring, .. } => *ring,
    };
    program.actors.retain(|actor| of(actor) != ring);
    for actor in &mut program.actors {
        match actor {
            Actor::Producer { ring: of, .. }
            | Actor::Late { ring: of, .. }
            | Actor::Subscriber { ring: of, .. }
            | Actor::Joiner { ring: of, .. }
            | Actor::Evictor { ring: of }
            | Actor::Observer { ring: of, .. }
            | Actor::Monitor { ring: of, .. } => *of -= usize::from(*of > ring),
        }
    }
    let stages = program.rings.iter_mut().flat_map(|ring| &mut ring.stages);
    for drive in stages.flat_map(|stage| &mut stage.drives) {
        // The rings are two at most, and one publishes into the other.
        drive.quirk = drive.quirk.filter(|(_, quirk)| !matches!(quirk, Quirk::Publish(_)));
    }
}

/// Takes a stage out of a ring. Those behind it follow those before it.
fn take_out(ring: &mut RingPlan, stage: usize) {
    let removed = ring.stages.remove(stage);
    for later in ring.stages.iter_mut() {
        if later.after.contains(&stage) {
            later.after.extend(removed.after.iter().copied());
        }
        later.after.retain(|earlier| *earlier != stage);
        later.after.iter_mut().for_each(|earlier| *earlier -= usize::from(*earlier > stage));
        later.after.sort_unstable();
        later.after.dedup();
    }
    ring.repair();
}

fn remove_stage(program: &mut Program, ring: usize, stage: usize) {
    take_out(&mut program.rings[ring], stage);
    if program.nested.is_some_and(|nested| nested.iter().any(|(of, _)| *of >= stage)) {
        program.nested = None;
    }
    for drive in program.rings[ring].stages.iter_mut().flat_map(|stage| &mut stage.drives) {
        if let Some((_, Quirk::Await(other))) = &mut drive.quirk {
            match (*other).cmp(&stage) {
                Ordering::Less => {}
                Ordering::Equal => drive.quirk = None,
                Ordering::Greater => *other -= 1,
            }
        }
    }
    program.actors.retain(|actor| match actor {
        Actor::Subscriber { ring: of, stage: at, .. }
        | Actor::Observer { ring: of, stage: at, .. }
        | Actor::Joiner { ring: of, stage: at, .. } => (*of, *at) != (ring, stage),
        _ => true,
    });
    for actor in &mut program.actors {
        if let Actor::Subscriber { ring: of, stage: at, .. }
        | Actor::Observer { ring: of, stage: at, .. }
        | Actor::Joiner { ring: of, stage: at, .. } = actor
        {
            *at -= usize::from(*of == ring && *at > stage);
        }
    }
}
