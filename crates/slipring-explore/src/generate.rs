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
    /// One full ring, whose producers are closed while they wait for room.
    Closing,
    /// One ring without stages.
    Bare,
}

impl Shape {
    /// All families.
    pub const ALL: [Shape; 8] = [
        Shape::Handles,
        Shape::Handlers,
        Shape::Visitors,
        Shape::Disrupted,
        Shape::Rings,
        Shape::Processes,
        Shape::Closing,
        Shape::Bare,
    ];

    /// The family of a seed. The more the parts of a program can do to each other, the more programs
    /// a family has.
    pub fn of(seed: u64) -> Shape {
        const SHARES: [Shape; 12] = [
            Shape::Handles,
            Shape::Processes,
            Shape::Handlers,
            Shape::Processes,
            Shape::Visitors,
            Shape::Processes,
            Shape::Disrupted,
            Shape::Processes,
            Shape::Rings,
            Shape::Visitors,
            Shape::Closing,
            Shape::Bare,
        ];
        SHARES[(seed % SHARES.len() as u64) as usize]
    }

    /// The family's name.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Handles => "handles",
            Shape::Handlers => "handlers",
            Shape::Visitors => "visitors",
            Shape::Disrupted => "disrupted",
            Shape::Rings => "rings",
            Shape::Processes => "processes",
            Shape::Closing => "closing",
            Shape::Bare => "bare",
        }
    }
}

/// How large the parts of a program are. A small program meets itself more often at the same step.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Largest number of stages, and of handles of one.
    stages: u64,
    /// Largest number of a producer's actions, and of events of one.
    verbs: u64,
    pub events: u64,
}

impl Scale {
    pub fn random(dice: &mut Dice) -> Scale {
        match dice.one_in(2) {
            true => Scale { stages: 2, verbs: 2, events: dice.pick(&[1, 2, 3]) },
            false => Scale { stages: 4, verbs: 5, events: dice.pick(&[2, 6, 12]) },
        }
    }

    /// The number of a stage's handles.
    pub fn handles(self, dice: &mut Dice, capacity: usize) -> usize {
        1 + dice.below(self.stages.min(3).min(capacity as u64)) as usize
    }

    /// The number of stages.
    pub fn stages(self, dice: &mut Dice) -> usize {
        let most = 1 + dice.below(self.stages);
        1 + dice.below(most) as usize
    }

    /// The number of a producer's actions.
    pub fn verbs(self, dice: &mut Dice) -> u64 {
        1 + dice.below(self.verbs)
    }
}

/// Returns the program of a seed.
pub fn program(shape: Shape, seed: u64) -> Program {
    let mut dice = Dice::new(seed ^ 0x9406_4A11);
    let dice = &mut dice;
    let scale = Scale::random(dice);
    let mut program = Program { keeps: dice.one_in(2), ..Program::default() };
    if shape == Shape::Processes {
        program.segments.push(segment::random(dice, scale));
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
        let mut ring = ring(dice, front, scale);
        if shape == Shape::Rings && number == 1 || matches!(shape, Shape::Closing | Shape::Bare) {
            ring.shared = true;
        }
        if shape == Shape::Bare {
            ring.stages.clear();
        }
        let mut actors = producers(dice, number, &ring, scale);
        if ring.is_run() && ring.front.shares_threads() {
            actors.iter_mut().for_each(wait_inside);
        }
        if shape != Shape::Disrupted {
            end_otherwise(dice, &ring, &mut actors);
        }
        program.actors.extend(actors);
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
        Shape::Closing => close_full(dice, &mut program),
        Shape::Handles | Shape::Handlers => {
            await_a_stage(dice, &mut program.rings[0]);
            come_late(dice, &mut program, scale);
        }
        Shape::Bare => come_late(dice, &mut program, scale),
        Shape::Processes => {}
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

fn ring(dice: &mut Dice, front: Front, scale: Scale) -> RingPlan {
    let capacity = dice.pick(&[1, 2, 2, 4, 4, 8]);
    let count = scale.stages(dice);
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
            _ => scale.handles(dice, capacity),
        };
        stages.push(StagePlan {
            marks: dice.one_in(2),
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
        runs: dice.one_in(3),
        reversed: dice.one_in(3),
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
    // Those that sleep until a notification have the most to lose. Workers that stay awake draw
    // tickets.
    match dice.below(5) {
        0 => Waits::Park,
        1 => Waits::Blocking,
        2 => Waits::Adaptive,
        3 => dice.pick(&[Waits::BusySpin, Waits::Yielding]),
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

fn producers(dice: &mut Dice, ring: usize, plan: &RingPlan, scale: Scale) -> Vec<Actor> {
    let count = if plan.shared { 1 + dice.below(3) } else { 1 };
    (0..count)
        .map(|_| {
            let mut verbs = verbs(dice, plan, scale);
            if dice.one_in(3) {
                drain(&mut verbs);
            }
            Actor::Producer { ring, verbs }
        })
        .collect()
}

fn verbs(dice: &mut Dice, plan: &RingPlan, scale: Scale) -> Vec<Verb> {
    let mut verbs: Vec<Verb> =
        (0..scale.verbs(dice)).map(|_| verb(dice, plan.capacity, scale)).collect();
    if plan.stages.is_empty() {
        // No stage answers.
        verbs.retain(|verb| !matches!(verb, Verb::Ask(..)));
    }
    verbs
}

/// Leaves out what waits without the library, on a thread that may have to run the stages meanwhile.
fn wait_inside(actor: &mut Actor) {
    if let Actor::Producer { verbs, .. } = actor {
        verbs.retain(|verb| match verb {
            Verb::Publish(_) | Verb::By(_) | Verb::All(_) | Verb::Batches(..) => true,
            Verb::Claim(..) | Verb::OrDrop(_) | Verb::Sleep(_) => true,
            Verb::Ask(_, how) => matches!(how, Answer::Wait | Answer::For(_) | Answer::Drop),
            _ => false,
        });
    }
}

/// Lets some producers end with a request, or by a panic.
fn end_otherwise(dice: &mut Dice, plan: &RingPlan, actors: &mut [Actor]) {
    for actor in actors {
        if let Actor::Producer { verbs, .. } = actor
            && dice.one_in(8)
            && !plan.stages.is_empty()
        {
            let answers = [Answer::Wait, Answer::For(50), Answer::Task, Answer::Try];
            verbs.push(Verb::AskLast(dice.pick(&answers)));
        }
    }
}

/// Lets one handler wait for another stage, which the library runs meanwhile.
fn await_a_stage(dice: &mut Dice, ring: &mut RingPlan) {
    let by_handles = ring.front == Front::Handles;
    let has_threads = by_handles
        || !ring.is_run()
            && matches!(
                ring.front,
                Front::Handlers(None | Some(2 | 3)) | Front::Chain(None | Some(2 | 3))
            );
    if !has_threads || !dice.one_in(2) {
        return;
    }
    let own = dice.below(ring.stages.len() as u64) as usize;
    let other = dice.below(ring.stages.len() as u64) as usize;
    let is_behind = ring.before(other).contains(&own);
    // The library's own loops release a batch at its end.
    if other == own || is_behind && !by_handles {
        return;
    }
    let handle = dice.below(ring.stages[own].drives.len() as u64) as usize;
    let drive = &mut ring.stages[own].drives[handle];
    if by_handles {
        drive.by = dice.pick(&[By::Poll, By::Batch, By::Try, By::Task(0)]);
        drive.max = 1;
    }
    drive.quirk = Some((1 + dice.below(4), Quirk::Await(other)));
}

/// Lets producers come while others may have ended.
fn come_late(dice: &mut Dice, program: &mut Program, scale: Scale) {
    let plan = &program.rings[0];
    if plan.shared && plan.front == Front::Handles && dice.one_in(3) {
        let verbs = verbs(dice, plan, scale);
        program.actors.push(Actor::Late { ring: 0, last: dice.one_in(2), verbs });
    }
}

/// Lets a producer close the ring while the others wait for room, or have just got it.
fn close_full(dice: &mut Dice, program: &mut Program) {
    let ring = &mut program.rings[0];
    ring.capacity = dice.pick(&[1, 1, 2, 4]);
    ring.wait = dice.pick(&[Waits::BusySpin, Waits::Yielding, Waits::Blocking, Waits::Adaptive]);
    for stage in &mut ring.stages {
        stage.drives.truncate(ring.capacity);
        if let Some(drive) = stage.drives.first_mut()
            && dice.one_in(2)
        {
            drive.quirk = Some((1, Quirk::Sleep(dice.pick(&[100, 2_000]))));
        }
    }
    let len = ring.capacity as u64;
    let some = |dice: &mut Dice| match dice.below(3) {
        0 => Verb::All(1 + dice.below(2 * len)),
        1 => Verb::Claim(1 + dice.below(len) as usize, Fate::Publish),
        _ => Verb::Publish(1 + dice.below(3)),
    };
    program.actors.clear();
    for _ in 0..1 + dice.below(3) {
        let verbs = (0..1 + dice.below(3)).map(|_| some(dice)).collect();
        program.actors.push(Actor::Producer { ring: 0, verbs });
    }
    let mut last = match ring.stages[0].drives.first() {
        // Nothing but the close ends a wait for room.
        Some(_) if ring.front == Front::Handles && dice.one_in(2) => {
            let first = ring.stages.iter_mut().flat_map(|stage| &mut stage.drives);
            first.for_each(|drive| drive.quirk = Some((1, Quirk::AwaitProducers)));
            vec![Verb::Sleep(dice.pick(&[0, 10, 100]))]
        }
        _ => vec![Verb::Publish(len)],
    };
    if last[0] == Verb::Publish(len) && dice.one_in(2) {
        last.push(some(dice));
    }
    last.push(Verb::CloseAll);
    program.actors.push(Actor::Producer { ring: 0, verbs: last });
}

fn verb(dice: &mut Dice, capacity: usize, scale: Scale) -> Verb {
    let some = |dice: &mut Dice| 1 + dice.below(scale.events);
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
                verbs.retain(|verb| !matches!(verb, Verb::Ask(..) | Verb::AskLast(_)));
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
            marks: false,
            mirror: 0,
            drives: Vec::new(),
        };
        ring.stages.push(tap);
        for _ in 0..if behind { 1 + dice.below(2) } else { 0 } {
            let kind = dice.pick(&[
                Kind::Reader,
                Kind::Reader,
                Kind::Writer,
                Kind::PoolReader,
                Kind::PoolWriter,
                Kind::ShardWriter,
            ]);
            let handles = match kind {
                Kind::Reader | Kind::Writer => 1,
                _ => 2.min(capacity),
            };
            let follower = StagePlan {
                kind,
                room: 0,
                after: (0..=stage)
                    .filter(|&number| number == stage || ring.stages[number].kind == Kind::Tap)
                    .collect(),
                wait: None,
                on_fault: Fault::Stop,
                marks: false,
                mirror: 0,
                drives: (0..handles).map(|_| drive(dice, capacity)).collect(),
            };
            ring.stages.push(follower);
        }
        ring.repair();
        for _ in 0..1 + dice.below(4) {
            let (oldest, drive) = (dice.one_in(2), leaving(dice));
            let again = dice.pick(&[0, 0, 2, 5]);
            program.actors.push(Actor::Subscriber { ring: 0, stage, oldest, drive, again });
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
                let ends =
                    [Verb::Panic, Verb::Halt, Verb::CloseAll, Verb::DropInPanic, Verb::DropInPanic];
                let verb = dice.pick(&ends);
                let place = dice.below(verbs.len() as u64 + 1) as usize;
                if verb != Verb::CloseAll || shared {
                    verbs.insert(place, verb);
                }
            }
        }
    }
}
