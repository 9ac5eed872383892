//! Several processes run the shards of one stage, and are killed at each named step, and between
//! any two machine instructions of each call. A dead shard's successor handles the shard's events,
//! and learns which of them the dead process may have touched. The stage behind the shards sees all
//! events in order.
//!
//! No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))] // breakpoints and registers

mod common;

use std::time::Duration;

use common::oracle::retry;
use common::trace::{PLACE_STEPS, Path, Victim, fork, mark, test_in_a_role, wait};
use common::*;
use slipring::errors::{BatchError, ClaimError, WaitError};
use slipring_shm::parts::layout::HEAD;
use slipring_shm::{Attached, OnDeath, Producer, Reader, ShardUpdater, errors::Problem};

const CAPACITY: u64 = 16;
const BOOKS: &str = "books";
const END: &str = "end";

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[
        ("steps", role_steps),
        ("instructions", role_instructions),
        ("first shard", role_first_shard),
    ]);
}

/// A ring with a stage of two shards, and a stage behind them. The last value of an event is its
/// key.
struct World {
    segment: Test,
    me: Attached<Block>,
}

fn join(segment: &Test) -> Attached<Block> {
    // SAFETY: only these tests know the segment. A child that is forked makes its own attachment.
    unsafe { segment.attach() }.unwrap()
}

/// Takes a shard's place, as soon as no killed process holds it any more.
fn shard(attached: &Attached<Block>, number: usize) -> ShardUpdater<Block> {
    retry(|| attached.shard_updater(BOOKS, number)).unwrap()
}

/// Returns the shard of the event at `seq`.
fn of(seq: u64) -> usize {
    slipring::segment::shard_of_bytes(&(seq / 3).to_ne_bytes(), 2) as usize
}

/// Handles an event: counts in the event itself how often it was handled.
fn handle(event: &mut Block, seq: u64, number: usize, announced: bool) {
    assert_eq!((event.seq, of(seq)), (seq, number), "an event of another shard");
    assert!(announced || event.value[0] == 0, "{seq} was touched, and is not announced");
    event.value[usize::from(announced)] += 1;
}

/// Handles a batch. Releases the first event alone, and then all others except the last `keep`.
/// These would be lent to the handle again.
fn work(handle_of: &mut ShardUpdater<Block>, number: usize, keep: usize) -> usize {
    let suspects = handle_of.suspects();
    match handle_of.try_batch(usize::MAX) {
        Ok(mut batch) => {
            let (first, len) = (batch.first_seq(), batch.len());
            let known = batch.suspects();
            for ((event, seq), n) in batch.iter_mut().zip(first..).zip(0..) {
                assert_eq!(n < known, suspects.contains(seq));
                handle(event, seq, number, n < known);
            }
            batch.release_front(1);
            batch.release_front((len - 1).saturating_sub(keep));
            len
        }
        Err(BatchError::Unavailable) => 0,
        Err(BatchError::Wait(WaitError::Closed)) => 0,
        Err(error) => panic!("{error}"),
    }
}

impl World {
    fn new() -> World {
        let segment = Test::create_memfd("shards").capacity(CAPACITY);
        let segment = segment.notice(Duration::from_millis(2));
        let segment = segment.shard_updater(BOOKS, 2, |block| &block.value[2]);
        let segment = segment.reader(END).after([BOOKS]).build().unwrap();
        let me = join(&segment);
        World { segment, me }
    }

    fn memory(&self) -> &[u8] {
        let mapping = self.me.participation().mapping();
        let (head, length) = (HEAD as usize, mapping.length());
        // SAFETY: the bytes are mapped, and the victim, which could write to them, is stopped.
        unsafe { std::slice::from_raw_parts(mapping.base().as_ptr().add(head), length - head) }
    }

    /// Makes the victim's handle, which is the handle of the first shard.
    fn victim(&self) -> ShardUpdater<Block> {
        shard(&join(&self.segment), 0)
    }
}

/// The processes that live on: the producer, the second shard, and the stage behind the shards.
struct Survivors {
    tx: Producer<Block>,
    sent: u64,
    second: ShardUpdater<Block>,
    end: Reader<Block>,
}

impl Survivors {
    /// The ring is full of events in runs of different lengths.
    fn new(world: &World) -> Survivors {
        let second = shard(&world.me, 1);
        let (tx, end) = (world.me.producer().unwrap(), world.me.reader(END).unwrap());
        let mut survivors = Survivors { tx, sent: 0, second, end };
        [3, 1, 5, 4, 3].iter().for_each(|&len| assert!(survivors.publish(len)));
        survivors
    }

    fn publish(&mut self, len: u64) -> bool {
        match self.tx.try_claim_n(len as usize) {
            Ok(mut claim) => {
                for (slot, seq) in claim.iter_mut().zip(self.sent..) {
                    (slot.seq, slot.value) = (seq, [0, 0, seq / 3]);
                }
                assert_eq!(claim.publish(), self.sent);
                self.sent += len;
                true
            }
            Err(ClaimError::Gated { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Lets the stage behind the shards read the released events.
    fn read(&mut self) {
        let mut next = self.end.next_seq();
        let read = self.end.poll(usize::MAX, |event, at| {
            assert_eq!((at.seq, event.seq), (next, next), "in order");
            let [handled, again, _] = event.value;
            assert!(handled <= 1 && handled + again >= 1, "{next}: {handled} and {again} times");
            next += 1;
        });
        assert!(matches!(read, Ok(_) | Err(WaitError::Closed)), "{read:?}");
        assert!(next <= self.sent);
    }

    /// Handles all published events, with a successor of the victim.
    fn finish(mut self, world: &World) {
        let mut first = shard(&join(&world.segment), 0);
        for round in 0..3 * CAPACITY {
            while !self.publish(1 + round % 3) {
                work(&mut first, 0, 0);
                work(&mut self.second, 1, 0);
                self.read();
            }
        }
        drop(self.tx);
        while self.end.next_seq() < self.sent {
            while work(&mut first, 0, 0) + work(&mut self.second, 1, 0) != 0 {}
            let sent = self.sent;
            self.end
                .poll(usize::MAX, |event, at| assert!(event.seq == at.seq && at.seq < sent))
                .ok();
        }
        for (shard, number) in [(&mut first, 0), (&mut self.second, 1)] {
            assert!(matches!(shard.batch(1), Err(WaitError::Closed)), "{number}");
        }
        assert!(matches!(self.end.batch(1), Err(WaitError::Closed)));
    }
}

/// A call in which the process of a shard is killed.
struct Call {
    name: &'static str,
    /// Acts before the victim lives.
    before: fn(&World) -> Survivors,
    /// Code that the victim runs. It marks the point before the call, and the point after it.
    victim: fn(&World),
}

fn kill_me() {
    // SAFETY: ends this process.
    unsafe { libc::raise(libc::SIGKILL) };
}

/// A shard's process has died while it held lent events, and its place is not free yet.
fn dead(world: &World) -> Survivors {
    let survivors = Survivors::new(world);
    wait(fork(|| {
        let mut victim = world.victim();
        let mut batch = victim.batch(2).unwrap();
        let first = batch.first_seq();
        handle(&mut batch[0], first, 0, false);
        kill_me();
    }));
    survivors
}

fn victim_is_lent(world: &World) {
    let mut victim = world.victim();
    mark();
    let _batch = victim.batch(usize::MAX).unwrap();
    mark();
}

fn victim_handles(world: &World) {
    let mut victim = world.victim();
    mark();
    work(&mut victim, 0, 1);
    mark();
}

fn victim_polls(world: &World) {
    let mut victim = world.victim();
    mark();
    victim.poll(5, |event, at| handle(event, at.seq, 0, false)).unwrap();
    mark();
}

fn victim_leaves(world: &World) {
    let mut victim = world.victim();
    work(&mut victim, 0, 1);
    mark();
    drop(victim);
    mark();
}

fn victim_succeeds(world: &World) {
    let me = join(&world.segment);
    mark();
    let victim = me.shard_updater(BOOKS, 0);
    mark();
    std::mem::forget(victim);
}

fn victim_goes_on(world: &World) {
    let mut victim = world.victim();
    mark();
    work(&mut victim, 0, 0);
    mark();
}

const CALLS: [Call; 6] = [
    Call { name: "be lent events", before: Survivors::new, victim: victim_is_lent },
    Call { name: "handle and release a batch", before: Survivors::new, victim: victim_handles },
    Call { name: "poll", before: Survivors::new, victim: victim_polls },
    Call { name: "leave", before: Survivors::new, victim: victim_leaves },
    Call { name: "take a dead shard's place", before: dead, victim: victim_succeeds },
    Call { name: "go on where a dead shard stopped", before: dead, victim: victim_goes_on },
];

/// The number of instructions of each call before which a victim is killed. Instructions that
/// follow a change of the segment come in addition.
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

    /// Kills a victim just before it executes an instruction. Returns whether the victim reached
    /// the instruction.
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
        let (count, changes) = (path.places.len(), path.changes.len());
        let places = path.kills(if all { count } else { PLACES });
        let came = places.iter().filter(|&&place| call.kill_at(path.places[place])).count();
        let (name, places) = (call.name, places.len());
        say(format!(
            "{name}: {count} instructions, {changes} states, killed at {came} of {places}"
        ));
        assert!(came * 10 >= places * 9, "{name}: victims took another path");
    }
    say("done");
}

fn role_steps() {
    for step in PLACE_STEPS {
        let world = World::new();
        let survivors = dead(&world);
        let victim = fork(|| {
            kill_at(step);
            work(&mut world.victim(), 0, 1);
        });
        let status = wait(victim);
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        assert!(killed, "never came to `{step}`: {status:#x}");
        survivors.finish(&world);
    }
    say("done");
}

#[test]
fn a_shard_killed_at_any_instruction_loses_nothing() {
    let _watched = watched();
    test_in_a_role("instructions", &[]);
}

#[test]
fn a_shard_killed_at_any_step_loses_nothing() {
    let _watched = watched();
    test_in_a_role("steps", &[]);
}

/// Runs the first shard of a segment until it is killed.
fn role_first_shard() {
    let me = join(&Test::open(value("NAME")).unwrap());
    let first = me.shard_reader(BOOKS, 0).unwrap();
    say(first.next_seq());
    listen();
}

/// A producer that waits for a dead shard learns which shard it is. The other shard is alive.
#[test]
fn a_dead_shard_is_told_by_its_number() {
    let _watched = watched();
    let name = Name::new();
    let segment = Test::create(&name.0).capacity(4).notice(Duration::from_millis(2));
    let segment = segment.shard_reader(BOOKS, 2, |block| &block.value[2]).on_death(OnDeath::Tell);
    let segment = segment.build().unwrap();
    let me = join(&segment);
    let (mut tx, mut second) = (me.producer().unwrap(), me.shard_reader(BOOKS, 1).unwrap());
    let mut role = Role::start("first shard", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "0");
    let taken = problem(me.shard_reader(BOOKS, 0));
    assert!(matches!(taken.of(), Problem::Taken { .. }), "{}", taken.message);
    assert!(taken.message.contains("`books, shard 0`"), "{}", taken.message);
    (0..4).for_each(|_| _ = tx.publish(|_| ()).unwrap());
    second.poll(8, |_, _| ()).unwrap();
    role.kill();
    let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
    let WaitError::PeerDead(dead) = &error else { panic!("{error}") };
    assert_eq!((dead.stage.as_str(), dead.shard), (BOOKS, Some(0)));
    retry(|| me.shard_reader(BOOKS, 0)).unwrap().poll(8, |_, _| ()).unwrap();
    second.poll(8, |_, _| ()).unwrap();
    assert_eq!(tx.publish(|_| ()).unwrap(), 4);
}

/// Checks the errors of calls that ask for another kind of stage, and the errors of the builder.
#[test]
fn places_of_shards() {
    let _watched = watched();
    let world = World::new();
    let _first = shard(&world.me, 0);
    for (problem, of) in [
        (problem(world.me.shard_updater(BOOKS, 0)), "runs `books, shard 0`"),
        (problem(world.me.shard_updater(BOOKS, 2)), "has no shard 2: its 2 shards"),
        (problem(world.me.shard_reader(BOOKS, 1)), "shards: `shard_updater`"),
        (problem(world.me.reader(BOOKS)), "declared with shards"),
        (problem(world.me.pool_updater(BOOKS)), "declared with shards"),
        (problem(world.me.shard_reader(END, 0)), "one handle sees each event"),
        (problem(world.me.shard_updater("none", 0)), "no stage `none`"),
    ] {
        assert!(problem.message.contains(of), "{}", problem.message);
    }
    for shards in [0, 65] {
        let refused = Test::create_memfd("refused").capacity(128);
        let refused = refused.shard_reader("shards", shards, |block| &block.seq);
        assert_problem!(refused.build(), Problem::Declaration { .. });
    }
    let refused = Test::create_memfd("refused").capacity(2);
    let refused = refused.shard_reader("shards", 3, |block| &block.seq);
    assert_problem!(refused.build(), Problem::Graph(_));
    let refused = Test::create_memfd("refused").capacity(8).shard_reader("shards", 3, |_| &7u64);
    assert_problem!(refused.build(), Problem::Key { .. });
    let refused = Test::create_memfd("refused").capacity(8);
    let refused = refused.shard_reader("shards", 3, |block| &block.value[..0]);
    assert_problem!(refused.build(), Problem::Key { .. });
}

/// `inspect` shows the position, lag and places of shards.
#[test]
fn shards_are_inspected() {
    let _watched = watched();
    let name = Name::new();
    let segment = Test::create(&name.0).capacity(16);
    let segment = segment.shard_updater(BOOKS, 2, |block| &block.value[2]).build().unwrap();
    let me = join(&segment);
    let look = || {
        let summary = slipring_shm::inspect(&name.0).unwrap();
        let books = &summary.stages[0];
        let positions: Vec<_> = books.seats.iter().map(|seat| seat.position.unwrap()).collect();
        (summary.published, books.position, books.held, books.lag, positions)
    };
    assert_eq!(look(), (0, 0, 0, 0, vec![0, 0]));
    let mut tx = me.producer().unwrap();
    // All events have the same key.
    let own = slipring::segment::shard_of_bytes(&[0; 8], 2) as usize;
    tx.claim_n(5).unwrap().publish();
    let (mut one, mut other) = (shard(&me, own), shard(&me, 1 - own));
    assert_eq!(other.poll(8, |_, _| ()).unwrap(), 0);
    let positions =
        |one: u64, other: u64| if own == 0 { vec![one, other] } else { vec![other, one] };
    assert_eq!(look(), (5, 0, 0, 5, positions(0, 5)));
    let held = one.batch(3).unwrap();
    assert_eq!(look(), (5, 0, 3, 5, positions(0, 5)));
    held.release();
    assert_eq!(look(), (5, 3, 3, 2, positions(3, 5)));
    let summary = slipring_shm::inspect(&name.0).unwrap();
    let places: Vec<_> = summary.stages[0].seats.iter().map(|seat| seat.participant).collect();
    assert_eq!((summary.stages[0].delivery, places), ("shards", vec![Some(1); 2]));
}
