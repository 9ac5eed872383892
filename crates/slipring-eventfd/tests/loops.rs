//! Event loops on epoll and poll, as a user writes them. A wait of more than thirty seconds fails.
#![cfg(target_os = "linux")]

#[path = "../../slipring/tests/common/watchdog.rs"]
mod watchdog;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::retry_on_intr;
use slipring::{
    Graph, Reader, Wait,
    errors::{ClaimError, WaitError},
    handles::StartAt,
    tasks::Waitable,
};
use slipring_eventfd::EventFd;

const LIMIT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// An epoll set over several descriptors, named by their index.
struct Epoll(OwnedFd);

impl Epoll {
    fn of(fds: &[EventFd]) -> Epoll {
        Epoll::triggered_by(epoll::EventFlags::empty(), fds)
    }

    fn triggered_by(edge: epoll::EventFlags, fds: &[EventFd]) -> Epoll {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for (number, fd) in fds.iter().enumerate() {
            epoll::add(
                &epoll,
                fd,
                epoll::EventData::new_u64(number as u64),
                epoll::EventFlags::IN | edge,
            )
            .unwrap();
        }
        Epoll(epoll)
    }

    /// Returns the readable descriptors, after at most `limit`.
    fn within(&self, limit: &Timespec) -> Vec<usize> {
        let mut events = Vec::with_capacity(8);
        retry_on_intr(|| epoll::wait(&self.0, spare_capacity(&mut events), Some(limit))).unwrap();
        events.iter().map(|event| event.data.u64() as usize).collect()
    }

    fn wait(&self) -> Vec<usize> {
        let readable = self.within(&LIMIT);
        assert!(!readable.is_empty(), "a wake-up was lost");
        readable
    }
}

/// Takes all available events; returns `false` when the ring is closed and drained.
fn take(rx: &mut Reader<u64>, next: &mut u64) -> bool {
    loop {
        match rx.poll(8, |&value, _| {
            assert_eq!(value, *next);
            *next += 1;
        }) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(WaitError::Closed) => return false,
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn no_wake_up_is_lost_with_level_triggered_epoll() {
    let _watched = watchdog::watched();
    // The smaller the ring, the more often both sides wait for each other.
    for (capacity, count) in [(1, 20_000), (2, 20_000), (64, 100_000)] {
        let (mut tx, mut rx) = slipring::unicast(capacity, || 0u64).unwrap();
        let publishing = thread::spawn(move || {
            for i in 0..count {
                tx.publish(|slot| *slot = i).unwrap();
                if i % 7 == 0 {
                    thread::yield_now();
                }
            }
        });
        let fds = [EventFd::new().unwrap()];
        let epoll = Epoll::of(&fds);
        let mut next = 0;
        while take(&mut rx, &mut next) {
            if !fds[0].arm(&mut rx) {
                assert_eq!(epoll.wait(), [0]);
                assert!(fds[0].clear().unwrap());
            }
        }
        assert_eq!(next, count);
        assert!(epoll.within(&NOW).is_empty(), "a signal is left over");
        publishing.join().unwrap();
    }
}

#[test]
fn no_wake_up_is_lost_with_poll() {
    let _watched = watchdog::watched();
    const COUNT: u64 = 100_000;
    let (mut tx, mut rx) = slipring::unicast(16, || 0u64).unwrap();
    let publishing = thread::spawn(move || {
        for i in 0..COUNT {
            tx.publish(|slot| *slot = i).unwrap();
            if i % 5 == 0 {
                thread::yield_now();
            }
        }
    });
    let ready = EventFd::new().unwrap();
    let mut next = 0;
    while take(&mut rx, &mut next) {
        if !ready.arm(&mut rx) {
            let mut fds = [PollFd::new(&ready, PollFlags::IN)];
            assert_eq!(
                retry_on_intr(|| poll(&mut fds, Some(&LIMIT))).unwrap(),
                1,
                "a wake-up was lost"
            );
            assert_eq!(fds[0].revents(), PollFlags::IN);
            assert!(ready.clear().unwrap());
        }
    }
    assert_eq!(next, COUNT);
    publishing.join().unwrap();
}

#[test]
fn no_wake_up_is_lost_with_edge_triggered_epoll() {
    let _watched = watchdog::watched();
    const EACH: u64 = 10_000;
    let (mut rxs, publishing) = several(3, EACH);
    // The first descriptor serves two rings, so it is also signalled while it is readable already.
    let fds = [EventFd::new().unwrap(), EventFd::new().unwrap()];
    let epoll = Epoll::triggered_by(epoll::EventFlags::ET, &fds);
    let (mut next, mut open) = ([0; 3], [true; 3]);
    while open.contains(&true) {
        let mut again = false;
        for ring in 0..3 {
            if open[ring] {
                open[ring] = take(&mut rxs[ring], &mut next[ring]);
                again |= !open[ring] || fds[ring / 2].arm(&mut rxs[ring]);
            }
        }
        if !again {
            for fd in epoll.wait() {
                fds[fd].clear().unwrap();
            }
        }
    }
    assert_eq!(next, [EACH; 3]);
    publishing.join().unwrap();
}

#[test]
fn signals_before_a_clear_are_written_once_and_none_is_lost() {
    let _watched = watchdog::watched();
    // The kernel's counter holds the number of writes.
    let written = |fd: &EventFd| {
        let mut count = [0; 8];
        rustix::io::read(fd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    let fd = EventFd::new().unwrap();
    let (mut txs, mut rxs): (Vec<_>, Vec<_>) =
        (0..3).map(|_| slipring::unicast(4, || 0u64).unwrap()).unzip();
    assert!(rxs.iter_mut().all(|rx| !fd.arm(rx)));
    txs.iter_mut().for_each(|tx| assert!(tx.publish(|_| ()).is_ok()));
    assert_eq!(written(&fd), 1);
    fd.clear().unwrap(); // `written` does not reset `signalled`
    txs.iter_mut().for_each(|tx| assert!(tx.publish(|_| ()).is_ok()));
    assert_eq!(written(&fd), 0, "no handle was armed");

    // Threads signal as fast as they can. Each stores its round before the signal, and waits until
    // the loop has seen that round.
    const ROUNDS: u64 = 10_000;
    let rounds: Arc<[AtomicU64; 3]> = Arc::default();
    let (seen, signalling): (Vec<_>, Vec<_>) = (0..3)
        .map(|number| {
            let (rounds, waker) = (rounds.clone(), fd.waker().clone());
            let (sender, seen) = std::sync::mpsc::channel();
            let signalling = thread::spawn(move || {
                for round in 1..=ROUNDS {
                    rounds[number].store(round, Relaxed);
                    waker.wake_by_ref();
                    while seen.recv().unwrap() < round {}
                }
            });
            (sender, signalling)
        })
        .unzip();
    let fds = [fd];
    let epoll = Epoll::of(&fds);
    let mut known = [0; 3];
    while known != [ROUNDS; 3] {
        epoll.wait();
        fds[0].clear().unwrap();
        for number in 0..3 {
            let now = rounds[number].load(Relaxed);
            if now != known[number] {
                known[number] = now;
                seen[number].send(now).unwrap();
            }
        }
    }
    signalling.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn events_that_a_poll_left_over_make_arm_return_true() {
    let _watched = watchdog::watched();
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    let fd = EventFd::new().unwrap();
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    assert_eq!(rx.poll(2, |_, _| ()).unwrap(), 2);
    assert!(fd.arm(&mut rx), "the third event is available");
    assert_eq!(rx.try_batch(1).unwrap().len(), 1);
    assert!(fd.arm(&mut rx), "an unreleased batch is available again");
    assert_eq!(rx.poll(2, |_, _| ()).unwrap(), 1);
    assert!(!fd.arm(&mut rx));
    assert!(fd.arm(&mut tx), "there is room");
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    assert!(fd.clear().unwrap());
    assert!(!fd.arm(&mut tx), "the ring is full");
    assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    assert!(fd.clear().unwrap());
}

#[test]
fn a_loop_polls_a_future_with_the_descriptors_waker() {
    let _watched = watchdog::watched();
    const COUNT: u64 = 20_000;
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    let publishing = thread::spawn(move || tx.publish_all(0..COUNT, |slot, i| *slot = i).unwrap());
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    let mut cx = Context::from_waker(fds[0].waker());
    let mut reading = pin!(async {
        let mut next = 0;
        loop {
            match rx.batch_async(3).await {
                Ok(batch) => {
                    next += batch
                        .iter()
                        .zip(next..)
                        .map(|(&value, due)| assert_eq!(value, due))
                        .count() as u64;
                    batch.release();
                }
                Err(closed) => return (next, closed),
            }
        }
    });
    let (next, closed) = loop {
        match reading.as_mut().poll(&mut cx) {
            Poll::Ready(end) => break end,
            Poll::Pending => epoll.wait(),
        };
        fds[0].clear().unwrap();
    };
    assert!(matches!(closed, WaitError::Closed), "{closed}");
    assert_eq!((next, publishing.join().unwrap()), (COUNT, COUNT));
}

#[test]
fn two_loops_wait_for_each_other() {
    let _watched = watchdog::watched();
    const COUNT: u64 = 20_000;
    let (mut tx, mut rx) = slipring::unicast(2, || 0u64).unwrap();
    let publishing = thread::spawn(move || {
        let fds = [EventFd::new().unwrap()];
        let epoll = Epoll::of(&fds);
        let mut i = 0;
        while i < COUNT {
            match tx.try_publish(|slot| *slot = i) {
                Ok(_) => i += 1,
                Err(ClaimError::Gated { .. }) => {
                    if !fds[0].arm(&mut tx) {
                        epoll.wait();
                        fds[0].clear().unwrap();
                    }
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    let mut next = 0;
    while take(&mut rx, &mut next) {
        if !fds[0].arm(&mut rx) {
            epoll.wait();
            fds[0].clear().unwrap();
        }
    }
    assert_eq!(next, COUNT);
    publishing.join().unwrap();
}

#[test]
fn each_worker_of_a_pool_has_its_own_loop() {
    let _watched = watchdog::watched();
    const COUNT: u64 = 20_000;
    let graph = Graph::new(4, || 0u64);
    let work = graph.pool_updater("work", 2);
    let end = graph.reader("end").after(&work);
    let ring = graph.build().unwrap();
    let (mut tx, mut end) = (ring.producer(), ring.reader(end));
    let workers: Vec<_> = ring
        .pool_updaters(work)
        .into_iter()
        .map(|mut worker| {
            thread::spawn(move || {
                let fds = [EventFd::new().unwrap()];
                let epoll = Epoll::of(&fds);
                loop {
                    match worker.poll(2, |value, _| *value += 1) {
                        Ok(0) if !fds[0].arm(&mut worker) => {
                            epoll.wait();
                            fds[0].clear().unwrap();
                        }
                        Ok(_) => {}
                        Err(closed) => {
                            return assert!(matches!(closed, WaitError::Closed), "{closed}");
                        }
                    }
                }
            })
        })
        .collect();
    let publishing = thread::spawn(move || tx.publish_all(0..COUNT, |slot, i| *slot = i).unwrap());
    let mut next = 0;
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    loop {
        match end.poll(8, |&value, at| assert_eq!(value, at.seq + 1)) {
            Ok(0) if !fds[0].arm(&mut end) => {
                epoll.wait();
                fds[0].clear().unwrap();
            }
            Ok(some) => next += some as u64,
            Err(closed) => break assert!(matches!(closed, WaitError::Closed), "{closed}"),
        }
    }
    assert_eq!(next, COUNT);
    assert_eq!(publishing.join().unwrap(), COUNT);
    workers.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Publishes to several rings in turn, and closes each at the end.
fn several(rings: usize, each: u64) -> (Vec<Reader<u64>>, thread::JoinHandle<()>) {
    let (mut txs, rxs): (Vec<_>, Vec<_>) =
        (0..rings).map(|_| slipring::unicast(4, || 0u64).unwrap()).unzip();
    let publishing = thread::spawn(move || {
        for i in 0..each {
            for tx in &mut txs {
                tx.publish(|slot| *slot = i).unwrap();
            }
            if i % 5 == 0 {
                thread::yield_now();
            }
        }
    });
    (rxs, publishing)
}

#[test]
fn one_epoll_waits_for_several_rings() {
    let _watched = watchdog::watched();
    const EACH: u64 = 5_000;
    let (mut rxs, publishing) = several(3, EACH);
    let fds: Vec<EventFd> = (0..3).map(|_| EventFd::new().unwrap()).collect();
    let epoll = Epoll::of(&fds);
    let (mut next, mut open) = ([0; 3], 3);
    let mut readable = vec![0, 1, 2];
    loop {
        // Only rings whose descriptor was readable are polled.
        while let Some(ring) = readable.pop() {
            if !take(&mut rxs[ring], &mut next[ring]) {
                open -= 1;
            } else if fds[ring].arm(&mut rxs[ring]) {
                readable.push(ring);
            }
        }
        if open == 0 {
            break;
        }
        readable = epoll.wait();
        readable.iter().for_each(|&ring| assert!(fds[ring].clear().unwrap()));
    }
    assert_eq!(next, [EACH; 3]);
    publishing.join().unwrap();
}

#[test]
fn one_descriptor_serves_several_rings() {
    let _watched = watchdog::watched();
    const EACH: u64 = 5_000;
    let (mut rxs, publishing) = several(3, EACH);
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    let (mut next, mut open) = ([0; 3], [true; 3]);
    while open.contains(&true) {
        let mut again = false;
        for ring in (0..3).filter(|&ring| open[ring]).collect::<Vec<_>>() {
            open[ring] = take(&mut rxs[ring], &mut next[ring]);
            again |= !open[ring] || fds[0].arm(&mut rxs[ring]);
        }
        if !again {
            epoll.wait();
            fds[0].clear().unwrap();
        }
    }
    assert_eq!(next, [EACH; 3]);
    publishing.join().unwrap();
}

#[test]
fn an_end_is_signalled_and_arm_returns_true_after_it() {
    let _watched = watchdog::watched();
    for halted in [false, true] {
        let (tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
        let fds = [EventFd::new().unwrap()];
        let epoll = Epoll::of(&fds);
        assert!(!fds[0].arm(&mut rx));
        assert!(epoll.within(&NOW).is_empty());
        let ending = thread::spawn(move || if halted { tx.halt() } else { tx.close() });
        epoll.wait();
        assert!(fds[0].clear().unwrap());
        let end = rx.poll(8, |_, _| ()).unwrap_err();
        assert!(
            matches!((halted, &end), (true, WaitError::Halted) | (false, WaitError::Closed)),
            "{end}"
        );
        assert!(fds[0].arm(&mut rx) && fds[0].arm(&mut rx), "an ended ring sends no signal");
        ending.join().unwrap();
        assert!(epoll.within(&NOW).is_empty());
    }
}

#[test]
fn a_failure_signals_each_armed_handle() {
    let _watched = watchdog::watched();
    let graph = Graph::new(1, || 0u64);
    let (first, other) = (graph.reader("first"), graph.reader("other"));
    let ring = graph.build().unwrap();
    let (mut tx, first, mut other) = (ring.producer(), ring.reader(first), ring.reader(other));
    tx.publish(|_| ()).unwrap();
    assert_eq!(other.poll(1, |_, _| ()).unwrap(), 1);
    let fds = [EventFd::new().unwrap(), EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    assert!(!fds[0].arm(&mut other) && !fds[1].arm(&mut tx));
    let failing = thread::spawn(move || {
        let _first = first;
        std::panic::resume_unwind(Box::new("oh")) // a panic that no hook prints
    });
    let mut signalled = [false; 2];
    while signalled != [true; 2] {
        for fd in epoll.wait() {
            assert!(fds[fd].clear().unwrap());
            signalled[fd] = true;
        }
    }
    let failed = other.poll(1, |_, _| ()).unwrap_err();
    assert!(
        matches!(&failed, WaitError::Failed(_)) && failed.to_string().contains("first"),
        "{failed}"
    );
    assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Wait(WaitError::Failed(_)))));
    assert!(failing.join().is_err());
}

#[test]
fn an_armed_handle_may_be_dropped() {
    let _watched = watchdog::watched();
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);

    // The handle belongs to a stage that the graph needs, so its drop fails the graph, and the
    // producer gets the failure.
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    assert!(!fds[0].arm(&mut rx));
    drop(rx);
    assert!(matches!(tx.publish(|_| ()), Err(WaitError::Failed(_))));
    fds[0].clear().unwrap();

    // The handle is a member of a tap, so the graph continues, and the descriptor stays usable.
    let graph = Graph::new(4, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let mut late = tap.subscribe(StartAt::Now).unwrap();
    assert!(!fds[0].arm(&mut late));
    drop(late);
    for i in 0..8 {
        tx.publish(|slot| *slot = i).unwrap();
        assert_eq!(end.poll(4, |_, _| ()).unwrap(), 1);
    }
    fds[0].clear().unwrap(); // the dropped member's waker may have signalled
    let mut next = tap.subscribe(StartAt::Now).unwrap();
    assert!(!fds[0].arm(&mut next));
    tx.publish(|slot| *slot = 8).unwrap();
    epoll.wait();
    assert!(fds[0].clear().unwrap());
    assert_eq!(next.poll(4, |&value, _| assert_eq!(value, 8)).unwrap(), 1);
}

#[test]
fn a_leaver_signals_an_armed_member() {
    let _watched = watchdog::watched();
    let graph = Graph::new(4, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (_tx, _end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    for asked_first in [false, true] {
        let mut late = tap.subscribe(StartAt::Now).unwrap();
        let leaver = late.leave_handle();
        if asked_first {
            assert!(leaver.leave());
            assert!(fds[0].arm(&mut late));
        } else {
            assert!(!fds[0].arm(&mut late));
            let asking = thread::spawn(move || assert!(leaver.leave()));
            epoll.wait();
            assert!(fds[0].clear().unwrap());
            asking.join().unwrap();
        }
        assert!(matches!(late.poll(4, |_, _| ()), Err(WaitError::Left)));
        assert!(!fds[0].clear().unwrap());
    }
}

#[test]
fn a_disarmed_handle_is_not_signalled() {
    let _watched = watchdog::watched();
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    let fd = EventFd::new().unwrap();
    assert!(!fd.arm(&mut rx));
    rx.disarm();
    tx.publish(|slot| *slot = 1).unwrap();
    assert!(!fd.clear().unwrap());
}

#[test]
fn dropping_a_descriptor_closes_it_and_disarms_its_handles() {
    let _watched = watchdog::watched();
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    let gone = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&gone);
    let waker = gone[0].waker().clone();
    assert!(!gone[0].arm(&mut rx));
    drop(gone);
    tx.publish(|slot| *slot = 0).unwrap();
    waker.wake();
    assert!(epoll.within(&NOW).is_empty(), "a dropped descriptor is open and was signalled");
    let mut next = 0;
    assert!(take(&mut rx, &mut next));

    // The ring works with another descriptor.
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    assert!(!fds[0].arm(&mut rx));
    tx.publish(|slot| *slot = 1).unwrap();
    epoll.wait();
    assert!(take(&mut rx, &mut next));
    assert_eq!(next, 2);
}

#[test]
fn a_descriptor_may_be_dropped_while_a_producer_signals() {
    let _watched = watchdog::watched();
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    let publishing = thread::spawn(move || {
        (0..5_000).for_each(|i| assert_eq!(tx.publish(|slot| *slot = i).unwrap(), i))
    });
    let (mut next, mut rounds) = (0, 0u64);
    while take(&mut rx, &mut next) {
        // Every other descriptor is dropped while the producer may be signalling it.
        let fds = [EventFd::new().unwrap()];
        let epoll = Epoll::of(&fds);
        rounds += 1;
        if !fds[0].arm(&mut rx) && rounds % 2 == 0 {
            epoll.wait();
        }
    }
    assert_eq!(next, 5_000);
    publishing.join().unwrap();
}

#[test]
fn a_descriptor_of_a_strategy_that_does_not_park_is_readable_at_once() {
    let _watched = watchdog::watched();
    let graph = Graph::new(4, || 0u64).wait(Wait::YIELDING);
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut tx, mut end) = (ring.producer(), ring.reader(end));
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    assert!(!end.wakes());
    assert!(!fds[0].arm(&mut end));
    assert_eq!(epoll.within(&NOW), [0]);
    assert!(fds[0].clear().unwrap());
    tx.publish(|slot| *slot = 0).unwrap();
    assert!(fds[0].arm(&mut end));
}

#[test]
fn a_counter_at_its_maximum_is_readable_and_does_not_block_the_producer() {
    let _watched = watchdog::watched();
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    rustix::io::write(&fds[0], &(u64::MAX - 1).to_ne_bytes()).unwrap();
    assert!(!fds[0].arm(&mut rx));
    tx.publish(|slot| *slot = 0).unwrap();
    assert_eq!(epoll.wait(), [0]);
    assert!(fds[0].clear().unwrap());
    assert!(!fds[0].clear().unwrap());
}

#[test]
fn a_descriptor_is_nonblocking_and_close_on_exec() {
    let _watched = watchdog::watched();
    let fd = EventFd::new().unwrap();
    assert!(rustix::fs::fcntl_getfl(fd.as_fd()).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
}

/// A ring between processes wakes the loop through a thread of the library. If no signal came, the
/// test would fail at its time limit; if signals came all the time, it would fail at its limit of
/// turns.
#[test]
#[cfg(target_pointer_width = "64")]
fn a_loop_sleeps_until_a_ring_of_a_segment_signals() {
    let _watched = watchdog::watched();
    let segment = slipring_shm::Segment::<u64>::create_memfd("loop").capacity(4);
    let segment = segment.reader("loop").build().unwrap();
    // SAFETY: no other process has the memfd.
    let attached = unsafe { segment.attach() }.unwrap();
    let (mut tx, mut rx) = (attached.producer().unwrap(), attached.reader("loop").unwrap());
    let fds = [EventFd::new().unwrap()];
    let epoll = Epoll::of(&fds);
    let publisher = thread::spawn(move || {
        for i in 1..=20 {
            thread::sleep(std::time::Duration::from_millis(2));
            tx.publish(|slot| *slot = i).unwrap();
        }
    });
    let (mut sum, mut turns) = (0, 0);
    'ring: loop {
        loop {
            match rx.poll(8, |value, _| sum += value) {
                Ok(0) => break,
                Ok(_) => {}
                Err(WaitError::Closed) => break 'ring,
                Err(other) => panic!("{other}"),
            }
        }
        if !fds[0].arm(&mut rx) {
            turns += 1;
            assert_eq!(epoll.wait(), [0]);
            fds[0].clear().unwrap();
        }
    }
    assert!(sum == 210 && turns <= 60, "{sum} after {turns} turns");
    publisher.join().unwrap();
}
