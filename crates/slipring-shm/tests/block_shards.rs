//! Shards over blocks, whose size is known only at run time. The key is a range of a block's bytes,
//! and any process can take a shard's handle.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use common::oracle::retry;
use common::*;
use slipring::errors::{BatchError, WaitError};
use slipring::segment::shard_of_bytes;
use slipring_shm::parts::layout::{Head, STAGES_AT, StageRecord};
use slipring_shm::{
    Attached, Builder, OnDeath, Segment, ShardReader, ShardUpdater,
    blocks::Blocks,
    errors::{HeaderProblem, Problem},
    inspect,
    messages::Messages,
};
use zerocopy::{FromBytes, IntoBytes};

const BOOKS: &str = "books";

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[("shard", role_shard)]);
}

fn attach(segment: &Segment<Blocks>) -> Attached<Blocks> {
    // SAFETY: only these tests know the segment.
    unsafe { segment.attach() }.unwrap()
}

fn blocks(capacity: u64, size: usize, align: usize) -> Builder<Blocks> {
    Segment::<Blocks>::create_memfd("shards").capacity(capacity).block(size, align)
}

/// Fills a block with bytes that encode its number.
fn fill(block: &mut [u8], number: u64) {
    let bytes = block.iter_mut().enumerate();
    bytes.for_each(|(offset, byte)| *byte = (number.wrapping_mul(151) as usize + offset * 7) as u8);
}

fn filled(size: usize, number: u64) -> Vec<u8> {
    let mut block = vec![0; size];
    fill(&mut block, number);
    block
}

/// Returns the shard of a block.
fn of(block: &[u8], key: &Range<usize>, shards: usize) -> usize {
    shard_of_bytes(&block[key.clone()], shards) as usize
}

/// Returns the first number from `from` on whose block belongs to shard `shard`, of two shards.
fn number_of(shard: usize, size: usize, key: &Range<usize>, from: u64) -> u64 {
    (from..).find(|&number| of(&filled(size, number), key, 2) == shard).unwrap()
}

/// One producer, and then several, publish blocks of many sizes and keys, in both layouts. Each
/// shard sees exactly the blocks of its keys, whole, in order and once, and the stage behind the
/// shards sees all blocks.
#[test]
fn each_shard_sees_the_blocks_of_its_keys() {
    let _watched = watched();
    let shapes = [
        (1, 1, 0..1, 2),
        (3, 1, 1..3, 3),
        (24, 8, 8..16, 1),
        (24, 8, 3..20, 4),
        (64, 64, 63..64, 3),
        (64, 64, 0..64, 2),
        (4096, 4096, 4088..4096, 3),
        (100_000, 32, 77_777..77_790, 3),
    ];
    for (size, align, key, shards) in shapes {
        for (inside, several) in [(false, false), (true, false), (false, true), (true, true)] {
            let declared = blocks(8, size, align).first_seq(u64::MAX - 20);
            let declared = declared.shard_reader(BOOKS, shards, key.clone());
            let declared = declared.reader("end").after([BOOKS]);
            let declared = if inside { declared.stamps_inside() } else { declared };
            let declared = if several { declared.producers(2) } else { declared };
            let me = attach(&declared.build().unwrap());
            let mut single = (!several).then(|| me.producer().unwrap());
            let mut both = [(); 2].map(|()| several.then(|| me.shared_producer().unwrap()));
            let mut books: Vec<ShardReader<Blocks>> =
                (0..shards).map(|shard| me.shard_reader(BOOKS, shard).unwrap()).collect();
            let mut end = me.reader("end").unwrap();
            let (mut sent, mut seen, mut handled) = (0u64, 0, vec![0; shards]);
            for (round, run) in [1usize, 3, 2, 4, 1, 7, 5].into_iter().enumerate() {
                macro_rules! publish {
                    ($tx:expr) => {{
                        drop($tx.claim_n(1).unwrap()); // given up
                        let mut claim = $tx.claim_n(run).unwrap();
                        (0..run).for_each(|at| fill(&mut claim[at], sent + at as u64));
                        claim.publish()
                    }};
                }
                let first = match &mut single {
                    Some(tx) => publish!(tx),
                    None => publish!(both[round % 2].as_mut().unwrap()),
                };
                let mut expected = vec![Vec::new(); shards];
                for offset in 0..run as u64 {
                    let block = filled(size, sent + offset);
                    expected[of(&block, &key, shards)].push((first.wrapping_add(offset), block));
                }
                for (number, shard) in books.iter_mut().enumerate() {
                    let mut own = Vec::new();
                    let count = shard.poll(usize::MAX, |block, at| {
                        assert!((block.as_ptr() as usize).is_multiple_of(align));
                        own.push((at.seq, block.to_vec()));
                    });
                    assert_eq!(count.unwrap(), own.len() as u64);
                    assert!(own == expected[number], "{size} {key:?} {inside} {several} {number}");
                    handled[number] += own.len();
                }
                sent += run as u64;
                end.poll(usize::MAX, |block, _| {
                    assert!(block == filled(size, seen), "in order");
                    seen += 1;
                })
                .unwrap();
                assert_eq!(seen, sent, "each shard has released what the others handled");
            }
            assert_eq!(handled.iter().sum::<usize>(), sent as usize);
            drop((single, both));
            for shard in &mut books {
                assert!(matches!(shard.batch(1).map(drop), Err(WaitError::Closed)));
            }
            assert!(matches!(end.batch(1).map(drop), Err(WaitError::Closed)));
        }
    }
}

/// Two sharded stages that write follow each other, and have different keys. The second stage is
/// sharded by its keys as the first stage has left them. In this test, threads play the processes.
#[test]
fn stages_of_shards_follow_each_other() {
    let _watched = watched();
    const COUNT: u64 = 5_000;
    let (size, first, second) = (24, 0..8, 16..20);
    for inside in [false, true] {
        let declared = blocks(16, size, 8).producers(2).shard_updater("first", 2, first.clone());
        let declared = declared.shard_updater("second", 3, second.clone()).after(["first"]);
        let declared = declared.reader("end").after(["second"]);
        let declared = if inside { declared.stamps_inside() } else { declared };
        let me = attach(&declared.build().unwrap());
        let producers = [0, 1].map(|_| me.shared_producer().unwrap());
        let stages = [("first", &first, 2), ("second", &second, 3)];
        let mut end = me.reader("end").unwrap();
        std::thread::scope(|scope| {
            for (of_producer, mut tx) in (0..).zip(producers) {
                scope.spawn(move || {
                    for number in 0..COUNT {
                        let fill = |block: &mut [u8]| {
                            block[..8].copy_from_slice(&(number % 10).to_le_bytes());
                            block[8..16].copy_from_slice(&(number * 2 + of_producer).to_le_bytes());
                            block[16..].fill(0);
                        };
                        tx.publish(fill).unwrap();
                    }
                });
            }
            for (name, key, shards) in stages {
                for shard in 0..shards {
                    let mut handle = me.shard_updater(name, shard).unwrap();
                    scope.spawn(move || {
                        let mut next: [[usize; 2]; 10] = std::array::from_fn(|key| [key; 2]);
                        loop {
                            let mut batch = match handle.batch(5) {
                                Ok(batch) => batch,
                                Err(WaitError::Closed) => return,
                                Err(error) => panic!("{error}"),
                            };
                            for offset in 0..batch.len() {
                                let block = batch.get_mut(offset).unwrap();
                                assert_eq!(of(block, key, shards), shard, "of another shard");
                                let number = u64::from_le_bytes(block[8..16].try_into().unwrap());
                                let (number, by) = (number / 2, number as usize % 2);
                                let key = number as usize % 10;
                                let (number, expected) = (number as usize, next[key][by]);
                                assert_eq!(number, expected, "in order, and each once");
                                next[key][by] = number + 10;
                                match name {
                                    // The first stage stores the key for the second stage, and
                                    // overwrites its own.
                                    "first" => {
                                        block[16..20].copy_from_slice(&(key as u32).to_le_bytes());
                                        block[..8].fill(0xEE);
                                    }
                                    _ => block[20] += 1,
                                }
                            }
                            batch.release();
                        }
                    });
                }
            }
            let mut count = 0;
            end.for_each(|block, _| {
                assert_eq!((&block[..8], block[20]), (&[0xEE; 8][..], 1));
                count += 1;
            })
            .unwrap();
            assert_eq!(count, 2 * COUNT);
        });
    }
}

/// `poll` and `for_each` continue behind the blocks of other shards, handle no more blocks than the
/// caller asks for, and release the handled blocks if the handler panics. A batch ends at a block
/// of another shard.
#[test]
fn calls_of_a_shard() {
    let _watched = watched();
    let (size, key) = (16, 8..16);
    let me = attach(&blocks(8, size, 8).shard_reader(BOOKS, 2, key.clone()).build().unwrap());
    let (mut tx, mut own) = (me.producer().unwrap(), me.shard_reader(BOOKS, 0).unwrap());
    let mut other = me.shard_reader(BOOKS, 1).unwrap();
    let numbers = [0, 1].map(|shard| number_of(shard, size, &key, 0));
    for shard in [1, 0, 1, 0, 0, 1, 0, 1] {
        tx.publish(|block| fill(block, numbers[shard])).unwrap();
    }
    assert_eq!((own.block_size(), own.next_seq()), (size, 0));
    assert!(own.redelivered().is_empty());
    let batch = own.batch(8).unwrap();
    assert_eq!((batch.first_seq(), batch.len()), (1, 1)); // not released: comes again
    let mut seen = Vec::new();
    assert_eq!(own.poll(2, |_, at| seen.push(at.seq)).unwrap(), 2);
    let panics = AssertUnwindSafe(|| own.poll(8, |_, at| assert_ne!(at.seq, 6)));
    assert!(catch_unwind(panics).is_err());
    assert_eq!(own.poll(8, |_, at| seen.push(at.seq)).unwrap(), 1);
    assert_eq!(seen, [1, 3, 6]);
    assert_eq!(own.poll(0, |_, _| panic!("none was asked for")).unwrap(), 0);
    assert!(matches!(own.try_batch(1).map(drop), Err(BatchError::Unavailable)));
    let late = own.batch_by(1, Instant::now()).map(drop);
    assert!(matches!(late, Err(BatchError::TimedOut(_))), "{late:?}");
    // The ring is full, because the other shard has not released its first block, the first one in
    // the ring. This shard has released all of its blocks. So once the other shard has handled its
    // own blocks, all slots are free.
    assert_eq!(tx.remaining(), 0);
    assert_eq!(other.poll(8, |_, at| seen.push(at.seq)).unwrap(), 4);
    assert_eq!((&seen[3..], tx.remaining()), (&[0, 2, 5, 7][..], 8));
    drop(tx);
    assert_eq!(own.for_each(|_, _| ()).unwrap(), 0);
    assert!(matches!(other.poll(1, |_, _| ()), Err(WaitError::Closed)));
}

/// Raw handles lend blocks by position, without closures. They, too, lend a shard only its own
/// blocks.
#[test]
fn raw_handles_of_a_shard() {
    let _watched = watched();
    let (size, key) = (8, 0..8);
    for inside in [false, true] {
        let declared = blocks(4, size, 8).shard_updater(BOOKS, 2, key.clone());
        let declared = if inside { declared.stamps_inside() } else { declared };
        let me = attach(&declared.build().unwrap());
        let mut tx = me.producer().unwrap().into_raw();
        let mut books = [0, 1].map(|shard| me.shard_updater(BOOKS, shard).unwrap().into_raw());
        for round in 0..9 {
            let first = tx.try_claim(3).unwrap();
            let mut expected = [0, 1].map(|_| Vec::new());
            for stretch in tx.stretches() {
                for at in 0..stretch.count {
                    let seq = stretch.first + at as u64;
                    let bytes = filled(size, seq * 3 + round);
                    expected[of(&bytes, &key, 2)].push((seq, bytes.clone()));
                    let address = stretch.address.as_ptr().wrapping_add(at * stretch.stride);
                    // SAFETY: the address is that of 8 claimed bytes.
                    unsafe { address.copy_from_nonoverlapping(bytes.as_ptr(), size) };
                }
            }
            tx.done(first + 2).unwrap();
            for (shard, expected) in books.iter_mut().zip(expected) {
                let mut seen = Vec::new();
                while let Ok(found) = shard.wait_by(8, Instant::now()) {
                    for stretch in shard.stretches() {
                        for at in 0..stretch.count {
                            let address =
                                stretch.address.as_ptr().wrapping_add(at * stretch.stride);
                            // SAFETY: the address is that of 8 lent bytes.
                            let bytes = unsafe { std::slice::from_raw_parts(address, size) };
                            seen.push((stretch.first + at as u64, bytes.to_vec()));
                        }
                    }
                    shard.done(found.first_seq() + found.len() as u64 - 1).unwrap();
                    assert!(shard.done(found.first_seq()).is_err(), "released");
                }
                assert_eq!(seen, expected);
            }
        }
    }
}

/// A builder refuses wrong keys, and the message names the stage, the range and the size of a
/// block.
#[test]
fn wrong_keys_are_refused() {
    let _watched = watched();
    #[allow(clippy::reversed_empty_ranges)]
    let wrong = [
        (8..8, "is empty"),
        (9..3, "is empty"),
        (24..24, "is empty"),
        (usize::MAX..usize::MAX, "is empty"),
        (0..25, "does not lie in"),
        (24..25, "does not lie in"),
        (0..usize::MAX, "does not lie in"),
        (usize::MAX - 1..usize::MAX, "does not lie in"),
    ];
    for (key, what) in wrong {
        let new = || Segment::<Blocks>::create_memfd("refused").capacity(4);
        let declared = [
            new().block(24, 8).shard_reader("risk", 2, key.clone()),
            // A builder may be given the key before the size of a block.
            new().shard_updater("risk", 2, key.clone()).block(24, 8).stamps_inside(),
            new().block(24, 8).reader("all").shard_reader("risk", 2, key.clone()).after(["all"]),
        ];
        for declared in declared {
            let refused = problem(declared.build());
            let Problem::KeyRange { stage, key: given, size: 24 } = refused.of() else {
                panic!("{}", refused.message)
            };
            assert_eq!((stage.as_str(), given), ("risk", &key));
            for part in ["`risk`", &format!("{key:?}"), "24 bytes", what, ": give"] {
                assert!(refused.message.contains(part), "{part}: {}", refused.message);
            }
        }
    }
    // The key may be the last byte, the whole block, or its first byte.
    for key in [23..24, 0..24, 0..1] {
        blocks(4, 24, 8).shard_reader("risk", 2, key).build().unwrap();
    }
    // A stage record has 32 bits for a key's offset, and 32 for its length. The builder refuses the
    // key before it takes memory.
    let far = 1usize << 32;
    for key in [far..far + 8, 0..far] {
        let refused = problem(blocks(1, far * 2, 4096).shard_reader("risk", 1, key).build());
        assert!(matches!(refused.of(), Problem::KeyRange { .. }), "{}", refused.message);
        assert!(refused.message.contains("4 GiB"), "{}", refused.message);
    }
    // A wrong size or capacity is reported before a wrong key.
    let sizeless = Segment::<Blocks>::create_memfd("refused").capacity(4);
    let sizeless = sizeless.shard_reader("risk", 2, 0..8).build();
    assert_problem!(sizeless, Problem::EventSize { size: 0, .. });
    assert_problem!(
        blocks(4, 12, 8).shard_reader("a", 2, 0..90).build(),
        Problem::EventSize { size: 12, align: 8 }
    );
    assert_problem!(blocks(3, 8, 8).shard_reader("a", 2, 0..90).build(), Problem::Capacity { .. });
    for shards in [0, 65] {
        let refused = blocks(128, 8, 8).shard_reader("shards", shards, 0..8).build();
        assert_problem!(refused, Problem::Declaration { .. });
    }
    assert_problem!(blocks(2, 8, 8).shard_reader("a", 3, 0..8).build(), Problem::Graph(_));
    let messages = Segment::<Messages>::create_memfd("refused").capacity(4).updater("all").build();
    let refused = problem(messages);
    assert!(refused.message.contains("messages do not have"), "{}", refused.message);
}

/// A call that asks for a place that the stage does not have fails, and its error names the
/// mistake.
#[test]
fn places_of_shards() {
    let _watched = watched();
    let declared = blocks(8, 8, 8).shard_updater(BOOKS, 2, 0..8).reader("end").after([BOOKS]);
    let me = attach(&declared.build().unwrap());
    let _first = me.shard_updater(BOOKS, 0).unwrap();
    for (problem, of) in [
        (problem(me.shard_updater(BOOKS, 0)), "runs `books, shard 0`"),
        (problem(me.shard_updater(BOOKS, 2)), "has no shard 2: its 2 shards"),
        (problem(me.shard_updater(BOOKS, usize::MAX)), "has no shard"),
        (problem(me.shard_reader(BOOKS, 1)), "shards: `shard_updater`"),
        (problem(me.reader(BOOKS)), "declared with shards"),
        (problem(me.pool_updater(BOOKS)), "declared with shards"),
        (problem(me.shard_reader("end", 0)), "one handle sees each event"),
        (problem(me.shard_updater("none", 0)), "no stage `none`"),
    ] {
        assert!(problem.message.contains(of), "{}", problem.message);
    }
}

/// When the file is opened, any words in the stage table that contradict the size of a block are
/// noticed, no matter which values they have.
#[test]
fn a_damaged_key_is_refused_at_open() {
    let _watched = watched();
    let name = Name::new();
    let made = Segment::<Blocks>::create(&name.0).capacity(4).block(24, 8);
    drop(attach(&made.shard_reader(BOOKS, 2, 8..16).build().unwrap()));
    let head = fs::read(name.path()).unwrap()[..65_536].to_vec();
    let file = fs::File::options().write(true).open(name.path()).unwrap();
    let open = |offset: u32, length: u32| {
        let (mut bytes, table) = (head.clone(), STAGES_AT as usize..STAGES_AT as usize + 128);
        let mut record = StageRecord::read_from_bytes(&bytes[table.clone()]).unwrap();
        assert_eq!((record.key_offset, record.key_length), (8, 8));
        (record.key_offset, record.key_length) = (offset, length);
        bytes[table].copy_from_slice(record.as_bytes());
        let mut changed = Head::from_bytes(bytes).unwrap();
        changed.seal();
        file.write_all_at(changed.bytes(), 0).unwrap();
        Segment::<Blocks>::open(&name.0)
    };
    for (offset, length) in [
        (8, 0),
        (24, 0),
        (25, 0),
        (24, 1),
        (17, 8),
        (0, 25),
        (u32::MAX, 8),
        (8, u32::MAX),
        (u32::MAX, u32::MAX),
        (u32::MAX, 1),
    ] {
        let refused = problem(open(offset, length));
        let found = matches!(refused.of(), Problem::Header(HeaderProblem::Stage { stage: 0, .. }));
        assert!(found, "{offset} {length}: {}", refused.message);
        assert!(inspect(&name.0).is_err());
    }
    for (offset, length) in [(0, 24), (23, 1), (8, 8)] {
        drop(attach(&open(offset, length).unwrap()));
        assert_eq!(inspect(&name.0).unwrap().stages[0].delivery, "shards");
    }
}

const KEY: Range<usize> = 500..508;
const SIZE: usize = 1000;

/// Runs the first shard of a segment until it is killed.
fn role_shard() {
    let me = attach(&Segment::<Blocks>::open(value("NAME")).unwrap());
    let mut first = me.shard_updater(BOOKS, 0).unwrap();
    let mut batch = first.batch(2).unwrap();
    batch.get_mut(0).unwrap().fill(0xFF);
    say(format!("{} {}", batch.first_seq(), batch.len()));
    listen();
}

/// A shard's process is killed while it holds lent blocks. Waiting parties learn which shard died,
/// and the other shard continues. The next process that takes the place is lent the same blocks, as
/// suspects.
#[test]
fn a_killed_shard_is_followed_by_another_process() {
    let _watched = watched();
    for inside in [false, true] {
        let name = Name::new();
        let made = Segment::<Blocks>::create(&name.0).capacity(8).block(SIZE, 8);
        let made = made.notice(Duration::from_millis(2)).shard_updater(BOOKS, 2, KEY);
        let made = made.on_death(OnDeath::Tell).reader("end").after([BOOKS]);
        let made = if inside { made.stamps_inside() } else { made };
        let me = attach(&made.build().unwrap());
        let (mut tx, mut end) = (me.producer().unwrap(), me.reader("end").unwrap());
        let mut second = me.shard_updater(BOOKS, 1).unwrap();
        let numbers = [0, 1].map(|shard| number_of(shard, SIZE, &KEY, 0));
        let sent = [1, 0, 0, 1, 0, 1, 0, 0];
        for shard in sent {
            tx.publish(|block| fill(block, numbers[shard])).unwrap();
        }
        let mut role = Role::start("shard", &[("NAME", &name.0)]);
        assert_eq!(role.hear(), "1 2");
        let look = || {
            let summary = inspect(&name.0).unwrap();
            let books = &summary.stages[0];
            let at: Vec<_> = books.seats.iter().map(|seat| seat.position.unwrap()).collect();
            (summary.contents, summary.event_size, books.delivery, books.held, at)
        };
        assert_eq!(look(), ("blocks", SIZE as u64, "shards", 3, vec![1, 0]));
        let taken = problem(me.shard_updater(BOOKS, 0));
        assert!(matches!(taken.of(), Problem::Taken { .. }), "{}", taken.message);
        assert_eq!(work(&mut second, 1), [0, 3, 5]);
        role.kill();
        // The dead shard had passed over the first block, which belongs to the other shard.
        assert_eq!(end.poll(8, |_, at| assert_eq!(at.seq, 0)).unwrap(), 1);
        let error = end.batch(1).map(drop);
        let Err(WaitError::PeerDead(dead)) = &error else { panic!("{error:?}") };
        assert_eq!((dead.stage.as_str(), dead.shard), (BOOKS, Some(0)));
        let mut next = retry(|| me.shard_updater(BOOKS, 0)).unwrap();
        let suspects = next.suspects();
        assert_eq!((next.redelivered(), suspects.len()), ((1..3).into(), 2));
        assert!((0..8).all(|seq| suspects.contains(seq) == (seq == 1 || seq == 2)));
        let mut batch = next.batch(8).unwrap();
        assert_eq!((batch.first_seq(), batch.len()), (1, 2));
        assert_eq!(batch.get(0).unwrap(), [0xFF; SIZE]);
        assert_eq!(batch.get(1).unwrap(), filled(SIZE, numbers[0]));
        fill(batch.get_mut(0).unwrap(), numbers[0]); // repaired
        batch.release();
        assert_eq!(work(&mut next, 0), [4, 6, 7]);
        drop(tx);
        let mut seen = end.next_seq();
        end.for_each(|block, at| {
            assert_eq!((at.seq, block), (seen, &filled(SIZE, numbers[sent[seen as usize]])[..]));
            seen += 1;
        })
        .unwrap();
        assert_eq!(seen, 8);
        assert!(matches!(next.batch(1).map(drop), Err(WaitError::Closed)));
        drop((next, second, end, me));
        slipring_shm::remove(&name.0).unwrap();
    }
}

/// Handles the available blocks, and returns their positions.
fn work(shard: &mut ShardUpdater<Blocks>, number: usize) -> Vec<u64> {
    let mut seen = Vec::new();
    let handled = shard.poll(usize::MAX, |block, at| {
        assert_eq!(of(block, &KEY, 2), number, "a block of another shard");
        seen.push(at.seq);
    });
    assert_eq!(handled.unwrap(), seen.len() as u64);
    seen
}
