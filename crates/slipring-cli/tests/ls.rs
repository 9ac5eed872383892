//! `slipring ls`, `slipring rm` and `slipring evict` as a user runs them: beside living, stopped
//! and dead processes, and damaged files. The tests judge no time.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};

use common::{Name, Process, run, watched};
use slipring_shm::Segment;

fn ls(arguments: &[&str]) -> (i32, String, String) {
    run("ls", arguments)
}

/// Returns the whole list.
fn list() -> String {
    let (code, out, err) = ls(&[]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out
}

/// Returns the lines about one segment of the list.
fn part(name: &Name) -> Vec<String> {
    let all = list();
    let begin = format!("{}:", name.0);
    let lines = all.lines().skip_while(|line| !line.starts_with(&begin));
    let end = |line: &&str| !line.is_empty();
    lines.take_while(end).map(str::to_owned).collect()
}

/// Returns the words in the line about a place.
#[track_caller]
fn place<'a>(lines: &'a [String], place: &str) -> Vec<&'a str> {
    let words = |line: &'a String| line.split_whitespace().collect::<Vec<_>>();
    let mut found = lines.iter().skip(1).map(words).filter(|words| words.first() == Some(&place));
    found.next().unwrap_or_else(|| panic!("no line about {place}: {lines:#?}"))
}

/// Does nothing, unless a [`Process`] started it.
#[test]
fn plays_a_role() {
    common::play();
}

#[test]
fn places_tell_who_is_there_and_how_far() {
    let _watched = watched();
    let name = Name::new("places");
    // SAFETY: only these tests open the segment.
    let attached = unsafe { name.make().attach_as("maker").unwrap() };
    let lines = part(&name);
    assert!(lines[0].contains("u64 v1, 4 slots, "), "{lines:#?}");
    assert!(!lines[0].contains("stale"), "{lines:#?}");
    for free in ["producer", "scale", "store"] {
        assert_eq!(place(&lines, free).last_chunk(), Some(&["-", "free", "0"]), "{lines:#?}");
    }

    let (mut tx, mut scale) = (attached.producer().unwrap(), attached.updater("scale").unwrap());
    (0..4).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    scale.poll(3, |slot, _| *slot *= 2).unwrap();
    let mut holder = Process::start(&name, "reader", "store");
    let (own, pid) = (format!("{})", std::process::id()), format!("{})", holder.id()));
    let lines = part(&name);
    assert_eq!(place(&lines, "producer"), ["producer", "4", "maker", "(pid", &own, "alive", "0"]);
    assert_eq!(place(&lines, "scale"), ["scale", "3", "1", "maker", "(pid", &own, "alive", "0"]);
    assert_eq!(place(&lines, "store"), ["store", "1", "3", "holder", "(pid", &pid, "alive", "0"]);

    holder.stop();
    assert_eq!(place(&part(&name), "store")[6..], ["stopped", "0"]);
    holder.kill();
    let dead = ["store", "1", "3", "holder", "(pid", &pid, "dead", "1"];
    assert_eq!(place(&part(&name), "store"), dead);

    // The next process recovers the dead one.
    let mut second = Process::start(&name, "reader", "store");
    let lines = part(&name);
    assert_eq!(place(&lines, "store")[1..3], ["2", "2"], "{lines:#?}");
    assert_eq!(place(&lines, "store")[6..], ["alive", "1"], "{lines:#?}");
    second.kill();
    drop((tx, scale, attached));
    let lines = part(&name);
    assert!(lines[0].contains("stale: no process is attached"), "{lines:#?}");
    assert_eq!(place(&lines, "producer"), ["producer", "4", "-", "free", "0"]);
    assert_eq!(place(&lines, "store")[6..], ["dead", "2"], "{lines:#?}");
}

#[test]
fn one_segment_is_shown_in_detail() {
    let _watched = watched();
    let name = Name::new("detail");
    // SAFETY: only these tests open the segment.
    let attached = unsafe { name.make().attach_as("maker").unwrap() };
    let mut tx = attached.producer().unwrap();
    let mut scale = attached.updater("scale").unwrap();
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    assert_eq!(scale.batch(2).unwrap().len(), 2); // lent, not released
    let path = name.path();
    for asked in [name.0.as_str(), path.to_str().unwrap()] {
        let (code, out, err) = ls(&[asked]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        let pid = std::process::id().to_string();
        for shown in [path.to_str().unwrap(), "0..2", "updates", "1 of 64 participants", &pid] {
            assert!(out.contains(shown), "{shown}: {out}");
        }
        assert!(out.lines().all(|line| line == line.trim_end()), "{out:?}");
    }
}

#[test]
fn a_damaged_file_is_a_line_of_the_list() {
    let _watched = watched();
    let [good, shortened, foreign, open] =
        ["good", "shortened", "foreign", "open"].map(|test| Name::new(&format!("damaged-{test}")));
    drop((good.make(), shortened.make(), open.make()));
    let file = OpenOptions::new().write(true).open(shortened.path()).unwrap();
    file.set_len(70_000).unwrap();
    let mut create = OpenOptions::new();
    create.write(true).create_new(true).mode(0o600);
    create.open(foreign.path()).unwrap().write_all_at(&[b'x'; 100_000], 0).unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o644)).unwrap();

    let all = list();
    assert!(part(&good).len() == 5, "{all}");
    for bad in [&shortened, &foreign, &open] {
        let path = bad.path().display().to_string();
        let lines: Vec<&str> = all.lines().filter(|line| line.contains(&path)).collect();
        let [line] = lines[..] else { panic!("not one line about {path}: {all}") };
        assert!(line.starts_with("segment ") && line.matches(": ").count() > 1, "{line}");
        let (code, out, err) = ls(&[&bad.0]);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(line), "{err}");
    }
    let (code, out, err) = ls(&["test-ls-none"]);
    assert!((code, out.as_str()) == (1, "") && err.contains("there is none"), "{err}");
}

/// The system's message appears only once in a line, although the error and its source are printed
/// together.
#[test]
fn an_error_of_the_system_is_said_once() {
    let _watched = watched();
    let path = format!("/dev/shm/{}", "a".repeat(300));
    for (command, arguments) in [
        ("ls", &[path.as_str()][..]),
        ("top", &[&path, "--count", "1"]),
        ("evict", &[&path, "store"]),
        ("rm", &[&path]),
    ] {
        let (code, out, err) = run(command, arguments);
        assert_eq!((code, out.as_str()), (1, ""), "{command}: {err}");
        assert_eq!(err.matches("name too long").count(), 1, "{command}: {err}");
    }
}

#[test]
fn only_segments_without_a_living_process_are_removed() {
    let _watched = watched();
    let (used, left, none) = (Name::new("used"), Name::new("left"), Name::new("none"));
    let segment = used.make();
    // SAFETY: only this test knows the segment.
    let attached = unsafe { segment.attach() }.unwrap();
    drop(left.make());
    let path = left.path();
    let (code, out, err) = run("rm", &[&used.0, path.to_str().unwrap(), &none.0]);
    assert_eq!(code, 1);
    assert_eq!(out, format!("removed {}\n", path.display()));
    let errors: Vec<&str> = err.lines().collect();
    assert!(errors[0].contains(&used.0) && errors[0].contains("participant 1"), "{err}");
    assert!(errors[1].contains(&none.0) && errors[1].contains("there is none"), "{err}");
    assert!(used.path().exists() && !path.exists());
    assert!(!part(&used)[0].contains("closed"));
    drop(attached.producer().unwrap());
    assert!(part(&used)[0].ends_with("; closed"), "{:?}", part(&used));
    drop((attached, segment));
    assert!(part(&used)[0].ends_with("; closed; stale: no process is attached"));
    assert_eq!(run("rm", &[&used.0]), (0, format!("removed {}\n", used.0), String::new()));
    assert_eq!(run("rm", &[]).0, 2);
    assert_eq!(run("rm", &["--stale", "a"]).0, 2);
}

#[test]
fn a_stopped_process_is_evicted() {
    let _watched = watched();
    let name = Name::new("evict");
    // SAFETY: only these tests open the segment.
    let attached = unsafe { name.make().attach_as("maker").unwrap() };
    let (mut tx, mut scale) = (attached.producer().unwrap(), attached.updater("scale").unwrap());
    (0..3).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    scale.poll(3, |_, _| ()).unwrap();
    let mut holder = Process::start(&name, "reader", "store");
    holder.stop();
    let pid = holder.id();

    // Without --kill nothing is changed.
    let (code, out, err) = run("evict", &[&name.0, "store"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for shown in [format!("holder (pid {pid}, participant 2), which is stopped"), "--kill".into()] {
        assert!(out.contains(&shown), "{shown}: {out}");
    }
    assert_eq!(place(&part(&name), "store")[6..], ["stopped", "0"]);

    // The last line is the command that evicts the process.
    let command: Vec<&str> = out.lines().last().unwrap().split_whitespace().skip(1).collect();
    assert_eq!(command, ["evict", &name.0, "store", "--kill"]);
    let (code, out, err) = run("evict", &[&name.0, "store", "--kill"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out, format!("evicted holder (pid {pid}, participant 2); free: store\n"));
    assert_eq!(place(&part(&name), "store"), ["store", "1", "2", "-", "free", "1"]);
    holder.end();
    let mut store = attached.reader("store").unwrap();
    assert_eq!((store.redelivered(), store.poll(8, |_, _| ()).unwrap()), ((1..2).into(), 2));
}

#[test]
fn what_cannot_be_evicted_is_said_with_what_to_do() {
    let _watched = watched();
    let name = Name::new("unevicted");
    // SAFETY: only these tests open the segment.
    let attached = unsafe { name.make().attach_as("maker").unwrap() };
    let path = name.path();
    for asked in [name.0.as_str(), path.to_str().unwrap()] {
        let (code, out, err) = run("evict", &[asked, "store", "--kill"]);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(path.to_str().unwrap()) && err.contains("nothing to evict"), "{err}");
    }
    let none = "test-ls-none";
    for (arguments, said) in [
        (&[name.0.as_str(), "stores"][..], "its stages are: scale, store, producer"),
        (&[none, "store"], "there is none"),
    ] {
        let (code, out, err) = run("evict", arguments);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.starts_with("slipring: segment ") && err.contains(said), "{err}");
    }
    for wrong in [&[name.0.as_str()][..], &[&name.0, "store", "--timeout", "1"]] {
        assert_eq!(run("evict", wrong).0, 2);
    }
    // A dead process is recovered.
    let mut tx = attached.producer().unwrap();
    let mut scale = attached.updater("scale").unwrap();
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    scale.poll(2, |_, _| ()).unwrap();
    Process::start(&name, "reader", "store").kill();
    assert!(run("evict", &[&name.0, "store"]).1.contains("only recover its places"));
    let (code, out, err) = run("evict", &[&name.0, "store", "--kill", "--timeout", "100"]);
    assert!(code == 0 && out.starts_with("recovered holder (pid "), "{out}{err}");
    assert_eq!(place(&part(&name), "store")[3..], ["-", "free", "1"]);
    std::mem::forget(tx);
}

/// A tap has a row of its own, and a row for each place that a reader has.
#[test]
fn readers_of_a_tap_are_listed() {
    let _watched = watched();
    let name = Name::new("tap");
    let segment = Segment::<u64>::create(&name.0).capacity(4).tap("viewers", 3).build().unwrap();
    // SAFETY: only this test opens the segment.
    let me = unsafe { segment.attach().unwrap() };
    let mut tx = me.producer().unwrap();
    let lines = part(&name);
    assert_eq!(place(&lines, "viewers"), ["viewers", "0", "0", "0", "of", "3", "readers"]);
    let _now = me.subscribe("viewers", slipring::handles::StartAt::Now).unwrap();
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    let lines = part(&name);
    assert_eq!(place(&lines, "viewers"), ["viewers", "0", "2", "1", "of", "3", "readers"]);
    let readers: Vec<_> = lines.iter().filter(|line| line.contains("viewers 1")).collect();
    assert_eq!(readers.len(), 1, "{lines:#?}");
    let words: Vec<_> = readers[0].split_whitespace().collect();
    assert_eq!(words[..4], ["viewers", "1", "0", "2"]);
    assert!(readers[0].contains(&format!("pid {}", std::process::id())));
    assert!(!lines.iter().any(|line| line.contains("viewers 2")), "{lines:#?}");
}

/// A place whose worker left events is not free: no process can take it before another worker has
/// adopted them.
#[test]
fn what_a_worker_leaves_is_an_orphan() {
    let _watched = watched();
    let name = Name::new("orphan");
    let segment = Segment::<u64>::create(&name.0).capacity(4).pool_reader("upper", 2);
    // SAFETY: only these tests open the segment.
    let me = unsafe { segment.build().unwrap().attach().unwrap() };
    let mut tx = me.producer().unwrap();
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    let mut leaver = Process::start(&name, "worker", "upper");
    let state = || {
        let lines = part(&name);
        let line = lines.iter().find(|line| line.contains("upper 1")).unwrap();
        line.split_whitespace().rev().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(state(), ["0", "alive"]);
    leaver.leave();
    assert_eq!(state(), ["0", "orphan"]);
    let mut worker = me.pool_reader("upper").unwrap();
    while worker.poll(4, |_, _| ()).unwrap() != 0 {}
    assert_eq!(state(), ["0", "free"], "{:#?}", part(&name));
}

#[test]
fn a_ring_that_is_closing_is_not_closed() {
    let _watched = watched();
    let name = Name::new("closing");
    let segment = Segment::<u64>::create(&name.0).capacity(4).producers(2).reader("store");
    // SAFETY: only these tests open the segment.
    let me = unsafe { segment.build().unwrap().attach().unwrap() };
    let (mut tx, mut store) = (me.shared_producer().unwrap(), me.reader("store").unwrap());
    tx.publish(|slot| *slot = 1).unwrap();
    assert!(!part(&name)[0].contains("; clos"));
    drop(tx);
    assert!(part(&name)[0].ends_with("; closing"), "{:?}", part(&name));
    while store.poll(4, |_, _| ()).is_ok() {}
    assert!(part(&name)[0].ends_with("; closed"), "{:?}", part(&name));
}

/// Shards are counted from 0, as in calls, and each has a position of its own.
#[test]
fn shards_have_positions_of_their_own() {
    let _watched = watched();
    let name = Name::new("shards");
    let segment = Segment::<u64>::create(&name.0).capacity(8);
    let segment = segment.shard_reader("books", 2, |event| event).build().unwrap();
    // SAFETY: only this test opens the segment.
    let me = unsafe { segment.attach_as("maker").unwrap() };
    let (mut tx, mut one) = (me.producer().unwrap(), me.shard_reader("books", 1).unwrap());
    (0..5).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    one.poll(8, |_, _| ()).unwrap();
    let lines = part(&name);
    let row = |number: &str| -> Vec<&str> {
        let rows = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.into_iter().find(|row| row.starts_with(&["books", number])).unwrap()
    };
    assert_eq!(row("0")[2..], ["0", "5", "-", "free", "0"], "{lines:#?}");
    assert_eq!(row("1")[2..4], ["5", "0"], "{lines:#?}");
    assert!(row("1").contains(&"alive"), "{lines:#?}");
}
