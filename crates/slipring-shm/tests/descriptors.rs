//! Tests of processes that have no file descriptor left. An attached process still learns of deaths
//! and recovers the dead. A process that tries to attach gets an error with the reason.
//!
//! No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slipring::{errors::WaitError, handles::StartAt};
use slipring_shm::{Attached, Builder, OnDeath, Segment};

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process needs no watchdog, because the process that waits for it has one.
    drop(_watched);
    play(&[("die", role_die), ("starve", role_starve), ("attach", role_attach)]);
}

fn attach(segment: &Segment<u64>) -> Attached<u64> {
    // SAFETY: only these tests know the segment.
    unsafe { segment.attach().unwrap() }
}

/// Lets this process open only `left` more descriptors. Those in use stay open.
fn leave(left: u64) {
    // A new file always gets the lowest free number, and no other thread of this process opens a
    // file.
    let free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let limit = Rlimit { current: Some(free + left), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(File::open("/dev/null").is_ok(), left != 0);
}

/// Takes a place, leaves something behind, and waits to be killed.
fn role_die() {
    let me = attach(&Segment::open(value("NAME")).unwrap());
    let stay = || {
        say("taken");
        listen();
    };
    match value("PLACE").as_str() {
        "member" => {
            let _member = me.subscribe("tap", StartAt::Now).unwrap();
            stay();
        }
        "worker" => {
            let mut worker = me.pool_reader("pool").unwrap();
            let _chunk = worker.batch(1).unwrap();
            stay();
        }
        "claim" => {
            let mut tx = me.shared_producer().unwrap();
            let _claim = tx.claim().unwrap();
            stay();
        }
        "producer" => {
            let _tx = me.producer().unwrap();
            stay();
        }
        _ => {
            let _reader = me.reader("stage").unwrap();
            stay();
        }
    }
}

/// Takes a place, uses up this process's descriptors, and reports what a waiting call returns.
fn role_starve() {
    let me = attach(&Segment::open(value("NAME")).unwrap());
    let starve = || {
        leave(0);
        say("starved");
    };
    let told = |error: WaitError| match error {
        WaitError::PeerDead(dead) => format!("dead {}", dead.stage),
        WaitError::Failed(failure) => format!("failed {}", failure.stage()),
        WaitError::Closed => "closed".into(),
        error => error.to_string(),
    };
    let said = match value("PLACE").as_str() {
        "producer" => {
            let mut tx = me.producer().unwrap();
            while tx.try_publish(|slot| *slot = 1).is_ok() {}
            starve();
            tx.publish(|_| ()).map_or_else(told, |seq| format!("published {seq}"))
        }
        "worker" => {
            let mut worker = me.pool_reader("pool").unwrap();
            starve();
            let read = worker.batch(1).map(|batch| format!("read {}", batch.first_seq()));
            read.unwrap_or_else(told)
        }
        _ => {
            let mut reader = me.reader("stage").unwrap();
            starve();
            let read = reader.batch(1).map(|batch| format!("read {}", batch.first_seq()));
            read.unwrap_or_else(told)
        }
    };
    say(said);
}

fn start(name: &Name, role: &str, place: &str) -> Role {
    Role::start(role, &[("NAME", name.0.as_str()), ("PLACE", place)])
}

fn dying(name: &Name, place: &str) -> Role {
    let mut role = start(name, "die", place);
    assert_eq!(role.hear(), "taken");
    role
}

fn starved(name: &Name, place: &str) -> Role {
    let mut role = start(name, "starve", place);
    assert_eq!(role.hear(), "starved");
    role
}

fn made(name: &Name) -> Builder<u64> {
    Segment::<u64>::create(&name.0).capacity(4).notice(Duration::from_millis(5))
}

#[test]
fn a_dead_member_of_a_tap_is_removed() {
    let _watched = watched();
    let name = Name::new();
    let _segment = made(&name).tap("tap", 2).build().unwrap();
    let victim = dying(&name, "member");
    let mut producer = starved(&name, "producer");
    victim.kill();
    assert_eq!(producer.hear(), "published 4");
}

#[test]
fn a_dead_workers_events_are_adopted() {
    let _watched = watched();
    let name = Name::new();
    let segment = made(&name).pool_reader("pool", 2).build().unwrap();
    let me = attach(&segment);
    let mut tx = me.producer().unwrap();
    tx.publish(|_| ()).unwrap();
    let victim = dying(&name, "worker");
    let mut worker = starved(&name, "worker");
    victim.kill();
    assert_eq!(worker.hear(), "read 0");
}

#[test]
fn a_dead_producers_claim_is_given_up() {
    let _watched = watched();
    let name = Name::new();
    let segment = made(&name).producers(2).reader("stage").build().unwrap();
    let me = attach(&segment);
    let victim = dying(&name, "claim");
    let mut tx = me.shared_producer().unwrap();
    tx.publish(|_| ()).unwrap();
    let mut reader = starved(&name, "stage");
    victim.kill();
    assert_eq!(reader.hear(), "read 1");
}

#[test]
fn a_dead_producer_closes_the_ring() {
    let _watched = watched();
    let name = Name::new();
    let _segment = made(&name).reader("stage").producer_on_death(OnDeath::Close).build().unwrap();
    let victim = dying(&name, "producer");
    let mut reader = starved(&name, "stage");
    victim.kill();
    assert_eq!(reader.hear(), "closed");
}

#[test]
fn a_death_is_told_or_fails_the_ring() {
    let _watched = watched();
    for (on_death, said) in [(OnDeath::Tell, "dead stage"), (OnDeath::Fail, "failed stage")] {
        let name = Name::new();
        let _segment = made(&name).reader("stage").on_death(on_death).build().unwrap();
        let victim = dying(&name, "stage");
        let mut producer = starved(&name, "producer");
        victim.kill();
        assert_eq!(producer.hear(), said);
    }
}

/// Attaches with a given number of descriptors left. Reports the participant's number, or the
/// error.
fn role_attach() {
    let segment = Segment::<u64>::open(value("NAME")).unwrap();
    leave(value("LEFT").parse().unwrap());
    // SAFETY: only these tests know the segment.
    match unsafe { segment.attach() } {
        Ok(me) => say(me.participant()),
        Err(error) => say(error),
    }
}

/// For a moment, attaching needs more descriptors than it keeps. If there are too few, it fails
/// with the reason. In the second round, dead processes hold all places at first.
#[test]
fn attaching_without_descriptors_is_refused_with_the_reason() {
    let _watched = watched();
    for dead in [false, true] {
        let name = Name::new();
        let segment = made(&name).reader("stage").participants(2).build().unwrap();
        let me = attach(&segment);
        let mut attached = 0;
        for left in 0..5u32 {
            if dead {
                let mut victim = start(&name, "die", "stage");
                assert_eq!(victim.hear(), "taken");
                victim.kill();
            }
            let left = left.to_string();
            let values = [("NAME", name.0.as_str()), ("LEFT", left.as_str())];
            match Role::start("attach", &values).hear().as_str() {
                "2" => {
                    let record = me.participation().record(2).unwrap();
                    assert_ne!(record.start_time.load(Relaxed), 0, "it could not read `/proc`");
                    attached += 1;
                }
                said => {
                    let names = said.contains("no file descriptor left") && said.contains("limit");
                    assert!(names && attached == 0, "{left} left: {said}");
                }
            }
        }
        assert_eq!(attached, 3, "two descriptors are enough");
    }
}
