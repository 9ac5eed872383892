//! Several processes work in one pool, and are killed at each named step, and between any two
//! machine instructions of each call. The survivors handle each event, and learn which events a
//! dead worker may have touched. The stage behind the pool sees all events in order.
//!
//! No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))] // breakpoints and registers

mod common;

use std::time::{Duration, Instant};

use common::oracle::retry;
use common::trace::{PLACE_STEPS, Path, Victim, fork, mark, test_in_a_role, wait};
use common::*;
use slipring::{
    errors::{BatchError, ClaimError, WaitError},
    raw::SeqRange,
};
use slipring_shm::parts::layout::HEAD;
use slipring_shm::{Attached, PoolUpdater, Producer, Reader, errors::Problem};

const CAPACITY: u64 = 16;
const POOL: &str = "work";
const END: &str = "end";

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[("steps", role_steps), ("instructions", role_instructions)]);
}

/// A ring with a pool of two workers, and a stage behind the pool.
struct World {
    segment: Test,
    me: Attached<Block>,
}

fn join(segment: &Test) -> Attached<Block> {
    // SAFETY: only these tests know the segment. A child that is forked makes its own attachment.
    unsafe { segment.attach() }.unwrap()
}

/// Takes a worker's place, as soon as no killed process holds it any more.
fn worker(attached: &Attached<Block>) -> PoolUpdater<Block> {
    loop {
        match retry(|| attached.pool_updater(POOL)) {
            Ok(worker) => return worker,
            Err(error) if matches!(error.problem(), Problem::AllTaken { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Handles an event: counts in the event itself how often it was handled, and then marks it as
/// complete.
fn handle(event: &mut Block, seq: u64, again: &SeqRange) {
    assert_eq!(event.seq, seq);
    let announced = again.contains(seq);
    let [handled, _, complete] = event.value;
    assert!(announced || (handled, complete) == (0, 0), "{seq} was touched, and is not announced");
    event.value[usize::from(announced)] += 1;
    event.value[2] = !seq;
}

/// Handles a batch. Releases the first event alone, and then all others but the last `keep`. The
/// handle would be lent those again.
fn work(worker: &mut PoolUpdater<Block>, keep: usize) -> usize {
    match worker.try_batch(usize::MAX) {
        Ok(mut batch) => {
            let (first, again, len) = (batch.first_seq(), batch.redelivered(), batch.len());
            batch.iter_mut().zip(first..).for_each(|(event, seq)| handle(event, seq, &again));
            batch.release_front(1);
            batch.release_front((len - 1).saturating_sub(keep));
            len
        }
        Err(BatchError::Unavailable | BatchError::Contended) => 0,
        Err(BatchError::Wait(WaitError::Closed)) => 0,
        Err(error) => panic!("{error}"),
    }
}

impl World {
    fn new() -> World {
        let segment = Test::create_memfd("pools").capacity(CAPACITY);
        let segment = segment.notice(Duration::from_millis(2)).pool_updater(POOL, 2);
        let segment = segment.reader(END).after([POOL]).build().unwrap();
        let me = join(&segment);
        World { segment, me }
    }

    fn memory(&self) -> &[u8] {
        let mapping = self.me.participation().mapping();
        let (head, length) = (HEAD as usize, mapping.length());
        // SAFETY: the bytes are mapped, and the victim, which could write to them, is stopped.
        unsafe { std::slice::from_raw_parts(mapping.base().as_ptr().add(head), length - head) }
    }

    /// Makes a victim's handle, and lets it handle some chunks, so that its next chunk is longer.
    fn victim(&self) -> PoolUpdater<Block> {
        let mut victim = worker(&join(&self.segment));
        (0..4).for_each(|_| _ = work(&mut victim, 0));
        victim
    }
}

/// The processes that live on: the producer, a worker, and the stage behind the pool.
struct Survivors {
    tx: Producer<Block>,
    sent: u64,
    worker: PoolUpdater<Block>,
    end: Reader<Block>,
}

impl Survivors {
    /// The ring is full of events in runs of different lengths.
    fn new(world: &World) -> Survivors {
        let worker = worker(&world.me);
        let (tx, end) = (world.me.producer().unwrap(), world.me.reader(END).unwrap());
        let mut survivors = Survivors { tx, sent: 0, worker, end };
        [3, 1, 5, 4, 3].iter().for_each(|&len| assert!(survivors.publish(len)));
        survivors
    }

    fn publish(&mut self, len: u64) -> bool {
        match self.tx.try_claim_n(len as usize) {
            Ok(mut claim) => {
                for (slot, seq) in claim.iter_mut().zip(self.sent..) {
                    (slot.seq, slot.value) = (seq, [0; 3]);
                }
                assert_eq!(claim.publish(), self.sent);
                self.sent += len;
                true
            }
            Err(ClaimError::Gated { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Lets the stage behind the pool read the released events.
    fn read(&mut self) {
        let mut next = self.end.next_seq();
        let read = self.end.poll(usize::MAX, |event, at| {
            assert_eq!((at.seq, event.seq), (next, next), "in order");
            let [handled, again, complete] = event.value;
            assert_eq!(complete, !next, "{next} was released, and is not complete");
            assert!(handled <= 1 && handled + again >= 1, "{next}: {handled} and {again} times");
            next += 1;
        });
        assert!(matches!(read, Ok(_) | Err(WaitError::Closed)), "{read:?}");
        assert!(next <= self.sent);
    }

    /// Handles all published events. If `waits` is set, the surviving worker waits, and so recovers
    /// the dead worker itself. Otherwise a newcomer asks for a place, and recovers it.
    fn finish(mut self, world: &World, waits: bool) {
        let newcomer = join(&world.segment);
        let mut other = None;
        while self.end.next_seq() < self.sent {
            if waits {
                let soon = Instant::now() + Duration::from_millis(1);
                match self.worker.batch_by(usize::MAX, soon).map(drop) {
                    Ok(()) | Err(BatchError::TimedOut(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            } else {
                work(other.get_or_insert_with(|| worker(&newcomer)), 0);
            }
            work(&mut self.worker, 0);
            self.read();
        }
        let mut other = other.unwrap_or_else(|| worker(&newcomer));
        for round in 0..3 * CAPACITY {
            while !self.publish(1 + round % 3) {
                work(&mut other, 0);
                work(&mut self.worker, 0);
                self.read();
            }
        }
        drop(self.tx);
        let mut read = 0;
        while read < self.sent {
            while work(&mut other, 0) + work(&mut self.worker, 0) != 0 {}
            self.end.poll(usize::MAX, |event, at| assert_eq!(event.value[2], !at.seq)).ok();
            read = self.end.next_seq();
        }
        assert_eq!(read, self.sent);
        assert!(matches!(other.batch(1), Err(WaitError::Closed)));
        assert!(matches!(self.end.batch(1), Err(WaitError::Closed)));
    }
}

/// A call in which a worker is killed.
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

/// A worker has died in the middle of a chunk, and its place is not free.
fn dead(world: &World) -> Survivors {
    let survivors = Survivors::new(world);
    wait(fork(|| {
        let mut victim = world.victim();
        let mut batch = victim.batch(usize::MAX).unwrap();
        let (first, again) = (batch.first_seq(), batch.redelivered());
        handle(&mut batch[0], first, &again);
        kill_me();
    }));
    survivors
}

/// A worker has left in the middle of a chunk.
fn orphan(world: &World) -> Survivors {
    let survivors = Survivors::new(world);
    wait(fork(|| {
        let mut victim = world.victim();
        work(&mut victim, 1);
        let _chunk = victim.try_batch(usize::MAX);
    }));
    survivors
}

fn victim_takes(world: &World) {
    let mut victim = world.victim();
    mark();
    let _chunk = victim.batch(usize::MAX).unwrap();
    mark();
}

fn victim_handles(world: &World) {
    let mut victim = world.victim();
    mark();
    work(&mut victim, 0);
    mark();
}

fn victim_polls(world: &World) {
    let mut victim = world.victim();
    mark();
    victim.poll(3, |event, at| handle(event, at.seq, &(0..0).into())).unwrap();
    mark();
}

fn victim_leaves(world: &World) {
    let mut victim = world.victim();
    work(&mut victim, 1);
    mark();
    drop(victim);
    mark();
}

fn victim_adopts(world: &World) {
    let mut victim = worker(&join(&world.segment));
    // Takes all chunks from the claim word, so that the next chunk is the orphan's.
    while victim.redelivered().is_empty() && work(&mut victim, 0) != 0 {
        if victim.next_seq() >= 15 {
            break;
        }
    }
    mark();
    (0..3).for_each(|_| _ = work(&mut victim, 0));
    mark();
}

fn victim_joins(world: &World) {
    let me = join(&world.segment);
    mark();
    let victim = me.pool_updater(POOL);
    mark();
    std::mem::forget(victim);
}

const CALLS: [Call; 6] = [
    Call { name: "take a chunk", before: Survivors::new, victim: victim_takes },
    Call { name: "handle and release a chunk", before: Survivors::new, victim: victim_handles },
    Call { name: "poll", before: Survivors::new, victim: victim_polls },
    Call { name: "leave", before: Survivors::new, victim: victim_leaves },
    Call { name: "adopt", before: orphan, victim: victim_adopts },
    Call { name: "take a dead worker's place", before: dead, victim: victim_joins },
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
        survivors.finish(&world, false);
        Some(path)
    }

    /// Kills a victim before an instruction. Returns whether the victim reached it.
    fn kill_at(&self, (address, count): (u64, usize), waits: bool) -> bool {
        let world = World::new();
        let survivors = (self.before)(&world);
        let victim = Victim::start(|| (self.victim)(&world)).expect("the first was not refused");
        let came = victim.run_to(address, count);
        victim.kill();
        survivors.finish(&world, waits);
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
        let came = places.iter().enumerate();
        let came = came.filter(|&(n, &place)| call.kill_at(path.places[place], n % 2 == 0)).count();
        let (name, places) = (call.name, places.len());
        say(format!(
            "{name}: {count} instructions, {changes} states, killed at {came} of {places}"
        ));
        // The lengths of chunks depend on times, so some victims take another path. Some places lie
        // in loops whose number of rounds depends on the clock, so not every victim reaches its
        // place.
        assert!(came * if all { 4 } else { 2 } >= places, "{name}: most victims took another path");
    }
    say("done");
}

fn role_steps() {
    for step in PLACE_STEPS {
        for waits in [false, true] {
            let world = World::new();
            let survivors = dead(&world);
            let victim = fork(|| {
                kill_at(step);
                let me = join(&world.segment);
                let mut victim = worker(&me);
                work(&mut victim, 1);
            });
            let status = wait(victim);
            let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
            assert!(killed, "never came to `{step}`: {status:#x}");
            survivors.finish(&world, waits);
        }
    }
    say("done");
}

#[test]
fn a_worker_killed_at_any_instruction_loses_nothing() {
    let _watched = watched();
    test_in_a_role("instructions", &[]);
}

#[test]
fn a_worker_killed_at_any_step_loses_nothing() {
    let _watched = watched();
    test_in_a_role("steps", &[]);
}

/// Checks the errors of a pool without a free place, and of calls for another kind of stage.
#[test]
fn places_of_workers() {
    let _watched = watched();
    let world = World::new();
    let (one, _other) = (worker(&world.me), worker(&world.me));
    let full = problem(world.me.pool_updater(POOL));
    let Problem::AllTaken { places: 2, pids, .. } = full.of() else { panic!("{}", full.message) };
    assert_eq!(pids[..], [std::process::id(); 2]);
    drop(one);
    drop(worker(&world.me));
    for (problem, of) in [
        (problem(world.me.reader(POOL)), "declared as a pool"),
        (problem(world.me.updater(POOL)), "declared as a pool"),
        (problem(world.me.pool_reader(POOL)), "a pool: `pool_updater`"),
        (problem(world.me.pool_reader(END)), "one handle sees each event"),
        (problem(world.me.pool_updater("none")), "no stage `none`"),
    ] {
        assert!(problem.message.contains(of), "{}", problem.message);
    }
    for workers in [0, 65] {
        let refused = Test::create_memfd("refused").capacity(128).pool_reader("pool", workers);
        assert_problem!(refused.build(), Problem::Declaration { .. });
    }
    let refused = Test::create_memfd("refused").capacity(2).pool_reader("pool", 3);
    assert_problem!(refused.build(), Problem::Graph(_));
}

/// `inspect` shows a pool's position, lag and places.
#[test]
fn a_pool_is_inspected() {
    let _watched = watched();
    let name = Name::new();
    let segment = Test::create(&name.0).capacity(16).pool_updater(POOL, 2).build().unwrap();
    let me = join(&segment);
    let look = || {
        let summary = slipring_shm::inspect(&name.0).unwrap();
        let pool = &summary.stages[0];
        (summary.published, pool.position, pool.held, pool.lag)
    };
    assert_eq!(look(), (0, 0, 0, 0));
    let mut tx = me.producer().unwrap();
    tx.claim_n(5).unwrap().publish();
    assert_eq!(look(), (5, 0, 0, 5));
    let (mut one, mut other) = (worker(&me), worker(&me));
    let held = one.batch(1).unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!(other.poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(look(), (5, 0, 2, 5));
    held.release();
    assert_eq!(look(), (5, 2, 2, 3));
    let summary = slipring_shm::inspect(&name.0).unwrap();
    let places: Vec<_> = summary.stages[0].seats.iter().map(|seat| seat.participant).collect();
    assert_eq!(places, [Some(1); 2]);
}
