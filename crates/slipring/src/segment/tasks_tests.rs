//! Tests of waiting tasks. The words of their rings lie in memory that several rings share.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::for_tests::{Dead, Segment, stage};
use super::handles_for_tests::SegmentReader;
use super::*;
use crate::errors::WaitError;
use crate::processes::reactors::REFUSED;
use crate::tasks::{Selector, Waitable};
use crate::tasks_in_tests::{Unpark, block_on_counting};
use crate::wait::Wait;

fn poll<F: Future>(future: Pin<&mut F>, waker: &Arc<Unpark>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(waker.clone())))
}

/// Sleeps until `done` returns `true`.
fn until(done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "it never happens");
        thread::sleep(Duration::from_micros(200));
    }
}

/// A time long enough for a reactor's thread to fall asleep, and for some notices of 1 ms to pass.
const A_WHILE: Duration = Duration::from_millis(30);

fn one(capacity: usize, on_death: OnDeath) -> Segment {
    Segment::new(capacity, 0, vec![stage("only", &[], on_death)])
}

#[test]
fn a_task_that_waits_for_an_event_is_polled_when_it_comes() {
    let _watched = crate::watchdog::watched();
    let segment = one(8, OnDeath::Wait);
    let (mut tx, mut rx) = (segment.producer(1), segment.reader(2, 0));
    let publishing = thread::spawn(move || {
        thread::sleep(A_WHILE);
        tx.publish(|slot| *slot = 7).unwrap();
        tx
    });
    let (event, polls) = block_on_counting(async { rx.batch_async(1).await.map(|batch| batch[0]) });
    assert_eq!(event.unwrap(), 7);
    // A task that kept polling instead of sleeping would be polled thousands of times.
    assert!(polls <= 3, "{polls} polls");
    drop(publishing.join().unwrap());
}

#[test]
fn a_task_that_waits_for_room_is_polled_when_there_is_some() {
    let _watched = crate::watchdog::watched();
    let segment = one(2, OnDeath::Wait);
    let (mut tx, mut rx) = (segment.producer(1), segment.reader(2, 0));
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    let releasing = thread::spawn(move || {
        thread::sleep(A_WHILE);
        rx.poll(1, |_, _| ()).unwrap();
        rx
    });
    let (published, polls) = block_on_counting(tx.publish_async(|slot| *slot = 2));
    assert_eq!(published.unwrap(), 2);
    assert!(polls <= 3, "{polls} polls");
    drop(releasing.join().unwrap());
}

/// A task that always finds something to do wakes itself when it yields, so no reactor's thread
/// sleeps on its behalf.
#[test]
fn a_task_that_is_always_ready_gives_its_thread_back() {
    let _watched = crate::watchdog::watched();
    let segment = one(1024, OnDeath::Wait);
    let (mut tx, mut rx) = (segment.producer(1), segment.reader(2, 0));
    let unpark = Unpark::new();
    let mut pending = [0; 2];
    for _ in 0..1000 {
        if poll(pin!(tx.publish_async(|slot| *slot = 1)), &unpark).is_pending() {
            pending[0] += 1;
            assert!(poll(pin!(tx.publish_async(|slot| *slot = 1)), &unpark).is_ready());
        }
    }
    let mut read = 0;
    while read < 1000 {
        match poll(pin!(rx.batch_async(1)), &unpark) {
            Poll::Ready(batch) => batch.unwrap().release(),
            Poll::Pending => {
                pending[1] += 1;
                continue;
            }
        }
        read += 1;
    }
    assert!(pending.iter().all(|&pending| pending >= 1), "{pending:?}");
    assert_eq!(unpark.wakes(), pending.iter().sum());
    assert_eq!(Arc::strong_count(&unpark), 1, "a task was registered");
}

#[test]
fn a_waiting_task_hears_of_the_end() {
    let _watched = crate::watchdog::watched();
    for fails in [false, true] {
        let segment = one(8, OnDeath::Wait);
        let (tx, mut rx) = (segment.producer(1), segment.reader(2, 0));
        let ring = segment.attach(3);
        let ending = thread::spawn(move || {
            thread::sleep(A_WHILE);
            if fails {
                ring.control().halt();
            }
            drop(tx);
        });
        let (ended, polls) = block_on_counting(async { rx.batch_async(1).await.map(drop) });
        match fails {
            true => assert!(matches!(ended, Err(WaitError::Halted)), "{ended:?}"),
            false => assert!(matches!(ended, Err(WaitError::Closed)), "{ended:?}"),
        }
        assert!(polls <= 3, "{polls} polls");
        ending.join().unwrap();
    }
}

#[test]
fn a_waiting_task_hears_of_a_death() {
    let _watched = crate::watchdog::watched();
    // If a producer waits for room, its call returns the error about the reader's death.
    let segment = one(2, OnDeath::Tell);
    let (mut tx, rx) = (segment.producer(1), segment.reader(2, 0));
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(A_WHILE);
            segment.kill(2, rx);
        });
        let (told, polls) = block_on_counting(tx.publish_async(|slot| *slot = 2));
        let Err(WaitError::PeerDead(dead)) = told else { panic!("{told:?}") };
        assert_eq!((dead.stage.as_str(), dead.pid, dead.seq), ("only", 1002, 0));
        assert!(polls <= 3, "{polls} polls");
    });
    // A later call waits again, and returns the death again.
    let (told, _) = block_on_counting(tx.publish_async(|slot| *slot = 2));
    assert!(matches!(told, Err(WaitError::PeerDead(_))), "{told:?}");
    // If a reader waits for an event, its call returns the death of the producer.
    let segment = one(2, OnDeath::Tell);
    let (tx, mut rx) = (segment.producer(1), segment.reader(2, 0));
    segment.kill(1, tx);
    let (told, polls) = block_on_counting(async { rx.batch_async(1).await.map(drop) });
    assert!(matches!(told, Err(WaitError::PeerDead(_))), "{told:?}");
    assert!(polls <= 3, "{polls} polls");
}

/// The error names the event for which the batch waits.
#[test]
fn a_death_that_ends_a_batch_of_a_task_names_the_next_event() {
    let _watched = crate::watchdog::watched();
    for as_task in [false, true] {
        let segment =
            Segment::shared(8, 0, vec![stage("only", &[], OnDeath::Wait)], 2, OnDeath::Fail);
        let (mut tx, mut rx) = (segment.shared_producer(1), segment.reader(2, 0));
        (0..5).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
        segment.kill(1, tx);
        let gathered = match as_task {
            false => rx.batch_within(8, Duration::MAX).map(drop),
            true => {
                let sleep = |_| std::future::pending::<()>();
                let gathering =
                    async { rx.batch_within_async(8, Duration::MAX, sleep).await.map(drop) };
                block_on_counting(gathering).0
            }
        };
        let Err(WaitError::Failed(failure)) = gathered else { panic!("{gathered:?}") };
        assert_eq!(failure.seq(), Some(5), "as a task: {as_task}");
    }
}

#[test]
fn a_death_that_ends_the_ring_ends_the_wait_of_a_task() {
    let _watched = crate::watchdog::watched();
    let segment = one(2, OnDeath::Fail);
    let (mut tx, rx) = (segment.producer(1), segment.reader(2, 0));
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    segment.kill(2, rx);
    let (failed, _) = block_on_counting(tx.publish_async(|slot| *slot = 2));
    assert!(matches!(failed, Err(WaitError::Failed(_))), "{failed:?}");
}

/// While the executor does not poll the task, the reactor's thread gives up the claim of a dead
/// producer, so that the other parties can continue.
#[test]
fn the_claim_of_a_dead_producer_is_given_up_for_a_task() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::shared(8, 0, vec![stage("only", &[], OnDeath::Wait)], 2, OnDeath::Wait);
    let (mut dying, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    let mut reader = segment.reader(3, 0);
    std::mem::forget(dying.claim().unwrap());
    other.publish(|slot| *slot = 7).unwrap();
    let unpark = Unpark::new();
    let mut batch = pin!(reader.batch_async(1));
    assert!(poll(batch.as_mut(), &unpark).is_pending());
    thread::sleep(A_WHILE);
    assert_eq!(unpark.wakes(), 0, "nothing has happened");
    segment.kill(1, dying);
    until(|| unpark.wakes() == 1);
    assert!(!segment.dead.is_dead(1), "the dead producer is settled");
    let Poll::Ready(Ok(batch)) = poll(batch.as_mut(), &unpark) else { panic!("no event") };
    assert_eq!(batch[0], 7);
}

#[test]
fn a_future_that_is_dropped_is_not_woken() {
    let _watched = crate::watchdog::watched();
    let segment = one(8, OnDeath::Tell);
    let (mut tx, mut rx) = (segment.producer(1), segment.reader(2, 0));
    let (gone, unpark) = (Unpark::new(), Unpark::new());
    {
        let mut batch = pin!(rx.batch_async(1));
        assert!(poll(batch.as_mut(), &gone).is_pending());
    }
    assert_eq!(Arc::strong_count(&gone), 1, "the waker stays");
    // This is the next future of the same handle.
    let mut batch = pin!(rx.batch_async(1));
    assert!(poll(batch.as_mut(), &gone).is_pending());
    assert!(poll(batch.as_mut(), &unpark).is_pending());
    assert_eq!(Arc::strong_count(&gone), 1, "the replaced waker stays");
    tx.publish(|slot| *slot = 7).unwrap();
    until(|| unpark.wakes() == 1);
    assert_eq!(gone.wakes(), 0);
    assert!(poll(batch.as_mut(), &unpark).is_ready());
}

/// Returns the number of references to the segment's memory.
fn mappings(segment: &Segment) -> usize {
    Arc::strong_count(&segment.areas.mapping)
}

#[test]
fn a_ring_that_is_dropped_while_a_task_waits_lets_its_memory_go() {
    let _watched = crate::watchdog::watched();
    for while_asleep in [false, true] {
        let segment = one(8, OnDeath::Wait);
        let before = mappings(&segment);
        let (mut rx, unpark) = (segment.reader(2, 0), Unpark::new());
        assert!(poll(pin!(rx.batch_async(1)), &unpark).is_pending());
        // The handle is still armed when it is dropped, as can happen to the handle of an event
        // loop.
        assert!(!rx.arm(&Waker::from(unpark.clone())));
        if while_asleep {
            thread::sleep(A_WHILE);
        }
        drop(rx);
        assert_eq!(mappings(&segment), before, "the thread keeps the memory");
        assert_eq!((Arc::strong_count(&unpark), unpark.wakes()), (1, 0));
    }
}

/// A forgotten future keeps its waker armed until the ring is dropped.
#[test]
fn the_waker_of_a_forgotten_future_goes_with_the_ring() {
    let _watched = crate::watchdog::watched();
    let segment = one(8, OnDeath::Wait);
    let (before, unpark) = (mappings(&segment), Unpark::new());
    let mut rx = Box::new(segment.reader(2, 0));
    let mut batch = Box::pin(rx.batch_async(1));
    assert!(poll(batch.as_mut(), &unpark).is_pending());
    std::mem::forget(batch);
    drop(rx);
    assert_eq!((Arc::strong_count(&unpark), mappings(&segment)), (1, before));
}

/// A waker that drops the last handle of its ring, on the reactor's own thread.
struct DropsRing(Mutex<Option<SegmentReader<u64>>>, AtomicUsize);

impl Wake for DropsRing {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
        self.1.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_waker_may_drop_the_last_handle_of_its_ring() {
    let _watched = crate::watchdog::watched();
    let segment = one(8, OnDeath::Wait);
    let mut tx = segment.producer(1);
    let before = mappings(&segment);
    let mut rx = segment.reader(2, 0);
    let waker = Arc::new(DropsRing(Mutex::new(None), AtomicUsize::new(0)));
    assert!(!rx.arm(&Waker::from(waker.clone())));
    *waker.0.lock().unwrap() = Some(rx);
    tx.publish(|slot| *slot = 7).unwrap();
    until(|| waker.1.load(Relaxed) == 1);
    assert_eq!(mappings(&segment), before);
}

/// A waker that panics.
struct Panics(AtomicUsize);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
        std::panic::resume_unwind(Box::new("a waker of a test"));
    }
}

#[test]
fn a_waker_that_panics_leaves_no_other_task_asleep() {
    let _watched = crate::watchdog::watched();
    let stages = vec![stage("first", &[], OnDeath::Wait), stage("beside", &[], OnDeath::Wait)];
    let segment = Segment::new(8, 0, stages);
    let (mut tx, before) = (segment.producer(1), mappings(&segment));
    let ring = segment.attach(2);
    let mut handles = [0, 1].map(|stage| {
        ring.seat(ring.seats_of(stage).start).take(2).unwrap();
        // SAFETY: the seat was taken.
        unsafe { ring.reader(stage) }
    });
    drop(ring);
    let (panics, unpark) = (Arc::new(Panics(AtomicUsize::new(0))), Unpark::new());
    // Both handles wait in one queue, because stages with the same dependencies share a queue.
    assert!(!handles[0].arm(&Waker::from(panics.clone())));
    assert!(!handles[1].arm(&Waker::from(unpark.clone())));
    tx.publish(|slot| *slot = 7).unwrap();
    until(|| unpark.wakes() == 1 && panics.0.load(Relaxed) == 1);
    handles.iter_mut().for_each(|handle| assert_eq!(handle.poll(8, |_, _| ()).unwrap(), 1));
    // The reactor's thread still runs.
    assert!(!handles[1].arm(&Waker::from(unpark.clone())));
    tx.publish(|slot| *slot = 8).unwrap();
    until(|| unpark.wakes() == 2);
    drop(handles);
    assert_eq!(mappings(&segment), before);
}

/// A waker that blocks while the test holds the lock.
struct Blocks(Arc<Mutex<()>>, AtomicUsize);

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Relaxed);
        drop(self.0.lock().unwrap());
        self.1.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_waker_that_blocks_does_not_hold_up_the_drop_of_its_ring() {
    let _watched = crate::watchdog::watched();
    let segment = one(8, OnDeath::Wait);
    let mut tx = segment.producer(1);
    let (before, lock) = (mappings(&segment), Arc::new(Mutex::new(())));
    let mut rx = segment.reader(2, 0);
    let blocks = Arc::new(Blocks(lock.clone(), AtomicUsize::new(0)));
    assert!(!rx.arm(&Waker::from(blocks.clone())));
    let held = lock.lock().unwrap();
    tx.publish(|slot| *slot = 7).unwrap();
    until(|| blocks.1.load(Relaxed) == 1);
    drop(rx);
    assert_eq!(mappings(&segment), before);
    drop(held);
    until(|| blocks.1.load(Relaxed) == 2);
}

#[test]
fn tasks_of_one_process_wait_at_different_stages() {
    let _watched = crate::watchdog::watched();
    let stages = vec![stage("first", &[], OnDeath::Wait), stage("second", &[0], OnDeath::Wait)];
    let segment = Segment::new(4, 0, stages);
    let ring = segment.attach(1);
    let producer_seat = ring.seats_of(ring.producer_party()).start;
    for seat in [producer_seat, ring.seats_of(0).start, ring.seats_of(1).start] {
        ring.seat(seat).take(1).unwrap();
    }
    // SAFETY: the seats were taken.
    let (mut tx, mut first, mut second) =
        unsafe { (ring.producer(), ring.reader(0), ring.reader(1)) };
    let events = if cfg!(miri) { 20 } else { 2000 };
    let sum = |rx: &mut SegmentReader<u64>| {
        block_on_counting(async {
            let mut sum = 0;
            loop {
                match rx.batch_async(8).await {
                    Ok(batch) => {
                        sum += batch.iter().sum::<u64>();
                        batch.release();
                    }
                    Err(ended) => break assert!(matches!(ended, WaitError::Closed)),
                }
            }
            sum
        })
        .0
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            block_on_counting(async {
                for i in 0..events {
                    tx.publish_async(|slot| *slot = i).await.unwrap();
                }
            });
        });
        let first = scope.spawn(|| sum(&mut first));
        assert_eq!(sum(&mut second), events * (events - 1) / 2);
        assert_eq!(first.join().unwrap(), events * (events - 1) / 2);
    });
}

/// Nothing wakes a task that waits for a long time.
#[test]
fn nothing_wakes_a_task_while_nothing_happens() {
    let _watched = crate::watchdog::watched();
    let segment = one(8, OnDeath::Tell);
    let (mut tx, mut rx, unpark) = (segment.producer(1), segment.reader(2, 0), Unpark::new());
    let mut batch = pin!(rx.batch_async(1));
    assert!(poll(batch.as_mut(), &unpark).is_pending());
    thread::sleep(4 * A_WHILE);
    assert_eq!(unpark.wakes(), 0);
    tx.publish(|slot| *slot = 7).unwrap();
    until(|| unpark.wakes() == 1);
}

/// A process that dies between a store and its notification leaves the tasks of other processes
/// asleep, until their reactor's threads find the progress.
#[test]
fn a_task_proceeds_although_its_notifier_died_before_the_notification() {
    let _watched = crate::watchdog::watched();
    let stages = vec![stage("first", &[], OnDeath::Wait), stage("second", &[0], OnDeath::Wait)];
    let segment = Segment::new(2, 0, stages);
    let (mut tx, first, unpark) = (segment.producer(1), segment.attach(2), Unpark::new());
    let mut second = segment.reader(3, 1);
    let control = first.control();
    let line = |stage: usize| control.plan.stages[stage].line;
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    {
        // The first stage releases an event, and dies before it notifies.
        let mut batch = pin!(second.batch_async(1));
        assert!(poll(batch.as_mut(), &unpark).is_pending());
        thread::sleep(A_WHILE);
        assert_eq!(unpark.wakes(), 0);
        control.release(line(0), 1, &[]);
        until(|| unpark.wakes() == 1);
        assert!(matches!(poll(batch.as_mut(), &unpark), Poll::Ready(Ok(batch)) if batch[0] == 0));
    }
    {
        // So does the last stage, for which the producer waits.
        let mut publication = pin!(tx.publish_async(|slot| *slot = 2));
        assert!(poll(publication.as_mut(), &unpark).is_pending());
        thread::sleep(A_WHILE);
        assert_eq!(unpark.wakes(), 1);
        control.release(line(1), 1, &[]);
        until(|| unpark.wakes() == 2);
        assert!(matches!(poll(publication.as_mut(), &unpark), Poll::Ready(Ok(2))));
    }
    {
        // A process that halts the graph dies, too.
        let mut publication = pin!(tx.publish_async(|slot| *slot = 3));
        assert!(poll(publication.as_mut(), &unpark).is_pending());
        control.status.halt();
        until(|| unpark.wakes() == 3);
        let halted = poll(publication.as_mut(), &unpark);
        assert!(matches!(halted, Poll::Ready(Err(WaitError::Halted))), "{halted:?}");
    }
}

/// If the system refuses to start a thread, the task is woken at once, and polls again.
#[test]
fn without_a_thread_a_task_polls() {
    let _watched = crate::watchdog::watched();
    let segment = one(8, OnDeath::Wait);
    let (mut tx, mut rx, unpark) = (segment.producer(1), segment.reader(2, 0), Unpark::new());
    let mut batch = pin!(rx.batch_async(1));
    REFUSED.set(true);
    for polls in 1..=3 {
        assert!(poll(batch.as_mut(), &unpark).is_pending());
        assert_eq!(unpark.wakes(), polls);
    }
    REFUSED.set(false);
    assert!(poll(batch.as_mut(), &unpark).is_pending());
    assert_eq!(unpark.wakes(), 3, "now there is a thread");
    tx.publish(|slot| *slot = 7).unwrap();
    until(|| unpark.wakes() == 4);
    assert!(poll(batch.as_mut(), &unpark).is_ready());
}

#[test]
fn a_selector_sleeps_until_an_event_or_a_death() {
    let _watched = crate::watchdog::watched();
    let (one, two) = (one(8, OnDeath::Wait), one(8, OnDeath::Wait));
    let (mut tx, mut left) = (one.producer(1), one.reader(2, 0));
    let (dying, mut right) = (two.producer(1), two.reader(2, 0));
    let mut selector = Selector::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(A_WHILE);
            tx.publish(|slot| *slot = 7).unwrap();
        });
        assert_eq!(selector.wait(&mut [&mut left, &mut right], None), Some(0));
        assert_eq!(left.poll(8, |_, _| ()).unwrap(), 1);
    });
    two.kill(1, dying);
    assert_eq!(selector.wait(&mut [&mut left, &mut right], None), Some(1));
    let told = right.poll(8, |_, _| ());
    assert!(matches!(told, Err(WaitError::PeerDead(_))), "{told:?}");
}

/// A proof of death as a forked child has it: it says that the child is not the process that
/// attached.
struct Forked(Dead, std::sync::atomic::AtomicBool);

impl Proof for Forked {
    fn is_dead(&self, number: u32) -> bool {
        self.0.is_dead(number)
    }
    fn recover(&self, number: u32, settle: &mut dyn FnMut()) -> bool {
        self.0.recover(number, settle)
    }
    fn pid(&self, number: u32) -> u32 {
        self.0.pid(number)
    }
    fn is_own_process(&self) -> bool {
        !self.1.load(Relaxed)
    }
}

/// Drops in a forked child touch neither the segment's words nor any lock that a thread of the
/// parent may have held at the fork.
#[test]
fn the_drops_of_a_forked_child_touch_nothing() {
    let _watched = crate::watchdog::watched();
    let segment = one(8, OnDeath::Wait);
    let proof = Arc::new(Forked(Dead::default(), false.into()));
    let participant = Participant {
        number: 2,
        proof: proof.clone(),
        notice: Duration::from_millis(1),
        always_fences: true,
        wait: Wait::Blocking,
        producer_wait: Wait::Blocking,
    };
    // SAFETY: as in `Segment::new`; all rings follow the protocol.
    let ring = unsafe { SegmentRing::over(&segment.declaration, &segment.areas, &participant) };
    let ring: SegmentRing<u64> = ring.unwrap();
    ring.seat(ring.seats_of(0).start).take(2).unwrap();
    // SAFETY: the seat was taken.
    let (mut rx, unpark) = (unsafe { ring.reader(0) }, Unpark::new());
    {
        let mut batch = pin!(rx.batch_async(1));
        assert!(poll(batch.as_mut(), &unpark).is_pending());
        proof.1.store(true, Relaxed);
    }
    assert_eq!(Arc::strong_count(&unpark), 2, "the dropped future has locked the list");
    proof.1.store(false, Relaxed);
    drop((rx, ring));
    assert_eq!(Arc::strong_count(&unpark), 1);
}
