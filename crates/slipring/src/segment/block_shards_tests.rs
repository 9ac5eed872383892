//! Tests of shards whose keys are bytes of a block. The memory is on the heap, so that Miri can run
//! the tests.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::for_tests::{Dead, stage};
use super::zeroed::{Memory, blocks_on_heap};
use super::*;
use crate::consumer::markers::{Reading, Updating};
use crate::errors::BuildError;
use crate::errors::{BatchError, WaitError};
use crate::processes::markers::{Seated, SeatedShard};
use crate::processes::producer::Apart;
use crate::wait::Wait;

type Shard = BlockConsumer<Updating, SeatedShard>;

/// A segment of blocks, and the processes that can attach to it.
struct Blocks {
    declaration: Declaration,
    areas: Areas,
    dead: Arc<Dead>,
    size: usize,
}

/// Returns an updating stage. The bytes `key` of a block select the shard that handles the block.
fn shards(name: &str, shards: usize, key: &Range<usize>, after: &[usize]) -> StageDeclaration {
    let (key_offset, key_length) = (key.start, key.len());
    let delivery = StageDelivery::Shards { shards, key_offset, key_length };
    StageDeclaration { delivery, writes: true, ..stage(name, after, OnDeath::Wait) }
}

/// Returns the shard of a block.
fn of(block: &[u8], key: &Range<usize>, shards: usize) -> usize {
    shard_of_bytes(&block[key.clone()], shards) as usize
}

impl Blocks {
    fn new(size: usize, inside: bool, producers: usize, stages: Vec<StageDeclaration>) -> Blocks {
        let (capacity, producer_on_death) = (8, OnDeath::Wait);
        let declaration =
            Declaration { capacity, start: u64::MAX - 9, stages, producers, producer_on_death };
        let areas = blocks_on_heap(&declaration, size, inside).unwrap();
        Blocks { declaration, areas, dead: Arc::default(), size }
    }

    fn attach(&self, number: u32) -> SegmentRing<BlockStart, Strided> {
        let participant = Participant {
            number,
            proof: self.dead.clone(),
            notice: Duration::from_millis(1),
            always_fences: true,
            wait: Wait::Blocking,
            producer_wait: Wait::Blocking,
        };
        // SAFETY: the areas were laid out as the declaration needs them; all rings follow the
        // protocol.
        unsafe { SegmentRing::over(&self.declaration, &self.areas, &participant) }.unwrap()
    }

    fn producer(&self, number: u32) -> BlockProducer {
        let ring = self.attach(number);
        ring.seat(ring.seats_of(ring.producer_party()).start).take(number).unwrap();
        // SAFETY: the seat was taken, and the blocks have this size.
        unsafe { BlockProducer::over(ring.producer(), self.size) }
    }

    fn shared_producer(&self, number: u32, seat: usize) -> BlockProducer<Apart> {
        let ring = self.attach(number);
        let seat = ring.seats_of(ring.producer_party()).start + seat;
        ring.seat(seat).take(number).unwrap();
        // SAFETY: as above.
        unsafe { BlockProducer::over(ring.shared_producer(seat), self.size) }
    }

    fn shard(&self, number: u32, stage: usize, shard: usize) -> Shard {
        let ring = self.attach(number);
        ring.seat(ring.seats_of(stage).start + shard).take(number).unwrap();
        // SAFETY: the seat was taken, the stage writes, and the blocks have this size.
        unsafe { BlockConsumer::over(ring.shard_updater(stage, shard), self.size) }
    }

    fn reader(&self, number: u32, stage: usize) -> BlockConsumer<Reading, Seated> {
        let ring = self.attach(number);
        ring.seat(ring.seats_of(stage).start).take(number).unwrap();
        // SAFETY: as above.
        unsafe { BlockConsumer::over(ring.reader(stage), self.size) }
    }

    /// Kills a participant, and recovers its seats. Its handle stays as it is.
    fn kill<T>(&self, number: u32, handle: T) -> T {
        self.dead.set.fetch_or(1 << number, Ordering::Relaxed);
        let ring = self.attach(60);
        let settle = &mut || (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, number));
        ring.find_dead(number, &*self.dead);
        assert!(self.dead.recover(number, settle), "the participant lives");
        handle
    }
}

/// Fills in the bytes of block number `number`. Neighbouring blocks differ in all bytes.
fn fill(block: &mut [u8], number: u64) {
    let bytes = block.iter_mut().enumerate();
    bytes.for_each(|(offset, byte)| *byte = (number.wrapping_mul(151) + offset as u64 * 7) as u8);
}

fn filled(size: usize, number: u64) -> Vec<u8> {
    let mut block = vec![0; size];
    fill(&mut block, number);
    block
}

/// Handles all available blocks in batches. Returns their positions, and changes each block by
/// `change`.
fn work(shard: &mut Shard, mut change: impl FnMut(&mut [u8])) -> Vec<u64> {
    let mut seen = Vec::new();
    loop {
        match shard.try_batch(usize::MAX) {
            Ok(mut batch) => {
                for offset in 0..batch.len() {
                    seen.push(batch.first_seq().wrapping_add(offset as u64));
                    change(batch.get_mut(offset).unwrap());
                }
                batch.release();
            }
            Err(BatchError::Unavailable | BatchError::Wait(WaitError::Closed)) => return seen,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Tests blocks of several sizes, in both layouts, with keys at the beginning, in the middle, at
/// the end, and over the whole block. Each shard is lent the blocks of its keys, whole and in
/// order.
#[test]
fn each_shard_is_lent_the_blocks_of_its_keys() {
    let _watched = crate::watchdog::watched();
    let keys = [(1, 0..1), (3, 1..3), (24, 8..16), (24, 5..22), (40, 39..40), (40, 0..40)];
    for (size, key) in keys {
        for (inside, producers) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
            let stages = vec![shards("books", 3, &key, &[]), stage("end", &[0], OnDeath::Wait)];
            let segment = Blocks::new(size, inside, producers, stages);
            let mut single = (producers == 1).then(|| segment.producer(1));
            let mut several = [0, 1].map(|seat| {
                (producers == 2).then(|| segment.shared_producer(10 + seat as u32, seat))
            });
            let mut books = [0, 1, 2].map(|shard| segment.shard(2 + shard as u32, 0, shard));
            let mut end = segment.reader(7, 1);
            let (mut sent, mut seen) = (0, 0);
            for (run, given_up) in [(1, false), (3, false), (2, true), (4, false), (8, false)] {
                macro_rules! publish {
                    ($tx:expr) => {{
                        let mut claim = $tx.claim_n(run).unwrap();
                        let first = claim.first_seq();
                        for offset in 0..run {
                            fill(&mut claim[offset], sent + offset as u64);
                        }
                        match given_up {
                            true => drop(claim),
                            false => assert_eq!(claim.publish(), first),
                        }
                        first
                    }};
                }
                let first = match &mut single {
                    Some(tx) => publish!(tx),
                    None => publish!(several[run % 2].as_mut().unwrap()),
                };
                let mut expected = [0, 1, 2].map(|_| Vec::new());
                for offset in 0..if given_up { 0 } else { run as u64 } {
                    let block = filled(size, sent + offset);
                    expected[of(&block, &key, 3)].push(first.wrapping_add(offset));
                }
                for (shard, expected) in books.iter_mut().zip(&expected) {
                    let positions = work(shard, |block| block.iter_mut().for_each(|it| *it ^= 255));
                    assert_eq!(&positions, expected, "{size} {key:?} {inside} {producers}");
                }
                sent += if given_up { 0 } else { run as u64 };
                end.poll(usize::MAX, |block, _| {
                    let changed: Vec<u8> = filled(size, seen).iter().map(|it| it ^ 255).collect();
                    assert_eq!(block, changed);
                    seen += 1;
                })
                .unwrap();
                assert_eq!(seen, sent);
            }
            drop((single, several));
            for shard in &mut books {
                assert!(matches!(shard.batch(1).map(drop), Err(WaitError::Closed)));
            }
        }
    }
}

/// When a shard has died, its successor is lent the same blocks, and no block of another shard. The
/// second stage uses the keys that the first stage leaves, even in blocks that a successor passes
/// over.
#[test]
fn a_dead_shard_is_followed() {
    let _watched = crate::watchdog::watched();
    let (size, key) = (16, 4..12);
    for inside in [false, true] {
        let stages = vec![shards("first", 2, &key, &[]), shards("second", 2, &key, &[0])];
        let segment = Blocks::new(size, inside, 1, stages);
        let of_shard = |shard: usize| {
            (0..).find(|&number| of(&filled(size, number), &key, 2) == shard).unwrap()
        };
        let numbers = [0, 1].map(of_shard);
        let mut tx = segment.producer(1);
        for shard in [0, 1, 0, 0, 1, 0] {
            tx.publish(|block| fill(block, numbers[shard])).unwrap();
        }
        let start = u64::MAX - 9;
        let at = |offset: u64| start.wrapping_add(offset);
        let mut first = [segment.shard(2, 0, 0), segment.shard(3, 0, 1)];
        assert_eq!(first[0].poll(1, |_, _| ()).unwrap(), 1);
        // The process is lent the blocks 2 and 3, changes the keys of both, and dies.
        let mut batch = first[0].batch(8).unwrap();
        assert_eq!((batch.first_seq(), batch.len()), (at(2), 2));
        (0..2).for_each(|offset| fill(batch.get_mut(offset).unwrap(), numbers[1]));
        let [dying, mut other] = first;
        let dead = segment.kill(2, dying);
        assert_eq!(work(&mut other, |_| ()), [at(1), at(4)]);
        let mut next = segment.shard(4, 0, 0);
        assert!([2, 3].iter().all(|&offset| next.suspects().contains(at(offset))));
        assert_eq!(next.redelivered().end_seq(), at(4));
        assert_eq!(next.pass_over_suspects().unwrap(), 2);
        assert_eq!(work(&mut next, |_| ()), [at(5)]);
        // The passed-over blocks go to the shard of the keys that they have now.
        let mut second = [segment.shard(7, 1, 0), segment.shard(8, 1, 1)];
        assert_eq!(work(&mut second[0], |_| ()), [at(0), at(5)]);
        assert_eq!(work(&mut second[1], |_| ()), [1, 2, 3, 4].map(at));
        drop(dead);
    }
}

/// Runs one producer, three shards, and a stage behind them, on threads that stand for processes.
#[test]
fn shards_of_several_processes_share_the_blocks() {
    let _watched = crate::watchdog::watched();
    let (size, key, blocks) = (16, 3..9, if cfg!(miri) { 40 } else { 4_000 });
    for inside in [false, true] {
        let stages = vec![shards("books", 3, &key, &[]), stage("end", &[0], OnDeath::Wait)];
        let segment = Blocks::new(size, inside, 1, stages);
        let books = [2, 3, 4].map(|number| segment.shard(number, 0, number as usize - 2));
        let (mut tx, mut end) = (segment.producer(1), segment.reader(5, 1));
        std::thread::scope(|scope| {
            let handled = books.map(|mut shard| {
                let key = &key;
                scope.spawn(move || {
                    let (mut own, mut last) = (None, None);
                    let handled = shard.for_each(|block, at| {
                        let found = of(block, key, 3);
                        assert_eq!(*own.get_or_insert(found), found);
                        assert!(last.is_none_or(|last: u64| at.seq.wrapping_sub(last) as i64 > 0));
                        last = Some(at.seq);
                    });
                    handled.unwrap()
                })
            });
            scope.spawn(move || {
                (0..blocks).for_each(|i| _ = tx.publish(|block| fill(block, i)).unwrap());
            });
            let mut next = 0;
            end.for_each(|block, _| {
                assert_eq!(block, filled(size, next));
                next += 1;
            })
            .unwrap();
            let handled = handled.map(|worker| worker.join().unwrap());
            assert_eq!((next, handled.iter().sum::<u64>()), (blocks, blocks));
        });
    }
}

/// A raw shard lends consecutive blocks of the shard together, by position.
#[test]
fn a_raw_shard_goes_by_position() {
    let _watched = crate::watchdog::watched();
    let (size, key) = (8, 0..8);
    let segment = Blocks::new(size, false, 1, vec![shards("books", 2, &key, &[])]);
    let mut tx = segment.producer(1);
    let numbers = [0, 1]
        .map(|shard| (0..).find(|&number| of(&filled(size, number), &key, 2) == shard).unwrap());
    for shard in [1, 0, 0, 1, 0] {
        tx.publish(|block| fill(block, numbers[shard])).unwrap();
    }
    let start = u64::MAX - 9;
    let mut raw = segment.shard(2, 0, 0).into_raw();
    for (first, len) in [(1, 2), (4, 1)] {
        let found = raw.available(8).unwrap();
        assert_eq!((found.first_seq(), found.len()), (start.wrapping_add(first), len));
        let stretches = raw.stretches();
        assert_eq!(stretches.iter().map(|it| it.count).sum::<usize>(), len);
        for stretch in stretches {
            for block in 0..stretch.count {
                // SAFETY: the block is lent.
                let bytes = unsafe {
                    let first = stretch.address.as_ptr().add(block * stretch.stride);
                    std::slice::from_raw_parts(first, size)
                };
                assert_eq!(bytes, filled(size, numbers[0]));
            }
        }
        assert!(raw.done(start).is_err(), "a block of the other shard");
        raw.done(found.first_seq().wrapping_add(len as u64 - 1)).unwrap();
    }
    assert!(matches!(raw.available(8), Err(BatchError::Unavailable)));
}

/// A key that does not lie inside the block is refused, for any size.
#[test]
fn a_key_lies_in_the_block() {
    let of = |size: usize, key_offset: usize, key_length: usize| {
        let delivery = StageDelivery::Shards { shards: 2, key_offset, key_length };
        let stages = vec![StageDeclaration { delivery, ..stage("books", &[], OnDeath::Wait) }];
        let producer_on_death = OnDeath::Wait;
        Declaration { capacity: 4, start: 0, stages, producers: 1, producer_on_death }
            .needs_for(size)
    };
    for (offset, length) in [(0, 0), (0, 25), (24, 1), (usize::MAX, 2), (20, 5), (24, 0)] {
        let Err(BuildError::Declaration { problem }) = of(24, offset, length) else {
            panic!("{offset} {length} is accepted")
        };
        assert!(problem.contains("books") && problem.contains("24 bytes"), "{problem}");
    }
    for (offset, length) in [(0, 1), (0, 24), (23, 1), (3, 20)] {
        assert_eq!(of(24, offset, length).unwrap().shard_ids, 1);
    }
}

/// Whatever the words and the blocks of a segment hold, no call of a shard panics, accesses memory
/// outside the segment, or runs for ever.
#[test]
fn random_words_are_an_error_at_most() {
    let _watched = crate::watchdog::watched();
    for seed in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let (size, inside) = (24, seed % 2 == 0);
        let stages = vec![shards("first", 2, &(0..9), &[]), shards("second", 3, &(20..24), &[0])];
        let segment = Blocks::new(size, inside, 1, stages);
        let mut tx = segment.producer(1);
        let mut books = [(3, 0, 0), (4, 0, 1), (5, 1, 0), (6, 1, 2)]
            .map(|(number, stage, shard)| segment.shard(number, stage, shard));
        let memory: &Memory = segment.areas.mapping.downcast_ref().unwrap();
        let words = memory.bytes.size() / 8;
        let ids_end = if inside { segment.areas.events } else { segment.areas.stamps };
        let ids = segment.areas.shard_ids.addr().get()..ids_end.addr().get();
        for _ in 0..20 {
            for _ in 0..random.usize(1..words) {
                let value = match random.u32(..3) {
                    // A small number, shifted by a few bits, is close to a word that a ring would
                    // store.
                    0 => random.u64(..12) << random.u32(..17),
                    _ => random.u64(..) >> random.u32(..64),
                };
                // SAFETY: the word lies in the memory.
                let at = unsafe { memory.first.cast::<AtomicU64>().add(random.usize(..words)) };
                // SAFETY: all threads use the word by atomic accesses of this size, or have no
                // reference to the block that it belongs to. Status bits and shard ids have 32
                // bits.
                unsafe {
                    if at.cast() == segment.areas.status || ids.contains(&at.addr().get()) {
                        at.cast::<AtomicU32>().as_ref().store(value as u32, Ordering::Relaxed);
                    } else {
                        at.as_ref().store(value, Ordering::Relaxed);
                    }
                }
            }
            let now = Instant::now();
            let _ = tx.publish_by(now, |block| block.fill(1));
            for shard in &mut books {
                let _ = shard.try_batch(9).map(|batch| {
                    let sum: u64 = batch.iter().flatten().map(|&byte| u64::from(byte)).sum();
                    (sum, batch.stretches(), (batch.len() <= 8).then_some(()).unwrap())
                });
                let _ = shard.poll(3, |block, _| assert_eq!(block.len(), size));
                let _ = shard.batch_by(1, now).map(|mut batch| {
                    batch.get_mut(0).unwrap().fill(3);
                    batch.release();
                });
                let _ = (shard.redelivered(), shard.suspects(), shard.pass_over_suspects());
            }
        }
    }
}
