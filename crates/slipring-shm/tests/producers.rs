//! Several processes produce into one ring, and are killed at each named step, and between any two
//! machine instructions of each call. The survivors continue, and no published event is lost.
//!
//! No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))] // breakpoints and registers

mod common;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use common::oracle::{Journal, retry};
use common::trace::{PLACE_STEPS, Path, Victim, fork, mark, test_in_a_role, wait};
use common::*;
use slipring::errors::{ClaimError, WaitError};
use slipring_shm::parts::layout::HEAD;
use slipring_shm::{Attached, Reader, SharedProducer, errors::Problem};

const CAPACITY: u64 = 8;
const STAGES: [&str; 2] = ["first", "later"];

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[("steps", role_steps), ("instructions", role_instructions)]);
}

/// A ring with two producers and two stages.
struct World {
    segment: Test,
    me: Attached<Block>,
    /// Two numbers: how many events a victim has published for certain, and how many more it may
    /// have published in its last call.
    journal: Journal,
}

fn join(segment: &Test) -> Attached<Block> {
    // SAFETY: only these tests know the segment. A child that is forked makes its own attachment.
    unsafe { segment.attach() }.unwrap()
}

fn fill(slot: &mut Block, by: u64, count: u64) {
    slot.seq = count;
    slot.value = [by, !count, by ^ count];
}

/// Takes a producer's place, as soon as no killed process holds it any more. Returns `None` if the
/// ring is closed.
fn producer(attached: &Attached<Block>) -> Option<SharedProducer<Block>> {
    loop {
        match retry(|| attached.shared_producer()) {
            Ok(producer) => return Some(producer),
            Err(error) if matches!(error.problem(), Problem::AllTaken { .. }) => {}
            Err(error) if matches!(error.problem(), Problem::Over) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

impl World {
    fn new() -> World {
        let segment = Test::create_memfd("producers").capacity(CAPACITY).producers(2);
        let segment = segment.notice(Duration::from_millis(2)).reader(STAGES[0]);
        let segment = segment.reader(STAGES[1]).after([STAGES[0]]).build().unwrap();
        let me = join(&segment);
        World { segment, me, journal: Journal::new(8) }
    }

    fn memory(&self) -> &[u8] {
        let mapping = self.me.participation().mapping();
        let (head, length) = (HEAD as usize, mapping.length());
        // SAFETY: the bytes are mapped, and the victim, which could write to them, is stopped.
        unsafe { std::slice::from_raw_parts(mapping.base().as_ptr().add(head), length - head) }
    }

    /// Makes a victim's handle, and publishes two events with it.
    fn victim(&self) -> SharedProducer<Block> {
        let mut tx = producer(&join(&self.segment)).unwrap();
        (0..2).for_each(|count| self.publish(&mut tx, count));
        tx
    }

    fn publish(&self, tx: &mut SharedProducer<Block>, count: u64) {
        self.journal.unsure().store(1, SeqCst);
        tx.publish(|slot| fill(slot, 1, count)).unwrap();
        self.journal.published().store(count + 1, SeqCst);
        self.journal.unsure().store(0, SeqCst);
    }
}

/// A stage, and how many events of each producer it has seen.
struct Stage {
    reader: Reader<Block>,
    seen: [u64; 4],
}

impl Stage {
    fn new(world: &World, stage: usize) -> Stage {
        Stage { reader: world.me.reader(STAGES[stage]).unwrap(), seen: [0; 4] }
    }

    /// Waits for events, and handles them. Returns `false` at the end of the stream.
    fn batch(&mut self, max: usize) -> bool {
        let batch = match self.reader.batch(max) {
            Ok(batch) => batch,
            Err(WaitError::Closed) => return false,
            Err(error) => panic!("{error}"),
        };
        for event in batch.iter() {
            let ([by, ..], count) = (event.value, event.seq);
            assert_eq!(event.value, [by, !count, by ^ count], "a torn event");
            assert_eq!(count, self.seen[by as usize], "an event of {by} is lost, or comes twice");
            self.seen[by as usize] += 1;
        }
        batch.release();
        true
    }
}

/// The survivors of a killed producer.
struct Survivors {
    /// The other producer, and how many events it has published. `None` if it has left.
    tx: Option<SharedProducer<Block>>,
    sent: u64,
    stages: [Stage; 2],
}

impl Survivors {
    fn new(world: &World) -> Survivors {
        let mut tx = producer(&world.me).unwrap();
        tx.publish(|slot| fill(slot, 2, 0)).unwrap();
        Survivors { tx: Some(tx), sent: 1, stages: [0, 1].map(|stage| Stage::new(world, stage)) }
    }

    /// Lets both stages handle the first `count` events of the producer `by`. While the stages wait
    /// for these events, they find the dead producer and give up its claim.
    fn see(&mut self, by: usize, count: u64) {
        for stage in &mut self.stages {
            while stage.seen[by] < count {
                assert!(stage.batch(3), "the stream ends early");
            }
        }
    }

    /// Publishes for three more laps, with a newcomer in the victim's place, and checks all events.
    fn finish(mut self, world: &World) {
        let sure = world.journal.published().load(SeqCst);
        let unsure = world.journal.unsure().load(SeqCst);
        if let Some(tx) = &mut self.tx {
            for _ in 0..CAPACITY {
                self.sent += loop {
                    match tx.try_publish(|slot| fill(slot, 2, self.sent)) {
                        Ok(_) => break 1,
                        Err(ClaimError::Wait(WaitError::Closed)) => break 0,
                        Err(ClaimError::Gated { .. }) => {
                            self.stages.iter_mut().for_each(|stage| _ = stage.batch(1));
                        }
                        Err(error) => panic!("{error}"),
                    }
                };
            }
        }
        self.see(2, self.sent);
        if let Some(mut newcomer) = producer(&join(&world.segment)) {
            for sent in 0..2 * CAPACITY {
                newcomer.publish(|slot| fill(slot, 3, sent)).unwrap();
                self.see(3, sent + 1);
            }
        }
        drop(self.tx.take());
        for stage in &mut self.stages {
            while stage.batch(3) {}
            let seen = stage.seen[1];
            assert!((sure..=sure + unsure).contains(&seen), "{seen} of {sure} and {unsure}");
            assert_eq!(stage.seen[2], self.sent);
        }
        let [first, later] = self.stages;
        assert_eq!(first.seen, later.seen);
    }
}

/// A call in which a producer is killed.
struct Call {
    name: &'static str,
    /// Acts before the victim lives.
    before: fn(&World) -> Survivors,
    /// Code that the victim runs. It marks the point before the call, and the point after it.
    victim: fn(&World),
}

/// A producer has died with a claim, and its place is not free.
fn dead(world: &World) -> Survivors {
    let survivors = Survivors::new(world);
    wait(fork(|| {
        let mut tx = world.victim();
        std::mem::forget(tx.claim_n(3).unwrap());
        // SAFETY: ends this process.
        unsafe { libc::raise(libc::SIGKILL) };
    }));
    survivors
}

fn victim_publishes(world: &World) {
    let mut tx = world.victim();
    world.journal.unsure().store(1, SeqCst);
    mark();
    tx.publish(|slot| fill(slot, 1, 2)).unwrap();
    mark();
}

fn victim_claims(world: &World) {
    let mut tx = world.victim();
    world.journal.unsure().store(3, SeqCst);
    mark();
    let mut claim = tx.claim_n(3).unwrap();
    claim.iter_mut().zip(2..).for_each(|(slot, count)| fill(slot, 1, count));
    claim.publish();
    mark();
}

fn victim_publishes_fronts(world: &World) {
    let mut raw = world.victim().into_raw();
    world.journal.unsure().store(2, SeqCst);
    mark();
    let seq = raw.next_n(4).unwrap();
    for front in 0..2 {
        fill(raw.at_mut(seq + front).unwrap(), 1, 2 + front);
        raw.done(seq + front).unwrap();
    }
    raw.give_up();
    mark();
}

fn victim_gives_up(world: &World) {
    let mut tx = world.victim();
    mark();
    drop(tx.claim_n(3).unwrap());
    mark();
}

fn victim_leaves(world: &World) {
    let tx = world.victim();
    mark();
    drop(tx);
    mark();
}

fn victim_closes(world: &World) {
    let tx = world.victim();
    mark();
    tx.close_all();
    mark();
}

fn victim_recovers(world: &World) {
    let me = join(&world.segment);
    mark();
    let tx = me.shared_producer();
    mark();
    std::mem::forget(tx);
}

const CALLS: [Call; 7] = [
    Call { name: "publish", before: Survivors::new, victim: victim_publishes },
    Call { name: "claim_n and publish", before: Survivors::new, victim: victim_claims },
    Call { name: "publish fronts", before: Survivors::new, victim: victim_publishes_fronts },
    Call { name: "give up", before: Survivors::new, victim: victim_gives_up },
    Call { name: "leave", before: Survivors::new, victim: victim_leaves },
    Call { name: "close for all", before: Survivors::new, victim: victim_closes },
    Call { name: "take a dead producer's place", before: dead, victim: victim_recovers },
];

/// The number of instructions, spread over each call, before which a victim is killed. A victim is
/// also killed before each instruction that follows a change of the segment.
const PLACES: usize = 60;

impl Call {
    /// Runs the call once, instruction by instruction. Returns `None` if ptrace is not permitted.
    fn path(&self) -> Option<Path> {
        let world = World::new();
        let survivors = (self.before)(&world);
        let victim = Victim::start(|| (self.victim)(&world))?;
        let path = Path::of(victim, || world.memory());
        survivors.finish(&world);
        Some(path)
    }

    /// Kills a victim before an instruction. Returns whether the victim reached it.
    fn kill_at(&self, (address, count): (u64, usize)) -> bool {
        let world = World::new();
        let survivors = (self.before)(&world);
        let victim = Victim::start(|| (self.victim)(&world)).expect("the first was not refused");
        let came = victim.run_to(address, count);
        victim.kill();
        survivors.finish(&world);
        came
    }
}

fn role_instructions() {
    let all = std::env::var_os("SLIPRING_KILL_ALL").is_some();
    for call in &CALLS {
        // In the first run, this process does everything that a process does only once, so that all
        // children that it forks later behave alike.
        let Some(path) = call.path().and_then(|_| call.path()) else { return say("refused") };
        let count = path.places.len();
        let places = path.kills(if all { count } else { PLACES });
        let came = places.iter().filter(|&&place| call.kill_at(path.places[place])).count();
        let (name, places) = (call.name, places.len());
        say(format!("{name}: {count} instructions, killed at {came} of {places}"));
        // Some places lie in loops whose number of rounds depends on the clock, so not every victim
        // reaches its place.
        assert!(
            came * 4 >= places * if all { 1 } else { 3 },
            "{name}: most victims took another path"
        );
    }
    say("done");
}

fn role_steps() {
    for step in PLACE_STEPS {
        let world = World::new();
        let survivors = dead(&world);
        let victim = fork(|| {
            kill_at(step);
            let me = join(&world.segment);
            let mut tx = producer(&me).expect("the ring is open");
            let sure = world.journal.published().load(SeqCst);
            (sure..sure + 2).for_each(|count| world.publish(&mut tx, count));
        });
        let status = wait(victim);
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        assert!(killed, "never came to `{step}`: {status:#x}");
        survivors.finish(&world);
    }
    say("done");
}

#[test]
fn a_producer_of_several_killed_at_any_instruction_loses_nothing() {
    let _watched = watched();
    test_in_a_role("instructions", &[]);
}

#[test]
fn a_producer_of_several_killed_at_any_step_loses_nothing() {
    let _watched = watched();
    test_in_a_role("steps", &[]);
}

/// Checks that a ring with one producer and a ring with several have different calls for taking a
/// place, and that a taken place is refused with the right error.
#[test]
fn places_of_producers() {
    let _watched = watched();
    let world = World::new();
    assert_problem!(world.me.producer(), Problem::Producers { declared: 2 });
    let (one, other) = (producer(&world.me).unwrap(), producer(&world.me).unwrap());
    let full = problem(world.me.shared_producer());
    let Problem::AllTaken { places: 2, pids, .. } = full.of() else { panic!("{}", full.message) };
    assert_eq!(pids[..], [std::process::id(); 2]);
    assert!(full.message.contains("all 2 places"), "{}", full.message);
    drop(one);
    let mut again = producer(&world.me).unwrap();
    again.publish(|slot| fill(slot, 1, 0)).unwrap();
    drop((again, other));
    assert_problem!(world.me.shared_producer(), Problem::Over);
    let single = Test::create_memfd("single").capacity(4).reader("all").build().unwrap();
    assert_problem!(join(&single).shared_producer(), Problem::Producers { declared: 1 });
    for producers in [0, 65] {
        let refused = Test::create_memfd("refused").capacity(4).producers(producers);
        assert_problem!(refused.reader("all").build(), Problem::Declaration { .. });
    }
}
