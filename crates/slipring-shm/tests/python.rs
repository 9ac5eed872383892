//! `clients/segment.py`, which knows segments from SEGMENT.md alone, looks at live segments. What
//! it says is compared with what this crate's inspection says.
//!
//! Without Python, each test says that it did not run.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::*;
use serde_json::{Value, json};
use slipring::StartAt;
use slipring_shm::{
    Attached, Builder, Ending, Event, Liveness, OnDeath, SeatSummary, Segment, Summary, inspect,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An event whose words contradict each other if a copy has parts of two events.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Item {
    words: [u64; 32],
}

impl Event for Item {
    const NAME: &'static str = "test/Item, for other languages";
    const VERSION: u32 = 7;
}

impl Item {
    fn fill(&mut self, seq: u64) {
        self.words.fill(word_of(seq));
    }
}

/// The word of which the event at `seq` is full.
fn word_of(seq: u64) -> u64 {
    seq.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1)
}

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

fn join(segment: &Segment<Item>) -> Attached<Item> {
    // SAFETY: only these tests know the segment.
    unsafe { segment.attach() }.unwrap()
}

/// Returns the interpreter: the one that `SLIPRING_PYTHON` names, or `python3`. `None`: there is
/// none, and the test has said so.
fn python() -> Option<OsString> {
    let program = std::env::var_os("SLIPRING_PYTHON").unwrap_or("python3".into());
    // The program itself starts faster than a script that looks for it.
    let code = "import sys; sys.exit(1) if sys.version_info < (3, 8) else print(sys.executable)";
    let output = Command::new(&program).args(["-c", code]).stderr(Stdio::null()).output();
    if let Some(output) = output.ok().filter(|output| output.status.success()) {
        return Some(String::from_utf8(output.stdout).unwrap().trim_end().into());
    }
    let name = thread::current().name().unwrap_or("a test").to_owned();
    skip(format_args!(
        "{name} needs Python 3.8 or later, and {program:?} is none: install it, or name another one \
         with SLIPRING_PYTHON"
    ));
    None
}

/// The program that looks at segments.
struct Client(OsString);

impl Client {
    fn command(&self, arguments: &[&str]) -> Command {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/segment.py");
        let mut command = Command::new(&self.0);
        // Without the user's packages: it needs none.
        command.args(["-B", "-I", "-S"]).arg(program).args(arguments);
        command
    }

    /// Runs the program, which must succeed. Returns its lines as JSON.
    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.command(arguments).arg("--json").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        // `ls` meets segments of other tests, which may be damaged.
        let is_quiet = complaint.is_empty() || arguments == ["ls"];
        assert!(output.status.success() && is_quiet, "{arguments:?}: {complaint}");
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs the program, which must refuse the segment. Returns what it complains of.
    fn refusal(&self, path: &Path) -> String {
        let output = self.command(&["show"]).arg(path).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(complaint.lines().count(), 1, "one line, and no traceback: {complaint}");
        complaint
    }

    /// Asserts that `show` says the same as the crate's inspection. Returns the summary.
    #[track_caller]
    fn agrees(&self, name: &Name) -> Summary {
        let summary = inspect(&name.0).unwrap();
        let shown = self.json(&["show", &name.0]);
        assert_eq!(shown.len(), 1);
        let mut said = shown[0].clone();
        let fields = said.as_object_mut().unwrap();
        // What the inspection does not tell.
        assert_eq!(fields.remove("id").unwrap().as_str().unwrap().len(), 32);
        fields.remove("failure").unwrap();
        fields.remove("first").unwrap();
        for seats in ["producer_seats", "stages"] {
            for value in fields[seats].as_array_mut().unwrap() {
                forget_orphans(value);
            }
        }
        assert_eq!(said, told(&summary), "`show` and `inspect` differ");
        summary
    }

    /// Returns the events that are in the ring.
    fn events(&self, name: &Name, more: &[&str]) -> Vec<Seen> {
        let lines = self.json(&[&["events", &name.0], more].concat());
        let (last, events) = lines.split_last().unwrap();
        assert_eq!(*last, json!({ "missed": 0 }));
        events.iter().map(Seen::read).collect()
    }
}

/// Takes out of seats whether they are orphans, which a summary does not tell.
fn forget_orphans(value: &mut Value) {
    match value.get_mut("seats") {
        Some(seats) => seats.as_array_mut().unwrap().iter_mut().for_each(forget_orphans),
        None => _ = value.as_object_mut().unwrap().remove("orphan").unwrap(),
    }
}

/// An event that the program has printed.
#[derive(Debug, PartialEq)]
struct Seen {
    seq: u64,
    /// The word of which the copy is full; `None`: the copy is torn.
    word: Option<u64>,
    whole: bool,
    last: bool,
}

impl Seen {
    fn read(line: &Value) -> Seen {
        let hex = line["bytes"].as_str().unwrap();
        assert_eq!(hex.len(), size_of::<Item>() * 2);
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let words: Vec<u64> = (0..hex.len())
            .step_by(16)
            .map(|at| u64::from_ne_bytes([0, 2, 4, 6, 8, 10, 12, 14].map(|i| byte(at + i))))
            .collect();
        let is_torn = words.iter().any(|word| *word != words[0]);
        Seen {
            seq: line["seq"].as_u64().unwrap(),
            word: (!is_torn).then_some(words[0]),
            whole: line["whole"].as_bool().unwrap(),
            last: line["final"].as_bool().unwrap(),
        }
    }
}

/// Whether the processor orders loads and stores, so that a program without fences may prove what
/// it copied.
const ORDERED: bool = cfg!(target_arch = "x86_64");

/// Asserts that these events were printed, in order, with or without a proof.
#[track_caller]
fn assert_seen(seen: &[Seen], seqs: impl Iterator<Item = u64>, whole: bool) {
    let expected: Vec<Seen> = seqs
        .map(|seq| Seen { seq, word: Some(word_of(seq)), whole: whole && ORDERED, last: true })
        .collect();
    assert_eq!(seen, expected);
}

/// A summary as the program prints it.
fn told(summary: &Summary) -> Value {
    let seat = |seat: &SeatSummary| {
        json!({
            "participant": seat.participant, "deaths": seat.deaths, "position": seat.position,
            "unread": seat.unread,
        })
    };
    let seats = |seats: &[SeatSummary]| seats.iter().map(seat).collect::<Vec<_>>();
    let on_death = |on_death: OnDeath| format!("{on_death:?}").to_lowercase();
    let stages = summary.stages.iter().map(|stage| {
        json!({
            "name": stage.name, "writes": stage.writes, "delivery": stage.delivery,
            "room": stage.room, "after": stage.after, "on_death": on_death(stage.on_death),
            "position": stage.position, "held": stage.held, "lag": stage.lag,
            "seats": seats(&stage.seats),
        })
    });
    let participants = summary.participants.iter().map(|one| {
        let liveness = match one.liveness {
            Liveness::Free => "free",
            Liveness::Alive => "alive",
            Liveness::Dead => "dead",
            Liveness::HeldByReader => "held by a reader",
            _ => "held by another",
        };
        json!({
            "number": one.number, "pid": one.pid, "uid": one.uid, "name": one.name,
            "joined": one.joined.as_nanos() as u64, "liveness": liveness,
        })
    });
    json!({
        "path": summary.path, "name": summary.name, "type_name": summary.type_name,
        "type_version": summary.type_version, "event_size": summary.event_size,
        "messages": summary.contents == "messages", "capacity": summary.capacity, "length": summary.length,
        "created": summary.created.as_nanos() as u64, "producers": summary.producers,
        "notice_ms": summary.notice.as_millis() as u64,
        "ending": format!("{:?}", summary.ending).to_lowercase(),
        "published": summary.published, "producer_seats": seats(&summary.producer_seats),
        "producer_on_death": on_death(summary.producer_on_death),
        "stages": stages.collect::<Vec<_>>(), "places": summary.places,
        "participants": participants.collect::<Vec<_>>(), "stale": summary.stale,
    })
}

/// First positions near all wraps: of positions, of bounds, and of a pool's claim word.
const FIRSTS: [u64; 5] = [0, u64::MAX - 4, (1 << 63) - 3, (1 << 62) + 1, (1 << 48) - 3];

fn builder(name: &Name, first: u64) -> Builder<Item> {
    Segment::create(&name.0).capacity(8).first_seq(first).notice(Duration::from_millis(2))
}

/// Publishes the next `count` events, one by one.
macro_rules! publish {
    ($tx:expr, $count:expr) => {
        for _ in 0..$count {
            let mut slot = $tx.claim().unwrap();
            let seq = slot.seq();
            slot.fill(seq);
            slot.publish();
        }
    };
}

#[test]
fn one_producer_and_a_graph_of_stages() {
    let _watched = watched();
    let Some(client) = python().map(Client) else { return };
    for first in FIRSTS {
        let at = |count: u64| first.wrapping_add(count);
        let name = Name::new();
        let segment = builder(&name, first).writer("double").on_death(OnDeath::Tell);
        let segment = segment.reader("journal").after(["double"]).reader("view").after(["double"]);
        let segment = segment.reader("last").after(["journal", "view"]).on_death(OnDeath::Fail);
        let segment = segment.producer_on_death(OnDeath::Tell).participants(3).build().unwrap();
        assert!(!client.agrees(&name).stale, "its maker will attach");
        let attached = join(&segment);
        client.agrees(&name);
        let mut tx = attached.producer().unwrap();
        publish!(tx, 2);
        tx.claim_n(3).unwrap().publish();
        let mut double = attached.writer("double").unwrap();
        let mut journal = attached.reader("journal").unwrap();
        // In the middle of a run.
        assert_eq!(double.batch(3).unwrap().len(), 3);
        client.agrees(&name);
        double.poll(4, |item, at| item.fill(at.seq)).unwrap();
        assert_eq!(journal.batch(2).unwrap().len(), 2); // lent, not released
        let summary = client.agrees(&name);
        assert_eq!((summary.published, summary.stages[0].lag), (at(5), 1));
        assert_eq!((summary.stages[1].position, summary.stages[1].held), (first, at(2)));
        // The last event may still be changed.
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
        assert!(client.agrees(&name).stale);
    }
}

#[test]
fn several_producers_and_their_tombstones() {
    let _watched = watched();
    let Some(client) = python().map(Client) else { return };
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
        // The open claim holds up what is published behind it.
        assert_eq!(client.agrees(&name).published, at(5));
        assert_seen(&client.events(&name, &[]), [0, 3, 4].map(at).into_iter(), true);
        drop(open);
        assert_eq!(client.agrees(&name).published, at(7));
        let mut journal = attached.reader("journal").unwrap();
        assert_eq!(journal.poll(8, |_, _| ()).unwrap(), 4);
        // All is released. The intents of the producers tell what may be overwritten.
        assert_seen(&client.events(&name, &[]), [0, 3, 4, 6].map(at).into_iter(), true);
        let claim = one.claim_n(3).unwrap();
        let seen = client.events(&name, &[]);
        let whole: Vec<bool> = seen.iter().map(|seen| seen.whole).collect();
        assert_eq!(whole, [false, ORDERED, ORDERED, ORDERED], "the claim reaches {}", at(9));
        claim.publish();
        client.agrees(&name);
        drop((one, other));
        // The stage finds the last position, and closes the ring there.
        assert_eq!(client.agrees(&name).ending, Ending::Closing);
        assert!(matches!(journal.for_each(|_, _| ()), Ok(3)));
        assert_eq!(client.agrees(&name).ending, Ending::Closed);
    }
}

#[test]
fn pools_of_one_and_of_several_producers() {
    let _watched = watched();
    let Some(client) = python().map(Client) else { return };
    for first in [FIRSTS[0], FIRSTS[1], FIRSTS[4]] {
        for producers in [1, 2] {
            let name = Name::new();
            let segment = builder(&name, first).producers(producers).pool_reader("share", 3);
            let segment = segment.reader("end").after(["share"]).pool_writer("more", 2);
            let segment = segment.after(["end"]).build().unwrap();
            let attached = join(&segment);
            client.agrees(&name);
            let mut end = attached.reader("end").unwrap();
            let mut more = attached.pool_writer("more").unwrap();
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
    let Some(client) = python().map(Client) else { return };
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
    let Some(client) = python().map(Client) else { return };
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
    // `ls` says the same, and people get text.
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
    let Some(client) = python().map(Client) else { return };
    let name = Name::new();
    builder(&name, 0).reader("journal").build().unwrap();
    let sound = std::fs::read(name.path()).unwrap();
    let folder = Folder::new();
    let path = folder.0.join("copy.slipring");
    let refusal = |bytes: &[u8], mode: u32| {
        use std::os::unix::fs::PermissionsExt;
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
    // Behind the head, no byte is checked.
    std::fs::write(&path, changed(HEAD)).unwrap();
    assert!(client.command(&["show"]).arg(&path).output().unwrap().status.success());
    assert!(client.refusal(Path::new("/dev/shm/no-such.slipring")).contains("No such file"));
    assert!(client.refusal(Path::new(".hidden")).contains("it is no name"));
    assert!(client.refusal(&folder.0.join("")).contains("no regular file"));
}

const HEAD: usize = 65_536;

/// Number of events of the stream that the observer follows.
const EVENTS: u64 = 40_000;

/// A producer's handle, which publishes the next event.
type Publish = Box<dyn FnMut() + Send>;
/// A handle that handles all its events, and returns their number.
type Handle = Box<dyn FnOnce() -> u64 + Send>;

/// What ends the use of a slot, and so what an observer's proof rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Last {
    Reader,
    Pool,
    Tap,
}

/// Takes all handles of the ring's stages.
fn handles(attached: &Attached<Item>, last: Last) -> Vec<Handle> {
    let check = |item: &Item, seq: u64| assert_eq!(item.words[31], word_of(seq));
    if last == Last::Pool {
        let worker = |()| {
            let mut worker = attached.pool_reader("last").unwrap();
            let all = move || worker.for_each(|item, at| check(item, at.seq)).unwrap();
            Box::new(all) as Handle
        };
        return [(); 2].map(worker).into();
    }
    let mut journal = attached.reader("journal").unwrap();
    let all = move || journal.for_each(|item, at| check(item, at.seq)).unwrap();
    let mut found: Vec<Handle> = vec![Box::new(all)];
    if last == Last::Tap {
        let mut view = attached.subscribe("view", StartAt::Oldest).unwrap();
        found.push(Box::new(move || {
            view.for_each(|item, at| check(item, at.seq)).unwrap();
            0 // the journal counts
        }));
    }
    found
}

/// The observer follows a stream whose slots are overwritten all the time. What it calls whole is
/// never torn, and it passes every event or counts it.
#[test]
fn a_live_stream_is_followed() {
    let _watched = watched();
    let Some(client) = python().map(Client) else { return };
    for (producers, last, claims) in [
        (1, Last::Reader, None),
        (1, Last::Reader, Some("1")),
        (2, Last::Reader, None),
        (1, Last::Pool, None),
        (2, Last::Pool, None),
        (1, Last::Tap, None),
        (2, Last::Tap, None),
    ] {
        let name = Name::new();
        let segment = builder(&name, 5).producers(producers);
        let segment = match last {
            Last::Reader => segment.reader("journal"),
            Last::Pool => segment.pool_reader("last", 2),
            Last::Tap => segment.reader("journal").tap("view", 2).after(["journal"]),
        };
        let attached = join(&segment.build().unwrap());
        let handles = handles(&attached, last);
        let mut all: Vec<Publish> = Vec::new();
        if producers == 1 {
            let mut tx = attached.producer().unwrap();
            all.push(Box::new(move || publish!(tx, 1)));
        } else {
            for _ in 0..producers {
                let mut tx = attached.shared_producer().unwrap();
                all.push(Box::new(move || publish!(tx, 1)));
            }
        }
        all[0]();
        let mut command = client.command(&["events", &name.0, "--follow", "--json"]);
        command.args(["--interval", "0"]).args(claims.map(|claims| format!("--claims={claims}")));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        // The observer runs before the stream does.
        let first = Seen::read(&lines.next().unwrap());
        assert_seen(&[first], [5].into_iter(), true);
        let (mut whole, mut unproven, mut missed, mut next) = (1, 0, 0, 6);
        thread::scope(|scope| {
            for (number, mut publish) in all.into_iter().enumerate() {
                let share = EVENTS / u64::from(producers) - u64::from(number == 0);
                scope.spawn(move || {
                    for count in 0..share {
                        publish();
                        // So that the observer is not a lap behind all the time.
                        if count.is_multiple_of(64) {
                            thread::sleep(Duration::from_micros(50));
                        }
                    }
                });
            }
            let handled = handles.into_iter().map(|handle| scope.spawn(handle));
            let handled: Vec<_> = handled.collect();
            for line in lines {
                if let Some(count) = line["missed"].as_u64() {
                    missed = count;
                    continue;
                }
                let seen = Seen::read(&line);
                assert!(seen.seq >= next, "{} after {next}", seen.seq);
                next = seen.seq + 1;
                if seen.whole {
                    assert_eq!(seen.word, Some(word_of(seen.seq)), "{} is not whole", seen.seq);
                    whole += 1;
                } else {
                    unproven += 1;
                }
            }
            let handled = handled.into_iter().map(|handle| handle.join().unwrap());
            assert_eq!(handled.sum::<u64>(), EVENTS);
        });
        assert!(child.wait().unwrap().success());
        assert_eq!(whole + unproven + missed, EVENTS, "an event was neither seen nor missed");
        println!(
            "{producers}, {last:?}, {claims:?}: {whole} whole, {unproven} unproven, {missed} missed"
        );
        client.agrees(&name);
    }
}
