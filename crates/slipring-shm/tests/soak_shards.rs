//! Processes that are killed at random times and started again: one or two producers, two to four
//! shards of a stage that writes, and a stage behind the shards. The events are of a type, or
//! blocks. The oracle checks the whole stream of each round. The test runs for a few seconds, or
//! for as many as `SLIPRING_SOAK` asks for.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use common::trace::fork;
use common::*;
use libc::pid_t;
use slipring::segment::shard_of_bytes;
use slipring::{Wait, errors::WaitError};
use slipring_shm::{Contents, Event, Segment, SegmentError, blocks::Blocks, errors::Problem};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[("soak", role_soak)]);
}

/// Largest number of positions in one round.
const EVENTS: usize = 100_000;
/// Longest round.
const ROUND: Duration = Duration::from_millis(500);
/// Largest number of events in one publication: as many as the smallest ring has slots.
const MOST: usize = 4;
/// Most shards of the stage.
const SHARDS: usize = 4;
const BOOKS: &str = "books";
const END: &str = "end";

/// An event that knows its position. Each reader computes the event's shard from the key.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Keyed {
    seq: u64,
    check: u64,
    key: [u8; 12],
    unused: u32,
    /// Two words that a shard changes, one after the other.
    once: u64,
    twice: u64,
}

impl Event for Keyed {
    const NAME: &'static str = "test/Keyed";
    const VERSION: u32 = 1;
}

/// Range of the key's bytes in a block.
const KEY: Range<usize> = offset_of!(Keyed, key)..offset_of!(Keyed, key) + 12;

impl Keyed {
    fn fill(&mut self, seq: u64, key: u64) {
        (self.seq, self.once, self.twice) = (seq, 0, 0);
        self.key[..8].copy_from_slice(&key.to_le_bytes());
        self.key[8..].copy_from_slice(&[0xA5; 4]);
        self.check = Keyed::mix(seq, key);
    }

    fn mix(seq: u64, key: u64) -> u64 {
        (seq ^ key.rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }

    /// Asserts that the event is the one that was published at `seq`. Returns its shard.
    fn shard(&self, seq: u64, shards: usize) -> usize {
        let key = u64::from_le_bytes(self.key[..8].try_into().unwrap());
        assert_eq!((self.seq, self.check), (seq, Keyed::mix(seq, key)), "{self:?}");
        shard_of_bytes(&self.key, shards) as usize
    }
}

/// A round's ring.
struct World {
    events: Option<Segment<Keyed>>,
    blocks: Option<Segment<Blocks>>,
    producers: u32,
    shards: usize,
}

/// The record of each position, in memory that forked children share, so that it outlives a kill.
struct Journal(&'static [AtomicU64]);

/// States of a position: a producer was about to publish it, or has published it.
const BEGUN: u64 = 1;
const PUBLISHED: u64 = 2;
/// Added to the count of an event that a stage handles as a redelivered event.
const AGAIN: u64 = 1 << 32;

impl Journal {
    fn new() -> Journal {
        let count = 1 + SHARDS + 3 * EVENTS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses an address for new memory, which is never unmapped.
        let words = unsafe {
            let first = libc::mmap(std::ptr::null_mut(), count * 8, access, flags, -1, 0);
            assert_ne!(first, libc::MAP_FAILED);
            std::slice::from_raw_parts(first.cast::<AtomicU64>(), count)
        };
        Journal(words)
    }

    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, SeqCst));
    }

    /// Whether producers have to end.
    fn ends(&self) -> &AtomicU64 {
        &self.0[0]
    }

    /// Returns the word that holds the position behind the last one that a shard has handled.
    fn reached(&self, shard: usize) -> &AtomicU64 {
        &self.0[1 + shard]
    }

    fn sent(&self, seq: u64) -> &AtomicU64 {
        &self.0[1 + SHARDS + seq as usize]
    }

    /// Returns the word that counts how often the shards, or the stage behind them, have handled a
    /// position.
    fn count(&self, behind: bool, seq: u64) -> &AtomicU64 {
        &self.0[1 + SHARDS + (1 + usize::from(behind)) * EVENTS + seq as usize]
    }

    /// Counts that an event was handled once more. Returns whether the event was counted before.
    fn handle(&self, behind: bool, seq: u64, announced: bool) -> bool {
        let counted = if announced { AGAIN + 1 } else { 1 };
        let before = self.count(behind, seq).fetch_add(counted, SeqCst);
        assert!(announced || before == 0, "{seq} came again, unannounced (behind: {behind})");
        assert!(self.sent(seq).load(SeqCst) & BEGUN != 0, "{seq} was never published");
        before != 0
    }

    /// Asserts that both stages have handled each published event. Returns the number of published
    /// events.
    fn assert_complete(&self) -> u64 {
        let mut events = 0;
        for seq in 0..EVENTS as u64 {
            let sent = self.sent(seq).load(SeqCst);
            let counts = [false, true].map(|behind| self.count(behind, seq).load(SeqCst));
            let handled = counts.map(|count| count == 1 || count >= AGAIN);
            assert_eq!(handled[0], handled[1], "{seq}: {counts:?}");
            assert!(handled[0] || sent & PUBLISHED == 0, "{seq} was lost: {counts:?}");
            events += u64::from(handled[0]);
        }
        events
    }
}

/// Repeats a call while a killed process still holds the place.
fn retry<T>(mut take: impl FnMut() -> Result<T, SegmentError>) -> Option<T> {
    loop {
        match take() {
            Ok(handle) => return Some(handle),
            Err(error) => match error.problem() {
                Problem::Taken { .. } | Problem::AllTaken { .. } | Problem::Busy => {
                    thread::sleep(Duration::from_micros(200));
                }
                Problem::Over => return None,
                _ => panic!("{error}"),
            },
        }
    }
}

/// Publishes until the round ends. `$at` finds the event at an offset of a claim.
macro_rules! produce {
    ($tx:expr, $journal:expr, $seed:expr, $claim:ident, $offset:ident => $at:expr) => {{
        let Some(mut tx) = $tx else { return };
        let mut random = fastrand::Rng::with_seed($seed);
        while $journal.ends().load(SeqCst) == 0 {
            let count = random.usize(1..=MOST);
            let mut $claim = tx.claim_n(count).unwrap();
            let first = $claim.first_seq();
            let positions = first..first + count as u64;
            if positions.end as usize >= EVENTS {
                break;
            }
            for ($offset, seq) in positions.clone().enumerate() {
                let event: &mut Keyed = $at;
                event.fill(seq, random.u64(..50));
            }
            if random.u32(..20) == 0 {
                drop($claim); // given up
                continue;
            }
            positions.clone().for_each(|seq| _ = $journal.sent(seq).fetch_or(BEGUN, SeqCst));
            $claim.publish();
            positions.for_each(|seq| _ = $journal.sent(seq).fetch_or(PUBLISHED, SeqCst));
        }
    }};
}

/// Handles batches until the stream ends.
macro_rules! drain {
    ($rx:expr, $batch:ident, $offset:ident => $at:expr, $handle:expr) => {{
        let mut rx = $rx.expect("a stage's place outlives the stream");
        let redelivered = rx.redelivered();
        loop {
            #[allow(unused_mut, reason = "a batch that is read")]
            let mut $batch = match rx.batch(5) {
                Ok(batch) => batch,
                Err(WaitError::Closed) => return,
                Err(WaitError::PeerDead(_)) => continue,
                Err(error) => panic!("{error}"),
            };
            let first = $batch.first_seq();
            for $offset in 0..$batch.len() {
                let seq = first + $offset as u64;
                #[allow(clippy::redundant_closure_call, reason = "a macro")]
                ($handle)($at, seq, redelivered.contains(seq));
            }
            $batch.release();
        }
    }};
}

impl World {
    /// Makes a ring of events of a type, or of blocks.
    fn new(typed: bool, random: &mut fastrand::Rng) -> World {
        fn ring<C: Contents>(builder: slipring_shm::Builder<C>, shape: Shape) -> Segment<C> {
            let builder = builder.capacity(shape.capacity).notice(shape.notice);
            builder.reader(END).after([BOOKS]).producers(shape.producers).build().unwrap()
        }
        #[derive(Clone, Copy)]
        struct Shape {
            capacity: u64,
            notice: Duration,
            producers: u32,
        }
        let shards = random.usize(2..=SHARDS);
        let shape = Shape {
            capacity: 1 << random.u32(2..7),
            notice: Duration::from_millis(random.u64(1..10)),
            producers: random.u32(1..3),
        };
        let (mut events, mut blocks) = (None, None);
        if typed {
            let builder = Segment::<Keyed>::create_memfd("soak");
            events = Some(ring(builder.shard_updater(BOOKS, shards, |event| &event.key), shape));
        } else {
            let builder = Segment::<Blocks>::create_memfd("soak").block(size_of::<Keyed>(), 8);
            let builder = if random.bool() { builder.stamps_inside() } else { builder };
            blocks = Some(ring(builder.shard_updater(BOOKS, shards, KEY), shape));
        }
        World { events, blocks, producers: shape.producers, shards }
    }

    /// Number of parties: the producers, the shards, and the stage behind them.
    fn parties(&self) -> usize {
        self.producers as usize + self.shards + 1
    }

    /// Runs a party until its stream ends.
    fn live(&self, journal: &Journal, party: usize, wait: Wait, seed: u64) {
        let producers = self.producers as usize;
        let stage = party.checked_sub(producers);
        let shard = stage.filter(|&shard| shard < self.shards);
        let mut last = None;
        let mut handle = |event: &mut Keyed, seq: u64, announced: bool| {
            assert!(last.replace(seq) < Some(seq), "{seq} after {last:?}: in order");
            let of = event.shard(seq, self.shards);
            let Some(shard) = shard else {
                assert!(journal.count(false, seq).load(SeqCst) != 0, "{seq}: before its shard");
                assert_eq!((event.once, event.twice), (!seq, !seq), "released half-changed");
                journal.handle(true, seq, announced);
                return;
            };
            assert_eq!(of, shard, "{seq} is an event of another shard");
            assert!(announced || (event.once, event.twice) == (0, 0), "{seq} is not announced");
            let reached = journal.reached(shard).fetch_max(seq + 1, SeqCst);
            let again = journal.handle(false, seq, announced);
            assert!(again || announced || reached <= seq, "{seq} behind {reached}: in order");
            event.once = !seq;
            event.twice = !seq;
        };
        if let Some(segment) = &self.events {
            // SAFETY: only this test knows the segment. A forked child makes its own attachment.
            let me = unsafe { segment.attach() }.unwrap().wait(wait.clone()).unwrap();
            match (stage, shard) {
                (None, _) if producers == 1 => {
                    produce!(retry(|| me.producer()), journal, seed, claim, at => &mut claim[at]);
                }
                (None, _) => {
                    let tx = retry(|| me.shared_producer());
                    produce!(tx, journal, seed, claim, at => &mut claim[at]);
                }
                (_, Some(shard)) => {
                    let rx = retry(|| me.shard_updater(BOOKS, shard));
                    drain!(rx, batch, at => &mut batch[at], handle);
                }
                _ => {
                    let rx = retry(|| me.reader(END));
                    drain!(rx, batch, at => &mut copy(batch[at].as_bytes()), handle);
                }
            }
        }
        if let Some(segment) = &self.blocks {
            // SAFETY: as above.
            let me = unsafe { segment.attach() }.unwrap().wait(wait).unwrap();
            match (stage, shard) {
                (None, _) if producers == 1 => {
                    let tx = retry(|| me.producer());
                    produce!(tx, journal, seed, claim, at => event(&mut claim[at]));
                }
                (None, _) => {
                    let tx = retry(|| me.shared_producer());
                    produce!(tx, journal, seed, claim, at => event(&mut claim[at]));
                }
                (_, Some(shard)) => {
                    let rx = retry(|| me.shard_updater(BOOKS, shard));
                    drain!(rx, batch, at => event(batch.get_mut(at).unwrap()), handle);
                }
                _ => {
                    let rx = retry(|| me.reader(END));
                    drain!(rx, batch, at => &mut copy(batch.get(at).unwrap()), handle);
                }
            }
        }
    }
}

/// Returns the event that a block holds.
fn event(block: &mut [u8]) -> &mut Keyed {
    Keyed::mut_from_bytes(block).unwrap()
}

fn copy(block: &[u8]) -> Keyed {
    Keyed::read_from_bytes(block).unwrap()
}

fn start(world: &World, journal: &Journal, party: usize, random: &mut fastrand::Rng) -> pid_t {
    let wait = Wait::all()[random.usize(1..Wait::all().len())].clone();
    let seed = random.u64(..);
    fork(|| world.live(journal, party, wait, seed))
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
    let journal = Journal::new();
    let (mut rounds, mut kills, mut events) = ([0; 2], [0; 3], 0);
    while Instant::now() < until {
        journal.clear();
        let world = World::new(rounds[0] <= rounds[1], &mut random);
        let parties = world.parties();
        let mut pids: Vec<pid_t> =
            (0..parties).map(|party| start(&world, &journal, party, &mut random)).collect();
        let mut done = vec![false; parties];
        let round = Instant::now() + ROUND;
        while done.contains(&false) {
            thread::sleep(Duration::from_micros(random.u64(..3_000)));
            if Instant::now() > round {
                journal.ends().store(1, SeqCst);
            } else {
                let victim = random.usize(..parties);
                if !done[victim] {
                    // SAFETY: no earlier call has waited for this child.
                    unsafe { libc::kill(pids[victim], libc::SIGKILL) };
                }
            }
            for party in (0..parties).filter(|&party| !done[party]).collect::<Vec<_>>() {
                match ended(pids[party]) {
                    None => {}
                    Some(0) => done[party] = true,
                    Some(status) if libc::WIFSIGNALED(status) => {
                        let kind = match party.checked_sub(world.producers as usize) {
                            None => 0,
                            Some(shard) => 1 + usize::from(shard == world.shards),
                        };
                        kills[kind] += 1;
                        pids[party] = start(&world, &journal, party, &mut random);
                    }
                    Some(status) => panic!("party {party} failed: {status:#x}"),
                }
            }
        }
        rounds[usize::from(world.blocks.is_some())] += 1;
        events += journal.assert_complete();
    }
    let ([of_events, of_blocks], [producers, shards, stages]) = (rounds, kills);
    say(format!(
        "{events} events in {of_events} rounds of events and {of_blocks} of blocks; killed: \
         {producers} producers, {shards} shards, {stages} stages behind them"
    ));
}

#[test]
fn random_kills_of_shards_lose_nothing() {
    let _watched = watched();
    let mut role = Role::start("soak", &[]);
    println!("{}", role.hear());
    assert!(role.end().success());
}
