//! Processes that are killed at random times and started again. In one test they are a producer,
//! two stages in a row, and a reader of a tap; in the other, one or two producers of blocks or
//! messages, and two stages. The oracle checks the whole stream of each round. The test runs for a
//! few seconds, or for as many as `SLIPRING_SOAK` asks for.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use common::items::{self, Ledger};
use common::oracle::{Journal, Numbered, Shape, TAP, Tapped, World, join};
use common::trace::fork;
use common::*;
use libc::pid_t;
use slipring::{Wait, errors::WaitError};
use slipring_shm::Attached;

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[("soak", role_soak), ("contents", role_contents)]);
}

/// Most events of a round.
const EVENTS: usize = 100_000;
/// Longest round.
const ROUND: Duration = Duration::from_millis(500);

/// Number of parties of a ring: two stages, the producer, and a reader of the tap.
const PARTIES: usize = 4;

fn live(world: &World, journal: &Journal, party: usize, wait: Wait, seed: u64) {
    let me = join(&world.segment).wait(wait).unwrap();
    if party < 2 {
        return world.stage(&me, party, journal).drain(journal);
    }
    let mut random = fastrand::Rng::with_seed(seed);
    if party == 3 {
        return view(world, &me, &mut random);
    }
    let Some(mut tx) = world.producer(&me) else { return };
    let (sure, unsure) = (journal.published().load(SeqCst), journal.unsure().load(SeqCst));
    // The predecessor may have died after its publication, so the producer learns the next position
    // by a claim. It drops this claim, and claims again in the loop below.
    let mut next = tx.claim().unwrap().seq();
    assert!(next == sure || next == sure + unsure, "{sure}, {unsure}: {next}");
    journal.published().store(next, SeqCst);
    while journal.note().load(SeqCst) == 0 {
        let most = world.shape.capacity.min(9);
        let count = random.u64(1..=most);
        // Before the publication, the producer notes how many events it is about to publish. A
        // successor reads this number.
        journal.unsure().store(count, SeqCst);
        let mut claim = tx.claim_n(count as usize).unwrap();
        assert_eq!(claim.first_seq(), next);
        claim.iter_mut().zip(next..).for_each(|(slot, seq)| slot.fill(seq, seed));
        claim.publish();
        next += count;
        journal.published().store(next, SeqCst);
        if next as usize + 16 > EVENTS {
            break;
        }
    }
    // The drop closes the ring. If this producer is killed before that, its successor publishes a
    // little more.
    drop(tx);
}

/// Joins the tap again and again, until the stream ends.
fn view(world: &World, me: &Attached<Numbered>, random: &mut fastrand::Rng) {
    if world.shape.tap == Tapped::No {
        return;
    }
    loop {
        let mut viewer = world.view(me);
        for _ in 0..random.u32(..100) {
            match world.look(&mut viewer, random.usize(1..9)) {
                Ok(0) => thread::sleep(Duration::from_micros(random.u64(..300))),
                Ok(_) => {}
                Err(WaitError::Closed) => return,
                Err(WaitError::PeerDead(_)) => {}
                Err(error) => panic!("{TAP}: {error}"),
            }
        }
    }
}

fn start(world: &World, journal: &Journal, party: usize, random: &mut fastrand::Rng) -> pid_t {
    let wait = Wait::all()[random.usize(1..Wait::all().len())].clone();
    let seed = random.u64(..);
    fork(|| live(world, journal, party, wait, seed))
}

/// Returns how a child ended, if it has.
fn ended(pid: pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is valid.
    let waited = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
    (waited == pid).then_some(status)
}

/// Returns the time after which no new round begins.
fn end_of_soak() -> Instant {
    let seconds = std::env::var("SLIPRING_SOAK").ok().and_then(|seconds| seconds.parse().ok());
    Instant::now() + Duration::from_secs(seconds.unwrap_or(4))
}

fn role_soak() {
    let until = end_of_soak();
    let mut random = fastrand::Rng::new();
    let journal = Journal::new(EVENTS);
    let (mut rounds, mut kills, mut events) = (0, [0; PARTIES], 0);
    while Instant::now() < until {
        journal.clear();
        let notice = Duration::from_millis(random.u64(1..10));
        let tap = [Tapped::No, Tapped::First, Tapped::Between][random.usize(..3)];
        // A writing stage would race with the readers of a tap beside it.
        let writes = tap != Tapped::First && random.bool();
        let (capacity, passes) = (1 << random.u32(1..7), random.bool());
        let shape = Shape { capacity, writes, passes, notice, tap };
        let world = World::new(shape);
        let mut pids = [0, 1, 2, 3].map(|party| start(&world, &journal, party, &mut random));
        let mut done = [false; PARTIES];
        let round = Instant::now() + ROUND;
        while done != [true; PARTIES] {
            thread::sleep(Duration::from_micros(random.u64(..3_000)));
            if Instant::now() > round {
                journal.note().store(1, SeqCst);
            } else {
                let victim = random.usize(..PARTIES);
                if !done[victim] {
                    // SAFETY: no earlier call has waited for this child.
                    unsafe { libc::kill(pids[victim], libc::SIGKILL) };
                }
            }
            for party in 0..PARTIES {
                if done[party] {
                    continue;
                }
                match ended(pids[party]) {
                    None => {}
                    Some(0) => done[party] = true,
                    Some(status) if libc::WIFSIGNALED(status) => {
                        kills[party] += 1;
                        pids[party] = start(&world, &journal, party, &mut random);
                    }
                    Some(status) => panic!("party {party} failed: {status:#x}"),
                }
            }
        }
        let end = journal.published().load(SeqCst);
        (0..2).for_each(|stage| journal.assert_complete(stage, end));
        rounds += 1;
        events += end;
    }
    let [first, later, producer, readers] = kills;
    say(format!(
        "{events} events in {rounds} rounds; killed: {producer} producers, {first} first and \
         {later} later stages, {readers} readers of taps"
    ));
}

#[test]
fn random_kills_lose_nothing() {
    let _watched = watched();
    let mut role = Role::start("soak", &[]);
    println!("{}", role.hear());
    assert!(role.end().success());
}

/// Runs a stage or a producer of a ring of blocks or messages, until the stream ends.
fn live_in(world: &items::World, ledger: &Ledger, party: usize, wait: Wait, seed: u64) {
    let me = world.join().wait(wait);
    if party < 2 {
        return world.stage(&me, party).drain(ledger);
    }
    let Some(mut tx) = world.producer(&me) else { return };
    let mut random = fastrand::Rng::with_seed(seed);
    let items::Shape { messages, capacity, .. } = world.shape;
    let most = if messages { capacity as usize * 64 - 8 } else { (capacity as usize).min(9) };
    while ledger.stop().load(SeqCst) == 0 && ledger.ids().end + 64 < ledger.room() {
        let len = random.usize(..=most.min(600));
        match random.u8(..8) {
            0 => tx.give_up(len.max(1)),
            1 if messages => _ = tx.put_all(ledger, seed, &[most]),
            1 | 2 if !messages => tx.put_run(ledger, seed, len.max(1)),
            _ => _ = tx.put_all(ledger, seed, &[len]),
        }
    }
    // The last producer closes.
    drop(tx);
}

fn role_contents() {
    let until = end_of_soak();
    let mut random = fastrand::Rng::new();
    let ledger = Ledger::new(EVENTS);
    let (mut rounds, mut kills, mut seen) = (0, [0; PARTIES], [0; 2]);
    while Instant::now() < until {
        ledger.clear();
        // A killed producer may leave padding at any position.
        ledger.next_seq().store(u64::MAX, SeqCst);
        let (messages, several) = (random.bool(), random.bool());
        let (capacity, writes) = (1 << random.u32(1..7), !messages && random.bool());
        let shape = items::Shape { messages, capacity, several, writes, passes: false };
        let world = items::World::new(shape);
        let parties = if several { 4 } else { 3 };
        let start = |party, random: &mut fastrand::Rng| {
            let wait = Wait::all()[random.usize(1..Wait::all().len())].clone();
            let seed = random.u64(..);
            fork(|| live_in(&world, &ledger, party, wait, seed))
        };
        let mut pids: Vec<Option<pid_t>> =
            (0..parties).map(|party| Some(start(party, &mut random))).collect();
        let round = Instant::now() + ROUND;
        while pids.iter().any(Option::is_some) {
            thread::sleep(Duration::from_micros(random.u64(..3_000)));
            if Instant::now() > round {
                ledger.stop().store(1, SeqCst);
            } else if let Some(victim) = pids[random.usize(..parties)] {
                // SAFETY: no earlier call has waited for this child.
                unsafe { libc::kill(victim, libc::SIGKILL) };
            }
            for party in 0..parties {
                match pids[party].and_then(ended) {
                    None => {}
                    Some(0) => pids[party] = None,
                    Some(status) if libc::WIFSIGNALED(status) => {
                        kills[party] += 1;
                        pids[party] = Some(start(party, &mut random));
                    }
                    Some(status) => panic!("party {party} of {shape:?} failed: {status:#x}"),
                }
            }
        }
        ledger.assert_complete();
        rounds += 1;
        seen[usize::from(messages)] += ledger.ids().filter(|&id| ledger.is_seen(1, id)).count();
    }
    let ([first, later, one, other], [blocks, messages]) = (kills, seen);
    say(format!(
        "{blocks} blocks and {messages} messages in {rounds} rounds; killed: {one} and {other} \
         producers, {first} first and {later} later stages"
    ));
}

#[test]
fn random_kills_tear_no_block_and_no_message() {
    let _watched = watched();
    let mut role = Role::start("contents", &[]);
    println!("{}", role.hear());
    assert!(role.end().success());
}
