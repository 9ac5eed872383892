//! Tests of blocks, whose size is known only at run time, and of messages of any length.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{Name, Role, listen, play, problem, say, value, watched};
use slipring::{
    errors::{BatchError, ClaimError, WaitError},
    handles::StartAt,
    raw::SeqRange,
};
use slipring_shm::{
    Attached, Builder, Contents, Segment,
    blocks::Blocks,
    errors::{MessageError, Problem},
    inspect,
    messages::{Messages, NextMessage},
};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[("blocks", role_blocks), ("worker", role_worker), ("messages", role_messages)]);
}

fn attach<C: Contents>(segment: &Segment<C>) -> Attached<C> {
    // SAFETY: only these tests know the segment.
    unsafe { segment.attach() }.unwrap()
}

fn blocks(capacity: u64, size: usize, align: usize) -> Builder<Blocks> {
    Segment::<Blocks>::create_memfd("blocks").capacity(capacity).block(size, align)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(200)
}

/// Returns the byte that the block at a position must have at an offset.
fn byte(seq: u64, offset: usize) -> u8 {
    (seq.wrapping_mul(31) as usize + offset * 7) as u8
}

fn fill(block: &mut [u8], seq: u64) {
    block.iter_mut().enumerate().for_each(|(offset, it)| *it = byte(seq, offset));
}

fn check(block: &[u8], seq: u64, size: usize) {
    assert_eq!(block.len(), size);
    assert!(block.iter().enumerate().all(|(offset, &it)| it == byte(seq, offset)), "{seq}");
}

/// Runs of blocks of many sizes come whole and in order over several laps, whether the blocks lie
/// side by side or each lies behind its stamp.
#[test]
fn blocks_of_any_size_come_whole_and_in_order() {
    let _watched = watched();
    for (size, align) in [(1, 1), (3, 1), (24, 8), (64, 64), (4096, 4096), (100_000, 32)] {
        for inside in [false, true] {
            let declared = blocks(4, size, align).reader("all").reader("again").after(["all"]);
            let declared = if inside { declared.stamps_inside() } else { declared };
            let attached = attach(&declared.build().unwrap());
            let mut tx = attached.producer().unwrap();
            let mut readers = ["all", "again"].map(|name| attached.reader(name).unwrap());
            let mut sent = 0;
            for run in [1, 3, 2, 4, 1, 1, 3, 4, 4] {
                let mut claim = tx.claim_n(run).unwrap();
                for offset in 0..run {
                    fill(&mut claim[offset], sent + offset as u64);
                }
                assert_eq!(claim.publish(), sent);
                sent += run as u64;
                for reader in &mut readers {
                    let batch = reader.batch(run).unwrap();
                    assert_eq!((batch.len(), batch.first_seq()), (run, sent - run as u64));
                    for (block, seq) in batch.iter().zip(batch.first_seq()..) {
                        check(block, seq, size);
                        assert!((block.as_ptr() as usize).is_multiple_of(align));
                    }
                    let [first, second] = batch.stretches();
                    assert_eq!(first.count + second.count, run);
                    assert_eq!(inside, first.stride != size, "{}", first.stride);
                    assert!(batch.get(run).is_none());
                    batch.release();
                }
            }
            drop(tx);
            assert!(matches!(readers[1].batch(1).map(drop), Err(WaitError::Closed)));
        }
    }
}

/// If a handler panics, the blocks that it has already handled are released, and no others.
#[test]
fn a_panic_releases_the_handled_blocks() {
    let _watched = watched();
    let attached = attach(&blocks(8, 16, 8).reader("all").build().unwrap());
    let (mut tx, mut all) = (attached.producer().unwrap(), attached.reader("all").unwrap());
    for seq in 0..5 {
        tx.publish(|block| fill(block, seq)).unwrap();
    }
    let panics = std::panic::AssertUnwindSafe(|| {
        all.poll(8, |_, at| assert_ne!(at.seq, 3, "at the fourth block"))
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(all.next_seq(), 3);
    assert_eq!(all.poll(8, |block, at| check(block, at.seq, 16)).unwrap(), 2);
    let panics = std::panic::AssertUnwindSafe(|| tx.publish(|_| panic!("while it fills")));
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(tx.publish(|block| fill(block, 5)).unwrap(), 5);
    assert_eq!(all.poll(8, |block, at| check(block, at.seq, 16)).unwrap(), 1);
}

/// Blocks work with several producers, a pool, a tap and a stage that writes.
#[test]
fn blocks_have_pools_taps_and_several_producers() {
    let _watched = watched();
    let declared = blocks(8, 32, 8).producers(2).tap("viewers", 2).pool_updater("work", 2);
    let declared = declared.after(["viewers"]).updater("mark").after(["work"]);
    let attached = attach(&declared.build().unwrap());
    let (mut one, mut other) =
        (attached.shared_producer().unwrap(), attached.shared_producer().unwrap());
    let mut viewer = attached.subscribe("viewers", StartAt::Now).unwrap();
    let mut worker = attached.pool_updater("work").unwrap();
    let mut mark = attached.updater("mark").unwrap();
    for seq in 0..40u64 {
        let tx = if seq.is_multiple_of(2) { &mut one } else { &mut other };
        if seq.is_multiple_of(5) {
            drop(tx.claim_n(1).unwrap()); // given up
        }
        tx.publish(|block| block.fill(seq as u8)).unwrap();
        assert_eq!(viewer.poll(8, |block, _| assert_eq!(block, [seq as u8; 32])).unwrap(), 1);
        loop {
            match worker.try_batch(1) {
                Ok(mut batch) => {
                    batch.get_mut(0).unwrap()[0] += 1;
                    break batch.release();
                }
                Err(BatchError::Unavailable | BatchError::Contended) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let mut batch = mark.batch(1).unwrap();
        let block = batch.get_mut(0).unwrap();
        assert_eq!((block[0], block[31]), (seq as u8 + 1, seq as u8));
        batch.release();
    }
    drop((one, other));
    assert!(matches!(mark.batch(1).map(drop), Err(WaitError::Closed)));
}

/// Raw handles give the right positions and addresses, even across the ring's end.
#[test]
fn raw_handles_go_by_position() {
    let _watched = watched();
    let attached = attach(&blocks(4, 8, 8).reader("all").build().unwrap());
    let mut tx = attached.producer().unwrap().into_raw();
    let mut all = attached.reader("all").unwrap().into_raw();
    assert!(matches!(all.available(4), Err(BatchError::Unavailable)));
    assert!(matches!(all.wait_by(4, Instant::now()), Err(BatchError::TimedOut(_))));
    let mut next = 0;
    for run in [3, 3, 4, 1] {
        let first = tx.try_claim(run).unwrap();
        assert_eq!(first, next);
        assert!(matches!(tx.try_claim(1), Err(ClaimError::Held { .. })));
        let stretches = tx.stretches();
        assert_eq!(stretches[0].count + stretches[1].count, run);
        for stretch in stretches {
            for block in 0..stretch.count {
                let value = stretch.first + block as u64;
                // SAFETY: the block is claimed, and aligned to 8.
                unsafe { stretch.address.add(block * stretch.stride).cast().write(value) };
            }
        }
        tx.done(first).unwrap();
        assert_eq!(tx.stretches().iter().map(|it| it.count).sum::<usize>(), run - 1);
        if run > 1 {
            tx.done(first + run as u64 - 1).unwrap();
        }
        assert!(tx.done(first).is_err());
        let found = all.wait_by(8, soon()).unwrap();
        assert_eq!((found.first_seq(), found.len()), (next, run));
        for stretch in all.stretches() {
            for block in 0..stretch.count {
                // SAFETY: the block is lent, and aligned to 8.
                let value: u64 =
                    unsafe { stretch.address.add(block * stretch.stride).cast().read() };
                assert_eq!(value, stretch.first + block as u64);
            }
        }
        all.done(next + run as u64 - 1).unwrap();
        assert_eq!(all.stretches().map(|stretch| stretch.count), [0, 0]);
        next += run as u64;
    }
    tx.try_claim(2).unwrap();
    tx.give_up();
    drop(tx);
    assert!(matches!(all.available(1), Err(BatchError::Wait(WaitError::Closed))));
}

fn role_blocks() {
    let attached = attach(&Segment::<Blocks>::open(value("NAME")).unwrap());
    let mut all = attached.updater("all").unwrap();
    let mut batch = all.batch(2).unwrap();
    batch.get_mut(0).unwrap().fill(0xFF);
    say(batch.len());
    listen();
}

/// The successor of a killed stage is lent the same blocks again, and learns that they may be
/// half-written.
#[test]
fn the_next_of_a_killed_stage_is_lent_its_blocks_again() {
    let _watched = watched();
    let name = Name::new();
    let segment = Segment::<Blocks>::create(&name.0).capacity(4).block(1000, 8).updater("all");
    let attached = attach(&segment.build().unwrap());
    let mut tx = attached.producer().unwrap();
    (0..3).for_each(|seq| _ = tx.publish(|block| fill(block, seq)).unwrap());
    let mut role = Role::start("blocks", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "2");
    role.kill();
    let mut all = common::oracle::retry(|| attached.updater("all")).unwrap();
    let suspects = all.suspects();
    assert_eq!((all.redelivered(), suspects.len()), ((0..2).into(), 2));
    let batch = all.batch(8).unwrap();
    assert_eq!(batch.get(0).unwrap(), [0xFF; 1000]);
    (1..3).for_each(|seq| check(batch.get(seq as usize).unwrap(), seq, 1000));
    // The batch is not released.
    assert_eq!(all.pass_over_suspects().unwrap(), 2);
    assert_eq!(all.next_seq(), 2);
}

fn role_worker() {
    let attached = attach(&Segment::<Blocks>::open(value("NAME")).unwrap());
    let mut worker = attached.pool_updater("work").unwrap();
    let mut batch = worker.batch(1).unwrap();
    batch.get_mut(0).unwrap()[..8].fill(0xFF);
    say(batch.len());
    listen();
}

/// A worker that continues a killed worker's chunk learns which of the chunk's blocks may be
/// half-written. This holds for batches and for raw handles, even if the chunk ends at 2^64.
#[test]
fn a_colleague_of_a_killed_worker_is_told_which_blocks_may_be_half_written() {
    let _watched = watched();
    for (first, raw) in [(7, false), (7, true), (u64::MAX, false), (u64::MAX, true)] {
        let name = Name::new();
        let segment = Segment::<Blocks>::create(&name.0).capacity(4).block(16, 8);
        let segment = segment.pool_updater("work", 2).first_seq(first).build().unwrap();
        let attached = attach(&segment);
        let mut tx = attached.producer().unwrap();
        tx.publish(|block| block.fill(1)).unwrap();
        let mut role = Role::start("worker", &[("NAME", &name.0)]);
        assert_eq!(role.hear(), "1");
        let mut other = attached.pool_updater("work").unwrap();
        role.kill();
        let expected = SeqRange::from(first..first.wrapping_add(1));
        if raw {
            let mut other = other.into_raw();
            assert!(other.redelivered().is_empty());
            assert_eq!(
                other.wait_by(8, Instant::now() + Duration::from_secs(60)).unwrap(),
                expected
            );
            assert_eq!(other.redelivered(), expected);
            other.done(first).unwrap();
            tx.publish(|block| block.fill(2)).unwrap();
            assert_eq!(
                other.wait_by(8, Instant::now() + Duration::from_secs(60)).unwrap().len(),
                1
            );
            assert!(other.redelivered().is_empty());
        } else {
            let batch = other.batch(8).unwrap();
            assert_eq!((batch.first_seq(), batch.len()), (first, 1));
            assert!(batch.redelivered() == expected && batch.redelivered().contains(first));
            assert_eq!(
                batch.get(0).unwrap()[..9],
                [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]
            );
            batch.release();
            tx.publish(|block| block.fill(2)).unwrap();
            let batch = other.batch(8).unwrap();
            assert!(batch.redelivered().is_empty() && batch.len() == 1);
            batch.release();
        }
    }
}

/// A range of three redelivered events, or of three claimed slots, has all three positions even if
/// it reaches across 2^64.
#[test]
fn ranges_of_positions_reach_across_the_wrap() {
    let _watched = watched();
    let first = u64::MAX - 1;
    let expect = |range: SeqRange| {
        assert_eq!((range.len(), range.is_empty(), range.end_seq()), (3, false, 1));
        assert!(range.contains(first) && range.contains(0) && !range.contains(1));
        assert_eq!(range.collect::<Vec<_>>(), [first, u64::MAX, 0]);
    };
    let segment = Segment::<u64>::create_memfd("wrap").capacity(8).first_seq(first);
    let segment = segment.reader("reads").shard_reader("shard", 1, |number| number);
    let segment = segment.updater("writes").after(["reads", "shard"]).build().unwrap();
    let attached = attach(&segment);
    let mut tx = attached.producer().unwrap();
    (0..5).for_each(|number| _ = tx.publish(|slot| *slot = number).unwrap());
    let mut reader = attached.reader("reads").unwrap();
    assert!(reader.redelivered().is_empty());
    assert_eq!(reader.batch(3).unwrap().len(), 3); // not released
    drop(reader);
    expect(attached.reader("reads").unwrap().redelivered());
    let copies = segment.attach_copies().unwrap();
    expect(copies.reader("reads").unwrap().redelivered());
    let mut shard = attached.shard_reader("shard", 0).unwrap();
    assert_eq!(shard.batch(3).unwrap().len(), 3);
    drop(shard);
    let mut shard = attached.shard_reader("shard", 0).unwrap();
    expect(shard.redelivered());
    assert_eq!(shard.poll(8, |_, _| ()).unwrap(), 5);
    assert_eq!(attached.reader("reads").unwrap().poll(8, |_, _| ()).unwrap(), 5);
    let mut writer = attached.updater("writes").unwrap();
    assert_eq!(writer.batch(3).unwrap().len(), 3);
    drop(writer);
    let mut writer = attached.updater("writes").unwrap();
    expect(writer.suspects());
    assert_eq!(writer.batch(8).unwrap().suspects(), 3);
    expect(writer.into_raw().suspects());

    let declared = blocks(8, 16, 8).first_seq(first).updater("writes").build().unwrap();
    let attached = attach(&declared);
    let mut tx = attached.producer().unwrap();
    (0..5).for_each(|seq| _ = tx.publish(|block| fill(block, seq)).unwrap());
    let mut writer = attached.updater("writes").unwrap();
    assert_eq!(writer.batch(3).unwrap().len(), 3);
    drop(writer);
    let mut writer = attached.updater("writes").unwrap();
    expect(writer.suspects());
    assert_eq!(writer.batch(8).unwrap().suspects(), 3);
    let raw = writer.into_raw();
    expect(raw.redelivered());
    expect(raw.suspects());

    let declared = Segment::<Messages>::create_memfd("wrap").capacity(8).first_seq(first);
    let attached = attach(&declared.reader("all").build().unwrap());
    let mut tx = attached.producer().unwrap();
    (0..3).for_each(|kind| _ = tx.publish(kind, b"one cell").unwrap());
    let mut reader = attached.reader("all").unwrap();
    assert_eq!(reader.batch().unwrap().iter().count(), 3);
    drop(reader);
    expect(attached.reader("all").unwrap().redelivered());

    let name = Name::new();
    let segment = Segment::<u64>::create(&name.0).capacity(8).first_seq(first).producers(2);
    let attached = attach(&segment.reader("all").build().unwrap());
    let mut tx = attached.shared_producer().unwrap();
    let claim = tx.claim_n(3).unwrap();
    expect(inspect(&name.0).unwrap().producer_seats[0].events.clone().unwrap());
    claim.publish();
}

/// Builders refuse wrong declarations, and programs refuse segments of other contents.
#[test]
fn wrong_blocks_are_refused() {
    let _watched = watched();
    for (size, align, said) in [
        (0, 8, "has no bytes: "),
        (12, 8, "12 bytes, is no multiple of its alignment, 8: take 16, or"),
        (3, 3, "cannot be 3: take a power of two"),
        (8, 0, "cannot be 0: take a power of two"),
        (8, 8192, "cannot be 8192: take a power of two, 1 to 4096"),
    ] {
        let refused = problem(blocks(4, size as usize, align as usize).reader("all").build());
        let found = |problem: &Problem| match problem {
            Problem::EventSize { size: found, align: aligned } => {
                (*found, *aligned) == (size, align)
            }
            _ => false,
        };
        assert!(found(refused.of()), "{}", refused.message);
        assert!(refused.message.contains(said), "{}", refused.message);
    }
    let long = "x".repeat(65);
    for name in ["", "a\nb", &long] {
        let refused = problem(blocks(4, 8, 8).type_name(name, 1).reader("all").build());
        assert!(matches!(refused.of(), Problem::TypeName { .. }), "{}", refused.message);
    }
    let messages = || Segment::<Messages>::create_memfd("messages").capacity(4);
    for declared in [messages().updater("all"), messages().pool_reader("all", 2)] {
        let refused = problem(declared.build());
        assert!(refused.message.contains("stage `all`"), "{}", refused.message);
    }
    let (of_blocks, of_messages, of_numbers) = (Name::new(), Name::new(), Name::new());
    let made = (
        Segment::<Blocks>::create(&of_blocks.0).capacity(4).block(8, 8).reader("all").build(),
        Segment::<Messages>::create(&of_messages.0).capacity(4).reader("all").build(),
        Segment::<u64>::create(&of_numbers.0).capacity(4).reader("all").build(),
    );
    let (blocks, messages, numbers) = (made.0.unwrap(), made.1.unwrap(), made.2.unwrap());
    drop((attach(&blocks), attach(&messages), attach(&numbers)));
    let refusals = [
        (problem(Segment::<u64>::open(&of_blocks.0)), "holds blocks"),
        (problem(Segment::<u64>::open(&of_messages.0)), "holds messages"),
        (problem(Segment::<Blocks>::open(&of_numbers.0)), "holds events of a type"),
        (problem(Segment::<Blocks>::open(&of_messages.0)), "holds messages"),
        (problem(Segment::<Messages>::open(&of_blocks.0)), "asks for messages"),
    ];
    for (refused, of) in &refusals {
        assert!(matches!(refused.of(), Problem::EventType { property: "kind", .. }));
        assert!(refused.message.contains(of), "{}", refused.message);
    }
    let summary = inspect(&of_messages.0).unwrap();
    assert_eq!((summary.contents, summary.event_size), ("messages", 64));
    for name in [of_blocks, of_messages, of_numbers] {
        slipring_shm::remove(&name.0).unwrap();
    }
}

fn messages(capacity: u64) -> Builder<Messages> {
    Segment::<Messages>::create_memfd("messages").capacity(capacity)
}

fn message(number: usize) -> Vec<u8> {
    let len = number * 37 % 500;
    (0..len).map(|offset| byte(number as u64, offset)).collect()
}

/// Messages of all lengths up to several cells come whole, in order, and padded at the ring's end.
#[test]
fn messages_of_any_length_come_whole_and_in_order() {
    let _watched = watched();
    let attached =
        attach(&messages(16).reader("all").reader("again").after(["all"]).build().unwrap());
    let mut tx = attached.producer().unwrap();
    let mut readers = ["all", "again"].map(|name| attached.reader(name).unwrap());
    for len in 0..=tx.max_len() {
        let sent: Vec<u8> = (0..len).map(|offset| byte(len as u64, offset)).collect();
        let seq = loop {
            match tx.try_publish(len as u32, &sent) {
                Ok(seq) => break seq,
                // The readers release the padding.
                Err(MessageError::Claim(ClaimError::Gated { .. })) => {
                    readers
                        .iter_mut()
                        .for_each(|reader| assert_eq!(reader.poll(|_| ()).unwrap(), 0));
                }
                Err(error) => panic!("{error}"),
            }
        };
        let cells = (len + 8).div_ceil(64) as u64;
        assert!(seq % 16 + cells <= 16, "the cells of a message lie side by side");
        for reader in &mut readers {
            let batch = reader.try_batch().unwrap();
            let mut all = batch.iter();
            let one = all.next().unwrap();
            assert_eq!((one.seq, one.kind, one.bytes), (seq, len as u32, &sent[..]));
            assert!(all.next().is_none());
            drop(all);
            batch.release();
        }
    }
    assert_eq!(tx.max_len(), 16 * 64 - 8);
    let error = tx.publish(0, &[0; 16 * 64 - 7]).unwrap_err();
    assert!(matches!(error, MessageError::TooLong { bytes: 1017, most: 1016 }), "{error}");
    assert!(error.to_string().contains("larger capacity"), "{error}");
    drop(tx);
    for reader in &mut readers {
        assert!(matches!(reader.batch().map(drop), Err(WaitError::Closed)));
    }
}

/// A full ring has no room for a message. A claim that is dropped or forgotten leaves nothing in
/// the ring.
#[test]
fn a_full_ring_gates_messages() {
    let _watched = watched();
    let attached = attach(&messages(4).reader("all").build().unwrap());
    let (mut tx, mut all) = (attached.producer().unwrap(), attached.reader("all").unwrap());
    assert!(matches!(all.try_batch().map(drop), Err(BatchError::Unavailable)));
    assert!(matches!(all.batch_by(Instant::now()).map(drop), Err(BatchError::TimedOut(_))));
    drop(tx.claim(100).unwrap());
    std::mem::forget(tx.claim(100).unwrap());
    assert_eq!(tx.publish(1, &[1; 150]).unwrap(), 0);
    let gated = tx.try_publish(2, &[2; 100]);
    assert!(matches!(gated, Err(MessageError::Claim(ClaimError::Gated { .. }))), "{gated:?}");
    let late = tx.publish_by(soon(), 2, &[2; 100]);
    assert!(matches!(late, Err(MessageError::Claim(ClaimError::TimedOut(_)))), "{late:?}");
    assert_eq!(all.poll(|message| assert_eq!(message.kind, 1)).unwrap(), 1);
    // The cell before the ring's end is padding.
    assert_eq!(tx.publish(2, &[2; 100]).unwrap(), 4);
    assert_eq!(all.poll(|message| assert_eq!((message.kind, message.seq), (2, 4))).unwrap(), 1);
    assert_eq!((all.next_seq(), all.poll(|_| ()).unwrap()), (6, 0));
}

/// Two producers, each in a thread, do not tear each other's messages.
#[test]
fn messages_of_several_producers_come_whole() {
    let _watched = watched();
    const COUNT: usize = 3_000;
    let attached = attach(&messages(32).producers(2).reader("all").build().unwrap());
    let mut all = attached.reader("all").unwrap();
    let producers = [0, 1].map(|_| attached.shared_producer().unwrap());
    std::thread::scope(|scope| {
        for (of, mut tx) in producers.into_iter().enumerate() {
            scope.spawn(move || {
                for number in 0..COUNT {
                    tx.publish((number * 2 + of) as u32, &message(number)).unwrap();
                }
            });
        }
        let mut next = [0; 2];
        let count = all.for_each(|it| {
            let (of, number) = (it.kind as usize % 2, it.kind as usize / 2);
            assert_eq!(number, next[of], "in the order of each producer");
            assert_eq!(it.bytes, message(number));
            next[of] += 1;
        });
        assert_eq!(count.unwrap(), 2 * COUNT as u64);
    });
}

/// One of several producers can publish a message that takes all cells of the ring, no matter where
/// the previous claim ended.
#[test]
fn a_message_of_several_producers_may_fill_the_ring() {
    let _watched = watched();
    for before in 0..8 {
        let attached = attach(&messages(8).producers(2).reader("all").build().unwrap());
        let mut tx = attached.shared_producer().unwrap();
        let mut all = attached.reader("all").unwrap();
        for number in 0..before {
            tx.publish(number, b"one cell").unwrap();
            assert_eq!(all.poll(|message| assert_eq!(message.kind, number)).unwrap(), 1);
        }
        let sent: Vec<u8> = (0..tx.max_len()).map(|offset| byte(7, offset)).collect();
        let mut tries = 0;
        while let Err(error) = tx.try_publish(9, &sent) {
            assert!(matches!(error, MessageError::Claim(ClaimError::Gated { .. })), "{error}");
            assert_eq!(all.poll(|_| ()).unwrap(), 0);
            tries += 1;
            assert!(tries < 4, "{before}: the message never finds its place");
        }
        let seen = all.poll(|it| assert_eq!((it.kind, it.bytes), (9, &sent[..])));
        assert_eq!(seen.unwrap(), 1, "behind {before} cells");
        drop(all); // flushes its counts
        let given_up = attached.report().unwrap().stages()[0].tombstones;
        assert_eq!(given_up, u64::from(8 - before) % 8, "only the cells before the ring's end");
    }
}

/// Producers make progress even if each of their messages fills the ring, whether the producer
/// beside them sends such messages, too, or short ones. A message gives up at most the cells
/// between its claim and the ring's end.
#[test]
fn messages_that_fill_the_ring_come_beside_others() {
    let _watched = watched();
    const COUNT: usize = 300;
    let attached = attach(&messages(8).producers(3).reader("all").build().unwrap());
    let mut all = attached.reader("all").unwrap();
    let producers = [0, 1, 2].map(|_| attached.shared_producer().unwrap());
    std::thread::scope(|scope| {
        for (of, mut tx) in producers.into_iter().enumerate() {
            scope.spawn(move || {
                let len = if of == 2 { 8 } else { tx.max_len() };
                for number in 0..COUNT {
                    let bytes: Vec<u8> =
                        (0..len).map(|offset| byte(number as u64, offset)).collect();
                    tx.publish((number * 3 + of) as u32, &bytes).unwrap();
                }
            });
        }
        let mut next = [0; 3];
        let count = all.for_each(|it| {
            let (of, number) = (it.kind as usize % 3, it.kind as usize / 3);
            assert_eq!(number, next[of], "in the order of each producer");
            assert!(it.bytes.iter().enumerate().all(|(at, &have)| have == byte(number as u64, at)));
            next[of] += 1;
        });
        assert_eq!(count.unwrap(), 3 * COUNT as u64);
    });
    drop(all); // flushes its counts
    // A message that fills the ring begins at the ring's first slot, and leaves the next position
    // at that slot. Only a short message moves the next position away from there. So at most 7
    // cells are given up for each short message.
    let given_up = attached.report().unwrap().stages()[0].tombstones;
    assert!(given_up <= 7 * COUNT as u64, "{given_up} cells were given up");
}

/// A reader that joins a tap begins between two messages.
#[test]
fn a_tap_of_messages() {
    let _watched = watched();
    let attached = attach(&messages(16).reader("all").tap("viewers", 2).build().unwrap());
    let (mut tx, mut all) = (attached.producer().unwrap(), attached.reader("all").unwrap());
    let mut viewers = Vec::new();
    for number in 0..60 {
        if number % 25 == 3 {
            viewers.push((attached.subscribe("viewers", NextMessage).unwrap(), number));
        }
        tx.publish(number as u32, &message(number)).unwrap();
        all.poll(|it| assert_eq!(it.bytes, message(number))).unwrap();
        for (viewer, next) in &mut viewers {
            let seen = viewer.poll(|it| {
                assert_eq!((it.kind as usize, it.bytes), (*next, &message(*next)[..]));
                *next += 1;
            });
            assert_eq!(seen.unwrap(), 1);
        }
        if number == 40 {
            drop(viewers.remove(0));
        }
    }
}

fn role_messages() {
    let attached = attach(&Segment::<Messages>::open(value("NAME")).unwrap());
    let mut tx = attached.producer().unwrap();
    let mut claim = tx.claim(300).unwrap();
    claim.fill(0xEE);
    say("claimed");
    listen();
}

/// If a producer is killed while it writes a message, no part of the message is seen.
#[test]
fn nothing_of_a_killed_producers_message_is_seen() {
    let _watched = watched();
    let name = Name::new();
    let segment = Segment::<Messages>::create(&name.0).capacity(8).reader("all").build().unwrap();
    let attached = attach(&segment);
    let mut all = attached.reader("all").unwrap();
    let mut tx = attached.producer().unwrap();
    tx.publish(1, &message(1)).unwrap();
    drop(tx);
    let mut role = Role::start("messages", &[("NAME", &name.0)]);
    // The first producer has closed the ring, so the rest of the test needs a new segment.
    drop((role, all, attached));
    slipring_shm::remove(&name.0).unwrap();

    let segment = Segment::<Messages>::create(&name.0).capacity(8).reader("all").build().unwrap();
    let attached = attach(&segment);
    all = attached.reader("all").unwrap();
    role = Role::start("messages", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "claimed");
    role.kill();
    let mut tx = common::oracle::retry(|| attached.producer()).unwrap();
    assert_eq!(tx.publish(7, &message(9)).unwrap(), 0);
    assert_eq!(all.poll(|it| assert_eq!((it.kind, it.bytes), (7, &message(9)[..]))).unwrap(), 1);
}

/// A message header that contradicts the message's cells is reported as damage. The reader does not
/// panic, and reads no byte beyond these cells.
#[test]
fn a_false_header_is_damage() {
    let _watched = watched();
    for (length, kind) in [(1, u32::MAX), (0, u32::MAX), (57, 0), (u32::MAX, 0), (u32::MAX, 2)] {
        let attached = attach(&messages(8).reader("all").build().unwrap());
        let (mut tx, mut all) = (attached.producer().unwrap(), attached.reader("all").unwrap());
        tx.publish(0, b"one cell").unwrap();
        let head = attached.participation().checked().areas.events.at;
        let cell = attached.participation().mapping().address(head, 0).unwrap().cast::<AtomicU32>();
        // SAFETY: the address is that of the first cell, which is published, and which no handle is
        // lent.
        unsafe {
            cell.as_ref().store(length, Relaxed);
            cell.add(1).as_ref().store(kind, Relaxed);
        }
        let seen = all.poll(|message| assert!(message.bytes.len() <= 56));
        match length {
            0 | 1 => assert_eq!(seen.unwrap(), 1, "any kind, and any length that fits"),
            _ => assert!(matches!(seen, Err(WaitError::Damaged)), "{length}: {seen:?}"),
        }
    }
}
