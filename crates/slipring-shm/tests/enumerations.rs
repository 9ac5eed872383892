//! Runs the clients in other languages with each value of each enumeration in SEGMENT.md (the
//! page), and with the first value behind the last one. The client does what the page says, or
//! refuses the segment with an error that names field and value.
//!
//! A test that needs Python or a C compiler, and finds none, prints that it did not run.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::clients::{Running, client_in_c, python, word_of};
use common::observed::{Client, Item, builder, join};
use common::*;
use serde_json::{Value, json};
use slipring_shm::parts::layout::{HEAD, Head};
use slipring_shm::{
    Attached, Builder, OnDeath, Segment, blocks::Blocks, inspect, messages::Messages,
    summaries::Ending,
};

const PAGE: &str = include_str!("../SEGMENT.md");

/// A field of the head that can have only a few values.
#[derive(Debug, PartialEq)]
struct Enumeration {
    /// Offset of the field in the file. For a field of stages, it is the offset in the first
    /// stage's record.
    at: usize,
    most: u64,
}

/// Returns the enumerations of the header and of the stage table. These are the fields whose valid
/// values the page gives as `0 or 1`, or as `0 to N` with an N of one digit.
fn enumerations() -> BTreeMap<String, Enumeration> {
    let mut found = BTreeMap::new();
    for (table, begin) in [("head.rs Header -->", 0), ("head.rs StageRecord -->", 4096)] {
        let (_, rest) = PAGE.split_once(table).unwrap();
        let rows = rest.lines().skip_while(|line| !line.starts_with('|'));
        for row in rows.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let &[_, at, _, field, .., valid, _] = &cells[..] else { panic!("{row}") };
            let valid = valid.split(';').next().unwrap();
            let most = valid.strip_prefix("0 to ").or(valid.strip_prefix("0 or "));
            let Some(most) = most.and_then(|most| most.parse().ok()) else { continue };
            if most < 10 {
                let at = begin + at.parse::<usize>().unwrap();
                found.insert(field.trim_matches('`').to_owned(), Enumeration { at, most });
            }
        }
    }
    found
}

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[("read", role_read)]);
}

/// Takes the place of a stage, and is killed.
fn role_read() {
    let attached = join(&Segment::open(value("NAME")).unwrap());
    let _rx = attached.reader("one").unwrap();
    say("there");
    listen();
}

/// Starts a process that has a place of the stage `one`, and kills it.
fn kill_a_reader(name: &Name) {
    let mut role = Role::start("read", &[("NAME", &name.0)]);
    assert_eq!(role.hear(), "there");
    role.kill();
}

/// Starts a producer in C, and kills it when the ring is full.
fn kill_a_producer(program: &Path, name: &Name) {
    let producer = Running::start(program, &["produce", &name.0, "1000"]);
    until(|| inspect(&name.0).unwrap().published == 8);
    drop(producer);
}

/// Runs a client that must refuse a segment. Returns its message.
fn complaint(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.stdout(Stdio::null()).output().unwrap();
    let complaint = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "one line, and no traceback: {complaint}");
    complaint
}

/// Publishes the first `count` events, and closes the ring.
fn produce(attached: &Attached<Item>, count: u64) {
    let mut tx = attached.producer().unwrap();
    publish!(tx, count);
}

/// A new value on the page fails this test until the other tests of this file know it.
#[test]
fn the_page_has_these_enumerations() {
    let _watched = watched();
    let found = enumerations();
    let found: Vec<_> = found.iter().map(|(field, it)| (field.as_str(), it.most)).collect();
    let known =
        [("access", 1), ("delivery", 3), ("kind", 2), ("on_death", 2), ("producer_on_death", 3)];
    assert_eq!(found, known);
}

/// Clients refuse a value that is not on the page, and name it.
#[test]
fn other_values_are_refused() {
    let _watched = watched();
    for (field, Enumeration { at, most }) in enumerations() {
        let name = Name::new();
        builder(&name, 0).reader("one").build().unwrap();
        change_head(&name, at, &[most as u8 + 1]);
        let error = inspect(&name.0).unwrap_err().to_string();
        assert!(error.contains(&(most + 1).to_string()), "{field}: {error}");
        let value = format!(" {}", most + 1);
        let named = |complaint: &str| complaint.contains(&field) && complaint.contains(&value);
        if let Some(client) = python() {
            let complaint = complaint(&mut client.command(&["show", &name.0]));
            assert!(named(&complaint), "{field}: {complaint}");
        }
        if let Some(program) = client_in_c() {
            for verb in [["read", &name.0, "one"], ["produce", &name.0, "1"]] {
                let complaint = complaint(Command::new(program).args(verb));
                assert!(named(&complaint), "{field}: {complaint}");
            }
        }
    }
}

/// Changes bytes of a segment's head, and its checksum.
fn change_head(name: &Name, at: usize, to: &[u8]) {
    let mut bytes = std::fs::read(name.path()).unwrap();
    bytes.truncate(HEAD as usize);
    bytes[at..at + to.len()].copy_from_slice(to);
    let mut head = Head::from_bytes(bytes).unwrap();
    head.seal();
    let file = std::fs::OpenOptions::new().write(true).open(name.path()).unwrap();
    file.write_all_at(head.bytes(), 0).unwrap();
}

/// A segment that was made without `/proc` does not state its boot, so clients take it for a
/// segment of this boot. They also ignore bytes that have no meaning.
#[test]
fn an_unknown_boot_is_not_another_one() {
    let _watched = watched();
    let (client, program) = (python(), client_in_c());
    let name = Name::new();
    builder(&name, 0).reader("one").build().unwrap();
    change_head(&name, 56, &[1; 16]);
    if let Some(client) = &client {
        let complaint = complaint(&mut client.command(&["show", &name.0]));
        assert!(complaint.contains("before this machine was started"), "{complaint}");
    }
    if let Some(program) = program {
        let complaint = complaint(Command::new(program).args(["read", &name.0, "one"]));
        assert!(complaint.contains("of an earlier boot"), "{complaint}");
    }
    change_head(&name, 56, &[0; 16]);
    for (at, bytes) in [(328, 4096 - 328), (4096 + 96, 32), (4096 + 128, 64)] {
        change_head(&name, at, &vec![0xA5; bytes]);
    }
    if let Some(client) = &client {
        assert!(client.command(&["show", &name.0]).output().unwrap().status.success());
    }
    if let Some(program) = program {
        Running::start(program, &["produce", &name.0, "3"]).ends();
        let mut reader = Running::start(program, &["read", &name.0, "one"]);
        reader.sees(0..3);
        reader.ends();
    }
}

/// The clients react to each bit of the status as the page says, even to a bit that the page does
/// not define.
#[test]
fn each_bit_of_the_status() {
    let _watched = watched();
    let endings = [
        (1, Ending::Closed, None),
        (2, Ending::Halted, Some("halted")),
        (4, Ending::Failed, Some("failed")),
        (8, Ending::Closing, None),
        (16, Ending::Damaged, Some("status is damaged")),
    ];
    let known = PAGE.lines().filter(|line| line.contains("| bit of `bits`:")).count();
    assert_eq!(known + 1, endings.len(), "the page has a bit that this test does not know");
    for (bit, ending, says) in endings {
        let name = Name::new();
        let attached = join(&builder(&name, 0).producers(2).reader("one").build().unwrap());
        let mut tx = attached.shared_producer().unwrap();
        publish!(tx, 3);
        let head = std::fs::read(name.path()).unwrap();
        let status = u64::from_ne_bytes(head[272..280].try_into().unwrap());
        let file = std::fs::OpenOptions::new().write(true).open(name.path()).unwrap();
        file.write_all_at(&3_u64.to_ne_bytes(), status + 8).unwrap();
        file.write_all_at(&u32::to_ne_bytes(bit), status).unwrap();
        if let Some(client) = Client::new() {
            assert_eq!(client.agrees(&name).ending, ending);
            let seen = client.events(&name, if bit == 8 { &[] } else { &["--follow"] });
            assert_eq!(seen.len(), 3);
        }
        let Some(program) = client_in_c() else { continue };
        let mut reader = Running::start(program, &["read", &name.0, "one"]);
        match says {
            None => {
                reader.sees(0..3);
                reader.ends();
            }
            Some(says) => {
                let complaint = reader.complaint();
                assert!(complaint.contains(says), "{complaint}");
            }
        }
        std::mem::forget(tx); // the ring is damaged for it
    }
}

/// Asserts that the reader in C refuses the segment because of a value.
fn refuses(name: &Name, value: &str) {
    let Some(program) = client_in_c() else { return };
    for verb in [["read", &name.0, "one"], ["produce", &name.0, "1"]] {
        let complaint = complaint(Command::new(program).args(verb));
        assert!(complaint.contains(value), "{complaint}");
    }
}

#[test]
fn each_kind() {
    let _watched = watched();
    for kind in 0..=enumerations()["kind"].most {
        let name = Name::new();
        let create = || Segment::<Item>::create(&name.0).capacity(8);
        match kind {
            0 => {
                let attached = join(&create().reader("one").build().unwrap());
                produce(&attached, 2);
                if let Some(client) = Client::new() {
                    assert_eq!(client.agrees(&name).contents, "events");
                    assert_eq!(client.events(&name, &[]).len(), 2);
                }
                if let Some(program) = client_in_c() {
                    let mut reader = Running::start(program, &["read", &name.0, "one"]);
                    reader.sees(0..2);
                    reader.ends();
                }
            }
            1 => {
                messages(&name, 0);
                // Near this position, stamps are refreshed: each slot gets a stamp, even inside a
                // message.
                messages(&Name::new(), u64::MAX - 70);
            }
            2 => {
                blocks(&name, false);
                blocks(&Name::new(), true);
            }
            _ => panic!("{kind} is a new kind: test the clients with it"),
        }
    }
}

/// The observer in Python prints messages of all lengths, with padding and given-up claims in
/// between. The reader in C refuses them.
fn messages(name: &Name, first: u64) {
    let segment = Segment::<Messages>::create(&name.0).capacity(16).first_seq(first).producers(2);
    let segment = segment.reader("one").tap("view", 1).build().unwrap();
    // SAFETY: only this test knows the segment.
    let attached = unsafe { segment.attach() }.unwrap();
    refuses(name, "its kind is 1");
    let (mut tx, mut rx) = (attached.shared_producer().unwrap(), attached.reader("one").unwrap());
    let Some(client) = Client::new() else { return };
    client.agrees(name);
    let mut expected: Vec<Value> = Vec::new();
    for round in 0..16 {
        let message = vec![round as u8; round * 37 % 300];
        let seq = tx.publish(round as u32, &message).unwrap();
        let bytes: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        expected.push(json!({
            "seq": seq, "whole": common::observed::ORDERED, "final": true, "kind": round,
            "bytes": bytes,
        }));
        if round % 2 == 1 {
            let mut lines = client.json(&["events", &name.0]);
            assert_eq!(lines.pop(), Some(json!({ "missed": 0 })));
            assert_eq!(lines, expected);
            let last = expected.last().unwrap();
            let from = ["events", &name.0, "--from", &last["seq"].to_string()];
            assert_eq!(&client.json(&from)[0], last);
            let mut read = 0;
            while read < expected.len() as u64 {
                read += rx.poll(|_| ()).unwrap();
            }
            expected.clear();
        }
    }
    client.agrees(name);
}

/// The observer in Python prints blocks, whether their stamps have their own area or lie in front
/// of each block. The reader in C refuses them.
fn blocks(name: &Name, inside: bool) {
    let segment = Segment::<Blocks>::create(&name.0).capacity(8).block(24, 8);
    let segment = segment.type_name("test/blocks", 1).schema("three words");
    let segment = if inside { segment.stamps_inside() } else { segment };
    let segment = segment.reader("one").shard_reader("two", 2, 8..16).build().unwrap();
    // SAFETY: only this test knows the segment.
    let attached = unsafe { segment.attach() }.unwrap();
    refuses(name, "its kind is 2");
    let Some(client) = Client::new() else { return };
    let mut tx = attached.producer().unwrap();
    for byte in 0..5 {
        tx.publish(|block| block.fill(byte)).unwrap();
    }
    client.agrees(name);
    let lines = client.json(&["events", &name.0, "--format", "=8sQd"]);
    assert_eq!(lines.len(), 6);
    for (line, byte) in lines[..5].iter().zip(0_u8..) {
        assert_eq!(line["values"][0], json!(format!("{byte:02x}").repeat(8)));
        assert_eq!(line["values"][1], json!(u64::from_ne_bytes([byte; 8])));
    }
}

#[test]
fn each_access() {
    let _watched = watched();
    for access in 0..=enumerations()["access"].most {
        let name = Name::new();
        let segment = builder(&name, 0);
        let segment = match access {
            0 => segment.reader("one"),
            1 => segment.updater("one"),
            _ => panic!("{access} is a new access: test the clients with it"),
        };
        let attached = join(&segment.build().unwrap());
        if let Some(program) = client_in_c() {
            Running::start(program, &["produce", &name.0, "3"]).ends();
        } else {
            produce(&attached, 3);
        }
        if let Some(client) = Client::new() {
            assert_eq!(client.agrees(&name).stages[0].writes, access == 1);
            // If the stage writes, no event is final yet, because the stage has not released any.
            let seen = client.events(&name, &[]);
            assert!(seen.len() == 3 && seen.iter().all(|seen| seen.last == (access == 0)));
        }
        if let Some(program) = client_in_c() {
            let mut reader = Running::start(program, &["read", &name.0, "one"]);
            reader.sees(0..3);
            reader.ends();
        }
    }
}

#[test]
fn each_delivery() {
    let _watched = watched();
    for delivery in 0..=enumerations()["delivery"].most {
        let name = Name::new();
        let segment = builder(&name, 0);
        let segment = match delivery {
            0 => segment.reader("one"),
            1 => segment.pool_reader("one", 2),
            2 => segment.shard_reader("one", 2, |item| &item.words[0]),
            3 => segment.tap("one", 2),
            _ => panic!("{delivery} is a new delivery: test the clients with it"),
        };
        let attached = join(&segment.build().unwrap());
        if delivery != 0 {
            refuses(&name, &format!("has the delivery {delivery}"));
        }
        produce(&attached, 3);
        if let Some(client) = Client::new() {
            client.agrees(&name);
            assert_eq!(client.events(&name, &[]).len(), 3);
        }
        if let Some(program) = client_in_c().filter(|_| delivery == 0) {
            let mut reader = Running::start(program, &["read", &name.0, "one"]);
            reader.sees(0..3);
            reader.ends();
        }
    }
}

/// Returns the effect of a death to which the page gives this number.
fn on_death(number: u64) -> OnDeath {
    match number {
        0 => OnDeath::Wait,
        1 => OnDeath::Tell,
        2 => OnDeath::Fail,
        3 => OnDeath::Close,
        _ => panic!("{number} is a new effect of a death: test the clients with it"),
    }
}

/// Asserts that a client in C ends because of a death at `place`, or because the graph has failed.
fn hears(client: &mut Running, name: &Name, on_death: OnDeath, place: &str) {
    let complaint = client.complaint();
    let says = match on_death {
        OnDeath::Tell => format!("died at the place of {place}"),
        _ => "the graph has failed".to_owned(),
    };
    assert!(complaint.contains(&says), "{on_death:?}: {complaint}");
    let summary = inspect(&name.0).unwrap();
    assert_eq!(summary.ending == Ending::Failed, on_death == OnDeath::Fail);
    if on_death == OnDeath::Fail {
        let failure = summary.failure.unwrap();
        assert!(failure.text.contains("died"), "{}", failure.text);
        assert_eq!(failure.stage, place);
    }
}

/// A stage's process is killed. The party that waits for it is first the stage behind it, and then
/// a producer.
#[test]
fn each_effect_of_a_stages_death() {
    let _watched = watched();
    for number in 0..=enumerations()["on_death"].most {
        let on_death = on_death(number);
        let make = |name: &Name| {
            let segment = builder(name, 0).reader("one").on_death(on_death);
            join(&segment.reader("behind").after(["one"]).build().unwrap())
        };
        let name = Name::new();
        let attached = make(&name);
        if let Some(client) = Client::new() {
            assert_eq!(client.agrees(&name).stages[0].on_death, on_death);
        }
        let Some(program) = client_in_c() else { continue };
        produce(&attached, 3);
        kill_a_reader(&name);
        let mut behind = Running::start(program, &["read", &name.0, "behind"]);
        if on_death != OnDeath::Wait {
            hears(&mut behind, &name, on_death, "one");
        } else {
            let mut one = Running::start(program, &["read", &name.0, "one"]);
            one.sees(0..3);
            behind.sees(0..3);
            one.ends();
            behind.ends();
        }
        let name = Name::new();
        let attached = make(&name);
        kill_a_reader(&name);
        let mut producer = Running::start(program, &["produce", &name.0, "12"]);
        if on_death != OnDeath::Wait {
            hears(&mut producer, &name, on_death, "one");
        } else {
            let mut readers = ["one", "behind"].map(|stage| attached.reader(stage).unwrap());
            for reader in &mut readers {
                let mut next = 0;
                while next < 8 {
                    next += reader.poll(8, |_, _| ()).unwrap();
                }
            }
            for reader in &mut readers {
                assert_eq!(reader.for_each(|_, _| ()).unwrap(), 4);
            }
            producer.ends();
        }
    }
}

/// While the first stage or the stage behind it waits, the last producer's process is killed: in a
/// ring with one producer, and in a ring with several.
#[test]
fn each_effect_of_the_producers_death() {
    let _watched = watched();
    for number in 0..=enumerations()["producer_on_death"].most {
        for producers in [1, 2] {
            let on_death = on_death(number);
            let make = |name: &Name| -> Attached<Item> {
                let segment: Builder<Item> = builder(name, 0).producers(producers);
                let segment = segment.producer_on_death(on_death).reader("one");
                join(&segment.reader("behind").after(["one"]).build().unwrap())
            };
            let name = Name::new();
            let attached = make(&name);
            if let Some(client) = Client::new() {
                assert_eq!(client.agrees(&name).producer_on_death, on_death);
            }
            let Some(program) = client_in_c() else { continue };
            kill_a_producer(program, &name);
            let mut behind = Running::start(program, &["read", &name.0, "behind"]);
            let mut one = Running::start(program, &["read", &name.0, "one"]);
            one.sees(0..8);
            if on_death != OnDeath::Fail {
                behind.sees(0..8);
            }
            match on_death {
                OnDeath::Wait => {
                    Running::start(program, &["produce", &name.0, "3"]).ends();
                    one.sees(8..11);
                    one.ends();
                    behind.ends_after(8..11);
                }
                OnDeath::Close => {
                    one.ends();
                    behind.ends();
                    assert_eq!(inspect(&name.0).unwrap().ending, Ending::Closed);
                }
                OnDeath::Tell => hears(&mut one, &name, on_death, "producer"),
                OnDeath::Fail => {
                    hears(&mut one, &name, on_death, "producer");
                    hears(&mut behind, &name, on_death, "producer");
                }
            }
            drop(attached);
        }
    }
}

/// Producers in C are killed at any step, one after the other, and the readers are in C as well.
/// The last death closes the ring, and each stage sees the same events.
#[test]
fn deaths_close_a_ring_of_clients_in_c() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    let mut pauses = fastrand::Rng::with_seed(11);
    for round in 0..30 {
        let name = Name::new();
        let producers = 1 + round % 3;
        let segment = builder(&name, 0).producers(producers).producer_on_death(OnDeath::Close);
        let _segment = segment.reader("one").reader("behind").after(["one"]).build().unwrap();
        let readers = ["one", "behind"].map(|stage| {
            let mut reader = Running::start(program, &["read", &name.0, stage]);
            std::thread::spawn(move || {
                let mut seen = Vec::new();
                while let Some(line) = reader.line() {
                    let (seq, word) = line.split_once(' ').unwrap();
                    let seq: u64 = seq.parse().unwrap();
                    assert_eq!(word.parse(), Ok(word_of(seq)));
                    seen.push(seq);
                }
                reader.ends();
                seen
            })
        });
        let produce = ["produce", &name.0, "100000000"];
        let all: Vec<_> = (0..producers).map(|_| Running::start(program, &produce)).collect();
        until(|| {
            let summary = inspect(&name.0).unwrap();
            let seats = summary.producer_seats;
            summary.published > 100 && seats.iter().all(|seat| seat.participant.is_some())
        });
        for producer in all {
            std::thread::sleep(std::time::Duration::from_micros(pauses.u64(..2_000)));
            drop(producer); // killed
        }
        let [one, behind] = readers.map(|reader| reader.join().unwrap());
        assert!(one.len() > 100 && one.is_sorted());
        assert!(one == behind, "the stages saw other events");
        let summary = inspect(&name.0).unwrap();
        assert_eq!((summary.ending, summary.stages[1].lag), (Ending::Closed, 0));
    }
}
