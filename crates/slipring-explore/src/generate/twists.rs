//! Unusual features of a program: handlers that wait for others, producers that come late or close
//! a full ring, readers and workers that come and go, failures.
//!
//! - I1: A program with a twist ends under every schedule: a thread that waits for another thread
//!   holds up none that the other thread waits for.

use slipring_coherence::Dice;

use super::parts::{LARGE, chain, drive, reader, verbs};
use crate::plan::{
    Answer, By, Drive, Fate, Fault, Front, Kind, Quirk, RingPlan, Run, StagePlan, Verb, Waits,
    drain,
};
use crate::program::{Actor, Program};
use crate::shape::Scale;

/// Leaves out the actions that wait without the library, on a thread that may have to run the
/// stages meanwhile. If other threads run them, too, it may wait at its end.
pub fn wait_inside(front: Front, actor: &mut Actor) {
    let is_helped = matches!(front, Front::Handlers(Some(2..)) | Front::Chain(Some(2..)));
    if let Actor::Producer { verbs, .. } = actor {
        verbs.retain(|verb| match verb {
            Verb::Drain => is_helped,
            Verb::Publish(_) | Verb::By(_) | Verb::All(_) | Verb::Batches(..) => true,
            Verb::Claim(..) | Verb::OrDrop(_) | Verb::Sleep(_) => true,
            Verb::Ask(_, how) => matches!(how, Answer::Wait | Answer::For(_) | Answer::Drop),
            _ => false,
        });
    }
}

/// Gives the producer of a chain that runs on its thread alone actions that such a producer has.
pub fn wait_inline(actor: &mut Actor) {
    if let Actor::Producer { verbs, .. } = actor {
        for verb in verbs {
            *verb = match *verb {
                Verb::Try(times) | Verb::OrDrop(times) | Verb::Insist(times) => {
                    Verb::Publish(times)
                }
                Verb::Task(times, _) | Verb::When(times, _) => Verb::Publish(times),
                Verb::Claim(events, _) => Verb::All(events as u64),
                Verb::Batches(_, events) => Verb::All(events),
                Verb::AskTask(times, _) | Verb::Ask(times, Answer::Task | Answer::Try) => {
                    Verb::Ask(times, Answer::Wait)
                }
                verb => verb,
            };
        }
    }
}

/// Gives the first ring a deadline. Nothing else ends some of its producers' waits.
pub fn add_deadline(dice: &mut Dice, program: &mut Program) {
    let ring = &mut program.rings[0];
    if ring.stages.is_empty() || ring.run == Run::Feed {
        return;
    }
    ring.deadline = Some(dice.pick(&[20, 100, 1_000]));
    let tells = ring.tells();
    for drive in ring.stages.iter_mut().flat_map(|stage| &mut stage.drives) {
        // A deadline wakes no task, and ends no call that does not wait.
        drive.by = match drive.by {
            By::Task(_) => By::Batch,
            By::Try | By::Poll | By::Raw => By::ForEach,
            by => by,
        };
        drive.quirk = drive.quirk.filter(|(_, quirk)| !matches!(quirk, Quirk::Await(_)));
    }
    let mut is_first = true;
    for actor in &mut program.actors {
        let (Actor::Producer { verbs, .. } | Actor::Late { verbs, .. }) = actor else { continue };
        for verb in verbs.iter_mut() {
            *verb = match *verb {
                Verb::Task(times, _) => Verb::Publish(times),
                Verb::ClaimTask(len, _) => Verb::Claim(len, Fate::Publish),
                Verb::AskTask(times, _) | Verb::Ask(times, Answer::Task) => {
                    Verb::Ask(times, Answer::Wait)
                }
                Verb::AskBroken(times, Answer::Task) => Verb::AskBroken(times, Answer::Wait),
                Verb::AskLast(Answer::Task) => Verb::AskLast(Answer::Wait),
                verb => verb,
            };
        }
        if std::mem::take(&mut is_first) {
            verbs.retain(|verb| !matches!(verb, Verb::AskLast(_)));
            verbs.push(match tells && dice.one_in(2) {
                true => Verb::AwaitFailure,
                false => Verb::AskInVain(dice.pick(&[Answer::Wait, Answer::For(50)])),
            });
        }
    }
}

/// Lets some producers end with a request.
pub fn end_with_request(dice: &mut Dice, plan: &RingPlan, actors: &mut [Actor]) {
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
pub fn await_a_stage(dice: &mut Dice, program: &mut Program) {
    let ring = &mut program.rings[0];
    let by_handles = ring.front == Front::Handles;
    let has_threads = by_handles
        || !ring.is_run()
            && matches!(
                ring.front,
                Front::Handlers(None | Some(2 | 3)) | Front::Chain(None | Some(2 | 3))
            );
    // In a large ring, a shard releases the events of others later.
    let has_threads = has_threads && ring.capacity != LARGE;
    if !has_threads || !ring.front.shares_threads() && dice.one_in(2) {
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
    // The other stage may need the thread of the one that waits.
    ring.stages.iter_mut().for_each(|stage| stage.on = None);
    if ring.front.shares_threads() && dice.one_in(2) {
        // No close wakes the other threads.
        for actor in &mut program.actors {
            if let Actor::Producer { verbs, .. } = actor
                && !matches!(verbs.last(), Some(Verb::AskLast(_) | Verb::Drain))
            {
                drain(verbs);
            }
        }
    }
}

/// Makes a ring's stages a pool, and perhaps a reader behind it. Returns whether a worker waits for
/// its colleagues, which then have to stay.
pub fn pool(dice: &mut Dice, ring: &mut RingPlan) -> bool {
    ring.capacity = dice.pick(&[2, 4, 4, 8]);
    let workers = 2 + dice.below(5.min(ring.capacity as u64 - 1)) as usize;
    let sleeps = [Waits::Park, Waits::Blocking, Waits::Adaptive, Waits::YieldBlock];
    ring.wait = dice.pick(&sleeps);
    let behind = dice.one_in(2);
    ring.stages.resize_with(1 + usize::from(behind), || reader(dice, ring.capacity));
    for stage in &mut ring.stages {
        stage.after.clear();
        (stage.wait, stage.mirror) = (None, 0);
    }
    let pool = &mut ring.stages[0];
    pool.kind = dice.pick(&[Kind::PoolReader, Kind::PoolWriter]);
    pool.wait = dice.one_in(4).then(|| dice.pick(&[Waits::BusySpin, Waits::Yielding]));
    pool.drives = (0..workers).map(|_| drive(dice, ring.capacity)).collect();
    match dice.below(8) {
        // The last one fails the graph.
        0 => {
            for drive in &mut pool.drives {
                drive.quirk = Some((1 + dice.below(3), Quirk::Leave));
            }
        }
        // A worker sees the end while another one holds up that of the pool.
        1 => {
            let by = dice.pick(&[By::Poll, By::Try, By::Deadline(20)]);
            pool.drives[0].quirk = Some((1 + dice.below(2), Quirk::Sleep(100)));
            let last = pool.drives.last_mut().expect("a pool has two workers");
            *last = Drive { by, quirk: Some((0, Quirk::DropIdle)), ..*last };
        }
        2 | 3 => {
            let by = dice.pick(&[By::Poll, By::Batch, By::Batch, By::Task(0)]);
            let quirk = Some((1 + dice.below(3), Quirk::Await(0)));
            pool.drives[0] = Drive { by, max: 1, quirk };
            pool.wait = None;
            ring.shared |= dice.one_in(2);
            if workers > 2 && dice.one_in(2) {
                // Perhaps it was notified of the event that another one has to take now.
                let by = dice.pick(&[By::Deadline(20), By::Deadline(100), By::Task(1)]);
                pool.drives[1] = Drive { by, max: 1, quirk: Some((0, Quirk::Leave)) };
            }
        }
        _ => {}
    }
    let waits = matches!(pool.drives[0].quirk, Some((_, Quirk::Await(_))));
    if behind {
        ring.stages[1] = StagePlan { after: vec![0], ..reader(dice, ring.capacity) };
    }
    waits
}

/// Lets a handler of the library publish into its own ring, or make a request there, on a thread
/// that may run the other stages, too.
pub fn publish_inside(dice: &mut Dice, program: &mut Program) {
    let ring = &mut program.rings[0];
    (ring.shared, ring.run) = (true, Run::Join);
    let stage = match dice.one_in(8) {
        true => {
            // So many that a thread's list of its stages grows.
            ring.front = Front::Thread;
            let stages = dice.pick(&[2, 4, 17, 20]);
            ring.stages = (0..stages).map(|_| reader(dice, 1)).collect();
            chain(ring);
            ring.stages.len() - 1
        }
        false => dice.below(ring.stages.len() as u64) as usize,
    };
    let handle = dice.below(ring.stages[stage].drives.len() as u64) as usize;
    // Two handlers that wait for room in their own ring would wait for each other.
    let quirk = Some((1 + dice.below(4), Quirk::Publish(0)));
    let drive = &mut ring.stages[stage].drives[handle];
    *drive = Drive { by: By::ForEach, quirk, ..*drive };
    // The handler's producer lasts until another one has ended.
    for actor in &mut program.actors {
        if let Actor::Producer { verbs, .. } = actor {
            verbs.retain(|verb| !matches!(verb, Verb::AskLast(_)));
        }
    }
}

/// Lets two or three readers sleep in the same queue, of a ring that is soon full: then no later
/// event wakes a sleeper.
pub fn sleep_together(dice: &mut Dice, program: &mut Program) {
    let ring = &mut program.rings[0];
    (ring.capacity, ring.wait) =
        (dice.pick(&[1, 2, 4]), dice.pick(&[Waits::Park, Waits::Blocking]));
    let capacity = ring.capacity;
    ring.stages = (0..2 + dice.below(2)).map(|_| reader(dice, capacity)).collect();
}

/// Lets a producer's calls time out, while one of two stages keeps the ring full.
pub fn time_out(dice: &mut Dice, program: &mut Program) {
    let ring = &mut program.rings[0];
    ring.capacity = dice.pick(&[1, 2]);
    ring.wait = dice.pick(&[Waits::BusySpin, Waits::Yielding, Waits::Blocking, Waits::Adaptive]);
    ring.stages = [(); 2].map(|()| StagePlan { mirror: 0, ..reader(dice, 1) }).into();
    for stage in &mut ring.stages {
        let by = dice.pick(&[By::Poll, By::Batch, By::Try]);
        let sleeps = dice.pick(&[20, 100, 2_000, 10_000]);
        let at = 1 + dice.below(2);
        stage.drives = vec![Drive { by, max: 1, quirk: Some((at, Quirk::Sleep(sleeps))) }];
    }
    let verbs = (0..2 + dice.below(4)).map(|_| match dice.one_in(4) {
        true => Verb::Publish(1),
        false => Verb::By(dice.pick(&[0, 20, 100, 500, 2_000])),
    });
    program.actors = vec![Actor::Producer { ring: 0, verbs: verbs.collect() }];
}

/// Lets a handler call another handle of its ring, for whose events it may hold the ring up itself.
/// Only the ring waits for that handler.
pub fn nest(dice: &mut Dice, program: &mut Program) {
    let ring = &mut program.rings[0];
    let spins = dice.one_in(4);
    if spins {
        // Workers that spin move the pool's claim word past the end.
        ring.wait = dice.pick(&[Waits::BusySpin, Waits::Yielding, Waits::Adaptive]);
        let drives = (0..3 + dice.below(2)).map(|_| drive(dice, 4)).collect();
        ring.stages =
            vec![StagePlan { kind: Kind::PoolReader, mirror: 0, drives, ..reader(dice, 4) }];
    }
    let handles = |stage: usize| (0..ring.stages[stage].drives.len()).map(move |it| (stage, it));
    let all: Vec<(usize, usize)> = (0..ring.stages.len()).flat_map(handles).collect();
    let [outer, inner] = if spins { [(0, 0), (0, 1)] } else { [(); 2].map(|()| dice.pick(&all)) };
    // The first one runs to its end before the second one goes on, so it must not be behind it, and
    // the ring holds all events of the program.
    if outer == inner || ring.capacity == LARGE || ring.before(outer.0).contains(&inner.0) {
        return;
    }
    ring.capacity = 256;
    program.nested = Some([outer, inner]);
    let quirk = Some((1 + dice.below(4), Quirk::Nested(1 + dice.below(3))));
    let drive = &mut ring.stages[outer.0].drives[outer.1];
    *drive = Drive { by: By::ForEach, quirk, ..*drive };
    // Between its calls, the second one holds no events back.
    let by = dice.pick(&[By::Poll, By::Batch, By::Batch, By::Try, By::Deadline(20)]);
    let max = ring.capacity;
    ring.stages[inner.0].drives[inner.1] = Drive { by, max, quirk: None };
    for actor in &mut program.actors {
        if let Actor::Producer { verbs, .. } = actor {
            verbs.retain(|verb| !verb.asks() && *verb != Verb::Drain);
        }
    }
}

/// Lets a handler that holds a full ring call a reader beside its own stage, which waits for an
/// event that no producer can claim. Only the close of the ring ends that wait.
pub fn nest_in_full_ring(dice: &mut Dice, program: &mut Program) {
    let ring = &mut program.rings[0];
    let events = dice.pick(&[1, 2, 4]);
    (ring.capacity, ring.shared) = (events, true);
    let by = dice.pick(&[By::Batch, By::Batch, By::Poll, By::Try]);
    let inner = StagePlan::reader(Drive { by, max: 1, quirk: None });
    let quirk = Some((1, Quirk::Nested(events as u64 + 2)));
    let outer = StagePlan::reader(Drive { by: By::ForEach, max: 1, quirk });
    ring.stages = vec![outer, inner];
    program.nested = Some([(0, 0), (1, 0)]);
    let sleep = Verb::Sleep(dice.pick(&[0, 10, 100, 2_000]));
    let verbs = vec![Verb::Publish(events as u64), sleep, Verb::CloseAll];
    program.actors = vec![Actor::Producer { ring: 0, verbs }];
}

/// Returns the place of a reader's first event, if it asks for one. It may be too early or too
/// late.
fn start(dice: &mut Dice) -> Option<u64> {
    dice.one_in(4).then(|| dice.below(6))
}

/// Makes a ring's stages a tap, and one or two behind it that may change its events. Returns the
/// tap's readers.
pub fn tap(dice: &mut Dice, ring: &mut RingPlan) -> Vec<Actor> {
    ring.capacity = dice.pick(&[1, 2, 2, 4]);
    let capacity = ring.capacity;
    let room = 1 + dice.below(2) as usize;
    let tap = StagePlan { kind: Kind::Tap, room, drives: Vec::new(), ..reader(dice, capacity) };
    ring.stages = vec![tap];
    for _ in 0..1 + dice.below(2) {
        let kind = dice.pick(&[Kind::Reader, Kind::Writer, Kind::PoolWriter, Kind::ShardWriter]);
        let handles = match kind {
            Kind::Reader | Kind::Writer => 1,
            _ => 2.min(capacity),
        };
        let drives = (0..handles).map(|_| drive(dice, capacity)).collect();
        ring.stages.push(StagePlan { kind, after: vec![0], drives, ..reader(dice, capacity) });
    }
    ring.repair();
    let subscriber = |dice: &mut Dice| {
        let quirk = Some((1 + dice.below(2), Quirk::Leave));
        let drive = Drive { quirk, ..drive(dice, capacity) };
        let (oldest, at) = (!dice.one_in(4), start(dice));
        Actor::Subscriber { ring: 0, stage: 0, oldest, at, drive, again: dice.pick(&[2, 5, 9]) }
    };
    let mut actors: Vec<Actor> = (0..1 + dice.below(3)).map(|_| subscriber(dice)).collect();
    if dice.one_in(4) {
        actors.push(Actor::Evictor { ring: 0 });
    }
    actors
}

/// Lets producers come while others may have ended.
pub fn come_late(dice: &mut Dice, program: &mut Program, scale: Scale) {
    let plan = &program.rings[0];
    if plan.shared && plan.front == Front::Handles && dice.one_in(3) {
        let verbs = verbs(dice, plan, scale);
        program.actors.push(Actor::Late { ring: 0, last: dice.one_in(2), verbs });
    }
}

/// Lets a producer come while the only other one goes, and with it the ring's handle.
pub fn come_while_one_goes(dice: &mut Dice, program: &mut Program) {
    program.rings[0].stages.truncate(1);
    let some = |dice: &mut Dice| vec![Verb::Publish(1 + dice.below(2))];
    let verbs = if dice.one_in(2) { Vec::new() } else { some(dice) };
    let goes = Actor::Producer { ring: 0, verbs };
    let comes = Actor::Late { ring: 0, last: true, verbs: some(dice) };
    program.actors = vec![goes, comes];
}

/// Lets a producer close the ring while the others wait for room, or have just got it.
pub fn close_full(dice: &mut Dice, program: &mut Program) {
    let ring = &mut program.rings[0];
    ring.capacity = dice.pick(&[1, 2, 4, 4]);
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
    // A producer that has seen free slots claims early when others have taken them meanwhile.
    let claims_early = dice.one_in(2);
    for _ in 0..1 + dice.below(3) {
        let verbs = match claims_early {
            true => vec![Verb::Publish(1), Verb::Sleep(dice.below(50)), Verb::Publish(1)],
            false => (0..1 + dice.below(3)).map(|_| some(dice)).collect(),
        };
        program.actors.push(Actor::Producer { ring: 0, verbs });
    }
    let mut last = match ring.stages[0].drives.first() {
        // Nothing but the close ends a wait for room.
        Some(_) if ring.front == Front::Handles && dice.one_in(2) => {
            let first = ring.stages.iter_mut().flat_map(|stage| &mut stage.drives);
            // Or it makes room just when the ring is closed.
            let awaits = dice.pick(&[Quirk::AwaitProducers, Quirk::AwaitProducer]);
            first.for_each(|drive| drive.quirk = Some((1, awaits)));
            vec![Verb::OrDrop(len), Verb::Sleep(dice.pick(&[0, 10, 100]))]
        }
        _ => vec![Verb::Publish(len)],
    };
    if last[0] == Verb::Publish(len) && dice.one_in(2) {
        last.push(some(dice));
    }
    last.push(Verb::CloseAll);
    program.actors.push(Actor::Producer { ring: 0, verbs: last });
}

/// A drive of a handle that may leave.
fn leaving(dice: &mut Dice, capacity: usize) -> Drive {
    let leaving = dice.pick(&[Quirk::Leave, Quirk::LeaveInside]);
    let quirk = dice.one_in(2).then(|| (1 + dice.below(6), leaving));
    let drive = drive(dice, capacity);
    Drive { quirk: quirk.or(drive.quirk), ..drive }
}

pub fn add_visitors(dice: &mut Dice, program: &mut Program) {
    let capacity = program.rings[0].capacity;
    let ring = &mut program.rings[0];
    if dice.one_in(8) {
        // A ring with readers that come and go, and no others, answers no request.
        ring.stages.clear();
        for actor in &mut program.actors {
            if let Actor::Producer { verbs, .. } = actor {
                verbs.retain(|verb| !verb.asks());
            }
        }
    }
    let ring = &mut program.rings[0];
    let taps = match ring.stages.iter().any(|stage| stage.kind.is_pool()) {
        true => dice.below(2),
        false => 1 + dice.below(2),
    };
    // A tap cannot come after another one, as it would in a chain.
    let most = if ring.front.is_chain() { 1 } else { 2 };
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
            on: None,
            idles: None,
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
                on: None,
                idles: None,
                mirror: 0,
                drives: (0..handles).map(|_| drive(dice, capacity)).collect(),
            };
            ring.stages.push(follower);
        }
        ring.repair();
        for _ in 0..1 + dice.below(4) {
            let (oldest, drive) = (dice.one_in(2), leaving(dice, capacity));
            let again = dice.pick(&[0, 0, 2, 5]);
            let at = start(dice);
            program.actors.push(Actor::Subscriber { ring: 0, stage, oldest, at, drive, again });
        }
        if dice.one_in(3) {
            program.actors.push(Actor::Evictor { ring: 0 });
        }
    }
    chain(&mut program.rings[0]);
    add_workers(dice, program);
}

/// Lets workers of pools come and go.
pub fn add_workers(dice: &mut Dice, program: &mut Program) {
    let capacity = program.rings[0].capacity;
    let ring = &mut program.rings[0];
    let by_handles = ring.front == Front::Handles;
    let pools: Vec<usize> =
        (0..ring.stages.len()).filter(|&stage| ring.stages[stage].kind.is_pool()).collect();
    for stage in pools {
        let handles = ring.stages[stage].drives.len();
        ring.stages[stage].room = (handles + dice.below(3) as usize).min(capacity);
        for drive in &mut ring.stages[stage].drives[1..] {
            *drive = leaving(dice, capacity);
        }
        for _ in 0..dice.below(4) {
            let drive = leaving(dice, capacity);
            let late = by_handles && dice.one_in(3);
            program.actors.push(Actor::Joiner { ring: 0, stage, drive, late });
        }
    }
}

pub fn disrupt(dice: &mut Dice, program: &mut Program) {
    let (shared, is_run) = (program.rings[0].shared, program.rings[0].is_run());
    for _ in 0..1 + dice.below(2) {
        let at = 1 + dice.below(8);
        if dice.one_in(2) {
            let ring = &mut program.rings[0];
            let stage = dice.below(ring.stages.len() as u64) as usize;
            let handle = dice.below(ring.stages[stage].drives.len() as u64) as usize;
            let quirk = dice.pick(&match ring.front {
                Front::Handles => [
                    Quirk::Panic,
                    Quirk::Leave,
                    Quirk::LeaveInside,
                    Quirk::DropInPanic,
                    Quirk::Halt,
                ],
                _ => [Quirk::Panic, Quirk::Panic, Quirk::Panic, Quirk::Fail, Quirk::Fail],
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
                if is_run && dice.one_in(2) {
                    verbs.push(Verb::Fail { panics: dice.one_in(2) });
                } else if verb != Verb::CloseAll || shared {
                    verbs.insert(place, verb);
                }
            }
        }
    }
}
