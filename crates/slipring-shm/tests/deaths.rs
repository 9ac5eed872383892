//! Tests of how processes learn of deaths: real processes are stopped, killed, replaced and forked
//! while others wait for them.
//!
//! A survivor learns of a death within a notice plus the time that the kernel takes to end a
//! process. No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use common::oracle::{Numbered, STAGES, join, retry};
use common::trace::{fork, wait};
use common::*;
use rustix::process::Signal;
use slipring::{
    Wait,
    errors::{BatchError, ClaimError, PassError, WaitError},
    stages::PRODUCER,
};
use slipring_shm::{Attached, OnDeath, Producer, Reader, Segment, errors::Problem};

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[
        ("read", role_read),
        ("publish", role_publish),
        ("claim", role_claim),
        ("exec", role_exec),
        ("fork", role_fork),
    ]);
}

fn open() -> Attached<Numbered> {
    let wait: Wait = value("WAIT").parse().unwrap();
    join(&Segment::open(value("NAME")).unwrap()).wait(wait).unwrap()
}

/// Reads to the stream's end, and reports each error of a wait.
fn role_read() {
    let me = open();
    let mut reader = retry(|| me.reader(&value("STAGE"))).unwrap();
    say("taken");
    let mut next = reader.next_seq();
    loop {
        match reader.batch(usize::MAX) {
            Ok(batch) => {
                for event in batch.iter() {
                    assert_eq!(event.seq, next);
                    next += 1;
                }
                batch.release();
            }
            Err(WaitError::Closed) => break say(format!("closed {next}")),
            Err(WaitError::PeerDead(dead)) => say(format!("dead {} {}", dead.stage, dead.pid)),
            Err(error) => break say(format!("error {error}")),
        }
    }
}

/// Publishes as many events as each line asks for, and reports its position. Ends at the line
/// `close`.
fn role_publish() {
    let me = open();
    let Ok(mut tx) = retry(|| me.producer()) else { return say("refused") };
    say("taken");
    loop {
        let asked = listen();
        let Ok(count) = asked.parse::<u64>() else { break };
        let mut last = Ok(0);
        for _ in 0..count {
            last = publish(&mut tx);
        }
        match last {
            Ok(seq) => say(format!("at {seq}")),
            Err(WaitError::PeerDead(dead)) => say(format!("dead {} {}", dead.stage, dead.pid)),
            Err(error) => say(format!("error {error}")),
        }
    }
    drop(tx);
    say("ended");
}

/// Publishes an event as one of several producers, claims two more, and stays.
fn role_claim() {
    let me = open();
    let mut tx = retry(|| me.shared_producer()).unwrap();
    say("taken");
    let mut slot = tx.claim().unwrap();
    let seq = slot.seq();
    slot.fill(seq, 1);
    slot.publish();
    let _claim = tx.claim_n(2).unwrap();
    say(format!("at {seq}"));
    listen();
}

fn publish(tx: &mut Producer<Numbered>) -> Result<u64, WaitError> {
    let mut slot = tx.claim()?;
    let seq = slot.seq();
    slot.fill(seq, 1);
    Ok(slot.publish())
}

/// A named segment of four slots with the stages `first` and, behind it, `later`.
struct Graph {
    name: Name,
    me: Attached<Numbered>,
    on_death: OnDeath,
}

impl Graph {
    fn new(on_death: OnDeath, notice_ms: u64) -> Graph {
        let name = Name::new();
        let builder = Segment::create(&name.0).capacity(4).notice(Duration::from_millis(notice_ms));
        let builder = builder.reader(STAGES[0]).on_death(on_death);
        let builder = builder.reader(STAGES[1]).after([STAGES[0]]).on_death(on_death);
        let segment = builder.producer_on_death(on_death).build().unwrap();
        Graph { me: join(&segment), name, on_death }
    }

    fn start(&self, role: &str, stage: &str) -> Role {
        self.start_with(role, stage, &Wait::Blocking)
    }

    fn start_with(&self, role: &str, stage: &str, wait: &Wait) -> Role {
        let wait = wait.to_string();
        let values = [("NAME", self.name.0.as_str()), ("STAGE", stage), ("WAIT", &wait)];
        let mut role = Role::start(role, &values);
        assert_eq!(role.hear(), "taken");
        role
    }

    fn producer(&self) -> Producer<Numbered> {
        retry(|| self.me.producer()).unwrap()
    }

    fn reader(&self, stage: usize) -> Reader<Numbered> {
        retry(|| self.me.reader(STAGES[stage])).unwrap()
    }

    /// Fills the ring.
    fn fill(&self) -> Producer<Numbered> {
        let mut tx = self.producer();
        while tx.remaining() != 0 {
            publish(&mut tx).unwrap();
        }
        tx
    }
}

fn asleep(role: &Role) {
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", role.pid())).unwrap();
    until(|| stat().contains(") S "));
}

/// Stops a role, and returns once it has stopped.
fn stop(role: &Role) {
    role.signal(Signal::STOP);
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", role.pid())).unwrap();
    until(|| stat().contains(") T "));
}

/// Kills a role, and leaves it as a zombie.
fn kill(role: &Role) -> u32 {
    role.signal(Signal::KILL);
    role.pid()
}

/// Reads all available events of a stage.
fn read(reader: &mut Reader<Numbered>) {
    let mut next = reader.next_seq();
    let handle = |event: &Numbered, at: slipring::At| {
        assert_eq!((event.seq, at.seq), (next, next));
        next += 1;
    };
    reader.poll(usize::MAX, handle).unwrap();
}

#[test]
fn every_wait_strategy_passes_messages_between_processes() {
    let _watched = watched();
    for strategy in Wait::all() {
        let graph = Graph::new(OnDeath::Wait, 20);
        let mut roles = STAGES.map(|stage| graph.start_with("read", stage, &strategy));
        let mut tx = graph.start_with("publish", "", &strategy);
        // In each turn, the producer publishes more events than the ring has room for, so that it
        // has to wait as well. A pause follows.
        for turn in 0..3u64 {
            tx.tell("30");
            assert_eq!(tx.hear(), format!("at {}", turn * 30 + 29), "{strategy}");
            std::thread::sleep(Duration::from_millis(2));
        }
        tx.tell("close");
        assert_eq!(tx.hear(), "ended");
        roles.iter_mut().for_each(|role| assert_eq!(role.hear(), "closed 90", "{strategy}"));
    }
}

/// The notice is a second, so it is the close that wakes the sleepers, and not their own timeout.
#[test]
fn a_close_wakes_the_sleepers_of_other_processes() {
    let _watched = watched();
    let graph = Graph::new(OnDeath::Wait, 1000);
    let mut roles = STAGES.map(|stage| graph.start("read", stage));
    let tx = graph.producer();
    roles.iter().for_each(asleep);
    drop(tx);
    roles.iter_mut().for_each(|role| assert_eq!(role.hear(), "closed 0"));
    assert!(matches!(graph.me.producer().unwrap_err().problem(), Problem::Over));
}

/// A stopped process is alive, so a party that waits for it continues to wait, and gets no error.
#[test]
fn a_stopped_reader_is_waited_for() {
    let _watched = watched();
    let graph = Graph::new(OnDeath::Fail, 1);
    let mut roles = STAGES.map(|stage| graph.start("read", stage));
    stop(&roles[0]);
    let mut tx = graph.fill();
    let error = tx.publish_by(Instant::now() + Duration::from_millis(100), |_| ()).unwrap_err();
    assert!(matches!(error, ClaimError::TimedOut(_)), "{error}");
    assert_problem!(graph.me.reader(STAGES[0]), Problem::Taken { .. });
    roles[0].signal(Signal::CONT);
    assert_eq!(publish(&mut tx).unwrap(), 4);
    drop(tx);
    roles.iter_mut().for_each(|role| assert_eq!(role.hear(), "closed 5"));
}

#[test]
fn a_producer_that_waits_learns_of_a_readers_death_as_declared() {
    let _watched = watched();
    for (on_death, victim) in
        [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail].into_iter().flat_map(|d| [(d, 0), (d, 1)])
    {
        let graph = Graph::new(on_death, 5);
        let survivor = graph.reader(1 - victim);
        let role = graph.start("read", STAGES[victim]);
        let mut tx = graph.start("publish", "");
        // The victim is stopped before the ring gets full.
        role.signal(Signal::STOP);
        tx.tell("5");
        asleep(&tx);
        // A zombie is dead as well.
        let pid = kill(&role);
        let mut survivor = survivor;
        if graph.on_death == OnDeath::Tell {
            if victim == 1 {
                until(|| survivor.poll(8, |_, _| ()).unwrap() == 0);
            }
            assert_eq!(tx.hear(), format!("dead {} {pid}", STAGES[victim]));
        }
        if graph.on_death == OnDeath::Fail {
            if victim == 1 {
                until(|| survivor.poll(8, |_, _| ()).unwrap_or(0) == 0);
            }
            let said = tx.hear();
            let mine = survivor.batch(1).map(drop).unwrap_err().to_string();
            let newcomer = graph.reader(victim).batch(1).map(drop).unwrap_err().to_string();
            for heard in [said, mine, newcomer] {
                let names = heard.contains(STAGES[victim]) && heard.contains(&pid.to_string());
                assert!(names, "{}, {pid}: {heard}", STAGES[victim]);
            }
            continue;
        }
        // A successor takes the place, and the producer continues.
        let mut successor = graph.reader(victim);
        if graph.on_death == OnDeath::Tell {
            tx.tell("1");
        }
        let mut seen = false;
        let heard = loop {
            read(&mut successor);
            read(&mut survivor);
            if !seen {
                seen = successor.next_seq() >= 4;
                continue;
            }
            break tx.hear();
        };
        assert_eq!(heard, "at 4");
        assert_eq!(role.pid(), pid);
    }
}

/// A producer flushes, and waits for a stage of another process, which is then killed.
#[test]
fn a_producer_that_waits_for_a_stage_learns_of_its_death() {
    let _watched = watched();
    for (as_task, victim) in [(false, 0), (false, 1), (true, 1)] {
        let graph = Graph::new(OnDeath::Tell, 5);
        let roles = STAGES.map(|stage| graph.start("read", stage));
        let mut tx = graph.producer();
        let seq = publish(&mut tx).unwrap();
        tx.wait_for(STAGES[0], seq).unwrap();
        tx.flush().unwrap();
        block_on(tx.flush_async()).unwrap();
        stop(&roles[victim]);
        let seq = publish(&mut tx).unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(matches!(tx.flush_by(soon), Err(PassError::TimedOut(_))));
        let waits = std::thread::spawn(move || {
            let result = match as_task {
                true => block_on(tx.wait_for_async(STAGES[1], seq)),
                false => tx.wait_for(STAGES[1], seq),
            };
            (result.unwrap_err(), tx)
        });
        std::thread::sleep(Duration::from_millis(20));
        let pid = kill(&roles[victim]);
        let (error, mut tx) = waits.join().unwrap();
        assert!(
            matches!(&error, PassError::Wait(WaitError::PeerDead(dead))
                if dead.pid == pid && &*dead.stage == STAGES[victim]),
            "{as_task}, {victim}: {error:?}"
        );
        // A successor takes the place, and handles the event.
        let mut successor = graph.reader(victim);
        until(|| successor.poll(8, |_, _| ()).unwrap() != 0);
        tx.flush().unwrap();
        tx.wait_for(STAGES[1], seq).unwrap();
        let next = tx.next_seq();
        assert!(matches!(
            tx.wait_for(STAGES[1], next),
            Err(PassError::Wait(WaitError::WaitsForItself(_)))
        ));
    }
}

#[test]
fn readers_that_sleep_learn_of_the_producers_death_as_declared() {
    let _watched = watched();
    for on_death in [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail] {
        let graph = Graph::new(on_death, 5);
        let mut first = graph.start("read", STAGES[0]);
        let mut later = graph.start("read", STAGES[1]);
        let mut tx = graph.start("publish", "");
        tx.tell("3");
        assert_eq!(tx.hear(), "at 2");
        asleep(&first);
        let pid = kill(&tx);
        match on_death {
            OnDeath::Tell => assert_eq!(first.hear(), format!("dead {PRODUCER} {pid}")),
            OnDeath::Fail => {
                let newcomer = join(&Segment::open(&graph.name.0).unwrap());
                for role in [&mut first, &mut later] {
                    let heard = role.hear();
                    let names = heard.contains(PRODUCER) && heard.contains(&pid.to_string());
                    assert!(names && heard.starts_with("error"), "{pid}: {heard}");
                }
                assert_problem!(newcomer.producer(), Problem::Over);
                continue;
            }
            OnDeath::Wait | OnDeath::Close => {}
        }
        let mut tx = graph.producer();
        assert_eq!(publish(&mut tx).unwrap(), 3);
        drop(tx);
        for role in [&mut first, &mut later] {
            let heard = loop {
                match role.hear() {
                    told if told.starts_with("dead") => assert_eq!(on_death, OnDeath::Tell),
                    heard => break heard,
                }
            };
            assert_eq!(heard, "closed 4");
        }
    }
}

fn start(name: &Name, role: &str, stage: &str) -> Role {
    let values = [("NAME", name.0.as_str()), ("STAGE", stage), ("WAIT", "blocking")];
    let mut role = Role::start(role, &values);
    assert_eq!(role.hear(), "taken");
    role
}

/// The death of a producer closes the ring if this was declared. The stages handle the published
/// events, and end. A later producer is refused.
#[test]
fn the_death_of_a_single_producer_closes_as_declared() {
    let _watched = watched();
    let name = Name::new();
    let builder = Segment::create(&name.0).capacity(4).notice(Duration::from_millis(5));
    let builder = builder.reader(STAGES[0]).reader(STAGES[1]).after([STAGES[0]]);
    let segment = builder.producer_on_death(OnDeath::Close).build().unwrap();
    let mut roles = STAGES.map(|stage| start(&name, "read", stage));
    let mut tx = start(&name, "publish", "");
    tx.tell("3");
    assert_eq!(tx.hear(), "at 2");
    kill(&tx);
    roles.iter_mut().for_each(|role| assert_eq!(role.hear(), "closed 3"));
    assert_problem!(join(&segment).producer(), Problem::Over);
}

/// A producer that asks for a place finds its predecessor dead, and is refused, because that death
/// closes the ring.
#[test]
fn a_successor_is_refused_where_a_death_closes() {
    let _watched = watched();
    let name = Name::new();
    let builder = Segment::create(&name.0).capacity(4).reader(STAGES[0]).reader(STAGES[1]);
    let segment = builder.producer_on_death(OnDeath::Close).build().unwrap();
    let mut tx = start(&name, "publish", "");
    tx.tell("2");
    assert_eq!(tx.hear(), "at 1");
    kill(&tx);
    let me = join(&segment);
    assert_problem!(retry(|| me.producer()), Problem::Over);
    let mut roles = STAGES.map(|stage| start(&name, "read", stage));
    roles.iter_mut().for_each(|role| assert_eq!(role.hear(), "closed 2"));
}

/// Among several producers, only the death of the last one closes the ring. The claims of the dead
/// are given up.
#[test]
fn the_death_of_the_last_producer_closes_as_declared() {
    let _watched = watched();
    let name = Name::new();
    let builder = Segment::create(&name.0).capacity(8).notice(Duration::from_millis(5));
    let builder = builder.producers(2).reader(STAGES[0]).reader(STAGES[1]).after([STAGES[0]]);
    let segment = builder.producer_on_death(OnDeath::Close).build().unwrap();
    let me = join(&segment);
    let mut reader = me.reader(STAGES[0]).unwrap();
    let mut later = me.reader(STAGES[1]).unwrap();
    let mut first = start(&name, "claim", "");
    assert_eq!(first.hear(), "at 0");
    let mut other = start(&name, "claim", "");
    assert_eq!(other.hear(), "at 3");
    kill(&first);
    // The dead producer's claim is given up, and the ring stays open.
    let mut seen = Vec::new();
    let mut take = |reader: &mut Reader<Numbered>, count: usize| {
        while seen.len() < count {
            let batch = reader.batch(1).unwrap();
            seen.push(batch[0].seq);
            batch.release();
        }
        seen.clone()
    };
    assert_eq!(take(&mut reader, 2), [0, 3]);
    let soon = || Instant::now() + Duration::from_millis(50);
    let waits = reader.batch_by(1, soon()).map(drop);
    assert!(matches!(waits, Err(BatchError::TimedOut(_))), "{waits:?}");
    kill(&other);
    assert!(matches!(reader.batch(1).map(drop), Err(WaitError::Closed)));
    assert_eq!(later.for_each(|_, _| ()).unwrap(), 2);
    assert_problem!(me.shared_producer(), Problem::Over);
}

/// Only a producer's death can be declared to close the ring.
#[test]
fn the_death_of_a_stage_cannot_close() {
    let _watched = watched();
    let builder = Segment::<u64>::create_memfd("closes").capacity(4);
    let closes = builder.reader(STAGES[0]).on_death(OnDeath::Close).build();
    assert_problem!(closes, Problem::StageDeath { .. });
}

/// Takes a place and becomes another program.
fn role_exec() {
    let me = open();
    let _first = retry(|| me.reader(STAGES[0])).unwrap();
    say("taken");
    listen();
    panic!("{}", Command::new("sleep").arg("300").exec());
}

#[test]
fn exec_leaves_the_place() {
    let _watched = watched();
    let graph = Graph::new(OnDeath::Tell, 1);
    let mut tx = graph.fill();
    let mut role = graph.start("exec", "");
    role.tell("go on");
    let error = tx.publish(|_| ()).unwrap_err();
    let WaitError::PeerDead(dead) = &error else { panic!("{error}") };
    assert_eq!((dead.stage.as_str(), dead.pid), (STAGES[0], role.pid()));
    let (mut first, mut later) = (graph.reader(0), graph.reader(1));
    read(&mut first);
    read(&mut later);
    assert_eq!(publish(&mut tx).unwrap(), 4);
    role.kill();
}

/// Forks a child that drops everything that it inherited, and reports how the child ended.
fn role_fork() {
    let me = open();
    let mut first = Some(retry(|| me.reader(STAGES[0])).unwrap());
    let mut tx = Some(retry(|| me.producer()).unwrap());
    let mut me = Some(me);
    publish(tx.as_mut().unwrap()).unwrap();
    let child = fork(|| {
        drop(tx.take());
        drop(first.take());
        drop(me.take());
    });
    assert_eq!(wait(child), 0, "dropping inherited handles does nothing");
    drop_inherited_claim();
    say("taken");
    listen();
    publish(tx.as_mut().unwrap()).unwrap();
    read(first.as_mut().unwrap());
    assert_eq!(first.as_ref().unwrap().next_seq(), 2);
}

/// This process, one of several producers, forks a child, which drops its copy of a claim. The
/// parent still has the claim.
fn drop_inherited_claim() {
    let segment = slipring_shm::Segment::<u64>::create_memfd("claims").capacity(8).producers(2);
    let segment = segment.reader("reader").build().unwrap();
    // SAFETY: no other process has the memfd.
    let me = unsafe { segment.attach() }.unwrap();
    let mut tx = me.shared_producer().unwrap();
    let mut claim = Some(tx.claim_n(2).unwrap());
    let child = fork(|| drop(claim.take()));
    assert_eq!(wait(child), 0, "dropping an inherited claim does nothing");
    claim.unwrap().publish();
    assert_eq!(me.reader("reader").unwrap().poll(8, |_, _| ()).unwrap(), 2);
}

#[test]
fn a_forked_child_can_drop_inherited_handles() {
    let _watched = watched();
    let graph = Graph::new(OnDeath::Fail, 1);
    let mut role = graph.start("fork", "");
    assert_problem!(graph.me.producer(), Problem::Taken { .. });
    assert_problem!(graph.me.reader(STAGES[0]), Problem::Taken { .. });
    role.tell("go on");
    assert!(role.wait().success());
    let mut later = graph.reader(1);
    assert_eq!(later.for_each(|_, _| ()).unwrap(), 2);
}

/// Another process recovers a dead one, or looks for a place for itself. Meanwhile, no call reports
/// that the dead process is alive and has its place.
#[test]
fn a_dead_owner_is_never_said_to_have_its_place() {
    let _watched = watched();
    let graph = Graph::new(OnDeath::Wait, 1);
    let reader = graph.start("read", STAGES[0]);
    kill(&reader);
    let values = [("NAME", graph.name.0.as_str()), ("STAGE", STAGES[0]), ("WAIT", "blocking")];
    let mut recoverer = Role::stopping("read", "claimed", &values);
    assert_problem!(graph.me.reader(STAGES[0]), Problem::Busy);
    recoverer.tell("go on");
    assert_eq!(recoverer.hear(), "taken");
    drop(graph.producer());
    assert_eq!(recoverer.hear(), "closed 0");
}

/// A producer that arrives while its predecessor closes the ring finds it closed, and publishes
/// nothing.
#[test]
fn no_producer_follows_a_close() {
    let _watched = watched();
    let graph = Graph::new(OnDeath::Wait, 1);
    let mut tx = graph.producer();
    publish(&mut tx).unwrap();
    let values = [("NAME", graph.name.0.as_str()), ("STAGE", ""), ("WAIT", "blocking")];
    // The role has checked that the ring is open, and stops before it takes the place.
    let mut late = Role::stopping("publish", "taking", &values);
    drop(tx);
    late.tell("go on");
    assert_eq!(late.hear(), "refused", "the ring is closed");
    assert_eq!(graph.reader(0).for_each(|_, _| ()).unwrap(), 1);
}
