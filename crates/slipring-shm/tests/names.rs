//! Tests of names that are removed, renamed or replaced by other means than `remove` while
//! processes are attached. Each waiting process learns of a loss in time, and none is ever told of
//! a loss that did not happen.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use common::*;
use slipring::{
    errors::{BatchError, ClaimError, NameLost, WaitError},
    waiting::Warning,
};
use slipring_shm::{Attached, Segment};

/// Longest time that a wait of these tests may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Time of several notices.
const NOTICES: Duration = Duration::from_millis(200);

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[("waiter", role_waiter), ("task", role_task), ("elsewhere", role_elsewhere)]);
}

fn make(name: &Name) -> Segment<u64> {
    Segment::create(&name.0).capacity(2).reader("sum").build().unwrap()
}

fn join(segment: &Segment<u64>) -> Attached<u64> {
    // SAFETY: only these tests open the segment, and all of them follow the protocol.
    unsafe { segment.attach().unwrap() }
}

/// Number of warnings that this process has received.
static WARNINGS: AtomicU32 = AtomicU32::new(0);

fn count_warnings() {
    let hook = |warning: &Warning| match warning {
        Warning::NameLost(lost) => {
            WARNINGS.fetch_add(1, Relaxed);
            let kind = if lost.replaced { "replaced" } else { "removed" };
            say(format!("{kind} {}", lost.path.display()));
        }
        other => say(other),
    };
    assert!(slipring::waiting::on_warning(hook));
}

fn deadline(time: Duration) -> Instant {
    Instant::now() + time
}

/// Waits as two participants until a warning has come, and then for a few more notices.
fn role_waiter() {
    count_warnings();
    let segment = Segment::<u64>::open(value("NAME")).unwrap();
    let (one, other) = (join(&segment), join(&segment));
    let (mut sum, mut tx) = (one.reader("sum").unwrap(), other.producer().unwrap());
    say("waits");
    let end = deadline(LIMIT);
    while WARNINGS.load(Relaxed) == 0 && Instant::now() < end {
        assert!(matches!(sum.batch_by(1, deadline(NOTICES)), Err(BatchError::TimedOut(_))));
    }
    // The ring still works, and both participants wait again.
    for number in 0..2 {
        tx.publish(|slot| *slot = number).unwrap();
    }
    assert!(tx.publish_by(deadline(NOTICES), |_| ()).is_err());
    assert_eq!(sum.poll(2, |_, _| ()).unwrap(), 2);
    assert!(matches!(sum.batch_by(1, deadline(NOTICES)), Err(BatchError::TimedOut(_))));
    assert!(one.has_lost_name().unwrap() && other.has_lost_name().unwrap());
    say(format!("{} warnings", WARNINGS.load(Relaxed)));
}

/// A task, with its handle.
static TASK: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>> = Mutex::new(None);

/// A task waits, and gets the warning. The handler of the warning is a user's code, and here it
/// drops the last handle of the ring. That drop waits until no thread uses the ring.
fn role_task() {
    let hook = |warning: &Warning| {
        let Warning::NameLost(lost) = warning else { panic!("{warning}") };
        assert!(!lost.replaced);
        let task = TASK.lock().unwrap().take();
        assert!(task.is_some());
        drop(task);
        say(format!("removed {}", lost.path.display()));
        WARNINGS.fetch_add(1, Relaxed);
    };
    assert!(slipring::waiting::on_warning(hook));
    let name = value("NAME");
    let attached = join(&Segment::<u64>::open(&name).unwrap());
    let mut sum = attached.reader("sum").unwrap();
    drop(attached);
    let mut task = Box::pin(async move { sum.batch_async(1).await.map(|_| ()).unwrap() });
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    *TASK.lock().unwrap() = Some(task);
    say("waits");
    until(|| WARNINGS.load(Relaxed) != 0);
    say("1 warnings");
}

/// Starts a role that waits at a segment, and calls `remove`, which takes the segment's name away.
/// Returns which warning the role got.
fn warned(role: &str, remove: fn(&Name)) -> String {
    let name = Name::new();
    drop(make(&name));
    let mut role = Role::start(role, &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "waits");
    remove(&name);
    let said = role.hear();
    assert_eq!(role.hear(), "1 warnings");
    assert!(role.end().success());
    let (kind, path) = said.split_once(' ').unwrap();
    assert_eq!(path, name.path().to_str().unwrap());
    kind.to_owned()
}

#[test]
fn a_waiting_party_warns_once_that_its_name_is_gone() {
    let _watched = watched();
    let remove = |name: &Name| fs::remove_file(name.path()).unwrap();
    assert_eq!(warned("waiter", remove), "removed");
    assert_eq!(warned("task", remove), "removed");
}

#[test]
fn a_waiting_party_warns_once_that_its_name_means_another_file() {
    let _watched = watched();
    // A rename replaces the file in one step, so no check finds the name without a file.
    let replace = |name: &Name| {
        let other = Name::new();
        drop(make(&other));
        fs::rename(other.path(), name.path()).unwrap();
    };
    assert_eq!(warned("waiter", replace), "replaced");
}

#[track_caller]
fn lost(error: WaitError, name: &Name) {
    let WaitError::NameLost(lost) = error else { panic!("{error}") };
    assert_eq!((&lost.path, lost.replaced), (&name.path(), false));
    let text = lost.to_string();
    assert!(
        text.contains(name.path().to_str().unwrap()) && text.contains("`slipring rm`"),
        "{text}"
    );
}

/// Every kind of call that waits or polls returns the error.
#[test]
fn a_participant_that_requires_the_name_gets_an_error() {
    let _watched = watched();
    let name = Name::new();
    let segment = make(&name);
    let attached = join(&segment).require_name();
    let copies = segment.attach_copies().unwrap().require_name();
    assert!(!attached.has_lost_name().unwrap() && !copies.has_lost_name().unwrap());
    let (mut tx, mut sum) = (attached.producer().unwrap(), copies.reader("sum").unwrap());
    assert!(sum.next_by(deadline(NOTICES)).is_err_and(|e| matches!(e, BatchError::TimedOut(_))));
    let away = name.path().with_extension("away");
    fs::rename(name.path(), &away).unwrap();
    assert!(attached.has_lost_name().unwrap() && copies.has_lost_name().unwrap());
    lost(sum.next().unwrap_err(), &name);
    // The next call returns the same error. Events that are published after the loss are still
    // read.
    lost(sum.next().unwrap_err(), &name);
    (0..2).for_each(|number| _ = tx.publish(|slot| *slot = number).unwrap());
    lost(tx.publish(|_| ()).unwrap_err(), &name);
    let refused = loop {
        match tx.try_publish(|_| ()) {
            Err(ClaimError::Wait(error)) => break error,
            refused => assert!(refused.is_err()),
        }
    };
    lost(refused, &name);
    assert_eq!((sum.next().unwrap(), sum.next().unwrap()), ((0, 0), (1, 1)));
    drop(sum);
    // An event that was copied is released by the next call.
    let mut sum = attached.reader("sum").unwrap();
    assert_eq!(sum.poll(2, |_, _| ()).unwrap(), sum.redelivered().count());
    lost(block_on(sum.batch_async(1)).unwrap_err(), &name);
    let refused = loop {
        match sum.try_batch(1) {
            Err(BatchError::Wait(error)) => break error,
            Err(_) => {}
            Ok(_) => panic!("there is no event"),
        };
    };
    lost(refused, &name);
    // The name refers to the file again.
    fs::rename(&away, name.path()).unwrap();
    assert!(!attached.has_lost_name().unwrap());
    assert!(matches!(sum.batch_by(1, deadline(NOTICES)), Err(BatchError::TimedOut(_))));
    // Then the name refers to another file.
    fs::remove_file(name.path()).unwrap();
    drop(make(&name));
    let Err(WaitError::NameLost(lost)) = sum.batch(1) else { panic!("no error") };
    assert!(lost.replaced, "{lost}");
}

/// Attaches to a file in a folder. After that, this process sees another folder at the same path,
/// or none.
fn role_elsewhere() {
    count_warnings();
    let folder = PathBuf::from(value("FOLDER"));
    std::env::set_current_dir(&folder).unwrap();
    let attached = join(&Segment::<u64>::open_at("segment").unwrap());
    let mut sum = attached.reader("sum").unwrap();
    let mut check = |lost: bool| {
        assert!(matches!(sum.batch_by(1, deadline(NOTICES)), Err(BatchError::TimedOut(_))));
        assert_eq!(
            (attached.has_lost_name().unwrap(), WARNINGS.load(Relaxed)),
            (lost, lost.into())
        );
    };
    // The path was relative.
    std::env::set_current_dir("/").unwrap();
    check(false);
    if let Err(error) = std::os::unix::fs::chroot(folder.join("root")) {
        return say(error);
    }
    // For this process, there is now no file at this path.
    check(false);
    fs::create_dir_all(&folder).unwrap();
    check(false);
    fs::write(folder.join("segment"), "another file").unwrap();
    check(false);
    say("ready");
    listen();
    // The file has no link left, which proves that its name is lost.
    check(true);
    say("done");
}

#[test]
fn a_name_that_a_process_cannot_see_is_not_lost() {
    let _watched = watched();
    let folder = Folder::new();
    let path = folder.0.join("segment");
    fs::create_dir(folder.0.join("root")).unwrap();
    let made = Segment::<u64>::create_at(&path).capacity(2).reader("sum").build();
    let Ok(segment) = made else { return skip("no segments in the folder for temporary files") };
    drop(segment);
    let mut role = Role::start("elsewhere", &[("FOLDER", folder.0.to_str().unwrap())]);
    match role.hear().as_str() {
        "ready" => {}
        other => return skip(other),
    }
    fs::remove_file(&path).unwrap();
    role.tell("on");
    let said = role.hear();
    assert!(said.starts_with("removed") || said.starts_with("replaced"), "{said}");
    assert_eq!(role.hear(), "done");
    assert!(role.end().success());
}

#[test]
fn a_memfd_has_no_name_to_lose() {
    let _watched = watched();
    let made = Segment::<u64>::create_memfd("memfd").capacity(2).reader("sum").build().unwrap();
    let attached = join(&made).require_name();
    let mut sum = attached.reader("sum").unwrap();
    assert!(matches!(sum.batch_by(1, deadline(NOTICES)), Err(BatchError::TimedOut(_))));
    assert!(!attached.has_lost_name().unwrap());
}

/// The error and the warning of a lost name have the same message, which says whether the name now
/// means another file.
#[test]
fn the_error_says_what_it_means() {
    let _watched = watched();
    let lost = NameLost::new("/dev/shm/a.slipring".into(), true);
    let error = WaitError::NameLost(Box::new(lost.clone()));
    assert_eq!(error.to_string(), lost.to_string());
    assert_eq!(Warning::NameLost(lost.clone()).to_string(), lost.to_string());
    assert!(lost.to_string().contains("means another file by now"), "{lost}");
}
