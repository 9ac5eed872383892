//! Models of a graph's endings: a close, a halt or a failure reaches every handle, and a close
//! loses no published event.
//!
//! The models have up to two producers and up to two stages, on rings of 1 or 2 slots. Most models
//! wait with a strategy that sleeps.

use loom::thread;

use super::*;
use crate::base::model_hooks::unwind;
use crate::errors::{Cause, ClaimError, WaitError};
use Access::{Read, Write};

/// A stage drains the events that were published before the close, and then ends.
#[test]
fn loom_a_close_drains() {
    explore(600, Some(3), || {
        // The word `final_seq` holds 0 until the close stores the final position. A stage that sees
        // the closed bit, but loads the old 0, ends at position 0, where the ring of this model
        // starts. It would lose the published event, and the model would fail.
        let ring = ring(Settings::new(2), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let publishing = thread::spawn(move || {
            tx.publish(|event| *event = 7).unwrap();
        });
        assert_eq!(rx.for_each(|&event, _| assert_eq!(event, 7)).unwrap(), 1, "events were lost");
        publishing.join().unwrap();
    });
}

#[test]
fn loom_twin_closed_before_final() {
    caught(
        "ending::loom_a_close_drains",
        "closed-before-final",
        Caught::Message("events were lost"),
    );
}

#[test]
fn loom_twin_closed_relaxed() {
    caught("ending::loom_a_close_drains", "closed-relaxed", Caught::Message("events were lost"));
}

#[test]
fn loom_twin_closed_seen_relaxed() {
    caught(
        "ending::loom_a_close_drains",
        "closed-seen-relaxed",
        Caught::Message("events were lost"),
    );
}

#[test]
fn loom_twin_closed_unnotified() {
    caught("ending::loom_a_close_drains", "closed-unnotified", Caught::Deadlock(&["s0"]));
}

/// Of two producers, the last one to drop its handle closes the ring. It stores the ring's final
/// position, which is behind all events of both producers.
#[test]
fn loom_the_last_producer_closes() {
    explore(6_000, Some(2), || {
        let ring = ring(shared(blocking(2)), &[(Read, 0, &[])]);
        let (one, two, mut rx) = (shared_producer(&ring), shared_producer(&ring), reader(&ring, 0));
        let publishing = [one, two].map(|mut tx| {
            thread::spawn(move || {
                tx.publish(|event| *event = 7).unwrap();
            })
        });
        assert_eq!(rx.for_each(|&event, _| assert_eq!(event, 7)).unwrap(), 2, "events were lost");
        publishing.into_iter().for_each(|publishing| publishing.join().unwrap());
    });
}

#[test]
fn loom_twin_closed_short() {
    caught("ending::loom_the_last_producer_closes", "closed-short", Caught::Deadlock(&["s0"]));
}

/// One of two producer threads unwinds, and the producer handle that is dropped last closes the
/// ring. A stage that sees the close also sees the failure.
#[test]
fn loom_a_failure_comes_before_the_close() {
    explore(200, Some(3), || {
        let ring = ring(shared(Settings::new(2)), &[(Read, 0, &[])]);
        let (one, two, mut rx) = (shared_producer(&ring), shared_producer(&ring), reader(&ring, 0));
        let unwinding = thread::spawn(move || {
            unwind();
            drop(one);
        });
        let going = thread::spawn(move || drop(two));
        let ended = rx.for_each(|_, _| ());
        assert!(matches!(ended, Err(WaitError::Failed(_))), "closed without the failure");
        unwinding.join().unwrap();
        going.join().unwrap();
    });
}

#[test]
fn loom_twin_failed_late() {
    caught(
        "ending::loom_a_failure_comes_before_the_close",
        "failed-late",
        Caught::Message("closed without the failure"),
    );
}

/// A claim races with `close_all`: either the claim is refused, or the claimed event is drained.
#[test]
fn loom_a_claim_races_with_a_close() {
    explore(10_000, Some(3), || {
        let ring = ring(shared(Settings::new(2)), &[(Read, 0, &[])]);
        let (one, mut two, mut rx) =
            (shared_producer(&ring), shared_producer(&ring), reader(&ring, 0));
        let closing = thread::spawn(move || one.close_all());
        let publishing = thread::spawn(move || match two.try_publish(|event| *event = 7) {
            Ok(_) => 1,
            Err(ClaimError::Contended | ClaimError::Wait(WaitError::Closed)) => 0,
            Err(other) => panic!("{other}"),
        });
        let seen = rx.for_each(|&event, _| assert_eq!(event, 7)).unwrap();
        closing.join().unwrap();
        assert_eq!(seen, publishing.join().unwrap(), "a claim succeeded behind the close");
    });
}

#[test]
fn loom_twin_close_by_load() {
    caught(
        "ending::loom_a_claim_races_with_a_close",
        "close-by-load",
        Caught::Message("a claim succeeded behind the close"),
    );
}

/// `close_all` wakes a producer that sleeps at a full ring, and the sleeping producer's claim is
/// refused.
#[test]
fn loom_a_close_wakes_the_producers() {
    explore(200, Some(3), || {
        let ring = ring(shared(blocking(1)), &[(Read, 0, &[])]);
        let (mut one, mut two, rx) =
            (shared_producer(&ring), shared_producer(&ring), reader(&ring, 0));
        one.publish(|event| *event = 0).unwrap();
        let publishing =
            thread::spawn(move || assert!(matches!(two.publish(|_| ()), Err(WaitError::Closed))));
        one.close_all();
        publishing.join().unwrap();
        drop(rx);
    });
}

#[test]
fn loom_twin_closed_unnotified_to_the_producers() {
    caught(
        "ending::loom_a_close_wakes_the_producers",
        "closed-unnotified",
        Caught::Deadlock(&["producer"]),
    );
}

/// A halt wakes a sleeping reader.
#[test]
fn loom_a_halt_wakes() {
    explore(60, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let (tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let reading = thread::spawn(move || {
            assert!(matches!(rx.batch(1).map(|_| ()), Err(WaitError::Halted)))
        });
        tx.halt();
        reading.join().unwrap();
    });
}

#[test]
fn loom_twin_halted_unnotified() {
    caught("ending::loom_a_halt_wakes", "halted-unnotified", Caught::Deadlock(&["s0"]));
}

/// Shows that a stage that fails by dropping its handle wakes the producer and the next stage. Each
/// of them gets an error with the name of the failed stage.
#[test]
fn loom_a_failure_wakes_all_sleepers() {
    explore(30_000, Some(3), || {
        let ring = ring(blocking(1), &[(Write, 0, &[]), (Read, 0, &[0])]);
        let (mut tx, middle, mut rx) = (producer(&ring), writer(&ring, 0), reader(&ring, 1));
        tx.publish(|event| *event = 0).unwrap();
        let names_the_stage = |error: WaitError| match error {
            WaitError::Failed(failure) => assert_eq!(&**failure.stage(), "s0"),
            other => panic!("{other}"),
        };
        let publishing = thread::spawn(move || names_the_stage(tx.publish(|_| ()).unwrap_err()));
        let reading = thread::spawn(move || names_the_stage(rx.batch(1).map(|_| ()).unwrap_err()));
        drop(middle);
        publishing.join().unwrap();
        reading.join().unwrap();
    });
}

#[test]
fn loom_twin_failed_unnotified() {
    caught(
        "ending::loom_a_failure_wakes_all_sleepers",
        "failed-unnotified",
        Caught::Deadlock(&["producer", "s1"]),
    );
}

/// Two stages fail at the same time. A thread that sees the failed bit finds a stored failure, and
/// all threads find the same failure.
#[test]
fn loom_a_failure_states_its_reason() {
    explore(70, None, || {
        let ring = ring(settings(1), &[(Read, 0, &[]), (Read, 0, &[])]);
        let failing = [0, 1].map(|stage| {
            let ring = ring.clone();
            thread::spawn(move || ring.control.fail(stage, None, Cause::Panic("model".into())))
        });
        let why = || match ring.control.status.stopped() {
            Some(WaitError::Failed(failure)) => failure.stage().clone(),
            _ => panic!("failed without a stored failure"),
        };
        let early = (!ring.control.status.is_running()).then(why);
        failing.into_iter().for_each(|failing| failing.join().unwrap());
        assert!(early.is_none_or(|early| early == why()), "the reason has changed");
    });
}

#[test]
fn loom_twin_failed_before_why() {
    caught(
        "ending::loom_a_failure_states_its_reason",
        "failed-before-why",
        Caught::Message("failed without a stored failure"),
    );
}

#[test]
fn loom_twin_last_failure_stays() {
    caught(
        "ending::loom_a_failure_states_its_reason",
        "last-failure-stays",
        Caught::Message("the reason has changed"),
    );
}

/// Shows that a stage that polls and never waits drains the events published before the close, and
/// then ends. The stage issues no fence, because a fence could hide that the closed bit is stored
/// or loaded too weakly.
#[test]
fn loom_a_close_is_seen_without_waiting() {
    explore_unfenced(50, None, || {
        // The word `final_seq` holds 0 until the close stores the final position. A stage that sees
        // the closed bit, but loads the old 0, ends at position 0, where the ring of this model
        // starts, and loses the published event.
        let ring = ring(Settings { start: 0, ..settings(2) }, &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let publishing = thread::spawn(move || {
            tx.publish(|event| *event = 7).unwrap();
        });
        let (mut seen, mut drained) = (0, false);
        for _ in 0..3 {
            match rx.poll(4, |&event, _| assert_eq!(event, 7)) {
                Ok(polled) => seen += polled,
                Err(WaitError::Closed) => drained = true,
                Err(other) => panic!("{other}"),
            }
        }
        publishing.join().unwrap();
        assert!(!drained || seen == 1, "events were lost");
        rx
    });
}

#[test]
fn loom_twin_closed_before_final_without_waiting() {
    caught(
        "ending::loom_a_close_is_seen_without_waiting",
        "closed-before-final",
        Caught::Message("events were lost"),
    );
}

#[test]
fn loom_twin_closed_relaxed_without_waiting() {
    caught(
        "ending::loom_a_close_is_seen_without_waiting",
        "closed-relaxed",
        Caught::Message("events were lost"),
    );
}

#[test]
fn loom_twin_closed_seen_relaxed_without_waiting() {
    caught(
        "ending::loom_a_close_is_seen_without_waiting",
        "closed-seen-relaxed",
        Caught::Message("events were lost"),
    );
}

/// One thread fails the graph, and another checks for a failure without waiting. Shows that the
/// lock around the stored failure suffices: a thread that sees the failed bit also finds the
/// failure.
#[test]
fn loom_a_failure_is_seen_without_waiting() {
    explore_unfenced(5, None, || {
        let ring = ring(settings(1), &[(Read, 0, &[])]);
        let failed = ring.clone();
        let failing =
            thread::spawn(move || failed.control.fail(0, None, Cause::Panic("model".into())));
        if !ring.control.status.is_running() {
            assert!(
                matches!(ring.control.status.stopped(), Some(WaitError::Failed(_))),
                "failed without a stored failure"
            );
        }
        failing.join().unwrap();
        ring
    });
}

#[test]
fn loom_twin_failed_before_why_without_waiting() {
    caught(
        "ending::loom_a_failure_is_seen_without_waiting",
        "failed-before-why",
        Caught::Message("failed without a stored failure"),
    );
}
