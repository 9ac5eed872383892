//! Models of an executor: threads that take turns at stages, hand stages on to each other, and
//! sleep.
//!
//! The models have two threads of an executor on rings of two slots, with `Wait::Blocking`. A
//! handler that blocks keeps its thread, so a stage that is not handed on causes a deadlock.

use loom::sync::Notify;
use loom::thread;

use super::*;
use crate::base::turn::InTurns;
use crate::consumer::sequential::StagePosition;
use crate::ring::control::Control;
use crate::ring::events::At;
use crate::run::entry::Supervisor;
use crate::run::executor::Executor;
use crate::run::handlers::ReadEach;
use crate::run::judge::Judges;
use crate::run::runner::{BoxedRunner, StageRunner};
use Access::Read;

/// Two threads take turns at a value. loom would report two uses that the turns do not order.
#[test]
fn loom_turns_follow_each_other() {
    explore_unfenced(20, None, || {
        let value = Arc::new(InTurns::new(0));
        let other = value.clone();
        let adding = thread::spawn(move || other.take().map(|mut turn| *turn += 1).is_some());
        let here = value.take().map(|mut turn| *turn += 1).is_some();
        let there = adding.join().unwrap();
        assert!(here || there, "one of the two gets the turn");
        assert_eq!(*value.take().expect("both are gone"), u32::from(here) + u32::from(there));
    });
}

/// A thread stores a value, finds the turn taken, and leaves a mark. The thread that has the turn
/// finds the mark, and must see the value.
#[test]
fn loom_a_mark_brings_what_its_thread_has_seen() {
    explore_unfenced(10, None, || {
        let value = Arc::new((InTurns::new(()), loom::cell::UnsafeCell::new(0)));
        let other = value.clone();
        let wanting = thread::spawn(move || {
            // Nothing but the mark orders this access before the other thread's.
            other.1.with_mut(|seen| {
                // SAFETY: loom tracks the access, and fails the model if there is a race.
                unsafe { *seen = 7 };
            });
            other.0.take().is_none()
        });
        let marked = value.0.take().map(|turn| turn.give_back());
        if marked == Some(true) {
            // SAFETY: as for the store: loom fails the model at a race.
            value.1.with(|seen| assert_eq!(unsafe { *seen }, 7));
        }
        let refused = wanting.join().unwrap();
        assert_eq!(refused, marked == Some(true), "the mark is found");
    });
}

type Handler = Box<dyn FnMut(&u64, At) + Send>;

/// Returns the executor of a ring's stages, each with its handler.
fn executor(ring: &Ring, handlers: Vec<Handler>) -> Arc<Executor<'static>> {
    let runner = |(stage, handler): (usize, Handler)| {
        let position = StagePosition::new(ring.clone(), stage, HandleLearner::default());
        Box::new(StageRunner::new(position, ReadEach::new(handler), Judges::default()))
            as BoxedRunner<'static>
    };
    let runners = handlers.into_iter().enumerate().map(runner).collect();
    Executor::new(&ring.control.plan, runners, 2).expect("stages")
}

/// Returns a ring whose stages read events on an executor. `stages` lists the dependencies of each
/// stage.
fn shared_ring(stages: &[&[usize]]) -> Ring {
    let mut specs = named(stages.iter().map(|&after| (Read, Delivery::Each, after)));
    for spec in &mut specs {
        spec.thread = ThreadChoice::Shared(2);
        spec.policy.max_batch = 1;
    }
    build(blocking(2), specs, Vec::new(), &mut || u64::MAX).expect("a sound graph")
}

/// Returns the supervisor of a thread of the executor, or of the producer's thread (number 1).
fn supervisor(control: &Control, thread: usize) -> Supervisor<'_, 'static> {
    Supervisor { control, on_faults: None, thread }
}

/// Starts a thread of the executor.
fn working(ring: &Ring, executor: &Arc<Executor<'static>>) -> thread::JoinHandle<()> {
    let (ring, executor) = (ring.clone(), executor.clone());
    thread::spawn(move || {
        executor.work(supervisor(&ring.control, 0));
        executor.leave(&ring.control);
    })
}

/// A producer that waits for room handles one event of two, and then waits for something else. The
/// other thread handles the second event.
#[test]
fn loom_events_that_a_turn_leaves_are_handed_on() {
    explore(500, Some(2), || {
        let ring = shared_ring(&[&[]]);
        let both = Arc::new(Notify::new());
        let (mut seen, done) = (0, both.clone());
        let handler = move |_: &u64, _| {
            seen += 1;
            if seen == 2 {
                done.notify();
            }
        };
        let executor = executor(&ring, vec![Box::new(handler)]);
        let mut tx = producer(&ring);
        (0..2).for_each(|_| _ = tx.publish(|event| *event = 7).unwrap());
        let working = working(&ring, &executor);
        executor.help_once(supervisor(&ring.control, 1));
        both.wait();
        drop(tx);
        working.join().unwrap();
        executor.leave(&ring.control);
    });
}

/// A producer that waits for room runs a stage, and then waits for something else. The other thread
/// runs the next stage.
#[test]
fn loom_a_stage_that_a_turn_makes_ready_is_handed_on() {
    explore(500, Some(2), || {
        let ring = shared_ring(&[&[], &[0]]);
        let ran = Arc::new(Notify::new());
        let done = ran.clone();
        let handlers: Vec<Handler> = vec![Box::new(|_, _| ()), Box::new(move |_, _| done.notify())];
        let executor = executor(&ring, handlers);
        let mut tx = producer(&ring);
        tx.publish(|event| *event = 7).unwrap();
        let working = working(&ring, &executor);
        // The first turn starts the later stage.
        (0..2).for_each(|_| _ = executor.help_once(supervisor(&ring.control, 1)));
        ran.wait();
        drop(tx);
        working.join().unwrap();
        executor.leave(&ring.control);
    });
}

/// A producer that waits for room runs a stage, and leaves. An event comes while the producer has
/// the stage's turn, so the thread that the event wakes cannot poll the stage.
#[test]
fn loom_a_helper_that_leaves_hands_its_stage_on() {
    explore(100, Some(2), || {
        let ring = shared_ring(&[&[]]);
        let executor = executor(&ring, vec![Box::new(|_, _| ())]);
        let mut tx = producer(&ring);
        tx.publish(|event| *event = 0).unwrap();
        let publishing = thread::spawn(move || {
            tx.publish(|event| *event = 1).unwrap();
            drop(tx);
        });
        let working = working(&ring, &executor);
        executor.help_once(supervisor(&ring.control, 1));
        publishing.join().unwrap();
        working.join().unwrap();
        executor.leave(&ring.control);
    });
}

#[test]
fn loom_twin_turn_unacquired() {
    caught("executor::loom_turns_follow_each_other", "turn-unacquired", Caught::Race);
}

#[test]
fn loom_twin_turn_unreleased() {
    caught("executor::loom_turns_follow_each_other", "turn-unreleased", Caught::Race);
}

#[test]
fn loom_twin_want_unreleased() {
    caught(
        "executor::loom_a_mark_brings_what_its_thread_has_seen",
        "want-unreleased",
        Caught::Race,
    );
}

#[test]
fn loom_twin_want_unacquired() {
    caught(
        "executor::loom_a_mark_brings_what_its_thread_has_seen",
        "want-unacquired",
        Caught::Race,
    );
}

#[test]
fn loom_twin_want_unmarked() {
    caught(
        "executor::loom_a_helper_that_leaves_hands_its_stage_on",
        "want-unmarked",
        Caught::Deadlock(&["s0"]),
    );
}

#[test]
fn loom_twin_want_ignored() {
    caught(
        "executor::loom_a_helper_that_leaves_hands_its_stage_on",
        "want-ignored",
        Caught::Deadlock(&["s0"]),
    );
}

#[test]
fn loom_twin_rest_kept() {
    caught(
        "executor::loom_events_that_a_turn_leaves_are_handed_on",
        "rest-kept",
        Caught::Deadlock(&["s0"]),
    );
}

#[test]
fn loom_twin_followers_kept() {
    caught(
        "executor::loom_a_stage_that_a_turn_makes_ready_is_handed_on",
        "followers-kept",
        Caught::Deadlock(&["s1"]),
    );
}
