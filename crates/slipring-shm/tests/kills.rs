//! Processes are killed at each named step, and between any two machine instructions of each call.
//! Survivors and newcomers then finish the stream, and the oracle checks all of it.
//!
//! No survivor waits longer than a notice plus the time that the kernel takes to end a process. No
//! test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))] // breakpoints and registers

mod common;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use common::oracle::*;
use common::trace::{Path, Stop, Victim, fork, mark, test_in_a_role, wait};
use common::*;
use libc::c_long;
use slipring::{Wait, handles::StartAt};

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[
        ("steps", role_steps),
        ("instructions", role_instructions),
        ("wake", role_wake),
        ("another path", role_another_path),
    ]);
}

const SMALL: Shape = Shape {
    capacity: 16,
    writes: false,
    passes: false,
    notice: Duration::from_millis(2),
    tap: Tapped::No,
};
/// Shape with a tap behind a stage that writes.
const TAPPED: Shape = Shape { writes: true, tap: Tapped::Between, ..SMALL };
/// Shape with a tap directly behind the producer, which therefore stores a cursor.
const CURSOR: Shape = Shape { tap: Tapped::First, ..SMALL };
const WRITES: Shape = Shape { writes: true, ..SMALL };
/// Shape in which a successor of the writing stage passes over events that may be half-written.
const PASSES: Shape = Shape { passes: true, ..WRITES };
/// Shape with room for a publication of three runs, and for more events behind it.
const LONG: Shape = Shape { capacity: 1 << 17, ..SMALL };
/// Length of a publication of three runs, in events.
const LONG_LEN: u64 = 70_000;
/// Length of the longest run, in events.
const MAX_RUN: u64 = 1 << 15;

/// Number of events of the longest stream.
const EVENTS: usize = 110_000;

/// Takes the handles of survivors.
type Survivors = fn(&World, &Journal) -> Hands;
/// The call that a victim makes.
type Life = fn(&World, &Journal);

/// A call in which a process is killed.
struct Call {
    name: &'static str,
    shape: Shape,
    /// Number of events that the victim publishes in the call.
    unsure: u64,
    /// Takes the handles of the survivors, and puts the ring into the state in which the victim
    /// begins.
    survivors: Survivors,
    /// Code that the victim runs. It marks the point before the call, and the point after it.
    victim: Life,
    /// The survivors' action when the victim is about to sleep for the first time.
    act: Option<fn(&mut Hands, &Journal)>,
}

/// Takes the places of all stages. The victim is the producer.
fn stages(world: &World, journal: &Journal) -> Hands {
    Hands {
        stages: [0, 1].map(|number| Some(world.stage(&world.me, number, journal))),
        ..Hands::default()
    }
}

/// Takes the places of the producer, which publishes `count` events, and of all stages but
/// `victim`.
fn all_but(world: &World, journal: &Journal, victim: usize, count: u64) -> Hands {
    let mut tx = world.producer(&world.me).unwrap();
    let mut hands = stages_but(world, journal, victim);
    let mut left = count;
    while left > 0 {
        // The events are published in runs, so that a stage may release in the middle of a run.
        let len = left.min(4);
        publish_run(&mut tx, len, 1, journal);
        left -= len;
    }
    if let (1, Some(first)) = (victim, &mut hands.stages[0]) {
        first.poll(usize::MAX, journal).unwrap();
    }
    hands.tx = Some(tx);
    hands
}

fn stages_but(world: &World, journal: &Journal, victim: usize) -> Hands {
    let stages =
        [0, 1].map(|number| (number != victim).then(|| world.stage(&world.me, number, journal)));
    Hands { stages, ..Hands::default() }
}

fn all_but_first(world: &World, journal: &Journal) -> Hands {
    all_but(world, journal, 0, 7)
}

fn all_but_later(world: &World, journal: &Journal) -> Hands {
    all_but(world, journal, 1, 7)
}

fn idle_but_first(world: &World, journal: &Journal) -> Hands {
    all_but(world, journal, 0, 0)
}

fn everyone(world: &World, journal: &Journal) -> Hands {
    all_but(world, journal, 2, 3)
}

/// Lets the first stage's process die after it was lent four events and has released one.
fn dead_first(world: &World, journal: &Journal) -> Hands {
    let hands = all_but(world, journal, 0, 7);
    let dead = fork(|| {
        let mut first = world.stage(&join(&world.segment), 0, journal);
        first.poll(1, journal).unwrap();
        first.hold(3, journal);
        kill_me();
    });
    wait(dead);
    hands
}

/// Like [`dead_first`], but the later stage's process dies.
fn dead_later(world: &World, journal: &Journal) -> Hands {
    let hands = all_but(world, journal, 1, 7);
    let dead = fork(|| {
        let mut later = world.stage(&join(&world.segment), 1, journal);
        later.poll(1, journal).unwrap();
        later.hold(3, journal);
        kill_me();
    });
    wait(dead);
    hands
}

/// Takes the places of all stages and of the producer. The victim is a reader of the tap, and there
/// are events for it to read.
fn before_tap(world: &World, journal: &Journal) -> Hands {
    let mut hands = all_but(world, journal, 2, 7);
    hands.stages[0].as_mut().unwrap().poll(5, journal).unwrap();
    hands
}

/// Like [`before_tap`], but a reader of the tap has died, and holds back the later stage.
fn dead_viewer(world: &World, journal: &Journal) -> Hands {
    let hands = before_tap(world, journal);
    let dead = fork(|| {
        let mut viewer = world.view(&join(&world.segment));
        world.look(&mut viewer, 2).unwrap();
        kill_me();
    });
    wait(dead);
    hands
}

/// Like [`dead_viewer`], but the victim takes the later stage.
fn dead_viewer_before(world: &World, journal: &Journal) -> Hands {
    let mut hands = dead_viewer(world, journal);
    hands.stages[1] = None;
    hands
}

/// Lets the producer's process die while it fills a slot.
fn dead_producer(world: &World, journal: &Journal) -> Hands {
    let hands = stages(world, journal);
    let dead = fork(|| {
        let mut tx = world.producer(&join(&world.segment)).unwrap();
        (0..3).for_each(|_| publish(&mut tx, 1, journal));
        let mut claim = tx.claim_n(4).unwrap();
        claim[0].fill(3, 1);
        kill_me();
    });
    wait(dead);
    hands
}

fn kill_me() {
    // SAFETY: ends this process.
    unsafe { libc::raise(libc::SIGKILL) };
}

/// Lets another process run the first stage, and waits until that process sleeps.
fn sleeping_first(world: &World, journal: &Journal) -> Hands {
    let pid = fork(|| {
        let me = join(&world.segment).wait(Wait::Blocking).unwrap();
        let mut first = world.stage(&me, 0, journal);
        journal.note().store(1, SeqCst);
        first.drain(journal);
    });
    let hands = Hands { first: Some(pid), ..stages_but(world, journal, 0) };
    until(|| journal.note().load(SeqCst) == 1);
    // The sleeper has reached futex(2). This process may read its state, because it is the parent.
    let call = || std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
    until(|| call().starts_with(&format!("{} ", libc::SYS_futex)));
    hands
}

/// Takes the producer's place in a victim, and publishes `count` events.
fn producer(world: &World, journal: &Journal, count: u64) -> slipring_shm::Producer<Numbered> {
    let me = join(&world.segment).wait(Wait::Blocking).unwrap();
    let mut tx = world.producer(&me).unwrap();
    (0..count).for_each(|_| publish(&mut tx, 1, journal));
    tx
}

fn victim_publishes(world: &World, journal: &Journal) {
    let mut tx = producer(world, journal, 5);
    mark();
    tx.publish(|slot| slot.fill(5, 1)).unwrap();
    mark();
}

fn victim_wakes(world: &World, journal: &Journal) {
    let mut tx = producer(world, journal, 0);
    mark();
    tx.publish(|slot| slot.fill(0, 1)).unwrap();
    mark();
}

fn victim_publishes_a_run(world: &World, journal: &Journal) {
    let mut tx = producer(world, journal, 9);
    mark();
    let mut claim = tx.claim_n(5).unwrap();
    claim.iter_mut().zip(9..).for_each(|(slot, seq)| slot.fill(seq, 1));
    claim.publish();
    mark();
}

fn victim_publishes_long(world: &World, journal: &Journal) {
    let mut tx = producer(world, journal, 3);
    let mut claim = tx.claim_n(LONG_LEN as usize).unwrap();
    claim.iter_mut().zip(3..).for_each(|(slot, seq)| slot.fill(seq, 1));
    mark();
    claim.publish();
    mark();
}

fn victim_fills_the_ring(world: &World, journal: &Journal) {
    let mut tx = producer(world, journal, 16);
    mark();
    tx.publish(|slot| slot.fill(16, 1)).unwrap();
    mark();
}

fn victim_closes(world: &World, journal: &Journal) {
    let tx = producer(world, journal, 5);
    mark();
    drop(tx);
    mark();
}

fn victim_polls<const STAGE: usize>(world: &World, journal: &Journal) {
    let mut stage = world.stage(&join(&world.segment), STAGE, journal);
    stage.poll(2, journal).unwrap();
    mark();
    stage.poll(1, journal).unwrap();
    mark();
}

fn victim_batches<const STAGE: usize>(world: &World, journal: &Journal) {
    let mut stage = world.stage(&join(&world.segment), STAGE, journal);
    mark();
    stage.batch(3, journal).unwrap();
    mark();
}

fn victim_waits(world: &World, journal: &Journal) {
    let me = join(&world.segment).wait(Wait::Blocking).unwrap();
    let mut first = world.stage(&me, 0, journal);
    mark();
    first.batch(3, journal).unwrap();
    mark();
}

fn victim_attaches(world: &World, _: &Journal) {
    mark();
    let attached = join(&world.segment);
    mark();
    drop(attached);
}

fn victim_takes(world: &World, journal: &Journal) {
    let me = join(&world.segment);
    mark();
    let first = world.stage(&me, 0, journal);
    mark();
    drop(first);
}

fn victim_succeeds(world: &World, _: &Journal) {
    let me = join(&world.segment);
    mark();
    let tx = world.producer(&me);
    mark();
    std::mem::forget(tx);
}

fn victim_drops(world: &World, journal: &Journal) {
    let me = join(&world.segment);
    let mut first = world.stage(&me, 0, journal);
    first.poll(2, journal).unwrap();
    first.hold(2, journal);
    mark();
    drop(first);
    mark();
}

fn victim_leaves(world: &World, _: &Journal) {
    let me = join(&world.segment);
    mark();
    drop(me);
    mark();
}

fn victim_joins(world: &World, _: &Journal) {
    let me = join(&world.segment);
    mark();
    let viewer = me.subscribe(TAP, StartAt::Oldest).unwrap();
    mark();
    std::mem::forget(viewer);
}

fn victim_views(world: &World, _: &Journal) {
    let mut viewer = world.view(&join(&world.segment));
    world.look(&mut viewer, 1).unwrap();
    mark();
    world.look(&mut viewer, 2).unwrap();
    mark();
}

fn victim_stops_viewing(world: &World, _: &Journal) {
    let mut viewer = world.view(&join(&world.segment));
    world.look(&mut viewer, 1).unwrap();
    mark();
    viewer.leave();
    mark();
}

/// The later stage waits for a dead reader of the tap, and removes it.
fn victim_removes(world: &World, journal: &Journal) {
    let me = join(&world.segment).wait(Wait::Blocking).unwrap();
    let mut later = world.stage(&me, 1, journal);
    mark();
    while later.batch(3, journal).unwrap() == 0 {}
    mark();
}

fn act_publish(hands: &mut Hands, journal: &Journal) {
    publish(hands.tx.as_mut().unwrap(), 1, journal);
}

fn act_poll(hands: &mut Hands, journal: &Journal) {
    hands.stages.iter_mut().flatten().for_each(|stage| _ = stage.poll(3, journal).unwrap());
}

#[rustfmt::skip]
const CALLS: [Call; 28] = {
    const fn call(
        name: &'static str,
        shape: Shape,
        unsure: u64,
        survivors: Survivors,
        victim: Life,
    ) -> Call {
        Call { name, shape, unsure, survivors, victim, act: None }
    }
    const fn acting(call: Call, act: fn(&mut Hands, &Journal)) -> Call {
        Call { act: Some(act), ..call }
    }
    [
        call("publish", SMALL, 1, stages, victim_publishes),
        call("claim_n and publish", SMALL, 5, stages, victim_publishes_a_run),
        call("publish three runs", LONG, LONG_LEN, stages, victim_publishes_long),
        acting(call("publish into a full ring", SMALL, 1, stages, victim_fills_the_ring), act_poll),
        call("publish for a sleeper", Shape { notice: Duration::from_millis(100), ..SMALL }, 1, sleeping_first, victim_wakes),
        call("close", SMALL, 0, stages, victim_closes),
        call("poll", SMALL, 0, all_but_first, victim_polls::<0>),
        call("poll as a later stage", SMALL, 0, all_but_later, victim_polls::<1>),
        call("poll as a writer", WRITES, 0, all_but_first, victim_polls::<0>),
        call("batch and release", SMALL, 0, all_but_first, victim_batches::<0>),
        call("batch and release as a later stage", WRITES, 0, all_but_later, victim_batches::<1>),
        call("batch and release as a writer", WRITES, 0, all_but_first, victim_batches::<0>),
        call("poll as a writer, passed over", PASSES, 0, all_but_first, victim_polls::<0>),
        call("batch and release as a writer, passed over", PASSES, 0, all_but_first, victim_batches::<0>),
        acting(call("wait for an event", SMALL, 0, idle_but_first, victim_waits), act_publish),
        call("attach", SMALL, 0, everyone, victim_attaches),
        call("take a dead stage's place", WRITES, 0, dead_first, victim_takes),
        call("pass over what a dead stage left", PASSES, 0, dead_first, victim_takes),
        call("take a dead producer's place", SMALL, 0, dead_producer, victim_succeeds),
        call("drop a reader", SMALL, 0, all_but_first, victim_drops),
        call("leave", SMALL, 0, everyone, victim_leaves),
        call("join a tap", TAPPED, 0, before_tap, victim_joins),
        call("join in a dead reader's place", TAPPED, 0, dead_viewer, victim_joins),
        call("read at a tap", TAPPED, 0, before_tap, victim_views),
        call("read at a tap behind the producer", CURSOR, 0, before_tap, victim_views),
        call("leave a tap", TAPPED, 0, before_tap, victim_stops_viewing),
        call("remove a dead reader", TAPPED, 0, dead_viewer_before, victim_removes),
        call("publish beside a cursor", CURSOR, 1, stages, victim_publishes),
    ]
};

impl Call {
    fn run_victim(&self, world: &World, journal: &Journal) -> Option<Victim> {
        Victim::start(|| (self.victim)(world, journal))
    }

    fn finish(&self, world: &World, hands: Hands, journal: &Journal) {
        let run = if self.shape.capacity == LONG.capacity { MAX_RUN } else { 1 };
        finish(world, hands, journal, self.unsure, run);
        if self.shape.tap != Tapped::No {
            // The tap can be joined: the reader's place is free, or the call recovers its dead
            // process.
            drop(world.view(&world.me));
        }
        // One of the processes counts the death of the victim's predecessor.
        match self.name {
            "take a dead stage's place" | "pass over what a dead stage left" => {
                assert!(world.deaths(0) >= 1, "not counted")
            }
            "take a dead producer's place" => assert!(world.deaths(2) >= 1, "not counted"),
            "join in a dead reader's place" | "remove a dead reader" => {
                assert!(world.deaths(1) >= 1, "not counted")
            }
            _ => {}
        }
    }

    /// Finishes a stream whose victim is killed at once. This process thereby does everything that
    /// it does only the first time, such as resolving symbols, before it forks the children that
    /// are compared.
    fn warm_up(&self, journal: &Journal) -> Option<()> {
        journal.clear();
        let world = World::new(self.shape);
        let hands = (self.survivors)(&world, journal);
        self.run_victim(&world, journal)?.kill();
        self.finish(&world, hands, journal);
        Some(())
    }

    /// Runs the call once, instruction by instruction, and then checks the finished stream.
    fn path(&self, journal: &Journal) -> Option<Path> {
        journal.clear();
        let world = World::new(self.shape);
        let mut hands = (self.survivors)(&world, journal);
        let victim = self.run_victim(&world, journal)?;
        let mut path = Path::default();
        let mut copy = world.memory().to_vec();
        loop {
            let acts = |path: &mut Path, call| {
                if let (libc::SYS_futex, None, Some(act)) = (call, path.acts_at, self.act) {
                    path.acts_at = Some(path.places.len() - 1);
                    act(&mut hands, journal);
                }
            };
            let changed = || {
                let memory = world.memory();
                let changed = copy != memory;
                if changed {
                    copy.copy_from_slice(memory);
                }
                changed
            };
            if path.step(&victim, acts, changed) == Stop::Mark {
                break;
            }
        }
        victim.kill();
        assert!(self.act.is_none() || path.acts_at.is_some(), "{} never slept", self.name);
        self.finish(&world, hands, journal);
        Some(path)
    }

    /// Kills a victim before the instruction `index` of a path. Returns whether the victim reached
    /// it.
    fn kill_at(&self, journal: &Journal, path: &Path, index: usize) -> bool {
        journal.clear();
        let world = World::new(self.shape);
        let mut hands = (self.survivors)(&world, journal);
        let victim = self.run_victim(&world, journal).expect("the first was not refused");
        let (mut from, mut came) = (0, true);
        if let (Some(act), Some(acts_at)) = (self.act, path.acts_at)
            && acts_at <= index
        {
            came = path.lead(&victim, from, acts_at);
            act(&mut hands, journal);
            from = acts_at;
        }
        came = came && path.lead(&victim, from, index);
        victim.kill();
        if self.name == "close" && world.owner(2).is_none() {
            assert!(world.producer(&world.me).is_none(), "the place is free before the close");
        }
        self.finish(&world, hands, journal);
        came
    }
}

/// The number of instructions, spread over each call, before which a victim is killed, unless all
/// are asked for. In addition, victims are killed behind each change of the segment, and around
/// each system call.
const PLACES: usize = 150;

fn role_instructions() {
    let all = std::env::var_os("SLIPRING_KILL_ALL").is_some();
    let journal = Journal::new(EVENTS);
    let small = Journal::new(64);
    for call in CALLS.iter().filter(|call| value("CALLS").split(';').any(|name| name == call.name))
    {
        let began = Instant::now();
        let journal = if call.shape.capacity == LONG.capacity { &journal } else { &small };
        let Some(path) = call.warm_up(journal).and_then(|()| call.path(journal)) else {
            return say("refused");
        };
        let count = path.places.len();
        let places = path.kills(match call.shape.capacity == LONG.capacity {
            _ if all => count,
            true => PLACES / 4,
            false => PLACES,
        });
        let came = places.iter().filter(|&&place| call.kill_at(journal, &path, place)).count();
        let places = places.len();
        say(format!(
            "{}: {count} instructions, {} states, killed at {came} of {places} in {:.1} s",
            call.name,
            path.changes.len(),
            began.elapsed().as_secs_f32()
        ));
        // A victim may take another path than the recorded one, because times and memory addresses
        // differ. Some places lie in loops whose number of rounds depends on the clock, so not
        // every victim reaches its place.
        assert!(
            came * 4 >= places * if all { 1 } else { 3 },
            "{}: most victims took another path",
            call.name
        );
    }
    say("done");
}

/// Steps of attaching, of taking a place, and of leaving.
const STEPS: [&str; 19] = [
    "registered",
    "opened",
    "guarded",
    "compared",
    "mapped",
    "taken",
    "unguarded",
    "closed",
    "attached",
    "populated",
    "taking",
    "claim-opened",
    "claimed",
    "buried",
    "recovered",
    "unclaimed",
    "seated",
    "leaving",
    "left",
];

/// Takes the place of a stage, handles the events, and leaves.
fn life_of_a_stage<const STAGE: usize>(world: &World, journal: &Journal) {
    let mut stage = world.stage(&join(&world.segment), STAGE, journal);
    stage.poll(2, journal).unwrap();
    stage.hold(2, journal);
}

/// Takes the producer's place, publishes, and closes.
fn life_of_a_producer(world: &World, journal: &Journal) {
    let mut tx = world.producer(&join(&world.segment)).unwrap();
    (0..4).for_each(|_| publish(&mut tx, 1, journal));
}

/// Joins a tap and reads.
fn life_of_a_viewer(world: &World, _: &Journal) {
    let mut viewer = world.view(&join(&world.segment));
    world.look(&mut viewer, 2).unwrap();
}

fn role_steps() {
    let journal = Journal::new(64);
    let lives: [(Shape, Survivors, Life); 6] = [
        (TAPPED, dead_viewer, life_of_a_viewer),
        (SMALL, dead_first, life_of_a_stage::<0>),
        (WRITES, dead_first, life_of_a_stage::<0>),
        (PASSES, dead_first, life_of_a_stage::<0>),
        (WRITES, dead_later, life_of_a_stage::<1>),
        (SMALL, dead_producer, life_of_a_producer),
    ];
    for (number, (shape, survivors, life)) in lives.into_iter().enumerate() {
        for step in STEPS {
            journal.clear();
            let world = World::new(shape);
            let hands = survivors(&world, &journal);
            let victim = fork(|| {
                kill_at(step);
                life(&world, &journal);
            });
            let status = wait(victim);
            let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
            assert!(killed, "life {number} never came to `{step}`: {status:#x}");
            finish(&world, hands, &journal, 0, 1);
        }
    }
    say("done");
}

/// No event is lost if a process dies at a named step: while it attaches, while it recovers a dead
/// process whose place it takes, or while it leaves.
#[test]
fn a_process_killed_at_any_step_loses_nothing() {
    let _watched = watched();
    test_in_a_role("steps", &[]);
}

/// Wakes a waiter that has announced that it is about to sleep, but does not sleep yet.
fn role_wake() {
    let journal = Journal::new(64);
    let world = World::new(SMALL);
    let mut hands = idle_but_first(&world, &journal);
    let Some(sleeper) = Victim::start(|| victim_waits(&world, &journal)) else {
        return say("refused");
    };
    sleeper.run_to_call(libc::SYS_futex);
    act_publish(&mut hands, &journal);
    assert_eq!(sleeper.finish_call(), -c_long::from(libc::EAGAIN), "it does not fall asleep");
    sleeper.kill();
    finish(&world, hands, &journal, 0, 1);
    say("done");
}

/// A wake-up raises the epoch. So a waiter that is about to sleep does not sleep at all. Otherwise,
/// it would sleep for a whole notice interval.
#[test]
fn a_sleeper_that_is_woken_before_it_sleeps_stays_awake() {
    let _watched = watched();
    test_in_a_role("wake", &[]);
}

/// Waits for a victim that waits for room in a full ring, and never comes to the given place.
fn role_another_path() {
    let journal = Journal::new(64);
    let world = World::new(SMALL);
    let hands = stages(&world, &journal);
    let Some(victim) = Victim::start(|| victim_fills_the_ring(&world, &journal)) else {
        return say("refused");
    };
    assert!(!victim.run_to(kill_me as fn() as usize as u64, 1));
    victim.kill();
    finish(&world, hands, &journal, 1, 1);
    say("done");
}

/// The path of a victim depends on the clock, so not every victim comes to each place of a path.
#[test]
fn a_victim_that_takes_another_path_and_waits_is_given_up() {
    let _watched = watched();
    test_in_a_role("another path", &[]);
}

/// Kills victims between two instructions of each call. The default is a sample of the
/// instructions, and `SLIPRING_KILL_ALL=1` asks for all of them.
fn kill_in(calls: &[&str]) {
    assert!(calls.iter().all(|name| CALLS.iter().any(|call| call.name == *name)));
    test_in_a_role("instructions", &[("CALLS", &calls.join(";"))]);
}

#[test]
fn a_producer_killed_at_any_instruction_loses_nothing() {
    let _watched = watched();
    kill_in(&["publish", "claim_n and publish", "publish into a full ring", "close"]);
}

#[test]
fn a_producer_killed_in_a_long_publication_leaves_nothing_of_it() {
    let _watched = watched();
    kill_in(&["publish three runs"]);
}

#[test]
fn a_producer_killed_while_it_wakes_a_sleeper_costs_a_notice() {
    let _watched = watched();
    kill_in(&["publish for a sleeper"]);
}

#[test]
fn a_reader_killed_at_any_instruction_loses_nothing() {
    let _watched = watched();
    kill_in(&["poll", "batch and release", "wait for an event", "drop a reader"]);
}

#[test]
fn a_later_stage_killed_at_any_instruction_loses_nothing() {
    let _watched = watched();
    kill_in(&["poll as a later stage", "batch and release as a later stage"]);
}

#[test]
fn a_writer_killed_at_any_instruction_announces_what_it_touched() {
    let _watched = watched();
    kill_in(&["poll as a writer", "batch and release as a writer"]);
}

/// The stage behind the writing stage sees a half-written event only if a successor has passed over
/// the event.
#[test]
fn what_a_killed_writer_touched_is_passed_over() {
    let _watched = watched();
    kill_in(&[
        "poll as a writer, passed over",
        "batch and release as a writer, passed over",
        "pass over what a dead stage left",
    ]);
}

#[test]
fn a_process_killed_while_it_attaches_or_leaves_loses_nothing() {
    let _watched = watched();
    kill_in(&["attach", "leave"]);
}

#[test]
fn a_process_killed_while_it_recovers_another_is_recovered() {
    let _watched = watched();
    kill_in(&["take a dead stage's place", "take a dead producer's place"]);
}

#[test]
fn a_reader_of_a_tap_killed_at_any_instruction_holds_up_no_party() {
    let _watched = watched();
    kill_in(&["join a tap", "read at a tap", "read at a tap behind the producer", "leave a tap"]);
}

#[test]
fn a_process_killed_while_it_removes_a_reader_is_recovered() {
    let _watched = watched();
    kill_in(&["join in a dead reader's place", "remove a dead reader"]);
}

#[test]
fn a_producer_killed_before_its_cursor_has_published() {
    let _watched = watched();
    kill_in(&["publish beside a cursor"]);
}
