//! Models of tickets: idle workers take positions before their events are published, and each waits
//! for its own event (`worker::I6`). A worker that falls asleep leaves its ticket to the others.
//!
//! The models have one producer, two or three workers and up to one reader, on rings of 4 slots.

use std::task::Waker;

use loom::thread;
use loom::thread::JoinHandle;

use super::pool::{ENDLESS, LOST, mark, publish, read_rest, work, work_off};
use super::*;
use crate::consumer::position::Availability as _;
use crate::consumer::waiting::Waiting as _;
use Access::{Read, Write};

/// Settings under which idle workers draw tickets: no thread sleeps, and each has a core.
fn awake() -> Settings {
    Settings { placed: Some(8), ..settings(4) }
}

/// Waits for a chunk, handles it, and returns its length in events.
fn work_on(worker: &mut PoolUpdater<u64>) -> u64 {
    let mut batch = worker.batch(4).unwrap();
    batch.iter_mut().for_each(mark);
    let len = batch.len() as u64;
    batch.release();
    len
}

/// Two workers draw tickets and poll, each for its own event, and one publication has both events.
/// The stage behind the pool sees both.
#[test]
fn loom_two_workers_draw_tickets() {
    explore_unfenced(1_000, Some(2), || {
        let ring = ring(awake(), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 1));
        let mut workers = [0, 1].map(|seat| worker(&ring, 0, seat));
        // The first lap stamps all of its slots in any ring.
        publish(&mut tx, 1);
        assert_eq!((work(&mut workers[0]), read_rest(&mut rx)), (1, 1));
        let working = workers.map(|mut worker| {
            thread::spawn(move || {
                worker.position().draw();
                (work(&mut worker), worker)
            })
        });
        let mut slots = tx.claim_n(2).unwrap();
        slots.iter_mut().zip(1..).for_each(|(event, i)| *event = i);
        slots.publish();
        let seen = pool::read_handled(&mut rx);
        let mut workers = working.map(|working| working.join().unwrap());
        let handled: u64 =
            workers.iter_mut().map(|(handled, worker)| *handled + work_off(worker)).sum();
        assert_eq!(handled, 2, "events were lost or handled twice");
        assert_eq!(seen + read_rest(&mut rx), 2, "handled events are not released");
        (tx, workers, rx)
    });
}

#[test]
fn loom_twin_run_unstamped() {
    caught("ticket::loom_two_workers_draw_tickets", "run-unstamped", LOST);
}

#[test]
fn loom_twin_ticket_unlooked() {
    caught("ticket::loom_two_workers_draw_tickets", "ticket-unlooked", Caught::Race);
}

#[test]
fn loom_twin_bound_after_swap_at_a_ticket() {
    caught(
        "ticket::loom_two_workers_draw_tickets",
        "bound-after-swap",
        Caught::Message("handled not once"),
    );
}

/// While one worker draws a ticket, the producer publishes three events, and another worker takes a
/// chunk of two. The third event is the ticket's, and the position behind it is not published.
#[test]
fn loom_a_ticket_behind_a_chunk() {
    explore_unfenced(100, Some(3), || {
        let ring = ring(awake(), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 1));
        let [mut one, mut two] = [0, 1].map(|seat| worker(&ring, 0, seat));
        let drawing = thread::spawn(move || {
            one.position().draw();
            one
        });
        let mut slots = tx.claim_n(3).unwrap();
        slots.iter_mut().zip(0..).for_each(|(event, i)| *event = i);
        slots.publish();
        let handled = work(&mut two);
        let seen = pool::read_handled(&mut rx);
        let mut one = drawing.join().unwrap();
        let handled = handled + work_off(&mut one) + work_off(&mut two);
        assert_eq!(handled, 3, "events were lost or handled twice");
        assert_eq!(seen + read_rest(&mut rx), 3, "handled events are not released");
        drop((tx, one, two, rx));
    });
}

#[test]
fn loom_twin_run_left() {
    caught(
        "ticket::loom_a_ticket_behind_a_chunk",
        "run-left",
        Caught::Message("add with overflow"),
    );
}

#[test]
fn loom_twin_drawn_by_store() {
    caught(
        "ticket::loom_a_ticket_behind_a_chunk",
        "drawn-by-store",
        Caught::Message("handled twice"),
    );
}

#[test]
fn loom_twin_draw_unreleased() {
    caught(
        "ticket::loom_a_ticket_behind_a_chunk",
        "draw-unreleased",
        Caught::Message("handled not once"),
    );
}

/// A worker that draws a ticket has stored an earlier bound, which holds back the stage behind the
/// pool. The stage, which sleeps, wakes when the worker stores the bound of its ticket.
#[test]
fn loom_an_early_bound_is_notified() {
    explore(100, Some(1), || {
        let mut stages = named([(Write, Delivery::pool(2), &[][..]), (Read, Delivery::Each, &[0])]);
        stages[0].wait = Some(Contained::new(Wait::BusySpin));
        let ring = build(asleep(), stages, Vec::new(), &mut || u64::MAX).expect("a sound graph");
        let (mut tx, mut one, mut two, mut rx) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1), reader(&ring, 1));
        let drawing = thread::spawn(move || {
            one.position().draw();
            one
        });
        let reading = thread::spawn(move || {
            assert_eq!(rx.batch(1).unwrap().first_seq(), START);
            rx
        });
        publish(&mut tx, 1);
        if work(&mut two) == 0 {
            let mut one = drawing.join().unwrap();
            assert_eq!(work(&mut one), 1, "events were lost or handled twice");
            drop((reading.join().unwrap(), tx, one, two));
        } else {
            drop((reading.join().unwrap(), tx, drawing.join().unwrap(), two));
        }
    });
}

#[test]
fn loom_twin_early_bound_unnotified() {
    caught(
        "ticket::loom_an_early_bound_is_notified",
        "early-bound-unnotified",
        Caught::Deadlock(&["s1"]),
    );
}

/// A worker loses the race for the last event, and draws a ticket after the ring has closed. Its
/// old bound has made another worker wait for the pool's end.
#[test]
fn loom_a_ticket_at_the_end_wakes_the_pool() {
    explore(100, Some(2), || {
        let ring = ring(asleep(), &[(Write, 2, &[])]);
        let mut tx = producer(&ring);
        let (mut one, mut two) = (worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish(&mut tx, 1);
        let drawing = thread::spawn(move || {
            one.position().draw();
            (one.poll(1, |event, _| mark(event)).unwrap_or(0) as u64, one)
        });
        let ending = thread::spawn(move || (two.for_each(|event, _| mark(event)).unwrap(), two));
        drop(tx);
        // Both handles stay until both threads have ended.
        let ((handled, _one), (more, _two)) = (drawing.join().unwrap(), ending.join().unwrap());
        assert_eq!(handled + more, 1, "events were lost or handled twice");
    });
}

#[test]
fn loom_twin_own_pool_unnotified() {
    caught(
        "ticket::loom_a_ticket_at_the_end_wakes_the_pool",
        "own-pool-unnotified",
        Caught::Deadlock(&["s0"]),
    );
}

/// A worker that waits with a ticket takes over the chunk of a worker that leaves, and then handles
/// its ticket's event.
#[test]
fn loom_a_waiting_worker_takes_over_an_orphan() {
    explore(500, Some(3), || {
        let ring = ring(awake(), &[(Write, 2, &[])]);
        let mut tx = producer(&ring);
        let (mut one, mut two) = (worker(&ring, 0, 0), worker(&ring, 0, 1));
        publish(&mut tx, 2);
        assert_eq!(one.try_batch(2).unwrap().len(), 2);
        let leaving = thread::spawn(move || drop(one));
        let working = thread::spawn(move || {
            let mut handled = 0;
            while handled < 3 {
                handled += work_on(&mut two);
            }
            two
        });
        publish(&mut tx, 1);
        leaving.join().unwrap();
        drop((tx, working.join().unwrap()));
    });
}

#[test]
fn loom_twin_ticket_unorphaned() {
    caught("ticket::loom_a_waiting_worker_takes_over_an_orphan", "ticket-unorphaned", ENDLESS);
}

/// A ticket is left for a moment by its worker, which takes over an orphan. A worker that does not
/// wait does not take the ticket meanwhile.
#[test]
fn loom_a_ticket_stays_with_a_worker_that_waits() {
    explore(500, Some(2), || {
        let ring = ring(awake(), &[(Write, 3, &[])]);
        let mut tx = producer(&ring);
        let [mut one, mut two, mut three] = [0, 1, 2].map(|seat| worker(&ring, 0, seat));
        publish(&mut tx, 1);
        assert_eq!(one.try_batch(1).unwrap().len(), 1);
        let leaving = thread::spawn(move || drop(one));
        let looking = thread::spawn(move || (work(&mut three), three));
        let working = thread::spawn(move || {
            let handled = work_on(&mut two);
            (handled, two)
        });
        leaving.join().unwrap();
        let (handled, three) = looking.join().unwrap();
        if handled == 1 {
            publish(&mut tx, 1);
        }
        let (more, mut two) = working.join().unwrap();
        assert_eq!((handled, more), (handled, 1));
        if handled == 0 {
            publish(&mut tx, 1);
            assert_eq!(work(&mut two), 1, "events were lost or handled twice");
        }
        drop((tx, two, three));
    });
}

#[test]
fn loom_twin_unpublished_adopted() {
    caught(
        "ticket::loom_a_ticket_stays_with_a_worker_that_waits",
        "unpublished-adopted",
        Caught::Message("events were lost"),
    );
}

/// Workers wait with tickets when the ring closes. The stage behind the pool reads all events and
/// nothing else, also after the workers have left.
#[test]
fn loom_tickets_end_with_the_ring() {
    explore(500, Some(1), || {
        let ring = ring(awake(), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 1));
        let working = [0, 1].map(|seat| {
            let mut worker = worker(&ring, 0, seat);
            thread::spawn(move || worker.for_each(|event, _| mark(event)).unwrap())
        });
        publish(&mut tx, 1);
        drop(tx);
        let handled: u64 = working.map(|working| working.join().unwrap()).iter().sum();
        assert_eq!(handled, 1, "events were lost or handled twice");
        let mut seen = Vec::new();
        rx.for_each(|&event, _| seen.push(event)).unwrap();
        assert_eq!(seen, [100], "handled events are not released");
    });
}

/// A ticket's position is given up. Its worker passes over it, and handles a later event.
#[test]
fn loom_a_ticket_is_given_up() {
    explore_unfenced(100, Some(3), || {
        let ring = ring(shared(awake()), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut worker, mut rx) =
            (shared_producer(&ring), worker(&ring, 0, 0), reader(&ring, 1));
        let working = thread::spawn(move || (work_on(&mut worker), worker));
        drop(tx.claim().unwrap());
        tx.publish(|event| *event = 1).unwrap();
        let (handled, worker) = working.join().unwrap();
        assert_eq!((handled, read_rest(&mut rx)), (1, 1));
        (tx, worker, rx)
    });
}

#[test]
fn loom_twin_given_up_ticket_kept() {
    caught("ticket::loom_a_ticket_is_given_up", "given-up-ticket-kept", ENDLESS);
}

/// Settings under which idle workers draw tickets and fall asleep.
fn asleep() -> Settings {
    Settings { placed: Some(8), ..blocking(4) }
}

/// Starts a thread with a worker that takes a single event.
fn take_one(mut worker: PoolUpdater<u64>) -> JoinHandle<PoolUpdater<u64>> {
    thread::spawn(move || {
        let mut batch = worker.batch(1).unwrap();
        batch.iter_mut().for_each(mark);
        batch.release();
        worker
    })
}

/// A worker draws a ticket and falls asleep. Another worker may take the ticket's event, and then
/// the next event wakes the first worker.
#[test]
fn loom_a_sleeping_worker_leaves_its_ticket() {
    explore(300, Some(3), || {
        let ring = ring(asleep(), &[(Write, 2, &[])]);
        let mut tx = producer(&ring);
        let (one, mut two) = (worker(&ring, 0, 0), worker(&ring, 0, 1));
        let working = take_one(one);
        publish(&mut tx, 1);
        if work(&mut two) == 1 {
            publish(&mut tx, 1);
        }
        drop((tx, two, working.join().unwrap()));
    });
}

/// A worker draws a ticket, while a task waits for any event. The event wakes the worker if it
/// sleeps, and otherwise need not wake the task.
#[test]
fn loom_a_ticket_beside_a_waiting_task() {
    explore(300, Some(3), || {
        let ring = ring(asleep(), &[(Write, 2, &[])]);
        let mut tx = producer(&ring);
        let (one, mut two) = (worker(&ring, 0, 0), worker(&ring, 0, 1));
        assert!(!two.position().arm(Waker::noop()));
        let working = take_one(one);
        publish(&mut tx, 1);
        drop(working.join().unwrap());
        drop((tx, two));
    });
}

/// A worker leaves its ticket, and then does not poll for long, because it sleeps by a timer.
/// Another worker gets the event.
#[test]
fn loom_a_left_ticket_wakes_another_worker() {
    explore(300, Some(2), || {
        let ring = ring(asleep(), &[(Write, 2, &[])]);
        let mut tx = producer(&ring);
        let (mut one, two) = (worker(&ring, 0, 0), worker(&ring, 0, 1));
        one.position().draw();
        let leaving = thread::spawn(move || {
            assert!(one.position().may_sleep());
            one
        });
        let working = take_one(two);
        publish(&mut tx, 1);
        drop((tx, working.join().unwrap(), leaving.join().unwrap()));
    });
}

/// A worker that has left its ticket finds the end of the ring, and the stage behind the pool sees
/// the event.
#[test]
fn loom_a_left_ticket_ends_with_the_ring() {
    explore(200, Some(2), || {
        let ring = ring(asleep(), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 1));
        let (mut one, two) = (worker(&ring, 0, 0), worker(&ring, 0, 1));
        let working = thread::spawn(move || one.for_each(|event, _| mark(event)).unwrap());
        publish(&mut tx, 1);
        drop(tx);
        assert_eq!(working.join().unwrap(), 1, "events were lost or handled twice");
        let mut seen = Vec::new();
        rx.for_each(|&event, _| seen.push(event)).unwrap();
        assert_eq!(seen, [100], "handled events are not released");
        drop(two);
    });
}

/// Declares a test for each twin of the models of sleeping workers. In each twin's deadlock, a
/// worker stays asleep.
macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("ticket::", $model), $twin, Caught::Deadlock(&["s0"]));
            }
        )+
    };
}
twins! {
    loom_twin_ticket_kept: "loom_a_sleeping_worker_leaves_its_ticket", "ticket-kept";
    loom_twin_left_ticket_unnotified:
        "loom_a_left_ticket_wakes_another_worker", "left-ticket-unnotified";
    loom_twin_left_tickets_unasked: "loom_a_ticket_beside_a_waiting_task", "left-tickets-unasked";
}
