//! `slipring top` as a user runs it: beside living, stopped and dead processes, pools, taps and
//! several producers, and over segments that are removed, closed or damaged while it looks. No test
//! judges a time, or a rate that was measured.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Child, ChildStdout, Stdio};

use common::{Name, Process, command, run, watched};
use serde_json::Value;
use slipring::{errors::WaitError, handles::StartAt};
use slipring_shm::{Attached, OnDeath, Segment};

/// Does nothing, unless a [`Process`] started it.
#[test]
fn plays_a_role() {
    common::play();
}

/// The lines of one look, without the time and the segment's name.
struct Block(Vec<String>);

impl Block {
    /// Looks at a segment once.
    #[track_caller]
    fn of(name: &Name) -> Block {
        let (code, out, err) = run("top", &[&name.0, "--count", "1"]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        Block::parse(name, out.lines())
    }

    #[track_caller]
    fn parse<'l>(name: &Name, lines: impl Iterator<Item = &'l str>) -> Block {
        let strip = |line: &str| {
            let (time, rest) = line.split_once(' ').expect("a time");
            assert!(time.len() == 24 && time.ends_with('Z'), "{line}");
            let rest = rest.strip_prefix(&name.0).unwrap_or_else(|| panic!("no name: {line}"));
            rest.trim_start().to_owned()
        };
        Block(lines.take_while(|line| !line.is_empty()).map(strip).collect())
    }

    /// Returns the value of a key in the line of a party or, with `seat`, in the line of one of the
    /// party's places.
    #[track_caller]
    fn value(&self, place: &str, seat: Option<usize>, key: &str) -> &str {
        let mut begin = format!("place={place} ");
        if let Some(seat) = seat {
            begin += &format!("seat={seat} ");
        }
        let line = self.0.iter().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("no line of {begin}: {:#?}", self.0));
        let key = format!("{key}=");
        line.split(' ').find_map(|word| word.strip_prefix(&key)).unwrap_or("")
    }

    /// Returns some values in the line of a place.
    #[track_caller]
    fn values<const N: usize>(&self, place: &str, keys: [&str; N]) -> [&str; N] {
        keys.map(|key| self.value(place, None, key))
    }

    #[track_caller]
    fn seat<const N: usize>(&self, place: &str, seat: usize, keys: [&str; N]) -> [&str; N] {
        keys.map(|key| self.value(place, Some(seat), key))
    }

    fn ring(&self) -> &str {
        &self.0[0]
    }

    fn notes(&self) -> Vec<&str> {
        self.0.iter().filter_map(|line| line.strip_prefix("note: ")).collect()
    }
}

fn publish(tx: &mut slipring_shm::Producer<u64>, events: usize) {
    (0..events).for_each(|_| _ = tx.publish(|slot| *slot = 1).unwrap());
}

fn attach(segment: &Segment<u64>) -> Attached<u64> {
    // SAFETY: only these tests open the segment.
    unsafe { segment.attach_as("maker").unwrap() }
}

/// A program that looks again and again.
struct Looking(Child, BufReader<ChildStdout>);

impl Looking {
    fn start(arguments: &[&str]) -> Looking {
        let mut command = command("top", arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Looking(child, out)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.1.read_line(&mut line).unwrap(), 0, "the program ended");
        line
    }

    /// Returns the next look for which `is` returns `true`.
    fn until(&mut self, name: &Name, is: impl Fn(&Block) -> bool) -> Block {
        loop {
            let mut lines = Vec::new();
            while lines.last().is_none_or(|line| line != "\n") {
                lines.push(self.line());
            }
            let block = Block::parse(name, lines.iter().map(|line| line.trim_end()));
            if is(&block) {
                return block;
            }
        }
    }

    fn end(self) -> (i32, String) {
        drop(self.1);
        let output = self.0.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn lines_tell_positions_lags_and_who_waits_for_whom() {
    let _watched = watched();
    let name = Name::new("lines");
    let me = attach(&name.make());
    let keys = ["position", "lag", "ring", "state", "waits_for"];
    let block = Block::of(&name);
    assert!(block.ring().starts_with("ring state=running capacity=4 free=4 published=0 "));
    assert_eq!(block.values("scale", keys), ["0", "0", "0%", "free", "producer"]);
    assert_eq!(block.notes()[0], "no process produces: the next one goes on at 0");

    let (mut tx, mut scale) = (me.producer().unwrap(), me.updater("scale").unwrap());
    publish(&mut tx, 3);
    scale.poll(3, |_, _| ()).unwrap();
    let holder = Process::start(&name, "reader", "store");
    publish(&mut tx, 1);
    let block = Block::of(&name);
    assert_eq!(block.values("producer", keys), ["4", "0", "0%", "alive", ""]);
    assert_eq!(block.values("scale", keys), ["3", "1", "25%", "alive", ""]);
    assert_eq!(block.values("store", keys), ["1", "3", "75%", "alive", ""]);
    let [pid, process] = block.values("store", ["pid", "process"]);
    assert_eq!((pid, process), (holder.id().to_string().as_str(), "holder"));
    assert_eq!(block.values("store", ["rate", "wait"]), ["-", "-"], "a first look has no rates");
    assert!(block.ring().contains(" free=1 "), "{}", block.ring());
    assert_eq!(block.notes(), ["no party is held up"]);

    publish(&mut tx, 1);
    scale.poll(4, |_, _| ()).unwrap();
    let block = Block::of(&name);
    assert!(block.ring().contains(" free=0 published=5 "), "{}", block.ring());
    assert_eq!(block.values("producer", ["position", "waits_for"]), ["5", "store"]);
    assert_eq!(block.values("scale", keys), ["5", "0", "0%", "alive", "producer"]);
    assert_eq!(block.values("store", keys), ["1", "4", "100%", "alive", ""]);
    assert_eq!(block.notes(), ["ring full: producer waits for `store`, 4 behind"]);

    // Rates follow from positions, and nothing has moved since.
    let (code, out, err) = run("top", &[&name.0, "--count", "3", "--interval", "0.01"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let blocks: Vec<&str> = out.split("\n\n").filter(|block| !block.is_empty()).collect();
    assert_eq!(blocks.len(), 3, "{out}");
    let last = Block::parse(&name, blocks[2].lines());
    assert_eq!(last.values("producer", ["rate", "batches"]), ["0.0/s", "0.0/s"]);
    // The producer has nothing to do but to wait.
    assert_eq!(last.value("producer", None, "wait"), "100%");
    std::mem::forget(tx);
}

#[test]
fn the_dead_and_the_stopped_are_told_with_what_to_do() {
    let _watched = watched();
    let name = Name::new("dead");
    let me = attach(&name.make());
    let (mut tx, mut scale) = (me.producer().unwrap(), me.updater("scale").unwrap());
    publish(&mut tx, 4);
    scale.poll(4, |_, _| ()).unwrap();
    let mut holder = Process::start(&name, "reader", "store");
    publish(&mut tx, 1);
    scale.poll(4, |_, _| ()).unwrap();
    let (pid, segment) = (holder.id(), &name.0);
    holder.stop();
    let full = "ring full: producer waits for `store`, 4 behind";
    let evict = format!("slipring evict {segment} store --kill");
    let block = Block::of(&name);
    assert_eq!(block.value("store", None, "state"), "stopped");
    let stopped = format!(
        "`store` is stopped: holder (pid {pid}) was stopped by a signal or a debugger; let it go \
         on: kill -CONT {pid}, or free its place: {evict}"
    );
    assert_eq!(block.notes(), [&stopped, full]);

    holder.kill();
    let block = Block::of(&name);
    assert_eq!(block.values("store", ["state", "deaths", "lag"]), ["dead", "1", "4"]);
    let dead = format!(
        "`store` is dead: holder (pid {pid}) died at 1, 4 behind, and the next one goes on there; \
         start it again, or free its place: {evict}"
    );
    assert_eq!(block.notes(), [&dead, full]);

    // The command works, and the place then waits for the next process.
    let words: Vec<&str> = evict.split(' ').collect();
    assert_eq!(run(words[1], &words[2..]).0, 0);
    let block = Block::of(&name);
    assert_eq!(block.values("store", ["state", "deaths"]), ["free", "1"]);
    let free = "no process has the place `store`, 4 behind: start one; it goes on at 1";
    assert_eq!(block.notes(), [free, full]);

    // A second process continues at the place. The producer's handle leaves its place when it is
    // dropped.
    let mut second = Process::start(&name, "reader", "store");
    let block = Block::of(&name);
    assert_eq!(block.values("store", ["position", "lag", "state"]), ["2", "3", "alive"]);
    assert_eq!(block.notes(), ["no party is held up"]);
    drop((tx, scale));
    let block = Block::of(&name);
    assert!(block.ring().starts_with("ring state=closed "), "{}", block.ring());
    assert!(block.ring().ends_with(" last=5"), "{}", block.ring());
    assert_eq!(block.notes(), ["the ring is closed; `store` has 3 events to handle"]);
    second.kill();
    drop(me);
    let notes = Block::of(&name).0.join("\n");
    assert!(notes.contains(&format!("until: slipring rm {segment}")), "{notes}");
}

#[test]
fn a_process_with_several_places_is_one_sentence() {
    let _watched = watched();
    let other = Name::new("dead-twice");
    let segment = Segment::<u64>::create(&other.0).capacity(4).reader("store");
    let _me = attach(&segment.pool_reader("upper", 2).reader("a b").build().unwrap());
    let mut holder = Process::start(&other, "all", "store");
    let pid = holder.id();
    holder.stop();
    let stopped = format!(
        "`store` and `a b` are stopped: holder (pid {pid}) was stopped by a signal or a debugger; \
         let it go on: kill -CONT {pid}, or free its places: slipring evict {} store --kill",
        other.0
    );
    assert_eq!(Block::of(&other).notes()[0], stopped);
    holder.kill();
    let dead = format!(
        "`store` and `a b` are dead: holder (pid {pid}) died; start it again, or free its places: \
         slipring evict {} store --kill",
        other.0
    );
    let block = Block::of(&other);
    assert_eq!(block.notes()[0], dead);
    assert!(block.0.iter().any(|line| line.starts_with("place=\"a b\" position=0 ")));
}

#[test]
fn a_dead_producer_is_told() {
    let _watched = watched();
    let name = Name::new("no-producer");
    let segment = Segment::<u64>::create(&name.0).capacity(4).producers(3).reader("store");
    let me = attach(&segment.build().unwrap());
    let (mut tx, mut store) = (me.shared_producer().unwrap(), me.reader("store").unwrap());
    tx.publish(|slot| *slot = 1).unwrap();
    store.poll(4, |_, _| ()).unwrap();
    let mut other = Process::start(&name, "producer", "-");
    tx.publish(|slot| *slot = 1).unwrap();
    let block = Block::of(&name);
    assert_eq!(block.values("producer", ["position", "taken", "waits_for"]), ["1", "2/3", ""]);
    assert_eq!(block.seat("producer", 1, ["state", "events"]), ["alive", ""]);
    assert_eq!(
        block.seat("producer", 2, ["state", "events", "process"]),
        ["alive", "1..3", "holder"]
    );
    assert_eq!(block.values("store", ["position", "waits_for"]), ["1", "producer"]);

    // After some time without a publication, the program mentions the claim.
    let mut looking = Looking::start(&[&name.0, "--interval", "0.05"]);
    let block = looking.until(&name, |block| block.notes()[0].starts_with("`producer 2`"));
    assert!(block.notes()[0].starts_with("`producer 2` has claimed 1..3 and not published"));
    assert!(block.notes()[0].contains("is alive"), "{:?}", block.notes());
    other.kill();
    let block = looking.until(&name, |block| block.notes()[0].contains("is dead"));
    let dead =
        format!("`producer 2` is dead: holder (pid {}) died with the claim 1..3", other.id());
    assert!(block.notes()[0].starts_with(&dead), "{:?}", block.notes());
    assert_eq!(block.seat("producer", 2, ["state", "deaths"]), ["dead", "1"]);
    assert_eq!(looking.end(), (0, String::new()));
}

#[test]
fn workers_of_a_pool_are_told_one_by_one() {
    let _watched = watched();
    let name = Name::new("pool");
    let segment = Segment::<u64>::create(&name.0).capacity(4).pool_reader("upper", 4);
    let segment = segment.reader("store").after(["upper"]).build().unwrap();
    let me = attach(&segment);
    let mut tx = me.producer().unwrap();
    publish(&mut tx, 4);
    let mut worker = Process::start(&name, "worker", "upper");
    let mut other = Process::start(&name, "worker", "upper");
    let block = Block::of(&name);
    assert_eq!(block.values("upper", ["position", "lag", "taken"]), ["0", "4", "2/4"]);
    assert_eq!(block.seat("upper", 1, ["state", "events"]), ["alive", "0..1"]);
    assert_eq!(block.seat("upper", 2, ["state", "events"]), ["alive", "1..2"]);
    assert!(!block.0.iter().any(|line| line.contains("seat=3")), "free places are no lines");
    // `store` follows the pool, which has released nothing.
    assert_eq!(block.values("producer", ["waits_for"]), ["store"]);
    assert_eq!(block.values("store", ["state", "waits_for"]), ["free", "upper"]);
    let full = "ring full: producer waits for `store`, 4 behind, which waits for `upper`";
    assert!(block.notes().contains(&full), "{:#?}", block.notes());

    worker.kill();
    let notes = Block::of(&name).0.join("\n");
    let dead = format!("`upper 1` is dead: holder (pid {}) died; the other workers", worker.id());
    assert!(notes.contains(&dead), "{notes}");
    other.leave();
    let block = Block::of(&name);
    assert_eq!(block.seat("upper", 2, ["state", "events"]), ["orphan", "1..2"]);
    let notes = block.notes().join("\n");
    let orphan = "`upper 2` is an orphan: a worker of `upper` left 1 event; no other worker runs: \
                  start one";
    assert!(notes.contains(orphan), "{notes}");
    let dead = format!(
        "died at 0, 4 behind, and the next one goes on there; start it again, or free its place: \
         slipring evict {} upper --kill",
        name.0
    );
    assert!(notes.contains(&dead), "{notes}");
    std::mem::forget(tx);
}

#[test]
fn readers_of_a_tap_are_told_one_by_one() {
    let _watched = watched();
    let name = Name::new("tap");
    let segment = Segment::<u64>::create(&name.0).capacity(4).reader("store").tap("viewers", 3);
    let me = attach(&segment.build().unwrap());
    let (mut tx, mut store) = (me.producer().unwrap(), me.reader("store").unwrap());
    let mut slow = Process::start(&name, "viewer", "viewers");
    publish(&mut tx, 2);
    let mut quick = me.subscribe("viewers", StartAt::Now).unwrap();
    publish(&mut tx, 2);
    store.poll(4, |_, _| ()).unwrap();
    quick.poll(1, |_, _| ()).unwrap();
    let block = Block::of(&name);
    let keys = ["position", "lag", "state", "process"];
    assert_eq!(block.values("viewers", ["position", "lag", "taken"]), ["0", "4", "2/3"]);
    assert_eq!(block.seat("viewers", 1, keys), ["0", "4", "alive", "holder"]);
    assert_eq!(block.seat("viewers", 2, keys), ["3", "1", "alive", "maker"]);
    let pid = slow.id();
    let full =
        format!("ring full: producer waits for `viewers`, 4 behind (reader 1: holder (pid {pid}))");
    assert_eq!(block.notes(), [full.as_str()]);
    slow.kill();
    let block = Block::of(&name);
    let dead =
        format!("`viewers 1` is dead: holder (pid {pid}) died; the parties that wait for it");
    assert!(block.notes().iter().any(|note| note.starts_with(&dead)), "{:#?}", block.notes());
    // The producer removes the dead reader. The reader's place then shows how many events the
    // reader had not read.
    publish(&mut tx, 1);
    let block = Block::of(&name);
    assert_eq!(block.seat("viewers", 1, ["state", "unread", "deaths"]), ["free", "4", "1"]);
}

#[test]
fn how_a_ring_ends_is_told() {
    let _watched = watched();
    let name = Name::new("ends");
    let segment = Segment::<u64>::create(&name.0).capacity(4).producers(2).reader("store");
    let me = attach(&segment.build().unwrap());
    let (mut tx, mut store) = (me.shared_producer().unwrap(), me.reader("store").unwrap());
    tx.publish(|slot| *slot = 1).unwrap();
    drop(tx);
    let block = Block::of(&name);
    assert!(block.ring().starts_with("ring state=closing "), "{}", block.ring());
    assert!(block.notes()[0].starts_with("the ring is closing"), "{:?}", block.notes());
    while store.poll(4, |_, _| ()).is_ok() {}
    let block = Block::of(&name);
    assert_eq!(block.notes(), ["the ring is closed, and every stage has handled all events"]);
    assert_eq!(block.values("store", ["waits_for"]), [""]);

    let name = Name::new("halts");
    let me = attach(&name.make());
    me.producer().unwrap().halt();
    let block = Block::of(&name);
    assert!(block.ring().starts_with("ring state=halted "), "{}", block.ring());
    assert_eq!(block.notes()[0], "the ring was halted: no party goes on");

    let name = Name::new("fails");
    let segment = Segment::<u64>::create(&name.0).capacity(2).reader("store");
    let me = attach(&segment.on_death(OnDeath::Fail).build().unwrap());
    let mut tx = me.producer().unwrap();
    publish(&mut tx, 2);
    let mut holder = Process::start(&name, "reader", "store");
    publish(&mut tx, 1);
    holder.kill();
    let notes = Block::of(&name).notes().join("\n");
    assert!(notes.contains("; the ring fails when a party waits for it"), "{notes}");
    let error = tx.publish(|slot| *slot = 1).unwrap_err();
    assert!(matches!(error, WaitError::Failed(_)), "{error}");
    let block = Block::of(&name);
    assert!(block.ring().starts_with("ring state=failed "), "{}", block.ring());
    let first = block.notes()[0];
    let pid = holder.id().to_string();
    let told = first.starts_with("the ring has failed: `store` failed") && first.contains(&pid);
    assert!(told, "{first}");
}

/// The segment goes away, comes back, and is damaged while the program looks.
#[test]
fn a_segment_that_goes_away_is_looked_for() {
    let _watched = watched();
    let name = Name::new("goes");
    let me = attach(&name.make());
    let mut tx = me.producer().unwrap();
    publish(&mut tx, 3);
    let mut looking = Looking::start(&[&name.0, "--interval", "0.02"]);
    looking.until(&name, |block| block.value("scale", None, "rate") == "0.0/s");
    drop((tx, me));
    looking.until(&name, |block| {
        block.ring().contains("state=closed") && block.ring().contains("stale")
    });
    assert_eq!(run("rm", &[&name.0]).0, 0);
    let gone = looking.until(&name, |block| block.0.len() == 1);
    let error = &gone.0[0];
    assert!(error.starts_with("error=\"segment ") && error.contains("there is none"), "{error}");

    // The segment was created again, so its positions are not compared with the old ones.
    let me = attach(&name.make());
    let block = looking.until(&name, |block| block.0.len() > 1);
    assert_eq!(block.values("scale", ["position", "rate"]), ["0", "-"]);
    looking.until(&name, |block| block.value("scale", None, "rate") == "0.0/s");

    // The file gets bytes that no process would write, and is shortened later.
    let file = OpenOptions::new().write(true).open(name.path()).unwrap();
    let length = fs::metadata(name.path()).unwrap().len();
    for byte in [0xFF_u8, 0x80, 0x01, 0x55] {
        file.write_all_at(&vec![byte; length as usize - 65_536], 65_536).unwrap();
        let mut looks = 0;
        for _ in 0..3 {
            let block = looking.until(&name, |block| block.0.len() > 1);
            for stage in ["scale", "store"] {
                let lag: u64 = block.value(stage, None, "lag").parse().unwrap();
                assert!(lag <= 4, "{:#?}", block.0);
            }
            looks += 1;
        }
        assert_eq!(looks, 3);
    }
    std::mem::forget(me); // its drop would look at what is damaged by now
    file.set_len(70_000).unwrap();
    let short = looking.until(&name, |block| block.0.len() == 1);
    assert!(short.0[0].contains("70,000") || short.0[0].contains("70000"), "{}", short.0[0]);
    // The reader closes the pipe.
    assert_eq!(looking.end(), (0, String::new()));
    // With `--count`, the exit code tells scripts that the last look failed.
    assert_eq!(run("top", &[&name.0, "--count", "1"]).0, 1);
}

/// If a name is removed while a process is attached, the process continues in a segment that no
/// program finds.
#[test]
fn a_process_that_goes_on_without_a_name_is_told_of() {
    let _watched = watched();
    let name = Name::new("nameless");
    let me = attach(&name.make());
    let mut tx = me.producer().unwrap();
    publish(&mut tx, 1);
    me.updater("scale").unwrap().poll(1, |_, _| ()).unwrap();
    publish(&mut tx, 1);
    me.updater("scale").unwrap().poll(1, |_, _| ()).unwrap();
    let mut holder = Process::start(&name, "reader", "store");
    let mut looking = Looking::start(&[&name.0, "--interval", "0.02"]);
    looking.until(&name, |block| block.value("store", None, "state") == "alive");
    fs::remove_file(name.path()).unwrap();
    let gone = looking.until(&name, |block| block.0.len() == 1).0.remove(0);
    let process = format!("holder (pid {})", holder.id());
    assert!(gone.contains("there is none") && gone.contains(&process), "{gone}");
    assert!(gone.contains("were attached"), "{gone}");

    // A program creates a segment with that name again, and gets a ring of its own.
    drop(name.make());
    let anew = looking.until(&name, |block| block.0.len() > 1);
    assert_eq!(anew.value("store", None, "position"), "0");
    let told = |block: &Block| block.notes().iter().any(|note| note.contains(&process));
    assert!(told(&anew), "{:#?}", anew.0);
    holder.kill();
    looking.until(&name, |block| block.0.len() > 1 && !told(block));
    assert_eq!(looking.end(), (0, String::new()));
}

#[test]
fn the_last_look_of_a_script_decides_the_exit_code() {
    let _watched = watched();
    let name = Name::new("script");
    loop {
        drop(name.make());
        let mut looking = Looking::start(&[&name.0, "--count", "2", "--interval", "0.5"]);
        while looking.line() != "\n" {}
        fs::remove_file(name.path()).unwrap();
        let second = looking.line();
        // On a busy machine the second look may have come first.
        if second.contains(" error=\"segment ") {
            assert_eq!((looking.line().as_str(), looking.end().0), ("\n", 1));
            break;
        }
        while looking.line() != "\n" {}
        assert_eq!(looking.end().0, 0);
    }
}

#[test]
fn each_look_is_a_json_object() {
    let _watched = watched();
    let name = Name::new("json");
    let me = attach(&name.make());
    let (mut tx, mut scale) = (me.producer().unwrap(), me.updater("scale").unwrap());
    publish(&mut tx, 4);
    scale.poll(3, |_, _| ()).unwrap();
    let (code, out, err) = run("top", &[&name.0, "--json", "--count", "2", "--interval", "0.02"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let looks: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(looks.len(), 2);
    for (number, look) in (1..).zip(&looks) {
        assert_eq!(
            (look["look"].as_u64(), look["segment"].as_str()),
            (Some(number), Some(&*name.0))
        );
        assert_eq!((look["published"].as_u64(), look["free"].as_u64()), (Some(4), Some(0)));
        assert_eq!(
            (&look["state"], &look["last"], &look["stale"]),
            (&"running".into(), &Value::Null, &false.into())
        );
        let [producer, scale, store] = [0, 1, 2].map(|party| &look["parties"][party]);
        assert_eq!(
            (&producer["name"], &producer["kind"]),
            (&"producer".into(), &"producer".into())
        );
        // No process has the place `store`, so the stage has all events of the full ring before it.
        assert_eq!(producer["waits_for"], serde_json::json!(["store"]));
        assert_eq!((scale["lag"].as_u64(), store["lag"].as_u64()), (Some(1), Some(4)));
        assert_eq!((scale["lag_share"].as_f64(), &scale["kind"]), (Some(0.25), &"each".into()));
        assert_eq!(scale["places"][0]["pid"].as_u64(), Some(std::process::id().into()));
        assert_eq!((&store["places"][0]["state"], &store["taken"]), (&"free".into(), &0.into()));
        assert!(look["notes"][0]["text"].as_str().unwrap().contains("`store`"), "{look}");
        assert_eq!(look["notes"][0]["severity"], "error");
        assert!(scale["counts"]["events"].is_u64() && scale["asleep"].is_u64());
    }
    assert!(looks[0]["seconds"].is_null() && looks[0]["parties"][0]["rate"].is_null());
    assert!(looks[1]["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(looks[1]["parties"][1]["rate"].as_f64(), Some(0.0));

    std::mem::forget((tx, scale, me));
    let mut looking = Looking::start(&[&name.0, "--json", "--interval", "0.02"]);
    looking.line();
    fs::remove_file(name.path()).unwrap();
    let error = loop {
        let look: Value = serde_json::from_str(&looking.line()).unwrap();
        if look.get("error").is_some() {
            break look;
        }
    };
    assert!(error["error"].as_str().unwrap().contains("there is none"), "{error}");
    assert!(error.get("parties").is_none());
}

#[test]
fn bad_input_is_an_error_that_says_what_to_do() {
    let _watched = watched();
    let [good, foreign, other] =
        ["good", "foreign", "other"].map(|test| Name::new(&format!("bad-{test}")));
    drop((good.make(), other.make()));
    let mut create = OpenOptions::new();
    create.write(true).create_new(true).mode(0o600);
    create.open(foreign.path()).unwrap().write_all_at(&[b'x'; 100_000], 0).unwrap();
    // This file has a later version of the layout.
    let file = OpenOptions::new().write(true).open(other.path()).unwrap();
    file.write_all_at(&7_u32.to_ne_bytes(), 8).unwrap();

    let path = foreign.path();
    for (asked, said) in [
        ("test-cli-none", good.0.as_str()), // what there is
        ("/dev/shm/test-cli-none.slipring", "there is none"),
        (&foreign.0, "is no segment"),
        (path.to_str().unwrap(), "is no segment"),
        (&other.0, "version 7"),
        ("/dev/shm", "a directory"),
        ("a b", "name"),
        ("", "name"),
    ] {
        let (code, out, err) = run("top", &[asked, "--count", "1"]);
        assert_eq!((code, out.as_str()), (1, ""), "{asked}: {err}");
        assert!(err.starts_with("slipring: segment ") && err.contains(said), "{asked}: {err}");
    }
    for wrong in [
        &["--interval", "0"][..],
        &["--interval", "-1"],
        &["--interval", "nan"],
        &["--interval", "1s"],
        &["--interval", "1e9"],
        &["--count", "0"],
        &["--json", "--plain"],
        &["another"],
    ] {
        let (code, out, err) = run("top", &[&[good.0.as_str()], wrong].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{wrong:?}: {err}");
        assert!(err.starts_with("slipring: ") && err.contains("see `"), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    assert!(run("top", &["x", "--interval", "0"]).2.contains("not from 0.01 to 86400 seconds"));
    assert_eq!(run("top", &[]).0, 2);
    let (code, help, _) = run("top", &["--help"]);
    assert!(code == 0 && help.contains("Exit code:") && help.contains("--interval"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_none() {
    let _watched = watched();
    let name = Name::new("streams");
    drop(name.make());
    for more in [&[][..], &["--json"]] {
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let arguments = [&[name.0.as_str()], more].concat();
        let output = command("top", &arguments).stdout(full()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("cannot write to standard output"), "{error}");
        // No stream takes the message.
        let status = command("top", &arguments).stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(2));
        let mut looking = Looking::start(&[&arguments[..], &["--interval", "0.01"]].concat());
        looking.line();
        assert_eq!(looking.end(), (0, String::new()));
    }
}
