//! Requests between processes: a request goes through a segment's ring, and a promise, which has
//! its own segment, brings the answer. The asker learns of the ring's end, no matter which process
//! ends it, and even if no stage has opened the promise yet.
//!
//! No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::time::Duration;

use common::*;
use slipring::{Wait, errors::WaitError};
use slipring_shm::{
    Attached, OnDeath, Reader, Segment,
    errors::PromiseError,
    evict,
    promises::{Awaited, PromiseSegment},
};

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process needs no watchdog, because the process that waits for it has one.
    drop(_watched);
    play(&[("stage", role_stage)]);
}

/// Takes the stage, and does what each line asks.
fn role_stage() {
    let ring = attach(&Segment::open(value("NAME")).unwrap());
    let mut reader = Some(take_stage(&ring));
    let promise = PromiseSegment::<u64>::open(value("ANSWER")).unwrap();
    say("takes the stage");
    loop {
        match (listen().as_str(), &mut reader) {
            ("pass", Some(reader)) => assert_eq!(reader.poll(8, |_, _| ()).unwrap(), 1),
            ("answer", _) => {
                // SAFETY: only these tests know the segment.
                unsafe { promise.promise() }.unwrap().fulfil(7).unwrap();
            }
            ("halt", _) => ring.shared_producer().unwrap().halt(),
            (other, _) => panic!("{other}"),
        }
        say("done");
    }
}

fn attach(segment: &Segment<u64>) -> Attached<u64> {
    // SAFETY: only these tests know the segment.
    unsafe { segment.attach().unwrap() }
}

fn take_stage(ring: &Attached<u64>) -> Reader<u64> {
    loop {
        match ring.reader("answer") {
            Ok(reader) => return reader,
            // A killed process may still hold the place.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// A ring with a request, and the promise that will bring its answer.
struct Asked {
    name: Name,
    answer_name: Name,
    ring: Attached<u64>,
    tx: Option<slipring_shm::SharedProducer<u64>>,
    promise: PromiseSegment<u64>,
    seq: u64,
}

impl Asked {
    fn new(on_death: OnDeath) -> Asked {
        let (name, answer_name) = (Name::new(), Name::new());
        let notice = Duration::from_millis(2);
        let builder = Segment::<u64>::create(&name.0).capacity(8).producers(2).reader("answer");
        let segment = builder.on_death(on_death).notice(notice).build().unwrap();
        let ring = attach(&segment);
        let promise = PromiseSegment::create(&answer_name.0).build().unwrap();
        let mut tx = ring.shared_producer().unwrap();
        let seq = tx.publish(|request| *request = 1).unwrap();
        Asked { name, answer_name, ring, tx: Some(tx), promise, seq }
    }

    /// Starts a process that has the stage.
    fn stage(&self) -> Role {
        let values = [("NAME", self.name.0.as_str()), ("ANSWER", self.answer_name.0.as_str())];
        let mut role = Role::start("stage", &values);
        assert_eq!(role.hear(), "takes the stage");
        role
    }

    fn awaited(&self) -> Awaited<u64> {
        // SAFETY: only these tests know the segment.
        unsafe { self.promise.awaited() }.unwrap().of_request(&self.ring, self.seq)
    }

    fn wait(&self) -> Result<u64, PromiseError> {
        self.awaited().wait().map(|value| value.take())
    }

    /// Waits for the answer on another thread, while `end` ends the ring.
    fn wait_while(&mut self, end: impl FnOnce(&mut Asked)) -> Result<u64, PromiseError> {
        let mut awaited = self.awaited();
        assert!(awaited.try_take().unwrap().is_none());
        let waits = std::thread::spawn(move || awaited.wait().map(|value| value.take()));
        std::thread::sleep(Duration::from_millis(3));
        end(self);
        waits.join().unwrap()
    }
}

#[test]
fn an_answer_comes_as_without_a_ring() {
    let _watched = watched();
    for wait in Wait::all() {
        let mut asked = Asked::new(OnDeath::Wait);
        asked.promise = PromiseSegment::open(&asked.answer_name.0).unwrap().with_wait(wait);
        let mut stage = asked.stage();
        let result = asked.wait_while(|_| {
            ["pass", "answer"].iter().for_each(|order| stage.tell(order));
        });
        assert_eq!(result.unwrap(), 7);
    }
}

#[test]
fn a_halt_by_another_process_ends_the_wait() {
    let _watched = watched();
    let mut asked = Asked::new(OnDeath::Wait);
    let mut stage = asked.stage();
    let result = asked.wait_while(|_| stage.tell("halt"));
    assert!(matches!(result, Err(PromiseError::Request(WaitError::Halted))), "{result:?}");
}

#[test]
fn a_killed_stage_that_fails_the_ring_ends_the_wait() {
    let _watched = watched();
    let mut asked = Asked::new(OnDeath::Fail);
    let stage = asked.stage();
    let result = asked.wait_while(|_| stage.kill());
    let Err(PromiseError::Request(WaitError::Failed(failure))) = result else {
        panic!("{result:?}")
    };
    assert_eq!(&**failure.stage(), "answer");
}

/// The asker gets an error because of the death, and waits again. The successor answers.
#[test]
fn a_death_is_told_and_a_successor_answers() {
    let _watched = watched();
    let mut asked = Asked::new(OnDeath::Tell);
    let stage = asked.stage();
    let pid = stage.pid();
    let result = asked.wait_while(|_| stage.kill());
    let Err(PromiseError::Request(WaitError::PeerDead(dead))) = result else {
        panic!("{result:?}")
    };
    assert_eq!((&*dead.stage, dead.pid), ("answer", pid));
    let mut next = asked.stage();
    let result = asked.wait_while(|_| next.tell("answer"));
    assert_eq!(result.unwrap(), 7);
}

/// If a death holds up the request, a loop of calls that do not wait learns of it, as declared.
#[test]
fn an_asker_that_polls_hears_of_a_death() {
    let _watched = watched();
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        let asked = Asked::new(on_death);
        let mut awaited = asked.awaited();
        let stage = asked.stage();
        assert!(awaited.try_take().unwrap().is_none());
        stage.kill();
        until(|| match awaited.try_take() {
            Ok(found) => found.is_some(),
            Err(PromiseError::Request(WaitError::PeerDead(dead))) => {
                assert_eq!((on_death, &*dead.stage), (OnDeath::Tell, "answer"));
                true
            }
            Err(PromiseError::Request(WaitError::Failed(failure))) => {
                assert_eq!((on_death, &**failure.stage()), (OnDeath::Fail, "answer"));
                true
            }
            Err(error) => panic!("{error}"),
        });
        if on_death == OnDeath::Tell {
            let mut next = asked.stage();
            next.tell("answer");
            assert_eq!(next.hear(), "done");
            assert_eq!(awaited.wait().unwrap().take(), 7);
        }
    }
}

/// If the stage is declared to wait for a successor, its process's death does not end the asker's
/// wait, even if the process was evicted.
#[test]
fn a_dead_or_evicted_stage_is_followed_by_a_successor() {
    let _watched = watched();
    for evicts in [false, true] {
        let mut asked = Asked::new(OnDeath::Wait);
        let stage = asked.stage();
        let name = asked.name.0.clone();
        let result = asked.wait_while(|asked| {
            if evicts {
                evict(&name, "answer").unwrap();
                drop(stage);
            } else {
                stage.kill();
            }
            let mut next = asked.stage();
            next.tell("answer");
            assert_eq!(next.hear(), "done");
        });
        assert_eq!(result.unwrap(), 7);
    }
}

/// If the ring is closed and the stage passes the request without opening the promise, the asker's
/// wait ends.
#[test]
fn a_drained_ring_ends_the_wait() {
    let _watched = watched();
    let mut asked = Asked::new(OnDeath::Wait);
    let mut stage = asked.stage();
    let result = asked.wait_while(|asked| {
        drop(asked.tx.take());
        // The stage may still answer.
        std::thread::sleep(Duration::from_millis(3));
        stage.tell("pass");
    });
    assert!(matches!(result, Err(PromiseError::Request(WaitError::Closed))), "{result:?}");
    // The stage still fulfils the promise, and the asker's next wait gets the answer.
    assert_eq!(stage.hear(), "done");
    stage.tell("answer");
    assert_eq!(stage.hear(), "done");
    assert_eq!(asked.wait().unwrap(), 7);
}

#[test]
fn an_askers_deadline_leaves_the_ring_as_it_is() {
    let _watched = watched();
    for wait in Wait::all() {
        let mut asked = Asked::new(OnDeath::Wait);
        let time = Duration::from_millis(3);
        let opened = || PromiseSegment::open(&asked.answer_name.0).unwrap();
        asked.promise = opened().with_wait(wait.or_timeout(time));
        assert!(matches!(asked.wait(), Err(PromiseError::TimedOut)));
        let result = asked.awaited().wait_for(time).map(|value| value.take());
        assert!(matches!(result, Err(PromiseError::TimedOut)), "{result:?}");
        let mut stage = asked.stage();
        stage.tell("answer");
        assert_eq!(stage.hear(), "done");
        assert_eq!(asked.wait().unwrap(), 7);
    }
}
