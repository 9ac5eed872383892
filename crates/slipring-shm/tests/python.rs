//! `clients/segment.py`, which is written from SEGMENT.md alone, observes segments in use. Its
//! output is compared with this crate's inspection.
//!
//! If there is no Python, each test prints that it did not run.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::clients::source;
use common::observed::*;
use common::*;
use slipring::handles::StartAt;
use slipring_shm::parts::layout::Head;
use slipring_shm::{
    OnDeath, Segment,
    summaries::{Ending, Liveness},
};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[("produce", role_produce), ("read", role_read)]);
}

/// Publishes an event, and is killed.
fn role_produce() {
    let attached = join(&Segment::open(value("NAME")).unwrap());
    let mut tx = attached.shared_producer().unwrap();
    let _claim = tx.claim_n(2).unwrap();
    say("there");
    listen();
}

/// Reads an event, and is killed.
fn role_read() {
    let attached = join(&Segment::open(value("NAME")).unwrap());
    let mut rx = attached.reader("journal").unwrap();
    let _batch = rx.batch(2).unwrap();
    say("there");
    listen();
}

#[test]
fn one_producer_and_a_graph_of_stages() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    for first in FIRSTS {
        let at = |count: u64| first.wrapping_add(count);
        let name = Name::new();
        let segment = builder(&name, first).updater("double").on_death(OnDeath::Tell);
        let segment = segment.reader("journal").after(["double"]).reader("view").after(["double"]);
        let segment = segment.reader("last").after(["journal", "view"]).on_death(OnDeath::Fail);
        let segment = segment.producer_on_death(OnDeath::Tell).participants(3).build().unwrap();
        assert!(!client.agrees(&name).stale, "its maker will attach");
        let attached = join(&segment);
        client.agrees(&name);
        let mut tx = attached.producer().unwrap();
        publish!(tx, 2);
        tx.claim_n(3).unwrap().publish();
        let mut double = attached.updater("double").unwrap();
        let mut journal = attached.reader("journal").unwrap();
        // The stage stops in the middle of a run.
        assert_eq!(double.batch(3).unwrap().len(), 3);
        client.agrees(&name);
        double.poll(4, |item, at| item.fill(at.seq)).unwrap();
        assert_eq!(journal.batch(2).unwrap().len(), 2); // lent, not released
        let summary = client.agrees(&name);
        assert_eq!((summary.published, summary.stages[0].lag), (at(5), 1));
        assert_eq!((summary.stages[1].position, summary.stages[1].held), (first, at(2)));
        // A stage may still change the last event.
        let seen = client.events(&name, &[]);
        assert_eq!(
            seen.iter().map(|seen| seen.last).collect::<Vec<_>>(),
            [true, true, true, true, false]
        );
        assert_seen(&seen[..4], (0..4).map(at), true);
        assert_seen(
            &client.events(&name, &["--from", &at(3).to_string(), "--count", "1"]),
            [at(3)].into_iter(),
            true,
        );
        // The producer wraps around the ring.
        let mut others = [attached.reader("view").unwrap(), attached.reader("last").unwrap()];
        double.poll(1, |item, at| item.fill(at.seq)).unwrap();
        journal.poll(5, |_, _| ()).unwrap();
        others[0].poll(5, |_, _| ()).unwrap();
        others[1].poll(4, |_, _| ()).unwrap();
        publish!(tx, 7);
        assert_eq!(client.agrees(&name).published, at(12));
        drop(tx);
        assert_eq!(client.agrees(&name).ending, Ending::Closed);
        drop((double, journal, others, attached));
        // A process that another test starts meanwhile has copies of the locks for a moment.
        until(|| slipring_shm::inspect(&name.0).unwrap().stale);
        assert!(client.agrees(&name).stale);
    }
}

#[test]
fn several_producers_and_their_tombstones() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    for first in FIRSTS {
        let at = |count: u64| first.wrapping_add(count);
        let name = Name::new();
        let segment = builder(&name, first).producers(3).reader("journal").build().unwrap();
        let attached = join(&segment);
        let mut one = attached.shared_producer().unwrap();
        let mut other = attached.shared_producer().unwrap();
        publish!(one, 1);
        drop(other.claim_n(2).unwrap()); // given up
        publish!(one, 2);
        let open = other.claim().unwrap();
        publish!(one, 1);
        // The open claim holds up the events that are published behind it.
        assert_eq!(client.agrees(&name).published, at(5));
        assert_seen(&client.events(&name, &[]), [0, 3, 4].map(at).into_iter(), true);
        drop(open);
        assert_eq!(client.agrees(&name).published, at(7));
        let mut journal = attached.reader("journal").unwrap();
        assert_eq!(journal.poll(8, |_, _| ()).unwrap(), 4);
        // All events are released, so which events may be overwritten depends only on the
        // producers' intents.
        assert_seen(&client.events(&name, &[]), [0, 3, 4, 6].map(at).into_iter(), true);
        let claim = one.claim_n(3).unwrap();
        let seen = client.events(&name, &[]);
        let whole: Vec<bool> = seen.iter().map(|seen| seen.whole).collect();
        assert_eq!(whole, [false, ORDERED, ORDERED, ORDERED], "the claim reaches {}", at(9));
        claim.publish();
        client.agrees(&name);
        drop((one, other));
        // The stage finds the stream's last position, and closes the ring there.
        assert_eq!(client.agrees(&name).ending, Ending::Closing);
        assert!(matches!(journal.for_each(|_, _| ()), Ok(3)));
        assert_eq!(client.agrees(&name).ending, Ending::Closed);
    }
}

#[test]
fn pools_of_one_and_of_several_producers() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    for first in [FIRSTS[0], FIRSTS[1], FIRSTS[4]] {
        for producers in [1, 2] {
            let name = Name::new();
            let segment = builder(&name, first).producers(producers).pool_reader("share", 3);
            let segment = segment.reader("end").after(["share"]).pool_updater("more", 2);
            let segment = segment.after(["end"]).build().unwrap();
            let attached = join(&segment);
            client.agrees(&name);
            let mut end = attached.reader("end").unwrap();
            let mut more = attached.pool_updater("more").unwrap();
            let mut workers = [(); 2].map(|()| attached.pool_reader("share").unwrap());
            let mut look = |publish: &mut dyn FnMut()| {
                for round in 0..4 {
                    publish();
                    client.agrees(&name);
                    let batch = workers[round % 2].batch(1).unwrap();
                    client.agrees(&name); // one holds a chunk
                    batch.release();
                    workers
                        .iter_mut()
                        .rev()
                        .for_each(|worker| _ = worker.poll(8, |_, _| ()).unwrap());
                    client.agrees(&name);
                    end.poll(8, |_, _| ()).unwrap();
                    while more.poll(8, |_, _| ()).unwrap() != 0 {}
                    client.agrees(&name);
                }
            };
            if producers == 1 {
                let mut tx = attached.producer().unwrap();
                look(&mut || publish!(tx, 5));
            } else {
                let mut tx = attached.shared_producer().unwrap();
                look(&mut || {
                    publish!(tx, 3);
                    drop(tx.claim_n(2).unwrap());
                });
            }
            // A worker leaves its chunk.
            drop(workers);
        }
    }
}

#[test]
fn taps_behind_producers_and_behind_stages() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    for first in [FIRSTS[0], FIRSTS[1], FIRSTS[2]] {
        let at = |count: u64| first.wrapping_add(count);
        for producers in [1, 2] {
            let name = Name::new();
            let segment = builder(&name, first).producers(producers).tap("now", 2).reader("all");
            let segment = segment.tap("done", 64).after(["all"]).build().unwrap();
            let attached = join(&segment);
            let mut all = attached.reader("all").unwrap();
            client.agrees(&name);
            let mut look = |publish: &mut dyn FnMut()| {
                publish();
                client.agrees(&name);
                let mut early = attached.subscribe("now", StartAt::Oldest).unwrap();
                client.agrees(&name);
                assert_seen(&client.events(&name, &[]), (0..3).map(at), true);
                all.poll(2, |_, _| ()).unwrap();
                let done = attached.subscribe("done", StartAt::Now).unwrap();
                assert_eq!(early.poll(1, |_, _| ()).unwrap(), 1);
                client.agrees(&name);
                all.poll(1, |_, _| ()).unwrap();
                publish();
                early.leave();
                client.agrees(&name);
                drop(done);
                client.agrees(&name);
            };
            if producers == 1 {
                let mut tx = attached.producer().unwrap();
                look(&mut || publish!(tx, 3));
                assert_eq!(client.agrees(&name).published, at(6));
            } else {
                let mut tx = attached.shared_producer().unwrap();
                look(&mut || publish!(tx, 3));
                assert_eq!(client.agrees(&name).published, at(6));
            }
        }
    }
}

#[test]
fn the_dead_are_told_from_the_living() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let name = Name::new();
    let segment = builder(&name, 0).producers(2).reader("journal").build().unwrap();
    let attached = join(&segment);
    let mut tx = attached.shared_producer().unwrap();
    publish!(tx, 3);
    let roles = ["produce", "read"].map(|role| {
        let mut role = Role::start(role, &[("NAME", &name.0)]);
        assert_eq!(role.hear(), "there");
        role
    });
    let living = client.agrees(&name);
    assert!(living.participants.iter().all(|one| one.liveness == Liveness::Alive));
    assert_eq!((living.participants.len(), living.stages[0].held), (3, 2));
    let pids = roles.each_ref().map(Role::pid);
    roles.into_iter().for_each(Role::kill);
    let dead = client.agrees(&name);
    let is_dead = |pid: u32| {
        let one = dead.participants.iter().find(|one| one.pid == pid);
        one.is_some_and(|one| one.liveness == Liveness::Dead)
    };
    assert!(pids.into_iter().all(is_dead) && !is_dead(std::process::id()));
    // `ls` agrees. It prints a text for people.
    let listed = client.json(&["ls"]);
    let listed = listed.into_iter().find(|listed| listed["name"] == *name.0);
    assert_eq!(listed.as_ref(), client.json(&["show", &name.0]).first());
    let text = client.command(&["show", &name.0]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("journal") && text.contains(", dead)"), "{text}");
    // A successor recovers the dead reader, and counts its death.
    drop(attached.reader("journal").unwrap());
    assert_eq!(client.agrees(&name).stages[0].seats[0].deaths, 1);
}

#[test]
fn each_damage_of_the_head_is_refused() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let name = Name::new();
    builder(&name, 0).reader("journal").build().unwrap();
    let sound = std::fs::read(name.path()).unwrap();
    let folder = Folder::new();
    let path = folder.0.join("copy.slipring");
    let refusal = |bytes: &[u8], mode: u32| {
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        client.refusal(&path)
    };
    let on_disk = refusal(&sound[..64], 0o600);
    if on_disk.contains("file system") {
        return skip("the folder for temporary files is neither tmpfs nor ext4");
    }
    assert!(on_disk.contains("it has 64 bytes"), "{on_disk}");
    assert!(refusal(&sound, 0o644).contains("its mode is 0644"));
    assert!(refusal(&sound[..sound.len() - 1], 0o600).contains("and should have"));
    let changed = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        bytes
    };
    for (at, says) in [
        (0, "and not with SLIPRING"),
        (8, "version 0"),
        (16, "byte order"),
        (32, "its checksum is"),
        (56, "its checksum is"),
        (300, "its checksum is"),
        (4096 + 64, "its checksum is"),
        (12_287, "its checksum is"),
    ] {
        let refused = refusal(&changed(at), 0o600);
        assert!(refused.contains(says), "byte {at}: {refused}");
    }
    // The client checks no byte behind the head when it opens a segment.
    std::fs::write(&path, changed(HEAD)).unwrap();
    assert!(client.command(&["show"]).arg(&path).output().unwrap().status.success());
    assert!(client.refusal(Path::new("/dev/shm/no-such.slipring")).contains("No such file"));
    assert!(client.refusal(Path::new(".hidden")).contains("it is no name"));
    assert!(client.refusal(&folder.0.join("")).contains("no regular file"));
}

const HEAD: usize = 65_536;

/// Runs the program, and checks that it prints no traceback. Returns the program's exit code and
/// its message.
#[track_caller]
fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("Traceback") && !said.contains("Exception"), "{command:?}: {said}");
    (output.status.code(), said)
}

#[test]
fn wrong_arguments_are_refused() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let name = Name::new();
    let attached = join(&builder(&name, 0).reader("journal").build().unwrap());
    let mut tx = attached.producer().unwrap();
    publish!(tx, 3);
    let wrong = [
        ("--format", &["zz", "8s8", "99999999999999999999s", "é"][..]),
        ("--count", &["0", "-1", "x", "1.5", ""]),
        ("--claims", &["0", "-1", "99999999999999999999999"]),
        ("--from", &["-1", "18446744073709551616", "x"]),
        ("--interval", &["-1", "nan", "inf", "x", "1e9"]),
        ("--no-such", &["1"]),
    ];
    for (option, values) in wrong {
        for value in values {
            let (code, said) = said(&mut client.command(&["events", &name.0, option, value]));
            assert!(code == Some(2) && said.contains(option), "{option} {value}: {said}");
        }
    }
    for (arguments, says) in [
        (&["--format", "8sQd", "--json"][..], "--format has 24 bytes, and the event at 0 has 256"),
        (&["--format", ""], "--format has 0 bytes"),
        (&["--format", "33Q"], "--format has 264 bytes"),
        (&["--from", "100"], "begin at 0, the oldest one"),
        (&["--from", "18446744073709551615"], "begin at 0, the oldest one"),
    ] {
        let (code, said) = said(client.command(&["events", &name.0]).args(arguments));
        assert!(code == Some(1) && said.contains(says), "{arguments:?}: {said}");
    }
    // Whatever the values are, each printed line is JSON.
    for format in ["=8sQd232x", "32d", "64f", "256c", "255p?", "32Q"] {
        for line in client.json(&["events", &name.0, "--format", format]).iter().take(3) {
            assert!(line["values"].is_array(), "{line}");
        }
        let (code, _) = said(&mut client.command(&["events", &name.0, "--format", format]));
        assert_eq!(code, Some(0));
    }
    for verb in ["", "no-such", "show", "events", "ls extra"] {
        let (code, said) = said(client.command(&[]).args(verb.split_ascii_whitespace()));
        assert_eq!(code, Some(2), "{verb}: {said}");
    }
}

#[test]
fn what_is_no_segment_is_refused() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let folder = Folder::new();
    let path = |name: &str| folder.0.join(name).into_os_string();
    std::os::unix::fs::symlink("/dev/shm/any.slipring", path("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    std::fs::write(path("empty"), []).unwrap();
    let long = "a".repeat(5_000);
    let names = [
        path("link"),
        path("socket"),
        path("empty"),
        path("no-such"),
        path("empty/below"),
        path(&long),
        folder.0.clone().into(),
        long.into(),
        OsStr::from_bytes(b"/dev/shm/\xff\xfe.slipring").into(),
        "".into(),
        ".".into(),
        "a b".into(),
        "a\nb".into(),
        "/".into(),
        "/dev/null".into(),
        "/dev/full".into(),
        "/proc/self/mem".into(),
        "/proc/self/fd/0".into(),
    ];
    for name in names {
        for verb in ["show", "events"] {
            let (code, said) = said(client.command(&[verb]).arg(&name));
            assert_eq!(code, Some(1), "{name:?}: {said}");
            assert!(!said.trim().is_empty(), "{name:?} was refused without a word");
        }
    }
}

/// The program ends if its output is closed or full. Only a full output is an error.
#[test]
fn each_output_is_checked() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let name = Name::new();
    let attached = join(&builder(&name, 0).reader("journal").build().unwrap());
    let mut tx = attached.producer().unwrap();
    publish!(tx, 8);
    let follow = ["events", &name.0, "--follow"];
    for arguments in
        [&["ls"][..], &["ls", "--json"], &["show", &name.0], &["events", &name.0], &follow]
    {
        if let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") {
            let (code, said) = said(client.command(arguments).stdout(full));
            assert!(code == Some(1) && said.contains("cannot be written"), "{arguments:?}: {said}");
        }
        let (read, closed) = rustix::pipe::pipe().unwrap();
        drop(read);
        let (code, complaint) = said(client.command(arguments).stdout(closed));
        assert_eq!(code, Some(0), "{arguments:?}: {complaint}");
        if arguments != follow {
            let program = client.command(arguments);
            let mut shell = Command::new("sh");
            shell.args(["-c", r#"exec "$0" "$@" >&-"#]).arg(program.get_program());
            let (code, said) = said(shell.args(program.get_args()));
            assert_eq!(code, Some(0), "{arguments:?}: {said}");
        }
    }
}

/// Python program that runs the client on many files in one process, and prints each file at which
/// the client ended with an exception.
const MANY: &str = r#"
import contextlib, importlib.util, io, os, sys

spec = importlib.util.spec_from_file_location("segment", sys.argv[1])
client = importlib.util.module_from_spec(spec)
spec.loader.exec_module(client)
for path in sys.stdin.read().split():
    for verb in (["show"], ["show", "--json"], ["events"], ["events", "--json", "--claims=1"]):
        sys.argv = ["segment.py", *verb, path]
        output = io.TextIOWrapper(io.BytesIO())
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            try:
                client.main()
            except BaseException as error:
                sys.__stdout__.write(f"{path} {verb}: {error!r}\n")
"#;

/// Whatever bytes a segment has, the worst result is that the program ends with an error. It never
/// prints a traceback.
#[test]
fn damaged_segments_end_without_a_traceback() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let name = Name::new();
    let graph = builder(&name, FIRSTS[1]).producers(2).reader("journal").tap("view", 2);
    let graph = graph.pool_reader("share", 2).shard_reader("books", 2, |item| &item.words[0]);
    let attached = join(&graph.build().unwrap());
    let mut tx = attached.shared_producer().unwrap();
    publish!(tx, 6);
    let sound = std::fs::read(name.path()).unwrap();
    let folder = Folder::new();
    let mut random = fastrand::Rng::with_seed(45);
    let mut paths = String::new();
    for number in 0..400 {
        let mut bytes = sound.clone();
        for _ in 0..random.usize(1..4) {
            // Damages a field of the header, a field of a stage, or a word behind the head.
            let at =
                [random.usize(40..328), 4096 + random.usize(..512), HEAD + random.usize(..8192)];
            let at = at[random.usize(..3)] & !7;
            let values = [0, 1, u64::MAX, 1 << 63, random.u64(..), random.u64(..1 << 20)];
            bytes[at..at + 8].copy_from_slice(&values[random.usize(..6)].to_ne_bytes());
        }
        if number % 8 == 0 {
            bytes.resize(bytes.len() + random.usize(1..8), 0);
            let length = bytes.len() as u64;
            bytes[24..32].copy_from_slice(&length.to_ne_bytes());
        }
        let mut head = Head::from_bytes(bytes[..HEAD].to_vec()).unwrap();
        head.seal();
        bytes[..HEAD].copy_from_slice(head.bytes());
        let path = folder.0.join(number.to_string());
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        paths += &format!("{}\n", path.display());
    }
    let mut command = client.0.bare();
    command.args(["-c", MANY]).arg(source("segment.py"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(paths.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
