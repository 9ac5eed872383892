//! The parts of a program by chance: rings, stages, handles, and what producers do.
//!
//! - I1: Each part ends under every schedule, whatever the other parts are.

use slipring_coherence::Dice;

use crate::plan::{
    Answer, By, Drive, Fate, Fault, Front, Kind, Quirk, RingPlan, Room, Run, StagePlan, Verb,
    Waits, drain,
};
use crate::program::Actor;
use crate::shape::Scale;

/// Slots of a ring in which a stage may find so many events at once that it pauses behind them.
pub const LARGE: usize = 256;

/// Returns a front of stages that the library runs.
pub fn library(dice: &mut Dice) -> Front {
    let threads = dice.pick(&[None, Some(1), Some(2), Some(3)]);
    dice.pick(&[Front::Handlers(threads), Front::Chain(threads)])
}

pub fn ring(dice: &mut Dice, front: Front, scale: Scale) -> RingPlan {
    let capacity = if dice.one_in(40) { LARGE } else { dice.pick(&[1, 2, 2, 4, 4, 8]) };
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
            on: None,
            idles: dice.one_in(4).then(|| dice.pick(&[0, 20])),
            mirror: if handles == 1 && !kind.is_pool() {
                dice.pick(&[0, 0, 0, 1, 2, 4])
            } else {
                0
            },
            drives: (0..handles).map(|_| drive(dice, capacity)).collect(),
        });
    }
    let shared = dice.one_in(2);
    let mut ring = RingPlan {
        capacity,
        first: dice.pick(&[0, 0, u64::MAX - 10, (1 << 48) - 6]),
        shared,
        contiguous: dice.one_in(4),
        wait: wait(dice),
        front,
        run: run(dice, front, shared),
        deadline: None,
        cursor: dice.one_in(2),
        reversed: dice.one_in(3),
        stages,
    };
    ring.repair();
    chain(&mut ring);
    if front != Front::Handles && dice.one_in(3) {
        share_threads(dice, &mut ring);
    }
    ring
}

/// Returns the call that runs the stages, and its end.
fn run(dice: &mut Dice, front: Front, shared: bool) -> Run {
    let micros = dice.pick(&[1, 20, 200]);
    match front {
        Front::Handles => Run::Join,
        _ if dice.one_in(3) && shared => Run::Shared,
        Front::Chain(_) if dice.one_in(3) => {
            dice.pick(&[Run::Closure, Run::Inline, Run::Inline, Run::Feed])
        }
        Front::Handlers(_) if dice.one_in(3) => dice.pick(&[Run::Closure, Run::Closure, Run::Feed]),
        _ if dice.one_in(16) => Run::Halt(micros),
        _ => {
            dice.pick(&[Run::Join, Run::Join, Run::Within(micros), Run::OnDrop(micros), Run::Drop])
        }
    }
}

/// Puts stages with one handle on threads that they share. They have to wait in the same way.
fn share_threads(dice: &mut Dice, ring: &mut RingPlan) {
    for stage in &mut ring.stages {
        if matches!(stage.kind, Kind::Reader | Kind::Writer) {
            stage.on = Some(dice.below(2) as usize);
            stage.wait = None;
        }
    }
}

/// Puts each stage of a chain behind its predecessor.
pub fn chain(ring: &mut RingPlan) {
    if ring.front.is_chain() {
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

pub fn drive(dice: &mut Dice, capacity: usize) -> Drive {
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
            Quirk::Hold(1 + capacity.min(3) as u64),
            Quirk::Hold(1),
        ]);
        let quirk = if dice.one_in(12) { Quirk::Chain } else { quirk };
        (1 + dice.below(8), quirk)
    });
    Drive { by, max: 1 + dice.below(2 * capacity as u64) as usize, quirk }
}

pub fn reader(dice: &mut Dice, capacity: usize) -> StagePlan {
    StagePlan::reader(drive(dice, capacity))
}

pub fn producers(dice: &mut Dice, ring: usize, plan: &RingPlan, scale: Scale) -> Vec<Actor> {
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

pub fn verbs(dice: &mut Dice, plan: &RingPlan, scale: Scale) -> Vec<Verb> {
    let mut verbs: Vec<Verb> =
        (0..scale.verbs(dice)).map(|_| verb(dice, plan.capacity, scale)).collect();
    if plan.capacity == LARGE && dice.one_in(2) {
        // Passes of a stage that are long enough for it to pause behind them.
        verbs.push(Verb::Batches(40, 80));
    }
    if plan.stages.is_empty() {
        // No stage answers.
        verbs.retain(|verb| !verb.asks());
    }
    verbs
}

fn verb(dice: &mut Dice, capacity: usize, scale: Scale) -> Verb {
    let some = |dice: &mut Dice| 1 + dice.below(scale.events);
    let len = |dice: &mut Dice| 1 + dice.below(capacity as u64) as usize;
    match dice.below(20) {
        0..3 => Verb::Publish(some(dice)),
        3..5 => Verb::Try(some(dice)),
        5 => Verb::By(if dice.one_in(3) { 0 } else { dice.below(100) }),
        6 => Verb::All(some(dice)),
        7 => Verb::Batches(len(dice), some(dice)),
        8..10 => Verb::Claim(
            len(dice),
            dice.pick(&[Fate::Publish, Fate::Publish, Fate::Drop, Fate::Forget]),
        ),
        10 => match dice.one_in(3) {
            true => Verb::Insist(some(dice)),
            false => Verb::OrDrop(some(dice)),
        },
        11 => Verb::Task(some(dice), dice.pick(&[0, 0, 1, 2])),
        12 => Verb::Raw(len(dice)),
        13 => Verb::ClaimTask(len(dice), dice.pick(&[0, 0, 1, 2])),
        14..16 => {
            let answers = [Answer::Wait, Answer::For(50), Answer::Task, Answer::Try, Answer::Drop];
            Verb::Ask(some(dice), dice.pick(&answers))
        }
        17 => match dice.one_in(2) {
            true => Verb::AskTask(some(dice), dice.pick(&[0, 0, 1, 2])),
            false => {
                let answers = [Answer::Wait, Answer::For(50), Answer::Task, Answer::Try];
                Verb::AskBroken(some(dice), dice.pick(&answers))
            }
        },
        18 => match dice.one_in(2) {
            true => Verb::When(some(dice), Room::Select(dice.pick(&[0, 0, 20]))),
            // Some dozens, from whose distance an adaptive wait learns.
            false if dice.one_in(8) => Verb::Every(48, dice.pick(&[5, 60])),
            false => Verb::Every(some(dice), dice.pick(&[5, 60])),
        },
        16 => Verb::Conflate(1 + dice.below(3) as usize, some(dice)),
        _ => Verb::Sleep(100),
    }
}
