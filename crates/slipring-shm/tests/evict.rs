//! Tests that evict real processes, which are stopped or hang, or which die or leave meanwhile.
//!
//! No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::oracle::{Numbered, join};
use common::*;
use rustix::process::Signal;
use slipring::{handles::StartAt, stages::PRODUCER};
use slipring_shm::{
    Attached, Builder, OnDeath, Segment,
    errors::{EvictProblem, Problem},
    evict,
    summaries::{Eviction, Liveness},
};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[
        ("hold", role_hold),
        ("work", role_work),
        ("fill", role_fill),
        ("evict", role_evict),
        ("keep", role_keep),
        ("take", role_take),
        ("demote", role_demote),
    ]);
}

const LONG: Duration = Duration::from_secs(200);

/// A segment of eight slots with the stages `one` and `two`, and five published events.
struct Ring {
    name: Name,
    me: Attached<Numbered>,
}

impl Ring {
    fn new() -> Ring {
        let name = Name::new();
        let segment = Segment::create(&name.0).capacity(8).reader("one").reader("two");
        let me = join(&segment.build().unwrap());
        let mut tx = me.producer().unwrap();
        (0..5).for_each(|seq| _ = tx.publish(|slot| slot.fill(seq, 1)).unwrap());
        leave(tx);
        Ring { name, me }
    }

    /// Starts a process that takes `one`, releases an event, and keeps two.
    fn hold(&self) -> Role {
        let mut role = Role::start("hold", &[("NAME", &self.name.0)]);
        assert_eq!(role.hear(), "holds");
        role
    }

    /// Like [`Ring::hold`], but then stops the process.
    fn stopped(&self) -> Role {
        let role = self.hold();
        role.signal(Signal::STOP);
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", role.pid())).unwrap();
        until(|| stat().contains(") T "));
        role
    }

    fn find(&self) -> Result<Eviction, slipring_shm::SegmentError> {
        Eviction::find(&self.name.0, "one", None)
    }

    /// Takes the place of an evicted process, reads all events, and checks that none is lost.
    fn assert_goes_on(&self) {
        assert_eq!(
            slipring_shm::inspect(&self.name.0).unwrap().stages[0].seats[0].participant,
            None
        );
        let mut one = self.me.reader("one").unwrap();
        assert_eq!(one.redelivered(), (1..3).into());
        let mut seen = Vec::new();
        one.poll(8, |event, at| seen.push((event.seq, at.seq))).unwrap();
        assert_eq!(seen, [(1, 1), (2, 2), (3, 3), (4, 4)]);
    }
}

/// Gives the producer's place back without closing the ring.
fn leave(tx: slipring_shm::Producer<Numbered>) {
    let leaves = std::thread::spawn(move || {
        let _tx = tx;
        panic!("leaves the place");
    });
    leaves.join().unwrap_err();
}

fn role_fill() {
    let me = join(&Segment::open(value("NAME")).unwrap());
    let mut tx = me.producer().unwrap();
    let mut claim = tx.claim().unwrap();
    claim.fill(666, 666);
    say("fills");
    listen();
}

fn role_work() {
    let me = join(&Segment::open(value("NAME")).unwrap());
    let mut worker = me.pool_reader("work").unwrap();
    let kept = worker.batch(1).unwrap();
    assert_eq!(kept.len(), 1);
    say("works");
    listen();
}

fn role_hold() {
    let me = join(&Segment::open(value("NAME")).unwrap());
    let mut one = me.reader("one").unwrap();
    let _two = std::env::var("TWO").is_ok().then(|| me.reader("two").unwrap());
    one.batch(1).unwrap().release();
    let kept = one.batch(2).unwrap();
    assert_eq!(kept.len(), 2);
    say("holds");
    listen();
    drop(one);
    say("left");
    listen();
}

fn role_evict() {
    match Eviction::find(value("NAME"), "one", None).and_then(|found| found.kill(LONG)) {
        Ok(occupant) => say(format!("evicted {}", occupant.pid)),
        Err(error) => say(error),
    }
    listen();
}

/// Holds a lock on byte 2 until its parent sends a line. The value `HOLD` is `shared` or `alone`.
fn role_keep() {
    use std::os::fd::AsFd;
    let path = format!("/dev/shm/{}.slipring", value("NAME"));
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let hold = match value("HOLD").as_str() {
        "shared" => slipring_shm::parts::lock::Hold::Shared,
        _ => slipring_shm::parts::lock::Hold::Alone,
    };
    use slipring_shm::parts::lock::{byte, try_lock};
    until(|| try_lock(file.as_fd(), byte(2), hold).unwrap());
    say("keeps");
    listen();
}

#[test]
fn a_stopped_reader_is_evicted_and_nothing_is_lost() {
    let _watched = watched();
    let ring = Ring::new();
    let mut role = ring.stopped();
    assert_problem!(ring.me.reader("one"), Problem::Taken { .. });
    // Finding the process changes nothing.
    let found = ring.find().unwrap();
    let occupant = found.occupant().clone();
    assert_eq!((occupant.pid, occupant.participant), (role.pid(), 2));
    assert_eq!((occupant.stopped, occupant.dead), (true, false));
    assert_eq!(occupant.places, ["one"]);
    drop(found);
    assert_eq!(ring.me.liveness(2).unwrap(), Liveness::Alive);
    let mut evicted = evict(&ring.name.0, "one").unwrap();
    assert!(std::mem::take(&mut evicted.recovered));
    assert_eq!(evicted, occupant);
    assert_eq!(ring.me.liveness(2).unwrap(), Liveness::Free);
    assert_eq!(slipring_shm::inspect(&ring.name.0).unwrap().stages[0].seats[0].deaths, 1);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(role.wait().signal(), Some(9));
    ring.assert_goes_on();
}

#[test]
fn all_places_of_the_process_are_freed() {
    let _watched = watched();
    let ring = Ring::new();
    let mut role = Role::start("hold", &[("NAME", &ring.name.0), ("TWO", "1")]);
    assert_eq!(role.hear(), "holds");
    let path = ring.name.path();
    let occupant = Eviction::find_at(path, "two", None).unwrap().kill(LONG).unwrap();
    assert_eq!(occupant.places, ["one", "two"]);
    drop(ring.me.reader("two").unwrap());
    ring.assert_goes_on();
}

/// A pool's worker that holds events is evicted. It is chosen by its pid, and the other worker is
/// left alone.
#[test]
fn one_of_several_is_chosen_by_its_process() {
    let _watched = watched();
    let name = Name::new();
    let segment = Segment::create(&name.0).capacity(8).pool_reader("work", 3).build().unwrap();
    let me = join(&segment);
    let mut tx = me.producer().unwrap();
    (0..4).for_each(|seq| _ = tx.publish(|slot| slot.fill(seq, 1)).unwrap());
    let start = || {
        let mut role = Role::start("work", &[("NAME", &name.0)]);
        assert_eq!(role.hear(), "works");
        role
    };
    let (mut one, other) = (start(), start());
    let error = problem(Eviction::find(&name.0, "work", None));
    assert_problem!(
        Eviction::find(&name.0, "work", None),
        Problem::Evict(EvictProblem::Several { .. })
    );
    for shown in [one.pid().to_string(), other.pid().to_string(), "--pid".into()] {
        assert!(error.message.contains(&shown), "{shown}: {}", error.message);
    }
    let own = std::process::id();
    assert_problem!(
        Eviction::find(&name.0, "work", own),
        Problem::Evict(EvictProblem::Elsewhere { .. })
    );
    let occupant = Eviction::find(&name.0, "work", one.pid()).unwrap().kill(LONG).unwrap();
    assert_eq!((occupant.pid, occupant.recovered), (one.pid(), true));
    one.wait();
    // Another worker adopts the chunk of the killed one.
    let mut mine = me.pool_reader("work").unwrap();
    let mut seen = Vec::new();
    until(|| {
        mine.poll(8, |event, _| seen.push(event.seq)).unwrap();
        !mine.redelivered().is_empty()
    });
    assert!(seen.contains(&mine.redelivered().first_seq()), "{seen:?}");
}

/// Takes a place of the kind that the parent names, and holds what it is given there.
fn role_take() {
    let me = join(&Segment::open(value("NAME")).unwrap());
    let holds = || {
        say("takes");
        listen();
    };
    match value("PLACE").as_str() {
        "several" => {
            let mut tx = me.shared_producer().unwrap();
            tx.publish(|slot| slot.fill(0, 1)).unwrap();
            let mut claim = tx.claim_n(2).unwrap();
            claim[0].fill(666, 666);
            holds();
        }
        "last" => {
            let mut tx = me.producer().unwrap();
            tx.publish(|slot| slot.fill(0, 1)).unwrap();
            let mut claim = tx.claim().unwrap();
            claim.fill(666, 666);
            holds();
        }
        "tap" => {
            let mut member = me.subscribe("tap", StartAt::Oldest).unwrap();
            member.batch(1).unwrap().release();
            holds();
        }
        "shard" => {
            let mut shard = me.shard_reader("shards", 0).unwrap();
            assert_eq!(shard.batch(1).unwrap().len(), 1);
            holds();
        }
        place => unreachable!("no place `{place}`"),
    }
}

/// Builds the segment, starts a role that takes `place`, and evicts it from `stage`.
fn evicted(
    place: &str,
    stage: &str,
    build: impl FnOnce(Builder<Numbered>) -> Builder<Numbered>,
) -> Attached<Numbered> {
    let name = Name::new();
    let segment = build(Segment::create(&name.0).capacity(8)).build().unwrap();
    let me = join(&segment);
    if ["tap", "shard"].contains(&place) {
        let mut tx = me.producer().unwrap();
        (0..5).for_each(|seq| _ = tx.publish(|slot| slot.fill(seq, 1)).unwrap());
        leave(tx);
    }
    let mut role = Role::start("take", &[("NAME", &name.0), ("PLACE", place)]);
    assert_eq!(role.hear(), "takes");
    let occupant = Eviction::find(&name.0, stage, role.pid()).unwrap().kill(LONG).unwrap();
    assert_eq!((occupant.pid, occupant.recovered, occupant.dead), (role.pid(), true, false));
    assert_eq!(me.liveness(occupant.participant).unwrap(), Liveness::Free);
    role.wait();
    me
}

/// One of several producers is evicted. Its claim is given up, and the other producers continue
/// behind the claim.
#[test]
fn one_of_several_producers_is_evicted() {
    let _watched = watched();
    let me = evicted("several", PRODUCER, |segment| segment.producers(2).reader("one"));
    let mut reader = me.reader("one").unwrap();
    let mut tx = me.shared_producer().unwrap();
    for seq in 1..20 {
        tx.publish(|slot| slot.fill(seq, 1)).unwrap();
        let mut seen = Vec::new();
        reader.poll(8, |event, _| seen.push(event.seq)).unwrap();
        assert_eq!(seen.last(), Some(&seq));
        assert!(!seen.contains(&666), "{seen:?}");
    }
}

/// The only producer of a ring that closes at the producer's death is evicted. The reader gets the
/// published events, and the end.
#[test]
fn the_eviction_of_the_last_producer_closes_as_declared() {
    let _watched = watched();
    let me = evicted("last", PRODUCER, |segment| {
        segment.producer_on_death(OnDeath::Close).reader("one")
    });
    let mut reader = me.reader("one").unwrap();
    let mut seen = Vec::new();
    assert_eq!(reader.for_each(|event, _| seen.push(event.seq)).unwrap(), 1);
    assert_eq!(seen, [0]);
}

/// A member of a tap holds up the producer until the member is evicted.
#[test]
fn a_member_of_a_tap_is_evicted() {
    let _watched = watched();
    let me = evicted("tap", "tap", |segment| segment.reader("one").tap("tap", 1));
    let (mut tx, mut reader) = (me.producer().unwrap(), me.reader("one").unwrap());
    for seq in 5..30 {
        reader.poll(8, |_, _| ()).unwrap();
        // `try_publish` does not wait, so it would not recover a dead member.
        tx.try_publish(|slot| slot.fill(seq, 1)).unwrap();
    }
    drop(me.subscribe("tap", StartAt::Now).unwrap());
}

/// A shard that holds events is evicted, and its successor gets the events again.
#[test]
fn a_shard_is_evicted() {
    let _watched = watched();
    let me = evicted("shard", "shards", |segment| segment.shard_reader("shards", 1, |it| &it.by));
    let mut shard = me.shard_reader("shards", 0).unwrap();
    assert_eq!(shard.redelivered(), (0..1).into());
    let mut seen = Vec::new();
    shard.poll(8, |event, _| seen.push(event.seq)).unwrap();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
}

/// A producer that was stopped while it filled a slot is evicted. Its successor publishes at the
/// same position.
#[test]
fn a_producer_is_evicted() {
    let _watched = watched();
    let ring = Ring::new();
    let own = ring.me.producer().unwrap();
    let own_place = Eviction::find(&ring.name.0, PRODUCER, None);
    assert_problem!(own_place, Problem::Evict(EvictProblem::OwnProcess));
    leave(own);
    let mut role = Role::start("fill", &[("NAME", &ring.name.0)]);
    assert_eq!(role.hear(), "fills");
    let occupant = evict(&ring.name.0, PRODUCER).unwrap();
    assert_eq!((occupant.pid, &occupant.places[..]), (role.pid(), &[PRODUCER.to_owned()][..]));
    let mut tx = ring.me.producer().unwrap();
    assert_eq!(tx.publish(|slot| slot.fill(5, 1)).unwrap(), 5);
}

#[test]
fn what_cannot_be_evicted_is_told() {
    let _watched = watched();
    let ring = Ring::new();
    assert_problem!(evict("no-such-segment", "one"), Problem::Missing);
    assert_problem!(evict("a/b", "one"), Problem::Name(_));
    assert_problem!(evict(&ring.name.0, "three"), Problem::NoStage { .. });
    assert!(problem(evict(&ring.name.0, "three")).message.contains("one, two, producer"));
    assert_problem!(evict(&ring.name.0, "one"), Problem::Evict(EvictProblem::Free { .. }));
    assert_problem!(evict(&ring.name.0, PRODUCER), Problem::Evict(EvictProblem::Free { .. }));
    let own = ring.me.reader("one").unwrap();
    assert_problem!(ring.find(), Problem::Evict(EvictProblem::OwnProcess));
    drop(own);
    let bare = Name::new();
    let _made = bare.make();
    assert_problem!(evict(&bare.0, "one"), Problem::NoStage { .. });
    assert_problem!(evict(&bare.0, PRODUCER), Problem::NoStage { .. });
}

/// Another process may get the pid of a process that is gone.
#[test]
fn a_process_of_another_start_time_is_not_killed() {
    let _watched = watched();
    let ring = Ring::new();
    let role = ring.hold();
    let record = ring.me.participation().record(2).unwrap();
    let started = record.start_time.load(Relaxed);
    for wrong in [started - 1, started + 1, u64::MAX] {
        record.start_time.store(wrong, Relaxed);
        assert_problem!(ring.find(), Problem::Evict(EvictProblem::HeldByAnother { .. }));
    }
    record.start_time.store(0, Relaxed);
    assert_problem!(ring.find(), Problem::Evict(EvictProblem::Unidentified { .. }));
    record.start_time.store(started, Relaxed);
    let namespace = record.pid_namespace.load(Relaxed);
    record.pid_namespace.store(namespace + 1, Relaxed);
    assert_problem!(ring.find(), Problem::Evict(EvictProblem::OtherNamespace { .. }));
    record.pid_namespace.store(0, Relaxed);
    assert_problem!(ring.find(), Problem::Evict(EvictProblem::Unidentified { .. }));
    record.pid_namespace.store(namespace, Relaxed);
    // Numbers that no process has.
    for wrong in [0, u32::MAX, i32::MAX as u32] {
        let pid = record.pid.swap(wrong, Relaxed);
        assert_problem!(ring.find(), Problem::Evict(EvictProblem::HeldByAnother { .. }));
        record.pid.store(pid, Relaxed);
    }
    assert_eq!(ring.find().unwrap().occupant().pid, role.pid());
    // The seat names a participant that the segment cannot have.
    let areas = &ring.me.participation().checked().areas;
    let file = std::fs::OpenOptions::new().write(true).open(ring.name.path()).unwrap();
    use std::os::unix::fs::FileExt;
    for number in [u32::MAX - 1, 65] {
        let word = u64::from(number);
        file.write_all_at(&word.to_ne_bytes(), areas.seats.item(0).unwrap()).unwrap();
        assert_problem!(ring.find(), Problem::Evict(EvictProblem::Seat { .. }));
    }
}

#[test]
fn a_process_of_another_pid_namespace_is_not_killed() {
    let _watched = watched();
    const ROOT: Wrapper<'static> = &["unshare", "--pid", "--fork", "--kill-child"];
    const USER: Wrapper<'static> =
        &["unshare", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let Some(wrapper) = [ROOT, USER].into_iter().find(|wrapper| permits(wrapper)) else {
        return skip("this test makes a pid namespace, which is not permitted here");
    };
    let ring = Ring::new();
    let mut role = Role::start_in(wrapper, "hold", &[("NAME", &ring.name.0)]);
    assert_eq!(role.hear(), "holds");
    let failed = problem(ring.find());
    assert!(
        matches!(failed.of(), Problem::Evict(EvictProblem::OtherNamespace { .. })),
        "{}",
        failed.message
    );
    assert_eq!(ring.me.liveness(2).unwrap(), Liveness::Alive);
}

/// A dead process is not killed again, and its places are recovered.
#[test]
fn a_dead_process_is_recovered() {
    let _watched = watched();
    let ring = Ring::new();
    ring.hold().kill();
    let found = ring.find().unwrap();
    assert!(found.occupant().dead && !found.occupant().stopped);
    assert_eq!(ring.me.liveness(2).unwrap(), Liveness::Dead, "a look recovers nothing");
    found.kill(LONG).unwrap();
    assert_eq!(ring.me.liveness(2).unwrap(), Liveness::Free);
    ring.assert_goes_on();
}

/// The process that was found leaves or dies before the kill. If another process has taken its
/// place, that process is never killed.
#[test]
fn a_place_that_changes_hands_costs_no_other_process() {
    let _watched = watched();
    // The occupant leaves the place, and its process continues to run.
    let ring = Ring::new();
    let mut role = ring.hold();
    let found = ring.find().unwrap();
    role.tell("leave");
    assert_eq!(role.hear(), "left");
    let next = ring.hold();
    assert_problem!(found.kill(LONG), Problem::Evict(EvictProblem::Changed { .. }));
    assert_eq!(ring.find().unwrap().occupant().pid, next.pid());
    assert!(role.end().success(), "not killed");

    // The occupant dies. Another process recovers it, and gets the participant's number and place.
    let ring = Ring::new();
    let role = ring.hold();
    let (found, dead) = (ring.find().unwrap(), ring.find().unwrap());
    role.kill();
    let next = Role::start("hold", &[("NAME", &ring.name.0)]);
    let mut next = next;
    assert_eq!(next.hear(), "holds");
    assert_problem!(found.kill(LONG), Problem::Evict(EvictProblem::Changed { .. }));
    assert_problem!(dead.kill(LONG), Problem::Evict(EvictProblem::Changed { .. }));
    assert_eq!(ring.find().unwrap().occupant().pid, next.pid());

    // The process was already dead when it was found, and another process now has its place and its
    // participant number.
    let ring = Ring::new();
    ring.hold().kill();
    let found = ring.find().unwrap();
    found.kill(LONG).unwrap();
    ring.hold().kill();
    let (found, again) = (ring.find().unwrap(), ring.find().unwrap());
    again.kill(LONG).unwrap();
    let next = ring.hold();
    assert_eq!(ring.find().unwrap().occupant().participant, 2, "the number of the dead one");
    found.kill(LONG).unwrap();
    assert_eq!(ring.find().unwrap().occupant().pid, next.pid(), "the next one is not recovered");
}

#[test]
fn two_evictors_at_once_do_it_once() {
    let _watched = watched();
    for _ in 0..5 {
        let ring = Ring::new();
        let role = ring.stopped();
        let mut evictors = [0; 3].map(|_| Role::start("evict", &[("NAME", &ring.name.0)]));
        let heard = evictors.each_mut().map(|evictor| evictor.hear());
        assert!(heard.contains(&format!("evicted {}", role.pid())), "{heard:?}");
        for said in heard {
            // This evictor came too late: the process had already lost its place when the evictor
            // looked, or before it could kill.
            let late = said.contains("no process has the place") || said.contains("no process was");
            assert!(late || said.starts_with("evicted"), "{said}");
        }
        assert_eq!(slipring_shm::inspect(&ring.name.0).unwrap().stages[0].seats[0].deaths, 1);
        ring.assert_goes_on();
    }
}

/// Another evictor recovers the process while this evictor is stopped, right after its kill.
#[test]
fn a_slow_evictor_leaves_the_successor_alone() {
    let _watched = watched();
    for step in ["evict-killed", "claim-opened"] {
        let ring = Ring::new();
        let role = ring.hold();
        let mut slow = Role::stopping("evict", step, &[("NAME", &ring.name.0)]);
        drop(role);
        until(|| ring.me.liveness(2).unwrap() == Liveness::Dead);
        evict(&ring.name.0, "one").unwrap();
        let next = ring.hold();
        slow.tell("go on");
        assert!(slow.hear().starts_with("evicted"), "{step}");
        assert_eq!(ring.find().unwrap().occupant().pid, next.pid(), "{step}");
        assert_eq!(ring.me.liveness(2).unwrap(), Liveness::Alive, "{step}");
    }
    // A successor arrives between the search and the kill.
    let ring = Ring::new();
    let role = ring.hold();
    let mut slow = Role::stopping("evict", "evict-found", &[("NAME", &ring.name.0)]);
    role.kill();
    evict(&ring.name.0, "one").unwrap();
    let next = ring.hold();
    slow.tell("go on");
    let said = slow.hear();
    assert!(said.contains("no process was killed"), "{said}");
    assert_eq!(ring.find().unwrap().occupant().pid, next.pid());
}

#[test]
fn an_evictor_killed_at_any_step_has_a_successor() {
    let _watched = watched();
    let before = ["evict-found", "evict-checked"];
    let after = ["evict-killed", "claim-opened", "evict-claimed", "mapped", "buried"];
    let ends = ["evict-recovered", "unclaimed"];
    for step in [&before[..], &after, &ends].concat() {
        let ring = Ring::new();
        let role = ring.stopped();
        Role::killed_at("evict", step, &[("NAME", &ring.name.0)]);
        until(|| before.contains(&step) || ring.me.liveness(2).unwrap() != Liveness::Alive);
        match ring.find() {
            Ok(found) => _ = found.kill(LONG).unwrap(),
            // The killed evictor has already freed the seat, and perhaps the participant's record
            // as well.
            Err(error) => {
                let free = matches!(error.problem(), Problem::Evict(EvictProblem::Free { .. }));
                assert!(free && (step == "buried" || ends.contains(&step)), "{step}: {error}");
            }
        }
        assert_eq!(
            slipring_shm::inspect(&ring.name.0).unwrap().stages[0].seats[0].deaths,
            1,
            "{step}"
        );
        ring.assert_goes_on();
        drop(role);
    }
}

/// The process is dead, but a third process holds its lock. Since a timeout is no proof of death,
/// nothing is recovered.
#[test]
fn a_lock_that_is_not_free_in_time_is_told() {
    let _watched = watched();
    for hold in ["shared", "alone"] {
        let ring = Ring::new();
        let role = ring.hold();
        let found = ring.find().unwrap();
        let mut keeps = Role::start("keep", &[("NAME", &ring.name.0), ("HOLD", hold)]);
        // A zombie still has its pid, but counts as gone, too.
        role.signal(Signal::KILL);
        assert_eq!(keeps.hear(), "keeps");
        if hold == "alone" {
            let gone = EvictProblem::HeldByAnother { participant: 2, pid: role.pid() };
            let failed = problem(ring.find());
            assert!(matches!(failed.of(), Problem::Evict(found) if *found == gone));
        }
        role.kill();
        let error = found.kill(Duration::ZERO).unwrap_err();
        match error.problem() {
            Problem::Evict(EvictProblem::HeldByReader { participant: 2 }) if hold == "shared" => {}
            Problem::Evict(EvictProblem::HeldByAnother { participant: 2, .. })
                if hold == "alone" => {}
            _ => panic!("{hold}: {error}"),
        }
        let again = problem(ring.find());
        let held = match again.of() {
            Problem::Evict(EvictProblem::HeldByReader { .. }) => "shared",
            Problem::Evict(EvictProblem::HeldByAnother { .. }) => "alone",
            _ => panic!("{}", again.message),
        };
        assert_eq!(held, hold);
        keeps.kill();
        ring.find().unwrap().kill(LONG).unwrap();
        ring.assert_goes_on();
    }
}

/// A traced process that was killed stays until its tracer lets it end.
#[test]
fn a_process_that_does_not_end_in_time_is_told() {
    let _watched = watched();
    let ring = Ring::new();
    let role = ring.hold();
    let pid = role.pid() as i32;
    // SAFETY: this process started the child, and `waitpid` gets a valid address.
    let traced = unsafe {
        let options = libc::PTRACE_O_TRACEEXIT as usize;
        libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) == 0
    };
    if !traced {
        return skip("ptrace is not permitted here: no process that ends late");
    }
    let error = ring.find().unwrap().kill(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error.problem(), Problem::Evict(EvictProblem::NotEnded { .. })), "{error}");
    assert_problem!(ring.me.reader("one"), Problem::Taken { .. });
    let mut status = 0;
    // SAFETY: as above.
    unsafe {
        libc::waitpid(pid, &mut status, libc::__WALL);
        libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
    }
    evict(&ring.name.0, "one").unwrap();
    ring.assert_goes_on();
}

/// Becomes another user, and tries to evict.
fn role_demote() {
    let found = Eviction::find(value("NAME"), "one", None).unwrap();
    // SAFETY: the call changes the user of all threads of this process, and takes no pointers.
    assert_eq!(unsafe { libc::setuid(65_533) }, 0);
    say(found.kill(LONG).unwrap_err());
}

#[test]
fn a_process_of_another_user_is_not_killed() {
    let _watched = watched();
    if !rustix::process::geteuid().is_root() {
        return skip("this test becomes another user, which only root may");
    }
    let ring = Ring::new();
    let role = ring.hold();
    let mut demoted = Role::start("demote", &[("NAME", &ring.name.0)]);
    let said = demoted.hear();
    let told = format!("may not kill process {}, which acts for user 0", role.pid());
    assert!(said.contains(&told), "{said}");
    assert_eq!(ring.me.liveness(2).unwrap(), Liveness::Alive);
}
