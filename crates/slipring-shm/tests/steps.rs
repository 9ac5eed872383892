//! Processes that are killed or stopped at each step of making, attaching to, recovering and
//! removing a segment.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::thread;

use common::*;
use rustix::process::Signal;
use slipring_shm::parts::lock;
use slipring_shm::{errors::Problem, summaries::Liveness};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[
        ("create", role_create),
        ("attach", role_attach),
        ("recover", role_recover),
        ("remove", role_remove),
    ]);
}

fn role_create() {
    let made =
        Test::create(value("NAME")).capacity(4).without_ring().participants(8).build().unwrap();
    let attached = attach(&made);
    say(attached.participant());
    listen();
}

/// Attaches, reports its number, waits, and leaves.
fn role_attach() {
    let attached = attach(&Test::open(value("NAME")).unwrap());
    say(attached.participant());
    if std::env::var("LEAVE").is_ok() {
        return;
    }
    listen();
}

fn role_recover() {
    let attached = attach(&Test::open(value("NAME")).unwrap());
    let dead = value("DEAD").parse().unwrap();
    let claim = attached.participation().claim_dead(dead).unwrap().expect("it is dead");
    claim.finish();
    say("recovered");
    listen();
}

fn role_remove() {
    match slipring_shm::remove(value("NAME")) {
        Ok(()) => say("removed"),
        Err(error) => say(error),
    }
}

#[test]
fn a_creator_killed_at_any_step_leaves_nothing_or_a_whole_segment() {
    let _watched = watched();
    for step in ["tmpfile", "written", "filled", "locked"] {
        let name = Name::new();
        Role::killed_at("create", step, &[("NAME", &name.0)]);
        assert!(!name.path().exists(), "{step}");
        assert_problem!(Test::open(&name.0), Problem::Missing);
    }
    for step in ["linked", "mapped", "taken", "unguarded", "attached"] {
        let name = Name::new();
        Role::killed_at("create", step, &[("NAME", &name.0)]);
        assert_problem!(Test::create(&name.0).capacity(4).without_ring().build(), Problem::Exists);
        assert!(slipring_shm::inspect(&name.0).unwrap().stale, "{step}");
        let attached = name.attach();
        assert_problem!(slipring_shm::remove(&name.0), Problem::InUse { .. });
        drop(attached);
        slipring_shm::remove(&name.0).unwrap();
        assert!(!name.path().exists());
    }
}

#[test]
fn a_participant_killed_at_any_step_has_not_begun_or_is_dead() {
    let _watched = watched();
    let before = ["registered", "opened", "guarded", "compared", "mapped", "taken", "unguarded"];
    for step in [&before[..], &["closed", "attached", "leaving", "left"]].concat() {
        let name = Name::new();
        let me = attach(&name.make());
        Role::killed_at("attach", step, &[("NAME", &name.0), ("LEAVE", "1")]);
        assert!((0..=8).all(|number| number == 1 || !held(&name.path(), number)), "{step}");
        let expected = match step {
            "attached" | "leaving" => Liveness::Dead,
            _ => Liveness::Free,
        };
        assert_eq!(me.liveness(2).unwrap(), expected, "{step}");
        // As long as the dead participant's place is not recovered, a new participant gets another
        // place.
        let next = name.attach().participant();
        assert_eq!(next, if expected == Liveness::Dead { 3 } else { 2 }, "{step}");
        drop(me);
        slipring_shm::remove(&name.0).unwrap();
    }
}

#[test]
fn a_recoverer_killed_at_any_step_has_a_successor() {
    let _watched = watched();
    for step in ["claim-opened", "claimed", "recovered", "unclaimed"] {
        let name = Name::new();
        let me = attach(&name.make());
        Role::killed_at("attach", "attached", &[("NAME", &name.0)]);
        assert_eq!(me.liveness(2).unwrap(), Liveness::Dead);
        Role::killed_at("recover", step, &[("NAME", &name.0), ("DEAD", "2")]);
        let claim = me.participation().claim_dead(2).unwrap().expect("no lock is left");
        let open = matches!(step, "claim-opened" | "claimed");
        assert_eq!(claim.needs_recovery(), open, "{step}");
        claim.finish();
        assert_eq!(me.liveness(2).unwrap(), Liveness::Free);
    }
}

#[test]
fn a_stopped_recoverer_is_waited_for() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    Role::killed_at("attach", "attached", &[("NAME", &name.0)]);
    let mut role = Role::stopping("recover", "claimed", &[("NAME", &name.0), ("DEAD", "2")]);
    assert!(me.participation().claim_dead(2).unwrap().is_none());
    role.tell("go on");
    assert_eq!(role.hear(), "recovered");
    assert!(!me.participation().claim_dead(2).unwrap().unwrap().needs_recovery());
}

#[test]
fn a_remover_killed_at_any_step_leaves_a_usable_segment_or_none() {
    let _watched = watched();
    for step in ["remove-opened", "remove-guarded", "remove-compared", "remove-locked"] {
        let name = Name::new();
        drop(name.make());
        Role::killed_at("remove", step, &[("NAME", &name.0)]);
        assert_eq!(name.attach().participant(), 1, "{step}");
        slipring_shm::remove(&name.0).unwrap();
    }
    let name = Name::new();
    drop(name.make());
    Role::killed_at("remove", "remove-unlinked", &[("NAME", &name.0)]);
    assert_problem!(Test::open(&name.0), Problem::Missing);
    assert_eq!(attach(&name.make()).participant(), 1);
}

#[test]
fn nothing_is_removed_between_the_link_and_the_creators_attaching() {
    let _watched = watched();
    let name = Name::new();
    for step in ["linked", "opened", "unguarded"] {
        let mut role = Role::stopping("create", step, &[("NAME", &name.0)]);
        let error = slipring_shm::remove(&name.0).unwrap_err();
        assert!(matches!(error.problem(), Problem::Busy), "{step}: {error}");
        assert!(!slipring_shm::inspect(&name.0).unwrap().stale);
        role.tell("go on");
        assert_eq!(role.hear(), "1");
        role.kill();
        slipring_shm::remove(&name.0).unwrap();
    }
}

#[test]
fn an_attaching_process_cannot_lose_its_segment() {
    let _watched = watched();
    for (step, busy) in [("compared", true), ("taken", true), ("unguarded", false)] {
        let name = Name::new();
        drop(name.make());
        let mut role = Role::stopping("attach", step, &[("NAME", &name.0)]);
        let error = slipring_shm::remove(&name.0).unwrap_err();
        match error.problem() {
            Problem::Busy if busy => {}
            Problem::InUse { participant: 1 } if !busy => {}
            _ => panic!("{step}: {error}"),
        }
        role.tell("go on");
        assert_eq!(role.hear(), "1");
        assert_eq!(slipring_shm::inspect(&name.0).unwrap().participants.len(), 1);
    }
}

#[test]
fn who_attaches_to_a_segment_made_anew_attaches_to_the_named_file() {
    let _watched = watched();
    for step in ["registered", "opened"] {
        let name = Name::new();
        let first = name.make();
        drop(attach(&first));
        let mut role = Role::stopping("attach", step, &[("NAME", &name.0)]);
        slipring_shm::remove(&name.0).unwrap();
        let second = attach(&name.make());
        role.tell("go on");
        assert_eq!(role.hear(), "2", "{step}");
        assert_eq!(second.liveness(2).unwrap(), Liveness::Alive, "{step}");
        // A process that had opened the old file also attaches to the new one.
        assert_eq!(attach(&first).participant(), 3);
    }
    let name = Name::new();
    drop(name.make());
    let opened = Test::open(&name.0).unwrap();
    slipring_shm::remove(&name.0).unwrap();
    assert_problem!(try_attach(&opened), Problem::Missing);
}

#[test]
fn a_slow_remover_does_not_remove_the_next_segment() {
    let _watched = watched();
    let name = Name::new();
    drop(name.make());
    let mut role = Role::stopping("remove", "remove-opened", &[("NAME", &name.0)]);
    slipring_shm::remove(&name.0).unwrap();
    let me = attach(&name.make());
    role.tell("go on");
    let said = role.hear();
    assert!(said.contains("participant 1 is attached"), "{said}");
    assert!(name.path().exists());
    drop(me);
    slipring_shm::remove(&name.0).unwrap();
}

#[test]
fn a_stopped_remover_holds_attaching_up_and_its_death_does_not() {
    let _watched = watched();
    let name = Name::new();
    drop(name.make());
    let role = Role::stopping("remove", "remove-locked", &[("NAME", &name.0)]);
    let segment = Test::open(&name.0).unwrap();
    assert_problem!(try_attach(&segment), Problem::Busy);
    let attaching = thread::spawn(move || {
        loop {
            match try_attach(&segment) {
                Ok(attached) => break attached.participant(),
                Err(error) => assert!(matches!(error.problem(), Problem::Busy), "{error}"),
            }
        }
    });
    role.signal(Signal::KILL);
    assert_eq!(attaching.join().unwrap(), 1);
    assert!(!held(&name.path(), lock::GUARD));
}
