//! Tests of loops of calls that do not wait, while another process is really killed. `slipring`'s
//! `segment/polls_tests.rs` tests the calls of all handles, and other deaths.
//!
//! No test asserts how long a call takes: the watchdog finds a loop that never learns of a death.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::thread::sleep;
use std::time::{Duration, Instant};

use common::*;
use slipring::{
    errors::{BatchError, ClaimError, ConflateError, WaitError},
    handles::{Sent, StartAt},
};
use slipring_shm::{Attached, OnDeath, Segment, blocks::Blocks};

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process needs no watchdog, because the process that waits for it has one.
    drop(_watched);
    play(&[
        ("member", role_member),
        ("reader", role_reader),
        ("blocks", role_blocks),
        ("producer", role_producer),
    ]);
}

fn attach<C: slipring_shm::Contents>(segment: &Segment<C>) -> Attached<C> {
    // SAFETY: only these tests know the segment.
    unsafe { segment.attach().unwrap() }
}

fn open() -> Attached<u64> {
    attach(&Segment::open(value("NAME")).unwrap())
}

fn stay() {
    say("taken");
    listen();
}

/// Joins the tap, and reads nothing.
fn role_member() {
    let me = open();
    let _member = me.subscribe("tap", StartAt::Now).unwrap();
    stay();
}

/// Takes the stage, and reads nothing.
fn role_reader() {
    let me = open();
    let _reader = me.reader("stage").unwrap();
    stay();
}

fn role_producer() {
    let me = open();
    let _tx = me.producer().unwrap();
    stay();
}

fn role_blocks() {
    let me = attach(&Segment::<Blocks>::open(value("NAME")).unwrap());
    match value("PLACE").as_str() {
        "member" => {
            let _member = me.subscribe("tap", StartAt::Now).unwrap();
            stay();
        }
        _ => {
            let _tx = me.producer().unwrap();
            stay();
        }
    }
}

fn start(name: &Name, role: &str, place: &str) -> Role {
    let mut role = Role::start(role, &[("NAME", name.0.as_str()), ("PLACE", place)]);
    assert_eq!(role.hear(), "taken");
    role
}

/// A segment of four slots whose only stage is a tap.
fn tapped(name: &Name) -> Attached<u64> {
    attach(&Segment::create(&name.0).capacity(4).tap("tap", 2).build().unwrap())
}

/// A segment of four slots with a stage.
fn staged(name: &Name, on_death: OnDeath) -> Attached<u64> {
    let segment = Segment::create(&name.0).capacity(4).reader("stage").on_death(on_death);
    attach(&segment.producer_on_death(on_death).build().unwrap())
}

/// Fills the ring by a loop of `publish`, kills the process that holds up the ring, and repeats
/// `publish` until it has published again.
fn goes_on(victim: Role, mut publish: impl FnMut() -> bool) {
    while publish() {}
    victim.kill();
    until(publish);
}

#[test]
fn a_producer_that_drops_events_has_room_again() {
    let _watched = watched();
    let name = Name::new();
    let me = tapped(&name);
    let mut tx = me.producer().unwrap();
    let victim = start(&name, "member", "");
    goes_on(victim, || tx.publish_or_drop(|slot| *slot = 1).unwrap().is_some());
}

#[test]
fn a_conflator_has_room_again() {
    let _watched = watched();
    let name = Name::new();
    let me = tapped(&name);
    let tx = me.producer().unwrap();
    let mut conflator = tx.conflate(1, |slot, _: &u8, value| *slot = value).unwrap();
    let victim = start(&name, "member", "");
    goes_on(victim, || matches!(conflator.send(1, 7).unwrap(), Sent::Published(_)));
    assert_eq!(conflator.kept(), 0);
}

#[test]
fn calls_that_drop_or_keep_events_tell_of_a_death() {
    let _watched = watched();
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        let is_told = |error: &WaitError| match on_death {
            OnDeath::Tell => matches!(error, WaitError::PeerDead(_)),
            _ => matches!(error, WaitError::Failed(_)),
        };
        let name = Name::new();
        let me = staged(&name, on_death);
        let mut tx = me.producer().unwrap();
        let victim = start(&name, "reader", "");
        while tx.publish_or_drop(|slot| *slot = 1).unwrap().is_some() {}
        victim.kill();
        until(|| tx.publish_or_drop(|_| ()).is_err_and(|error| is_told(&error)));
        let mut conflator = tx.conflate(1, |slot, _: &u8, value| *slot = value).unwrap();
        until(|| match conflator.send(1, 7) {
            Err(ConflateError::Wait(error)) => is_told(&error),
            sent => sent.is_err(),
        });
    }
}

/// A loop that asks for the number of free slots ends once there are some, although the reader that
/// held the slots is dead. The test tries events, copies and blocks.
#[test]
fn a_loop_on_the_free_slots_has_room_again() {
    let _watched = watched();
    let name = Name::new();
    let me = tapped(&name);
    let mut tx = me.producer().unwrap();
    let victim = start(&name, "member", "");
    goes_on(victim, || tx.remaining() != 0 && tx.publish(|_| ()).is_ok());

    let name = Name::new();
    let segment = Segment::<u64>::create(&name.0).capacity(4).tap("tap", 2).build().unwrap();
    let copies = segment.attach_copies().unwrap();
    let mut tx = copies.producer().unwrap();
    let victim = start(&name, "member", "");
    goes_on(victim, || tx.remaining() != 0 && tx.publish(&1).is_ok());

    let name = Name::new();
    let builder = Segment::<Blocks>::create(&name.0).capacity(4).block(64, 8).tap("tap", 2);
    let me = attach(&builder.build().unwrap());
    let mut tx = me.producer().unwrap();
    let victim = start(&name, "blocks", "member");
    goes_on(victim, || tx.remaining() != 0 && tx.publish(|_| ()).is_ok());
}

#[test]
fn a_raw_consumer_of_blocks_is_told_of_a_death() {
    let _watched = watched();
    let name = Name::new();
    let builder = Segment::<Blocks>::create(&name.0).capacity(4).block(64, 8).reader("stage");
    let me = attach(&builder.producer_on_death(OnDeath::Tell).build().unwrap());
    let mut rx = me.reader("stage").unwrap().into_raw();
    start(&name, "blocks", "producer").kill();
    until(|| matches!(rx.available(8), Err(BatchError::Wait(WaitError::PeerDead(_)))));
}

/// One process polls a reader and a producer in turn, and pauses between two calls.
#[test]
fn two_handles_that_are_polled_in_turn_both_hear() {
    let _watched = watched();
    let name = Name::new();
    let builder = Segment::<u64>::create(&name.0).capacity(4).reader("stage").tap("tap", 2);
    let me = attach(&builder.build().unwrap());
    let (mut tx, mut reader) = (me.producer().unwrap(), me.reader("stage").unwrap());
    let victim = start(&name, "member", "");
    goes_on(victim, || {
        sleep(Duration::from_millis(1));
        reader.poll(8, |_, _| ()).unwrap();
        tx.try_publish(|_| ()).is_ok()
    });
}

/// If a loop's pauses are longer than the notice (20 ms) and a tick of the coarse clock together,
/// it learns of a death at its second call after the death, at the latest.
#[test]
fn a_loop_that_pauses_hears_at_once() {
    let _watched = watched();
    let pause = || sleep(Duration::from_millis(50));
    let name = Name::new();
    let me = staged(&name, OnDeath::Tell);
    let mut tx = me.producer().unwrap();
    let victim = start(&name, "reader", "");
    while tx.try_publish(|_| ()).is_ok() {}
    (0..3).for_each(|_| {
        pause();
        assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Gated { .. })));
    });
    let pid = victim.pid();
    victim.kill();
    pause();
    let Err(ClaimError::Wait(WaitError::PeerDead(dead))) = tx.try_publish(|_| ()) else {
        panic!("the call says nothing of the death")
    };
    assert_eq!((dead.stage.as_str(), dead.pid), ("stage", pid));

    let name = Name::new();
    let me = staged(&name, OnDeath::Tell);
    let mut reader = me.reader("stage").unwrap();
    let victim = start(&name, "producer", "");
    assert_eq!(reader.poll(8, |_, _| ()).unwrap(), 0);
    victim.kill();
    pause();
    let told = reader.poll(8, |_, _| ());
    assert!(matches!(told, Err(WaitError::PeerDead(_))), "{told:?}");
}

/// Calls whose deadline has passed do not wait, and still learn of a death.
#[test]
fn a_loop_of_calls_whose_deadline_has_passed_hears() {
    let _watched = watched();
    let name = Name::new();
    let me = staged(&name, OnDeath::Fail);
    let mut tx = me.producer().unwrap();
    let victim = start(&name, "reader", "");
    while tx.try_publish(|_| ()).is_ok() {}
    victim.kill();
    until(|| match tx.publish_by(Instant::now(), |_| ()) {
        Err(ClaimError::Wait(WaitError::Failed(_))) => true,
        result => result.is_ok(),
    });
}
