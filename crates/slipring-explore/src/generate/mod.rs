//! Programs by seed.
//!
//! - I1: Each program ends under every schedule, unless the library breaks a promise. So a handler
//!   publishes only into rings that do not wait for its own, and some handle of each stage stays.

mod parts;
mod twists;

use slipring_coherence::{Dice, Schedule};

use crate::content::Content;
use crate::plan::{By, Drive, Front, Quirk, Verb, Waits};
use crate::program::{Actor, Look, Observes, Program};
use crate::segment;
use crate::shape::{Scale, Shape};

use parts::{library, producers, ring};
use twists::{
    add_deadline, add_visitors, add_workers, await_a_stage, close_full, come_late,
    come_while_one_goes, disrupt, end_with_request, nest, nest_in_full_ring, pool, publish_inside,
    sleep_together, tap, time_out, wait_inline, wait_inside,
};

/// Returns the program of a seed.
pub fn program(shape: Shape, seed: u64) -> Program {
    let mut dice = Dice::new(seed ^ 0x9406_4A11);
    let dice = &mut dice;
    let scale = Scale::random(dice);
    let mut program = Program { keeps: dice.one_in(2), ..Program::default() };
    if matches!(shape, Shape::Processes | Shape::Contents) {
        let content = match shape {
            Shape::Contents => Content::random(dice),
            _ => Content::Events,
        };
        program.segments.push(segment::random(dice, scale, content));
        return program;
    }
    let rings = if shape == Shape::Rings { 2 } else { 1 };
    let mut waits = false;
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
        match shape {
            Shape::Bare => ring.stages.clear(),
            Shape::Pools => waits = pool(dice, &mut ring),
            Shape::Taps => program.actors.extend(tap(dice, &mut ring)),
            _ => {}
        }
        let mut actors = producers(dice, number, &ring, scale);
        if ring.is_inline() {
            actors.iter_mut().for_each(wait_inline);
        } else if ring.is_run() && ring.front.shares_threads() {
            actors.iter_mut().for_each(|actor| wait_inside(ring.front, actor));
        }
        if shape != Shape::Disrupted {
            end_with_request(dice, &ring, &mut actors);
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
        Shape::Closing if dice.one_in(4) => come_while_one_goes(dice, &mut program),
        Shape::Closing => close_full(dice, &mut program),
        Shape::Handles if dice.one_in(3) => nest(dice, &mut program),
        Shape::Handles if dice.one_in(24) => nest_in_full_ring(dice, &mut program),
        Shape::Handles if dice.one_in(12) => time_out(dice, &mut program),
        Shape::Handles if dice.one_in(12) => sleep_together(dice, &mut program),
        Shape::Handlers if dice.one_in(3) => publish_inside(dice, &mut program),
        Shape::Handles | Shape::Handlers => {
            await_a_stage(dice, &mut program);
            come_late(dice, &mut program, scale);
            if dice.one_in(8) {
                add_deadline(dice, &mut program);
            }
        }
        Shape::Taps => {}
        Shape::Bare => {
            come_late(dice, &mut program, scale);
            if dice.one_in(32) {
                // A task whose ring always has room yields all the same.
                let verbs = vec![Verb::Task(1_100, 0)];
                program.actors.push(Actor::Producer { ring: 0, verbs });
            }
        }
        Shape::Pools if waits => {}
        Shape::Pools => {
            // A worker that leaves may leave events to the one that waits.
            match dice.one_in(2) {
                true => add_workers(dice, &mut program),
                false => await_a_stage(dice, &mut program),
            }
        }
        Shape::Processes | Shape::Contents => {}
    }
    for ring in 0..program.rings.len() {
        for stage in 0..program.rings[ring].stages.len() {
            if program.rings[ring].stages[stage].mirror != 0 {
                let look = dice.pick(&[
                    Look::Try,
                    Look::Latest,
                    Look::By(50),
                    Look::Newest,
                    Look::Iterate,
                    Look::Task(0),
                    Look::Task(2),
                ]);
                let wait = dice.one_in(3).then(|| dice.pick(&Waits::ALL));
                let how = Observes { look, oldest: dice.one_in(2), wait };
                program.actors.push(Actor::Observer { ring, stage, how });
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
        // A handler that publishes, or calls another handle, asks again and again whether it waits
        // for itself.
        let drives = ring.stages.iter().flat_map(|stage| &stage.drives);
        let mut quirks = drives.filter_map(|drive| drive.quirk);
        // Nothing but a timer tells of a deadline. A thread that may run stages while it waits for
        // an answer looks for them again and again.
        stages.chain([ring.wait]).all(notified)
            && ring.deadline.is_none()
            && !ring.is_inline()
            && !quirks.any(|(_, quirk)| matches!(quirk, Quirk::Publish(_) | Quirk::Nested(_)))
    });
    // A message is one run of slots, however short the others are.
    let has_messages = program.segments.iter().any(|segment| segment.content.has_lengths());
    let short_runs = schedule.short_runs && !has_messages;
    let schedule = Schedule { short_runs, ..schedule };
    match all_notified && Dice::new(!seed).one_in(2) {
        true => Schedule { rescues: false, spurious: 0, leaps: 0, deaths: 0, ..schedule },
        false => schedule,
    }
}
