//! Processes that publish or handle blocks and messages are killed between any two machine
//! instructions of each call. Survivors and newcomers then finish the stream, and the oracle checks
//! all of it.
//!
//! No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))] // breakpoints and registers

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use common::items::*;
use common::trace::{Path, Stop, Victim, mark, test_in_a_role};
use common::*;
use slipring::errors::{BatchError, ClaimError, WaitError};

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[("instructions", role_instructions)]);
}

/// The lives of producers: each producer has its own. A stage must see the ids of one life in
/// order.
const VICTIM: u64 = 1;
const SURVIVOR: u64 = 2;
const NEWCOMER: u64 = 3;

const BLOCKS: Shape =
    Shape { messages: false, capacity: 8, several: false, writes: false, passes: false };
const CHANGED: Shape = Shape { writes: true, ..BLOCKS };
/// Shape in which a successor of the writing stage passes over items that may be half-written.
const PASSED: Shape = Shape { passes: true, ..CHANGED };
const MESSAGES: Shape = Shape { messages: true, capacity: 16, ..BLOCKS };

/// Lengths of messages that take 12 cells together, and the length of a message of five cells.
const LENS: [usize; 5] = [10, 150, 300, 60, 0];
const LONG: usize = 300;

/// A call in which a process is killed.
struct Call {
    name: &'static str,
    shape: Shape,
    /// Number of the stage that the victim runs, or `None` if the victim is a producer.
    stage: Option<usize>,
    /// Code that the victim runs. It has three marks: before the survivors act, before the call,
    /// and after the call.
    victim: fn(&World, &Ledger),
    /// The states in which a kill during the call can leave the ring, in alphabetical order: first
    /// with a single producer, then with several.
    states: [&'static [&'static str]; 2],
}

/// Takes a producer's place in a victim, and publishes items of the lengths `lens`.
fn producer(world: &World, ledger: &Ledger, lens: &[usize]) -> Tx {
    let mut tx = world.producer(&world.join()).expect("the ring is open");
    let end = tx.put_all(ledger, VICTIM, lens);
    ledger.next_seq().store(end, SeqCst);
    // The stages make room.
    mark();
    tx
}

/// Makes a victim publish items of the lengths `lens`. Then, between its two marks, the victim
/// publishes one more item, of `LONG` bytes.
fn puts(world: &World, ledger: &Ledger, lens: &[usize]) {
    let mut tx = producer(world, ledger, lens);
    let ids = ledger.enter(VICTIM, &[LONG]);
    let bytes = ledger.bytes(ids.start);
    mark();
    tx.put(ids.start, &bytes);
    mark();
}

fn victim_puts(world: &World, ledger: &Ledger) {
    puts(world, ledger, &LENS[..1]);
}

/// Publishes a message that does not fit in front of the ring's end.
fn victim_pads(world: &World, ledger: &Ledger) {
    puts(world, ledger, &LENS);
}

/// Publishes a run of four blocks across the ring's end.
fn victim_puts_a_run(world: &World, ledger: &Ledger) {
    let mut tx = producer(world, ledger, &[0; 6]);
    let ids = ledger.enter(VICTIM, &[0; 4]);
    mark();
    either!(&mut tx, tx => {
        let mut claim = tx.claim_n(4).unwrap();
        ids.enumerate().for_each(|(offset, id)| fill(&mut claim[offset], id));
        claim.publish();
    }, unreachable!("{tx:?}"));
    mark();
}

/// Publishes two of four claimed blocks, one by one, and gives up the others.
fn victim_puts_fronts(world: &World, ledger: &Ledger) {
    let tx = producer(world, ledger, &[0; 6]);
    let ids = [ledger.enter(VICTIM, &[0]), ledger.enter(VICTIM, &[0])];
    either!(tx, tx => {
        let mut tx = tx.into_raw();
        mark();
        let first = tx.try_claim(4).unwrap();
        for (seq, id) in (first..).zip(ids) {
            let front = tx.stretches()[0];
            assert_eq!(front.first, seq);
            let front = front.address.as_ptr();
            // SAFETY: claimed.
            fill(unsafe { std::slice::from_raw_parts_mut(front, BLOCK) }, id.start);
            tx.done(seq).unwrap();
        }
        tx.give_up();
        mark();
    }, unreachable!("{tx:?}"));
}

fn victim_gives_up(world: &World, ledger: &Ledger) {
    let mut tx = producer(world, ledger, &LENS[..1]);
    mark();
    tx.give_up(if world.shape.messages { LONG } else { 3 });
    mark();
}

/// Takes the place of a stage in a victim.
fn stage(world: &World, ledger: &Ledger, number: usize) -> Stage {
    let mut stage = world.stage(&world.join(), number);
    if !world.shape.messages {
        assert_eq!(stage.poll(2, ledger).unwrap(), 2);
    }
    ledger.next_seq().store(stage.next_seq(), SeqCst);
    mark();
    stage
}

fn victim_polls<const STAGE: usize>(world: &World, ledger: &Ledger) {
    let mut stage = stage(world, ledger, STAGE);
    mark();
    assert_ne!(stage.poll(3, ledger).unwrap(), 0);
    mark();
}

fn victim_batches<const STAGE: usize>(world: &World, ledger: &Ledger) {
    let mut stage = stage(world, ledger, STAGE);
    let soon = Instant::now() + Duration::from_secs(60);
    mark();
    assert_ne!(stage.batch_by(3, ledger, soon).unwrap(), 0);
    mark();
}

/// States after a kill: the publication was made or was not made. With several producers, the claim
/// may also have been made without the publication. Its positions are then skipped.
const WHOLE: [&[&str]; 2] =
    [&["not published", "published"], &["not published", "published", "skipped"]];
/// States that are possible if the killed call crosses the ring's end. In such a call, even a
/// single producer may have published only the padding, or only the given-up claim.
const PADDED: [&[&str]; 2] = [WHOLE[1], WHOLE[1]];
const FRONTS: [&[&str]; 2] =
    [&["not published", "part", "published"], &["not published", "part", "published", "skipped"]];
const GIVEN_UP: [&[&str]; 2] = [&["not published"], &["not published", "skipped"]];
const HANDLED: [&[&str]; 2] = [&["lent", "not lent", "released"]; 2];

#[rustfmt::skip]
const CALLS: [Call; 14] = {
    const fn call(
        name: &'static str,
        shape: Shape,
        stage: Option<usize>,
        victim: fn(&World, &Ledger),
        states: [&'static [&'static str]; 2],
    ) -> Call {
        Call { name, shape, stage, victim, states }
    }
    [
        call("publish a block", BLOCKS, None, victim_puts, WHOLE),
        call("publish a run across the end", BLOCKS, None, victim_puts_a_run, WHOLE),
        call("publish raw blocks", BLOCKS, None, victim_puts_fronts, FRONTS),
        call("give up blocks", BLOCKS, None, victim_gives_up, GIVEN_UP),
        call("poll blocks", BLOCKS, Some(0), victim_polls::<0>, HANDLED),
        call("batch of blocks", BLOCKS, Some(0), victim_batches::<0>, HANDLED),
        call("batch of blocks as a writer", CHANGED, Some(0), victim_batches::<0>, HANDLED),
        call("batch of blocks, passed over", PASSED, Some(0), victim_batches::<0>, HANDLED),
        call("publish a message", MESSAGES, None, victim_puts, WHOLE),
        call("publish a message behind padding", MESSAGES, None, victim_pads, PADDED),
        call("give up a message", MESSAGES, None, victim_gives_up, GIVEN_UP),
        call("poll messages", MESSAGES, Some(0), victim_polls::<0>, HANDLED),
        call("batch of messages", MESSAGES, Some(0), victim_batches::<0>, HANDLED),
        call("batch of messages as a later stage", MESSAGES, Some(1), victim_batches::<1>, HANDLED),
    ]
};

/// Handles of survivors.
struct Hands {
    /// A producer, unless the victim was the only producer.
    tx: Option<Tx>,
    stages: [Option<Stage>; 2],
}

/// Lets the stages handle the available items. A stage without items waits for a moment, and so
/// finds dead producers.
fn handle(stages: &mut [Stage], ledger: &Ledger) {
    for stage in stages {
        if stage.poll(2, ledger).unwrap() != 0 {
            continue;
        }
        match stage.batch_by(2, ledger, Instant::now() + Duration::from_millis(3)) {
            Ok(_) | Err(BatchError::TimedOut(_)) => {}
            Err(BatchError::Wait(WaitError::PeerDead(_))) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Publishes `count` items, while the stages make room. Returns the position of the first one.
fn feed(tx: &mut Tx, life: u64, count: u64, stages: &mut [Stage], ledger: &Ledger) -> u64 {
    let mut first = None;
    for sent in 0..count as usize {
        let ids = ledger.enter(life, &LENS[sent % LENS.len()..][..1]);
        let bytes = ledger.bytes(ids.start);
        let seq = loop {
            match tx.try_put(ids.start, &bytes) {
                Ok(seq) => break seq,
                Err(ClaimError::Gated { .. } | ClaimError::Contended) => handle(stages, ledger),
                Err(ClaimError::Wait(WaitError::PeerDead(_))) => {}
                Err(error) => panic!("{error}"),
            }
        };
        ledger.publish(ids);
        first.get_or_insert(seq);
    }
    first.expect("at least one item")
}

impl Call {
    fn shape(&self, several: bool) -> Shape {
        Shape { several, ..self.shape }
    }

    /// Makes a ring and the survivors, and puts the ring into the state in which the victim begins.
    fn before(&self, several: bool, ledger: &Ledger) -> (World, Hands) {
        ledger.clear();
        let world = World::new(self.shape(several));
        let take = |number| (self.stage != Some(number)).then(|| world.stage(&world.me, number));
        let mut hands = Hands { tx: None, stages: [take(0), take(1)] };
        if several || self.stage.is_some() {
            let mut tx = world.producer(&world.me).unwrap();
            if self.stage.is_none() {
                tx.put_all(ledger, SURVIVOR, &LENS[..1]);
            } else {
                tx.put_all(ledger, SURVIVOR, &LENS[..3]);
                if several {
                    tx.give_up(1);
                }
                tx.put_all(ledger, SURVIVOR, &LENS[3..]);
            }
            hands.tx = Some(tx);
        }
        if let (Some(1), Some(first)) = (self.stage, &mut hands.stages[0]) {
            while first.poll(usize::MAX, ledger).unwrap() != 0 {}
        }
        (world, hands)
    }

    /// Starts a victim, which stops before the call. Returns `None` if ptrace is not permitted.
    fn victim(&self, world: &World, hands: &mut Hands, ledger: &Ledger) -> Option<Victim> {
        let victim = Victim::start(|| (self.victim)(world, ledger))?;
        if self.stage.is_none() {
            for stage in hands.stages.iter_mut().flatten() {
                while stage.poll(usize::MAX, ledger).unwrap() != 0 {}
            }
        }
        assert_eq!(victim.run(), Stop::Mark);
        Some(victim)
    }

    /// Lets survivors and newcomers finish the stream, and checks all of it. Returns the state that
    /// the victim has left.
    fn finish(&self, world: &World, mut hands: Hands, ledger: &Ledger) -> &'static str {
        let (unsure, expected) = (ledger.unsure(), ledger.next_seq().load(SeqCst));
        for stage in hands.stages.iter_mut().flatten() {
            while stage.poll(usize::MAX, ledger).unwrap() != 0 {}
        }
        let newcomer = world.join();
        let mut found = "published";
        let mut stages: Vec<Stage> = Vec::new();
        for (number, survivor) in hands.stages.into_iter().enumerate() {
            stages.push(survivor.unwrap_or_else(|| {
                let stage = world.stage(&newcomer, number);
                found = match stage.redelivered().is_empty() {
                    false => "lent",
                    true if stage.next_seq() == expected => "not lent",
                    true => "released",
                };
                stage
            }));
        }
        stages[1].passed = stages[0].passed.clone();
        // A survivor publishes first, so that the stages find the dead producer while they wait.
        let several = world.shape.several;
        let mut hands = vec![(SURVIVOR, hands.tx.take())];
        if hands[0].1.is_none() || several {
            hands.push((NEWCOMER, None));
        }
        let mut first = None;
        for (life, tx) in &mut hands {
            if *life == NEWCOMER {
                *tx = world.producer(&newcomer);
            }
            if let Some(tx) = tx {
                let seq = feed(tx, *life, world.shape.capacity + 3, &mut stages, ledger);
                first.get_or_insert(seq);
            }
        }
        drop(hands);
        stages.iter_mut().for_each(|stage| stage.drain(ledger));
        ledger.assert_complete();
        if self.stage.is_none() {
            let seen = unsure.iter().filter(|&&id| ledger.is_seen(0, id)).count();
            found = match seen {
                0 if first != Some(expected) => "skipped",
                0 => "not published",
                _ if seen < unsure.len() => "part",
                _ => "published",
            };
        }
        found
    }

    /// Finishes a stream whose victim is killed at once. So everything that this process does only
    /// the first time, such as resolving symbols, is done before it forks the children that are
    /// compared.
    fn warm_up(&self, several: bool, ledger: &Ledger) -> Option<()> {
        let (world, mut hands) = self.before(several, ledger);
        self.victim(&world, &mut hands, ledger)?.kill();
        self.finish(&world, hands, ledger);
        Some(())
    }

    /// Runs the call once, instruction by instruction. Returns `None` if ptrace is not permitted.
    fn path(&self, several: bool, ledger: &Ledger) -> Option<Path> {
        let (world, mut hands) = self.before(several, ledger);
        let victim = self.victim(&world, &mut hands, ledger)?;
        let path = Path::of(victim, || world.memory());
        self.finish(&world, hands, ledger);
        Some(path)
    }

    /// Kills a victim just before it executes an instruction. Returns whether the victim reached
    /// the instruction, and the state that it has left.
    fn kill_at(
        &self,
        several: bool,
        ledger: &Ledger,
        (address, count): (u64, usize),
    ) -> (bool, &'static str) {
        let (world, mut hands) = self.before(several, ledger);
        let victim = self.victim(&world, &mut hands, ledger).expect("the first was not refused");
        let came = victim.run_to(address, count);
        victim.kill();
        (came, self.finish(&world, hands, ledger))
    }
}

/// A victim is killed before each of this many instructions, which are spread over the call. With
/// `SLIPRING_KILL_ALL`, victims are killed before every instruction. In addition, victims are
/// killed after each change of the segment, and around each system call.
const PLACES: usize = 60;

fn role_instructions() {
    let all = std::env::var_os("SLIPRING_KILL_ALL").is_some();
    let ledger = Ledger::new(200);
    let asked = value("CALLS");
    for call in CALLS.iter().filter(|call| asked.split(';').any(|name| name == call.name)) {
        for several in [false, true] {
            let began = Instant::now();
            let warm = call.warm_up(several, &ledger);
            let Some(path) = warm.and_then(|()| call.path(several, &ledger)) else {
                return say("refused");
            };
            let places = path.kills(if all { path.places.len() } else { PLACES });
            let (mut came, mut found) = (0, BTreeSet::new());
            for &place in &places {
                let (there, state) = call.kill_at(several, &ledger, path.places[place]);
                came += usize::from(there);
                found.insert(state);
            }
            let name = format!("{}, several: {several}", call.name);
            say(format!(
                "{name}: {} instructions, {} states, killed at {came} of {} in {:.1} s: {found:?}",
                path.places.len(),
                path.changes.len(),
                places.len(),
                began.elapsed().as_secs_f32()
            ));
            let found: Vec<_> = found.into_iter().collect();
            assert_eq!(found, call.states[usize::from(several)], "{name}");
            // A run may differ from the recorded run, because memory addresses differ.
            assert!(came * 4 >= places.len() * 3, "{name}: most victims took another path");
        }
    }
    say("done");
}

/// Kills victims between two instructions of each call. The default is a sample of the
/// instructions, and `SLIPRING_KILL_ALL=1` asks for all of them.
fn kill_in(calls: &[&str]) {
    assert!(calls.iter().all(|name| CALLS.iter().any(|call| call.name == *name)));
    test_in_a_role("instructions", &[("CALLS", &calls.join(";"))]);
}

#[test]
fn a_producer_of_blocks_killed_at_any_instruction_publishes_whole_runs() {
    let _watched = watched();
    kill_in(&["publish a block", "publish a run across the end", "give up blocks"]);
}

#[test]
fn a_raw_producer_of_blocks_killed_at_any_instruction_publishes_whole_fronts() {
    let _watched = watched();
    kill_in(&["publish raw blocks"]);
}

#[test]
fn a_reader_of_blocks_killed_at_any_instruction_loses_nothing() {
    let _watched = watched();
    kill_in(&["poll blocks", "batch of blocks"]);
}

#[test]
fn a_writer_of_blocks_killed_at_any_instruction_announces_what_it_touched() {
    let _watched = watched();
    kill_in(&["batch of blocks as a writer", "batch of blocks, passed over"]);
}

#[test]
fn a_producer_of_messages_killed_at_any_instruction_publishes_whole_messages() {
    let _watched = watched();
    kill_in(&["publish a message", "publish a message behind padding", "give up a message"]);
}

#[test]
fn a_reader_of_messages_killed_at_any_instruction_loses_nothing() {
    let _watched = watched();
    kill_in(&["poll messages", "batch of messages"]);
}

#[test]
fn a_later_reader_of_messages_killed_at_any_instruction_loses_nothing() {
    let _watched = watched();
    kill_in(&["batch of messages as a later stage"]);
}
