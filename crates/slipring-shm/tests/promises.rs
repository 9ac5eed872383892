//! Tests of promises between real processes. The processes fulfil, break and await promises. They
//! are killed at each named step, and between any two machine instructions of each call.
//!
//! No matter which process is killed, a promise is either fulfilled with one owner's whole value,
//! or the next owner can still fulfil it. A value that no waiter has released goes to the next
//! waiter. No test asserts how long a call takes: the watchdog finds a wait that never ends.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

#[cfg(target_arch = "x86_64")]
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

#[cfg(target_arch = "x86_64")]
use common::trace::{Path, Stop, Victim, mark, test_in_a_role};
use common::*;
use rustix::process::Signal;
use slipring::{Wait, errors::WaitError};
use slipring_shm::{
    Event, OnDeath, Segment, SegmentError,
    errors::{Problem, PromiseError},
    promises::{Awaited, Promise, PromiseSegment},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A value that is torn if its words differ.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Whole([u64; 24]);

impl Event for Whole {
    const NAME: &'static str = "test/Whole";
    const VERSION: u32 = 1;
}

impl Whole {
    fn of(word: u64) -> Whole {
        Whole([word; 24])
    }

    #[track_caller]
    fn word(&self) -> u64 {
        assert_eq!(*self, Whole::of(self.0[0]), "torn");
        self.0[0]
    }
}

type Made = PromiseSegment<Whole>;

#[test]
fn plays_a_role() {
    let _watched = watched();
    // This process starts no watchdog, because a forked child would lose the watchdog's thread. The
    // process that waits for this one has a watchdog.
    drop(_watched);
    play(&[
        ("own", role_own),
        ("await", role_await),
        ("create", role_create),
        ("panic", role_panic),
        #[cfg(target_arch = "x86_64")]
        ("instructions", role_instructions),
    ]);
}

/// Repeats a call while a killed process still holds its place.
fn retry<T>(mut call: impl FnMut() -> Result<T, SegmentError>) -> Result<T, SegmentError> {
    loop {
        match call() {
            Err(error) if matches!(error.problem(), Problem::Taken { .. } | Problem::Busy) => {
                std::thread::sleep(Duration::from_micros(200));
            }
            result => return result,
        }
    }
}

fn owner(segment: &Made) -> Result<Promise<Whole>, SegmentError> {
    // SAFETY: only these tests know the segment. A child that is forked makes its own attachment.
    retry(|| unsafe { segment.promise() })
}

fn waiter(segment: &Made) -> Result<Awaited<Whole>, SegmentError> {
    // SAFETY: as above.
    retry(|| unsafe { segment.awaited() })
}

fn open() -> Made {
    let segment = Made::open(value("NAME")).unwrap();
    segment.with_wait(std::env::var("WAIT").map_or(Wait::Blocking, |wait| wait.parse().unwrap()))
}

/// Owns the promise, and does what each line asks.
fn role_own() {
    let promise = match owner(&open()) {
        Ok(promise) => promise,
        Err(error) => return say(format!("refused: {error}")),
    };
    say("owns");
    match listen().as_str() {
        "drop" => drop(promise),
        word => promise.fulfil(Whole::of(word.parse().unwrap())).unwrap(),
    }
    say("done");
}

/// Waits for the value, and reports each result. If `LEAVE` is set, it does not release the value.
fn role_await() {
    let mut awaited = waiter(&open()).unwrap();
    say("waits");
    loop {
        match awaited.wait() {
            Ok(value) => {
                say(format!("{} {}", value.word(), value.is_redelivered()));
                if std::env::var_os("LEAVE").is_none() {
                    value.release();
                }
                break;
            }
            Err(PromiseError::PeerDead(dead)) => say(format!("dead {}", dead.pid)),
            Err(error) => break say(error),
        }
    }
}

fn role_create() {
    let made = Made::create(value("NAME")).build().unwrap();
    drop(made);
}

/// Owns the promise, and panics.
fn role_panic() {
    std::panic::set_hook(Box::new(|_| ()));
    let promise = owner(&open()).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(move || match value("WHERE").as_str() {
        "fill" => promise.fulfil_with(|slot| {
            slot.0[0] = 9;
            panic!("on purpose");
        }),
        _ => panic!("on purpose, with {promise:?}"),
    }));
    assert!(panicked.is_err());
    say("panicked");
    listen();
}

/// A named promise.
struct Named {
    name: Name,
    segment: Made,
}

impl Named {
    fn new() -> Named {
        Named::with(OnDeath::Wait)
    }

    fn with(on_death: OnDeath) -> Named {
        let name = Name::new();
        let builder = Made::create(&name.0).on_death(on_death).notice(Duration::from_millis(2));
        Named { segment: builder.build().unwrap(), name }
    }

    fn start(&self, role: &str, values: &[(&str, &str)]) -> Role {
        Role::start(role, &[&[("NAME", self.name.0.as_str())], values].concat())
    }

    /// Starts a process that owns the promise.
    fn owner(&self) -> Role {
        let mut role = self.start("own", &[]);
        assert_eq!(role.hear(), "owns");
        role
    }

    /// Starts a process that waits, and returns once it sleeps.
    fn waiter(&self) -> Role {
        let mut role = self.start("await", &[]);
        assert_eq!(role.hear(), "waits");
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", role.pid())).unwrap();
        until(|| stat().contains(") S "));
        role
    }

    /// Takes the waiter's place. Returns the value, and whether it was lent before.
    fn take(&self) -> Result<(u64, bool), PromiseError> {
        let mut awaited = waiter(&self.segment).unwrap();
        let value = awaited.wait()?;
        let result = (value.word(), value.is_redelivered());
        value.release();
        Ok(result)
    }

    #[track_caller]
    fn assert_pending(&self) {
        let mut awaited = waiter(&self.segment).unwrap();
        assert!(awaited.try_take().unwrap().is_none());
        let error = awaited.wait_for(Duration::from_millis(1)).unwrap_err();
        assert!(matches!(error, PromiseError::TimedOut), "{error}");
    }

    /// Fulfils the promise in place of a dead owner, and checks that a waiter gets that value.
    #[track_caller]
    fn assert_goes_on(&self) {
        self.assert_pending();
        owner(&self.segment).unwrap().fulfil(Whole::of(77)).unwrap();
        assert_eq!(self.take().unwrap(), (77, false));
        self.assert_over();
    }

    #[track_caller]
    fn assert_over(&self) {
        assert!(matches!(self.take(), Err(PromiseError::Taken)));
        assert_problem!(owner(&self.segment), Problem::Fulfilled);
    }
}

#[test]
fn a_value_goes_from_one_process_to_another() {
    let _watched = watched();
    for wait in Wait::all() {
        let promise = Named::new();
        let mut waits = promise.start("await", &[("WAIT", &wait.to_string())]);
        assert_eq!(waits.hear(), "waits");
        let mut owns = promise.owner();
        owns.tell("5");
        assert_eq!((owns.hear(), waits.hear()), ("done".into(), "5 false".into()), "{wait}");
        assert!(owns.end().success() && waits.end().success());
        promise.assert_over();
    }
}

#[test]
fn a_value_that_is_there_waits_for_its_waiter() {
    let _watched = watched();
    let mut promise = Named::new();
    // No process can remove the segment until its creator has attached or has dropped it.
    promise.segment = Made::open(&promise.name.0).unwrap();
    let mut owns = promise.owner();
    owns.tell("5");
    assert_eq!(owns.hear(), "done");
    assert!(owns.end().success());
    // Both processes are gone, and the segment keeps the value.
    assert!(slipring_shm::inspect(&promise.name.0).unwrap().stale);
    assert_problem!(owner(&promise.segment), Problem::Fulfilled);
    assert_eq!(promise.take().unwrap(), (5, false));
    promise.assert_over();
    drop(promise.segment);
    slipring_shm::remove(&promise.name.0).unwrap();
}

#[test]
fn a_dropped_promise_is_broken_for_each_waiter() {
    let _watched = watched();
    let promise = Named::new();
    let mut waits = promise.waiter();
    let mut owns = promise.owner();
    owns.tell("drop");
    assert_eq!(owns.hear(), "done");
    let broken = PromiseError::Broken.to_string();
    assert_eq!(waits.hear(), broken);
    assert!(waits.end().success());
    assert_eq!(promise.take().unwrap_err().to_string(), broken);
    assert_problem!(owner(&promise.segment), Problem::Broken);
    // A waiter that asks again gets the same answer.
    let mut awaited = waiter(&promise.segment).unwrap();
    for _ in 0..2 {
        assert!(matches!(awaited.try_take(), Err(PromiseError::Broken)));
        assert!(matches!(awaited.wait_until(Instant::now()), Err(PromiseError::Broken)));
    }
}

#[test]
fn each_place_has_one_process() {
    let _watched = watched();
    let promise = Named::new();
    let (owns, waits) = (promise.owner(), promise.waiter());
    // SAFETY: as in `owner`.
    let second = problem(unsafe { promise.segment.promise() });
    let is_pid = |found: &Problem, role: &Role| matches!(found, Problem::Taken { pid, .. } if *pid == role.pid());
    assert!(is_pid(second.of(), &owns), "{}", second.message);
    // SAFETY: as in `owner`.
    let second = problem(unsafe { promise.segment.awaited() });
    assert!(is_pid(second.of(), &waits), "{}", second.message);
    // A stopped process is alive.
    owns.signal(Signal::STOP);
    // SAFETY: as in `owner`.
    assert_problem!(unsafe { promise.segment.promise() }, Problem::Taken { .. });
    owns.kill();
    owner(&promise.segment).unwrap().fulfil(Whole::of(6)).unwrap();
    let mut waits = waits;
    assert_eq!(waits.hear(), "6 false");
}

/// One process may take both places, several times in a row.
#[test]
fn a_waiter_attaches_twice() {
    let _watched = watched();
    let promise = Named::new();
    let mut first = waiter(&promise.segment).unwrap();
    assert!(first.try_take().unwrap().is_none());
    // SAFETY: as in `owner`.
    assert_problem!(unsafe { promise.segment.awaited() }, Problem::Taken { .. });
    drop(first);
    let mut second = waiter(&promise.segment).unwrap();
    owner(&promise.segment).unwrap().fulfil(Whole::of(8)).unwrap();
    // Each time that a value is dropped without a release, the same handle gets the value again.
    for _ in 0..3 {
        let value = second.wait().unwrap();
        assert_eq!((value.word(), value.is_redelivered()), (8, false));
    }
    drop(second);
    let mut third = waiter(&promise.segment).unwrap();
    let value = third.wait().unwrap();
    assert_eq!((value.is_redelivered(), value.take()), (true, Whole::of(8)));
    assert!(matches!(third.wait(), Err(PromiseError::Taken)));
    drop(third);
    promise.assert_over();
}

#[test]
fn a_ring_that_is_no_promise_is_refused() {
    let _watched = watched();
    let segment = |change: fn(slipring_shm::Builder<Whole>) -> slipring_shm::Builder<Whole>| {
        let name = Name::new();
        drop(change(Segment::create(&name.0)).build().unwrap());
        let problem = problem(Made::open(&name.0));
        assert!(matches!(problem.of(), Problem::NotPromise { .. }), "{}", problem.message);
        problem.message
    };
    let lacks = [
        segment(|ring| ring.capacity(1).reader("waiter").reader("log")),
        segment(|ring| ring.capacity(1).reader("log")),
        segment(|ring| ring.capacity(1).updater("waiter")),
        segment(|ring| ring.capacity(1).tap("waiter", 2)),
        segment(|ring| ring.capacity(2).reader("waiter")),
        segment(|ring| ring.capacity(1).producers(2).reader("waiter")),
        segment(|ring| ring.capacity(1).without_ring()),
    ];
    for (message, lack) in lacks.iter().zip([
        "a single stage",
        "stage `waiter`",
        "stage `waiter`",
        "stage `waiter`",
        "a single slot",
        "a single producer",
        "a single stage",
    ]) {
        assert!(message.contains(lack), "{message}");
    }
    let name = Name::new();
    drop(Made::create(&name.0).build().unwrap());
    assert_problem!(PromiseSegment::<u64>::open(&name.0), Problem::EventType { .. });
    assert_problem!(Made::create(&name.0).build(), Problem::Exists);
    assert_problem!(Made::open(Name::new().0.as_str()), Problem::Missing);
}

/// If the promise's name refers to another ring when a process attaches, the process is refused.
#[test]
fn a_promise_that_was_replaced_by_a_ring_is_refused() {
    let _watched = watched();
    let promise = Named::new();
    let opened = Made::open(&promise.name.0).unwrap();
    drop(promise.segment);
    slipring_shm::remove(&promise.name.0).unwrap();
    drop(Segment::<Whole>::create(&promise.name.0).capacity(4).reader("log").build().unwrap());
    // SAFETY: as in `owner`.
    assert_problem!(unsafe { opened.promise() }, Problem::NotPromise { .. });
    // SAFETY: as in `owner`.
    assert_problem!(unsafe { opened.awaited() }, Problem::NotPromise { .. });
}

/// No process owns the promise, and its creator is gone. A waiter waits until its deadline, and a
/// process that comes later may still fulfil the promise.
#[test]
fn a_promise_that_no_process_owns_stays_pending() {
    let _watched = watched();
    for on_death in [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail] {
        let promise = Named::with(on_death);
        promise.assert_goes_on();
    }
    let name = Name::new();
    assert!(Role::start("create", &[("NAME", &name.0)]).end().success());
    let promise = Named { segment: Made::open(&name.0).unwrap(), name };
    promise.assert_goes_on();
}

/// Each death of an owner has the effect that the promise declares.
#[test]
fn a_waiter_hears_of_its_owners_death_as_declared() {
    let _watched = watched();
    for on_death in [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail] {
        let promise = Named::with(on_death);
        let mut waits = promise.waiter();
        let owns = promise.owner();
        let pid = owns.pid();
        owns.kill();
        match on_death {
            OnDeath::Close => unreachable!("not tried here"),
            OnDeath::Wait => {}
            OnDeath::Tell => assert_eq!(waits.hear(), format!("dead {pid}")),
            OnDeath::Fail => {
                let said = waits.hear();
                assert!(
                    said.contains("the graph has ended") && said.contains("producer"),
                    "{said}"
                );
                assert!(matches!(promise.take(), Err(PromiseError::Ended(WaitError::Failed(_)))));
                assert_problem!(owner(&promise.segment), Problem::Over);
                continue;
            }
        }
        owner(&promise.segment).unwrap().fulfil(Whole::of(7)).unwrap();
        let said = loop {
            // The waiter may have got the error from several calls.
            let said = waits.hear();
            if !said.starts_with("dead") {
                break said;
            }
        };
        assert_eq!(said, "7 false");
    }
}

/// A waiter that arrives only after the death gets the error, too, from every call that waits. But
/// a value that was published before the death is still delivered.
#[test]
fn a_waiter_that_comes_after_a_death_is_told() {
    let _watched = watched();
    let promise = Named::with(OnDeath::Tell);
    promise.owner().kill();
    let mut awaited = waiter(&promise.segment).unwrap();
    for _ in 0..2 {
        let error = awaited.wait().unwrap_err();
        assert!(matches!(error, PromiseError::PeerDead(_)), "{error}");
        assert!(error.to_string().contains("has died"), "{error}");
        let error = awaited.wait_for(Duration::from_secs(60)).unwrap_err();
        assert!(matches!(error, PromiseError::PeerDead(_)), "{error}");
    }
    // Loops of calls that do not wait learn of the death, too.
    until(|| matches!(awaited.try_take(), Err(PromiseError::PeerDead(_))));
    until(|| matches!(awaited.wait_for(Duration::ZERO), Err(PromiseError::PeerDead(_))));
    let now = Instant::now;
    until(|| matches!(awaited.wait_until(now()), Err(PromiseError::PeerDead(_))));
    owner(&promise.segment).unwrap().fulfil(Whole::of(7)).unwrap();
    assert_eq!(awaited.try_take().unwrap().unwrap().take(), Whole::of(7));
    assert!(matches!(awaited.try_take(), Err(PromiseError::Taken)));

    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        for step in ["fulfilled", "settled"] {
            let promise = Named::with(on_death);
            let mut owns =
                promise.start("own", &[("SLIPRING_SHM_TEST_STEP", &format!("kill {step}"))]);
            owns.try_tell("5");
            assert!(!owns.wait().success());
            assert_eq!(promise.take().unwrap(), (5, false));
            promise.assert_over();
        }
    }
}

/// If the owner panics, even while it writes the value, a successor can fulfil the promise, as
/// after a kill.
#[test]
fn a_panic_of_the_owner_leaves_the_promise() {
    let _watched = watched();
    for place in ["hold", "fill"] {
        let promise = Named::new();
        let mut role = promise.start("panic", &[("WHERE", place)]);
        assert_eq!(role.hear(), "panicked");
        promise.assert_goes_on();
        assert!(role.end().success());
    }
}

/// The steps of an owner: first those before the value is published, then those after that.
const OWNER: [&[&str]; 2] = [
    &[
        "registered",
        "opened",
        "guarded",
        "mapped",
        "taken",
        "unguarded",
        "attached",
        "taking",
        "seated",
        "promise-owned",
        "fulfilling",
        "filled-in",
    ],
    &["fulfilled", "settled", "leaving", "left"],
];

#[test]
fn an_owner_killed_at_any_step_has_fulfilled_the_promise_or_has_a_successor() {
    let _watched = watched();
    for (fulfilled, steps) in OWNER.iter().enumerate() {
        for step in *steps {
            for sleeps in [false, true] {
                let promise = Named::new();
                let waits = sleeps.then(|| promise.waiter());
                let mut owns = promise
                    .start("own", &[("SLIPRING_SHM_TEST_STEP", format!("kill {step}").as_str())]);
                // The role may already be dead, because it is killed at some step before it would
                // read this line.
                owns.try_tell("5");
                assert!(!owns.wait().success(), "never came to {step}");
                match (fulfilled, waits) {
                    (0, None) => promise.assert_goes_on(),
                    (0, Some(mut waits)) => {
                        owner(&promise.segment).unwrap().fulfil(Whole::of(77)).unwrap();
                        assert_eq!(waits.hear(), "77 false", "{step}");
                        assert!(waits.end().success());
                        promise.assert_over();
                    }
                    (_, None) => {
                        assert_problem!(owner(&promise.segment), Problem::Fulfilled);
                        assert_eq!(promise.take().unwrap(), (5, false), "{step}");
                        promise.assert_over();
                    }
                    (_, Some(mut waits)) => {
                        assert_eq!(waits.hear(), "5 false", "{step}");
                        assert!(waits.end().success());
                        promise.assert_over();
                    }
                }
            }
        }
    }
}

/// The steps of a waiter: first those before it is lent the value, then those until it has released
/// the value, and then the rest.
const WAITER: [&[&str]; 3] = [
    &["opened", "mapped", "taken", "attached", "taking", "seated", "promise-awaited"],
    &["promise-lent", "promise-releasing"],
    &["promise-released", "leaving", "left"],
];

#[test]
fn a_waiter_killed_at_any_step_has_released_the_value_or_has_a_successor() {
    let _watched = watched();
    for (lent, steps) in WAITER.iter().enumerate() {
        for step in *steps {
            let promise = Named::new();
            owner(&promise.segment).unwrap().fulfil(Whole::of(5)).unwrap();
            Role::killed_at("await", step, &[("NAME", &promise.name.0)]);
            match lent {
                0 | 1 => assert_eq!(promise.take().unwrap(), (5, lent == 1), "{step}"),
                _ => assert!(matches!(promise.take(), Err(PromiseError::Taken)), "{step}"),
            }
            promise.assert_over();
        }
    }
}

/// If a waiter leaves without a release, its successor gets the value, and learns that the value
/// was lent before.
#[test]
fn a_waiter_that_leaves_without_a_release_has_a_successor() {
    let _watched = watched();
    let promise = Named::new();
    owner(&promise.segment).unwrap().fulfil(Whole::of(5)).unwrap();
    let mut waits = promise.start("await", &[("LEAVE", "1")]);
    assert_eq!((waits.hear(), waits.hear()), ("waits".into(), "5 false".into()));
    assert!(waits.end().success());
    assert_eq!(promise.take().unwrap(), (5, true));
    promise.assert_over();
}

/// Owner and waiter are killed at the same time, at every pair of their steps. Two other processes
/// then finish.
#[test]
fn both_processes_may_be_killed() {
    let _watched = watched();
    for owner_step in ["promise-owned", "filled-in", "fulfilled", "settled"] {
        for waiter_step in ["promise-awaited", "promise-lent"] {
            let promise = Named::new();
            let is_fulfilled = matches!(owner_step, "fulfilled" | "settled");
            let mut owns =
                promise.start("own", &[("SLIPRING_SHM_TEST_STEP", &format!("kill {owner_step}"))]);
            owns.try_tell("5");
            assert!(!owns.wait().success());
            let is_lent = is_fulfilled && waiter_step == "promise-lent";
            if is_lent || waiter_step == "promise-awaited" {
                Role::killed_at("await", waiter_step, &[("NAME", &promise.name.0)]);
            }
            if is_fulfilled {
                assert_eq!(promise.take().unwrap(), (5, is_lent));
                promise.assert_over();
            } else {
                promise.assert_goes_on();
            }
        }
    }
}

/// More owners and waiters die than the segment has places for participants.
#[test]
fn the_places_of_the_dead_are_used_again() {
    let _watched = watched();
    let name = Name::new();
    let segment = Made::create(&name.0).participants(2).build().unwrap();
    let promise = Named { name, segment };
    for _ in 0..3 {
        Role::killed_at("await", "promise-awaited", &[("NAME", &promise.name.0)]);
        Role::killed_at("own", "promise-owned", &[("NAME", &promise.name.0)]);
    }
    promise.assert_goes_on();
}

/// A call in which a process is killed.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Fulfil,
    Break,
    Wait,
    Release,
}

#[cfg(target_arch = "x86_64")]
impl Call {
    /// Starts a victim, which makes the call between its two marks.
    fn victim(self, promise: &Named) -> Option<Victim> {
        if matches!(self, Call::Wait | Call::Release) {
            owner(&promise.segment).unwrap().fulfil(Whole::of(5)).unwrap();
        }
        Victim::start(|| match self {
            Call::Fulfil => {
                let own = owner(&promise.segment).unwrap();
                mark();
                own.fulfil(Whole::of(5)).unwrap();
                mark();
            }
            Call::Break => {
                let own = owner(&promise.segment).unwrap();
                mark();
                drop(own);
                mark();
            }
            Call::Wait => {
                let mut awaited = waiter(&promise.segment).unwrap();
                mark();
                let value = awaited.wait().unwrap();
                mark();
                value.release();
            }
            Call::Release => {
                let mut awaited = waiter(&promise.segment).unwrap();
                let value = awaited.wait().unwrap();
                mark();
                value.release();
                mark();
            }
        })
    }

    /// Lets survivors finish the promise that a victim has left. Returns the state that they found.
    fn finish(self, promise: &Named) -> &'static str {
        let found = match self {
            Call::Fulfil | Call::Break => match owner(&promise.segment) {
                Ok(own) => {
                    own.fulfil(Whole::of(77)).unwrap();
                    assert_eq!(promise.take().unwrap(), (77, false));
                    "pending"
                }
                Err(error) if self == Call::Fulfil => {
                    assert!(matches!(error.problem(), Problem::Fulfilled), "{error}");
                    assert_eq!(promise.take().unwrap(), (5, false));
                    "fulfilled"
                }
                Err(error) => {
                    assert!(matches!(error.problem(), Problem::Broken), "{error}");
                    assert!(matches!(promise.take(), Err(PromiseError::Broken)));
                    return "broken";
                }
            },
            Call::Wait | Call::Release => match promise.take() {
                Ok((5, false)) => "not lent",
                Ok((5, true)) => "lent",
                Err(PromiseError::Taken) => "taken",
                other => panic!("{other:?}"),
            },
        };
        promise.assert_over();
        found
    }

    /// The two states in which a kill in the call may leave the promise.
    fn states(self) -> [&'static str; 2] {
        match self {
            Call::Fulfil => ["fulfilled", "pending"],
            Call::Break => ["broken", "pending"],
            Call::Wait => ["lent", "not lent"],
            Call::Release => ["lent", "taken"],
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn role_instructions() {
    let all = std::env::var_os("SLIPRING_KILL_ALL").is_some();
    let places_of = |path: &Path| path.kills(if all { path.places.len() } else { 100 });
    for call in [Call::Fulfil, Call::Break, Call::Wait, Call::Release] {
        let warm = Named::new();
        let Some(victim) = call.victim(&warm) else { return say("refused") };
        assert_eq!(victim.run(), Stop::Mark);
        victim.kill();
        let promise = Named::new();
        let seen = Segment::<Whole>::open(&promise.name.0).unwrap();
        // SAFETY: as in `owner`.
        let seen = unsafe { seen.attach() }.unwrap();
        let mapping = seen.participation().mapping();
        // SAFETY: the bytes are mapped, and the victim is stopped while they are read.
        let memory = || unsafe {
            let head = slipring_shm::parts::layout::HEAD as usize;
            std::slice::from_raw_parts(mapping.base().as_ptr().add(head), mapping.length() - head)
        };
        let path = Path::of(call.victim(&promise).expect("the first was not refused"), memory);
        call.finish(&promise);
        let places = places_of(&path);
        let (mut came, mut found) = (0, BTreeSet::new());
        for &index in &places {
            let promise = Named::new();
            let victim = call.victim(&promise).expect("the first was not refused");
            let (address, count) = path.places[index];
            came += usize::from(victim.run_to(address, count));
            victim.kill();
            found.insert(call.finish(&promise));
        }
        assert_eq!(found.into_iter().collect::<Vec<_>>(), call.states(), "{call:?}");
        let (count, states, places) = (path.places.len(), path.changes.len(), places.len());
        say(format!(
            "{call:?}: {count} instructions, {states} states, killed at {came} of {places}"
        ));
        // Some places lie in loops whose number of rounds depends on the clock, so not every victim
        // reaches its place.
        assert!(
            came * 4 >= places * if all { 1 } else { 3 },
            "{call:?}: most victims took another path"
        );
    }
    say("done");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn processes_killed_between_instructions_leave_a_promise_that_goes_on() {
    let _watched = watched();
    test_in_a_role("instructions", &[]);
}
