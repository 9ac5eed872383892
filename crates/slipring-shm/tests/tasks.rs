//! Tasks of real processes wait for events, for room, for deaths and for the end, and do not poll
//! while they wait.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use common::oracle::{Numbered, join, retry};
use common::trace::{fork, wait};
use common::*;
use slipring::errors::WaitError;
use slipring_shm::{Attached, OnDeath, Producer, Reader, Segment};

/// The name of the threads that sleep for tasks.
const THREAD: &str = "slipring-tasks";

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[
        ("read", role_read),
        ("publish", role_publish),
        ("fork", role_fork),
        ("leave", role_leave),
    ]);
}

thread_local! {
    /// Number of polls by `block_on`.
    static POLLS: Cell<usize> = const { Cell::new(0) };
}

/// Runs a future on this thread, and counts the polls.
fn block_on<F: Future>(future: F) -> F::Output {
    let (value, polls) = block_on_counting(future);
    POLLS.set(POLLS.get() + polls);
    value
}

/// Returns the number of this process's threads.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Returns how many of this process's threads sleep for tasks. These threads are found by their
/// name.
fn named_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == THREAD).count()
}

fn make(name: &str, capacity: u64, on_death: OnDeath) -> Segment<Numbered> {
    let made = Segment::create(name).capacity(capacity).participants(8).reader("task");
    let made = made.on_death(on_death).producer_on_death(on_death);
    made.notice(Duration::from_millis(2)).build().unwrap()
}

fn open() -> Attached<Numbered> {
    join(&Segment::open(value("NAME")).unwrap())
}

/// Reads to the end as a task, and reports the numbers of events and polls.
fn role_read() {
    let me = open();
    let mut reader = retry(|| me.reader("task")).unwrap();
    say("taken");
    let mut next = 0;
    let ended = block_on(read(&mut reader, &mut next));
    say(format!("{next} {ended}"));
    say(POLLS.get());
}

async fn read(reader: &mut Reader<Numbered>, next: &mut u64) -> WaitError {
    loop {
        match reader.batch_async(8).await {
            Ok(batch) => {
                for event in batch.iter() {
                    assert_eq!(event.seq, *next);
                    *next += 1;
                }
                batch.release();
            }
            Err(ended) => return ended,
        }
    }
}

/// Publishes, as a task, the range of positions that each line names. Ends at the line `close`.
fn role_publish() {
    let me = open();
    let mut tx = retry(|| me.producer()).unwrap();
    say("taken");
    while let Some((from, to)) = listen().split_once(' ') {
        block_on(publish(&mut tx, from.parse().unwrap()..to.parse().unwrap()));
        say("published");
    }
}

async fn publish(tx: &mut Producer<Numbered>, positions: Range<u64>) {
    for seq in positions {
        assert_eq!(tx.publish_async(|slot| slot.fill(seq, 0)).await.unwrap(), seq);
    }
}

/// Both processes run tasks, and the ring is small, so there are many wake-ups in both directions.
#[test]
fn tasks_of_two_processes_hand_every_event_over() {
    let _watched = watched();
    for capacity in [1, 4] {
        let name = Name::new();
        let _segment = make(&name.0, capacity, OnDeath::Tell);
        let values = [("NAME", name.0.as_str())];
        let mut reader = Role::start("read", &values);
        let mut publisher = Role::start("publish", &values);
        assert_eq!((reader.hear(), publisher.hear()), ("taken".into(), "taken".into()));
        publisher.tell("0 3000");
        assert_eq!(publisher.hear(), "published");
        publisher.tell("close");
        let ended = reader.hear();
        assert!(ended.starts_with("3000 "), "{ended}");
        assert!(publisher.end().success() && reader.end().success());
    }
}

/// A task that waits is not polled while nothing happens, although many notices pass.
#[test]
fn a_waiting_task_of_another_process_is_polled_only_for_an_event() {
    let _watched = watched();
    let name = Name::new();
    let segment = make(&name.0, 4, OnDeath::Tell);
    let mut role = Role::start("read", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "taken");
    let me = join(&segment);
    let mut tx = me.producer().unwrap();
    for seq in 0..3 {
        thread::sleep(Duration::from_millis(50));
        block_on(publish(&mut tx, seq..seq + 1));
    }
    drop(tx);
    assert!(role.hear().starts_with("3 "));
    let polls: u64 = role.hear().parse().unwrap();
    // Each wake-up causes one poll. A wake-up may come for an event that an earlier poll has
    // already found.
    assert!(polls <= 12, "{polls} polls");
    assert!(role.end().success());
}

#[test]
fn a_task_hears_of_a_killed_process() {
    let _watched = watched();
    let name = Name::new();
    let segment = make(&name.0, 4, OnDeath::Tell);
    let me = join(&segment);
    let mut reader = me.reader("task").unwrap();
    let mut publisher = Role::start("publish", &[("NAME", &name.0)]);
    assert_eq!(publisher.hear(), "taken");
    let pid = publisher.pid();
    publisher.tell("0 2");
    assert_eq!(publisher.hear(), "published");
    let killing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        publisher.kill();
    });
    let mut next = 0;
    let told = block_on(read(&mut reader, &mut next));
    let WaitError::PeerDead(dead) = told else { panic!("{told}") };
    assert_eq!((next, dead.pid), (2, pid));
    killing.join().unwrap();
    // The task learns of the next producer when that producer's event comes.
    let mut publisher = Role::start("publish", &[("NAME", &name.0)]);
    assert_eq!(publisher.hear(), "taken");
    publisher.tell("2 3");
    let event = block_on(async { reader.batch_async(8).await.map(|batch| batch[0].seq) });
    assert_eq!(event.unwrap(), 2);
    drop(publisher);
}

/// Takes a place and leaves it again and again. Checks how many threads for tasks exist while a
/// thread waits, while a task waits, and in the end.
fn role_leave() {
    let before = threads();
    for round in 0..20 {
        let me = open();
        let (number, mut reader) = (me.participant(), me.reader("task").unwrap());
        let now = std::time::Instant::now();
        assert!(reader.batch_by(1, now + Duration::from_millis(1)).is_err());
        assert_eq!(threads(), before, "a thread that waits needs no other thread");
        {
            let mut batch = pin!(reader.batch_async(1));
            let context = &mut Context::from_waker(Waker::noop());
            assert!(batch.as_mut().poll(context).is_pending());
            // In every other round, the handle is dropped while the thread is starting, when the
            // thread may not have its name yet.
            if round % 2 == 0 {
                until(|| named_threads() == 1);
            }
        }
        drop((me, reader));
        let path = Path::new("/dev/shm").join(format!("{}.slipring", value("NAME")));
        assert!(!held(&path, number), "the thread keeps the segment mapped");
        // The thread ends a moment after it has dropped the segment.
        until(|| threads() == before);
    }
    say("left");
}

/// The thread starts with the first task that waits, and ends with the last handle. Once the last
/// handle is dropped, the segment is unmapped and its lock is free.
#[test]
fn the_thread_goes_with_the_last_handle() {
    let _watched = watched();
    let name = Name::new();
    let _segment = make(&name.0, 4, OnDeath::Tell);
    let mut role = Role::start("leave", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "left");
    assert!(role.end().success());
}

/// A child that is forked while a task waits drops the future and the handle, and ends.
fn role_fork() {
    let me = open();
    let mut reader = retry(|| me.reader("task")).unwrap();
    let handle = &raw const reader;
    let mut batch = Box::pin(reader.batch_async(1));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(batch.as_mut().poll(context).is_pending());
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(1));
        let child = fork(|| {
            // The child of each round inherits the future and the handle.
            // SAFETY: the child ends without a further use of its copies.
            drop(unsafe { std::ptr::read(&batch) });
            // SAFETY: as above.
            drop(unsafe { handle.read() });
        });
        assert_eq!(wait(child), 0, "the child failed");
    }
    say("forked");
    drop(batch);
    drop((reader, me));
    say("ended");
}

#[test]
fn a_child_that_is_forked_while_a_task_waits_does_not_hang() {
    let _watched = watched();
    let name = Name::new();
    let _segment = make(&name.0, 4, OnDeath::Tell);
    let mut role = Role::start("fork", &[("NAME", &name.0)]);
    assert_eq!((role.hear(), role.hear()), ("forked".into(), "ended".into()));
    assert!(role.end().success());
}
