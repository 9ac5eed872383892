//! Programs by seed.
//!
//! - I1: Each program ends under every schedule, unless the library breaks a promise. So a handler
//!   publishes only into rings that do not wait for its own, and some handle of each stage stays.

use slipring_coherence::{Dice, Schedule};

use crate::plan::{
    Answer, By, Drive, Fate, Fault, Front, Kind, Quirk, RingPlan, StagePlan, Verb, Waits, drain,
};
use crate::program::{Actor, Look, Program};
use crate::segment;

/// A family of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One ring, whose handles the program drives.
    Handles,
    /// One ring, whose stages the library runs.
    Handlers,
    /// One ring, with readers and workers that come and go.
    Visitors,
    /// Handles that panic, fail, leave, halt.
    Disrupted,
    /// Two rings, the first one's handlers publishing into the second.
    Rings,
    /// A ring that processes share, which die and come again.
    Processes,
}

impl Shape {
    /// All families.
    pub const ALL: [Shape; 6] = [
        Shape::Handles,
        Shape::Handlers,
        Shape::Visitors,
        Shape::Disrupted,
        Shape::Rings,
        Shape::Processes,
    ];

    /// The family's name.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Handles => "handles",
            Shape::Handlers => "handlers",
            Shape::Visitors => "visitors",
            Shape::Disrupted => "disrupted",
            Shape::Rings => "rings",
            Shape::Processes => "processes",
        }
    }
}

/// Returns the program of a seed.
pub fn program(shape: Shape, seed: u64) -> Program {
    let mut dice = Dice::new(seed ^ 0x9406_4A11);
    let dice = &mut dice;
    let mut program = Program::default();
    if shape == Shape::Processes {
        program.segments.push(segment::random(dice));
        return program;
    }
    let rings = if shape == Shape::Rings { 2 } else { 1 };
    for number in 0..rings {
        let front = match shape {
            Shape::Handlers => library(dice),
            Shape::Disrupted if dice.one_in(2) => library(dice),
            Shape::Visitors if dice.one_in(4) => Front::Chain(None),
            Shape::Rings if number == 0 && dice.one_in(2) => library(dice),
            _ => Front::Handles,
        };
        let mut ring = ring(dice, front);
        if shape == Shape::Rings && number == 1 {
            ring.shared = true;
        }
        program.actors.extend(producers(dice, number, &ring));
        program.rings.push(ring);
    }
    match shape {
        Shape::Visitors => add_visitors(dice, &mut program),
        Shape::Disrupted => disrupt(dice, &mut program),
        Shape::Rings => {
            let stages = program.rings[0].stages.iter_mut();
            let drives = stages.flat_map(|stage| &mut stage.drives);
            for drive in drives.filter(|_| dice.one_in(2)).collect::<Vec<_>>() {
                drive.quirk = Some((1 + dice.below(6), Quirk::Publish(1)));
                // The selector's thread may drive the stage that has to make room.
                if drive.by == By::Select {
                    drive.by = By::Poll;
                }
            }
            // Two handlers that wait for room in their own ring would wait for each other.
            let ring = &mut program.rings[1];
            if dice.one_in(2) {
                let stage = dice.below(ring.stages.len() as u64) as usize;
                let handle = dice.below(ring.stages[stage].drives.len() as u64) as usize;
                // Only a loop of the library knows that its handler waits for itself.
                let quirk = Some((1 + dice.below(6), Quirk::Publish(1)));
                let drive = &mut ring.stages[stage].drives[handle];
                *drive = Drive { by: By::ForEach, quirk, ..*drive };
            }
        }
        Shape::Handles | Shape::Handlers | Shape::Processes => {}
    }
    for ring in 0..program.rings.len() {
        for stage in 0..program.rings[ring].stages.len() {
            if program.rings[ring].stages[stage].mirror != 0 {
                let look = dice.pick(&[Look::Try, Look::Latest, Look::By(50), Look::Iterate]);
                program.actors.push(Actor::Observer { ring, stage, look });
            }
        }
    }
    if dice.one_in(3) {
        program.actors.push(Actor::Monitor { ring: 0, times: 1 + dice.below(5) });
    }
    program
}

/// Returns the schedule of a seed for a program. Where every wait is ended by a notification, a
/// part of the schedules lets no timer rescue a lost one.
pub fn schedule(program: &Program, seed: u64) -> Schedule {
    let schedule = Schedule::new(seed);
    let notified = |wait: Waits| {
        matches!(wait, Waits::Blocking | Waits::Park | Waits::BusySpin | Waits::Yielding)
    };
    let segments = program.segments.iter().map(|segment| &segment.ring);
    let all_notified = program.rings.iter().chain(segments).all(|ring| {
        let stages = ring.stages.iter().filter_map(|stage| stage.wait);
        // A handler that publishes asks again and again whether it waits for itself.
        let drives = ring.stages.iter().flat_map(|stage| &stage.drives);
        let mut quirks = drives.filter_map(|drive| drive.quirk);
        stages.chain([ring.wait]).all(notified)
            && !quirks.any(|(_, quirk)| matches!(quirk, Quirk::Publish(_)))
    });
    match all_notified && Dice::new(!seed).one_in(2) {
        true => Schedule { rescues: false, spurious: 0, leaps: 0, deaths: 0, ..schedule },
        false => schedule,
    }
}

/// Returns a front of stages that the library runs.
fn library(dice: &mut Dice) -> Front {
    let threads = dice.pick(&[None, Some(1), Some(2), Some(3)]);
    dice.pick(&[Front::Handlers(threads), Front::Chain(threads)])
}

fn ring(dice: &mut Dice, front: Front) -> RingPlan {
    let capacity = dice.pick(&[1, 2, 2, 4, 4, 8]);
    let most = dice.pick(&[1, 2, 3, 4]);
    let count = 1 + dice.below(most) as usize;
    let mut stages: Vec<StagePlan> = Vec::new();
    for number in 0..count {
        let kind = dice.pick(&[
            Kind::Reader,
            Kind::Reader,
            Kind::Reader,
            Kind::Writer,
            Kind::PoolReader,
            Kind::PoolReader,
            Kind::PoolWriter,
            Kind::ShardReader,
            Kind::ShardWriter,
        ]);
        let handles = match kind {
            Kind::Reader | Kind::Writer => 1,
            _ => 1 + dice.below(3.min(capacity as u64)) as usize,
        };
        stages.push(StagePlan {
            kind,
            room: 0,
            after: (0..number).filter(|_| dice.one_in(3)).collect(),
            // Stages on shared threads have to wait in the same way.
            wait: (dice.one_in(4) && !front.shares_threads()).then(|| wait(dice)),
            on_fault: dice.pick(&[Fault::Stop, Fault::Skip, Fault::Retry]),
            mirror: if handles == 1 && !kind.is_pool() {
                dice.pick(&[0, 0, 0, 1, 2, 4])
            } else {
                0
            },
            drives: (0..handles).map(|_| drive(dice, capacity)).collect(),
        });
    }
    let mut ring = RingPlan {
        capacity,
        first: dice.pick(&[0, 0, u64::MAX - 10, (1 << 48) - 6]),
        shared: dice.one_in(2),
        contiguous: dice.one_in(4),
        wait: wait(dice),
        front,
        stages,
    };
    ring.repair();
    chain(&mut ring);
    ring
}

/// Puts each stage of a chain behind its predecessor.
fn chain(ring: &mut RingPlan) {
    if let Front::Chain(_) = ring.front {
        for (number, stage) in ring.stages.iter_mut().enumerate().skip(1) {
            stage.after = vec![number - 1];
        }
    }
}

fn wait(dice: &mut Dice) -> Waits {
    // Those that sleep until a notification have the most to lose.
    match dice.below(4) {
        0 => Waits::Park,
        1 => Waits::Blocking,
        2 => Waits::Adaptive,
        _ => dice.pick(&Waits::ALL),
    }
}

fn drive(dice: &mut Dice, capacity: usize) -> Drive {
    let by = match dice.below(10) {
        0..3 => By::ForEach,
        3 => By::Poll,
        4 => By::Batch,
        5 => By::Try,
        6 => By::Deadline(dice.below(100)),
        7 => By::Task(dice.pick(&[0, 0, 1, 3])),
        8 => By::Select,
        _ => By::Raw,
    };
    let quirk = dice.one_in(4).then(|| {
        let quirk = dice.pick(&[
            Quirk::DropBatch,
            Quirk::ForgetBatch,
            Quirk::ReleaseFront,
            Quirk::Sleep(100),
        ]);
        (1 + dice.below(8), quirk)
    });
    Drive { by, max: 1 + dice.below(2 * capacity as u64) as usize, quirk }
}

fn producers(dice: &mut Dice, ring: usize, plan: &RingPlan) -> Vec<Actor> {
    let count = if plan.shared { 1 + dice.below(3) } else { 1 };
    let budget = dice.pick(&[4, 12, 24]);
    (0..count)
        .map(|_| {
            let verbs = (0..1 + dice.below(5)).map(|_| verb(dice, plan.capacity, budget));
            let mut verbs: Vec<Verb> = verbs.collect();
            if dice.one_in(3) {
                drain(&mut verbs);
            }
            Actor::Producer { ring, verbs }
        })
        .collect()
}

fn verb(dice: &mut Dice, capacity: usize, budget: u64) -> Verb {
    let some = |dice: &mut Dice| 1 + dice.below(budget / 2);
    let len = |dice: &mut Dice| 1 + dice.below(capacity as u64) as usize;
    match dice.below(18) {
        0..3 => Verb::Publish(some(dice)),
        3..5 => Verb::Try(some(dice)),
        5 => Verb::By(dice.below(100)),
        6 => Verb::All(some(dice)),
        7 => Verb::Batches(len(dice), some(dice)),
        8..10 => Verb::Claim(
            len(dice),
            dice.pick(&[Fate::Publish, Fate::Publish, Fate::Drop, Fate::Forget]),
        ),
        10 => Verb::OrDrop(some(dice)),
        11 => Verb::Task(some(dice), dice.pick(&[0, 0, 1, 2])),
        12 => Verb::Raw(len(dice)),
        13 => Verb::ClaimTask(len(dice), dice.pick(&[0, 0, 1, 2])),
        14..16 => {
            let answers = [Answer::Wait, Answer::For(50), Answer::Task, Answer::Try, Answer::Drop];
            Verb::Ask(some(dice), dice.pick(&answers))
        }
        16 => Verb::Conflate(1 + dice.below(3) as usize, some(dice)),
        _ => Verb::Sleep(100),
    }
}

fn add_visitors(dice: &mut Dice, program: &mut Program) {
    let capacity = program.rings[0].capacity;
    let leaving = |dice: &mut Dice| {
        let leaving = dice.pick(&[Quirk::Leave, Quirk::LeaveInside]);
        let quirk = dice.one_in(2).then(|| (1 + dice.below(6), leaving));
        let drive = drive(dice, capacity);
        Drive { quirk: quirk.or(drive.quirk), ..drive }
    };
    let ring = &mut program.rings[0];
    if dice.one_in(8) {
        // A ring with readers that come and go, and no others, answers no request.
        ring.stages.clear();
        for actor in &mut program.actors {
            if let Actor::Producer { verbs, .. } = actor {
                verbs.retain(|verb| !matches!(verb, Verb::Ask(..)));
            }
        }
    }
    let ring = &mut program.rings[0];
    let taps = match ring.stages.iter().any(|stage| stage.kind.is_pool()) {
        true => dice.below(2),
        false => 1 + dice.below(2),
    };
    // A tap cannot come after another one, as it would in a chain.
    let most = if let Front::Chain(_) = ring.front { 1 } else { 2 };
    for _ in 0..taps.min(most) {
        let ring = &mut program.rings[0];
        let stage = ring.stages.len();
        let room = 1 + dice.below(3) as usize;
        let behind = dice.one_in(2);
        let earlier = |number: &usize| ring.stages[*number].kind != Kind::Tap;
        let tap = StagePlan {
            kind: Kind::Tap,
            room,
            // A tap cannot come after another one.
            after: (0..stage).filter(earlier).filter(|_| dice.one_in(3)).collect(),
            wait: None,
            on_fault: Fault::Stop,
            mirror: 0,
            drives: Vec::new(),
        };
        ring.stages.push(tap);
        if behind {
            let follower = StagePlan {
                kind: dice.pick(&[Kind::Reader, Kind::Writer]),
                room: 0,
                after: (0..=stage)
                    .filter(|&number| number == stage || ring.stages[number].kind == Kind::Tap)
                    .collect(),
                wait: None,
                on_fault: Fault::Stop,
                mirror: 0,
                drives: vec![drive(dice, capacity)],
            };
            ring.stages.push(follower);
        }
        ring.repair();
        for _ in 0..1 + dice.below(4) {
            let (oldest, drive) = (dice.one_in(2), leaving(dice));
            program.actors.push(Actor::Subscriber { ring: 0, stage, oldest, drive });
        }
        if dice.one_in(3) {
            program.actors.push(Actor::Evictor { ring: 0 });
        }
    }
    let ring = &mut program.rings[0];
    chain(ring);
    let pools: Vec<usize> =
        (0..ring.stages.len()).filter(|&stage| ring.stages[stage].kind.is_pool()).collect();
    for stage in pools {
        let handles = ring.stages[stage].drives.len();
        ring.stages[stage].room = (handles + dice.below(3) as usize).min(capacity);
        for drive in &mut ring.stages[stage].drives[1..] {
            *drive = leaving(dice);
        }
        for _ in 0..dice.below(3) {
            program.actors.push(Actor::Joiner { ring: 0, stage, drive: leaving(dice) });
        }
    }
}

fn disrupt(dice: &mut Dice, program: &mut Program) {
    let shared = program.rings[0].shared;
    for _ in 0..1 + dice.below(2) {
        let at = 1 + dice.below(8);
        if dice.one_in(2) {
            let ring = &mut program.rings[0];
            let stage = dice.below(ring.stages.len() as u64) as usize;
            let handle = dice.below(ring.stages[stage].drives.len() as u64) as usize;
            let quirk = dice.pick(&match ring.front {
                Front::Handles => [Quirk::Panic, Quirk::Leave, Quirk::LeaveInside, Quirk::Halt],
                _ => [Quirk::Panic, Quirk::Panic, Quirk::Fail, Quirk::Fail],
            });
            ring.stages[stage].drives[handle].quirk = Some((at, quirk));
        } else {
            let producers: Vec<usize> = (0..program.actors.len())
                .filter(|&actor| matches!(program.actors[actor], Actor::Producer { .. }))
                .collect();
            let actor = dice.pick(&producers);
            if let Actor::Producer { verbs, .. } = &mut program.actors[actor] {
                let ends = [Verb::Panic, Verb::Halt, Verb::CloseAll, Verb::CloseAll];
                let verb = dice.pick(&ends);
                let place = dice.below(verbs.len() as u64 + 1) as usize;
                if verb != Verb::CloseAll || shared {
                    verbs.insert(place, verb);
                }
            }
        }
    }
}
