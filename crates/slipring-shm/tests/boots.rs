//! Opening a segment checks that the segment is of this boot. These tests check cases in which one
//! of the two boots is unknown: the process has no descriptor left to read its own boot, it has no
//! `/proc`, or the segment's maker had no `/proc`.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::fs::{self, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use common::*;
use rustix::fs::fstatfs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slipring_shm::parts::layout::Head;
use slipring_shm::parts::lock::{self, Hold};
use slipring_shm::{
    errors::{EvictProblem, HeaderProblem, Problem},
    summaries::{Eviction, Liveness},
};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[
        ("few descriptors", role_few_descriptors),
        ("no proc", role_no_proc),
        ("holder", role_holder),
    ]);
}

fn role_holder() {
    // SAFETY: only these tests know the segment, and no test reads events.
    let attached = unsafe { slipring_shm::Segment::<u64>::open(value("NAME")).unwrap().attach() };
    let _reader = attached.unwrap().reader("sum").unwrap();
    say("holds");
    listen();
}

/// Uses up all descriptors but `left`, until the result is dropped.
fn take_descriptors(left: usize) -> Vec<OwnedFd> {
    let mut taken: Vec<OwnedFd> = Vec::new();
    while let Ok(fd) = std::io::stdin().as_fd().try_clone_to_owned() {
        taken.push(fd);
    }
    taken.truncate(taken.len() - left);
    taken
}

/// Asserts that a call has failed because no descriptor was free, and that its error says nothing
/// about the segment.
#[track_caller]
fn refused_a_descriptor<T>(result: Result<T, slipring_shm::SegmentError>) {
    let failed = problem(result);
    assert!(matches!(failed.of(), Problem::System { .. }), "{}", failed.message);
    assert!(failed.message.contains("Too many open files"), "{}", failed.message);
}

fn role_few_descriptors() {
    let name = value("NAME");
    let limit = Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let one = take_descriptors(1);
    let summary = slipring_shm::inspect(&name).unwrap();
    assert!(!summary.stale, "{summary:?}");
    assert_eq!(summary.participants[0].liveness, Liveness::Alive);
    let listed = slipring_shm::list().unwrap();
    let found = listed.into_iter().flatten().find(|one| one.name.as_deref() == Some(&name));
    assert!(found.is_some_and(|found| !found.stale));
    let segment = slipring_shm::Segment::<u64>::open(&name).unwrap();
    // SAFETY: as in `role_holder`.
    refused_a_descriptor(unsafe { segment.attach() });
    drop((segment, one));
    // With 1 free descriptor, the call can open the file. With 2, it can also open a pidfd, but
    // nothing after that.
    for left in [1, 2] {
        let _taken = take_descriptors(left);
        refused_a_descriptor(Eviction::find(&name, "sum", None));
    }
    {
        let _taken = take_descriptors(0);
        refused_a_descriptor(slipring_shm::inspect(&name));
        let made = slipring_shm::Segment::<u64>::create("test-none").capacity(8).reader("sum");
        refused_a_descriptor(made.build());
    }
    assert!(Eviction::find(&name, "sum", None).is_ok());
    say("done");
}

#[test]
fn a_live_segment_is_not_called_dead_for_want_of_a_descriptor() {
    let _watched = watched();
    let name = Name::new();
    let made = slipring_shm::Segment::<u64>::create(&name.0).capacity(8).reader("sum");
    drop(made.build().unwrap());
    let mut holder = Role::start("holder", &[("NAME", &name.0)]);
    assert_eq!(holder.hear(), "holds");
    let mut role = Role::start("few descriptors", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "done");
    assert!(role.end().success() && holder.end().success());
}

/// Runs without `/proc`. Uses a segment that a process with `/proc` made, and makes another.
fn role_no_proc() {
    let mount = ["-t", "tmpfs", "tmpfs", "/proc"];
    if !Command::new("mount").args(mount).status().unwrap().success() {
        return say("no tmpfs");
    }
    assert!(!Path::new("/proc/self").exists());
    let (theirs, own) = (value("THEIRS"), value("OWN"));
    assert!(!slipring_shm::inspect(&theirs).unwrap().stale);
    // SAFETY: only these tests know the segments, and no test reads events.
    let attached = unsafe { Test::open(&theirs).unwrap().attach_as("here").unwrap() };
    assert_eq!(attached.participant(), 2);
    let failed = problem(Eviction::find(&theirs, "sum", None));
    assert!(matches!(failed.of(), Problem::NoStage { .. }), "{}", failed.message);
    // Without `/proc`, the program's only known name is the one by which it was called.
    let made = Test::create(&own).capacity(4).reader("sum").build().unwrap();
    let own = attach(&made);
    let _sum = own.reader("sum").unwrap();
    say("made");
    listen();
    say("done");
}

#[test]
fn segments_of_programs_with_and_without_proc_are_one() {
    let _watched = watched();
    let Some(wrapper) = own_mounts() else { return skip("no mounts of its own to hide /proc") };
    let (ours, theirs) = (Name::new(), Name::new());
    let made = ours.make();
    let attached = attach(&made);
    let values = [("THEIRS", ours.0.as_str()), ("OWN", theirs.0.as_str())];
    let mut role = Role::start_in(wrapper, "no proc", &values);
    match role.hear().as_str() {
        "made" => {}
        other => return skip(other),
    }
    assert_eq!(attached.liveness(2).unwrap(), Liveness::Alive);
    let summary = slipring_shm::inspect(&theirs.0).unwrap();
    assert!(!summary.stale && summary.participants[0].name.starts_with("boots"), "{summary:?}");
    let own = theirs.attach();
    assert_eq!(own.participant(), 2);
    assert_problem!(own.reader("sum"), Problem::Taken { .. });
    // A process whose start time is unknown cannot be identified.
    assert_problem!(
        Eviction::find(&theirs.0, "sum", None),
        Problem::Evict(EvictProblem::Unidentified { .. })
    );
    role.tell("end");
    assert_eq!(role.hear(), "done");
    assert!(role.end().success());
    let _sum = own.reader("sum").unwrap();
}

/// Replaces the number of the boot in a segment's head.
fn set_boot(path: &Path, boot: [u8; 16]) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; 65_536];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let mut head = Head::from_bytes(bytes).unwrap();
    let mut header = head.header();
    header.boot = boot;
    head.store(&header);
    head.seal();
    file.write_all_at(head.bytes(), 0).unwrap();
}

#[test]
fn a_segment_of_an_unknown_boot_is_of_this_one_in_memory() {
    let _watched = watched();
    let name = Name::new();
    drop(name.make());
    set_boot(&name.path(), [0; 16]);
    assert!(slipring_shm::inspect(&name.0).unwrap().stale);
    assert_eq!(name.attach().participant(), 1);
    set_boot(&name.path(), [7; 16]);
    assert_problem!(Test::open(&name.0), Problem::Header(HeaderProblem::Boot));
}

/// The observer in Python decides in the same way as the library whether a segment is of this boot.
#[test]
fn an_observer_in_python_reads_a_segment_of_an_unknown_boot() {
    let _watched = watched();
    let program = std::env::var_os("SLIPRING_PYTHON").unwrap_or("python3".into());
    let name = Name::new();
    drop(Test::create(&name.0).capacity(4).reader("sum").build().unwrap());
    let show = || {
        let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/segment.py");
        Command::new(&program).arg(client).args(["show", &name.0]).output()
    };
    let Ok(known) = show() else { return skip("no Python") };
    assert!(known.status.success(), "{known:?}");
    set_boot(&name.path(), [0; 16]);
    let unknown = show().unwrap();
    assert!(unknown.status.success(), "{unknown:?}");
    set_boot(&name.path(), [7; 16]);
    let other = show().unwrap();
    assert!(!other.status.success(), "{other:?}");
    assert!(String::from_utf8_lossy(&other.stderr).contains("started last"), "{other:?}");
}

/// Waits until no byte of a segment's file is locked. A process that another test starts meanwhile
/// has copies of this one's descriptors, and so their locks, until it runs its own program.
fn let_go(path: &Path) {
    until(|| !(0..=8).any(|byte| held(path, byte)));
}

/// A file on a disk outlives a boot, but its locks do not. So while a byte is held, the file is of
/// this boot.
#[test]
fn a_segment_of_an_unknown_boot_is_of_this_one_on_a_disk_while_a_byte_is_held() {
    let _watched = watched();
    let folder = Folder::new();
    let path = folder.0.join("disk");
    if fstatfs(File::open(&folder.0).unwrap()).unwrap().f_type as u64 != 0xef53 {
        return skip("the folder for temporary files is not on ext4");
    }
    drop(Test::create_at(&path).capacity(4).without_ring().build().unwrap());
    set_boot(&path, [0; 16]);
    let_go(&path);
    assert_problem!(Test::open_at(&path), Problem::Header(HeaderProblem::UnknownBoot));
    let failed = problem(slipring_shm::inspect_at(&path));
    assert!(failed.message.contains("mount /proc"), "{}", failed.message);
    assert!(!failed.message.contains("remove"), "{}", failed.message);
    {
        let holder = File::options().read(true).write(true).open(&path).unwrap();
        assert!(lock::try_lock(holder.as_fd(), lock::byte(1), Hold::Alone).unwrap());
        assert!(!slipring_shm::inspect_at(&path).unwrap().stale);
        Test::open_at(&path).unwrap();
    }
    let_go(&path);
    assert_problem!(Test::open_at(&path), Problem::Header(HeaderProblem::UnknownBoot));
    slipring_shm::remove_at(&path).unwrap();
    assert!(fs::metadata(&path).is_err());
}
