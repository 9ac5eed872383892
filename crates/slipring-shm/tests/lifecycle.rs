//! Tests of the liveness of real processes that are killed, stopped, forked and replaced.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;

use common::*;
use rustix::process::{Pid, Signal, kill_process};
use slipring::segment::Seat;
use slipring_shm::parts::layout::records::ParticipantRecord;
use slipring_shm::parts::{Attempt, File, attach as attach_file, lock, read_head};
use slipring_shm::{errors::Problem, summaries::Liveness};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[
        ("attach", role_attach),
        ("close all", role_close_all),
        ("exec", role_exec),
        ("fork", role_fork),
        ("fork and drop", role_fork_and_drop),
        ("fork while attaching", role_fork_while_attaching),
        ("memfd", role_memfd),
        ("read lock", role_read_lock),
        ("overlay", role_overlay),
        ("attach in a child", role_attach_in_a_child),
        ("claim and fork", role_claim_and_fork),
        ("claim while forking", role_claim_while_forking),
        ("fork and claim", role_fork_and_claim),
        ("write the head", role_write_the_head),
        ("no proc", role_no_proc),
    ]);
}

/// Attaches, reports its number, and stays until the parent tells it to end.
fn role_attach() {
    let attached = attach(&Test::open(value("NAME")).unwrap());
    say(attached.participant());
    listen();
}

fn started(role: &str, name: &Name) -> (Role, u32) {
    let mut role = Role::start(role, &[("NAME", &name.0)]);
    let number = role.hear().parse().unwrap();
    (role, number)
}

fn state_of(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat[stat.rfind(')').unwrap() + 2..].chars().next().unwrap()
}

#[test]
fn a_killed_participant_is_proven_dead_while_it_is_a_zombie() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let (role, number) = started("attach", &name);
    assert_eq!((me.participant(), number), (1, 2));
    assert_eq!(me.liveness(2).unwrap(), Liveness::Alive);
    assert!(me.participation().claim_dead(2).unwrap().is_none());

    role.signal(Signal::KILL);
    until(|| state_of(role.pid()) == 'Z');
    until(|| !me.participation().is_held(2).unwrap());
    assert_eq!(me.liveness(2).unwrap(), Liveness::Dead);
    let listed = slipring_shm::inspect(&name.0).unwrap();
    assert_eq!(listed.participants[1].liveness, Liveness::Dead);
    assert_eq!(listed.participants[1].pid, role.pid());

    let claim = me.participation().claim_dead(2).unwrap().expect("the byte is free");
    assert!(claim.needs_recovery());
    assert!(held(&name.path(), 2), "the recoverer holds the byte");
    assert_eq!(me.liveness(2).unwrap(), Liveness::HeldByAnother, "the recorded process is gone");
    claim.finish();
    assert!(!held(&name.path(), 2), "unlocked");
    assert_eq!(me.liveness(2).unwrap(), Liveness::Free);
}

#[test]
fn a_participant_that_leaves_is_no_dead_one() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let other = name.attach();
    assert_eq!(me.liveness(2).unwrap(), Liveness::Alive);
    let before = me.participation().record(2).unwrap().state.load(SeqCst);
    drop(other);
    assert_eq!(me.liveness(2).unwrap(), Liveness::Free);
    assert!(!me.participation().claim_dead(2).unwrap().unwrap().needs_recovery());
    let other = name.attach();
    assert_eq!(other.participant(), 2);
    let after = me.participation().record(2).unwrap().state.load(SeqCst);
    assert_eq!(
        ParticipantRecord::unpack(after).0,
        ParticipantRecord::unpack(before).0 + 1,
        "generation"
    );
}

/// Closes every descriptor but the first three, without telling the values that own them.
fn role_close_all() {
    let attached = attach(&Test::open(value("NAME")).unwrap());
    // SAFETY: the process only talks to its parent from now on, and is killed.
    unsafe { libc::close_range(3, u32::MAX, 0) };
    say(attached.participant());
    listen();
}

#[test]
fn closing_all_descriptors_kills_no_participant() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let (role, number) = started("close all", &name);
    assert!(me.participation().is_held(number).unwrap());
    role.kill();
    assert_eq!(me.liveness(number).unwrap(), Liveness::Dead);
}

#[test]
fn a_stopped_participant_is_alive() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let (role, number) = started("attach", &name);
    role.signal(Signal::STOP);
    until(|| state_of(role.pid()) == 'T');
    assert_eq!(me.liveness(number).unwrap(), Liveness::Alive);
    assert!(me.participation().claim_dead(number).unwrap().is_none());
    role.kill();
    assert_eq!(me.liveness(number).unwrap(), Liveness::Dead);
}

fn role_exec() {
    let attached = attach(&Test::open(value("NAME")).unwrap());
    say(attached.participant());
    listen();
    let error = Command::new("sleep").arg("60").exec();
    panic!("{error}");
}

#[test]
fn exec_ends_a_participant() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let (mut role, number) = started("exec", &name);
    assert!(me.participation().is_held(number).unwrap());
    role.tell("go on");
    until(|| !me.participation().is_held(number).unwrap());
    assert_ne!(state_of(role.pid()), 'Z', "the process lives on");
}

/// Forks a child that lives until it is killed, or for a minute. Returns after the child has run
/// the handlers that were registered for a fork.
fn fork_sleeper() -> u32 {
    let (mut ran, runs) = std::io::pipe().unwrap();
    // SAFETY: the child calls only functions that a child of a process with threads may call.
    match unsafe { libc::fork() } {
        // SAFETY: as above. The byte lives as long as the call.
        0 => unsafe {
            libc::write(runs.as_raw_fd(), (&raw const *b"r").cast(), 1);
            loop {
                libc::alarm(60);
                libc::pause();
            }
        },
        -1 => panic!("no fork: {}", std::io::Error::last_os_error()),
        pid => {
            drop(runs);
            ran.read_exact(&mut [0]).unwrap();
            pid as u32
        }
    }
}

fn kill_pid(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

fn role_fork() {
    let segment = Test::open(value("NAME")).unwrap();
    let attached = attach(&segment);
    say(attached.participant());
    say(fork_sleeper());
    listen();
}

#[test]
fn a_forked_child_does_not_keep_its_parent_alive() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let (mut role, number) = started("fork", &name);
    let child: u32 = role.hear().parse().unwrap();
    assert!(me.participation().is_held(number).unwrap());
    role.kill();
    let (held, state) = (me.participation().is_held(number).unwrap(), state_of(child));
    kill_pid(child);
    assert!(!held, "the child has the mapping or a descriptor");
    assert_ne!(state, 'Z', "the child lives");
}

fn role_fork_and_drop() {
    let segment = Test::create(value("NAME")).capacity(4).without_ring().build().unwrap();
    let other = attach(&Test::open(value("NAME")).unwrap());
    // SAFETY: the child drops values, which takes no lock that another thread may hold, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop((segment, other));
        // SAFETY: ends the child.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: the call waits for a child of this process.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:x}");
    say(other.participant());
    listen();
    drop(segment);
    say("released");
    listen();
}

#[test]
fn dropping_inherited_values_in_a_child_does_nothing() {
    let _watched = watched();
    let name = Name::new();
    let (mut role, number) = started("fork and drop", &name);
    let summary = slipring_shm::inspect(&name.0).unwrap();
    assert_eq!(summary.participants[0].liveness, Liveness::Alive);
    assert_eq!(summary.participants[0].number, number);
    assert!(held(&name.path(), lock::GUARD), "the creator has not attached");
    role.tell("drop the segment");
    assert_eq!(role.hear(), "released");
    assert!(!held(&name.path(), lock::GUARD));
}

/// Attaches and leaves again and again, while three threads fork children that stay alive.
fn role_fork_while_attaching() {
    let path = std::path::PathBuf::from(format!("/dev/shm/{}.slipring", value("NAME")));
    let segment = Test::open(value("NAME")).unwrap();
    let (rest, stop, attachments) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicU32::new(0));
    let (resting, stuck) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                if rest.load(SeqCst) {
                    resting.store(true, SeqCst);
                    thread::yield_now();
                    continue;
                }
                resting.store(false, SeqCst);
                drop(attach(&segment));
                attachments.fetch_add(1, SeqCst);
            }
        });
        for _round in 0..20 {
            let forkers: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| (0..10).map(|_| fork_sleeper()).collect::<Vec<_>>()))
                .collect();
            let children: Vec<u32> =
                forkers.into_iter().flat_map(|forker| forker.join().unwrap()).collect();
            rest.store(true, SeqCst);
            until(|| resting.load(SeqCst));
            // No process is attached now. So if a byte is still locked, a child holds it.
            if (0..=8).any(|number| held(&path, number)) {
                stuck.fetch_add(1, SeqCst);
            }
            for &child in &children {
                kill_pid(child);
                // SAFETY: the call waits for a child of this process.
                unsafe { libc::waitpid(child as i32, std::ptr::null_mut(), 0) };
            }
            rest.store(false, SeqCst);
            until(|| !resting.load(SeqCst));
        }
        stop.store(true, SeqCst);
    });
    say(format!("{} {}", stuck.into_inner(), attachments.into_inner() > 0));
    listen();
}

#[test]
fn a_child_forked_while_another_thread_attaches_gets_no_lock() {
    let _watched = watched();
    let name = Name::new();
    drop(name.make());
    let mut role = Role::start("fork while attaching", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "0 true", "rounds in which a child held a byte; whether any attached");
    assert!(role.end().success());
}

#[test]
fn a_participant_of_another_pid_namespace_is_alive_and_dies() {
    let _watched = watched();
    let wrapper: Wrapper<'_> = if permits(&["unshare", "--pid", "--fork"]) {
        &["unshare", "--pid", "--fork", "--kill-child"]
    } else if permits(&["unshare", "--map-current-user", "--pid", "--fork"]) {
        &["unshare", "--map-current-user", "--pid", "--fork", "--kill-child"]
    } else {
        return skip("no pid namespaces here");
    };
    let name = Name::new();
    let me = attach(&name.make());
    let mut role = Role::start_in(wrapper, "attach", &[("NAME", &name.0)]);
    let number = role.hear().parse().unwrap();
    assert_eq!(me.liveness(number).unwrap(), Liveness::Alive);
    let record = me.participation().record(number).unwrap();
    let own = me.participation().record(1).unwrap();
    assert_eq!(record.pid.load(SeqCst), 1, "the first process of its namespace");
    assert_ne!(record.pid_namespace.load(SeqCst), own.pid_namespace.load(SeqCst));
    role.kill();
    until(|| !me.participation().is_held(number).unwrap());
    assert_eq!(me.liveness(number).unwrap(), Liveness::Dead);
}

fn role_memfd() {
    // SAFETY: the parent left this descriptor open for this process.
    let passed = unsafe { OwnedFd::from_raw_fd(value("FD").parse().unwrap()) };
    let segment = Test::open_memfd(&passed, "test").unwrap();
    drop(passed);
    let attached = attach(&segment);
    say(attached.participant());
    listen();
}

#[test]
fn a_memfd_is_shared_by_its_descriptor() {
    let _watched = watched();
    let made = Test::create_memfd("test").capacity(4).without_ring().build().unwrap();
    let me = attach(&made);
    let passed = rustix::io::dup(made.memfd().unwrap()).unwrap();
    assert!(rustix::fs::ftruncate(&passed, 0).is_err(), "sealed");
    assert_eq!(rustix::fs::fstat(&passed).unwrap().st_mode & 0o7777, 0o600);
    let number = passed.as_raw_fd().to_string();
    let mut role = Role::start("memfd", &[("FD", &number)]);
    drop(passed);
    assert_eq!(role.hear(), "2");
    assert_eq!(me.liveness(2).unwrap(), Liveness::Alive);
    role.kill();
    assert_eq!(me.liveness(2).unwrap(), Liveness::Dead);
    me.participation().claim_dead(2).unwrap().unwrap().finish();
    assert_eq!(me.liveness(2).unwrap(), Liveness::Free);
}

/// Holds a byte by a shared lock, as a process that may only read the file can.
fn role_read_lock() {
    let file = std::fs::File::open(value("PATH")).unwrap();
    assert!(lock::try_lock(file.as_fd(), lock::byte(2), lock::Hold::Shared).unwrap());
    say("locked");
    listen();
}

#[test]
fn a_reader_can_hold_a_place_but_is_no_participant() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let mut role = Role::start("read lock", &[("PATH", name.path().to_str().unwrap())]);
    role.hear();
    assert_eq!(me.liveness(2).unwrap(), Liveness::HeldByReader);
    assert!(me.participation().claim_dead(2).unwrap().is_none());
    assert_eq!(name.attach().participant(), 3, "the next place");
    role.kill();
    assert_eq!(name.attach().participant(), 2);
}

#[test]
fn the_place_of_a_dead_participant_is_taken_once_its_seats_are_free() {
    let _watched = watched();
    let name = Name::new();
    let made = Test::create(&name.0).capacity(4).without_ring().participants(2);
    let me = attach(&made.declare(|declared| declared.shape.seats = 3).build().unwrap());
    let (role, number) = started("attach", &name);
    assert_eq!(number, 2);
    let segment = Test::open(&name.0).unwrap();
    assert_problem!(try_attach(&segment), Problem::Full { participants: 2, dead: 0 });
    role.kill();

    let seats = &me.participation().checked().areas.seats;
    let seat = me.participation().mapping().record::<Seat>(seats, 1).unwrap();
    seat.take(2).unwrap();
    // SAFETY: as in `try_attach`.
    let refused = unsafe { segment.attach_recovering("second", &mut |_, _, _, _| false) };
    assert_problem!(refused, Problem::Full { participants: 2, dead: 1 });
    assert_eq!(seat.owner(), Some(2));
    assert_eq!(try_attach(&segment).unwrap().participant(), 2);
    assert_eq!((seat.owner(), seat.deaths()), (None, 1), "the dead one's seat is free");
}

/// Attaches to a segment on overlayfs. There, a mapping keeps another description open than the one
/// through which the byte is locked.
fn role_overlay() {
    let folder = std::path::PathBuf::from(value("FOLDER"));
    let mount = |arguments: &[&str]| {
        Command::new("mount").args(arguments).current_dir(&folder).status().unwrap().success()
    };
    if !mount(&["-t", "tmpfs", "tmpfs", "."]) {
        return say("no tmpfs");
    }
    // Each command resolves its working directory again, and so works in the mounted folder.
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    let options = "lowerdir=lower,upperdir=upper,workdir=work";
    if !mount(&["-t", "overlay", "overlay", "-o", options, "merged"]) {
        return say("no overlayfs");
    }
    let path = folder.join("merged/a.slipring");
    let made =
        Test::create_at(folder.join("made.slipring")).capacity(4).without_ring().build().unwrap();
    drop(made);
    std::fs::copy(folder.join("made.slipring"), &path).unwrap();
    assert_problem!(
        Test::open_at(&path),
        Problem::File(slipring_shm::errors::FileProblem::FileSystem { name: "overlayfs", .. })
    );
    assert_problem!(
        Test::create_at(folder.join("merged/b")).capacity(4).without_ring().build(),
        Problem::File(_)
    );

    let fd = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let file = File::unchecked(fd.into()).unwrap();
    let checked = read_head(&file).unwrap();
    let attempt = attach_file(&file, Some(&path), &checked, "test", &mut |_, _, _, _| false);
    match attempt {
        Err(Problem::LocksLost) => say("locks lost"),
        Err(problem) => say(problem),
        Ok(Attempt::Attached(_)) => say("attached"),
        Ok(Attempt::Replaced) => say("replaced"),
    }
}

#[test]
fn a_file_system_that_loses_locks_is_refused() {
    let _watched = watched();
    let Some(wrapper) = own_mounts() else { return skip("no mounts of its own for overlayfs") };
    let folder = Folder::new();
    let mut role = Role::start_in(wrapper, "overlay", &[("FOLDER", folder.0.to_str().unwrap())]);
    match role.hear().as_str() {
        "locks lost" => {}
        refused @ ("no tmpfs" | "no overlayfs") => skip(refused),
        other => panic!("{other}"),
    }
    assert!(role.end().success());
}

/// Recovers a dead participant while a child has a copy of the descriptor that holds the lock.
fn role_claim_and_fork() {
    let attached = attach(&Test::open(value("NAME")).unwrap());
    let claim = attached.participation().claim_dead(2).unwrap().expect("it is dead");
    let child = fork_sleeper();
    claim.finish();
    say(child);
    listen();
}

#[test]
fn a_recoverer_unlocks_although_a_child_has_a_copy() {
    let _watched = watched();
    let name = Name::new();
    let _me = attach(&name.make());
    let (role, number) = started("attach", &name);
    assert_eq!(number, 2);
    role.kill();
    let mut role = Role::start("claim and fork", &[("NAME", &name.0)]);
    let child = role.hear().parse().unwrap();
    let held = held(&name.path(), 2);
    kill_pid(child);
    assert!(!held, "the child holds the byte");
}

/// Holds a claim until it is killed, while another thread forks.
fn role_claim_while_forking() {
    let attached = attach(&Test::open(value("NAME")).unwrap());
    let _claim = attached.participation().claim_dead(2).unwrap().expect("it is dead");
    thread::scope(|scope| {
        scope.spawn(|| {
            say("forking");
            fork_sleeper();
        });
        listen();
    });
}

#[test]
fn a_recoverer_that_dies_leaves_no_lock_to_a_child() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let (role, _) = started("attach", &name);
    role.kill();
    let mut role = Role::start("claim while forking", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "forking");
    assert!(me.participation().claim_dead(2).unwrap().is_none());
    // The pause gives the other thread time for a fork, which must not happen. A wrong fork that
    // came even later would not be noticed.
    thread::sleep(std::time::Duration::from_millis(50));
    role.kill();
    assert!(me.participation().claim_dead(2).unwrap().is_some(), "a child holds the byte");
}

/// Forks a child that stays alive. Then makes a claim, and holds it until this process is killed.
fn role_fork_and_claim() {
    let attached = attach(&Test::open(value("NAME")).unwrap());
    say(fork_sleeper());
    let _claim = attached.participation().claim_dead(2).unwrap().expect("it is dead");
    say("claimed");
    listen();
}

/// A participant recovers others through a description that it has kept open since it attached. A
/// child that was forked meanwhile has no copy of that description.
#[test]
fn a_recoverer_that_dies_leaves_no_lock_to_an_older_child() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let (role, _) = started("attach", &name);
    role.kill();
    let mut role = Role::start("fork and claim", &[("NAME", &name.0)]);
    let child: u32 = role.hear().parse().unwrap();
    assert_eq!(role.hear(), "claimed");
    assert!(me.participation().claim_dead(2).unwrap().is_none());
    role.kill();
    let is_free = me.participation().claim_dead(2).unwrap().is_some();
    let state = state_of(child);
    kill_pid(child);
    assert!(is_free, "the child holds the byte");
    assert_ne!(state, 'Z', "the child lives");
}

/// A process has at most one claim at a time. It can make another once the first one has ended.
#[test]
fn a_participant_has_one_claim_at_a_time() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let [one, two] = [2, 3].map(|number| {
        let (role, taken) = started("attach", &name);
        assert_eq!(taken, number);
        role
    });
    one.kill();
    two.kill();
    let claim = me.participation().claim_dead(2).unwrap().expect("it is dead");
    assert!(me.participation().claim_dead(2).unwrap().is_none(), "claimed twice");
    assert!(me.participation().claim_dead(3).unwrap().is_none(), "two claims at a time");
    claim.finish();
    me.participation().claim_dead(3).unwrap().expect("it is dead").finish();
    assert!(!held(&name.path(), 2) && !held(&name.path(), 3));
}

#[test]
fn a_mapping_is_touched_and_stays_out_of_children_and_dumps() {
    let _watched = watched();
    let name = Name::new();
    drop(name.make());
    let attached = Test::open(&name.0).unwrap();
    let attached = attach(&attached);
    let base = attached.participation().mapping().base().as_ptr() as usize;
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    for (start, access) in [(base, "r--s"), (base + 65_536, "rw-s")] {
        let at = maps.find(&format!("{start:x}-")).expect("a mapping begins there");
        let lines: Vec<&str> = maps[at..].lines().take_while(|line| !line.is_empty()).collect();
        assert!(lines[0].contains(access), "{}", lines[0]);
        let line = |key: &str| lines.iter().find(|line| line.starts_with(key)).unwrap();
        let flags: Vec<&str> = line("VmFlags:").split_whitespace().collect();
        assert!(flags.contains(&"dc") && flags.contains(&"dd"), "{flags:?}");
        if access == "rw-s" {
            let number = |key| line(key).split_whitespace().nth(1).unwrap().to_owned();
            assert_eq!(number("Rss:"), number("Size:"), "touched");
        }
    }
}

fn role_write_the_head() {
    let attached = attach(&Test::open(value("NAME")).unwrap());
    let base = attached.participation().mapping().base();
    say("writing");
    // SAFETY: none is claimed: the store is wrong on purpose, and the kernel must end the process.
    unsafe { base.as_ptr().write_volatile(0) };
    say("written");
}

#[test]
fn the_head_cannot_be_written() {
    let _watched = watched();
    let name = Name::new();
    let me = attach(&name.make());
    let mut role = Role::start("write the head", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "writing");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(role.wait().signal(), Some(libc::SIGSEGV));
    assert_eq!(me.liveness(2).unwrap(), Liveness::Dead);
    drop(Test::open(&name.0).unwrap());
}

/// Creates a segment, attaches to it, recovers it and removes it in a process that sees no `/proc`.
fn role_no_proc() {
    let folder = value("FOLDER");
    let tmpfs = ["-t", "tmpfs", "tmpfs", &folder];
    if !Command::new("mount").args(tmpfs).status().unwrap().success() {
        return say("no tmpfs");
    }
    if let Err(error) = std::os::unix::fs::chroot(&folder) {
        return say(error);
    }
    std::env::set_current_dir("/").unwrap();
    let made = Test::create_at("/a.slipring").capacity(4).without_ring().build().unwrap();
    assert_problem!(slipring_shm::remove_at("/a.slipring"), Problem::Busy);
    let me = attach(&made);
    let mut pipe = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: no other thread of the process matters to the child, which only attaches and waits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let attached = attach(&Test::open_at("/a.slipring").unwrap());
        assert_eq!(attached.participant(), 2);
        // SAFETY: the call writes one byte to a pipe. The parent then kills this process.
        unsafe {
            libc::write(pipe[1], b"x".as_ptr().cast(), 1);
            libc::alarm(60);
            libc::pause();
        }
    }
    let mut byte = 0u8;
    // SAFETY: reads a byte.
    assert_eq!(unsafe { libc::read(pipe[0], (&raw mut byte).cast(), 1) }, 1);
    assert!(me.participation().claim_dead(2).unwrap().is_none());
    kill_pid(child as u32);
    until(|| !me.participation().is_held(2).unwrap());
    me.participation().claim_dead(2).unwrap().unwrap().finish();
    drop(me);
    slipring_shm::remove_at("/a.slipring").unwrap();
    say("done");
}

#[test]
fn segments_need_no_proc() {
    let _watched = watched();
    let Some(wrapper) = own_mounts() else { return skip("no mounts of its own for a tmpfs") };
    let folder = Folder::new();
    let mut role = Role::start_in(wrapper, "no proc", &[("FOLDER", folder.0.to_str().unwrap())]);
    match role.hear().as_str() {
        "done" => assert!(role.end().success()),
        other => skip(other),
    }
}

#[test]
fn threads_that_make_one_name_make_one_segment_and_get_places_of_their_own() {
    let _watched = watched();
    for _ in 0..20 {
        let name = Name::new();
        let made = || match Test::create(&name.0).capacity(4).without_ring().participants(8).build()
        {
            Ok(made) => Some(made),
            Err(error) => {
                assert!(matches!(error.problem(), Problem::Exists), "{error}");
                None
            }
        };
        let mut attached: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (made().is_some(), name.attach()))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(attached.iter().filter(|(made, _)| *made).count(), 1);
        attached.sort_by_key(|(_, attached)| attached.participant());
        assert!((1..).zip(&attached).all(|(number, (_, one))| one.participant() == number));
        let listed = slipring_shm::list().unwrap();
        let own =
            |summary: &&slipring_shm::summaries::Summary| summary.name.as_ref() == Some(&name.0);
        let summary = listed.iter().flatten().find(own).expect("it is listed");
        assert_eq!((summary.participants.len(), summary.places, summary.stale), (4, 8, false));
        assert!(summary.participants.iter().all(|one| one.pid == std::process::id()));
        assert_eq!((summary.type_name.as_str(), summary.type_version), ("test/Block", 3));
    }
}

/// Attaches in a forked child, while the parent is attached, too.
fn role_attach_in_a_child() {
    let segment = Test::open(value("NAME")).unwrap();
    let attached = attach(&segment);
    assert_eq!(attached.participant(), 1);
    // SAFETY: no other thread of this process uses what the child uses.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the call ends the child if it waits for a lock that no process holds.
        unsafe { libc::alarm(20) };
        // The call runs on another thread than the one that forked, so it depends on how the fork
        // left the guard.
        let own = thread::scope(|scope| scope.spawn(|| attach(&segment)).join().unwrap());
        let (number, alive) = (own.participant(), own.liveness(1).unwrap());
        let right = number == 2 && alive == Liveness::Alive;
        drop(own);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if right { 7 } else { 8 }) };
    }
    let mut status = 0;
    // SAFETY: the call waits for a child of this process.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:x}");
    assert_eq!(attached.liveness(2).unwrap(), Liveness::Free);
    assert_eq!(attach(&segment).participant(), 2);
    say("done");
}

#[test]
fn a_forked_child_can_attach_itself() {
    let _watched = watched();
    let name = Name::new();
    drop(name.make());
    let mut role = Role::start("attach in a child", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "done");
    assert!(role.end().success());
}
