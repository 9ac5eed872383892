//! Runs `clients/client.c`, a reader and a producer that are written from SEGMENT.md alone, in the
//! same rings as the handles of this crate. A process of either side is killed, and the other side
//! continues.
//!
//! If there is no C compiler, each test prints that it did not run.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use common::clients::{Running, client_in_c, word_of};
use common::*;
use slipring_shm::{Attached, Builder, Event, Segment, inspect, summaries::Ending};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Item {
    words: [u64; 5],
}

impl Event for Item {
    const NAME: &'static str = "test/Item, for C";
    const VERSION: u32 = 1;
}

fn assert_item(item: &Item, seq: u64) {
    assert_eq!(item.words, [word_of(seq); 5], "the event at {seq}");
}

fn builder(name: &Name, first: u64) -> Builder<Item> {
    Segment::create(&name.0).capacity(8).first_seq(first).notice(Duration::from_millis(5))
}

fn join(segment: &Segment<Item>) -> Attached<Item> {
    // SAFETY: only these tests know the segment. The client follows the protocol.
    unsafe { segment.attach() }.unwrap()
}

/// First positions shortly before a wrap of the positions or of the claim word, or before the laps
/// in which stamps are refreshed.
const FIRSTS: [u64; 4] = [0, u64::MAX - 9, (1 << 63) - 9, (1 << 47) - 13];

/// Number of events of a stream.
const EVENTS: u64 = 5_000;

macro_rules! publish {
    ($tx:expr, $count:expr) => {
        for _ in 0..$count {
            let mut slot = $tx.claim().unwrap();
            slot.words = [word_of(slot.seq()); 5];
            slot.publish();
        }
    };
}

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[("claim", role_claim)]);
}

#[test]
fn a_producer_in_c_and_readers_here() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    for first in FIRSTS {
        let name = Name::new();
        let graph = builder(&name, first).reader("one").reader("other").reader("last");
        let attached = join(&graph.after(["one", "other"]).build().unwrap());
        let producer = Running::start(program, &["produce", &name.0, &EVENTS.to_string()]);
        let count = |stage: &'static str| {
            let mut reader = attached.reader(stage).unwrap();
            let mut next = first;
            let handled = reader.for_each(|item, at| {
                assert_eq!(at.seq, next);
                assert_item(item, at.seq);
                next = next.wrapping_add(1);
            });
            assert_eq!(handled.unwrap(), EVENTS);
        };
        std::thread::scope(|scope| {
            let threads = ["one", "other", "last"].map(|stage| scope.spawn(move || count(stage)));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        producer.ends();
        let summary = inspect(&name.0).unwrap();
        assert_eq!((summary.ending, summary.producer_seats[0].participant), (Ending::Closed, None));
    }
}

#[test]
fn readers_in_c_and_a_producer_here() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    for first in FIRSTS {
        let name = Name::new();
        let graph = builder(&name, first).reader("one").reader("behind").after(["one"]);
        let attached = join(&graph.build().unwrap());
        let mut readers =
            ["one", "behind"].map(|it| Running::start(program, &["read", &name.0, it]));
        let mut tx = attached.producer().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                publish!(tx, EVENTS - 16);
                // Runs of several slots.
                for _ in 0..4 {
                    let mut claim = tx.claim_n(4).unwrap();
                    let first = claim.first_seq();
                    for (item, offset) in claim.iter_mut().zip(0..) {
                        item.words = [word_of(first.wrapping_add(offset)); 5];
                    }
                    claim.publish();
                }
            });
            for reader in &mut readers {
                scope.spawn(move || reader.sees((0..EVENTS).map(|at| first.wrapping_add(at))));
            }
        });
        readers.into_iter().for_each(Running::ends);
        assert!(inspect(&name.0).unwrap().stages.iter().all(|stage| stage.lag == 0));
    }
}

/// Two producers in C and one of this crate publish into one ring. The one of this crate also gives
/// up claims. A reader, in C or of this crate, closes the ring.
#[test]
fn producers_in_c_and_here() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    for first in FIRSTS {
        let name = Name::new();
        let graph = builder(&name, first).producers(3).reader("one").reader("other");
        let graph = graph.reader("behind").after(["one", "other"]).build().unwrap();
        let attached = join(&graph);
        let mut one = Running::start(program, &["read", &name.0, "one"]);
        let mut behind = Running::start(program, &["read", &name.0, "behind"]);
        let mut tx = attached.shared_producer().unwrap();
        let produce = ["produce", &name.0, &EVENTS.to_string()];
        let producers = [(); 2].map(|()| Running::start(program, &produce));
        let mut other = attached.reader("other").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..EVENTS {
                    publish!(tx, 1);
                    if number % 5 == 0 {
                        drop(tx.claim_n(1 + number as usize % 3).unwrap());
                    }
                }
            });
            let seen = [&mut one, &mut behind].map(|reader| {
                scope.spawn(move || {
                    let event = |_| {
                        let line = reader.line().expect("another event");
                        let (seq, word) = line.split_once(' ').unwrap();
                        let seq = seq.parse().unwrap();
                        assert_eq!(word.parse(), Ok(word_of(seq)));
                        seq
                    };
                    (0..3 * EVENTS).map(event).collect::<Vec<u64>>()
                })
            });
            let mut here = Vec::new();
            let handled = other.for_each(|item, at| {
                assert_item(item, at.seq);
                here.push(at.seq);
            });
            assert_eq!(handled.unwrap(), 3 * EVENTS);
            assert!(here.is_sorted_by_key(|seq| seq.wrapping_sub(first)));
            for seen in seen {
                assert!(seen.join().unwrap() == here, "the stages saw other events");
            }
        });
        producers.into_iter().chain([one, behind]).for_each(Running::ends);
        assert_eq!(inspect(&name.0).unwrap().ending, Ending::Closed);
    }
}

/// A reader in C is killed while it holds lent events. Its successor, a reader of this crate,
/// learns which events these are. A reader in C that succeeds a reader of this crate learns it as
/// well.
#[test]
fn a_killed_reader_in_c_is_followed_by_one_here_and_back() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    for first in FIRSTS {
        let name = Name::new();
        let attached = join(&builder(&name, first).reader("one").build().unwrap());
        let mut tx = attached.producer().unwrap();
        let mut next = first;
        for round in 1..20 {
            let end = next.wrapping_add(6);
            // The producer publishes runs of 2 and 4 events.
            tx.claim_n(2).unwrap().publish();
            tx.claim_n(4).unwrap().publish();
            let mut reader = Running::start(program, &["hold", &name.0, "one"]);
            let line = reader.line().unwrap();
            let (from, to) = line.strip_prefix("holds ").unwrap().split_once(' ').unwrap();
            let held: u64 = to.parse().unwrap();
            assert_eq!((from.parse(), end.wrapping_sub(held) < 6), (Ok(next), true), "{line}");
            drop(reader); // killed
            let mut here = attached.reader("one").unwrap();
            assert_eq!(here.redelivered(), (next..held).into());
            // The successor leaves in the middle of a run, while it holds lent events.
            assert_eq!(here.poll(1, |_, at| assert_eq!(at.seq, next)).unwrap(), 1);
            next = next.wrapping_add(1);
            assert_eq!(here.batch(4).unwrap().len(), 4);
            drop(here);
            let held = next.wrapping_add(4);
            let mut reader = Running::start(program, &["hold", &name.0, "one"]);
            assert_eq!(reader.line(), Some(format!("again {next} {held}")));
            assert!(reader.line().unwrap().starts_with(&format!("holds {next} ")));
            drop(reader); // killed
            let mut here = attached.reader("one").unwrap();
            assert_eq!(here.poll(8, |_, _| ()).unwrap(), 5);
            next = end;
            let stage = inspect(&name.0).unwrap().stages.remove(0);
            assert_eq!((stage.position, stage.lag, stage.seats[0].deaths), (end, 0, 2 * round));
        }
    }
}

/// Many times, a reader in C is killed at an arbitrary step. Each time, it must have printed all
/// events that it has released.
#[test]
fn a_killed_reader_in_c_has_printed_what_it_released() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    let name = Name::new();
    let attached = join(&builder(&name, 0).capacity(64).reader("one").build().unwrap());
    let mut tx = attached.producer().unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The stream pauses now and then, so that the reader has to sleep.
        scope.spawn(|| {
            for count in 0_u64.. {
                match tx.try_claim() {
                    Ok(mut slot) => {
                        slot.words = [word_of(slot.seq()); 5];
                        slot.publish();
                    }
                    Err(_) if ends.load(Relaxed) => return,
                    Err(_) => std::thread::sleep(Duration::from_micros(5)),
                }
                if count.is_multiple_of(8_192) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let _end = End(&ends); // even if the test fails
        let mut pauses = fastrand::Rng::with_seed(7);
        let mut printed = 0;
        for round in 0..100 {
            let mut reader = Running::start(program, &["read", &name.0, "one"]);
            let first = reader.line().unwrap();
            std::thread::sleep(Duration::from_micros(pauses.u64(..3_000)));
            reader.child.kill().unwrap();
            let mut rest = String::new();
            reader.rest(&mut rest);
            // The last line may be incomplete.
            let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
            for line in [first.as_str()].into_iter().chain(whole.lines()) {
                let (seq, word) = line.split_once(' ').unwrap();
                if seq == "again" {
                    continue;
                }
                let seq: u64 = seq.parse().unwrap();
                assert_eq!(word.parse(), Ok(word_of(seq)));
                assert!(seq <= printed, "{seq} behind {printed} in round {round}");
                printed = printed.max(seq + 1);
            }
            let released = inspect(&name.0).unwrap().stages[0].position;
            assert!(released <= printed, "released {released}, printed {printed}: {round}");
        }
    });
}

/// Ends a stream when it is dropped.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A reader in C does not release events that it cannot print.
#[test]
fn a_reader_in_c_that_cannot_print_releases_nothing() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    for is_closed in [false, true] {
        let name = Name::new();
        let attached = join(&builder(&name, 0).reader("one").build().unwrap());
        let mut tx = attached.producer().unwrap();
        publish!(tx, 3);
        let output = if is_closed {
            // Each write to this socket fails from the start. The reader of a pipe would have to be
            // closed here after the spawn, and the client may have printed everything by then.
            let (theirs, ours) = UnixStream::pair().unwrap();
            ours.shutdown(Shutdown::Both).unwrap();
            Stdio::from(OwnedFd::from(theirs))
        } else {
            let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
                return skip("there is no /dev/full");
            };
            full.into()
        };
        let mut command = Command::new(program);
        command.args(["read", &name.0, "one"]).stdout(output).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains("the output cannot be written"), "{complaint}");
        assert_eq!(inspect(&name.0).unwrap().stages[0].position, 0);
        assert!(attached.reader("one").unwrap().redelivered().contains(0));
    }
}

#[test]
fn a_killed_producer_in_c_is_followed_by_one_here_and_back() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    let name = Name::new();
    let attached = join(&builder(&name, 0).reader("one").build().unwrap());
    let mut reader = attached.reader("one").unwrap();
    let mut next = 0;
    let mut read = |count: u64| {
        for _ in 0..count {
            let batch = reader.batch(1).unwrap();
            assert_eq!(batch.first_seq(), next);
            assert_item(&batch[0], next);
            batch.release();
            next += 1;
        }
    };
    for round in 0..20 {
        // The producer is killed while it waits for room, or while it publishes.
        let producer = Running::start(program, &["produce", &name.0, "1000000"]);
        read(100 + round);
        drop(producer);
        let mut tx = attached.producer().unwrap();
        let ready = inspect(&name.0).unwrap().stages[0].lag;
        read(ready);
        publish!(tx, 8);
        read(8);
        // If a process leaves without closing the ring, the ring stays open, as after a death.
        let gone = std::thread::spawn(move || {
            let _tx = tx;
            std::panic::resume_unwind(Box::new("gone"));
        });
        assert!(gone.join().is_err());
    }
    assert_eq!(inspect(&name.0).unwrap().producer_seats[0].deaths, 20);
}

/// Producers in C are killed one after the other, at any step. Their reader is in C as well, and
/// each new producer continues from the boundary that this reader has stored.
#[test]
fn a_reader_in_c_outlives_its_producers() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    let name = Name::new();
    let attached = join(&builder(&name, 0).reader("one").build().unwrap());
    let mut reader = Running::start(program, &["read", &name.0, "one"]);
    let mut pauses = fastrand::Rng::with_seed(3);
    let victims = 40;
    let reads = std::thread::spawn(move || {
        let mut next = 0;
        while let Some(line) = reader.line() {
            assert_eq!(line, format!("{next} {}", word_of(next)));
            next += 1;
        }
        reader.ends();
        next
    });
    for _ in 0..victims {
        let before = inspect(&name.0).unwrap().published;
        let producer = Running::start(program, &["produce", &name.0, "100000000"]);
        until(|| inspect(&name.0).unwrap().published.wrapping_sub(before) > 1_000);
        std::thread::sleep(Duration::from_micros(pauses.u64(..300)));
        drop(producer); // killed
    }
    let mut tx = attached.producer().unwrap();
    publish!(tx, 1);
    drop(tx);
    let last = reads.join().unwrap();
    let summary = inspect(&name.0).unwrap();
    let stage = &summary.stages[0];
    assert_eq!((summary.published, stage.position, stage.lag), (last, last, 0));
    assert_eq!(summary.producer_seats[0].deaths, victims);
}

/// Claims some slots, and is killed.
fn role_claim() {
    let attached = join(&Segment::open(value("NAME")).unwrap());
    let mut tx = attached.shared_producer().unwrap();
    publish!(tx, 1);
    let mut claim = tx.claim_n(5).unwrap();
    claim.iter_mut().for_each(|item| item.words = [0; 5]);
    say("there");
    listen();
}

/// Producers are killed while they hold claims, and all other processes are clients in C. A reader
/// in C gives up the claims, and continues with the events of the next producer.
#[test]
fn a_reader_in_c_recovers_producers() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    for first in FIRSTS {
        let at = |count: u64| first.wrapping_add(count);
        let name = Name::new();
        builder(&name, first).producers(2).reader("one").build().unwrap();
        let mut reader = Running::start(program, &["read", &name.0, "one"]);
        let mut next = 0;
        for round in 0..4 {
            let mut role = Role::start("claim", &[("NAME", &name.0)]);
            assert_eq!(role.hear(), "there");
            role.kill();
            reader.sees([at(next)].into_iter());
            until(|| inspect(&name.0).unwrap().stages[0].position == at(next + 6));
            let seats = inspect(&name.0).unwrap().producer_seats;
            let deaths: u32 = seats.iter().map(|seat| seat.deaths).sum();
            assert!(deaths == round + 1 && seats.iter().all(|seat| seat.participant.is_none()));
            next += 6;
        }
        Running::start(program, &["produce", &name.0, "3"]).ends();
        reader.sees((next..next + 3).map(at));
        reader.ends();
        assert_eq!(inspect(&name.0).unwrap().ending, Ending::Closed);
    }
}

#[test]
fn what_the_client_does_not_know_it_refuses() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    let complaint = |arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let name = Name::new();
    assert!(complaint(&["read", &name.0, "one"]).contains("cannot be opened"));
    let pool = builder(&name, 0).pool_reader("one", 2).build().unwrap();
    assert!(complaint(&["read", &name.0, "one"]).contains("has the delivery 1"));
    drop(pool);
    let name = Name::new();
    let attached = join(&builder(&name, 0).reader("one").build().unwrap());
    assert!(complaint(&["read", &name.0, "two"]).contains("no such stage"));
    let reader = attached.reader("one").unwrap();
    assert!(complaint(&["read", &name.0, "one"]).contains("another process has the stage"));
    // A client that is given an invalid count does not close the ring.
    for count in ["abc", "", "-1", "+1", " 1", "1x", "0x10", "18446744073709551616"] {
        assert!(complaint(&["produce", &name.0, count]).contains("is no number"), "{count:?}");
        assert_eq!(inspect(&name.0).unwrap().ending, Ending::Running);
    }
    drop((reader, attached.producer().unwrap()));
    assert!(complaint(&["produce", &name.0, "1"]).contains("the ring is over"));
}

/// If descriptor 0, 1 or 2 is closed when the client starts, the client does not open the segment
/// under that number, because its output would then overwrite the header.
#[test]
fn a_client_in_c_with_closed_descriptors_leaves_the_header_alone() {
    let _watched = watched();
    let Some(program) = client_in_c() else { return };
    let run = |closes: &str, arguments: &[&str]| {
        let script = format!("exec \"$0\" \"$@\" {closes}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(program).args(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().code()
    };
    for closes in ["2>&-", "1>&-", "<&- 1>&-", "<&- 2>&-", "1>&- 2>&-", "<&- 1>&- 2>&-"] {
        // The client has already opened the segment when it finds out that it must refuse a pool.
        let pool = Name::new();
        builder(&pool, 0).pool_reader("one", 2).build().unwrap();
        let head = || std::fs::read(pool.path()).unwrap()[..4096].to_vec();
        let before = head();
        assert_eq!(run(closes, &["read", &pool.0, "one"]), Some(1), "{closes}");
        assert!(head() == before, "{closes}: the header is another");
        // A client whose output is closed releases no event.
        let name = Name::new();
        let attached = join(&builder(&name, 0).reader("one").build().unwrap());
        let mut tx = attached.producer().unwrap();
        publish!(tx, 3);
        if closes.contains("1>&-") {
            assert_eq!(run(closes, &["read", &name.0, "one"]), Some(1), "{closes}");
            assert_eq!(inspect(&name.0).unwrap().stages[0].position, 0, "{closes}");
        }
    }
}
