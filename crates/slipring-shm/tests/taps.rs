//! Tests of taps between real processes, whose readers join, leave, are killed and join again.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::time::Duration;

use common::oracle::{Numbered, join, retry};
use common::*;
use rustix::process::Signal;
use slipring::{
    errors::{SubscribeError, WaitError},
    handles::StartAt,
};
use slipring_shm::{Attached, OnDeath, Segment, errors::Problem, inspect};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[("view", role_view)]);
}

/// Joins the tap, reads and releases three events, and reports their positions. Leaves when the
/// test asks it to.
fn role_view() {
    let me = join(&Segment::open(value("NAME")).unwrap());
    let mut viewer = me.subscribe("viewers", StartAt::Now).unwrap();
    say(format!("joined {}", viewer.next_seq()));
    for _ in 0..3 {
        match viewer.batch(1) {
            Ok(batch) => {
                let seq = batch.first_seq();
                batch.release();
                say(format!("saw {seq}"));
            }
            Err(error) => say(format!("error {error}")),
        }
    }
    listen();
    viewer.leave();
    say("left");
}

/// A named segment with a journal and a tap behind it.
struct Viewed {
    name: Name,
    me: Attached<Numbered>,
}

impl Viewed {
    fn new(room: usize) -> Viewed {
        let name = Name::new();
        let builder = Segment::create(&name.0).capacity(4).notice(Duration::from_millis(2));
        let builder = builder.reader("journal").tap("viewers", room).after(["journal"]);
        Viewed { me: join(&builder.build().unwrap()), name }
    }

    fn viewer(&self) -> Role {
        Role::start("view", &[("NAME", self.name.0.as_str())])
    }
}

/// Publishes `count` events, and lets the journal release them.
macro_rules! pass {
    ($tx:expr, $journal:expr, $count:expr) => {
        for _ in 0..$count {
            let mut slot = $tx.claim().unwrap();
            let seq = slot.seq();
            slot.fill(seq, 1);
            slot.publish();
            $journal.poll(9, |_, _| ()).unwrap();
        }
    };
}

#[test]
fn a_killed_reader_is_removed_and_its_unread_events_are_told() {
    let _watched = watched();
    let viewed = Viewed::new(2);
    let (mut tx, mut journal) =
        (viewed.me.producer().unwrap(), viewed.me.reader("journal").unwrap());
    pass!(tx, journal, 2);
    let mut viewer = viewed.viewer();
    assert_eq!(viewer.hear(), "joined 2");
    pass!(tx, journal, 4);
    for seq in 2..5 {
        assert_eq!(viewer.hear(), format!("saw {seq}"));
    }
    until(|| inspect(&viewed.name.0).unwrap().stages[1].position == 5);
    let pid = viewer.pid();
    viewer.signal(Signal::STOP);
    pass!(tx, journal, 3);
    let summary = inspect(&viewed.name.0).unwrap();
    let seat = &summary.stages[1].seats[0];
    assert_eq!((seat.position, summary.stages[1].lag), (Some(5), 4));
    assert_eq!(summary.participant(seat.participant.unwrap()).unwrap().pid, pid);
    viewer.kill();
    pass!(tx, journal, 1); // waits for the dead reader, and removes it
    let summary = inspect(&viewed.name.0).unwrap();
    let seat = &summary.stages[1].seats[0];
    assert_eq!((seat.participant, seat.deaths, seat.unread, seat.position), (None, 1, 4, None));
    // Another reader joins, and leaves by itself.
    let mut viewer = viewed.viewer();
    assert_eq!(viewer.hear(), "joined 10");
    assert_eq!(inspect(&viewed.name.0).unwrap().stages[1].seats[0].unread, 0);
    pass!(tx, journal, 3);
    (10..13).for_each(|seq| assert_eq!(viewer.hear(), format!("saw {seq}")));
    viewer.tell("leave");
    assert_eq!(viewer.hear(), "left");
    assert!(viewer.end().success());
    pass!(tx, journal, 9);
}

#[test]
fn a_joiner_recovers_the_dead_where_the_tap_is_full() {
    let _watched = watched();
    let viewed = Viewed::new(1);
    let mut viewer = viewed.viewer();
    assert_eq!(viewer.hear(), "joined 0");
    let pid = viewer.pid();
    let full = viewed.me.subscribe("viewers", StartAt::Now);
    let full = problem(full);
    assert!(matches!(full.of(), Problem::AllTaken { places: 1, pids, .. } if *pids == [pid]));
    assert!(full.message.contains(&pid.to_string()), "{}", full.message);
    viewer.kill();
    let me = loop {
        // The kernel may not have freed the killed process's place yet.
        match viewed.me.subscribe("viewers", StartAt::Now) {
            Ok(viewer) => break viewer,
            Err(error) => assert!(matches!(error.problem(), Problem::AllTaken { .. })),
        }
    };
    assert_eq!(inspect(&viewed.name.0).unwrap().stages[1].seats[0].deaths, 1);
    let leaver = me.leave_handle();
    drop(me);
    assert!(!leaver.leave());
}

#[test]
fn calls_for_another_kind_are_refused() {
    let _watched = watched();
    let viewed = Viewed::new(1);
    let me = &viewed.me;
    assert_problem!(
        me.subscribe("journal", StartAt::Now),
        Problem::Delivery { delivery: "each", .. }
    );
    assert_problem!(me.reader("viewers"), Problem::Delivery { delivery: "tap", .. });
    assert_problem!(me.subscribe("viewer", StartAt::Now), Problem::NoStage { .. });
    let early = me.subscribe("viewers", StartAt::At(1));
    let reason = SubscribeError::NotYet { asked: 1, newest: 0 };
    let early = problem(early);
    let is_early = matches!(early.of(), Problem::Subscribe { tap, reason: found }
        if tap == "viewers" && found.to_string() == reason.to_string());
    assert!(is_early, "{}", early.message);
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        let told = Segment::<Numbered>::create_memfd("told").capacity(4).tap("tap", 1);
        assert_problem!(told.on_death(on_death).build(), Problem::TapDeath { .. });
    }
    for room in [0, 65] {
        let wide = Segment::<Numbered>::create_memfd("wide").capacity(4).tap("tap", room);
        assert_problem!(wide.build(), Problem::Graph(_));
    }
    // A stage that writes beside a tap would race with the tap's readers.
    let beside = Segment::<Numbered>::create_memfd("beside").capacity(4).updater("w").tap("tap", 1);
    assert_problem!(beside.build(), Problem::Graph(_));
}

/// A ring may have a tap as its only stage. A reader that comes late finds the events that the ring
/// still holds.
#[test]
fn a_tap_alone() {
    let _watched = watched();
    let name = Name::new();
    let segment = Segment::<Numbered>::create(&name.0).capacity(4).tap("viewers", 2);
    let me = join(&segment.build().unwrap());
    let mut tx = retry(|| me.producer()).unwrap();
    (0..9).for_each(|seq| _ = tx.publish(|slot| slot.fill(seq, 1)).unwrap());
    let mut viewer = me.subscribe("viewers", StartAt::Oldest).unwrap();
    let first = viewer.next_seq();
    assert!((5..=9).contains(&first), "{first}");
    assert_eq!(viewer.poll(9, |_, _| ()).unwrap() as u64, 9 - first);
    let summary = inspect(&name.0).unwrap();
    assert_eq!((summary.published, summary.stages[0].position), (9, 9));
    drop(tx);
    assert!(matches!(viewer.batch(1), Err(WaitError::Closed)));
    assert_problem!(me.producer(), Problem::Over);
}
