//! `clients/segment.py`, an observer that is written from SEGMENT.md alone, copies events from
//! segments in use. An event that it reports as whole must never be torn.
//!
//! If there is no Python, each test prints that it did not run.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use common::clients::{Python, source, word_of};
use common::observed::*;
use common::*;
use serde_json::Value;
use slipring::handles::StartAt;
use slipring_shm::{Attached, Reader, inspect};

/// Python program that loads the client as a module. It waits for a line before each load of the
/// client, and in the middle of each copy of an event. So the segment can change between any two
/// loads.
const STEPS: &str = r#"
import importlib.util, json, sys

spec = importlib.util.spec_from_file_location("segment", sys.argv[1])
client = importlib.util.module_from_spec(spec)
spec.loader.exec_module(client)


def ask(what):
    print(what, flush=True)
    if not sys.stdin.readline():
        sys.exit(3)


class Words:
    def __init__(self, segment):
        self.words, self.stamps_at = segment.words, segment.header.stamps_at >> 3

    def __getitem__(self, at):
        ask("stamp" if at >= self.stamps_at else "load")
        return self.words[at]


class Bytes:
    def __init__(self, segment):
        self.map, self.size = segment.map, segment.header.event_size

    def __getitem__(self, at):
        if at.stop - at.start < self.size:
            return self.map[at]
        middle = at.start + self.size // 2
        first = self.map[at.start:middle]
        ask("half")
        return first + self.map[middle:at.stop]


for line in sys.stdin:
    name, seq, claims = json.loads(line)
    with client.Segment(name) as segment:
        observer = client.Observer(segment, claims)
        sound = segment.words, segment.map
        segment.words, segment.map = Words(segment), Bytes(segment)
        copied = observer.copy(seq)
        segment.words, segment.map = sound
    print(json.dumps(copied and [copied[0].hex(), *copied[1:]]), flush=True)
"#;

/// A client that stops before each of its steps.
struct Stepper {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// Next step of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// The client has copied the first half of an event.
    Half,
    /// The client is about to load a stamp.
    Stamp,
    /// The client is about to load another word.
    Load,
}

impl Stepper {
    fn start(python: &Python) -> Stepper {
        let mut command = python.bare();
        command.args(["-c", STEPS]).arg(source("segment.py"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Stepper { child, to, from: BufReader::new(from) }
    }

    /// Makes the client copy the event at `seq`, and calls `before` before each of its steps.
    /// Returns the copy, or `None` if the client found that the event was overwritten.
    fn copy(
        &mut self,
        name: &Name,
        (seq, claims): (u64, Option<u64>),
        mut before: impl FnMut(Step),
    ) -> Option<Seen> {
        let claims = claims.map_or("null".into(), |claims| claims.to_string());
        writeln!(self.to, "[\"{}\", {seq}, {claims}]", name.0).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.from.read_line(&mut line).unwrap(), 0, "the client ended");
            match line.trim_end() {
                "half" => before(Step::Half),
                "stamp" => before(Step::Stamp),
                "load" => before(Step::Load),
                copied => {
                    let copied: Option<[Value; 3]> = serde_json::from_str(copied).unwrap();
                    let [bytes, whole, last] = copied?;
                    let line = serde_json::json!({
                        "seq": seq, "bytes": bytes, "whole": whole, "final": last,
                    });
                    return Some(Seen::read(&line));
                }
            }
            writeln!(self.to).unwrap();
        }
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Call of a producer.
enum Call {
    /// Claims and fills this number of slots, if there is room.
    Claim(usize),
    Publish,
    GiveUp,
}

/// Producers that take orders. The first order makes a producer claim slots, and the next one makes
/// it publish the claim or give it up.
struct Producers(Vec<(Sender<Call>, Receiver<bool>)>);

/// Makes the calls of a producer.
macro_rules! serve {
    ($tx:expr, $calls:expr, $done:expr) => {
        while let Ok(Call::Claim(len)) = $calls.recv() {
            let Ok(mut claim) = $tx.try_claim_n(len) else {
                $done.send(false).unwrap();
                continue;
            };
            let mut seq = claim.first_seq();
            for item in claim.iter_mut() {
                item.fill(seq);
                seq = seq.wrapping_add(1);
            }
            $done.send(true).unwrap();
            match $calls.recv() {
                Ok(Call::Publish) => _ = claim.publish(),
                Ok(_) => drop(claim),
                Err(_) => return,
            }
            $done.send(true).unwrap();
        }
    };
}

impl Producers {
    fn start(attached: &Attached<Item>, count: usize) -> Producers {
        let start = |_| {
            let (calls, asked) = channel();
            let (done, answers) = channel();
            if count == 1 {
                let mut tx = attached.producer().unwrap();
                thread::spawn(move || serve!(tx, asked, done));
            } else {
                let mut tx = attached.shared_producer().unwrap();
                thread::spawn(move || serve!(tx, asked, done));
            }
            (calls, answers)
        };
        Producers((0..count).map(start).collect())
    }

    /// Orders a producer to make a call. Returns whether the producer made it.
    fn call(&self, number: usize, call: Call) -> bool {
        self.0[number].0.send(call).unwrap();
        self.0[number].1.recv().unwrap()
    }

    /// Makes a producer claim and fill `len` slots, for which there is room.
    fn claim(&self, number: usize, len: usize) {
        assert!(self.call(number, Call::Claim(len)));
    }

    /// Makes a producer publish its claim.
    fn publish(&self, number: usize) {
        self.call(number, Call::Publish);
    }
}

fn release(reader: &mut Reader<Item>, count: usize) {
    let check = |item: &Item, seq: u64| assert_eq!(item.words, [word_of(seq); 32]);
    assert_eq!(reader.poll(count, |item, at| check(item, at.seq)).unwrap(), count);
}

/// A producer fills a slot again while the observer copies the slot's event. Then several producers
/// publish between two loads by which the observer proves its copy. The test tries each pair of
/// successive loads.
#[test]
fn a_torn_event_of_several_producers_is_never_whole() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let mut stepper = Stepper::start(&client.0);
    for gone_on in 0..=4 {
        let mut pause_at = 0;
        loop {
            let name = Name::new();
            let attached = join(&builder(&name, 0).producers(3).reader("journal").build().unwrap());
            let producers = Producers::start(&attached, 3);
            let mut journal = attached.reader("journal").unwrap();
            producers.claim(0, 1);
            producers.publish(0);
            release(&mut journal, 1);
            producers.claim(1, 2);
            producers.claim(2, 1);
            let (mut steps, mut passed) = (0, false);
            let seen = stepper.copy(&name, (0, None), |step| {
                if step == Step::Half {
                    producers.claim(0, 5); // the last slot is the one that is copied
                    steps = 0;
                } else if steps == pause_at {
                    passed = true;
                    let actions: [&mut dyn FnMut(); 4] = [
                        &mut || producers.publish(1),
                        &mut || release(&mut journal, 2),
                        &mut || producers.publish(0),
                        &mut || producers.claim(0, 2),
                    ];
                    actions.into_iter().take(gone_on).for_each(|action| action());
                }
                steps += usize::from(step != Step::Half);
            });
            if let Some(seen) = seen {
                assert_eq!((seen.word, seen.whole), (None, false), "{gone_on} before {pause_at}");
            }
            if !passed {
                assert!(pause_at > 10, "the proof takes more loads");
                break;
            }
            pause_at += 1;
        }
    }
}

/// A producer publishes an event before each stamp that the observer loads, and several events
/// before the first. So each of the observer's walks begins at a slot that has been used again.
#[test]
fn a_torn_event_of_one_producer_is_never_whole() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let mut stepper = Stepper::start(&client.0);
    for most in 1..=8 {
        let name = Name::new();
        let attached = join(&builder(&name, 0).reader("journal").build().unwrap());
        let mut tx = attached.producer().unwrap();
        let mut journal = attached.reader("journal").unwrap();
        publish!(tx, 1);
        release(&mut journal, 1);
        publish!(tx, 6);
        let (mut is_torn, mut stamps) = (false, 0);
        let seen = stepper.copy(&name, (0, Some(1)), |step| {
            if step == Step::Half {
                publish!(tx, 2); // the last slot is the one that is copied
                is_torn = true;
            } else if is_torn && step == Step::Stamp {
                let count = if stamps == 0 { most } else { 1 };
                stamps += 1;
                if stamps < 100 {
                    for _ in 0..count {
                        release(&mut journal, 1);
                        publish!(tx, 1);
                    }
                }
            }
        });
        assert!(is_torn && stamps > 0, "no walk");
        if let Some(seen) = seen {
            assert_eq!((seen.word, seen.whole), (None, false), "{most} at first");
        }
    }
}

/// A stage that follows another one stands in the middle of a run, where no walk may begin. The
/// test pauses the observer before each of its loads in turn, and lets both stages release events
/// there.
#[test]
fn a_walk_begins_at_a_run() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let mut stepper = Stepper::start(&client.0);
    for pause_at in 0.. {
        let name = Name::new();
        let graph = builder(&name, 0).reader("one").reader("behind").after(["one"]);
        let attached = join(&graph.build().unwrap());
        let mut tx = attached.producer().unwrap();
        let mut stages = ["one", "behind"].map(|stage| attached.reader(stage).unwrap());
        let mut claim = |publishes: bool| {
            let mut claim = tx.claim_n(4).unwrap();
            let first = claim.first_seq();
            claim.iter_mut().zip(first..).for_each(|(item, seq)| item.fill(seq));
            // If the claim is given up, the slots still have its events, but its positions are
            // claimed again.
            if publishes {
                claim.publish();
            }
        };
        (0..2).for_each(|_| claim(true));
        stages.iter_mut().for_each(|stage| release(stage, 8));
        let (mut steps, mut passed) = (0, false);
        let seen = stepper.copy(&name, (6, Some(4)), |step| {
            if step == Step::Half {
                claim(true);
                claim(false);
                steps = 0;
            } else if steps == pause_at {
                stages.iter_mut().for_each(|stage| release(stage, 2));
                passed = true;
            }
            steps += usize::from(step != Step::Half);
        });
        if let Some(seen) = seen {
            assert_eq!((seen.word, seen.whole), (None, false), "before {pause_at}");
        }
        if !passed {
            assert!(pause_at > 10, "the proof takes more loads");
            break;
        }
    }
}

/// A ring whose producers and stages make random calls.
struct Chaos {
    producers: Producers,
    /// Whether a producer has an open claim.
    open: Vec<bool>,
    stages: Vec<Box<dyn FnMut(usize)>>,
    random: fastrand::Rng,
}

/// Largest claim of a producer.
const CLAIM: usize = 3;

impl Chaos {
    fn start(name: &Name, seed: u64) -> Chaos {
        let mut random = fastrand::Rng::with_seed(seed);
        let (producers, graph) = (1 + random.usize(..3), random.usize(..5));
        let first = if random.bool() { 0 } else { FIRSTS[random.usize(..FIRSTS.len())] };
        let segment = builder(name, first).producers(producers as u32);
        let segment = match graph {
            0 => segment.reader("one"),
            1 => segment.reader("one").reader("behind").after(["one"]),
            2 => segment.pool_reader("pool", 2),
            3 => segment.shard_reader("shards", 2, |item| &item.words[0]),
            _ => segment.reader("one").tap("view", 1).after(["one"]),
        };
        let attached = join(&segment.build().unwrap());
        let mut stages: Vec<Box<dyn FnMut(usize)>> = Vec::new();
        macro_rules! stage {
            ($handle:expr) => {
                let mut handle = $handle.unwrap();
                stages.push(Box::new(move |most| _ = handle.poll(most, |_, _| ()).unwrap()));
            };
        }
        match graph {
            2 => {
                stage!(attached.pool_reader("pool"));
                stage!(attached.pool_reader("pool"));
            }
            3 => {
                stage!(attached.shard_reader("shards", 0));
                stage!(attached.shard_reader("shards", 1));
            }
            _ => {
                stage!(attached.reader("one"));
            }
        }
        if graph == 1 {
            stage!(attached.reader("behind"));
        }
        if graph == 4 {
            stage!(attached.subscribe("view", StartAt::Oldest));
        }
        let open = vec![false; producers];
        Chaos { producers: Producers::start(&attached, producers), open, stages, random }
    }

    fn act(&mut self) {
        let random = &mut self.random;
        if random.bool() {
            let stage = random.usize(..self.stages.len());
            self.stages[stage](random.usize(1..4));
            return;
        }
        let producer = random.usize(..self.open.len());
        self.open[producer] = match self.open[producer] {
            false => self.producers.call(producer, Call::Claim(random.usize(1..=CLAIM))),
            true => {
                let gives_up = random.u8(..5) == 0;
                let call = if gives_up { Call::GiveUp } else { Call::Publish };
                !self.producers.call(producer, call)
            }
        };
    }
}

/// Between any two steps of the observer, producers and stages make random calls.
#[test]
fn no_torn_event_is_whole_whatever_happens() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    let mut stepper = Stepper::start(&client.0);
    let rounds = if std::env::var_os("SLIPRING_SOAK").is_some() { 1_000 } else { 100 };
    let (mut torn, mut whole) = (0, 0);
    for seed in 0..rounds {
        let name = Name::new();
        let mut chaos = Chaos::start(&name, seed);
        let first = inspect(&name.0).unwrap().published;
        while inspect(&name.0).unwrap().published.wrapping_sub(first) < 20 {
            chaos.act();
        }
        let back = chaos.random.u64(5..=8);
        let seq = inspect(&name.0).unwrap().published.wrapping_sub(back);
        // Most calls are made in the middle of the copy, because the slot should most often be used
        // again at that moment. Fewer calls are made during the proof, which may be slow.
        let (during, pace) = (chaos.random.usize(1..20), chaos.random.usize(1..4));
        let claims = chaos.random.bool().then_some(CLAIM as u64);
        let seen = stepper.copy(&name, (seq, claims), |step| {
            let most = if step == Step::Half { during } else { pace };
            for _ in 0..chaos.random.usize(..most) {
                chaos.act();
            }
        });
        let Some(seen) = seen else { continue };
        assert!(!seen.whole || seen.word == Some(word_of(seq)), "seed {seed}: {seen:?}");
        whole += u64::from(seen.whole);
        torn += u64::from(seen.word.is_none());
    }
    println!("{whole} whole, {torn} torn");
    assert!(!ORDERED || whole > 0);
}

/// Once all shards of a writing stage have passed an event, no stage changes the event any more.
/// Once all shards of a last stage have passed it, a producer may use its slot again.
#[test]
fn shards_hold_events_and_slots() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    for (first, is_last) in [(0, false), (0, true), (FIRSTS[1], false), (FIRSTS[4], true)] {
        let name = Name::new();
        let graph = builder(&name, first).shard_updater("books", 3, |item| &item.words[0]);
        let graph = if is_last { graph } else { graph.reader("end").after(["books"]) };
        let attached = join(&graph.build().unwrap());
        client.agrees(&name);
        let mut tx = attached.producer().unwrap();
        let mut shards = [0, 1, 2].map(|shard| attached.shard_updater("books", shard).unwrap());
        publish!(tx, 3);
        tx.claim_n(5).unwrap().publish();
        let mut released = 0;
        while released < 8 {
            for shard in &mut shards {
                shard.poll(2, |_, _| ()).unwrap();
                let stage = client.agrees(&name).stages.remove(0);
                released = stage.position.wrapping_sub(first);
                let seen = client.events(&name, &[]);
                assert_eq!(seen.len(), 8);
                for seen in seen {
                    let is_released = seen.seq.wrapping_sub(first) < released;
                    assert_eq!(seen.last, is_released, "{} of {released}", seen.seq);
                    // The reader `end`, if the graph has one, has released nothing yet, so no slot
                    // is free.
                    assert_eq!(seen.whole, ORDERED && !(is_last && is_released));
                }
            }
        }
    }
}

/// Number of events of the stream that the observer follows.
const EVENTS: u64 = 40_000;

/// A producer's handle, which publishes the next event.
type Publish = Box<dyn FnMut() + Send>;
/// A function that handles all events of a stage, and returns how many there were.
type Handle = Box<dyn FnOnce() -> u64 + Send>;

/// Kind of the last stage. The last stage's release frees a slot, so an observer's proof depends on
/// this kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Last {
    Reader,
    Pool,
    Shards,
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
    if last == Last::Shards {
        let shard = |shard| {
            let mut shard = attached.shard_reader("last", shard).unwrap();
            let all = move || shard.for_each(|item, at| check(item, at.seq)).unwrap();
            Box::new(all) as Handle
        };
        return [0, 1].map(shard).into();
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

/// The observer follows a stream whose slots are overwritten all the time. An event that it reports
/// as whole is never torn, and each event is either printed or counted as missed.
#[test]
fn a_live_stream_is_followed() {
    let _watched = watched();
    let Some(client) = Client::new() else { return };
    for (producers, last, claims) in [
        (1, Last::Reader, None),
        (1, Last::Reader, Some("1")),
        (2, Last::Reader, None),
        (1, Last::Pool, None),
        (2, Last::Pool, None),
        (1, Last::Shards, None),
        (2, Last::Shards, None),
        (1, Last::Tap, None),
        (2, Last::Tap, None),
    ] {
        let name = Name::new();
        let segment = builder(&name, 5).producers(producers);
        let segment = match last {
            Last::Reader => segment.reader("journal"),
            Last::Pool => segment.pool_reader("last", 2),
            Last::Shards => segment.shard_reader("last", 2, |item| &item.words[0]),
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
        // The observer starts before the stream does.
        let first = Seen::read(&lines.next().unwrap());
        assert_seen(&[first], [5].into_iter(), true);
        let (mut whole, mut unproven, mut missed, mut next) = (1, 0, 0, 6);
        thread::scope(|scope| {
            for (number, mut publish) in all.into_iter().enumerate() {
                let share = EVENTS / u64::from(producers) - u64::from(number == 0);
                scope.spawn(move || {
                    for count in 0..share {
                        publish();
                        // The stream pauses now and then, so that the observer is not always a lap
                        // behind.
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
