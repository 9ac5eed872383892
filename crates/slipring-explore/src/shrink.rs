//! Making a failing case smaller: fewer rings, threads, stages, events and switches.
//!
//! - I1: Each step is kept only if the smaller case fails, under its schedule or one like it.

use std::time::{Duration, Instant};

use slipring_coherence::{Order, Schedule};

use crate::case::Case;
use crate::plan::{By, Front, Kind, Quirk, RingPlan, Verb, Waits};
use crate::play::play;
use crate::program::{Actor, Program};

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
            if let Err(broken) = play(program, &schedule) {
                let (program, found) = (program.clone(), broken.first_line().to_owned());
                self.case = Case { found, schedule, program, ..self.case.clone() };
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
    for ring in 0..program.rings.len() {
        push(&|program| program.rings[ring].shared = false);
        push(&|program| program.rings[ring].contiguous = false);
        push(&|program| program.rings[ring].first = 0);
        push(&|program| program.rings[ring].front = Front::Handles);
        push(&|program| program.rings[ring].capacity = (program.rings[ring].capacity / 2).max(1));
        push(&|program| program.rings[ring].wait = Waits::Park);
        for stage in 0..program.rings[ring].stages.len() {
            push(&|program| program.rings[ring].stages[stage].wait = None);
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
    all.retain(|program| program.rings.iter().all(is_sound));
    all
}

/// Whether a ring can be built and ends: pools need a slot for each worker, and without a stage no
/// request is answered.
fn is_sound(ring: &RingPlan) -> bool {
    let mut handled = ring.stages.iter().filter(|stage| stage.kind != Kind::Tap);
    !ring.stages.is_empty()
        && handled.all(|stage| stage.drives.len().max(stage.room) <= ring.capacity)
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
        Verb::Task(times, polls) => halves(times).map(|times| Verb::Task(times, polls)).collect(),
        Verb::Batches(len, events) => {
            halves(events).map(|events| Verb::Batches(len, events)).collect()
        }
        Verb::Claim(len, fate) => {
            halves(len as u64).map(|len| Verb::Claim(len as usize, fate)).collect()
        }
        Verb::Ask(times, how) => halves(times).map(|times| Verb::Ask(times, how)).collect(),
        Verb::Conflate(room, values) => {
            halves(values).map(|values| Verb::Conflate(room, values)).collect()
        }
        Verb::Raw(len) => halves(len as u64).map(|len| Verb::Raw(len as usize)).collect(),
        _ => Vec::new(),
    }
}

fn remove_ring(program: &mut Program, ring: usize) {
    program.rings.remove(ring);
    let of = |actor: &Actor| match actor {
        Actor::Producer { ring, .. }
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

fn remove_stage(program: &mut Program, ring: usize, stage: usize) {
    let stages = &mut program.rings[ring].stages;
    let removed = stages.remove(stage);
    for later in stages.iter_mut() {
        if later.after.contains(&stage) {
            later.after.extend(removed.after.iter().copied());
        }
        later.after.retain(|earlier| *earlier != stage);
        later.after.iter_mut().for_each(|earlier| *earlier -= usize::from(*earlier > stage));
        later.after.sort_unstable();
        later.after.dedup();
    }
    program.rings[ring].repair();
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
