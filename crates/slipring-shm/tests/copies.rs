//! Tests of processes that copy events while other processes use the same segment: one that lends
//! events, one that is killed, one that shortens the file, and one that stores any bytes anywhere
//! in the file.
//!
//! No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::*;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use slipring::{
    errors::{ClaimError, WaitError},
    handles::StartAt,
    markers::Joined,
    segment::{Seated, SeatedShard, SeatedWorker},
};
use slipring_shm::{
    Attached, Copies, OnDeath,
    copies::CopyingConsumer,
    errors::{FileProblem, Problem},
    summaries::Liveness,
};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[
        ("lender", role_lender),
        ("scribbler", role_scribbler),
        ("copier", role_copier),
        ("victim", role_victim),
        ("shortened", role_shortened),
    ]);
}

const CAPACITY: u64 = 16;

fn block(seq: u64) -> Block {
    Block { seq, value: [seq.wrapping_mul(3), !seq, seq.rotate_left(20)] }
}

fn is_whole(event: &Block, seq: u64) -> bool {
    (event.seq, event.value) == (seq, block(seq).value)
}

fn copies(name: &str) -> Attached<Copies<Block>> {
    Test::open(name).unwrap().attach_copies().unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_micros(200)
}

/// Publishes events. This process attaches with `attach`, so its handles lend.
fn role_lender() {
    let lent = attach(&Test::open(value("name")).unwrap());
    let mut tx = lent.producer().unwrap();
    for seq in 0..value("events").parse().unwrap() {
        tx.publish(|slot| *slot = block(seq)).unwrap();
    }
}

/// A copying process reads the events of a lending process, whole and in order.
#[test]
fn copies_read_what_another_process_lends() {
    let _watched = watched();
    let name = Name::new();
    let made = Test::create(&name.0).capacity(CAPACITY).reader("all").pool_reader("pool", 2);
    let made = made.build().unwrap();
    let copies = made.attach_copies().unwrap();
    let (mut all, mut pool) = (copies.reader("all").unwrap(), copies.pool_reader("pool").unwrap());
    let lender = Role::start("lender", &[("name", &name.0), ("events", "3000")]);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let whole = |event: Block, seq: u64| assert!(is_whole(&event, seq));
            assert_eq!(pool.for_each(whole).unwrap(), 3000);
        });
        let mut next = 0;
        let count = all.for_each(|event, seq| {
            assert!(seq == next && is_whole(&event, seq));
            next += 1;
        });
        assert_eq!(count.unwrap(), 3000);
    });
    assert!(lender.end().success());
}

fn role_victim() {
    let copies = copies(&value("name"));
    let mut all = copies.reader("all").unwrap();
    let mut events = [block(0), block(0), block(0)];
    assert_eq!(all.read_batch(&mut events[..2]).unwrap(), (0, 2));
    assert_eq!(all.read_batch(&mut events).unwrap(), (2, 3));
    say("read");
    listen();
}

/// The successor of a killed process gets the events that the dead one had read and not released,
/// whether it lends or copies.
#[test]
fn what_a_killed_process_has_not_released_comes_again() {
    let _watched = watched();
    for lends in [false, true] {
        let name = Name::new();
        let made = Test::create(&name.0).capacity(CAPACITY).reader("all").on_death(OnDeath::Tell);
        let made = made.notice(Duration::from_millis(2)).build().unwrap();
        let copies = made.attach_copies().unwrap();
        let mut tx = copies.producer().unwrap();
        (0..5).for_each(|seq| _ = tx.publish(&block(seq)).unwrap());
        let mut victim = Role::start("victim", &[("name", &name.0)]);
        assert_eq!(victim.hear(), "read");
        victim.kill();
        until(|| copies.liveness(2).unwrap() == Liveness::Dead);
        (5..18).for_each(|seq| _ = tx.publish(&block(seq)).unwrap());
        // The dead process holds up the ring.
        assert!(matches!(tx.publish(&block(18)), Err(WaitError::PeerDead(_))));
        if lends {
            let lent = attach(&made);
            let mut all = lent.reader("all").unwrap();
            assert_eq!(all.redelivered(), (2..5).into());
            assert!(is_whole(&all.batch(1).unwrap()[0], 2));
        } else {
            let mut all = copies.reader("all").unwrap();
            let (event, seq) = all.next().unwrap();
            assert!(all.redelivered() == (2..5).into() && seq == 2 && is_whole(&event, 2));
        }
    }
}

fn role_shortened() {
    let copies = copies(&value("name"));
    let mut tx = copies.producer().unwrap();
    say("attached");
    listen();
    let _ = tx.publish_by(soon(), &block(0));
    say("published");
}

/// There is one documented exception: if the file is shortened, SIGBUS ends any process that uses
/// the file. A memfd cannot be shortened.
#[test]
fn a_shortened_file_ends_the_process_by_sigbus() {
    let _watched = watched();
    let name = Name::new();
    let made = Test::create(&name.0).capacity(CAPACITY).reader("all").build().unwrap();
    let mut role = Role::start("shortened", &[("name", &name.0)]);
    assert_eq!(role.hear(), "attached");
    let file = OpenOptions::new().write(true).open(name.path()).unwrap();
    file.set_len(4096).unwrap();
    role.tell("go on");
    let status = role.wait();
    assert_eq!(status.signal(), Some(7), "SIGBUS: {status}");
    assert_problem!(made.attach_copies(), Problem::File(FileProblem::TooShort { bytes: 4096, .. }));

    let memfd = Test::create_memfd("sealed").capacity(CAPACITY).reader("all").build().unwrap();
    for length in [0, 4096, 1 << 30] {
        let fd = memfd.memfd().unwrap();
        assert!(rustix::fs::ftruncate(fd, length).is_err(), "{length}");
    }
}

/// Makes the ring with the graph that has this number in the test below.
fn graph(name: &str, number: usize) -> Test {
    let made = Test::create(name).capacity(CAPACITY).notice(Duration::from_millis(1));
    let made = match number {
        0 => made.updater("first").reader("last").after(["first"]),
        1 => made.producers(2).pool_updater("first", 2).reader("last").after(["first"]),
        2 => made.shard_updater("first", 2, |block| &block.seq).reader("last").after(["first"]),
        _ => made.producers(2).tap("first", 3).reader("last").after(["first"]),
    };
    made.on_death(OnDeath::Fail).build().unwrap()
}

/// Stores any words anywhere in the file, against the protocol, until the parent kills it.
fn role_scribbler() {
    let path = std::mem::ManuallyDrop::new(Name(value("name"))).path();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address.
    let map = unsafe { mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, &file, 0) };
    let first = NonNull::new(map.unwrap().cast::<u64>()).unwrap();
    let words = length / 8;
    // SAFETY: the file is mapped until the process ends.
    let word = |at: usize| unsafe { AtomicU64::from_ptr(first.add(at).as_ptr()) };
    let begin: Vec<u64> = (0..words).map(|at| word(at).load(Relaxed)).collect();
    // Words that are not zero at first are in use, so most stores go to places near them.
    let used: Vec<usize> = (0..words).filter(|&at| begin[at] != 0).collect();
    let mut random = fastrand::Rng::with_seed(value("seed").parse().unwrap());
    // Handles use no word of the head after they have attached.
    let head = slipring_shm::parts::layout::HEAD as usize / 8;
    say("begun");
    for round in 0u64.. {
        let near = used[random.usize(..used.len())].saturating_sub(random.usize(..64));
        let at = match random.u8(..4) {
            0 => random.usize(..words),
            1 => random.usize(head..words),
            _ => near.max(head),
        };
        let now = word(at).load(Relaxed);
        word(at).store(
            match random.u8(..6) {
                0 => random.u64(..) >> random.u32(..64),
                1 => now.wrapping_add(random.u64(..9)).wrapping_sub(4),
                2 => now ^ 1 << random.u32(..64),
                3 => word(random.usize(..words)).load(Relaxed),
                4 => 0,
                _ => random.u64(..32),
            },
            Relaxed,
        );
        if round % 512 == 0 {
            // Restores the words behind the head to their first values. Otherwise the handles'
            // calls would soon fail at once.
            (head..words).for_each(|at| word(at).store(begin[at], Relaxed));
        }
        if random.u8(..64) == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Two counts of calls: the calls that returned or took an event, and the calls that did not.
static DONE: AtomicU32 = AtomicU32::new(0);
static REFUSED: AtomicU32 = AtomicU32::new(0);

fn count<T, E: std::fmt::Display>(result: Result<T, E>) {
    match result {
        Ok(_) => DONE.fetch_add(1, Relaxed),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            REFUSED.fetch_add(1, Relaxed)
        }
    };
}

/// Makes several calls of a stage's handle, and counts their results.
macro_rules! read {
    ($handle:expr) => {{
        let handle = &mut $handle;
        let mut events = [block(0), block(0), block(0)];
        count(handle.next_by(soon()).map(|(event, seq)| (event.seq, seq)));
        count(handle.try_next().map(|_| ()));
        count(handle.try_read_batch(&mut events));
        count(handle.read_batch_by(soon(), &mut events));
        handle.release();
    }};
}

fn write<S>(mut publish: impl FnMut(&[Block], Option<Instant>) -> Result<u64, S>)
where
    S: std::fmt::Display,
{
    count(publish(&[block(1)], None));
    count(publish(&[block(2), block(3)], Some(soon())));
}

/// Takes handles of all kinds, and calls them again and again. A call may fail, but nothing worse
/// may happen.
fn role_copier() {
    let (name, number): (_, usize) = (value("name"), value("graph").parse().unwrap());
    let copies = copies(&name);
    say("attached");
    listen();
    std::thread::scope(|scope| {
        let copies = &copies;
        scope.spawn(move || {
            for _ in 0..150 {
                if let Ok(mut tx) = copies.producer() {
                    for _ in 0..4 {
                        write(|events, deadline| match deadline {
                            Some(deadline) => tx.publish_batch_by(deadline, events),
                            None => tx.try_publish_batch(events),
                        });
                    }
                }
                if let Ok(mut tx) = copies.shared_producer() {
                    for _ in 0..4 {
                        write(|events, deadline| match deadline {
                            Some(deadline) => tx.publish_batch_by(deadline, events),
                            None => tx.try_publish_batch(events),
                        });
                    }
                    let _ = tx.remaining();
                }
            }
        });
        fn work<A: WorksOn>(mut handle: A) {
            (0..4).for_each(|_| handle.work());
        }
        for _ in 0..150 {
            let taken = match number {
                0 => copies.updater("first").map(work),
                1 => copies.pool_updater("first").map(work),
                2 => (0..2).try_for_each(|shard| copies.shard_updater("first", shard).map(work)),
                _ => copies.subscribe("first", StartAt::Oldest).map(work),
            };
            count(taken);
            count(copies.reader("last").map(work));
            let _ = copies.report().map(|report| report.to_string());
            let _ = copies.liveness(1);
        }
    });
    let another = Test::open(&name).and_then(|segment| segment.attach_copies());
    let _ = another.map_err(|error| assert!(!error.to_string().is_empty()));
    say(format!("{} {}", DONE.load(Relaxed), REFUSED.load(Relaxed)));
    drop(copies);
}

/// The calls that every stage's handle has.
trait WorksOn {
    fn work(&mut self);
}

macro_rules! works {
    ($($access:ident $delivery:ty),*) => {
        $(impl WorksOn for CopyingConsumer<Block, slipring::markers::$access, $delivery> {
            fn work(&mut self) {
                read!(*self);
            }
        })*
    };
}

works!(
    Reading Seated, Updating Seated, Updating SeatedWorker,
    Updating SeatedShard, Reading Joined
);

/// While another process stores any bytes anywhere in the file, the worst that calls of a copying
/// process do is fail or return wrong events. The process then ends as it would have without these
/// stores.
#[test]
fn a_process_that_copies_survives_any_bytes() {
    let _watched = watched();
    for number in 0..4 {
        let name = Name::new();
        let _made = graph(&name.0, number);
        let (number, seed) = (number.to_string(), (number + 7).to_string());
        let values = [("name", name.0.as_str()), ("graph", &number), ("seed", &seed)];
        let mut copier = Role::start("copier", &values);
        assert_eq!(copier.hear(), "attached");
        let mut scribbler = Role::start("scribbler", &values);
        assert_eq!(scribbler.hear(), "begun");
        copier.tell("go on");
        let counts = copier.hear();
        println!("graph {number}: {counts} calls that gave or took events, and that failed");
        let status = copier.end();
        assert!(status.success(), "graph {number}: {status}");
        assert!(!counts.ends_with(" 0"), "no call has failed, so no byte was changed: {counts}");
        scribbler.kill();
    }
}

/// A copying process may still have to wait for room, or for a place that another handle has. A
/// call with a deadline ends by its deadline.
#[test]
fn a_call_with_a_deadline_ends_by_it() {
    let _watched = watched();
    let made = Test::create_memfd("full").capacity(2).reader("all").build().unwrap();
    let copies = made.attach_copies().unwrap();
    let mut tx = copies.producer().unwrap();
    tx.publish_batch(&[block(0), block(1)]).unwrap();
    assert!(matches!(tx.publish_by(soon(), &block(2)), Err(ClaimError::TimedOut(_))));
    assert_problem!(copies.producer(), Problem::Taken { .. });
    assert_problem!(copies.updater("all"), Problem::Access { .. });
    assert_problem!(copies.reader("other"), Problem::NoStage { .. });
    assert_problem!(copies.shared_producer(), Problem::Producers { declared: 1 });
    assert_problem!(copies.subscribe("all", StartAt::Now), Problem::Delivery { .. });
    assert_problem!(copies.shard_reader("all", 0), Problem::Delivery { .. });
    assert_problem!(copies.pool_reader("all"), Problem::Delivery { .. });
}
