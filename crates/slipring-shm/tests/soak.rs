//! A producer, two stages in a row, and a reader of a tap, killed at random times and started again. The oracle checks
//! the whole stream of each round. A few seconds, or as many as `SLIPRING_SOAK` says.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use common::oracle::{Journal, Numbered, Shape, TAP, Tapped, World, join};
use common::trace::fork;
use common::*;
use libc::pid_t;
use slipring::{Wait, WaitError};
use slipring_shm::Attached;

#[test]
fn plays_a_role() {
    let _watched = watched();
    // A thread would be lost in forked children. The process that waits for this one has a
    // watchdog.
    drop(_watched);
    play(&[("soak", role_soak)]);
}

/// Most events of a round.
const EVENTS: usize = 100_000;
/// Longest round.
const ROUND: Duration = Duration::from_millis(500);

/// The parties of a ring: the stages, the producer, and a reader of the tap.
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
    let mut next = None;
    while journal.note().load(SeqCst) == 0 {
        let most = world.shape.capacity.min(9);
        let count = random.u64(1..=most);
        // Told before the call, so that a successor knows what a dead producer was about.
        if next.is_some() {
            journal.unsure().store(count, SeqCst);
        }
        let mut claim = tx.claim_n(count as usize).unwrap();
        let first = claim.first_seq();
        match next {
            None => assert!(first == sure || first == sure + unsure, "{sure}, {unsure}: {first}"),
            Some(next) => assert_eq!(first, next),
        }
        if next.is_none() {
            journal.published().store(first, SeqCst);
            journal.unsure().store(count, SeqCst);
        }
        claim.iter_mut().zip(first..).for_each(|(slot, seq)| slot.fill(seq, seed));
        claim.publish();
        let end = first + count;
        journal.published().store(end, SeqCst);
        next = Some(end);
        if end as usize + 16 > EVENTS {
            break;
        }
    }
    // Closes. A successor that comes first publishes a little more.
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

fn role_soak() {
    let seconds = std::env::var("SLIPRING_SOAK").ok().and_then(|seconds| seconds.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(4));
    let mut random = fastrand::Rng::new();
    let journal = Journal::new(EVENTS);
    let (mut rounds, mut kills, mut events) = (0, [0; PARTIES], 0);
    while Instant::now() < until {
        journal.clear();
        let notice = Duration::from_millis(random.u64(1..10));
        let tap = [Tapped::No, Tapped::First, Tapped::Between][random.usize(..3)];
        // A stage that writes and a tap beside it would race.
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
                    // SAFETY: the child was not waited for to its end.
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
