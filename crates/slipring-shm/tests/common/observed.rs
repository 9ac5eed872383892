//! The observer `clients/segment.py`, and the events that it prints.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use slipring_shm::{
    Attached, Builder, Event, OnDeath, Segment, inspect,
    summaries::{Liveness, SeatSummary, Summary},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Name;
use super::clients::{Python, python, word_of};

/// An event that shows whether a copy mixes two events: its words then contradict each other.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Item {
    pub words: [u64; 32],
}

impl Event for Item {
    const NAME: &'static str = "test/Item, for other languages";
    const VERSION: u32 = 7;
}

impl Item {
    pub fn fill(&mut self, seq: u64) {
        self.words.fill(word_of(seq));
    }
}

/// The program that observes segments.
pub struct Client(pub Python);

impl Client {
    /// Returns the program, or `None` if there is no Python.
    pub fn new() -> Option<Client> {
        python().map(Client)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.0.command(arguments)
    }

    /// Runs the program, which must succeed. Returns its lines as JSON.
    pub fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.command(arguments).arg("--json").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        // `ls` also reads the segments of other tests, which may be damaged.
        let is_quiet = complaint.is_empty() || arguments == ["ls"];
        assert!(output.status.success() && is_quiet, "{arguments:?}: {complaint}");
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs the program, which must refuse the segment. Returns its complaint.
    pub fn refusal(&self, path: &Path) -> String {
        let output = self.command(&["show"]).arg(path).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(complaint.lines().count(), 1, "one line, and no traceback: {complaint}");
        complaint
    }

    /// Asserts that `show` agrees with the crate's inspection. Returns the summary.
    #[track_caller]
    pub fn agrees(&self, name: &Name) -> Summary {
        let summary = inspect(&name.0).unwrap();
        let shown = self.json(&["show", &name.0]);
        assert_eq!(shown.len(), 1);
        let mut said = shown[0].clone();
        let fields = said.as_object_mut().unwrap();
        // The inspection does not have these values.
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
    pub fn events(&self, name: &Name, more: &[&str]) -> Vec<Seen> {
        let lines = self.json(&[&["events", &name.0], more].concat());
        let (last, events) = lines.split_last().unwrap();
        assert_eq!(*last, json!({ "missed": 0 }));
        events.iter().map(Seen::read).collect()
    }
}

/// Removes the field `orphan` from each seat, because the expected value lacks it.
fn forget_orphans(value: &mut Value) {
    match value.get_mut("seats") {
        Some(seats) => seats.as_array_mut().unwrap().iter_mut().for_each(forget_orphans),
        None => _ = value.as_object_mut().unwrap().remove("orphan").unwrap(),
    }
}

/// Returns the JSON that the program must print for a summary.
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
        "contents": summary.contents, "capacity": summary.capacity, "length": summary.length,
        "created": summary.created.as_nanos() as u64, "producers": summary.producers,
        "notice_ms": summary.notice.as_millis() as u64,
        "ending": format!("{:?}", summary.ending).to_lowercase(),
        "published": summary.published, "producer_seats": seats(&summary.producer_seats),
        "producer_on_death": on_death(summary.producer_on_death),
        "stages": stages.collect::<Vec<_>>(), "places": summary.places,
        "participants": participants.collect::<Vec<_>>(), "stale": summary.stale,
    })
}

/// An event that the program has printed.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub seq: u64,
    /// The word that fills the copy, or `None` if the copy is torn.
    pub word: Option<u64>,
    pub whole: bool,
    pub last: bool,
}

impl Seen {
    pub fn read(line: &Value) -> Seen {
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

/// Whether the processor orders loads and stores, so that a program without fences can prove that
/// its copies are whole.
pub const ORDERED: bool = cfg!(target_arch = "x86_64");

/// Asserts that exactly the events at `seqs` were printed, in order. If `whole` is set, they must
/// be proven whole, unless the processor rules this out.
#[track_caller]
pub fn assert_seen(seen: &[Seen], seqs: impl Iterator<Item = u64>, whole: bool) {
    let expected: Vec<Seen> = seqs
        .map(|seq| Seen { seq, word: Some(word_of(seq)), whole: whole && ORDERED, last: true })
        .collect();
    assert_eq!(seen, expected);
}

/// First positions near each wrap: of positions, of bounds, and of a pool's claim word.
pub const FIRSTS: [u64; 5] = [0, u64::MAX - 4, (1 << 63) - 3, (1 << 62) + 1, (1 << 48) - 3];

pub fn builder(name: &Name, first: u64) -> Builder<Item> {
    Segment::create(&name.0).capacity(8).first_seq(first).notice(Duration::from_millis(2))
}

/// Publishes the next `count` events, one by one.
#[macro_export]
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

/// Attaches to a segment that only these tests know.
pub fn join(segment: &Segment<Item>) -> Attached<Item> {
    // SAFETY: only these tests know the segment.
    unsafe { segment.attach() }.unwrap()
}
